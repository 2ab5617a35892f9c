"""Linux's own counters, the client's in /proc/self/mountstats and the server's in /proc/net/rpc/nfsd, compared with a
capture.

Formats: net/sunrpc/stats.c, fs/nfs/super.c (``nfs_show_stats``), net/sunrpc/xprtrdma/transport.c
(``xprt_rdma_print_stats``), fs/nfsd/stats.c. Times of mountstats are milliseconds, all numbers are totals since the
mount, or since the server was loaded; ``since`` gives the difference of two readings.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from ipaddress import ip_address
from operator import add, itemgetter

from ..onc.compound import OPERATION_NAMES
from ..onc.rpc_header import NFS, procedure_name
from .nfs_operations import NfsCaller, ServedCalls, WireOperation, WireOperations


class CounterError(ValueError):
    """A text that holds no such counters."""


@dataclass(frozen=True, slots=True)
class OperationCounters:
    """One row of a mount's per-op statistics."""

    calls: int
    """RPCs that ended, whatever became of them."""
    transmissions: int
    """How often they were sent, each at least once: what is more than ``calls`` was retransmitted."""
    timeouts: int
    sent: int
    """Bytes of calls, chunks included, without transport headers."""
    received: int
    """Bytes of replies, likewise."""
    queue_ms: int
    """From the beginning to the transmission: waiting for a slot of the transport, credits, or the connection."""
    rtt_ms: int
    """From the transmission to the reply."""
    execute_ms: int
    """From beginning to end."""
    errors: int | None = None
    """RPCs that ended with an error; None for kernels before 5.3, which do not count them."""

    def __add__(self, other: OperationCounters) -> OperationCounters:
        return self._combined(other, 1)

    def __sub__(self, earlier: OperationCounters) -> OperationCounters:
        return self._combined(earlier, -1)

    def _combined(self, other: OperationCounters, sign: int) -> OperationCounters:
        errors = None if self.errors is None or other.errors is None else self.errors + sign * other.errors
        numbers = {name: getattr(self, name) + sign * getattr(other, name) for name in _SUMS}
        return OperationCounters(**numbers, errors=errors)


_SUMS = ("calls", "transmissions", "timeouts", "sent", "received", "queue_ms", "rtt_ms", "execute_ms")
NO_CALLS = OperationCounters(0, 0, 0, 0, 0, 0, 0, 0, 0)

_ANY = ("port", "bind", "connects", "connect_time", "idle_seconds", "sends", "receives", "bad_xids", "outstanding_sum",
        "backlog_sum")  # fmt: skip
_OF_RDMA = (
    "read_segments", "write_segments", "reply_segments", "request_bytes", "reply_bytes", "pullup_bytes", "fixup_bytes",
    "hardway_registrations", "failed_marshals", "bad_replies", "nomsg_calls", "mrs_recycled", "mrs_orphaned",
    "mrs_allocated", "local_invalidations", "empty_sendctx_queue", "reply_waits_for_send",
)  # fmt: skip
_COLUMNS = {"rdma": (*_ANY, *_OF_RDMA), "tcp": _ANY, "udp": ("port", "bind", *_ANY[5:])}
"""Columns of an xprt line, by transport, in order."""
_GAUGES = frozenset(("port", "bind", "connect_time", "idle_seconds"))


@dataclass(frozen=True, slots=True)
class TransportCounters:
    """One xprt line: what one connection, or its successors, counted."""

    kind: str
    """'rdma', 'tcp' or 'udp'."""
    counters: Mapping[str, int]
    """``outstanding_sum`` and ``backlog_sum`` are sums over all sends: of the calls that had no reply yet, and of
    those that waited for a slot."""

    def since(self, earlier: TransportCounters) -> TransportCounters:
        return TransportCounters(
            self.kind,
            {
                name: value - (0 if name in _GAUGES else earlier.counters.get(name, 0))
                for name, value in self.counters.items()
            },
        )


@dataclass(frozen=True, slots=True)
class Mount:
    """One NFS mount, as /proc/self/mountstats has it."""

    device: str
    """'10.77.0.1:/export'."""
    path: str
    version: int
    minor_version: int | None
    """Minor version of NFSv4."""
    options: Mapping[str, str]
    """'' for one without a value."""
    age: int
    """Seconds since it was mounted."""
    transports: tuple[TransportCounters, ...]
    operations: Mapping[str, OperationCounters]
    address: str = ""
    """The address of its server, if known."""

    @property
    def server(self) -> str:
        """The server's part of ``device``."""
        return self.device.rpartition(":/")[0].strip("[]")

    def since(self, earlier: Mount) -> Mount:
        """What was counted between two readings; all of it where the mount is a newer one."""
        if self.age < earlier.age or len(self.transports) != len(earlier.transports) or self.device != earlier.device:
            return self
        return replace(
            self,
            transports=tuple(now.since(then) for now, then in zip(self.transports, earlier.transports, strict=True)),
            operations={
                name: counted - earlier.operations.get(name, NO_CALLS) for name, counted in self.operations.items()
            },
        )


_MOUNT = re.compile(r"device (.+) mounted on (.+) with fstype nfs4?(?: statvers=(\S+))?$")
_PROGRAM = re.compile(r"p/v: (\d+)/(\d+)")


def parse_mountstats(text: str) -> list[Mount]:
    """The NFS mounts of a /proc/self/mountstats.  Raises CounterError where it has none, or one that is incomplete."""
    parts = re.split(r"^(?=device )", text, flags=re.MULTILINE)
    mounts = [
        _mount(match, part.splitlines()[1:])
        for part in parts
        if part and (match := _MOUNT.match(part.partition("\n")[0].rstrip()))
    ]
    if not mounts:
        raise CounterError("no NFS mount is in it" if len(parts) > 1 else "this is no /proc/self/mountstats")
    return mounts


def _mount(match: re.Match[str], lines: Sequence[str]) -> Mount:
    device, path = _unescaped(match[1]), _unescaped(match[2])
    options: dict[str, str] = {}
    age, version, minor = 0, 0, 0
    transports: list[TransportCounters] = []
    operations: dict[str, OperationCounters] = {}
    try:
        for line in lines:
            name, _, rest = line.strip().partition(":")
            rest = rest.strip()
            if name == "opts":
                options = {key: value for key, _, value in (word.partition("=") for word in rest.split(","))}
                minor = int(options.get("vers", "").partition(".")[2] or 0)
            elif name == "age":
                age = int(rest)
            elif name == "RPC iostats version" and (program := _PROGRAM.search(rest)):
                version = int(program[2])
            elif name == "xprt":
                transports.append(_transport(rest.split()))
            elif version and transports and len(numbers := rest.split()) >= len(_SUMS):
                row = [int(number) for number in numbers[: len(_SUMS) + 1]]
                operations[name] = OperationCounters(*row)
    except ValueError:
        raise CounterError(f"{path}: {line.strip()[:60]!r} cannot be read") from None
    if not operations:
        raise CounterError(f"{path}: the text ends before its per-op statistics")
    address = options.get("addr", options.get("mountaddr", ""))
    minor_version = minor if version == 4 else None
    return Mount(device, path, version, minor_version, options, age, tuple(transports), operations, address)


def _transport(words: Sequence[str]) -> TransportCounters:
    kind, *numbers = words
    return TransportCounters(kind, dict(zip(_COLUMNS.get(kind, ()), map(int, numbers), strict=False)))


def _unescaped(word: str) -> str:
    r"""Spaces and the like are octal there: '\040'."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), word)


def mount_of(mounts: Sequence[Mount], path: str) -> Mount | None:
    """The mount that holds a path, which is absolute; None where none does."""
    holding = (mount for mount in mounts if path == mount.path or path.startswith(mount.path.rstrip("/") + "/"))
    return max(holding, key=lambda mount: len(mount.path), default=None)


def mounts_since(now: Iterable[Mount], earlier: Iterable[Mount]) -> list[Mount]:
    """What each mount counted between two readings; of one that was made in between, all of it."""
    before = {mount.path: mount for mount in earlier}
    return [mount.since(before[mount.path]) if mount.path in before else mount for mount in now]


@dataclass(frozen=True, slots=True)
class ServerCounters:
    """What knfsd counted, over all its clients."""

    procedures: Mapping[tuple[int, str], int]
    """Calls by NFS version and procedure."""
    operations: Mapping[str, int]
    """Operations of NFSv4 that were carried out, failed ones included."""
    calls: int
    bad_calls: int
    bytes_read: int
    bytes_written: int

    def since(self, earlier: ServerCounters) -> ServerCounters:
        """What was counted between two readings; all of it where it began anew."""
        if self.calls < earlier.calls:
            return self
        return ServerCounters(
            {key: count - earlier.procedures.get(key, 0) for key, count in self.procedures.items()},
            {name: count - earlier.operations.get(name, 0) for name, count in self.operations.items()},
            self.calls - earlier.calls,
            self.bad_calls - earlier.bad_calls,
            # Of 32 bits, on some machines.
            max(0, self.bytes_read - earlier.bytes_read),
            max(0, self.bytes_written - earlier.bytes_written),
        )


def parse_nfsd(text: str) -> ServerCounters:
    """A /proc/net/rpc/nfsd.  Raises CounterError where it is none."""
    procedures: dict[tuple[int, str], int] = {}
    operations: dict[str, int] = {}
    totals = {"rpc": [0, 0], "io": [0, 0]}
    try:
        for line in text.splitlines():
            name, *numbers = line.split() or [""]
            if match := re.fullmatch(r"proc([234])", name):
                version = int(match[1])
                for number, count in enumerate(map(int, numbers[1:])):
                    procedures[version, procedure_name(NFS, version, number)] = count
            elif name == "proc4ops":
                for number, count in enumerate(map(int, numbers[1:])):
                    operations[OPERATION_NAMES.get(number, f"op-{number}")] = count
            elif name in totals:
                totals[name] = [int(number) for number in numbers]
        (calls, bad, *_), (read, written, *_) = totals["rpc"], totals["io"]
    except ValueError:
        raise CounterError(f"{line.strip()[:60]!r} cannot be read") from None
    if not procedures:
        raise CounterError("this is no /proc/net/rpc/nfsd")
    return ServerCounters(procedures, operations, calls, bad, read, written)


NOT_CAPTURED = "not captured"
NEVER_SENT = "never sent"
OUTSTANDING = "still outstanding"
LATER = "after the reading"
RETRIED = "retried by the client"
INCOMPLETE = "captured in part"
NO_RDMA = "not by RDMA"
UNTOLD = "minor version not told"
UNEXPLAINED = "unexplained"
REASONS = {
    NOT_CAPTURED: "the capture began in the middle of the connection, or lacks packets",
    NEVER_SENT: "they ended before they were sent, as their bytes or the transport's counter of sends show",
    OUTSTANDING: "calls without a reply, which the kernel counts when they end",
    LATER: "they are the last in the capture: the counters were read before it ended",
    RETRIED: "an error that the client answers with another call is none to it",
    INCOMPLETE: "the capture lacks bytes of some messages",
    NO_RDMA: "the mount uses another transport",
    UNTOLD: "a client's trace tells no minor version: calls of another may be among them",
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
    """Reasons of differences; () if there are none."""

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
        return not any(UNEXPLAINED in operation.reasons for operation in self.operations)


def _sends(line: object) -> int:
    return int(getattr(line, "counters", {}).get("sends", 0))


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
    untold: bool = False
    """Whether no minor version was told."""


def compare_mounts(mounts: Sequence[Mount], wire: WireOperations, complete: Completeness) -> list[MountComparison]:
    """Compare the counters of mounts with the wire; mounts that share their connections are compared together."""
    shared: dict[tuple[str, int, int | None], list[Mount]] = {}
    for mount in mounts:
        shared.setdefault((mount.server, mount.version, mount.minor_version), []).append(mount)
    return [_compared(tuple(some), wire, complete) for some in shared.values()]


def _compared(mounts: tuple[Mount, ...], wire: WireOperations, complete: Completeness) -> MountComparison:
    matched = _found(mounts, wire)
    rdma = any(line.kind == "rdma" for mount in mounts for line in mount.transports)
    lossy = complete.lossy or bool(complete.midway & matched.connections)
    lossy |= not (matched.connections or complete.truncated)
    lossy |= any(wire.unmatched[caller.client, caller.server] for caller in matched.callers)
    names = dict.fromkeys(name for mount in mounts for name in mount.operations)
    names.update(dict.fromkeys(matched.operations))
    pairs = {name: (_counted(name, mounts), matched.operations.get(name, WireOperation())) for name in names}
    excess = Counter({name: seen.calls - counters.transmissions for name, (counters, seen) in pairs.items()})
    later = +excess
    is_later = later.total() > 0 and Counter(name for _, name in matched.newest[-later.total() :]) == later
    unsent = _never_sent(mounts, wire, matched)
    unknown = INCOMPLETE if complete.truncated else UNEXPLAINED
    more = UNTOLD if matched.untold else LATER if is_later else unknown
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
            reasons.append(OUTSTANDING if -missing <= seen.unanswered else more)
        else:
            reasons += _differences(counted, seen, unknown)
        rows.append(OperationComparison(name, counted, seen, tuple(reasons)))
    clients = sorted({caller.client for caller in matched.callers})
    servers = sorted({caller.server for caller in matched.callers})
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


def _never_sent(mounts: Sequence[Mount], wire: WireOperations, matched: _Found) -> int:
    """Calls that the operations count and the transport does not; 0 where that cannot be said."""
    lines = max((mount.transports for mount in mounts), key=lambda lines: sum(map(_sends, lines)), default=())
    if not any(map(_sends, lines)):
        return 0
    others = sum(wire.others[caller.client, caller.server] for caller in matched.callers[:1])
    names = {name for mount in mounts for name in mount.operations}
    total = sum(_counted(name, mounts).transmissions for name in names)
    return max(0, total - (sum(map(_sends, lines)) - others))


def _found(mounts: Sequence[Mount], wire: WireOperations) -> _Found:
    """The calls of these mounts, by version and the addresses that are known."""
    version, minor = mounts[0].version, mounts[0].minor_version
    servers = {name for mount in mounts for name in (mount.address, mount.server) if _is_address(name)}
    clients = {mount.options.get("clientaddr", "") for mount in mounts}
    callers = [caller for caller in wire.callers if (caller.version, caller.minor_version or minor) == (version, minor)]
    untold = False
    if version == 4:  # NULL has no minor version: it belongs to the client whose connection has its COMPOUNDs.
        of_minor = set().union(
            *(wire.callers[caller].connections for caller in callers if caller.minor_version == minor)
        )
        untold = not of_minor  # as in a client's trace
        callers = [caller for caller in callers if untold or wire.callers[caller].connections & of_minor]
    if servers:
        callers = [caller for caller in callers if caller.server in servers]
    if any(caller.client in clients for caller in callers):
        callers = [caller for caller in callers if caller.client in clients]
    matched = _Found(callers=callers, untold=untold)
    for caller in callers:
        calls = wire.callers[caller]
        for name, seen in calls.operations.items():
            matched.operations.setdefault(name, WireOperation()).add(seen)
        matched.connections |= calls.connections
        matched.newest += calls.newest
    matched.newest.sort(key=itemgetter(0))
    return matched


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def compare_server(counters: ServerCounters, wire: WireOperations) -> ServerComparison:
    """Beside all servers that the capture has."""
    served = ServedCalls()
    for server in wire.servers.values():
        served.procedures += server.procedures
        served.operations += server.operations
        served.unanswered += server.unanswered
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
