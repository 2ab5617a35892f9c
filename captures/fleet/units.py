"""Which files are one capture, and of which host: those that match patterns, of paths or of URLs."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Sequence
from typing import NamedTuple

from ..errors import CaptureError
from ..read.merge import RING
from ..read.urls import is_url, local, without_query

CAPTURES = "*.pcap*"
"""In a folder and those below it."""
_ROTATED = re.compile(r"(?P<name>.*\.(?:pcapng|pcap|cap))(?P<number>\d*)(?P<packed>\.(?:gz|zst|xz|lz4|bz2))?")
"""tcpdump's names with -C: the first as given, then with a number behind."""
_SUFFIXES = re.compile(r"\.(?:pcapng|pcap|cap)\d*(?:\.\w+)?$")


class CaptureUnit(NamedTuple):
    """Files that are one capture."""

    host: str
    """The first folder below that of the pattern; of files that are in it, their name without what is rotated."""
    paths: tuple[str, ...]
    """In the order of their names; they are read in the order of time."""


def units(patterns: Sequence[str]) -> list[CaptureUnit]:
    """The captures that match.  Raises CaptureError for a pattern that nothing matches."""
    found: dict[tuple[str, str], list[str]] = {}
    for pattern in patterns:
        pattern, paths = _remote(pattern) if is_url(pattern) else _local(local(pattern))
        if not paths:
            raise CaptureError(f"{pattern}: no file matches")
        base = _base(pattern)
        for path in paths:
            name = rotated_name(path)
            folder, below, _ = path.removeprefix(base).lstrip("/").partition("/")
            host = folder if below else _SUFFIXES.sub("", os.path.basename(without_query(name)))
            known = found.setdefault((host, name), [])
            if path not in known:
                known.append(path)
    return [CaptureUnit(host, tuple(sorted(paths, key=_order))) for (host, _), paths in sorted(found.items())]


def _local(pattern: str) -> tuple[str, list[str]]:
    if os.path.isdir(pattern):
        pattern = os.path.join(glob.escape(pattern), "**", CAPTURES)
    pattern = os.path.abspath(pattern)
    return pattern, [path for path in glob.glob(pattern, recursive=True) if os.path.isfile(path)]


def _remote(pattern: str) -> tuple[str, list[str]]:
    from ..read.remote import matching

    return matching(pattern, CAPTURES)


def rotated_name(path: str) -> str:
    """What the files of a rotating set have in common: of dumpcap's ring buffers, and of tcpdump's -C."""
    if ring := RING.match(path):
        return ring[1]
    rotated = _ROTATED.fullmatch(path)
    return path if rotated is None else f"{rotated['name']}{rotated['packed'] or ''}"


def _order(path: str) -> tuple[int, str]:
    rotated = _ROTATED.fullmatch(path)
    return int(rotated["number"] or 0) if rotated is not None else 0, path


def _base(pattern: str) -> str:
    """The folder before the first wildcard."""
    parts = without_query(pattern).split("/")
    fixed = next((at for at, part in enumerate(parts) if glob.has_magic(part)), len(parts) - 1)
    return "/".join(parts[:fixed]) + "/"
