"""What is recognised as saved tables, without a look into them: DuckDB need not be loaded for that."""

from __future__ import annotations

import os

from .open import DUCKDB


def holds_tables(path: str) -> bool:
    """Whether ``path`` is a DuckDB database, or a folder of Parquet files that this program wrote."""
    if os.path.isdir(path):
        return all(os.path.isfile(os.path.join(path, f"{name}.parquet")) for name in ("metadata", "rpcs"))
    if not os.path.isfile(path):
        return False
    try:
        with open(path, "rb") as file:
            return file.read(12)[8:] == DUCKDB
    except OSError:
        return False
