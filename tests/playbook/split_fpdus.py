"""A stretch of MPA stream as its FPDUs, one after the other."""

from __future__ import annotations

from typing import NamedTuple

from rdmascope.dissect.layers.fpdus import LENGTH_BYTES, MarkerGrid, fpdu_bytes, remove_markers


class Framed(NamedTuple):
    """One FPDU of a stretch of stream."""

    at: int
    """Offset of its first byte, which is a marker's where one stands before it."""
    wire: bytes
    """As sent, markers included: what the CRC covers, and the CRC."""
    fpdu: bytes
    """Without markers."""


def split_fpdus(stream: bytes, position: int | None = None) -> list[Framed]:
    """The FPDUs of a stretch of stream that begins with one, up to the first that is truncated.

    ``position`` is given where the sender inserts markers.
    """
    data, grid = stream, None
    if position is not None:
        data, grid = remove_markers(stream, position)[0], MarkerGrid(-position)
    first = 0 if grid is None else grid.place(0)
    fpdus: list[Framed] = []
    at = 0
    while at + LENGTH_BYTES <= len(data):
        end = at + fpdu_bytes(int.from_bytes(data[at : at + LENGTH_BYTES], "big"))
        if end > len(data):
            break
        start, stop = (at, end) if grid is None else (max(0, grid.start(first + at)), grid.start(first + end))
        fpdus.append(Framed(start, stream[start:stop], data[at:end]))
        at = end
    return fpdus
