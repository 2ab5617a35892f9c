"""Conversations in which one thing is wrong, by the detector that names it.

With the samples there is a capture for each of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import accumulate

from . import cm, faults, nfs3, nfs4, shapes
from .facts import MILLISECOND
from .nfs3 import FH
from .nfs4_client import Client
from .packets import Packet
from .rpc import Call, Reply, opaque, u32, u64
from .rpcrdma import Exchange, call, fetch, reply
from .wire import Connection, Wire
from .xdr_encode import done, op

Trouble = Callable[[Wire], list[Packet]]
"""What a capture point records of it."""
TROUBLES: dict[str, Trouble] = {}

SMALL_INLINE = cm.private_data(1024, 1024)


def _trouble(kind: str) -> Callable[[Trouble], Trouble]:
    def keep(story: Trouble) -> Trouble:
        TROUBLES[kind] = story
        return story

    return keep


def _ask(connection: Connection, asked: Call | None = None, answer: Reply | None = None, takes: int = 50_000) -> None:
    """An RPC without chunks that the server works on for so many nanoseconds; a GETATTR unless another is given."""
    exchange = call(connection, asked or nfs3.getattr_())
    connection.wire.pause(takes)
    reply(exchange, answer or nfs3.getattr_reply())


def _commit(connection: Connection) -> None:
    asked = Call(nfs3.PROGRAM, 3, 21, (opaque(FH) + u64(0) + u32(0),))
    _ask(connection, asked, Reply((u32(nfs3.OK) + nfs3.wcc() + b"verifier",)), 2 * MILLISECOND)


def _lookup(connection: Connection, name: bytes) -> None:
    asked = Call(nfs3.PROGRAM, 3, 3, (opaque(FH) + opaque(name),))
    _ask(connection, asked, Reply((u32(nfs3.OK) + opaque(name.ljust(32)) + nfs3.post_op() + nfs3.post_op(),)))


def _readdir(connection: Connection) -> None:
    asked = Call(nfs3.PROGRAM, 3, 16, (opaque(FH) + u64(0) + bytes(8) + u32(4096),))
    exchange = call(connection, asked, reply_chunk=connection.register(8192))
    reply(exchange, Reply((u32(nfs3.OK) + nfs3.post_op() + bytes(8) + u32(0, 1),)), long=False)


def _written(connection: Connection, offset: int, stable: int, takes: int) -> None:
    data = shapes.DATA[:8192]
    exchange = call(connection, nfs3.write(offset, data), reads={0: connection.register(len(data))})
    fetch(exchange)
    connection.wire.pause(takes)
    reply(exchange, Reply((u32(nfs3.OK) + nfs3.wcc() + u32(len(data), stable) + b"verifier",)))


def _late(packets: list[Packet], indices: Iterable[int], by: int) -> list[Packet]:
    """These packets come later by so many nanoseconds, and with each of them all that follow."""
    late = set(indices)
    shifts = accumulate(by * (index in late) for index in range(len(packets)))
    return [replace(packet, time=packet.time + shift) for packet, shift in zip(packets, shifts, strict=True)]


def _reads(wire: Wire, count: int = 40) -> Connection:
    connection = wire.connect()
    for _ in range(count):
        shapes.read(connection)
    return connection


# Credits and connections


@_trouble("credits-exhausted")
def tiny_credits(wire: Wire) -> list[Packet]:
    """The client asks for 64 credits and is granted two: a third call waits until a reply has come."""
    connection = wire.connect()
    _ask(connection)
    outstanding: deque[Exchange] = deque()
    for number in range(200):
        if number >= 2:
            wire.pause(MILLISECOND)
            reply(outstanding.popleft(), nfs3.getattr_reply(), credits=2)
        outstanding.append(call(connection, nfs3.getattr_(), credits=64))
    for exchange in outstanding:
        reply(exchange, nfs3.getattr_reply(), credits=2)
    return wire.packets


@_trouble("slots-exhausted")
def two_slots(wire: Wire) -> list[Packet]:
    """A session of two slots, both in use; a request takes the slot that was freed at once."""
    client = Client(wire.connect())
    client.exchange_id()
    client.create_session(slots=2)
    asked, answered = (nfs4.putfh(), nfs4.getattr_()), (nfs4.putfh_done(), nfs4.getattr_done())
    outstanding: deque[tuple[Exchange, int]] = deque()
    for number in range(100):
        if number >= 2:
            wire.pause(MILLISECOND)
            exchange, slot = outstanding.popleft()
            client.answered(exchange, *answered, slot=slot, target=1)
        outstanding.append((client.sent(*asked, slot=number % 2), number % 2))
    for exchange, slot in outstanding:
        client.answered(exchange, *answered, slot=slot, target=1)
    return wire.packets


@_trouble("inline-threshold")
def just_too_large(wire: Wire) -> list[Packet]:
    """READs of 1500 bytes, where both ends announced 1024 bytes inline."""
    connection = wire.connect(client_private=SMALL_INLINE, server_private=SMALL_INLINE)
    for _ in range(60):
        shapes.read(connection, shapes.DATA[:1500])
    return wire.packets


@_trouble("unequal-connections")
def one_of_two(wire: Wire) -> list[Packet]:
    busy, idle = wire.connect(acks="lazy"), wire.connect(acks="lazy")
    for number in range(1000):
        _ask(idle if number % 200 == 0 else busy)
    _ask(idle)
    return wire.packets


@_trouble("slow-connection")
def one_bad_link(wire: Wire) -> list[Packet]:
    connections = wire.connect(), wire.connect()
    for number in range(240):
        _ask(connections[number % 2], takes=(8 if number % 2 else 1) * MILLISECOND)
    return wire.packets


@_trouble("specification-violated")
def no_credit_granted(wire: Wire) -> list[Packet]:
    connection = wire.connect()
    reply(call(connection, nfs3.getattr_()), nfs3.getattr_reply(), credits=0)
    return wire.packets


@_trouble("connection-lost")
def refused_for_good(wire: Wire) -> list[Packet]:
    """A fatal NAK of an RDMA Write, then a new connection."""
    _reads(wire)
    writes = faults.where(wire.packets, kind="write")
    packets = faults.refuse(wire, wire.packets, writes[-1])
    before = len(wire.packets)
    _reads(wire, 5)
    return packets + wire.packets[before:]


@_trouble("connections-refused")
def nothing_listens(wire: Wire) -> list[Packet]:
    connection = wire.connect()
    request = wire.packets.pop(0)
    wire.packets.clear()
    wire.emit(request)
    assert connection.sides is not None
    client, server = connection.sides
    connection._mad(1, cm.REJ, cm.reject(server, client, 8))
    return wire.packets


@_trouble("connections-unanswered")
def nothing_answers(wire: Wire) -> list[Packet]:
    wire.connect()
    return [replace(wire.packets[0], time=wire.packets[0].time + seconds * 4_000 * MILLISECOND) for seconds in range(5)]


@_trouble("host-silent")
def server_gone(wire: Wire) -> list[Packet]:
    """A server dies with two calls on each of two connections, and the client tries on for 40 seconds."""
    connections = wire.connect(), wire.connect()
    for number in range(20):
        _ask(connections[number % 2])
    wire.pause(MILLISECOND)
    died = len(wire.packets)
    for number in range(4):
        call(connections[number % 2], nfs3.getattr_())
    asked = [packet for packet in wire.packets[died:] if packet.sender == 0]
    tries = (500, 1_000, 2_000, 4_000, 8_000, 16_000, 40_000)
    again = [
        replace(packet, copy=at, time=packet.time + after * MILLISECOND)
        for at, after in enumerate(tries, 1)
        for packet in asked
    ]
    return [*wire.packets[:died], *asked, *again]


# Packets


@_trouble("receiver-not-ready")
def too_few_buffers(wire: Wire) -> list[Packet]:
    return _lost(wire, "send", "rnr")


@_trouble("retransmission-timeouts")
def lost_at_the_end(wire: Wire) -> list[Packet]:
    """Calls that nothing follows, so that no gap shows their loss."""
    return _lost(wire, "send", "timeout")


@_trouble("packets-lost")
def lost_within(wire: Wire) -> list[Packet]:
    return _lost(wire, "write", "nak")


def _lost(wire: Wire, kind: str, answer: str) -> list[Packet]:
    _reads(wire)
    packets = wire.packets
    sent = faults.where(packets, kind=kind, sender=0 if kind == "send" else 1)
    for index in reversed(sent[:40:8]):
        packets = faults.lose(wire, packets, index, answer=answer)
    return packets


@_trouble("congestion")
def marked(wire: Wire) -> list[Packet]:
    _reads(wire)
    packets = wire.packets
    for index in reversed(faults.where(packets, kind="write")[::8]):
        packets = faults.mark(wire, packets, index)
    return packets


@_trouble("packets-damaged")
def damaged(wire: Wire) -> list[Packet]:
    """A packet of RDMA Writes is dropped by its receiver, and retransmitted."""
    _reads(wire)
    index = faults.where(wire.packets, kind="write")[50]
    return faults.lose(wire, faults.corrupt(wire.packets, index), index)


@_trouble("packets-missing")
def not_recorded(wire: Wire) -> list[Packet]:
    _reads(wire)
    return faults.drop(wire.packets, faults.where(wire.packets, kind="write")[10:14])


@_trouble("messages-incomplete")
def never_read(wire: Wire) -> list[Packet]:
    """The server answers WRITEs without having read their data, as far as the capture shows."""
    connection = wire.connect()
    data = shapes.DATA[:8192]
    for number in range(20):
        exchange = call(connection, nfs3.write(number * 8192, data), reads={0: connection.register(len(data))})
        wire.pause(50_000)
        reply(exchange, Reply((u32(nfs3.OK) + nfs3.wcc() + u32(len(data), 2) + b"verifier",)))
    return wire.packets


@_trouble("frames-truncated")
def too_short(wire: Wire) -> list[Packet]:
    _reads(wire)
    return faults.snap(wire.packets, 90)


@_trouble("one-direction")
def one_port(wire: Wire) -> list[Packet]:
    """The client's port was mirrored in one direction, after the connection was made."""
    connection = wire.connect(cm=False)
    for _ in range(40):
        shapes.read(connection)
    return [packet for packet in wire.packets if packet.sender == 0]


@_trouble("packets-duplicated")
def two_ports(wire: Wire) -> list[Packet]:
    """Both ports that the packets pass were mirrored."""
    _reads(wire)
    return [packet for packet in wire.packets for _ in range(2)]


@_trouble("psn-reused")
def a_device_counts_wrongly(wire: Wire) -> list[Packet]:
    connection = wire.connect()
    shapes.write(connection)
    connection.ends[1].psn = (connection.ends[1].psn - 1) & 0xFFFFFF
    _ask(connection)
    return wire.packets


# The server and its files


@_trouble("slower-since")
def a_backup_begins(wire: Wire) -> list[Packet]:
    connection = wire.connect()
    for number in range(300):
        _ask(connection, takes=MILLISECOND if number < 150 else 9 * MILLISECOND)
    return wire.packets


@_trouble("server-time")
def slow_disks(wire: Wire) -> list[Packet]:
    connection = wire.connect()
    for _ in range(30):
        _ask(connection, takes=30 * MILLISECOND)
    return wire.packets


@_trouble("calls-hung")
def one_call_hangs(wire: Wire) -> list[Packet]:
    connection = wire.connect()
    _ask(connection)
    call(connection, nfs3.getattr_())
    for _ in range(20):
        _ask(connection, takes=15 * MILLISECOND)
        wire.pause(100 * MILLISECOND)
    return wire.packets


def _refused(wire: Wire, status: int, times: int) -> list[Packet]:
    connection = wire.connect()
    for number in range(20):
        _ask(connection, nfs3.read(0, 100), nfs3.read_failed(status) if number < times else None)
    return wire.packets


@_trouble("calls-deferred")
def jukebox(wire: Wire) -> list[Packet]:
    return _refused(wire, 10008, 3)


@_trouble("calls-failed")
def broken_disk(wire: Wire) -> list[Packet]:
    return _refused(wire, nfs3.IO, 1)


@_trouble("grace-period")
def restarted(wire: Wire) -> list[Packet]:
    client = Client(wire.connect())
    client.begin()
    for _ in range(3):
        wire.pause(1000 * MILLISECOND)
        client.ask(op("OPEN", share_access=1, claim={"claim": 4}), done("OPEN", 10013))
    return wire.packets


@_trouble("recall-stalls")
def late_return(wire: Wire) -> list[Packet]:
    client = Client(wire.connect())
    client.begin()
    client.open(1, delegation=7)
    client.recall(7)
    wire.pause(2000 * MILLISECOND)
    client.give_back(7)
    return wire.packets


@_trouble("reads-short")
def small_rsize(wire: Wire) -> list[Packet]:
    connection = wire.connect()
    for number in range(120):
        rpc = call(connection, nfs3.read(8192 * number, 8192), writes=[connection.register(8192)])
        reply(rpc, nfs3.read_reply(shapes.DATA))
    return wire.packets


@_trouble("writes-short")
def small_wsize(wire: Wire) -> list[Packet]:
    connection = wire.connect()
    for number in range(120):
        _written(connection, 8192 * number, 0, 0)
    return wire.packets


@_trouble("writes-synchronous")
def opened_with_o_sync(wire: Wire) -> list[Packet]:
    connection = wire.connect()
    for number in range(120):
        _written(connection, 1_000_000 * number, 2, 3 * MILLISECOND)
    return wire.packets


@_trouble("read-phase")
def slow_to_the_server(wire: Wire) -> list[Packet]:
    connection = wire.connect()
    for _ in range(30):
        shapes.write(connection)
    return _late(wire.packets, faults.where(wire.packets, kind="response", at=0), 40 * MILLISECOND)


@_trouble("write-phase")
def slow_to_the_client(wire: Wire) -> list[Packet]:
    _reads(wire, 30)
    return _late(wire.packets, faults.where(wire.packets, kind="write", at=wire.mtu), 40 * MILLISECOND)


@_trouble("hot-file")
def one_of_many_files(wire: Wire) -> list[Packet]:
    connection = wire.connect(acks="lazy")
    for number in (*range(1, 30), *[0] * 1000):
        _ask(connection, nfs3.getattr_(number.to_bytes(32, "big")))
    return wire.packets


@_trouble("commit-storm")
def committed_one_by_one(wire: Wire) -> list[Packet]:
    connection = wire.connect()
    for _ in range(60):
        shapes.write(connection)
        _commit(connection)
    return wire.packets


@_trouble("metadata-storm")
def polled(wire: Wire) -> list[Packet]:
    connection = wire.connect(acks="lazy")
    for _ in range(2000):
        _ask(connection)
    return wire.packets


@_trouble("readdir-without-plus")
def listed(wire: Wire) -> list[Packet]:
    connection = wire.connect(acks="lazy")
    for number in range(500):
        if number % 100 == 0:
            _readdir(connection)
        _lookup(connection, b"entry %d" % number)
    return wire.packets
