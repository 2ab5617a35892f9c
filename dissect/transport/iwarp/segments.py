"""What the TCP segments of iWARP connections carry: MPA Requests and Replies, FPDUs, parts of FPDUs."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ...arrays import Bytes, Rows
from ...frames import FrameBatch
from ...layers.iwarp_codes import OPCODES
from ...link.tcp import ACK, SYN, WINDOW_SCALE, options
from ...named_tuple import NamedTuple
from ...serial import TCP_SEQUENCE
from ..connection import Connection
from .fpdus import TAGGED_HEADER, UNTAGGED_HEADER, Fpdus, ReadRequest
from .framing import MPAFrame
from .observer import IwarpObserver, ends_of
from .tcp_connection import TcpConnection

READY = "ready"
FPDU, RECORD = "FPDU", "record"
"""Units that segments carry."""
KEPT = 1 << 16
"""FPDUs remembered per direction, apart from the latest block."""


@dataclass(frozen=True, slots=True)
class Fpdu:
    """One FPDU and what its headers say."""

    start: int
    """Stream positions of its first byte, perhaps a marker, and after it."""
    stop: int
    opcode: int
    last: bool
    stag: int
    """Tagged: the STag; untagged: the STag to invalidate."""
    msn: int
    place: int
    """The TO or MO."""
    length: int
    """Payload bytes."""
    first_frame: int
    last_frame: int
    request: ReadRequest | None
    fpdus: Fpdus
    index: int

    @property
    def queue(self) -> int | None:
        """Its queue number; None if it is tagged."""
        return OPCODES[self.opcode].queue

    @property
    def size(self) -> int:
        """Bytes on the wire, with markers."""
        return self.stop - self.start

    @property
    def ulpdu_length(self) -> int:
        return self.length + (TAGGED_HEADER if self.queue is None else UNTAGGED_HEADER)

    def payload(self) -> bytes:
        """The payload before its first byte that is not captured."""
        return self.fpdus.payload(self.index)


class Part(NamedTuple):
    """A stretch of a segment's payload.  Without FPDU, MPA frame, fault and ``ready`` its content is unknown."""

    at: int
    """Offset in the payload."""
    length: int
    before: int = 0
    """Bytes of its FPDU, Request or Reply before the segment."""
    after: int = 0
    """Bytes of it after the segment."""
    fpdu: Fpdu | None = None
    mpa: MPAFrame | None = None
    fault: str = ""
    """Why the FPDU is not trusted, such as 'wrong CRC32C'."""
    ready: bool = False
    """It is an FPDU without contents (RFC 6581, 9.2)."""

    @property
    def whole(self) -> bool:
        return not self.before and not self.after


@dataclass(frozen=True, slots=True)
class IwarpSegment:
    """A TCP segment of an iWARP connection."""

    frame: int
    time: int
    wire: int
    """Bytes of the whole frame."""
    connection: Connection
    sender: int
    """Endpoint of the connection."""
    source: str
    destination: str
    source_port: int
    destination_port: int
    seq: int
    ack: int
    flags: int
    relative_seq: int
    """Counted from the SYN, which is 0; the first byte is 1."""
    relative_ack: int | None
    window: int
    scaled: bool
    """``window`` is in bytes, as its scale is known."""
    header: int
    """Offset of the TCP header in the frame."""
    payload: int
    """Offset of the payload in the frame."""
    length: int
    """Payload bytes on the wire."""
    captured: int
    mark: str
    """What is unusual about it; '' for nothing."""
    parts: tuple[Part, ...]
    position: int | None
    """Position of the payload, counted from the first marker of its direction; None without markers."""
    crc: bool | None
    """Whether CRCs are in use; None: unknown."""

    @property
    def unit(self) -> str:
        """What its stream consists of: FPDUs or records."""
        return FPDU if self.connection.rdma else RECORD


class _Index:
    """Finds the FPDUs of one direction by position."""

    def __init__(self) -> None:
        self.blocks: deque[Fpdus] = deque()
        self.count = 0
        self._stops: list[int] | None = None
        self._places: list[tuple[int, int]] = []
        """Index of the block and of the FPDU in it, ascending by position."""

    def add(self, fpdus: Fpdus) -> None:
        self.blocks.append(fpdus)
        self.count += len(fpdus)
        while len(self.blocks) > 2 and self.count - len(self.blocks[0]) > KEPT:
            self.count -= len(self.blocks.popleft())
        self._stops = None

    def between(self, start: int, stop: int) -> Iterator[Fpdu]:
        """FPDUs with bytes in [start, stop), ascending."""
        if self._stops is None:
            self._places = [(block, index) for block, fpdus in enumerate(self.blocks) for index in range(len(fpdus))]
            self._stops = [stop for fpdus in self.blocks for stop in fpdus.rows["stop"].tolist()]
        for at in range(bisect_right(self._stops, start), len(self._stops)):
            block, index = self._places[at]
            fpdu = _fpdu(self.blocks[block], index)
            if fpdu.start >= stop:
                return
            yield fpdu


def _fpdu(fpdus: Fpdus, index: int) -> Fpdu:
    row = fpdus.rows[index]
    return Fpdu(
        int(row["start"]),
        int(row["stop"]),
        int(row["opcode"]),
        bool(row["last"]),
        int(row["stag"]),
        int(row["msn"]),
        int(row["place"]),
        int(row["length"]),
        int(row["first_frame"]),
        int(row["last_frame"]),
        fpdus.requests.get(index),
        fpdus,
        index,
    )


class IwarpSegments:
    """Remembers the latest FPDUs of every connection, to find those in a segment.

    ``listen`` must be called with all of them (``Analyzer.watch_fpdus``).
    """

    def __init__(self) -> None:
        self._known: dict[TcpConnection, tuple[_Index, _Index]] = {}
        self._scales: dict[tuple[TcpConnection, int], int] = {}
        """By direction: the window scale option of its SYN."""

    def listen(self, tcp: TcpConnection, direction: int, fpdus: Fpdus) -> None:
        self._known.setdefault(tcp, (_Index(), _Index()))[direction].add(fpdus)

    def of(self, batch: FrameBatch, rows: Rows, observer: IwarpObserver) -> list[IwarpSegment]:
        """The segments of iWARP connections among the SEGMENT rows of a batch, as far as ``observer`` knows these."""
        if not len(rows):
            return []
        source, destination = ends_of(rows)
        low, high = np.minimum(source, destination), np.maximum(source, destination)
        frames = rows["frame"]
        chosen: list[tuple[int, TcpConnection]] = []
        links = dict.fromkeys((*observer.connections.values(), *observer.open.values()))
        for gone in self._known.keys() - links.keys():
            del self._known[gone]
            for direction in (0, 1):
                self._scales.pop((gone, direction), None)
        for tcp in links:
            if tcp.connection is not None:
                mine = (low == tcp.key[0]) & (high == tcp.key[1]) & (frames >= tcp.lifetime.since)
                if tcp.lifetime.until is not None:
                    mine &= frames < tcp.lifetime.until
                if tcp.transport == "UDP":
                    mine &= np.isin(frames, [*tcp.placed])
                chosen += [(index, tcp) for index in np.flatnonzero(mine).tolist()]
        forward = source <= destination
        return [
            self._segment(batch, rows[index], int(not forward[index]), tcp, observer)
            for index, tcp in sorted(chosen, key=_place)
        ]

    def _segment(
        self, batch: FrameBatch, row: Rows, direction: int, tcp: TcpConnection, observer: IwarpObserver
    ) -> IwarpSegment:
        assert tcp.connection is not None
        seq, ack, flags, length = (int(row[name]) for name in ("seq", "ack", "flags", "length"))
        if flags & SYN:
            self._scale(batch.data, row, tcp, direction)
        stream, other = tcp.directions[direction].stream, tcp.directions[1 - direction].stream
        at = tcp.placed.get(int(row["frame"]), seq + bool(flags & SYN))
        first = stream.first
        position = at if first is None else TCP_SEQUENCE.unwrap(max(first, stream.reference), at)
        scale = None if flags & SYN else self._scales.get((tcp, direction))
        known = bool(flags & SYN) or (scale is not None and (tcp, 1 - direction) in self._scales)
        framing = tcp.directions[direction].framing
        grid = framing.pending.grid
        number = int(np.searchsorted(batch.rows["number"], int(row["frame"])))
        offset = int(batch.rows["offset"][number])
        return IwarpSegment(
            int(row["frame"]),
            int(row["time"]),
            int(batch.rows["original"][number]),
            tcp.connection,
            tcp.directions[direction].sender,
            observer.addresses.name(int(row["source"])),
            observer.addresses.name(int(row["destination"])),
            int(row["source_port"]),
            int(row["destination_port"]),
            seq,
            ack,
            flags,
            position - (position if first is None else first) + 1 - bool(flags & SYN),
            None
            if not flags & ACK or other.first is None
            else TCP_SEQUENCE.unwrap(max(other.first, other.reference), ack) - other.first + 1,
            int(row["window"]) << (scale or 0 if known else 0),
            known,
            int(row["header"]) - offset,
            int(row["payload"]) - offset,
            length,
            int(row["captured"]),
            tcp.mark(int(row["frame"])),
            tuple(self._parts(tcp, direction, position, length)) if length else (),
            None if grid is None else position - grid.base,
            framing.checks.crc,
        )

    def _scale(self, data: Bytes, row: Rows, tcp: TcpConnection, direction: int) -> None:
        for kind, contents in options(data, int(row["header"]), int(row["payload"])):
            if kind == WINDOW_SCALE and len(contents) == 1:
                self._scales[tcp, direction] = min(14, contents[0])

    def _parts(self, tcp: TcpConnection, direction: int, start: int, length: int) -> Iterator[Part]:
        """What the bytes [start, start + length) of a direction belong to."""
        framing = tcp.directions[direction].framing
        stop, at = start + length, start
        known: list[tuple[int, int, Fpdu | MPAFrame | str | None]] = [
            (left, right, why) for left, right, why in framing.checks.faults if left < stop and start < right
        ]
        startup = framing.startup
        if startup is not None and startup.start < stop and start < startup.stop:
            known.append((startup.start, startup.stop, startup.mpa))
        if framing.ready is not None and framing.ready[0] < stop and start < framing.ready[1]:
            known.append((*framing.ready, READY))
        if tcp in self._known:
            known += [(fpdu.start, fpdu.stop, fpdu) for fpdu in self._known[tcp][direction].between(start, stop)]
        for left, right, what in sorted(known, key=_place):
            if max(left, start) > at:
                yield Part(at - start, max(left, start) - at)
            begin, end = max(left, at), min(right, stop)
            if end <= begin:
                continue
            fpdu = what if isinstance(what, Fpdu) else None
            mpa = what if isinstance(what, MPAFrame) else None
            fault = what if isinstance(what, str) and what != READY else ""
            yield Part(begin - start, end - begin, begin - left, right - end, fpdu, mpa, fault, what == READY)
            at = end
        if at < stop:
            yield Part(at - start, stop - at)


def _place(part: tuple[int, object] | tuple[int, int, object]) -> int:
    return part[0]
