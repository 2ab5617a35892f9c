"""One end of a connection: takes events, returns actions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import Enum
from typing import Any

from rdmascope.dissect.layers.characteristics_codes import (
    BKREQSUP_GENL,
    BKREQSUP_NONE,
    XCHAR_BRS,
    XCHAR_RBSIZ,
    XCHAR_REQREMINV,
)
from rdmascope.dissect.layers.private_data import RPCRDMAPrivateData
from rdmascope.dissect.layers.private_data_codes import SIZE_UNIT, find_private_data
from rdmascope.dissect.layers.rpcrdma_codes import ERR_CHUNK, ERR_VERS, RDMA_ERROR, RDMA_MSG, RDMA_NOMSG, RDMA_OPTIONAL
from rdmascope.dissect.rpcrdma.conversation import DEFAULT_INLINE
from rdmascope.dissect.rpcrdma.messages import TransportHeader
from rdmascope.dissect.rpcrdma.transport_header import decode_header

from .build_header import Value
from .characteristics import Characteristics
from .fault import Fault
from .nouns import (
    Call,
    Completed,
    Connected,
    ConnectionEnded,
    Disconnect,
    EndpointSettings,
    Event,
    Output,
    Registered,
    Released,
    Role,
    SendReceived,
    Settled,
)
from .payload import Parts
from .plan import PlannedSend
from .requester import Requester
from .responder import Responder

HIGHEST = 2
"""The highest version of this endpoint."""


class State(Enum):
    """What is known about the version of a connection."""

    FRESH = "nothing was sent or received"
    ASKED = "one message of the highest version was sent, and stands alone until it is answered"
    SETTLED = "both ends use one version"
    HOPELESS = "the two ends have no version in common"


class Input(Enum):
    SENT = "the first message of a requester"
    RECEIVED = "a valid message of a version that this end supports"
    IN_RANGE = "RDMA_ERR_VERS, with a range that holds a version this end supports"
    OUT_OF_RANGE = "RDMA_ERR_VERS, with a range that holds none"


TRANSITIONS: dict[tuple[State, Input], State] = {
    (State.FRESH, Input.SENT): State.ASKED,  # version-two-01, 5
    (State.FRESH, Input.RECEIVED): State.SETTLED,  # 5.3: a responder uses the requester's version
    (State.ASKED, Input.RECEIVED): State.SETTLED,  # 5.1
    (State.ASKED, Input.IN_RANGE): State.SETTLED,  # 5.2
    (State.ASKED, Input.OUT_OF_RANGE): State.HOPELESS,  # 5.2
    # Whatever comes later, or uncalled for, changes nothing: a refusal is about the message that drew it.
    (State.FRESH, Input.IN_RANGE): State.FRESH,
    (State.FRESH, Input.OUT_OF_RANGE): State.FRESH,
    (State.ASKED, Input.SENT): State.ASKED,
    (State.SETTLED, Input.SENT): State.SETTLED,
    (State.SETTLED, Input.RECEIVED): State.SETTLED,
    (State.SETTLED, Input.IN_RANGE): State.SETTLED,
    (State.SETTLED, Input.OUT_OF_RANGE): State.SETTLED,
    (State.HOPELESS, Input.SENT): State.HOPELESS,
    (State.HOPELESS, Input.RECEIVED): State.HOPELESS,
    (State.HOPELESS, Input.IN_RANGE): State.HOPELESS,
    (State.HOPELESS, Input.OUT_OF_RANGE): State.HOPELESS,
}


def choose(lowest: int, highest: int, supported: tuple[int, int]) -> int | None:
    """The highest version in both ranges; None where there is none.  What was refused is above ``highest``."""
    version = min(highest, supported[1])
    return version if version >= max(lowest, supported[0]) else None


CALL, REPLY = 0, 1


class Stage(Enum):
    """Where in its life a connection is."""

    CONNECTING = "connecting"
    OPEN = "open"
    CLOSED = "closed"


STAGES: dict[tuple[Stage, type[Event]], Stage | None] = {
    (Stage.CONNECTING, Connected): Stage.OPEN,
    (Stage.CONNECTING, SendReceived): None,
    (Stage.CONNECTING, Registered): None,
    (Stage.CONNECTING, Released): None,
    (Stage.CONNECTING, Completed): None,
    (Stage.CONNECTING, ConnectionEnded): Stage.CLOSED,
    (Stage.OPEN, Connected): None,
    (Stage.OPEN, SendReceived): Stage.OPEN,
    (Stage.OPEN, Registered): Stage.OPEN,
    (Stage.OPEN, Released): Stage.OPEN,
    (Stage.OPEN, Completed): Stage.OPEN,
    (Stage.OPEN, ConnectionEnded): Stage.CLOSED,
    (Stage.CLOSED, Connected): None,
    (Stage.CLOSED, SendReceived): None,
    (Stage.CLOSED, Registered): None,
    (Stage.CLOSED, Released): None,
    (Stage.CLOSED, Completed): None,
    (Stage.CLOSED, ConnectionEnded): None,
}
"""What each event leads to; None: it means nothing there, and nothing is done."""


LASTING = ("fresh memory", "fallback", "random handles")
"""Duties whose breach is only wrong when it is done again."""


class RpcRdmaEndpoint:
    """The client's or the server's end; see the package for what goes in and comes out."""

    def __init__(self, role: Role, settings: EndpointSettings | None = None, fault: Fault | None = None) -> None:
        self.role = role
        self.settings = settings or EndpointSettings()
        self.fault = fault
        self.committed = 0
        """How often the fault was committed."""
        self.answered = 0
        """Replies sent."""
        self.stage = Stage.CONNECTING
        self.state = State.FRESH
        self.version = self.settings.version
        """Of the next message that this end begins a transaction with."""
        self.peer_private = b""
        self.requester = Requester(self, role is Role.SERVER)
        self.responder = Responder(self, role is Role.CLIENT)
        self.characteristics = Characteristics(self)
        self._numbers = 0

    # The driver's side

    @property
    def private_data(self) -> bytes:
        """What goes into the connection request or reply (RFC 8797, 4)."""
        settings = self.settings
        data = b""
        if settings.announce:
            send, receive = settings.send_size // SIZE_UNIT - 1, settings.receive_size // SIZE_UNIT - 1
            data = bytes(RPCRDMAPrivateData(r=int(settings.remote_invalidation), send_size=send, receive_size=receive))
        if self.fault is not None and self.fault.private is not None and data:
            self.committed = 1
            return self.fault.private(data)
        return data

    def take(self, event: Event) -> list[Output]:
        """Something happened."""
        following = STAGES[self.stage, type(event)]
        if following is None:
            return []
        self.stage = following
        return self._HANDLERS[type(event)](self, event)

    def _connected(self, event: Connected) -> list[Output]:
        self.peer_private = event.private_data
        if self.role is Role.CLIENT and self.version == 1:
            self.state = State.SETTLED  # version 1 needs no negotiation
            return [Settled(1), *self.requester.proceed()]
        if self.role is Role.CLIENT and self.settings.extension:
            return self.characteristics.introduce() + self.requester.proceed()
        return self.requester.proceed()

    def _received(self, event: SendReceived) -> list[Output]:
        header = decode_header(event.data, 0, len(event.data), len(event.data))
        if header.length < 16:
            return []  # too short to be answered (RFC 8166, 4.5)
        if header.procedure == RDMA_ERROR:
            answer = self.responder.refuse(header, ERR_CHUNK) if header.problem and self.bends("silence") else []
            return answer + self._refused(header)
        # An RDMA_NOMSG without chunks has no RPC message, and so no direction (RFC 8166, 4.5.2).
        malformed = bool(header.problem) or (header.procedure == RDMA_NOMSG and not header.chunks)
        if malformed and header.xid in self.requester.outstanding:
            return self.requester.refused(header)
        if not self.settings.lowest <= header.version <= self.settings.version:
            return self.responder.refuse(header, ERR_VERS, (self.settings.lowest, self.settings.version))
        if malformed or header.procedure not in (RDMA_MSG, RDMA_NOMSG, RDMA_OPTIONAL):
            return [] if self.bends("refusal") else self.responder.refuse(header, ERR_CHUNK)
        outputs = self._received_version(header.version)
        if header.procedure == RDMA_OPTIONAL:
            return outputs + self.characteristics.take(header) + self.requester.proceed()
        payload = event.data[header.length :]
        direction = self._direction(header, payload)
        if header.procedure == RDMA_MSG and int.from_bytes(payload[4:8], "big") != direction:
            header.problem = "rdma_direction is not that of the RPC message"
            if header.xid in self.requester.outstanding:
                return outputs + self.requester.refused(header)
            return outputs + self.responder.refuse(header, ERR_CHUNK)
        if direction == CALL:
            return outputs + self.responder.call(header, payload)
        return outputs + self.requester.reply(header, payload, event.invalidated)

    def _direction(self, header: TransportHeader, payload: bytes) -> int:
        """CALL or REPLY."""
        if header.version > 1:
            return header.direction or 0
        if header.procedure == RDMA_MSG:
            return int.from_bytes(payload[4:8], "big")
        return REPLY if header.xid in self.requester.outstanding and not header.reads else CALL

    def _refused(self, header: TransportHeader) -> list[Output]:
        supported = header.supported
        if header.error == ERR_VERS and supported is not None and header.version == self.version and self.active:
            version = choose(self.settings.lowest, self.version - 1, supported)
            self._step(Input.OUT_OF_RANGE if version is None else Input.IN_RANGE)
            if self.bends("fallback"):
                return self.requester.refused(header)
            if version is not None:
                self.version = version
                return [Settled(version), *self.requester.again(header)]
            return [*self.requester.refused(header), Disconnect("the two ends have no version in common")]
        outputs: list[Output] = []
        if header.error != ERR_VERS and self.state is State.ASKED:
            outputs = self._received_version(header.version)  # it took the version, and only then found something wrong
        if header.xid in self.requester.outstanding:
            return outputs + self.requester.refused(header)
        return outputs + self.characteristics.refused(header) + self.requester.proceed()

    def _received_version(self, version: int) -> list[Output]:
        settled = self.state is State.SETTLED
        self._step(Input.RECEIVED)
        if settled or self.state is not State.SETTLED:
            return []
        self.version = version
        return [Settled(version)]

    def _step(self, given: Input) -> None:
        self.state = TRANSITIONS[self.state, given]

    def _disconnected(self, event: ConnectionEnded) -> list[Output]:
        self.responder.calls.clear()
        return self.requester.lost()

    _HANDLERS: dict[type[Event], Callable[[Any, Any], list[Output]]] = {  # noqa: RUF012, a table of this class
        Connected: _connected,
        SendReceived: _received,
        Registered: lambda self, event: self.requester.registered(event),
        Released: lambda self, event: self.requester.released(event),
        Completed: lambda self, event: self.responder.completed(event),
        ConnectionEnded: _disconnected,
    }

    # The application's side

    def call(self, call: Call) -> list[Output]:
        """A call to the peer; it waits for the connection and for credits."""
        return self.requester.call(call)

    def reply(self, call: int, parts: Parts) -> list[Output]:
        """The reply to a ``Called``."""
        return self.responder.reply(call, parts) if call in self.responder.calls else []

    def request(self, want: Mapping[int, Value]) -> list[Output]:
        """Ask the peer to change characteristics, as soon as it is known to understand."""
        self.characteristics.request(want)
        return self.requester.proceed()

    def update(self, which: int, value: Value) -> list[Output]:
        """Change a characteristic of this end unasked; the Receive Buffer Size may only grow so (xcharext-02, 3.1)."""
        if not self.extended or (which == XCHAR_RBSIZ and value < self.characteristics.own[which]):  # type: ignore[operator]
            return []
        return self.characteristics.update(which, value)

    @property
    def extended(self) -> bool:
        """Both ends know the extension."""
        return (
            self.stage is Stage.OPEN
            and self.state is State.SETTLED
            and self.version == 2
            and self.characteristics.known
        )

    def disconnect(self) -> list[Output]:
        return [Disconnect("done")] if self.stage is Stage.OPEN else []

    @property
    def next_settings(self) -> EndpointSettings:
        """For the next connection to the same peer: without a version it refused, or fell silent at (5.2)."""
        if self.state in (State.SETTLED, State.FRESH):
            return replace(self.settings, version=self.version)
        return replace(self.settings, version=self.settings.lowest)

    # What the halves need to know

    def number(self) -> int:
        """A fresh number for memory, an operation or a call."""
        self._numbers += 1
        return self._numbers

    def may_ask(self, backward: bool) -> bool:
        """A requester may send now, as far as the connection and its version go."""
        if self.stage is not Stage.OPEN or self.state is State.HOPELESS:
            return False
        if backward:
            return self.state is State.SETTLED
        return self.state is not State.ASKED or self.bends("version")

    @property
    def active(self) -> bool:
        """The client chooses the version; a server's calls have that of the calls it was sent."""
        return self.role is Role.CLIENT

    @property
    def header_bytes(self) -> int:
        """Of an RDMA_MSG without chunks."""
        return 28 if self.version == 1 else 32

    def announced(self) -> tuple[int, int] | None:
        """Send and receive size of the peer, where both ends announced theirs."""
        found = find_private_data(self.peer_private)
        own = find_private_data(self.private_data)
        return (found[0].send_size, found[0].receive_size) if found and own else None

    @property
    def send_limit(self) -> int:
        """The inline threshold of what this end sends, in the version and at the moment in force.

        Version 1: RFC 8166, 3.3.2; RFC 8797, 5.1.  Version 2: 1024 before it is settled, then 4096 or what the peer
        says (version-two-01, 2.3 and 5; xcharext-02, 3.1).
        """
        if self.version > 1:
            return self.characteristics.send_size if self.state is State.SETTLED else DEFAULT_INLINE
        sizes = self.announced()
        return DEFAULT_INLINE if sizes is None else min(self.settings.send_size, sizes[1])

    @property
    def receive_limit(self) -> int:
        """The inline threshold of what the peer sends."""
        if self.version > 1:
            return self.characteristics.receive_size if self.state is State.SETTLED else DEFAULT_INLINE
        sizes = self.announced()
        return DEFAULT_INLINE if sizes is None else min(self.settings.receive_size, sizes[0])

    def forbidden(self, backward: bool) -> str:
        """Why no call may be sent at all; '' where it may (xcharext-02, 3.3)."""
        none = backward and self.version > 1 and self.characteristics.peer[XCHAR_BRS] == BKREQSUP_NONE
        return "the client supports no backward requests" if none and not self.bends("backward support") else ""

    def chunks_allowed(self, backward: bool) -> bool:
        """A call of this end may have chunks (RFC 8167, 5.1; xcharext-02, 3.3)."""
        return not backward or (self.version > 1 and self.characteristics.peer[XCHAR_BRS] == BKREQSUP_GENL)

    def serves_chunks(self, backward: bool) -> bool:
        """A call of the peer may have chunks."""
        return not backward or (self.version > 1 and self.characteristics.own[XCHAR_BRS] == BKREQSUP_GENL)

    def may_invalidate(self, version: int) -> bool:
        """Replies may use Send With Invalidate (RFC 8797, 4.1; xcharext-02, 3.2)."""
        if version > 1:
            return bool(self.characteristics.peer[XCHAR_REQREMINV])
        found = find_private_data(self.peer_private)
        both = self.settings.announce and self.settings.remote_invalidation and found
        return bool(both and found[0].remote_invalidation)

    def new_header(
        self, xid: int, credits: int, procedure: int, direction: int, version: int | None = None
    ) -> TransportHeader:
        """A header without chunks; ``direction`` goes where the version has a word for it."""
        chosen = version or self.version
        return TransportHeader(xid, chosen, credits, procedure, direction=direction if chosen > 1 else None)

    def new_error(
        self, xid: int, version: int, credits: int, error: int, supported: tuple[int, int] | None
    ) -> TransportHeader:
        return TransportHeader(xid, version, credits, RDMA_ERROR, error=error, supported=supported)

    def issue(self, plan: PlannedSend) -> list[Output]:
        """A message goes out, changed by the fault where it has an occasion."""
        if self.role is Role.CLIENT and plan.kind in ("call", "option"):
            self._step(Input.SENT)
        fault = self.fault
        if fault is not None and fault.spoil is not None and not self.committed:
            self.committed += fault.spoil(self, plan)
        self.answered += plan.kind == "reply"
        return list(plan.actions())

    def bends(self, duty: str, size: int = 0) -> bool:
        """The fault suspends this duty, here and now; once, but for what is only wrong when it is done again."""
        fault = self.fault
        if (
            fault is None
            or fault.bends != duty
            or (self.committed and duty not in ("fresh memory", "fallback", "random handles"))
        ):
            return False
        if fault.fits is not None and not fault.fits(self, size):
            return False
        self.committed += 1
        return True
