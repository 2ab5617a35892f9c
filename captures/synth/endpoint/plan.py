"""A message at the moment before it is sent, and the faults that can spoil it there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from rdmascope.dissect.rpcrdma.messages import ReadChunk, TransportHeader, WriteChunk

from .header import encode_header
from .nouns import Action, Role, Send

if TYPE_CHECKING:
    from .endpoint import Endpoint


@dataclass(slots=True)
class Plan:
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


class Fault(NamedTuple):
    """A row of the table of faults."""

    rule: str
    """The rule of the audit that it breaks."""
    by: Role
    """The end that can commit it."""
    says: str
    """What the endpoint does."""
    spoil: Callable[[Endpoint, Plan], bool] | None = None
    """Changes a message in place; False where it gives no occasion, and was left alone."""
    private: Callable[[bytes], bytes] | None = None
    """Changes the private data."""
    bends: str = ""
    """Suspends a duty of the endpoint, by the name it is asked for in ``Endpoint.bends``."""
    fits: Callable[[Endpoint, int], bool] | None = None
    """Of a bent duty about sizes: whether a Send of so many bytes is the occasion."""
    cause: str = ""
    """A fault of the peer that gives the occasion."""
    version: int = 0
    """The protocol version in which there is an occasion; 0 for any."""


def with_lengths(chunk: WriteChunk, lengths: list[int]) -> WriteChunk:
    """The chunk, its segments with other lengths."""
    pairs = zip(chunk.segments, lengths, strict=True)
    return WriteChunk(tuple(segment._replace(length=length) for segment, length in pairs))


def moved(chunk: ReadChunk, position: int) -> ReadChunk:
    return ReadChunk(position, chunk.segments)
