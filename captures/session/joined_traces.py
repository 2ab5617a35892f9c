"""Traces of kernels beside a capture, or beside one another: the same RPCs, by XID, and how far clocks are apart."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from rdmascope.dissect.link.capture_points import Clocks, clocks_between
from rdmascope.dissect.named_tuple import NamedTuple
from rdmascope.dissect.records.report import joined_trace_record
from rdmascope.dissect.records.schema import Record
from rdmascope.dissect.rpcrdma.rpc_table import RpcTable
from rdmascope.dissect.rpcrdma.rpcs import HostTimes, Rpc
from rdmascope.dissect.units import count, duration, moment, plural

CLIENT, WIRE, SERVER = range(3)
"""Where RPCs are seen, in the order in which calls pass."""
_PLACES = {"client": CLIENT, "": WIRE, "server": SERVER}


class _Seen(NamedTuple):
    """An RPC of a trace."""

    client: str
    server: str
    """Addresses; '' where it does not tell."""
    program: int | None
    called: int
    """Nanoseconds, by its clock; the next, too."""
    replied: int
    host: HostTimes

    def fits(self, rpc: Rpc) -> bool:
        """It may be this RPC, which has its XID."""
        ends = (self.client, rpc.client), (self.server, rpc.server)
        return rpc.program in (None, self.program) and all(
            not (here and there) or here == there for here, there in ends
        )


class JoinedTrace:
    """A trace beside what is read."""

    def __init__(self, path: str, side: str, rpcs: Iterable[Rpc]) -> None:
        """``side``: of the trace, 'client' or 'server'; ``rpcs``: all that it has."""
        self.path, self._place = path, SERVER if side == "server" else CLIENT
        self._rpcs: defaultdict[int, list[_Seen]] = defaultdict(list)
        """By XID, those not found yet, in order."""
        self.rpcs = self.found = 0
        self._times: list[tuple[int, int, bool]] = []
        """By the clock of what is read, by its own; of a call."""
        for rpc in rpcs:
            if rpc.host is None or rpc.call is None or rpc.reply is None or rpc.connection.transport == "socket":
                continue
            self.rpcs += 1
            times = rpc.call.operation.first_time, rpc.reply.operation.last_time
            self._rpcs[rpc.xid].append(_Seen(rpc.client, rpc.server, rpc.program, *times, rpc.host))

    def add_to(self, rpc: Rpc, place: int) -> None:
        """What it tells of an RPC that is seen at another place."""
        for index, seen in enumerate(self._rpcs.get(rpc.xid, ())):
            if rpc.call is None or rpc.reply is None or not seen.fits(rpc):
                continue
            del self._rpcs[rpc.xid][index]
            self.found += 1
            call, reply = rpc.call.operation, rpc.reply.operation
            nearer = self._place < place
            self._times.append((call.first_time if nearer else call.last_time, seen.called, True))
            self._times.append((reply.last_time if nearer else reply.first_time, seen.replied, False))
            rpc.host = _merged(rpc.host, seen.host)
            return

    def clocks(self, place: int) -> Clocks | None:
        """Its clock and that of what is read at ``place``, which is ``Clocks``' other one."""
        if not self._times:
            return None
        there, mine, calls = (np.array(column) for column in zip(*self._times, strict=True))
        # Calls pass what is nearer to the client first, replies what is nearer to the server.
        return clocks_between(mine, there - mine, calls == (self._place < place))

    def record(self, place: int) -> Record:
        """The record ``joined_trace``."""
        side = "server" if self._place == SERVER else "client"
        return joined_trace_record(self.path, side, self.rpcs, self.found, self.clocks(place))

    def words(self, place: int) -> str:
        """What was joined, and by what clocks."""
        joined = f"{self.path}: {count(self.found)} of its {plural(self.rpcs, 'RPC')} over RDMA joined"
        clocks = self.clocks(place)
        if clocks is None:
            return f"{joined}: no RPC of it is there"
        error = "" if clocks.error is None else f", to {duration(clocks.error)}"
        drift = f"; it loses {clocks.drift * 1e6:.1f} µs a second" if clocks.drift else ""
        zero = int(clocks.offset - round(clocks.since * clocks.drift))
        if place == WIRE:
            return f"{joined}; its clock began at {moment(zero)}{error}{drift}"
        return f"{joined}; its clock is {duration(abs(zero))} {'behind' if zero > 0 else 'ahead'}{error}{drift}"


def _merged(known: HostTimes | None, more: HostTimes) -> HostTimes:
    """What two hosts tell."""
    if known is None:
        return more
    merged = known._replace(**{name: value for name, value in more._asdict().items() if value not in (None, ())})
    if merged.wire is not None and merged.answered is not None:
        merged = merged._replace(network=max(0, merged.wire - merged.answered))
    return merged


class JoinedTraces:
    """All traces that stand beside what is read."""

    def __init__(self, side: str, traces: Sequence[JoinedTrace]) -> None:
        """``side``: of the trace that is read, 'client' or 'server'; '' for a capture."""
        self._place, self.traces = _PLACES[side], traces

    def add_to(self, table: RpcTable) -> RpcTable:
        """The RPCs of a table as objects, with what the traces tell."""
        rpcs = list(table)
        for rpc in rpcs:
            for trace in self.traces:
                trace.add_to(rpc, self._place)
        return RpcTable(rpcs, names=table.names)

    def records(self) -> list[Record]:
        """A record for each."""
        return [trace.record(self._place) for trace in self.traces]

    def remarks(self) -> Iterator[str]:
        """A line for each."""
        return (trace.words(self._place) for trace in self.traces)
