"""What the parts of an endpoint, and the faults, see of the endpoint they belong to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from rdmascope.dissect.rpcrdma.messages import TransportHeader

from .build_header import Value
from .nouns import EndpointSettings, Output, Role
from .plan import PlannedSend


class OutstandingCall(Protocol):
    """A call that waits for its reply."""

    @property
    def header(self) -> TransportHeader | None:
        """As sent; None before that."""


class RequesterView(Protocol):
    """The requester half."""

    granted: int | None

    @property
    def outstanding(self) -> Mapping[int, OutstandingCall]: ...

    @property
    def credits(self) -> int: ...

    @property
    def limit(self) -> int: ...

    def proceed(self) -> list[Output]: ...


class ResponderView(Protocol):
    """The responder half."""

    @property
    def grant(self) -> int: ...

    def refuse(self, header: TransportHeader, error: int, supported: tuple[int, int] | None = None) -> list[Output]: ...


class CharacteristicsView(Protocol):
    """The transport characteristics of both ends."""

    own: dict[int, Value]
    peer: dict[int, Value]
    known: bool

    @property
    def asked(self) -> Mapping[int, Sequence[tuple[int, Value]]]: ...

    def proceed(self) -> list[Output]: ...


class EndpointView(Protocol):
    """The endpoint itself."""

    answered: int

    @property
    def role(self) -> Role: ...

    @property
    def settings(self) -> EndpointSettings: ...

    @property
    def version(self) -> int: ...

    @property
    def requester(self) -> RequesterView: ...

    @property
    def responder(self) -> ResponderView: ...

    @property
    def characteristics(self) -> CharacteristicsView: ...

    @property
    def extended(self) -> bool: ...

    @property
    def header_bytes(self) -> int: ...

    @property
    def send_limit(self) -> int: ...

    @property
    def receive_limit(self) -> int: ...

    def announced(self) -> tuple[int, int] | None: ...

    def number(self) -> int: ...

    def may_ask(self, backward: bool) -> bool: ...

    def forbidden(self, backward: bool) -> str: ...

    def chunks_allowed(self, backward: bool) -> bool: ...

    def serves_chunks(self, backward: bool) -> bool: ...

    def may_invalidate(self, version: int) -> bool: ...

    def new_header(
        self, xid: int, credits: int, procedure: int, direction: int, version: int | None = None
    ) -> TransportHeader: ...

    def new_error(
        self, xid: int, version: int, credits: int, error: int, supported: tuple[int, int] | None
    ) -> TransportHeader: ...

    def issue(self, plan: PlannedSend) -> list[Output]: ...

    def bends(self, duty: str, size: int = 0) -> bool: ...
