"""Temporary folders and files, of which nothing is left even where all processes that use them were killed."""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import signal
import tempfile
from contextlib import suppress
from pathlib import Path

PREFIX = "rdmascope-"
_ALIVE = "alive"
"""A file in the folder that is locked as long as a process lives which has it open; that goes with every fork."""


def folder_of_process(parent: str | None = None, prefix: str = PREFIX) -> tuple[str, int]:
    """A new folder in ``parent``, by default that of temporary files, and the descriptor of its lock, which is to stay
    open.  Those that the dead left there are removed.  Raises OSError."""
    parent = parent or tempfile.gettempdir()
    remove_left(parent, prefix)
    folder = tempfile.mkdtemp(prefix=prefix, dir=parent)
    lock = os.open(f"{folder}/{_ALIVE}.new", os.O_RDWR | os.O_CREAT, 0o600)
    with suppress(OSError):  # A file system without locks: then nothing is known of those who use it.
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.rename(f"{folder}/{_ALIVE}.new", f"{folder}/{_ALIVE}")
    return folder, lock


class FolderOfProcess:
    """A temporary folder that lives until ``remove``, or the end of the process that made it. A context manager, which
    gives the path."""

    def __init__(self, parent: str | None = None, prefix: str = PREFIX) -> None:
        self._owner = os.getpid()
        # The handler of a signal that ends the process in between would leave the folder there.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
        try:
            self.path, self._lock = folder_of_process(parent, prefix)
            atexit.register(self.remove)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def remove(self) -> None:
        """Once, and not in a fork."""
        if self._lock >= 0 and os.getpid() == self._owner:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._lock)
            self._lock = -1
            atexit.unregister(self.remove)

    def __enter__(self) -> Path:
        return Path(self.path)

    def __exit__(self, *_: object) -> None:
        self.remove()


def remove_left(parent: str, prefix: str = PREFIX) -> None:
    """Remove the folders in ``parent`` whose processes are gone."""
    for path in Path(parent).glob(f"{prefix}*/{_ALIVE}"):
        with suppress(OSError):  # Of another user; or its process lives; or another removes it.
            lock = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(lock).st_uid == os.geteuid():
                    shutil.rmtree(path.parent, ignore_errors=True)
            finally:
                os.close(lock)
