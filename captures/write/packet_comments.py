"""What RPCs say of themselves in the comments of exported packets: plain lines of text."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import lru_cache

from rdmascope.dissect.audit.finding import Finding
from rdmascope.dissect.onc.names import procedure_label, program_label
from rdmascope.dissect.rpcrdma.rpcs import ChunkUse, Extent, Reassembled, Rpc
from rdmascope.dissect.transport.connection import ENDS
from rdmascope.dissect.units import duration, plural, size

MAX_RUNS = 12
"""Runs of frames that are listed."""
MAX_CHUNKS = 8
"""Chunks that are listed."""
MAX_NOTED = 4
"""Findings that an RPC, or a connection, has in comments."""
MAX_ABOUT = 1 << 16
"""RPCs and connections with findings that are remembered."""
PARTS = "call", "Reads", "server", "Writes", "reply", "waiting for retransmissions"
"""What the parts of a latency are called."""


def message_comments(rpc: Rpc, is_call: bool, message: Reassembled, ranges: Iterable[tuple[int, int]]) -> list[str]:
    """A comment for each range [start, end) of a call or reply, which a packet has.

    The first says everything, the others which RPC they belong to, and all of them the RDMA frames they came from.
    """
    kind = "call" if is_call else "reply"
    head = f"RPC {rpc.number}, {kind}, connection {rpc.connection.number}"
    extents = message.extents
    starts = [extent.start for extent in extents]
    comments = []
    for start, end in ranges:
        first, last = bisect_left(starts, start), bisect_left(starts, end)
        frames = _frames(extents[max(first - 1, 0) : last] if len(extents) > 1 else extents, start)
        comments.append(f"{head}, RDMA frame{frames}" if frames else f"{head}, no RDMA frame")
    about = "\n".join(_about(rpc, is_call))
    comments[0] += f"\n{about}"
    return [printable(comment) for comment in comments]


def _about(rpc: Rpc, is_call: bool) -> list[str]:
    label = _label(rpc.program, rpc.version, rpc.minor_version, rpc.name, rpc.operations)
    outcome = rpc.state if rpc.status in ("", "OK") else f"{rpc.state}, {rpc.status}"
    lines = [f"{label}: {outcome}"]
    chunks = [chunk for chunk in rpc.chunks if (chunk.kind == "read") == is_call]
    lines += [_chunk(chunk) for chunk in chunks[:MAX_CHUNKS]]
    if len(chunks) > MAX_CHUNKS:
        lines.append(f"{len(chunks) - MAX_CHUNKS:,} more chunks")
    if not is_call and rpc.latency is not None:
        total, *times = rpc.latency
        parts = ", ".join([f"{name} {duration(time)}" for name, time in zip(PARTS, times, strict=True) if time])
        lines.append(f"latency {duration(total)}{': ' if parts else ''}{parts}")
    if retransmissions := rpc.retransmissions:
        unit = "segment" if rpc.connection.transport == "iWARP" else "packet"
        lines.append(f"{plural(retransmissions, unit)} of this RPC retransmitted")
    lines += [f"damage: {one}" for one in rpc.damage[:MAX_NOTED]]
    return lines


@lru_cache(maxsize=1024)
def _label(
    program: int | None, version: int | None, minor_version: int | None, name: str, operations: tuple[str, ...]
) -> str:
    return f"{program_label(program, version, minor_version)} {procedure_label(name, operations)}"


def _chunk(chunk: ChunkUse) -> str:
    name = {"read": "Read chunk", "write": "Write chunk"}.get(chunk.kind, "Reply chunk")
    at = "" if chunk.position is None else f" at position {chunk.position}"
    words = f"{name}{at}: {plural(len(chunk.segments), 'segment')}, {size(chunk.advertised)} advertised"
    words += f", {size(chunk.transferred)} transferred"
    if chunk.returned is not None:
        words += f", {size(chunk.returned)} returned"
    operations = [operation for use in chunk.segments for operation in use.operations]
    if operations:
        kind = "RDMA Read" if chunk.kind == "read" else "RDMA Write"
        first = min(operation.first_frame for operation in operations)
        last = max(operation.last_frame for operation in operations)
        words += f" by {plural(len(operations), kind)} in frames {first}-{last}"
    return words


def _frames(extents: Sequence[Extent], start: int) -> str:
    """' 120' or 's 120-134, 140': those that carried the extents from ``start`` on."""
    if len(extents) == 1 and extents[0].frame and extents[0].start + extents[0].length > start:
        return f" {extents[0].frame}"
    numbers = sorted({extent.frame for extent in extents if extent.frame and extent.start + extent.length > start})
    if not numbers:
        return ""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    words = ", ".join(f"{low}" if low == high else f"{low}-{high}" for low, high in runs[:MAX_RUNS])
    if len(runs) > MAX_RUNS:
        words += f", … {numbers[-1]} ({len(numbers):,} frames)"
    return f" {words}" if len(numbers) == 1 else f"s {words}"


class FindingNotes:
    """What the audit found of which RPC and connection: give ``add`` every finding."""

    def __init__(self) -> None:
        self._rpcs: dict[int, list[str]] = {}
        self._connections: dict[int, list[str]] = {}

    def add(self, finding: Finding) -> None:
        notes, number = self._rpcs, finding.rpc
        if number is None:
            notes, number = self._connections, finding.connection.number
        if number not in notes and len(notes) >= MAX_ABOUT:
            return
        listed = notes.setdefault(number, [])
        if len(listed) < MAX_NOTED:
            listed.append(
                f"{finding.severity}: {finding.rule.id}, by the {ENDS[finding.endpoint]}: {printable(finding.observed)}"
            )

    def of_rpc(self, number: int) -> str:
        """Lines about an RPC, each behind a line break; '' where nothing was found."""
        return "".join(f"\n{one}" for one in self._rpcs.get(number, ()))

    def of_connection(self, number: int) -> str:
        """Lines about a connection that are about none of its RPCs."""
        return "".join(f"\n{one}" for one in self._connections.get(number, ()))


def printable(text: str) -> str:
    """Without control characters but line breaks: some of it came from the wire."""
    if text.replace("\n", "").isprintable():
        return text
    return "".join(one if one.isprintable() or one == "\n" else "�" for one in text)
