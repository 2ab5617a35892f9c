"""``rdmascope packets``: one line per packet."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from functools import cache
from heapq import merge
from types import SimpleNamespace
from typing import TYPE_CHECKING, NamedTuple

import click
import numpy as np
from rich.text import Text

from rdmascope.dissect.arrays import Rows
from rdmascope.dissect.frames import FrameBatch
from rdmascope.dissect.layers import opcodes
from rdmascope.dissect.layers.transports import TRANSPORTS
from rdmascope.dissect.link.locate import locate
from rdmascope.dissect.link.packets import PACKET, decode
from rdmascope.dissect.records import nouns as records
from rdmascope.dissect.records.packet_info import PROTOCOLS, alone_shown, call_shown, packet_info, reply_shown
from rdmascope.dissect.rpcrdma.analyzer import Analyzer
from rdmascope.dissect.rpcrdma.conversation import Conversation
from rdmascope.dissect.rpcrdma.rpcs import Rpc

from ..reading import Reading, analyzer_options, file_argument, follow_options, following, recognition_options
from ..terminal import console, print_json, show
from ..views import packets as views

if TYPE_CHECKING:
    from rdmascope.dissect.records.segment_lines import SegmentLines
    from rdmascope.dissect.transport.iwarp.segments import IwarpSegment

SLICE = 4096
"""Packets made into lines at a time."""


class FrameRange(click.ParamType[tuple[int, int]]):
    """'46' or '40-60'."""

    name = "frames"

    def convert(
        self, value: str | tuple[int, int], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        if isinstance(value, tuple):
            return value
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", value)
        if match is None or int(match[2] or match[1]) < int(match[1]):
            self.fail(f"{value!r} is neither a frame number nor a range such as 40-60", param, ctx)
        return int(match[1]), int(match[2] or match[1])


class Line(NamedTuple):
    """A packet and what is told of it."""

    frame: int
    time: int
    wire: int
    """Bytes of the whole frame."""
    packet: SimpleNamespace | None
    """An InfiniBand packet."""
    segment: IwarpSegment | None
    """A TCP segment of iWARP."""
    source: str
    destination: str
    protocol: str
    info: str
    rpc: int | None
    rpcrdma: bool
    """It begins a Send of RPC-over-RDMA."""
    batch: FrameBatch
    rpcs: tuple[int, ...] = ()
    """All of them, where there are several."""


@click.command("packets")
@file_argument
@click.option("-V", "trees", is_flag=True, help="Every header of each packet as a tree.")
@click.option("-c", "most", type=click.IntRange(1), metavar="N", help="Stop after N packets.")
@click.option("--frame", "span", type=FrameRange(), metavar="F", help="Only frame F, or frames F-G.")
@click.option("--json", "as_json", is_flag=True, help="One rdmascope.packet/1 object a line.")
@follow_options
@recognition_options
def command(
    files: tuple[str, ...],
    trees: bool,
    most: int | None,
    span: tuple[int, int] | None,
    as_json: bool,
    ports: tuple[int, ...],
    force: str | None,
    follow: bool,
    idle: float | None,
) -> None:
    """One line per RDMA packet, as tshark lists them.

    Frames keep their numbers; those that are not RDMA are left out.  Sends of RPC-over-RDMA name their RPC, RDMA
    Reads and Writes the RPC whose data they transfer.  Of iWARP every TCP segment is listed, acknowledgements too,
    with the FPDUs, or parts of FPDUs, in it.

    Example: what happened around the READLINK in frame 104?

    \b
      $ rdmascope packets rxe-nfs-all.pcap.zst --frame 104-110
      No.     Time      Source   Destination Protocol Length Info
      104 8.750054   10.77.0.2 → 10.77.0.1   NFS         230 V3 READLINK Call, FH: ...
      105 8.752466   10.77.0.1 → 10.77.0.2   RRoCE        62 RC Acknowledge QP=0x000011 ...
      106 8.794825   10.77.0.1 → 10.77.0.2   RRoCE       194 RC RDMA WRITE Only ... RPC 13 reply chunk
      ...
      109 8.794886   10.77.0.1 → 10.77.0.2   NFS         138 V3 READLINK Reply (Call In 104); RPC 13 ...

    And every header of one of them, the ICRC checked:

    \b
      $ rdmascope packets rxe-nfs-all.pcap.zst --frame 109 -V
      ...
      BTH
      ├── opcode RC SEND Only
      ├── dest_qp 0x11
      ├── psn 5400891
      └── icrc 0xb381ef8b (good)
    """
    options = analyzer_options(ports, force, contents=False)
    reading = Reading(files, options, streaming=True, follow=following(follow, idle))
    first, last = span or (1, 1 << 62)
    out = console()
    for listed, line in enumerate(_lines(reading, first, last), 1):
        if as_json:
            print_json(_record(line))
        else:
            if listed == 1 and not trees:
                show(out, Text(views.header_line(), "dim"))
            when = line.time - reading.first_time
            shown = line.protocol, line.info
            text = views.packet_line(line.frame, when, line.wire, line.source, line.destination, shown)
            if out.is_terminal:
                style = views.PROTOCOL_STYLES.get(line.protocol, "")
                out.print(Text(text, style), no_wrap=True, overflow="ellipsis")
            else:
                sys.stdout.write(text + "\n")
            if comment := line.batch.comments.get(line.frame):
                sys.stdout.write(views.comment_line(comment) + "\n")
            if trees:
                from ..views.frame import layer_trees

                at = int(np.searchsorted(line.batch.rows["number"], line.frame))
                row = line.batch.rows[at]
                start = int(row["offset"])
                data = line.batch.data[start : start + int(row["captured"])].tobytes()
                show(out, *layer_trees(data, int(row["link_type"]), line.rpcrdma, line.segment), Text())
        if listed == most:
            return
    reading.check()


def _lines(reading: Reading, first: int, last: int) -> Iterator[Line]:
    """The packets of frames ``first`` to ``last``; a batch is analysed before its packets are told."""
    analyzer = reading.analyzer
    sends: dict[int, tuple[str, str, int]] = {}
    uses: dict[int, tuple[str, int]] = {}

    @cache
    def segments() -> SegmentLines:
        # Most captures have no iWARP in them, and then nothing of it need be loaded.
        from rdmascope.dissect.records.segment_lines import SegmentLines

        return SegmentLines(analyzer)

    analyzer.watch_fpdus(lambda *fpdus: segments().listen(*fpdus))

    def told(batch: FrameBatch) -> Iterator[Line]:
        packets = _batch_lines(batch, analyzer, sends, uses, first, last)
        if analyzer.iwarp is None:
            return packets
        return merge(packets, _segment_lines(batch, segments(), first, last), key=_frame)

    def note(rpcs: list[Rpc]) -> None:
        _note([rpc for rpc in rpcs if rpc.connection.transport != "iWARP"], sends, uses)
        if carried := [rpc for rpc in rpcs if rpc.connection.transport == "iWARP"]:
            segments().note(carried)

    waiting: FrameBatch | None = None
    for batch in reading.batches():
        note(analyzer.feed(batch))
        if waiting is not None:
            yield from told(waiting)
            if int(batch.rows["number"][0]) > last:
                return
        waiting = batch
        if reading.follow is not None:
            yield from told(batch)
            waiting = None
    note(analyzer.finish())
    if waiting is not None:
        yield from told(waiting)


def _note(rpcs: list[Rpc], sends: dict[int, tuple[str, str, int]], uses: dict[int, tuple[str, int]]) -> None:
    """Remember by frame what the RPCs that ended tell about their packets."""
    for rpc in rpcs:
        if rpc.call is not None:
            sends[rpc.call.frame] = (*call_shown(rpc), rpc.number)
        if rpc.reply is not None:
            sends[rpc.reply.frame] = (*reply_shown(rpc), rpc.number)
        for chunk in rpc.chunks:
            for segment in chunk.segments:
                for operation in segment.operations:
                    uses[operation.first_frame] = f"RPC {rpc.number} {chunk.kind} chunk", rpc.number


def _batch_lines(
    batch: FrameBatch,
    analyzer: Analyzer,
    sends: dict[int, tuple[str, str, int]],
    uses: dict[int, tuple[str, int]],
    first: int,
    last: int,
) -> Iterator[Line]:
    addresses = analyzer.addresses
    rows = decode(batch, locate(batch, addresses)).rows
    rows = rows[(rows["frame"] >= first) & (rows["frame"] <= last)]
    ends = _ends(analyzer)
    for at in range(0, len(rows), SLICE):
        for packet in _packets(rows[at : at + SLICE]):
            source, destination = addresses.name(packet.source), addresses.name(packet.destination)
            conversation = ends.get((destination, packet.dest_qp))
            opcode = packet.opcode
            rpc: int | None = None
            carrier = conversation is not None and conversation.protocol == "rpcrdma"
            alone = bool(opcodes.IS_ONLY[opcode])
            begins = carrier and bool(opcodes.IS_SEND[opcode]) and (alone or bool(opcodes.IS_FIRST[opcode]))
            if packet.frame in sends:
                protocol, info, rpc = sends.pop(packet.frame)
            elif conversation is not None and begins and alone:
                payload = packet.payload, packet.payload + packet.captured, packet.length
                protocol, info = alone_shown(batch.data, *payload, packet.frame, conversation)
            else:
                use, rpc = uses.pop(packet.frame, ("", None))
                protocol, info = (
                    PROTOCOLS[packet.transport],
                    packet_info(batch.data, packet, conversation, use),
                )
            place = packet.frame, packet.time, packet.wire
            yield Line(*place, packet, None, source, destination, protocol, info, rpc, begins, batch)


def _segment_lines(batch: FrameBatch, segments: SegmentLines, first: int, last: int) -> Iterator[Line]:
    for segment, protocol, info, rpcs in segments.lines(batch, first, last):
        rpc = rpcs[0] if rpcs else None
        names = segment.source, segment.destination
        yield Line(
            segment.frame, segment.time, segment.wire, None, segment, *names, protocol, info, rpc, False, batch, rpcs
        )


def _frame(line: Line) -> int:
    return line.frame


def _ends(analyzer: Analyzer) -> dict[tuple[str, int], Conversation]:
    """(address, queue pair) -> the conversation on the latest connection that ends there."""
    return {(end.address, end.qpn): one for one in analyzer.conversations for end in one.connection.endpoints}


def _packets(rows: Rows) -> Iterator[SimpleNamespace]:
    names = PACKET.names or ()
    for values in rows.tolist():
        yield SimpleNamespace(**dict(zip(names, values, strict=True)))


def _record(line: Line) -> records.Record:
    comment = line.batch.comments.get(line.frame)
    return records.record(
        "packet",
        frame=line.frame,
        time_ns=line.time,
        source=line.source,
        destination=line.destination,
        length=line.wire,
        protocol=line.protocol,
        info=line.info,
        rpc=line.rpc,
        **(_segment_fields(line.segment, line.rpcs) if line.segment else _packet_fields(line.packet)),
        **({"comment": comment} if comment else {}),
    )


def _packet_fields(packet: SimpleNamespace | None) -> records.Record:
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


def _segment_fields(segment: IwarpSegment, rpcs: tuple[int, ...]) -> records.Record:
    from rdmascope.dissect.records.segment_lines import segment_fields

    return {
        "transport": "iWARP",
        **dict.fromkeys(("opcode", "opcode_name", "dest_qp", "psn")),
        "payload_length": segment.length,
        "payload_captured": segment.captured,
        "segment": segment_fields(segment, rpcs),
    }
