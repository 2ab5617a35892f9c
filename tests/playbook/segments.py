"""iWARP conversations byte by byte: ULPDUs in, TCP segments out; every message has contents that tell it apart."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from fastcrc.crc32 import iscsi

from .packets import Frame

EPOCH = 1_700_000_000_000_000_000
STEP = 10_000
"""Nanoseconds from one frame to the next."""

FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16
REQUEST, REPLY = b"MPA ID Req Frame", b"MPA ID Rep Frame"
MARKERS, CRC, REJECT, ENHANCED = 0x80, 0x40, 0x20, 0x10
LAST = 0x40


def pattern(seed: int, length: int) -> bytes:
    """Bytes that no other seed has."""
    return random.Random(seed).randbytes(length)


def untagged(opcode: int, queue: int, msn: int, data: bytes, mo: int = 0, last: bool = True, stag: int = 0) -> bytes:
    """An ULPDU (RFC 5041, 4.3)."""
    return struct.pack(">BBIIII", last * LAST | 1, 0x40 | opcode, stag, queue, msn, mo) + data


def tagged(opcode: int, stag: int, offset: int, data: bytes, last: bool = True) -> bytes:
    """An ULPDU (RFC 5041, 4.2)."""
    return struct.pack(">BBIQ", 0x80 | last * LAST | 1, 0x40 | opcode, stag, offset) + data


def send(msn: int, data: bytes, mtu: int = 1 << 16, invalidate: int | None = None) -> list[bytes]:
    """The ULPDUs of a Send of ``data``, at most ``mtu`` bytes of it in each."""
    opcode = 3 if invalidate is None else 4
    starts = range(0, max(1, len(data)), mtu)
    return [untagged(opcode, 0, msn, data[at : at + mtu], at, at + mtu >= len(data), invalidate or 0) for at in starts]


def moved(opcode: int, stag: int, offset: int, data: bytes, mtu: int = 1 << 16) -> list[bytes]:
    """The ULPDUs of an RDMA Write (0) or Read Response (2)."""
    starts = range(0, max(1, len(data)), mtu)
    return [tagged(opcode, stag, offset + at, data[at : at + mtu], at + mtu >= len(data)) for at in starts]


def write(stag: int, offset: int, data: bytes, mtu: int = 1 << 16) -> list[bytes]:
    return moved(0, stag, offset, data, mtu)


def response(stag: int, offset: int, data: bytes, mtu: int = 1 << 16) -> list[bytes]:
    return moved(2, stag, offset, data, mtu)


def read_request(msn: int, sink: tuple[int, int], length: int, source: tuple[int, int]) -> list[bytes]:
    return [untagged(1, 1, msn, struct.pack(">IQIIQ", *sink, length, *source))]


@dataclass(frozen=True)
class Segment:
    """One TCP segment; sender 0 is the client."""

    sender: int
    seq: int
    ack: int
    payload: bytes
    flags: int = ACK
    snap: int | None = None
    """Payload bytes that the capture holds; None: all."""


@dataclass
class Side:
    """What one end sends."""

    next: int
    """Sequence number of its next byte."""
    markers: bool = False
    crc: bool = False
    base: int = 0
    """Sequence number at which its first FPDU begins."""
    drift: int = 0
    """Bytes that its markers, the first one aside, stand behind where they belong."""
    swapped: bool = False
    """Its markers have their low byte first."""

    def fpdu(self, ulpdu: bytes, wrong_crc: bool = False) -> bytes:
        """RFC 5044, 4: length, ULPDU, pad and CRC, with the markers that fall into it."""
        body = struct.pack(">H", len(ulpdu)) + ulpdu
        body += bytes(-len(body) % 4)
        out = bytearray()
        begin = 0
        for at in range(0, len(body) + 4, 4):
            place = (self.next - self.base + len(out)) % (1 << 32)
            if self.markers and (place - (self.drift if place else 0)) % 512 == 0:
                out += struct.pack("<I" if self.swapped else ">I", len(out) - begin)
                if at == 0:
                    begin = 4
            if at < len(body):
                out += body[at : at + 4]
        check = iscsi(out) if self.crc else 0
        return bytes(out) + struct.pack("<I", check ^ wrong_crc)


@dataclass
class Talk:
    """A TCP connection.  ``segments`` is what the wire saw."""

    seqs: tuple[int, int] = (1000, 9_000_000)
    ports: tuple[int, int] = (40000, 20049)
    segments: list[Segment] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.sides = [Side((seq + 1) % (1 << 32)) for seq in self.seqs]

    def open(self) -> None:
        """SYN, SYN and ACK, ACK."""
        first, second = self.seqs
        self.segments += [
            Segment(0, first, 0, b"", SYN),
            Segment(1, second, self.sides[0].next, b"", SYN | ACK),
            Segment(0, self.sides[0].next, self.sides[1].next, b""),
        ]

    def put(self, sender: int, data: bytes, sizes: Sequence[int] = ()) -> None:
        """Bytes in one segment, or in several of the given sizes and one with the rest."""
        side, other = self.sides[sender], self.sides[1 - sender]
        at = 0
        for size in (*sizes, len(data)):
            part = data[at : at + size]
            if part:
                self.segments.append(Segment(sender, side.next, other.next, part, ACK | PSH))
                side.next = (side.next + len(part)) % (1 << 32)
            at += size

    def greet(
        self,
        markers: tuple[bool, bool] = (False, False),
        crc: bool = False,
        revision: int = 1,
        private: tuple[bytes, bytes] = (b"", b""),
        flags: tuple[int, int] = (0, 0),
    ) -> None:
        """MPA Request and Reply; ``markers``: into which direction they go, first what the client sends."""
        for sender in (0, 1):
            bits = flags[sender] | (MARKERS if markers[1 - sender] else 0) | (CRC if crc else 0)
            key = REPLY if sender else REQUEST
            self.put(sender, key + struct.pack(">BBH", bits, revision, len(private[sender])) + private[sender])
        for sender, side in enumerate(self.sides):
            side.markers, side.crc, side.base = markers[sender], crc, side.next

    def say(self, sender: int, ulpdus: Sequence[bytes], sizes: Sequence[int] = (), wrong_crc: bool = False) -> None:
        """FPDUs, all in one segment or cut into the given sizes."""
        side = self.sides[sender]
        start, data = side.next, b""
        for ulpdu in ulpdus:
            side.next = (start + len(data)) % (1 << 32)
            data += side.fpdu(ulpdu, wrong_crc)
        side.next = start
        self.put(sender, data, sizes)

    def acknowledge(self, sender: int) -> None:
        self.segments.append(Segment(sender, self.sides[sender].next, self.sides[1 - sender].next, b""))

    def frames(self, segments: Sequence[Segment] | None = None) -> list[Frame]:
        """Ethernet, IPv4, TCP."""
        chosen = self.segments if segments is None else segments
        return [self._frame(number, segment) for number, segment in enumerate(chosen)]

    def _frame(self, number: int, segment: Segment) -> Frame:
        hosts = b"\x0a\x00\x00\x01", b"\x0a\x00\x00\x02"
        there, back = segment.sender, 1 - segment.sender
        length = 40 + len(segment.payload)
        ip = struct.pack(">BBHHHBBH", 0x45, 0, length, number & 0xFFFF, 0x4000, 64, 6, 0) + hosts[there] + hosts[back]
        ports = self.ports[there], self.ports[back]
        tcp = struct.pack(">HHIIBBHHH", *ports, segment.seq, segment.ack, 0x50, segment.flags, 65535, 0, 0)
        head = bytes(12) + b"\x08\x00" + ip + tcp
        data = head + segment.payload[: segment.snap]
        return Frame(EPOCH + number * STEP, data, len(head) + len(segment.payload))


def snapped(segments: Sequence[Segment], snap: int) -> list[Segment]:
    return [replace(segment, snap=snap) for segment in segments]
