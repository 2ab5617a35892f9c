"""What Linux counted itself: the client in /proc/self/mountstats, the server in /proc/net/rpc/nfsd.

Formats: net/sunrpc/stats.c, fs/nfs/super.c (``nfs_show_stats``), net/sunrpc/xprtrdma/transport.c
(``xprt_rdma_print_stats``), fs/nfsd/stats.c.  Times of mountstats are milliseconds, all numbers are totals since the
mount, or since the server was loaded; ``since`` gives those between two readings.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ..onc.compound import OPERATION_NAMES
from ..onc.programs import NFS, procedure_name


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
    """That ended with an error; None of kernels before 5.3, which do not count them."""

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
"""Of an xprt line, by transport, as they stand in it."""
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
    """One NFS mount."""

    device: str
    """'10.77.0.1:/export'."""
    path: str
    version: int
    minor_version: int | None
    """Of NFSv4."""
    options: Mapping[str, str]
    """'' for one without a value."""
    age: int
    """Seconds since it was mounted."""
    transports: tuple[TransportCounters, ...]
    operations: Mapping[str, OperationCounters]
    address: str = ""
    """Of its server, where that is known."""

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
    age, version = 0, 0
    transports: list[TransportCounters] = []
    operations: dict[str, OperationCounters] = {}
    try:
        for line in lines:
            name, _, rest = line.strip().partition(":")
            rest = rest.strip()
            if name == "opts":
                options = {key: value for key, _, value in (one.partition("=") for one in rest.split(","))}
            elif name == "age":
                age = int(rest)
            elif name == "RPC iostats version" and (program := _PROGRAM.search(rest)):
                version = int(program[2])
            elif name == "xprt":
                transports.append(_transport(*rest.split()))
            elif version and transports and len(numbers := rest.split()) >= len(_SUMS):
                row = [int(number) for number in numbers[: len(_SUMS) + 1]]
                operations[name] = OperationCounters(*row)
    except ValueError:
        raise CounterError(f"{path}: {line.strip()[:60]!r} has no counters") from None
    if not operations:
        raise CounterError(f"{path}: the text ends before its per-op statistics")
    minor = int(options.get("vers", "").partition(".")[2] or 0) if version == 4 else None
    address = options.get("addr", options.get("mountaddr", ""))
    return Mount(device, path, version, minor, options, age, tuple(transports), operations, address)


def _transport(kind: str, *numbers: str) -> TransportCounters:
    names = _COLUMNS.get(kind, ())
    return TransportCounters(kind, dict(zip(names, map(int, numbers), strict=False)))


def _unescaped(word: str) -> str:
    r"""Spaces and the like are octal there: '\040'."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), word)


def mount_of(mounts: Sequence[Mount], path: str) -> Mount | None:
    """The mount that holds a path, which is absolute; None where none does."""
    holding = (one for one in mounts if path == one.path or path.startswith(one.path.rstrip("/") + "/"))
    return max(holding, key=lambda one: len(one.path), default=None)


def mounts_since(now: Iterable[Mount], earlier: Iterable[Mount]) -> list[Mount]:
    """What each mount counted between two readings; of one that was made in between, all of it."""
    before = {one.path: one for one in earlier}
    return [one.since(before[one.path]) if one.path in before else one for one in now]


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
        raise CounterError(f"{line.strip()[:60]!r} has no counters") from None
    if not procedures:
        raise CounterError("this is no /proc/net/rpc/nfsd")
    return ServerCounters(procedures, operations, calls, bad, read, written)
