"""The report, as ``report`` and ``live`` print it: for people, and as records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Protocol

from rdmascope.captures import CaptureError
from rdmascope.captures.session.session import Session
from rdmascope.dissect.diagnosis.diagnose import diagnose
from rdmascope.dissect.diagnosis.facts import Facts, Gathered
from rdmascope.dissect.measure.undecoded import undecoded
from rdmascope.dissect.records.report import capture_point_record, report_records
from rdmascope.dissect.records.schema import Record
from rdmascope.dissect.rpcrdma.analyzer import Analyzer

from ..terminal import console, paged, print_json, show

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from rdmascope.captures.read.merge import OtherPoint
    from rdmascope.captures.session.comparison import PointsCompared
    from rdmascope.captures.session.kernel_counters import KernelCounters
    from rdmascope.captures.tables.condition import Condition

MAX_STATEMENTS = 5
"""Of the diagnosis on the page."""
DIAGNOSIS = "rdmascope diagnose FILE has the evidence, and looks further"


class Read(Protocol):
    """What was read."""

    path: str
    """What it is called."""
    analyzer: Analyzer
    damage: CaptureError | None
    other_points: list[OtherPoint]

    def placed(self, fields: Record) -> Record:
        """With the file of each frame, where there are several."""


def print_page(
    reading: Read,
    gathered: Gathered,
    everything: bool = False,
    pager: bool = False,
    condition: Condition | None = None,
    points: Sequence[PointsCompared] = (),
    kernel: KernelCounters | None = None,
) -> None:
    """The report for people; ``points``: the same RPCs at other capture points."""
    out = console()
    with paged(out, pager):
        _print_sections(out, reading, _facts(reading, gathered), everything, condition, points)
        if kernel is not None:
            from ..views.kernel_counters import counters_view

            show(out, counters_view(kernel, out.width))


def _print_sections(
    out: Console,
    reading: Read,
    facts: Facts,
    everything: bool,
    condition: Condition | None,
    points: Sequence[PointsCompared],
) -> None:
    from rich.text import Text

    from ..views import report as views
    from ..views.diagnosis import headline_view, note_lines, summary_view
    from ..views.report import clients_view, unanswered_view
    from ..views.tables import filter_line, heading
    from ..views.transport import troubles_view

    analyzer, statistics = reading.analyzer, facts.statistics
    diagnosis = diagnose(facts)
    conversations = analyzer.conversations
    if (headline := headline_view(diagnosis)) is not None:
        show(out, headline)
    show(
        out,
        views.summary(
            reading.path,
            frames=analyzer.frames,
            notes=note_lines(diagnosis),
            packets=analyzer.packets,
            first_time=analyzer.earliest_time,
            last_time=analyzer.last_time,
            conversations=conversations,
            statistics=statistics,
            evicted=analyzer.evicted,
        ),
    )
    if condition is not None:
        show(out, filter_line(condition))
    show(out, Text(), heading("Diagnosis", DIAGNOSIS), summary_view(diagnosis, MAX_STATEMENTS, out.width))
    sections: list[tuple[str, str, RenderableType | None]] = []
    if statistics.calls:
        slowest = statistics.slowest()
        sections = [
            *_points_sections(points, len(slowest), out.width),
            ("Procedures", "by the time spent waiting for them, as seen at the capture point",
             views.procedures_view(statistics.procedures(), out.width, everything)),
            ("Slowest", "by latency; rdmascope show FILE --rpc N has each in full",
             views.slowest_view(slowest, out.width) if slowest else None),
            ("Other calls without a reply", "until their connection or the capture ended", unanswered_view(facts)),
            ("Clients", "by the time that they waited", clients_view(facts)),
            ("Latency", "RPCs by latency", views.histogram_view(statistics, out.width)),
            ("Over time", "", views.throughput_view(statistics, out.width)),
        ]  # fmt: skip
    connections = views.connections_view(conversations, statistics, analyzer.evicted)
    sections.append(("Connections", "in order of appearance", connections))
    if statistics.calls:
        transfers = views.transfers_view(statistics.transfers, out.width)
        sections.append(("How payloads travelled", "", transfers))
    if conversations:
        healths = [(one.connection, facts.healths[one.connection.number]) for one in conversations]
        sections.append(("Transport", "rdmascope transport FILE has each connection in full", troubles_view(healths)))
    sections.append(("Not decoded", "", views.undecoded_view(undecoded(analyzer, statistics, facts.damage or None))))
    for title, remark, view in sections:
        if view is not None:
            show(out, Text(), heading(title, remark), view)


def _points_sections(
    points: Sequence[PointsCompared], limit: int, width: int
) -> Iterator[tuple[str, str, RenderableType | None]]:
    """Where the time went between each two capture points, and the slowest RPCs there."""
    from ..views.compare import WHERE, slowest_view, where_view

    for found in points:
        yield WHERE, "between two capture points: means; shares of what the client waited", where_view(found)
        remark = "the slowest by what the client waited; rdmascope compare CLIENT SERVER has each procedure"
        yield "At both capture points", remark, slowest_view(found, limit, width)


def print_records(
    reading: Read,
    gathered: Gathered,
    condition: Condition | None = None,
    at_points: Sequence[PointsCompared] = (),
    kernel: KernelCounters | None = None,
) -> None:
    """The report for scripts; ``at_points``: the same RPCs at other capture points."""
    names = reading.analyzer.addresses
    points = [capture_point_record(one.path, one.first, one.common, names, one.whole) for one in reading.other_points]
    facts = _facts(reading, gathered)
    words = "" if condition is None else str(condition)
    counted = kernel.records() if kernel is not None else ()
    for record in chain(points, report_records(facts, reading.analyzer, diagnose(facts), words), counted):
        print_json({**reading.placed(record), "file": reading.path})
    if at_points:
        # Only here: every report would wait for it.
        from rdmascope.dissect.records.comparison import points_records

        for record in chain.from_iterable(points_records(found, each=True) for found in at_points):
            print_json(record)


def _facts(reading: Read, gathered: Gathered) -> Facts:
    facts = gathered.facts(reading.analyzer, "" if reading.damage is None else str(reading.damage))
    if not facts.hung or not isinstance(reading, Session):
        return facts
    from rdmascope.captures.session.find import with_path  # Only here: every report would wait for it.

    return with_path(reading, facts)
