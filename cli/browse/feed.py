"""The processes behind the panes, and the tables that they fill."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from threading import Thread
from typing import Any

from rdmascope.captures import CaptureError
from rdmascope.captures.browsed_tables import LATER, BrowsedTables
from rdmascope.captures.worker import Jobs, Reply, Worker

from .jobs import BrowsedCapture, TablePart, filling_jobs, looking_jobs
from .noun_jobs import NOUN_JOBS

FIRST = ("rpcs", "connections")
"""Tables of the first pass."""
PUT_BACK = (
    "\x1b[?2004l\x1b[?7h\x1b[?2048l\x1b[?1000l\x1b[?1003l\x1b[?1015l\x1b[?1006l\x1b[<u\x1b[?1049l\x1b[?25h\x1b[?1004l"
)
"""What Textual writes at its end: no bracketed paste, reports of the mouse and of focus, the screen from before."""
LEAVE = 5.0
"""Seconds for a part to be taken in at the end."""

Listener = Callable[[str, Reply], None]
"""Is given the name of the job and what it sent, in a thread."""


class BrowseFeed:
    """Make it before anything has threads: processes are forked.  ``close`` ends them and removes what they left."""

    keyed = False
    """Rows go by numbers of their own, and old ones are removed."""

    def __init__(self, capture: BrowsedCapture) -> None:
        self.capture = capture
        self.folder = tempfile.mkdtemp(prefix="rdmascope-")
        self._terminal = os.ttyname(1) if os.isatty(1) else ""
        self._workers = {kind: Worker(jobs, self.folder, self._put_back) for kind, jobs in self._jobs().items()}
        self._names: dict[tuple[str, int], str] = {}
        self._listener: Listener = lambda name, reply: None
        self._threads: list[Thread] = []
        self.tables: BrowsedTables

    def _put_back(self) -> None:
        """In a worker, where this process was killed; the first to notice does it."""
        if os.path.isdir(self.folder):
            shutil.rmtree(self.folder, ignore_errors=True)
            if self._terminal:
                with open(os.open(self._terminal, os.O_WRONLY | os.O_NOCTTY), "w") as terminal:
                    terminal.write(PUT_BACK)

    def _jobs(self) -> Mapping[str, Jobs]:
        return {"reading": filling_jobs(), "judging": filling_jobs(), "looking": looking_jobs() | NOUN_JOBS}

    def open(self) -> BrowsedTables:
        """Make the tables, and begin."""
        self.tables = BrowsedTables(self.folder, self.keyed)
        self._begin()
        return self.tables

    def _begin(self) -> None:
        self.fill(*FIRST)

    def listen(self, listener: Listener) -> None:
        """From now on; rows were taken in before their parts are given."""
        self._listener = listener
        for kind, worker in self._workers.items():
            thread = Thread(target=self._receive, args=(worker, kind), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _request(self, kind: str, name: str, job: str, *arguments: Any, latest: bool = False) -> None:
        request = self._workers[kind].request(job, *arguments, latest=latest)
        self._names[kind, request] = name

    def fill(self, *tables: str) -> None:
        """Fill tables, in a pass after those that were asked for before."""
        self._request("reading", f"fill {' '.join(tables)}", "fill", self.capture, self.tables.folder, tables)

    def complete(self) -> None:
        """Fill the columns of RPCs that take longer, each kind in a pass of its own."""
        for later in LATER:
            self._request("reading", f"fill {later}", "fill", self.capture, self.tables.folder, ("rpcs",), later)

    def judge(self) -> None:
        """Fill the findings, and diagnose."""
        self._request("judging", "fill findings", "fill", self.capture, self.tables.folder, ("findings",))
        self._request("judging", "diagnosis", "diagnosis", self.capture)

    def look(self, job: str, *arguments: Any, latest: bool = True) -> None:
        """Have one of the jobs done that look at something; ``latest``: in place of what was looked at before."""
        self._request("looking", job, job, self.capture, *arguments, latest=latest)

    def _receive(self, worker: Worker, kind: str) -> None:
        tables = self.tables.asked()
        try:
            for reply in worker.replies():
                self._take(reply, tables)
                self._listener(self._names.get((kind, reply.request), ""), reply)
        except CaptureError as error:
            self._listener("died", Reply(0, None, True, str(error)))
        except Exception as error:  # The tables are closed, or there is no room for them.
            self._listener("died", Reply(0, None, True, " ".join(str(error).split())))

    def _take(self, reply: Reply, tables: BrowsedTables) -> None:
        """Rows, before it is said that they are there."""
        if isinstance(reply.value, TablePart):
            part = reply.value
            if part.columns:
                tables.complete(part.path, part.columns)
            else:
                tables.take_in(part.table, part.path, part.replacing)

    def close(self) -> None:
        """Nothing stays behind."""
        self._listener = lambda name, reply: None
        for worker in self._workers.values():
            worker.close()
        # A thread in the midst of the database when Python ends would end it with an abort.
        for thread in self._threads:
            thread.join(LEAVE)
        if hasattr(self, "tables"):
            self.tables.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def abandon(self) -> None:
        """The same in the midst of anything, where this process ends at once."""
        for worker in self._workers.values():
            worker.close()
        shutil.rmtree(self.folder, ignore_errors=True)
