"""What a batch's one-packet Sends say, read in columns, all at once.

``transport_header.decode_header``, ``onc.rpc_header``, ``outcome`` and ``onc.compound`` read one message, whatever is
in it; anything unusual is left to them.  A property test holds both ways equal."""

from __future__ import annotations

from struct import pack

import numpy as np
from numpy.typing import NDArray

from ..arrays import Bytes, Int64s, Rows, big_endian_words, distinct, gathered, words_at
from ..layers.oncrpc_codes import (
    ACCEPT_STATUS_NAMES,
    CALL,
    GSS_INTEGRITY,
    GSS_NONE,
    GSS_PRIVACY,
    MSG_ACCEPTED,
    PROG_MISMATCH,
    REPLY,
    RPC_VERSION,
    RPCSEC_GSS,
    RPCSEC_GSS_DESTROY,
    SYSTEM_ERR,
)
from ..layers.rpcrdma_codes import RDMA_MSG, RDMA_NOMSG
from ..named_tuple import NamedTuple
from ..onc import compound as nfs4
from ..onc.compound import OperationSequences, compound_calls
from ..onc.rpc_header import MAX_AUTH, NLM, procedure_name
from ..onc.status import reply_status
from .chunk_lists import READ_LIST, REPLY_CHUNK, SEGMENT, WRITE_LIST, read_chunk_lists
from .messages import HEADER
from .rpc_table import NO_NAMES, ProcedureNames, RpcNames

SHORTEST_CALL = 40
"""Bytes of an RPC call message with empty credential and verifier."""
SHORTEST_REPLY = 24
_WORDS = 7
"""Words of a transport header without chunks."""
_BARE = 0, 1, -1, RDMA_MSG, 0, 0, 0
"""What stands in for a missing header: as ``transport_header.record_header``."""
_RPC_WORDS = 8
"""Words read of every RPC message: up to the length of a call's credential."""
UNKNOWN = -1 << 32
"""Stands in for the first word of results if it is not captured whether the call was executed."""
MAX_NAMES = 1 << 14
"""Distinct procedures and statuses remembered."""


class SendColumns(NamedTuple):
    """One row per Send."""

    words: Int64s
    """The first words, (n, 7); zeros beyond the end of the batch's bytes."""
    usual: NDArray[np.bool_]
    """An RDMA_MSG or RDMA_NOMSG of version 1."""
    call: NDArray[np.bool_]
    """A usual call; its arguments begin at ``arguments``, which is -1 if it is truncated before them."""
    reply: NDArray[np.bool_]
    """A usual reply: accepted, with results or without; or one through a Reply chunk."""
    refused: Int64s
    """The accept_stat of a usual reply that reports an error and has no results; 0 for others."""
    listed: NDArray[np.bool_]
    """It has chunks."""
    header: Int64s
    """Bytes of the transport header."""
    rpc: Int64s
    """The first words after the transport header, (n, 8)."""
    arguments: Int64s
    results: Int64s
    """Offset of what follows the RPC header of an accepted reply."""
    service: Int64s
    """Of the RPCSEC_GSS credential of a call: procedure and service, for ``credential_of``, and sequence number; 0
    without one."""
    sequence: Int64s
    verified: NDArray[np.bool_]
    """A reply with an RPCSEC_GSS verifier."""
    chunked: NDArray[np.bool_]
    """It has chunks, and they are among the ``segments``."""
    truncated: NDArray[np.bool_]
    """The capture holds only its beginning."""
    counts: Int64s
    """Number of segments in its Read list, its Write chunk and its Reply chunk, (n, 3)."""
    segments: Rows
    """SEGMENT rows of all Sends, in order."""
    firsts: Int64s
    """Index of the first segment of each Send, and at the end the number of segments."""

    @property
    def xids(self) -> Int64s:
        """rdma_xid."""
        return self.words[:, 0]

    @property
    def credits(self) -> Int64s:
        return self.words[:, 2]

    @property
    def procedures(self) -> Int64s:
        """Program, version and procedure of calls, (n, 3)."""
        return self.rpc[:, 3:6]


def read_sends(
    data: Bytes, at: Int64s, size: Int64s, truncated: NDArray[np.bool_], bare: NDArray[np.bool_] | None = None
) -> SendColumns:
    """Read the Sends at ``data[at[i]:at[i] + size[i]]``; ``truncated``: Sends that have more bytes than that;
    ``bare``: Sends without a transport header, records of RPC over TCP."""
    header = np.full(len(at), HEADER)
    if bare is not None:
        header[bare] = 0
    first = _words_at(data, at - HEADER + header, _WORDS + _RPC_WORDS)
    words, rpc = first[:, :_WORDS], first[:, _WORDS:]
    if bare is not None:
        words[bare] = _BARE
        words[bare, 0] = rpc[bare, 0]
    usual = (words[:, 1] == 1) & (words[:, 3] <= RDMA_NOMSG) & (size >= header)
    inline = words[:, 3] == RDMA_MSG
    end = at + size
    listed = usual & (words[:, 4] | words[:, 5] | words[:, 6] != 0)
    chunked = np.zeros(len(at), np.bool_)
    counts = np.zeros((len(at), 3), np.int64)
    segments = np.empty(0, SEGMENT)
    rows = listed.nonzero()[0]
    if len(rows):
        lists = read_chunk_lists(data, at[rows], end[rows])
        segments = lists.segments
        segments["send"] = rows[segments["send"]]
        rows = rows[lists.read]
        chunked[rows] = True
        header[rows], counts[rows] = lists.header[lists.read], lists.counts[lists.read]
        rpc[rows] = _words_at(data, at[rows] + header[rows], _RPC_WORDS)
    known = chunked | (usual & ~listed)
    there = size - header
    _clear(rpc, there, truncated.nonzero()[0])
    same = rpc[:, 0] == words[:, 0]
    call = inline & known & same & (rpc[:, 1] == CALL) & ((rpc[:, 2] == RPC_VERSION) | (there < 12))
    call &= rpc[:, 7] <= MAX_AUTH
    # Leave out calls that have the program, but not the procedure.
    call &= np.where(truncated, (there >= 8) & ((there < 16) | (there >= 24)), there >= SHORTEST_CALL)
    call &= ~truncated | (rpc[:, 6] != RPCSEC_GSS)
    service, sequence = _secured(data, at + header, rpc, call)
    arguments = at + header + 32 + (rpc[:, 7] + 3 & -4)
    headed = call & (arguments + 8 <= end)
    rows = headed.nonzero()[0]
    verifier = np.zeros(len(at), np.int64)
    verifier[rows] = words_at(data, arguments[rows] + 4)
    call &= verifier <= MAX_AUTH
    arguments += 8 + (verifier + 3 & -4) + np.where(service == GSS_INTEGRITY, 8, 0)
    headed &= arguments <= end
    call &= headed | truncated
    arguments[call & ~headed] = -1
    # Accepted, with an empty AUTH_NONE verifier, or an RPCSEC_GSS verifier.
    accepted = inline & known & same & (rpc[:, 1] == REPLY) & (rpc[:, 2] == MSG_ACCEPTED)
    accepted &= there >= np.where(truncated, 8, SHORTEST_REPLY)
    reply = accepted & (rpc[:, 3] | rpc[:, 4] == 0)
    refused = np.where(reply, rpc[:, 5], 0)
    results = at + header + SHORTEST_REPLY
    results[accepted] += rpc[accepted, 4].clip(0, MAX_AUTH) + 3 & -4
    verified = accepted & (rpc[:, 3] == RPCSEC_GSS) & (rpc[:, 4] <= MAX_AUTH) & (results <= end)
    rows = verified.nonzero()[0]
    refused[rows] = words_at(data, results[rows] - 4)
    reply |= verified
    reply &= (refused <= SYSTEM_ERR) & (refused != PROG_MISMATCH)
    reply |= ~inline & chunked & (counts[:, WRITE_LIST] == 0) & (counts[:, REPLY_CHUNK] > 0) & (size == header)
    reply &= (counts[:, READ_LIST] == 0) & ~(truncated & verified)
    return SendColumns(
        words, usual, call, reply, refused, listed, header, rpc, arguments, results, service, sequence, verified,
        chunked, truncated, counts, segments, np.append(0, np.cumsum(sum(counts.T))),
    )  # fmt: skip


def _clear(rpc: Int64s, there: Int64s, truncated: Int64s) -> None:
    """Set words that truncation cut off to 0, as in most messages; program, version and procedure to -1."""
    if not len(truncated):
        return
    missing = np.arange(4, 4 * _RPC_WORDS + 4, 4) > there[truncated, np.newaxis]
    calls = rpc[truncated, 1] != REPLY
    missing[:, 6] |= calls & missing[:, 7]  # A credential's flavor is useless without its length.
    filled = np.where(calls[:, np.newaxis], (0, 0, 0, -1, -1, -1, 0, 0), 0)
    rpc[truncated] = np.where(missing, filled, rpc[truncated])


def _secured(data: Bytes, start: Int64s, rpc: Int64s, call: NDArray[np.bool_]) -> tuple[Int64s, Int64s]:
    """Procedure and service, for ``credential_of``, and sequence number of RPCSEC_GSS credentials; unmarks calls with
    unusual ones."""
    service, sequence = np.zeros(len(rpc), np.int64), np.zeros(len(rpc), np.int64)
    rows = (call & (rpc[:, 6] == RPCSEC_GSS)).nonzero()[0]
    if len(rows):
        version, procedure, number, kind = _words_at(data, start[rows] + 32, 4).T
        right = (rpc[rows, 7] >= 16) & (version == 1) & (procedure <= RPCSEC_GSS_DESTROY)
        right &= (kind == GSS_NONE) | (kind == GSS_INTEGRITY) | (kind == GSS_PRIVACY)
        call[rows[~right]] = False
        service[rows[right]], sequence[rows[right]] = (procedure << 8 | kind)[right], number[right]
    return service, sequence


def _words_at(data: Bytes, at: Int64s, count: int) -> Int64s:
    """``count`` words from each offset on; zeros beyond the end of ``data``."""
    width = 4 * count
    near = at > len(data) - width
    if not near.any():
        return big_endian_words(gathered(data, width, at))
    words = np.zeros((len(at), count), np.int64)
    words[~near] = big_endian_words(gathered(data, width, at[~near]))
    for row in near.nonzero()[0].tolist():
        there = bytes(data[int(at[row]) : int(at[row]) + width])
        words[row] = np.frombuffer(there.ljust(width, b"\0"), ">u4")
    return words


def _name(program: int, version: int, procedure: int) -> str:
    """The name of a procedure; '' for a program that is not captured."""
    return procedure_name(program, version, procedure) if program >= 0 else ""


class CallNames:
    """Names the procedures of usual calls and the statuses of replies; each distinct one once."""

    def __init__(self) -> None:
        self.names = RpcNames()
        self._sequences = OperationSequences()
        self._procedures: dict[tuple[int, ...], int] = {}
        self._statuses: dict[tuple[int | None, ...], int] = {}

    @property
    def full(self) -> bool:
        """It holds so much that a new one should replace it."""
        return self._sequences.full or len(self._procedures) + len(self._statuses) > MAX_NAMES

    def procedures(
        self, data: Bytes, sends: SendColumns, calls: Int64s, ends: Int64s, reduced: Int64s
    ) -> tuple[Int64s, NDArray[np.bool_]]:
        """By row of ``calls``: the index into ``names.procedures``, -1 for a COMPOUND that is unusual; and whether it
        is a COMPOUND that ends within the last of these operations, or before the first.

        ``ends``: where the Sends end in ``data``; ``reduced``: where a Read chunk took data out, -1 for nowhere; one
        entry per row of ``calls``.  There are no operations in what RPCSEC_GSS encrypts or sends for its contexts, and
        in what ends before its arguments.
        """
        sealed = (sends.service[calls] >= GSS_PRIVACY) | (sends.arguments[calls] < 0)
        unfinished = np.zeros(len(calls), np.bool_)
        called = sends.procedures[calls]
        first, which = distinct(called[:, 0], called[:, 1], called[:, 2])
        kinds = called[first].tolist()
        minor = np.full(len(calls), -1, np.int64)
        sequence = np.zeros(len(calls), np.int64)
        walked = np.ones(len(calls), np.bool_)
        for kind, (program, version, procedure) in enumerate(kinds):
            name = _name(program, version, procedure)
            if name not in ("COMPOUND", "CB_COMPOUND"):
                continue
            mine = ((which == kind) & ~sealed).nonzero()[0]
            columns = compound_calls(
                data, sends.arguments[calls[mine]], ends[mine], self._sequences, name == "CB_COMPOUND", reduced[mine]
            )
            unfinished[mine] = columns.truncated & sends.truncated[calls[mine]]
            walked[mine] = columns.walked | unfinished[mine]
            minor[mine], sequence[mine] = columns.minor_versions, columns.sequences
        first, each = distinct(which, minor, sequence)
        indices = [
            self._procedure((*kinds[kind], one, two))
            for kind, one, two in zip(
                which[first].tolist(), minor[first].tolist(), sequence[first].tolist(), strict=True
            )
        ]
        return np.where(walked, np.array(indices, np.int64)[each], -1), unfinished

    def _procedure(self, key: tuple[int, ...]) -> int:
        index = self._procedures.get(key)
        if index is None:
            program, version, procedure, minor, sequence = key
            name = _name(program, version, procedure)
            operations = nfs4.operation_names(self._sequences.sequences[sequence], name == "CB_COMPOUND")
            names = ProcedureNames(program, version, None if minor < 0 else minor, procedure, operations, name)
            if program < 0:
                names = NO_NAMES
            index = self._procedures[key] = self.names.procedure(names)
        return index

    def statuses(self, procedures: Int64s, results: Int64s) -> Int64s:
        """By reply: the index into ``names.statuses``; -1 if it is unusual.

        ``procedures``: indices of the calls' procedures; ``results``: the first word of the results, -1 without any,
        UNKNOWN, or ``~accept_stat`` of a reply that reports an error.
        """
        first, each = distinct(procedures, results)
        indices = [
            self._status(procedure, word)
            for procedure, word in zip(procedures[first].tolist(), results[first].tolist(), strict=True)
        ]
        return np.array(indices, np.int64)[each]

    def _status(self, procedure: int, word: int) -> int:
        names = self.names.procedures[procedure]
        key = names.program, names.version, names.procedure, word
        index = self._statuses.get(key)
        if index is None:
            if UNKNOWN < word < -1:
                index = self.names.status(ACCEPT_STATUS_NAMES[~word], True)
            elif word == UNKNOWN or names.program is None or names.version is None or names.procedure is None:
                index = self.names.status("", False)
            elif names.program == NLM:
                index = -1  # The status follows a cookie.
            else:
                body = pack(">I", word) if word >= 0 else b""
                status = reply_status(names.program, names.version, names.procedure, body, 0, len(body))
                index = self.names.status(*(status or ("OK", False)))
            self._statuses[key] = index
        return index
