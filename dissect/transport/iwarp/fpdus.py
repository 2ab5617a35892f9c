"""FPDUs: their headers in columns, how to find them after boundaries were lost, and what their CRCs say.

RFC 5044 (MPA), RFC 5041 (DDP), RFC 5040 (RDMAP).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import chain
from typing import Any

import numpy as np

from ...arrays import Bytes, Int64s, Rows, places
from ...layers import fpdus
from ...layers.columns import compiled
from ...layers.fpdus import (
    BETWEEN_MARKERS,
    LENGTH_BYTES,
    MARKER_BYTES,
    MARKER_INTERVAL,
    MarkerGrid,
    fpdu_bytes,
    verify_crc,
)
from ...layers.iwarp_codes import HEADER_BYTES, OPCODES, READ_REQUEST
from ...named_tuple import NamedTuple
from ...serial import DDP_MSN
from .stream import PendingBytes, Window, without_markers

TAGGED, LAST = 0x80, 0x40
"""Bits of the DDP control octet (RFC 5041, 4.1)."""
DDP_VERSION = 1
RDMAP_VERSION = 1

TAGGED_HEADER, UNTAGGED_HEADER = HEADER_BYTES["DDPTagged"], HEADER_BYTES["DDPUntagged"]
READ_REQUEST_HEADER = HEADER_BYTES["RDMAPReadRequest"]

_FIXED = {"RDMAPReadRequest", "RDMAPImmediateData", "RDMAPAtomicRequest", "RDMAPAtomicResponse"}
"""Opcodes whose headers nothing follows."""

QUEUES = {  # opcode of an untagged message: (queue number, ULPDU bytes if they are fixed)
    row.value: (row.queue, UNTAGGED_HEADER + HEADER_BYTES[row.header] if row.header in _FIXED else None)
    for row in OPCODES.values()
    if row.queue is not None
}

LEGAL = np.zeros(1 << 16, np.bool_)
"""By the DDP and RDMAP control octets as one number: whether they are legal."""
for _last in (0, LAST):
    for _opcode in range(12):
        _control = (0 if _opcode in QUEUES else TAGGED) | _last | DDP_VERSION
        LEGAL[_control << 8 | RDMAP_VERSION << 6 | _opcode] = True

QUEUE = np.zeros(16, np.uint32)
FIXED = np.zeros(16, np.int32)
"""By opcode: ULPDU bytes; 0 if they vary."""
for _opcode, (_queue, _size) in QUEUES.items():
    QUEUE[_opcode], FIXED[_opcode] = _queue, _size or 0


HEAD = LENGTH_BYTES + UNTAGGED_HEADER + READ_REQUEST_HEADER
"""Bytes of an FPDU that are decoded."""
CONTROL = 4
"""Bytes of the length field and of the control octets."""
TO_QUEUE = 12
"""Bytes up to and including the queue number."""

FPDU = np.dtype(
    [
        ("opcode", "u1"),
        ("last", "?"),
        ("broken", "?"),  # bytes are missing or undecodable between the previous FPDU and this one
        ("stag", "u4"),  # tagged: the STag; untagged: the STag to invalidate
        ("msn", "u4"),  # untagged
        ("place", "u8"),  # the TO or MO
        ("length", "i4"),  # payload bytes
        ("start", "i8"),  # stream position, counting markers, of its first byte, or of a marker before that
        ("stop", "i8"),  # stream position after it
        ("ack", "u4"),  # acknowledgement number of the segment with its last byte
        ("first_frame", "i8"),
        ("last_frame", "i8"),
        ("order", "i8"),  # the place in the order of events: a frame number
        ("first_time", "i8"),
        ("last_time", "i8"),
    ],
    align=True,
)


class ReadRequest(NamedTuple):
    """What an RDMA Read Request asks for (RFC 5040, 4.4)."""

    sink_stag: int
    sink_to: int
    length: int
    source_stag: int
    source_to: int


@dataclass(slots=True)
class Fpdus:
    """Consecutive FPDUs of one direction, in columns."""

    rows: Rows
    """FPDU rows."""
    requests: dict[int, ReadRequest]
    """The RDMA Read Requests, by index of the FPDU."""
    pieces: Rows
    """STRETCH rows of all payloads; ``at`` is the offset in the payload of the FPDU."""
    edges: Int64s
    """``pieces[edges[i]:edges[i + 1]]`` is the payload of FPDU ``i``."""
    datas: list[Bytes]

    def __len__(self) -> int:
        return len(self.rows)

    def payload(self, index: int) -> bytes:
        """The payload of an FPDU up to its first byte that is not captured."""
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


@dataclass(frozen=True, slots=True)
class FpduHeaders:
    """The headers of consecutive FPDUs, a column for each field; all of the same length."""

    starts: Int64s
    """Places: stream positions not counting markers."""
    ends: Int64s
    lengths: Int64s
    """ULPDU lengths."""
    opcode: Rows
    last: Rows
    tagged: Rows
    size: Rows
    """Bytes of the DDP and RDMAP header."""
    stag: Rows
    """Untagged: the STag to invalidate."""
    msn: Rows
    place: Rows
    """The TO or MO."""
    empty: Rows
    """A ULPDU of no bytes, by which the sender says that it is ready (RFC 6581, 9.2)."""
    captured: Rows
    """The header is in the capture."""
    illegal: Rows
    """An FPDU cannot begin like this."""
    head: Bytes
    """The first HEAD bytes of each; zero where not captured."""

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, which: slice | Rows) -> FpduHeaders:
        return FpduHeaders(*(getattr(self, field.name)[which] for field in fields(self)))

    @property
    def payload_starts(self) -> Int64s:
        return self.starts + LENGTH_BYTES + self.size

    def reads(self) -> Int64s:
        """Indices of the RDMA Read Requests."""
        return places(self.opcode == READ_REQUEST)

    def read_columns(self, index: Int64s, *names: str) -> dict[str, Any]:
        """Header fields of the RDMA Read Requests at indices, by the names of the Scapy layer."""
        head = np.ascontiguousarray(self.head[index])
        at = np.arange(len(index)) * HEAD + LENGTH_BYTES + UNTAGGED_HEADER
        return compiled("RDMAPReadRequest")(head.reshape(-1), at, names)

    def requests(self) -> dict[int, ReadRequest]:
        index = self.reads()
        if not len(index):
            return {}
        names = ("sinkstag", "sinkto", "rdmardsz", "srcstag", "srcto")
        columns = self.read_columns(index, *names)
        values = zip(*(columns[name].tolist() for name in names), strict=True)
        return dict(zip(index.tolist(), map(ReadRequest._make, values), strict=True))


def decode_headers(window: Window, starts: Int64s, lengths: Int64s) -> FpduHeaders:
    """Decode the FPDUs at these places, ascending; ``lengths``: their ULPDU lengths."""
    head, there = window.heads(starts, HEAD)
    flat, at = head.reshape(-1), np.arange(len(starts)) * HEAD + LENGTH_BYTES
    tag = compiled("DDPTagged")(flat, at, ("stag", "tagged_offset"))
    untag = compiled("DDPUntagged")(flat, at, ("inval_stag", "qn", "msn", "mo"))
    control = head[:, 2].astype(np.int64) << 8 | head[:, 3]
    opcode = (control & 15).astype(np.uint8)
    tagged = control & TAGGED << 8 != 0
    size = np.where(tagged, TAGGED_HEADER, UNTAGGED_HEADER)
    fixed = np.where(tagged, 0, FIXED[opcode])
    legal = LEGAL[control] & (lengths >= size) & ((fixed == 0) | (lengths == fixed))
    legal &= tagged | (there < TO_QUEUE) | (untag["qn"] == QUEUE[opcode])
    empty = lengths == 0
    return FpduHeaders(
        starts,
        starts + fpdu_bytes(lengths),
        lengths,
        opcode,
        control & LAST << 8 != 0,
        tagged,
        size,
        np.where(tagged, tag["stag"], untag["inval_stag"]),
        untag["msn"],
        np.where(tagged, tag["tagged_offset"], untag["mo"]),
        empty,
        there >= np.where(opcode == READ_REQUEST, HEAD, LENGTH_BYTES + size),
        ~legal & (there >= CONTROL) & ~empty,
        head,
    )


def fpdu_rows(headers: FpduHeaders, window: Window, orders: Int64s) -> Rows:
    """FPDU rows without ``broken``; ``orders``: by FPDU, the order of the last FPDU before these in its stream."""
    rows = np.zeros(len(headers), FPDU)
    for name in ("opcode", "last", "stag", "msn", "place"):
        rows[name] = getattr(headers, name)
    rows["length"] = np.maximum(headers.lengths - headers.size, 0)
    placed(rows, window, headers.starts, headers.ends, orders)
    return rows


def placed(rows: Rows, window: Window, starts: Int64s, ends: Int64s, orders: Int64s) -> None:
    """Fill in which frames carried FPDUs, when, and what these acknowledge; ``orders``: as in ``fpdu_rows``."""
    if (single := window.single(starts, ends)) is not None:
        carrying = window.rows[single]
        for name in "frame", "time":
            rows[f"first_{name}"] = rows[f"last_{name}"] = carrying[name]
        rows["order"], rows["ack"] = np.maximum(window.last_frames[single], orders), carrying["ack"]
        return
    first = np.minimum(window.end.searchsorted(starts, side="right"), len(window.at) - 1)
    final = np.maximum(window.at.searchsorted(ends, side="left") - 1, first)
    for name, of_first, of_last in (
        ("frame", "first_frame", "last_frame"),
        ("time", "first_time", "last_time"),
    ):
        values = window.rows[name]
        rows[of_first] = np.minimum(values[first], values[final])
        rows[of_last] = np.maximum(values[first], values[final])
    # If the last bytes are missing, the next frame shows that they were sent.
    shown = np.minimum(final + (window.end[final] < ends), window.behind[window.owners[final]] - 1)
    rows["order"] = np.maximum(window.last_frames[shown], orders)
    rows["ack"] = window.rows["ack"][final]


ENOUGH = 44
"""Bits of evidence needed in a stream that is known to be iWARP."""
ENOUGH_UNKNOWN = 56

LEGAL_CONTROL = 11
"""Bits of evidence: 24 of 65,536 values of the control octets are legal."""
RIGHT_QUEUE = 30
RIGHT_LENGTH = 14
ALIGNED = 8
CONTINUED = 24
RIGHT_CRC = 32

NEAR = 64
"""Messages that may be missing before one that continues a queue."""
SEARCHED = 20
"""Bytes of a length field and an untagged header."""
SHOWN = MARKER_INTERVAL + SEARCHED
"""Bytes within which a marker must have appeared."""

ENDLESS = 1 << 62

MAX_CANDIDATES = 512
MAX_SCANNED = 1 << 18
"""Bytes searched."""
MAX_HEADERS = 256
MAX_MARKERS = 8

YES, MAYBE, NO = range(3)


class Found(NamedTuple):
    """Where to continue."""

    at: int
    """The place of an FPDU; if not confirmed, everything before it need not be searched again."""
    confirmed: bool
    grid: MarkerGrid | None = None
    """The markers, if they were unknown before; ``at`` then does not count them."""


class Evidence:
    """What earlier FPDUs of a direction showed."""

    def __init__(self) -> None:
        self.msn: dict[int, int] = {}
        """Last message sequence number by queue."""
        self.ahead: tuple[Window, list[Int64s]] | None = None
        """Places of later FPDUs that are not decoded."""

    def continued(self, queue: int, msn: int) -> bool:
        last = self._last_ahead(queue)
        last = self.msn.get(queue) if last is None else last
        return last is not None and DDP_MSN.distance(last, msn) <= NEAR

    def _last_ahead(self, queue: int) -> int | None:
        if self.ahead is None:
            return None
        window, parts = self.ahead
        for at in chain.from_iterable(reversed(part.tolist()) for part in reversed(parts)):
            head = window.read(at, SEARCHED)
            header = _header(head) if len(head) == SEARCHED else None
            if header is not None and header.queue == queue:
                return header.key
        return None


def note_numbers(evidence: Sequence[Evidence], rows: Rows, tagged: Rows, owners: Int64s) -> None:
    """Note the message sequence numbers of FPDU rows; ``owners``: index of the Evidence of each row, ascending."""
    queues = np.where(tagged, 4, QUEUE[rows["opcode"]])
    lasts = np.full((len(evidence), 5), -1)
    lasts[owners, queues] = rows["msn"]
    for owner, queue in np.argwhere(lasts[:, :4] >= 0).tolist():
        evidence[owner].msn[queue] = int(lasts[owner, queue])


class _Header(NamedTuple):
    length: int
    bits: int
    queue: int
    """-1 if tagged."""
    key: int
    """STag or MSN."""
    place: int
    """TO or MO."""
    payload: int


def _header(head: bytes) -> _Header | None:
    """Bytes decoded as a length field and a DDP header; None if they cannot be that."""
    length = head[0] << 8 | head[1]
    control = head[2] << 8 | head[3]
    if not LEGAL[control]:
        return None
    if head[2] & TAGGED:
        if length < TAGGED_HEADER:
            return None
        key, place = int.from_bytes(head[4:8], "big"), int.from_bytes(head[8:16], "big")
        return _Header(length, LEGAL_CONTROL, -1, key, place, length - TAGGED_HEADER)
    queue, size = QUEUES[head[3] & 15]
    if length < UNTAGGED_HEADER or int.from_bytes(head[8:12], "big") != queue or (size or length) != length:
        return None
    bits = LEGAL_CONTROL + RIGHT_QUEUE + (RIGHT_LENGTH if size else 0)
    msn, place = int.from_bytes(head[12:16], "big"), int.from_bytes(head[16:20], "big")
    return _Header(length, bits, queue, msn, place, length - UNTAGGED_HEADER)


class Search:
    """One search in the pending bytes."""

    def __init__(
        self,
        window: Window,
        base: int | None,
        crc: bool | None,
        evidence: Evidence,
        known: bool,
        verify: Callable[[int, int], bool | None],
    ) -> None:
        """``base``: position of any FPDU.  ``verify``: checks the CRC of the FPDU at a position with a ULPDU length."""
        self.window = window
        self.base = base
        self.crc = crc
        self.evidence = evidence
        self.known = known
        self.verify = verify
        self.edges = window.edges

    def find(self, at: int, markers_unknown: bool, expected: bool, final: bool) -> Found:
        """The first position from ``at`` on where an FPDU begins.

        ``expected``: there are markers, at unknown positions; ``final``: no more bytes come.
        """
        maybe: int | None = None
        span = ENDLESS if expected else SHOWN if markers_unknown and not final else 0
        for candidate in self._candidates(at):
            verdict, broken = self._chain(candidate, span, exact=markers_unknown and final and not expected)
            if verdict == MAYBE and maybe is None:
                maybe = candidate
            if (verdict != MAYBE or final) and markers_unknown and broken is not None:
                marked = self._with_markers(candidate, broken, final)
                if marked is not None and marked.confirmed:
                    return marked
                maybe = candidate if marked is not None and maybe is None else maybe
            if verdict == YES:
                return Found(candidate, True)
        # The control octets of an FPDU that begins with the last bytes may not have come yet.
        rest = max(at, self.window.limit - CONTROL + 1)
        behind = rest if not final and self.window.read(rest, 1) else self.window.limit
        return Found(behind if maybe is None else maybe, False)

    def _candidates(self, at: int) -> Iterator[int]:
        """Positions, ascending, where an FPDU may begin by its control octets; a bounded number."""
        window = self.window
        count = scanned = 0
        for index in range(int(np.searchsorted(window.end, at, side="right")), len(window.starts)):
            high, shift, data = window.stretch(index)
            low = max(at, window.starts[index])
            # The control octets may be in the next segment, as an FPDU can begin with a segment's last byte.
            data = np.concatenate((data[low + shift : high + shift], np.frombuffer(window.read(high, 3), np.uint8)))
            if high <= low or len(data) < 4:
                continue
            control = data[2:-1].astype(np.uint16) << 8 | data[3:]
            hits = np.flatnonzero(LEGAL[control])
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
        """Whether FPDUs follow each other from ``at`` on, up to one ``span`` bytes later or, if ``exact``, up to the
        last byte; and the last possible FPDU or, if they do follow each other, the first with a wrong CRC."""
        window, evidence = self.window, self.evidence
        begin, bits, linked = at, ALIGNED if at in self.edges else 0, False
        verified = unverified = headers = 0
        sure = False
        before: _Header | None = None
        last: int | None = None
        wrong: int | None = None
        while headers < MAX_HEADERS:
            if at + SEARCHED > window.limit:
                if exact and at == window.limit and sure:
                    return YES, wrong
                return MAYBE, last
            head = window.read(at, SEARCHED)
            header = _header(head) if len(head) == SEARCHED else None
            if header is None:
                # Everything up to bytes that were not captured is FPDUs: as good as up to the last byte.
                return (YES, wrong) if sure and not head and (wrong is None or not verified) else (NO, last)
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
                elif wrong is None:
                    wrong = at
            if self.crc and not unverified:
                confirmed = verified > 0
            else:
                # In a stream known to be iWARP, a message that fills its segments confirms itself.
                confirmed = headers > 1 or verified > 0 or ((linked or alone) and self.known)
            sure = confirmed and bits >= (ENOUGH if self.known else ENOUGH_UNKNOWN)
            if sure and at - begin >= span and not exact:
                return YES, wrong
            at = end
        return NO, last

    # Markers that were not agreed on in this capture

    def _with_markers(self, at: int, broken: int, final: bool) -> Found | None:
        """Try whether markers explain why the FPDUs from ``at`` on break off after the header at ``broken``.

        Two markers with fitting pointers confirm it; if ``final``, one with fitting CRCs does.  A single marker is not
        confirmed before that.  None if payload may look like a marker instead: CRCs cover both.
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
            elif verdict != NO and not final and self._pointers_fit(bare, begin, grid) >= 0:
                likely = Found(at, False)
        if len(fitting) > 1:
            return Found(at, False)
        return next(iter(fitting.values()), likely)

    def _crcs_fit(self, bare: Window, at: int, grid: MarkerGrid) -> bool:
        """Whether FPDUs with right CRCs follow each other from ``at`` on, at least one with a marker in it."""
        if self.crc is False or self._pointers_fit(bare, at, grid) < 1:
            return False
        marked = False
        for _ in range(MAX_HEADERS):
            if at + SEARCHED > bare.limit:
                break
            head = bare.read(at, SEARCHED)
            header = _header(head) if len(head) == SEARCHED else None
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
        """Positions of possible markers that point back to the FPDU at ``at``, or come directly before or after it.

        RFC 5044, 4.3.
        """
        head = self.window.read(at, MARKER_INTERVAL + MARKER_BYTES)
        words = np.frombuffer(head[: len(head) & ~3], ">u4")
        candidates = [at + 4 * index for index in np.flatnonzero(words == 4 * np.arange(len(words))).tolist() if index]
        end = at + fpdu_bytes(head[0] << 8 | head[1])
        for marker in (end, at - MARKER_BYTES):
            if self.window.read(marker, MARKER_BYTES) == bytes(MARKER_BYTES):
                candidates.append(marker)
        return candidates[:MAX_MARKERS]

    def _pointers_fit(self, bare: Window, at: int, grid: MarkerGrid) -> int:
        """Number of markers that point to the FPDU they are in; -1 if one points elsewhere."""
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
                        return -1
                    right += 1
            at = end
        return right


def _continues(before: _Header, header: _Header) -> bool:
    """Whether a header continues the message before it, or begins the next one of its queue."""
    if header.queue < 0:
        return header.key == before.key and header.place == before.place + before.payload
    same = header.key == before.key and header.place == before.place + before.payload
    return same or (header.key == before.key + 1 and header.place == 0)


SURE = 4
"""Consecutive right markers after which a direction is trusted again."""


class Doubt:
    """Whether the FPDUs of one direction can be trusted, by what was seen of it."""

    def __init__(self) -> None:
        self.right = SURE
        """Right markers since the last contradiction; a stream is trusted until the first one."""
        self.msn: dict[int, int] = {}
        """Last message sequence number by queue, for queues without losses since."""
        self.spread = False
        """An FPDU was spread over several frames: the sender does not align segments with FPDUs (RFC 5044, 5)."""
        self.count = 0
        """FPDUs that are not trusted although they hold no wrong marker."""

    def contradict(self) -> None:
        """Note that bytes are there, but no FPDU begins where one should."""
        self.right = 0

    def lost(self) -> None:
        """Note that messages may be missing."""
        self.msn.clear()

    def trusted(self, contradiction: Rows, markers: Int64s) -> Rows:
        """Which FPDUs are trusted; ``contradiction``: which cannot be right; ``markers``: number of right markers in
        each.
        """
        seen = self.right + np.cumsum(markers)
        last = np.maximum.accumulate(np.where(contradiction, np.arange(len(seen)), -1))
        run = np.where(last < 0, seen, seen - seen[last])
        if len(run):
            self.right = min(SURE, int(run[-1]))
        trusted: Rows = ~contradiction & (run >= SURE)
        return trusted

    def out_of_sequence(self, queue: Rows, msn: Rows, offset: Rows, known: Rows) -> Rows:
        """Which untagged FPDUs (``known``) do not follow those before them on their queue (RFC 5041, 5.2.2).

        A message begins at offset 0 with the next number; messages in between may be missing.
        """
        wrong: Rows = known & (queue == QUEUE[READ_REQUEST]) & (offset != 0)
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
        """Which FPDUs are followed, in their frame, by a marker and nothing else.

        A sender that aligns segments with FPDUs sends a marker together with what follows it.  So these four bytes are
        the end of an FPDU that a marker off the grid made longer.
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
    """Which stretches of memory wrap around the end of the address space (RFC 5041, 4.2)."""
    wrapping: Rows = np.maximum(length.astype(np.int64), 1).astype(np.uint64) - np.uint64(1) > ~offset.astype(np.uint64)
    return wrapping


def torn(window: Window, end: int) -> bool:
    """Whether the frame with the last byte before ``end`` continues with bytes that cannot begin an FPDU."""
    head = window.read(end, CONTROL)
    if len(head) < CONTROL:
        return False
    before, after = _frames(window, end - 1, end + CONTROL - 1)
    nothing = (head[0] << 8 | head[1]) < TAGGED_HEADER
    return before == after and bool(nothing or not LEGAL[head[2] << 8 | head[3]])


def _frames(window: Window, *at: int) -> list[int | None]:
    """The frames that carried the bytes at these positions; None if none has so far."""
    rows = np.searchsorted(window.end, at, side="right").tolist()
    return [int(window.rows["frame"][row]) if row < len(window.rows) else None for row in rows]


def judge_markers(wire: Window, grid: MarkerGrid, starts: Int64s, ends: Int64s) -> tuple[Rows, Int64s]:
    """Which FPDUs hold a marker that points elsewhere, and the number of right markers in each (RFC 5044, 4.3).

    If a marker points elsewhere, the sender puts its markers at other positions, and what was taken for payload is not.
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
"""FPDUs checked for a right CRC if Request and Reply were not seen."""


class FpduChecks:
    """The checks of one direction, and which FPDUs failed them."""

    def __init__(self) -> None:
        self.crc: bool | None = None
        """Whether CRCs are in use; None: unknown."""
        self.doubt = Doubt()
        self.unmarked: tuple[int, int] | None = None
        """Without a captured agreement on markers: the first place and the end of consecutive FPDUs without any, until
        a marker must have appeared."""
        self.crc_checked = self.crc_failure_count = self.marker_failure_count = 0
        self.crc_failures: list[int] = []
        """Frames; the first ones."""
        self.faults: list[tuple[int, int, str]] = []
        """Start and end in the stream of FPDUs that cannot be trusted, and why; the first ones."""

    def trusted(self, pending: PendingBytes, headers: FpduHeaders) -> Rows:
        """Which FPDUs have a captured header, are not empty, and can be trusted."""
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
            # This may be a sender that inserts markers although none were agreed.
            self._add_faults(pending, headers[-1:], good[-1:], WRONG_HEADERS)
            self.doubt.count += 1
            good[-1] = False
        if self.crc:
            # Without all of its bytes an FPDU cannot be verified, and its length may be wrong.
            good &= self._verified(pending, headers) & pending.window.covers(headers.starts, headers.ends)
        if self.unmarked is not None and pending.grid is None:
            good &= self._without_marker(pending, headers)
        return good

    def _without_marker(self, pending: PendingBytes, headers: FpduHeaders) -> Rows:
        """Which FPDUs hold no marker: a marker makes an FPDU longer than its length says, so that it ends neither with
        its frame nor where another begins.  A truncated one tells nothing."""
        assert self.unmarked is not None
        window, (begin, reached) = pending.window, self.unmarked
        holding = np.minimum(window.end.searchsorted(headers.ends - 1, side="right"), len(window.at) - 1)
        at, end = window.at[holding], window.end[holding]
        shown = at + window.rows["captured"][holding] >= np.minimum(headers.ends + CONTROL, end)
        sure: Rows = (at < headers.ends) & ((headers.ends == end) | (headers.ends < end) & shown)
        columns = headers.starts.tolist(), headers.ends.tolist(), headers.lengths.tolist(), sure.tolist()
        for index, (start, stop, length, fits) in enumerate(zip(*columns, strict=True)):
            if reached - begin >= SHOWN:
                sure[index:] = True
                break
            if fits or (self.crc and verify(pending, start, length)):
                begin, reached, sure[index] = begin if start == reached else start, stop, True
        self.unmarked = begin, reached
        return sure

    def _marked(self, pending: PendingBytes, headers: FpduHeaders, good: Rows) -> Rows:
        """Which of the ``good`` FPDUs remain good in a stream with markers."""
        grid, window = pending.grid, pending.window
        assert grid is not None
        wrong, right = judge_markers(pending.wire, grid, headers.starts, headers.ends)
        self.marker_failure_count += int(np.count_nonzero(wrong))
        self._add_faults(pending, headers, wrong, WRONG_MARKERS)
        good = good & ~wrong
        if self.crc:
            return good
        queue = np.where(headers.tagged, -1, QUEUE[headers.opcode].astype(np.int64))
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
        first, stop = (pending.in_stream(ends[index]).tolist() for ends in (headers.starts, headers.ends))
        self.faults += [(left, right, why) for left, right in zip(first, stop, strict=True)]


def verify(pending: PendingBytes, start: int, ulpdu_length: int) -> bool | None:
    """Whether an FPDU has the right CRC; None if it is not fully captured."""
    fpdu = pending.read_fpdu(start, ulpdu_length)
    return None if fpdu is None else fpdus.verify_crc(fpdu)


def _requests_wrap(headers: FpduHeaders, index: Int64s) -> Rows:
    """Which RDMA Read Requests ask for memory that wraps around."""
    columns = headers.read_columns(index, "sinkto", "rdmardsz", "srcto")
    return wraps(columns["sinkto"], columns["rdmardsz"]) | wraps(columns["srcto"], columns["rdmardsz"])
