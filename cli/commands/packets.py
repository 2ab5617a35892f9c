"""``rdmascope packets``: one line per packet."""

from __future__ import annotations

import sys

import click
from rich.text import Text

from rdmascope.dissect.measure.selection import MAX_FRAME, FrameRange, includes, unknown_frames
from rdmascope.dissect.records.packets import packet_record
from rdmascope.dissect.records.schema import schema

from ..options import FRAMES
from ..plain import harmless_line
from ..reading import Reading, analyzer_options, file_argument, follow_options, following, recognition_options
from ..terminal import console, print_json, show
from ..views import packets as views


@click.command("packets")
@file_argument
@click.option("-V", "trees", is_flag=True, help="Every header of each packet as a tree.")
@click.option("-c", "max_packets", type=click.IntRange(1), metavar="N", help="Stop after N packets.")
@click.option(
    "--frame",
    "ranges",
    type=FRAMES,
    multiple=True,
    metavar="F",
    help="Only frame F, frames F-G, F- to the end, or a list of them; may be repeated.",
)
@click.option("--json", "as_json", is_flag=True, help=f"One {schema('packet')} object a line.")
@follow_options
@recognition_options
def command(
    files: tuple[str, ...],
    trees: bool,
    max_packets: int | None,
    ranges: tuple[tuple[FrameRange, ...], ...],
    as_json: bool,
    ports: tuple[int, ...],
    force: str | None,
    follow: bool,
    idle: float | None,
) -> None:
    """One line per RDMA packet, as tshark lists them.

    FrameRange keep their numbers; those that are not RDMA are left out.  Sends of RPC-over-RDMA name their RPC, RDMA
    Reads and Writes the RPC whose data they transfer.  Of iWARP every TCP segment is listed, acknowledgements too,
    with the FPDUs, or parts of FPDUs, in it.

    Example: what happened around the READLINK in frame 104?

    \b
      $ rdmascope packets rxe-nfs-all.pcap.zst --frame 104-110
      No.     Time    Source   Destination Protocol Length Info
      104 8.750054 10.77.0.2 → 10.77.0.1   NFS         230 V3 READLINK Call ...
      105 8.752466 10.77.0.1 → 10.77.0.2   RRoCE        62 RC Acknowledge ...
      106 8.794825 10.77.0.1 → 10.77.0.2   RRoCE       194 RC RDMA WRITE Only ...
      ...
      109 8.794886 10.77.0.1 → 10.77.0.2   NFS         138 V3 READLINK Reply ...

    And every header of one of them, the ICRC checked:

    \b
      $ rdmascope packets rxe-nfs-all.pcap.zst --frame 109 -V
      ...
      BTH
      ├── opcode RC SEND Only
      ...
      ├── dest_qp 0x11
      ...
      ├── psn 5400891
      ...
      └── icrc 0xb381ef8b (good)
    """
    options = analyzer_options(ports, force)
    reading = Reading(files, options, streaming=True, follow=following(follow, idle))
    wanted = [one for frames in ranges for one in frames]
    first, last = min((one.first for one in wanted), default=1), max((one.last for one in wanted), default=MAX_FRAME)
    chosen = reading.packets(first, last)
    if wanted:
        chosen = (one for one in chosen if includes(wanted, one.frame))
    out = console()
    in_terminal = out.is_terminal
    write = sys.stdout.write
    listed = 0
    for listed, packet in enumerate(chosen, 1):
        if as_json:
            print_json(reading.placed(packet_record(packet)))
        else:
            if listed == 1 and not trees:
                show(out, Text(views.header_line(reading.place_width(7) if reading.several else 0), "dim"))
            when = packet.time - reading.first_time
            shown = packet.protocol, packet.info
            text = views.packet_line(packet.frame, when, packet.wire, packet.source, packet.destination, shown)
            if reading.several:
                text = f"{reading.place_words(packet.frame):<{reading.place_width(7)}} {text}"
            if in_terminal:
                style = views.PROTOCOL_STYLES.get(packet.protocol, "")
                out.print(Text(text, style), no_wrap=True, overflow="ellipsis")
            else:
                write(harmless_line(text) + "\n")
            if packet.batch.comments and packet.comment:
                write(harmless_line(views.comment_line(packet.comment)) + "\n")
            if trees:
                from ..views.frame import layer_trees

                show(out, *layer_trees(packet.batch.frame(packet.frame), packet.rpcrdma, packet.segment), Text())
        if listed == max_packets:
            return
    reading.refuse(unknown_frames(wanted, reading.extent()))
    if wanted and not listed:
        reading.refuse(f"no RDMA packet in {', '.join(map(str, wanted))}")
    reading.check()
