"""The report: what a capture holds, in tables."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from rich.console import Group, RenderableType
from rich.text import Text

from rdmascope.dissect.diagnosis.facts import Facts, HostFacts, label
from rdmascope.dissect.measure.statistics import (
    PARTS,
    Procedure,
    Share,
    SlowRpc,
    Statistics,
    TransferTotals,
    connection_counts,
)
from rdmascope.dissect.onc.rpc_header import procedure_label, program_label
from rdmascope.dissect.records.rpc import HOST_PHASES
from rdmascope.dissect.rpcrdma.conversation import Conversation
from rdmascope.dissect.rpcrdma.eviction import Evicted
from rdmascope.dissect.transport.connection import Connection, Endpoint, ending_words
from rdmascope.dissect.units import at_least, bound, count, duration, moment, percent, plural, share, size, with_port

from .negotiation import speaks_version_2, story
from .tables import (
    PART_COLUMNS,
    PART_NAMES,
    STATE_STYLES,
    WIDE,
    Cell,
    Grid,
    bar,
    facts,
    flagged,
    indented,
    latency_cells,
    latency_tables,
    more,
    part_cells,
    sparkline,
)

PAIRINGS = {"CM": "QPs matched by CM", "inferred": "QPs matched by their traffic"}
PROTOCOLS = {"other": "not RPC-over-RDMA", "unknown": "too little traffic to identify"}
MEANING = {
    "inline call": "in the call's Send",
    "inline reply": "in the reply's Send",
    "read chunk": "part of the call, read by the server",
    "position zero": "the whole call, read by the server",
    "write chunk": "results, written into the client's memory",
    "reply chunk": "the whole reply, written into the client's memory",
}
MAX_CONNECTIONS = 24
MAX_PROCEDURES = 30
LEAST_SHARE = 0.005
"""Share of the time of all RPCs below which procedures without failures are folded, if there are more than a few."""
MAX_HOSTED = 10
"""Procedures that are listed with their times in the hosts."""
MIN_FOLDED = 8
MAX_ERRORS = 6
PREFIX = re.compile("^NFS[34]?ERR_")
LATENCY_COLUMNS = ("RPCs", "err", "time", "min", "median", "95%", "99%", "max")
MINIMUM = LATENCY_COLUMNS.index("min")
"""The column that is left out where there is little room."""


DATA_SERVER = "pNFS data server"


def summary(
    name: str,
    *,
    frames: int,
    traced: str,
    notes: Sequence[RenderableType],
    packets: int,
    first_time: int | None,
    last_time: int | None,
    conversations: Sequence[Conversation],
    statistics: Statistics,
    evicted: Evicted,
) -> RenderableType:
    lines: list[RenderableType] = [Text(name, "bold")]
    connections = connection_counts(conversations, evicted)
    records = connections.records
    tcp = f"{plural(records, 'record')} of RPC over {connections.without_rdma}" if records else ""
    rdma = f"{count(packets - connections.records)} of them RDMA packets"
    parts = [rdma] if packets > connections.records or not tcp else []
    what = f"{plural(frames, 'event')} of the {traced}'s kernel" if traced else ""
    lines.append(Text(what or ", ".join([plural(frames, "frame"), *parts, *([tcp] if tcp else [])])))
    lines += notes
    if first_time is not None and last_time is not None:
        lines.append(Text(f"{duration(last_time - first_time)} from {moment(first_time)}"))
    line = Text()
    line.append(plural(statistics.calls, "RPC"), "bold")
    line.append(f" on {connections.words}")
    others = {state: number for state, number in statistics.states.items() if state not in ("complete", "error")}
    if statistics.calls and not others:
        line.append(", all answered")
    for state, number in others.items():
        line.append(f", {count(number)} {'unanswered' if state == 'no reply' else state}", STATE_STYLES.get(state, ""))
    if failures := _failures(statistics.procedures()):
        line.append(f"; {failures}", STATE_STYLES["error"])
    if number := statistics.duplicate_replies:
        line.append("; beside them ")
        line.append("1 duplicate reply" if number == 1 else f"{count(number)} duplicate replies", "yellow")
    lines.append(line)
    if connections.total != connections.rpcrdma + connections.tcp:
        parts = [f"{count(connections.rpcrdma)} RPC-over-RDMA"]
        parts += [f"{count(connections.tcp)} RPC over {connections.without_rdma}"] if connections.tcp else []
        parts += [f"{count(connections.refused)} refused"] if connections.refused else []
        parts += [f"{count(connections.others)} of another or an unknown protocol"] if connections.others else []
        lines.append(Text(f"{plural(connections.total, 'connection')}: {', '.join(parts)}"))
    return Group(*lines)


def _queue_pair(end: Endpoint) -> str:
    """TCP and iWARP name none; the client's port says which connection it is."""
    return f"{end.qpn:#x}" if end.port is None else f":{end.port}"


def connections_view(conversations: Sequence[Conversation], statistics: Statistics, evicted: Evicted) -> RenderableType:
    """One row per connection, then what their ends agreed, once for all that agree alike."""
    shares = statistics.connections
    if not conversations and not evicted.connections:
        return Text("  none seen", "dim")
    calls = {number: share.calls for number, share in shares.items()}
    busiest = sorted(conversations, key=lambda conversation: -calls.get(conversation.connection.number, 0))
    shown = sorted(busiest[:MAX_CONNECTIONS], key=lambda conversation: conversation.connection.number)
    lossy = any(
        sum(conversation.connection.retransmitted_packets) or sum(conversation.connection.missing_packets)
        for conversation in shown
    )
    rows = []
    for conversation in shown:
        connection = conversation.connection
        part = shares.get(connection.number, Share())
        active, passive = connection.endpoints
        carrier = conversation.carries_rpc
        row: list[Cell] = [
            str(connection.number),
            active.address,
            _queue_pair(active),
            with_port(passive.address, connection.service_port)
            + (f" {DATA_SERVER}" if conversation.data_server is not None else ""),
            _queue_pair(passive) if passive.port is None else "-",
            count(part.calls) if carrier else "-",
            size(part.call_bytes) if carrier else "-",
            size(part.reply_bytes) if carrier else "-",
        ]
        if lossy:
            row += [count(sum(connection.retransmitted_packets)), count(sum(connection.missing_packets))]
        rows.append(row)
    columns = ["RPCs", "calls", "replies", *(["retrans", "missing"] if lossy else [])]
    table = Grid(["#", "client", "QP", "server", "QP"], columns, rows, flexible=1)
    parts: list[RenderableType] = [table]
    parts += more(len(conversations) - len(shown), ", less busy")
    if evicted.connections:
        parts.append(_evicted(evicted, statistics.evicted))
    alike: dict[tuple[str, ...], list[int]] = {}
    for conversation in shown:
        alike.setdefault(tuple(agreed(conversation, conversations)), []).append(conversation.connection.number)
    for lines, numbers in alike.items():
        label = "all" if len(alike) == 1 and len(numbers) > 1 else "#" + _ranges(numbers)
        parts.append(facts([(label if not at else "", line) for at, line in enumerate(lines)], "dim"))
    return Group(*parts)


def _evicted(evicted: Evicted, share: Share) -> Text:
    retransmitted, missing = evicted.retransmitted_packets, evicted.missing_packets
    facts = [plural(share.calls, "RPC"), f"{size(share.call_bytes)} of calls", f"{size(share.reply_bytes)} of replies"]
    facts += [f"{plural(retransmitted, 'packet')} retransmitted"] if retransmitted else []
    facts += [f"{plural(missing, 'packet')} missing"] if missing else []
    return Text(f"  and {plural(evicted.connections, 'more connection')}, in sum: {', '.join(facts)}", "dim")


def agreed(conversation: Conversation, conversations: Sequence[Conversation]) -> Iterator[str]:
    """What the ends of a connection agreed, in lines."""
    connection = conversation.connection
    sure = "" if connection.confidence >= 1 else f" ({connection.confidence:.0%} sure)"
    pairing = PAIRINGS.get(connection.paired_by, connection.paired_by) + sure
    if conversation.carries_rpc:
        name = "RPC-over-RDMA" if connection.rdma else "RPC"
        carried = f"{name}, identified by {', '.join(conversation.recognised_by)}"
    elif conversation.protocol_name:
        carried = f"{conversation.protocol_name}, {'judging by its port' if connection.service_port else 'passed over'}"
    else:
        carried = PROTOCOLS.get(conversation.protocol, conversation.protocol)
    yield f"{connection.transport}, {pairing}; {carried}" if connection.rdma else f"{connection.transport}; {carried}"
    if connection.evidence:
        yield "evidence: " + "; ".join(connection.evidence)
    if not conversation.carries_rpc:
        return
    role = conversation.data_server
    if role is not None:
        yield f"{DATA_SERVER} of {role.metadata_server}, as frame {role.frame} says ({role.by})"
    mtu = f"path MTU {connection.path_mtu}" if connection.path_mtu else ""
    if connection.rdma:
        yield from _terms(conversation, conversations, mtu)
    if connection.encrypted:
        yield f"encrypted by TLS from frame {connection.encrypted} on (RFC 9289): no RPC behind it can be read"
    words = ending_words(connection.ended_by)
    yield (f"ended by {words}" if words == connection.ended_by else words) if words else "not ended in this capture"


def _terms(conversation: Conversation, conversations: Sequence[Conversation], mtu: str) -> Iterator[str]:
    """What the ends of an RPC-over-RDMA connection agreed."""
    connection = conversation.connection
    if speaks_version_2(conversation):
        yield from story(conversation, conversations)
        if mtu:
            yield mtu
    else:
        there, source = conversation.known_inline_threshold(0)
        back, source_back = conversation.known_inline_threshold(1)
        origin = source if source == source_back else f"{source}, {source_back}"
        threshold = f"inline threshold unknown ({origin})"
        if there is not None and back is not None:
            threshold = f"inline threshold {size(there)} to the server, {size(back)} back ({origin})"
        yield f"{threshold}; {mtu}" if mtu else threshold
    yield f"private data: client {_private(conversation, 0)}; server {_private(conversation, 1)}"
    requested, granted = _range(conversation.credits_requested), _range(conversation.credits_granted)
    yield f"credits: {requested} requested, {granted} granted{_depths(connection)}"


def _private(conversation: Conversation, end: int) -> str:
    data = conversation.private_data(end)
    if data is None:
        return "none" if conversation.private_data_known(end) else "not seen"
    invalidation = ", remote invalidation" if data.remote_invalidation else ""
    return f"sends {size(data.send_size)}, receives {size(data.receive_size)}{invalidation}"


def _depths(connection: Connection) -> str:
    """How many RDMA Reads the server may have under way: its share of what the CM exchange settled."""
    served, issued = connection.endpoints[0].responder_resources, connection.endpoints[1].initiator_depth
    known = [depth for depth in (served, issued) if depth is not None]
    if not known:
        return ""
    terms = ", ".join(f"{name} {depth}" for name, depth in (("client IRD", served), ("server ORD", issued)) if depth)
    return f"; the server may have {plural(min(known), 'Read')} in flight ({terms})"


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


def procedures_view(procedures: Sequence[Procedure], width: int, everything: bool = False) -> RenderableType:
    """Latency and its parts by procedure; one table where there is room, else two."""
    waited = sum(procedure.waiting for procedure in procedures)
    shown, rest = procedures, []
    if not everything:
        answered = sum(procedure.waited for procedure in procedures)
        large = [
            procedure
            for procedure in procedures
            if procedure.failed or procedure.waiting > procedure.waited or procedure.waited >= LEAST_SHARE * answered
        ]
        shown = large[:MAX_PROCEDURES] if len(procedures) > MIN_FOLDED else procedures
        rest = [procedure for procedure in procedures if procedure not in shown]
    labels: list[list[Cell]] = []
    latencies: list[list[Cell]] = []
    parts: list[list[Cell]] = []
    for program, members in _by_program(shown):
        labels.append([Text(program, "bold")])
        latencies.append([""] * len(LATENCY_COLUMNS))
        parts.append([""] * len(PART_COLUMNS))
        names = _distinct_labels(members)
        for member in members:
            labels.append([Text("  " + names[id(member)], "yellow" if member.failed else "")])
            latencies.append(latency_cells(member.calls, member.failed, member.waiting, waited, member.latency(), True))
            parts.append(_part_cells(member))
    wide = width >= WIDE
    shown_latencies = (LATENCY_COLUMNS, latencies) if wide else (_narrow(LATENCY_COLUMNS), [*map(_narrow, latencies)])
    views = latency_tables(["procedure"], labels, shown_latencies, parts, wide)
    if errors := _errors(procedures):
        views.append(indented(Text(f"errors: {errors}", "yellow")))
    if rest:
        calls = sum(procedure.calls for procedure in rest)
        views.append(
            Text(
                f"  … and {len(rest)} more, {share(sum(procedure.waiting for procedure in rest), waited)} of the time,"
                f" with {plural(calls, 'RPC')} (--all lists them)",
                "dim",
            )
        )
    return Group(*views)


LEAST_PHASE = 0.02
"""Share of the time on a host, below which a phase has no column."""


def hosts_views(hosts: HostFacts, width: int, everything: bool = False) -> Iterator[tuple[str, RenderableType]]:
    """For each side that has a trace: its name, and the mean time in its phases, by procedure."""
    limit = len(hosts.procedures) if everything else MAX_HOSTED
    for side, phases in groupby(HOST_PHASES, lambda phase: phase.side):
        whole = hosts.all.whole(side)
        if not whole:
            continue
        shown = [host_time for host_time in phases if hosts.all.times[host_time.field] >= LEAST_PHASE * whole]
        busiest = sorted(hosts.procedures.items(), key=lambda host_procedure: -host_procedure[1].whole(side))[:limit]
        rows: list[list[Cell]] = []
        for key, sums in busiest:
            means = [sums.times[host_time.field] / sums.calls for host_time in shown]
            times = [Text(duration(mean), "bold" if mean == max(means) else "") for mean in means]
            rows.append([label(key), count(sums.calls), duration(sums.whole(side) / sums.calls), *times])
        names = [host_time.field.replace("_", " ") for host_time in shown]
        yield side, Grid(["procedure"], ["RPCs", "in all", *names], rows)


def _errors(procedures: Iterable[Procedure]) -> str:
    """'6 NFS3ERR_NOENT (LOOKUP), …', the most frequent first."""
    counts: Counter[tuple[str, str]] = Counter()
    for procedure in procedures:
        for status, number in procedure.statuses.items():
            counts[status, procedure_label(procedure.key.name, procedure.key.operations)] += number
    listed = [f"{number:,} {status} ({label})" for (status, label), number in counts.most_common(MAX_ERRORS)]
    return ", ".join([*listed, *(["…"] if len(counts) > MAX_ERRORS else [])])


def _failures(procedures: Iterable[Procedure]) -> str:
    """'NOENT 32, NOTSUPP 1', the most frequent first."""
    counts: Counter[str] = Counter()
    for procedure in procedures:
        for status, number in procedure.statuses.items():
            counts[PREFIX.sub("", status)] += number
    listed = [f"{name} {count(number)}" for name, number in counts.most_common(MAX_ERRORS)]
    return ", ".join([*listed, *(["…"] if len(counts) > MAX_ERRORS else [])])


def _by_program(procedures: Iterable[Procedure]) -> list[tuple[str, list[Procedure]]]:
    groups: dict[str, list[Procedure]] = {}
    for procedure in procedures:
        key = procedure.key
        name = program_label(key.program, key.version, key.minor_version)
        groups.setdefault(name + (" backward" if key.backward else ""), []).append(procedure)
    return list(groups.items())


def _distinct_labels(members: Sequence[Procedure]) -> dict[int, str]:
    """Short labels, long where two would look alike; by id."""
    short = {id(member): procedure_label(member.key.name, member.key.operations) for member in members}
    taken = list(short.values())
    return {
        id(member): short[id(member)]
        if taken.count(short[id(member)]) == 1
        else procedure_label(member.key.name, member.key.operations, full=True)
        for member in members
    }


def _narrow(cells: Sequence[Cell]) -> list[Cell]:
    return [*cells[:MINIMUM], *cells[MINIMUM + 1 :]]


def _part_cells(procedure: Procedure) -> list[Cell]:
    parts = procedure.parts()
    return part_cells(
        procedure.call_bytes, procedure.reply_bytes, [parts[name].mean if name in parts else 0 for name in PARTS]
    )


def transfers_view(transfers: dict[str, TransferTotals], width: int) -> RenderableType:
    everything = sum(transfer.transferred for transfer in transfers.values())
    rows: list[list[Cell]] = []
    for way, transfer_totals in transfers.items():
        if not transfer_totals.messages:
            continue
        chunks = (
            [count(transfer_totals.chunks), count(transfer_totals.segments), size(transfer_totals.advertised)]
            if transfer_totals.chunks
            else ["-"] * 3
        )
        moved = [size(transfer_totals.transferred), share(transfer_totals.transferred, everything)]
        meaning = [Text(MEANING[way], "dim")] if width >= 110 else []
        rows.append([way, *meaning, count(transfer_totals.messages), *chunks, *moved])
    left = ["", ""] if width >= 110 else [""]
    views: list[RenderableType] = [
        Grid(left, ["messages", "chunks", "segments", "advertised", "transferred", ""], rows, flexible=0, gap=2)
    ]
    unused = [
        plural(transfer_totals.unused, way) for way, transfer_totals in transfers.items() if transfer_totals.unused
    ]
    if unused:
        views.append(Text(f"  advertised and not used: {', '.join(unused)}", "dim"))
    return Group(*views)


def slowest_view(slowest: Sequence[SlowRpc], width: int) -> RenderableType:
    wide = width >= 100
    rows: list[list[Cell]] = []
    for rpc in slowest:
        key = rpc.key
        dominant = "no reply"
        if rpc.latency is not None:
            parts = rpc.latency._asdict()
            name = max(PARTS, key=lambda part: parts[part])
            dominant = f"{PART_NAMES[name]} {share(parts[name], rpc.latency.total)}" if parts[name] else "-"
        remark = rpc.status if rpc.state == "error" else "" if rpc.state in ("complete", "no reply") else rpc.state
        if rpc.retransmissions:
            remark = f"{remark} {rpc.retransmissions} retransmitted".strip()
        row: list[Cell] = [
            Text.assemble(
                program_label(key.program, key.version, key.minor_version) + " ",
                procedure_label(key.name, key.operations),
                (f"  {remark}" if remark else "", STATE_STYLES.get(rpc.state, "")),
            ),
            str(rpc.number),
            Text(at_least(rpc.waiting, rpc.latency is None), "bold"),
            dominant,
            str(rpc.connection),
            f"{rpc.call_frame}-{rpc.reply_frame or '?'}",
        ]
        if wide:
            row += [f"{rpc.xid:#010x}", size(rpc.call_bytes), size(rpc.reply_bytes)]
        rows.append(row)
    columns = [
        "RPC",
        "latency",
        "dominant phase",
        "conn",
        "frames",
        *(["xid", "to server", "to client"] if wide else []),
    ]
    return Grid(["procedure"], columns, rows, flexible=0, gap=2)


def histogram_view(statistics: Statistics, width: int) -> RenderableType:
    buckets = statistics.histogram()
    if not buckets:
        return Text("  no RPC with both call and reply", "dim")
    highest = max(number for _, _, number in buckets)
    room = min(48, max(10, width - 36))
    rows: list[list[Cell]] = [
        [
            f"{bound(low):>7} to {bound(high):>7}",
            f"{count(number) if number else '':>7}",
            Text(bar(number, highest, room), "cyan"),
        ]
        for low, high, number in buckets
    ]
    return Grid(["", "", ""], [], rows)


def throughput_view(statistics: Statistics, width: int) -> RenderableType:
    each, bins = statistics.timeline.intervals(min(64, max(16, width - 44)))
    if not bins or not each:
        return Text("  nothing to draw", "dim")
    rows: list[list[Cell]] = []
    lines: tuple[tuple[str, list[float], str, str], ...] = (
        ("RPCs", [float(interval.calls) for interval in bins], "magenta", "count"),
        ("to server", [float(interval.call_bytes) for interval in bins], "blue", "size"),
        ("to client", [float(interval.reply_bytes) for interval in bins], "green", "size"),
    )
    for name, values, style, unit in lines:
        peak = max(values) / each
        rate = f"{size(peak)}/s" if unit == "size" else f"{peak:,.0f}/s"
        rows.append([name, Text(sparkline(values), style), Text(f"peak {rate}", "dim")])
    return Group(Grid(["", "", ""], [], rows), Text(f"  one column is {duration(each * 1e9)}", "dim"))


def undecoded_view(rows: Sequence[tuple[str, str, int]]) -> RenderableType:
    """Rows of (what, reason, count)."""
    if not rows:
        return Text("  nothing", "dim")
    wide = max(len(count(number)) for _, _, number in rows)
    listed = [
        [f"{count(number):>{wide}}", what.removesuffix("s") if number == 1 else what, reason]
        for what, reason, number in rows
    ]
    return Grid(["", "", ""], [], listed, flexible=2)


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
        if (waiting := facts.by_number.get(number)) is not None:
            waited[waiting.connection.endpoints[0].address] += float(sums.latency.sum())
    hung: set[str] = set()
    for call in facts.rpcs.unanswered:
        if (waiting := facts.by_number.get(call.connection)) is not None and call.waiting > 0:
            hung.add(waiting.connection.endpoints[0].address)
            waited[waiting.connection.endpoints[0].address] += call.waiting
    if len(calls) < 2:
        return None
    rows: list[list[Cell]] = []
    for client in sorted(calls, key=lambda address: -waited[address])[:MAX_CLIENTS]:
        connections, rpcs, failed, up, down = calls[client]
        time = percent(waited[client] / facts.waiting) if facts.waiting else "-"
        mean = at_least(waited[client] / rpcs, client in hung) if rpcs else "-"
        errors = flagged(failed, "yellow")
        rows.append([client, count(connections), count(rpcs), errors, time, mean, size(up), size(down)])
    view = Grid(["client"], ["conns", "RPCs", "err", "time", "mean", "to server", "to client"], rows)
    return Group(view, *more(len(calls) - len(rows)))


def unanswered_view(facts: Facts) -> RenderableType | None:
    """Calls without a reply that are not among the slowest, the oldest first; None where there are none."""
    slowest = {slow_rpc.number for slow_rpc in facts.statistics.slowest()}
    unanswered = [call for call in facts.rpcs.unanswered if call.number not in slowest]
    waiting = sorted(unanswered, key=lambda rpc: -rpc.waiting)
    if not waiting:
        return None
    rows: list[list[Cell]] = [
        [
            Text(label(call.key)),
            str(call.number),
            Text(at_least(call.waiting, True) if call.waiting >= 0 else "-", "bold"),
            str(call.connection),
            str(call.frame),
        ]
        for call in waiting[:MAX_UNANSWERED]
    ]
    view = Grid(["procedure"], ["RPC", "waited", "conn", "frame"], rows, gap=2)
    rest = facts.rpcs.unanswered_count - len(facts.rpcs.unanswered) + len(waiting) - len(rows)
    return Group(view, *more(rest, ": rdmascope rpcs FILE --errors"))
