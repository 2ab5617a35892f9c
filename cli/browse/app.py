"""The keys of ``rdmascope browse``, and what they do with the panes."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

from textual import on, work
from textual.app import SystemCommand
from textual.binding import Binding, BindingType
from textual.screen import Screen

from rdmascope.captures.errors import CaptureError
from rdmascope.captures.tables.browsed_tables import NOUNS, checked, completions, follows
from rdmascope.dissect.arrays import Int64s
from rdmascope.dissect.records.tables import TABLES
from rdmascope.dissect.units import plural

from .keys import ChoiceDialog, HelpPage, PromptDialog, bindings, help_text
from .lines_pane import BytesPane, LadderPane, LinesPane, TreePane
from .listings import LISTINGS, column_at, copied_values
from .panes import PANES, PanesApp


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
        place = self.listed.next_of(ids, step)
        if place is None:
            what = f"{text!r} is nowhere in this list" if text else "no error and no finding in this list"
            unread = "" if {self.listed.noun, "findings"} <= self.finished else " so far"
            self.notify(what + unread, severity="warning", markup=False)
        else:
            self.listed.move_to(place)
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

        self._make_ready()
        hint = "latency > 10ms, procedure = 'READ', path LIKE '/home/%'; empty: all"
        prompt = PromptDialog("Filter", self.written_filter, lambda text: completions(tables, text), problem, hint)
        self.push_screen(prompt, self.filter_by)

    @work(thread=True, group="ready")
    def _make_ready(self) -> None:
        self.tables.make_ready()

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

        def by(choice: int | None) -> None:
            if choice is not None:
                self._sort_by(names[choice])

        self.push_screen(ChoiceDialog(f"sort {LISTINGS[noun].title} by", lines), by)

    def _sort_by(self, name: str) -> None:
        """Once more turns it round; numbers begin with the greatest, but for the order in which things came."""
        noun = self.listed.noun
        before, down = self.sorts.get(noun, ("", False))
        greatest = name in ("latency", "to server", "to client", "count", "server time", "retransmitted", "p99",
                            "median", "read", "written", "size", "reads", "writes", "retrans", "missing",
                            "Length")  # fmt: skip
        self.sorts[noun] = name, not down if before == name else greatest
        self.reorder()

    def action_follow(self) -> None:
        row = self.listed.chosen
        if row is None:
            return
        if self.listed.noun != "rpcs":
            condition = _of(self.listed.noun, row)
            if condition:
                self._follow(condition)
            return
        found = follows(row)

        def follow(choice: int | None) -> None:
            if choice is not None:
                self._follow(found[choice][1])

        self.push_screen(ChoiceDialog("follow", [words for words, _ in found]), follow)

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
        found = self._copied()

        def copy(choice: int | None) -> None:
            if choice is not None:
                self.copy_to_clipboard(found[choice][1])
                self.notify(f"{found[choice][0]} is on the clipboard", markup=False)

        if found:
            self.push_screen(ChoiceDialog("copy", [f"{name}  {value}" for name, value in found]), copy)

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
