"""Parts of files of a store for DuckDB: what is known of them is not asked, and only what it wants is read."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from fsspec import AbstractFileSystem

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

TAIL = 1 << 16
"""Bytes at the end of a file that are read at once: most often what a Parquet file says of itself."""

MAX_TAILS = 256
"""Tails that are kept."""


def register(connection: DuckDBPyConnection, system: AbstractFileSystem, sizes: Mapping[str, int]) -> None:
    """Let DuckDB read the files of these names, with their bytes, as ``parts://NAME``."""
    connection.register_filesystem(_Parts(system, sizes))


class _Parts(AbstractFileSystem):  # type: ignore[misc]
    """Files that never change."""

    protocol = "parts"
    cachable = False

    def __init__(self, system: AbstractFileSystem, sizes: Mapping[str, int]) -> None:
        super().__init__()
        self._system, self._sizes = system, sizes
        self._tails: dict[str, bytes] = {}

    def glob(self, path: str, **_: Any) -> list[str]:
        return [self._strip_protocol(path)]

    def exists(self, path: str, **_: Any) -> bool:
        return self._strip_protocol(path) in self._sizes

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        name = self._strip_protocol(path)
        return {"name": name, "size": self._sizes[name], "type": "file"}

    def modified(self, path: str) -> datetime:
        return datetime.fromtimestamp(0, UTC)

    def open(self, path: str, mode: str = "rb", **_: Any) -> _Part:
        name = self._strip_protocol(path)
        return _Part(self._system, name, self._sizes[name], self._tails)


class _Part:
    """A file that is read at any place; each time a request."""

    def __init__(self, system: AbstractFileSystem, name: str, size: int, tails: dict[str, bytes]) -> None:
        self._system, self._name, self._size, self._tails = system, name, size, tails
        self._at = 0

    def seek(self, at: int, whence: int = 0) -> int:
        self._at = at + (0, self._at, self._size)[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int = -1) -> bytes:
        first, last = self._at, self._size if size < 0 else min(self._at + size, self._size)
        self._at = last
        begin = max(self._size - TAIL, 0)
        if first >= begin:
            if self._name not in self._tails:
                if len(self._tails) >= MAX_TAILS:
                    self._tails.clear()
                self._tails[self._name] = self._system.cat_file(self._name, start=begin, end=self._size)
            return self._tails[self._name][first - begin : last - begin]
        data: bytes = self._system.cat_file(self._name, start=first, end=last)
        return data

    def close(self) -> None:
        pass
