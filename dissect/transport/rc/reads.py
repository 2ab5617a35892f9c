"""RDMA Reads and their responses: the PSN of a response gives its place (IBA volume 1, 9.7.5.1)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from ...arrays import Bytes, Int64s, Rows, among, places, some, take
from ...intervals import IntervalSet
from ...layers import opcodes
from ...named_tuple import NamedTuple
from ...serial import PSN
from ..connection import Connection, raised
from ..operations import Operation
from ..runs import TransferRun
from .lost_packets import GRACE_PACKETS, Acknowledged, PacketClock

MAX_RUNS = 16
"""Runs of packets to search for the first transmission."""


def contradictions(runs: Sequence[tuple[int, Bytes, Rows]], data: Bytes, rows: Rows) -> dict[int, int]:
    """Which of ``rows`` have another payload than their first transmission: that one's frame, and theirs.

    ``rows`` retransmit packets of ``runs``, each of which is in PSN order without a gap.  ``rows`` must not have
    damaged packets: their receiver drops them."""
    others: dict[int, int] = {}
    if len(runs) > MAX_RUNS:
        return others
    firsts = [int(run["psn"][0]) for _, _, run in runs]
    for psn, frame, length, captured, start in zip(
        rows["psn"].tolist(),
        rows["frame"].tolist(),
        rows["length"].tolist(),
        rows["captured"].tolist(),
        rows["payload"].tolist(),
        strict=True,
    ):
        for first, (_, where, run) in zip(firsts, runs, strict=True):
            index = PSN.distance(first, psn)
            if index >= len(run):
                continue
            response = run[index]
            known = min(captured, int(response["captured"]))
            payload = int(response["payload"])
            same = data[start : start + known].tobytes() == where[payload : payload + known].tobytes()
            if (
                int(response["psn"]) == psn
                and int(response["frame"]) != frame
                and (length != int(response["length"]) or not same)
            ):
                others.setdefault(int(response["frame"]), frame)
            break
    return others


READ_REQUEST = 0x0C
DEFAULT_MTU = 4096
KEPT = 64
"""Complete Reads remembered to recognise repeated responses."""
OPEN_READS = 4096
"""RDMA Reads kept open: more cannot be outstanding, so the oldest are given up."""


def spans(connection: Connection, requests: Rows) -> Int64s:
    """PSNs that each PACKET row takes: one, or as many as the response of a Read has packets."""
    spans = np.ones(len(requests), np.int64)
    reads = places(requests["opcode"] == READ_REQUEST)
    if len(reads):
        mtu = connection.path_mtu or DEFAULT_MTU
        spans[reads] = np.maximum(1, -(-requests["dma_length"][reads].astype(np.int64) // mtu))
    return spans


class _RcRead:
    """An RDMA Read with PSNs [start, end), some of whose responses may be missing."""

    __slots__ = ("complete", "end", "mtu", "operation", "overdue", "repeated", "seen", "start")

    def __init__(self, start: int, end: int, operation: Operation, mtu: int) -> None:
        self.start, self.end, self.operation = start, end, operation
        self.mtu = mtu
        """The path MTU when its first response came; until then the known one."""
        self.seen: IntervalSet | None = None
        """PSNs of the responses seen; None for none, or if all came at once."""
        self.complete = False
        self.repeated = 0
        """Packet count at which the request was last repeated."""
        self.overdue = 0
        """Packet count at which a later response proved that this Read's had been sent; 0 until then."""


class _ReadsOfRun(NamedTuple):
    """Reads that are rows of a run: PSNs [start, end)."""

    run: TransferRun
    rows: Int64s
    start: Int64s
    end: Int64s

    def part(self, chosen: slice | NDArray[np.bool_]) -> _ReadsOfRun:
        return _ReadsOfRun(self.run, self.rows[chosen], self.start[chosen], self.end[chosen])


class RcReads:
    """The Reads of one send queue that are not complete."""

    __slots__ = ("_complete", "_fresh", "connection", "mtu", "reads", "sender")

    def __init__(self, connection: Connection, sender: int) -> None:
        self.connection = connection
        self.sender = sender
        self.mtu = DEFAULT_MTU
        """The last known path MTU."""
        self.reads: Sequence[_RcRead] = ()
        """Ascending by PSN."""
        self._fresh: Sequence[_ReadsOfRun] = ()
        """Issued in this batch; their responses were not looked for so far."""
        self._complete: Sequence[_ReadsOfRun] = ()
        """The last Reads completed as rows, ascending by PSN; they join ``reads`` if one of their responses repeats."""

    def issue(self, run: TransferRun, index: Int64s, psns: Int64s) -> None:
        """``open`` for rows of a run whose responses are expected in the same batch."""
        mtu = self.connection.path_mtu or DEFAULT_MTU
        end = psns + np.maximum(1, -(-run.rows["length"][index] // mtu))
        self._fresh = *self._fresh, _ReadsOfRun(run, index, psns, end)

    def open(self, psn: int, operation: Operation) -> None:
        operation.closed = False
        mtu = self.connection.path_mtu or DEFAULT_MTU
        span = max(1, -(-operation.length // mtu))
        read = _RcRead(psn, psn + span, operation, mtu)
        if not isinstance(self.reads, list):
            self.reads = [*self.reads]
        if not self.reads or self.reads[-1].start <= psn:
            self.reads.append(read)
        else:
            self.reads.insert(bisect_right(self.reads, psn, key=_start), read)
        if len(self.reads) > OPEN_READS:
            self._close(self.reads.pop(0))

    def take_mtu(self, head: int | None) -> int | None:
        """Adopt the path MTU, which turned out to be another, for Reads without a response: it changes their PSNs.

        ``head``: the PSN after the last request; returns what it is now.
        """
        self.mtu = mtu = self.connection.path_mtu or DEFAULT_MTU
        for read in self.reads:
            if read.complete or read.seen is not None:
                continue
            end = read.start + max(1, -(-read.operation.length // mtu))
            if head == read.end:
                head = end
            read.end, read.mtu = end, mtu
        return head

    def responses(self, data: Bytes, rows: Rows, psns: Int64s, known: Acknowledged) -> None:
        """Take response packets that carry data, in capture order."""
        if not len(rows):
            return
        complete: list[_ReadsOfRun] = []
        if self._fresh:
            left = self._complete_fresh(data, rows, psns, complete)
            if not some(left):
                rows, psns = rows[:0], psns[:0]
            elif not left.all():
                rows, psns = take(rows, left), psns[left]
        if self._complete and len(rows) and int(psns.min()) < int(self._complete[-1].end[-1]):
            self._remember()
        if len(rows) and self.reads:
            parts = self._divided(rows, psns)
            self._note_overdue(known)
            self._place(data, rows, parts, known.clock)
        if complete:
            self._complete = _last([*self._complete, *complete])

    def _complete_fresh(self, data: Bytes, rows: Rows, psns: Int64s, complete: list[_ReadsOfRun]) -> NDArray[np.bool_]:
        """Complete the Reads of this batch whose responses all came, once and in order; open the others.

        Returns which of ``rows`` belong to none of the completed ones.
        """
        fresh, self._fresh = self._fresh, ()
        start = np.concatenate([responses.start for responses in fresh])
        end = np.concatenate([responses.end for responses in fresh])
        if some(start[1:] < end[:-1]):
            self._open_all(fresh)
            return np.ones(len(rows), np.bool_)
        owners = start.searchsorted(psns, side="right") - 1
        owners[psns >= end[owners]] = -1
        edges = places((psns[1:] != psns[:-1] + 1) | (owners[1:] != owners[:-1])) + 1
        firsts, behind = np.append(0, edges), np.append(edges, len(rows))
        length, mtu = rows["length"], self.connection.path_mtu or DEFAULT_MTU
        odd = length != mtu
        odd[behind - 1] = False
        odds, totals = (np.append(0, np.cumsum(values, dtype=np.int64)) for values in (odd, length))
        of, low = owners[firsts], psns[firsts]
        expected = np.concatenate([responses.run.rows["length"][responses.rows] for responses in fresh])
        good = (of >= 0) & (low == start[of]) & (low + behind - firsts == end[of])
        good &= (odds[behind] == odds[firsts]) & (totals[behind] - totals[firsts] == expected[of])
        good &= np.bincount(of + 1, minlength=len(start) + 1)[of + 1] == 1
        where = np.full(len(start), -1)
        where[of[good]] = places(good)
        before = 0
        for responses in fresh:
            mine = where[before : before + len(responses.rows)]
            before += len(responses.rows)
            through = mine >= 0
            if responses.run.data is not data:
                through[:] = False
            elif responses.run.made:  # Its request was already repeated.
                through &= ~among(responses.rows, np.fromiter(responses.run.made, np.int64))
            good[mine[(mine >= 0) & ~through]] = False
            if some(through):
                which = mine[through]
                note_responses(responses.run.rows, responses.rows[through], rows, firsts[which], behind[which])
                responses.run.responses = rows
                complete.append(responses.part(through))
            if not through.all():
                self._open_all([responses.part(~through)])
        left: NDArray[np.bool_] = ~np.repeat(good, behind - firsts)
        return left

    def completed(self, run: TransferRun, index: Int64s, psns: Int64s, ends: Int64s) -> None:
        """Remember Reads that are rows of a run and have all of their responses; PSNs [psn, end), after all others."""
        self._complete = _last([*self._complete, _ReadsOfRun(run, index, psns, ends)])

    def _open_all(self, fresh: Iterable[_ReadsOfRun]) -> None:
        for responses in fresh:
            for index, psn in zip(responses.rows.tolist(), responses.start.tolist(), strict=True):
                self.open(psn, responses.run.charged(index))

    def _remember(self) -> None:
        """Make the complete Reads objects in ``reads``."""
        complete, self._complete = self._complete, ()
        reads = [*self.reads]
        for run, *columns in complete:
            for index, start, end in zip(*(column.tolist() for column in columns), strict=True):
                read = _RcRead(start, end, run.charged(index), self.mtu)
                read.complete = True
                reads.append(read)
        self.reads = _without_oldest(sorted(reads, key=_start))

    def _divided(self, rows: Rows, psns: Int64s) -> list[tuple[_RcRead, int, int, int]]:
        """Split responses into consecutive ones of one Read: the Read, [first, behind), and the PSN of the first.

        The first responses of a Read tell how many it has, whatever the path MTU is by now.
        """
        starts = np.array([read.start for read in self.reads])
        owners = starts.searchsorted(psns, side="right") - 1
        edges = places((psns[1:] != psns[:-1] + 1) | (owners[1:] != owners[:-1])) + 1
        firsts, behind = np.append(0, edges), np.append(edges, len(rows))
        parts: list[tuple[_RcRead, int, int, int]] = []
        for owner, a, b, low in zip(
            owners[firsts].tolist(), firsts.tolist(), behind.tolist(), psns[firsts].tolist(), strict=True
        ):
            if owner < 0:
                continue
            read = self.reads[owner]
            if read.seen is None and not read.complete and (mtu := mtu_of_responses(rows[a:b], low - read.start, read)):
                read.mtu, read.end = mtu, read.start + -(-read.operation.length // mtu)
            parts.append((read, a, b, low))
        return parts

    def _place(
        self, data: Bytes, rows: Rows, parts: Iterable[tuple[_RcRead, int, int, int]], clock: PacketClock
    ) -> None:
        """Give the data of responses to Reads that are objects."""
        finished = False
        for read, a, b, low in parts:
            if low >= read.end:
                continue
            b -= max(0, low + b - a - read.end)
            if read.overdue and not read.complete:  # Ignore responses that came after the Read was given up.
                b = clock.first_behind(read.overdue + GRACE_PACKETS, rows["frame"][a:b]) + a
            if a < b:
                finished = self._take(read, low, low + b - a, data, rows[a:b]) or finished
        if finished:
            self.reads = _without_oldest(self.reads)

    def _take(self, read: _RcRead, low: int, high: int, data: Bytes, rows: Rows) -> bool:
        """Take responses with PSNs [low, high) of one Read; True if they complete it."""
        operation, mtu = read.operation, read.mtu
        if read.seen is None:
            read.seen = IntervalSet()
            if read.complete:
                read.seen.add(read.start, read.end)
        fresh = read.seen.add(low, high)
        repeated = high - low - sum(end - start for start, end in fresh)
        if repeated:
            operation.retransmissions += repeated
            operation.last_sent = int(rows["time"][-1])
            contradicted = contradictions(operation.payload.runs, data, rows)
            operation.contradict(contradicted)
            self.connection.contradict(1 - self.sender, contradicted.values())
        payload = operation.payload
        for start, end in fresh:
            part = rows[start - low : end - low]
            lengths = part["length"]
            offsets = (np.arange(start, end) - read.start) * mtu
            fits = lengths == np.minimum(mtu, operation.length - offsets)
            if fits.all():
                payload.runs.append((int(offsets[0]), data, part))
            else:  # A response of another size belongs to a missing request, or the path MTU is unknown.
                for index in places(fits).tolist():
                    payload.runs.append((int(offsets[index]), data, part[index : index + 1]))
            payload.seen += int(lengths[fits].sum())
            payload.truncated = payload.truncated or bool((part["captured"] < lengths).any())
            operation.last_frame = max(operation.last_frame, int(part["frame"][-1]))
            operation.last_time = max(operation.last_time, int(part["time"][-1]))
            operation.packets += len(part)
        if read.seen.covers(read.start, read.end):
            operation.closed = read.complete = True
        return read.complete

    def issued_again(self, psn: int, packets: int) -> None:
        """Note that the request with this PSN was repeated at packet count ``packets``: more responses will come."""
        at = bisect_right(self.reads, psn, key=_start) - 1
        if at >= 0 and psn < self.reads[at].end:
            self.reads[at].repeated, self.reads[at].overdue = packets, 0

    def _note_overdue(self, known: Acknowledged) -> None:
        """Find Reads whose responses must have been sent, as something later was acknowledged."""
        for read in self.reads:
            if known.acked < read.end and not read.complete:
                break
            if not (read.complete or read.overdue):
                read.overdue = max(read.repeated, known.proved(read.operation.first_frame, read.end - 1))

    def settle(self, known: Acknowledged) -> None:
        """Give up Reads whose responses have been overdue for GRACE_PACKETS."""
        self._open_fresh()
        self._note_overdue(known)
        for read in self.reads:
            if read.overdue and not read.complete and known.clock.now - read.overdue >= GRACE_PACKETS:
                read.operation.closed = True

    def forget(self) -> None:
        """Drop complete Reads: no more repetitions are expected."""
        self.reads = [read for read in self.reads if not read.complete]
        self._complete = ()

    def give_up(self) -> None:
        self._open_fresh()
        for read in self.reads:
            self._close(read)
        self.reads = self._complete = ()

    def _close(self, read: _RcRead) -> None:
        """Give up a Read, and count the responses that it lacks though they were sent."""
        read.operation.closed = True
        if read.overdue and not read.complete:
            seen = read.seen or IntervalSet()
            missing = sum([end - start for start, end in seen.missing(read.start, read.end)])
            self.connection.missing_responses = raised(self.connection.missing_responses, 1 - self.sender, missing)

    def _open_fresh(self) -> None:
        fresh, self._fresh = self._fresh, ()
        self._open_all(fresh)


def note_responses(transfers: Rows, index: Int64s, responses: Rows, first: Int64s, behind: Int64s) -> None:
    """Enter the responses [first, behind), PACKET rows, into TRANSFER rows of RDMA Reads that have all of them."""
    transfers["first"][index], transfers["behind"][index] = first, behind
    transfers["packets"][index] += (behind - first).astype(np.int32)
    for name, of_packets in (("last_frame", "frame"), ("last_time", "time")):
        transfers[name][index] = np.maximum(transfers[name][index], responses[of_packets][behind - 1])
    transfers["offset"][index], transfers["begins"][index] = responses["payload"][first], responses["captured"][first]
    transfers["truncated"][index] = any_of(responses["captured"] < responses["length"], first, behind)


def any_of(mask: Rows, first: Int64s, behind: Int64s) -> NDArray[np.bool_]:
    """By range [first, behind), whether the mask is true of any row in it."""
    if not some(mask):
        return np.zeros(len(first), np.bool_)
    before = np.append(0, np.cumsum(mask))
    any_true: NDArray[np.bool_] = before[behind] > before[first]
    return any_true


def mtu_of_responses(responses: Rows, position: int, read: _RcRead) -> int | None:
    """The path MTU, derived from consecutive responses of a Read; ``position``: index of the first of them."""
    full = responses["length"][FULL[responses["opcode"]]]
    if len(full):
        mtu = int(full[0])
    else:  # All responses before the last one have the same length.
        before, position = read.operation.length - int(responses["length"][-1]), position + len(responses) - 1
        mtu = before // position if position and before % position == 0 else 0
    return mtu if mtu in PATH_MTUS else None


def _start(read: _RcRead) -> int:
    return read.start


def _without_oldest(reads: Sequence[_RcRead]) -> Sequence[_RcRead]:
    """The Reads without the complete ones, except for the last ``KEPT``."""
    spare = sum([read.complete for read in reads]) - KEPT
    if spare <= 0:
        return reads
    kept: list[_RcRead] = []
    for read in reads:
        spare -= read.complete
        if not read.complete or spare < 0:
            kept.append(read)
    return kept


def _last(complete: list[_ReadsOfRun]) -> list[_ReadsOfRun]:
    """The last ``KEPT`` Reads."""
    kept: list[_ReadsOfRun] = []
    room = KEPT
    for part in reversed(complete):
        if room <= 0:
            break
        kept.insert(0, part if len(part.rows) <= room else part.part(slice(-room, None)))
        room -= len(part.rows)
    return kept


MAX_CHANGES = 64
"""Changes of the path MTU in a batch; with more, the lengths tell nothing."""
PATH_MTUS = tuple(opcodes.PATH_MTU.values())
FULL = opcodes.IS_FIRST | opcodes.IS_MIDDLE
"""Opcodes of packets that are exactly as long as the path MTU (IBA 9.7.2.1)."""


def learn_mtu(connection: Connection, requests: Rows, responses: Rows) -> None:
    """Set the path MTU from packets that are exactly as long."""
    for rows in (requests, responses):
        full = rows["length"][FULL[rows["opcode"]]]
        if len(full):
            longest = int(full.max())
            if longest in PATH_MTUS:
                connection.path_mtu = longest
                return
    longest = max((int(rows["length"].max()) for rows in (requests, responses) if len(rows)), default=0)
    if connection.path_mtu is not None and connection.path_mtu < longest <= PATH_MTUS[-1]:
        connection.path_mtu = None  # The path changed, or a damaged packet told it.


def mtu_changes(sent: Sequence[Rows]) -> Sequence[int]:
    """The frames from which on packets of either sender show another path MTU than before."""
    whole = [FULL[rows["opcode"]] for rows in sent]
    lengths = np.concatenate([rows["length"] for rows in sent])
    full = np.concatenate(whole)
    known = lengths[full]
    if not len(known) or (int(lengths.max()) == int(known.min())):
        return ()
    telling = places((full & among(lengths, np.array(PATH_MTUS))) | ~full & (lengths > known.min()))
    frames = np.concatenate([rows["frame"] for rows in sent])
    order = telling[frames[telling].argsort()]
    full, steps = full[order], np.diff(lengths[order].astype(np.int64))
    # A packet that ends a message is no longer than the path MTU.
    changes = (full[:-1] & full[1:] & (steps != 0)) | (full[:-1] & (steps > 0)) | (full[1:] & (steps < 0))
    changed: list[int] = frames[order[1:][changes]].tolist()
    return changed if len(changed) <= MAX_CHANGES else ()
