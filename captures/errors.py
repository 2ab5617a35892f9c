"""What all of this folder stands on: its exceptions, what others say that are no fault of this program, what is not
installed; signals, and what is closed."""

from __future__ import annotations

import errno
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from types import FrameType
from typing import Self

Handler = Callable[[int, FrameType | None], object] | int
"""A handler of signals."""


class CaptureError(Exception):
    """What is wrong with a capture and where, in one line a user can act on."""


class UnknownNameError(CaptureError, ValueError):
    """A name that nothing has, with the names that there are."""


class Closing:
    """What is closed at the end of a ``with``."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        raise NotImplementedError


@contextmanager
def system_errors(what: object) -> Iterator[None]:
    """Raise what the system refuses within as a CaptureError, which begins with what it is about."""
    try:
        yield
    except OSError as error:
        raise CaptureError(f"{what}: {error.strerror}") from None


@contextmanager
def signals_to(handler: Handler, *numbers: int) -> Iterator[None]:
    """Signals that come within go to a handler."""
    before = [(number, signal.signal(number, handler)) for number in numbers]
    try:
        yield
    finally:
        for number, former in before:
            signal.signal(number, former)


def one_line(error: BaseException) -> str:
    """The first paragraph of an error's own words."""
    return " ".join(str(error).split("\n\n")[0].split())


def words_of(error: BaseException) -> str | None:
    """What an error says in one line; None where it is a fault of this program."""
    if isinstance(error, CaptureError):
        return str(error)
    if isinstance(error, MemoryError):
        return "out of memory"
    if isinstance(error, OSError):
        words = error.strerror or one_line(error)
        return f"{os.fsdecode(error.filename)}: {words}" if isinstance(error.filename, str | bytes) else words
    duckdb = sys.modules.get("duckdb")  # It is loaded for those only who ask it.
    if duckdb is None or not isinstance(error, duckdb.OperationalError | duckdb.FatalException):
        return None
    words = one_line(error)
    words = re.sub(r"^.*(Failed to commit|because of error|IO Error): ", "", words)
    from tempfile import gettempdir  # The start of no command waits for it.

    full = any(os.strerror(number) in words for number in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT))
    ours = f"{gettempdir()}/rdmascope-" in words
    return f"{words}; TMPDIR may name a folder with more room" if full and ours else words


EXTRAS = {
    "bokeh": ("a page takes Bokeh", "html"),
    "distributed": ("--scheduler takes Dask", "cluster"),
    "duckdb": ("conditions, SQL and saved tables take DuckDB", "sql"),
    "pandas": ("a DataFrame takes pandas", ""),
    "prompt_toolkit": ("the prompt of sql takes prompt_toolkit", "sql"),
    "pyarrow": ("Arrow and Parquet take pyarrow", "arrow"),
    "pyshark": ("a second opinion takes pyshark", "verify"),
    "scapy": ("frames in full, synth and probe take Scapy", "layers"),
    "textual": ("browse takes Textual", "browse"),
}
"""Module -> what takes it, and the extra of rdmascope that brings it; '' where none does."""


def need(name: str) -> None:
    """Before a module is imported: raise CaptureError, with what to install, where it is not there."""
    if sys.modules.get(name, name) is None or find_spec(name) is None:
        raise CaptureError(not_installed(name))


def not_installed(name: str) -> str:
    words, extra = EXTRAS[name]
    wanted = f"'rdmascope[{extra}]'" if extra else name
    return f"{words}, which is not installed: pip install {wanted}"
