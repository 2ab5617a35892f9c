"""Descriptors that pyverbs does not expose, found in /proc/self/fd."""

from __future__ import annotations

import os
import select
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from .interface import VerbsError


def readable(descriptors: Iterable[int], nanoseconds: int) -> list[int]:
    """Those that can be read, as soon as there are any; of any number and value, which ``select`` does not take."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return [descriptor for descriptor, _ in poll.poll(-(-nanoseconds // 1_000_000))]


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
