"""Frames from the network as they pass.

``device.py`` finds out what a name stands for, ``filter.py`` says to the kernel which frames to keep, ``ring.py``
takes them from an interface, ``sniffer.py`` from an adapter whose RDMA passes the kernel by, ``keep.py`` writes what
came into a bounded set of files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from rdmascope.dissect.frames import FrameBatch

from .device import Device, find_device
from .filter import Filter
from .keep import Keep, Keeper
from .ring import PacketRing
from .sniffer import Sniffer

__all__ = ["Device", "Drops", "Filter", "Keep", "Keeper", "Live", "PacketRing", "Sniffer", "find_device", "open_live"]


class Drops(Protocol):
    """The counters of the source of the frames."""

    received: int
    """Frames that passed the filter, those included that were dropped."""
    dropped: int
    """Frames that passed the filter and were lost for lack of room."""


class Live(Drops, Protocol):
    """A source of frames that does not end by itself."""

    device: Device
    link_type: int
    snaplen: int
    words: str
    """The filter."""

    def fileno(self) -> int:
        """Becomes readable when there are frames."""

    def read(self) -> FrameBatch | None:
        """What came since the last time, without waiting; None for nothing.  Raises CaptureError at an end."""

    def count(self) -> None:
        """Bring ``received`` and ``dropped`` up to date."""

    def close(self) -> None:
        """Frame batches that were given stay valid."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How to capture."""

    ports: Sequence[int]
    """TCP ports of iWARP."""
    all_tcp: bool = False
    tunnels: bool = False
    snaplen: int = 262144
    buffer: int = 64 << 20
    """Bytes that the kernel may keep before it drops."""
    promiscuous: bool = True


def open_live(name: str, settings: Settings) -> Live:
    """Begin to capture on an interface or RDMA device; raises CaptureError with the remedy."""
    device = find_device(name)
    filter = Filter(tuple(settings.ports), settings.all_tcp, settings.tunnels)
    if device.kind == "adapter":
        return Sniffer(device, filter, settings.snaplen)
    return PacketRing(device, filter, settings.snaplen, settings.buffer, settings.promiscuous)
