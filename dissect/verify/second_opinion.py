"""Our decoding of a capture compared with Wireshark's: packet headers field by field, RPCs one by one.

Both sides come as the same nouns: FrameFields are what one of them found in a frame, by Wireshark's field names, and a
ComparedMessage is a call or a reply.  If they differ, the table of known Wireshark errors in ``frame_fields.py`` tells
which of the two is right, as far as that is known.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import merge
from itertools import groupby, repeat, zip_longest
from operator import itemgetter
from zlib import crc32

import numpy as np

from ..arrays import Int64s, Rows
from ..frames import FrameBatch
from ..layers import opcodes
from ..layers.opcodes import IS_LAST, IS_ONLY, IS_RC, IS_READ_RESPONSE, IS_SEND
from ..layers.rpcrdma_codes import RDMA_ERROR, RDMA_MSG, RDMA_MSGP, RDMA_NOMSG, RDMA_OPTIONAL
from ..link.packets import PacketBatch
from ..named_tuple import NamedTuple
from ..onc.naming import stateid_hash
from ..onc.shapes.messages import MessageTree
from ..onc.shapes.types import Node, XdrAttributes, XdrBitmap, XdrInteger, XdrList, XdrOpaque
from ..onc.xdr import round_up
from ..rpcrdma.listeners import Listener
from ..rpcrdma.messages import Message, Segment
from ..rpcrdma.rpcs import Rpc
from ..transport.iwarp.fpdus import Fpdus
from ..transport.iwarp.tcp_connection import TcpConnection
from ..transport.operations import Operation
from .frame_fields import (
    FIXED_WORDS,
    FRAME,
    HEADER_FIELDS,
    LATE,
    MATCH_FIELDS,
    PACKET_NAMES,
    RETRANSMITTED,
    Fields,
    FrameFields,
    PacketBlock,
    Values,
    add_fields,
    chunk_operations,
    explain,
    fpdu_fields,
    header_fields,
    mpa_fields,
    packet_block,
    touched,
    touched_message,
)
from .rpc_field_names import NAMES

GSI_QKEY = 0x80010000
"""The Q_Key of Management Datagrams (IBA 3.5.3)."""


def datagram_spots(fields: Mapping[str, Values]) -> frozenset[str]:
    """Rows that apply to a packet by its fields in Wireshark: RPC-over-RDMA uses no datagrams except those of CM."""
    keys = fields.get("infiniband.deth.q_key", ())
    return frozenset({"IP over InfiniBand"}) if keys and GSI_QKEY not in keys else frozenset()


@dataclass(slots=True)
class IwarpStreams:
    """The iWARP connections, and the frames in which their FPDUs end."""

    links: dict[int, TcpConnection] = field(default_factory=dict)
    """Connection by the frame in which one of its FPDUs ends."""
    known: dict[TcpConnection, None] = field(default_factory=dict)
    """In order of appearance."""
    split: dict[TcpConnection, int] = field(default_factory=dict)
    """By connection: the first frame with an FPDU that is spread over TCP segments."""

    def add(self, tcp: TcpConnection, fpdus: Fpdus) -> None:
        rows = fpdus.rows
        self.known[tcp] = None
        self.links.update(dict.fromkeys(rows["last_frame"].tolist(), tcp))
        spread = rows["first_frame"][rows["first_frame"] != rows["last_frame"]]
        if len(spread):
            self.split[tcp] = min(int(spread.min()), self.split.get(tcp, int(spread.min())))

    def of(self, frame: int) -> frozenset[str]:
        """Names of the rows that apply to a frame; if no FPDU ends in it, those of all connections at that time."""
        if frame in self.links:
            return self._of(self.links[frame], frame)
        lives = [
            tcp for tcp in self.known if tcp.lifetime.first and tcp.lifetime.first[0] <= frame <= tcp.lifetime.last[0]
        ]
        return frozenset().union(*(self._of(tcp, frame) for tcp in lives))

    def _of(self, tcp: TcpConnection, frame: int) -> frozenset[str]:
        directions = tcp.directions
        startups = [direction.framing.startup for direction in directions]
        applies = {
            "no MPA": not all(startups),
            "ready to receive": any(startup.mpa.peer_to_peer for startup in startups if startup),
            "markers": any(direction.framing.markers for direction in directions),
            "TCP order": any(
                direction.stream.retransmissions.troubled or direction.stream.missing for direction in directions
            ),
            "split FPDUs": tcp in self.split and frame >= self.split[tcp],
        }
        return frozenset(name for name, is_so in applies.items() if is_so)


@dataclass(slots=True)
class Circumstances:
    """Circumstances that depend on all calls and replies; to be asked when all were seen."""

    offers: list[tuple[int, tuple[int, bool], list[Segment]]] = field(default_factory=list)
    """Frame of a call, its connection and direction, and the memory it offers."""
    callers: defaultdict[int, list[tuple[int, bool]]] = field(default_factory=lambda: defaultdict(list))
    """By XID: connection and direction of each call with it."""
    long_sends: defaultdict[int, list[tuple[int, Operation]]] = field(default_factory=lambda: defaultdict(list))
    """By connection: Sends of several packets, as first PSN and Operation."""

    def add(self, rpc: Rpc) -> None:
        caller = rpc.connection.number, rpc.backward
        for message in (rpc.call, rpc.reply):
            if message is not None and message.operation.packets > 1 and rpc.connection.transport != "iWARP":
                self.long_sends[rpc.connection.number].append((message.operation.psn, message.operation))
        self.callers[rpc.xid].append(caller)
        if rpc.call is not None and rpc.chunks:
            segments = [use.advertised for chunk in rpc.chunks for use in chunk.segments]
            self.offers.append((rpc.call.frame, caller, segments))

    def by_xid(self, xid: int) -> frozenset[str]:
        """Rows that apply to every call with this XID."""
        callers = self.callers[xid]
        if len(callers) < 2:
            return frozenset()
        both = any((number, not backward) in callers for number, backward in callers)
        return frozenset({"one XID both ways"} if both else {"XID reused"})

    def offered_again(self) -> set[int]:
        """Frames of calls that offer memory which an earlier call of the same end offered with the same handle."""
        known: dict[tuple[int, bool, int], Segment] = {}
        frames: set[int] = set()
        for frame, caller, segments in sorted(self.offers, key=itemgetter(0)):
            for segment in segments:
                earlier = known.get((*caller, segment.handle))
                if earlier is not None and earlier.offset <= segment.offset < earlier.offset + earlier.length:
                    frames.add(frame)
            for segment in segments:
                known[*caller, segment.handle] = segment
        return frames

    def psns_alike(self) -> set[int]:
        """Last frames of Sends one of whose PSNs the other end had used for the first packet of a Send."""
        frames: set[int] = set()
        for sends in self.long_sends.values():
            starts = sorted(sends, key=itemgetter(0))
            for psn, operation in sends:
                at = bisect_left(starts, psn, key=itemgetter(0))
                while at < len(starts) and starts[at][0] < psn + operation.packets:
                    other = starts[at][1]
                    if other.initiator != operation.initiator and other.first_frame < operation.last_frame:
                        frames.add(operation.last_frame)
                    at += 1
        return frames


_KEY = np.dtype(
    [("source", "u4"), ("destination", "u4"), ("dest_qp", "u4"), ("psn", "u4"), ("opcode", "u1"), ("length", "i4")],
    align=True,
)
_SHOWN = IS_RC & (IS_SEND | IS_READ_RESPONSE) & (IS_LAST | IS_ONLY)
"""Packets in which Wireshark shows messages."""


@dataclass(slots=True)
class RetransmittedPackets:
    """Finds packets that came more than once, by queue pair and PSN, among those that end a message."""

    keys: list[Rows] = field(default_factory=list)
    frames: list[Int64s] = field(default_factory=list)

    def add(self, packets: PacketBatch) -> None:
        rows = packets.rows[_SHOWN[packets.rows["opcode"]]]
        keys = np.empty(len(rows), _KEY)
        for name in _KEY.names or ():
            keys[name] = rows[name]
        self.keys.append(keys)
        self.frames.append(rows["frame"].astype(np.int64))

    def found(self) -> set[int]:
        """Frames of all their transmissions, including the first, which the receiver may have dropped."""
        if not self.keys:
            return set()
        _, which, times = np.unique(np.concatenate(self.keys), return_inverse=True, return_counts=True)
        return set(np.concatenate(self.frames)[times[which] > 1].tolist())


PACKET, HEADER, CALL, REPLY = "packet", "transport header", "call", "reply"
THINGS = (PACKET, HEADER, CALL, REPLY)
"""What is compared frame by frame."""
FIELD = "field"
"""Compared for calls and replies themselves, see ``rpc_fields``."""


class ComparedMessage(NamedTuple):
    """A call or a reply.  None means unknown."""

    frame: int
    """The frame that completes it."""
    xid: int
    is_reply: bool
    program: int | None = None
    version: int | None = None
    procedure: int | None = None
    other: int | None = None
    """Frame of the reply to this call, or of the call of this reply."""
    time: int | None = None
    """A reply: nanoseconds since the call."""

    @property
    def what(self) -> str:
        return REPLY if self.is_reply else CALL


class Difference(NamedTuple):
    """A field, or the whole thing, that the two sides show differently."""

    what: str
    """One of THINGS, or FIELD."""
    frame: int
    field: str
    """Wireshark's name; 'packet', 'rpcordma' or 'rpc' if one of the two has nothing at all."""
    ours: Values | None
    """None if there is nothing."""
    theirs: Values | None
    right: str = "undecided"
    """'rdmascope', 'Wireshark', 'both' or 'undecided'."""
    reason: str = ""
    """Why; '' if it is undecided."""
    reference: str = ""

    @property
    def explained(self) -> bool:
        """Whether it does not count against our decoding."""
        return self.right in ("rdmascope", "both")


@dataclass(slots=True)
class ComparisonTally:
    compared: int = 0
    equal: int = 0
    explained: int = 0
    unexplained: int = 0


def messages(frame: FrameFields) -> list[ComparedMessage]:
    """The calls and replies that Wireshark shows in a frame."""
    fields = frame.fields
    kinds, xids = fields.get("rpc.msgtyp", ()), fields.get("rpc.xid", ())
    of_calls, of_replies, times = (iter(fields.get(f"rpc.{name}", ())) for name in ("reqframe", "repframe", "time"))

    def at(name: str, index: int) -> int | None:
        # NFS repeats the fields of RPC, equally often for each message.
        values = fields.get(name, ())
        each, rest = divmod(len(values), len(kinds))
        return values[index * each] if each and not rest else None

    return [
        ComparedMessage(
            frame.frame,
            xid,
            kind == 1,
            at("rpc.program", index),
            at("rpc.programversion", index),
            at("rpc.procedure", index),
            next(of_replies if kind == 1 else of_calls, None),
            next(times, None) if kind == 1 else None,
        )
        for index, (xid, kind) in enumerate(zip(xids, kinds, strict=False))
    ]


# Ours


class OurMessage(NamedTuple):
    """A call or reply, and what determines how Wireshark will show it."""

    message: ComparedMessage
    touched: frozenset[str]
    """Names of Wireshark's weak spots that its Rpc touches."""
    call_frame: int
    complete: int
    """The frame that completes the call and its Read chunks."""
    since_complete: int | None
    """A reply: nanoseconds since then."""


@dataclass(slots=True)
class Ours:
    """What we found, collected batch by batch."""

    blocks: list[PacketBlock] = field(default_factory=list)
    """Packets of the InfiniBand transport, batch by batch."""
    fpdus: dict[int, Fields] = field(default_factory=dict)
    """By frame that completes them."""
    headers: dict[int, tuple[Fields, frozenset[str]]] = field(default_factory=dict)
    """By frame: RPC-over-RDMA headers, with the weak spots that their Rpc touches."""
    messages: list[OurMessage] = field(default_factory=list)
    truncated: set[int] = field(default_factory=set)
    """Frames that the capture truncated."""
    foreign: set[int] = field(default_factory=set)
    """Frames with opcodes of transport services that are not decoded."""
    low_ports: set[int] = field(default_factory=set)
    """Frames whose UDP source port is below that of RoCEv2."""
    retransmitted: RetransmittedPackets = field(default_factory=RetransmittedPackets)
    circumstances: Circumstances = field(default_factory=Circumstances)
    streams: IwarpStreams = field(default_factory=IwarpStreams)

    def add_packets(self, frames: FrameBatch, packets: PacketBatch) -> None:
        rows = frames.rows
        self.truncated.update(rows["number"][rows["captured"] < rows["original"]].tolist())
        self.foreign.update(packets.rows["frame"][opcodes.is_foreign(packets.rows["opcode"])].tolist())
        taken = packets.rows
        self.low_ports.update(taken["frame"][(taken["source_port"] > 0) & (taken["source_port"] < ROCE_PORT)].tolist())
        self.blocks.append(packet_block(packets))
        self.retransmitted.add(packets)

    def add_rpc(self, rpc: Rpc) -> None:
        if not rpc.connection.rdma:
            return
        spots = touched(rpc)
        for message in (rpc.call, rpc.reply):
            if message is not None and message.header.length >= FIXED_WORDS:
                self.headers[message.frame] = header_fields(message.header), spots
        self.circumstances.add(rpc)
        self.messages += rpc_messages(rpc, spots)

    def add_message(self, message: Message) -> None:
        """Add a message that belongs to no Rpc."""
        if message.header.length >= FIXED_WORDS:
            self.headers[message.frame] = header_fields(message.header), touched_message(message)

    def add_fpdus(self, tcp: TcpConnection, direction: int, fpdus: Fpdus) -> None:
        """Add the next FPDUs of one direction of an iWARP connection."""
        if tcp.records:
            return
        self.streams.add(tcp, fpdus)
        add_fields(self.fpdus, fpdu_fields(fpdus))

    def frame_fields(self) -> Iterator[FrameFields]:
        """The fields of every packet, in frame order."""
        segment_fields = dict(self.fpdus)
        for tcp in self.streams.known:
            for direction in tcp.directions:
                if (startup := direction.framing.startup) is not None:
                    segment_fields[startup.frame] = {**mpa_fields(startup.mpa), **segment_fields.get(startup.frame, {})}
        segments = (FrameFields(frame, segment_fields[frame]) for frame in sorted(segment_fields))
        packets = (frame for block in self.blocks for frame in block.frame_fields())
        return merge(packets, segments, key=itemgetter(0))


class OtherMessages(Listener):
    """A listener that collects messages that belong to no Rpc."""

    takes_rows = True
    reads_bytes = False

    def __init__(self, ours: Ours) -> None:
        self.ours = ours

    def other_sent(self, sender: int, message: Message) -> None:
        self.ours.add_message(message)


def rpc_messages(rpc: Rpc, spots: frozenset[str]) -> list[OurMessage]:
    """An Rpc's call and reply, as far as captured.  An RDMA_ERROR is no reply."""
    names = rpc.program, rpc.version, rpc.procedure
    call, reply = rpc.call, rpc.reply
    if reply is not None and reply.header.procedure == RDMA_ERROR:
        reply = None
    both: list[OurMessage] = []
    call_frame = complete = complete_time = 0
    if call is not None and _carries_no_rpc(call):
        call = None
    if call is not None:
        call_frame, reads = call.frame, [*chunk_operations(rpc, "read")]
        complete = max([call_frame, *(read.last_frame for read in reads)])
        complete_time = max([call.operation.last_time, *(read.last_time for read in reads)])
        message = ComparedMessage(call.frame, rpc.xid, False, *names, reply.frame if reply else None)
        both.append(OurMessage(message, spots, call_frame, complete, None))
    if reply is not None:
        time = since = None
        if call is not None:
            time = reply.operation.last_time - call.operation.last_time
            since = reply.operation.last_time - complete_time
        message = ComparedMessage(reply.frame, rpc.xid, True, *names, call.frame if call else None, time)
        both.append(OurMessage(message, spots, call_frame, complete, since))
    return both


def _carries_no_rpc(call: Message) -> bool:
    """Whether, by its own header, it has a malformed list, no chunk for a message, or a procedure without one."""
    header = call.header
    if header.truncated:
        return False
    if header.problem or header.version not in (1, 2):
        return True
    if header.procedure == RDMA_NOMSG:
        return not header.reads
    return header.procedure not in (RDMA_MSG, RDMA_MSGP, RDMA_OPTIONAL) or not call.inline_length


# The comparison

ROCE_PORT = 4791

NO_HEADER: tuple[Fields, frozenset[str]] = {}, frozenset()

Pair = tuple[str, Values | None, Values | None]
"""Wireshark's name of a field, our values, theirs."""


class Comparison:
    """Yields the differences one by one, and counts what was compared."""

    def __init__(self, ours: Ours, unknown: frozenset[str] = frozenset()) -> None:
        """``unknown``: fields that this version of Wireshark does not have."""
        self.unknown = unknown
        self.tallies = {what: ComparisonTally() for what in THINGS}
        self.names: frozenset[str] = frozenset()
        """Wireshark's names of the fields of calls and replies that were compared."""
        self._ours = ours
        self._offered_again = ours.circumstances.offered_again()
        self._spots: dict[str, set[int]] = {
            "truncated frame": ours.truncated,
            "UDP port": ours.low_ports,
            "IP over InfiniBand": set(),
            "DC or RD": ours.foreign,
            "retransmitted": ours.retransmitted.found(),
            "PSNs alike": ours.circumstances.psns_alike(),
        }
        """Rows that apply to everything in some frames."""

    @property
    def agree(self) -> bool:
        """Whether every difference is explained."""
        return not any(tally.unexplained for tally in self.tallies.values())

    def run(self, theirs: Iterable[FrameFields]) -> Iterator[Difference]:
        """Every difference; ``theirs``: Wireshark's FrameFields in frame order."""
        shown: list[ComparedMessage] = []
        for frame, mine, other in _side_by_side(self._ours.frame_fields(), theirs):
            header, spots = self._ours.headers.get(frame, NO_HEADER)
            if self.unknown:
                mine = {name: values for name, values in mine.items() if name not in self.unknown}
                header = {name: values for name, values in header.items() if name not in self.unknown}
            their_header = {name: other[name] for name in HEADER_FIELDS if name in other}
            their_packet = {name: other[name] for name in PACKET_NAMES if name in other}
            if mine or their_packet:
                spots_of_datagram = datagram_spots(other)
                if spots_of_datagram:
                    self._spots["IP over InfiniBand"].add(frame)
                yield from self._judged(PACKET, frame, _differing("packet", mine, their_packet), spots_of_datagram)
            if header or their_header:
                yield from self._judged(HEADER, frame, _differing("rpcordma", header, their_header), spots)
            if "rpc.xid" in other:
                shown += messages(FrameFields(frame, other))
        yield from self._rpcs(shown)

    def _rpcs(self, shown: list[ComparedMessage]) -> Iterator[Difference]:
        places: dict[tuple[int, bool], list[ComparedMessage]] = defaultdict(list)
        for message in shown:
            places[message.xid, message.is_reply].append(message)
        pairs: list[tuple[OurMessage, ComparedMessage | None]] = []
        late: list[OurMessage] = []
        for our_message in sorted(self._ours.messages, key=_place):
            same = _take(places, our_message.message, our_message.message.frame, our_message.message.frame)
            if same is None and our_message.complete > our_message.message.frame and not our_message.message.is_reply:
                late.append(our_message)
            else:
                pairs.append((our_message, same))
        pairs += [
            (our_message, _take(places, our_message.message, our_message.message.frame, our_message.complete))
            for our_message in late
        ]
        for our_message, other in sorted(pairs, key=lambda pair: _place(pair[0])):
            mine = our_message.message
            spots = our_message.touched | self._ours.circumstances.by_xid(mine.xid)
            if our_message.call_frame in self._offered_again:
                spots |= {"memory advertised again"}
            spots |= {name for name in ("PSNs alike", "UDP port") if mine.other in self._spots[name]}
            yield from self._judged(mine.what, mine.frame, _message_differing(our_message, other), spots, our_message)
        # Wireshark may show the remaining messages a second time, for the reason for which it was wrong the first time.
        like: defaultdict[tuple[int, bool], frozenset[str]] = defaultdict(frozenset)
        for our_message in self._ours.messages:
            like[our_message.message.xid, our_message.message.is_reply] |= our_message.touched
        for message in sorted((message for rest in places.values() for message in rest), key=itemgetter(0)):
            yield from self._judged(
                message.what, message.frame, [("rpc", None, (message.xid,))], like[message.xid, message.is_reply]
            )

    def _judged(
        self,
        what: str,
        frame: int,
        pairs: list[Pair],
        spots: frozenset[str] = frozenset(),
        message: OurMessage | None = None,
    ) -> list[Difference]:
        tally = self.tallies[what]
        tally.compared += 1
        if not pairs:
            tally.equal += 1
            return []
        spots |= {name for name, frames in self._spots.items() if frame in frames}
        if self._ours.streams.known:
            spots |= self._ours.streams.of(frame)
        differences: list[Difference] = []
        for name, mine, theirs in pairs:
            late = message is not None and _is_late(message, name, theirs)
            verdict = LATE if late else explain(name, mine, theirs, spots)
            if verdict is None and name in MATCH_FIELDS and mine and theirs:
                verdict = RETRANSMITTED if self._spots["retransmitted"] >= {*mine, *theirs} else None
            differences.append(Difference(what, frame, name, mine, theirs, *(verdict or ())))
        explained = all(difference.explained for difference in differences)
        tally.explained += explained
        tally.unexplained += not explained
        return differences


def _place(message: OurMessage) -> int:
    return message.message.frame


def _take(
    places: dict[tuple[int, bool], list[ComparedMessage]], message: ComparedMessage, first: int, last: int
) -> ComparedMessage | None:
    """Take the last message like ``message`` between two frames, so that no other message gets it."""
    candidates = places.get((message.xid, message.is_reply), [])
    for index in reversed(range(len(candidates))):
        if first <= candidates[index].frame <= last:
            return candidates.pop(index)
    return None


def _message_differing(message: OurMessage, theirs: ComparedMessage | None) -> list[Pair]:
    mine = message.message
    if theirs is None:
        return [("rpc", (mine.xid,), None)]
    match = "rpc.repframe" if mine.is_reply else "rpc.reqframe"
    values = [(FRAME, mine.frame, theirs.frame), (match, mine.other, theirs.other)]
    if not mine.is_reply or (theirs.other is not None and theirs.other in (mine.other, message.complete)):
        # A reply has no such fields; Wireshark takes them from the call that it matched.
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


def _is_late(mine: OurMessage, name: str, theirs: Values | None) -> bool:
    """Whether Wireshark's value is explained by its showing the call where its Read chunks are complete."""
    if mine.complete == mine.call_frame or theirs is None:
        return False
    if name == "rpc.time":
        return theirs == (mine.since_complete,)
    return name == ("rpc.repframe" if mine.message.is_reply else FRAME) and theirs == (mine.complete,)


def _differing(group: str, mine: Fields, other: Fields) -> list[Pair]:
    """The fields whose values differ; or the group's name if one of the two has none at all."""
    if mine == other:
        return []
    if not mine or not other:
        return [(group, _telling(mine), _telling(other))]
    names = dict.fromkeys((*mine, *other))
    return [(name, mine.get(name), other.get(name)) for name in names if mine.get(name) != other.get(name)]


def _telling(fields: Fields) -> Values | None:
    return next(iter(fields.values())) if fields else None


def _side_by_side(mine: Iterable[FrameFields], theirs: Iterable[FrameFields]) -> Iterator[tuple[int, Fields, Fields]]:
    """What either side found, frame by frame; both must ascend."""

    def frame_of(shown: tuple[FrameFields, int]) -> int:
        return shown[0].frame

    for frame, both in groupby(merge(zip(mine, repeat(0)), zip(theirs, repeat(1)), key=frame_of), frame_of):
        fields: tuple[list[Fields], list[Fields]] = [], []
        for shown, side in both:
            fields[side].append(shown.fields)
        for ours, others in zip_longest(*fields, fillvalue=NO_HEADER[0]):
            yield frame, ours, others


PROTOCOLS = ("rpc", "nfs", "nfs.cb", "mount", "nfsacl", "portmap", "nlm", "stat")
"""Wireshark's names; fields of other protocols are not compared."""
HASHES = frozenset(("nfs.fh.hash", "nfs.stateid.other_hash"))
"""Fields shown as the CRC-32 of their bytes."""
STATEID_HASH = "nfs.stateid.hash"
"""Field shown as the CRC-16 of its bytes."""
SPANNING = frozenset(
    (
        "nfs.attr",
        "nfs.devaddr.scsi_volume_type",
        "nfs.name",
        "nfs.nfl_util.commit_thru_mds",
        "nfs.nfl_util.dense",
        "nfsacl.acl",
        "nfsacl.aclent",
        "rpc.lastfrag",
        "rpc.fraglen",
        "rpc.fill_bytes",
    )
)
"""Fields that stand for several fields at once, or for none of the message's."""
DEPRECATED = "nfs.stateid.deprecated"
OPAQUE_LENGTH = "rpc.opaque_length"
NOT_DISSECTED = frozenset(
    (
        "change_policy", "fs_status", "layout_hint", "fs_locations_info", "retention_get", "retention_set",
        "retentevt_get", "retentevt_set", "mode_set_masked", "layout_type",
    )
)  # fmt: skip
"""NFSv4 attributes of which Wireshark shows the number and the bytes."""


class ShownField(NamedTuple):
    """A field as Wireshark shows it."""

    name: str
    """'nfs.offset3'; '' for a label."""
    offset: int
    """In the RPC message, counted from the XID."""
    value: bytes
    """For a bit in a mask: the bytes of the whole mask."""
    shown: str


class ShownMessage(NamedTuple):
    xid: int
    reply: bool
    fields: tuple[ShownField, ...]
    malformed: bool


class FieldDifference(NamedTuple):
    """A field that the two sides show differently.  None means missing."""

    name: str
    """Wireshark's name; ours if Wireshark shows nothing."""
    ours: bytes | None
    theirs: bytes | None
    reason: str = ""
    """Why ours is right; '' if unknown."""
    reference: str = ""


class _Place(NamedTuple):
    name: str
    """Name of the field; '' for a word that counts, or says that something follows."""
    value: bytes | None
    """None if it has no bytes of its own."""


class ComparedFields(NamedTuple):
    compared: int
    names: frozenset[str]
    """Wireshark's names of the fields compared."""
    differences: tuple[FieldDifference, ...]


def compared_fields(tree: MessageTree, shown: ShownMessage) -> ComparedFields:
    """Compare a message with Wireshark's: each of our values must be shown, and each value shown must be ours."""
    roots = [root for root in (tree.header, tree.body) if root is not None]
    places = _places(roots)
    compared = 0
    names = set()
    different: list[FieldDifference] = []
    covered: set[tuple[int, int]] = set()
    undissected, layouts = _not_dissected(roots), _layout_bodies(roots)
    behind = _dissected_end(roots)
    deprecated = any(shown_field.name == DEPRECATED for shown_field in shown.fields)
    procedure = _procedure_not_dissected(tree, shown)
    for shown_field in shown.fields:
        if not shown_field.value or shown_field.offset < 0:
            continue
        covered.add((shown_field.offset, shown_field.offset + len(shown_field.value)))
        if not shown_field.name or shown_field.name in SPANNING or shown_field.name.partition(".")[0] not in PROTOCOLS:
            continue
        compared += 1
        names.add(shown_field.name)
        ours = places.get((shown_field.offset, len(shown_field.value)))
        if ours is None:
            reason = OPERATION_NOT_DISSECTED if shown_field.offset >= behind else ("", "")
            if any(low <= shown_field.offset < high for low, high in layouts):
                reason = LAYOUT_NOT_DISSECTED
            different.append(FieldDifference(shown_field.name, None, shown_field.value, *reason))
        elif ours.value not in (None, shown_field.value):
            different.append(FieldDifference(shown_field.name, ours.value, shown_field.value))
        elif not any(shown_field.value) and (shown_field.name == OPAQUE_LENGTH or NAMES.get(shown_field.name) == ()):
            pass  # For an opaque without bytes Wireshark shows only its length.
        elif ours.name and ours.name not in NAMES.get(shown_field.name, (ours.name,)):
            reason = OPERATION_NOT_DISSECTED if shown_field.offset >= behind else ("", "")
            different.append(
                FieldDifference(f"{shown_field.name} as {ours.name}", shown_field.value, shown_field.value, *reason)
            )
        elif shown_field.name in HASHES and shown_field.shown != f"{crc32(shown_field.value):#010x}":
            different.append(
                FieldDifference(shown_field.name, crc32(shown_field.value).to_bytes(4, "big"), shown_field.value)
            )
        elif shown_field.name == STATEID_HASH and shown_field.shown != f"{stateid_hash(shown_field.value):#06x}":
            different.append(
                FieldDifference(shown_field.name, stateid_hash(shown_field.value).to_bytes(2, "big"), shown_field.value)
            )
    for node, start, value in _leaves(roots):
        end = start + len(value)
        if value and not any((low, high) in covered for low, high in _spans(start, end)):
            compared += 1
            reason = DEPRECATED_STATEID if deprecated and node.name == "seqid" else ("", "")
            if procedure and tree.body is not None and start >= tree.body.offset:
                reason = PROCEDURE_NOT_DISSECTED
            elif node.name == "state" and tree.body is not None and _type_name(tree.body) == "sm_stat_res":
                reason = STATE_OF_FAILURE
            elif any(low <= start and end <= high for low, high in undissected):
                reason = ATTRIBUTE_NOT_DISSECTED
            elif start >= behind:
                reason = OPERATION_NOT_DISSECTED
            elif any(low <= start and end <= high for low, high in layouts):
                reason = LAYOUT_NOT_DISSECTED
            different.append(FieldDifference(node.name, value, None, *reason))
    return ComparedFields(compared, frozenset(names), tuple(different))


DEPRECATED_STATEID = (
    "Wireshark marks the stateid that CLOSE returns as deprecated, and leaves it out",
    "RFC 7530, 16.2.5; RFC 8881, 18.2.4",
)


ATTRIBUTE_NOT_DISSECTED = (
    "Wireshark names this attribute, and shows its bytes without taking them apart",
    "RFC 8881, 5.8",
)


PROCEDURE_NOT_DISSECTED = (
    "Wireshark does not dissect what this procedure asks or answers",
    "RFC 1833, 2.1 and 2.2.1; rquota; procedure 16 of NLM, which is Linux's",
)
_BODIES_NOT_DISSECTED = frozenset(
    (
        "rpcb", "rpcb_entry_list", "time", "uaddr", "netbuf", "rpcb_rmtcallargs", "rpcb_rmtcallres", "rpcb_stat_byvers",
        "truth", "nlm_reboot", "getquota_args", "ext_getquota_args", "getquota_rslt", "setquota_args",
        "ext_setquota_args", "setquota_rslt",
    )
)  # fmt: skip
"""Types of arguments and results that Wireshark dissects for some procedures only."""
STATE_OF_FAILURE = ("Wireshark shows the state of a success only", "X/Open XNFS, 11")


def _procedure_not_dissected(tree: MessageTree, shown: ShownMessage) -> bool:
    body = tree.body
    if body is None or _type_name(body) not in _BODIES_NOT_DISSECTED:
        return False
    return not any(
        field.offset >= body.offset and field.value and field.name.partition(".")[0] in PROTOCOLS
        for field in shown.fields
        if field.name != "rpc.unknown_body"
    )


def _type_name(node: Node) -> str:
    return node.type.name if node.type is not None else ""


OPERATION_NOT_DISSECTED = (
    "Wireshark does not dissect this operation to its end, and no operation that follows it",
    "RFC 8881, 18.35, 18.39, 18.47, 18.49 and 20.4 to 20.12; RFC 7862, 15.12",
)
_OPERATIONS_NOT_DISSECTED = {
    "GET_DIR_DELEGATION", "SET_SSV", "WANT_DELEGATION", "WRITE_SAME",
    "CB_NOTIFY", "CB_PUSH_DELEG", "CB_RECALL_ANY", "CB_RECALLABLE_OBJ_AVAIL", "CB_WANTS_CANCELLED",
    "CB_NOTIFY_DEVICEID",
}  # fmt: skip


def _dissected_end(roots: Iterable[Node]) -> int:
    """Offset of the first operation that Wireshark does not dissect."""
    for root in roots:
        for node in root.walk(lambda inner: not isinstance(inner.type, XdrAttributes)):
            number = node.child("argop") or node.child("resop")
            if number is not None and _word(number) in _OPERATIONS_NOT_DISSECTED:
                return number.offset + number.length
            if node.name == "spi_handles":  # in EXCHANGE_ID with SP4_SSV: an array that Wireshark reads as one handle
                return node.offset
    return 1 << 62


def _word(node: Node) -> str:
    """The name of an enum's value."""
    if isinstance(node.type, XdrInteger) and isinstance(node.value, int):
        return node.type.values.get(node.value, "")
    return ""


def _not_dissected(roots: Iterable[Node]) -> list[tuple[int, int]]:
    """Byte ranges of attributes that Wireshark does not decode."""
    return [
        (node.offset, node.offset + node.length)
        for root in roots
        for attributes in root.walk()
        if isinstance(attributes.type, XdrAttributes)
        for node in attributes.children
        if node.name in NOT_DISSECTED
    ]


LAYOUT_NOT_DISSECTED = (
    "Wireshark dissects layouts and devices of files and flexible files; of blocks and SCSI it shows the bytes",
    "RFC 5663, 2.3; RFC 8154, 2.3",
)
_LAYOUT_BODIES = frozenset(("loc_body", "da_addr_body", "lou_body"))


def _layout_bodies(roots: Iterable[Node]) -> list[tuple[int, int]]:
    return [
        (node.offset, node.offset + node.length)
        for root in roots
        for node in root.walk()
        if node.name in _LAYOUT_BODIES and any(_type_name(child).startswith("pnfs_") for child in node.children)
    ]


def _spans(start: int, end: int) -> Iterator[tuple[int, int]]:
    """Byte ranges that Wireshark may show for a value: the value, with the count before it, with its pad."""
    padded = end + -(end - start) % 4
    for low in (start, start - 4, start - 8):
        for high in (end, padded):
            yield low, high


def _leaves(roots: Iterable[Node]) -> Iterator[tuple[Node, int, bytes]]:
    """Values with bytes of their own, and their offsets."""
    for root in roots:
        for node in root.walk():
            if node.children:
                continue
            end = node.offset + node.length
            if isinstance(node.type, XdrInteger) and isinstance(node.value, int):
                size = node.type.size
                yield node, end - size, (node.value % (1 << 8 * size)).to_bytes(size, "big")
            elif isinstance(node.type, XdrOpaque) and isinstance(node.value, memoryview):
                # A count, and a word that says that it follows, may come first.
                yield node, end - round_up(len(node.value)), bytes(node.value)


def _places(roots: Iterable[Node]) -> dict[tuple[int, int], _Place]:
    """Every field with bytes, by offset and length."""
    places: dict[tuple[int, int], _Place] = {}
    for root in roots:
        for node in root.walk():
            places.setdefault((node.offset, 4), _Place("", None))
            if isinstance(node.type, XdrBitmap | XdrList):
                for at in range(node.offset, node.offset + node.length, 4):
                    places.setdefault((at, 4), _Place("", None))
                places.update({(child.offset - 4, 4): _Place("", None) for child in node.children})
    for root in roots:
        for node in root.walk():
            _add(places, node)
    return places


def _add(places: dict[tuple[int, int], _Place], node: Node) -> None:
    end = node.offset + node.length
    if isinstance(node.value, memoryview):
        value = bytes(node.value)
        places[node.offset, node.length] = _Place(node.name, None)
        if isinstance(node.type, XdrOpaque) and node.type.size is not None:
            places[node.offset, len(value)] = _Place(node.name, value)
            return
        places[node.offset + 4, len(value)] = _Place(node.name, value)
        # If it is optional, it follows the word that says so.
        places.setdefault((node.offset + 4, 4), _Place("", None))
        places.setdefault((node.offset + 8, len(value)), _Place(node.name, value))
    elif isinstance(node.type, XdrInteger) and isinstance(node.value, int):
        size = node.type.size
        places[end - size, size] = _Place(node.name, (node.value % (1 << 8 * size)).to_bytes(size, "big"))
    else:
        places.setdefault((node.offset, node.length), _Place(node.name, None))
        places.setdefault((node.offset + 4, node.length - 4), _Place(node.name, None))
