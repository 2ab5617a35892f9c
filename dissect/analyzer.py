"""The line from frames to Rpcs, incremental: feed it FrameBatches, take Rpcs as they end."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import count

from .addresses import AddressTable
from .connection import Connection
from .exchange import Exchange, Undecoded
from .frames import FrameBatch
from .network import locate
from .packets import decode
from .rc.observer import Event, Observer
from .rpcs import Rpc
from .transport import TransportHealth

NFS_RDMA_PORT = 20049
"""RFC 8267, 8."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the user knows better than the traffic tells."""

    ports: frozenset[int] = frozenset({NFS_RDMA_PORT})
    """Service ports that carry RPC-over-RDMA."""
    force: bool = False
    """Every connection is RPC-over-RDMA."""
    contents: bool = True
    """Keep the payload references of finished Rpcs; without, they are dropped when an Rpc ends."""
    icrc: bool = False
    """Verify the invariant CRC of every packet, for ``Analyzer.health``; costs time."""


class Analyzer:
    """Carries all state from batch to batch.  Never raises on what it sees."""

    def __init__(self, options: Options | None = None) -> None:
        self.options = options or Options()
        self.addresses = AddressTable()
        self.frames = 0
        self.packets = 0
        self.skipped: Counter[str] = Counter()
        """Frames that are no RDMA packet, by what they are."""
        self.first_time: int | None = None
        """Nanoseconds since the epoch; None before the first frame."""
        self.last_time: int | None = None
        self.connections: list[Connection] = []
        self._observer = Observer(self.addresses, self.connections, self.options.icrc)
        self._exchanges: dict[int, Exchange] = {}
        self._numbers = count(1)

    @property
    def other_packets(self) -> Counter[str]:
        """Packets of transport services other than Reliable Connection, by name."""
        return self._observer.other

    @property
    def undecoded(self) -> list[Undecoded]:
        """What on RPC-over-RDMA connections could not be made sense of, by frame."""
        return sorted(note for exchange in self._exchanges.values() for note in exchange.undecoded)

    @property
    def unplaced(self) -> dict[int, int]:
        """Connection number -> RDMA Reads and Writes that no captured call advertised memory for."""
        return {
            exchange.connection.number: exchange.unplaced_count
            for exchange in self._exchanges.values()
            if exchange.unplaced_count
        }

    def health(self, number: int) -> TransportHealth:
        """How the transport of connection ``number`` fared, as far as the capture was fed."""
        notes = self._observer.notes
        notes.settle(self._observer.bound)
        health = self._observer.links[number].health
        return health.result(self.last_time, notes.verified if notes.verify else None)

    def feed(self, batch: FrameBatch) -> list[Rpc]:
        """Take a batch, give the Rpcs that ended in it."""
        if not len(batch):
            return []
        self.frames += len(batch)
        times = batch.rows["time"]
        if self.first_time is None:
            self.first_time = int(times[0])
        self.last_time = int(times[-1])
        packets = decode(batch, locate(batch, self.addresses))
        self.packets += len(packets)
        self.skipped.update(packets.skipped)
        done = self._take(self._observer.feed(packets) if len(packets) else [])
        frame = int(batch.rows["number"][-1])
        for exchange in self._exchanges.values():
            exchange.settle(self.last_time, frame)
            done += self._collect(exchange)
        return done

    def finish(self) -> list[Rpc]:
        """The input is over: give the rest."""
        done = self._take(self._observer.finish())
        for exchange in self._exchanges.values():
            exchange.finish()
            done += self._collect(exchange)
        return done

    def _take(self, events: list[Event]) -> list[Rpc]:
        exchanges = self._exchanges
        done: list[Rpc] = []
        for _, link, operation in events:
            key = link.connection.number
            exchange = exchanges.get(key)
            if exchange is None:
                exchange = exchanges[key] = Exchange(
                    link.connection, self._numbers, self.options.ports, self.options.force
                )
            exchange.take(operation)
            if exchange.done:
                done += self._collect(exchange)
        return done

    def _collect(self, exchange: Exchange) -> list[Rpc]:
        done, exchange.done = exchange.done, []
        costs = self._observer.links[exchange.connection.number].health.costs if done else None
        if costs:
            for rpc in done:
                rpc.retransmission_delay = costs.of(rpc)
        if not self.options.contents:
            for rpc in done:
                _drop_contents(rpc)
        return done


def _drop_contents(rpc: Rpc) -> None:
    for message in (rpc.call, rpc.reply):
        if message is not None:
            message.operation.payload.runs.clear()
    for chunk in rpc.chunks:
        for use in chunk.segments:
            for operation in use.operations:
                operation.payload.runs.clear()
