"""Two captures beside each other: of the same traffic at two points, or of two runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from rdmascope.dissect.audit.auditor import Auditor
from rdmascope.dissect.diagnosis.facts import Statement, all_detectors, diagnose
from rdmascope.dissect.link.addresses import AddressTable
from rdmascope.dissect.link.capture_points import CommonTraffic, Sightings, common_traffic, lone_packets
from rdmascope.dissect.measure.comparison import (
    COLUMNS,
    ProcedureCalls,
    RpcColumns,
    called,
    costs,
    same_traffic,
    settings,
    two_runs,
)
from rdmascope.dissect.named_tuple import NamedTuple
from rdmascope.dissect.onc.rpc_header import NFS
from rdmascope.dissect.records.comparison import PointsCompared, RunsCompared
from rdmascope.dissect.records.rpc_columns import RpcBatches, TableBuilder
from rdmascope.dissect.records.tables import TABLES
from rdmascope.dissect.rpcrdma.conversation import ENDS
from rdmascope.dissect.rpcrdma.rpc_table import RpcTable

from ..errors import CaptureError
from ..read.merge import look
from ..tables.saved import holds_tables
from .diagnosis_pass import facts_of
from .session import Session


def compare(before: Session, after: Session) -> PointsCompared | RunsCompared:
    """Which of the two it is follows from the packets: whether both captures show the same.

    Of saved tables or a data set, which hold no packets, it is two runs.  Raises CaptureError where a capture cannot be
    opened, or a trace is of the other's RPCs; damage is left in the sessions.
    """
    if any(holds_tables(path) for session in (before, after) for path in session.paths):
        return _runs(before, after)
    return same_traffic_of(before, after) or _runs(before, after)


def at_other_points(session: Session, opened: Callable[[Sequence[str]], Session]) -> Iterator[PointsCompared]:
    """A session's traffic at each of its other capture points and the first one, once it was read to its end.

    ``opened``: gives a session of some of its files.
    """
    for point in session.other_points:
        traffic = same_traffic_of(opened(session.ring(point.first)), opened(session.ring(point.path)))
        if traffic is not None:
            yield traffic


def same_traffic_of(before: Session, after: Session) -> PointsCompared | None:
    """What two captures of the same traffic tell; None where they are of different traffic."""
    addresses = AddressTable()
    first, other = look(before.paths, addresses), look(after.paths, addresses)
    common = common_traffic(first[0], other[0], apart=0)
    if common is None:
        return None
    columns = _columns(before), _columns(after)
    pair = CapturePair((before, after), columns, (first[0], other[0]))
    if _servers_first(common, columns[0], addresses):
        pair = CapturePair(pair.sessions[::-1], pair.columns[::-1], pair.sightings[::-1])
        turned = common_traffic(*pair.sightings, apart=0)
        assert turned is not None
        common = turned
    (near, far), (called, answered), sightings = pair
    rpcs = same_traffic(called, answered, common.clocks.at)
    lone = lone_packets(*sightings, common)
    return PointsCompared(near.path, far.path, common, first[1] and other[1], rpcs, *lone)


class CapturePair(NamedTuple):
    """What is known of two captures, that nearer to the clients first."""

    sessions: tuple[Session, Session]
    columns: tuple[RpcColumns, RpcColumns]
    sightings: tuple[Sightings, Sightings]


def _servers_first(common: CommonTraffic, columns: RpcColumns, addresses: AddressTable) -> bool:
    """Whether what the servers send passes the first point first."""
    passing = {tuple(addresses.name(addresses.id(end)) for end in ends) for ends in common.passing}
    ends = set(zip(columns["client"].filled("").tolist(), columns["server"].filled("").tolist(), strict=True))
    return not passing & ends and any(end[::-1] in passing for end in ends)


class RunFacts(NamedTuple):
    """What is compared of a run."""

    name: str
    seconds: float
    called: Mapping[str, ProcedureCalls]
    statements: Sequence[Statement]
    settings: Mapping[str, Sequence[str]]
    violations: Counter[tuple[str, str]]
    """By id of the rule and role of the end."""
    transports: Sequence[str]
    """Transports that carried NFS."""


def differences(before: RunFacts, after: RunFacts) -> RunsCompared:
    """What differs between two runs, but for what an RPC cost."""
    names = dict.fromkeys((*before.settings, *after.settings))
    agreed = [(name, before.settings.get(name, ()), after.settings.get(name, ())) for name in names]
    rules = sorted({*before.violations, *after.violations})
    broken = [(rule, end, before.violations[rule, end], after.violations[rule, end]) for rule, end in rules]
    return RunsCompared(
        before.name,
        after.name,
        (before.seconds, after.seconds),
        two_runs(before.called, after.called),
        _only(before.statements, after.statements),
        _only(after.statements, before.statements),
        [difference for difference in agreed if difference[1] != difference[2]],
        [difference for difference in broken if not (difference[2] and difference[3])],
        (before.transports, after.transports),
    )


def _runs(before: Session, after: Session) -> RunsCompared:
    runs = [_Run(before), _Run(after)]
    if before.traced or after.traced:
        mine, theirs = ({*run.columns["xid"].compressed().tolist()} for run in runs)
        if 2 * len(mine & theirs) > min(len(mine), len(theirs)):
            joined = f"rdmascope report {before.path} {after.path}"
            raise CaptureError(f"{before.path} and {after.path} tell of the same RPCs; what joins them: {joined}")
    both = runs[0].facts.gathered & runs[1].facts.gathered
    kinds = [detector.kind for detector in all_detectors().values() if detector.needs in both]
    found_runs = differences(*(run.compared(kinds) for run in runs))
    first, second = found_runs.rdma
    if first == second or not all(found_runs.transports):
        return found_runs
    ways = runs[0].way_to_server, runs[1].way_to_server
    return replace(found_runs, costs=costs((runs[0].columns, runs[1].columns), ways))


def _only(mine: Sequence[Statement], others: Sequence[Statement]) -> list[Statement]:
    """The worst of each kind that only one of two diagnoses has."""
    known = {other.kind for other in others}
    worst: dict[str, Statement] = {}
    for statement in mine:
        if statement.kind not in known:
            worst.setdefault(statement.kind, statement)
    return [*worst.values()]


class _Run:
    """What one pass over a capture gives."""

    def __init__(self, session: Session) -> None:
        self.session = session
        columns = _ColumnsOfRpcs(session)
        self.facts = facts_of(session, on_table=columns.add)
        self.columns = columns.builder.take()
        nfs = self.columns["program_number"].filled(0) == NFS
        used = set(self.columns["connection"][nfs].filled(0).tolist())
        conversations = [
            conversation for conversation in session.analyzer.conversations if conversation.connection.number in used
        ]
        self.transports = tuple(dict.fromkeys(conversation.connection.transport for conversation in conversations))
        healths = (self.facts.healths.get(number) for number in used)
        ways = [way for health in healths if health is not None and (way := health.way_to_server) is not None]
        self.way_to_server = min(ways, default=None)
        """Nanoseconds from the capture point and back, at best."""

    def compared(self, kinds: Collection[str]) -> RunFacts:
        """``kinds``: of the statements."""
        session = self.session
        return RunFacts(
            session.path,
            ((session.analyzer.last_time or 0) - (session.analyzer.earliest_time or 0)) / 1e9,
            called(self.columns),
            diagnose(self.facts, kinds).statements,
            settings(session.analyzer.conversations),
            _violations(self.facts.auditor),
            self.transports,
        )


class _ColumnsOfRpcs:
    """The RPCs of a capture, in the columns that a comparison needs."""

    def __init__(self, session: Session) -> None:
        self.builder = TableBuilder(TABLES["rpcs"], COLUMNS)
        self._batches = RpcBatches(False, False, session)

    def add(self, table: RpcTable) -> None:
        if len(table):
            self.builder.add(self._batches.batch(table))


def _violations(auditor: Auditor | None) -> Counter[tuple[str, str]]:
    violations: Counter[tuple[str, str]] = Counter()
    assert auditor is not None  # All that detectors need was gathered.
    for key, tally in auditor.tallies.items():
        if violated := tally.violated - tally.notes:
            violations[key.rule, ENDS[key.endpoint]] += violated
    return violations


def _columns(session: Session) -> RpcColumns:
    columns = _ColumnsOfRpcs(session)
    for table in session.tables():
        columns.add(table)
        del table
    return columns.builder.take()
