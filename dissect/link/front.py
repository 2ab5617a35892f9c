"""The first part of the line, from frames to packets, for which no connection has to be known."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..arrays import Bytes, Rows
from ..frames import FrameBatch
from .addresses import AddressTable
from .damage import Damage
from .duplicates import Duplicates
from .locate import locate
from .packets import PacketBatch, decode


@dataclass(frozen=True, slots=True)
class Decoded:
    """A batch of frames, and what is in them."""

    batch: FrameBatch
    packets: PacketBatch
    """Of InfiniBand transport."""
    tcp: list[Rows]
    """WALK rows of frames with TCP inside, for ``tcp.locate_tcp``."""

    def __len__(self) -> int:
        """Frames."""
        return len(self.batch)

    def within(self, data: Bytes) -> Decoded:
        """The same, where the bytes are ``data``: to leave them out on the way to who has them, too."""
        batch = replace(self.batch, data=data)
        return replace(self, batch=batch, packets=replace(self.packets, data=data, frames=batch))


class Front:
    """Carries what is known of addresses, and of packets that several interfaces show, from batch to batch."""

    def __init__(self) -> None:
        self.addresses = AddressTable()
        self._duplicates = Duplicates()
        self._damage = Damage()

    def take(self, batch: FrameBatch) -> Decoded:
        """Decode a batch that is not empty."""
        located = self._duplicates.drop(batch, locate(batch, self.addresses))
        packets = decode(batch, located)
        return Decoded(batch, replace(packets, damaged=self._damage.find(packets)), located.tcp)
