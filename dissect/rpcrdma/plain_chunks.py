"""Calls of a batch that are plain but for their chunks, and the RDMA Reads and Writes on these.

What ``AdvertisedMemory``, ``outcome`` and ``latency`` find of one RPC after the other is found here of all at once, of
those that have nothing unusual: memory that no other open call shares, Operations that are whole and fill each segment
from its start, counts that agree with the data.  All others are left to them; a property test holds the two equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from struct import Struct
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays import Bytes, Int64s, Rows, among, big_endian_words, gathered, joined, places, take, unique, words_at
from ..layers.oncrpc_codes import MSG_ACCEPTED, REPLY
from ..layers.rpcrdma_codes import RDMA_NOMSG
from ..onc import binding
from ..transport.operations import READ, SEND, WRITE, Operation
from ..transport.runs import TRANSFER, TransferOperations, TransferRun
from .chunk_columns import PlainChunks, ranges
from .chunk_lists import READ_LIST, REPLY_CHUNK, WRITE_LIST
from .memory import AdvertisedMemory
from .messages import TransportHeader
from .plain_sends import PlainSends
from .transport_header import decode_header

_REPLY = Struct(">7I").unpack_from
_REPLY_BYTES = 28
_PLACES = 1 << 40
"""More than there are places in the order of events."""

Place = tuple[int, int, int]
"""Index of the connection, the caller, and the handle."""


class Conversations(NamedTuple):
    """The Sends of a batch, a row each, and where they are."""

    link: Int64s
    """Index of the connection."""
    sender: Int64s
    frame: Int64s
    """The place in the order of events."""
    time: Int64s
    payload: Int64s
    """Offset of the Send in the bytes of the batch."""
    captured: Int64s


def quiet(memory: AdvertisedMemory) -> bool:
    """No Operation waits for the call that it belongs to."""
    return not memory.unplaced and not memory.contested_count


def advertised(headers: Iterable[tuple[int, int, TransportHeader]]) -> tuple[set[Place], set[int]]:
    """Memory that any of these messages of connections and senders names, and connections of which it is not known."""
    found: set[Place] = set()
    unknown: set[int] = set()
    for link, sender, header in headers:
        if header.problem:
            unknown.add(link)
        chunks = [*header.reads, *header.writes, *((header.reply,) if header.reply else ())]
        found.update((link, sender, segment.handle) for chunk in chunks for segment in chunk.segments)
    return found, unknown


def header_of(operation: Operation) -> TransportHeader:
    """The transport header of a Send."""
    data, start, end = operation.payload.prefix()
    return decode_header(data, start, end, operation.length)


LinkTransfers = tuple[int, TransferRun]
"""Index of the connection, and what is plain among its RDMA Reads and Writes."""


class _Transfers(NamedTuple):
    """RDMA Reads and Writes in the order of events."""

    operations: TransferOperations
    rows: Rows
    """TRANSFER rows."""
    link: Int64s
    owner: Int64s
    """Whose memory it is on."""
    retransmissions: Int64s
    whole: NDArray[np.bool_]


def _transfers(
    events: Iterable[tuple[int, object, Operation]], links: Mapping[int, int], runs: Sequence[LinkTransfers]
) -> _Transfers:
    """``links``: identity of those who observe a connection to its index."""
    found = [
        (place, index, operation)
        for place, link, operation in events
        if operation.kind is not SEND and operation.length and (index := links.get(id(link))) is not None
    ]
    where, indices, objects = zip(*found, strict=True) if found else ((), (), ())
    count, counts = len(objects), [len(run) for _, run in runs]
    rows = joined([np.zeros(count, TRANSFER), *(run.rows for _, run in runs)])
    rows["place"][:count], rows["offset"][:count] = where, -1
    for name in ("kind", "handle", "length", "address", "first_time", "last_time"):
        rows[name][:count] = np.fromiter(map(attrgetter(name), objects), rows.dtype[name], count)
    whole = np.ones(len(rows), np.bool_)
    retransmissions = np.zeros(len(rows), np.int64)
    firsts = np.cumsum([count, *counts])
    made = [*enumerate(objects)]
    for (_, run), first in zip(runs, firsts.tolist(), strict=False):
        made += [(first + row, one) for row, one in run.made.items() if row < len(run)]
    for at, one in made:
        whole[at], retransmissions[at], rows["last_time"][at] = _is_whole(one), one.retransmissions, one.last_time
    senders = [one.initiator for one in objects]

    def of_each(of_objects: Sequence[int], of_runs: Sequence[int]) -> Int64s:
        return np.append(np.array(of_objects, np.int64), np.repeat(np.array(of_runs, np.int64), counts))

    number = of_each([-1] * count, range(len(runs)))
    row = np.arange(len(rows)) - np.append(0, firsts)[number + 1]
    order = rows["place"].argsort(kind="stable")
    return _Transfers(
        TransferOperations([one for _, one in runs], objects, number[order], row[order]),
        take(rows, order),
        of_each(indices, [index for index, _ in runs])[order],
        1 - of_each(senders, [one.sender for _, one in runs])[order],
        retransmissions[order],
        whole[order],
    )


def _is_whole(operation: Operation) -> bool:
    payload = operation.payload
    return (
        payload.seen == payload.length == operation.length
        and not payload.truncated
        and operation.closed
        and operation.start_known
        and operation.end_known
        and not (operation.contradicted or operation.reused)
    )


class Candidates:
    """Plain calls with chunks, and their replies."""

    def __init__(self, data: Bytes, sends: Conversations, read: PlainSends, call: Int64s, reply: Int64s) -> None:
        """``call``, ``reply``: indices of Sends."""
        self._data, self._sends, self._read = data, sends, read
        self._call, self._reply = call, reply
        index, self._firsts = ranges(read.firsts, call)
        self._segments = read.segments.take(index)
        self._rpc = np.repeat(np.arange(len(call)), np.diff(self._firsts))
        self._returned = np.full(len(index), -1)
        ends = (sends.link[call] << 1 | sends.sender[call]) << 32
        self._keys = ends[self._rpc] | self._segments["handle"]
        self.right = np.ones(len(call), np.bool_)
        """Those of which nothing was found yet that is not plain."""
        self._results = np.full(len(call), -1)

    def refuse(self, foreign: Int64s, unknown: set[int], busy: Mapping[int, AdvertisedMemory]) -> None:
        """Those with memory that something else names are not plain.

        ``foreign``: connection and owner in the upper bits, handle in the lower; ``unknown``: connections of which
        nothing is known; ``busy``: by connection, memory that open calls offer.
        """
        refused = among(self._keys, foreign)
        link = self._keys >> 33
        if unknown:
            refused |= among(link, np.array(list(unknown)))
        for index, memory in busy.items():
            for at in (link == index).nonzero()[0].tolist():
                key = int(self._keys[at])
                refused[at] |= (key & 0xFFFFFFFF) in memory.segments[key >> 32 & 1]
        self._refuse(refused)

    def matched(
        self, events: Iterable[tuple[int, object, Operation]], links: Mapping[int, int], runs: Sequence[LinkTransfers]
    ) -> PlainChunks:
        """Find what was transferred; ``right`` says of which it is as it has to be."""
        self._take_returned()
        self._check_read_counts()
        self._refuse_shared()
        transfers = _transfers(events, links, runs)
        segment, order = self._placed(transfers)
        used, transferred = self._covered(transfers, segment, order)
        operations = transfers.operations.chosen(order)
        self._read_results(used, operations, take(transfers.rows, order))
        self._check_items(transferred)
        cells = self._rpc * 3 + self._segments["list"]
        size = 3 * len(self._call)
        advertised, moved = (
            np.bincount(cells, values, size).astype(np.int64).reshape(-1, 3)
            for values in (self._segments["length"], transferred)
        )
        reads, writes = self._times(transfers, segment, order)
        owners = self._rpc[segment]
        repeated = np.bincount(owners, transfers.retransmissions[order], len(self._call)).astype(np.int64)
        return PlainChunks(
            self._firsts, self._segments, self._returned, used, operations, advertised, moved, reads, writes, repeated,
            self._results,
        )  # fmt: skip

    def _refuse(self, segments: NDArray[np.bool_]) -> None:
        """The RPCs of these are not plain."""
        self.right[self._rpc[segments]] = False

    def _take_returned(self) -> None:
        """What replies return has to be the memory that was offered, and no more."""
        counts = self._read.counts
        asked, given = counts[self._call], counts[self._reply]
        without = given[:, REPLY_CHUNK] == 0
        right = (given[:, READ_LIST] == 0) & (given[:, WRITE_LIST] == asked[:, WRITE_LIST])
        right &= without | (given[:, REPLY_CHUNK] == asked[:, REPLY_CHUNK])
        lists = self._segments["list"]
        back = right[self._rpc] & (lists != READ_LIST) & ~((lists == REPLY_CHUNK) & without[self._rpc])
        index, _ = ranges(self._read.firsts, self._reply[right])
        returned = self._read.segments.take(index)
        mine = self._segments.compress(back)
        same = (mine["handle"] == returned["handle"]) & (mine["offset"] == returned["offset"])
        same &= returned["length"] <= mine["length"]
        self._returned[back] = returned["length"]
        right[self._rpc[back][~same]] = False
        self.right &= right

    def _check_read_counts(self) -> None:
        """The word before each Position has to be the length of the chunk there (``outcome``)."""
        reading = self._segments["list"] == READ_LIST
        rpcs = self._rpc[reading]
        if not len(rpcs):
            return
        length = np.bincount(rpcs, self._segments["length"][reading], len(self._call)).astype(np.int64)
        position = np.zeros(len(self._call), np.int64)
        position[rpcs] = self._segments["position"][reading]
        rpcs = unique(rpcs)
        start = self._sends.payload[self._call[rpcs]] + self._read.header[self._call[rpcs]]
        end = self._sends.payload[self._call[rpcs]] + self._sends.captured[self._call[rpcs]]
        at = start + position[rpcs] - 4
        inside = (start <= at) & (at <= end - 4)
        self.right[rpcs[~inside]] = False
        rpcs, at = rpcs[inside], at[inside]
        count = words_at(self._data, at)
        agreed = (length[rpcs] == count) | (length[rpcs] == count + 3 & -4)
        self.right[rpcs[~agreed]] = False

    def _refuse_shared(self) -> None:
        """No two calls may offer the same memory at a time, nor one twice."""
        begin, end = self._spans()
        order = np.lexsort((begin, self._keys))
        keys = self._keys[order]
        clash = (keys[1:] == keys[:-1]) & (end[order][:-1] >= begin[order][1:])
        if clash.any():
            self._refuse(among(self._keys, keys[1:][clash]))

    def _spans(self) -> tuple[Int64s, Int64s]:
        """Of each segment the places of call and reply."""
        frames = self._sends.frame
        return frames[self._call][self._rpc], frames[self._reply][self._rpc]

    def _placed(self, transfers: _Transfers) -> tuple[Int64s, Int64s]:
        """The Operations on each segment: indices of segments, ascending, and of Operations."""
        begin, end = self._spans()
        order = np.lexsort((begin, self._keys))
        handles = unique(self._keys)
        rank = handles.searchsorted(self._keys[order])
        keys = (transfers.link << 1 | transfers.owner) << 32 | transfers.rows["handle"].astype(np.int64)
        place = transfers.rows["place"]
        which = handles.searchsorted(keys)
        which[which == len(handles)] = 0
        mine = (handles[which] == keys).nonzero()[0]
        starts = rank * _PLACES + begin[order]
        at = starts.searchsorted(which[mine] * _PLACES + place[mine]) - 1
        segment = order[np.maximum(at, 0)]
        inside = (at >= 0) & (rank[at] == which[mine]) & (place[mine] < end[segment])
        inside &= transfers.rows["first_time"][mine] >= self._sends.time[self._call][self._rpc[segment]]
        if not inside.all():  # Before a call, or behind a reply.
            self._refuse(among(self._keys, keys[mine[~inside]]))
            segment, mine = segment[inside], mine[inside]
        sorted_ = segment.argsort(kind="stable")
        return segment[sorted_], mine[sorted_]

    def _covered(self, transfers: _Transfers, segment: Int64s, order: Int64s) -> tuple[Int64s, Int64s]:
        """Every segment has to be filled from its start, as far as needed: where Operations begin, and bytes."""
        rows = take(transfers.rows, order)
        length, address = rows["length"], rows["address"].astype(np.int64)
        reading = self._segments["list"] == READ_LIST
        kinds = np.where(reading, int(READ), int(WRITE))
        good = transfers.whole[order] & (rows["kind"] == kinds[segment])
        reached = self._segments["offset"][segment]
        follows = np.append(False, segment[1:] == segment[:-1])
        behind = (address + length)[:-1]
        reached[1:][follows[1:]] = behind[follows[1:]]
        good &= address == reached
        self.right[self._rpc[segment[~good]]] = False
        transferred = np.bincount(segment, length, len(self._segments)).astype(np.int64)
        expected = np.where(reading, self._segments["length"], np.maximum(self._returned, 0))
        self._refuse(transferred != expected)
        used = segment.searchsorted(np.arange(len(self._segments) + 1))
        return used, transferred

    def _read_results(self, used: Int64s, operations: Sequence[Operation], rows: Rows) -> None:
        """The beginning of replies that came through the Reply chunk."""
        long = places((self._read.words[self._reply, 3] == RDMA_NOMSG) & self.right)
        segments = self._firsts[long] + self._read.counts[self._call[long]][:, :REPLY_CHUNK].sum(axis=1)
        there = used[segments] < used[segments + 1]
        self.right[long[~there]] = False
        long, at = long[there], used[segments[there]]
        if not len(long):
            return
        xids, offsets = self._read.words[self._reply[long], 0], rows["offset"][at]
        quick = (offsets >= 0) & (rows["begins"][at] >= _REPLY_BYTES)
        words = big_endian_words(gathered(self._data, _REPLY_BYTES, np.where(quick, offsets, 0)))
        quick &= (words[:, 0] == xids) & (words[:, 1:6] == (REPLY, MSG_ACCEPTED, 0, 0, 0)).all(axis=1)
        self._results[long[quick]] = words[quick, 6]
        self.right[long[~quick]] = False
        for index in places(offsets < 0).tolist():
            result = _result(int(xids[index]), operations[int(at[index])])
            if result is not None:
                self.right[long[index]], self._results[long[index]] = True, result

    def _check_items(self, transferred: Int64s) -> None:
        """The count word of the result that a Write chunk holds has to be what was returned (``outcome``)."""
        writing = self._segments["list"] == WRITE_LIST
        returned = np.bincount(self._rpc[writing], transferred[writing], len(self._call)).astype(np.int64)
        view = self._data.data
        for rpc in (self.right & (returned > 0)).nonzero()[0].tolist():
            program, version, procedure = self._read.procedures[self._call[rpc]].tolist()
            reply = int(self._reply[rpc])
            at = int(self._sends.payload[reply])
            start, end = at + int(self._read.header[reply]), at + int(self._sends.captured[reply])
            length = int(returned[rpc])
            found = (
                binding.reply_items(program, version, procedure, view[start:end], 0, end - start, (length,))
                if binding.has_binding(program, version)
                else None
            )
            self.right[rpc] = (
                found is not None
                and not found.problem
                and [one.count for one in found.items if one.reduced and one.chunk == 0] == [length]
            )

    def _times(self, transfers: _Transfers, segment: Int64s, order: Int64s) -> tuple[Int64s, Int64s]:
        """Of each RPC nanoseconds of its RDMA Reads, and of its RDMA Writes behind them (``latency``)."""
        begin, end = self._sends.time[self._call], self._sends.time[self._reply]
        reached = begin.copy()
        spent = []
        reading = self._segments["list"][segment] == READ_LIST
        for mine in (reading, ~reading):
            rpc, index = self._rpc[segment[mine]], order[mine]
            duration = np.zeros(len(begin), np.int64)
            if len(rpc):
                edges = np.append(0, (rpc[1:] != rpc[:-1]).nonzero()[0] + 1)
                which = rpc[edges]
                low, high = reached[which], end[which]
                first = np.minimum.reduceat(transfers.rows["first_time"][index], edges).clip(low, high)
                last = np.maximum.reduceat(transfers.rows["last_time"][index], edges).clip(first, high)
                duration[which] = last - first
                reached[which] = last
            spent.append(duration)
        return spent[0], spent[1]


def _result(xid: int, operation: Operation) -> int | None:
    """The first word of the results, where the Operation begins with a plain reply."""
    data, start, end = operation.payload.first()
    if end - start < _REPLY_BYTES:
        return None
    found, *words, result = _REPLY(data, start)
    return result if found == xid and words == [REPLY, MSG_ACCEPTED, 0, 0, 0] else None
