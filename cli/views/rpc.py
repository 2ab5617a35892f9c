"""RPCs: one in a line; one in full, section by section: ladder, transport headers, chunk map, contents; and one frame
as Scapy dissects it.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.style import Style
from rich.text import Text
from rich.tree import Tree

from rdmascope.captures.session.find import ACKNOWLEDGEMENT, OTHER, OWN, TCP_ACK, Step
from rdmascope.dissect.frames import Frame
from rdmascope.dissect.layers.oncrpc_codes import GSS_PRIVACY, GSS_PROCEDURE_NAMES, RPCSEC_GSS_DATA
from rdmascope.dissect.layers.rpcrdma_codes import RDMA_NOMSG, error_name, procedure_name
from rdmascope.dissect.measure.statistics import PARTS
from rdmascope.dissect.named_tuple import NamedTuple
from rdmascope.dissect.onc.naming import handle_hash
from rdmascope.dissect.onc.rpc_header import (
    procedure_label,
    procedure_name as rpc_procedure_name,
    program_label,
    program_name,
)
from rdmascope.dissect.onc.shapes.decode_cache import FlatFields
from rdmascope.dissect.onc.shapes.messages import call_tree, reply_tree
from rdmascope.dissect.onc.shapes.text import is_line, value_text
from rdmascope.dissect.onc.shapes.types import (
    DATA,
    MAX_NODES as ALL_NODES,
    Node,
    SparseBytes,
    XdrArray,
    XdrList,
    XdrOpaque,
)
from rdmascope.dissect.onc.summary import TO_END_OF_FILE
from rdmascope.dissect.records.frame_layers import Words, all_layers, fields_of, layers_of
from rdmascope.dissect.records.rpc import HOST_PHASES
from rdmascope.dissect.rpcrdma.message_trees import CalledProcedure, DecodedMessage, decoded_call, decoded_reply
from rdmascope.dissect.rpcrdma.messages import Message, Segment, TransportHeader
from rdmascope.dissect.rpcrdma.rpc_fields import rpc_fields
from rdmascope.dissect.rpcrdma.rpcs import ChunkUse, Extent, HostTimes, Reassembled, Rpc, SegmentUse
from rdmascope.dissect.transport.connection import Connection
from rdmascope.dissect.transport.iwarp.segments import IwarpSegment
from rdmascope.dissect.units import at_least, count, duration, moment, plural, seconds, share, size

from .negotiation import add_option, direction_words
from .tables import PART_NAMES, STATE_STYLES, Cell, Grid, bar, heading

COLUMNS = (
    ("RPC", 6, 0),
    ("time", 11, 56),
    ("conn", 4, 64),
    ("xid", 10, 110),
    ("latency", 8, 0),
    ("frames", 13, 110),
    ("how", 3, 110),
    ("to server", 9, 110),
    ("to client", 9, 110),
    ("user", 5, 150),
    ("offset", 10, 130),
    ("count", 8, 130),
    ("status", 14, 160),
)
"""Name, width, and from which width of the terminal on; procedure and path follow with whatever room is left.  Without
the column, the status of what failed stands before the procedure."""
NARROW = 110
LINUX = 160
"""From this width on a COMPOUND has the name of Linux's client, where it says more than the operations."""
NOMSG = procedure_name(1, RDMA_NOMSG)
WHOLE_TIME = 26
"""Width of a date and time."""


class RpcLine(NamedTuple):
    """How lines are laid out."""

    first_time: int
    """Times are seconds since then."""
    width: int | None = None
    """Columns of the terminal; None where the output is none."""
    absolute: bool = False
    """Times are dates and times of day."""
    place_width: int = 0
    """Width of the column that says which of several files a frame is in."""

    @property
    def names(self) -> list[tuple[str, int]]:
        """The columns and their widths."""
        return [
            (name, WHOLE_TIME if name == "time" and self.absolute else width)
            for name, width, least in COLUMNS
            if self.width is None or self.width >= least
        ]


def how(rpc: Rpc) -> str:
    """How payloads travelled beside the Sends: any of r 0 w R."""
    marks = set()
    nomsg = rpc.call is not None and rpc.call.header.procedure == RDMA_NOMSG
    for chunk in rpc.chunks:
        if chunk.transferred:
            read = "0" if nomsg and chunk.position == 0 else "r"
            marks.add({"read": read, "write": "w"}.get(chunk.kind, "R"))
    return "".join(mark for mark in "0rwR" if mark in marks)


def frames(rpc: Rpc) -> str:
    """First frame of the call and last of the reply; '?' for the half that was not seen."""
    return f"{rpc.call_frame or '?'}-{rpc.reply_frame or '?'}"


def title(rpc: Rpc, full: bool = True) -> str:
    """'NFSv4.2 SEQUENCE PUTFH READ', 'NFSv4 RPCSEC_GSS_INIT'."""
    name = procedure_label(rpc.name, rpc.operations, full=full)
    if rpc.gss is not None and rpc.gss.procedure != RPCSEC_GSS_DATA:
        name = GSS_PROCEDURE_NAMES.get(rpc.gss.procedure, f"RPCSEC_GSS procedure {rpc.gss.procedure}")
    elif _encrypted(rpc):
        name += " (encrypted by RPCSEC_GSS)"
    return f"{program_label(rpc.program, rpc.version, rpc.minor_version)} {name}"


def linux_words(name: str | None, operations: Sequence[str]) -> str:
    """' [OPEN_NOATTR]'; '' where it is the first operation behind the preamble."""
    return f" [{name}]" if name and name != procedure_label("", operations).partition(" ")[0] else ""


def _encrypted(rpc: Rpc) -> bool:
    return rpc.gss is not None and rpc.gss.service == GSS_PRIVACY and rpc.gss.procedure == RPCSEC_GSS_DATA


def outcome(rpc: Rpc) -> Text:
    """The state, with the status where the call failed."""
    return _ended(rpc.state, rpc.status)


def _ended(state: str, status: str) -> Text:
    text = state
    if status and status != "OK":
        text = status if state == "error" else f"{state}, {status}"
    return Text(text, STATE_STYLES.get(state, ""))


def header(layout: RpcLine) -> Text:
    """The names of the columns."""
    cells = [f"{name:{'<' if name == 'status' else '>'}{width}}" for name, width in layout.names]
    if layout.place_width:
        cells.append(f" {'file:frames':<{layout.place_width}}")
    return Text(" ".join(cells) + "  procedure  path")


def _known(message: Message | None, length: int) -> int | None:
    """A size that depends on the length of a message; None where a trace does not tell that."""
    return None if message is not None and not message.operation.length else length


class RpcCells(NamedTuple):
    """What a line says of an RPC."""

    number: int
    begin: int
    """Nanoseconds since the Unix epoch."""
    connection: int
    backward: bool
    xid: int
    latency: str
    frames: str
    how: str
    up: int | None
    """Bytes of the call; None: a trace does not tell."""
    down: int | None
    """Bytes of the reply."""
    uid: int | None
    offset: int | None
    asked_bytes: int | None
    state: str
    status: str
    """'' where it is not known."""
    encrypted: bool
    psn_reused: bool
    title: str
    linux: str
    """Behind the title, where there is room."""
    path: str | None
    handle_hash: int | None

    @classmethod
    def of(cls, rpc: Rpc, fields: FlatFields, path: str | None, full: bool) -> RpcCells:
        """``full``: a COMPOUND with all its operations."""
        handle = None if fields.handle is None else handle_hash(fields.handle)
        asked = _asked(fields.count, rpc.operations or (rpc.name,))
        return cls(
            rpc.number, rpc.first_time, rpc.connection.number, rpc.backward, rpc.xid,
            _latency(rpc.waiting, rpc.latency is None), frames(rpc), how(rpc),
            _known(rpc.call, rpc.call_bytes), _known(rpc.reply, rpc.reply_bytes),
            fields.uid, fields.offset, asked, rpc.state, rpc.status, _encrypted(rpc), bool(rpc.psn_errors),
            title(rpc, full=full), linux_words(fields.linux, rpc.operations), path, handle,
        )  # fmt: skip

    @classmethod
    def of_row(cls, row: Mapping[str, Any], full: bool) -> RpcCells:
        """The cells of a row of the table rpcs, which does not know what is encrypted."""
        label = program_label(row["program_number"], row["version"], row["minor_version"])
        operations = row["operations"] or ()
        name = procedure_label(row["procedure"] or "", operations, full=full)
        asked = _asked(row["count_bytes"], operations or (row["procedure"],))
        return cls(
            row["number"], row["time_ns"], row["connection"], row["direction"] == "backward", row["xid"],
            _latency(row["waiting_ns"], row["latency_ns"] is None),
            f"{row['call_frame'] or '?'}-{row['reply_frame'] or '?'}", _how_of_row(row),
            row["call_bytes"], row["reply_bytes"], row["uid"], row["offset_bytes"], asked, row["state"],
            row["status"] or "", False, bool(row["psn_reused"]), f"{label} {name}",
            linux_words(row["linux_operation"], operations), row["path"], row["file_handle_hash"],
        )  # fmt: skip


def _latency(waiting: int | None, outstanding: bool) -> str:
    return "-" if waiting is None else at_least(waiting, outstanding)


def _asked(count: int | None, names: Container[str | None]) -> int | None:
    """Bytes: those of a COMMIT of 0 are all that follow (RFC 1813, 3.3.21; RFC 8881, 18.3.3)."""
    return TO_END_OF_FILE if count == 0 and "COMMIT" in names else count


def _how_of_row(row: Mapping[str, Any]) -> str:
    """The letters of ``how`` for a table row, which has the bytes of Write and Reply chunks only as a sum."""
    marks = ""
    if row["call_chunk_bytes"]:
        marks += "0" if row["call_rdma_procedure"] == NOMSG else "r"
    if row["reply_chunk_bytes"]:
        by_reply_chunk = row["reply_rdma_procedure"] == NOMSG and row["reply_chunks"]
        marks += "R" if by_reply_chunk else "w"
    return marks


def line(rpc: Rpc, fields: FlatFields, path: str | None, layout: RpcLine, place: str | None = None) -> Text:
    """``place``: its frames in their files, where there are several; None where there are not."""
    return cells_line(RpcCells.of(rpc, fields, path, layout.width is None), layout, place)


def cells_line(rpc: RpcCells, layout: RpcLine, place: str | None = None) -> Text:
    values = {
        "RPC": str(rpc.number),
        "time": moment(rpc.begin).removesuffix(" UTC") if layout.absolute else seconds(rpc.begin - layout.first_time),
        "conn": f"{rpc.connection}{'<' if rpc.backward else ''}",
        "xid": f"{rpc.xid:#010x}",
        "latency": rpc.latency,
        "frames": rpc.frames,
        "how": rpc.how,
        "to server": "-" if rpc.up is None else size(rpc.up),
        "to client": "-" if rpc.down is None else size(rpc.down),
        "user": "-" if rpc.uid is None else str(rpc.uid),
        "offset": "-" if rpc.offset is None else str(rpc.offset),
        "count": "-"
        if rpc.asked_bytes is None
        else "to EOF"
        if rpc.asked_bytes == TO_END_OF_FILE
        else size(rpc.asked_bytes),
    }
    cells = [f"{values[name]:>{width}}" for name, width in layout.names if name in values]
    text = Text(" ".join(cells))
    ended = _ended(rpc.state, rpc.status)
    if len(cells) < len(layout.names):
        status = ended.plain
        if rpc.state == "complete":
            status = "accepted" if rpc.encrypted else rpc.status or "-"
        text.append(" ").append(f"{status:<14}", ended.style if rpc.state != "complete" else "")
    if place is not None:
        text.append(f"  {place}")
    text.append("  ")
    if len(cells) == len(layout.names) and rpc.state != "complete":
        text.append_text(ended)
        text.append("  ")
    if rpc.psn_reused:
        text.append("PSN reused", "red")
        text.append("  ")
    text.append(rpc.title)
    if rpc.linux and (layout.width is None or layout.width >= LINUX):
        text.append(rpc.linux, "dim")
    if rpc.path is not None or rpc.handle_hash is not None:
        text.append("  ")
        text.append(rpc.path or f"FH {rpc.handle_hash or 0:#010x}", "cyan" if rpc.path else "dim")
    return text


WORD, SEGMENT, READ_SEGMENT = 4, 16, 24
"""Bytes of a word, and of segments in a transport header of version 1 (RFC 8166, 4)."""
FIXED = 4 * WORD
"""Bytes that every transport header begins with."""
BYTES = "bytes"
"""Key in the style of a label: from where to where the bytes of the message are that it stands for."""
LONGEST_RUN = 4
MAX_STEPS = 60
MAX_BYTES = 256
ROW = 16


def rpc_summary(rpc: Rpc, first_time: int, place: str = "") -> Group:
    lines = [Text.assemble((f"RPC {rpc.number}  ", "bold"), (title(rpc), "bold"), "  ", outcome(rpc))]
    direction = "backward call, made by the server" if rpc.backward else "forward call"
    lines.append(Text(f"connection {rpc.connection.number}, xid {rpc.xid:#010x} ({rpc.xid}), {direction}"))
    when = rpc.first_time
    lines.append(Text(f"began at {seconds(when - first_time)} s, {moment(when)}"))
    if place:
        lines.append(Text(f"frames {frames(rpc)} are {place}"))
    lines += [Text(line) for line in _thresholds(rpc)]
    if rpc.latency is not None:
        parts = rpc.latency._asdict()
        shares = ", ".join(
            f"{PART_NAMES[name]} {duration(parts[name])} ({share(parts[name], rpc.latency.total)})"
            for name in PARTS
            if parts[name] and rpc.conversation.shows(name)
        )
        lines.append(Text.assemble("latency ", (duration(rpc.latency.total), "bold"), f": {shares}" if shares else ""))
    elif rpc.outstanding is not None:
        lines.append(Text(f"no reply in {duration(rpc.outstanding)}, until its connection or the capture ended", "red"))
    lines += [Text(f"damage: {damage}", "red") for damage in rpc.damage]
    lines += [Text(f"note: {note}", "dim") for note in rpc.notes]
    lines += [
        Text(f"loss inferred: {loss.evidence} (confidence {loss.confidence:.0%})", "yellow")
        for loss in rpc.connection.inferred_losses
        if loss.rpc == rpc.number
    ]
    if rpc.retransmissions:
        unit = "segment" if rpc.connection.of_tcp else "packet"
        delay = f"; it waited {duration(rpc.retransmission_delay)}" if rpc.retransmission_delay else ""
        lines.append(Text(plural(rpc.retransmissions, unit) + " retransmitted" + delay, "yellow"))
    return Group(*lines)


def _thresholds(rpc: Rpc) -> Iterator[str]:
    """What each Send of version 2 was allowed to be; of version 1 the report has it, since it does not change."""
    for name, message in (("call", rpc.call), ("reply", rpc.reply)):
        if message is not None and message.header.version == 2:
            limit, source = rpc.conversation.known_inline_threshold(message.operation.initiator, message.frame)
            limited = "limit unknown" if limit is None else f"limit {size(limit)}"
            yield f"the {name}: a Send of {size(message.operation.length)}, {limited} ({source})"


def ladder(steps: Sequence[Step], connection: Connection, width: int, full: bool = False) -> RenderableType:
    """Time runs downwards; the client is on the left.  Packets of other RPCs are left out unless ``full``."""
    if not steps:
        return Text("  none of its packets is in the capture", "dim")
    lane = max(24, min(76, width - 28))
    client, server = (end.address for end in connection.endpoints)
    start = steps[0].time
    lines = [Text(f"  {'frame':>8} {'time':>10}  {client:<{lane // 2}}{server:>{lane - lane // 2}}", "dim")]
    shown = list(steps) if full else _own(steps)
    rows = list(_folded(shown, full))
    if not full and len(rows) > MAX_STEPS:
        half = MAX_STEPS // 2
        rows[half:-half] = [f"{len(rows) - 2 * half:,} more lines"]
    for row in rows:
        if isinstance(row, str):
            lines.append(Text(f"  {'':>8} {'':>10}  │{'⋮ ' + row:^{lane - 2}.{lane - 2}}│", "dim"))
            continue
        elapsed = f"+{duration(row.time - start)}" if row.time != start else "0"
        line = Text(f"  {row.frame:>8} {elapsed:>10}  ")
        line.append(_arrow(row, lane), _style(row))
        lines.append(line)
    if len(shown) < len(steps):
        left = len(steps) - len(shown)
        omitted = f"{plural(left, 'packet')} of other RPCs"
        if connection.of_tcp:
            omitted = f"{plural(left, 'segment')} of other RPCs or without payload"
        lines.append(Text(f"  {omitted} in between", "dim"))
    for line in lines:
        line.no_wrap = True
    return Group(*lines)


def _own(steps: Sequence[Step]) -> list[Step]:
    """Packets of the RPC, each with the acknowledgement that comes next, and every NAK."""
    kept: list[Step] = []
    before = data = OTHER
    for step in steps:
        acknowledges = step.kind == ACKNOWLEDGEMENT
        if step.kind == OWN and len(kept) > 1 and kept[-1].label == TCP_ACK and _alike(kept[-2], step):
            kept.pop()  # TCP acknowledges all the time; what counts is the end of a transfer
        odd = "NAK" in step.label or (data == OWN and step.label.endswith(f": {TCP_ACK}"))
        if step.kind == OWN or odd or (acknowledges and before == OWN):
            kept.append(step)
        before = step.kind
        data = data if acknowledges else step.kind
    return kept


def _alike(step: Step, other: Step) -> bool:
    return (step.kind, step.sender, step.family) == (other.kind, other.sender, other.family)


def _folded(steps: Sequence[Step], full: bool) -> Iterator[Step | str]:
    """Long runs of packets of one sort become their first, a remark, and their last."""
    for key, run in groupby(steps, lambda step: (step.kind, step.sender, step.family)):
        members = list(run)
        if full or len(members) <= LONGEST_RUN or key[0] != OWN:
            yield from members
            continue
        between = members[1:-1]
        moved = sum(step.length for step in between)
        yield members[0]
        yield f"{count(len(between))} more, {size(moved)}" if moved else f"{count(len(between))} more"
        yield members[-1]


def _arrow(step: Step, lane: int) -> str:
    label = f" {step.label[: lane - 8]} "
    line = "─" * (lane - 4 - len(label))
    return f"├─{label}{line}▶│" if step.sender == 0 else f"│◀{line}{label}─┤"


def _style(step: Step) -> str:
    if step.kind == OTHER:
        return "dim"
    if step.kind == ACKNOWLEDGEMENT:
        return "red" if "NAK" in step.label else "dim"
    return "cyan" if step.sender == 0 else "green"


def header_tree(message: Message) -> Tree:
    """A transport header as sent, field by field (RFC 8166, 4)."""
    header = message.header
    operation = message.operation
    frames = f"frame {operation.first_frame}"
    if operation.last_frame != operation.first_frame:
        frames = f"frames {operation.first_frame} to {operation.last_frame}"
    tree = Tree(Text(f"RPC-over-RDMA version {header.version}, {frames}"), guide_style="dim")
    tree.add(_header_field(f"rdma_xid {header.xid:#010x}", 0, WORD))
    tree.add(_header_field(f"rdma_vers {header.version}", WORD, WORD))
    if header.credits is not None:
        tree.add(_header_field(f"rdma_credit {header.credits}", 2 * WORD, WORD))
    if header.procedure is not None:
        name = procedure_name(header.version, header.procedure)
        tree.add(_header_field(f"rdma_proc {header.procedure} ({name})", 3 * WORD, WORD))
    if header.direction is not None:
        name = "rdma_direction" if header.option is None else "rdma_optdir"
        tree.add(Text(f"{name} {direction_words(header)}"))
    if header.option is not None:
        add_option(tree, header)
    if header.error is not None:
        error = tree.add(Text(f"rdma_err {header.error} ({error_name(header.version, header.error)})", "red"))
        if header.supported:
            error.add(Text(f"versions {header.supported[0]} to {header.supported[1]}"))
    _add_chunks(tree, header)
    if header.problem:
        tree.add(Text(f"not fully decoded: {header.problem}", "red"))
    tree.add(Text(f"header {size(header.length)}, inline Payload stream {size(message.inline_length)}"))
    if operation.invalidate is not None:
        tree.add(Text(f"Send With Invalidate of {operation.invalidate:#010x}"))
    return tree


def _add_chunks(tree: Tree, header: TransportHeader) -> None:
    if not header.chunks and not header.problem and header.error is None and header.option is None:
        tree.add(Text("no chunks", "dim"))
    lists: list[tuple[str, Sequence[Segment], int, int]] = []
    """Words, segments, place and bytes of a segment of each chunk."""
    at = FIXED
    for number, read in enumerate(header.reads, 1):
        lists.append((f"Read chunk {number}: Position {read.position}", read.segments, at, READ_SEGMENT))
        at += READ_SEGMENT * len(read.segments)
    at += WORD
    for number, write in enumerate(header.writes, 1):
        lists.append((f"Write chunk {number}", write.segments, at, SEGMENT))
        at += 2 * WORD + SEGMENT * len(write.segments)
    at += WORD
    if header.reply is not None:
        lists.append(("Reply chunk", header.reply.segments, at, SEGMENT))
        at += WORD + SEGMENT * len(header.reply.segments)
    known = header.version == 1 and at + WORD == header.length
    for words, segments, start, each in lists:
        before = 0 if each == READ_SEGMENT else 2 * WORD
        whole = before + each * len(segments) if known else 0
        separator = ", " if each == READ_SEGMENT else ": "
        total = size(sum(segment.length for segment in segments))
        branch = tree.add(_header_field(f"{words}{separator}{total}", start, whole))
        _add_segments(branch, segments, start + before, each if known else 0)


MAX_SEGMENTS = 16


def _header_field(words: str, start: int, length: int) -> Text:
    """What stands at a place of the header; ``length`` 0: where is not known."""
    label = Text(words)
    if length:
        label.stylize(Style(meta={BYTES: (start, start + length)}))
    return label


def _add_segments(branch: Tree, listed: Sequence[Segment], start: int, each: int) -> None:
    for number, segment in enumerate(listed[:MAX_SEGMENTS]):
        words = f"handle {segment.handle:#010x}  offset {segment.offset:#018x}  length {count(segment.length)}"
        branch.add(_header_field(words, start + number * each, each))
    if len(listed) > MAX_SEGMENTS:
        branch.add(Text(f"… {len(listed) - MAX_SEGMENTS} more segments", "dim"))


def chunk_map(chunks: Sequence[ChunkUse], width: int, full: bool = False) -> RenderableType:
    """What was advertised, what was transferred through it, and the lengths that the reply returned."""
    wide = width >= 100
    rows: list[list[Cell]] = []
    numbers: dict[str, int] = {}
    for chunk in chunks:
        numbers[chunk.kind] = numbers.get(chunk.kind, 0) + 1
        name = f"{chunk.kind} {numbers[chunk.kind]}" if chunk.kind != "reply" else "reply"
        if chunk.position is not None:
            name += f" @{chunk.position}"
        uses = chunk.segments if full else chunk.segments[:MAX_SEGMENTS]
        for at, use in enumerate(uses):
            segment, returned = use.advertised, use.returned
            odd = returned is not None and returned != use.transferred
            rows.append(
                [
                    name if not at else "",
                    f"{segment.handle:#010x}",
                    f"{segment.offset:#x}",
                    *([Text(bar(use.transferred, segment.length, 8), "cyan")] if wide else []),
                    count(segment.length),
                    count(use.transferred),
                    Text("-" if returned is None else count(returned), "red" if odd else ""),
                    _frames(use),
                ]
            )
        if len(uses) < len(chunk.segments):
            rows.append([f"… {len(chunk.segments) - len(uses)} more", *[""] * (7 if wide else 6)])
    left = ["chunk", "handle", "offset", *([""] if wide else [])]
    names = ["advertised", "transferred", "returned", "frames"] if wide else ["length", "used", "returned", "frames"]
    return Grid(left, names, rows, gap=2 if wide else 1)


def _frames(use: SegmentUse) -> str:
    """First and last frame of the transfers through a segment."""
    if not use.operations:
        return "-"
    return f"{min(op.first_frame for op in use.operations)}-{max(op.last_frame for op in use.operations)}"


def contents(reassembled: Reassembled, full: bool = False) -> RenderableType:
    """A message as a hexdump; the origin of bytes stands above them, their frames beside them."""
    length = reassembled.length
    limit = length if full else MAX_BYTES
    lines: list[Text] = []
    for (origin, missing), group in groupby(reassembled.extents, lambda extent: (extent.origin, extent.missing)):
        extents = list(group)
        start, end = extents[0].start, extents[-1].start + extents[-1].length
        source = f"{origin}: {missing}" if missing else origin
        lines.append(Text(f"  ── {start} to {end}: {source}", "red" if missing else "yellow"))
        frame = 0
        for extent in extents:
            if extent.start >= limit:
                break
            mark = f"frame {extent.frame}" if extent.frame != frame and extent.frame else ""
            frame = extent.frame
            lines += _hex_rows(reassembled, extent, 0, limit, mark)
    if length > limit:
        lines.append(Text(f"  … {count(length - limit)} more bytes (--full shows all)", "dim"))
    return Group(*lines)


def _hex_rows(
    reassembled: Reassembled, extent: Extent, start: int, stop: int, mark: str, row: int = ROW
) -> Iterator[Text]:
    """The bytes [start, stop) that lie in the extent, in rows of ``row``; of missing ones a row at most."""
    first, last = max(start, extent.start), min(stop, extent.start + extent.length)
    if extent.missing and first < last:
        yield hex_row(first, bytes(min(row, last - first)), True, mark, row)
        return
    for at in range(first, last, row):
        yield hex_row(at, reassembled.captured(at, min(at + row, last)).tobytes(), False, mark, row)
        mark = ""


def hex_row(at: int, row: bytes, missing: bool, mark: str, width: int = ROW) -> Text:
    digits = "--" * len(row) if missing else row.hex()
    words = " ".join(digits[at : at + 4] for at in range(0, len(digits), 4))
    printable = "".join(chr(byte) if 32 <= byte < 127 else "·" for byte in row)
    line = Text(f"  {at:06x} ")
    line.append(f"{words:<{5 * width // 2 - 1}} ", "red" if missing else "")
    line.append(f"{'' if missing else printable:<{width}} ", "cyan")
    line.append(mark, "dim")
    return line


class Section(NamedTuple):
    """A part of the page."""

    title: str
    """'' for the first, which needs none."""
    remark: str
    body: tuple[RenderableType, ...]
    message: str = ""
    """The bytes it describes: 'call', 'reply', "call's transport header" or "reply's transport header"."""

    @property
    def heading(self) -> Text:
        return heading(self.title, self.remark)


def decoded_messages(rpc: Rpc, full: bool) -> tuple[DecodedMessage | None, DecodedMessage | None]:
    """The call and the reply; ``full``: with every element of every list."""
    nodes = ALL_NODES if full else MAX_NODES
    return decoded_call(rpc, nodes), decoded_reply(rpc, nodes)


def summary_section(rpc: Rpc, first_time: int, place: str, path: str | None) -> Section:
    parts: list[RenderableType] = [rpc_summary(rpc, first_time, place)]
    if path is not None:
        parts.append(Text(f"path {path}"))
    linux = rpc_fields(rpc).linux
    if linux is not None:
        parts.append(Text(f"Linux client operation: {linux}"))
    return Section("", "", tuple(parts))


def packets_section(rpc: Rpc, steps: Sequence[Step], width: int, full: bool) -> Section:
    return Section("Packets", "", (ladder(steps, rpc.connection, width, full),))


def hosts_section(rpc: Rpc) -> Section:
    """Where its time went inside the hosts, downwards."""
    times = rpc.host or HostTimes()
    rows: list[Sequence[Cell]] = []
    for name, phases in groupby(HOST_PHASES, lambda phase: phase.side):
        spans = [(phase, span) for phase in phases if (span := phase.value(rpc)) is not None]
        whole = sum(span for _, span in spans)
        side = name
        for phase, span in spans:
            shown = Text(bar(span, whole, 20), "cyan" if name == "client" else "green")
            rows.append([side, phase.field.replace("_", " "), phase.words, shown, duration(span), share(span, whole)])
            side = ""
        if spans:
            rows.append(["", "in all", "", "", duration(whole), ""])
    for queue, waited in times.waits:
        rows.append(["", f"of queued: {queue}", "", "", duration(waited), ""])
    if times.failed_registrations:
        rows.append(["", "of queued:", "no memory registration", "", duration(times.registration_wait or 0), ""])
    body: RenderableType = Grid(["", "", "", ""], ["", ""], rows, 2) if rows else Text("  not told", "dim")
    return Section("In the hosts", "as the traces of their kernels tell it", (body,))


def message_sections(rpc: Rpc, width: int, full: bool) -> Iterator[Section]:
    """Both transport headers, the use of every chunk, and every field of the call and the reply."""
    for message, name in ((rpc.call, "call"), (rpc.reply, "reply")) if rpc.connection.rdma else ():
        title = f"The {name}'s transport header"
        if message is None:
            yield Section(title, "not seen", ())
        else:
            yield Section(title, "", (header_tree(message),), title.removeprefix("The "))
    if rpc.chunks:
        remark = "bytes advertised, transferred, and returned in the reply"
        yield Section("Chunks", remark, (chunk_map(rpc.chunks, width, full),))
    if rpc.conversation.traced:
        return
    for decoded, name in zip(decoded_messages(rpc, full), ("call", "reply"), strict=True):
        if decoded is None:
            yield Section(f"The {name}", "no RPC message", ())
            continue
        whole = "whole" if decoded.bytes.complete else "with bytes missing"
        origin = decoded.origin(decoded.tree.header)
        carrier = f", in {origin}" if origin else ""
        body = [message_tree(decoded, full)] + ([contents(decoded.bytes, full)] if full else [])
        yield Section(f"The {name}", f"{decoded.bytes.length:,} bytes, {whole}{carrier}", tuple(body), name)


MAX_NODES = 400
"""Elements beyond are counted only, unless all of them are asked for."""
DATA_ROWS = 2
ROW_WIDTH = 80
"""Columns that a row of a hexdump takes, with the number of a frame."""
MAX_FIELD_BYTES = 4096


def message_tree(message: DecodedMessage, full: bool = False) -> RenderableType:
    """The header on a line for each of its parts, then the arguments or results to the last field."""
    header, body, rest, problem = message.tree
    parts: list[RenderableType] = [*_header_lines(header)]
    if body is not None:
        parts.append(_body(message, full))
    elif not problem:
        parts.append(Text("no arguments or results", "dim"))
    if problem:
        parts.append(Text(f"not decoded any further: {problem}", "red"))
    if rest is not None:
        parts += list(_rows(message, rest.offset, rest.offset + rest.length, 4 * ROW))
    return Group(*parts)


def inline_tree(data: bytes, frame: int, called: CalledProcedure | None) -> Tree | None:
    """Arguments or results of the RPC message in one frame; what moved by chunks is not in it.  None where they are not
    known, as those of a reply without its call."""
    bytes_ = SparseBytes([(0, data)], len(data))
    tree = call_tree(bytes_, MAX_NODES)
    if tree.header.note or data[4:8] == b"\0\0\0\1":  # A reply.
        if called is None or called.program is None:
            return None
        tree = reply_tree(bytes_, *called, MAX_NODES)
    if tree.body is None:
        return None
    message = DecodedMessage(Reassembled((Extent(0, len(data), "inline", frame, ""),), ((0, data),)), tree)
    return _body(message, False)


def _body(message: DecodedMessage, full: bool) -> Tree:
    body = message.tree.body
    assert body is not None
    tree = Tree(Text(f"{body.name}{_type_name(body)}", "bold"), guide_style="dim")
    for child in body.children:
        _add(tree, child, message, full)
    return tree


def field_bytes(message: DecodedMessage, name: str) -> list[RenderableType]:
    """The bytes of every field of this name, each with its place in the message; empty without such a field."""
    roots = [root for root in (message.tree.header, message.tree.body) if root is not None]
    parts: list[RenderableType] = []
    for node in (node for root in roots for node in root.walk() if node.name == name):
        end = node.offset + node.length
        where = f"{name}: bytes {node.offset:,} to {end:,}{_carrier(message, node)}"
        parts.append(Text.assemble((where, "yellow"), f"  {value_text(node)}"))
        parts += list(_rows(message, node.offset, end, MAX_FIELD_BYTES))
    return parts


def _header_lines(header: Node) -> Iterator[Text]:
    """The RPC header: xid to procedure, then credential and verifier."""
    words = [child for child in header.children if not child.children]
    yield _field_label(_line("", ", ".join(_word(child, header) for child in words), header.note), header)
    for child in header.children:
        if child.children:
            yield _field_label(_line(child.name, _inline(child), child.note), child)


def _word(node: Node, header: Node) -> str:
    named = {child.name: child.value for child in header.children}
    text = f"{node.name} {value_text(node)}"
    program, version, procedure = (named.get(name) for name in ("prog", "vers", "proc"))
    if node.name == "prog" and isinstance(program, int):
        return f"{text} ({program_name(program)})"
    if node.name == "proc" and isinstance(program, int) and isinstance(version, int) and isinstance(procedure, int):
        return f"{text} ({rpc_procedure_name(program, version, procedure)})"
    return text


def _inline(node: Node) -> str:
    """A value and all below it on one line."""
    ends = [
        inner
        for inner in node.walk(lambda inner: not _is_row(inner))
        if inner.name and (not inner.children or _is_row(inner))
    ]
    return ", ".join(
        f"{end.name} [{', '.join(map(value_text, end.children))}]" if _is_row(end) else f"{end.name} {value_text(end)}"
        for end in ends
    )


def _is_row(node: Node) -> bool:
    """An array of values that are not made of others, such as gids."""
    return isinstance(node.type, XdrArray) and not any(child.children for child in node.children)


def _line(name: str, text: str, note: str) -> Text:
    line = Text.assemble((f"{name}: " if name else "", "cyan"), text)
    if note:
        line.append(f"  [{note}]", "red")
    return line


def _type_name(node: Node) -> str:
    return f" ({node.type.name})" if node.type is not None else ""


def _field_label(label: Text, node: Node) -> Text:
    """The label, with where in the message the field is; it looks the same."""
    label.stylize(Style(meta={BYTES: (node.offset, node.offset + node.length)}))
    return label


def _add(parent: Tree, node: Node, message: DecodedMessage, full: bool) -> None:
    branch = parent.add(_field_label(_label(node, message), node))
    if isinstance(node.type, XdrOpaque) and node.type.form == DATA:
        start = node.offset + 4 if node.type.size is None else node.offset
        size = len(node.value) if isinstance(node.value, memoryview) else 0
        if size:
            branch.add(_Dump(message, start, start + size, size if full else DATA_ROWS * ROW))
        return
    if is_line(node):
        return
    if isinstance(node.type, XdrArray | XdrList):
        for child in node.children:
            _add_element(branch, child, message, full)
        return
    for child in node.children:
        _add(branch, child, message, full)


def _add_element(parent: Tree, node: Node, message: DecodedMessage, full: bool) -> None:
    """An element of an array; of a COMPOUND's under the name of its operation."""
    first = node.children[0] if node.children else None
    if first is None or first.name not in ("argop", "resop"):
        _add(parent, node, message, full)
        return
    label = Text(value_text(first), "bold")
    rest = node.children[1:]
    if rest and rest[0].name == "status":
        label.append(f"  {value_text(rest[0])}", "red" if rest[0].value else "green")
        rest = rest[1:]
    if first.note:
        label.append(f"  [{first.note}]", "red")
    branch = parent.add(_field_label(label, node))
    for child in rest:
        _add(branch, child, message, full)


def _label(node: Node, message: DecodedMessage) -> Text:
    text = value_text(node)
    line = Text.assemble((node.name, "cyan"), f": {text}" if text else "")
    data = isinstance(node.type, XdrOpaque) and node.type.form == DATA
    if data or not node.children:
        line.append(_carrier(message, node), "dim")
    if node.note:
        line.append(f"  [{node.note}]", "red")
    return line


def _carrier(message: DecodedMessage, node: Node) -> str:
    """What carried it, where that is not what carried the whole message."""
    origin = message.origin(node)
    return f"  in {origin}" if origin and origin != message.origin(message.tree.header) else ""


@dataclass(frozen=True, slots=True)
class _Dump:
    """A hexdump of bytes [start, end), of at most ``limit`` of them, in rows that fit."""

    message: DecodedMessage
    start: int
    end: int
    limit: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        row = ROW if options.max_width >= ROW_WIDTH else ROW // 2
        yield from _rows(self.message, self.start, self.end, self.limit, row)


def _rows(message: DecodedMessage, start: int, end: int, limit: int, row: int = ROW) -> Iterator[Text]:
    """A hexdump of bytes [start, end), of at most ``limit`` of them; with gaps where bytes are missing."""
    stop = min(end, start + limit)
    for extent in message.bytes.extents:
        mark = extent.missing or (f"frame {extent.frame}" if extent.frame else "")
        yield from _hex_rows(message.bytes, extent, start, stop, mark, row)
    if stop < end:
        yield Text(f"  … {count(end - stop)} more bytes (--full shows all)", "dim")


MAX_VALUE = 96
"""Characters of one value."""


def frame_tree(
    frame: Frame,
    first_time: int,
    rpcrdma: bool = False,
    segment: IwarpSegment | None = None,
    called: CalledProcedure | None = None,
    path: str | None = None,
) -> RenderableType:
    """``rpcrdma``: it begins a Send of RPC-over-RDMA; ``segment``: what it is to iWARP; ``called``: by the call
    that it belongs to; ``path``: that the call names."""
    truncated = "" if len(frame.data) >= frame.original else f", {count(len(frame.data))} of them captured"
    when = seconds(frame.time - first_time)
    parts: list[RenderableType] = [
        Text(f"Frame {frame.number}: {count(frame.original)} bytes{truncated}, at {when} s", "bold")
    ]
    parts += layer_trees(frame, rpcrdma, segment, called, path)
    return Group(*parts)


def layer_trees(
    frame: Frame,
    rpcrdma: bool = False,
    segment: IwarpSegment | None = None,
    called: CalledProcedure | None = None,
    path: str | None = None,
) -> list[RenderableType]:
    """A tree for each layer; the last is of the arguments or results, where the procedure is known."""
    from rdmascope.dissect.layers.oncrpc import ONCRPC

    trees: list[RenderableType] = []
    message = b""
    for layer in all_layers(frame.data, frame.link_type, rpcrdma, segment):
        if isinstance(layer, Words):
            tree = Tree(Text(layer.text, "yellow"), guide_style="dim")
        elif message and layer.name == "Raw" and (contents := inline_tree(message, frame.number, called)) is not None:
            if path is not None:
                contents.add(Text(f"[path: {path}]", "cyan"))
            trees.append(contents)
            continue
        else:
            tree = Tree(Text(layer.name, "bold cyan"), guide_style="dim")
            _add_fields(tree, layer)
            if isinstance(layer, ONCRPC):
                message = layer.original
        trees.append(tree)
    return trees


def _add_fields(tree: Tree, layer: Any) -> None:
    from scapy.packet import Packet

    for field, value in fields_of(layer):
        nested = value if isinstance(value, list) else [value]
        if nested and all(isinstance(packet, Packet) for packet in nested):
            branch = tree.add(Text(field.name))
            for packet in nested:
                for inner in layers_of(packet):
                    _add_fields(branch.add(Text(inner.name)), inner)
            continue
        if value is None:
            continue
        if isinstance(value, bytes):
            shown = value[: MAX_VALUE // 2].hex()
            text = f"{count(len(value))} bytes {shown}{'…' if len(value) > MAX_VALUE // 2 else ''}"
            if value and value.isascii() and len(value) <= MAX_VALUE and value.decode().isprintable():
                text = f'"{value.decode()}" {text}'
        else:
            text = str(field.i2repr(layer, value))
            if len(text) > MAX_VALUE:
                text = text[:MAX_VALUE] + "…"
        tree.add(Text.assemble((field.name, "dim"), " ", text))
