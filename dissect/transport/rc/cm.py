"""Connection Management as an observer reads it: what two queue pairs agreed on (IBA volume 1, chapter 12)."""

from __future__ import annotations

from collections.abc import Container, Iterator
from functools import lru_cache, partial
from itertools import repeat
from typing import Any, TypeVar

import numpy as np

from ...arrays import Bytes, Int64s, bytes_at, gathered, places
from ...layers.cm_codes import CLASS_CM, CM_LAYERS, IP_CM_SIZE, METHOD_SEND, REJECT_REASONS, service_port
from ...layers.columns import Column, compiled
from ...layers.opcodes import PATH_MTU
from ...link.addresses import AddressTable
from ...named_tuple import NamedTuple
from ..connection import ASKED_AGAIN, Endpoint
from .pairing import flow_key

MAD_SIZE, MAD_HEADER_SIZE = 256, 24
MANAGEMENT_CLASS, METHOD, ATTRIBUTE_ID = 1, 3, 16
"""Offsets in the header of a Management Datagram (13.4.2)."""


class ManagementMessage(NamedTuple):
    """One Communication Management message.  None: the message has no such field, or was truncated."""

    kind: str
    """REQ, REP, RTU, REJ, MRA, DREQ, DREP, LAP, APR, SIDR_REQ, SIDR_REP."""
    local_comm_id: int | None = None
    """The sender's communication ID; of SIDR messages the Request ID."""
    remote_comm_id: int | None = None
    local_qpn: int | None = None
    """The sender's queue pair: REQ, REP; SIDR_REP: the queue pair that answers."""
    remote_qpn: int | None = None
    """The receiver's queue pair: DREQ, LAP."""
    start_psn: int | None = None
    """The PSN of the first request that the sender expects: REQ, REP (12.7.31)."""
    service_id: int | None = None
    service_port: int | None = None
    """Port, if the service ID is one of the RDMA IP CM Service (A11)."""
    responder_resources: int | None = None
    """RDMA Reads and Atomics that the sender can serve at a time."""
    initiator_depth: int | None = None
    """RDMA Reads and Atomics that the sender wants to have outstanding."""
    path_mtu: int | None = None
    """Bytes."""
    ack_timeout: int | None = None
    """Nanoseconds of the local ACK timeout: REQ (12.7.34); None as well for a timer that never expires."""
    reason: int | None = None
    """REJ."""
    reason_name: str = ""

    private_data: bytes = b""
    """The consumer's, as captured; after the RDMA IP CM header if there is one."""
    truncated: bool = False
    """The capture ends within the message."""


def read_cms(
    data: Bytes, starts: Int64s, captured: Int64s, kinds: Container[str] | None = None
) -> list[ManagementMessage | None]:
    """The CM messages in the Management Datagrams at ``starts``; ``captured``: bytes of each that are captured.

    Never raises: fields beyond the captured bytes are None.  A MAD that is too short to tell, of another class, method
    or attribute, or not of one of ``kinds``, gives None.
    """
    sizes = captured.clip(0, np.minimum(len(data) - starts, MAD_SIZE))
    datagrams = np.zeros((len(starts), MAD_SIZE), np.uint8)
    whole = sizes == MAD_SIZE
    datagrams[whole] = gathered(data, MAD_SIZE, starts[whole])
    for at in places(~whole).tolist():
        datagrams[at, : sizes[at]] = data[starts[at] : starts[at] + sizes[at]]
    of_cm = (datagrams[:, MANAGEMENT_CLASS] == CLASS_CM) & (datagrams[:, METHOD] == METHOD_SEND)
    of_cm &= sizes >= ATTRIBUTE_ID + 2
    attributes = np.where(of_cm, datagrams[:, ATTRIBUTE_ID].astype(np.int64) << 8 | datagrams[:, ATTRIBUTE_ID + 1], -1)
    messages: list[ManagementMessage | None] = [None] * len(starts)
    for attribute in {*attributes.tolist()} & CM_LAYERS.keys():
        kind, layer = CM_LAYERS[attribute]
        if kinds is None or kind in kinds:
            chosen = places(attributes == attribute)
            for at, message in zip(
                chosen.tolist(), _messages(kind, layer, datagrams[chosen], sizes[chosen]), strict=True
            ):
                messages[at] = message
    return messages


def _messages(kind: str, layer: str, datagrams: Bytes, sizes: Int64s) -> Iterator[ManagementMessage]:
    """The messages in complete datagrams of one kind; bytes beyond ``sizes`` were filled in."""

    def column(layer: str, at: int, *names: str) -> list[Any]:
        """A field of the header at ``at``, by whichever of ``names`` the header has; bytes if it exceeds 64 bits."""
        header = compiled(layer)
        name = next((name for name in names if name in header.columns), None)
        if name is None:
            return none
        read = header.columns[name]
        field = read.read(datagrams[:, at : at + header.size])
        values = field.tolist() if read.mask is not None else [*map(bytes, field)]
        behind = at + read.first + read.width
        if shortest * 8 < behind * 8 - read.shift:
            there = (sizes * 8 >= behind * 8 - read.shift).tolist()
            values = [value if is_there else None for value, is_there in zip(values, there, strict=True)]
        return values

    shortest, none = int(sizes.min()), [None] * len(sizes)
    of_cm = partial(column, layer, MAD_HEADER_SIZE)
    size = MAD_HEADER_SIZE + compiled(layer).size
    services = of_cm("serviceid")
    ports = [None if service is None else service_port(service) for service in services]
    private = bytes_at(datagrams.reshape(-1), MAD_SIZE - size, np.arange(len(sizes)) * MAD_SIZE + size)
    if shortest < MAD_SIZE:
        private = [data[: max(0, end)] for data, end in zip(private, (sizes - size).tolist(), strict=True)]
    if kind in ("REQ", "SIDR_REQ"):
        private = [data if port is None else data[IP_CM_SIZE:] for port, data in zip(ports, private, strict=True)]
    reasons = of_cm("reason")
    return map(
        ManagementMessage,
        repeat(kind),
        of_cm("localcommid", "requestid"),
        of_cm("remotecommid"),
        of_cm("localqpn", "qpn"),
        of_cm("remoteqpneecn"),
        of_cm("startpsn"),
        services,
        ports,
        of_cm("responderres", "respres"),
        of_cm("initdepth"),
        map(PATH_MTU.get, of_cm("pppmtu")),
        [4096 << timeout if timeout else None for timeout in of_cm("prim_localacktout")],
        reasons,
        ["" if reason is None else REJECT_REASONS.get(reason, f"Reason {reason}") for reason in reasons],
        private,
        (sizes < MAD_SIZE).tolist(),
    )


def mad_values(datagram: bytes) -> tuple[dict[str, Any], str, dict[str, Any]]:
    """The header of a Management Datagram, the kind of its CM message ('' for none), and that message's fields.

    Fields beyond the end of the bytes are None; fields longer than 64 bits are bytes.
    """
    header = _values("MAD", datagram[:MAD_HEADER_SIZE])
    kind, layer = _what(datagram)
    return header, kind, _values(layer, datagram[MAD_HEADER_SIZE:]) if kind else {}


def _what(datagram: bytes) -> tuple[str, str]:
    """The kind of the CM message in a Management Datagram, and the name of its layer; '' for none."""
    if len(datagram) < ATTRIBUTE_ID + 2 or datagram[MANAGEMENT_CLASS] != CLASS_CM or datagram[METHOD] != METHOD_SEND:
        return "", ""
    return CM_LAYERS.get(datagram[ATTRIBUTE_ID] << 8 | datagram[ATTRIBUTE_ID + 1], ("", ""))


def _values(layer: str, data: bytes) -> dict[str, Any]:
    """The fields of one header by name; None for those that do not lie wholly in ``data``."""
    return {name: _value(column, data) for name, column in compiled(layer).columns.items()}


def _value(column: Column, data: bytes) -> Any:
    behind = column.first + column.width
    if behind * 8 - column.shift > len(data) * 8:
        return None
    if column.mask is None:
        return data[column.first : behind]
    return int.from_bytes(data[column.first : behind].ljust(column.width, b"\0"), "big") >> column.shift & column.mask


Key = TypeVar("Key")
Value = TypeVar("Value")

PENDING = 1 << 14
"""REQs, and REPs without their REQ, that are kept."""
TELLING = frozenset(("REQ", "REP", "RTU", "REJ", "MRA", "DREQ"))
"""Kinds of messages that are evaluated."""
REPEATED = 60_000_000_000
REPEATED_FRAMES = 1000
"""Nanoseconds and frames within which the same REQ is a repetition instead of a new connection."""


class ConnectionRequest(NamedTuple):
    """A ConnectRequest (REQ): who wants which connection."""

    local_comm_id: int
    service_id: int | None
    service_port: int | None
    path_mtu: int | None
    source: int
    destination: int
    transport: int
    """As in PACKET rows."""
    endpoint: Endpoint
    frame: int
    time: int


class Asked(NamedTuple):
    """A REQ that has not been answered so far."""

    request: ConnectionRequest
    times: int
    """How often it was sent, not counting copies."""
    frame: int
    time: int
    """Of the last one."""


class Established(NamedTuple):
    """REQ and REP together name both queue pairs."""

    request: ConnectionRequest
    passive: Endpoint
    frame: int
    time: int
    """Of the first of the two in the capture."""


class Refused(NamedTuple):
    """A ConnectReject (REJ), and why."""

    request: ConnectionRequest
    passive: Endpoint
    reason: str


class DisconnectRequested(NamedTuple):
    """A DREQ: the flow of its sender ends."""

    key: int
    comm_ids: tuple[int | None, int]
    """Communication IDs of sender and receiver."""


class HalfKnown(NamedTuple):
    """An endpoint of a CM exchange of which only one side was seen, and its number: 0 active, 1 passive."""

    endpoint: Endpoint
    number: int
    request: ConnectionRequest | None


class Management:
    """Combines the messages of CM exchanges, which may be repeated, reordered or missing."""

    def __init__(self, addresses: AddressTable) -> None:
        self.addresses = addresses
        self.requests: dict[tuple[int, int, int], ConnectionRequest] = {}
        """By source, destination and local communication ID."""
        self.replies: dict[tuple[int, int, int], tuple[Endpoint, int, int]] = {}
        """REPs without a captured REQ, with frame and time: by source and destination of the REQ, and its communication
        ID."""
        self.half_known: dict[int, HalfKnown] = {}
        """By the key of the flow to the endpoint."""
        self.asked: dict[tuple[int, int, int], Asked | None] = {}
        """Keys as in ``requests``; None once it was answered."""

    def take(
        self, message: ManagementMessage, source: int, destination: int, transport: int, frame: int, time: int
    ) -> Established | Refused | DisconnectRequested | None:
        """Process a message; its addresses as ids, its transport, frame and time (ns)."""
        if message.kind == "REQ" and message.local_comm_id is not None and message.local_qpn is not None:
            name = source, destination, message.local_comm_id
            request = ConnectionRequest(
                message.local_comm_id,
                message.service_id,
                message.service_port,
                message.path_mtu,
                source,
                destination,
                transport,
                self._endpoint(source, message, frame),
                frame,
                time,
            )
            if (before := self.asked.get(name, Asked(request, 1, frame, time))) is not None:
                times = before.times + (time - before.time >= ASKED_AGAIN)
                remember(self.asked, name, Asked(before.request, times, frame, time))
            return self._requested(name, request)
        if message.kind == "RTU" and message.local_comm_id is not None:
            name = source, destination, message.local_comm_id
            if name in self.asked:  # A REP came.  If the connection was forgotten, so was this REQ.
                self.asked[name] = None
            return None
        if message.remote_comm_id is None:
            return None
        name = destination, source, message.remote_comm_id
        if message.kind != "DREQ":
            remember(self.asked, name, None)
        request_seen = self.requests.get(name)
        if message.kind == "REP" and message.local_qpn is not None:
            passive = self._endpoint(source, message, frame)
            if request_seen is not None:
                return Established(request_seen, passive, request_seen.frame, request_seen.time)
            remember(self.replies, name, (passive, frame, time))
            remember(self.half_known, flow_key(destination, source, passive.qpn), HalfKnown(passive, 1, None))
        elif message.kind == "REJ" and request_seen is not None:
            del self.requests[name]
            return Refused(request_seen, Endpoint(self.addresses.name(source), 0), message.reason_name)
        elif message.kind == "DREQ" and message.remote_qpn is not None:
            key = flow_key(source, destination, message.remote_qpn)
            return DisconnectRequested(key, (message.local_comm_id, message.remote_comm_id))
        return None

    def forget(self, request: ConnectionRequest) -> None:
        """Forget a REQ whose connection has ended: the same REQ again asks for a new one."""
        name = request.source, request.destination, request.local_comm_id
        self.asked.pop(name, None)
        if self.requests.get(name) is request:
            del self.requests[name]

    def _requested(self, name: tuple[int, int, int], request: ConnectionRequest) -> Established | None:
        known = self.requests.get(name)
        if (
            known is not None
            and known.endpoint.qpn == request.endpoint.qpn
            and 0 <= request.time - known.time < REPEATED
            and request.frame - known.frame < REPEATED_FRAMES
        ):
            return None
        self.requests.pop(name, None)
        remember(self.requests, name, request)
        earlier = self.replies.pop(name, None)
        if earlier is not None:
            self.asked[name] = None
            return Established(request, *earlier)
        key = flow_key(request.destination, request.source, request.endpoint.qpn)
        remember(self.half_known, key, HalfKnown(request.endpoint, 0, request))
        return None

    def _endpoint(self, source: int, message: ManagementMessage, frame: int) -> Endpoint:
        """The endpoint that sent a REQ or REP."""
        return Endpoint(
            self.addresses.name(source),
            message.local_qpn or 0,
            message.start_psn,
            _shared(message.private_data),
            message.truncated,
            frame,
            responder_resources=message.responder_resources,
            initiator_depth=message.initiator_depth,
            ack_timeout=message.ack_timeout,
        )


@lru_cache(maxsize=1024)
def _shared(private_data: bytes) -> bytes:
    """The bytes themselves, shared: all connections of one client and server carry the same."""
    return private_data


def remember(table: dict[Key, Value], key: Key, value: Value) -> None:
    """Put it there; the oldest of PENDING goes."""
    if key not in table and len(table) >= PENDING:
        table.pop(next(iter(table)))
    table[key] = value
