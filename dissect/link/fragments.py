"""TCP segments that came in several IP fragments: joined if all of them were captured, as the receiver does (RFC 791,
3.2; RFC 8200, 4.5).

Nothing is copied: the payload of each fragment becomes a SEGMENT row with its own sequence number, all of them in place
of the frame that completes the segment.  If a fragment is missing or overlaps another one (RFC 5722), or the checksum
over all is wrong, the receiver has no segment either: it is a gap, and its fragments are counted.  Fragments of other
protocols are not joined: hosts send RoCEv2 unfragmented (IBA A17.4.5.2), and a datagram's payload would have to be
copied."""

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
"""Incomplete datagrams of all hosts: Linux lets so many fragments of others come in between (ipfrag_max_dist)."""
MAX_FRAGMENTS = 128
"""Fragments of a datagram: 65,535 bytes divided by 576, the least MTU that IPv4 hosts expect."""
TIMEOUT = 30_000_000_000
"""Nanoseconds between two fragments of a datagram, at most, as in Linux (ipfrag_time)."""
MAX_EXTENDED = 1 << 28
"""Bytes of a batch that may be copied to add fragments of an earlier one to them."""

MORE, PLACE = 1, 0xFFF8
"""Bits of the column ``link`` of WALK rows: more fragments follow; the fragment's offset in bytes."""
FIRST = MORE

_Key = tuple[int, bytes]
"""IP version; addresses and identification."""


class _IpFragment(NamedTuple):
    """A fragment: bytes [start, end) of the segment, with its header."""

    start: int
    end: int
    last: bool
    time: int
    walk: Rows
    """Its WALK row."""
    source: ReferenceType[Bytes]
    """The data that its offsets are in."""
    kept: Bytes | None = None
    """The captured bytes from the IP header on, if the batch is gone."""


@dataclass(slots=True, eq=False)
class _Datagram:
    """The fragments so far, by their starts."""

    parts: dict[int, _IpFragment] = field(default_factory=dict)
    end: int | None = None
    """End of the last fragment, once that came."""

    def add(self, part: _IpFragment) -> None:
        """Add a fragment; a later one for the same bytes replaces it, other overlaps start the datagram anew."""
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
    """The batch, perhaps with bytes of earlier fragments appended."""
    rows: Rows
    """SEGMENT rows, with one for each fragment that was joined."""
    skipped: dict[str, int]
    """As in ``Located``; an earlier batch's fragments that were joined now count negatively."""


class TcpFragments:
    """Carries incomplete segments from batch to batch."""

    def __init__(self) -> None:
        self._incomplete: dict[_Key, _Datagram] = {}

    def segments(self, batch: FrameBatch, located: Located, addresses: AddressTable) -> Segments:
        """The segments of a batch, in the order in which they were captured, or became complete."""
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
        """The datagrams that WALK rows complete, with the row of the frame that does so."""
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
        """Copy incomplete datagrams before the bytes of the batch are gone."""
        for datagram in self._incomplete.values():
            for start, part in datagram.parts.items():
                if part.kept is None and part.source() is data:
                    ip, end = (int(part.walk[name][0]) for name in ("ip", "end"))
                    datagram.parts[start] = part._replace(kept=data[ip:end].copy(), walk=part.walk.copy())


def _at_hand(batch: FrameBatch, complete: list[tuple[int, list[_IpFragment]]]) -> tuple[FrameBatch, Rows]:
    """WALK rows of the fragments, datagram by datagram, as if all were in the completing frame; and the batch, with the
    bytes of earlier fragments appended."""
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
    """The SEGMENT rows, with first fragments replaced by one row for each fragment in ``joined``; and how many of those
    there are."""
    starts = places(joined["link"] == FIRST)
    counts = np.diff(starts, append=len(joined))
    where = places(among(rows["header"], joined["at"][starts]))
    # Leave out segments whose TCP header is not all in the first fragment.
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
