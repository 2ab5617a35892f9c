"""What goes on the wire: RoCEv2 packets and their bytes, written with struct alone.

Nothing here comes from the decoders under test: a misreading there cannot hide behind the same one here.
All fields are big endian, save the invariant CRC (InfiniBand Architecture vol. 1, 5.2 and 7.8.1; annex A17).
"""

from __future__ import annotations

import ipaddress
import struct
import zlib
from dataclasses import dataclass
from functools import cache

ROCE_PORT = 4791
UDP = 17
PSN_MASK = 0xFFFFFF

SEND_FIRST, SEND_MIDDLE, SEND_LAST, SEND_LAST_IMM, SEND_ONLY, SEND_ONLY_IMM = range(6)
WRITE_FIRST, WRITE_MIDDLE, WRITE_LAST, WRITE_LAST_IMM, WRITE_ONLY, WRITE_ONLY_IMM = range(6, 12)
READ_REQUEST = 12
RESPONSE_FIRST, RESPONSE_MIDDLE, RESPONSE_LAST, RESPONSE_ONLY = range(13, 17)
ACKNOWLEDGE = 17
SEND_LAST_INV, SEND_ONLY_INV = 22, 23
UD_SEND_ONLY = 100
CNP = 129

REQUESTS = frozenset({"send", "write", "read"})
"""Kinds of packet that take a PSN of the sender's own request stream."""

ACK_NO_CREDITS = 0x1F
"""AETH syndrome of an acknowledgement whose sender keeps no end-to-end credits."""
NAK_SEQUENCE, NAK_INVALID, NAK_ACCESS, NAK_OPERATIONAL = 0x60, 0x61, 0x62, 0x63
RNR_NAK = 0x20


@dataclass(frozen=True, slots=True)
class Packet:
    """One packet with what the script knows about it."""

    uid: int
    time: int
    connection: int
    """Number of the connection."""
    sender: int
    """0 the client, 1 the server."""
    kind: str
    """'send', 'write', 'read', 'response', 'ack', 'nak', 'cm', 'cnp'."""
    source: str
    destination: str
    source_port: int
    opcode: int
    dest_qp: int
    psn: int
    extended: bytes = b""
    payload: bytes = b""
    operation: int = 0
    """Number of the operation that it belongs to, 0 for none."""
    at: int = 0
    """Offset of the payload in the operation's bytes."""
    ack_request: bool = False
    solicited: bool = False
    becn: bool = False
    ecn: int = 2
    """IP ECN field: 2 ECN-capable, 3 congestion experienced."""
    copy: int = 0
    """0 the first transmission, 1 … the repetitions."""
    corrupt: bool = False
    """A byte was changed on the way: the ICRC does not fit."""
    snaplen: int = 0
    """Bytes of the frame that the capture keeps, 0 for all."""


@dataclass(frozen=True, slots=True)
class Frame:
    time: int
    """Nanoseconds since the Unix epoch."""
    data: bytes
    """As captured."""
    original: int
    """Bytes on the wire."""


def reth(address: int, handle: int, length: int) -> bytes:
    return struct.pack(">QII", address, handle, length)


def aeth(syndrome: int, msn: int) -> bytes:
    return struct.pack(">I", syndrome << 24 | msn & PSN_MASK)


def icrc(ip: bytes, udp: bytes, packet: bytes) -> bytes:
    """The invariant CRC of ``packet`` (BTH to pad) behind the given IP and UDP headers, as on the wire."""
    masked = bytearray(ip)
    if ip[0] >> 4 == 4:
        masked[1] = masked[8] = masked[10] = masked[11] = 0xFF
    else:
        masked[0] |= 0x0F
        masked[1:4] = b"\xff\xff\xff"
        masked[7] = 0xFF
    covered = b"\xff" * 8 + masked + udp[:6] + b"\xff\xff" + packet[:4] + b"\xff" + packet[5:]
    return struct.pack("<I", zlib.crc32(covered))


@cache
def packed(address: str) -> bytes:
    """An IP address in network byte order: 4 bytes or 16."""
    return ipaddress.ip_address(address).packed


def mac(address: str) -> bytes:
    """A locally administered MAC address for an IP address."""
    return b"\x02\x00" + packed(address)[-4:]


def checksum(header: bytes) -> int:
    """Of an even number of bytes (RFC 1071): a sum of words with end-around carry is a remainder."""
    total = int.from_bytes(header, "big")
    return 0xFFFF - (total % 0xFFFF or 0xFFFF * (total > 0))


def ip_header(source: str, destination: str, length: int, identification: int, ecn: int, protocol: int = UDP) -> bytes:
    """IPv4 or IPv6 header for ``length`` bytes behind it."""
    addresses = packed(source) + packed(destination)
    if len(addresses) == 32:
        return struct.pack(">IHBB", 6 << 28 | ecn << 20 | 0x12345, length, protocol, 64) + addresses
    fields = (0x45, ecn, 20 + length, identification & 0xFFFF, 0x4000, 64, protocol)
    header = struct.pack(">BBHHHBBH", *fields, 0) + addresses
    return header[:10] + struct.pack(">H", checksum(header)) + header[12:]


def encode(packet: Packet) -> bytes:
    """The whole Ethernet frame, without frame check sequence."""
    pad = -len(packet.payload) % 4
    flags = packet.solicited << 7 | 1 << 6 | pad << 4
    bth = struct.pack(
        ">BBHII",
        packet.opcode,
        flags,
        0xFFFF,
        packet.becn << 30 | packet.dest_qp,
        packet.ack_request << 31 | packet.psn,
    )
    body = bth + packet.extended + packet.payload + bytes(pad)
    udp_length = 8 + len(body) + 4
    udp = struct.pack(">HHHH", packet.source_port, ROCE_PORT, udp_length, 0)
    ip = ip_header(packet.source, packet.destination, udp_length, packet.uid, packet.ecn)
    crc = icrc(ip, udp, body)
    if packet.corrupt:
        spoiled = bytearray(body + crc)
        spoiled[len(bth + packet.extended)] ^= 0x5A
        body, crc = bytes(spoiled[:-4]), bytes(spoiled[-4:])
    ethertype = b"\x86\xdd" if ip[0] >> 4 == 6 else b"\x08\x00"
    return mac(packet.destination) + mac(packet.source) + ethertype + ip + udp + body + crc


def encode_frames(packets: list[Packet]) -> list[Frame]:
    """Frames in list order; a time that would run backwards becomes one nanosecond past its predecessor."""
    frames: list[Frame] = []
    time = 0
    for packet in packets:
        data = encode(packet)
        time = max(time + 1, packet.time)
        frames.append(Frame(time, data[: packet.snaplen or None], len(data)))
    return frames
