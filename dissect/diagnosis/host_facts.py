"""What traces of the hosts' kernels say of where RPCs spent their time, by procedure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from ..measure.statistics import ProcedureKey, procedure_key
from ..rpcrdma.rpcs import HostTimes, Rpc
from .rpc_facts import Examples

CLIENT_PHASES, SERVER_PHASES = HostTimes._fields[:9], HostTimes._fields[9:16]
SLOTS, SESSION_SLOTS = "xprt_backlog", "ForeChannel Slot table"
"""Wait queues of Linux's client: for a slot of the transport, and for one of the NFSv4.1 session."""


class HostSums:
    """Of one procedure, or of all."""

    __slots__ = ("calls", "times")

    def __init__(self) -> None:
        self.calls = 0
        self.times: Counter[str] = Counter()
        """Nanoseconds, by field of HostTimes, and by wait queue."""

    def add(self, host: HostTimes) -> None:
        """One RPC."""
        self.calls += 1
        times = self.times
        for name, value in zip(HostTimes._fields, host, strict=True):
            if value and isinstance(value, int):
                times[name] += value
        for queue, waited in host.waits:
            times[queue] += waited

    def whole(self, side: str) -> int:
        """Nanoseconds: all phases of a side, 'client' or 'server'."""
        return sum(self.times[name] for name in (CLIENT_PHASES if side == "client" else SERVER_PHASES))


class HostFacts:
    """Fed RPCs as they end; those without a trace of a host do not count."""

    def __init__(self) -> None:
        self.all = HostSums()
        self.procedures: dict[ProcedureKey, HostSums] = {}
        self.examples: defaultdict[str, Examples] = defaultdict(Examples)
        """By field of HostTimes and wait queue: RPCs, weighed by it."""
        self.late_sends = Examples()
        """RPCs whose reply's Send completed so late that it must have been retransmitted, weighed by that."""
        self.latest_send = 0
        """Nanoseconds."""
        self.small_replies = Examples()
        """RPCs with a Reply chunk whose reply would have gone inline, weighed by what its memory cost."""

        self.small_procedures: set[ProcedureKey] = set()

    def add(self, rpcs: Iterable[Rpc]) -> None:
        """Take RPCs."""
        for rpc in rpcs:
            if rpc.host is None:
                continue
            key = procedure_key(rpc)
            sums = self.procedures.get(key)
            if sums is None:
                sums = self.procedures[key] = HostSums()
            sums.add(rpc.host)
            self.all.add(rpc.host)
            for name in WATCHED:
                if value := getattr(rpc.host, name):
                    self.examples[name].add(value, rpc.number, rpc.call_frame)
            for queue, waited in rpc.host.waits:
                self.examples[queue].add(waited, rpc.number, rpc.call_frame)
            if (rpc.host.sent or 0) >= LATE:
                self.late_sends.add(rpc.host.sent or 0, rpc.number, rpc.call_frame)
                self.latest_send = max(self.latest_send, rpc.host.sent or 0)
            reply = next((chunk.returned for chunk in rpc.chunks if chunk.kind == "reply"), None)
            if reply is not None and 0 < reply <= INLINE:
                self.small_procedures.add(key)
                cost = (rpc.host.registered or 0) + (rpc.host.invalidated or 0)
                self.small_replies.add(cost, rpc.number, rpc.call_frame)


WATCHED = ("registration_wait", "thread", "file_system", "network", "invalidated")
LATE = 1_000_000_000
"""Nanoseconds: longer than adapters take without a retransmission."""
INLINE = 1024
"""Bytes of a reply that goes inline at every inline threshold (RFC 8166, 3.3.2)."""
