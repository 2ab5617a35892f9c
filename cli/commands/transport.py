"""``rdmascope transport``: how the transport below the RPCs fared."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

import click
from rich.text import Text

from rdmascope.captures.session.session import Session
from rdmascope.dissect.measure.filters import unknown_connections
from rdmascope.dissect.records.connection import Paid, credits_record, transport_record
from rdmascope.dissect.records.schema import schema
from rdmascope.dissect.rpcrdma.rpc_table import RpcTable
from rdmascope.dissect.rpcrdma.rpcs import Rpc
from rdmascope.dissect.units import plural

from ..options import connection_filter_options, pager_option
from ..reading import file_argument, jobs_option, opened, recognition_options
from ..terminal import complain, console, paged, print_json, show
from ..views.tables import filter_field, filter_line, limit_lines
from ..views.transport import credits_view

if TYPE_CHECKING:
    from rdmascope.captures.tables.condition import Condition

MAX_PAID = 1000
"""RPCs of a connection that are kept, those that waited longest."""


@click.command("transport")
@file_argument
@click.option(
    "--icrc",
    is_flag=True,
    help="Also list wrong ICRCs of hosts that never send a right one.  (ICRCs are always verified.)",
)
@click.option("--credits", is_flag=True, help="Flow control instead: credits, calls outstanding, time at the limit.")
@click.option("--all", "everything", is_flag=True, help="Every retransmission and every RPC delayed by one.")
@pager_option
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help=f"One {schema('transport')} object per connection, or {schema('credits')} per direction.",
)
@connection_filter_options
@recognition_options
@jobs_option
def command(
    files: tuple[str, ...],
    connections: tuple[int, ...],
    icrc: bool,
    credits: bool,
    everything: bool,
    pager: bool,
    as_json: bool,
    ports: tuple[int, ...],
    force: str | None,
    jobs: int | None,
    condition: Condition | None,
) -> None:
    """Health of the transport: losses, retransmissions, congestion, and the RPCs they delayed.

    Per connection: packets and goodput each way, retransmitted packets and why, the time from a loss to the NAK
    and to the retransmission, acknowledgements, congestion marks, the reason it ended, and where the capture
    was taken.

    \b
    Example: packets were lost.  Whose, and which RPCs were delayed?
      $ rdmascope transport loss-rxe.pcap.zst --connection 2
      Connection 2  10.77.0.2 → 10.77.0.1:20049
        closed by the client (DREQ)
        ...
                                                     client                 server
        ...
        retransmitted                 599 (22.4%), 2.34 MiB  193 (19.9%), 97.5 KiB
          original not captured                10, 40.0 KiB            3, 4.00 KiB
        ...
        sequence error NAKs sent                          3                      -
        ...

    Thirteen packets were lost, and 792 retransmitted for them: RDMA retransmits everything from the lost packet on.
    "Lost before capture point": only the retransmission was captured, so the packet was lost between its sender and the
    capture point. An implied NAK is a Read that was requested again because a response did not arrive.

    \b
        RPC                           delay    of latency  packets retransmitted
        60   NFSv4.1 WRITE GETATTR  47.2 ms  104 ms (45%)                     40

    Nearly half of that WRITE's time was spent waiting for retransmissions.

    iWARP: TCP recovers losses there, so the page has segments, duplicate acknowledgements, fast retransmits and
    timeouts, and the CRCs of MPA.  TCP delivers in order, so an RPC is also delayed by lost segments of others ahead
    of its own.

    --credits shows flow control.  A requester may have as many calls outstanding as the lower of what it requested and
    what the responder granted (RFC 8166, 3.3.1).  At that limit, further calls wait.

    Example: is this mount held back by credits?

    \b
      $ rdmascope transport --credits meta-rxe.pcap.zst --connection 3
      Connection 3  forward calls, 10.77.0.2 → 10.77.0.1
        requested         128      calls              2,819
        granted           64       replies            2,819
        max outstanding   1        mean outstanding   0.11
        at the limit      0 (0%)   count              0
      ...

    It is not: 64 are granted, and no more than one is ever used. The plot shows the calls outstanding over time, with
    the limit as a line, and below it the share of time that the requester was at the limit. Times are as seen at the
    capture point: a call is outstanding from the moment it passes there until its reply does.

    Filters choose RPCs: only their connections are shown, and of the RPCs only these. Packets are still counted over
    the whole connection, because a lost one delays other RPCs, too, and credits over all its calls, because each takes
    one.
    """
    contents = condition is not None and condition.needs_contents
    reading = opened(files, ports, force, contents=contents, icrc=icrc, jobs=jobs, condition=condition)
    if credits:
        _credits(reading, connections, as_json, condition)
        return
    reading.needs_packets()
    from ..views import transport as views

    paid: dict[int, list[tuple[int, int, Paid]]] = {}
    with_rpcs: set[int] = set()
    for table in reading.tables(chunk_rows=condition is None):
        if condition is not None:
            table = condition.selected(table, reading)
            with_rpcs.update(table.rows["connection"].tolist())
        for row in table.rows["latency_retransmission"].nonzero()[0].tolist():
            rpc = table[row]
            _keep(paid.setdefault(rpc.connection.number, []), rpc)
        del table
    analyzer = reading.analyzer
    chosen = [
        connection
        for connection in analyzer.connections
        if (not connections or connection.number in connections)
        and (condition is None or connection.number in with_rpcs)
    ]
    problem = unknown_connections(connections, reading.extent()) or (
        "" if condition is None else condition.problem(reading)
    )
    if not chosen:
        reading.refuse(problem)
    out = console()
    with paged(out, pager and not as_json):
        if condition is not None and chosen and not as_json:
            show(out, filter_line(condition, "their connections; packets are those of the whole connection"), Text())
        if not chosen and not as_json:
            show(out, views.nothing(reading.path, analyzer.frames))
        for at, connection in enumerate(chosen):
            health = analyzer.health(connection.number)
            waited = [entry for _, _, entry in sorted(paid.get(connection.number, []), reverse=True)]
            if as_json:
                fields = transport_record(analyzer.conversation(connection), health, waited)
                print_json({**reading.placed(fields), "file": reading.path, **filter_field(condition)})
            else:
                view = views.connection_view(connection, health, waited, out.width, everything, reading.place_words)
                show(out, *([Text()] if at else limit_lines(analyzer)), view)
    if evicted := analyzer.evicted.connections:
        complain(f"{plural(evicted, 'earlier connection')} evicted: too many to tell of each; the report has their sum")
    reading.refuse(problem)
    reading.check()


def _keep(entries: list[tuple[int, int, Paid]], rpc: Rpc) -> None:
    """Keep what is shown of an RPC, not the RPC; the longest waits only."""
    entry = rpc.retransmission_delay, -rpc.number, Paid.of(rpc)
    if len(entries) < MAX_PAID:
        heapq.heappush(entries, entry)
    else:
        heapq.heappushpop(entries, entry)


def _credits(reading: Session, connections: tuple[int, ...], as_json: bool, condition: Condition | None) -> None:
    """Flow control over time, of each connection and direction."""
    with_rpcs: set[tuple[int, bool]] = set()

    def note(table: RpcTable) -> None:
        if condition is not None:
            rows = condition.selected(table, reading).rows
            with_rpcs.update(zip(rows["connection"].tolist(), map(bool, rows["caller"].tolist()), strict=True))

    out = console()
    at = 0
    for credit_direction in reading.credit_directions(note):
        if connections and credit_direction.connection.number not in connections:
            continue
        if condition is not None and (credit_direction.connection.number, credit_direction.backward) not in with_rpcs:
            continue
        if condition is not None and not at and not as_json:
            words = "their connections and directions; credits are those of all calls there"
            show(out, filter_line(condition, words), Text())
        at += 1
        if as_json:
            fields = {**reading.placed(credits_record(credit_direction)), "file": reading.path}
            print_json({**fields, **filter_field(condition)})
        else:
            if at > 1:
                click.echo()
            show(out, credits_view(credit_direction, out.width))
    problem = unknown_connections(connections, reading.extent())
    if not problem and condition is not None:
        problem = condition.problem(reading)
    if not at:
        where = " or ".join(map(str, connections))
        reading.refuse(problem or (f"no call on connection {where}" if connections else "no RPC-over-RDMA message"))
    reading.refuse(problem)
    reading.check()
