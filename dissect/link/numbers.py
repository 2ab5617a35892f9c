"""Assigned numbers of the headers before an RDMA packet: link types, EtherTypes, IP protocols, UDP ports."""

from __future__ import annotations

ETHERNET = 1
LINUX_SLL = 113
ERF = 197
INFINIBAND = 247
LINUX_SLL2 = 276
IPV4_ONLY = 228
IPV6_ONLY = 229
RAW_IP = (12, 14, 101, IPV4_ONLY, IPV6_ONLY)
"""Link types that begin with the IP header; old files use 12 and 14 for DLT_RAW."""

COOKED = {  # link type: (where the EtherType is, bytes of the header)
    LINUX_SLL: (14, 16),
    LINUX_SLL2: (0, 20),
}

LINK_TYPES = {  # https://www.tcpdump.org/linktypes.html
    0: "BSD loopback",
    ETHERNET: "Ethernet",
    12: "Raw IP",
    14: "Raw IP",
    101: "Raw IP",
    105: "IEEE 802.11",
    108: "OpenBSD loopback",
    LINUX_SLL: "Linux cooked",
    127: "IEEE 802.11 with radiotap",
    189: "USB",
    ERF: "ERF",
    220: "USB",
    IPV4_ONLY: "Raw IPv4",
    IPV6_ONLY: "Raw IPv6",
    242: "IP over InfiniBand",
    INFINIBAND: "InfiniBand",
    253: "Linux netlink",
    LINUX_SLL2: "Linux cooked v2",
}

IPV4 = 0x0800
IPV6 = 0x86DD
ETHERNET_BRIDGED = 0x6558
"""Transparent Ethernet Bridging (RFC 1701)."""
MPLS = (0x8847, 0x8848)
ROCE_ETHERTYPE = 0x8915
"""RoCEv1 (InfiniBand Architecture, Annex A16)."""
TAGS = (0x8100, 0x88A8, 0x9100)
"""EtherTypes of a VLAN tag: IEEE 802.1Q customer and service tags, and the older QinQ."""

ETHERTYPES = {  # IEEE 802 Numbers, IANA
    0x0806: "ARP",
    0x8035: "RARP",
    0x8808: "Ethernet flow control",
    0x8809: "LACP",
    0x8863: "PPPoE",
    0x8864: "PPPoE",
    0x888E: "EAPOL",
    0x88CC: "LLDP",
    0x88E5: "MACsec",
    0x88F7: "PTP",
    0x8906: "FCoE",
    0x8914: "FCoE",
}

IPV4_INSIDE = 4
IPV6_INSIDE = 41
TCP = 6
UDP = 17
GRE = 47
MPLS_INSIDE = 137
AUTHENTICATION = 51
FRAGMENT = 44
EXTENSIONS = (0, 43, 60, 135, 139, 140)
"""IPv6 extension headers whose second byte counts 8-byte units after the first (RFC 8200, RFC 6564)."""

PROTOCOLS = {  # Assigned Internet Protocol Numbers, IANA
    1: "ICMP",
    2: "IGMP",
    6: "TCP",
    50: "ESP",
    58: "ICMPv6",
    59: "IPv6 without next header",
    89: "OSPF",
    103: "PIM",
    112: "VRRP",
    132: "SCTP",
    136: "UDP-Lite",
}

ROCE_PORT = 4791
"""UDP destination port of RoCEv2 (IANA; InfiniBand Architecture, Annex A17)."""
VXLAN_PORTS = (4789, 8472)
"""IANA's (RFC 7348), and the one that Linux used before."""
GENEVE_PORT = 6081
"""RFC 8926."""
MPLS_PORT = 6635
"""RFC 7510."""

IBA_TRANSPORT = 0x1B
"""Next header of a Global Route Header before a BTH (IBA 8.3)."""
