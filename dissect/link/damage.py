"""Packets that arrived damaged: a receiver drops what fails its ICRC, and waits for the retransmission.

IBA volume 1, 7.8 and 9.7.
"""

from __future__ import annotations

import numpy as np

from ..arrays import places, unique
from ..layers import opcodes
from ..layers.icrc import RIGHT, UNVERIFIED, WRONG, icrc_verdicts
from .packets import IcrcCheck, PacketBatch, is_management


class DamageDetector:
    """Finds packets with a wrong ICRC before their payload is taken for what was sent.

    A wrong ICRC means something only where the host's other packets have right ones: a switch that mirrors
    traffic may rewrite headers, and then none fits.
    """

    def __init__(self) -> None:
        self.trusted: set[int] = set()
        """Address ids of hosts that sent a packet with a right ICRC."""

    def check(self, batch: PacketBatch) -> IcrcCheck:
        if batch.frames is None or not len(batch):
            return IcrcCheck()
        rows = batch.rows
        verdicts = icrc_verdicts(batch.frames, rows)
        wrong = places(verdicts == WRONG)
        verified = len(rows) - int(np.count_nonzero(verdicts == UNVERIFIED))
        self.trusted.update(unique(rows["source"][verdicts == RIGHT]).tolist())
        if not len(wrong):
            return IcrcCheck(verified, wrong, wrong)
        dropped = np.isin(rows["source"][wrong], list(self.trusted)) & (
            opcodes.IS_RC[rows["opcode"][wrong]] | is_management(rows[wrong])
        )
        return IcrcCheck(verified, wrong, wrong[dropped])
