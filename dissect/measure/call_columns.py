"""The RPCs of a table in the few columns that questions about time and load are asked of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..arrays import Int64s, take
from ..rpcrdma.rpc_table import STATES, RpcNames, RpcTable
from ..rpcrdma.rpcs import DUPLICATE_REPLY
from .statistics import PARTS

_DUPLICATE = STATES.index(DUPLICATE_REPLY)
_ENDED = np.array([STATES.index("complete"), STATES.index("error")])


@dataclass(frozen=True, slots=True)
class CallColumns:
    """RPCs in columns; duplicate replies are not among them."""

    rows: Int64s
    """Their rows in the table."""
    numbers: Int64s
    times: Int64s
    """Nanoseconds since the Unix epoch: first packet of the call, or of the reply where no call was seen."""
    latencies: Int64s
    """Nanoseconds; -1 where it is not known."""
    waiting: Int64s
    """As ``RpcTable.waiting``."""
    parts: Int64s
    """``PARTS`` in columns, nanoseconds; 0 where unknown."""
    call_bytes: Int64s
    reply_bytes: Int64s
    failed: NDArray[np.bool_]
    """The reply reports an error."""
    incomplete: NDArray[np.bool_]
    """Neither 'complete' nor 'error'."""
    procedures: Int64s
    """Index into ``names.procedures``, doubled, and one more where the call came from the server."""
    names: RpcNames

    @property
    def outstanding(self) -> NDArray[np.bool_]:
        """What is known of the latency is a lower bound."""
        return (self.latencies < 0) & (self.waiting >= 0)


def call_columns(table: RpcTable, passes: NDArray[np.bool_] | None = None) -> CallColumns:
    """Of a table, those of its RPCs that pass; all by default."""
    kept = table.rows["state"] != _DUPLICATE
    if passes is not None:
        kept &= passes
    rows = take(table.rows, kept)
    failures = np.array([failed for _, failed in table.names.statuses] or [False])
    whole = rows["read_bytes"], rows["write_bytes"] + rows["reply_chunk_bytes"]
    return CallColumns(
        np.flatnonzero(kept),
        rows["number"].astype(np.int64),
        np.where(rows["call_frame"] != 0, rows["call_time"], rows["reply_time"]),
        rows["latency"].astype(np.int64),
        take(table.waiting, kept),
        np.column_stack([rows[f"latency_{part}"] for part in PARTS]),
        rows["call_inline"] + whole[0],
        rows["reply_inline"] + whole[1],
        failures[rows["status"]],
        ~np.isin(rows["state"], _ENDED),
        rows["procedure"].astype(np.int64) << 1 | (rows["caller"] != 0),
        table.names,
    )
