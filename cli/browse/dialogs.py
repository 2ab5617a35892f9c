"""What asks: a line to type into, with completion, a choice, and the page of help."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from ..sanitize import harmless_line

Complete = Callable[[str], Sequence[str]]
Check = Callable[[str], str]
"""Says what is wrong with a text; '' for nothing."""


def shown(text: str, style: str = "") -> Text:
    """What came from the wire, harmless and without markup."""
    return Text(harmless_line(text), style, no_wrap=True, overflow="ellipsis")


class PromptDialog(ModalScreen[str | None]):
    """Gives what was typed; None where it was given up."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,ctrl+c", "give_up", "give up"),
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
        self._title, self._text, self._hint = title, text, hint
        self._complete, self._check = complete, check
        self._found: Sequence[str] = ()

    def compose(self) -> ComposeResult:
        with Vertical(id="prompt"):
            yield Static(shown(self._title, "bold"), id="asked")
            yield Input(self._text, id="typed", select_on_focus=False)
            yield OptionList(id="completions")
            yield Static(shown(self._hint, "dim"), id="problem")

    def on_mount(self) -> None:
        self.query_one("#completions", OptionList).can_focus = False
        self.query_one("#typed", Input).focus()
        self._offer()

    @on(Input.Changed)
    def _offer(self) -> None:
        typed = self.query_one("#typed", Input)
        self._found = self._complete(typed.value) if self._complete is not None else ()
        options = self.query_one("#completions", OptionList)
        options.clear_options()
        options.add_options([Option(shown(one)) for one in self._found])
        options.display = bool(self._found)
        self.query_one("#problem", Static).update(shown(self._hint, "dim"))

    def action_choose(self, by: int) -> None:
        options = self.query_one("#completions", OptionList)
        if self._found:
            at = -1 if options.highlighted is None else options.highlighted
            options.highlighted = (at + by) % len(self._found)

    def action_complete(self) -> None:
        """The completion that is chosen, or else the first."""
        if self._found:
            chosen = self.query_one("#completions", OptionList).highlighted or 0
            self._take(self._found[chosen])

    def _take(self, text: str) -> None:
        typed = self.query_one("#typed", Input)
        typed.value = text
        typed.cursor_position = len(text)

    @on(OptionList.OptionSelected)
    def _clicked(self, event: OptionList.OptionSelected) -> None:
        self._take(self._found[event.option_index])

    @on(Input.Submitted)
    def _typed(self, event: Input.Submitted) -> None:
        chosen = self.query_one("#completions", OptionList).highlighted
        if chosen is not None and self._found:
            self._take(self._found[chosen])
            return
        problem = self._check(event.value) if self._check is not None else ""
        if problem and self._found:
            self._take(self._found[0])
        elif problem:
            self.query_one("#problem", Static).update(shown(problem, "bold red"))
        else:
            self.dismiss(event.value)

    def action_give_up(self) -> None:
        self.dismiss(None)


class ChoiceDialog(ModalScreen[int | None]):
    """Gives which of some lines was chosen; None for none."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,ctrl+c", "give_up", "give up")]

    def __init__(self, title: str, lines: Sequence[str]) -> None:
        super().__init__()
        self._title, self._lines = title, lines

    def compose(self) -> ComposeResult:
        with Vertical(id="choice"):
            yield Static(shown(self._title, "bold"))
            yield OptionList(*(Option(shown(one)) for one in self._lines), id="choices")

    @on(OptionList.OptionSelected)
    def _chosen(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option_index)

    def action_give_up(self) -> None:
        self.dismiss(None)


class HelpPage(ModalScreen[None]):
    """All keys."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,question_mark,enter,space,ctrl+c", "leave", "leave")]

    def __init__(self, text: Text) -> None:
        super().__init__()
        self._text = text

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="help"):  # Of a screen that is too small for it.
            yield Static(self._text)

    def on_click(self) -> None:
        self.dismiss(None)

    def action_leave(self) -> None:
        self.dismiss(None)
