"""Frames with other addresses, and with the new bytes of their Operations; checksums are right where they were.

Every header up to the transport is walked here by itself, one frame at a time; a frame of which anything is not
understood is not written at all.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rdmascope.dissect.layers import icrc
from rdmascope.dissect.layers.vcrc import vcrc, verify_vcrc
from rdmascope.dissect.link.numbers import ETHERNET, INFINIBAND, ROCE_PORT, TAGS, TCP, UDP

from .pseudonyms import Pseudonyms

RAW = {12, 14, 101, 228, 229}
"""Link types of frames that begin with an IP header."""
IPV4_TYPE, IPV6_TYPE, ROCEV1_TYPE, MPLS_TYPE, BRIDGED = 0x0800, 0x86DD, 0x8915, 0x8847, 0x6558
VXLAN, VXLAN_LINUX, GENEVE = 4789, 8472, 6081
EXTENSIONS = {0, 43, 60}
MAX_DEPTH = 8


class CannotBeAnonymousError(Exception):
    """Headers of a frame are not understood; the message says which."""


@dataclass(slots=True)
class Headers:
    """Where the headers of a frame are that matter here."""

    transport: int = 0
    """Of the BTH, or of the TCP header."""
    tcp: bool = False
    ip: list[tuple[int, int]] = field(default_factory=list)
    """IP headers and GRHs, with their version, the outermost first."""
    udp: list[int] = field(default_factory=list)
    """UDP headers, each behind the IP header of the same index in ``ip`` ..."""
    udp_under: list[int] = field(default_factory=list)
    """... which this list has."""
    local_route: int | None = None
    """Native InfiniBand: of the Local Route Header."""


class HeaderWalk:
    """Walks a frame, and replaces its addresses on the way."""

    def __init__(self, frame: bytearray, pseudonyms: Pseudonyms) -> None:
        self.frame = frame
        self.pseudonyms = pseudonyms
        self.found = Headers()
        self.depth = 0

    def walk(self, link_type: int) -> Headers:
        """Raises CannotBeAnonymousError."""
        try:
            if link_type == ETHERNET:
                self._ethernet(0)
            elif link_type in RAW:
                self._ip(0)
            elif link_type == 113:
                self._replace(6, 6, "mac")
                self._next(self._word(14), 16)
            elif link_type == 276:
                self._replace(12, 6, "mac")
                self._next(self._word(0), 20)
            elif link_type == INFINIBAND:
                self._infiniband()
            else:
                raise CannotBeAnonymousError(f"link type {link_type}")
        except IndexError:
            raise CannotBeAnonymousError("headers that are truncated") from None
        return self.found

    def _byte(self, at: int) -> int:
        return self.frame[at]

    def _word(self, at: int) -> int:
        if at + 2 > len(self.frame):
            raise IndexError
        return int.from_bytes(self.frame[at : at + 2], "big")

    def _replace(self, at: int, length: int, kind: str) -> None:
        if at + length > len(self.frame):
            raise IndexError
        new = getattr(self.pseudonyms, kind)(bytes(self.frame[at : at + length]))
        self.frame[at : at + length] = new

    def _ethernet(self, at: int) -> None:
        self._replace(at, 6, "mac")
        self._replace(at + 6, 6, "mac")
        at += 12
        while self._word(at) in TAGS:
            at += 4
        self._next(self._word(at), at + 2)

    def _next(self, kind: int, at: int) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise CannotBeAnonymousError("packets inside each other")
        if kind in (IPV4_TYPE, IPV6_TYPE):
            self._ip(at)
        elif kind == ROCEV1_TYPE:
            self._grh(at)
        elif kind in (MPLS_TYPE, MPLS_TYPE + 1):
            self._mpls(at)
        elif kind == BRIDGED:
            self._ethernet(at)
        else:
            raise CannotBeAnonymousError(f"EtherType {kind:#06x}")

    def _ip(self, at: int) -> None:
        version = self._byte(at) >> 4
        self.found.ip.append((at, version))
        if version == 4:
            self._replace(at + 12, 4, "ipv4")
            self._replace(at + 16, 4, "ipv4")
            self._protocol(self._byte(at + 9), at + (self._byte(at) & 15) * 4)
        elif version == 6:
            self._replace(at + 8, 16, "ipv6")
            self._replace(at + 24, 16, "ipv6")
            protocol, at = self._byte(at + 6), at + 40
            while protocol in EXTENSIONS:
                protocol, at = self._byte(at), at + (self._byte(at + 1) + 1) * 8
            self._protocol(protocol, at)
        else:
            raise CannotBeAnonymousError(f"IP version {version}")

    def _protocol(self, protocol: int, at: int) -> None:
        if protocol == UDP:
            self._udp(at)
        elif protocol == TCP:
            self.found.transport, self.found.tcp = at, True
        elif protocol in (4, 41):
            self._ip(at)
        elif protocol == 47:
            self._gre(at)
        else:
            raise CannotBeAnonymousError(f"IP protocol {protocol}")

    def _udp(self, at: int) -> None:
        self.found.udp.append(at)
        self.found.udp_under.append(len(self.found.ip) - 1)
        port, inside = self._word(at + 2), at + 8
        if port == ROCE_PORT:
            self.found.transport = inside
        elif port in (VXLAN, VXLAN_LINUX):
            self._next(BRIDGED, inside + 8)
        elif port == GENEVE:
            self._next(self._word(inside + 2), inside + 8 + 4 * (self._byte(inside) & 0x3F))
        else:
            raise CannotBeAnonymousError(f"UDP port {port}")

    def _gre(self, at: int) -> None:
        flags, kind = self._word(at), self._word(at + 2)
        if flags & 7:
            raise CannotBeAnonymousError("GRE of another version")
        inside = at + 4 + 4 * sum(flags & bit > 0 for bit in (0x8000, 0x2000, 0x1000))
        if kind == 0x88BE:
            self._next(BRIDGED, inside + (8 if flags & 0x1000 else 0))
        elif kind == 0x22EB:
            what = self._word(inside + 10)
            behind = inside + (20 if what & 1 else 12)
            if what >> 10 & 31:
                self._ip(behind)
            else:
                self._next(BRIDGED, behind)
        else:
            self._next(kind, inside)

    def _mpls(self, at: int) -> None:
        while not self._byte(at + 2) & 1:
            at += 4
        at += 4
        if self._byte(at) >> 4 in (4, 6):
            self._ip(at)
        else:
            raise CannotBeAnonymousError("MPLS with something else than IP inside")

    def _grh(self, at: int) -> None:
        self.found.ip.append((at, 6))
        self._replace(at + 8, 16, "ipv6")
        self._replace(at + 24, 16, "ipv6")
        self.found.transport = at + 40

    def _infiniband(self) -> None:
        self.found.local_route = 0
        following = self._byte(1) & 3
        if following == 3:
            self._grh(8)
        elif following == 2:
            self.found.transport = 8
        else:
            raise CannotBeAnonymousError("raw InfiniBand packets")


class FrameChecksums:
    """What a frame's checksums were before it was changed, and their values for what it became."""

    def __init__(self, frame: bytes, headers: Headers, bth: bool) -> None:
        self._before = frame
        self._headers = headers
        self._bth = bth
        self._icrc = self._ends_right(frame)

    def _ends_right(self, frame: bytes) -> bool:
        """The ICRC is there, and right."""
        if not self._bth:
            return False
        headers = self._headers
        if headers.local_route is not None and not headers.ip:
            return icrc.verify_local(frame) is True
        return bool(headers.ip) and icrc.verify(frame[headers.ip[-1][0] :]) is True

    def mend(self, frame: bytearray) -> None:
        """Make right what was right, and leave wrong what was wrong."""
        headers = self._headers
        for at, version in headers.ip:
            if version == 4 and _word(self._before[at + 10 : at + 12]):
                length = (frame[at] & 15) * 4
                old, new = (_sum(bytes(one[at : at + length])) for one in (self._before, frame))
                stored = self._before[at + 10 : at + 12]
                _store(frame, at + 10, _updated(stored, old, new))
        if self._icrc:
            self._mend_icrc(frame)
        if headers.tcp:
            self._mend_sum(frame, headers.transport + 16, headers.transport, headers.ip[-1], TCP)
        for at, under in zip(reversed(headers.udp), reversed(headers.udp_under), strict=True):
            if self._before[at + 6 : at + 8] != b"\0\0":
                self._mend_sum(frame, at + 6, at, headers.ip[under], UDP)
        if headers.local_route is not None and verify_vcrc(self._before):
            frame[-2:] = vcrc(bytes(frame[:-2])).to_bytes(2, "big")

    def _mend_icrc(self, frame: bytearray) -> None:
        headers = self._headers
        if headers.local_route is not None and not headers.ip:
            end = (int.from_bytes(frame[4:6], "big") & 0x7FF) * 4 - 4
            made = icrc.icrc_local(bytes(frame[:end]))
        else:
            start = headers.ip[-1][0]
            extent = icrc.find_extent(bytes(frame[start:]))
            assert extent is not None
            end = start + extent.end - 4
            made = icrc.icrc(bytes(frame[start:end]))
        assert made is not None
        frame[end : end + 4] = made.to_bytes(4, "big")

    def _mend_sum(self, frame: bytearray, place: int, start: int, ip: tuple[int, int], protocol: int) -> None:
        """The checksum of a UDP datagram or TCP segment at ``place``, by what changed in it (RFC 1624)."""
        at, version = ip
        if version == 4:
            addresses, end = slice(at + 12, at + 20), at + _word(self._before[at + 2 : at + 4])
        else:
            addresses, end = slice(at + 8, at + 40), at + 40 + _word(self._before[at + 4 : at + 6])
        end = min(end, len(frame))
        old, stored = _sum(self._before[addresses]), self._before[place : place + 2]
        new = _sum(bytes(frame[addresses]))
        length = end - start
        if _word(stored) % 0xFFFF == (old + protocol + length) % 0xFFFF:
            # It is left to the network card, which adds the rest to that of the addresses.
            _store(frame, place, (new + protocol + length) % 0xFFFF)
            return
        body = slice(start, end)
        old += _sum(self._before[body]) - _word(stored)
        frame[place : place + 2] = b"\0\0"
        new += _sum(bytes(frame[body]))
        made = _updated(stored, old, new)
        _store(frame, place, made or 0xFFFF if protocol == UDP else made)  # RFC 768: zero stands for none.


def _word(data: bytes) -> int:
    return int.from_bytes(data, "big")


def _sum(data: bytes) -> int:
    """What is modulo 65,535 the sum of the 16-bit words, padded with zero."""
    return int.from_bytes(data, "big") << 8 * (len(data) % 2)


def _updated(stored: bytes, old: int, new: int) -> int:
    """The checksum after the sum of what it covers went from ``old`` to ``new``."""
    return (_word(stored) + old - new) % 0xFFFF


def _store(frame: bytearray, at: int, value: int) -> None:
    frame[at : at + 2] = value.to_bytes(2, "big")
