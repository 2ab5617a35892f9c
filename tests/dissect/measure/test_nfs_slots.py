"""Slots of a session: which request is the next on its slot, and when all of them were in use."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import NamedTuple

import numpy as np
from hypothesis import given, strategies as st

from rdmascope.dissect.measure import nfs_state
from rdmascope.dissect.measure.nfs_state import FALSE_RETRY, GAP, MAX_SLOTS, RETRY, SlotTable, SlotUse
from rdmascope.dissect.onc.compound import SlotResult


def asked(table: SlotTable, sequence: int, time: int, slot: int = 0, operation: str = "WRITE") -> SlotUse:
    one = SlotUse(time, 1, time, time, slot, sequence, False, ("SEQUENCE", operation))
    table.request(one)
    return one


def answered(table: SlotTable, one: SlotUse, time: int, status: int = 0, target: int | None = None) -> None:
    table.answered(one, time, SlotResult(status, 9, target))


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
    answered(table, second, 300)  # 40 more
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
    table.answered(asked(table, 1, 10), 60, None)
    assert (table.in_use, table.at_limit) == (0, 50)


@given(st.lists(st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.booleans())))
def test_any_requests(requests: list[tuple[int, int, bool]]) -> None:
    table = SlotTable(True, 3)
    for time, (sequence, slot, reply) in enumerate(requests):
        one = asked(table, sequence, time, slot)
        if reply:
            answered(table, one, time)
    assert 0 <= table.in_use <= table.max_in_use <= len(requests) == table.requests


def test_slots_and_events_are_bounded() -> None:
    table = SlotTable(True)
    for slot in range(2 * MAX_SLOTS):
        asked(table, 5, slot, slot)
    assert (table.untracked, table.requests, table.gaps) == (MAX_SLOTS, 2 * MAX_SLOTS, MAX_SLOTS)
    assert len(table.events) == nfs_state.MAX_EVENTS


class Event(NamedTuple):
    time: int
    use: SlotUse
    ended: bool


def events_of(turns: list[tuple[int, int]]) -> list[Event]:
    """Requests on slots and their ends, by turns; each sequence ID so many above the one before."""
    found: list[Event] = []
    outstanding: dict[int, SlotUse] = {}
    sequences = [0, 5, 2**32 - 1]
    closing = [(slot, 1) for slot in range(3) if sum(one == slot for one, _ in turns) % 2]
    for time, (slot, step) in enumerate([*turns, *closing], 10):
        use = outstanding.pop(slot, None)
        if use is not None:
            found.append(Event(time, use, True))
            continue
        sequences[slot] = sequences[slot] + step & 0xFFFFFFFF
        outstanding[slot] = SlotUse(time, 1, time, time, slot, sequences[slot], bool(time & 1))
        found.append(Event(time, outstanding[slot], False))
    return found


def one_by_one(table: SlotTable, events: list[Event], known: dict[int, SlotUse]) -> None:
    for time, use, ended in events:
        if ended:
            table.answered(known[use.rpc], time, SlotResult(0, 9))
        else:
            known[use.rpc] = replace(use)
            table.request(known[use.rpc])


def all_at_once(table: SlotTable, events: list[Event]) -> bool:
    names = ("number", "call_time", "call_frame", "slot", "sequence", "cached", "reply_end", "result")
    ends = {use.rpc: time for time, use, ended in events if ended}
    values = [
        (use.rpc, use.time, use.frame, use.slot, use.sequence, use.cached, ends.get(use.rpc, 0), 0)
        for _, use, _ in events
    ]
    rows = np.array(values, [(name, np.int64) for name in names])
    uses = {use.rpc: use for _, use, _ in events}
    made = lambda rows: (replace(uses[number], pending=False) for number in rows["number"].tolist())  # noqa: E731
    return table.take_routine(rows, np.array([event.ended for event in events]), [SlotResult(0, 9)], made)


TURNS = st.lists(st.tuples(st.integers(0, 2), st.sampled_from([1, 1, 1, 1, 0, 2])), min_size=1, max_size=30)


@given(TURNS, st.integers(0, 20), st.booleans(), st.sampled_from([None, 1, 2, 3]))
def test_many_at_once_are_taken_as_one_by_one(
    turns: list[tuple[int, int]], cut: int, begun: bool, agreed: int | None
) -> None:
    events = events_of(turns)
    cut = min(cut, len(events) - 1)
    one, other = SlotTable(begun, agreed), SlotTable(begun, agreed)
    for table in (one, other):
        known: dict[int, SlotUse] = {}
        one_by_one(table, events[:cut], known)
        if table is other:
            one_by_one(table, events[cut:], known)
        elif not all_at_once(table, events[cut:]):
            assert any(event.ended and event.use.rpc in known for event in events[cut:])
            return
    assert asdict(one) == asdict(other)
