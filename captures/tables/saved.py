"""What is recognised as saved tables, without a look into them: DuckDB need not be loaded for that."""

from __future__ import annotations

import os

from ..read.open import DUCKDB

MANIFEST = "manifest"
"""Folder of a data set that has an entry for each capture."""

copies: dict[str, str] = {}
"""Folders of this machine that are copies of data sets at URLs, and those."""


def is_data_set(path: str) -> bool:
    """Whether ``path`` has the tables of many captures; see ``data_set``."""
    return os.path.isdir(os.path.join(path, MANIFEST))


def holds_tables(path: str) -> bool:
    """Whether ``path`` is a DuckDB database, or a folder of Parquet files or a data set that this program wrote."""
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
