"""Which Operations waited for retransmissions, and how long."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Protocol

from ..serial import PSN
from .operations import Kind, Operation
from .retransmissions import DUPLICATE, Retransmission


class RetransmissionDelays(Protocol):
    """Of one connection."""

    def of(self, operations: Sequence[Operation], final: Operation | None) -> int:
        """Nanoseconds from losses to retransmissions that any of these Operations waited for.

        ``final``: the Send that ended what they belong to; None where none did.  Who sent it had got what the other
        end sent: only it, and the Writes of its sender, can have waited for what was retransmitted after it.
        """


class RcDelays:
    """A reliable connection: an Operation waits for the retransmissions of its own packets.

    A Send or Write had arrived where only a response was lost: its sender went back to the Read, and on from there.
    """

    def __init__(self, retransmissions: Iterable[Retransmission], mtu: int) -> None:
        self._mtu = mtu
        self._retransmissions = sorted(
            (one for one in retransmissions if one.loss_to_retransmission and one.cause != DUPLICATE), key=_moment
        )
        self.moments = [_moment(one) for one in self._retransmissions]
        """Times of the retransmissions, ascending, in nanoseconds."""

    def __bool__(self) -> bool:
        return bool(self._retransmissions)

    def of(self, operations: Sequence[Operation], final: Operation | None) -> int:
        waits: dict[int, int] = {}
        times = self.moments
        for operation in operations:
            reading = operation.kind is Kind.READ
            behind = None
            if final is not None and (reading or operation.initiator != final.initiator):
                behind = max(final.last_frame, operation.last_frame)
            first, last = operation.first_time, operation.last_time
            if operation.last_sent > last:
                last = operation.last_sent
            for index in range(bisect_left(times, first), len(times)):
                if times[index] > last:
                    break
                one = self._retransmissions[index]
                if behind is not None and (one.retransmission_frame or 0) > behind:
                    continue
                if not reading and one.lost in ("response", "acknowledgement"):
                    continue
                if one.initiator == operation.initiator and self._touches(one, operation):
                    waits[index] = max(_waited(one, operation), waits.get(index, 0))
        return sum(waits.values())

    def _touches(self, one: Retransmission, operation: Operation) -> bool:
        span = operation.packets
        if operation.kind is Kind.READ:
            span = max(1, -(-operation.length // self._mtu))
        behind = PSN.distance(one.psn, operation.psn)
        return behind < one.end - one.psn or PSN.distance(operation.psn, one.psn) < span


def _moment(one: Retransmission) -> int:
    return one.retransmission_time or 0


def _waited(one: Retransmission, operation: Operation) -> int:
    """From the loss, or from when the Operation was first sent after it, to the retransmission."""
    assert one.retransmission_time is not None and one.lost_time is not None
    since = one.lost_time
    if since < operation.first_time < one.retransmission_time:
        since = operation.first_time
    return max(0, one.retransmission_time - since)


class TcpDelays:
    """iWARP: TCP gives its user no byte before all that went ahead of it (RFC 9293, 3.1).

    So every Operation waits whose bytes were sent, in the same direction, from the loss to the retransmission.
    """

    def __init__(self, retransmissions: Iterable[Retransmission]) -> None:
        self._waits: tuple[list[tuple[int, int]], list[tuple[int, int]]] = [], []
        """By sender: from when to when."""
        for one in retransmissions:
            if one.loss_to_retransmission and one.lost != "nothing":
                assert one.lost_time is not None and one.retransmission_time is not None
                self._waits[one.initiator].append((one.lost_time, one.retransmission_time))

    def __bool__(self) -> bool:
        return any(self._waits)

    def of(self, operations: Sequence[Operation], final: Operation | None) -> int:
        # A reply acknowledges what came before it; what is retransmitted although it had arrived is not listed here.
        waits = [
            (max(lost, first) if first < sent else lost, sent)
            for operation in operations
            for sender, first, last in _sending(operation)
            for lost, sent in self._waits[sender]
            if first <= sent and lost <= last
        ]
        total = reached = 0
        for start, end in sorted(waits):
            total += max(0, end - max(start, reached))
            reached = max(reached, end)
        return total


def _sending(operation: Operation) -> list[tuple[int, int, int]]:
    """``(sender, first time, last time)`` of the bytes of an Operation, for each side that sent some."""
    mine, last = operation.initiator, max(operation.last_time, operation.last_sent)
    if operation.kind is not Kind.READ:
        return [(mine, operation.first_time, last)]
    spans = [(mine, operation.first_time, operation.first_time)]
    times = [int(rows["time"].min()) for _, _, rows in operation.payload.runs if len(rows)]
    if times:
        spans.append((1 - mine, min(times), last))
    return spans
