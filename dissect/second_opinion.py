"""Our reading of a capture beside Wireshark's: packet headers field by field, RPCs one by one.

Both sides come as the same nouns.  A Sighting is what one of them found in one frame, by Wireshark's field
names; a Half is a call or a reply.  Where they differ, a table of what Wireshark is known to get wrong
(weak_spots.py) says who is right, if anything can.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .columns import compiled
from .frames import FrameBatch, Int64s
from .layers import opcodes
from .messages import RDMA_ERROR, TransportHeader
from .packets import PacketBatch
from .rpcs import Rpc
from .weak_spots import LATE, Circumstances, Repetitions, explain, touched

Values = tuple[int, ...]
"""One field of a frame, every occurrence in order."""
Fields = dict[str, Values]

PACKET, HEADER, CALL, REPLY = "packet", "transport header", "call", "reply"
THINGS = (PACKET, HEADER, CALL, REPLY)
"""What is compared."""

PACKET_FIELDS: dict[str, dict[str, str]] = {
    "BTH": {
        "opcode": "infiniband.bth.opcode",
        "se": "infiniband.bth.se",
        "m": "infiniband.bth.m",
        "padcnt": "infiniband.bth.padcnt",
        "tver": "infiniband.bth.tver",
        "p_key": "infiniband.bth.p_key",
        "dest_qp": "infiniband.bth.destqp",
        "a": "infiniband.bth.a",
        "psn": "infiniband.bth.psn",
    },
    "RETH": {
        "va": "infiniband.reth.va",
        "r_key": "infiniband.reth.r_key",
        "dma_len": "infiniband.reth.dmalen",
    },
    "AtomicETH": {
        "va": "infiniband.reth.va",
        "r_key": "infiniband.reth.r_key",
        "swap_data": "infiniband.atomiceth.swapdt",
        "compare_data": "infiniband.atomiceth.cmpdt",
    },
    "AETH": {"syndrome": "infiniband.aeth.syndrome", "msn": "infiniband.aeth.msn"},
    "DETH": {"q_key": "infiniband.deth.q_key", "src_qp": "infiniband.deth.srcqp"},
    "ImmDt": {"immediate": "infiniband.immdt"},
    "IETH": {"r_key": "infiniband.ieth"},
}
"""Header -> {its field: Wireshark's name}."""

PACKET_NAMES = tuple(dict.fromkeys(name for header in PACKET_FIELDS.values() for name in header.values()))

HEADER_FIELDS = (
    "rpcordma.xid",
    "rpcordma.version",
    "rpcordma.flow_control",
    "rpcordma.msg_type",
    "rpcordma.reads_count",
    "rpcordma.writes_count",
    "rpcordma.reply_count",
    "rpcordma.position",
    "rpcordma.segment_count",
    "rpcordma.rdma_handle",
    "rpcordma.rdma_length",
    "rpcordma.rdma_offset",
    "rpcordma.errcode",
    "rpcordma.vers_low",
    "rpcordma.vers_high",
)

RPC_FIELDS = (
    "rpc.xid",
    "rpc.msgtyp",
    "rpc.program",
    "rpc.programversion",
    "rpc.procedure",
    "rpc.reqframe",
    "rpc.repframe",
    "rpc.time",
)

FRAME = "frame.number"

ASKED = (FRAME, *PACKET_NAMES, *HEADER_FIELDS, *RPC_FIELDS)
"""The fields that Wireshark is asked for, in the order in which ``sighting`` takes them."""

DISPLAY_FILTER = "infiniband || iwarp_mpa"
"""Frames that Wireshark is asked about."""

ONCE = frozenset({"infiniband.immdt", "infiniband.ieth"})
"""Wireshark gives the same value as a header and as its field."""


FIXED_WORDS = 16
"""Bytes of an RPC-over-RDMA header that every version and procedure has (RFC 8166, 4.2)."""


class Sighting(NamedTuple):
    """What was found in one frame."""

    frame: int
    fields: Fields


class Half(NamedTuple):
    """A call or a reply.  None is: not known."""

    frame: int
    """Where it is complete."""
    xid: int
    is_reply: bool
    program: int | None = None
    version: int | None = None
    procedure: int | None = None
    other: int | None = None
    """Frame of the reply to this call, or of the call of this reply."""
    time: int | None = None
    """Of a reply: nanoseconds since the call."""

    @property
    def what(self) -> str:
        return REPLY if self.is_reply else CALL


class Difference(NamedTuple):
    """One field, or the whole thing, that the two tell differently."""

    what: str
    """One of THINGS."""
    frame: int
    field: str
    """Wireshark's name; 'infiniband', 'rpcordma' or 'rpc' where one of the two has nothing at all."""
    ours: Values | None
    """None where there is nothing."""
    theirs: Values | None
    right: str = "undecided"
    """'rdmascope', 'Wireshark', 'both' or 'undecided'."""
    reason: str = ""
    """Why; '' where it is undecided."""
    reference: str = ""

    @property
    def explained(self) -> bool:
        """It says nothing against our reading."""
        return self.right in ("rdmascope", "both")


@dataclass(slots=True)
class Tally:
    compared: int = 0
    equal: int = 0
    explained: int = 0
    unexplained: int = 0


# Theirs


def sighting(values: Sequence[str]) -> Sighting:
    """What Wireshark says of a frame, from its values for ASKED as tshark prints them ('' where there is none).

    Raises ValueError where they are no such values.
    """
    fields: Fields = {}
    for name, text in zip(ASKED[1:], values[1:], strict=True):
        if text:
            parse = _PARSERS.get(name, _number)
            found = tuple(map(parse, text.split(",")))
            fields[name] = found[: (len(found) + 1) // 2] if name in ONCE else found
    return Sighting(int(values[0]), fields)


_WORDS = {"True": 1, "False": 0}


def _number(text: str) -> int:
    return _WORDS[text] if text in _WORDS else int(text, 0)


def _octets(text: str) -> int:
    return int(text.replace(":", ""), 16)


def _nanoseconds(text: str) -> int:
    whole, _, part = text.lstrip("-").partition(".")
    time = int(whole) * 1_000_000_000 + int(part[:9].ljust(9, "0"))
    return -time if text.startswith("-") else time


_PARSERS: dict[str, Callable[[str], int]] = {
    "infiniband.immdt": _octets,
    "infiniband.ieth": _octets,
    "rpc.time": _nanoseconds,
}


def halves(sighting: Sighting) -> list[Half]:
    """The calls and replies that Wireshark shows in a frame."""
    fields = sighting.fields
    kinds = fields.get("rpc.msgtyp", ())
    xids = fields.get("rpc.xid", ())
    of_calls = iter(fields.get("rpc.reqframe", ()))
    of_replies = iter(fields.get("rpc.repframe", ()))
    times = iter(fields.get("rpc.time", ()))

    def at(name: str, index: int) -> int | None:
        # NFS repeats what RPC says, as often for each message.
        values = fields.get(name, ())
        each, rest = divmod(len(values), len(kinds))
        return values[index * each] if each and not rest else None

    found = []
    for index, (xid, kind) in enumerate(zip(xids, kinds, strict=False)):
        found.append(
            Half(
                sighting.frame,
                xid,
                kind == 1,
                at("rpc.program", index),
                at("rpc.programversion", index),
                at("rpc.procedure", index),
                next(of_replies if kind == 1 else of_calls, None),
                next(times, None) if kind == 1 else None,
            )
        )
    return found


# Ours


class _Block(NamedTuple):
    """The packet headers of one batch."""

    frames: Int64s
    columns: list[tuple[str, Int64s, NDArray[np.unsignedinteger]]]
    """Wireshark's field name, the rows that have it, its values there."""


class OurHalf(NamedTuple):
    """A Half with what tells how Wireshark will show it."""

    half: Half
    touched: frozenset[str]
    """The weak spots of Wireshark that its Rpc touches."""
    call_frame: int
    complete: int
    """Frame in which the call and its Read chunks are complete."""
    since_complete: int | None
    """Of a reply: nanoseconds since then."""


@dataclass(slots=True)
class Ours:
    """What we found, collected batch by batch."""

    blocks: list[_Block] = field(default_factory=list)
    headers: dict[int, tuple[Fields, frozenset[str]]] = field(default_factory=dict)
    """RPC-over-RDMA headers by frame, with the weak spots that their Rpc touches."""
    halves: list[OurHalf] = field(default_factory=list)
    cut: set[int] = field(default_factory=set)
    """Frames that the capture cut."""
    repetitions: Repetitions = field(default_factory=Repetitions)
    circumstances: Circumstances = field(default_factory=Circumstances)

    def add_packets(self, frames: FrameBatch, packets: PacketBatch) -> None:
        rows = frames.rows
        self.cut.update(rows["number"][rows["captured"] < rows["original"]].tolist())
        self.blocks.append(_packet_block(packets))
        self.repetitions.add(packets)

    def add_rpc(self, rpc: Rpc) -> None:
        spots = touched(rpc)
        for message in (rpc.call, rpc.reply):
            if message is not None and message.header.length >= FIXED_WORDS:
                self.headers[message.frame] = header_fields(message.header), spots
        self.circumstances.add(rpc)
        self.halves += rpc_halves(rpc, spots)

    def sightings(self) -> Iterator[Sighting]:
        """Every packet, in frame order."""
        for block in self.blocks:
            found: list[Fields] = [{} for _ in range(len(block.frames))]
            for name, rows, values in block.columns:
                for row, value in zip(rows.tolist(), values.tolist(), strict=True):
                    found[row][name] = (value,)
            yield from map(Sighting, block.frames.tolist(), found)


def _packet_block(packets: PacketBatch) -> _Block:
    rows = packets.rows
    opcode = rows["opcode"]
    available = rows["payload"] - rows["bth"] + rows["captured"]
    columns: list[tuple[str, Int64s, NDArray[np.unsignedinteger]]] = []
    for header, names in PACKET_FIELDS.items():
        extract = compiled(header)
        if header == "BTH":
            where, places = np.arange(len(rows)), rows["bth"]
        else:
            offsets = opcodes.OFFSET[header][opcode]
            where = np.flatnonzero((offsets > 0) & (available >= offsets + extract.size))
            places = rows["bth"][where] + offsets[where]
        values = extract(packets.data, places, names) if len(where) else {}
        columns += [(names[name], where, column) for name, column in values.items()]
    return _Block(rows["frame"].astype(np.int64), columns)


def header_fields(header: TransportHeader) -> Fields:
    """An RPC-over-RDMA header by Wireshark's names."""
    fields: Fields = {
        "rpcordma.xid": (header.xid,),
        "rpcordma.version": (header.version,),
        "rpcordma.flow_control": (header.credits or 0,),
        "rpcordma.msg_type": (header.procedure or 0,),
    }
    if header.procedure == RDMA_ERROR:
        if header.error is not None:
            fields["rpcordma.errcode"] = (header.error,)
        if header.supported is not None:
            fields["rpcordma.vers_low"], fields["rpcordma.vers_high"] = ((one,) for one in header.supported)
        return fields
    reads = [(chunk.position, segment) for chunk in header.reads for segment in chunk.segments]
    arrays = [*header.writes, *((header.reply,) if header.reply else ())]
    segments = [segment for _, segment in reads] + [segment for array in arrays for segment in array.segments]
    fields["rpcordma.reads_count"] = (len(reads),)
    fields["rpcordma.writes_count"] = (len(header.writes),)
    fields["rpcordma.reply_count"] = (int(header.reply is not None),)
    if reads:
        fields["rpcordma.position"] = tuple(position for position, _ in reads)
    if arrays:
        fields["rpcordma.segment_count"] = tuple(len(array.segments) for array in arrays)
    if segments:
        fields["rpcordma.rdma_handle"] = tuple(segment.handle for segment in segments)
        fields["rpcordma.rdma_length"] = tuple(segment.length for segment in segments)
        fields["rpcordma.rdma_offset"] = tuple(segment.offset for segment in segments)
    return fields


def rpc_halves(rpc: Rpc, spots: frozenset[str]) -> list[OurHalf]:
    """An Rpc's call and reply, as far as they were seen.  An RDMA_ERROR is no reply."""
    names = rpc.program, rpc.version, rpc.procedure
    call, reply = rpc.call, rpc.reply
    if reply is not None and reply.header.procedure == RDMA_ERROR:
        reply = None
    found: list[OurHalf] = []
    call_frame = complete = complete_time = 0
    if call is not None:
        call_frame, complete, complete_time = call.frame, call.frame, call.operation.last_time
        for chunk in rpc.chunks:
            if chunk.kind == "read":
                for operation in (one for use in chunk.segments for one in use.operations):
                    complete = max(complete, operation.last_frame)
                    complete_time = max(complete_time, operation.last_time)
        half = Half(call.frame, rpc.xid, False, *names, reply.frame if reply else None)
        found.append(OurHalf(half, spots, call_frame, complete, None))
    if reply is not None:
        time = since = None
        if call is not None:
            time = reply.operation.last_time - call.operation.last_time
            since = reply.operation.last_time - complete_time
        half = Half(reply.frame, rpc.xid, True, *names, call.frame if call else None, time)
        found.append(OurHalf(half, spots, call_frame, complete, since))
    return found


# The comparison

NO_HEADER: tuple[Fields, frozenset[str]] = {}, frozenset()

Pair = tuple[str, Values | None, Values | None]
"""Wireshark's name of a field, our values, theirs."""


class Comparison:
    """Tells the differences one after the other, and counts what was compared."""

    def __init__(self, ours: Ours) -> None:
        self.tallies = {what: Tally() for what in THINGS}
        self._ours = ours
        self._repeated = ours.repetitions.found()
        self._offered_again = ours.circumstances.offered_again()
        self._psns_alike = ours.circumstances.psns_alike()

    def run(self, theirs: Iterable[Sighting]) -> Iterator[Difference]:
        """Every difference; ``theirs`` are Wireshark's sightings in frame order."""
        shown: list[Half] = []
        for frame, mine, other in _side_by_side(self._ours.sightings(), theirs):
            header, spots = self._ours.headers.get(frame, NO_HEADER)
            their_header = {name: other[name] for name in HEADER_FIELDS if name in other}
            their_packet = {name: other[name] for name in PACKET_NAMES if name in other}
            if mine or their_packet:
                yield from self._judged(PACKET, frame, _differing("infiniband", mine, their_packet))
            if header or their_header:
                yield from self._judged(HEADER, frame, _differing("rpcordma", header, their_header), spots)
            if "rpc.xid" in other:
                shown += halves(Sighting(frame, other))
        yield from self._rpcs(shown)

    def _rpcs(self, shown: list[Half]) -> Iterator[Difference]:
        places: dict[tuple[int, bool], list[Half]] = defaultdict(list)
        for half in shown:
            places[half.xid, half.is_reply].append(half)
        found: list[tuple[OurHalf, Half | None]] = []
        late: list[OurHalf] = []
        for one in sorted(self._ours.halves):
            same = _take(places, one.half, one.half.frame, one.half.frame)
            if same is None and one.complete > one.half.frame and not one.half.is_reply:
                late.append(one)
            else:
                found.append((one, same))
        found += [(one, _take(places, one.half, one.half.frame, one.complete)) for one in late]
        for one, other in sorted(found, key=lambda pair: pair[0]):
            mine = one.half
            spots = one.touched | self._ours.circumstances.by_xid(mine.xid)
            if one.call_frame in self._offered_again:
                spots |= {"memory offered again"}
            if mine.other in self._psns_alike:
                spots |= {"PSNs alike"}
            yield from self._judged(mine.what, mine.frame, _half_differing(one, other), spots, one)
        for half in sorted(half for rest in places.values() for half in rest):
            yield from self._judged(half.what, half.frame, [("rpc", None, (half.xid,))])

    def _judged(
        self,
        what: str,
        frame: int,
        pairs: list[Pair],
        spots: frozenset[str] = frozenset(),
        half: OurHalf | None = None,
    ) -> list[Difference]:
        tally = self.tallies[what]
        tally.compared += 1
        if not pairs:
            tally.equal += 1
            return []
        if frame in self._ours.cut:
            spots |= {"cut frame"}
        if frame in self._repeated:
            spots |= {"sent again"}
        if frame in self._psns_alike:
            spots |= {"PSNs alike"}
        found: list[Difference] = []
        for name, mine, theirs in pairs:
            late = half is not None and _is_late(half, name, theirs)
            verdict = LATE if late else explain(name, mine, theirs, spots)
            found.append(Difference(what, frame, name, mine, theirs, *(verdict or ())))
        if all(one.explained for one in found):
            tally.explained += 1
        else:
            tally.unexplained += 1
        return found


def _take(places: dict[tuple[int, bool], list[Half]], half: Half, first: int, last: int) -> Half | None:
    """The last one like ``half`` that is shown between two frames; nobody else gets it then."""
    candidates = places.get((half.xid, half.is_reply), [])
    for index in reversed(range(len(candidates))):
        if first <= candidates[index].frame <= last:
            return candidates.pop(index)
    return None


def _half_differing(one: OurHalf, theirs: Half | None) -> list[Pair]:
    mine = one.half
    if theirs is None:
        return [("rpc", (mine.xid,), None)]
    match = "rpc.repframe" if mine.is_reply else "rpc.reqframe"
    values = [(FRAME, mine.frame, theirs.frame), (match, mine.other, theirs.other)]
    if not mine.is_reply or (theirs.other is not None and theirs.other in (mine.other, one.complete)):
        # A reply says nothing of these; Wireshark has them from the call that it found.
        values += [
            ("rpc.program", mine.program, theirs.program),
            ("rpc.programversion", mine.version, theirs.version),
            ("rpc.procedure", mine.procedure, theirs.procedure),
        ]
    if theirs.other is not None:
        values.append(("rpc.time", mine.time, theirs.time))
    return [(name, _values(ours), _values(other)) for name, ours, other in values if ours != other]


def _values(value: int | None) -> Values | None:
    return None if value is None else (value,)


def _is_late(mine: OurHalf, name: str, theirs: Values | None) -> bool:
    """Whether Wireshark tells exactly what follows from showing the call where its Read chunks are complete."""
    if mine.complete == mine.call_frame or theirs is None:
        return False
    if name == "rpc.time":
        return theirs == (mine.since_complete,)
    return name == ("rpc.repframe" if mine.half.is_reply else FRAME) and theirs == (mine.complete,)


def _differing(group: str, mine: Fields, other: Fields) -> list[Pair]:
    """The fields whose values differ; the group's name where one of the two has none at all."""
    if mine == other:
        return []
    if not mine or not other:
        return [(group, _telling(mine), _telling(other))]
    names = dict.fromkeys((*mine, *other))
    return [(name, mine.get(name), other.get(name)) for name in names if mine.get(name) != other.get(name)]


def _telling(fields: Fields) -> Values | None:
    return next(iter(fields.values())) if fields else None


def _side_by_side(mine: Iterable[Sighting], theirs: Iterable[Sighting]) -> Iterator[tuple[int, Fields, Fields]]:
    """Frame by frame what either found; both ascend."""
    ours = iter(mine)
    one = next(ours, None)
    for other in theirs:
        while one is not None and one.frame < other.frame:
            yield one.frame, one.fields, {}
            one = next(ours, None)
        if one is not None and one.frame == other.frame:
            yield other.frame, one.fields, other.fields
            one = next(ours, None)
        else:
            yield other.frame, {}, other.fields
    while one is not None:
        yield one.frame, one.fields, {}
        one = next(ours, None)
