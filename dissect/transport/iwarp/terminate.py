"""Terminate messages (RFC 5040, 4.8)."""

from __future__ import annotations

from dataclasses import dataclass

from ...layers import iwarp_codes as codes
from .fragments import Fragment

CONTROL_BYTES = 4
LENGTH_VALID, DDP_HEADER = 4, 2
"""Flags M and D; R, the lowest, says that the RDMAP header is quoted, too."""


@dataclass(frozen=True, slots=True)
class TerminateMessage:
    """What a Terminate message says."""

    frame: int
    time: int
    sender: int
    layer: int
    kind: int
    code: int
    segment_length: int | None
    """Of the DDP Segment that is quoted."""
    header: bytes
    """The DDP header that is quoted, and behind it the RDMA Read Request header where the message quotes that."""

    def __str__(self) -> str:
        return codes.terminate_name(self.layer, self.kind, self.code)


def decode_terminate(body: bytes, fragment: Fragment, sender: int) -> TerminateMessage | None:
    """The message whose captured bytes are ``body``; None where its control word is not among them."""
    if len(body) < CONTROL_BYTES:
        return None
    length, header = None, b""
    flags = body[2] >> 5
    if flags & LENGTH_VALID and len(body) >= 6:
        length = int.from_bytes(body[4:6], "big")
    if flags & DDP_HEADER:
        header = body[6:]
    return TerminateMessage(
        fragment.last_frame,
        fragment.last_time,
        sender,
        body[0] >> 4,
        body[0] & 15,
        body[1],
        length,
        header,
    )
