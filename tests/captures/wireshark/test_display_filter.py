"""Display filters that are translated mean the RPCs that tshark's fields mean; others are refused in one line."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from playbook.commands import EVERYTHING, LOSS, run
from rdmascope.captures.errors import CaptureError
from rdmascope.captures.session.session import Session
from rdmascope.captures.tables.condition import Condition
from rdmascope.captures.wireshark.display_filter import FRAME, KNOWN, DisplayFilter, display_filter
from rdmascope.captures.wireshark.second_opinion import find_tshark
from rdmascope.dissect.measure.filters import FrameRange

FIRST_XID = "0x28a82abb"


def chosen(given: str, path: str = EVERYTHING) -> set[int]:
    """XIDs of the RPCs that a filter means."""
    condition = Condition([display_filter(given).condition])
    try:
        session = Session(path)
        return {rpc.xid for table in session.tables() for rpc in condition.selected(table, session)}
    finally:
        condition.close()


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("exported") / "tcp.pcapng"
    assert run("export", EVERYTHING, "--no-comments", "-o", str(path)).exit_code == 0
    return path


@pytest.mark.parametrize(
    "filter",
    [
        "rpc",
        "nfs",
        f"rpc.xid == {FIRST_XID}",
        f"rpc.xid eq {int(FIRST_XID, 16)}",
        "rpc.program == 100227",
        "rpc.programversion != 4 and nfs",
        "nfs.procedure_v3 == 6 or nfs.procedure_v3 == 7",
        "nfs.opcode == 25",
        "nfs.opcode==38 && rpc.program==100003",
        "ip.addr == 10.77.0.2 && nfs.procedure_v3 > 18",
        "!(rpc.programversion == 4)",
        "(nfs.procedure_v3 < 2)",
        "rpc.auth.uid == 0 && nfs.procedure_v3 == 3",
    ],
)
def test_calls_are_those_that_tshark_finds(filter: str, exported: Path) -> None:
    arguments = [find_tshark().path, "-r", str(exported), "-Y", f"({filter}) && rpc.msgtyp == 0"]
    done = subprocess.run([*arguments, "-T", "fields", "-e", "rpc.xid"], capture_output=True, text=True, check=True)
    assert chosen(filter) == {int(line, 16) for line in done.stdout.split()} != set()


@pytest.mark.parametrize(
    ("given", "condition", "frames"),
    [
        ("frame.number == 7", "", FrameRange(7, 7)),
        ("frame.number >= 7 && frame.number < 10", "", FrameRange(7, 9)),
        ("nfs && frame.number <= 9", "program = 'NFS'", FrameRange(1, 9)),
        ("latency > 10ms", "latency > 10ms", None),
        ("state <> 'complete'", "state <> 'complete'", None),
        (
            "path LIKE '/home/%' AND call_bytes BETWEEN 1 AND 2",
            "path LIKE '/home/%' AND call_bytes BETWEEN 1 AND 2",
            None,
        ),
        ('path == "/it\'s"', "path = '/it''s'", None),
        ("failed", '("failed")', None),
    ],
)
def test_translations(given: str, condition: str, frames: FrameRange | None) -> None:
    assert display_filter(given) == DisplayFilter(condition, frames)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("tcp.port == 2049", "'tcp.port' is not known here"),
        ("arp", "'arp' is not known here"),
        ("nfs || frame.number == 3", "with && only"),
        ("!(frame.number == 3)", "with && only"),
        ("frame.number != 3", "takes a number"),
        ("frame.number < 3 && frame.number > 5", "can be both"),
        ("nfs.opcode == 4711", "number of an operation"),
        ("nfs.opcode > 3", "number of an operation"),
        ("ip.addr > 10.0.0.1", "takes == and !="),
        ("", "is empty"),
    ],
)
def test_what_is_not_understood_is_said(given: str, words: str) -> None:
    with pytest.raises(CaptureError) as raised:
        display_filter(given)
    assert words in str(raised.value) and "\n" not in str(raised.value)


words = st.sampled_from(
    [*KNOWN, "==", "&&", "||", "!", "(", ")", "1", "0x2", "10.0.0.1", "latency_ns", ">", "'x'", "and"]
)


@given(st.one_of(st.text(max_size=30), st.lists(words, max_size=8).map(" ".join)))
def test_any_text_is_translated_or_refused(given: str) -> None:
    try:
        found = display_filter(given)
    except CaptureError:
        return
    assert found.condition or (FRAME in given and found.frames is not None)


def test_sql_that_is_wrong_is_one_line() -> None:
    result = run("packets", LOSS, "-Y", "latency_ns >>> 10 FOO")
    assert (result.exit_code, result.stdout, len(result.stderr.splitlines())) == (2, "", 1)
