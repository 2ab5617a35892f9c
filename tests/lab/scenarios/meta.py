"""Many small files, created, read and removed over NFSv3 and 4.2."""

from __future__ import annotations

from collections.abc import Iterator

from ..evidence import Check, audited, client_counters, client_procedures, unanswered, wireshark
from ..guests import Outcome


def judge(outcome: Outcome) -> Iterator[Check]:
    yield from client_procedures(outcome, "3", 3)
    yield from client_counters(outcome)
    yield from unanswered(outcome)
    yield from wireshark(outcome)
    yield from audited(outcome, known=["PD-INVALIDATE-AGREED"])
