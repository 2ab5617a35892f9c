"""One record per packet, with the RPC it belongs to: what ``rdmascope packets`` lists."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import merge
from types import SimpleNamespace
from typing import TYPE_CHECKING, NamedTuple

from ..arrays import Rows
from ..frames import FrameBatch
from ..layers import opcodes
from ..layers.transports import TRANSPORTS
from ..link.locate import locate
from ..link.packets import PACKET, decode
from ..rpcrdma.analyzer import Analyzer
from ..rpcrdma.conversation import Conversation
from ..rpcrdma.rpcs import Rpc
from .packet_info import (
    PROTOCOLS,
    InfoParts,
    alone_shown,
    call_shown,
    info_of,
    info_parts,
    packet_info,
    reply_shown,
)
from .schema import Record, record

if TYPE_CHECKING:
    from ..transport.iwarp.segments import IwarpSegment
    from .segment_lines import SegmentLines

SLICE = 4096
"""Packets made into nouns at a time."""


class Packet(NamedTuple):
    """An RDMA packet, or a TCP segment of iWARP, and what is known of it."""

    frame: int
    """Number of its frame."""
    time: int
    """Nanoseconds since the Unix epoch."""
    wire: int
    """Bytes of the whole frame."""
    header: SimpleNamespace | None
    """The fields of an InfiniBand packet's headers; None for iWARP."""
    segment: IwarpSegment | None
    """A TCP segment of iWARP; None for InfiniBand."""
    source: str
    destination: str
    protocol: str
    """The uppermost protocol, as tshark calls it."""
    info: str
    """One line about it."""
    rpc: int | None
    """Number of the RPC that it belongs to."""
    rpcrdma: bool
    """It begins a Send of RPC-over-RDMA."""
    batch: FrameBatch
    """Where its frame is."""
    rpcs: tuple[int, ...] = ()
    """All RPCs that it belongs to, where there are several."""

    @property
    def comment(self) -> str:
        """The comment on its frame; '' for none."""
        return self.batch.comments.get(self.frame, "")


class PacketLister:
    """Feed it batches of frames, take packets: those of a batch when the next was analysed, too.

    Args:
        analyzer: is fed by this class.
        first: frame number of the first packet to list.
        last: of the last.
        at_once: list a batch as soon as it was analysed, though its RPCs may end later.
    """

    def __init__(self, analyzer: Analyzer, first: int = 1, last: int = 1 << 62, at_once: bool = False) -> None:
        self.analyzer = analyzer
        self.first, self.last = first, last
        self.done = False
        """No further batch has a packet to list."""
        self.on_rpcs: Callable[[list[Rpc]], None] | None = None
        """Is given the RPCs that ended, batch by batch."""
        self._at_once = at_once
        self._waiting: FrameBatch | None = None
        self._sends: dict[int, tuple[str, str, int]] = {}
        self._uses: dict[int, tuple[str, int]] = {}
        self._segment_lines: SegmentLines | None = None
        analyzer.watch_fpdus(lambda *fpdus: self._segments().listen(*fpdus))

    def feed(self, batch: FrameBatch) -> Iterator[Packet]:
        """Take a batch."""
        self._note(self.analyzer.feed(batch))
        if self._waiting is not None:
            yield from self._packets_of(self._waiting)
            self.done = int(batch.rows["number"][0]) > self.last
        self._waiting = batch
        if self._at_once:
            yield from self._packets_of(batch)
            self._waiting = None

    def finish(self) -> Iterator[Packet]:
        """The input is over."""
        self._note(self.analyzer.finish())
        if self._waiting is not None:
            yield from self._packets_of(self._waiting)
            self._waiting = None

    def _segments(self) -> SegmentLines:
        # Most captures have no iWARP in them, and then nothing of it need be loaded.
        if self._segment_lines is None:
            from .segment_lines import SegmentLines

            self._segment_lines = SegmentLines(self.analyzer)
        return self._segment_lines

    def _packets_of(self, batch: FrameBatch) -> Iterator[Packet]:
        packets = _batch_packets(batch, self.analyzer, self._sends, self._uses, self.first, self.last)
        if self.analyzer.iwarp is None:
            return packets
        return merge(packets, _segment_packets(batch, self._segments(), self.first, self.last), key=_frame)

    def _note(self, rpcs: list[Rpc]) -> None:
        """Remember by frame which packets the RPCs that ended are in."""
        if self.on_rpcs is not None:
            self.on_rpcs(rpcs)
        carried = []
        for rpc in rpcs:
            if rpc.connection.transport == "iWARP":
                carried.append(rpc)
                continue
            if rpc.call is not None:
                self._sends[rpc.call.frame] = (*call_shown(rpc), rpc.number)
            if rpc.reply is not None:
                self._sends[rpc.reply.frame] = (*reply_shown(rpc), rpc.number)
            for chunk in rpc.chunks:
                for segment in chunk.segments:
                    for operation in segment.operations:
                        self._uses[operation.first_frame] = f"RPC {rpc.number} {chunk.kind} chunk", rpc.number
        if carried:
            self._segments().note(carried)


def _batch_packets(
    batch: FrameBatch,
    analyzer: Analyzer,
    sends: dict[int, tuple[str, str, int]],
    uses: dict[int, tuple[str, int]],
    first: int,
    last: int,
) -> Iterator[Packet]:
    addresses = analyzer.addresses
    rows = decode(batch, locate(batch, addresses)).rows
    rows = rows[(rows["frame"] >= first) & (rows["frame"] <= last)]
    ends = _ends(analyzer)
    alike: dict[tuple[int, ...], InfoParts] = {}
    for at in range(0, len(rows), SLICE):
        for packet in _headers(rows[at : at + SLICE]):
            source, destination = addresses.name(packet.source), addresses.name(packet.destination)
            opcode = packet.opcode
            rpc: int | None = None
            connection: Conversation | None = None
            begins = False
            if _BEGINS_SEND[opcode]:
                connection = ends.get((destination, packet.dest_qp))
                begins = connection is not None and connection.protocol == "rpcrdma"
            if packet.frame in sends:
                protocol, info, rpc = sends.pop(packet.frame)
            elif connection is not None and begins and _IS_ONLY[opcode]:
                payload = packet.payload, packet.payload + packet.captured, packet.length
                protocol, info = alone_shown(batch.data, *payload, packet.frame, connection)
            else:
                use, rpc = uses.pop(packet.frame, _NO_USE)
                protocol = PROTOCOLS[packet.transport]
                if _HAS_MORE[opcode]:
                    connection = ends.get((destination, packet.dest_qp))
                    info = packet_info(batch.data, packet, connection, use)
                else:
                    kind = (
                        opcode,
                        packet.dest_qp,
                        packet.destination,
                        packet.flags,
                        packet.length,
                        packet.syndrome,
                        packet.ecn,
                        packet.headers,
                    )
                    parts = alike.get(kind)
                    if parts is None:
                        connection = ends.get((destination, packet.dest_qp))
                        parts = alike[kind] = info_parts(packet, connection)
                    info = info_of(parts, packet.psn, packet.msn)
                    if use:
                        info += f"; {use}"
            place = packet.frame, packet.time, packet.wire
            yield Packet(*place, packet, None, source, destination, protocol, info, rpc, begins, batch)


_NO_USE = "", None
_IS_ONLY: list[bool] = opcodes.IS_ONLY.tolist()
_BEGINS_SEND: list[bool] = (opcodes.IS_SEND & (opcodes.IS_ONLY | opcodes.IS_FIRST)).tolist()
_HAS_MORE: list[bool] = (
    opcodes.HAS_RETH | opcodes.HAS_ATOMICETH | opcodes.HAS_DETH | opcodes.HAS_IETH | opcodes.HAS_IMMDT
).tolist()
"""The opcodes whose info column says more than what makes packets alike, the PSN and the MSN."""


def _segment_packets(batch: FrameBatch, segments: SegmentLines, first: int, last: int) -> Iterator[Packet]:
    for segment, protocol, info, rpcs in segments.lines(batch, first, last):
        rpc = rpcs[0] if rpcs else None
        names = segment.source, segment.destination
        yield Packet(
            segment.frame, segment.time, segment.wire, None, segment, *names, protocol, info, rpc, False, batch, rpcs
        )


def _frame(line: Packet) -> int:
    return line.frame


def _ends(analyzer: Analyzer) -> dict[tuple[str, int], Conversation]:
    """(address, queue pair) -> the conversation on the latest connection that ends there."""
    return {(end.address, end.qpn): one for one in analyzer.conversations for end in one.connection.endpoints}


def _headers(rows: Rows) -> Iterator[SimpleNamespace]:
    names = PACKET.names or ()
    for values in rows.tolist():
        header = SimpleNamespace()
        header.__dict__.update(zip(names, values, strict=True))
        yield header


def packet_record(line: Packet) -> Record:
    comment = line.comment
    return record(
        "packet",
        frame=line.frame,
        time_ns=line.time,
        source=line.source,
        destination=line.destination,
        length=line.wire,
        protocol=line.protocol,
        info=line.info,
        rpc=line.rpc,
        **(_segment_fields(line.segment, line.rpcs) if line.segment else _header_fields(line.header)),
        **({"comment": comment} if comment else {}),
    )


def _header_fields(packet: SimpleNamespace | None) -> Record:
    assert packet is not None
    return {
        "transport": TRANSPORTS[packet.transport],
        "opcode": packet.opcode,
        "opcode_name": opcodes.opcode_name(packet.opcode),
        "dest_qp": packet.dest_qp,
        "psn": packet.psn,
        "payload_length": packet.length,
        "payload_captured": packet.captured,
        "segment": None,
    }


def _segment_fields(segment: IwarpSegment, rpcs: tuple[int, ...]) -> Record:
    from .segment_lines import segment_fields

    return {
        "transport": "iWARP",
        **dict.fromkeys(("opcode", "opcode_name", "dest_qp", "psn")),
        "payload_length": segment.length,
        "payload_captured": segment.captured,
        "segment": segment_fields(segment, rpcs),
    }
