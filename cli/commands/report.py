"""``rdmascope report``: what a capture holds, for people and as records; ``live`` prints it, too."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

import click
import numpy as np

from rdmascope.captures import CaptureError
from rdmascope.captures.read.merge import expand
from rdmascope.captures.session.session import Session
from rdmascope.captures.tables.saved import holds_tables, is_data_set
from rdmascope.dissect.diagnosis.facts import Diagnosis, Facts, Gathered, diagnose
from rdmascope.dissect.measure.statistics import undecoded
from rdmascope.dissect.records.report import (
    INTERVALS,
    capture_point_record,
    group_record,
    interval_record,
    report_records,
    service_level_record,
)
from rdmascope.dissect.rpcrdma.conversation import Conversation
from rdmascope.dissect.transport.connection import Connection
from rdmascope.dissect.units import plural, size

from ..options import Parsed, filter_options, pager_option, refuse_options
from ..reading import (
    CAPTURE,
    Reading,
    analyzer_options,
    follow_options,
    following,
    jobs_option,
    opened,
    recognition_options,
    with_packets,
)
from ..terminal import EXIT_BAD_INPUT, EXIT_FOUND, EXIT_NOTHING_JUDGED, complain, console, paged, print_json, say, show

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from rdmascope.captures.live.session import LiveSession
    from rdmascope.captures.session.grouping import GroupKey, RpcGrouping
    from rdmascope.captures.session.kernel_counters import KernelCounters
    from rdmascope.captures.tables.condition import Condition
    from rdmascope.captures.tables.fleet_sums import SummedSession
    from rdmascope.dissect.measure.call_groups import ServiceLevel
    from rdmascope.dissect.records.comparison import PointsCompared

    from ..each_capture import GivenCaptures


MAX_STATEMENTS = 5
"""Statements of the diagnosis on the page."""
DIAGNOSIS = "rdmascope diagnose FILE has the evidence, and looks further"


def print_page(
    reading: Session | LiveSession,
    gathered: Gathered,
    everything: bool = False,
    pager: bool = False,
    condition: Condition | None = None,
    points: Sequence[PointsCompared] = (),
    kernel: KernelCounters | None = None,
    said: SaidOf | None = None,
) -> None:
    """The report for people; ``points``: the same RPCs at other capture points; ``said``: in place of ``gathered``."""
    out = console()
    with paged(out, pager):
        _print_sections(out, reading, *(said or _said(reading, gathered)), everything, condition, points)
        if kernel is not None:
            from ..views.kernel_counters import counters_view

            show(out, counters_view(kernel, out.width))


def _print_sections(
    out: Console,
    reading: Session | LiveSession,
    facts: Facts,
    diagnosis: Diagnosis,
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
    conversations = analyzer.conversations
    if (headline := headline_view(diagnosis)) is not None:
        show(out, headline)
    show(
        out,
        views.summary(
            reading.path,
            frames=analyzer.frames,
            traced=analyzer.traced,
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
            ("Procedures", "by the time spent waiting for them, as seen "
             + (f"in the {analyzer.traced}" if analyzer.traced else "at the capture point"),
             views.procedures_view(statistics.procedures(), out.width, everything)),
            ("Slowest", "by latency; rdmascope show FILE --rpc N has each in full",
             views.slowest_view(slowest, out.width) if slowest else None),
            *((f"In the {side}", "mean time in each phase, by its kernel's trace", view)
              for side, view in views.hosts_views(facts.hosts, out.width, everything)),
            ("Other calls without a reply", "until their connection or the capture ended", unanswered_view(facts)),
            ("Clients", "by the time that they waited", clients_view(facts)),
            ("Latency", "RPCs by latency", views.histogram_view(statistics, out.width)),
            ("Over time", "", views.throughput_view(statistics, out.width)),
        ]  # fmt: skip
    connections = views.connections_view(conversations, statistics, analyzer.evicted)
    last = ", unanswered ones last" * any(conversation.connection.unanswered for conversation in conversations)
    sections.append(("Connections", "in order of appearance" + last, connections))
    if statistics.calls:
        sections.append(("How payloads travelled", "", views.transfers_view(statistics.transfers, out.width)))
    if conversations:
        healths = [
            (conversation.connection, facts.healths[conversation.connection.number]) for conversation in conversations
        ]
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

    for point in points:
        yield WHERE, "between two capture points: means; shares of what the client waited", where_view(point)
        remark = "the slowest by what the client waited; rdmascope compare CLIENT SERVER has each procedure"
        yield "At both capture points", remark, slowest_view(point, limit, width)


def print_records(
    reading: Session | LiveSession,
    gathered: Gathered,
    condition: Condition | None = None,
    at_points: Sequence[PointsCompared] = (),
    kernel: KernelCounters | None = None,
    said: SaidOf | None = None,
) -> None:
    """The report for scripts; ``at_points``: the same RPCs at other capture points."""
    names = reading.analyzer.addresses
    points = [
        capture_point_record(point.path, point.first, point.common, names, point.whole)
        for point in reading.other_points
    ]
    points += reading.joined_records() if isinstance(reading, Session) else []
    facts, diagnosis = said or _said(reading, gathered)
    words = "" if condition is None else str(condition)
    counted = kernel.records() if kernel is not None else ()
    for record in chain(points, report_records(facts, reading.analyzer, diagnosis, words), counted):
        print_json({**reading.placed(record), "file": reading.path})
    if at_points:
        # Only here: every report would wait for it.
        from rdmascope.dissect.records.comparison import points_records

        for record in chain.from_iterable(points_records(point, each=True) for point in at_points):
            print_json(record)


SaidOf = tuple[Facts, Diagnosis]
"""What a report says of RPCs."""


def _said(reading: Session | LiveSession, gathered: Gathered) -> SaidOf:
    facts = gathered.facts(reading.analyzer, "" if reading.damage is None else str(reading.damage))
    if facts.hung and isinstance(reading, Session):
        from rdmascope.captures.session.find import with_path  # Only here: every report would wait for it.

        facts = with_path(reading, facts)
    return facts, diagnose(facts)


def _summed(paths: Sequence[str], condition: Condition | None, always: bool) -> SummedSession | None:
    """A session that reads the sums of a data set of many captures; ``always``: whatever its size."""
    if len(paths) > 1 or not is_data_set(paths[0]):
        return None
    from rdmascope.captures.tables.fleet_sums import summed_session

    summed = summed_session(paths[0], condition, always)
    if summed is not None:
        click.get_current_context().call_on_close(summed.close)
    return summed


GROUP_KEYS: Parsed[tuple[GroupKey, ...]] = Parsed("what", "captures.session.grouping:parse_group_keys")
SERVICE_LEVEL: Parsed[ServiceLevel] = Parsed("service level", "dissect.measure.call_groups:parse_service_level")


@click.command("report")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=CAPTURE)
@click.option(
    "--top",
    default=10,
    show_default=True,
    type=click.IntRange(0, 1000),
    metavar="N",
    help="How many of the slowest RPCs to list.",
)
@click.option("--all", "everything", is_flag=True, help="Every procedure, however many there are.")
@click.option("--each", is_flag=True, help="Report each file separately, one after the other.")
@click.option(
    "--by",
    "keys",
    type=GROUP_KEYS,
    multiple=True,
    metavar="WHAT",
    help="RPCs in groups instead: by a column of the table rpcs, such as client, path, procedure or status, by export,"
    " day (UTC), host (of a data set), or an interval such as 10s; several with commas.",
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
@click.option(
    "--mountstats",
    multiple=True,
    metavar="FILE",
    help="A copy of the client's /proc/self/mountstats, to compare; twice: before and after.",
)
@click.option(
    "--nfsd", multiple=True, metavar="FILE", help="A copy of the server's /proc/net/rpc/nfsd; twice: before and after."
)
@pager_option
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
@jobs_option
def command(
    files: tuple[str, ...],
    top: int,
    everything: bool,
    each: bool,
    keys: tuple[tuple[GroupKey, ...], ...],
    sort: str | None,
    over_time: bool,
    levels: tuple[ServiceLevel, ...],
    mountstats: tuple[str, ...],
    nfsd: tuple[str, ...],
    pager: bool,
    as_json: bool,
    output: str | None,
    audit: bool,
    ports: tuple[int, ...],
    force: str | None,
    jobs: int | None,
    follow: bool,
    idle: int | None,
    condition: Condition | None,
) -> None:
    """Summary of a capture: connections, procedures, latencies, payloads, and what was slow.

    FILE is a pcap, pcapng or ERF file, plain or compressed, a directory of such files, or - for standard input. Several
    files are read as one capture in time order, unless --each is given. If two files show the same traffic, as captures
    at the client and at the server do, it is read from the one named first, their clocks are compared, and the slowest
    RPCs are listed with their times at both capture points.

    Example: a client lost packets.  What did it cost?

    \b
      $ rdmascope report loss-rxe.pcap.zst
      WRITE GETATTR /big (RPC 23) hung 61.8 s until the client ...
      ...
      78 RPCs on 2 RPC-over-RDMA connections, 8 unanswered; RETRY_UNCACHED_REP 6
      ...
        problem 1,017 packets retransmitted, 15 recoveries; RPCs delayed ...
      ...
        procedure              RPCs err time  median     95%     99%     max
        NFSv4.1
          WRITE GETATTR          44   6 99.9% 222 ms >61.8 s >61.8 s >61.8 s
        ...
          READ                    4   -   0% 10.3 ms 14.5 ms 14.5 ms 14.5 ms
    \b
        procedure          to server to client   Reads  server  Writes    loss
        NFSv4.1
          WRITE GETATTR     9.01 MiB  5.91 KiB 14.0 ms  172 ms       - 12.2 ms
    \b
        # client    QP   server  ...  RPCs    calls  replies retrans missing
        1 10.77.0.  0x11 ...            30 1.51 MiB 3.53 KiB     225       0
        ...

    Eight writes were never answered: they waited for more than 61.8 s each, and for nearly all of the time. Procedures
    with less than 0.5% of the others' time are folded. The parts of a latency are the call's Send, the RDMA Reads by
    which the server fetches data, the server, its RDMA Writes, the reply's Send, and what was lost waiting for
    retransmissions. Some 1,000 packets were retransmitted ("retrans") and none is missing from the capture ("missing"):
    the network lost packets, not the capture. The evidence for what is wrong, and one of the slowest RPCs with every
    packet of it:

    \b
      $ rdmascope diagnose loss-rxe.pcap.zst
      $ rdmascope show loss-rxe.pcap.zst --rpc 55

    The same as a page to share, one HTML file that needs no network (rdmascope help sharing):

    \b
      $ rdmascope report loss-rxe.pcap.zst -o loss.html

    \b
    With --json, for each capture, in this order ("schema" is rdmascope.TYPE/N):
      capture_point
                   a file whose traffic another one shows: clocks, transit
      capture      frames, packets, times, RPCs by state
      connection   endpoints, queue pairs, what was agreed: private data,
                   version, characteristics, thresholds, credits
      evicted      totals of more connections, where there were too many
      transport    losses, retransmissions, congestion, as in rdmascope transport
      procedure    RPCs, errors, bytes, latency and its parts, in nanoseconds
      transfer     messages, chunks, bytes of one kind of transfer
      slowest      the slowest RPCs with their frames
      histogram    RPCs with a latency of low_ns up to high_ns
      throughput   RPCs and bytes in equal intervals
      undecoded    what was ignored or is damaged, and why
      points, points_procedure, points_rpc
                   of each two capture points, as in rdmascope compare --rpcs
      mount_counters, nfsd_counters
                   with --mountstats and --nfsd
    With --by, --over-time and --slo: group, interval, service_level.

    Questions in place of the page: --by groups RPCs, --over-time draws latencies against time, and --slo judges service
    levels.

    \b
      $ rdmascope report loss-rxe.pcap.zst --by connection --errors
      ...
        connection calls err time  median     95%     99%     max
        1              8   - 99.5% >61.8 s >61.8 s >61.8 s >61.8 s
        2              6   6   0%  333 ms  373 ms  373 ms  373 ms
      ...
      $ rdmascope report loss-rxe.pcap.zst --slo 'WRITE p99 < 300ms'
      ...
        fail  WRITE p99 < 300ms   >61.8 s     44      17
        ...
        69.604 s to 70.642 s: 9 of 30 calls beyond, the longest 373 ms ...

    Linux's own counters, the client's /proc/self/mountstats and the server's /proc/net/rpc/nfsd, can be compared with
    the capture per mount and operation: saved when the capture ended (since the mount), or twice, before and after. The
    report gives the reason of each difference, and the time that RPCs waited before they were sent (docs/live.md):

    \b
      $ rdmascope report client.pcapng --mountstats before --mountstats after

    The verdict is the exit status: 0 pass, 1 fail, 3 undecidable.  rdmascope help questions has more.
    """
    if output is not None:
        if each or as_json or keys or over_time or mountstats or nfsd:
            words = "-o writes one page; leave --each, --json, --by, --over-time, --mountstats, --nfsd out"
            raise click.UsageError(words, click.get_current_context())
        many = None if follow or ports or force else _summed(files, condition, False)
        reading = many or opened(files, ports, force, follow=following(follow, idle))
        _exit_with(_write_page(files, output, top, audit, reading, condition, levels))
        return
    by = tuple(dict.fromkeys(key for some in keys for key in some))
    kernel = _kernel_counters(mountstats, nfsd, alone=not (each or by or over_time or levels))
    if kernel is not None:
        files = with_packets(files)
    _check_sort(sort, by)
    failed = False
    verdicts: set[str] = set()
    sources: list[str | tuple[str, ...]] = [path for file in files for path, _ in expand(file)] if each else [files]
    for at, source in enumerate(sources):
        if at and not as_json:
            click.echo()
        try:
            paths = (source,) if isinstance(source, str) else source
            as_given = follow or ports or force or kernel is not None
            summed = None if as_given else _summed(paths, condition, bool(by or over_time or levels))
            reading = summed or opened(
                paths,
                ports,
                force,
                drops_on_page=not (as_json or by or over_time or levels),
                follow=following(follow, idle),
                jobs=jobs,
            )
            if by or over_time or levels:
                from rdmascope.captures.session.grouping import RpcGrouping

                asked = RpcGrouping(by, over_time, levels)
                asked.ask(reading, condition)
                if as_json:
                    _print_answer_records(reading, asked, sort, condition)
                else:
                    _print_answers(reading, asked, sort, everything, pager and not follow, condition)
                verdicts.update(level.verdict for level in asked.levels)
                reading.check()
                continue
            if summed is not None:
                said = summed.facts(top), summed.diagnosis()
                if as_json:
                    print_records(summed, Gathered(), condition, said=said)
                else:
                    print_page(summed, Gathered(), everything, pager, condition, said=said)
                summed.check()
                continue
            gathered = Gathered(top)
            behind = kernel if holds_tables(reading.paths[0]) else None
            beside = kernel if behind is None else None
            for table in reading.tables(
                partial(_evict, gathered, beside), chunk_rows=condition is None and kernel is None
            ):
                selected = table if condition is None else condition.selected(table, reading)
                if beside is not None:
                    beside.add(selected)
                gathered.add_table(selected)
                del table, selected  # Or its RPCs would live until the next batch is analysed.
            if condition is not None:
                reading.refuse(condition.problem(reading))
            points = _at_other_points(reading, ports, force) if condition is None else []
            given: GivenCaptures | None = None
            if behind is not None:
                from ..each_capture import GivenCaptures  # Only here: every report would wait for it.

                given = GivenCaptures(files, analyzer_options(ports, force))
                _count_behind(behind, given, condition)
            elif kernel is not None:
                kernel.note(reading.analyzer.conversations)
                kernel.truncated = reading.analyzer.truncated_frames > 0
            if as_json:
                print_records(reading, gathered, condition, points, kernel)
            else:
                print_page(reading, gathered, everything, pager and not follow, condition, points, kernel)
            reading.check()
            if given is not None:
                given.check()
        except CaptureError as error:
            complain(str(error))
            failed = True
    if failed:
        click.get_current_context().exit(EXIT_BAD_INPUT)
    _exit_with(verdicts)


def _exit_with(verdicts: set[str]) -> None:
    """End with the status of the verdicts on service levels."""
    if verdicts:
        from rdmascope.dissect.measure.call_groups import FAIL, UNDECIDABLE

        if FAIL in verdicts:
            click.get_current_context().exit(EXIT_FOUND)
        if UNDECIDABLE in verdicts:
            click.get_current_context().exit(EXIT_NOTHING_JUDGED)


def _at_other_points(reading: Session, ports: tuple[int, ...], force: str | None) -> list[PointsCompared]:
    """The RPCs at both of two capture points, of captures that have such."""
    if not reading.other_points or holds_tables(reading.paths[0]):
        return []
    from rdmascope.captures.session.comparison import at_other_points

    options = analyzer_options(ports, force, contents=False)
    return [*at_other_points(reading, lambda paths: Reading(paths, options))]


def _count_behind(kernel: KernelCounters, given: GivenCaptures, condition: Condition | None) -> None:
    """What was carried out is not in tables: it is read from the captures behind a data set."""
    from rdmascope.captures.fleet.batch import CommonConnections

    meant = given.chosen(condition)
    common = CommonConnections()
    for capture in given.some(given.having(meant)):
        assert capture.behind is not None
        reading = capture.reading()
        own = common.first_seen(capture.behind)

        def note(conversations: list[Conversation], own: Callable[[Connection], bool] = own) -> None:
            kernel.note([conversation for conversation in conversations if own(conversation.connection)])

        for table in reading.tables(note):
            selected = table if meant is None else meant.selected(table, reading)
            numbers = selected.rows["connection"]
            there = [number for number in np.unique(numbers).tolist() if own(selected.conversation(number).connection)]
            kernel.add(selected.selected(np.isin(numbers, there)))
            del table, selected
        note(reading.analyzer.conversations)
        kernel.truncated |= reading.analyzer.truncated_frames > 0
        given.ended(reading)


def _kernel_counters(mountstats: tuple[str, ...], nfsd: tuple[str, ...], alone: bool) -> KernelCounters | None:
    """Raises UsageError and CaptureError."""
    if not mountstats and not nfsd:
        return None
    from rdmascope.captures.session.kernel_counters import READINGS, saved_counters

    words = ""
    if not alone:
        words = "--mountstats and --nfsd go with the page; leave --each, --by, --over-time and --slo out"
    elif max(len(mountstats), len(nfsd)) > READINGS:
        words = "--mountstats and --nfsd are given once, or twice: before and after"
    if words:
        raise click.UsageError(words, click.get_current_context())
    return saved_counters(mountstats, nfsd)


def _evict(gathered: Gathered, kernel: KernelCounters | None, gone: list[Conversation]) -> None:
    gathered.evict(gone)
    if kernel is not None:
        kernel.note(gone)


def _check_sort(sort: str | None, by: tuple[GroupKey, ...]) -> None:
    """Raise UsageError for a column that the page has not."""
    if sort is None:
        return
    from ..views.grouping import SORTED_BY

    names = [key.name for key in by]
    refuse_options((not by, "--sort goes with --by"))
    if sort.lower() not in (*names, *SORTED_BY):
        columns = ", ".join((*names, *SORTED_BY))
        raise click.BadParameter(f"no column {sort!r}; there are {columns}", param_hint="--sort")


def _sorted_by(asked: RpcGrouping, sort: str | None) -> str:
    """The column: by default the time spent waiting, of intervals alone their beginning."""
    return sort.lower() if sort is not None else "begin" if any(key.interval for key in asked.keys) else "time"


def _print_answers(
    reading: Session,
    asked: RpcGrouping,
    sort: str | None,
    everything: bool,
    pager: bool,
    condition: Condition | None,
) -> None:
    """Groups, a heat map and service levels, for people."""
    from rich.text import Text

    from ..views import grouping as views
    from ..views.tables import filter_line, heading

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


def _print_answer_records(reading: Session, asked: RpcGrouping, sort: str | None, condition: Condition | None) -> None:
    """Print groups, intervals and service levels as JSON."""
    from ..views.grouping import sorted_groups
    from ..views.tables import filter_field

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
    files: Sequence[str],
    output: str,
    top: int,
    audit: bool,
    reading: Session,
    condition: Condition | None,
    levels: Sequence[ServiceLevel],
) -> set[str]:
    """Gives the verdicts on service levels."""
    from ..page.document import check_page, write_page_of

    check_page(output, files)
    written, verdicts = write_page_of(reading, output, files, top, audit, condition, levels)
    say(f"{output}: {size(written)}")
    reading.check()
    return verdicts
