"""A bound of the memory of a live capture: what it is divided among, and what is given up first.

The kernel's buffer, packets that wait for a trigger, names of files and answered XIDs have a part each from the
beginning.  Connections have the rest: as the process comes near the bound, those go that were quiet the longest.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from rdmascope.dissect.rpcrdma.analyzer import Analyzer, Options
from rdmascope.dissect.transport.rc.observer import MAX_FLOWS

from ..errors import CaptureError
from ..session.process_memory import trim

STATM = Path("/proc/self/statm")
"""In pages: size, resident, shared; proc(5)."""
STATUS = Path("/proc/self/status")
"""VmHWM is the peak of what was resident, in KiB; proc(5)."""


def resident() -> int:
    """Bytes that are in memory; 0 where that is not known."""
    try:
        return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def peak() -> int:
    """Most bytes that were in memory since the program began; 0 where that is not known."""
    try:
        lines = STATUS.read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:")), 0)


def release() -> None:
    """Give back what is not in use: cycles, and what the allocator keeps otherwise, which adds up in hours."""
    gc.collect()
    trim()


SMALLEST = 256_000_000
"""Bytes; the program, with a small buffer and a few connections."""
MAX_BUFFER, MIN_BUFFER = 64 << 20, 2 << 20
"""Of the kernel, where none was asked for."""
PART = 8
"""The part of the bound that the buffers, packets that wait and names of files may take each: an eighth."""
MAX_FILES, FILE = 1 << 17, 500
"""Files whose names are remembered, and bytes of one."""
XID = 1_000_000
"""Bytes of the bound for each answered XID that a connection remembers."""
FEWEST = 16
"""Connections that are kept whatever the memory."""
NEAR, NEAREST = 0.8, 0.95
"""Of the bound: where connections begin to be given up, and where they always are."""
STEP = 0.04
"""Of the bound: what must be gained or come on top before more are given up."""


@dataclass(frozen=True, slots=True)
class MemoryParts:
    """What the parts of a bound are; bytes, unless something else is said."""

    limit: int
    buffer: int
    """Of the kernel, for each device."""
    before: int
    """Of packets that wait for a trigger."""
    files: int
    """Names."""
    answered: int
    """XIDs of a connection and direction."""

    def options(self, options: Options) -> Options:
        """Those of the analysis."""
        return replace(options, answered=min(options.answered, self.answered))


def divided(limit: int, devices: int = 1) -> MemoryParts:
    """The parts of a bound for so many devices in one process.  Raises CaptureError where it is too small."""
    smallest = SMALLEST + (devices - 1) * SMALLEST // 4
    if limit < smallest:
        several = f" with {devices} devices" if devices > 1 else ""
        raise CaptureError(f"--memory: the smallest possible bound{several} is {smallest // 1_000_000}M")
    part = limit // PART // devices
    return MemoryParts(
        limit, max(MIN_BUFFER, min(MAX_BUFFER, part)), part, min(MAX_FILES, part // FILE), limit // devices // XID
    )


@dataclass(slots=True)
class MemoryBound:
    """Looks at what the process takes, and has connections given up.  Tell it often."""

    parts: MemoryParts
    measure: Callable[[], int] = resident
    give_back: Callable[[], None] = release
    max_connections: int | None = None
    """Kept at a time since memory was short; None: it was not yet."""
    max_flows: int = MAX_FLOWS
    """Flows that wait for the one in the other direction, at a time."""
    given_up: int = 0
    """Connections that went since memory was short."""
    _level: int = field(init=False)
    """Bytes, from which on something is done."""

    def __post_init__(self) -> None:
        self._level = round(NEAR * self.parts.limit)

    def look(self, analyzer: Analyzer) -> bool:
        """Whether connections are to go, with the next tick of the analyzer; then ``settle`` is due."""
        present, flows = len(analyzer.connections), analyzer.unpaired_flows
        if max(present, flows) <= FEWEST or self.measure() < self._level:
            return False
        self.give_back()
        if self.measure() < self._level - STEP * self.parts.limit:
            return False
        self.max_connections = max(FEWEST, min(analyzer.options.max_connections, present - 1))
        ended = min(analyzer.options.ended, max(1, self.max_connections // 2))
        self.max_flows = max(FEWEST, min(self.max_flows, flows - flows // 4))
        analyzer.keep_fewer(self.max_connections, ended, self.max_flows)
        return True

    def settle(self) -> None:
        """They are gone.  What the allocator does not give back is used again: only more than that counts from now."""
        self.give_back()
        limit = self.parts.limit
        self._level = round(min(NEAREST * limit, max(self._level, self.measure() + STEP * limit)))
