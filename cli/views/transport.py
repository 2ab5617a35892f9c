"""Transport health: per connection what was lost, how the loss was detected, and what it cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from rdmascope.dissect.percentiles import Distribution
from rdmascope.dissect.transport.connection import ENDS, Connection, ending_words
from rdmascope.dissect.transport.health import DirectionHealth, TransportHealth
from rdmascope.dissect.transport.retransmissions import CAUSES, InferredLoss, Retransmission, Tally
from rdmascope.dissect.units import count, duration, plural, share, size

from .tables import Cell, Grid

if TYPE_CHECKING:
    from rdmascope.dissect.records.connection import Paid

MAX_RETRANSMISSIONS = 12
MAX_PAID = 10
MAX_FRAMES = 8
MAX_CONNECTIONS = 8

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
    port = f":{connection.service_port}" if connection.service_port else ""
    there = f"[{passive.address}]" if port and ":" in passive.address else passive.address
    title = Text.assemble((f"Connection {connection.number}", "bold"), f"  {active.address} → {there}{port}")
    if connection.refused:
        return Group(title, Padding(Text(f"refused by the server: {health.ended}", "red"), (0, 0, 0, 2)))
    rows = _segment_rows(health) if health.segments else _rows(health)
    parts: list[RenderableType] = [
        title,
        Padding(Text(_sentence(health.ended), _ended_style(health)), (0, 0, 0, 2)),
        *(Padding(Text(line), (0, 0, 0, 2)) for line in _place(health)),
        *(
            Padding(Text(line, "red"), (0, 0, 0, 2))
            for line in [*contradiction_lines(connection), *reused_lines(connection)]
        ),
        Text(),
        Grid([""], ["client", "server"], list(rows), gap=2),
    ]
    if health.retransmission_count:
        parts += [Text(), causes_view(health)]
        shown = health.retransmissions if everything else health.retransmissions[:MAX_RETRANSMISSIONS]
        parts += [Text(), retransmissions_view(connection, shown, width, health.segments, place)]
        parts += _more(len(health.retransmissions) - len(shown), "retransmissions")
    losses = health.inferred if everything else health.inferred[:MAX_RETRANSMISSIONS]
    if losses:
        parts += [Text(), Text("  losses inferred from the length of a pause")]
        parts += [Padding(Text(_inferred(one)), (0, 0, 0, 4)) for one in losses]
        parts += _more(len(health.inferred) - len(losses), "such losses")
    listed = paid if everything else paid[:MAX_PAID]
    if listed:
        listed_rows: list[list[Cell]] = [
            [
                str(one.number),
                f"{one.program} {one.name}",
                duration(one.waited),
                _latency(one),
                str(one.retransmissions),
            ]
            for one in listed
        ]
        columns = ["delay", "of latency", f"{unit(health)}s retransmitted"]
        parts += [Text(), Grid(["RPC", ""], columns, listed_rows, flexible=1, gap=2)]
        parts += _more(len(paid) - len(listed), "RPCs, delayed less")
    return Group(*parts)


def _inferred(one: InferredLoss) -> str:
    toward = "client" if one.sender else "server"
    waited = duration(one.until - one.since)
    return (
        f"RPC {one.rpc} waited {waited} for a packet lost toward the {toward}: {one.evidence}"
        f" (confidence {one.confidence:.0%})"
    )


def health_lines(connection: Connection, health: TransportHealth) -> list[Text]:
    """A connection's troubles in a line or a few, for a page about everything; none where there were none."""
    lines: list[str] = []
    client, server = health.directions
    for name, one in (("client", client), ("server", server)):
        troubles: list[str] = []
        if one.retransmitted.packets:
            amount = size(one.retransmitted.bytes)
            troubles.append(f"{_retransmitted(one.retransmitted.packets, health)} ({amount}: {_causes(one)})")
        if copies := one.causes.get("duplicate"):
            troubles.append(f"{plural(copies.packets, unit(health))} captured twice")
        if one.reordered:
            troubles.append(f"{count(one.reordered)} out of order")
        if one.rnr_count:
            troubles.append(f"{plural(one.rnr_count, 'RNR NAK')} sent")
        troubles += [f"{nak.name} in frame {nak.frame}" for nak in one.fatal_naks[:2]]
        if one.ecn_marked or one.cnps:
            troubles.append(f"{plural(one.ecn_marked, 'congestion mark')} (CE), {plural(one.cnps, 'CNP')} sent")
        if one.icrc_failure_count:
            troubles.append(f"{plural(one.icrc_failure_count, 'packet')} damaged (ICRC)")
        if one.damaged_segments:
            troubles.append(f"{plural(one.damaged_segments, 'segment')} damaged (TCP checksum)")
        if one.crc_failure_count:
            troubles.append(f"{plural(one.crc_failure_count, 'FPDU')} damaged (MPA CRC32C)")
        if one.marker_failures:
            troubles.append(f"{plural(one.marker_failures, 'FPDU')} with wrong markers")
        if one.doubted_fpdus:
            why = "no CRC, and a wrong marker or header in it or before it"
            troubles.append(f"{plural(one.doubted_fpdus, 'FPDU')} rejected ({why})")
        if one.zero_windows:
            troubles.append(f"{plural(one.zero_windows, 'zero-window segment')}")
        if one.congestion_echoes:
            troubles.append(f"{plural(one.congestion_echoes, 'congestion echo', 'congestion echoes')} (ECE)")
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
        f"{ENDS[one.sender]}: PSN error: the new {one.verb} in frame {one.frame} has PSN {one.psn}, as"
        f" the {one.earlier_verb} in frame {one.earlier_frame}; its receiver drops it as a duplicate, and the"
        " connection may stall"
        for one in reused[:MAX_FRAMES]
    ]
    return lines + ([f"… and {len(reused) - MAX_FRAMES} more PSN errors"] if len(reused) > MAX_FRAMES else [])


def troubles_view(pairs: Sequence[tuple[Connection, TransportHealth]]) -> RenderableType:
    """The troubles of several connections, for a page about everything."""
    troubled = [(connection, lines) for connection, health in pairs if (lines := health_lines(connection, health))]
    parts: list[RenderableType] = []
    if not troubled:
        parts.append(
            Padding(Text("no retransmissions, losses or congestion marks; no connection was broken"), (0, 0, 0, 2))
        )
    for _, lines in troubled[:MAX_CONNECTIONS]:
        parts += [Padding(line, (0, 0, 0, 2 if not at else 5)) for at, line in enumerate(lines)]
    if len(troubled) > MAX_CONNECTIONS:
        parts.append(Text(f"  … and {len(troubled) - MAX_CONNECTIONS} more connections", "dim"))
    places = [health.capture_point for _, health in pairs if health.capture_point.confidence] or [
        health.capture_point for _, health in pairs
    ]
    if places:
        place, number = Counter(one.place for one in places).most_common(1)[0]
        meaning = next(one.meaning for one in places if one.place == place)
        where = WHERE[place]
        agreed = "" if number == len(pairs) else f" (by {number} of {plural(len(pairs), 'connection')})"
        parts.append(Padding(Text(f"{where}{agreed}: {meaning}"), (0, 0, 0, 2)))
    return Group(*parts)


def _sentence(ended: str) -> str:
    words = ending_words(ended)
    return f"ended by {ended}" if words == ended and not ended.startswith("open") else words


def _ended_style(health: TransportHealth) -> str:
    return "" if health.ended.startswith(("open", "DREQ")) and ", after " not in health.ended else "red"


def _place(health: TransportHealth) -> Iterator[str]:
    point = health.capture_point
    if point.place == "undecidable":
        yield f"{WHERE[point.place]}: {point.evidence}"
    else:
        yield f"{WHERE[point.place]} ({point.confidence:.0%} sure; {point.evidence})"
    yield point.meaning


def _rows(health: TransportHealth) -> Iterator[list[Cell]]:
    """One per number; of what went wrong only what did."""
    both = health.directions
    yield from row("packets", *(count(one.packets) for one in both), always=True)
    yield from row("unique payload", *(size(one.unique_bytes) for one in both), always=True)
    yield from row("goodput", *(_rate(one) for one in both), always=True)
    yield from row("retransmitted", *(_packets(one.retransmitted, one.packets) for one in both))
    yield from row("  original not captured", *(_packets(one.original_missing) for one in both))
    yield from row("captured twice", *(_packets(one.causes.get("duplicate")) for one in both))
    yield from row("out of order", *(_number(one.reordered) for one in both))
    yield from row("missing from the capture", *(_number(one.missing) for one in both))
    yield from row("  perhaps never sent", *(_number(one.unconfirmed) for one in both))
    yield from row("ACKs sent", *(_number(one.acknowledgements) for one in both), always=True)
    yield from row("  request packets per ACK", *(_per_ack(one) for one in both))
    yield from row("  delay: median, 99%", *(_delay(one.ack_delay) for one in both))
    yield from row("Read response: median, 99%", *(_delay(one.read_delay) for one in both))
    yield from row("sequence error NAKs sent", *(_number(one.sequence_naks) for one in both))
    yield from row("RNR NAKs sent", *(_rnr(one) for one in both))
    yield from row("fatal NAKs sent", *(_fatal(one) for one in both))
    yield from row("congestion marks (CE)", *(_number(one.ecn_marked) for one in both))
    yield from row("CNPs sent", *(_number(one.cnps) for one in both))
    yield from row("  interval: min, median", *(_least(one.cnp_gap) for one in both))
    yield from row("  delay after a mark: min, median", *(_least(one.cnp_delay) for one in both))
    yield from row("ICRC errors: count, frames", *(_frames(one.icrc_failures, one.icrc_failure_count) for one in both))
    yield from row("Reads outstanding, limit", *(_reads(one) for one in both))
    yield from row("requests unanswered", *(_number(one.unanswered) for one in both))
    yield from row("path MTU", count(health.path_mtu) if health.path_mtu else "-", "")
    checked = plural(health.icrc_checked or 0, "packet")
    yield from row("ICRC checked", checked, "", always=True)


def _segment_rows(health: TransportHealth) -> Iterator[list[Cell]]:
    """The same of iWARP, where TCP looks after losses."""
    both = health.directions
    yield from row("segments with payload", *(count(one.segments) for one in both), always=True)
    yield from row("FPDUs", *(count(one.fpdus) for one in both), always=True)
    yield from row("unique RDMA payload", *(size(one.unique_bytes) for one in both), always=True)
    yield from row("goodput", *(_rate(one) for one in both), always=True)
    yield from row("retransmitted", *(_packets(one.retransmitted, one.segments) for one in both))
    yield from row("  original not captured", *(_packets(one.original_missing) for one in both))
    yield from row("captured twice", *(_packets(one.causes.get("duplicate")) for one in both))
    yield from row("out of order", *(_number(one.reordered) for one in both))
    yield from row("missing from the capture, at least", *(_number(one.missing) for one in both))
    yield from row("pure ACKs", *(_number(one.acknowledgements) for one in both), always=True)
    yield from row("  segments per ACK", *(_per_ack(one) for one in both))
    yield from row("  delay: median, 99%", *(_delay(one.ack_delay) for one in both))
    yield from row("  duplicate ACKs", *(_number(one.duplicate_acks) for one in both))
    yield from row("  with SACK", *(_number(one.selective_acks) for one in both))
    yield from row("  with D-SACK", *(_number(one.reported_twice) for one in both))
    yield from row("zero windows", *(_number(one.zero_windows) for one in both))
    yield from row("Read response: median, 99%", *(_delay(one.read_delay) for one in both))
    yield from row("Reads outstanding, limit", *(_reads(one) for one in both))
    yield from row("Reads not completed", *(_number(one.unanswered) for one in both))
    yield from row("Terminate sent", *(_fatal(one) for one in both))
    yield from row("congestion marks (CE)", *(_number(one.ecn_marked) for one in both))
    yield from row("congestion echoed (ECE)", *(_number(one.congestion_echoes) for one in both))
    yield from row("TCP checksum errors", *(_number(one.damaged_segments) for one in both))
    yield from row("CRC32C errors: FPDUs, frames", *(_frames(one.crc_failures, one.crc_failure_count) for one in both))
    yield from row("FPDUs with wrong markers", *(_number(one.marker_failures) for one in both))
    yield from row("FPDUs rejected without a CRC", *(_number(one.doubted_fpdus) for one in both))
    checked = "no CRC in use" if health.crc_checked is None else plural(health.crc_checked, "FPDU")
    yield from row("MPA CRC32C checked", checked, "", always=True)


def row(name: str, *cells: str, always: bool = False) -> Iterator[list[Cell]]:
    if always or any(cell != "-" for cell in cells):
        yield [name, *cells]


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
        mine = [one for one in health.retransmissions if one.cause == cause]
        rows.append(
            [
                f"missing Read response ({cause})" if cause == IMPLIED else cause,
                count(health.causes[cause]),
                _range([one.loss_to_nak for one in mine]),
                _range([one.nak_to_retransmission for one in mine]),
                _range([one.loss_to_retransmission for one in mine]),
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
    for one in retransmissions:
        there = place(one.lost_frame, one.nak_frame, one.retransmission_frame)
        frames = f"{one.lost_frame or '-'} {one.nak_frame or '-'} {one.retransmission_frame or '-'}"
        frames += f" ({there})" if there else ""
        start, delay = [ENDS[one.initiator], one.cause, frames], _time(one.loss_to_retransmission)
        narrow_rows.append([*start, count(one.packets), delay])
        delays = [_time(one.loss_to_nak), _time(one.nak_to_retransmission), delay]
        wide_rows.append([*start, one.lost, _toward(one), count(one.packets), *delays])
    columns = [unit, f"loss to {notice}", f"{notice} to retrans", "loss to retrans"]
    wide = Grid([*left, "lost", "toward the"], columns, wide_rows, gap=2)
    return wide if wide.width <= width else Grid(left, [unit, "loss to retrans"], narrow_rows, gap=2)


def _toward(one: Retransmission) -> str:
    missed = " (or not captured)" if one.lost_packet_captured is False else ""
    return "-" if one.toward is None or one.lost_packet_captured is None else ENDS[one.toward] + missed


def _more(number: int, what: str) -> list[RenderableType]:
    return [Text(f"  … and {number:,} more {what} (--all lists them)", "dim")] if number > 0 else []


def _latency(one: Paid) -> str:
    return "-" if one.latency is None else f"{duration(one.latency)} ({share(one.waited, one.latency)})"


def _causes(one: DirectionHealth) -> str:
    causes = [
        f"{tally.packets:,} {cause}" for cause, tally in one.causes.items() if cause != "duplicate" and tally.packets
    ]
    return ", ".join(causes)


def _number(number: int) -> str:
    return count(number) if number else "-"


def _packets(tally: Tally | None, whole: int = 0) -> str:
    if tally is None or not tally.packets:
        return "-"
    part = f" ({100 * tally.packets / whole:.1f}%)" if whole else ""
    return f"{count(tally.packets)}{part}, {size(tally.bytes)}"


def _rate(one: DirectionHealth) -> str:
    if one.goodput is None:
        return "-"
    for unit, name in ((1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s")):
        if one.goodput >= unit:
            return f"{one.goodput / unit:.3g} {name}"
    return f"{one.goodput:.0f} bit/s"


def _per_ack(one: DirectionHealth) -> str:
    return "-" if one.requests_per_ack is None else f"{one.requests_per_ack:.1f}, max {one.max_per_ack}"


def _delay(spread: Distribution | None) -> str:
    return "-" if spread is None else f"{duration(spread.median)}, {duration(spread.p99)}"


def _least(spread: Distribution | None) -> str:
    return "-" if spread is None else f"{duration(spread.minimum)}, {duration(spread.median)}"


def _rnr(one: DirectionHealth) -> str:
    if not one.rnr_count:
        return "-"
    timers = sorted({nak.timer for nak in one.rnr_naks if nak.timer is not None})
    return f"{count(one.rnr_count)}, wait {', '.join(duration(timer) for timer in timers[:3])}"


def _fatal(one: DirectionHealth) -> str:
    return ", ".join(f"{nak.name.removeprefix('NAK, ')} (frame {nak.frame})" for nak in one.fatal_naks[:2]) or "-"


def _frames(frames: Sequence[int], number: int) -> str:
    if not number:
        return "-"
    listed = ", ".join(str(frame) for frame in frames[:MAX_FRAMES])
    return f"{count(number)}: {listed}" + (", …" if number > MAX_FRAMES else "")


def _reads(one: DirectionHealth) -> str:
    if not one.reads_outstanding:
        return "-"
    return f"{one.reads_outstanding} of {'?' if one.read_depth is None else one.read_depth}"


def _time(nanoseconds: int | None) -> str:
    return "-" if nanoseconds is None else duration(nanoseconds)


def _range(times: Sequence[int | None]) -> str:
    """'3.59 ms', '3.59 to 6.25 ms', '616 µs to 15.5 ms'."""
    known = sorted(time for time in times if time is not None)
    if not known:
        return "-"
    low, high = duration(known[0]), duration(known[-1])
    if low == high:
        return low
    number, _, unit = low.partition(" ")
    return f"{number if high.endswith(f' {unit}') else low} to {high}"
