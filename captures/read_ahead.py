"""Work done ahead of its reader, by a process of its own."""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import BinaryIO, TypeVar

Item = TypeVar("Item")

FIRST_BATCH = 1 << 11
"""Frames of the first batch: until it comes the other process has nothing to do."""
_SET_PIPE_SIZE = 1031
"""fcntl's F_SETPIPE_SZ on Linux."""
_PIPE_SIZE = 1 << 20


def processors() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


def ahead(work: Callable[[], Iterator[Item]]) -> Iterator[Item]:
    """What ``work()`` yields, item by item: a child process makes the next while this one is used.

    Items go through ``pickle``.  What ``work`` raises is raised here, behind the items before it; a child that is
    killed is a ChildProcessError.  Where there is no process to be had, the work is done here.  The child begins at
    once, with what this process has in memory, and ends with the iterator.
    """
    try:
        reading, writing = os.pipe()
    except OSError:
        return work()
    try:
        child = os.fork()
    except OSError:
        os.close(reading)
        os.close(writing)
        return work()
    if not child:
        try:
            os.close(reading)
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # The process that takes the items decides.
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            _work(work, writing)
        finally:
            os._exit(0)
    os.close(writing)
    return _items(child, os.fdopen(reading, "rb"))


def _work(work: Callable[[], Iterator[Item]], descriptor: int) -> None:
    with suppress(ImportError, OSError):
        import fcntl

        fcntl.fcntl(descriptor, _SET_PIPE_SIZE, _PIPE_SIZE)
    with suppress(OSError), os.fdopen(descriptor, "wb") as pipe:  # The reader may be gone.
        try:
            for item in work():
                pickle.dump((item, None), pipe, pickle.HIGHEST_PROTOCOL)
                pipe.flush()
                del item  # Or it would live until the next is made.
            pickle.dump((None, StopIteration()), pipe)
        except BrokenPipeError:
            raise
        except Exception as error:
            pickle.dump((None, error), pipe)


def _items(child: int, pipe: BinaryIO) -> Iterator[Item]:
    try:
        while True:
            try:
                item, end = pickle.load(pipe)
            except (EOFError, pickle.UnpicklingError):
                raise ChildProcessError("the process that reads ahead was killed") from None
            if isinstance(end, StopIteration):
                return
            if end is not None:
                raise end
            yield item
            del item
    finally:
        pipe.close()
        with suppress(OSError):
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
