"""The RPC-over-RDMA transport header, decoded fast: version 1 (RFC 8166, 4) and version 2 (version-two-01, 4).

``layers/rpcrdma.py`` declares the same headers as Scapy packets; property tests hold the two
equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby
from operator import itemgetter
from struct import Struct
from typing import Any

from ..arrays import Bytes
from ..layers.rpcrdma_codes import (
    ERR_CHUNK,
    ERR_INVAL_OPTION,
    ERR_VERS,
    NO_RDMA,
    RDMA_DONE,
    RDMA_ERROR,
    RDMA_MSG,
    RDMA_MSGP,
    RDMA_NOMSG,
    RDMA_OPTIONAL,
)
from .messages import ReadChunk, Segment, TransportHeader, WriteChunk

_Unpack = Callable[[Any, int], tuple[int, ...]]

_MINIMAL: _Unpack = Struct(">7I").unpack_from
"""The fixed words and three empty chunk lists, as most messages have."""
_FEW_WORDS, _MAX_WORDS = 24, 64
_WORDS: tuple[_Unpack, ...] = tuple(Struct(f">{count}I").unpack_from for count in range(_MAX_WORDS + 1))
"""By number of words: reads so many at once."""
_WORD: _Unpack = Struct(">I").unpack_from
_READ_ENTRY: _Unpack = Struct(">IIIIQ").unpack_from
"""Optional-data word, Position, handle, length, offset: one entry of the Read list."""
_SEGMENTS: Callable[[Any], Iterator[tuple[int, ...]]] = Struct(">IIQ").iter_unpack


class _HeaderEnd(Exception):
    """Decoding cannot continue."""

    def __init__(self, problem: str, truncated: bool = False) -> None:
        self.problem = problem
        self.truncated = truncated


def record_header(data: Bytes | memoryview | bytes, start: int, end: int) -> TransportHeader:
    """The stand-in for the header of a message over TCP: no credits, no chunks, no bytes."""
    truncated = end - start < 4
    xid = 0 if truncated else _WORD(data, start)[0]
    problem = "the XID is not in the capture" if truncated else ""
    return TransportHeader(xid, NO_RDMA, None, RDMA_MSG, problem=problem, truncated=truncated)


def decode_header(data: Bytes | memoryview | bytes, start: int, end: int, length: int) -> TransportHeader:
    """Decode the transport header at the start of a Send.

    ``data[start:end]`` are the captured bytes of the Send, ``length`` is its true length in bytes, which is larger if
    the capture truncated the frame.  Never raises: what precedes the first illegal, overrunning or missing field is
    decoded, ``problem`` names that field and its offset in the Send, and ``truncated`` tells a capture that ends too
    early from a header that does.  ``length`` of the result is the number of bytes decoded; if it is below 4 (8), the
    xid (version) is missing and given as 0.

    Of versions other than 1 and 2 only the four fixed words are decoded, except that RDMA_ERROR has one layout in every
    version (RFC 8166, 4.5 and 7).  Version 2 adds an error code to it, but no direction: the text of version-two-01
    mentions one (3.2), but its XDR, which defines the wire format, has none.
    """
    if end - start >= 28 <= length:
        xid, version, credits, procedure, reads, writes, reply = _MINIMAL(data, start)
        if version == 1 and procedure == RDMA_MSG and not (reads or writes or reply):
            return TransportHeader(xid, 1, credits, RDMA_MSG, length=28)
        if version == 1 and procedure <= RDMA_NOMSG:
            usual = _usual(data, start, min(end - start, length))
            if usual is not None:
                return usual
        elif version == 2 and procedure <= RDMA_NOMSG and reads <= 1:  # The word there is rdma_direction.
            empty = procedure == RDMA_MSG and not (writes or reply) and end - start >= 32 <= length
            if empty and not _WORD(data, start + 28)[0]:
                return TransportHeader(xid, 2, credits, RDMA_MSG, length=32, direction=reads)
            usual = _usual(data, start, min(end - start, length), 5)
            if usual is not None:
                usual.direction = reads
                return usual
    header = TransportHeader(0, 0, None, None)
    cursor = _Cursor(data, start, max(0, min(end - start, length)), max(0, length))
    try:
        _fill(header, cursor)
    except _HeaderEnd as reason:
        header.problem = reason.problem
        header.truncated = reason.truncated
    header.length = cursor.at
    return header


def _usual(
    data: Bytes | memoryview | bytes, start: int, available: int, at: int = 4, max_words: int = _FEW_WORDS
) -> TransportHeader | None:
    """The header of a legal RDMA_MSG or RDMA_NOMSG that ends within its first words; None for others.

    Its chunk lists begin at word ``at``.
    """
    first, count = at, min(available // 4, max_words)
    words = _WORDS[count](data, start)
    reads: list[ReadChunk] = []
    writes: list[WriteChunk] = []
    reply: WriteChunk | None = None
    try:
        while words[at]:
            follows, position, handle, length, high, low = words[at : at + 6]
            if follows != 1:
                return None
            segments: tuple[Segment, ...] = (Segment(handle, length, high << 32 | low),)
            if reads and reads[-1].position == position:
                segments = reads.pop().segments + segments
            reads.append(ReadChunk(position, segments))
            at += 6
        at += 1
        while words[at]:
            chunk = _usual_array(words, at)
            if chunk is None:
                return None
            writes.append(chunk)
            at += 2 + 4 * len(chunk.segments)
        at += 1
        if words[at]:
            reply = _usual_array(words, at)
            if reply is None:
                return None
            at += 1 + 4 * len(reply.segments)
    except (IndexError, ValueError):
        # The lists may be longer than these words, which are few at first, as reading each word takes time.
        return _usual(data, start, available, first, _MAX_WORDS) if count == max_words < _MAX_WORDS else None
    return TransportHeader(
        words[0], words[1], words[2], words[3], tuple(reads), tuple(writes), reply, length=4 * at + 4
    )


def _usual_array(words: tuple[int, ...], at: int) -> WriteChunk | None:
    """The segments after the words for present and count; IndexError if they extend beyond ``words``."""
    end = at + 2 + 4 * words[at + 1]
    if words[at] != 1:
        return None
    if end > len(words):
        raise IndexError
    segments = [
        Segment(words[word], words[word + 1], words[word + 2] << 32 | words[word + 3]) for word in range(at + 2, end, 4)
    ]
    return WriteChunk(tuple(segments))


class _Cursor:
    """A position in a Send, of which ``captured`` out of ``length`` bytes are there."""

    __slots__ = ("at", "captured", "data", "length", "start")

    def __init__(self, data: Bytes | memoryview | bytes, start: int, captured: int, length: int) -> None:
        self.data = data
        self.start = start
        self.captured = captured
        self.length = length
        self.at = 0

    def expect(self, size: int, field: str) -> None:
        """Raise _HeaderEnd unless the next ``size`` bytes are there."""
        if self.at + size <= self.captured:
            return
        where = f"{field} at offset {self.at}"
        if self.at + size > self.length:
            raise _HeaderEnd(f"{where} runs past the end of the Send ({self.length} bytes)")
        raise _HeaderEnd(f"{where} is not in the capture ({self.captured} of {self.length} bytes are)", True)

    def word(self, field: str) -> int:
        at = self.at
        if at + 4 > self.captured:
            self.expect(4, field)
        value = _WORD(self.data, self.start + at)[0]
        self.at = at + 4
        return value

    def present(self, field: str) -> bool:
        """The word before optional data (RFC 4506, 4.19)."""
        value = self.word(field)
        if value > 1:
            self.at -= 4
            raise _HeaderEnd(f"{field} at offset {self.at} is {value}, neither 0 nor 1")
        return value == 1

    def direction(self, field: str) -> int:
        """A msg_type (version-two-01, 4.2)."""
        value = self.word(field)
        if value > 1:
            self.at -= 4
            raise _HeaderEnd(f"{field} at offset {self.at} is {value}, neither 0 (CALL) nor 1 (REPLY)")
        return value

    def opaque(self, size: int) -> bytes:
        """The captured part of ``size`` bytes; the caller has to bound ``size``."""
        start = self.start + self.at
        there = min(size, self.captured - self.at)
        self.at += there
        return bytes(self.data[start : start + there])

    def count(self, field: str) -> int:
        """The length of a segment array; raises _HeaderEnd if it does not fit the Send."""
        value = self.word(field)
        if value * 16 > self.length - self.at:
            self.at -= 4
            raise _HeaderEnd(
                f"{field} at offset {self.at} counts {value} segments, "
                f"which run past the end of the Send ({self.length} bytes)"
            )
        return value

    def segments(self, count: int) -> tuple[Segment, ...]:
        """The captured part of ``count`` segments; the caller has to bound ``count``."""
        start = self.start + self.at
        there = min(count, (self.captured - self.at) // 16)
        self.at += there * 16
        return tuple(map(Segment._make, _SEGMENTS(self.data[start : start + there * 16])))


def _fill(header: TransportHeader, cursor: _Cursor) -> None:
    header.xid = cursor.word("rdma_xid")
    header.version = cursor.word("rdma_vers")
    header.credits = cursor.word("rdma_credit")
    header.procedure = procedure = cursor.word("rdma_proc")
    if procedure == RDMA_ERROR:
        _fill_error(header, cursor)
    elif header.version not in (1, 2):
        raise _HeaderEnd(f"version {header.version}")
    elif procedure in (RDMA_MSG, RDMA_NOMSG):
        if header.version == 2:
            header.direction = cursor.direction("rdma_direction")
        _fill_chunks(header, cursor)
    elif header.version == 2 and procedure == RDMA_OPTIONAL:
        _fill_optional(header, cursor)
    elif header.version == 1 and procedure == RDMA_MSGP:
        cursor.word("rdma_align")
        cursor.word("rdma_thresh")
        _fill_chunks(header, cursor)
    elif header.version == 2 or procedure != RDMA_DONE:
        raise _HeaderEnd(f"rdma_proc at offset 12 is {procedure}, which version {header.version} does not define")


def _fill_chunks(header: TransportHeader, cursor: _Cursor) -> None:
    _fill_reads(header, cursor)
    _fill_writes(header, cursor)
    if cursor.present("rdma_reply"):
        count = cursor.count("rdma_reply's segment count")
        header.reply = WriteChunk(cursor.segments(count))
        cursor.expect(16 * (count - len(header.reply.segments)), "rdma_reply's segment")


def _fill_optional(header: TransportHeader, cursor: _Cursor) -> None:
    header.direction = cursor.direction("rdma_optdir")
    header.option = cursor.word("rdma_opttype")
    size = cursor.word("rdma_optinfo's length")
    if size + -size % 4 > cursor.length - cursor.at:
        cursor.at -= 4
        raise _HeaderEnd(
            f"rdma_optinfo's length at offset {cursor.at} is {size} bytes, "
            f"which run past the end of the Send ({cursor.length} bytes)"
        )
    header.optinfo = cursor.opaque(size)
    cursor.expect(size - len(header.optinfo), "rdma_optinfo")
    end, width = cursor.at, -size % 4
    pad = cursor.opaque(width)
    if any(pad) or len(pad) < width:
        cursor.at = end
    if any(pad):
        raise _HeaderEnd(f"the pad of rdma_optinfo at offset {end} is not zero")
    if len(pad) < width:
        cursor.expect(width, "rdma_optinfo's pad")


def _fill_error(header: TransportHeader, cursor: _Cursor) -> None:
    header.error = cursor.word("rdma_err")
    if header.error == ERR_VERS:
        low = cursor.word("rdma_vers_low")
        header.supported = low, cursor.word("rdma_vers_high")
    elif header.error != ERR_CHUNK and (header.version != 2 or header.error != ERR_INVAL_OPTION):
        codes = "none of 1, 2 and 3" if header.version == 2 else "neither 1 nor 2"
        raise _HeaderEnd(f"rdma_err at offset 16 is {header.error}, {codes}")


def _fill_reads(header: TransportHeader, cursor: _Cursor) -> None:
    entries: list[tuple[int, Segment]] = []
    try:
        while cursor.present("rdma_reads"):
            cursor.at -= 4
            cursor.expect(24, "rdma_reads entry")
            _, position, handle, length, offset = _READ_ENTRY(cursor.data, cursor.start + cursor.at)
            entries.append((position, Segment(handle, length, offset)))
            cursor.at += 24
    finally:
        header.reads = tuple(
            ReadChunk(position, tuple(segment for _, segment in group))
            for position, group in groupby(entries, itemgetter(0))
        )


def _fill_writes(header: TransportHeader, cursor: _Cursor) -> None:
    chunks: list[WriteChunk] = []
    try:
        while cursor.present("rdma_writes"):
            count = cursor.count("rdma_writes' segment count")
            chunks.append(WriteChunk(cursor.segments(count)))
            cursor.expect(16 * (count - len(chunks[-1].segments)), "rdma_writes' segment")
    finally:
        header.writes = tuple(chunks)
