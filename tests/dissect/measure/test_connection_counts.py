"""One number of connections, on the page and in JSON, with what it is made of."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from playbook import Capture, Wire, cm, nfs3, write_pcap
from playbook.rpcrdma import call, reply
from rdmascope.cli.main import main


def report(tmp_path: Path, refused: int, *arguments: str) -> str:
    """Of one connection that is used, and so many that are refused."""
    wire = Wire()
    reply(call(wire.connect(), nfs3.null()), nfs3.null_reply())
    for _ in range(refused):
        talk = wire.connect()
        del wire.packets[-2:]  # REP and RTU: the answer is REJ
        assert talk.sides is not None
        talk._mad(1, cm.REJ, cm.reject(talk.sides[1], talk.sides[0], 28))
    write_pcap(Capture(wire).frames, tmp_path / "x.pcap")
    result = CliRunner(env={"COLUMNS": "160"}).invoke(main, ["report", str(tmp_path / "x.pcap"), *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_refused_connections_are_counted_and_said(tmp_path: Path) -> None:
    page = report(tmp_path, 48)
    assert "1 RPC on 1 RPC-over-RDMA connection, all answered\n" in page
    assert "49 connections: 1 RPC-over-RDMA, 48 refused\n" in page
    (capture,) = (
        one for line in report(tmp_path, 48, "--json").splitlines() if (one := json.loads(line))["type"] == "capture"
    )
    assert (capture["connections"], capture["rpcrdma_connections"], capture["refused_connections"]) == (49, 1, 48)


def test_nothing_is_said_where_all_carry_rpcs(tmp_path: Path) -> None:
    assert "refused" not in report(tmp_path, 0)
