"""The moving picture: rates, the last minute, the newest and the slowest."""

from __future__ import annotations

from playbook import Capture, Wire, call, frame_batch, nfs3, reply
from playbook.rows import decided
from playbook.samples import MANIFEST, SAMPLES
from playbook.shapes import DATA, read, write
from rdmascope.captures.read.streams import Limits
from rdmascope.captures.session.session import Session
from rdmascope.dissect.frames import FrameBatch
from rdmascope.dissect.measure.live_window import (
    HISTORY,
    MAX_CONNECTIONS,
    MAX_PROCEDURES,
    SLOT,
    SLOTS,
    LiveWindow,
)
from rdmascope.dissect.rpcrdma.analyzer import Analyzer
from rdmascope.dissect.rpcrdma.rpc_table import RpcTable
from rdmascope.dissect.rpcrdma.rpcs import Rpc

SECOND = 1_000_000_000


def conversation(shapes: list[str], pause: int = 0) -> tuple[Analyzer, list[Rpc]]:
    """RPCs one after the other on one connection."""
    wire = Wire(seed=1)
    connection = wire.connect()
    for shape in shapes:
        if shape == "read":
            read(connection)
        elif shape == "write":
            write(connection)
        elif shape == "failed":
            reply(call(connection, nfs3.read(0, 10)), nfs3.read_failed())
        else:
            reply(call(connection, nfs3.getattr_()), nfs3.getattr_reply())
        wire.pause(pause)
    analyzer = Analyzer()
    return analyzer, analyzer.feed(frame_batch(Capture(wire).frames))


def test_a_line_counts_both_ways_and_by_chunk() -> None:
    _, (one, other) = conversation(["read", "write"])
    window = LiveWindow()
    window.add(RpcTable([one, other]))
    reading, writing = window.newest()
    assert (reading.key.name, reading.state) == ("READ", "complete")
    assert reading.reply_bytes == len(DATA) + (one.reply.inline_length if one.reply else 0)
    assert writing.call_bytes == len(DATA) + (other.call.inline_length if other.call else 0)
    assert reading.waiting == (one.latency.total if one.latency else None)


def test_the_last_minute_by_procedure() -> None:
    analyzer, rpcs = conversation(["read", "getattr", "getattr", "failed"])
    recent = LiveWindow()
    recent.add(RpcTable(rpcs))
    busy = {one.key.name: one for one in recent.busy()}
    assert {name: (one.calls, one.failed) for name, one in busy.items()} == {"READ": (2, 1), "GETATTR": (2, 0)}
    latencies = sorted(rpc.latency.total for rpc in rpcs if rpc.latency and rpc.name == "GETATTR")
    found = busy["GETATTR"].latency
    assert found is not None
    assert (found.minimum, found.median, found.maximum, found.count) == (latencies[0], latencies[0], latencies[1], 2)
    now = analyzer.last_time or 0
    recent.advance(now + SLOTS * SLOT - SLOT, analyzer.connections)
    assert recent.busy()
    recent.advance(now + SLOTS * SLOT + SLOT, analyzer.connections)
    assert recent.busy() == []
    assert recent.slowest() == []


def test_newest_and_slowest() -> None:
    _, rpcs = conversation(["getattr"] * 30)
    recent = LiveWindow(newest=5, slowest=3)
    recent.add(RpcTable(rpcs))
    assert [one.number for one in recent.newest()] == [rpc.number for rpc in rpcs[-5:]]
    slow = sorted((rpc.latency.total for rpc in rpcs if rpc.latency), reverse=True)[:3]
    assert [one.waiting for one in recent.slowest()] == slow


def test_rates_are_those_of_the_last_seconds() -> None:
    analyzer, rpcs = conversation(["write"] * 4)
    recent = LiveWindow()
    recent.advance(10 * SECOND, [])
    recent.add(RpcTable(rpcs))
    recent.advance(12 * SECOND, analyzer.connections)
    connection = analyzer.connections[0]
    assert recent.rate.rpcs == recent.rate_of(1).rpcs == 2.0
    assert recent.rate.up == recent.rate_of(1).up == connection.bytes[0] / 2
    assert recent.rate.down == connection.bytes[1] / 2
    for second in range(13, 20):
        recent.advance(second * SECOND, analyzer.connections)
    assert (recent.rate.rpcs, recent.rate.up) == (0, 0)
    assert recent.rate_of(77).rpcs == 0
    assert [one.rpcs for one in recent.history][:2] == [2.0, 0.0]


def two_connections() -> tuple[Analyzer, list[Rpc]]:
    """GETATTRs on the first connection, READs on the second."""
    wire = Wire(seed=1)
    first, second = wire.connect(), wire.connect()
    for _ in range(3):
        reply(call(first, nfs3.getattr_()), nfs3.getattr_reply())
        read(second)
        read(second)
    analyzer = Analyzer()
    return analyzer, analyzer.feed(frame_batch(Capture(wire).frames))


def test_each_connection_has_a_last_minute_before_it_is_picked() -> None:
    analyzer, rpcs = two_connections()
    recent = LiveWindow(newest=4, slowest=2)
    recent.add(RpcTable(rpcs))
    assert [(one.key.name, one.calls) for one in recent.busy(1)] == [("GETATTR", 3)]
    assert [(one.key.name, one.calls) for one in recent.busy(2)] == [("READ", 6)]
    assert {one.key.name: one.calls for one in recent.busy()} == {"GETATTR": 3, "READ": 6}
    for number in (1, 2):
        mine = [rpc for rpc in rpcs if rpc.connection.number == number]
        assert [one.number for one in recent.newest(number)] == [rpc.number for rpc in mine[-4:]]
        slow = sorted((rpc.latency.total for rpc in mine if rpc.latency), reverse=True)[:2]
        assert [one.waiting for one in recent.slowest(number)] == slow
    assert not recent.newest(77) and not recent.busy(77) and not recent.slowest(77)
    recent.advance((analyzer.last_time or 0) + SLOTS * SLOT + SLOT, analyzer.connections)
    assert not recent.busy(1) and not recent.slowest(2) and recent.newest(1)


def test_of_many_connections_the_picked_one_is_counted_apart() -> None:
    analyzer, rpcs = two_connections()
    recent = LiveWindow()
    number = rpcs[-1].connection
    for other in range(10, 10 + 2 * MAX_CONNECTIONS):
        number.number = other
        recent.add(RpcTable(rpcs[-1:]))
    assert recent.busy(10) and not recent.busy(9 + 2 * MAX_CONNECTIONS)
    assert len(recent._newest) <= MAX_CONNECTIONS + 1
    recent.picked = number.number
    recent.add(RpcTable(rpcs[-1:]))
    assert recent.busy(recent.picked) and recent.newest(recent.picked)
    recent.advance(analyzer.last_time or 0, [])
    assert [*recent._newest] == [None]


def test_everything_is_bounded() -> None:
    analyzer, rpcs = conversation(["getattr"] * 10)
    recent = LiveWindow()
    for number in range(2 * MAX_PROCEDURES):
        for rpc in rpcs:
            rpc.operations = (str(number),)
        recent.add(RpcTable(rpcs))
        recent.advance(number * SECOND, analyzer.connections)
    assert len(recent.busy()) <= MAX_PROCEDURES + 1
    assert len(recent.history) == HISTORY
    assert len(recent._marks) <= 5


def test_rows_count_as_objects_do() -> None:
    """Whatever the batches, and with several connections, failures and RPCs that are no row RPCs among them."""
    capture = read_capture("rxe-nfs-all")
    analyzer = Analyzer()
    rows, objects = LiveWindow(newest=7, slowest=5), LiveWindow(newest=7, slowest=5)
    in_rows = 0
    with decided(rows=True):
        for batch in capture:
            table = analyzer.feed_table(analyzer.decoder.take(batch))
            in_rows += len(table.row_places)
            rows.add(table)
            objects.add(RpcTable([*table]))
    assert in_rows and rows.newest() == objects.newest() and rows.slowest() == objects.slowest()
    for number in (None, *(one.number for one in analyzer.connections)):
        assert rows.busy(number) == objects.busy(number) and rows.newest(number) == objects.newest(number)


def read_capture(name: str) -> list[FrameBatch]:
    return [*Session(str(SAMPLES / MANIFEST[name]["file"]), limits=Limits(frames=300)).batches()]
