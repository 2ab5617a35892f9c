"""A requester and a server on a device: the reference endpoint and its driver, with an NFS export in memory and an
echo; and a connection that sends arbitrary messages.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

from rdmascope.dissect.layers.private_data import RPCRDMAPrivateData
from rdmascope.dissect.layers.private_data_codes import SIZE_UNIT, find_private_data
from rdmascope.dissect.layers.rpcrdma_codes import RDMA_ERROR
from rdmascope.dissect.onc.shapes.types import DATA, ProcedureShape, XdrOpaque
from rdmascope.dissect.onc.summary import call_summary
from rdmascope.dissect.rpcrdma.conversation import DEFAULT_INLINE
from rdmascope.dissect.rpcrdma.messages import Segment, TransportHeader, WriteChunk
from rdmascope.dissect.rpcrdma.transport_header import decode_header

from .. import rpc
from ..endpoint import (
    Call,
    Called,
    Completed,
    Connected,
    ConnectionEnded,
    DdpItem,
    Disconnect,
    EndpointSettings,
    Output,
    Parts,
    RdmaRead,
    RdmaWrite,
    Register,
    Registered,
    Release,
    Released,
    Role,
    RpcRdmaEndpoint,
    Send,
    SendReceived,
    Settled,
    encode_header,
)
from ..endpoint.endpoint import Fault
from ..endpoint.nouns import Answered, Failed, Report
from ..nfs_server.export import Export
from ..rpc import RpcProcedure, RpcProgram
from ..verbs import interface as verbs
from ..verbs.interface import (
    ConnectionLost,
    ConnectionParameters,
    ConnectRequested,
    Event,
    LinkLost,
    MessageReceived,
    PeerAddress,
    RdmaFinished,
    RegisteredMemory,
    Verbs,
    VerbsConnection,
    VerbsError,
)

ECHO = 0x20AF2004
"""Program number, of those free for use (RFC 5531, 8.3)."""
ECHO_DATA = 1
"""Procedure of version 1: ``opaque ECHO(opaque)``."""
OP_GETATTR, OP_PUTROOTFH, OP_WRITE = 9, 24, 38
SUPPORTED_ATTRS = 0
"""An attribute: the bits of those that there are (RFC 7530, 5.8.1.1)."""


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """An event of a client, for the operator of the server."""

    client: int
    """Its number, from 1."""
    what: str
    """'connected', 'version', 'call', 'lost' or 'refused'."""
    text: str


_DATA = XdrOpaque("data", DATA)
_ECHO = ProcedureShape("ECHO", _DATA, _DATA)
ECHO_PROGRAM = {ECHO: {1: RpcProgram({ECHO_DATA: RpcProcedure(_ECHO, lambda data, caller: DdpItem(data))}, {})}}


def echo(xid: int, data: bytes) -> Parts:
    """A call of the echo program."""
    return rpc.behind(rpc.call_head(xid, ECHO, 1, ECHO_DATA), rpc.encoded_parts(_DATA, DdpItem(data)))


MAX_CLIENTS = 256
"""Connections at a time; each keeps memory for its Receives and chunks."""


class Server:
    """Serves all clients; ``run`` goes on for ever, ``take`` does what one event asks for."""

    def __init__(
        self,
        devices: Verbs,
        settings: EndpointSettings,
        fault: Fault | None = None,
        program: Callable[[bytes], Parts] | None = None,
        times: int | None = None,
        max_clients: int = MAX_CLIENTS,
    ) -> None:
        """``program`` makes replies of whole calls; without one, an export of its own and the echo do.

        The fault is committed once on every connection, and ``times`` in all.
        """
        self.devices = devices
        self.settings = settings
        self.fault = fault
        self.program = program or Export(extra=ECHO_PROGRAM).answer
        self.calls = 0
        self.connections = 0
        self.times = times
        self.max_clients = max_clients
        self._committed = 0
        """How often the fault was, on connections that ended."""
        self._drivers: dict[int, Driver] = {}
        """By the link's identity."""

    @property
    def committed(self) -> int:
        """How often the fault was."""
        return self._committed + sum(driver.endpoint.committed for driver in self._drivers.values())

    def listen(self, target: PeerAddress) -> list[str]:
        return self.devices.listen(target)

    def run(self) -> Iterator[ServerEvent]:
        while True:
            event = self.devices.poll(self.devices.now() + 1_000_000_000)
            if event is not None:
                yield from self.take(event)

    def step(self) -> bool:
        """Take an event that is there; False where there is none."""
        event = self.devices.poll(self.devices.now())
        if event is not None:
            self.take(event)
        return event is not None

    def take(self, event: Event) -> list[ServerEvent]:
        match event:
            case ConnectRequested():
                return [self._accept(event)]
            case MessageReceived() | RdmaFinished():
                driver = self._drivers.get(id(event.link))
                if driver is None:
                    return []
                driver.take(event)
                return self._work(driver)
            case ConnectionLost():
                return self._forget(event.link, event.reason)

    def close(self) -> None:
        """End all connections; the devices stay open."""
        for driver in list(self._drivers.values()):
            driver.close()
            self._forget(driver.link, "closed")

    def _accept(self, event: ConnectRequested) -> ServerEvent:
        self.connections += 1
        if len(self._drivers) >= self.max_clients:
            event.request.reject()
            return ServerEvent(self.connections, "refused", f"{len(self._drivers)} clients are connected, the most")
        fault = self.fault if self.times is None or self.committed < self.times else None
        endpoint = RpcRdmaEndpoint(Role.SERVER, self.settings, fault)
        try:
            link = event.request.accept(terms_of(endpoint))
        except VerbsError as error:
            return ServerEvent(self.connections, "refused", str(error))
        driver = self._drivers[id(link)] = Driver(endpoint, link, self.connections)
        driver.start()
        return ServerEvent(self.connections, "connected", link.peer)

    def _work(self, driver: Driver) -> list[ServerEvent]:
        """Answer what the endpoint was called for."""
        happened, number = [], driver.number
        while driver.reports:
            report = driver.reports.popleft()
            if isinstance(report, Called):
                self.calls += 1
                size = f"{len(report.message):,} bytes"
                summary = call_summary(report.message, 0, len(report.message))
                happened.append(ServerEvent(number, "call", f"{summary or 'no RPC call'}, {size}"))
                driver.run(driver.endpoint.reply(report.call, self.program(report.message)))
            elif isinstance(report, Settled):
                happened.append(ServerEvent(number, "version", str(report.version)))
        return happened + (self._forget(driver.link, driver.lost) if driver.lost else [])

    def _forget(self, link: VerbsConnection, reason: str) -> list[ServerEvent]:
        driver = self._drivers.pop(id(link), None)
        if driver is None:
            return []
        self._committed += driver.endpoint.committed
        link.close()
        return [ServerEvent(driver.number, "lost", reason)]


LARGEST_READ = 1 << 26
"""Bytes of the longest segment that is fetched from a peer."""


def terms_of(endpoint: RpcRdmaEndpoint, reads: int = 16) -> verbs.ConnectionParameters:
    """What the endpoint brings into a connection: a Receive for all that the peer may have on the way."""
    settings = endpoint.settings
    size = max(settings.receive_size, settings.receive_buffer, 4096)
    count = settings.credits + settings.backward_credits + 4
    return verbs.ConnectionParameters(endpoint.private_data, count, size, reads)


class Driver:
    """An endpoint on a link."""

    def __init__(self, endpoint: RpcRdmaEndpoint, link: verbs.VerbsConnection, number: int = 0) -> None:
        """``number``: of a client of a server."""
        self.endpoint, self.link, self.number = endpoint, link, number
        self.reports: deque[Report] = deque()
        """What the endpoint reported, oldest first."""
        self.lost = ""
        """Why the connection is gone."""
        self.granted: int | None = None
        """The credit value of the last message that was no error."""
        self.refusals: list[TransportHeader] = []
        """The RDMA_ERRORs received."""
        self._memory: dict[int, tuple[verbs.RegisteredMemory, verbs.RegisteredMemory | None, int]] = {}
        """By the endpoint's number: the region, a window to it, and how much of it is meant."""
        self._reads: dict[int, int] = {}
        self._todo: deque[Output] = deque()

    def start(self) -> None:
        self.run(self.endpoint.take(Connected(self.link.private_data)))

    def take(self, event: verbs.Event) -> None:
        """An event of this link."""
        match event:
            case verbs.MessageReceived():
                header = decode_header(event.data, 0, len(event.data), len(event.data))
                if header.procedure == RDMA_ERROR:
                    self.refusals.append(header)
                elif header.credits is not None:
                    self.granted = header.credits
                self.run(self.endpoint.take(SendReceived(event.data, event.invalidated)))
            case verbs.RdmaFinished():
                operation = self._reads.pop(event.number, None)
                if operation is not None:
                    self.run(self.endpoint.take(Completed(operation, event.data)))
            case verbs.ConnectionLost():
                self._lose(event.reason)

    def run(self, outputs: list[Output]) -> None:
        """Carry out what the endpoint wants, and what follows from it, in order."""
        self._todo.extend(outputs)
        while self._todo:
            output = self._todo.popleft()
            try:
                self._carry_out(output)
            except verbs.VerbsError as error:
                self.link.close()
                self._lose(str(error))

    def call(self, call: Call) -> None:
        self.run(self.endpoint.call(call))

    def close(self) -> None:
        if not self.lost:
            self.run(self.endpoint.disconnect())
        self.link.close()

    def _carry_out(self, output: Output) -> None:
        match output:
            case Register(memory, length, data):
                region = self.link.register(length)
                if data:
                    region.store(0, data)
                window = self.link.window(region) if self.endpoint.settings.remote_invalidation else None
                self._memory[memory] = region, window, length
                made = window or region
                self.run(self.endpoint.take(Registered(memory, made.handle, made.address)))
            case Release(memory):
                region, window, length = self._memory.pop(memory)
                if window is not None:
                    self.link.release(window)
                contents = region.fetch(0, length)
                self.link.release(region)
                self.run(self.endpoint.take(Released(memory, contents)))
            case RdmaRead(operation, segment):
                if segment.length > LARGEST_READ:
                    self._lose(f"a segment of {segment.length:,} bytes was to be fetched")
                    self.link.close()
                else:
                    self._reads[self.link.read(segment.handle, segment.offset, segment.length)] = operation
            case RdmaWrite(segment, data):
                self.link.write(segment.handle, segment.offset, data)
            case Send(data, invalidate):
                self.link.send(data, invalidate)
            case Disconnect(reason):
                self.link.close()
                self._lose(reason)
            case _:
                self.reports.append(output)

    def _lose(self, reason: str) -> None:
        if not self.lost:
            self.lost = reason
            self.run(self.endpoint.take(ConnectionEnded(reason)))


class Client:
    """A requester's end: calls, and waits for the answers."""

    def __init__(
        self,
        devices: verbs.Verbs,
        target: verbs.PeerAddress,
        settings: EndpointSettings,
        deadline: int,
        fault: Fault | None = None,
    ) -> None:
        self.devices = devices
        self.endpoint = RpcRdmaEndpoint(Role.CLIENT, settings, fault)
        started = devices.now()
        link = devices.connect(target, terms_of(self.endpoint), deadline)
        self.connect_time = devices.now() - started
        """Nanoseconds: address, route and connection."""
        link.settle()
        self.driver = Driver(self.endpoint, link)
        self.driver.start()
        self.useless = False
        """A call was not answered, and stands in the way of others."""

    @property
    def gone(self) -> bool:
        """Another connection is needed to go on."""
        return self.useless or bool(self.driver.lost)

    @property
    def link(self) -> verbs.VerbsConnection:
        return self.driver.link

    def call(self, call: Call, deadline: int) -> Answered | Failed:
        """The answer, or why there is none."""
        self.driver.call(call)
        while True:
            for report in list(self.driver.reports):
                if isinstance(report, Answered | Failed) and report.xid == call.xid:
                    self.driver.reports.remove(report)
                    return report
            if self.driver.lost:
                return Failed(call.xid, self.driver.lost)
            event = self.devices.poll(deadline)
            if event is None:
                self.useless = True
                return Failed(call.xid, "no answer")
            self.take(event)

    def idle(self, deadline: int) -> None:
        """Let the time pass, and answer what the server may ask."""
        while (event := self.devices.poll(deadline)) is not None:
            if not self.driver.lost:
                self.take(event)

    def take(self, event: verbs.Event) -> None:
        if not isinstance(event, verbs.ConnectRequested) and event.link is self.link:
            self.driver.take(event)

    def close(self) -> None:
        self.driver.close()


CREDITS = 128
"""Asked for; Linux grants 64."""
SEND_SIZE = 4096


@dataclass(frozen=True, slots=True)
class Answer:
    """What a message drew."""

    header: TransportHeader | None = None
    """Of the message received with the same XID; None where there is none: silence, or the connection was lost."""
    payload: bytes = b""
    """What stands inline behind the header."""
    invalidated: int | None = None
    reason: str = ""
    """Why the connection was lost; '' where it was not."""


class RawConnection:
    """A connection of the suite's own making; a check gets a fresh one."""

    def __init__(
        self,
        devices: Verbs,
        target: PeerAddress,
        timeout: int,
        *,
        remote_invalidation: bool = False,
        receive_size: int = SEND_SIZE,
        file: str = "",
    ) -> None:
        """``timeout`` in nanoseconds bounds each wait; raises VerbsError where there is no connection."""
        self.devices = devices
        self.timeout = timeout
        self.remote_invalidation = remote_invalidation
        self.receive_size = receive_size
        self.file = file
        """Path of a file below the server's root that may be read; '' where none is known."""
        own = RPCRDMAPrivateData(
            r=int(remote_invalidation), send_size=SEND_SIZE // SIZE_UNIT - 1, receive_size=receive_size // SIZE_UNIT - 1
        )
        # The Receives are longer than announced, so that a message that is too long can be looked at.
        terms = ConnectionParameters(bytes(own), CREDITS + 8, max(2 * SEND_SIZE, receive_size))
        self.link = devices.connect(target, terms, devices.now() + timeout)
        self.link.settle()
        announcements = find_private_data(self.link.private_data)
        self.announced = announcements[0] if announcements else None
        self.to_server = min(SEND_SIZE, self.announced.receive_size) if self.announced else DEFAULT_INLINE
        """The inline threshold of calls, and of replies."""
        self.to_client = min(receive_size, self.announced.send_size) if self.announced else DEFAULT_INLINE
        self.lost = ""
        self._xid = Random(devices.now()).randrange(1, 1 << 31)
        self._early: dict[int, MessageReceived] = {}

    def xid(self) -> int:
        self._xid += 1
        return self._xid

    def chunk(self, lengths: Sequence[int], data: bytes = b"") -> tuple[list[RegisteredMemory], WriteChunk]:
        """Memory of so many bytes each, as segments; filled with ``data`` in their order."""
        pieces = []
        for length in lengths:
            pieces.append(self.link.register(length))
            if data:
                pieces[-1].store(0, data[:length])
            data = data[length:]
        segments = (Segment(piece.handle, length, piece.address) for piece, length in zip(pieces, lengths, strict=True))
        return pieces, WriteChunk(tuple(segments))

    def send(self, header: TransportHeader | bytes, payload: bytes = b"") -> None:
        """Send; what cannot be sent any more is found out by ``receive``."""
        head = header if isinstance(header, bytes) else encode_header(header)
        try:
            self.link.send(head + payload)
        except LinkLost as error:
            self.lost = self.lost or str(error)

    def receive(self, *xids: int) -> Answer:
        """The first answer under one of the XIDs."""
        deadline = self.devices.now() + self.timeout
        while not (there := [xid for xid in xids if xid in self._early]):
            if self.lost:
                return Answer(reason=self.lost)
            event = self.devices.poll(deadline)
            if event is None:
                return Answer()
            if isinstance(event, ConnectionLost) and event.link is self.link:
                self.lost = event.reason
            elif isinstance(event, MessageReceived) and event.link is self.link:
                self._early.setdefault(int.from_bytes(event.data[:4], "big"), event)
        got = self._early.pop(there[0])
        header = decode_header(got.data, 0, len(got.data), len(got.data))
        return Answer(header, got.data[header.length :], got.invalidated)

    def ask(self, header: TransportHeader, payload: bytes = b"") -> Answer:
        self.send(header, payload)
        return self.receive(header.xid)

    def close(self) -> None:
        self.link.close()
