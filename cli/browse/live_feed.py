"""The processes behind the panes of a live capture, and the tables that they fill."""

from __future__ import annotations

import pickle
from collections import deque
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rdmascope.captures import CaptureError
from rdmascope.captures.parallel.background_worker import Reply

from .feed import BrowseFeed, take_part
from .filling import PREPARED, REPLACING, BrowsedCapture, TablePart
from .live_jobs import WatchedDevice, WatchStatus, watch

if TYPE_CHECKING:
    from rdmascope.captures.tables.browsed_tables import BrowsedTables

OF_DEVICE = ("rpcs", "connections", "findings")
"""Tables that are filled as traffic passes."""
MAX_ROWS = {"rpcs": 1 << 20, "findings": 1 << 16}
"""Rows that are kept of what is added to without end."""


class HeldPart(NamedTuple):
    """Rows that are held back, in a file."""

    table: str
    rows: int
    replacing: bool
    path: Path


class LiveFeed(BrowseFeed):
    """Packets, files and the diagnosis are asked for, and made of the packets that are kept."""

    keyed = True

    def __init__(self, watched: WatchedDevice) -> None:
        self._watched = watched
        self.paused = False
        """What comes is held back."""
        self._held: deque[HeldPart] = deque()
        self._parts = 0
        """That were held back."""
        self.oldest = 1
        """Number of the first RPC that is there."""
        self.taken = 0
        """Parts whose rows are there."""
        self.first: WatchStatus
        super().__init__(BrowsedCapture((), watched.options, 0))

    def _begin(self) -> None:
        """Waits until the capture has begun; raises CaptureError where it cannot."""
        keep = replace(self._watched.keep, path=str(Path(self.folder, self._watched.keep.path)))
        watched = self._watched._replace(keep=keep)
        application = f"rdmascope {version('rdmascope')}"
        self._start("watching", lambda: {"watch": lambda: watch(watched, application)})
        self._request("watching", "fill rpcs connections findings", "watch")
        first = next(self._workers["watching"].replies())
        if not isinstance(first.value, WatchStatus):
            self.close()
            raise CaptureError(first.problem)
        self.first, self.capture = first.value, first.value.kept

    def judge(self) -> None:
        """Diagnose what is kept."""
        self._request("asked", "diagnosis", "diagnosis", self.capture)

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
        elif not isinstance(value, TablePart) or value.table not in OF_DEVICE or value.purpose == PREPARED:
            super()._take(reply, tables)
        elif self.paused:
            self._hold(value)
        else:
            self._take_held(tables)
            self._take_part(value, tables)
        if not self.paused:
            self._take_held(tables)

    def _take_held(self, tables: BrowsedTables) -> None:
        while self._held:
            held = self._held.popleft()
            with held.path.open("rb") as file:
                self._take_part(pickle.load(file), tables)
            held.path.unlink()

    def _take_part(self, part: TablePart, tables: BrowsedTables) -> None:
        self.taken += 1
        take_part(part, tables)
        if part.table in MAX_ROWS:
            tables.keep_last(part.table, MAX_ROWS[part.table])
        if part.table == "rpcs":
            self.oldest = tables.oldest("rpcs") or 1

    def _hold(self, part: TablePart) -> None:
        """What would be removed as soon as it is taken in need not be held."""
        self._parts += 1
        path = Path(self.folder, f"held-{self._parts}")
        with path.open("wb") as file:
            pickle.dump(part, file)
        self._held.append(HeldPart(part.table, part.rows, part.purpose == REPLACING, path))
        rows = dict.fromkeys(MAX_ROWS, 0)
        kept: deque[HeldPart] = deque()
        replaced = False
        for one in reversed(self._held):
            if (one.replacing and replaced) or (not one.replacing and rows[one.table] > MAX_ROWS[one.table]):
                one.path.unlink()
                continue
            replaced |= one.replacing
            if not one.replacing:
                rows[one.table] += one.rows
            kept.appendleft(one)
        self._held = kept
