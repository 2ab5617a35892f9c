"""Which FPDUs of a direction can be trusted: by their CRCs, and where there are none by markers and headers."""

from __future__ import annotations

import numpy as np

from ...arrays import Int64s, Rows
from ...layers import fpdus
from . import rdmap
from .decoding import FpduHeaders
from .pending import PendingBytes
from .plausibility import Doubt, judge_markers, torn, wraps

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
