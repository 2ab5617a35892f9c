"""What goes wrong with a capture, or carries it otherwise: changes of a made input, frame by frame.

Each takes the frames of another input, as (microseconds, bytes), and gives those of its own.  All are the same in every
run.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from random import Random

Timed = tuple[int, bytes]
"""Microseconds, frame."""
Change = Callable[[Iterator[Timed]], Iterator[Timed]]

BTH_AT, PAYLOAD_AT = 42, 54
ICRC = 4
ACK = 0x11
REQUESTS = {*range(0x0D), 0x16, 0x17}
"""Opcodes of Reliable Connection that take a PSN of their sender's."""
LAST = {0x02, 0x03, 0x04, 0x05, 0x08, 0x09, 0x0A, 0x0B, 0x16, 0x17}
WRITES = range(0x06, 0x0C)
WITH_ADDRESS = {0x06, 0x0A, 0x0B}
INVALIDATING = {0x16, 0x17}
NAK_SEQUENCE = 0x60
SERVICE_PORT = 20049
FOLLOWERS = 8
"""Requests that are on their way before their sender hears of a loss."""


def missing(share: float) -> Change:
    """A part of the frames is not in the capture."""

    def change(frames: Iterator[Timed]) -> Iterator[Timed]:
        random = Random(1).random
        return (frame for frame in frames if random() >= share)

    return change


def reordered(share: float, behind: int) -> Change:
    """A part of the frames comes so many frames late."""

    def change(frames: Iterator[Timed]) -> Iterator[Timed]:
        random, late = Random(2).random, list[tuple[int, int, bytes]]()
        for number, (time, frame) in enumerate(frames):
            if random() < share:
                heappush(late, (number + behind, number, frame))
            else:
                yield time, frame
            while late and late[0][0] <= number:
                yield time, heappop(late)[2]
        while late:
            yield time, heappop(late)[2]

    return change


def mirrored(frames: Iterator[Timed]) -> Iterator[Timed]:
    """A switch mirrors two ports into one, and so gives each frame twice."""
    for time, frame in frames:
        yield time, frame
        yield time + 1, frame


def retransmitted(share: float) -> Change:
    """A part of the requests is lost: half of them before the capture point, half behind it.

    A responder that gets the requests behind one that is lost asks for it (NAK), and gets it and them again.
    """

    def change(frames: Iterator[Timed]) -> Iterator[Timed]:
        random = Random(3).random
        lost: dict[tuple[bytes, bytes], list[Timed]] = {}
        for time, frame in frames:
            stream, opcode = (frame[26:34], frame[47:50]), frame[BTH_AT]
            if stream not in lost and opcode in REQUESTS and random() < share:
                lost[stream] = [(time, frame)]
                if random() < 0.5:
                    yield time, frame
                continue
            # What the other end says next ends the silence, and so does a window that is full.
            back = frame[30:34] + frame[26:30], frame[47:50]
            for ended in [one for one in (back, stream) if one in lost and (one == back or len(lost[one]) > FOLLOWERS)]:
                again = lost.pop(ended)
                if len(again) > 1:
                    yield time, nak(again[0][1])
                yield from ((time, one) for _, one in again)
            if stream in lost and opcode in REQUESTS:
                lost[stream].append((time, frame))
            yield time, frame
        for again in lost.values():
            yield from again

    return change


def masked(lower: bytes) -> bytes:
    """What the ICRC covers in front of BTH: the fields that change on the way are ones (IBA A17.3.3)."""
    bare = bytearray(lower[14:])
    for at in 1, 8, 10, 11, 26, 27:
        bare[at] = 0xFF
    return b"\xff" * 8 + bytes(bare)


def nak(request: bytes) -> bytes:
    """What asks for a request again: of both ends the queue pair number is the same."""
    ip = bytearray(request[:34])
    ip[0:6], ip[6:12] = ip[6:12], ip[0:6]
    ip[26:30], ip[30:34] = ip[30:34], ip[26:30]
    struct.pack_into(">H", ip, 16, 20 + 28)
    bth = bytes((ACK, 0)) + request[44:51] + request[51:54]
    lower, rest = bytes(ip) + request[34:38] + struct.pack(">HH", 28, 0), bytes((NAK_SEQUENCE, 0, 0, 0))
    crc = zlib.crc32(rest, zlib.crc32(masked(lower) + bth[:4] + b"\xff" + bth[5:]))
    return lower + bth + rest + crc.to_bytes(4, "little")


class TcpConnection:
    """A queue pair's traffic as MPA over TCP, revision 1, without markers and CRCs (RFC 5044)."""

    def __init__(self, client: bytes, server: bytes, port: int) -> None:
        self._ends = {client: port, server: SERVICE_PORT}
        self._next = {client: 1000, server: 5000}
        self._sends = {client: 0, server: 0}
        self._offset = {client: 0, server: 0}
        self._address = {client: (0, 0), server: (0, 0)}
        self._psn: dict[bytes, int] = {}
        self._client, self._server = client, server

    def segment(self, source: bytes, payload: bytes, flags: int = 0x18) -> bytes:
        target = self._server if source == self._client else self._client
        sequence, following = self._next[source], self._next[target]
        self._next[source] = sequence + len(payload) + (flags & 2 > 0)
        tcp = struct.pack(
            ">HHIIBBHHH", self._ends[source], self._ends[target], sequence, following, 0x50, flags, 0xFFFF, 0, 0
        )
        ip = struct.pack(">BBHHHBBH", 0x45, 0, 40 + len(payload), 0, 0x4000, 64, 6, 0) + source + target
        return b"\2\0\0\0\0\1\2\0\0\0\0\2\x08\0" + ip + tcp + payload

    def opening(self) -> Iterator[bytes]:
        request = struct.pack(">BBH", 0, 1, 0)
        yield self.segment(self._client, b"", 0x02)
        yield self.segment(self._server, b"", 0x12)
        yield self.segment(self._client, b"", 0x10)
        yield self.segment(self._client, b"MPA ID Req Frame" + request)
        yield self.segment(self._server, b"MPA ID Rep Frame" + request)

    def seen(self, frame: bytes) -> bool:
        """Whether the request was sent before: TCP would not hand it on again."""
        source, psn = frame[26:30], int.from_bytes(frame[51:54], "big")
        behind = (psn - self._psn.get(source, psn)) & 0x800000
        if not behind:
            self._psn[source] = psn + 1
        return behind > 0

    def fpdu(self, frame: bytes) -> bytes:
        """A request packet as the segment of a DDP message (RFC 5040, 5041); Reads are not in metadata."""
        source, opcode = frame[26:30], frame[BTH_AT]
        payload = frame[PAYLOAD_AT:-ICRC]
        pad = frame[43] >> 4 & 3
        last = 0x40 * (opcode in LAST)
        if opcode in WRITES:
            if opcode in WITH_ADDRESS:
                address, tag, _ = struct.unpack_from(">QII", payload)
                self._address[source] = address, tag
                payload = payload[16:]
            address, tag = self._address[source]
            payload = payload[: len(payload) - pad]
            self._address[source] = address + len(payload), tag
            ddp = struct.pack(">BBIQ", 0x81 | last, 0x40, tag, address) + payload
        else:
            tag = 0
            if opcode in INVALIDATING:
                (tag,), payload = struct.unpack_from(">I", payload), payload[4:]
            payload = payload[: len(payload) - pad]
            rdmap = 0x44 if tag else 0x43
            ddp = struct.pack(">BBIIII", 0x01 | last, rdmap, tag, 0, self._sends[source] + 1, self._offset[source])
            ddp += payload
            self._offset[source] = 0 if last else self._offset[source] + len(payload)
            self._sends[source] += last > 0
        ulpdu = struct.pack(">H", len(ddp)) + ddp
        return self.segment(source, ulpdu + bytes(-len(ulpdu) % 4) + bytes(4))


def over_tcp(frames: Iterator[Timed]) -> Iterator[Timed]:
    """Metadata over iWARP, each connection on a port of its own; every tenth acknowledgement stays one."""
    connections: dict[bytes, TcpConnection] = {}
    acknowledgements = 0
    for time, frame in frames:
        qpn, opcode = frame[47:50], frame[BTH_AT]
        if opcode not in REQUESTS and opcode != ACK:
            continue
        if (connection := connections.get(qpn)) is None:
            # The client speaks first.
            connection = TcpConnection(frame[26:30], frame[30:34], 10000 + len(connections))
            connections[qpn] = connection
            yield from ((time, one) for one in connection.opening())
        if opcode in REQUESTS and not connection.seen(frame):
            yield time, connection.fpdu(frame)
        elif opcode == ACK and not (acknowledgements := acknowledgements + 1) % 10:
            yield time, connection.segment(frame[26:30], b"", 0x10)


def on_other_ports(frames: Iterator[Timed], times: int) -> Iterator[Timed]:
    """The TCP traffic of an iWARP sample again and again, each time later and from other ports."""
    kept = [one for one in frames if one[1][12:14] == b"\x08\0" and one[1][23] == 6]
    span = kept[-1][0] - kept[0][0] + 1_000_000
    for number in range(times):
        for time, frame in kept:
            head = bytearray(frame)
            for at in 34, 36:
                (port,) = struct.unpack_from(">H", head, at)
                if port != SERVICE_PORT:
                    struct.pack_into(">H", head, at, 2000 + (port + 977 * number) % 60000)
            yield time + number * span, bytes(head)
