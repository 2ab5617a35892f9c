"""The latest packets of a send queue: whether a packet with a known PSN is the same one, and when that was sent."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from zlib import crc32

import numpy as np

from ...arrays import Bytes, Int64s, Rows, copied, gather, gathered, joined, places, put, some, take
from ...layers import opcodes
from ...layers.icrc import IPV4_UDP, ROCE_PORT
from ...named_tuple import NamedTuple
from ..connection import Connection
from ..runs import BEHIND
from .reads import READ_REQUEST, spans

KEPT = 2048
"""Packets of earlier batches that are kept."""
MAX_PARTS = 16
"""Batches whose packets are kept separately."""
SEARCHED = 16
"""Requests with one PSN, and Reads with it in their range, that are searched for the same packet."""
LEADING = 32
"""Bytes of a Send that distinguish messages: the header of an upper layer."""

SENT = np.dtype(
    [
        ("psn", "i8"),  # unwrapped
        ("end", "i8"),  # PSN after it: a Read takes one PSN for each packet of its response
        ("frame", "i8"),
        ("time", "i8"),  # nanoseconds
        ("va", "u8"),
        ("r_key", "u4"),
        ("dma_length", "u4"),
        ("immediate", "u4"),
        ("length", "i4"),
        ("captured", "i4"),  # payload bytes in the capture
        ("payload", "i8"),  # offset in the bytes of the batch; -1 once the payload has been summed up
        ("leading", "u4"),  # checksum of the first captured bytes of a Send, at most LEADING
        ("digest", "u4"),  # CRC-32 of all captured bytes of a Send
        ("identification", "i4"),  # of the IPv4 header, filled in with the sums; -1 without one
        ("opcode", "u1"),
        ("headers", "u1"),  # 1 if all headers are in the capture
    ],
    align=True,
)
"""What identifies a request."""

_COPIED = (
    "frame",
    "time",
    "va",
    "r_key",
    "dma_length",
    "immediate",
    "length",
    "captured",
    "payload",
    "opcode",
    "headers",
)
_WEIGHTS = np.array([0x9E3779B1 ** (word + 1) % (1 << 32) | 1 for word in range(LEADING // 4)], np.uint32)
_BEGINS_SEND = opcodes.IS_SEND & (opcodes.IS_FIRST | opcodes.IS_ONLY)


Parts = tuple[Rows, ...]
"""Rows with a ``psn`` column, batch after batch."""


def trimmed(parts: Parts, acked: int) -> Parts:
    """The rows still needed later, in little memory; ``acked``: the PSN up to which requests were acknowledged."""
    count, first = sum(map(len, parts)), 0
    while first + 1 < len(parts) and (
        count - len(parts[first]) >= KEPT or parts[first]["psn"].item(-1) < acked - BEHIND
    ):
        count -= len(parts[first])
        first += 1
    parts = parts[first:]
    if count > 2 * KEPT:
        parts = copied(parts[0][count - 2 * KEPT :]), *parts[1:]
    return (joined(parts),) if len(parts) > MAX_PARTS else parts


class Taken(NamedTuple):
    """The earlier request that used the PSN of a new one."""

    frame: int
    opcode: int


class Recognised(NamedTuple):
    """What requests with known PSNs are."""

    taken: dict[int, Taken]
    """By index: new requests whose PSN another packet used."""
    contradicting: list[int]
    """Frames of retransmissions that are known to have other bytes than the first transmission."""


class _ByPsn:
    """Finds the requests that took a PSN; indices are in capture order."""

    __slots__ = ("_ends", "_keys", "_order", "_psns", "_read_psns", "_reads")

    def __init__(self, psns: Int64s, ends: Int64s, opcode: Rows) -> None:
        self._ends = ends
        self._order = psns.argsort(kind="stable")
        self._psns = psns[self._order]
        self._keys = self._psns * (len(psns) + 1) + self._order
        reads = places(opcode[self._order] == READ_REQUEST)
        self._reads, self._read_psns = self._order[reads], self._psns[reads]

    def last(self, psns: Int64s, before: int) -> tuple[Int64s, Rows]:
        """By PSN, the index of the last request with it among the first ``before``; and whether there is one."""
        at = np.maximum(self._keys.searchsorted(psns * (len(self._order) + 1) + before) - 1, 0)
        order = self._order[at]
        return order, (self._psns[at] == psns) & (order < before)

    def all(self, psn: int, before: int) -> Int64s:
        """The latest requests among the first ``before`` that have this PSN, and Reads that have it in their range."""
        first, behind = self._psns.searchsorted((psn, psn + 1)).tolist()
        same = self._order[first:behind]
        same = same[same < before][-SEARCHED:]
        behind = int(self._read_psns.searchsorted(psn))
        reads = self._reads[max(0, behind - SEARCHED) : behind]
        reads = reads[(reads < before) & (self._ends[reads] > psn)]
        return np.sort(np.concatenate((same, reads))) if len(reads) else same

    @property
    def has_reads(self) -> bool:
        return len(self._reads) > 0


class _LatestRequests:
    """The requests of the latest batch."""

    __slots__ = ("by_psn", "data", "ends", "psns", "rows")

    def __init__(self, data: Bytes, rows: Rows, psns: Int64s, ends: Int64s) -> None:
        self.data, self.rows, self.psns, self.ends = data, rows, psns, ends
        self.by_psn: _ByPsn | None = None
        """Made when first needed: most batches repeat no PSN."""

    def find(self) -> _ByPsn:
        if self.by_psn is None:
            self.by_psn = _ByPsn(self.psns, self.ends, self.rows["opcode"])
        return self.by_psn

    def sent(self, chosen: Int64s) -> Rows:
        """SENT rows of some requests, without sums."""
        return sent_rows(take(self.rows, chosen), self.psns[chosen], self.ends[chosen])

    def last(self, count: int) -> Rows:
        """SENT rows of the last requests, without sums."""
        first = max(0, len(self.rows) - count)
        return sent_rows(self.rows[first:], self.psns[first:], self.ends[first:])


class SentRequests:
    """The latest requests of one send queue.  Call ``begin`` for each batch and ``settle`` after it, which keeps a
    digest of the last ones."""

    __slots__ = ("_batch", "_data", "_kept", "_kept_by_psn")

    def __init__(self) -> None:
        self._kept: Parts = ()
        """SENT rows of earlier batches, in capture order."""
        self._data: Bytes | None = None
        """Has the payload of the rows in ``_kept`` without sums."""
        self._kept_by_psn: _ByPsn | None = None
        self._batch: _LatestRequests | None = None

    def forget(self) -> None:
        """Drop everything: no PSN will be seen again."""
        self._kept, self._kept_by_psn, self._batch, self._data = (), None, None, None

    def begin(self, data: Bytes, rows: Rows, psns: Int64s, ends: Int64s, acked: int) -> None:
        """Take the requests of a batch, in capture order; they take the unwrapped PSNs [psn, end)."""
        self.settle(acked)
        self._batch = _LatestRequests(data, rows, psns, ends)

    def settle(self, acked: int) -> None:
        """Keep the last requests of the batch; ``acked``: the PSN after the acknowledged ones."""
        if self._batch is not None:
            batch, self._batch = self._batch, None
            self.keep(batch.last(KEPT), batch.data, acked)

    def take_mtu(self, connection: Connection, acked: int) -> None:
        """Adopt a new path MTU: it changes how many PSNs Reads from ``acked`` on take."""
        self.settle(acked)
        self._kept_by_psn = None
        for part in self._kept:
            reads = places((part["opcode"] == READ_REQUEST) & (part["psn"] >= acked))
            part["end"][reads] = part["psn"][reads] + spans(connection, take(part, reads))

    def undigested(self) -> tuple[Bytes, list[Rows]] | None:
        """The kept rows without sums of their payload, and the bytes that have it; the caller adds the sums."""
        data, self._data, self._kept_by_psn = self._data, None, None
        return None if data is None else (data, [part for part in self._kept if int(part["payload"][-1]) >= 0])

    def keep(self, last: Rows, data: Bytes, acked: int) -> None:
        """Keep the last requests, SENT rows without sums; ``data``: has their payload."""
        if data is not self._data:
            detach((self,))
            self._data = data
        self._kept_by_psn = None
        self._kept = trimmed((*self._kept, last), acked)

    def sighting(self, psn: int, frame: int) -> Rows | None:
        """The SENT row of the last request before ``frame`` that took this PSN; None for none."""
        for by_psn, sent, data, before in reversed(self._earlier(frame)):
            if len(earlier := by_psn.all(psn, before)):
                row: Rows = identified(sent(earlier[-1:]), data)[0]
                return row
        return None

    def recognise(self, data: Bytes, rows: Rows, psns: Int64s, acked: Callable[[Rows], Int64s]) -> Recognised:
        """Which of ``rows`` are retransmissions, and which are new although an earlier request has their PSN.

        ``rows`` are from the latest batch, or copies, in ascending order of frames.  A packet is another one if its
        opcode, its RETH, its immediate word or, if it starts a Send, its length or its first bytes differ, as far as
        captured.  A Send that differs only in later bytes is another one if the earlier one had been acknowledged, as
        acknowledged packets are not retransmitted (IBA 9.9.2); ``acked`` gives, by frame, the PSN up to which requests
        were acknowledged before.  A packet whose earlier transmission is unknown counts as a retransmission.
        """
        fresh = digested(sent_rows(rows, psns, psns + 1), data)
        frames, opcode = fresh["frame"], fresh["opcode"]
        begins = _BEGINS_SEND[opcode]
        retransmitted = np.zeros(len(rows), np.bool_)
        contradicting = np.zeros(len(rows), np.bool_)
        taken_at: dict[int, Taken] = {}

        def same(index: Int64s, earlier: Rows) -> Rows:
            """Which of the packets are the same as these SENT rows."""
            packet = fresh[index]
            alike = _alike(packet, earlier)
            differ = alike & (packet["captured"] == earlier["captured"]) & (packet["digest"] != earlier["digest"])
            if some(differ):
                alike &= ~(differ & begins[index] & (earlier["psn"] < acked(packet["frame"])))
            contradicting[index] |= differ & alike
            return alike

        for by_psn, sent, data_before, before in self._earlier(int(frames[0])):
            last, exact = by_psn.last(psns, before)
            index = places(exact)
            odd = ~exact if by_psn.has_reads else np.zeros(len(rows), np.bool_)
            if len(index):
                alike = same(index, digested(sent(last[index]), data_before))
                retransmitted[index] |= alike
                odd[index] = ~alike
            for at in places(odd).tolist():
                others = by_psn.all(int(psns[at]), before)
                if not len(others):
                    continue
                earlier = digested(sent(others), data_before)
                here = earlier["psn"] == psns[at]
                alike = np.zeros(len(others), np.bool_)
                if some(here):
                    alike[here] = same(np.full(np.count_nonzero(here), at), earlier[here])
                if opcode[at] == READ_REQUEST:  # It may resume an earlier Read.
                    unknown = (earlier["headers"] == 0) | (fresh["headers"][at] == 0)
                    alike |= ~here & (unknown | (earlier["r_key"] == fresh["r_key"][at]))
                retransmitted[at] |= some(alike)
                taken_at[at] = Taken(int(earlier["frame"][-1]), int(earlier["opcode"][-1]))
        new = {at: taken for at, taken in taken_at.items() if not retransmitted[at]}
        return Recognised(new, frames[contradicting & retransmitted].tolist())

    def _earlier(self, frame: int) -> list[tuple[_ByPsn, Callable[[Int64s], Rows], Bytes | None, int]]:
        """The requests before ``frame``, oldest batch first: their index, a function that gives SENT rows, the bytes of
        rows without sums, and how many requests come before ``frame``."""
        sources: list[tuple[_ByPsn, Callable[[Int64s], Rows], Bytes | None, int]] = []
        if self._kept:
            kept = joined(self._kept)
            if self._kept_by_psn is None:
                self._kept = (kept,)
                self._kept_by_psn = _ByPsn(kept["psn"], kept["end"], kept["opcode"])
            sources.append((self._kept_by_psn, kept.take, self._data, len(kept)))
        batch = self._batch
        if batch is not None and (before := int(batch.rows["frame"].searchsorted(frame))):
            sources.append((batch.find(), batch.sent, batch.data, before))
        return sources


def detach(memories: Iterable[SentRequests]) -> None:
    """Sum up payloads, as the bytes of all batches so far are about to be freed."""
    parts_of: dict[int, tuple[Bytes, list[Rows]]] = {}
    for memory in memories:
        if (known := memory.undigested()) is not None:
            parts_of.setdefault(id(known[0]), (known[0], []))[1].extend(known[1])
    for data, parts in parts_of.values():
        table = digested(identified(joined(parts), data), data) if parts else np.empty(0, SENT)
        behind = 0
        for part in parts:
            first, behind = behind, behind + len(part)
            put(part, slice(None), table[first:behind])


def _alike(rows: Rows, earlier: Rows) -> Rows:
    """Which of ``rows`` have the same opcode and extended headers as ``earlier``, and begin a Send alike; SENT rows."""
    alike: Rows = rows["opcode"] == earlier["opcode"]
    known = (rows["headers"] == 1) & (earlier["headers"] == 1)
    differ = (rows["r_key"] != earlier["r_key"]) | (rows["va"] != earlier["va"])
    differ |= (rows["dma_length"] != earlier["dma_length"]) | (rows["immediate"] != earlier["immediate"])
    alike &= ~(known & differ)
    begins = _BEGINS_SEND[rows["opcode"]]
    if some(begins):
        shown = np.minimum(rows["captured"], LEADING) == np.minimum(earlier["captured"], LEADING)
        differ = (rows["length"] != earlier["length"]) | (shown & (rows["leading"] != earlier["leading"]))
        alike &= ~(begins & differ)
    return alike


def sent_rows(rows: Rows, psns: Int64s, ends: Int64s) -> Rows:
    """PACKET rows as SENT rows, without sums of payloads, which are seldom needed."""
    sent = np.zeros(len(rows), SENT)
    sent["identification"] = -1
    sent["psn"], sent["end"] = psns, ends
    for name in _COPIED:
        sent[name] = rows[name]
    return sent


def digested(rows: Rows, data: Bytes | None) -> Rows:
    """SENT rows with the sums of their payloads, which are in ``data``; None: all rows have them."""
    if data is None:
        return rows
    sends = places(opcodes.IS_SEND[rows["opcode"]] & (rows["payload"] >= 0))
    if len(sends):
        starts, captured = rows["payload"][sends], rows["captured"][sends]
        rows["leading"][sends] = _leading(data, starts, captured)
        payloads = map(data.data.__getitem__, map(slice, starts.tolist(), (starts + captured).tolist()))
        rows["digest"][sends] = list(map(crc32, payloads))
    rows["payload"] = -1
    return rows


def identified(rows: Rows, data: Bytes | None) -> Rows:
    """SENT rows with IP identifications, which must be filled in before the sums; ``data``: as in ``digested``."""
    if data is not None:
        ip = rows["payload"] - opcodes.BTH_BYTES - opcodes.EXTENDED_BYTES[rows["opcode"]] - IPV4_UDP
        near = places((ip >= 0) & (rows["headers"] == 1))
        head = gather(data, ip[near], ">u8")
        routed = (head >> 56 == 0x45) & (gather(data, ip[near] + 22, ">u2") == ROCE_PORT)
        rows["identification"][near] = np.where(routed, head >> 16 & 0xFFFF, -1)
    return rows


def _leading(data: Bytes, starts: Int64s, captured: Int64s) -> Rows:
    """A checksum of the first bytes of payloads, weighted by their offsets."""
    if some(starts + LEADING > len(data)):
        data = np.append(data[int(starts.min()) :], np.zeros(LEADING, np.uint8))
        starts = starts - starts.min()
    octets = gathered(data, LEADING, starts)
    octets[np.arange(LEADING) >= captured[:, np.newaxis]] = 0
    sums: Rows = (octets.view("<u4") * _WEIGHTS).sum(axis=1, dtype=np.uint32)
    return sums
