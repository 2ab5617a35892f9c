"""The same packet in two frames: a capture on several interfaces sees what goes through a bridge, a bond or a
VLAN device once on each of them.

A frame is a duplicate where another interface showed the same packet at most ``WINDOW`` before: the same addresses,
Base Transport Header, length and ICRC, which covers the rest; or the same addresses, IP identification, TCP header
(but for its checksum, which a card may complete on the way) and length.  All that, or nearly, holds for a
retransmission, too.  Interface and time distinguish it: a retransmission is the second on its interface, and so
corresponds to the second on the other one.

A switch that mirrors two ports into one gives what passes both twice, on one interface.  Where many packets come again
at once, bit by bit, these are such copies; a few may as well be of the network's making, and are left to the transport.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Bytes, Int64s, Rows, gather, places, some, take
from ..frames import FrameBatch
from ..layers.opcodes import BTH_BYTES, ICRC_BYTES
from .locate import Located
from .numbers import LINUX_SLL, LINUX_SLL2
from .tcp import HEADER as TCP_HEADER
from .walk_rows import WALK, count_carried

DUPLICATE = "duplicate of a frame on another interface"
"""Key of the counts of frames that are passed over."""

MIRRORED = "duplicate of a frame just before, as a mirror of two ports gives it"
"""The same."""

WINDOW = 1_000_000
"""Nanoseconds within which a packet appears on all interfaces of a host."""
SAME_HEADER = 20_000
"""Nanoseconds, where the link header names no interface and is the same; no retransmission comes so soon."""

NEAR = 4
"""Packets among which the copy of one comes."""
MIRRORED_SHARE, LEAST_MIRRORED = 8, 64
"""At least one of so many packets is a copy, and so many are, where ports are mirrored."""

_SEEN = np.dtype([("hash", "u8"), ("place", "u8"), ("time", "i8"), ("nameless", "?")], align=True)

_LAYOUT = np.dtype([("word0", ">u4"), ("word1", ">u4"), ("word2", ">u4")])


class Duplicates:
    """Finds duplicates batch by batch; remembers the packets of the last moment."""

    def __init__(self) -> None:
        self._interfaces: set[int] = set()
        self._last: dict[Callable[[FrameBatch, Located], Rows], Rows] = {
            sight: np.zeros(0, _SEEN) for sight in (_seen, _seen_tcp)
        }
        self._before: tuple[FrameBatch, Located] | None = None
        """The last batch, while only one interface was seen."""
        self._copies = 0
        """Of packets just before, in batches that have many."""
        self._latest = dict(self._last)
        """The last packets of such a batch."""

    def drop(self, batch: FrameBatch, located: Located) -> Located:
        """``located`` without duplicates; they count in ``skipped``."""
        if not len(located) and not located.tcp:
            return located
        if len(located.tcp) > 1 or (located.tcp and (np.diff(located.tcp[0]["row"]) < 0).any()):
            walk = np.concatenate(located.tcp)
            located = replace(located, tcp=[take(walk, np.argsort(walk["row"], kind="stable"))])
        if not self._possible(batch.rows):
            self._before = batch, located
            find, why = self._mirrored, MIRRORED
        else:
            if self._before is not None:
                before, self._before = self._before, None
                self._last = {sight: sight(*before) for sight in self._last}
            find, why = self._find, DUPLICATE
        packets, segments = (find(sight, batch, located) for sight in self._last)
        if not (packets.any() or segments.any()):
            return located
        return _without(located, why, packets, segments)

    def _mirrored(self, sight: Callable[[FrameBatch, Located], Rows], batch: FrameBatch, located: Located) -> Rows:
        """Which of the packets, or segments, are copies of one just before; none without a mirror."""
        words = _numbers(batch, located) if sight is _seen else _tcp_numbers(batch, located)
        word = words[:, 0].astype(np.uint32) * np.uint32(0x9E3779B1) ^ words[:, 1]
        near = 0
        for distance in range(1, NEAR + 1):
            again = places(word[distance:] == word[:-distance])
            near += int(np.count_nonzero((words[again] == words[again + distance]).all(axis=1)))
        if near * MIRRORED_SHARE < len(word) or not near:
            self._latest[sight] = np.zeros(0, _SEEN)
            return np.zeros(len(word), np.bool_)
        latest = self._latest[sight]
        seen = np.concatenate((latest, sight(batch, located)))
        mirrored = np.zeros(len(seen), np.bool_)
        for distance in range(1, min(NEAR + 1, len(seen))):
            waited = seen["time"][distance:] - seen["time"][:-distance]
            same = seen["hash"][distance:] == seen["hash"][:-distance]
            mirrored[distance:] |= same & (waited >= 0) & (waited <= SAME_HEADER)
        mirrored, self._latest[sight] = mirrored[len(latest) :], seen[-NEAR:]
        self._copies += int(np.count_nonzero(mirrored))
        return mirrored if self._copies >= LEAST_MIRRORED else np.zeros(len(word), np.bool_)

    def _find(self, sight: Callable[[FrameBatch, Located], Rows], batch: FrameBatch, located: Located) -> Rows:
        """Which of the _SEEN rows that ``sight`` makes of a batch are duplicates."""
        last, seen = self._last[sight], sight(batch, located)
        if not len(seen):
            return np.zeros(0, np.bool_)
        every = np.concatenate((last, seen))
        copies: Rows = _duplicates(every)[len(last) :]
        self._last[sight] = take(every, every["time"] >= every["time"].max(initial=0) - WINDOW)
        return copies

    def _possible(self, rows: Rows) -> bool:
        """Whether the capture can show a packet twice."""
        if len(self._interfaces) < 2:
            first = rows["interface"][0]
            several = (rows["interface"] != first).any()
            self._interfaces |= set(np.unique(rows["interface"]).tolist()) if several else {int(first)}
        return len(self._interfaces) > 1 or some((rows["link_type"] == LINUX_SLL) | (rows["link_type"] == LINUX_SLL2))


def _without(located: Located, why: str, packets: Rows, segments: Rows) -> Located:
    """Without some of the packets and of the TCP segments that are whole enough; they count in ``skipped``."""
    left = np.ones(len(located), bool)
    left[_whole(located)[packets]] = False
    columns: dict[str, Any] = {
        field.name: value[left]
        for field in fields(located)
        if isinstance(value := getattr(located, field.name), np.ndarray)
    }
    skipped = Counter(located.skipped)
    skipped[why] += int(np.count_nonzero(packets)) + int(np.count_nonzero(segments))
    tcp = located.tcp
    if segments.any():
        left = np.ones(len(tcp[0]), bool)
        left[_whole_tcp(tcp[0])[segments]] = False
        count_carried(skipped, take(tcp[0], ~left), -1)
        tcp = [take(tcp[0], left)]
    return replace(located, skipped=dict(+skipped), tcp=tcp, **columns)


def sightings(batch: FrameBatch, located: Located) -> Iterator[tuple[Int64s, Rows, Rows | None]]:
    """What packets are recognised by, in columns ``hash`` and ``time``.

    First of ``located``: the indices of those that are whole enough, their rows, None; then of its TCP segments: the
    same, and their WALK rows.
    """
    yield _whole(located), _seen(batch, located), None
    if located.tcp:
        walk = np.concatenate(located.tcp)
        whole = _whole_tcp(walk)
        yield whole, _seen_tcp(batch, located), take(walk, whole)


def _numbers(batch: FrameBatch, located: Located) -> Rows:
    """Destination QP and PSN of the packets."""
    words: Rows = gather(batch.data, located.bth[_whole(located)] + 4, (">u4", 2))
    return words


def _tcp_numbers(batch: FrameBatch, located: Located) -> Rows:
    """Sequence and acknowledgement number of the TCP segments."""
    walk = located.tcp[0] if located.tcp else np.zeros(0, WALK)
    words: Rows = gather(batch.data, walk["at"][_whole_tcp(walk)] + 4, (">u4", 2))
    return words


def _whole(located: Located) -> Int64s:
    return places(located.available >= BTH_BYTES)


def _seen(batch: FrameBatch, located: Located) -> Rows:
    which = _whole(located)
    data, bth = batch.data, located.bth[which]
    frames = take(batch.rows, located.rows[which])
    head = gather(data, bth, _LAYOUT)
    last = bth + np.minimum(located.available, located.length)[which] - ICRC_BYTES
    seen = np.zeros(len(which), _SEEN)
    seen["time"] = frames["time"]
    seen["hash"] = _mixed(
        head["word0"],
        head["word1"] & np.uint32(0xFFFFFF),  # without FECN and BECN, which change on the way
        head["word2"],
        gather(data, last, ">u4"),
        located.length[which],
        located.source[which],
        located.destination[which],
    )
    _name_places(seen, data, frames)
    return seen


def _whole_tcp(walk: Rows) -> Int64s:
    return places(walk["at"] + TCP_HEADER <= walk["end"])


def _seen_tcp(batch: FrameBatch, located: Located) -> Rows:
    """The same of the TCP segments."""
    if not located.tcp:
        return np.zeros(0, _SEEN)
    walk = located.tcp[0] if len(located.tcp) == 1 else np.concatenate(located.tcp)
    walk = take(walk, _whole_tcp(walk))
    data, ip, four = batch.data, walk["ip"], walk["version"] == 4
    frames = take(batch.rows, walk["row"])
    head = gather(data, walk["at"], (">u4", 4))
    seen = np.zeros(len(walk), _SEEN)
    seen["time"] = frames["time"]
    identification = walk["link"].astype(np.uint64)  # 0, or the place of a fragment
    identification[four] = gather(data, ip[four] + 4, ">u4")
    addresses = np.zeros((4, len(walk)), np.uint64)
    addresses[0, four] = gather(data, ip[four] + 12, ">u8")
    for word in range(4):
        addresses[word, ~four] = gather(data, ip[~four] + 8 + 8 * word, ">u8")
    seen["hash"] = _mixed(*(head[:, word] for word in range(4)), identification, walk["ip_end"] - ip, *addresses)
    _name_places(seen, data, frames)
    return seen


def _name_places(seen: Rows, data: Bytes, frames: Rows) -> None:
    """Columns ``place`` and ``nameless``: on which interface the frames were seen."""
    # What tells one interface from another: its number in the file, in Linux's second cooked header its index,
    # in the first one the direction, the kind of device and the address.
    offset, end = frames["offset"], frames["offset"] + frames["captured"]
    parts: list[NDArray[Any]] = [frames["interface"].astype(np.uint64)]
    for link_type, start in ((LINUX_SLL2, 4), (LINUX_SLL, 0), (LINUX_SLL, 4), (LINUX_SLL, 8)):
        named = places((frames["link_type"] == link_type) & (offset + start + 4 <= end))
        part = np.zeros(len(frames), np.uint64)
        part[named] = gather(data, offset[named] + start, ">u4")
        parts.append(part)
    seen["place"] = _mixed(*parts)
    seen["nameless"] = frames["link_type"] == LINUX_SLL


def _mixed(*columns: NDArray[Any]) -> NDArray[np.uint64]:
    """A hash of several columns of numbers."""
    mixed = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        mixed = (mixed ^ column.astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    return mixed


def _duplicates(seen: Rows) -> NDArray[np.bool_]:
    """Which rows are of a packet that an earlier row shows in another place."""
    copies = np.zeros(len(seen), bool)
    order = np.lexsort((seen["time"], seen["hash"]))
    rows = take(seen, order)
    apart = (rows["hash"][1:] != rows["hash"][:-1]) | (np.diff(rows["time"]) > WINDOW)
    moment = np.concatenate(([0], np.cumsum(apart)))
    # The n-th time in each place is one and the same transmission.
    by_place = np.lexsort((np.arange(len(rows)), rows["place"], moment))
    where, moments = rows["place"][by_place], moment[by_place]
    fresh = np.concatenate(([True], (where[1:] != where[:-1]) | (moments[1:] != moments[:-1])))
    index = np.arange(len(rows))
    nth = np.empty(len(rows), np.int64)
    nth[by_place] = index - np.maximum.accumulate(np.where(fresh, index, 0))
    by_time = np.lexsort((index, nth, moment))
    turn, when = nth[by_time], moment[by_time]
    first = np.concatenate(([True], (turn[1:] != turn[:-1]) | (when[1:] != when[:-1])))
    began = by_time[np.maximum.accumulate(np.where(first, index, 0))]
    copies[order[by_time]] = ~first & (rows["time"][by_time] - rows["time"][began] <= WINDOW)

    soon = np.zeros(len(rows), bool)
    soon[1:] = ~fresh[1:] & (np.diff(rows["time"][by_place]) <= SAME_HEADER)
    copies[order[by_place]] |= soon & rows["nameless"][by_place]
    return copies
