"""Credits over time: fewer intervals kept later are those that would have been kept from the beginning."""

from __future__ import annotations

from hypothesis import given, strategies as st

from rdmascope.dissect.measure.credits import CreditDirection, shared_bins
from rdmascope.dissect.transport.connection import Connection


@given(
    st.lists(st.tuples(st.integers(0, 40_000_000), st.booleans(), st.integers(1, 3)), max_size=60),
    st.integers(1, 16),
)
def test_narrowed_bins_are_those_of_a_direction_that_never_had_more(
    events: list[tuple[int, bool, int]], bins: int
) -> None:
    connection = Connection.__new__(Connection)
    wide, narrow = (CreditDirection(connection, False, size) for size in (64, bins))
    for one in wide, narrow:
        now = 1
        for passed, is_call, credits in events:
            now += passed
            if is_call:
                one.call(now, credits)
            else:
                one.reply(now, credits, one.outstanding > 0)
    wide.narrow(bins)
    assert (wide.width, wide.bins) == (narrow.width, narrow.bins)
    assert len(wide.bins) <= bins


def test_later_connections_have_fewer_bins() -> None:
    assert shared_bins(1) == shared_bins(32) == 2048
    assert shared_bins(64) == 1024
    assert shared_bins(1 << 20) == 16


def test_two_bins_hold_all_times_there_are() -> None:
    direction = CreditDirection(Connection.__new__(Connection), False, 2)
    for time in -(1 << 62), -5, 5, 1 << 62:
        direction.call(time, 1)
        direction.reply(time + 1, 1, False)
    assert (direction.calls, direction.replies, len(direction.bins)) == (4, 4, 2)
