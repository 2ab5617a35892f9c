"""Linux's own counters beside what was seen on the wire: per mount and operation, each difference with its reason.

Mounts of one server and version share their connections, and nothing on the wire tells them apart: they are compared
together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from ipaddress import ip_address
from operator import add, itemgetter

from .kernel_counters import NO_CALLS, Mount, OperationCounters, ServerCounters
from .wire_operations import NfsCaller, ServedCalls, WireOperation, WireOperations

NOT_CAPTURED = "not captured"
NEVER_SENT = "never sent"
OUTSTANDING = "still outstanding"
LATER = "after the reading"
RETRIED = "retried by the client"
INCOMPLETE = "captured in part"
NO_RDMA = "not by RDMA"
UNEXPLAINED = "unexplained"
REASONS = {
    NOT_CAPTURED: "the capture began in the middle of the connection, or lacks packets",
    NEVER_SENT: "they ended before they were sent, as their bytes or the transport's counter of sends show",
    OUTSTANDING: "calls without a reply, which the kernel counts when they end",
    LATER: "they are the last in the capture: the counters were read before it ended",
    RETRIED: "an error that the client answers with another call is none to it",
    INCOMPLETE: "the capture lacks bytes of some messages",
    NO_RDMA: "the mount uses another transport",
    UNEXPLAINED: "neither the counters nor the capture say why",
}
"""Why the kernel and the wire differ."""

_SHARED = frozenset((
    "NULL", "EXCHANGE_ID", "CREATE_SESSION", "DESTROY_SESSION", "DESTROY_CLIENTID", "SEQUENCE", "RECLAIM_COMPLETE",
    "RENEW", "SETCLIENTID", "SETCLIENTID_CONFIRM", "BIND_CONN_TO_SESSION", "GET_LEASE_TIME", "SECINFO_NO_NAME",
))  # fmt: skip
"""Operations of the client, which each mount that shares it counts again."""
_ANSWERED_BY_RETRY = frozenset((
    "NFS4ERR_DELAY", "NFS4ERR_GRACE", "NFS4ERR_OLD_STATEID", "NFS4ERR_BAD_STATEID", "NFS4ERR_EXPIRED",
    "NFS4ERR_BADSESSION", "NFS4ERR_DEADSESSION", "NFS4ERR_STALE_CLIENTID", "NFS4ERR_CONN_NOT_BOUND_TO_SESSION",
    "NFS4ERR_SEQ_MISORDERED", "NFS4ERR_BAD_HIGH_SLOT", "NFS4ERR_RETRY_UNCACHED_REP", "NFS4ERR_CB_PATH_DOWN",
    "NFS3ERR_JUKEBOX",
))  # fmt: skip


@dataclass(frozen=True, slots=True)
class OperationComparison:
    """One operation of a mount."""

    operation: str
    kernel: OperationCounters
    wire: WireOperation
    reasons: tuple[str, ...]
    """Of what differs; () where nothing does."""

    @property
    def missing(self) -> int:
        """Calls that were counted and not seen; below 0: seen, and not counted."""
        return self.kernel.transmissions - self.wire.calls


@dataclass(frozen=True, slots=True)
class MountComparison:
    """One mount, or several that share their connections."""

    mounts: tuple[Mount, ...]
    clients: tuple[str, ...]
    """Addresses of the clients whose calls are compared; more than one where nothing says which is the mount's."""
    servers: tuple[str, ...]
    operations: tuple[OperationComparison, ...]

    @property
    def transport(self) -> dict[str, int]:
        """The counters of its transports together; those of mounts that share them once."""
        lines = max((mount.transports for mount in self.mounts), key=lambda lines: sum(map(_sends, lines)), default=())
        total: Counter[str] = Counter()
        for line in lines:
            total.update(line.counters)
        return dict(total)

    @property
    def explained(self) -> bool:
        """Nothing differs without a reason."""
        return not any(UNEXPLAINED in one.reasons for one in self.operations)


def _sends(line: object) -> int:
    counters = getattr(line, "counters", {})
    return int(counters.get("sends", 0))


@dataclass(frozen=True, slots=True)
class ServerRow:
    """One procedure or operation of a server."""

    name: str
    counted: int
    seen: int


@dataclass(frozen=True, slots=True)
class ServerComparison:
    """What knfsd counted beside what was seen."""

    servers: tuple[str, ...]
    """Addresses of the servers whose calls are compared."""
    counters: ServerCounters
    procedures: tuple[ServerRow, ...]
    operations: tuple[ServerRow, ...]
    unanswered: int


@dataclass(frozen=True, slots=True)
class Completeness:
    """What a capture may lack."""

    midway: frozenset[tuple[int, int]] = frozenset()
    """Connections whose beginning it does not have: capture point and number."""
    lossy: bool = False
    """It lacks packets, or what captured it dropped some."""
    truncated: bool = False
    """It has only the beginnings of some frames (snaplen)."""


@dataclass(slots=True)
class _Found:
    """What one client, or several, asked."""

    operations: dict[str, WireOperation] = field(default_factory=dict)
    newest: list[tuple[int, str]] = field(default_factory=list)
    connections: set[tuple[int, int]] = field(default_factory=set)
    callers: list[NfsCaller] = field(default_factory=list)


def compare_mounts(mounts: Sequence[Mount], wire: WireOperations, complete: Completeness) -> list[MountComparison]:
    """Those that share their connections together."""
    shared: dict[tuple[str, int, int | None], list[Mount]] = {}
    for mount in mounts:
        shared.setdefault((mount.server, mount.version, mount.minor_version), []).append(mount)
    return [_compared(tuple(some), wire, complete) for some in shared.values()]


def _compared(mounts: tuple[Mount, ...], wire: WireOperations, complete: Completeness) -> MountComparison:
    found = _found(mounts, wire)
    rdma = any(line.kind == "rdma" for mount in mounts for line in mount.transports)
    lossy = complete.lossy or bool(complete.midway & found.connections) or not found.connections
    lossy |= any(wire.unmatched[caller.client, caller.server] for caller in found.callers)
    names = dict.fromkeys(name for mount in mounts for name in mount.operations)
    names.update(dict.fromkeys(found.operations))
    pairs = {name: (_counted(name, mounts), found.operations.get(name, WireOperation())) for name in names}
    excess = Counter({name: seen.calls - one.transmissions for name, (one, seen) in pairs.items()})
    later = +excess
    is_later = later.total() > 0 and Counter(name for _, name in found.newest[-later.total() :]) == later
    unsent = _never_sent(mounts, wire, found)
    unknown = INCOMPLETE if complete.truncated else UNEXPLAINED
    rows = []
    for name, (counted, seen) in pairs.items():
        if not (counted.calls or seen.calls):
            continue
        reasons: list[str] = []
        missing = counted.transmissions - seen.calls
        if missing > 0:
            if not rdma:
                reasons.append(NO_RDMA)
            elif not counted.sent or missing <= unsent:
                reasons.append(NEVER_SENT)
                unsent -= missing if counted.sent else 0
            else:
                reasons.append(NOT_CAPTURED if lossy else unknown)
        elif missing < 0:
            reasons.append(OUTSTANDING if -missing <= seen.unanswered else LATER if is_later else unknown)
        else:
            reasons += _differences(counted, seen, unknown)
        rows.append(OperationComparison(name, counted, seen, tuple(reasons)))
    clients = sorted({caller.client for caller in found.callers})
    servers = sorted({caller.server for caller in found.callers})
    return MountComparison(mounts, tuple(clients), tuple(servers), tuple(rows))


def _differences(counted: OperationCounters, seen: WireOperation, unknown: str) -> list[str]:
    """Reasons why the same number of calls has other errors or bytes."""
    reasons = []
    if counted.errors is not None and counted.errors != seen.errors:
        retried = sum(seen.statuses[status] for status in _ANSWERED_BY_RETRY)
        reasons.append(RETRIED if 0 < seen.errors - counted.errors <= retried else unknown)
    if (counted.sent, counted.received) != (seen.sent, seen.received):
        reasons.append(INCOMPLETE if seen.incomplete or seen.unanswered else unknown)
    return [*dict.fromkeys(reasons)]


def _counted(name: str, mounts: Iterable[Mount]) -> OperationCounters:
    rows = [mount.operations.get(name, NO_CALLS) for mount in mounts]
    if name in _SHARED:
        return max(rows, key=lambda row: row.calls)
    return reduce(add, rows)


def _never_sent(mounts: Sequence[Mount], wire: WireOperations, found: _Found) -> int:
    """Calls that the operations count and the transport does not; 0 where that cannot be said."""
    lines = max((mount.transports for mount in mounts), key=lambda lines: sum(map(_sends, lines)), default=())
    if not any(map(_sends, lines)):
        return 0
    others = sum(wire.others[caller.client, caller.server] for caller in found.callers[:1])
    names = {name for mount in mounts for name in mount.operations}
    total = sum(_counted(name, mounts).transmissions for name in names)
    return max(0, total - (sum(map(_sends, lines)) - others))


def _found(mounts: Sequence[Mount], wire: WireOperations) -> _Found:
    """The calls of these mounts, by version and the addresses that are known."""
    version, minor = mounts[0].version, mounts[0].minor_version
    servers = {one for mount in mounts for one in (mount.address, mount.server) if _is_address(one)}
    clients = {mount.options.get("clientaddr", "") for mount in mounts}
    callers = [one for one in wire.callers if (one.version, one.minor_version or minor) == (version, minor)]
    if version == 4:  # NULL has no minor version: it belongs to the client whose connection has its COMPOUNDs.
        of_minor = set().union(*(wire.callers[one].connections for one in callers if one.minor_version == minor))
        callers = [one for one in callers if one.minor_version == minor or wire.callers[one].connections & of_minor]
    if servers:
        callers = [one for one in callers if one.server in servers]
    if any(one.client in clients for one in callers):
        callers = [one for one in callers if one.client in clients]
    found = _Found(callers=callers)
    for caller in callers:
        calls = wire.callers[caller]
        for name, seen in calls.operations.items():
            found.operations.setdefault(name, WireOperation()).add(seen)
        found.connections |= calls.connections
        found.newest += calls.newest
    found.newest.sort(key=itemgetter(0))
    return found


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def compare_server(counters: ServerCounters, wire: WireOperations) -> ServerComparison:
    """Beside all servers that the capture has."""
    served = ServedCalls()
    for one in wire.servers.values():
        served.procedures += one.procedures
        served.operations += one.operations
        served.unanswered += one.unanswered
    procedures = tuple(
        ServerRow(
            f"NFSv{version} {name}", counters.procedures.get((version, name), 0), served.procedures[version, name]
        )
        for version, name in dict.fromkeys((*counters.procedures, *served.procedures))
    )
    operations = tuple(
        ServerRow(name, counters.operations.get(name, 0), served.operations[name])
        for name in dict.fromkeys((*counters.operations, *served.operations))
    )
    return ServerComparison(
        tuple(sorted(wire.servers)),
        counters,
        tuple(row for row in procedures if row.counted or row.seen),
        tuple(row for row in operations if row.counted or row.seen),
        served.unanswered,
    )
