"""The ladder, and the bytes with the chosen field marked."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from rich.text import Text

from rdmascope.dissect.rpcrdma.rpcs import Extent
from rdmascope.dissect.units import count

from ..views.rpc import ROW, hex_row
from .lines_pane import LinesPane
from .nodes import ShownBytes


class LadderPane(LinesPane):
    """The packets between the two ends."""

    def __init__(self) -> None:
        super().__init__("ladder")
        self.border_title = "packets"
        self.lines: Sequence[Text] = ()
        self.empty = ""

    @property
    def count(self) -> int:
        return len(self.lines) or 1

    def show(self, lines: Sequence[Text], empty: str = "") -> None:
        """``empty``: what is said where there are no lines."""
        self.lines, self.empty = lines, empty
        self.renew()

    def line(self, index: int) -> Text:
        return self.lines[index] if self.lines else Text(self.empty, "dim")


class BytesPane(LinesPane):
    """Messages as hexdumps, one below the other; a line is made when it is shown."""

    def __init__(self) -> None:
        super().__init__("bytes")
        self.border_title = "bytes"
        self._parts: Sequence[ShownBytes] = ()
        self._rows: list[tuple[ShownBytes, Extent | None]] = []
        """What follows each other: an extent with its rows, or the title above a message."""
        self._starts: list[int] = []
        """The first line of each."""
        self._lines = 0
        self.field = "", 0, 0
        """What is marked: the title of the bytes, and from where to where."""

    @property
    def count(self) -> int:
        return self._lines or 1

    def show(self, parts: Sequence[ShownBytes]) -> None:
        self._parts = parts
        self._rows = [
            row for part in parts for row in ((part, None), *((part, extent) for extent in part.data.extents))
        ]
        heights = [1 if extent is None else _height(extent) for _, extent in self._rows]
        self._starts = [0, *accumulate(heights)][:-1]
        self._lines = sum(heights)
        self.field = "", 0, 0
        self.cursor = 0
        self.scroll_to(y=0, animate=False, force=True, immediate=True)
        self.renew()

    def mark(self, title: str, start: int, end: int) -> None:
        """Show and mark a field."""
        self.field = title, start, end
        for (part, extent), first in zip(self._rows, self._starts, strict=True):
            if part.title == title and extent is not None and extent.start <= start < extent.start + extent.length:
                self.move_to(first + (0 if extent.missing else (start - extent.start) // ROW))
                break
        self.refresh()

    def line(self, index: int) -> Text:
        if not self._rows:
            return Text("no bytes of it are in the capture", "dim")
        at = bisect_right(self._starts, index) - 1
        part, extent = self._rows[at]
        if extent is None:
            left_out = f", the last {count(part.left_out)} are left out" if part.left_out else ""
            return Text(f"{part.title}: {count(part.data.length + part.left_out)} bytes{left_out}", "bold")
        first = extent.start + (index - self._starts[at]) * ROW
        last = min(first + ROW, extent.start + extent.length)
        where = f"frame {extent.frame}" if extent.frame else ""
        if extent.origin not in ("inline", "frame"):
            where += f"{', ' if where else ''}{extent.origin}"
        if extent.missing:
            words = f"{extent.origin}: {extent.missing}, {count(extent.length)} bytes"
            return hex_row(extent.start, bytes(min(ROW, extent.length)), True, words)
        line = hex_row(first, part.data.captured(first, last).tobytes(), False, where if first == extent.start else "")
        title, start, end = self.field
        if title == part.title and start < last and first < end:
            for byte in range(max(start, first) - first, min(end, last) - first):
                digit = 9 + 2 * byte + byte // 2
                line.stylize("reverse", digit, digit + 2)
                line.stylize("reverse", 49 + byte, 50 + byte)
        return line


def _height(extent: Extent) -> int:
    return 1 if extent.missing else -(-extent.length // ROW)
