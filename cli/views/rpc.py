"""One RPC in full: ladder, transport headers, chunk map, contents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from rich.console import Group, RenderableType
from rich.style import Style
from rich.text import Text
from rich.tree import Tree

from rdmascope.captures.session.sequence_diagram import ACKNOWLEDGEMENT, OTHER, OWN, TCP_ACK, Step
from rdmascope.dissect.layers.rpcrdma_codes import error_name, procedure_name
from rdmascope.dissect.measure.statistics import PARTS
from rdmascope.dissect.rpcrdma.messages import Message, Segment, TransportHeader
from rdmascope.dissect.rpcrdma.rpcs import ChunkUse, Extent, Reassembled, Rpc, SegmentUse
from rdmascope.dissect.transport.connection import Connection
from rdmascope.dissect.units import count, duration, moment, plural, seconds, share, size

from .negotiation import add_option, direction_words
from .rpcs import frames, outcome, title
from .tables import PART_NAMES, Cell, Grid, bar

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
            if parts[name]
        )
        lines.append(Text.assemble("latency ", (duration(rpc.latency.total), "bold"), f": {shares}" if shares else ""))
    elif rpc.outstanding is not None:
        lines.append(Text(f"no reply in {duration(rpc.outstanding)}, until its connection or the capture ended", "red"))
    lines += [Text(f"damage: {one}", "red") for one in rpc.damage]
    lines += [Text(f"note: {one}", "dim") for one in rpc.notes]
    lines += [
        Text(f"loss inferred: {one.evidence} (confidence {one.confidence:.0%})", "yellow")
        for one in rpc.connection.inferred_losses
        if one.rpc == rpc.number
    ]
    if rpc.retransmissions:
        unit = "segment" if rpc.connection.transport == "iWARP" else "packet"
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
        if connection.transport == "iWARP":
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


def _alike(one: Step, other: Step) -> bool:
    return (one.kind, one.sender, one.family) == (other.kind, other.sender, other.family)


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
    tree.add(_placed(f"rdma_xid {header.xid:#010x}", 0, WORD))
    tree.add(_placed(f"rdma_vers {header.version}", WORD, WORD))
    if header.credits is not None:
        tree.add(_placed(f"rdma_credit {header.credits}", 2 * WORD, WORD))
    if header.procedure is not None:
        name = procedure_name(header.version, header.procedure)
        tree.add(_placed(f"rdma_proc {header.procedure} ({name})", 3 * WORD, WORD))
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
        branch = tree.add(_placed(f"{words}{separator}{total}", start, whole))
        _add_segments(branch, segments, start + before, each if known else 0)


MAX_SEGMENTS = 16


def _placed(words: str, start: int, length: int) -> Text:
    """What stands at a place of the header; ``length`` 0: where is not known."""
    label = Text(words)
    if length:
        label.stylize(Style(meta={BYTES: (start, start + length)}))
    return label


def _add_segments(branch: Tree, listed: Sequence[Segment], start: int, each: int) -> None:
    for number, segment in enumerate(listed[:MAX_SEGMENTS]):
        words = f"handle {segment.handle:#010x}  offset {segment.offset:#018x}  length {count(segment.length)}"
        branch.add(_placed(words, start + number * each, each))
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
    for (origin, missing), group in groupby(reassembled.extents, lambda one: (one.origin, one.missing)):
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
            lines += _hex_rows(reassembled, extent, limit, mark)
    if length > limit:
        lines.append(Text(f"  … {count(length - limit)} more bytes (--full shows all)", "dim"))
    return Group(*lines)


def _hex_rows(reassembled: Reassembled, extent: Extent, limit: int, mark: str) -> Iterator[Text]:
    end = min(extent.start + extent.length, limit)
    if extent.missing:
        yield hex_row(extent.start, bytes(min(ROW, end - extent.start)), True, mark)
        return
    for at in range(extent.start, end, ROW):
        yield hex_row(at, reassembled.captured(at, min(at + ROW, end)).tobytes(), False, mark)
        mark = ""


def hex_row(at: int, row: bytes, missing: bool, mark: str, width: int = ROW) -> Text:
    digits = "--" * len(row) if missing else row.hex()
    words = " ".join(digits[place : place + 4] for place in range(0, len(digits), 4))
    printable = "".join(chr(byte) if 32 <= byte < 127 else "·" for byte in row)
    line = Text(f"  {at:06x} ")
    line.append(f"{words:<{5 * width // 2 - 1}} ", "red" if missing else "")
    line.append(f"{'' if missing else printable:<{width}} ", "cyan")
    line.append(mark, "dim")
    return line
