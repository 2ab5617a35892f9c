"""Records in a TCP stream (RFC 5531, 11): their fragments as FPDUs, which a Send is made of, and where records begin
after boundaries were lost.

What begins a record the protocol above says.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...arrays import Bytes, Int64s, Rows, big_endian_words, gathered, places, some, words_at
from ...layers.fpdus import Places
from ...layers.iwarp_codes import SEND
from ...layers.oncrpc_codes import LAST_FRAGMENT
from ...serial import TCP_SEQUENCE
from ..rc.pairing import RecordReader
from .fpdus import FPDU, MAX_SCANNED, Fpdus, placed
from .framing import MAX_PENDING, Framing
from .stream import Window

MARK = 4
"""Bytes of a record mark."""
MESSAGE_TYPE = MARK + 4
"""Where a record has it, with its mark; 0 is a call."""
HEAD = 48
"""Bytes of a record, with its mark, that show whether it begins there."""
LEAST = MARK + 24
"""Bytes without which it does not show."""
LARGEST = 1 << 26
"""Bytes that a fragment may have: what claims more is no record mark."""
FULLEST = 0x80 + (LARGEST >> 24)
"""First octets of the marks of records in one fragment are below it."""
KEPT = 256
"""Datagrams of a direction among which a retransmitted one is looked for."""
HANDSHAKE, APPLICATION = b"\x16\x03", b"\x17\x03"
"""How TLS begins, and goes on: a record of the handshake protocol or of data, and a version (RFC 8446, 5.1)."""
TLS_VERSIONS = 0x0301, 0x0304
MAX_TLS = (1 << 14) + 256
"""Bytes of a record (RFC 8446, 5.2)."""


def begins(
    reader: RecordReader, data: Bytes, at: Int64s, captured: Int64s, marked: NDArray[np.bool_] | None = None
) -> NDArray[np.bool_]:
    """At which places of ``data``, of so many bytes from there on, a record of one fragment begins; of those that are
    not ``marked`` the message, with four other bytes before it."""
    beginning = captured >= LEAST
    octets = data[at[beginning]]
    may = (octets >= 0x80) & (octets < FULLEST)
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
        beginning[index] = reader.begin(big_endian_words(heads))
    return beginning


def tls(data: Bytes, at: Int64s, captured: Int64s) -> NDArray[np.bool_]:
    """At which places a record of TLS begins, of its handshake or of data."""
    beginning = captured >= LEAST
    heads = gathered(data, 5, at[beginning]).astype(np.int64).T
    version, length = heads[1] << 8 | heads[2], heads[3] << 8 | heads[4]
    right = (heads[0] == HANDSHAKE[0]) | (heads[0] == APPLICATION[0])
    right &= (version >= TLS_VERSIONS[0]) & (version <= TLS_VERSIONS[1])
    beginning[beginning] = right & (length > 0) & (length <= MAX_TLS)
    return beginning


class RecordFraming(Framing):
    """Finds the records in one direction of a stream; ``count``: its fragments."""

    prefix = MARK

    def __init__(self, reader: RecordReader) -> None:
        super().__init__()
        self.markers = False
        self._reader = reader
        self._record = self._offset = 0
        """Number of the record that comes next, and how many bytes of it came."""

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

    def _decode(self, starts: Int64s, lengths: Int64s) -> Fpdus:
        window = self.pending.window
        sizes, last = lengths & ~LAST_FRAGMENT, lengths >= LAST_FRAGMENT
        rows = np.zeros(len(starts), FPDU)
        low = starts + self.prefix
        placed(rows, window, starts, low + sizes, self.order)
        rows["opcode"], rows["last"], rows["length"] = SEND, last, sizes
        rows["start"], rows["stop"] = starts, low + sizes
        breaks = np.zeros(len(rows) + 1, np.bool_)
        breaks[self._losses] = True
        self.lost += int(np.count_nonzero(breaks))
        breaks[0] |= self.broken
        rows["broken"], self.broken = breaks[:-1], bool(breaks[-1])
        # What begins behind a gap is of another record than what is in front of it.
        begins = np.concatenate(([False], last))
        begins[:-1] |= breaks[:-1]
        numbers = np.concatenate(([0], last.cumsum())) + self._record
        numbers += np.append(breaks[:-1], False).cumsum()
        offsets = self._offset + np.concatenate(([0], sizes.cumsum()))
        offsets -= np.maximum.accumulate(np.where(begins, offsets, 0))
        rows["msn"], rows["place"] = numbers[:-1], offsets[:-1]
        self._record, self._offset = int(numbers[-1]), int(offsets[-1])
        self.count += len(rows)
        self.order = int(rows["order"][-1])
        pieces, edges = window.pieces(low, low + sizes)
        pieces["at"] -= np.repeat(low, np.diff(edges))
        return Fpdus(rows, {}, pieces, edges, self.pending.datas)

    def _passes_gap(self, window: Window) -> bool:
        return True

    def _synchronise(self, final: bool, count: int) -> bool:
        """Move ``at`` to where a record begins; whether one was found."""
        assert self.at is not None
        window = self.pending.window
        head = window.read(self.at, 2)
        # What is encrypted from the beginning of the capture on may begin with data.
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
            # The message type behind mark and XID is a small word.
            likely = places((octets >= 0x80) & (octets < FULLEST)) + low
            likely = likely[data[likely + shift + 8] == 0]
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
    """The same in one direction of UDP: each datagram is a message, without a mark."""

    prefix = 0

    def __init__(self, reader: RecordReader) -> None:
        super().__init__(reader)
        self._sent: dict[bytes, int] = {}
        """The last of them, by how they begin, with their positions."""
        self._next = 0

    def place(self, data: Bytes, rows: Rows) -> None:
        """Set ``seq`` of SEGMENT rows: one behind the other, but for what is retransmitted (RFC 5531, 9)."""
        for index, (at, length) in enumerate(zip(rows["payload"].tolist(), rows["length"].tolist(), strict=True)):
            key = data[at : at + LEAST - MARK].tobytes() + length.to_bytes(4)
            position = self._sent.setdefault(key, self._next)
            rows["seq"][index] = TCP_SEQUENCE.wrap(position)
            if position == self._next:
                self._next += length
            if len(self._sent) > KEPT:
                del self._sent[next(iter(self._sent))]

    def take_fpdus(self, final: bool = False) -> list[Fpdus]:
        if not len(self.pending):
            return []
        window = self.pending.window
        fpdus = self._decode(window.at, window.end - window.at | LAST_FRAGMENT)
        self.pending.forget(window.limit)
        return [fpdus]
