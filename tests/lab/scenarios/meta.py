"""Many small files, created, read and removed over NFSv3 and 4.2."""

from __future__ import annotations

from collections.abc import Iterator

from ..evidence import Check, always, client_procedures
from ..guests import Outcome


def judge(outcome: Outcome) -> Iterator[Check]:
    yield from client_procedures(outcome, "3", 3)
    yield from always(outcome)
