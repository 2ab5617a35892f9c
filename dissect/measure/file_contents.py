"""The contents of one file, put together from the transfers, in the order of time.

Each byte is the last one that is known to have been there.  What contradicts is kept: a READ that returned
something else than the last known contents, with nothing seen that changed them, is a conflict; a WRITE over known
contents is a new version.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np

from .files import ALTERED, READ, TRUNCATED, WRITE, ZEROS

BLOCK = 1 << 20
MAX_KEPT = 1000
"""Conflicts, versions and fences of one file that are kept one by one."""

UNANSWERED = "no reply to the WRITE"
RACED = "two calls at one time, in an order that is not known"


class ContentSource(NamedTuple):
    """The RPC that bytes came from."""

    kind: str
    """'read', 'write' or 'zeros'."""
    begin: int
    end: int | None
    """None: no reply."""
    rpc: int
    first_frame: int
    last_frame: int


class ContentRegion(NamedTuple):
    """Bytes [start, end) of the file, stored from ``at`` on; -1: zeros that did not cross the wire."""

    start: int
    end: int
    at: int
    source: ContentSource
    doubt: str
    """'' or why it is not sure that the file has these bytes: UNANSWERED, RACED."""
    settled: int
    """Time from which on all that changed them is over: a READ that began before may have come before a change."""

    def part(self, start: int, end: int) -> ContentRegion:
        at = self.at if self.at < 0 else self.at + start - self.start
        return self._replace(start=start, end=end, at=at)


class ContentChange(NamedTuple):
    """The same place, seen with different bytes: a conflict or a new version."""

    start: int
    """The first byte that differs."""
    end: int
    """Behind the last byte that differs."""
    differing: int
    earlier: ContentSource
    later: ContentSource


class ContentStep(NamedTuple):
    """A FileTransfer, or a part of it whose bytes are stored at ``at``."""

    kind: str
    offset: int
    count: int  # type: ignore[assignment]
    at: int
    source: ContentSource


def in_order_of_time(steps: Iterable[ContentStep]) -> list[ContentStep]:
    """What may change contents from its call on, what shows them when its reply is there."""
    return sorted(steps, key=_moment)


def _moment(step: ContentStep) -> int:
    source = step.source
    return source.begin if source.end is None or step.kind not in (READ, ZEROS) else source.end


class Contents:
    """Steps are added in the order of ``in_order_of_time``; ``stored(at, count)`` gives bytes back."""

    def __init__(self, stored: Callable[[int, int], bytes]) -> None:
        self.regions: list[ContentRegion] = []
        """Ascending, without overlap."""
        self.conflicts: list[ContentChange] = []
        self.versions: list[ContentChange] = []
        self.conflicts_beyond = 0
        """Conflicts that are not kept one by one."""
        self.versions_beyond = 0
        self._stored = stored
        self._fences: list[tuple[int, int | None, int]] = []
        """What was truncated or changed unseen, and when that was over: what began before may have come before it."""

    def add(self, step: ContentStep) -> None:
        end = step.offset + step.count
        source = step.source
        if step.kind == TRUNCATED:
            self._forget(step.offset, None, source)
        elif step.kind == ALTERED and source.end is None:
            self._doubt(step.offset, end, source)
        elif step.kind == ALTERED:
            self._forget(step.offset, end if step.count else None, source)
        elif step.count > 0 and step.kind == WRITE:
            # A write without a reply was made at once or never, as far as the capture shows.
            doubt, settled = (UNANSWERED, source.begin) if source.end is None else ("", source.end)
            self._place(ContentRegion(step.offset, end, step.at, source, doubt, settled))
        elif step.count > 0:
            self._place(ContentRegion(step.offset, end, step.at, source, "", 0))

    def _forget(self, start: int, end: int | None, source: ContentSource) -> None:
        """The bytes changed, to what is not known."""
        low, high = self._overlapped(start, end)
        over = max([source.end or source.begin, *(region.settled for region in self.regions[low:high])])
        self._replace(start, end, [])
        self._fences = [*self._fences[-MAX_KEPT:], (start, end, over)]

    def _doubt(self, start: int, end: int, source: ContentSource) -> None:
        """The bytes may have changed, to what is not known."""
        low, high = self._overlapped(start, end)
        pieces = [
            region.part(max(region.start, start), min(region.end, end))._replace(
                doubt=UNANSWERED, settled=max(region.settled, source.begin)
            )
            for region in self.regions[low:high]
        ]
        self._replace(start, end, pieces)

    def _overlapped(self, start: int, end: int | None) -> tuple[int, int]:
        """Indices of the regions that overlap [start, end)."""
        low = bisect_right(self.regions, start, key=lambda region: region.end)
        high = low
        while high < len(self.regions) and (end is None or self.regions[high].start < end):
            high += 1
        return low, high

    def _replace(self, start: int, end: int | None, pieces: list[ContentRegion]) -> None:
        low, high = self._overlapped(start, end)
        touched = self.regions[low:high]
        if touched and touched[0].start < start:
            pieces.insert(0, touched[0].part(touched[0].start, start))
        if touched and end is not None and touched[-1].end > end:
            pieces.append(touched[-1].part(end, touched[-1].end))
        self.regions[low:high] = pieces

    def _place(self, new: ContentRegion) -> None:
        for low, high, over in self._fences:
            if over >= new.source.begin and low < new.end and (high is None or high > new.start):
                new = new._replace(doubt=new.doubt or RACED, settled=max(new.settled, over))
        low, high = self._overlapped(new.start, new.end)
        pieces: list[ContentRegion] = []
        reached = new.start
        for old in self.regions[low:high]:
            start, end = max(old.start, new.start), min(old.end, new.end)
            if start > reached:
                pieces.append(new.part(reached, start))
            pieces += self._settle(old.part(start, end), new.part(start, end))
            reached = end
        if reached < new.end:
            pieces.append(new.part(reached, new.end))
        self._replace(new.start, new.end, _joined(pieces))

    def _settle(self, old: ContentRegion, new: ContentRegion) -> Iterator[ContentRegion]:
        """What two views of the same bytes come to."""
        settled = max(old.settled, new.settled)
        after = old.settled < new.source.begin
        change = self._change(old, new)
        if change is None:
            # Zeros that crossed the wire are better than those that did not.
            better = (old.doubt and not new.doubt and after) or old.at < 0 <= new.at
            doubt = "" if after and not new.doubt else old.doubt
            yield (new if better else old)._replace(doubt=doubt, settled=settled)
        elif new.doubt == UNANSWERED:
            if old.start < change.start:
                yield old.part(old.start, change.start)
            yield new.part(change.start, change.end)._replace(settled=settled)
            if change.end < old.end:
                yield old.part(change.end, old.end)
        elif new.source.kind == WRITE:
            self._version(change)
            yield new._replace(doubt=new.doubt if after else RACED, settled=settled)
        elif not after or (new.doubt and not old.doubt):
            yield old  # It may have been read before it was changed.
        else:
            if not old.doubt:
                self._conflict(change)
            yield new._replace(settled=settled)

    def _conflict(self, change: ContentChange) -> None:
        if len(self.conflicts) < MAX_KEPT:
            self.conflicts.append(change)
        else:
            self.conflicts_beyond += 1

    def _version(self, change: ContentChange) -> None:
        if len(self.versions) < MAX_KEPT:
            self.versions.append(change)
        else:
            self.versions_beyond += 1

    def bytes_of(self, region: ContentRegion) -> Iterator[bytes]:
        """In blocks."""
        for start in range(region.start, region.end, BLOCK):
            count = min(BLOCK, region.end - start)
            yield bytes(count) if region.at < 0 else self._stored(region.at + start - region.start, count)

    def _change(self, old: ContentRegion, new: ContentRegion) -> ContentChange | None:
        """Where two regions of the same place differ."""
        if old.at == new.at:
            return None
        first = last = differing = -1
        reached = old.start
        for one, other in zip(self.bytes_of(old), self.bytes_of(new), strict=True):
            if one != other:
                unequal = np.flatnonzero(np.frombuffer(one, np.uint8) != np.frombuffer(other, np.uint8))
                if first < 0:
                    first, differing = reached + int(unequal[0]), 0
                last = reached + int(unequal[-1])
                differing += len(unequal)
            reached += len(one)
        return None if first < 0 else ContentChange(first, last + 1, differing, old.source, new.source)


def _joined(pieces: list[ContentRegion]) -> list[ContentRegion]:
    """Neighbours that are one region again."""
    joined: list[ContentRegion] = []
    for piece in pieces:
        last = joined[-1] if joined else None
        if (
            last is not None
            and last.end == piece.start
            and last[3:] == piece[3:]
            and last.at + (last.end - last.start if last.at >= 0 else 0) == piece.at
        ):
            joined[-1] = last._replace(end=piece.end)
        else:
            joined.append(piece)
    return joined
