"""Message: one RPC-over-RDMA message, that is a transport header and the Payload stream behind it."""

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
    """Read segments of one Position that stand together in the Read list (RFC 8166, 3.4.5)."""

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
    """An RPC-over-RDMA header, as far as the captured bytes go (RFC 8166, 4; version-two-01, 4)."""

    xid: int
    version: int
    """NO_RDMA where there is none."""
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
    """Header bytes; the Payload stream starts behind them."""
    problem: str = ""
    """Why the header could not be decoded to its end, '' where it could."""
    truncated: bool = False
    """The problem is that the capture ends before the header does, not the header itself."""
    direction: int | None = None
    """Version 2: rdma_direction or rdma_optdir, 0 CALL or 1 REPLY.  An RDMA2_ERROR has none."""
    option: int | None = None
    """RDMA2_OPTIONAL: rdma_opttype."""
    optinfo: bytes = b""
    """RDMA2_OPTIONAL: rdma_optinfo, as far as captured; ``characteristics.decode_option`` reads it."""

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
    """Of the inline Payload stream, in ``data``."""
    end: int
    """End of the captured inline Payload stream, in ``data``."""
    inline_length: int
    """Bytes of the inline Payload stream on the wire; more than captured where the frame is truncated."""

    def detach(self) -> None:
        """Hold a copy of the bytes, not the batch of frames that they came in."""
        self.operation.payload.detach()
        self.data = memoryview(bytes(self.data[self.start : self.end]))
        self.start, self.end = 0, len(self.data)

    @property
    def untyped(self) -> bool:
        """The XID and message type of RPC, 8 bytes, are truncated in the capture."""
        return self.header.truncated or self.end - self.start < min(8, self.inline_length)

    @property
    def frame(self) -> int:
        return self.operation.last_frame

    @property
    def time(self) -> int:
        return self.operation.first_time
