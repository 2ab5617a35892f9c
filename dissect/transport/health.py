"""Transport health: what a connection's transport did, whichever transport it was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ..percentiles import Distribution
from .inferred_losses import InferredLoss
from .retransmissions import Retransmission, Tally


class NegativeAcknowledgement(NamedTuple):
    """A NAK that asks to wait, or ends the connection."""

    frame: int
    time: int
    psn: int
    name: str
    """'RNR NAK, 0.64 ms', 'NAK, Remote Access Error'."""
    timer: int | None = None
    """RNR NAK: nanoseconds to wait."""


@dataclass(frozen=True, slots=True)
class DirectionHealth:
    """What one endpoint sent."""

    packets: int
    """InfiniBand and RoCE packets, retransmissions included; none with iWARP."""
    segments: int
    """iWARP: TCP segments with payload, retransmissions included."""
    fpdus: int
    """iWARP: FPDUs, each counted once."""
    bytes: int
    """Payload, retransmissions included."""
    retransmitted: Tally
    """Packets (iWARP: segments) that were retransmitted, wherever the first transmission was lost; no copies."""
    retransmission_times: tuple[tuple[int, int], ...]
    """When those of ``retransmitted`` were sent: moments (ns) and packets, in intervals as ``PacketTimes`` has them."""
    original_captured: Tally
    """Those of which an earlier transmission is in the capture, and copies."""
    original_missing: Tally
    """Those whose earlier transmission was lost before the capture point."""
    reordered: int
    """Packets that came late although nothing shows that they were sent twice."""
    causes: Mapping[str, Tally]
    """``original_captured`` and ``original_missing`` by cause."""
    missing: int
    """Packets that were sent but are not in the capture at all."""
    unconfirmed: int
    """Those of ``missing`` that the sender may never have sent: no acknowledgement stands for their PSNs."""
    active_time: int
    """Nanoseconds in which it sent payload; pauses of more than 100 ms do not count."""
    acknowledgements: int
    """ACK packets it sent."""
    requests_acknowledged: int
    """Request packets of the other end (Reads aside) that those answered."""
    requests_per_ack: float | None
    """Mean, over acknowledgements that answered something."""
    max_per_ack: int
    ack_delay: Distribution | None
    """From a request packet of the other end to the packet that acknowledges it."""
    read_delay: Distribution | None
    """From an RDMA Read request of the other end to its first response."""
    sequence_naks: int
    """NAKs for a PSN sequence error that it sent."""
    rnr_naks: tuple[NegativeAcknowledgement, ...]
    """The first of them."""
    rnr_count: int
    fatal_naks: tuple[NegativeAcknowledgement, ...]
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
    """iWARP: its other FPDUs that were rejected: no CRC backs them, and markers or headers are wrong."""
    last_time: int = 0
    """Nanoseconds since the epoch, of its last packet, acknowledgements included; 0 where there is none."""
    waiting_since: int | None = None
    """Nanoseconds: when it sent the first of what nothing acknowledged until the capture ended; None: nothing waits."""

    @property
    def unique_bytes(self) -> int:
        return max(0, self.bytes - self.original_captured.bytes)

    @property
    def goodput(self) -> float | None:
        """Unique payload bits per second of active time; None where it sent no two packets with payload."""
        return self.unique_bytes * 8e9 / self.active_time if self.active_time else None


class CapturePoint(NamedTuple):
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
    directions: tuple[DirectionHealth, DirectionHealth]
    retransmissions: tuple[Retransmission, ...]
    """The last few thousand, in order."""
    retransmission_count: int
    path_mtu: int | None
    ended: str
    """Why the connection ended, in words; 'open at the end of the capture' where it did not."""
    capture_point: CapturePoint
    icrc_checked: int | None
    """Packets whose invariant CRC was verified; None: not checked."""
    loss_to_nak: Distribution | None = None
    nak_to_retransmission: Distribution | None = None
    loss_to_retransmission: Distribution | None = None
    causes: Mapping[str, int] = field(default_factory=dict)
    """Retransmissions by cause."""
    crc_checked: int | None = None
    """iWARP: FPDUs whose CRC32C was verified; None where none has one."""
    inferred: Sequence[InferredLoss] = ()
    """Losses at the end of a burst, which only the length of a pause shows; not among ``retransmissions``."""

    @property
    def segments(self) -> bool:
        """What is counted are TCP segments (iWARP), not InfiniBand packets."""
        return self.transport == "iWARP"

    @property
    def troubled(self) -> bool:
        """There is more to report than counts."""
        return bool(self.retransmission_count or self.inferred) or any(
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
