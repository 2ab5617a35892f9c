"""Retransmissions by cause, congestion, and packets that arrived damaged."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping

from ...named_tuple import NamedTuple
from ...rpcrdma.conversation import ENDS
from ...transport.health import DirectionHealth, Pauses, TransportHealth
from ...transport.retransmissions import DUPLICATE, InferredLoss, Retransmission, delays
from ...units import count, duration, plural
from ..facts import Cause, Facts, Limits, Severity, detector

UNKNOWN, TIMEOUT = "unknown", "timeout"

LOST_BY_CAPTURE = 0.4
"""Confidence if the capture lost frames, and has no earlier transmission of anything that was retransmitted."""

RETRANSMITTED = {
    "least_retransmissions": (3, "retransmissions of this cause in the capture"),
    "least_share": (0.01, "share of the latency of all RPCs that was spent waiting for them"),
    "alone_share": (0.05, "share of the latency that suffices for any number of retransmissions"),
    "packet_share": (0.001, "share of the packets with payload that were retransmitted, if their cost is not known"),
}


def _retransmitted(facts: Facts, limits: Limits, causes: tuple[str, ...], one: str, several: str) -> Iterator[Cause]:
    """One statement about all retransmissions of some causes."""
    cost: Counter[int] = Counter()
    events: Counter[int] = Counter()
    packets: Counter[int] = Counter()
    sent = 0
    arrived = 0
    lost_toward: dict[int | None, Counter[bool]] = defaultdict(Counter)
    """By the end that did not receive it: packets that are in the capture (True), and others."""
    frames: list[int] = []
    unseen: list[InferredLoss] = []
    for number, health in facts.healths.items():
        sent += sum(direction.packets or direction.segments for direction in health.directions)
        if not (health.retransmissions or health.causes or health.inferred):
            continue
        mine = [
            retransmission
            for retransmission in health.retransmissions
            if _among(retransmission, causes) and not facts.in_vain(number, retransmission)
        ]
        # Retransmissions that are no longer listed one by one are known only by cause.
        changed = _uncounted(facts, number, health, causes)
        inferred = health.inferred if TIMEOUT in causes else ()
        events[number] = sum(health.causes.get(cause, 0) for cause in causes) + changed.events + len(inferred)
        unseen += inferred
        if not events[number]:
            continue
        packets[number] = changed.packets + sum(
            direction.causes[cause].packets
            for direction in health.directions
            for cause in causes
            if cause in direction.causes
        )
        cost[number] = _cost(facts, number, health, causes)
        for event in mine:
            if _arrived(event):
                arrived += 1
            elif event.lost_packet_captured is not None:
                lost_toward[event.toward][event.lost_packet_captured] += 1
            frames += [event.retransmission_frame] if event.retransmission_frame else []
    total, waiting = sum(events.values()), sum(cost.values())
    retransmitted = sum(packets.values())
    part = facts.share(waiting)
    enough = total >= limits["least_retransmissions"] and (
        part >= limits["least_share"] or (sent and retransmitted / sent >= limits["packet_share"])
    )
    if not (enough or (total and part >= limits["alone_share"])):
        return
    worst = [
        number for number, events_of in sorted(events.items(), key=lambda item: (-cost[item[0]], -item[1])) if events_of
    ]
    unit = "segment" if all(facts.healths[number].segments for number in worst) else "packet"
    blind = all(facts.by_number[number].connection.one_sided for number in worst)
    if blind:
        one, several = "time", "times"
    delayed = [facts.delays[number] for number in worst if number in facts.delays]
    text = (f"{plural(retransmitted, unit)} retransmitted, " if retransmitted else "") + plural(total, one, several)
    text += f"; RPCs delayed {duration(waiting)}" if waiting else "; no RPC known to be delayed"
    evidence = [
        f"{facts.ends(number)}: "
        + (plural(packets[number], unit) if packets[number] else plural(events[number], one, several))
        + (f", RPCs delayed {duration(cost[number])}" if cost[number] else "")
        for number in worst[:3]
    ]
    evidence += [f"RPC {pause.rpc}: {pause.evidence}" for pause in unseen[:3]]
    evidence += [] if blind else _directions(lost_toward)
    if arrived:
        evidence.append(f"{count(arrived)} needless: what was retransmitted had arrived")
    others = {cause for number in worst for cause in facts.healths[number].causes} - {DUPLICATE, *causes}
    mixed = waiting > 0 and bool(others)
    weakened = ["several causes: the delay of RPCs is split by the time that each took"] if mixed else []
    confidence = min([0.8 if mixed else 0.95, *(pause.confidence for pause in unseen)])
    if facts.dropped_frames and not any(seen[True] for seen in lost_toward.values()):
        confidence = min(confidence, LOST_BY_CAPTURE)
    if unseen:
        weakened.append(f"{plural(len(unseen), 'loss', 'losses')} inferred from the length of a pause")
    if blind and TIMEOUT in causes:
        confidence = min(confidence, 0.5)
        weakened.append("without the acknowledgements, what was retransmitted may have been lost, or acknowledged late")
    yield Cause(
        text,
        total,
        None,
        "",
        _since(facts, causes),
        tuple(evidence),
        tuple(worst),
        tuple(number for examples in delayed for number in examples.rpcs)[:5],
        tuple(sorted(frames)[:5]),
        confidence,
        tuple(weakened),
        None if waiting else Severity.WARNING,
        waiting,
        title=BLIND if blind and TIMEOUT in causes else "",
    )


BLIND = "Retransmissions of which the capture lacks the acknowledgements"


def _directions(lost_toward: Mapping[int | None, Counter[bool]]) -> list[str]:
    """'12 lost toward the server, 3 toward the client (or missed by the capture)', as a line if there is one."""
    parts: list[str] = []
    for end in (1, 0, None):
        if seen := lost_toward.get(end):
            way = f"toward the {ENDS[end]}" if end is not None else "in an unknown direction"
            parts.append(f"{count(seen.total())} {'' if parts else 'lost '}{way}")
    missed = sum(seen[False] for seen in lost_toward.values())
    some = "or" if missed == sum(seen.total() for seen in lost_toward.values()) else f"{count(missed)} of them perhaps"
    return [", ".join(parts) + (f" ({some} missed by the capture)" if missed else "")] if parts else []


def _arrived(retransmission: Retransmission) -> bool:
    """Whether the receiver already had what was retransmitted, so that nothing was lost."""
    return retransmission.lost == "nothing" and retransmission.cause not in ("RNR NAK", DUPLICATE)


def _among(retransmission: Retransmission, causes: tuple[str, ...]) -> bool:
    """Whether it counts among ``causes``; needless retransmissions count as unknown, whatever the sender assumed."""
    return (UNKNOWN if _arrived(retransmission) else retransmission.cause) in causes


class _Needless(NamedTuple):
    events: int
    packets: int


def _uncounted(facts: Facts, number: int, health: TransportHealth, causes: tuple[str, ...]) -> _Needless:
    """How much needless retransmissions, and those to a host that is gone, change the numbers for these causes."""
    needless = _needless(health, causes)
    vain = [
        retransmission
        for retransmission in health.retransmissions
        if _among(retransmission, causes) and facts.in_vain(number, retransmission)
    ]
    return _Needless(
        needless.events - len(vain), needless.packets - sum(retransmission.packets for retransmission in vain)
    )


def _needless(health: TransportHealth, causes: tuple[str, ...]) -> _Needless:
    """How much needless retransmissions change the numbers for these causes."""
    others = [
        retransmission
        for retransmission in health.retransmissions
        if _arrived(retransmission) and retransmission.cause != UNKNOWN
    ]
    if UNKNOWN not in causes:
        others = [retransmission for retransmission in others if retransmission.cause in causes]
    sign = 1 if UNKNOWN in causes else -1
    return _Needless(sign * len(others), sign * sum(retransmission.packets for retransmission in others))


def _cost(facts: Facts, number: int, health: TransportHealth, causes: tuple[str, ...]) -> int:
    """Nanoseconds that RPCs of the connection waited because of these causes: their share of all waits."""
    if number not in facts.delays:
        return 0
    waits: Counter[bool] = Counter()
    for retransmission in health.retransmissions:
        if delays(retransmission, health.segments) and not facts.in_vain(number, retransmission):
            waits[_among(retransmission, causes)] += retransmission.loss_to_retransmission or 0
    inferred = min(facts.delays[number].total, sum(pause.until - pause.since for pause in health.inferred))
    total, rest = sum(waits.values()), facts.delays[number].total - inferred
    return inferred * (TIMEOUT in causes) + (round(rest * waits[True] / total) if total else 0)


def _since(facts: Facts, causes: tuple[str, ...]) -> int | None:
    """When the first retransmission with one of these causes was seen."""
    return min(
        (
            retransmission.lost_time or retransmission.retransmission_time or 0
            for health in facts.healths.values()
            for retransmission in health.retransmissions
            if _among(retransmission, causes) and (retransmission.lost_time or retransmission.retransmission_time)
        ),
        default=None,
    )


@detector(
    "packets-lost",
    "Packet loss",
    Severity.PROBLEM,
    "transport health; the delay of each RPC by retransmissions",
    RETRANSMITTED,
    (
        "rdmascope transport FILE: which direction loses packets",
        "error, discard and pause counters of the ports on that path; RoCE needs PFC or ECN on every hop",
        "out_of_sequence and packet_seq_err in the hw_counters of the RDMA devices",
    ),
)
def packets_lost(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """The receiver noticed a gap (a NAK for a PSN sequence error, a missing Read response, or duplicate TCP
    acknowledgements), and the sender retransmitted from there. A Reliable Connection resends everything after the
    gap: one lost packet costs a whole window, and delays every RPC in it.
    """
    causes = ("NAK sequence error", "implied NAK", "fast retransmit")
    yield from _retransmitted(facts, limits, causes, "recovery", "recoveries")


@detector(
    "retransmission-timeouts",
    "Retransmit timeouts: nothing acknowledged",
    Severity.PROBLEM,
    "transport health; the delay of each RPC by retransmissions",
    RETRANSMITTED,
    (
        "rdmascope transport FILE: what was lost; the last packet of a burst leaves no gap to notice",
        "local_ack_timeout_err in the hw_counters of the RDMA devices, and the local ACK timeout of the connection",
        "whether acknowledgements are lost: they may take another path",
    ),
)
def retransmission_timeouts(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """Nothing was acknowledged until the sender's timer expired and it retransmitted. A timeout is many times longer
    than a round trip, often hundreds of milliseconds: a few of them make up most of the latency that users see.
    """
    yield from _retransmitted(facts, limits, (TIMEOUT,), "timeout", "timeouts")


@detector(
    "retransmissions-unexplained",
    "Retransmissions without a visible loss",
    Severity.WARNING,
    "transport health; the delay of each RPC by retransmissions",
    RETRANSMITTED,
    (
        "rdmascope transport FILE: each retransmission with its frames",
        "a capture at the other end",
    ),
)
def retransmissions_unexplained(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """Packets were sent twice, but the capture shows no NAK and no timeout before them, or the receiver's
    acknowledgements say that they had arrived (RFC 2883). Either the capture missed the NAK, or acknowledgements came
    late and the sender retransmitted needlessly. That costs bandwidth, but hardly any time.
    """
    yield from _retransmitted(facts, limits, (UNKNOWN,), "time", "times")


@detector(
    "receiver-not-ready",
    "Receiver not ready (RNR): no receive buffer posted",
    Severity.PROBLEM,
    "transport health: RNR NAKs and their timers",
    {"least_naks": (3, "RNR NAKs in the capture")},
    (
        "rdmascope transport --credits FILE: whether calls exceed the credits granted",
        "receive buffers posted by the end that sends RNR NAKs: one per credit it grants, some for callbacks",
        "min_rnr_timer and rnr_retry_count of the queue pair: a count of 7 means forever",
    ),
)
def receiver_not_ready(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """A Send arrived when no receive buffer was posted, and the responder asked the sender to wait (RNR NAK).
    RPC-over-RDMA credits should prevent this: either one end grants more credits than it posts buffers, or the other
    sends more than was granted. Each NAK costs the wait of its timer, up to 655 ms.
    """
    rnr_naks: dict[int, int] = {}
    waited: dict[int, int] = {}
    frames: list[int] = []
    lines: list[tuple[int, str]] = []
    for number, health in facts.healths.items():
        for end, direction in enumerate(health.directions):
            if not direction.rnr_count:
                continue
            rnr_naks[number] = rnr_naks.get(number, 0) + direction.rnr_count
            timers = [nak.timer for nak in direction.rnr_naks if nak.timer is not None]
            waiting = round(sum(timers) / len(timers) * direction.rnr_count) if timers else 0
            waited[number] = waited.get(number, 0) + waiting
            frames += [nak.frame for nak in direction.rnr_naks]
            who = ENDS[end]
            timer = f" with a timer of {duration(max(timers))}" if timers else ""
            lines.append(
                (waiting, f"{facts.ends(number)}: {plural(direction.rnr_count, 'RNR NAK')} from the {who}{timer}")
            )
    total = sum(rnr_naks.values())
    if total < limits["least_naks"]:
        return
    worst = tuple(sorted(rnr_naks, key=lambda number: (-waited[number], -rnr_naks[number])))
    delayed = [facts.delays[number] for number in worst if number in facts.delays]
    yield Cause(
        f"{plural(total, 'RNR NAK')}, timers of {duration(sum(waited.values()))} in all",
        total,
        None,
        "",
        None,
        tuple(line for _, line in sorted(lines, reverse=True)[:3]),
        worst,
        tuple(number for examples in delayed for number in examples.rpcs)[:5],
        tuple(sorted(frames)[:5]),
        lost=sum(_cost(facts, number, facts.healths[number], ("RNR NAK",)) for number in worst),
    )


@detector(
    "congestion",
    "Network congestion",
    Severity.WARNING,
    "transport health: ECN marks, congestion notifications, TCP's echoes of them",
    {
        "marked_share": (0.01, "share of packets that a switch marked"),
        "least_notices": (10, "marks, notifications or echoes"),
    },
    (
        "rdmascope transport FILE: which direction is marked",
        "queue depths and ECN thresholds of the switches on that path; what else uses the bottleneck (incast)",
        "np_ecn_marked_roce_packets and rp_cnp_handled in the hw_counters of the RDMA devices",
    ),
)
def congestion(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """Switches with long queues marked packets (ECN), and the receiver told the sender to slow down: by a congestion
    notification packet (CNP) on RoCE, by an echo in TCP acknowledgements on iWARP. The sender lowers its rate, so
    transfers take longer without a single loss.
    """

    def notices(health: DirectionHealth) -> int:
        return health.ecn_marked + health.cnps + health.congestion_echoes

    yield from _counted(
        facts,
        notices,
        lambda health: (
            f"{count(health.ecn_marked)} marked, {count(health.cnps)} notifications,"
            f" {count(health.congestion_echoes)} echoes"
        ),
        lambda total, sent: total >= limits["least_notices"] and total >= limits["marked_share"] * sent,
        lambda total: f"{plural(total, 'congestion mark or notification', 'congestion marks and notifications')}",
    )


@detector(
    "delayed-acknowledgements",
    "Waiting for delayed acknowledgements",
    Severity.WARNING,
    "TCP segments: data, 40 or 200 ms later their acknowledgement alone, and more data at once",
    {
        "least_waits": (3, "such pauses"),
        "least_share": (0.01, "share of the latency of all RPCs that they took"),
    },
    (
        "rdmascope packets FILE: what was sent before and behind the acknowledgement",
        "whether the sender switched Nagle's algorithm off (TCP_NODELAY), as NFS clients and servers do",
        "middleboxes and user-space servers or proxies on the path, which end the connections of others",
    ),
)
def delayed_acknowledgements(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """A host kept the rest of a message until all before it was acknowledged (Nagle's algorithm), and its peer delayed
    that acknowledgement, since it waited for the rest: both waited for a timer, of 40 ms on Linux.
    """
    yield from _pauses(facts, limits, lambda health: health.ack_waits, "until a delayed acknowledgement came")


@detector(
    "slow-start-after-idle",
    "Slow start after idle",
    Severity.WARNING,
    "TCP segments: after 200 ms without data 10 full ones, a pause until they are acknowledged, then up to 20, …",
    {
        "least_waits": (3, "such pauses"),
        "least_share": (0.01, "share of the latency of all RPCs that they took"),
    },
    (
        "rdmascope packets FILE: what was sent after the pause of 200 ms or more",
        "net.ipv4.tcp_slow_start_after_idle on the sending host: 0 keeps the window",
        "tcpi_snd_cwnd of the connection (ss -ti) before and after such a pause",
    ),
)
def slow_start_after_idle(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """A host had sent nothing for longer than its retransmission timeout. So its congestion window was the initial one
    again (RFC 5681, 4.1), and doubled at most in each round trip: long messages waited for several of them.
    """
    yield from _pauses(facts, limits, lambda health: health.restarts, "for acknowledgements after idle times")


@detector(
    "receive-window-closed",
    "Receiver does not keep up",
    Severity.WARNING,
    "TCP segments whose window is zero",
    {"least_segments": (3, "segments with a window of zero"), "share": (0.0005, "share of all segments with payload")},
    (
        "rdmascope transport FILE: which end, and how often",
        "the receiving host: CPU, threads (nfsd), disks that take the data, memory for socket buffers (tcp_rmem)",
    ),
)
def receive_window_closed(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """A host told its peer to send no more: what had come was not read from the socket. The network is not the limit
    then, but the host: its threads are busy, or wait for a disk.
    """
    yield from _counted(
        facts,
        lambda health: health.zero_windows,
        lambda health: plural(health.zero_windows, "segment"),
        lambda total, sent: total >= limits["least_segments"] and total >= limits["share"] * sent,
        lambda total: f"{plural(total, 'segment')} with a window of zero",
    )


@detector(
    "packets-damaged",
    "Wrong checksums or markers",
    Severity.PROBLEM,
    "transport health: ICRC, CRC32C and markers of FPDUs, TCP checksums",
    {"least_damaged": (1, "packets with a wrong checksum or marker")},
    (
        "rdmascope transport FILE: the frames, and which end sent them",
        "symbol and FCS error counters of ports and cables on that path; rx_icrc_encapsulated of the RDMA devices",
        "checksum offload: a capture on the sending host shows checksums that the NIC fills in later",
    ),
)
def packets_damaged(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """The end-to-end checksum of a packet is wrong. The receiver drops the packet, and it must be retransmitted; if
    only the capture damaged it, what is decoded from it here is unreliable. An MPA marker that does not point to the
    start of its FPDU (RFC 5044, 4.3) is the sender's mistake, or shows damage where no CRC is in use.
    """

    def spoiled(health: DirectionHealth) -> int:
        return health.icrc_failure_count + health.crc_failure_count + health.damaged_segments

    def damaged(health: DirectionHealth) -> int:
        return spoiled(health) + health.marker_failures

    def words(checksums: int, markers: int) -> str:
        named = ((checksums, "with a wrong checksum"), (markers, "with a wrong marker"))
        return ", ".join(f"{count(number)} {what}" for number, what in named if number)

    markers = sum(direction.marker_failures for health in facts.healths.values() for direction in health.directions)
    yield from _counted(
        facts,
        damaged,
        lambda health: words(spoiled(health), health.marker_failures),
        lambda total, _: total >= limits["least_damaged"],
        lambda total: (
            f"{plural(total, 'packet')}: {words(total - markers, markers)}"
            if markers
            else f"{plural(total, 'packet')} with a wrong checksum"
        ),
        frames=lambda health: (*health.icrc_failures, *health.crc_failures),
    )


def _pauses(
    facts: Facts, limits: Limits, pauses: Callable[[DirectionHealth], Pauses], what: str
) -> Iterator[Cause]:  # fmt: skip
    """One statement about pauses in sending."""
    paused = {
        (number, end): pauses(direction)
        for number, health in facts.healths.items()
        for end, direction in enumerate(health.directions)
        if pauses(direction).number
    }
    total, waited = sum(pause.number for pause in paused.values()), sum(pause.waited for pause in paused.values())
    if total < limits["least_waits"] or facts.share(waited) < limits["least_share"]:
        return
    worst = sorted(paused.items(), key=lambda item: -item[1].waited)
    yield Cause(
        f"{plural(total, 'pause')} {what}, {duration(waited)} in all",
        total,
        evidence=tuple(
            f"{facts.ends(number)}: the {ENDS[end]} paused {plural(pause.number, 'time')}, {duration(pause.waited)}"
            for (number, end), pause in worst[:3]
        ),
        connections=tuple(dict.fromkeys(number for (number, _), _ in worst)),
        confidence=0.8,
        lost=waited,
    )


def _counted(
    facts: Facts,
    number_of: Callable[[DirectionHealth], int],
    line: Callable[[DirectionHealth], str],
    enough: Callable[[int, int], bool],
    text: Callable[[int], str],
    frames: Callable[[DirectionHealth], tuple[int, ...]] = lambda health: (),
) -> Iterator[Cause]:
    """One statement about what is counted at both ends of every connection."""
    counts: Mapping[int, int] = {
        number: sum(map(number_of, health.directions)) for number, health in facts.healths.items()
    }
    total = sum(counts.values())
    sent = sum(
        direction.packets or direction.segments for health in facts.healths.values() for direction in health.directions
    )
    if not total or not enough(total, sent):
        return
    worst = sorted((number for number in counts if counts[number]), key=lambda number: -counts[number])
    evidence = [
        f"{facts.ends(number)}, sent by the {who}: {line(direction)}"
        for number in worst[:3]
        for who, direction in zip(ENDS, facts.healths[number].directions, strict=True)
        if number_of(direction)
    ]
    some_frames = [
        frame for number in worst for direction in facts.healths[number].directions for frame in frames(direction)
    ]
    yield Cause(
        f"{text(total)}; {plural(sent, 'packet')} sent",
        total,
        evidence=tuple(evidence),
        connections=tuple(worst),
        frames=tuple(some_frames[:5]),
    )
