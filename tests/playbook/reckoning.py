"""What RPCs waited for retransmissions, reckoned from raw frames with struct alone, one packet after the other.

RoCEv2 over Ethernet and IPv4; the n-th queue pair of one host talks to the n-th of the other.  Nothing here comes from
the program under test.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field

MASK = 0xFFFFFF
REQUESTS = {*range(13), 22, 23}
RESPONSES = {*range(13, 17)}
SENDS = {*range(6), 22, 23}
FIRST_OF_SEND = {0, 4, 5, 23}
FIRST_OF_WRITE = {6, 10, 11}
READ = 12


def ahead(psn: int, other: int) -> int:
    """How far behind ``other`` the first one is, with its sign."""
    return (psn - other + (1 << 23) & MASK) - (1 << 23)


@dataclass
class Verb:
    """A Send, Write or Read."""

    kind: str
    psn: int
    first: tuple[int, int]
    """Frame and time."""
    last: tuple[int, int]
    packets: int = 1
    again: int = 0
    """Time of its last retransmitted packet."""
    seen: set[int] = field(default_factory=set)


@dataclass
class Recovery:
    responses: bool
    lost: tuple[int, int]
    start: tuple[int, int]
    end: tuple[int, int]
    first: int
    behind: int
    """PSNs."""
    origin: int
    """Frame in which the first of them was sent for the first time, if it was seen lost."""


@dataclass
class Queue:
    """What one queue pair asks of another."""

    head: int | None = None
    sightings: dict[int, tuple[int, int]] = field(default_factory=dict)
    origins: dict[int, int] = field(default_factory=dict)
    gaps: list[tuple[int, int, tuple[int, int]]] = field(default_factory=list)
    answers: list[tuple[int, tuple[int, int]]] = field(default_factory=list)
    naks: set[int] = field(default_factory=set)
    open: Recovery | None = None
    recoveries: list[Recovery] = field(default_factory=list)
    verbs: list[Verb] = field(default_factory=list)
    xids: dict[int, Verb] = field(default_factory=dict)
    keys: dict[int, list[Verb]] = field(default_factory=dict)
    bytes_of: dict[int, bytearray] = field(default_factory=dict)

    def verb_at(self, psn: int) -> Verb | None:
        return next((one for one in reversed(self.verbs) if 0 <= ahead(psn, one.psn) < one.packets), None)

    def request(self, opcode: int, psn: int, payload: bytes, extra: bytes, now: tuple[int, int], mtu: int) -> None:
        length = struct.unpack(">I", extra[12:16])[0] if opcode == READ else 0
        count = max(1, -(-length // mtu)) if opcode == READ else 1
        if self.head is None:
            self.head = psn
        old = ahead(psn, self.head) < 0
        if old:
            self._retransmitted(opcode, psn, count, now)
        else:
            self.open = None
            if psn != self.head:
                self.gaps.append((self.head, psn, now))
            self.head = psn + count & MASK
        unseen = psn not in self.sightings and self.verb_at(psn) is None
        self.sightings[psn] = now
        self.origins.setdefault(psn, now[0])
        if opcode in FIRST_OF_SEND | FIRST_OF_WRITE | {READ} and (not old or unseen):
            verb = Verb("read" if opcode == READ else "send" if opcode in SENDS else "write", psn, now, now, count)
            self.verbs.append(verb)
            if opcode in SENDS:
                xid = struct.unpack(">I", payload[:4])[0]
                self.xids[xid] = verb
                self.bytes_of[xid] = bytearray(payload)
            else:
                self.keys.setdefault(struct.unpack(">I", extra[8:12])[0], []).append(verb)
        elif not old or unseen:
            known = self.verb_at(psn - 1 & MASK)
            if known is not None and known.kind != "read":
                known.packets, known.last = max(known.packets, ahead(psn, known.psn) + 1), now
                if opcode in SENDS:
                    next(self.bytes_of[xid] for xid, one in self.xids.items() if one is known).extend(payload)
        elif (known := self.verb_at(psn)) is not None and known.kind != "read":
            known.again = now[1]

    def _retransmitted(self, opcode: int, psn: int, count: int, now: tuple[int, int]) -> None:
        known = self.open
        if known is not None and psn == known.behind:
            known.end, known.behind = now, psn + count & MASK
            return
        nak = next((one for one in sorted(self.naks) if ahead(one, psn) >= 0), None)
        self.naks.clear()
        gap = next((one for one in self.gaps if ahead(psn, one[0]) >= 0 > ahead(psn, one[1])), None)
        lost = gap[2] if gap else self._sighting(nak if nak is not None else psn)
        responses = False
        if nak is None and gap is None and opcode == READ:
            since = self._sighting(psn)
            later = [(one, when) for one, when in self.answers if when > since and ahead(one, psn) >= 0]
            got = next((when for one, when in later if one == psn), None)
            beyond = next((when for one, when in later if one != psn), None)
            responses = (got or beyond) is not None
            lost = got or beyond or since
        again = any(psn == one.first and one.start[0] <= lost[0] <= one.end[0] for one in self.recoveries)
        origin = self.origins[psn] if again else lost[0]
        self.open = Recovery(responses, lost, now, now, psn, psn + count & MASK, origin)
        self.recoveries.append(self.open)

    def _sighting(self, psn: int) -> tuple[int, int]:
        """The last packet that took the PSN; a Read request takes those of its responses."""
        known = self.verb_at(psn)
        start = known.psn if known is not None and known.kind == "read" else psn
        found = [self.sightings[one] for one in (psn, start) if one in self.sightings]
        return max(found)

    def response(self, psn: int, now: tuple[int, int]) -> None:
        self.answers.append((psn, now))
        read = self.verb_at(psn)
        if read is None:
            return
        if psn in read.seen:
            read.again = now[1]
            for one in reversed(self.recoveries):
                if ahead(psn, one.first) >= 0 > ahead(psn, one.behind) and one.start <= now:
                    one.end = max(one.end, now)
                    break
        else:
            read.last = now
        read.seen.add(psn)


def reckoned(frames: Iterable[tuple[int, bytes]], mtu: int = 4096) -> dict[tuple[int, int], int]:
    """``frames``: time in ns, and bytes.  Nanoseconds that each RPC waited, by number of the queue pair and XID."""
    hosts: list[bytes] = []
    numbers: tuple[list[int], list[int]] = [], []
    queues: dict[tuple[int, int], Queue] = {}
    for frame, (time, data) in enumerate(frames, 1):
        if data[12:14] != b"\x08\x00" or data[23] != 17 or data[36:38] != struct.pack(">H", 4791):
            continue
        opcode, target, psn = data[42], struct.unpack(">I", data[46:50])[0] & MASK, data[51:54]
        if opcode > 23 or target <= 1:
            continue
        hosts += [] if data[26:30] in hosts else [data[26:30]]
        sender = hosts.index(data[26:30])
        known = numbers[1 - sender]
        known += [] if target in known else [target]
        pair, number = known.index(target), int.from_bytes(psn, "big")
        queue = queues.setdefault((pair, sender), Queue())
        asked = queues.setdefault((pair, 1 - sender), Queue())
        now = frame, time
        if opcode in REQUESTS:
            wide = 16 if opcode in FIRST_OF_WRITE | {READ} else 4 if opcode in (22, 23, 5, 3) else 0
            end = 14 + struct.unpack(">H", data[16:18])[0] - 4 - (data[43] >> 4 & 3)
            queue.request(opcode, number, data[54 + wide : end], data[54 : 54 + wide], now, mtu)
        elif opcode in RESPONSES:
            asked.response(number, now)
        elif data[54] >> 5 & 3 in (1, 3) and not (data[54] >> 5 == 3 and data[54] & 31):
            asked.naks.add(number)
    waited: dict[tuple[int, int], int] = {}
    for (pair, sender), queue in queues.items():
        other = queues[pair, 1 - sender]
        for xid, call in queue.xids.items():
            if sender == 0:
                waited[pair, xid] = _waited(xid, call, queue, other)
    return waited


def _waited(xid: int, call: Verb, queue: Queue, other: Queue) -> int:
    reply = other.xids.get(xid)
    handles = [key for key in other.keys if struct.pack(">I", key) in queue.bytes_of[xid]]
    verbs = [(queue, call)] + [(other, one) for key in handles for one in other.keys[key] if one.first > call.first]
    verbs += [(other, reply)] if reply is not None else []
    stretches = []
    for mine, verb in verbs:
        limit = reply.first[1] if reply is not None and (verb is call or verb.kind == "read") else 1 << 63
        for one in mine.recoveries:
            last, again = (verb.last, verb.again) if one.responses or verb.kind != "read" else (verb.first, 0)
            if one.responses and verb.kind != "read":
                continue
            if not (verb.first[0] <= one.end[0] and last[0] >= one.origin) or one.start[1] > limit:
                continue
            unseen = verb.first[0] >= one.start[0]
            if unseen and one.responses:
                continue
            start = one.lost[1] if unseen else max(one.lost[1], verb.first[1])
            end = verb.first[1] if unseen else again if again and last[1] <= one.start[1] else one.start[1]
            stretches.append((start, min(max(end, one.start[1]), one.end[1], limit)))
    total = reached = 0
    for start, end in sorted(stretches):
        total += max(0, end - max(start, reached))
        reached = max(reached, end)
    return total
