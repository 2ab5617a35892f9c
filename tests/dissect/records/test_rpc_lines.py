"""Lines of plain RPCs, filled in by the column: those that each RPC gives itself."""

from __future__ import annotations

import json

import pytest

from playbook.samples import MANIFEST, SAMPLES
from rdmascope.captures.formats.streams import Limits
from rdmascope.captures.session import Session
from rdmascope.dissect.records.rpc import rpc_record
from rdmascope.dissect.records.rpc_lines import RpcLines
from rdmascope.dissect.rpcrdma import plain
from rdmascope.dissect.rpcrdma.rpcs import Rpc


def line(rpc: Rpc) -> str:
    """With a sign that a template has to leave alone."""
    return json.dumps({"rate": "100%d", **rpc_record(rpc)})


@pytest.mark.parametrize("name", ["meta-rxe", "loss-rxe", "rxe-nfs-all"])
def test_every_line_is_that_of_its_rpc(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain, "MIN_ROWS", 1)
    monkeypatch.setattr(plain, "MIN_SHARE", 1 << 30)
    lines = RpcLines(line)
    made = 0
    for table in Session(str(SAMPLES / MANIFEST[name]["file"]), limits=Limits(frames=3000)).tables():
        assert lines.of(table) == [(rpc.number, line(rpc)) for rpc in table]
        made += len(table.plain)
    assert made
