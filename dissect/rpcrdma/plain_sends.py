"""Plain messages in columns: what a batch's Sends of one packet say, all of them read at once.

``transport_header.decode_header``, ``onc.rpc_header``, ``outcome`` and ``onc.compound`` read one message, whatever is
in it; a property test holds the two ways equal.  What is not plain here is left to them.
"""

from __future__ import annotations

from struct import pack
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays import Bytes, Int64s, big_endian_words, distinct, windows
from ..layers.oncrpc_codes import CALL, MSG_ACCEPTED, REPLY, RPC_VERSION, RPCSEC_GSS, SUCCESS
from ..layers.rpcrdma_codes import RDMA_MSG, RDMA_NOMSG
from ..onc import compound as nfs4
from ..onc.compound_columns import OperationSequences, compound_calls
from ..onc.programs import NLM, procedure_name
from ..onc.rpc_header import MAX_AUTH
from ..onc.status import reply_status
from ..onc.xdr import words2
from ..transport.operations import Operation
from .messages import HEADER, LONG_HEADER
from .rpc_table import ProcedureNames, RpcNames

SHORTEST_CALL = 40
"""Of the RPC message."""
SHORTEST_REPLY = HEADER + 24
_WORDS = 20
"""That are read of every Send: to the length of a call's credential behind either header."""
MAX_NAMES = 1 << 14
"""Distinct procedures and statuses that are remembered."""


class PlainSends(NamedTuple):
    """One row for each Send."""

    words: Int64s
    """The first words, (n, 20); zeros where the bytes of all frames end."""
    usual: NDArray[np.bool_]
    """An RDMA_MSG or RDMA_NOMSG of version 1."""
    call: NDArray[np.bool_]
    """A plain call; its arguments begin at ``arguments``."""
    reply: NDArray[np.bool_]
    """A plain reply: accepted, and executed; or one through a Reply chunk of one segment."""
    long: NDArray[np.bool_]
    """It has a Reply chunk of one segment."""
    procedures: Int64s
    """Of calls: program, version and procedure, (n, 3)."""
    arguments: Int64s

    @property
    def xids(self) -> Int64s:
        """rdma_xid."""
        return self.words[:, 0]

    @property
    def credits(self) -> Int64s:
        return self.words[:, 2]


def read_sends(data: Bytes, at: Int64s, size: Int64s) -> PlainSends:
    """Read the Sends at ``data[at[i]:at[i] + size[i]]``, each of them whole."""
    words = _first_words(data, at)
    usual = (words[:, 1] == 1) & (words[:, 3] <= RDMA_NOMSG) & (size >= HEADER)
    inline = words[:, 3] == RDMA_MSG
    bare = usual & (words[:, 4] | words[:, 5] == 0)
    long = bare & (words[:, 6] == 1) & (words[:, 7] == 1) & (size >= LONG_HEADER)
    bare &= words[:, 6] == 0
    rpc = np.where(long[:, None], words[:, 12:20], words[:, 7:15])
    call = inline & (bare | long) & (rpc[:, 0] == words[:, 0]) & (rpc[:, 1] == CALL)
    call &= (rpc[:, 2] == RPC_VERSION) & (rpc[:, 6] != RPCSEC_GSS) & (rpc[:, 7] <= MAX_AUTH)
    header = np.where(long, LONG_HEADER, HEADER)
    call &= size >= header + SHORTEST_CALL
    end = at + size
    arguments = at + header + 32 + (rpc[:, 7] + 3 & -4)
    call &= arguments + 8 <= end
    rows = call.nonzero()[0]
    verifier = np.zeros(len(at), np.int64)
    verifier[rows] = big_endian_words(windows(data, 4)[arguments[rows] + 4])[:, 0]
    call &= verifier <= MAX_AUTH
    arguments += 8 + (verifier + 3 & -4)
    call &= arguments <= end
    reply = inline & bare & (words[:, 7] == words[:, 0]) & (words[:, 8] == REPLY) & (size >= SHORTEST_REPLY)
    # Accepted, with an empty AUTH_NONE verifier, and SUCCESS.
    reply &= (words[:, 9] == MSG_ACCEPTED) & (words[:, 10] | words[:, 11] | words[:, 12] == 0)
    reply |= ~inline & long & (size == LONG_HEADER)
    return PlainSends(words, usual, call, reply, long, rpc[:, 3:6], arguments)


assert SUCCESS == 0


def _first_words(data: Bytes, at: Int64s) -> Int64s:
    width = 4 * _WORDS
    near = at > len(data) - width
    if not near.any():
        return big_endian_words(windows(data, width)[at])
    found = np.zeros((len(at), _WORDS), np.int64)
    found[~near] = big_endian_words(windows(data, width)[at[~near]])
    for row in near.nonzero()[0].tolist():
        there = bytes(data[int(at[row]) : int(at[row]) + width])
        found[row] = np.frombuffer(there.ljust(width, b"\0"), ">u4")
    return found


def usual(operation: Operation) -> bool:
    """Whether a Send has a transport header as all others of version 1."""
    if not operation.start_known:
        return True
    data, start, end = operation.payload.first()
    if end - start < 16:
        return False
    return words2(data, start + 4)[0] == 1 and words2(data, start + 8)[1] <= RDMA_NOMSG


class PlainNames:
    """Names what plain calls ask for and replies say; every distinct one once."""

    def __init__(self) -> None:
        self.names = RpcNames()
        self._sequences = OperationSequences()
        self._procedures: dict[tuple[int, ...], int] = {}
        self._statuses: dict[tuple[int, ...], int] = {}

    @property
    def full(self) -> bool:
        """It has so many that a new one should take over."""
        return self._sequences.full or len(self._procedures) + len(self._statuses) > MAX_NAMES

    def procedures(self, data: Bytes, sends: PlainSends, calls: Int64s, ends: Int64s) -> Int64s:
        """Of the rows ``calls`` the index into ``names.procedures``; -1 for a COMPOUND that is not plain.

        ``ends``: of the Sends in ``data``, one for each of these rows.
        """
        called = sends.procedures[calls]
        first, which = distinct(called[:, 0], called[:, 1], called[:, 2])
        kinds = called[first].tolist()
        minor = np.full(len(calls), -1, np.int64)
        sequence = np.zeros(len(calls), np.int64)
        walked = np.ones(len(calls), np.bool_)
        for kind, (program, version, procedure) in enumerate(kinds):
            name = procedure_name(program, version, procedure)
            if name not in ("COMPOUND", "CB_COMPOUND"):
                continue
            mine = (which == kind).nonzero()[0]
            found = compound_calls(
                data, sends.arguments[calls[mine]], ends[mine], self._sequences, name == "CB_COMPOUND"
            )
            walked[mine], minor[mine], sequence[mine] = found
        first, each = distinct(which, minor, sequence)
        indices = [
            self._procedure((*kinds[kind], one, two))
            for kind, one, two in zip(
                which[first].tolist(), minor[first].tolist(), sequence[first].tolist(), strict=True
            )
        ]
        return np.where(walked, np.array(indices, np.int64)[each], -1)

    def _procedure(self, key: tuple[int, ...]) -> int:
        found = self._procedures.get(key)
        if found is None:
            program, version, procedure, minor, sequence = key
            name = procedure_name(program, version, procedure)
            operations = nfs4.operation_names(self._sequences.sequences[sequence], name == "CB_COMPOUND")
            names = ProcedureNames(program, version, None if minor < 0 else minor, procedure, operations, name)
            found = self._procedures[key] = self.names.procedure(names)
        return found

    def statuses(self, procedures: Int64s, results: Int64s) -> Int64s:
        """The index into ``names.statuses``; -1 where the reply is not plain.

        Of replies to ``procedures``, by the first word of their ``results``; -1 where they have none.
        """
        first, each = distinct(procedures, results)
        indices = [
            self._status(procedure, word)
            for procedure, word in zip(procedures[first].tolist(), results[first].tolist(), strict=True)
        ]
        return np.array(indices, np.int64)[each]

    def _status(self, procedure: int, word: int) -> int:
        names = self.names.procedures[procedure]
        assert names.program is not None and names.version is not None and names.procedure is not None
        key = names.program, names.version, names.procedure, word
        found = self._statuses.get(key)
        if found is None:
            if names.program == NLM:
                found = -1  # The status stands behind a cookie.
            else:
                body = pack(">I", word) if word >= 0 else b""
                status = reply_status(*key[:3], body, 0, len(body))
                found = self.names.status(*(status or ("OK", False)))
            self._statuses[key] = found
        return found
