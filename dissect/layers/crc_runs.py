"""Many CRC-32 checked in one call: packets that follow each other in a file, joined to one message.

Behind a message with its own CRC, least significant byte first, the CRC register holds the same value always.  So the
bytes between two packets are replaced by such that lead the register from that value to the one with which the next
packet starts, and the register holds that value again behind the last packet if all of them are right: a wrong one goes
unnoticed as often as it would alone, once in 2^32.  Where a run does not hold, its packets have to be verified singly.
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ..arrays import Bytes, Int64s, places

try:
    from isal.isal_zlib import crc32
except ImportError:  # On a processor that it has no code for.
    from zlib import crc32

RESIDUE = 0x2144DF1C
"""What ``crc32`` gives for any message followed by its CRC."""
MAX_BRIDGE = 128
"""Bytes between two packets of a run: the headers of the file and of the network in front of what is covered."""
MIN_BRIDGE = 4
RUN_BYTES = 1 << 20
"""A run is copied: it should stay within the processor's caches."""
MIN_PACKETS = 4
"""Fewer are verified as fast singly."""

_MASK = 0xFFFFFFFF


@cache
def bridge(size: int, start: int) -> bytes:
    """``size`` bytes, at least four, that lead the CRC from RESIDUE to ``start``."""
    table = [~crc32(bytes((byte,)), _MASK) & _MASK for byte in range(256)]
    by_top = {entry >> 24: byte for byte, entry in enumerate(table)}
    zeros = bytes(size - 4)
    register = ~start & _MASK
    for _ in range(4):  # Back over four bytes of zero.
        byte = by_top[register >> 24]
        register = ((register ^ table[byte]) << 8 | byte) & _MASK
    return zeros + (register ^ ~crc32(zeros, RESIDUE) & _MASK).to_bytes(4, "little")


def find_right(data: Bytes, begin: Int64s, end: Int64s, headers: NDArray[np.uint8], start: int) -> NDArray[np.bool_]:
    """Which packets are known to be right by runs; the others may be right or wrong.

    Args:
        data: the file.
        begin: where the packets start.
        end: behind their CRCs.
        headers: (packets, n): what counts in place of their first n bytes.
        start: the CRC of what counts in front of each packet.
    """
    right = np.zeros(len(begin), np.bool_)
    size = headers.shape[1]
    between = begin[1:] - end[:-1]
    joined = (between >= MIN_BRIDGE) & (between <= MAX_BRIDGE)
    joined &= (begin[1:] - begin[0]) // RUN_BYTES == (begin[:-1] - begin[0]) // RUN_BYTES
    edges = [0, *(places(~joined) + 1).tolist(), len(begin)]
    masked = np.ascontiguousarray(headers).view(np.dtype((np.void, size)))[:, 0]
    runs = [(first, last) for first, last in pairwise(edges) if last - first >= MIN_PACKETS]
    # All in the same memory: to get some for each takes as long as its CRC.
    buffer = np.empty(max([int(end[last - 1] - begin[first]) for first, last in runs], default=0), np.uint8)
    for first, last in runs:
        origin = int(begin[first])
        run = buffer[: int(end[last - 1]) - origin]
        run[:] = data[origin : origin + len(run)]
        _place(run, begin[first:last] - origin, masked[first:last], size)
        gaps, after = between[first : last - 1], end[first : last - 1] - origin
        for gap in places(np.bincount(gaps)).tolist():
            filling = np.frombuffer(bridge(gap, start), np.dtype((np.void, gap)))
            _place(run, after[gaps == gap], filling, gap)
        if crc32(run.data, start) != RESIDUE:
            break  # Where one is damaged, or a host's are all wrong, more are to be expected.
        right[first:last] = True
    return right


def _place(run: NDArray[np.uint8], at: Int64s, what: NDArray[np.void], size: int) -> None:
    np.ndarray((len(run) - size + 1,), np.dtype((np.void, size)), run, strides=(1,))[at] = what
