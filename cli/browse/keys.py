"""The keys, in one table for the footer, the palette and the page of help; and what asks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from textwrap import fill
from typing import ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from rdmascope.dissect.named_tuple import NamedTuple

from ..sanitize import harmless_line

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
