"""What the capture lacks, and what makes other statements less certain."""

from __future__ import annotations

from collections.abc import Iterator

from ...units import bound, dropped_words, percent, plural
from ..facts import Cause, Facts, Limits, Severity, detector


@detector(
    "capture-dropped",
    "Frames dropped by the capture",
    Severity.NOTE,
    "drop counters in the capture file",
    {"least_dropped": (1, "frames dropped")},
    (
        "a larger capture buffer (tcpdump -B, dumpcap -B), a shorter snap length, or a capture on the switch",
        "rdmascope info FILE: which interface dropped frames",
    ),
)
def capture_dropped(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """The interface or the operating system dropped frames during the capture, and the file says so. Sequence gaps and
    calls without a reply may be these frames, and prove no loss in the network.
    """
    if facts.dropped_frames >= limits["least_dropped"]:
        yield Cause(
            dropped_words(facts.dropped_frames, facts.frames, facts.traced)[0],
            facts.dropped_frames,
            facts.dropped_frames / (facts.frames + facts.dropped_frames),
            "all events" if facts.traced else "all frames",
        )


@detector(
    "packets-missing",
    "Packets missing from the capture",
    Severity.NOTE,
    "sequence numbers of every connection",
    {"least_share": (0.0005, "share of the packets sent that are not in the capture")},
    (
        "rdmascope info FILE: frames dropped by the interface or the operating system",
        "a larger capture buffer (tcpdump -B, dumpcap -B), a shorter snap length, or a capture on the switch",
    ),
)
def packets_missing(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """Sequence numbers show packets that the other end received, but the capture does not have: the capture lost them,
    not the network. Their RPCs look damaged, unanswered or without a call.
    """
    missing = _missing(facts)
    total = sum(missing.values())
    sent = total + sum(
        direction.packets or direction.segments for health in facts.healths.values() for direction in health.directions
    )
    if not total or total / sent < limits["least_share"]:
        return
    worst = sorted((number for number in missing if missing[number]), key=lambda number: -missing[number])
    yield Cause(
        f"{plural(total, 'packet')} ({percent(total / sent)}) missing from the capture",
        total,
        total / sent,
        "all packets",
        evidence=tuple(f"{facts.ends(number)}: {plural(missing[number], 'packet')}" for number in worst[:3]),
        connections=tuple(worst),
    )


def _missing(facts: Facts) -> dict[int, int]:
    """By connection, the packets that are known to be missing."""
    return {
        number: sum(direction.missing - direction.unconfirmed for direction in health.directions)
        + sum(facts.by_number[number].connection.missing_responses)
        for number, health in facts.healths.items()
    }


@detector(
    "frames-truncated",
    "Frames truncated, messages unreadable",
    Severity.NOTE,
    "captured and original lengths; RPCs with bytes missing",
    {
        "least_share": (0.01, "share of the RPCs that are damaged, or whose packets' headers are truncated"),
    },
    ("a longer snap length: 256 bytes hold all headers and most metadata calls; 0 is unlimited",),
)
def frames_truncated(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """The capture kept too little of each frame: headers or RPC messages are cut off, so calls cannot be named or
    replies not matched. Truncated payload alone does no harm, and weakens nothing that is said.
    """
    states = facts.statistics.states
    unread_of = {
        conversation.connection.number: sum(conversation.connection.unread_packets)
        + sum(conversation.connection.unread_messages)
        for conversation in facts.conversations
    }
    unread = sum(unread_of.values())
    harmed = unread + states.get("damaged", 0)
    if not facts.truncated_frames:
        return
    harmless = not harmed or harmed < limits["least_share"] * max(1, facts.calls)
    contents = facts.statistics.truncated
    without = f", and with them the contents of {plural(contents, 'RPC')}" if contents else ""
    what = without if harmless else f"; {plural(harmed, 'message')} cannot be read"
    yield Cause(
        f"{plural(facts.truncated_frames, 'frame')} truncated by the capture{what}",
        facts.truncated_frames if harmless else harmed,
        facts.truncated_frames / facts.frames if facts.frames else None,
        "all frames",
        harmless=harmless,
        connections=tuple(sorted(filter(unread_of.get, unread_of), key=lambda number: -unread_of[number])),
    )


@detector(
    "messages-incomplete",
    "Messages incomplete",
    Severity.NOTE,
    "RPCs with missing bytes, if no packet is known to be missing and no frame is truncated",
    {"least_damaged": (1, "RPCs that are damaged")},
    ("rdmascope rpcs FILE --errors, and show FILE --rpc N: which chunk lacks bytes",),
)
def messages_incomplete(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """Bytes of RPC messages are not in the capture, and neither missing packets nor truncated frames tell why: RDMA
    Reads or Writes of their chunks took another path, came before or after the capture, or never happened. Packets may
    be missing if the capture lacks their sequence numbers, but nothing in it acknowledges them.
    """
    damaged = facts.statistics.states.get("damaged", 0)
    lacking = any(_missing(facts).values()) or facts.truncated_frames or facts.ip_fragments
    if damaged >= limits["least_damaged"] and not lacking:
        unconfirmed = sum(direction.unconfirmed for health in facts.healths.values() for direction in health.directions)
        yield Cause(
            f"{plural(damaged, 'RPC')} damaged, bytes of {'its' if damaged == 1 else 'their'} messages not captured",
            damaged,
            damaged / max(1, facts.calls),
            "all RPCs",
            evidence=(f"{plural(unconfirmed, 'packet')} may be missing",) if unconfirmed else (),
            harmless=True,
        )


@detector(
    "packets-fragmented",
    "IP fragments not reassembled",
    Severity.NOTE,
    "contents of frames",
    {"least_share": (0.0005, "share of all frames that are IP fragments")},
    (
        "rdmascope info FILE: frames that are not decoded",
        "the MTU of hosts and switches on the path: RoCEv2 forbids fragments, TCP avoids them by path MTU discovery",
        "whether NFS is mounted over UDP (proto=udp): messages larger than the MTU are always fragmented there",
    ),
)
def packets_fragmented(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """Hosts or routers fragmented IP packets. TCP segments are reassembled if all of their fragments were captured;
    fragmented RoCEv2 and RPC over UDP are not decoded: RPCs seem damaged or unanswered, and packets seem lost, though
    the capture has their fragments.
    """
    if facts.ip_fragments and facts.ip_fragments >= limits["least_share"] * facts.frames:
        text = f"{plural(facts.ip_fragments, 'IP fragment')} not reassembled, contents unknown"
        yield Cause(text, facts.ip_fragments, facts.ip_fragments / facts.frames, "all frames")


@detector(
    "one-direction",
    "Only one direction captured",
    Severity.NOTE,
    "how the two directions of each connection were matched",
    {"least_connections": (1, "connections with packets of one end only")},
    (
        "mirror both directions of the port; on a bonded or multipath link capture every member",
        "rdmascope info FILE: the interfaces of the capture",
    ),
)
def one_direction(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """The capture has the packets of only one end of a connection: calls without replies, or replies without calls, and
    no latency.
    """
    one_sided = [
        conversation.connection
        for conversation in facts.conversations
        if conversation.connection.one_sided and any(conversation.connection.bytes)
    ]
    if len(one_sided) < limits["least_connections"]:
        return
    yield Cause(
        f"{plural(len(one_sided), 'connection')} with packets of one end only",
        len(one_sided),
        len(one_sided) / len(facts.conversations),
        "all connections",
        evidence=tuple(facts.ends(connection.number) for connection in one_sided[:3]),
        connections=tuple(connection.number for connection in one_sided),
    )


@detector(
    "packets-duplicated",
    "Packets captured twice",
    Severity.NOTE,
    "transport health: copies",
    {"least_share": (0.01, "share of the packets that are copies"), "least_copies": (10, "copies")},
    (
        "capture at one point: a mirror of two ports copies a packet that passes both",
        "do not merge captures of two points: commands take both files, read one, and say how far clocks are apart",
    ),
)
def packets_duplicated(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """The same packet was captured twice, without a retransmission by its sender: there are two capture points, or the
    network makes copies. Copies are recognized and do not count as retransmissions, but they do count in frames, bytes
    and rates. In merged captures, latencies run between the first copies of packets, and may mix two clocks.
    """
    copies = {number: health.causes.get("duplicate", 0) for number, health in facts.healths.items()}
    total = sum(copies.values()) + facts.mirrored
    sent = facts.mirrored + sum(
        direction.packets or direction.segments + direction.acknowledgements
        for health in facts.healths.values()
        for direction in health.directions
    )
    if total < limits["least_copies"] or total < limits["least_share"] * sent:
        return
    worst = sorted((number for number in copies if copies[number]), key=lambda number: -copies[number])
    yield Cause(
        f"{plural(total, 'packet')} captured twice",
        total,
        total / sent if sent else None,
        "all packets",
        connections=tuple(worst),
    )


@detector(
    "timestamps-coarse",
    "Coarse timestamps",
    Severity.NOTE,
    "the resolutions of timestamps that the capture file declares",
    {"usual": (1_000, "ns: the resolution of most captures")},
    (
        "rdmascope info FILE: the interfaces of the capture",
        "a capture in nanoseconds: tcpdump --time-stamp-precision=nano, dumpcap writes them by itself",
    ),
)
def timestamps_coarse(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """Nothing shorter than the resolution of the timestamps can be measured. Between interfaces of different
    resolution, packets may seem to arrive too early or too late by up to the coarser one.
    """
    steps = sorted(facts.time_steps)
    if steps and (steps[-1] > limits["usual"] or len(steps) > 1):
        coarse, limit = bound(steps[-1]), "nothing shorter can be measured"
        if len(steps) > 1:
            limit = f"latencies between the two may be off by {coarse}"
            coarse += f" in some frames and {bound(steps[0])} in others"
        text = f"timestamps have a resolution of {coarse}; {limit}"
        yield Cause(text, len(steps), harmless=steps[-1] <= limits["usual"])


@detector(
    "capture-damaged",
    "Capture file damaged",
    Severity.NOTE,
    "the file's own structure",
    {},
    ("rdmascope info FILE; take or copy the capture again",),
)
def capture_damaged(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """Reading stopped at the damage. Everything reported is about the part before it."""
    if facts.damage:
        yield Cause(facts.damage, 1)
