"""Keeps packets of a live capture in pcapng files, and a trace as text: all of it in a bounded set of files, or packets
around a moment; and what a capture waits for: a slow RPC, one of which a condition is true, a broken rule."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np

from rdmascope.dissect.audit.rule import Finding
from rdmascope.dissect.frames import FrameBatch
from rdmascope.dissect.onc.rpc_header import procedure_label
from rdmascope.dissect.records.rpc_columns import RpcSource
from rdmascope.dissect.records.schema import Record, record
from rdmascope.dissect.rpcrdma.analyzer import Analyzer
from rdmascope.dissect.rpcrdma.outcome import named
from rdmascope.dissect.rpcrdma.rpc_table import RpcTable
from rdmascope.dissect.rpcrdma.rpcs import Rpc
from rdmascope.dissect.units import duration

from ..errors import CaptureError, system_errors
from ..read.open import open_capture
from ..tables.condition import Condition
from ..write.output import check_outputs, open_growing
from ..write.pcapng_writer import PcapngWriter
from .device import Source

SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Keep:
    """Where and how much."""

    path: str
    size: int = 100 << 20
    """Bytes of a file, after which the next one begins."""
    files: int = 10
    """How many there are at most, that being written and those of earlier runs included; older ones are removed."""
    seconds: float | None = None
    """Seconds of the capture in a file."""


class RingFiles:
    """The files of a ring: ``path`` is being written, full ones are NAME_NUMBER_TIME, as dumpcap names them.

    What an earlier run left under these names belongs to it: its last file gets a number, too, and the numbers go on.
    """

    def __init__(self, path: str, files: int, first: Callable[[str], int | None] | None = None) -> None:
        """Raises CaptureError.  ``files``: how many there are at most, that being written included; ``first`` gives the
        first moment (ns) that is in a file."""
        self.path = path
        self._first = first or _first_time
        self._files = files
        self._full: deque[str] = deque()
        self._number = 0
        self.removed = 0
        """How many files were removed to make room."""
        self._resume()

    def _resume(self) -> None:
        """Take the files of an earlier run into the ring.  Raises CaptureError."""
        check_outputs([self.path])
        path = Path(self.path)
        named = re.compile(re.escape(path.stem) + r"_(\d{5,})_\d{14}" + re.escape(path.suffix))
        with system_errors(self.path):
            there = ((named.fullmatch(name), path.parent / name) for name in os.listdir(path.parent))
            numbered = sorted((int(match[1]), str(file)) for match, file in there if match)
            self._full.extend(name for _, name in numbered)
            self._number = numbered[-1][0] if numbered else 0
            if path.is_file() and (first := self._first(self.path)) is not None:
                self.add(first)
            self.remove()

    @property
    def paths(self) -> tuple[str, ...]:
        """The oldest first, that being written last."""
        return (*self._full, self.path)

    def add(self, began: int) -> str:
        """Give the full file its name; ``began``: the time of its first frame, in ns."""
        self._number += 1
        stem, extension = os.path.splitext(self.path)
        name = f"{stem}_{self._number:05d}_{datetime.fromtimestamp(began // SECOND, UTC):%Y%m%d%H%M%S}{extension}"
        os.replace(self.path, name)
        self._full.append(name)
        return name

    def remove(self) -> None:
        """The oldest, where there is no room for the next."""
        while len(self._full) >= self._files:
            os.unlink(self._full.popleft())
            self.removed += 1


class GrowingPcapng:
    """A pcapng file of frames of a live capture, which tells of its own time only."""

    def __init__(self, path: str, live: Source, application: str) -> None:
        """Begins the file.  Raises CaptureError."""
        self._path, self._live = path, live
        self._file = open_growing(path)
        name = live.device.interface or live.device.name
        self._writer = PcapngWriter(
            self._file, live.link_type, live.snaplen, name=name, filter=live.words, application=application
        )
        self._interfaces = {live.link_type: 0}
        """By link type; a stream may have several."""
        self._before = live.received, live.dropped
        self.size = self.began = self.last = 0
        """Bytes, and the times of the first and the last frame."""

    def write(self, batch: FrameBatch) -> None:
        """Raises CaptureError where the disk does not take it: then nothing more may come."""
        rows = batch.rows
        try:
            with system_errors(self._path):
                for part in np.split(rows, np.flatnonzero(np.diff(rows["link_type"])) + 1):
                    self.size += self._write(FrameBatch(batch.data, part), int(part["link_type"][0]))
                self._file.flush()
        except CaptureError:
            leave_whole(self._file)
            raise
        self.began = self.began or int(rows["time"][0])
        self.last = int(rows["time"][-1])

    def _write(self, batch: FrameBatch, link_type: int) -> int:
        """Frames of one link type.  Gives the bytes written."""
        if link_type not in self._interfaces:
            self._interfaces[link_type] = self._writer.add_interface(link_type, self._live.snaplen)
        interface = self._interfaces[link_type]
        if not interface:
            return self._writer.write_batch(batch)
        for row in batch.rows:
            start = int(row["offset"])
            frame = batch.data[start : start + int(row["captured"])].tobytes()
            self._writer.write(int(row["time"]), frame, int(row["original"]), interface=interface)
        return int(batch.rows["captured"].sum())

    def close(self) -> None:
        """Complete it, with what was received and dropped.  Raises CaptureError."""
        live, (received, dropped) = self._live, self._before
        with system_errors(self._path):
            live.count()
            lost = None if live.dropped is None else live.dropped - (dropped or 0)
            self._writer.statistics(self.last, live.received - received, lost)
            self._file.close()


class Keeper:
    """Writes ``keep.path``; a full one is renamed, see ``RingFiles``.

    The names read as one capture: ``rdmascope report NAME*.pcapng``.
    """

    def __init__(self, keep: Keep, live: Source, application: str) -> None:
        self.path = keep.path
        self._keep = keep
        self._open = partial(GrowingPcapng, keep.path, live, application)
        self.ring = RingFiles(keep.path, keep.files)
        self._frames = 0
        self._broken = False
        """The disk took no more."""
        self._begins = deque([0])
        """How many frames came before the first one of each file of this run."""
        self._file = self._open()

    @property
    def kept(self) -> tuple[str, ...]:
        """The files that are there, the oldest first."""
        return self.ring.paths

    @property
    def frames_before(self) -> int:
        """How many frames are kept no more."""
        return self._begins[0]

    def write(self, batch: FrameBatch) -> None:
        """Raises CaptureError where the disk does not take it."""
        if self._broken:
            return
        ends = np.cumsum(batch.rows["captured"], dtype=np.int64)
        at = 0
        try:
            while at < len(batch):
                if self._file.size >= self._keep.size or self._old(int(batch.rows["time"][at])):
                    self._turn()
                room = self._keep.size - self._file.size + (int(ends[at - 1]) if at else 0)
                end = min(len(batch), int(np.searchsorted(ends, room)) + 1)
                self._file.write(FrameBatch(batch.data, batch.rows[at:end]))
                self._frames += end - at
                at = end
        except CaptureError:
            self._broken = True
            raise

    def _old(self, time: int) -> bool:
        """The file has had its time."""
        seconds, began = self._keep.seconds, self._file.began
        return seconds is not None and began > 0 and time - began >= seconds * SECOND

    def _turn(self) -> None:
        """Close a full file, give it its name, and remove what is too old."""
        self._file.close()
        with system_errors(self.path):
            self.ring.add(self._file.began)
            self.ring.remove()
        self._begins.append(self._frames)
        while len(self._begins) > len(self.kept):
            self._begins.popleft()
        self._file = self._open()

    def close(self) -> None:
        """Complete the last file."""
        if not self._broken:
            self._file.close()


class TraceKeeper:
    """Writes what the kernel printed of its trace, whole lines, into files as ``Keeper`` does.

    Their names have the time of this host's clock; the trace's own began with the host.
    """

    def __init__(self, keep: Keep) -> None:
        self.path = keep.path
        self._keep = keep
        self.ring = RingFiles(keep.path, keep.files, _written)
        self._rest = b""
        self._broken = False
        """The disk took no more."""
        self._open()

    def _open(self) -> None:
        self._file = open_growing(self.path)
        self._size, self._began = 0, time.time_ns()

    def write(self, printed: bytes) -> None:
        """Raises CaptureError where the disk does not take it."""
        if self._broken:
            return
        lines, newline, self._rest = (self._rest + printed).rpartition(b"\n")
        try:
            old = self._keep.seconds is not None and time.time_ns() - self._began >= self._keep.seconds * SECOND
            if self._size and (old or self._size >= self._keep.size):
                self._file.close()
                self.ring.add(self._began)
                self.ring.remove()
                self._open()
            self._size += self._file.write(lines + newline)
            self._file.flush()
        except OSError as error:
            self._broken = True
            raise CaptureError(f"{self.path}: {error.strerror}") from None

    def close(self) -> None:
        """Complete the last file."""
        with system_errors(self.path):
            self._file.close()


def _written(path: str) -> int | None:
    """When a file was last written to, in ns; None where nothing is in it."""
    status = os.stat(path)
    return status.st_mtime_ns if status.st_size else None


def leave_whole(file: BinaryIO) -> None:
    """Close a file that takes no more, with those blocks of it that are whole."""
    with suppress(OSError), file.detach() as raw:  # type: ignore[attr-defined]  # It would write once more.
        end, size = 0, os.fstat(raw.fileno()).st_size
        while end + 12 <= size:
            length = int.from_bytes(os.pread(raw.fileno(), 4, end + 4), "little")
            if length < 12 or end + length > size:
                break
            end += length
        os.ftruncate(raw.fileno(), end)


def _first_time(path: str) -> int | None:
    """Time of the first frame of a file, in ns; None where it has none, or is no capture."""
    try:
        with open_capture(path) as capture:
            return next((int(batch.rows["time"][0]) for batch in capture.batches() if len(batch.rows)), None)
    except CaptureError:
        return None


HALF = 2
"""The part of a file that packets from before the moment may take."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Which packets, and where."""

    path: str
    before: int = 30 * SECOND
    """Nanoseconds."""
    after: int = 5 * SECOND
    size: int = 100_000_000
    """Bytes of a file at most; half of them from before the moment, which wait in memory."""
    waiting: int | None = None
    """Bytes that may wait in memory; None: half of ``size``."""
    files: int = 10
    """How many there are at most, those of earlier runs included; older ones are removed."""


class WindowKeeper:
    """Fed the batches of a live capture, and told the moments."""

    def __init__(self, window: Surroundings, live: Source, application: str, numbered: bool) -> None:
        """``numbered``: a complete file gets a number, as those of a ring do, and the next may follow."""
        self.path = window.path
        self._window = window
        self._open = partial(GrowingPcapng, window.path, live, application)
        self._numbered = numbered
        self.ring = RingFiles(window.path, window.files)
        self._waiting: deque[FrameBatch] = deque()
        self._held = 0
        self.may_wait = window.size // HALF if window.waiting is None else min(window.waiting, window.size // HALF)
        """Bytes from before a moment."""
        self._file: GrowingPcapng | None = None
        self._until = 0
        self._full = False

    def write(self, batch: FrameBatch) -> None:
        """Raises CaptureError where the disk does not take it."""
        self._append(batch)
        self._waiting.append(batch)
        self._held += batch.data.nbytes
        oldest = int(batch.rows["time"][-1]) - self._window.before
        while len(self._waiting) > 1 and (
            self._held > self.may_wait or int(self._waiting[0].rows["time"][-1]) < oldest
        ):
            self._held -= self._waiting.popleft().data.nbytes

    def begin(self, time: int) -> None:
        """Something happened at ``time`` (ns): write what waits from before it, and go on.  Raises CaptureError."""
        self._file = self._open()
        self._full = False
        self._file.last = time
        self._until = time + self._window.after
        for batch in self._waiting:  # Which stay: they may be from before another moment, too.
            self._append(FrameBatch(batch.data, batch.rows[batch.rows["time"] >= time - self._window.before]))

    def over(self, now: int) -> bool:
        """Whether what is kept after the moment has ended."""
        return self._file is None or now >= self._until or self._full

    def end(self) -> str | None:
        """Complete the file; gives its name, None where there is none.  Raises CaptureError."""
        file, self._file = self._file, None
        if file is None:
            return None
        file.close()
        if not self._numbered:
            return self.path
        with system_errors(self.path):
            self.ring.remove()
            return self.ring.add(file.began or file.last)

    def close(self) -> None:
        self.end()

    def _append(self, batch: FrameBatch) -> None:
        file = self._file
        if file is None:
            return
        rows = batch.rows[batch.rows["time"] <= self._until]
        fitting = int(np.searchsorted(np.cumsum(rows["captured"], dtype=np.int64), self._window.size - file.size))
        self._full |= fitting < len(rows)
        if not fitting:
            return
        try:
            file.write(FrameBatch(batch.data, rows[:fitting]))
        except CaptureError:
            self._file = None
            raise


FINDING = "finding"
SLOW = "slower-than"
CONDITION = "condition"
HANGS = "calls-hung"
"""The finding that is no rule: a call that is not answered."""
HUNG_AFTER = 10_000_000_000
"""Nanoseconds for which a call that hangs is outstanding: more than a slow server takes."""
MAX_COMMANDS = 4
"""Commands that run at the same time; further triggers start none."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is waited for."""

    slower_than: int | None = None
    """Nanoseconds."""
    condition: Condition | None = None
    rules: frozenset[str] = frozenset()
    """Their ids, and ``HANGS``."""


class Trigger:
    """Judges RPCs and findings; the first that is wanted triggers, those until its file is complete are counted."""

    def __init__(
        self,
        wanted: Wanted,
        *,
        every: bool = False,
        command: str | None = None,
        keeper: WindowKeeper | None = None,
        on_trigger: Callable[[Record], None] | None = None,
    ) -> None:
        """
        Args:
            wanted: what is waited for.
            every: go on after it.
            command: run by the shell when its packets are kept.
            keeper: keeps the packets around it.
            on_trigger: is given a record of each.
        """
        self.keeper = keeper
        self.every = every
        self.happened = 0
        """How often it triggered."""
        self._wanted, self._command, self._on_trigger = wanted, command, on_trigger
        self._open: Record | None = None
        self._hanging: set[int] = set()
        """Numbers of calls without a reply that triggered; their reply does not once more."""
        self.on_problem: Callable[[CaptureError], None] | None = None
        """Is given why packets cannot be kept; where there is none, that is raised."""
        self._running: list[subprocess.Popen[bytes]] = []

    def write(self, batch: FrameBatch) -> None:
        """Frames that came.  Raises CaptureError where they cannot be kept."""
        if self.keeper is not None:
            self._attempt(partial(self.keeper.write, batch))

    def judge(self, table: RpcTable, source: RpcSource) -> None:
        """RPCs that ended, whose contents are held.  Raises CaptureError where the condition cannot be judged."""
        limit = self._wanted.slower_than
        if limit is not None:
            for index in (table.waiting > limit).nonzero()[0].tolist():
                rpc = table[index]
                if rpc.number not in self._hanging:
                    self._happen_of(SLOW, rpc, f"slower than {duration(limit)}")
        if HANGS in self._wanted.rules:  # Its connection ended before it was looked at.
            for index in (table.waiting > HUNG_AFTER).nonzero()[0].tolist():
                rpc = table[index]
                if rpc.reply is None and rpc.number not in self._hanging:
                    self._happen_of(FINDING, rpc, f"{_called(rpc)} hung for {duration(rpc.waiting or 0)}", rule=HANGS)
        condition = self._wanted.condition
        if condition is not None:
            for index in condition.mask(table, source).nonzero()[0].tolist():
                self._happen_of(CONDITION, table[index], str(condition))

    def look(self, analyzer: Analyzer, now: int) -> None:
        """It is ``now`` (ns): judge calls without a reply."""
        hangs = HANGS in self._wanted.rules
        limits = [limit for limit in (self._wanted.slower_than, HUNG_AFTER if hangs else None) if limit is not None]
        if not limits:
            return
        unanswered = {rpc.number: rpc for rpc in analyzer.unanswered(now - min(limits))}
        self._hanging &= unanswered.keys()
        for number, rpc in unanswered.items():
            if number not in self._hanging:
                self._hanging.add(number)
                self._hung(named(rpc), now)

    def _hung(self, rpc: Rpc, now: int) -> None:
        rpc.outstanding = now - rpc.first_time
        limit = self._wanted.slower_than
        if limit is not None and rpc.outstanding > limit:
            self._happen_of(SLOW, rpc, f"slower than {duration(limit)}", now)
        else:
            self._happen_of(FINDING, rpc, f"{_called(rpc)} has hung for {duration(rpc.outstanding)}", now, HANGS)

    def found(self, finding: Finding) -> None:
        """A rule was broken."""
        if finding.rule.id in self._wanted.rules:
            connection = finding.connection.number
            self._happen(FINDING, finding.time, finding.observed, connection=connection, rule=finding.rule.id)

    def over(self, now: int) -> str:
        """Complete what happened when it is time, ``now`` (ns); why the capture ends with it, '' where it goes on."""
        if self._open is None or (self.keeper is not None and not self.keeper.over(now)):
            return ""
        why = str(self._open["trigger"])
        self._complete()
        return "" if self.every else FINDING if why == FINDING else "trigger"

    def close(self) -> None:
        """The capture is over."""
        if self._open is not None:
            self._complete()

    def _happen_of(self, why: str, rpc: Rpc, words: str, now: int | None = None, rule: str | None = None) -> None:
        """``now``: in nanoseconds, by default the end of the RPC."""
        message = rpc.reply or rpc.call
        time = message.operation.last_time if message is not None and now is None else now or 0
        self._happen(
            why,
            time,
            words,
            connection=rpc.connection.number,
            rpc=rpc.number,
            latency_ns=None if rpc.latency is None else rpc.latency.total,
            waiting_ns=rpc.waiting,
            rule=rule,
        )

    def _happen(self, why: str, time: int, words: str, **about: object) -> None:
        if self._open is not None and self.every and self.keeper is not None and self.keeper.over(time):
            self._complete()
        if self._open is not None:
            self._open["others"] += 1
            return
        given = {"rpc": None, "latency_ns": None, "waiting_ns": None, "rule": None, **about}
        self._open = record("trigger", trigger=why, words=words, time_ns=time, **given, others=0, file=None)
        self.happened += 1
        if self.keeper is not None:
            self._attempt(partial(self.keeper.begin, time))

    def _attempt(self, keep: Callable[[], str | None]) -> str | None:
        try:
            return keep()
        except CaptureError as error:
            if self.on_problem is None:
                raise
            self.on_problem(error)
            return None

    def _complete(self) -> None:
        assert self._open is not None
        happened, self._open = self._open, None
        if self.keeper is not None:
            happened["file"] = self._attempt(self.keeper.end)
        if self._on_trigger is not None:
            self._on_trigger(happened)
        if self._command is not None:
            self._run(self._command, happened)

    def _run(self, command: str, happened: Record) -> None:
        """It is not waited for; what it prints goes to standard error."""
        self._running = [process for process in self._running if process.poll() is None]
        if len(self._running) >= MAX_COMMANDS:
            return
        environment = {
            **os.environ,
            "RDMASCOPE_TRIGGER": json.dumps(happened),
            "RDMASCOPE_FILE": happened["file"] or "",
        }
        self._running.append(
            subprocess.Popen(
                command,
                shell=True,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=sys.stderr.fileno(),
                start_new_session=True,
            )
        )


def _called(rpc: Rpc) -> str:
    return procedure_label(rpc.name, rpc.operations)
