"""What of a capture was not decoded, and why."""

from __future__ import annotations

from collections import Counter

from ..link.packets import skipped_words
from ..rpcrdma.analyzer import Analyzer
from .statistics import Statistics

REFUSED = "refused by an end"
IDLE = "with no packet of RDMA beyond connection management"
UNIDENTIFIED = "with too little traffic to identify"


def undecoded(analyzer: Analyzer, statistics: Statistics, error: str | None = None) -> list[tuple[str, str, int]]:
    """Rows of (what is counted, why it was not decoded, how many); ``error``: why reading ended early."""
    rows = [("frames", skipped_words(kind), number) for kind, number in analyzer.skipped.items()]
    rows += [("packets", f"{kind}, not Reliable Connection", number) for kind, number in analyzer.other_packets.items()]
    others: Counter[tuple[str, str]] = Counter()
    for conversation in analyzer.conversations:
        if conversation.protocol != "rpcrdma":
            name = conversation.protocol_name or "not recognised as RPC-over-RDMA"
            connection = conversation.connection
            unit, sent = (
                ("segments", connection.segments) if any(connection.segments) else ("packets", connection.packets)
            )
            if not sum(sent):
                others["connections", REFUSED if connection.refused else IDLE] += 1
                continue
            kind = f"of another protocol: {name}" if conversation.protocol == "other" else UNIDENTIFIED
            others[unit, f"connections {kind}"] += sum(sent)
    rows += [(unit, reason, number) for (unit, reason), number in others.items()]
    first: dict[str, int] = {}
    reasons: Counter[str] = Counter()
    for note in analyzer.undecoded:
        first.setdefault(note.reason, note.frame)
        reasons[note.reason] += 1
    rows += [("Sends", f"{reason} (the first in frame {first[reason]})", number) for reason, number in reasons.items()]
    rows += [
        ("operations", f"connection {connection}: memory that no captured call advertised", number)
        for connection, number in analyzer.unplaced.items()
    ]
    if analyzer.evicted.undecoded:
        rows.append(("Sends", "on evicted connections", analyzer.evicted.undecoded))
    if analyzer.evicted.unplaced:
        rows.append(("operations", "evicted connections: memory that no captured call advertised",
                     analyzer.evicted.unplaced))  # fmt: skip
    rows += [("RPCs", reason, number) for reason, number in statistics.damage.items()]
    if statistics.duplicate_replies:
        rows.append(("replies", "another reply to an RPC that has one", statistics.duplicate_replies))
    states = statistics.states
    rows += [("RPCs", state, states[state]) for state in ("no reply", "no call") if state in states]
    if error is not None:
        rows.append(("errors", error, 1))
    return sorted(rows, key=lambda row: (row[0], -row[2]))
