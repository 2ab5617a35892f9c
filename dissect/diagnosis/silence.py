"""Hosts of which nothing more was seen, though others went on sending to them until the capture ended."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ..rpcrdma.conversation import Conversation
from ..transport.health import TransportHealth

LEAST = 2_000_000_000
"""Nanoseconds without an answer: far longer than any acknowledgement takes."""


class Silence(NamedTuple):
    """A host that fell silent."""

    address: str
    end: int
    """0 the client, 1 the server."""
    since: int
    """Nanoseconds since the epoch: when it was last seen, on any connection."""
    connections: tuple[int, ...]
    """On which it was sent something since then that it did not acknowledge."""


def silences(
    conversations: Iterable[Conversation], healths: Mapping[int, TransportHealth], last_time: int
) -> list[Silence]:
    """``last_time``: nanoseconds, the end of the capture.  An idle host is not silent: no host waits for it."""
    known = [
        (one.connection, healths[one.connection.number]) for one in conversations if one.connection.number in healths
    ]
    seen: dict[str, int] = {}
    for connection, health in known:
        answered = connection.last_time if connection.refused else 0
        if connection.endpoints[1].private_data_frame:
            answered = max(answered, connection.first_time)
        for end, host in enumerate(connection.endpoints):
            spoke = max(health.directions[end].last_time, answered if end else 0)
            seen[host.address] = max(seen.get(host.address, 0), spoke)
    waiting: dict[tuple[str, int], list[int]] = defaultdict(list)
    for connection, health in known:
        for end, host in enumerate(connection.endpoints):
            peer, since = health.directions[1 - end], seen[host.address]
            if not since or peer.waiting_since is None or peer.last_time <= since:
                continue
            if last_time - max(peer.waiting_since, since) >= LEAST:
                waiting[host.address, end].append(connection.number)
    return [Silence(*host, seen[host[0]], tuple(numbers)) for host, numbers in waiting.items()]
