"""Flows by one number: the packets from one host to one queue pair of another."""

from __future__ import annotations

import numpy as np

from ...arrays import Rows


def flow_key(source: int, destination: int, dest_qp: int) -> int:
    """Key of the packets from one host to one queue pair of another: address ids in 20 bits each, QPN in 24."""
    return source << 44 | destination << 24 | dest_qp


def flow_keys(source: Rows, destination: Rows, dest_qp: Rows) -> Rows:
    """The same of many packets."""
    return (
        source.astype(np.uint64) << np.uint64(44)
        | destination.astype(np.uint64) << np.uint64(24)
        | dest_qp.astype(np.uint64)
    )
