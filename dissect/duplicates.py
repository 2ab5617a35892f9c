"""The same packet in two frames: a capture on several interfaces sees what goes through a bridge, a bond or a
VLAN device once on each of them.

A frame is a duplicate where another interface showed the same packet at most ``WINDOW`` before: the same addresses,
Base Transport Header, length and ICRC, which covers the rest.  A retransmission is all that, too.  It is told by
its interface, where it is the second, and so answers to the second on the other one; and by time.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .frames import Bytes, FrameBatch, Int64s, Rows, take
from .layers.opcodes import BTH_BYTES, ICRC_BYTES
from .network import Located
from .numbers import LINUX_SLL, LINUX_SLL2

DUPLICATE = "duplicate of a frame on another interface"
"""Key of the counts of frames that are passed over."""

WINDOW = 1_000_000
"""Nanoseconds within which a packet appears on all interfaces of a host."""
SAME_HEADER = 20_000
"""Nanoseconds, where the link header names no interface and is the same; no retransmission comes so soon."""

_SEEN = np.dtype([("hash", "u8"), ("place", "u8"), ("time", "i8"), ("nameless", "?")])

_LAYOUT = np.dtype([("word0", ">u4"), ("word1", ">u4"), ("word2", ">u4")])


class Duplicates:
    """Finds duplicates batch by batch; remembers the packets of the last moment."""

    def __init__(self) -> None:
        self._interfaces: set[int] = set()
        self._last = np.zeros(0, _SEEN)
        self._before: tuple[FrameBatch, Located] | None = None
        """The last batch, while only one interface was seen."""

    def drop(self, batch: FrameBatch, located: Located) -> Located:
        """``located`` without duplicates; they count in ``skipped``."""
        if not len(located):
            return located
        if not self._possible(batch.rows):
            self._before = batch, located
            return located
        if self._before is not None:
            self._last, self._before = _seen(*self._before), None
        whole = _whole(located)
        seen = _seen(batch, located)
        every = np.concatenate((self._last, seen))
        again = _again(every)[len(self._last) :]
        self._last = take(every, every["time"] >= every["time"].max(initial=0) - WINDOW)
        if not again.any():
            return located
        left = np.ones(len(located), bool)
        left[whole[again]] = False
        columns: dict[str, Any] = {
            field.name: value[left]
            for field in fields(located)
            if isinstance(value := getattr(located, field.name), np.ndarray)
        }
        skipped = {**located.skipped, DUPLICATE: int(np.count_nonzero(again))}
        return replace(located, skipped=skipped, **columns)

    def _possible(self, rows: Rows) -> bool:
        """Whether the capture can show a packet twice."""
        if len(self._interfaces) < 2:
            first = rows["interface"][0]
            several = (rows["interface"] != first).any()
            self._interfaces |= set(np.unique(rows["interface"]).tolist()) if several else {int(first)}
        return len(self._interfaces) > 1 or bool(np.isin(rows["link_type"], (LINUX_SLL, LINUX_SLL2)).any())


def _whole(located: Located) -> Int64s:
    return np.flatnonzero(located.available >= BTH_BYTES)


def _seen(batch: FrameBatch, located: Located) -> Rows:
    which = _whole(located)
    data, bth = batch.data, located.bth[which]
    frames = take(batch.rows, located.rows[which])
    head = _gather(data, bth, BTH_BYTES).view(_LAYOUT)
    last = bth + np.minimum(located.available, located.length)[which] - ICRC_BYTES
    seen = np.zeros(len(which), _SEEN)
    seen["time"] = frames["time"]
    seen["hash"] = _mixed(
        head["word0"],
        head["word1"] & np.uint32(0xFFFFFF),  # without FECN and BECN, which change on the way
        head["word2"],
        _gather(data, last, ICRC_BYTES).view(">u4"),
        located.length[which],
        located.source[which],
        located.destination[which],
    )
    # What tells one interface from another: its number in the file, in Linux's second cooked header its index,
    # in the first one the direction, the kind of device and the address.
    offset, end = frames["offset"], frames["offset"] + frames["captured"]
    parts: list[NDArray[Any]] = [frames["interface"].astype(np.uint64)]
    for link_type, start in ((LINUX_SLL2, 4), (LINUX_SLL, 0), (LINUX_SLL, 4), (LINUX_SLL, 8)):
        named = np.flatnonzero((frames["link_type"] == link_type) & (offset + start + 4 <= end))
        part = np.zeros(len(which), np.uint64)
        part[named] = _gather(data, offset[named] + start, 4).view(">u4")
        parts.append(part)
    seen["place"] = _mixed(*parts)
    seen["nameless"] = frames["link_type"] == LINUX_SLL
    return seen


def _gather(data: Bytes, at: Int64s, size: int) -> Rows:
    anywhere: Rows = np.ndarray((max(0, len(data) - size + 1),), np.dtype((np.void, size)), data, strides=(1,))
    taken: Rows = anywhere[at]
    return taken


def _mixed(*columns: NDArray[Any]) -> NDArray[np.uint64]:
    """A hash of several columns of numbers."""
    mixed = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        mixed = (mixed ^ column.astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    return mixed


def _again(seen: Rows) -> NDArray[np.bool_]:
    """Which rows repeat an earlier one's packet from another place."""
    again = np.zeros(len(seen), bool)
    order = np.lexsort((seen["time"], seen["hash"]))
    rows = take(seen, order)
    apart = (rows["hash"][1:] != rows["hash"][:-1]) | (np.diff(rows["time"]) > WINDOW)
    moment = np.concatenate(([0], np.cumsum(apart)))
    # The n-th time in each place is one and the same transmission.
    by_place = np.lexsort((np.arange(len(rows)), rows["place"], moment))
    places, moments = rows["place"][by_place], moment[by_place]
    fresh = np.concatenate(([True], (places[1:] != places[:-1]) | (moments[1:] != moments[:-1])))
    index = np.arange(len(rows))
    nth = np.empty(len(rows), np.int64)
    nth[by_place] = index - np.maximum.accumulate(np.where(fresh, index, 0))
    by_time = np.lexsort((index, nth, moment))
    turn, when = nth[by_time], moment[by_time]
    first = np.concatenate(([True], (turn[1:] != turn[:-1]) | (when[1:] != when[:-1])))
    began = by_time[np.maximum.accumulate(np.where(first, index, 0))]
    again[order[by_time]] = ~first & (rows["time"][by_time] - rows["time"][began] <= WINDOW)

    soon = np.zeros(len(rows), bool)
    soon[1:] = ~fresh[1:] & (np.diff(rows["time"][by_place]) <= SAME_HEADER)
    again[order[by_place]] |= soon & rows["nameless"][by_place]
    return again
