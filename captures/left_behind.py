"""Temporary folders that are removed even where all processes that use them were killed: by the next of them."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

PREFIX = "rdmascope-"
_ALIVE = "alive"
"""A file in the folder that is locked as long as a process lives which has it open; that goes with every fork."""


def folder_of_process() -> tuple[str, int]:
    """A new folder, and the descriptor of its lock, which is to stay open.  Those that the dead left are removed."""
    import fcntl  # Only where processes fork.

    _remove_left()
    folder = tempfile.mkdtemp(prefix=PREFIX)
    lock = os.open(f"{folder}/{_ALIVE}.new", os.O_RDWR | os.O_CREAT, 0o600)
    with suppress(OSError):  # A file system without locks: then nothing is known of those who use it.
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.rename(f"{folder}/{_ALIVE}.new", f"{folder}/{_ALIVE}")
    return folder, lock


def _remove_left() -> None:
    import fcntl

    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*/{_ALIVE}"):
        with suppress(OSError):  # Of another user; or its process lives; or another removes it.
            lock = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(lock).st_uid == os.geteuid():
                    shutil.rmtree(path.parent, ignore_errors=True)
            finally:
                os.close(lock)
