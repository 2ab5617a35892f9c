"""What the responses to a send queue say of its requests: acknowledged, or sent though not captured.

IBA volume 1, 9.7.5 (acknowledgements) and 9.7.5.1 (Read responses).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ...arrays import Bytes, Int64s, Rows, places, some, take
from ...layers import opcodes
from ...serial import PSN
from ..gaps import Gap
from .psn_ranges import RESTART

Placed = tuple[Bytes, Rows, Int64s]
ReadResponses = Iterable[Placed]
"""Those that have not found their Read, with their PSNs."""

_STARTS_READ_RESPONSE = opcodes.IS_READ_RESPONSE & (opcodes.IS_FIRST | opcodes.IS_ONLY)


def completions(rows: Rows, psns: Int64s) -> Int64s:
    """PSNs, and how many messages (24 bits) were completed behind the requests that have them (IBA 9.7.7.2)."""
    said = places(opcodes.HAS_AETH[rows["opcode"]])
    return np.stack((psns[said], rows["msn"][said]), axis=1)


class Jump:
    """Requests go on so far behind the head that packets are missing, or the queue pair number lives again.

    A responder counts on behind missing packets; in another life it counts from the beginning.
    """

    __slots__ = ("_before", "_behind", "start")

    def __init__(self, start: int, before: Int64s | None) -> None:
        """``start``: the PSN behind it; ``before``: the last of the ``completions`` before it."""
        self.start, self._before = start, before
        self._behind: Int64s | None = None

    def answered(self, completed: Int64s) -> None:
        """By responses with these ``completions``, of which the first to a request behind it counts."""
        if self._behind is None and len(behind := completed[completed[:, 0] >= self.start]):
            self._behind = behind[0]

    @property
    def within_life(self) -> bool:
        """It is a gap, as far as can be told."""
        if self._before is None or self._behind is None:
            return True
        psns, messages = (self._behind - self._before).tolist()
        return bool(messages % PSN.modulus <= psns)


def positive(rows: Rows) -> Rows:
    """Which of these responses acknowledge their PSN."""
    opcode = rows["opcode"]
    found: Rows = opcodes.IS_READ_RESPONSE[opcode] | opcodes.IS_ATOMIC_RESPONSE[opcode]
    found |= opcodes.IS_ACKNOWLEDGE[opcode] & (rows["syndrome"] >> 5 == 0)
    return found


class PacketClock:
    """How many packets of a connection there were up to a frame of the batch that is being taken."""

    __slots__ = ("_before", "_frames", "now")

    def __init__(self, before: int, *frames: Rows) -> None:
        """``before`` the batch; ``frames`` of its packets by sender, each ascending."""
        self._before, self._frames = before, [*map(np.ascontiguousarray, frames)]
        self.now = before + sum(map(len, frames))
        """At the end of the batch."""

    def at(self, frame: int) -> int:
        return self._before + sum([int(one.searchsorted(frame, "right")) for one in self._frames])

    def proved(self, shown: int, head: int, acked: int, answers: AckHistory | None) -> int:
        """When it was acknowledged that the gap from ``head`` on was sent; 0 for not so far.

        ``shown``: the frame behind the gap; ``acked``: the PSN up to which requests were acknowledged before.
        """
        frame = answers.proof(head) if answers is not None else None
        if frame is None:
            return self.at(shown) if acked > head else 0
        return self.at(max(frame, shown))


class AckHistory:
    """When the responses of a batch acknowledged which requests."""

    __slots__ = ("_frames", "_positive", "psns", "reached", "rows")

    def __init__(self, rows: Rows, near: int) -> None:
        """``rows``: the responses, at least one, in ascending order of frames; ``near``: a PSN of the queue."""
        self.rows = rows
        self.psns: Int64s = PSN.unwrap_series(PSN.unwrap(near, int(rows["psn"][0])), rows["psn"])
        """Unwrapped."""
        self._positive = positive(rows)
        self.reached: Int64s = np.maximum.accumulate(np.where(self._positive, self.psns + 1, -1))
        """PSNs up to which (exclusively) requests were acknowledged with each of them; -1 for none."""
        self._frames = np.ascontiguousarray(rows["frame"])

    def before(self, frames: Rows) -> Int64s:
        """The same before each of these frames."""
        found: Int64s = np.append(self.reached, -1)[self._frames.searchsorted(frames) - 1]
        return found

    def proof(self, psn: int) -> int | None:
        """The frame that was the first to acknowledge ``psn``; None for none."""
        place = int(self.reached.searchsorted(psn, "right"))
        return int(self._frames[place]) if place < len(self.rows) else None

    def reading(self, data: Bytes) -> Placed:
        """The responses to RDMA Reads among them."""
        carrying = places(opcodes.IS_READ_RESPONSE[self.rows["opcode"]])
        return data, take(self.rows, carrying), self.psns[carrying]

    def beyond(self, psn: int) -> Gap | None:
        """The requests from ``psn`` on that they answer, and the first frame that does."""
        place = int(self.reached.searchsorted(psn, "right"))
        if place == len(self.rows):
            return None
        if int(self.reached[-1]) - psn > RESTART:
            good = places(self._positive & (self.psns >= psn) & (self.psns - psn < RESTART))
            if not len(good):
                return None
            place, end = int(good[0]), int(self.psns[good].max()) + 1
        else:
            end = int(self.reached[-1])
        return Gap(psn, end, int(self._frames[place]), int(self.rows["time"][place]))


def split_early(responses: ReadResponses, head: int, room: int) -> tuple[list[Placed], list[Placed]]:
    """Those to requests before ``head``, and the others: as many as come until ``room`` packets wait."""
    due: list[Placed] = []
    waiting: list[Placed] = []
    for data, rows, psns in responses:
        early = psns >= head
        if not some(early):
            due.append((data, rows, psns))
            continue
        due.append((data, take(rows, ~early), psns[~early]))
        room -= int(early.sum())
        if room > 0:
            waiting.append((data, take(rows, early), psns[early]))
    return due, waiting


def packets_between(read_responses: ReadResponses, start: int, end: int) -> int:
    """How many requests have PSNs [start, end): a Read takes one PSN for each packet of its response."""
    count = end - start
    if count == 1:
        return 1
    answered, starts = [], []
    for _, rows, psns in read_responses:
        between = (psns >= start) & (psns < end)
        answered.append(psns[between])
        starts.append(psns[between & _STARTS_READ_RESPONSE[rows["opcode"]]])
    if packets := len(np.unique(np.concatenate(answered))) if answered else 0:
        count -= packets - max(len(np.unique(np.concatenate(starts))), 1)
    return count
