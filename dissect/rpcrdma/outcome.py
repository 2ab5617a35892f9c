"""The outcome of an Rpc: its name, status and state, and what is missing of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy

from ..intervals import IntervalSet
from ..layers.characteristics_codes import option_name
from ..layers.oncrpc_codes import CALL, REPLY
from ..layers.rpcrdma_codes import DIRECTION_NAMES, RDMA_ERROR, RDMA_MSG, RDMA_MSGP, RDMA_NOMSG, error_name
from ..onc import compound as nfs4, rpc_header, status
from ..onc.xdr import round_up, word
from ..transport.operations import Operation
from .latency import latency
from .messages import Message, WriteChunk
from .reassembly import (
    CONTESTED,
    EARLY,
    LATE,
    PADDED,
    call_counts,
    call_stream_prefix,
    reply_items,
    reply_stream,
    reply_stream_prefix,
)
from .rpcs import DUPLICATE_REPLY, ChunkUse, Rpc, SegmentUse

_UNDECIDABLE = CONTESTED, PADDED, LATE, EARLY
"""Reasons for missing bytes that the capture may have."""
ABSENT = "not found in this capture"
"""Why bytes are missing; also if they are captured without the request or first packet that tells where they belong."""
LONG_CALL = 1 << 20
"""Bytes of a long call that are decoded to name its operations."""
SUCCESS_END = 28
"""Bytes of a reply up to the end of a status, if nothing failed and the verifier is empty."""
REPLY_START = 1024
"""Bytes of a long reply that are decoded to read its status."""

OTHER_XID = "is not the XID of its RPC message"
"""Part of the note on an rdma_xid that differs."""
MAX_FRAMES = 4
"""Frames named in a note."""


def note_version_2(rpc: Rpc) -> None:
    """Add notes for version 2: it marks calls twice, and may put only a part of a message after an option.

    version-two-01, 4.2.1 and 4.2.2.
    """
    for message, kind in ((rpc.call, "call"), (rpc.reply, "reply")):
        header = message.header if message is not None else None
        if header is None or header.direction is None:
            continue
        if DIRECTION_NAMES[header.direction] != kind.upper():
            rpc.notes += (f"the {kind}'s direction word says {DIRECTION_NAMES[header.direction]}",)
        if header.option is not None:
            rpc.notes += (f"the {kind} stands behind {option_name(header.option)}, and may be only part of a message",)


def conclude(rpc: Rpc) -> None:
    """Name an Rpc and read its status, as far as call and reply are captured."""
    if rpc.call is not None and not rpc.call.header.problem:
        _name(rpc, rpc.call)
    if rpc.reply is not None and not rpc.reply.header.problem:
        _status(rpc, rpc.reply)


def named(rpc: Rpc) -> Rpc:
    """A named copy of an Rpc that has not ended; the original stays as it is."""
    named = copy(rpc)
    if named.call is not None and not named.call.header.problem:
        _name(named, named.call)
    return named


def _name(rpc: Rpc, message: Message) -> None:
    reduced: Sequence[tuple[int, int]] = ()
    if message.header.procedure == RDMA_NOMSG:
        data = memoryview(call_stream_prefix(rpc, LONG_CALL))
        start, end = 0, len(data)
        _check_direction(rpc, message, data, CALL)
    else:
        data, start, end = message.data, message.start, message.end
    if message.header.reads:
        reduced = [item for item in message.header.reduced if item[0]]
    head = rpc_header.call_head(data, start, end)
    if head is None:
        rpc.program, rpc.version = rpc_header.truncated_program(data, start, end) or (None, None)
        return
    rpc.program, rpc.version, rpc.procedure, rpc.gss, body = head
    _check_xid(rpc, "call", data, start)
    rpc.name = name = rpc_header.procedure_name(rpc.program, rpc.version, rpc.procedure)
    if body and message.header.procedure != RDMA_MSGP and (name == "COMPOUND" or name == "CB_COMPOUND"):
        callback = name == "CB_COMPOUND"
        compound = nfs4.compound_call(data, start + body, end, reduced, origin=start, callback=callback)
        rpc.minor_version = compound.minor_version
        rpc.operations = nfs4.operation_names(compound.operations, callback)
        if compound.problem:
            rpc.notes += (f"operations: {compound.problem}",)


def _check_xid(rpc: Rpc, side: str, data: memoryview, start: int) -> None:
    """Add a note if the XID of the RPC message, at ``start``, is not rdma_xid (RFC 8166, 4.2.1)."""
    xid = word(data, start)[0]
    if xid != rpc.xid:
        rpc.notes += (f"the {side}'s rdma_xid 0x{rpc.xid:08x} {OTHER_XID}, 0x{xid:08x}",)


def _status(rpc: Rpc, message: Message) -> None:
    header = message.header
    if header.procedure == RDMA_ERROR:
        rpc.failed = True
        rpc.status = error_name(header.version, header.error)
        return
    long = header.procedure == RDMA_NOMSG
    if long:
        data = memoryview(reply_stream_prefix(rpc, SUCCESS_END))
        start, end = 0, len(data)
        _check_direction(rpc, message, data, REPLY)
    else:
        data, start, end = message.data, message.start, message.end
    if end - start >= 4:
        _check_xid(rpc, "reply", data, start)
    if (
        rpc.program is not None
        and rpc.version is not None
        and rpc.procedure is not None
        and rpc.gss is None
        and end - start >= SUCCESS_END
        # Compare bytes, as views are compared item by item.
        and data[start + 4 : start + SUCCESS_END].tobytes() == rpc_header.SUCCESS_AND_ZERO
        and status.zero_means_ok(rpc.program, rpc.version, rpc.procedure)
    ):
        rpc.status = "OK"
        return
    if long:
        data = memoryview(reply_stream_prefix(rpc, REPLY_START))
        end = len(data)
    reply = rpc_header.reply_header(data, start, end, rpc.gss)
    if reply is None or reply.accepted is None:
        return
    failure = reply.error
    if failure:
        rpc.status, rpc.failed = failure, True
        return
    if rpc.program is None or rpc.version is None or rpc.procedure is None:
        return
    outcome = status.reply_status(rpc.program, rpc.version, rpc.procedure, data, reply.body, end)
    if outcome is not None:
        rpc.status, rpc.failed = outcome
    elif not reply.truncated:
        rpc.status = "OK"


def _check_direction(rpc: Rpc, message: Message, data: memoryview, taken: int) -> None:
    """Add a note if the msg_type in the chunks is not what the message was taken for (version-two-01, 4.2.2)."""
    kind = rpc_header.message_type(data, 0, len(data))
    if message.header.direction is not None and kind is not None and taken != kind:
        rpc.notes += (f"the direction word says {DIRECTION_NAMES[taken]}, the chunks {DIRECTION_NAMES[kind]}",)


def finish_state(rpc: Rpc) -> None:
    """Set state, damage and latency."""
    call, reply = rpc.call, rpc.reply
    if rpc.connection.reused_psns:
        rpc.notes += tuple(_reused_psns(rpc))
    if call and reply and not (rpc.chunks or rpc.damage or rpc.ambiguous or _unsound(call) or _unsound(reply)):
        rpc.state = "error" if rpc.failed else "complete"
        rpc.latency = latency(rpc, call.operation, reply.operation)
        return
    damage = list(rpc.damage)
    for side, message in (("call", rpc.call), ("reply", rpc.reply)):
        if message is not None and _unsound(message):
            _message_damage(rpc, side, message, damage)
    if rpc.chunks and rpc.reply is not None and rpc.call is not None:
        _chunk_damage(rpc, damage)
    missing = any(not any(words in reason for words in _UNDECIDABLE) for reason in damage)
    if missing and rpc.contents == "whole":
        rpc.contents = "missing"
    if damage and rpc.connection.damaged:
        damage += _arrived_damaged(rpc)
    damage += _contradictions(rpc)
    if damage and rpc.contents == "whole":
        rpc.contents = "undecidable"
    if rpc.ambiguous:
        damage.append("undecidable which of several calls with its XID a reply answers")
    rpc.damage = tuple(damage)
    if rpc.state == DUPLICATE_REPLY:
        return
    _note_migration(rpc)
    if rpc.reply is None:
        rpc.state = "undecidable" if rpc.ambiguous else "no reply"
    elif rpc.call is None:
        rpc.state = "no call"
    elif damage:
        rpc.state = "damaged" if missing else "undecidable"
    elif rpc.failed:
        rpc.state = "error"
    else:
        rpc.state = "complete"
    if rpc.call is not None and rpc.reply is not None and not rpc.ambiguous:
        rpc.latency = latency(rpc, rpc.call.operation, rpc.reply.operation)


def _note_migration(rpc: Rpc) -> None:
    """Note why a message is missing: the queue pairs were on another path when it was sent."""
    migration = rpc.connection.migrated_to if rpc.reply is None else rpc.connection.migrated_from
    if migration is None or (rpc.reply is not None and rpc.call is not None):
        return
    there = " and ".join(migration.other)
    rpc.notes += (
        f"path migration in frame {migration.frame}: the queue pairs went on between {there}, maybe with its reply"
        if rpc.reply is None
        else f"path migration in frame {migration.frame}: the queue pairs were between {there}, maybe with its call",
    )


def _arrived_damaged(rpc: Rpc) -> list[str]:
    """The packets with a wrong ICRC during the RPC, whose contents are part of what is missing."""
    operations = rpc.data_operations
    first = min(operation.first_time for operation in operations)
    last = max(max(operation.last_time, operation.last_sent) for operation in operations)
    frames = [str(frame) for frame, time in rpc.connection.damaged if first <= time <= last]
    if not frames:
        return []
    listed = ", ".join(frames[:MAX_FRAMES]) + (", …" if len(frames) > MAX_FRAMES else "")
    return [f"arrived damaged, by a wrong ICRC: frame{'s' if len(frames) > 1 else ''} {listed}"]


def _contradictions(rpc: Rpc) -> list[str]:
    """Messages and chunk data that were retransmitted with other bytes: it is unknown which ones the receiver took."""
    sends = [
        f"{side}: frame {message.operation.contradicted} retransmits a packet of the Send with other bytes"
        for side, message in (("call", rpc.call), ("reply", rpc.reply))
        if message is not None and message.operation.contradicted
    ]
    return sends + [
        f"{_label(rpc, chunk)}: frame {operation.contradicted} retransmits a packet with other bytes"
        for chunk in rpc.chunks
        for use in chunk.segments
        for operation in use.operations
        if operation.contradicted
    ]


def _reused_psns(rpc: Rpc) -> Iterator[str]:
    """Notes on requests that reuse a PSN, so that the peer drops them (IBA 9.7.5.1.5)."""
    for operation in rpc.psn_errors:
        sent = (rpc.call, rpc.reply)
        name = next(
            (
                kind
                for kind, message in zip(("call", "reply"), sent, strict=True)
                if message and message.operation is operation
            ),
            "",
        )
        verb = f"the {name}'s Send" if name else f"the RDMA {operation.kind.name.title()}"
        yield (
            f"{verb} in frame {operation.first_frame} has the PSN of the request in frame {operation.reused}:"
            " its sender's error; its receiver takes it for a duplicate"
        )


def _label(rpc: Rpc, chunk: ChunkUse) -> str:
    if chunk.kind == "read":
        return f"Read chunk at Position {chunk.position}"
    if chunk.kind == "reply":
        return "Reply chunk"
    return f"Write chunk {[other for other in rpc.chunks if other.kind == 'write'].index(chunk) + 1}"


def _unsound(message: Message) -> bool:
    payload = message.operation.payload
    return (
        payload.seen != payload.length
        or payload.truncated
        or not message.operation.end_known
        or message.operation.contradicted != 0
        or message.header.problem != ""
        or message.header.procedure == RDMA_MSGP
    )


def _message_damage(rpc: Rpc, side: str, message: Message, damage: list[str]) -> None:
    operation, header = message.operation, message.header
    for start, end in operation.gaps:
        damage.append(f"{side}: bytes {start}-{end - 1} of the Send not captured")
    if not operation.end_known:
        damage.append(f"{side}: the end of the Send not captured")
    if operation.payload.truncated:
        rpc.contents = "truncated"
    elif header.problem and not header.truncated:
        damage.append(f"{side}: transport header: {header.problem}")
    if header.procedure == RDMA_MSGP:
        damage.append(f"{side}: {PADDED}")


def _chunk_damage(rpc: Rpc, damage: list[str]) -> None:
    assert rpc.call is not None and rpc.reply is not None
    header = rpc.reply.header
    if rpc.call.header.reads and header.procedure != RDMA_ERROR and not rpc.failed:
        _read_damage(rpc, rpc.call, [chunk for chunk in rpc.chunks if chunk.kind == "read"], damage)
    if header.writes:
        _writes_damage(rpc, header.writes, damage)
    reply_used = False
    if header.reply:
        for chunk in rpc.chunks:
            if chunk.kind == "reply" and chunk.returned:
                reply_used = True
                _write_damage(rpc, chunk, header.reply, None, "Reply chunk", damage)
    truncated = rpc.call.header.truncated or header.truncated
    if header.procedure == RDMA_NOMSG and not truncated and not reply_used:
        damage.append("reply: RDMA_NOMSG without a Reply chunk in use")


def _writes_damage(rpc: Rpc, returned: tuple[WriteChunk, ...], damage: list[str]) -> None:
    """Check Write chunks, the data of which the count words of the reply limit."""
    writes = [chunk for chunk in rpc.chunks if chunk.kind == "write"]
    used = [(number, length) for number, chunk in enumerate(writes[: len(returned)]) if (length := chunk.returned)]
    if not used:
        return
    places, problem = reply_items(rpc, _reduced_reply(rpc))
    counts = {number: count for _, number, count in places}
    for number, length in used:
        label, count = f"Write chunk {number + 1}", counts.get(number)
        if count is not None and length > count:
            rpc.notes += (f"{label} returned {length} bytes for {count} bytes of data: the rest is not data",)
        _write_damage(rpc, writes[number], returned[number], count, label, damage)
    if problem and rpc.contents == "whole":
        damage.append(f"reply: Write chunks cannot be put back: {problem}")


def _reduced_reply(rpc: Rpc) -> bytes:
    """The reply's Payload stream without its Write chunks, up to its first missing byte."""
    assert rpc.reply is not None
    if rpc.reply.header.procedure == RDMA_NOMSG:
        return reply_stream(rpc).prefix()
    return rpc.reply.data[rpc.reply.start : rpc.reply.end].tobytes()


def _read_damage(rpc: Rpc, call: Message, reads: list[ChunkUse], damage: list[str]) -> None:
    """Check Read chunks: bytes missing from the capture, and lengths that contradict the count word."""
    counts: dict[int, int] = {}
    if call.header.procedure == RDMA_MSG and not _counts_agree(call, reads):
        counts = call_counts(rpc, call.data[call.start : call.end])
    for chunk in reads:
        label = f"Read chunk at Position {chunk.position}"
        count = counts.get(chunk.position or 0)
        if count is not None and chunk.advertised > round_up(count):
            rpc.notes += (f"{label} has {chunk.advertised} bytes for {count} bytes of data: the rest is not data",)
        elif count is not None and chunk.advertised < count:
            damage.append(f"call: {label} has {chunk.advertised} bytes for {count} bytes of data")
        _coverage(rpc, chunk, label, damage, count)


def _counts_agree(call: Message, reads: list[ChunkUse]) -> bool:
    """Whether the word before each Position is the length of the chunk there, as nearly always."""
    shift = 0
    for chunk in reads:
        length, at = chunk.advertised, call.start + (chunk.position or 0) - shift - 4
        if not call.start <= at <= call.end - 4 or length not in ((count := word(call.data, at)[0]), round_up(count)):
            return False
        shift += round_up(length)
    return True


def _write_damage(
    rpc: Rpc, chunk: ChunkUse, returned: WriteChunk, count: int | None, label: str, damage: list[str]
) -> None:
    """Check a Write or Reply chunk; ``count``: how many of its first bytes are data, None for all that was returned."""
    first = chunk.segments[0].advertised.length if chunk.segments else 0
    if count is None or count > first:
        for use in chunk.segments:
            if use.returned and use.returned > use.advertised.length:
                damage.append(f"{label}: returned {use.returned} bytes of {use.advertised.length} advertised")
        if lost := sum([segment.length for segment in returned.segments[len(chunk.segments) :]]):
            damage.append(f"{label}: {lost} bytes returned in segments that are not known from the call")
    _coverage(rpc, chunk, label, damage, count)


def _coverage(rpc: Rpc, chunk: ChunkUse, label: str, damage: list[str], count: int | None = None) -> None:
    """Check that every byte that must have been transferred is captured; ``count``: of that many bytes of data."""
    at = 0
    left = chunk.advertised if count is None else count
    for use in chunk.segments:
        _, advertised, offset = use.advertised
        length = min(left, advertised if chunk.kind == "read" else min(advertised, use.returned or 0))
        left -= length
        reached = offset
        for operation in use.operations:
            end = operation.address + operation.length
            if end > reached >= operation.address and operation.payload.whole:
                reached = end
        if reached < offset + length:
            _missing(rpc, use, length, at, label, damage)
        at += length


def _missing(rpc: Rpc, use: SegmentUse, length: int, at: int, label: str, damage: list[str]) -> None:
    """Describe the missing bytes among a segment's first ``length``; ``at``: offset of the segment in its chunk."""
    offset = use.advertised.offset
    covered = IntervalSet()
    for operation in use.operations:
        if operation.payload.truncated:
            rpc.contents = "truncated"
        reached = operation.address
        for start, end in operation.gaps:
            covered.add(reached, operation.address + start)
            reached = operation.address + end
        covered.add(reached, operation.address + operation.length)
    why = CONTESTED if use.contested else f"{EARLY} ({_frames(use.doubtful)})" if use.doubtful else ABSENT
    for start, end in covered.missing(offset, offset + length):
        for first, last, late in _by_lateness(use, start, end):
            reason = f"{LATE} ({_frames(late)})" if late else why
            damage.append(f"{label}: bytes {at + first - offset}-{at + last - offset - 1} {reason}")


def _by_lateness(use: SegmentUse, start: int, end: int) -> Iterator[tuple[int, int, list[Operation]]]:
    """Split the addresses [start, end) by the RDMA Writes that came after the reply to each part."""
    covered = IntervalSet()
    for operation in use.late:
        covered.add(operation.address, operation.address + operation.length)
    absent = covered.missing(start, end)
    for low, high in [*absent, (end, end)]:
        if low > start:
            late = [write for write in use.late if write.address < low and write.address + write.length > start]
            yield start, low, late
        if high > low:
            yield low, high, []
        start = high


def _frames(operations: Sequence[Operation]) -> str:
    """The frames of these Operations, from first to last, in words."""
    first = min(operation.first_frame for operation in operations)
    last = max(operation.last_frame for operation in operations)
    return f"frame {first}" if first == last else f"frames {first}-{last}"
