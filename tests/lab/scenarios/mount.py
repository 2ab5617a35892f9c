"""One mount, one file read, one written."""

from __future__ import annotations

from collections.abc import Iterator

from ..evidence import Check, audited, checksums, client_counters, equal, unanswered, wireshark
from ..guests import Outcome

SMOKE = ("rxe", "siw")


def judge(outcome: Outcome) -> Iterator[Check]:
    yield equal("what the client read", outcome.facts["md5", "/r1m"], outcome.facts["read",])
    yield from checksums(outcome)
    yield from client_counters(outcome)
    yield from unanswered(outcome)
    yield from wireshark(outcome)
    yield from audited(outcome, known=["PD-INVALIDATE-AGREED"])
