"""``rdmascope compare``: two captures beside each other."""

from __future__ import annotations

import click
from rich.text import Text

from rdmascope.captures.errors import CaptureError
from rdmascope.captures.session.comparison import compare, differences
from rdmascope.captures.session.session import Session
from rdmascope.captures.tables.condition import Condition, Filters
from rdmascope.captures.tables.saved import is_data_set
from rdmascope.dissect.measure.time_options import TimeSpan
from rdmascope.dissect.records.comparison import PointsCompared, RunsCompared, points_records, runs_records
from rdmascope.dissect.records.report import limits_record

from ..options import MOMENTS
from ..reading import CAPTURE, opened, recognition_options
from ..terminal import EXIT_BAD_INPUT, complain, console, print_json, show
from ..views.compare import points_view, runs_view
from ..views.tables import limit_lines


@click.command("compare")
@click.argument("first", metavar="A", type=CAPTURE)
@click.argument("second", metavar="[B]", type=CAPTURE, required=False)
@click.option(
    "--span",
    "spans",
    multiple=True,
    type=MOMENTS,
    metavar="SINCE/UNTIL",
    help="Data sets, twice: calls of this time in A, then of that time in B, or A again: 2026-11-01/2026-11-08.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line; see below.")
@click.option("--rpcs", "each", is_flag=True, help="With --json: of the same traffic also each RPC, at both points.")
@recognition_options
@click.pass_context
def command(
    ctx: click.Context,
    first: str,
    second: str | None,
    spans: tuple[TimeSpan, ...],
    as_json: bool,
    each: bool,
    ports: tuple[int, ...],
    force: str | None,
) -> None:
    """Compare two captures: of the same traffic at two points, or of two runs.

    The packets tell which of the two it is. If both captures show the same packets, as those of a client and its server
    do, the command says where the time between them went, RPC by RPC:

    \b
      there    the calls' way from the client's capture point to the server's
      server   at the server's capture point, without RDMA Reads
      back     the replies' way
      client   how long the client took to answer RDMA Reads
      Reads    how much longer those took at the server's capture point

    These parts add up to what the client waited. "there" and "back" depend on the offset of the two clocks and its
    drift, which are estimated from the packets, with their errors; their sum and the other parts do not.

    Saved tables and data sets, which hold no packets, are compared as two runs. So are two spans of a data set, this
    week and the week before; either end may be left out:

    \b
      rdmascope compare fleet --span 2026-11-01/2026-11-08 --span 2026-11-08/

    Two runs, before and after an upgrade or of two clients, are compared procedure by procedure: counts, errors,
    latencies (Mann-Whitney test), how payloads travelled; and where they differ in diagnosis, in what the ends agreed,
    or in the rules of the audit that they broke.

    \b
    With --json; "schema" is rdmascope.TYPE/N:
      capture_limits      of each capture: what it says that it lacks
      points              of the same traffic: clocks, packets, all RPCs
      points_procedure    where the time of one procedure's RPCs went
      points_rpc          with --rpcs: the same of each RPC, and its times
      runs                of two runs: captures, seconds, what differs
      runs_procedure      one procedure in both runs

    Example: one load over RoCE and over iWARP.

    \b
      $ rdmascope compare rxe-nfs-all.pcap.zst siw-nfs-all.pcap.zst
      The second run is 20.9 times faster in NFSv4.0 GETATTR, p < 0.001; 49.5
      ...
      Two runs: rxe-nfs-all.pcap.zst, 111 s, and siw-nfs-all.pcap.zst, 104 s
      ...
        procedure                    RPCs err  median      RPCs err  median change
      ...
        NFSv4.1 GETATTR                12   0 42.5 ms        12   0  858 µs 0.02x*
      ...
        setting   before      after
        transport TCP, RoCEv2 TCP, iWARP
      ...

    Over iWARP a GETATTR took 2% of the time that it took over RoCE, which chance does not explain (*).
    """
    readings: tuple[Session, Session]
    comparison: PointsCompared | RunsCompared
    if spans:
        if len(spans) != len(readings_of := (first, second or first)) or ports or force:
            raise click.UsageError("--span goes with another --span, without --port and --as", ctx)
        readings, comparison = _spans(ctx, readings_of, spans)
    elif second is None:
        raise click.UsageError("compare A with what? Give B, or two --span of a data set", ctx)
    else:
        readings = opened((first,), ports, force), opened((second,), ports, force)
        comparison = compare(*readings)
    if as_json:
        for reading in readings:
            print_json({**limits_record(reading.analyzer), "file": reading.path})
        for record in (
            points_records(comparison, each) if isinstance(comparison, PointsCompared) else runs_records(comparison)
        ):
            print_json(record)
    else:
        out = console()
        for reading in readings:
            for line in limit_lines(reading.analyzer):
                show(out, Text.assemble(f"{reading.path}: ", line, style="red"))
        show(
            out, points_view(comparison) if isinstance(comparison, PointsCompared) else runs_view(comparison, out.width)
        )
    failed = False
    for reading in readings:
        try:
            reading.check()
        except CaptureError as error:
            complain(str(error))
            failed = True
    if failed:
        click.get_current_context().exit(EXIT_BAD_INPUT)


def _spans(
    ctx: click.Context, paths: tuple[str, str], spans: tuple[TimeSpan, ...]
) -> tuple[tuple[Session, Session], RunsCompared]:
    """Compare spans of time: two of one data set, or one of each of two."""
    from rdmascope.captures.tables.fleet_sums import SummedSession

    for path in paths:
        if not is_data_set(path):
            raise CaptureError(f"{path}: is no data set; --span is of those that batch made")
    before, after = (
        SummedSession(path, Condition(filters=Filters(since=span.since, until=span.until)))
        for path, span in zip(paths, spans, strict=True)
    )
    for summed_session in (before, after):
        ctx.call_on_close(summed_session.close)
    runs = (
        summed_session.compared(f"{summed_session.path} {span.text}")
        for summed_session, span in zip((before, after), spans, strict=True)
    )
    return (before, after), differences(*runs)
