"""What was lost and retransmitted, as tshark's fields and the receivers' counters tell it."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import NamedTuple

from .evidence import command
from .guests import Outcome

ADDRESSES = {"server": "10.77.0.1", "client": "10.77.0.2"}
FIELDS = (
    "ip.src", "infiniband.bth.opcode", "infiniband.bth.destqp", "infiniband.bth.psn", "infiniband.reth.dmalen",
    "infiniband.aeth.syndrome.opcode", "infiniband.aeth.syndrome.error_code",
)  # fmt: skip
READ_REQUEST = 12
READ_RESPONSES = range(13, 17)
ACKNOWLEDGE = 17
NAK, SEQUENCE_ERROR = 3, 0
PATH_MTU = 4096


class Received(NamedTuple):
    """What one side received, counted packet by packet (IBA 9.7.1)."""

    packets: int
    """All of them, CM included."""
    retransmitted: int
    """Requests and Read responses whose sequence number was on the wire before."""
    duplicates: int
    """Requests behind the expected sequence number."""
    naks: int
    """For a gap."""


def received(outcome: Outcome, role: str) -> Received:
    words = [word for field in FIELDS for word in ("-e", field)]
    sender = ADDRESSES["client" if role == "server" else "server"]
    rows = command("tshark", "-n", "-r", outcome.capture, "-Y", "infiniband", "-T", "fields", *words).splitlines()
    counts: Counter[str] = Counter()
    seen: defaultdict[int, set[tuple[bool, int]]] = defaultdict(set)
    expected: dict[int, int] = {}
    for row in rows:
        source, *values = row.split("\t")
        opcode, qpn, psn, length, kind, code = (int(value or "0", 0) for value in values)
        if source != sender:
            continue
        counts["packets"] += 1
        if qpn == 1:
            continue
        if opcode == ACKNOWLEDGE:
            counts["naks"] += kind == NAK and code == SEQUENCE_ERROR
            continue
        response = opcode in READ_RESPONSES
        counts["retransmitted"] += (response, psn) in seen[qpn]
        # A Read uses a number for each packet of its response, and may be asked for again from its middle on.
        used = max(1, -(-length // PATH_MTU)) if opcode == READ_REQUEST else 1
        seen[qpn].update((response, (psn + number) % (1 << 24)) for number in range(used))
        if not response:
            ahead = (psn - expected.setdefault(qpn, psn)) % (1 << 24)
            if ahead == 0:
                expected[qpn] = (psn + used) % (1 << 24)
            counts["duplicates"] += ahead >= 1 << 23
    return Received(counts["packets"], counts["retransmitted"], counts["duplicates"], counts["naks"])
