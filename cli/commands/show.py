"""``rdmascope show``: one RPC or one frame in full."""

from __future__ import annotations

import os

import click
from rich.console import Console
from rich.text import Text

from rdmascope.captures.session.find import find_frame, find_rpcs, no_frame, steps_of
from rdmascope.captures.write.output import seekable
from rdmascope.dissect.measure.filters import FrameRange, unknown_rpcs, unknown_xids
from rdmascope.dissect.records.frame_layers import frame_fields
from rdmascope.dissect.records.packet_info import transport_info
from rdmascope.dissect.records.rpc import contents_fields, full_fields, reassembled_fields
from rdmascope.dissect.records.rpc_lines import rpc_record
from rdmascope.dissect.records.schema import record
from rdmascope.dissect.rpcrdma.message_trees import CalledProcedure
from rdmascope.dissect.rpcrdma.reassembly import reassembled_call, reassembled_reply
from rdmascope.dissect.rpcrdma.rpcs import Rpc

from ..each_capture import EachCapture, GivenCaptures
from ..options import FRAMES, XID, pager_option
from ..reading import Reading, analyzer_options, packets_argument, recognition_options
from ..terminal import console, paged, print_json, show
from ..views import rpc as views
from ..views.rpc import field_bytes, frame_tree, frames, title
from ..views.tables import heading

MAX_FRAMES = 100
"""Frames that are shown in one run: each is a pass over the capture."""


@click.command("show")
@packets_argument
@click.option("--rpc", "numbers", type=click.IntRange(1), multiple=True, metavar="N", help="The RPC with this number.")
@click.option("--xid", "xids", type=XID, multiple=True, help="The first RPC with this XID: 0x1a2b3c4d or decimal.")
@click.option(
    "--frame",
    "ranges",
    type=FRAMES,
    multiple=True,
    metavar="F",
    help="Frame F, frames F-G or a list of them, and the RPCs they belong to.",
)
@click.option("--full", is_flag=True, help="Every packet, every segment, every field, every byte.")
@click.option("--bytes", "field", metavar="FIELD", help="Only the bytes of this field: --bytes cookie.")
@pager_option
@click.option(
    "--json", "as_json", is_flag=True, help="Objects of type rpc, with contents if --full is given, or of type frame."
)
@recognition_options
def command(
    files: tuple[str, ...],
    numbers: tuple[int, ...],
    xids: tuple[int, ...],
    ranges: tuple[tuple[FrameRange, ...], ...],
    full: bool,
    field: str | None,
    pager: bool,
    as_json: bool,
    ports: tuple[int, ...],
    force: str | None,
) -> None:
    """One RPC in full: its packets as a ladder between the two endpoints, both transport headers, the use of every
    chunk, and every field of the call and the reply under its RFC's name. Or one frame in full. --rpc, --xid and
    --frame may be repeated; a number after the files means an RPC: "show nfs.pcap 27".

    Example: where did the 45 ms of this READLINK go?

    \b
      $ rdmascope show rxe-nfs-all.pcap.zst --rpc 16
      RPC 16  NFSv3 READLINK  complete
      ...
      latency 44.8 ms: server 44.8 ms (99.8%), Writes 60.0 µs (0%)
    \b
      Packets
           frame       time  10.77.0.2                              10.77.0.1
             104          0  ├─ SEND Only 172 B, RDMA_MSG ─────────────────▶│
             105   +2.41 ms  │◀─────────────────────────────────────── ACK ─┤
             106   +44.8 ms  │◀─── RDMA WRITE Only 120 B, R_key 0x0000099b ─┤
             107   +44.8 ms  │◀──── RDMA WRITE Only 37 B, R_key 0x00000879 ─┤
             108   +44.8 ms  │◀───── RDMA WRITE Only 3 B, R_key 0x00000879 ─┤
             109   +44.8 ms  │◀──────────────── SEND Only 80 B, RDMA_NOMSG ─┤
             113   +45.8 ms  ├─ ACK ───────────────────────────────────────▶│

    The server took it: nothing was transferred until it answered.  The reply came through the Reply chunk, 160 bytes:

    \b
      chunk handle     offset             length used returned  frames
      reply 0x0000099b 0x34a82abbc49e2000    120  120      120 106-106
            0x00000879 0x34a82abb1fe95000  4,096   40       40 107-108
            0x000007e4 0x34a82abbc49e2078      4    0        0       -
    \b
      The reply  160 bytes, whole, in reply chunk
      ...
      results (READLINK3res)
      ├── status: NFS3_OK (0)
      ...
      └── data: /a/long/target/path/for/readlink/test

    --bytes prints the bytes of a field, wherever it is in the call or the reply, with their frames:

    \b
      $ rdmascope show rxe-nfs-all.pcap.zst --rpc 16 --bytes data
      The reply of RPC 16
      data: bytes 116 to 160  /a/long/target/path/for/readlink/test
        000074 0000 0025                               ···%             frame 106
        000078 2f61 2f6c 6f6e 672f 7461 7267 6574 2f70 /a/long/target/p frame 107
      ...
    """
    if len(files) > 1 and not (numbers or xids or ranges) and files[-1].isdecimal() and not os.path.exists(files[-1]):
        files, numbers = files[:-1], (int(files[-1]),)
    if sum(map(bool, (numbers, xids, ranges))) != 1:
        raise click.UsageError(
            "give the number of an RPC, or one of --rpc, --xid and --frame", click.get_current_context()
        )
    wanted = [number for frames in ranges for frame in frames for number in _each(frame)]
    out = console()
    with seekable(files) as paths, paged(out, pager and not as_json):
        given = GivenCaptures(files, analyzer_options(ports, force), paths)
        for at, number in enumerate(wanted):
            this = FrameRange(number, number)
            given.refuse_frames([this])
            for frame in given.with_frames([this]):
                given.ended(_show_frame(out, frame, number, as_json, at))
        if not wanted:
            _show_rpcs(out, given, numbers, xids, full, field, as_json)
        given.check()


def _each(frames: FrameRange) -> range:
    if frames.last - frames.first >= MAX_FRAMES:
        raise click.UsageError(
            f"at most {MAX_FRAMES} frames; 'rdmascope packets -V' has more", click.get_current_context()
        )
    return range(frames.first, frames.last + 1)


def _show_rpcs(
    out: Console,
    given: GivenCaptures,
    numbers: tuple[int, ...],
    xids: tuple[int, ...],
    full: bool,
    field: str | None,
    as_json: bool,
) -> None:
    others: dict[int, list[int]] = {}
    problem = ""
    if given.behind is not None:
        with_xids = given.behind.with_xids(xids)
        problem = unknown_rpcs(numbers, range(1, given.behind.rpcs + 1), given.behind.rpcs)
        problem = problem or unknown_xids(xids, with_xids)
        others = {xid: same[1:] for xid, same in with_xids.items()}
        numbers, xids = (*numbers, *(same[0] for same in with_xids.values())), ()
    shown = 0
    for capture in given.some(lambda capture: any(map(capture.has_rpc, numbers))):
        reading = capture.reading()
        looked_up = find_rpcs(reading, [*filter(capture.has_rpc, numbers)], xids)
        if not looked_up.rpcs:
            reading.refuse(looked_up.problem)
        lacking: list[int] = []
        for rpc in looked_up.rpcs:
            if as_json:
                record = {**rpc_record(rpc, looked_up.paths.get(rpc.number)), **contents_fields(rpc)}
                if full:
                    record |= full_fields(rpc)
                    record["call_message"] = reassembled_fields(reassembled_call(rpc))
                    record["reply_message"] = reassembled_fields(reassembled_reply(rpc))
                print_json(capture.placed(reading, record))
                continue
            if shown:
                show(out, Text())
            shown += 1
            if field is not None:
                lacking += [] if _print_bytes(out, rpc, field) else [rpc.number]
                continue
            _print_rpc(out, rpc, reading, capture, full, looked_up.paths.get(rpc.number))
            if same := (others or looked_up.others).get(rpc.xid):
                show(out, Text(), Text(f"The same xid: RPC {', '.join(map(str, same))}", "dim"))
        if lacking:
            reading.refuse(f"no field {field} in RPC {', '.join(map(str, lacking))}")
        reading.refuse(looked_up.problem)
        given.ended(reading)
    given.refuse(problem)


def _print_rpc(out: Console, rpc: Rpc, reading: Reading, capture: EachCapture, full: bool, path: str | None) -> None:
    place = capture.with_host(reading.place_words(rpc.call_frame, rpc.reply_frame))
    show(out, *views.summary_section(rpc, reading.first_time, place, path).body)
    sections = [] if rpc.host is None else [views.hosts_section(rpc)]
    if not reading.traced:
        sections.append(views.packets_section(rpc, steps_of(rpc, capture.reading()), out.width, full))
    for section in (*sections, *views.message_sections(rpc, out.width, full)):
        show(out, Text(), section.heading, *section.body)


def _print_bytes(out: Console, rpc: Rpc, field: str) -> bool:
    """The bytes of the fields of one name, in the call and in the reply; whether there are any."""
    shown = False
    for message, name in zip(views.decoded_messages(rpc, True), ("call", "reply"), strict=True):
        parts = field_bytes(message, field) if message is not None else []
        if parts:
            show(out, heading(f"The {name} of RPC {rpc.number}"), *parts)
            shown = True
    return shown


def _show_frame(out: Console, capture: EachCapture, number: int, as_json: bool, at: int) -> Reading:
    reading = capture.reading()
    framed = find_frame(reading, number)
    if framed is None:
        reading.refuse(no_frame(reading, number))
        raise AssertionError
    frame, rpcs, segment = framed.frame, framed.rpcs, framed.segment
    if as_json:
        fields = record(
            "frame",
            number=number,
            time_ns=frame.time,
            captured=len(frame.data),
            original=frame.original,
            rpc=rpcs[0].number if rpcs else None,
            rpcs=[rpc.number for rpc in rpcs],
            layers=frame_fields(frame.data, frame.link_type, framed.begins_message, segment),
        )
        print_json(capture.placed(reading, fields))
    else:
        if place := reading.place_words(number):
            show(out, Text(f"frame {number} is {capture.with_host(place)}"))
        called = CalledProcedure.of(rpcs[0]) if len(rpcs) == 1 else None
        path = framed.paths.get(rpcs[0].number) if rpcs else None
        page = frame_tree(frame, reading.first_time, framed.begins_message, segment, called, path)
        show(out, *([Text()] if at else []), page, Text())
        if framed.stray is not None:
            conversation, message = framed.stray
            words = transport_info(message.header, conversation.negotiation.answered_by(message.frame))
            show(out, Text(f"It carries {words}, and no part of an RPC."))
        elif not rpcs:
            show(out, Text("It carries no part of an RPC.", "dim"))
        else:
            first, others = rpcs[0], [rpc.number for rpc in rpcs[1:]]
            label = f"{title(first)}, frames {frames(first)}"
            hint = f"rdmascope show FILE --rpc {first.number}"
            also = f", and to RPC {', '.join(map(str, others))}" if others else ""
            show(out, Text(f"It belongs to RPC {first.number} ({label}){also}: {hint}"))
    return reading
