"""Whether messages are decided as rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from unittest.mock import patch

from rdmascope.dissect.rpcrdma.dispatch import Dispatcher
from rdmascope.dissect.rpcrdma.machine import Machine
from rdmascope.dissect.rpcrdma.row_batch import Sends


@contextmanager
def decided(rows: bool) -> Iterator[None]:
    """All that can be are rows; or all are objects."""
    with nullcontext() if rows else patch.object(Machine, "_refuse", _refuse_all):
        yield


def _refuse_all(machine: Machine, sends: Sends, dispatchers: list[Dispatcher]) -> None:
    sends.procedures[:], sends.replies[:] = -1, False
