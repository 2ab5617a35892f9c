"""Management Datagrams: the common header (IBA volume 1, 13.4.2 and 13.4.3).

Field names are Wireshark's (``infiniband.mad.*``).
"""

from __future__ import annotations

from scapy.fields import (
    ByteEnumField,
    ByteField,
    MultiEnumField,
    ShortField,
    XIntField,
    XLongField,
    XShortField,
)

from .cm_codes import CLASS_CM, METHOD_SEND
from .layer import Header

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
