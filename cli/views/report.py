"""The report: what a capture holds, in tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rdmascope.dissect.connection import Connection, Endpoint
from rdmascope.dissect.statistics import (
    PARTS,
    Distribution,
    Procedure,
    Share,
    Slow,
    Statistics,
    Transfer,
    histogram,
)

from ..names import procedure_label, program_label
from ..units import count, duration, moment, plural, seconds, share, size
from .tables import PART_NAMES, STATE_STYLES, bar, grid, heading, sparkline

WIDE = 150
"""From this many columns on, latency and its parts stand in one table."""
MOST_CONNECTIONS = 24
MOST_PROCEDURES = 40


def summary(
    name: str,
    *,
    frames: int,
    packets: int,
    first_time: int | None,
    last_time: int | None,
    connections: Sequence[Connection],
    statistics: Statistics,
) -> RenderableType:
    lines = [Text(name, "bold")]
    when = ""
    if first_time is not None and last_time is not None:
        when = f", {seconds(last_time - first_time)} s from {moment(first_time)}"
    lines.append(Text(f"{plural(frames, 'frame')}, {count(packets)} of them RDMA{when}"))
    line = Text()
    carriers = sum(one.protocol == "rpcrdma" for one in connections)
    line.append(plural(statistics.calls, "RPC"), "bold")
    line.append(f" on {plural(carriers, 'RPC-over-RDMA connection')}")
    for at, (state, number) in enumerate(sorted(statistics.states.items(), key=lambda one: -one[1])):
        line.append(": " if not at else ", ")
        line.append(f"{count(number)} {state}", STATE_STYLES.get(state, ""))
    lines.append(line)
    return Group(*lines)


def connections_view(connections: Sequence[Connection], shares: dict[int, Share]) -> RenderableType:
    """One row per connection, then what they agreed, told once for all that agree alike."""
    if not connections:
        return Text("  none seen", "dim")
    busiest = sorted(connections, key=lambda one: -(shares[one.number].calls if one.number in shares else 0))
    shown = sorted(busiest[:MOST_CONNECTIONS], key=lambda one: one.number)
    lossy = any(sum(one.retransmitted_packets) or sum(one.missing_packets) for one in shown)
    columns = ["RPCs", "calls", "replies", "sent again", "missing"] if lossy else ["RPCs", "calls", "replies"]
    table = grid(["#", "client", "server", "QPs", "ended"], columns)
    for one in shown:
        part = shares.get(one.number, Share())
        active, passive = one.endpoints
        port = f":{one.service_port}" if one.service_port else ""
        bracketed = f"[{passive.address}]" if port and ":" in passive.address else passive.address
        cells = [
            str(one.number),
            active.address,
            f"{bracketed}{port}",
            f"{active.qpn:#x} {passive.qpn:#x}",
            one.ended_by or "open",
            count(part.calls) if one.protocol == "rpcrdma" else one.protocol_name or one.protocol,
            size(part.call_bytes),
            size(part.reply_bytes),
        ]
        if lossy:
            cells += [count(sum(one.retransmitted_packets)), count(sum(one.missing_packets))]
        table.add_row("", *cells)
    parts: list[RenderableType] = [table]
    if len(connections) > len(shown):
        parts.append(Text(f"  … and {len(connections) - len(shown)} more, less busy", "dim"))
    alike: dict[tuple[str, ...], list[int]] = {}
    for one in shown:
        alike.setdefault(tuple(_agreed(one)), []).append(one.number)
    for lines, numbers in alike.items():
        label = "all" if len(alike) == 1 and len(numbers) > 1 else "#" + _ranges(numbers)
        agreed = Table.grid(padding=(0, 1, 0, 0))
        agreed.add_column(width=2)
        agreed.add_column(no_wrap=True, style="dim")
        agreed.add_column(overflow="fold")
        for at, line in enumerate(lines):
            agreed.add_row("", label if not at else "", line)
        parts.append(agreed)
    return Group(*parts)


def _agreed(one: Connection) -> Iterator[str]:
    sure = "" if one.confidence >= 1 else f", {one.confidence:.0%} sure"
    pairing = "by the CM exchange" if one.paired_by == "CM" else f"{one.paired_by}{sure}"
    recognised = ", ".join(one.recognised_by) or "nothing"
    protocol = {"rpcrdma": "RPC-over-RDMA", "unknown": "an unknown protocol"}.get(
        one.protocol, one.protocol_name or "another protocol"
    )
    yield f"{one.transport}, paired {pairing}; {protocol}, recognised by {recognised}"
    if one.evidence:
        yield "evidence: " + "; ".join(one.evidence)
    if one.protocol != "rpcrdma":
        return
    there, source = one.inline_threshold(0)
    back, source_back = one.inline_threshold(1)
    origin = source if source == source_back else f"{source}, {source_back}"
    mtu = f"; path MTU {one.path_mtu}" if one.path_mtu else ""
    yield f"inline threshold {size(there)} to the server, {size(back)} back ({origin}){mtu}"
    yield f"private data: client {_private(one.endpoints[0])}; server {_private(one.endpoints[1])}"
    asked, granted = _range(one.credits_asked), _range(one.credits_granted)
    yield f"credits: {asked} asked, {granted} granted{_depths(one)}"


def _private(end: Endpoint) -> str:
    data = end.private_data
    if data is None:
        return "none" if end.private_data_seen else "not seen"
    invalidation = ", remote invalidation" if data.remote_invalidation else ""
    return f"sends {size(data.send_size)}, receives {size(data.receive_size)}{invalidation}"


def _depths(one: Connection) -> str:
    """How many RDMA Reads the server may have under way: its share of what the CM exchange settled."""
    served, issued = one.endpoints[0].responder_resources, one.endpoints[1].initiator_depth
    told = []
    if served is not None:
        told.append(f"client serves {served}")
    if issued is not None:
        told.append(f"server issues {issued}")
    return f"; Reads at once: {', '.join(told)}" if told else ""


def _range(pair: tuple[int, int] | None) -> str:
    if pair is None:
        return "not seen"
    return str(pair[0]) if pair[0] == pair[1] else f"{pair[0]} to {pair[1]}"


def _ranges(numbers: Iterable[int]) -> str:
    """'1-3,5' of 1, 2, 3, 5."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)


def procedures_view(procedures: Sequence[Procedure], width: int) -> RenderableType:
    """Latency and its parts by procedure; one table where there is room, else two."""
    if not procedures:
        return Text("  none seen", "dim")
    shown = procedures[:MOST_PROCEDURES]
    rest = procedures[MOST_PROCEDURES:]
    latency_columns = ["min", "median", "95%", "99%", "max"]
    part_columns = ["call", "reply", *PART_NAMES.values()]
    tables: list[Table]
    if width >= WIDE:
        tables = [grid(["procedure"], ["RPCs", "errors", *latency_columns, *part_columns])]
    else:
        tables = [
            grid(["procedure"], ["RPCs", "errors", *latency_columns]),
            grid(["procedure"], part_columns),
        ]
    for program, members in _by_program(shown):
        for table in tables:
            table.add_row("", Text(program, "bold"))
        labels = _distinct_labels(members)
        for one in members:
            label = Text("  " + labels[id(one)], "" if not one.failed else "yellow")
            latency = _latency_cells(one)
            parts = _part_cells(one)
            if len(tables) == 1:
                tables[0].add_row("", label, *latency, *parts)
            else:
                tables[0].add_row("", label, *latency)
                tables[1].add_row("", label, *parts)
    lines: list[RenderableType] = []
    titles = ("", "bytes of calls and replies; mean time in each part")
    for table, title in zip(tables, titles, strict=False):
        if title:
            lines += [Text(), heading("Where the time goes", title)]
        lines.append(table)
    if rest:
        calls = sum(one.calls for one in rest)
        lines.append(Text(f"  … and {len(rest)} more with {plural(calls, 'RPC')} (--json has all)", "dim"))
    return Group(*lines)


def _by_program(procedures: Iterable[Procedure]) -> list[tuple[str, list[Procedure]]]:
    groups: dict[str, list[Procedure]] = {}
    for one in procedures:
        key = one.key
        name = program_label(key.program, key.version, key.minor_version)
        groups.setdefault(name + (" backward" if key.backward else ""), []).append(one)
    return list(groups.items())


def _distinct_labels(members: Sequence[Procedure]) -> dict[int, str]:
    """Short labels, long where two would look alike; by id."""
    short = {id(one): procedure_label(one.key.name, one.key.operations) for one in members}
    taken = list(short.values())
    return {
        id(one): short[id(one)]
        if taken.count(short[id(one)]) == 1
        else procedure_label(one.key.name, one.key.operations, full=True)
        for one in members
    }


def _latency_cells(one: Procedure) -> list[Text | str]:
    failed: Text | str = Text(count(one.failed), "yellow") if one.failed else "-"
    latency = one.latency()
    return [count(one.calls), failed, *(_five(latency) if latency else ["-"] * 5)]


def _five(one: Distribution) -> list[Text | str]:
    values = one.minimum, one.median, one.p95, one.p99, one.maximum
    return [duration(value) for value in values]


def _part_cells(one: Procedure) -> list[Text | str]:
    parts = one.parts()
    cells: list[Text | str] = [size(one.call_bytes), size(one.reply_bytes)]
    largest = max((part.mean for part in parts.values()), default=0)
    for name in PARTS:
        mean = parts[name].mean if name in parts else 0
        cells.append(Text(duration(mean), "bold" if mean == largest else "") if mean else Text("-", "dim"))
    return cells


def transfers_view(transfers: dict[str, Transfer]) -> RenderableType:
    table = grid(["", "what it is"], ["messages", "chunks", "segments", "offered", "moved", ""])
    meaning = {
        "inline call": "in the call's Send",
        "inline reply": "in the reply's Send",
        "read chunk": "fetched by the server",
        "position zero": "whole call fetched",
        "write chunk": "results written to client",
        "reply chunk": "whole reply written",
    }
    everything = sum(one.moved for one in transfers.values())
    for way, one in transfers.items():
        if not one.messages:
            continue
        chunked = bool(one.chunks)
        table.add_row(
            "",
            way,
            Text(meaning[way], "dim"),
            count(one.messages),
            count(one.chunks) if chunked else "-",
            count(one.segments) if chunked else "-",
            size(one.advertised) if chunked else "-",
            size(one.moved),
            share(one.moved, everything),
        )
    unused = {way: one.unused for way, one in transfers.items() if one.unused}
    parts: list[RenderableType] = [table]
    if unused:
        told = ", ".join(f"{plural(number, way)}" for way, number in unused.items())
        parts.append(Text(f"  offered and not used: {told}", "dim"))
    return Group(*parts)


def slowest_view(slowest: Sequence[Slow]) -> RenderableType:
    table = grid(["RPC", "procedure"], ["latency", "most of it in", "conn", "xid", "frames", ""])
    for one in slowest:
        key = one.key
        parts = one.latency._asdict()
        name = max(PARTS, key=lambda part: parts[part])
        most = f"{PART_NAMES[name]} {share(parts[name], one.latency.total)}"
        label = program_label(key.program, key.version, key.minor_version) + " "
        label += procedure_label(key.name, key.operations)
        remark = one.status if one.state == "error" else "" if one.state == "complete" else one.state
        if one.retransmissions:
            remark = f"{remark} {one.retransmissions} sent again".strip()
        table.add_row(
            "",
            str(one.number),
            label,
            Text(duration(one.latency.total), "bold"),
            most,
            str(one.connection),
            f"{one.xid:#010x}",
            f"{one.call_frame}-{one.reply_frame}",
            Text(remark, STATE_STYLES.get(one.state, "")),
        )
    return table


def histogram_view(statistics: Statistics, width: int) -> RenderableType:
    rows = histogram(statistics.latencies())
    if not rows:
        return Text("  no RPC with both halves", "dim")
    highest = max(row[2] for row in rows)
    table = grid([""], ["", ""], gap=1)
    table.add_column(no_wrap=True)
    room = min(48, max(10, width - 44))
    for low, high, number in rows:
        table.add_row(
            "",
            f"{duration(low)} to",
            duration(high),
            count(number) if number else "",
            Text(bar(number, highest, room), "cyan"),
        )
    return table


def throughput_view(statistics: Statistics, width: int) -> RenderableType:
    room = min(64, max(16, width - 44))
    each, bins = statistics.timeline.spread(room)
    if not bins or not each:
        return Text("  nothing to draw", "dim")
    table = grid([""], gap=1)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, justify="right", style="dim")
    lines: tuple[tuple[str, list[float], str, str], ...] = (
        ("RPCs", [float(one.calls) for one in bins], "magenta", "count"),
        ("to server", [float(one.call_bytes) for one in bins], "blue", "size"),
        ("to client", [float(one.reply_bytes) for one in bins], "green", "size"),
    )
    for name, values, style, unit in lines:
        peak = max(values) / each
        told = f"{size(peak)}/s" if unit == "size" else f"{peak:,.0f}/s"
        table.add_row("", name, Text(sparkline(values), style), f"peak {told}")
    return Group(table, Text(f"  one column is {duration(each * 1e9)}", "dim"))


def undecoded_view(rows: Sequence[tuple[str, str, int]]) -> RenderableType:
    """Rows of (what, reason, count)."""
    if not rows:
        return Text("  nothing", "dim")
    table = grid(["", "", ""])
    for what, reason, number in rows:
        noun = what.removesuffix("s") if number == 1 else what
        table.add_row("", Text(count(number), justify="right"), noun, reason)
    table.columns[1].justify = "right"
    table.columns[3].no_wrap = False
    table.columns[3].overflow = "fold"
    return table
