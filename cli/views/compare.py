"""Two captures beside each other: where time went between two points, or what changed from one run to the other."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import nlargest
from operator import itemgetter

from rich.console import Group, RenderableType
from rich.text import Text

from rdmascope.dissect.link.capture_points import Clocks, LonePackets
from rdmascope.dissect.measure.comparison import SIGNIFICANT, Change, Costs, Phases, Run
from rdmascope.dissect.records.comparison import PointsCompared, RunsCompared
from rdmascope.dissect.units import count, duration, plural, share, size

from ..sanitize import harmless_line
from .tables import Cell, Grid, heading, indented, more, timed

WHERE = "Where the time went"
MAX_PROCEDURES = 20
WIDE = 110
"""Columns of a screen that has room for more."""
MAX_ANSWERS = 3
"""Procedures in the sentence that answers."""
ALIKE = 0.1
"""Times that differ by less, as a share of the longer one, are alike."""
MAX_FRAMES = 10
"""Frames that are named."""
PARTS = ("server", "there", "back", "read_network", "write_network", "client")


def points_view(compared: PointsCompared) -> RenderableType:
    """Where the time of the RPCs went that two capture points saw."""
    common, total = compared.common, compared.rpcs.total
    lines: list[RenderableType] = [
        Text("No RPC with call and reply at both points", "yellow") if total is None else Text(_verdict(total), "bold"),
        Text.assemble("The same traffic at two points: ", (harmless_line(compared.client), "bold"), " at the client, ",
                      (harmless_line(compared.server), "bold"), " at the server"),
        Text(f"{plural(common.both, 'packet')} at both points" + ("" if compared.whole else ", at the beginning")),
        Text(_clocks(compared)),
    ]  # fmt: skip
    if total is not None:
        lines += [Text(), heading(WHERE, "means; shares of what the client waited"), _phases(compared)]
    lines += [Text(), heading("Seen at one point only"), *_lone(compared)]
    return Group(*lines)


def where_view(compared: PointsCompared) -> RenderableType | None:
    """The answer, and the parts of each procedure; None where no RPC is at both points."""
    total = compared.rpcs.total
    return None if total is None else Group(indented(Text(_verdict(total), "bold")), _phases(compared))


def slowest_view(compared: PointsCompared, limit: int, width: int) -> RenderableType | None:
    """The RPCs that the client waited longest for, at both points; None where there is none."""
    slowest = nlargest(limit, compared.rpcs.each(), key=lambda rpc: rpc.waited)
    if not slowest:
        return None
    wide = width >= WIDE
    parts = ("there", "back", *(("server", "read_network", "write_network", "client") if wide else ()))
    rows: list[list[Cell]] = [
        [
            rpc.name,
            str(rpc.client_number),
            str(rpc.server_number),
            *([f"{rpc.xid:#010x}"] if wide else []),
            Text(duration(rpc.waited), "bold"),
            duration(rpc.at_server),
            *(duration(getattr(rpc, part)) for part in parts),
        ]
        for rpc in slowest
    ]
    columns = ["client #", "server #", *(["xid"] if wide else []), "waited", "at server", "there", "back"]
    grid = Grid(["procedure"], columns + (["server", "Reads", "Writes", "client"] if wide else []), rows, flexible=0)
    lines = [
        Text.assemble("at the client (client #): ", (harmless_line(compared.client), "bold")),
        Text.assemble("at the server (server #): ", (harmless_line(compared.server), "bold")),
        Text(_clocks(compared)),
    ]
    return Group(*(indented(line) for line in lines), grid)


def _clocks(compared: PointsCompared) -> str:
    common = compared.common
    way = "ahead of" if common.offset >= 0 else "behind"
    text = f"the server's clock is {abs(common.offset) / 1e6:,.3f} ms {way} the client's"
    text += (
        " (not certain: packets of one direction alone are common)"
        if common.error is None
        else (f", give or take {duration(common.error)}")
    )
    text += _drift(common.clocks)
    there, back = common.transit
    if there is not None and back is not None:
        text += f"; packets take {duration(there)} there and {duration(back)} back (median)"
    return text


def _drift(clocks: Clocks) -> str:
    if clocks.drift_error is None:
        return ""
    error = f"{clocks.drift_error * 1e6:.1f} ppm"
    if not clocks.drift:
        return f", and drifts by less than {error}"
    way = "gains" if clocks.drift > 0 else "loses"
    return f", and {way} {abs(clocks.drift) * 1e6:.1f} ppm, give or take {error}"


def _phases(compared: PointsCompared) -> RenderableType:
    total = compared.rpcs.total
    assert total is not None
    shown = compared.rpcs.procedures[:MAX_PROCEDURES]
    rows: list[list[Cell]] = [_phase_row(phases, phases.name) for phases in shown]
    rows.append([Text(str(cell), "bold") for cell in _phase_row(total, "all")])
    rows.append(["", "", "", *(Text(share(getattr(total, part), total.waited.mean), "dim") for part in PARTS)])
    grid = Grid(["procedure"], ["RPCs", "waited", "server", "there", "back", "Reads", "Writes", "client"], rows)
    return Group(grid, *more(len(compared.rpcs.procedures) - len(shown), ", with less time"))


def _phase_row(phases: Phases, name: str) -> list[Cell]:
    return [
        name,
        count(phases.rpcs),
        duration(phases.waited.mean),
        *(duration(getattr(phases, part)) for part in PARTS),
    ]


def _verdict(total: Phases) -> str:
    waited = total.waited.mean
    parts = {"on the server": total.server, "on the network": total.network, "at the client": total.client}
    first, *rest = (
        (share(time, waited), where) for where, time in sorted(parts.items(), key=itemgetter(1), reverse=True)
    )
    return "{} of the time was {}, ".format(*first) + ", ".join(map(" ".join, rest))


def _lone(compared: PointsCompared) -> Iterator[RenderableType]:
    said = False
    for path, lone, other in (
        (compared.client, compared.at_client, "the server's capture"),
        (compared.server, compared.at_server, "the client's capture"),
    ):
        for text, frames in _lone_parts(lone, other):
            said = True
            some = ", ".join(map(str, frames[:MAX_FRAMES])) + (" …" if len(frames) > MAX_FRAMES else "")
            yield Text(f"  {plural(len(frames), 'packet')} in {harmless_line(path)}, {text}: frame {some}", "yellow")
    for number, where in ((compared.rpcs.only_client, "client's"), (compared.rpcs.only_server, "server's")):
        if number:
            said = True
            yield Text(f"  {plural(number, 'RPC')} whole at the {where} point alone", "yellow")
    if not said:
        yield Text("  nothing")


def _lone_parts(lone: LonePackets, other: str) -> Iterator[tuple[str, list[int]]]:
    if len(lone.lost):
        yield f"lost on the way to the other point, or by {other}", lone.lost.tolist()
    if len(lone.missed):
        yield f"not in {other}, though they passed there", lone.missed.tolist()


def runs_view(compared: RunsCompared, width: int) -> RenderableType:
    """What changed from one run to the other."""
    spans = [duration(round(seconds * 1e9)) for seconds in compared.seconds]
    lines: list[RenderableType] = [
        Text(answer(compared), "bold"),
        Text.assemble("Two runs: ", (harmless_line(compared.before), "bold"), f", {spans[0]}, and ",
                      (harmless_line(compared.after), "bold"), f", {spans[1]}"),
        Text(),
        heading("Procedures", f"by time in both runs; * significant (p < {SIGNIFICANT})"),
    ]  # fmt: skip
    shown = compared.procedures[:MAX_PROCEDURES]
    lines.append(_change_table(shown, width) if shown else Text("  no RPC in either"))
    lines += more(len(compared.procedures) - len(shown), ", with less time")
    lines += [Text(), heading("Payloads", "share of bytes that RDMA Reads and Writes carried")]
    payloads = [
        [change.name, _chunked(change.before), _chunked(change.after)]
        for change in shown
        if _chunked(change.before) != _chunked(change.after) and change.before.rpcs and change.after.rpcs
    ]
    lines.append(Grid(["procedure"], ["before", "after"], payloads) if payloads else Text("  as before"))
    lines += [Text(), heading("Diagnosis of one run only", "rdmascope diagnose FILE has each with its evidence")]
    said = [("vanished", statement) for statement in compared.vanished] + [
        ("appeared", statement) for statement in compared.appeared
    ]
    lines += [
        indented(Text(f"{change}: {statement.severity.value}, {statement.cause.text}")) for change, statement in said
    ]
    lines += [] if said else [Text("  none")]
    lines += [Text(), heading("Settings that differ")]
    settings = [
        [name, ", ".join(setting) or "-", ", ".join(other) or "-"] for name, setting, other in compared.settings
    ]
    lines.append(Grid(["setting", "before", "after"], [], settings) if settings else Text("  none"))
    lines += [Text(), heading("Rules broken in one run only", "rdmascope rules RULE has each in full")]
    rules = [[rule, role, count(before), count(after)] for rule, role, before, after in compared.rules]
    lines.append(Grid(["rule", "by the"], ["before", "after"], rules) if rules else Text("  none"))
    return Group(*lines)


def answer(compared: RunsCompared) -> str:
    """One sentence: what became slower or faster, and by how much; of TCP beside RDMA also which run had which, and
    why."""
    changes, tcp = compared.procedures, compared.rdma[0] != compared.rdma[1] and all(compared.transports)
    first, second = (f" over {', '.join(transport)}" for transport in compared.transports)
    why = "" if compared.costs is None else f". {_why(*compared.costs)}"
    answers = []
    for change in changes:
        before, after = change.before.latency, change.after.latency
        if change.significant and change.chance is not None and before and after and before.median and after.median:
            factor = after.median / before.median
            if factor != 1:
                ratio = f"{max(factor, 1 / factor):.1f} times {'slower' if factor > 1 else 'faster'}"
                chance = "p < 0.001" if change.chance < 0.001 else f"p = {change.chance:.3f}"
                answers.append(f"{ratio} in {change.name}, {chance}")
    both = sum(change.chance is not None for change in changes)
    if not answers:
        words = f"No significant difference in {plural(both, 'procedure')} of both runs"
        words = words if both else "No procedure is in both runs"
        return f"{words},{first} and{second}{why}" if tcp else words
    rest = f"; {len(answers) - MAX_ANSWERS} more differ" if len(answers) > MAX_ANSWERS else ""
    rest += "; all else alike" if both > len(answers) else ""
    said = "; ".join(answers[:MAX_ANSWERS])
    if tcp:
        said = said.replace(" in ", f" than the first,{first}, in ", 1)
    return f"The second run{f',{second},' if tcp else ''} is {said}{rest}{why}"


def _why(before: Costs, after: Costs) -> str:
    """Where NFS spent its time in either run, what differs most first."""
    known = before.network is not None and after.network is not None
    parts = [("server" if known else "server and network", before.server, after.server)]
    parts += [("network", before.network or 0.0, after.network or 0.0)] if known else []
    lost = before.retransmitted or after.retransmitted
    parts += [("retransmissions", before.retransmissions, after.retransmissions)] if lost else []
    if before.kernel is not None and after.kernel is not None:
        parts.append(("client's kernel", before.kernel, after.kernel))
    parts.sort(key=lambda part: -abs(part[1] - part[2]))
    words = []
    for name, first_mean, second_mean in parts:
        alike = " (alike)" if abs(first_mean - second_mean) <= ALIKE * max(first_mean, second_mean) else ""
        words.append(f"{name} {duration(first_mean)} and {duration(second_mean)}{alike}")
    none = "" if lost else ", no retransmissions"
    rates = f"{size(round(before.throughput))}/s and {size(round(after.throughput))}/s"
    return f"Time per RPC: {', '.join(words)}{none}; throughput {rates}"


def _change_table(shown: list[Change], width: int) -> RenderableType:
    """Wide screens have the 99th percentile, too; errors have columns where there are some."""
    wide = width >= WIDE
    errors = any(run.failed for change in shown for run in (change.before, change.after))
    columns = ["RPCs", *(["err"] if errors else []), "median", *(["99%"] if wide else [])]
    rows: list[list[Cell]] = []
    for change in shown:
        row: list[Cell] = [change.name]
        for run in (change.before, change.after):
            row += [count(run.rpcs), *([count(run.failed)] if errors else [])]
            row.append(timed(run.latency.median if run.latency else None))
            row += [timed(run.latency.p99 if run.latency else None)] if wide else []
        rows.append([*row, _factor(change)])
    first, second = ([f"{when}\n{columns[0]}", *columns[1:]] for when in ("before", "after"))
    columns = [*first, *second, "change"]
    return Grid(["procedure"], columns, rows)


def _factor(change: Change) -> Cell:
    before, after = change.before.latency, change.after.latency
    if not (before and after and before.median):
        return "-"
    factor = after.median / before.median
    style = "" if not change.significant else "red" if factor > 1 else "green"
    return Text(f"{factor:.2f}x{'*' if change.significant else ' '}", style)


def _chunked(run: Run) -> str:
    return share(run.chunk_bytes, run.call_bytes + run.reply_bytes)
