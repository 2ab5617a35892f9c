"""Captures of any size that go to an extreme in one respect; what a program does about them must stay in proportion."""

from __future__ import annotations

import gzip
import random
import struct
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import zstandard

from . import Wire, call, nfs3, reply
from .capture import write_pcap
from .packets import encode_frames
from .rpc import call_parts, whole
from .rpcrdma import MSG, header
from .segments import Talk, pattern, write
from .wire import Segment

CLIENT, SERVER = 0, 1


class Extreme(NamedTuple):
    what: str
    write: Callable[[int, Path], None]
    """A capture file for a count."""
    size: int
    """The count that is promised to work."""


def chunk_list(count: int, path: Path) -> None:
    """One call whose Write chunk has ``count`` segments."""
    wire = Wire(mtu=4096)
    connection = wire.connect()
    chunk = [Segment(at + 1, 8, 0x1000 * at) for at in range(count)]
    text = header(9, MSG, writes=[chunk]) + whole(call_parts(nfs3.read(0, 8 * count), 9))
    connection.send(CLIENT, text)
    write_pcap(wire.frames(), path)


def out_of_order(count: int, path: Path) -> None:
    """One queue pair with ``count`` Operations, captured in any order."""
    wire = Wire(mtu=4096)
    connection = wire.connect(acks="none")
    first = len(wire.packets)
    for number in range(count):
        connection.send(CLIENT, header(number, MSG) + whole(call_parts(nfs3.null(), number)))
    packets = wire.packets[first:]
    random.Random(count).shuffle(packets)
    write_pcap(encode_frames(wire.packets[:first] + packets), path)


def connections(count: int, path: Path) -> None:
    """Connections with one RPC each."""
    wire = Wire(mtu=4096)
    for number in range(count):
        connection = wire.connect(client=f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}")
        reply(call(connection, nfs3.getattr_()), nfs3.getattr_reply())
    write_pcap(wire.frames(), path)


def calls_in_flight(count: int, path: Path) -> None:
    """Calls on one connection, and only then their replies, the last first."""
    wire = Wire(mtu=4096)
    connection = wire.connect()
    rpcs = [call(connection, nfs3.getattr_()) for _ in range(count)]
    for rpc in reversed(rpcs):
        reply(rpc, nfs3.getattr_reply())
    write_pcap(wire.frames(), path)


def overlapping_writes(count: int, path: Path) -> None:
    """RDMA Writes into one chunk, each over half of the one before."""
    wire = Wire(mtu=4096)
    connection = wire.connect()
    chunk = connection.register(16 * count + 16)
    call(connection, nfs3.read(0, 16 * count + 16), writes=[chunk])
    for number in range(count):
        connection.write(SERVER, chunk[0].handle, chunk[0].offset + 16 * number, bytes(32))
    write_pcap(wire.frames(), path)


def overlapping_segments(count: int, path: Path) -> None:
    """TCP segments of an iWARP stream, and each once more with half of the one before, in any order."""
    talk, begin = stream()
    data = pattern(1, 60)
    for number in range(count):
        talk.say(1, write(0x11, 0x1000 + number * len(data), data))
    segments = talk.segments[begin:]
    again = [
        replace(one, seq=one.seq - 40, payload=before.payload[-40:] + one.payload) for before, one in pairwise(segments)
    ]
    mixed = segments + again
    random.Random(count).shuffle(mixed)
    talk.segments[begin:] = mixed
    write_pcap(talk.frames(), path)


def one_octet_segments(count: int, path: Path) -> None:
    """An iWARP stream in TCP segments of one octet, of which every fiftieth is missing."""
    talk, begin = stream()
    for number in range(count // 50 + 1):
        talk.say(1, write(0x11, 0x1000 + 32 * number, pattern(1, 32)), sizes=[1] * 49)
    octets = talk.segments[begin:]
    del octets[49::50]
    talk.segments[begin:] = octets[:count]
    write_pcap(talk.frames(), path)


def stream() -> tuple[Talk, int]:
    """An iWARP connection in full operation, and how many segments it took."""
    talk = Talk()
    talk.open()
    talk.greet(crc=False)
    return talk, len(talk.segments)


def block(kind: int, body: bytes) -> bytes:
    """Of a pcapng, little endian."""
    size = 12 + len(body)
    return struct.pack("<II", kind, size) + body + struct.pack("<I", size)


SECTION = block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1))
INTERFACE = struct.pack("<HHI", 1, 0, 65535)


def options(count: int, path: Path) -> None:
    """A pcapng interface with ``count`` comments."""
    comments = struct.pack("<HH4s", 1, 4, b"more") * count
    path.write_bytes(SECTION + block(1, INTERFACE + comments) + packets(20))


def interfaces(count: int, path: Path) -> None:
    """A pcapng with ``count`` interfaces, each with a name of its own."""
    names = (struct.pack("<HH8s", 2, 8, b"%08d" % number) for number in range(count))
    path.write_bytes(SECTION + b"".join(block(1, INTERFACE + name) for name in names) + packets(20))


def packets(count: int) -> bytes:
    """The frames of a short conversation as enhanced packet blocks."""
    wire = Wire()
    connection = wire.connect()
    for _ in range(count):
        reply(call(connection, nfs3.getattr_()), nfs3.getattr_reply())
    found = []
    for frame in wire.frames():
        moment = frame.time // 1000
        place = struct.pack("<IIIII", 0, moment >> 32, moment & 0xFFFFFFFF, len(frame.data), frame.original)
        found.append(block(6, place + frame.data + bytes(-len(frame.data) % 4)))
    return b"".join(found)


def zeros(count: int, compress: Callable[[bytes], bytes]) -> bytes:
    """A compressed pcap of ``count`` KiB: frames of zeros."""
    record = struct.pack("<IIII", 1, 0, 1008, 1008) + bytes(1008)
    return compress(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262144, 1) + record * count)


def gzip_bomb(count: int, path: Path) -> None:
    """A pcap of frames of zeros, a hundredth of its size as gzip."""
    path.write_bytes(zeros(count, gzip.compress))


def zstd_bomb(count: int, path: Path) -> None:
    """The same as zstd, a thousandth of its size."""
    path.write_bytes(zeros(count, zstandard.compress))


EXTREMES = {
    "chunk-list": Extreme("segments in one chunk list", chunk_list, 100_000),
    "out-of-order": Extreme("Operations out of order on one queue pair", out_of_order, 1_000_000),
    "connections": Extreme("connections with one RPC each", connections, 100_000),
    "calls-in-flight": Extreme("calls in flight on one connection", calls_in_flight, 100_000),
    "overlapping-writes": Extreme("RDMA Writes that overlap in one chunk", overlapping_writes, 1_000_000),
    "overlapping-segments": Extreme("TCP segments that overlap, in any order", overlapping_segments, 1_000_000),
    "one-octet-segments": Extreme("TCP segments of one octet, with gaps", one_octet_segments, 1_000_000),
    "options": Extreme("options in one pcapng block", options, 1_000_000),
    "interfaces": Extreme("interfaces in one pcapng", interfaces, 100_000),
    "gzip-bomb": Extreme("KiB of frames of zeros as gzip", gzip_bomb, 200_000),
    "zstd-bomb": Extreme("KiB of frames of zeros as zstd", zstd_bomb, 200_000),
}
