"""What the probe needs of verbs: connect or listen, send and receive, memory; and work requests in order.

Every ``Verbs`` is used by one thread.  Nothing in it waits except ``connect`` and ``poll``, both with a deadline on the
clock ``now``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ...errors import CaptureError


class VerbsError(CaptureError):
    """What a device, the connection manager or the peer refused, in one line a user can act on."""


class LinkLost(VerbsError):
    """The connection ended while something was asked of it."""


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
    """What this end brings into a connection."""

    private_data: bytes = b""
    receives: int = 32
    """Receives kept posted."""
    receive_size: int = 4096
    """Bytes of each of them."""
    reads: int = 16
    """RDMA Reads at once, in either direction; a device may allow fewer."""


@dataclass(frozen=True, slots=True)
class Depths:
    """RDMA Reads at once, as the two ends agreed; None where the device does not show it."""

    served: int | None = None
    """Reads of the peer that this end answers."""
    issued: int | None = None
    """Reads that this end may issue."""


class RegisteredMemory(Protocol):
    """Registered memory that the peer may read and write."""

    handle: int
    """R_key or STag."""
    address: int
    """Of its first byte, as a segment's offset."""
    length: int

    def fetch(self, at: int, length: int) -> bytes:
        """What is there, from byte ``at`` on."""

    def store(self, at: int, data: bytes) -> None:
        """Write ``data`` into the memory, from the byte ``at`` on."""


class VerbsConnection(Protocol):
    """One connection: a queue pair with its receives posted."""

    device: str
    local: str
    """Address of this end, as far as the device shows."""
    peer: str
    private_data: bytes
    """What the peer sent in its request or its reply, with the zeros that InfiniBand's fixed fields add."""
    depths: Depths

    def settle(self) -> None:
        """Wait, after connecting, until the peer can receive: some answer before they can."""

    def register(self, length: int) -> RegisteredMemory:
        """Memory the peer may read and write until ``release``."""

    def window(self, memory: RegisteredMemory) -> RegisteredMemory | None:
        """The same memory through a type 2 memory window, which the peer may invalidate; None: this device has none."""

    def release(self, memory: RegisteredMemory) -> None:
        """The peer may no longer."""

    def send(self, data: bytes, invalidate: int | None = None) -> None:
        """Send a message, with ``invalidate`` naming a handle of the peer's."""

    def read(self, handle: int, address: int, length: int) -> int:
        """Read the peer's memory; the number comes back in ``RdmaFinished``."""

    def write(self, handle: int, address: int, data: bytes) -> int:
        """Write into the peer's memory; the number comes back in ``RdmaFinished``."""

    def close(self) -> None:
        """Disconnect, and free everything; harmless when done twice."""


class IncomingRequest(Protocol):
    """A client that wants to connect."""

    peer: str
    private_data: bytes

    def accept(self, terms: ConnectionParameters) -> VerbsConnection:
        """Take the connection that was asked for.  Raises VerbsError."""

    def reject(self) -> None:
        """Refuse the connection that was asked for."""


@dataclass(frozen=True, slots=True)
class ConnectRequested:
    """A connection request arrived at a listener."""

    request: IncomingRequest


@dataclass(frozen=True, slots=True)
class MessageReceived:
    """A Send of the other end arrived."""

    link: VerbsConnection
    data: bytes
    invalidated: int | None = None
    """The handle of ours that it invalidated."""
    time: int = 0
    """Nanoseconds, on the clock ``now``."""


@dataclass(frozen=True, slots=True)
class RdmaFinished:
    """An RDMA Read or Write of ours is done."""

    link: VerbsConnection
    number: int
    data: bytes = b""
    """What was read."""


@dataclass(frozen=True, slots=True)
class ConnectionLost:
    """The connection is gone; said once."""

    link: VerbsConnection
    reason: str


Event = ConnectRequested | MessageReceived | RdmaFinished | ConnectionLost


class Verbs(Protocol):
    """The devices of one machine."""

    def now(self) -> int:
        """Nanoseconds on a clock that only goes forward."""

    def connect(self, target: PeerAddress, terms: ConnectionParameters, deadline: int) -> VerbsConnection:
        """Connect; raise ``VerbsError`` with the reason where it does not come about by ``deadline``."""

    def listen(self, target: PeerAddress) -> list[str]:
        """Listen at ``target.source``, or at all addresses of the devices; returns where, 'address:port device'."""

    def poll(self, deadline: int) -> Event | None:
        """The next event, None at ``deadline``."""

    def close(self) -> None:
        """End all connections."""


MAX_SENDS = 192
"""Work requests in flight."""
SEND_SIZE = 8192
"""Bytes of a send buffer; a longer message has its memory registered for itself."""
SEND_BUFFERS = 16
"""That a connection keeps; Sends beyond them have their memory registered for themselves, until they are done."""
MAX_MOVING = 4 << 20
"""Bytes in flight, as far as memory is registered for them: 'ulimit -l' is often 8 MiB for a whole process."""


class OutgoingWork:
    """``submit`` starts a request, or keeps it until those before it have made room."""

    def __init__(self, max_sends: int = MAX_SENDS, max_moving: int = MAX_MOVING) -> None:
        self._max_sends = max_sends
        self._max_moving = max_moving
        self._sends = 0
        self._moving = 0
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()

    def submit(self, size: int, start: Callable[[], None]) -> None:
        """``start`` registers ``size`` bytes and posts; raises what it raises, unless that is memory for which it can
        wait."""
        self._waiting.append((size, start))
        self._go_on()

    def finished(self, size: int) -> None:
        """A request of ``size`` bytes completed, and those that wait may go on."""
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
            except VerbsError:  # no memory to register, which those in flight will give back
                if not self._sends:
                    raise
                return
            self._waiting.popleft()
            self._sends += 1
            self._moving += size
