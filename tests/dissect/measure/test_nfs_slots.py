"""Slots of a session: which request is the next on its slot, and when all of them were in use."""

from __future__ import annotations

from hypothesis import given, strategies as st

from rdmascope.dissect.measure import nfs_state
from rdmascope.dissect.measure.nfs_state import FALSE_RETRY, GAP, MAX_SLOTS, RETRY, SlotTable, SlotUse
from rdmascope.dissect.onc.compound import SlotRequest, SlotResult


def asked(table: SlotTable, sequence: int, time: int, slot: int = 0, operation: str = "WRITE") -> SlotUse:
    one = SlotUse(time, 1, time, time, sequence, False, ("SEQUENCE", operation))
    table.request(one, SlotRequest(bytes(16), sequence, slot, slot, False))
    return one


def answered(
    table: SlotTable, one: SlotUse, time: int, slot: int = 0, status: int = 0, target: int | None = None
) -> None:
    table.answered(one, slot, time, SlotResult(status, 9, target))


def kinds(table: SlotTable) -> list[str]:
    table.settle()
    return [event.kind for event in table.events]


def test_requests_one_after_the_other() -> None:
    table = SlotTable(True, 2)
    for number in range(1, 6):
        answered(table, asked(table, number, 10 * number), 10 * number + 5)
    assert (table.requests, table.max_in_use, table.in_use, table.at_limit, kinds(table)) == (5, 1, 0, 0, [])


def test_the_same_sequence_id_is_a_retry_of_the_same_operations_only() -> None:
    table = SlotTable(True, 2)
    asked(table, 1, 10)
    asked(table, 1, 20)
    asked(table, 1, 30, operation="READ")
    assert kinds(table) == [RETRY, FALSE_RETRY]
    assert (table.retries, table.gaps, table.max_in_use) == (2, 0, 1)
    assert table.events[0].earlier is not None and table.events[0].earlier.frame == 10


def test_a_refused_sequence_leaves_the_slot_as_it_was() -> None:
    table = SlotTable(True, 2)
    answered(table, asked(table, 1, 10), 15, status=10008)
    answered(table, asked(table, 1, 20), 25)
    asked(table, 2, 30)
    assert kinds(table) == []


def test_gaps() -> None:
    table = SlotTable(True)
    asked(table, 3, 10)
    asked(table, 7, 20)
    assert kinds(table) == [GAP, GAP]
    assert [event.expected for event in table.events] == [1, 4]


def test_a_session_from_before_the_capture_begins_anywhere() -> None:
    table = SlotTable(False)
    asked(table, 2**32 - 1, 10)
    asked(table, 0, 20)
    assert kinds(table) == []


def test_time_with_all_slots_in_use() -> None:
    table = SlotTable(True, 2)
    first = asked(table, 1, 100, 0)
    second = asked(table, 1, 200, 1)
    answered(table, first, 250)  # 50 at the limit
    third = asked(table, 2, 260, 0)
    answered(table, second, 300, 1)  # 40 more
    answered(table, third, 400)
    assert (table.at_limit, table.at_limit_count, table.refilled, table.max_in_use) == (90, 2, 1, 2)
    assert table.full == ((200, 200), (260, 260))


def test_the_replier_may_allow_fewer_slots_than_were_agreed() -> None:
    table = SlotTable(True, 30)
    answered(table, asked(table, 1, 10), 20, target=0)
    asked(table, 2, 30)
    table.advance(80)
    assert (table.limit, table.at_limit, table.targets) == (1, 50, (0, 0))


def test_a_request_without_reply_frees_its_slot_when_it_is_given_up() -> None:
    table = SlotTable(True, 1)
    table.answered(asked(table, 1, 10), 0, 60, None)
    assert (table.in_use, table.at_limit) == (0, 50)


@given(st.lists(st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.booleans())))
def test_any_requests(requests: list[tuple[int, int, bool]]) -> None:
    table = SlotTable(True, 3)
    for time, (sequence, slot, reply) in enumerate(requests):
        one = asked(table, sequence, time, slot)
        if reply:
            answered(table, one, time, slot)
    assert 0 <= table.in_use <= table.max_in_use <= len(requests) == table.requests


def test_slots_and_events_are_bounded() -> None:
    table = SlotTable(True)
    for slot in range(2 * MAX_SLOTS):
        asked(table, 5, slot, slot)
    assert (table.untracked, table.requests, table.gaps) == (MAX_SLOTS, 2 * MAX_SLOTS, MAX_SLOTS)
    assert len(table.events) == nfs_state.MAX_EVENTS
