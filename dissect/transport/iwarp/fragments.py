"""FPDUs of one DDP message that follow each other, taken together (RFC 5041, 5)."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ...arrays import Bytes, Rows, places, some
from ...layers.iwarp_codes import INVALIDATING
from ...link.packets import PACKET
from .. import operations
from ..operations import Payload
from ..send_runs import Run, SendRun
from ..transfer_runs import TRANSFER, TransferRun
from .decoding import Fpdus

Runs = list[tuple[int, Bytes, Rows]]
"""``(place, data, STRETCH rows)``."""

SEND, WRITE, RESPONSE, READ, TERMINATE, ATOMIC, IMMEDIATE, ATOMIC_RESPONSE = range(1, 9)
"""Groups of RDMAP opcodes."""
GROUP = np.array(
    [WRITE, READ, RESPONSE, SEND, SEND, SEND, SEND, TERMINATE, IMMEDIATE, IMMEDIATE, ATOMIC,
     ATOMIC_RESPONSE, 0, 0, 0, 0],
    np.uint8,
)  # fmt: skip
"""By RDMAP opcode."""
_TAGGED = np.array([group in (WRITE, RESPONSE) for group in GROUP.tolist()])


FEWEST_WRITES = 4
"""From which on columns take less time than objects."""
_OF_WRITES = {
    "place": "order", "first_frame": "first_frame", "last_frame": "last_frame", "first_time": "first_time",
    "last_time": "last_time", "length": "length", "handle": "key", "address": "place", "packets": "packets",
    "first": "low", "behind": "high", "offset": "offset", "begins": "captured", "position": "start",
}  # fmt: skip
"""TRANSFER columns, by those of fragments."""
SEND_ONLY, SEND_ONLY_INVALIDATE = 0x04, 0x17
"""Opcodes of InfiniBand that say what a Send says, and one with Invalidate."""


class Fragment(NamedTuple):
    """FPDUs of one message that follow each other, none missing between them."""

    group: int
    opcode: int
    key: int
    """STag or MSN."""
    place: int
    """TO or MO of the first byte."""
    length: int
    last: bool
    broken: bool
    """Bytes are missing, or what they are is not known, before it."""
    first: int
    """Index of the first FPDU."""
    low: int
    high: int
    """``pieces[low:high]`` is the payload."""
    packets: int
    first_frame: int
    last_frame: int
    first_time: int
    last_time: int
    order: int
    ack: int
    seen: int
    """Bytes that are not missing."""
    truncated: bool
    chunk: int
    """Index in ``Fpdus.datas``, where all is there and in one of them; else -1."""
    offset: int
    """Of the first piece, in that."""
    captured: int
    """Bytes of the first piece."""
    start: int
    """Position in the stream."""


FragmentColumns = dict[str, Rows]
"""A column for each field of ``Fragment``, in their order."""


def fragments(fpdus: Fpdus) -> FragmentColumns:
    """The messages, or parts of messages, that consecutive FPDUs make."""
    rows, edges, pieces = fpdus.rows, fpdus.edges, fpdus.pieces
    opcode = rows["opcode"]
    group = GROUP[opcode]
    key = np.where(_TAGGED[opcode], rows["stag"], rows["msn"])
    place, length = rows["place"], rows["length"]
    goes_on = (
        (group[1:] == group[:-1])
        & (key[1:] == key[:-1])
        & (place[1:] == place[:-1] + length[:-1].astype(np.uint64))
        & ~rows["last"][:-1]
        & ~rows["broken"][1:]
    )
    starts = np.concatenate(([0], np.flatnonzero(~goes_on) + 1))
    ends = np.concatenate((starts[1:], [len(rows)]))
    final = ends - 1
    low, high = edges[starts], edges[ends]
    sums = np.add.reduceat(length, starts, dtype=np.int64)
    totals = np.concatenate(([0], np.cumsum(pieces["length"], dtype=np.int64)))
    seen = totals[high] - totals[low]
    shorts = np.concatenate(([0], np.cumsum(pieces["captured"] < pieces["length"])))
    # One row more than there are pieces, for messages without any.
    chunk, offset, captured = (np.concatenate((pieces[name], [0])) for name in ("chunk", "payload", "captured"))
    changes = np.concatenate(([0], np.cumsum(chunk[1:] != chunk[:-1])))
    plain = (seen == sums) & (high > low) & (changes[np.maximum(high - 1, 0)] == changes[low])
    return {
        "group": group[starts],
        "opcode": opcode[final],
        "key": key[starts],
        "place": place[starts],
        "length": sums,
        "last": rows["last"][final],
        "broken": rows["broken"][starts],
        "first": starts,
        "low": low,
        "high": high,
        "packets": ends - starts,
        "first_frame": rows["first_frame"][starts],
        "last_frame": np.maximum.reduceat(rows["last_frame"], starts),
        "first_time": rows["first_time"][starts],
        "last_time": np.maximum.reduceat(rows["last_time"], starts),
        "order": rows["order"][final],
        "ack": rows["ack"][final],
        "seen": seen,
        "truncated": shorts[high] > shorts[low],
        "chunk": np.where(plain, chunk[low], -1),
        "offset": offset[low],
        "captured": captured[low],
        "start": rows["start"][starts],
    }


def plain_runs(
    data: Bytes, sender: int, fpdus: Fpdus, columns: FragmentColumns, before: int | None, write_open: bool
) -> list[tuple[Run, Rows]] | None:
    """The Sends of one FPDU in a segment of its own, and the RDMA Writes that are whole, as runs; and which of the
    fragments in ``columns`` each of them has.  None where anything else is unusual.

    ``before``: the frame up to which nothing waits, None for all; ``write_open``: the first Write began earlier.
    """
    order, length, group = columns["order"], columns["length"], columns["group"]
    sends, writes = group == SEND, group == WRITE
    if some(columns["broken"]) or some((sends | writes)[:-1] & ~columns["last"][:-1]):
        return None
    number = {id(known): index for index, known in enumerate(fpdus.datas)}.get(id(data), -2)
    _, index, counts = np.unique(order, return_inverse=True, return_counts=True)
    chosen = columns["last"] & (columns["chunk"] == number) & (counts[index] == 1)
    chosen &= ~columns["truncated"] & (length > 0)
    # In the order of frames, as they are in that of the stream.
    chosen[1:] &= order[1:] > np.maximum.accumulate(order)[:-1]
    if before is not None:
        chosen &= order < before
    sends &= chosen & (columns["packets"] == 1) & (columns["high"] - columns["low"] == 1) & (columns["place"] == 0)
    sends &= (columns["first_frame"] == order) & (columns["last_frame"] == order)
    if write_open:
        writes[places(writes)[:1]] = False
    writes &= chosen & (columns["last_frame"] == order)
    found: list[tuple[Run, Rows]] = []
    if len(where := places(sends)):
        rows = np.zeros(len(where), PACKET)
        rows["frame"], rows["time"] = order[where], columns["last_time"][where]
        rows["payload"], rows["length"] = columns["offset"][where], length[where]
        rows["captured"], rows["psn"] = length[where], columns["key"][where] & 0xFFFFFF
        invalidating = np.isin(columns["opcode"][where], list(INVALIDATING))
        rows["opcode"] = np.where(invalidating, SEND_ONLY_INVALIDATE, SEND_ONLY)
        rows["immediate"] = np.where(invalidating, fpdus.rows["stag"][columns["first"][where]], 0)
        rows["headers"] = 1
        found.append((SendRun(data, rows, sender, columns["start"][where]), sends))
    if len(where := places(writes)) >= FEWEST_WRITES:
        transfers = np.zeros(len(where), TRANSFER)
        transfers["kind"] = operations.WRITE
        for name, column in _OF_WRITES.items():
            transfers[name] = columns[column][where]
        found.append((TransferRun(data, fpdus.pieces, None, transfers, sender), writes))
    return found


def payload_runs(fpdus: Fpdus, fragment: Fragment) -> Runs:
    """The payload of a fragment: ``(place in the fragment, data, STRETCH rows)``, split at gaps."""
    low, high = fragment.low, fragment.high
    if low == high:
        return []
    rows = fpdus.pieces[low:high]
    if fragment.chunk >= 0:
        return [(0, fpdus.datas[fragment.chunk], rows)]
    # Places in the payload of an FPDU become places in the fragment.
    owner = np.searchsorted(fpdus.edges, np.arange(low, high), side="right") - 1
    lengths = fpdus.rows["length"][fragment.first : fragment.first + fragment.packets].astype(np.int64)
    before = np.concatenate(([0], np.cumsum(lengths)))
    places = rows["at"] + before[owner - fragment.first]
    split = (places[1:] != places[:-1] + rows["length"][:-1]) | (rows["chunk"][1:] != rows["chunk"][:-1])
    edges = [0, *(np.flatnonzero(split) + 1).tolist(), len(rows)]
    return [(int(places[a]), fpdus.datas[int(rows["chunk"][a])], rows[a:b]) for a, b in pairwise(edges)]


def captured_bytes(fpdus: Fpdus, fragment: Fragment) -> bytes:
    """The captured bytes of a fragment, up to the first that is missing."""
    payload = Payload(fragment.length)
    payload.runs.extend(payload_runs(fpdus, fragment))
    data, start, end = payload.prefix()
    return bytes(data[start:end])
