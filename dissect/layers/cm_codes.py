"""The codes of Connection Management as tables, for those who read it without Scapy (IBA volume 1, 12 and 16.7.3)."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv6Address, ip_address

CLASS_CM = 0x07
"""Management class (13.4.4)."""
METHOD_SEND = 0x03
"""The method of all CM messages (16.7.2)."""

IP_CM_SIZE = 36
"""Bytes of the RDMA IP CM Service's header in the private data of a REQ (A11.4)."""

CM_LAYERS = {  # 16.7.3
    0x0010: ("REQ", "CMRequest"),
    0x0011: ("MRA", "CMMsgRcptAck"),
    0x0012: ("REJ", "CMReject"),
    0x0013: ("REP", "CMReply"),
    0x0014: ("RTU", "CMReadyToUse"),
    0x0015: ("DREQ", "CMDisconnectRequest"),
    0x0016: ("DREP", "CMDisconnectReply"),
    0x0017: ("SIDR_REQ", "CMServiceIDRequest"),
    0x0018: ("SIDR_REP", "CMServiceIDReply"),
    0x0019: ("LAP", "CMLoadAlternatePath"),
    0x001A: ("APR", "CMAlternatePathResponse"),
}
"""Attribute ID of a CM message: its short name and its layer in cm.py."""

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


IPOIB_SERVICE = 0x10
"""Bits 63..56 of the service IDs of IP over InfiniBand in connected mode, on RC (RFC 4755, 3.5)."""


def is_ipoib(service_id: int) -> bool:
    """Whether a service ID is of IP over InfiniBand; its last 24 bits are then a queue pair number."""
    return service_id >> 24 == IPOIB_SERVICE << 32


def service_port(service_id: int) -> int | None:
    """Port of a service ID of the RDMA IP CM Service, 0x0000000001PPNNNN: protocol PP, port NNNN (A11.3)."""
    return service_id & 0xFFFF if service_id >> 24 == IP_CM_SERVICE else None


@lru_cache(maxsize=1024)
def address_text(address: bytes, version: int | None = None) -> str:
    """A 16-byte address as text: IPv4 where it is an IPv4-mapped GID, or where ``version`` 4 says so."""
    if version == 4:
        return str(ip_address(address[12:]))
    ipv6 = IPv6Address(address)
    return str(ipv6.ipv4_mapped or ipv6)
