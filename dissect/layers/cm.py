"""Management Datagrams with their common header (IBA volume 1, 13.4.2 and 13.4.3), Communication Management messages
(chapter 12) and the RDMA IP CM Service (annex A11).

Field names are Wireshark's (``infiniband.mad.*``, ``infiniband.cm.req.*`` and so on) where it has one.  A message fills
the 232 bytes behind the MAD header; its private data are its payload, and are padded with zeros when built.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any

from scapy.fields import (
    BitField,
    ByteEnumField,
    ByteField,
    MultiEnumField,
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

from .cm_codes import (
    ALTERNATE_PATH_STATUSES,
    CLASS_CM,
    CM_LAYERS,
    IP_CM_SIZE,
    METHOD_SEND,
    RECEIVED_MESSAGES,
    REJECT_REASONS,
    REJECTED_MESSAGES,
    SIDR_STATUSES,
    TRANSPORT_SERVICES,
    address_text,
    service_port,
)
from .layer import Header
from .opcodes import PATH_MTU
from .private_data import private_data_class

CLASS_SUBN, CLASS_SUBN_DIRECTED, CLASS_SUBN_ADM, CLASS_PERF = 0x01, 0x81, 0x03, 0x04

MANAGEMENT_CLASSES = {  # 13.4.4
    0x01: "Subn (LID routed)",
    0x81: "Subn (directed route)",
    0x03: "SubnAdm",
    0x04: "Perf",
    0x05: "BM",
    0x06: "DevMgt",
    0x07: "ComMgt",
    0x08: "SNMP",
    0x10: "DevAdm",
    0x11: "BootMgt",
    0x12: "BIS",
    0x21: "CongestionControl",
}


METHODS = {
    0x01: "Get",  # 13.4.5
    0x02: "Set",
    0x81: "GetResp",
    0x03: "Send",
    0x05: "Trap",
    0x06: "Report",
    0x86: "ReportResp",
    0x07: "TrapRepress",
    0x12: "GetTable",  # 15.2.2, subnet administration
    0x92: "GetTableResp",
    0x13: "GetTraceTable",
    0x14: "GetMulti",
    0x94: "GetMultiResp",
    0x15: "Delete",
    0x95: "DeleteResp",
}

_COMMON = {0x0001: "ClassPortInfo", 0x0002: "Notice", 0x0003: "InformInfo"}  # 13.4.8

_SUBN = _COMMON | {  # 14.2.5
    0x0010: "NodeDescription",
    0x0011: "NodeInfo",
    0x0012: "SwitchInfo",
    0x0014: "GUIDInfo",
    0x0015: "PortInfo",
    0x0016: "P_KeyTable",
    0x0017: "SLtoVLMappingTable",
    0x0018: "VLArbitrationTable",
    0x0019: "LinearForwardingTable",
    0x001A: "RandomForwardingTable",
    0x001B: "MulticastForwardingTable",
    0x0020: "SMInfo",
    0x0030: "VendorDiag",
    0x0031: "LedInfo",
}

CM_ATTRIBUTES = {  # 16.7.3
    0x0001: "ClassPortInfo",
    0x0010: "ConnectRequest",
    0x0011: "MsgRcptAck",
    0x0012: "ConnectReject",
    0x0013: "ConnectReply",
    0x0014: "ReadyToUse",
    0x0015: "DisconnectRequest",
    0x0016: "DisconnectReply",
    0x0017: "ServiceIDResReq",
    0x0018: "ServiceIDResReqResp",
    0x0019: "LoadAlternatePath",
    0x001A: "AlternatePathResponse",
    0x001B: "SuggestAlternatePath",
    0x001C: "SuggestPathResponse",
}

ATTRIBUTES = {
    CLASS_SUBN: _SUBN,
    CLASS_SUBN_DIRECTED: _SUBN,
    CLASS_SUBN_ADM: _COMMON
    | {  # 15.2.5
        0x0011: "NodeRecord",
        0x0012: "PortInfoRecord",
        0x0031: "ServiceRecord",
        0x0033: "P_KeyTableRecord",
        0x0035: "PathRecord",
        0x0038: "MCMemberRecord",
        0x0039: "TraceRecord",
        0x003A: "MultiPathRecord",
        0x00F3: "InformInfoRecord",
    },
    CLASS_PERF: {  # 16.1.3
        0x0001: "ClassPortInfo",
        0x0010: "PortSamplesControl",
        0x0011: "PortSamplesResult",
        0x0012: "PortCounters",
        0x001D: "PortCountersExtended",
    },
    CLASS_CM: CM_ATTRIBUTES,
}


class MAD(Header):
    """The common header of a Management Datagram: 24 of its 256 bytes (13.4.3)."""

    name = "MAD"
    fields_desc = (
        ByteField("baseversion", 1),
        ByteEnumField("mgmtclass", CLASS_CM, MANAGEMENT_CLASSES),
        ByteField("classversion", 1),
        ByteEnumField("method", METHOD_SEND, METHODS),
        XShortField("status", 0),
        XShortField("classspecific", 0),
        XLongField("transactionid", 0),
        MultiEnumField("attributeid", 0, ATTRIBUTES, lambda mad: mad.mgmtclass, "H"),
        ShortField("reserved", 0),
        XIntField("attributemodifier", 0),
    )

    def mysummary(self) -> str:
        return str(self.sprintf("MAD %MAD.mgmtclass% %MAD.method% %MAD.attributeid%"))


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


_PATH_MTU_NAMES = {code: f"{size} bytes" for code, size in PATH_MTU.items()}


class CMMessage(Header):
    """What all messages share: a fixed part, and private data of a fixed size behind it."""

    private_data_size = 0

    def post_build(self, header: bytes, payload: bytes) -> bytes:
        return header + payload.ljust(self.private_data_size, b"\0")

    def extract_padding(self, data: bytes) -> tuple[bytes, bytes]:
        return data[: self.private_data_size], data[self.private_data_size :]

    def guess_payload_class(self, payload: bytes) -> type[Any]:
        return private_data_class(payload)


_IDS = (XIntField("localcommid", 0), XIntField("remotecommid", 0))


class _ForService(CMMessage):
    """Messages to a service, whose private data may begin with addresses (A11.4)."""

    __slots__ = ()

    def guess_payload_class(self, payload: bytes) -> type[Any]:
        if service_port(self.serviceid) is not None and len(payload) >= IP_CM_SIZE:
            return IPCMRequest
        return super().guess_payload_class(payload)


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


class CMRequest(_ForService):
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

    def mysummary(self) -> str:
        return f"CM REQ QPN 0x{self.localqpn:06x} PSN 0x{self.startpsn:06x}"


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
        *_IDS,
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
        *_IDS,
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
        *_IDS,
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
    fields_desc = _IDS


class CMDisconnectRequest(CMMessage):
    """DREQ: 12 bytes, and 220 bytes of private data (12.6.10)."""

    name = "CM DisconnectRequest"
    private_data_size = 220
    fields_desc = (
        *_IDS,
        X3BytesField("remoteqpneecn", 0),
        ByteField("reserved", 0),
    )


class CMDisconnectReply(CMMessage):
    """DREP: 8 bytes, and 224 bytes of private data (12.6.11)."""

    name = "CM DisconnectReply"
    private_data_size = 224
    fields_desc = _IDS


class CMLoadAlternatePath(CMMessage):
    """LAP: 64 bytes, and 168 bytes of private data (12.8.1)."""

    name = "CM LoadAlternatePath"
    private_data_size = 168
    fields_desc = (
        *_IDS,
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
        *_IDS,
        ByteField("addinfolen", 0),
        ByteEnumField("apstatus", 0, ALTERNATE_PATH_STATUSES),
        ShortField("reserved", 0),
        XStrFixedLenField("addinfo", bytes(72), length=72),
    )


class CMServiceIDRequest(_ForService):
    """SIDR_REQ: service ID resolution request; 16 bytes, and 216 bytes of private data (12.11.1)."""

    name = "CM ServiceIDResReq"
    private_data_size = 216
    fields_desc = (
        XIntField("requestid", 0),
        XShortField("pkey", 0xFFFF),
        ShortField("reserved", 0),
        XLongField("serviceid", 0),
    )


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


CM_MESSAGES: dict[int, tuple[str, Any]] = {
    attribute: (kind, globals()[layer]) for attribute, (kind, layer) in CM_LAYERS.items()
}
"""Attribute ID of a ComMgt MAD with method Send: the message's short name and its layer."""

for _attribute, (_kind, _message) in CM_MESSAGES.items():
    bind_bottom_up(MAD, _message, mgmtclass=CLASS_CM, method=METHOD_SEND, attributeid=_attribute)
    bind_top_down(MAD, _message, mgmtclass=CLASS_CM, classversion=2, method=METHOD_SEND, attributeid=_attribute)
