"""``rdmascope rpcs``: one line per RPC."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

import click

from rdmascope.dissect.measure.selection import RpcFilter, procedure_names
from rdmascope.dissect.records.rpc import rpc_record
from rdmascope.dissect.rpcrdma.rpcs import Rpc

from ..options import Duration, Moment, MomentType, Xid
from ..plain import harmless_line
from ..reading import Reading, analyzer_options, file_argument, follow_options, following, recognition_options
from ..terminal import console, print_json
from ..views import rpcs as views

SORT_KEYS: dict[str, Callable[[Rpc], Any]] = {
    "time": views.begin,
    "latency": lambda rpc: -(rpc.latency.total if rpc.latency else -1),
    "xid": lambda rpc: rpc.xid,
    "size": lambda rpc: -(rpc.call_bytes + rpc.reply_bytes),
}


@click.command("rpcs")
@file_argument
@click.option("--xid", "xids", type=Xid(), multiple=True, help="Only this XID: 0x1a2b3c4d or decimal.")
@click.option(
    "--procedure",
    "procedures",
    multiple=True,
    metavar="NAME",
    help="Only this procedure or COMPOUND operation: READ, NFS.READ, READ,WRITE, 'OPEN*'; case does not matter.",
)
@click.option(
    "--connection", "connections", type=click.IntRange(1), multiple=True, metavar="N", help="Only this connection."
)
@click.option("--slower-than", type=Duration(), help="Only with more latency: 10ms, 250us, 1.5s.")
@click.option("--errors", is_flag=True, help="Only RPCs that failed or are incomplete.")
@click.option("--since", type=MomentType(), help="Only calls from then on: seconds, or an ISO 8601 time.")
@click.option("--until", type=MomentType(), help="Only calls before then.")
@click.option(
    "--sort",
    type=click.Choice(sorted(SORT_KEYS)),
    help="Oldest call, slowest, lowest XID, or largest first; else in the order in which RPCs ended.",
)
@click.option("--json", "as_json", is_flag=True, help="One rdmascope.rpc/3 object a line.")
@follow_options
@recognition_options
def command(
    files: tuple[str, ...],
    xids: tuple[int, ...],
    procedures: tuple[str, ...],
    connections: tuple[int, ...],
    slower_than: int | None,
    errors: bool,
    since: Moment | None,
    until: Moment | None,
    sort: str | None,
    as_json: bool,
    ports: tuple[int, ...],
    force: str | None,
    follow: bool,
    idle: float | None,
) -> None:
    """One line per RPC, with filters and sorting.

    Times are seconds since the first frame of the capture.  "how" says how payloads travelled: r Read chunk,
    0 position-zero Read chunk, w Write chunk, R Reply chunk, nothing where everything was inline; "<" marks a backward
    call, made by the server.

    Example: which calls took more than 100 ms, the slowest first?

    \b
      $ rdmascope rpcs rxe-nfs-all.pcap.zst --slower-than 100ms --sort latency
      RPC       time conn        xid latency    frames how ...
      173 106.636979    3 0x9bc24159  208 ms 2803-2805 ... DESTROY_CLIENTID
      ...
       96 100.962649    2 0xe16103b9  121 ms 1509-1835   r 256 KiB ... GETATTR

    A filter given several times passes each of its values.

    RPC 96 sent 256 KiB in a Read chunk.  For a script: the latency of every READ, and the bytes it transferred:

    \b
      $ rdmascope rpcs rxe-nfs-all.pcap.zst --procedure READ --json |
          jq -r '[.xid, .latency.total_ns, .chunks[0].transferred] | @tsv'
      1017653947  43260000  6
      1067985595  10542000  262144
      ...
    """
    options = analyzer_options(ports, force, contents=False)
    reading = Reading(files, options, streaming=sort is None, follow=following(follow, idle))

    wanted = RpcFilter(procedure_names(procedures), xids, connections, slower_than, errors)
    if since is not None and until is not None and since.relative == until.relative and since >= until:
        raise click.UsageError("--since is not before --until: no RPC can be between them", click.get_current_context())

    def chosen() -> Iterator[Rpc]:
        for rpc in reading.rpcs():
            if wanted.since is None and since is not None:
                wanted.since = since.absolute(reading.first_time)
            if wanted.until is None and until is not None:
                wanted.until = until.absolute(reading.first_time)
            if wanted.passes(rpc):
                yield rpc

    found: Iterator[Rpc] = chosen()
    if sort is not None:
        found = iter(sorted(found, key=SORT_KEYS[sort]))
    if as_json:
        for rpc in found:
            print_json(rpc_record(rpc))
    else:
        _print_lines(reading, found)
    reading.check()
    if problem := wanted.problem(one.number for one in reading.analyzer.connections):
        raise click.ClickException(f"{reading.path}: {problem}")


def _print_lines(reading: Reading, found: Iterator[Rpc]) -> None:
    out = console()
    narrow = out.is_terminal and out.width < views.NARROW
    first = next(found, None)  # A file that cannot be read gets no header.
    lines = found if first is None else chain((first,), found)
    if first is None and reading.damage is not None:
        return
    if out.is_terminal:
        out.print(views.header(narrow), no_wrap=True, overflow="ellipsis", style="dim")
        for rpc in lines:
            out.print(views.line(rpc, reading.first_time, narrow), no_wrap=True, overflow="ellipsis")
    else:
        sys.stdout.write(views.header().plain + "\n")
        for rpc in lines:
            sys.stdout.write(harmless_line(views.line(rpc, reading.first_time).plain) + "\n")
