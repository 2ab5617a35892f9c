"""The ERF file format: records of Endace's Extensible Record Format one after the other, without a file header.

A record: time (8 bytes, little-endian, in units of 2**-32 seconds since 1970), type, flags, record length, loss
counter or colour, wire length (big-endian, 2 bytes each), extension headers, the frame, padding.  A frame here is
the whole record, as it is behind link type 197 in a pcap; ``rdmascope.dissect`` takes the header off.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np

from rdmascope.dissect.arrays import gather
from rdmascope.dissect.frames import FRAME, FrameBatch
from rdmascope.dissect.link.numbers import ERF

from .streams import Feed, Limits

HEADER = 16
HIGHEST_TYPE = 48
"""The types in use are 1 to 27, and 48 for padding."""
PROBED = 20
"""Records that must look right for a file to be taken for ERF: it has no magic number."""
NEAR = 3600
"""Seconds by which the times of those records may differ from one to the next."""

_LAYOUT = np.dtype(
    [("fraction", "<u4"), ("seconds", "<u4"), ("type", "u1"), ("flags", "u1"), ("length", ">u2"),
     ("lost", ">u2"), ("wire", ">u2")]
)  # fmt: skip


def looks_like(data: memoryview, whole: bool) -> bool:
    """Whether ``data`` begins with ERF records; ``whole``: nothing is behind it."""
    at, before, records = 0, None, 0
    while records < PROBED and at + HEADER <= len(data):
        seconds, kind, _, length, _, wire = struct.unpack_from(">xxxx4sBBHHH", data, at)
        when = int.from_bytes(seconds, "little")
        if not 1 <= kind & 0x7F <= HIGHEST_TYPE or length < HEADER or not wire:
            return False
        if before is not None and abs(when - before) > NEAR:
            return False
        at, before, records = at + length, when, records + 1
    if records == PROBED:
        return True
    # The last of a file that is shorter must end where the file does, or be cut by its end.
    return records >= 2 if not whole or at > len(data) else records >= 1 and at == len(data)


def read_batches(feed: Feed, limits: Limits) -> Iterator[FrameBatch]:
    """The frames, in batches; raises CaptureError behind the last whole one where the file is damaged."""
    number = 0
    record_length = struct.Struct(">10xH").unpack_from
    while True:
        view = feed.data.data
        at, last = feed.at, min(len(view), feed.at + limits.bytes) - HEADER
        starts: list[int] = []
        bad = None
        while at <= last and len(starts) < limits.frames:
            length = record_length(view, at)[0]
            if length < HEADER:
                bad = length
                break
            starts.append(at)
            at += length
        if starts and at > len(view):
            starts.pop()
        if starts:
            offsets = np.array(starts, np.int64)
            heads = gather(feed.data, offsets, _LAYOUT)
            rows = np.zeros(len(starts), FRAME)
            rows["number"] = np.arange(number + 1, number + 1 + len(starts))
            fraction = heads["fraction"].astype(np.uint64) * np.uint64(1_000_000_000) >> np.uint64(32)
            rows["time"] = heads["seconds"].astype(np.int64) * 1_000_000_000 + fraction.astype(np.int64)
            rows["offset"], rows["captured"] = offsets, heads["length"]
            rows["original"] = np.maximum(HEADER + heads["wire"].astype(np.int64), heads["length"])
            rows["link_type"] = ERF
            number += len(starts)
            feed.at = starts[-1] + int(heads["length"][-1])
            yield FrameBatch(feed.data, rows)
            limits = limits.next()
        if bad is not None:
            feed.damaged(f"record {number + 1} claims a length of {bad} bytes")
        if not starts and not feed.more():
            left = len(feed.data) - feed.at
            feed.finish(f"record {number + 1}", record_length(view, feed.at)[0] if left >= HEADER else 0)
            return
