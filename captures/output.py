"""The one door through which every file is opened that is written: it refuses to overwrite what is read."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from .errors import CaptureError
from .merge import expand


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


def _files_of(given: str) -> Iterable[str]:
    if given == "-":
        return ()
    try:
        return [given, *(path for path, listed in expand(given) if listed)]
    except CaptureError:
        return [given]


def input_files(inputs: Iterable[str]) -> list[str]:
    """The files that are read, those of directories included."""
    return [path for given in inputs for path in _files_of(given)]


def open_output(output: str | os.PathLike[str], inputs: Iterable[str]) -> BinaryIO:
    """Open a file for writing that is not read in the same run.  Raises CaptureError."""
    refuse_inputs(output, inputs)
    directory = Path(output).parent
    if not directory.is_dir():
        raise CaptureError(f"{directory}: no such directory")
    try:
        return Path(output).open("wb")
    except OSError as error:
        raise CaptureError(f"{os.fspath(output)}: {error.strerror}") from None


def write_output(output: str | os.PathLike[str], text: str, inputs: Iterable[str]) -> None:
    """Write a text file that is not read in the same run.  Raises CaptureError."""
    with open_output(output, inputs) as file:
        file.write(text.encode())
