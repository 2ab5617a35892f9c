"""Several files as one capture in the order of time, and which of them show the same traffic at another point;
which file a frame is from, and the decoded batches.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from rdmascope.dissect.arrays import Bytes, Int64s, Rows, take
from rdmascope.dissect.frames import FrameBatch, FrameRun, Place
from rdmascope.dissect.link.addresses import AddressTable
from rdmascope.dissect.link.capture_points import OTHER_POINT, CommonTraffic, Hosts, Sightings, common_traffic
from rdmascope.dissect.link.frame_decoder import DecodedFrames, FrameDecoder
from rdmascope.dissect.named_tuple import NamedTuple
from rdmascope.dissect.units import duration, plural

from ..errors import CaptureError, Closing, system_errors
from .open import CaptureFile, Follow, open_capture
from .pcapng import Interface
from .streams import Limits

MAX_POINTS = 8
"""More files or rings of files are not compared."""
MAX_FRAMES = 1 << 19
"""Frames of each file that are compared: those at its beginning."""
LOOK = Limits(frames=1 << 15, bytes=16 << 20)


class OtherPoint(NamedTuple):
    """A file, or ring of files, with traffic that another one shows, too."""

    path: str
    """The path of its first file."""
    first: str
    """The file at the capture point that counts."""
    common: CommonTraffic
    whole: bool
    """Both were compared to their ends."""

    def __str__(self) -> str:
        common = self.common
        clock = f"{abs(common.offset) / 1e6:,.3f} ms {'ahead' if common.offset >= 0 else 'behind'}"
        clock += "" if common.error is None else f" (± {duration(common.error)})"
        seen = f"{plural(common.both, 'packet')} at both, {common.only_other:,} only here, "
        seen += f"{common.only_first:,} only there"
        seen += "" if self.whole else f", in the first {MAX_FRAMES:,} frames"
        return (
            f"{self.path}: the traffic of {self.first} at another capture point, by a clock that is {clock}: {seen}; "
            f"it is read from {self.first} alone"
        )


def other_points(rings: Mapping[str, str]) -> list[OtherPoint]:
    """``rings``: the first file of each ring, in the order they were named.  What cannot be read is no such file."""
    if not 2 <= len(rings) <= MAX_POINTS:
        return []
    addresses = AddressTable()
    seen: list[tuple[str, Sightings, bool]] = []
    points: list[OtherPoint] = []
    for path in rings.values():
        sightings, whole = look((path,), addresses)
        for first, there, all_there in seen:
            if common := common_traffic(there, sightings):
                points.append(OtherPoint(path, first, common, whole and all_there))
                break
        else:
            seen.append((path, sightings, whole))
    return points


def look(paths: Sequence[str], addresses: AddressTable) -> tuple[Sightings, bool]:
    """The packets at the beginning of files of one ring, in order, and whether that is all of them.

    Frames are numbered through all of these files.
    """
    sightings, frames = Sightings(addresses), 0
    for path in paths:
        before = frames
        try:
            with open_capture(path, LOOK) as capture:
                for batch in capture.batches():
                    sightings.add(batch, before)
                    frames += len(batch)
                    if frames >= MAX_FRAMES:
                        return sightings, False
        except CaptureError:
            pass  # it is reported where the frames are read
    return sightings, True


FIRST = Limits(frames=1, bytes=1 << 16, window=1 << 16)
"""Enough to see the first frame of a file."""
TOGETHER = Limits(frames=1 << 13, bytes=8 << 20)
"""Frames and bytes of a batch of each file that is read at the same time as others."""
PLACES = 256
"""Interfaces of one capture point that are told apart; of capture points half as many, and as many others."""

RING = re.compile(r"(.*)_\d{5,}_\d{14}")
"""dumpcap's names for the files of a ring: a number and the time."""


def open_captures(
    paths: Sequence[str], limits: Limits | None = None, follow: Follow | None = None
) -> CaptureFile | MergedCaptures:
    """Opens one file as ``open_capture`` does; several, or a directory of them, as one capture.

    Raises CaptureError where none can be opened.  What is wrong with one of several is raised behind the frames
    of the others; what is no capture in a directory is passed over.
    """
    if len(paths) == 1 and not os.path.isdir(paths[0]):
        return open_capture(paths[0], limits, follow)
    if follow is not None:
        raise CaptureError("only a single file can be followed")
    return MergedCaptures(paths, limits)


def first_of(problems: Sequence[str]) -> str:
    """The first of several, and how many files have others."""
    more = len(problems) - 1
    return problems[0] + (f" (and {more} other {'file' if more == 1 else 'files'})" if more else "")


def expand(path: str) -> list[tuple[str, bool]]:
    """The file, or the files of a directory in order of name; and whether it was a directory."""
    if not os.path.isdir(path):
        return [(path, False)]
    with system_errors(path), os.scandir(path) as entries:
        paths = sorted(entry.path for entry in entries if entry.is_file() and not entry.name.startswith("."))
    if not paths:
        raise CaptureError(f"{path}: no file in this directory")
    return [(name, True) for name in paths]


def ring_of(path: str) -> str:
    """What the files of one ring have in common."""
    return match[1] if (match := RING.match(path)) else path


@dataclass(slots=True, eq=False)
class _File:
    """A file that is being read: its next batch, not yet given rows first."""

    capture: CaptureFile
    batches: Iterator[FrameBatch]
    ring: str
    place: int
    batch: FrameBatch | None = None
    keys: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))
    """Times of the rows, where a clock went back that before."""
    last: int = 0


class MergedCaptures(Closing):
    """Several captures that read as one, with the attributes of ``CaptureFile`` that make sense for many."""

    def __init__(self, paths: Sequence[str], limits: Limits | None = None) -> None:
        self.path = paths[0] if len(paths) == 1 else f"{len(paths)} captures"
        self._limits = limits or Limits()
        self.passed_over: list[str] = []
        """What is wrong with files of a directory that are no captures."""
        self._errors: list[CaptureError] = []
        self._waiting: list[tuple[int, str]] = []
        """Time of the first frame and path, the earliest last."""
        self._open: list[_File] = []
        self.size = 0
        self._done = 0
        self._number = 0
        self.files: list[str] = []
        self.dropped_frames = 0
        """Frames that captures read to their end say they lost."""
        self.time_steps: set[int] = set()
        """Timestamp resolutions of these captures, nanoseconds."""
        self.places = Places()
        """Where each frame that was given is."""
        if "-" in paths:
            raise CaptureError("standard input cannot be merged with other captures; save it in a file first")
        for path in paths:
            try:
                for name, listed in expand(path):
                    self._look(name, listed)
            except CaptureError as error:
                self._errors.append(error)
        if not self.files and self._errors:
            raise self._errors[0]
        if not self.files:
            reason = f" ({self.passed_over[0]})" if self.passed_over else ""
            raise CaptureError(f"{self.path}: no capture in this directory{reason}")
        rings: dict[str, str] = {}
        for name in self.files:
            rings.setdefault(ring_of(name), name)

        self.other_points = other_points(rings)
        """Files whose traffic another file shows, too."""
        self._offsets = {ring_of(point.path): point.common.offset for point in self.other_points}
        """How far the clocks of their rings are ahead."""
        self._waiting = [(time - self._offsets.get(ring_of(name), 0), name) for time, name in self._waiting]
        self._waiting.sort(key=lambda waiting: waiting[0], reverse=True)

    def number_behind(self, frames: int) -> None:
        """Before the first batch: so many frames came before those that are in the files."""
        self._number, self.places = frames, Places(frames)

    @property
    def hosts_elsewhere(self) -> frozenset[Hosts]:
        """Whose packets are to be left out of frames of an ``OTHER_POINT``."""
        return frozenset().union(*(point.common.hosts for point in self.other_points))

    def close(self) -> None:
        """Frame batches that were given stay valid."""
        for file in self._open:
            file.capture.close()
        self._open.clear()

    def interface(self, number: int) -> Interface | None:
        """What the capture says about an interface of frames of the latest batch; None where it says nothing."""
        for file in self._open:
            if file.place == number // PLACES and number % PLACES < len(file.capture.interfaces):
                return file.capture.interfaces[number % PLACES]
        return None

    @property
    def position(self) -> int:
        """Bytes read of ``size``."""
        return self._done + sum(file.capture.position for file in self._open)

    def batches(self) -> Iterator[FrameBatch]:
        """The frames, once, numbered through; raises CaptureError at the end where a file is damaged."""
        while self._open or self._waiting:
            if not self._open:
                self._start()
                continue
            if self._waiting and self._waiting[-1][0] <= self._horizon():
                self._start()
                continue
            yield from self._next()
        if self._errors:
            raise CaptureError(first_of([str(error) for error in self._errors]))

    def _look(self, path: str, listed: bool) -> None:
        """Opens a file for its first frame."""
        try:
            with open_capture(path, FIRST) as capture:
                try:
                    first = next(capture.batches(), None)
                except CaptureError as error:
                    self._errors.append(error)
                    first = None
                self.size += capture.size or 0
        except CaptureError as error:
            if listed:
                self.passed_over.append(str(error))
            else:
                self._errors.append(error)
            return
        self.files.append(path)
        if first is not None:
            self._waiting.append((int(first.rows["time"][0]), path))

    def _start(self) -> None:
        """Begins to read the next file."""
        _, path = self._waiting.pop()
        try:
            capture = open_capture(path, self._limits if not self._waiting else TOGETHER)
        except CaptureError as error:
            self._errors.append(error)
            return
        ring = ring_of(path)
        used = {file.place: file.ring for file in self._open}
        begin = OTHER_POINT // PLACES if ring in self._offsets else 0
        free = range(begin, begin + OTHER_POINT // PLACES)
        place = next((place for place in free if used.get(place, ring) == ring), begin)
        file = _File(capture, capture.batches(), ring, place)
        self._open.append(file)
        self._advance(file)

    def _advance(self, file: _File) -> None:
        """The next batch of a file, or its end."""
        try:
            batch = next(file.batches, None)
        except CaptureError as error:
            self._errors.append(error)
            batch = None
        if batch is None:
            self._done += file.capture.size or 0
            self.dropped_frames += file.capture.dropped_frames
            self.time_steps |= file.capture.time_steps
            file.capture.close()
            self._open.remove(file)
            return
        if offset := self._offsets.get(file.ring):
            rows = batch.rows.copy()
            rows["time"] -= offset
            batch = replace(batch, rows=rows)
        file.batch = batch
        file.keys = np.maximum(np.maximum.accumulate(batch.rows["time"]), file.last)
        file.last = int(file.keys[-1])

    def _horizon(self) -> int:
        """All frames up to then are there."""
        return min(file.last for file in self._open)

    def _next(self) -> Iterator[FrameBatch]:
        """The frames up to the horizon."""
        horizon = self._horizon()
        taken: list[tuple[FrameBatch, Rows, Int64s]] = []
        sources: list[tuple[str, int]] = []
        exhausted: list[_File] = []
        for file in self._open:
            assert file.batch is not None
            size = int(np.searchsorted(file.keys, horizon, "right"))
            if not size:
                continue
            rows = file.batch.rows[:size].copy()
            rows["interface"] = file.place * PLACES + rows["interface"] % PLACES
            taken.append((file.batch, rows, file.keys[:size]))
            sources.append((file.capture.path, int(rows["number"][0])))
            if size == len(file.keys):
                exhausted.append(file)
            else:
                file.batch = FrameBatch(file.batch.data, file.batch.rows[size:], file.batch.comments)
                file.keys = file.keys[size:]
        yield self._numbered(taken, sources)
        for file in exhausted:
            self._advance(file)

    def _numbered(self, taken: list[tuple[FrameBatch, Rows, Int64s]], sources: Sequence[tuple[str, int]]) -> FrameBatch:
        """One batch of what several files give, in the order of time.

        ``sources``: path of each file, and the number of its first frame.
        """
        batch, rows, _ = taken[0]
        data = batch.data
        mixed = np.zeros(len(rows), np.uint8)
        comments = [batch.comments.get(int(number), "") for number in rows["number"]] if batch.comments else []
        if len(taken) > 1:
            spans, every, at = [], [], 0
            comments = []
            for batch, rows, _ in taken:
                first, end = int(rows["offset"][0]), int(rows["offset"][-1]) + int(rows["captured"][-1])
                spans.append(batch.data[first:end])
                rows["offset"] += at - first
                at += end - first
                every.append(rows)
                comments += [batch.comments.get(int(number), "") for number in rows["number"]]
            data = np.concatenate(spans)
            data.flags.writeable = False
            order = np.argsort(np.concatenate([keys for _, _, keys in taken]), kind="stable")
            rows = take(np.concatenate(every), order)
            mixed = np.repeat(
                np.arange(len(taken), dtype=np.min_scalar_type(len(taken))), [len(rows) for rows in every]
            )
            mixed = mixed[order]
            comments = [comments[index] for index in order.tolist()] if any(comments) else []
        self.places.add(sources, mixed)
        rows["number"] = np.arange(self._number + 1, self._number + 1 + len(rows))
        self._number += len(rows)
        said = {int(rows["number"][at]): comment for at, comment in enumerate(comments) if comment}
        return FrameBatch(data, rows, said)


Source: TypeAlias = CaptureFile | MergedCaptures


def processors() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


def decoded(capture: Source, decoder: FrameDecoder) -> Iterator[DecodedFrames]:
    """The batches of a capture, decoded; of a mapped file no more is in memory than one of them needs."""
    for batch in capture.batches():
        packets = decoder.take(batch)
        if not isinstance(capture, MergedCaptures):
            capture.release()
        yield packets
        del batch, packets


def short_names(paths: Sequence[str]) -> dict[str, str]:
    """Names of files without their directories, where that tells them apart."""
    names = {path: os.path.basename(path) for path in paths}
    return names if len(set(names.values())) == len(names) else {path: path for path in paths}


class _Stretch(NamedTuple):
    """Consecutive frames, of one file or of several mixed."""

    first: int
    """Number of its first frame, counted over all files."""
    files: list[tuple[int, int]]
    """Index of each file, and the number that its first frame here has in it."""
    mixed: Bytes | None
    """Index in ``files`` of each frame; None where they are all of one file."""


class Places:
    """Frames are noted in the order of their numbers, counted over all files, and found by them.

    Frames of one file that follow each other take no memory; where files alternate it is a byte for each frame.
    """

    def __init__(self, before: int = 0) -> None:
        """``before``: so many frames have lower numbers than the first one noted."""
        self._paths: list[str] = []
        self._index: dict[str, int] = {}
        self._stretches: list[_Stretch] = []
        self._firsts: list[int] = []
        self._before = before
        self._end = before + 1

    @property
    def paths(self) -> Sequence[str]:
        """The files that frames were noted of."""
        return self._paths

    def add(self, files: Sequence[tuple[str, int]], mixed: Bytes) -> None:
        """The next frames.

        ``files``: paths, and the number of the first of these frames in each; ``mixed``: the index in ``files`` of
        each frame.  Frames of one file follow each other in it.
        """
        indexed = [(self._of(path), first) for path, first in files]
        if len(indexed) > 1:
            self._append(_Stretch(self._end, indexed, mixed))
        else:
            last = self._stretches[-1] if self._stretches else None
            file, first = indexed[0]
            if last is None or last.mixed is not None or last.files != [(file, first - (self._end - last.first))]:
                self._append(_Stretch(self._end, indexed, None))
        self._end += len(mixed)

    def skip(self, count: int) -> None:
        """So many frames are not noted."""
        if count:
            self._append(_Stretch(self._end, [], None))
            self._end += count

    def find(self, frame: int) -> Place | None:
        """Where the frame of this number is; None where none of it was noted."""
        if not self._before < frame < self._end:
            return None
        stretch = self._stretches[bisect_right(self._firsts, frame) - 1]
        at = frame - stretch.first
        if not stretch.files:
            return None
        if stretch.mixed is None:
            file, first = stretch.files[0]
            return Place(self._paths[file], first + at)
        which = int(stretch.mixed[at])
        file, first = stretch.files[which]
        return Place(self._paths[file], first + int(np.count_nonzero(stretch.mixed[:at] == which)))

    def runs(self) -> Iterator[FrameRun]:
        """Consecutive frames of one file, in the order of their numbers."""
        before: FrameRun | None = None
        for run in self._parts():
            if before is not None and run.file == before.file and run.frame == before.frame + run.first - before.first:
                before = before._replace(last=run.last)
                continue
            if before is not None:
                yield before
            before = run
        if before is not None:
            yield before

    def _parts(self) -> Iterator[FrameRun]:
        for stretch, end in zip(self._stretches, [*self._firsts[1:], self._end], strict=True):
            if not stretch.files:
                continue
            if stretch.mixed is None:
                file, frame = stretch.files[0]
                yield FrameRun(stretch.first, end - 1, self._paths[file], frame)
                continue
            starts = np.concatenate(([0], np.flatnonzero(np.diff(stretch.mixed)) + 1, [len(stretch.mixed)])).tolist()
            reached = [frame for _, frame in stretch.files]
            for start, behind in pairwise(starts):
                which = int(stretch.mixed[start])
                path = self._paths[stretch.files[which][0]]
                yield FrameRun(stretch.first + start, stretch.first + behind - 1, path, reached[which])
                reached[which] += behind - start

    def _append(self, stretch: _Stretch) -> None:
        self._stretches.append(stretch)
        self._firsts.append(stretch.first)

    def _of(self, path: str) -> int:
        if path not in self._index:
            self._index[path] = len(self._paths)
            self._paths.append(path)
        return self._index[path]


@dataclass(slots=True, eq=False)
class NumberOffset:
    """How much came before a capture; its own numbers continue that."""

    frames: int = 0
    connections: int = 0
    rpcs: int = 0
    files: int = 0
    """Offset of the numbers of NFS files; each pass numbers its own from 1."""
    first_time: int | None = None
    """Nanoseconds since the Unix epoch, of the first frame of all captures; None: of that of this one."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Names of the files of all captures, by path, with which frames are shown; if empty, frames have only one number.
    """
