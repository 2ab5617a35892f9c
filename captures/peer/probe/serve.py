"""A server: the reference endpoint on every connection made to it, with an NFS export in memory, and an echo."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from struct import pack, unpack_from

from rdmascope.dissect.onc.summary import call_summary

from .. import rpc
from ..endpoint import Called, DdpItem, EndpointSettings, Parts, Role, RpcRdmaEndpoint, Settled
from ..endpoint.endpoint import Fault
from ..nfs_server.export import Export
from ..rpc import Caller, RpcProgram
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
from .client import Driver, terms_of

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


def _echoed(message: bytes, at: int, caller: Caller) -> Parts:
    """Raises StructError where the arguments are none."""
    (length,) = unpack_from(">I", message, at)
    unpack_from(f">{length}x", message, at + 4)
    return pack(">I", length), DdpItem(message[at + 4 : at + 4 + length])


ECHO_PROGRAM = {ECHO: {1: RpcProgram({}, {ECHO_DATA: _echoed})}}


def echo(xid: int, data: bytes) -> Parts:
    """A call of the echo program."""
    return rpc.call_head(xid, ECHO, 1, ECHO_DATA) + pack(">I", len(data)), DdpItem(data)


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
        self._numbers: dict[int, int] = {}

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
        if len(self._drivers) >= self.max_clients:
            event.request.reject()
            return ServerEvent(self.connections, "refused", f"{len(self._drivers)} clients are connected, the most")
        fault = self.fault if self.times is None or self.committed < self.times else None
        endpoint = RpcRdmaEndpoint(Role.SERVER, self.settings, fault)
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
        number = self._numbers.pop(id(link))
        link.close()
        return [ServerEvent(number, "lost", reason)]
