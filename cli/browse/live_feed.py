"""The processes behind the panes of a live capture, and the tables that they fill."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rdmascope.captures import CaptureError
from rdmascope.captures.worker import Jobs, Reply

from .feed import BrowseFeed
from .jobs import BrowsedCapture, TablePart, filling_jobs, looking_jobs
from .live_jobs import WatchedDevice, WatchStatus, watch
from .noun_jobs import NOUN_JOBS

if TYPE_CHECKING:
    from rdmascope.captures.browsed_tables import BrowsedTables

MAX_ROWS = {"rpcs": 1 << 20, "findings": 1 << 16}
"""Rows that are kept of what is added to without end."""


class LiveFeed(BrowseFeed):
    """Packets, files and the diagnosis are asked for, and made of the packets that are kept."""

    keyed = True

    def __init__(self, watched: WatchedDevice) -> None:
        self._watched = watched
        self.paused = False
        """What comes is held back."""
        self._held: deque[TablePart] = deque()
        self.oldest = 1
        """Number of the first RPC that is there."""
        self.taken = 0
        """Parts whose rows are there."""
        self.first: WatchStatus
        super().__init__(BrowsedCapture((), watched.options, 0))

    def _jobs(self) -> Mapping[str, Jobs]:
        keep = replace(self._watched.keep, path=str(Path(self.folder, self._watched.keep.path)))
        watched = self._watched._replace(keep=keep)
        application = f"rdmascope {version('rdmascope')}"
        return {
            "watching": {"watch": lambda folder: watch(watched, folder, application)},
            "judging": filling_jobs(),
            "looking": looking_jobs() | NOUN_JOBS,
        }

    def _begin(self) -> None:
        """Waits until the capture has begun; raises CaptureError where it cannot."""
        self._request("watching", "fill rpcs connections findings", "watch", self.tables.folder)
        first = next(self._workers["watching"].replies())
        if not isinstance(first.value, WatchStatus):
            raise CaptureError(first.problem)
        self.first = first.value
        self._take(first, self.tables)

    def fill(self, *tables: str) -> None:
        self._request("judging", f"fill {' '.join(tables)}", "fill", self.capture, self.tables.folder, tables)

    def judge(self) -> None:
        """Diagnose what is kept."""
        self._request("judging", "diagnosis", "diagnosis", self.capture)

    def look(self, job: str, *arguments: Any, latest: bool = True) -> None:
        """What is written is named by its frames, where a pass gives RPCs other numbers."""
        if job in ("write", "export") and not self.capture.numbered:
            output, *meant = arguments
            rpcs, where = meant if job == "write" else (frozenset(), *meant)
            if rpcs:
                where = f"number IN ({', '.join(map(str, sorted(rpcs)))})"
            frames = self.tables.asked().call_frames(where) if where else ()
            where = f"coalesce(call_frame, reply_frame) IN ({', '.join(map(str, frames))})" if where else ""
            arguments = (output, frozenset(), where) if job == "write" else (output, where)
        super().look(job, *arguments, latest=latest)

    def _take(self, reply: Reply, tables: BrowsedTables) -> None:
        value = reply.value
        if isinstance(value, WatchStatus):
            self.capture = value.kept
        elif isinstance(value, TablePart) and value.table not in ("rpcs", "connections", "findings"):
            super()._take(reply, tables)
            return
        elif isinstance(value, TablePart):
            self._held.append(value)
        else:
            return
        if self.paused:
            self._bound()
        else:
            self._take_held(tables)

    def _take_held(self, tables: BrowsedTables) -> None:
        while self._held:
            part = self._held.popleft()
            self.taken += 1
            tables.take_in(part.table, part.path, part.replacing)
            if part.table in MAX_ROWS:
                tables.keep_last(part.table, MAX_ROWS[part.table])
            if part.table == "rpcs":
                self.oldest = tables.oldest("rpcs") or 1

    def _bound(self) -> None:
        """What would be removed as soon as it is taken in need not be held."""
        rows = dict.fromkeys(MAX_ROWS, 0)
        kept: deque[TablePart] = deque()
        replaced = False
        for part in reversed(self._held):
            if (part.replacing and replaced) or (not part.replacing and rows[part.table] > MAX_ROWS[part.table]):
                part.path.unlink()
                continue
            replaced |= part.replacing
            if not part.replacing:
                rows[part.table] += part.rows
            kept.appendleft(part)
        self._held = kept
