"""One mount, one file read, one written."""

from __future__ import annotations

from collections.abc import Iterator

from ..evidence import Check, always, checksums, equal
from ..guests import Outcome

SMOKE = ("rxe", "siw")


def judge(outcome: Outcome) -> Iterator[Check]:
    yield equal("what the client read", outcome.facts["md5", "/r1m"], outcome.facts["read",])
    yield from checksums(outcome)
    yield from always(outcome)
