"""One TCP connection that is iWARP, or may be: both streams, their FPDUs and the Operations they make."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter

import numpy as np

from ...arrays import Bytes, Rows, take
from ...layers.iwarp_codes import READ_REQUEST, WRITE
from ...link.tcp import ACK, FIN, RST, checksums
from ...serial import TCP_SEQUENCE
from ..connection import Connection, Endpoint
from .assembly import Assembly, Delivered, Fragment, Reads, fragments
from .decoding import Fpdus
from .framing import Framing
from .health import Health
from .stream import Stream

RARE = 2
"""Right checksums that must stand against a wrong one."""
UNDECIDED = 64
"""FPDUs after which it is settled which side is the active one."""


class Link:
    """Directions are 0 and 1 as the observer counts them; ``active`` tells which of them the active side sends."""

    def __init__(self, names: tuple[str, str], ports: tuple[int, int], service: frozenset[int]) -> None:
        self.names = names
        self.ports = ports
        self.service = service
        self.streams = Stream(), Stream()
        self.framings = Framing(mpa=False), Framing(mpa=False)
        self.reads = Reads(), Reads()
        self.acked: list[int | None] = [None, None]
        """Sequence number up to which a direction was received."""
        self.segments = self.counted = self.counted_packets = 0
        self.data_segments = 0
        self.earlier = 0
        """Segments of the set-up that were passed over before anything told that it is one."""
        self.active: int | None = None
        self.how = ""
        """Why the active side is taken for it, where no MPA Request tells."""
        self.connection: Connection | None = None
        self.assemblies: dict[int, Assembly] = {}
        """By direction; empty before the active side is known."""
        self.collected: list[tuple[int, Fpdus]] = []
        self.pending: list[tuple[int, int, Fpdus, Fragment]] = []
        """``(order, direction, FPDUs, which of them)``: what was not assembled yet."""
        self.sent = [0, 0]
        self.sent_bytes = [0, 0]
        self.agreed = False
        self.checked = [0, 0], [0, 0]
        """Segments with the right TCP checksum, and with a wrong one, by direction."""
        self.damaged = [0, 0]
        """Segments that were dropped for it."""
        self.closed = False
        """A FIN or a reset was seen."""
        self.ends: list[tuple[int, int, str]] = []
        """``(frame, time, what)``."""
        self.key = 0, 0
        """The two ends, as the observer counts them."""
        self.since = 0
        """The first frame of the TCP connection."""
        self.until: int | None = None
        """The first frame of the next one between the same ports."""
        self.first: tuple[int, int] | None = None
        self.last = (0, 0)
        self.watch: Callable[[Link, int, Fpdus], None] | None = None
        """Is shown the FPDUs of a direction as they are taken."""
        self.health = Health(self)

    def begin(self, direction: int, row: Rows, request: bool) -> None:
        """A segment (one row in an array) of a direction begins with an MPA Request or Reply."""
        other = 1 - direction
        self.streams[direction].start(int(row["seq"][0]))
        self.streams[direction].opened = TCP_SEQUENCE.wrap(int(row["seq"][0]) - 1)
        self.framings = Framing(mpa=True), Framing(mpa=True)
        if int(row["flags"][0]) & ACK:
            self.streams[other].start(int(row["ack"][0]))
        if not request:
            # What the active side sent so far is its Request, of which this capture knows nothing.
            self.framings = Framing(mpa=other != 0), Framing(mpa=other != 1)
            if self.streams[other].next is not None:
                self.framings[other].begin(int(row["ack"][0]))
        self.active = direction if request else other

    def mark(self, frame: int) -> str:
        """What is odd about a segment; '' where nothing is."""
        marks = (stream.repeats.marks.get(frame, "") for stream in self.streams)
        return next(filter(None, marks), "")

    @property
    def packets(self) -> int:
        """MPA Requests and Replies and FPDUs."""
        return sum((framing.startup is not None) + framing.count for framing in self.framings)

    @property
    def confirmed(self) -> bool:
        """It is iWARP."""
        return any(framing.startup is not None or framing.count for framing in self.framings)

    def feed(self, data: Bytes, rows: Rows, forward: Rows) -> Delivered:
        """Take SEGMENT rows of one batch in capture order, and which of them are of direction 0."""
        if not len(rows):
            return []
        self.segments += len(rows)
        self.first = self.first or (int(rows["frame"][0]), int(rows["time"][0]))
        self.since = self.since or self.first[0]
        self.last = int(rows["frame"][-1]), int(rows["time"][-1])
        self.data_segments += int(np.count_nonzero(rows["length"]))
        sent = take(rows, forward), take(rows, ~forward)
        self.health.segments(data, sent)
        for direction in (0, 1):
            self._acknowledged(1 - direction, sent[direction])
            sending = sent[1 - direction]
            repeats = self.streams[1 - direction].repeats
            repeats.acknowledged(data, sent[direction], sending[sending["length"] > 0])
        for direction in (0, 1):
            mine, stream = sent[direction], self.streams[direction]
            if len(mine):
                # A reset may carry any sequence number.
                unusable = (mine["flags"] & RST != 0) | self._damaged(direction, data, mine)
                if unusable.any():
                    mine = take(mine, ~unusable)
                if len(mine):
                    self.framings[direction].feed(stream.feed(data, mine, self.segments))
            self.framings[direction].feed(stream.settle(self.acked[direction], self.segments, self.last[1]))
        closing = np.flatnonzero(rows["flags"] & (FIN | RST))
        for index in closing.tolist():
            self.closed = True
            what = "RST" if rows["flags"][index] & RST else "FIN"
            self.ends.append((int(rows["frame"][index]), int(rows["time"][index]), f"{what} {int(not forward[index])}"))
        return self._advance(final=False)

    @property
    def waiting(self) -> bool:
        """Something waits behind a hole."""
        return bool(self.streams[0].held or self.streams[1].held)

    def idle(self, now: int) -> Delivered:
        """Nothing came up to ``now``, in nanoseconds."""
        for direction in (0, 1):
            self.framings[direction].feed(self.streams[direction].settle(self.acked[direction], self.segments, now))
        return self._advance(final=False)

    def finish(self) -> Delivered:
        """Nothing more will come."""
        for direction in (0, 1):
            self.framings[direction].feed(self.streams[direction].settle(None, self.segments, None))
        ready = self._advance(final=True)
        for assembly in self.assemblies.values():
            ready += assembly.finish()
        ready.sort(key=itemgetter(0))
        return ready

    def _damaged(self, direction: int, data: Bytes, rows: Rows) -> Rows:
        """Which segments arrived damaged: the receiver drops them and gets them again.

        A wrong checksum means something only where nearly all are right: a network card may compute or check them
        elsewhere, and then what is captured is neither here nor there.
        """
        right, wrong = checksums(data, rows)
        count = self.checked[direction]
        count[0] += int(np.count_nonzero(right))
        count[1] += int(np.count_nonzero(wrong))
        if not wrong.any() or count[1] * RARE > count[0]:
            return np.zeros(len(rows), np.bool_)
        self.damaged[direction] += int(np.count_nonzero(wrong))
        self.streams[direction].repeats.damaged(take(rows, wrong))
        return wrong

    def _acknowledged(self, direction: int, rows: Rows) -> None:
        """Rows of the other direction say how much of this one was received."""
        acks = rows["ack"][(rows["flags"] & (ACK | RST)) == ACK]
        if not len(acks):
            return
        reference = self.acked[direction]
        if reference is None:
            reference = int(acks[0])
        self.acked[direction] = max(reference, int(TCP_SEQUENCE.unwrap_near(reference, acks).max()))

    def _advance(self, final: bool) -> Delivered:
        for direction in (0, 1):
            if self.framings[direction].take_startup():
                self._started(direction)
        self._agree(final)
        for direction in (0, 1):
            if self._settled(direction) or final:
                for fpdus in self.framings[direction].take_fpdus(final):
                    self._took(direction, fpdus)
        self._settle_roles(final)
        if self.connection is None:
            return []
        self._count()
        return self._assemble(final)

    def _settled(self, direction: int) -> bool:
        """What is to know of a direction before its FPDUs can be cut is known, or is not in the capture."""
        framing, other = self.framings[direction], self.framings[1 - direction]
        if framing.awaiting:
            return False
        return framing.markers is not None or not other.awaiting or not self.streams[1 - direction].held

    # Set-up

    def _started(self, direction: int) -> None:
        startup = self.framings[direction].startup
        assert startup is not None
        frame = startup.mpa
        self.active = direction if frame.request else 1 - direction
        self._connect()
        assert self.connection is not None
        end = self.connection.endpoints[int(direction != self.active)]
        end.private_data, end.private_data_truncated = frame.private_data, not frame.complete
        end.private_data_frame = startup.frame
        end.responder_resources, end.initiator_depth = frame.ird, frame.ord
        if frame.reject:
            self._ended("MPA reject", startup.frame, startup.time)

    def _agree(self, final: bool) -> None:
        """Markers and CRC, once Request and Reply were seen or are known to be missing (RFC 5044, 7.1.1)."""
        if self.agreed:
            return
        frames = tuple(one.startup.mpa if one.startup else None for one in self.framings)
        if not any(frames) or any(framing.awaiting for framing in self.framings):
            return
        if not self._bases(final):
            return
        self.agreed = True
        crc = any(frame.crc for frame in frames if frame) or (None if not all(frames) else False)
        for direction in (0, 1):
            framing, other = self.framings[direction], frames[1 - direction]
            if framing.markers is not None:
                continue
            if other is not None:
                framing.agree(other.markers, crc)
            elif crc:
                framing.checks.crc = True
        request = frames[self.active or 0]
        if self.active is not None and request is not None and request.peer_to_peer:
            self.assemblies[self.active].skip_first = True

    def _bases(self, final: bool) -> bool:
        """Find where a direction's FPDUs begin whose Request or Reply was not captured; False: wait for more.

        The active side speaks first in full operation, when it has received all of the Reply and nothing behind it
        (RFC 5044, 7.1.3).
        """
        assert self.active is not None
        active, passive = self.framings[self.active], self.framings[1 - self.active]
        if passive.base is not None or active.base is None:
            return True
        ack = active.first_ack()
        if ack is None:
            return final or bool(len(active.pending))
        first = self.streams[1 - self.active].next
        assert first is not None
        passive.begin(TCP_SEQUENCE.unwrap(first, ack))
        return True

    def _connect(self) -> None:
        if self.connection is not None:
            return
        assert self.active is not None
        active, passive = self.active, 1 - self.active
        ends = (
            Endpoint(self.names[active], 0, port=self.ports[active]),
            Endpoint(self.names[passive], 0, port=self.ports[passive]),
        )
        self.connection = Connection(0, "iWARP", ends, paired_by="TCP", service_port=self.ports[passive])
        if self.how:
            self.connection.evidence = (self.how,)
        if self.first is not None:
            self.connection.first_frame, self.connection.first_time = self.first
        for direction in (0, 1):
            sender = int(direction != active)
            self.assemblies[direction] = Assembly(sender, self.reads[direction], self.reads[1 - direction])

    def _settle_roles(self, final: bool) -> None:
        """Which side is the active one, where no Request or Reply told (and no SYN)."""
        if self.connection is None and self.collected:
            if self.active is None:
                self._guess(final)
            if self.active is not None:
                self._connect()
        if self.connection is not None and self.collected:
            collected, self.collected = self.collected, []
            for direction, fpdus in collected:
                self._took(direction, fpdus)

    def _guess(self, final: bool) -> None:
        for direction in (0, 1):
            if self.ports[direction] in self.service and self.ports[1 - direction] not in self.service:
                self.active, self.how = 1 - direction, f"TCP port {self.ports[direction]} is the passive side's"
                return
        moving = [0, 0]
        for direction, fpdus in self.collected:
            moving[direction] += int(np.isin(fpdus.rows["opcode"], (READ_REQUEST, WRITE)).sum())
        if moving[0] != moving[1]:
            self.active, self.how = int(moving[0] > moving[1]), "the passive side issues the RDMA Reads and Writes"
        elif final or sum(len(fpdus) for _, fpdus in self.collected) >= UNDECIDED:
            self.active, self.how = int(self.ports[1] > self.ports[0]), "the passive side has the lower TCP port"

    # Operations

    def _took(self, direction: int, fpdus: Fpdus) -> None:
        if self.connection is None:
            self.collected.append((direction, fpdus))
            return
        if self.watch is not None:
            self.watch(self, direction, fpdus)
        self.sent[direction] += len(fpdus)
        self.sent_bytes[direction] += int(fpdus.rows["length"].sum())
        self.health.sent(self.assemblies[direction].sender, fpdus)
        self.pending += [(fragment.order, direction, fpdus, fragment) for fragment in fragments(fpdus)]

    def _end(self) -> None:
        """What FINs and resets say."""
        for frame, time, what in self.ends:
            name, direction = what.split()
            self._ended(f"{name} from the {_side(int(int(direction) != self.active))} side", frame, time)
        self.ends.clear()

    def _ended(self, how: str, frame: int, time: int) -> None:
        connection = self.connection
        if connection is not None and not connection.ended_by:
            connection.ended_by, connection.ended_time = how, time

    def _count(self) -> None:
        connection = self.connection
        assert connection is not None
        connection.last_frame, connection.last_time = self.last
        for direction, assembly in self.assemblies.items():
            sender, stream = assembly.sender, self.streams[direction]
            connection.packets[sender] = self.sent[direction]
            connection.bytes[sender] = self.sent_bytes[direction]
            connection.retransmitted_packets[sender] = stream.repeats.packets
            connection.missing_packets[sender] = stream.missing_segments

    def _assemble(self, final: bool) -> Delivered:
        """Messages of both directions, in order, up to the first frame that waits behind a hole on either stream."""
        self.pending.sort(key=itemgetter(0))
        sides = (*self.streams, *self.framings)
        mark = min((since for side in sides if (since := side.waiting_since) is not None), default=None)
        cut = len(self.pending)
        if mark is not None and not final:
            cut = next((index for index, one in enumerate(self.pending) if one[0] >= mark), cut)
        now, self.pending = self.pending[:cut], self.pending[cut:]
        for _, direction, fpdus, fragment in now:
            operation = self.assemblies[direction].take(fpdus, fragment)
            if operation is not None:
                self.health.carried(direction, fpdus, fragment, operation)
        self.health.settle(final)
        ready: Delivered = []
        for assembly in self.assemblies.values():
            ready += assembly.flush()
            for terminate in assembly.terminates[len(self.health.terminates[assembly.sender]) :]:
                self.health.terminates[assembly.sender].append(terminate)
                how = f"Terminate ({terminate}) from the {_side(assembly.sender)} side"
                self._ended(how, terminate.frame, terminate.time)
        self._end()
        ready.sort(key=itemgetter(0))
        return ready


def _side(sender: int) -> str:
    return "passive" if sender else "active"
