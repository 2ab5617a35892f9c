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
    """Finds packets with a wrong ICRC before their payload counts as what was sent.

    A wrong ICRC counts only if the host's other packets have right ones: a switch that mirrors traffic may rewrite
    headers, and then all are wrong.
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
    """A batch of frames, and their packets."""

    batch: FrameBatch
    packets: PacketBatch
    """InfiniBand transport packets."""
    segments: Rows
    """SEGMENT rows of frames with TCP or UDP."""

    def __len__(self) -> int:
        """Number of frames."""
        return len(self.batch)

    def within(self, data: Bytes) -> DecodedFrames:
        """The same frames with other bytes: none to send it to a process that maps the file, there those mapped."""
        batch = replace(self.batch, data=data)
        return replace(self, batch=batch, packets=replace(self.packets, data=data, frames=batch))


class FrameDecoder:
    """Carries addresses, and what is needed to find duplicates and damage, from batch to batch."""

    def __init__(self, max_addresses: int = 0) -> None:
        """``max_addresses``: the limit of ``AddressTable``."""
        self.addresses = AddressTable(max_addresses)
        self.tcp_addresses = AddressTable(max_addresses)
        """Addresses of TCP only: their order tells the directions of its connections."""
        self._duplicates = Duplicates()
        self._fragments = TcpFragments()
        self._damage = DamageDetector()
        self.hosts_elsewhere: frozenset[Hosts] = frozenset()
        """Hosts whose packets are left out of frames of an ``OTHER_POINT``."""

    def take(self, batch: FrameBatch) -> DecodedFrames:
        """Decode a batch that is not empty."""
        located = locate(batch, self.addresses)
        if self.hosts_elsewhere:
            from .capture_points import without_other_point  # Loading it would only delay single files.

            located = without_other_point(batch, located, self.addresses, self.hosts_elsewhere)
        located = self._duplicates.drop(batch, located)
        batch, segments, located.skipped = self._fragments.segments(batch, located, self.tcp_addresses)
        packets = decode(batch, located)
        packets.icrc = self._damage.check(packets)
        return DecodedFrames(batch, packets, segments)
