"""Panes on the screen: lines with a cursor, of which only those on it are ever made (lists, trees, packets, bytes),
and the time strip; the keys, in one table for the footer, the palette and the page of help; and what asks.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from textwrap import fill
from typing import Any, ClassVar

import numpy as np
from rich.style import Style
from rich.text import Span, Text
from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.geometry import Size
from textual.message import Message
from textual.screen import ModalScreen
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from rdmascope.captures.tables.browsed_tables import BrowsedTables, CallInterval, CallTimeline
from rdmascope.dissect.arrays import Int64s
from rdmascope.dissect.named_tuple import NamedTuple
from rdmascope.dissect.rpcrdma.rpcs import Extent
from rdmascope.dissect.units import count, duration, plural, seconds

from ..sanitize import harmless_line
from ..views.rpc import ROW, hex_row
from ..views.tables import sparkline
from .listings import LISTINGS, ListingLayout, ShownBytes, TreeNode, harmless_text

MOVING = (
    ("↑↓ jk", "a line"),
    ("PgUp PgDn", "a screen; also Space"),
    ("^U ^D", "half a screen"),
    ("g G", "first, last; Home, End"),
    ("←→ hl", "sideways; fold a tree"),
    ("Enter", "go into it, fold, jump"),
    ("Esc", "back to the list"),
)
"""What every pane has."""


FULL = 80
"""Columns from which on the page of help has two columns."""
FRAME = 4
"""Columns of the frame and the scroll bar of a page that has one."""
BELOW = " " * 10
"""Stands before what does not fit on the line of its key."""


class KeyBinding(NamedTuple):
    """A key of the whole screen."""

    keys: str
    """As Textual calls them."""
    shown: str
    action: str
    name: str
    """In the footer and the palette."""
    meaning: str
    in_footer: bool = True


KEYS = (
    KeyBinding("question_mark", "?", "help", "help", "this page"),
    KeyBinding("tab", "Tab", "noun(1)", "list", "packets, connections, files, …"),
    KeyBinding("shift+tab", "⇧Tab", "noun(-1)", "previous list", "the list before", False),
    KeyBinding("slash", "/", "find", "find", "find text; empty: once more"),
    KeyBinding("f", "f", "filter", "filter", "filter: SQL as of --where"),
    KeyBinding("F", "F", "all", "show all", "no filter, all of the time", False),
    KeyBinding("s", "s", "sort", "sort", "sort; again: turn it round"),
    KeyBinding("n", "n", "wrong(1)", "next error", "next error or finding"),
    KeyBinding("N", "N", "wrong(-1)", "previous error", "the one before", False),
    KeyBinding("x", "x", "follow", "follow", "follow XID, file, client, …"),
    KeyBinding("m", "m", "mark", "mark", "mark or unmark an RPC"),
    KeyBinding("M", "M", "unmark", "unmark all", "unmark all", False),
    KeyBinding("w", "w", "write", "write", "write marked or filtered RPCs"),
    KeyBinding("o", "o", "wireshark", "Wireshark", "open these in Wireshark"),
    KeyBinding("y", "y", "copy", "copy", "copy a value of this line"),
    KeyBinding("0", "0", "pane('strip')", "time", "time; ⇧← ⇧→ brush, then Enter", False),
    KeyBinding("1", "1", "pane('list')", "list", "the list", False),
    KeyBinding("2", "2", "pane('tree')", "tree", "the tree of what is chosen", False),
    KeyBinding("3", "3", "pane('ladder')", "ladder", "its packets", False),
    KeyBinding("4", "4", "pane('bytes')", "bytes", "its bytes, the field marked", False),
    KeyBinding("5", "5", "pane('diagnosis')", "diagnosis", "what is wrong, and evidence"),
    KeyBinding("z", "z", "zoom", "zoom", "this pane alone, or all", False),
    KeyBinding("t", "t", "theme", "theme", "dark or light", False),
    KeyBinding("q,ctrl+c", "q", "quit", "quit", "quit; so does Ctrl-C"),
)


def bindings(keys: tuple[KeyBinding, ...] = KEYS) -> Iterator[Binding]:
    """The application's; those of panes must be asked before the screen, which has a use of its own for Tab."""
    for key in keys:
        if "tab" not in key.keys:
            yield Binding(key.keys, key.action, key.name, show=key.in_footer, key_display=key.shown)


def pane_bindings() -> Iterator[Binding]:
    for key in KEYS:
        if "tab" in key.keys:
            yield Binding(key.keys, f"app.{key.action}", key.name, show=key.in_footer, key_display=key.shown)


def help_text(keys: tuple[KeyBinding, ...], width: int = FULL) -> Text:
    """All keys, on one screen of 80 columns and 24 lines; one below the other where there are fewer columns."""
    rows = [*((f"{key.shown:>5}", key.meaning) for key in keys), *((shown, meaning) for shown, meaning in MOVING)]
    text = Text(no_wrap=True)
    if width < FULL:
        for shown, meaning in rows:
            text.append(f"{shown.strip():>9} ", "bold cyan")
            text.append(fill(meaning, max(16, width - FRAME), initial_indent=BELOW, subsequent_indent=BELOW).lstrip())
            text.append("\n")
        text.rstrip()
        return text
    half = -(-len(rows) // 2)
    for first, second in zip(rows[:half], [*rows[half:], ("", "")], strict=False):
        text.append(f"{first[0]:>5} ", "bold cyan").append(f"{first[1]:<33}")
        text.append(f"{second[0].strip():>9} ", "bold cyan").append(f"{second[1]}\n")
    text.rstrip()
    return text


Complete = Callable[[str], Sequence[str]]
Check = Callable[[str], str]
"""Says what is wrong with a text; '' for nothing."""


def shown(text: str, style: str = "") -> Text:
    """What came from the wire, harmless and without markup."""
    return Text(harmless_line(text), style, no_wrap=True, overflow="ellipsis")


# Ctrl-C closes a dialog before the key behind it is looked at (`priority`): pressed twice, it also quits.


class PromptDialog(ModalScreen[str | None]):
    """Gives what was typed; None where it was given up."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,ctrl+c", "dismiss", "give up", priority=True),
        Binding("tab", "complete", "complete", priority=True),
        Binding("down", "choose(1)", show=False, priority=True),
        Binding("up", "choose(-1)", show=False, priority=True),
    ]

    def __init__(
        self,
        title: str,
        text: str = "",
        complete: Complete | None = None,
        check: Check | None = None,
        hint: str = "",
    ) -> None:
        super().__init__()
        self._title, self._hint = title, hint
        self._complete, self._check = complete, check
        self._found: Sequence[str] = ()
        self._typed = Input(text, id="typed", select_on_focus=False)
        self._options = OptionList(id="completions")
        self._problem = Static(shown(hint, "dim"), id="problem")

    def compose(self) -> ComposeResult:
        with Vertical(id="prompt"):
            yield Static(shown(self._title, "bold"), id="asked")
            yield self._typed
            yield self._options
            yield self._problem

    def on_mount(self) -> None:
        self._options.can_focus = False
        self._typed.focus()
        self._offer()

    @on(Input.Changed)
    def _offer(self) -> None:
        self._found = self._complete(self._typed.value) if self._complete is not None else ()
        self._options.clear_options()
        self._options.add_options([Option(shown(word)) for word in self._found])
        self._options.display = bool(self._found)
        self._problem.update(shown(self._hint, "dim"))

    def action_choose(self, by: int) -> None:
        if self._found:
            at = -1 if self._options.highlighted is None else self._options.highlighted
            self._options.highlighted = (at + by) % len(self._found)

    def action_complete(self) -> None:
        """The completion that is chosen, or else the first."""
        if self._found:
            self._take(self._found[self._options.highlighted or 0])

    def _take(self, text: str) -> None:
        self._typed.value = text
        self._typed.cursor_position = len(text)

    @on(OptionList.OptionSelected)
    def _clicked(self, event: OptionList.OptionSelected) -> None:
        self._take(self._found[event.option_index])

    @on(Input.Submitted)
    def _entered(self, event: Input.Submitted) -> None:
        chosen = self._options.highlighted
        if chosen is not None and self._found:
            self._take(self._found[chosen])
            return
        problem = self._check(event.value) if self._check is not None else ""
        if problem and self._found:
            self._take(self._found[0])
        elif problem:
            self._problem.update(shown(problem, "bold red"))
        else:
            self.dismiss(event.value)


class ChoiceDialog(ModalScreen[int | None]):
    """Gives which of some lines was chosen; None for none."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "dismiss", show=False, priority=True),
        Binding("escape,q", "dismiss", "give up"),
    ]

    def __init__(self, title: str, lines: Sequence[str]) -> None:
        super().__init__()
        self._title, self._lines = title, lines

    def compose(self) -> ComposeResult:
        with Vertical(id="choice"):
            yield Static(shown(self._title, "bold"))
            yield OptionList(*(Option(shown(line)) for line in self._lines), id="choices")

    @on(OptionList.OptionSelected)
    def _chosen(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option_index)


class HelpPage(ModalScreen[None]):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "dismiss", show=False, priority=True),
        Binding("escape,q,question_mark,enter,space", "dismiss", "leave"),
    ]

    def __init__(self, text: Text) -> None:
        super().__init__()
        self._text = text

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="help"):  # Of a screen that is too small for it.
            yield Static(self._text)

    def on_click(self) -> None:
        self.dismiss(None)


MAX_WIDTH = 1000
"""Columns of a line that can be scrolled to."""
SIDEWAYS = 8


class PaneMessage(Message):
    """What happened in a pane, and where."""

    def __init__(self, pane: LinesPane, x: int = 0) -> None:
        super().__init__()
        self.pane, self.x = pane, x


class LinesPane(ScrollView, can_focus=True):
    """What subclasses give: ``count`` and ``line``, and ``heading`` where there is one."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "cursor(-1)", show=False),
        Binding("down,j", "cursor(1)", show=False),
        Binding("pageup,ctrl+b", "page(-1)", show=False),
        Binding("pagedown,ctrl+f,space", "page(1)", show=False),
        Binding("ctrl+u", "half(-1)", show=False),
        Binding("ctrl+d", "half(1)", show=False),
        Binding("home,g", "to(0)", show=False),
        Binding("end,G", "to(-1)", show=False),
        Binding("left,h", "sideways(-1)", show=False),
        Binding("right,l", "sideways(1)", show=False),
        Binding("enter", "choose", show=False),
        *pane_bindings(),
    ]

    class Moved(PaneMessage):
        """The cursor is on another line."""

    class Chosen(PaneMessage):
        """Enter was pressed on a line, or it was clicked once more."""

    class HeadingClicked(PaneMessage):
        """On a column of it."""

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self.cursor = 0
        self.left = 0
        """The first column that is shown."""

    @property
    def count(self) -> int:
        """How many lines there are."""
        raise NotImplementedError

    def line(self, index: int) -> Text:
        raise NotImplementedError

    def heading(self) -> Text | None:
        """A line that stays on top."""
        return None

    @property
    def control(self) -> LinesPane:
        return self

    @property
    def rows_shown(self) -> int:
        """Lines that there is room for."""
        return max(1, self.scrollable_content_region.height - (self.heading() is not None))

    @property
    def top(self) -> int:
        """The first line that is shown."""
        return int(self.scroll_offset.y)

    def renew(self) -> None:
        """After the lines changed."""
        self.virtual_size = Size(0, self.count + int(self.heading() is not None))
        self.cursor = max(0, min(self.cursor, self.count - 1))
        self.refresh()

    def move_to(self, index: int, top: int | None = None) -> None:
        """Put the cursor on a line, and have it on the screen; ``top``: the first line that is shown."""
        index = max(0, min(index, self.count - 1))
        moved, self.cursor = index != self.cursor, index
        first = self.top if top is None else top
        first = max(min(first, index), index - self.rows_shown + 1, 0)
        if first != self.top:
            self.scroll_to(y=first, animate=False, force=True, immediate=True)
        self.refresh()
        if moved:
            self.post_message(self.Moved(self))

    def render_line(self, y: int) -> Strip:
        width = self.scrollable_content_region.width
        above = self.heading()
        if above is not None and y == 0:
            return self._strip(above, width, self.rich_style + Style(bold=True))
        index = self.top + y - (above is not None)
        if not 0 <= index < self.count:
            return Strip.blank(width, self.rich_style)
        text = harmless_text(self.line(index))
        style = self.rich_style
        if index == self.cursor:
            marked = [Span(span.start, span.end, "not reverse") for span in text.spans if span.style == "reverse"]
            text = Text(text.plain, spans=marked)
            style += Style(reverse=True, bold=True) if self.has_focus else Style(underline=True, bold=True)
        return self._strip(text, width, style)

    def _strip(self, text: Text, width: int, style: Style) -> Strip:
        strip = Strip(text.render(self.app.console, end=""))
        return strip.crop_extend(self.left, self.left + width, None).apply_style(style)

    def on_focus(self) -> None:
        self.refresh()

    def on_blur(self) -> None:
        self.refresh()

    def action_cursor(self, by: int) -> None:
        self.move_to(self.cursor + by)

    def action_page(self, by: int) -> None:
        self.move_to(self.cursor + by * self.rows_shown, self.top + by * self.rows_shown)

    def action_half(self, by: int) -> None:
        self.move_to(self.cursor + by * (self.rows_shown // 2))

    def action_to(self, index: int) -> None:
        self.move_to(index if index >= 0 else self.count - 1)

    def action_sideways(self, by: int) -> None:
        self.left = max(0, min(self.left + by * SIDEWAYS, MAX_WIDTH))
        self.refresh()

    def action_choose(self) -> None:
        if self.count:
            self.post_message(self.Chosen(self))

    def on_click(self, event: events.Click) -> None:
        """A line is chosen by clicking it, and once more goes into it."""
        at = event.get_content_offset(self)
        if at is None:
            return
        above = int(self.heading() is not None)
        if above and at.y == 0:
            self.post_message(self.HeadingClicked(self, at.x + self.left))
            return
        index = self.top + at.y - above
        if not 0 <= index < self.count:
            return
        if index == self.cursor:
            self.action_choose()
        self.move_to(index)


class TreePane(LinesPane):
    """Nodes, a line each; Enter folds, or goes where a node leads."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left,h", "fold", show=False),
        Binding("right,l", "unfold", show=False),
    ]

    def __init__(self, id: str, title: str, empty: str) -> None:
        super().__init__(id)
        self.border_title = title
        self._empty = empty
        self._roots: Sequence[TreeNode] = ()
        self._visible: list[tuple[int, TreeNode]] = []
        """The nodes that are shown, each with its depth."""

    @property
    def count(self) -> int:
        return len(self._visible) or 1

    @property
    def node(self) -> TreeNode | None:
        """The one with the cursor."""
        return self._visible[self.cursor][1] if self.cursor < len(self._visible) else None

    def show(self, nodes: Sequence[TreeNode], keep: bool = False) -> None:
        """Other nodes; ``keep``: with the cursor where it is."""
        self._roots = nodes
        self._lay_out()
        if not keep:
            self.cursor = self.left = 0
            self.scroll_to(y=0, animate=False, force=True, immediate=True)
        self.renew()

    def say(self, text: str) -> None:
        """In place of nodes."""
        self._empty = text
        self.show(())

    def _lay_out(self) -> None:
        self._visible = [*_visible(self._roots, 0)]

    def line(self, index: int) -> Text:
        if not self._visible:
            return Text(self._empty, "dim")
        depth, node = self._visible[index]
        mark = ("▾ " if node.opened else "▸ ") if node.children else ("→ " if node.goes_to else "  ")
        text = Text("  " * depth)
        text.append(mark, "dim")
        return text.append_text(node.label)

    def action_choose(self) -> None:
        node = self.node
        if node is not None and node.children and node.goes_to is None:
            self._set(node, not node.opened)
        elif node is not None:
            super().action_choose()

    def action_fold(self) -> None:
        node = self.node
        if node is None:
            return
        if self.left:
            self.action_sideways(-1)
            return
        if node.children and node.opened:
            self._set(node, False)
            return
        depth = self._visible[self.cursor][0]
        above = [at for at, (other, _) in enumerate(self._visible[: self.cursor]) if other < depth]
        if above:
            self.move_to(above[-1])

    def action_unfold(self) -> None:
        node = self.node
        if node is not None and node.children:
            if node.opened:
                self.move_to(self.cursor + 1)
            else:
                self._set(node, True)
        elif node is not None and self.line(self.cursor).cell_len > self.left + self.scrollable_content_region.width:
            self.action_sideways(1)

    def _set(self, node: TreeNode, opened: bool) -> None:
        node.opened = opened
        self._lay_out()
        self.renew()


def _visible(nodes: Sequence[TreeNode], depth: int) -> Iterator[tuple[int, TreeNode]]:
    for node in nodes:
        yield depth, node
        if node.opened:
            yield from _visible(node.children, depth + 1)


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
        heights = [1 if extent is None or extent.missing else -(-extent.length // ROW) for _, extent in self._rows]
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
        """Numbers of the RPCs that are marked."""
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
        row = None if before is None else self.place_of(before)
        self.renew()
        if at_end:
            self.move_to(len(ids) - 1)
        elif row is not None:
            self.move_to(row, row - offset)
        elif not keep:
            self.cursor = 0
            self.scroll_to(y=0, animate=False, force=True, immediate=True)

    def place_of(self, id: int) -> int | None:
        """Where in the list a row is."""
        if self.cursor < len(self.ids) and self.ids[self.cursor] == id:
            return self.cursor
        rows = np.flatnonzero(self.ids == id)
        return int(rows[0]) if len(rows) else None

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


LABEL = 18
"""Columns of what stands before the marks."""
SECOND = 1_000_000_000


class TimeStrip(Widget, can_focus=True):
    """One column an interval."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left,h", "move(-1)", show=False),
        Binding("right,l", "move(1)", show=False),
        Binding("shift+left,H", "widen(-1)", show=False),
        Binding("shift+right,L", "widen(1)", show=False),
        Binding("home,g", "edge(0)", show=False),
        Binding("end,G", "edge(-1)", show=False),
        Binding("enter", "narrow", show=False),
        *pane_bindings(),
    ]

    class Brushed(Message):
        """Only this time is meant, in nanoseconds since the epoch; all of it where both are None."""

        def __init__(self, first: int | None, last: int | None) -> None:
            super().__init__()
            self.first, self.last = first, last

    def __init__(self) -> None:
        super().__init__(id="strip")
        self.timeline: CallTimeline | None = None
        self.first_time = 0
        self.begin = self.end = -1
        """The columns that are brushed; -1: none."""
        self.at = 0
        """The column of the cursor."""
        self._dragged = False
        self._empty = "reading"
        """What is said in place of a timeline."""

    @property
    def columns(self) -> int:
        """Intervals that there is room for."""
        return max(8, self.size.width - LABEL)

    def show(self, timeline: CallTimeline | None, first_time: int) -> None:
        """``first_time``: nanoseconds since the epoch, from which times count.  A brush stays where it is in time."""
        before, self.timeline, self.first_time = self.timeline, timeline, first_time
        self._empty = "no RPC yet"
        if timeline is not None and before is not None:
            first, last = sorted((self.begin, self.end))
            if first >= 0:
                self.begin = self._column_of(before.first + first * before.width)
                self.end = self._column_of(before.first + (last + 1) * before.width - 1)
            self.at = self._column_of(before.first + self.at * before.width)
        if self.border_title:
            self._said()
        self.refresh()

    def _column_of(self, time_ns: int) -> int:
        """In the timeline, or the nearest to it."""
        assert self.timeline is not None
        return max(0, min((time_ns - self.timeline.first) // self.timeline.width, self._last))

    def clear(self) -> None:
        """Forget which interval was brushed."""
        self.begin = self.end = -1
        self.border_title = ""
        self.refresh()

    def on_focus(self) -> None:
        self._said()

    def on_blur(self) -> None:
        if self.begin < 0:
            self.border_title = ""

    def render_line(self, y: int) -> Strip:
        timeline, width = self.timeline, self.size.width
        if timeline is None:
            text = Text(self._empty if y == 0 else "", "dim")
        else:
            text = self._rows(timeline)[y if self.size.height >= 3 else (0, 2)[y]]
        if self.begin >= 0:
            text.stylize("reverse", LABEL + min(self.begin, self.end), LABEL + max(self.begin, self.end) + 1)
        if self.has_focus and timeline is not None:
            text.stylize(Style(bold=True, underline=True), LABEL + self.at, LABEL + self.at + 1)
        style = self.rich_style
        return Strip(text.render(self.app.console, end="")).crop_extend(0, width, None).apply_style(style)

    def _rows(self, timeline: CallTimeline) -> tuple[Text, Text, Text]:
        intervals = timeline.intervals
        rates = [call_interval.calls * SECOND / timeline.width for call_interval in intervals]
        # Bars that are dim, too, vanish in 16 colours.
        calls = Text.assemble((f"{'RPC/s':<6}{_highest(rates):>10}  ", "dim"))
        for call_interval, mark in zip(intervals, sparkline(rates), strict=True):
            calls.append(mark, "red" if call_interval.wrong else "green")
        return (
            calls,
            _latencies("p50", [call_interval.median for call_interval in intervals], "cyan"),
            _latencies("p99", [call_interval.p99 for call_interval in intervals], "yellow"),
        )

    def title(self) -> str:
        """What the cursor or the brush is on."""
        timeline = self.timeline
        if timeline is None:
            return ""
        first = min(self.begin, self.end) if self.begin >= 0 else self.at
        last = max(self.begin, self.end) if self.begin >= 0 else self.at
        chosen = timeline.intervals[first : last + 1]
        begin = seconds(timeline.first + first * timeline.width - self.first_time)
        end = seconds(timeline.first + (last + 1) * timeline.width - self.first_time)
        return (
            f"{begin} to {end} s: {plural(sum(call_interval.calls for call_interval in chosen), 'RPC')}{_wrong(chosen)}"
        )

    def action_move(self, by: int) -> None:
        self._go(self.at + by)

    def action_edge(self, index: int) -> None:
        self._go(index if index >= 0 else self._last)

    @property
    def _last(self) -> int:
        return 0 if self.timeline is None else len(self.timeline.intervals) - 1

    def _go(self, column: int) -> None:
        self.at = max(0, min(column, self._last))
        self._said()

    def _said(self) -> None:
        self.border_title = self.title()
        self.refresh()

    def action_widen(self, by: int) -> None:
        if self.begin < 0:
            self.begin = self.at
        self.at = self.end = max(0, min(self.at + by, self._last))
        self._said()

    def action_narrow(self) -> None:
        """What is brushed, or the interval of the cursor."""
        if self.timeline is None:
            return
        if self.begin < 0:
            self.begin = self.end = self.at
        first, last = sorted((self.begin, self.end))
        start, width = self.timeline.first, self.timeline.width
        self.post_message(self.Brushed(start + first * width, start + (last + 1) * width))

    def on_mouse_down(self, event: events.MouseDown) -> None:
        if self.timeline is None or self._column(event) is None:
            return
        self.capture_mouse()
        self._dragged = True
        self.begin = self.end = self.at = self._column(event) or 0
        self._said()

    def on_mouse_move(self, event: events.MouseMove) -> None:
        if self._dragged:
            self.end = self.at = self._column(event, inside=True) or 0
            self._said()

    def on_mouse_up(self, event: events.MouseUp) -> None:
        if self._dragged:
            self._dragged = False
            self.release_mouse()
            self.action_narrow()

    def _column(self, event: events.MouseEvent, inside: bool = False) -> int | None:
        column = event.get_content_offset_capture(self).x - LABEL
        if inside:
            return max(0, min(column, self._last))
        return column if 0 <= column <= self._last else None


def _latencies(name: str, values: list[float | None], style: str) -> Text:
    known = [value or 0 for value in values]
    highest = max(known, default=0)
    text = Text.assemble((f"{name:<6}{duration(round(highest)) if highest else '-':>10}  ", "dim"))
    return text.append(sparkline(known), style)


def _highest(rates: list[float]) -> str:
    highest = max(rates, default=0)
    return count(round(highest)) if highest >= 10 else f"{highest:.2g}"


def _wrong(intervals: tuple[CallInterval, ...]) -> str:
    wrong = sum(interval.wrong for interval in intervals)
    return f", {count(wrong)} not complete" if wrong else ""
