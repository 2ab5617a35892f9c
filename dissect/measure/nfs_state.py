"""What NFSv4 clients hold on a server: sessions, opens, locks, delegations and layouts (RFC 8881, 2.4, 2.10, 8 to 12),
and the slots of sessions: in use over time, sequence gaps, retransmissions (2.10.6).

What began before the capture is marked: its ``frame`` is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ..arrays import Int64s, Rows, steps, stretches, take, unique
from ..onc.compound import SlotResult

MAX_SLOTS = 4096
"""Slots of a channel that are followed; requests on others are counted."""
MAX_EVENTS = 1000
"""Events listed for a channel; further ones are counted."""

RETRY, FALSE_RETRY, GAP = "retry", "false retry", "gap"


@dataclass(slots=True, eq=False)
class SlotUse:
    """One request on a slot."""

    rpc: int
    """Its number once it is known; 0 before."""
    connection: int
    frame: int
    time: int
    slot: int
    sequence: int
    cached: bool
    """The reply is to be kept."""
    operations: tuple[str, ...] = ()
    reply_frame: int = 0
    """0 where no reply was seen."""
    status: str = ""
    """The status of the whole reply."""
    refused: bool = False
    """SEQUENCE itself failed: the slot's sequence ID stays as it was."""
    pending: bool = True
    """It has no reply yet."""


@dataclass(slots=True, eq=False)
class SlotEvent:
    """A request that is not the next of its slot.

    ===========  =====================================================================================
    retry        the sequence ID of the request before, and its operations (RFC 8881, 2.10.6.2)
    false retry  the sequence ID of the request before, but other operations (2.10.6.1.3.1)
    gap          neither that sequence ID nor the next
    ===========  =====================================================================================
    """

    kind: str
    expected: int
    """The next sequence ID."""
    use: SlotUse
    earlier: SlotUse | None
    """The request before; None where the session begins."""


@dataclass(slots=True, eq=False)
class SlotTable:
    """The slots of the fore or the back channel of a session."""

    begun: bool
    """The capture has it from its creation on."""
    agreed: int | None = None
    """ca_maxrequests as CREATE_SESSION returned it; None where that is not in the capture."""
    target: int | None = None
    """Highest slot that the replier wants to be used, as its latest reply says."""
    targets: tuple[int, int] | None = None
    """Lowest and highest target."""
    requests: int = 0
    cached: int = 0
    """Requests whose reply is to be kept."""
    highest: int | None = None
    """Highest slot used."""
    max_in_use: int = 0
    at_limit: int = 0
    """Nanoseconds in which all slots that may be used were."""
    at_limit_count: int = 0
    full: tuple[tuple[int, int], tuple[int, int]] | None = None
    """Time and frame of the first and of the latest request that took the last slot."""
    refilled: int = 0
    """Requests on the one slot that had become free, with nothing in between."""
    retries: int = 0
    gaps: int = 0
    events: list[SlotEvent] = field(default_factory=list)
    untracked: int = 0
    """Requests on slots beyond ``MAX_SLOTS``."""
    in_use: int = 0
    limit: int | None = field(init=False)
    """Requests that may be outstanding now: slots agreed, or fewer where the replier wants that."""
    _slots: dict[int, SlotUse] = field(default_factory=dict)
    """The latest request on each."""
    _time: int = 0
    _freed: bool = False
    """The last event made a slot free where all were in use."""

    def __post_init__(self) -> None:
        self.limit = self.agreed

    def advance(self, time: int) -> None:
        if time > self._time:
            if self.limit is not None and self.in_use >= self.limit:
                self.at_limit += time - self._time
            self._time = time

    def request(self, use: SlotUse) -> None:
        """Notes an event where it is not the next on its slot."""
        self.advance(use.time)
        self.requests += 1
        self.cached += use.cached
        slot = use.slot
        if self.highest is None or slot > self.highest:
            self.highest = slot
        last = self._slots.get(slot)
        if last is None and len(self._slots) >= MAX_SLOTS:
            self.untracked += 1
            return
        self._slots[slot] = use
        following = self._next(last, use.sequence)
        if use.sequence != following:
            self._note(SlotEvent(GAP, following, use, last))
        if last is None or not last.pending:
            self._taken(use)

    def _next(self, last: SlotUse | None, sequence: int) -> int:
        """The sequence ID of the request behind another; ``sequence`` itself where that is allowed, too."""
        if last is None:
            return 1 if self.begun else sequence
        return sequence if last.refused and sequence == last.sequence else last.sequence + 1 & 0xFFFFFFFF

    def take_routine(
        self,
        rows: Rows,
        ended: NDArray[np.bool_],
        results: Sequence[SlotResult],
        uses: Callable[[Rows], Iterator[SlotUse]],
    ) -> bool:
        """Take requests and their ends in their order, where each succeeds and has ended before the next on its slot
        begins, and the slots wanted stay as many.  Else none is taken: False.

        Args:
            rows: a row for the request, and one for its end: number, call_time, call_frame, reply_end, slot,
                sequence, cached, and the index in ``results``.
            ended: which of them are ends.
            uses: makes those of some rows, which are over.
        """
        order = rows["slot"].argsort(kind="stable")
        asked, answered = order[::2], order[1::2]
        if len(order) % 2 or ended[asked].any() or not ended[answered].all():
            return False
        codes = unique(rows["result"]).tolist()
        usual = [code >= 0 and results[code][::2] == (0, self.target) and not results[code].flags for code in codes]
        if not all(usual) or (rows["number"][asked] != rows["number"][answered]).any():
            return False
        slots, sequences = rows["slot"][asked], rows["sequence"][asked]
        begins = stretches(slots)
        last = [self._slots.get(slot) for slot in slots[begins].tolist()]
        if last.count(None) + len(self._slots) > MAX_SLOTS or any(use is not None and use.pending for use in last):
            return False
        following = np.append(0, sequences[:-1] + 1 & 0xFFFFFFFF)
        following[begins] = [*map(self._next, last, sequences[begins].tolist())]
        before = dict(zip(begins.tolist(), last, strict=True))
        for at in sorted((sequences != following).nonzero()[0].tolist(), key=asked.__getitem__):
            earlier = before[at] if at in before else next(uses(rows[asked[at - 1 : at]]))
            self._note(SlotEvent(GAP, int(following[at]), next(uses(rows[asked[at : at + 1]])), earlier))
        self._count(rows, ended)
        for use in uses(take(rows, asked[np.append(begins[1:], len(slots)) - 1])):
            self._slots[use.slot] = use
        return True

    def _count(self, rows: Rows, ended: NDArray[np.bool_]) -> None:
        """Requests on free slots, and their ends, by which they become free."""
        times = np.maximum.accumulate(np.where(ended, rows["reply_end"], rows["call_time"]).clip(self._time))
        in_use = self.in_use + np.where(ended, -1, 1).cumsum()
        self.requests += len(rows) // 2
        self.cached += int(np.count_nonzero(rows["cached"])) // 2
        self.highest = max(self.highest or 0, int(rows["slot"].max()))
        self.max_in_use = max(self.max_in_use, int(in_use.max()))
        self._freed, freed = False, self._freed
        if self.limit is not None:
            full = in_use + np.where(ended, 1, -1) >= self.limit
            self.at_limit += int(steps(times, self._time)[full].sum())
            frees = np.append(freed, ended & full)
            self._freed = bool(frees[-1])
            taken = (~ended & (in_use == self.limit)).nonzero()[0]
            self.at_limit_count += len(taken)
            self.refilled += int(np.count_nonzero(frees[taken]))
            if len(taken):
                first, latest = rows[["call_time", "call_frame"]][taken[[0, -1]]].tolist()
                self.full = (self.full[0] if self.full else first), latest
        self._time, self.in_use = int(times[-1]), int(in_use[-1])

    def _note(self, event: SlotEvent) -> None:
        if event.earlier is not None and event.use.sequence == event.earlier.sequence:
            event.kind = RETRY
            self.retries += 1
        else:
            self.gaps += 1
        if len(self.events) < MAX_EVENTS:
            self.events.append(event)

    def _taken(self, use: SlotUse) -> None:
        self.in_use += 1
        if self.in_use > self.max_in_use:
            self.max_in_use = self.in_use
        if self.in_use == self.limit:
            self.at_limit_count += 1
            moment = use.time, use.frame
            self.full = (self.full[0] if self.full else moment), moment
            self.refilled += self._freed
        self._freed = False

    def answered(self, use: SlotUse, time: int, result: SlotResult | None) -> None:
        """The request has its reply, or will get none: then ``result`` is None."""
        self.advance(time)
        if result is not None:
            use.refused = result.status != 0
            if result.target is not None and result.target != self.target:
                self.target = result.target
                self.limit = self.target + 1 if self.agreed is None else min(self.agreed, self.target + 1)
                low, high = self.targets or (result.target, result.target)
                self.targets = min(low, result.target), max(high, result.target)
        if use.pending and self._slots.get(use.slot) is use:
            self._freed = self.limit is not None and self.in_use >= self.limit
            self.in_use -= 1
        use.pending = False

    def settle(self) -> None:
        """Tell retries from false ones: all operations are known now."""
        for event in self.events:
            earlier = event.earlier
            if event.kind == RETRY and earlier is not None and event.use.operations != earlier.operations:
                event.kind = FALSE_RETRY


MAX_CLIENTS = MAX_SESSIONS = 4096
"""Clients and sessions that are followed; others that the capture names are counted."""
MAX_HELD = 10_000
"""States of one kind that a client holds at a time, and that are followed."""
MAX_LISTED = 1000
"""Delegations and waits that are listed of a client."""
MAX_STATUSES = 64
MAX_CONNECTIONS = 256
"""Connections listed for a session."""


@dataclass(slots=True, eq=False)
class HeldState:
    """An open, a lock, a delegation or a layout."""

    kind: str
    """'read', 'write', 'read and write'; of a layout its type."""
    stateid: bytes
    """'other', without the sequence ID."""
    handle: bytes | None
    """None where no message of the capture has it."""
    frame: int = 0
    """In which it was granted; 0: before the capture."""
    time: int = 0
    reclaimed: bool = False
    """Granted after a restart, or another loss of state."""
    recalled_frame: int = 0
    recalled_time: int = 0
    returned_frame: int = 0
    returned_time: int = 0
    revoked: bool = False
    delays: int = 0
    """Calls that the server answered NFS4ERR_DELAY between the recall and the return."""
    ranges: list[tuple[int, int]] = field(default_factory=list)
    """The ranges of the file that a lock covers, [start, end), ascending."""

    @property
    def recall_time(self) -> int | None:
        """Nanoseconds from the recall to the return; None where one of them is missing."""
        return self.returned_time - self.recalled_time if self.recalled_frame and self.returned_frame else None


@dataclass(slots=True, eq=False)
class StateTable:
    """The states of one kind that a client holds."""

    granted: int = 0
    returned: int = 0
    earlier: int = 0
    """Those granted before the capture."""
    recalled: int = 0
    untracked: int = 0
    """Granted, but too many to be followed."""
    held: dict[bytes, HeldState] = field(default_factory=dict)
    """By stateid."""

    def grant(self, state: HeldState) -> HeldState | None:
        """None where it is known already, or they are too many."""
        known = self.held.get(state.stateid)
        if known is not None:
            if known.recalled_frame and not known.frame:  # the recall overtook the reply that grants it
                self.granted += 1
                known.kind, known.handle, known.reclaimed = state.kind, state.handle, state.reclaimed
                known.frame, known.time = state.frame, state.time
            return None
        self.granted += 1
        if len(self.held) >= MAX_HELD:
            self.untracked += 1
            return None
        self.held[state.stateid] = state
        return state

    def give_back(self, stateid: bytes) -> HeldState | None:
        """None where it was not granted in the capture."""
        self.returned += 1
        state = self.held.pop(stateid, None)
        self.earlier += state is None or not state.frame
        return state


@dataclass(slots=True, eq=False)
class StatusTally:
    """Replies with one status."""

    count: int = 0
    first_frame: int = 0
    first_time: int = 0
    last_frame: int = 0
    last_time: int = 0

    def add(self, frame: int, time: int) -> None:
        if not self.count:
            self.first_frame, self.first_time = frame, time
        self.count += 1
        self.last_frame, self.last_time = frame, time


@dataclass(slots=True, eq=False)
class NfsSession:
    """A session (RFC 8881, 2.10)."""

    number: int
    """1-based, in order of appearance."""
    client: NfsClient
    id: bytes
    frame: int = 0
    """The frame of the reply to CREATE_SESSION; 0: it began before the capture."""
    time: int = 0
    ended_frame: int = 0
    ended_time: int = 0
    ended_by: str = ""
    """DESTROY_SESSION, or the error that said it is gone; '' while it lives."""
    fore: SlotTable = field(default_factory=lambda: SlotTable(False))
    back: SlotTable = field(default_factory=lambda: SlotTable(False))
    fore_sizes: tuple[int, int, int, int] | None = None
    """ca_maxrequestsize, ca_maxresponsesize, ca_maxresponsesize_cached, ca_maxoperations."""
    back_sizes: tuple[int, int, int, int] | None = None
    persistent: bool | None = None
    back_channel: bool | None = None
    """The connection of CREATE_SESSION carries it; None: not known."""
    connections: dict[int, str] = field(default_factory=dict)
    """Number -> how it belongs to the session: 'CREATE_SESSION', 'BIND_CONN_TO_SESSION fore and back', 'used'."""
    flags: dict[int, StatusTally] = field(default_factory=dict)
    """By bit of sr_status_flags."""

    def on(self, connection: int, how: str) -> None:
        known = self.connections.get(connection)
        if known is None and len(self.connections) >= MAX_CONNECTIONS:
            return
        if known in (None, CALLED_BACK) or (known == USED and how != CALLED_BACK):
            self.connections[connection] = how


USED, CALLED_BACK = "used", "callbacks"


@dataclass(slots=True, eq=False)
class NfsClient:
    """A client, as a server knows it by a client ID (RFC 8881, 2.4)."""

    number: int
    """1-based, in order of appearance."""
    server: str
    """Address."""
    id: int | None
    """clientid4; None where the capture does not have it."""
    minor_version: int | None
    addresses: dict[str, None] = field(default_factory=dict)
    server_addresses: dict[str, None] = field(default_factory=dict)
    """Further addresses of the server, by which the client reached it, too."""
    owner: bytes | None = None
    """co_ownerid, or id of SETCLIENTID."""
    verifier: bytes | None = None
    implementation: str = ""
    server_implementation: str = ""
    roles: tuple[str, ...] = ()
    """Roles of the server, by the flags of EXCHANGE_ID: 'pNFS metadata server', 'pNFS data server', 'no pNFS'."""
    frame: int = 0
    """The frame of the reply to EXCHANGE_ID or SETCLIENTID; 0: before the capture."""
    time: int = 0
    confirmed_frame: int = 0
    ended_frame: int = 0
    ended_time: int = 0
    ended_by: str = ""
    before: NfsClient | None = None
    """The previous client ID of the same owner."""
    lost: str = ""
    """Why it took a new one."""
    lease: int | None = None
    """Seconds, as the attribute lease_time says."""
    renewals: int = 0
    renewed: tuple[int, int] | None = None
    """Time and frame of the latest renewal."""
    longest: tuple[int, int, int] | None = None
    """The longest interval without renewal: nanoseconds, frame before, frame behind."""
    opens: StateTable = field(default_factory=StateTable)
    locks: StateTable = field(default_factory=StateTable)
    delegations: StateTable = field(default_factory=StateTable)
    layouts: StateTable = field(default_factory=StateTable)
    denied: int = 0
    """Locks refused because another owner has them."""
    reclaims: int = 0
    """Opens and locks taken up again after state was lost."""
    reclaim_complete: int = 0
    """Frame of the reply to RECLAIM_COMPLETE; 0 without."""
    reclaimed_time: int = 0
    statuses: dict[str, StatusTally] = field(default_factory=dict)
    """Failures that say something about state."""
    listed: list[HeldState] = field(default_factory=list)
    """Delegations, in the order of their grants, or of the first that is known of them."""
    last_gap: float = 0
    """The last frame that shows missing calls of its host, infinity if any may be missing: what was granted or recalled
    before may have been returned."""
    lost_at: tuple[int, int] | None = None
    """Time and frame of the first reply that said that its state is lost."""
    grace_ended: tuple[int, int] | None = None
    """Time and frame of the first open or lock granted behind the last NFS4ERR_GRACE."""

    def renew(self, time: int, frame: int) -> None:
        self.renewals += 1
        if self.renewed is not None:
            passed = time - self.renewed[0]
            if self.longest is None or passed > self.longest[0]:
                self.longest = passed, self.renewed[1], frame
        self.renewed = time, frame

    def renew_often(self, times: Int64s, frames: Int64s) -> None:
        """Renew the lease at each of several times."""
        if self.renewed is None and len(times):
            self.renew(int(times[0]), int(frames[0]))
            times, frames = times[1:], frames[1:]
        if self.renewed is not None and len(times):
            passed = steps(times, self.renewed[0])
            longest = int(passed.argmax())
            if self.longest is None or passed[longest] > self.longest[0]:
                before = int(frames[longest - 1]) if longest else self.renewed[1]
                self.longest = int(passed[longest]), before, int(frames[longest])
            self.renewals += len(times)
            self.renewed = int(times[-1]), int(frames[-1])

    def note_status(self, status: str, frame: int, time: int) -> None:
        if status not in self.statuses and len(self.statuses) >= MAX_STATUSES:
            return
        self.statuses.setdefault(status, StatusTally()).add(frame, time)

    def states(self) -> Iterable[tuple[str, StateTable]]:
        return (
            ("opens", self.opens),
            ("locks", self.locks),
            ("delegations", self.delegations),
            ("layouts", self.layouts),
        )


@dataclass(frozen=True, slots=True)
class Wait:
    """Something that kept a client from going on, and for how long."""

    reason: str
    """'no slot', 'no credit', 'recall', 'delay', 'grace', 'no reply', 'state lost'."""
    client: NfsClient | None
    session: NfsSession | None
    connection: int | None
    first_time: int
    duration: int | None
    """Nanoseconds; up to the end of the capture where it has no end.  None: no reply says how long."""
    ended: bool
    count: int
    """Occasions, or calls that were answered so."""
    first_frame: int
    """0 where no frame is known."""
    last_frame: int
