"""Connection management datagrams: MADs over UD (InfiniBand Architecture vol. 1, 12.6; annex A11)."""

from __future__ import annotations

import ipaddress
import struct
from dataclasses import dataclass

REQ, MRA, REJ, REP, RTU, DREQ, DREP = 0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16
DETH = struct.pack(">II", 0x80010000, 1)

MTU_CODES = {256: 1, 512: 2, 1024: 3, 2048: 4, 4096: 5}


@dataclass(frozen=True, slots=True)
class Side:
    """What one end puts into its half of the exchange."""

    address: str
    qpn: int
    start_psn: int
    comm_id: int
    private: bytes = b""
    responder_resources: int = 16
    initiator_depth: int = 16


def private_data(send: int = 4096, receive: int = 4096, invalidate: bool = False) -> bytes:
    """The RFC 8797 message (section 4); sizes in bytes."""
    return struct.pack(">IBBBB", 0xF6AB0E18, 1, invalidate, (send >> 10) - 1, (receive >> 10) - 1)


def mad(attribute: int, transaction: int, body: bytes) -> bytes:
    """A 256-byte MAD: common header and ``body``, zero padded."""
    header = struct.pack(">BBBBHHQHHI", 1, 7, 2, 3, 0, 0, transaction, attribute, 0, 0)
    return (header + body).ljust(256, b"\0")


def gid(address: str) -> bytes:
    ip = ipaddress.ip_address(address)
    return ip.packed if ip.version == 6 else bytes(10) + b"\xff\xff" + ip.packed


def guid(address: str) -> bytes:
    return b"\x02\x00\x00\xff\xfe\x00" + ipaddress.ip_address(address).packed[-2:]


def request(client: Side, server: Side, port: int, mtu: int) -> bytes:
    """REQ (12.6.5) with the IP CM header of annex A11 in front of the consumer's private data.

    A port of more than 16 bits is a service ID.
    """
    service = port if port >> 16 else 0x0000000001060000 | port
    path = struct.pack(">HH", 0xFFFF, 0xFFFF) + gid(client.address) + gid(server.address)
    path += struct.pack(">IBBBB", 0x0043F003, 0, 64, 0, 0x13 << 3)
    ip = ipaddress.ip_address(client.address)
    addresses = (ip.packed + ipaddress.ip_address(server.address).packed) if ip.version == 6 else b""
    if ip.version == 4:
        addresses = bytes(12) + ip.packed + bytes(12) + ipaddress.ip_address(server.address).packed
    private = struct.pack(">BBH", 0, ip.version << 4, 40000) + addresses + client.private
    body = struct.pack(">IIQ", client.comm_id, 0, service) + guid(client.address) + struct.pack(">II", 0, 0)
    body += struct.pack(">I", client.qpn << 8 | client.responder_resources)
    body += struct.pack(">I", client.initiator_depth)
    body += struct.pack(">I", 20 << 3)
    body += struct.pack(">I", client.start_psn << 8 | 20 << 3 | 6)
    body += struct.pack(">HBB", 0xFFFF, MTU_CODES[mtu] << 4, 15 << 4)
    body += path + bytes(44)
    assert len(body) == 140
    return body + private.ljust(92, b"\0")


def reply(client: Side, server: Side) -> bytes:
    """REP (12.6.8)."""
    body = struct.pack(">III", server.comm_id, client.comm_id, 0)
    body += struct.pack(">II", server.qpn << 8, 0) + struct.pack(">I", server.start_psn << 8)
    body += struct.pack(">BBBB", server.responder_resources, server.initiator_depth, 15 << 3, 0)
    body += guid(server.address)
    assert len(body) == 36
    return body + server.private.ljust(196, b"\0")


def ids(local: Side, remote: Side) -> bytes:
    """RTU (12.6.9) and DREP (12.6.11)."""
    return struct.pack(">II", local.comm_id, remote.comm_id)


def disconnect(local: Side, remote: Side) -> bytes:
    """DREQ (12.6.10)."""
    return ids(local, remote) + struct.pack(">I", remote.qpn << 8)


def reject(local: Side, remote: Side, reason: int) -> bytes:
    """REJ (12.6.7) of a REQ."""
    return struct.pack(">IIBBH", local.comm_id, remote.comm_id, 0, 0, reason)
