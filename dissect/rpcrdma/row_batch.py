"""The loop that analyses one batch, row by row in the order of events.

An ordinary call, reply or transfer takes a few operations on dictionaries and lists of integers.  Whatever a row cannot
express takes a branch that turns the rows concerned into objects.
"""

from __future__ import annotations

from array import array
from bisect import insort
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from itertools import chain, groupby, islice, pairwise

import numpy as np
from numpy.typing import NDArray

from ..arrays import Bytes, Int64s, Rows, places, some, stretches
from ..named_tuple import NamedTuple
from ..onc.xdr import words2
from ..transport.connection import Link
from ..transport.operations import READ, SEND, WRITE, Operation
from ..transport.runs import EXTRA, INVALIDATE, Run, SendRun, TransferRun
from .caller_rows import CallerRows, Callers, OpenCalls
from .chunk_lists import READ_LIST, REPLY_CHUNK, WRITE_LIST
from .dispatch import Dispatcher
from .listeners import SentRows
from .matching import clock_set_back
from .memory import REORDERED, UNBOUNDED, advertised_chunks, note_returned
from .messages import Message
from .missing_calls import SOON, call_may_be_missing
from .negotiation import VersionUse
from .pending import LINGER, MAX_BESIDE_GAP
from .row_chunks import row_transfers
from .rpc_numbers import LATE, RpcNumbers
from .rpc_table import RPC, RpcRows
from .rpcs import Rpc
from .sends import SendColumns
from .transport_header import decode_header, record_header

OpenSince = Callable[[Dispatcher], Sequence[int | None]]
"""Per endpoint of the dispatcher's connection: the first frame of a message that is still incomplete, or None."""
Event = tuple[int, Link, Operation]
"""The number of the frame that it counts at, its link, the Operation."""
LinkRun = tuple[Link, Run]

_READ, _WRITE = int(READ), int(WRITE)

CALL, CHUNKED_CALL, REPLY, CHUNKED_REPLY, TRANSFER, SENT, EVENT = range(7)
"""Codes of events: calls, replies and transfers that are rows; a Send, or another Operation, that needs an object."""


MAX_OPEN = 1 << 12
"""Frames for which an unanswered call stays a row from batch to batch, each of which it costs time."""


MAX_HELD = 64
"""RDMA Reads and Writes on one end's memory that may wait, as rows, for the call that advertises it."""


def connection_number(link: Link) -> int:
    """The number of the connection of a link that has events."""
    assert link.connection is not None
    return link.connection.number


class Sends(NamedTuple):
    """The Sends of a batch that fit in one packet, one row each: first those of runs, then those that came as
    Operations, then the calls still open from earlier batches."""

    data: Bytes
    held: list[int]
    """Indices among the events of the Sends that came as Operations."""
    fresh: int
    """Number of Sends without the open calls; ``places`` and ``ranks`` have this length."""
    places: Int64s
    """Frame numbers that the Sends count at in the order of events."""
    ranks: Int64s
    """Order of each Send among the events with the same place."""
    runs: list[SendRun]
    rows: Rows
    """PACKET rows."""
    link: Int64s
    """Index of the connection."""
    sender: Int64s
    run: Int64s
    row: Int64s
    """Index in the run."""
    read: SendColumns
    procedures: Int64s
    """For calls that can be rows the index of the procedure's name; else -1."""
    unfinished: NDArray[np.bool_]
    """Calls truncated within the last operation of a COMPOUND, or before the first."""
    replies: NDArray[np.bool_]
    """Replies that can be rows."""

    @property
    def slots(self) -> Int64s:
        """Twice the index of the connection, plus 1 if the caller is the server; a Send that is neither call nor reply
        counts as its sender's."""
        return self.link << 1 | np.where(self.replies, 1 - self.sender, self.sender)

    def place(self, at: int) -> tuple[int, int]:
        """The sender, and the Send's position in the order of what that end sent: a PSN or a stream position."""
        positions = self.runs[int(self.run[at])].positions
        position = self.rows["psn"][at] if positions is None else positions[self.row[at]]
        return int(self.sender[at]), int(position)

    def message(self, at: int) -> Message:
        """The Send as an object."""
        operation = self.runs[int(self.run[at])].operation(int(self.row[at]))
        # The run may have dropped its own payload since.
        data, start = self.data.data, int(self.rows["payload"][at])
        end = start + int(self.rows["captured"][at])
        bare = not self.read.header[at]
        header = record_header(data, start, end) if bare else decode_header(data, start, end, operation.length)
        body = start + header.length
        return Message(operation, header, data, body, end, operation.length - header.length)


class RowBatch:
    """The calls, replies, transfers and other events of one batch."""

    def __init__(
        self,
        dispatchers: list[Dispatcher],
        sends: Sends,
        runs: list[LinkRun],
        events: Sequence[Event],
        ranks: Int64s,
        index: Mapping[int, int],
        numbers: RpcNumbers,
        opened: Sequence[OpenCalls],
        open_since: OpenSince,
    ) -> None:
        """``ranks``: from ``event_ranks``; ``opened``: calls left open by earlier batches."""
        self._sends, self._numbers, self._open_since = sends, numbers, open_since
        self._events = events
        self._memory: dict[int, int] = {}
        """Slot << 32 | handle -> the segment, advertised by an open call that is a row."""
        self._closed: dict[int, int] = {}
        """Slot << 32 | handle -> the answered pair that had advertised it; only kept for a listener."""
        self._call, self._reply = array("q"), array("q")
        """The calls and the replies of the pairs that are rows."""
        self.alone: list[tuple[int, int]] = []
        """Replies that ended as rows because their calls are not in the capture, with the numbers of their RPCs."""
        self._noted = {number for open_calls in opened for number in open_calls.numbers}
        self._gone: set[int] = set()
        """Pairs that became objects."""
        self._turn = 0
        """Counts the transfers and replies with chunks that waited for their calls."""
        self._shown: set[int] = set()
        """Replies with chunks that wait for their calls."""
        self._again: set[int] | None = None
        """Slot << 32 | XID of calls whose XID occurs twice in the batch; None until first needed."""
        listeners = [dispatcher.listener for dispatcher in dispatchers]
        self._reading = np.array([listener is not None and listener.reads_bytes for listener in listeners], np.bool_)
        """By connection: its listener reads bytes."""
        self._order(sends, runs, events, ranks, index, opened)
        size, calling = len(sends.rows), np.zeros(2 * len(dispatchers), np.bool_)
        calling[(sends.link << 1 | sends.sender)[sends.procedures >= 0]] = True
        self.callers = Callers(dispatchers, size, calling.tolist())
        self._columns(sends)
        self._reopen_calls(sends, opened)

    def _order(
        self,
        sends: Sends,
        runs: list[LinkRun],
        events: Sequence[Event],
        ranks: Int64s,
        index: Mapping[int, int],
        opened: Sequence[OpenCalls],
    ) -> None:
        """Sort everything by place: event code, slot, XID or handle, index."""
        parts: list[tuple[Int64s, ...]] = []
        single = np.ones(len(events), np.bool_)
        count = sends.fresh
        single[sends.held] = False
        read, code, calls = sends.read, np.full(len(sends.rows), SENT), sends.procedures >= 0
        code[calls] = np.where(read.chunked[calls], CHUNKED_CALL, CALL)
        code[sends.replies] = np.where(read.listed[sends.replies], CHUNKED_REPLY, REPLY)
        own = sends.slots[:count], read.xids[:count], np.arange(count)
        parts.append((sends.places, sends.ranks, code[:count], *own))
        transfers = [(index[connection_number(link)], run) for link, run in runs if isinstance(run, TransferRun)]
        others = [at for at, (_, _, operation) in enumerate(events) if operation.kind is not SEND and operation.length]
        moved = [(events[at][0], index[connection_number(events[at][1])], events[at][2]) for at in others]
        self.transfers = row_transfers(
            transfers, moved, [open_calls.transfers for open_calls in opened if open_calls.transfers]
        )
        count = len(self.transfers.rows) - sum([sum(open_calls.carried) for open_calls in opened])
        rows, slots = self.transfers.rows[:count], self.transfers.slot[:count]
        self.transfers.whole[:count] &= ~(rows["truncated"] & self._reading[slots >> 1])
        single[others] = False
        rank = rows["rank"].copy()
        rank[len(rows) - len(others) :] = ranks[others]
        handles, code = rows["handle"].astype(np.int64), np.full(len(rows), TRANSFER)
        parts.append((rows["place"], rank, code, slots, handles, np.arange(len(rows))))
        left = places(single)
        chosen = [events[at] for at in left.tolist()]
        place = np.array([place for place, _, _ in chosen], np.int64)
        slot = np.array([index[connection_number(link)] << 1 for _, link, _ in chosen], np.int64)
        parts.append((place, ranks[left], np.full(len(left), EVENT), slot, np.zeros_like(left), left))
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
        if not some(columns[1]):
            order = columns[0].argsort(kind="stable")
        else:
            order = np.lexsort((columns[1], columns[0]))
            place, owner = columns[0][order], columns[3][order] >> 1
            # A frame can also show that another connection went silent: break the tie alike wherever batches end.
            if some((place[1:] == place[:-1]) & (owner[1:] != owner[:-1])):
                order = np.lexsort((columns[1], np.array([*index])[columns[3] >> 1], columns[0]))
        self._items = [columns[number].take(order).data for number in (2, 3, 4, 5)]
        self._last_place = int(columns[0][order[-1]]) if len(order) else 0

    def _columns(self, sends: Sends) -> None:
        """Make what the loop looks up memoryviews of aligned columns: they convert a number only when it is accessed,
        and most are accessed once or never."""
        read, count = sends.read, len(sends.rows)
        self.numbers, self.orders = np.zeros((2, count), np.int64)
        """Per Send: the number of the RPC if the call was a row, and its order among the calls of its end."""
        self._drawn = self.numbers.data
        self._frames, self._sizes, self._times = (sends.rows[name].copy().data for name in ("frame", "length", "time"))
        self._senders, self._xids = sends.sender.data, read.xids.data
        self._chunked = read.chunked.data
        self._gaps_shown, self._gaps_before, self._gaps_well_before = self._count_gaps(sends)
        segments = read.segments
        self._time = sends.rows["time"][segments["send"]].data
        self._firsts = read.firsts.data
        self._owners, self._lists, self._handles, self._lengths, self._offsets = (
            segments[name].copy().data for name in ("send", "list", "handle", "length", "offset")
        )
        self._reached = segments["offset"].copy().data
        """Per segment: the address up to which it was read or written."""
        self.returned = np.full(len(segments), -1)
        self._segments = (
            self._firsts, self._lists, self._handles, self._offsets, self._lengths, self._reached, self.returned.data
        )  # fmt: skip
        self.carried: defaultdict[int, list[int]] = defaultdict(list)
        """Per segment of a call: the transfers on it."""
        self._kinds = np.where(segments["list"] == READ_LIST, _READ, _WRITE).data
        self._limits = (segments["offset"] + segments["length"]).data
        self._replied = read.counts[:, REPLY_CHUNK].copy().data
        rows, whole = self.transfers.rows, self.transfers.whole
        self._moved = (
            np.where(whole, rows["kind"], -1).data,
            rows["address"].astype(np.int64).data,
            rows["length"].copy().data,
            rows["first_time"].copy().data,
        )
        """Per transfer: kind (-1 if it is more than a row), address, length, time."""

    def _reopen_calls(self, sends: Sends, opened: Sequence[OpenCalls]) -> None:
        """Reopen the calls left open by earlier batches; those that can no longer be rows become objects."""
        first, count = sends.fresh, len(sends.rows)
        self.numbers[first:] = [*chain.from_iterable([open_calls.numbers for open_calls in opened])]
        self.orders[first:] = [*chain.from_iterable([open_calls.orders for open_calls in opened])]
        reached = [*chain.from_iterable([open_calls.reached for open_calls in opened])]
        np.asarray(self._reached)[self._firsts[first] :] = reached
        carrying = [*chain.from_iterable([open_calls.carried for open_calls in opened])]
        at = len(self.transfers.rows) - sum(carrying)
        for segment, carried in enumerate(carrying, self._firsts[first]):
            if carried:
                self.carried[segment] = [*range(at, at + carried)]
                at += carried
        slots = sends.slots[first:].tolist()
        for call, slot, xid in zip(range(first, count), slots, sends.read.xids[first:].tolist(), strict=True):
            caller = self.callers[slot]
            caller.open[xid] = call
            caller.counted += 1
            for segment in range(self._firsts[call], self._firsts[call + 1]):
                self._memory[slot << 32 | self._handles[segment]] = segment
        for call in places(sends.procedures[first:] < 0).tolist():
            self._make(self.callers[slots[call]], slots[call], first + call).detach()
        for slot in {*slots}:
            self.callers[slot].look()

    def _count_gaps(self, sends: Sends) -> tuple[Sequence[int], Sequence[int], Sequence[int]]:
        """Per Send, three counts of gaps in what either end sent: those that the capture has at least begun to show by
        its frame, those fully shown by then, and those fully shown ``REORDERED`` frames earlier."""
        counts = np.zeros((3, len(sends.rows)), np.int64)
        for link_index, dispatcher in enumerate(self.callers.dispatchers):
            if any(gaps := dispatcher.conversation.connection.gaps):
                first, last = np.sort([(gap.frame, gap.last_frame) for sent in gaps for gap in sent], axis=0).T
                mine = places(sends.link == link_index)
                at = sends.rows["frame"][mine]
                limits = (first, at), (last, at), (last, at - REORDERED)
                counts[:, mine] = [shown.searchsorted(limit, side="right") for shown, limit in limits]
        return counts[0].data, counts[1].data, counts[2].data

    def happen(self) -> None:
        """Process all events of the batch in order."""
        callers, numbers = self.callers, self._numbers
        drawn, chunked = self._drawn, self._chunked
        gaps_shown, gaps_before, gaps_well_before = self._gaps_shown, self._gaps_before, self._gaps_well_before
        memory, reached, carried = self._memory, self._reached, self.carried
        moved_by, moved_at, moved, moved_when = self._moved
        kinds, limits, sent = self._kinds, self._limits, self._time
        calls, replies = self._call, self._reply
        number = numbers.last
        for code, slot, key, at in zip(*self._items, strict=True):
            caller = callers[slot]
            if code <= CHUNKED_CALL:
                if (
                    (caller.ready or self._begins(slot, code, key, at))
                    and key not in caller.open
                    and not (caller.beside and key in caller.beside)
                    and not (
                        caller.careful
                        and (
                            key in caller.calls
                            or key in caller.waiting
                            or caller.short
                            or caller.doubtful is None
                            or key in caller.doubtful
                        )
                        and caller.refuses(key)
                    )
                    and (not caller.shown or key not in caller.shown or self._follows(caller, slot, code, key, at))
                    and (code == CALL or key in caller.shown or self._offer(caller, slot, at))
                ):
                    number += 1
                    drawn[at] = number
                    caller.called.append(at)
                    if caller.shown and key in caller.shown:
                        reply, drawn[at], _ = caller.shown[key]
                        number -= 1
                        if key in caller.behind:
                            continue
                        del caller.shown[key]
                        caller.answered.append(at)
                        caller.last = reply
                        calls.append(at)
                        replies.append(reply)
                        continue
                    caller.open[key] = at
                    if caller.log is not None:
                        caller.log.append(at)
                    continue
            elif code <= CHUNKED_REPLY:
                if (
                    (call := caller.open.get(key)) is not None
                    and (caller.ready or self._begins(slot, code, key, at))
                    and not (
                        (across := caller.gapped and gaps_shown[at] > gaps_well_before[call])
                        and gaps_shown[at] > gaps_before[call]
                        and caller.comes_again(key, call, drawn, number)
                    )
                    and ((code == REPLY and not chunked[call]) or self._completes(caller, slot, call, at))
                ):
                    del caller.open[key]
                    pair = len(calls)
                    caller.answered.append(call)
                    caller.last = at
                    if caller.gapped:
                        caller.used[key] = call
                        if across:
                            caller.beside[key] = pair, number
                    if caller.log is not None:
                        caller.log.append(~pair)
                    calls.append(call)
                    replies.append(at)
                    continue
                if key not in caller.open and caller.is_early(key) and (code == REPLY or self._shows(caller, slot, at)):
                    number += 1
                    caller.shown[key] = at, number, self._turn
                    continue
            elif (
                code == TRANSFER
                and (segment := memory.get(slot << 32 | key)) is not None
                and (address := moved_at[at]) == reached[segment]  # It continues where the previous transfer ended.
                and moved_by[at] == kinds[segment]
                and (end := address + moved[at]) <= limits[segment]
                and moved_when[at] >= sent[segment]
            ):
                reached[segment] = end
                carried[segment].append(at)
                continue
            elif code == TRANSFER and slot << 32 | key not in memory and self._holds(caller, key, at):
                continue
            if caller.dispatcher.conversation.protocol != "other":
                numbers.last, numbers.place = number, self._place(code, at)
                self._otherwise(code, slot, key, at)
                number = numbers.last
        numbers.last = number
        for slot in [*callers]:
            self._hand_over(slot)
            self._settle_behind(callers[slot], self._last_place)
        numbers.place = self._last_place
        if numbers.keeps_places:
            self._note_elsewhere()
        self._note_credits()
        every = [*callers.values()]
        for caller in every:
            self._log(caller)
        self._tell(every)
        for caller in every:
            if caller.shown or caller.beside or caller.direction.calls:
                self._finish(caller)

    def left(self, links: Sequence[Link], frames: int = MAX_OPEN) -> dict[int, OpenCalls]:
        """The calls still open after the batch, by connection number, for ``links``; calls older than the last
        ``frames`` frames become objects instead."""
        sends, open_calls = self._sends, dict[int, OpenCalls]()
        since = self._last_place - frames if frames else LATE
        for link_index, link in enumerate(links):
            calls, runs = list[int](), list[tuple[SendRun, Int64s]]()
            for slot in (link_index << 1, link_index << 1 | 1):
                if slot not in self.callers or not (caller := self.callers[slot]).open:
                    continue
                kept = [
                    call for call in caller.open.values() if caller.log is None and sends.rows["frame"][call] > since
                ]
                if len(kept) < len(caller.open):
                    self._make_others(caller, slot, {*kept})
                for run, same in groupby(kept, sends.run.__getitem__):
                    of_run = [*same]
                    runs.append((sends.runs[run], sends.row[of_run]))
                    calls += of_run
            if calls:
                open_calls[connection_number(link)] = self._left(link, calls, runs)
        return open_calls

    def _left(self, link: Link, calls: list[int], runs: list[tuple[SendRun, Int64s]]) -> OpenCalls:
        numbers: list[int] = self.numbers[calls].tolist()
        for call, number in zip(calls, numbers, strict=True):
            self._note(number, call)
        segments = [segment for call in calls for segment in range(self._firsts[call], self._firsts[call + 1])]
        carried = [self.carried.get(segment, ()) for segment in segments]
        moved = [*chain.from_iterable(carried)]
        return OpenCalls(
            link,
            self._last_place,
            runs,
            numbers,
            self.orders[calls].tolist(),
            [self._reached[segment] for segment in segments],
            [*map(len, carried)],
            self.transfers.kept(moved) if moved else None,
        )

    def _make_others(self, caller: CallerRows, slot: int, kept: Collection[int]) -> None:
        """Turn the open calls that are not in ``kept`` into objects."""
        ordered = bool(caller.direction.calls)
        for call in [call for call in caller.open.values() if call not in kept]:
            # It may stay open for long: keep a copy of its bytes, not the large batch they are in.
            self._make(caller, slot, call).detach()
        if ordered:
            calls = caller.direction.calls
            arranged = sorted(calls.items(), key=_first_order)
            calls.clear()
            calls.update(arranged)

    def _begins(self, slot: int, code: int, xid: int, send: int) -> bool:
        """Whether a call or reply can be a row although the connection's protocol or version is not settled yet."""
        use = VersionUse(self._frames[send], self._senders[send], 1, xid, self._sizes[send])
        taken = self.callers[slot].dispatcher.takes_row(use, code <= CHUNKED_CALL)
        for mine in (slot & ~1, slot | 1) if taken else ():
            if mine in self.callers:
                self.callers[mine].look()
        return taken

    def _place(self, code: int, at: int) -> int:
        """The event's place in the order of events, a frame number."""
        if code == EVENT:
            return self._events[at][0]
        return int(self.transfers.rows["place"][at] if code == TRANSFER else self._sends.places[at])

    def _note_elsewhere(self) -> None:
        """Note where numbers were drawn for Sends that count at another frame than their own, or share such a frame."""
        elsewhere = self._sends.places != self._sends.rows["frame"][: self._sends.fresh]
        if some(elsewhere):
            elsewhere |= np.isin(self._sends.places, self._sends.places[elsewhere])
        for at in places(elsewhere).tolist():
            if self._drawn[at]:
                self._note(self._drawn[at], at)

    def _note(self, number: int, send: int) -> None:
        """Note that this Send drew the number of an RPC: no row will show where."""
        if self._numbers.keeps_places and number not in self._noted:
            self._noted.add(number)
            self._numbers.made(number, int(self._sends.places[send]))

    # Memory

    def _offer(self, caller: CallerRows, slot: int, call: int) -> bool:
        """Advertise the memory of a call; False, and nothing advertised, if some of it already is."""
        memory, handles, known = self._memory, self._handles, caller.matching.known_memory
        first, behind = self._firsts[call], self._firsts[call + 1]
        offered = known.segments[caller.caller] if known is not None else ()
        for segment in range(first, behind):
            handle = handles[segment]
            key = slot << 32 | handle
            if key in memory or handle in offered:
                for taken in range(first, segment):
                    del memory[slot << 32 | handles[taken]]
                return False
            memory[key] = segment
        return True

    def _withdraw(self, slot: int, call: int) -> None:
        """Unregister the memory of a call that is no longer open as a row."""
        for segment in range(self._firsts[call], self._firsts[call + 1]):
            del self._memory[slot << 32 | self._handles[segment]]

    def _completes(self, caller: CallerRows, slot: int, call: int, reply: int) -> bool:
        """Whether a reply returns the call's memory, all of it transferred, so that the pair can stay rows."""
        return (
            self._completes_early(caller, slot, call, reply)
            if caller.early
            else self._returns(caller, slot, call, reply)
        )

    def _returns(self, caller: CallerRows, slot: int, call: int, reply: int) -> bool:
        """``_completes`` for a call without transfers that came before it."""
        firsts, lists, handles, offsets, lengths, reached, returned = self._segments
        first, behind, at, end = firsts[call], firsts[call + 1], firsts[reply], firsts[reply + 1]
        if at < end and (chunks := self._replied[reply]) and chunks != self._replied[call]:
            return False
        foreign = caller.foreign if caller.foreign is not None else caller.foreign_memory()
        for segment in range(first, behind):
            handle, offset, kind = handles[segment], offsets[segment], lists[segment]
            moved = reached[segment] - offset
            if foreign and handle in foreign:
                return False
            if kind == READ_LIST:
                if moved != lengths[segment]:
                    return False
            elif at < end and lists[at] == kind:
                if handles[at] != handle or offsets[at] != offset or lengths[at] != moved:
                    return False
                returned[segment] = moved
                at += 1
            elif moved or kind != REPLY_CHUNK:
                return False
        if at < end or (caller.whole_transfers and not self._is_whole_transfer(call, reply)):
            return False
        for segment in range(first, behind):
            key = slot << 32 | handles[segment]
            del self._memory[key]
            if caller.log is not None:
                self._closed[key] = len(self._call)
        return True

    def _is_whole_transfer(self, call: int, reply: int) -> bool:
        """Whether one RDMA Write filled the call's only segment, a Reply chunk, and no other handle is invalidated."""
        segment = self._firsts[call]
        row = self._sends.rows[reply]
        return (
            self._firsts[call + 1] == segment + 1
            and self._lists[segment] == REPLY_CHUNK
            and len(self.carried.get(segment, ())) == 1
            and (EXTRA[row["opcode"]] != INVALIDATE or int(row["immediate"]) == self._handles[segment])
        )

    # What is more than rows say

    def _otherwise(self, code: int, slot: int, key: int, at: int) -> None:
        """Process an event that rows cannot express, through the dispatcher."""
        both = self.callers[slot & ~1], self.callers[slot | 1]
        self._log(both[0])
        if code == TRANSFER:
            self._hand_over(slot)
            segment = self._memory.get(slot << 32 | key)
            if segment is not None:
                self._make(self.callers[slot], slot, self._owners[segment])
            pair = self._closed.pop(slot << 32 | key, None)
            if pair is not None and pair not in self._gone:  # A listener may ask about transfers after the reply.
                place = self._numbers.place
                self._gone.add(pair)
                self.end(self._call[pair], self._reply[pair])
                self._numbers.place = place
            operation = self.transfers.operations[at]
        elif code == EVENT:
            self._hand_over(slot)
            _, _, operation = self._events[at]
            if operation.kind is SEND:
                data, start, end = operation.payload.prefix()
                self._prepare(slot, words2(data, start)[0] if end - start >= 8 else -1, True)
        else:
            read = self._sends.read
            self._prepare(slot, key, bool(read.listed[at]) or not read.usual[at])
            operation = self._sends.runs[int(self._sends.run[at])].operation(int(self._sends.row[at]))
        self._take(both, operation)
        for caller in both:
            caller.look()

    def _take(self, both: Sequence[CallerRows], operation: Operation) -> None:
        """Give an Operation to the dispatcher, which meanwhile counts the early replies as replies without a call."""
        memory = both[0].matching.known_memory if both[0].shown or both[1].shown else None
        if memory is None:
            both[0].dispatcher.take(operation)
            return
        shown = [self._sends.place(reply) for caller in both for reply, _, _ in caller.shown.values()]
        memory.strangers += shown
        both[0].dispatcher.take(operation)
        memory.strangers = [stranger for stranger in memory.strangers if stranger not in shown]

    def _prepare(self, slot: int, xid: int, chunked: bool) -> None:
        """Before a Send with this XID is processed: turn what it may touch into objects; if it may have chunks, also
        all open calls that have chunks."""
        ends = slot & ~1, slot | 1
        if chunked or any(self.callers[mine].shown.get(xid, (-1,))[0] in self._shown for mine in ends):
            self._hand_over(slot)
        for mine in ends:
            caller = self.callers[mine]
            if xid in caller.behind:
                self._settle_behind(caller, self._numbers.place)
            self._tell((caller,))
            if xid in caller.open:
                self._make(caller, mine, caller.open[xid])
            if xid in caller.beside:
                self._reopen(caller, xid)
            if xid in caller.shown:
                self._wait(caller, xid)
            every = caller.outstanding >= caller.room
            for late in [*caller.behind] if every else ():
                self._wait(caller, late)
            if caller.open and (chunked or every):
                for call in [call for call in caller.open.values() if every or self._chunked[call]]:
                    self._make(caller, mine, call)

    def _tell(self, callers: Sequence[CallerRows]) -> None:
        """Bring ``Matching`` up to date with the calls and replies processed as rows."""
        frames, credits, orders = self._frames, self._sends.read.credits, self.orders.data
        for caller in callers:
            direction, called, answered = caller.direction, caller.called, caller.answered
            if caller.outstanding != caller.counted:
                direction.outstanding += caller.outstanding - caller.counted
                caller.counted = caller.outstanding
            if called:
                for order, call in enumerate(called, direction.sent + 1):
                    orders[call] = order
                direction.sent += len(called)
                called.clear()
            if answered:
                turns = [orders[call] for call in answered]
                in_order = direction.last_answered <= turns[0] and turns == sorted(turns)
                direction.in_order = direction.in_order and in_order
                direction.last_answered = turns[-1]
                if (granted := int(credits[caller.last])) >= 0:
                    direction.granted = granted
                direction.replied = direction.replied or frames[caller.last]
                direction.answered.extend(self._xids, self._drawn, answered)
                answered.clear()

    def _log(self, caller: CallerRows) -> None:
        """Pass the calls and replies processed as rows to the listener."""
        if not caller.log:
            return
        sends, log = self._sends, caller.log
        at = np.array([entry if entry >= 0 else self._reply[~entry] for entry in log])
        call = np.array([entry if entry >= 0 else self._call[~entry] for entry in log])
        frames, read = sends.rows["frame"], sends.read
        sent = SentRows(
            np.array(log) >= 0,
            sends.sender[call],
            self.numbers[call],
            frames[at].astype(np.int64),
            sends.rows["time"][at],
            read.xids[at],
            read.credits[at],
            frames[call].astype(np.int64),
            np.array([self._handles[self._firsts[send]] if self._chunked[send] else -1 for send in at.tolist()]),
        )
        log.clear()
        assert caller.dispatcher.listener is not None
        caller.dispatcher.listener.rows_sent(sent)

    def tell_listeners(self, rows: RpcRows | None) -> None:
        """Tell every listener which RPCs ended as rows in this batch."""
        parts: dict[int, Rows] = {}
        listening = [dispatcher for dispatcher in self.callers.dispatchers if dispatcher.listener is not None]
        if rows is not None and listening:
            ordered = rows.rows.take(np.lexsort((rows.rows["number"], rows.rows["connection"])))
            numbers = ordered["connection"]
            for first, behind in pairwise([*stretches(numbers).tolist(), len(numbers)]):
                parts[int(numbers[first])] = ordered[first:behind]
        for dispatcher in listening:
            mine = parts.get(dispatcher.conversation.connection.number)
            assert dispatcher.listener is not None
            if mine is None or rows is None:
                dispatcher.listener.rows_ended(np.empty(0, RPC), None)
            else:
                dispatcher.listener.rows_ended(mine, rows)

    def _make(self, caller: CallerRows, slot: int, call: int) -> Message:
        """Turn an open call into an object."""
        self._hand_over(slot)
        self._tell((caller,))
        rpc = self._rpc(caller, call)
        assert rpc.call is not None
        del caller.open[rpc.xid]
        caller.counted -= 1
        if caller.dispatcher.listener is not None:
            self._log(caller)
            caller.dispatcher.listener.row_made(rpc)
        if rpc.chunks:
            self._withdraw(slot, call)
            caller.matching.memory.segments[caller.caller].add(rpc)
        caller.direction.calls[rpc.xid] = [rpc]
        return rpc.call

    def _rpc(self, caller: CallerRows, call: int) -> Rpc:
        """A new Rpc made of a call's row."""
        message = self._sends.message(call)
        conversation, header = caller.matching.conversation, message.header
        rpc = Rpc(self._drawn[call], conversation, caller.caller == 1, header.xid, message)
        rpc.order = int(self.orders[call])
        self._note(rpc.number, call)
        if header.chunks:
            rpc.chunks = advertised_chunks(header)
            uses = [use for chunk in rpc.chunks for use in chunk.segments]
            for use, segment in zip(uses, range(self._firsts[call], self._firsts[call + 1]), strict=True):
                use.operations += [self.transfers.operations[at] for at in self.carried.get(segment, ())]
        return rpc

    def _answered(self, caller: CallerRows, call: int, reply: int) -> Rpc:
        """A new Rpc made of a pair."""
        rpc = self._rpc(caller, call)
        rpc.reply = self._sends.message(reply)
        note_returned(rpc, rpc.reply.header)
        if caller.dispatcher.listener is not None:
            self._log(caller)
            caller.dispatcher.listener.row_made(rpc)
        return rpc

    def _follows(self, caller: CallerRows, slot: int, code: int, xid: int, call: int) -> bool:
        """Whether the reply that is shown before this call answers it, at once or unless another reply comes."""
        reply, number, turn = caller.shown[xid]
        frames, times = self._frames, self._times
        shown = self._gaps_shown
        beside = caller.gapped and (
            shown[reply] > self._gaps_well_before[call] or shown[call] > self._gaps_before[reply]
        )
        if beside or xid in caller.behind or frames[reply] < frames[call] - REORDERED:
            return False
        if clock_set_back(frames[reply], times[reply], frames[call], times[call]):
            return False
        behind = times[reply] < times[call]
        if behind and self._was_answered(caller, slot, xid):  # The reply may be to a missing call with this XID.
            return False
        if code == CHUNKED_CALL or reply in self._shown:
            if not self._offer(caller, slot, call):
                return False
            if not self._completes_early(caller, slot, call, reply, turn):
                self._withdraw(slot, call)
                return False
        elif behind:
            if not self._waits_behind(caller, call, reply):
                return False
            caller.behind[xid] = call
        self._note(number, reply)
        return True

    def _was_answered(self, caller: CallerRows, slot: int, xid: int) -> bool:
        """Whether a recently answered call had this XID."""
        if self._again is None:
            calls = places(self._sends.procedures >= 0)
            keys = np.sort(self._sends.slots[calls] << 32 | self._sends.read.xids[calls])
            self._again = {*keys[1:][keys[1:] == keys[:-1]].tolist()}
        if slot << 32 | xid not in self._again and xid not in caller.direction.answered:
            return False
        self._tell((caller,))
        return xid in caller.direction.answered

    def _waits_behind(self, caller: CallerRows, call: int, reply: int) -> bool:
        """Whether a call that follows its reply by frame and time can wait with it as a row: no other call with its XID
        can be missing or precede the capture."""
        frames, connection = self._frames, caller.dispatcher.conversation.connection
        missing = caller.gapped and call_may_be_missing(connection, caller.caller, frames[reply], frames[call])
        return bool(connection.start_known or caller.direction.replied) and not missing

    def _settle_behind(self, caller: CallerRows, place: int) -> None:
        """Match calls with the replies shown before them, once no other reply came within ``REORDERED`` frames."""
        for xid, call in [*caller.behind.items()]:
            reply = caller.shown[xid][0]
            if place - self._frames[reply] > REORDERED:
                del caller.behind[xid], caller.shown[xid]
                caller.answered.append(call)
                caller.last = reply
                if caller.gapped:
                    caller.used[xid] = call
                self._call.append(call)
                self._reply.append(reply)

    def _shows(self, caller: CallerRows, slot: int, reply: int) -> bool:
        """Whether a reply with chunks can wait for its call as a row: nothing else concerns the memory it returns."""
        if caller.gapped or caller.dispatcher.conversation.connection.unread_packets[1 - caller.caller]:
            return False
        known, foreign = caller.matching.known_memory, caller.foreign_memory()
        for segment in range(self._firsts[reply], self._firsts[reply + 1]):
            handle = self._handles[segment]
            if slot << 32 | handle in self._memory or handle in foreign:
                return False
            if known is not None and handle in known.segments[caller.caller]:
                return False
        self._turn += 1
        self._shown.add(reply)
        return True

    def _holds(self, caller: CallerRows, handle: int, transfer: int) -> bool:
        """Let a transfer on memory that no call has advertised wait for its call as a row; False if it cannot."""
        known = caller.matching.known_memory
        if not caller.ready or caller.log is not None or caller.gapped or caller.held >= MAX_HELD:
            return False
        if known is not None and (
            handle in known.segments[caller.caller] or len(known.unplaced) > REORDERED - 2 * MAX_HELD
        ):
            return False
        caller.early.setdefault(handle, []).append((self._turn, transfer))
        caller.held += 1
        self._turn += 1
        return True

    def _completes_early(self, caller: CallerRows, slot: int, call: int, reply: int, turn: int | None = None) -> bool:
        """``_completes`` where transfers came before the call; ``turn``: that of the reply, if it came first, too."""
        moved_by, moved_at, moved, _ = self._moved
        frames = self.transfers.rows["first_frame"]
        segments = [*range(self._firsts[call], self._firsts[call + 1])]
        early = {at: waiting for at in segments if (waiting := caller.early.pop(self._handles[at], None))}
        transfers = [*chain.from_iterable(early.values())]
        right = (not early and turn is None) or self._is_own(caller, call, reply, turn, transfers)
        ends: dict[int, int] = {}
        for segment, waiting in early.items():
            reached, before = self._reached[segment], 0
            for _, at in waiting:
                right &= moved_by[at] == self._kinds[segment] and moved_at[at] == reached and bool(before < frames[at])
                reached, before = reached + moved[at], frames[at]
            right &= reached <= self._limits[segment] and not self.carried.get(segment)
            ends[segment] = reached
        if right:
            for segment, reached in ends.items():
                self._reached[segment] = reached
            if self._returns(caller, slot, call, reply):
                for segment, waiting in early.items():
                    self.carried[segment] = [at for _, at in waiting]
                caller.held -= len(transfers)
                return True
        for segment, waiting in early.items():
            if right:
                self._reached[segment] = self._offsets[segment]
            caller.early[self._handles[segment]] = waiting
        return False

    def _is_own(
        self, caller: CallerRows, call: int, reply: int, turn: int | None, transfers: Sequence[tuple[int, int]]
    ) -> bool:
        """Whether transfers that came before a call on its memory, each with its turn, can belong to no other call;
        ``turn``: that of the reply, if it came before the call, too."""
        frames, times = self.transfers.rows["first_frame"], self._moved[3]
        frame, time = self._frames[call], self._times[call]
        until = self._turn if turn is None else turn
        if any(came >= until for came, _ in transfers):
            return False
        first = min([int(frames[at]) for _, at in transfers], default=UNBOUNDED)
        if frame < min(first, self._frames[reply]) and all(times[at] >= time for _, at in transfers):
            return True  # Frames are out of order, times are not: the call was sent first.
        connection, known = caller.dispatcher.conversation.connection, caller.matching.known_memory
        if caller.gapped or not connection.start_known or connection.unread_packets[1 - caller.caller]:
            return False
        reads = [(came, at) for came, at in transfers if self._moved[0][at] == _READ]
        if turn is not None and self._times[reply] < time and not reads and not self._returns_all(call, reply):
            return False
        early = min([came for came, at in reads if times[at] < time], default=until)
        strangers = [other for other, _, came in caller.shown.values() if early < came <= until and other != reply]
        if early < until and (strangers or (known is not None and known.strangers)):
            return False
        return first >= frame - REORDERED

    def _returns_all(self, call: int, reply: int) -> bool:
        """Whether the reply returns any memory, and as many segments as the call advertised for Writes."""
        offered, returned = self._sends.read.counts[[call, reply], WRITE_LIST:].sum(axis=1).tolist()
        return bool(returned) and offered == returned

    def _hand_over(self, slot: int) -> None:
        """Turn transfers and replies that wait for their calls into objects: other events may concern their memory."""
        if not self._turn:
            return
        both, place = (self.callers[slot & ~1], self.callers[slot | 1]), self._numbers.place
        for _, transfer in sorted(
            chain.from_iterable([waiting for caller in both for waiting in caller.early.values()])
        ):
            self._numbers.place = self._place(TRANSFER, transfer)
            self._take(both, self.transfers.operations[transfer])
        self._numbers.place = place
        for caller in both:
            caller.early, caller.held = {}, 0
            for xid in [xid for xid, (reply, *_) in caller.shown.items() if reply in self._shown]:
                self._wait(caller, xid)

    def _wait(self, caller: CallerRows, xid: int) -> None:
        """Let ``Matching`` hold a reply that came before its call, and the call if it came since."""
        self._tell((caller,))
        reply, number, _ = caller.shown.pop(xid)
        self._note(number, reply)
        caller.matching.wait_early(number, 1 - caller.caller, self._sends.message(reply), xid in caller.behind)
        if xid in caller.behind:
            caller.open[xid] = call = caller.behind.pop(xid)
            self._make(caller, int(self._sends.link[call]) << 1 | caller.caller, call)
        caller.look()

    def _reopen(self, caller: CallerRows, xid: int) -> None:
        """Turn a pair into an object if its RPC is still to wait for a second reply, or its match is doubtful."""
        self._tell((caller,))
        waits = xid in islice(reversed(caller.beside), MAX_BESIDE_GAP)
        pair, latest = caller.beside.pop(xid)
        call, reply = self._call[pair], self._reply[pair]
        again = caller.direction.answered.soonest <= SOON + latest - self._drawn[call]
        if pair in self._gone or not (waits or again):
            return
        self._gone.add(pair)
        rpc = self._answered(caller, call, reply)
        rpc.detach()
        caller.matching.note_again(rpc, latest)
        insort(caller.matching.unsettled.beside_gap, rpc, key=_reply_frame)

    def end(self, call: int, reply: int) -> None:
        """Turn a pair into an object and conclude it: rows cannot express how it ended."""
        caller = self.callers[int(self._sends.link[call]) << 1 | int(self._sends.sender[call])]
        rpc = self._answered(caller, call, reply)
        self._numbers.place = rpc.reply_frame
        caller.matching.conclude(rpc)

    # The end

    def _note_credits(self) -> None:
        """Note the credits that clients requested and servers granted."""
        sends = self._sends
        for sender, at in enumerate((places(self.numbers), self._paired[1])):
            forward = at[(sends.sender[at] == sender) & (sends.read.credits[at] >= 0)] if len(at) else at
            if not len(forward):
                continue
            order = forward[sends.link[forward].argsort(kind="stable")]
            link, credits = sends.link[order], sends.read.credits[order]
            starts = stretches(link)
            for link_index, low, high in zip(
                link[starts].tolist(),
                np.minimum.reduceat(credits, starts).tolist(),
                np.maximum.reduceat(credits, starts).tolist(),
                strict=True,
            ):
                conversation = self.callers.dispatchers[link_index].conversation
                note = conversation.note_granted if sender else conversation.note_requested
                note(low)
                note(high)

    def _finish(self, caller: CallerRows) -> None:
        """Settle, at the end of the batch, what rows cannot keep waiting."""
        if caller.shown:
            self._end_shown(caller)
        for rpc in chain.from_iterable(caller.direction.calls.values()):
            rpc.own_rows()
        if caller.beside:
            latest = int(self._sends.rows["time"].max()) - LINGER
            again = caller.direction.answered.soonest < LATE
            newest = islice(reversed(caller.beside.items()), None if again else MAX_BESIDE_GAP)
            for xid, (pair, _) in [*newest][::-1]:
                if again or self._times[self._reply[pair]] >= latest:
                    self._reopen(caller, xid)
            waiting = caller.matching.unsettled.beside_gap
            while len(waiting) > MAX_BESIDE_GAP:
                caller.matching.conclude(waiting.pop(0))

    def _end_shown(self, caller: CallerRows) -> None:
        """End replies whose calls did not come as rows, if they waited long enough; let the others wait as objects."""
        matching, until = caller.matching, self._last_place - REORDERED
        connection, answered = matching.conversation.connection, matching.directions[caller.caller].answered
        if (since := self._open_since(caller.dispatcher)[caller.caller]) is not None:
            until = min(until, since)  # Any reply after it may be its reply.
        if not caller.ready or self._numbers.keeps_places or connection.reused_psns or connection.migrated_from:
            until = 0
        for xid, (reply, number, _) in [*caller.shown.items()]:
            frame = self._frames[reply]
            if frame >= until or reply in self._shown or xid in caller.behind or xid in answered:
                self._wait(caller, xid)
            else:
                self.alone.append((reply, number))
                matching.end_alone(*self._sends.place(reply), frame)

    def pairs(self) -> tuple[Int64s, Int64s]:
        """Calls and replies that stayed rows, ordered by reply."""
        calls, replies = np.delete(self._paired, np.fromiter(self._gone, np.int64), axis=1)
        return calls, replies

    @cached_property
    def _paired(self) -> Int64s:
        """All pairs, calls in row 0 and replies in row 1; to be used when the loop is over."""
        return np.array((self._call, self._reply))


def _reply_frame(rpc: Rpc) -> int:
    return rpc.reply_frame


def _first_order(item: tuple[int, list[Rpc]]) -> int:
    return item[1][0].order
