"""``rdmascope info`` of a trace, and what needs packets and says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from playbook.commands import run

TRACES = Path(__file__).parents[2] / "captures" / "read"
CLIENT, SERVER = str(TRACES / "client-6.1.trace.dat"), str(TRACES / "server-6.1.txt.zst")


def test_a_trace_at_a_glance() -> None:
    shown = run("info", CLIENT, SERVER).stdout
    for words in (
        "trace.dat, 445 KiB",
        "Linux client 6.1.0-56-amd64",
        "local",
        "43,148, 12,698 of them make RPCs",
        "none",
    ):
        assert words in shown
    assert shown.count("that RPCs are made of") == 2
    client, server = map(json.loads, run("info", "--json", CLIENT, SERVER).stdout.splitlines())
    assert (client["type"], client["known"]["xprtrdma_reply"], client["lost_events"]) == ("trace_info", 592, 0)
    assert (server["kernel"], server["clock"], server["events"]) == (None, None, 15510)


def test_a_trace_that_is_cut_gives_what_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "cut.trace.dat"
    path.write_bytes(Path(CLIENT).read_bytes()[:100_000])
    done = run("info", str(path))
    assert done.exit_code == 2
    assert "truncated or damaged in the header" in done.stderr


@pytest.mark.parametrize("command", ["packets", "transport", "verify", "sessions", "audit"])
def test_what_needs_packets_says_so(command: str) -> None:
    done = run(command, CLIENT)
    assert done.exit_code == 2
    assert "a trace of a kernel has no packets, and no bytes of messages" in done.stderr


def test_credits_are_of_rdma_alone() -> None:
    assert run("transport", "--credits", CLIENT).stdout.startswith("Connection 3 ")
