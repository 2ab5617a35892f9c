"""What a capture holds of a conversation: frames, files, batches, and which bytes of which message."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from rdmascope.dissect.frames import FRAME, FrameBatch

from .packets import READ_REQUEST, WRITE_FIRST, WRITE_ONLY, WRITE_ONLY_IMM, Frame, Packet, encode_frames
from .wire import TrueRpc, Wire

Ranges = list[tuple[int, int]]

WITH_RETH = frozenset({READ_REQUEST, WRITE_FIRST, WRITE_ONLY, WRITE_ONLY_IMM})


def write_pcap(frames: Sequence[Frame], path: Path, snaplen: int = 262144) -> None:
    """A pcap file, nanoseconds, little endian, LINKTYPE_ETHERNET."""
    with path.open("wb") as out:
        out.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, snaplen, 1))
        for frame in frames:
            second, rest = divmod(frame.time, 1_000_000_000)
            out.write(struct.pack("<IIII", second, rest, len(frame.data), frame.original) + frame.data)


def frame_batch(frames: Sequence[Frame], first: int = 1) -> FrameBatch:
    """The frames as the analyzer takes them; the first has number ``first``."""
    rows = np.zeros(len(frames), FRAME)
    offset = 0
    for index, frame in enumerate(frames):
        rows[index] = (first + index, frame.time, offset, len(frame.data), frame.original, 1, 0)
        offset += len(frame.data)
    data = np.frombuffer(b"".join(frame.data for frame in frames), np.uint8)
    return FrameBatch(data, rows)


def frame_batches(frames: Sequence[Frame], cuts: Sequence[int], mapped: bool = False) -> list[FrameBatch]:
    """Several batches, split at the given indices; ``mapped``: of one file, which is their data."""
    edges = sorted({0, len(frames), *(cut % (len(frames) + 1) for cut in cuts)})
    if mapped:
        whole = frame_batch(frames)
        return [FrameBatch(whole.data, whole.rows[start:end]) for start, end in pairwise(edges)]
    return [frame_batch(frames[start:end], start + 1) for start, end in pairwise(edges)]


class Capture:
    """The packets that were recorded, beside the truth of the wire."""

    def __init__(self, wire: Wire, packets: list[Packet] | None = None) -> None:
        self.wire = wire
        self.packets = wire.packets if packets is None else packets
        self.frames = encode_frames(self.packets)
        self.covered: dict[int, Ranges] = {}
        self.located: dict[int, int] = {}
        """Operation -> the first of its bytes whose address a captured RETH tells."""
        for packet, frame in zip(self.packets, self.frames, strict=True):
            if not packet.operation or packet.corrupt:
                continue
            tail = len(packet.payload) + -len(packet.payload) % 4 + 4
            there = min(len(packet.payload), len(frame.data) - (frame.original - tail))
            if packet.opcode in WITH_RETH and there >= 0:
                before = self.located.get(packet.operation, packet.at)
                self.located[packet.operation] = min(before, packet.at)
            if there > 0:
                self.covered.setdefault(packet.operation, []).append((packet.at, packet.at + there))

    def operations(self, frame: int) -> list[int]:
        """The operations that have something in a frame."""
        return [self.packets[frame - 1].operation]

    def has(self, operation: int, start: int, end: int) -> bool:
        """Bytes [start, end) of the operation are in the capture."""
        return not subtract([(start, end)], self.covered.get(operation, []))

    def missing(self, true: TrueRpc, part: str) -> Ranges:
        """The bytes of the whole call or reply that the capture does not hold, ascending and merged.

        Bytes of a Read or Write whose RETH was not captured count as missing: nothing says where they belong.
        """
        send = true.call_operation if part == "call" else true.reply_operation
        found: Ranges = []
        for number in [send, *true.operations]:
            operation = self.wire.operations[number]
            for place in operation.places:
                if place.rpc != true.index or place.part != part:
                    continue
                wanted = [(place.start, place.start + place.length)]
                known = 0 if operation.kind == "send" else self.located.get(number, len(operation.data))
                covered = [(max(start, known), end) for start, end in self.covered.get(number, [])]
                for start, end in subtract(wanted, [part for part in covered if part[0] < part[1]]):
                    found.append((start - place.start + place.at, end - place.start + place.at))
        return merge(found)

    def header(self, true: TrueRpc, part: str) -> bool:
        """The whole transport header of the call or reply is in the capture."""
        if part == "call":
            return self.has(true.call_operation, 0, true.call_header)
        return bool(true.reply_operation) and self.has(true.reply_operation, 0, true.reply_header)


def merge(ranges: Ranges) -> Ranges:
    merged: Ranges = []
    for start, end in sorted(ranges):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        elif end > start:
            merged.append((start, end))
    return merged


def subtract(wanted: Ranges, covered: Ranges) -> Ranges:
    """The part of ``wanted`` outside ``covered``."""
    left = merge(wanted)
    for begin, stop in covered:
        kept: Ranges = []
        for start, end in left:
            kept += [(start, min(end, begin)), (max(start, stop), end)]
        left = [(start, end) for start, end in kept if end > start]
    return left
