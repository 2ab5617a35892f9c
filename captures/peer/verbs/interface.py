"""What the probe needs of verbs: connect or listen, send and receive, memory; and work requests in order.

It also has this machine's RDMA devices, the file descriptors of their queues, and advice if something is missing.

Each ``Verbs`` is used by one thread.  Only ``connect`` and ``poll`` wait, both with a deadline on the clock ``now``.
"""

from __future__ import annotations

import os
import select
import socket
import struct
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import Protocol

from ...errors import CaptureError


class VerbsError(CaptureError):
    """What a device, the connection manager or the peer refused, in one line that tells the user what to do."""


class LinkLost(VerbsError):
    """The connection ended during a request."""


@dataclass(frozen=True, slots=True)
class PeerAddress:
    """Where to connect to."""

    host: str
    """A name or an address, IPv4 or IPv6."""
    port: int
    source: str | None = None
    device: str | None = None
    family: int = 0
    """4 or 6 for an IPv4 or IPv6 address of the host, 0 for either."""

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class ConnectionParameters:
    """What this end offers for a connection."""

    private_data: bytes = b""
    receives: int = 32
    """How many Receives are kept posted."""
    receive_size: int = 4096
    """Bytes of each of them."""
    reads: int = 16
    """RDMA Reads at a time, in either direction; a device may allow fewer."""


@dataclass(frozen=True, slots=True)
class Depths:
    """RDMA Reads at a time, as the two ends agreed; None if the device does not tell."""

    served: int | None = None
    """Reads of the peer that this end answers."""
    issued: int | None = None
    """Reads that this end may issue."""


class RegisteredMemory(Protocol):
    """Registered memory that the peer may read and write."""

    handle: int
    """What names the memory to the peer: an R_key or STag."""
    address: int
    """The address of its first byte, as in a segment's offset."""
    length: int

    def fetch(self, at: int, length: int) -> bytes:
        """The contents from byte ``at`` on."""

    def store(self, at: int, data: bytes) -> None:
        """Write ``data`` into the memory, from the byte ``at`` on."""


class VerbsConnection(Protocol):
    """One connection: a queue pair with its receives posted."""

    device: str
    local: str
    """Address of this end, if the device tells."""
    peer: str
    private_data: bytes
    """Private data of the peer's request or reply, with the zeros that InfiniBand's fixed-size fields append."""
    depths: Depths

    def settle(self) -> None:
        """Wait, after connecting, until the peer can receive: some peers answer before they can."""

    def register(self, length: int) -> RegisteredMemory:
        """Register memory that the peer may read and write until ``release``."""

    def window(self, memory: RegisteredMemory) -> RegisteredMemory | None:
        """A type 2 memory window on registered memory, which the peer may invalidate; None if the device has none."""

    def release(self, memory: RegisteredMemory) -> None:
        """Revoke the peer's access."""

    def send(self, data: bytes, invalidate: int | None = None) -> None:
        """Send a message; ``invalidate``: a handle of the peer's to invalidate."""

    def read(self, handle: int, address: int, length: int) -> int:
        """Read the peer's memory; the number returned identifies the ``RdmaFinished``."""

    def write(self, handle: int, address: int, data: bytes) -> int:
        """Write into the peer's memory; the number returned identifies the ``RdmaFinished``."""

    def close(self) -> None:
        """Disconnect, and free everything; may be called twice."""


class IncomingRequest(Protocol):
    """A client that wants to connect."""

    peer: str
    private_data: bytes

    def accept(self, terms: ConnectionParameters) -> VerbsConnection:
        """Accept the connection.  Raises VerbsError."""

    def reject(self) -> None:
        """Refuse the request; its peer is told that it was rejected."""


@dataclass(frozen=True, slots=True)
class ConnectRequested:
    """A connection request arrived at a listener."""

    request: IncomingRequest


@dataclass(frozen=True, slots=True)
class MessageReceived:
    """A Send of the other end has arrived."""

    link: VerbsConnection
    data: bytes
    invalidated: int | None = None
    """The handle of this end that it invalidated."""
    time: int = 0
    """Nanoseconds, on the clock ``now``."""


@dataclass(frozen=True, slots=True)
class RdmaFinished:
    """An RDMA Read or Write of this end has finished."""

    link: VerbsConnection
    number: int
    data: bytes = b""
    """The bytes that were read."""


@dataclass(frozen=True, slots=True)
class ConnectionLost:
    """The connection is gone; reported once."""

    link: VerbsConnection
    reason: str


Event = ConnectRequested | MessageReceived | RdmaFinished | ConnectionLost


class Verbs(Protocol):
    """The devices of one machine."""

    def now(self) -> int:
        """Nanoseconds on a clock that only goes forward."""

    def connect(self, target: PeerAddress, terms: ConnectionParameters, deadline: int) -> VerbsConnection:
        """Connect; raises ``VerbsError`` with the reason if that does not succeed by ``deadline``."""

    def listen(self, target: PeerAddress) -> list[str]:
        """Listen at ``target.source``, or at all addresses of the devices; returns them as 'address:port device'."""

    def poll(self, deadline: int) -> Event | None:
        """The next event, None at ``deadline``."""

    def close(self) -> None:
        """End all connections, and stop listening."""


MAX_SENDS = 192
"""Work requests in flight."""
SEND_SIZE = 8192
"""Bytes of a send buffer; for a longer message memory is registered separately."""
SEND_BUFFERS = 16
"""Send buffers of a connection; further Sends register memory until they are done."""
MAX_MOVING = 4 << 20
"""Bytes in flight for which memory is registered: 'ulimit -l' is often 8 MiB for a whole process."""


class OutgoingWork:
    """Starts requests in order, each when those before it have left enough room."""

    def __init__(self, max_sends: int = MAX_SENDS, max_moving: int = MAX_MOVING) -> None:
        self._max_sends = max_sends
        self._max_moving = max_moving
        self._sends = 0
        self._moving = 0
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()

    def submit(self, size: int, start: Callable[[], None]) -> None:
        """Run ``start``, which registers ``size`` bytes and posts, now or when there is room; raises what it raises,
        except for want of memory that it can wait for."""
        self._waiting.append((size, start))
        self._go_on()

    def finished(self, size: int) -> None:
        """Note that a request of ``size`` bytes completed: waiting ones may start."""
        self._sends -= 1
        self._moving -= size
        self._go_on()

    def _go_on(self) -> None:
        while self._waiting:
            size, start = self._waiting[0]
            if self._sends and (self._sends >= self._max_sends or self._moving + size > self._max_moving):
                return
            try:
                start()
            except LinkLost:
                raise
            except VerbsError:  # no memory to register; requests in flight will free some
                if not self._sends:
                    raise
                return
            self._waiting.popleft()
            self._sends += 1
            self._moving += size


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
    """A device's network interfaces: those in its GID table or, for iWARP, the one whose hardware address is its
    GID."""
    named = [_text(entry) for entry in sorted(device.glob("ports/*/gid_attrs/ndevs/*"))]
    if not any(named):
        gids = {_text(entry).replace(":", "")[:12] for entry in device.glob("ports/*/gids/0")}
        named = [net.name for net in sorted(_NET.iterdir()) if _text(net / "address").replace(":", "") in gids]
    return [name for name in dict.fromkeys(named) if name]


def _text(path: Path) -> str:
    """A line of sysfs; '' if it cannot be read, such as an empty slot of a table."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def is_iwarp(device: str) -> bool:
    """Whether the device is an RNIC: on TCP and MPA, and the connection manager changes queue pair states."""
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
    """Devices and addresses to listen on: those of ``device``, the one with ``source``, or those of the first device.

    There is no authentication: only one device is open to clients unless others were asked for.
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
    """The first address of ``host`` in IP version ``family``, with its zone if it has one."""
    try:
        answers = socket.getaddrinfo(host, port, _FAMILIES[family], socket.SOCK_STREAM)
    except OSError as error:
        raise VerbsError(f"{host}: {error.strerror or error}") from None
    return str(answers[0][4][0])


def local_address(peer: str) -> str:
    """The local address from which routes lead to ``peer``; '' if there is none."""
    address, _, zone = peer.partition("%")
    six = ":" in address
    try:
        with socket.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_DGRAM) as asked:
            # This sends nothing.
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
    """Wait until some descriptors are readable, and return these. Unlike ``select``, it takes descriptors of any number
    and value."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return [descriptor for descriptor, _ in poll.poll(-(-nanoseconds // 1_000_000))]


@contextmanager
def new_descriptor(kind: str) -> Iterator[list[int]]:
    """Yields a list that gets the descriptor of the ``kind`` of file opened in the block."""
    descriptors: list[int] = []
    before = set(_descriptors(kind))
    yield descriptors
    descriptors += sorted(set(_descriptors(kind)) - before)
    if not descriptors:
        raise VerbsError(f"no descriptor of a new {kind} channel in /proc/self/fd")


def _descriptors(kind: str) -> Iterator[int]:
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the descriptor used for listing is closed again
            if kind in os.readlink(f"/proc/self/fd/{name}"):
                yield int(name)
