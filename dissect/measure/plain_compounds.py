"""Plain NFSv4 COMPOUNDs of a batch in columns, as far as the state of clients depends on them.

Which of them is decoded further: those with an operation that changes state, and those that may show the lease time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays import Bytes, Int64s, Rows, distinct, gathered, take
from ..onc.compound import operation_names
from ..onc.programs import NFS, NFS_CALLBACK
from ..onc.sequence import SlotRequest, SlotResult, slot_requests, slot_results
from ..rpcrdma.rpc_fields import REPLY_HEADER, argument_places
from ..rpcrdma.rpc_table import PlainRpcs, ProcedureNames, made
from ..rpcrdma.rpcs import Rpc
from .nfs_state_operations import LEASE_TIME, OP_GETATTR, ChangingStep
from .nfs_state_steps import CHANGING, CompoundLayouts, StepPlaces

RENEWING = frozenset((4, 8, 12, 14, 18, 20, 21, 25, 30, 34, 38))
"""Of NFSv4.0: RENEW, and what has a stateid or an owner (RFC 7530, 9.5)."""
_CHANGING_NAMES = frozenset(operation_names(tuple(CHANGING)))
_RENEWING_NAMES = frozenset(operation_names(tuple(RENEWING)))
_COMPOUND = 1
"""The procedure, of NFSv4 and of its callbacks."""


class CompoundKind(NamedTuple):
    """What the operations of a COMPOUND say of it."""

    callback: bool
    minor_version: int | None
    operations: tuple[str, ...]
    changes: bool
    """One of them may change state."""
    renews: bool
    """It renews the lease of an NFSv4.0 client, and changes nothing."""
    attributes: bool
    """It has a GETATTR."""


@lru_cache(maxsize=4096)
def compound_kind(names: ProcedureNames) -> CompoundKind | None:
    """None of another procedure."""
    callback = names.program == NFS_CALLBACK
    if not (callback or (names.program == NFS and names.version == 4)) or names.procedure != _COMPOUND:
        return None
    operations = frozenset(names.operations)
    changes = callback or not operations.isdisjoint(_CHANGING_NAMES)
    renews = names.minor_version == 0 and not changes and not operations.isdisjoint(_RENEWING_NAMES)
    return CompoundKind(callback, names.minor_version, names.operations, changes, renews, "GETATTR" in operations)


class _Changes(NamedTuple):
    places: StepPlaces
    call: memoryview
    """Arguments."""
    reply: memoryview
    """Results."""

    def steps(self) -> Iterator[ChangingStep]:
        return self.places.steps(self.call, self.reply)


@dataclass(slots=True)
class PlainCompound:
    """One row."""

    kind: CompoundKind
    request: SlotRequest | None
    result: SlotResult | None
    rpc: Rpc | None
    """The same as an object, where its operations have to be decoded, or may have to be."""
    changes: _Changes | None
    """What it changes, where that is known without."""
    elsewhere: bool
    """The reply came through a Reply chunk, and not in one piece."""
    status: str
    number: int
    connection: int
    caller: int
    call_frame: int
    call_time: int
    reply_frame: int
    reply_end: int


class PlainCompounds(NamedTuple):
    """Those of a batch, in the order of calls."""

    compounds: list[PlainCompound]
    call_times: Int64s
    call_frames: Int64s
    """Last frames."""
    reply_times: Int64s
    reply_frames: Int64s


def plain_compounds(rows: Rows, rpcs: PlainRpcs, layouts: CompoundLayouts) -> PlainCompounds:
    """Of the RPC rows of one direction of a connection."""
    kinds = {code: compound_kind(rpcs.names.procedures[code]) for code in np.unique(rows["procedure"]).tolist()}
    if None in kinds.values():
        rows = take(rows, np.isin(rows["procedure"], [code for code, kind in kinds.items() if kind is not None]))
    first, which = distinct(rows["procedure"])
    chosen = [kinds[code] for code in rows["procedure"][first].tolist()]
    data = rpcs.data
    ends, behind = (rows[f"{side}_at"] + rows[f"{side}_send"] for side in ("call", "reply"))
    starts = argument_places(data, ends - rows["call_inline"])
    results = behind - rows["reply_inline"] + REPLY_HEADER
    elsewhere = rows["reply_inline"] == 0
    long = (elsewhere & (rows["transfer"] >= 0)).nonzero()[0]
    if len(long) and rpcs.chunks is not None:
        results[long], behind[long] = rpcs.chunks.places(rows["transfer"][long], data)
        elsewhere[long] = results[long] < 0
        results[long] += REPLY_HEADER
    requests: list[SlotRequest | None] = [None] * len(rows)
    answers: list[SlotResult | None] = [None] * len(rows)
    changes: list[_Changes | None] = [None] * len(rows)
    decoded = elsewhere.copy()
    view = data.data
    for callback in (False, True):
        mine = np.isin(which, [index for index, kind in enumerate(chosen) if kind and kind.callback is callback])
        places = mine.nonzero()[0]
        if not len(places):
            continue
        for place, request, answer in zip(
            places.tolist(),
            slot_requests(data, starts[places], ends[places], callback),
            slot_results(data, results[places], behind[places], callback),
            strict=True,
        ):
            requests[place], answers[place] = request, answer
    for index, kind in enumerate(chosen):
        assert kind is not None
        mine = which == index
        if kind.changes and not kind.callback:
            whole = (mine & ~elsewhere).nonzero()[0]
            edges = [one[whole] for one in (starts, ends, results, behind)]
            for row, known in zip(whole.tolist(), layouts.places(data, *edges), strict=True):
                if known is None:
                    decoded[row] = True
                else:
                    call, reply = view[starts[row] : ends[row]], view[results[row] : behind[row]]
                    changes[row] = _Changes(known, call, reply)
        else:
            decoded[mine] |= kind.changes or (kind.attributes and asks_for_lease(data, starts[mine], ends[mine]))
    objects = iter(made(rpcs, take(rows, decoded)))
    statuses = rpcs.names.statuses
    names = "status", "number", "connection", "caller", "call_frame", "call_time", "reply_frame", "reply_end"
    found = [
        PlainCompound(
            chosen[index],
            request,
            answer,
            next(objects) if is_decoded else None,
            changed,
            is_elsewhere,
            statuses[status][0],
            *rest,
        )
        for index, request, answer, is_decoded, changed, is_elsewhere, status, *rest in zip(
            which.tolist(),
            requests,
            answers,
            decoded.tolist(),
            changes,
            elsewhere.tolist(),
            *(rows[name].tolist() for name in names),
            strict=True,
        )
    ]
    return PlainCompounds(
        found, *(rows[name].astype(np.int64) for name in ("call_time", "call_last_frame", "reply_end", "reply_frame"))
    )


def asks_for_lease(data: Bytes, starts: Int64s, ends: Int64s) -> NDArray[np.bool_]:
    """Whether a COMPOUND may have a GETATTR for lease_time: some three words of it look like that.

    Args:
        data, starts, ends: the arguments are ``data[starts[i]:ends[i]]``.
    """
    found = np.zeros(len(starts), np.bool_)
    sizes = ends - starts & -4
    for size in np.unique(sizes).tolist():
        mine = (sizes == size).nonzero()[0]
        if size < 12:
            continue
        words = gathered(data, size, starts[mine]).view(">u4")
        operation, count, mask = words[:, :-2], words[:, 1:-1], words[:, 2:]
        found[mine] = ((operation == OP_GETATTR) & (count > 0) & (mask >> LEASE_TIME & 1 == 1)).any(axis=1)
    return found
