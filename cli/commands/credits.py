"""``rdmascope credits``: flow control over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from rich.text import Text

from rdmascope.dissect.measure.selection import unknown_connections
from rdmascope.dissect.records.credits import credits_record
from rdmascope.dissect.records.schema import schema

from ..options import connection_filter_options
from ..reading import file_argument, jobs_option, opened, recognition_options
from ..terminal import console, print_json, show
from ..views.credits import credits_view
from ..views.filtered import filter_field, filter_line

if TYPE_CHECKING:
    from rdmascope.captures.condition import Condition
    from rdmascope.dissect.rpcrdma.rpc_table import RpcTable


@click.command("credits")
@file_argument
@click.option("--json", "as_json", is_flag=True, help=f"One {schema('credits')} object per connection and direction.")
@connection_filter_options
@recognition_options
@jobs_option
def command(
    files: tuple[str, ...],
    connections: tuple[int, ...],
    as_json: bool,
    ports: tuple[int, ...],
    force: str | None,
    jobs: int | None,
    condition: Condition | None,
) -> None:
    """Show flow control: credits requested and granted, calls outstanding, and the time spent at the limit.

    A requester may have as many calls outstanding as the lower of what it requested and what the responder granted
    (RFC 8166, 3.3.1).  At that limit, further calls wait.

    \b
    Example: is this mount held back by credits?
      $ rdmascope credits meta-rxe.pcap.zst --connection 1
      Connection 1  forward calls, 10.77.0.2 → 10.77.0.1
        requested         128      calls              2,819
        granted           64       replies            2,819
        max outstanding   1        mean outstanding   0.11
        at the limit      0 (0%)   count              0
      ...

    It is not: 64 are granted, and no more than one is ever used.  The plot shows the calls outstanding over time, with
    the limit as a line, and below it the share of time that the requester was at the limit.

    Times are those at the capture point: a call is outstanding from the moment it passes there until its reply does.

    Filters choose RPCs: only connections and directions of theirs are shown.  Credits are still those of all calls
    there, for every call takes one.
    """
    reading = opened(files, ports, force, contents=condition is not None and condition.needs_contents, jobs=jobs)
    with_rpcs: set[tuple[int, bool]] = set()

    def note(table: RpcTable) -> None:
        if condition is not None:
            rows = condition.selected(table, reading).rows
            with_rpcs.update(zip(rows["connection"].tolist(), map(bool, rows["caller"].tolist()), strict=True))

    found = reading.credit_directions(note)
    chosen = [
        one
        for one in found
        if (not connections or one.connection.number in connections)
        and (condition is None or (one.connection.number, one.backward) in with_rpcs)
    ]
    problem = unknown_connections(connections, reading.extent()) or (
        "" if condition is None else condition.problem(reading)
    )
    if not chosen:
        where = " or ".join(map(str, connections))
        reading.refuse(problem or (f"no call on connection {where}" if connections else "no RPC-over-RDMA message"))
    out = console()
    if condition is not None and chosen and not as_json:
        show(
            out,
            filter_line(condition, "their connections and directions; credits are those of all calls there"),
            Text(),
        )
    for at, one in enumerate(chosen):
        if as_json:
            fields = {**reading.placed(credits_record(one)), "file": reading.path}
            print_json({**fields, **filter_field(condition)})
        else:
            if at:
                click.echo()
            show(out, credits_view(one, out.width))
    reading.refuse(problem)
    reading.check()
