"""Finds the FPDUs in one direction of an MPA stream: the start-up frame, then boundaries, even after losing them."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...arrays import Bytes, Int64s, Rows, copied, every, places, some, take
from ...layers.fpdus import LENGTH_BYTES, MarkerGrid, Places, fpdu_bytes
from ...layers.iwarp_codes import REPLY_KEY, REQUEST_KEY
from ...layers.rpcrdma_codes import PrivateData, find_private_data
from ...named_tuple import NamedTuple
from ..sections import QueueSections
from .fpdus import (
    TAGGED_HEADER,
    Evidence,
    Found,
    FpduChecks,
    FpduHeaders,
    Fpdus,
    ReadRequest,
    Search,
    decode_headers,
    fpdu_rows,
    note_numbers,
    verify,
)
from .stream import Chunk, PendingBytes, Window, Windows

HEADER = 20
MAX_PRIVATE_DATA = 512

MARKERS, CRC, REJECT, ENHANCED = 0x80, 0x40, 0x20, 0x10


@dataclass(frozen=True, slots=True)
class MPAFrame:
    """A Request or a Reply."""

    request: bool
    markers: bool
    """The sender wants to receive markers."""
    crc: bool
    reject: bool
    revision: int
    private_data: bytes
    """As captured; includes the RFC 6581 words."""
    complete: bool
    """All private data is captured."""
    ird: int | None = None
    """RFC 6581: RDMA Reads that the sender can answer at a time; None without enhanced set-up."""
    ord: int | None = None
    """RFC 6581: RDMA Reads that the sender will issue at a time."""
    peer_to_peer: bool = False
    ready: tuple[str, ...] = ()
    """RFC 6581: possible first messages of the active side: 'FPDU', 'Write', 'Read'."""

    @property
    def rpcrdma(self) -> PrivateData | None:
        """The RFC 8797 message in the private data."""
        messages = find_private_data(self.private_data)
        return messages[0] if messages else None


def is_mpa(head: bytes) -> bool:
    return head[:16] in (REQUEST_KEY, REPLY_KEY)


def mpa_length(head: bytes) -> int:
    """Size of the Request or Reply that begins with ``head``, at least 20 bytes."""
    return HEADER + int.from_bytes(head[18:20], "big")


def mpa_frame(data: bytes) -> MPAFrame | None:
    """Decode a Request or Reply, whose private data may be truncated; None if it is neither."""
    if not is_mpa(data) or len(data) < HEADER:
        return None
    flags, revision = data[16], data[17]
    length = mpa_length(data)
    if length - HEADER > MAX_PRIVATE_DATA:
        return None
    private = data[HEADER:length]
    ird = ord_ = None
    peer, ready = False, []
    if revision >= 2 and flags & ENHANCED and len(private) >= 4:
        first, second = int.from_bytes(private[:2], "big"), int.from_bytes(private[2:4], "big")
        ird, ord_ = first & 0x3FFF, second & 0x3FFF
        peer = bool(first & 0x8000)
        for word, bit, name in ((first, 0x4000, "FPDU"), (second, 0x8000, "Write"), (second, 0x4000, "Read")):
            if word & bit:
                ready.append(name)
    return MPAFrame(
        data[:16] == REQUEST_KEY,
        bool(flags & MARKERS),
        bool(flags & CRC),
        bool(flags & REJECT),
        revision,
        private,
        len(data) >= length,
        ird,
        ord_,
        peer,
        tuple(ready),
    )


MAX_PENDING = 1 << 20
"""Bytes kept while FPDU boundaries are searched for."""
FEW, MANY = 16, 1 << 16
"""FPDUs decoded together, right after bytes that are no FPDU and long after them: what follows such bytes has to be
examined anew."""


ENOUGH = 1024
"""FPDUs of a direction that are decoded alone: joining so many to others costs more than it saves."""


@dataclass(frozen=True, slots=True)
class Startup:
    """A Request or Reply, and where it was captured."""

    mpa: MPAFrame
    start: int
    """Positions in the stream: start and end."""
    stop: int
    frame: int
    """Frame with its first byte."""
    time: int
    complete: int
    """Frame that completed it."""


class _Aligned(NamedTuple):
    """FPDUs that would begin where the stretches of a window do, as nearly all FPDUs do."""

    lengths: list[int]
    """Lengths of their ULPDUs."""
    following: list[int]
    """Index of the stretch that begins where each ends, the number of stretches at the end of all; -1 for none."""
    stops: list[int]
    """Stretches whose FPDU is not followed by the next stretch; and the number of stretches."""


class Begun:
    """Starts and lengths of FPDUs in several directions; places are those in ``windows``."""

    def __init__(self, parts: Sequence[tuple[Framing, Int64s, Int64s]]) -> None:
        """``parts``: framing, places in its own window, and lengths, by direction."""
        self.framings = [framing for framing, _, _ in parts]
        windows = [framing.pending.window for framing in self.framings]
        self.windows = Windows(windows) if len(windows) > 1 else windows[0]
        counts = [len(starts) for _, starts, _ in parts]
        self.sections = QueueSections(np.repeat(np.arange(len(parts)), counts), len(parts))
        self.shifts: Int64s = self.windows.shifts[self.sections.owners]
        self.starts: Int64s = np.concatenate([starts for _, starts, _ in parts]) + self.shifts
        self.lengths: Int64s = np.concatenate([lengths for _, _, lengths in parts])
        self.orders = np.array([framing.order for framing in self.framings])
        """By direction: the order of the FPDU before the first of these."""

    def fpdus(self, rows: Rows, low: Int64s, sections: QueueSections, requests: dict[int, ReadRequest]) -> list[Fpdus]:
        """By direction, the Fpdus for FPDU rows whose payloads begin at ``low``."""
        pieces, edges = self.windows.pieces(low, low + rows["length"])
        pieces["at"] -= np.repeat(low, np.diff(edges))
        bounds = edges[sections.starts].tolist()
        asked: list[dict[int, ReadRequest]] = [{} for _ in self.framings]
        for index, request in requests.items():
            number = int(sections.owners[index])
            asked[number][index - sections[number][0]] = request
        fpdus: list[Fpdus] = []
        for number, framing in enumerate(self.framings):
            first, behind = sections[number]
            mine, payloads = rows[first:behind], pieces[bounds[number] : bounds[number + 1]]
            if len(self.framings) > 1:  # Let none keep the rows of others.
                mine, payloads = copied(mine), copied(payloads)
            own = edges[first : behind + 1] - bounds[number]
            fpdus.append(Fpdus(mine, asked[number], payloads, own, framing.pending.datas))
        return fpdus


class Framing:
    """Takes the stretches of one direction, in order, and finds the FPDUs in them."""

    prefix = LENGTH_BYTES
    """Bytes that contain the length of an FPDU."""

    def __init__(self) -> None:
        self.awaiting = False
        """Whether the Request or Reply may still come."""
        self.startup: Startup | None = None
        self.shown = 0
        """The frame that completed it, or showed that it is missing."""
        self.released: list[tuple[int, int]] = []
        """Of what waited until the start of its FPDUs was known: its first frame, and the frame that showed the
        start."""
        self.pending = PendingBytes()
        self.checks = FpduChecks()
        self.at: int | None = None
        """Place of the next FPDU."""
        self.base: int | None = None
        """Place where the first FPDU began, or a later one."""
        self.markers: bool | None = None
        """Whether markers are in the stream; None: unknown."""
        self.expected = False
        """There are markers, but their positions are unknown."""
        self.inferred = False
        """The capture does not show what was agreed about markers."""
        self.synchronised = False
        self.known = 0
        """The frame at which a search found FPDUs; 0 if they were known, or are still unknown."""
        self.broken = False
        """Bytes after the last FPDU are missing or could not be decoded."""
        self.evidence = Evidence()
        self.count = 0
        self.lost = 0
        """How often FPDU boundaries were lost, except where bytes are missing."""
        self.unread = 0
        """FPDUs without a captured header, or that failed a check."""
        self.unread_from: int | None = None
        """Stream position of the first such FPDU, or of the first lost boundary."""
        self.ready: tuple[int, int] | None = None
        """Start and end of the empty FPDU that says that the sender is ready (RFC 6581, 9.2)."""
        self.order = 0
        self.encrypted = 0
        """The frame from which on it is TLS; 0 for none."""
        self._given: Sequence[tuple[int, int]] = ()
        """As of ``feed``."""
        self._together = MANY
        self._aligned_in: tuple[Window, _Aligned] | None = None
        self._losses: list[int] = []
        """Of the FPDUs to decode: the number before each lost boundary."""
        self._missing: list[int] = []
        """Entries of ``_losses`` where bytes are missing."""

    @staticmethod
    def lengths(data: Bytes, at: Int64s) -> Int64s:
        """The ULPDU lengths at offsets in ``data``."""
        ulpdu_lengths: Int64s = data[at].astype(np.int64) << 8 | data[at + 1]
        return ulpdu_lengths

    @staticmethod
    def extent(length: Places) -> Places:
        """Bytes of FPDUs with these ULPDU lengths."""
        return fpdu_bytes(length)

    @staticmethod
    def legal(length: Places) -> Any:
        """Whether an FPDU may have this ULPDU length."""
        return length >= TAGGED_HEADER

    def feed(self, chunks: list[Chunk], given: Sequence[tuple[int, int]] = ()) -> None:
        """Take what follows in the stream; ``given``: positions from which on it had to wait, until which frame."""
        self.pending.take(chunks)
        self._given = given

    def waiting_since(self, settled: bool) -> int | None:
        """The first frame whose FPDU boundaries are unknown or, unless ``settled``, that waits for the set-up."""
        if settled and (self.at is None or (self.synchronised and self.markers is not None)):
            return None
        window = self.pending.window
        first = 0 if self.at is None else window.index(self.at)
        return int(window.rows["frame"][first:].min()) if first < len(window.rows) else None

    # Set-up

    def take_startup(self) -> bool:
        """Take the Request or Reply; True if a complete one was taken."""
        if not self.awaiting or not len(self.pending):
            return False
        window = self.pending.window
        start = window.starts[0]
        head = window.read(start, HEADER)
        if len(head) < HEADER and start + HEADER > window.limit:
            return False
        length = mpa_length(head) if is_mpa(head) and len(head) == HEADER else 0
        if length and start + length > window.limit:
            return False
        self.awaiting = False
        self.at = start
        self.shown = int(window.rows["frame"][: window.index(start + max(length, HEADER) - 1) + 1].max())
        mpa = mpa_frame(window.read(start, length))
        if mpa is None:
            return False
        frame, time = int(window.rows["frame"][0]), int(window.rows["time"][0])
        self.startup = Startup(mpa, start, start + length, frame, time, self.shown)
        self.begin(start + length)
        self.order = max(self.order, frame)
        self.pending.forget(self.at)
        return True

    def begin(self, base: int) -> None:
        """Set the stream position of the first FPDU."""
        self.at = self.base = base
        self.synchronised = True

    def first_ack(self) -> int | None:
        """The acknowledgement number of the segment with the first FPDU, if its first byte was captured."""
        if self.base is None or not len(self.pending):
            return None
        window = self.pending.window
        return int(window.rows["ack"][0]) if window.starts[0] == self.base else None

    def agree(self, markers: bool, crc: bool | None) -> None:
        """Note what Request and Reply settled for this direction."""
        self.checks.crc = crc
        if markers and self.base is None:
            self.expected = True
            return
        self.markers = markers
        if markers:
            assert self.base is not None
            self.pending.set_grid(MarkerGrid(self.base))

    def release(self, frame: int) -> None:
        """Note that pending bytes had to wait until ``frame``."""
        window = self.pending.window
        since = int(window.rows["frame"].min()) if len(window.rows) else frame
        if since < frame:
            self.released.append((since, frame))

    # FPDUs

    def begins(self) -> bool:
        """Whether FPDUs may begin in the pending bytes."""
        if self.awaiting or not len(self.pending):
            return False
        window = self.pending.window
        if self.at is None and len(window.rows):
            self.at = window.starts[0]
        return len(window.rows) > 0

    def goes_on(self, count: int) -> bool:
        """Whether more FPDUs may begin after ``count`` that were decoded together."""
        assert self.at is not None
        if self.synchronised:
            if count < self._together:
                return False
            self._together = min(MANY, 2 * self._together)
        elif len(self.pending.window.read(self.at, self.prefix)) == self.prefix:
            self._together = FEW
            self.checks.doubt.contradict()
        return True

    def forget(self) -> None:
        """Drop what was decoded."""
        assert self.at is not None
        self._aligned_in = None
        self.pending.forget(self.at)

    def next_fpdus(self, final: bool) -> tuple[Int64s, Int64s] | None:
        """Places and ULPDU lengths of FPDUs from ``at`` on, also after gaps; None if no more begin."""
        window = self.pending.window
        parts: list[tuple[Int64s, Int64s]] = []
        self._losses.clear()
        self._missing.clear()
        assert self.at is not None
        while self.at < window.limit:
            count = sum([len(lengths) for _, lengths in parts])
            if self.markers is None or not self.synchronised:
                if parts and not self._passes_gap(window):
                    break
                self.evidence.ahead = window, [starts for starts, _ in parts]
                synchronised = self._synchronise(final, count)
                self.evidence.ahead = None
                window = self.pending.window
                if not synchronised:
                    break
            parts.append(self._walk(window, final, count))
            if self.synchronised or count + len(parts[-1][0]) >= self._together:
                break
        if len(parts) < 2:
            return parts[0] if parts else None
        starts, lengths = np.concatenate(parts, axis=1)
        return starts, lengths

    def _passes_gap(self, window: Window) -> bool:
        """Whether the next FPDU's beginning was not captured, and all that is needed of the FPDUs before it is in their
        headers."""
        agreed = self.markers is False and not self.inferred and self.checks.crc is False
        assert self.at is not None
        return agreed and self.pending.grid is None and len(window.read(self.at, self.prefix)) < self.prefix

    def _walk(self, window: Window, final: bool, before: int) -> tuple[Int64s, Int64s]:
        """Places and ULPDU lengths of FPDUs from ``at`` on; ``before``: FPDUs found before them but not decoded."""
        starts: list[int] = []
        lengths: list[int] = []
        at, limit = self.at, window.limit
        assert at is not None
        index, room = window.index(at), self._together - before
        if self._aligned_in is None or self._aligned_in[0] is not window:
            of_stretches = self._lengths(window)
            following = window.at + self.extent(of_stretches)
            if window.at[0] == at and len(following) < room and self._one_each(window, of_stretches, following):
                self.at = limit
                return window.at, of_stretches
            self._aligned_in = window, self._aligned(window, of_stretches, following)
        aligned = self._aligned_in[1]
        ends, begins = window.ends, window.starts
        last = len(ends)
        while at + self.prefix <= limit and len(starts) < room:
            while index < last and ends[index] <= at:
                index += 1
            if begins[index] == at:
                stop = aligned.stops[bisect_left(aligned.stops, index)]
                behind = min(stop + (aligned.following[stop] >= 0), index + room - len(starts))
                if index < behind:
                    starts += begins[index:behind]
                    lengths += aligned.lengths[index:behind]
                    index = aligned.following[behind - 1]
                    at = begins[index] if index < last else limit
                    continue
            head = window.read(at, self.prefix)
            if len(head) < self.prefix:
                self.synchronised = False
                break
            length = int.from_bytes(head)
            end = at + self.extent(length)
            if not self.legal(length) and not (length == 0 and not self.count and not before and not starts):
                self.synchronised = False
                break
            if end > limit and (self.checks.crc or not final):
                break
            starts.append(at)
            lengths.append(length)
            at = end
        self.at = at
        return np.array(starts, np.int64), np.array(lengths, np.int64)

    def _lengths(self, window: Window) -> Int64s:
        """The length of an FPDU that begins where a stretch does, by stretch."""
        rows = window.rows
        lengths = np.zeros(len(rows), np.int64)
        for number, data in enumerate(window.datas):
            mine = places((rows["chunk"] == number) & (rows["captured"] >= self.prefix))
            lengths[mine] = self.lengths(data, rows["payload"][mine])
        return lengths

    def _one_each(self, window: Window, lengths: Int64s, ends: Int64s) -> bool:
        """Whether each stretch is one FPDU, and all are consecutive, as they nearly always are."""
        whole = ends == window.end
        whole[1:] &= window.at[1:] == ends[:-1]
        return every(whole & self.legal(lengths))

    def _aligned(self, window: Window, lengths: Int64s, ends: Int64s) -> _Aligned:
        count = len(ends)
        following = window.at.searchsorted(ends)
        begins = np.concatenate((window.at, [window.limit]))
        following[~self.legal(lengths) | (begins[following] != ends)] = -1
        stops = places(following != np.arange(1, count + 1))
        return _Aligned(lengths.tolist(), [*following.tolist(), -1], [*stops.tolist(), count])

    @classmethod
    def decode(cls, begun: Begun) -> list[Fpdus]:
        """Decode headers and payload of the FPDUs of each direction, up to an illegal one."""
        headers, framings = decode_headers(begun.windows, begun.starts, begun.lengths), begun.framings
        shifts, owners = begun.shifts, begun.sections.owners
        own = replace(headers, starts=headers.starts - shifts, ends=headers.ends - shifts)
        good = [framing._trusted(own[slice(*begun.sections[number])]) for number, framing in enumerate(framings)]
        if some(headers.illegal):
            legal = begun.sections.within < np.array([*map(len, good)])[owners]
            headers, own, owners = headers[legal], own[legal], owners[legal]
        sections, trusted = QueueSections(owners, len(framings)), np.concatenate(good)
        rows = fpdu_rows(headers, begun.windows, begun.orders[owners])
        rows["start"], rows["stop"] = own.starts, own.ends
        for number, framing in enumerate(framings):
            part = slice(*sections[number])
            framing._note(rows[part], own[part], trusted[part])
        if not every(trusted):
            rows, headers, sections = take(rows, trusted), headers[trusted], sections.part(places(trusted))
        note_numbers([framing.evidence for framing in framings], rows, headers.tagged, sections.owners)
        return begun.fpdus(rows, headers.payload_starts, sections, headers.requests())

    def _trusted(self, headers: FpduHeaders) -> Rows:
        """Which of the next FPDUs can be trusted, up to an illegal one."""
        if some(headers.illegal):
            stop = int(np.argmax(headers.illegal))
            self.at, self.synchronised = int(headers.starts[stop]), False
            headers = headers[:stop]
        self.count += len(headers)
        return self.checks.trusted(self.pending, headers)

    def _note(self, rows: Rows, headers: FpduHeaders, good: Rows) -> None:
        """Account for the next FPDUs, and set ``broken`` in their rows."""
        if not len(rows):
            return
        self.order = int(rows["order"][-1])
        if self.pending.grid is not None:
            rows["start"], rows["stop"] = map(self.pending.in_stream, (headers.starts, headers.ends))
        self._mark_broken(rows, good, headers.empty)
        if some(headers.empty):
            index = int(np.argmax(headers.empty))
            self.ready = int(rows["start"][index]), int(rows["stop"][index])

    def _mark_broken(self, rows: Rows, good: Rows, empty: Rows) -> None:
        bad = ~good & ~empty
        if not (some(bad) or self.broken or self._losses):
            return
        self.unread += int(np.count_nonzero(bad))
        if some(bad):
            self._not_read(int(rows["start"][bad.argmax()]))
        # Troubles before each FPDU, and after the last one.
        lost = np.zeros(len(rows) + 1, np.bool_)
        lost[[index for index in self._losses if index <= len(rows)]] = True
        troubles = np.concatenate(([self.broken], np.cumsum(lost[:-1].astype(np.int64) + bad) + self.broken))
        kept = np.flatnonzero(good)
        # Troubles up to and including the last trusted FPDU before each one.
        settled = np.zeros(len(rows) + 1, np.int64)
        settled[kept + 1] = troubles[kept + 1]
        settled = np.maximum.accumulate(settled)
        counted = lost & (troubles == settled)
        counted[[index for index in self._missing if index <= len(rows)]] = False
        self.lost += int(np.count_nonzero(counted))
        rows["broken"][kept] = np.diff(troubles[kept + 1], prepend=0) > 0
        self.broken = bool(troubles[-1] + lost[-1] > settled[-1])

    def _not_read(self, start: int) -> None:
        """Note that what begins at this stream position could not be decoded."""
        self.unread_from = start if self.unread_from is None else min(self.unread_from, start)

    # Finding boundaries

    def _synchronise(self, final: bool, count: int) -> bool:
        """Move ``at`` to where an FPDU begins, after ``count`` that are not decoded; True if one was found."""
        assert self.at is not None
        self.checks.doubt.lost()
        captured = bool(self.pending.window.read(self.at, 1))
        if count:
            self._losses.append(count)
            self._missing += [] if captured else [count]
        elif not self.broken:
            self.broken = True
            self.lost += captured
        if captured:
            self._not_read(int(self.pending.in_stream(np.array([self.at]))[0]))
        if self.inferred and not self.markers:
            self.markers = None
        known = self.startup is not None or self.count + count > 0
        pending, window = self.pending, self.pending.window
        crc = self.checks.crc
        search = Search(window, self.base, crc, self.evidence, known, lambda *fpdu: verify(pending, *fpdu))
        boundary = search.find(self.at, self.markers is None, self.expected, final)
        if boundary.confirmed and not final:
            boundary = self._first_found(window, known) or boundary
        self.at = boundary.at
        if not boundary.confirmed:
            if final or window.limit - self.at > MAX_PENDING:
                self.at = window.limit
            return False
        if self.markers is None:
            self.markers = boundary.grid is not None
            self.inferred = True
            self.checks.unmarked = self.checks.unmarked or (0, 0)
            if boundary.grid is not None:
                self.base = boundary.grid.base
                pending.set_grid(boundary.grid)
        if self.base is None:
            self.base = self.at
        self.synchronised = True
        return True

    def _first_found(self, window: Window, known: bool) -> Found | None:
        """The FPDU that the earliest possible frame shows: the result must not depend on how much the batch has."""
        assert self.at is not None
        at, pending, frames = self.at, self.pending, window.last_frames
        if self._given:
            positions, given = np.array(self._given, np.int64).T
            waited = positions.searchsorted(pending.in_stream(window.at), "right")
            frames = np.maximum(frames, np.append(0, given)[waited])
        first = window.index(at)
        # Possible marker positions count from the first byte there is.
        begin = 0 if self.markers is None else first

        def search(end: int) -> Found:
            part = Window(window.rows[begin:end], window.datas)
            return Search(
                part, self.base, self.checks.crc, self.evidence, known, lambda *fpdu: verify(pending, *fpdu)
            ).find(at, self.markers is None, self.expected, final=False)

        end, size = first, 1
        while end < len(frames) and not (end > first and search(end).confirmed):
            size *= 4
            end = int(frames.searchsorted(frames[min(first + size, len(frames)) - 1], side="right"))
        ends = [*(places(frames[first + 1 : end] > frames[first : end - 1]) + first + 1).tolist(), end]
        showing = bisect_left(ends[:-1], True, key=lambda end: search(end).confirmed)
        end = ends[showing]
        waits = window.index(search(ends[showing - 1]).at) if showing else first
        since, frame = int(window.rows["frame"][waits:end].min()), int(frames[end - 1])
        self.known = self.known or frame
        if since < frame:
            self.released.append((since, frame))
        return search(end) if end < len(frames) else None


def take_fpdus(framings: Sequence[Framing], final: bool = False) -> list[list[Fpdus]]:
    """By direction, the FPDUs that are complete; if ``final`` also the last one, unless only its CRC could confirm
    it."""
    decoded: dict[Framing, list[Fpdus]] = {framing: [] for framing in framings}
    beginning = open_ = [framing for framing in framings if framing.begins()]
    while open_:
        found = [(framing, *starts) for framing in open_ if (starts := framing.next_fpdus(final)) is not None]
        together: defaultdict[tuple[type[Framing], int], list[tuple[Framing, Int64s, Int64s]]] = defaultdict(list)
        for number, part in enumerate(found):
            if len(part[1]):
                together[type(part[0]), number if len(part[1]) > ENOUGH else -1].append(part)
        for (kind, _), parts in together.items():
            for (framing, _, _), fpdus in zip(parts, kind.decode(Begun(parts)), strict=True):
                if len(fpdus):
                    decoded[framing].append(fpdus)
        open_ = [framing for framing, starts, _ in found if framing.goes_on(len(starts))]
    for framing in beginning:
        framing.forget()
    return [*decoded.values()]
