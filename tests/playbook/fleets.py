"""The captures of several hosts, and a data set of them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

from rdmascope.captures.fleet.batch import CapturesBehind, analyse, prepare, units
from rdmascope.captures.tables.saved_tables import CaptureEntry, DataSet
from rdmascope.dissect.rpcrdma.analyzer import Options

from .commands import unpacked
from .samples import MANIFEST, SAMPLES


class Before(NamedTuple):
    """Numbers before those of a capture."""

    frames: int
    rpcs: int
    connections: int


class Fleet(NamedTuple):
    """Captures, one of them of two files, and their data set."""

    data_set: str
    captures: list[tuple[str, tuple[str, ...], Before]]
    """Host, files and what is before, in the order of numbers."""

    def of(self, host: str) -> tuple[tuple[str, ...], Before]:
        return next((paths, before) for name, paths, before in self.captures if name == host)


def entries(data_set: str) -> list[CaptureEntry]:
    """Of all its captures, those included that could not be read."""
    found = DataSet(data_set)
    return [*found.snapshot().problems.values(), *found.entries()]


def halves(data: bytes) -> tuple[bytes, bytes]:
    """A pcap, divided between two of its frames."""
    at = 24
    while at < len(data) // 2:
        at += 16 + int.from_bytes(data[at + 8 : at + 12], "little")
    return data[:at], data[:24] + data[at:]


def make_fleet(folder: Path) -> Fleet:
    """Captures of three hosts in a folder, those of one rotated, and their data set."""
    for host in ("web1", "web2", "db"):
        (folder / "captures" / host).mkdir(parents=True)
    shutil.copy(SAMPLES / MANIFEST["longcall-rxe"]["file"], folder / "captures" / "web1")
    shutil.copy(SAMPLES / MANIFEST["loss-siw"]["file"], folder / "captures" / "web2")
    rotated = halves(unpacked(str(SAMPLES / MANIFEST["nconnect-rxe"]["file"])))
    for name, data in zip(("x.pcap", "x.pcap1"), rotated, strict=True):
        (folder / "captures" / "db" / name).write_bytes(data)
    data_set = str(folder / "set")
    prepare(data_set)
    for unit in units([str(folder / "captures")]):
        assert not analyse(unit, data_set, Options()).problem
    found = [
        (one.entry.host, one.paths, Before(one.before.frames, one.before.rpcs, one.before.connections))
        for one in CapturesBehind(data_set).captures
    ]
    return Fleet(data_set, found)
