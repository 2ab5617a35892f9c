"""Filters of RPCs: several values add up, and one that can match nothing says so."""

from __future__ import annotations

from click.testing import CliRunner, Result

from playbook.samples import SAMPLES
from rdmascope.cli.main import main
from rdmascope.dissect.measure.selection import procedure_names

CAPTURE = str(SAMPLES / "rxe-nfs-all.pcap.zst")


def rpcs(*arguments: str) -> Result:
    return CliRunner(env={"COLUMNS": "160"}).invoke(main, ["rpcs", CAPTURE, *arguments])


def lines(*arguments: str) -> list[str]:
    result = rpcs(*arguments)
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


def test_a_filter_that_can_match_nothing_says_so() -> None:
    for arguments, words in (
        (("--procedure", "REED"), "no procedure or operation 'REED'"),
        (("--connection", "99"), "no connection 99"),
        (("--xid", "0xfffffff1"), "no RPC with xid 0xfffffff1"),
        (("--since", "5", "--until", "4"), "--since is not before --until"),
    ):
        result = rpcs(*arguments)
        assert result.exit_code == 2
        assert words in result.stderr, result.stderr
    assert lines("--procedure", "RENAME*,SETXATTR") is not None
