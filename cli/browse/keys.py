"""The keys: one table for the footer, the palette and the page of help."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import fill
from typing import NamedTuple

from rich.text import Text
from textual.binding import Binding

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
    """Of the application; those of panes must be asked before the screen, which has a use of its own for Tab."""
    for one in keys:
        if "tab" not in one.keys:
            yield Binding(one.keys, one.action, one.name, show=one.in_footer, key_display=one.shown)


def pane_bindings(keys: tuple[KeyBinding, ...] = KEYS) -> Iterator[Binding]:
    for one in keys:
        if "tab" in one.keys:
            yield Binding(one.keys, f"app.{one.action}", one.name, show=one.in_footer, key_display=one.shown)


def help_text(keys: tuple[KeyBinding, ...], width: int = FULL) -> Text:
    """All keys, on one screen of 80 columns and 24 lines; one below the other where there are fewer columns."""
    rows = [*((f"{one.shown:>5}", one.meaning) for one in keys), *((shown, meaning) for shown, meaning in MOVING)]
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
