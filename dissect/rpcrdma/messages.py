"""Message: one RPC-over-RDMA message, a transport header and the Payload stream that follows it."""

from __future__ import annotations

from dataclasses import dataclass

from ..named_tuple import NamedTuple
from ..transport.operations import Operation

HEADER = 28
"""Bytes of a transport header of version 1 without chunks (RFC 8166, 4.2)."""


class Segment(NamedTuple):
    """An RDMA segment: registered memory that one end advertised (RFC 8166, 3.4.3)."""

    handle: int
    length: int
    offset: int


class ReadChunk(NamedTuple):
    """Consecutive Read segments of the Read list with the same Position (RFC 8166, 3.4.5)."""

    position: int
    segments: tuple[Segment, ...]

    @property
    def length(self) -> int:
        return sum(segment.length for segment in self.segments)


class WriteChunk(NamedTuple):
    """A Write chunk or the Reply chunk: an array of plain segments (RFC 8166, 3.4.6)."""

    segments: tuple[Segment, ...]

    @property
    def length(self) -> int:
        return sum(segment.length for segment in self.segments)


@dataclass(slots=True, eq=False)
class TransportHeader:
    """An RPC-over-RDMA header, as far as captured (RFC 8166, 4; version-two-01, 4)."""

    xid: int
    version: int
    """NO_RDMA without a header."""
    credits: int | None
    procedure: int | None
    reads: tuple[ReadChunk, ...] = ()
    writes: tuple[WriteChunk, ...] = ()
    reply: WriteChunk | None = None
    error: int | None = None
    """RDMA_ERROR: rdma_err."""
    supported: tuple[int, int] | None = None
    """RDMA_ERR_VERS: lowest and highest version."""
    length: int = 0
    """Header bytes; the Payload stream follows."""
    problem: str = ""
    """Why the header could not be decoded to its end; '' if it could."""
    truncated: bool = False
    """The problem is not the header, but that the capture ends before it does."""
    direction: int | None = None
    """Version 2: rdma_direction or rdma_optdir, 0 CALL or 1 REPLY.  An RDMA2_ERROR has none."""
    option: int | None = None
    """RDMA2_OPTIONAL: rdma_opttype."""
    optinfo: bytes = b""
    """RDMA2_OPTIONAL: rdma_optinfo, as captured; ``characteristics.decode_option`` reads it."""

    @property
    def reduced(self) -> list[tuple[int, int]]:
        """Position and length of each Read chunk; the segments of one Position are one chunk (RFC 8166, 3.4.5)."""
        lengths: dict[int, int] = {}
        for chunk in self.reads:
            lengths[chunk.position] = lengths.get(chunk.position, 0) + chunk.length
        return list(lengths.items())

    @property
    def chunks(self) -> bool:
        return bool(self.reads or self.writes or self.reply)


@dataclass(slots=True, eq=False)
class Message:
    """A Send that carries RPC-over-RDMA."""

    operation: Operation
    header: TransportHeader
    data: memoryview
    start: int
    """Offset in ``data`` of the inline Payload stream."""
    end: int
    """Offset in ``data`` of the end of the captured inline Payload stream."""
    inline_length: int
    """Bytes of the inline Payload stream on the wire; more than captured if the frame is truncated."""

    def detach(self) -> None:
        """Copy the bytes, so that the batch of frames they came in can be freed."""
        self.operation.payload.detach()
        self.data = memoryview(bytes(self.data[self.start : self.end]))
        self.start, self.end = 0, len(self.data)

    @property
    def untyped(self) -> bool:
        """Whether the first 8 bytes of the RPC message, XID and message type, are truncated in the capture."""
        return self.header.truncated or self.end - self.start < min(8, self.inline_length)

    @property
    def frame(self) -> int:
        return self.operation.last_frame

    @property
    def time(self) -> int:
        return self.operation.first_time
