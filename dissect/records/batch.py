"""What ``batch`` did, as records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from .schema import Record, record


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
