"""Descriptors that pyverbs does not expose, found in /proc/self/fd."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from .interface import VerbsError


@contextmanager
def new_descriptor(kind: str) -> Iterator[list[int]]:
    """The descriptor of a ``kind`` of file that was opened inside."""
    found: list[int] = []
    before = set(_descriptors(kind))
    yield found
    found += sorted(set(_descriptors(kind)) - before)
    if not found:
        raise VerbsError(f"no descriptor of a new {kind} channel in /proc/self/fd")


def _descriptors(kind: str) -> Iterator[int]:
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the one that lists them is gone again
            if kind in os.readlink(f"/proc/self/fd/{name}"):
                yield int(name)
