"""RPC messages without RDMA: how to recognise a TCP record, or a datagram, as one (RFC 5531, 9 and 11)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..arrays import Bytes, Int64s, among
from ..layers.oncrpc_codes import (
    ACCEPT_STATUS_NAMES,
    AUTH_ERROR,
    AUTH_STATUS_NAMES,
    CALL,
    MSG_ACCEPTED,
    MSG_DENIED,
    REPLY,
    RPC_VERSION,
    RPCSEC_GSS,
)
from ..onc import rpc_header
from ..onc.rpc_header import MAX_AUTH
from ..onc.xdr import words2
from ..transport.rc.pairing import RecordReader, SendEvidence, SendReader

PORTS = frozenset({111, 2049, 20048})
"""Server ports: portmap, NFS, and the usual one of mountd (RFC 1833, 3; RFC 8881, 2.9.3)."""
_PROGRAMS = np.array(sorted({program for program, _ in rpc_header.PROCEDURES}))
"""Programs whose calls show that a connection carries records."""
_MAX_VERSION, _MAX_PROCEDURE, _MAX_FLAVOR = 16, 64, 400_000
"""Limits for calls of these programs; RPCSEC_GSS pseudo-flavors begin at 390,000 (RFC 2623, 2.2)."""
ROLES = {CALL: "request", REPLY: "answer"}


def begin_messages(words: Int64s) -> NDArray[np.bool_]:
    """Which rows of words, (n, 8 or more), begin a call of a known program, or what looks like a reply.

    Missing words must be 0.
    """
    _, kind, second, third, fourth, fifth, flavor, length = words[:, :8].T
    call = (kind == CALL) & (second == RPC_VERSION) & among(third, _PROGRAMS) & (fourth <= _MAX_VERSION)
    call &= (fifth <= _MAX_PROCEDURE) & (length <= MAX_AUTH) & (flavor <= _MAX_FLAVOR)
    # A verifier and, after an empty one, the accept_stat.
    accepted = (kind == REPLY) & (second == MSG_ACCEPTED) & (third <= RPCSEC_GSS) & (fourth <= MAX_AUTH)
    accepted &= (fourth > 0) | (fifth < len(ACCEPT_STATUS_NAMES))
    denied = (kind == REPLY) & (second == MSG_DENIED) & (third <= AUTH_ERROR) & (fourth < len(AUTH_STATUS_NAMES))
    begins: NDArray[np.bool_] = call | accepted | denied
    return begins


def _read(data: Bytes, start: int, end: int, length: int) -> SendEvidence | None:
    """What a record tells: its XID, and whether it is a call or a reply."""
    if end - start < 8:
        return None
    xid, kind = words2(data.data, start)
    return SendEvidence(xid, ROLES.get(kind, ""), (), rpc_header.calls_back(data, start, end))


RPC_RECORDS = RecordReader(lambda words: begin_messages(words[:, 1:]), SendReader(_read, "XIDs"))
