"""The chunk lists of many transport headers of version 1 at once, in columns (RFC 8166, 4.3).

``transport_header.decode_header`` reads one header, whatever is in it; a property test holds the two equal.  This
module reads what clients and servers nearly always send: Read segments of one Position, one Write chunk, and a Reply
chunk."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..arrays import Bytes, Int64s, Rows, big_endian_words, gathered
from ..named_tuple import NamedTuple

READ_LIST, WRITE_LIST, REPLY_CHUNK = range(3)
"""Which list or chunk of the header a segment is in."""
MAX_SEGMENTS = 64
"""Segments of one list."""
_LISTS = 16
"""Offset of the first list in the header."""
_HIGHEST = 0xFFFFFFFF
"""Upper half of offsets with which memory may wrap around the end of 64 bits."""

SEGMENT = np.dtype(
    [
        ("send", "i8"),  # index of the Send
        ("list", "i8"),  # READ_LIST, WRITE_LIST or REPLY_CHUNK
        ("position", "i8"),  # of a Read segment; else 0
        ("handle", "i8"),
        ("length", "i8"),
        ("offset", "i8"),  # modulo 2^64, so negative from 2^63 on
    ]
)


class ChunkLists(NamedTuple):
    """One row per Send, except ``segments``."""

    read: NDArray[np.bool_]
    """Whether the lists were read; otherwise the other columns mean nothing."""
    header: Int64s
    """Bytes of the header."""
    counts: Int64s
    """Number of segments in the three lists, (n, 3)."""
    segments: Rows
    """SEGMENT rows, by Send and in the order of the header."""


def read_chunk_lists(data: Bytes, at: Int64s, ends: Int64s) -> ChunkLists:
    """Read the lists of the Sends at ``data[at[i]:ends[i]]``, each with at least 28 bytes."""
    walk = _Walk(data, at, ends)
    walk.read_list()
    # Headers with a second Write chunk are not read here.
    walk.present(walk.array(WRITE_LIST), 0)
    walk.array(REPLY_CHUNK)
    segments = np.concatenate(walk.found) if walk.found else np.empty(0, SEGMENT)
    segments = segments[walk.whole[segments["send"]]]
    segments = segments.take(np.lexsort((segments["list"], segments["send"])))
    return ChunkLists(walk.whole, walk.place - at, walk.counts, segments)


class _Walk:
    """A position in each of the headers."""

    def __init__(self, data: Bytes, at: Int64s, ends: Int64s) -> None:
        self.data, self.ends = data, ends
        self.place = at + _LISTS
        self.whole = np.ones(len(at), np.bool_)
        self.counts = np.zeros((len(at), 3), np.int64)
        self.found: list[Rows] = []

    def left(self) -> Int64s:
        """The headers that could be read so far."""
        rows: Int64s = self.whole.nonzero()[0]
        return rows

    def present(self, rows: Int64s, highest: int = 1) -> Int64s:
        """Step over the word before optional data; returns the rows with data."""
        rows = self._fits(rows, np.full(len(rows), 4))
        word = self._words(rows, 0, 1)[:, 0]
        self.whole[rows[word > highest]] = False
        self.place[rows] += 4
        return rows[word == highest] if highest else rows[:0]

    def _fits(self, rows: Int64s, size: Int64s) -> Int64s:
        short = self.place[rows] + size > self.ends[rows]
        self.whole[rows[short]] = False
        return rows[~short]

    def _words(self, rows: Int64s, at: int, count: int) -> Int64s:
        return big_endian_words(gathered(self.data, 4 * count, self.place[rows] + at))

    def read_list(self) -> None:
        """Read the Read list: segments preceded by a word that is 1, up to a 0."""
        position = np.full(len(self.place), -1)
        rows = self.present(self.left())
        while len(rows):
            rows = self._fits(rows, np.full(len(rows), 20))
            words = self._words(rows, 0, 5)
            self._add(rows, READ_LIST, words[:, 0], words[:, 1:])
            known = position[rows]
            self.whole[rows[(known >= 0) & (known != words[:, 0])]] = False
            position[rows] = words[:, 0]
            self.place[rows] += 20
            self.counts[rows, READ_LIST] += 1
            self.whole[rows[self.counts[rows, READ_LIST] > MAX_SEGMENTS]] = False
            rows = self.present(rows[self.whole[rows]])

    def array(self, kind: int) -> Int64s:
        """Read the segments of a chunk, preceded by their number; returns the rows that have the chunk."""
        rows = self.present(self.left())
        rows = self._fits(rows, np.full(len(rows), 4))
        counts = self._words(rows, 0, 1)[:, 0]
        right = (counts > 0) & (counts <= MAX_SEGMENTS)
        self.whole[rows[~right]] = False
        rows, counts = rows[right], counts[right]
        self.place[rows] += 4
        self.counts[rows, kind] = counts
        rows = self._fits(rows, 16 * counts)
        counts = self.counts[rows, kind]
        each = np.repeat(rows, counts)
        within = np.arange(len(each)) - np.repeat(np.cumsum(counts) - counts, counts)
        if len(each):
            words = big_endian_words(gathered(self.data, 16, self.place[each] + 16 * within))
            self._add(each, kind, np.zeros(len(each), np.int64), words)
        self.place[rows] += 16 * counts
        return rows

    def _add(self, rows: Int64s, kind: int, position: Int64s, words: Int64s) -> None:
        """Add segments; ``words``: handle, length, and the two halves of the offset."""
        segments = np.empty(len(rows), SEGMENT)
        segments["send"], segments["list"], segments["position"] = rows, kind, position
        segments["handle"], segments["length"] = words[:, 0], words[:, 1]
        segments["offset"] = words[:, 2] << 32 | words[:, 3]
        self.whole[rows[words[:, 2] >= _HIGHEST]] = False
        self.found.append(segments)
