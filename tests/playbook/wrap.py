"""Frames of Ethernet put into other frames, byte by byte and without the product's help."""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple
from zlib import crc32

import numpy as np

from rdmascope.dissect.frames import FRAME, FrameBatch

ETHERNET, ERF, INFINIBAND = 1, 197, 247
MAC = bytes.fromhex("02000000000102000000000208 00".replace(" ", ""))


class Raw(NamedTuple):
    """A frame as a capture file has it."""

    data: bytes
    time: int
    link_type: int = ETHERNET
    interface: int = 0
    original: int | None = None


def batch(frames: Sequence[Raw], first: int = 1) -> FrameBatch:
    rows = np.zeros(len(frames), FRAME)
    offset = 0
    for index, frame in enumerate(frames):
        size = len(frame.data)
        original = size if frame.original is None else frame.original
        rows[index] = (first + index, frame.time, offset, size, original, frame.link_type, frame.interface)
        offset += size
    return FrameBatch(np.frombuffer(b"".join(frame.data for frame in frames), np.uint8), rows)


def sent_again(frame: bytes) -> bytes:
    """The same by IPv4 over Ethernet, with an identification of its own."""
    return frame[:18] + bytes([frame[18] ^ 0x80]) + frame[19:]


def ipv4(body: bytes, protocol: int) -> bytes:
    head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(body), 1, 0x4000, 64, protocol, 0)
    return head + ipaddress.IPv4Address("192.0.2.1").packed + ipaddress.IPv4Address("192.0.2.2").packed + body


def ipv6(body: bytes, protocol: int) -> bytes:
    head = struct.pack(">IHBB", 6 << 28, len(body), protocol, 64)
    return head + ipaddress.IPv6Address("2001:db8::1").packed + ipaddress.IPv6Address("2001:db8::2").packed + body


def outer(body: bytes, protocol: int) -> bytes:
    return MAC + ipv4(body, protocol)


def udp(body: bytes, port: int) -> bytes:
    return struct.pack(">HHHH", 55555, port, 8 + len(body), 0) + body


def vxlan(frame: bytes) -> bytes:
    return outer(udp(b"\x08\0\0\0" + b"\0\0\x2a\0" + frame, 4789), 17)


def vxlan_over_ipv6(frame: bytes) -> bytes:
    body = udp(b"\x08\0\0\0" + b"\0\0\x2a\0" + frame, 8472)
    return MAC[:12] + b"\x86\xdd" + ipv6(body, 17)


def geneve(frame: bytes) -> bytes:
    return outer(udp(struct.pack(">BBHI", 2, 0, 0x6558, 42 << 8) + bytes(8) + frame, 6081), 17)


def geneve_of_ip(frame: bytes) -> bytes:
    return outer(udp(struct.pack(">BBHI", 0, 0, 0x0800, 42 << 8) + frame[14:], 6081), 17)


def gre(frame: bytes) -> bytes:
    return outer(struct.pack(">HHI", 0x2000, 0x6558, 7) + frame, 47)


def gre_of_ip(frame: bytes) -> bytes:
    return outer(struct.pack(">HH", 0, 0x0800) + frame[14:], 47)


def gre_with_everything(frame: bytes) -> bytes:
    return outer(struct.pack(">HHIII", 0xB000, 0x6558, 0, 7, 9) + frame, 47)


def erspan1(frame: bytes) -> bytes:
    return outer(struct.pack(">HH", 0, 0x88BE) + frame, 47)


def erspan2(frame: bytes) -> bytes:
    return outer(struct.pack(">HHI", 0x1000, 0x88BE, 1) + struct.pack(">HHI", 0x1064, 0x0005, 0) + frame, 47)


def erspan3(frame: bytes) -> bytes:
    return outer(struct.pack(">HHI", 0x1000, 0x22EB, 1) + struct.pack(">HHIHH", 0x2064, 5, 99, 0, 0) + frame, 47)


def erspan3_with_subheader(frame: bytes) -> bytes:
    head = struct.pack(">HHIHH", 0x2064, 5, 99, 0, 1) + bytes(8)
    return outer(struct.pack(">HHI", 0x1000, 0x22EB, 1) + head + frame, 47)


def erspan3_of_ip(frame: bytes) -> bytes:
    head = struct.pack(">HHIHH", 0x2064, 5, 99, 0, 2 << 10)
    return outer(struct.pack(">HHI", 0x1000, 0x22EB, 1) + head + frame[14:], 47)


def mpls(body: bytes, labels: int = 2) -> bytes:
    stack = b"".join(struct.pack(">I", 100 << 12 | (n == labels - 1) << 8 | 64) for n in range(labels))
    return stack + body


def mpls_of_ip(frame: bytes) -> bytes:
    return MAC[:12] + b"\x88\x47" + mpls(frame[14:])


def mpls_of_ethernet(frame: bytes) -> bytes:
    return MAC[:12] + b"\x88\x47" + mpls(frame, 1)


def mpls_with_control_word(frame: bytes) -> bytes:
    return MAC[:12] + b"\x88\x48" + mpls(bytes(4) + frame, 3)


def mpls_in_ip(frame: bytes) -> bytes:
    return outer(mpls(frame[14:]), 137)


def mpls_in_udp(frame: bytes) -> bytes:
    return outer(udp(mpls(frame[14:]), 6635), 17)


def mpls_in_gre(frame: bytes) -> bytes:
    return outer(struct.pack(">HH", 0, 0x8847) + mpls(frame[14:]), 47)


def ip_in_ip(frame: bytes) -> bytes:
    return outer(frame[14:], 4)


def nested(frame: bytes) -> bytes:
    return erspan2(vxlan(mpls_of_ethernet(frame)))


TUNNELS: dict[str, Callable[[bytes], bytes]] = {
    one.__name__: one
    for one in (
        vxlan, vxlan_over_ipv6, geneve, geneve_of_ip, gre, gre_of_ip, gre_with_everything, erspan1, erspan2, erspan3,
        erspan3_with_subheader, erspan3_of_ip, mpls_of_ip, mpls_of_ethernet, mpls_with_control_word, mpls_in_ip,
        mpls_in_udp, mpls_in_gre, ip_in_ip, nested,
    )
}  # fmt: skip


def transport(frame: bytes) -> bytes | None:
    """From the BTH to the byte before the ICRC, of RoCEv2 over IPv4 without options; None where it is none."""
    if frame[12:14] != b"\x08\0" or frame[23] != 17 or frame[36:38] != b"\x12\xb7":
        return None
    return frame[42 : 34 + int.from_bytes(frame[38:40], "big") - 4]


def icrc(covered: bytes) -> bytes:
    return crc32(covered).to_bytes(4, "little")


def without_variant(bth: bytes) -> bytes:
    """The transport packet with ones in FECN, BECN and the reserved bits behind them."""
    return bth[:4] + b"\xff" + bth[5:]


def grh(bth: bytes, source: bytes, destination: bytes) -> bytes:
    return struct.pack(">IHBB", 6 << 28 | 0x12345, len(bth) + 4, 0x1B, 63) + source + destination


def masked_grh(header: bytes) -> bytes:
    return b"\x6f\xff\xff\xff" + header[4:7] + b"\xff" + header[8:]


def mapped(address: bytes) -> bytes:
    return bytes(10) + b"\xff\xff" + address


def rocev1(frame: bytes) -> bytes:
    bth = transport(frame)
    if bth is None:
        return frame
    header = grh(bth, mapped(frame[26:30]), mapped(frame[30:34]))
    crc = icrc(b"\xff" * 8 + masked_grh(header) + without_variant(bth))
    return frame[:12] + b"\x89\x15" + header + bth + crc


def vcrc(packet: bytes) -> bytes:
    """One bit after the other."""
    crc = 0xFFFF
    for byte in packet:
        for bit in range(8):
            crc = crc >> 1 ^ (0xD008 if (crc ^ byte >> bit) & 1 else 0)
    return (crc ^ 0xFFFF).to_bytes(2, "little")


def lrh(following: int, size: int, destination: int, source: int, lane: int = 3) -> bytes:
    return struct.pack(">BBHHH", lane << 4, 0x50 | following, destination, (size + 8) // 4, source)


def infiniband(frame: bytes) -> bytes:
    """Native InfiniBand without a GRH; the last byte of an IP address is the LID."""
    bth = transport(frame)
    if bth is None:
        return b""
    header = lrh(2, len(bth) + 4, frame[33], frame[29])
    packet = header + bth + icrc(bytes([header[0] | 0xF0]) + header[1:] + without_variant(bth))
    return packet + vcrc(packet)


def infiniband_routed(frame: bytes, subnets: tuple[int, int] = (1, 2)) -> bytes:
    """Native InfiniBand with a GRH that names two subnets."""
    bth = transport(frame)
    if bth is None:
        return b""
    ends = frame[26:30], frame[30:34]
    order = subnets if ends[0] < ends[1] else subnets[::-1]
    gids = [b"\xfd" + bytes(6) + bytes([net]) + end + bytes(4) for net, end in zip(order, ends, strict=True)]
    header = grh(bth, *gids)
    front = lrh(3, len(header) + len(bth) + 4, frame[33], frame[29])
    packet = front + header + bth + icrc(b"\xff" * 8 + masked_grh(header) + without_variant(bth))
    return packet + vcrc(packet)


def erf(contents: bytes, kind: int = 21, extensions: int = 0, time: int = 0) -> bytes:
    """An ERF record, padded to eight bytes."""
    front = b"\0\0" if kind == 2 else b""
    body = b"".join(bytes([0x80 * (n < extensions - 1) | 3]) + bytes(7) for n in range(extensions)) + front + contents
    body += bytes(-len(body) % 8)
    stamp = (time // 10**9 << 32) + (time % 10**9 << 32) // 10**9
    return struct.pack("<Q", stamp) + struct.pack(
        ">BBHHH", 0x80 * (extensions > 0) | kind, 4, 16 + len(body), 0, len(contents)
    ) + body  # fmt: skip
