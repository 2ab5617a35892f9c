"""What is settled before the first FPDU: the active side, markers and CRCs (RFC 5044, 7.1; RFC 6581)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...layers.iwarp_codes import READ_REQUEST, WRITE
from ...serial import TCP_SEQUENCE
from ..connection import Endpoint
from .decoding import Fpdus
from .direction import IwarpDirection
from .framing import Startup

UNDECIDED = 64
"""FPDUs after which it is settled which side is the active one."""


def record_startup(end: Endpoint, startup: Startup) -> None:
    """What a Request or Reply says of its sender."""
    mpa = startup.mpa
    end.private_data, end.private_data_truncated = mpa.private_data, not mpa.complete
    end.private_data_frame = startup.frame
    end.responder_resources, end.initiator_depth = mpa.ird, mpa.ord


def agree(directions: Sequence[IwarpDirection], active: int, final: bool) -> bool:
    """Settle markers and CRCs, once Request and Reply were seen or are known to be missing (RFC 5044, 7.1.1).

    False: wait for more.
    """
    if any(one.framing.awaiting for one in directions) or not _bases_known(directions, active, final):
        return False
    startups = [one.framing.startup for one in directions]
    crc = any(one.mpa.crc for one in startups if one) or (None if not all(startups) else False)
    for direction, receiver in zip(directions, reversed(startups), strict=True):
        framing = direction.framing
        if framing.markers is not None:
            continue
        if receiver is not None:
            framing.agree(receiver.mpa.markers, crc)
        elif crc:
            framing.checks.crc = True
    request, assembly = startups[active], directions[active].assembly
    if request is not None and request.mpa.peer_to_peer and assembly is not None:
        assembly.skip_first = True
    return True


def _bases_known(directions: Sequence[IwarpDirection], active: int, final: bool) -> bool:
    """Find where a direction's FPDUs begin whose Request or Reply was not captured; False: wait for more.

    The active side speaks first in full operation, when it has received all of the Reply and nothing behind it
    (RFC 5044, 7.1.3).
    """
    requesting, replying = directions[active].framing, directions[1 - active].framing
    if replying.base is not None or requesting.base is None:
        return True
    ack = requesting.first_ack()
    if ack is None:
        return final or len(requesting.pending) > 0
    first = directions[1 - active].stream.next
    assert first is not None
    replying.begin(TCP_SEQUENCE.unwrap(first, ack))
    return True


def infer_active(
    ports: tuple[int, int], service: frozenset[int], fpdus: Sequence[tuple[int, Fpdus]], final: bool
) -> tuple[int, str] | None:
    """The direction of the active side where no Request or Reply was captured, nor a SYN, and why; None: wait for more.

    ``service``: ports of passive sides; ``fpdus``: by direction, all that there were.
    """
    for direction in (0, 1):
        if ports[direction] in service and ports[1 - direction] not in service:
            return 1 - direction, f"TCP port {ports[direction]} is the server's"
    transfers = [0, 0]
    for direction, block in fpdus:
        transfers[direction] += int(np.isin(block.rows["opcode"], (READ_REQUEST, WRITE)).sum())
    if transfers[0] != transfers[1]:
        return int(transfers[0] > transfers[1]), "the server issues the RDMA Reads and Writes"
    if final or sum(len(block) for _, block in fpdus) >= UNDECIDED:
        return int(ports[1] > ports[0]), "the server has the lower TCP port"
    return None
