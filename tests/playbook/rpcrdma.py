"""RPC-over-RDMA versions 1 and 2 on a connection (RFC 8166, version-two-01): calls, chunks, replies, and the truth."""

from __future__ import annotations

import random
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .rpc import Call, Parts, Reply, call_parts, items, reduced, reply_parts, u32, whole
from .wire import Connection, Operation, Place, Segment, TrueRpc

MSG, NOMSG, _, DONE, ERROR, OPTIONAL = range(6)
CALL, REPLY = 0, 1
"""Directions, of RPC and of version 2's header."""

Chunk = Sequence[Segment]


@dataclass(slots=True)
class Region:
    """Advertised memory that holds bytes of one of the RPC's messages."""

    segment: Segment
    data: bytes
    part: str
    places: list[tuple[int, int, int]]
    """``(offset in the segment, length, offset in the whole message)``."""

    def cut(self, rpc: int, address: int, length: int) -> tuple[Place, ...]:
        """The places that an operation on ``length`` bytes at ``address`` moves."""
        begin, end = address - self.segment.offset, address + length - self.segment.offset
        return tuple(
            Place(
                max(start, begin) - begin,
                min(start + size, end) - max(start, begin),
                rpc,
                self.part,
                at + max(0, begin - start),
            )
            for start, size, at in self.places
            if min(start + size, end) > max(start, begin)
        )


@dataclass(slots=True)
class Exchange:
    """A call under way: its truth and the memory it advertised."""

    connection: Connection
    true: TrueRpc
    requester: int
    reads: list[tuple[int, list[Region]]] = field(default_factory=list)
    """``(position, segments)``."""
    writes: list[list[Segment]] = field(default_factory=list)
    reply_chunk: list[Segment] | None = None
    version: int = 1
    """In which it was called, and is answered (version-two-01, 5.3)."""


def segments_xdr(chunk: Chunk) -> bytes:
    return u32(len(chunk)) + b"".join(struct.pack(">IIQ", *segment) for segment in chunk)


def header(
    xid: int,
    procedure: int,
    *,
    credits: int = 32,
    version: int = 1,
    direction: int = CALL,
    reads: Sequence[tuple[int, Chunk]] = (),
    writes: Sequence[Chunk] = (),
    reply: Chunk | None = None,
) -> bytes:
    """The transport header with its chunk lists (RFC 8166, 4.3); in version 2 with a direction before them."""
    text = u32(xid, version, credits, procedure) + (u32(direction) if version == 2 else b"")
    for position, chunk in reads:
        for segment in chunk:
            text += u32(1, position) + struct.pack(">IIQ", *segment)
    text += u32(0)
    for chunk in writes:
        text += u32(1) + segments_xdr(chunk)
    text += u32(0)
    return text + (u32(0) if reply is None else u32(1) + segments_xdr(reply))


def optional(xid: int, option: int, info: bytes, *, direction: int = CALL, credits: int = 32) -> bytes:
    """An RDMA2_OPTIONAL (version-two-01, 4.2)."""
    return u32(xid, 2, credits, OPTIONAL, direction, option, len(info)) + info + bytes(-len(info) % 4)


def xcharval(which: int, value: int | bytes) -> bytes:
    """A characteristic (xcharext-02, 2.1)."""
    data = u32(value) if isinstance(value, int) else value
    return u32(which, len(data)) + data + bytes(-len(data) % 4)


def xcharspec(*values: tuple[int, int | bytes]) -> bytes:
    return u32(len(values)) + b"".join(xcharval(*value) for value in values)


def xcharsubset(*positions: int) -> bytes:
    words = [
        sum(1 << at % 32 for at in positions if at // 32 == word)
        for word in range(max(positions, default=-1) // 32 + 1)
    ]
    return u32(len(words), *words)


def announce(
    connection: Connection, sender: int, *values: tuple[int, int | bytes], nochange: Sequence[int] = (), xid: int = 1
) -> Operation:
    """ROPT_INITXCH: the sender's characteristics; ``nochange`` are positions (xcharext-02, 4.1)."""
    return connection.send(sender, optional(xid, 1, xcharspec(*values) + xcharsubset(*nochange)))


def wish(connection: Connection, sender: int, *values: tuple[int, int | bytes], xid: int = 2) -> Operation:
    """ROPT_REQXCH: what the other end's characteristics should be (xcharext-02, 4.2)."""
    return connection.send(sender, optional(xid, 2, xcharspec(*values)))


def respond(
    connection: Connection,
    sender: int,
    done: Sequence[int] = (),
    rejected: Sequence[int] = (),
    pending: Sequence[int] = (),
    *,
    xid: int = 2,
) -> Operation:
    """ROPT_RESPXCH: what becomes of the wishes, by their positions (xcharext-02, 4.3)."""
    info = xcharsubset(*done) + xcharsubset(*rejected) + xcharsubset(*pending)
    return connection.send(sender, optional(xid, 3, info, direction=REPLY))


def update(
    connection: Connection, sender: int, which: int, value: int | bytes, *, clear: bool = False, xid: int = 3
) -> Operation:
    """ROPT_UPDXCH: a characteristic of the sender has changed (xcharext-02, 4.4)."""
    return connection.send(sender, optional(xid, 4, xcharval(which, value) + u32(clear)))


def refuse_option(connection: Connection, sender: int, xid: int) -> Operation:
    """RDMA2_ERR_INVAL_OPTION (version-two-01, 3.1)."""
    return connection.send(sender, u32(xid, 2, 32, ERROR, 3))


def lay_out(chunk: Chunk, data: bytes, part: str, places: Sequence[tuple[int, int, int]]) -> list[Region]:
    """``data`` over the segments of a chunk, in order; ``places`` says where its stretches belong."""
    regions: list[Region] = []
    reached = 0
    for segment in chunk:
        end = reached + segment.length
        inside = [
            (
                max(start, reached) - reached,
                min(start + size, end) - max(start, reached),
                at + max(0, reached - start),
            )
            for start, size, at in places
            if min(start + size, end) > max(start, reached)
        ]
        regions.append(Region(segment, data[reached:end], part, inside))
        reached = end
    return regions


def call(
    connection: Connection,
    message: Call,
    *,
    backward: bool = False,
    xid: int | None = None,
    reads: Mapping[int, Chunk] | None = None,
    position_zero: Chunk | None = None,
    writes: Sequence[Chunk] = (),
    reply_chunk: Chunk | None = None,
    credits: int = 32,
    option: int | None = None,
) -> Exchange:
    """The call's Send.

    ``reads`` gives Read segments for items by their index; their lengths sum up to the item's length, or to
    that with round-up.  ``position_zero``: the whole message travels in that chunk.  ``option``: it stands behind
    an RDMA2_OPTIONAL of that rdma_opttype, which has no chunks.
    """
    wire = connection.wire
    xid = wire.random.getrandbits(32) if xid is None else xid
    parts: Parts = call_parts(message, xid)
    true = TrueRpc(len(wire.truth), connection.number, backward, xid, whole(parts))
    exchange = Exchange(connection, true, 1 if backward else 0, version=connection.version)
    exchange.writes = [list(chunk) for chunk in writes]
    exchange.reply_chunk = None if reply_chunk is None else list(reply_chunk)
    chunks = dict(reads or {})
    stream, places = reduced(parts, set(chunks))
    if position_zero is not None:
        assert sum(segment.length for segment in position_zero) == len(stream), len(stream)
        exchange.reads.append((0, lay_out(position_zero, stream, "call", places)))
        stream, places = b"", []
    found = items(parts)
    for index, chunk in chunks.items():
        position, item = found[index]
        data = item.padded[: sum(segment.length for segment in chunk)]
        assert len(data) >= len(item.data), "the Read chunk is shorter than its item"
        exchange.reads.append((position, lay_out(chunk, data, "call", [(0, len(data), position)])))
    text = header(
        xid,
        MSG if position_zero is None else NOMSG,
        credits=credits,
        version=connection.version,
        reads=[(position, [region.segment for region in regions]) for position, regions in exchange.reads],
        writes=writes,
        reply=reply_chunk,
    )
    if option is not None:
        text = optional(xid, option, b"info", credits=credits)
    true.call_header = len(text)
    wire.truth.append(true)
    moved = tuple(Place(len(text) + start, size, true.index, "call", at) for start, size, at in places)
    true.call_operation = connection.send(exchange.requester, text + stream, places=moved).number
    return exchange


def spans(regions: Sequence[Region], split: int | None, joined: bool) -> list[tuple[Segment, bytes, list[Region]]]:
    """Stretches of memory to move with one verb each."""
    runs: list[list[Region]] = []
    for region in regions:
        last = runs[-1][-1].segment if runs else None
        adjacent = (
            last is not None
            and last.handle == region.segment.handle
            and last.offset + last.length == region.segment.offset
        )
        if joined and adjacent:
            runs[-1].append(region)
        else:
            runs.append([region])
    found: list[tuple[Segment, bytes, list[Region]]] = []
    for run in runs:
        data = b"".join(region.data for region in run)
        step = split or max(1, len(data))
        for at in range(0, len(data), step):
            piece = data[at : at + step]
            start = run[0].segment.offset + at
            found.append((Segment(run[0].segment.handle, len(piece), start), piece, run))
    return found


def fetch(
    exchange: Exchange,
    *,
    split: int | None = None,
    joined: bool = False,
    order: random.Random | None = None,
    pipelined: int = 1,
) -> None:
    """The responder RDMA Reads every Read segment of the call.

    ``split``: bytes of one Read at most; ``joined``: one Read may cover adjacent segments;
    ``order``: shuffles them; ``pipelined``: Reads outstanding at one time.
    """
    connection = exchange.connection
    todo = [span for _, regions in exchange.reads for span in spans(regions, split, joined)]
    if order:
        order.shuffle(todo)
    for at in range(0, len(todo), pipelined):
        pending = []
        for segment, data, regions in todo[at : at + pipelined]:
            places = tuple(
                place for region in regions for place in region.cut(exchange.true.index, segment.offset, len(data))
            )
            pending.append(
                connection.read_request(1 - exchange.requester, segment.handle, segment.offset, data, places)
            )
        for op in pending:
            exchange.true.operations.append(op.number)
            connection.read_responses(op)


def reply(
    exchange: Exchange,
    message: Reply,
    *,
    via: Mapping[int, int] | None = None,
    split: int | None = None,
    joined: bool = False,
    order: random.Random | None = None,
    long: bool | None = None,
    invalidate: int | None = None,
    immediate: int | None = None,
    credits: int = 32,
) -> None:
    """The responder's RDMA Writes and the reply's Send.

    Items take the Write chunks in order, as far as these go, unless ``via`` says which item takes which;
    one whose chunk has no segments stays inline.  ``long``: through the Reply chunk, by default wherever one
    was offered.
    """
    connection, true = exchange.connection, exchange.true
    parts: Parts = reply_parts(message, true.xid)
    true.reply = whole(parts)
    found = items(parts)
    if via is None:
        via = {index: index for index in range(min(len(found), len(exchange.writes))) if exchange.writes[index]}
    long = exchange.reply_chunk is not None if long is None else long
    stream, places = reduced(parts, set(via))
    regions: list[Region] = []
    returned = [[segment._replace(length=0) for segment in chunk] for chunk in exchange.writes]
    for index, number in via.items():
        at, item = found[index]
        chunk = exchange.writes[number]
        assert sum(segment.length for segment in chunk) >= len(item.data), "the Write chunk is too small"
        filled = lay_out(chunk, item.data, "reply", [(0, len(item.data), at)])
        returned[number] = [region.segment._replace(length=len(region.data)) for region in filled]
        regions += filled
    reply_chunk = exchange.reply_chunk
    if long:
        assert reply_chunk is not None and sum(segment.length for segment in reply_chunk) >= len(stream)
        filled = lay_out(reply_chunk, stream, "reply", places)
        reply_chunk = [region.segment._replace(length=len(region.data)) for region in filled]
        regions += filled
        stream, places = b"", []
    elif reply_chunk is not None:
        reply_chunk = [segment._replace(length=0) for segment in reply_chunk]
    todo = spans(regions, split, joined)
    if order:
        order.shuffle(todo)
    responder = 1 - exchange.requester
    for segment, data, run in todo:
        moved = tuple(place for region in run for place in region.cut(true.index, segment.offset, len(data)))
        op = connection.write(responder, segment.handle, segment.offset, data, places=moved)
        true.operations.append(op.number)
    text = header(
        true.xid,
        NOMSG if long else MSG,
        credits=credits,
        version=exchange.version,
        direction=REPLY,
        writes=returned,
        reply=reply_chunk,
    )
    true.reply_header = len(text)
    inline = tuple(Place(len(text) + start, size, true.index, "reply", at) for start, size, at in places)
    true.reply_operation = connection.send(
        responder, text + stream, invalidate=invalidate, immediate=immediate, places=inline
    ).number


def error(exchange: Exchange, code: int = 2, versions: tuple[int, int] = (1, 1)) -> None:
    """The responder answers RDMA_ERROR: 1 ERR_VERS, 2 ERR_CHUNK (RFC 8166, 4.5)."""
    text = u32(exchange.true.xid, exchange.version, 32, ERROR, code)
    text += u32(*versions) if code == 1 else b""
    exchange.true.error = code
    exchange.true.reply_header = len(text)
    exchange.true.reply_operation = exchange.connection.send(1 - exchange.requester, text).number


def pad_segment(connection: Connection, handle: int) -> Segment:
    """The 4-byte segment with one fixed handle that the Linux client adds to a Write chunk of odd length."""
    return Segment(handle, 4, connection.number << 12)
