"""FPDUs of one DDP message that follow each other, taken together (RFC 5041, 5)."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ...arrays import Bytes, Rows
from ..operations import Payload
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


def fragments(fpdus: Fpdus) -> list[Fragment]:
    """The messages, or parts of messages, that consecutive FPDUs make."""
    rows, edges, pieces = fpdus.rows, fpdus.edges, fpdus.pieces
    if not len(rows):
        return []
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
    return [
        Fragment(*one)
        for one in zip(
            group[starts].tolist(),
            opcode[final].tolist(),
            key[starts].tolist(),
            place[starts].tolist(),
            sums.tolist(),
            rows["last"][final].tolist(),
            rows["broken"][starts].tolist(),
            starts.tolist(),
            low.tolist(),
            high.tolist(),
            (ends - starts).tolist(),
            rows["first_frame"][starts].tolist(),
            np.maximum.reduceat(rows["last_frame"], starts).tolist(),
            rows["first_time"][starts].tolist(),
            np.maximum.reduceat(rows["last_time"], starts).tolist(),
            rows["order"][final].tolist(),
            rows["ack"][final].tolist(),
            seen.tolist(),
            (shorts[high] > shorts[low]).tolist(),
            np.where(plain, chunk[low], -1).tolist(),
            offset[low].tolist(),
            captured[low].tolist(),
            rows["start"][starts].tolist(),
            strict=True,
        )
    ]


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
