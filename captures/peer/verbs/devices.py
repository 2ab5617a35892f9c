"""The RDMA devices of this machine, the file descriptors of their queues, and advice where something is missing."""

from __future__ import annotations

import os
import select
import socket
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from ipaddress import IPv6Address, ip_address
from pathlib import Path

from .interface import VerbsError

_CLASS = Path("/sys/class/infiniband")
_NET = Path("/sys/class/net")
_RDMA_CM = Path("/dev/infiniband/rdma_cm")
_IF_INET6 = Path("/proc/net/if_inet6")
_SIOCGIFADDR = 0x8915
_SCOPE_LINK = 0x20


def devices() -> dict[str, list[str]]:
    """RDMA devices and the network interfaces behind them."""
    return {device.name: _interfaces(device) for device in (sorted(_CLASS.iterdir()) if _CLASS.is_dir() else ())}


def _interfaces(device: Path) -> list[str]:
    """As the GID table names them, else those whose hardware address an iWARP device has for a GID."""
    named = [_text(entry) for entry in sorted(device.glob("ports/*/gid_attrs/ndevs/*"))]
    if not any(named):
        gids = {_text(entry).replace(":", "")[:12] for entry in device.glob("ports/*/gids/0")}
        named = [net.name for net in sorted(_NET.iterdir()) if _text(net / "address").replace(":", "") in gids]
    return [name for name in dict.fromkeys(named) if name]


def _text(path: Path) -> str:
    """A line of sysfs; '' where it cannot be read, as with an empty slot of a table."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def is_iwarp(device: str) -> bool:
    """The device is an RNIC: TCP and MPA below, the connection manager moves the queue pair."""
    return _text(_CLASS / device / "node_type").startswith("4")


def addresses(interface: str) -> list[str]:
    """IPv4 and IPv6 addresses of a network interface; link-local ones with their zone."""
    addresses: list[str] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        try:
            import fcntl

            answer = fcntl.ioctl(asked, _SIOCGIFADDR, struct.pack("256s", interface.encode()[:15]))
            addresses.append(socket.inet_ntoa(answer[20:24]))
        except OSError:
            pass  # it has none
    for line in _IF_INET6.read_text().splitlines() if _IF_INET6.exists() else ():
        digits, _, _, scope, _, name = line.split()
        if name == interface:
            zone = f"%{interface}" if int(scope, 16) == _SCOPE_LINK else ""
            addresses.append(f"{IPv6Address(bytes.fromhex(digits))}{zone}")
    return addresses


def source_of(device: str, peer: str) -> str:
    """An address of ``device`` in the family of the address ``peer``."""
    every = devices()
    if device not in every:
        raise VerbsError(f"no RDMA device {device!r}; there are {', '.join(every) or 'none'}")
    version = ip_address(peer.partition("%")[0]).version
    for interface in every[device]:
        for address in addresses(interface):
            if ip_address(address.partition("%")[0]).version == version and "%" not in address:
                return address
    behind = ", ".join(every[device]) or "no network interface"
    raise VerbsError(f"{device} has no IPv{version} address ({behind})")


def listening_addresses(device: str | None, source: str | None) -> Iterator[tuple[str, str]]:
    """Devices and their addresses that a server listens on: of ``device``, of that with ``source``, or of the first.

    There is no authentication: no more than one device is open to clients unless another was asked for.
    """
    every = devices()
    if device and device not in every:
        raise VerbsError(f"no RDMA device {device!r}; there are {', '.join(every) or 'none'}")
    for name in [device] if device else every if source else [*every][:1]:
        for address in dict.fromkeys(named for interface in every[name] for named in addresses(interface)):
            if source in (None, address.partition("%")[0], address):
                yield name, address


_FAMILIES = {0: socket.AF_UNSPEC, 4: socket.AF_INET, 6: socket.AF_INET6}


def resolve(host: str, port: int, family: int = 0) -> str:
    """The first address of ``host`` in IP version ``family``, with its zone where it has one."""
    try:
        answers = socket.getaddrinfo(host, port, _FAMILIES[family], socket.SOCK_STREAM)
    except OSError as error:
        raise VerbsError(f"{host}: {error.strerror or error}") from None
    return str(answers[0][4][0])


def local_address(peer: str) -> str:
    """The address of this host that the routes choose towards ``peer``; '' where there is none."""
    address, _, zone = peer.partition("%")
    six = ":" in address
    try:
        with socket.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_DGRAM) as asked:
            # Nothing is sent by this.
            asked.connect((address, 9, 0, socket.if_nametoindex(zone) if zone else 0) if six else (address, 9))
            return str(asked.getsockname()[0]).partition("%")[0]
    except OSError:
        return ""


def require() -> None:
    """Raise ``VerbsError`` with the remedy unless pyverbs, a device and the connection manager are here."""
    if find_spec("pyverbs") is None:
        raise VerbsError(
            "no pyverbs for this Python: 'apt install python3-pyverbs', and a virtual environment made with "
            "--system-site-packages; or 'pip install pyverbs', which builds it from source"
        )
    if not devices():
        raise VerbsError("no RDMA device: 'modprobe rdma_rxe && rdma link add rxe0 type rxe netdev eth0', or type siw")
    if not _RDMA_CM.exists():
        raise VerbsError(f"no {_RDMA_CM}: 'modprobe rdma_ucm'")


def readable(descriptors: Iterable[int], nanoseconds: int) -> list[int]:
    """Those that can be read, as soon as there are any; of any number and value, which ``select`` does not take."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return [descriptor for descriptor, _ in poll.poll(-(-nanoseconds // 1_000_000))]


@contextmanager
def new_descriptor(kind: str) -> Iterator[list[int]]:
    """The descriptor of a ``kind`` of file that was opened inside."""
    descriptors: list[int] = []
    before = set(_descriptors(kind))
    yield descriptors
    descriptors += sorted(set(_descriptors(kind)) - before)
    if not descriptors:
        raise VerbsError(f"no descriptor of a new {kind} channel in /proc/self/fd")


def _descriptors(kind: str) -> Iterator[int]:
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the one that lists them is gone again
            if kind in os.readlink(f"/proc/self/fd/{name}"):
                yield int(name)
