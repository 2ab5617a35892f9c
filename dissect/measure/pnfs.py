"""pNFS: the data servers that a metadata server named, and the connections to them (RFC 8881, 12 and 13; RFC 8435).

A connection is one of a data server where GETDEVICEINFO named its address, or where READ and WRITE on it use a file
handle that a layout has.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..onc.compound import OP_GETDEVICEINFO, OP_LAYOUTGET, OP_PUTFH, compound_call
from ..onc.programs import NFS
from ..onc.rpc_header import call_head
from ..onc.shapes.decode import Node
from ..onc.shapes.nfs4_types import NETADDR4, NFS_FH4
from ..onc.xdr import opaque_at, word
from ..rpcrdma.rpcs import Rpc

MAX_SERVERS = 1024
MAX_DEVICES = 1024
"""Of a data server that are listed."""
MAX_HANDLES = 100_000
"""In layouts, that are remembered."""
PNFS_OPERATIONS = frozenset((OP_GETDEVICEINFO, OP_LAYOUTGET))
_MOVING = frozenset(("READ", "WRITE", "READ_PLUS"))


@dataclass(slots=True, eq=False)
class DataServer:
    """An address that GETDEVICEINFO named."""

    address: str
    port: int | None
    """None where the universal address has none that can be told."""
    metadata_server: str
    """Address of the server that named it first."""
    frame: int
    """Of the reply that named it first."""
    networks: dict[str, None] = field(default_factory=dict)
    """netids: 'rdma', 'tcp6', …"""
    devices: dict[bytes, None] = field(default_factory=dict)
    """Device IDs."""


@dataclass(slots=True, eq=False)
class DataTraffic:
    """READ and WRITE on a connection."""

    server: str
    calls: int = 0
    bytes: int = 0
    """Of calls and replies, chunks included."""
    in_layout: int = 0
    """Of the calls, those with a file handle that a layout has."""


class DataServers:
    """All of a capture; what is beyond the limits is left out."""

    def __init__(self) -> None:
        self.servers: dict[tuple[str, int | None], DataServer] = {}
        self.handles: set[bytes] = set()
        """In layouts."""
        self.traffic: dict[int, DataTraffic] = {}
        """By number of the connection."""

    def named(self, results: Node | None, device: bytes | None, server: str, frame: int) -> None:
        """A reply to GETDEVICEINFO."""
        for node in results.walk() if results is not None else ():
            if node.type is not NETADDR4:
                continue
            values = [bytes(one.value) for one in node.children if isinstance(one.value, memoryview)]
            if len(values) != 2:
                continue
            network, text = (value.decode("ascii", "replace") for value in values)
            place = universal_address(text)
            if place not in self.servers and len(self.servers) >= MAX_SERVERS:
                continue
            found = self.servers.setdefault(place, DataServer(*place, server, frame))
            if len(found.networks) < 16:
                found.networks[network] = None
            if device is not None and len(found.devices) < MAX_DEVICES:
                found.devices[device] = None

    def granted(self, results: Node | None) -> None:
        """A reply to LAYOUTGET."""
        for node in results.walk() if results is not None else ():
            if node.type is NFS_FH4 and isinstance(node.value, memoryview) and len(self.handles) < MAX_HANDLES:
                self.handles.add(bytes(node.value))

    def add(self, rpc: Rpc) -> None:
        """An RPC that ended; counted where it reads or writes."""
        if rpc.program != NFS or rpc.call is None or not (rpc.name in _MOVING or _MOVING.intersection(rpc.operations)):
            return
        server = rpc.connection.endpoints[1 - rpc.call.operation.initiator].address
        traffic = self.traffic.setdefault(rpc.connection.number, DataTraffic(server))
        traffic.calls += 1
        traffic.bytes += rpc.call_bytes + rpc.reply_bytes
        if self.handles:
            traffic.in_layout += not self.handles.isdisjoint(_handles(rpc))

    def of(self, address: str, port: int | None = None) -> DataServer | None:
        """The data server at an address; any port is right where one of the two is not known."""
        for (known, known_port), server in self.servers.items():
            if known == address and (port is None or known_port is None or port == known_port):
                return server
        return None

    def connections(self) -> dict[int, tuple[DataTraffic, DataServer | None]]:
        """Connections of data servers that READ and WRITE were on, and what named them; None: only file handles did."""
        found: dict[int, tuple[DataTraffic, DataServer | None]] = {}
        for number, traffic in sorted(self.traffic.items()):
            server = self.of(traffic.server)
            if server is not None or traffic.in_layout:
                found[number] = traffic, server
        return found


def universal_address(text: str) -> tuple[str, int | None]:
    """Address and port of 'h1.h2.h3.h4.p1.p2' or 'x:x::x.p1.p2' (RFC 5665, 5.2.3.3 and 5.2.3.4)."""
    address, *ports = text.rsplit(".", 2)
    if len(ports) == 2 and all(one.isdecimal() and len(one) <= 3 and int(one) < 256 for one in ports):
        return address, int(ports[0]) << 8 | int(ports[1])
    return text, None


def _handles(rpc: Rpc) -> list[bytes]:
    """The file handles of a call, as far as they are in its inline part."""
    assert rpc.call is not None
    view = memoryview(rpc.call.data)[rpc.call.start : rpc.call.end]
    head = call_head(view, 0, len(view))
    if head is None or not head[4]:
        return []
    if rpc.version == 4:
        call = compound_call(view, head[4], len(view), rpc.call.header.reduced)
        places = [at for number, at in zip(call.operations, call.places, strict=True) if number == OP_PUTFH]
    else:
        places = [head[4]]
    return [opaque_at(view, at)[0] for at in places if at + 4 <= len(view) and at + 4 + word(view, at)[0] <= len(view)]
