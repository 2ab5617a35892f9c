"""How long unanswered calls have been outstanding: a lower bound of their latency."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from ..transport.connection import Connection
from .rpcs import EVENTS_LOST, REPLY_NOT_SEEN, Rpc
from .xid_reuse import NOT_EXPECTED, XID_USED_AGAIN


def note_outstanding(rpcs: Iterable[Rpc], connections: Sequence[Connection], end_of: Callable[[int], int]) -> None:
    """Set ``Rpc.outstanding`` of RPCs without a reply.

    ``end_of``: the end of the capture, ns, by its clock as it runs from a frame on.
    """
    unanswered = [rpc for rpc in rpcs if not reply_may_be_missing(rpc)]
    if not unanswered:
        return
    ends = ConnectionEnds(connections)
    for rpc in unanswered:
        assert rpc.call is not None
        end = ends.of(rpc.connection, end_of(rpc.call_frame))
        rpc.outstanding = None if end is None else max(0, end - rpc.call.operation.first_time)


def reply_may_be_missing(rpc: Rpc) -> bool:
    """Whether an RPC has a reply, or may have one that is missing: packets of the replier are missing, unread, or shown
    long before what they answer, so that replies have no calls; or events of a trace are missing; or the caller used
    the XID for another call."""
    if rpc.reply is not None or rpc.call is None or rpc.ambiguous:
        return True
    connection, replier = rpc.connection, 1 - rpc.call.operation.initiator
    return (
        (connection.one_sided and not connection.of_tcp)  # TCP acknowledgements tell.
        or bool(connection.unread_packets[replier] or connection.unread_messages[replier])
        or any(gap.last_frame > rpc.call.operation.first_frame for gap in connection.gaps[replier])
        or bool(connection.disordered and rpc.conversation.unmatched_replies[rpc.backward])
        or any(note in (XID_USED_AGAIN, NOT_EXPECTED, EVENTS_LOST, REPLY_NOT_SEEN) for note in rpc.notes)
    )


class ConnectionEnds:
    """When connections ended, ns."""

    def __init__(self, connections: Iterable[Connection]) -> None:
        self._opened: dict[tuple[str, str, int | None], list[int]] = defaultdict(list)
        self._unopened: dict[tuple[str, ...], list[int]] = defaultdict(list)
        """By transport and hosts: when connections whose beginning was not captured were first seen."""
        for connection in connections:
            if connection.opened:
                self._opened[service_of(connection)].append(connection.first_time)
            else:
                self._unopened[_hosts(connection)].append(connection.first_time)
        for times in [*self._opened.values(), *self._unopened.values()]:
            times.sort()

    def of(self, connection: Connection, last_time: int) -> int | None:
        """The end of a connection: when the client connected again after its last packet, or ``last_time``.

        None if the capture lacks what follows its last packet: another connection between its hosts continues that
        began there.
        """
        behind = max(connection.last_time, connection.first_time + 1)
        end = min(connection.ended_time or last_time, _next(self._opened[service_of(connection)], behind, last_time))
        return None if _next(self._unopened[_hosts(connection)], behind, end) < end else min(end, last_time)


def _next(times: Sequence[int], since: int, otherwise: int) -> int:
    after = bisect_left(times, since)
    return times[after] if after < len(times) else otherwise


def _hosts(connection: Connection) -> tuple[str, ...]:
    return connection.transport, *sorted(end.address for end in connection.endpoints)


def service_of(connection: Connection) -> tuple[str, str, int | None]:
    """The two hosts, and the service port between them."""
    client, server = connection.endpoints
    return client.address, server.address, connection.service_port
