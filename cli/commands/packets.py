"""``rdmascope packets``: one line per packet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import wraps
from itertools import islice, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from rdmascope.captures.write.output import check_outputs, seekable
from rdmascope.dissect.measure.filters import MAX_FRAME, FrameRange, unknown_frames
from rdmascope.dissect.records.packet_columns import ListedPackets, packet_json
from rdmascope.dissect.records.schema import schema
from rdmascope.dissect.rpcrdma.analyzer import Options
from rdmascope.dissect.rpcrdma.message_trees import CalledProcedure
from rdmascope.dissect.rpcrdma.rpc_table import RpcTable
from rdmascope.dissect.units import plural

from ..each_capture import GivenCaptures
from ..options import FRAMES, filter_options, refuse_options
from ..reading import (
    Reading,
    analyzer_options,
    follow_options,
    following,
    no_jobs_option,
    packets_argument,
    recognition_options,
)
from ..terminal import (
    LineStyles,
    complain,
    console,
    encoded_json,
    encoded_line,
    json_value,
    print_lines,
    show,
    terminal,
)
from ..views import packets as views
from ..views.packets import FORMATS, RELATIVE, TimeColumn

if TYPE_CHECKING:
    from rdmascope.captures.extract.frames import ChosenFrames
    from rdmascope.captures.tables.condition import Condition

MAX_CALLED = 1 << 17
"""RPCs whose procedures are remembered for the packets of their replies, the latest; more than end in a batch."""
MAX_HELD = 1 << 17
"""Lines of packets that wait for the ends of their RPCs, where a file is followed."""


def _display_filters(command: Callable[..., Any]) -> Callable[..., Any]:
    """``-Y`` becomes one of the conditions, and frames."""

    @wraps(command)
    def translated(
        *arguments: Any,
        display_filter: str | None,
        conditions: tuple[str, ...],
        ranges: tuple[tuple[FrameRange, ...], ...],
        **others: Any,
    ) -> Any:
        if display_filter is not None:
            from rdmascope.captures.wireshark.display_filter import display_filter as translate

            condition, frames = translate(display_filter)
            refuse_options((frames is not None and ranges, "frame.number and --frame: give one"))
            conditions += (condition,) if condition else ()
            ranges += ((frames,),) if frames is not None else ()
        return command(*arguments, conditions=conditions, ranges=ranges, **others)

    return translated


@click.command("packets")
@packets_argument
@click.option("-V", "trees", is_flag=True, help="Every header of each packet as a tree; in the JSON as layers.")
@click.option("-c", "max_packets", type=click.IntRange(1), metavar="N", help="Stop after N packets.")
@click.option(
    "--frame",
    "ranges",
    type=FRAMES,
    multiple=True,
    metavar="F",
    help="Only frame F, frames F-G, F- to the end, or a list of them; may be repeated.",
)
@click.option(
    "-Y",
    "display_filter",
    metavar="FILTER",
    help="Only packets of RPCs that a display filter of Wireshark's means (see above), or SQL as for --where.",
)
@click.option(
    "-t",
    "time_format",
    type=click.Choice([*FORMATS]),
    default=RELATIVE,
    show_default=True,
    help="Format of the times, as tshark names them: relative, delta, absolute with date, UTC, epoch, ...",
)
@click.option("-n", "no_names", is_flag=True, help="Changes nothing: names of hosts are never looked up.")
@click.option("-w", "output", metavar="OUT", help="Write the frames of these RPCs into a pcapng file, as export does.")
@click.option("--json", "as_json", is_flag=True, help=f"One {schema('packet')} object a line.")
@_display_filters
@filter_options
@follow_options
@recognition_options
@no_jobs_option("packets are listed in order, with the RPCs that they belong to, by one process")
def command(
    files: tuple[str, ...],
    trees: bool,
    max_packets: int | None,
    ranges: tuple[tuple[FrameRange, ...], ...],
    time_format: str,
    no_names: bool,
    output: str | None,
    as_json: bool,
    ports: tuple[int, ...],
    force: str | None,
    follow: bool,
    idle: int | None,
    condition: Condition | None,
) -> None:
    """One line per RDMA packet, as tshark lists them.

    Frames keep their numbers; those without RDMA are left out. A Send of RPC-over-RDMA names its RPC, a call the path
    of its file, and an RDMA Read or Write the RPC whose data it transfers. For iWARP every TCP segment is listed, with
    the FPDUs, or parts of FPDUs, that it carries.

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

    Filters choose RPCs: their packets are listed, with those of their RDMA Reads and Writes, retransmissions and
    acknowledgements. The capture is then read three times, because an RPC is only known at its end. With --follow the
    packets with an RPC's messages and data are listed when it ends, each once, without acknowledgements.

    Options of tshark are understood: rdmascope -r FILE lists packets, -Y 'nfs && ip.addr == 10.77.0.2' chooses RPCs, -w
    writes their frames, -t ad and -t e give times. Of display filters these are known, with == != < <= > >=, &&, ||, !
    and brackets: nfs, rpc, rpcordma, rpc.xid, rpc.program, rpc.programversion, rpc.procedure, rpc.time, rpc.auth.uid,
    nfs.procedure_v3 and _v4, nfs.opcode, ip.addr, ipv6.addr, the columns of the table rpcs, and, with && only,
    frame.number. They mean whole RPCs, with all their packets. Anything else is a condition in SQL.
    """
    wanted = [frame for frames in ranges for frame in frames]
    if output is not None:
        refuse_options((follow or trees or max_packets or wanted, "-w takes no --follow, -V, -c and no frames"))
        _write(files, output, analyzer_options(ports, force), condition)
        return
    limit = max_packets or MAX_FRAME
    refuse_options((condition is not None and follow and trees, "-V with --follow takes no filters"))

    following_file = following(follow, idle)
    times = TimeColumn(time_format)
    page = _JsonPage() if as_json else _Page(times)
    listed = 0
    with seekable(files) if condition is not None and not follow else nullcontext(files) as paths:
        given = GivenCaptures(files, analyzer_options(ports, force), paths)
        if follow and given.behind is not None:
            given.refuse("--follow is for a capture that is still written; those of a data set were read to their ends")
        meant = given.chosen(condition)
        for frame in given.with_frames(wanted, meant):
            chosen = None
            if meant is not None and not follow:
                from rdmascope.captures.extract.frames import chosen_frames

                chosen = chosen_frames(frame.reading, meant)
            reading = frame.reading(streaming=True, follow=following_file)
            left = limit - listed
            if trees:
                listed += _list_trees(reading, wanted, chosen, left, as_json, times)
            elif condition is not None and follow:
                listed += _list_as_rpcs_end(reading, wanted, condition, left, page)
            else:
                listed += _list(reading, wanted, chosen, left, page)
            if listed == max_packets:
                return
            if given.behind is None:
                reading.refuse(unknown_frames(wanted, reading.extent()))
            given.ended(reading)
    given.refuse_frames(wanted)
    if wanted and not listed:
        which = f" of the RPCs that pass: {condition}" if condition is not None else ""
        given.refuse(f"no RDMA packet in {', '.join(map(str, wanted))}{which}")
    given.check()


def _write(files: tuple[str, ...], output: str, options: Options, condition: Condition | None) -> None:
    """Write the frames of the RPCs that pass, or of all."""
    from rdmascope.captures.extract.cut import Choice
    from rdmascope.captures.tables.condition import Condition

    check_outputs([output], files)
    chosen = Condition(["true"]) if condition is None else condition
    try:
        with seekable(files) as paths:
            given = GivenCaptures(files, options, paths)
            given.extract(Path(output), Choice(chosen))
        given.check()
    finally:
        if condition is None:
            chosen.close()


def _list(
    reading: Reading, wanted: Sequence[FrameRange], chosen: ChosenFrames | None, limit: int, page: _Page | _JsonPage
) -> int:
    """How many packets were listed."""
    listed = 0
    for packets in reading.packet_columns(wanted, None if chosen is None else chosen.among):
        page.saw(packets)
        if len(packets):
            lines = page.lines(reading, packets)[: limit - listed]
            print_lines(lines)
            listed += len(lines)
        if listed == limit:
            break
    return listed


def _list_as_rpcs_end(
    reading: Reading, wanted: Sequence[FrameRange], condition: Condition, limit: int, page: _Page | _JsonPage
) -> int:
    """List, of a file that is still being written, the packets of each RPC that passes when it ends. Gives their
    number."""
    from rdmascope.captures.session.find import frames_of

    held: dict[int, bytes] = {}
    passed: set[int] = set()
    listed = forgotten = too_old = 0

    def note(table: RpcTable) -> None:
        passed.update(*map(frames_of, condition.selected(table, reading)))

    def print_passed() -> int:
        nonlocal too_old
        frames = sorted(passed)
        passed.clear()
        too_old += sum(frame <= forgotten for frame in frames)
        lines = [held.pop(frame) for frame in frames if frame in held][: limit - listed]
        print_lines(lines)
        return len(lines)

    for packets in reading.packet_columns(wanted, on_rpcs=note):
        page.saw(packets)
        if len(packets):
            held.update(zip(np.sort(packets.frames).tolist(), page.lines(reading, packets), strict=True))
        listed += print_passed()
        if listed == limit:
            return listed
        for forgotten in list(islice(held, max(0, len(held) - MAX_HELD))):
            del held[forgotten]
    listed += print_passed()
    if too_old:
        complain(f"{plural(too_old, 'packet')} left out, of RPCs that ended more than {MAX_HELD:,} packets later")
    reading.refuse(condition.problem(reading))
    return listed


class _JsonPage:
    def saw(self, packets: ListedPackets) -> None:
        """Times have one format."""

    def lines(self, reading: Reading, packets: ListedPackets) -> list[bytes]:
        return packet_json(packets, reading.place if reading.several else None, encoded_json)


class _Page:
    def __init__(self, times: TimeColumn) -> None:
        self._times = times
        out = terminal()
        self._styles = LineStyles(out) if out is not None else None
        self._begun = False

    def saw(self, packets: ListedPackets) -> None:
        """Note a batch, which may have nothing to list."""
        self._times.saw(packets.batch)

    def lines(self, reading: Reading, packets: ListedPackets) -> list[bytes]:
        """One for each packet, with its comment behind."""
        self.begin(reading)
        places = _places(reading) if reading.several else None
        times = None
        if self._times.format != RELATIVE:
            times = self._times.texts(packets.batch, np.sort(packets.frames).tolist(), reading.first_time)
        lines = views.packet_lines(packets, reading.first_time, places, encoded_line, times)
        if self._styles is not None:
            lines = list(map(self._styles.styled, lines, views.packet_styles(packets)))
        comments = packets.batch.comments
        if comments:
            for index, frame in enumerate(np.sort(packets.frames).tolist()):
                if frame in comments:
                    lines[index] += b"\n" + encoded_line(views.comment_line(comments[frame]))
        return lines

    def begin(self, reading: Reading) -> None:
        """Say before the first packet what the columns are."""
        if not self._begun:
            self._begun = True
            place_width = reading.place_width(_PLACE_DIGITS) if reading.several else 0
            line = views.header_line(place_width, self._times.width).encode()
            print_lines([line if self._styles is None else self._styles.styled(line, "dim")])


_PLACE_DIGITS = 7


def _places(reading: Reading) -> Callable[[int], str]:
    """The column that says in which of several files frames are."""
    width = reading.place_width(_PLACE_DIGITS)
    return lambda frame: f"{reading.place_words(frame):<{width}} "


def _list_trees(
    reading: Reading,
    wanted: Sequence[FrameRange],
    chosen: ChosenFrames | None,
    limit: int,
    as_json: bool,
    times: TimeColumn,
) -> int:
    """List packets, each with its headers. Gives their number."""
    from rich.text import Text

    from rdmascope.dissect.records.frame_layers import frame_fields

    from ..views.rpc import layer_trees

    out = console()
    styles = LineStyles(out) if out.is_terminal else None
    first = min((frame_range.first for frame_range in wanted), default=1)
    listed = 0
    called: dict[int, tuple[CalledProcedure, str | None]] = {}
    learner = reading.path_learner()

    def note(table: RpcTable) -> None:
        for rpc, path in zip(table, learner.learn_paths(table, 1, MAX_FRAME).listed(), strict=True):
            if rpc.reply_frame >= first:
                called[rpc.number] = CalledProcedure.of(rpc), path
        for number in list(islice(called, max(0, len(called) - MAX_CALLED))):
            del called[number]

    for packets in reading.packet_columns(wanted, None if chosen is None else chosen.among, note):
        lines = _JsonPage().lines(reading, packets) if as_json else []
        for packet, line in zip_longest(packets.objects(), lines):
            listed += 1
            frame = packet.batch.frame(packet.frame)
            if as_json:
                layers = frame_fields(frame.data, frame.link_type, packet.rpcrdma, packet.segment)
                inside = json_value(reading.placed({"layers": layers}))[1:]
                print_lines([line[:-1] + f",{inside}".encode()])
            else:
                place = _places(reading)(packet.frame) if reading.several else ""
                time = times.texts(packet.batch, [packet.frame], reading.first_time)[packet.frame]
                line = encoded_line(views.packet_line(packet, reading.first_time, place, time))
                style = views.PROTOCOL_STYLES.get(packet.protocol, "")
                print_lines([line if styles is None else styles.styled(line, style)])
                if packet.comment:
                    print_lines([encoded_line(views.comment_line(packet.comment))])
                of_call, path = called.get(packet.rpc or 0, (None, None))
                show(out, *layer_trees(frame, packet.rpcrdma, packet.segment, of_call, path), Text())
            if listed == limit:
                return listed
    return listed
