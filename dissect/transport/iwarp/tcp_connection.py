"""One TCP connection that is iWARP, or may be: both directions, and the Operations they make."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from ...arrays import Bytes, Int64s, Rows, places, some, take
from ...layers import iwarp_codes
from ...link.tcp import ACK, FIN, RST, SEGMENT
from ...serial import TCP_SEQUENCE
from ..connection import ENDS, ONE_DIRECTION, Connection, Endpoint, with_count
from ..health import TransportHealth
from ..rc.pairing import NO_READER, RecordReader, SendReader
from ..runs import Run, postponed
from .assembly import GROUP, SEND, WRITE, Delivered, Fragment, FragmentColumns, MessageAssembly, fragments, plain_runs
from .fpdus import Fpdus
from .framing import Framing, Startup, take_fpdus
from .health import IwarpDirection, IwarpHealth
from .portions import Portion, Sent, sent_in
from .records import DatagramFraming, RecordFraming
from .stream import REORDERED, SegmentClock, received

KEPT_FRAMES = 1 << 12
UNDECIDED = 64
"""FPDUs after which the active side is decided."""


def record_startup(end: Endpoint, startup: Startup) -> None:
    """Note in an Endpoint what its Request or Reply says."""
    mpa = startup.mpa
    end.private_data, end.private_data_truncated = mpa.private_data, not mpa.complete
    end.private_data_frame = startup.frame
    end.responder_resources, end.initiator_depth = mpa.ird, mpa.ord


def agree(directions: Sequence[IwarpDirection], active: int, final: bool) -> bool:
    """Settle markers and CRCs, once Request and Reply were seen or are known to be missing (RFC 5044, 7.1.1).

    False means: wait for more.
    """
    if any(direction.framing.awaiting for direction in directions) or not _bases_known(directions, active, final):
        return False
    startups = [direction.framing.startup for direction in directions]
    crc = any(startup.mpa.crc for startup in startups if startup) or (None if not all(startups) else False)
    for direction, receiver in zip(directions, reversed(startups), strict=True):
        framing = direction.framing
        if framing.markers is not None:
            continue
        if receiver is not None:
            framing.agree(receiver.mpa.markers, crc)
        elif crc:
            framing.checks.crc = True
    request, assembly = startups[active], directions[active].assembly
    if request is not None and request.mpa.peer_to_peer and assembly is not None:
        assembly.skip_first = True
    return True


def _bases_known(directions: Sequence[IwarpDirection], active: int, final: bool) -> bool:
    """Find where a direction's FPDUs begin if its Request or Reply was not captured; False means: wait for more.

    The active side sends first in full operation, when it has received all of the Reply and nothing after it
    (RFC 5044, 7.1.3).
    """
    requesting, replying = directions[active].framing, directions[1 - active].framing
    if replying.base is not None or requesting.base is None:
        return True
    ack = requesting.first_ack()
    if ack is None:
        return final or len(requesting.pending) > 0
    first = directions[1 - active].stream.next
    assert first is not None
    replying.begin(TCP_SEQUENCE.unwrap(first, ack))
    return True


def count_requests(fpdus: Sequence[tuple[int, Fpdus]], reader: SendReader) -> tuple[list[int], list[int]]:
    """By direction: requests that show that it is the active side's, namely its own and callbacks in the other
    direction; and requests in the other direction that may be callbacks."""
    counts, maybe = [0, 0], [0, 0]
    for direction, block in fpdus:
        rows = block.rows
        for index in places((GROUP[rows["opcode"]] == SEND) & (rows["place"] == 0))[:UNDECIDED].tolist():
            octets = np.frombuffer(block.payload(index), np.uint8)
            said = reader.read(octets, 0, len(octets), int(rows["length"][index]))
            if said is None or said.role != "request":
                continue
            if said.from_responder is None:
                maybe[1 - direction] += 1
            else:
                counts[1 - direction if said.from_responder else direction] += 1
    return counts, maybe


def infer_active(
    ports: tuple[int, int], service: frozenset[int], fpdus: Sequence[tuple[int, Fpdus]], final: bool,
    reader: SendReader = NO_READER,
) -> tuple[int, str] | None:  # fmt: skip
    """The direction of the active side, and why, if no Request, Reply or SYN was captured; None means: wait for more.

    ``service``: ports of passive sides; ``fpdus``: all so far, by direction.  Requests count before transfers, as the
    active side may answer a request of the passive side with an RDMA Write.
    """
    for direction in (0, 1):
        if ports[direction] in service and ports[1 - direction] not in service:
            return 1 - direction, f"TCP port {ports[direction]} is the server's"
    ended = final or sum(len(block) for _, block in fpdus) >= UNDECIDED
    requests, maybe = count_requests(fpdus, reader)
    if requests[0] == requests[1] and maybe[0] != maybe[1]:
        if not ended:
            return None
        requests = maybe
    if requests[0] != requests[1]:
        return int(requests[1] > requests[0]), "the client sends the requests, the server callbacks"
    transfers = [0, 0]
    for direction, block in fpdus:
        transfers[direction] += int(np.isin(block.rows["opcode"], (iwarp_codes.READ_REQUEST, iwarp_codes.WRITE)).sum())
    if transfers[0] != transfers[1]:
        return int(transfers[0] > transfers[1]), "the server issues the RDMA Reads and Writes"
    if ended:
        return int(ports[1] > ports[0]), "the server has the lower TCP port"
    return None


@dataclass(slots=True)
class Lifetime:
    """When a TCP connection was seen in the capture."""

    until: int | None = None
    """The first frame of the next connection between the same ports."""
    first: tuple[int, int] | None = None
    """Frame and time of the SYN, or of the first segment taken."""
    last: tuple[int, int] = (0, 0)
    segments: int = 0
    data_segments: int = 0
    """Those with payload."""
    earlier: int = 0
    """Segments of the set-up that came before it was known to be iWARP."""
    opened_by: int | None = None
    """The direction of the SYN."""
    closed: bool = False
    """Whether a FIN or a reset was seen."""
    handshake: tuple[int, int | None] | None = None
    """Nanoseconds from the SYN to the SYN-ACK, and from there to the ACK."""

    @property
    def since(self) -> int:
        """Its first frame; 0 before that."""
        return 0 if self.first is None else self.first[0]

    def extend(self, rows: Rows, members: Int64s) -> None:
        """Count ``members``, indices of SEGMENT rows, as the latest segments."""
        self.segments += len(members)
        self.data_segments += int(np.count_nonzero(rows["length"][members]))
        first, last = ((int(rows["frame"][index]), int(rows["time"][index])) for index in members[[0, -1]].tolist())
        self.first, self.last = self.first or first, last


Fed = tuple["TcpConnection", Int64s]
"""A connection, and the indices of its SEGMENT rows in a batch, ascending."""


class TcpConnection:
    """Directions are 0 and 1 as the observer counts them; ``active`` is the direction that the active side sends."""

    def __init__(
        self, key: tuple[int, int], names: tuple[str, str], ports: tuple[int, int], service: frozenset[int],
        reader: SendReader = NO_READER, records: RecordReader | None = None, datagrams: bool = False,
    ) -> None:  # fmt: skip
        """``records``: reads the records of a connection that is not iWARP; ``datagrams``: it is UDP."""
        self.key = key
        """The two ends, as the observer counts them."""
        self.names = names
        self.ports = ports
        self.service = service
        self.reader = reader if records is None else records.sends
        self.records = records is not None
        self.transport = "UDP" if datagrams else "TCP" if self.records else "iWARP"
        self._paired_by = "UDP" if datagrams else "TCP"
        self.placed: dict[int, int] = {}
        """UDP: the stream positions of the latest datagrams, by frame."""
        framing = partial(DatagramFraming if datagrams else RecordFraming, records) if records is not None else Framing
        self.directions = IwarpDirection(framing()), IwarpDirection(framing())
        self.lifetime = Lifetime()
        self.active: int | None = None
        self.connection: Connection | None = None
        """None until it is known to be iWARP, and which side is the active one."""
        self.health = IwarpHealth(self.directions)
        self.listener: Callable[[TcpConnection, int, Fpdus], None] | None = None
        """Called with the FPDUs of a direction as they are taken."""
        self._evidence: tuple[str, ...] = ()
        """Why the active side was inferred, if no MPA Request was captured."""
        self._counted = 0, 0
        """Packets and segments returned by ``uncounted`` so far."""
        self._agreed = False
        """Markers and CRCs are settled as far as Request and Reply settle them."""
        self._unassigned: list[tuple[int, Fpdus]] = []
        """FPDUs by direction, until the active side is known."""
        self._unassembled: list[tuple[int, int, Fpdus, Fragment]] = []
        """``(order, direction, FPDUs, a fragment of them)``."""
        self._fresh: list[tuple[int, Fpdus]] = []
        """FPDUs by direction, not divided into messages so far."""
        self._disordered = 0
        """As of ``Connection``."""
        self._closings: list[tuple[int, int, int, str]] = []
        """``(frame, time, direction, 'FIN' or 'RST')``."""

    def begin(self, direction: int, row: Rows, request: bool) -> None:
        """Start a direction whose segment (one row in an array) begins with an MPA Request or Reply."""
        mine, other = self.directions[direction], self.directions[1 - direction]
        seq = int(row["seq"][0])
        mine.stream.start(seq)
        mine.stream.opened = TCP_SEQUENCE.wrap(seq - 1)
        mine.framing.awaiting, other.framing.awaiting = True, request
        if int(row["flags"][0]) & ACK:
            ack = int(row["ack"][0])
            other.stream.start(ack)
        if not request and other.stream.next is not None:
            # The active side sent its Request so far, which is not in this capture.
            other.framing.begin(int(row["ack"][0]))
        self.active = direction if request else 1 - direction

    def begin_records(self, direction: int, row: Rows, first: int | None) -> None:
        """Start a direction whose segment (one row in an array) begins with a record; ``first``: sequence number after
        the SYN of the active side, if the capture has that."""
        seq = int(row["seq"][0])
        if first is not None and self.active is not None:
            self._start(self.active, first)
            if direction == self.active and seq == first and int(row["flags"][0]) & ACK:
                self._start(1 - direction, int(row["ack"][0]))
        if self.directions[direction].stream.next is None:
            self._start(direction, seq)

    def _start(self, direction: int, seq: int) -> None:
        """Set where the first record of a direction begins."""
        self.directions[direction].stream.start(seq)
        self.directions[direction].framing.begin(seq)

    def fail(self, active: int, how: str, frame: int, time: int) -> None:
        """Add a connection that ended at once: the SYN of the active side failed."""
        self.active = active
        self._connect(active)
        self._ended(how, frame, time)

    def expect_startup(self, active: int, first: int, answered: int | None) -> None:
        """Expect Request and Reply, as the capture has the connection's beginning; ``first``, ``answered``: sequence
        numbers after the SYNs of the active and the passive side."""
        self.directions[active].stream.start(first)
        if answered is not None:
            self.directions[1 - active].stream.start(answered)
        for direction in self.directions:
            direction.framing.awaiting = True

    def mark(self, frame: int) -> str:
        """What is unusual about a segment; '' for nothing."""
        marks = (direction.stream.retransmissions.marks.get(frame, "") for direction in self.directions)
        return next(filter(None, marks), "")

    @property
    def packets(self) -> int:
        """Number of MPA Requests, Replies and FPDUs."""
        return sum(direction.packets for direction in self.directions)

    @property
    def confirmed(self) -> bool:
        """It is known to be iWARP, or to carry records."""
        return self.records or self.packets > 0

    @property
    def awaits_startup(self) -> bool:
        """Whether a Request or a Reply may still come."""
        return any(direction.framing.awaiting for direction in self.directions)

    @property
    def waiting(self) -> bool:
        """Whether something waits behind a gap."""
        return any(direction.stream.waits for direction in self.directions)

    def uncounted(self) -> tuple[int, int]:
        """Packets and segments since the last call."""
        before = self._counted
        self._counted = self.packets, self.lifetime.segments + self.lifetime.earlier
        return self._counted[0] - before[0], self._counted[1] - before[1]

    def transport_health(self) -> TransportHealth:
        assert self.connection is not None
        return self.health.result(self.connection)._replace(handshake=self.lifetime.handshake)

    def feed(self, data: Bytes, rows: Rows, forward: Rows, runs: list[Run] | None = None) -> Delivered:
        """Take SEGMENT rows of one batch in capture order; ``forward``: which are of direction 0.

        With ``runs``, ordinary Operations go there instead, unless something is lost or retransmitted.
        """
        ready: Delivered = []
        members = np.arange(len(rows))
        while len(members):
            count = self.until_judged(data, rows, forward, members)
            ready += feed_together(data, rows, forward, [(self, members[:count])], [runs])[0]
            members = members[count:]
        return ready

    def until_judged(self, data: Bytes, rows: Rows, forward: Rows, members: Int64s) -> int:
        """How many of ``members``, indices of SEGMENT rows, to process before judging whether a Request or Reply is
        missing."""
        waiting = [number for number, direction in enumerate(self.directions) if direction.framing.awaiting]
        waits = any(self.directions[number].stream.waits for number in waiting)
        left = REORDERED + 1 - self.lifetime.segments
        if not waiting or not (left > 0 or waits):
            return len(members)
        first = members[: max(1, left)]
        sides = first[forward[first]], first[~forward[first]]
        # Usually both are there, whole and in order.
        there = (self.directions[number].starts_up(data, take(rows, sides[number])) for number in waiting)
        return len(first) if waits or not all(there) else len(members)

    def note(self, rows: Rows, forward: Rows, members: Int64s, sent: tuple[Sent, Sent]) -> list[SegmentClock]:
        """Note that ``members`` of SEGMENT rows come; ``sent``: by direction, what they send."""
        lifetime, before = self.lifetime, self.lifetime.segments
        lifetime.extend(rows, members)
        for mine in sent:
            if self.transport == "UDP":
                self.placed |= zip(mine.rows["frame"].tolist(), mine.rows["seq"].tolist(), strict=True)
                self.placed = dict([*self.placed.items()][-KEPT_FRAMES:])
            if mine.early is not None:
                self._disordered = min(self._disordered or lifetime.last[0], mine.early or lifetime.since)
        for index in members[places(rows["flags"][members] & (FIN | RST))].tolist():
            lifetime.closed = True
            what = "RST" if rows["flags"][index] & RST else "FIN"
            self._closings.append((int(rows["frame"][index]), int(rows["time"][index]), int(not forward[index]), what))
        return [SegmentClock(before, rows, members, mine.acked, mine.answers) for mine in sent]

    def take(self, fpdus: Sequence[tuple[int, Sequence[Fpdus]]], final: bool = False) -> Sequence[tuple[int, Fpdus]]:
        """Take FPDUs by direction; returns those to divide into messages."""
        for number, parts in fpdus:
            for part in parts:
                self._take(number, part)
        self._assign(final)
        return self._fresh

    def idle(self, now: int) -> Delivered:
        """Release what waited long enough: nothing came up to ``now`` (ns)."""
        held = self.unsettled
        last = np.zeros(1, SEGMENT)
        last["frame"], last["time"] = self.lifetime.last[0], now
        for direction in self.directions:
            clock = SegmentClock(self.lifetime.segments - 1, last, np.zeros(1, np.int64), direction.acked, last[:0])
            direction.framing.feed(direction.stream.settle(clock), direction.stream.given)
        return self._advance(final=False, held=held)

    def finish(self) -> Delivered:
        """Release everything: no more comes."""
        for direction, seen in zip(self.directions, self.health.sends, strict=True):
            direction.framing.feed(direction.stream.give_up(self.lifetime.last[0], seen))
        ready = self._advance(final=True)
        for direction in self.directions:
            if direction.assembly is not None:
                ready += direction.assembly.finish()
        ready.sort(key=itemgetter(0))
        return ready

    @property
    def started(self) -> int | None:
        """The frame that completed the first MPA Request or Reply; None if the capture has none."""
        startups = (direction.framing.startup for direction in self.directions)
        return min((startup.complete for startup in startups if startup is not None), default=None)

    @property
    def found(self) -> int:
        """The frame that showed FPDUs, if they had to be searched for; 0 otherwise."""
        return min((direction.framing.known for direction in self.directions if direction.framing.known), default=0)

    @property
    def unsettled(self) -> list[int]:
        """Directions whose FPDUs wait for a Request or a Reply."""
        return [number for number in (0, 1) if not self._settled(number)]

    def _advance(self, final: bool, held: Sequence[int] = ()) -> Delivered:
        ready = self.settled(final, held)
        fpdus = take_fpdus([self.directions[number].framing for number in ready], final)
        fresh = self.take([*zip(ready, fpdus, strict=True)], final)
        return self.deliver(fragments([part for _, part in fresh]), final)

    def settled(self, final: bool, held: Sequence[int]) -> list[int]:
        """Look for Requests and Replies in the received bytes; returns the directions whose FPDUs can then be found.

        ``held``: what was ``unsettled`` before.
        """
        for number, direction in enumerate(self.directions):
            if direction.framing.take_startup():
                self._started(number)
        if (
            not self._agreed
            and self.active is not None
            and any(direction.framing.startup for direction in self.directions)
        ):
            self._agreed = agree(self.directions, self.active, final)
        ready = [number for number in (0, 1) if final or self._settled(number)]
        for number in ready:
            if number in held and not final:
                self.directions[number].framing.release(self._settled_with)
        return ready

    def deliver(
        self, divided: Sequence[FragmentColumns], final: bool = False, data: Bytes | None = None,
        runs: list[Run] | None = None,
    ) -> Delivered:  # fmt: skip
        """Make the Operations that are complete by now; ``divided``: fragments of the FPDUs that were found."""
        if self.connection is None:
            return []
        self._count(self.connection)
        made: list[Run] | None = None if runs is None else []
        self._divide(divided, data, made)
        ready, released = self._assemble(final), list[tuple[int, int]]()
        for direction in self.directions:
            released += direction.stream.released + direction.framing.released
            direction.stream.released, direction.stream.given, direction.framing.released = [], [], []
        if released:
            ready = postponed(ready, made or [], released)
        if runs is not None and made:
            runs += made
        return ready

    def _settled(self, number: int) -> bool:
        """Whether everything needed to find a direction's FPDUs is known, or is not in the capture."""
        framing, other = self.directions[number].framing, self.directions[1 - number]
        if framing.awaiting:
            return False
        if framing.markers is not None or not other.framing.awaiting:
            return True
        # Its Request or Reply may come late, or be missing.
        return self.lifetime.segments > REORDERED and not other.stream.waits

    @property
    def _settled_with(self) -> int:
        """The frame from which on nothing more had to be waited for."""
        if self.awaits_startup:
            return self.lifetime.last[0]
        frame = max(direction.framing.shown for direction in self.directions)
        for first, end in sorted(self.directions[0].stream.released + self.directions[1].stream.released):
            frame = max(frame, end) if first <= frame else frame
        return frame

    # Set-up

    def _started(self, number: int) -> None:
        """Note a Request or Reply that was taken from a direction."""
        startup = self.directions[number].framing.startup
        assert startup is not None
        self.active = number if startup.mpa.request else 1 - number
        connection = self._connect(self.active)
        record_startup(connection.endpoints[self.directions[number].sender], startup)
        if startup.mpa.reject:
            self._ended("MPA reject", startup.frame, startup.time)

    def _connect(self, active: int) -> Connection:
        if self.connection is not None:
            return self.connection
        first, second = (Endpoint(self.names[number], 0, port=self.ports[number]) for number in (active, 1 - active))
        connection = Connection(0, self.transport, (first, second), paired_by=self._paired_by, service_port=second.port)
        connection.evidence = self._evidence
        connection.opened = self.transport == "UDP" or self.lifetime.opened_by is not None
        mine, theirs = (self.directions[number].stream.retransmissions for number in (active, 1 - active))
        connection.ledgers = mine.ledger, theirs.ledger
        connection.contradicted = mine.contradicted, theirs.contradicted
        if self.lifetime.first is not None:
            connection.first_frame, connection.first_time = self.lifetime.first
        for number, direction in enumerate(self.directions):
            other = self.directions[1 - number]
            direction.assembly = MessageAssembly(int(number != active), direction.reads, other.reads)
        self.connection = connection
        return connection

    def _assign(self, final: bool) -> None:
        """Decide which side is the active one, if no Request, Reply or SYN was captured."""
        if not self._unassigned and not any(direction.framing.encrypted for direction in self.directions):
            return
        if self.active is None:
            inferred = infer_active(self.ports, self.service, self._unassigned, final, self.reader)
            if inferred is None:
                return
            self.active, self._evidence = inferred[0], (inferred[1].replace("TCP", self.transport),)
        self._connect(self.active)
        unassigned, self._unassigned = self._unassigned, []
        for number, fpdus in unassigned:
            self._take(number, fpdus)

    # Operations

    def _take(self, number: int, fpdus: Fpdus) -> None:
        if self.connection is None:
            self._unassigned.append((number, fpdus))
            return
        if self.listener is not None:
            self.listener(self, number, fpdus)
        direction = self.directions[number]
        direction.payload_bytes += int(fpdus.rows["length"].sum())
        self.health.sent(direction.sender, fpdus)
        if len(fpdus):
            self._fresh.append((number, fpdus))

    def _ended(self, how: str, frame: int, time: int) -> None:
        connection = self.connection
        if connection is not None and not connection.ended_by:
            connection.ended_by, connection.ended_time = how, time

    @property
    def _one_direction(self) -> bool:
        """Whether the capture has no segment of one end, while the other end acknowledges some: the SYN-ACK, or more
        and more bytes."""
        return any(
            not self.health.sends[number]
            and direction.acked is not None
            and (self.lifetime.opened_by == 1 - number or direction.acked > direction.acked_from)
            for number, direction in enumerate(self.directions)
        )

    def _count(self, connection: Connection) -> None:
        connection.last_frame, connection.last_time = self.lifetime.last
        if connection.one_sided or not all(self.health.sends):
            connection.paired_by = ONE_DIRECTION if self._one_direction else self._paired_by
        if self._disordered:
            connection.disorder(self._disordered)
        for direction in self.directions:
            sender, retransmissions = direction.sender, direction.stream.retransmissions
            size = direction.payload_bytes + retransmissions.ledger.original_captured.bytes
            connection.encrypted = connection.encrypted or direction.framing.encrypted
            connection.fpdus = with_count(connection.fpdus, sender, direction.fpdus)
            connection.segments = with_count(connection.segments, sender, retransmissions.segments)
            connection.bytes = with_count(connection.bytes, sender, size)
            connection.missing_packets = with_count(
                connection.missing_packets, sender, direction.stream.missing_segments
            )
            if direction.stream.gaps:
                theirs = connection.gaps[1 - sender]
                connection.gaps = (theirs, direction.stream.gaps) if sender else (direction.stream.gaps, theirs)
            unread = direction.framing.unread + direction.framing.lost
            connection.unread_packets = with_count(connection.unread_packets, sender, unread)
            first, other = direction.framing.unread_from, connection.unread_from[1 - sender]
            connection.unread_from = (other, first) if sender else (first, other)

    def open_since(self, sender: int) -> int | None:
        """The first frame of a message of ``sender`` that is incomplete but may still be completed."""
        marks: list[int] = []
        for direction in self.directions:
            if direction.sender == sender:
                marks += [] if (since := direction.waiting_since()) is None else [since]
                if direction.assembly is not None:
                    marks += [operation.first_frame for _, operation in direction.assembly.partial.values()]
        return min(marks, default=None)

    @property
    def _waiting_since(self) -> int | None:
        """The first frame that waits behind a gap in either stream."""
        frames = [direction.waiting_since(self._settled(number)) for number, direction in enumerate(self.directions)]
        return min((since for since in frames if since is not None), default=None)

    def _divide(self, divided: Sequence[FragmentColumns], data: Bytes | None, runs: list[Run] | None) -> None:
        """Make messages of the ``divided`` fragments; ordinary ones that do not wait behind a gap go to ``runs``."""
        fresh, self._fresh = self._fresh, []
        waiting, shared = self._waiting_since, _shared_orders(fresh)
        for (number, fpdus), columns in zip(fresh, divided, strict=True):
            direction = self.directions[number]
            assembly = direction.assembly
            assert assembly is not None
            if runs is not None and data is not None and not assembly.skip_first:
                opened = self._open(number, SEND), self._open(number, WRITE)
                plain = plain_runs(data, assembly.sender, fpdus, columns, waiting, opened, shared)
                left = np.ones(len(columns["order"]), np.bool_)
                for run, chosen in plain:
                    runs.append(run)
                    self.health.carried_by(number, run, fpdus, columns["first"][chosen], columns["packets"][chosen])
                    left &= ~chosen
                if not some(left):
                    continue
                columns = {name: column[left] for name, column in columns.items()}
            self._unassembled += [
                (fragment.order, number, fpdus, fragment)
                for fragment in map(Fragment, *(column.tolist() for column in columns.values()))
            ]

    def _open(self, number: int, group: int) -> bool:
        """Whether the next message of a group in a direction may continue one that has begun."""
        assembly = self.directions[number].assembly
        fragments_of = (fragment for _, direction, _, fragment in reversed(self._unassembled) if direction == number)
        before = next((fragment for fragment in fragments_of if fragment.group == group), None)
        return not before.last if before is not None else assembly is not None and group in assembly.partial

    def _assemble(self, final: bool) -> Delivered:
        """Make messages of both directions, in order, up to the first frame that waits behind a gap in either
        stream."""
        self._unassembled.sort(key=itemgetter(0))
        waiting = self._waiting_since
        stop = len(self._unassembled)
        if waiting is not None and not final:
            stop = next((index for index, entry in enumerate(self._unassembled) if entry[0] >= waiting), stop)
        now, self._unassembled = self._unassembled[:stop], self._unassembled[stop:]
        for _, number, fpdus, fragment in now:
            assembly = self.directions[number].assembly
            assert assembly is not None
            operation = assembly.take(fpdus, fragment)
            if operation is not None:
                self.health.carried(number, fpdus, fragment, operation)
        self.health.settle(final)
        ready: Delivered = []
        for direction in self.directions:
            if (assembly := direction.assembly) is None:
                continue
            ready += assembly.flush()
            terminates = self.health.terminates[assembly.sender]
            for terminate in assembly.terminates[len(terminates) :]:
                terminates.append(terminate)
                how = f"Terminate ({terminate}) from the {ENDS[assembly.sender]}"
                self._ended(how, terminate.frame, terminate.time)
        for frame, time, number, what in self._closings:
            self._ended(f"{what} from the {ENDS[self.directions[number].sender]}", frame, time)
        self._closings.clear()
        ready.sort(key=itemgetter(0))
        return ready


def feed_together(
    data: Bytes, rows: Rows, forward: NDArray[np.bool_], fed: Sequence[Fed], runs: Sequence[list[Run] | None]
) -> list[Delivered]:
    """``TcpConnection.feed`` for many connections, up to the row that ``until_judged`` gives; ``runs``: by
    connection."""
    ready = _receive(data, rows, forward, fed)
    framings = [
        tcp.directions[number].framing for (tcp, _), numbers in zip(fed, ready, strict=True) for number in numbers
    ]
    found = iter(take_fpdus(framings))
    fresh = [
        [*tcp.take([*zip(numbers, islice(found, len(numbers)), strict=True)])]
        for (tcp, _), numbers in zip(fed, ready, strict=True)
    ]
    divided = iter(fragments([fpdus for taken in fresh for _, fpdus in taken]))
    return [
        tcp.deliver([*islice(divided, len(taken))], False, data, made)
        for (tcp, _), taken, made in zip(fed, fresh, runs, strict=True)
    ]


def _receive(data: Bytes, rows: Rows, forward: NDArray[np.bool_], fed: Sequence[Fed]) -> list[list[int]]:
    """Feed the streams; returns by connection the directions whose FPDUs can be found."""
    whole, sent = sent_in(data, rows, forward, [Portion(tcp.health, members) for tcp, members in fed])
    held = [tcp.unsettled for tcp, _ in fed]
    clocks = [
        clock
        for (tcp, members), mine in zip(fed, sent, strict=True)
        for clock in tcp.note(rows, forward, members, mine)
    ]
    directions = [direction for tcp, _ in fed for direction in tcp.directions]
    streams = [direction.stream for direction in directions]
    answers = [mine.answers for both in sent for mine in both]
    for direction, chunks, acks in zip(directions, received(streams, data, *whole, clocks), answers, strict=True):
        direction.framing.feed(chunks, direction.stream.given)
        if direction.acked is not None:
            direction.stream.acknowledged(direction.acked_from, direction.acked, acks)
    return [tcp.settled(False, waiting) for (tcp, _), waiting in zip(fed, held, strict=True)]


def _shared_orders(fresh: Sequence[tuple[int, Fpdus]]) -> list[int]:
    """Places in the order of events shared by the last of some FPDUs and the first of the next in their direction."""
    last, shared = [-1, -1], list[int]()
    for number, fpdus in fresh:
        orders = fpdus.rows["order"]
        if int(orders[0]) == last[number]:
            shared.append(last[number])
        last[number] = int(orders[-1])
    return shared
