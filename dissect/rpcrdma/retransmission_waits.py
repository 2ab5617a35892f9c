"""How long RPCs waited for retransmissions, and which part of their latency that was.

A wait is the overlap of an RPC's Operations with the recovery intervals of their connection and direction
(``transport.recoveries``); it is taken out of the part of the latency it falls into.  If the end of a burst is lost, no
later packet shows the loss, and if it was lost before the capture point, only the retransmission is captured: such a
loss is inferred from a pause as long as one of the sender's timers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from ..arrays import Int64s, Rows, every, places, some, stretches, unique
from ..named_tuple import NamedTuple
from ..transport.connection import Connection
from ..transport.operations import READ
from ..transport.retransmissions import (
    ANY_TIME,
    NO_WAITS,
    RESPONSES,
    InferredLoss,
    Recoveries,
    Silences,
    Spans,
    Timer,
    Waits,
    merged,
    spans_of,
)
from ..units import duration
from .chunk_columns import ranges
from .latency import phases
from .rpc_table import RpcRows
from .rpcs import Latency, Rpc

MAX_INFERRED = 1024
"""Inferred losses remembered per connection."""
SLACK = 0.125
"""Share of a timer's duration by which it may expire late: Linux timers, which rxe uses to retransmit, are up to an
eighth late."""
EARLY = 8_000_000
"""Nanoseconds by which a timer may expire early: two jiffies of 4 ms, as Linux rounds down to jiffies and the first has
already begun."""
MAX_LATE = 3
"""Expirations whose lateness adds up; with more, nearly any pause would match."""
SLACK_TCP = 0.3
"""As ``SLACK``, for TCP: its timers include the round trip and the delay of acknowledgements (RFC 6298, 2)."""


_NO_FRAMES = np.empty(0, np.int64)


class TransportWaits(Protocol):
    """What the health of a connection's transport provides."""

    @property
    def recoveries(self) -> Recoveries | None: ...

    def silences(self, sender: int) -> Silences: ...

    def timers(self, sender: int) -> list[Timer]: ...


class _Rpcs(NamedTuple):
    """Answered RPCs of one connection, a column each; int64."""

    number: Int64s
    replier: Int64s
    moments: Int64s
    """``LatencyMoments``, (8, n)."""
    frames: Int64s
    """First frame of the first RDMA Read, of the first RDMA Write (0 without one), of the reply; (3, n)."""


class _Result(NamedTuple):
    waited: Int64s
    """Nanoseconds that each RPC waited."""
    parts: Int64s
    """Nanoseconds taken out of call, reads, server, writes and reply, (5, n)."""


def charge_objects(rpcs: Sequence[Rpc], connection: Connection, transport: TransportWaits) -> None:
    """Charge RPC objects of one connection for their waits: sets ``retransmission_delay`` and changes ``latency``."""
    recoveries = transport.recoveries
    least = _least(transport)
    chosen = [rpc for rpc in rpcs if recoveries or (rpc.latency is not None and rpc.latency.server >= least)]
    waits = NO_WAITS
    if recoveries:
        waits = recoveries.waits(_spans(_object_spans(chosen)))
    waiting = {*waits.rpc.tolist()}
    timed = [
        at
        for at, rpc in enumerate(chosen)
        if rpc.latency is not None and (at in waiting or rpc.latency.server >= least)
    ]
    for at in waiting.difference(timed):
        mine = waits.rpc == at
        chosen[at].retransmission_delay = int((waits.end[mine] - waits.start[mine]).sum())
    if not timed:
        return
    charges = _charged(_object_columns([chosen[at] for at in timed]), _of(waits, timed), connection, transport)
    for index in places(charges.waited).tolist():
        rpc = chosen[timed[index]]
        assert rpc.latency is not None
        total, *parts, _ = rpc.latency
        rpc.retransmission_delay = waited = int(charges.waited[index])
        kept = [part - taken for part, taken in zip(parts, charges.parts[:, index].tolist(), strict=True)]
        call, reads, server, writes, reply = kept
        rpc.latency = Latency(total - sum(parts) + sum(kept) + waited, call, reads, server, writes, reply, waited)


def charge_rows(rpcs: RpcRows, transports: Callable[[int], TransportWaits]) -> None:
    """Charge row RPCs for their waits; ``transports`` gives the transport of a connection by its number."""
    connections, waited = rpcs.rows["connection"], rpcs.rows["latency_server"]
    order = connections.argsort(kind="stable")
    starts = stretches(connections[order])
    numbers, longest = connections[order[starts]].tolist(), np.maximum.reduceat(waited[order], starts).tolist()
    edges = [*starts.tolist(), len(order)]
    first_frames, last_frames = (
        _extents(rpcs) if any(transports(number).recoveries for number in numbers) else (_NO_FRAMES, _NO_FRAMES)
    )
    for number, limit, first, end in zip(numbers, longest, edges, edges[1:], strict=False):
        transport, mine = transports(number), order[first:end]
        least, recoveries = _least(transport), transport.recoveries
        if not recoveries and limit < least:
            continue
        wanted = waited[mine] >= least
        if recoveries:
            wanted |= recoveries.between(first_frames[mine], last_frames[mine])
        mine = mine[wanted]
        timed = rpcs.rows["latency"][mine] >= 0
        if some(timed):
            _charge_rows(rpcs, number, mine[timed], transport)
        if recoveries and not every(timed):
            _note_waits(rpcs, rpcs.rows, mine[~timed], recoveries)
    for number in unique(rpcs.alone["connection"]).tolist():
        if recoveries := transports(number).recoveries:
            _note_waits(rpcs, rpcs.alone, places(rpcs.alone["connection"] == number), recoveries)


def _extents(rpcs: RpcRows) -> tuple[Int64s, Int64s]:
    """The first and the last frame of each row's Operations."""
    call, reply = (rpcs.rows[name].astype(np.int64) for name in ("call_frame", "reply_frame"))
    first, last = np.minimum(call, reply), np.maximum(call, reply)
    rpc, (_, _, first_frames, last_frames, *_) = _transfers(rpcs, rpcs.rows)
    np.minimum.at(first, rpc, first_frames)
    np.maximum.at(last, rpc, last_frames)
    return first, last


def _note_waits(rpcs: RpcRows, rows: Rows, mine: Int64s, recoveries: Recoveries) -> None:
    """Note the waits of some of ``rows`` whose latency is unknown."""
    part = rows.take(mine)
    waits = recoveries.waits(_row_spans(part, _transfers(rpcs, part)))
    np.add.at(rows["latency_retransmission"], mine[waits.rpc], waits.end - waits.start)


def _charge_rows(rpcs: RpcRows, number: int, mine: Int64s, transport: TransportWaits) -> None:
    """Charge row RPCs ``mine`` of connection ``number`` for their waits."""
    rows = rpcs.rows
    part = rows.take(mine)
    transfers = _transfers(rpcs, part)
    moments, frames = _row_moments(part, transfers)
    replier = 1 - part["caller"].astype(np.int64)
    columns = _Rpcs(part["number"].astype(np.int64), replier, moments, frames)
    waits = NO_WAITS
    if recoveries := transport.recoveries:
        waits = recoveries.waits(_row_spans(part, transfers))
    charges = _charged(columns, waits, rpcs.conversations[number].connection, transport)
    at = places(charges.waited)
    rows["latency_retransmission"][mine[at]] = charges.waited[at]
    rows["latency"][mine[at]] += charges.waited[at] - charges.parts[:, at].sum(axis=0)
    for name, taken in zip(("call", "reads", "server", "writes", "reply"), charges.parts[:, at], strict=True):
        rows[f"latency_{name}"][mine[at]] -= taken


def _least(transport: TransportWaits) -> int:
    """Nanoseconds of the shortest pause that can be one of the timers."""
    return min(map(_shortest, (*transport.timers(0), *transport.timers(1))), default=ANY_TIME)


def _shortest(timer: Timer) -> int:
    """Nanoseconds of the shortest pause after which the timer may have expired."""
    return timer.duration - (0 if timer.doubles else EARLY)


# Columns of RPCs that are objects


def _object_spans(rpcs: Sequence[Rpc]) -> list[tuple[int, ...]]:
    spans: list[tuple[int, ...]] = []
    for index, rpc in enumerate(rpcs):
        reply = rpc.reply.operation if rpc.reply is not None else None
        for operation in rpc.data_operations:
            # The sender of the reply had received everything from the other end.
            answered = reply is not None and (operation.kind is READ or operation.initiator != reply.initiator)
            limit = reply.first_time if reply is not None and answered else ANY_TIME
            spans += [(index, *span, limit) for span in spans_of(operation)]
    return spans


def _spans(rows: list[tuple[int, ...]]) -> Spans:
    return Spans(*np.array(rows, np.int64).reshape(-1, len(Spans._fields)).T)


def _object_columns(rpcs: Sequence[Rpc]) -> _Rpcs:
    table: list[tuple[int, ...]] = []
    for rpc in rpcs:
        assert rpc.call is not None and rpc.reply is not None
        call, reply = rpc.call.operation, rpc.reply.operation
        operations = rpc.data_operations[2:]
        reads = [operation.first_frame for operation in operations if operation.kind is READ]
        writes = [operation.first_frame for operation in operations if operation.kind is not READ]
        first = min(reads, default=0), min(writes, default=0), reply.first_frame
        table.append((rpc.number, reply.initiator, *phases(rpc, call, reply), *first))
    columns = np.array(table, np.int64).reshape(-1, 13).T
    return _Rpcs(columns[0], columns[1], columns[2:10], columns[10:])


def _of(waits: Waits, chosen: Sequence[int]) -> Waits:
    """The waits of some RPCs, renumbered by their index in ``chosen``."""
    if not len(waits.rpc):
        return waits
    wanted = np.array(chosen, np.int64)
    at = wanted.searchsorted(waits.rpc).clip(0, max(0, len(wanted) - 1))
    kept = wanted[at] == waits.rpc if len(wanted) else np.zeros(len(at), np.bool_)
    return Waits(at[kept], waits.start[kept], waits.end[kept])


# Columns of rows


class _RowTransfers(NamedTuple):
    """The RDMA Reads and Writes of rows."""

    rpc: Int64s
    table: Int64s
    """``TransferOperations.moments``."""


def _transfers(rpcs: RpcRows, rows: Rows) -> _RowTransfers:
    with_chunks = places(rows["chunks"] >= 0)
    if rpcs.chunks is None or not len(with_chunks):
        return _RowTransfers(np.empty(0, np.int64), np.empty((7, 0), np.int64))
    chunks = rpcs.chunks
    segments, firsts = ranges(chunks.firsts, rows["chunks"][with_chunks].astype(np.int64))
    operations, used = ranges(chunks.used, segments)
    return _RowTransfers(np.repeat(with_chunks, np.diff(used[firsts])), chunks.found.moments(operations))


def _row_spans(rows: Rows, transfers: _RowTransfers) -> Spans:
    index = np.arange(len(rows))
    caller = rows["caller"].astype(np.int64)
    reply_time = rows["reply_time"].astype(np.int64)
    never, none = np.full(len(rows), ANY_TIME), np.zeros(len(rows), np.int64)
    call, reply = (
        (index, lane, *(rows[name].astype(np.int64) for name in names), none, limit)
        for lane, names, limit in (
            (caller, ("call_frame", "call_last_frame", "call_time", "call_end"), reply_time),
            (1 - caller, ("reply_first_frame", "reply_frame", "reply_time", "reply_end"), never),
        )
    )
    rpc, (initiator, reading, first_frame, last_frame, first, last, last_sent) = transfers
    limit = np.where(reading, reply_time[rpc], ANY_TIME)
    asked = np.where(reading, (first_frame, first, np.zeros_like(first)), (last_frame, last, last_sent))
    requests = rpc, initiator, first_frame, asked[0], first, *asked[1:], limit
    responses = rpc, initiator + RESPONSES, first_frame, last_frame, first, last, last_sent, limit
    answered = places(reading)
    parts = call, reply, requests, [column[answered] for column in responses]
    return Spans(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _row_moments(rows: Rows, transfers: _RowTransfers) -> tuple[Int64s, Int64s]:
    begin, sent, answering, end = (
        rows[name].astype(np.int64) for name in ("call_time", "call_end", "reply_time", "reply_end")
    )
    _, reading, first_frame, _, first, last, _ = transfers.table
    moments, frames = [begin, sent], []
    reached = sent
    for mine in (places(reading), places(reading == 0)):
        low, high, frame = np.full(len(rows), ANY_TIME), np.zeros(len(rows), np.int64), np.full(len(rows), ANY_TIME)
        rpc = transfers.rpc[mine]
        np.minimum.at(low, rpc, first[mine])
        np.maximum.at(high, rpc, last[mine])
        np.minimum.at(frame, rpc, first_frame[mine])
        there = high > 0
        low = np.where(there, low.clip(reached, answering), reached)
        high = np.where(there, high.clip(low, answering), reached)
        moments += [low, high]
        frames.append(np.where(there, frame, 0))
        reached = high
    frames.append(rows["reply_first_frame"].astype(np.int64))
    return np.stack([*moments, answering, end]), np.stack(frames)


# What is charged


def _charged(rpcs: _Rpcs, waits: Waits, connection: Connection, transport: TransportWaits) -> _Result:
    inferred = _inferred(rpcs, waits, connection, transport)
    if inferred:
        more = np.array(inferred, np.int64).reshape(-1, 3).T
        waits = merged(Waits(*(np.concatenate(columns) for columns in zip(waits, more, strict=True))))
    count = len(rpcs.number)
    waited = np.zeros(count, np.int64)
    parts = np.zeros((5, count), np.int64)
    rpc, start, end = waits
    np.add.at(waited, rpc, end - start)
    begin, sent, read, read_end, written, written_end, answering, finish = rpcs.moments
    for index, (low, high) in enumerate(
        ((begin, sent), (read, read_end), (begin, finish), (written, written_end), (answering, finish))
    ):
        np.add.at(parts[index], rpc, np.maximum(np.minimum(end, high[rpc]) - np.maximum(start, low[rpc]), 0))
    parts[2] -= parts[[0, 1, 3, 4]].sum(axis=0)
    return _Result(waited, parts)


def _inferred(
    rpcs: _Rpcs, waits: Waits, connection: Connection, transport: TransportWaits
) -> list[tuple[int, int, int]]:
    """RPC, begin and end of waits for packets that were lost before the capture point with no packet after them."""
    _, sent, read, read_end, written, written_end, answering, _ = rpcs.moments
    reads, writes, reply = rpcs.frames
    never = writes < 0
    pauses = (
        (sent, read, reads, never),
        (read_end, written, writes, never),
        (written_end, answering, reply, writes > 0),
    )
    inferred: list[tuple[int, int, int]] = []
    for sender in (0, 1):
        timers, silences = transport.timers(sender), transport.silences(sender)
        if not timers:
            continue
        recovering = transport.recoveries is not None and transport.recoveries.recovered[sender]
        least = min(map(_shortest, timers))
        for since, until, frames, posted in pauses:
            long = (until - since >= least) & (frames > 0) & (rpcs.replier == sender)
            for at in places(long).tolist():
                pause = _Pause(int(since[at]), int(until[at]), int(frames[at]), bool(posted[at]))
                known = (waits.rpc == at) & (waits.end < pause.until) & (waits.end > pause.since)
                if some(known):  # The retransmission itself may have been lost again.
                    pause = pause._replace(since=int(waits.end[known].max()))
                seen = _explained(pause, timers, silences, recovering)
                if seen is None:
                    continue
                waited, evidence, confidence = seen
                inferred.append((at, pause.until - waited, pause.until))
                loss = InferredLoss(
                    sender, int(rpcs.number[at]), pause.frame, pause.until - waited, pause.until, evidence, confidence
                )
                connection.inferred_losses = (*connection.inferred_losses, loss)[:MAX_INFERRED]
    return inferred


class _Pause(NamedTuple):
    since: int
    until: int
    frame: int
    """The frame that ended it."""
    posted: bool
    """That frame is of the Send posted together with the RDMA Writes before it."""


def _explained(
    pause: _Pause, timers: Sequence[Timer], silences: Silences, recovering: bool
) -> tuple[int, str, float] | None:
    """How much of a pause (ns) a timer explains, the evidence, and the confidence; None if no timer does."""
    before = silences.before(pause.frame)
    if before is None:
        return None
    silent, waited = pause.until - before, pause.until - pause.since
    candidates = []
    for timer in timers:
        expired, total = timer.times(min(waited, silent) + timer.duration - _shortest(timer))
        total = min(total, waited)
        rest = (waited - total) / timer.duration
        if expired and rest <= (1 if pause.posted else _slack(timer, expired)):
            candidates.append((rest, expired, total, timer))
    if not candidates:
        return None
    rest, expired, total, timer = min(candidates, key=lambda candidate: candidate[0])
    if timer.doubles and not pause.posted and not recovering:
        return None  # Servers often take 200 ms for other reasons than a timer.
    if pause.posted:
        confidence = 0.95 if rest <= _slack(timer, expired) else 0.8
    else:
        confidence = (0.85 if recovering else 0.75) - 0.1 * (min(expired, MAX_LATE) - 1)
    times = "" if expired == 1 else f", {expired} times" if not timer.doubles else f", doubled {expired - 1} times"
    evidence = f"nothing sent for {duration(waited)} before frame {pause.frame}: {timer.name}{times}"
    if pause.posted:
        evidence += "; between RDMA Writes and the Send posted with them no server works"
    return total, evidence, confidence


def _slack(timer: Timer, expired: int) -> float:
    """Share of the timer's duration by which the pause may be longer, as each expiration can be late."""
    return SLACK_TCP if timer.doubles else SLACK * min(expired, MAX_LATE)
