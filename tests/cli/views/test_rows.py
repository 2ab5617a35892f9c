"""Rows of a query's result on screens of different widths."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st
from rich.cells import cell_len

from rdmascope.cli.sanitize import harmless_line
from rdmascope.cli.views.tables import lines

NAMES, TYPES = ("name", "number"), ("VARCHAR", "BIGINT")
ROWS = [("a", 1), ("bbb", 22), (None, None)]


def drawn(width: int | None, rows: list[tuple[object, ...]] | None = None, block: int = 1000) -> list[str]:
    return [line.plain for line in lines(NAMES, TYPES, ROWS if rows is None else rows, width, block)]


def test_numbers_stand_on_the_right() -> None:
    assert drawn(80) == ["name  number", "a          1", "bbb       22", "-          -"]
    assert drawn(None) == drawn(12) == drawn(80)


def test_what_is_too_wide_is_a_list() -> None:
    assert drawn(11)[:5] == ["row 1", "  name    a", "  number  1", "row 2", "  name    bbb"]


def test_a_result_without_rows_has_its_names() -> None:
    assert drawn(80, []) == ["name  number"]


def test_later_rows_may_be_wider_where_nothing_limits_them() -> None:
    assert drawn(None, [("a", 1), ("much longer", 2)], block=1) == [
        "name  number",
        "a          1",
        "much longer       2",
    ]


@pytest.mark.parametrize("width", [60, 80, 160])
@given(st.lists(st.tuples(st.text(max_size=90), st.integers()), max_size=5))
def test_nothing_is_clipped_and_nothing_acts(width: int, rows: list[tuple[str, int]]) -> None:
    found = [line.plain for line in lines(NAMES, TYPES, rows, width)]
    for line in found:
        assert harmless_line(line) == line
    if found[0].startswith("name"):
        assert max(map(cell_len, found)) <= width
        assert len(found) == 1 + len(rows)
    for _, number in rows:
        assert any(line.endswith(f" {number}") for line in found)
