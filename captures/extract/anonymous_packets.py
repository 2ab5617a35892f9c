"""The payload of packets and segments with other bytes in it: RDMA payload, CM messages, FPDUs."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import attrgetter

from rdmascope.dissect.arrays import Rows
from rdmascope.dissect.frames import Frame, FrameBatch
from rdmascope.dissect.intervals import IntervalSet
from rdmascope.dissect.layers import iwarp_codes, opcodes
from rdmascope.dissect.layers.fpdus import LENGTH_BYTES, MarkerGrid, crc32c
from rdmascope.dissect.link.addresses import AddressTable
from rdmascope.dissect.link.locate import Located
from rdmascope.dissect.link.packets import decode, is_management
from rdmascope.dissect.link.tcp import locate_tcp
from rdmascope.dissect.serial import TCP_SEQUENCE
from rdmascope.dissect.transport.connection import Connection
from rdmascope.dissect.transport.iwarp.rdmap import TAGGED_HEADER, UNTAGGED_HEADER

from .anonymous_frames import CannotBeAnonymousError, FrameChecksums, HeaderWalk
from .anonymous_messages import AnonymousOperations
from .carriers import ChosenFpdu, Flow
from .pseudonyms import Pseudonyms

RPCRDMA_MAGIC = bytes.fromhex("f6ab0e18")
"""Begins the private data of RPC-over-RDMA (RFC 8797, 4)."""
RPCRDMA_PRIVATE = 8
MPA_HEADER, MPA_DEPTHS = 20, 4
REMEMBERED = 256
"""FPDUs in pieces."""
CRC_BYTES = 4
MAD_HEADER = 24

_REQ, _REJ, _REP, _RTU, _DREQ, _DREP, _MRA = 0x10, 0x12, 0x13, 0x14, 0x15, 0x16, 0x11
KEPT_OF_MAD = {_REQ: 140, _REP: 36, _RTU: 8, _DREQ: 12, _DREP: 8, _MRA: 10, _REJ: 12}
"""Bytes of CM messages in front of private data and additional information; of others nothing is kept (IBA 12.6)."""
_GUIDS = {_REQ: (16,), _REP: (28,)}
_GIDS = {_REQ: (56, 72, 100, 116)}
IP_CM_BYTES, IP_CM_ADDRESSES = 36, (4, 20)
"""The header of the RDMA IP CM Service in front of a REQ's private data, and the addresses in it (IBA A11)."""
RDMA_IP_CM = bytes.fromhex("0000000001")


@dataclass(slots=True)
class _Fpdu:
    """An FPDU of which a segment may carry a part: its bytes, as far as they were seen."""

    chosen: ChosenFpdu
    image: bytearray
    seen: IntervalSet = field(default_factory=IntervalSet)


class AnonymousFrames:
    """Makes chosen frames anonymous, batch by batch.

    Attributes:
        refused: frames whose headers are not understood, and so are not to be written, by why.
    """

    def __init__(self, pseudonyms: Pseudonyms, operations: AnonymousOperations) -> None:
        self._pseudonyms = pseudonyms
        self._operations = operations
        self.refused: dict[str, int] = {}
        self._fpdus: dict[Flow, list[ChosenFpdu]] = defaultdict(list)
        self._images: dict[tuple[Flow, int], _Fpdu] = {}
        self._packets: dict[int, Rows] = {}
        self._segments: dict[int, Rows] = {}
        self._tags: dict[int, int] = {}
        self._offsets: dict[int, int] = {}
        self._streams: dict[tuple[str, int, str, int], list[tuple[Connection, int]]] = {}
        self._addresses = AddressTable()

    def keep(self, flow: Flow, fpdu: ChosenFpdu) -> None:
        """Take note of an FPDU that carries some of a chosen Operation."""
        self._fpdus[flow].append(fpdu)

    def begin(
        self,
        streams: dict[tuple[str, int, str, int], list[tuple[Connection, int]]],
    ) -> None:
        """All FPDUs are known; ``streams``: the connections by sender and receiver, address and port each."""
        self._streams = streams
        for flow in self._fpdus.values():
            flow.sort(key=attrgetter("start"))

    def batch(
        self, batch: FrameBatch, located: Located, addresses: AddressTable, frames: list[int], tags: list[int]
    ) -> None:
        """The batch of the next frames; ``tags``: the Operations of some of them."""
        self._addresses = addresses
        self._tags = dict(zip(frames, tags, strict=True))
        rows = decode(batch, located).rows
        self._packets = dict(zip(rows["frame"].tolist(), rows, strict=True))
        segments = locate_tcp(batch, located.tcp, addresses) if located.tcp else rows[:0]
        self._segments = dict(zip(segments["frame"].tolist(), segments, strict=True))
        self._offsets = dict(zip(batch.rows["number"].tolist(), batch.rows["offset"].tolist(), strict=True))

    def anonymous(self, frame: Frame) -> Frame | None:
        """The frame with other bytes; None where it cannot be made so."""
        data = bytearray(frame.data)
        try:
            headers = HeaderWalk(data, self._pseudonyms).walk(frame.link_type)
            packet, segment = self._packets.get(frame.number), self._segments.get(frame.number)
            start = self._offsets[frame.number]
            if packet is not None and headers.transport == int(packet["bth"]) - start and not headers.tcp:
                sums = FrameChecksums(frame.data, headers, True)
                self._packet(data, packet, start, headers.local_route is None)
            elif segment is not None and headers.tcp and headers.transport == int(segment["header"]) - start:
                sums = FrameChecksums(frame.data, headers, False)
                self._segment(data, segment, start)
            else:
                raise CannotBeAnonymousError("headers that are truncated, or in an unusual order")
            sums.mend(data)
        except CannotBeAnonymousError as error:
            self.refused[str(error)] = self.refused.get(str(error), 0) + 1
            return None
        return frame._replace(data=bytes(data), comment="")

    def _packet(self, data: bytearray, row: Rows, start: int, padded: bool) -> None:
        at, captured, length = int(row["payload"]) - start, int(row["captured"]), int(row["length"])
        tag = self._tags.get(int(row["frame"]), -1)
        if is_management(row):
            _management(data, at, captured, self._pseudonyms)
        elif tag >= 0 and not opcodes.IS_READ_REQUEST[row["opcode"]]:
            data[at : at + captured] = self._operations.packet(tag, int(row["psn"]), captured)
        else:
            data[at : at + captured] = bytes(captured)
        end = at + length + int(row["pad"]) + opcodes.ICRC_BYTES
        if padded and captured == length and end < len(data):
            data[end:] = bytes(len(data) - end)

    # iWARP

    def _segment(self, data: bytearray, row: Rows, start: int) -> None:
        at, captured = int(row["payload"]) - start, int(row["captured"])
        names = self._addresses.name(int(row["source"])), self._addresses.name(int(row["destination"]))
        stream = names[0], int(row["source_port"]), names[1], int(row["destination_port"])
        old = bytes(data[at : at + captured])
        new = _startup(old)
        if new is None:
            new = bytearray(captured)
            for connection, sender in self._streams.get(stream, ()):
                self._fill((connection.number, sender), int(row["seq"]), old, new)
        data[at : at + captured] = new
        data[at + captured :] = bytes(len(data) - at - captured)

    def _fill(self, flow: Flow, seq: int, old: bytes, new: bytearray) -> None:
        """Put what a segment carries of chosen FPDUs into ``new``."""
        fpdus = self._fpdus.get(flow)
        if not fpdus or not old:
            return
        # Sequence numbers wrap after four gigabytes: the FPDU nearest to the segment of all that may be meant.
        base = TCP_SEQUENCE.unwrap(fpdus[0].start, seq)
        for turn in range((fpdus[-1].stop - base) // TCP_SEQUENCE.modulus + 1):
            position = base + turn * TCP_SEQUENCE.modulus
            index = max(0, bisect_right(fpdus, position, key=attrgetter("start")) - 1)
            while index < len(fpdus) and fpdus[index].start < position + len(old):
                if fpdus[index].stop > position:
                    self._part(flow, fpdus[index], position, old, new)
                index += 1

    def _part(self, flow: Flow, chosen: ChosenFpdu, position: int, old: bytes, new: bytearray) -> None:
        key = flow, chosen.start
        one = self._images.get(key)
        if one is None:
            if len(self._images) >= REMEMBERED:
                self._images.pop(next(iter(self._images)))
            one = self._images[key] = _Fpdu(chosen, bytearray(chosen.stop - chosen.start))
        low, high = max(position, chosen.start), min(position + len(old), chosen.stop)
        one.image[low - chosen.start : high - chosen.start] = old[low - position : high - position]
        one.seen.add(low - chosen.start, high - chosen.start)
        made = self._made(one)
        new[low - position : high - position] = made[low - chosen.start : high - chosen.start]

    def _made(self, one: _Fpdu) -> bytes:
        """The FPDU with the new bytes, as far as it was seen."""
        chosen, size = one.chosen, len(one.image)
        marked: set[int] = set()
        if chosen.grid is not None:
            grid = MarkerGrid(chosen.grid)
            for marker in grid.between(chosen.start, chosen.stop):
                marked.update(range(marker - chosen.start, marker - chosen.start + 4))
        places = [place for place in range(size) if place not in marked] if marked else range(size)
        queue = iwarp_codes.OPCODES[chosen.opcode].queue
        header = LENGTH_BYTES + (TAGGED_HEADER if queue is None else UNTAGGED_HEADER)
        made = bytearray(one.image)
        body = places[header : len(places) - CRC_BYTES]
        if chosen.opcode != iwarp_codes.READ_REQUEST:
            if queue is not None:
                at = chosen.place
            elif chosen.sink is not None:
                at = chosen.place - chosen.sink
            else:
                at = chosen.place - self._operations.address(chosen.tag)
            length = int.from_bytes(bytes(made[place] for place in places[:LENGTH_BYTES]), "big")
            length = max(0, min(len(body), length + LENGTH_BYTES - header)) if one.seen.covers(0, 2) else len(body)
            data = self._operations.at(chosen.tag, at, length).ljust(len(body), b"\0")
            if marked:
                for place, byte in zip(body, data, strict=True):
                    made[place] = byte
            elif len(body):
                made[header : header + len(body)] = data
        known = next((count for count in range(CRC_BYTES, 0, -1) if one.seen.covers(0, size - CRC_BYTES + count)), 0)
        right = crc32c(one.image[:-CRC_BYTES]).to_bytes(CRC_BYTES, "big")
        if known and right[:known] == one.image[size - CRC_BYTES : size - CRC_BYTES + known]:
            made[-CRC_BYTES:] = crc32c(made[:-CRC_BYTES]).to_bytes(CRC_BYTES, "big")
        return bytes(made)


def _startup(old: bytes) -> bytearray | None:
    """An MPA Request or Reply with no private data but RPC-over-RDMA's; None where it is none (RFC 5044, 7.1)."""
    if not old.startswith((iwarp_codes.REQUEST_KEY, iwarp_codes.REPLY_KEY)):
        return None
    new = bytearray(old)
    for start in (MPA_HEADER, MPA_HEADER + MPA_DEPTHS):
        if old[start : start + len(RPCRDMA_MAGIC)] == RPCRDMA_MAGIC:
            new[start + RPCRDMA_PRIVATE :] = bytes(max(0, len(old) - start - RPCRDMA_PRIVATE))
            return new
    kept = MPA_HEADER + (MPA_DEPTHS if len(old) > 17 and old[17] > 1 else 0)
    new[kept:] = bytes(max(0, len(old) - kept))
    return new


def _management(data: bytearray, at: int, captured: int, pseudonyms: Pseudonyms) -> None:
    """A CM message with other GUIDs, GIDs and IP addresses, and no private data but RPC-over-RDMA's."""
    old = bytes(data[at : at + captured])
    new = bytearray(captured)
    attribute = int.from_bytes(old[16:18], "big")
    body = old[MAD_HEADER:]
    kept = KEPT_OF_MAD.get(attribute, 0)
    new[:MAD_HEADER] = old[:MAD_HEADER]
    made = bytearray(body)
    made[kept:] = bytes(max(0, len(body) - kept))
    for place in _GUIDS.get(attribute, ()):
        _put(made, place, 8, pseudonyms.guid)
    for place in _GIDS.get(attribute, ()):
        _put(made, place, 16, pseudonyms.ipv6)
    private = kept
    if attribute == _REQ and body[8:13] == RDMA_IP_CM:
        made[kept : kept + IP_CM_BYTES] = body[kept : kept + IP_CM_BYTES]
        for place in IP_CM_ADDRESSES:
            _put_ip(made, kept + place, pseudonyms)
        private += IP_CM_BYTES
    if body[private : private + len(RPCRDMA_MAGIC)] == RPCRDMA_MAGIC:
        made[private : private + RPCRDMA_PRIVATE] = body[private : private + RPCRDMA_PRIVATE]
    new[MAD_HEADER:] = made
    data[at : at + captured] = new


def _put(made: bytearray, place: int, size: int, replace: Callable[[bytes], bytes]) -> None:
    if place + size <= len(made):
        made[place : place + size] = replace(bytes(made[place : place + size]))
    else:
        made[place:] = bytes(max(0, len(made) - place))


def _put_ip(made: bytearray, place: int, pseudonyms: Pseudonyms) -> None:
    """An address in 16 bytes, IPv4 in the last four of them."""
    if place + 16 > len(made):
        made[place:] = bytes(max(0, len(made) - place))
    elif any(made[place : place + 12]):
        _put(made, place, 16, pseudonyms.ipv6)
    else:
        _put(made, place + 12, 4, pseudonyms.ipv4)
