"""Transport health: what a connection's transport did, and what its troubles cost, whichever transport it was."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ..percentiles import Distribution
from ..rpcrdma.rpcs import Rpc
from ..serial import PSN
from .operations import Kind, Operation


@dataclass(frozen=True, slots=True)
class Tally:
    """A number of packets and their payload bytes."""

    packets: int = 0
    bytes: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.packets + other.packets, self.bytes + other.bytes)


NONE = Tally()


CAUSES = (
    "NAK sequence error",  # the responder missed a PSN and said so (IBA 9.7.5)
    "implied NAK",  # a Read response was missing, so the requester asked again (IBA 9.9)
    "RNR NAK",  # the responder had no receive buffer (IBA 9.7.5)
    "fast retransmit",  # TCP: the receiver acknowledged the byte before it again and again (RFC 5681, 3.2)
    "timeout",  # nothing came for a while (IBA 9.9; RFC 6298)
    "unknown",  # sent again, but the capture does not show why
    "duplicate",  # one packet twice, and its sender went on
)
"""Why packets were seen again."""


@dataclass(frozen=True, slots=True)
class Episode:
    """One return to an earlier packet: what was lost, who said so, and when it was sent again.

    Moments are nanoseconds since the epoch, as seen where the capture was taken; None is: not seen.
    """

    initiator: int
    """The endpoint that sent requests again."""
    psn: int
    """Where it started again, 24 bits; iWARP: the TCP sequence number, 32 bits."""
    end: int
    """PSN or sequence number behind the last one sent again; greater than ``psn``, whatever its bits."""
    cause: str
    """One of ``CAUSES``."""
    lost: str
    """'request', 'response', 'acknowledgement', 'segment' (iWARP), 'nothing' (RNR NAK, a copy, what had arrived) or
    'unknown'."""
    seen_before: bool | None
    """The lost packet is in the capture: it was lost behind the capture point; False: it was lost before it,
    or nobody captured it; None: not known."""
    lost_frame: int | None
    """Where ``seen_before``: the lost packet.  Else: the first packet that shows it missing."""
    lost_time: int | None
    nak_frame: int | None
    """iWARP: of the first duplicate acknowledgement."""
    nak_time: int | None
    again_frame: int | None
    """The first packet sent again; None where nothing was."""
    again_time: int | None
    packets: int
    """Requests sent again."""
    bytes: int

    @property
    def loss_to_nak(self) -> int | None:
        """Nanoseconds."""
        return _between(self.lost_time, self.nak_time)

    @property
    def nak_to_again(self) -> int | None:
        return _between(self.nak_time, self.again_time)

    @property
    def loss_to_again(self) -> int | None:
        return _between(self.lost_time, self.again_time)


def _between(start: int | None, end: int | None) -> int | None:
    return None if start is None or end is None else max(0, end - start)


class Refusal(NamedTuple):
    """A NAK that asks to wait, or ends the connection."""

    frame: int
    time: int
    psn: int
    name: str
    """'RNR NAK, 0.64 ms', 'NAK, Remote Access Error'."""
    timer: int | None = None
    """RNR NAK: nanoseconds to wait."""


@dataclass(frozen=True, slots=True)
class Direction:
    """What one endpoint sent."""

    packets: int
    bytes: int
    """Payload, repetitions included."""
    repeated: Tally
    """Packets seen more than once; the first sight is not counted."""
    recovered: Tally
    """Packets of which only a repetition was seen: the first transmission was lost before the capture point."""
    reordered: int
    """Packets that came late without anybody asking for them again."""
    causes: Mapping[str, Tally]
    """``repeated`` and ``recovered`` by cause."""
    missing: int
    """Packets that were sent but are not in the capture at all."""
    active_time: int
    """Nanoseconds in which it sent payload; pauses of more than 100 ms do not count."""
    acknowledgements: int
    """ACK packets it sent."""
    requests_acknowledged: int
    """Request packets of the other end (Reads aside) that those answered."""
    requests_per_ack: float | None
    """Mean, over acknowledgements that answered something."""
    most_per_ack: int
    ack_delay: Distribution | None
    """From a request packet of the other end to the packet that acknowledges it."""
    read_delay: Distribution | None
    """From an RDMA Read request of the other end to its first response."""
    sequence_naks: int
    """NAKs for a PSN sequence error that it sent."""
    rnr_naks: tuple[Refusal, ...]
    """The first of them."""
    rnr_count: int
    fatal_naks: tuple[Refusal, ...]
    """Remote access, remote operational and invalid request errors."""
    ecn_marked: int
    """Its packets that a switch marked: congestion experienced."""
    cnps: int
    """Congestion notifications it sent because packets of the other end came marked."""
    cnp_gap: Distribution | None
    """From one of them to the next."""
    cnp_delay: Distribution | None
    """From a marked packet of the other end to the next notification."""
    icrc_failures: tuple[int, ...]
    """Frames; the first of them."""
    icrc_failure_count: int
    reads_outstanding: int
    """RDMA Reads it had open at one time, at most."""
    read_depth: int | None
    """How many it may: the least of its initiator depth and the other end's responder resources."""
    unanswered: int
    """Requests still without acknowledgement when the capture ended; iWARP: RDMA Reads not answered to the end."""
    fpdus: int | None = None
    """iWARP: FPDUs it sent; ``packets`` are then its TCP segments with payload, and acknowledgements those without."""
    duplicate_acks: int = 0
    """iWARP: TCP acknowledgements it sent that repeat the one before, for want of a segment (RFC 5681, 2)."""
    selective_acks: int = 0
    """iWARP: acknowledgements that name what came behind a gap (RFC 2018)."""
    reported_twice: int = 0
    """iWARP: acknowledgements that name what came twice (RFC 2883)."""
    zero_windows: int = 0
    """iWARP: segments by which it said that it can take no byte more."""
    congestion_echoes: int = 0
    """iWARP: segments by which it said that marked ones came (RFC 3168, 6.1)."""
    damaged_segments: int = 0
    """iWARP: its segments whose TCP checksum is wrong, which the other end drops."""
    crc_failures: tuple[int, ...] = ()
    """iWARP: frames of its FPDUs whose CRC32C is wrong; the first of them."""
    crc_failure_count: int = 0
    marker_failures: int = 0
    """iWARP: its FPDUs with markers that point elsewhere (RFC 5044, 4.3)."""
    doubted_fpdus: int = 0
    """iWARP: its other FPDUs that are not believed, as no CRC backs them and markers or headers are wrong."""

    @property
    def unique_bytes(self) -> int:
        return max(0, self.bytes - self.repeated.bytes)

    @property
    def goodput(self) -> float | None:
        """Unique payload bits per second of active time; None where it sent no two packets with payload."""
        return self.unique_bytes * 8e9 / self.active_time if self.active_time else None

    @property
    def retransmitted(self) -> Tally:
        """Packets that were sent again, wherever the first transmission was lost."""
        total = NONE
        for cause, tally in self.causes.items():
            if cause != "duplicate":
                total += tally
        return total


@dataclass(frozen=True, slots=True)
class Vantage:
    """Where the capture was taken, as far as the times tell."""

    place: str
    """'beside the requester', 'beside the responder', 'between' or 'undecidable'.  The requester is the active side."""
    confidence: float
    """0 to 1."""
    evidence: str
    meaning: str
    """What it does to the parts of a latency."""


@dataclass(frozen=True, slots=True)
class TransportHealth:
    """One connection.  Direction 0 is what the active side sent."""

    connection: int
    transport: str
    directions: tuple[Direction, Direction]
    episodes: tuple[Episode, ...]
    """The last few thousand, in order."""
    episode_count: int
    path_mtu: int | None
    ended: str
    """Why the connection ended, in words; 'open at the end of the capture' where it did not."""
    vantage: Vantage
    icrc_checked: int | None
    """Packets whose invariant CRC was verified; None: not checked."""
    loss_to_nak: Distribution | None = None
    nak_to_again: Distribution | None = None
    loss_to_again: Distribution | None = None
    causes: Mapping[str, int] = field(default_factory=dict)
    """Episodes by cause."""
    crc_checked: int | None = None
    """iWARP: FPDUs whose CRC32C was verified; None where none has one."""

    @property
    def segments(self) -> bool:
        """What is counted are TCP segments (iWARP), not InfiniBand packets."""
        return self.transport == "iWARP"

    @property
    def troubled(self) -> bool:
        """Something is to be told beside counts."""
        return bool(self.episode_count) or any(
            one.sequence_naks
            or one.rnr_count
            or one.fatal_naks
            or one.ecn_marked
            or one.cnps
            or one.icrc_failure_count
            or one.crc_failure_count
            or one.marker_failures
            or one.doubted_fpdus
            or one.damaged_segments
            or one.zero_windows
            or one.congestion_echoes
            or one.reordered
            or one.causes
            for one in self.directions
        )


class Costs:
    """Which Rpc paid for which Episode of a connection."""

    def __init__(self, episodes: Iterable[Episode], mtu: int) -> None:
        self._mtu = mtu
        self._episodes = sorted(
            (one for one in episodes if one.loss_to_again and one.cause != "duplicate"),
            key=_again,
        )
        self._times = [_again(one) for one in self._episodes]

    def __bool__(self) -> bool:
        return bool(self._episodes)

    def of(self, rpc: Rpc) -> int:
        """Nanoseconds from loss to retransmission, over the episodes that an Operation of the RPC waited for."""
        operations = [message.operation for message in (rpc.call, rpc.reply) if message]
        if rpc.chunks:
            operations += [op for chunk in rpc.chunks for use in chunk.segments for op in use.operations]
        paid: dict[int, int] = {}
        times = self._times
        for operation in operations:
            first, last = operation.first_time, operation.last_time
            if operation.last_sent > last:
                last = operation.last_sent
            for index in range(bisect_left(times, first), len(times)):
                if times[index] > last:
                    break
                episode = self._episodes[index]
                if episode.initiator == operation.initiator and self._touches(episode, operation):
                    cost = _waited(episode, operation)
                    paid[index] = max(cost, paid.get(index, 0))
        return sum(paid.values())

    def _touches(self, episode: Episode, operation: Operation) -> bool:
        span = operation.packets
        if operation.kind is Kind.READ:
            span = max(1, -(-operation.length // self._mtu))
        behind = PSN.distance(episode.psn, operation.psn)
        return behind < episode.end - episode.psn or PSN.distance(operation.psn, episode.psn) < span


def _again(episode: Episode) -> int:
    return episode.again_time or 0


def _waited(episode: Episode, operation: Operation) -> int:
    """From the loss, or from when the Operation was first sent after it, to the retransmission."""
    assert episode.again_time is not None and episode.lost_time is not None
    since = episode.lost_time
    if since < operation.first_time < episode.again_time:
        since = operation.first_time
    return max(0, episode.again_time - since)
