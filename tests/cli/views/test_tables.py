"""Tables without lines: what gives way where there is little room."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from rdmascope.cli.views.tables import Grid, bar, sparkline

ROWS = [["a long name that has room to give", "12", "1,234,567 bytes"], ["b", "3", "4"]]
GRID = Grid(["name"], ["count", "size"], ROWS, gap=2)


def drawn(grid: Grid, width: int) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width, highlight=False).print(grid)
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_a_table_that_fits_has_its_own_width() -> None:
    lines = drawn(GRID, 200)
    assert max(map(len, lines)) == GRID.width
    assert lines == drawn(GRID, GRID.width)


@pytest.mark.parametrize("width", range(10, 70))
def test_nothing_is_lost_or_too_wide(width: int) -> None:
    lines = drawn(GRID, width)
    assert max(map(len, lines)) <= width
    assert sorted("".join("".join(lines).split())) == sorted("".join("".join(drawn(GRID, 200)).split()))


def test_the_flexible_column_gives_way_first() -> None:
    lines = drawn(GRID, GRID.width - 5)
    assert any("1,234,567 bytes" in line for line in lines)
    assert not any("a long name that has room to give" in line for line in lines)


def test_bars_and_lines_show_the_least_of_something() -> None:
    assert bar(1, 1_000_000, 10) == "▏"
    assert bar(0, 10, 10) == ""
    assert sparkline([0, 1, 1000]) == " ▁█"
