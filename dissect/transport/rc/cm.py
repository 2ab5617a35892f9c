"""Connection Management as an observer reads it: what two queue pairs agreed (IBA volume 1, chapter 12)."""

from __future__ import annotations

from collections.abc import Container, Iterable
from functools import cache
from typing import Any, NamedTuple

from ...arrays import Bytes
from ...layers.cm_codes import CLASS_CM, CM_LAYERS, IP_CM_SIZE, METHOD_SEND, REJECT_REASONS, address_text, service_port
from ...layers.columns import Column, compiled
from ...layers.opcodes import PATH_MTU

MAD_SIZE, MAD_HEADER_SIZE = 256, 24
MANAGEMENT_CLASS, METHOD, ATTRIBUTE_ID = 1, 3, 16
"""Their places in the header of a Management Datagram (13.4.2)."""


class ManagementMessage(NamedTuple):
    """One Communication Management message.  None is: the message has no such field, or it was truncated."""

    kind: str
    """REQ, REP, RTU, REJ, MRA, DREQ, DREP, LAP, APR, SIDR_REQ, SIDR_REP."""
    transaction_id: int | None
    local_comm_id: int | None = None
    """The sender's; of SIDR messages the Request ID."""
    remote_comm_id: int | None = None
    local_qpn: int | None = None
    """The sender's queue pair: REQ, REP; SIDR_REP: the one that answers."""
    remote_qpn: int | None = None
    """The receiver's queue pair: DREQ, LAP."""
    start_psn: int | None = None
    """Of the first request the sender expects, so of the receiver's first: REQ, REP (12.7.31)."""
    service_id: int | None = None
    service_port: int | None = None
    """Port, where the service ID is one of the RDMA IP CM Service (A11)."""
    responder_resources: int | None = None
    """RDMA Reads and Atomics the sender can serve at a time."""
    initiator_depth: int | None = None
    """RDMA Reads and Atomics the sender wants to have outstanding."""
    retry_count: int | None = None
    rnr_retry: int | None = None
    path_mtu: int | None = None
    """Bytes."""
    ack_timeout: int | None = None
    """Nanoseconds of the local ACK timeout: REQ (12.7.34).  None, too, for a timer that never expires."""
    reason: int | None = None
    """REJ."""
    reason_name: str = ""
    ip_addresses: tuple[str, str] | None = None
    """Source and destination of the RDMA IP CM header (REQ, SIDR_REQ)."""
    private_data: bytes = b""
    """The consumer's, as far as captured; behind the RDMA IP CM header where there is one."""
    truncated: bool = False
    """The capture ends before the message does."""


def read_cm(
    data: Bytes | memoryview | bytes, start: int, end: int, kinds: Container[str] | None = None
) -> ManagementMessage | None:
    """The CM message in the Management Datagram ``data[start:end]``, or None where it holds none.

    ``start`` is the first byte of the MAD header.  Never raises: fields behind the end of the captured bytes
    are None.  None too for a MAD too short to tell what it is, or of another class, method or attribute.
    ``kinds``: None for all others, too.
    """
    datagram = bytes(data[max(0, start) : min(max(0, end), max(0, start) + MAD_SIZE)])
    kind, layer = _what(datagram)
    if not kind or (kinds is not None and kind not in kinds):
        return None
    body = datagram[MAD_HEADER_SIZE:]
    size, columns = _fields(kind, layer)
    local, remote, local_qpn, remote_qpn, psn, service, resources, depth, *rest = (
        [None if column is None else _value(column, body) for column in columns]
        if len(body) < size
        else _whole(columns, body)
    )
    retries, rnr_retries, mtu, reason, timeout = rest
    private_data = body[size:]
    port = None if service is None else service_port(service)
    addresses = None
    if port is not None and kind in ("REQ", "SIDR_REQ"):
        ip_cm = compiled("IPCMRequest").columns
        version, source, destination = (_value(ip_cm[name], private_data) for name in ("ipv", "sip", "dip"))
        if destination is not None:
            addresses = address_text(source, version), address_text(destination, version)
        private_data = private_data[IP_CM_SIZE:]
    return ManagementMessage(
        kind,
        _value(compiled("MAD").columns["transactionid"], datagram),
        local_comm_id=local,
        remote_comm_id=remote,
        local_qpn=local_qpn,
        remote_qpn=remote_qpn,
        start_psn=psn,
        service_id=service,
        service_port=port,
        responder_resources=resources,
        initiator_depth=depth,
        retry_count=retries,
        rnr_retry=rnr_retries,
        path_mtu=PATH_MTU.get(mtu or 0),
        ack_timeout=4096 << timeout if timeout else None,
        reason=reason,
        reason_name="" if reason is None else REJECT_REASONS.get(reason, f"Reason {reason}"),
        ip_addresses=addresses,
        private_data=private_data,
        truncated=len(datagram) < MAD_SIZE,
    )


@cache
def _fields(kind: str, layer: str) -> tuple[int, tuple[Column | None, ...]]:
    """Bytes of the header of such a message, and where in it the fields of a ``ManagementMessage`` are."""
    names = (
        "requestid" if kind.startswith("SIDR") else "localcommid",
        "remotecommid",
        "qpn" if kind == "SIDR_REP" else "localqpn",
        "remoteqpneecn",
        "startpsn",
        "serviceid",
        "responderres" if kind == "REQ" else "respres",
        "initdepth",
        "retrcount",
        "rnrretrcount",
        "pppmtu",
        "reason",
        "prim_localacktout",
    )
    layout = compiled(layer)
    return layout.size, tuple(layout.columns.get(name) for name in names)


def _whole(columns: Iterable[Column | None], body: bytes) -> list[Any]:
    """Fields of at most 64 bits, all of which the body holds."""
    read = int.from_bytes
    return [
        None if one is None else read(body[one.first : one.first + one.width], "big") >> one.shift & one.mask  # type: ignore[operator]
        for one in columns
    ]


def mad_values(datagram: bytes) -> tuple[dict[str, Any], str, dict[str, Any]]:
    """The header of a Management Datagram, what CM message it holds ('' for none), and the fields of that.

    Fields behind the end of the bytes are None; what is longer than 64 bits is bytes.
    """
    header = _values("MAD", datagram[:MAD_HEADER_SIZE])
    kind, layer = _what(datagram)
    return header, kind, _values(layer, datagram[MAD_HEADER_SIZE:]) if kind else {}


def _what(datagram: bytes) -> tuple[str, str]:
    """The name of the CM message in a Management Datagram and that of its layer, '' for none."""
    if len(datagram) < ATTRIBUTE_ID + 2 or datagram[MANAGEMENT_CLASS] != CLASS_CM or datagram[METHOD] != METHOD_SEND:
        return "", ""
    return CM_LAYERS.get(datagram[ATTRIBUTE_ID] << 8 | datagram[ATTRIBUTE_ID + 1], ("", ""))


def _values(layer: str, data: bytes) -> dict[str, Any]:
    """The fields of one header by name, None for those that do not lie wholly in ``data``."""
    return {name: _value(column, data) for name, column in compiled(layer).columns.items()}


def _value(column: Column, data: bytes) -> Any:
    behind = column.first + column.width
    if behind * 8 - column.shift > len(data) * 8:
        return None
    if column.mask is None:
        return data[column.first : behind]
    return int.from_bytes(data[column.first : behind].ljust(column.width, b"\0"), "big") >> column.shift & column.mask
