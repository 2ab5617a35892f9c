"""The same traffic captured at two points with two clocks: what both saw, and how far the clocks are apart.

A packet is recognised by its headers and ICRC, or by its TCP header and IP identification, as in ``duplicates``;
packets that came more than once are left out.  A packet that passes the first point first has, at the other, a time
that is later by the clocks' offset plus its transit; one that passes the other point first, by the offset minus its
transit.  So the offset lies between the least of the former differences and the greatest of the latter.  If one clock
runs faster, the differences lie on both sides of a slope instead; a drift is certain if no constant offset separates
them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Int64s, Rows, take
from ..frames import FrameBatch
from ..named_tuple import NamedTuple
from .addresses import AddressTable
from .duplicates import WINDOW, sightings
from .locate import Located, locate
from .walk import count_carried, fill_addresses

OTHER_POINT = 1 << 15
"""Flag in ``FRAME.interface``: the frame is from a capture point that has less priority than another one."""
SEEN_ELSEWHERE = "seen at another capture point"
"""Key for frames that are left out, in the counts."""
ENOUGH = 16
"""Packets of two hosts that both points must have."""
SHARE = 0.8
"""Share that must be at both points, of two hosts' packets between the first and the last common one, at the point that
has fewer."""

Hosts = frozenset[bytes]
"""The addresses of two hosts."""

MAX_DRIFT = 1e-3
"""A thousand parts per million: crystals are off by fifty, and what exceeds this is no clock."""
SPANS = 4096
"""Parts of the time; the least and the greatest difference in each bound the drift."""

_SIGHT = np.dtype([("hash", "u8"), ("time", "i8"), ("frame", "i8"), ("source", "u4"), ("destination", "u4")])
_ENDS = np.dtype([("source", "u4"), ("destination", "u4")])


class Clocks(NamedTuple):
    """The offset and drift between two clocks, in nanoseconds."""

    since: int
    """A time by the first clock."""
    offset: int
    """The other clock minus the first one at ``since``."""
    error: int | None
    drift: float
    """What the other clock gains, as a fraction of time; 0 if none is certain."""
    drift_error: float | None
    """Error bound of the drift; None if it is unknown."""

    def at(self, times: Int64s) -> Int64s:
        """The offsets at times of the first clock."""
        gained: Int64s = np.rint((times - self.since) * self.drift).astype(np.int64)
        return gained + self.offset


class CommonTraffic(NamedTuple):
    """What two capture points have in common.  Times in nanoseconds."""

    hosts: frozenset[Hosts]
    """Pairs of hosts whose packets both points have."""
    both: int
    """Packets that both points have."""
    only_first: int
    only_other: int
    """Packets of the same hosts that only one point has."""
    clocks: Clocks
    transit: tuple[int | None, int | None]
    """Median transit from the first point to the other, and back, by that offset."""
    passing: frozenset[tuple[bytes, bytes]]
    """Source and destination of the packets that pass the first point first."""

    @property
    def offset(self) -> int:
        """The other point's clock less the first one's, at ``clocks.since``."""
        return self.clocks.offset

    @property
    def error(self) -> int | None:
        """Error bound of the offset; None if only packets of one direction are common."""
        return self.clocks.error


class LonePackets(NamedTuple):
    """Packets that only one of two capture points has, from the time in which both captured."""

    lost: Int64s
    """Frames with packets on their way to the other point: lost between the points, or by the other capture."""
    missed: Int64s
    """Frames with packets that came from the other point, whose capture lost them."""


class Sightings:
    """The packets of one capture point."""

    def __init__(self, addresses: AddressTable) -> None:
        """``addresses``: one table for all points."""
        self.addresses = addresses
        self._parts: list[Rows] = []

    def add(self, batch: FrameBatch, before: int = 0) -> None:
        """Add a batch's packets; ``before``: number of frames in earlier files."""
        for rows, seen, ends in _seen(batch, locate(batch, self.addresses), self.addresses):
            part = np.zeros(len(rows), _SIGHT)
            part["hash"], part["time"] = seen["hash"], seen["time"]
            part["frame"] = batch.rows["number"][rows].astype(np.int64) + before
            part["source"], part["destination"] = ends["source"], ends["destination"]
            self._parts.append(part)

    def rows(self) -> Rows:
        """_SIGHT rows, without packets that came more than once."""
        rows = np.concatenate(self._parts) if self._parts else np.zeros(0, _SIGHT)
        _, first, times = np.unique(rows["hash"], return_index=True, return_counts=True)
        return take(rows, np.sort(first[times == 1]))


def _seen(batch: FrameBatch, located: Located, addresses: AddressTable) -> Iterator[tuple[Int64s, Rows, Rows]]:
    """Of packets, then of segments, that are whole enough: rows of their frames, sightings, addresses."""
    for which, seen, walk in sightings(batch, located):
        ends = np.zeros(len(which), _ENDS)
        if walk is None:
            ends["source"], ends["destination"] = located.source[which], located.destination[which]
            yield located.rows[which], seen, ends
        else:
            fill_addresses(batch.data, walk, addresses, ends)
            yield walk["row"], seen, ends


def common_traffic(first: Sightings, other: Sightings, apart: int = WINDOW) -> CommonTraffic | None:
    """What two points have in common; None unless it is traffic of the same hosts, seen at two places.

    ``apart``: least transit in nanoseconds that some packet needs.  Two interfaces of one host are closer.
    """
    here, there = first.rows(), other.rows()
    _, at_here, at_there = np.intersect1d(here["hash"], there["hash"], assume_unique=True, return_indices=True)
    pairs = _pairs(here), _pairs(there)
    common = _pairs(take(here, at_here))
    shared: list[int] = []
    for pair in np.unique(common):
        twins = common == pair
        both = int(np.count_nonzero(twins))
        spans = (
            int(np.count_nonzero(of[at[twins].min() : at[twins].max() + 1] == pair))
            for of, at in zip(pairs, (at_here, at_there), strict=True)
        )
        if both >= ENOUGH and both >= SHARE * min(spans):
            shared.append(int(pair))
    chosen = np.isin(common, shared)
    if not chosen.any():
        return None
    here_rows, there_rows = take(here, at_here[chosen]), take(there, at_there[chosen])
    later = there_rows["time"] - here_rows["time"]
    if np.abs(later).max() <= apart:
        return None
    there = _passing(here_rows, later)
    times = here_rows["time"]
    clocks = clocks_between(times, later, there)
    transit = later - clocks.at(times)
    totals = [int(np.count_nonzero(np.isin(pair, shared))) for pair in pairs]
    both = len(later)
    names = [np.array([pair], np.uint64).view("u4").tolist() for pair in shared]
    return CommonTraffic(
        frozenset(frozenset(first.addresses.address(end) for end in pair) for pair in names),
        both,
        totals[0] - both,
        totals[1] - both,
        clocks,
        (_median(transit[there]), _median(-transit[~there])),
        frozenset(
            (first.addresses.address(source), first.addresses.address(destination))
            for source, destination in np.unique(take(here_rows, there)[["source", "destination"]]).tolist()
        ),
    )


def lone_packets(first: Sightings, other: Sightings, common: CommonTraffic) -> tuple[LonePackets, LonePackets]:
    """The common hosts' packets that only the first point has, and those that only the other has."""
    addresses = first.addresses
    pairs = {tuple(sorted(map(addresses.id, pair))) for pair in common.hosts}
    hosts = np.array([low | high << 32 for low, high in pairs], np.uint64)
    passing = np.array([addresses.id(source) | addresses.id(to) << 32 for source, to in common.passing], np.uint64)
    rows = [take(packets, np.isin(_pairs(packets), hosts)) for packets in (first.rows(), other.rows())]
    rows[1]["time"] -= common.clocks.at(rows[1]["time"] - common.offset)
    begin = max(int(row["time"].min(initial=1 << 62)) for row in rows)
    end = min(int(row["time"].max(initial=-(1 << 62))) for row in rows)
    lone = []
    for number, (mine, others) in enumerate((rows, rows[::-1])):
        alone = ~np.isin(mine["hash"], others["hash"]) & (mine["time"] >= begin) & (mine["time"] <= end)
        ends = mine["source"].astype(np.uint64) | mine["destination"].astype(np.uint64) << np.uint64(32)
        towards = np.isin(ends, passing) == (number == 0)
        lone.append(LonePackets(mine["frame"][alone & towards], mine["frame"][alone & ~towards]))
    return lone[0], lone[1]


def _pairs(rows: Rows) -> NDArray[np.uint64]:
    """The two addresses of each row as one number, regardless of direction."""
    low: NDArray[np.uint64] = np.minimum(rows["source"], rows["destination"]).astype(np.uint64)
    low |= np.maximum(rows["source"], rows["destination"]).astype(np.uint64) << np.uint64(32)
    return low


def _passing(rows: Rows, later: Int64s) -> NDArray[np.bool_]:
    """Which packets pass the first point first.

    Of the two directions between two hosts it is the one whose packets are ``later`` at the other point.
    """
    there = np.ones(len(rows), np.bool_)
    pairs = _pairs(rows)
    for pair in np.unique(pairs):
        mine = np.flatnonzero(pairs == pair)
        forward = rows["source"][mine] < rows["destination"][mine]
        if forward.all() or not forward.any():
            continue
        sooner = np.median(later[mine[forward]]) < np.median(later[mine[~forward]])
        there[mine[forward == sooner]] = False
    return there


def clocks_between(times: Int64s, later: Int64s, there: NDArray[np.bool_]) -> Clocks:
    """The clocks, by packets at ``times`` of the first point, ``later`` at the other; ``there``: they reach it
    second."""
    since = int(times.min())
    if there.all() or not there.any():
        return Clocks(since, int(np.median(later)), None, 0.0, None)
    drift, error = _drift(times - since, later, there)
    gained = np.rint((times - since) * drift).astype(np.int64)
    least, greatest = int((later - gained)[there].min()), int((later - gained)[~there].max())
    return Clocks(since, (least + greatest) // 2, abs(least - greatest) // 2 + 1, drift, error)


def _drift(times: Int64s, later: Int64s, there: NDArray[np.bool_]) -> tuple[float, float | None]:
    """The drift, 0 if there may be none, and its error bound; None if any drift of a clock is possible."""
    base = int(np.median(later))
    width = int(times.max()) // SPANS + 1
    ahead, behind = (
        _lowest(times[which], (later[which] - base) * sign, width) for which, sign in ((there, 1), (~there, -1))
    )

    def margin(slope: float) -> float:
        """The gap between the differences of the two directions; concave in the slope."""
        return float((ahead[1] - slope * ahead[0]).min() + (behind[1] + slope * behind[0]).min())

    low, high = -MAX_DRIFT, MAX_DRIFT
    while high - low > 1e-10:
        third = (high - low) / 3
        if margin(low + third) < margin(high - third):
            low += third
        else:
            high -= third
    best = (low + high) / 2
    if margin(best) < 0:
        return 0.0, None
    ends = [_edge(margin, best, outside) for outside in (-MAX_DRIFT, MAX_DRIFT)]
    if ends[0] <= 0 <= ends[1]:
        widest = max(-ends[0], ends[1])
        return 0.0, widest if widest < MAX_DRIFT else None
    return best, max(best - ends[0], ends[1] - best)


def _lowest(times: Int64s, values: Int64s, width: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """By part of the time, the point with the least value."""
    order = np.lexsort((values, times // width))
    spans = (times // width)[order]
    first = order[np.concatenate(([True], spans[1:] != spans[:-1]))]
    return times[first].astype(np.float64), values[first].astype(np.float64)


def _edge(margin: Callable[[float], float], inside: float, outside: float) -> float:
    """Where between the two slopes the margin, at least 0 inside, becomes negative."""
    if margin(outside) >= 0:
        return outside
    while abs(outside - inside) > 1e-10:
        middle = (inside + outside) / 2
        inside, outside = (middle, outside) if margin(middle) >= 0 else (inside, middle)
    return inside


def _median(times: Int64s) -> int | None:
    return int(np.median(times)) if len(times) else None


def without_other_point(
    batch: FrameBatch, located: Located, addresses: AddressTable, hosts: Iterable[Hosts]
) -> Located:
    """``located`` without packets of these hosts in frames of an ``OTHER_POINT``, which are counted in ``skipped``."""
    if not (batch.rows["interface"] & OTHER_POINT).any():
        return located
    known = np.array([sorted(map(addresses.id, host)) for host in hosts], np.uint32).view(np.uint64).ravel()
    left = np.ones(len(located), bool)
    tcp = [walk.copy() for walk in located.tcp]
    skipped = Counter(located.skipped)
    away = np.flatnonzero(batch.rows["interface"][located.rows] & OTHER_POINT)
    ends = np.zeros(len(away), _ENDS)
    ends["source"], ends["destination"] = located.source[away], located.destination[away]
    left[away[np.isin(_pairs(ends), known)]] = False
    skipped[SEEN_ELSEWHERE] += int(np.count_nonzero(~left))
    for number, walk in enumerate(tcp):
        ends = np.zeros(len(walk), _ENDS)
        fill_addresses(batch.data, walk, addresses, ends)
        stay = ~np.isin(_pairs(ends), known) | (batch.rows["interface"][walk["row"]] & OTHER_POINT == 0)
        skipped[SEEN_ELSEWHERE] += int(np.count_nonzero(~stay))
        count_carried(skipped, take(walk, ~stay), -1)
        tcp[number] = take(walk, stay)
    columns: dict[str, Any] = {
        name: getattr(located, name)[left]
        for name in located.__dataclass_fields__
        if isinstance(getattr(located, name), np.ndarray)
    }
    return replace(located, skipped=dict(+skipped), tcp=tcp, **columns)
