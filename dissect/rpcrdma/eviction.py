"""Eviction: which connections are given up, and the sums that stay of them, so that memory does not grow with time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..transport.connection import Connection
from .conversation import Conversation

AFTERMATH = 10_000_000_000
"""Nanoseconds for which an ended connection is kept anyway: something of it may come late."""


@dataclass(slots=True)
class Evicted:
    """Sums over evicted connections."""

    connections: int = 0
    carriers: int = 0
    """Those that carried RPC-over-RDMA."""
    refused: int = 0
    """Those that the passive side refused."""
    packets: int = 0
    segments: int = 0
    fpdus: int = 0
    bytes: int = 0
    retransmitted_packets: int = 0
    retransmitted_segments: int = 0
    missing_packets: int = 0
    missing_segments: int = 0
    stray_packets: int = 0
    undecoded: int = 0
    unplaced: int = 0

    def add(self, conversation: Conversation, undecoded: int = 0, unplaced: int = 0) -> None:
        connection = conversation.connection
        self.connections += 1
        self.carriers += conversation.protocol == "rpcrdma" and not connection.refused
        self.refused += connection.refused
        self.packets += sum(connection.packets)
        self.segments += sum(connection.segments)
        self.fpdus += sum(connection.fpdus)
        self.bytes += sum(connection.bytes)
        if connection.transport == "iWARP":
            self.retransmitted_segments += sum(connection.retransmitted_packets)
            self.missing_segments += sum(connection.missing_packets)
        else:
            self.retransmitted_packets += sum(connection.retransmitted_packets)
            self.missing_packets += sum(connection.missing_packets)
        self.stray_packets += sum(connection.stray_packets)
        self.undecoded += undecoded
        self.unplaced += unplaced


def overdue(connections: Sequence[Connection], now: int, ended: int, maximum: int) -> list[Connection]:
    """Those to evict: of more than ``ended`` that ended, and of more than ``maximum`` in all, the quiet ones.

    A quarter more than necessary goes at once, so that this is not looked for with every batch.
    """
    if len(connections) <= min(ended, maximum):
        return []
    over = [one for one in connections if one.ended_by and now - one.last_time >= AFTERMATH]
    over.sort(key=_last)
    chosen = over[: len(over) - ended + ended // 4] if len(over) > ended else []
    if len(connections) - len(chosen) > maximum:
        taken = {one.number for one in chosen}
        rest = sorted((one for one in connections if one.number not in taken), key=_last)
        chosen += rest[: len(rest) - maximum + maximum // 4]
    return chosen


def _last(connection: Connection) -> int:
    return connection.last_time
