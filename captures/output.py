"""The one door through which every file is opened that is written: it refuses to overwrite what is read."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from .errors import CaptureError
from .merge import expand
from .urls import local, refuse_url


def refuse_inputs(output: str | os.PathLike[str], inputs: Iterable[str]) -> None:
    """Raise CaptureError where ``output`` is one of ``inputs``, or a file of a directory among them."""
    try:
        there = os.stat(output)
    except OSError:
        return
    for path in input_files(inputs):
        try:
            same = os.path.samestat(os.stat(path), there)
        except OSError:
            continue
        if same:
            raise CaptureError(f"{os.fspath(output)}: would overwrite what is read; write to another file")


STANDARD_INPUT = "/dev/stdin"
"""Where standard input is a file, it is that file."""


def _files_of(given: str) -> Iterable[str]:
    if given == "-":
        return [STANDARD_INPUT]
    given = local(given)
    try:
        return [given, *(path for path, listed in expand(given) if listed)]
    except CaptureError:
        return [given]


def input_files(inputs: Iterable[str]) -> list[str]:
    """The files that are read, those of directories included."""
    return [path for given in inputs for path in _files_of(given)]


def check_outputs(outputs: Iterable[str | os.PathLike[str] | None], inputs: Iterable[str] = ()) -> None:
    """Before the work begins: raise CaptureError where these cannot be written, or not all of them.

    None and - stand for no file.
    """
    inputs = tuple(inputs)
    seen: set[str] = set()
    for output in outputs:
        if output is None or os.fspath(output) == "-":
            continue
        refuse_url(output)
        directory = Path(output).parent
        if not directory.is_dir():
            raise CaptureError(f"{directory}: {'is no directory' if directory.exists() else 'no such directory'}")
        if Path(output).is_dir():
            raise CaptureError(f"{os.fspath(output)}: is a directory")
        refuse_inputs(output, inputs)
        real = os.path.realpath(output)
        if real in seen:
            raise CaptureError(f"{os.fspath(output)}: two outputs cannot be one file")
        seen.add(real)


def open_output(output: str | os.PathLike[str], inputs: Iterable[str]) -> BinaryIO:
    """Open a file for writing that is not read in the same run.  Raises CaptureError."""
    check_outputs([output], inputs)
    try:
        return Path(output).open("wb")
    except OSError as error:
        raise CaptureError(f"{os.fspath(output)}: {error.strerror}") from None


def create_within(directory: int, name: str, path: Path, inputs: Iterable[os.stat_result]) -> int:
    """A new file in a directory, open for writing; one that was there is replaced, never written into.

    Args:
        directory: descriptor of the directory, so that no link leads out of it.
        name: of the file.
        path: of the directory, for messages.
        inputs: what is read in the same run.

    Raises OSError, and ValueError for a name that is none.
    """
    where = str(path / name)
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise ValueError(f"{name!r} is no name in a directory")
    try:
        there = os.stat(name, dir_fd=directory, follow_symlinks=False)
        if any(os.path.samestat(there, one) for one in inputs):
            raise FileExistsError(errno.EEXIST, "is the capture itself", where)
        os.unlink(name, dir_fd=directory)
    except FileNotFoundError:
        pass
    except IsADirectoryError:
        raise IsADirectoryError(errno.EISDIR, "is there and is a directory", where) from None
    return os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666, dir_fd=directory)


def write_output(output: str | os.PathLike[str], text: str, inputs: Iterable[str]) -> None:
    """Write a text file that is not read in the same run.  Raises CaptureError."""
    with open_output(output, inputs) as file:
        file.write(text.encode())
