"""Divides consecutive requests into messages, and makes Operations of these.

InfiniBand Architecture, volume 1, 9.4 (message segmentation) and 9.7.2 (opcode sequence).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from ...arrays import Bytes, Int64s, Rows, joined, places, some, take, unique
from ...layers import opcodes
from ...named_tuple import NamedTuple
from ...serial import PSN
from ..connection import Connection, raised
from ..operations import Delivered, Kind, Operation, Payload
from ..runs import EXTRA, IMMEDIATE, INVALIDATE, RECENT, TRANSFER, RecentOperations, Run, SendRun, TransferRun
from .lost_packets import ENDS, STARTS
from .reads import DEFAULT_MTU, FULL, READ_REQUEST, RcReads, any_of, contradictions

_KIND = np.full(256, int(Kind.SEND), np.uint8)
_KIND[opcodes.IS_WRITE] = Kind.WRITE
_KIND[opcodes.IS_READ_REQUEST] = Kind.READ
_KIND[opcodes.IS_ATOMIC] = Kind.ATOMIC
_SEND, _WRITE, _READ, _ATOMIC = (int(kind) for kind in Kind)
_KINDS = tuple(Kind)
SEND_ONLY = (_KIND == _SEND) & opcodes.IS_ONLY & ~opcodes.HAS_RETH
"""Opcodes of Sends of one packet."""

NOTHING: Mapping[int, int] = MappingProxyType({})


class _Again(NamedTuple):
    """Retransmitted requests, in ascending order of PSNs."""

    data: Bytes
    rows: Rows
    psns: Int64s
    before: int | None
    """PSN after the requests delivered by then; None if all of those were divided."""


class RequestAssembly:
    """Messages of one send queue.  Complete ones are appended to ``out`` or ``runs``."""

    __slots__ = (
        "_again",
        "_out",
        "_runs",
        "_taken",
        "_waiting",
        "columns",
        "connection",
        "order",
        "partial",
        "partial_contradictions",
        "partial_repeats",
        "partial_sent",
        "reads",
        "recent",
        "reused",
        "sender",
    )

    def __init__(self, connection: Connection, sender: int, reads: RcReads) -> None:
        self.connection = connection
        self.sender = sender
        self.reads = reads
        self.partial: Sequence[tuple[int, Bytes, Rows]] = ()
        """The packets of the incomplete message: PSN of the first row, bytes, rows."""
        self.partial_repeats = self.partial_sent = 0
        """Number of retransmitted packets of that message, and the time of the last one (ns)."""
        self.partial_contradictions: Mapping[int, int] = NOTHING
        self.recent = RecentOperations()
        """The last Operations delivered, in PSN order: repetitions are charged to them."""
        self.reused: dict[int, int] | None = None
        """By the PSN (24 bits) of a coming message's first packet: the frame that used this PSN before."""
        self.order = 0
        self._out: Delivered | None = None
        self.columns: Bytes | None = None
        """The batch's bytes if one-packet Sends and ordinary Reads and Writes in them go to ``runs``; else None."""
        self._waiting: Sequence[tuple[Bytes, Rows, Int64s, int]] = ()
        """Requests delivered but not divided, each with the ``order`` before it."""
        self._again: Sequence[_Again] = ()
        """Retransmitted requests that are not charged to their Operations so far."""
        self._runs: list[Run] | None = None
        self._taken = False

    @property
    def runs(self) -> Sequence[Run]:
        """Ordinary Operations that became complete."""
        return self._runs or ()

    @property
    def delivered(self) -> bool:
        """Whether any Operation became complete so far."""
        self.flush()
        return self._taken or bool(self._out or self._runs)

    @property
    def idle(self) -> bool:
        """Whether no message is open or waits to be taken."""
        open_messages = self._waiting or self._again or self.partial or self.partial_repeats
        return not (open_messages or self.reused or self._out or self._runs)

    def resume(self, order: int, delivered: bool) -> None:
        """Continue after what other code delivered: the last frame of it, and whether there was anything."""
        self.order, self._taken = order, delivered

    @property
    def out(self) -> Delivered:
        """Operations that became complete outside runs."""
        if self._out is None:
            self._out = []
        return self._out

    def passed(self, runs: list[Run], order: int, head: int, acked: int, remember: bool) -> None:
        """Note runs completed elsewhere, up to the PSN ``head``, the last of them in frame ``order``; see ``take``."""
        self._taken, self.order = True, order
        if remember:
            self.recent.add([], runs, head, acked)

    def take(self, head: int | None = None, acked: int = -1, remember: bool = True) -> tuple[Delivered, list[Run]]:
        """What became complete since the last call, up to the PSN ``head``: Operations in order, and runs.

        ``acked``: the PSN after the acknowledged requests.  ``remember``: repetitions may follow.
        """
        self._taken = self.delivered  # This divides what was delivered.
        out, self._out = self._out or [], None
        runs, self._runs = self._runs or [], None
        if self.reused:
            for _, operation in out:
                operation.reused = self.reused.pop(operation.psn, 0)
        if remember:
            self.recent.add(out, runs, head or 0, acked)
        return out, runs

    def gap(self, start: int, end: int, opcode: int) -> None:
        """PSNs [start, end) were sent but not captured; ``opcode``: of the next packet."""
        if self._waiting and STARTS[opcode] and ENDS[int(self._waiting[-1][1]["opcode"][-1])]:
            return
        self.flush()
        if not self.partial:
            return
        first_psn, _, first = self.partial[0]
        kind = int(_KIND[int(first["opcode"][0])])
        goes_on = not STARTS[opcode] and int(_KIND[opcode]) == kind
        if goes_on and kind == _WRITE and opcodes.HAS_RETH[int(first["opcode"][0])]:
            goes_on = end < first_psn + -(-int(first["dma_length"][0]) // self._mtu(first))
        elif goes_on:
            # One missing packet cannot be both the end of this message and the start of the next.
            goes_on = end - start == 1
        if not goes_on:
            self.close()

    def _mtu(self, rows: Rows) -> int:
        """The path MTU as the first packet of a message shows it, else the known one; a damaged packet may be empty."""
        shown = int(rows["length"][0]) if FULL[rows["opcode"][0]] else 0
        return shown or self.connection.path_mtu or DEFAULT_MTU

    def deliver(self, data: Bytes, rows: Rows, psns: Int64s) -> None:
        """Take a run of requests that follows the head; ``flush`` divides all such runs at once."""
        if self._waiting and self._waiting[0][0] is not data:
            self.flush()
        if not isinstance(self._waiting, list):
            self._waiting = []
        self._waiting.append((data, rows, psns, self.order))

    def flush(self) -> None:
        """Divide the delivered requests into messages, and charge retransmissions to them."""
        waiting, self._waiting = self._waiting, ()
        if waiting:
            order = self.order
            datas, rows, psns, orders = zip(*waiting, strict=True)
            self.order = orders[0]
            self._divide(datas[0], joined(rows), np.concatenate(psns), np.repeat(orders, [*map(len, rows)]))
            self.order = max(self.order, order)
        again, self._again = self._again, ()
        if again:
            self._charge(again)

    def _divide(self, data: Bytes, rows: Rows, psns: Int64s, orders: Int64s) -> None:
        """Divide requests into messages; ``orders``: by row, the place in the order of events that it follows."""
        opcode = rows["opcode"]
        starts = places(STARTS[opcode])
        ends = places(ENDS[opcode])
        kinds = _KIND[opcode]
        lead = len(rows) if not len(starts) else int(starts[0])
        if lead or self.partial:
            lead = self._continue(data, rows, psns, orders, lead)
        if lead == len(rows):
            return
        starts = starts[starts >= lead]
        ends = ends[ends >= lead]
        tail = len(rows)
        if len(ends) < len(starts):
            tail = int(starts[-1])
            starts = starts[:-1]
        legal = (
            len(starts) == len(ends)
            and not some(starts[1:] != ends[:-1] + 1)
            and (not len(starts) or (int(starts[0]) == lead and int(ends[-1]) == tail - 1))
            and not some((kinds[lead + 1 :] != kinds[lead:-1]) & ~STARTS[opcode[lead + 1 :]])
        )
        if legal:
            if len(starts):
                here = slice(lead, tail)
                self._emit_all(data, rows[here], psns[here], starts - lead, ends - lead, orders[here])
            if tail < len(rows):
                self._open((int(psns[tail]), data, rows[tail:]))
            return
        self._one_by_one(data, rows[lead:], psns[lead:], orders[lead:])

    def _continue(self, data: Bytes, rows: Rows, psns: Int64s, orders: Int64s, lead: int) -> int:
        """Continue the open message with the rows before the first message start; returns the index after them."""
        if not lead:
            self.close()
            return 0
        kind = _KIND[int((self.partial[0][2] if self.partial else rows)["opcode"][0])]
        ends = places(ENDS[rows["opcode"][:lead]])
        if len(ends) > 1 or (len(ends) and ends[0] != lead - 1) or (_KIND[rows["opcode"][:lead]] != kind).any():
            self._one_by_one(data, rows[:lead], psns[:lead], orders[:lead])
            return lead
        self.order = max(self.order, int(orders[lead - 1]))
        self._open((int(psns[0]), data, rows[:lead]))
        if len(ends):
            self._flush_partial()
        elif lead < len(rows):
            self.close()
        return lead

    def _open(self, part: tuple[int, Bytes, Rows]) -> None:
        """Add packets to the open message."""
        if not isinstance(self.partial, list):
            self.partial = []
        self.partial.append(part)

    def _one_by_one(self, data: Bytes, rows: Rows, psns: Int64s, orders: Int64s) -> None:
        """Take packets whose sequence of opcodes is illegal."""
        for index, (opcode, psn, order) in enumerate(
            zip(rows["opcode"].tolist(), psns.tolist(), orders.tolist(), strict=True)
        ):
            self.order = max(self.order, order)
            if STARTS[opcode] or (self.partial and _KIND[opcode] != _KIND[int(self.partial[0][2]["opcode"][0])]):
                self.close()
            self._open((psn, data, rows[index : index + 1]))
            if ENDS[opcode]:
                self._flush_partial()

    def _emit_all(
        self, data: Bytes, rows: Rows, psns: Int64s, starts: Int64s, ends: Int64s, orders: Int64s | None = None
    ) -> None:
        """Emit messages that lie wholly in ``rows``, as nearly all do."""
        frames = rows["frame"][ends]
        reached = np.maximum.accumulate(
            np.concatenate(([self.order], frames if orders is None else np.maximum(frames, orders[ends])))
        )
        self.order = int(reached[-1])
        reached, before = reached[1:], reached[:-1]
        if self.columns is data:
            left = ~self._as_rows(data, rows, psns, starts, ends, before, reached)
            if not some(left):
                return
            starts, ends, reached = starts[left], ends[left], reached[left]
        first = take(rows, starts)
        frames, times = first["frame"].tolist(), first["time"].tolist()
        last, last_frames, last_times, sums = first, frames, times, first["length"]
        if some(starts != ends):  # Some messages have several packets.
            last = take(rows, ends)
            last_frames, last_times = last["frame"].tolist(), last["time"].tolist()
            sums = _sums(rows["length"], starts, ends)
        kinds = _KIND[first["opcode"]]
        shorts = any_of(rows["captured"] < rows["length"], starts, ends + 1).tolist()
        lengths = np.where(opcodes.HAS_RETH[first["opcode"]], first["dma_length"], sums).tolist()
        out, sender = self.out, self.sender
        bare = self._bare(rows)
        for (
            kind,
            a,
            b,
            first_frame,
            frame,
            first_time,
            time,
            length,
            seen,
            truncated,
            handle,
            address,
            psn,
            word,
            which,
            offset,
            behind,
            order,
        ) in zip(
            kinds.tolist(),
            starts.tolist(),
            (ends + 1).tolist(),
            frames,
            last_frames,
            times,
            last_times,
            lengths,
            sums.tolist(),
            shorts,
            first["r_key"].tolist(),
            first["va"].tolist(),
            first["psn"].tolist(),
            last["immediate"].tolist(),
            EXTRA[last["opcode"]].tolist(),
            first["payload"].tolist(),
            (first["payload"] + first["captured"]).tolist(),
            reached.tolist(),
            strict=True,
        ):
            if kind == _READ:
                payload = Payload(length)
            else:
                only = (data, offset, behind) if kind == _SEND and b - a == 1 else None
                payload = Payload(length, seen, truncated, (data, rows, a, b), only)
            operation = Operation(
                _KINDS[kind],
                sender,
                first_frame,
                frame,
                first_time,
                time,
                length,
                payload,
                handle,
                address,
                psn,
                b - a,
            )
            if bare is not None and bare[a]:
                operation.start_known = False
            if bare is not None and bare[b - 1]:
                pass
            elif which == INVALIDATE:
                operation.invalidate = word
            elif which == IMMEDIATE:
                operation.immediate = word
            if kind == _WRITE and seen > length:
                payload.length = operation.length = seen
            out.append((order, operation))
        issued = places(kinds == _READ)
        if len(issued):
            for index, unwrapped in zip((issued - len(starts)).tolist(), psns[starts[issued]].tolist(), strict=True):
                self.reads.open(unwrapped, out[index][1])

    def _as_rows(
        self, data: Bytes, rows: Rows, psns: Int64s, starts: Int64s, ends: Int64s, before: Int64s, reached: Int64s
    ) -> Rows:
        """Put messages that rows can describe into ``runs``; returns which these are.

        ``before``, ``reached``: the place in the order of events of the previous message, and of each message.
        """
        opcode, length = rows["opcode"][starts], rows["dma_length"][starts]
        kinds, sums = _KIND[opcode], _sums(rows["length"], starts, ends)
        headed = ~any_of(rows["headers"] == 0, starts, ends + 1)
        sends: Rows = headed & SEND_ONLY[opcode]
        writes = (kinds == _WRITE) & opcodes.HAS_RETH[opcode] & (sums == length)
        moved: Rows = headed & (writes | (kinds == _READ)) & (length > 0) & (EXTRA[rows["opcode"][ends]] == 0)
        waited: Rows = reached == before
        ranks = None
        if some(waited) or some(reached != rows["frame"][ends]):
            # Rows come before everything else with the same place.
            ranks = np.arange(-len(reached), 0)
            group = np.cumsum(~waited)
            others = waited & ((group == 0) | (np.bincount(group, ~(sends | moved)) > 0)[group])
            sends, moved = sends & ~others, moved & ~others
        runs: list[Run] = [*self.runs]
        if some(sends):
            order = None if ranks is None else (reached[sends], ranks[sends])
            runs.append(SendRun(data, take(rows, starts[sends]), self.sender, None, order))
        if some(moved):
            run = TransferRun(data, rows, None, transfer_rows(rows, starts[moved], ends[moved]), self.sender)
            if ranks is not None:
                run.rows["place"], run.rows["rank"] = reached[moved], ranks[moved]
            runs.append(run)
            index = places(kinds[moved] == _READ)
            if len(index):
                self.reads.issue(run, index, psns[starts[moved][index]])
        self._runs = runs
        return sends | moved

    def _bare(self, rows: Rows) -> Rows | None:
        """Which packets the capture truncates within their headers; None for none."""
        bare: Rows = rows["headers"] == 0
        if not some(bare):
            return None
        unread = self.connection.unread_packets
        self.connection.unread_packets = raised(unread, self.sender, int(np.count_nonzero(bare)))
        return bare

    def emit(self, data: Bytes, rows: Rows, psn: int) -> None:
        """Emit one complete message."""
        zero = np.zeros(1, np.int64)
        self._emit_all(data, rows, psn + np.arange(len(rows)), zero, zero + len(rows) - 1)

    def _flush_partial(self) -> None:
        """Emit the open message, whose last packet came."""
        parts, self.partial = self.partial, ()
        psn, data, rows = parts[0]
        complete = bool(STARTS[int(rows["opcode"][0])])
        if complete and len(parts) == 1:
            self.emit(data, rows, psn)
        elif complete or rows["opcode"][0] not in (READ_REQUEST,):
            self._emit_parts(parts, start_known=complete, end_known=True)

    def close(self) -> None:
        """Emit the open message, which gets no more packets."""
        self.flush()
        if self.partial:
            parts, self.partial = self.partial, ()
            self._emit_parts(parts, start_known=bool(STARTS[int(parts[0][2]["opcode"][0])]), end_known=False)

    def _emit_parts(self, parts: Sequence[tuple[int, Bytes, Rows]], start_known: bool, end_known: bool) -> None:
        """Emit a message whose packets came in several runs, perhaps with gaps or without one of its ends."""
        psn, _, first = parts[0]
        _, _, last = parts[-1]
        kind = _KINDS[int(_KIND[int(first["opcode"][0])])]
        mtu = self._mtu(first)
        payload = Payload()
        packets = 0
        for part_psn, data, rows in parts:
            begins = (part_psn - psn) * mtu
            if packets and part_psn == psn + packets:
                begins = payload.seen
            payload.runs.append((begins, data, rows))
            packets += len(rows)
            seen = int(rows["length"].sum())
            payload.seen += seen
            payload.length = max(payload.length, begins + seen)
            payload.truncated = payload.truncated or bool((rows["captured"] < rows["length"]).any())
            self._bare(rows)
        has_address = bool(opcodes.HAS_RETH[int(first["opcode"][0])])
        if kind is Kind.WRITE and has_address:
            payload.length = max(payload.length, int(first["dma_length"][0]))
        operation = Operation(
            kind,
            self.sender,
            int(first["frame"][0]),
            int(last["frame"][-1]),
            int(first["time"][0]),
            int(last["time"][-1]),
            payload.length,
            payload,
            int(first["r_key"][0]) if has_address else 0,
            int(first["va"][0]) if has_address else 0,
            PSN.wrap(psn),
            packets,
            retransmissions=self.partial_repeats,
            start_known=start_known and bool(first["headers"][0]),
            end_known=end_known or (kind is Kind.WRITE and has_address),
        )
        last_opcode = int(last["opcode"][-1])
        if not last["headers"][-1]:
            pass
        elif opcodes.HAS_IETH[last_opcode]:
            operation.invalidate = int(last["immediate"][-1])
        elif opcodes.HAS_IMMDT[last_opcode]:
            operation.immediate = int(last["immediate"][-1])
        self._contradict(operation, self.partial_contradictions)
        operation.last_sent = self.partial_sent
        self.partial_repeats = self.partial_sent = 0
        self.partial_contradictions = NOTHING
        self.order = max(self.order, operation.last_frame)
        self.out.append((self.order, operation))

    def repeated(self, data: Bytes, rows: Rows, psns: Int64s) -> None:
        """Charge retransmitted packets, in ascending order of PSNs, to the Operations they belong to.

        Deferred to ``flush``: finding the Operations costs more than a packet, and dividing waiting requests even more.
        """
        if len(rows):
            before = int(self._waiting[-1][2][-1]) + 1 if self._waiting else None
            self._again = (*self._again, _Again(data, rows, psns, before))
            if before is None:
                self.flush()

    def _charge(self, again: Sequence[_Again]) -> None:
        recent = self.recent.with_fresh(self._out or [], self._runs or [])
        starts = PSN.unwrap_near(int(again[0].psns[0]), recent.psns)
        order = starts.argsort(kind="stable")
        starts = starts[order]
        mtu = self.connection.path_mtu or DEFAULT_MTU
        for data, rows, psns, before in again:
            behind = int(psns.searchsorted(self.partial[0][0])) if self.partial else len(rows)
            if len(of_partial := rows[behind:]):
                self.partial_repeats += len(of_partial)
                self.partial_sent = max(self.partial_sent, int(of_partial["time"].max()))
                contradicted = contradictions(self.partial, data, of_partial)
                self.partial_contradictions = {**self.partial_contradictions, **contradicted}
                rows, psns = rows[:behind], psns[:behind]
            owners = starts.searchsorted(psns, side="right") - 1
            known = len(starts) if before is None else int(starts.searchsorted(before))
            for owner in unique(owners[(owners >= max(0, known - RECENT)) & (owners < known)]).tolist():
                message = recent[int(order[owner])]
                mine = places((owners == owner) & (psns < starts[owner] + message.span(mtu)))
                if not len(mine):
                    continue
                operation = message.charged()
                operation.retransmissions += len(mine)
                operation.last_sent = max(operation.last_sent, int(rows["time"][mine].max()))
                if operation.kind in (Kind.SEND, Kind.WRITE):
                    self._contradict(operation, contradictions(operation.payload.runs, data, take(rows, mine)))

    def _contradict(self, operation: Operation, contradicted: Mapping[int, int]) -> None:
        operation.contradict(contradicted)
        self.connection.contradict(self.sender, contradicted.values())


def transfer_rows(rows: Rows, starts: Int64s, ends: Int64s) -> Rows:
    """TRANSFER rows of RDMA Writes, whose packets are [start, end], and of Reads, whose requests are."""
    first, last = take(rows, starts), take(rows, ends)
    transfers = np.zeros(len(starts), TRANSFER)
    transfers["place"] = transfers["last_frame"] = last["frame"]
    transfers["kind"] = kinds = _KIND[first["opcode"]]
    transfers["first_frame"], transfers["first_time"], transfers["last_time"] = (
        first["frame"],
        first["time"],
        last["time"],
    )
    transfers["length"], transfers["handle"], transfers["address"] = first["dma_length"], first["r_key"], first["va"]
    transfers["psn"], transfers["packets"] = first["psn"], ends - starts + 1
    transfers["first"], transfers["behind"] = starts, np.where(kinds == _READ, starts, ends + 1)
    transfers["offset"], transfers["begins"] = first["payload"], first["captured"]
    transfers["truncated"] = any_of(rows["captured"] < rows["length"], starts, ends + 1)
    return transfers


def _sums(values: Rows, starts: Int64s, ends: Int64s) -> Int64s:
    """The sums of ``values`` over [start, end]; these ranges ascend and are disjoint."""
    if len(starts) == len(values):  # Each is a single value.
        return values.astype(np.int64)
    before = np.zeros(len(values) + 1, np.int64)
    values.cumsum(out=before[1:])
    sums: Int64s = before[ends + 1] - before[starts]
    return sums
