"""What Connection Management messages say of connections: both queue pairs, a refusal, an end (IBA volume 1, 12)."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple, TypeVar

import numpy as np

from ...arrays import Bytes, Int64s, Rows, gathered, take
from ...layers.cm_codes import CLASS_CM, CM_LAYERS, METHOD_SEND
from ...link.addresses import AddressTable
from ..connection import Endpoint
from .cm import ATTRIBUTE_ID, MAD_HEADER_SIZE, MANAGEMENT_CLASS, METHOD, ManagementMessage
from .flow_keys import flow_key

Key = TypeVar("Key")
Value = TypeVar("Value")

PENDING = 1 << 14
"""REQs, and REPs without their REQ, that are remembered."""
TELLING = frozenset(("REQ", "REP", "REJ", "DREQ"))
"""Kinds of messages that are looked at."""
REPEATED = 60_000_000_000
REPEATED_FRAMES = 1000
"""Nanoseconds and frames within which the same REQ is a repetition, not a new connection."""


class ConnectionRequest(NamedTuple):
    """A REQ."""

    local_comm_id: int
    service_id: int | None
    service_port: int | None
    path_mtu: int | None
    source: int
    destination: int
    endpoint: Endpoint
    frame: int
    time: int


class Established(NamedTuple):
    """REQ and REP together name both queue pairs."""

    request: ConnectionRequest
    passive: Endpoint
    frame: int
    time: int
    """Of the first of the two in the capture."""


class Refused(NamedTuple):
    """REJ."""

    request: ConnectionRequest
    passive: Endpoint
    reason: str


class DisconnectRequested(NamedTuple):
    """DREQ: the flow it travels beside ends."""

    key: int


class HalfKnown(NamedTuple):
    """An endpoint of whose CM exchange only one side was seen, and its number: 0 active, 1 passive."""

    endpoint: Endpoint
    number: int
    request: ConnectionRequest | None


_TELLING_ATTRIBUTES = [attribute for attribute, (kind, _) in CM_LAYERS.items() if kind in TELLING]


class Management:
    """Puts CM exchanges together; messages may be repeated, reordered or missing."""

    def __init__(self, addresses: AddressTable) -> None:
        self.addresses = addresses
        self.requests: dict[tuple[int, int, int], ConnectionRequest] = {}
        """By source, destination and local communication id."""
        self.replies: dict[tuple[int, int, int], tuple[Endpoint, int, int]] = {}
        """REPs whose REQ was not seen, with frame and time: by source and destination of the REQ, and its communication
        id."""
        self.half_known: dict[int, HalfKnown] = {}
        """By key of the flow that goes to the endpoint."""

    @staticmethod
    def telling(data: Bytes, rows: Rows, datagrams: Int64s) -> Int64s:
        """Which of these PACKET rows may carry one of the ``TELLING`` messages."""
        chosen = take(rows, datagrams)
        datagrams = datagrams[chosen["captured"] >= MAD_HEADER_SIZE]
        if not len(datagrams):
            return datagrams
        header = gathered(data, MAD_HEADER_SIZE, rows["payload"][datagrams])
        of_cm = (header[:, MANAGEMENT_CLASS] == CLASS_CM) & (header[:, METHOD] == METHOD_SEND)
        attribute = header[:, ATTRIBUTE_ID].astype(np.int64) << 8 | header[:, ATTRIBUTE_ID + 1]
        found: Int64s = datagrams[of_cm & np.isin(attribute, _TELLING_ATTRIBUTES)]
        return found

    def take(self, message: ManagementMessage, row: Rows) -> Established | Refused | DisconnectRequested | None:
        """Look at a message, carried by the packet ``row``."""
        source, destination = int(row["source"]), int(row["destination"])
        if message.kind == "REQ" and message.local_comm_id is not None and message.local_qpn is not None:
            name = source, destination, message.local_comm_id
            frame, time = int(row["frame"]), int(row["time"])
            request = ConnectionRequest(
                message.local_comm_id,
                message.service_id,
                message.service_port,
                message.path_mtu,
                source,
                destination,
                self._endpoint(source, message, frame),
                frame,
                time,
            )
            return self._requested(name, request)
        if message.remote_comm_id is None:
            return None
        name = destination, source, message.remote_comm_id
        request_seen = self.requests.get(name)
        if message.kind == "REP" and message.local_qpn is not None:
            passive = self._endpoint(source, message, int(row["frame"]))
            if request_seen is not None:
                return Established(request_seen, passive, request_seen.frame, request_seen.time)
            _remember(self.replies, name, (passive, int(row["frame"]), int(row["time"])))
            _remember(self.half_known, flow_key(destination, source, passive.qpn), HalfKnown(passive, 1, None))
        elif message.kind == "REJ" and request_seen is not None:
            del self.requests[name]
            return Refused(request_seen, Endpoint(self.addresses.name(source), 0), message.reason_name)
        elif message.kind == "DREQ" and message.remote_qpn is not None:
            return DisconnectRequested(flow_key(source, destination, message.remote_qpn))
        return None

    def forget(self, request: ConnectionRequest) -> None:
        """Its connection has ended: the same REQ again asks for another one."""
        name = request.source, request.destination, request.local_comm_id
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
        _remember(self.requests, name, request)
        earlier = self.replies.pop(name, None)
        if earlier is not None:
            return Established(request, *earlier)
        key = flow_key(request.destination, request.source, request.endpoint.qpn)
        _remember(self.half_known, key, HalfKnown(request.endpoint, 0, request))
        return None

    def _endpoint(self, source: int, message: ManagementMessage, frame: int) -> Endpoint:
        """The end that sent a REQ or REP."""
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
    """The same bytes: the connections of one client and server all carry them."""
    return private_data


def _remember(table: dict[Key, Value], key: Key, value: Value) -> None:
    if len(table) >= PENDING:
        table.pop(next(iter(table)))
    table[key] = value
