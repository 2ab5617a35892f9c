"""A capture beside what both kernels counted of the same traffic: ``counters``, recorded between two Linux guests."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from playbook.commands import objects, run
from rdmascope.captures import CaptureError
from rdmascope.captures.fleet.batch import analyse, units
from rdmascope.captures.session.kernel_counters import MOUNTS, MOUNTSTATS, NFSD, RunningCounters, saved_counters
from rdmascope.captures.session.session import Session
from rdmascope.dissect.measure.kernel_counters import LATER
from rdmascope.dissect.rpcrdma.analyzer import Options

COUNTERS = Path(__file__).parent / "counters"
CLIENT, SAVED = str(COUNTERS / "client.pcapng.zst"), str(COUNTERS / "mountstats.txt")
SERVER = [str(COUNTERS / f"nfsd.{at}") for at in (0, 1)]


def test_the_wire_has_what_the_kernels_counted() -> None:
    found = saved_counters([SAVED], SERVER)
    session = Session(CLIENT)
    for table in session.tables(found.note):
        found.add(table)
    found.note(session.analyzer.conversations)
    third, fourth = found.mount_comparisons()
    assert sum(one.kernel.calls for one in third.operations) == 266
    assert not any(one.reasons for one in third.operations)
    later = {one.operation: one.missing for one in fourth.operations if one.reasons}
    assert later == {"GETATTR": -1, "DESTROY_SESSION": -1, "DESTROY_CLIENTID": -1}  # Of the unmount.
    assert {reason for one in fourth.operations for reason in one.reasons} == {LATER}
    for one in (*third.operations, *fourth.operations):
        if not one.reasons:
            kernel, wire = one.kernel, one.wire
            assert (kernel.sent, kernel.received, kernel.errors) == (wire.sent, wire.received, wire.errors)
    server = found.server_comparison()
    assert server is not None and server.servers == ("10.77.0.1",)
    assert all(row.counted == row.seen for row in (*server.procedures, *server.operations))


def test_the_report_has_it() -> None:
    records = objects("report", CLIENT, "--mountstats", SAVED, "--nfsd", SERVER[0], "--nfsd", SERVER[1])
    third, fourth, server = records[-3:]
    assert [one["type"] for one in (third, fourth, server)] == ["mount_counters", "mount_counters", "nfsd_counters"]
    assert (third["mounts"], third["since"], third["explained"]) == (["/mnt3"], "mount", True)
    assert server["since"] == "reading" and server["calls"] == 586
    for columns in (80, 160):
        page = run("report", CLIENT, "--mountstats", SAVED, "--nfsd", SERVER[1], columns=columns).stdout
        assert "Kernel counters of /mnt3" in page and "calls, errors and bytes are the same" in page
        assert "after the reading: GETATTR 1 more, DESTROY_SESSION 1 more" in page
        assert "32 calls not seen: other clients" in page  # Of before.
        assert max(map(len, page.splitlines())) <= columns


def test_the_captures_behind_tables_have_it_too(tmp_path: Path) -> None:
    given = "--mountstats", SAVED, "--nfsd", SERVER[0], "--nfsd", SERVER[1]
    alone = objects("report", CLIENT, *given)[-3:]
    for host in ("client", "switch"):  # The same traffic at two places counts once.
        (tmp_path / "fleet" / host).mkdir(parents=True)
        shutil.copy(CLIENT, tmp_path / "fleet" / host)
    with open(tmp_path / "fleet" / "switch" / Path(CLIENT).name, "ab") as other:
        other.write(bytes.fromhex("502a4d18 00000000"))  # Not the same contents: an empty skippable frame of zstd.
    data_set = str(tmp_path / "set")
    for unit in units([str(tmp_path / "fleet")]):
        assert not analyse(unit, data_set, Options()).problem
    together = objects("report", data_set, *given)[-3:]
    assert [one["type"] for one in together] == [one["type"] for one in alone]
    for found, wanted in zip(together, alone, strict=True):
        assert {name: found[name] for name in found if name not in ("file", "note")} == {
            name: wanted[name] for name in wanted if name not in ("file", "note")
        }
    run("sql", CLIENT, "--save", str(tmp_path / "saved.duckdb"))
    saved = run("report", str(tmp_path / "saved.duckdb"), *given)
    assert saved.exit_code == 0 and "Kernel counters of /mnt3" in saved.stdout
    assert "the tables do not hold packets" in saved.stderr


def test_the_difference_of_two_equal_readings_is_nothing() -> None:
    records = objects("report", CLIENT, "--mountstats", SAVED, "--mountstats", SAVED)
    assert not any(one["calls"] for one in records[-1]["operations"])


@pytest.mark.parametrize(
    "arguments, complaint",
    [
        (["--mountstats", SERVER[0]], "nfsd.0: this is no /proc/self/mountstats"),
        (["--nfsd", SAVED], "mountstats.txt: this is no /proc/net/rpc/nfsd"),
        (["--nfsd", "/nowhere/nfsd"], "/nowhere/nfsd: No such file or directory"),
        (["--mountstats", SAVED] * 3, "are given once, or twice: before and after"),
        (["--mountstats", SAVED, "--by", "client"], "--mountstats and --nfsd go with the page"),
    ],
)
def test_what_cannot_be_is_one_line(arguments: list[str], complaint: str) -> None:
    result = run("report", CLIENT, *arguments)
    assert (result.exit_code, result.stdout) == (2, "") and complaint in result.stderr


def proc(root: Path) -> None:
    """A /proc with the counters."""
    for path in (MOUNTSTATS, MOUNTS, NFSD):
        (root / path[1:]).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(SAVED, root / MOUNTSTATS[1:])
    shutil.copy(SERVER[0], root / NFSD[1:])
    (root / MOUNTS[1:]).write_text("box:/export /mnt3 nfs rw,vers=3,addr=10.9.8.7 0 0\ntmpfs /tmp tmpfs rw 0 0\n")


def test_the_running_kernel_is_read_twice(tmp_path: Path) -> None:
    proc(tmp_path)
    found = RunningCounters("/mnt3/some/file", True, str(tmp_path))
    text = Path(SAVED).read_text().replace("LOOKUP: 34 34", "LOOKUP: 35 35")
    (tmp_path / MOUNTSTATS[1:]).write_text(text)
    shutil.copy(SERVER[1], tmp_path / NFSD[1:])
    found.read_again()
    (mount,) = found.mounts
    assert (mount.path, mount.address, mount.operations["LOOKUP"].calls) == ("/mnt3", "10.9.8.7", 1)
    assert found.server is not None and found.server.calls == 586
    assert 0 < found.wire.begin <= found.wire.end
    assert found.mounts_between and found.server_between


def running(root: Path) -> RunningCounters:
    """Of all time."""
    proc(root)
    found = RunningCounters(None, True, str(root))
    found.wire.begin = 0
    return found


def test_what_several_capture_points_see_counts_once(tmp_path: Path) -> None:
    """Two see every connection, a third one of them; none of it all."""
    tables = [*Session(CLIENT).tables()]
    alone, together = running(tmp_path / "alone"), running(tmp_path / "together")
    points = [together.point() for _ in range(3)]
    for table in tables:
        alone.add(table)
        first = table.rows["connection"] == 1
        points[2].add(table.selected(first))
        points[0].add(table.selected(~first))
        points[1].add(table)
    for one in (alone, together):
        one.read_again()
    assert [*together.records()] == [*alone.records()]
    numbers = {connection for one in together.wire.callers.values() for connection in one.connections}
    assert {(3, 1), (1, 2)} <= numbers and not any(point == 2 for point, _ in numbers)


def test_only_the_first_capture_point_that_ends_reads_again(tmp_path: Path) -> None:
    found = running(tmp_path)
    points = [found.point(), found.point()]
    shutil.copy(SERVER[1], tmp_path / NFSD[1:])
    points[1].read_again()
    end = found.wire.end
    (tmp_path / NFSD[1:]).unlink()
    points[0].read_again()
    assert found.wire.end == end and found.server is not None and found.server.calls == 586


def test_a_path_that_is_on_no_mount(tmp_path: Path) -> None:
    proc(tmp_path)
    with pytest.raises(CaptureError, match=r"/elsewhere: is not on an NFS mount; there are /mnt3, /mnt4"):
        RunningCounters("/elsewhere", False, str(tmp_path))
    (tmp_path / NFSD[1:]).unlink()
    with pytest.raises(CaptureError, match="no NFS server runs here"):
        RunningCounters(None, True, str(tmp_path))
