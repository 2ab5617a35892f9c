"""The latency of an RPC and its parts, as a part of records."""

from __future__ import annotations

from ..rpcrdma.rpcs import Latency
from .schema import Record


def latency_fields(latency: Latency | None) -> Record | None:
    if latency is None:
        return None
    return {f"{name}_ns": value for name, value in latency._asdict().items()}
