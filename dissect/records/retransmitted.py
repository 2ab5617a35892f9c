"""Which InfiniBand and RoCE packets of a batch were sent before."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..arrays import Rows
from ..layers import opcodes
from ..rpcrdma.analyzer import Analyzer
from ..transport.retransmissions import DUPLICATE

MARK = "[retransmission] "
"""What their info columns begin with."""
_PSNS = (1 << 24) - 1


def retransmitted(rows: Rows, analyzer: Analyzer) -> NDArray[np.bool_]:
    """Of PACKET rows in the order of frames: those that the connection's health counts."""
    found = np.zeros(len(rows), np.bool_)
    if not len(rows):
        return found
    frames = rows["frame"].astype(np.int64)
    for conversation in analyzer.conversations:
        ends = conversation.connection.endpoints
        for initiator, ledger in enumerate(conversation.connection.ledgers):
            for one in ledger:
                if not one.frame or one.cause == DUPLICATE:
                    continue
                asked = (one.frame, one.last_frame, one.start, one.end)
                runs = [(1 - initiator, opcodes.IS_REQUEST, asked)]
                runs += [(initiator, opcodes.IS_READ_RESPONSE, answer) for answer in one.answers]
                for end, kind, (first_frame, last_frame, psn, behind) in runs:
                    low, high = frames.searchsorted((first_frame, last_frame + 1)).tolist()
                    if low < high:
                        part = rows[low:high]
                        numbers = _numbers(part, analyzer, ends[end].address)
                        there = np.isin(part["destination"], numbers) & (part["dest_qp"] == ends[end].qpn)
                        within = (part["psn"].astype(np.int64) - psn) & _PSNS < behind - psn
                        found[low:high] |= there & within & kind[part["opcode"]]
    return found


def _numbers(rows: Rows, analyzer: Analyzer, address: str) -> list[int]:
    return [one for one in set(rows["destination"].tolist()) if analyzer.addresses.name(one) == address]
