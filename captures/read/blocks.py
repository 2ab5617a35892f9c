"""What a pcapng tells beside its frames: options, interface statistics, comments, blocks that are passed over.

https://datatracker.ietf.org/doc/draft-ietf-opsawg-pcapng/; the numbers in parentheses are its sections.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rdmascope.dissect.arrays import Bytes, Int64s

from .streams import gather

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
"""Of one block, that are looked at."""
MAX_COMMENTS = 1000
"""Of sections and interfaces, that are kept."""


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
    """Of sections and interfaces; those of frames are in their batch."""
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
        return bool(self.lost) or any(one.dropped is not None or one.os_dropped is not None for one in every)

    @property
    def dropped(self) -> int:
        """Frames that were there and are not in the capture, as it says itself."""
        every = self.statistics.values()
        return sum((one.dropped or 0) + (one.os_dropped or 0) for one in every) or self.lost.total()


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
    found = {
        code: struct.unpack(byte_order + "Q", value)[0]
        for code, value in options(body[12:], byte_order)
        if len(value) == 8
    }
    codes = ISB_RECEIVED, ISB_DROPPED, ISB_ACCEPTED, ISB_OS_DROPPED, ISB_DELIVERED
    return interface, InterfaceStatistics(*map(found.get, codes))


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
