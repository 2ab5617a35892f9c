"""The list: rows of a table in some order, of which a window is fetched at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
from rich.text import Text

from rdmascope.captures.tables.browsed_tables import BrowsedTables
from rdmascope.dissect.arrays import Int64s

from .lines_pane import LinesPane
from .listings import LISTINGS, ListingLayout

MARK = "◆"


class TablePane(LinesPane):
    """A list of any noun."""

    def __init__(self, tables: BrowsedTables) -> None:
        super().__init__("list")
        self.tables = tables
        self.noun = "rpcs"
        self.ids: Int64s = np.empty(0, np.int64)
        self.tails = False
        """A cursor at the end stays there when the list grows."""
        self.marked: set[int] = set()
        """Numbers of RPCs."""
        self.layout_of_lines = ListingLayout(0, 80)
        self._window: dict[int, dict[str, Any]] = {}
        """Rows by their place in the list."""

    @property
    def count(self) -> int:
        return len(self.ids)

    def show(self, noun: str, ids: Int64s, keep: bool) -> None:
        """Other rows; ``keep``: with the cursor on the same one, where it is still there."""
        before = int(self.ids[self.cursor]) if keep and self.noun == noun and self.cursor < len(self.ids) else None
        offset = self.cursor - self.top
        at_end = self.tails and self.noun == noun and self.cursor >= len(self.ids) - 1
        self.noun, self.ids = noun, ids
        self._window.clear()
        place = None if before is None else self.place_of(before)
        self.renew()
        if at_end:
            self.move_to(len(ids) - 1)
        elif place is not None:
            self.move_to(place, place - offset)
        elif not keep:
            self.cursor = 0
            self.scroll_to(y=0, animate=False, force=True, immediate=True)

    def place_of(self, id: int) -> int | None:
        """Where in the list a row is."""
        if self.cursor < len(self.ids) and self.ids[self.cursor] == id:
            return self.cursor
        found = np.flatnonzero(self.ids == id)
        return int(found[0]) if len(found) else None

    def next_of(self, wanted: Int64s, step: int) -> int | None:
        """Where the next of some rows is, from the cursor on downwards (1) or upwards (-1), round the end."""
        places = np.flatnonzero(np.isin(self.ids, wanted))
        if not len(places):
            return None
        if step > 0:
            behind = places[places > self.cursor]
            return int(behind[0] if len(behind) else places[0])
        before = places[places < self.cursor]
        return int(before[-1] if len(before) else places[-1])

    def row(self, index: int) -> dict[str, Any] | None:
        if index not in self._window:
            if not 0 <= index < len(self.ids):
                return None
            self._fetch(index)
        return self._window.get(index)

    @property
    def chosen(self) -> dict[str, Any] | None:
        """The row with the cursor."""
        return self.row(self.cursor)

    @property
    def around(self) -> list[dict[str, Any]]:
        """The rows on the screen, and a few beyond."""
        first = max(0, self.top - self.rows_shown // 2)
        rows = (self.row(index) for index in range(first, min(self.count, self.top + 2 * self.rows_shown)))
        return [row for row in rows if row is not None]

    def _fetch(self, index: int) -> None:
        """The screen around a row and one above and below."""
        shown = self.rows_shown
        first = max(0, min(index, self.top) - shown if abs(index - self.top) <= 2 * shown else index - shown)
        ids = self.ids[first : first + 3 * shown + 1]
        if len(self._window) > 50 * shown:
            self._window.clear()
        self._window.update(enumerate(self.tables.rows(self.noun, ids), first))

    def heading(self) -> Text | None:
        return Text(" " + LISTINGS[self.noun].heading(self.layout_of_lines), "dim")

    def line(self, index: int) -> Text:
        row = self.row(index)
        if row is None:
            return Text("")
        marked = self.noun == "rpcs" and row["number"] in self.marked
        text = Text(MARK if marked else " ", "bold yellow" if marked else "")
        return text.append_text(LISTINGS[self.noun].line(row, self.layout_of_lines))
