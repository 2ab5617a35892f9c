"""The time strip: rates and latencies from the first RPC to the last; a part of it can be brushed."""

from __future__ import annotations

from typing import ClassVar

from rich.style import Style
from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from rdmascope.captures.tables.browsed_tables import CallInterval, CallTimeline
from rdmascope.dissect.units import count, duration, plural, seconds

from ..views.tables import sparkline
from .keys import pane_bindings

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
        """Nothing is brushed."""
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
        found = timeline.intervals
        rates = [one.calls * SECOND / timeline.width for one in found]
        # Bars that are dim, too, vanish in 16 colours.
        calls = Text.assemble((f"{'RPC/s':<6}{_highest(rates):>10}  ", "dim"))
        for one, mark in zip(found, sparkline(rates), strict=True):
            calls.append(mark, "red" if one.wrong else "green")
        return (
            calls,
            _latencies("p50", [one.median for one in found], "cyan"),
            _latencies("p99", [one.p99 for one in found], "yellow"),
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
        return f"{begin} to {end} s: {plural(sum(one.calls for one in chosen), 'RPC')}{_wrong(chosen)}"

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
    wrong = sum(one.wrong for one in intervals)
    return f", {count(wrong)} not complete" if wrong else ""
