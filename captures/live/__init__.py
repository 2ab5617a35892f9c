"""Frames from the network as they pass.

``device.py`` finds out what a name stands for, and has what every source offers, streams, and the
tracepoints of the kernel; ``ring.py`` takes frames from interfaces and adapters, here and on other hosts; ``keep.py``
writes packets into a bounded set of files or around a moment, for which it waits; ``session.py`` is one capture and
its figures.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from .device import TRACE, Device, Live, StreamSource, TraceInstance, TraceSource, find_device, is_stream
from .keep import Keep, Keeper
from .ring import Filter, PacketRing, RemoteSource, Sniffer

__all__ = [
    "TRACE",
    "CaptureSettings",
    "Device",
    "Filter",
    "Keep",
    "Keeper",
    "Live",
    "PacketRing",
    "RemoteSource",
    "Sniffer",
    "StreamSource",
    "find_device",
    "is_stream",
    "open_live",
    "open_trace",
]


@dataclass(frozen=True, slots=True)
class CaptureSettings:
    ports: Sequence[int]
    """TCP ports of iWARP."""
    all_tcp: bool = False
    tunnels: bool = False
    snaplen: int = 262144
    buffer: int = 64 << 20
    """Bytes that the kernel may keep before it drops."""
    promiscuous: bool = True


def open_trace(settings: CaptureSettings) -> TraceSource:
    """Begin to read the tracepoints of this host's kernel.  Raises CaptureError with the remedy."""
    return TraceSource(TraceInstance(buffer=settings.buffer // (1024 * (os.cpu_count() or 1))))


def open_live(name: str, settings: CaptureSettings) -> Live:
    """Begin to capture on an interface or RDMA device, here or as HOST:DEVICE elsewhere, or to read a stream.

    Raises CaptureError with the remedy.
    """
    if is_stream(name):
        return StreamSource(name, settings.buffer)
    filter = Filter(tuple(settings.ports), settings.all_tcp, settings.tunnels)
    host, _, there = name.rpartition(":")
    if host and "/" not in name:
        return RemoteSource(host.strip("[]"), there, filter, settings.snaplen, settings.buffer)
    device = find_device(name)
    if device.kind == "adapter":
        return Sniffer(device, filter, settings.snaplen)
    return PacketRing(device, filter, settings.snaplen, settings.buffer, settings.promiscuous)
