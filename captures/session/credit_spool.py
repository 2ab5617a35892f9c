"""The credits of many connections, of which those that are over wait in a temporary file."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from types import MappingProxyType

from rdmascope.dissect.measure.credits import CreditDirection
from rdmascope.dissect.rpcrdma.conversation import Conversation
from rdmascope.dissect.rpcrdma.rpc_table import RpcTable

from ..parallel.ipc import unchanging
from ..tables.saved import holds_tables
from ..write.output import spool
from .listeners import WatchedCredits
from .session import Session


def each_credit_direction(
    session: Session, on_rpcs: Callable[[RpcTable], None], on_end: Callable[[], None]
) -> Iterator[CreditDirection]:
    """As ``Session.credit_directions``, one by one in the order of connections.

    ``on_end`` is called between the pass and the first of them.
    """
    if holds_tables(session.paths[0]):
        found = session.credit_directions(on_rpcs)
        on_end()
        yield from found
        return
    credits = WatchedCredits()
    session.watch(credits)
    places: dict[int, int] = {}
    """Where in the file what is over is, by connection."""
    with spool() as file:

        def evict(gone: list[Conversation]) -> None:
            for one in gone:
                number = one.connection.number
                directions = credits.directions.pop(number, ())
                if any(direction.calls or direction.replies for direction in directions):
                    places[number] = file.tell()
                    pickler = pickle.Pickler(file, pickle.HIGHEST_PROTOCOL)
                    pickler.dispatch_table = {MappingProxyType: lambda mapping: (unchanging, (dict(mapping),))}
                    pickler.dump(directions)

        for table in session.tables(evict):
            on_rpcs(table)
            del table
        on_end()
        for number in sorted(places.keys() | credits.directions.keys()):
            if number in places:
                file.seek(places[number])
                directions = pickle.load(file)
            else:
                directions = credits.directions[number]
            yield from (one for one in directions if one.calls or one.replies)
