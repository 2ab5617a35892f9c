"""Operations in columns: those of plain RPCs without their bytes, each made again when it is wanted."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import overload

import numpy as np

from rdmascope.dissect.arrays import Int64s
from rdmascope.dissect.transport.operations import Kind, Operation, Payload

_COLUMNS = (
    "kind", "initiator", "first_frame", "last_frame", "first_time", "last_time", "length", "handle", "psn", "packets",
    "last_sent", "retransmissions", "payload.length", "payload.seen",
)  # fmt: skip
_values = attrgetter(*_COLUMNS, "address")
_KINDS = tuple(Kind)


class OperationColumns(Sequence[Operation]):
    """What a list of Operations holds, some perhaps again and again."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        own = {id(one): one for one in operations}
        usual = [one for one in own.values() if _usual(one)]
        values = [_values(one) for one in usual]
        self._columns: Int64s = np.array([one[:-1] for one in values], np.int64).reshape(-1, len(_COLUMNS))
        self._addresses = np.array([one[-1] for one in values], np.uint64)
        self._others = [one for one in own.values() if not _usual(one)]
        index = {id(one): at for at, one in enumerate([*usual, *self._others])}
        self._which = np.array([index[id(one)] for one in operations], np.int64)
        self._made: dict[int, Operation] = {}

    def __len__(self) -> int:
        return len(self._which)

    @overload
    def __getitem__(self, index: int) -> Operation: ...

    @overload
    def __getitem__(self, index: slice) -> list[Operation]: ...

    def __getitem__(self, index: int | slice) -> Operation | list[Operation]:
        if isinstance(index, slice):
            return [self._operation(one) for one in self._which[index].tolist()]
        return self._operation(int(self._which[index]))

    def _operation(self, index: int) -> Operation:
        """The same object each time: an RPC counts each once."""
        if index >= len(self._columns):
            return self._others[index - len(self._columns)]
        made = self._made.get(index)
        if made is None:
            kind, initiator, *frames, length, handle, psn, packets, sent, again, size, seen = self._columns[
                index
            ].tolist()
            first, last, begin, end = frames
            address = int(self._addresses[index])
            payload = Payload(size, seen)
            made = Operation(
                _KINDS[kind], initiator, first, last, begin, end, length, payload, handle, address, psn, packets
            )
            made.last_sent, made.retransmissions = sent, again
            self._made[index] = made
        return made


def _usual(one: Operation) -> bool:
    """Its columns say all of it."""
    payload = one.payload
    return (
        payload.stretch is None
        and payload.only is None
        and not payload.runs
        and not payload.truncated
        and one.invalidate is None
        and one.immediate is None
        and not (one.contradicted or one.doubtful or one.reused or one.position)
        and one.start_known
        and one.end_known
        and one.closed
    )
