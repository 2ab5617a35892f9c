"""Records in a TCP stream (RFC 5531, 11): their fragments as FPDUs of Sends, and where records begin after boundaries
were lost.

The protocol above recognises the beginning of a record.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...arrays import Bytes, Int64s, Rows, big_endian_words, gathered, places, some, words_at
from ...layers.fpdus import Places
from ...layers.iwarp_codes import SEND
from ...layers.oncrpc_codes import CALL, LAST_FRAGMENT, RPC_VERSION
from ...serial import TCP_SEQUENCE
from ..rc.pairing import RecordReader
from .fpdus import FPDU, MAX_SCANNED, Fpdus, placed
from .framing import MAX_PENDING, Begun, Framing
from .stream import Window

MARK = 4
"""Bytes of a record mark."""
MESSAGE_TYPE = MARK + 4
"""Offset of the message type in a record, with its mark; 0 is a call."""
HEAD = 48
"""Bytes of a record, with its mark, that are checked to recognise its beginning."""
LEAST = MARK + 24
"""Bytes needed to recognise it at all."""
LARGEST = 1 << 26
"""Bytes of the largest fragment: what claims more is no record mark."""
FULLEST = LARGEST >> 24
"""The first byte of a record mark is lower than this, apart from its last-fragment bit."""
KEPT = 256
"""Datagrams of a direction kept to recognise retransmitted ones."""
HANDSHAKE, APPLICATION = b"\x16\x03", b"\x17\x03"
"""The first bytes of TLS records: type handshake or application data, and the major version (RFC 8446, 5.1)."""
TLS_VERSIONS = 0x0301, 0x0304
MAX_TLS = (1 << 14) + 256
"""Bytes of the largest TLS record (RFC 8446, 5.2)."""


def begins(
    reader: RecordReader, data: Bytes, at: Int64s, captured: Int64s, marked: NDArray[np.bool_] | None = None
) -> NDArray[np.bool_]:
    """At which offsets in ``data`` a record begins; ``captured``: bytes from there on; if not ``marked``, the offset is
    four bytes before a message without a mark.

    A reply in several fragments cannot be recognised: its small number may be the mark of the first one.
    """
    beginning = captured >= LEAST
    may = data[at[beginning]] & 0x7F < FULLEST
    beginning[beginning] = may if marked is None else may | ~marked[beginning]
    index = places(beginning)
    if len(index):
        last = max(0, len(data) - HEAD)
        heads = gathered(data, HEAD, np.minimum(at[index], last))
        for row in places(at[index] > last).tolist():
            there = data[at[index[row]] :]
            heads[row, : len(there)] = there
        short = places(captured[index] < HEAD)
        heads[short] *= np.arange(HEAD) < captured[index[short]][:, None]
        words = big_endian_words(heads)
        with_mark = marked[index] if marked is not None else np.True_
        several = with_mark & (words[:, 0] < LAST_FRAGMENT)
        # An RPC-over-RDMA header without a Reply chunk ends with a zero, followed by the message: that is no mark.
        empty = with_mark & (words[:, 0] & ~LAST_FRAGMENT == 0)
        beginning[index] = reader.begin(words) & ~empty & (~several | (words[:, MESSAGE_TYPE // 4] == CALL))
    return beginning


def tls(data: Bytes, at: Int64s, captured: Int64s) -> NDArray[np.bool_]:
    """At which offsets a TLS record of the handshake or of data begins."""
    beginning = captured >= LEAST
    heads = gathered(data, 5, at[beginning]).astype(np.int64).T
    version, length = heads[1] << 8 | heads[2], heads[3] << 8 | heads[4]
    right = (heads[0] == HANDSHAKE[0]) | (heads[0] == APPLICATION[0])
    right &= (version >= TLS_VERSIONS[0]) & (version <= TLS_VERSIONS[1])
    beginning[beginning] = right & (length > 0) & (length <= MAX_TLS)
    return beginning


class RecordFraming(Framing):
    """Finds the records in one direction of a stream; ``count`` counts fragments."""

    prefix = MARK

    def __init__(self, reader: RecordReader) -> None:
        super().__init__()
        self.markers = False
        self._reader = reader
        self._record = self._offset = 0
        """Number of the next record, and how many bytes of it came."""

    @staticmethod
    def lengths(data: Bytes, at: Int64s) -> Int64s:
        return words_at(data, at)

    @staticmethod
    def extent(length: Places) -> Places:
        return MARK + (length & ~LAST_FRAGMENT)

    @staticmethod
    def legal(length: Places) -> Any:
        size = length & ~LAST_FRAGMENT
        return (size <= LARGEST) & (length > 0)

    @classmethod
    def decode(cls, begun: Begun) -> list[Fpdus]:
        """The fragments, by direction."""
        framings = [framing for framing in begun.framings if isinstance(framing, cls)]
        sections, owners, firsts = begun.sections, begun.sections.owners, begun.sections.starts[:-1]
        sizes, last = begun.lengths & ~LAST_FRAGMENT, begun.lengths >= LAST_FRAGMENT
        rows = np.zeros(len(sizes), FPDU)
        low = begun.starts + cls.prefix
        placed(rows, begun.windows, begun.starts, low + sizes, begun.orders[owners])
        rows["opcode"], rows["last"], rows["length"] = SEND, last, sizes
        rows["start"] = begun.starts - begun.shifts
        rows["stop"] = rows["start"] + cls.prefix + sizes
        for number, framing in enumerate(framings):
            framing._mark_lost(sections.cut(rows["broken"], number))
        # A fragment after a gap belongs to another record than the one before it.
        begins = rows["broken"].astype(np.int64)
        begins[1:] += last[:-1] & sections.goes_on
        records, before = begins.cumsum(), sizes.cumsum() - sizes
        records -= (records - begins)[firsts][owners]
        where = np.where(begins, np.arange(len(rows)), 0)
        where[firsts] = firsts
        where = np.maximum.accumulate(where)
        rows["msn"] = records + np.array([framing._record for framing in framings])[owners]
        offsets = np.array([framing._offset for framing in framings])[owners]
        rows["place"] = before - before[where] + np.where(begins[where], 0, offsets)
        for number, framing in enumerate(framings):
            framing._note_last(sections.cut(rows, number))
        return begun.fpdus(rows, low, sections, {})

    def _mark_lost(self, broken: Rows) -> None:
        """Mark the next fragments that follow lost bytes."""
        if self._losses or self.broken:
            breaks = np.zeros(len(broken) + 1, np.bool_)
            breaks[self._losses] = True
            self.lost += int(np.count_nonzero(breaks))
            breaks[0] |= self.broken
            broken[:], self.broken = breaks[:-1], bool(breaks[-1])

    def _note_last(self, rows: Rows) -> None:
        """Note the last of the next fragments, FPDU rows."""
        _, last, *_, number, place, length, _, _, _, _, _, order, _, _ = rows[-1].item()
        self._record, self._offset = number + last, 0 if last else place + length
        self.count += len(rows)
        self.order = order

    def _passes_gap(self, window: Window) -> bool:
        return True

    def _synchronise(self, final: bool, count: int) -> bool:
        """Move ``at`` to where a record begins; True if one was found."""
        assert self.at is not None
        window = self.pending.window
        head = window.read(self.at, 2)
        # A stream that was encrypted when the capture began may begin with data.
        if self.encrypted or head == HANDSHAKE or (head == APPLICATION and not self.count + count):
            self.encrypted = self.encrypted or int(window.rows["frame"][window.index(self.at)])
            self.at = window.limit
            return False
        if count:
            self._losses.append(count)
        elif not self.broken:
            self.broken = True
            self.lost += self.count > 0
        self.at, self.synchronised = self._next_record(window, self.at, final)
        if not self.synchronised and (final or window.limit - self.at > MAX_PENDING):
            self.at = window.limit
        return self.synchronised

    def _next_record(self, window: Window, at: int, final: bool) -> tuple[int, bool]:
        """The first place from ``at`` on where a record begins, and whether that is sure: it begins a segment, or
        another record follows it."""
        scanned = 0
        for index in range(window.index(at), len(window.starts)):
            high, shift, data = window.stretch(index)
            low = max(at, window.starts[index])
            if high - low < LEAST:
                continue
            octets = data[low + shift : high + shift - LEAST + 1]
            # Mark and XID are followed by the message type, a small word, and in a call by the RPC version.
            likely = places(octets & 0x7F < FULLEST) + low
            likely = likely[data[likely + shift + MESSAGE_TYPE] == 0]
            last = data[likely + shift] >= 0x80
            likely = likely[last | (data[likely + shift + MESSAGE_TYPE + 7] == RPC_VERSION)]
            starts = likely[begins(self._reader, data, likely + shift, high - likely)]
            for start in starts.tolist():
                behind = start + MARK + (int.from_bytes(window.read(start, MARK)) & ~LAST_FRAGMENT)
                if start in window.edges or behind in window.edges or (final and behind > window.limit):
                    return start, True
                if behind + HEAD > window.limit and not final:
                    return start, False
                head, there = window.heads(np.array([behind]), HEAD)
                if some(there >= LEAST) and some(self._reader.begin(big_endian_words(head))):
                    return start, True
            scanned += high - low
            if scanned >= MAX_SCANNED:
                return high, False
        return (window.limit if final else max(at, window.limit - HEAD)), False


class DatagramFraming(RecordFraming):
    """Finds the messages in one direction of UDP: each datagram is one, without a mark."""

    prefix = 0

    def __init__(self, reader: RecordReader) -> None:
        super().__init__(reader)
        self._sent: dict[bytes, int] = {}
        """The stream positions of the latest datagrams, by their first bytes and length."""
        self._next = 0

    def place(self, data: Bytes, rows: Rows) -> None:
        """Set ``seq`` of SEGMENT rows as if they were a stream; retransmissions get the same position (RFC 5531, 9)."""
        for index, (at, length) in enumerate(zip(rows["payload"].tolist(), rows["length"].tolist(), strict=True)):
            key = data[at : at + LEAST - MARK].tobytes() + length.to_bytes(4)
            position = self._sent.setdefault(key, self._next)
            rows["seq"][index] = TCP_SEQUENCE.wrap(position)
            if position == self._next:
                self._next += length
            if len(self._sent) > KEPT:
                del self._sent[next(iter(self._sent))]

    def next_fpdus(self, final: bool) -> tuple[Int64s, Int64s] | None:
        window = self.pending.window
        if self.at == window.limit:
            return None
        self.at, self.synchronised = window.limit, True
        return window.at, window.end - window.at | LAST_FRAGMENT
