"""The credits of connections that are over wait in a file, and come in the order of connections."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

from playbook.extremes import EXTREMES
from rdmascope.captures import Limits
from rdmascope.captures.session.listeners import DividedCredits
from rdmascope.captures.session.session import Session
from rdmascope.dissect.records.connection import credits_record
from rdmascope.dissect.rpcrdma.analyzer import Options


def test_those_that_are_over_are_the_same(tmp_path: Path) -> None:
    path = tmp_path / "connections.pcap"
    EXTREMES["connections"].write(60, path)
    few = Options(ended=0, max_connections=4)

    def session() -> Session:
        return Session(str(path), few, limits=Limits(frames=64))

    whole, credits = session(), DividedCredits()
    whole.watch(credits)
    for _ in whole.tables():
        pass
    in_order = chain.from_iterable(directions for _, directions in sorted(credits.directions.items()))
    wanted = [credits_record(one) for one in in_order if one.calls or one.replies]
    seen = []
    reading = session()
    assert [credits_record(one) for one in reading.credit_directions(lambda table: seen.append(len(table)))] == wanted
    assert sum(seen) >= len(wanted) > 50
    assert [credits_record(one) for one in session().credit_directions()] == wanted
    assert reading.analyzer.evicted.connections > 50
