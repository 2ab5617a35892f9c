"""Which file a frame of several is from, and its number there; what is numbered over several captures."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from rdmascope.dissect.arrays import Bytes
from rdmascope.dissect.frames import FrameRun, Place


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

    def find(self, frame: int) -> Place | None:
        """Where the frame of this number is; None where none of it was noted."""
        if not self._before < frame < self._end:
            return None
        stretch = self._stretches[bisect_right(self._firsts, frame) - 1]
        at = frame - stretch.first
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


@dataclass(frozen=True, slots=True)
class NumberOffset:
    """How much came before a capture; its own numbers continue that."""

    frames: int = 0
    connections: int = 0
    rpcs: int = 0
    files: int = 0
    """Of NFS; a pass numbers its own from 1."""
    first_time: int | None = None
    """Nanoseconds since the Unix epoch, of the first frame of all captures; None: of that of this one."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Of the files of all captures, by path, as they are shown: frames are shown with file and number there.  Empty:
    they have only the one number."""
