"""Transport characteristics of both ends, and the four options that announce them (xcharext-02)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from rdmascope.dissect.layers.characteristics_codes import (
    CHARACTERISTICS,
    ROPT_INITXCH,
    ROPT_REQXCH,
    ROPT_RESPXCH,
    ROPT_UPDXCH,
    XCHAR_BRS,
    XCHAR_RBSIZ,
    XCHAR_REQREMINV,
    Characteristic,
)
from rdmascope.dissect.layers.rpcrdma_codes import ERR_CHUNK, ERR_INVAL_OPTION, RDMA_OPTIONAL
from rdmascope.dissect.rpcrdma.characteristics import InitXch, OptionNoun, ReqXch, RespXch, UpdXch, decode_option
from rdmascope.dissect.rpcrdma.messages import TransportHeader

from .build_header import Value, encode_option, xcharsubset, xcharval
from .nouns import Changed, Output, Role
from .plan import PlannedSend
from .view import EndpointView

CALL, REPLY = 0, 1
FIRST_XID = 0xF0000001
"""XIDs of options that answer none: from here on, so that they are not those of calls."""


class Characteristics:
    """The characteristics of this end, those of the peer, and the changes under way."""

    def __init__(self, endpoint: EndpointView) -> None:
        self.endpoint = endpoint
        settings = endpoint.settings
        self.own: dict[int, Value] = {
            XCHAR_RBSIZ: settings.receive_buffer,
            XCHAR_REQREMINV: settings.remote_invalidation,
            XCHAR_BRS: settings.backward_support,
            **settings.more,
        }
        self.peer: dict[int, Value] = {code: kind.default for code, kind in CHARACTERISTICS.items()}
        self.introduced = False
        """This end has sent its ROPT_INITXCH."""
        self.known = False
        """The peer has sent an option, so it knows the extension."""
        self.asked: dict[int, list[tuple[int, Value]]] = {}
        """XID -> what a ROPT_REQXCH of this end wants, until its answer is there."""
        self.wishes: deque[dict[int, Value]] = deque()
        """What shall be wanted next."""
        self.pending: dict[int, Value] = {}
        """Requested changes that ROPT_UPDXCH will announce."""
        self._xid = FIRST_XID - 1

    # What holds

    @property
    def send_size(self) -> int:
        """Bytes of a Send to the peer at most; a lower size that was asked for counts at once (3.1)."""
        wanted = [value for values in self.asked.values() for which, value in values if which == XCHAR_RBSIZ]
        wanted += [value for which, value in self.pending.items() if which == XCHAR_RBSIZ]
        return min(int(value) for value in [self.peer[XCHAR_RBSIZ], *wanted])

    @property
    def receive_size(self) -> int:
        """Bytes that the peer knows it may send."""
        announced = self.own if self.known and self.introduced else self._defaults()
        return int(announced[XCHAR_RBSIZ])

    def _defaults(self) -> Mapping[int, Value]:
        return {code: kind.default for code, kind in CHARACTERISTICS.items()}

    # What this end sends

    def introduce(self, xid: int | None = None) -> list[Output]:
        """ROPT_INITXCH (4.1), once."""
        if self.introduced:
            return []
        self.introduced = True
        start = [xcharval(which, value) for which, value in self.own.items()]
        fixed = [place for place, which in enumerate(self.own) if which in self.endpoint.settings.unchanging]
        return self._send(ROPT_INITXCH, xid, self._side, start, xcharsubset(fixed))

    def request(self, want: Mapping[int, Value]) -> None:
        """ROPT_REQXCH (4.2), as soon as there is a credit for it."""
        self.wishes.append(dict(want))

    def proceed(self) -> list[Output]:
        """Send the wishes there are credits for."""
        outputs: list[Output] = []
        requester = self.endpoint.requester
        while self.wishes and len(requester.outstanding) + len(self.asked) < requester.limit:
            want, xid = self.wishes.popleft(), self._next_xid()
            self.asked[xid] = list(want.items())
            values = [xcharval(which, value) for which, value in want.items()]
            outputs += self._send(ROPT_REQXCH, xid, CALL, values)
        return outputs

    def update(self, which: int, value: Value, clears: bool = False) -> list[Output]:
        """ROPT_UPDXCH (4.4)."""
        self.own[which] = value
        return self._send(ROPT_UPDXCH, None, self._side, xcharval(which, value), int(clears))

    @property
    def _side(self) -> int:
        return CALL if self.endpoint.role is Role.CLIENT else REPLY

    def _next_xid(self) -> int:
        self._xid += 1
        return self._xid

    def _send(self, option: int, xid: int | None, direction: int, *fields: Any) -> list[Output]:
        credits = self.endpoint.responder.grant if direction == REPLY else self.endpoint.requester.credits
        number = self._next_xid() if xid is None else xid
        header = self.endpoint.new_header(number, credits, RDMA_OPTIONAL, direction, 2)
        header.option, header.optinfo = option, encode_option(option, *fields)
        return self.endpoint.issue(PlannedSend("option", header))

    # What the peer sends

    def take(self, header: TransportHeader) -> list[Output]:
        """An RDMA2_OPTIONAL; one that is not supported is refused (version-two-01, 3.1)."""
        assert header.option is not None
        handle = self._HANDLERS.get(header.option)
        if handle is None or not self.endpoint.settings.extension:
            return self.endpoint.responder.refuse(header, ERR_INVAL_OPTION)
        noun = decode_option(header.option, header.optinfo)
        if noun.problem or any(value.problem for value in _values(noun)):
            return self.endpoint.responder.refuse(header, ERR_CHUNK)  # 2.1: an XDR error
        unknown = any(value.kind is None for value in _values(noun))
        if unknown and self.endpoint.bends("unknown characteristic"):
            return self.endpoint.responder.refuse(header, ERR_CHUNK)
        if isinstance(noun, RespXch) and self.endpoint.bends("support"):
            return self.endpoint.responder.refuse(header, ERR_INVAL_OPTION)
        self.known = True
        return handle(self, header, noun)

    def _initxch(self, header: TransportHeader, noun: InitXch) -> list[Output]:
        outputs: list[Output] = []
        for value in noun.start:
            outputs += self._changed(value.which, value.data if value.value is None else value.value)
        if self.endpoint.role is Role.SERVER:
            outputs += self.introduce(header.xid)
        return outputs

    def _changed(self, which: int, value: Value) -> list[Output]:
        if self.peer.get(which) == value:
            return []
        self.peer[which] = value
        return [Changed(which, value)]

    def _reqxch(self, header: TransportHeader, noun: ReqXch) -> list[Output]:
        if self.endpoint.bends("response"):
            return []
        fates: dict[str, list[int]] = {"done": [], "reject": [], "pending": []}
        updates: list[tuple[int, Value]] = []
        for place, wish in enumerate(noun.want):
            fixed = wish.value is None or wish.which in self.endpoint.settings.unchanging or not self._possible(wish)
            fate = "reject" if fixed else self.endpoint.settings.on_request.get(wish.which, "done")
            fates[fate].append(place)
            if fate == "done":
                self.own[wish.which] = wish.value or 0
            elif fate == "pending":
                updates.append((wish.which, wish.value or 0))
        subsets = [xcharsubset(fates[fate]) for fate in ("done", "reject", "pending")]
        outputs = self._send(ROPT_RESPXCH, header.xid, REPLY, *subsets)
        for which, value in updates:
            outputs += self.update(which, value, clears=True)
        return outputs

    def _possible(self, wish: Any) -> bool:
        """Receive buffers of fewer than 4096 bytes are no version 2 (version-two-01, 2.3)."""
        return wish.which != XCHAR_RBSIZ or int(wish.value) >= CHARACTERISTICS[XCHAR_RBSIZ].default

    def _respxch(self, header: TransportHeader, noun: RespXch) -> list[Output]:
        outputs: list[Output] = []
        for place, (which, value) in enumerate(self.asked.pop(header.xid, ())):
            if place in noun.done:
                outputs += self._changed(which, value)
            elif place in noun.pending:
                self.pending[which] = value
        return outputs + self.endpoint.requester.proceed()

    def _updxch(self, header: TransportHeader, noun: UpdXch) -> list[Output]:
        assert noun.now is not None
        if noun.pending_clear:
            self.pending.pop(noun.now.which, None)
        return self._changed(noun.now.which, noun.now.data if noun.now.value is None else noun.now.value)

    def refused(self, header: TransportHeader) -> list[Output]:
        """An error instead of an answer: as if every wish was rejected (3)."""
        self.asked.pop(header.xid, None)
        return []

    _HANDLERS: dict[int, Callable[[Any, TransportHeader, Any], list[Output]]] = {  # noqa: RUF012, a table
        ROPT_INITXCH: _initxch,
        ROPT_REQXCH: _reqxch,
        ROPT_RESPXCH: _respxch,
        ROPT_UPDXCH: _updxch,
    }


def _values(noun: OptionNoun) -> tuple[Characteristic, ...]:
    match noun:
        case InitXch(start):
            return start
        case ReqXch(want):
            return want
        case UpdXch(Characteristic() as now):
            return (now,)
        case _:
            return ()
