"""Numbers of addresses: the same as long as an address is remembered, and no more are than was asked for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from rdmascope.dissect.link import addresses
from rdmascope.dissect.link.addresses import FORGOTTEN, AddressTable

LIMIT = 8


def ids(table: AddressTable, hosts: list[int]) -> list[int]:
    found: list[int] = table.ipv4_ids(np.array(hosts, np.uint32)).tolist()
    return found


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "RECENT", 0)


@given(st.lists(st.lists(st.integers(0, 40), max_size=6), max_size=40))
def test_a_number_is_given_once_and_few_are_remembered(batches: list[list[int]]) -> None:
    bounded, whole = AddressTable(LIMIT), AddressTable()
    named: dict[int, str] = {}
    for hosts in batches:
        found = ids(bounded, hosts)
        assert [bounded.name(one) for one in found] == [whole.name(one) for one in ids(whole, hosts)]
        for one in found:
            assert named.setdefault(one, bounded.name(one)) == bounded.name(one)
        assert len({*hosts}) == len({*found})
        remembered = [one for one in range(len(bounded)) if bounded.name(one) != FORGOTTEN]
        # Those of the batch that brought them above half of it go at once, or stay at once.
        assert len(remembered) <= LIMIT // 2 - 1 + 6 + 6 and {*found} <= {*remembered}


def test_those_go_that_were_not_seen_for_the_longest() -> None:
    table = AddressTable(LIMIT)
    busy = ids(table, [1, 2])
    for host in range(100, 200):
        ids(table, [host])
        assert ids(table, [1, 2]) == busy
    assert table.name(2) == FORGOTTEN and table.name(busy[0]) == "0.0.0.1"
    assert ids(table, [100]) == [len(table) - 1]


def test_what_was_seen_in_the_last_batches_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "RECENT", 3)
    table = AddressTable(LIMIT)
    many = ids(table, [*range(20)])
    for _ in range(4):
        assert ids(table, [*range(20)]) == many
