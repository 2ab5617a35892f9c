"""Filters of RPCs: several values add up, and one that can match nothing says so."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result
from hypothesis import given, strategies as st

from playbook.samples import SAMPLES
from rdmascope.cli.main import main
from rdmascope.dissect.measure.filters import CaptureExtent, parse_frames, procedure_names, unknown_connections

CAPTURE = str(SAMPLES / "rxe-nfs-all.pcap.zst")


def lines(*arguments: str) -> list[str]:
    result = run("rpcs", *arguments)
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()[1:]


def test_names_come_singly_and_in_lists() -> None:
    assert procedure_names(["READ", "WRITE, COMMIT", "READ,"]) == ("READ", "WRITE", "COMMIT")


def test_repeated_filters_add_up() -> None:
    reads, writes = lines("--procedure", "READ"), lines("--procedure", "WRITE")
    assert reads and writes and not set(reads) & set(writes)
    both = set(reads) | set(writes)
    assert set(lines("--procedure", "READ", "--procedure", "WRITE")) == both
    assert set(lines("--procedure", "read,Write")) == both
    assert set(lines("--procedure", "READ*")) > set(reads)
    one, two = lines("--connection", "1"), lines("--connection", "2")
    assert set(lines("--connection", "1", "--connection", "2")) == {*one, *two}


def run(command: str, *arguments: str) -> Result:
    return CliRunner(env={"COLUMNS": "160"}).invoke(main, [command, CAPTURE, *arguments])


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize(
    ("command", "arguments", "words"),
    [
        ("rpcs", ("--procedure", "REED"), "no procedure or operation 'REED'; did you mean READ?"),
        ("rpcs", ("--procedure", ","), "no procedure in ','"),
        ("rpcs", ("--xid", "0xfffffff1"), "no RPC with xid 0xfffffff1"),
        ("rpcs", ("--since", "5", "--until", "4"), "is not before until 4"),
        ("rpcs", ("--since", "00:13:05", "--until", "20"), "is not before until 20"),
        ("rpcs", ("--since", "2000"), "is after the last frame, 2026-11-21 00:14:30.146830 UTC"),
        ("rpcs", ("--until", "2026-11-21"), "is not after the first frame"),
        ("rpcs", ("--connection", "99"), "no connection 99; there are 11"),
        ("transport", ("--connection", "99"), "no connection 99; there are 11"),
        ("audit", ("--connection", "99"), "no connection 99; there are 11"),
        ("packets", ("--frame", "99999"), "no frame 99999; there are 3,697"),
        ("packets", ("--frame", "4000-"), "no frames 4000-; there are 3,697"),
        ("packets", ("--frame", "1-2"), "no RDMA packet in frames 1-2"),
        ("show", ("--frame", "99999"), "no frame 99999; there are 3,697"),
        ("show", ("--rpc", "999"), "no RPC 999; there are 237"),
        ("show", ("--xid", "0xfffffff1"), "no RPC with xid 0xfffffff1"),
    ],
)
def test_a_filter_that_can_match_nothing_says_so(
    command: str, arguments: tuple[str, ...], words: str, as_json: bool
) -> None:
    result = run(command, *arguments, *(["--json"] if as_json else []))
    assert result.exit_code == 2
    assert words in result.stderr and result.stderr.count("\n") == 1, result.stderr
    assert result.stdout == ""


def test_what_can_match_does_beside_what_cannot() -> None:
    for command, arguments in (
        ("rpcs", ("--connection", "1", "--connection", "99")),
        ("transport", ("--connection", "1", "--connection", "99")),
        ("packets", ("--frame", "104", "--frame", "99999")),
        ("show", ("--rpc", "13", "--rpc", "999")),
    ):
        result = run(command, *arguments)
        assert result.exit_code == 2 and result.stdout, command
        assert "99" in result.stderr


def test_what_could_match_and_does_not_is_no_error() -> None:
    assert lines("--procedure", "SETXATTR") == []
    assert lines("--slower-than", "1000s") == []
    assert lines("--since", "0.0001", "--until", "0.0002") == []


def test_frames_and_rpcs_add_up() -> None:
    listed = run("packets", "--frame", "104-105,109", "--frame", "107").stdout.splitlines()[1:]
    assert [int(line.split()[0]) for line in listed] == [104, 105, 107, 109]
    shown = run("show", "--rpc", "13", "--rpc", "14", "--json").stdout.splitlines()
    assert [json.loads(line)["number"] for line in shown] == [13, 14]
    shown = run("show", "--frame", "104-105", "--json").stdout.splitlines()
    assert [json.loads(line)["number"] for line in shown] == [104, 105]


@given(st.text("0123456789-, ", max_size=12))
def test_any_text_is_frames_or_an_error(text: str) -> None:
    try:
        assert all(0 < one.first <= one.last for one in parse_frames(text))
    except ValueError as error:
        assert "neither a frame number nor a range" in str(error)


def test_an_evicted_connection_is_not_unknown() -> None:
    capture = CaptureExtent(connections={3, 4}, evicted=2)
    assert unknown_connections([3, 4], capture) == ""
    assert unknown_connections([2], capture) == "connection 2 was evicted: 4 are too many to keep each of them"
    assert unknown_connections([5], capture) == "no connection 5; there are 4"
