"""Which RPCs, frames and connections are meant: the filters of every command, and what is wrong with a filter.

Each judgement is one sentence, or '' where nothing is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Container, Iterable, Sequence
from typing import TYPE_CHECKING

from ..named_tuple import NamedTuple
from ..onc.compound import CALLBACK_NAMES, OPERATION_NAMES
from ..onc.rpc_header import PROCEDURES
from ..units import moment

if TYPE_CHECKING:
    from .time_options import Moment

MAX_FRAME = 1 << 62
"""The end of a range of frames that has none."""

KNOWN_NAMES = frozenset(
    (*(name for names in PROCEDURES.values() for name in names), *OPERATION_NAMES.values(), *CALLBACK_NAMES.values())
)
"""Every name of a procedure or operation that this program has."""


def procedure_names(given: Iterable[str]) -> tuple[str, ...]:
    """The names of ``READ,WRITE`` and of several such lists; raises ValueError for a list of none."""
    given = tuple(given)
    names = tuple(dict.fromkeys(name.strip() for text in given for name in text.split(",") if name.strip()))
    if given and not names:
        raise ValueError(f"no procedure in {given[0]!r}")
    return names


def parse_xid(text: str) -> int:
    """'0x1a2b3c4d', '1a2b3c4d' where it has a letter, or decimal; raises ValueError."""
    match = re.fullmatch(r"0[xX]([0-9a-fA-F]+)|(\d+)|([0-9a-fA-F]+)", text.strip())
    xid = -1 if match is None else int(match[2]) if match[2] else int(match[1] or match[3], 16)
    if not 0 <= xid < 1 << 32:
        raise ValueError(f"{text!r} is no 32-bit number, hexadecimal (0x1a2b3c4d) or decimal")
    return xid


def parse_frames(text: str) -> tuple[FrameRange, ...]:
    """'46', '40-60', '40-' (to the end), or a list of these with commas; raises ValueError."""
    ranges = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(-(\d+)?)?", part.strip())
        frames = None
        if match is not None:
            first = int(match[1])
            frames = FrameRange(first, int(match[3]) if match[3] else MAX_FRAME if match[2] else first)
        if frames is None or not 0 < frames.first <= frames.last:
            raise ValueError(f"{text!r} is neither a frame number nor a range such as 40-60")
        ranges.append(frames)
    return tuple(ranges)


class FrameRange(NamedTuple):
    """Frames from ``first`` to ``last``."""

    first: int
    last: int

    def __str__(self) -> str:
        if self.first == self.last:
            return f"frame {self.first}"
        return f"frames {self.first}-{'' if self.last == MAX_FRAME else self.last}"


def includes(wanted: Sequence[FrameRange], frame: int) -> bool:
    """Whether the frame is one of those; every frame is where there are none."""
    return not wanted or any(frame_range.first <= frame <= frame_range.last for frame_range in wanted)


class CaptureExtent(NamedTuple):
    """What a capture holds of what filters name."""

    frames: int = 0
    connections: Collection[int] = ()
    """Numbers of the connections, without evicted ones."""
    evicted: int = 0
    """Connections that were evicted."""
    first_time: int = 0
    """Nanoseconds since the Unix epoch; of the first frame."""
    last_time: int = 0
    """The time of the last frame."""


def unknown_connections(wanted: Iterable[int], capture: CaptureExtent) -> str:
    """Which of the wanted connections the capture has not; '' for none."""
    for number in wanted:
        if number in capture.connections:
            continue
        total = len(capture.connections) + capture.evicted
        if number <= total:
            return f"connection {number} was evicted: {total:,} are too many to keep each of them"
        return f"no connection {number}; there {'is' if total == 1 else 'are'} {total:,}"
    return ""


def unknown_rpcs(wanted: Iterable[int], known: Container[int], total: int) -> str:
    """Which of the wanted numbers no RPC has; '' for none.  ``total``: RPCs in the capture."""
    for number in wanted:
        if number not in known:
            return f"no RPC {number}; there {'is' if total == 1 else 'are'} {total:,}"
    return ""


def unknown_xids(wanted: Iterable[int], known: Container[int]) -> str:
    """Which of the wanted XIDs no RPC has; '' for none."""
    return next((f"no RPC with xid {xid:#010x}" for xid in wanted if xid not in known), "")


def unknown_frames(wanted: Iterable[FrameRange], capture: CaptureExtent) -> str:
    """Which of the wanted frames the capture has not; '' for none."""
    for frames in wanted:
        if frames.first > capture.frames:
            return f"no {frames}; there {'is' if capture.frames == 1 else 'are'} {capture.frames:,}"
    return ""


def empty_span(since: Moment | None, until: Moment | None, capture: CaptureExtent) -> str:
    """Why no RPC of the capture can be from ``since`` on and before ``until``; '' where one can."""
    begin = since and since.absolute(capture.first_time)
    end = until and until.absolute(capture.first_time)
    if begin is not None and end is not None and begin >= end:
        return f"since {_said(since, begin)} is not before until {_said(until, end)}"
    if begin is not None and begin > capture.last_time:
        return f"since {_said(since, begin)} is after the last frame, {moment(capture.last_time)}"
    if end is not None and end <= capture.first_time:
        return f"until {_said(until, end)} is not after the first frame, {moment(capture.first_time)}"
    return ""


def _said(when: Moment | None, nanoseconds: int) -> str:
    """A time as the user wrote it, and what it means."""
    return f"{when.text if when else ''} ({moment(nanoseconds)})"


def near(name: str, names: Iterable[str]) -> str:
    """Names that are nearly that, as a question; '' where there are none."""
    from difflib import get_close_matches  # Only here: every start would pay for it.

    close = get_close_matches(name, names, 3, 0.7)
    return f"; did you mean {' or '.join(close)}?" if close else ""
