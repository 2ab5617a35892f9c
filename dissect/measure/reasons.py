"""How often each reason was given."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

MAX_REASONS = 64
OTHER = "other"
ANY = "…"
"""Stands for numbers that differ from one occurrence to the next."""

_NUMBER = re.compile(rf"(0x[0-9a-fA-F]+|\d+(?:,\d{{3}})*|{ANY})")


class ReasonCounts:
    """Reasons that differ in their numbers only are counted as one; it keeps the numbers that all of them share."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._shown: dict[str, str] = {}

    def add(self, reasons: Iterable[str]) -> None:
        """Those of one RPC: each counts once."""
        for general, reason in {_general(reason): reason for reason in reasons}.items():
            key = general
            if general not in self._counts and len(self._counts) >= MAX_REASONS:
                key = reason = OTHER
            self._counts[key] = self._counts.get(key, 0) + 1
            known = self._shown.setdefault(key, reason)
            if known != reason:
                self._shown[key] = _common(known, reason)

    def items(self) -> list[tuple[str, int]]:
        """Reasons as they are shown, and how many RPCs have each."""
        return [(self._shown[key], number) for key, number in self._counts.items()]


@lru_cache(1024)
def _general(reason: str) -> str:
    return _NUMBER.sub(ANY, reason)


def _common(one: str, other: str) -> str:
    """Two reasons that differ in their numbers only, as one."""
    pairs = zip(_NUMBER.split(one), _NUMBER.split(other), strict=True)
    return "".join(first if first == second else ANY for first, second in pairs)
