"""TCP segments and their bytes, written with struct alone (RFC 9293)."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from .packets import Frame, checksum, ip_header, mac, packed

FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16
TCP = 6
SEQUENCE_MASK = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class TcpSegment:
    """One segment with what the script knows about it."""

    uid: int
    time: int
    connection: int
    """Number of the connection."""
    sender: int
    """0 the client, 1 the server."""
    kind: str
    """'syn', 'data', 'ack', 'fin', 'rst' or 'keepalive'."""
    source: str
    destination: str
    source_port: int
    destination_port: int
    seq: int
    """Modulo 2**32 on the wire."""
    ack: int
    flags: int
    payload: bytes = b""
    at: int = 0
    """Offset of the payload in what its sender sent on this connection."""
    options: bytes = b""
    copy: int = 0
    """0 the first transmission, 1 … the repetitions."""
    corrupt: int | None = None
    """Offset of a payload byte that was changed on the way."""
    wrong_checksum: bool = False
    """A corrupt segment whose checksum tells."""
    snaplen: int = 0
    """Bytes of the frame that the capture keeps, 0 for all."""
    window: int = 0x8000

    @property
    def end(self) -> int:
        return self.at + len(self.payload)


def mss_option(mss: int) -> bytes:
    """Options of a SYN: the maximum segment size, window scale, SACK permitted."""
    return struct.pack(">BBHBBBBBB", 2, 4, mss, 1, 3, 3, 7, 4, 2) + b"\1\1"


def timestamps(value: int, echo: int) -> bytes:
    """RFC 7323, 3."""
    return struct.pack(">BBBBII", 1, 1, 8, 10, value & SEQUENCE_MASK, echo & SEQUENCE_MASK)


def sack(*blocks: tuple[int, int]) -> bytes:
    """RFC 2018, 3: sequence numbers of the first byte and behind the last one of what came."""
    edges = [edge & SEQUENCE_MASK for block in blocks for edge in block]
    return struct.pack(f">BBBB{len(edges)}I", 1, 1, 5, 2 + 4 * len(edges), *edges)


def encode(segment: TcpSegment) -> bytes:
    """The whole Ethernet frame, without frame check sequence."""
    options = segment.options + b"\1" * (-len(segment.options) % 4)
    offset = (20 + len(options)) // 4
    ports = segment.source_port, segment.destination_port
    numbers = segment.seq & SEQUENCE_MASK, segment.ack & SEQUENCE_MASK if segment.flags & ACK else 0
    payload = segment.payload
    if segment.corrupt is not None:
        spoiled = bytearray(payload)
        spoiled[segment.corrupt] ^= 0x5A
        payload = bytes(spoiled)
    length = offset * 4 + len(payload)
    ip = ip_header(segment.source, segment.destination, length, segment.uid, 0, TCP)

    def tcp(check: int) -> bytes:
        return (
            struct.pack(">HHIIBBHHH", *ports, *numbers, offset << 4, segment.flags, segment.window, check, 0) + options
        )

    covered = packed(segment.source) + packed(segment.destination) + struct.pack(">II", length, TCP) + tcp(0)
    covered += segment.payload if segment.wrong_checksum else payload
    check = checksum(covered + bytes(len(covered) % 2))
    ethertype = b"\x86\xdd" if ip[0] >> 4 == 6 else b"\x08\x00"
    return mac(segment.destination) + mac(segment.source) + ethertype + ip + tcp(check) + payload


def encode_segments(segments: list[TcpSegment]) -> list[Frame]:
    """Frames in list order; a time that would run backwards becomes one nanosecond past its predecessor."""
    frames: list[Frame] = []
    time = 0
    for segment in segments:
        data = encode(segment)
        time = max(time + 1, segment.time)
        frames.append(Frame(time, data[: segment.snaplen or None], len(data)))
    return frames
