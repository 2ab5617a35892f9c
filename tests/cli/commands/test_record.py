"""``rdmascope record``: one line that a customer can be told."""

import shlex

import pytest
from click.testing import CliRunner

from rdmascope.captures.live.device import Tracepoints
from rdmascope.cli.commands import record

HERE = Tracepoints(("rpcrdma:xprtrdma_reply", "sunrpc:rpc_request"), "6.1.0")
ELSEWHERE = Tracepoints(("rpcrdma", "sunrpc"), "6.18", "tracefs: Permission denied")


def test_the_line_is_all_there_is_on_standard_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "tracepoints", lambda: HERE)
    done = CliRunner().invoke(record.command, ["--duration", "30s", "-o", "client.trace.dat"])
    assert (done.exit_code, shlex.split(done.stdout)) == (0, [
        "trace-cmd", "record", "-o", "client.trace.dat", "-C", "mono", "-b", "20000",
        "-e", "rpcrdma:xprtrdma_reply", "-e", "sunrpc:rpc_request", "sleep", "30",
    ])  # fmt: skip


def test_a_line_for_any_kernel_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "tracepoints", lambda: ELSEWHERE)
    done = CliRunner().invoke(record.command)
    assert done.stdout == "trace-cmd record -o nfs.trace.dat -C mono -b 20000 -e rpcrdma -e sunrpc\n"
    assert done.stderr == "rdmascope: for any kernel, not for this one (tracefs: Permission denied)\n"


def test_it_runs_nothing_that_this_kernel_may_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "tracepoints", lambda: ELSEWHERE)
    done = CliRunner().invoke(record.command, ["--run"])
    assert done.exit_code != 0
    assert "Permission denied" in str(done.exception)


@pytest.mark.parametrize("status", [0, 1])
def test_what_trace_cmd_says_counts(monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    ran: list[list[str]] = []
    monkeypatch.setattr(record, "tracepoints", lambda: HERE)

    def recorded(words: list[str]) -> int:
        ran.append(words)
        return status

    monkeypatch.setattr(record, "run_recording", recorded)
    done = CliRunner().invoke(record.command, ["--run", "-o", "x.dat"])
    assert ran[0][:4] == ["trace-cmd", "record", "-o", "x.dat"]
    assert (done.exit_code == 0, "rdmascope report x.dat" in done.stdout) == (status == 0, status == 0)
