"""The pcapng file format: sections of blocks, each section in its own byte order; frames, and what it tells beside
them.

https://datatracker.ietf.org/doc/draft-ietf-opsawg-pcapng/; the numbers in parentheses are its sections.
"""

from __future__ import annotations

import struct
from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rdmascope.dissect.arrays import Bytes, Int64s, Rows, gather
from rdmascope.dissect.frames import FRAME, FrameBatch
from rdmascope.dissect.named_tuple import NamedTuple

from .streams import MAX_IN_RECORD, Feed, Limits

END_OF_OPTIONS, COMMENT = 0, 1  # (3.5)
SHB_HARDWARE, SHB_OS, SHB_APPLICATION = 2, 3, 4  # (4.1)
IF_NAME, IF_DESCRIPTION, IF_SPEED, IF_TSRESOL, IF_FILTER, IF_OS, IF_TSOFFSET = 2, 3, 8, 9, 11, 12, 14  # (4.2)
EPB_DROPCOUNT = 4  # (4.3)
ISB_RECEIVED, ISB_DROPPED, ISB_ACCEPTED, ISB_OS_DROPPED, ISB_DELIVERED = 4, 5, 6, 7, 8  # (4.6)

STATISTICS = 5  # (4.6)
PASSED_OVER = {
    4: "name resolution",  # (4.5)
    STATISTICS: "interface statistics",
    9: "systemd journal",  # (4.8)
    10: "decryption secrets",  # (4.7)
    0x00000BAD: "custom",  # (4.9)
    0x40000BAD: "custom",
}

MAX_OPTIONS = 32
"""Options of one block that are looked at."""
MAX_COMMENTS = 1000
"""Comments of sections and interfaces that are kept."""


class InterfaceStatistics(NamedTuple):
    """The counters of one interface, as the last block about it has them; None: not given."""

    received: int | None = None
    dropped: int | None = None
    """By the interface."""
    accepted: int | None = None
    """By the capture filter."""
    os_dropped: int | None = None
    """By the operating system, for lack of room."""
    delivered: int | None = None


@dataclass(slots=True)
class SectionInfo:
    """What the blocks read so far hold beside their frames."""

    application: str = ""
    system: str = ""
    hardware: str = ""
    comments: list[str] = field(default_factory=list)
    """Comments of sections and interfaces; comments of frames are in their batch."""
    frame_comments: int = 0
    statistics: dict[int, InterfaceStatistics] = field(default_factory=dict)
    """By interface, counted over all sections."""
    lost: Counter[int] = field(default_factory=Counter)
    """Frames that were lost before another one, as that one's block says; by interface."""
    passed_over: Counter[str] = field(default_factory=Counter)
    """Blocks without a frame, by what they are."""

    @property
    def counts_drops(self) -> bool:
        """Whether it says how many frames were dropped, none included."""
        every = self.statistics.values()
        return bool(self.lost) or any(
            counters.dropped is not None or counters.os_dropped is not None for counters in every
        )

    @property
    def dropped(self) -> int:
        """Frames that were there and are not in the capture, as it says itself."""
        every = self.statistics.values()
        return sum((counters.dropped or 0) + (counters.os_dropped or 0) for counters in every) or self.lost.total()


def options(data: bytes, byte_order: str) -> Iterator[tuple[int, bytes]]:
    """Code and value of each; ends quietly where the list does not make sense any more."""
    at = 0
    while at + 4 <= len(data):
        code, length = struct.unpack_from(byte_order + "HH", data, at)
        if code == END_OF_OPTIONS or at + 4 + length > len(data):
            return
        yield code, data[at + 4 : at + 4 + length]
        at += 4 + (length + 3 & -4)


def text(value: bytes) -> str:
    """One line that is safe to print."""
    decoded = value.rstrip(b"\0").decode(errors="replace")
    return " ".join("".join(c if c.isprintable() else " " for c in decoded).split())


def read_section(section: SectionInfo, body: bytes, byte_order: str) -> None:
    """Takes in the options of a section header."""
    for code, value in options(body[16:], byte_order):
        if code == COMMENT and len(section.comments) < MAX_COMMENTS:
            section.comments.append(text(value))
        elif code == SHB_HARDWARE:
            section.hardware = text(value)
        elif code == SHB_OS:
            section.system = text(value)
        elif code == SHB_APPLICATION:
            section.application = text(value)


def read_statistics(body: bytes, byte_order: str) -> tuple[int, InterfaceStatistics]:
    """The interface's number in its section, and its counters."""
    (interface,) = struct.unpack_from(byte_order + "I", body)
    values = {
        code: struct.unpack(byte_order + "Q", value)[0]
        for code, value in options(body[12:], byte_order)
        if len(value) == 8
    }
    codes = ISB_RECEIVED, ISB_DROPPED, ISB_ACCEPTED, ISB_OS_DROPPED, ISB_DELIVERED
    return interface, InterfaceStatistics(*map(values.get, codes))


def frame_options(
    data: Bytes, at: Int64s, end: Int64s, byte_order: str
) -> tuple[list[tuple[int, str]], NDArray[np.uint64]]:
    """Options of frames' blocks that run from ``at`` to ``end``: (which, comment), and how many were lost before each.

    All blocks advance together, by one option each.
    """
    comments: list[tuple[int, str]] = []
    lost = np.zeros(len(at), np.uint64)
    which = np.flatnonzero(at + 4 <= end)
    at = at.copy()
    for _ in range(MAX_OPTIONS):
        if not len(which):
            break
        head = gather(data, at[which], [("code", byte_order + "u2"), ("length", byte_order + "u2")])
        value = at[which] + 4
        behind = value + head["length"]
        going = (head["code"] != END_OF_OPTIONS) & (behind <= end[which])
        for index in np.flatnonzero(going & (head["code"] == COMMENT)).tolist():
            comments.append((int(which[index]), text(data[value[index] : behind[index]].tobytes())))
        counts = np.flatnonzero(going & (head["code"] == EPB_DROPCOUNT) & (head["length"] == 8))
        lost[which[counts]] += gather(data, value[counts], [("count", byte_order + "u8")])["count"]
        at[which] = value + (head["length"].astype(np.int64) + 3 & -4)
        which = which[going]
        which = which[at[which] + 4 <= end[which]]
    return comments, lost


SECTION = 0x0A0D0D0A  # (4.1)
INTERFACE = 1  # (4.2)
PACKET = 2  # obsolete (Appendix A)
SIMPLE = 3  # (4.4)
ENHANCED = 6  # (4.3)

MAGIC = b"\x0a\x0d\x0d\x0a"
BYTE_ORDERS = {b"\x1a\x2b\x3c\x4d": ">", b"\x4d\x3c\x2b\x1a": "<"}
"""By the section header's byte-order magic."""

PREFIX = {ENHANCED: 28, PACKET: 28, SIMPLE: 12}
"""Bytes in front of the frame in a block that holds one."""
SMALLEST = {kind: prefix + 4 for kind, prefix in PREFIX.items()} | {SECTION: 28, INTERFACE: 20}
FEWEST = 12
"""Bytes of a block without a body."""
APART = 1 << 32
"""More than any length: a block of this type changes how the next ones are read."""

UNKNOWN_DROPS = 0xFFFF
"""What a Packet Block says of drops that were not counted."""
MAX_INTERFACES = 1 << 16
"""FRAME holds their index in 16 bits."""
INT64 = np.iinfo(np.int64)
SECOND = 1_000_000_000


class Interface(NamedTuple):
    """What a capture says about one interface it was taken on."""

    link_type: int
    snaplen: int = 0
    """0: unlimited."""
    name: str = ""
    units: int = 1_000_000
    """Time stamp units in a second."""
    offset: int = 0
    """Seconds to add to every time stamp."""
    description: str = ""
    filter: str = ""
    """The capture filter, in its own words."""
    system: str = ""
    speed: int = 0
    """Bits per second; 0: not given."""

    @property
    def time_step(self) -> int:
        """Nanoseconds in which its time stamps count; 1 where it is less."""
        return max(1, SECOND // self.units)


@dataclass(slots=True, eq=False)
class Sections:
    """What the blocks read so far said."""

    byte_order: str = ""
    interfaces: list[Interface] = field(default_factory=list)
    """Interfaces of all sections."""
    first: int = 0
    """Index of this section's first interface."""
    section: SectionInfo = field(default_factory=SectionInfo)
    time_steps: set[int] = field(default_factory=set)
    """Nanoseconds in which the time stamps so far count."""

    @property
    def own(self) -> int:
        """Interfaces of this section."""
        return len(self.interfaces) - self.first


def read_section_header(feed: Feed, sections: Sections) -> None:
    """Reads the section header at the feed's place."""
    what = "a section header"
    feed.need(12, what)
    magic = feed.data[feed.at + 8 : feed.at + 12].tobytes()
    if magic not in BYTE_ORDERS:
        feed.damaged("the section header's byte-order magic is wrong")
    sections.byte_order = BYTE_ORDERS[magic]
    sections.first = len(sections.interfaces)
    length = _whole_block(feed, sections.byte_order, what)
    major, minor = struct.unpack_from(sections.byte_order + "HH", feed.data.data, feed.at + 12)
    if major != 1:
        feed.damaged(f"pcapng version {major}.{minor} is not known")
    read_section(sections.section, feed.data[feed.at + 8 : feed.at + length - 4].tobytes(), sections.byte_order)
    feed.at += length


def _whole_block(feed: Feed, byte_order: str, what: str) -> int:
    """Length of the block at the feed's place, once all of it is there."""
    feed.need(8, what)
    kind, length = struct.unpack_from(byte_order + "II", feed.data.data, feed.at)
    if length % 4 or not SMALLEST.get(kind, FEWEST) <= length <= MAX_IN_RECORD:
        feed.damaged(f"{what} claims a length of {length} bytes")
    feed.need(length, what)
    (again,) = struct.unpack_from(byte_order + "I", feed.data.data, feed.at + length - 4)
    if again != length:
        feed.damaged(f"{what} gives its length as {length} in front and {again} behind")
    return int(length)


def read_batches(feed: Feed, sections: Sections, limits: Limits) -> Iterator[FrameBatch]:
    """The frames, in batches; raises CaptureError behind the last whole one where the file is damaged.

    The frame of a Simple Packet Block has no time stamp: its time is 0.
    """
    number = 0
    while True:
        starts, kinds, lengths, stopped = _boundaries(feed, sections.byte_order, limits)
        if len(starts):
            rows, whole, problem, comments = _rows(feed, sections, starts, kinds, lengths)
            if whole:
                feed.at = int(starts[whole - 1]) + int(lengths[whole - 1])
            if len(rows):
                rows["number"] = np.arange(number + 1, number + 1 + len(rows))
                number += len(rows)
                yield FrameBatch(feed.data, rows, {int(rows["number"][at]): comment for at, comment in comments})
                limits = limits.next()
            if problem:
                feed.damaged(f"{_subject(int(kinds[whole]), number)} {problem}")
        if stopped:
            _other_block(feed, sections, number)
        elif not len(starts) and not feed.more():
            kind, size = _claimed(feed, sections.byte_order)
            feed.finish(_subject(kind, number), size)
            return


def _subject(kind: int, number: int) -> str:
    if kind == INTERFACE:
        return "an interface description"
    return f"the block of frame {number + 1}" if kind in PREFIX else f"a block of type {kind}"


def _claimed(feed: Feed, byte_order: str) -> tuple[int, int]:
    """Type and length of a block that is not all there; where not even they are, it counts as a frame's."""
    head = feed.data[feed.at : feed.at + 8].tobytes()
    kind, length = struct.unpack(byte_order + "II", head) if len(head) == 8 else (ENHANCED, 0)
    return kind, length


def _boundaries(feed: Feed, byte_order: str, limits: Limits) -> tuple[Int64s, NDArray[np.uint32], Int64s, bool]:
    """Offsets, types and lengths of the next blocks up to one that must be read apart; whether there is one."""
    head = struct.Struct(byte_order + "II").unpack_from
    view = feed.data.data
    size = len(view)
    at = feed.at
    last = min(size, at + limits.bytes) - 8
    starts: array[int] = array("q")
    append = starts.append
    smallest = {**SMALLEST, SECTION: APART, INTERFACE: APART}.get
    stopped = False
    for _ in range(limits.frames):
        if at > last:
            break
        kind, length = head(view, at)
        if length < smallest(kind, FEWEST):
            stopped = True
            break
        append(at)
        at += length
    if starts and at > size:
        # Larger than what is possible is damage now, not after reading on for it.
        stopped = at - starts[-1] > MAX_IN_RECORD
        starts.pop()
    offsets = np.frombuffer(starts, np.int64)
    heads = gather(feed.data, offsets, [("kind", byte_order + "u4"), ("length", byte_order + "u4")])
    return offsets, heads["kind"].astype(np.uint32), heads["length"].astype(np.int64), stopped


def _other_block(feed: Feed, sections: Sections, number: int) -> None:
    """Takes in the section or interface at the feed's place; raises where the block is another, for its length."""
    kind = int(struct.unpack_from(sections.byte_order + "I", feed.data.data, feed.at)[0])
    if kind == SECTION:
        read_section_header(feed, sections)
        return
    length = _whole_block(feed, sections.byte_order, _subject(kind, number))
    if kind == INTERFACE:
        if len(sections.interfaces) == MAX_INTERFACES:
            feed.damaged(f"more than {MAX_INTERFACES} interfaces")
        body = feed.data[feed.at + 8 : feed.at + length - 4].tobytes()
        sections.interfaces.append(_interface(body, sections))
    feed.at += length


def _interface(body: bytes, sections: Sections) -> Interface:
    byte_order = sections.byte_order
    link_type, snaplen = struct.unpack_from(byte_order + "HxxI", body)
    values: dict[int, bytes] = {}
    for code, value in options(body[8:], byte_order):
        if code == COMMENT and len(sections.section.comments) < MAX_COMMENTS:
            sections.section.comments.append(text(value))
        values[code] = value
    units = 1_000_000
    if resolution := values.get(IF_TSRESOL):
        exponent = resolution[0] & 0x7F
        units = (2 if resolution[0] & 0x80 else 10) ** exponent
    offset = speed = 0
    if len(seconds := values.get(IF_TSOFFSET, b"")) == 8:
        offset = struct.unpack(byte_order + "q", seconds)[0]
    if len(rate := values.get(IF_SPEED, b"")) == 8:
        speed = struct.unpack(byte_order + "Q", rate)[0]
    # The filter's first byte says whether it is a string (0) or a program.
    wanted = values.get(IF_FILTER, b"")
    return Interface(
        link_type,
        snaplen,
        values.get(IF_NAME, b"").rstrip(b"\0").decode(errors="replace"),
        units,
        offset,
        text(values.get(IF_DESCRIPTION, b"")),
        text(wanted[1:]) if wanted[:1] == b"\0" else "",
        text(values.get(IF_OS, b"")),
        speed,
    )


def _layout(kind: int, byte_order: str) -> list[tuple[str, str]]:
    """The block's bytes in front of the frame."""
    u2, u4 = byte_order + "u2", byte_order + "u4"
    head = [("kind", u4), ("length", u4)]
    sizes = [("captured", u4), ("original", u4)]
    if kind == SIMPLE:
        return [*head, ("original", u4)]
    interface = [("interface", u4)] if kind == ENHANCED else [("interface", u2), ("drops", u2)]
    return [*head, *interface, ("high", u4), ("low", u4), *sizes]


def _rows(
    feed: Feed, sections: Sections, starts: Int64s, kinds: NDArray[np.uint32], lengths: Int64s
) -> tuple[Rows, int, str, list[tuple[int, str]]]:
    """FRAME rows of the blocks up to the first bad one, how many blocks these are, what is bad about it, comments.

    A comment comes with the index of its row.
    """
    data, byte_order = feed.data, sections.byte_order
    size = len(starts)
    prefix, interface, captured, original = (np.zeros(size, np.int64) for _ in range(4))
    ticks = np.zeros(size, np.uint64)
    lost = np.zeros(size, np.uint64)
    for kind in PREFIX:
        which = kinds == kind
        if not which.any():
            continue
        heads = gather(data, starts[which], _layout(kind, byte_order))
        prefix[which] = PREFIX[kind]
        original[which] = heads["original"]
        if kind == SIMPLE:
            snaplen = sections.interfaces[sections.first].snaplen if sections.own else 0
            held = np.minimum(lengths[which] - SMALLEST[SIMPLE], snaplen or MAX_IN_RECORD)
            captured[which] = np.minimum(held, heads["original"])
        else:
            captured[which] = heads["captured"]
            interface[which] = heads["interface"]
            if kind == PACKET:
                lost[which] = np.where(heads["drops"] == UNKNOWN_DROPS, 0, heads["drops"])
            ticks[which] = heads["high"].astype(np.uint64) << np.uint64(32) | heads["low"]

    holds_frame = prefix > 0
    behind = gather(data, starts + lengths - 4, [("length", byte_order + "u4")])["length"]
    problem = ""
    for bad, what in (
        (lengths > MAX_IN_RECORD, "is longer than possible"),
        (lengths % 4 != 0, "has a length that is no multiple of four"),
        (behind != lengths, "gives two different lengths"),
        (captured > lengths - prefix - 4, "claims more captured bytes than it holds"),
        (holds_frame & (interface >= sections.own), "names an interface that was not described"),
    ):
        if bad[:size].any():
            size, problem = int(np.argmax(bad)), what
    good = slice(size) if holds_frame[:size].all() else np.flatnonzero(holds_frame[:size])
    ends, behind_frame = (starts + lengths - 4)[good], (starts + prefix + (captured + 3 & -4))[good]
    comments, more = frame_options(data, behind_frame, ends, byte_order)
    _note(sections, feed, starts[:size], kinds[:size], lengths[:size])
    interface, ticks = interface[good], ticks[good]
    for at in np.flatnonzero(lost := lost[good] + more).tolist():
        sections.section.lost[int(interface[at]) + sections.first] += int(lost[at])
    sections.section.frame_comments += len(comments)
    rows = np.zeros(len(interface), FRAME)
    rows["offset"] = (starts + prefix)[good]
    rows["captured"] = captured[good]
    rows["original"] = np.minimum(original[good], 0x7FFFFFFF)
    rows["interface"] = interface + sections.first
    timed = kinds[good] != SIMPLE
    for index in _distinct(interface):
        here = sections.interfaces[sections.first + index]
        which = interface == index
        rows["link_type"][which] = here.link_type
        which &= timed
        if which.any():
            rows["time"][which] = nanoseconds(ticks[which], here.units, here.offset)
            sections.time_steps.add(here.time_step)
    return rows, size, problem, comments


def _note(sections: Sections, feed: Feed, starts: Int64s, kinds: NDArray[np.uint32], lengths: Int64s) -> None:
    """Counts blocks that hold no frame, and takes in interface statistics."""
    others = np.flatnonzero(~np.isin(kinds, list(PREFIX)))
    if not len(others):
        return
    section = sections.section
    names = Counter(kinds[others].tolist())
    section.passed_over.update({PASSED_OVER.get(kind, f"type {kind:#x}"): many for kind, many in names.items()})
    for at in others[(kinds[others] == STATISTICS) & (lengths[others] >= 24)].tolist():
        body = feed.data[int(starts[at]) + 8 : int(starts[at] + lengths[at]) - 4].tobytes()
        interface, statistics = read_statistics(body, sections.byte_order)
        if interface < sections.own:
            section.statistics[interface + sections.first] = statistics


def _distinct(values: Int64s) -> list[int]:
    if len(values) and (values == values[0]).all():
        return [int(values[0])]
    return [int(value) for value in np.unique(values)]


def nanoseconds(ticks: NDArray[np.uint64], units: int, offset: int) -> Int64s:
    """Time stamps in nanoseconds since the epoch, rounded down; INT64's ends where they do not fit."""
    first, last = (int(end) * SECOND // units + offset * SECOND for end in (ticks.min(), ticks.max()))
    fits = INT64.min <= first and last <= INT64.max and abs(offset) < INT64.max // SECOND
    if fits and units <= 1 << 33 and int(ticks.max()) // units < 1 << 33:
        second, part = np.divmod(ticks, np.uint64(units))
        part = part * np.uint64(SECOND) // np.uint64(units)
        return (second * np.uint64(SECOND) + part).astype(np.int64) + offset * SECOND
    exact = (int(tick) * SECOND // units + offset * SECOND for tick in ticks.tolist())
    return np.array([min(max(time, INT64.min), INT64.max) for time in exact], np.int64)
