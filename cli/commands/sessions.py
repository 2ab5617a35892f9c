"""``rdmascope sessions``: the state that NFSv4 clients have on servers, and what they waited for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from rich.text import Text

from rdmascope.dissect.arrays import unique
from rdmascope.dissect.measure.nfs_state_history import NfsStateHistory
from rdmascope.dissect.records.nfs_state import state_records
from rdmascope.dissect.records.schema import schema
from rdmascope.dissect.units import plural

from ..options import filter_options
from ..reading import Reading, analyzer_options, captures_of, file_argument, no_jobs_option, recognition_options
from ..terminal import complain, console, print_json, show
from ..views.tables import filter_field, filter_line, limit_lines

if TYPE_CHECKING:
    from rdmascope.captures.tables.condition import Condition

TYPES = (
    "capture_limits", "nfs_client", "nfs_delegation", "nfs_session", "nfs_slot_event", "nfs_data_server", "gss_context",
    "nfs_wait",
)  # fmt: skip


@click.command("sessions")
@file_argument
@click.option("--all", "everything", is_flag=True, help="List every delegation, request out of order, and wait.")
@click.option("--json", "as_json", is_flag=True, help=f"{', '.join(map(schema, TYPES))} objects.")
@filter_options
@recognition_options
@no_jobs_option("NFSv4 state is followed over all connections in the order of time, by one process")
def command(
    files: tuple[str, ...],
    everything: bool,
    as_json: bool,
    ports: tuple[int, ...],
    force: str | None,
    condition: Condition | None,
) -> None:
    """NFSv4 clients, sessions, slots, delegations: what clients hold on servers, and what they wait for.

    A client has a lease on a server, and with it opens, locks, delegations and layouts. From NFSv4.1 on its calls go
    through sessions: each takes a slot, so no more calls can be outstanding than there are slots, and the server knows
    a retransmitted call by slot and sequence ID. State from before the capture is marked as such.

    \b
    Example: a connection broke.  What became of the calls that were outstanding?
      $ rdmascope sessions loss-rxe.pcap.zst
      Client 1  NFSv4.1  10.77.0.2 → 10.77.0.1
        ...
        Session 1  caf6006b9d04f13d0100000000000000, frame 40; ended by
        ...
          connections: 1 (CREATE_SESSION), 2 (BIND_CONN_TO_SESSION, fore and back)
      ...

    \b
                                      peak in     highest    at the
          channel  requests  slots        use        slot     limit  retries  gaps
          fore           71     30         24          24         -       14     -
      ...

    Fourteen were retransmitted on the next connection, with the same slots and sequence IDs. The server had already
    executed six of them, without keeping the replies: NFS4ERR_RETRY_UNCACHED_REP.

    "What clients waited for" has the time in which all slots of a session or all credits of a connection were in use,
    the time from each recall of a delegation to its return, grace periods, and state lost and reclaimed.

    Filters choose RPCs: only pairs of client and server with such RPCs are shown, but with what all their calls tell.
    """
    from rdmascope.dissect.records.report import limits_record

    from ..views import sessions as views

    reading = Reading(
        captures_of(files, "what calls say of clients and sessions", True, condition), analyzer_options(ports, force)
    )
    reading.needs_packets()
    history = NfsStateHistory()
    reading.analyzer.listener = history.listener
    reading.data_servers = history.pnfs
    ends: set[tuple[str, str]] = set()
    for table in reading.tables(history.evict):
        if condition is not None:
            for number in unique(condition.selected(table, reading).rows["connection"]).tolist():
                client, server = table.conversation(number).connection.endpoints
                ends.add((client.address, server.address))
        del table
        history.advance()
    history.finish()
    if condition is not None:
        history.keep(ends)
        reading.refuse(condition.problem(reading))
    analyzer, out = reading.analyzer, console()
    if as_json:
        for record in (limits_record(analyzer), *state_records(history)):
            print_json({**reading.placed(record), "file": reading.path, **filter_field(condition)})
    elif analyzer.packets:
        any_state = bool(history.clients or history.security.contexts)
        truncated = analyzer.truncated_frames > 0
        where = "what is left of its frames" if truncated else "this capture"
        nothing = Text(f"no NFSv4 client, session or state in {where}")
        if condition is not None:
            show(
                out,
                filter_line(condition, "clients at the addresses that made them, each shown from all its calls"),
                Text(),
            )
        show(out, *limit_lines(analyzer), views.state_view(history, everything, truncated) if any_state else nothing)
    if history.table.untracked:
        complain(f"{plural(history.table.untracked, 'mention')} of further clients and sessions, too many to follow")
    if history.undecoded:
        complain(f"{plural(history.undecoded, 'COMPOUND')} that may change state could not be decoded to the end")
    reading.check()
