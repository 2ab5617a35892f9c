"""What the capture lacks, so that other statements are less sure."""

from __future__ import annotations

from collections.abc import Iterator

from ...units import percent, plural
from ..detector import Limits, detector
from ..facts import Facts
from ..statement import Cause, Severity


@detector(
    "packets-missing",
    "Packets are missing from the capture",
    Severity.NOTE,
    "sequence numbers of every connection",
    {"least_share": (0.0005, "share of all packets that were sent but are not in the capture")},
    (
        "rdmascope info FILE: frames that the interface or the operating system dropped",
        "a larger capture buffer (tcpdump -B, dumpcap -B), a snap length, or a capture on the switch",
    ),
)
def packets_missing(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """Sequence numbers show that packets were sent which the capture does not have, although the other end received
    them: the capture lost them, not the network. RPCs in them look damaged, unanswered or without a call.
    """
    missing = {
        number: sum(one.missing - one.unconfirmed for one in health.directions)
        for number, health in facts.healths.items()
    }
    total = sum(missing.values())
    sent = total + sum(one.packets or one.segments for health in facts.healths.values() for one in health.directions)
    if not total or total / sent < limits["least_share"]:
        return
    worst = sorted((number for number in missing if missing[number]), key=lambda number: -missing[number])
    yield Cause(
        f"{plural(total, 'packet')} ({percent(total / sent)}) {'is' if total == 1 else 'are'} not in the capture",
        total,
        total / sent,
        "all packets",
        evidence=tuple(f"{facts.ends(number)}: {plural(missing[number], 'packet')}" for number in worst[:3]),
        connections=tuple(worst),
    )


@detector(
    "frames-truncated",
    "Frames are truncated so short that messages cannot be read",
    Severity.NOTE,
    "captured and original lengths; RPCs whose bytes are not all there",
    {
        "least_share": (0.01, "share of the RPCs that are damaged, or whose packets' headers are truncated"),
    },
    ("a longer snap length: 256 bytes hold all headers and most metadata calls, 0 all",),
)
def frames_truncated(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """The capture kept only the beginning of each frame, and that was not enough: headers or RPC messages are missing,
    so that calls cannot be named or their replies not be matched. Truncated payload alone does no harm.
    """
    states = facts.statistics.states
    unread_of = {
        one.connection.number: sum(one.connection.unread_packets) + sum(one.connection.unread_messages)
        for one in facts.conversations
    }
    unread = sum(unread_of.values())
    harmed = unread + states.get("damaged", 0)
    if not facts.truncated_frames or not harmed or harmed < limits["least_share"] * max(1, facts.calls):
        return
    yield Cause(
        f"{plural(facts.truncated_frames, 'frame')} truncated; {plural(harmed, 'message')} cannot be read",
        harmed,
        facts.truncated_frames / facts.frames if facts.frames else None,
        "all frames",
        connections=tuple(sorted(filter(unread_of.get, unread_of), key=lambda number: -unread_of[number])),
    )


@detector(
    "one-direction",
    "Only one direction was captured",
    Severity.NOTE,
    "how the two directions of each connection were found",
    {"least_connections": (1, "connections with packets of one end only")},
    (
        "mirror both directions of the port; on a bonded or multipath way capture every link",
        "rdmascope info FILE: the interfaces of the capture",
    ),
)
def one_direction(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """Of a connection only the packets of one end are in the capture. Calls have no replies, or replies no calls, and
    no latency is known.
    """
    found = [
        one.connection
        for one in facts.conversations
        if one.connection.paired_by == "one direction only" and any(one.connection.bytes)
    ]
    if len(found) < limits["least_connections"]:
        return
    yield Cause(
        f"{plural(len(found), 'connection')} with packets of one end only",
        len(found),
        len(found) / len(facts.conversations),
        "all connections",
        evidence=tuple(facts.ends(one.number) for one in found[:3]),
        connections=tuple(one.number for one in found),
    )


@detector(
    "packets-duplicated",
    "Packets are in the capture twice",
    Severity.NOTE,
    "transport health: copies",
    {"least_share": (0.01, "share of the packets that are copies"), "least_copies": (10, "copies")},
    ("capture at one place: a mirror of two ports that a packet passes gives it twice",),
)
def packets_duplicated(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """One packet was captured twice, and its sender went on without a retransmission: two capture points, or a network
    that makes copies. Copies are recognised and do not count, but bytes and rates of the frames do not mean what they
    seem.
    """
    copies = {number: health.causes.get("duplicate", 0) for number, health in facts.healths.items()}
    total = sum(copies.values())
    sent = sum(one.packets or one.segments for health in facts.healths.values() for one in health.directions)
    if total < limits["least_copies"] or total < limits["least_share"] * sent:
        return
    worst = sorted((number for number in copies if copies[number]), key=lambda number: -copies[number])
    yield Cause(
        f"{plural(total, 'packet')} captured twice",
        total,
        min(1.0, total / sent) if sent else None,
        "all packets",
        connections=tuple(worst),
    )


@detector(
    "capture-damaged",
    "The capture file is damaged",
    Severity.NOTE,
    "the file's own structure",
    {},
    ("rdmascope info FILE; write the capture again, or read on with what is left",),
)
def capture_damaged(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """Reading ended before the file did. All that is said is about the part before that."""
    if facts.damage:
        yield Cause(facts.damage, 1)
