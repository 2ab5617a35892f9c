"""The kernel's filter: a classic BPF program that keeps RDMA and drops the rest before it is copied.

Linux, Documentation/networking/filter.rst.  Kept are RoCEv1 by its EtherType, RoCEv2 by its UDP port, over IPv4 and
IPv6, with up to two VLAN tags that the kernel left in the frame (it takes the first one out of what it receives), and
TCP on the ports of iWARP.  A later fragment of an IP packet names no port, so only the first ones are kept; nothing
that carries RDMA sends fragments.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from rdmascope.dissect.link.numbers import (
    GENEVE_PORT,
    GRE,
    IPV4,
    IPV4_INSIDE,
    IPV6,
    IPV6_INSIDE,
    MPLS,
    MPLS_INSIDE,
    MPLS_PORT,
    ROCE_ETHERTYPE,
    ROCE_PORT,
    TAGS,
    TCP,
    UDP,
    VXLAN_PORTS,
)

from ..errors import CaptureError

SO_ATTACH = 26
"""Socket option SO_ATTACH_FILTER (asm-generic/socket.h)."""
MAX_PORTS = 64
"""A conditional jump reaches 255 instructions."""
TUNNEL_PORTS = (*VXLAN_PORTS, GENEVE_PORT, MPLS_PORT)
TUNNELS = (GRE, IPV4_INSIDE, IPV6_INSIDE, MPLS_INSIDE)
SEVERAL_TAGS = 2
EXTENSIONS = (0, 43, 60)
"""IPv6 headers that begin with the next header and their length: hop-by-hop, routing, destination (RFC 8200, 4)."""
FRAGMENT = 44

LDB_ABS, LDH_ABS, LDW_ABS = 0x30, 0x28, 0x20
LDH_IND, LDX_IHL, LDX_IMM = 0x48, 0xB1, 0x01
ADD, SHIFT_LEFT, TAX, RETURN = 0x04, 0x64, 0x07, 0x06
JUMP, EQUAL, ANY_BIT = 0x05, 0x15, 0x45

PROTOCOL, PACKET_TYPE = 0xFFFFF000, 0xFFFFF004
"""Where the kernel answers with what it knows of a packet (linux/filter.h, SKF_AD_OFF)."""
OUTGOING = 4

Step = tuple[int, int, str, str]
"""Code, operand, where to go on if the condition holds and if not; '' is the next instruction."""


@dataclass(frozen=True, slots=True)
class Filter:
    """What to keep."""

    ports: tuple[int, ...]
    """TCP ports of iWARP."""
    all_tcp: bool = False
    tunnels: bool = False
    """VXLAN, GENEVE, GRE, MPLS and IP in IP, whatever is inside."""

    @property
    def words(self) -> str:
        """As tcpdump takes it, so that a reader of the capture knows what cannot be in it."""
        parts = [f"udp dst port {ROCE_PORT}", f"ether proto {ROCE_ETHERTYPE:#x}"]
        parts += ["tcp"] if self.all_tcp else [f"tcp port {port}" for port in self.ports]
        if self.tunnels:
            parts += [f"udp dst port {port}" for port in TUNNEL_PORTS]
            parts += [f"{ip} proto {kind}" for kind in TUNNELS for ip in ("ip", "ip6")] + ["mpls"]
        return " or ".join(parts)

    def program(self, snaplen: int, cooked: bool, incoming_only: bool = False) -> bytes:
        """The instructions, 8 bytes each in the machine's byte order; they return ``snaplen`` or 0.

        ``cooked``: frames come without link header.  ``incoming_only``: what the loopback interface sends it also
        receives.
        """
        if len(self.ports) > MAX_PORTS:
            raise CaptureError(f"{len(self.ports)} ports are more than the {MAX_PORTS} that a filter has room for")
        return assemble(list(self._steps(snaplen, cooked, incoming_only)))

    def _steps(self, snaplen: int, cooked: bool, incoming_only: bool) -> Iterator[Step | str]:
        if incoming_only:
            yield from ((LDW_ABS, PACKET_TYPE, "", ""), (EQUAL, OUTGOING, "drop", ""))
        if cooked:
            yield (LDW_ABS, PROTOCOL, "", "")
            yield from self._network(0, "drop")
        else:
            for tags in range(SEVERAL_TAGS + 1):
                yield f"tag{tags}"
                yield (LDH_ABS, 12 + 4 * tags, "", "")
                further = f"tag{tags + 1}" if tags < SEVERAL_TAGS else "drop"
                yield from self._network(14 + 4 * tags, further)
                # Each part has its own ends: jumps are short.
                yield from (f"keep@{14 + 4 * tags}", (RETURN, snaplen, "", ""))
                yield from (f"drop@{14 + 4 * tags}", (RETURN, 0, "", ""))
        yield from ("drop", (RETURN, 0, "", ""))
        if cooked:
            yield from ("keep@0", (RETURN, snaplen, "", ""), "drop@0", (RETURN, 0, "", ""))

    def _network(self, ip: int, further: str) -> Iterator[Step | str]:
        """The EtherType is loaded; the IP header would begin at ``ip``."""
        keep, drop, four, six, further_here = (f"{name}@{ip}" for name in ("keep", "drop", "four", "six", "tag"))
        transport = f"transport@{ip}"
        yield (EQUAL, IPV4, four, "")
        yield (EQUAL, IPV6, six, "")
        yield (EQUAL, ROCE_ETHERTYPE, keep, "")
        if self.tunnels:
            yield from ((EQUAL, kind, keep, "") for kind in MPLS)
        if further != "drop":
            yield from ((EQUAL, kind, further_here, "") for kind in TAGS)
        yield (JUMP, 0, drop, "")
        if further != "drop":
            yield from (further_here, (JUMP, 0, further, ""))

        yield four  # RFC 791, 3.1
        yield from ((LDH_ABS, ip + 6, "", ""), (ANY_BIT, 0x1FFF, drop, ""))
        yield from ((LDX_IHL, ip, "", ""), (LDB_ABS, ip + 9, "", ""), (JUMP, 0, transport, ""))

        yield six  # RFC 8200, 3 and 4; one extension header is looked behind
        yield from ((LDX_IMM, 40, "", ""), (LDB_ABS, ip + 6, "", ""))
        yield from ((EQUAL, kind, f"extension@{ip}", "") for kind in EXTENSIONS)
        yield from ((EQUAL, FRAGMENT, "", transport), (LDH_ABS, ip + 42, "", ""), (ANY_BIT, 0xFFF8, drop, ""))
        yield from ((LDX_IMM, 48, "", ""), (LDB_ABS, ip + 40, "", ""), (JUMP, 0, transport, ""))
        yield f"extension@{ip}"
        yield from ((LDB_ABS, ip + 41, "", ""), (SHIFT_LEFT, 3, "", ""), (ADD, 48, "", ""), (TAX, 0, "", ""))
        yield (LDB_ABS, ip + 40, "", "")

        yield transport  # A is the protocol, X the length of the IP header
        yield (EQUAL, UDP, f"udp@{ip}", "")
        if self.tunnels:
            yield from ((EQUAL, kind, keep, "") for kind in TUNNELS)
        yield (EQUAL, TCP, keep if self.all_tcp else "", drop)
        if not self.all_tcp:
            for at in (ip, ip + 2):
                yield (LDH_IND, at, "", "")
                yield from ((EQUAL, port, keep, "") for port in self.ports)
        yield (JUMP, 0, drop, "")
        yield from (f"udp@{ip}", (LDH_IND, ip + 2, "", ""))
        if self.tunnels:
            yield from ((EQUAL, port, keep, "") for port in TUNNEL_PORTS)
        yield (EQUAL, ROCE_PORT, keep, drop)


def assemble(steps: list[Step | str]) -> bytes:
    """The program, with labels (strings among the steps) replaced by distances."""
    places: dict[str, int] = {}
    program: list[Step] = []
    for step in steps:
        if isinstance(step, str):
            places[step] = len(program)
        else:
            program.append(step)
    code = bytearray()
    for at, (operation, operand, yes, no) in enumerate(program):
        near, far = (places[label] - at - 1 if label else 0 for label in (yes, no))
        if operation == JUMP:
            operand, near = near, 0
        code += struct.pack("=HBBI", operation, near, far, operand)
    return bytes(code)
