"""A process of its own that does jobs, one after the other, and sends what they give."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from queue import Queue
from threading import Thread
from typing import Any, NamedTuple

from ..errors import CaptureError, words_of

Jobs = Mapping[str, Callable[..., Iterator[Any]]]
"""Name of a job -> what makes its results; they go through ``pickle``."""
WAITING = 4
"""Results that wait to be sent, at most, before a job waits, too."""

MakeJobs = Callable[[], Jobs]
"""Is called in the process itself, which so imports what they need once it is asked for something."""


class Reply(NamedTuple):
    """Something that a worker sent."""

    request: int
    """Number of the request."""
    value: Any
    """A result; None where ``ended``."""
    ended: bool = False
    """The job is over."""
    problem: str = ""
    """Why it ended early, in one line."""


class Worker:
    """The process, which begins at once with what this one has in memory; it ends with ``close`` or with its parent.

    Make it before there are threads: it is forked.  Jobs are done in their order; but of those that are requested with
    ``latest`` only the last one matters, and the others end at their next result.
    """

    def __init__(self, make_jobs: MakeJobs, folder: str, orphaned: Callable[[], None] = lambda: None) -> None:
        """``folder``: where its temporary files are, so that they go with it; ``orphaned``: what it does where this
        process ended without ``close``."""
        self._requests = 0
        ours, theirs = Pipe()
        sys.stdout.flush()
        self._child = os.fork()
        if not self._child:
            try:
                ours.close()
                _serve(make_jobs, theirs, folder)
                orphaned()
            finally:
                os._exit(0)
        theirs.close()
        self._pipe: Connection = ours

    def request(self, name: str, *arguments: Any, latest: bool = False) -> int:
        """Have a job done; gives the number that its results have."""
        self._requests += 1
        with suppress(OSError):
            self._pipe.send((self._requests, name, arguments, latest))
        return self._requests

    def replies(self) -> Iterator[Reply]:
        """What it sends, until it is closed; waits for it, so take them in a thread.  CaptureError: it was killed."""
        while True:
            try:
                reply: Reply = self._pipe.recv()
            except (EOFError, OSError):
                if self._child:
                    raise CaptureError("the process that reads the capture was killed") from None
                return
            yield reply

    def close(self) -> None:
        """End it, whatever it does."""
        child, self._child = self._child, 0
        if child:
            with suppress(OSError):
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
            self._pipe.close()


class _Outbox:
    """Sends results by a thread: a job goes on while the other process is busy with something else.

    The thread lives no longer than a job has results, for at its beginning a job may fork.
    """

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._waiting: Queue[bytes | None] = Queue(WAITING)
        self._thread: Thread | None = None

    def send(self, reply: Reply) -> None:
        if self._thread is None:
            self._thread = Thread(target=self._send, daemon=True)
            self._thread.start()
        self._waiting.put(pickle.dumps(reply, pickle.HIGHEST_PROTOCOL))

    def finish(self) -> None:
        """Wait until all is sent."""
        if self._thread is not None:
            self._waiting.put(None)
            self._thread.join()
            self._thread = None

    def _send(self) -> None:
        there = True
        while (one := self._waiting.get()) is not None:
            try:
                if there:
                    self._pipe.send_bytes(one)
            except OSError:
                there = False  # Who asks next is told so by the end of the requests.


def _serve(make_jobs: MakeJobs, pipe: Connection, folder: str) -> None:
    for number in (signal.SIGINT, signal.SIGTSTP, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # The process that asks decides.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):  # The terminal is the other's.
        os.dup2(nowhere, descriptor)
    tempfile.tempdir = folder
    jobs: Jobs = {}
    outbox = _Outbox(pipe)
    waiting: list[tuple[int, str, tuple[Any, ...], bool]] = []
    with suppress(EOFError, OSError):
        while True:
            if not waiting:
                waiting.append(pipe.recv())
            jobs = jobs or make_jobs()
            request, name, arguments, replaceable = waiting.pop(0)
            problem = ""
            try:
                for value in jobs[name](*arguments):
                    if value is not None:
                        outbox.send(Reply(request, value))
                    while pipe.poll():
                        waiting.append(pipe.recv())
                    if replaceable and any(one[3] for one in waiting):
                        break
            except (EOFError, BrokenPipeError, ConnectionError):
                raise
            except Exception as error:  # A fault of this program: said where it is seen, and the next job is done.
                problem = words_of(error) or f"internal error, please report it: {type(error).__name__}: {error}"
            outbox.send(Reply(request, None, True, problem))
            outbox.finish()
            while pipe.poll():
                waiting.append(pipe.recv())
            latest = [one for one in waiting if one[3]][-1:]
            waiting = [one for one in waiting if not one[3] or one in latest]
