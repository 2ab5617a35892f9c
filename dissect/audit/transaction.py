"""Transaction: a call with its reply and what was moved for it, when all of that is over."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from ..intervals import IntervalSet
from ..layers.oncrpc_codes import GSS_INTEGRITY, GSS_PRIVACY, RPCSEC_GSS_DATA
from ..layers.rpcrdma_codes import RDMA_NOMSG
from ..onc import binding
from ..onc.binding import Items
from ..onc.rpc_header import CallHeader, ReplyHeader, call_header, reply_header
from ..rpcrdma.conversation import Conversation
from ..rpcrdma.memory import REORDERED
from ..rpcrdma.messages import Message
from ..rpcrdma.reassembly import call_stream_prefix, claimed_prefix, reply_stream_prefix
from ..rpcrdma.rpcs import ChunkUse, Rpc, SegmentUse
from ..transport.operations import Operation
from . import traits as shape
from .audit_event import Subject, beheaded, gaps

CALL_NOT_WHOLE = "the call's Payload stream is not all in the capture"
LOOKED_AT = 1 << 20
"""Bytes of a long message that are looked at."""


class CreditState(NamedTuple):
    """Credits at the moment of a call."""

    outstanding: int
    """Calls without a reply, this one included."""
    limit: int | None
    """The lower of requested and granted; None before the first reply."""
    lenient: int | None
    """The highest limit that may still have been in force for the requester."""
    granted: int | None
    unmatched: int = 0
    """Replies that fit no call, and may be those of calls that count as outstanding."""


class HandleStep(NamedTuple):
    """How handles follow each other."""

    step: int
    """From each to the next."""
    run: int
    """How many in a row it was."""
    before: int
    """The same before this call."""
    by_index: bool
    """From the last handle of the same index (the handle without its last eight bits), not from the last of all."""


@dataclass(eq=False)
class Transaction(Subject):
    """A call and its reply, when everything that belongs to them has passed."""

    conversation: Conversation
    rpc: Rpc
    flow: CreditState | None = None
    """Of the call."""
    responder_seen: bool = True
    """The responder had sent a message before the call."""
    relieved: int | None = None
    """Nanoseconds from the call to the next reply in its direction; None where none came."""
    late: list[Operation] = field(default_factory=list)
    """RDMA Reads and Writes on its memory that were issued behind the reply."""
    version_supported: bool = True
    """The responder uses the version of the call itself, in messages that are no errors."""
    of_open_call: bool = False
    """A reply without a call returns the Reply chunk of a call that is open."""
    persistent: tuple[int, int] | None = None
    """A handle of its chunks that calls one after the other advertise, and how many did so far."""

    handle_step: HandleStep | None = None
    """How regularly the new handles of its sender follow each other."""

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
    def backward(self) -> bool:
        return self.rpc.backward

    @property
    def shape(self) -> int:
        rpc, found = self.rpc, 0
        call, reply = rpc.call, rpc.reply
        if call is not None and call.header.version == 2:
            found = shape.SECOND
        if rpc.chunks:
            found |= shape.CHUNKS
            if rpc.chunks[0].kind == "read":
                found |= shape.READS
        if rpc.gss is not None:
            found |= shape.GSS
        if reply is not None:
            header = reply.header
            found |= shape.REPLY
            if header.version == 2:
                found |= shape.SECOND
            if header.procedure == RDMA_NOMSG:
                found |= shape.NOMSG
            if any(chunk.kind != "read" for chunk in rpc.chunks) or header.writes or header.reply:
                found |= shape.RETURNS
        return found

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
        if rpc.ambiguous:
            return "which of several calls with its XID the reply answers is undecidable"
        for message in (rpc.call, rpc.reply):
            if message is not None and (
                message.header.truncated or (message.header.problem and not message.operation.end_known)
            ):
                return "a transport header is truncated in the capture"
        return ""

    @property
    def sealed(self) -> bool:
        """RPCSEC_GSS protects integrity or privacy of the message."""
        gss = self.rpc.gss
        return gss is not None and gss.procedure == RPCSEC_GSS_DATA and gss.service in (GSS_INTEGRITY, GSS_PRIVACY)

    @property
    def asked_unknown(self) -> str:
        """Why it is not known how many bytes of results the call asks for; '' where it is, or no argument says."""
        bound, gss = self.bound_procedure, self.rpc.gss
        if bound is None and self.rpc.procedure is not None:
            return ""
        if bound is not None and not binding.may_state_bytes(*bound):
            return ""
        if self.sealed and gss is not None and gss.service == GSS_PRIVACY:
            return "RPCSEC_GSS seals the arguments"
        return "" if self.call_whole else CALL_NOT_WHOLE

    @property
    def bound(self) -> bool:
        """The upper-layer binding is known."""
        return self.rpc.version is not None and binding.has_binding(self.rpc.program or 0, self.rpc.version)

    @cached_property
    def call_stream(self) -> bytes:
        """The call's Payload stream after reduction, as far as it is known without a gap."""
        return self._stream(self.rpc.call, call_stream_prefix)

    @cached_property
    def reply_stream(self) -> bytes:
        """The reply's Payload stream after reduction, as far as it is known without a gap."""
        if self.of_open_call:
            return claimed_prefix(self.rpc, LOOKED_AT)
        return self._stream(self.rpc.reply, reply_stream_prefix)

    def _stream(self, message: Message | None, prefix: Callable[[Rpc, int], bytes]) -> bytes:
        if message is None or message.header.problem:
            return b""
        if message.header.procedure == RDMA_NOMSG:
            return prefix(self.rpc, LOOKED_AT)
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
        message = self.rpc.call
        return message is not None and _ends(message) and len(self.call_stream) == self.call_length

    @property
    def reply_whole(self) -> bool:
        """``reply_stream`` is all of it."""
        message, chunk = self.rpc.reply, self.reply_chunk
        if message is None:
            return False
        if message.header.procedure == RDMA_NOMSG:
            return chunk is not None and len(self.reply_stream) == (chunk.returned or 0)
        return _ends(message) and len(self.reply_stream) == message.inline_length

    def lacks(self, message: Message) -> bool:
        """Not all that a message carries is in the capture."""
        return bool(message.header.truncated or not message.operation.payload.whole or gaps(self.connection))

    @cached_property
    def call_head(self) -> CallHeader | None:
        return call_header(self.call_stream, 0, len(self.call_stream))

    @cached_property
    def reply_head(self) -> ReplyHeader | None:
        return reply_header(self.reply_stream, 0, len(self.reply_stream), self.rpc.gss)

    @cached_property
    def reduced(self) -> Sequence[tuple[int, int]]:
        """The Read chunks that are data items, as (Position, length)."""
        call = self.rpc.call
        return [] if call is None else [chunk for chunk in call.header.reduced if chunk[0]]

    @cached_property
    def unplaced_chunks(self) -> frozenset[int]:
        """Indices in ``reduced`` of those that stand at no eligible argument."""
        if self.arguments is None:
            return frozenset()
        return frozenset(range(len(self.reduced))) - {item.chunk for item in self.arguments.items if item.reduced}

    @property
    def continues_long_call(self) -> int | None:
        """The Position of a Read chunk that goes on where the one with a long call ends; None where none does."""
        message = self.rpc.call
        if message is None or message.header.procedure != RDMA_NOMSG or not self.unplaced_chunks:
            return None
        positions = {self.reduced[index][0] for index in self.unplaced_chunks}
        return self.call_length if self.call_length in positions else None

    @cached_property
    def arguments(self) -> Items | None:
        """The eligible arguments; None where the binding is not known or the call is not whole."""
        call = self._bound_call
        return binding.call_items(*call, self.reduced) if call is not None else None

    @cached_property
    def results(self) -> Items | None:
        """The eligible results; None where the binding is not known or the reply is not whole."""
        rpc, stream = self.rpc, self.reply_stream
        if (bound := self.bound_procedure) is None or not self.reply_whole:
            return None
        lengths = [chunk.returned or 0 for chunk in self.writes]
        return binding.reply_items(*bound, stream, 0, len(stream), lengths, rpc.gss)

    @cached_property
    def largest_results(self) -> tuple[int | None, ...]:
        """The largest that each eligible result can be, by the arguments; None where these do not limit it."""
        call = self._bound_call
        return binding.result_bounds(*call, self.reduced) if call is not None else ()

    @cached_property
    def asked_bytes(self) -> int | None:
        """The bytes of results that the call asks for inline or in the Reply chunk, where it states how many."""
        call = self._bound_call
        return binding.reply_bound(*call, self.reduced) if call is not None else None

    @property
    def bound_procedure(self) -> tuple[int, int, int] | None:
        """Program, version and procedure, where their binding is known."""
        rpc = self.rpc
        if not self.bound or rpc.program is None or rpc.version is None or rpc.procedure is None:
            return None
        return rpc.program, rpc.version, rpc.procedure

    @property
    def _bound_call(self) -> tuple[int, int, int, bytes, int, int] | None:
        """The same, with the call's stream and where it begins and ends."""
        if (bound := self.bound_procedure) is None or not self.call_whole:
            return None
        return *bound, self.call_stream, 0, len(self.call_stream)

    def written(self, use: SegmentUse) -> int:
        """Bytes of a segment that RDMA Writes put there, late ones included."""
        return len(filled(use, [*use.operations, *self.late]))

    @property
    def unwritten(self) -> str:
        """Why it is not known what was written; '' where it is."""
        if damaged := gaps(self.connection, self.endpoint("responder")):
            return damaged
        # A missing call may have offered the memory of Writes behind the reply.
        if self.late and (damaged := gaps(self.connection, self.endpoint("requester"))):
            return damaged
        if not self.responder_seen and (reason := beheaded(self.connection, self.endpoint("responder"))):
            return reason
        if any("several open calls" in word for word in self.rpc.damage):
            return "several open calls offered the same memory"
        return ""


def _ends(message: Message) -> bool:
    """How long the inline Payload stream is is known."""
    return message.header.procedure == RDMA_NOMSG or message.operation.end_known


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


def offers(rpc: Rpc, operation: Operation) -> bool:
    """A call that may be shown late offers the memory that an RDMA Write is on."""
    return any(
        operation.handle == use.advertised.handle
        and filled(use, (operation,))
        and rpc.call_frame - operation.first_frame <= REORDERED
        for chunk in rpc.chunks
        if chunk.kind != "read"
        for use in chunk.segments
    )


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
