"""The embedded database; where it is not installed, what is asked of it says how to get it."""

from __future__ import annotations

from typing import NoReturn

from ..extras import need

try:
    import duckdb as duckdb
except ModuleNotFoundError:

    class _NotInstalled:
        def __getattr__(self, name: str) -> NoReturn:
            need("duckdb")
            raise AttributeError(name)

    duckdb = _NotInstalled()  # type: ignore[assignment]
