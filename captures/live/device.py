"""What a name on the command line stands for: a network interface, a software RDMA device or an adapter."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..errors import CaptureError

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
    place = devices / name
    if name and name not in (".", "..") and "/" not in name and place.is_dir():
        return _rdma_device(name, place)
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


def _rdma_device(name: str, place: Path) -> Device:
    """rxe names its interface in ``parent``; what has no ``hca_type`` either is siw; the rest is hardware."""
    parent = _text(place / "parent")
    if parent:
        return _interface(name, parent, "rxe", place.parent)
    if not (place / "hca_type").exists():
        interface = _siw_interface(place)
        if not interface:
            raise CaptureError(f"{name}: its network interface is not known; name that (rdma link show {name})")
        return _interface(name, interface, "siw", place.parent)
    if _driver(place) == SNIFFED:
        return Device(name, "adapter", ethernet=True)
    driver = _driver(place) or "its driver"
    raise CaptureError(
        f"{name}: RDMA of this adapter ({driver}) passes the kernel by and cannot be captured on this host; "
        "capture at a mirror port of the switch"
    )


def _siw_interface(place: Path) -> str:
    """The kernel names it beside the GID, or the GID begins with its hardware address (drivers/infiniband/sw/siw)."""
    for port in sorted((place / "ports").glob("*")):
        if named := _text(port / "gid_attrs" / "ndevs" / "0"):
            return named
        address = _text(port / "gids" / "0").replace(":", "")[:12]
        for interface in sorted(Path("/sys/class/net").glob("*")):
            if address.strip("0") and _text(interface / "address").replace(":", "") == address:
                return interface.name
    return ""


def _driver(place: Path) -> str:
    """The kernel driver of an adapter; '' for what is made of software."""
    if not (place / "hca_type").exists() or (place / "parent").exists():
        return ""
    try:
        return os.path.basename(os.readlink(place / "device" / "driver"))
    except OSError:
        return ""


def _networks(place: Path) -> list[str]:
    """Interfaces of the same adapter."""
    return [path.name for path in (place / "device" / "net").glob("*")]


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
    up = (one for one in interfaces if _text(Path("/sys/class/net", one, "operstate")) == "up")
    under = next(up, "eth0")
    kind = "siw" if name.startswith("siw") else "rxe"
    remedy = ""
    if name.startswith(("rxe", "siw")):
        remedy = f"; to make it: rdma link add {name} type {kind} netdev {under}"
    elif not rdma:
        remedy = f"; no RDMA device, either: rdma link add rxe0 type rxe netdev {under} makes one"
    return f"{name}: no such device; there are {there}{remedy}"
