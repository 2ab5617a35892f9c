"""The slots of an NFSv4.1 session's channel (RFC 8881, 2.10.6): in use over time, sequence gaps, retransmissions.

Fed requests and replies in the order of time, as they passed the capture point.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..onc.sequence import SlotRequest, SlotResult

MAX_SLOTS = 4096
"""Of a channel that are followed; requests on others are counted."""
MAX_EVENTS = 1000
"""That are listed of a channel; further ones are counted."""

RETRY, FALSE_RETRY, GAP = "retry", "false retry", "gap"


@dataclass(slots=True, eq=False)
class SlotUse:
    """One request on a slot."""

    rpc: int
    """Its number once it is known; 0 before."""
    connection: int
    frame: int
    time: int
    sequence: int
    cached: bool
    operations: tuple[str, ...] = ()
    reply_frame: int = 0
    """0 where no reply was seen."""
    status: str = ""
    """Of the whole reply."""
    refused: bool = False
    """SEQUENCE itself failed: the slot's sequence ID stays as it was."""


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
    slot: int
    expected: int
    """The next sequence ID."""
    use: SlotUse
    earlier: SlotUse | None
    """The request before; None where the session begins."""


@dataclass(slots=True, eq=False)
class _SlotState:
    last: SlotUse
    busy: bool = True


@dataclass(slots=True, eq=False)
class SlotTable:
    """Of the fore or the back channel of a session."""

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
    """Of them, those whose reply is to be kept."""
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
    _slots: dict[int, _SlotState] = field(default_factory=dict)
    _time: int = 0
    _freed: bool = False
    """The last event made a slot free where all were in use."""

    @property
    def limit(self) -> int | None:
        """Requests that may be outstanding now: slots agreed, or fewer where the replier wants that."""
        if self.target is None:
            return self.agreed
        return self.target + 1 if self.agreed is None else min(self.agreed, self.target + 1)

    def advance(self, time: int) -> None:
        if time > self._time:
            limit = self.limit
            if limit is not None and self.in_use >= limit:
                self.at_limit += time - self._time
            self._time = time

    def request(self, use: SlotUse, asked: SlotRequest) -> SlotEvent | None:
        """A request; an event where it is not the next on its slot."""
        self.advance(use.time)
        self.requests += 1
        self.cached += asked.cached
        self.highest = asked.slot if self.highest is None else max(self.highest, asked.slot)
        slot = self._slots.get(asked.slot)
        if slot is None and len(self._slots) >= MAX_SLOTS:
            self.untracked += 1
            return None
        event = self._event(use, asked, slot)
        if slot is None:
            slot = self._slots[asked.slot] = _SlotState(use, False)
        slot.last = use
        if not slot.busy:
            slot.busy = True
            self._taken(use)
        if event is not None:
            self.gaps += event.kind == GAP
            self.retries += event.kind != GAP
            if len(self.events) < MAX_EVENTS:
                self.events.append(event)
        return event

    def _event(self, use: SlotUse, asked: SlotRequest, slot: _SlotState | None) -> SlotEvent | None:
        if slot is None:
            wrong = self.begun and asked.sequence != 1
            return SlotEvent(GAP, asked.slot, 1, use, None) if wrong else None
        last = slot.last
        following = last.sequence + 1 & 0xFFFFFFFF
        if asked.sequence == following or (last.refused and asked.sequence == last.sequence):
            return None
        kind = RETRY if asked.sequence == last.sequence else GAP
        return SlotEvent(kind, asked.slot, following, use, last)

    def _taken(self, use: SlotUse) -> None:
        self.in_use += 1
        self.max_in_use = max(self.max_in_use, self.in_use)
        limit = self.limit
        if limit is not None and self.in_use == limit:
            self.at_limit_count += 1
            place = use.time, use.frame
            self.full = (self.full[0] if self.full else place), place
            self.refilled += self._freed
        self._freed = False

    def answered(self, use: SlotUse, slot: int, time: int, result: SlotResult | None) -> None:
        """The request has its reply, or will get none: then ``result`` is None."""
        self.advance(time)
        if result is not None:
            use.refused = result.status != 0
            if result.target is not None and result.target != self.target:
                self.target = result.target
                low, high = self.targets or (result.target, result.target)
                self.targets = min(low, result.target), max(high, result.target)
        known = self._slots.get(slot)
        if known is not None and known.last is use and known.busy:
            limit = self.limit
            self._freed = limit is not None and self.in_use >= limit
            known.busy = False
            self.in_use -= 1

    def settle(self) -> None:
        """Tell retries from false ones: all operations are known now."""
        for event in self.events:
            earlier = event.earlier
            if event.kind == RETRY and earlier is not None and event.use.operations != earlier.operations:
                event.kind = FALSE_RETRY
