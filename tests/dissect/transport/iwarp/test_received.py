"""Streams of a batch that are fed together do not touch each other."""

from __future__ import annotations

import numpy as np

from rdmascope.dissect.link.tcp import ACK, SEGMENT
from rdmascope.dissect.transport.iwarp.stream import ByteStream, SegmentClock, received
from rdmascope.dissect.transport.sections import QueueSections


def test_numbers_that_leap_in_one_stream_hide_no_gap_in_another() -> None:
    leaps = 600
    rows = np.zeros(leaps + 2, SEGMENT)
    rows["frame"] = np.arange(1, len(rows) + 1)
    rows["flags"], rows["length"] = ACK, 2
    rows["seq"][:leaps] = np.arange(leaps) * (2**31 - 1) % 2**32
    # 98 bytes behind these 2 are missing, as an acknowledgement shows.
    rows["seq"][leaps:], rows["length"][-1] = (1000, 1100), 0
    streams = ByteStream(), ByteStream()
    clocks = [SegmentClock(0, rows, np.arange(len(rows)), None, rows[:0]) for _ in streams]
    sections = QueueSections(np.repeat([0, 1], [leaps, 2]), 2)
    _, (chunk,) = received(streams, np.zeros(2, np.uint8), rows, sections, clocks)
    assert chunk[1]["at"].tolist() == [1000]
    assert streams[1].retransmissions.head == 1100 and streams[1].retransmissions.segments == 1
