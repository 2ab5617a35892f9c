"""Whom it concerns: clients by the time that they waited, and calls that were never answered."""

from __future__ import annotations

from collections import defaultdict

from rich.console import Group, RenderableType
from rich.text import Text

from rdmascope.dissect.diagnosis.facts import Facts, label
from rdmascope.dissect.units import at_least, count, percent, size

from .tables import Cell, Grid

MAX_CLIENTS = 10
MAX_UNANSWERED = 10


def clients_view(facts: Facts) -> RenderableType | None:
    """A row for each client, by the time that it waited; None where there is only one."""
    calls: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0, 0])
    waited: dict[str, float] = defaultdict(float)
    for conversation in facts.conversations:
        number, client = conversation.connection.number, conversation.connection.endpoints[0].address
        share = facts.statistics.connections.get(number)
        if share is None:
            continue
        for at, value in enumerate((1, share.calls, share.failed, share.call_bytes, share.reply_bytes)):
            calls[client][at] += value
        waited[client] += 0.0
    for (number, _), sums in facts.rpcs.groups().items():
        found = facts.by_number.get(number)
        if found is not None:
            waited[found.connection.endpoints[0].address] += float(sums.latency.sum())
    hung: set[str] = set()
    for one in facts.rpcs.unanswered:
        found = facts.by_number.get(one.connection)
        if found is not None and one.waiting > 0:
            hung.add(found.connection.endpoints[0].address)
            waited[found.connection.endpoints[0].address] += one.waiting
    if len(calls) < 2:
        return None
    rows: list[list[Cell]] = []
    for client in sorted(calls, key=lambda one: -waited[one])[:MAX_CLIENTS]:
        connections, rpcs, failed, up, down = calls[client]
        time = percent(waited[client] / facts.waiting) if facts.waiting else "-"
        mean = at_least(waited[client] / rpcs, client in hung) if rpcs else "-"
        errors: Cell = Text(count(failed), "yellow") if failed else "-"
        rows.append([client, count(connections), count(rpcs), errors, time, mean, size(up), size(down)])
    view = Grid(["client"], ["conns", "RPCs", "err", "time", "mean", "to server", "to client"], rows)
    rest = len(calls) - len(rows)
    return Group(view, Text(f"  … and {rest} more", "dim")) if rest else view


def unanswered_view(facts: Facts) -> RenderableType | None:
    """Calls without a reply that are not among the slowest, the oldest first; None where there are none."""
    slowest = {one.number for one in facts.statistics.slowest()}
    unanswered = [one for one in facts.rpcs.unanswered if one.number not in slowest]
    waiting = sorted(unanswered, key=lambda one: -one.waiting)
    if not waiting:
        return None
    rows: list[list[Cell]] = [
        [
            Text(label(one.key)),
            str(one.number),
            Text(at_least(one.waiting, True) if one.waiting >= 0 else "-", "bold"),
            str(one.connection),
            str(one.frame),
        ]
        for one in waiting[:MAX_UNANSWERED]
    ]
    view = Grid(["procedure"], ["RPC", "waited", "conn", "frame"], rows, gap=2)
    rest = facts.rpcs.unanswered_count - len(facts.rpcs.unanswered) + len(waiting) - len(rows)
    return Group(view, Text(f"  … and {rest} more: rdmascope rpcs FILE --errors", "dim")) if rest else view
