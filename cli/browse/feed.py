"""The processes behind the panes, and the tables that they fill."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from threading import Thread
from typing import Any

from rdmascope.captures import CaptureError
from rdmascope.captures.parallel.ipc import Jobs, MakeJobs, Reply, Worker
from rdmascope.captures.tables.browsed_tables import BrowsedTables
from rdmascope.captures.write.stale_tempdirs import folder_of_process

from .filling import ADDED, COMPLETING, PREPARED, BrowsedCapture, TablePart, fill

FIRST = ("rpcs", "connections")
"""Tables of the first pass."""
PUT_BACK = (
    "\x1b[?2004l\x1b[?7h\x1b[?2048l\x1b[?1000l\x1b[?1003l\x1b[?1015l\x1b[?1006l\x1b[<u\x1b[?1049l\x1b[?25h\x1b[?1004l"
)
"""What Textual writes at its end: no bracketed paste, reports of the mouse and of focus, the screen from before."""
BACKGROUND = 19
"""The niceness of what can wait: of the screen's import, and of reading once every RPC is in the list."""
LEAVE = 5.0
"""Seconds for a part to be taken in at the end."""

Listener = Callable[[str, Reply], None]
"""Is given the name of the job and what it sent, in a thread."""


def asked() -> Jobs:
    """Jobs of the process that reads what is asked for."""
    return {"fill": fill, "diagnosis": _diagnosed}


def looking() -> Jobs:
    """Jobs of the process that looks closer at what is chosen."""
    from .jobs import NOUN_JOBS, looking_jobs

    return looking_jobs() | NOUN_JOBS


def _diagnosed(capture: BrowsedCapture) -> Iterator[Any]:
    from .jobs import diagnosed

    return diagnosed(capture)


def _completed(capture: BrowsedCapture, later: str) -> Iterator[Any]:
    os.nice(BACKGROUND)
    return fill(capture, (), later)


def _judged(capture: BrowsedCapture) -> Iterator[Any]:
    from .jobs import judged

    return judged(capture)


class BrowseFeed:
    """Make it before anything has threads: processes are forked.  The capture is read from then on; ``open`` it before
    anything has threads, too.  ``close`` ends the processes and removes what they left."""

    keyed = False
    """Rows go by numbers of their own, and old ones are removed."""

    def __init__(self, capture: BrowsedCapture) -> None:
        self.capture = capture
        self.folder, self._lock = folder_of_process()
        self._terminal = os.ttyname(1) if os.isatty(1) else ""
        self._workers: dict[str, Worker] = {}
        self._names: dict[tuple[str, int], str] = {}
        self._listener: Listener = lambda name, reply: None
        self._threads: list[Thread] = []
        self.tables: BrowsedTables
        self._begin()

    def _put_back(self) -> None:
        """In a worker, where this process was killed; the first to notice does it."""
        if os.path.isdir(self.folder):
            shutil.rmtree(self.folder, ignore_errors=True)
            if self._terminal:
                with open(os.open(self._terminal, os.O_WRONLY | os.O_NOCTTY), "w") as terminal:
                    terminal.write(PUT_BACK)

    def _start(self, kind: str, jobs: MakeJobs) -> None:
        self._workers[kind] = Worker(jobs, self.folder, self._put_back)

    def _begin(self) -> None:
        """Read, before what draws is loaded."""
        self._start("reading", lambda: {"fill": fill, "complete": _completed, "judge": _judged})
        self._request("reading", f"fill {' '.join(FIRST)}", "fill", self.capture, FIRST)

    def open(self) -> BrowsedTables:
        """Make the tables, and the processes that look at something."""
        self._start("asked", asked)
        self._start("looking", looking)
        self.tables = BrowsedTables(self.folder, self.keyed)
        return self.tables

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
        """Fill tables that were asked for."""
        self._request("asked", f"fill {' '.join(tables)}", "fill", self.capture, tables)

    def complete(self) -> None:
        """Fill what takes longer: the paths of files, and then what takes a judgement of everything."""
        self._request("reading", "fill paths", "complete", self.capture, "paths")
        self._request("reading", "fill places findings", "judge", self.capture)

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
            take_part(reply.value, tables)
        elif reply.ended:
            tables.forget_prepared()

    def close(self) -> None:
        """End the processes, and remove what they left."""
        self._listener = lambda name, reply: None
        for worker in self._workers.values():
            worker.close()
        # A thread in the midst of the database when Python ends would end it with an abort.
        for thread in self._threads:
            thread.join(LEAVE)
        if hasattr(self, "tables"):
            self.tables.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)

    def abandon(self) -> None:
        """The same in the midst of anything, where this process ends at once."""
        for worker in self._workers.values():
            worker.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def take_part(part: TablePart, tables: BrowsedTables) -> None:
    """Have its rows in the tables."""
    if part.purpose == ADDED:
        tables.take_in(part.table, part.columns)
    elif part.purpose == COMPLETING:
        tables.complete(part.columns)
    else:
        tables.prepare(part.table, part.columns)
        if part.purpose != PREPARED:
            tables.replace(part.table)
