"""Transport health: per connection what was lost, how the loss was detected, and what it cost; and flow
control by credits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from rdmascope.dissect.measure.credits import CreditDirection, CreditInterval
from rdmascope.dissect.named_tuple import NamedTuple
from rdmascope.dissect.percentiles import Distribution
from rdmascope.dissect.transport.connection import ENDS, WITHOUT_RDMA, Connection, ending_words
from rdmascope.dissect.transport.health import DirectionHealth, TransportHealth
from rdmascope.dissect.transport.retransmissions import CAUSES, InferredLoss, Retransmission, Tally
from rdmascope.dissect.units import count, duration, plural, share, size, with_port

from .tables import LEVELS, Cell, Grid, bit_rate, counted, indented, more, timed

if TYPE_CHECKING:
    from rdmascope.dissect.records.connection import Paid


HEIGHT = 8
"""Lines of a plot at most: one for each call, where that is enough."""


def credits_view(direction: CreditDirection, width: int) -> RenderableType:
    """One direction of a connection."""
    active, passive = direction.connection.endpoints
    caller, answerer = (passive, active) if direction.backward else (active, passive)
    way = "backward" if direction.backward else "forward"
    elapsed = direction.last_time - direction.first_time
    rows: list[list[Cell]] = [
        ["requested", _range(direction.requested), "calls", count(direction.calls)],
        ["granted", _range(direction.granted), "replies", count(direction.replies)],
        ["max outstanding", count(direction.max_outstanding), "mean outstanding", f"{direction.mean:.2f}"],
        [
            "at the limit",
            f"{duration(direction.blocked)} ({share(direction.blocked, elapsed)})",
            "count",
            count(direction.blockages),
        ],
    ]
    if direction.exceeded:
        rows.append([Text("above the limit", "red"), Text(plural(direction.exceeded, "call"), "red"), "", ""])
    title = Text.assemble((f"Connection {direction.connection.number}", "bold"), f"  {way} calls, ")
    title.append(f"{caller.address} → {answerer.address}")
    return Group(title, Grid(["", "", "", ""], [], rows, flexible=1, gap=3), Text(), plot(direction, width))


def _range(values: tuple[int, int] | None) -> str:
    if values is None:
        return "-"
    low, high = values
    return count(low) if low == high else f"{count(low)} to {count(high)}"


def plot(direction: CreditDirection, width: int) -> RenderableType:
    """Outstanding calls as columns, the limit as a line, and below it when callers were at the limit."""
    margin = 8
    each, intervals = direction.intervals(max(20, width - margin - 2))
    if not intervals:
        return Text("  no call")
    limits = _limits(intervals)
    # Far above what is outstanding the limit would press the columns into the ground.
    ceiling = max(direction.max_outstanding, 1)
    top = max([ceiling, *(limit for limit in limits if limit is not None and limit <= 2 * ceiling)])
    height = min(HEIGHT, top)
    lines = [_line(intervals, limits, level, height, top, margin) for level in range(height, 0, -1)]
    stood = Text(" " * (margin - 2) + "! ", "dim")
    for interval in intervals:
        blocked = interval.blocked / each if interval is not None else 0
        stood.append(LEVELS[min(7, int(8 * blocked))] if blocked else " ", "red")
    axis = Text(" " * margin + "0" + duration(each * len(intervals)).rjust(len(intervals) - 1), "dim")
    legend = "█ calls outstanding  ─ limit: the lower of requested and granted  ! share of time at the limit"
    parts: list[RenderableType] = [*lines, stood, axis, indented(Text(legend, "dim"))]
    highest = max((limit for limit in limits if limit is not None), default=None)
    if highest is not None and highest > top:
        parts.append(indented(Text(f"the limit, {count(highest)}, is above the plot", "dim")))
    return Group(*parts)


def _limits(intervals: Sequence[CreditInterval | None]) -> list[int | None]:
    """The limit in each interval; where it is not stated, as before."""
    asked = granted = None
    limits: list[int | None] = []
    for interval in intervals:
        if interval is not None:
            asked = interval.requested if interval.requested is not None else asked
            granted = interval.granted if interval.granted is not None else granted
        limits.append(None if granted is None else max(1, min(granted, asked if asked is not None else granted)))
    return limits


def _line(
    intervals: Sequence[CreditInterval | None],
    limits: Sequence[int | None],
    level: int,
    height: int,
    top: int,
    margin: int,
) -> Text:
    """Line ``level`` of ``height``, counted from the lowest, of a plot up to ``top``."""
    low, high = (level - 1) * top / height, level * top / height
    label = count(high) if level in (height, height // 2) and high == int(high) else ""
    cells: list[tuple[str, str]] = []
    for interval, limit in zip(intervals, limits, strict=True):
        reached = interval.outstanding if interval is not None else 0
        if reached >= high:
            cells.append(("█", "cyan"))
        elif reached > low:
            cells.append((LEVELS[max(0, min(7, int(8 * (reached - low) / (high - low)) - 1))], "cyan"))
        elif limit is not None and low < limit <= high:
            cells.append(("─", "yellow"))
        else:
            cells.append((" ", ""))
    line = Text(f"{label:>{margin - 2}} ┤", "dim")
    for style, run in groupby(cells, itemgetter(1)):
        line.append("".join(cell for cell, _ in run), style)
    return line


MAX_RETRANSMISSIONS = 12
MAX_PAID = 10
MAX_FRAMES = 8
MAX_CONNECTIONS = 8
LISTS = " (--all lists them)"

IMPLIED = "implied NAK"
WHERE = {
    "beside the requester": "captured at the client",
    "beside the responder": "captured at the server",
    "between": "captured between client and server",
    "undecidable": "can't tell which end this was captured at",
}


def nothing(name: str, frames: int) -> Text:
    return Text(f"{name}: no connection in {plural(frames, 'frame')}")


def connection_view(
    connection: Connection,
    health: TransportHealth,
    paid: Sequence[Paid],
    width: int,
    everything: bool = False,
    place: Callable[..., str] = lambda *frames: "",
) -> RenderableType:
    """All of one connection.  ``place`` says which file frames are in, where there are several."""
    active, passive = connection.endpoints
    there = with_port(passive.address, connection.service_port)
    title = Text.assemble((f"Connection {connection.number}", "bold"), f"  {active.address} → {there}")
    if connection.refused:
        return Group(title, indented(Text(f"refused by the server: {health.ended}", "red")))
    in_order = health.ended.startswith(("open", "DREQ")) and ", after " not in health.ended
    parts: list[RenderableType] = [
        title,
        indented(Text(_sentence(health.ended), "" if in_order else "red")),
        *(indented(Text(line)) for line in _place(health)),
        *(indented(Text(line, "red")) for line in [*contradiction_lines(connection), *reused_lines(connection)]),
        Text(),
        Grid([""], ["client", "server"], list(_rows(health)), gap=2),
    ]
    if health.retransmission_count:
        parts += [Text(), causes_view(health)]
        shown = health.retransmissions if everything else health.retransmissions[:MAX_RETRANSMISSIONS]
        parts += [Text(), retransmissions_view(connection, shown, width, health.segments, place)]
        parts += more(len(health.retransmissions) - len(shown), f" retransmissions{LISTS}")
    losses = health.inferred if everything else health.inferred[:MAX_RETRANSMISSIONS]
    if losses:
        parts += [Text(), Text("  losses inferred from the length of a pause")]
        parts += [indented(Text(_inferred(loss)), 4) for loss in losses]
        parts += more(len(health.inferred) - len(losses), f" such losses{LISTS}")
    listed = paid if everything else paid[:MAX_PAID]
    if listed:
        listed_rows: list[list[Cell]] = [
            [
                str(delayed.number),
                f"{delayed.program} {delayed.name}",
                duration(delayed.waited),
                _latency(delayed),
                str(delayed.retransmissions),
            ]
            for delayed in listed
        ]
        columns = ["delay", "of latency", f"{unit(health)}s retransmitted"]
        parts += [Text(), Grid(["RPC", ""], columns, listed_rows, flexible=1, gap=2)]
        parts += more(len(paid) - len(listed), f" RPCs, delayed less{LISTS}")
    return Group(*parts)


def _inferred(loss: InferredLoss) -> str:
    toward = "client" if loss.sender else "server"
    waited = duration(loss.until - loss.since)
    return (
        f"RPC {loss.rpc} waited {waited} for a packet lost toward the {toward}: {loss.evidence}"
        f" (confidence {loss.confidence:.0%})"
    )


_TROUBLES = (
    ("icrc_failure_count", "packet", " damaged (ICRC)"),
    ("damaged_segments", "segment", " damaged (TCP checksum)"),
    ("crc_failure_count", "FPDU", " damaged (MPA CRC32C)"),
    ("marker_failures", "FPDU", " with wrong markers"),
    ("doubted_fpdus", "FPDU", " rejected (no CRC, and a wrong marker or header in it or before it)"),
    ("zero_windows", "zero-window segment", ""),
)
"""Counts of a direction, and what they are of."""


def health_lines(connection: Connection, health: TransportHealth) -> list[Text]:
    """A connection's troubles in a line or a few, for a page about everything; none where there were none."""
    lines: list[str] = []
    client, server = health.directions
    for name, side in (("client", client), ("server", server)):
        troubles: list[str] = []
        if side.retransmitted.packets:
            causes = [
                f"{tally.packets:,} {cause}"
                for cause, tally in side.causes.items()
                if cause != "duplicate" and tally.packets
            ]
            amount = f"{size(side.retransmitted.bytes)}: {', '.join(causes)}"
            troubles.append(f"{_retransmitted(side.retransmitted.packets, health)} ({amount})")
        if copies := side.causes.get("duplicate"):
            troubles.append(f"{plural(copies.packets, unit(health))} captured twice")
        if side.reordered:
            troubles.append(f"{count(side.reordered)} out of order")
        if side.rnr_count:
            troubles.append(f"{plural(side.rnr_count, 'RNR NAK')} sent")
        troubles += [f"{nak.name} in frame {nak.frame}" for nak in side.fatal_naks[:2]]
        if side.ecn_marked or side.cnps:
            troubles.append(f"{plural(side.ecn_marked, 'congestion mark')} (CE), {plural(side.cnps, 'CNP')} sent")
        troubles += [
            f"{plural(number, what)}{words}" for name, what, words in _TROUBLES if (number := getattr(side, name))
        ]
        if side.congestion_echoes:
            troubles.append(f"{plural(side.congestion_echoes, 'congestion echo', 'congestion echoes')} (ECE)")
        if troubles:
            lines.append(f"{name}: " + "; ".join(troubles))
    lines += [*contradiction_lines(connection), *reused_lines(connection)]
    spread = health.loss_to_retransmission
    if spread:
        lines.append(f"from loss to retransmission: median {duration(spread.median)}, max {duration(spread.maximum)}")
    if health.ended.startswith(("silence", "fatal")) or ", after " in health.ended:
        lines.append(_sentence(health.ended))
    if lines:
        lines[0] = f"#{connection.number} {lines[0]}"
    return [Text(line) for line in lines]


def contradiction_lines(connection: Connection) -> list[str]:
    """What either end retransmitted with other bytes than before."""
    lines = []
    for name, frames in zip(ENDS, connection.contradicted, strict=True):
        if frames:
            listed = ", ".join(map(str, frames[:MAX_FRAMES])) + (", …" if len(frames) > MAX_FRAMES else "")
            lines.append(
                f"{name}: frame{'s' if len(frames) > 1 else ''} {listed} retransmit{'' if len(frames) > 1 else 's'}"
                " with other bytes than before: cannot tell which of them the receiver took"
            )
    return lines


def reused_lines(connection: Connection) -> list[str]:
    """New requests with a PSN that their sender had used for an earlier one."""
    reused = connection.reused_psns
    lines = [
        f"{ENDS[use.sender]}: PSN error: the new {use.verb} in frame {use.frame} has PSN {use.psn}, as"
        f" the {use.earlier_verb} in frame {use.earlier_frame}; its receiver drops it as a duplicate, and the"
        " connection may stall"
        for use in reused[:MAX_FRAMES]
    ]
    return lines + ([f"… and {len(reused) - MAX_FRAMES} more PSN errors"] if len(reused) > MAX_FRAMES else [])


def troubles_view(pairs: Sequence[tuple[Connection, TransportHealth]]) -> RenderableType:
    """The troubles of several connections, for a page about everything."""
    troubled = [(connection, lines) for connection, health in pairs if (lines := health_lines(connection, health))]
    parts: list[RenderableType] = []
    if not troubled:
        parts.append(indented(Text("no retransmissions, losses or congestion marks; no connection was broken")))
    for _, lines in troubled[:MAX_CONNECTIONS]:
        parts += [Padding(line, (0, 0, 0, 2 if not at else 5)) for at, line in enumerate(lines)]
    parts += more(len(troubled) - MAX_CONNECTIONS, " connections")
    places = [health.capture_point for _, health in pairs if health.capture_point.confidence] or [
        health.capture_point for _, health in pairs
    ]
    if places:
        place, number = Counter(capture_point.place for capture_point in places).most_common(1)[0]
        meaning = next(capture_point.meaning for capture_point in places if capture_point.place == place)
        where = WHERE[place]
        agreed = "" if number == len(pairs) else f" (by {number} of {plural(len(pairs), 'connection')})"
        parts.append(indented(Text(f"{where}{agreed}: {meaning}")))
    return Group(*parts)


def _sentence(ended: str) -> str:
    words = ending_words(ended)
    return f"ended by {ended}" if words == ended and not ended.startswith("open") else words


def _place(health: TransportHealth) -> Iterator[str]:
    point = health.capture_point
    if point.place == "undecidable":
        yield f"{WHERE[point.place]}: {point.evidence}"
    else:
        yield f"{WHERE[point.place]} ({point.confidence:.0%} sure; {point.evidence})"
    yield point.meaning


def _rows(health: TransportHealth) -> Iterator[list[Cell]]:
    """A row for each figure, of the client and of the server."""
    rdma = health.transport not in WITHOUT_RDMA
    for name, cell, always in SEGMENT_ROWS if health.segments else PACKET_ROWS:
        name = name if rdma else OF_RECORDS.get(name, name)
        cells = [cell(direction) for direction in health.directions]
        if always or any(text != "-" for text in cells):
            yield [name, *cells]
    if health.segments and rdma:
        checked = "no CRC in use" if health.crc_checked is None else plural(health.crc_checked, "FPDU")
        yield ["MPA CRC32C checked", checked, ""]
    elif rdma:
        yield ["path MTU", counted(health.path_mtu or 0), ""]
        yield ["ICRC checked", plural(health.icrc_checked or 0, "packet"), ""]


def _retransmitted(number: int, health: TransportHealth) -> str:
    return f"{plural(number, unit(health))} retransmitted"


def unit(health: TransportHealth) -> str:
    return "segment" if health.segments else "packet"


def causes_view(health: TransportHealth) -> RenderableType:
    """Per cause how often, and the times it took."""
    rows: list[list[Cell]] = []
    for cause in CAUSES:
        if not health.causes.get(cause):
            continue
        mine = [retransmission for retransmission in health.retransmissions if retransmission.cause == cause]
        rows.append(
            [
                f"missing Read response ({cause})" if cause == IMPLIED else cause,
                count(health.causes[cause]),
                _time_range([retransmission.loss_to_nak for retransmission in mine]),
                _time_range([retransmission.nak_to_retransmission for retransmission in mine]),
                _time_range([retransmission.loss_to_retransmission for retransmission in mine]),
            ]
        )
    notice = _notice(health.segments)
    return Grid(["cause"], ["count", f"loss to {notice}", f"{notice} to retrans", "loss to retrans"], rows, gap=2)


def _notice(segments: bool) -> str:
    """What announces a loss to the sender."""
    return "dup ACK" if segments else "NAK"


def retransmissions_view(
    connection: Connection,
    retransmissions: Sequence[Retransmission],
    width: int,
    segments: bool = False,
    place: Callable[..., str] = lambda *frames: "",
) -> RenderableType:
    """One line per return to an earlier packet, with the frames that show it."""
    notice, unit = _notice(segments), "segments" if segments else "packets"
    left = ["sender", "cause", f"frames: loss {notice.split()[-1]} retrans"]
    narrow_rows: list[list[Cell]] = []
    wide_rows: list[list[Cell]] = []
    for retransmission in retransmissions:
        numbers = retransmission.lost_frame, retransmission.nak_frame, retransmission.retransmission_frame
        there, frames = place(*numbers), " ".join(str(number or "-") for number in numbers)
        frames += f" ({there})" if there else ""
        start = [ENDS[retransmission.initiator], retransmission.cause, frames]
        delay = timed(retransmission.loss_to_retransmission)
        narrow_rows.append([*start, count(retransmission.packets), delay])
        delays = [timed(retransmission.loss_to_nak), timed(retransmission.nak_to_retransmission), delay]
        wide_rows.append([*start, retransmission.lost, _toward(retransmission), count(retransmission.packets), *delays])
    columns = [unit, f"loss to {notice}", f"{notice} to retrans", "loss to retrans"]
    wide = Grid([*left, "lost", "toward the"], columns, wide_rows, gap=2)
    return wide if wide.width <= width else Grid(left, [unit, "loss to retrans"], narrow_rows, gap=2)


def _toward(retransmission: Retransmission) -> str:
    missed = " (or not captured)" if retransmission.lost_packet_captured is False else ""
    return (
        "-"
        if retransmission.toward is None or retransmission.lost_packet_captured is None
        else ENDS[retransmission.toward] + missed
    )


def _latency(delayed: Paid) -> str:
    return "-" if delayed.latency is None else f"{duration(delayed.latency)} ({share(delayed.waited, delayed.latency)})"


def _packets(tally: Tally | None, whole: int = 0) -> str:
    if tally is None or not tally.packets:
        return "-"
    part = f" ({100 * tally.packets / whole:.1f}%)" if whole else ""
    return f"{count(tally.packets)}{part}, {size(tally.bytes)}"


def _rate(direction: DirectionHealth) -> str:
    return "-" if direction.goodput is None else bit_rate(direction.goodput)


def _per_ack(direction: DirectionHealth) -> str:
    return (
        "-" if direction.requests_per_ack is None else f"{direction.requests_per_ack:.1f}, max {direction.max_per_ack}"
    )


def _delay(spread: Distribution | None) -> str:
    return "-" if spread is None else f"{duration(spread.median)}, {duration(spread.p99)}"


def _least(spread: Distribution | None) -> str:
    return "-" if spread is None else f"{duration(spread.minimum)}, {duration(spread.median)}"


def _rnr(direction: DirectionHealth) -> str:
    if not direction.rnr_count:
        return "-"
    timers = sorted({nak.timer for nak in direction.rnr_naks if nak.timer is not None})
    return f"{count(direction.rnr_count)}, wait {', '.join(duration(timer) for timer in timers[:3])}"


def _fatal(direction: DirectionHealth) -> str:
    return ", ".join(f"{nak.name.removeprefix('NAK, ')} (frame {nak.frame})" for nak in direction.fatal_naks[:2]) or "-"


def _frames(frames: Sequence[int], number: int) -> str:
    if not number:
        return "-"
    listed = ", ".join(str(frame) for frame in frames[:MAX_FRAMES])
    return f"{count(number)}: {listed}" + (", …" if number > MAX_FRAMES else "")


def _reads(direction: DirectionHealth) -> str:
    if not direction.reads_outstanding:
        return "-"
    return f"{direction.reads_outstanding} of {'?' if direction.read_depth is None else direction.read_depth}"


def _time_range(times: Sequence[int | None]) -> str:
    """'3.59 ms', '3.59 to 6.25 ms', '616 µs to 15.5 ms'."""
    known = sorted(time for time in times if time is not None)
    if not known:
        return "-"
    low, high = duration(known[0]), duration(known[-1])
    if low == high:
        return low
    number, _, unit = low.partition(" ")
    return f"{number if high.endswith(f' {unit}') else low} to {high}"


class DirectionRow(NamedTuple):
    """A row of the table of both directions."""

    name: str
    cell: Callable[[DirectionHealth], str]
    always: bool = False
    """Also where neither direction has any of it."""


PACKET_ROWS: tuple[DirectionRow, ...] = (
    DirectionRow("packets", lambda direction: count(direction.packets), always=True),
    DirectionRow("unique payload", lambda direction: size(direction.unique_bytes), always=True),
    DirectionRow("goodput", _rate, always=True),
    DirectionRow("retransmitted", lambda direction: _packets(direction.retransmitted, direction.packets)),
    DirectionRow("  original not captured", lambda direction: _packets(direction.original_missing)),
    DirectionRow("captured twice", lambda direction: _packets(direction.causes.get("duplicate"))),
    DirectionRow("out of order", lambda direction: counted(direction.reordered)),
    DirectionRow("missing from the capture", lambda direction: counted(direction.missing)),
    DirectionRow("  perhaps never sent", lambda direction: counted(direction.unconfirmed)),
    DirectionRow("ACKs sent", lambda direction: counted(direction.acknowledgements), always=True),
    DirectionRow("  request packets per ACK", _per_ack),
    DirectionRow("  delay: median, 99%", lambda direction: _delay(direction.ack_delay)),
    DirectionRow("Read response: median, 99%", lambda direction: _delay(direction.read_delay)),
    DirectionRow("sequence error NAKs sent", lambda direction: counted(direction.sequence_naks)),
    DirectionRow("RNR NAKs sent", _rnr),
    DirectionRow("fatal NAKs sent", _fatal),
    DirectionRow("congestion marks (CE)", lambda direction: counted(direction.ecn_marked)),
    DirectionRow("CNPs sent", lambda direction: counted(direction.cnps)),
    DirectionRow("  interval: min, median", lambda direction: _least(direction.cnp_gap)),
    DirectionRow("  delay after a mark: min, median", lambda direction: _least(direction.cnp_delay)),
    DirectionRow(
        "ICRC errors: count, frames", lambda direction: _frames(direction.icrc_failures, direction.icrc_failure_count)
    ),
    DirectionRow("Reads outstanding, limit", _reads),
    DirectionRow("requests unanswered", lambda direction: counted(direction.unanswered)),
)
"""Rows of queue pairs; a figure that is zero at both ends is left out."""
SEGMENT_ROWS: tuple[DirectionRow, ...] = (
    DirectionRow("segments with payload", lambda direction: count(direction.segments), always=True),
    DirectionRow("FPDUs", lambda direction: count(direction.fpdus), always=True),
    DirectionRow("unique RDMA payload", lambda direction: size(direction.unique_bytes), always=True),
    DirectionRow("goodput", _rate, always=True),
    DirectionRow("retransmitted", lambda direction: _packets(direction.retransmitted, direction.segments)),
    DirectionRow("  original not captured", lambda direction: _packets(direction.original_missing)),
    DirectionRow("captured twice", lambda direction: _packets(direction.causes.get("duplicate"))),
    DirectionRow("out of order", lambda direction: counted(direction.reordered)),
    DirectionRow("missing from the capture, at least", lambda direction: counted(direction.missing)),
    DirectionRow("pure ACKs", lambda direction: counted(direction.acknowledgements), always=True),
    DirectionRow("  segments per ACK", _per_ack),
    DirectionRow("  delay: median, 99%", lambda direction: _delay(direction.ack_delay)),
    DirectionRow("  duplicate ACKs", lambda direction: counted(direction.duplicate_acks)),
    DirectionRow("  with SACK", lambda direction: counted(direction.selective_acks)),
    DirectionRow("  with D-SACK", lambda direction: counted(direction.reported_twice)),
    DirectionRow("zero windows", lambda direction: counted(direction.zero_windows)),
    DirectionRow("Read response: median, 99%", lambda direction: _delay(direction.read_delay)),
    DirectionRow("Reads outstanding, limit", _reads),
    DirectionRow("Reads not completed", lambda direction: counted(direction.unanswered)),
    DirectionRow("Terminate sent", _fatal),
    DirectionRow("congestion marks (CE)", lambda direction: counted(direction.ecn_marked)),
    DirectionRow("congestion echoed (ECE)", lambda direction: counted(direction.congestion_echoes)),
    DirectionRow("TCP checksum errors", lambda direction: counted(direction.damaged_segments)),
    DirectionRow(
        "CRC32C errors: FPDUs, frames", lambda direction: _frames(direction.crc_failures, direction.crc_failure_count)
    ),
    DirectionRow("FPDUs with wrong markers", lambda direction: counted(direction.marker_failures)),
    DirectionRow("FPDUs rejected without a CRC", lambda direction: counted(direction.doubted_fpdus)),
)
"""Rows for iWARP, where TCP recovers losses."""
OF_RECORDS = {"FPDUs": "records", "unique RDMA payload": "unique payload"}
"""What the rows of iWARP are called where RPC goes over TCP without RDMA."""
