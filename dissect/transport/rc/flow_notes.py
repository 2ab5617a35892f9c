"""What is known of single packets that are outside the order of a connection: CNPs and wrong invariant CRCs.

Both are told by flow (source, destination, destination queue pair), which may be paired only later.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...arrays import Int64s, Rows
from ...layers import opcodes
from ...layers.icrc import icrc_ok
from ...link.packets import PacketBatch
from .bindings import Binding
from .flow_keys import flow_keys
from .health import RcHealth

MAX_FLOWS = 4096
MAX_PACKETS = 4096
"""Per flow, while their connection is not known."""

Bound = Mapping[int, Binding]
"""By flow key."""


class FlowNotes:
    """Hands packets to the health of the connection they belong to, as soon as that is known."""

    def __init__(self, verify: bool) -> None:
        self.verify = verify
        """Check the invariant CRC of every packet."""
        self.verified = 0
        self._waiting: dict[int, list[tuple[Rows, bool]]] = {}
        self.unknown = 0
        """Packets that were not kept."""

    def look(self, batch: PacketBatch, reliable: Int64s, kept: Int64s, bound: Bound) -> None:
        """Find them in a batch: ``reliable`` are its Reliable Connection packets, ``kept`` those not seen damaged."""
        rows = batch.rows
        if len(reliable) != len(rows):
            self._take(rows[rows["opcode"] == opcodes.CNP], bound, corrupt=False)
        if self.verify and batch.frames is not None:
            verdicts = icrc_ok(batch.frames, rows)
            self.verified += len(verdicts) - verdicts.count(None)
            if False in verdicts:
                wrong = np.array([verdict is False for verdict in verdicts])
                self._take(rows[wrong], bound, corrupt=True)
        elif len(kept) != len(reliable):
            self._take(rows[np.setdiff1d(reliable, kept)], bound, corrupt=True)

    def _take(self, rows: Rows, bound: Bound, corrupt: bool) -> None:
        if not len(rows):
            return
        keys = flow_keys(rows["source"], rows["destination"], rows["dest_qp"])
        for key in np.unique(keys).tolist():
            part = rows[keys == key]
            owner = bound.get(key)
            if owner is not None:
                _count(owner[0].health, owner[1], part, corrupt)
                continue
            waiting = self._waiting.setdefault(key, []) if len(self._waiting) < MAX_FLOWS else []
            if sum(len(one) for one, _ in waiting) < MAX_PACKETS:
                waiting.append((part, corrupt))
            else:
                self.unknown += len(part)

    def settle(self, bound: Bound) -> None:
        """Hand over what can be told now."""
        for key in [key for key in self._waiting if key in bound]:
            link, sender = bound[key]
            for rows, corrupt in self._waiting.pop(key):
                _count(link.health, sender, rows, corrupt)


def _count(health: RcHealth, sender: int, rows: Rows, corrupt: bool) -> None:
    if corrupt:
        health.corrupt(sender, rows)
    else:
        health.notified(sender, rows["time"].copy())
