"""Which segments the calls of one end advertised, by handle and address (RFC 8166, 3.4.3).

Usually a handle has few segments, and a list is enough.  The segments of a handle with many are indexed by size and
address, so that neither many calls that share memory nor many overlapping segments take too much time.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from operator import attrgetter

from ..named_tuple import NamedTuple
from ..transport.operations import READ, WRITE, Kind
from .rpcs import Rpc, SegmentUse

MAX_LISTED = 64
"""Segments of one handle kept as a list."""
MAX_TOUCHED = 64
"""Segments that one Operation may belong to; if it touches more, it is undecidable which it is for."""
MAX_VISITED = 1024
"""Ranges of one handle and size to compare with an Operation."""

_Range = tuple[int, int, int]
"""Start, end, kind."""


class AdvertisedSegment(NamedTuple):
    """A segment that a call advertised."""

    start: int
    end: int
    kind: Kind
    use: SegmentUse
    rpc: Rpc


_number = attrgetter("rpc.number")


class SegmentTable:
    """The segments that one end of a connection advertised, by handle."""

    __slots__ = ("_indices", "_lists")

    def __init__(self) -> None:
        self._lists: dict[int, list[AdvertisedSegment]] = {}
        self._indices: dict[int, _HandleIndex] = {}

    def __len__(self) -> int:
        """Number of handles."""
        return len(self._lists) + len(self._indices)

    def __contains__(self, handle: int) -> bool:
        return handle in self._lists or handle in self._indices

    def add(self, rpc: Rpc) -> None:
        """Add all segments of a call's chunks."""
        lists = self._lists
        for chunk in rpc.chunks:
            kind = READ if chunk.kind == "read" else WRITE
            for use in chunk.segments:
                handle, length, offset = use.advertised
                segment = AdvertisedSegment(offset, offset + length, kind, use, rpc)
                if handle in self._indices:
                    self._indices[handle].add(segment)
                    continue
                entries = lists.setdefault(handle, [])
                entries.append(segment)
                if len(entries) > MAX_LISTED:
                    self._indices[handle] = _HandleIndex(lists.pop(handle))

    def remove(self, rpc: Rpc) -> None:
        """Remove all segments of a call; marks those for which it is undecidable what was transferred."""
        for handle in {use.advertised.handle for chunk in rpc.chunks for use in chunk.segments}:
            index = self._indices.get(handle)
            if index is not None:
                index.remove(rpc, handle)
                if not index.ranges:
                    del self._indices[handle]
                continue
            left = [entry for entry in self._lists.get(handle, ()) if entry.rpc is not rpc]
            if left:
                self._lists[handle] = left
            else:
                self._lists.pop(handle, None)

    def clear(self) -> None:
        self._lists.clear()
        self._indices.clear()

    def touched(self, kind: Kind, handle: int, start: int, end: int) -> list[AdvertisedSegment]:
        """The segments that an RDMA Read or Write touches, at most ``MAX_TOUCHED`` + 1, ordered by their calls."""
        entries = self._lists.get(handle)
        if entries is not None:
            if len(entries) == 1:  # as nearly always
                first, behind, of, _, _ = entries[0]
                return [entries[0]] if first < end and start < behind and of is kind else []
            return [entry for entry in entries if entry.start < end and start < entry.end and entry.kind is kind]
        index = self._indices.get(handle)
        return [] if index is None else index.touched(start, end, kind)

    def latest(self, handle: int) -> AdvertisedSegment | None:
        """The segment with this handle that was added last; None for none."""
        entries = self._lists.get(handle)
        if entries:
            return entries[-1]
        index = self._indices.get(handle)
        return None if index is None else index.latest


class _SharedRange:
    """The segments with the same start, end and kind, by the identity of their use."""

    __slots__ = ("contested", "segments")

    def __init__(self) -> None:
        self.segments: dict[int, AdvertisedSegment] = {}
        self.contested = False


class _HandleIndex:
    """The segments of one handle."""

    def __init__(self, segments: list[AdvertisedSegment]) -> None:
        self.ranges: dict[_Range, _SharedRange] = {}
        self.by_size: dict[int, list[_Range]] = {}
        """By bit length of the size: ranges, ascending."""
        self.latest = segments[-1]
        for segment in segments:
            self.add(segment)

    def add(self, segment: AdvertisedSegment) -> None:
        key = segment.start, segment.end, int(segment.kind)
        shared = self.ranges.get(key)
        if shared is None:
            shared = self.ranges[key] = _SharedRange()
            insort(self.by_size.setdefault((segment.end - segment.start).bit_length(), []), key)
        shared.segments[id(segment.use)] = segment
        self.latest = segment

    def remove(self, rpc: Rpc, handle: int) -> None:
        for chunk in rpc.chunks:
            kind = int(READ if chunk.kind == "read" else WRITE)
            for use in chunk.segments:
                owner, length, offset = use.advertised
                key = offset, offset + length, kind
                shared = self.ranges.get(key) if owner == handle else None
                if shared is None:
                    continue
                use.contested |= shared.contested
                shared.segments.pop(id(use), None)
                if not shared.segments:
                    del self.ranges[key]
                    size = self.by_size[length.bit_length()]
                    del size[bisect_left(size, key)]

    def touched(self, start: int, end: int, kind: Kind) -> list[AdvertisedSegment]:
        segments: list[AdvertisedSegment] = []
        visited: list[_SharedRange] = []
        for bits, keys in self.by_size.items():
            low = bisect_left(keys, (start - (1 << bits), 0, 0))
            high = bisect_left(keys, (end, 0, 0))
            for key in keys[max(low, high - MAX_VISITED) : high]:
                if start < key[1] and key[2] == kind:
                    shared = self.ranges[key]
                    visited.append(shared)
                    for segment in shared.segments.values():
                        if len(segments) > MAX_TOUCHED:
                            break
                        segments.append(segment)
        if len(segments) > MAX_TOUCHED:
            for shared in visited:
                shared.contested = True
        return sorted(segments, key=_number)
