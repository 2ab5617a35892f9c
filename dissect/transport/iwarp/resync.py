"""Finds where FPDUs begin, after a gap or in mid-stream.

What looks like a header is a guess.  It counts when a CRC fits, when the header continues what was seen before,
or when enough headers follow each other that chance cannot have put them there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from ...arrays import Rows
from ...layers.fpdus import MARKER_BYTES, MARKER_INTERVAL, MarkerGrid, fpdu_bytes, verify_crc
from ...serial import DDP_MSN
from . import rdmap
from .stream_buffer import without_markers
from .window import Window

ENOUGH = 44
"""Bits of evidence, where the stream is known to be iWARP."""
ENOUGH_UNKNOWN = 56

LEGAL_CONTROL = 11
"""Bits: 24 of 65,536 values of the control octets are legal."""
RIGHT_QUEUE = 30
RIGHT_LENGTH = 14
ALIGNED = 8
CONTINUED = 24
RIGHT_CRC = 32

NEAR = 64
"""Messages that may be missing in front of one that continues a queue."""
HEAD = 20
"""A length field and an untagged header."""
SHOWN = MARKER_INTERVAL + HEAD
"""Bytes in which a marker must have shown."""

ENDLESS = 1 << 62

MAX_CANDIDATES = 512
MAX_SCANNED = 1 << 18
"""Bytes."""
MAX_HEADERS = 256
MAX_MARKERS = 8

YES, MAYBE, NO = range(3)


class Found(NamedTuple):
    """Where to go on."""

    at: int
    """Where an FPDU begins; where not confirmed, what lies before it needs no second look."""
    confirmed: bool
    grid: MarkerGrid | None = None
    """Where markers stand that were not known of; ``at`` is then a place without them."""


class Evidence:
    """What is known from before."""

    def __init__(self) -> None:
        self.msn: dict[int, int] = {}
        """Last message sequence number by queue."""

    def add(self, rows: Rows, tagged: Rows) -> None:
        """FPDU rows that were decoded."""
        queue = rdmap.QUEUE[rows["opcode"]]
        for number in range(4):
            mine = np.flatnonzero(~tagged & (queue == number))
            if len(mine):
                self.msn[number] = int(rows["msn"][mine[-1]])

    def continued(self, queue: int, msn: int) -> bool:
        last = self.msn.get(queue)
        return last is not None and DDP_MSN.distance(last, msn) <= NEAR


class _Header(NamedTuple):
    length: int
    bits: int
    queue: int
    """-1: tagged."""
    key: int
    """STag or MSN."""
    place: int
    """TO or MO."""
    payload: int


def _header(head: bytes) -> _Header | None:
    """What looks like a length field and a DDP header; None where it does not."""
    length = head[0] << 8 | head[1]
    control = head[2] << 8 | head[3]
    if not rdmap.LEGAL[control]:
        return None
    if head[2] & rdmap.TAGGED:
        if length < rdmap.TAGGED_HEADER:
            return None
        key, place = int.from_bytes(head[4:8], "big"), int.from_bytes(head[8:16], "big")
        return _Header(length, LEGAL_CONTROL, -1, key, place, length - rdmap.TAGGED_HEADER)
    queue, size = rdmap.QUEUES[head[3] & 15]
    if length < rdmap.UNTAGGED_HEADER or int.from_bytes(head[8:12], "big") != queue or (size or length) != length:
        return None
    bits = LEGAL_CONTROL + RIGHT_QUEUE + (RIGHT_LENGTH if size else 0)
    msn, place = int.from_bytes(head[12:16], "big"), int.from_bytes(head[16:20], "big")
    return _Header(length, bits, queue, msn, place, length - rdmap.UNTAGGED_HEADER)


class Search:
    """One look at what is pending."""

    def __init__(
        self,
        window: Window,
        base: int | None,
        crc: bool | None,
        evidence: Evidence,
        known: bool,
        verify: Callable[[int, int], bool | None],
    ) -> None:
        """``base``: position of any FPDU.  ``verify``: the CRC of the FPDU at a position, with an ULPDU length."""
        self.window = window
        self.base = base
        self.crc = crc
        self.evidence = evidence
        self.known = known
        self.verify = verify
        self.edges = window.edges

    def find(self, at: int, markers_unknown: bool, expected: bool, final: bool) -> Found:
        """The first position from ``at`` on where an FPDU begins.

        ``expected``: there are markers, somewhere; ``final``: nothing more will come.
        """
        maybe: int | None = None
        span = ENDLESS if expected else SHOWN if markers_unknown and not final else 0
        for candidate in self._candidates(at):
            verdict, broken = self._chain(candidate, span, exact=markers_unknown and final and not expected)
            if verdict == YES:
                return Found(candidate, True)
            if verdict == MAYBE and maybe is None:
                maybe = candidate
            if (verdict == NO or final) and markers_unknown and broken is not None:
                found = self._with_markers(candidate, broken, final)
                if found is not None and found.confirmed:
                    return found
                maybe = candidate if found is not None and maybe is None else maybe
        return Found(self.window.limit if maybe is None else maybe, False)

    def _candidates(self, at: int) -> Iterator[int]:
        """Where a frame's payload begins, and where control octets are legal."""
        window = self.window
        count = scanned = 0
        for index in range(int(np.searchsorted(window.end, at, side="right")), len(window.starts)):
            low, high = max(at, window.starts[index]), window.readable[index]
            if high - low < 4:
                continue
            offset = low + window.shifts[index]
            data = window.datas[window.chunks[index]][offset : offset + high - low]
            control = data[2:-1].astype(np.uint16) << 8 | data[3:]
            hits = np.flatnonzero(rdmap.LEGAL[control])
            if self.base is not None:
                hits = hits[(hits + low - self.base) % 4 == 0]
            for hit in hits.tolist():
                yield low + hit
                count += 1
                if count >= MAX_CANDIDATES:
                    return
            scanned += high - low
            if scanned >= MAX_SCANNED:
                return

    def _chain(self, at: int, span: int, exact: bool = False) -> tuple[int, int | None]:
        """Whether FPDUs follow each other from ``at`` on, one of them ``span`` bytes later, with ``exact`` up to the
        last byte there is; and the last that may be one.
        """
        window, evidence = self.window, self.evidence
        begin, bits, linked = at, ALIGNED if at in self.edges else 0, False
        verified = unverified = headers = 0
        sure = False
        before: _Header | None = None
        last: int | None = None
        while headers < MAX_HEADERS:
            if at + HEAD > window.limit:
                if exact and at == window.limit and sure:
                    return YES, last
                return MAYBE, last
            head = window.read(at, HEAD)
            header = _header(head) if len(head) == HEAD else None
            if header is None:
                return NO, last
            headers += 1
            bits += header.bits
            if header.queue >= 0 and evidence.continued(header.queue, header.key):
                bits += CONTINUED
                linked = True
            if before is not None and before.queue == header.queue and _continues(before, header):
                bits += CONTINUED
            before, last = header, at
            end = at + fpdu_bytes(header.length)
            alone = header.queue >= 0 and begin == at and at in self.edges and end in self.edges
            if end in self.edges:
                bits += ALIGNED
            if end <= window.limit and self.crc is not False:
                right = self.verify(at, header.length)
                if right:
                    verified += 1
                    bits += RIGHT_CRC
                elif right is None:
                    unverified += 1
                elif self.crc:
                    return NO, last
            if self.crc and not unverified:
                confirmed = verified > 0
            else:
                # A message that fills its segments confirms itself, where the stream is known to be iWARP.
                confirmed = headers > 1 or verified > 0 or ((linked or alone) and self.known)
            sure = confirmed and bits >= (ENOUGH if self.known else ENOUGH_UNKNOWN)
            if sure and at - begin >= span and not exact:
                return YES, last
            at = end
        return NO, last

    # Markers that were not agreed on in this capture

    def _with_markers(self, at: int, broken: int, final: bool) -> Found | None:
        """Whether markers explain why what follows from ``at`` on breaks off behind the header at ``broken``.

        Two of them tell by their pointers.  With ``final`` one does, where the CRCs fit with it.  One alone is not
        confirmed before.  None is where payload looks like a marker, too: CRCs cover both.
        """
        likely: Found | None = None
        fitting: dict[int, Found] = {}
        window = self.window
        first = window.starts[0]
        for marker in self._marker_candidates(broken):
            grid = MarkerGrid(marker - -(-(marker - first) // MARKER_INTERVAL) * MARKER_INTERVAL)
            bare = Window(without_markers(window.rows, grid), window.datas)
            begin = grid.place(at)
            search = Search(bare, None, False, self.evidence, self.known, self.verify)
            verdict, _ = search._chain(begin, 2 * MARKER_INTERVAL)
            two = verdict == YES and self._pointers_fit(bare, begin, grid) > 1
            if two or (final and self._crcs_fit(bare, begin, grid)):
                fitting[grid.base % MARKER_INTERVAL] = Found(begin, True, grid)
            elif verdict == MAYBE and not final and self._pointers_fit(bare, begin, grid):
                likely = Found(at, False)
        if len(fitting) > 1:
            return Found(at, False)
        return next(iter(fitting.values()), likely)

    def _crcs_fit(self, bare: Window, at: int, grid: MarkerGrid) -> bool:
        """Whether FPDUs with right CRCs follow each other from ``at`` on, one of them with a marker in it."""
        if self.crc is False or not self._pointers_fit(bare, at, grid):
            return False
        marked = False
        for _ in range(MAX_HEADERS):
            if at + HEAD > bare.limit:
                break
            head = bare.read(at, HEAD)
            header = _header(head) if len(head) == HEAD else None
            if header is None:
                return False
            end = at + fpdu_bytes(header.length)
            if end > bare.limit:
                break
            start, stop = grid.start(at), grid.start(end)
            fpdu = self.window.read(start, stop - start)
            if len(fpdu) < stop - start or not verify_crc(fpdu):
                return False
            marked = marked or len(grid.between(start, stop)) > 0
            at = end
        return marked

    def _marker_candidates(self, at: int) -> list[int]:
        """Where a marker may be that points back to the FPDU at ``at``, or stands before or behind it.

        RFC 5044, 4.3.
        """
        head = self.window.read(at, MARKER_INTERVAL + MARKER_BYTES)
        words = np.frombuffer(head[: len(head) & ~3], ">u4")
        found = [at + 4 * index for index in np.flatnonzero(words == 4 * np.arange(len(words))).tolist() if index]
        end = at + fpdu_bytes(head[0] << 8 | head[1])
        for marker in (end, at - MARKER_BYTES):
            if self.window.read(marker, MARKER_BYTES) == bytes(MARKER_BYTES):
                found.append(marker)
        return found[:MAX_MARKERS]

    def _pointers_fit(self, bare: Window, at: int, grid: MarkerGrid) -> int:
        """How many markers point at the FPDUs they stand in; 0 where one points elsewhere."""
        right = 0
        while right < MAX_MARKERS:
            head = bare.read(at, 2)
            if len(head) < 2:
                break
            end = at + fpdu_bytes(head[0] << 8 | head[1])
            if end > bare.limit:
                break
            for marker in grid.between(grid.start(at), grid.start(end))[: MAX_MARKERS - right]:
                word = self.window.read(marker, MARKER_BYTES)
                if len(word) == MARKER_BYTES:
                    if int.from_bytes(word, "big") != max(0, marker - grid.position(at)):
                        return 0
                    right += 1
            at = end
        return right


def _continues(before: _Header, header: _Header) -> bool:
    """Of the same queue, or both tagged."""
    if header.queue < 0:
        return header.key == before.key and header.place == before.place + before.payload
    same = header.key == before.key and header.place == before.place + before.payload
    return same or (header.key == before.key + 1 and header.place == 0)
