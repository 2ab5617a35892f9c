"""The health of one Reliable Connection, followed packet by packet in columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ...arrays import Int64s, Rows, some
from ...layers import opcodes
from ...percentiles import Distribution, Samples
from ...serial import PSN
from ..capture_point import vantage
from ..connection import Connection, Endpoint
from ..health import NONE, Costs, Direction, Episode, Tally, TransportHealth
from .acknowledgements import Acknowledgements
from .ending import ending
from .reads import DEFAULT_MTU, spans
from .retransmissions import Columns, Repeats

PAUSE = 100_000_000
"""Nanoseconds; an endpoint that sends no payload for longer is not active."""
TOGETHER = 4096
"""Packets that are counted at a time."""
MARKED_KEPT = 4096
MAX_FAILURES = 1000
CONGESTION_EXPERIENCED = 3
"""IP ECN field (RFC 3168, 5)."""


class _Batch(NamedTuple):
    """One send queue's packets of a batch."""

    requests: Columns | None
    responses: Columns | None
    head: int | None
    """PSN expected before it."""
    furthest: int | None
    """PSN expected behind it."""


class _Sent:
    """What one endpoint sent, beside the order of its packets."""

    def __init__(self) -> None:
        self.packets = self.bytes = self.active = self.marked = self.cnps = 0
        self.last_payload: int | None = None
        self.last_time: int | None = None
        self.marks = np.empty(0, np.int64)
        """Times of the last marked packets."""
        self.notices = np.empty(0, np.int64)
        """Times of CNPs not yet compared with the marks."""
        self.last_cnp: int | None = None
        self.cnp_gap, self.cnp_delay = Samples(), Samples()
        self.failures: list[tuple[int, int, int]] = []
        """``(frame, PSN, time)`` of packets with a wrong invariant CRC."""
        self.failure_count = 0

    def feed(self, rows: Rows) -> None:
        """What a batch costs is told by these few: the packets' times and lengths come in ``count``."""
        self.packets += len(rows)
        self.last_time = int(rows["time"][-1])
        marked = rows["ecn"] == CONGESTION_EXPERIENCED
        if some(marked):
            self.marked += int(np.count_nonzero(marked))
            self.marks = np.concatenate((self.marks, rows["time"][marked]))[-MARKED_KEPT:]

    def count(self, parts: Sequence[Columns | None]) -> None:
        """Its requests and its responses."""
        carrying: list[Int64s] = []
        for part in parts:
            if part is not None:
                self.bytes += int(part.lengths.sum())
                carrying.append(part.times[part.lengths > 0])
        times = np.concatenate(carrying) if carrying else np.empty(0, np.int64)
        if len(carrying) > 1:
            times.sort(kind="stable")
        if len(times):
            if self.last_payload is not None:
                times = np.concatenate(([self.last_payload], times))
            gaps = times[1:] - times[:-1]
            self.active += int(gaps[(gaps >= 0) & (gaps <= PAUSE)].sum())
            self.last_payload = int(times[-1])

    def notified(self, times: Int64s) -> None:
        """It sent CNPs."""
        self.cnps += len(times)
        self.notices = np.concatenate((self.notices, times))
        if self.last_cnp is not None:
            times = np.concatenate(([self.last_cnp], times))
        self.cnp_gap.add(np.diff(times))
        self.last_cnp = int(times[-1])

    def settle(self, marks: Int64s) -> None:
        """Compare its CNPs with the times at which packets of the other end came marked."""
        if not len(self.notices):
            return
        notices, self.notices = self.notices, self.notices[:0]
        at = marks.searchsorted(notices, side="right") - 1
        caused = at >= 0
        self.cnp_delay.add(notices[caused] - marks[at[caused]])


class Health:
    """One connection's; feed it what the connection's observers are fed."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.sent = _Sent(), _Sent()
        self.repeats = tuple(Repeats(end, connection.endpoints[1 - end].start_psn) for end in (0, 1))
        self.answers = Acknowledgements(), Acknowledgements()
        """What endpoint 0 and 1 initiated, and how the other answered."""
        self._costs: Costs | None = None
        self._waiting: list[tuple[_Batch, _Batch]] = []
        """Batches that were not counted yet."""
        self._waiting_packets = 0

    def feed(self, sent: Sequence[Rows], split: Sequence[tuple[Rows, Rows]]) -> None:
        """Take a batch, in capture order: what each end sent, and the same as requests and responses.

        The connection's path MTU is known as well as this batch tells it.
        """
        for end in (0, 1):
            if len(sent[end]):
                self.sent[end].feed(sent[end])
        for end in (0, 1):
            if len(self.sent[end].notices):
                self.sent[end].settle(self.sent[1 - end].marks)
        self._waiting.append((self._queue(0, split[0][0], split[1][1]), self._queue(1, split[1][0], split[0][1])))
        self._waiting_packets += len(sent[0]) + len(sent[1])
        if self._waiting_packets >= TOGETHER:
            self._count()
        self._costs = None

    def _queue(self, initiator: int, requests: Rows, responses: Rows) -> _Batch:
        repeats = self.repeats[initiator]
        head = repeats.head
        asked = told = None
        syndromes = None
        if len(requests):
            psns = PSN.unwrap_series(int(requests["psn"][0]) if head is None else head, requests["psn"])
            asked = _columns(requests, psns, psns + spans(self.connection, requests))
        reference = head if asked is None else int(asked.psns[0])
        if len(responses):
            start = int(responses["psn"][0]) if reference is None else PSN.unwrap(reference, int(responses["psn"][0]))
            psns = PSN.unwrap_series(start, responses["psn"])
            syndromes = responses["syndrome"]
            positive = (syndromes >> 5 & 3 == opcodes.ACK) & (responses["headers"] == 1)
            told = _columns(responses, psns, psns + positive)
        repeats.feed(asked, told, syndromes)
        if reference is None:
            self.sent[1 - initiator].count((told,))
            return _Batch(None, None, None, None)
        return _Batch(asked, told, head, repeats.head)

    def flush(self) -> None:
        """Nothing more is expected: count what waits, and let go of what repetitions are looked for in."""
        self._count()
        for queue in self.repeats:
            queue.forget()
        for answers in self.answers:
            answers.compact()

    def _count(self) -> None:
        """Look at several batches together: a look costs more than a packet."""
        waiting, self._waiting, self._waiting_packets = self._waiting, [], 0
        if not waiting:
            return
        queues = [_joined([batches[end] for batches in waiting]) for end in (0, 1)]
        for end in (0, 1):
            self.answers[end].feed(*queues[end])
            self.sent[end].count((queues[end].requests, queues[1 - end].responses))

    def notified(self, sender: int, times: Int64s) -> None:
        """``sender`` sent Congestion Notification Packets to this connection's other queue pair."""
        self.sent[sender].notified(times)

    def corrupt(self, sender: int, rows: Rows) -> None:
        """PACKET rows of ``sender`` whose invariant CRC is wrong."""
        sent = self.sent[sender]
        sent.failure_count += len(rows)
        for row in rows[: MAX_FAILURES - len(sent.failures)]:
            sent.failures.append((int(row["frame"]), int(row["psn"]), int(row["time"])))
        self._costs = None

    def _episodes(self) -> list[Episode]:
        """In order; where the lost packet came damaged, that is the loss."""
        found: list[Episode] = []
        for queue in self.repeats:
            damaged = {psn: (frame, time) for frame, psn, time in self.sent[queue.initiator].failures}
            for one in queue.snapshot()[3]:
                episode = one.noun(queue.initiator)
                frame, time = damaged.get(episode.psn, (0, 0))
                if frame and episode.lost == "request" and frame < (episode.again_frame or episode.nak_frame or 0):
                    episode = replace(episode, seen_before=True, lost_frame=frame, lost_time=time)
                found.append(episode)
        return sorted(found, key=_moment)

    @property
    def costs(self) -> Costs | None:
        """What retransmissions cost RPCs; None where there was none."""
        if not (self.repeats[0].complaining or self.repeats[1].complaining):
            return None
        if self._costs is None:
            self._costs = Costs(self._episodes(), self.connection.path_mtu or DEFAULT_MTU)
        return self._costs

    def result(self, now: int | None = None, icrc_checked: int | None = None) -> TransportHealth:
        """The state of things; ``now``: nanoseconds, the capture's last moment."""
        self._count()
        for end in (0, 1):
            self.sent[end].settle(self.sent[1 - end].marks)
        snapshots = [queue.snapshot() for queue in self.repeats]
        episodes = self._episodes()
        counts = snapshots[0][0] + snapshots[1][0]
        real = [one for one in episodes if one.lost != "nothing"]
        waits: list[Distribution | None] = []
        for name in ("loss_to_nak", "nak_to_again", "loss_to_again"):
            samples = Samples()
            known = [value for one in real if (value := getattr(one, name)) is not None]
            samples.add(np.array(known, np.int64))
            waits.append(samples.distribution())
        return TransportHealth(
            self.connection.number,
            self.connection.transport,
            (self._direction(0, snapshots), self._direction(1, snapshots)),
            tuple(episodes),
            sum(counts.values()),
            self.connection.path_mtu,
            ending(self, now),
            vantage(self.answers[1].turnaround, self.answers[0].turnaround),
            icrc_checked,
            waits[0],
            waits[1],
            waits[2],
            dict(counts),
        )

    def _direction(
        self, end: int, snapshots: Sequence[tuple[object, dict[str, Tally], dict[str, Tally], object]]
    ) -> Direction:
        connection, sent = self.connection, self.sent[end]
        mine, theirs = self.repeats[end], self.repeats[1 - end]
        answered, answers = self.answers[end], self.answers[1 - end]
        repeated = [snapshots[end][1], theirs.responses_repeated]
        recovered = [snapshots[end][2], theirs.responses_recovered]
        causes: dict[str, Tally] = {}
        for tallies in repeated + recovered:
            for cause, tally in tallies.items():
                causes[cause] = causes.get(cause, NONE) + tally
        return Direction(
            packets=sent.packets,
            bytes=sent.bytes,
            repeated=_total(repeated),
            recovered=_total(recovered),
            reordered=mine.reordered + theirs.responses_reordered,
            causes=causes,
            missing=connection.missing_packets[end],
            active_time=sent.active,
            acknowledgements=answers.acks,
            requests_acknowledged=answers.acknowledged,
            requests_per_ack=answers.acknowledged / answers.advancing if answers.advancing else None,
            most_per_ack=answers.most,
            ack_delay=answers.delay.distribution(),
            read_delay=answers.read_delay.distribution(),
            sequence_naks=theirs.sequence_naks,
            rnr_naks=tuple(theirs.rnr_naks),
            rnr_count=theirs.rnr_count,
            fatal_naks=tuple(theirs.fatal_naks),
            ecn_marked=sent.marked,
            cnps=sent.cnps,
            cnp_gap=sent.cnp_gap.distribution(),
            cnp_delay=sent.cnp_delay.distribution(),
            icrc_failures=tuple(frame for frame, _, _ in sent.failures),
            icrc_failure_count=sent.failure_count,
            reads_outstanding=answered.reads_outstanding,
            read_depth=read_depth(connection.endpoints[end], connection.endpoints[1 - end]),
            unanswered=answered.unanswered,
        )


def _moment(episode: Episode) -> int:
    return episode.nak_time or episode.again_time or 0


def read_depth(initiator: Endpoint, responder: Endpoint) -> int | None:
    """RDMA Reads that ``initiator`` may have open, by what both ends said in their CM messages (IBA 12.7)."""
    if initiator.initiator_depth is None or responder.responder_resources is None:
        return None
    return min(initiator.initiator_depth, responder.responder_resources)


def _columns(rows: Rows, psns: Int64s, ends: Int64s) -> Columns:
    return Columns(
        psns,
        ends,
        np.ascontiguousarray(rows["time"]),
        np.ascontiguousarray(rows["frame"]),
        np.ascontiguousarray(rows["length"]),
        np.ascontiguousarray(rows["opcode"]),
    )


def _joined(batches: Sequence[_Batch]) -> _Batch:
    if len(batches) == 1:
        return batches[0]
    parts: list[Columns | None] = []
    for listed in ([one.requests for one in batches], [one.responses for one in batches]):
        there = [one for one in listed if one is not None]
        parts.append(Columns(*map(np.concatenate, zip(*there, strict=True))) if there else None)
    known = [one for one in batches if one.furthest is not None]
    if not known:
        return _Batch(None, None, None, None)
    return _Batch(parts[0], parts[1], known[0].head, known[-1].furthest)


def _total(tallies: Sequence[dict[str, Tally]]) -> Tally:
    total = NONE
    for one in tallies:
        for tally in one.values():
            total += tally
    return total
