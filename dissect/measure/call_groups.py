"""RPCs in groups: how many, what they transferred, how long they took, and their share of all waiting."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..arrays import Int64s
from ..percentiles import NO_SAMPLES, Distribution, Samples, added
from .call_columns import CallColumns
from .statistics import PARTS

MAX_GROUPS = 4096
"""Groups that are told apart; what comes later is counted together."""
MAX_EXACT = 1 << 22
"""Latencies that are kept as they are, over all groups; with more, percentiles are good to 2 %."""

OTHERS: tuple[Hashable, ...] = ("others",)
"""The key of the RPCs of groups that are too many."""


@dataclass(slots=True)
class CallGroup:
    """RPCs that have something in common."""

    key: tuple[Hashable, ...]
    """What they have in common; None is not known."""
    calls: int = 0
    errors: int = 0
    """Replies that report an error."""
    incomplete: int = 0
    """RPCs without reply, without call, or damaged."""
    call_bytes: int = 0
    reply_bytes: int = 0
    parts: list[int] = field(default_factory=lambda: [0] * len(PARTS))
    """Nanoseconds, the sum of each of ``PARTS``."""
    samples: Samples = field(default_factory=lambda: Samples(MAX_EXACT))
    outstanding: Samples = NO_SAMPLES
    """Of calls without a reply, how long they are outstanding."""

    @property
    def waited(self) -> int:
        """Nanoseconds, the sum of all latencies, and of the lower bounds of those that are not known."""
        return self.samples.total + self.outstanding.total

    def latency(self) -> Distribution | None:
        """None where no RPC had both halves, nor a lower bound."""
        return self.samples.with_bounds(self.outstanding)


class CallGroups:
    """Feed it RPCs with their keys, batch after batch."""

    def __init__(self) -> None:
        self.exact = True
        """Percentiles are those of the samples, not of bins."""
        self._groups: dict[tuple[Hashable, ...], CallGroup] = {}
        self._kept = 0

    def add(self, calls: CallColumns, keys: Sequence[Sequence[Hashable]]) -> None:
        """``keys``: for each thing that RPCs are grouped by a sequence as long as there are RPCs."""
        if not len(calls.numbers):
            return
        codes: dict[tuple[Hashable, ...], int] = {}
        inverse = np.array([codes.setdefault(key, len(codes)) for key in zip(*keys, strict=True)], np.int64)
        order = inverse.argsort(kind="stable")
        edges = inverse[order].searchsorted(np.arange(len(codes) + 1)).tolist()
        for key, first, behind in zip(codes, edges[:-1], edges[1:], strict=True):
            self._add(self._group(key), calls, order[first:behind])
        if self._kept > MAX_EXACT:
            self.exact, self._kept = False, 0
            for group in self._groups.values():
                group.samples.fold()

    def _group(self, key: tuple[Hashable, ...]) -> CallGroup:
        if key not in self._groups and len(self._groups) >= MAX_GROUPS:
            key = OTHERS
        return self._groups.setdefault(key, CallGroup(key))

    def _add(self, group: CallGroup, calls: CallColumns, rows: Int64s) -> None:
        group.calls += len(rows)
        group.errors += int(np.count_nonzero(calls.failed[rows]))
        group.incomplete += int(np.count_nonzero(calls.incomplete[rows]))
        group.call_bytes += int(calls.call_bytes[rows].sum())
        group.reply_bytes += int(calls.reply_bytes[rows].sum())
        latencies = calls.latencies[rows]
        known = latencies >= 0
        group.samples.add(latencies[known])
        self._kept += int(np.count_nonzero(known))
        group.outstanding = added(group.outstanding, calls.waiting[rows[calls.outstanding[rows]]])
        for index, part in enumerate(calls.parts[rows[known]].sum(axis=0).tolist()):
            group.parts[index] += part

    def groups(self) -> list[CallGroup]:
        """All but those that were too many, in the order in which they came."""
        return [group for key, group in self._groups.items() if key is not OTHERS]

    @property
    def others(self) -> CallGroup | None:
        """The RPCs of groups that were too many."""
        return self._groups.get(OTHERS)

    @property
    def waited(self) -> int:
        """Nanoseconds, of all."""
        return sum(group.waited for group in self._groups.values())

    @property
    def calls(self) -> int:
        return sum(group.calls for group in self._groups.values())
