"""Reassembly: the whole RPC message out of the inline Payload stream and the chunks (RFC 8166, 3.4 and 4.2).

The result is what a TCP transport would have carried, without its record mark: Read chunks inserted at their Positions,
Write chunks where the upper-layer binding says, XDR round-up restored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from operator import itemgetter

from ..intervals import IntervalSet
from ..layers.rpcrdma_codes import RDMA_ERROR, RDMA_MSG, RDMA_MSGP, RDMA_NOMSG
from ..onc import binding, rpc_header
from ..onc.xdr import round_up
from ..transport.operations import Operation
from .messages import Message, WriteChunk
from .rpcs import ChunkUse, Extent, Reassembled, Rpc, SegmentUse, captured

MAX_MESSAGE = 1 << 30
"""Bytes; no RPC message is taken to be longer, whatever its chunks claim."""

NOT_ADVERTISED = "not advertised in this capture"
"""Why bytes of a chunk are missing: its call is truncated, or advertises less than the reply returns."""

NOT_TRANSFERRED = "not transferred in this capture"
CONTESTED = "undecidable: several open calls share this memory"
"""Why bytes of a segment are missing although Operations on its memory may be in the capture."""
CONTRADICTED = "undecidable: retransmitted with other bytes"
LATE = "undecidable: written after the reply"
EARLY = "undecidable: transferred early or behind a gap, maybe for another call"
"""Why bytes count as missing: the capture has two versions of them, or they may have come too late."""
PADDED = "undecidable: RDMA_MSGP has alignment padding that no document places (RFC 8166, 4.6)"
"""Why arguments and results of an RDMA_MSGP are missing: the message does not say where its padding is."""

Part = tuple[bytes | memoryview, int, int, str]
"""Bytes (empty if missing), their length, the frame, why they are missing."""


def reassembled_call(rpc: Rpc) -> Reassembled | None:
    """The RPC call message; None without a call, or if its header does not say that it carries an RPC message."""
    if rpc.call is None or rpc.call.header.procedure in (None, RDMA_ERROR):
        return None
    reads = [chunk for chunk in rpc.chunks if chunk.kind == "read"]
    if not reads and (inline := _inline_alone(rpc.call)) is not None:
        return inline
    stream = StreamBuilder()
    if rpc.call.header.problem:
        stream.add_inline(rpc.call)
        return stream.finish()
    if rpc.call.header.procedure == RDMA_NOMSG:
        zero = [chunk for chunk in reads if chunk.position == 0]
        for chunk in zero:
            stream.add_chunk("read chunk at 0", _chunk_parts(chunk, returned=False))
        reads = [chunk for chunk in reads if chunk.position != 0]
    else:
        stream.add_inline(rpc.call)
    if not reads:
        return stream.finish()
    whole = ChunkMerger(stream)
    counts = call_counts(rpc, stream.prefix())
    excess = 0
    for chunk in sorted(reads, key=lambda chunk: chunk.position or 0):
        assert chunk.position is not None
        whole.take_until(chunk.position - excess)
        data = min(counts.get(chunk.position, MAX_MESSAGE), chunk.advertised)
        whole.insert(f"read chunk at {chunk.position}", _first(data, _chunk_parts(chunk, returned=False)))
        # Later Positions include the excess, as the sender took it out of the stream, too.
        excess += round_up(chunk.advertised) - round_up(data)
    return whole.finish()


def _inline_alone(message: Message) -> Reassembled | None:
    """The message if it is an RDMA_MSG that one whole packet carries without chunks, as nearly all are; else None."""
    operation, header = message.operation, message.header
    only = operation.payload.only
    if (
        only is None
        or header.procedure != RDMA_MSG
        or header.problem
        or operation.doubtful
        or not (operation.payload.whole and operation.start_known and operation.end_known)
        or operation.first_frame != operation.last_frame
        or not header.length < operation.length <= MAX_MESSAGE
    ):
        return None
    data, start, end = only
    whole = data[start + header.length : end].tobytes()
    return Reassembled((Extent(0, len(whole), "inline", operation.first_frame, ""),), ((0, whole),))


def call_counts(rpc: Rpc, stream: bytes | memoryview) -> dict[int, int]:
    """Bytes of data at each Position of a Read chunk, by the count word of the data item there."""
    if rpc.program is None or rpc.version is None or rpc.procedure is None or rpc.call is None:
        return {}
    reduced = [item for item in rpc.call.header.reduced if item[0]]
    result = binding.call_items(rpc.program, rpc.version, rpc.procedure, stream, 0, len(stream), reduced)
    return {item.position: item.count for item in result.items if item.reduced}


def reassembled_reply(rpc: Rpc) -> Reassembled | None:
    """The RPC reply message; None without a reply, or if its header does not say that it carries an RPC message."""
    if rpc.reply is None or rpc.reply.header.procedure in (None, RDMA_ERROR):
        return None
    returned = any(segment.length for chunk in rpc.reply.header.writes for segment in chunk.segments)
    if not returned and (inline := _inline_alone(rpc.reply)) is not None:
        return inline
    stream = reply_stream(rpc)
    if not returned:
        return stream.finish()
    whole = ChunkMerger(stream)
    writes = [chunk for chunk in rpc.chunks if chunk.kind == "write"]
    items, problem = reply_items(rpc, stream.prefix())
    reached = 0
    for position, number, count in items:
        whole.take_source(position - reached)
        reached = position
        parts = _returned_parts(writes[number], rpc.reply.header.writes[number])
        whole.insert(f"write chunk {number + 1}", _first(count, parts))
    if not problem:
        return whole.finish()
    if not items:
        known = stream.prefix()
        header = rpc_header.reply_header(known, 0, len(known), rpc.gss)
        whole.take_source(header.body if header and header.body > 0 else min(12, len(known)))
    return whole.finish("a Write chunk belongs somewhere behind this: " + problem)


def reply_items(rpc: Rpc, stream: bytes | memoryview) -> tuple[list[tuple[int, int, int]], str]:
    """Where Write chunks belong in the reduced reply stream, and a problem.

    Each item: the position, the index of the chunk, and how many of its bytes are data, by the count word before it.
    """
    writes = [chunk for chunk in rpc.chunks if chunk.kind == "write"]
    if rpc.program is None or rpc.version is None or rpc.procedure is None:
        return [], "the call is not known, so neither is where its Write chunks belong"
    if not binding.has_binding(rpc.program, rpc.version):
        return [], "the program has no known upper-layer binding"
    lengths = [chunk.returned or 0 for chunk in writes]
    result = binding.reply_items(rpc.program, rpc.version, rpc.procedure, stream, 0, len(stream), lengths, rpc.gss)
    placed = [
        (item.position, item.chunk, item.count)
        for item in result.items
        if item.reduced and item.chunk is not None and item.chunk < len(writes)
    ]
    problem = result.problem
    if not problem and {number for _, number, _ in placed} != {n for n, length in enumerate(lengths) if length}:
        problem = "a returned Write chunk has no data item in the reply"
    return placed, problem


def reply_stream(rpc: Rpc) -> StreamBuilder:
    """The reply's Payload stream before Write chunks are put back."""
    assert rpc.reply is not None
    stream = StreamBuilder()
    header = rpc.reply.header
    if header.procedure != RDMA_NOMSG or header.problem:
        stream.add_inline(rpc.reply)
        return stream
    for chunk in rpc.chunks:
        if chunk.kind == "reply" and header.reply:
            stream.add_chunk("reply chunk", _returned_parts(chunk, header.reply))
    if not stream.length:
        lost = header.reply.length if header.reply else 0
        stream.add(b"", max(1, min(lost, MAX_MESSAGE)), "reply chunk", 0, NOT_ADVERTISED)
    return stream


def call_stream_prefix(rpc: Rpc, limit: int) -> bytes:
    """The first captured bytes of a call that travels in a Read chunk at Position 0."""
    return _prefix([chunk for chunk in rpc.chunks if chunk.kind == "read" and chunk.position == 0], False, limit)


def reply_stream_prefix(rpc: Rpc, limit: int) -> bytes:
    """The first captured bytes of a reply that travels in the Reply chunk."""
    return _prefix([chunk for chunk in rpc.chunks if chunk.kind == "reply"], True, limit)


def claimed_prefix(rpc: Rpc, limit: int) -> bytes:
    """The first bytes written into the Reply chunk that is returned by a reply without a call."""
    chunk = rpc.reply.header.reply if rpc.reply is not None else None
    if chunk is None:
        return b""
    uses = [
        SegmentUse(segment, segment.length, [write for write in rpc.claimed if write.handle == segment.handle])
        for segment in chunk.segments
    ]
    return _prefix([ChunkUse("reply", None, uses)], True, limit)


def _prefix(chunks: list[ChunkUse], returned: bool, limit: int) -> bytes:
    """The first bytes of consecutive chunks: at least ``limit``, or up to the first gap."""
    if len(chunks) == 1 and chunks[0].segments:
        # Usually the first packet of the transfer has them all.
        use = chunks[0].segments[0]
        wanted, length = min(limit, chunks[0].advertised), use.advertised.length
        if returned:
            wanted, length = min(limit, chunks[0].returned or 0), min(length, use.returned or 0)
        if use.operations and use.operations[0].address == use.advertised.offset:
            view, start, end = use.operations[0].payload.first()
            behind = use.advertised.offset + wanted
            alone = all(operation.address >= behind for operation in use.operations[1:])
            if alone and wanted <= min(length, end - start):
                return view[start : start + wanted].tobytes()
    prefix = bytearray()
    for chunk in chunks:
        for data, length, _, _ in _chunk_parts(chunk, returned):
            prefix += data
            if len(data) < length or len(prefix) >= limit:
                return bytes(prefix)
    return bytes(prefix)


def header_bytes(message: Message) -> Reassembled:
    """The transport header of a Send."""
    stream = StreamBuilder()
    for data, length, frame, missing in _operation_parts(message.operation, 0, message.header.length):
        stream.add(data, length, "inline", frame, missing)
    return stream.finish()


class StreamBuilder:
    """Builds a stream of bytes that remembers where each came from."""

    def __init__(self) -> None:
        self.length = 0
        self.extents: list[Extent] = []
        self.pieces: list[tuple[int, bytearray]] = []

    def add(self, data: bytes | memoryview, length: int, origin: str, frame: int, missing: str) -> None:
        """Append ``length`` bytes; if ``data`` is shorter, the rest counts as missing."""
        length = min(length, MAX_MESSAGE - self.length)
        if length <= 0:
            return
        if len(data) > length:
            data = data[:length]
        if len(data) < length and len(data):
            self.add(data, len(data), origin, frame, "")
            self.add(b"", length - len(data), origin, frame, missing or "frame truncated")
            return
        if len(data):
            if self.pieces and self.pieces[-1][0] + len(self.pieces[-1][1]) == self.length:
                self.pieces[-1][1].extend(data)
            else:
                self.pieces.append((self.length, bytearray(data)))
        last = self.extents[-1] if self.extents else None
        if last and (last.origin, last.frame, last.missing) == (origin, frame, missing):
            self.extents[-1] = last._replace(length=last.length + length)
        else:
            self.extents.append(Extent(self.length, length, origin, frame, missing))
        self.length += length

    def prefix(self) -> bytes:
        """The bytes before the first missing one."""
        return bytes(self.pieces[0][1]) if self.pieces and not self.pieces[0][0] else b""

    def captured(self, start: int, end: int) -> memoryview:
        """Bytes [start, end), none of which is missing."""
        return captured(self.pieces, start, end)

    def add_inline(self, message: Message) -> None:
        """Append the Payload stream that follows the transport header of a Send."""
        skip = message.header.length
        if message.header.problem:
            # A header without an end does not tell where the Payload stream begins.
            self.add(b"", max(1, message.inline_length), "inline", message.frame, "behind an unfinished header")
            return
        end = message.operation.length
        if message.header.procedure == RDMA_MSGP:
            end = skip + _rpc_header_length(message)
        for data, length, frame, missing in _operation_parts(message.operation, skip, end):
            self.add(data, length, "inline", frame, missing)
        self.add(b"", message.operation.length - end, "inline", message.frame, PADDED)
        if not message.operation.end_known:
            self.add(b"", 1, "inline", 0, "end not captured")

    def add_chunk(self, origin: str, parts: Iterable[Part]) -> None:
        for data, length, frame, missing in parts:
            self.add(data, length, origin, frame, missing)

    def finish(self) -> Reassembled:
        return Reassembled(tuple(self.extents), tuple((start, bytes(data)) for start, data in self.pieces))


def _rpc_header_length(message: Message) -> int:
    """Bytes of the Payload stream before arguments or results, 0 if unknown."""
    data, start, end = message.data, message.start, message.end
    header = rpc_header.call_header(data, start, end) or rpc_header.reply_header(data, start, end)
    return max(0, header.body - start) if header is not None else 0


class ChunkMerger:
    """Puts chunks back into the reduced stream that they were taken out of, in the order of their positions."""

    def __init__(self, source: StreamBuilder) -> None:
        self.source = source
        self.taken = 0
        self.extent = 0
        self.out = StreamBuilder()

    def take_until(self, position: int) -> None:
        """Copy from the source until the result is ``position`` bytes long."""
        self.take_source(position - self.out.length)

    def take_source(self, length: int) -> None:
        available = self.source.length - self.taken
        beyond = max(0, min(length, MAX_MESSAGE) - available)
        end = self.taken + max(0, min(length, available))
        while self.taken < end:
            extent = self.source.extents[self.extent]
            until = min(end, extent.start + extent.length)
            data = b"" if extent.missing else self.source.captured(self.taken, until)
            self.out.add(data, until - self.taken, extent.origin, extent.frame, extent.missing)
            self.taken = until
            if until == extent.start + extent.length:
                self.extent += 1
        if beyond:
            self.out.add(b"", beyond, "inline", 0, "Position beyond the Payload stream")

    def insert(self, origin: str, parts: Iterable[Part]) -> None:
        before = self.out.length
        self.out.add_chunk(origin, parts)
        odd = (self.out.length - before) % 4
        if odd:
            self.out.add(bytes(4 - odd), 4 - odd, "round-up", 0, "")

    def finish(self, doubt: str = "") -> Reassembled:
        """Append the rest of the source; with a ``doubt`` its position is unknown, so its bytes count as missing."""
        rest = self.source.length - self.taken
        if doubt:
            self.out.add(b"", rest, "inline", 0, doubt)
        else:
            self.take_source(rest)
        return self.out.finish()


def _first(count: int, parts: Iterable[Part]) -> Iterator[Part]:
    """The first ``count`` bytes of ``parts``."""
    for data, length, frame, missing in parts:
        taken = min(length, count)
        yield data[:taken], taken, frame, missing
        count -= taken


def _chunk_parts(chunk: ChunkUse, returned: bool) -> Iterator[Part]:
    """The bytes of a chunk, segment by segment: as many as the reply returned, or all that was advertised."""
    room = MAX_MESSAGE
    for use in chunk.segments:
        length = use.advertised.length
        if returned:
            length = min(length, use.returned or 0)
        length = min(length, room)
        room -= length
        yield from segment_parts(use, length)


def _returned_parts(chunk: ChunkUse, returned: WriteChunk) -> Iterator[Part]:
    """The bytes of a chunk that the reply returned, which may be more than the call is known to advertise."""
    known = 0
    for part in _chunk_parts(chunk, returned=True):
        known += part[1]
        yield part
    lost = min(returned.length, MAX_MESSAGE) - known
    if lost > 0:
        yield b"", lost, 0, NOT_ADVERTISED


def segment_parts(use: SegmentUse, length: int) -> Iterator[Part]:
    """The first ``length`` bytes of a segment, as Reads or Writes transferred them; where they overlap, the later
    one."""
    start = use.advertised.offset
    reached = 0
    for low, high, operation in _transferred(use, start, start + length):
        if low - start > reached:
            yield from _untransferred(use, reached, low - start)
        yield from _operation_parts(operation, low - operation.address, high - operation.address)
        reached = high - start
    if reached < length:
        yield from _untransferred(use, reached, length)


def _untransferred(use: SegmentUse, first: int, last: int) -> Iterator[Part]:
    """Bytes [first, last) of a segment that were not transferred before the reply, with the reason."""
    missing = CONTESTED if use.contested else EARLY if use.doubtful else NOT_TRANSFERRED
    covered = IntervalSet()
    start = use.advertised.offset
    for operation in use.late:
        covered.add(operation.address - start, operation.address - start + operation.length)
    for low, high in covered.missing(first, last):
        if low > first:
            yield b"", low - first, use.late[0].first_frame, LATE
        yield b"", high - low, 0, missing
        first = high
    if first < last:
        yield b"", last - first, use.late[0].first_frame, LATE


def _transferred(use: SegmentUse, start: int, end: int) -> list[tuple[int, int, Operation]]:
    """Which Operation each of the bytes [start, end) of a segment comes from: address ranges, ascending and
    disjoint."""
    spans = [
        (max(start, operation.address), min(end, operation.address + operation.length), operation)
        for operation in use.operations
    ]
    if all(span[1] <= other[0] for span, other in pairwise(spans)):  # in order and disjoint, as nearly always
        return [span for span in spans if span[0] < span[1]]
    later = IntervalSet()
    transferred: list[tuple[int, int, Operation]] = []
    for low, high, operation in reversed(spans):
        transferred += [(first, last, operation) for first, last in later.add(low, high)]
    return sorted(transferred, key=itemgetter(0))


def _operation_parts(operation: Operation, start: int, end: int) -> Iterator[Part]:
    """Bytes [start, end) of an Operation."""
    reached = start
    for piece in operation.payload.pieces():
        if piece.at >= end:
            break
        low, high = max(piece.at, reached), min(piece.at + piece.length, end)
        if low >= high:
            continue
        if low > reached:
            yield b"", low - reached, 0, "not captured"
        there = max(low, min(high, piece.at + piece.captured))
        if piece.frame in operation.doubtful:
            yield b"", there - low, piece.frame, CONTRADICTED
        elif there > low:
            offset = piece.offset + low - piece.at
            yield piece.data[offset : offset + there - low].tobytes(), there - low, piece.frame, ""
        if high > there:
            yield b"", high - there, piece.frame, "frame truncated"
        reached = high
    if reached < end:
        yield b"", end - reached, 0, "not captured"
