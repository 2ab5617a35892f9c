"""What a name on the command line stands for (a network interface, a software RDMA device, an adapter), and what every
source of live frames offers; frames that another program writes: standard input or a named pipe.

A thread reads what is written, and hands it over to a reader that waits for several sources at once."""

from __future__ import annotations

import fcntl
import os
import queue
import socket
import stat
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rdmascope.dissect.frames import FrameBatch

from ..errors import CaptureError
from ..read.open import CaptureFile, open_capture

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
    """As it was given."""
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
    bypassed = [device.name for device in _listed(devices) if _driver(device) and interface in _networks(device)]
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
    """The kernel driver of an adapter; '' for what is made of software."""
    if not (device / "hca_type").exists() or (device / "parent").exists():
        return ""
    try:
        return os.path.basename(os.readlink(device / "device" / "driver"))
    except OSError:
        return ""


def _networks(device: Path) -> list[str]:
    """Interfaces of the same adapter."""
    return [path.name for path in (device / "device" / "net").glob("*")]


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
        """Waits for the header of the capture.  Raises CaptureError for what is none.

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
