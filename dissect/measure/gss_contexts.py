"""Security contexts of RPCSEC_GSS: how they begin and end, their services, sequence numbers and window (RFC 2203, 5).

Fed calls and ended RPCs in the order of time.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from ..layers.oncrpc_codes import (
    GSS_SERVICE_NAMES,
    RPCSEC_GSS_CONTINUE_INIT,
    RPCSEC_GSS_DATA,
    RPCSEC_GSS_DESTROY,
    RPCSEC_GSS_INIT,
)
from ..named_tuple import NamedTuple
from ..onc.rpc_header import GssCredential, call_header
from ..onc.shapes.messages import reply_tree
from ..onc.shapes.types import SparseBytes
from ..onc.xdr import opaque_at, word
from ..rpcrdma.messages import Message
from ..rpcrdma.reassembly import reassembled_reply
from ..rpcrdma.rpcs import Rpc
from ..transport.connection import Connection

MAX_CONTEXTS = 4096
"""Contexts that are followed; calls with others are counted."""
MAX_STATUSES = 16
_HANDLE = 48
"""Offset in a call of the count of its context handle (RFC 5531, 9; RFC 2203, 5)."""
COMPLETE = 0


class GssCall(NamedTuple):
    """The credential of a call."""

    credential: GssCredential
    handle: bytes
    """The handle of its context."""


@dataclass(slots=True, eq=False)
class GssContext:
    number: int
    """1-based, in order of appearance."""
    server: str
    client: str
    """Addresses."""
    handle: bytes
    version: int
    frame: int = 0
    """The frame of the reply that completed it; 0: before the capture, or never."""
    time: int = 0
    round_trips: int = 0
    """Calls that it took."""
    window: int | None = None
    """Calls that may be outstanding; None: not in the capture."""
    calls: Counter[str] = field(default_factory=Counter)
    """Calls by their service: none, integrity or privacy."""
    first: int | None = None
    highest: int | None = None
    """Sequence numbers."""
    late: int = 0
    """Calls with a number below the highest so far."""
    below_window: int = 0
    """Calls with a number that is too low for the window: the server drops them (5.3.3.1)."""
    repeated: int = 0
    """Calls with the number of the one before: each transmission needs a new one (5.3.1)."""
    ended_frame: int = 0
    """The frame of the reply to RPCSEC_GSS_DESTROY."""
    failures: Counter[str] = field(default_factory=Counter)
    """Replies that refuse its calls, by status."""
    _last: int | None = None

    def called(self, call: GssCredential) -> None:
        self.calls[GSS_SERVICE_NAMES.get(call.service, str(call.service))] += 1
        number = call.sequence
        self.repeated += number == self._last
        self._last = number
        if self.highest is None or self.first is None:
            self.first = self.highest = number
            return
        self.late += number < self.highest
        self.below_window += self.window is not None and number <= self.highest - self.window
        self.highest = max(self.highest, number)
        self.first = min(self.first, number)


class GssContexts:
    """All contexts of a capture."""

    def __init__(self) -> None:
        self.contexts: list[GssContext] = []
        self.untracked = 0
        """Calls with contexts beyond the limit."""
        self._known: dict[tuple[str, bytes], GssContext] = {}

    def called(self, message: Message, connection: Connection) -> None:
        """A call; whatever its program."""
        call = gss_call(message)
        if call is not None and call.credential.procedure == RPCSEC_GSS_DATA:
            context = self._context(message, connection, call)
            if context is not None:
                context.called(call.credential)

    def ended(self, rpc: Rpc, time: int) -> None:
        """An RPC, perhaps without a reply."""
        if rpc.call is None or rpc.gss is None or rpc.reply is None:
            return
        call = gss_call(rpc.call)
        if call is None:
            return
        procedure = call.credential.procedure
        if procedure in (RPCSEC_GSS_INIT, RPCSEC_GSS_CONTINUE_INIT):
            self._created(rpc, call.credential, time)
            return
        context = self._context(rpc.call, rpc.connection, call)
        if context is None:
            return
        if procedure == RPCSEC_GSS_DESTROY and not rpc.failed:
            context.ended_frame = rpc.reply_frame
            self._known.pop((context.server, context.handle), None)
        refused = rpc.failed and rpc.status.startswith(("RPCSEC_GSS", "AUTH"))
        if refused and (rpc.status in context.failures or len(context.failures) < MAX_STATUSES):
            context.failures[rpc.status] += 1

    def _created(self, rpc: Rpc, credential: GssCredential, time: int) -> None:
        message = reassembled_reply(rpc)
        if message is None:
            return
        data = message.prefix
        tree = reply_tree(SparseBytes([(0, data)], len(data)), rpc.program, rpc.version, rpc.procedure, rpc.gss)
        fields = {node.name: node.value for node in tree.body.children} if tree.body is not None else {}
        handle, major, window = (fields.get(name) for name in ("handle", "gss_major", "seq_window"))
        if not isinstance(handle, memoryview) or rpc.failed:
            return
        new = credential.procedure == RPCSEC_GSS_INIT
        assert rpc.call is not None
        context = self._context(rpc.call, rpc.connection, GssCall(credential, bytes(handle)), new)
        if context is None:
            return
        context.round_trips += 1
        if major == COMPLETE:
            context.frame, context.time = rpc.reply_frame, time
            context.window = window if isinstance(window, int) else None

    def _context(self, message: Message, connection: Connection, call: GssCall, new: bool = False) -> GssContext | None:
        caller = message.operation.initiator
        ends = connection.endpoints
        key = ends[1 - caller].address, call.handle
        context = None if new else self._known.get(key)
        if context is None:
            if len(self.contexts) >= MAX_CONTEXTS:
                self.untracked += 1
                return None
            context = GssContext(
                len(self.contexts) + 1, key[0], ends[caller].address, call.handle, call.credential.version
            )
            self.contexts.append(context)
            self._known[key] = context
        return context


def gss_call(message: Message) -> GssCall | None:
    """The RPCSEC_GSS credential of a call; None where it has another, or its bytes are missing."""
    view = memoryview(message.data)[message.start : message.end]
    header = call_header(view, 0, len(view))
    if header is None or header.gss is None or len(view) < _HANDLE + 4:
        return None
    if _HANDLE + 4 + word(view, _HANDLE)[0] > len(view):
        return None
    return GssCall(header.gss, bytes(opaque_at(view, _HANDLE)[0]))
