"""The kernel's tracepoints on this host: which there are, what records them, and their events as they happen.

Documents: the kernel's Documentation/trace/ftrace.rst and events.rst; trace-cmd-record(1).
"""

from __future__ import annotations

import os
import shlex
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rdmascope.dissect.trace.events import EVENTS, RENAMED, Event

from ..errors import CaptureError, Closing, system_errors
from ..read.traces import TextEvents
from .device import TRACED, Device

TRACING = Path("/sys/kernel/tracing")
"""Where tracefs is mounted."""
SYSTEMS = ("rpcrdma", "sunrpc", "nfs", "nfs4", "nfsd", "rdma_cma")
"""Parts of the kernel whose tracepoints we read."""
CLOCK = "mono"
"""One clock for all processors; that of the beginning, 'local', may differ between them."""
BUFFER = 20_000
"""KiB of the kernel's memory, for each processor."""
MODULES = "modprobe -a rpcrdma nfs nfsd"
PROBED = 2000
"""Events of our own, by which the cost of one is measured."""


@dataclass(frozen=True, slots=True)
class Tracepoints:
    """Those of this kernel that we read."""

    names: tuple[str, ...]
    """'rpcrdma:xprtrdma_post_send'; systems alone where it could not be looked what there is."""
    kernel: str
    problem: str = ""
    """Why it could not be looked."""

    def command(self, path: str, seconds: float | None = None, buffer: int = BUFFER) -> str:
        """What records them with trace-cmd until Ctrl-C, or for so long."""
        chosen = " ".join(f"-e {shlex.quote(name)}" for name in self.names)
        end = f" sleep {seconds:g}" if seconds is not None else ""
        return f"trace-cmd record -o {shlex.quote(path)} -C {CLOCK} -b {buffer} {chosen}{end}"


def tracepoints(folder: Path = TRACING) -> Tracepoints:
    """What this kernel has; never raises."""
    wanted = {*EVENTS, *RENAMED}
    kernel = os.uname().release
    try:
        here = [system for system in SYSTEMS if (folder / "events" / system).is_dir()]
        names = [
            f"{system}:{event.name}"
            for system in here
            for event in sorted((folder / "events" / system).iterdir())
            if event.name in wanted
        ]
    except OSError as error:
        return Tracepoints(SYSTEMS, kernel, f"{folder}: {error.strerror}")
    if "rpcrdma" not in here:
        return Tracepoints(SYSTEMS, kernel, f"{folder}: no events of rpcrdma; as root: {MODULES}")
    return Tracepoints(tuple(names), kernel)


class TraceInstance(Closing):
    """A ring buffer of our own in the kernel, which keeps nothing but the events that we read; a context manager.

    Other tracing on the host goes on beside it undisturbed.

    Attributes:
        pipe: what prints the events as they happen.
        cost: nanoseconds that one event takes a processor, as far as it could be measured; it is an upper bound.
    """

    def __init__(self, folder: Path = TRACING, buffer: int = BUFFER) -> None:
        points = tracepoints(folder)
        if points.problem:
            raise CaptureError(f"tracepoints cannot be read: {points.problem}")
        self._folder = folder / "instances" / f"rdmascope-{os.getpid()}"
        self.events = points.names
        try:
            self._folder.mkdir()
        except OSError as error:
            raise CaptureError(f"{self._folder}: {error.strerror}; tracing takes root") from None
        try:
            self._write("trace_clock", CLOCK)
            self._write("buffer_size_kb", str(buffer))
            self._write("buffer_percent", "0")  # What waits for events is woken by the first.
            self.cost = self._measured()
            self._write("trace", "")
            for name in points.names:
                system, _, event = name.partition(":")
                self._write(f"events/{system}/{event}/enable", "1")
        except OSError as error:
            self.close()
            raise CaptureError(f"{error.filename}: {error.strerror}") from None
        self.pipe = self._folder / "trace_pipe"

    def close(self) -> None:
        """Takes it out of the kernel."""
        self.stop()
        with suppress(OSError):
            self._folder.rmdir()

    def stop(self) -> None:
        """Has the kernel put no more events into the buffer; those in it can still be read."""
        with suppress(OSError):
            self._write("tracing_on", "0")

    def lost(self) -> int:
        """Events that the buffer had no room for, on all processors."""
        lost = 0
        for stats in self._folder.glob("per_cpu/cpu*/stats"):
            with suppress(OSError):
                said = dict(line.split(": ", 1) for line in stats.read_text().splitlines() if ": " in line)
                lost += int(said.get("overrun", 0)) + int(said.get("dropped events", 0))
        return lost

    def _write(self, name: str, text: str) -> None:
        (self._folder / name).write_text(text)

    def _measured(self) -> int:
        """What a marker costs, which is written into the same buffer, and takes a system call on top."""
        with suppress(OSError), open(self._folder / "trace_marker", "wb", buffering=0) as marker:
            began = time.perf_counter_ns()
            for _ in range(PROBED):
                marker.write(b"rdmascope")
            return (time.perf_counter_ns() - began) // PROBED
        return 0


TRACE = "kernel trace"
"""The name of the device, which is that of no interface."""
PIECE = 1 << 20
"""Bytes that are read at once."""


class TraceSource:
    """What a ``Live`` is, with events in place of frames."""

    link_type = snaplen = 0

    def __init__(self, instance: TraceInstance) -> None:
        self.device = Device(TRACE, TRACED)
        self.words = f"{len(instance.events)} tracepoints"
        self._instance = instance
        self.keep: Callable[[bytes], object] | None = None
        """Takes all that the kernel prints."""
        self._text = TextEvents()
        self._lost = 0
        with system_errors(instance.pipe):
            self._file = os.open(instance.pipe, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)

    @property
    def dropped(self) -> int:
        """Events for which the kernel's buffer had no room."""
        return max(self._lost, self._text.lost)

    @property
    def received(self) -> int:
        """Events, the dropped ones included."""
        return self._text.events + self.dropped

    @property
    def event_cost_ns(self) -> int:
        """Nanoseconds that an event takes the processor on which it happens, at most."""
        return self._instance.cost

    def fileno(self) -> int:
        return self._file

    def read(self) -> list[Event] | None:
        """What came since the last time, without waiting; None for nothing."""
        try:
            piece = os.read(self._file, PIECE)
        except BlockingIOError:
            return None
        except OSError as error:
            raise CaptureError(f"{self._instance.pipe}: {error.strerror}") from None
        if self.keep is not None:
            self.keep(piece)
        return self._text.take(piece) or None

    def refuse(self) -> None:
        """Let no more events in; those that came are still read."""
        self._instance.stop()

    def count(self) -> None:
        """Bring ``dropped`` up to date."""
        self._lost = self._instance.lost()

    def close(self) -> None:
        os.close(self._file)
        self._instance.close()


def run_recording(words: Sequence[str]) -> int:
    """Run trace-cmd until it ends or Ctrl-C ends it; returns its status."""
    import subprocess

    try:
        # In a session of its own Ctrl-C reaches us alone: a second one would end trace-cmd before its file is whole.
        process = subprocess.Popen(words, start_new_session=True)
    except OSError as error:
        raise CaptureError(f"{words[0]}: {error.strerror}; apt install trace-cmd (or dnf) has it") from None
    try:
        return process.wait()
    except KeyboardInterrupt:
        process.send_signal(signal.SIGINT)
        return process.wait()
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            process.wait()
