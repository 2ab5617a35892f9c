"""``rdmascope batch``: the captures of a fleet, each analysed once, into one data set."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable
from datetime import datetime

import click

from rdmascope.captures.read.merge import processors
from rdmascope.dissect.records.schema import record
from rdmascope.dissect.units import plural

from ..options import refuse_options
from ..reading import analyzer_options, recognition_options
from ..terminal import EXIT_BAD_INPUT, complain, print_json, say


@click.command("batch")
@click.argument("patterns", metavar="PATTERN...", nargs=-1)
@click.option("--out", "-o", "data_set", metavar="DATASET", required=True, help="The data set; made, or added to.")
@click.option("--jobs", "-j", type=click.IntRange(1), help="Captures analysed at a time.  [default: processors]")
@click.option("--scheduler", metavar="ADDRESS", help="Let the workers of this Dask cluster analyse: tcp://HOST:PORT.")
@click.option(
    "--watch",
    is_flag=True,
    help="Keep running until Ctrl-C or SIGTERM, and add each file of a ring once it is whole, as a separate capture.",
)
@click.option(
    "--compact", is_flag=True, help="Make one file of all small ones of a table and a day, also without PATTERN."
)
@click.option(
    "--drop-before",
    type=click.DateTime(["%Y-%m-%d"]),
    metavar="DAY",
    help="Delete the captures of earlier days, also without PATTERN.",
)
@click.option("--json", "as_json", is_flag=True, help="One object for each capture, and one for all.")
@recognition_options
@click.pass_context
def command(
    ctx: click.Context,
    patterns: tuple[str, ...],
    data_set: str,
    jobs: int | None,
    scheduler: str | None,
    watch: bool,
    compact: bool,
    drop_before: datetime | None,
    as_json: bool,
    ports: tuple[int, ...],
    force: str | None,
) -> None:
    """Analyse many captures of many hosts, each once, into one data set of Parquet files.

    PATTERN is a folder (all files *.pcap* in it and below), a file, or a pattern in quotes in which ** stands for any
    folders; or a URL of one, 's3://captures/**/*.pcap*', with the extra rdmascope[remote]. The host of a capture is the
    first folder below the pattern's own; for a file directly in that folder, the file's name. Files of dumpcap's ring
    buffers, and those that tcpdump -C numbers, are one capture in the order of time.

    Every command that reads captures takes DATASET: report, diagnose, rpcs, sql and others read its tables; show,
    packets, export, verify and others read the original captures. RPCs, connections and frames are numbered over all
    its captures; report --by host compares the hosts, and in sql each table has the columns host and capture.

    The command can be stopped at any time and run again: captures already in the data set, by their contents, are not
    analysed again; those that grew or were rotated further replace their earlier versions. A file that cannot be read
    is named, and does not affect the others. See docs/fleets.md.

    Example: which client waited longest?

    \b
      $ rdmascope batch rxe-nfs-all.pcap.zst meta-rxe.pcap.zst --out fleet -j 1
      1/2  meta-rxe: meta-rxe.pcap.zst: 6,053 RPCs, 25,944 frames
      2/2  rxe-nfs-all: rxe-nfs-all.pcap.zst: 237 RPCs, 3,697 frames
      fleet: 2 captures, 0 known, 0 not read
      $ rdmascope report fleet --by host
      ...

    With --watch each file of a ring becomes a separate capture once a later one exists, so that nothing is in the data
    set twice when the ring drops its oldest file. RPCs that span two files lack their call or their reply.

    DATASET may also be a URL of a writable store, 's3://bucket/fleet'; several hosts may write to it at the same time.
    Small files are merged as captures are added, and all of them with --compact. --scheduler gives the captures to the
    workers of a Dask cluster, which must reach them and DATASET under the same paths or URLs.

    Exit status: 0 all captures are in the data set, 2 some could not be read.
    """
    from rdmascope.captures.fleet.batch import batch, units, watched
    from rdmascope.captures.tables.saved_tables import DataSet

    refuse_options(
        (not (patterns or compact or drop_before), "no PATTERN: which captures?"),
        (
            watch and (scheduler or not patterns),
            "--watch takes folders of this machine, and leaves --scheduler out",
        ),
    )
    captures = [] if watch else units(patterns)
    unread = known = 0
    options = analyzer_options(ports, force)
    if watch:
        analysed = watched(patterns, data_set, options, jobs or processors(), _stopped())
    elif scheduler is None:
        analysed = batch(captures, data_set, options, jobs or processors())
    else:
        from rdmascope.captures.fleet.batch import on_cluster

        analysed = on_cluster(captures, data_set, options, scheduler)
    total = 0
    for total, batch_capture in enumerate(analysed, 1):
        known += batch_capture.known
        entry = batch_capture.entry
        unread += bool(entry.problem)
        if as_json:
            print_json(batch_capture.record())
        elif entry.problem:
            complain(entry.problem)
        else:
            files = (
                ""
                if len(batch_capture.unit.paths) == 1
                else f" and {plural(len(batch_capture.unit.paths) - 1, 'more file')}"
            )
            state = "known" if batch_capture.known else f"{plural(entry.rpcs, 'RPC')}, {plural(entry.frames, 'frame')}"
            of = "" if watch else f"/{len(captures)}"
            say(f"{total}{of}  {entry.host}: {os.path.basename(batch_capture.unit.paths[0])}{files}: {state}")
            if entry.damage:
                complain(entry.damage)
    if drop_before is not None:
        dropped = DataSet(data_set).drop_before(drop_before.date().isoformat())
        complain(f"{data_set}: {plural(dropped, 'capture')} deleted")
    if compact:
        fewer, left = DataSet(data_set).compact(all_of=True), DataSet(data_set).remove_left()
        complain(f"{data_set}: {plural(fewer, 'file')} fewer, {left} unfinished removed")
    if as_json:
        print_json(record("batch", data_set=data_set, captures=total, known=known, unread=unread))
    else:
        words = f"{plural(total, 'capture')}, {known} known, {unread} not read"
        say(f"{data_set}: {words}")
    if unread:
        ctx.exit(EXIT_BAD_INPUT)


def _stopped() -> Callable[[float], bool]:
    """Waits so many seconds, and says whether Ctrl-C or SIGTERM came by then."""
    # No Event: a handler that sets one waits for ever where it interrupts wait() while that has its lock.
    came, sent = os.pipe()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: os.write(sent, b"!"))
    return lambda seconds: bool(select.select([came], [], [], seconds)[0])
