"""Plain RPCs in columns: calls and replies of a whole batch decoded and matched at once, without an object each.

Two ways lead from Operations to RPCs.  ``Dispatcher`` and ``Matching`` take one Operation after the other, and
know everything that may happen; they are the reference.  This module takes what nearly all metadata traffic is: a call
and its reply in one batch, each one packet, of an XID that has only such calls and replies in turn, on a connection on
which nothing unusual is under way; and of bulk traffic RPCs whose chunks were transferred without fault.  All else
goes the first way, and what depends on the order of events (numbers of RPCs, places among calls, credits) is kept as
if the plain RPCs had gone that way, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays import Bytes, Int64s, Rows, joined
from ..layers.rpcrdma_codes import RDMA_MSG
from ..onc.xdr import words2
from ..transport.connection import Link
from ..transport.operations import SEND, Operation
from ..transport.runs import EXTRA, IMMEDIATE, INVALIDATE, Run, SendRun, TransferRun
from .chunk_columns import PlainChunks, note_chunks
from .chunk_lists import READ_LIST
from .dispatch import Dispatcher
from .listeners import PlainPairs
from .missing_calls import beside_gap
from .plain_batch import Event, LinkRun, PlainBatch, connection_number
from .plain_chunks import Candidates, Conversations, LinkTransfers, advertised, header_of, quiet
from .plain_sends import SHORTEST_REPLY, PlainNames, PlainSends, read_sends, usual
from .rpc_table import RPC, STATES, PlainRpcs
from .transport_header import decode_header

_NEITHER, NO_TURN = 5, 6
"""In place of a call or reply: what is never right, and what nothing may follow."""


def in_turn(
    link: Int64s, sender: Int64s, frame: Rows, read: PlainSends, others: Mapping[int, int]
) -> tuple[Int64s, Int64s]:
    """Of each Send the next with its connection and XID, and a number for these two.

    -1 where there is none, and for all of an XID whose calls and replies do not take turns.  ``others``: what came
    before, by connection << 32 | XID: twice the caller where it is an open call, which is what a call counts as, and
    a reply as one more than its call; else ``NO_TURN``.
    """
    keys = link << 32 | read.xids
    order = np.lexsort((frame, keys))
    keys = keys[order]
    first = np.append(True, keys[1:] != keys[:-1])
    sent = np.where(read.call, 2 * sender, np.where(read.reply, 3 - 2 * sender, _NEITHER))[order]
    before = np.where(first, 1, np.roll(sent, 1))
    known = np.array([*others], np.int64)
    places = keys.searchsorted(known)
    there = keys.take(places, mode="clip") == known
    before[places[there]] = np.array([*others.values()], np.int64)[there]
    wrong = np.where(before & 1, sent & 1, sent != before + 1)
    grouped = np.cumsum(first) - 1
    following, numbers = np.full(len(keys), -1), np.empty_like(grouped)
    following[order[:-1]] = np.where(first[1:] | (np.bincount(grouped, wrong) > 0)[grouped[1:]], -1, order[1:])
    numbers[order] = grouped
    return following, numbers


MIN_ROWS = 64
"""Sends of a batch from which on columns take less time than objects."""
MIN_SHARE = 8
"""Columns take less time than objects where at least one of so many Sends is a plain call, and one a plain reply."""
PAUSE = 8
"""Batches, behind one in which columns did not pay, that go the first way."""
_FIRST_RESULT = 6
"""The word of a plain reply with which its results begin."""
NEVER = 1 << 62

LinkSends = tuple[Link, SendRun]
Part = tuple[Link, Run, Int64s]
"""Some rows of a run."""
Others = dict[int, list[tuple[int, Operation]]]
"""By connection number: Sends that are in no run, with their places in the order of events."""


class _Sends(NamedTuple):
    """All Sends in the runs of a batch, a row each."""

    rows: Rows
    """PACKET rows."""
    link: Int64s
    """Index of the connection."""
    sender: Int64s
    run: Int64s
    row: Int64s
    """Index in the run."""
    unusual: NDArray[np.bool_]
    """Its Operation knows more than the row."""

    @property
    def directions(self) -> Int64s:
        """The upper bits of a key of connection, sender and XID."""
        return (self.link << 1 | self.sender) << 32


class _Pairs(NamedTuple):
    """Plain RPCs, a row each; calls and replies are indices of Sends."""

    call: Int64s
    reply: Int64s
    procedures: Int64s
    statuses: Int64s
    chunks: Int64s
    """Index in the chunks of RPCs; -1 for those without."""


class PlainWay:
    """Of one Analyzer."""

    def __init__(self, dispatcher: Callable[[Link], Dispatcher]) -> None:
        """``dispatcher`` gives that of a connection."""
        self._dispatcher = dispatcher
        self._names = PlainNames()
        self._paused = 0

    def wanted(self) -> bool:
        """Whether the Sends of the next batch should come in runs; asked once for each batch."""
        self._paused -= self._paused > 0
        return not self._paused

    def take(self, runs: list[LinkRun], events: list[Event]) -> tuple[list[Event], PlainBatch | None]:
        """The events of a batch with what of ``runs`` is not plain among them, in their order; and what is plain."""
        sent = [(link, run) for link, run in runs if isinstance(run, SendRun)]
        if sum([len(run) for _, run in sent]) < MIN_ROWS:
            return _merged(events, runs), None
        if self._names.full:
            self._names = PlainNames()
        self._know(runs, events)
        links, sends = self._quiet(sent, events)
        if not links:
            return _merged(events, runs), None
        index = {connection_number(link): place for place, link in enumerate(links)}
        rest = [one for one in runs if connection_number(one[0]) not in index]
        mine = [one for one in sent if connection_number(one[0]) in index]
        transfers = [
            (place, run)
            for link, run in runs
            if isinstance(run, TransferRun) and (place := index.get(connection_number(link))) is not None
        ]
        columns = _columns(mine, index)
        data = mine[0][1].data
        assert data is not None
        rows = columns.rows
        read = read_sends(data, rows["payload"], rows["captured"].astype(np.int64))
        plain = min(int(np.count_nonzero(read.call)), int(np.count_nonzero(read.reply)))
        self._paused = PAUSE + 1 if MIN_SHARE * plain < len(rows) else 0
        if self._paused or self._too_many_open(links, columns, read, sends):
            return _merged(events, runs), None
        usable = (rows["frame"] > self._settled(links, columns, read, sends)[columns.link]) & ~columns.unusual
        following, xids = in_turn(columns.link, columns.sender, rows["frame"], read, self._others(links, sends))
        pairs = self._pairs(data, columns, read, usable, following)
        pairs = _chosen(pairs, ~beside_gap(links, columns.link, columns.sender, rows, *pairs[:2]))
        pairs, chunks = self._chunked(data, columns, read, pairs, links, sends, events, transfers)
        pairs = self._accepted(data, links, columns, read, pairs, chunks)
        pairs = self._answered(read, pairs, rows["captured"], chunks)
        # Where its call may be missing a reply that returns memory waits, and the open call of its XID stays open.
        gaps = [
            any((*one.gaps, *one.missing_packets))
            for one in (self._dispatcher(link).conversation.connection for link in links)
        ]
        waits = read.listed & np.array(gaps)[columns.link]
        waits[pairs.call] = waits[pairs.reply] = False
        pairs = _chosen(pairs, ~np.isin(xids[pairs.call], xids[waits]))
        if not len(pairs.call):
            return _merged(events, runs), None
        if chunks is not None:
            through = pairs.chunks >= 0
            chunks = chunks.chosen(pairs.chunks[through])
            pairs.chunks[through] = np.arange(int(np.count_nonzero(through)))
            if taken := set(map(id, chunks.found.single)):
                events = [event for event in events if id(event[2]) not in taken]
        single = np.ones(len(rows), np.bool_)
        single[pairs.call] = single[pairs.reply] = False
        left: list[Part] = [(*one, part) for one, part in zip(mine, _parts(mine, single), strict=True)]
        for number, (place, run) in enumerate(transfers):
            left.append((links[place], run, np.arange(len(run)) if chunks is None else chunks.found.others_of(number)))
        events = _merged(events, rest, left)
        return events, self._batch(data, [run for _, run in mine], links, columns, read, pairs, chunks, events)

    def _know(self, runs: list[LinkRun], events: list[Event]) -> None:
        """Make the dispatchers of new connections, in the order of their first events."""
        firsts: dict[int, tuple[int, Link]] = {}
        for owner, run in runs:
            if (known := firsts.get(id(owner))) is None or run.place < known[0]:
                firsts[id(owner)] = run.place, owner
        before: Link | None = None
        for place, link, _ in events:  # In ascending order.
            if link is not before:
                before = link
                if (known := firsts.get(id(link))) is None or place < known[0]:
                    firsts[id(link)] = place, link
        for _, link in sorted(firsts.values(), key=itemgetter(0)):
            self._dispatcher(link)

    def _quiet(self, runs: list[LinkSends], events: list[Event]) -> tuple[list[Link], Others]:
        """The connections on which nothing unusual is under way, and the other Sends of all."""
        links = {connection_number(link): link for link, _ in runs}
        sends: Others = {}
        for place, where, operation in events:
            if operation.kind is SEND and (number := connection_number(where)) in links:
                sends.setdefault(number, []).append((place, operation))
        quiet: list[Link] = []
        for number, link in links.items():
            dispatcher = self._dispatcher(link)
            matching, conversation = dispatcher.matching, dispatcher.conversation
            others = sends.get(number, [])
            if (
                (conversation.protocol == "rpcrdma" or dispatcher.untouched)
                and (matching.settled == 1 or not (matching.settled or conversation.negotiation.refused))
                and (matching.listener is None or matching.columns is not None)
                and not (dispatcher.undirected[0] or dispatcher.undirected[1])
                and all(usual(operation) for _, operation in others)
            ):
                quiet.append(link)
        return quiet, sends

    def _too_many_open(self, links: list[Link], columns: _Sends, read: PlainSends, sends: Others) -> bool:
        """Whether more calls may be open at a time than ``Matching`` keeps of a connection."""
        counts = np.bincount(columns.link, minlength=len(links)).tolist()
        for place, link in enumerate(links):
            matching = self._dispatcher(link).matching
            before = max(one.outstanding for one in matching.directions) + len(sends.get(connection_number(link), ()))
            if before + counts[place] <= matching.maximum:
                continue
            mine = (columns.link == place).nonzero()[0]
            mine = mine[columns.rows["frame"][mine].argsort(kind="stable")]
            # What is no reply may be a call.
            opened = np.cumsum(np.where(read.reply[mine], -1, 1), dtype=np.int64)
            lowest = np.minimum(np.minimum.accumulate(opened), 0)
            if before + int((opened - lowest).max()) > matching.maximum:
                return True
        return False

    def _settled(self, links: list[Link], columns: _Sends, read: PlainSends, sends: Others) -> Int64s:
        """Of each connection the frame from which on all is settled: protocol and version."""
        since = np.zeros(len(links), np.int64)
        # Other versions and errors change what is settled.
        since[columns.link[~read.usual]] = NEVER
        plain = (read.call | read.reply) & (read.words[:, 3] == RDMA_MSG)
        dispatchers = [self._dispatcher(link) for link in links]
        known = [one.conversation.protocol == "rpcrdma" for one in dispatchers]
        unsettled = [
            place
            for place, one in enumerate(dispatchers)
            if not (since[place] or (known[place] and one.matching.settled))
        ]
        if not unsettled:
            return since
        frames = columns.rows["frame"].astype(np.int64)
        answering = plain & (columns.sender == 1)
        first, first_plain, answered = (
            _lowest(columns.link[rows], frames[rows], len(links)) for rows in (slice(None), plain, answering)
        )
        for place in unsettled:
            others = min([one for one, _ in sends.get(connection_number(links[place]), ())], default=NEVER)
            # A plain message makes known what the protocol is, and the server's first the version.
            begins_plain = first[place] == first_plain[place] and first[place] < others
            since[place] = answered[place] if known[place] or begins_plain else NEVER
        return since

    def _others(self, links: list[Link], sends: Others) -> dict[int, int]:
        """By connection and XID the part, as ``in_turn`` has it, of an open call, and of replies that wait and Sends
        that are in no run."""
        parts: dict[int, int] = {}
        for place, link in enumerate(links):
            for caller, direction in enumerate(self._dispatcher(link).matching.directions):
                for xid, calls in direction.calls.items():
                    key = place << 32 | xid
                    parts[key] = 2 * caller if len(calls) == 1 and key not in parts else NO_TURN
            for _, xid in self._dispatcher(link).matching.waiting_replies:
                parts[place << 32 | xid] = NO_TURN
            for _, operation in sends.get(connection_number(link), ()):
                data, start, _ = operation.payload.first()
                if operation.start_known:
                    parts[place << 32 | words2(data, start)[0]] = NO_TURN
        return parts

    def _pairs(
        self, data: Bytes, columns: _Sends, read: PlainSends, usable: NDArray[np.bool_], following: Int64s
    ) -> _Pairs:
        """Match the plain replies with the plain calls that they follow."""
        rows = columns.rows
        extra = EXTRA[rows["opcode"]]
        call = (read.call & usable & (extra == 0) & (following >= 0)).nonzero()[0]
        reply = following[call]
        waited = rows["time"][reply] - rows["time"][call]
        # Centuries apart the difference wraps around.
        right = (
            usable[reply] & (extra[reply] != IMMEDIATE) & (rows["time"][reply] >= rows["time"][call]) & (waited >= 0)
        )
        call, reply = call[right], reply[right]
        ends = rows["payload"][call] + rows["captured"][call]
        reduced = np.full(len(call), -1, np.int64)
        reading = read.counts[call, READ_LIST].nonzero()[0]
        if len(reading):
            sends = call[reading]
            position = read.segments["position"][read.firsts[sends]]
            reduced[reading] = rows["payload"][sends] + read.header[sends] + position
        procedures = self._names.procedures(data, read, call, ends, reduced)
        named = procedures >= 0
        chunks = np.full(len(call), -1, np.int64)
        return _Pairs(call[named], reply[named], procedures[named], chunks[named], chunks[named])

    def _answered(self, read: PlainSends, pairs: _Pairs, sizes: Rows, chunks: PlainChunks | None) -> _Pairs:
        """The pairs with a status that can be read."""
        reply = pairs.reply
        there = sizes[reply] >= read.header[reply] + SHORTEST_REPLY + 4
        results = np.where(there, read.rpc[reply, _FIRST_RESULT], -1)
        if chunks is not None:
            through = pairs.chunks.clip(0)
            long = (pairs.chunks >= 0) & (chunks.results[through] >= 0)
            results = np.where(long, chunks.results[through], results)
        statuses = self._names.statuses(pairs.procedures, results)
        return _chosen(pairs._replace(statuses=statuses), statuses >= 0)

    def _chunked(
        self,
        data: Bytes,
        columns: _Sends,
        read: PlainSends,
        pairs: _Pairs,
        links: list[Link],
        sends: Others,
        events: list[Event],
        transfers: list[LinkTransfers],
    ) -> tuple[_Pairs, PlainChunks | None]:
        """The pairs without those with chunks that are not plain, and the chunks of the others."""
        has = read.chunked[pairs.call] | read.chunked[pairs.reply]
        chosen = has.nonzero()[0]
        if not len(chosen):
            return pairs, None
        rows = columns.rows
        conversations = Conversations(
            columns.link,
            columns.sender,
            *(rows[name].astype(np.int64) for name in ("frame", "time", "payload", "captured")),
        )
        found = Candidates(data, conversations, read, pairs.call[chosen], pairs.reply[chosen])
        foreign, unknown = self._foreign(data, columns, read, pairs, links, sends)
        memories = {
            index: memory
            for index, link in enumerate(links)
            if (memory := self._dispatcher(link).matching.known_memory) is not None
        }
        unknown |= {index for index, memory in memories.items() if not quiet(memory)}
        busy = {index: one for index, one in memories.items() if len(one.segments[0]) or len(one.segments[1])}
        found.refuse(foreign, unknown, busy)
        chunks = found.matched(events, {id(link): index for index, link in enumerate(links)}, transfers)
        pairs.chunks[chosen] = np.where(found.right, np.arange(len(chosen)), -1)
        return _chosen(pairs, ~has | (pairs.chunks >= 0)), chunks

    def _foreign(
        self, data: Bytes, columns: _Sends, read: PlainSends, pairs: _Pairs, links: list[Link], sends: Others
    ) -> tuple[Int64s, set[int]]:
        """Memory that other messages name: connection and sender in the upper bits, handle in the lower.

        And the connections of which that cannot be said.
        """
        others = read.listed.copy()
        others[pairs.call] = others[pairs.reply] = False
        mine = read.segments.compress(others[read.segments["send"]])
        keys = columns.directions[mine["send"]] | mine["handle"]
        unread = (others & ~read.chunked).nonzero()[0]
        view = data.data
        headers = [
            (link, sender, decode_header(view, start, start + length, length))
            for link, sender, start, length in zip(
                columns.link[unread].tolist(),
                columns.sender[unread].tolist(),
                *(columns.rows[name][unread].tolist() for name in ("payload", "length")),
                strict=True,
            )
        ]
        for place, link in enumerate(links):
            for _, operation in sends.get(connection_number(link), ()):
                if operation.start_known:
                    headers.append((place, operation.initiator, header_of(operation)))
        named, unknown = advertised(headers)
        more = [(link << 1 | sender) << 32 | handle for link, sender, handle in named]
        return np.concatenate((keys, np.array(more, np.int64))), unknown

    def _accepted(
        self,
        data: Bytes,
        links: list[Link],
        columns: _Sends,
        read: PlainSends,
        pairs: _Pairs,
        chunks: PlainChunks | None,
    ) -> _Pairs:
        """The pairs that the listeners take in columns."""
        accepted = np.ones(len(pairs.call), np.bool_)
        if all(self._dispatcher(link).matching.columns is None for link in links):
            return pairs
        rows = columns.rows
        long = pairs.chunks >= 0
        invalidates = EXTRA[rows["opcode"][pairs.reply]] == INVALIDATE
        if chunks is not None:
            long[long] = chunks.transfers(pairs.chunks[long])
            offered = chunks.segments["handle"][chunks.firsts[pairs.chunks[long]]]
            invalidates[long] &= rows["immediate"][pairs.reply[long]] != offered
        for place, link in enumerate(links):
            listener = self._dispatcher(link).matching.columns
            if listener is None:
                continue
            mine = (columns.link[pairs.call] == place).nonzero()[0]
            call, reply = pairs.call[mine], pairs.reply[mine]
            found = PlainPairs(
                columns.sender[call],
                pairs.procedures[mine],
                rows["length"][call].astype(np.int64),
                rows["length"][reply].astype(np.int64),
                read.credits[call],
                read.credits[reply],
                invalidates[mine],
                data,
                read.arguments[call],
                rows["payload"][call].astype(np.int64) + rows["captured"][call],
                read.listed[call] | read.listed[reply],
                long[mine],
            )
            accepted[mine] = listener.plain_accepted(found, self._names.names)
        return _chosen(pairs, accepted)

    def _batch(
        self,
        data: Bytes,
        runs: list[SendRun],
        links: list[Link],
        columns: _Sends,
        read: PlainSends,
        pairs: _Pairs,
        chunks: PlainChunks | None,
        events: list[Event],
    ) -> PlainBatch:
        directions = columns.directions[pairs.call]
        order = np.lexsort((columns.rows["frame"][pairs.call], directions))
        pairs = _chosen(pairs, order)
        directions = directions[order]
        rows = self._rows(links, columns, read, pairs)
        starts = np.append(0, (directions[1:] != directions[:-1]).nonzero()[0] + 1)
        chosen = [links[one] for one in columns.link[pairs.call[starts]].tolist()]
        matchings = [(link, self._dispatcher(link).matching) for link in chosen]
        conversations = {connection_number(link): matching.conversation for link, matching in matchings}
        rows["chunks"] = pairs.chunks
        rows["transfer"] = -1
        if chunks is not None:
            note_chunks(rows, chunks)
        plain = PlainRpcs(rows, data, runs, conversations, self._names.names, chunks)
        listened = any(matching.columns is not None for _, matching in matchings)
        busy = {connection_number(link) for _, link, operation in events if listened or operation.kind is SEND}
        return PlainBatch(plain, starts, matchings, busy, listened)

    def _rows(self, links: list[Link], columns: _Sends, read: PlainSends, pairs: _Pairs) -> Rows:
        rows = np.zeros(len(pairs.call), RPC)
        numbers = np.array([connection_number(link) for link in links])
        failed = np.array([failed for _, failed in self._names.names.statuses])
        rows["connection"] = numbers[columns.link[pairs.call]]
        rows["caller"] = columns.sender[pairs.call]
        rows["xid"] = read.xids[pairs.call]
        rows["procedure"] = pairs.procedures
        rows["status"] = pairs.statuses
        rows["state"] = np.where(failed[pairs.statuses], STATES.index("error"), STATES.index("complete"))
        for side, sends in (("call", pairs.call), ("reply", pairs.reply)):
            packets = columns.rows.take(sends)
            first = side == "call"
            rows["call_frame" if first else "reply_first_frame"] = packets["frame"]
            rows["call_last_frame" if first else "reply_frame"] = packets["frame"]
            rows[f"{side}_time"] = rows[f"{side}_end"] = packets["time"]
            rows["credits_requested" if first else "credits_granted"] = read.credits[sends]
            rows[f"{side}_send"] = packets["length"]
            rows[f"{side}_inline"] = packets["length"] - read.header[sends]
            rows[f"{side}_at"] = packets["payload"]
            rows[f"{side}_run"], rows[f"{side}_row"] = columns.run[sends], columns.row[sends]
            if not first:
                names = EXTRA[packets["opcode"]] == INVALIDATE
                rows["invalidated"] = np.where(names, packets["immediate"].astype(np.int64), -1)
        rows["latency"] = rows["latency_server"] = rows["reply_time"] - rows["call_time"]
        return rows


def _lowest(places: Int64s, values: Int64s, count: int) -> Int64s:
    """The lowest of the values at each of so many places; NEVER where there is none."""
    found = np.full(count, NEVER)
    np.minimum.at(found, places, values)
    return found


def _chosen(pairs: _Pairs, chosen: Rows) -> _Pairs:
    return _Pairs(*(column[chosen] for column in pairs))


def _columns(runs: list[LinkSends], index: dict[int, int]) -> _Sends:
    counts = np.array([len(run) for _, run in runs])
    rows = joined([run.rows for _, run in runs])
    firsts = np.cumsum(counts) - counts
    unusual = np.zeros(len(rows), np.bool_)
    for first, (_, run) in zip(firsts.tolist(), runs, strict=True):
        if run.unusual:
            unusual[[first + row for row in run.unusual]] = True
    return _Sends(
        rows,
        np.repeat(np.array([index[connection_number(link)] for link, _ in runs]), counts),
        np.repeat(np.array([run.sender for _, run in runs]), counts),
        np.repeat(np.arange(len(runs)), counts),
        np.arange(len(rows)) - np.repeat(firsts, counts),
        unusual,
    )


def _parts(runs: list[LinkSends], chosen: NDArray[np.bool_]) -> list[Int64s]:
    """Of each run the rows that are chosen among the rows of all."""
    parts: list[Int64s] = []
    first = 0
    for _, run in runs:
        parts.append(chosen[first : first + len(run)].nonzero()[0])
        first += len(run)
    return parts


def _merged(events: list[Event], runs: list[LinkRun], parts: Sequence[Part] = ()) -> list[Event]:
    """The events with all Operations of these runs, and of some a part, as objects among them."""
    expanded: list[Event] = [(place, link, operation) for link, run in runs for place, operation in run.delivered()]
    for link, run, part in parts:
        if len(part):
            expanded += [(place, link, operation) for place, operation in run.delivered(part)]
    # Where two have one place, the second waited for the packet of the first, which is that of a run.
    return sorted([*expanded, *events], key=itemgetter(0)) if expanded else events
