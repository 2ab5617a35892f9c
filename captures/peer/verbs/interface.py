"""What the probe needs of verbs: connect or listen, send and receive, memory; and work requests in order.

Every ``Verbs`` is used by one thread.  Nothing in it waits except ``connect`` and ``poll``, both with a deadline on the
clock ``now``.  ``MemoryVerbs`` is a host without devices on a ``Fabric``: several hosts in one process, with every
frame that their devices would have sent.  Its time is the tape's: it passes with every frame, and a ``poll`` that finds
nothing lets the other hosts work, then jumps to its deadline.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from rdmascope.dissect.rpcrdma.messages import Segment

from ...errors import CaptureError
from ..wire import IwarpLink, Path, Rocev2Link, Tape


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

    @property
    def handle(self) -> int:
        """R_key or STag."""

    @property
    def address(self) -> int:
        """Of its first byte, as a segment's offset."""

    @property
    def length(self) -> int: ...

    def fetch(self, at: int, length: int) -> bytes: ...

    def store(self, at: int, data: bytes) -> None: ...


class VerbsConnection(Protocol):
    """One connection: a queue pair with its receives posted."""

    @property
    def device(self) -> str: ...

    @property
    def local(self) -> str:
        """Address of this end, as far as the device shows."""

    @property
    def peer(self) -> str: ...

    @property
    def private_data(self) -> bytes:
        """What the peer sent in its request or its reply, with the zeros that InfiniBand's fixed fields add."""

    @property
    def depths(self) -> Depths: ...

    def settle(self) -> None:
        """Wait, after connecting, until the peer can receive: some answer before they can."""

    def register(self, length: int) -> RegisteredMemory:
        """Memory the peer may read and write until ``release``."""

    def window(self, memory: RegisteredMemory) -> RegisteredMemory | None:
        """The same memory through a type 2 memory window, which the peer may invalidate; None: this device has none."""

    def release(self, memory: RegisteredMemory) -> None: ...

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

    @property
    def peer(self) -> str: ...

    @property
    def private_data(self) -> bytes: ...

    def accept(self, terms: ConnectionParameters) -> VerbsConnection: ...

    def reject(self) -> None: ...


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

    def close(self) -> None: ...


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
        """A request completed."""
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


_PAGE = 4096


class Fabric:
    """A network, ``iwarp`` or RoCEv2; ``tape.frames`` is what passed."""

    def __init__(self, iwarp: bool = False, seed: int = 0, windows: bool = True) -> None:
        self.tape = Tape(seed)
        self.iwarp = iwarp
        self.windows = windows and not iwarp
        self.hosts: list[MemoryVerbs] = []

    def host(self, address: str, idle: Callable[[], bool] | None = None) -> MemoryVerbs:
        """A host; ``idle`` is its program, called when others wait: one step, False where there was nothing to do."""
        made = MemoryVerbs(self, address, idle)
        self.hosts.append(made)
        return made


class MemoryRegion:
    """A ``RegisteredMemory``, whole pages of it, as devices keep it."""

    def __init__(self, handle: int, address: int, length: int, data: bytearray) -> None:
        self.handle = handle
        self.address = address
        self.length = length
        self.data = data

    def fetch(self, at: int, length: int) -> bytes:
        return bytes(self.data[at : at + length])

    def store(self, at: int, data: bytes) -> None:
        self.data[at : at + len(data)] = data


class MemoryLink:
    """One end of a connection."""

    def __init__(self, verbs: MemoryVerbs, side: int, terms: ConnectionParameters, peer: str) -> None:
        self.device = "memory"
        self.local = verbs.address
        self.peer = peer
        self.private_data = b""
        self.depths = Depths(terms.reads, terms.reads)
        self.verbs = verbs
        self.terms = terms
        self.side = side
        self.other: MemoryLink = self
        self.wire: Rocev2Link | IwarpLink
        self.regions: dict[int, MemoryRegion] = {}
        self.lost = ""
        self._number = 0

    def settle(self) -> None:
        pass

    def register(self, length: int) -> MemoryRegion:
        pages = max(1, -(-length // _PAGE)) * _PAGE
        return self._region(length, self.verbs.room(pages), bytearray(pages))

    def window(self, memory: RegisteredMemory) -> MemoryRegion | None:
        if not self.verbs.fabric.windows or not isinstance(memory, MemoryRegion):
            return None
        return self._region(memory.length, memory.address, memory.data)

    def release(self, memory: RegisteredMemory) -> None:
        self.regions.pop(memory.handle, None)

    def send(self, data: bytes, invalidate: int | None = None) -> None:
        self._alive()
        self.wire.send(self.side, data, invalidate)
        other = self.other
        if len(data) > other.terms.receive_size:
            self._break("a message was longer than the Receive")
        elif invalidate is not None and other.regions.pop(invalidate, None) is None:
            self._break("the peer reports an invalid request")
        else:
            other.verbs.put(MessageReceived(other, data, invalidate, self.verbs.now()))

    def read(self, handle: int, address: int, length: int) -> int:
        self._alive()
        self._number += 1
        segment = Segment(handle, length, address)
        place = self.other.place(segment)
        if place is None:
            self.wire.read_refused(self.side, segment)
            self._break("the peer reports a remote access error")
        else:
            data = bytes(place)
            self.wire.read(self.side, segment, data)
            self.verbs.put(RdmaFinished(self, self._number, data))
        return self._number

    def write(self, handle: int, address: int, data: bytes) -> int:
        self._alive()
        self._number += 1
        segment = Segment(handle, len(data), address)
        place = self.other.place(segment)
        if place is None:
            self.wire.write_refused(self.side, segment, data)
            self._break("the peer reports a remote access error")
        else:
            place[:] = data
            self.wire.write(self.side, segment, data)
            self.verbs.put(RdmaFinished(self, self._number))
        return self._number

    def close(self) -> None:
        if not self.lost:
            self.wire.disconnect(self.side)
            self.lost = "closed"
            self.other.lose("the peer disconnected")

    def lose(self, reason: str) -> None:
        if not self.lost:
            self.lost = reason
            self.verbs.put(ConnectionLost(self, reason))

    def place(self, segment: Segment) -> memoryview | None:
        """The bytes behind a handle and an offset; None where a device would refuse."""
        region = self.regions.get(segment.handle)
        start = 0 if region is None else segment.offset - region.address
        if region is None or not 0 <= start <= len(region.data) - segment.length:
            return None
        return memoryview(region.data)[start : start + segment.length]

    def _region(self, length: int, address: int, data: bytearray) -> MemoryRegion:
        handle = self.verbs.fabric.tape.random.randrange(1, 1 << 32)
        made = MemoryRegion(handle, address, length, data)
        self.regions[handle] = made
        return made

    def _alive(self) -> None:
        if self.lost:
            raise LinkLost(f"{self.peer}: {self.lost}")

    def _break(self, reason: str) -> None:
        """The two devices end the connection, as after a NAK."""
        self.lose(reason)
        self.other.lose("the peer ended the connection")


class MemoryRequest:
    def __init__(self, verbs: MemoryVerbs, peer: str, private_data: bytes) -> None:
        self.peer = peer
        self.private_data = private_data
        self.verbs = verbs
        self.link: MemoryLink | None = None
        self.refused = False

    def accept(self, terms: ConnectionParameters) -> MemoryLink:
        self.link = MemoryLink(self.verbs, 1, terms, self.peer)
        self.link.private_data = self.private_data
        return self.link

    def reject(self) -> None:
        self.refused = True


class MemoryVerbs:
    """``Verbs`` of a host on a fabric."""

    def __init__(self, fabric: Fabric, address: str, idle: Callable[[], bool] | None) -> None:
        self.fabric = fabric
        self.address = address
        self.idle = idle
        self.port: int | None = None
        self._events: deque[Event] = deque()
        self._next_address = fabric.tape.random.randrange(1 << 20, 1 << 35) * _PAGE

    def now(self) -> int:
        return self.fabric.tape.now

    def connect(self, target: PeerAddress, terms: ConnectionParameters, deadline: int) -> MemoryLink:
        found = [host for host in self.fabric.hosts if host.address == target.host]
        if not found:
            self._wait(deadline)
            raise VerbsError(f"{target}: no answer in time while connecting")
        server = found[0]
        if server.port != target.port:
            raise VerbsError(f"{target}: refused: nothing listens on that port, or it takes no more connections")
        request = MemoryRequest(server, self.address, terms.private_data)
        server.put(ConnectRequested(request))
        while request.link is None and not request.refused and self._others():
            pass
        if request.link is None:
            raise VerbsError(f"{target}: refused: nothing listens on that port, or it takes no more connections")
        link = MemoryLink(self, 0, terms, str(target))
        link.other, request.link.other = request.link, link
        network = IwarpLink if self.fabric.iwarp else Rocev2Link
        link.wire = request.link.wire = network(self.fabric.tape, Path(self.address, server.address, target.port))
        link.wire.connect(terms.private_data, request.link.terms.private_data)
        link.private_data = request.link.terms.private_data
        return link

    def listen(self, target: PeerAddress) -> list[str]:
        self.port = target.port
        return [f"{PeerAddress(self.address, target.port)} memory"]

    def poll(self, deadline: int) -> Event | None:
        while not self._events and self._others():
            pass
        if self._events:
            return self._events.popleft()
        self._wait(deadline)
        return None

    def close(self) -> None:
        self._events.clear()

    def put(self, event: Event) -> None:
        self._events.append(event)

    def room(self, length: int) -> int:
        """An address for so many bytes, with a page of nothing behind them."""
        start = self._next_address
        self._next_address += length + _PAGE
        return start

    def _others(self) -> bool:
        """Let the programs of the other hosts work; False where none had anything to do."""
        return sum(host.idle() for host in self.fabric.hosts if host is not self and host.idle is not None) > 0

    def _wait(self, deadline: int) -> None:
        self.fabric.tape.pause(max(0, deadline - self.now()))
