"""What ``batch`` did, as records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from .schema import Record, RecordType, record

TYPES: dict[str, RecordType] = {
    "batch_capture": RecordType(
        "A capture of a data set.",
        "`batch`",
        {
            "capture": ("string", "its name in the data set, made of its contents"),
            "host": ("string", "where it was made, as the folders say"),
            "files": ("array of string", "paths; several where they are rotated"),
            "known": ("boolean", "the data set had it"),
            "problem": ("string|null", "why it could not be read at all"),
            "damage": ("string|null", "why it was not read to its end"),
            "frames": ("integer", "frames read"),
            "rpcs": ("integer", "RPCs"),
            "connections": ("integer", "connections"),
        },
    ),
    "batch": RecordType(
        "All captures of a data set.",
        "`batch`",
        {
            "data_set": ("string", "path"),
            "captures": ("integer", "captures that were given"),
            "known": ("integer", "of them, those that the data set had"),
            "unread": ("integer", "of them, those that could not be read"),
        },
    ),
}


class AnalysedCapture(Protocol):
    """An entry of a manifest."""

    @property
    def capture(self) -> str: ...
    @property
    def host(self) -> str: ...
    @property
    def problem(self) -> str: ...
    @property
    def damage(self) -> str: ...
    @property
    def frames(self) -> int: ...
    @property
    def rpcs(self) -> int: ...
    @property
    def connections(self) -> int: ...


def batch_capture_record(entry: AnalysedCapture, paths: Sequence[str], known: bool) -> Record:
    return record(
        "batch_capture",
        capture=entry.capture,
        host=entry.host,
        files=list(paths),
        known=known,
        problem=entry.problem or None,
        damage=entry.damage or None,
        frames=entry.frames,
        rpcs=entry.rpcs,
        connections=entry.connections,
    )


def batch_record(data_set: str, captures: int, known: int, unread: int) -> Record:
    return record("batch", data_set=data_set, captures=captures, known=known, unread=unread)
