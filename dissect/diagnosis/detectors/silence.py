"""Hosts that stopped responding."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ...rpcrdma.conversation import ENDS
from ...units import duration, moment, plural
from ..facts import Cause, Facts, Limits, Severity, detector, label
from .connections import hung_text


@detector(
    "host-silent",
    "Host stopped responding",
    Severity.PROBLEM,
    "the last packet of each host, and what others sent it after that",
    {"least_hosts": (1, "hosts that acknowledged nothing in the last 2 s of the capture, though others sent to them")},
    (
        "whether that host is up: its console, its power, its kernel log at that moment",
        "whether the path to it is up: its port, the switch, a capture at its end",
        "rdmascope transport FILE: what was sent to it and never acknowledged",
    ),
    leads=True,
)
def host_silent(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """A host sent nothing more on any connection, not even an acknowledgement, though others sent to it until the
    capture ended. Either the host is down, or the path from it to the capture point: a capture cannot tell which.
    Retransmissions to it do not count as packet loss. Calls outstanding on these connections are part of this statement
    (no calls-hung beside it).
    """
    silent = facts.silences
    if len(silent) < limits["least_hosts"]:
        return
    for host in silent:
        lines: list[str] = []
        outstanding = [call for call in facts.rpcs.unanswered if call.connection in host.connections]
        for number in host.connections[:3]:
            peer = facts.healths[number].directions[1 - host.end]
            names = Counter(label(call.key) for call in outstanding if call.connection == number)
            calls = ", ".join(f"{count} {name}" for name, count in names.most_common(3)) or "no call outstanding"
            waits = duration(facts.last_time - (peer.waiting_since or host.since))
            lines.append(f"{facts.ends(number)}: {calls}; {ENDS[1 - host.end]}'s packets unacknowledged for {waits}")
        missing = sum(
            direction.missing for number in host.connections for direction in facts.healths[number].directions
        )
        hung = [call for call in facts.hung if call.connection in host.connections]
        where = "connection" if len(host.connections) == 1 else "connections"
        calls = hung_text(facts, hung, speaker=False) if hung else "no call outstanding"
        text = (
            f"{ENDS[host.end]} {host.address} stopped responding at {moment(host.since)[11:19]} UTC,"
            f" {duration(facts.last_time - host.since)} before the capture ended; {calls}, on {where}"
            f" {', '.join(map(str, host.connections[:5]))}{', …' if len(host.connections) > 5 else ''}"
        )
        yield Cause(
            text,
            len(outstanding),
            None,
            "",
            host.since,
            tuple(lines),
            host.connections,
            tuple(call.number for call in outstanding[:5]),
            tuple(call.frame for call in outstanding[:5] if call.frame),
            0.7 if missing else 0.95,
            (f"{plural(missing, 'packet')} of these connections not in the capture",) if missing else (),
            lost=sum(max(0, call.waiting) for call in outstanding),
            headline=hung_text(facts, hung) if hung else "",
        )
