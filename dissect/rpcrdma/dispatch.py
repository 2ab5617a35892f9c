"""From the Operations of one connection to calls, replies and chunk data.

The RPC header, the transport header or the other message with its XID tells whether a Send is a call or a reply.  A
Send truncated before its headers tell waits for that other message.  All Operations wait until it is known whether the
connection carries RPC-over-RDMA."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from types import MappingProxyType

from ..layers.characteristics_codes import OPTIONS, option_name
from ..layers.oncrpc_codes import CALL, REPLY
from ..layers.rpcrdma_codes import (
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
from ..named_tuple import NamedTuple
from ..onc import rpc_header, rpc_header as rpc
from ..onc.xdr import word
from ..transport.connection import raised
from ..transport.operations import ATOMIC, SEND, Operation
from .characteristics import decode_option
from .conversation import IPOIB, Conversation
from .listeners import Listener
from .matching import Matching
from .messages import Message, TransportHeader
from .negotiation import VersionUse, sound
from .transport_header import decode_header, record_header

IPOIB_VERSIONS = {0x0800: 4, 0x86DD: 6, 0x0806: 0}
"""The EtherType and reserved bytes before a packet of IP over InfiniBand, and the IP version that follows (RFC 4391, 6;
RFC 4755, 4); 0 for ARP, which has none."""

FOREIGN_PORTS = {4420: "NVMe/RDMA", 3260: "iSER", 5445: "SMB Direct"}
"""Service ports of other storage protocols (IANA)."""

BOTH = 3

CALL_WORDS = 24
"""Bytes of a call up to and including its procedure number (RFC 5531, 9)."""
TRIALS = 16
"""Sends that do not fit RPC-over-RDMA after which the connection is rejected."""


class Recogniser:
    """Looks at the Sends of a connection until it knows whether they are RPC-over-RDMA."""

    __slots__ = ("conversation", "internet", "misfits", "ports", "truncated", "valid")

    def __init__(self, conversation: Conversation, ports: frozenset[int], force: bool) -> None:
        self.conversation = conversation
        self.ports = ports
        self.misfits = 0
        self.internet = 0
        """Misfits that begin like IP over InfiniBand."""
        self.valid = 0
        self.truncated: dict[int, int] | None = None
        """XIDs of Sends with a truncated header, and who sent them: 1 the client, 2 the server, 3 both."""
        if self.decided:
            return
        if force:
            self._accept("forced")
        elif conversation.connection.service_port in ports:
            words = ["service port"]
            if self._private_data():
                words.append("private data")
            self._accept(*words)

    @property
    def decided(self) -> bool:
        return self.conversation.protocol != "unknown"

    def look(
        self, sender: int, header: TransportHeader, data: memoryview, start: int, end: int, cut: bool = False
    ) -> None:
        """Judge a Send by its decoded header and its captured Payload stream, ``data[start:end]``; ``cut``: it had more
        bytes."""
        known_format = header.version in (1, 2) and header.length >= 8
        truncated = header.truncated and header.procedure in (None, RDMA_MSG, RDMA_NOMSG, RDMA_ERROR, RDMA_OPTIONAL)
        if cut and header.procedure == RDMA_MSG and not rpc.inside(header.xid, data, start, end):
            truncated |= _may_be_rpc(header.xid, data[start:end])
        if truncated and known_format:
            if self.truncated is None:
                self.truncated = {}
            self.truncated[header.xid] = self.truncated.get(header.xid, 0) | 1 << sender
            if self._answered() >= 2:
                self._accept("XIDs called and answered")
        elif header.problem or not known_format:
            self.misfits += 1
            self.internet += _is_ipoib(header)
        elif header.procedure == RDMA_MSG:
            if rpc.inside(header.xid, data, start, end):
                self._accept("header validation", "RPC inside")
            else:
                self.misfits += 1
        elif header.procedure == RDMA_NOMSG and header.chunks:
            self.valid += 1
            if self._private_data():
                self._accept("private data", "header validation")
        elif header.procedure == RDMA_OPTIONAL:
            self.valid += 1
            if header.option in OPTIONS and not decode_option(header.option, header.optinfo).problem:
                self._accept("header validation", OPTIONS[header.option].name)
        if self.misfits >= TRIALS or (self.misfits and self.conversation.connection.service_port in FOREIGN_PORTS):
            self._reject()

    def look_at_call(self) -> None:
        """Judge a Send that is known to be an RPC call in an RDMA_MSG: accept, unless earlier Sends did not fit."""
        if not self.misfits:
            self._accept("header validation", "RPC inside")

    def conclude(self) -> None:
        """Decide by what was seen: no more Sends come."""
        if self.decided:
            return
        if self.valid and not self.misfits:
            self._accept("header validation")
        elif self._answered() and not self.misfits:
            self._accept("XIDs called and answered")
        elif self.misfits:
            self._reject()

    def _answered(self) -> int:
        """Number of XIDs that both ends sent."""
        return sum(senders == BOTH for senders in (self.truncated or {}).values())

    def _private_data(self) -> bool:
        return any(self.conversation.private_data(end) for end in (0, 1))

    def _accept(self, *words: str) -> None:
        self.conversation.protocol = "rpcrdma"
        if self._private_data() and "private data" not in words and "forced" not in words:
            words = ("private data", *words)
        self.conversation.recognised_by = _shared(words)

    def _reject(self) -> None:
        self.conversation.protocol = "other"
        self.conversation.protocol_name = FOREIGN_PORTS.get(self.conversation.connection.service_port or 0, "")
        if self.internet and self.internet == self.misfits and not self.valid:
            self.conversation.protocol_name = IPOIB


@cache
def _shared(words: tuple[str, ...]) -> tuple[str, ...]:
    """The tuple itself, shared: most connections are recognised by the same words."""
    return words


def _may_be_rpc(xid: int, stream: memoryview) -> bool:
    """Whether the first bytes of a Payload stream, fewer than an RPC header has, can be an RPC message with this
    XID."""
    begins = xid.to_bytes(4) + bytes(3)  # and the message type, which is 0 or 1
    return len(stream) < CALL_WORDS and bytes(stream[:7]) == begins[: len(stream)]


def _is_ipoib(header: TransportHeader) -> bool:
    """Whether bytes decoded as a transport header are a header of IP over InfiniBand followed by IP or ARP."""
    version = IPOIB_VERSIONS.get(header.xid >> 16)
    if version is None or header.xid & 0xFFFF:
        return False
    return header.version >> 28 == version


MAX_UNDECIDED = 4096
"""Operations kept until it is known whether a connection carries RPC-over-RDMA."""
MAX_UNDIRECTED = 1 << 16
"""Truncated messages kept per sender until the other message with their XID comes."""
MAX_UNDECODED = 1000


NO_MESSAGES: tuple[Mapping[int, Message], ...] = (MappingProxyType({}),) * 2


class Undecoded(NamedTuple):
    """Something on an RPC-over-RDMA connection that could not be decoded."""

    frame: int
    connection: int
    reason: str


class Dispatcher:
    """Takes the Operations of one conversation in the order of events, decodes messages and has them matched."""

    __slots__ = ("conversation", "matching", "recogniser", "undecided", "undecoded", "undirected")

    def __init__(self, conversation: Conversation, matching: Matching, ports: frozenset[int], force: bool) -> None:
        self.conversation = conversation
        self.matching = matching
        self.recogniser = Recogniser(conversation, ports, force)
        self.undecided: Sequence[Operation] = ()
        self.undirected: tuple[Mapping[int, Message], ...] = NO_MESSAGES
        """By sender and XID: messages truncated so far that they may be calls or replies."""
        self.undecoded: Sequence[Undecoded] = ()

    @property
    def listener(self) -> Listener | None:
        return self.matching.listener

    def take(self, operation: Operation) -> None:
        """Process the next Operation; Rpcs that it ends are appended to ``matching.done``."""
        protocol = self.conversation.protocol
        if protocol in ("rpcrdma", "rpc"):
            if operation.kind is SEND:
                self._send(operation)
            else:
                self.transfer(operation)
        elif protocol == "unknown":
            self._consider(operation)

    def takes_row(self, use: VersionUse, is_call: bool) -> bool:
        """Whether a whole call or reply in version 1 need not become an Operation; if so, its version is noted."""
        conversation, matching = self.conversation, self.matching
        if is_call and conversation.protocol == "unknown" and not self.undecided:
            self.recogniser.look_at_call()
        others = self.undirected[0] or self.undirected[1] or matching.listener is not None
        if conversation.protocol != "rpcrdma" or matching.settled or others:
            return False
        matching.settled = conversation.negotiation.note_version(use, True)
        return True

    def transfer(self, operation: Operation) -> None:
        """Process an Operation that is no Send, on a connection known to be RPC-over-RDMA: it neither begins nor ends
        an Rpc."""
        if operation.kind is not ATOMIC:
            matching = self.matching
            if matching.listener is not None:
                matching.listener.data_transferred(operation)
            if operation.length:
                matching.memory.transfer(operation)

    def finish(self) -> None:
        """End everything that waits: the connection is over."""
        if self.conversation.protocol == "unknown":
            self.recogniser.conclude()
            self._decide()
        self.matching.finish_replies()
        for sender, messages in enumerate(self.undirected):
            for message in messages.values():
                header = message.header
                if header.procedure == RDMA_NOMSG and header.reads and not self._call_may_be_missing(header.xid):
                    self.matching.call(sender, message)
                else:
                    self._drop_undirected(message)
        self.undirected = NO_MESSAGES
        self.matching.finish_calls()

    # Recognition

    def _consider(self, operation: Operation) -> None:
        if not isinstance(self.undecided, list):
            self.undecided = []
        self.undecided.append(operation)
        if operation.kind is SEND and operation.start_known:
            data, start, end = operation.payload.prefix()
            header = decode_header(data, start, end, operation.length)
            cut = end - start < operation.length
            self.recogniser.look(operation.initiator, header, data, start + header.length, end, cut)
        if self.recogniser.decided:
            self._decide()
        elif len(self.undecided) > MAX_UNDECIDED:
            self.recogniser.conclude()
            if not self.recogniser.decided:
                self.conversation.protocol = "other"
            self._decide()

    def _decide(self) -> None:
        waiting, self.undecided = self.undecided, ()
        if self.conversation.protocol == "rpcrdma":
            for operation in waiting:
                self.take(operation)

    # Messages

    def _send(self, operation: Operation) -> None:
        if not operation.start_known:
            self._note(operation.last_frame, "Send without its first packet")
            if self.listener is not None:
                self.listener.headless_sent(operation)
            return
        payload, length = operation.payload, operation.length
        data, start, end = payload.prefix()
        rdma = self.conversation.connection.rdma
        header = decode_header(data, start, end, length) if rdma else record_header(data, start, end)
        sender = operation.initiator
        matching = self.matching
        other_version = None
        if header.version != matching.settled and header.length >= 16:
            other_version = self._other_version(sender, header, bytes(data[start:end]), length)
            header = other_version or header
        body = start + header.length
        inline = length - header.length
        message = Message(operation, header, data, body, end if end > body else body, inline if inline > 0 else 0)
        if header.truncated or (end - start < length and header.procedure == RDMA_OPTIONAL):
            connection = self.conversation.connection
            connection.unread_messages = raised(connection.unread_messages, sender, 1)
        if header.version != matching.settled and header.length >= 16 and other_version is None:
            use = VersionUse(message.frame, sender, header.version, header.xid, length)
            answers = header.procedure != RDMA_ERROR and sound(header)
            matching.settled = self.conversation.negotiation.note_version(use, answers)
        if header.procedure == RDMA_MSG and not header.problem and end - body >= 8:
            kind = word(data, body + 4)[0]
            if kind == CALL:
                matching.call(sender, message)
                return
            if kind == REPLY and not self.undirected[1 - sender]:
                matching.reply(sender, message)
                return
        if header.length < 4 and (rdma or header.problem):
            self._note(operation.last_frame, header.problem or "Send too short for a transport header")
            self._other(message)
            return
        if header.problem and not header.truncated:
            self._note(operation.last_frame, f"transport header: {header.problem}")
        if header.procedure == RDMA_DONE:
            self._other(message)
            return
        if header.procedure == RDMA_OPTIONAL and header.version == 2 and self._optional(sender, message):
            return
        if header.procedure == RDMA_ERROR and self._error(sender, message):
            return
        is_call = self._is_call(sender, message)
        if is_call is None:
            self._undirected(sender, message)
        elif is_call:
            matching.call(sender, message)
        else:
            earlier = self._directed(1 - sender, header.xid)
            if earlier is not None:
                matching.call(1 - sender, earlier)
                if header.procedure == RDMA_ERROR and earlier.untyped:  # It may be a backward reply, or an option.
                    matching.doubt(1 - sender, header.xid)
            matching.reply(sender, message)

    def _other_version(self, sender: int, header: TransportHeader, data: bytes, length: int) -> TransportHeader | None:
        """The header of a reply whose rdma_vers differs from its call's, decoded in the layout of the call's version;
        else None.

        If the call is missing, the RPC reply with the same XID behind the header shows the layout.
        """
        calls = self.matching.directions[1 - sender].calls.get(header.xid)
        call = calls[0].call if calls else self.undirected[1 - sender].get(header.xid)
        version = call.header.version if call is not None else 3 - header.version
        if version not in (1, 2) or version == header.version:
            return None
        if header.procedure not in (RDMA_MSG, RDMA_NOMSG) or len(data) < (28 if call is None else 20):
            return None
        wanted = header.xid.to_bytes(4) + REPLY.to_bytes(4)
        if header.version in (1, 2) and not header.problem and data[header.length : header.length + 8] == wanted:
            return None
        reread = decode_header(data[:4] + version.to_bytes(4) + data[8:], 0, len(data), length)
        behind = data[reread.length : reread.length + 8]
        if call is not None and len(behind) < 8 and len(data) < length:
            # A reply of version 2 has a 1 where in version 1 the Read list begins.
            if (version == 2) != (word(memoryview(data), 16)[0] == REPLY) or not wanted.startswith(behind):
                return None
        elif reread.problem or not (behind == wanted if reread.procedure == RDMA_MSG or call is None else reread.reply):
            return None
        reread.version = header.version
        return reread

    def _optional(self, sender: int, message: Message) -> bool:
        """Process an RDMA2_OPTIONAL; True if no RPC message follows it (version-two-01, 4.2.1)."""
        header = message.header
        problem = self.conversation.negotiation.note_option(sender, message)
        if problem and not header.truncated:
            self._note(message.frame, f"{option_name(header.option)}: {problem}")
        if not header.problem and rpc_header.inside(header.xid, message.data, message.start, message.end):
            return False
        if message.inline_length and not header.problem:
            self._note(message.frame, f"{option_name(header.option)} with {message.inline_length:,} bytes behind it")
        self._other(message)
        return True

    def _error(self, sender: int, message: Message) -> bool:
        """Process an RDMA_ERROR; True if it answers an option rather than a call."""
        calls = self.matching.directions[1 - sender].calls.get(message.header.xid)
        earlier = calls[0].call if calls else self.undirected[1 - sender].get(message.header.xid)
        if message.header.error == ERR_VERS:
            self.matching.settled = 0
        if not self.conversation.negotiation.note_error(sender, message, earlier):
            if earlier is not None or message.header.version != 2 or message.header.error in (ERR_VERS, ERR_CHUNK):
                return False
            name = error_name(2, message.header.error) or "an RDMA2_ERROR whose code is truncated,"
            self._note(message.frame, f"{name} for an option or call that was not seen")
        self._other(message)
        return True

    def _is_call(self, sender: int, message: Message) -> bool | None:
        """Whether a message is a call, by RPC header, transport header or an open call with its XID; None if
        undecided."""
        header = message.header
        procedure = header.procedure
        answers = header.xid in self.undirected[1 - sender]
        if procedure in (RDMA_MSG, RDMA_MSGP, RDMA_OPTIONAL) and not header.problem:
            kind = rpc_header.message_type(message.data, message.start, message.end)
            if kind is not None:
                return kind == CALL
        elif procedure == RDMA_ERROR:
            return False
        elif procedure == RDMA_NOMSG and not header.problem and header.reads and not answers:
            uncalled = sender == 1 and header.reply and header.xid not in self.matching.directions[0].calls
            if uncalled and (header.direction != CALL or self._call_may_be_missing(header.xid)):
                return None  # a reply that has a Read list, or a backward call
            return not self._returns_reply_chunk(sender, header)
        elif procedure == RDMA_NOMSG and not header.problem and header.reply:
            if self._never_called(sender):
                return header.direction != REPLY  # a call without its Read chunk
            if sender == 0 and header.xid not in self.matching.directions[1].calls and not answers:
                return None  # that, or a backward reply
            if header.version == 2:
                return False  # whatever its direction word says: a call would have a Read list
        called = header.xid in self.matching.directions[1 - sender].calls
        if header.direction == CALL and called and message.untyped:
            return None  # The direction is wrong, or both ends use the XID.
        if header.direction is not None:
            return header.direction == CALL
        if called:
            if procedure != RDMA_NOMSG or header.problem:
                self.matching.doubt(1 - sender, header.xid)
            return False
        if procedure == RDMA_NOMSG and header.reply and not header.problem:
            return False
        # Only calls have a Read list.
        return True if header.reads and not answers else None

    def _never_called(self, sender: int) -> bool:
        """Whether no call can have been sent to this end: it is the client, and everything the server sent is
        captured."""
        connection = self.conversation.connection
        unknown = (connection.gaps, connection.unread_packets, connection.unread_messages, self.undirected)
        none_unknown = connection.start_known and not any(of_end[1] for of_end in unknown)
        return sender == 0 and none_unknown and not self.matching.directions[1].sent

    def _call_may_be_missing(self, xid: int) -> bool:
        """A call of the client with that XID may be missing from the capture; only the end shows all gaps."""
        connection = self.conversation.connection
        missing = not connection.start_known or bool(connection.gaps[0] or connection.unread_messages[0])
        return missing and xid not in self.matching.directions[0].calls

    def _returns_reply_chunk(self, sender: int, header: TransportHeader) -> bool:
        """Whether a message returns the Reply chunk of an open call, which makes it a reply."""
        calls = self.matching.directions[1 - sender].calls.get(header.xid)
        given = calls[0].call.header.reply if calls and calls[0].call is not None else None
        if given is None or header.reply is None:
            return False
        return [segment.handle for segment in given.segments] == [segment.handle for segment in header.reply.segments]

    def _undirected(self, sender: int, message: Message) -> None:
        """Process a message that neither its headers nor an open call show to be a call or a reply."""
        xid = message.header.xid
        earlier = self._directed(1 - sender, xid)
        # The first replies in a capture are to calls from before it.
        missing = self.conversation.connection.gaps[sender] or not self.matching.directions[sender].replied
        if earlier is not None and sender == 0 and missing and self.matching.call_unseen(sender, message):
            # This looks like a callback and its reply, but can be a reply to an uncaptured call and the next call with
            # its XID.
            self._drop_undirected(earlier)
            earlier = None
        if earlier is not None:
            self.matching.call(1 - sender, earlier)
            self.matching.doubt(1 - sender, xid)
            self.matching.reply(sender, message)
            return
        if self.undirected is NO_MESSAGES:
            self.undirected = {}, {}
        waiting = self.undirected[sender]
        assert isinstance(waiting, dict)
        if len(waiting) >= MAX_UNDIRECTED and (first := self._directed(sender, next(iter(waiting)))) is not None:
            self._drop_undirected(first)
        self._directed(sender, xid)
        waiting[xid] = message
        self._count_undirected(sender, message, 1)

    def _directed(self, sender: int, xid: int) -> Message | None:
        """Take out the waiting message with this XID, if any, as its direction is known now."""
        messages = self.undirected[sender]
        message = messages.pop(xid, None) if isinstance(messages, dict) else None
        if message is not None:
            self._count_undirected(sender, message, -1)
        return message

    def _count_undirected(self, sender: int, message: Message, by: int) -> None:
        connection = self.conversation.connection
        connection.undirected_messages = raised(connection.undirected_messages, sender, by * message.untyped)

    def _drop_undirected(self, message: Message) -> None:
        self._note(message.frame, "nothing says whether it is a call or a reply")
        self._other(message)

    def _other(self, message: Message) -> None:
        if self.listener is not None:
            self.listener.other_sent(message.operation.initiator, message)

    def _note(self, frame: int, reason: str) -> None:
        if len(self.undecoded) < MAX_UNDECODED:
            if not isinstance(self.undecoded, list):
                self.undecoded = []
            self.undecoded.append(Undecoded(frame, self.conversation.connection.number, reason))
