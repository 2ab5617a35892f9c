"""Retransmissions by cause, congestion, and packets that arrived damaged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from ...rpcrdma.conversation import ENDS
from ...transport.health import DirectionHealth, TransportHealth
from ...transport.retransmissions import DUPLICATE, Retransmission
from ...units import count, duration, plural, share
from ..detector import Limits, detector
from ..facts import Facts
from ..statement import Cause, Severity

UNKNOWN = "unknown"

RETRANSMITTED = {
    "least_retransmissions": (3, "retransmissions of this cause in the capture"),
    "least_share": (0.01, "share of the latency of all RPCs that was spent waiting for them"),
    "alone_share": (0.05, "share of the latency with which fewer of them count, too"),
    "packet_share": (0.001, "share of the packets with payload that were retransmitted, where their cost is not known"),
}


def _retransmitted(facts: Facts, limits: Limits, causes: tuple[str, ...], one: str, several: str) -> Iterator[Cause]:
    """One statement about all retransmissions of some causes."""
    cost: Counter[int] = Counter()
    events: Counter[int] = Counter()
    packets: Counter[int] = Counter()
    sent = 0
    places: Counter[str] = Counter()
    frames: list[int] = []
    for number, health in facts.healths.items():
        mine = [one for one in health.retransmissions if _among(one, causes)]
        # Of more than are remembered one by one the sums know the cause alone.
        changed = _needless(health, causes)
        events[number] = sum(health.causes.get(cause, 0) for cause in causes) + changed.events
        sent += sum(one.packets or one.segments for one in health.directions)
        if not events[number]:
            continue
        packets[number] = changed.packets + sum(
            one.causes[cause].packets for one in health.directions for cause in causes if cause in one.causes
        )
        cost[number] = _cost(facts, number, health, causes)
        for event in mine:
            place = {True: "behind", False: "before", None: ""}[event.lost_packet_captured]
            places["arrived" if _arrived(event) else place] += 1
            frames += [event.retransmission_frame] if event.retransmission_frame else []
    total, lost = sum(events.values()), facts.share(sum(cost.values()))
    retransmitted = sum(packets.values())
    part = lost or 0.0
    enough = total >= limits["least_retransmissions"] and (
        part >= limits["least_share"] or (sent and retransmitted / sent >= limits["packet_share"])
    )
    if not (enough or (total and part >= limits["alone_share"])):
        return
    worst = [
        number for number, events_of in sorted(events.items(), key=lambda one: (-cost[one[0]], -one[1])) if events_of
    ]
    unit = "segment" if all(facts.healths[number].segments for number in worst) else "packet"
    delayed = [facts.rpcs.delays[number] for number in worst if number in facts.rpcs.delays]
    waiting = sum(cost.values())
    text = f"{plural(retransmitted, unit)} retransmitted in {plural(total, one, several)}"
    text += f"; RPCs waited {duration(waiting)} for them" if waiting else "; no RPC is known to have waited for them"
    evidence = [
        f"{facts.ends(number)}: {plural(packets[number], unit)}"
        + (f", RPCs waited {duration(cost[number])}" if cost[number] else "")
        for number in worst[:3]
    ]
    if places["behind"] or places["before"]:
        evidence.append(
            f"{count(places['behind'])} lost behind the capture point, {count(places['before'])} before it"
            " or missed by the capture"
        )
    if places["arrived"]:
        evidence.append(f"{count(places['arrived'])} without need: what was retransmitted had arrived")
    others = {cause for number in worst for cause in facts.healths[number].causes} - {DUPLICATE, *causes}
    mixed = waiting > 0 and bool(others)
    yield Cause(
        text,
        total,
        lost,
        "the latency of all RPCs",
        _since(facts, causes),
        tuple(evidence),
        tuple(worst),
        tuple(number for examples in delayed for number in examples.rpcs)[:5],
        tuple(sorted(frames)[:5]),
        0.8 if mixed else 0.95,
        ("the wait of RPCs is divided between causes by the time that each cause took",) if mixed else (),
        None if waiting else Severity.WARNING,
    )


def _arrived(one: Retransmission) -> bool:
    """The receiver had what was retransmitted: nothing was lost."""
    return one.lost == "nothing" and one.cause not in ("RNR NAK", DUPLICATE)


def _among(one: Retransmission, causes: tuple[str, ...]) -> bool:
    """What was retransmitted without need counts as such, whatever its sender took for the cause."""
    return (UNKNOWN if _arrived(one) else one.cause) in causes


class _Needless(NamedTuple):
    events: int
    packets: int


def _needless(health: TransportHealth, causes: tuple[str, ...]) -> _Needless:
    """How what was retransmitted without need changes the numbers of these causes."""
    others = [one for one in health.retransmissions if _arrived(one) and one.cause != UNKNOWN]
    if UNKNOWN not in causes:
        others = [one for one in others if one.cause in causes]
    sign = 1 if UNKNOWN in causes else -1
    return _Needless(sign * len(others), sign * sum(one.packets for one in others))


def _cost(facts: Facts, number: int, health: TransportHealth, causes: tuple[str, ...]) -> int:
    """Nanoseconds that RPCs of the connection waited because of these causes: their part of all causes."""
    if number not in facts.rpcs.delays:
        return 0
    waits: Counter[bool] = Counter()
    for one in health.retransmissions:
        waits[_among(one, causes)] += one.loss_to_retransmission or 0
    total, mine = sum(waits.values()), waits[True]
    return round(facts.rpcs.delays[number].total * mine / total) if total else 0


def _since(facts: Facts, causes: tuple[str, ...]) -> int | None:
    """When the first of them was seen."""
    return min(
        (
            one.lost_time or one.retransmission_time or 0
            for health in facts.healths.values()
            for one in health.retransmissions
            if _among(one, causes) and (one.lost_time or one.retransmission_time)
        ),
        default=None,
    )


@detector(
    "packets-lost",
    "Packets are lost on the way",
    Severity.PROBLEM,
    "transport health; the wait of each RPC for retransmissions",
    RETRANSMITTED,
    (
        "rdmascope transport FILE: which direction loses, and before or behind the capture point",
        "error, discard and pause counters of the ports on that way; RoCE needs PFC or ECN set up on every hop",
        "out_of_sequence and packet_seq_err in the hw_counters of the RDMA devices",
    ),
)
def packets_lost(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """The receiver noticed a gap, by a NAK for a PSN sequence error, a Read response that was missing, or repeated TCP
    acknowledgements, and the sender retransmitted from there. A Reliable Connection retransmits everything behind the
    gap, so that one lost packet costs a window of them, and every RPC in it waits.
    """
    causes = ("NAK sequence error", "implied NAK", "fast retransmit")
    yield from _retransmitted(facts, limits, causes, "recovery", "recoveries")


@detector(
    "retransmission-timeouts",
    "Losses are noticed by timeout only",
    Severity.PROBLEM,
    "transport health; the wait of each RPC for retransmissions",
    RETRANSMITTED,
    (
        "rdmascope transport FILE: what was lost; the last packet of a burst leaves no gap that could be noticed",
        "local_ack_timeout_err in the hw_counters of the RDMA devices, and the local ACK timeout of the connection",
        "whether acknowledgements are lost: they have a way of their own",
    ),
)
def retransmission_timeouts(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """Nothing came for as long as the sender's timer runs, and only then it retransmitted. Timeouts are many times
    longer than a round trip, often hundreds of milliseconds, so that a few of them are most of the latency that users
    see.
    """
    yield from _retransmitted(facts, limits, ("timeout",), "timeout", "timeouts")


@detector(
    "retransmissions-unexplained",
    "Packets are retransmitted without a loss that the capture shows",
    Severity.WARNING,
    "transport health; the wait of each RPC for retransmissions",
    RETRANSMITTED,
    (
        "rdmascope transport FILE: each retransmission with its frames",
        "a capture at the other end: what one end does not see, the other does",
    ),
)
def retransmissions_unexplained(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """Packets were sent twice although the capture shows neither a NAK nor a silence before them, or although they had
    arrived, as the receiver's acknowledgements say (RFC 2883). Either the notice was missed by the capture, or the
    sender retransmitted without need because acknowledgements came late: that costs bandwidth, and hardly any time.
    """
    one, several = "return to an earlier packet", "returns to earlier packets"
    yield from _retransmitted(facts, limits, (UNKNOWN,), one, several)


@detector(
    "receiver-not-ready",
    "The receiver had no receive buffer",
    Severity.PROBLEM,
    "transport health: RNR NAKs and their timers",
    {"least_naks": (3, "RNR NAKs in the capture")},
    (
        "rdmascope credits FILE: whether calls exceed the credits that were granted",
        "how many receive buffers the end that answers with RNR NAKs posts: at least as many as the credits it grants,"
        " and some for its own callbacks",
        "min_rnr_timer and rnr_retry_count of the queue pair: a count of seven means without end",
    ),
)
def receiver_not_ready(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """A Send arrived when no receive buffer was posted, and the responder asked to wait (RNR NAK). RPC-over-RDMA's
    credits are there so that this never happens: an end grants more than it posts, or the other sends more than was
    granted. The wait is the timer in the NAK, up to 655 ms, each time.
    """
    found: dict[int, int] = {}
    waited: dict[int, int] = {}
    frames: list[int] = []
    lines: list[tuple[int, str]] = []
    for number, health in facts.healths.items():
        for end, one in enumerate(health.directions):
            if not one.rnr_count:
                continue
            found[number] = found.get(number, 0) + one.rnr_count
            timers = [nak.timer for nak in one.rnr_naks if nak.timer is not None]
            waiting = round(sum(timers) / len(timers) * one.rnr_count) if timers else 0
            waited[number] = waited.get(number, 0) + waiting
            frames += [nak.frame for nak in one.rnr_naks]
            who = ENDS[end]
            timer = f" with a timer of {duration(max(timers))}" if timers else ""
            lines.append((waiting, f"{facts.ends(number)}: {plural(one.rnr_count, 'RNR NAK')} from the {who}{timer}"))
    total = sum(found.values())
    if total < limits["least_naks"]:
        return
    worst = tuple(sorted(found, key=lambda number: (-waited[number], -found[number])))
    delayed = [facts.rpcs.delays[number] for number in worst if number in facts.rpcs.delays]
    yield Cause(
        f"{plural(total, 'RNR NAK')}; their timers add up to {duration(sum(waited.values()))}",
        total,
        facts.share(sum(waited.values())),
        "the latency of all RPCs",
        None,
        tuple(line for _, line in sorted(lines, reverse=True)[:3]),
        worst,
        tuple(number for examples in delayed for number in examples.rpcs)[:5],
        tuple(sorted(frames)[:5]),
    )


@detector(
    "congestion",
    "The network is congested",
    Severity.WARNING,
    "transport health: ECN marks, congestion notifications, TCP's echoes of them",
    {
        "marked_share": (0.01, "share of packets that a switch marked"),
        "least_notices": (10, "marks, notifications or echoes"),
    },
    (
        "rdmascope transport FILE: which direction is marked",
        "queue depths and ECN thresholds of the switches on that way, and what else uses the bottleneck (incast)",
        "np_ecn_marked_roce_packets and rp_cnp_handled in the hw_counters of the RDMA devices",
    ),
)
def congestion(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """Switches marked packets because their queues were long (ECN), and the receiver told the sender to slow down, with
    a congestion notification packet on RoCE and an echo in TCP's acknowledgements with iWARP. The sender then sends
    more slowly by itself: transfers take longer without a single loss.
    """

    def notices(one: DirectionHealth) -> int:
        return one.ecn_marked + one.cnps + one.congestion_echoes

    yield from _counted(
        facts,
        notices,
        lambda one: (
            f"{count(one.ecn_marked)} marked, {count(one.cnps)} notifications, {count(one.congestion_echoes)} echoes"
        ),
        lambda total, sent: total >= limits["least_notices"] and total >= limits["marked_share"] * sent,
        lambda total: f"{plural(total, 'packet')} marked by switches or notifying of congestion",
        "all packets",
    )


@detector(
    "packets-damaged",
    "Packets arrive damaged",
    Severity.PROBLEM,
    "transport health: ICRC, CRC32C and markers of FPDUs, TCP checksums",
    {"least_damaged": (1, "packets whose checksum or marker is wrong")},
    (
        "rdmascope transport FILE: the frames, and which end sent them",
        "symbol and FCS error counters of ports and cables on that way; rx_icrc_encapsulated of the RDMA devices",
        "whether the capture itself alters packets: with offloading it shows checksums that the card fills in later",
    ),
)
def packets_damaged(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """A checksum over the packet's end-to-end contents is wrong. Its receiver drops it, and it must be retransmitted;
    or, where only the capture damaged it, what is said about it here rests on wrong bytes. A marker of MPA that does
    not point to the begin of its FPDU (RFC 5044, 4.3) is an error of its sender, or shows damage where no CRC is in
    use.
    """

    def spoiled(one: DirectionHealth) -> int:
        return one.icrc_failure_count + one.crc_failure_count + one.damaged_segments

    def damaged(one: DirectionHealth) -> int:
        return spoiled(one) + one.marker_failures

    def words(checksums: int, markers: int) -> str:
        named = ((checksums, "with a wrong checksum"), (markers, "with a wrong marker"))
        return ", ".join(f"{count(number)} {what}" for number, what in named if number)

    markers = sum(one.marker_failures for health in facts.healths.values() for one in health.directions)
    yield from _counted(
        facts,
        damaged,
        lambda one: words(spoiled(one), one.marker_failures),
        lambda total, _: total >= limits["least_damaged"],
        lambda total: (
            f"{plural(total, 'packet')}: {words(total - markers, markers)}"
            if markers
            else f"{plural(total, 'packet')} with a wrong checksum"
        ),
        "all packets",
        frames=lambda one: (*one.icrc_failures, *one.crc_failures),
    )


def _counted(
    facts: Facts,
    number_of: Callable[[DirectionHealth], int],
    line: Callable[[DirectionHealth], str],
    enough: Callable[[int, int], bool],
    text: Callable[[int], str],
    share_of: str,
    frames: Callable[[DirectionHealth], tuple[int, ...]] = lambda one: (),
) -> Iterator[Cause]:
    """One statement about something that is counted at both ends of every connection."""
    found: Mapping[int, int] = {
        number: sum(map(number_of, health.directions)) for number, health in facts.healths.items()
    }
    total = sum(found.values())
    sent = sum(one.packets or one.segments for health in facts.healths.values() for one in health.directions)
    if not total or not enough(total, sent):
        return
    worst = sorted((number for number in found if found[number]), key=lambda number: -found[number])
    evidence = [
        f"{facts.ends(number)}, sent by the {who}: {line(one)}"
        for number in worst[:3]
        for who, one in zip(ENDS, facts.healths[number].directions, strict=True)
        if number_of(one)
    ]
    some_frames = [frame for number in worst for one in facts.healths[number].directions for frame in frames(one)]
    yield Cause(
        f"{text(total)} ({share(total, sent)} of all)",
        total,
        min(1.0, total / sent) if sent else None,
        share_of,
        None,
        tuple(evidence),
        tuple(worst),
        (),
        tuple(some_frames[:5]),
    )
