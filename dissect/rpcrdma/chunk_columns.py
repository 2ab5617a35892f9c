"""The chunks of the row RPCs of a batch, in columns."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..arrays import Bytes, Int64s, MadeSequence, Rows, take
from ..layers.rpcrdma_codes import RDMA_NOMSG
from ..named_tuple import NamedTuple
from ..transport.operations import Operation
from ..transport.runs import TransferOperations, first_bytes
from .chunk_lists import READ_LIST, REPLY_CHUNK, WRITE_LIST
from .messages import ReadChunk, Segment, WriteChunk
from .rpcs import ChunkUse, Rpc, SegmentUse

_KINDS = "read", "write", "reply"
_MAX_OFFSET = (1 << 64) - 1


class LongReply(NamedTuple):
    """A reply that one RDMA Write put into a Reply chunk of one segment."""

    handle: int
    length: int
    """Bytes of the chunk."""
    offset: int
    returned: int
    operation: Operation


class ReplyChunks(NamedTuple):
    """Reply chunks of one segment, in columns."""

    handle: Int64s
    length: Int64s
    """Bytes of the chunk."""
    offset: NDArray[np.uint64]
    returned: Int64s
    """Bytes of the reply."""


@dataclass(slots=True, eq=False)
class ChunkColumns:
    """The chunks of row RPCs; their columns are indexed by RPC, segment or Operation.

    Each RPC has at most one Read chunk, one Write chunk and a Reply chunk; segments are in this order.
    """

    firsts: Int64s
    """Per RPC the index of its first segment; and at the end the number of segments."""
    segments: Rows
    """SEGMENT rows."""
    returned: Int64s
    """Per segment the length that the reply returns; -1 if it returns none."""
    used: Int64s
    """Per segment the index of its first Operation; and at the end the number of Operations."""
    operations: Sequence[Operation]
    advertised: Int64s
    """Per RPC the bytes of its Read, Write and Reply chunks, (n, 3)."""
    transferred: Int64s
    reads: Int64s
    """Per RPC the duration of its RDMA Reads, ns."""
    writes: Int64s
    retransmissions: Int64s
    results: Int64s
    """Per RPC the first word of the results, if the reply came through the Reply chunk; else -1."""

    @property
    def found(self) -> TransferOperations:
        """The Operations, in the process that made them."""
        assert isinstance(self.operations, TransferOperations)
        return self.operations

    def counts(self) -> Int64s:
        """Number of segments of each RPC by kind of chunk, (n, 3)."""
        rpcs = np.repeat(np.arange(len(self.firsts) - 1), np.diff(self.firsts))
        cells = np.bincount(rpcs * 3 + self.segments["list"], minlength=3 * (len(self.firsts) - 1))
        return cells.reshape(-1, 3)

    def chosen(self, rpcs: Int64s) -> ChunkColumns:
        """The columns of some RPCs, renumbered."""
        segments, firsts = ranges(self.firsts, rpcs)
        operations, used = ranges(self.used, segments)
        return ChunkColumns(
            firsts,
            self.segments.take(segments),
            self.returned[segments],
            used,
            self.found.chosen(operations),
            *(
                column[rpcs]
                for column in (
                    self.advertised, self.transferred, self.reads, self.writes, self.retransmissions, self.results,
                )
            ),
        )  # fmt: skip

    @staticmethod
    def joined(parts: Sequence[ChunkColumns]) -> ChunkColumns:
        """The columns of several tables as one, renumbered."""
        segments = np.cumsum([0, *(len(part.segments) for part in parts)])
        operations = np.cumsum([0, *(len(part.operations) for part in parts)])
        last = parts[-1]
        return ChunkColumns(
            _through([part.firsts for part in parts], segments, last.firsts),
            np.concatenate([part.segments for part in parts]),
            np.concatenate([part.returned for part in parts]),
            _through([part.used for part in parts], operations, last.used),
            _Joined([part.operations for part in parts], operations),
            *(
                np.concatenate([getattr(part, name) for part in parts])
                for name in ("advertised", "transferred", "reads", "writes", "retransmissions", "results")
            ),
        )

    def transfers(self, rpcs: Int64s) -> NDArray[np.bool_]:
        """Which RPCs have a Reply chunk of one segment as their only chunk, filled by one RDMA Write."""
        alone = (self.counts()[rpcs] == (0, 0, 1)).all(axis=1) & (self.results[rpcs] >= 0)
        single: NDArray[np.bool_] = alone & (np.diff(self.used)[self.firsts[rpcs]] == 1)
        return single

    def places(self, rpcs: Int64s, data: Bytes) -> tuple[Int64s, Int64s, Int64s]:
        """For RPCs with a ``transfer``: the offsets in ``data`` where the reply begins and its captured bytes end, -1
        if it is elsewhere or in several packets; and how many of its bytes are not captured."""
        segments = self.firsts[rpcs]
        used, operations = self.used[segments], self.operations
        if isinstance(operations, TransferOperations):
            starts, sizes, lacks = operations.first_bytes(used, data)
        else:
            firsts = [first_bytes(operations[index], data) for index in used.tolist()]
            starts, sizes, lacks = np.array([(*first, 0) for first in firsts], np.int64).reshape(-1, 3).T
        inside = (starts >= 0) & (sizes + lacks == self.returned[segments])
        return np.where(inside, starts, -1), np.where(inside, starts + sizes, -1), lacks

    def reply_chunks(self, rpcs: Int64s) -> ReplyChunks:
        """The Reply chunks of RPCs with a ``transfer``."""
        segments = self.firsts[rpcs]
        rows = take(self.segments, segments)
        offsets = rows["offset"].astype(np.uint64)
        return ReplyChunks(rows["handle"], rows["length"], offsets, self.returned[segments])

    def long_replies(self, rpcs: Int64s) -> list[LongReply]:
        """The replies of RPCs with a ``transfer``."""
        through = map(self.operations.__getitem__, self.used[self.firsts[rpcs]].tolist())
        columns = [column.tolist() for column in self.reply_chunks(rpcs)]
        return [LongReply(*values) for values in zip(*columns, through, strict=True)]

    def complete(self, index: int, rpc: Rpc) -> None:
        """Give the chunks of RPC ``index`` to its Rpc, which was made as if its Sends had none."""
        assert rpc.call is not None and rpc.reply is not None
        first, behind = int(self.firsts[index]), int(self.firsts[index + 1])
        rows = self.segments[first:behind]
        used: list[int] = self.used[first : behind + 1].tolist()
        operations = [*self.operations[used[0] : used[-1]]]
        uses: list[list[SegmentUse]] = [[], [], []]
        for list_, handle, length, offset, returned, start, end in zip(
            *(rows[name].tolist() for name in ("list", "handle", "length", "offset")),
            self.returned[first:behind].tolist(),
            used[:-1],
            used[1:],
            strict=True,
        ):
            segment = Segment(handle, length, offset & _MAX_OFFSET)
            mine = operations[start - used[0] : end - used[0]]
            uses[list_].append(SegmentUse(segment, returned if returned >= 0 else None, mine))
        call, reply = rpc.call.header, rpc.reply.header
        given = [tuple([use.advertised for use in uses_of_kind]) for uses_of_kind in uses]
        back = [
            tuple([use.advertised._replace(length=use.returned) for use in uses_of_kind if use.returned is not None])
            for uses_of_kind in uses
        ]
        position = int(rows["position"][0]) if uses[READ_LIST] else None
        if position is not None:
            call.reads = (ReadChunk(position, given[READ_LIST]),)
        for header, segments in ((call, given), (reply, back)):
            if segments[WRITE_LIST]:
                header.writes = (WriteChunk(segments[WRITE_LIST]),)
            if segments[REPLY_CHUNK]:
                header.reply = WriteChunk(segments[REPLY_CHUNK])
        if self.results[index] >= 0:
            reply.procedure = RDMA_NOMSG
        rpc.chunks = [
            ChunkUse(kind, position if kind == "read" else None, uses_of_kind)
            for kind, uses_of_kind in zip(_KINDS, uses, strict=True)
            if uses_of_kind
        ]


class _Joined(MadeSequence[Operation]):
    """The Operations of several tables as one sequence, made when accessed."""

    def __init__(self, parts: list[Sequence[Operation]], firsts: Int64s) -> None:
        self._parts = parts
        self._firsts: list[int] = firsts.tolist()

    def __len__(self) -> int:
        return self._firsts[-1]

    def made(self, index: int) -> Operation:
        part = bisect_right(self._firsts, index) - 1
        return self._parts[part][index - self._firsts[part]]


def _through(bounds: Sequence[Int64s], offsets: Int64s, last: Int64s) -> Int64s:
    """Concatenate bounds, each renumbered by its offset; of their final entries only the last one stays."""
    moved = [bound[:-1] + offset for bound, offset in zip(bounds, offsets[:-1].tolist(), strict=True)]
    return np.concatenate([*moved, last[-1:] + offsets[-2]])


def ranges(bounds: Int64s, chosen: Int64s) -> tuple[Int64s, Int64s]:
    """The indices within the ``chosen`` ranges between ``bounds``; and the bounds of these ranges among them."""
    sizes = np.diff(bounds)[chosen]
    ends = np.cumsum(sizes)
    within = np.arange(int(sizes.sum())) - np.repeat(ends - sizes, sizes)
    return np.repeat(bounds[:-1][chosen], sizes) + within, np.append(0, ends)


def note_chunks(rows: Rows, chunks: ChunkColumns) -> None:
    """Fill in the columns of RPC rows that are derived from chunks."""
    through = rows["chunks"] >= 0
    mine = rows["chunks"][through]
    segments = chunks.counts()[mine]
    for kind, name in enumerate(("read", "write", "reply")):
        rows["reply_chunk_bytes" if name == "reply" else f"{name}_bytes"][through] = chunks.transferred[mine, kind]
        rows[f"{name}_segments"][through] = segments[:, kind]
        rows[f"{name}_chunks"][through] = segments[:, kind] > 0
    rows["latency_reads"][through] = chunks.reads[mine]
    rows["latency_writes"][through] = chunks.writes[mine]
    rows["latency_server"][through] -= chunks.reads[mine] + chunks.writes[mine]
    rows["retransmissions"][through] = chunks.retransmissions[mine]
    rows["transfer"][through] = np.where(chunks.transfers(mine), mine, -1)
