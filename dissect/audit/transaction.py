"""Transaction: a call with its reply and the transfers for it, when all of that is over; and what is known by then of
its unreduced data, of credits and of the back channel."""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from struct import pack
from typing import TypeVar

from ..intervals import IntervalSet
from ..layers.oncrpc_codes import GSS_INTEGRITY, GSS_PRIVACY, RPCSEC_GSS, RPCSEC_GSS_DATA, SUCCESS
from ..layers.rpcrdma_codes import RDMA_ERROR, RDMA_MSG, RDMA_NOMSG
from ..named_tuple import NamedTuple
from ..onc import binding, compound as nfs4
from ..onc.binding import Items
from ..onc.rpc_header import NFS, CallHeader, ReplyHeader, call_header, reply_header
from ..onc.xdr import word
from ..rpcrdma.conversation import Conversation
from ..rpcrdma.matching import BY_XID_ALONE
from ..rpcrdma.memory import REORDERED
from ..rpcrdma.messages import Message
from ..rpcrdma.reassembly import call_stream_prefix, claimed_prefix, reply_stream_prefix
from ..rpcrdma.rpcs import ChunkUse, Rpc, SegmentUse
from ..transport.connection import Connection
from ..transport.operations import Operation
from .rule import (
    CHUNKS,
    GSS,
    LATER,
    NOMSG,
    READS,
    REPLY,
    RETURNS,
    SECOND,
    Subject,
    beheaded,
    gaps,
    gaps_between,
    gaps_seen,
    gaps_within,
)

Key = TypeVar("Key")
Value = TypeVar("Value")

REMEMBERED = 4096
"""XIDs per end, and other small things, that are kept per connection."""


def remember(table: OrderedDict[Key, Value], key: Key, value: Value) -> None:
    """Put an entry at the end; a full table drops its first one."""
    table[key] = value
    table.move_to_end(key)
    if len(table) > REMEMBERED:
        table.popitem(last=False)


class LastXids:
    """The XIDs of the last ``REMEMBERED`` messages of one end, four bytes each."""

    __slots__ = "_xids"

    def __init__(self) -> None:
        self._xids = array("I")

    def __contains__(self, xid: int) -> bool:
        return xid in self._xids[-REMEMBERED:]

    def add(self, xids: Iterable[int]) -> None:
        """Add the XIDs of the next messages, in order."""
        self._xids.extend(xids)
        if len(self._xids) > 2 * REMEMBERED:
            del self._xids[:-REMEMBERED]


UNSEEN_CALLS = "calls may be missing from the capture since the last reply, or truncated before they say that they are"
CALL_NOT_WHOLE = "the call's Payload stream is not all in the capture"
UNPLACED = "only the reply shows which message is the call, so RDMA Writes before it are at no call's memory"
LOOKED_AT = 1 << 20
"""Bytes of a long message that are examined."""


NONE_LACKING = 0, False


class CreditState(NamedTuple):
    """Credits at the time of a call."""

    outstanding: int
    """Number of unanswered calls, with this one."""
    limit: int | None
    """The lower of requested and granted; None before the first reply."""
    lenient: int | None
    """The highest limit that may still have been in force for the requester."""
    granted: int | None
    unmatched: int = 0
    """Replies that fit no call, and may be to calls that count as outstanding."""
    since: int = 1 << 62
    """Frame of the last reply before the call; after all frames if nothing before the call matters."""
    undirected: int = 0
    """Messages of the caller, this one included, that may be calls, or that only an answer shows to be."""


def lacking(connection: Connection, caller: int, since: int, frame: int, answered: int = 0) -> tuple[int, bool]:
    """Packets of the caller missing between two frames, and whether any of the other end are.

    ``answered``: the later frame that shows what the other end had sent by then.
    """
    if not any(connection.gaps):
        return NONE_LACKING
    own = gaps_seen(connection, caller, since, frame)
    theirs = gaps_seen(connection, 1 - caller, since, answered or frame)
    return sum(gap.end - gap.start for gap in own), bool(theirs)


class HandleStep(NamedTuple):
    """How the handles of an end follow each other."""

    step: int
    """Difference of consecutive handles."""
    run: int
    """How often in a row it occurred."""
    before: int
    """``run`` before this call."""
    by_index: bool
    """Handles are compared with the last one of the same index (without the last eight bits), not with the last one."""


@dataclass(eq=False)
class Transaction(Subject):
    """A call and its reply, when everything that belongs to them is over."""

    conversation: Conversation
    rpc: Rpc
    flow: CreditState | None = None
    """Credits at the call."""
    responder_seen: bool = True
    """The responder had sent a message before the call."""
    overtaken: bool = False
    """A reply that is shown after a later one, or has an earlier time, may have come before the call."""
    late: list[Operation] = field(default_factory=list)
    """RDMA Reads and Writes on its memory that were issued after the reply."""
    version_supported: bool = True
    """The responder itself uses the version of the call in messages that are no errors."""
    of_open_call: bool = False
    """A reply without a call returns the Reply chunk of an open call."""
    persistent: tuple[int, int] | None = None
    """A handle that consecutive calls advertise, and how many did so far."""

    handle_step: HandleStep | None = None
    """How regularly the new handles of its sender follow each other."""

    def endpoint(self, role: str) -> int:
        caller = 1 if self.rpc.backward else 0
        return caller if role == "requester" else 1 - caller

    def _lacking(self) -> tuple[int, bool]:
        """``lacking`` between the last reply before the call and the call.

        Computed only when it is judged: what seems to be missing may come late.
        """
        if self.flow is None or self.rpc.call is None:
            return NONE_LACKING
        caller, frame = self.endpoint("requester"), self.rpc.call.frame
        answered = self._next(1 - caller, frame)
        packets, theirs = lacking(self.connection, caller, self.flow.since, frame, answered)
        return packets + self.flow.undirected, theirs

    @property
    def unseen_calls(self) -> str:
        """Why calls before this one may be missing; '' if none are."""
        return UNSEEN_CALLS if self._lacking()[0] else ""

    @property
    def credit_doubt(self) -> str:
        """Why a call that seems to be within the limit may not be; '' if it is."""
        packets, granted = self._lacking()
        assert self.flow is not None
        if self.flow.limit is not None and packets and self.flow.outstanding + packets > self.flow.limit:
            return UNSEEN_CALLS
        stray = packets and self.conversation.unmatched_replies[self.endpoint("requester")]
        lowered = "a reply that lowered the grant may be missing, or its call is"
        return lowered if (granted or stray) and self.flow.outstanding > 1 else ""

    @property
    def role(self) -> str:
        return ""

    @property
    def moment(self) -> int:
        return self.frames[0]

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
        """Traits of what may be truncated in the capture."""
        rpc, shape = self.rpc, 0
        call, reply = rpc.call, rpc.reply
        if call is not None and call.header.version == 2:
            shape = SECOND
        if call is not None and call.header.truncated:
            shape |= CHUNKS | READS | GSS | (RETURNS if reply is not None else 0)
        if rpc.chunks:
            shape |= CHUNKS
            if rpc.chunks[0].kind == "read":
                shape |= READS
        if rpc.gss is not None or (rpc.chunks and self.credential_cut):
            shape |= GSS
        if reply is not None:
            header = reply.header
            shape |= REPLY
            if header.version == 2:
                shape |= SECOND
            if header.procedure in (None, RDMA_NOMSG):
                shape |= NOMSG
            if header.truncated or any(chunk.kind != "read" for chunk in rpc.chunks) or header.writes or header.reply:
                shape |= RETURNS
        return shape

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
        """Why the two transport headers cannot be compared; '' if they can."""
        rpc = self.rpc
        if rpc.call is None:
            return "the call is not in the capture"
        if rpc.ambiguous:
            return "which of several calls with its XID the reply answers is undecidable"
        for message in (rpc.call, rpc.reply):
            if message is not None and (
                message.header.truncated or (message.header.problem and not message.operation.end_known)
            ):
                return "a transport header is not all in the capture"
        return ""

    @property
    def sealed(self) -> bool:
        """RPCSEC_GSS protects the message by integrity or privacy."""
        gss = self.rpc.gss
        return gss is not None and gss.procedure == RPCSEC_GSS_DATA and gss.service in (GSS_INTEGRITY, GSS_PRIVACY)

    @property
    def credential_cut(self) -> bool:
        """The call may have an RPCSEC_GSS credential that is not captured."""
        head, call = self.call_head, self.rpc.call
        if call is None or (call.header.problem and not call.header.truncated):
            return False
        return (head is None or (head.gss is None and head.flavor in (None, RPCSEC_GSS))) and not self.call_whole

    @property
    def asked_unknown(self) -> str:
        """Why it is unknown how many bytes of results the call asks for; '' if it is known, or no argument tells."""
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
        """The call's Payload stream after reduction, up to its first gap."""
        return self._stream(self.rpc.call, call_stream_prefix)

    @cached_property
    def reply_stream(self) -> bytes:
        """The reply's Payload stream after reduction, up to its first gap."""
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
        if message is None or message.header.problem:
            return False
        return _ends(message) and len(self.call_stream) == self.call_length

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
        """Whether not all that a message carries is in the capture."""
        moved = [operation for chunk in self.rpc.chunks for use in chunk.segments for operation in use.operations]
        whole = all(operation.payload.whole for operation in (message.operation, *moved))
        return bool(message.header.truncated or not whole or gaps(self.connection))

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
        """Indices in ``reduced`` of chunks that are at no eligible argument."""
        if self.arguments is None:
            return frozenset()
        return frozenset(range(len(self.reduced))) - {item.chunk for item in self.arguments.items if item.reduced}

    @property
    def continues_long_call(self) -> int | None:
        """The Position of a Read chunk that continues a long call of which the chunk at Position 0 has only a part: it
        is that chunk's end, or lies before the arguments, where nothing is reduced; None if there is no such chunk."""
        message, head = self.rpc.call, self.call_head
        if message is None or message.header.procedure != RDMA_NOMSG or not self.unplaced_chunks:
            return None
        positions = {self.reduced[index][0] for index in self.unplaced_chunks}
        if self.call_length in positions:
            return self.call_length
        ends_early = self.arguments is not None and binding.ENDS_INSIDE in self.arguments.problem
        return min(positions) if ends_early and head is not None and min(positions) < head.body else None

    @cached_property
    def arguments(self) -> Items | None:
        """The eligible arguments; None if the binding is unknown or the call is not whole."""
        call = self._bound_call
        return binding.call_items(*call, self.reduced) if call is not None else None

    @cached_property
    def results(self) -> Items | None:
        """The eligible results; None if the binding is unknown or the reply is not whole."""
        rpc, stream = self.rpc, self.reply_stream
        if (bound := self.bound_procedure) is None or not self.reply_whole or self.credential_cut:
            return None
        lengths = [chunk.returned or 0 for chunk in self.writes]
        return binding.reply_items(*bound, stream, 0, len(stream), lengths, rpc.gss)

    @property
    def may_succeed(self) -> bool:
        """Whether the reply accepts the call, or its header is not captured."""
        head = self.reply_head
        return head is None or (head.accepted is not False and head.accept_status in (None, SUCCESS))

    @property
    def nfs_status(self) -> int | None:
        """The first word of NFS results, which is their status; None if unknown."""
        head, stream = self.reply_head, self.reply_stream
        known = self.rpc.program == NFS and not self.credential_cut
        known = known and head is not None and 0 < head.body <= len(stream) - 4
        return word(memoryview(stream), head.body)[0] if head is not None and known else None

    @property
    def failed(self) -> bool:
        """Whether the first word of the results shows that they have no data."""
        return self.rpc.version in (2, 3) and bool(self.nfs_status)

    @cached_property
    def largest_results(self) -> tuple[int | None, ...]:
        """By eligible result, its largest possible size by the arguments; None if they do not limit it."""
        call = self._bound_call
        return binding.result_bounds(*call, self.reduced) if call is not None else ()

    @cached_property
    def asked_bytes(self) -> int | None:
        """Bytes of results that the call asks for inline or in the Reply chunk; None if it does not tell."""
        call = self._bound_call
        return binding.reply_bound(*call, self.reduced) if call is not None else None

    @property
    def bound_procedure(self) -> tuple[int, int, int] | None:
        """Program, version and procedure if their binding is known."""
        rpc = self.rpc
        if not self.bound or rpc.program is None or rpc.version is None or rpc.procedure is None:
            return None
        return rpc.program, rpc.version, rpc.procedure

    @property
    def _bound_call(self) -> tuple[int, int, int, bytes, int, int] | None:
        """``bound_procedure`` with the call's stream, its start and its end."""
        if (bound := self.bound_procedure) is None or not self.call_whole:
            return None
        return *bound, self.call_stream, 0, len(self.call_stream)

    def written(self, use: SegmentUse) -> int:
        """Bytes of a segment that RDMA Writes filled; of late Writes only those that the reply returns count."""
        _, length, start = use.advertised
        behind = {id(operation) for operation in self.late}
        written = filled(use, [operation for operation in use.operations if id(operation) not in behind])
        late = filled(use, self.late)
        late.remove(start + (use.returned or 0), start + length)
        for span in zip(late.starts, late.ends, strict=True):
            written.add(*span)
        return len(written)

    def unseen_before(self, frame: int) -> str:
        """Why either end may have sent something between the call and ``frame`` that the capture lacks or shows later;
        '' if it cannot have."""
        call = self.rpc.call_frame
        return self.unseen(self.endpoint("responder"), call, frame) or self.unseen(
            self.endpoint("requester"), call, frame
        )

    @property
    def unseen_writes(self) -> str:
        """Why RDMA Writes between call and reply may be missing from the capture; '' if none are."""
        call, reply = self.rpc.call, self.rpc.reply
        if call is None or reply is None:
            return ""
        unplaced = UNPLACED if BY_XID_ALONE in self.rpc.notes else ""
        return unplaced or gaps_between(self.connection, self.endpoint("responder"), call.frame, reply.frame)

    @property
    def unwritten(self) -> str:
        """Why it is unknown what was written; '' if it is known."""
        until = max([operation.first_frame for operation in self.late], default=max(self.frames))
        unseen = self.unseen(self.endpoint("responder"), self.rpc.call_frame, until)
        return self._last_of_responder(until) or unseen or self._doubtful_writes

    @property
    def unwritten_later(self) -> str:
        """Why RDMA Writes after the reply may be missing from the capture; '' if none are."""
        frame = max(self.frames)
        return self._last_of_responder(frame) or self.unseen(self.endpoint("responder"), frame)

    def _last_of_responder(self, frame: int) -> str:
        """Why Writes may follow ``frame``, as no message of their end does; '' if they cannot."""
        last = self._next(self.endpoint("responder"), frame) == LATER and not self.connection.ended_by
        return "the capture ends before the responder's next message, and RDMA Writes may precede that" if last else ""

    @property
    def unwritten_by_reply(self) -> str:
        """Why it is unknown what was written before the reply was issued; '' if it is known."""
        frame = max(self.frames)
        responder = self.endpoint("responder")
        missing = gaps_within(self.connection, responder, self.rpc.call_frame, frame)
        return missing or self.out_of_step or self._doubtful_writes

    @property
    def _doubtful_writes(self) -> str:
        """Why it is unknown for which call the captured Writes were; '' if it is known."""
        if BY_XID_ALONE in self.rpc.notes:
            return UNPLACED
        # A missing call may have offered the memory of Writes after the reply.
        if self.late and (reason := self.unseen(self.endpoint("requester"), self.rpc.call_frame, LATER)):
            return reason
        if not self.responder_seen and (reason := beheaded(self.connection, self.endpoint("responder"))):
            return reason
        if any("several open calls" in word for word in self.rpc.damage):
            return "several open calls offered the same memory"
        if any(use.doubtful for chunk in self.rpc.chunks for use in chunk.segments):
            return "what was transferred before the call may be for an earlier one"
        return ""


def _ends(message: Message) -> bool:
    """Whether the length of the inline Payload stream is known."""
    return message.header.procedure == RDMA_NOMSG or message.operation.end_known


def filled(use: SegmentUse, operations: Sequence[Operation]) -> IntervalSet:
    """The addresses of a segment that these Operations touch."""
    handle, length, start = use.advertised
    end = start + length
    touched = IntervalSet()
    for operation in operations:
        low, high = max(start, operation.address), min(end, operation.address + operation.length)
        if operation.handle == handle and low < high:
            touched.add(low, high)
    return touched


def offers(rpc: Rpc, operation: Operation) -> bool:
    """Whether a call that may be shown late offers the memory of an RDMA Write."""
    return any(
        operation.handle == use.advertised.handle
        and filled(use, (operation,))
        and rpc.call_frame - operation.first_frame <= REORDERED
        for chunk in rpc.chunks
        if chunk.kind != "read"
        for use in chunk.segments
    )


class Claim(NamedTuple):
    """Bytes of a segment that, by the reply, were written."""

    handle: int
    start: int
    end: int
    written: IntervalSet
    """Bytes that were written before the reply."""


def claims(rpc: Rpc) -> list[Claim]:
    """By segment, what a reply says was written."""
    of_segments = []
    for chunk in rpc.chunks:
        for use in chunk.segments if chunk.kind != "read" else ():
            handle, length, start = use.advertised
            of_segments.append(
                Claim(handle, start, start + min(length, use.returned or 0), filled(use, use.operations))
            )
    return of_segments


def delivers(claims: Sequence[Claim], operation: Operation) -> bool:
    """Whether a late RDMA Write brings bytes that, by the reply, were already there."""
    for handle, start, end, written in claims:
        low, high = max(start, operation.address), min(end, operation.address + operation.length)
        if operation.handle == handle and low < high and written.missing(low, high):
            return True
    return False


class Leftover(NamedTuple):
    """Bytes after the count word of a reduced item that should have been removed with it."""

    name: str
    """Procedure or operation."""
    length: int
    """Bytes of the item."""
    excess: int
    """Bytes that are left over."""

    @property
    def only_pad(self) -> bool:
        return self.excess < 4 and self.excess == -self.length % 4 and self.length != self.excess


def call_leftover(transaction: Transaction) -> Leftover | None:
    """Bytes that the call's Read chunks should have taken out of its stream, but did not; None for none."""
    items, stream, call = transaction.arguments, transaction.call_stream, transaction.bound_procedure
    if items is None or call is None:
        return None
    return _leftover(
        items, stream, True, lambda less: binding.call_items(*call, less, 0, len(less), transaction.reduced)
    )


def reply_leftover(transaction: Transaction) -> Leftover | None:
    """Bytes that the reply's Write chunks should have taken out of its stream, but did not; None for none."""
    items, stream, call = transaction.results, transaction.reply_stream, transaction.bound_procedure
    if items is None or call is None:
        return None
    lengths = [chunk.returned or 0 for chunk in transaction.writes]
    gss = transaction.rpc.gss
    return _leftover(items, stream, False, lambda less: binding.reply_items(*call, less, 0, len(less), lengths, gss))


def _leftover(items: Items, stream: bytes, arguments: bool, walk: Callable[[bytes], Items]) -> Leftover | None:
    """The bytes after a reduced item without which the stream decodes exactly to its end; None for none."""
    if items.complete and items.end == len(stream):
        return None
    taken = 0
    for item in items.items:
        if not item.reduced:
            continue
        start = item.position - taken
        padded = item.count + 3 & -4
        for excess in dict.fromkeys((padded, item.count, padded - item.count)):
            if not excess or start + excess > len(stream):
                continue
            rest = walk(stream[:start] + stream[start + excess :])
            if rest.complete and rest.end == len(stream) - excess:
                return Leftover(item.name, item.count, excess)
        taken += padded if arguments else 0
    return None


COMPOUND = 1
_COMPOUND_CALL = pack(">III", NFS, 4, COMPOUND)
"""Program, version and procedure."""
_GSS = pack(">I", RPCSEC_GSS)
_OFFERING = (pack(">I", nfs4.OP_CREATE_SESSION), pack(">I", nfs4.OP_BIND_CONN_TO_SESSION))
UNREAD = "a call before it cannot be read"


class BackChannel:
    """The back channel of a connection.  A client offers it with its call, even before that is answered."""

    def __init__(self) -> None:
        self.offered = 0
        """Frame of the first call that offered it; 0 for none."""
        self.unread = 0
        """Frame of the client's first undecodable message, which may have offered it."""
        self.reason = ""
        """Why that message cannot be decoded."""
        self.calls_back = False
        """The server has called the client."""
        self._pending: dict[Rpc, int] = {}
        """Forward calls whose contents have not all come, and their frames."""

    def call_sent(self, transaction: Transaction) -> None:
        """Note a forward call, which may offer the back channel."""
        call = transaction.rpc.call
        assert call is not None
        if call.header.procedure == RDMA_NOMSG and not call.header.problem:
            self._pending[transaction.rpc] = call.frame
        else:
            self._note(transaction, call)

    def other_sent(self, sender: int, message: Message) -> None:
        """Note a message that is no call, or cannot be decoded as one."""
        if sender == 0 and message.header.problem:
            self._unread(message.frame, UNREAD)

    def ended(self, transaction: Transaction) -> None:
        """Note a forward call when all of it is known."""
        if self._pending.pop(transaction.rpc, 0):
            assert transaction.rpc.call is not None
            self._note(transaction, transaction.rpc.call)

    def doubt(self, frame: int) -> str:
        """Why the client may have offered it before ``frame`` nevertheless; '' if it cannot have."""
        if self.unread and self.unread < frame:
            return self.reason
        return UNREAD if any(pending < frame for pending in self._pending.values()) else ""

    def _note(self, transaction: Transaction, call: Message) -> None:
        offers = _offers(transaction, call)
        if offers is True and not self.offered:
            self.offered = call.frame
        elif isinstance(offers, str):
            self._unread(call.frame, offers)

    def _unread(self, frame: int, reason: str) -> None:
        if not self.unread:
            self.unread, self.reason = frame, reason


def _offers(transaction: Transaction, call: Message) -> bool | str:
    """Whether a call offers the back channel; in words why that is unknown."""
    if call.header.problem:
        return UNREAD
    if call.header.procedure == RDMA_MSG and call.end - call.start >= 28:
        at = call.start + 12
        behind = bytes(call.data[at : call.end])
        if not behind.startswith(_COMPOUND_CALL):
            return False
        whole = len(behind) == call.inline_length - 12
        if whole and behind[12:16] != _GSS and not any(procedure in behind for procedure in _OFFERING):
            return False
    stream = transaction.call_stream
    head = call_header(stream, 0, len(stream))
    if head is None:
        return UNREAD
    if (head.program, head.version, head.procedure) != (NFS, 4, COMPOUND):
        return False
    if head.body < 0:
        return "a call before it is sealed by RPCSEC_GSS" if head.flavor == RPCSEC_GSS else UNREAD
    compound = nfs4.compound_call(stream, head.body, len(stream), transaction.reduced, origin=0)
    if nfs4.offers_back_channel(compound, stream):
        return True
    return False if compound.complete else UNREAD


LOWERING = 1_000_000_000
"""Nanoseconds until a requester knows of a lower grant."""


class CreditGrants:
    """Credits requested and granted, by caller."""

    def __init__(self, conversation: Conversation) -> None:
        self.conversation = conversation
        self.explained = [0, 0]
        """Replies without a call by the time when only one call was outstanding: these are not to later calls."""
        self.granted: list[int | None] = [None, None]
        """The latest grant."""
        self.higher: list[tuple[int, int]] = [(0, 0), (0, 0)]
        """A higher grant that may still be used, and until when (ns)."""
        self.requested = [0, 0]
        self.last_reply = [0, 0]
        """Frame of the last reply."""
        self.unrelieved: tuple[list[Transaction], ...] = ([], [])
        """Calls since the last reply."""
        self._relieved: list[tuple[int, list[Transaction]]] = [(0, []), (0, [])]
        """Frame of the last reply, and the calls between the reply before it and itself."""

    def called(self, caller: int, transaction: Transaction, outstanding: int) -> None:
        """Count a call, which takes a credit; ``outstanding`` includes it."""
        message = transaction.rpc.call
        assert message is not None
        undirected = self.conversation.connection.undirected_messages[caller] + message.untyped
        flow = self.flow(caller, message.header.credits or 0, message.time, outstanding)
        transaction.flow = flow._replace(undirected=undirected) if undirected else flow
        self.unrelieved[caller].append(transaction)
        if len(self.unrelieved[caller]) > REMEMBERED:
            del self.unrelieved[caller][: REMEMBERED // 2]

    def flow(self, caller: int, credits: int, time: int, outstanding: int) -> CreditState:
        """The credits in force for a call that requests ``credits`` at ``time`` (ns)."""
        grant = self.granted[caller]
        requested = max(1, credits or 1, self.requested[caller])
        self.requested[caller] = credits
        if outstanding == 1:
            self.explained[caller] = self.conversation.unmatched_replies[caller]
        unmatched = self.unmatched(caller)
        since = self.last_reply[caller]
        if grant is None:
            return CreditState(outstanding, None, None, None, unmatched, since)
        before, until = self.higher[caller]
        highest = max(grant, before) if time < until else grant
        limits = min(requested, max(1, grant)), min(requested, max(1, highest))
        return CreditState(outstanding, *limits, grant, unmatched, since)

    def unmatched(self, caller: int) -> int:
        """Replies that fit no call, and may be to calls that count as outstanding."""
        known = self.conversation.unmatched_replies[caller]
        self.explained[caller] = min(self.explained[caller], known)
        return known - self.explained[caller]

    def grant(self, caller: int, credits: int, time: int) -> None:
        """Note that a reply grants ``credits`` at ``time`` (ns)."""
        old = self.granted[caller]
        if old is not None and credits < old:
            before, until = self.higher[caller]
            highest = max(old, before) if time < until else old
            self.higher[caller] = highest, time + LOWERING
        self.granted[caller] = credits

    def replied(self, caller: int, message: Message) -> None:
        """Note a reply that may grant credits; the value in an RDMA_ERROR does not count."""
        credits, header = message.header.credits, message.header
        self.last_reply[caller] = max(self.last_reply[caller], message.frame)
        self.relieve(caller, message.frame, message.time)
        readable = header.procedure not in (None, RDMA_ERROR) and (header.truncated or not header.problem)
        if credits is not None and readable:
            self.grant(caller, credits, message.time)

    def relieve(self, caller: int, frame: int, time: int) -> None:
        """Note a reply, whatever it grants, in ``frame`` at ``time`` (ns)."""
        for transaction in self.unrelieved[caller]:
            if transaction.rpc.call is not None and transaction.rpc.call.time > time:
                transaction.overtaken = True
        last, relieved = self._relieved[caller]
        if frame < last:  # The reply before it, which was sent earlier, was captured too late.
            for transaction in relieved:
                transaction.overtaken = True
        self._relieved[caller] = frame, list(self.unrelieved[caller])
        self.unrelieved[caller].clear()
