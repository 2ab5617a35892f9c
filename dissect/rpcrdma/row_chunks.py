"""The RDMA Reads and Writes of a batch as rows, and the chunks of RPCs that are rows, in columns.

The machine decides which transfer is on which memory, and that each segment is filled from its start.  What depends on
bytes (``outcome``, ``latency``) is read here for all RPCs at once: whether counts agree with the data, and the first
word of the results.  If they do not agree, the RPC becomes an object."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from operator import attrgetter
from struct import Struct

import numpy as np
from numpy.typing import NDArray

from ..arrays import Bytes, Int64s, Rows, big_endian_words, gathered, joined, places, stretches, take, unique, words_at
from ..layers.oncrpc_codes import GSS_INTEGRITY, GSS_PRIVACY, MSG_ACCEPTED, REPLY, SUCCESS
from ..layers.rpcrdma_codes import RDMA_NOMSG
from ..named_tuple import NamedTuple
from ..onc import binding
from ..onc.rpc_header import MAX_AUTH, credential_of
from ..transport.operations import Operation
from ..transport.runs import TRANSFER, TransferOperations, TransferRun
from .chunk_columns import ChunkColumns, ranges
from .chunk_lists import READ_LIST, REPLY_CHUNK, WRITE_LIST
from .sends import SendColumns

_REPLY = Struct(">7I").unpack_from
_REPLY_BYTES = 28


class RowTransfers(NamedTuple):
    """RDMA Reads and Writes in columns."""

    operations: TransferOperations
    rows: Rows
    """TRANSFER rows."""
    slot: Int64s
    """Twice the index of the connection, plus the endpoint that owns the memory."""
    retransmissions: Int64s
    whole: NDArray[np.bool_]
    """All of its bytes are there, and nothing about it is unusual."""

    def kept(self, indices: Sequence[int]) -> RowTransfers:
        """Some of the transfers, to keep for later batches."""
        at = np.array(indices, np.int64)
        operations = self.operations.kept(at)
        return RowTransfers(operations, self.rows.take(at), self.slot[at], self.retransmissions[at], self.whole[at])


def row_transfers(
    runs: Sequence[tuple[int, TransferRun]],
    events: Sequence[tuple[int, int, Operation]],
    earlier: Sequence[RowTransfers],
) -> RowTransfers:
    """First the transfers of ``runs``, each with the index of its connection; then ``events``: place, index of the
    connection, Operation; then those of ``earlier`` batches."""
    where, _, objects = zip(*events, strict=True) if events else ((), (), ())
    counts = [len(run) for _, run in runs]
    count, behind = len(objects), sum(counts)
    single = np.zeros(count, TRANSFER)
    single["place"], single["offset"] = where, -1
    for name in ("kind", "handle", "length", "address", "first_frame", "first_time", "last_time"):
        single[name] = np.fromiter(map(attrgetter(name), objects), single.dtype[name], count)
    rows = joined([*(run.rows for _, run in runs), single, *(part.rows for part in earlier)])
    whole = np.concatenate([np.ones(behind + count, np.bool_), *(part.whole for part in earlier)])
    retransmissions = np.concatenate([np.zeros(behind + count, np.int64), *(part.retransmissions for part in earlier)])
    firsts = np.cumsum([0, *counts])
    made = [*enumerate(objects, behind)]
    for (_, run), first in zip(runs, firsts.tolist(), strict=False):
        made += [(first + row, operation) for row, operation in run.made.items() if row < len(run)]
    number = np.append(np.repeat(np.arange(len(runs)), counts), np.full(count, -1))
    row = np.arange(behind + count) - firsts[number]
    operations = TransferOperations([run for _, run in runs], objects, number, row)
    for part in earlier:
        made += [(len(operations) + at, operation) for at, operation in part.operations.made_so_far()]
        operations = operations.with_others(part.operations)
    for at, operation in made:
        whole[at], retransmissions[at], rows["last_time"][at], rows["truncated"][at] = (
            _is_whole(operation),
            operation.retransmissions,
            operation.last_time,
            operation.payload.truncated,
        )
    slots = np.concatenate(
        [
            np.repeat(np.array([index << 1 | 1 - run.sender for index, run in runs], np.int64), counts),
            np.array([index << 1 | 1 - operation.initiator for _, index, operation in events], np.int64),
            *(part.slot for part in earlier),
        ]
    )
    return RowTransfers(operations, rows, slots, retransmissions, whole)


def _is_whole(operation: Operation) -> bool:
    payload = operation.payload
    return (
        payload.seen == payload.length == operation.length > 0
        and operation.closed
        and operation.start_known
        and operation.end_known
        and not (operation.contradicted or operation.reused or operation.doubted)
    )


class RowChunks:
    """Evaluates the chunks of some RPCs."""

    def __init__(
        self,
        data: Bytes,
        packets: Rows,
        read: SendColumns,
        call: Int64s,
        reply: Int64s,
        returned: Int64s,
        carried: Mapping[int, list[int]],
        transfers: RowTransfers,
    ) -> None:
        """``call``, ``reply``: indices of Sends, which are PACKET rows; ``returned``, ``carried``: by segment of all
        Sends, the length that the reply returns, -1 for none, and the indices of the ``transfers`` on it."""
        self._data, self._packets, self._read = data, packets, read
        self._call, self._reply = call, reply
        index, self._firsts = ranges(read.firsts, call)
        self._segments = read.segments.take(index)
        self._rpc = np.repeat(np.arange(len(call)), np.diff(self._firsts))
        self._returned = returned[index]
        parts = [carried.get(segment, ()) for segment in index.tolist()]
        counts = np.array([len(part) for part in parts], np.int64)
        self._used = np.append(0, np.cumsum(counts))
        self._order = np.fromiter(chain.from_iterable(parts), np.int64, int(self._used[-1]))
        self._owner = np.repeat(np.arange(len(index)), counts)
        self._transfers = transfers
        self.right = np.ones(len(call), np.bool_)
        """By RPC, whether it can stay a row."""
        self._results = np.full(len(call), -1)

    def columns(self) -> ChunkColumns:
        """The chunks of all RPCs; ``right`` then says which of these can stay rows."""
        transfers, order = self._transfers, self._order
        moved = take(transfers.rows, order)
        transferred = np.bincount(self._owner, moved["length"], len(self._segments)).astype(np.int64)
        operations = transfers.operations.chosen(order)
        self._check_read_counts()
        self._read_results(self._used, operations, moved)
        self._check_items(transferred)
        cells, size = self._rpc * 3 + self._segments["list"], 3 * len(self._call)
        advertised, through = (
            np.bincount(cells, values, size).astype(np.int64).reshape(-1, 3)
            for values in (self._segments["length"], transferred)
        )
        reads, writes = self._times(moved)
        repeated = np.bincount(self._rpc[self._owner], transfers.retransmissions[order], len(self._call))
        return ChunkColumns(
            self._firsts, self._segments, self._returned, self._used, operations, advertised, through, reads, writes,
            repeated.astype(np.int64), self._results,
        )  # fmt: skip

    @property
    def truncated(self) -> NDArray[np.bool_]:
        """By RPC, whether the capture lacks bytes of its chunks."""
        short = self._transfers.rows["truncated"][self._order]
        return np.bincount(self._rpc[self._owner[short]], minlength=len(self._call)) > 0

    def _check_read_counts(self) -> None:
        """Check that the word before each Position is the length of the chunk there (``outcome``)."""
        reading = self._segments["list"] == READ_LIST
        rpcs = self._rpc[reading]
        if not len(rpcs):
            return
        length = np.bincount(rpcs, self._segments["length"][reading], len(self._call)).astype(np.int64)
        position = np.zeros(len(self._call), np.int64)
        position[rpcs] = self._segments["position"][reading]
        rpcs = unique(rpcs)
        calls = self._call[rpcs]
        start = self._packets["payload"][calls] + self._read.header[calls]
        end = self._packets["payload"][calls] + self._packets["captured"][calls]
        at = start + position[rpcs] - 4
        inside = (start <= at) & (at <= end - 4)
        # If the call is truncated before that word, nothing contradicts it.
        self.right[rpcs[~inside & ~(self._read.truncated[calls] & (start <= at))]] = False
        rpcs, at = rpcs[inside], at[inside]
        count = words_at(self._data, at)
        agreed = (length[rpcs] == count) | (length[rpcs] == count + 3 & -4)
        self.right[rpcs[~agreed]] = False

    def _read_results(self, used: Int64s, operations: Sequence[Operation], rows: Rows) -> None:
        """Read the beginning of replies that came through the Reply chunk."""
        long = places((self._read.words[self._reply, 3] == RDMA_NOMSG) & self.right)
        segments = self._firsts[long] + self._read.counts[self._call[long]][:, :REPLY_CHUNK].sum(axis=1)
        there = used[segments] < used[segments + 1]
        self.right[long[~there]] = False
        long, at = long[there], used[segments[there]]
        if not len(long):
            return
        xids, offsets, begins = self._read.words[self._reply[long], 0], rows["offset"][at], rows["begins"][at]
        service = self._read.service[self._call[long]]
        wrapped = np.where(service == GSS_INTEGRITY, 8, 0)
        quick = (offsets >= 0) & (begins >= _REPLY_BYTES)
        words = big_endian_words(gathered(self._data, _REPLY_BYTES, np.where(quick, offsets, 0)))
        size = words[:, 4].clip(0, MAX_AUTH) + 3 & -4
        quick &= (words[:, 0] == xids) & (words[:, 1:3] == (REPLY, MSG_ACCEPTED)).all(axis=1)
        quick &= np.where(service > 0, words[:, 4] <= MAX_AUTH, words[:, 3] | words[:, 4] == 0)
        quick &= (begins >= _REPLY_BYTES + size + wrapped) & (service < GSS_PRIVACY)
        place = np.where(quick, offsets + size, 0)
        quick &= words_at(self._data, place + 20) == SUCCESS
        self._results[long[quick]] = words_at(self._data, place + 24 + wrapped)[quick]
        self.right[long[~quick]] = False
        for index in places((offsets < 0) & (service == 0)).tolist():
            result = _result(int(xids[index]), operations[int(at[index])])
            if result is not None:
                self.right[long[index]], self._results[long[index]] = True, result

    def _check_items(self, transferred: Int64s) -> None:
        """Check that the count word of the result in a Write chunk is what was returned (``outcome``)."""
        writing = self._segments["list"] == WRITE_LIST
        returned = np.bincount(self._rpc[writing], transferred[writing], len(self._call)).astype(np.int64)
        view = self._data.data
        for rpc in (self.right & (returned > 0)).nonzero()[0].tolist():
            program, version, procedure = self._read.procedures[self._call[rpc]].tolist()
            reply = int(self._reply[rpc])
            at = int(self._packets["payload"][reply])
            start, end = at + int(self._read.header[reply]), at + int(self._packets["captured"][reply])
            length, service = int(returned[rpc]), int(self._read.service[self._call[rpc]])
            gss = credential_of(service, 0)
            result = (
                binding.reply_items(program, version, procedure, view[start:end], 0, end - start, (length,), gss)
                if binding.has_binding(program, version)
                else None
            )
            counts = [] if result is None else [item.count for item in result.items if item.reduced and item.chunk == 0]
            unread = self._read.truncated[reply] and not counts
            self.right[rpc] = result is not None and (unread or (not result.problem and counts == [length]))

    def _times(self, moved: Rows) -> tuple[Int64s, Int64s]:
        """By RPC, the duration of its RDMA Reads, and of its RDMA Writes after those, in ns (``latency``)."""
        begin, end = self._packets["time"][self._call], self._packets["time"][self._reply]
        reached = begin.copy()
        spent = []
        reading = self._segments["list"][self._owner] == READ_LIST
        for mine in (reading, ~reading):
            rpc, rows = self._rpc[self._owner[mine]], take(moved, mine)
            duration = np.zeros(len(begin), np.int64)
            if len(rpc):
                edges = stretches(rpc)
                which = rpc[edges]
                low, high = reached[which], end[which]
                first = np.minimum.reduceat(rows["first_time"], edges).clip(low, high)
                last = np.maximum.reduceat(rows["last_time"], edges).clip(first, high)
                duration[which] = last - first
                reached[which] = last
            spent.append(duration)
        return spent[0], spent[1]


def _result(xid: int, operation: Operation) -> int | None:
    """The first word of the results if the Operation begins with a usual reply; else None."""
    data, start, end = operation.payload.first()
    if end - start < _REPLY_BYTES:
        return None
    reply_xid, *words, result = _REPLY(data, start)
    return result if reply_xid == xid and words == [REPLY, MSG_ACCEPTED, 0, 0, 0] else None
