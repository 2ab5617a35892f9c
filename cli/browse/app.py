"""The screen of ``rdmascope browse``: which panes there are, what they show, and what its keys do with them."""

from __future__ import annotations

import shutil
import subprocess
from asyncio import AbstractEventLoop, get_running_loop
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, ClassVar

from rich.text import Text
from textual import on, work
from textual.app import App, ComposeResult, SystemCommand
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.message import Message
from textual.notifications import SeverityLevel
from textual.screen import Screen
from textual.style import Style
from textual.timer import Timer
from textual.widgets import Static
from textual.worker import get_current_worker

from rdmascope.captures.errors import CaptureError
from rdmascope.captures.parallel.processes import Reply
from rdmascope.captures.tables.browsed_tables import (
    LATER,
    NOUNS,
    BrowsedTables,
    Narrowing,
    checked,
    completions,
    follows,
)
from rdmascope.dissect.arrays import Int64s
from rdmascope.dissect.records.tables import TABLES
from rdmascope.dissect.units import count, percent, plural, seconds

from .filling import BrowseFeed, ReadProgress, ReadToEnd, TablePart
from .lines_pane import (
    KEYS,
    BytesPane,
    ChoiceDialog,
    HelpPage,
    KeyBinding,
    LadderPane,
    LinesPane,
    PromptDialog,
    TablePane,
    TimeStrip,
    TreePane,
    bindings,
    help_text,
    shown,
)
from .listings import (
    LISTINGS,
    Details,
    Diagnosed,
    ListingLayout,
    RpcPlace,
    TreeNode,
    column_at,
    copied_values,
    row_nodes,
)

PALETTE = KeyBinding("ctrl+p", "^P", "command_palette", "palette", "all of them by their names")


SELDOM = ("x", "m", "w", "o", "y")
"""Keys that stand last: there may be no room for them."""


class KeyLine(Static):
    """One text, which is drawn at once; Textual's Footer has a widget for each key."""

    def __init__(self, keys: Sequence[KeyBinding]) -> None:
        *shown, leaving = [key for key in keys if key.in_footer]
        shown.sort(key=lambda key: key.keys in SELDOM)
        super().__init__(Content("").join([*map(_pressed, (leaving, *shown, PALETTE))]), id="keys")


def _pressed(key: KeyBinding) -> Content:
    action = Style.from_meta({"@click": f"app.{key.action}"})
    name = Content.styled(f" {key.shown} ", "bold $footer-key-foreground").append(f"{key.name} ")
    return name.stylize(action)


WIDE, HIGH, MEDIUM = 120, 32, 16
"""Columns from which on the tree and its neighbour stand side by side; lines from which on nothing is folded, and from
which on the time strip is always there."""
INDENT = 6
"""Columns of a pane of trees in which no text is: marks on the left, and what scrolls on the right."""
SETTLED = 0.06
"""Seconds after which a cursor that does not move has chosen."""
OPENING = 2.0
"""Seconds at the start in which only the list is filled, unless it is complete before."""
PANES = ("strip", "list", "tree", "ladder", "bytes", "diagnosis")
LOOKED_FOR = {"packets": "frame", "connections": "connection", "files": "file"}
"""List -> the job that looks closer at one of it; that of RPCs takes more."""
BESIDE = ("ladder", "bytes", "diagnosis")
"""Panes of which one stands beside the tree."""


class Came(Message):
    """Something came from a process."""

    def __init__(self, job: str, reply: Reply) -> None:
        super().__init__()
        self.job, self.reply = job, reply


class PanesApp(App[None]):
    """The panes of one capture."""

    KEYS: ClassVar[tuple[KeyBinding, ...]] = KEYS
    CSS_PATH = "browse.tcss"
    TITLE = "rdmascope browse"
    ALLOW_SELECT = False
    ENABLE_COMMAND_PALETTE = True

    def __init__(self, feed: BrowseFeed, where: str = "") -> None:
        super().__init__()
        self.feed = feed
        self.tables: BrowsedTables = feed.open()
        self.strip = TimeStrip()
        self.listed = TablePane(self.tables)
        self.chosen_tree = TreePane("tree", "", "")
        self.ladder = LadderPane()
        self.bytes = BytesPane()
        self.diagnosis = TreePane("diagnosis", "diagnosis", "the capture is being read; then it is diagnosed")
        self.lower, self.right = Horizontal(id="below"), Vertical(id="beside")
        self.status_line = Static("", id="status", markup=False)
        self.narrowing = Narrowing(checked(where, 0, feed.keyed) if where else "")
        self.written_filter = where
        self.sorts: dict[str, tuple[str, bool]] = {}
        """Noun -> name of the column that it is sorted by, and whether downwards."""
        self.filled = {"rpcs", "connections"}
        """Tables that were asked for."""
        self.progress: ReadProgress | None = None
        self.read: ReadToEnd | None = None
        self.finished: set[str] = set()
        """Tables that are complete."""
        self.total = 0
        self._whole = False
        """The table was complete when its rows were looked up for the list."""
        self.beside = "ladder"
        self.below = "tree"
        """What is shown below the list, where there is room for one pane."""
        self.zoomed = ""
        self._went = False
        """A key asked for a pane: none is opened unasked."""
        self._brushing = False
        self.remark = ""
        self._details: Details | None = None
        self._wanted: tuple[str, int, str | None] | None = None
        """What the details are asked of, and its path, which may come later."""
        self._found = ""
        self._noted: dict[tuple[str, str], float] = {}
        """Notifications, and until when they are on the screen."""
        self._pending: Timer | None = None
        self._strip_pending: Timer | None = None
        self._stale = False
        self.opening = True
        """The processors are left to those that read: no strip, and nothing looked at but where a key asks for it."""
        self._loop_of_events: AbstractEventLoop | None = None
        """The event loop; None until the application runs."""
        self._goal: tuple[str, int] | None = None
        """A row to go to, once its table is there."""

    def compose(self) -> ComposeResult:
        yield self.strip
        yield self.listed
        with self.lower:
            yield self.chosen_tree
            with self.right:
                yield self.ladder
                yield self.bytes
                yield self.diagnosis
        yield self.status_line
        yield KeyLine(self.KEYS)

    def end(self, status: int) -> None:
        """Leave, from within the handler of a signal."""
        if self._loop_of_events is not None and not self._loop_of_events.is_closed():
            # It may be about to wait for a message: one that is put there now would never be seen, nor any other.
            self._loop_of_events.call_soon_threadsafe(partial(self.exit, return_code=status))
        else:
            self.exit(return_code=status)

    def on_mount(self) -> None:
        self._loop_of_events = get_running_loop()
        self.listed.focus()
        self.fold()
        self.set_interval(0.5, self._keep_up)
        self.set_timer(OPENING, self._open)
        self.feed.listen(self._send)
        self.filled.add("findings")

    def notify(
        self,
        message: str,
        *,
        title: str = "",
        severity: SeverityLevel = "information",
        timeout: float | None = None,
        markup: bool = False,
    ) -> None:
        """Once, as long as it is on the screen."""
        now, noted = monotonic(), (message, title)
        self._noted = {text: until for text, until in self._noted.items() if until > now}
        if noted not in self._noted:
            self._noted[noted] = now + self.NOTIFICATION_TIMEOUT
            super().notify(message, title=title, severity=severity, timeout=timeout, markup=markup)

    def _send(self, job: str, reply: Reply) -> None:
        self.post_message(Came(job, reply))

    def open_wireshark(self, path: str) -> None:
        """Show in Wireshark what was written for it."""

    def on_resize(self) -> None:
        self.fold()
        if not self.opening:
            self._renew_strip()

    def fold(self) -> None:
        """Show the panes that there is room for."""
        wide = self.size.width >= WIDE
        self.set_class(not wide, "narrow")
        self.set_class(self.size.height < HIGH, "low")
        zoomed = self.zoomed
        lower = zoomed in ("", "tree", *BESIDE)
        self.strip.display = zoomed == "strip" or (not zoomed and (self.size.height >= MEDIUM or self._brushing))
        self.listed.display = zoomed in ("", "list")
        self.lower.display = lower
        self.chosen_tree.display = zoomed == "tree" or (not zoomed and (wide or self.below == "tree"))
        self.right.display = zoomed in BESIDE or (not zoomed and (wide or self.below != "tree"))
        for pane in (self.ladder, self.bytes, self.diagnosis):
            pane.display = pane.id == self.beside
        self.lay_out_list()

    def lay_out_list(self) -> None:
        """After its width or the time of the first frame changed."""
        layout = ListingLayout(self.first_time, max(40, self.size.width - 3))
        if layout != self.listed.layout_of_lines:
            self.listed.layout_of_lines = layout
            self.listed.refresh()

    @property
    def first_time(self) -> int:
        """Nanoseconds since the epoch."""
        return self.progress.first_time if self.progress is not None else 0

    # What comes from the processes

    def on_came(self, message: Came) -> None:
        job, reply = message.job, message.reply
        value = reply.value
        if reply.problem:
            self.remark = reply.problem
            self.notify(reply.problem, severity="error", markup=False)
        if isinstance(value, TablePart):
            self._stale = True
            if value.table == "rpcs" and not len(self.listed.ids):
                self._keep_up()
        elif isinstance(value, ReadProgress):
            self.progress = value
            self.lay_out_list()
        elif isinstance(value, ReadToEnd):
            self._take_read(job, value)
        elif isinstance(value, Details):
            self._take_details(value)
        elif isinstance(value, Diagnosed):
            self.diagnosis.show(value.nodes)
            if value.wrong and not self._went:
                self.beside = self.below = "diagnosis"
                self.fold()
        elif job == "write" and value is not None:
            self.notify(str(value), title="written", markup=False)
        elif job == "export" and value is not None:
            self.open_wireshark(str(value))
        if job.startswith("fill ") and reply.ended:
            self.finished.update(job.split()[1:])
            self.opening &= "rpcs" not in self.finished
            self._stale = True
            self._keep_up()
        self.show_status()

    def _take_read(self, job: str, read: ReadToEnd) -> None:
        if self.read is None and "rpcs" in job:
            self.read = read
            self.feed.complete()
            for words in (read.damage, *read.remarks):
                if words:
                    self.remark = words
                    self.notify(words, severity="warning", markup=False)

    def _take_details(self, details: Details) -> None:
        if self._wanted is None or self._wanted[:2] != (details.noun, details.number):
            return
        again = self._details is not None and self._details.number == details.number
        self._details = details
        if not again or details.noun != "rpcs":
            row = self.listed.chosen
            nodes = details.nodes
            if details.noun in ("connections", "files") and row is not None:
                whole_row = row_nodes(details.noun, row, self.first_time)
                nodes = [*nodes, TreeNode(Text("its row", "bold"), whole_row)]
            self.chosen_tree.show(nodes)
            self.bytes.show(details.bytes)
        empty = "packets are drawn of RPCs" if details.noun != "rpcs" else "reading the packets"
        self.ladder.show(details.ladder, empty)

    def _open(self) -> None:
        """Show all that there is of the rows in the list."""
        if self.opening:
            self.opening = False
            self._stale = True
            self._keep_up()

    def _keep_up(self) -> None:
        """Show what has come since."""
        if self._stale:
            self._stale = False
            self.reorder(grown=True)

    # What is listed

    def reorder(self, keep: bool = False, grown: bool = False) -> None:
        """Have the rows looked up, in their order, and the time strip.

        ``keep``: the row with the cursor; ``grown``: the same, but who is at the top then stays there.
        """
        noun = self.listed.noun
        name, down = self.sorts.get(noun, ("", False))
        column = TABLES[noun].headings.get(name, "")
        self._look_up(noun, self.narrowing, column, down, (keep, grown, noun in self.finished))

    @work(thread=True, exclusive=True, group="order")
    def _look_up(self, noun: str, narrowing: Narrowing, sort: str, down: bool, shown: tuple[bool, bool, bool]) -> None:
        tables = self.tables.asked()
        try:
            total = tables.count(noun)
            ids = tables.order(noun, narrowing, sort, down)
            if get_current_worker().is_cancelled:
                return
            self.call_from_thread(self._take_order, noun, ids, total, *shown)
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """DuckDB's, of a condition that fails on these values; in a thread."""
        if not get_current_worker().is_cancelled:
            self.call_from_thread(self._refused, " ".join(str(error).split()))

    def _take_order(self, noun: str, ids: Int64s, total: int, keep: bool, grown: bool, whole: bool) -> None:
        self.total, self._whole = total, whole
        keep = keep or (grown and self.listed.cursor > 0)  # A key may have moved it meanwhile.
        fresh = noun != self.listed.noun or not keep or not len(self.listed.ids)
        self.listed.show(noun, ids, keep)
        if self._goal is not None and self._goal[0] == noun:
            self._reach_goal()
        elif fresh or self._details is None or not self.chosen_tree.has_focus:
            self._settle(look=not self.opening)
        self.show_status()
        if not self.opening:
            self._renew_strip()

    def _renew_strip(self) -> None:
        """Once the list is drawn: what looks up takes the interpreter."""
        if self._strip_pending is not None:
            self._strip_pending.stop()
        self._strip_pending = self.set_timer(
            SETTLED, lambda: self._look_up_timeline(self.narrowing, self.strip.columns)
        )

    @work(thread=True, exclusive=True, group="strip")
    def _look_up_timeline(self, narrowing: Narrowing, columns: int) -> None:
        try:
            timeline = self.tables.asked().timeline(narrowing, columns)
        except Exception as error:
            self._fail(error)
            return
        if not get_current_worker().is_cancelled:
            self.call_from_thread(lambda: self.strip.show(timeline, self.first_time))

    def _refused(self, problem: str) -> None:
        filtered, self.written_filter = self.narrowing.where, ""
        self.narrowing = self.narrowing._replace(where="")
        self.notify(problem, title="filter", severity="error", markup=False)
        if filtered:
            self.reorder()

    def list_noun(self, noun: str) -> None:
        """Show the list of another noun."""
        if noun not in self.filled:
            self.filled.add(noun)
            self.feed.fill(noun)
        self.total, self._whole = 0, False
        self.listed.show(noun, self.listed.ids[:0], False)
        self.reorder()

    def go_to(self, noun: str, number: int) -> None:
        """Show a row, wherever it is."""
        self._goal = noun, number
        if noun != self.listed.noun:
            self.list_noun(noun)
        else:
            self._reach_goal()
        self.action_pane("list")

    def _reach_goal(self) -> None:
        assert self._goal is not None
        noun, number = self._goal
        id = self.tables.row_of(noun, "frame" if noun == "packets" else "number", number)
        row = None if id is None else self.listed.place_of(id)
        if row is not None:
            self._goal = None
            self.listed.move_to(row, max(0, row - self.listed.rows_shown // 2))
            self._settle()
        elif id is not None and self.narrowing.condition:
            self.notify(f"{LISTINGS[noun].singular} {number} does not pass the filter: all are shown now")
            self.action_all()
        elif noun in self.finished:
            self._goal = None
            self.notify(f"no {LISTINGS[noun].singular} {number} in the list", severity="warning")

    # What is chosen

    @on(LinesPane.Moved)
    def _moved(self, event: LinesPane.Moved) -> None:
        if isinstance(event.pane, TablePane):
            if self._pending is not None:
                self._pending.stop()
            self._pending = self.set_timer(SETTLED, self._settle)
            self.show_status()
        elif event.pane is self.chosen_tree:
            self._mark_field()

    def _settle(self, look: bool = True) -> None:
        """Show what the cursor of the list is on; ``look``: more of it than its row."""
        row = self.listed.chosen
        noun = self.listed.noun
        if row is None:
            self.chosen_tree.say("reading" if noun not in self.finished else f"no {LISTINGS[noun].title}")
            self.chosen_tree.border_title = LISTINGS[noun].singular
            self.ladder.show(())
            self.bytes.show(())
            self._wanted = self._details = None
            return
        number = row["frame"] if noun == "packets" else row.get("number") or 0
        path = row.get("path")
        if self._wanted == (noun, number, path) and noun != "findings" and self._details is not None:
            return
        if self._wanted == (noun, number, path) and not look:
            return
        self._wanted, self._details = (noun, number, path), None
        self.chosen_tree.border_title = f"{LISTINGS[noun].singular} {number or self.listed.cursor + 1}"
        self.chosen_tree.show(row_nodes(noun, row, self.first_time))
        self.bytes.show(())
        if look:
            self._look_at(noun, row, number)

    def _look_at(self, noun: str, row: dict[str, Any], number: int) -> None:
        """Have a process read more than the row says."""
        width = max(60, self.lower.size.width // (2 if self.size.width >= WIDE else 1) - INDENT)
        self.ladder.show((), "reading" if noun in ("rpcs", "packets") else "packets are drawn of RPCs")
        if noun == "rpcs":
            self.feed.look("rpc", RpcPlace.of_row(row), [*map(RpcPlace.of_row, self.listed.around)], width, row["path"])
        elif noun in LOOKED_FOR:
            self.feed.look(LOOKED_FOR[noun], number, width)

    def _mark_field(self) -> None:
        node = self.chosen_tree.node
        if node is not None and node.message:
            self.bytes.mark(node.message, node.start, node.end)

    @on(LinesPane.Chosen)
    def _into(self, event: LinesPane.Chosen) -> None:
        node: TreeNode | None = None
        if isinstance(event.pane, TablePane):
            row = event.pane.chosen or {}
            if event.pane.noun == "findings" and row.get("rpc"):
                self.go_to("rpcs", row["rpc"])
            else:
                self.action_pane("tree")
        elif isinstance(event.pane, TreePane):
            node = event.pane.node
            if node is not None and node.goes_to is not None:
                self.go_to(*node.goes_to)
            elif node is not None and node.message:
                self.action_pane("bytes")
                self._mark_field()

    @on(TimeStrip.Brushed)
    def _brushed(self, event: TimeStrip.Brushed) -> None:
        self.narrowing = self.narrowing._replace(first=event.first, last=event.last)
        self.reorder()

    def show_status(self) -> None:
        """The line above the footer."""
        listing = LISTINGS[self.listed.noun]
        shown_rows, total = self.listed.count, self.total
        parts = [Text(f"{listing.title} ", "bold")]
        at = self.listed.cursor + 1 if shown_rows else 0
        parts.append(
            Text(f"{count(at)} of {count(shown_rows)}" + (f" ({count(total)})" if total != shown_rows else ""))
        )
        if self.listed.noun in self.sorts:
            name, down = self.sorts[self.listed.noun]
            parts.append(Text(f" · by {name} {'↓' if down else '↑'}"))
        if self.written_filter:
            parts += [Text(" · filter "), shown(self.written_filter, "bold cyan")]
        if self.narrowing.first is not None:
            first, last = (seconds((at or 0) - self.first_time) for at in self.narrowing[1:])
            parts += [Text(" · time "), Text(f"{first} to {last} s", "cyan")]
        if self.listed.marked:
            parts.append(Text(f" · {count(len(self.listed.marked))} marked", "bold yellow"))
        if self.listed.noun not in self.finished or not self._whole:
            parts.append(Text(" · " + self._reading(), "magenta"))
        elif self.listed.noun == "rpcs" and (coming := [key for key in LATER if key not in self.finished]):
            parts.append(Text(f" · reading {' and '.join(coming)}", "magenta"))
        elif self.remark:
            parts += [Text(" · "), shown(self.remark, "red")]
        self.status_line.update(Text.assemble(*parts, no_wrap=True, overflow="ellipsis"), layout=False)

    def _reading(self) -> str:
        progress = self.progress
        if progress is None or not progress.size or self.read is not None:
            return "reading"
        return f"reading, {percent(min(1.0, progress.position / progress.size))}"

    def action_pane(self, name: str) -> None:
        """Go to a pane, which is shown then."""
        self._went = True
        self.zoomed = name if self.zoomed else ""
        self._brushing = name == "strip"
        if name in BESIDE:
            self.beside = name
        if name in ("tree", *BESIDE):
            self.below = name
        self.fold()
        self.query_one(f"#{name}").focus()

    def action_all(self) -> None:
        self.narrowing, self.written_filter = Narrowing(), ""
        self.strip.clear()
        self.reorder(keep=True)


class BrowseApp(PanesApp):
    BINDINGS: ClassVar[list[BindingType]] = [*bindings(), Binding("escape", "pane('list')", show=False)]
    capture_name = ""
    """What a capture that is written is called after."""

    @on(LinesPane.HeadingClicked)
    def _heading(self, event: LinesPane.HeadingClicked) -> None:
        column = column_at(self.listed.noun, self.listed.layout_of_lines, event.x - 1)
        if column is not None:
            self._sort_by(column)

    def action_help(self) -> None:
        self.push_screen(HelpPage(help_text(self.KEYS, self.size.width)))

    def action_noun(self, step: int) -> None:
        at = (NOUNS.index(self.listed.noun) + step) % len(NOUNS)
        self._goal = None
        self.list_noun(NOUNS[at])

    def action_zoom(self) -> None:
        name = self.focused.id if self.focused is not None else None
        self.zoomed = "" if self.zoomed or name not in PANES else name
        self.fold()

    def action_theme(self) -> None:
        self.theme = "textual-light" if self.current_theme.dark else "textual-dark"

    def action_find(self) -> None:
        self.push_screen(PromptDialog("find in any column", self._found, hint="Enter: the next; Esc: not"), self._find)

    def _find(self, text: str | None) -> None:
        self._found = text or self._found
        if text is not None and self._found:
            self._next_with(self._found, 1)

    @work(thread=True, exclusive=True, group="find")
    def _next_with(self, text: str, step: int) -> None:
        tables, noun = self.tables.asked(), self.listed.noun
        ids = tables.containing(noun, text) if text else tables.wrong(noun)
        self.call_from_thread(self._go_to_next, noun, ids, step, text)

    def _go_to_next(self, noun: str, ids: Int64s, step: int, text: str) -> None:
        if noun != self.listed.noun:  # Another list was asked for meanwhile.
            return
        row = self.listed.next_of(ids, step)
        if row is None:
            what = f"{text!r} is nowhere in this list" if text else "no error and no finding in this list"
            unread = "" if {self.listed.noun, "findings"} <= self.finished else " so far"
            self.notify(what + unread, severity="warning", markup=False)
        else:
            self.listed.move_to(row)
            self.listed.focus()

    def action_wrong(self, step: int) -> None:
        self._next_with("", step)

    def action_filter(self) -> None:
        tables = self.tables

        def problem(text: str) -> str:
            try:
                if text.strip():
                    checked(text, self.first_time, self.feed.keyed)
            except CaptureError as error:
                return str(error).removeprefix(f"--where {text!r}: ")
            return ""

        hint = "latency > 10ms, procedure = 'READ', path LIKE '/home/%'; empty: all"
        prompt = PromptDialog("Filter", self.written_filter, lambda text: completions(tables, text), problem, hint)
        self.push_screen(prompt, self.filter_by)

    def filter_by(self, text: str | None) -> None:
        """A condition as ``--where`` takes it, which was checked; '' for none, None changes nothing."""
        if text is not None:
            self.written_filter = text.strip()
            where = checked(text, self.first_time, self.feed.keyed) if text.strip() else ""
            self.narrowing = self.narrowing._replace(where=where)
            self.reorder()

    def action_sort(self) -> None:
        noun = self.listed.noun
        names = [*TABLES[noun].headings]
        now, down = self.sorts.get(noun, ("", False))
        lines = [f"{name}{(' ↓' if down else ' ↑') if name == now else ''}" for name in names]
        self._choose(f"sort {LISTINGS[noun].title} by", lines, lambda choice: self._sort_by(names[choice]))

    def _choose(self, title: str, lines: Sequence[str], then: Callable[[int], None]) -> None:
        """Have one of some lines chosen."""
        self.push_screen(ChoiceDialog(title, lines), lambda choice: None if choice is None else then(choice))

    def _sort_by(self, name: str) -> None:
        """Once more turns it round; numbers begin with the greatest, but for the order in which things came."""
        noun = self.listed.noun
        before, down = self.sorts.get(noun, ("", False))
        self.sorts[noun] = name, not down if before == name else TABLES[noun].column(name).amount
        self.reorder()

    def action_follow(self) -> None:
        row = self.listed.chosen
        if row is None:
            return
        if self.listed.noun != "rpcs":
            if condition := _of(self.listed.noun, row):
                self._follow(condition)
            return
        targets = follows(row)
        self._choose("follow", [words for words, _ in targets], lambda choice: self._follow(targets[choice][1]))

    def _follow(self, condition: str) -> None:
        self.filter_by(condition)
        if self.listed.noun != "rpcs":
            self.list_noun("rpcs")

    def action_mark(self) -> None:
        row = self.listed.chosen
        if self.listed.noun != "rpcs":
            self.notify("RPCs are marked: Tab goes to their list", severity="warning")
            return
        if row is None:
            return
        self.listed.marked ^= {row["number"]}
        self.listed.action_cursor(1)
        self.listed.refresh()
        self.show_status()

    def action_unmark(self) -> None:
        self.listed.marked.clear()
        self.listed.refresh()
        self.show_status()

    @property
    def meant(self) -> tuple[frozenset[int], str]:
        """What is written: the marked RPCs, or else the condition that the listed ones pass."""
        return frozenset(self.listed.marked), self.narrowing.condition

    def _meant_words(self) -> str:
        if self.listed.marked:
            return plural(len(self.listed.marked), "marked RPC")
        return "the RPCs that pass the filter" if self.narrowing.condition else "all RPCs"

    @property
    def _nothing_meant(self) -> bool:
        """No RPC is marked, and none passes the filter, which is said."""
        rpcs = self.listed.noun == "rpcs" and "rpcs" in self.finished
        nothing = rpcs and not self.listed.marked and not self.listed.count
        if nothing:
            self.notify("no RPC is marked, and none passes the filter", severity="warning")
        return nothing

    def action_write(self) -> None:
        def write(path: str | None) -> None:
            if path:
                self.notify(f"writing {path}", markup=False)
                self.feed.look("write", str(Path(path).expanduser()), *self.meant, latest=False)

        if self._nothing_meant:
            return
        name = self.capture_name or Path(self.feed.capture.paths[0]).name.partition(".")[0] or "capture"
        self.push_screen(PromptDialog(f"write {self._meant_words()} as", f"{name}-part.pcapng", check=_writable), write)

    def action_wireshark(self) -> None:
        if shutil.which("wireshark") is None:
            self.notify("Wireshark is not installed here; w writes a capture to take elsewhere", severity="warning")
            return
        if self._nothing_meant:
            return
        rpcs, where = self.meant
        if rpcs:
            where = f"number IN ({', '.join(map(str, sorted(rpcs)))})"
        self.notify(f"writing {self._meant_words()} for Wireshark")
        self.feed.look("export", str(Path(self.feed.folder, "browsed.pcapng")), where, latest=False)

    def open_wireshark(self, path: str) -> None:
        nowhere = subprocess.DEVNULL
        subprocess.Popen(  # It outlives this program, and has read its file by then.
            ["wireshark", "-r", path], stdin=nowhere, stdout=nowhere, stderr=nowhere, start_new_session=True
        )

    def action_copy(self) -> None:
        values = self._copied()

        def copy(choice: int) -> None:
            self.copy_to_clipboard(values[choice][1])
            self.notify(f"{values[choice][0]} is on the clipboard", markup=False)

        if values:
            self._choose("copy", [f"{name}  {value}" for name, value in values], copy)

    def _copied(self) -> list[tuple[str, str]]:
        """What can be copied of the line with the cursor: names and values."""
        focused = self.focused
        if isinstance(focused, TreePane) and focused.node is not None:
            text = focused.node.label.plain
            _, _, value = text.partition(": ")
            return [("the value", value), ("the line", text)] if value else [("the line", text)]
        if isinstance(focused, LadderPane | BytesPane) and focused.count:
            return [("the line", focused.line(focused.cursor).plain.strip())]
        row = self.listed.chosen
        return [] if row is None else copied_values(row)

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """Every key is in the palette, too."""
        for key in self.KEYS:
            yield SystemCommand(
                f"{key.name}  ({key.shown})",
                key.meaning,
                lambda action=key.action: self.call_later(self.run_action, action),
            )


def _of(noun: str, row: dict[str, Any]) -> str:
    """Which RPCs belong to a row that is none."""
    if noun == "packets":
        return f"number = {row['rpc']}" if row["rpc"] is not None else ""
    if noun == "connections":
        return f"connection = {row['number']}"
    if noun == "files":
        return f"file_handle = '{row['handle']}'"
    return f"number = {row['rpc']}" if row["rpc"] is not None else f"connection = {row['connection']}"


def _writable(path: str) -> str:
    if not path:
        return "name a file"
    target = Path(path).expanduser()
    if target.exists():
        return "is there already; name another file"
    return "" if target.absolute().parent.is_dir() else f"{target.parent}: no such directory"
