"""RPC-over-RDMA in Scapy: importing this binds RoCE to its UDP port and EtherType, and iWARP to its TCP port.

    from rdmascope.layers import BTH, RPCRDMA, bind

A packet of InfiniBand does not say what its Sends carry. ``bind`` tells Scapy, from the connections of a capture or by
numbers of queue pairs. iWARP is recognised by its port.
"""

from __future__ import annotations

import os

from rdmascope.captures.errors import need
from rdmascope.captures.library import Capture, read
from rdmascope.dissect.layers.opcodes import OPCODES

need("scapy")
from rdmascope.dissect.layers import *  # noqa: E402, F403
from rdmascope.dissect.layers import BTH, RPCRDMA  # noqa: E402


def bind(*where: int | str | os.PathLike[str] | Capture) -> list[int]:
    """Have Scapy dissect the Sends to these queue pairs as RPC-over-RDMA; gives their numbers.

    Args:
        where: numbers of queue pairs; or captures or their paths, which stand for all their connections that carry
            RPC-over-RDMA.

    Raises CaptureError for a capture that cannot be read.
    """
    from scapy.packet import bind_layers

    numbers: set[int] = set()
    for given in where:
        if isinstance(given, int):
            numbers.add(given)
            continue
        for conversation in (given if isinstance(given, Capture) else read(given)).conversations:
            if conversation.carries_rpc:
                numbers |= {end.qpn for end in conversation.connection.endpoints if end.qpn}
    for number in numbers:
        for opcode, row in OPCODES.items():
            if row.name.startswith("RC SEND") and row.position in ("first", "only"):
                bind_layers(BTH, RPCRDMA, dest_qp=number, opcode=opcode)
    return sorted(numbers)
