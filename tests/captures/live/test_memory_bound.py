"""The bound of a live capture's memory: its parts, and that what is kept neither grows nor passes it."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType

import pytest

from playbook import Capture, Wire, nfs3
from playbook.capture import frame_batches
from playbook.rpcrdma import call, reply
from rdmascope import CaptureError
from rdmascope.captures.live.session import SMALLEST, LiveSession, MemoryBound, divided
from rdmascope.dissect.diagnosis import rpc_facts
from rdmascope.dissect.frames import FrameBatch
from rdmascope.dissect.link import duplicates
from rdmascope.dissect.rpcrdma.analyzer import Analyzer, Options
from rdmascope.dissect.transport.rc import observer

from .test_session import Replay

FEW = 8


def connections(count: int, cm: bool = True) -> list[FrameBatch]:
    """Each has a call and its reply."""
    wire = Wire()
    for _ in range(count):
        reply(call(wire.connect(cm=cm), nfs3.null()), nfs3.null_reply())
    capture = Capture(wire).frames
    return frame_batches(capture, range(10, len(capture), 10))


def objects(root: object) -> int:
    """How many hang on ``root``, entries of containers among them; classes, modules and functions do not count."""
    seen: set[int] = set()
    waiting = [root]
    held = []
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, type | ModuleType | FunctionType | BuiltinFunctionType | MethodType):
            continue
        seen.add(id(one))
        held.append(one)  # Or its address would be that of the next.
        waiting += gc.get_referents(one)
    return len(held)


def kept(count: int) -> int:
    """Objects of a session with one connection, after so many came and went."""
    session = LiveSession(Replay([]), Options(ended=FEW, max_connections=FEW))
    session.auditor.rules.clear()
    for batch in connections(count):
        session._take(batch)
        session._pass_time(busy=True)
        assert len(session.analyzer.connections) <= FEW
    session.analyzer.keep_fewer(1, 1, 1)
    session._pass_time(busy=True)
    gc.collect()
    assert len(session.analyzer.connections) == 1
    return objects(session)


def test_what_is_kept_does_not_grow_with_the_connections_that_were(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc_facts, "MAX_GROUPS", FEW)
    monkeypatch.setattr(observer, "MAX_FLOWS", FEW)
    monkeypatch.setattr(duplicates, "REMEMBERED", FEW * duplicates.SAMPLED)
    assert kept(24 * FEW) < 1.02 * kept(6 * FEW)


def test_the_parts_fit_in_the_whole() -> None:
    for devices in (1, 3):
        parts = divided(500_000_000, devices)
        assert devices * (parts.buffer + parts.before + parts.files * 500) < parts.limit / 2
    assert divided(2_000_000_000).options(Options(answered=512)).answered == 512
    with pytest.raises(CaptureError, match="the smallest possible bound is 256M"):
        divided(SMALLEST - 1)


def test_quiet_connections_go_where_memory_is_short() -> None:
    analyzer = Analyzer(Options(max_connections=64))
    for batch in connections(32):
        analyzer.feed(batch)
    now = [100_000_000]
    bound = MemoryBound(divided(500_000_000), measure=lambda: now[0], give_back=lambda: None)
    assert not bound.look(analyzer)
    now[0] = 450_000_000
    last = analyzer.connections[-1]
    assert bound.look(analyzer) and bound.max_connections == 31
    analyzer.tick(analyzer.last_time or 0)
    assert len(analyzer.connections) == 24 and analyzer.connections[-1] is last
    gone = analyzer.evicted_since()
    assert max(one.connection.last_time for one in gone) < min(one.last_time for one in analyzer.connections)
    bound.settle()
    assert not bound.look(analyzer)  # What was freed is used again before more is given up.
    now[0] = 476_000_000
    assert bound.look(analyzer)


@pytest.mark.parametrize("cm", [True, False])
def test_the_session_keeps_what_fits_and_says_what_it_gave_up(cm: bool) -> None:
    """Connections and flows without a partner take all of the memory here, and each the same."""
    limit, sizes = 30, list[int]()
    bound = MemoryBound(divided(SMALLEST), give_back=lambda: None)
    said: list[str] = []
    live = Replay(connections(120, cm))
    session = LiveSession(live, Options(), wanted=120, bound=bound, on_trouble=said.append)

    def measure() -> int:
        sizes.append(len(session.analyzer.connections) + session.analyzer.unpaired_flows)
        return SMALLEST * sizes[-1] // limit

    bound.measure = measure
    session.run(None)
    live.close()
    recorded = session.record()
    memory = recorded["memory"]
    assert max(sizes) <= limit
    assert memory["given_up"] == session.analyzer.evicted.connections >= 120 - limit and not recorded["evicted_calls"]
    assert memory["limit"] == SMALLEST and memory["connections"] == bound.max_connections
    assert said == ["memory is short: connections that were quiet the longest are evicted"]
    assert session.rpcs == 120 and not session.failed  # No call and its reply are two RPCs.


def test_a_connection_that_waits_for_a_reply_stays_though_it_is_quiet() -> None:
    wire = Wire()
    first = call(wire.connect(), nfs3.null())
    for _ in range(3 * FEW):
        reply(call(wire.connect(), nfs3.null()), nfs3.null_reply())
    reply(first, nfs3.null_reply())
    analyzer = Analyzer(Options(max_connections=FEW))
    frames = Capture(wire).frames
    rpcs = [rpc for batch in frame_batches(frames, range(10, len(frames), 10)) for rpc in analyzer.feed(batch)]
    rpcs += analyzer.finish()
    assert {rpc.state for rpc in rpcs} == {"complete"} and len(rpcs) == 3 * FEW + 1
    assert analyzer.evicted.connections and not analyzer.evicted.open_calls


def test_the_process_stays_below_its_bound() -> None:
    """Its peak as the kernel knows it, over all that a sample makes it load and keep."""
    sample = Path(__file__).parents[3] / "captures" / "samples" / "rxe-nfs-all.pcap.zst"
    command = [sys.executable, "-c", "from rdmascope.cli.main import main; main()"]
    with sample.open("rb") as stream:
        done = subprocess.run([*command, "live", "-", "--json", "--memory", "256M"], stdin=stream, capture_output=True)
    assert not done.returncode, done.stderr
    memory = json.loads(done.stdout.splitlines()[-1])["memory"]
    assert 0 < memory["peak"] < memory["limit"] == 256_000_000
