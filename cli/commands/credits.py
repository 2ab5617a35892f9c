"""``rdmascope credits``: flow control over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from rich.text import Text

from rdmascope.captures.session.session import each_credit_direction
from rdmascope.dissect.measure.filters import unknown_connections
from rdmascope.dissect.records.connection import credits_record
from rdmascope.dissect.records.schema import schema

from ..options import connection_filter_options
from ..reading import file_argument, jobs_option, opened, recognition_options
from ..terminal import console, print_json, show
from ..views.credits import credits_view
from ..views.tables import filter_field, filter_line

if TYPE_CHECKING:
    from rdmascope.captures.tables.condition import Condition
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

    problem = ""

    def end() -> None:
        nonlocal problem
        problem = unknown_connections(connections, reading.extent())
        if not problem and condition is not None:
            problem = condition.problem(reading)

    out = console()
    at = 0
    for one in each_credit_direction(reading, note, end):
        if connections and one.connection.number not in connections:
            continue
        if condition is not None and (one.connection.number, one.backward) not in with_rpcs:
            continue
        if condition is not None and not at and not as_json:
            words = "their connections and directions; credits are those of all calls there"
            show(out, filter_line(condition, words), Text())
        at += 1
        if as_json:
            fields = {**reading.placed(credits_record(one)), "file": reading.path}
            print_json({**fields, **filter_field(condition)})
        else:
            if at > 1:
                click.echo()
            show(out, credits_view(one, out.width))
    if not at:
        where = " or ".join(map(str, connections))
        reading.refuse(problem or (f"no call on connection {where}" if connections else "no RPC-over-RDMA message"))
    reading.refuse(problem)
    reading.check()
