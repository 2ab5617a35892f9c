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
from rdmascope.captures.live.memory_bound import SMALLEST, MemoryBound, divided
from rdmascope.captures.live.session import LiveSession
from rdmascope.dissect.diagnosis import rpc_facts
from rdmascope.dissect.frames import FrameBatch
from rdmascope.dissect.rpcrdma.analyzer import Analyzer, Options
from rdmascope.dissect.transport.rc import observer

from .test_session import Replay

FEW = 8


def connections(count: int) -> list[FrameBatch]:
    """Each has a call and its reply."""
    wire = Wire()
    for _ in range(count):
        reply(call(wire.connect(), nfs3.null()), nfs3.null_reply())
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


def kept(count: int) -> tuple[int, int]:
    """Connections and objects of a session after so many connections came and went."""
    session = LiveSession(Replay([]), Options(ended=FEW, max_connections=FEW))
    session.auditor.rules.clear()
    for batch in connections(count):
        session._take(batch)
        session._pass_time(busy=True)
    gc.collect()
    assert session.analyzer.evicted.connections >= count - FEW
    return len(session.analyzer.connections), objects(session)


def test_what_is_kept_does_not_grow_with_the_connections_that_were(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc_facts, "MAX_GROUPS", FEW)
    monkeypatch.setattr(observer, "MAX_FLOWS", FEW)
    (present, fewer), (as_many, more) = kept(6 * FEW), kept(24 * FEW)
    assert present == as_many and more < 1.02 * fewer


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
    assert bound.look(analyzer) and bound.max_connections == 31
    analyzer.tick(analyzer.last_time or 0)
    assert len(analyzer.connections) == 24
    bound.settle()
    assert not bound.look(analyzer)  # What was freed is used again before more is given up.
    now[0] = 476_000_000
    assert bound.look(analyzer)


def test_the_session_says_what_it_gave_up() -> None:
    bound = MemoryBound(divided(SMALLEST), measure=lambda: SMALLEST, give_back=lambda: None)
    said: list[str] = []
    live = Replay(connections(40))
    session = LiveSession(live, Options(), wanted=40, bound=bound, on_trouble=said.append)
    session.run(None)
    live.close()
    memory = session.record()["memory"]
    assert memory["given_up"] == session.analyzer.evicted.connections > 0
    assert memory["limit"] == SMALLEST and memory["connections"] == bound.max_connections
    assert said == ["memory is short: connections that were quiet the longest are evicted"] and session.rpcs == 40


def test_the_process_stays_below_its_bound() -> None:
    """Its peak as the kernel knows it, over all that a sample makes it load and keep."""
    sample = Path(__file__).parents[3] / "captures" / "samples" / "rxe-nfs-all.pcap.zst"
    command = [sys.executable, "-c", "from rdmascope.cli.main import main; main()"]
    with sample.open("rb") as stream:
        done = subprocess.run([*command, "live", "-", "--json", "--memory", "256M"], stdin=stream, capture_output=True)
    assert not done.returncode, done.stderr
    memory = json.loads(done.stdout.splitlines()[-1])["memory"]
    assert 0 < memory["peak"] < memory["limit"] == 256_000_000
