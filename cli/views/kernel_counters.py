"""Linux's own counters beside what was seen on the wire."""

from __future__ import annotations

from collections import defaultdict

from rich.console import Group, RenderableType
from rich.text import Text

from rdmascope.captures.session.kernel_counters import KernelCounters
from rdmascope.dissect.measure.kernel_counters import (
    REASONS,
    UNEXPLAINED,
    MountComparison,
    OperationComparison,
    ServerComparison,
)
from rdmascope.dissect.units import count, duration, plural, size

from .tables import Cell, Grid, counted, heading, indented

MILLISECOND = 1_000_000
SAME = Text("=", "dim")


def counters_view(counters: KernelCounters, width: int) -> RenderableType:
    """All that was compared."""
    parts: list[RenderableType] = []
    for mount in counters.mount_comparisons():
        parts += [Text(), *_mount_view(mount, counters.mounts_between, width)]
    server = counters.server_comparison()
    if server is not None:
        parts += [Text(), *_server_view(server, counters.server_between)]
    return Group(*parts)


def _mount_view(comparison: MountComparison, between: bool, width: int) -> list[RenderableType]:
    first = comparison.mounts[0]
    version = f"NFSv{first.version}" + ("" if first.minor_version is None else f".{first.minor_version}")
    since = "between two readings" if between else "since the mount"
    paths = ", ".join(mount.path for mount in comparison.mounts)
    parts: list[RenderableType] = [
        heading(f"Kernel counters of {paths}", f"{first.device}, {version}, {since}; seen: on the wire")
    ]
    if comparison.operations:
        wide, narrow = (_grid(comparison, whole) for whole in (True, False))
        parts.append(wide if wide.width <= width else narrow)
    else:
        parts.append(indented(Text("no operation", "dim")))
    parts += [indented(line) for line in [*_differences(comparison), *_waiting(comparison), *_remarks(comparison)]]
    return parts


def _grid(comparison: MountComparison, wide: bool) -> Grid:
    names = ["calls", "seen", "retrans", "err", "seen", *(["sent", "seen", "received", "seen"] if wide else [])]
    rows = [_row(operation, wide) for operation in comparison.operations]
    return Grid(["operation"], [*names, "queue", "RTT", "on wire", "execute"], rows, gap=2 if wide else 1)


def _row(operation: OperationComparison, wide: bool) -> list[Cell]:
    kernel, wire = operation.kernel, operation.wire
    bytes: list[Cell] = []
    if wide:
        bytes = [
            size(kernel.sent),
            SAME if kernel.sent == wire.sent else _other(size(wire.sent)),
            size(kernel.received),
            SAME if kernel.received == wire.received else _other(size(wire.received)),
        ]
    return [
        operation.operation,
        count(kernel.calls),
        SAME if kernel.transmissions == wire.calls else _other(count(wire.calls)),
        counted(kernel.transmissions - kernel.calls),
        "?" if kernel.errors is None else counted(kernel.errors),
        SAME if kernel.errors == wire.errors else _other(count(wire.errors)),
        *bytes,
        _mean(kernel.queue_ms, kernel.calls),
        _mean(kernel.rtt_ms, kernel.calls),
        duration(wire.latency / wire.timed) if wire.timed else "-",
        _mean(kernel.execute_ms, kernel.calls),
    ]


def _differences(comparison: MountComparison) -> list[Text]:
    """By reason: which operations, and by how much."""
    by_reason: dict[str, list[str]] = defaultdict(list)
    for operation in comparison.operations:
        what = f" {abs(operation.missing)} {'fewer' if operation.missing > 0 else 'more'}" if operation.missing else ""
        for reason in operation.reasons:
            by_reason[reason].append(operation.operation + what)
    lines = [
        Text.assemble(
            (f"{reason}: ", "bold red" if reason == UNEXPLAINED else "yellow"),
            ", ".join(by_reason[reason]),
            (f" ({REASONS[reason]})", "dim"),
        )
        for reason in REASONS
        if reason in by_reason
    ]
    return lines or [Text("calls, errors and bytes are the same in the kernel and on the wire", "green")]


def _waiting(comparison: MountComparison) -> list[Text]:
    """What the wire does not show: the time before the transmission."""
    counters = comparison.transport
    sends = counters.get("sends", 0)
    waited = sum(operation.kernel.queue_ms for operation in comparison.operations)
    calls = sum(operation.kernel.calls for operation in comparison.operations)
    words = f"before transmission RPCs waited {duration(waited * MILLISECOND)} in all (queue)"
    if calls:
        words += f", {duration(waited * MILLISECOND / calls)} each"
    if sends:
        backlog, outstanding = (counters.get(name, 0) / sends for name in ("backlog_sum", "outstanding_sum"))
        words += f"; at each of {plural(sends, 'send')} {outstanding:.2f} calls were outstanding on average"
        words += f" and {backlog:.2f} waited for a slot or credits"
    lines = [Text(words)]
    troubles = [
        f"{count(counters[name])} {what}"
        for name, what in (
            ("bad_xids", "replies with an unknown XID"),
            ("bad_replies", "replies that could not be decoded"),
            ("reply_waits_for_send", "replies that waited for a Send to complete"),
            ("empty_sendctx_queue", "times without room in the send queue"),
            ("mrs_recycled", "memory regions given up"),
        )
        if counters.get(name)
    ]
    if counters.get("connects", 0) > 1:
        troubles.insert(0, f"{counters['connects']} connections one after the other")
    return lines + ([Text(f"transport: {', '.join(troubles)}", "yellow")] if troubles else [])


def _remarks(comparison: MountComparison) -> list[Text]:
    lines = []
    if len(comparison.mounts) > 1:
        lines.append("these mounts share their connections, which the wire does not tell apart: they are added up")
    if len(comparison.clients) > 1:
        clients = ", ".join(comparison.clients)
        lines.append(f"nothing says which client's mount it is: {clients} are added up; --client chooses")
    if not comparison.clients:
        lines.append("no RPC of this version to this server was seen")
    return [Text(line, "dim") for line in lines]


def _server_view(comparison: ServerComparison, between: bool) -> list[RenderableType]:
    since = "between two readings" if between else "since its start"
    servers = ", ".join(comparison.servers) or "none"
    remark = f"{since}, over all clients; seen: on the wire, of {servers}"
    rows: list[list[Cell]] = [
        [row.name, count(row.counted), SAME if row.counted == row.seen else _other(count(row.seen))]
        for row in (*comparison.procedures, *comparison.operations)
    ]
    parts: list[RenderableType] = [heading("Server's counters", remark)]
    parts.append(Grid(["procedure or operation"], ["calls", "seen"], rows, gap=2))
    counters = comparison.counters
    lines = [
        Text(
            f"{plural(counters.calls, 'call')}, {count(counters.bad_calls)} refused; files: "
            f"{size(counters.bytes_read)} read, {size(counters.bytes_written)} written"
        )
    ]
    more = sum(max(0, row.counted - row.seen) for row in comparison.procedures)
    fewer = sum(max(0, row.seen - row.counted) for row in comparison.procedures)
    if more:
        lines.append(
            Text(f"{plural(more, 'call')} not seen: other clients, other transports, or not captured", "yellow")
        )
    if fewer:
        words = f"{plural(fewer, 'call')} not counted: before or after the readings, or another server"
        lines.append(
            Text(
                words + (f"; {count(comparison.unanswered)} are without a reply" * bool(comparison.unanswered)),
                "yellow",
            )
        )
    return [*parts, *(indented(line) for line in lines)]


def _mean(milliseconds: int, calls: int) -> str:
    return duration(milliseconds * MILLISECOND / calls) if calls else "-"


def _other(text: str) -> Text:
    return Text(text, "yellow")
