"""``rdmascope report``: what a capture holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Protocol

import click

from rdmascope.captures import CaptureError
from rdmascope.captures.capture_points import OtherPoint
from rdmascope.captures.merge import expand
from rdmascope.captures.saved import holds_tables
from rdmascope.captures.session import Session
from rdmascope.dissect.diagnosis.diagnose import diagnose
from rdmascope.dissect.diagnosis.facts import Facts, Gathered
from rdmascope.dissect.measure.service_levels import FAIL, UNDECIDABLE, ServiceLevel, parse_service_level
from rdmascope.dissect.measure.undecoded import undecoded
from rdmascope.dissect.records.comparison import points_records
from rdmascope.dissect.records.report import capture_point_record, report_records
from rdmascope.dissect.records.schema import Record
from rdmascope.dissect.rpcrdma.analyzer import Analyzer
from rdmascope.dissect.units import plural, size

from ..exit_status import EXIT_BAD_INPUT, EXIT_FOUND, EXIT_NOTHING_JUDGED
from ..options import Parsed, filter_options
from ..reading import Reading, analyzer_options, follow_options, following, opened, recognition_options
from ..terminal import complain, console, paged, print_json, say, show

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from rdmascope.captures.comparison import PointsCompared
    from rdmascope.captures.condition import Condition
    from rdmascope.captures.questions import GroupKey, Questions


def _group_keys(text: str) -> tuple[GroupKey, ...]:
    from rdmascope.captures.questions import parse_group_keys

    return parse_group_keys(text)


# What only questions need takes longer to load than a small report.
GROUP_KEYS: Parsed[tuple[GroupKey, ...]] = Parsed("what", _group_keys)
SERVICE_LEVEL: Parsed[ServiceLevel] = Parsed("service level", parse_service_level)


@click.command("report")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option(
    "--top",
    default=10,
    show_default=True,
    type=click.IntRange(0, 1000),
    metavar="N",
    help="How many of the slowest RPCs to list.",
)
@click.option("--all", "everything", is_flag=True, help="Every procedure, however many there are.")
@click.option("--each", is_flag=True, help="Report each file as a capture of its own, one after the other.")
@click.option(
    "--by",
    "keys",
    type=GROUP_KEYS,
    multiple=True,
    metavar="WHAT",
    help="RPCs in groups instead: by client, server, connection, export, path, user, procedure, slot, or an interval"
    " such as 10s; several with commas.",
)
@click.option(
    "--sort", metavar="COLUMN", help="With --by: sort by any column of the page.  [default: time, of intervals begin]"
)
@click.option("--over-time", is_flag=True, help="Latencies, rates and bytes against time instead, as a heat map.")
@click.option(
    "--slo",
    "levels",
    type=SERVICE_LEVEL,
    multiple=True,
    metavar="'NAME MEASURE < LIMIT'",
    help="Judge a service level instead: 'READ p99 < 4ms'; median, mean, max, p1 to p99.9.  May be repeated.",
)
@click.option("--pager/--no-pager", default=True, help="On a terminal: page by page.  [default: pager]")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line; see below.")
@click.option(
    "-o",
    "--output",
    metavar="PAGE.html",
    help="Write a page to share instead: diagnosis, charts, tables and single RPCs in one HTML file (extra 'html').",
)
@click.option(
    "--audit/--no-audit", default=True, help="With -o: judge both ends by the rules of the audit.  [default: audit]"
)
@filter_options
@follow_options
@recognition_options
def command(
    files: tuple[str, ...],
    top: int,
    everything: bool,
    each: bool,
    keys: tuple[tuple[GroupKey, ...], ...],
    sort: str | None,
    over_time: bool,
    levels: tuple[ServiceLevel, ...],
    pager: bool,
    as_json: bool,
    output: str | None,
    audit: bool,
    ports: tuple[int, ...],
    force: str | None,
    follow: bool,
    idle: float | None,
    condition: Condition | None,
) -> None:
    """Summary of a capture: connections, procedures, latencies, payloads, and what was slow.

    FILE is a pcap, pcapng or ERF file, plain or compressed, a directory of such files, or - for standard input.
    Several files are read as one capture in time order, unless --each is given.  Where two files show the same
    traffic, as captures taken at the client and at the server do, it is read from the one that is named first, their
    clocks are compared, and the slowest RPCs are listed with their times at both capture points.

    Example: a client lost packets.  What did it cost?

    \b
      $ rdmascope report loss-rxe.pcap.zst
      78 RPCs on 2 RPC-over-RDMA connections: 64 complete, 8 no reply, 6 error
      ...
        problem 8 calls without a reply, the first for 63.6 s until the ...
        ...
        problem 1,017 packets retransmitted in 15 recoveries; RPCs waited ...
      ...
        procedure              RPCs err time  median     95%     99%     max
        NFSv4.1
          WRITE GETATTR          44   6  94%  128 ms  369 ms  373 ms  373 ms
        ...
          READ                    4   -   1% 10.3 ms 14.5 ms 14.5 ms 14.5 ms
    \b
        procedure              up     down call   Reads  server  Writes reply
        NFSv4.1
          WRITE GETATTR  9.01 MiB 5.91 KiB    - 23.1 ms  174 ms       -     -
    \b
        # client    QP   server  ...  RPCs    calls  replies retrans missing
        1 10.77.0.  0x11 ...            30 1.51 MiB 3.53 KiB     225       0
        ...

    Writes are slow: 94% of all waiting is for them.  The parts of a latency are the call's Send, the RDMA Reads by
    which the server fetches data, the server, its RDMA Writes, and the reply's Send.  Some 1,000 packets were
    retransmitted ("retrans") and none is missing from the capture ("missing"): the network lost packets, not the
    capture.  The evidence for what is wrong, and one of the slowest RPCs with every packet of it:

    \b
      $ rdmascope diagnose loss-rxe.pcap.zst
      $ rdmascope show loss-rxe.pcap.zst --rpc 55

    The same as a page to share, one HTML file that needs no network (docs/page.md):

    \b
      $ rdmascope report loss-rxe.pcap.zst -o loss.html

    \b
    With --json, for each capture, in this order ("schema" is rdmascope.TYPE/N):
      capture_point
                   a file whose traffic another one shows: clocks, transit
      capture      frames, packets, times, RPCs by state
      connection   endpoints, queue pairs, what was agreed: private data,
                   version, characteristics, thresholds, credits
      evicted      totals of earlier connections, where there were too many
      transport    losses, retransmissions, congestion, as in rdmascope transport
      procedure    RPCs, errors, bytes, latency and its parts, in nanoseconds
      transfer     messages, chunks, bytes of one kind of transfer
      slowest      the slowest RPCs with their frames
      histogram    RPCs with a latency of low_ns up to high_ns
      throughput   RPCs and bytes in equal intervals
      undecoded    what was ignored or is damaged, and why
      points, points_procedure, points_rpc
                   of each two capture points, as in rdmascope compare --rpcs
    With --by, --over-time and --slo: group, interval, service_level.

    Questions in place of the page: --by groups RPCs, --over-time draws latencies against time, and --slo judges service
    levels.

    \b
      $ rdmascope report loss-rxe.pcap.zst --by connection --errors
      ...
        connection calls err time median    95%    99%    max
        2              6   6 100% 333 ms 373 ms 373 ms 373 ms
      ...
      $ rdmascope report loss-rxe.pcap.zst --slo 'WRITE p99 < 300ms'
      ...
        fail  WRITE p99 < 300ms    373 ms     36       9
        ...
        69.604 s to 70.642 s: 9 of 30 calls beyond, the longest 373 ms ...

    The verdict is the exit status: 0 pass, 1 fail, 3 undecidable.  docs/filters.md has more of these questions.
    """
    if output is not None:
        if each or as_json or keys or over_time or levels:
            words = "-o writes one page; leave --each and --json out, and --by, --over-time and --slo"
            raise click.UsageError(words, click.get_current_context())
        _write_page(files, output, top, audit, opened(files, ports, force, follow=following(follow, idle)), condition)
        return
    by = tuple(dict.fromkeys(key for some in keys for key in some))
    _check_sort(sort, by)
    failed = False
    verdicts: set[str] = set()
    sources: list[str | tuple[str, ...]] = [path for file in files for path, _ in expand(file)] if each else [files]
    for at, source in enumerate(sources):
        if at and not as_json:
            click.echo()
        try:
            reading = opened(
                (source,) if isinstance(source, str) else source, ports, force, follow=following(follow, idle)
            )
            if by or over_time or levels:
                from rdmascope.captures.questions import Questions

                asked = Questions(by, over_time, levels)
                asked.ask(reading, condition)
                if as_json:
                    _print_answer_records(reading, asked, sort, condition)
                else:
                    _print_answers(reading, asked, sort, everything, pager and not follow, condition)
                verdicts.update(level.verdict for level in asked.levels)
                reading.check()
                continue
            gathered = Gathered(top)
            for table in reading.tables(gathered.evict, chunk_rows=condition is None):
                gathered.add_table(table if condition is None else condition.selected(table, reading))
                del table  # Or its RPCs would live until the next batch is analysed.
            if condition is not None:
                reading.refuse(condition.problem(reading))
            points = _at_other_points(reading, ports, force) if condition is None else []
            if as_json:
                print_records(reading, gathered, condition, points)
            else:
                print_page(reading, gathered, everything, pager and not follow, condition, points)
            reading.check()
        except CaptureError as error:
            complain(str(error))
            failed = True
    if failed:
        click.get_current_context().exit(EXIT_BAD_INPUT)
    if FAIL in verdicts:
        click.get_current_context().exit(EXIT_FOUND)
    if UNDECIDABLE in verdicts:
        click.get_current_context().exit(EXIT_NOTHING_JUDGED)


def _at_other_points(reading: Session, ports: tuple[int, ...], force: str | None) -> list[PointsCompared]:
    """The RPCs at both of two capture points, of captures that have such."""
    if not reading.other_points or holds_tables(reading.paths[0]):
        return []
    from rdmascope.captures.comparison import at_other_points

    options = analyzer_options(ports, force, contents=False)
    return [*at_other_points(reading, lambda paths: Reading(paths, options))]


def _check_sort(sort: str | None, by: tuple[GroupKey, ...]) -> None:
    """Raise UsageError for a column that the page has not."""
    if sort is None:
        return
    from ..views.questions import SORTED_BY

    names = [key.name for key in by]
    if not by:
        raise click.UsageError("--sort goes with --by", click.get_current_context())
    if sort.lower() not in (*names, *SORTED_BY):
        columns = ", ".join((*names, *SORTED_BY))
        raise click.BadParameter(f"no column {sort!r}; there are {columns}", param_hint="--sort")


def _sorted_by(asked: Questions, sort: str | None) -> str:
    """The column: by default the time spent waiting, of intervals alone their beginning."""
    return sort.lower() if sort is not None else "begin" if any(key.interval for key in asked.keys) else "time"


def _print_answers(
    reading: Read, asked: Questions, sort: str | None, everything: bool, pager: bool, condition: Condition | None
) -> None:
    """Groups, a heat map and service levels, for people."""
    from rich.text import Text

    from ..views import questions as views
    from ..views.filtered import filter_line
    from ..views.tables import heading

    out = console()
    with paged(out, pager):
        show(out, Text.assemble((reading.path, "bold"), f": {plural(asked.calls, 'RPC')}"))
        if condition is not None:
            show(out, filter_line(condition))
        if asked.levels:
            remark = "by calls whose latency the capture shows"
            view = views.service_levels_view(asked.levels, reading.analyzer.first_time or 0)
            show(out, Text(), heading("Service levels", remark), view)
        if asked.groups is not None:
            names, column = [key.name for key in asked.keys], _sorted_by(asked, sort)
            title = heading(f"By {' and '.join(names)}", f"sorted by {column}; time: share of all waiting")
            view = views.groups_view(asked.groups, names, asked.first_time, column, out.width, everything)
            show(out, Text(), title, view if asked.calls else Text("  no RPC", "dim"))
        if asked.timeline is not None:
            intervals = asked.timeline.intervals(views.columns_of_time(out.width))
            title = heading("Latency over time", "rows: from this latency on; columns: when the call began")
            show(out, Text(), title, views.over_time_view(intervals))


def _print_answer_records(reading: Read, asked: Questions, sort: str | None, condition: Condition | None) -> None:
    """The same for scripts."""
    from rdmascope.dissect.records.questions import INTERVALS, group_record, interval_record, service_level_record

    from ..views.filtered import filter_field
    from ..views.questions import sorted_groups

    common = {"file": reading.path, **filter_field(condition)}
    for level in asked.levels:
        print_json({**service_level_record(level), **common})
    if asked.groups is not None:
        names = [key.name for key in asked.keys]
        others = [asked.groups.others] if asked.groups.others is not None else []
        for group in (*sorted_groups(asked.groups, names, _sorted_by(asked, sort)), *others):
            print_json({**group_record(group, names, asked.groups, asked.first_time), **common})
    if asked.timeline is not None:
        for interval in asked.timeline.intervals(INTERVALS):
            print_json({**interval_record(interval), **common})


def _write_page(
    files: Sequence[str], output: str, top: int, audit: bool, reading: Session, condition: Condition | None
) -> None:
    from ..page.write import check_page, write_page_of

    check_page(output, files)
    say(f"{output}: {size(write_page_of(reading, output, files, top, audit, condition))}")
    reading.check()


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
) -> None:
    """The report for people; ``points``: the same RPCs at other capture points."""
    out = console()
    with paged(out, pager):
        _print_sections(out, reading, gathered.facts(reading.analyzer, _error(reading)), everything, condition, points)


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
    from ..views.clients import clients_view, unanswered_view
    from ..views.diagnosis import summary_view
    from ..views.filtered import filter_line
    from ..views.tables import heading
    from ..views.transport import troubles_view

    analyzer, statistics = reading.analyzer, facts.statistics
    diagnosis = diagnose(facts)
    conversations = analyzer.conversations
    show(
        out,
        views.summary(
            reading.path,
            frames=analyzer.frames,
            truncated_frames=analyzer.truncated_frames,
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
            ("Procedures", "by the time spent waiting for them, as seen at the capture point",
             views.procedures_view(statistics.procedures(), out.width, everything)),
            ("Slowest", "by latency; rdmascope show FILE --rpc N has each in full",
             views.slowest_view(slowest, out.width) if slowest else None),
            *_points_sections(points, len(slowest), out.width),
            ("Without a reply", "by the time until the capture ended", unanswered_view(facts)),
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
    """The slowest RPCs at each two capture points."""
    from ..views.compare import slowest_view

    for found in points:
        remark = "the slowest by what the client waited; rdmascope compare CLIENT SERVER has each procedure"
        yield "At both capture points", remark, slowest_view(found, limit, width)


def print_records(
    reading: Read,
    gathered: Gathered,
    condition: Condition | None = None,
    at_points: Sequence[PointsCompared] = (),
) -> None:
    """The report for scripts; ``at_points``: the same RPCs at other capture points."""
    names = reading.analyzer.addresses
    points = [capture_point_record(one.path, one.first, one.common, names, one.whole) for one in reading.other_points]
    facts = gathered.facts(reading.analyzer, _error(reading))
    words = "" if condition is None else str(condition)
    for record in chain(points, report_records(facts, reading.analyzer, diagnose(facts), words)):
        print_json({**reading.placed(record), "file": reading.path})
    for record in chain.from_iterable(points_records(found, each=True) for found in at_points):
        print_json(record)


def _error(reading: Read) -> str:
    return "" if reading.damage is None else str(reading.damage)
