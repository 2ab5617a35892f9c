"""A pane of lines with a cursor: only those on the screen are ever made."""

from __future__ import annotations

from typing import ClassVar

from rich.style import Style
from rich.text import Span, Text
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from .keys import pane_bindings
from .nodes import harmless_text

MAX_WIDTH = 1000
"""Columns of a line that can be scrolled to."""
SIDEWAYS = 8


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

    class Moved(Message):
        """The cursor is on another line."""

        def __init__(self, pane: LinesPane) -> None:
            super().__init__()
            self.pane = pane

    class Chosen(Message):
        """Enter was pressed on a line, or it was clicked once more."""

        def __init__(self, pane: LinesPane) -> None:
            super().__init__()
            self.pane = pane

    class HeadingClicked(Message):
        """On a column of it."""

        def __init__(self, pane: LinesPane, x: int) -> None:
            super().__init__()
            self.pane, self.x = pane, x

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self.cursor = 0
        self.left = 0
        """The first column that is shown."""

    @property
    def count(self) -> int:
        """Lines."""
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
        above = int(self.heading() is not None)
        self.virtual_size = Size(0, self.count + above)
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
            marked = [Span(one.start, one.end, "not reverse") for one in text.spans if one.style == "reverse"]
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
        place = event.get_content_offset(self)
        if place is None:
            return
        above = int(self.heading() is not None)
        if above and place.y == 0:
            self.post_message(self.HeadingClicked(self, place.x + self.left))
            return
        index = self.top + place.y - above
        if not 0 <= index < self.count:
            return
        if index == self.cursor:
            self.action_choose()
        self.move_to(index)
