"""From frames to packets: everything that can be decoded before connections are known."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ..arrays import Bytes, Rows, places, unique
from ..frames import FrameBatch
from ..layers import opcodes
from ..layers.icrc import RIGHT, UNVERIFIED, WRONG, icrc_verdicts
from .addresses import AddressTable
from .duplicates import Duplicates
from .fragments import TcpFragments
from .locate import locate
from .packets import NOTHING_VERIFIED, IcrcCheck, PacketBatch, decode, is_management

if TYPE_CHECKING:
    from .capture_points import Hosts


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
            return NOTHING_VERIFIED
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


@dataclass(slots=True, eq=False)
class DecodedFrames:
    """A batch of frames, and what is in them."""

    batch: FrameBatch
    packets: PacketBatch
    """Of InfiniBand transport."""
    segments: Rows
    """SEGMENT rows of those with TCP inside."""

    def __len__(self) -> int:
        """How many frames there are."""
        return len(self.batch)

    def within(self, data: Bytes) -> DecodedFrames:
        """The same with other bytes: none for sending it to a process that maps the file, those of that mapping."""
        batch = replace(self.batch, data=data)
        return replace(self, batch=batch, packets=replace(self.packets, data=data, frames=batch))


class FrameDecoder:
    """Carries the addresses, and what is needed to find duplicates and damage, from batch to batch."""

    def __init__(self, max_addresses: int = 0) -> None:
        """``max_addresses``: as of ``AddressTable``."""
        self.addresses = AddressTable(max_addresses)
        self.tcp_addresses = AddressTable(max_addresses)
        """Of TCP alone: the order in which they are found tells the directions of its connections."""
        self._duplicates = Duplicates()
        self._fragments = TcpFragments()
        self._damage = DamageDetector()
        self.hosts_elsewhere: frozenset[Hosts] = frozenset()
        """Whose packets are left out of frames of an ``OTHER_POINT``."""

    def take(self, batch: FrameBatch) -> DecodedFrames:
        """Decode a batch that is not empty."""
        located = locate(batch, self.addresses)
        if self.hosts_elsewhere:
            from .capture_points import without_other_point  # Only here: a single file would wait for it.

            located = without_other_point(batch, located, self.addresses, self.hosts_elsewhere)
        located = self._duplicates.drop(batch, located)
        batch, segments, skipped = self._fragments.segments(batch, located, self.tcp_addresses)
        packets = decode(batch, replace(located, skipped=skipped))
        return DecodedFrames(batch, replace(packets, icrc=self._damage.check(packets)), segments)
