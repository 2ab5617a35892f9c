"""A message at the moment before it is sent."""

from __future__ import annotations

from dataclasses import dataclass, field

from rdmascope.dissect.rpcrdma.messages import ReadChunk, TransportHeader, WriteChunk

from .build_header import encode_header
from .nouns import Action, Send


@dataclass(slots=True)
class PlannedSend:
    """A Send, the RDMA Writes before it, and (for faults alone) what comes behind it."""

    kind: str
    """'call', 'reply', 'error' or 'option'."""
    header: TransportHeader
    payload: bytes = b""
    before: list[Action] = field(default_factory=list)
    after: list[Action] = field(default_factory=list)
    invalidate: int | None = None
    raw: bytes | None = None
    """The header as it goes out, where it is not what ``header`` says."""
    asked: TransportHeader | None = None
    """Of a reply or an error: the header of the message that it answers."""
    backward: bool = False

    def actions(self) -> list[Action]:
        head = encode_header(self.header) if self.raw is None else self.raw
        return [*self.before, Send(head + self.payload, self.invalidate), *self.after]


def with_lengths(chunk: WriteChunk, lengths: list[int]) -> WriteChunk:
    """The chunk, its segments with other lengths."""
    pairs = zip(chunk.segments, lengths, strict=True)
    return WriteChunk(tuple(segment._replace(length=length) for segment, length in pairs))


def moved(chunk: ReadChunk, position: int) -> ReadChunk:
    return ReadChunk(position, chunk.segments)
