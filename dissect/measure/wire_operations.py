"""RPCs of NFS as Linux's counters have them: by client, server and version, each operation with calls, errors, bytes.

An operation is what the client's mountstats call it (``onc.linux_operations``); of NFSv4 there are also the single
operations that the server carried out, as knfsd counts them.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays import Int64s, Rows
from ..onc.compound import compound_reply, operation_names
from ..onc.programs import NFS
from ..onc.rpc_header import reply_header
from ..rpcrdma.reassembly import reassembled_reply
from ..rpcrdma.rpc_fields import FieldReader
from ..rpcrdma.rpc_table import FLAG_MISSING, FLAG_TRUNCATED, STATES, ProcedureNames, RpcTable
from ..rpcrdma.rpcs import DUPLICATE_REPLY, Rpc

Mask = NDArray[np.bool_]

MAX_CLIENTS = 4096
MAX_NEWEST = 4096
"""The last operations of a client that are remembered in their order."""
OTHER_COMPOUND = "other COMPOUND"
"""One that the client of Linux does not send."""
_DUPLICATE, _NO_CALL = (STATES.index(state) for state in (DUPLICATE_REPLY, "no call"))
_INCOMPLETE = FLAG_TRUNCATED | FLAG_MISSING


class NfsCaller(NamedTuple):
    """Between which hosts calls go, and by which version of NFS."""

    client: str
    server: str
    version: int
    minor_version: int | None


@dataclass(slots=True)
class WireOperation:
    """The calls of one operation, as seen."""

    calls: int = 0
    errors: int = 0
    sent: int = 0
    """Bytes of calls, chunks included, without transport headers."""
    received: int = 0
    latency: int = 0
    """Nanoseconds, the sum over ``timed`` RPCs."""
    timed: int = 0
    unanswered: int = 0
    incomplete: int = 0
    """Of which the capture lacks bytes."""
    statuses: Counter[str] = field(default_factory=Counter)
    """Of the errors."""

    def add(self, other: WireOperation) -> None:
        for name in ("calls", "errors", "sent", "received", "latency", "timed", "unanswered", "incomplete"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.statuses += other.statuses


@dataclass(slots=True)
class WireCalls:
    """What one client asked of one server in one version."""

    operations: dict[str, WireOperation] = field(default_factory=dict)
    newest: deque[tuple[int, str]] = field(default_factory=lambda: deque(maxlen=MAX_NEWEST))
    """When the last RPCs ended, in that order of each capture point, with their operations."""
    connections: set[tuple[int, int]] = field(default_factory=set)
    """Capture point and number."""


@dataclass(slots=True)
class ServedCalls:
    """What one server was asked, by all its clients."""

    procedures: Counter[tuple[int, str]] = field(default_factory=Counter)
    operations: Counter[str] = field(default_factory=Counter)
    """Operations of COMPOUNDs that were carried out, failed ones included."""
    unanswered: int = 0


class WireOperations:
    """Feed it tables of RPCs."""

    def __init__(self) -> None:
        self.reader = FieldReader()
        self.begin, self.end = 0, (1 << 63) - 1
        """Only RPCs that ended between these times (ns) are counted."""
        self.callers: dict[NfsCaller, WireCalls] = {}
        self.servers: dict[str, ServedCalls] = {}
        self.unmatched: Counter[tuple[str, str]] = Counter()
        """Replies whose call was not captured, by client and server."""
        self.others: Counter[tuple[str, str]] = Counter()
        """Calls of other programs, and replies to backward calls, which the client sent on the same connections."""

    def add(self, table: RpcTable, point: int = 0) -> None:
        """The contents of its RPCs must be held; ``point``: where they were captured."""
        rows = table.rows
        ended = np.where(rows["reply_end"] != 0, rows["reply_end"], rows["call_end"])
        kept = np.flatnonzero((rows["state"] != _DUPLICATE) & (ended >= self.begin) & (ended <= self.end))
        codes: dict[tuple[int, int, str], int] = {}
        each = [*self._keys(table, kept)]
        of_code = np.array([codes.setdefault(key, len(codes)) for key in each], np.int64)
        failures = np.array([failed for _, failed in table.names.statuses] or [False])
        for (connection, procedure, operation), code in codes.items():
            chosen = rows[kept[of_code == code]]
            ends = table.conversation(connection).connection.endpoints
            pair = ends[0].address, ends[1].address
            names = table.names.procedures[procedure >> 1]
            if procedure & 1:
                self.others[pair] += int(np.count_nonzero(chosen["reply_frame"] != 0))
            elif not operation:
                self.unmatched[pair] += len(chosen)
            elif names.program != NFS:
                self.others[pair] += len(chosen)
            else:
                self._serve(pair[1], names, chosen)
                caller = self._caller(pair, names)
                caller.connections.add((point, connection))
                caller.operations.setdefault(operation, WireOperation()).add(
                    _counted(chosen, failures[chosen["status"]], table)
                )
        for at in ended[kept].argsort(kind="stable").tolist():
            connection, procedure, operation = each[at]
            names = table.names.procedures[procedure >> 1]
            if operation and not procedure & 1 and names.program == NFS:
                ends = table.conversation(connection).connection.endpoints
                self._caller((ends[0].address, ends[1].address), names).newest.append((int(ended[kept[at]]), operation))
        for row in kept[self._failed_compounds(table, kept, failures)].tolist():
            rpc = table.rpc(row)
            self._server(rpc.connection.endpoints[1].address).operations.update(_carried_out(rpc))

    def _keys(self, table: RpcTable, kept: Int64s) -> Iterator[tuple[int, int, str]]:
        """Connection, procedure (doubled, and one more for a backward call) and Linux's name of each RPC."""
        rows = table.rows[kept]
        names = table.names.procedures
        linux = self.reader.columns(table, wanted=frozenset(("linux",))).columns["linux"][kept].tolist()
        columns = (rows[name].tolist() for name in ("connection", "procedure", "caller", "state"))
        for connection, procedure, caller, state, name in zip(*columns, linux, strict=True):
            one = names[procedure]
            operation = one.name or "?"
            if state == _NO_CALL:
                operation = ""
            elif one.version == 4 and one.operations:
                operation = name or OTHER_COMPOUND
            yield connection, procedure << 1 | (caller != 0), operation

    def _caller(self, pair: tuple[str, str], names: ProcedureNames) -> WireCalls:
        key = NfsCaller(*pair, names.version or 0, names.minor_version)
        if key not in self.callers and len(self.callers) >= MAX_CLIENTS:
            key = NfsCaller("", pair[1], names.version or 0, names.minor_version)
        return self.callers.setdefault(key, WireCalls())

    def _server(self, address: str) -> ServedCalls:
        if address not in self.servers and len(self.servers) >= MAX_CLIENTS:
            address = ""
        return self.servers.setdefault(address, ServedCalls())

    def _serve(self, address: str, names: ProcedureNames, chosen: Rows) -> None:
        served = self._server(address)
        served.procedures[names.version or 0, names.name] += len(chosen)
        unanswered = int(np.count_nonzero(chosen["reply_frame"] == 0))
        served.unanswered += unanswered
        for operation in names.operations:
            served.operations[operation] += len(chosen) - unanswered

    def _failed_compounds(self, table: RpcTable, kept: Int64s, failures: Mask) -> Mask:
        rows = table.rows[kept]
        compounds = np.array([bool(one.operations) for one in table.names.procedures] or [False])
        answered = (rows["reply_frame"] != 0) & (rows["call_frame"] != 0) & (rows["caller"] == 0)
        found: Mask = failures[rows["status"]] & compounds[rows["procedure"]] & answered
        return found


def _counted(chosen: Rows, failed: Mask, table: RpcTable) -> WireOperation:
    latencies = chosen["latency"][chosen["latency"] >= 0]
    statuses = Counter(table.names.statuses[status][0] for status in chosen["status"][failed].tolist())
    return WireOperation(
        len(chosen),
        int(np.count_nonzero(failed)),
        int((chosen["call_inline"] + chosen["read_bytes"]).sum()),
        int((chosen["reply_inline"] + chosen["write_bytes"] + chosen["reply_chunk_bytes"]).sum()),
        int(latencies.sum()),
        len(latencies),
        int(np.count_nonzero(chosen["reply_frame"] == 0)),
        int(np.count_nonzero(chosen["flags"] & _INCOMPLETE)),
        statuses,
    )


def _carried_out(rpc: Rpc) -> dict[str, int]:
    """How many operations fewer than it asked for were carried out of a COMPOUND that failed, as negative numbers."""
    message = reassembled_reply(rpc)
    prefix = message.prefix if message is not None else b""
    header = reply_header(prefix, 0, len(prefix), rpc.gss)
    results: tuple[str, ...] = ()
    if header is not None and header.body >= 0:
        reply = compound_reply(prefix, header.body, len(prefix))
        results = operation_names(tuple(number for number, _ in reply.results))
    missing = Counter(rpc.operations)
    missing.subtract(results)
    return {name: -count for name, count in missing.items() if count}
