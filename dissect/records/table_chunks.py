"""The tables of chunks and of their segments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ..rpcrdma.rpcs import ChunkUse, Rpc, SegmentUse
from .rpc_columns import RpcBatch
from .table import Table, TableColumn


class _ChunkRow(NamedTuple):
    rpc: Rpc
    number: int
    chunk: ChunkUse


class _SegmentRow(NamedTuple):
    rpc: Rpc
    chunk: int
    number: int
    use: SegmentUse


def _chunk_rows(batch: RpcBatch) -> Iterator[_ChunkRow]:
    for rpc in batch.with_chunks:
        yield from (_ChunkRow(rpc, number, chunk) for number, chunk in enumerate(rpc.chunks, 1))


def _segment_rows(batch: RpcBatch) -> Iterator[_SegmentRow]:
    for row in _chunk_rows(batch):
        yield from (_SegmentRow(row.rpc, row.number, index, use) for index, use in enumerate(row.chunk.segments, 1))


def _use(name: str, type: str, meaning: str, value: Callable[[SegmentUse], Any]) -> TableColumn:
    return TableColumn(name, type, meaning, lambda row: value(row.use))


RPC_NUMBER = TableColumn("rpc", "int", "number of the RPC", lambda row: row.rpc.number)

CHUNKS = Table(
    "chunks",
    "rpc",
    "a chunk that a call advertises",
    (
        RPC_NUMBER,
        TableColumn("chunk", "int", "counted from 1 in the RPC", lambda row: row.number),
        TableColumn("kind", "text", "read, write or reply", lambda row: row.chunk.kind),
        TableColumn("position", "int", "Position of a Read chunk", lambda row: row.chunk.position),
        TableColumn("segments", "int", "its segments", lambda row: len(row.chunk.segments)),
        TableColumn("advertised_bytes", "int", "advertised by the call", lambda row: row.chunk.advertised),
        TableColumn("returned_bytes", "int", "written, by the reply", lambda row: row.chunk.returned),
        TableColumn("transferred_bytes", "int", "moved by RDMA Reads and Writes, each byte once",
               lambda row: row.chunk.transferred),
    ),
    _chunk_rows,
)  # fmt: skip

SEGMENTS = Table(
    "segments",
    "rpc",
    "a segment of a chunk",
    (
        RPC_NUMBER,
        TableColumn("chunk", "int", "number of its chunk in the RPC", lambda row: row.chunk),
        TableColumn("segment", "int", "counted from 1 in the chunk", lambda row: row.number),
        _use("handle", "int", "R_key or STag", lambda use: use.advertised.handle),
        _use("offset_bytes", "uint", "address of its first byte", lambda use: use.advertised.offset),
        _use("advertised_bytes", "int", "advertised by the call", lambda use: use.advertised.length),
        _use("returned_bytes", "int", "written, by the reply", lambda use: use.returned),
        _use("transferred_bytes", "int", "moved by RDMA Reads and Writes, each byte once",
             lambda use: use.transferred),
        _use("operations", "int", "RDMA Reads or Writes that used it", lambda use: len(use.operations)),
        _use("late_operations", "int", "RDMA Writes on it that followed the reply", lambda use: len(use.late)),
    ),
    _segment_rows,
)  # fmt: skip
