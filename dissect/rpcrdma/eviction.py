"""Eviction: which connections are dropped so that memory stays bounded, and the sums kept of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

from ..transport.connection import Connection
from .conversation import Conversation

AWAITED = 30_000_000_000
"""Nanoseconds of silence during which a reply is still expected."""
AFTERMATH = 10_000_000_000
"""Nanoseconds for which an ended connection is kept, as late packets may follow."""


@dataclass(slots=True)
class Evicted:
    """Sums over evicted connections."""

    connections: int = 0
    carriers: int = 0
    """Connections that carried RPC-over-RDMA."""
    tcp: int = 0
    udp: int = 0
    """Connections that carried RPC over TCP, and over UDP."""
    records: int = 0
    """Fragments of records on those."""
    refused: int = 0
    """Connections that the server refused."""
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
    open_calls: int = 0
    """Calls unanswered at eviction; a later reply counts as another RPC."""

    def add_sums(self, other: Evicted) -> None:
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))

    def add(self, conversation: Conversation, undecoded: int = 0, unplaced: int = 0, open_calls: int = 0) -> None:
        connection = conversation.connection
        self.connections += 1
        self.carriers += conversation.protocol == "rpcrdma" and not connection.refused
        if not connection.rdma and conversation.carries_rpc:
            self.tcp += 1
            self.udp += connection.transport == "UDP"
            self.records += sum(connection.fpdus)
        self.refused += connection.refused
        self.packets += sum(connection.packets)
        self.segments += sum(connection.segments)
        self.fpdus += sum(connection.fpdus)
        self.bytes += sum(connection.bytes)
        if connection.of_tcp:
            self.retransmitted_segments += sum(connection.retransmitted_packets)
            self.missing_segments += sum(connection.missing_packets)
        else:
            self.retransmitted_packets += sum(connection.retransmitted_packets)
            self.missing_packets += sum(connection.missing_packets)
        self.stray_packets += sum(connection.stray_packets)
        self.undecoded += undecoded
        self.unplaced += unplaced
        self.open_calls += open_calls


def overdue(
    connections: Sequence[Connection], now: int, ended: int, maximum: int, calling: Callable[[Connection], bool]
) -> list[Connection]:
    """The connections to evict: the longest silent of those that ended, beyond ``ended``, and of all, beyond
    ``maximum``.

    Connections with open calls (``calling``) go last, as replies may come.  A quarter more than necessary is evicted at
    once, so that the search does not run for every batch.
    """
    if len(connections) <= min(ended, maximum):
        return []
    over = [connection for connection in connections if connection.ended_by and now - connection.last_time >= AFTERMATH]
    over.sort(key=_last)
    chosen = over[: len(over) - ended + ended // 4] if len(over) > ended else []
    if len(connections) - len(chosen) > maximum:
        taken = {conversation.number for conversation in chosen}
        rest = [connection for connection in connections if connection.number not in taken]
        rest.sort(
            key=lambda conversation: (
                now - conversation.last_time < AWAITED and calling(conversation),
                conversation.last_time,
            )
        )
        chosen += rest[: len(rest) - maximum + maximum // 4]
    return chosen


def _last(connection: Connection) -> int:
    return connection.last_time
