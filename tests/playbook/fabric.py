"""Verbs without devices: several hosts in one process, with every frame that their devices would have sent.

``MemoryVerbs`` is a host on a ``Fabric``.  Its time is the tape's: it passes with every frame, and a ``poll`` that
finds nothing lets the other hosts work, then jumps to its deadline.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from rdmascope.captures.peer.verbs.interface import (
    ConnectionLost,
    ConnectionParameters,
    ConnectRequested,
    Depths,
    Event,
    LinkLost,
    MessageReceived,
    PeerAddress,
    RdmaFinished,
    RegisteredMemory,
    VerbsError,
)
from rdmascope.captures.peer.wire import IwarpLink, Path, Rocev2Link, Tape
from rdmascope.dissect.rpcrdma.messages import Segment

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
