"""The exceptions of this folder, and what others say that are no fault of this program."""

from __future__ import annotations

import errno
import os
import sys


class CaptureError(Exception):
    """What is wrong with a capture and where, in one line a user can act on."""


class UnknownNameError(CaptureError, ValueError):
    """A name that nothing has, with the names that there are."""


def words_of(error: BaseException) -> str | None:
    """What an error says in one line; None where it is a fault of this program."""
    if isinstance(error, CaptureError):
        return str(error)
    if isinstance(error, MemoryError):
        return "out of memory"
    if isinstance(error, OSError):
        words = error.strerror or str(error)
        return f"{os.fsdecode(error.filename)}: {words}" if isinstance(error.filename, str | bytes) else words
    duckdb = sys.modules.get("duckdb")  # It is loaded for those only who ask it.
    if duckdb is None or not isinstance(error, duckdb.OperationalError | duckdb.FatalException):
        return None
    words = " ".join(str(error).split("\n\n")[0].split()).rpartition("Failed to commit: ")[2].removeprefix("IO Error: ")
    full = any(os.strerror(number) in words for number in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT))
    return words + ("; TMPDIR may name a folder with more room" if full else "")
