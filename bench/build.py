"""Makes the large inputs: ``python -m bench.build [NAME]...``.

Each repetition of a sample is a new set of connections, later in time: queue pair numbers, communication and
transaction IDs are its own, and every ICRC is right.  Of one long mount, the repetitions follow each other in one
connection.  Frames that carry no RDMA are left out, so that both tools have the same RPCs to count.  The inputs are
kept in ``bench/work`` and made once.
"""

from __future__ import annotations

import struct
import subprocess
import sys
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from heapq import merge
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory

import zstandard

from bench.variants import (
    Change,
    Timed,
    masked,
    mirrored,
    missing,
    on_other_ports,
    over_tcp,
    reordered,
    retransmitted,
)
from rdmascope.captures.read.open import open_capture

ETHERNET = b"\2\0\0\0\0\1\2\0\0\0\0\2\x08\0"
"""Before the IPv4 header of an exported packet."""
TIMED = "time", "offset", "captured"
SAMPLES = Path(__file__).parents[1] / "captures" / "samples"
WORK = Path(__file__).parent / "work"

PCAP_HEADER = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 0x40000, 1)
HEADERS = 14 + 20 + 8
"""Ethernet, IPv4 without options, UDP: all that the samples use."""
BTH = 12
CM = HEADERS + BTH + 8 + 24
"""Where a CM message starts: behind DETH and the MAD header (IBA 13.4.2)."""
REQ, REP, DREQ = 0x10, 0x13, 0x15
LOCAL_QPN = {REQ: 32, REP: 12, DREQ: 8}
"""CM attribute -> offset of a queue pair number (IBA 12.6.5, 12.6.8, 12.6.10)."""
PATH_MTU_AT = 50
"""In a REQ, the upper half of the byte."""
MTU_1024 = 3

RETH_OPCODES = {6, 10, 12}
AETH_OPCODES = {13, 15, 16, 17}
SPLIT = {  # opcode -> (first, middle, last) when the packet becomes several (IBA 9.2)
    0: (0, 1, 1), 1: (1, 1, 1), 2: (1, 1, 2), 4: (0, 1, 2), 22: (1, 1, 22), 23: (0, 1, 22),
    6: (6, 7, 7), 7: (7, 7, 7), 8: (7, 7, 8), 10: (6, 7, 8),
    13: (13, 14, 14), 14: (14, 14, 14), 15: (14, 14, 15), 16: (13, 14, 15),
}  # fmt: skip
READ_REQUEST, ACKNOWLEDGE = 12, 17
RESPONSES = {13, 14, 15, 16}


@dataclass(frozen=True)
class Input:
    name: str
    sample: str
    times: int
    """How often the sample is repeated."""
    mtu: int | None = None
    """Path MTU to cut the packets to."""
    connection: int | None = None
    """Only the connection of this queue pair number."""
    mount: bool = False
    """The repetitions follow each other in one connection."""
    first: int | None = None
    """Only so many packets of it, between those that connect and disconnect."""
    beside: Input | None = None
    """Each repetition comes from a client of its own, all at once; and so do those of this one."""
    change: Change | None = None
    """What becomes of the frames then."""
    snaplen: int | None = None
    """Bytes of each frame that the capture has."""
    tcp: bool = False
    """The sample's TCP is repeated, each time from other ports, and not its RoCE."""

    @property
    def path(self) -> Path:
        return WORK / f"{self.name}.pcap"


INPUTS = (
    Input("bulk-4096", "rxe-nfs-all", 62),
    Input("bulk-1024", "rxe-nfs-all", 58, mtu=1024),
    Input("metadata", "meta-rxe", 21),
    Input("mount", "meta-rxe", 36, connection=0x12, mount=True),
    Input("short", "meta-rxe", 5000, connection=0x12, first=60),
    *(
        Input(name, "meta-rxe", 21, change=change)
        for name, change in (
            ("missing-0.1", missing(0.001)),
            ("missing-1", missing(0.01)),
            ("retransmitted", retransmitted(0.003)),
            ("mirrored", mirrored),
            ("reordered", reordered(0.01, 30)),
            ("iwarp-metadata", over_tcp),
            ("tcp-metadata", lambda frames: exported(frames)),
        )
    ),
    Input("truncated", "meta-rxe", 21, snaplen=128),
    Input("iwarp-bulk", "siw-nfs-all", 60, tcp=True),
    Input("krb5", "krb5-rxe", 120),
    Input("server", "meta-rxe", 250, connection=0x12, first=3000, beside=Input("", "rxe-nfs-all", 30)),
    *(Input(f"curve-{power}", "meta-rxe", -(-(10**power) // 25_863)) for power in (4, 5, 6, 7)),
)


@dataclass(frozen=True)
class Packet:
    """A RoCEv2 packet over IPv4, up to its ICRC."""

    time: int
    """Microseconds."""
    lower: bytes
    """Ethernet, IP and UDP headers."""
    bth: bytes
    rest: bytes
    """Extended headers, payload and pad."""

    @property
    def opcode(self) -> int:
        return self.bth[0]

    @property
    def qpn(self) -> int:
        return int.from_bytes(self.bth[5:8], "big")

    @property
    def psn(self) -> int:
        return int.from_bytes(self.bth[9:12], "big")

    @property
    def extended(self) -> int:
        """Bytes of extended headers."""
        return 16 * (self.opcode in RETH_OPCODES) + 4 * (self.opcode in AETH_OPCODES | {22, 23})


def sample(name: str) -> Path:
    return SAMPLES / f"{name}.pcap.zst"


def captured(path: Path) -> Iterator[Timed]:
    """The frames of a little-endian microsecond pcap."""
    data = zstandard.ZstdDecompressor().decompressobj().decompress(path.read_bytes())
    at = 24
    while at < len(data):
        seconds, micros, length, _ = struct.unpack_from("<4I", data, at)
        yield seconds * 1_000_000 + micros, data[at + 16 : at + 16 + length]
        at += 16 + length


def packets(path: Path) -> Iterator[Packet]:
    """The RoCEv2 packets among them."""
    for time, frame in captured(path):
        if frame[12:14] == b"\x08\x00" and frame[23] == 17 and frame[36:38] == (4791).to_bytes(2, "big"):
            bth = frame[HEADERS : HEADERS + BTH]
            yield Packet(time, frame[:HEADERS], bth, frame[HEADERS + BTH : -4])


def cut(whole: Iterable[Packet], mtu: int) -> Iterator[Packet]:
    """The same conversation over a path with a smaller MTU: more packets, numbered anew (IBA 9.7.1, 9.7.2).

    A request packet takes as many PSNs as it becomes packets, a Read request as many as its responses.  Responses
    and acknowledgements carry the numbers of the requester's stream, so every stream has a map from old to new.
    The samples lose nothing, and both ends of their connections have the same queue pair number.
    """
    numbers: dict[tuple[bytes, int, int], tuple[int, int]] = {}
    following: dict[tuple[bytes, int], int] = {}
    for packet in whole:
        if packet.qpn == 1:
            yield _with_path_mtu(packet)
            continue
        source, destination = packet.lower[26:30], packet.lower[30:34]
        answers = packet.opcode in RESPONSES or packet.opcode == ACKNOWLEDGE
        stream = destination if answers else source, packet.qpn
        if not answers:
            first = following.get(stream, packet.psn)
            if packet.opcode == READ_REQUEST:
                length = int.from_bytes(packet.rest[12:16], "big")
                for number in range(-(-length // 4096)):
                    numbers[*stream, packet.psn + number & 0xFFFFFF] = first + number * (4096 // mtu), 4096 // mtu
                taken = -(-length // mtu)
            else:
                taken = max(1, -(-(len(packet.rest) - packet.extended) // mtu))
                numbers[*stream, packet.psn] = first, taken
            following[stream] = first + taken
        psn, taken = numbers[*stream, packet.psn]
        if packet.opcode == ACKNOWLEDGE:
            psn += taken - 1
        yield from _pieces(packet, psn, mtu)


def _with_path_mtu(packet: Packet) -> Packet:
    at = CM - HEADERS - BTH
    if int.from_bytes(packet.rest[at - 8 : at - 6], "big") != REQ:
        return packet
    rest = bytearray(packet.rest)
    rest[at + PATH_MTU_AT] = MTU_1024 << 4 | rest[at + PATH_MTU_AT] & 0x0F
    return replace(packet, rest=bytes(rest))


def _pieces(packet: Packet, psn: int, mtu: int) -> Iterator[Packet]:
    extended, payload = packet.rest[: packet.extended], packet.rest[packet.extended :]
    parts = [payload[at : at + mtu] for at in range(0, len(payload), mtu)] or [b""]
    if len(parts) == 1:
        yield _packet(packet, packet.opcode, packet.bth[1], packet.bth[8], psn, packet.rest)
        return
    first, middle, last = SPLIT[packet.opcode]
    for number, part in enumerate(parts):
        final = number == len(parts) - 1
        opcode = last if final else middle if number else first
        # The length is in the first packet of a Write, the acknowledgement in both ends of a response.
        here = (number == 0 and opcode in RETH_OPCODES) or opcode in AETH_OPCODES or (final and opcode == 22)
        # Solicited event, pad count and the wish for an acknowledgement belong to the last packet.
        flags = packet.bth[1] if final else packet.bth[1] & 0x4F
        wish = packet.bth[8] if final else packet.bth[8] & 0x7F
        yield _packet(packet, opcode, flags, wish, psn + number, (extended if here else b"") + part)


def _packet(old: Packet, opcode: int, flags: int, wish: int, psn: int, rest: bytes) -> Packet:
    bth = bytes((opcode, flags)) + old.bth[2:8] + bytes((wish,)) + (psn & 0xFFFFFF).to_bytes(3, "big")
    lower = bytearray(old.lower)
    length = 20 + 8 + BTH + len(rest) + 4
    struct.pack_into(">H", lower, 16, length)
    struct.pack_into(">H", lower, 38, length - 20)
    return replace(old, lower=bytes(_with_checksum(lower)), bth=bth, rest=rest)


def _with_checksum(lower: bytearray) -> bytearray:
    """With the checksum of the IP header (RFC 791, 3.1)."""
    struct.pack_into(">H", lower, 24, 0)
    total = sum(struct.unpack_from(">10H", lower, 14))
    total = (total & 0xFFFF) + (total >> 16)
    struct.pack_into(">H", lower, 24, ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF)
    return lower


def repeated(packet: Packet, number: int) -> tuple[bytes, bytes]:
    """BTH and the rest, in the connections of repetition ``number``."""
    if packet.qpn != 1:
        qpn = packet.qpn + 32 * number
        return packet.bth[:5] + qpn.to_bytes(3, "big") + packet.bth[8:], packet.rest
    rest = bytearray(packet.rest)
    at = CM - HEADERS - BTH
    attribute = int.from_bytes(rest[at - 8 : at - 6], "big")
    _add(rest, at - 16, 8, number << 32)
    _add(rest, at, 4, number << 8)
    if attribute != REQ:
        _add(rest, at + 4, 4, number << 8)
    if attribute in LOCAL_QPN:
        _add(rest, at + LOCAL_QPN[attribute], 3, 32 * number)
    return packet.bth, bytes(rest)


def _add(data: bytearray, at: int, size: int, number: int) -> None:
    value = int.from_bytes(data[at : at + size], "big") + number
    data[at : at + size] = (value % (1 << 8 * size)).to_bytes(size, "big")


def only(source: list[Packet], connection: int, first: int | None) -> list[Packet]:
    """The packets that connect, use and disconnect one connection, whose ends have the same queue pair number."""
    identifiers: set[bytes] = set()
    managed: list[Packet] = []
    at = CM - HEADERS - BTH
    for packet in source:
        if packet.qpn != 1:
            continue
        attribute, (local, remote) = int.from_bytes(packet.rest[at - 8 : at - 6], "big"), _identifiers(packet)
        place = LOCAL_QPN.get(attribute, 0)
        if attribute == REQ and int.from_bytes(packet.rest[at + place : at + place + 3], "big") == connection:
            identifiers.add(local)
        elif remote not in identifiers and local not in identifiers:
            continue
        if local in identifiers or remote in identifiers:
            identifiers.add(local)
            managed.append(packet)
    used = [packet for packet in source if packet.qpn == connection]
    cut_off = used[: first or len(used)]
    late = len(used) - len(cut_off) and used[-1].time - cut_off[-1].time
    ending = [replace(one, time=one.time - late) for one in managed if one.time > used[-1].time]
    return [one for one in managed if one.time < used[0].time] + cut_off + ending


def _identifiers(packet: Packet) -> tuple[bytes, bytes]:
    """Local and remote communication ID of a CM message."""
    at = CM - HEADERS - BTH
    return packet.rest[at : at + 4], packet.rest[at + 4 : at + 8]


def mounted(source: list[Packet], times: int) -> Iterator[Packet]:
    """One connection that does the same again and again, under further PSNs, MSNs and XIDs.

    The sample loses nothing and has no Read requests: every request takes one PSN.
    """
    opening = [one for one in source if one.qpn == 1 and one.time < source[len(source) // 2].time]
    ending = [one for one in source if one.qpn == 1][len(opening) :]
    used = source[len(opening) : len(source) - len(ending)]
    span = used[-1].time - used[0].time + 1000
    requests = [one for one in used if one.opcode != ACKNOWLEDGE]
    taken = {end: sum(one.lower[26:30] == end for one in requests) for end in {one.lower[26:30] for one in used}}
    acknowledged = {one.lower[26:30]: int.from_bytes(one.rest[1:4], "big") for one in used if one.opcode == ACKNOWLEDGE}
    xids = {one.rest[:4] for one in requests if one.opcode == 4 and one.rest[4:8] == b"\0\0\0\1"}
    counted = [int.from_bytes(xid, "little") for xid in xids]
    step = max(counted) - min(counted) + 1
    yield from opening
    for number in range(times):
        for one in used:
            requester = one.lower[30:34] if one.opcode == ACKNOWLEDGE else one.lower[26:30]
            psn = one.psn + number * taken[requester] & 0xFFFFFF
            rest = bytearray(one.rest)
            if one.opcode == ACKNOWLEDGE:
                _add(rest, 1, 3, number * acknowledged[one.lower[26:30]])
            for at in _xids(one, xids):
                xid = int.from_bytes(rest[at : at + 4], "little") + number * step
                rest[at : at + 4] = (xid & 0xFFFFFFFF).to_bytes(4, "little")
            bth = one.bth[:9] + psn.to_bytes(3, "big")
            yield replace(one, time=one.time + number * span, bth=bth, rest=bytes(rest))
    for one in ending:
        yield replace(one, time=one.time + (times - 1) * span)


def _xids(packet: Packet, xids: set[bytes]) -> list[int]:
    """Where XIDs stand: in front, behind the chunk lists (RFC 8166, 4), and, as Linux chooses them, in offsets."""
    return [at for at in range(0, min(len(packet.rest), 160), 4) if packet.rest[at : at + 4] in xids]


def written(packet: Packet, covered: bytes, number: int, time: int) -> bytes:
    """A packet of repetition ``number`` at ``time`` (microseconds), as a pcap has it; ``covered``: see ``masked``."""
    bth, rest = repeated(packet, number)
    crc = zlib.crc32(rest, zlib.crc32(covered + bth[:4] + b"\xff" + bth[5:]))
    frame = packet.lower + bth + rest + crc.to_bytes(4, "little")
    return recorded(time, frame)


def recorded(time: int, frame: bytes) -> bytes:
    """A frame as a pcap has it."""
    seconds, micros = divmod(time, 1_000_000)
    return struct.pack("<4I", seconds, micros, len(frame), len(frame)) + frame


def truncated(record: bytes, snaplen: int) -> bytes:
    """A record of a pcap whose frame the capture truncates."""
    length = len(record) - 16
    return record[:8] + struct.pack("<2I", min(snaplen, length), length) + record[16 : 16 + snaplen]


def from_clients(one: Input, numbers: range) -> Iterator[tuple[int, int, Packet]]:
    """The repetitions of these numbers from a client each, in the order of time: time, number, packet."""
    source = list(selected(one))
    client = next(packet.lower[26:30] for packet in source if packet.qpn == 1)
    lower = {
        number: {old: _moved(old, client, number) for old in {packet.lower for packet in source}} for number in numbers
    }
    begun = source[0].time
    for packet in source:  # The times of a sample ascend, and its clients begin within a microsecond of each other.
        for number in numbers:
            yield packet.time - begun + number, number, replace(packet, lower=lower[number][packet.lower])


def _moved(lower: bytes, client: bytes, number: int) -> bytes:
    """The headers with another address of the client."""
    head = bytearray(lower)
    for at in 26, 30:
        if lower[at : at + 4] == client:
            head[at : at + 4] = bytes((10, 78, *divmod(number, 256)))
    return bytes(_with_checksum(head))


def selected(one: Input) -> list[Packet]:
    """The packets of the sample that are repeated."""
    source = list(packets(sample(one.sample)))
    if one.mtu:
        source = list(cut(source, one.mtu))
    return source if one.connection is None else only(source, one.connection, one.first)


def arranged(one: Input) -> Iterator[tuple[int, int, Packet]]:
    """What the input consists of: microseconds, number of the repetition, packet."""
    if one.beside is not None:
        yield from merge(
            from_clients(one, range(one.times)),
            from_clients(one.beside, range(one.times, one.times + one.beside.times)),
            key=itemgetter(0),
        )
        return
    source, times = selected(one), one.times
    if one.mount:
        source, times = list(mounted(source, times)), 1
    span = source[-1].time - source[0].time + (1000 if one.first else 1_000_000)
    for number in range(times):
        for packet in source:
            yield packet.time + number * span, number, packet


def records(one: Input) -> Iterator[tuple[int, bytes]]:
    """Microseconds, and a frame as a pcap has it."""
    covered: dict[bytes, bytes] = {}
    for time, number, packet in arranged(one):
        lower = packet.lower
        if lower not in covered:
            covered[lower] = masked(lower)
        yield time, written(packet, covered[lower], number, time)


def changed(one: Input) -> Iterator[bytes]:
    """All of the input, frame by frame, as a pcap has them."""
    if one.tcp:
        return (recorded(*frame) for frame in on_other_ports(captured(sample(one.sample)), one.times))
    if one.change is None:
        return (record if one.snaplen is None else truncated(record, one.snaplen) for _, record in records(one))
    return (recorded(*frame) for frame in one.change((time, record[16:]) for time, record in records(one)))


def exported(frames: Iterator[Timed]) -> Iterator[Timed]:
    """Their RPCs over TCP without RDMA, as ``rdmascope export`` writes them."""
    with TemporaryDirectory() as folder:
        rdma, tcp = Path(folder, "rdma.pcap"), Path(folder, "tcp.pcapng")
        with rdma.open("wb") as file:
            file.write(PCAP_HEADER)
            file.writelines(recorded(*frame) for frame in frames)
        rdmascope = Path(sys.executable).with_name("rdmascope")
        subprocess.run([rdmascope, "export", rdma, "-o", tcp], check=True, stdout=subprocess.DEVNULL)
        with open_capture(str(tcp)) as capture:
            for batch in capture.batches():
                for time, at, size in zip(*(batch.rows[name].tolist() for name in TIMED), strict=True):
                    yield time // 1000, ETHERNET + batch.data[at : at + size].tobytes()


def make(one: Input) -> None:
    """Write the input, under its name only when it is whole."""
    WORK.mkdir(exist_ok=True)
    unfinished = one.path.with_suffix(".part")
    with unfinished.open("wb") as file:
        file.write(PCAP_HEADER)
        file.writelines(changed(one))
    unfinished.rename(one.path)


def main(names: list[str]) -> None:
    for one in INPUTS:
        if one.name in names and not one.path.exists():
            print(f"making {one.path.name}", file=sys.stderr)
            make(one)


if __name__ == "__main__":
    main(sys.argv[1:])
