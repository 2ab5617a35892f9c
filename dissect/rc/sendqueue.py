"""One send queue as an observer sees it: requests one way, their responses the other way, one space of PSNs.

Requests are delivered in PSN order.  What is in order is found with NumPy and becomes Operations at once; Python
looks only at runs that begin somewhere else than expected: a hole (lost on the wire, or only in the capture), a
repetition, a start in mid-stream.  IBA volume 1, 9.7 (requester and responder) and 9.9 (go-back-N).
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

import numpy as np

from ..connection import Connection
from ..frames import Bytes, Int64s, Rows
from ..intervals import IntervalSet
from ..layers import opcodes
from ..operations import Kind, Operation, Payload
from .psn import MODULUS, unwrap, unwrap_all

GRACE_PACKETS = 256
"""So many packets of the connection after proof that a packet existed, it is taken as missing from the capture:
captures reorder neighbours, not whole stretches."""
HELD_PACKETS = 1 << 16
"""Without any proof, so many packets wait behind a hole before it is given up."""
RESTART = 1 << 16
"""A step back of more PSNs than can be outstanding is no repetition: the queue pair number was used again."""
RECENT = 1024
"""Operations among which a repeated packet is looked for."""
OPEN_READS = 4096
"""More RDMA Reads than this cannot be outstanding; the oldest are given up."""

DEFAULT_MTU = 4096
PATH_MTUS = tuple(opcodes.PATH_MTU.values())

_STARTS = opcodes.IS_FIRST | opcodes.IS_ONLY
_ENDS = opcodes.IS_LAST | opcodes.IS_ONLY
_READ_REQUEST = 0x0C
_KIND = np.full(256, int(Kind.SEND), np.uint8)
_KIND[opcodes.IS_WRITE] = Kind.WRITE
_KIND[opcodes.IS_READ_REQUEST] = Kind.READ
_KIND[opcodes.IS_ATOMIC] = Kind.ATOMIC
_SEND, _WRITE, _READ, _ATOMIC = (int(kind) for kind in Kind)
_KINDS = tuple(Kind)
_FULL = opcodes.IS_FIRST | opcodes.IS_MIDDLE

Delivered = list[tuple[int, Operation]]
"""Operations with the frame in whose place they stand in the order of events."""


class _OpenRead:
    """An RDMA Read whose responses are not all there: PSNs [start, end)."""

    __slots__ = ("complete", "end", "operation", "overdue", "seen", "start")

    def __init__(self, start: int, end: int, operation: Operation) -> None:
        self.start, self.end, self.operation = start, end, operation
        self.seen = IntervalSet()
        self.complete = False
        self.overdue = 0
        """Packet count at which a later response proved that its own had been sent; 0 while none has."""


class _Held(NamedTuple):
    """Requests with PSNs [start, end) behind a hole."""

    start: int
    end: int
    data: Bytes
    rows: Rows
    psns: Int64s
    frame: int


class SendQueue:
    """What endpoint ``sender`` of a connection initiates."""

    def __init__(self, connection: Connection, sender: int, start_psn: int | None = None) -> None:
        self.connection = connection
        self.sender = sender
        self.head: int | None = start_psn
        """Unwrapped PSN of the next request to deliver; None until one was seen."""
        self.base = start_psn
        """The first PSN known; what lies before it was sent before the capture began."""
        self.before_base = IntervalSet()
        self.acked = -1
        """Unwrapped PSN up to which (exclusively) the responder acknowledged; -1 for none."""
        self.held: list[_Held] = []
        """Runs that wait behind a hole, ascending, disjoint."""
        self.held_packets = 0
        self.partial: list[tuple[int, Bytes, Rows]] = []
        """Packets of the message that is not yet complete: PSN of the first row, rows."""
        self.partial_repeats = 0
        self.recent: list[Operation] = []
        """What was delivered last, in PSN order: repetitions are charged to it."""
        self.reads: list[_OpenRead] = []
        self.packets = 0
        """Packets of the connection so far, the clock of the grace period."""
        self.hole_proved = 0
        self.order = 0
        self.out: Delivered = []

    def feed(self, data: Bytes, requests: Rows, responses: Rows, seen_packets: int) -> Delivered:
        """Take the queue's packets of one batch, in capture order; give what became complete.

        ``seen_packets`` counts the packets of the whole connection, this batch included.
        """
        self.out = []
        self.packets = seen_packets
        self._learn_mtu(requests, responses)
        if len(requests):
            self._requests(data, requests)
        if len(responses) and self.head is not None:
            self._responses(data, responses)
        self._settle()
        self._remember()
        return self.out

    def finish(self) -> Delivered:
        """The capture or the connection is over: what waits will not be completed."""
        self.out = []
        self._give_up()
        return self.out

    def waiting_since(self) -> int | None:
        """Frame number of the first packet that waits behind a hole."""
        return min((held.frame for held in self.held), default=None)

    def _remember(self) -> None:
        fresh = [operation for _, operation in self.out[-RECENT:]]
        self.recent = [*self.recent[len(fresh) - RECENT :], *fresh] if len(fresh) < RECENT else fresh

    # Path MTU

    def _learn_mtu(self, requests: Rows, responses: Rows) -> None:
        """First and Middle packets are exactly as long as the path MTU (IBA 9.7.2.1)."""
        for rows in (requests, responses):
            full = rows["length"][_FULL[rows["opcode"]]]
            if len(full):
                longest = int(full.max())
                if longest in PATH_MTUS:
                    self.connection.path_mtu = longest
                    return
        if self.connection.path_mtu is None and len(requests):
            self._guess_mtu(requests)

    def _guess_mtu(self, requests: Rows) -> None:
        """A Read takes as many PSNs as its response has packets: the step to the next request tells."""
        reads = np.flatnonzero(requests["opcode"][:-1] == _READ_REQUEST)
        for index in reads.tolist():
            length = int(requests["dma_length"][index])
            step = (int(requests["psn"][index + 1]) - int(requests["psn"][index])) % MODULUS
            for mtu in PATH_MTUS:
                if length > mtu and -(-length // mtu) == step:
                    self.connection.path_mtu = mtu
                    return

    # Requests

    def _spans(self, rows: Rows) -> Int64s:
        """PSNs that each request takes: one, or as many as the response of a Read has packets."""
        spans = np.ones(len(rows), np.int64)
        reads = np.flatnonzero(rows["opcode"] == _READ_REQUEST)
        if len(reads):
            mtu = self.connection.path_mtu or DEFAULT_MTU
            spans[reads] = np.maximum(1, -(-rows["dma_length"][reads].astype(np.int64) // mtu))
        return spans

    def _requests(self, data: Bytes, rows: Rows) -> None:
        reference = self.head if self.head is not None else int(rows["psn"][0])
        psns = unwrap_all(reference, rows["psn"])
        ends = psns + self._spans(rows)
        breaks = np.flatnonzero(psns[1:] != ends[:-1]) + 1
        edges = [0, *breaks.tolist(), len(rows)]
        for first, last in zip(edges, edges[1:], strict=False):
            self._run(int(psns[first]), int(ends[last - 1]), data, rows[first:last], psns[first:last])

    def _run(self, start: int, end: int, data: Bytes, rows: Rows, psns: Int64s) -> None:
        """Requests without a hole between them, PSNs [start, end)."""
        if self.head is None:
            self.head = self.base = start
        if start < self.head - RESTART:
            self._restart(start)
        if self.base is not None and start < self.base:
            before = int(np.searchsorted(psns, self.base))
            self._before_base(data, rows[:before], psns[:before])
            rows, psns = rows[before:], psns[before:]
            if not len(rows):
                return
            start = int(psns[0])
        if start < self.head:
            known = int(np.searchsorted(psns, self.head))
            self._repeated(data, rows[:known], psns[:known])
            rows, psns = rows[known:], psns[known:]
            if not len(rows):
                return
            start = int(psns[0])
        if start == self.head:
            self._deliver(data, rows, start)
            self.head = end
            self._resume(int(rows["frame"][-1]))
        else:
            self._hold(start, end, data, rows, psns)

    def _give_up(self) -> None:
        while self.held:
            self._skip_hole()
        self._close_partial()
        for read in self.reads:
            read.operation.closed = True
        self.reads.clear()

    def _restart(self, start: int) -> None:
        self._give_up()
        self.head = self.base = start
        self.acked = -1
        self.before_base = IntervalSet()

    def _before_base(self, data: Bytes, rows: Rows, psns: Int64s) -> None:
        """Packets older than the first one: reordered, or repetitions of what the capture missed."""
        for index, psn in enumerate(psns.tolist()):
            if not self.before_base.add(psn, psn + 1):
                self.connection.retransmitted_packets[self.sender] += 1
                continue
            row = rows[index : index + 1]
            opcode = int(row["opcode"][0])
            if _STARTS[opcode] and _ENDS[opcode]:
                self._emit(data, row, psn)

    def _hold(self, start: int, end: int, data: Bytes, rows: Rows, psns: Int64s) -> None:
        """Keep what lies behind a hole; PSNs that are held already are repetitions."""
        place = bisect_right(self.held, start, key=_held_start)
        before = self.held[place - 1].end if place else start
        after = self.held[place].start if place < len(self.held) else end
        if before > start or after < end:
            self._hold_parts(end, data, rows, psns)
            return
        self.held.insert(place, _Held(start, end, data, rows, psns, int(rows["frame"][0])))
        self.held_packets += len(rows)
        if self.held_packets > HELD_PACKETS:
            self._skip_hole()

    def _hold_parts(self, end: int, data: Bytes, rows: Rows, psns: Int64s) -> None:
        """Hold what of ``rows`` is not held yet."""
        starts = np.array([held.start for held in self.held])
        ends = np.array([held.end for held in self.held])
        owner = np.searchsorted(starts, psns, side="right") - 1
        known = (owner >= 0) & (psns < ends[owner])
        self._count_repeats(rows[known], psns[known])
        spans = np.append(psns[1:], end)
        edges = np.flatnonzero(np.diff(np.concatenate(([0], (~known).astype(np.int8), [0])))).tolist()
        for a, b in zip(edges[::2], edges[1::2], strict=True):
            self._hold(int(psns[a]), int(spans[b - 1]), data, rows[a:b], psns[a:b])

    def _take_held(self) -> _Held:
        held = self.held.pop(0)
        self.held_packets -= len(held.rows)
        return held

    def _resume(self, frame: int) -> None:
        """The head moved: deliver what waited for it."""
        self.hole_proved = 0
        while self.held and self.head is not None and self.held[0].start <= self.head:
            held = self._take_held()
            self.order = max(self.order, frame)
            known = int(np.searchsorted(held.psns, self.head))
            self._count_repeats(held.rows[:known], held.psns[:known])
            if known == len(held.rows):
                continue
            start = int(held.psns[known])
            if start > self.head:
                self._hold(start, held.end, held.data, held.rows[known:], held.psns[known:])
                return
            self._deliver(held.data, held.rows[known:], start)
            self.head = held.end

    def _skip_hole(self) -> None:
        """Give up the hole before the first held run: the packets in it are not in the capture."""
        assert self.head is not None
        held = self._take_held()
        if held.start - self.head <= RESTART:
            self.connection.missing_packets[self.sender] += held.start - self.head
        self._gap(self.head, held.start, int(held.rows["opcode"][0]))
        self._deliver(held.data, held.rows, held.start)
        self.head = held.end
        self._resume(held.frame)

    def _gap(self, start: int, end: int, opcode: int) -> None:
        """PSNs [start, end) were sent but not captured; the packet behind them has ``opcode``."""
        if not self.partial:
            return
        first_psn, _, first = self.partial[0]
        kind = int(_KIND[int(first["opcode"][0])])
        goes_on = not _STARTS[opcode] and int(_KIND[opcode]) == kind
        if goes_on and kind == _WRITE and opcodes.HAS_RETH[int(first["opcode"][0])]:
            mtu = self.connection.path_mtu or DEFAULT_MTU
            goes_on = end < first_psn + -(-int(first["dma_length"][0]) // mtu)
        elif goes_on:
            # One packet cannot be both the end of this message and the start of the next.
            goes_on = end - start == 1
        if not goes_on:
            self._close_partial()

    # Messages

    def _deliver(self, data: Bytes, rows: Rows, start: int) -> None:
        """Cut a run of requests that follows the head into messages."""
        opcode = rows["opcode"]
        starts = np.flatnonzero(_STARTS[opcode])
        ends = np.flatnonzero(_ENDS[opcode])
        kinds = _KIND[opcode]
        lead = len(rows) if not len(starts) else int(starts[0])
        if lead or self.partial:
            lead = self._continue(data, rows, start, lead)
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
            and bool((starts[1:] == ends[:-1] + 1).all())
            and (not len(starts) or (int(starts[0]) == lead and int(ends[-1]) == tail - 1))
            and bool((kinds[lead + 1 :] == kinds[lead:-1])[~_STARTS[opcode[lead + 1 :]]].all())
        )
        psns = start + np.arange(len(rows)) if not (kinds == _READ).any() else unwrap_all(start, rows["psn"])
        if legal:
            if len(starts):
                self._emit_all(data, rows, psns, starts, ends)
            if tail < len(rows):
                self.partial.append((int(psns[tail]), data, rows[tail:]))
            return
        for index in range(lead, len(rows)):
            self._one(data, rows[index : index + 1], int(psns[index]))

    def _continue(self, data: Bytes, rows: Rows, start: int, lead: int) -> int:
        """Rows before the first message start continue the open message; the index behind what they took."""
        if not lead:
            self._close_partial()
            return 0
        kind = _KIND[int((self.partial[0][2] if self.partial else rows)["opcode"][0])]
        ends = np.flatnonzero(_ENDS[rows["opcode"][:lead]])
        if (
            len(ends) > 1
            or (len(ends) and ends[0] != lead - 1)
            or (_KIND[rows["opcode"][:lead]] != kind).any()
        ):
            for index in range(lead):
                self._one(data, rows[index : index + 1], start + index)
            return lead
        self.partial.append((start, data, rows[:lead]))
        if len(ends):
            self._flush_partial()
        elif lead < len(rows):
            self._close_partial()
        return lead

    def _one(self, data: Bytes, row: Rows, psn: int) -> None:
        """One packet where the sequence of opcodes is not a legal one."""
        opcode = int(row["opcode"][0])
        if _STARTS[opcode]:
            self._close_partial()
        elif self.partial and _KIND[opcode] != _KIND[int(self.partial[0][2]["opcode"][0])]:
            self._close_partial()
        self.partial.append((psn, data, row))
        if _ENDS[opcode]:
            self._flush_partial()

    def _emit_all(self, data: Bytes, rows: Rows, psns: Int64s, starts: Int64s, ends: Int64s) -> None:
        """Messages that lie wholly in ``rows``, the bulk of all traffic."""
        first, last = rows[starts], rows[ends]
        opcode = first["opcode"]
        kinds = _KIND[opcode]
        sums = np.add.reduceat(rows["length"], starts).tolist() if len(rows) else []
        cut = rows["captured"] < rows["length"]
        cuts = np.logical_or.reduceat(cut, starts).tolist() if cut.any() else [False] * len(starts)
        moved = (kinds == _WRITE) | (kinds == _READ)
        lengths = np.where(moved, first["dma_length"], sums).tolist()
        last_opcode = last["opcode"]
        extra = np.where(
            opcodes.HAS_IETH[last_opcode], 1, np.where(opcodes.HAS_IMMDT[last_opcode], 2, 0)
        ).tolist()
        out, sender, order = self.out, self.sender, self.order
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
            captured,
        ) in zip(
            kinds.tolist(),
            starts.tolist(),
            (ends + 1).tolist(),
            first["frame"].tolist(),
            last["frame"].tolist(),
            first["time"].tolist(),
            last["time"].tolist(),
            lengths,
            sums,
            cuts,
            first["r_key"].tolist(),
            first["va"].tolist(),
            psns[starts].tolist(),
            last["immediate"].tolist(),
            extra,
            first["payload"].tolist(),
            first["captured"].tolist(),
            strict=True,
        ):
            if kind == _READ:
                payload = Payload(length)
            else:
                payload = Payload(length, seen, truncated, [(0, data, rows[a:b])])
                if b - a == 1:
                    payload.only = data, offset, offset + captured
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
                psn % MODULUS,
                b - a,
            )
            if which == 1:
                operation.invalidate = word
            elif which == 2:
                operation.immediate = word
            if kind == _READ:
                self._open_read(psn, operation)
            elif kind == _WRITE and seen > length:
                payload.length = operation.length = seen
            if frame > order:
                order = frame
            out.append((order, operation))
        self.order = order

    def _emit(self, data: Bytes, rows: Rows, psn: int) -> None:
        """One complete message in ``rows``."""
        zero = np.zeros(1, np.int64)
        self._emit_all(data, rows, psn + np.arange(len(rows)), zero, zero + len(rows) - 1)

    def _flush_partial(self) -> None:
        """The open message has its last packet."""
        parts, self.partial = self.partial, []
        psn, data, rows = parts[0]
        complete = bool(_STARTS[int(rows["opcode"][0])])
        if complete and len(parts) == 1:
            self._emit(data, rows, psn)
        elif complete or rows["opcode"][0] not in (_READ_REQUEST,):
            self._emit_parts(parts, start_known=complete, end_known=True)

    def _close_partial(self) -> None:
        """The open message gets no more packets."""
        if self.partial:
            parts, self.partial = self.partial, []
            self._emit_parts(parts, start_known=bool(_STARTS[int(parts[0][2]["opcode"][0])]), end_known=False)

    def _emit_parts(self, parts: list[tuple[int, Bytes, Rows]], start_known: bool, end_known: bool) -> None:
        """A message whose packets came in several runs, perhaps with holes or without one of its ends."""
        psn, _, first = parts[0]
        _, _, last = parts[-1]
        kind = _KINDS[int(_KIND[int(first["opcode"][0])])]
        mtu = self.connection.path_mtu or DEFAULT_MTU
        payload = Payload()
        for part_psn, data, rows in parts:
            place = (part_psn - psn) * mtu
            if payload.runs and part_psn == psn + sum(len(run) for _, _, run in payload.runs):
                place = payload.seen
            payload.runs.append((place, data, rows))
            seen = int(rows["length"].sum())
            payload.seen += seen
            payload.length = max(payload.length, place + seen)
            payload.truncated = payload.truncated or bool((rows["captured"] < rows["length"]).any())
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
            psn % MODULUS,
            sum(len(rows) for _, _, rows in parts),
            start_known=start_known,
            end_known=end_known or (kind is Kind.WRITE and has_address),
        )
        last_opcode = int(last["opcode"][-1])
        if opcodes.HAS_IETH[last_opcode]:
            operation.invalidate = int(last["immediate"][-1])
        elif opcodes.HAS_IMMDT[last_opcode]:
            operation.immediate = int(last["immediate"][-1])
        self.order = max(self.order, operation.last_frame)
        self.out.append((self.order, operation))

    # Reads and their responses

    def _open_read(self, psn: int, operation: Operation) -> None:
        operation.closed = False
        mtu = self.connection.path_mtu or DEFAULT_MTU
        span = max(1, -(-operation.length // mtu))
        self.reads.insert(
            bisect_right(self.reads, psn, key=_read_start), _OpenRead(psn, psn + span, operation)
        )
        if len(self.reads) > OPEN_READS:
            self.reads.pop(0).operation.closed = True

    def _responses(self, data: Bytes, rows: Rows) -> None:
        assert self.head is not None
        psns = unwrap_all(unwrap(self.head, int(rows["psn"][0])), rows["psn"])
        opcode = rows["opcode"]
        positive = opcodes.IS_READ_RESPONSE[opcode] | opcodes.IS_ATOMIC_RESPONSE[opcode]
        positive |= opcodes.IS_ACKNOWLEDGE[opcode] & (rows["syndrome"] >> 5 == 0)
        if positive.any():
            self.acked = max(self.acked, min(int(psns[positive].max()) + 1, self._furthest()))
        carrying = np.flatnonzero(opcodes.IS_READ_RESPONSE[opcode])
        if len(carrying):
            self._read_responses(data, rows[carrying], psns[carrying])

    def _furthest(self) -> int:
        """No PSN from here on was seen sent: an acknowledgement beyond it is not of this queue."""
        assert self.head is not None
        return max(self.head, self.held[-1].end if self.held else 0)

    def _read_responses(self, data: Bytes, rows: Rows, psns: Int64s) -> None:
        if not self.reads:
            return
        starts = np.array([read.start for read in self.reads])
        owners = np.searchsorted(starts, psns, side="right") - 1
        edges = np.flatnonzero((psns[1:] != psns[:-1] + 1) | (owners[1:] != owners[:-1])) + 1
        finished = False
        reads = self.reads
        for a, b in zip([0, *edges.tolist()], [*edges.tolist(), len(rows)], strict=True):
            owner = int(owners[a])
            if owner < 0:
                continue
            read = reads[owner]
            low, high = int(psns[a]), int(psns[b - 1]) + 1
            if low >= read.end:
                continue
            if high > read.end:
                b -= high - read.end
                high = read.end
            finished = self._take_response(read, low, high, data, rows[a:b]) or finished
        if finished:
            self.reads = [read for read in reads if not read.complete]

    def _take_response(self, read: _OpenRead, low: int, high: int, data: Bytes, rows: Rows) -> bool:
        """Responses with PSNs [low, high) of one Read; True where they complete it."""
        operation, mtu = read.operation, self.connection.path_mtu or DEFAULT_MTU
        fresh = read.seen.add(low, high)
        repeated = high - low - sum(end - start for start, end in fresh)
        if repeated:
            operation.retransmissions += repeated
            operation.last_sent = int(rows["time"][-1])
            self.connection.retransmitted_packets[1 - self.sender] += repeated
        payload = operation.payload
        for start, end in fresh:
            part = rows[start - low : end - low]
            lengths = part["length"]
            if len(part) > 1 and not bool((lengths[:-1] == mtu).all()):
                # A response of another size than the path MTU would shift what follows it: place each by its PSN.
                for index in range(len(part)):
                    payload.runs.append(((start + index - read.start) * mtu, data, part[index : index + 1]))
            else:
                payload.runs.append(((start - read.start) * mtu, data, part))
            payload.seen += int(lengths.sum())
            payload.truncated = payload.truncated or bool((part["captured"] < lengths).any())
            operation.last_frame = max(operation.last_frame, int(part["frame"][-1]))
            operation.last_time = max(operation.last_time, int(part["time"][-1]))
            operation.packets += len(part)
        if (
            fresh
            and len(read.seen.starts) == 1
            and read.seen.starts[0] == read.start
            and read.seen.ends[0] == read.end
        ):
            operation.closed = read.complete = True
        return read.complete

    # Repetitions and holes

    def _repeated(self, data: Bytes, rows: Rows, psns: Int64s) -> None:
        """Requests seen before: sent again, or copied by the network."""
        self._count_repeats(rows, psns)
        for index in np.flatnonzero(rows["opcode"] == _READ_REQUEST).tolist():
            place = bisect_right(self.reads, int(psns[index]), key=_read_start) - 1
            if place >= 0 and psns[index] < self.reads[place].end:
                self.reads[place].overdue = 0

    def _count_repeats(self, rows: Rows, psns: Int64s) -> None:
        """Charge repeated packets to the Operations they belong to."""
        if not len(rows):
            return
        self.connection.retransmitted_packets[self.sender] += len(rows)
        reference = int(psns[0])
        if self.partial and reference >= self.partial[0][0]:
            self.partial_repeats += len(rows)
            return
        recent = self.recent[-RECENT:] + [operation for _, operation in self.out[-RECENT:]]
        if not recent:
            return
        starts = unwrap_all(reference, np.array([operation.psn for operation in recent]))
        owners = np.searchsorted(starts, psns, side="right") - 1
        for owner in np.unique(owners[owners >= 0]).tolist():
            mine = owners == owner
            recent[owner].retransmissions += int(mine.sum())
            recent[owner].last_sent = max(recent[owner].last_sent, int(rows["time"][mine].max()))

    def _settle(self) -> None:
        """Holes and Reads whose packets provably existed are given up after the grace period."""
        while self.held and self.head is not None and self.acked > self.head:
            if not self.hole_proved:
                self.hole_proved = self.packets
            if self.packets - self.hole_proved < GRACE_PACKETS:
                break
            self._skip_hole()
        for read in self.reads:
            if self.acked < read.end:
                break
            if not read.overdue:
                read.overdue = self.packets
            elif self.packets - read.overdue >= GRACE_PACKETS:
                read.operation.closed = True


def _held_start(held: _Held) -> int:
    return held.start


def _read_start(read: _OpenRead) -> int:
    return read.start
