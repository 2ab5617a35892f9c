"""From frames to packets: everything that can be decoded before connections are known."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..arrays import Bytes, Rows
from ..frames import FrameBatch
from .addresses import AddressTable
from .damage import DamageDetector
from .duplicates import Duplicates
from .locate import locate
from .packets import PacketBatch, decode


@dataclass(frozen=True, slots=True)
class DecodedFrames:
    """A batch of frames, and what is in them."""

    batch: FrameBatch
    packets: PacketBatch
    """Of InfiniBand transport."""
    tcp: list[Rows]
    """WALK rows of frames with TCP inside, for ``tcp.locate_tcp``."""

    def __len__(self) -> int:
        """Frames."""
        return len(self.batch)

    def within(self, data: Bytes) -> DecodedFrames:
        """The same with other bytes: none for sending it to a process that maps the file, those of that mapping."""
        batch = replace(self.batch, data=data)
        return replace(self, batch=batch, packets=replace(self.packets, data=data, frames=batch))


class FrameDecoder:
    """Carries the addresses, and what is needed to find duplicates and damage, from batch to batch."""

    def __init__(self) -> None:
        self.addresses = AddressTable()
        self._duplicates = Duplicates()
        self._damage = DamageDetector()

    def take(self, batch: FrameBatch) -> DecodedFrames:
        """Decode a batch that is not empty."""
        located = self._duplicates.drop(batch, locate(batch, self.addresses))
        packets = decode(batch, located)
        return DecodedFrames(batch, replace(packets, icrc=self._damage.check(packets)), located.tcp)
