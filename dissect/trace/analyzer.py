"""An Analyzer that is fed events of a trace in place of frames."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..rpcrdma.analyzer import Analyzer, Options
from ..rpcrdma.rpc_table import RpcTable
from ..rpcrdma.rpcs import Rpc
from ..rpcrdma.unanswered import note_outstanding
from ..transport.connection import ending_words
from ..transport.health import CapturePoint, DirectionHealth, TransportHealth
from .events import Event
from .machine import TraceMachine

_NOTHING_SENT = DirectionHealth()


class TraceAnalyzer(Analyzer):
    """What an Analyzer is to frames: ``frames`` counts events, and there are no packets.

    Times are those of the trace's clock, which most often begins with the host.
    """

    def __init__(self, options: Options | None = None) -> None:
        super().__init__(options)
        self._traced = TraceMachine(self.connections, self._conversations, self.troubles)

    def feed_events(self, events: Sequence[Event]) -> RpcTable:
        """Take events in the order of time, give the Rpcs that ended with them."""
        if events:
            if self.first_time is None:
                self.first_time = self.earliest_time = events[0].time
                self._traced.listen(self.listener)
            self.last_time = events[-1].time
            self._now = self.last_time
        ended = self._traced.feed(events)
        before = {*self._conversations}
        self._evict()
        gone = before.difference(self._conversations)
        return self._ended([*ended, *(self._traced.forget(gone) if gone else ())])

    def tick(self, now: int) -> list[Rpc]:
        """Nothing of a trace waits for time to pass."""
        return []

    def outstanding(self) -> Iterator[Rpc]:
        yield from self._traced.outstanding()

    def finish_table(self) -> RpcTable:
        return self._ended(self._traced.finish())

    def _ended(self, rpcs: list[Rpc]) -> RpcTable:
        note_outstanding(rpcs, self.connections, self.last_time or 0)
        return RpcTable(rpcs)

    def number_behind(self, connections: int, rpcs: int) -> None:
        self._traced.log.last_number = rpcs

    @property
    def traced(self) -> str:  # type: ignore[override]
        return self._traced.log.side or "host"

    def health(self, number: int) -> TransportHealth:
        connection = self._conversations[number].connection
        point = CapturePoint(
            "beside the responder" if self.traced == "server" else "beside the requester",
            1.0,
            f"a trace of the {self.traced}'s kernel",
            "server times are the server's own" if self.traced == "server" else "server times include the network",
        )
        ended = ending_words(connection.ended_by) if connection.ended_by else "open at the end of the trace"
        return TransportHealth(
            number, connection.transport, (_NOTHING_SENT, _NOTHING_SENT), (), 0, None, ended, point, None
        )
