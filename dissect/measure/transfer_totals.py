"""How Payload streams travelled: messages, chunks and bytes of each way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..arrays import take
from ..layers.rpcrdma_codes import RDMA_NOMSG
from ..rpcrdma.rpc_table import RpcTable
from ..rpcrdma.rpcs import Rpc

WAYS = ("inline call", "inline reply", "read chunk", "position zero", "write chunk", "reply chunk")
"""How Payload streams travel (RFC 8166, 3.4 and 3.5): in a Send, or through memory."""


@dataclass(slots=True)
class TransferTotals:
    """One of ``WAYS``: how many messages used it, and their bytes."""

    messages: int = 0
    chunks: int = 0
    segments: int = 0
    advertised: int = 0
    """Bytes of memory offered; inline: 0."""
    transferred: int = 0
    unused: int = 0
    """Chunks without a byte transferred."""


def add_chunks(totals_by_way: Mapping[str, TransferTotals], rpc: Rpc) -> None:
    """The chunks of an RPC."""
    ways = set()
    long_call = rpc.call is not None and rpc.call.header.procedure == RDMA_NOMSG
    for chunk in rpc.chunks:
        transferred = chunk.transferred
        way = f"{chunk.kind} chunk"
        if long_call and chunk.kind == "read" and chunk.position == 0:
            way = "position zero"
        totals = totals_by_way[way]
        if way not in ways:
            ways.add(way)
            totals.messages += 1
        totals.chunks += 1
        totals.segments += len(chunk.segments)
        totals.advertised += chunk.advertised
        totals.transferred += transferred
        if not transferred:
            totals.unused += 1


def add_chunk_rows(totals_by_way: Mapping[str, TransferTotals], table: RpcTable) -> None:
    """Those of the plain rows of a table."""
    rows = take(table.plain_rows, table.plain_rows["chunks"] >= 0)
    if not len(rows):
        return
    for kind, advertised in zip(("read", "write", "reply"), table.advertised(rows).T, strict=True):
        totals = totals_by_way[f"{kind} chunk"]
        transferred = rows["reply_chunk_bytes" if kind == "reply" else f"{kind}_bytes"]
        offered = rows[f"{kind}_chunks"] > 0  # One of a kind at most.
        count = int(np.count_nonzero(offered))
        totals.messages += count
        totals.chunks += count
        totals.segments += int(rows[f"{kind}_segments"].sum())
        totals.advertised += int(advertised.sum())
        totals.transferred += int(transferred.sum())
        totals.unused += int(np.count_nonzero(offered & (transferred == 0)))
