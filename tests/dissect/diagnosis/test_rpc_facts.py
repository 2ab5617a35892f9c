"""What is gathered of RPCs: the same from columns as from one after the other, in bounded memory."""

from __future__ import annotations

import numpy as np
import pytest

from playbook.facts import MILLISECOND, SECOND, connection, many, rpc
from playbook.rows import decided
from playbook.samples import SAMPLES
from rdmascope.captures.session.session import Session
from rdmascope.dissect.diagnosis import rpc_facts
from rdmascope.dissect.diagnosis.rpc_facts import (
    MAX_EXAMPLES,
    MAX_GROUPS,
    MEASURES,
    Examples,
    Larger,
    RpcFacts,
    examples_by,
)
from rdmascope.dissect.measure.statistics import ProcedureKey
from rdmascope.dissect.rpcrdma.rpc_table import RpcTable


def gathered(name: str, rows: bool) -> RpcFacts:
    facts = RpcFacts()
    with decided(rows):
        for table in Session(str(SAMPLES / f"{name}.pcap.zst")).tables(chunk_rows=True):
            facts.add_table(table)
    return facts


def said(errors: dict[str, dict[ProcedureKey, Examples]]) -> dict[str, dict[ProcedureKey, tuple[int, int]]]:
    return {
        status: {key: (one.count, one.total) for key, one in by_procedure.items()}
        for status, by_procedure in errors.items()
    }


def weighed(larger: dict[tuple[int, int], Larger]) -> dict[tuple[int, int], tuple[int, int, int, tuple[int, ...]]]:
    return {
        place: (one.threshold, one.examples.count, one.examples.total, one.examples.rpcs)
        for place, one in larger.items()
    }


@pytest.mark.parametrize("name", ["meta-rxe", "longcall-rxe", "bidir-rxe", "rxe-nfs-all"])
def test_columns_give_the_same_as_one_after_the_other(name: str) -> None:
    one, other = gathered(name, True), gathered(name, False)
    assert said(one.errors) == said(other.errors) and one.error_times == other.error_times
    assert one.chunked == other.chunked
    assert weighed(one.larger) == weighed(other.larger)
    assert one.recalls == other.recalls
    assert all(recall.delegation and recall.returned for recall in one.recalls)
    assert bool(one.recalls) == (name == "bidir-rxe")
    assert one.delays.keys() == other.delays.keys() and one.unanswered == other.unanswered
    groups, again = one.groups(), other.groups()
    assert groups.keys() == again.keys()
    for key, sums in groups.items():
        for measure in MEASURES:
            assert float(getattr(sums, measure).sum()) == float(getattr(again[key], measure).sum())
    limits, once_more = one.at_limit(), other.at_limit()
    assert {key: (each.calls, each.busy, each.max_outstanding) for key, each in limits.items()} == {
        key: (each.calls, each.busy, each.max_outstanding) for key, each in once_more.items()
    }


def test_time_is_summed_in_a_bounded_number_of_intervals() -> None:
    facts = RpcFacts()
    for hour in range(48):
        facts.add_table(RpcTable([rpc(hour + 1, at=hour * 3600 * SECOND, takes=MILLISECOND)]))
    ((_, sums),) = facts.groups().items()
    assert sums.calls.sum() == 48 and sums.latency.sum() == 48 * MILLISECOND
    assert facts.width * len(sums.calls) >= 47 * 3600 * SECOND and np.count_nonzero(sums.calls) > 30


def test_too_many_procedures_become_one_group() -> None:
    facts = RpcFacts()
    facts.add_table(RpcTable([rpc(number, f"P{number}") for number in range(1, MAX_GROUPS + 100)]))
    groups = facts.groups()
    assert len(groups) == MAX_GROUPS + 1 and [key.operations for number, key in groups if not number] == [("other",)]
    assert sum(float(one.calls.sum()) for one in groups.values()) == MAX_GROUPS + 99


def test_the_worst_examples_are_kept() -> None:
    one, many_at_once = Examples(), Examples()
    weights = [5, 9, 1, 7, 3, 8, 2, 6]
    for number, weight in enumerate(weights, 1):
        one.add(weight, number, number * 10)
    for group, found in examples_by(np.zeros(8, np.int64), np.array(weights), np.arange(1, 9), np.arange(10, 90, 10)):
        assert not group
        many_at_once.join(found)
    assert one.rpcs == many_at_once.rpcs == (2, 6, 4, 8, 1) and one.frames == (20, 60, 40, 80, 10)
    assert one.count == many_at_once.count == 8 and one.total == many_at_once.total == sum(weights)
    assert len(one.rpcs) == MAX_EXAMPLES


def test_evicted_connections_are_not_counted_any_more() -> None:
    facts, gone = RpcFacts(), connection(2)
    facts.add_table(RpcTable([*many(5), *many(5, first=6, on=gone)]))
    facts.evict([gone])
    assert set(facts.at_limit()) == {(1, False)}


def test_evicted_connections_leave_nothing_that_waits() -> None:
    facts, gone = RpcFacts(), connection(2)
    for _ in range(3):
        facts.add_table(RpcTable(many(5, on=gone)))
        facts.evict([gone])
    assert not facts._calls


def test_delays_of_many_evicted_connections_are_summed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc_facts, "MAX_GROUPS", 2)
    facts = RpcFacts()
    for number in range(1, 10):
        gone = connection(number)
        for delayed in many(number, first=10 * number, on=gone):
            delayed.retransmission_delay = number
            facts.add_table(RpcTable([delayed]))
        facts.evict([gone])
    assert len(facts.delays) == 3
    assert sum(one.count for one in facts.delays.values()) == 45
    assert sum(one.total for one in facts.delays.values()) == sum(number * number for number in range(1, 10))
    assert facts.delays[0].rpcs == (90, 91, 92, 93, 94)


def test_calls_outstanding_are_the_same_however_many_wait_to_be_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    other, found = connection(2), []
    for together in (1, 25, 1 << 16):
        monkeypatch.setattr(rpc_facts, "CALLS_TOGETHER", together)
        facts = RpcFacts()
        for first in (1, 11, 21, 31):
            facts.add_table(RpcTable([*many(10, first=first), *many(10, first=first + 100, on=other)]))
        found.append(facts.at_limit())
        assert facts.at_limit() == found[-1]
    assert found[0] == found[1] == found[2] and set(found[0]) == {(1, False), (2, False)}
    assert found[0][1, False].calls == 40
