"""The requests a send queue sent last: whether a packet whose PSN was seen before is the same packet."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...arrays import Bytes, Int64s, Rows, places, some, take
from ...layers import opcodes
from ...link.packets import PACKET
from .reads import READ_REQUEST

KEPT = 256
"""Packets of earlier batches, with their first bytes."""
MAX_PARTS = 16
SEARCHED = 2048
"""Packets of the same batch, before the one that is compared."""
LEADING = 32
"""Bytes of a Send by which two messages differ that are not the same: the header of an upper layer."""

_WHOLE = np.dtype((np.void, PACKET.itemsize))
"""A row as one piece: field by field, copies take many times as long."""
_LEADING = np.arange(LEADING)
_PLACES = np.arange(KEPT)
_STARTS = opcodes.IS_FIRST | opcodes.IS_ONLY
_BEGINS_SEND = opcodes.IS_SEND & _STARTS


class Taken(NamedTuple):
    """The earlier request that has the PSN of a new one."""

    frame: int
    opcode: int


class _Packets(NamedTuple):
    """Requests in capture order, Read requests with all PSNs [psn, end) that their responses take."""

    rows: Rows
    data: Bytes
    psns: Int64s
    ends: Int64s

    def part(self, start: int, end: int) -> _Packets:
        return _Packets(self.rows[start:end], self.data, self.psns[start:end], self.ends[start:end])


class SentRequests:
    """Of one send queue.  Call ``begin`` with each batch, and ``settle`` behind it: it keeps copies of the last."""

    def __init__(self) -> None:
        self._kept: list[_Packets] = []
        """Ends of batches, oldest first."""
        self._batch: _Packets | None = None

    def forget(self) -> None:
        """No PSN will be seen again."""
        self._kept.clear()
        self._batch = None

    def begin(self, data: Bytes, rows: Rows, psns: Int64s, ends: Int64s) -> None:
        """Take the requests of a batch, in capture order; PSNs [psn, end) are unwrapped."""
        self._batch = _Packets(rows, data, psns, ends)

    def settle(self) -> None:
        """Copy what is kept of the batch."""
        if self._batch is None:
            return
        count = len(self._batch.rows)
        last = _detached(self._batch.part(max(0, count - KEPT), count))
        self._batch = None
        if count >= KEPT:
            self._kept.clear()
        self._kept.append(last)
        if len(self._kept) > MAX_PARTS:
            self._join()

    def _join(self) -> None:
        """Make one of all parts."""
        data, psns, ends = (np.concatenate(columns) for columns in zip(*(part[1:] for part in self._kept), strict=True))
        rows = np.concatenate([part.rows.view(_WHOLE) for part in self._kept]).view(PACKET)
        rows["payload"] = np.arange(len(rows)) * LEADING
        surplus = max(0, len(rows) - KEPT)
        self._kept = [_detached(_Packets(rows, data, psns, ends).part(surplus, len(rows)))]

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
        if len(self._kept) > 1:
            self._join()
        found = list(self._kept)
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
    """Copies, with the first bytes of each payload alone; of one that starts no Send with any bytes."""
    rows = take(packets.rows, _PLACES[: len(packets.rows)])
    # Any are as good where none are compared, and pages of the capture that are read for them count as memory.
    offsets = np.where(_BEGINS_SEND[rows["opcode"]], rows["payload"], 0).repeat(LEADING).reshape(-1, LEADING) + _LEADING
    data = packets.data.take(offsets.reshape(-1), mode="clip")
    rows["payload"] = _PLACES[: len(rows)] * LEADING
    return _Packets(rows, data, packets.psns.copy(), packets.ends.copy())
