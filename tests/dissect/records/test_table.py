"""Nouns as columns, in batches."""

from __future__ import annotations

import numpy as np
from hypothesis import given, strategies as st

from rdmascope.dissect.records.rpc_columns import DTYPES, Columns, Table, TableBuilder, TableColumn, joined
from rdmascope.dissect.records.tables import TABLES

PAIRS = Table(
    "pairs",
    "pair",
    "a number and a word",
    (
        TableColumn("number", "uint", "the number", lambda row: row[0]),
        TableColumn("seconds", "time", "the number as a time", lambda row: row[0] % (1 << 62)),
        TableColumn("word", "text", "the word", lambda row: row[1]),
    ),
    lambda pair: [pair] * pair[2],
)
Pair = tuple[int, str | None, int]
pairs = st.lists(
    st.tuples(st.integers(0, (1 << 64) - 1), st.none() | st.text(max_size=3), st.integers(0, 3)), max_size=9
)


def columns(nouns: list[Pair]) -> Columns:
    builder = TableBuilder(PAIRS)
    for noun in nouns:
        builder.add(noun)
    return builder.take()


@given(pairs, st.integers(1, 5))
def test_batches_say_what_the_whole_says(nouns: list[Pair], size: int) -> None:
    whole = columns(nouns)
    builder = TableBuilder(PAIRS)
    batches = []
    for at, noun in enumerate(nouns, 1):
        builder.add(noun)
        if at % size == 0 or at == len(nouns):
            batches.append(builder.take())
            assert len(builder) == 0
    assert {name: values.tolist() for name, values in joined(PAIRS, batches).items()} == {
        name: values.tolist() for name, values in whole.items()
    }
    rows = [noun for noun in nouns for _ in range(noun[2])]
    assert whole["number"].tolist() == [noun[0] for noun in rows]
    assert whole["word"].tolist() == [noun[1] for noun in rows]


def test_a_time_is_a_numpy_time() -> None:
    made = columns([(1_795_219_967_442_760_001, None, 1)])
    assert made["seconds"].dtype == np.dtype("datetime64[ns]")
    assert str(made["seconds"][0]) == "2026-11-21T00:12:47.442760001"
    assert made["word"].mask.tolist() == [True]


def test_every_column_has_a_known_type_and_one_name() -> None:
    for table in TABLES.values():
        names = [column.name for column in table.columns]
        assert len(set(names)) == len(names), table.name
        assert {column.type for column in table.columns} <= DTYPES.keys()
        assert all(column.meaning for column in table.columns)
