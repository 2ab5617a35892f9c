"""Messages of a send queue that stand outside the order of its PSNs.

Those from before the first PSN known, those that come when they were taken as missing, and new ones whose PSNs their
sender had used before.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...arrays import Bytes, Int64s, Rows
from ...intervals import IntervalSet
from ...layers import opcodes
from ..connection import Connection, ReusedPsn
from .assembly import RequestAssembly
from .reads import RcReads
from .sent import Taken

MAX_REUSED = 1000
"""PSN errors that a connection lists."""

_STARTS = opcodes.IS_FIRST | opcodes.IS_ONLY
_ENDS = opcodes.IS_LAST | opcodes.IS_ONLY


class DetachedMessages:
    """Of one send queue."""

    __slots__ = ("_next", "_reusing", "assembly", "connection", "frames", "reused", "sender")

    def __init__(self, connection: Connection, sender: int, reads: RcReads) -> None:
        self.connection, self.sender = connection, sender
        self.assembly = RequestAssembly(connection, sender, reads)
        self.reused = IntervalSet()
        """Unwrapped PSNs that two messages have."""
        self.frames: set[int] = set()
        """The packets among the last batch that reuse a PSN."""
        self._next = 0
        self._reusing = False
        """The open message reuses PSNs."""

    def goes_on(self, psn: int, opcode: int) -> bool:
        """Whether a message is open that goes on with this packet."""
        return bool(self.assembly.partial) and psn == self._next and not _STARTS[opcode]

    def holds(self, psns: Int64s) -> Rows | None:
        """Which of these PSNs were reused; None for none at all."""
        if not self.reused.starts:
            return None
        return np.array([self.reused.covers(psn, psn + 1) for psn in psns.tolist()], np.bool_)

    def forget(self) -> None:
        """No packet will be retransmitted."""
        self.assembly.recent.clear()

    def deliver(self, data: Bytes, rows: Rows, psns: Int64s) -> None:
        """Requests that follow each other."""
        if not len(rows):
            return
        if not self.goes_on(psns[0], rows["opcode"][0]):
            self.assembly.close()
        self._reusing = False
        self.assembly.deliver(data, rows, psns)
        self._next = int(psns[-1]) + 1

    def deliver_reused(self, data: Bytes, rows: Rows, psns: Int64s, earlier: Mapping[int, Taken]) -> None:
        """New messages although earlier requests, by index in ``rows``, have their PSNs: their sender's error."""
        goes_on = self.goes_on(psns[0], rows["opcode"][0])
        if goes_on and not self._reusing:
            # The message from before the first PSN goes on beyond it.
            first = min(earlier, default=len(rows))
            self.deliver(data, rows[:first], psns[:first])
            if first == len(rows):
                return
            goes_on = False
            rows, psns, earlier = rows[first:], psns[first:], {at - first: one for at, one in earlier.items()}
        self.reused.add(int(psns[0]), int(psns[-1]) + 1)
        self.frames.update(rows["frame"].tolist())
        for index, (opcode, frame, psn) in enumerate(
            zip(rows["opcode"].tolist(), rows["frame"].tolist(), rows["psn"].tolist(), strict=True)
        ):
            one = earlier.get(index)
            if one is not None and (_STARTS[opcode] or not goes_on):
                if self.assembly.reused is None:
                    self.assembly.reused = {}
                self.assembly.reused[psn] = one.frame
                if len(self.connection.reused_psns) < MAX_REUSED:
                    verbs = opcodes.verb(opcode), opcodes.verb(one.opcode)
                    reused = ReusedPsn(frame, self.sender, psn, verbs[0], one.frame, verbs[1])
                    self.connection.reused_psns = *self.connection.reused_psns, reused
            goes_on = not _ENDS[opcode]
        self.deliver(data, rows, psns)
        self._reusing = True
