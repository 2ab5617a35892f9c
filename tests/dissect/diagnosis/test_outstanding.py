"""Calls outstanding against credits, in columns, held against a simple count of events."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from rdmascope.dissect.diagnosis import rpc_facts
from rdmascope.dissect.diagnosis.rpc_facts import AtLimit, CallsOutstanding, columns_of

Rpcs = list[tuple[int, int]]


@pytest.fixture(autouse=True, params=[1, rpc_facts.TOGETHER])
def looked_at_together(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc_facts, "TOGETHER", request.param)


def counted(rpcs: Rpcs, *sizes: int, credits: int = 3) -> AtLimit:
    """Fed in batches of these sizes, and then the rest, in the order in which they end."""
    watched = CallsOutstanding()
    ordered = sorted(rpcs, key=lambda one: one[1])
    for size in (*sizes, len(ordered)):
        some, ordered = ordered[:size], ordered[size:]
        if some:
            begins, ends = np.array(some, np.int64).T
            limit = np.full(len(some), credits, np.int64)
            watched.add(columns_of(begins, ends, limit, limit))
    return watched.finish()


def truth(rpcs: Rpcs, credits: int) -> tuple[int, int, int]:
    """Time with a call outstanding, at the limit from the first reply on, and the most at one time."""
    busy = blocked = 0
    first_reply = min(end for _, end in rpcs)
    for moment in range(max(end for _, end in rpcs)):
        level = sum(begin <= moment < end for begin, end in rpcs)
        busy += level > 0
        blocked += level >= credits and moment >= first_reply
    highest = max(sum(begin <= one <= end for begin, end in rpcs) for _, one in rpcs)
    return busy, blocked, highest


spans = st.tuples(st.integers(0, 60), st.integers(1, 20)).map(lambda one: (one[0], one[0] + one[1]))


@given(st.lists(spans, min_size=1, max_size=20), st.integers(1, 4))
def test_all_at_once(rpcs: Rpcs, credits: int) -> None:
    found = counted(rpcs, credits=credits)
    busy, blocked, _ = truth(rpcs, credits)
    assert found.calls == len(rpcs) and found.busy == busy
    assert found.blocked == blocked


def test_replies_that_are_followed_by_a_call_at_once() -> None:
    chain = [(at * 10, at * 10 + 9) for at in range(20)]
    found = counted(chain, credits=1)
    assert found.freed == 19 and found.refilled == 18 and found.limit == 1 and found.max_outstanding == 1


def test_batches_are_settled_with_what_the_next_one_brings() -> None:
    rpcs = [(at * 7, at * 7 + 30) for at in range(60)]
    whole, parts = counted(rpcs), counted(rpcs, 20, 20)
    assert whole == parts
