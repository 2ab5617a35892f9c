"""Formats whose records follow each other: pcap, and ERF.

A pcap is a header of 24 bytes, then records of a 16-byte header and a frame
(https://datatracker.ietf.org/doc/draft-ietf-opsawg-pcap/, sections 4 and 5).  Byte order is the writer's.

The ERF file format: records of Endace's Extensible Record Format one after the other, without a file header.

A record: time (8 bytes, little-endian, in units of 2**-32 seconds since 1970), type, flags, record length, loss
counter or colour, wire length (big-endian, 2 bytes each), extension headers, the frame, padding.  A frame here is
the whole record, as it is behind link type 197 in a pcap; ``rdmascope.dissect`` takes the header off.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator
from contextlib import suppress
from itertools import repeat

import numpy as np

from rdmascope.dissect.arrays import Int64s, Rows, gather, places
from rdmascope.dissect.frames import FRAME, FrameBatch
from rdmascope.dissect.link.numbers import ERF
from rdmascope.dissect.named_tuple import NamedTuple

from .streams import MAX_IN_RECORD, Feed, Limits

MAGICS = {  # first four bytes: (struct byte order, nanoseconds in the record's second field)
    b"\xa1\xb2\xc3\xd4": (">", 1000),
    b"\xd4\xc3\xb2\xa1": ("<", 1000),
    b"\xa1\xb2\x3c\x4d": (">", 1),
    b"\x4d\x3c\xb2\xa1": ("<", 1),
}
FILE_HEADER = 24
RECORD_HEADER = 16
USUAL_SNAPLEN = 262144
"""No writer of frames goes beyond it unless the file header's snaplen does."""

MAX_ZERO_RECORDS = 4096
"""Records of no length and no time in a row: so many are no frames, but space that was never written to."""


class PcapHeader(NamedTuple):
    byte_order: str
    """'<' or '>', as struct has it."""
    scale: int
    """Nanoseconds in one unit of the second time field."""
    snaplen: int
    link_type: int


def read_header(feed: Feed) -> PcapHeader:
    """Reads the file header; the magic number is known to be one of MAGICS."""
    feed.need(FILE_HEADER, "the file header")
    head = feed.data[feed.at : feed.at + FILE_HEADER].tobytes()
    byte_order, scale = MAGICS[head[:4]]
    snaplen, link_type = struct.unpack(byte_order + "II", head[16:])
    feed.at += FILE_HEADER
    return PcapHeader(byte_order, scale, snaplen, link_type & 0xFFFF)  # above are flags and the FCS length


def read_batches(feed: Feed, header: PcapHeader, limits: Limits) -> Iterator[FrameBatch]:
    """The frames, in batches; raises CaptureError behind the last whole one where the file is damaged."""
    layout = np.dtype([(name, header.byte_order + "u4") for name in ("seconds", "fraction", "captured", "original")])
    largest = min(max(header.snaplen, USUAL_SNAPLEN), MAX_IN_RECORD)
    number = 0
    while True:
        starts, behind = _boundaries(feed, header.byte_order, limits)
        heads = gather(feed.data, starts, layout)
        captured = heads["captured"].astype(np.int64)
        impossible = places(captured > largest)
        whole = int(impossible[0]) if len(impossible) else len(starts) - (behind > len(feed.data))
        if (zeros := _zero_records(heads[:whole], captured[:whole])) is not None:
            whole = zeros
        if whole:
            rows = _rows(heads[:whole], starts[:whole], captured[:whole], header)
            rows["number"] = np.arange(number + 1, number + 1 + whole)
            number += whole
            feed.at = int(starts[whole - 1]) + RECORD_HEADER + int(captured[whole - 1])
            yield FrameBatch(feed.data, rows)
            limits = limits.next()
        if zeros is not None:
            feed.damaged(f"zeros in place of frame {number + 1}: space that was never written to")
        if len(impossible):
            feed.damaged(
                f"frame {number + 1} claims {int(captured[whole])} bytes, more than the {largest} possible",
            )
        if not whole and not feed.more():
            size = RECORD_HEADER + int(captured[0]) if len(captured) else 0
            feed.finish(f"frame {number + 1}", size)
            return


def _zero_records(heads: Rows, captured: Int64s) -> int | None:
    """The first of too many records in a row that are all zeros."""
    if len(heads) - np.count_nonzero(captured) < MAX_ZERO_RECORDS:
        return None
    words = heads.view("u8")
    others = places(words[::2] | words[1::2])
    edges = np.concatenate(([-1], others, [len(heads)]))
    long = places(np.diff(edges) > MAX_ZERO_RECORDS)
    return int(edges[long[0]]) + 1 if len(long) else None


def _boundaries(feed: Feed, byte_order: str, limits: Limits) -> tuple[Int64s, int]:
    """Where records start that have their header here, and where the last of them would end."""
    captured = struct.Struct(byte_order + "8xI4x").unpack_from
    at = feed.at
    view = feed.data.data[: at + limits.bytes]
    starts: array[int] = array("q")  # A list of as many integers does not stay in the caches.
    append = starts.append
    with suppress(struct.error):  # To compare with the end each time takes longer.
        for _ in repeat(None, limits.frames):
            (length,) = captured(view, at)
            append(at)
            at += 16 + length
    return np.frombuffer(starts, np.int64), at


def _rows(heads: Rows, starts: Int64s, captured: Int64s, header: PcapHeader) -> Rows:
    rows = np.zeros(len(heads), FRAME)
    rows["time"] = heads["seconds"].astype(np.int64) * 1_000_000_000
    rows["time"] += heads["fraction"].astype(np.int64) * header.scale
    rows["offset"] = starts + RECORD_HEADER
    rows["captured"] = captured
    rows["original"] = np.minimum(heads["original"], 0x7FFFFFFF)
    rows["link_type"] = header.link_type
    return rows


ERF_HEADER = 16
HIGHEST_ERF_TYPE = 48
"""The types in use are 1 to 27, and 48 for padding."""
ERF_PROBED = 20
"""Records that must look right for a file to be taken for ERF: it has no magic number."""
ERF_NEAR = 3600
"""Seconds by which the times of those records may differ from one to the next."""

_ERF_LAYOUT = np.dtype(
    [("fraction", "<u4"), ("seconds", "<u4"), ("type", "u1"), ("flags", "u1"), ("length", ">u2"),
     ("lost", ">u2"), ("wire", ">u2")]
)  # fmt: skip


def looks_like_erf(data: memoryview, whole: bool) -> bool:
    """Whether ``data`` begins with ERF records; ``whole``: nothing is behind it."""
    at, before, records = 0, None, 0
    while records < ERF_PROBED and at + ERF_HEADER <= len(data):
        seconds, kind, _, length, _, wire = struct.unpack_from(">xxxx4sBBHHH", data, at)
        when = int.from_bytes(seconds, "little")
        if not 1 <= kind & 0x7F <= HIGHEST_ERF_TYPE or length < ERF_HEADER or not wire:
            return False
        if before is not None and abs(when - before) > ERF_NEAR:
            return False
        at, before, records = at + length, when, records + 1
    if records == ERF_PROBED:
        return True
    # The last of a file that is shorter must end where the file does, or be cut by its end.
    return records >= 2 if not whole or at > len(data) else records >= 1 and at == len(data)


def read_erf_batches(feed: Feed, limits: Limits) -> Iterator[FrameBatch]:
    """The frames, in batches; raises CaptureError behind the last whole one where the file is damaged."""
    number = 0
    record_length = struct.Struct(">10xH").unpack_from
    while True:
        view = feed.data.data
        at, last = feed.at, min(len(view), feed.at + limits.bytes) - ERF_HEADER
        starts: list[int] = []
        bad = None
        while at <= last and len(starts) < limits.frames:
            length = record_length(view, at)[0]
            if length < ERF_HEADER:
                bad = length
                break
            starts.append(at)
            at += length
        if starts and at > len(view):
            starts.pop()
        if starts:
            offsets = np.array(starts, np.int64)
            heads = gather(feed.data, offsets, _ERF_LAYOUT)
            rows = np.zeros(len(starts), FRAME)
            rows["number"] = np.arange(number + 1, number + 1 + len(starts))
            fraction = heads["fraction"].astype(np.uint64) * np.uint64(1_000_000_000) >> np.uint64(32)
            rows["time"] = heads["seconds"].astype(np.int64) * 1_000_000_000 + fraction.astype(np.int64)
            rows["offset"], rows["captured"] = offsets, heads["length"]
            rows["original"] = np.maximum(ERF_HEADER + heads["wire"].astype(np.int64), heads["length"])
            rows["link_type"] = ERF
            number += len(starts)
            feed.at = starts[-1] + int(heads["length"][-1])
            yield FrameBatch(feed.data, rows)
            limits = limits.next()
        if bad is not None:
            feed.damaged(f"record {number + 1} claims a length of {bad} bytes")
        if not starts and not feed.more():
            left = len(feed.data) - feed.at
            feed.finish(f"record {number + 1}", record_length(view, feed.at)[0] if left >= ERF_HEADER else 0)
            return
