"""A column is declared once: what people type for it means the same in ``--where``, ``--sort``, ``--by`` and browse."""

from __future__ import annotations

import string
from pathlib import Path
from typing import Any

import pytest

from playbook.commands import objects
from playbook.samples import SAMPLES
from rdmascope.captures.session.grouping import KEYS, parse_group_keys
from rdmascope.captures.session.session import Session
from rdmascope.captures.tables import typed_sql
from rdmascope.captures.tables.browsed_tables import BrowsedTables, completions
from rdmascope.captures.tables.condition import Condition
from rdmascope.captures.tables.table_pass import table_batches
from rdmascope.captures.tables.typed_sql import SEVERAL
from rdmascope.cli.browse.listings import LISTINGS, ListingLayout, column_at
from rdmascope.dissect.records.tables import TABLES, sort_columns

RPCS = TABLES["rpcs"]
EVERYTHING = str(SAMPLES / "rxe-nfs-all.pcap.zst")


@pytest.mark.parametrize("typed", RPCS.typed)
def test_a_name_means_one_column(typed: str) -> None:
    column = RPCS.column(typed)
    assert column in RPCS.columns
    assert sort_columns(typed) == (column,)
    if typed not in ("export", "slot", "procedure", "host", "day"):
        assert [KEYS[key.name] for key in parse_group_keys(typed)] == [(column.name,)]


def test_conditions_take_them_all() -> None:
    for name in RPCS.typed.keys() - {column.name for column in RPCS.columns} - SEVERAL.keys():
        assert typed_sql.typed(f"{name} IS NULL").sql == f'"{RPCS.column(name).name}" IS NULL'
    condition = Condition([f"{name} IS NULL" for name in RPCS.typed if name not in SEVERAL])
    assert condition.names == {column.name for column in RPCS.columns[1:] if not column.place_of}
    condition.close()


def test_nothing_else_is_taken(tmp_path: Path) -> None:
    assert KEYS.keys() - RPCS.typed.keys() == {"export", "host", "day"}
    tables = BrowsedTables(str(tmp_path))
    proposed = {name for letter in string.ascii_lowercase for name in completions(tables, letter, 1000)}
    assert proposed == RPCS.typed.keys() - SEVERAL.keys()
    tables.close()


@pytest.mark.parametrize("noun", LISTINGS)
@pytest.mark.parametrize("width", [60, 90, 200])
def test_a_click_on_a_heading_finds_its_column(noun: str, width: int) -> None:
    layout = ListingLayout(0, width)
    heading = LISTINGS[noun].heading(layout)
    shown = [name for name in TABLES[noun].headings if f" {name} " in f" {heading} "]
    assert shown and column_at(noun, layout, len(heading)) in shown
    if " server " not in heading.replace("to server", ""):
        shown = [name for name in shown if name != "server"]
    assert {column_at(noun, layout, x) for x in range(len(heading))} == {*shown}


@pytest.mark.parametrize(
    "typed", ["latency", "to client", "path", "status", "conn", "offset", "operations", "time", "file"]
)
def test_a_list_is_sorted_by_it(typed: str) -> None:
    column = RPCS.column(typed)
    values: dict[int, Any] = {}
    for _, columns in table_batches(Session(EVERYTHING), {"rpcs": {"number", column.name}}):
        values |= zip(columns["number"].tolist(), columns[column.name].tolist(), strict=True)
    known = sorted(number for number, value in values.items() if value is not None)
    known.sort(key=lambda number: values[number], reverse=column.amount)
    unknown = [number for number in sorted(values) if values[number] is None]
    assert known and [one["number"] for one in objects("rpcs", EVERYTHING, "--sort", typed)] == known + unknown
