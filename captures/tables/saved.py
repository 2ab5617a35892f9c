"""What is recognised as saved tables, without a look into them: DuckDB need not be loaded for that."""

from __future__ import annotations

import os
from collections.abc import Sequence

from ..errors import CaptureError
from ..read.open import DUCKDB
from .data_set_folder import is_data_set


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


def refuse_tables(paths: Sequence[str]) -> None:
    """Raise CaptureError where one of the paths has tables: for what takes packets."""
    for path in filter(holds_tables, paths):
        from .saved_tables import packets_elsewhere

        raise CaptureError(packets_elsewhere(path)) from None
