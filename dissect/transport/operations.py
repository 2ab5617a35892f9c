"""Operation: one RDMA verb as its initiator issued it, whichever transport carried it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from ..arrays import Bytes, Rows, copied, owned
from ..named_tuple import NamedTuple


class Kind(IntEnum):
    SEND = 0
    WRITE = 1
    READ = 2
    ATOMIC = 3


SEND, WRITE, READ, ATOMIC = Kind
"""The members of Kind, for hot paths: Python 3.11 is slow to look up a member of an enumeration."""


class Piece(NamedTuple):
    """A stretch of an Operation's bytes that one frame carried."""

    at: int
    """Offset in the Operation's bytes."""
    length: int
    """Bytes on the wire."""
    captured: int
    """Bytes in the capture; fewer than ``length`` if the frame was truncated."""
    frame: int
    data: Bytes
    offset: int
    """Of its first byte in ``data``."""


@dataclass(slots=True, eq=False)
class Payload:
    """The bytes an Operation moved, by reference: nothing is copied until it is read."""

    length: int = 0
    seen: int = 0
    """Bytes that captured frames carried, each counted once; fewer than ``length`` if there are gaps."""
    truncated: bool = False
    """The capture truncated a frame (snaplen)."""
    stretch: tuple[Bytes, Rows, int, int] | None = None
    """``(data, rows, first, behind)``: rows [first, behind) carry the payload from byte 0 on.  Becomes a run only when
    ``runs`` is read: most payloads' never are, and cutting out the rows would be the slowest part of making one."""
    only: tuple[Bytes, int, int] | None = None
    """``(data, start, end)`` of the captured bytes if a single packet carries all: a shortcut."""
    _runs: list[tuple[int, Bytes, Rows]] | None = None

    @property
    def runs(self) -> list[tuple[int, Bytes, Rows]]:
        """``(at, data, rows)``: PACKET rows that follow each other without a gap, from byte ``at`` on.

        Runs do not overlap.  The list is the payload's own.
        """
        if self._runs is None:
            self._runs = []
        if self.stretch is not None:
            data, rows, first, behind = self.stretch
            self._runs.append((0, data, rows[first:behind]))
            self.stretch = None
        return self._runs

    def drop(self) -> None:
        """Free the bytes."""
        self._runs = self.stretch = self.only = None

    def pieces(self) -> Iterator[Piece]:
        """The payload frame by frame, in ascending order."""
        for at, data, rows in sorted(self.runs, key=lambda run: run[0]):
            reached = at
            for length, captured, frame, offset in zip(
                rows["length"].tolist(),
                rows["captured"].tolist(),
                rows["frame"].tolist(),
                rows["payload"].tolist(),
                strict=True,
            ):
                yield Piece(reached, length, captured, frame, data, offset)
                reached += length

    def gaps(self) -> list[tuple[int, int]]:
        """Byte ranges [start, end) that no captured frame carried, ascending."""
        if self.seen == self.length:
            return []
        gaps: list[tuple[int, int]] = []
        reached = 0
        for at, _, rows in sorted(self.runs, key=lambda run: run[0]):
            if at > reached:
                gaps.append((reached, at))
            reached = max(reached, at + int(rows["length"].sum()))
        if reached < self.length:
            gaps.append((reached, self.length))
        return gaps

    def own_rows(self) -> None:
        """Copy the rows of this payload, so that those of other Operations can be freed."""
        if self.stretch is not None:
            data, rows, first, behind = self.stretch
            mine = rows if behind - first == len(rows) else rows[first:behind]
            self.stretch = data, owned(mine), 0, behind - first
        if self._runs:
            self._runs = [(at, data, owned(rows)) for at, data, rows in self._runs]

    def detach(self) -> None:
        """Copy the bytes, so that the batches of frames they came in can be freed."""
        if self.only is not None:
            data, start, end = self.only
            self.only = own_data, _, _ = data[start:end].copy(), 0, end - start
            self._runs = [(at, own_data, copied(rows)) for at, _, rows in self.runs]
            for _, _, own in self._runs:
                own["payload"] = 0
            return
        runs: list[tuple[int, Bytes, Rows]] = []
        for at, data, rows in self.runs:
            own = copied(rows)
            parts = [
                data[start : start + size]
                for start, size in zip(rows["payload"].tolist(), rows["captured"].tolist(), strict=True)
            ]
            joined: Bytes = np.concatenate(parts) if parts else np.zeros(0, np.uint8)
            ends = np.cumsum(rows["captured"], dtype=np.int64)
            own["payload"] = ends - rows["captured"]
            runs.append((at, joined, own))
        self._runs = runs

    @property
    def whole(self) -> bool:
        """Every byte is in the capture: there is no gap and no truncated frame."""
        return self.seen == self.length and not self.truncated

    def first(self) -> tuple[memoryview, int, int]:
        """``(data, start, end)`` of the captured bytes of the first packet; empty if it is missing."""
        if self.only is not None:
            whole, start, end = self.only
            return whole.data, start, end
        if self.stretch is not None:
            data, rows, row, _ = self.stretch
            start = int(rows["payload"][row])
            return data.data, start, start + int(rows["captured"][row])
        piece = next(self.pieces(), None)
        if piece is None or piece.at:
            return memoryview(b""), 0, 0
        return piece.data.data, piece.offset, piece.offset + piece.captured

    def prefix(self) -> tuple[memoryview, int, int]:
        """``(data, start, end)`` of the captured bytes before the first gap.

        Copies only if more than one frame carried them.
        """
        if self.only is not None:
            whole, start, end = self.only
            return whole.data, start, end
        parts: list[Bytes] = []
        reached = 0
        for piece in self.pieces():
            if piece.at != reached:
                break
            parts.append(piece.data[piece.offset : piece.offset + piece.captured])
            reached += piece.captured
            if piece.captured < piece.length:
                break
        joined = np.concatenate(parts).data if parts else memoryview(b"")
        return joined, 0, len(joined)


@dataclass(slots=True, eq=False, weakref_slot=True)
class Operation:
    """One verb.  Not frozen, because responses and repetitions of a Read arrive after it was issued."""

    kind: Kind
    initiator: int
    """The end of the connection that issued it: 0 the active side (sent the CM REQ), 1 the passive side."""
    first_frame: int
    last_frame: int
    first_time: int
    """Nanoseconds; first transmission of the first packet (a Read: of its request)."""
    last_time: int
    """First transmission of the last packet (a Read: of its last response)."""
    length: int
    """Bytes it moves; for Write and Read as announced in the RETH."""
    payload: Payload
    handle: int = 0
    address: int = 0
    psn: int = 0
    """Of its first packet, 24 bits (iWARP: the message sequence number)."""
    packets: int = 1
    invalidate: int | None = None
    """The R_key or STag that a Send With Invalidate names."""
    immediate: int | None = None
    last_sent: int = 0
    """Nanoseconds; last transmission of any of its packets, 0 if none was repeated."""
    retransmissions: int = 0
    """Number of its packets that were seen again."""
    contradicted: int = 0
    """The first frame that retransmits one of its packets with other bytes; 0 if none does."""
    doubtful: frozenset[int] = frozenset()
    """Frames whose bytes a retransmission contradicts."""
    reused: int = 0
    """Frame of an earlier request that has the same PSN by an error of the sender (InfiniBand); 0 if none has."""
    start_known: bool = True
    """False if its first packet is not in the capture."""
    end_known: bool = True
    """False if its last packet is not in the capture; ``length`` is then a lower bound."""
    closed: bool = True
    """False while bytes may still come (a Read whose responses are outstanding)."""
    position: int = 0
    """iWARP: stream position of its first byte in the initiator's TCP stream."""
    doubted: int = 0
    """iWARP: a frame if the response of this Read may be that of a later Read to the same sink whose request is not in
    the capture; a reply after that frame shows that the response is its own.  0: it is."""

    def contradict(self, contradictions: Mapping[int, int]) -> None:
        """Note frames of its packets, each with the frame that retransmits other bytes."""
        if contradictions:
            self.contradicted = self.contradicted or min(contradictions.values())
            self.doubtful |= contradictions.keys()

    def complete_before(self, frame: int) -> None:
        """Ignore contradictions after ``frame``: its initiator had all bytes by then."""
        if self.contradicted > frame:
            self.contradicted, self.doubtful = 0, frozenset()

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """Byte ranges that the capture misses."""
        return self.payload.gaps()


Delivered = list[tuple[int, Operation]]
"""Operations with their places in the order of events, which are frame numbers."""
