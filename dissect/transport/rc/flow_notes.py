"""What is known of single packets that are outside the order of a connection: CNPs and wrong invariant CRCs.

Both are known by flow (source, destination, destination queue pair), which may be paired only later.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...arrays import Rows, unique
from ...layers import opcodes
from ...link.packets import PacketBatch
from .flow_keys import flow_keys
from .flow_table import Binding

NOTICE, DAMAGED, WRONG = "CNP", "damaged", "wrong ICRC"
MAX_FLOWS = 4096
MAX_PACKETS = 4096
"""Per flow, while their connection is not known."""

Bound = Mapping[int, Binding]
"""By flow key."""


class FlowNotes:
    """Hands packets to the health of the connection they belong to, as soon as that is known."""

    def __init__(self, every_wrong: bool) -> None:
        self.every_wrong = every_wrong
        """Count wrong invariant CRCs also where none of the host's packets has a right one."""
        self.verified = 0
        """Packets whose ICRC was verified."""
        self._waiting: dict[int, list[tuple[Rows, str]]] = {}
        self.unknown = 0
        """Packets that were not kept."""

    def look(self, batch: PacketBatch, bound: Bound) -> None:
        """Find them in a batch."""
        rows, icrc = batch.rows, batch.icrc
        self.verified += icrc.verified
        self._take(rows[rows["opcode"] == opcodes.CNP], bound, NOTICE)
        self._take(rows[icrc.damaged[opcodes.IS_RC[rows["opcode"][icrc.damaged]]]], bound, DAMAGED)
        if self.every_wrong and len(icrc.wrong) != len(icrc.damaged):
            self._take(rows[np.setdiff1d(icrc.wrong, icrc.damaged)], bound, WRONG)

    def _take(self, rows: Rows, bound: Bound, what: str) -> None:
        if not len(rows):
            return
        keys = flow_keys(rows["source"], rows["destination"], rows["dest_qp"])
        for key in unique(keys).tolist():
            part = rows[keys == key]
            owner = bound.get(key)
            if owner is not None:
                _count(owner, part, what)
                continue
            waiting = self._waiting.setdefault(key, []) if len(self._waiting) < MAX_FLOWS else []
            if sum(len(one) for one, _ in waiting) < MAX_PACKETS:
                waiting.append((part, what))
            else:
                self.unknown += len(part)

    def settle(self, bound: Bound) -> None:
        """Hand over what belongs to connections that are known by now."""
        for key in [key for key in self._waiting if key in bound]:
            for rows, what in self._waiting.pop(key):
                _count(bound[key], rows, what)


def _count(binding: Binding, rows: Rows, what: str) -> None:
    health = binding.link.health
    if what == NOTICE:
        health.notified(binding.sender, rows["time"].copy())
    else:
        health.corrupt(binding.sender, rows, dropped=what == DAMAGED)
