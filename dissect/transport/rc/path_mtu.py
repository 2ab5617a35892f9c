"""The path MTU of a connection, as far as its packets tell it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...arrays import Rows, among, places, some
from ...layers import opcodes
from ...serial import PSN
from ..connection import Connection
from .reads import READ_REQUEST

PATH_MTUS = tuple(opcodes.PATH_MTU.values())
_FULL = opcodes.IS_FIRST | opcodes.IS_MIDDLE


def learn_mtu(connection: Connection, requests: Rows, responses: Rows) -> None:
    """First and Middle packets are exactly as long as the path MTU (IBA 9.7.2.1)."""
    for rows in (requests, responses):
        full = rows["length"][_FULL[rows["opcode"]]]
        if len(full):
            longest = int(full.max())
            if longest in PATH_MTUS:
                connection.path_mtu = longest
                return
    if connection.path_mtu is None and len(requests):
        _guess_mtu(connection, requests)


def mtu_change(sent: Sequence[Rows]) -> int | None:
    """The frame from which on the packets of either sender tell another path MTU, where it changes once."""
    full = [rows[_FULL[rows["opcode"]]] for rows in sent]
    lengths = np.concatenate([rows["length"] for rows in full])
    if not len(lengths) or not some(lengths != lengths[0]):
        return None
    frames = np.concatenate([rows["frame"] for rows in full])
    order = frames.argsort()
    changes = places(np.diff(lengths[order]))
    if len(changes) != 1 or not among(lengths[order[changes + (0, 1)]], np.array(PATH_MTUS)).all():
        return None
    return int(frames[order[changes[0] + 1]])


def _guess_mtu(connection: Connection, requests: Rows) -> None:
    """A Read takes as many PSNs as its response has packets: the step to the next request tells."""
    for index in places(requests["opcode"][:-1] == READ_REQUEST).tolist():
        length = int(requests["dma_length"][index])
        step = PSN.distance(int(requests["psn"][index]), int(requests["psn"][index + 1]))
        for mtu in PATH_MTUS:
            if length > mtu and -(-length // mtu) == step:
                connection.path_mtu = mtu
                return
