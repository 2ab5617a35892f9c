"""The calls of each end of a connection while a batch happens: those that are rows, and which may be."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ..arrays import Int64s
from ..layers.rpcrdma_codes import NO_RDMA
from ..named_tuple import NamedTuple
from ..transport.connection import Link
from ..transport.runs import SendRun
from .dispatch import Dispatcher
from .matching import Matching
from .missing_calls import calls_in, comes_again
from .row_chunks import RowTransfers
from .xid_reuse import CallDirection


class OpenCalls(NamedTuple):
    """Calls of one connection without a reply that are rows, behind a batch."""

    link: Link
    place: int
    """Behind which these were left, in the order of events."""
    runs: list[tuple[SendRun, Int64s]]
    """Which of each run."""
    numbers: list[int]
    """Of their RPCs; for each call of all runs, and so are these."""
    orders: list[int]
    reached: list[int]
    """Of each of their segments up to which address it was read or written."""
    carried: list[int]
    """How many of the transfers, which are in their order, did so."""
    transfers: RowTransfers | None


class CallerRows:
    """The calls of one end of a connection, while a batch happens."""

    __slots__ = (
        "answered",
        "behind",
        "beside",
        "called",
        "caller",
        "calls",
        "careful",
        "counted",
        "direction",
        "dispatcher",
        "doubtful",
        "early",
        "foreign",
        "gapped",
        "held",
        "last",
        "log",
        "matching",
        "missing",
        "open",
        "ready",
        "room",
        "short",
        "shown",
        "size",
        "used",
        "waiting",
        "whole_transfers",
    )

    direction: CallDirection
    waiting: Mapping[int, int]
    ready: bool
    careful: bool
    """It may refuse some."""
    room: int
    short: bool
    """There may be more calls than ``room``."""
    calls: Mapping[int, object]
    """Those that are objects, by XID."""
    foreign: set[int] | None
    doubtful: Collection[int] | None
    """XIDs of RPCs that wait for a second reply; None where it is not known of which."""

    def __init__(self, dispatcher: Dispatcher, caller: int, size: int, calls: bool) -> None:
        """``size``: Sends of the batch; ``calls``: it has some that can be rows."""
        self.size = size
        self.dispatcher = dispatcher
        self.matching: Matching = dispatcher.matching
        self.caller = caller
        self.open: dict[int, int] = {}
        """Calls without a reply that are rows, by XID."""
        self.counted = 0
        """How many of these ``CallDirection.outstanding`` counts."""
        self.called: list[int] = []
        self.answered: list[int] = []
        """Calls that were sent, and calls that were answered, of which ``direction`` does not know yet."""
        self.last = -1
        """The last reply."""
        self.beside: dict[int, tuple[int, int]] = {}
        """By XID those of the pairs whose reply may answer a call that is not in the capture; the latest RPC then."""
        self.shown: dict[int, tuple[int, int, int]] = {}
        """By XID replies before their calls, the numbers of their RPCs, and their turns."""
        self.behind: dict[int, int] = {}
        """By XID calls behind these by their times, too, unless another reply comes."""
        self.early: dict[int, list[tuple[int, int]]] = {}
        """By handle RDMA Reads and Writes on memory that no call has offered so far, each with its turn."""
        self.held = 0
        """How many these are."""
        self.used: dict[int, int] = {}
        """The calls that were answered, where some are missing, by XID."""
        self.whole_transfers = False
        """A listener wants all else as objects."""
        self.log: list[int] | None = None
        """For a listener: calls, and of replies their pairs, the bits of these inverted."""
        connection = dispatcher.conversation.connection
        self.missing = sum([calls_in(gap, connection) for gap in connection.gaps[caller]])
        self.gapped = any(connection.gaps)
        if calls:
            self.matching.direction(caller)
        self.look()

    def look(self) -> None:
        """Something happened to ``Matching`` otherwise."""
        matching, dispatcher = self.matching, self.dispatcher
        self.direction = matching.directions[self.caller]
        self.waiting = matching.waiting_replies(1 - self.caller)
        self.room = matching.maximum - (self.direction.outstanding - self.counted)
        self.foreign = None
        self.doubtful = None if matching.doubts else ()
        self.short = self.room <= self.size
        self.calls = self.direction.calls
        self.careful = bool(self.waiting or self.calls) or matching.doubts or self.short
        self.ready = (
            dispatcher.conversation.carries_rpc
            and matching.settled in (1, NO_RDMA)
            and not (dispatcher.undirected[0] or dispatcher.undirected[1])
        )

    @property
    def outstanding(self) -> int:
        """Calls without a reply that are rows."""
        return len(self.open) + len(self.behind)

    def refuses(self, xid: int) -> bool:
        """Whether a call with this XID has to be an object."""
        if self.doubtful is None:
            held = self.matching.unsettled
            self.doubtful = {rpc.xid for rpc in (*held.beside_gap, *held.unwritten, *held.lingering)}
        return xid in self.calls or xid in self.waiting or xid in self.doubtful or self.outstanding >= self.room

    def comes_again(self, xid: int, call: int, drawn: Sequence[int], last: int) -> bool:
        """Whether the XID of a call, the RPCs of which have the numbers ``drawn``, may be that of another, too, that is
        not in the capture."""
        earlier = self.used.get(xid)
        number = self.direction.answered.get(xid) if earlier is None else drawn[earlier]
        return comes_again(drawn[call], number, last, self.missing)

    def is_early(self, xid: int) -> bool:
        """Whether a reply with this XID, of which no call is a row, can wait for its call as a row."""
        return (
            self.ready
            and self.log is None
            and xid not in self.shown
            and xid not in self.beside
            and not (self.careful and self.refuses(xid))
        )

    def foreign_memory(self) -> set[int]:
        """Handles of RDMA Reads and Writes that wait for the call they are for."""
        if self.foreign is None:
            memory = self.matching.known_memory
            self.foreign = set()
            if memory is not None:
                self.foreign.update([operation.handle for operation in memory.unplaced])
                self.foreign.update(*memory.contested)
        return self.foreign


class Callers(dict[int, CallerRows]):
    """By slot; made when first asked for: most ends of connections call nothing in a batch."""

    def __init__(self, dispatchers: Sequence[Dispatcher], size: int, calling: Sequence[bool]) -> None:
        """``size``: Sends of the batch; ``calling``: slots that have calls that can be rows."""
        super().__init__()
        self.dispatchers, self._size, self._calling = dispatchers, size, calling

    def __missing__(self, slot: int) -> CallerRows:
        dispatcher = self.dispatchers[slot >> 1]
        caller = self[slot] = CallerRows(dispatcher, slot & 1, self._size, self._calling[slot])
        if (listener := dispatcher.listener) is not None:
            caller.log = self[slot ^ 1].log if slot ^ 1 in self else []
            caller.whole_transfers = listener.whole_transfers
        return caller
