"""The credits of connections that are over wait in a file, and come in the order of connections."""

from __future__ import annotations

from pathlib import Path

from playbook.extremes import EXTREMES
from rdmascope.captures import Limits
from rdmascope.captures.session.session import Session, each_credit_direction
from rdmascope.dissect.records.connection import credits_record
from rdmascope.dissect.rpcrdma.analyzer import Options


def test_those_that_are_over_are_the_same(tmp_path: Path) -> None:
    path = tmp_path / "connections.pcap"
    EXTREMES["connections"].write(60, path)
    few = Options(ended=0, max_connections=4)

    def session() -> Session:
        return Session(str(path), few, limits=Limits(frames=64))

    wanted = [credits_record(one) for one in session().credit_directions()]
    seen = []
    ended: list[int] = []
    reading = session()
    spooled = each_credit_direction(reading, lambda table: seen.append(len(table)), lambda: ended.append(sum(seen)))
    assert [credits_record(one) for one in spooled] == wanted
    assert ended == [sum(seen)] and len(wanted) > 50
    assert reading.analyzer.evicted.connections > 50
