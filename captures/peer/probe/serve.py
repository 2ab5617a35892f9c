"""A requester and a server on a device: the reference endpoint and its driver, with an NFS export in memory and an
echo; a connection that sends arbitrary messages; and what a requester finds out about a server: what it agrees to, how
fast it answers, and which programs it has.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

from rdmascope.dissect.layers.oncrpc_codes import PROG_MISMATCH, PROG_UNAVAIL, SUCCESS
from rdmascope.dissect.layers.private_data import RPCRDMAPrivateData
from rdmascope.dissect.layers.rpcrdma_codes import ERR_VERS, RDMA_ERROR, SIZE_UNIT, PrivateData, find_private_data
from rdmascope.dissect.onc.rpc_header import NFS, ReplyHeader, reply_header
from rdmascope.dissect.onc.shapes.types import DATA, ProcedureShape, XdrOpaque
from rdmascope.dissect.onc.summary import call_summary
from rdmascope.dissect.percentiles import Distribution, Samples
from rdmascope.dissect.rpcrdma.conversation import DEFAULT_INLINE
from rdmascope.dissect.rpcrdma.messages import Segment, TransportHeader, WriteChunk
from rdmascope.dissect.rpcrdma.transport_header import decode_header

from .. import rpc
from ..endpoint import (
    Answered,
    Call,
    Called,
    Chunks,
    Completed,
    Connected,
    ConnectionEnded,
    DdpItem,
    Disconnect,
    EndpointSettings,
    Failed,
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
    service,
)
from ..endpoint.endpoint import Fault
from ..endpoint.nouns import Report, Value
from ..nfs_server.export import Export
from ..rpc import RpcProcedure, RpcProgram
from ..verbs import interface as verbs
from ..verbs.interface import (
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
    Verbs,
    VerbsConnection,
    VerbsError,
)

NO_SUCH_VERSION = 0xFFFFFFFF
"""A version that no program has: the refusal tells the range of versions (RFC 5531, 9)."""
_REPLY_ROOM = 512
"""Bytes of a reply besides the data."""
MAX_VERSIONS = 8
"""Versions of a program that are tried."""


@dataclass(frozen=True, slots=True)
class PingPlan:
    """What to ask.  Times are in nanoseconds."""

    count: int = 5
    interval: int = 1_000_000_000
    timeout: int = 5_000_000_000
    programs: tuple[int, ...] = (NFS,)
    program: int = NFS
    """The program of the timed NULL calls."""
    version: int = 3
    echo: int = 0
    """Bytes to send there and back through the echo program, and to read, in each round besides."""
    highest: int = 1
    """The highest version to use."""


@dataclass(frozen=True, slots=True)
class Reached:
    """The connection was made, and the first call answered."""

    device: str
    local: str
    connect_time: int
    private_data: bytes
    announced: PrivateData | None
    to_server: int
    """Inline threshold in force."""
    to_client: int
    depths: Depths
    requested: int
    granted: int | None
    """None: no message granted credits."""
    problem: str = ""
    """Why the first call got no reply."""


@dataclass(frozen=True, slots=True)
class Round:
    """One NULL call, and how long its reply took."""

    number: int
    time: int | None
    """From the call's Send to the reply's Receive, ns; None if there was none."""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Echoed:
    """Bulk data that was echoed by another ``rdmascope probe --serve``."""

    number: int
    size: int
    there_and_back: int | None
    """Nanoseconds of a call with this many bytes in both directions; None if it failed."""
    read: int | None
    """Nanoseconds of a READ of this many bytes."""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class VersionTwoProbe:
    """The result of trying version 2 on a connection of its own."""

    version: int | None
    """The version settled on; None if none was."""
    supported: tuple[int, int] | None
    """The range that an RDMA_ERR_VERS gave."""
    extended: bool
    """The peer knows the transport characteristics."""
    characteristics: dict[int, Value]
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Program:
    """What was learned about an RPC program."""

    number: int
    versions: tuple[int, ...]
    """Versions that answered NULL."""
    low: int | None
    high: int | None
    """This and ``low``: the versions that the server supports, as its PROG_MISMATCH says."""
    status: str
    """'answers', 'not there', or why nothing is known."""


PingResult = Reached | Round | Echoed | VersionTwoProbe | Program


def ping(devices: Verbs, target: PeerAddress, plan: PingPlan) -> Iterator[PingResult]:
    """Examine the server, and yield each result when it is known; raises VerbsError if the first connection fails."""
    xids = iter(range(Random(devices.now()).randrange(1, 1 << 31), 1 << 32))
    client = Client(devices, target, EndpointSettings(version=plan.highest), devices.now() + plan.timeout)
    try:
        first = client.call(_null(next(xids), plan.program, plan.version), devices.now() + plan.timeout)
        yield _reached(client, first)
        for number in range(1, plan.count + 1):
            started = devices.now()
            try:
                client = _connected(client, target, plan)
            except VerbsError as error:
                yield Round(number, None, str(error))
            else:
                called = devices.now()
                answer = client.call(_null(next(xids), plan.program, plan.version), called + plan.timeout)
                yield _round(number, answer, devices.now() - called)
                if plan.echo:
                    yield _echo(client, number, plan, xids)
            if number < plan.count:
                client.idle(started + plan.interval)
        version_two = _speak(devices, target, plan, next(xids))
        if version_two.version is None and version_two.supported is None:
            version_two = _speak(devices, target, plan, next(xids))  # one lost message proves nothing
        yield version_two
        for program in plan.programs:
            try:
                client = _connected(client, target, plan)
            except VerbsError as error:
                yield Program(program, (), None, None, str(error))
            else:
                yield _program(client, program, xids, plan.timeout)
    finally:
        client.close()


def _connected(client: Client, target: PeerAddress, plan: PingPlan) -> Client:
    """The client, or another if its connection is gone; raises VerbsError if that cannot connect."""
    if not client.gone:
        return client
    client.close()
    return Client(client.devices, target, EndpointSettings(version=plan.highest), client.devices.now() + plan.timeout)


def _null(xid: int, program: int, version: int) -> Call:
    return Call(service.null(xid, program, version))


def _reached(client: Client, first: Answered | Failed) -> Reached:
    link, endpoint = client.link, client.endpoint
    announcements = find_private_data(link.private_data)
    return Reached(
        link.device,
        link.local,
        client.connect_time,
        link.private_data,
        announcements[0] if announcements else None,
        endpoint.send_limit,
        endpoint.receive_limit,
        link.depths,
        endpoint.settings.credits,
        client.driver.granted,
        _problem(first),
    )


def _round(number: int, answer: Answered | Failed, time: int) -> Round:
    return Round(number, None if isinstance(answer, Failed) else time, _problem(answer))


def _echo(client: Client, number: int, plan: PingPlan, xids: Iterator[int]) -> Echoed:
    """Echo data through a position-zero Read chunk and a Reply chunk, then READ it through a Write chunk."""
    devices = client.devices
    data = service.pattern(number, plan.echo)
    room = plan.echo + _REPLY_ROOM
    there = Call(echo(next(xids), data), largest_reply=room, chunks=Chunks(read=False))
    back = Call(service.read(next(xids), number, plan.echo), results=(plan.echo,))
    times: list[int] = []
    for call in (there, back):
        started = devices.now()
        answer = client.call(call, started + plan.timeout)
        if problem := _problem(answer):
            return Echoed(number, plan.echo, times[0] if times else None, None, problem)
        times.append(devices.now() - started)
        if isinstance(answer, Answered) and data not in answer.message:
            return Echoed(number, plan.echo, times[0], None, "different bytes were returned")
    return Echoed(number, plan.echo, times[0], times[1])


def _speak(devices: Verbs, target: PeerAddress, plan: PingPlan, xid: int) -> VersionTwoProbe:
    """Try version 2, and version 1 if that is refused."""
    try:
        client = Client(devices, target, EndpointSettings(version=2), devices.now() + plan.timeout)
    except VerbsError as error:
        return VersionTwoProbe(None, None, False, {}, str(error))
    try:
        answer = client.call(_null(xid, plan.program, plan.version), devices.now() + plan.timeout)
        refused = [header for header in client.driver.refusals if header.error == ERR_VERS]
        characteristics = client.endpoint.characteristics
        return VersionTwoProbe(
            client.endpoint.version if isinstance(answer, Answered) else None,
            refused[0].supported if refused else None,
            characteristics.known,
            dict(characteristics.peer) if characteristics.known else {},
            answer.reason if isinstance(answer, Failed) else "",
        )
    finally:
        client.close()


def _program(client: Client, number: int, xids: Iterator[int], timeout: int) -> Program:
    def ask(version: int) -> ReplyHeader | str:
        answer = client.call(_null(next(xids), number, version), client.devices.now() + timeout)
        if isinstance(answer, Failed):
            return answer.reason
        return reply_header(answer.message, 0, len(answer.message)) or "the answer is no RPC reply"

    probed = ask(NO_SUCH_VERSION)
    if isinstance(probed, str):
        return Program(number, (), None, None, probed)
    if probed.accept_status == PROG_UNAVAIL:
        return Program(number, (), None, None, "not there")
    if probed.accept_status != PROG_MISMATCH or probed.low is None or probed.high is None:
        return Program(number, (), None, None, f"an absurd version drew {probed.error}, not PROG_MISMATCH")
    answered = []
    for version in range(probed.low, min(probed.high, probed.low + MAX_VERSIONS - 1) + 1):
        reply = ask(version)
        if isinstance(reply, ReplyHeader) and reply.accept_status == SUCCESS:
            answered.append(version)
    return Program(number, tuple(answered), probed.low, probed.high, "answers" if answered else "no version answers")


def _problem(answer: Answered | Failed) -> str:
    """Why a call failed; '' if it succeeded."""
    if isinstance(answer, Failed):
        return answer.reason
    reply = reply_header(answer.message, 0, len(answer.message))
    if reply is None:
        return "the answer is no RPC reply"
    return "" if reply.accept_status == SUCCESS else reply.error


def times(rounds: Sequence[Round]) -> Distribution | None:
    """The latencies of rounds that were answered; None if none was."""
    samples = Samples()
    for echoed in rounds:
        if echoed.time is not None:
            samples.append(echoed.time)
    return samples.distribution()


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
    """Serves all clients; ``run`` never returns, ``take`` handles one event."""

    def __init__(
        self,
        devices: Verbs,
        settings: EndpointSettings,
        fault: Fault | None = None,
        program: Callable[[bytes], Parts] | None = None,
        times: int | None = None,
        max_clients: int = MAX_CLIENTS,
    ) -> None:
        """``program``: makes replies to whole calls; by default an export of its own, and the echo program.

        The fault is committed once per connection, and ``times`` in all.
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
        """How often the fault was committed on connections that ended."""
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
"""Bytes of the longest segment that may be fetched from a peer."""
READS = 16
"""RDMA Reads that each end may have in flight."""


def terms_of(endpoint: RpcRdmaEndpoint) -> verbs.ConnectionParameters:
    """What the endpoint offers for a connection: a Receive for everything that the peer may have in flight."""
    settings = endpoint.settings
    size = max(settings.receive_size, settings.receive_buffer, 4096)
    count = settings.credits + settings.backward_credits + 4
    return verbs.ConnectionParameters(endpoint.private_data, count, size, READS)


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
        """Headers of the RDMA_ERRORs that the peer sent."""
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
    ) -> None:
        self.devices = devices
        self.endpoint = RpcRdmaEndpoint(Role.CLIENT, settings)
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
"""Credits requested; Linux grants 64."""
SEND_SIZE = 4096


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a message."""

    header: TransportHeader | None = None
    """The header of the message received with the same XID; None for silence or a lost connection."""
    payload: bytes = b""
    """The inline bytes after the header."""
    invalidated: int | None = None
    reason: str = ""
    """Why the connection was lost; '' if it was not."""


class RawConnection:
    """A connection for arbitrary messages; each check gets a new one."""

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
