"""How many slots of an NFSv4.1 session the server lets its client use, as each reply says (RFC 8881, 18.46.3)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..arrays import Bytes, Int64s, big_endian_words, gathered, take, words_at
from ..onc.compound import OP_CB_SEQUENCE, OP_SEQUENCE, slot_result
from ..onc.rpc_header import reply_header
from .reassembly import reassembled_reply
from .rpc_fields import message_places
from .rpc_table import RpcTable
from .rpcs import Rpc

ACCEPTED = 24
"""Bytes of the header of an accepted reply with an empty verifier."""
RESULTS = 40
"""From the operation to the target: operation, status, session, sequence, slot, highest slot, target."""
NOT_KNOWN = -1


def slots_allowed(table: RpcTable, chosen: NDArray[np.bool_]) -> Int64s:
    """Of the chosen RPCs of a table, in the order of rows: sr_target_highest_slotid + 1, or NOT_KNOWN."""
    slots = np.full(len(table), NOT_KNOWN)
    places = table.row_places
    mine = chosen[places] & (table.only_rows["transfer"] < 0)
    if len(table.data) and mine.any():
        rows = take(table.only_rows, mine)
        slots[places[mine]] = _of_replies(
            table.data, *message_places(rows, "reply"), np.where(rows["caller"], OP_CB_SEQUENCE, OP_SEQUENCE)
        )
    for row, rpc in zip(table.places.tolist(), table.objects, strict=True):
        if chosen[row]:
            slots[row] = slots_allowed_by(rpc)
    return slots[chosen]


def slots_allowed_by(rpc: Rpc) -> int:
    """The same of one RPC."""
    reply = reassembled_reply(rpc)
    if reply is None:
        return NOT_KNOWN
    header = reply_header(reply.prefix, 0, len(reply.prefix))
    if header is None or header.body < 0:
        return NOT_KNOWN
    result = slot_result(reply.prefix, header.body, len(reply.prefix), rpc.backward)
    return NOT_KNOWN if result is None or result.target is None else result.target + 1


def _of_replies(data: Bytes, starts: Int64s, ends: Int64s, operations: Int64s) -> Int64s:
    """Of reply messages at ``data[starts[i]:ends[i]]`` that begin with that operation and have an empty verifier."""
    slots = np.full(len(starts), NOT_KNOWN)
    # Status of the COMPOUND, its tag, the number of results.
    tags = starts + ACCEPTED + 4
    rows = (tags + 4 <= ends).nonzero()[0]
    for word in (2, 3, 4, 5):  # reply_stat, an empty verifier, accept_stat
        rows = rows[words_at(data, starts[rows] + 4 * word) == 0]
    at = tags[rows] + 8 + (words_at(data, tags[rows]) + 3 & -4)
    whole = at + RESULTS <= ends[rows]
    rows, at = rows[whole], at[whole]
    if not len(rows):
        return slots
    result = big_endian_words(gathered(data, RESULTS, at))
    known = (result[:, 0] == operations[rows]) & (result[:, 1] == 0)
    slots[rows[known]] = result[known, -1] + 1
    return slots
