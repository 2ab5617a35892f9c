"""A conversation without end, over thousands of connections: memory must not grow with it."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest

from playbook import Capture, Wire, call, faults, frame_batch, nfs3, reply
from playbook.iwarp import IwarpCapture, IwarpWire
from playbook.shapes import read, write
from rdmascope.captures.live.session import CREDIT_BINS
from rdmascope.dissect.audit.auditor import EARLIER, Auditor
from rdmascope.dissect.frames import FrameBatch
from rdmascope.dissect.measure.credits import CreditHistory
from rdmascope.dissect.measure.live_window import LiveWindow
from rdmascope.dissect.measure.statistics import Statistics
from rdmascope.dissect.rpcrdma.analyzer import Analyzer, Options, drop_contents
from rdmascope.dissect.rpcrdma.conversation import Conversation
from rdmascope.dissect.rpcrdma.listeners import Listeners
from rdmascope.dissect.rpcrdma.rpc_table import RpcTable
from rdmascope.dissect.rpcrdma.rpcs import Rpc

MINUTE = 60_000_000_000
FEW_EXACT, MANY_EXACT = 1000, 20_000
ENDED = 24
OPTIONS = Options(outstanding=64, ended=ENDED)


def again(batch: FrameBatch, frames: int, nanoseconds: int) -> FrameBatch:
    """The same frames once more, later: connections between the same queue pairs, after they were closed."""
    rows = batch.rows.copy()
    rows["number"] += frames
    rows["time"] += nanoseconds
    data = batch.data.copy()  # as the ring gives it: memory of its own
    data.flags.writeable = False
    return FrameBatch(data, rows)


def rounds(batch: FrameBatch, count: int) -> Iterator[FrameBatch]:
    """``count`` times the batch, two minutes apart."""
    for number in range(count):
        yield again(batch, number * len(batch), number * 2 * MINUTE)


def talk(wire: Wire, connections: int, rpcs: int) -> None:
    """Connections, one after the other, each with RPCs of which one gets no reply, and then closed."""
    for _ in range(connections):
        connection = wire.connect()
        for number in range(rpcs):
            if number % 10 == 3:
                read(connection, bytes(3000))
            elif number % 10 == 7:
                write(connection, bytes(3000))
            else:
                rpc = call(connection, nfs3.getattr_())
                if number != 5:
                    reply(rpc, nfs3.getattr_reply())
        connection.disconnect()


class Everything:
    """All that follows a live capture."""

    def __init__(self, options: Options = OPTIONS, audit: bool = True) -> None:
        self.audit = audit
        self.credits: dict[int, CreditHistory] = {}
        self.auditor = Auditor(examples=3, release=drop_contents)
        self.analyzer = Analyzer(options, self.watch)
        self.statistics = Statistics()
        self.recent = LiveWindow()
        self.rpcs = 0

    def watch(self, conversation: Conversation) -> Listeners:
        history = self.credits[conversation.connection.number] = CreditHistory(conversation, CREDIT_BINS)
        audit = self.auditor.listener(conversation) if self.audit else None
        return Listeners(history) if audit is None else Listeners(audit, history)

    def take(self, rpcs: Sequence[Rpc]) -> None:
        self.rpcs += len(rpcs)
        table = RpcTable([*rpcs])
        self.statistics.add_table(table)
        self.recent.add(table)

    def feed(self, batch: FrameBatch) -> None:
        self.take(self.analyzer.feed(batch))
        now = int(batch.rows["time"][-1]) + MINUTE
        self.take(self.analyzer.tick(now))
        self.auditor.tick(now)
        self.recent.advance(now, self.analyzer.connections)
        gone = self.analyzer.evicted_since()
        self.statistics.evict(gone)
        self.auditor.evict(gone)
        for conversation in gone:
            del self.credits[conversation.connection.number]

    def tables(self) -> dict[str, int]:
        """What could grow."""
        analyzer, auditor = self.analyzer, self.auditor
        observer = analyzer._observer
        iwarp = analyzer._iwarp
        return {
            "connections": len(analyzer.connections),
            "dispatchers": len(analyzer._dispatchers),
            "links": len(observer.links),
            "bound": len(observer.bindings.bound),
            "flows": len(observer.unpaired.flows),
            "requests": len(observer.management.requests),
            "half known": len(observer.management.half_known),
            "iWARP links": len(iwarp.connections) if iwarp else 0,
            "iWARP open": len(iwarp.open) if iwarp else 0,
            "watchers": len(auditor._listeners),
            "tallies": len(auditor.tallies),
            "audited": len(auditor.connections) + len(auditor._set_up) + len(auditor.sides_known),
            "shares": len(self.statistics.connections),
            "credits": len(self.credits),
            "recent": len(self.recent._rpcs),
        }


def settled(everything: Everything, batches: Iterator[FrameBatch], count: int) -> tuple[dict[str, int], int]:
    """Feed ``count`` batches; the most that any table, and memory as a whole, held behind one of them.

    Several tables are cut only when they are twice as long as they may be, so memory at one moment says little.
    """
    largest: dict[str, int] = {}
    held = 0
    for _ in range(count):
        everything.feed(next(batches))
        for name, size in everything.tables().items():
            largest[name] = max(size, largest.get(name, 0))
        if tracemalloc.is_tracing():
            gc.collect()
            held = max(held, tracemalloc.get_traced_memory()[0])
    return largest, held


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


def wires() -> dict[str, FrameBatch]:
    roce = Wire(seed=1)
    talk(roce, 10, 10)
    lossy = faults.lose(roce, roce.packets, faults.where(roce.packets, kind="write")[2])
    iwarp = IwarpWire(seed=1)
    talk(iwarp, 10, 10)
    return {
        "RoCEv2": frame_batch(Capture(roce).frames),
        "RoCEv2 with loss": frame_batch(Capture(roce, lossy).frames),
        "iWARP": frame_batch(IwarpCapture(iwarp).frames),
    }


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("name", ["RoCEv2", "RoCEv2 with loss", "iWARP"])
def test_memory_does_not_grow_with_connections(name: str) -> None:
    everything = Everything()
    batches = rounds(wires()[name], 9)
    settled(everything, batches, 3)
    first, held = settled(everything, batches, 3)
    second, later = settled(everything, batches, 3)
    assert second == first
    assert later < held * 1.05 + 50_000
    assert second["connections"] <= ENDED + 10
    analyzer, sums = everything.analyzer, everything.statistics
    assert analyzer.evicted.connections + len(analyzer.connections) == 90
    everything.take(analyzer.finish())
    assert everything.rpcs == 90 * 10
    shares = [*sums.connections.values(), sums.evicted]
    assert sum(share.calls for share in shares) == sums.calls == 90 * 10
    assert sums.states["no reply"] == 90


def test_tables_do_not_grow_with_a_thousand_connections() -> None:
    wire = Wire(seed=4)
    talk(wire, 10, 2)
    everything = Everything()
    batches = rounds(frame_batch(Capture(wire).frames), 100)
    settled(everything, batches, 25)
    first, _ = settled(everything, batches, 25)
    second, _ = settled(everything, batches, 50)
    assert second == first
    analyzer = everything.analyzer
    assert analyzer.evicted.connections + len(analyzer.connections) == 1000


def test_what_evicted_connections_broke_is_still_reported() -> None:
    wire = Wire(seed=2)
    talk(wire, 10, 10)
    batch = frame_batch(Capture(wire).frames)
    few, many = Everything(), Everything(OPTIONS._replace(ended=1000))
    for one in rounds(batch, 6):
        few.feed(one)
        many.feed(one)
    for everything in few, many:
        everything.take(everything.analyzer.finish())
        everything.auditor.finish(everything.analyzer.conversations)
    sums: list[dict[tuple[str, int], tuple[int, int, int]]] = []
    for everything in few, many:
        total: dict[tuple[str, int], tuple[int, int, int]] = {}
        for place, tally in everything.auditor.tallies.items():
            before = total.get((place.rule, place.endpoint), (0, 0, 0))
            now = tally.passed, tally.violated, tally.undecidable
            total[place.rule, place.endpoint] = tuple(np.add(before, now).tolist())
        sums.append(total)
    assert any(place.connection == EARLIER for place in few.auditor.tallies)
    assert not any(place.connection == EARLIER for place in many.auditor.tallies)
    assert sums[0] == sums[1]


def one_connection(rpcs: int) -> tuple[FrameBatch, Iterator[FrameBatch]]:
    """How it is set up, and ever again as many RPCs, of which one in 100 gets no reply."""
    wire = Wire(seed=3)
    connection = wire.connect()
    opening = len(wire.packets)
    for number in range(rpcs):
        rpc = call(connection, nfs3.getattr_(), xid=number + 1)
        if number % 100 != 50:
            reply(rpc, nfs3.getattr_reply())
    # Without a right ICRC anywhere, as a mirror port shows them, for the PSNs will be rewritten.
    frames = [replace(frame, data=frame.data[:-4] + bytes(4)) for frame in Capture(wire).frames]
    batch = frame_batch(frames[opening:], opening + 1)

    def on() -> Iterator[FrameBatch]:
        for number in range(1 << 24):
            yield advanced(again(batch, number * len(batch), number * 2 * MINUTE), number)

    return frame_batch(frames[:opening]), on()


@pytest.mark.usefixtures("traced")
def test_memory_does_not_grow_on_one_connection() -> None:
    everything = Everything(OPTIONS._replace(outstanding=16))
    everything.statistics = Statistics(exact=FEW_EXACT)
    opening, batches = one_connection(100)
    everything.feed(opening)
    settled(everything, batches, 22)  # no more calls are remembered
    first, held = settled(everything, batches, 20)
    second, later = settled(everything, batches, 15)
    assert second == first
    assert later < held * 1.05 + 100_000  # Pauses of either end are still being gathered, up to MAX_SILENCES.
    assert len(everything.analyzer.connections) == 1
    assert not sum(everything.analyzer.connections[0].missing_packets)
    everything.take(everything.analyzer.finish())
    assert everything.rpcs == 5700
    assert everything.statistics.states == {"complete": 5700 - 57, "no reply": 57}


def test_tens_of_thousands_of_rpcs_leave_nothing_behind() -> None:
    everything = Everything(audit=False)
    everything.statistics = Statistics(exact=MANY_EXACT)
    opening, batches = one_connection(2000)
    everything.feed(opening)
    first, _ = settled(everything, batches, 5)
    second, _ = settled(everything, batches, 13)
    assert second == first
    matching = everything.analyzer._dispatchers[1].matching
    assert matching.outstanding <= OPTIONS.outstanding
    memory = matching.memory
    assert not any((matching.waiting, *memory.segments, *memory.contested))
    procedure = everything.statistics.procedures()[0]
    assert procedure.calls > 34_000
    assert len(procedure._latency.recent) < MANY_EXACT < procedure._latency.count
    assert len(everything.credits[1].open[0]) <= OPTIONS.outstanding


def advanced(batch: FrameBatch, number: int) -> FrameBatch:
    """Each packet's PSN is moved on by as many as its flow has in a round."""
    data = batch.data.copy()
    offset = batch.rows["offset"]
    udp = offset + 14 + 20
    bth = udp + 8
    opcode = data[bth]
    psn = (data[bth + 9].astype(np.int64) << 16) | (data[bth + 10].astype(np.int64) << 8) | data[bth + 11]
    client = data[offset + 29]  # last byte of the source address
    request = opcode == 0x04  # SEND Only
    for source in np.unique(client):
        mine = request & (client == source)
        theirs = ~request & (client != source)
        step = int(np.count_nonzero(mine)) * number
        for which in (mine, theirs):
            psn[which] = (psn[which] + step) % (1 << 24)
    for byte, shift in ((9, 16), (10, 8), (11, 0)):
        data[bth + byte] = (psn >> shift & 0xFF).astype(np.uint8)
    data.flags.writeable = False
    return FrameBatch(data, batch.rows)


@pytest.mark.parametrize("audited", [False, True])
def test_what_is_evicted_is_no_garbage(audited: bool) -> None:
    """Nobody need look for it: that takes longer, the more is known of other connections."""
    wire = Wire()
    talk(wire, 8, 10)
    batch = frame_batch(Capture(wire).frames)
    gc.collect()
    auditor = Auditor()
    analyzer = Analyzer(OPTIONS, listener=auditor.listener if audited else None)
    gc.disable()
    try:
        evicted = 0
        for one in rounds(batch, 10):
            analyzer.feed_table(analyzer.decoder.take(one))
            gone = analyzer.evicted_since()
            auditor.evict(gone)
            evicted += len(gone)
        del gone
        assert evicted > ENDED
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        left = {type(one).__module__ for one in gc.garbage}
        assert not [module for module in left if module.startswith("rdmascope.")]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
