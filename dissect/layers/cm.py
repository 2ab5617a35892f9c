"""Communication Management messages (IBA volume 1, chapter 12) and the RDMA IP CM Service (annex A11).

Field names are Wireshark's (``infiniband.cm.req.*`` and so on) where it has one.  A message fills the 232
bytes behind the MAD header; its private data are its payload, and are padded with zeros when built.
"""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address
from typing import Any

from scapy.fields import (
    BitField,
    ByteEnumField,
    ByteField,
    ShortEnumField,
    ShortField,
    StrFixedLenField,
    X3BytesField,
    XBitField,
    XByteField,
    XIntField,
    XLongField,
    XShortField,
    XStrFixedLenField,
)
from scapy.packet import bind_bottom_up, bind_top_down

from .bth import Header
from .mad import CLASS_CM, MAD, METHOD_SEND
from .opcodes import PATH_MTU
from .private_data import private_data_class

REJECT_REASONS = {  # 12.6.7
    1: "No QP available",
    2: "No EEC available",
    3: "No resources available",
    4: "Timeout",
    5: "Unsupported request",
    6: "Invalid Communication ID",
    7: "Invalid Communication Instance",
    8: "Invalid Service ID",
    9: "Invalid transport service type",
    10: "Stale connection",
    11: "RDC does not exist",
    12: "Primary remote port GID rejected",
    13: "Primary remote port LID rejected",
    14: "Invalid primary SL",
    15: "Invalid primary traffic class",
    16: "Invalid primary hop limit",
    17: "Invalid primary packet rate",
    18: "Alternate remote port GID rejected",
    19: "Alternate remote port LID rejected",
    20: "Invalid alternate SL",
    21: "Invalid alternate traffic class",
    22: "Invalid alternate hop limit",
    23: "Invalid alternate packet rate",
    24: "Port and CM redirection",
    25: "Port redirection",
    26: "Invalid path MTU",
    27: "Insufficient responder resources",
    28: "Consumer reject",
    29: "RNR retry count reject",
    30: "Duplicate Local Communication ID",
    31: "Invalid class version",
    32: "Invalid primary flow label",
    33: "Invalid alternate flow label",
    35: "Vendor option is not supported",
}

REJECTED_MESSAGES = {0: "REQ", 1: "REP", 2: "No message"}  # 12.6.7
RECEIVED_MESSAGES = {0: "REQ", 1: "REP", 2: "LAP"}  # 12.6.6
TRANSPORT_SERVICES = {0: "RC", 1: "UC", 2: "RD", 3: "Extended"}  # 12.7
_PATH_MTU_NAMES = {code: f"{size} bytes" for code, size in PATH_MTU.items()}

ALTERNATE_PATH_STATUSES = {  # 12.8.2
    0: "Alternate path information loaded",
    1: "Invalid Communication ID",
    2: "Alternate paths not supported",
    3: "Failover port rejected",
    4: "Redirect",
    5: "Proposed alternate path matches current primary path",
    6: "QPN or EECN does not match the Communication IDs",
    7: "Proposed alternate remote port LID rejected",
    8: "Proposed alternate remote port GID rejected",
    9: "Proposed alternate flow label rejected",
    10: "Proposed alternate traffic class rejected",
    11: "Proposed alternate hop limit rejected",
    12: "Proposed alternate packet rate rejected",
    13: "Proposed alternate SL rejected",
}

SIDR_STATUSES = {  # 12.11.2
    0: "QPN and Q_Key valid",
    1: "Service ID not supported",
    2: "Rejected by service provider",
    3: "No QP available",
    4: "Redirect",
    5: "Class version not supported",
}

IP_CM_SERVICE = 0x01
"""Bits 63..24 of the service IDs of the RDMA IP CM Service (A11.3)."""


def service_port(service_id: int) -> int | None:
    """Port of a service ID of the RDMA IP CM Service, 0x0000000001PPNNNN: protocol PP, port NNNN (A11.3)."""
    return service_id & 0xFFFF if service_id >> 24 == IP_CM_SERVICE else None


def address_text(address: bytes, version: int | None = None) -> str:
    """A 16-byte address as text: IPv4 where it is an IPv4-mapped GID, or where ``version`` 4 says so."""
    if version == 4:
        return str(ip_address(address[12:]))
    ipv6 = IPv6Address(address)
    return str(ipv6.ipv4_mapped or ipv6)


class NamedBits(BitField):  # type: ignore[misc]
    """A bit field whose values have names."""

    __slots__ = ("names",)

    def __init__(self, name: str, default: int, size: int, names: dict[int, str]) -> None:
        super().__init__(name, default, size)
        self.names = names

    def i2repr(self, pkt: Any, value: int) -> str:
        return self.names.get(value, str(value))


class AddressField(StrFixedLenField):  # type: ignore[misc]
    """A GID in 16 bytes; takes text too, IPv4 being mapped into ::ffff:0:0/96 (RFC 4291, 2.5.5)."""

    prefix = bytes(10) + b"\xff\xff"
    """Before the four bytes of an IPv4 address."""

    def __init__(self, name: str, default: str | bytes = bytes(16)) -> None:
        super().__init__(name, self.any2i(None, default), length=16)

    def any2i(self, pkt: Any, value: Any) -> Any:
        if not isinstance(value, str):
            return super().any2i(pkt, value)
        address = ip_address(value)
        return self.prefix + address.packed if address.version == 4 else address.packed

    def i2repr(self, pkt: Any, value: bytes) -> str:
        return address_text(value) if len(value) == 16 else repr(value)


class IPAddressField(AddressField):
    """An address of the RDMA IP CM header: IPv4 in the last four bytes, zeros before them (A11.4)."""

    prefix = bytes(12)

    def i2repr(self, pkt: Any, value: bytes) -> str:
        if len(value) != 16:
            return repr(value)
        return address_text(value, getattr(pkt, "ipv", None))


class CMMessage(Header):
    """What all messages share: a fixed part, and private data of a fixed size behind it."""

    private_data_size = 0

    def post_build(self, header: bytes, payload: bytes) -> bytes:
        return header + payload.ljust(self.private_data_size, b"\0")

    def extract_padding(self, data: bytes) -> tuple[bytes, bytes]:
        return data[: self.private_data_size], data[self.private_data_size :]

    def guess_payload_class(self, payload: bytes) -> type[Any]:
        return private_data_class(payload)


def _path(prefix: str) -> tuple[Any, ...]:
    """44 bytes of a path (12.6.5)."""
    return (
        ShortField(f"{prefix}_locallid", 0),
        ShortField(f"{prefix}_remotelid", 0),
        AddressField(f"{prefix}_localgid"),
        AddressField(f"{prefix}_remotegid"),
        XBitField(f"{prefix}_flowlabel", 0, 20),
        BitField(f"{prefix}_reserved0", 0, 6),
        BitField(f"{prefix}_pktrate", 0, 6),
        XByteField(f"{prefix}_tfcclass", 0),
        ByteField(f"{prefix}_hoplim", 0),
        BitField(f"{prefix}_sl", 0, 4),
        BitField(f"{prefix}_subnetlocal", 0, 1),
        BitField(f"{prefix}_reserved1", 0, 3),
        BitField(f"{prefix}_localacktout", 0, 5),
    )


class CMRequest(CMMessage):
    """REQ: 140 bytes, and 92 bytes of private data (12.6.5)."""

    name = "CM ConnectRequest"
    private_data_size = 92
    fields_desc = (
        XIntField("localcommid", 0),
        ByteField("reserved0", 0),
        X3BytesField("vendorid", 0),
        XLongField("serviceid", 0),
        XLongField("localcaguid", 0),
        XIntField("reserved1", 0),
        XIntField("localqkey", 0),
        X3BytesField("localqpn", 0),
        ByteField("responderres", 0),
        X3BytesField("localeecn", 0),
        ByteField("initdepth", 0),
        X3BytesField("remoteeecn", 0),
        BitField("remoteresptout", 0, 5),
        NamedBits("transpsvctype", 0, 2, TRANSPORT_SERVICES),
        BitField("e2eflowctrl", 0, 1),
        X3BytesField("startpsn", 0),
        BitField("localresptout", 0, 5),
        BitField("retrcount", 0, 3),
        XShortField("pkey", 0xFFFF),
        NamedBits("pppmtu", 3, 4, _PATH_MTU_NAMES),
        BitField("rdcexist", 0, 1),
        BitField("rnrretrcount", 0, 3),
        BitField("maxcmretr", 0, 4),
        BitField("srq", 0, 1),
        BitField("ext_transport", 0, 3),
        *_path("prim"),
        BitField("prim_reserved2", 0, 3),
        *_path("alt"),
        BitField("sapsupported", 0, 1),
        BitField("alt_reserved2", 0, 2),
    )

    def guess_payload_class(self, payload: bytes) -> type[Any]:
        if service_port(self.serviceid) is not None and len(payload) >= IP_CM_SIZE:
            return IPCMRequest
        return super().guess_payload_class(payload)

    def mysummary(self) -> str:
        return f"CM REQ QPN 0x{self.localqpn:06x} PSN 0x{self.startpsn:06x}"


IP_CM_SIZE = 36


class IPCMRequest(Header):
    """The RDMA IP CM Service's part of a REQ's private data: 36 of the 92 bytes (A11.4)."""

    name = "IP CM request"
    fields_desc = (
        BitField("majv", 0, 4),
        BitField("minv", 0, 4),
        BitField("ipv", 4, 4),
        BitField("reserved", 0, 4),
        ShortField("sport", 0),
        IPAddressField("sip"),
        IPAddressField("dip"),
    )

    def guess_payload_class(self, payload: bytes) -> type[Any]:
        return private_data_class(payload)


class CMMsgRcptAck(CMMessage):
    """MRA: message receipt acknowledgement; 10 bytes, and 222 bytes of private data (12.6.6)."""

    name = "CM MsgRcptAck"
    private_data_size = 222
    fields_desc = (
        XIntField("localcommid", 0),
        XIntField("remotecommid", 0),
        NamedBits("msgmraed", 0, 2, RECEIVED_MESSAGES),
        BitField("reserved0", 0, 6),
        BitField("servicetimeout", 0, 5),
        BitField("reserved1", 0, 3),
    )


class CMReject(CMMessage):
    """REJ: 84 bytes with 72 bytes of additional information, and 148 bytes of private data (12.6.7)."""

    name = "CM ConnectReject"
    private_data_size = 148
    fields_desc = (
        XIntField("localcommid", 0),
        XIntField("remotecommid", 0),
        NamedBits("msgrej", 0, 2, REJECTED_MESSAGES),
        BitField("reserved0", 0, 6),
        BitField("rejinfolen", 0, 7),
        BitField("reserved1", 0, 1),
        ShortEnumField("reason", 28, REJECT_REASONS),
        XStrFixedLenField("ari", bytes(72), length=72),
    )

    def mysummary(self) -> str:
        return str(self.sprintf("CM REJ %CMReject.reason%"))


class CMReply(CMMessage):
    """REP: 36 bytes, and 196 bytes of private data (12.6.8)."""

    name = "CM ConnectReply"
    private_data_size = 196
    fields_desc = (
        XIntField("localcommid", 0),
        XIntField("remotecommid", 0),
        XIntField("localqkey", 0),
        X3BytesField("localqpn", 0),
        ByteField("vendorid_h", 0),
        X3BytesField("localeecn", 0),
        ByteField("vendorid_m", 0),
        X3BytesField("startpsn", 0),
        ByteField("vendorid_l", 0),
        ByteField("respres", 0),
        ByteField("initdepth", 0),
        BitField("tgtackdelay", 0, 5),
        BitField("failoveracc", 0, 2),
        BitField("e2eflowctrl", 0, 1),
        BitField("rnrretrcount", 0, 3),
        BitField("srq", 0, 1),
        BitField("reserved", 0, 4),
        XLongField("localcaguid", 0),
    )

    def mysummary(self) -> str:
        return f"CM REP QPN 0x{self.localqpn:06x} PSN 0x{self.startpsn:06x}"


class CMReadyToUse(CMMessage):
    """RTU: 8 bytes, and 224 bytes of private data (12.6.9)."""

    name = "CM ReadyToUse"
    private_data_size = 224
    fields_desc = (XIntField("localcommid", 0), XIntField("remotecommid", 0))


class CMDisconnectRequest(CMMessage):
    """DREQ: 12 bytes, and 220 bytes of private data (12.6.10)."""

    name = "CM DisconnectRequest"
    private_data_size = 220
    fields_desc = (
        XIntField("localcommid", 0),
        XIntField("remotecommid", 0),
        X3BytesField("remoteqpneecn", 0),
        ByteField("reserved", 0),
    )


class CMDisconnectReply(CMMessage):
    """DREP: 8 bytes, and 224 bytes of private data (12.6.11)."""

    name = "CM DisconnectReply"
    private_data_size = 224
    fields_desc = (XIntField("localcommid", 0), XIntField("remotecommid", 0))


class CMLoadAlternatePath(CMMessage):
    """LAP: 64 bytes, and 168 bytes of private data (12.8.1)."""

    name = "CM LoadAlternatePath"
    private_data_size = 168
    fields_desc = (
        XIntField("localcommid", 0),
        XIntField("remotecommid", 0),
        XIntField("reserved0", 0),
        X3BytesField("remoteqpneecn", 0),
        BitField("remoteresptout", 0, 5),
        BitField("reserved1", 0, 3),
        XIntField("reserved2", 0),
        ShortField("alt_locallid", 0),
        ShortField("alt_remotelid", 0),
        AddressField("alt_localgid"),
        AddressField("alt_remotegid"),
        XBitField("alt_flowlabel", 0, 20),
        BitField("alt_reserved0", 0, 4),
        XByteField("alt_tfcclass", 0),
        ByteField("alt_hoplim", 0),
        BitField("alt_reserved1", 0, 2),
        BitField("alt_pktrate", 0, 6),
        BitField("alt_sl", 0, 4),
        BitField("alt_subnetlocal", 0, 1),
        BitField("alt_reserved2", 0, 3),
        BitField("alt_localacktout", 0, 5),
        BitField("alt_reserved3", 0, 3),
    )


class CMAlternatePathResponse(CMMessage):
    """APR: 84 bytes with 72 bytes of additional information, and 148 bytes of private data (12.8.2)."""

    name = "CM AlternatePathResponse"
    private_data_size = 148
    fields_desc = (
        XIntField("localcommid", 0),
        XIntField("remotecommid", 0),
        ByteField("addinfolen", 0),
        ByteEnumField("apstatus", 0, ALTERNATE_PATH_STATUSES),
        ShortField("reserved", 0),
        XStrFixedLenField("addinfo", bytes(72), length=72),
    )


class CMServiceIDRequest(CMMessage):
    """SIDR_REQ: service ID resolution request; 16 bytes, and 216 bytes of private data (12.11.1)."""

    name = "CM ServiceIDResReq"
    private_data_size = 216
    fields_desc = (
        XIntField("requestid", 0),
        XShortField("pkey", 0xFFFF),
        ShortField("reserved", 0),
        XLongField("serviceid", 0),
    )

    def guess_payload_class(self, payload: bytes) -> type[Any]:
        if service_port(self.serviceid) is not None and len(payload) >= IP_CM_SIZE:
            return IPCMRequest
        return super().guess_payload_class(payload)


class CMServiceIDReply(CMMessage):
    """SIDR_REP: 96 bytes with 72 bytes of additional information, and 136 bytes of private data (12.11.2)."""

    name = "CM ServiceIDResReqResp"
    private_data_size = 136
    fields_desc = (
        XIntField("requestid", 0),
        ByteEnumField("status", 0, SIDR_STATUSES),
        ByteField("addinfolen", 0),
        XShortField("vendorid_h", 0),
        X3BytesField("qpn", 0),
        ByteField("vendorid_l", 0),
        XLongField("serviceid", 0),
        XIntField("qkey", 0),
        XStrFixedLenField("addinfo", bytes(72), length=72),
    )


CM_MESSAGES: dict[int, tuple[str, Any]] = {  # 16.7.3
    0x0010: ("REQ", CMRequest),
    0x0011: ("MRA", CMMsgRcptAck),
    0x0012: ("REJ", CMReject),
    0x0013: ("REP", CMReply),
    0x0014: ("RTU", CMReadyToUse),
    0x0015: ("DREQ", CMDisconnectRequest),
    0x0016: ("DREP", CMDisconnectReply),
    0x0017: ("SIDR_REQ", CMServiceIDRequest),
    0x0018: ("SIDR_REP", CMServiceIDReply),
    0x0019: ("LAP", CMLoadAlternatePath),
    0x001A: ("APR", CMAlternatePathResponse),
}
"""Attribute ID of a ComMgt MAD with method Send: the message's short name and its layer."""

for _attribute, (_kind, _message) in CM_MESSAGES.items():
    bind_bottom_up(MAD, _message, mgmtclass=CLASS_CM, method=METHOD_SEND, attributeid=_attribute)
    bind_top_down(MAD, _message, mgmtclass=CLASS_CM, classversion=2, method=METHOD_SEND, attributeid=_attribute)
