"""Reads and writes over NFSv3, 4.0, 4.1 and 4.2."""

from __future__ import annotations

from collections.abc import Iterator

from ..evidence import Check, always, checksums, equal
from ..guests import Outcome

KERNELS: list[dict[str, str]] = [{}, {"client": "6.12"}, {"server": "6.12"}]
DEADLINE = 400  # over siw each mount may lose a minute to a first call that is never answered


def judge(outcome: Outcome) -> Iterator[Check]:
    read = outcome.those("read")
    yield equal("versions that read r1m", ["3", "4.0", "4.1", "4.2"], sorted(read))
    yield equal("what they read", outcome.facts["md5", "/r1m"], *set(read.values()))
    yield from checksums(outcome)
    yield from always(outcome)
