"""Captures that are read more than once."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from .urls import is_url


def stays(path: str) -> bool:
    """It can be read again."""
    return path != "-" and (is_url(path) or os.path.isfile(path) or os.path.isdir(path))


@contextmanager
def rereadable(paths: Sequence[str]) -> Iterator[Sequence[str]]:
    """What can be read twice: standard input is copied to a temporary file."""
    if "-" not in paths:
        yield paths
        return
    import shutil
    import sys

    from ..write.output import open_output
    from ..write.stale_tempdirs import FolderOfProcess

    with FolderOfProcess() as folder:
        copy = str(folder / "copy")
        with open_output(copy, ()) as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        yield [copy if path == "-" else path for path in paths]
