"""What rules look at: the nouns of the analyzer in the circumstances that a judgement needs.

Sent         one message, when it was sent
Transaction  a call with its reply and what was moved for it, when all of that is over
Movement     one RDMA Read or Write, against the memory that was advertised
Mishap       a message that calls for an RDMA_ERROR, and what answered it
Setup        what one end said in its private data
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from ..connection import Connection
from ..intervals import IntervalSet
from ..messages import RDMA_DONE, RDMA_NOMSG, Message, TransportHeader
from ..onc import binding
from ..onc.binding import Items
from ..onc.header import GSS_INTEGRITY, GSS_PRIVACY, RPCSEC_GSS_DATA, CallHeader, ReplyHeader, call_header, reply_header
from ..operations import Operation
from ..private_data import Identified, find_identifiers
from ..rpcs import ChunkUse, Rpc, SegmentUse
from ..stitch import call_stream_prefix, reply_stream_prefix

LOOKED_AT = 1 << 20
"""Bytes of a long message that are looked at."""


class Subject:
    """Common to all nouns."""

    connection: Connection
    followed: tuple[bool, bool] = (False, False)
    """Whether either end sent another message later."""

    def missed(self, sender: int) -> str:
        """Why ``sender`` may have sent something up to now that is not in the capture; '' where it cannot have.

        A gap is only seen when something behind it is.
        """
        if reason := gaps(self.connection):
            return reason
        return "" if self.followed[sender] else "no later message shows whether one is missing from the capture"

    def endpoint(self, role: str) -> int:
        """Which end of the connection a rule that judges ``role`` judges here."""
        raise NotImplementedError

    @property
    def role(self) -> str:
        """What that end is: 'requester', 'responder', or 'either' where it cannot be told."""
        raise NotImplementedError

    @property
    def frames(self) -> tuple[int, ...]:
        raise NotImplementedError

    @property
    def time(self) -> int:
        raise NotImplementedError

    @property
    def rpc_number(self) -> int | None:
        return None

    @property
    def xid(self) -> int | None:
        return None

    @property
    def backward(self) -> bool:
        return False

    @property
    def start_known(self) -> bool:
        """The connection's beginning is in the capture."""
        return start_known(self.connection)


def start_known(connection: Connection) -> bool:
    return all(end.private_data_frame or end.private_data_seen for end in connection.endpoints)


def gaps(connection: Connection, *senders: int) -> str:
    """Why what these ends sent is not all known; '' where it is."""
    missing = sum(connection.missing_packets[sender] for sender in senders or (0, 1))
    if missing:
        return f"{missing:,} packets of the connection are not in the capture"
    if connection.paired_by == "one direction only":
        return "only one direction was captured"
    return ""


def precedes(connection: Connection, first: Operation, second: Operation) -> bool:
    """Whether one end certainly issued ``first`` before ``second``.

    PSNs say so, whatever the order of the capture.  iWARP has none, and several FPDUs share a frame.
    """
    if connection.transport == "iWARP":
        return first.last_frame < second.first_frame
    return (second.psn - first.psn) & 0xFFFFFF < 1 << 23


class Flow(NamedTuple):
    """Credits at the moment of a call."""

    outstanding: int
    """Calls without a reply, this one included."""
    limit: int | None
    """The lower of asked and granted; None before the first reply."""
    lenient: int | None
    """The highest limit that may still have been in force for the requester."""
    granted: int | None


@dataclass(eq=False)
class Sent(Subject):
    """A message when it was sent."""

    connection: Connection
    message: Message
    sender: int
    is_call: bool | None
    rpc: Rpc | None
    errored: Rpc | None = None
    """A reply: the Rpc of this XID that an RDMA_ERROR had already completed."""
    xid_seen: bool = True
    """The other end sent a message with this XID not long ago."""
    announced: str = ""
    """A backward call: what told the server that the client is ready; '' for nothing."""
    calls_unread: bool = False
    """Not every earlier forward call is whole."""

    @property
    def header(self) -> TransportHeader:
        return self.message.header

    def endpoint(self, role: str) -> int:
        return self.sender

    @property
    def role(self) -> str:
        if self.is_call is None:
            return "requester" if self.header.procedure == RDMA_DONE else "either"
        return "requester" if self.is_call else "responder"

    @property
    def frames(self) -> tuple[int, ...]:
        return (self.message.frame,)

    @property
    def time(self) -> int:
        return self.message.time

    @property
    def rpc_number(self) -> int | None:
        return self.rpc.number if self.rpc is not None else None

    @property
    def xid(self) -> int | None:
        return self.message.header.xid

    @property
    def backward(self) -> bool:
        return self.rpc is not None and self.rpc.backward

    @property
    def unread(self) -> str:
        """Why the transport header cannot be judged; '' where it was decoded to its end."""
        if self.header.truncated or (self.header.problem and not self.message.operation.end_known):
            return "the transport header is cut by the capture"
        return ""

    @property
    def length(self) -> int:
        """Bytes of the Send; the least it can be where its end was not captured."""
        return self.message.operation.length


@dataclass(eq=False)
class Transaction(Subject):
    """A call and its reply, when everything that belongs to them has passed."""

    connection: Connection
    rpc: Rpc
    flow: Flow | None = None
    """Of the call."""
    relieved: int | None = None
    """Nanoseconds from the call to the next reply in its direction; None where none came."""
    late: list[Operation] = field(default_factory=list)
    """RDMA Reads and Writes on its memory that were issued behind the reply."""
    persistent: tuple[int, int] | None = None
    """A handle of its chunks that calls one after the other advertise, and how many did so far."""

    def endpoint(self, role: str) -> int:
        caller = 1 if self.rpc.backward else 0
        return caller if role == "requester" else 1 - caller

    @property
    def role(self) -> str:
        return ""

    @property
    def frames(self) -> tuple[int, ...]:
        return tuple(message.frame for message in (self.rpc.call, self.rpc.reply) if message is not None)

    @property
    def time(self) -> int:
        message = self.rpc.call or self.rpc.reply
        return message.time if message else 0

    @property
    def rpc_number(self) -> int | None:
        return self.rpc.number

    @property
    def xid(self) -> int | None:
        return self.rpc.xid

    @property
    def backward(self) -> bool:
        return self.rpc.backward

    @property
    def reads(self) -> list[ChunkUse]:
        return [chunk for chunk in self.rpc.chunks if chunk.kind == "read"]

    @property
    def writes(self) -> list[ChunkUse]:
        return [chunk for chunk in self.rpc.chunks if chunk.kind == "write"]

    @property
    def reply_chunk(self) -> ChunkUse | None:
        return next((chunk for chunk in self.rpc.chunks if chunk.kind == "reply"), None)

    @cached_property
    def unread(self) -> str:
        """Why the two transport headers cannot be held against each other."""
        rpc = self.rpc
        if rpc.call is None:
            return "the call is not in the capture"
        for message in (rpc.call, rpc.reply):
            if message is not None and (
                message.header.truncated or (message.header.problem and not message.operation.end_known)
            ):
                return "a transport header is cut by the capture"
        return ""

    @property
    def sealed(self) -> bool:
        """RPCSEC_GSS protects integrity or privacy of the message."""
        gss = self.rpc.gss
        return gss is not None and gss.procedure == RPCSEC_GSS_DATA and gss.service in (GSS_INTEGRITY, GSS_PRIVACY)

    @property
    def bound(self) -> bool:
        """The upper-layer binding is known."""
        return self.rpc.version is not None and binding.has_binding(self.rpc.program or 0, self.rpc.version)

    @cached_property
    def call_stream(self) -> bytes:
        """The call's Payload stream after reduction, as far as it is known without a hole."""
        message = self.rpc.call
        if message is None or message.header.problem:
            return b""
        if message.header.procedure == RDMA_NOMSG:
            return call_stream_prefix(self.rpc, LOOKED_AT)
        return bytes(message.data[message.start : message.end])

    @cached_property
    def reply_stream(self) -> bytes:
        """The reply's Payload stream after reduction, as far as it is known without a hole."""
        message = self.rpc.reply
        if message is None or message.header.problem:
            return b""
        if message.header.procedure == RDMA_NOMSG:
            return reply_stream_prefix(self.rpc, LOOKED_AT)
        return bytes(message.data[message.start : message.end])

    @property
    def call_length(self) -> int:
        """Bytes of the call's Payload stream after reduction."""
        message = self.rpc.call
        assert message is not None
        if message.header.procedure == RDMA_NOMSG:
            return sum(chunk.advertised for chunk in self.reads if chunk.position == 0)
        return message.inline_length

    @property
    def call_whole(self) -> bool:
        """``call_stream`` is all of it."""
        return self.rpc.call is not None and len(self.call_stream) == self.call_length

    @property
    def reply_whole(self) -> bool:
        """``reply_stream`` is all of it."""
        message, chunk = self.rpc.reply, self.reply_chunk
        if message is None:
            return False
        if message.header.procedure == RDMA_NOMSG:
            return chunk is not None and len(self.reply_stream) == (chunk.returned or 0)
        return len(self.reply_stream) == message.inline_length

    @cached_property
    def call_head(self) -> CallHeader | None:
        return call_header(self.call_stream, 0, len(self.call_stream))

    @cached_property
    def reply_head(self) -> ReplyHeader | None:
        return reply_header(self.reply_stream, 0, len(self.reply_stream), self.rpc.gss)

    @property
    def reduced(self) -> Sequence[tuple[int, int]]:
        """The Read chunks that are data items, as (Position, length); those of one Position count as one."""
        lengths: dict[int, int] = {}
        for chunk in self.reads:
            if chunk.position:
                lengths[chunk.position] = lengths.get(chunk.position, 0) + chunk.advertised
        return list(lengths.items())

    @cached_property
    def arguments(self) -> Items | None:
        """The eligible arguments; None where the binding is not known or the call is not whole."""
        rpc, stream = self.rpc, self.call_stream
        if not self.bound or rpc.procedure is None or not self.call_whole:
            return None
        assert rpc.program is not None and rpc.version is not None
        return binding.call_items(rpc.program, rpc.version, rpc.procedure, stream, 0, len(stream), self.reduced)

    @cached_property
    def results(self) -> Items | None:
        """The eligible results; None where the binding is not known or the reply is not whole."""
        rpc, stream = self.rpc, self.reply_stream
        if not self.bound or rpc.procedure is None or not self.reply_whole:
            return None
        assert rpc.program is not None and rpc.version is not None
        lengths = [chunk.returned or 0 for chunk in self.writes]
        return binding.reply_items(rpc.program, rpc.version, rpc.procedure, stream, 0, len(stream), lengths, rpc.gss)

    @cached_property
    def most(self) -> tuple[int | None, ...]:
        """The most bytes that each eligible result may have, as the arguments say; None where they do not."""
        rpc, stream = self.rpc, self.call_stream
        if not self.bound or rpc.procedure is None or not self.call_whole:
            return ()
        assert rpc.program is not None and rpc.version is not None
        return binding.result_bounds(rpc.program, rpc.version, rpc.procedure, stream, 0, len(stream), self.reduced)

    @property
    def directory_bytes(self) -> int | None:
        """A READDIR: the bytes of results that it asks for."""
        rpc, stream = self.rpc, self.call_stream
        if not self.bound or rpc.procedure is None or not self.call_whole:
            return None
        assert rpc.program is not None and rpc.version is not None
        return binding.directory_bound(rpc.program, rpc.version, rpc.procedure, stream, 0, len(stream))

    def written(self, use: SegmentUse) -> int:
        """Bytes of a segment that RDMA Writes put there, late ones included."""
        return len(filled(use, [*use.operations, *self.late]))

    @property
    def unwritten(self) -> str:
        """Why it is not known what was written; '' where it is."""
        if damaged := gaps(self.connection, self.endpoint("responder")):
            return damaged
        if any("several open calls" in word for word in self.rpc.damage):
            return "several open calls offered the same memory"
        return ""


def filled(use: SegmentUse, operations: Sequence[Operation]) -> IntervalSet:
    """The addresses of a segment that these operations touch."""
    handle, length, start = use.advertised
    end = start + length
    touched = IntervalSet()
    for operation in operations:
        low, high = max(start, operation.address), min(end, operation.address + operation.length)
        if operation.handle == handle and low < high:
            touched.add(low, high)
    return touched


def delivers(rpc: Rpc, operation: Operation) -> bool:
    """A late RDMA Write brings bytes that the reply says were already there."""
    for chunk in rpc.chunks:
        if chunk.kind == "read":
            continue
        for use in chunk.segments:
            handle, length, start = use.advertised
            end = start + min(length, use.returned or 0)
            low, high = max(start, operation.address), min(end, operation.address + operation.length)
            if operation.handle == handle and low < high and filled(use, use.operations).missing(low, high):
                return True
    return False


@dataclass(eq=False)
class Movement(Subject):
    """One RDMA Read or Write, against the memory that was advertised."""

    connection: Connection
    operation: Operation
    callers: tuple[bool, bool]
    """Whether either end has sent forward calls, or backward ones."""
    place: str = ""
    """'inside', 'late' (inside a segment of a call answered before) or 'outside' what was advertised."""
    rpc: Rpc | None = None
    """Whose memory it touches."""
    delivers: bool = False
    """Late, but with bytes that the reply counts."""
    near: str = ""
    """Outside: the memory it comes nearest to, in words."""
    calls_cut: bool = False
    """Not every call's chunk lists are known."""

    def endpoint(self, role: str) -> int:
        return self.operation.initiator

    @property
    def role(self) -> str:
        return "responder" if self.operation.initiator == 1 else "requester"

    @property
    def frames(self) -> tuple[int, ...]:
        return (self.operation.first_frame,)

    @property
    def time(self) -> int:
        return self.operation.first_time

    @property
    def rpc_number(self) -> int | None:
        return self.rpc.number if self.rpc is not None else None

    @property
    def xid(self) -> int | None:
        return self.rpc.xid if self.rpc is not None else None

    @property
    def name(self) -> str:
        return "RDMA " + self.operation.kind.name.capitalize()


@dataclass(eq=False)
class Mishap(Subject):
    """A message that its receiver cannot accept, and what answered it."""

    connection: Connection
    message: Message
    sender: int
    kind: str
    """'version', 'header' or 'reserved'."""
    answer: Message | None = None
    passed_over: bool = False
    """The receiver answered a later call, so it had taken this message."""
    rpc: Rpc | None = None

    def endpoint(self, role: str) -> int:
        return 1 - self.sender

    @property
    def role(self) -> str:
        return "responder"

    @property
    def frames(self) -> tuple[int, ...]:
        answer = () if self.answer is None else (self.answer.frame,)
        return (self.message.frame, *answer)

    @property
    def time(self) -> int:
        return self.message.time

    @property
    def rpc_number(self) -> int | None:
        return self.rpc.number if self.rpc is not None else None

    @property
    def xid(self) -> int | None:
        return self.message.header.xid


@dataclass(eq=False)
class Setup(Subject):
    """What one end said in its private data when the connection was made."""

    connection: Connection
    end: int

    def endpoint(self, role: str) -> int:
        return self.end

    @property
    def role(self) -> str:
        return "requester" if self.end == 0 else "responder"

    @property
    def frames(self) -> tuple[int, ...]:
        frame = self.connection.endpoints[self.end].private_data_frame
        return (frame,) if frame else ()

    @property
    def time(self) -> int:
        return self.connection.first_time

    @property
    def seen(self) -> bool:
        return bool(self.frames)

    @property
    def cut(self) -> bool:
        """The capture ends before the private data does."""
        return self.connection.endpoints[self.end].consumer_data_cut

    @cached_property
    def identifiers(self) -> list[Identified]:
        return find_identifiers(self.connection.endpoints[self.end].consumer_data)
