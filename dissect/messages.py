"""Message: one RPC-over-RDMA message, that is a transport header and the Payload stream behind it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from .operations import Operation

RDMA_MSG, RDMA_NOMSG, RDMA_MSGP, RDMA_DONE, RDMA_ERROR, RDMA_OPTIONAL = range(6)

PROCEDURE_NAMES = {
    RDMA_MSG: "RDMA_MSG",
    RDMA_NOMSG: "RDMA_NOMSG",
    RDMA_MSGP: "RDMA_MSGP",
    RDMA_DONE: "RDMA_DONE",
    RDMA_ERROR: "RDMA_ERROR",
}
"""Of version 1 (RFC 8166, 4.2)."""
PROCEDURE_NAMES_2 = {
    RDMA_MSG: "RDMA2_MSG",
    RDMA_NOMSG: "RDMA2_NOMSG",
    RDMA_ERROR: "RDMA2_ERROR",
    RDMA_OPTIONAL: "RDMA2_OPTIONAL",
}
"""Of version 2 (version-two-01, 4.2)."""

ERR_VERS, ERR_CHUNK, ERR_INVAL_OPTION = 1, 2, 3
ERROR_NAMES = {ERR_VERS: "RDMA_ERR_VERS", ERR_CHUNK: "RDMA_ERR_CHUNK (RDMA_ERR_BADHEADER)"}
"""Of version 1 (RFC 8166, 4.5)."""
ERROR_NAMES_2 = {
    ERR_VERS: "RDMA2_ERR_VERS",
    ERR_CHUNK: "RDMA2_ERR_BAD_HEADER",
    ERR_INVAL_OPTION: "RDMA2_ERR_INVAL_OPTION",
}
"""Of version 2 (version-two-01, 4.2)."""

DIRECTION_NAMES = {0: "CALL", 1: "REPLY"}
"""The msg_type of RPC, which version 2 has in its header, too (version-two-01, 4.2)."""


def procedure_name(version: int, procedure: int | None) -> str:
    """rdma_proc in words; 'procedure 77' where the version does not define it, '' where it is not there.

    An RDMA_ERROR has one layout in every version (RFC 8166, 4.5), and so a name in those not known here.
    """
    if procedure is None:
        return ""
    known = {1: PROCEDURE_NAMES, 2: PROCEDURE_NAMES_2}.get(version, {RDMA_ERROR: "RDMA_ERROR"})
    return known.get(procedure, f"procedure {procedure}")


def error_name(version: int, code: int | None) -> str:
    """rdma_err in words; 'error 77' where the version does not define it, '' where it is not there."""
    if code is None:
        return ""
    return (ERROR_NAMES_2 if version == 2 else ERROR_NAMES).get(code, f"error {code}")


class Segment(NamedTuple):
    """An RDMA segment: registered memory that one end advertised (RFC 8166, 3.4.3)."""

    handle: int
    length: int
    offset: int


@dataclass(frozen=True, slots=True)
class ReadChunk:
    """Read segments that share one Position (RFC 8166, 3.4.5)."""

    position: int
    segments: tuple[Segment, ...]

    @property
    def length(self) -> int:
        return sum(segment.length for segment in self.segments)


@dataclass(frozen=True, slots=True)
class WriteChunk:
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
    """Bytes of the inline Payload stream on the wire; more than captured where the frame was cut."""

    def detach(self) -> None:
        """Hold a copy of the bytes, not the batch of frames that they came in."""
        self.operation.payload.detach()
        self.data = memoryview(bytes(self.data[self.start : self.end]))
        self.start, self.end = 0, len(self.data)

    @property
    def frame(self) -> int:
        return self.operation.last_frame

    @property
    def time(self) -> int:
        return self.operation.first_time
