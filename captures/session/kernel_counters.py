"""Linux's own counters, saved or of the running kernel, beside the RPCs of a capture."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import TypeVar

import numpy as np

from rdmascope.dissect.arrays import among, unique
from rdmascope.dissect.measure.kernel_counters import (
    Completeness,
    CounterError,
    Mount,
    MountComparison,
    ServerComparison,
    ServerCounters,
    compare_mounts,
    compare_server,
    mount_of,
    mounts_since,
    parse_mountstats,
    parse_nfsd,
)
from rdmascope.dissect.measure.nfs_operations import WireOperations
from rdmascope.dissect.records.kernel_counters import mount_record, server_record
from rdmascope.dissect.records.schema import Record
from rdmascope.dissect.rpcrdma.conversation import Conversation
from rdmascope.dissect.rpcrdma.rpc_table import RpcTable

from ..errors import CaptureError

MOUNTSTATS = "/proc/self/mountstats"
NFSD = "/proc/net/rpc/nfsd"
MOUNTS = "/proc/self/mounts"
MAX_CONNECTIONS = 1 << 16
"""Whose capture points are remembered."""
READINGS = 2
"""Readings of the same counters, at most: before and after."""

Parsed = TypeVar("Parsed")


class KernelCounters:
    """Counters read once, since the mount, or read twice, so that the difference counts."""

    def __init__(self) -> None:
        self.wire = WireOperations()
        self.mounts: list[Mount] = []
        self.server: ServerCounters | None = None
        self.mounts_between = self.server_between = False
        """They are the difference of two readings."""
        self.truncated = False
        """Some frames were captured in part."""
        self._lossy = False
        self._midway: set[tuple[int, int]] = set()

    def add(self, table: RpcTable, point: int = 0) -> None:
        """RPCs that ended; their contents must be held.  ``point``: where they were captured."""
        self.wire.add(table, point)

    def note(self, conversations: Iterable[Conversation], lossy: bool = False, point: int = 0) -> None:
        """What may be missing of connections; before they are evicted, and at the end."""
        self._lossy |= lossy
        for conversation in conversations:
            connection = conversation.connection
            self._lossy |= any(connection.missing_packets) or any(connection.unread_packets)
            if not connection.start_known:
                self._midway.add((point, connection.number))

    def mount_comparisons(self) -> list[MountComparison]:
        complete = Completeness(frozenset(self._midway), self._lossy, self.truncated)
        return compare_mounts(self.mounts, self.wire, complete)

    def server_comparison(self) -> ServerComparison | None:
        return None if self.server is None else compare_server(self.server, self.wire)

    def records(self) -> Iterator[Record]:
        """What the kernel counted, beside what was seen."""
        for mount in self.mount_comparisons():
            yield mount_record(mount, self.mounts_between)
        server = self.server_comparison()
        if server is not None:
            yield server_record(server, self.server_between)


def saved_counters(mountstats: Sequence[str], nfsd: Sequence[str]) -> KernelCounters:
    """Copies of the kernel's files: one of the end, or two, before and after.  Raises CaptureError."""
    counters = KernelCounters()
    readings = [_parsed(path, parse_mountstats) for path in mountstats]
    if readings:
        counters.mounts_between = len(readings) > 1
        counters.mounts = mounts_since(readings[-1], readings[0]) if counters.mounts_between else readings[0]
    served = [_parsed(path, parse_nfsd) for path in nfsd]
    if served:
        counters.server_between = len(served) > 1
        counters.server = served[-1].since(served[0]) if counters.server_between else served[0]
    return counters


class RunningCounters(KernelCounters):
    """Counters of the running kernel: read when this is made, and again by ``read_again``."""

    def __init__(self, mount: str | None, nfsd: bool, root: str = "/") -> None:
        """Raises CaptureError where there is no such mount, or no NFS server.

        Args:
            mount: a path on the mount, whose counters are compared.
            nfsd: compare those of the server, too.
            root: where /proc is.
        """
        super().__init__()
        self._root = Path(root)
        self._path = os.path.realpath(mount) if mount is not None else None
        self._nfsd = nfsd
        self.mounts_between, self.server_between = mount is not None, nfsd
        self._before, self._server_before = self._read()
        self.wire.begin = time.time_ns()
        self._read_twice = False
        self.lock = Lock()
        self._points = 0
        self._seen_at: dict[frozenset[object], int] = {}
        """The capture point that each connection counts at."""

    def point(self) -> CounterPoint:
        """For the RPCs of one more capture point; a connection that two of them see counts at the first."""
        self._points += 1
        return CounterPoint(self, self._points)

    def read_again(self) -> None:
        """What was counted in between is compared; RPCs that end later are not."""
        if self._read_twice:
            return
        self._read_twice = True
        self.wire.end = time.time_ns()
        mounts, server = self._read()
        self.mounts = mounts_since(mounts, self._before)
        self.server = server.since(self._server_before) if server and self._server_before else None

    def counts(self, point: int, conversation: Conversation) -> bool:
        """Whether a connection counts at this point: the first that sees it."""
        key = frozenset((end.address, end.qpn, end.port) for end in conversation.connection.endpoints)
        if key not in self._seen_at and len(self._seen_at) >= MAX_CONNECTIONS:
            del self._seen_at[next(iter(self._seen_at))]
        return self._seen_at.setdefault(key, point) == point

    def _read(self) -> tuple[list[Mount], ServerCounters | None]:
        mounts = []
        if self._path is not None:
            every = _parsed(str(self._root / MOUNTSTATS[1:]), parse_mountstats)
            mount = mount_of(every, self._path)
            if mount is None:
                there = ", ".join(counted.path for counted in every)
                raise CaptureError(f"{self._path}: is not on an NFS mount; there are {there}")
            addresses = _addresses(self._root / MOUNTS[1:])
            # All that share its connections: the wire does not tell them apart.
            mounts = [
                replace(known, address=addresses.get(known.path, known.address))
                for known in every
                if (known.server, known.version, known.minor_version)
                == (mount.server, mount.version, mount.minor_version)
            ]
        return mounts, _parsed(str(self._root / NFSD[1:]), parse_nfsd) if self._nfsd else None


class CounterPoint:
    """One of several capture points that the counters are compared with, each with a thread of its own."""

    def __init__(self, counters: RunningCounters, number: int) -> None:
        self._counters, self._number = counters, number

    def add(self, table: RpcTable) -> None:
        """RPCs that ended; their contents must be held."""
        counters, point = self._counters, self._number
        with counters.lock:
            numbers = table.rows["connection"]
            others = [
                number for number in unique(numbers).tolist() if not counters.counts(point, table.conversation(number))
            ]
            counters.add(table.selected(~among(numbers, np.array(others))) if others else table, point)

    def note(self, conversations: Iterable[Conversation], lossy: bool = False) -> None:
        """What may be missing of connections; before they are evicted, and at the end."""
        counters, point = self._counters, self._number
        with counters.lock:
            counters.note(
                [conversation for conversation in conversations if counters.counts(point, conversation)], lossy, point
            )

    def read_again(self) -> None:
        """At the first capture point that ends."""
        with self._counters.lock:
            self._counters.read_again()


def _parsed(path: str, parse: Callable[[str], Parsed]) -> Parsed:
    try:
        return parse(Path(path).read_text(errors="backslashreplace"))
    except CounterError as error:
        raise CaptureError(f"{path}: {error}") from None
    except OSError as error:
        why = "no NFS server runs here" if path.endswith(NFSD) and isinstance(error, FileNotFoundError) else ""
        raise CaptureError(f"{path}: {why or error.strerror}") from None


def _addresses(path: Path) -> dict[str, str]:
    """Addresses of the servers, by mount point."""
    addresses: dict[str, str] = {}
    try:
        text = path.read_text(errors="backslashreplace")
    except OSError:
        return addresses
    for line in text.splitlines():
        _, where, kind, options, *_ = [*line.split(), "", "", "", ""]
        if kind.startswith("nfs") and (address := re.search(r"(?:^|,)addr=([^,]+)", options)):
            addresses[where] = address[1]
    return addresses
