"""The info columns of a batch's packets: what ``packet_info`` says of one, for all that are alike at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays import Int64s, Rows, distinct, take
from ..frames import FrameBatch
from ..layers import opcodes
from ..link.packets import FLAG_ACK_REQUEST, FLAG_SOLICITED
from ..rpcrdma.analyzer import Analyzer
from ..text_columns import Decimal, Hexadecimal, Piece, Texts, chosen, chosen_words, words_of
from ..transport.retransmissions import DUPLICATE
from ..units import count
from .packet_info import (
    BEGINS_SEND,
    GENERAL_SERVICES_QP,
    HAS_DETH,
    IS_ONLY,
    PROTOCOLS,
    alone_shown,
    info_template,
    packet_info,
)
from .packet_rpcs import PacketRpcs, ends, headers
from .plain_info import PlainInfo

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


class Worded(NamedTuple):
    """Packets whose info columns are made of the same pieces."""

    rows: Int64s
    """Indices of PACKET rows."""
    protocol: Texts
    info: tuple[Piece, ...]
    rpcs: Int64s
    """Number of the RPC that each belongs to; 0 for none."""


def worded(
    batch: FrameBatch, rows: Rows, analyzer: Analyzer, rpcs: PacketRpcs, plain: Iterable[PlainInfo]
) -> Iterator[Worded]:
    """Each of the PACKET rows of a batch once."""
    if not len(rows):
        return
    frames: Int64s = rows["frame"].astype(np.int64)
    left = np.ones(len(rows), np.bool_)
    again = retransmitted(rows, analyzer).astype(np.int64)
    for one in (*_object_sends(rpcs), *plain):
        places, there = _places(frames, one.frames)
        there[there] = left[places]
        places = places[left[places]]
        if len(places):
            left[places] = False
            info = one.info if there.all() else tuple([chosen(piece, there) for piece in one.info])
            info = _marked(info, again[places])
            yield Worded(places, chosen_words(one.protocol, there), info, one.rpcs[there])
    places = left.nonzero()[0]
    if len(places):
        for found in _others(batch, take(rows, places), analyzer, rpcs):
            mine = places[found.rows]
            yield found._replace(rows=mine, info=_marked(found.info, again[mine]))


def _marked(info: tuple[Piece, ...], again: Int64s) -> tuple[Piece, ...]:
    return (words_of(again, ("", MARK).__getitem__), *info) if again.any() else info


def _places(frames: Int64s, wanted: Int64s) -> tuple[Int64s, NDArray[np.bool_]]:
    """Where among ascending ``frames`` those of ``wanted`` are that are there, and which are."""
    places = frames.searchsorted(wanted)
    places[places == len(frames)] = 0
    there: NDArray[np.bool_] = frames[places] == wanted
    return places[there], there


def _object_sends(rpcs: PacketRpcs) -> Iterator[PlainInfo]:
    """Sends of RPCs that are objects."""
    if rpcs.sends:
        frames = np.fromiter(rpcs.sends, np.int64, len(rpcs.sends))
        protocols, infos, numbers = zip(*rpcs.sends.values(), strict=True)
        yield PlainInfo(frames, Texts(protocols), (Texts(infos),), np.array(numbers, np.int64))


def _others(batch: FrameBatch, rows: Rows, analyzer: Analyzer, rpcs: PacketRpcs) -> Iterator[Worded]:
    """Packets that are no Send of an RPC that is known."""
    conversations = ends(analyzer)
    first, kinds = _kinds(rows)
    examples = [*headers(take(rows, first))]
    talks = [conversations.get((analyzer.addresses.name(one.destination), one.dest_qp)) for one in examples]
    protocols = rows["transport"].astype(np.int64)
    frames = np.fromiter(rpcs.uses, np.int64, len(rpcs.uses))
    places, there = _places(rows["frame"].astype(np.int64), frames)
    uses = np.zeros(len(rows), np.int64)
    uses[places] = 1 + there.nonzero()[0]
    words = ["", *[f"; {text}" for text, _ in rpcs.uses.values()]]
    numbers = np.array([0, *[number for _, number in rpcs.uses.values()]])[uses]

    alone = np.array(
        [
            talk is not None and talk.protocol == "rpcrdma" and BEGINS_SEND[one.opcode] and IS_ONLY[one.opcode]
            for one, talk in zip(examples, talks, strict=True)
        ]
    )
    managing = np.array([HAS_DETH[one.opcode] and one.dest_qp == GENERAL_SERVICES_QP for one in examples])
    singly = (alone | managing)[kinds]
    mine = singly.nonzero()[0]
    shown = []
    for packet, kind, use in zip(headers(take(rows, mine)), kinds[mine].tolist(), uses[mine].tolist(), strict=True):
        talk = talks[kind]
        if alone[kind] and talk is not None:
            payload = packet.payload, packet.payload + packet.captured, packet.length
            shown.append(alone_shown(batch.data, *payload, packet.frame, talk))
        else:
            shown.append((PROTOCOLS[packet.transport], packet_info(batch.data, packet, talk, "") + words[use]))
    if shown:
        names, infos = zip(*shown, strict=True)
        yield Worded(mine, Texts(names), (Texts(infos),), numbers[mine])

    templates = [info_template(one, talk) for one, talk in zip(examples, talks, strict=True)]
    for fields in sorted({template.fields for template in templates}):
        alike = np.array([template.fields == fields for template in templates])
        mine = (alike[kinds] & ~singly).nonzero()[0]
        if not len(mine):
            continue
        pieces: list[Piece] = []
        for index, field in enumerate((*fields, "")):
            texts = [one.texts[index] if one.fields == fields else "" for one in templates]
            pieces.append(Texts(texts, kinds[mine]))
            if field:
                pieces.append(_FIELDS[field](rows[field][mine]))
        if uses[mine].any():
            pieces.append(words_of(uses[mine], words.__getitem__))
        yield Worded(mine, Texts(PROTOCOLS, protocols[mine]), tuple(pieces), numbers[mine])


_FIELDS: dict[str, Callable[[NDArray[np.uint64]], Piece]] = {
    "psn": Decimal,
    "msn": Decimal,
    "va": Hexadecimal,
    "r_key": lambda values: Hexadecimal(values, 8),
    "immediate": lambda values: Hexadecimal(values, 8),
    "dma_length": lambda values: words_of(values, count),
    "length": lambda values: words_of(values, count),
}
"""``packet_info.FIELD_WORDS`` of columns."""


def _kinds(rows: Rows) -> tuple[Int64s, Int64s]:
    """First rows of packets that have one template, and of each row which kind it is."""
    kind = rows["opcode"].astype(np.int64) | rows["dest_qp"].astype(np.int64) << 8
    flags = rows["flags"] & (FLAG_ACK_REQUEST | FLAG_SOLICITED)
    kind |= (flags | (rows["headers"] << 2) | ((rows["ecn"] == 3) << 3) | ((rows["length"] > 0) << 4)).astype(
        np.int64
    ) << 32
    kind |= rows["syndrome"].astype(np.int64) << 40
    destination = rows["destination"].astype(np.int64)
    if int(destination.max()) >= _MAX_DESTINATIONS:
        return distinct(kind, destination)
    _, first, kinds = np.unique(kind | destination << 48, return_index=True, return_inverse=True)
    return first, kinds


_MAX_DESTINATIONS = 1 << 15
