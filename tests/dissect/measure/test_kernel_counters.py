"""The texts of /proc in which Linux counts."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from rdmascope.dissect.measure.kernel_counters import (
    CounterError,
    OperationCounters,
    mount_of,
    mounts_since,
    parse_mountstats,
    parse_nfsd,
)

COUNTERS = Path(__file__).parents[2] / "captures" / "session" / "counters"
MOUNTSTATS = (COUNTERS / "mountstats.txt").read_text()
NFSD = [(COUNTERS / f"nfsd.{at}").read_text() for at in (0, 1)]


def test_the_mounts_of_a_client() -> None:
    third, fourth = parse_mountstats(MOUNTSTATS)
    assert (third.path, third.server, third.version, third.minor_version) == ("/mnt3", "10.77.0.1", 3, None)
    assert (third.age, third.address, third.options["rsize"]) == (47, "10.77.0.1", "262144")
    assert (fourth.path, fourth.version, fourth.minor_version) == ("/mnt4", 4, 2)
    assert third.operations["WRITE"] == OperationCounters(59, 59, 0, 3430984, 8024, 31, 4042, 4184, 0)
    (line,) = fourth.transports
    assert (line.kind, line.counters["sends"], line.counters["outstanding_sum"]) == ("rdma", 314, 429)
    assert (line.counters["read_segments"], line.counters["reply_segments"]) == (41, 75)
    assert line.counters["reply_waits_for_send"] == 0 and line.counters["mrs_allocated"] == 22


def test_between_two_readings() -> None:
    later = MOUNTSTATS.replace("age:\t47", "age:\t50").replace(
        "LOOKUP: 34 34 0 3360 4168 31 533 580 32", "LOOKUP: 36 37 1 3400 4300 33 600 650 33"
    )
    third, fourth = mounts_since(parse_mountstats(later), parse_mountstats(MOUNTSTATS))
    assert third.operations["LOOKUP"] == OperationCounters(2, 3, 1, 40, 132, 2, 67, 70, 1)
    assert third.operations["WRITE"].calls == 0 and third.transports[0].counters["sends"] == 0
    assert not any(one.calls for one in fourth.operations.values())


def test_a_newer_mount_counts_from_its_beginning() -> None:
    young = MOUNTSTATS.replace("age:\t47", "age:\t1")
    third, _ = mounts_since(parse_mountstats(young), parse_mountstats(MOUNTSTATS))
    assert third.operations["WRITE"].calls == 59


def test_a_kernel_that_does_not_count_errors() -> None:
    old = "".join(
        line.rpartition(" ")[0] + "\n" if line.lstrip().startswith("LOOKUP:") else line
        for line in MOUNTSTATS.splitlines(keepends=True)
    )
    third, _ = parse_mountstats(old)
    lookup = third.operations["LOOKUP"]
    assert lookup.errors is None and (lookup + lookup).errors is None and (lookup - lookup).calls == 0


def test_names_and_other_transports() -> None:
    text = MOUNTSTATS.replace("/mnt3 with", "/a\\040b with").replace("10.77.0.1:/export", "[fd00::1]:/export")
    third, _ = parse_mountstats(text.replace("xprt:\trdma 0 0 1 0 22 269", "xprt:\ttcp 0 0 1 0 22 269"))
    assert (third.path, third.server) == ("/a b", "fd00::1")
    assert third.transports[0].kind == "tcp" and third.transports[0].counters["sends"] == 269


def test_the_mount_of_a_path() -> None:
    mounts = parse_mountstats(MOUNTSTATS.replace("on /mnt4 ", "on /mnt3/below "))
    found = [mount_of(mounts, path) for path in ("/mnt3", "/mnt3/a/b", "/mnt3/below/c", "/mnt3x", "/")]
    assert [one and one.version for one in found] == [3, 3, 4, None, None]


@pytest.mark.parametrize(
    "text, complaint",
    [
        ("", "this is no /proc/self/mountstats"),
        ("hello\n", "this is no /proc/self/mountstats"),
        ("device proc mounted on /proc with fstype proc\n", "no NFS mount is in it"),
        (MOUNTSTATS.partition("per-op")[0], "/mnt3: the text ends before its per-op statistics"),
        (MOUNTSTATS.replace("NULL: 1 1 0", "NULL: 1 x 0", 1), "/mnt3: 'NULL: 1 x 0 40 24 22 22 46 0' cannot be read"),
        (MOUNTSTATS.partition("\txprt:")[0] + "\txprt:\n", "/mnt3: 'xprt:' cannot be read"),
        (
            MOUNTSTATS.replace("vers=4.2", "vers=4.x"),
            r"/mnt4: 'opts:\trw,vers=4.x,rsize=262144,wsize=262144,namlen=255,acreg' cannot be read",
        ),
    ],
)
def test_what_is_no_mountstats(text: str, complaint: str) -> None:
    with pytest.raises(CounterError) as caught:
        parse_mountstats(text)
    assert str(caught.value) == complaint


@given(st.integers(0, len(MOUNTSTATS)), st.text(max_size=20))
def test_no_text_is_too_bad(end: int, tail: str) -> None:
    for parse, text in ((parse_mountstats, MOUNTSTATS), (parse_nfsd, NFSD[1])):
        try:
            assert parse(text[:end] + tail)
        except CounterError as error:
            assert str(error)


def test_the_server_between_two_readings() -> None:
    before, after = map(parse_nfsd, NFSD)
    since = after.since(before)
    assert (since.calls, since.bad_calls, since.bytes_read, since.bytes_written) == (586, 0, 2539520, 6848674)
    assert since.procedures[3, "WRITE"] == 59 and since.procedures[4, "COMPOUND"] == 316
    assert since.operations["SEQUENCE"] == 311 and since.operations["OPEN"] == 64
    assert before.since(after) == before  # It began anew in between.


@pytest.mark.parametrize("text", ["", "hello\n", "rpc 1 2\nio 0 0\n"])
def test_what_is_no_nfsd(text: str) -> None:
    with pytest.raises(CounterError, match=r"this is no /proc/net/rpc/nfsd|has no counters"):
        parse_nfsd(text)
