"""What ``synth`` lists: scripts, faults, keys."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import RenderableType
from rich.table import Table


def listing(rows: Iterable[tuple[str, str]]) -> RenderableType:
    """Names, and what they are about in as many lines as that needs."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table
