"""The inputs that ``make bench`` measures are what their names say."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import rdmascope
from rdmascope.captures.session.session import Session
from rdmascope.dissect.rpcrdma.rpcs import Rpc

BENCH = Path(__file__).parents[1] / "bench"
USED = 60
"""Packets of the long mount's connection that are repeated here; no call is open behind them."""


def module(monkeypatch: pytest.MonkeyPatch, name: str) -> ModuleType:
    """A module of bench/, which is on no path."""
    monkeypatch.syspath_prepend(str(BENCH.parent))
    return import_module(f"bench.{name}")


def made(build: ModuleType, name: str, times: int) -> tuple[int, int]:
    """Connections and RPCs of an input with fewer repetitions; every RPC is complete, every packet's ICRC right."""
    wanted = next(one for one in build.INPUTS if one.name == name)
    wanted = replace(wanted, times=times, first=wanted.first or USED)
    build.make(wanted)
    session = rdmascope.read(wanted.path, icrc=True).session()
    states = [rpc.state for rpc in session.rpcs()]
    assert set(states) == {"complete"}
    analyzer = session.analyzer
    healths = [analyzer.health(one.number) for one in analyzer.connections]
    assert not any(end.icrc_failure_count for health in healths for end in health.directions)
    return len(analyzer.connections), len(states)


def test_a_long_mount_is_one_connection(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    build = module(monkeypatch, "build")
    monkeypatch.setattr(build, "WORK", tmp_path)
    connections, rpcs = made(build, "mount", 1)
    assert connections == 1
    assert made(build, "mount", 3) == (1, 3 * rpcs)


def test_short_connections_are_many(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    build = module(monkeypatch, "build")
    monkeypatch.setattr(build, "WORK", tmp_path)
    connections, rpcs = made(build, "short", 12)
    assert connections == 12 and rpcs % 12 == 0


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("missing-1", "missing"),
        ("retransmitted", "retransmitted"),
        ("mirrored", "retransmitted"),
        ("reordered", "reordered"),
    ],
)
def test_what_goes_wrong_is_seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, fault: str) -> None:
    build = module(monkeypatch, "build")
    monkeypatch.setattr(build, "WORK", tmp_path)
    wanted = replace(next(one for one in build.INPUTS if one.name == name), times=1)
    build.make(wanted)
    session = rdmascope.read(wanted.path, icrc=True).session()
    rpcs = [*session.rpcs()]
    healths = [session.analyzer.health(one.number) for one in session.analyzer.connections]
    ends = [end for health in healths for end in health.directions]
    counts = {
        "missing": sum(end.missing for end in ends),
        "retransmitted": sum(end.retransmitted.packets for end in ends),
        "reordered": sum(end.reordered for end in ends),
    }
    assert counts[fault]
    assert not any(end.icrc_failure_count for end in ends)
    assert name == "missing-1" or {rpc.state for rpc in rpcs} == {"complete", "error"}


@pytest.mark.parametrize(("changed", "transport"), [("iwarp-metadata", "iWARP"), ("tcp-metadata", "TCP")])
def test_metadata_over_tcp(changed: str, transport: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    build = module(monkeypatch, "build")
    monkeypatch.setattr(build, "WORK", tmp_path)
    found: list[tuple[int, int]] = []
    for name in "metadata", changed:
        wanted = replace(next(one for one in build.INPUTS if one.name == name), times=1)
        build.make(wanted)
        session = rdmascope.read(wanted.path).session()
        rpcs = [*session.rpcs()]
        assert {rpc.state for rpc in rpcs} == {"complete", "error"}
        found.append((len(rpcs), sum(rpc.call_bytes + rpc.reply_bytes for rpc in rpcs)))
    assert found[0] == found[1]
    assert {one.transport for one in session.analyzer.connections} == {transport}


def test_clients_of_a_server_have_addresses_of_their_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    build = module(monkeypatch, "build")
    monkeypatch.setattr(build, "WORK", tmp_path)
    server = next(one for one in build.INPUTS if one.name == "server")
    few = replace(server, times=5, first=USED, beside=replace(server.beside, times=2))
    build.make(few)
    session = rdmascope.read(few.path, icrc=True).session()
    rpcs = [record(rpc) for rpc in session.rpcs()]
    connections = session.analyzer.connections
    assert len({one.endpoints[0].address for one in connections}) == 7
    assert {one.endpoints[1].address for one in connections} == {"10.77.0.1"}
    # Divided among workers: what two hosts say to each other goes to one of them.
    for workers in 2, 4:
        divided = Session(few.path, session.analyzer.options, jobs=workers)
        assert [record(rpc) for rpc in divided.rpcs()] == rpcs
        found = divided.analyzer.connections
        assert [(one.number, one.endpoints) for one in found] == [(one.number, one.endpoints) for one in connections]
        assert [divided.analyzer.health(one.number) for one in found] == [
            session.analyzer.health(one.number) for one in connections
        ]


def record(rpc: Rpc) -> tuple[object, ...]:
    """What tells an RPC from all others, and its place."""
    ends = rpc.connection.endpoints
    return rpc.number, rpc.connection.number, str(ends[0]), rpc.xid, rpc.name, rpc.state, rpc.latency, rpc.notes


def test_every_row_has_an_input_that_can_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    build, rows = module(monkeypatch, "build"), module(monkeypatch, "rows")
    assert {row.input for row in rows.ROWS} <= {one.name for one in build.INPUTS}


def test_a_large_capture_has_short_connections_bulk_and_metadata(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    large = module(monkeypatch, "large")
    monkeypatch.setattr(large, "SHORT", 40)
    large.make(tmp_path / "large.pcap", 16_000_000)
    assert 16_000_000 <= (tmp_path / "large.pcap").stat().st_size < 32_000_000
    session = rdmascope.read(tmp_path / "large.pcap").session()
    rpcs = [rpc for rpc in session.rpcs() if rpc.state != "no reply"]
    assert {"READ", "GETATTR"} <= {rpc.name.split()[-1] for rpc in rpcs}
    assert len(session.analyzer.connections) > 40
