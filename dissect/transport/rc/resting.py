"""Send queues on which nothing is under way, and nothing will be retransmitted, in little memory."""

from __future__ import annotations

from typing import NamedTuple

from ..connection import Connection
from .send_queue import SendQueue


class Resting(NamedTuple):
    """All that such a queue has to know; PSNs are unwrapped."""

    head: int | None
    base: int | None
    acked: int
    order: int
    """Frame of the last message."""
    started: bool
    delivered: bool


def at_rest(queue: SendQueue) -> Resting | None:
    """Behind ``forget``: what is enough to make it again; None where there is more."""
    messages = queue.messages
    under_way = queue.held or queue.responses or queue.stray or queue.reads.reads or queue.gap_proved
    remembered = queue.before_base or queue.given_up or queue.has_detached or not queue.missing.none
    if under_way or remembered or not messages.idle:
        return None
    return Resting(queue.head, queue.base, queue.acked, messages.order, queue.started, messages.delivered)


def resumed(connection: Connection, sender: int, known: Resting) -> SendQueue:
    """The queue goes on where it rested."""
    queue = SendQueue(connection, sender)
    queue.head, queue.base, queue.acked = known[:3]
    queue.started = known.started
    queue.messages.resume(known.order, known.delivered)
    return queue
