"""Whether messages are decided as rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from rdmascope.dissect.rpcrdma import machine


@contextmanager
def decided(rows: bool) -> Iterator[None]:
    """All that can be are rows, however few; or all are objects."""
    with patch.object(machine, "MIN_ROWS", 1 if rows else 1 << 62):
        yield
