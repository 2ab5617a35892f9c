"""The calls of each end of a connection during a batch: which are rows, and which can be."""

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
    """Unanswered calls of one connection that stay rows after a batch."""

    link: Link
    place: int
    """The last place of that batch in the order of events."""
    runs: list[tuple[SendRun, Int64s]]
    """Runs, and the rows of the calls in each."""
    numbers: list[int]
    """Numbers of the RPCs; one entry per call of all runs, as in ``orders``."""
    orders: list[int]
    reached: list[int]
    """Per segment of these calls: the address up to which it was read or written."""
    carried: list[int]
    """Per segment: the number of transfers on it; ``transfers`` has them in this order."""
    transfers: RowTransfers | None


class CallerRows:
    """The calls of one end of a connection during a batch."""

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
    """``refuses`` has to be asked before a call becomes a row."""
    room: int
    short: bool
    """The batch may have more calls than ``room``."""
    calls: Mapping[int, object]
    """Open calls that are objects, by XID."""
    foreign: set[int] | None
    doubtful: Collection[int] | None
    """XIDs of RPCs that wait for a second reply; None until they are collected."""

    def __init__(self, dispatcher: Dispatcher, caller: int, size: int, calls: bool) -> None:
        """``size``: number of Sends in the batch; ``calls``: this end has calls that can be rows."""
        self.size = size
        self.dispatcher = dispatcher
        self.matching: Matching = dispatcher.matching
        self.caller = caller
        self.open: dict[int, int] = {}
        """Unanswered calls that are rows, by XID."""
        self.counted = 0
        """How many open calls ``CallDirection.outstanding`` already includes."""
        self.called: list[int] = []
        self.answered: list[int] = []
        """Calls sent and calls answered that ``direction`` does not include yet."""
        self.last = -1
        """The last reply."""
        self.beside: dict[int, tuple[int, int]] = {}
        """By XID: a pair whose reply may answer a call that is not in the capture, and the latest RPC number then."""
        self.shown: dict[int, tuple[int, int, int]] = {}
        """By XID: a reply shown before its call, the number of its RPC, its turn."""
        self.behind: dict[int, int] = {}
        """By XID: a call after its reply by time as well; they match unless another reply comes."""
        self.early: dict[int, list[tuple[int, int]]] = {}
        """By handle: RDMA Reads and Writes on memory that no call has advertised yet, each with its turn."""
        self.held = 0
        """Number of transfers in ``early``."""
        self.used: dict[int, int] = {}
        """By XID: answered calls; kept only if packets are missing."""
        self.whole_transfers = False
        """The listener needs objects of all chunked RPCs whose reply is not one whole transfer."""
        self.log: list[int] | None = None
        """For a listener, in order: calls, and for replies ``~pair``."""
        connection = dispatcher.conversation.connection
        self.missing = sum([calls_in(gap, connection) for gap in connection.gaps[caller]])
        self.gapped = any(connection.gaps)
        if calls:
            self.matching.direction(caller)
        self.look()

    def look(self) -> None:
        """Refresh what is cached here, after ``Matching`` changed other than through rows."""
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
        """Number of unanswered calls that are rows."""
        return len(self.open) + len(self.behind)

    def refuses(self, xid: int) -> bool:
        """Whether a call with this XID has to be an object."""
        if self.doubtful is None:
            held = self.matching.unsettled
            self.doubtful = {rpc.xid for rpc in (*held.beside_gap, *held.unwritten, *held.lingering)}
        return xid in self.calls or xid in self.waiting or xid in self.doubtful or self.outstanding >= self.room

    def comes_again(self, xid: int, call: int, drawn: Sequence[int], last: int) -> bool:
        """Whether a second call with the XID of this call may be missing from the capture; ``drawn``: RPC numbers by
        call."""
        earlier = self.used.get(xid)
        number = self.direction.answered.get(xid) if earlier is None else drawn[earlier]
        return comes_again(drawn[call], number, last, self.missing)

    def is_early(self, xid: int) -> bool:
        """Whether a reply with this XID, whose call is not an open row, can wait for its call as a row."""
        return (
            self.ready
            and self.log is None
            and xid not in self.shown
            and xid not in self.beside
            and not (self.careful and self.refuses(xid))
        )

    def foreign_memory(self) -> set[int]:
        """Handles of the RDMA Reads and Writes that ``Matching`` holds until it knows their call."""
        if self.foreign is None:
            memory = self.matching.known_memory
            self.foreign = set()
            if memory is not None:
                self.foreign.update([operation.handle for operation in memory.unplaced])
                self.foreign.update(*memory.contested)
        return self.foreign


class Callers(dict[int, CallerRows]):
    """CallerRows by slot; made when first asked for, as most ends send no call in a batch."""

    def __init__(self, dispatchers: Sequence[Dispatcher], size: int, calling: Sequence[bool]) -> None:
        """``size``: number of Sends in the batch; ``calling``: by slot, whether it has calls that can be rows."""
        super().__init__()
        self.dispatchers, self._size, self._calling = dispatchers, size, calling

    def __missing__(self, slot: int) -> CallerRows:
        dispatcher = self.dispatchers[slot >> 1]
        caller = self[slot] = CallerRows(dispatcher, slot & 1, self._size, self._calling[slot])
        if (listener := dispatcher.listener) is not None:
            caller.log = self[slot ^ 1].log if slot ^ 1 in self else []
            caller.whole_transfers = listener.whole_transfers
        return caller
