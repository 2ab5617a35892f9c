"""The iWARP observer: finds the TCP connections that are iWARP, and gives their Operations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import itemgetter

import numpy as np

from ...arrays import Bytes, Int64s, Rows, take
from ...frames import FrameBatch
from ...layers.iwarp_codes import REQUEST_KEY
from ...link.addresses import AddressTable
from ...link.tcp import ACK, SYN, locate_tcp
from ...serial import TCP_SEQUENCE
from ..connection import Registry
from ..operations import Operation
from .decoding import Fpdus
from .link import Link
from .mpa import is_mpa
from .rdmap import LEGAL

TRIED = 64
"""Segments with payload by which a connection must have shown that it is iWARP."""
TRIALS = 1024
"""Connections on trial at one time."""
REMEMBERED = 1 << 17
"""Connections of which it is remembered that they are something else."""

SETTLED = 10_000_000_000
"""Nanoseconds without a segment, after which a connection that was closed is over."""

Event = tuple[int, Link, Operation]
"""Frame number in whose place it stands, where, what."""

_GREETING = int.from_bytes(REQUEST_KEY[:8], "big")
"""Begins both a Request and a Reply."""


@dataclass(slots=True)
class _Other:
    """A connection that has not shown that it is iWARP."""

    tried: int = 0
    """Segments with payload that were seen."""
    opened_by: int | None = None
    """The direction of the SYN."""
    first: int = 0
    """Sequence number behind the SYN."""
    since: int = 0
    """Frame of the SYN."""
    segments: int = 0
    """That were seen since the SYN."""


class Observer:
    """Feed it batches of frames, after the frames with TCP in them were found; it gives Operations in the order of
    events, over all connections.

    A connection is iWARP where an MPA Request or Reply begins a segment of it, on any port, or where FPDUs are found
    in it that follow each other or have the right CRC.  The latter is tried on connections that began before the
    capture did, on the service ports, and where a segment begins with what looks like an FPDU; a bounded number of
    times, then the connection is passed over.
    """

    def __init__(self, registry: Registry, ports: frozenset[int]) -> None:
        """``registry`` is shared with the observers of other transports; ``ports``: those of the service."""
        self.registry = registry
        self.ports = ports
        self.watch: Callable[[Link, int, Fpdus], None] | None = None
        """Is shown the FPDUs of every connection as they are taken, and their direction."""
        self.addresses = AddressTable()
        self.links: dict[int, Link] = {}
        """By connection number."""
        self.open: dict[tuple[int, int], Link] = {}
        """By the two ends; also what is on trial."""
        self.others: dict[tuple[int, int], _Other] = {}
        self.trials = 0
        self.packets = 0
        """MPA Requests and Replies and FPDUs of connections that are iWARP."""
        self.taken = 0
        """Segments of connections that are iWARP."""

    def feed(self, batch: FrameBatch, walks: list[Rows]) -> list[Event]:
        """Take a batch, of which ``walks`` (``Located.tcp``) say where TCP is."""
        rows = locate_tcp(batch, walks, self.addresses)
        if not len(rows):
            return []
        ends = [
            rows[name].astype(np.int64) << 16 | rows[port]
            for name, port in (("source", "source_port"), ("destination", "destination_port"))
        ]
        forward = ends[0] <= ends[1]
        low, high = np.minimum(*ends), np.maximum(*ends)
        order = np.lexsort((high, low))
        low, high = low[order], high[order]
        edges = np.flatnonzero((low[1:] != low[:-1]) | (high[1:] != high[:-1])) + 1
        starts = np.concatenate(([0], edges))
        greeting, likely = _first_bytes(batch.data, rows)
        opening = rows["flags"] & (SYN | ACK) == SYN
        marked = [np.logical_or.reduceat(one[order], starts).tolist() for one in (greeting, likely, opening)]
        events: list[Event] = []
        groups = zip(
            order[starts].tolist(),
            starts.tolist(),
            [*edges.tolist(), len(rows)],
            low[starts].tolist(),
            high[starts].tolist(),
            *marked,
            strict=True,
        )
        for _, begin, end, key_low, key_high, greets, looks, opens in sorted(groups):
            key = key_low, key_high
            link = self.open.get(key)
            other = self.others.get(key) if link is None else None
            if other is not None and other.tried > TRIED and not (greets or opens):
                continue
            members = order[begin:end]
            parts = [members]
            if opens:
                cuts = np.flatnonzero(opening[members])
                parts = [part for part in np.split(members, cuts) if len(part)]
            for part in parts:
                events += self._take(key, batch.data, rows, part, forward, opening, greeting, looks)
        events.sort(key=itemgetter(0))
        return events

    def idle(self, now: int) -> list[Event]:
        """Nothing came up to ``now`` (ns) that was not fed: give what need not wait any longer."""
        events: list[Event] = []
        for key, link in list(self.open.items()):
            if link.closed and now - link.last[1] >= SETTLED:
                events += self._finish(key)
            elif link.waiting:
                events += self._register(key, link, link.idle(now))
        events.sort(key=itemgetter(0))
        return events

    def finish_links(self, numbers: set[int]) -> list[Event]:
        """The connections with these numbers are over."""
        events: list[Event] = []
        for key, link in list(self.open.items()):
            if link.connection is not None and link.connection.number in numbers:
                events += self._finish(key)
        events.sort(key=itemgetter(0))
        return events

    def drop(self, numbers: set[int]) -> None:
        """Let go of everything about the connections with these numbers."""
        for number in numbers & self.links.keys():
            del self.links[number]

    def finish(self) -> list[Event]:
        """The capture is over."""
        events: list[Event] = []
        for key in list(self.open):
            events += self._finish(key)
        events.sort(key=itemgetter(0))
        return events

    def _take(
        self,
        key: tuple[int, int],
        data: Bytes,
        rows: Rows,
        members: Int64s,
        forward: Rows,
        opening: Rows,
        greeting: Rows,
        looks: bool,
    ) -> list[Event]:
        """Segments of one connection, a SYN only the first of them."""
        events: list[Event] = []
        first = int(members[0])
        link = self.open.get(key)
        if opening[first]:
            direction = int(not forward[first])
            if link is not None and not link.closed and link.streams[direction].opened == int(rows["seq"][first]):
                pass  # the SYN again
            else:
                frame = int(rows["frame"][first])
                if link is not None:
                    link.until = frame
                    events += self._finish(key)
                    link = None
                self._remember(key, _Other(0, direction, TCP_SEQUENCE.wrap(int(rows["seq"][first]) + 1), frame))
        if link is None:
            link, members = self._judge(key, data, rows, members, forward, greeting, looks)
        if link is not None and len(members):
            delivered = link.feed(data, take(rows, members), forward[members])
            events += self._register(key, link, delivered)
        return events

    def _judge(
        self,
        key: tuple[int, int],
        data: Bytes,
        rows: Rows,
        members: Int64s,
        forward: Rows,
        greeting: Rows,
        looks: bool,
    ) -> tuple[Link | None, Int64s]:
        """A Link for segments of a connection that has none, where they may be iWARP; and what of them it may get."""
        other = self.others.get(key)
        earlier = 0
        if other is not None and other.opened_by is not None:
            earlier = other.segments
            other.segments += len(members)
        start = _split_request(data, rows, members, forward, other)
        request = start is not None
        for at in np.flatnonzero(greeting[members]).tolist():
            if start is not None and start <= at:
                break
            place = int(rows["payload"][members[at]])
            head = data[place : place + 16].tobytes()
            if is_mpa(head):
                start, request = int(at), head == REQUEST_KEY
                break
        if start is not None:
            index = int(members[start])
            link = self._link(key)
            link.earlier = earlier
            link.begin(int(not forward[index]), rows[index : index + 1], request)
            first = other is not None and other.opened_by is not None and int(rows["seq"][index]) == other.first
            # What stands before it is something else, or its own second half out of order.
            return link, members if request and first else members[start:]
        service = self._is_service(key)
        carrying = int(np.count_nonzero(rows["length"][members]))
        if not carrying and other is None:
            return None, members
        fresh = other is not None and other.opened_by is not None
        if other is None:
            other = _Other()
            self._remember(key, other)
        tried = other.tried
        other.tried += carrying
        if tried > TRIED or not carrying or not (looks or service or not fresh):
            return None, members
        if self.trials >= TRIALS and not service:
            return None, members
        self.trials += 1
        link = self._link(key)
        link.active, link.earlier = other.opened_by, earlier
        return link, members

    def _link(self, key: tuple[int, int]) -> Link:
        addresses = [self.addresses.name(end >> 16) for end in key]
        link = Link((addresses[0], addresses[1]), (key[0] & 0xFFFF, key[1] & 0xFFFF), self.ports)
        link.key = key
        link.watch = self.watch
        if key in self.others:
            link.since = self.others[key].since
        self.open[key] = link
        return link

    def _is_service(self, key: tuple[int, int]) -> bool:
        """One end has a service port, and the other one that a client would have."""
        near, far = sorted((key[0] & 0xFFFF, key[1] & 0xFFFF), key=lambda port: port not in self.ports)
        return near in self.ports and (far > near or far in self.ports)

    def _remember(self, key: tuple[int, int], other: _Other) -> None:
        self.others.pop(key, None)
        self.others[key] = other
        if len(self.others) > REMEMBERED:
            del self.others[next(iter(self.others))]

    def _register(self, key: tuple[int, int], link: Link, delivered: list[tuple[int, Operation]]) -> list[Event]:
        """Number a connection that was found, let go of what is none."""
        connection = link.connection
        if connection is None:
            if link.data_segments > TRIED and not link.confirmed and not self._is_service(key):
                self.trials -= 1
                del self.open[key]
            return []
        if not connection.number:
            self.registry.add(connection)
            self.links[connection.number] = link
        packets = link.packets
        self.packets += packets - link.counted_packets
        self.taken += link.segments - link.counted + link.earlier
        link.counted, link.counted_packets, link.earlier = link.segments, packets, 0
        return [(order, link, operation) for order, operation in delivered]

    def _finish(self, key: tuple[int, int]) -> list[Event]:
        link = self.open.pop(key)
        return self._register_finished(key, link)

    def _register_finished(self, key: tuple[int, int], link: Link) -> list[Event]:
        delivered = link.finish()
        if link.connection is None:
            return []
        return self._register(key, link, delivered)


def _split_request(data: Bytes, rows: Rows, members: Int64s, forward: Rows, other: _Other | None) -> int | None:
    """Which of ``members``, if any, is the first segment behind the SYN and shorter than an MPA Request, but may
    begin one."""
    if other is None or other.opened_by is None:
        return None
    first = (rows["seq"][members] == other.first) & (forward[members] == (other.opened_by == 0))
    for at in np.flatnonzero(first & (rows["length"][members] > 0)).tolist():
        start, captured = int(rows["payload"][members[at]]), int(rows["captured"][members[at]])
        head = data[start : start + min(captured, 16)].tobytes()
        if captured < 20 and head and REQUEST_KEY.startswith(head):
            return int(at)
    return None


def _first_bytes(data: Bytes, rows: Rows) -> tuple[Rows, Rows]:
    """Which segments begin as an MPA Request or Reply does, and which as an FPDU may."""
    greeting, likely = np.zeros(len(rows), np.bool_), np.zeros(len(rows), np.bool_)
    index = np.flatnonzero(rows["captured"] >= 20)
    if len(index):
        overlapping: Rows = np.ndarray((len(data) - 7,), np.dtype(">u8"), data, strides=(1,))
        heads = overlapping[rows["payload"][index]]
        greeting[index] = heads == _GREETING
        likely[index] = LEGAL[(heads >> np.uint64(32) & np.uint64(0xFFFF)).astype(np.int64)]
    return greeting, likely
