"""TCP segments that came in several IP fragments: joined where all of them were captured, as their receiver does it
(RFC 791, 3.2; RFC 8200, 4.5).

Nothing is copied: the payload in each fragment becomes a SEGMENT row of its own, with its own sequence number, all of
them in place of the frame that completes the segment.  Where a fragment is missing, overlaps another one (RFC 5722), or
the checksum over all is wrong, there is no segment for the receiver either: a gap, and its fragments count as such.
Of other protocols fragments are not joined: hosts send RoCEv2 unfragmented (IBA A17.4.5.2), and the payload of a
datagram would have to be copied.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from weakref import ReferenceType, ref

import numpy as np

from ..arrays import Bytes, Rows, among, places, put, some, take
from ..frames import FrameBatch
from ..named_tuple import NamedTuple
from .addresses import AddressTable
from .locate import Located
from .numbers import PROTOCOLS, TCP
from .tcp import FIN, PSH, SYN, WRONG, congested, locate_tcp, verify_fragments
from .walk import IP_FRAGMENT, WALK

MAX_DATAGRAMS = 64
"""Incomplete ones, of all hosts: so many fragments others may come in between (Linux's ipfrag_max_dist)."""
MAX_FRAGMENTS = 128
"""Of one datagram: of 65,535 bytes over the least MTU that IPv4 hosts expect, 576."""
TIMEOUT = 30_000_000_000
"""Nanoseconds between two fragments of a datagram, at most, as of Linux (ipfrag_time)."""
MAX_EXTENDED = 1 << 28
"""Bytes of a batch that are copied to have fragments of an earlier one, of other bytes, beside them."""

MORE, PLACE = 1, 0xFFF8
"""In the column ``link`` of WALK rows: more fragments follow; bytes before it."""
FIRST = MORE

_Key = tuple[int, bytes]
"""IP version; addresses and identification."""


class _IpFragment(NamedTuple):
    """A fragment: bytes [start, end) of the segment, its header included."""

    start: int
    end: int
    last: bool
    time: int
    walk: Rows
    """Its WALK row."""
    source: ReferenceType[Bytes]
    """The data that its offsets are in."""
    kept: Bytes | None = None
    """The captured bytes from the IP header on, where these are no more at hand."""


@dataclass(slots=True, eq=False)
class _Datagram:
    """The fragments so far, by where they start."""

    parts: dict[int, _IpFragment] = field(default_factory=dict)
    end: int | None = None
    """Of the last one."""

    def add(self, part: _IpFragment) -> None:
        """Of two fragments for the same bytes the later one counts; others that overlap begin a datagram anew."""
        overlapping = [other for other in self.parts.values() if other.start < part.end and part.start < other.end]
        if (
            len(self.parts) >= MAX_FRAGMENTS
            or any((other.start, other.end, other.last) != part[:3] for other in overlapping)
            or (self.end is not None and (part.end > self.end or (part.last and part.end != self.end)))
        ):
            self.parts.clear()
            self.end = None
        self.parts[part.start] = part
        if part.last:
            self.end = part.end

    def complete(self) -> bool:
        return self.end is not None and sum(part.end - part.start for part in self.parts.values()) == self.end


class Segments(NamedTuple):
    """The TCP segments of a batch."""

    batch: FrameBatch
    """The batch, perhaps with the bytes of earlier fragments behind its own."""
    rows: Rows
    """SEGMENT rows, one also for each fragment that was joined."""
    skipped: dict[str, int]
    """As in ``Located``; an earlier batch's fragments that were joined now count as less than none."""


class TcpFragments:
    """Carries incomplete segments from batch to batch."""

    def __init__(self) -> None:
        self._incomplete: dict[_Key, _Datagram] = {}

    def segments(self, batch: FrameBatch, located: Located, addresses: AddressTable) -> Segments:
        """The segments in the frames of a batch, in the order in which they were captured, or became complete."""
        which = [(walk["next"] == TCP) & (walk["link"] != 0) for walk in located.tcp]
        if not any(map(some, which)):
            return Segments(batch, locate_tcp(batch, located.tcp, addresses), located.skipped)
        walk, fragments = np.concatenate(located.tcp), np.concatenate(which)
        complete = self._complete(batch, take(walk, fragments))
        self._keep(batch.data)
        batch, joined = _at_hand(batch, complete)
        firsts = joined[joined["link"] == FIRST]
        firsts["link"] = 0
        rows = locate_tcp(batch, [walk, firsts], addresses)
        if not len(firsts):
            return Segments(batch, rows, located.skipped)
        rows, many = _divided(batch.data, rows, joined)
        skipped = Counter(located.skipped)
        skipped[IP_FRAGMENT] -= many
        skipped[PROTOCOLS[TCP]] += many
        return Segments(batch, rows, skipped)

    def _complete(self, batch: FrameBatch, fragments: Rows) -> list[tuple[int, list[_IpFragment]]]:
        """The datagrams that the WALK rows complete, with the row of the frame that does so."""
        complete: list[tuple[int, list[_IpFragment]]] = []
        fragments = take(fragments, np.argsort(fragments["row"], kind="stable"))
        data, source = batch.data, ref(batch.data)
        times = batch.rows["time"][fragments["row"]].tolist()
        columns = (fragments[name].tolist() for name in ("row", "ip", "version", "at", "ip_end", "link"))
        for index, (row, ip, version, at, ip_end, offset) in enumerate(zip(*columns, strict=True)):
            start, more = offset & PLACE, offset & MORE
            if ip_end <= at or (more and (ip_end - at) % 8):
                continue
            pieces = ((12, 20), (4, 6)) if version == 4 else ((8, 40), (at - ip - 4, at - ip))
            key = version, b"".join(data[ip + low : ip + high].tobytes() for low, high in pieces)
            part = _IpFragment(start, start + ip_end - at, not more, times[index], fragments[index : index + 1], source)
            datagram = self._incomplete.pop(key, None)
            if datagram is None or abs(part.time - next(reversed(datagram.parts.values())).time) > TIMEOUT:
                datagram = _Datagram()
            datagram.add(part)
            if datagram.complete():
                complete.append((row, sorted(datagram.parts.values())))
                continue
            self._incomplete[key] = datagram
            if len(self._incomplete) > MAX_DATAGRAMS:
                del self._incomplete[next(iter(self._incomplete))]
        return complete

    def _keep(self, data: Bytes) -> None:
        """Copy what is incomplete before the bytes of the batch are gone."""
        for datagram in self._incomplete.values():
            for start, part in datagram.parts.items():
                if part.kept is None and part.source() is data:
                    ip, end = (int(part.walk[name][0]) for name in ("ip", "end"))
                    datagram.parts[start] = part._replace(kept=data[ip:end].copy(), walk=part.walk.copy())


def _at_hand(batch: FrameBatch, complete: list[tuple[int, list[_IpFragment]]]) -> tuple[FrameBatch, Rows]:
    """WALK rows of the fragments, one datagram behind the other, as if they were all in the frame that completes it;
    with the batch, to which bytes were added that are in none of its frames."""
    rows: list[Rows] = [np.zeros(0, WALK)]
    added, size = [batch.data], len(batch.data)
    for row, parts in complete:
        lacking = [part for part in parts if part.source() is not batch.data]
        if lacking and len(batch.data) > MAX_EXTENDED:
            continue
        for part in parts:
            walk = part.walk.copy()
            walk["row"] = row
            if part.kept is not None and part.source() is not batch.data:
                for name in ("at", "end", "wire_end", "ip_end", "ip"):
                    walk[name] += size - int(part.walk["ip"][0])
                added.append(part.kept)
                size += len(part.kept)
            rows.append(walk)
    if len(added) > 1:
        batch = replace(batch, data=np.concatenate(added))
    return batch, np.concatenate(rows)


def _divided(data: Bytes, rows: Rows, joined: Rows) -> tuple[Rows, int]:
    """The SEGMENT rows, those of first fragments replaced by one for each fragment that is ``joined``; and how many
    these are."""
    starts = places(joined["link"] == FIRST)
    counts = np.diff(starts, append=len(joined))
    where = places(among(rows["header"], joined["at"][starts]))
    # Without those whose TCP header is not all in the first fragment.
    readable = among(joined["at"][starts], rows["header"][where])
    walk, counts = take(joined, np.repeat(readable, counts)), counts[readable]
    firsts = np.cumsum(counts) - counts
    parts = take(rows, np.repeat(where, counts))
    parts["fragment"] = True
    later = np.ones(len(parts), np.bool_)
    later[firsts] = False
    before = (walk["link"] & PLACE) - (parts["payload"] - parts["header"])
    parts["seq"][later] += (before + (parts["flags"] & SYN != 0))[later].astype(np.uint32)
    for name, column in ("ip", "ip"), ("header", "at"), ("payload", "at"):
        parts[name][later] = walk[column][later]
    parts["length"][later] = (walk["ip_end"] - walk["at"])[later]
    parts["captured"] = np.clip(walk["end"] - parts["payload"], 0, parts["length"])
    parts["congested"] = congested(data, walk)
    parts["selective"][later] = False
    parts["flags"][later] &= ~np.uint8(SYN)
    parts["flags"][walk["link"] & MORE != 0] &= ~np.uint8(FIN | PSH)
    verify_fragments(data, parts, firsts)
    right = parts["verdict"] != WRONG
    amount = np.ones(len(rows), np.int64)
    amount[where] = counts * right[firsts]
    replaced = np.zeros(len(rows), np.bool_)
    replaced[where] = True
    divided = take(rows, np.repeat(np.arange(len(rows)), amount))
    put(divided, places(np.repeat(replaced, amount)), take(parts, right))
    return divided, int(np.count_nonzero(right))
