"""What is recognised as saved tables, without a look into them: DuckDB need not be loaded for that."""

from __future__ import annotations

import os

from ..errors import CaptureError
from ..read.open import DUCKDB
from ..read.remote import HTTP, RemoteFolder, is_url, scheme

SNAPSHOTS = "snapshots"
"""Folder of a data set that says which files it has."""
MANIFEST = "manifest"
"""Folder of one that versions before 1.1 made."""
_known: set[str] = set()
"""URLs of data sets."""


def is_data_set(path: str) -> bool:
    """Whether ``path`` has the tables of many captures; see ``saved_tables``.  Raises CaptureError.

    The last part of the URL of a data set has no dot in it: nothing is asked about others.
    """
    if not is_url(path):
        if os.path.isdir(os.path.join(path, MANIFEST)) and not os.path.isdir(os.path.join(path, SNAPSHOTS)):
            words = "a data set as versions before 1.1 made them, with files of each capture"
            raise CaptureError(f"{path}: {words}; make it again with rdmascope batch")
        return os.path.isdir(os.path.join(path, SNAPSHOTS))
    if path not in _known:
        last = path.rstrip("/").rpartition("/")[2]
        if scheme(path) in HTTP or "." in last or "*" in last or not RemoteFolder(path).files(SNAPSHOTS):
            return False
        _known.add(path)
    return True


def holds_tables(path: str) -> bool:
    """Whether ``path`` is a DuckDB database, or a folder of Parquet files or a data set that this program wrote."""
    if is_url(path):
        return is_data_set(path)
    if os.path.isdir(path):
        return is_data_set(path) or all(
            os.path.isfile(os.path.join(path, f"{name}.parquet")) for name in ("metadata", "rpcs")
        )
    if not os.path.isfile(path):
        return False
    try:
        with open(path, "rb") as file:
            return file.read(12)[8:] == DUCKDB
    except OSError:
        return False
