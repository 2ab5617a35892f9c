"""Facts: everything that detectors look at, gathered in one pass over a capture.  Detector: one small function over the
facts, with everything there is to say about what it finds.  Diagnosis: the statements of all detectors on one capture,
in order of weight."""

from __future__ import annotations

import inspect
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING

from ..frames import Clock
from ..link.walk import FIRST_FRAGMENT, IP_FRAGMENT
from ..measure.statistics import (
    EXACT as EXACT_LATENCIES,
    MAX_PROCEDURES,
    Procedure,
    ProcedureKey,
    Statistics,
    procedure_key,
)
from ..named_tuple import NamedTuple
from ..onc.rpc_header import procedure_label, program_label
from ..plugged import escaped, guarded, import_all
from ..rpcrdma.analyzer import Analyzer
from ..rpcrdma.conversation import Conversation
from ..rpcrdma.rpc_table import RpcTable
from ..rpcrdma.rpcs import HostTimes, HostTrouble, Rpc
from ..transport.health import TransportHealth
from ..transport.retransmissions import Retransmission
from ..units import with_port
from .rpc_facts import Examples, RpcFacts, Sums, Unanswered

if TYPE_CHECKING:
    from ..audit.auditor import Auditor
    from ..measure.nfs_state import HeldState, NfsClient, NfsSession
    from .file_facts import FileFacts

CLIENT_PHASES, SERVER_PHASES = HostTimes._fields[:9], HostTimes._fields[9:16]
SLOTS, SESSION_SLOTS = "xprt_backlog", "ForeChannel Slot table"
"""Wait queues of Linux's client: for a slot of the transport, and for a slot of the NFSv4.1 session."""


class HostSums:
    """Sums from kernels' traces, for one procedure or all."""

    __slots__ = ("calls", "times")

    def __init__(self) -> None:
        self.calls = 0
        self.times: Counter[str] = Counter()
        """Nanoseconds, by field of HostTimes and by wait queue."""

    def add(self, host: HostTimes) -> None:
        """Add the times of one RPC."""
        self.calls += 1
        times = self.times
        for name, value in zip(HostTimes._fields, host, strict=True):
            if value and isinstance(value, int):
                times[name] += value
        for queue, waited in host.waits:
            times[queue] += waited

    def whole(self, side: str) -> int:
        """Nanoseconds of all phases of a side, 'client' or 'server'."""
        return sum(self.times[name] for name in (CLIENT_PHASES if side == "client" else SERVER_PHASES))


class HostFacts:
    """Takes RPCs as they end; those without a trace of a host do not count."""

    def __init__(self) -> None:
        self.all = HostSums()
        self.procedures: dict[ProcedureKey, HostSums] = {}
        self.examples: defaultdict[str, Examples] = defaultdict(Examples)
        """By field of HostTimes, and by wait queue: RPCs, weighted by that time."""
        self.late_sends = Examples()
        """RPCs whose reply's Send completed so late that it must have been retransmitted, weighted by that delay."""
        self.latest_send = 0
        """The longest such delay, ns."""
        self.small_replies = Examples()
        """RPCs with a Reply chunk whose reply would have fit inline, weighted by the cost of the memory."""

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
"""Bytes of a reply that fits inline at every inline threshold (RFC 8166, 3.3.2)."""


LEAST = 2_000_000_000
"""Nanoseconds without an answer: much longer than any acknowledgement takes."""


class Silence(NamedTuple):
    """A host that fell silent."""

    address: str
    end: int
    """0 the client, 1 the server."""
    since: int
    """Nanoseconds since the epoch: when it was last seen on any connection."""
    until: int
    """Nanoseconds since the epoch: end of the capture."""
    connections: tuple[int, ...]
    """Connections on which it was sent something since then without acknowledging it."""


def silences(
    conversations: Iterable[Conversation], healths: Mapping[int, TransportHealth], end_of: Callable[[int], int]
) -> list[Silence]:
    """Hosts that fell silent.  ``end_of``: the end of the capture, ns, by its clock as it runs from a frame on.

    An idle host is not silent, as no host waits for it.  A capture shows no silence if it has packets of one direction
    only, or lacks packets, or any acknowledgement of what was not retransmitted.
    """
    known = [
        (conversation.connection, healths[conversation.connection.number])
        for conversation in conversations
        if conversation.connection.number in healths
    ]
    seen: dict[str, int] = {}
    for connection, health in known:
        answered = connection.last_time if connection.refused else 0
        if connection.endpoints[1].private_data_frame:
            answered = max(answered, connection.first_time)
        for end, host in enumerate(connection.endpoints):
            spoke = max(health.directions[end].last_time, answered if end else 0)
            seen[host.address] = max(seen.get(host.address, 0), spoke)
    waiting: dict[tuple[str, int], dict[int, int]] = defaultdict(dict)
    for connection, health in known:
        for end, host in enumerate(connection.endpoints):
            mine, peer, since = health.directions[end], health.directions[1 - end], seen[host.address]
            if not since or peer.waiting_since is None or peer.last_time <= since or connection.one_sided:
                continue
            lacking = any(connection.gaps) or not mine.acknowledgements
            if mine.packets and lacking and not peer.retransmitted.packets:
                continue
            until = end_of(connection.last_frame)
            if until - max(peer.waiting_since, since) >= LEAST:
                waiting[host.address, end][connection.number] = until
    return [Silence(*host, seen[host[0]], max(ends.values()), tuple(ends)) for host, ends in waiting.items()]


class Gathered:
    """What one pass gathers of RPCs for a report and for detectors."""

    def __init__(
        self, max_slowest: int = 10, exact: int = EXACT_LATENCIES, max_procedures: int = MAX_PROCEDURES
    ) -> None:
        """Takes the parameters of ``Statistics``."""
        self.statistics = Statistics(max_slowest, exact, max_procedures)
        self.rpcs = RpcFacts()
        self.hosts = HostFacts()

    def add_table(self, table: RpcTable) -> None:
        """Take the RPCs of a batch."""
        self.statistics.add_table(table)
        self.rpcs.add_table(table)
        self.hosts.add(table.unusual)

    def evict(self, conversations: Iterable[Conversation]) -> None:
        """No more RPCs of these conversations come."""
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
        """The facts at the end of the capture that the analyzer was fed."""
        return Facts(
            self.statistics,
            self.rpcs,
            analyzer.conversations,
            {connection.number: analyzer.health(connection.number) for connection in analyzer.connections},
            analyzer.earliest_time or 0,
            analyzer.last_time or 0,
            analyzer.clock,
            analyzer.frames,
            analyzer.truncated_frames,
            damage,
            files,
            auditor,
            analyzer.evicted.connections,
            sessions,
            {state.recalled_frame: state for client in clients for state in client.listed if state.recalled_frame},
            dropped_frames=analyzer.dropped_frames,
            time_steps=analyzer.time_steps,
            ip_fragments=analyzer.skipped.get(FIRST_FRAGMENT, 0) + analyzer.skipped.get(IP_FRAGMENT, 0),
            mirrored=analyzer.mirrored,
            hosts=self.hosts,
            traced=analyzer.traced,
            troubles=analyzer.troubles,
        )


@dataclass(eq=False)
class Facts:
    """A capture, as detectors see it."""

    statistics: Statistics
    rpcs: RpcFacts
    conversations: list[Conversation]
    """The conversations that were not evicted."""
    healths: Mapping[int, TransportHealth]
    """By connection number."""
    first_time: int = 0
    """Nanoseconds since the epoch."""
    last_time: int = 0
    clock: Clock | None = None
    """None: the clock was never set back."""
    frames: int = 0
    truncated_frames: int = 0
    damage: str = ""
    """Why reading ended early."""
    files: FileFacts | None = None
    """None: not gathered."""
    auditor: Auditor | None = None
    """None: not judged."""
    evicted: int = 0
    """Number of connections of which only sums are kept."""
    sessions: Sequence[NfsSession] | None = None
    """NFSv4.1 and later; None: not gathered."""
    recalled: Mapping[int, HeldState] = field(default_factory=dict)
    """By frame of the recall: delegations, as far as they were followed."""
    paths: Mapping[int, str] = field(default_factory=dict)
    """By RPC number: the path that the longest outstanding call names."""
    ip_fragments: int = 0
    """Number of frames with a fragment of an IP packet."""
    dropped_frames: int = 0
    """Number of frames that the capture says it lost."""
    time_steps: Collection[int] = ()
    """Resolutions of its time stamps in nanoseconds, over all interfaces."""
    mirrored: int = 0
    """Packets left out because they came twice."""

    hosts: HostFacts = field(default_factory=HostFacts)
    """What the traces of the hosts' kernels tell."""
    traced: str = ""
    """Host whose kernel's trace it is instead of frames, 'client' or 'server'."""
    troubles: Sequence[HostTrouble] = ()
    """Troubles of the hosts' transports, from the same traces."""

    @property
    def gathered(self) -> set[str]:
        """What was gathered besides RPCs."""
        there = {"files": self.files, "audit": self.auditor, "sessions": self.sessions}
        return {"", *(name for name, value in there.items() if value is not None)}

    @cached_property
    def procedures(self) -> list[Procedure]:
        """All procedures, the one with the most calls first."""
        return self.statistics.procedures()

    @cached_property
    def latency(self) -> int:
        """Nanoseconds, summed over all RPCs with a reply."""
        return sum(procedure.waited for procedure in self.procedures)

    @cached_property
    def calls(self) -> int:
        return self.statistics.calls

    @cached_property
    def sums(self) -> dict[ProcedureKey, dict[int, Sums]]:
        """By procedure and connection; connection 0 stands for all that were too many to count individually."""
        by_connection: dict[ProcedureKey, dict[int, Sums]] = {}
        for (number, key), sums in self.rpcs.groups().items():
            by_connection.setdefault(key, {})[number] = sums
        return by_connection

    @cached_property
    def delays(self) -> dict[int, Examples]:
        """By connection, 0 for evicted ones: RPCs that waited for a retransmission, and nanoseconds.  Waits for a host
        that stopped responding are left out, as they belong to that statement."""
        delayed: dict[int, Examples] = defaultdict(Examples)
        for number, examples in self.rpcs.delays.items():
            delayed[number].join(examples)
        silent = {number for host in self.silences for number in host.connections}
        for unanswered in self.rpcs.unanswered:
            if unanswered.delayed and unanswered.connection not in silent:
                delayed[unanswered.connection].add(unanswered.delayed, unanswered.number, unanswered.frame)
        return delayed

    @cached_property
    def by_number(self) -> dict[int, Conversation]:
        return {conversation.connection.number: conversation for conversation in self.conversations}

    def end_of(self, frame: int) -> int:
        """The end of the capture, ns, by its clock as it runs from ``frame`` on."""
        return self.last_time if self.clock is None else self.clock.end(frame)

    @cached_property
    def silences(self) -> list[Silence]:
        """Hosts that fell silent."""
        return silences(self.conversations, self.healths, self.end_of)

    def in_vain(self, number: int, retransmission: Retransmission) -> bool:
        """Whether a retransmission went to a host that had fallen silent."""
        return any(
            number in host.connections
            and retransmission.initiator != host.end
            and host.since < (retransmission.retransmission_time or 0)
            for host in self.silences
        )

    @property
    def span(self) -> int:
        """Nanoseconds from the first frame to the last."""
        return self.last_time - self.first_time

    @cached_property
    def waiting(self) -> int:
        """Nanoseconds, summed over all RPCs: latencies, and lower bounds for RPCs without a reply."""
        return sum(procedure.waiting for procedure in self.procedures)

    @cached_property
    def hung(self) -> list[Unanswered]:
        """Unanswered calls that have been outstanding for a known time, the longest first."""
        known = [call for call in self.rpcs.unanswered if call.waiting >= 0 and not self.unacknowledged(call)]
        return sorted(known, key=lambda unanswered: (-unanswered.waiting, unanswered.number))

    def unacknowledged(self, call: Unanswered) -> bool:
        """Whether nothing acknowledges the call, and yet its sender retransmitted nothing: then the capture lacks what
        the other end sent."""
        health = self.healths.get(call.connection)
        if health is None:
            return False
        caller = health.directions[int(call.backward)]
        since = caller.waiting_since
        return since is not None and since <= call.time and not caller.retransmitted.packets

    def last_spoke(self, number: int, end: int, until: int) -> tuple[int, int]:
        """Nanoseconds: when the host at this end of a connection last sent a packet to the other host, on this or
        another connection that began before ``until``, and when it last sent one to any host; 0 if unknown."""
        hosts = self._hosts(self.by_number[number])
        times = [
            (self.healths[conversation.connection.number].directions[end].last_time, self._hosts(conversation))
            for conversation in self.conversations
            if self._hosts(conversation)[end] == hosts[end] and conversation.connection.first_time < until
        ]
        return max([time for time, between in times if between == hosts], default=0), max(times, default=(0,))[0]

    @staticmethod
    def _hosts(conversation: Conversation) -> tuple[str, str]:
        client, server = conversation.connection.endpoints
        return client.address, server.address

    def share(self, part: float) -> float:
        """Share of the latency of all RPCs with a reply, if there are any: it decides whether a detector reports,
        however long other RPCs hang."""
        whole = self.latency or self.waiting
        return part / whole if whole else 0.0

    def ends(self, number: int) -> str:
        """'connection 2, 10.0.0.2 to 10.0.0.1:20049'."""
        conversation = self.by_number.get(number)
        if conversation is None:
            return f"connection {number}" if number else "evicted connections"
        connection = conversation.connection
        client, server = connection.endpoints
        return f"connection {number}, {client.address} to {with_port(server.address, connection.service_port)}"


def label(key: ProcedureKey) -> str:
    """'NFSv3 READ', 'NFSv4.1 WRITE GETATTR'."""
    program = program_label(key.program, key.version, key.minor_version) if key.program is not None else ""
    return f"{program} {procedure_label(key.name, key.operations)}".strip()


class Severity(StrEnum):
    """How much a statement matters; the strongest first."""

    PROBLEM = "problem"
    """It delays or fails RPCs."""
    WARNING = "warning"
    """It may do so, or it wastes work."""
    NOTE = "note"
    """It limits the other statements, and does no harm by itself."""


SEVERITIES = tuple(Severity)


@dataclass(frozen=True, slots=True, eq=False)
class Cause:
    """A finding of one detector, before it is ranked."""

    text: str
    """What is wrong, in one sentence without a full stop."""
    count: int
    """How often; the text tells what is counted."""
    share: float | None = None
    """0 to 1: share of ``share_of``; None if there is no such number, or it is derived from ``lost``."""
    share_of: str = ""
    """'the time that all RPCs waited', 'all RPCs', …"""
    since: int | None = None
    """Nanoseconds since the epoch: when it began; None if unknown."""
    evidence: tuple[str, ...] = ()
    """What shows it, line by line; the worst first."""
    connections: tuple[int, ...] = ()
    """Numbers of the connections, the worst first."""
    rpcs: tuple[int, ...] = ()
    """Numbers of some of the RPCs, the worst first."""
    frames: tuple[int, ...] = ()
    """Some of the frames."""
    confidence: float = 1.0
    """0 to 1."""
    weakened_by: tuple[str, ...] = ()
    """What makes it less certain, one sentence each."""
    severity: Severity | None = None
    """If it differs from the detector's."""
    lost: int | None = None
    """Nanoseconds that RPCs, or their callers, waited because of it; None if unknown."""
    headline: str = ""
    """A sentence to put before everything else that is said of a capture."""
    harmless: bool = False
    """A note that does not weaken other statements."""
    procedures: tuple[str, ...] = ()
    """Procedures that it is about, if not connections: 'NFSv3 READ', …"""
    title: str = ""
    """If it differs from the detector's."""


class Statement(NamedTuple):
    """A cause with its rank, and what its detector says about all causes of its kind."""

    kind: str
    """The detector: 'packets-lost'."""
    severity: Severity
    rank: int
    """1-based: the first matters most."""
    cause: Cause
    title: str
    explanation: str
    """What it means and why, in plain words."""
    next_steps: tuple[str, ...]
    """What to look at next: a command or a place each."""


class Threshold(NamedTuple):
    """A number that decides whether a detector reports."""

    value: float
    meaning: str
    """What is compared with it, with its unit."""


Limits = Mapping[str, float]
"""The thresholds by name."""

Detect = Callable[[Facts, Limits], Iterable[Cause]]


class Detector(NamedTuple):
    """``detect`` returns causes if something is wrong, and none for a healthy capture."""

    kind: str
    title: str
    severity: Severity
    looks_at: str
    """What it reads: statistics, transport health, …"""
    thresholds: Mapping[str, Threshold]
    next_steps: tuple[str, ...]
    needs: str
    """What it needs besides RPCs: '', 'files', 'audit' or 'sessions'."""
    uses: str
    """What makes it more certain if it was gathered, likewise."""
    detect: Detect
    leads: bool = False
    """Its statements come before all others, as they explain these."""
    follows_from: tuple[str, ...] = ()
    """Kinds whose statements take its own as evidence if they are about the same procedures or connections."""

    @property
    def limits(self) -> Limits:
        return {name: threshold.value for name, threshold in self.thresholds.items()}

    @property
    def explanation(self) -> str:
        """The docstring, one line of text."""
        return " ".join((inspect.getdoc(self.detect) or "").split())


_DETECTORS: dict[str, Detector] = {}


def detector(
    kind: str,
    title: str,
    severity: Severity,
    looks_at: str,
    thresholds: Mapping[str, tuple[float, str]],
    next_steps: Iterable[str],
    *,
    needs: str = "",
    uses: str = "",
    leads: bool = False,
    follows_from: Iterable[str] = (),
) -> Callable[[Detect], Detect]:
    """Register the decorated function as a detector."""

    def register(detect: Detect) -> Detect:
        if kind in _DETECTORS and inspect.unwrap(_DETECTORS[kind].detect).__code__ != detect.__code__:
            raise ValueError(f"there is a detector {kind} already")
        data = {name: Threshold(*threshold) for name, threshold in thresholds.items()}
        _DETECTORS[kind] = Detector(
            kind,
            title,
            severity,
            looks_at,
            data,
            tuple(next_steps),
            needs,
            uses,
            guarded(detect, ()),
            leads,
            tuple(follows_from),
        )
        return detect

    return register


def all_detectors() -> dict[str, Detector]:
    """Every detector of the package by kind, in the order of kinds."""
    import_all(__name__.rpartition(".")[0] + ".detectors")
    return dict(sorted(_DETECTORS.items()))


_HEAD = """# What a diagnosis looks for

`rdmascope diagnose FILE` runs all of these detectors, and `rdmascope report` those that need neither the audit nor the
contents of messages. A detector reports only what meets its thresholds; for a healthy capture there is no statement.
This page is written from the detectors' own data by `python tests/dissect/diagnosis/test_page.py`.

A *problem* delays or fails RPCs, a *warning* may do so or wastes work, a *note* limits the other statements.
Statements are sorted by the time that RPCs, or clients without a connection, waited, weighted by how sure they are,
and then in this order; notes come last.
"""


def detector_lines(detector: Detector) -> list[tuple[str, str]]:
    """What there is to know of a detector, as (name, text), in the order of a page."""
    lines = [("Severity", detector.severity.value), ("Looks at", detector.looks_at), ("Means", detector.explanation)]
    if detector.thresholds:
        limits = "; ".join(f"{threshold.meaning}: {threshold.value:g}" for threshold in detector.thresholds.values())
        lines.append(("Thresholds", limits))
    lines.append(("Look at next", "; ".join(detector.next_steps)))
    return lines


def markdown(detectors: Iterable[Detector]) -> str:
    """The whole of ``docs/diagnosis.md``."""
    detectors = list(detectors)
    parts = [_HEAD, "\n| detector | severity | reports |\n| --- | --- | --- |\n"]
    parts += [
        f"| [{detector.kind}](#{detector.kind}) | {detector.severity.value} | {escaped(detector.title)} |\n"
        for detector in detectors
    ]
    for detector in detectors:
        parts.append(f"\n## {detector.kind}\n\n{escaped(detector.title)}.\n\n")
        parts += [f"- **{name}**: {escaped(text)}\n" for name, text in detector_lines(detector)]
    return "".join(parts)


class Diagnosis(NamedTuple):
    """What is wrong, the worst first."""

    statements: tuple[Statement, ...]
    not_looked_at: tuple[str, ...]
    """Kinds of detectors that could not run: what they need was not gathered."""
    connections: int
    """Number of RDMA connections in the capture; without any there was nothing to judge."""

    @property
    def healthy(self) -> bool:
        """Whether nothing is wrong as far as the capture shows; notes are about the capture itself."""
        return all(statement.severity is Severity.NOTE for statement in self.statements)

    @property
    def worst(self) -> Severity | None:
        return min((statement.severity for statement in self.statements), key=SEVERITIES.index, default=None)


def diagnose(facts: Facts, kinds: Collection[str] = ()) -> Diagnosis:
    """Run the detectors of these ``kinds``, by default all."""
    causes: list[tuple[Detector, Cause]] = []
    skipped: list[str] = []
    for detector in all_detectors().values():
        if kinds and detector.kind not in kinds:
            continue
        if detector.needs not in facts.gathered:
            skipped.append(detector.kind)
            continue
        causes += [
            (detector, replace(cause, severity=cause.severity or detector.severity))
            for cause in detector.detect(facts, detector.limits)
        ]
    weakened = tuple(cause.text for _, cause in causes if cause.severity is Severity.NOTE and not cause.harmless)
    connections = len(facts.conversations) + facts.evicted
    return ranked(_gathered(causes), facts.waiting, connections, weakened, tuple(skipped))


def ranked(
    causes: list[tuple[Detector, Cause]],
    waiting: int,
    connections: int,
    weakened: tuple[str, ...] = (),
    skipped: tuple[str, ...] = (),
) -> Diagnosis:
    """The diagnosis with the causes as statements, the worst first.

    ``waiting``: nanoseconds that all RPCs waited; ``weakened``: what makes everything but notes less certain.
    """
    statements = tuple(
        _statement(rank, detector, _shared(waiting, cause), () if cause.severity is Severity.NOTE else weakened)
        for rank, (detector, cause) in enumerate(sorted(causes, key=_weight), 1)
    )
    return Diagnosis(statements, skipped, connections)


def _strength(severity: Severity | None) -> int:
    return len(SEVERITIES) if severity is None else SEVERITIES.index(severity)


def _weight(pair: tuple[Detector, Cause]) -> tuple[object, ...]:
    detector, cause = pair
    lost = -(cause.lost or 0) * cause.confidence
    return not detector.leads, cause.severity is Severity.NOTE, lost, _strength(cause.severity), -cause.count


def _gathered(causes: list[tuple[Detector, Cause]]) -> list[tuple[Detector, Cause]]:
    """Merge related causes: what follows from another statement becomes evidence of it."""
    by_kind: dict[str, list[int]] = {}
    for at, (detector, _) in enumerate(causes):
        by_kind.setdefault(detector.kind, []).append(at)
    kept = list(causes)
    taken: set[int] = set()
    for at in sorted(range(len(causes)), key=lambda at: -len(causes[at][0].follows_from)):
        detector, cause = kept[at]
        for other in (other for kind in detector.follows_from for other in by_kind.get(kind, ())):
            first, source = kept[other]
            mine, theirs = (
                (cause.procedures, source.procedures) if cause.procedures else (cause.connections, source.connections)
            )
            if not mine or not set(mine) <= set(theirs):
                continue
            joined = replace(
                source,
                since=source.since or cause.since,
                severity=min((source.severity, cause.severity), key=_strength),
                evidence=(f"{cause.title or detector.title}: {cause.text}", *source.evidence),
                lost=max((lost for lost in (source.lost, cause.lost) if lost is not None), default=None),
                headline=source.headline or cause.headline,
            )
            kept[other] = first, joined
            taken.add(at)
            break
    return [pair for at, pair in enumerate(kept) if at not in taken]


def _shared(waiting: int, cause: Cause) -> Cause:
    """The cause with its share of the time that RPCs waited, if it has no other share."""
    if cause.lost is None or cause.share_of or not waiting:
        return cause
    # Parts of latencies are kept with seven digits (``measure.statistics``).
    return replace(cause, share=round(cause.lost / waiting, 6), share_of="the time that all RPCs waited")


def _statement(rank: int, detector: Detector, cause: Cause, weakened: tuple[str, ...]) -> Statement:
    if weakened:
        # The capture may lack what would explain it.
        confidence = round(cause.confidence * 0.8, 2)
        cause = replace(cause, confidence=confidence, weakened_by=(*cause.weakened_by, *weakened))
    assert cause.severity is not None
    return Statement(
        detector.kind,
        cause.severity,
        rank,
        cause,
        cause.title or detector.title,
        detector.explanation,
        detector.next_steps,
    )
