"""The packets of a capture one by one, which the columns of ``records.packet_columns`` are held against."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import merge
from operator import attrgetter
from typing import Any

import numpy as np

from rdmascope.dissect.arrays import Bytes
from rdmascope.dissect.frames import FrameBatch
from rdmascope.dissect.layers import opcodes
from rdmascope.dissect.layers.transports import TRANSPORTS
from rdmascope.dissect.link.locate import locate
from rdmascope.dissect.link.packets import decode
from rdmascope.dissect.measure.file_names import PathLearner
from rdmascope.dissect.records.packet_columns import (
    MARK,
    Packet,
    PacketRpcs,
    SegmentPackets,
    ends,
    headers,
    outstanding_calls,
    retransmitted,
    segment_record,
)
from rdmascope.dissect.records.packet_info import (
    BEGINS_SEND,
    GENERAL_SERVICES_QP,
    HAS_DETH,
    IS_ONLY,
    PROTOCOLS,
    InfoTemplate,
    alone_shown,
    info_template,
    management_info,
)
from rdmascope.dissect.records.schema import record
from rdmascope.dissect.rpcrdma.analyzer import Analyzer
from rdmascope.dissect.rpcrdma.conversation import Conversation
from rdmascope.dissect.rpcrdma.rpc_table import RpcTable
from rdmascope.dissect.rpcrdma.rpcs import Rpc
from rdmascope.dissect.transport.rc.cm import read_cms
from rdmascope.dissect.units import count


class PacketLister:
    """Feed it batches of frames, take packets: those of a batch when the next was analysed, too.

    Args:
        analyzer: is fed by this class.
        first: frame number of the first packet to list.
        last: of the last.
        at_once: list a batch as soon as it was analysed, though its RPCs may end later.
        learner: of paths.
    """

    def __init__(
        self,
        analyzer: Analyzer,
        first: int = 1,
        last: int = 1 << 62,
        at_once: bool = False,
        learner: PathLearner | None = None,
    ) -> None:
        self.analyzer = analyzer
        self._learner = learner or PathLearner()
        self.first, self.last = first, last
        self.done = False
        """No further batch has a packet to list."""
        self.on_rpcs: Callable[[list[Rpc]], None] | None = None
        """Is given the RPCs that ended, batch by batch."""
        self._at_once = at_once
        self._waiting: FrameBatch | None = None
        self._rpcs = PacketRpcs()
        self._segments = SegmentPackets(analyzer)

    def feed(self, batch: FrameBatch) -> Iterator[Packet]:
        """Take the next batch of frames; gives the packets that can be listed by now."""
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

    def _packets_of(self, batch: FrameBatch) -> Iterator[Packet]:
        numbers = batch.rows["number"]
        calls = outstanding_calls(self.analyzer, self._learner, int(numbers[0]), int(numbers[-1]))
        for rpc, path in self._segments.note(calls):
            self._rpcs.note(rpc, path)
        packets = _batch_packets(batch, self.analyzer, self._rpcs, self.first, self.last)
        if self.analyzer.iwarp is None:
            return packets
        return merge(packets, self._segments.packets(batch, self.first, self.last), key=attrgetter("frame"))

    def _note(self, rpcs: list[Rpc]) -> None:
        """Remember by frame which packets the RPCs that ended are in."""
        if self.on_rpcs is not None:
            self.on_rpcs(rpcs)
        paths = self._learner.learn_paths(RpcTable(rpcs), self.first, self.last).listed()
        for rpc, path in self._segments.note([*zip(rpcs, paths, strict=True)]):
            self._rpcs.note(rpc, path)


def _batch_packets(
    batch: FrameBatch,
    analyzer: Analyzer,
    rpcs: PacketRpcs,
    first: int,
    last: int,
) -> Iterator[Packet]:
    addresses = analyzer.addresses
    rows = decode(batch, locate(batch, addresses)).rows
    rows = rows[(rows["frame"] >= first) & (rows["frame"] <= last)]
    sends, uses = rpcs.sends, rpcs.uses
    conversations = ends(analyzer)
    alike: dict[tuple[int, ...], InfoTemplate] = {}
    marks = np.where(retransmitted(rows, analyzer), MARK, "").tolist()
    for packet, mark in zip(headers(rows), marks, strict=True):
        source, destination = addresses.name(packet.source), addresses.name(packet.destination)
        opcode = packet.opcode
        rpc: int | None = None
        connection: Conversation | None = None
        begins = False
        if BEGINS_SEND[opcode]:
            connection = conversations.get((destination, packet.dest_qp))
            begins = connection is not None and connection.protocol == "rpcrdma"
        if packet.frame in sends:
            protocol, info, rpc = sends.pop(packet.frame)
        elif connection is not None and begins and IS_ONLY[opcode]:
            payload = packet.payload, packet.payload + packet.captured, packet.length
            protocol, info = alone_shown(batch.data, *payload, packet.frame, connection)
        else:
            use, rpc = uses.pop(packet.frame, _NO_USE)
            protocol = PROTOCOLS[packet.transport]
            if HAS_DETH[opcode]:
                info = _datagram_info(batch.data, packet, conversations.get((destination, packet.dest_qp)))
            else:
                kind = (
                    opcode,
                    packet.dest_qp,
                    packet.destination,
                    packet.flags,
                    packet.length > 0,
                    packet.syndrome,
                    packet.ecn,
                    packet.headers,
                )
                template = alike.get(kind)
                if template is None:
                    connection = conversations.get((destination, packet.dest_qp))
                    template = alike[kind] = info_template(packet, connection)
                info = _info_of(template, packet)
            if use:
                info += f"; {use}"
        place = packet.frame, packet.time, packet.wire
        yield Packet(*place, packet, None, source, destination, protocol, mark + info, rpc, begins, batch)


_NO_USE = "", None

_FIELDS: dict[str, Callable[[int], str]] = {
    "psn": str,
    "msn": str,
    "va": "{:x}".format,
    "r_key": "{:08x}".format,
    "immediate": "{:08x}".format,
    "dma_length": count,
    "length": count,
}


def _info_of(template: InfoTemplate, packet: Any) -> str:
    info = template.texts[0]
    for field, text in zip(template.fields, template.texts[1:], strict=True):
        info += _FIELDS[field](getattr(packet, field)) + text
    return info


def _datagram_info(data: Bytes, packet: Any, connection: Conversation | None) -> str:
    captured = packet.captured if packet.dest_qp == GENERAL_SERVICES_QP else 0
    (message,) = read_cms(data, np.array([packet.payload]), np.array([captured]))
    return _info_of(info_template(packet, connection), packet) if message is None else management_info(message)


def packet_record(line: Packet) -> dict[str, Any]:
    if line.header is None:
        return segment_record(line)
    header = line.header
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
        transport=TRANSPORTS[header.transport],
        opcode=header.opcode,
        opcode_name=opcodes.opcode_name(header.opcode),
        dest_qp=header.dest_qp,
        psn=header.psn,
        payload_length=header.length,
        payload_captured=header.captured,
        segment=None,
        **({"comment": line.comment} if line.comment else {}),
    )
