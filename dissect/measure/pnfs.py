"""pNFS: the data servers that a metadata server named, and the connections to them (RFC 8881, 12 and 13; RFC 8435).

A connection is one of a data server where GETDEVICEINFO named its address for RDMA, or where READ and WRITE on it use a
file handle that a layout has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays import take
from ..onc.compound import OP_GETDEVICEINFO, OP_LAYOUTGET
from ..onc.programs import NFS
from ..onc.shapes.text import universal_address
from ..rpcrdma.conversation import Conversation, DataServerRole
from ..rpcrdma.reassembly import reassembled_call, reassembled_reply
from ..rpcrdma.rpc_table import ProcedureNames, RpcTable
from ..rpcrdma.rpcs import Rpc

if TYPE_CHECKING:
    from ..onc.shapes.decode import Node
    from ..rpcrdma.rpc_fields import FieldReader

MAX_SERVERS = 1024
MAX_DEVICES = 1024
"""Of a data server that are listed."""
MAX_HANDLES = 100_000
"""In layouts, that are remembered."""
_NAMING = frozenset(("GETDEVICEINFO", "LAYOUTGET"))
_TRANSFERRING = frozenset(("READ", "WRITE", "READ_PLUS"))
_BYTES = ("call_inline", "read_bytes", "reply_inline", "write_bytes", "reply_chunk_bytes")
BY_ADDRESS, BY_HANDLES = "GETDEVICEINFO", "file handles of layouts"


@dataclass(slots=True, eq=False)
class DataServer:
    """An address that GETDEVICEINFO named."""

    address: str
    port: int | None
    """None where the universal address has none that can be read."""
    metadata_server: str
    """Address of the server that named it first."""
    frame: int
    """Of the reply that named it first."""
    networks: dict[str, None] = field(default_factory=dict)
    """netids: 'rdma', 'tcp6', …"""
    devices: dict[bytes, None] = field(default_factory=dict)
    """Device IDs."""

    def serves(self, address: str, port: int | None) -> bool:
        """It is reached there over RDMA; any port is right where one of the two is not known."""
        if address != self.address or not any(one.startswith("rdma") for one in self.networks):
            return False
        return port is None or self.port is None or port == self.port


@dataclass(slots=True, eq=False)
class DataTraffic:
    """READ and WRITE on a connection."""

    server: str
    calls: int = 0
    bytes: int = 0
    """Of calls and replies, chunks included."""
    in_layout: int = 0
    """Of the calls, those with a file handle that a layout has."""


class LayoutHandle(NamedTuple):
    """Where a layout has a file handle."""

    time: int
    """Of the reply that granted it first, nanoseconds."""
    metadata_server: str
    """Address."""
    frame: int
    """Of that reply."""


class DataServers:
    """Those of a capture, learned from its RPCs; what is beyond the limits is left out."""

    def __init__(self, counts: bool = False) -> None:
        """``counts``: the READs and WRITEs of each connection, too."""
        self.servers: dict[tuple[str, int | None], DataServer] = {}
        self.handles: dict[bytes, LayoutHandle] = {}
        """In layouts."""
        self.traffic: dict[int, DataTraffic] = {}
        """By number of the connection."""
        self.roles: dict[int, tuple[DataServerRole, DataServer | None]] = {}
        """By number of the connection; None: only file handles told."""
        self._counts = counts
        self._judged: set[int] = set()
        """Connections whose address was compared with all servers."""
        self._reader: FieldReader | None = None

    def learn(self, table: RpcTable, conversations: Callable[[], Iterable[Conversation]]) -> None:
        """Take the RPCs of a batch; ``conversations``: all that were not evicted, for new servers."""
        known = len(self.servers), len(self.handles)
        for rpc in _with_operations(table, _NAMING):
            self._learn_names(rpc)
        if self.servers or self.handles:
            if known[0] != len(self.servers):
                self._judged.clear()
                self.mark(conversations())
            numbers = {*table.plain_rows["connection"].tolist(), *(one.connection.number for one in table.objects)}
            self.mark(table.conversation(number) for number in numbers - self._judged)
            self._look_at_handles(table)
        if self._counts:
            self._count(table)

    def mark(self, conversations: Iterable[Conversation]) -> None:
        """Note which of them are with a data server, by its address."""
        for one in conversations if self.servers else ():
            connection = one.connection
            self._judged.add(connection.number)
            if one.data_server is None:
                server = self.of(connection.endpoints[1].address, connection.service_port)
                if server is not None:
                    self._note(one, DataServerRole(BY_ADDRESS, server.metadata_server, server.frame), server)

    def evict(self, conversations: Iterable[Conversation]) -> None:
        """Nothing more comes of these."""
        for one in conversations:
            self._judged.discard(one.connection.number)
            if one.connection.number not in self.traffic:
                self.roles.pop(one.connection.number, None)

    def _note(self, conversation: Conversation, role: DataServerRole, server: DataServer | None) -> None:
        conversation.data_server = role
        self.roles[conversation.connection.number] = role, server

    def _learn_names(self, rpc: Rpc) -> None:
        """What an RPC with GETDEVICEINFO or LAYOUTGET says of servers and their file handles."""
        if rpc.call is None or rpc.reply is None:
            return
        from .nfs_state_operations import decoded_step, walked  # Which few captures need.

        messages = reassembled_call(rpc), reassembled_reply(rpc)
        call, reply = (memoryview(one.prefix if one is not None else b"") for one in messages)
        walk = walked(call, reply, rpc.gss)
        server = rpc.connection.endpoints[1 - rpc.call.operation.initiator].address
        for step in walk.steps if walk is not None else ():
            if not step.succeeded or step.operation not in (OP_GETDEVICEINFO, OP_LAYOUTGET):
                continue
            arguments, results = decoded_step(step.operation, call, step.arguments, reply, step.results)
            if step.operation == OP_GETDEVICEINFO:
                self._named(results.node, arguments.octets("gdia_device_id"), server, rpc.reply_frame)
            else:
                self._granted(results.node, LayoutHandle(rpc.reply.operation.last_time, server, rpc.reply_frame))

    def _named(self, results: Node | None, device: bytes | None, server: str, frame: int) -> None:
        """A reply to GETDEVICEINFO."""
        for node in results.walk() if results is not None else ():
            if node.type is None or node.type.name != "netaddr4":
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

    def _granted(self, results: Node | None, layout: LayoutHandle) -> None:
        """A reply to LAYOUTGET."""
        for node in results.walk() if results is not None else ():
            if len(self.handles) >= MAX_HANDLES:
                return
            if node.type is not None and node.type.name == "nfs_fh4" and isinstance(node.value, memoryview):
                self.handles.setdefault(bytes(node.value), layout)

    def _look_at_handles(self, table: RpcTable) -> None:
        """READs and WRITEs with file handles of layouts, sent since these were granted."""
        if not self.handles:
            return
        rows = table.rows
        mask = _transfers(table)
        if not self._counts:
            open_ = [number for number in np.unique(rows["connection"][mask]).tolist() if number not in self.roles]
            mask &= np.isin(rows["connection"], open_)
        if not mask.any():
            return
        if self._reader is None:
            from ..rpcrdma.rpc_fields import FieldReader

            self._reader = FieldReader()
        chosen = table.selected(mask)
        handles = self._reader.columns(chosen, wanted=frozenset(("handle",))).columns["handle"]
        for number, time, handle in zip(
            *(chosen.rows[name].tolist() for name in ("connection", "call_time")), handles.tolist(), strict=True
        ):
            layout = self.handles.get(handle)
            if layout is None or time < layout.time:
                continue
            if number not in self.roles:
                role = DataServerRole(BY_HANDLES, layout.metadata_server, layout.frame)
                self._note(table.conversation(number), role, None)
            if self._counts:
                self._traffic(table, number).in_layout += 1

    def _count(self, table: RpcTable) -> None:
        chosen = table.rows[_transfers(table)]
        if not len(chosen):
            return
        whole = np.sum([chosen[name].astype(np.int64) for name in _BYTES], axis=0)
        for number in np.unique(chosen["connection"]).tolist():
            mine = chosen["connection"] == number
            traffic = self._traffic(table, number)
            traffic.calls += int(np.count_nonzero(mine))
            traffic.bytes += int(whole[mine].sum())

    def _traffic(self, table: RpcTable, number: int) -> DataTraffic:
        found = self.traffic.get(number)
        if found is None:
            server = table.conversation(number).connection.endpoints[1].address
            found = self.traffic[number] = DataTraffic(server)
        return found

    def of(self, address: str, port: int | None = None) -> DataServer | None:
        """The data server that is reached at an address over RDMA."""
        return next((one for one in self.servers.values() if one.serves(address, port)), None)

    def connections(self) -> dict[int, tuple[DataTraffic, DataServer | None]]:
        """Connections of data servers that READ and WRITE were on, and what named them; None: only file handles did."""
        return {
            number: (traffic, self.roles[number][1])
            for number, traffic in sorted(self.traffic.items())
            if number in self.roles
        }


def _with_operations(table: RpcTable, wanted: frozenset[str]) -> Iterator[Rpc]:
    """The RPCs with one of these operations."""
    rows, names = table.plain_rows, table.names.procedures
    if len(rows):
        codes = np.bincount(rows["procedure"]).nonzero()[0].tolist()
        mine = [code for code in codes if not wanted.isdisjoint(names[code].operations)]
        if mine:
            yield from table.plain_rpcs(take(rows, np.isin(rows["procedure"], mine)))
    for rpc in table.objects:
        if not wanted.isdisjoint(rpc.operations):
            yield rpc


def _transfers(table: RpcTable) -> NDArray[np.bool_]:
    """Which RPCs are calls that read or write."""
    rows, names = table.rows, table.names.procedures
    codes = np.bincount(rows["procedure"]).nonzero()[0].tolist() if len(rows) else []
    mine = [code for code in codes if _is_transfer(names[code])]
    found: NDArray[np.bool_] = np.isin(rows["procedure"], mine) & (rows["call_frame"] > 0) & (rows["caller"] == 0)
    return found


def _is_transfer(names: ProcedureNames) -> bool:
    return names.program == NFS and not _TRANSFERRING.isdisjoint((names.name, *names.operations))
