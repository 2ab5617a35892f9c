"""Outputs at URLs: written on this machine, and put into their stores when they are whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import CaptureError
from ..read.urls import HTTP, is_url, refuse_url, scheme
from .stale_tempdirs import FolderOfProcess


@contextmanager
def written_to(output: str, inputs: Iterable[str]) -> Iterator[Path]:
    """Where to write a file or folder on this machine: the output itself; or, of a URL, a temporary one.

    The latter is put into the store at the end, where nothing was raised.  Raises CaptureError for a URL that is read,
    or that cannot be written.
    """
    if not is_url(output):
        yield Path(output)
        return
    if scheme(output) in HTTP:
        refuse_url(output)
    if output in inputs:
        raise CaptureError(f"{output}: would overwrite what is read; write to another file")
    from ..read.remote import RemoteFolder

    folder, _, name = output.rstrip("/").rpartition("/")
    if is_url(f"{folder}/"):
        store = RemoteFolder(folder)
    else:
        raise CaptureError(f"{output}: names no file")
    with FolderOfProcess() as made:
        path = made / name
        yield path
        files = [path] if path.is_file() else sorted(one for one in path.rglob("*") if one.is_file())
        for file in files:
            store.put(file, str(file.relative_to(made)))
