"""``rdmascope show``: one RPC or one frame in full."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.text import Text

from rdmascope.dissect.frames import FrameBatch
from rdmascope.dissect.rpcrdma.conversation import Conversation
from rdmascope.dissect.rpcrdma.messages import Message
from rdmascope.dissect.rpcrdma.reassembly import reassembled_call, reassembled_reply
from rdmascope.dissect.rpcrdma.rpcs import Rpc
from rdmascope.dissect.transport.operations import Operation

if TYPE_CHECKING:
    from rdmascope.dissect.transport.iwarp.segments import IwarpSegment

from rdmascope.captures.ladder import Carried, frames_of, packet_batches, segment_steps, steps, watch_segments
from rdmascope.captures.session import rereadable
from rdmascope.dissect.records.rpc import reassembled_fields, rpc_record
from rdmascope.dissect.records.schema import record

from ..options import Xid
from ..reading import Reading, analyzer_options, file_argument, recognition_options
from ..terminal import console, print_json, show
from ..views import rpc as views
from ..views.rpcs import frames, title
from ..views.tables import heading


@click.command("show")
@file_argument
@click.option("--rpc", "number", type=click.IntRange(1), metavar="N", help="The RPC of this number.")
@click.option("--xid", type=Xid(), help="The first RPC of this XID: 0x1a2b3c4d or decimal.")
@click.option("--frame", type=click.IntRange(1), metavar="F", help="This frame, and the RPC it belongs to.")
@click.option("--full", is_flag=True, help="Every packet, every segment, every byte.")
@click.option(
    "--json", "as_json", is_flag=True, help="An rdmascope.rpc/3 or rdmascope.frame/1 object, with contents if --full."
)
@recognition_options
def command(
    files: tuple[str, ...],
    number: int | None,
    xid: int | None,
    frame: int | None,
    full: bool,
    as_json: bool,
    ports: tuple[int, ...],
    force: str | None,
) -> None:
    """One RPC in full: its packets as a ladder between the two endpoints, both transport headers, the use of
    every chunk, and the whole call and reply as bytes with the frames that carried them.  Or one frame in full.

    Example: where did the 45 ms of this READLINK go?

    \b
      $ rdmascope show rxe-nfs-all.pcap.zst --rpc 13
      RPC 13  NFSv3 READLINK  complete
      ...
      latency 44.8 ms: server 44.8 ms (100%), Writes 60.0 µs (0%)
    \b
      Packets
           frame       time  10.77.0.2                              10.77.0.1
             104          0  ├─ SEND Only 172 B, RDMA_MSG ─────────────────▶│
             105   +2.41 ms  │◀─────────────────────────────────────── ACK ─┤
             106   +44.8 ms  │◀─── RDMA WRITE Only 120 B, R_key 0x0000099b ─┤
             107   +44.8 ms  │◀──── RDMA WRITE Only 37 B, R_key 0x00000879 ─┤
             108   +44.8 ms  │◀───── RDMA WRITE Only 3 B, R_key 0x00000879 ─┤
             109   +44.8 ms  │◀──────────────── SEND Only 80 B, RDMA_NOMSG ─┤
             110   +45.4 ms  ├─ ACK ───────────────────────────────────────▶│

    The server took it: nothing was transferred until it answered.  The reply came through the Reply chunk, 160 bytes:

    \b
      chunk handle     offset             length used returned  frames
      reply 0x0000099b 0x34a82abbc49e2000    120  120      120 106-106
            0x00000879 0x34a82abb1fe95000  4,096   40       40 107-108
            0x000007e4 0x34a82abbc49e2078      4    0        0       -
    \b
      ── 0 to 160: reply chunk
      000000 34a8 2abb 0000 0001 0000 0000 0000 0000 4·*············· frame 106
      ...
      000078 2f61 2f6c 6f6e 672f 7461 7267 6574 2f70 /a/long/target/p frame 107
    """
    if sum(choice is not None for choice in (number, xid, frame)) != 1:
        raise click.UsageError("give one of --rpc, --xid and --frame", click.get_current_context())
    options = analyzer_options(ports, force)
    with rereadable(files) as paths:
        if frame is not None:
            _show_frame(Reading(paths, options), frame, as_json)
            return
        reading = Reading(paths, options)
        wanted: Callable[[Rpc], bool] = (
            (lambda rpc: rpc.number == number) if number is not None else (lambda rpc: rpc.xid == xid)
        )
        found, others = _find(reading.rpcs(), wanted, first=number is not None)
        if found is None:
            reading.lacks(f"RPC {number}" if number is not None else f"RPC with xid {xid:#010x}")
        if as_json:
            record = rpc_record(found)
            if full:
                record["call_message"] = reassembled_fields(reassembled_call(found))
                record["reply_message"] = reassembled_fields(reassembled_reply(found))
            print_json(record)
        else:
            out = console()
            _print_rpc(out, found, reading, Reading(paths, options), full)
            if others:
                show(out, Text())
                show(out, Text(f"The same xid: RPC {', '.join(map(str, others))}", "dim"))
        reading.check()


class Strays:
    """An listener that keeps each message without a part of an RPC, by its first frame."""

    def __init__(self, conversation: Conversation, found: dict[int, tuple[Conversation, Message]]) -> None:
        self.conversation, self.found = conversation, found

    def other_sent(self, sender: int, message: Message) -> None:
        if message.header.procedure is not None:
            self.found[message.operation.first_frame] = self.conversation, message

    def call_sent(self, rpc: Rpc) -> None:
        """It has its own way to be shown."""

    def reply_sent(self, rpc: Rpc) -> None:
        """As a call."""

    def rpc_ended(self, rpc: Rpc) -> None:
        """As a call."""

    def data_transferred(self, operation: Operation) -> None:
        """No message."""


def _find(rpcs: Iterator[Rpc], wanted: Callable[[Rpc], bool], first: bool) -> tuple[Rpc | None, list[int]]:
    """The first that is wanted, and the numbers of the others, unless ``first`` is enough."""
    found: Rpc | None = None
    others: list[int] = []
    for rpc in rpcs:
        if not wanted(rpc):
            continue
        if found is not None:
            others.append(rpc.number)
            continue
        found = rpc
        if first:
            break
    return found, others


def _print_rpc(out: Console, rpc: Rpc, reading: Reading, again: Reading, full: bool) -> None:
    show(out, views.rpc_summary(rpc, reading.first_time))
    show(out, Text())
    show(out, heading("Packets"))
    iwarp = rpc.connection.transport == "iWARP"
    found = segment_steps(rpc, again) if iwarp else steps(rpc, packet_batches(again))
    show(out, views.ladder(found, rpc.connection, out.width, full))
    for message, name in ((rpc.call, "call"), (rpc.reply, "reply")):
        show(out, Text())
        if message is None:
            show(out, heading(f"The {name}'s transport header", "not seen"))
        else:
            show(out, heading(f"The {name}'s transport header"))
            show(out, views.header_tree(message))
    if rpc.chunks:
        show(out, Text())
        show(out, heading("Chunks", "bytes advertised, transferred, and returned in the reply"))
        show(out, views.chunk_map(rpc.chunks, out.width, full))
    for reassembled, name in ((reassembled_call(rpc), "call"), (reassembled_reply(rpc), "reply")):
        show(out, Text())
        if reassembled is None:
            show(out, heading(f"The {name}", "no RPC message"))
            continue
        whole = "whole" if reassembled.complete else "with bytes missing"
        show(out, heading(f"The {name}", f"{reassembled.length:,} bytes, {whole}"))
        show(out, views.contents(reassembled, full))


def _show_frame(reading: Reading, number: int, as_json: bool) -> None:
    from rdmascope.dissect.records.frame_layers import frame_fields
    from rdmascope.dissect.records.packet_info import transport_info

    from ..views.frame import frame_tree

    seen: list[FrameBatch] = []
    analyzer = reading.analyzer
    strays: dict[int, tuple[Conversation, Message]] = {}
    analyzer.listener = lambda conversation: Strays(conversation, strays)
    segments: list[IwarpSegment] = []
    watched_segments = watch_segments(analyzer)

    def look() -> None:
        """What the frame is to iWARP, as far as is known by now."""
        if seen and analyzer.iwarp is not None and not (segments and all(one.fpdu for one in segments[0].parts)):
            segments[:] = watched_segments(seen[0], number, number)

    def watched() -> Iterator[Rpc]:
        for batch in reading.batches():
            if (batch.rows["number"] == number).any():
                seen.append(batch)
            rpcs = analyzer.feed(batch)
            look()
            yield from rpcs
        rpcs = analyzer.finish()
        look()
        yield from rpcs

    owner: Rpc | None = None
    others: list[int] = []
    for rpc in watched():
        again = bool(segments) and bool(segments[0].mark)
        if number not in frames_of(rpc) and not (again and Carried(rpc).by(segments[0])):
            continue
        if owner is None:
            owner = rpc
        else:
            others.append(rpc.number)
        if not segments or len(segments[0].parts) < 2:
            break  # one FPDU is of one RPC
    if not seen:
        reading.lacks(f"frame {number}")
    frame = seen[0].frame(number)
    sends = [m.operation.first_frame for m in (owner.call, owner.reply) if m] if owner else []
    stray = strays.get(number)
    rpcrdma = number in sends or stray is not None
    segment = segments[0] if segments else None
    if as_json:
        print_json(
            record(
                "frame",
                number=number,
                time_ns=frame.time,
                captured=len(frame.data),
                original=frame.original,
                rpc=None if owner is None else owner.number,
                rpcs=[*([owner.number] if owner else []), *others],
                layers=frame_fields(frame.data, frame.link_type, rpcrdma, segment),
            )
        )
    else:
        out = console()
        show(out, frame_tree(frame, reading.first_time, rpcrdma, segment))
        show(out, Text())
        if stray is not None:
            conversation, message = stray
            words = transport_info(message.header, conversation.negotiation.answered_by(message.frame))
            show(out, Text(f"It carries {words}, and no part of an RPC."))
        elif owner is None:
            show(out, Text("It carries no part of an RPC.", "dim"))
        else:
            label = f"{title(owner)}, frames {frames(owner)}"
            hint = f"rdmascope show FILE --rpc {owner.number}"
            also = f", and to RPC {', '.join(map(str, others))}" if others else ""
            show(out, Text(f"It belongs to RPC {owner.number} ({label}){also}: {hint}"))
    reading.check()
