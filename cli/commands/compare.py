"""``rdmascope compare``: two captures beside each other."""

from __future__ import annotations

import click
from rich.text import Text

from rdmascope.captures.errors import CaptureError
from rdmascope.captures.session.comparison import PointsCompared, compare
from rdmascope.dissect.records.comparison import points_records, runs_records
from rdmascope.dissect.records.report import limits_record

from ..reading import CAPTURE, opened, recognition_options
from ..terminal import EXIT_BAD_INPUT, complain, console, print_json, show
from ..views.compare import points_view, runs_view
from ..views.tables import limit_lines


@click.command("compare")
@click.argument("first", metavar="A", type=CAPTURE)
@click.argument("second", metavar="B", type=CAPTURE)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line; see below.")
@click.option("--rpcs", "each", is_flag=True, help="With --json: of the same traffic also each RPC, at both points.")
@recognition_options
def command(first: str, second: str, as_json: bool, each: bool, ports: tuple[int, ...], force: str | None) -> None:
    """Compare two captures: of the same traffic at two points, or of two runs.

    Which of the two it is follows from the packets. Where both captures show the same ones, as those of a client and
    its server do, the command says where the time between them went, RPC by RPC:

    \b
      there    the calls' way from the client's capture point to the server's
      server   at the server's capture point, without RDMA Reads
      back     the replies' way
      client   how long the client took to answer RDMA Reads
      Reads    how much longer those took at the server's capture point

    These parts add up to what the client waited. "there" and "back" depend on the offset of the two clocks and its
    drift, which are estimated from the packets, with their errors; their sum and the other parts do not.

    Of saved tables or a data set, which hold no packets, it is two runs.

    Two runs, before and after an upgrade or of two clients, are compared procedure by procedure: counts, errors,
    latencies with the test of Mann and Whitney, how payloads travelled; and what the diagnosis finds, what the ends
    agreed, and which rules of the audit they broke, where that differs.

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
    readings = opened((first,), ports, force), opened((second,), ports, force)
    found = compare(*readings)
    if as_json:
        for reading in readings:
            print_json({**limits_record(reading.analyzer), "file": reading.path})
        for record in points_records(found, each) if isinstance(found, PointsCompared) else runs_records(found):
            print_json(record)
    else:
        out = console()
        for reading in readings:
            for line in limit_lines(reading.analyzer):
                show(out, Text.assemble(f"{reading.path}: ", line, style="red"))
        show(out, points_view(found) if isinstance(found, PointsCompared) else runs_view(found, out.width))
    failed = False
    for reading in readings:
        try:
            reading.check()
        except CaptureError as error:
            complain(str(error))
            failed = True
    if failed:
        click.get_current_context().exit(EXIT_BAD_INPUT)
