"""Where weak spots of Wireshark are that one Rpc does not show: what calls, streams and packets have in common."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import itemgetter

import numpy as np

from ..arrays import Int64s, Rows
from ..layers.opcodes import IS_LAST, IS_ONLY, IS_RC, IS_READ_RESPONSE, IS_SEND
from ..link.packets import PacketBatch
from ..rpcrdma.messages import Segment
from ..rpcrdma.rpcs import Rpc
from ..transport.iwarp.decoding import Fpdus
from ..transport.iwarp.tcp_connection import TcpConnection
from ..transport.operations import Operation
from .frame_fields import Values

GSI_QKEY = 0x80010000
"""The Q_Key of Management Datagrams (IBA 3.5.3)."""


def datagram_spots(fields: Mapping[str, Values]) -> frozenset[str]:
    """Rows that apply to a packet by what Wireshark shows of it: RPC-over-RDMA uses no datagrams but those of CM."""
    keys = fields.get("infiniband.deth.q_key", ())
    return frozenset({"IP over InfiniBand"}) if keys and GSI_QKEY not in keys else frozenset()


@dataclass(slots=True)
class IwarpStreams:
    """The iWARP connections, and the frames in which their FPDUs end."""

    links: dict[int, TcpConnection] = field(default_factory=dict)
    """By frame."""
    known: dict[TcpConnection, None] = field(default_factory=dict)
    """In order of appearance."""
    split: dict[TcpConnection, int] = field(default_factory=dict)
    """The first frame with an FPDU that is spread over TCP segments."""

    def add(self, tcp: TcpConnection, fpdus: Fpdus) -> None:
        rows = fpdus.rows
        self.known[tcp] = None
        self.links.update(dict.fromkeys(rows["last_frame"].tolist(), tcp))
        spread = rows["first_frame"][rows["first_frame"] != rows["last_frame"]]
        if len(spread):
            self.split[tcp] = min(int(spread.min()), self.split.get(tcp, int(spread.min())))

    def of(self, frame: int) -> frozenset[str]:
        """Names of the rows that apply to a frame; where it ends no FPDU, of all connections at that time."""
        if frame in self.links:
            return self._of(self.links[frame], frame)
        found: frozenset[str] = frozenset()
        for tcp in self.known:
            if tcp.lifetime.first is not None and tcp.lifetime.first[0] <= frame <= tcp.lifetime.last[0]:
                found |= self._of(tcp, frame)
        return found

    def _of(self, tcp: TcpConnection, frame: int) -> frozenset[str]:
        found: set[str] = set()
        startups = [one.framing.startup for one in tcp.directions]
        if not all(startups):
            found.add("no MPA")
        if any(one.mpa.peer_to_peer for one in startups if one):
            found.add("ready to receive")
        if any(one.framing.markers for one in tcp.directions):
            found.add("markers")
        if any(one.stream.retransmissions.troubled or one.stream.missing for one in tcp.directions):
            found.add("TCP order")
        if tcp in self.split and frame >= self.split[tcp]:
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
        return frozenset({"one XID both ways"} if both else {"XID reused"})

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
class RetransmittedPackets:
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
