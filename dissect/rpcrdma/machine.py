"""The ordered machine: from the Sends, RDMA Reads and Writes of a batch to its RPCs, decided over integer rows.

What stands at fixed offsets is decoded in columns (``sends``, ``chunk_lists``).  What depends on order is decided here,
row by row in the order of events: which reply answers which call, which memory an RDMA Read or Write is on, the numbers
of RPCs and their order among calls.  A row describes a Send of one packet, or a transfer without fault.  Anything else
is an Operation and goes through ``Dispatcher`` and ``Matching``; the rows that it touches become objects first.  What
depends on a message's bytes is read in columns again, after the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from ..arrays import Bytes, Int64s, Rows, among, joined, places, some, unique, words_at
from ..layers.oncrpc_codes import GSS_INTEGRITY, GSS_PRIVACY
from ..layers.rpcrdma_codes import RDMA_MSG, RDMA_NOMSG
from ..link.packets import PACKET
from ..transport.connection import Link
from ..transport.operations import SEND, Operation
from ..transport.runs import EXTRA, IMMEDIATE, INVALIDATE, RANK_BITS, SendRun
from .caller_rows import OpenCalls
from .chunk_columns import ChunkColumns, note_chunks
from .chunk_lists import READ_LIST
from .dispatch import Dispatcher
from .latency import MAX_LATENCY
from .listeners import RowSends
from .row_batch import MAX_OPEN, Event, LinkRun, OpenSince, RowBatch, Sends, connection_number
from .row_chunks import RowChunks
from .rpc_numbers import LATE, RpcNumbers, ended_order
from .rpc_table import FLAG_CHUNKS_TRUNCATED, FLAG_NOTES, FLAG_TRUNCATED, NO_NAMES, PLACES, RPC, STATES, RpcRows
from .sends import SHORTEST_REPLY, UNKNOWN, CallNames, SendColumns, read_sends

_NO_PLACES = np.empty(0, np.int64)
_FIRST_RESULT = 6
"""Index of the word of a reply, counted from its XID, where its results begin."""


class Machine:
    """Decides over the rows of every batch of an Analyzer."""

    def __init__(self, dispatcher: Callable[[Link], Dispatcher], open_since: OpenSince) -> None:
        """``dispatcher``: gives the Dispatcher of a link's connection."""
        self._dispatcher, self._open_since = dispatcher, open_since
        self._names = CallNames()
        self._data: Bytes | None = None
        """The bytes of the last batch."""
        self._open: dict[int, OpenCalls] = {}
        """By connection number; calls of connections without events stay here from batch to batch."""

    def take(self, data: Bytes, runs: list[LinkRun], events: Sequence[Event], numbers: RpcNumbers) -> RpcRows | None:
        """Process a batch in the order of events, and return the RPCs that ended as rows.

        ``runs``: their rows have offsets in ``data``.
        """
        if self._data is not data:
            self.open_as_objects(numbers)
            self._data = data
        latest = max([run.last_place for _, run in runs] + [place for place, _, _ in events[-1:]], default=0)
        links = _links(runs, events)
        active = {connection_number(link) for link in links}
        opened = self._reopened(active, latest - MAX_OPEN)
        links += [open_calls.link for open_calls in opened if connection_number(open_calls.link) not in active]
        batch, sends = self._batch(data, links, runs, events, numbers, opened)
        batch.happen()
        self._open |= batch.left(links)
        rows = self._rows(batch, sends, links)
        batch.tell_listeners(rows)
        return rows

    def _reopened(self, active: Collection[int], before: int = LATE) -> list[OpenCalls]:
        """Take out the open calls of ``active`` connections, and those left before place ``before``."""
        numbers = [number for number, open_calls in self._open.items() if number in active or open_calls.place < before]
        return [self._open.pop(number) for number in numbers]

    def open_as_objects(self, numbers: RpcNumbers) -> None:
        """Turn all open calls that are rows into objects."""
        opened = self._reopened(())
        if opened and self._data is not None:
            links = [open_calls.link for open_calls in opened]
            batch, _ = self._batch(self._data, links, [], [], numbers, opened)
            batch.left(links, 0)

    def take_singly(self, events: Sequence[Event], numbers: RpcNumbers) -> None:
        """Process a batch of Operations one by one, without rows."""
        self.open_as_objects(numbers)
        before = None
        for place, link, operation in events:
            numbers.place = place
            if link is not before:
                before, take = link, self._dispatcher(link).take
            take(operation)

    def _batch(
        self,
        data: Bytes,
        links: list[Link],
        runs: list[LinkRun],
        events: Sequence[Event],
        numbers: RpcNumbers,
        opened: Sequence[OpenCalls],
    ) -> tuple[RowBatch, Sends]:
        dispatchers = [self._dispatcher(link) for link in links]
        index = {connection_number(link): link_index for link_index, link in enumerate(links)}
        if self._names.full:
            self._names = CallNames()
        bare = np.array([not dispatcher.conversation.connection.rdma for dispatcher in dispatchers])
        ranks = event_ranks(events, runs)
        sends = self._sends(data, runs, events, ranks, index, opened, bare)
        self._refuse(sends, dispatchers)
        return RowBatch(dispatchers, sends, runs, events, ranks, index, numbers, opened, self._open_since), sends

    def _sends(
        self,
        data: Bytes,
        runs: list[LinkRun],
        events: Sequence[Event],
        ranks: Int64s,
        index: Mapping[int, int],
        opened: Sequence[OpenCalls],
        bare: NDArray[np.bool_],
    ) -> Sends:
        """The Sends of a batch as rows; ``bare``: by connection, whether its messages have no transport header."""
        parts = [(index[connection_number(link)], run) for link, run in runs if isinstance(run, SendRun)]
        counts = [len(run) for _, run in parts]
        link = [np.repeat(np.array([link_index for link_index, _ in parts], np.int64), np.array(counts, np.int64))]
        sender = [np.repeat(np.array([run.sender for _, run in parts], np.int64), np.array(counts, np.int64))]
        every, held = [run for _, run in parts], []
        for end in (0, 1):
            mine = [
                at
                for at, (_, _, operation) in enumerate(events)
                if operation.kind is SEND and operation.initiator == end and _is_row(operation, data)
            ]
            if mine:
                held += mine
                order = np.array([events[at][0] for at in mine]), ranks[mine]
                every.append(SendRun.of(data, [events[at][2] for at in mine], end, order))
                link.append(np.array([index[connection_number(events[at][1])] for at in mine]))
                sender.append(np.full(len(mine), end))
        packets, sizes = [run.rows for run in every], np.array([*map(len, every)], np.int64)
        of_runs = [np.arange(sizes.sum()) - np.repeat(sizes.cumsum() - sizes, sizes)]
        fresh = len(of_runs[0])
        where = np.concatenate([_NO_PLACES, *(run.places for run in every)])
        turns = np.concatenate([_NO_PLACES, *(run.ranks for run in every)])
        for owner, (run, at) in [(open_calls.link, part) for open_calls in opened for part in open_calls.runs]:
            run.note_unusual()
            every.append(run)
            of_runs.append(at)
            packets.append(run.rows.take(at))
            link.append(np.full(len(at), index[connection_number(owner)]))
            sender.append(np.full(len(at), run.sender))
        sizes = np.append(sizes, [*map(len, of_runs[1:])]).astype(np.int64)
        number = np.repeat(np.arange(len(every)), sizes)
        rows = joined(packets) if packets else np.empty(0, PACKET)
        row = np.concatenate(of_runs)
        unusual = np.zeros(len(rows), np.bool_)
        for run_index, run in enumerate(every):
            if run.unusual:
                unusual |= (number == run_index) & among(row, np.fromiter(run.unusual, np.int64))
        owners = np.concatenate(link)
        only_rpc = bare[owners] if some(bare) else None
        truncated = rows["captured"] < rows["length"]
        read = read_sends(data, rows["payload"], rows["captured"].astype(np.int64), truncated, only_rpc)
        extra = EXTRA[rows["opcode"]]
        calls = places(read.call & (extra == 0) & ~unusual)
        procedures = np.full(len(rows), -1)
        unfinished = np.zeros(len(rows), np.bool_)
        procedures[calls], unfinished[calls] = self._procedures(data, rows, read, calls)
        replies = read.reply & (extra != IMMEDIATE) & ~unusual
        ends = owners, np.concatenate(sender)
        return Sends(
            data, held, fresh, where, turns, every, rows, *ends, number, row, read, procedures, unfinished, replies
        )

    def _refuse(self, sends: Sends, dispatchers: list[Dispatcher]) -> None:
        """Unmark calls and replies that listeners do not take as rows."""
        rows, read = sends.rows, sends.read
        reads, writes, replies = read.counts.T  # Comparing rows of three would take many times as long.
        long = read.chunked & (reads | writes == 0) & (replies == 1)
        long &= (sends.procedures >= 0) | (read.words[:, 3] == RDMA_NOMSG)
        for link_index, dispatcher in enumerate(dispatchers):
            listener = dispatcher.listener
            if listener is None:
                continue
            mine = places((sends.link == link_index) & (sends.replies | (sends.procedures >= 0)))
            row_sends = RowSends(
                sends.slots[mine] & 1,
                sends.procedures[mine],
                rows["length"][mine].astype(np.int64),
                read.credits[mine],
                EXTRA[rows["opcode"][mine]] == INVALIDATE,
                read.truncated[mine],
                read.listed[mine],
                long[mine],
                read.service[mine],
                sends.data,
                read.arguments[mine],
                rows["payload"][mine] + rows["captured"][mine],
            )
            others = mine[~listener.rows_wanted(row_sends, self._names.names) | (read.refused[mine] > 0)]
            sends.procedures[others], sends.replies[others] = -1, False

    def _procedures(
        self, data: Bytes, rows: Rows, read: SendColumns, calls: Int64s
    ) -> tuple[Int64s, NDArray[np.bool_]]:
        ends = rows["payload"][calls] + rows["captured"][calls]
        reduced = np.full(len(calls), -1, np.int64)
        reading = places(read.counts[calls, READ_LIST])
        if len(reading):
            some_of = calls[reading]
            position = read.segments["position"][read.firsts[some_of]]
            reduced[reading] = rows["payload"][some_of] + read.header[some_of] + position
        return self._names.procedures(data, read, calls, ends, reduced)

    def _rows(self, batch: RowBatch, sends: Sends, links: list[Link]) -> RpcRows | None:
        """The RPCs that ended as rows; if columns cannot express the outcome of one, it ends as an object."""
        (pairs, chunks), alone = self._pairs(batch, sends, links), self._alone(batch, sends, links)
        if not len(pairs) and not len(alone):
            return None
        there = {*unique(pairs["connection"]).tolist(), *unique(alone["connection"]).tolist()}
        conversations = {
            connection_number(link): dispatcher.conversation
            for link, dispatcher in zip(links, batch.callers.dispatchers, strict=True)
            if connection_number(link) in there
        }
        return RpcRows(pairs, sends.data, sends.runs, conversations, self._names.names, chunks, alone)

    def _pairs(self, batch: RowBatch, sends: Sends, links: list[Link]) -> tuple[Rows, ChunkColumns | None]:
        """RPC rows of the pairs, with their chunks."""
        call, reply = batch.pairs()
        if not len(call):
            return np.empty(0, RPC), None
        read, rows = sends.read, sends.rows
        chunked = places(read.chunked[call])
        chunks: ChunkColumns | None = None
        which, short = np.full(len(call), -1), np.zeros(len(call), np.bool_)
        results = np.where(
            rows["captured"][reply] >= read.header[reply] + SHORTEST_REPLY + 4, read.rpc[reply, _FIRST_RESULT], -1
        )
        results[read.truncated[reply] & (rows["captured"][reply] < read.header[reply] + SHORTEST_REPLY)] = UNKNOWN
        waited = rows["time"][reply] - rows["time"][call]
        earlier = rows["time"][reply] < rows["time"][call]
        # The difference of times centuries apart wraps around.
        right = np.where(earlier, rows["frame"][reply] < rows["frame"][call], (waited >= 0) & (waited <= MAX_LATENCY))
        secured = places((read.service[call] > 0) | read.verified[reply])
        if len(secured):
            results[secured], usual = _secured_results(sends, call[secured], reply[secured])
            right[secured] &= usual
        if len(chunked):
            row_chunks = RowChunks(
                sends.data, rows, read, call[chunked], reply[chunked], batch.returned, batch.carried, batch.transfers
            )
            chunks = row_chunks.columns()
            right[chunked] &= row_chunks.right
            results[chunked] = np.where(chunks.results >= 0, chunks.results, results[chunked])
            which[chunked], short[chunked] = np.arange(len(chunked)), row_chunks.truncated
        if some(refused := read.refused[reply]):
            results = np.where(refused > 0, ~refused, results)
            right &= (refused == 0) | ~read.chunked[call]
        procedures = sends.procedures[call]
        statuses = self._names.statuses(procedures, results)
        right &= statuses >= 0
        for send, other in zip(call[~right].tolist(), reply[~right].tolist(), strict=True):
            batch.end(send, other)
        if not some(right):
            return np.empty(0, RPC), None
        call, reply, which = call[right], reply[right], which[right]
        if chunks is not None:
            through = which >= 0
            chunks = chunks.chosen(which[through])
            which[through] = np.arange(int(np.count_nonzero(through)))
        table = self._table(batch, sends, links, call, reply, statuses[right])
        table["chunks"], table["transfer"] = which, -1
        table["flags"][read.truncated[call] | read.truncated[reply] | short[right]] |= FLAG_TRUNCATED
        table["flags"][short[right]] |= FLAG_CHUNKS_TRUNCATED
        table["flags"][sends.unfinished[call]] |= FLAG_NOTES
        if chunks is not None and len(chunks.firsts) > 1:
            note_chunks(table, chunks)
        else:
            chunks = None
        for name in ("latency", "latency_reads", "latency_server", "latency_writes"):
            table[name][earlier[right]] = -1 if name == "latency" else 0
        table["flags"][earlier[right]] |= FLAG_NOTES
        frames = table["reply_frame"]
        if some(frames[1:] <= frames[:-1]):
            table = table.take(ended_order(frames, table["number"]))
        return table, chunks

    def _table(
        self, batch: RowBatch, sends: Sends, links: list[Link], call: Int64s, reply: Int64s, statuses: Int64s
    ) -> Rows:
        rows, read = np.zeros(len(call), RPC), sends.read
        numbers = np.array([connection_number(link) for link in links])
        failed = np.array([failed for _, failed in self._names.names.statuses])
        rows["number"], rows["order"] = batch.numbers[call], batch.orders[call]
        rows["connection"] = numbers[sends.link[call]]
        rows["caller"] = sends.sender[call]
        rows["xid"] = read.xids[call]
        rows["procedure"] = sends.procedures[call]
        rows["status"] = statuses
        rows["gss_service"], rows["gss_sequence"] = read.service[call], read.sequence[call]
        rows["unfinished"] = sends.unfinished[call]
        rows["state"] = np.where(failed[statuses], STATES.index("error"), STATES.index("complete"))
        _note_sends(rows, sends, call, "call")
        _note_sends(rows, sends, reply, "reply")
        rows["latency"] = rows["latency_server"] = rows["reply_time"] - rows["call_time"]
        return rows

    def _alone(self, batch: RowBatch, sends: Sends, links: list[Link]) -> Rows:
        """RPC rows of replies whose calls are not in the capture, by connection."""
        if not batch.alone:
            return np.empty(0, RPC)
        reply, number = np.array(batch.alone).T
        order = sends.link[reply].argsort(kind="stable")
        reply = reply[order]
        rows = np.zeros(len(reply), RPC)
        for name in ("latency", "credits_requested", *PLACES):
            rows[name] = -1
        rows["number"], rows["xid"] = number[order], sends.read.xids[reply]
        rows["connection"] = np.array([connection_number(link) for link in links])[sends.link[reply]]
        rows["caller"] = 1 - sends.sender[reply]
        rows["procedure"] = self._names.names.procedure(NO_NAMES)
        refused = sends.read.refused[reply]
        rows["status"] = self._names.statuses(rows["procedure"], np.where(refused > 0, ~refused, UNKNOWN))
        rows["state"] = STATES.index("no call")
        rows["flags"] = np.where(sends.read.truncated[reply], FLAG_TRUNCATED, 0)
        _note_sends(rows, sends, reply, "reply")
        return rows


def _note_sends(rows: Rows, sends: Sends, of: Int64s, side: str) -> None:
    """Fill in the columns that come from the calls, or the replies, ``of`` the RPCs."""
    packets, read, first = sends.rows.take(of), sends.read, side == "call"
    rows["call_frame" if first else "reply_first_frame"] = packets["frame"]
    rows["call_last_frame" if first else "reply_frame"] = packets["frame"]
    rows[f"{side}_time"] = rows[f"{side}_end"] = packets["time"]
    rows["credits_requested" if first else "credits_granted"] = read.credits[of]
    rows[f"{side}_send"] = packets["length"]
    rows[f"{side}_inline"] = packets["length"] - read.header[of]
    rows[f"{side}_at"] = packets["payload"]
    rows[f"{side}_captured"] = packets["captured"]
    rows[f"{side}_run"], rows[f"{side}_row"] = sends.run[of], sends.row[of]
    if not first:
        names = EXTRA[packets["opcode"]] == INVALIDATE
        rows["invalidated"] = np.where(names, packets["immediate"].astype(np.int64), -1)


def _secured_results(sends: Sends, call: Int64s, reply: Int64s) -> tuple[Int64s, NDArray[np.bool_]]:
    """The first word of the results of calls with RPCSEC_GSS, -1 if it is encrypted or in a chunk; and which of the
    pairs can stay rows."""
    read, rows = sends.read, sends.rows
    service, inline = read.service[call], read.words[reply, 3] == RDMA_MSG
    at = read.results[reply] + np.where(service == GSS_INTEGRITY, 8, 0)
    there = inline & (service < GSS_PRIVACY) & (at + 4 <= rows["payload"][reply] + rows["captured"][reply])
    results = np.full(len(call), -1)
    results[there] = words_at(sends.data, at[there])
    return results, (service > 0) & (there | ~inline | (service >= GSS_PRIVACY) | (read.refused[reply] > 0))


def event_ranks(events: Sequence[Event], runs: Sequence[LinkRun]) -> Int64s:
    """The order of Operations among events with the same place: after the rows, except those rows that ``postponed``
    put after some Operations."""
    turns = np.arange(len(events))
    if not any(run.postponed for _, run in runs):
        return turns + 1
    keys = np.array([(place, id(link)) for place, link, _ in events], np.int64).reshape(-1, 2)
    order = np.lexsort(keys.T)  # Where connections become known, events of several have one place, in turn.
    begins = np.append(True, (np.diff(keys[order], axis=0) != 0).any(axis=1))[: len(keys)]
    ranks = np.empty_like(turns)
    ranks[order] = turns - np.maximum.accumulate(np.where(begins, turns, 0))
    return (ranks << RANK_BITS) + 1


def _links(runs: Sequence[LinkRun], events: Sequence[Event]) -> list[Link]:
    """The links that have events, in the order of their first ones."""
    firsts: dict[int, tuple[int, Link]] = {}
    for owner, run in runs:
        if (known := firsts.get(id(owner))) is None or run.place < known[0]:
            firsts[id(owner)] = run.place, owner
    before: Link | None = None
    for place, link, _ in events:  # in ascending order
        if link is not before:
            before = link
            if (known := firsts.get(id(link))) is None or place < known[0]:
                firsts[id(link)] = place, link
    return [link for _, link in sorted(firsts.values(), key=itemgetter(0))]


def _is_row(operation: Operation, data: Bytes) -> bool:
    """Whether a row can describe a Send."""
    payload = operation.payload
    return (
        payload.only is not None
        and payload.only[0] is data
        and payload.seen == payload.length == operation.length > 0
        and operation.start_known
        and operation.end_known
        and operation.immediate is None
        and operation.first_frame == operation.last_frame
        and not (operation.retransmissions or operation.contradicted or operation.reused)
    )
