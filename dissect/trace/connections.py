"""The connections of a trace: queues of completions, and what is told of the ends that they belong to."""

from __future__ import annotations

from collections.abc import Callable

from ..named_tuple import NamedTuple
from ..rpcrdma.conversation import Conversation
from ..rpcrdma.listeners import Listener
from ..transport.connection import Connection, Endpoint

RDMA = "RDMA"
"""The transport of a connection of which no packet tells whether it is RoCE, InfiniBand or iWARP."""
SOCKET = "socket"
"""That of one that is none of RDMA: TCP, UDP or local."""


class CmPair(NamedTuple):
    """A connection as the connection manager, or the negotiation of inline thresholds, names it."""

    client: str
    server: str
    """'10.77.0.1:20049'."""


def socket_parts(text: str) -> tuple[str, int | None]:
    """'10.0.0.1:20049', '[fe80::1]:20049' or '10.0.0.1': address and port; port 0 is none."""
    address, _, port = text.rpartition(":")
    if not address or not port.isdigit() or (":" in address and not address.startswith("[")):
        return text.strip("[]"), None
    return address.strip("[]"), int(port) or None


def drop(queues: dict[int, Conversation], numbers: set[int]) -> set[int]:
    """Those of connections with these numbers, which it gives."""
    gone = {queue for queue, conversation in queues.items() if conversation.connection.number in numbers}
    for queue in gone:
        del queues[queue]
    return gone


class TracedConnections:
    """Makes a Conversation for each queue that RPCs are seen on, and numbers it."""

    def __init__(self, connections: list[Connection], conversations: dict[int, Conversation]) -> None:
        """What they are put into, by number."""
        self.connections, self.conversations = connections, conversations
        self.listener: Callable[[Conversation], Listener | None] | None = None
        self.listeners: dict[int, Listener] = {}
        """By connection number."""
        self._count = 0
        self._established: dict[CmPair, int] = {}
        """When; of those that no queue is known of."""
        self._taken: dict[CmPair, Connection] = {}
        self._inline: dict[CmPair, tuple[int, int]] = {}

    def establish(self, pair: CmPair, time: int, inline: tuple[int, int] | None = None) -> None:
        """The two ends are connected; ``inline``: thresholds of what the client and the server send."""
        if inline is not None:
            self._inline[pair] = inline
        self._taken.pop(pair, None)
        self._established.setdefault(pair, time)

    def end(self, pair: CmPair, why: str, time: int) -> None:
        """It is over; ``why`` as ``Connection.ended_by`` has it."""
        connection = self._taken.pop(pair, None)
        if connection is not None and not connection.ended_by:
            connection.ended_by, connection.ended_time = why, time
        elif connection is None:
            self._established.pop(pair, None)

    def make(
        self, side: str, transport: str, client: str, server: str, number: int, time: int, port: int | None
    ) -> Conversation:
        """A new one between two addresses, '' where one is not told, first seen at an event of this number, by its
        'client' or 'server'; ``port``: the server's."""
        self._count += 1
        first, pair = time, self._pair(client, server, port) if transport == RDMA else None
        local: int | None = None
        if pair is not None:
            first = self._established.pop(pair)
            client, local = socket_parts(pair.client)
            server, port = socket_parts(pair.server)
        connection = Connection(
            self._count,
            transport,
            (Endpoint(client, 0, port=local), Endpoint(server, 0, port=port)),
            "trace",
            service_port=port,
            first_frame=number,
            last_frame=number,
            first_time=first,
            last_time=time,
        )
        if pair is not None:
            self._taken[pair] = connection
        self.connections.append(connection)
        made = Conversation(connection, "rpcrdma" if transport == RDMA else "other", ("trace",), traced=side)
        self.conversations[connection.number] = made
        if pair is not None:
            made.inline = self._inline.pop(pair, None)
        listener = self.listener(made) if self.listener is not None and transport == RDMA else None
        if listener is not None:
            self.listeners[connection.number] = listener
        return made

    def _pair(self, client: str, server: str, port: int | None) -> CmPair | None:
        """The earliest of those established between two addresses that no queue is known of."""
        for pair in self._established:
            ends = socket_parts(pair.client), socket_parts(pair.server)
            if client in ("", ends[0][0]) and server in ("", ends[1][0]) and port in (None, ends[1][1]):
                return pair
        return None
