"""What a name on the command line stands for (a network interface, a software RDMA device, an adapter), and what every
source of live frames offers; frames that another program writes: standard input or a named pipe.

A thread reads the stream, and passes it to a reader that waits for several sources at once. The kernel's tracepoints on
this host: which exist, the command that records them, and their events as they happen (Documentation/trace/ftrace.rst
and events.rst of the kernel; trace-cmd-record(1)).
"""

from __future__ import annotations

import fcntl
import os
import queue
import shlex
import signal
import socket
import stat
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rdmascope.dissect.frames import FrameBatch
from rdmascope.dissect.trace.events import EVENTS, RENAMED, Event

from ..errors import CaptureError, Closing, system_errors
from ..read.open import CaptureFile, open_capture
from ..read.traces import TextEvents

RDMA_DEVICES = Path("/sys/class/infiniband")
"""Documentation/ABI/stable/sysfs-class-infiniband."""
EVERY = "any"
"""All interfaces, as tcpdump has it."""
SNIFFED = "mlx5_core"
"""Driver of the adapters whose RDMA traffic libpcap can see."""

SIOCGIFFLAGS, SIOCGIFHWADDR = 0x8913, 0x8927  # linux/sockios.h
IFF_UP, IFF_LOOPBACK = 1, 8  # linux/if.h
ETHERNET = 1  # ARPHRD_ETHER, linux/if_arp.h
LOOPBACK = 772


@dataclass(frozen=True, slots=True)
class Device:
    """A network interface, a software RDMA device or an adapter to capture on."""

    name: str
    """The device as the user gave it."""
    kind: str
    """'interface', 'rxe', 'siw', or 'adapter'."""
    interface: str = ""
    """'' for an adapter, which is no interface; 'any' for all."""
    index: int = 0
    ethernet: bool = False
    """Frames begin with an Ethernet header."""
    loopback: bool = False
    note: str = ""
    """What a user may not expect."""

    def __str__(self) -> str:
        return self.name if self.interface in ("", self.name) else f"{self.name} ({self.interface})"


def find_device(name: str, devices: Path = RDMA_DEVICES) -> Device:
    """The device of that name; raises CaptureError with what to do where there is none."""
    if not hasattr(socket, "AF_PACKET"):
        raise CaptureError(f"{name}: live capture needs Linux; elsewhere capture with another tool, and read the file")
    device = devices / name
    if name and name not in (".", "..") and "/" not in name and device.is_dir():
        return _rdma_device(name, device)
    if name == EVERY:
        return Device(name, "interface", EVERY)
    return _interface(name, name, "interface", devices)


def trouble_of(device: Device, devices: Path = RDMA_DEVICES) -> str:
    """Why nothing can come of a device that is captured on; '' where something can."""
    if device.kind in ("rxe", "siw", "adapter") and not (devices / device.name).is_dir():
        return "the RDMA device was removed; its connections are over"
    if device.interface in ("", EVERY) or device.kind not in ("interface", "rxe", "siw"):
        return ""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
            up = _ask(control, SIOCGIFFLAGS, device.interface) & IFF_UP
    except OSError:
        return "the interface is gone"
    return "" if up else "the interface is down; nothing comes before it is up again"


def _interface(name: str, interface: str, kind: str, devices: Path) -> Device:
    try:
        index = socket.if_nametoindex(interface)
    except OSError:
        raise CaptureError(_no_such(name, devices)) from None
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        flags = _ask(control, SIOCGIFFLAGS, interface)
        hardware = _ask(control, SIOCGIFHWADDR, interface)
    if not flags & IFF_UP:
        raise CaptureError(f"{name}: the interface is down; to bring it up: ip link set {interface} up")
    bypassed = [
        device.name
        for device in _listed(devices)
        if _driver(device) and interface in (network.name for network in (device / "device" / "net").glob("*"))
    ]
    note = ""
    if bypassed and kind == "interface":
        note = f"what the adapter {bypassed[0]} sends by RDMA passes {interface} by; see: rdmascope live {bypassed[0]}"
    return Device(name, kind, interface, index, hardware in (ETHERNET, LOOPBACK), bool(flags & IFF_LOOPBACK), note)


def _ask(control: socket.socket, request: int, interface: str) -> int:
    """The first number of an ``ifreq``'s answer."""
    answer = fcntl.ioctl(control, request, struct.pack("16s24x", interface.encode()))
    (number,) = struct.unpack_from("=H", answer, 16)
    return int(number)


def _rdma_device(name: str, device: Path) -> Device:
    """rxe names its interface in ``parent``; what has no ``hca_type`` either is siw; the rest is hardware."""
    parent = _text(device / "parent")
    if parent:
        return _interface(name, parent, "rxe", device.parent)
    if not (device / "hca_type").exists():
        interface = _siw_interface(device)
        if not interface:
            raise CaptureError(f"{name}: its network interface is not known; name that (rdma link show {name})")
        return _interface(name, interface, "siw", device.parent)
    if _driver(device) == SNIFFED:
        return Device(name, "adapter", ethernet=True)
    driver = _driver(device) or "its driver"
    raise CaptureError(
        f"{name}: RDMA of this adapter ({driver}) passes the kernel by and cannot be captured on this host; "
        "capture at a mirror port of the switch"
    )


def _siw_interface(device: Path) -> str:
    """The kernel names it beside the GID, or the GID begins with its hardware address (drivers/infiniband/sw/siw)."""
    for port in sorted((device / "ports").glob("*")):
        if named := _text(port / "gid_attrs" / "ndevs" / "0"):
            return named
        address = _text(port / "gids" / "0").replace(":", "")[:12]
        for interface in sorted(Path("/sys/class/net").glob("*")):
            if address.strip("0") and _text(interface / "address").replace(":", "") == address:
                return interface.name
    return ""


def _driver(device: Path) -> str:
    """The kernel driver of an adapter; '' for a software device."""
    if not (device / "hca_type").exists() or (device / "parent").exists():
        return ""
    try:
        return os.path.basename(os.readlink(device / "device" / "driver"))
    except OSError:
        return ""


def _listed(devices: Path) -> Iterator[Path]:
    yield from sorted(devices.glob("*"))


def _text(path: Path) -> str:
    """One line of sysfs; '' where it cannot be read, which the kernel also says of an entry that is not set."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _no_such(name: str, devices: Path) -> str:
    interfaces = [interface for _, interface in socket.if_nameindex()]
    rdma = [device.name for device in _listed(devices)]
    there = ", ".join([*interfaces, *rdma])
    up = (interface for interface in interfaces if _text(Path("/sys/class/net", interface, "operstate")) == "up")
    under = next(up, "eth0")
    kind = "siw" if name.startswith("siw") else "rxe"
    remedy = ""
    if name.startswith(("rxe", "siw")):
        remedy = f"; to make it: rdma link add {name} type {kind} netdev {under}"
    elif not rdma:
        remedy = f"; no RDMA device, either: rdma link add rxe0 type rxe netdev {under} makes one"
    return f"{name}: no such device; there are {there}{remedy}"


class Source(Protocol):
    """What is captured and does not end by itself: frames, or events."""

    device: Device
    link_type: int
    snaplen: int
    words: str
    """The filter."""

    @property
    def received(self) -> int:
        """Frames that passed the filter, those included that were dropped."""

    @property
    def dropped(self) -> int | None:
        """Frames that passed the filter and were lost for lack of room; None: not known."""

    def fileno(self) -> int:
        """Becomes readable when there are frames."""

    def refuse(self) -> None:
        """Let no more frames in, where that is possible; those that came are still read."""

    def count(self) -> None:
        """Bring ``received`` and ``dropped`` up to date."""

    def close(self) -> None:
        """Frame batches that were given stay valid."""


class Live(Source, Protocol):
    """A source of frames."""

    def read(self) -> FrameBatch | None:
        """What came since the last time, without waiting; None for nothing.  Raises CaptureError at an end."""


MAX_WAITING = 16
"""Batches that were read and not asked for; then what writes them has to wait."""


class Handover:
    """Batches in their order; the file descriptor is readable while there are any."""

    def __init__(self, maximum: int = MAX_WAITING) -> None:
        """``maximum``: batches that may wait."""
        self._batches: queue.Queue[FrameBatch | CaptureError] = queue.Queue(maximum)
        self._ready, self._signal = os.pipe()
        os.set_blocking(self._ready, False)
        os.set_blocking(self._signal, False)
        self._stopped = False

    def fileno(self) -> int:
        return self._ready

    def put(self, arrived: FrameBatch | CaptureError) -> None:
        """In the thread: waits while too many batches do; returns at once after ``stop``."""
        while not self._stopped:
            try:
                self._batches.put(arrived, timeout=0.2)
            except queue.Full:
                continue
            self._wake()
            return

    def take(self) -> FrameBatch | None:
        """The next batch, None where none is there now.  Raises a CaptureError that was put, then and ever after."""
        with suppress(BlockingIOError):
            os.read(self._ready, 1 << 16)
        try:
            arrived = self._batches.get_nowait()
        except queue.Empty:
            return None
        if isinstance(arrived, CaptureError):
            self._batches.put(arrived)
            raise arrived
        if not self._batches.empty():
            self._wake()
        return arrived

    def stop(self) -> None:
        """Nothing is taken any more."""
        self._stopped = True

    def close(self) -> None:
        """The thread has ended."""
        os.close(self._ready)
        os.close(self._signal)

    def _wake(self) -> None:
        with suppress(BlockingIOError):  # Then there is enough in the pipe to wake the reader.
            os.write(self._signal, b".")


STREAM = "stream"
"""The kind of such a device."""
TRACED = "trace"
"""The kind of the device that is the host's own tracepoints, which give events in place of frames."""
BATCH = 8 << 20
"""Bytes of a batch at most, where its frames are not larger."""


class StreamEnded(CaptureError):
    """The writer came to its end."""


def is_stream(name: str) -> bool:
    """Whether a name is that of standard input, -, or of a named pipe."""
    try:
        return name == "-" or stat.S_ISFIFO(os.stat(name).st_mode)
    except (OSError, ValueError):
        return False


class StreamSource:
    """A capture that grows at its end, of any format and with any filter that its writer has."""

    def __init__(self, name: str, buffer: int = MAX_WAITING * BATCH) -> None:
        """Waits for the header of the capture. Raises CaptureError for what is none.

        ``buffer``: bytes that may wait here before the writer has to.
        """
        self.device = Device("standard input" if name == "-" else name, STREAM)
        self.words = "that of the program that writes the stream"
        self.received = self._frames = 0
        self.dropped: int | None = None
        self._capture: CaptureFile = open_capture(name)
        self.link_type = next(iter(self._capture.link_types), 0)
        self.snaplen = self._capture.snaplen
        self._handover = Handover(max(1, min(MAX_WAITING, buffer // BATCH)))
        threading.Thread(target=self._take, daemon=True).start()

    def fileno(self) -> int:
        return self._handover.fileno()

    def read(self) -> FrameBatch | None:
        batch = self._handover.take()
        self._frames += 0 if batch is None else len(batch)
        self.received = self._frames + (self.dropped or 0)
        return batch

    def refuse(self) -> None:
        """What writes the stream goes on."""

    def count(self) -> None:
        """What its writer dropped a pcapng may tell at its end; nothing else does."""
        if self._capture.section.counts_drops:
            self.dropped = self._capture.dropped_frames
            self.received = self._frames + self.dropped

    def close(self) -> None:
        self._handover.stop()

    def _take(self) -> None:
        """Reads, in a thread."""
        try:
            for batch in self._capture.batches():
                self._handover.put(batch)
        except CaptureError as error:
            self._handover.put(error)
            return
        self._handover.put(StreamEnded(f"{self.device}: the stream ended"))


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
    """The tracepoints of this kernel that we read."""

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
