"""What Wireshark is known to get wrong, as a table: where that may be, why, and where to read about it.

A row's predicate says of one of our Rpcs that Wireshark cannot be relied on there.  What it tells alike all the
same is agreement; what it tells differently is then no evidence against our reading.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from .frames import Int64s, Rows
from .iwarp.framing import Fpdus
from .iwarp.link import Link
from .layers.opcodes import IS_LAST, IS_ONLY, IS_RC, IS_READ_RESPONSE, IS_SEND
from .messages import RDMA_NOMSG, Segment
from .operations import Operation
from .packets import PacketBatch
from .rpcs import Rpc
from .sightings import FPDU_FIELDS, MPA_FIELDS, Values

PSN_MODULUS = 1 << 24

CHUNKS = "Wireshark, epan/dissectors/packet-rpcrdma.c"
PACKETS = "Wireshark, epan/dissectors/packet-infiniband.c"
RPCS = "Wireshark, epan/dissectors/packet-rpc.c"
MPA = "Wireshark, epan/dissectors/packet-iwarp-mpa.c"


class Verdict(NamedTuple):
    right: str
    """'rdmascope', 'Wireshark' or 'both'."""
    reason: str
    reference: str
    """A source file of Wireshark, or a section of a specification."""


# The predicates.  Each looks at one Rpc.


def _operations(rpc: Rpc) -> Iterator[Operation]:
    """The RDMA Reads and Writes that moved its chunks."""
    for chunk in rpc.chunks:
        for use in chunk.segments:
            yield from use.operations


def _packets(operation: Operation, mtu: int) -> int:
    return max(operation.packets, -(-operation.length // mtu))


def cut(rpc: Rpc) -> bool:
    return rpc.contents == "truncated"


def missing_packets(rpc: Rpc) -> bool:
    messages = [message.operation for message in (rpc.call, rpc.reply) if message is not None]
    return (
        bool(rpc.damage)
        or rpc.call is None
        or any(operation.payload.seen < operation.payload.length for operation in (*messages, *_operations(rpc)))
    )


def unfinished(rpc: Rpc) -> bool:
    """Some of what the call offered to be read was not read."""
    return any(chunk.kind == "read" and chunk.moved < chunk.advertised for chunk in rpc.chunks)


def repeated_packets(rpc: Rpc) -> bool:
    return rpc.retransmissions > 0


def out_of_order(rpc: Rpc) -> bool:
    """A reply before its call; Reads or Writes before the call that offers the memory, or behind the reply."""
    if rpc.call is not None and rpc.reply is not None and rpc.reply.frame < rpc.call.frame:
        return True
    for operation in _operations(rpc):
        if rpc.call is not None and operation.first_frame < rpc.call.operation.first_frame:
            return True
        if rpc.reply is not None and operation.last_frame > rpc.reply.frame:
            return True
    return False


def version_2(rpc: Rpc) -> bool:
    return any(message is not None and message.header.version != 1 for message in (rpc.call, rpc.reply))


def without_cm(rpc: Rpc) -> bool:
    return rpc.connection.transport != "iWARP" and rpc.connection.paired_by != "CM"


def one_handle_twice(rpc: Rpc) -> bool:
    handles = [use.advertised.handle for chunk in rpc.chunks for use in chunk.segments]
    return len(handles) != len(set(handles))


def several_chunks(rpc: Rpc) -> bool:
    kinds = [chunk.kind for chunk in rpc.chunks]
    return kinds.count("read") > 1 or kinds.count("write") > 1


def mixed_sizes(rpc: Rpc) -> bool:
    """A Write that is not the last one into its chunk ends with a packet that is not full."""
    mtu = rpc.connection.path_mtu or 0
    for chunk in rpc.chunks:
        moved = [operation for use in chunk.segments for operation in use.operations]
        if mtu and chunk.kind != "read" and any(operation.length % mtu for operation in moved[:-1]):
            return True
    return False


def long_send(rpc: Rpc) -> bool:
    """A call with Read chunks, or a reply with Write chunks or a Reply chunk, took more than one packet."""
    kinds = {chunk.kind for chunk in rpc.chunks}
    return bool(
        (rpc.call is not None and rpc.call.operation.packets > 1 and "read" in kinds)
        or (rpc.reply is not None and rpc.reply.operation.packets > 1 and kinds - {"read"})
    )


def psn_wraps(rpc: Rpc) -> bool:
    mtu = rpc.connection.path_mtu or 256
    sends = [message.operation for message in (rpc.call, rpc.reply) if message is not None]
    return any(operation.psn + _packets(operation, mtu) > PSN_MODULUS for operation in (*sends, *_operations(rpc)))


# The table.

PRESENCE = frozenset({"packet", "rpcordma", "rpc"})
"""Names that stand for the whole thing, where one of the two has none."""
MATCHING = frozenset({"frame.number", "rpc.reqframe", "rpc.repframe", "rpc.time"})
"""Where an RPC is, what belongs to it, and how long it took."""
RPC = MATCHING | {"rpc"}
MESSAGE = RPC | {"rpcordma"}
ANYTHING = MESSAGE | {"packet"}
STREAM = ANYTHING | {*MPA_FIELDS, *FPDU_FIELDS}
"""Who has lost where FPDUs begin takes anything for them."""
NAMES = frozenset({"rpc.program", "rpc.programversion", "rpc.procedure"})
LONG_CALL = "long call"
"""Not a weak spot: the call came through a Read chunk, so that what spoils chunks may spoil NAMES as well."""


class WeakSpot(NamedTuple):
    name: str
    applies: Callable[[Rpc], bool] | None
    """None: one Rpc does not show it; ``Circumstances``, ``Repetitions`` or the frame does."""
    reason: str
    reference: str
    right: str = "rdmascope"
    names: frozenset[str] = RPC
    """What it can spoil; the values of what Wireshark does find are never among them."""


TABLE = (
    WeakSpot(
        "cut frame",
        None,
        "the capture cut the frame, and Wireshark stops where the bytes end",
        PACKETS,
        names=ANYTHING,
    ),
    WeakSpot(
        "sent again",
        None,
        "the packet was sent more than once: Wireshark shows its message each time, rdmascope where the receiver"
        " took it",
        "InfiniBand Architecture vol. 1, 9.7.5.1",
        "both",
        frozenset({"rpcordma", "rpc"}),
    ),
    WeakSpot(
        "cut",
        cut,
        "the capture cut frames of it, and Wireshark stops where the bytes end",
        CHUNKS,
        names=MESSAGE,
    ),
    WeakSpot(
        "version 2",
        version_2,
        "it is RPC-over-RDMA version 2, which Wireshark does not know",
        CHUNKS,
        names=MESSAGE,
    ),
    WeakSpot(
        "unfinished",
        unfinished,
        "its Read chunk was not read to the end, and Wireshark shows a call when all of it is there",
        CHUNKS,
        "both",
    ),
    WeakSpot(
        "repeated packets",
        repeated_packets,
        "packets of it were sent again, and Wireshark counts the bytes of a chunk whether they are new or not",
        CHUNKS,
        names=MESSAGE,
    ),
    WeakSpot(
        "missing packets",
        missing_packets,
        "packets of it are missing, and Wireshark does not ask which bytes of a chunk they carried",
        CHUNKS,
        names=MESSAGE,
    ),
    WeakSpot(
        "out of order",
        out_of_order,
        "its packets were captured out of order, and Wireshark follows the order of the frames",
        CHUNKS,
        names=MESSAGE,
    ),
    WeakSpot(
        "PSNs alike",
        None,
        "both ends used its packet sequence numbers for Sends of several packets, which Wireshark keeps in one list",
        CHUNKS,
        names=MESSAGE,
    ),
    WeakSpot(
        "no CM",
        without_cm,
        "the connection's set-up is not in the capture, and only from that does Wireshark learn which queue pairs"
        " belong together",
        PACKETS,
        names=MESSAGE,
    ),
    WeakSpot(
        "no MPA",
        None,
        "the MPA Request or Reply is not in the capture, and only by those does Wireshark know iWARP",
        MPA,
        names=ANYTHING,
    ),
    WeakSpot(
        "IP over InfiniBand",
        None,
        "it carries IP over InfiniBand, which rdmascope passes over",
        "RFC 4391, 6",
        "both",
        frozenset({"packet"}),
    ),
    WeakSpot(
        "ready to receive",
        None,
        "an FPDU without contents ends the set-up; Wireshark shows it, to rdmascope it is no RDMA message",
        "RFC 6581, 8",
        "both",
        frozenset({"packet"}),
    ),
    WeakSpot(
        "markers",
        None,
        "there are markers in the TCP streams, which Wireshark expects to be asked for by both sides, and FPDUs to"
        " begin where segments do",
        MPA,
        names=STREAM,
    ),
    WeakSpot(
        "TCP order",
        None,
        "TCP segments were sent again, missing or out of order, and Wireshark loses where FPDUs begin",
        MPA,
        names=STREAM,
    ),
    WeakSpot(
        "split FPDUs",
        None,
        "FPDUs are spread over TCP segments, and Wireshark loses where they begin when one has but a few bytes of one",
        MPA,
        names=STREAM,
    ),
    WeakSpot(
        "one XID both ways",
        None,
        "both ends used its XID, and Wireshark does not keep the two directions apart",
        RPCS,
        names=MATCHING,
    ),
    WeakSpot(
        "XID again",
        None,
        "another call had its XID, and Wireshark gives a reply to the wrong one of them",
        RPCS,
        names=MATCHING,
    ),
    WeakSpot(
        "one handle twice",
        one_handle_twice,
        "two of its segments have one handle, and Wireshark knows one segment for each handle",
        CHUNKS,
    ),
    WeakSpot(
        "memory offered again",
        None,
        "an earlier call offered the same memory, and Wireshark takes the second offer for the first one's reply",
        CHUNKS,
    ),
    WeakSpot(
        "several chunks",
        several_chunks,
        "it has several Read or several Write chunks, which Wireshark puts together in the wrong places",
        CHUNKS,
    ),
    WeakSpot(
        "long Send",
        long_send,
        "a Send of several packets names chunks, and Wireshark puts together only one of the two in a frame",
        CHUNKS,
    ),
    WeakSpot(
        "mixed sizes",
        mixed_sizes,
        "RDMA Writes of different sizes fill one chunk, and Wireshark orders them as if all were of one size",
        CHUNKS,
    ),
    WeakSpot(
        "PSN wrap",
        psn_wraps,
        "its packet sequence numbers begin again at 0, and Wireshark compares them as plain numbers",
        CHUNKS,
        names=MESSAGE,
    ),
)
"""The first row that applies gives the reason."""

EXTRA = frozenset({"sent again", "IP over InfiniBand", "ready to receive"})
"""Rows that are about what only Wireshark shows."""

LATE = Verdict(
    "both",
    "Wireshark shows a call with a Read chunk in the last Read response and counts its time from there, rdmascope"
    " from the Send",
    CHUNKS,
)


def touched(rpc: Rpc) -> frozenset[str]:
    """Names of the rows that apply to an Rpc by itself."""
    found = {row.name for row in TABLE if row.applies is not None and row.applies(rpc)}
    if rpc.call is not None and rpc.call.header.procedure == RDMA_NOMSG:
        found.add(LONG_CALL)
    return frozenset(found)


def explain(name: str, ours: Values | None, theirs: Values | None, touched: frozenset[str]) -> Verdict | None:
    """The verdict on a difference, where the table has one; ``touched`` are the rows that apply there."""
    for row in TABLE:
        spoils = name in row.names or (row.name == "cut frame" and theirs is None)
        spoils = spoils or (name in NAMES and LONG_CALL in touched and "rpc" in row.names)
        if row.name in touched and spoils and (row.name not in EXTRA or ours is None):
            return Verdict(row.right, row.reason, row.reference)
    return None


# What one Rpc does not show.

IPOIB_QKEY = 0x0B1B
"""The Q_Key that IP over InfiniBand uses where nothing else was set up, by custom."""


def datagram_spots(fields: Mapping[str, Values]) -> frozenset[str]:
    """Rows that apply to a packet by what Wireshark says of it."""
    ip = fields.get("infiniband.deth.q_key") == (IPOIB_QKEY,)
    return frozenset({"IP over InfiniBand"}) if ip else frozenset()


@dataclass(slots=True)
class IwarpStreams:
    """The iWARP connections, and the frames in which their FPDUs end."""

    links: dict[int, Link] = field(default_factory=dict)
    """By frame."""
    known: dict[Link, None] = field(default_factory=dict)
    """In order of appearance."""
    split: dict[Link, int] = field(default_factory=dict)
    """The first frame with an FPDU that is spread over TCP segments."""

    def add(self, link: Link, fpdus: Fpdus) -> None:
        rows = fpdus.rows
        self.known[link] = None
        self.links.update(dict.fromkeys(rows["last_frame"].tolist(), link))
        spread = rows["first_frame"][rows["first_frame"] != rows["last_frame"]]
        if len(spread):
            self.split[link] = min(int(spread.min()), self.split.get(link, int(spread.min())))

    def of(self, frame: int) -> frozenset[str]:
        """Names of the rows that apply to a frame; where it ends no FPDU, of all connections at that time."""
        if frame in self.links:
            return self._of(self.links[frame], frame)
        found: frozenset[str] = frozenset()
        for link in self.known:
            if link.first is not None and link.first[0] <= frame <= link.last[0]:
                found |= self._of(link, frame)
        return found

    def _of(self, link: Link, frame: int) -> frozenset[str]:
        found: set[str] = set()
        frames = [framing.frame for framing in link.framings]
        if not all(frames):
            found.add("no MPA")
        if any(one.peer_to_peer for one in frames if one):
            found.add("ready to receive")
        if any(framing.markers for framing in link.framings):
            found.add("markers")
        if any(one.repeats.troubled or one.missing for one in link.streams):
            found.add("TCP order")
        if link in self.split and frame >= self.split[link]:
            found.add("split FPDUs")
        return frozenset(found)


@dataclass(slots=True)
class Circumstances:
    """What all calls and replies have in common, to be asked when all were seen."""

    offers: list[tuple[int, tuple[int, bool], list[Segment]]] = field(default_factory=list)
    """Frame of a call, its connection and direction, what it offers."""
    callers: defaultdict[int, list[tuple[int, bool]]] = field(default_factory=lambda: defaultdict(list))
    """XID -> connection and direction of each call that had it."""
    long_sends: defaultdict[int, list[tuple[int, Operation]]] = field(default_factory=lambda: defaultdict(list))
    """By connection the Sends of several packets: first PSN, Operation."""

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
        """Rows that apply to every call with that XID."""
        callers = self.callers[xid]
        if len(callers) < 2:
            return frozenset()
        both = any((number, not backward) in callers for number, backward in callers)
        return frozenset({"one XID both ways"} if both else {"XID again"})

    def offered_again(self) -> set[int]:
        """Frames of the calls that offer memory which an earlier call of the same end offered under the same handle."""
        known: dict[tuple[int, bool, int], Segment] = {}
        found: set[int] = set()
        for frame, caller, segments in sorted(self.offers, key=itemgetter(0)):
            for segment in segments:
                earlier = known.get((*caller, segment.handle))
                if earlier is not None and earlier.offset <= segment.offset < earlier.offset + earlier.length:
                    found.add(frame)
            for segment in segments:
                known[*caller, segment.handle] = segment
        return found

    def psns_alike(self) -> set[int]:
        """Last frames of the Sends whose PSNs the other end used earlier for the first packet of one."""
        found: set[int] = set()
        for sends in self.long_sends.values():
            starts = sorted(sends, key=itemgetter(0))
            for psn, operation in sends:
                at = bisect_left(starts, psn, key=itemgetter(0))
                while at < len(starts) and starts[at][0] < psn + operation.packets:
                    other = starts[at][1]
                    if other.initiator != operation.initiator and other.first_frame < operation.last_frame:
                        found.add(operation.last_frame)
                    at += 1
        return found


_KEY = np.dtype(
    [("source", "u4"), ("destination", "u4"), ("dest_qp", "u4"), ("psn", "u4"), ("opcode", "u1"), ("length", "i4")]
)
_SHOWN = IS_RC & (IS_SEND | IS_READ_RESPONSE) & (IS_LAST | IS_ONLY)
"""Packets that Wireshark shows messages in."""


@dataclass(slots=True)
class Repetitions:
    """Finds the packets that were sent more than once, by queue pair and PSN, among those that end a message."""

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
        """Frames of all their transmissions, the first ones too: the receiver may have dropped those."""
        if not self.keys:
            return set()
        _, which, times = np.unique(np.concatenate(self.keys), return_inverse=True, return_counts=True)
        return set(np.concatenate(self.frames)[times[which] > 1].tolist())
