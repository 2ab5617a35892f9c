"""When packets were sent, in a bounded number of intervals."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from playbook.samples import MANIFEST, SAMPLES
from rdmascope.captures.session.session import Session
from rdmascope.dissect.transport.retransmissions import MAX_INTERVALS, PacketTimes


@given(st.lists(st.lists(st.integers(0, 2**62), max_size=800), max_size=5))
def test_every_packet_is_counted_near_its_time(batches: list[list[int]]) -> None:
    times = PacketTimes()
    for batch in batches:
        times.add(batch)
    moments = times.moments()
    every = sorted(time for batch in batches for time in batch)
    assert sum(count for _, count in moments) == len(every) and len(moments) <= MAX_INTERVALS
    assert [moment for moment, _ in moments] == sorted({moment for moment, _ in moments})
    nearest = [moment for moment, count in moments for _ in range(count)]
    width = 2 * max([512, *(abs(one - other) for one, other in zip(nearest, every, strict=True))])
    assert width <= max(1 << 11, 4 * (every[-1] - every[0]) if every else 0)


@pytest.mark.parametrize("name", ["loss-rxe", "loss-siw", "rxe-nfs-all"])
def test_each_retransmitted_packet_has_its_time(name: str) -> None:
    session = Session(str(SAMPLES / MANIFEST[name]["file"]))
    for _ in session.tables():
        pass
    first, last = session.analyzer.earliest_time or 0, session.analyzer.last_time or 0
    for conversation in session.analyzer.conversations:
        health = session.analyzer.health(conversation.connection.number)
        for one in health.directions:
            assert sum(packets for _, packets in one.retransmission_times) == one.retransmitted.packets
            assert all(first - 10**6 <= time <= last + 10**6 for time, _ in one.retransmission_times)
