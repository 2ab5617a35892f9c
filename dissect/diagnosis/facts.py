"""Facts: all that detectors look at, gathered in one pass over a capture."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from ..link.walk_rows import FIRST_FRAGMENT, IP_FRAGMENT
from ..measure.statistics import EXACT as EXACT_LATENCIES, MAX_PROCEDURES, Procedure, ProcedureKey, Statistics
from ..onc.programs import procedure_label, program_label
from ..rpcrdma.analyzer import Analyzer
from ..rpcrdma.conversation import Conversation
from ..rpcrdma.rpc_table import RpcTable
from ..rpcrdma.rpcs import HostTrouble, Rpc
from ..transport.health import TransportHealth
from ..transport.retransmissions import Retransmission
from .host_facts import HostFacts
from .rpc_facts import Examples, RpcFacts, Sums, Unanswered

if TYPE_CHECKING:
    from ..audit.auditor import Auditor
    from ..measure.nfs_state import HeldState, NfsClient, NfsSession
    from .file_facts import FileFacts


LEAST = 2_000_000_000
"""Nanoseconds without an answer: far longer than any acknowledgement takes."""


class Silence(NamedTuple):
    """A host that fell silent."""

    address: str
    end: int
    """0 the client, 1 the server."""
    since: int
    """Nanoseconds since the epoch: when it was last seen, on any connection."""
    connections: tuple[int, ...]
    """On which it was sent something since then that it did not acknowledge."""


def silences(
    conversations: Iterable[Conversation], healths: Mapping[int, TransportHealth], last_time: int
) -> list[Silence]:
    """``last_time``: nanoseconds, the end of the capture.  An idle host is not silent: no host waits for it."""
    known = [
        (one.connection, healths[one.connection.number]) for one in conversations if one.connection.number in healths
    ]
    seen: dict[str, int] = {}
    for connection, health in known:
        answered = connection.last_time if connection.refused else 0
        if connection.endpoints[1].private_data_frame:
            answered = max(answered, connection.first_time)
        for end, host in enumerate(connection.endpoints):
            spoke = max(health.directions[end].last_time, answered if end else 0)
            seen[host.address] = max(seen.get(host.address, 0), spoke)
    waiting: dict[tuple[str, int], list[int]] = defaultdict(list)
    for connection, health in known:
        for end, host in enumerate(connection.endpoints):
            peer, since = health.directions[1 - end], seen[host.address]
            if not since or peer.waiting_since is None or peer.last_time <= since:
                continue
            if last_time - max(peer.waiting_since, since) >= LEAST:
                waiting[host.address, end].append(connection.number)
    return [Silence(*host, seen[host[0]], tuple(numbers)) for host, numbers in waiting.items()]


class Gathered:
    """What one pass gathers of RPCs for a report and for detectors."""

    def __init__(
        self, max_slowest: int = 10, exact: int = EXACT_LATENCIES, max_procedures: int = MAX_PROCEDURES
    ) -> None:
        """As ``Statistics`` has it."""
        self.statistics = Statistics(max_slowest, exact, max_procedures)
        self.rpcs = RpcFacts()
        self.hosts = HostFacts()

    def add_table(self, table: RpcTable) -> None:
        """Take the RPCs of a batch."""
        self.statistics.add_table(table)
        self.rpcs.add_table(table)
        self.hosts.add(table.objects)

    def add(self, rpcs: Sequence[Rpc]) -> None:
        """Take RPCs that have ended."""
        for rpc in rpcs:
            self.statistics.add(rpc)
        self.rpcs.add(rpcs)
        self.hosts.add(rpcs)

    def evict(self, conversations: Iterable[Conversation]) -> None:
        """Nothing more comes of these."""
        conversations = list(conversations)
        self.statistics.evict(conversations)
        self.rpcs.evict(conversations)

    def facts(
        self,
        analyzer: Analyzer,
        damage: str = "",
        files: FileFacts | None = None,
        auditor: Auditor | None = None,
        sessions: Sequence[NfsSession] | None = None,
        clients: Sequence[NfsClient] = (),
    ) -> Facts:
        """At the end of the capture that the analyzer was fed."""
        return Facts(
            self.statistics,
            self.rpcs,
            analyzer.conversations,
            {one.number: analyzer.health(one.number) for one in analyzer.connections},
            analyzer.earliest_time or 0,
            analyzer.last_time or 0,
            analyzer.frames,
            analyzer.truncated_frames,
            damage,
            files,
            auditor,
            analyzer.evicted.connections,
            sessions,
            {state.recalled_frame: state for one in clients for state in one.listed if state.recalled_frame},
            dropped_frames=analyzer.dropped_frames,
            ip_fragments=analyzer.skipped.get(FIRST_FRAGMENT, 0) + analyzer.skipped.get(IP_FRAGMENT, 0),
            mirrored=analyzer.mirrored,
            hosts=self.hosts,
            traced=analyzer.traced,
            troubles=analyzer.troubles,
        )


@dataclass
class Facts:
    """A capture, as detectors see it."""

    statistics: Statistics
    rpcs: RpcFacts
    conversations: list[Conversation]
    """Those that were not evicted."""
    healths: Mapping[int, TransportHealth]
    """By connection number."""
    first_time: int = 0
    """Nanoseconds since the epoch."""
    last_time: int = 0
    frames: int = 0
    truncated_frames: int = 0
    damage: str = ""
    """Why reading ended early."""
    files: FileFacts | None = None
    """None: not gathered."""
    auditor: Auditor | None = None
    """None: not judged."""
    evicted: int = 0
    """Connections of which only sums are kept."""
    sessions: Sequence[NfsSession] | None = None
    """Of NFSv4.1 and later; None: not gathered."""
    recalled: Mapping[int, HeldState] = field(default_factory=dict)
    """Delegations by the frame of their recall, as far as they were followed."""
    paths: Mapping[int, str] = field(default_factory=dict)
    """What the call that is outstanding the longest names, by its number."""
    ip_fragments: int = 0
    """Frames that hold a part of an IP packet."""
    dropped_frames: int = 0
    """Those that the capture itself says it lost."""
    mirrored: int = 0
    """Packets that were left out, because they came twice."""

    hosts: HostFacts = field(default_factory=HostFacts)
    """What traces of the hosts' kernels say."""
    traced: str = ""
    """'client' or 'server', whose kernel's trace it is, in place of frames."""
    troubles: Sequence[HostTrouble] = ()
    """Of the hosts' transports, likewise."""

    @property
    def gathered(self) -> set[str]:
        """What was gathered beside the RPCs."""
        there = {"files": self.files, "audit": self.auditor, "sessions": self.sessions}
        return {"", *(name for name, one in there.items() if one is not None)}

    @cached_property
    def procedures(self) -> list[Procedure]:
        """All procedures, the one with the most calls first."""
        return self.statistics.procedures()

    @cached_property
    def latency(self) -> int:
        """Nanoseconds, the sum over all RPCs."""
        return sum(one.waited for one in self.procedures)

    @cached_property
    def calls(self) -> int:
        return self.statistics.calls

    @cached_property
    def sums(self) -> dict[ProcedureKey, dict[int, Sums]]:
        """By procedure and connection; connection 0 is all that were too many to be counted one by one."""
        found: dict[ProcedureKey, dict[int, Sums]] = {}
        for (number, key), sums in self.rpcs.groups().items():
            found.setdefault(key, {})[number] = sums
        return found

    @cached_property
    def delays(self) -> dict[int, Examples]:
        """By connection, 0 for many evicted ones: RPCs that waited for a retransmission, and nanoseconds.  All that
        calls wait for a host that stopped responding is part of that statement."""
        found: dict[int, Examples] = defaultdict(Examples)
        for number, examples in self.rpcs.delays.items():
            found[number].join(examples)
        silent = {number for host in self.silences for number in host.connections}
        for one in self.rpcs.unanswered:
            if one.delayed and one.connection not in silent:
                found[one.connection].add(one.delayed, one.number, one.frame)
        return found

    @cached_property
    def by_number(self) -> dict[int, Conversation]:
        return {one.connection.number: one for one in self.conversations}

    @cached_property
    def silences(self) -> list[Silence]:
        """Hosts that fell silent."""
        return silences(self.conversations, self.healths, self.last_time)

    def in_vain(self, number: int, one: Retransmission) -> bool:
        """Whether it went to a host that had fallen silent."""
        return any(
            number in host.connections and one.initiator != host.end and host.since < (one.retransmission_time or 0)
            for host in self.silences
        )

    @property
    def span(self) -> int:
        """Nanoseconds from the first frame to the last."""
        return self.last_time - self.first_time

    @cached_property
    def waiting(self) -> int:
        """Nanoseconds, the sum over all RPCs of their latencies, and of the lower bounds of those without a reply."""
        return sum(one.waiting for one in self.procedures)

    @cached_property
    def hung(self) -> list[Unanswered]:
        """Calls without a reply that are outstanding for a known time, the longest first."""
        known = [one for one in self.rpcs.unanswered if one.waiting >= 0]
        return sorted(known, key=lambda one: (-one.waiting, one.number))

    def last_spoke(self, number: int, end: int, until: int) -> int:
        """Nanoseconds: the last packet that the host at this end of a connection sent to the other, on it or another
        that began before ``until``; 0 where none is known."""
        hosts = self._hosts(self.by_number[number])
        times = [
            self.healths[one.connection.number].directions[end].last_time
            for one in self.conversations
            if self._hosts(one) == hosts and one.connection.first_time < until
        ]
        return max(times, default=0)

    @staticmethod
    def _hosts(conversation: Conversation) -> tuple[str, str]:
        client, server = conversation.connection.endpoints
        return client.address, server.address

    def share(self, part: float) -> float:
        """Of the latency of all RPCs with a reply, if there are any: what decides whether a detector speaks, however
        long others hang."""
        whole = self.latency or self.waiting
        return part / whole if whole else 0.0

    def ends(self, number: int) -> str:
        """'connection 2, 10.0.0.2 to 10.0.0.1:20049'."""
        found = self.by_number.get(number)
        if found is None:
            return f"connection {number}" if number else "evicted connections"
        client, server = found.connection.endpoints
        port = f":{found.connection.service_port}" if found.connection.service_port else ""
        address = f"[{server.address}]" if port and ":" in server.address else server.address
        return f"connection {number}, {client.address} to {address}{port}"


def label(key: ProcedureKey) -> str:
    """'NFSv3 READ', 'NFSv4.1 WRITE GETATTR'."""
    program = program_label(key.program, key.version, key.minor_version) if key.program is not None else ""
    return f"{program} {procedure_label(key.name, key.operations)}".strip()
