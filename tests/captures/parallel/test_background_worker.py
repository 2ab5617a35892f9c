"""A process that does jobs, and what comes of it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import gettempdir
from time import sleep

import pytest

from rdmascope.captures.errors import CaptureError
from rdmascope.captures.parallel.processes import Jobs, Reply, Worker


def numbers(first: int, last: int) -> Iterator[int]:
    yield from range(first, last)


def endless() -> Iterator[int | None]:
    yield 1
    while True:
        sleep(0.001)
        yield None


def failing(error: Exception) -> Iterator[int]:
    yield 1
    raise error


def large(done: Path) -> Iterator[bytes]:
    """More than a pipe holds."""
    yield bytes(1 << 22)
    done.touch()


JOBS: Jobs = {
    "numbers": numbers,
    "endless": endless,
    "failing": failing,
    "large": large,
    "process": lambda: iter([os.getpid()]),
    "folder": lambda: iter([gettempdir()]),
}


def until_end(replies: Iterator[Reply], request: int) -> list[Reply]:
    found = []
    for reply in replies:
        if reply.request == request:
            found.append(reply)
            if reply.ended:
                break
    return found


def test_jobs_in_their_order(tmp_path: Path) -> None:
    with closing(Worker(lambda: JOBS, str(tmp_path))) as worker:
        one, other = worker.request("numbers", 0, 3), worker.request("numbers", 7, 8)
        replies = worker.replies()
        assert until_end(replies, one) == [Reply(1, 0), Reply(1, 1), Reply(1, 2), Reply(1, None, True)]
        assert until_end(replies, other) == [Reply(2, 7), Reply(2, None, True)]
        assert until_end(replies, worker.request("process"))[0].value != os.getpid()
        assert until_end(replies, worker.request("folder"))[0].value == str(tmp_path)


def test_a_job_goes_on_while_nothing_takes_its_results(tmp_path: Path) -> None:
    done = tmp_path / "done"
    with closing(Worker(lambda: JOBS, str(tmp_path))) as worker:
        worker.request("large", done)
        for _ in range(10_000):
            if done.exists():
                break
            sleep(0.001)
        assert done.exists()
        assert [one.value for one in until_end(worker.replies(), 1)] == [bytes(1 << 22), None]


def test_only_the_latest_matters(tmp_path: Path) -> None:
    with closing(Worker(lambda: JOBS, str(tmp_path))) as worker:
        replies = worker.replies()
        first = worker.request("endless", latest=True)
        assert next(replies) == Reply(first, 1)
        worker.request("endless", latest=True)
        last = worker.request("numbers", 0, 1, latest=True)
        assert [one.value for one in until_end(replies, last)] == [0, None]


def test_what_is_not_for_the_latest_only_is_done_nevertheless(tmp_path: Path) -> None:
    with closing(Worker(lambda: JOBS, str(tmp_path))) as worker:
        replies = worker.replies()
        first = worker.request("endless", latest=True)
        assert next(replies).request == first
        kept = worker.request("numbers", 5, 6)
        worker.request("numbers", 0, 1, latest=True)
        assert [one.value for one in until_end(replies, kept)] == [5, None]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (CaptureError("a.pcap: no frames in it"), "a.pcap: no frames in it"),
        (FileNotFoundError(2, "No such file", "a.pcap"), "a.pcap: No such file"),
        (MemoryError(), "out of memory"),
        (KeyError("x"), "internal error, please report it: KeyError: 'x'"),
    ],
)
def test_a_job_that_fails_says_why_and_the_next_is_done(tmp_path: Path, error: Exception, words: str) -> None:
    with closing(Worker(lambda: JOBS, str(tmp_path))) as worker:
        replies = worker.replies()
        assert until_end(replies, worker.request("failing", error))[-1] == Reply(1, None, True, words)
        assert until_end(replies, worker.request("numbers", 0, 1))[0].value == 0


def test_a_worker_that_is_killed(tmp_path: Path) -> None:
    with closing(Worker(lambda: JOBS, str(tmp_path))) as worker:
        replies = worker.replies()
        os.kill(until_end(replies, worker.request("process"))[0].value, signal.SIGKILL)
        with pytest.raises(CaptureError, match="was killed"):
            next(replies)


def test_closing_ends_what_it_does(tmp_path: Path) -> None:
    worker = Worker(lambda: JOBS, str(tmp_path))
    replies = worker.replies()
    process = until_end(replies, worker.request("process"))[0].value
    worker.request("endless")
    next(replies)
    worker.close()
    worker.close()
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
