"""Which segments the calls of one end advertised, by handle and address (RFC 8166, 3.4.3)."""

from __future__ import annotations

from typing import NamedTuple

from ..transport.operations import READ, WRITE, Kind, Operation
from .rpcs import Rpc, SegmentUse


class AdvertisedSegment(NamedTuple):
    """A segment that a call advertised."""

    start: int
    end: int
    kind: Kind
    use: SegmentUse
    rpc: Rpc


class SegmentTable:
    """Of one end of a connection."""

    def __init__(self) -> None:
        self.by_handle: dict[int, list[AdvertisedSegment]] = {}

    def __len__(self) -> int:
        """Handles."""
        return len(self.by_handle)

    def add(self, rpc: Rpc) -> None:
        """All segments of a call's chunks."""
        for chunk in rpc.chunks:
            kind = READ if chunk.kind == "read" else WRITE
            for use in chunk.segments:
                handle, length, offset = use.advertised
                self.by_handle.setdefault(handle, []).append(AdvertisedSegment(offset, offset + length, kind, use, rpc))

    def remove(self, rpc: Rpc) -> None:
        for handle in {use.advertised.handle for chunk in rpc.chunks for use in chunk.segments}:
            left = [entry for entry in self.by_handle.get(handle, ()) if entry.rpc is not rpc]
            if left:
                self.by_handle[handle] = left
            else:
                self.by_handle.pop(handle, None)

    def clear(self) -> None:
        self.by_handle.clear()

    def touched(self, operation: Operation) -> list[AdvertisedSegment]:
        """The segments that an RDMA Read or Write touches."""
        entries = self.by_handle.get(operation.handle)
        if not entries:
            return []
        start, end, kind = operation.address, operation.address + operation.length, operation.kind
        return [entry for entry in entries if entry.start < end and start < entry.end and entry.kind is kind]
