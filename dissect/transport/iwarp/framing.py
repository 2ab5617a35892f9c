"""Cuts one direction of an MPA stream into FPDUs, finds their boundaries again where they were lost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ...arrays import Bytes, Int64s, Rows
from ...layers.columns import compiled
from ...layers.iwarp_codes import READ_REQUEST
from . import rdmap
from .mpa import (
    BETWEEN,
    MARKER,
    SPACING,
    MPAFrame,
    crc_ok,
    fpdu_bytes,
    is_mpa,
    mpa_frame,
    mpa_length,
    with_markers,
    without_markers,
)
from .plausibility import Doubt, judge_markers, requests_wrap, torn, wraps
from .resync import Evidence, Search
from .stream import STRETCH, Chunk
from .window import Window

LENGTH = 2
"""Bytes of the field in front of an ULPDU (RFC 5044, 4.2)."""
HEAD = LENGTH + rdmap.UNTAGGED_HEADER + rdmap.READ_REQUEST_HEADER
"""Bytes of an FPDU that are looked at."""

FPDU = np.dtype(
    [
        ("opcode", "u1"),
        ("last", "?"),
        ("broken", "?"),  # bytes are missing, or what they are is not known, between the FPDU before and this one
        ("stag", "u4"),  # tagged: the STag; untagged: what is to be invalidated
        ("msn", "u4"),  # untagged
        ("place", "u8"),  # the TO or MO
        ("length", "i4"),  # payload bytes
        ("start", "i8"),  # positions in the stream, markers counted: of its first byte, a marker before it included
        ("stop", "i8"),  # behind it
        ("ack", "u4"),  # acknowledgement number beside its last byte
        ("first_frame", "i8"),
        ("last_frame", "i8"),
        ("order", "i8"),  # the frame in whose place it stands in the order of events
        ("first_time", "i8"),
        ("last_time", "i8"),
    ]
)

MAX_PENDING = 1 << 20
"""Bytes that are kept while FPDU boundaries are looked for."""
MAX_FAILURES = 1000
WRONG_CRC, WRONG_MARKERS, WRONG_HEADERS = (
    "wrong CRC32C",
    "markers that point elsewhere",
    "headers or a length that cannot be right",
)
DOUBTED = "no CRC, behind markers or headers that are wrong"
"""Why an FPDU is not believed."""
TRIED = 8
"""FPDUs among which one with a right CRC is looked for, where Request and Reply were not seen."""


class ReadRequest(NamedTuple):
    """RFC 5040, 4.4."""

    sink_stag: int
    sink_to: int
    length: int
    source_stag: int
    source_to: int


@dataclass(slots=True)
class Fpdus:
    """Consecutive FPDUs."""

    rows: Rows
    """FPDU rows."""
    requests: dict[int, ReadRequest]
    """What RDMA Read Requests ask for, by the index of the FPDU."""
    pieces: Rows
    """STRETCH rows of all payloads; ``at`` is the place in the payload of its FPDU."""
    edges: Int64s
    """``pieces[edges[i]:edges[i + 1]]`` is the payload of FPDU ``i``."""
    datas: list[Bytes]

    def __len__(self) -> int:
        return len(self.rows)

    def payload(self, index: int) -> bytes:
        """What of the payload of an FPDU was captured, up to the first byte that was not."""
        pieces = self.pieces[int(self.edges[index]) : int(self.edges[index + 1])]
        parts: list[bytes] = []
        reached = 0
        columns = (pieces[name].tolist() for name in ("at", "payload", "length", "captured", "chunk"))
        for at, offset, length, captured, chunk in zip(*columns, strict=True):
            if at != reached:
                break
            parts.append(self.datas[chunk][offset : offset + captured].tobytes())
            reached += captured
            if captured < length:
                break
        return b"".join(parts)


class Framing:
    """Feed it the stretches of one direction, in order."""

    def __init__(self, mpa: bool) -> None:
        """``mpa``: the stream begins with a Request or Reply."""
        self.awaiting = mpa
        self.frame: MPAFrame | None = None
        self.mpa_frame = 0
        """Number of the frame that carried the Request or Reply."""
        self.mpa_time = 0
        self.greeting: tuple[int, int] | None = None
        """Where the Request or Reply begins and ends in the stream."""
        self.at: int | None = None
        """Where the next FPDU begins; without markers counted."""
        self.base: int | None = None
        """Where the first FPDU began, or a later one."""
        self.markers: bool | None = None
        """Markers are in the stream; None: not known."""
        self.expected = False
        """There are markers, but where is not known."""
        self.inferred = False
        """Whether there are markers was not agreed in this capture."""
        self.crc: bool | None = None
        self.synchronised = False
        self.broken = False
        self.evidence = Evidence()
        self.doubt = Doubt()
        self.count = 0
        self.lost = 0
        """Times that FPDU boundaries were lost."""
        self.crc_checked = self.crc_failure_count = self.marker_failure_count = 0
        self.crc_failures: list[int] = []
        """Frames; the first of them."""
        self.faults: list[tuple[int, int, str]] = []
        """Where the FPDUs begin and end in the stream that cannot be believed, and why; the first of them."""
        self.ready: tuple[int, int] | None = None
        """Where the FPDU without contents begins and ends that says its sender is ready (RFC 6581, 9.2)."""
        self.order = 0
        self.incoming: list[Rows] = []
        self.raw = np.zeros(0, STRETCH)
        """As they were in the stream, where markers are."""
        self.rows = np.zeros(0, STRETCH)
        self.datas: list[Bytes] = []

    def feed(self, chunks: list[Chunk]) -> None:
        """Take what follows in the stream."""
        for data, rows in chunks:
            if not self.datas or self.datas[-1] is not data:
                self.datas.append(data)
            rows["chunk"] = len(self.datas) - 1
            self.incoming.append(rows)

    @property
    def waiting_since(self) -> int | None:
        """The first frame of which it is not known where its FPDUs begin."""
        if self.synchronised or self.at is None:
            return None
        first = int(np.searchsorted(self.rows["at"], self.at))
        return int(self.rows["frame"][first:].min()) if first < len(self.rows) else None

    def _gather(self) -> None:
        if not self.incoming:
            return
        fresh = np.concatenate(self.incoming)
        self.incoming.clear()
        if self.markers:
            self.raw = np.concatenate((self.raw, fresh))
            fresh = without_markers(fresh, self._base)
        self.rows = np.concatenate((self.rows, fresh)) if len(self.rows) else fresh

    # Set-up

    def greet(self) -> bool:
        """Take the Request or Reply; whether one was seen now."""
        if not self.awaiting:
            return False
        self._gather()
        if not len(self.rows):
            return False
        window = Window(self.rows, self.datas)
        start = window.starts[0]
        head = window.read(start, 20)
        if len(head) < 20 and start + 20 > window.limit:
            return False
        length = mpa_length(head) if is_mpa(head) and len(head) == 20 else 0
        if length and start + length > window.limit:
            return False
        self.frame = mpa_frame(window.read(start, length))
        self.awaiting = False
        self.at = start
        if self.frame is not None:
            self.greeting = start, start + length
            self.begin(start + length)
        row = self.rows[0]
        self.mpa_frame, self.mpa_time = int(row["frame"]), int(row["time"])
        if self.frame is not None:
            self.order = max(self.order, self.mpa_frame)
            self._forget(window)
        return self.frame is not None

    def begin(self, base: int) -> None:
        """The first FPDU begins at position ``base``."""
        self.at = self.base = base
        self.synchronised = True

    @property
    def heard(self) -> bool:
        """Something was sent."""
        return bool(self.incoming) or bool(len(self.rows))

    def first_ack(self) -> int | None:
        """The acknowledgement number beside the first FPDU, where its first byte was captured."""
        self._gather()
        if self.base is None or not len(self.rows) or int(self.rows["at"][0]) != self.base:
            return None
        return int(self.rows["ack"][0])

    def agree(self, markers: bool, crc: bool | None) -> None:
        """What Request and Reply settled for this direction."""
        self._gather()
        self.crc = crc
        if markers and self.base is None:
            self.expected = True
            return
        self.markers = markers
        if markers:
            self.raw, self.rows = self.rows, without_markers(self.rows, self._base)

    # FPDUs

    def cut(self, final: bool = False) -> list[Fpdus]:
        """The FPDUs that are complete; with ``final`` also one that is not, unless its CRC would have to confirm it."""
        if self.awaiting:
            return []
        self._gather()
        if not len(self.rows):
            return []
        if self.at is None:
            self.at = int(self.rows["at"][0])
        found: list[Fpdus] = []
        window = Window(self.rows, self.datas)
        while self.at < window.limit:
            if self.markers is None or not self.synchronised:
                window, synchronised = self._synchronise(window, final)
                if not synchronised:
                    break
            starts, lengths = self._walk(window, final)
            if starts:
                found.append(self._decode(window, np.array(starts), np.array(lengths)))
            if self.synchronised:
                break
            if len(window.read(self.at, LENGTH)) == LENGTH:
                self.doubt.contradict()
        self._forget(window)
        return [one for one in found if len(one)]

    def _walk(self, window: Window, final: bool) -> tuple[list[int], list[int]]:
        """Positions and ULPDU lengths of the FPDUs from ``at`` on."""
        starts: list[int] = []
        lengths: list[int] = []
        at, limit = self.at, window.limit
        assert at is not None
        ends, begins, readable = window.ends, window.starts, window.readable
        shifts, chunks, views = window.shifts, window.chunks, window.views
        index, last = 0, len(ends)
        while at + 2 <= limit:
            while index < last and ends[index] <= at:
                index += 1
            if begins[index] <= at and at + 2 <= readable[index]:
                view, offset = views[chunks[index]], at + shifts[index]
                length = view[offset] << 8 | view[offset + 1]
            else:
                head = window.read(at, 2)
                if len(head) < 2:
                    self.synchronised = False
                    break
                length = head[0] << 8 | head[1]
            end = at + (length + 5 & ~3) + 4
            if length < rdmap.TAGGED_HEADER and not (length == 0 and not self.count and not starts):
                self.synchronised = False
                break
            if end > limit and (self.crc or not final):
                break
            starts.append(at)
            lengths.append(length)
            at = end
        self.at = at
        return starts, lengths

    def _decode(self, window: Window, starts: Int64s, lengths: Int64s) -> Fpdus:
        """Headers and payload of FPDUs, up to one that cannot be one."""
        raw, there = window.heads(starts, HEAD)
        flat, places = raw.reshape(-1), np.arange(len(starts)) * HEAD + LENGTH
        tag = compiled("DDPTagged")(flat, places, ("stag", "tagged_offset"))
        untag = compiled("DDPUntagged")(flat, places, ("inval_stag", "qn", "msn", "mo"))
        control = raw[:, 2].astype(np.int64) << 8 | raw[:, 3]
        opcode = (control & 15).astype(np.uint8)
        tagged = control & rdmap.TAGGED << 8 != 0
        header = np.where(tagged, rdmap.TAGGED_HEADER, rdmap.UNTAGGED_HEADER)
        fixed = np.where(tagged, 0, rdmap.FIXED[opcode])
        legal = rdmap.LEGAL[control] & (lengths >= header) & ((fixed == 0) | (lengths == fixed))
        legal &= tagged | (there < 12) | (untag["qn"] == rdmap.QUEUE[opcode])
        known = there >= np.where(opcode == READ_REQUEST, HEAD, LENGTH + header)
        nothing = lengths == 0
        wrong = ~legal & (there >= 4) & ~nothing
        if wrong.any():
            stop = int(np.argmax(wrong))
            self.at, self.synchronised = int(starts[stop]), False
            starts, lengths, places, known = starts[:stop], lengths[:stop], places[:stop], known[:stop]
            opcode, tagged, header, control = opcode[:stop], tagged[:stop], header[:stop], control[:stop]
            nothing = nothing[:stop]
            tag = {name: column[:stop] for name, column in tag.items()}
            untag = {name: column[:stop] for name, column in untag.items()}
        good = known & ~nothing
        if self.crc is None and len(starts):
            stream = self._raw_window(window)
            tried = zip(starts[:TRIED].tolist(), lengths[:TRIED].tolist(), strict=True)
            if any(self._crc(stream, start, length) for start, length in tried):
                self.crc = True
        if self.markers and len(starts):
            raw_window = self._raw_window(window)
            wrong, right = judge_markers(raw_window, self._base, starts, lengths)
            self.marker_failure_count += int(np.count_nonzero(wrong))
            self._faults(starts, lengths, wrong, WRONG_MARKERS)
            good &= ~wrong
            if not self.crc:
                queue = np.where(tagged, -1, rdmap.QUEUE[opcode].astype(np.int64))
                odd = known & tagged & wraps(tag["tagged_offset"], lengths - header)
                odd |= self.doubt.out_of_sequence(queue, untag["msn"], untag["mo"], good)
                asked = np.flatnonzero(known & (opcode == READ_REQUEST))
                odd[asked] |= requests_wrap(flat, places[asked] + rdmap.UNTAGGED_HEADER)
                stops = starts + (lengths + 5 & ~3) + 4
                odd[-1] |= torn(window, int(stops[-1]))
                odd |= self.doubt.lone_markers(window, raw_window, self._base, starts, stops)
                odd &= good
                believed = self.doubt.believe(wrong | odd, right)
                self._faults(starts, lengths, odd, WRONG_HEADERS)
                self._faults(starts, lengths, good & ~odd & ~believed, DOUBTED)
                self.doubt.count += int(np.count_nonzero(good & ~believed))
                good &= believed
        elif not self.crc and len(starts) and good[-1] and torn(window, int(starts[-1]) + fpdu_bytes(int(lengths[-1]))):
            # A sender that inserts markers although none were agreed, for one.
            self._faults(starts[-1:], lengths[-1:], good[-1:], WRONG_HEADERS)
            self.doubt.count += 1
            good[-1] = False
        if self.crc:
            # What cannot be verified because some of it is missing may be as wrong as its length.
            good &= self._verify(window, starts, lengths) & window.covers(starts, starts + (lengths + 5 & ~3) + 4)
        self.count += len(starts)
        rows = np.zeros(len(starts), FPDU)
        rows["opcode"], rows["last"] = opcode, control & rdmap.LAST << 8 != 0
        rows["stag"], rows["msn"] = np.where(tagged, tag["stag"], untag["inval_stag"]), untag["msn"]
        rows["place"] = np.where(tagged, tag["tagged_offset"], untag["mo"])
        rows["length"] = np.maximum(lengths - header, 0)
        ends = starts + (lengths + 5 & ~3) + 4
        first = np.minimum(np.searchsorted(window.end, starts, side="right"), len(window.at) - 1)
        final = np.maximum(np.searchsorted(window.at, ends, side="left") - 1, first)
        frames, times = window.rows["frame"], window.rows["time"]
        orders = np.maximum(np.maximum.accumulate(frames), self.order)
        rows["first_frame"] = np.minimum(frames[first], frames[final])
        rows["last_frame"] = np.maximum(frames[first], frames[final])
        rows["first_time"] = np.minimum(times[first], times[final])
        rows["last_time"] = np.maximum(times[first], times[final])
        rows["order"] = orders[final]
        rows["ack"] = window.rows["ack"][final]
        rows["start"], rows["stop"] = self._in_stream(starts), self._in_stream(ends)
        if len(rows):
            self.order = int(rows["order"][-1])
            self._mark_broken(rows, good, nothing)
        if nothing.any():
            self.ready = int(rows["start"][np.argmax(nothing)]), int(rows["stop"][np.argmax(nothing)])
        rows, places, starts, header = rows[good], places[good], starts[good], header[good]
        self.evidence.saw(rows, tagged[good])
        low = starts + LENGTH + header
        pieces, edges = window.pieces(low, low + rows["length"])
        pieces["at"] -= np.repeat(low, np.diff(edges))
        return Fpdus(rows, _requests(flat, places, rows), pieces, edges, self.datas.copy())

    @property
    def _base(self) -> int:
        assert self.base is not None
        return self.base

    def _in_stream(self, places: Int64s) -> Int64s:
        """Positions in the stream of places that do not count markers."""
        if not self.markers:
            return places
        block, inside = np.divmod(places - self._base, BETWEEN)
        return self._base + block * SPACING + np.where(inside, inside + MARKER, 0)

    def _mark_broken(self, rows: Rows, good: Rows, nothing: Rows) -> None:
        bad = ~good & ~nothing
        kept = np.flatnonzero(good)
        before = np.cumsum(bad)[kept]
        rows["broken"][kept] = np.diff(before, prepend=0) > 0
        if len(kept):
            rows["broken"][kept[0]] |= self.broken
            self.broken = bool(bad[int(kept[-1]) :].any())
        else:
            self.broken = self.broken or bool(bad.any())

    def _verify(self, window: Window, starts: Int64s, lengths: Int64s) -> Rows:
        """Which FPDUs do not have a wrong CRC."""
        good = np.ones(len(starts), np.bool_)
        view = self._raw_window(window)
        for index, (start, length) in enumerate(zip(starts.tolist(), lengths.tolist(), strict=True)):
            verdict = self._crc(view, start, length)
            good[index] = verdict is not False
            self.crc_checked += verdict is not None
        wrong = np.flatnonzero(~good)
        self.crc_failure_count += len(wrong)
        self._faults(starts, lengths, ~good, WRONG_CRC)
        for index in wrong[: MAX_FAILURES - len(self.crc_failures)].tolist():
            row = int(np.searchsorted(window.end, starts[index], side="right"))
            self.crc_failures.append(int(window.rows["frame"][min(row, len(window.rows) - 1)]))
        return good

    def _faults(self, starts: Int64s, lengths: Int64s, which: Rows, why: str) -> None:
        index = np.flatnonzero(which)[: MAX_FAILURES - len(self.faults)]
        first = self._in_stream(starts[index])
        stop = self._in_stream(starts[index] + (lengths[index] + 5 & ~3) + 4)
        self.faults += [(left, right, why) for left, right in zip(first.tolist(), stop.tolist(), strict=True)]

    def _raw_window(self, window: Window) -> Window:
        return Window(self.raw, self.datas) if self.markers else window

    def _crc(self, raw: Window, start: int, length: int) -> bool | None:
        """Whether an FPDU has the right CRC; None where it was not captured whole."""
        end = start + fpdu_bytes(length)
        if self.markers:
            start, end = with_markers(start, self._base), with_markers(end, self._base)
        fpdu = raw.read(start, end - start)
        return crc_ok(fpdu) if len(fpdu) == end - start else None

    # Finding boundaries

    def _synchronise(self, window: Window, final: bool) -> tuple[Window, bool]:
        """Move ``at`` to where an FPDU begins; the window may have to be another one then."""
        assert self.at is not None
        self.doubt.lost()
        if not self.broken:
            self.broken = True
            self.lost += 1
        if self.inferred and not self.markers:
            self.markers = None
        raw = self._raw_window(window)
        known = self.frame is not None or self.count > 0
        search = Search(window, self.base, self.crc, self.evidence, known, lambda *one: self._crc(raw, *one))
        found = search.find(self.at, self.markers is None, self.expected, final)
        self.at = found.at
        if not found.confirmed:
            if final or window.limit - self.at > MAX_PENDING:
                self.at = window.limit
            return window, False
        if self.markers is None:
            self.markers = found.marker_base is not None
            self.inferred = True
            if found.marker_base is not None:
                self.raw, self.base = self.rows, found.marker_base
                self.rows = without_markers(self.raw, self.base)
                window = Window(self.rows, self.datas)
        if self.base is None:
            self.base = self.at
        self.synchronised = True
        return window, True

    def _forget(self, window: Window) -> None:
        """Let go of what lies before ``at``."""
        assert self.at is not None
        keep = int(np.searchsorted(window.end, self.at, side="right"))
        self.rows = self.rows[keep:].copy()
        if self.markers:
            at = with_markers(self.at, self._base)
            self.raw = self.raw[int(np.searchsorted(self.raw["at"] + self.raw["length"], at, side="right")) :].copy()
        used = np.union1d(self.rows["chunk"], self.raw["chunk"]) if self.markers else np.unique(self.rows["chunk"])
        self.datas = [self.datas[number] for number in used.tolist()]
        self.rows["chunk"] = np.searchsorted(used, self.rows["chunk"])
        if self.markers:
            self.raw["chunk"] = np.searchsorted(used, self.raw["chunk"])


def _requests(flat: Bytes, places: Int64s, rows: Rows) -> dict[int, ReadRequest]:
    index = np.flatnonzero(rows["opcode"] == READ_REQUEST)
    if not len(index):
        return {}
    names = ("sinkstag", "sinkto", "rdmardsz", "srcstag", "srcto")
    columns = compiled("RDMAPReadRequest")(flat, places[index] + rdmap.UNTAGGED_HEADER, names)
    found = zip(*(columns[name].tolist() for name in names), strict=True)
    return dict(zip(index.tolist(), map(ReadRequest._make, found), strict=True))
