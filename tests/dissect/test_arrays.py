"""Distinct values, and which of them each row has."""

from importlib import import_module
from pkgutil import walk_packages
from unittest.mock import patch

import numpy as np
from hypothesis import given, strategies as st

from rdmascope import dissect
from rdmascope.dissect import arrays
from rdmascope.dissect.arrays import coded_keys, distinct


def test_keys_are_numbered_as_they_appear() -> None:
    handles = [b"root", None, b"dir", b"root", None]
    keys, which = coded_keys(zip(handles, [1, 1, 1, 1, 2], strict=True), 5)
    assert keys == [(b"root", 1), (None, 1), (b"dir", 1), (None, 2)]
    assert which.tolist() == [0, 1, 2, 0, 3]


def test_there_may_be_no_key() -> None:
    none: list[int] = []
    keys, which = coded_keys(none, 0)
    assert keys == []
    assert which.tolist() == []


@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 1 << 40)), max_size=40))
def test_distinct_combinations_are_the_same_of_few_rows_and_of_many(rows: list[tuple[int, int]]) -> None:
    columns = np.array(rows, np.int64).reshape(-1, 2).T
    few = distinct(*columns)
    with patch.object(arrays, "FEW", -1):
        many = distinct(*columns)
    assert [column.tolist() for column in few] == [column.tolist() for column in many]
    assert [rows[few[0][code]] for code in few[1].tolist()] == rows


def test_rows_are_aligned() -> None:
    found = 0
    for module in walk_packages(dissect.__path__, f"{dissect.__name__}."):
        for name, layout in vars(import_module(module.name)).items():
            if not isinstance(layout, np.dtype) or not layout.fields:
                continue
            fields = layout.fields.values()
            if all(field.isnative for field, *_ in fields):
                found += 1
                for field, offset, *_ in fields:
                    aligned = offset % field.alignment == layout.itemsize % field.alignment == 0
                    assert aligned, f"{module.name}.{name}"
    assert found > 10
