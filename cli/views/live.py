"""The dashboard of a live capture: a picture of one moment, as large as the terminal, and the keys that change it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, Self, TypeVar

from rich.console import Group, RenderableType
from rich.control import Control
from rich.live import Live as Screen
from rich.table import Table
from rich.text import Text

from rdmascope.captures.live.device import TRACED
from rdmascope.captures.live.session import LiveSession
from rdmascope.dissect.audit.auditor import who
from rdmascope.dissect.audit.rule import Finding
from rdmascope.dissect.diagnosis.facts import label
from rdmascope.dissect.measure.live_window import HISTORY, BusyProcedure, Rate
from rdmascope.dissect.measure.statistics import SlowRpc
from rdmascope.dissect.onc.rpc_header import procedure_label
from rdmascope.dissect.records.schema import Record
from rdmascope.dissect.rpcrdma.rpcs import Rpc
from rdmascope.dissect.units import at_least, count, duration, plural, size

from ..terminal import console, keyboard, pressed
from .diagnosis import LEVEL_STYLES
from .report import agreed
from .tables import STATE_STYLES, Cell, Grid, flagged, heading, indented, sized, sparkline, timed

WIDE = 140
"""From this many columns on, there are two halves side by side."""
GAP = 3
"""Blank columns between the halves."""
LOW = 16
"""Below so many lines there is no room for every section."""
NARROW = 60
"""Below so many columns, tables have only those of their columns that matter first."""
ROOMY = 36
"""From this many lines on, sections stand apart."""
ENDS = {"SIGINT": "Ctrl-C", "SIGTERM": "SIGTERM", "duration": "--duration", "count": "--count"}
ENDS |= {
    "end": "the end of the stream",
    "finding": "a finding",
    "trigger": "--until-where",
    "quit": "q",
    "error": "an error",
}
HANGING = 1_000_000_000
"""Nanoseconds from which on an outstanding call is worth a look."""

OPERATION_ORDERS: dict[str, Callable[[BusyProcedure], Any]] = {
    "time": lambda procedure: -(procedure.latency.total if procedure.latency else 0),
    "rpcs": lambda procedure: -procedure.calls,
    "latency": lambda procedure: -(procedure.latency.p99 if procedure.latency else 0),
    "errors": lambda procedure: -procedure.failed,
}
"""By what procedures are sorted: time spent on them, calls, the 99th percentile, failures."""


@dataclass(frozen=True, slots=True)
class Row:
    """A connection at that moment."""

    number: int
    client: str
    server: str
    carrier: bool
    """Whether the connection carries RPC-over-RDMA."""
    ended: bool
    rate: Rate
    outstanding: int
    granted: int | None
    retransmitted: int
    """Packets that were retransmitted."""
    missing: int
    rnr: int


CONNECTION_ORDERS: dict[str, Callable[[Row], Any]] = {
    "rpcs": lambda row: -row.rate.rpcs,
    "bytes": lambda row: -(row.rate.up + row.rate.down),
    "outstanding": lambda row: -row.outstanding,
    "retransmitted": lambda row: -row.retransmitted,
    "number": lambda row: 0,
}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that is on the screen."""

    title: str
    now: int
    """Nanoseconds."""
    seconds: float
    """How long the capture has run."""
    frames: int
    rpcs: int
    failed: int
    dropped: int | None
    received: int
    rate: Rate
    history: tuple[Rate, ...]
    connections: tuple[Row, ...]
    evicted: int
    busy: tuple[BusyProcedure, ...]
    newest: tuple[SlowRpc, ...]
    """The newest last."""
    slowest: tuple[SlowRpc, ...]
    breaches: Sequence[tuple[Finding, int]]
    """The last finding of each rule that was violated, the last one first, and how often it was."""
    picked: int | None = None
    agreed: tuple[str, ...] = ()
    """What the ends of the picked connection agreed."""
    kept: str = ""
    """Where packets are written."""
    trouble: str = ""
    """Why nothing can come of the device now."""
    oldest: Rpc | None = None
    """The call that is outstanding the longest."""
    memory_short: int = 0
    """Connections that went for want of memory."""
    noun: str = "frame"
    """What ``frames`` counts: 'event' of a trace."""


@dataclass(slots=True)
class Look:
    """How the user wants to see it."""

    operations: str = "time"
    connections: str = "rpcs"
    paused: bool = False
    keys: bool = False
    """There is a keyboard."""


def page(snapshot: Snapshot, look: Look, width: int, height: int) -> RenderableType:
    """The live page, with as many rows of each section as fit."""
    head = [*_head(snapshot, look, width), *_agreed(snapshot, width)]
    if height < LOW:
        return _low_page(snapshot, look, width, height, head)
    room = height - len(head) - 1
    apart = 1 if height >= ROOMY else 0
    left: list[_Section] = [_connections(snapshot, look, width), _operations(snapshot, look, width)]
    right: list[_Section] = [_newest(snapshot, width), _slowest(snapshot, width), _findings(snapshot, width)]
    body: RenderableType
    if width >= WIDE:
        half = (width - GAP) // 2
        body = Table.grid(padding=(0, GAP, 0, 0), pad_edge=False)
        body.add_column(width=half)
        body.add_column(width=width - GAP - half)
        body.add_row(_stack(left, room, apart), _stack(right, room, apart))
    else:
        body = _stack([*left, *right], room, apart)
    return Group(*head, body)


def _low_page(
    snapshot: Snapshot, look: Look, width: int, height: int, head: Sequence[RenderableType]
) -> RenderableType:
    """The live page on a low terminal: as many whole sections as fit, RPCs first."""
    first, rates, losses, keys, oldest = head[:5]
    wanted = [first, rates, losses, keys, oldest] if height >= LOW - 4 else [first]
    if height < LOW - 4 and snapshot.oldest is not None and (snapshot.oldest.outstanding or 0) >= HANGING:
        wanted.append(oldest)
    if height < LOW - 4 and (snapshot.trouble or snapshot.dropped):
        wanted.append(losses)
    room = height - len(wanted) - 1
    chosen = [
        _newest(snapshot, width),
        _connections(snapshot, look, width),
        _operations(snapshot, look, width),
        _findings(snapshot, width),
    ]
    return Group(*wanted, _stack(chosen[: max(1, room // 4)], max(2, room), 0))


@dataclass(frozen=True, slots=True)
class _Section:
    left: Sequence[Cell]
    right: Sequence[Cell]
    rows: Sequence[Sequence[Cell]]
    flexible: int
    wanted: int
    """Rows that it should have before others get more."""
    empty: str
    last: bool = False
    """If not all rows fit, show the last."""


def _stack(sections: Sequence[_Section], room: int, apart: int) -> RenderableType:
    room -= len(sections) * (1 + apart)
    shares = [min(section.wanted, max(1, len(section.rows))) for section in sections]
    while sum(shares) > max(room, len(sections)):
        shares[max(range(len(shares)), key=lambda at: shares[at])] -= 1
    spare = room - sum(shares)
    while spare > 0 and (short := [at for at, section in enumerate(sections) if shares[at] < len(section.rows)]):
        shares[min(short, key=lambda at: shares[at])] += 1
        spare -= 1
    parts: list[RenderableType] = []
    for section, share in zip(sections, shares, strict=True):
        rows = section.rows[-share:] if section.last else section.rows[:share]
        if not rows:
            parts.append(Text.assemble(_title(str(section.left[0])), f"  {section.empty}", style="dim", no_wrap=True))
            parts += [Text()] * (1 if share else 0)
        else:
            parts.append(Grid(section.left, section.right, rows, section.flexible, indent=0, fill=True))
        parts += [Text()] * apart
    return Group(*parts)


def _title(name: str) -> Text:
    return Text(name, "bold not dim")


def _head(snapshot: Snapshot, look: Look, width: int) -> list[RenderableType]:
    hours, rest = divmod(int(snapshot.seconds), 3600)
    first = Text.assemble(
        (snapshot.title, "bold"),
        f"  {hours}:{rest // 60:02d}:{rest % 60:02d}",
        f"  {plural(snapshot.rpcs, 'RPC')}",
        (f", {plural(snapshot.failed, 'error')}" if snapshot.failed else "", "yellow"),
        (f"  connection {snapshot.picked}" if snapshot.picked is not None else "", "bold cyan"),
        ("  PAUSED" if look.paused else "", "bold reverse"),
        no_wrap=True,
        overflow="ellipsis",
    )
    rate = snapshot.rate
    rates = Text.assemble(
        (f"{rate.rpcs:,.0f}" if rate.rpcs >= 10 or not rate.rpcs else f"{rate.rpcs:.1f}", "bold"),
        " RPC/s  ↑ ",
        (f"{size(rate.up)}/s", "bold"),
        "  ↓ ",
        (f"{size(rate.down)}/s", "bold"),
        "  ",
        no_wrap=True,
        overflow="ellipsis",
    )
    length = min(HISTORY, max(0, width - rates.cell_len - 12))
    if length >= 10:
        values = [rate.rpcs for rate in snapshot.history][-length:]
        rates.append(sparkline(values) if any(values) else "", "green")
        rates.append(f" {len(values)} s" if values else "", "dim")
    return [first, rates, _losses(snapshot), _keys(look, snapshot), _oldest(snapshot)]


def _oldest(snapshot: Snapshot) -> Text:
    """The call that is outstanding the longest."""
    line = Text("oldest outstanding call: ", no_wrap=True, overflow="ellipsis")
    rpc = snapshot.oldest
    if rpc is None or rpc.outstanding is None:
        return line.append("none", "green")
    style = "bold red" if rpc.outstanding >= HANGING else ""
    line.append(f"{at_least(rpc.outstanding, True)}  {procedure_label(rpc.name, rpc.operations)}", style)
    return line.append(f"  RPC {rpc.number}, connection {rpc.connection.number}")


def _losses(snapshot: Snapshot) -> Text:
    """What the kernel dropped, and where packets are kept."""
    dropped, received = snapshot.dropped, snapshot.received
    line = Text(no_wrap=True, overflow="ellipsis")
    if snapshot.trouble:
        line.append(f"{snapshot.trouble}  ", "bold red")
    line.append(f"{count(snapshot.frames)} {snapshot.noun}s, ")
    if dropped:
        part = 100 * dropped / max(1, received)
        line.append(f"{count(dropped)} dropped by the kernel ({part:.2g}%): RPCs are missing or damaged", "bold red")
    else:
        known = dropped is not None
        words = "none dropped by the kernel" if known else "unknown how many were dropped by the kernel"
        line.append(words, "green" if known else "dim")
    if snapshot.memory_short:
        line.append(f"  memory is short: {plural(snapshot.memory_short, 'quiet connection')} evicted", "yellow")
    if snapshot.kept:
        line.append(f"  writing {snapshot.kept}", "dim")
    return line


def _keys(look: Look, snapshot: Snapshot) -> Text:
    if not look.keys:
        return Text("Ctrl-C ends with the report", "dim", no_wrap=True, overflow="ellipsis")
    keys = Text(no_wrap=True, overflow="ellipsis", style="dim")
    shown = snapshot.picked if snapshot.picked is not None else "all"
    for key, meaning in (
        ("p", "resume" if look.paused else "pause"),
        ("s", f"sort: {look.operations}"),
        ("S", f"sort: {look.connections}"),
        ("c", f"connection: {shown}"),
        ("q", "quit"),
    ):
        keys.append(key, "bold not dim")
        keys.append(f" {meaning}  ")
    return keys


def _agreed(snapshot: Snapshot, width: int) -> list[RenderableType]:
    return [indented(Text(words, "dim", no_wrap=True, overflow="ellipsis")) for words in snapshot.agreed]


def _connections(snapshot: Snapshot, look: Look, width: int) -> _Section:
    rows: list[list[Cell]] = []
    losses = any(connection.missing for connection in snapshot.connections)
    ordered = sorted(snapshot.connections, key=lambda row: (row.ended, CONNECTION_ORDERS[look.connections](row)))
    for row in ordered:
        style = "dim" if row.ended or not row.carrier else "bold cyan" if row.number == snapshot.picked else ""
        granted = "?" if row.granted is None else str(row.granted)
        full = row.granted is not None and row.outstanding >= max(1, row.granted)
        rows.append(
            [
                Text(f"{row.number} {row.client} → {row.server}", style),
                f"{row.rate.rpcs:,.0f}" if row.carrier else "-",
                sized(row.rate.up),
                sized(row.rate.down),
                Text(f"{row.outstanding}/{granted}" if row.carrier else "-", "yellow" if full else ""),
                flagged(row.retransmitted, "yellow"),
                flagged(row.rnr, "yellow"),
                *([flagged(row.missing, "red")] if losses else []),
            ]
        )
    names = ["RPC/s", "to server", "to client", "credits", "retrans", "RNR", *(["missing"] if losses else [])]
    if snapshot.evicted:
        rows.append([Text(f"{plural(snapshot.evicted, 'earlier connection')} evicted", "dim"), *[""] * len(names)])
    return _narrowed(_Section([_title("Connections")], names, rows, 0, 4, "none yet"), width, "RPC/s", "credits")


def _operations(snapshot: Snapshot, look: Look, width: int) -> _Section:
    rows: list[list[Cell]] = []
    for procedure in sorted(snapshot.busy, key=OPERATION_ORDERS[look.operations]):
        latency = procedure.latency
        known = (latency.median, latency.p95, latency.p99, latency.maximum) if latency else [None] * 4
        failed = flagged(procedure.failed, "yellow")
        rows.append([label(procedure.key), count(procedure.calls), failed, *map(timed, known)])
    names = ["RPCs", "err", "median", "95%", "99%", "max"]
    return _narrowed(_Section([_title("Last minute")], names, rows, 0, 6, "no RPC"), width, "RPCs", "median", "99%")


def _newest(snapshot: Snapshot, width: int) -> _Section:
    rows = [_line(slow_rpc, snapshot.now) for slow_rpc in snapshot.newest]
    section = _Section([_title("Newest RPCs"), ""], list(_LINE), rows, 0, 4, "none yet", last=True)
    return _narrowed(section, width, "latency", "ago")


def _slowest(snapshot: Snapshot, width: int) -> _Section:
    rows = [_line(slow_rpc, snapshot.now) for slow_rpc in snapshot.slowest]
    section = _Section([_title("Slowest, last minute"), ""], list(_LINE), rows, 0, 4, "none")
    return _narrowed(section, width, "latency", "ago")


def _narrowed(section: _Section, width: int, *names: str) -> _Section:
    """On a narrow screen, of the columns on the left the first, and those of these names."""
    if width >= NARROW:
        return section
    left = len(section.left)
    kept = [0, *(left + section.right.index(name) for name in names)]
    rows = [[row[at] for at in kept] for row in section.rows]
    return replace(section, left=section.left[:1], right=names, rows=rows)


def capture_view(record: Record, breaches: Sequence[tuple[Finding, int]]) -> RenderableType:
    """How the capture itself went, for the end of the report; ``record`` is the one of --json."""
    parts: list[RenderableType] = [Text(), heading("Capture")]
    device, interface = record["device"], record["interface"]
    where = device if interface in (None, device) else f"{device} ({interface})"
    ended = ENDS.get(record["ended_by"], record["ended_by"])
    lines = [Text(f"{where} for {duration(record['seconds'] * 1e9)}, ended by {ended}")]
    dropped, received, cost = record["kernel_dropped"], record["kernel_received"], record["event_cost_ns"]
    noun = "frame" if cost is None else "event"
    if dropped:
        lines.append(
            Text(
                f"{count(dropped)} of {plural(received, noun)} dropped by the kernel: what they carried is missing "
                "above; a larger --buffer helps against bursts",
                "bold red",
            )
        )
    else:
        known = "none" if dropped == 0 else "unknown how many were"
        lines.append(Text(f"{plural(received, noun)}, {known} dropped by the kernel"))
    if cost is not None:
        rate = received / max(record["seconds"], 1e-3)
        share = f"{rate * cost / 1e7:.2g} % of one processor"
        lines.append(Text(f"tracing: {rate:,.0f} events/s of at most {duration(cost)} each, {share}"))
    if record["went_down"]:
        words = f"{where} went down {plural(record['went_down'], 'time')}: what passed meanwhile is missing above"
        lines.append(Text(words, "bold red"))
    lines += [Text(words, "bold red") for words in (record["trouble"], record["not_kept"]) if words]
    lines.append(Text(f"filter: {record['filter']}", "dim"))
    memory = record["memory"]
    if memory["given_up"]:
        words = f"memory was short of {size(memory['limit'])}: {plural(memory['given_up'], 'quiet connection')} evicted"
        lines.append(Text(words, "yellow"))
    if record["files_removed"]:
        lines.append(Text(f"{plural(record['files_removed'], 'full file')} removed to make room", "dim"))
    parts += [indented(line) for line in lines]
    parts += [Text(), heading("Findings", "rules that were violated; rdmascope rules ID explains each")]
    rows: list[list[Cell]] = [
        [Text(finding.rule.id, LEVEL_STYLES.get(finding.rule.level.value, "")), finding.rule.title, f"{count(times)}"]
        for finding, times in breaches
    ]
    if rows:
        parts.append(Grid(["rule", "latest violation first"], ["count"], rows, flexible=1, gap=2))
    else:
        parts.append(indented(Text("none", "dim")))
    return Group(*parts)


_LINE = ("conn", "to server", "to client", "latency", "ago")


def _line(rpc: SlowRpc, now: int) -> list[Cell]:
    state = "" if rpc.state == "complete" else rpc.status if rpc.state == "error" else rpc.state
    ago = max(0, now - rpc.time)
    return [
        f"{rpc.number} {label(rpc.key)}",
        Text(state, STATE_STYLES.get(rpc.state, "")),
        f"{rpc.connection}{'<' if rpc.key.backward else ''}",
        size(rpc.call_bytes),
        size(rpc.reply_bytes),
        "-" if rpc.waiting < 0 else at_least(rpc.waiting, rpc.state == "no reply"),
        f"{ago / 1e9:.0f} s",
    ]


def _findings(snapshot: Snapshot, width: int) -> _Section:
    rows: list[list[Cell]] = [
        [
            Text.assemble((finding.rule.id, LEVEL_STYLES.get(finding.rule.level.value, "")), f" {finding.observed}"),
            f"{who(finding.connection, finding.endpoint).split()[0]}, connection {finding.connection.number}",
            count(times),
            f"{max(0, snapshot.now - finding.time) / 1e9:.0f} s" if finding.time else "-",
        ]
        for finding, times in snapshot.breaches
    ]
    section = _Section([_title("Findings"), ""], ["count", "ago"], rows, 0, 3, "none: no rule was violated")
    return _narrowed(section, width, "ago")


Value = TypeVar("Value")

REFRESH = 0.5
"""Seconds between two pictures."""


class Dashboard:
    """A context manager that has the terminal to itself."""

    def __init__(self, session: LiveSession, look: Look, connection: int | None) -> None:
        self.session = session
        self.look_at = look
        self.keyboard: int | None = None
        session.recent.picked = connection
        self._drawn = 0.0
        self._size = 0, 0
        self._snapshot: Snapshot | None = None
        self._console = console()
        self._screen = Screen(console=self._console, screen=True, auto_refresh=False)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self.keyboard = self._stack.enter_context(keyboard())
        self.look_at.keys = self.keyboard is not None
        self._stack.enter_context(self._screen)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def look(self, key_pressed: bool) -> None:
        """Draw what is new, if it is time."""
        changed = False
        if key_pressed and self.keyboard is not None:
            for key in pressed(self.keyboard):
                changed |= self._press(key)
        size = self._console.size
        now = time.monotonic()
        due = now - self._drawn >= REFRESH
        if due:
            self.session.live.count()
            self.session.recent.advance(self.session.now, self.session.analyzer.connections)
        if not (due or changed or size != self._size):
            return
        if due:
            self._drawn = now
        if self._snapshot is None or not self.look_at.paused:
            self._snapshot = take_snapshot(self.session)
        if self._size not in ((0, 0), size):  # What the terminal made of the old picture would stay around the new one.
            self._console.control(Control.clear(), Control.home())
        self._size = size
        self._screen.update(self._page(), refresh=True)

    def _page(self) -> RenderableType:
        assert self._snapshot is not None
        return page(self._snapshot, self.look_at, *self._size)

    def _press(self, key: str) -> bool:
        """Do what a key says; whether the picture changes."""
        look, session = self.look_at, self.session
        if key in "p ":
            look.paused = not look.paused
        elif key == "s":
            look.operations = _next([*OPERATION_ORDERS], look.operations)
        elif key == "S":
            look.connections = _next([*CONNECTION_ORDERS], look.connections)
        elif key in "cC":
            carriers = [
                conversation.connection.number
                for conversation in session.analyzer.conversations
                if conversation.carries_rpc
            ]
            numbers: list[int | None] = [None, *carriers]
            session.recent.picked = _next(numbers if key == "c" else numbers[::-1], session.recent.picked)
            self._snapshot = None
        elif key == "q":
            session.ending.because("quit")
        else:
            return False
        return True


def _next(values: Sequence[Value], now: Value) -> Value:
    """The one behind, after the last the first."""
    at = values.index(now) if now in values else -1
    return values[(at + 1) % len(values)]


def take_snapshot(session: LiveSession) -> Snapshot:
    """The picture of now."""
    analyzer, recent, live = session.analyzer, session.recent, session.live
    rows: list[Row] = []
    for conversation in analyzer.conversations:
        connection = conversation.connection
        history = session.credits.get(connection.number)
        forward = history.directions[0] if history is not None else None
        rows.append(
            Row(
                connection.number,
                str(connection.endpoints[0])
                if connection.endpoints[0].port is not None
                else connection.endpoints[0].address,
                who(connection, 1).removeprefix("server "),
                conversation.carries_rpc,
                bool(connection.ended_by),
                recent.rate_of(connection.number),
                forward.outstanding if forward is not None else 0,
                forward.latest_granted if forward is not None else None,
                sum(connection.retransmitted_packets),
                sum(connection.missing_packets),
                analyzer.rnr_naks(connection.number),
            )
        )
    picked = next(
        (conversation for conversation in analyzer.conversations if conversation.connection.number == recent.picked),
        None,
    )
    return Snapshot(
        session.path,
        session.now,
        session.seconds,
        analyzer.frames,
        session.rpcs,
        session.failed,
        live.dropped,
        live.received,
        recent.rate,
        tuple(recent.history),
        tuple(rows),
        analyzer.evicted.connections,
        tuple(recent.busy(recent.picked)),
        tuple(recent.newest(recent.picked)),
        tuple(recent.slowest(recent.picked)),
        session.breaches(),
        recent.picked,
        tuple(agreed(picked, analyzer.conversations)) if picked is not None else (),
        session.keeper.path if session.keeper is not None else "",
        session.trouble,
        session.oldest_call(),
        session.bound.given_up if session.bound is not None else 0,
        "event" if live.device.kind == TRACED else "frame",
    )
