"""The requests a send queue sent last: whether a packet whose PSN was seen before is the same packet."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...arrays import Bytes, Int64s, Rows, places, some, take
from ...layers import opcodes
from .reads import READ_REQUEST

KEPT = 256
"""Packets of earlier batches, with their first bytes."""
SEARCHED = 2048
"""Packets of the same batch, before the one that is compared."""
LEADING = 32
"""Bytes of a Send by which two messages differ that are not the same: the header of an upper layer."""

_STARTS = opcodes.IS_FIRST | opcodes.IS_ONLY


class Taken(NamedTuple):
    """The earlier request that has the PSN of a new one."""

    frame: int
    opcode: int


class _Packets(NamedTuple):
    """Requests in capture order, Read requests with all PSNs [psn, end) that their responses take."""

    data: Bytes
    rows: Rows
    psns: Int64s
    ends: Int64s

    def part(self, start: int, end: int) -> _Packets:
        return _Packets(self.data, self.rows[start:end], self.psns[start:end], self.ends[start:end])


class SentRequests:
    """Of one send queue.  Call ``begin`` with each batch, and ``settle`` behind it: it keeps copies of the last."""

    def __init__(self) -> None:
        self._kept: _Packets | None = None
        self._batch: _Packets | None = None

    def forget(self) -> None:
        """No PSN will be seen again."""
        self._kept = self._batch = None

    def begin(self, data: Bytes, rows: Rows, psns: Int64s, ends: Int64s) -> None:
        """Take the requests of a batch, in capture order; PSNs [psn, end) are unwrapped."""
        self._batch = _Packets(data, rows, psns, ends)

    def settle(self) -> None:
        """Copy what is kept of the batch."""
        if self._batch is None:
            return
        last = _detached(self._batch.part(max(0, len(self._batch.rows) - KEPT), len(self._batch.rows)))
        self._batch = None
        if self._kept is not None and len(last.rows) < KEPT:
            before = self._kept.part(max(0, len(self._kept.rows) + len(last.rows) - KEPT), len(self._kept.rows))
            rows = np.concatenate((before.rows, last.rows))
            rows["payload"] = np.arange(len(rows)) * LEADING
            start = int(before.rows["payload"][0]) if len(before.rows) else 0
            data = np.concatenate((before.data[start:], last.data))
            last = _Packets(
                data, rows, np.concatenate((before.psns, last.psns)), np.concatenate((before.ends, last.ends))
            )
        self._kept = last

    def taken(self, data: Bytes, rows: Rows, psns: Int64s) -> dict[int, Taken]:
        """Which of ``rows`` are no retransmissions, by index: an earlier request with their PSN is another packet.

        ``rows`` are of the batch that began last, or copies of it, in ascending order of frames.  A packet is another
        one where its opcode, its RETH, its immediate word or, if it starts a Send, its length or its first bytes
        differ, as far as the capture has them.  A packet whose earlier transmission is not known is not among them.
        """
        found: dict[int, Taken] = {}
        retransmitted = np.zeros(len(rows), np.bool_)
        for earlier in self._earlier(int(rows["frame"][0])):
            order = earlier.psns.argsort(kind="stable")
            at = order[np.maximum(earlier.psns[order].searchsorted(psns, side="right") - 1, 0)]
            exact = earlier.psns[at] == psns
            alike = exact.copy()
            alike[exact] = _alike(take(rows, exact), take(earlier.rows, at[exact]))
            sends = places(alike & opcodes.IS_SEND[rows["opcode"]] & _STARTS[rows["opcode"]])
            for index in sends.tolist():
                alike[index] = _begins_alike(data, rows[index], earlier.data, earlier.rows[at[index]])
            retransmitted |= alike
            if some(earlier.rows["opcode"] == READ_REQUEST):
                exact[:] = True
            for index in places(exact & ~alike).tolist():
                taken = _another(data, rows[index], int(psns[index]), earlier)
                if taken is None:
                    retransmitted[index] = True
                elif taken.frame:
                    found[index] = taken
        return {index: taken for index, taken in found.items() if not retransmitted[index]}

    def _earlier(self, frame: int) -> list[_Packets]:
        """Those before ``frame``, oldest first."""
        found = [self._kept] if self._kept is not None and len(self._kept.rows) else []
        if self._batch is not None:
            end = int(self._batch.rows["frame"].searchsorted(frame))
            if end:
                found.append(self._batch.part(max(0, end - SEARCHED), end))
        return found


def _alike(rows: Rows, earlier: Rows) -> Rows:
    """Which of ``rows`` have the opcode and the extended headers of the row of ``earlier`` with the same PSN."""
    alike: Rows = rows["opcode"] == earlier["opcode"]
    known = (rows["headers"] == 1) & (earlier["headers"] == 1)
    differ = (rows["r_key"] != earlier["r_key"]) | (rows["va"] != earlier["va"])
    differ |= (rows["dma_length"] != earlier["dma_length"]) | (rows["immediate"] != earlier["immediate"])
    alike &= ~(known & differ)
    return alike


def _begins_alike(data: Bytes, row: Rows, earlier_data: Bytes, earlier: Rows) -> bool:
    """Whether two first packets of Sends have the same length, and the same first bytes as far as captured."""
    if row["length"] != earlier["length"]:
        return False
    size = min(int(row["captured"]), int(earlier["captured"]), LEADING)
    here, there = int(row["payload"]), int(earlier["payload"])
    return data[here : here + size].tobytes() == earlier_data[there : there + size].tobytes()


def _another(data: Bytes, row: Rows, psn: int, earlier: _Packets) -> Taken | None:
    """The last packet that took this PSN; None where the row is a retransmission of any, ``frame`` 0 for no packet."""
    opcode = int(row["opcode"])
    last = Taken(0, 0)
    for index in places((earlier.psns <= psn) & (earlier.ends > psn)).tolist():
        one = earlier.rows[index]
        if opcode == READ_REQUEST and int(one["opcode"]) == READ_REQUEST and earlier.psns[index] != psn:
            alike = not (row["headers"] and one["headers"]) or one["r_key"] == row["r_key"]  # It resumes.
        else:
            alike = earlier.psns[index] == psn and bool(_alike(row, one))
            if alike and opcodes.IS_SEND[opcode] and _STARTS[opcode]:
                alike = _begins_alike(data, row, earlier.data, one)
        if alike:
            return None
        last = Taken(int(one["frame"]), int(one["opcode"]))
    return last


def _detached(packets: _Packets) -> _Packets:
    """Copies, with the first bytes of each payload alone."""
    rows = packets.rows.copy()
    offsets = packets.rows["payload"][:, None] + np.arange(LEADING)
    data = packets.data[np.minimum(offsets, len(packets.data) - 1)].reshape(-1) if len(rows) else packets.data[:0]
    rows["payload"] = np.arange(len(rows)) * LEADING
    return _Packets(data, rows, packets.psns.copy(), packets.ends.copy())
