"""Which FPDUs of a direction can be trusted: by their CRCs, and where there are none by markers and headers."""

from __future__ import annotations

import numpy as np

from ...arrays import Int64s, Rows
from ...layers import fpdus
from ...layers.fpdus import BETWEEN_MARKERS, MARKER_BYTES, MARKER_INTERVAL, MarkerGrid
from ...layers.iwarp_codes import READ_REQUEST
from ...serial import DDP_MSN
from . import rdmap
from .decoding import CONTROL, FpduHeaders
from .resync import NEAR
from .stream_buffer import PendingBytes
from .window import Window

SURE = 4
"""Right markers in a row after which a direction is trusted again."""


class Doubt:
    """What was seen of one direction."""

    def __init__(self) -> None:
        self.right = SURE
        """Right markers since the last contradiction; a stream is trusted until there is one."""
        self.msn: dict[int, int] = {}
        """Last message sequence number by queue, where nothing is missing since."""
        self.spread = False
        """An FPDU lay in several frames: the sender does not align frames with FPDUs (RFC 5044, 5)."""
        self.count = 0
        """FPDUs that hold no wrong marker and are not trusted all the same."""

    def contradict(self) -> None:
        """Bytes are there, and no FPDU begins where one should."""
        self.right = 0

    def lost(self) -> None:
        """Messages may be missing now."""
        self.msn.clear()

    def trusted(self, contradiction: Rows, markers: Int64s) -> Rows:
        """Which FPDUs are trusted; ``contradiction``: which of them cannot be right; ``markers``: how many right ones
        each holds.
        """
        seen = self.right + np.cumsum(markers)
        last = np.maximum.accumulate(np.where(contradiction, np.arange(len(seen)), -1))
        run = np.where(last < 0, seen, seen - seen[last])
        if len(run):
            self.right = min(SURE, int(run[-1]))
        trusted: Rows = ~contradiction & (run >= SURE)
        return trusted

    def out_of_sequence(self, queue: Rows, msn: Rows, offset: Rows, known: Rows) -> Rows:
        """Which untagged FPDUs (``known``) do not follow the ones before on their queue (RFC 5041, 5.2.2).

        A message begins at offset 0 and has a number of its own; some may be missing between.
        """
        wrong: Rows = known & (queue == rdmap.QUEUE[READ_REQUEST]) & (offset != 0)
        for number in range(4):
            mine = np.flatnonzero(known & (queue == number))
            if not len(mine):
                continue
            numbers = msn[mine].astype(np.int64)
            before = self.msn.get(number, int(numbers[0]) - 1)
            step = np.diff(numbers, prepend=before) % DDP_MSN.modulus
            unusual = (step > NEAR) | ((step == 0) & (offset[mine] == 0))
            unusual[0] &= number in self.msn
            wrong[mine] |= unusual
            self.msn[number] = int(numbers[-1])
        return wrong

    def lone_markers(self, window: Window, wire: Window, grid: MarkerGrid, starts: Int64s, ends: Int64s) -> Rows:
        """Which FPDUs have behind them in their frame a marker and nothing else.

        A sender that aligns frames with FPDUs sends a marker with what follows it.  So these four bytes are the last of
        an FPDU that a marker off the grid made longer.
        """
        low = np.searchsorted(window.end, starts, side="right")
        high = np.minimum(np.searchsorted(window.end, ends - 1, side="right"), len(window.at) - 1)
        spread = window.rows["frame"][low] != window.rows["frame"][high]
        lone = np.zeros(len(starts), np.bool_)
        for index in np.flatnonzero((ends - grid.base) % BETWEEN_MARKERS == 0).tolist():
            marker = grid.start(int(ends[index]))
            before, inside, after = _frames(wire, marker - 1, marker + MARKER_BYTES - 1, marker + MARKER_BYTES)
            lone[index] = before == inside != after and not (self.spread or spread[:index].any())
        self.spread = self.spread or bool(spread.any())
        return lone


def wraps(offset: Rows, length: Rows) -> Rows:
    """Which stretches of memory pass the end of the address space (RFC 5041, 4.2)."""
    found: Rows = np.maximum(length.astype(np.int64), 1).astype(np.uint64) - np.uint64(1) > ~offset.astype(np.uint64)
    return found


def torn(window: Window, end: int) -> bool:
    """Whether the frame that holds the last byte before ``end`` goes on there with what begins no FPDU."""
    head = window.read(end, CONTROL)
    if len(head) < CONTROL:
        return False
    before, after = _frames(window, end - 1, end + CONTROL - 1)
    nothing = (head[0] << 8 | head[1]) < rdmap.TAGGED_HEADER
    return before == after and bool(nothing or not rdmap.LEGAL[head[2] << 8 | head[3]])


def _frames(window: Window, *places: int) -> list[int | None]:
    """The frames that hold bytes; None where there is none yet."""
    rows = np.searchsorted(window.end, places, side="right").tolist()
    return [int(window.rows["frame"][row]) if row < len(window.rows) else None for row in rows]


def judge_markers(wire: Window, grid: MarkerGrid, starts: Int64s, ends: Int64s) -> tuple[Rows, Int64s]:
    """Which FPDUs hold a marker that points elsewhere, and how many right ones each holds (RFC 5044, 4.3).

    Where one points elsewhere, what was taken for payload is not: a sender that puts its markers elsewhere.
    ``wire``: the stream with its markers.
    """
    markers = grid.between(grid.start(int(starts[0])), grid.start(int(ends[-1])))
    positions = np.arange(markers.start, markers.stop, MARKER_INTERVAL)
    values, there = wire.heads(positions, MARKER_BYTES)
    owner = np.searchsorted(starts, grid.place(positions), side="right") - 1
    distance = positions - grid.position(starts[owner])
    pointer = values.view(">u4").ravel() & 0xFFFF
    right = pointer == np.maximum(distance, 0) & 0xFFFF
    wrong = np.zeros(len(starts), np.bool_)
    wrong[owner[(there == MARKER_BYTES) & ~right]] = True
    return wrong, np.bincount(owner[(there == MARKER_BYTES) & right], minlength=len(starts)).astype(np.int64)


MAX_FAILURES = 1000
WRONG_CRC, WRONG_MARKERS, WRONG_HEADERS = (
    "wrong CRC32C",
    "markers that point elsewhere",
    "headers or a length that cannot be right",
)
DOUBTED = "no CRC, behind markers or headers that are wrong"
"""Why an FPDU is not trusted."""
TRIED = 8
"""FPDUs among which one with a right CRC is looked for, where Request and Reply were not seen."""


class FpduChecks:
    """The checks of one direction, and what failed them."""

    def __init__(self) -> None:
        self.crc: bool | None = None
        """CRCs are in use; None: not known."""
        self.doubt = Doubt()
        self.crc_checked = self.crc_failure_count = self.marker_failure_count = 0
        self.crc_failures: list[int] = []
        """Frames; the first of them."""
        self.faults: list[tuple[int, int, str]] = []
        """Where the FPDUs that cannot be trusted begin and end in the stream, and why; the first of them."""

    def trusted(self, pending: PendingBytes, headers: FpduHeaders) -> Rows:
        """Which FPDUs can be trusted, of those whose headers were captured and are not empty."""
        good: Rows = headers.captured & ~headers.empty
        if not len(headers):
            return good
        if self.crc is None:
            tried = zip(headers.starts[:TRIED].tolist(), headers.lengths[:TRIED].tolist(), strict=True)
            if any(verify(pending, start, length) for start, length in tried):
                self.crc = True
        if pending.grid is not None:
            good = self._marked(pending, headers, good)
        elif not self.crc and good[-1] and torn(pending.window, int(headers.ends[-1])):
            # A sender that inserts markers although none were agreed, for one.
            self._add_faults(pending, headers[-1:], good[-1:], WRONG_HEADERS)
            self.doubt.count += 1
            good[-1] = False
        if self.crc:
            # What cannot be verified because some of it is missing may be as wrong as its length.
            good &= self._verified(pending, headers) & pending.window.covers(headers.starts, headers.ends)
        return good

    def _marked(self, pending: PendingBytes, headers: FpduHeaders, good: Rows) -> Rows:
        """Which of the ``good`` remain in a stream with markers."""
        grid, window = pending.grid, pending.window
        assert grid is not None
        wrong, right = judge_markers(pending.wire, grid, headers.starts, headers.ends)
        self.marker_failure_count += int(np.count_nonzero(wrong))
        self._add_faults(pending, headers, wrong, WRONG_MARKERS)
        good = good & ~wrong
        if self.crc:
            return good
        queue = np.where(headers.tagged, -1, rdmap.QUEUE[headers.opcode].astype(np.int64))
        odd = headers.captured & headers.tagged & wraps(headers.place, headers.lengths - headers.size)
        odd |= self.doubt.out_of_sequence(queue, headers.msn, headers.place, good)
        reads = headers.reads()
        reads = reads[headers.captured[reads]]
        odd[reads] |= _requests_wrap(headers, reads)
        odd[-1] |= torn(window, int(headers.ends[-1]))
        odd |= self.doubt.lone_markers(window, pending.wire, grid, headers.starts, headers.ends)
        odd &= good
        trusted = self.doubt.trusted(wrong | odd, right)
        self._add_faults(pending, headers, odd, WRONG_HEADERS)
        self._add_faults(pending, headers, good & ~odd & ~trusted, DOUBTED)
        self.doubt.count += int(np.count_nonzero(good & ~trusted))
        return good & trusted

    def _verified(self, pending: PendingBytes, headers: FpduHeaders) -> Rows:
        """Which FPDUs do not have a wrong CRC."""
        good = np.ones(len(headers), np.bool_)
        for index, (start, length) in enumerate(zip(headers.starts.tolist(), headers.lengths.tolist(), strict=True)):
            verdict = verify(pending, start, length)
            good[index] = verdict is not False
            self.crc_checked += verdict is not None
        wrong = np.flatnonzero(~good)
        self.crc_failure_count += len(wrong)
        self._add_faults(pending, headers, ~good, WRONG_CRC)
        window = pending.window
        for index in wrong[: MAX_FAILURES - len(self.crc_failures)].tolist():
            row = int(np.searchsorted(window.end, int(headers.starts[index]), side="right"))
            self.crc_failures.append(int(window.rows["frame"][min(row, len(window.rows) - 1)]))
        return good

    def _add_faults(self, pending: PendingBytes, headers: FpduHeaders, which: Rows, why: str) -> None:
        index = np.flatnonzero(which)[: MAX_FAILURES - len(self.faults)]
        first, stop = (pending.in_stream(places[index]).tolist() for places in (headers.starts, headers.ends))
        self.faults += [(left, right, why) for left, right in zip(first, stop, strict=True)]


def verify(pending: PendingBytes, place: int, ulpdu_length: int) -> bool | None:
    """Whether an FPDU has the right CRC; None where it was not captured whole."""
    fpdu = pending.read_fpdu(place, ulpdu_length)
    return None if fpdu is None else fpdus.verify_crc(fpdu)


def _requests_wrap(headers: FpduHeaders, index: Int64s) -> Rows:
    """Which RDMA Read Requests ask for what cannot be there."""
    columns = headers.read_columns(index, "sinkto", "rdmardsz", "srcto")
    return wraps(columns["sinkto"], columns["rdmardsz"]) | wraps(columns["srcto"], columns["rdmardsz"])
