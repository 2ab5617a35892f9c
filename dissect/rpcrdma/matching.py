"""From Operations to Rpcs: matches calls with replies and chunk data with the calls that advertised the memory.

Chunk data is placed by connection, owner, handle and address, scoped by the call that advertised it: never by packet
counts or by handle alone.  The two directions of a connection are kept apart (RFC 8167).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from ..layers.characteristics_codes import option_name
from ..layers.oncrpc_codes import CALL, REPLY
from ..layers.rpcrdma_codes import (
    DIRECTION_NAMES,
    ERR_CHUNK,
    ERR_VERS,
    RDMA_DONE,
    RDMA_ERROR,
    RDMA_MSG,
    RDMA_MSGP,
    RDMA_NOMSG,
    RDMA_OPTIONAL,
    error_name,
)
from ..onc import header as rpc_header
from ..onc.xdr import word
from ..transport.operations import ATOMIC, SEND, Operation
from .conversation import Conversation
from .header import decode_header
from .memory import REORDERED, Advertised
from .messages import Message
from .outcome import conclude, finish_state
from .recognition import Recogniser
from .rpcs import Rpc

UNDECIDED = 4096
"""Operations kept until it is known whether a connection carries RPC-over-RDMA."""
LINGER = 1_000_000_000
"""Nanoseconds an answered RPC waits for outstanding Read responses."""
OUTSTANDING = 1 << 16
"""Calls without a reply that are remembered per direction."""


BY_XID_ALONE = "reply matched by its XID alone: its RPC header is cut"
XID_IN_USE = "its XID was in use by an earlier call without a reply"


class Watch(Protocol):
    """Who wants to see what passes on a connection as it happens, in the order of events."""

    def called(self, rpc: Rpc) -> None:
        """A call was sent."""

    def replied(self, rpc: Rpc) -> None:
        """A reply was sent; ``rpc.call`` is None where its call was not seen."""

    def ended(self, rpc: Rpc) -> None:
        """Nothing more will be known of this Rpc, which may have no reply."""

    def stray(self, sender: int, message: Message) -> None:
        """A message that is neither call nor reply, or too short to tell."""

    def moved(self, operation: Operation) -> None:
        """An RDMA Read or Write was issued."""


class Watches:
    """Several that look on at the same connection."""

    def __init__(self, *watches: Watch) -> None:
        self.watches = watches

    def called(self, rpc: Rpc) -> None:
        for one in self.watches:
            one.called(rpc)

    def replied(self, rpc: Rpc) -> None:
        for one in self.watches:
            one.replied(rpc)

    def ended(self, rpc: Rpc) -> None:
        for one in self.watches:
            one.ended(rpc)

    def stray(self, sender: int, message: Message) -> None:
        for one in self.watches:
            one.stray(sender, message)

    def moved(self, operation: Operation) -> None:
        for one in self.watches:
            one.moved(operation)


class Undecoded(NamedTuple):
    """Something on an RPC-over-RDMA connection that could not be made sense of."""

    frame: int
    connection: int
    reason: str


class Exchange:
    """The RPC-over-RDMA conversation on one connection.  Feed it Operations in the order of events."""

    def __init__(
        self,
        conversation: Conversation,
        numbers: Iterator[int],
        ports: frozenset[int],
        force: bool,
        done: list[Rpc],
        most: int = OUTSTANDING,
    ) -> None:
        """``numbers`` and ``done``, where finished Rpcs are put, are shared with the other connections.

        ``most``: calls without a reply that are remembered per direction, if not more were granted.
        """
        self.conversation = conversation
        self.connection = conversation.connection
        self.numbers = numbers
        self.recogniser = Recogniser(conversation, ports, force)
        self.undecided: list[Operation] = []
        self.calls: tuple[dict[int, list[Rpc]], ...] = ({}, {})
        """Outstanding calls by XID, one table per caller."""
        self.outstanding = [0, 0]
        self.replies: deque[tuple[int, Message]] = deque()
        """Replies whose call was not seen yet: sender, message."""
        self.memory = Advertised()
        self.cut: tuple[dict[int, Message], ...] = ({}, {})
        """Messages cut so short that their direction is open, by sender and XID."""
        self.settled = 0
        """The version in which the server answers; the negotiation is told what comes in another."""
        self.lingering: list[Rpc] = []
        self.undecoded: list[Undecoded] = []
        self.done = done
        self.most = most
        self.detached = 0
        """Number of the last Rpc that holds copies of its bytes."""
        self.watch: Watch | None = None

    def take(self, operation: Operation) -> None:
        """Look at the next Operation; what it finishes is appended to ``done``."""
        protocol = self.conversation.protocol
        if protocol == "rpcrdma":
            if operation.kind is SEND:
                self._send(operation)
            elif operation.kind is not ATOMIC:
                if self.watch is not None:
                    self.watch.moved(operation)
                if operation.length:
                    self.memory.move(operation)
        elif protocol == "unknown":
            self._consider(operation)

    @property
    def unplaced_count(self) -> int:
        """Reads and Writes outside all advertised memory."""
        return self.memory.unplaced_count

    @property
    def waiting(self) -> bool:
        """There is something to settle."""
        return bool(self.lingering or self.replies)

    def settle(self, now: int, frame: int) -> None:
        """Time has come to ``now`` (ns), the capture to ``frame``: let go of what waited long enough."""
        if self.lingering:
            waiting: list[Rpc] = []
            for rpc in self.lingering:
                assert rpc.reply is not None
                if _reads_closed(rpc) or now - rpc.reply.operation.last_time > LINGER:
                    self._conclude(rpc)
                else:
                    waiting.append(rpc)
            self.lingering = waiting
        while self.replies and frame - self.replies[0][1].frame > REORDERED:
            self._no_call(*self.replies.popleft())

    def idle(self, now: int) -> None:
        """Nothing came up to ``now`` (ns) that was not taken: let go of what waited long enough."""
        self.settle(now, 0)
        while self.replies and now - self.replies[0][1].operation.last_time > LINGER:
            self._no_call(*self.replies.popleft())

    def detach(self, before: int) -> None:
        """Calls without a reply since ``before`` (ns) shall hold their own bytes, not the batches they came in."""
        last = self.detached
        for table in self.calls:
            for rpcs in table.values():
                for rpc in rpcs:
                    if rpc.number > self.detached and rpc.call is not None and rpc.call.time < before:
                        rpc.detach()
                        last = max(last, rpc.number)
        self.detached = last
        self.memory.forget(before)

    def finish(self) -> None:
        """The connection is over."""
        if self.conversation.protocol == "unknown":
            self.recogniser.conclude()
            self._decide()
        for rpc in self.lingering:
            self._conclude(rpc)
        self.lingering.clear()
        while self.replies:
            self._no_call(*self.replies.popleft())
        for caller in (0, 1):
            for message in self.cut[caller].values():
                self._undirected(message)
            self.cut[caller].clear()
            for rpcs in self.calls[caller].values():
                for rpc in rpcs:
                    self._conclude(rpc)
            self.calls[caller].clear()
            self.outstanding[caller] = 0
            self.memory.clear(caller)

    # Recognition

    def _consider(self, operation: Operation) -> None:
        self.undecided.append(operation)
        if operation.kind is SEND and operation.start_known:
            data, start, end = operation.payload.prefix()
            header = decode_header(data, start, end, operation.length)
            self.recogniser.look(operation.initiator, header, data, start + header.length, end)
        if self.recogniser.decided:
            self._decide()
        elif len(self.undecided) > UNDECIDED:
            self.recogniser.conclude()
            if not self.recogniser.decided:
                self.conversation.protocol = "other"
            self._decide()

    def _decide(self) -> None:
        waiting, self.undecided = self.undecided, []
        if self.conversation.protocol == "rpcrdma":
            for operation in waiting:
                self.take(operation)

    # Messages

    def _send(self, operation: Operation) -> None:
        if not operation.start_known:
            self._note(operation.last_frame, "Send without its first packet")
            return
        payload, length = operation.payload, operation.length
        data, start, end = payload.only or payload.prefix()
        header = decode_header(data, start, end, length)
        body = start + header.length
        inline = length - header.length
        message = Message(operation, header, data, body, end if end > body else body, inline if inline > 0 else 0)
        sender = operation.initiator
        if header.version != self.settled and header.length >= 16:
            self.settled = self.conversation.negotiation.spoke(sender, message)
        if header.procedure == RDMA_MSG and not header.problem and end - body >= 8:
            kind = word(data, body + 4)[0]
            if kind == CALL:
                self._call(sender, message)
                return
            if kind == REPLY and not self.cut[1 - sender]:
                self._reply(sender, message)
                return
        if header.length < 4:
            self._note(operation.last_frame, header.problem or "Send too short for a transport header")
            if self.watch is not None:
                self.watch.stray(operation.initiator, message)
            return
        if header.problem and not header.truncated:
            self._note(operation.last_frame, f"transport header: {header.problem}")
        if header.procedure == RDMA_DONE:
            if self.watch is not None:
                self.watch.stray(sender, message)
            return
        if header.procedure == RDMA_OPTIONAL and header.version == 2 and self._optional(sender, message):
            return
        if header.procedure == RDMA_ERROR and self._error(sender, message):
            return
        is_call = self._is_call(sender, message)
        if is_call is None:
            self._cut_short(sender, message)
        elif is_call:
            self._call(sender, message)
        else:
            earlier = self.cut[1 - sender].pop(header.xid, None) if self.cut[1 - sender] else None
            if earlier is not None:
                self._call(1 - sender, earlier)
                if header.direction is None and header.version == 2 and earlier.header.procedure is None:
                    self._doubt(1 - sender, header.xid)  # An error answers an option as well as a call.
            self._reply(sender, message)

    def _optional(self, sender: int, message: Message) -> bool:
        """An RDMA2_OPTIONAL; True where no RPC message follows it (version-two-01, 4.2.1)."""
        header = message.header
        problem = self.conversation.negotiation.option(sender, message)
        if problem and not header.truncated:
            self._note(message.frame, f"{option_name(header.option)}: {problem}")
        if not header.problem and rpc_header.inside(header.xid, message.data, message.start, message.end):
            return False
        if message.inline_length and not header.problem:
            self._note(message.frame, f"{option_name(header.option)} with {message.inline_length:,} bytes behind it")
        if self.watch is not None:
            self.watch.stray(sender, message)
        return True

    def _error(self, sender: int, message: Message) -> bool:
        """An RDMA_ERROR; True where it answers no call, but an option."""
        calls = self.calls[1 - sender].get(message.header.xid)
        earlier = calls[0].call if calls else self.cut[1 - sender].get(message.header.xid)
        if message.header.error == ERR_VERS:
            self.settled = 0
        if not self.conversation.negotiation.error(sender, message, earlier):
            if earlier is not None or message.header.version != 2 or message.header.error in (ERR_VERS, ERR_CHUNK):
                return False
            name = error_name(2, message.header.error) or "an RDMA2_ERROR whose code is cut,"
            self._note(message.frame, f"{name} for an option or call that was not seen")
        if self.watch is not None:
            self.watch.stray(sender, message)
        return True

    def _cut_short(self, sender: int, message: Message) -> None:
        """Neither call nor reply by its own words, and no call with its XID is outstanding."""
        xid = message.header.xid
        earlier = self.cut[1 - sender].pop(xid, None)
        if earlier is not None:
            self._call(1 - sender, earlier)
            self._doubt(1 - sender, xid)
            self._reply(sender, message)
        else:
            if len(self.cut[sender]) >= OUTSTANDING:
                self._undirected(self.cut[sender].pop(next(iter(self.cut[sender]))))
            self.cut[sender][xid] = message

    def _doubt(self, caller: int, xid: int) -> None:
        for rpc in self.calls[caller][xid]:
            rpc.notes += (BY_XID_ALONE,)

    def _undirected(self, message: Message) -> None:
        self._note(message.frame, "nothing says whether it is a call or a reply")
        if self.watch is not None:
            self.watch.stray(message.operation.initiator, message)

    def _is_call(self, sender: int, message: Message) -> bool | None:
        """By the RPC header, the transport header or a call that waits for this XID; None where none of them tells."""
        header = message.header
        procedure = header.procedure
        if procedure in (RDMA_MSG, RDMA_MSGP, RDMA_OPTIONAL) and not header.problem:
            kind = rpc_header.message_type(message.data, message.start, message.end)
            if kind is not None:
                return kind == 0
        elif procedure == RDMA_ERROR:
            return False
        elif procedure == RDMA_NOMSG and not header.problem and header.reads:
            return True
        if header.direction is not None:
            return header.direction == CALL
        if header.xid in self.calls[1 - sender]:
            if procedure != RDMA_NOMSG or header.problem:
                self._doubt(1 - sender, header.xid)
            return False
        if procedure == RDMA_NOMSG and header.reply and not header.problem:
            return False
        # Only calls have a Read list.
        return True if header.reads else None

    def _call(self, sender: int, message: Message) -> None:
        header = message.header
        conversation = self.conversation
        rpc = Rpc(next(self.numbers), conversation, sender == 1, header.xid, message)
        if header.credits is not None and sender == 0:
            requested = conversation.credits_requested
            if requested is None:
                conversation.credits_requested = header.credits, header.credits
            elif not requested[0] <= header.credits <= requested[1]:
                conversation.credits_requested = min(requested[0], header.credits), max(requested[1], header.credits)
        if header.reads or header.writes or header.reply:
            self.memory.advertise(sender, rpc, header)
        table = self.calls[sender]
        if header.xid in table:
            rpc.notes += (XID_IN_USE,)
            table[header.xid].append(rpc)
        else:
            table[header.xid] = [rpc]
        self.outstanding[sender] += 1
        # The limit is never below ``most``, and takes longer to find.
        if self.outstanding[sender] > self.most and self.outstanding[sender] > self._limit:
            self._retire_oldest(sender)
        if self.watch is not None:
            self.watch.called(rpc)
        if self.replies:
            self._answered_early(1 - sender, rpc)

    @property
    def _limit(self) -> int:
        """With twice the credits that were ever granted, the replies to some calls must be lost."""
        granted = self.conversation.credits_granted
        return self.most if granted is None else max(self.most, min(OUTSTANDING, 2 * granted[1]))

    def _retire_oldest(self, caller: int) -> None:
        oldest = next(iter(self.calls[caller].values()))[0]
        self._withdraw(caller, oldest)
        self._conclude(oldest)

    def _withdraw(self, caller: int, rpc: Rpc) -> None:
        """The call is no longer outstanding: its memory is closed."""
        same = self.calls[caller][rpc.xid]
        if len(same) == 1:
            del self.calls[caller][rpc.xid]
        else:
            same.remove(rpc)
        self.outstanding[caller] -= 1
        if rpc.chunks:
            self.memory.withdraw(caller, rpc)

    def _answered_early(self, sender: int, rpc: Rpc) -> None:
        """A capture may show a reply just before its call."""
        assert rpc.call is not None
        for index, (from_, message) in enumerate(self.replies):
            near = rpc.call.operation.first_frame - message.frame <= REORDERED
            if from_ == sender and message.header.xid == rpc.xid and near:
                del self.replies[index]
                self._reply(sender, message)
                return

    def _reply(self, sender: int, message: Message) -> None:
        header = message.header
        candidates = self.calls[1 - sender].get(header.xid)
        if not candidates:
            self.replies.append((sender, message))
            if len(self.replies) > REORDERED:
                self._no_call(*self.replies.popleft())
            return
        if header.credits is not None and sender == 1:
            granted = self.conversation.credits_granted
            if granted is None:
                self.conversation.credits_granted = header.credits, header.credits
            elif not granted[0] <= header.credits <= granted[1]:
                self.conversation.credits_granted = (
                    min(granted[0], header.credits),
                    max(granted[1], header.credits),
                )
        rpc = candidates[0]
        rpc.reply = message
        if rpc.chunks:
            self.memory.returned(rpc, header)
        self._withdraw(1 - sender, rpc)
        if self.watch is not None:
            self.watch.replied(rpc)
        if rpc.chunks and not _reads_closed(rpc):
            self.lingering.append(rpc)
        else:
            self._conclude(rpc)

    def _no_call(self, sender: int, message: Message) -> None:
        """The call was sent before the capture began, or is missing from it."""
        rpc = Rpc(next(self.numbers), self.conversation, sender == 0, message.header.xid, reply=message)
        if self.watch is not None:
            self.watch.replied(rpc)
        self._conclude(rpc)

    def _conclude(self, rpc: Rpc) -> None:
        if self.settled != 1:
            _note_version_2(rpc)
        conclude(rpc)
        finish_state(rpc)
        if self.watch is not None:
            self.watch.ended(rpc)
        self.done.append(rpc)

    def _note(self, frame: int, reason: str) -> None:
        if len(self.undecoded) < 1000:
            self.undecoded.append(Undecoded(frame, self.connection.number, reason))


def _note_version_2(rpc: Rpc) -> None:
    """Version 2 says twice whether a message is a call, and may put only part of it behind an option: note either.

    version-two-01, 4.2.1 and 4.2.2.
    """
    for message, kind in ((rpc.call, "call"), (rpc.reply, "reply")):
        header = message.header if message is not None else None
        if header is None or header.direction is None:
            continue
        if DIRECTION_NAMES[header.direction] != kind.upper():
            rpc.notes += (f"the {kind}'s direction word says {DIRECTION_NAMES[header.direction]}",)
        if header.option is not None:
            rpc.notes += (f"the {kind} stands behind {option_name(header.option)}, and may be only part of a message",)


def _reads_closed(rpc: Rpc) -> bool:
    """Whether no Read response is outstanding."""
    for chunk in rpc.chunks:
        if chunk.kind == "read":
            for use in chunk.segments:
                for operation in use.operations:
                    if not operation.closed:
                        return False
    return True
