"""The iWARP observer: recognises the TCP connections that are iWARP, and gives their Operations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from ...arrays import Bytes, Int64s, Rows, among, every, places, some, take, words_at
from ...layers.iwarp_codes import REQUEST_KEY
from ...layers.oncrpc_codes import LAST_FRAGMENT
from ...link.addresses import AddressTable
from ...link.tcp import ACK, RST, SYN, verify_checksums
from ...named_tuple import NamedTuple
from ...serial import TCP_SEQUENCE
from ..connection import ASKED_AGAIN, AT_END, BY_TCP, REFUSED, UNANSWERED, Registry
from ..operations import Operation
from ..rc.pairing import NO_READER, RecordReader, SendReader
from ..runs import Run
from .fpdus import LEGAL, Fpdus
from .framing import is_mpa
from .records import MARK, MESSAGE_TYPE, begins, tls
from .stream import MAX_AHEAD, REORDERED
from .tcp_connection import Fed, TcpConnection, feed_together

TRIED = 64
"""Segments with payload within which a connection must show that it is iWARP."""
MAX_TRIALS = 1024
"""Connections on trial at a time."""
MAX_UNDECIDED = 1 << 17
"""Connections remembered as something else, or as undecided."""

FIRST_ASKED = 256
"""Segments at the start of a batch and after each SYN that are checked first for the beginning of a record; the others
are checked only if none of their connection's was one."""
SETTLED = 10_000_000_000
"""Nanoseconds without a segment after which a closed connection is over."""

Key = tuple[int, int]
"""The two ends of a connection, the lower one first: address id and port in one number."""
DATAGRAMS = 1 << 48
"""Added to both numbers if the ports are UDP."""

Event = tuple[int, TcpConnection, Operation]
"""The number of the frame that it counts at, its connection, the Operation."""
TcpRun = tuple[TcpConnection, Run]

_STARTUP = int.from_bytes(REQUEST_KEY[:8], "big")
"""The first eight bytes of a Request and of a Reply."""


@dataclass(slots=True)
class _Undecided:
    """A connection that has not shown so far that it is iWARP."""

    tried: int = 0
    """Segments with payload that were seen."""
    opened_by: int | None = None
    """The direction of the SYN."""
    first: int = 0
    """Sequence number after the SYN."""
    since: tuple[int, int] | None = None
    """Frame and time of the SYN."""
    first_since: tuple[int, int] | None = None
    """Frame and time of the first SYN, if only SYNs were seen since."""
    asked: int = 1
    """Number of SYNs since then, without copies."""
    syns: int = 1
    """Number of SYNs since then, with copies."""
    segments: int = 0
    """Segments seen since the SYN."""
    handshake: tuple[int, int | None] | None = None
    """Nanoseconds from the SYN to the SYN-ACK, and from there to the ACK."""

    @property
    def only_asked(self) -> bool:
        """Whether nothing but SYNs of one end was seen."""
        return self.segments == 1 and self.opened_by is not None and not self.tried and self.answered is None

    def shake_hands(self, rows: Rows, members: Int64s, forward: NDArray[np.bool_]) -> None:
        """Look for the SYN-ACK and the ACK among the next segments of the connection."""
        flags = rows["flags"][members] & (SYN | ACK)
        answers = places(flags == SYN | ACK)
        if len(answers):
            self.answered = TCP_SEQUENCE.wrap(int(rows["seq"][members[answers[-1]]]) + 1)
        theirs = forward == (self.opened_by == 1)
        answers = answers[theirs[answers]]
        if self.handshake is None and self.since is not None and len(answers):
            answered = int(rows["time"][members[answers[0]]])
            after = members[places(~theirs & (flags == ACK))]
            after = after[after > members[answers[0]]]
            done = int(rows["time"][after[0]]) - answered if len(after) else None
            self.handshake = answered - self.since[1], done

    answered: int | None = None
    """Sequence number after the SYN of the passive side, if that was captured."""
    sends: tuple[bool, bool] = (False, False)
    """By direction, whether there are segments."""
    ahead: Sequence[tuple[int, Rows]] = ()
    """Of the segments before any with payload, those beyond the first byte: it was sent, but not captured so far.  The
    direction, and the SEGMENT row in an array."""

    def pass_over(self, rows: Rows, members: Int64s, forward: NDArray[np.bool_]) -> None:
        """Take segments that come before any with payload."""
        fields = (rows[name][members].tolist() for name in ("seq", "flags"))
        for index, lower, seq, flags in zip(members.tolist(), forward.tolist(), *fields, strict=True):
            start = self.first if lower == (self.opened_by == 0) else self.answered
            # A FIN takes a sequence number, too.
            if start is not None and not flags & (SYN | RST) and 1 < TCP_SEQUENCE.wrap(seq - start) <= MAX_AHEAD:
                row = take(rows, np.array([index]))
                row["header"] = row["payload"]  # Drop the options, which are in the bytes of this batch.
                self.ahead = *self.ahead, (int(not lower), row)


class IwarpObserver:
    """Takes the TCP segments of batches of frames, and gives the Operations of all connections in the order of events.

    A connection is iWARP if an MPA Request or Reply begins one of its segments, on any port, or if it has FPDUs that
    follow each other or have the right CRC.  FPDUs are searched for in connections that began before the capture, on
    service ports, and if a segment begins with what looks like an FPDU; after a bounded number of segments the
    connection is passed over.  A connection with a segment that begins like a record carries records.
    """

    def __init__(
        self, registry: Registry, ports: frozenset[int], addresses: AddressTable | None = None,
        reader: SendReader = NO_READER, records: RecordReader | None = None,
        record_ports: frozenset[int] = frozenset(),
    ) -> None:  # fmt: skip
        """``registry``: shared with the observers of other transports; ``ports``: service ports; ``record_ports``:
        ports of servers that take ``records``.

        ``addresses``: knows the addresses of everything that is fed.
        """
        self.registry = registry
        self.ports = ports
        self.reader = reader
        self.records = records
        self.record_ports = record_ports
        self.listener: Callable[[TcpConnection, int, Fpdus], None] | None = None
        """Called with a connection, a direction and its FPDUs as they are taken."""
        self.addresses = AddressTable() if addresses is None else addresses
        self.connections: dict[int, TcpConnection] = {}
        """By connection number."""
        self.open: dict[Key, TcpConnection] = {}
        """By the two ends; includes connections on trial."""
        self.undecided: dict[Key, _Undecided] = {}
        self.trials: set[Key] = set()
        """Open connections that began without a Request or Reply, and have not shown so far that they are iWARP."""
        self._packets = 0
        self._segments: Counter[tuple[str, str]] = Counter()
        self._place = 0
        """The first frame in the batch of the connection that is being processed."""
        self._opened: dict[Key, int] = {}
        """By open connection: its first frame in the batch in which it was opened."""
        self._waiting: dict[Key, tuple[int, Fed]] = {}
        """By open connection: its segments of the batch that are not fed so far, with the first frame of them."""
        self._found: dict[TcpConnection, int] = {}
        """Connections without a number, with the frames that decide their order."""

    def feed(self, data: Bytes, rows: Rows, runs: list[TcpRun] | None = None, numbered: bool = True) -> list[Event]:
        """Take the SEGMENT rows of a batch, whose offsets are in ``data``.

        With ``runs``, ordinary Operations go there instead.  Unless ``numbered``, connections get no numbers yet, as
        those of another transport may come before them: see ``number``.
        """
        if not len(rows):
            return []
        known = [key for key in self.open if key not in self.trials]
        segments = _Segments.of(data, rows, self.records, self.record_ports, known)
        rows = segments.rows
        if not len(rows):
            return []
        events: list[Event] = []
        groups = segments.by_connection()
        looked_at = {group.key for group, _ in groups if not self._passed_over(group)}
        members = [part for group, part in groups if group.key in looked_at]
        if members:
            chosen = np.sort(np.concatenate(members))
            verify_checksums(data, rows, chosen[~rows["datagram"][chosen]])
        for group, part in groups:
            self._place = int(rows["frame"][part[0]])
            if group.key in looked_at and not self._passed_over(group):
                events += self._take(group, segments, part, runs)
        events += self._feed_waiting(segments, runs)
        if numbered:
            self.number()
        events.sort(key=itemgetter(0))
        return events

    def _passed_over(self, group: _Group) -> bool:
        """Whether it was found not to be iWARP, and does not begin anew."""
        undecided = self.undecided.get(group.key) if group.key not in self.open else None
        anew = group.starts_up or group.opens or group.records
        return undecided is not None and undecided.tried > TRIED and not anew

    def uncounted(self) -> tuple[int, Counter[tuple[str, str]]]:
        """Counts since the last call, for connections that are iWARP or carry records: MPA Requests, Replies and FPDUs;
        and segments by their kind and by the kind that they would count as if unrecognised."""
        counts = self._packets, self._segments
        self._packets, self._segments = 0, Counter()
        return counts

    def idle(self, now: int) -> list[Event]:
        """Release what need not wait longer, as nothing came up to ``now`` (ns)."""
        events: list[Event] = []
        for key, tcp in list(self.open.items()):
            if tcp.lifetime.closed and now - tcp.lifetime.last[1] >= SETTLED:
                events += self._finish(key)
            elif tcp.waiting:
                events += self._register(key, tcp, tcp.idle(now))
        self.number()
        events.sort(key=itemgetter(0))
        return events

    def finish_connections(self, numbers: set[int]) -> list[Event]:
        """Release everything of the connections with these numbers: they are over."""
        events: list[Event] = []
        for key, tcp in list(self.open.items()):
            if tcp.connection is not None and tcp.connection.number in numbers:
                events += self._finish(key)
        events.sort(key=itemgetter(0))
        return events

    def drop(self, numbers: set[int]) -> None:
        """Forget the connections with these numbers."""
        for number in numbers & self.connections.keys():
            del self.connections[number]

    def finish(self) -> list[Event]:
        """Release everything: the capture is over."""
        events: list[Event] = []
        for key in list(self.open):
            self._place = self._opened[key]
            events += self._finish(key)
        for key, undecided in self.undecided.items():
            if undecided.asked > 1 and undecided.only_asked and self._asks_service(key, undecided):
                assert undecided.opened_by is not None and undecided.since is not None
                self._place = AT_END
                tcp = self._open_connection(key)
                tcp.lifetime.first, tcp.lifetime.last = undecided.first_since, undecided.since
                tcp.lifetime.earlier = undecided.syns
                tcp.fail(undecided.opened_by, f"{UNANSWERED}{undecided.asked} SYNs", *undecided.since)
                events += self._finish(key)
        self.number()
        events.sort(key=itemgetter(0))
        return events

    def _take(self, group: _Group, segments: _Segments, members: Int64s, runs: list[TcpRun] | None) -> list[Event]:
        """Process segments of one connection; only the first may be a SYN."""
        key, rows, first = group.key, segments.rows, int(members[0])
        events = self._feed_waiting(segments, runs) if key in self._waiting else []
        tcp = self.open.get(key)
        if segments.opening[first]:
            direction, seq = segments.direction(first), int(rows["seq"][first])
            if tcp is None or not _again(tcp, direction, seq, int(rows["time"][first])):
                since = int(rows["frame"][first]), int(rows["time"][first])
                if tcp is not None:
                    tcp.lifetime.until = since[0]
                    # What was incomplete until now is known to stay so.
                    events += [
                        (max(frame, since[0]), ended, operation) for frame, ended, operation in self._finish(key)
                    ]
                    tcp = None
                undecided, before = _Undecided(0, direction, TCP_SEQUENCE.wrap(seq + 1), since), self.undecided.get(key)
                if before is not None and before.first == undecided.first:
                    undecided.sends = before.sends  # A retransmitted SYN: the answer to the first may be captured.
                if before is not None and before.only_asked and before.opened_by == direction:
                    undecided.first_since = before.first_since or before.since
                    again = before.since is None or since[1] - before.since[1] >= ASKED_AGAIN
                    undecided.asked, undecided.syns = before.asked + again, before.syns + 1
                self._remember(key, undecided)
        if key in self.trials and (group.records or (group.starts_up and self._starts_up(key, segments, members) == 0)):
            self._give_up(key)
            tcp = None
        if tcp is None:
            forward = segments.forward[members]
            tcp, members = self._judge(key, segments, members)
            seen = self.undecided.get(key, _Undecided())
            sends = seen.sends[0] or some(forward), seen.sends[1] or not every(forward)
            seen.sends = sends
            if tcp is not None:
                tcp.health.sends[:] = sends
                self._place = self._opened[key] = int(rows["frame"][members[0]])
                for number, row in self.undecided[key].ahead if key in self.undecided else ():
                    if tcp.directions[number].stream.next is not None:
                        tcp.feed(segments.data, row, np.array([number == 0]))
                        tcp.lifetime.earlier -= 1
        if tcp is not None and len(members):
            rest = members[:0]
            if key in self.trials:
                left = TRIED + 1 - tcp.lifetime.data_segments
                ends = (places(rows["length"][members])[left - 1 : left] + 1).tolist() if left > 0 else []
                if group.starts_up and (anew := self._starts_up(key, segments, members[1:])) is not None:
                    ends.append(anew + 1)
                members, rest = np.split(members, [min(ends, default=len(members))])
            data, forward = segments.data, segments.forward
            if key not in self.trials and tcp.until_judged(data, rows, forward, members) == len(members):
                self._waiting[key] = self._place, (tcp, members)
                return events
            events += self._feed_waiting(segments, runs)
            made: list[Run] | None = None if runs is None else []
            delivered = tcp.feed(data, take(rows, members), forward[members], made)
            if runs is not None and made:
                runs += [(tcp, run) for run in made]
            events += self._register(key, tcp, delivered)
            if len(rest):
                self._place = int(rows["frame"][rest[0]])
                events += self._take(group, segments, rest, runs)
        return events

    def _feed_waiting(self, segments: _Segments, runs: list[TcpRun] | None) -> list[Event]:
        """Feed the connections whose segments can be processed together."""
        waiting, self._waiting = self._waiting, {}
        if not waiting:
            return []
        events, before = list[Event](), self._place
        fed = [portion for _, portion in waiting.values()]
        made: list[list[Run] | None] = [None if runs is None else [] for _ in fed]
        delivered = feed_together(segments.data, segments.rows, segments.forward, fed, made)
        for (key, (frame, (tcp, _))), operations, mine in zip(waiting.items(), delivered, made, strict=True):
            if runs is not None and mine:
                runs += [(tcp, run) for run in mine]
            self._place = frame
            events += self._register(key, tcp, operations)
        self._place = before
        return events

    def _starts_up(self, key: Key, segments: _Segments, members: Int64s) -> int | None:
        """The index of a segment with a Request or Reply that a connection on trial does not expect, if any: other
        connections used its ports before, or its stream is retransmitted from the beginning."""
        startup = None if self.open[key].awaits_startup else segments.first_startup(members, None)
        return None if startup is None else startup[0]

    def _judge(self, key: Key, segments: _Segments, members: Int64s) -> tuple[TcpConnection | None, Int64s]:
        """Open a connection for segments that may be iWARP, if they are; and the segments that it takes."""
        undecided = self.undecided.get(key)
        opened = undecided is not None and undecided.opened_by is not None
        earlier = 0
        if undecided is not None and opened:
            earlier = undecided.segments
            undecided.segments += len(members)
            undecided.shake_hands(segments.rows, members, segments.forward[members])
        service = self._is_service(key)
        startup = segments.first_startup(members, undecided)
        carrying = places(segments.rows["length"][members])
        tried = 0 if undecided is None else undecided.tried
        if undecided is not None and opened and not tried:
            empty = members[: min(len(members), max(0, TRIED - earlier), *carrying[:1].tolist())]
            undecided.pass_over(segments.rows, empty, segments.forward[empty])
        may_be = carrying if service or not opened else carrying[segments.likely[members[carrying]]]
        # A connection is on trial from its first payload on, although the Request may come later.
        first = int(may_be[0]) if len(may_be) and (service or len(self.trials) < MAX_TRIALS) else None
        before = len(carrying) if first is None else int(carrying.searchsorted(first))
        if tried + before > TRIED:
            first = None
        if startup is not None and (first is None or first >= startup[0]):
            start, request = startup
            index = int(members[start])
            tcp = self._open_connection(key)
            tcp.lifetime.earlier = earlier
            tcp.begin(segments.direction(index), segments.rows[index : index + 1], request)
            opens = undecided is not None and opened and int(segments.rows["seq"][index]) == undecided.first
            # What precedes it is something else, or its own second half out of order.
            if request and opens:
                start = carrying[0]
            tcp.lifetime.earlier += int(start)
            return tcp, members[start:]
        recorded = places(segments.record[members])
        if service and len(recorded):
            # On an iWARP port, where a segment may begin within a transport header, the record must also end in it.
            rows = segments.rows[members[recorded]]
            sizes = words_at(segments.data, rows["payload"]) & ~LAST_FRAGMENT
            recorded = recorded[sizes + MARK <= rows["length"]]
        if len(recorded):
            return self._open_records(key, segments, members, int(recorded[0]), earlier)
        if key[0] >= DATAGRAMS:
            return None, members
        if undecided is not None and (refusal := self._refusal(key, segments, members, undecided)) is not None:
            tcp = self._open_connection(key)
            where = (int(segments.rows[name][refusal]) for name in ("frame", "time"))
            tcp.fail(1 - segments.direction(refusal), REFUSED, *where)
            begin = int(members.searchsorted(refusal))
            tcp.lifetime.earlier = earlier + begin
            return tcp, members[begin:]
        if undecided is None:
            undecided = _Undecided()
            self._remember(key, undecided)
        undecided.tried += before
        if first is None:
            return None, members
        self.trials.add(key)
        tcp = self._open_connection(key)
        tcp.active, tcp.lifetime.earlier = undecided.opened_by, earlier + first * opened
        if undecided.opened_by is not None and not undecided.tried:
            tcp.expect_startup(undecided.opened_by, undecided.first, undecided.answered)
        return tcp, members[first:]

    def _open_records(
        self, key: Key, segments: _Segments, members: Int64s, at: int, earlier: int
    ) -> tuple[TcpConnection, Int64s]:
        """Open a connection whose first record begins one of ``members``; segments before that are not its own."""
        undecided, index = self.undecided.get(key), int(members[at])
        tcp = self._open_connection(key, self.records)
        first = None
        if undecided is not None and undecided.opened_by is not None:
            tcp.lifetime.earlier = earlier + at
            tcp.active = undecided.opened_by
            if not (undecided.tried or segments.rows["length"][members[:at]].any()):
                first = undecided.first
        tcp.begin_records(segments.direction(index), segments.rows[index : index + 1], first)
        return tcp, members[at:]

    def _refusal(self, key: Key, segments: _Segments, members: Int64s, undecided: _Undecided) -> int | None:
        """The reset that answers a SYN to a service port; None if there is none.

        A host's has sequence number 0 (RFC 9293, 3.10.7.1), a firewall's any, but nothing comes before it."""
        active = undecided.opened_by
        if not self._asks_service(key, undecided):
            return None
        rows = take(segments.rows, members)
        answers = (segments.forward[members] == (active == 1)) & (rows["flags"] & (RST | ACK) == RST | ACK)
        second = np.arange(len(members)) == 1 + len(members) - undecided.segments
        resets = members[answers & (second | (rows["seq"] == 0)) & (rows["ack"] == undecided.first)]
        return int(resets[0]) if len(resets) else None

    def _asks_service(self, key: Key, undecided: _Undecided) -> bool:
        """Whether it began with a SYN to a service port."""
        return undecided.opened_by is not None and key[1 - undecided.opened_by] & 0xFFFF in self.ports

    def _open_connection(self, key: Key, records: RecordReader | None = None) -> TcpConnection:
        first, second = (self.addresses.name(end >> 16 & 0xFFFFFFFF) for end in key)
        ports = self.ports if records is None else self.record_ports
        two = key[0] & 0xFFFF, key[1] & 0xFFFF
        tcp = TcpConnection(key, (first, second), two, ports, self.reader, records, key[0] >= DATAGRAMS)
        tcp.listener = self.listener
        if (undecided := self.undecided.get(key)) is not None:
            tcp.lifetime.first, tcp.lifetime.handshake = undecided.since, undecided.handshake
            tcp.lifetime.opened_by = undecided.opened_by
        self.open[key] = tcp
        self._opened[key] = self._place
        return tcp

    def _is_service(self, key: Key) -> bool:
        """Whether one end has a service port, and the other one that a client may have."""
        near, far = sorted((key[0] & 0xFFFF, key[1] & 0xFFFF), key=lambda port: port not in self.ports)
        return near in self.ports and (far > near or far in self.ports)

    def _remember(self, key: Key, undecided: _Undecided) -> None:
        self.undecided.pop(key, None)
        self.undecided[key] = undecided
        if len(self.undecided) > MAX_UNDECIDED:
            del self.undecided[next(iter(self.undecided))]

    def _register(self, key: Key, tcp: TcpConnection, delivered: list[tuple[int, Operation]]) -> list[Event]:
        """Queue a recognised connection to be numbered; give up one whose trial failed."""
        connection = tcp.connection
        if connection is None:
            if tcp.lifetime.data_segments > TRIED and not tcp.confirmed and not self._is_service(key):
                self._give_up(key)
            return []
        if not connection.number:
            self._found[tcp] = tcp.started or tcp.found or self._place
            self.trials.discard(key)
        packets, segments = tcp.uncounted()
        self._packets += packets
        unknown = "TCP" if tcp.transport != "UDP" else f"UDP port {min(tcp.ports)}"
        self._segments[tcp.transport, unknown] += segments
        return [(order, tcp, operation) for order, operation in delivered]

    def _give_up(self, key: Key) -> None:
        """End the trial of a connection that is not iWARP."""
        self.trials.discard(key)
        del self._opened[key]
        tcp = self.open.pop(key)
        if key in self.undecided:
            self.undecided[key].tried += tcp.lifetime.data_segments

    def number(self) -> None:
        """Number the recognised connections, in the order in which they began to be iWARP."""
        unnumbered, self._found = self._found, {}
        for tcp, frame in unnumbered.items():
            if tcp.connection is not None:
                self.registry.add((frame, BY_TCP, frame), tcp.connection)
        self.registry.settle()
        self.connections |= {tcp.connection.number: tcp for tcp in unnumbered if tcp.connection is not None}

    def _finish(self, key: Key) -> list[Event]:
        tcp = self.open.pop(key)
        del self._opened[key]
        self.trials.discard(key)
        delivered = tcp.finish()
        if tcp.connection is None:
            return []
        return self._register(key, tcp, delivered)


def _again(tcp: TcpConnection, direction: int, seq: int, time: int) -> bool:
    """Whether a SYN is a retransmission, a copy, or late: after an answer that acknowledges no more than the SYN and
    the Request, at an earlier time (ns).

    Much later no host retransmits it: then a capture of the same connection was appended.
    """
    lifetime, stream = tcp.lifetime, tcp.directions[direction].stream
    if lifetime.closed or lifetime.segments + lifetime.earlier > REORDERED:
        return False
    if stream.opened is not None or stream.next is None or lifetime.first is None:
        return stream.opened == seq
    return time < lifetime.first[1] and 0 < TCP_SEQUENCE.wrap(stream.next - seq) <= MAX_AHEAD


def ends_of(rows: Rows) -> tuple[Int64s, Int64s]:
    """By SEGMENT row, the numbers of the sender and of the receiver as in ``Key``."""
    above = np.where(rows["datagram"], DATAGRAMS, 0)
    return (
        above | rows["source"].astype(np.int64) << 16 | rows["source_port"],
        above | rows["destination"].astype(np.int64) << 16 | rows["destination_port"],
    )


class _Group(NamedTuple):
    """The segments of one connection in a batch."""

    members: Int64s
    """Indices, ascending."""
    key: Key
    starts_up: bool
    """A segment begins like an MPA Request or Reply."""
    opens: bool
    """A segment is the first SYN of a connection."""
    records: bool
    """A segment begins like a record."""


@dataclass(frozen=True, slots=True)
class _Segments:
    """The TCP segments of one batch."""

    data: Bytes
    rows: Rows
    """SEGMENT rows."""
    low: Int64s
    """The two ends of each, address and port in one number, the lower one first."""
    high: Int64s
    forward: Rows
    """Whether it goes from the lower to the higher end: direction 0."""
    opening: Rows
    """A SYN without ACK."""
    startup: Rows
    """Its payload begins like an MPA Request or Reply."""
    likely: Rows
    """Its payload begins like an FPDU."""
    record: Rows
    """Its payload begins like a record."""

    @classmethod
    def of(
        cls, data: Bytes, rows: Rows, records: RecordReader | None, ports: frozenset[int], known: Sequence[Key]
    ) -> _Segments:
        """``known``: connections whose content is known, so that the beginnings of their segments are not checked."""
        source, destination = ends_of(rows)
        low, high = np.minimum(source, destination), np.maximum(source, destination)
        opening = rows["flags"] & (SYN | ACK) == SYN
        keys, (lows, highs) = _mixed(low, high), np.array([*known], np.int64).reshape(-1, 2).T
        asked = rows["datagram"] | ~among(keys, _mixed(lows, highs)) | among(keys, keys[opening])
        message, record, startup, likely = np.zeros((4, len(rows)), np.bool_)
        if some(asked):
            index = np.arange(len(rows))
            soon = index - np.maximum.accumulate(np.where(opening, index, 0)) < FIRST_ASKED
            first = places(asked & soon)
            message[first], record[first] = _beginning(data, take(rows, first), records, ports)
            # One whole record shows what a connection carries until the next SYN, even on an iWARP port.
            shown, parts = first[record[first]], _mixed(keys, opening.cumsum())
            whole = (words_at(data, rows["payload"][shown]) & ~LAST_FRAGMENT) + MARK <= rows["length"][shown]
            rest = places(asked & ~soon & (rows["datagram"] | ~among(parts, parts[shown[whole]])))
            looked_at = np.concatenate((first, rest))
            startup[looked_at], likely[looked_at] = _first_bytes(data, take(rows, looked_at))
            # A Request or Reply does so as well.
            rest = rest[rows["datagram"][rest] | ~among(parts[rest], parts[first[startup[first]]])]
            if len(rest):
                message[rest], record[rest] = _beginning(data, take(rows, rest), records, ports)
        forward, kept = source <= destination, ~rows["datagram"] | message
        if some(~kept):
            rows = take(rows, kept)
            low, high, forward, opening, startup, likely, record = (
                column[kept] for column in (low, high, forward, opening, startup, likely, record)
            )
        return cls(data, rows, low, high, forward, opening, startup, likely, record)

    def direction(self, index: int) -> int:
        return int(not self.forward[index])

    def by_connection(self) -> list[tuple[_Group, Int64s]]:
        """The segments by connection, and for one pair of ends also by SYN, ordered by the first segment of each."""
        order = np.lexsort((self.high, self.low))
        low, high = self.low[order], self.high[order]
        edges = places((low[1:] != low[:-1]) | (high[1:] != high[:-1])) + 1
        starts = np.concatenate(([0], edges))
        marks = (
            np.logical_or.reduceat(column[order], starts).tolist()
            for column in (self.startup, self.opening, self.record)
        )
        keys = zip(low[starts].tolist(), high[starts].tolist(), strict=True)
        groups = [_Group(*fields) for fields in zip(np.split(order, edges), keys, *marks, strict=True)]
        parts = [(group, part) for group in groups for part in self._by_syn(group) if len(part)]
        return sorted(parts, key=lambda portion: int(portion[1][0]))

    def _by_syn(self, group: _Group) -> list[Int64s]:
        if not group.opens:
            return [group.members]
        edges = [0, *places(self.opening[group.members]).tolist(), len(group.members)]
        return [group.members[begin:end] for begin, end in pairwise(edges)]

    def first_startup(self, members: Int64s, undecided: _Undecided | None) -> tuple[int, bool] | None:
        """Index in ``members`` of a segment that begins a Request or Reply, and whether it is a Request; None for
        none."""
        start = self._split_request(members, undecided)
        for at in places(self.startup[members]).tolist():
            if start is not None and start <= at:
                break
            offset = int(self.rows["payload"][members[at]])
            head = self.data[offset : offset + 16].tobytes()
            if is_mpa(head):
                return int(at), head == REQUEST_KEY
        return None if start is None else (start, True)

    def _split_request(self, members: Int64s, undecided: _Undecided | None) -> int | None:
        """Index in ``members`` of the first segment after the SYN if it may begin an MPA Request but is shorter than
        one; else None."""
        if undecided is None or undecided.opened_by is None:
            return None
        rows = self.rows
        first = (rows["seq"][members] == undecided.first) & (self.forward[members] == (undecided.opened_by == 0))
        for at in places(first & (rows["length"][members] > 0)).tolist():
            start, captured = int(rows["payload"][members[at]]), int(rows["captured"][members[at]])
            head = self.data[start : start + min(captured, 16)].tobytes()
            if captured < 20 and head and REQUEST_KEY.startswith(head):
                return int(at)
        return None


def _mixed(low: Int64s, high: Int64s) -> Int64s:
    """Both ends of a connection hashed to one number; collisions are rare."""
    return low * np.int64(0x9E3779B97F4A7C1) ^ high


def _beginning(
    data: Bytes, rows: Rows, records: RecordReader | None, ports: frozenset[int]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which SEGMENT rows begin with a message, and which of those show what their connection carries."""
    if records is None:
        return np.zeros(len(rows), np.bool_), np.zeros(len(rows), np.bool_)
    marked = ~rows["datagram"]
    at = rows["payload"] - np.where(marked, 0, MARK)
    message = begins(records, data, at, rows["captured"] + (rows["payload"] - at), marked)
    on_port = among(rows["source_port"], np.array([*ports])) | among(rows["destination_port"], np.array([*ports]))
    # A reply has too little to recognise it by, except on the server's port.
    record = message.copy()
    record[message] = on_port[message] | (words_at(data, at[message] + MESSAGE_TYPE) == 0)
    record[on_port] |= tls(data, at[on_port], rows["captured"][on_port])
    return message, record


def _first_bytes(data: Bytes, rows: Rows) -> tuple[Rows, Rows]:
    """Which segments begin like an MPA Request or Reply, and which like an FPDU."""
    startup, likely = np.zeros(len(rows), np.bool_), np.zeros(len(rows), np.bool_)
    index = places(rows["captured"] >= 20)
    if len(index):
        overlapping: Rows = np.ndarray((len(data) - 7,), np.dtype(">u8"), data, strides=(1,))
        heads = overlapping[rows["payload"][index]]
        startup[index] = heads == _STARTUP
        likely[index] = LEGAL[(heads >> np.uint64(32) & np.uint64(0xFFFF)).astype(np.int64)]
    return startup, likely
