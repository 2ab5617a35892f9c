"""XIDs answered last, in columns and one by one: as if all had come one by one."""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter

import numpy as np
from hypothesis import given, strategies as st

from rdmascope.dissect.rpcrdma.rpc_numbers import MAX_ANSWERED, AnsweredXids

BATCH = st.lists(st.tuples(st.booleans(), st.integers(0, 20)), max_size=12)


@given(st.lists(BATCH, max_size=6), st.lists(st.integers(0, 80), max_size=3), st.integers(2, 8))
def test_columns_and_single_ones(batches: list[list[tuple[bool, int]]], asked: list[int], most: int) -> None:
    """``(True, xid)``: of those that come in columns, as far as they follow each other."""
    columns, reference = AnsweredXids(most), AnsweredXids(most)
    number = 0
    for batch in batches:
        for in_columns, each in groupby(batch, itemgetter(0)):
            xids = [xid for _, xid in each]
            numbers = [number := number + 1 for _ in xids]
            for xid, one in zip(xids, numbers, strict=True):
                reference.add(xid, one)
                if not in_columns:
                    columns.add(xid, one)
            if in_columns:
                columns.extend(xids, numbers, range(len(xids)))
            if number in asked:
                assert columns.get(21) is None
        if number % 3 == 0:
            assert [columns.get(xid) for xid in range(21)] == [reference.get(xid) for xid in range(21)]
    assert columns.get(99) is None and reference.get(99) is None
    assert columns.soonest == reference.soonest
    assert columns._known[:2].tolist() == reference._known[:2].tolist()


def test_only_the_last_are_held() -> None:
    held = AnsweredXids()
    for start in range(0, 100_000, 1000):
        xids = np.arange(start, start + 1000)
        held.extend(xids.data, (xids + 1).data, range(len(xids)))
        assert sum(len(one) for one, *_ in (held._known, *held._later)) <= 3 * MAX_ANSWERED
    assert (held.get(99_999), held.get(100_000 - MAX_ANSWERED), held.get(99_999 - MAX_ANSWERED)) == (
        100_000, 100_001 - MAX_ANSWERED, None,
    )  # fmt: skip
