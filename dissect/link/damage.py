"""Packets that arrived damaged: a receiver drops what fails its ICRC, and waits for the retransmission.

IBA volume 1, 7.8 and 9.7.
"""

from __future__ import annotations

import numpy as np

from ..arrays import Bytes, Int64s, Rows, places, take
from ..layers import opcodes
from ..layers.icrc import LRH_BYTES, icrc_ok, verify, verify_local
from ..layers.transports import NATIVE
from ..serial import PSN
from .packets import PacketBatch

SAMPLE = 64
"""Packets of a host among which one with a right ICRC is looked for."""

Runs = list[tuple[int, Bytes, Rows]]


class DamageDetector:
    """Finds Sends with a wrong ICRC before they are taken for messages.

    A wrong ICRC means something only where the host's other packets have right ones: a switch that mirrors
    traffic may rewrite headers, and then none fits.
    """

    def __init__(self) -> None:
        self.trusted: set[int] = set()
        """Address ids of hosts that sent a packet with a right ICRC."""

    def find(self, batch: PacketBatch) -> Int64s:
        """Indices of the damaged Sends, ascending."""
        none = np.zeros(0, np.int64)
        if batch.frames is None:
            return none
        rows = batch.rows
        self._trust(batch)
        opcode = rows["opcode"]
        sends = places(opcodes.IS_RC[opcode] & opcodes.IS_SEND[opcode])
        if not len(sends):
            return none
        verdicts = icrc_ok(batch.frames, take(rows, sends))
        if False not in verdicts:
            return none
        wrong = sends[np.array([verdict is False for verdict in verdicts])]
        trusted: Int64s = wrong[np.isin(rows["source"][wrong], list(self.trusted))]
        return trusted

    def _trust(self, batch: PacketBatch) -> None:
        """Look for a right ICRC among the first packets of hosts that are not trusted yet."""
        assert batch.frames is not None
        source = batch.rows["source"]
        for host in set(source[~np.isin(source, list(self.trusted))].tolist()):
            if True in icrc_ok(batch.frames, take(batch.rows, places(source == host)[:SAMPLE])):
                self.trusted.add(host)


def replace_damaged(runs: Runs, data: Bytes, row: Rows) -> bool:
    """``row`` (one PACKET row in an array) repeats a packet of ``runs``: take it where that one's ICRC is wrong."""
    psn = int(row["psn"][0])
    for number, (at, where, rows) in enumerate(runs):
        index = PSN.distance(int(rows["psn"][0]), psn)
        if index >= len(rows):
            continue
        if int(rows["psn"][index]) != psn or _right(where, rows[index]) is not False or _right(data, row[0]) is False:
            return False
        if where is data:
            rows[index] = row[0]
            return True
        before = at + int(rows["length"][:index].sum())
        behind = before + int(row["length"][0])
        parts = [(at, where, rows[:index]), (before, data, row), (behind, where, rows[index + 1 :])]
        runs[number : number + 1] = [part for part in parts if len(part[2])]
        return True
    return False


def _right(data: Bytes, row: Rows) -> bool | None:
    """Whether the ICRC of one packet fits; None where that cannot be verified."""
    bth = int(row["bth"])
    end = bth + opcodes.BTH_BYTES + int(opcodes.EXTENDED_BYTES[int(row["opcode"])])
    end += int(row["length"]) + int(row["pad"]) + opcodes.ICRC_BYTES
    if row["captured"] < row["length"] or end > len(data):
        return None
    for before in (28, 48, 40):
        if bth >= before and int(data[bth - before]) >> 4 == (4 if before == 28 else 6):
            verdict = verify(data[bth - before : end].data)
            if verdict is not None:
                return verdict
    if row["transport"] == NATIVE and bth >= LRH_BYTES:
        return verify_local(data[bth - LRH_BYTES : end].data)
    return None
