"""The same packet in two frames: a capture on several interfaces sees what passes a bridge, a bond or a VLAN device
once on each of them.

A frame is a duplicate if another interface showed the same packet at most ``WINDOW`` before: the same addresses, Base
Transport Header, length and ICRC, which covers the rest; or the same addresses, IP identification, TCP header (except
its checksum, which a card may fill in on the way) and length.  A retransmission agrees in nearly all of that, too.
Interface and time tell it apart: it is the second packet on its interface, and corresponds to the second one on the
other.

A switch that mirrors two ports into one shows packets that pass both twice, on one interface.  If many packets are
repeated at once, bit by bit, they are such copies; a few may be made by the network, and are left to the transport.

Captures of both ends merged into one file show each packet twice, as far apart as the ends and their clocks are.  Most
senders give each packet, and each retransmission, an IPv4 identification of its own; so if many packets are repeated
with theirs, they are such copies.  They are searched for among the last ``REMEMBERED`` packets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Bytes, Int64s, Rows, gather, places, some, take
from ..frames import FrameBatch
from ..layers.icrc import IPV4_UDP, ROCE_PORT
from ..layers.opcodes import BTH_BYTES, ICRC_BYTES
from .locate import Located
from .numbers import LINUX_SLL, LINUX_SLL2
from .tcp import HEADER as TCP_HEADER
from .walk import WALK, count_carried

DUPLICATE = "duplicate of a frame on another interface"
"""Key for frames that are left out, in the counts."""

MIRRORED = "duplicate of an earlier frame, as mirrored ports or merged captures give it"
"""Key for frames that are left out, in the counts."""

WINDOW = 1_000_000
"""Nanoseconds within which a packet appears on all interfaces of a host."""
SAME_HEADER = 20_000
"""Nanoseconds, if the link header names no interface and is the same; retransmissions take longer."""

NEAR = 4
"""Packets within which a packet's copy follows."""
MIRRORED_SHARE, LEAST_MIRRORED = 8, 64
"""If ports are mirrored, at least one of so many packets is a copy, and there are at least so many copies."""

SAMPLED = 16
"""One of so many packets is sampled to find out whether captures of two points are merged."""
MERGED_SHARE, LEAST_MERGED, LOOKED = 4, 8, 256
"""If they are, at least one of so many sampled packets is a copy, from the first to the last copy, and so many copies
directly follow a packet that is none.  Counting restarts after so many packets."""
REMEMBERED = 1 << 16
"""Packets searched for a copy: an IPv4 identification has 16 bits, and repeats after that."""

_SEEN = np.dtype([("hash", "u8"), ("place", "u8"), ("time", "i8"), ("nameless", "?")], align=True)

_SENT = np.dtype([("hash", "u8"), ("time", "i8"), ("identification", "u2")], align=True)
"""An identification of 0 means none."""

_LAYOUT = np.dtype([("word0", ">u4"), ("word1", ">u4"), ("word2", ">u4")])


Sight = Callable[[FrameBatch, Located], Rows]
"""Makes _SEEN rows of packets or of TCP segments."""


class Duplicates:
    """Finds duplicates batch by batch; keeps the packets of the last moment, and the last batch."""

    def __init__(self) -> None:
        self._interfaces: set[int] = set()
        self._last: dict[Sight, Rows] = {sight: np.zeros(0, _SEEN) for sight in (_seen, _seen_tcp)}
        self._previous: tuple[FrameBatch, Located] | None = None
        self._several = False
        """Whether more than one interface was seen."""
        self._copies = 0
        """Copies of nearby packets, in batches that have many."""
        self._latest = dict(self._last)
        """The last packets of such a batch."""
        self._sample: dict[int, int] = {}
        """Hash and time of sampled packets, until captures are known to be merged."""
        self._time = 0
        """Time of the last frame, ns."""
        self._looked = self._again = self._turns = 0
        """Counts of sampled packets since the first copy; of copies among them; and of copies that directly follow a
        packet that is none."""
        self._copy = True
        """Whether the last sampled packet was a copy; True before any, so that the first one follows no other."""
        self._earlier: _EarlierPackets | None = None
        """Finds copies in merged captures; None until captures are known to be merged."""

    def drop(self, batch: FrameBatch, located: Located) -> Located:
        """``located`` without duplicates, which are counted in ``skipped``."""
        if not len(located) and not located.tcp:
            return located
        if len(located.tcp) > 1 or (located.tcp and (np.diff(located.tcp[0]["row"]) < 0).any()):
            walk = np.concatenate(located.tcp)
            located = replace(located, tcp=[take(walk, np.argsort(walk["row"], kind="stable"))])
        if not self._possible(batch.rows):
            find, why = self._mirrored, MIRRORED
        else:
            if self._previous is not None and not self._several:
                self._last = {sight: sight(*self._previous) for sight in self._last}
            self._several = True
            find, why = self._find, DUPLICATE
        numbers = _numbers(batch, located)
        packets, segments = (
            find(sight, batch, located, words) for sight, words in zip(self._last, numbers, strict=True)
        )
        if packets.any() or segments.any():
            located = _without(located, why, packets, segments)
            numbers = _numbers(batch, located)
        again = self._copied(batch, located, np.concatenate(numbers))
        self._previous = batch, located
        return located if again is None else _without(located, MIRRORED, *again)

    def _mirrored(self, sight: Sight, batch: FrameBatch, located: Located, words: Rows) -> Rows:
        """Which packets, or segments, are copies of one just before; none without a mirror."""
        word = _mixed_words(words)
        near = 0
        for distance in range(1, min(NEAR + 1, len(word))):
            if len(again := places(word[distance:] == word[:-distance])):
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

    def _copied(self, batch: FrameBatch, located: Located, words: Rows) -> tuple[Rows, Rows] | None:
        """Which packets, and segments, are copies of earlier ones in merged captures; None without any."""
        times = batch.rows["time"]
        before, self._time = self._time, int(times[-1])
        if times[0] < before - WINDOW or some(np.diff(times) < -WINDOW):
            # Merged files have frames in the order of time: if time steps back, a capture was appended.
            self._earlier = None
            self._sample.clear()
            return None
        if self._earlier is None:
            if not self._seem_merged(batch, located, words):
                return None
            known = [_sent(*one, np.concatenate(_numbers(*one))) for one in (self._previous,) if one is not None]
            self._earlier = _EarlierPackets(*known)
        sent = _sent(batch, located, words)
        if some(unnumbered := sent["identification"] == 0):  # Tell these apart by all that there is.
            seen = np.concatenate([sight(batch, located) for sight in self._last])
            sent["hash"][unnumbered] = seen["hash"][unnumbered]
        copies = self._earlier.again(sent)
        packets = len(_whole(located))
        return (copies[:packets], copies[packets:]) if copies.any() else None

    def _seem_merged(self, batch: FrameBatch, located: Located, words: Rows) -> bool:
        """Whether a sample of the packets shows merged captures; chosen by header fields, so that it includes
        copies."""
        if self._looked >= LOOKED:
            self._looked = self._again = self._turns = 0
        if len(self._sample) > REMEMBERED // SAMPLED:
            self._sample.clear()
        chosen = places(_mixed_words(words) * _FACTOR >> np.uint32(16) & np.uint32(SAMPLED - 1) == 0)
        sample = _sent(batch, located, words, chosen)
        sample = take(sample, sample["identification"] != 0)
        times = sample["time"]
        firsts = map(self._sample.setdefault, sample["hash"].tolist(), times.tolist())
        again = np.append(self._copy, times > np.fromiter(firsts, np.int64, len(sample)))
        copies = places(again[1:])
        # Captures may overlap only partly.
        before = 0 if self._again else int(copies[0]) if len(copies) else len(sample)
        overlap = self._looked + int(copies[-1]) + 1 - before if len(copies) else 0
        self._looked, self._again = self._looked + len(sample) - before, self._again + len(copies)
        self._turns += int(np.count_nonzero(again[1:] > again[:-1]))
        self._copy = again[-1]
        # If the same capture was appended, all copies come in one block.
        if self._turns < LEAST_MERGED or self._again * MERGED_SHARE < overlap or not overlap:
            return False
        # A card that gives all its packets one identification proves nothing.
        return len(np.unique(sample["identification"])) * MERGED_SHARE >= len(np.unique(sample["hash"]))

    def _find(self, sight: Sight, batch: FrameBatch, located: Located, words: Rows) -> Rows:
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


class _EarlierPackets:
    """Finds packets that are repeated with the same IP identification."""

    def __init__(self, *before: Rows) -> None:
        """``before``: packets of earlier batches, as _SENT rows."""
        self._last = np.concatenate((np.zeros(0, _SENT), *before))

    def again(self, sent: Rows) -> Rows:
        """Which of the packets, as _SENT rows, are copies of earlier ones."""
        last, every = self._last, np.concatenate((self._last, sent))
        order = np.argsort(every["hash"], kind="stable")
        rows, index = take(every, order), np.arange(len(every))
        first = np.concatenate(([True], rows["hash"][1:] != rows["hash"][:-1]))
        nth = index - np.maximum.accumulate(np.where(first, index, 0))
        copies = np.zeros(len(every), np.bool_)
        # A packet without an identification comes twice, and its retransmission a third and fourth time.
        copies[order] = np.where(rows["identification"], nth > 0, nth % 2 == 1)
        self._last = every[-REMEMBERED:]
        return copies[len(last) :]


def _without(located: Located, why: str, packets: Rows, segments: Rows) -> Located:
    """``located`` without some packets and TCP segments, given among those whole enough; counted in ``skipped``."""
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
    """What identifies packets: columns ``hash`` and ``time``.

    First for ``located``: indices of the packets that are whole enough, their rows, None; then for its TCP segments:
    indices, rows, and WALK rows.
    """
    yield _whole(located), _seen(batch, located), None
    if located.tcp:
        walk = np.concatenate(located.tcp)
        whole = _whole_tcp(walk)
        yield whole, _seen_tcp(batch, located), take(walk, whole)


def _numbers(batch: FrameBatch, located: Located) -> tuple[Rows, Rows]:
    """Destination QP and PSN of packets; sequence and acknowledgement number of TCP segments."""
    walk = _segments(located)
    at = located.bth[_whole(located)], walk["at"][_whole_tcp(walk)]
    packets, segments = (gather(batch.data, start + 4, (">u4", 2)) for start in at)
    return packets, segments


def _sent(batch: FrameBatch, located: Located, words: Rows, chosen: Int64s | None = None) -> Rows:
    """_SENT rows of the packets, then the segments, that are whole enough, or of the ``chosen`` ones among them."""
    walk = _segments(located)
    segments, whole = _whole_tcp(walk), _whole(located)
    if chosen is not None:
        words, packets = words[chosen], int(chosen.searchsorted(len(whole)))
        segments, whole = segments[chosen[packets:] - len(whole)], whole[chosen[:packets]]
    walk = take(walk, segments)
    ip = np.concatenate((located.bth[whole] - IPV4_UDP, np.where(walk["version"] == 4, walk["ip"], -1)))
    rows = np.concatenate((located.rows[whole], walk["row"]))
    udp = np.arange(len(ip)) < len(whole)
    sent = np.zeros(len(words), _SENT)
    sent["time"] = batch.rows["time"][rows]
    routed = places(ip >= 0)
    at = ip[routed]
    head, port = gather(batch.data, at, ">u8"), gather(batch.data, at + IPV4_UDP - 6, ">u2")
    known = (head >> 56 == 0x45) & (~udp[routed] | (port == ROCE_PORT)) & (head & 0xFFFF0000 != 0)
    routed, at, head = routed[known], at[known], head[known]
    sent["identification"][routed] = head >> 16 & 0xFFFF
    number = np.where(udp, words[:, 0] & 0xFFFFFF, words[:, 0])  # without FECN and BECN, which change on the way
    sent["hash"] = _mixed(number, words[:, 1])
    hosts = gather(batch.data, at + 12, ">u8")
    sent["hash"][routed] = _mixed(sent["hash"][routed], head >> 16 & 0xFFFFFFFF, hosts)  # length and identification
    return sent


def _segments(located: Located) -> Rows:
    return located.tcp[0] if located.tcp else np.zeros(0, WALK)


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
    """_SEEN rows of the TCP segments."""
    if not located.tcp:
        return np.zeros(0, _SEEN)
    walk = located.tcp[0] if len(located.tcp) == 1 else np.concatenate(located.tcp)
    walk = take(walk, _whole_tcp(walk))
    data, ip, four = batch.data, walk["ip"], walk["version"] == 4
    frames = take(batch.rows, walk["row"])
    head = gather(data, walk["at"], (">u4", 4))
    seen = np.zeros(len(walk), _SEEN)
    seen["time"] = frames["time"]
    identification = walk["link"].astype(np.uint64)  # 0, or the offset of a fragment
    identification[four] = gather(data, ip[four] + 4, ">u4")
    addresses = np.zeros((4, len(walk)), np.uint64)
    addresses[0, four] = gather(data, ip[four] + 12, ">u8")
    for word in range(4):
        addresses[word, ~four] = gather(data, ip[~four] + 8 + 8 * word, ">u8")
    seen["hash"] = _mixed(*(head[:, word] for word in range(4)), identification, walk["ip_end"] - ip, *addresses)
    _name_places(seen, data, frames)
    return seen


def _name_places(seen: Rows, data: Bytes, frames: Rows) -> None:
    """Fill in ``place`` and ``nameless``: on which interface the frames were seen."""
    # What identifies an interface: its number in the file; in Linux's second cooked header its index; in the first
    # one direction, kind of device and address.
    offset, end = frames["offset"], frames["offset"] + frames["captured"]
    parts: list[NDArray[Any]] = [frames["interface"].astype(np.uint64)]
    for link_type, start in ((LINUX_SLL2, 4), (LINUX_SLL, 0), (LINUX_SLL, 4), (LINUX_SLL, 8)):
        named = places((frames["link_type"] == link_type) & (offset + start + 4 <= end))
        part = np.zeros(len(frames), np.uint64)
        part[named] = gather(data, offset[named] + start, ">u4")
        parts.append(part)
    seen["place"] = _mixed(*parts)
    seen["nameless"] = frames["link_type"] == LINUX_SLL


_FACTOR = np.uint32(0x9E3779B1)


def _mixed_words(words: Rows) -> NDArray[np.uint32]:
    """A 32-bit hash of each pair of words."""
    mixed: NDArray[np.uint32] = words[:, 0].astype(np.uint32) * _FACTOR ^ words[:, 1]
    return mixed


def _mixed(*columns: NDArray[Any]) -> NDArray[np.uint64]:
    """A hash of several columns of numbers."""
    mixed = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        mixed = (mixed ^ column.astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    return mixed


def _duplicates(seen: Rows) -> NDArray[np.bool_]:
    """Which rows are of a packet that an earlier row shows on another interface."""
    copies = np.zeros(len(seen), bool)
    order = np.lexsort((seen["time"], seen["hash"]))
    rows = take(seen, order)
    apart = (rows["hash"][1:] != rows["hash"][:-1]) | (np.diff(rows["time"]) > WINDOW)
    moment = np.concatenate(([0], np.cumsum(apart)))
    # The n-th row on each interface is the same transmission.
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
