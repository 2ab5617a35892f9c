"""Packets as lines of JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..arrays import Int64s, take
from ..frames import Place
from ..layers import opcodes
from ..layers.transports import TRANSPORTS
from ..text_columns import Decimal, Encoder, Piece, Texts, lines, words_of
from .packet_columns import ListedPackets, Worded
from .packets import packet_record
from .schema import placed, schema

Find = Callable[[int], Place | None]
"""Where a frame is, when several files are read as one."""


def packet_json(packets: ListedPackets, find: Find | None, encoded: Encoder) -> list[bytes]:
    """A JSON object for each packet, in the order of frames; ``encoded`` makes bytes of what is JSON already."""
    made = (lines([*_pieces(packets, one, find)], len(one.rows), encoded) for one in packets.worded)
    segments = []
    for packet in packets.segments:
        fields = packet_record(packet)
        segments.append(encoded(_json(fields if find is None else placed(fields, find))))
    return packets.ordered(made, segments)


def _pieces(packets: ListedPackets, worded: Worded, find: Find | None) -> Iterator[Piece]:
    rows = take(packets.rows, worded.rows)
    frames = rows["frame"].tolist()
    yield f'{{"schema":"{schema("packet")}","type":"packet","frame":'
    yield Decimal(rows["frame"])
    if find is not None:
        places = map(find, frames)
        yield Texts([f',"place":{_json(None if place is None else place._asdict())}' for place in places])
    yield ',"time_ns":'
    times = rows["time"]
    yield Decimal(times) if int(times.min()) >= 0 else words_of(times, str)
    name = packets.addresses.name
    for end in ("source", "destination"):
        yield words_of(rows[end], lambda address, end=end: f',"{end}":{_json(name(address))}')  # type: ignore[misc]
    yield ',"length":'
    yield Decimal(rows["wire"])
    yield ',"protocol":"'
    yield _quoted(worded.protocol)
    yield '","info":"'
    yield from map(_quoted, worded.info)
    yield '","rpc":'
    yield _numbers(worded.rpcs)
    yield words_of(rows["transport"].astype(np.int64) << 8 | rows["opcode"], _opcode)
    for field, column in _COLUMNS.items():
        yield f',"{field}":'
        yield Decimal(rows[column])
    yield ',"segment":null'
    comments = packets.batch.comments
    if comments:
        yield Texts([f',"comment":{_json(comments[frame])}' if comments.get(frame) else "" for frame in frames])
    yield "}"


_COLUMNS = {"dest_qp": "dest_qp", "psn": "psn", "payload_length": "length", "payload_captured": "captured"}


def _opcode(both: int) -> str:
    opcode = both & 0xFF
    name = _json(opcodes.opcode_name(opcode))
    return f',"transport":{_json(TRANSPORTS[both >> 8])},"opcode":{opcode},"opcode_name":{name}'


def _numbers(rpcs: Int64s) -> Piece:
    known = np.count_nonzero(rpcs)
    if known == len(rpcs):
        return Decimal(rpcs)
    return words_of(rpcs, lambda number: str(number) if number else "null") if known else "null"


def _quoted(piece: Any) -> Any:
    """The piece inside of a JSON string."""
    if isinstance(piece, str):
        return _json(piece)[1:-1]
    if isinstance(piece, Texts):
        return piece._replace(texts=[_json(text)[1:-1] for text in piece.texts])
    return piece


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
