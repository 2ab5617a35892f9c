"""pNFS: the data servers that a metadata server named, and the connections to them (RFC 8881, 12 and 13; RFC 8435).

A connection belongs to a data server if GETDEVICEINFO named its address for RDMA, or if READ and WRITE on it use a file
handle of a layout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..arrays import among, unique
from ..named_tuple import NamedTuple
from ..onc.compound import OP_GETDEVICEINFO, OP_LAYOUTGET
from ..onc.rpc_header import NFS
from ..rpcrdma.conversation import Conversation, DataServerRole
from ..rpcrdma.rpc_table import ProcedureNames, RpcTable
from ..rpcrdma.rpcs import Rpc

if TYPE_CHECKING:
    from ..onc.shapes.types import Node
    from ..rpcrdma.rpc_fields import FieldReader

MAX_SERVERS = 1024
MAX_DEVICES = 1024
"""Devices listed for a data server."""
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
    """The frame of the reply that named it first."""
    networks: dict[str, None] = field(default_factory=dict)
    """netids: 'rdma', 'tcp6', …"""
    devices: dict[bytes, None] = field(default_factory=dict)
    """The device IDs whose addresses name the server."""

    def serves(self, address: str, port: int | None) -> bool:
        """It is reached there over RDMA; any port is right where one of the two is not known."""
        if address != self.address or not any(network.startswith("rdma") for network in self.networks):
            return False
        return port is None or self.port is None or port == self.port


@dataclass(slots=True, eq=False)
class DataTraffic:
    """READ and WRITE on a connection."""

    server: str
    calls: int = 0
    bytes: int = 0
    """Bytes of calls and replies, chunks included."""
    in_layout: int = 0
    """Calls with a file handle of a layout."""


class LayoutHandle(NamedTuple):
    """Where a layout has a file handle."""

    time: int
    """The time of the reply that granted it first, nanoseconds."""
    metadata_server: str
    """Address."""
    frame: int
    """The frame of that reply."""


class DataServers:
    """The data servers of a capture, learned from its RPCs; those beyond the limits are left out."""

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
            numbers = {*table.rows["connection"].tolist()}
            self.mark(table.conversation(number) for number in numbers - self._judged)
            self._look_at_handles(table)
        if self._counts:
            self._count(table)

    def mark(self, conversations: Iterable[Conversation]) -> None:
        """Note which of them are with a data server, by its address."""
        for conversation in conversations if self.servers else ():
            connection = conversation.connection
            self._judged.add(connection.number)
            if conversation.data_server is None:
                server = self.of(connection.endpoints[1].address, connection.service_port)
                if server is not None:
                    self._note(conversation, DataServerRole(BY_ADDRESS, server.metadata_server, server.frame), server)

    def evict(self, conversations: Iterable[Conversation]) -> None:
        """Nothing more comes of these."""
        for conversation in conversations:
            self._judged.discard(conversation.connection.number)
            if conversation.connection.number not in self.traffic:
                self.roles.pop(conversation.connection.number, None)

    def _note(self, conversation: Conversation, role: DataServerRole, server: DataServer | None) -> None:
        conversation.data_server = role
        self.roles[conversation.connection.number] = role, server

    def _learn_names(self, rpc: Rpc) -> None:
        """What an RPC with GETDEVICEINFO or LAYOUTGET says of servers and their file handles."""
        if rpc.call is None or rpc.reply is None:
            return
        from ..rpcrdma.reassembly import reassembled_call, reassembled_reply  # All of which few captures need.
        from .nfs_state_operations import decoded_step, walked

        messages = reassembled_call(rpc), reassembled_reply(rpc)
        call, reply = (memoryview(message.prefix if message is not None else b"") for message in messages)
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
        from ..onc.shapes.text import universal_address

        for node in results.walk() if results is not None else ():
            if node.type is None or node.type.name != "netaddr4":
                continue
            values = [bytes(child.value) for child in node.children if isinstance(child.value, memoryview)]
            if len(values) != 2:
                continue
            network, text = (value.decode("ascii", "replace") for value in values)
            endpoint = universal_address(text)
            if endpoint not in self.servers and len(self.servers) >= MAX_SERVERS:
                continue
            data_server = self.servers.setdefault(endpoint, DataServer(*endpoint, server, frame))
            if len(data_server.networks) < 16:
                data_server.networks[network] = None
            if device is not None and len(data_server.devices) < MAX_DEVICES:
                data_server.devices[device] = None

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
            open_ = [number for number in unique(rows["connection"][mask]).tolist() if number not in self.roles]
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
        for number in unique(chosen["connection"]).tolist():
            mine = chosen["connection"] == number
            traffic = self._traffic(table, number)
            traffic.calls += int(np.count_nonzero(mine))
            traffic.bytes += int(whole[mine].sum())

    def _traffic(self, table: RpcTable, number: int) -> DataTraffic:
        traffic = self.traffic.get(number)
        if traffic is None:
            server = table.conversation(number).connection.endpoints[1].address
            traffic = self.traffic[number] = DataTraffic(server)
        return traffic

    def of(self, address: str, port: int | None = None) -> DataServer | None:
        """The data server that is reached at an address over RDMA."""
        return next((server for server in self.servers.values() if server.serves(address, port)), None)

    def connections(self) -> dict[int, tuple[DataTraffic, DataServer | None]]:
        """Connections of data servers that READ and WRITE were on, and what named them; None: only file handles did."""
        return {
            number: (traffic, self.roles[number][1])
            for number, traffic in sorted(self.traffic.items())
            if number in self.roles
        }


def _with_operations(table: RpcTable, wanted: frozenset[str]) -> Iterator[Rpc]:
    """The RPCs with one of these operations."""
    for row in _called_for(table, lambda names: not wanted.isdisjoint(names.operations)).nonzero()[0].tolist():
        yield table[row]


def _transfers(table: RpcTable) -> NDArray[np.bool_]:
    """Which RPCs are calls that read or write."""
    called: NDArray[np.bool_] = (table.rows["call_frame"] > 0) & (table.rows["caller"] == 0)
    return called & _called_for(table, _is_transfer)


def _called_for(table: RpcTable, meant: Callable[[ProcedureNames], bool]) -> NDArray[np.bool_]:
    """Which RPCs are of procedures that are meant."""
    called, names = table.rows["procedure"], table.names.procedures
    return among(called, np.array([code for code in unique(called).tolist() if meant(names[code])], np.int64))


def _is_transfer(names: ProcedureNames) -> bool:
    return names.program == NFS and not _TRANSFERRING.isdisjoint((names.name, *names.operations))
