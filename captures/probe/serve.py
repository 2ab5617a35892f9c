"""A server: the reference endpoint on every connection made to it, with NULL, as much of NFS, and an echo."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from struct import error as StructError
from struct import pack, unpack_from

from rdmascope.dissect.layers.oncrpc import ONCRPC, ONCRPCReply
from rdmascope.dissect.layers.oncrpc_codes import GARBAGE_ARGS, PROC_UNAVAIL, PROG_MISMATCH
from rdmascope.dissect.onc.programs import NFS
from rdmascope.dissect.onc.rpc_header import call_header

from ..synth.endpoint import Called, DdpItem, EndpointSettings, Parts, Role, RpcRdmaEndpoint, Settled, service
from ..synth.endpoint.fault import Fault
from ..verbs.interface import (
    ConnectionLost,
    ConnectRequested,
    Event,
    MessageReceived,
    PeerAddress,
    RdmaFinished,
    Verbs,
    VerbsConnection,
    VerbsError,
)
from .driver import Driver, terms_of

ECHO = 0x20AF2004
"""Program number, of those free for use (RFC 5531, 8.3)."""
NULL, ECHO_DATA = 0, 1
"""Procedures of version 1: ``void NULL(void)`` and ``opaque ECHO(opaque)``."""
OP_GETATTR, OP_PUTROOTFH, OP_WRITE = 9, 24, 38
SUPPORTED_ATTRS = 0
"""An attribute: the bits of those that there are (RFC 7530, 5.8.1.1)."""
VERSIONS = {NFS: (3, 4), ECHO: (1, 1)}


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """An event of a client, for the operator of the server."""

    client: int
    """Its number, from 1."""
    what: str
    """'connected', 'version', 'call', 'lost' or 'refused'."""
    text: str


def answer(message: bytes) -> Parts:
    """The reply to a whole RPC call."""
    head = call_header(message, 0, len(message))
    if head is None or head.body < 0:
        return service.serve(message)
    if head.program in VERSIONS:
        low, high = VERSIONS[head.program]
        if not low <= head.version <= high:
            return (bytes(ONCRPC(xid=head.xid) / ONCRPCReply(accept_stat=PROG_MISMATCH, low=low, high=high)),)
    if head.program == ECHO:
        return _echo(head.xid, head.procedure, message, head.body)
    if (head.program, head.version, head.procedure) == (NFS, 4, service.COMPOUND):
        return _compound(head.xid, message, head.body)
    return service.serve(message)


def _echo(xid: int, procedure: int, message: bytes, at: int) -> Parts:
    if procedure == NULL:
        return (service.reply_head(xid),)
    if procedure != ECHO_DATA:
        return (service.reply_head(xid, PROC_UNAVAIL),)
    try:
        (length,) = unpack_from(">I", message, at)
        unpack_from(f">{length}x", message, at + 4)
    except StructError:
        return (service.reply_head(xid, GARBAGE_ARGS),)
    data = message[at + 4 : at + 4 + length]
    return service.reply_head(xid) + pack(">I", length), DdpItem(data)


def _compound(xid: int, message: bytes, at: int) -> Parts:
    """Of PUTROOTFH, WRITE into no file, and GETATTR of supported_attrs (RFC 7530, 16.2, 16.7, 16.20 and 16.36)."""
    try:
        (length,) = unpack_from(">I", message, at)
        behind = at + 4 + length + -length % 4
        (count,) = unpack_from(">I", message, behind + 4)
        place, results = behind + 8, bytearray()
        for _ in range(count):
            (operation,) = unpack_from(">I", message, place)
            if operation == OP_PUTROOTFH:
                results += pack(">II", operation, 0)
                place += 4
            elif operation == OP_GETATTR and unpack_from(">II", message, place + 4) == (1, 1 << SUPPORTED_ATTRS):
                bits = 1 << SUPPORTED_ATTRS
                results += pack(">IIIIIII", operation, 0, 1, bits, 8, 1, bits)
                place += 12
            elif operation == OP_WRITE:
                (size,) = unpack_from(">I", message, place + 32)
                unpack_from(f">{size}x", message, place + 36)
                results += pack(">IIII", operation, 0, size, 2) + b"verifier"
                place += 36 + size + -size % 4
            else:
                return service.serve(message)
    except StructError:
        return (service.reply_head(xid, GARBAGE_ARGS),)
    return (service.reply_head(xid) + pack(">I", 0) + message[at:behind] + pack(">I", count) + bytes(results),)


def echo(xid: int, data: bytes) -> Parts:
    """A call of the echo program."""
    return service.call_head(xid, ECHO, 1, ECHO_DATA) + pack(">I", len(data)), DdpItem(data)


class Server:
    """Serves all clients; ``run`` goes on for ever, ``take`` does what one event asks for."""

    def __init__(
        self,
        devices: Verbs,
        settings: EndpointSettings,
        fault: Fault | None = None,
        program: Callable[[bytes], Parts] = answer,
    ) -> None:
        self.devices = devices
        self.settings = settings
        self.fault = fault
        self.program = program
        self.calls = 0
        self.connections = 0
        self.committed = 0
        """How often the fault was, on connections that ended."""
        self._drivers: dict[int, Driver] = {}
        """By the link's identity."""
        self._numbers: dict[int, int] = {}

    def listen(self, target: PeerAddress) -> list[str]:
        return self.devices.listen(target)

    def run(self) -> Iterator[ServerEvent]:
        """Serve for ever."""
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
                return self._work(driver, self._numbers[id(event.link)])
            case ConnectionLost():
                return self._forget(event.link, event.reason)

    def close(self) -> None:
        """End all connections; the devices stay open."""
        for driver in list(self._drivers.values()):
            driver.close()
            self._forget(driver.link, "closed")

    def _accept(self, event: ConnectRequested) -> ServerEvent:
        self.connections += 1
        endpoint = RpcRdmaEndpoint(Role.SERVER, self.settings, self.fault)
        try:
            link = event.request.accept(terms_of(endpoint))
        except VerbsError as error:
            return ServerEvent(self.connections, "refused", str(error))
        driver = Driver(endpoint, link)
        self._drivers[id(link)] = driver
        self._numbers[id(link)] = self.connections
        driver.start()
        return ServerEvent(self.connections, "connected", link.peer)

    def _work(self, driver: Driver, number: int) -> list[ServerEvent]:
        """Answer what the endpoint was called for."""
        happened = []
        while driver.reports:
            report = driver.reports.popleft()
            if isinstance(report, Called):
                self.calls += 1
                happened.append(ServerEvent(number, "call", f"{len(report.message):,} bytes"))
                driver.run(driver.endpoint.reply(report.call, self.program(report.message)))
            elif isinstance(report, Settled):
                happened.append(ServerEvent(number, "version", str(report.version)))
        return happened + (self._forget(driver.link, driver.lost) if driver.lost else [])

    def _forget(self, link: VerbsConnection, reason: str) -> list[ServerEvent]:
        driver = self._drivers.pop(id(link), None)
        if driver is None:
            return []
        self.committed += driver.endpoint.committed
        number = self._numbers.pop(id(link))
        link.close()
        return [ServerEvent(number, "lost", reason)]
