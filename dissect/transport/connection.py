"""Connection: two endpoints, how they were matched, and how much passed between them."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import inf
from operator import attrgetter, itemgetter
from typing import Protocol

from ..named_tuple import NamedTuple
from .retransmissions import InferredLoss, SenderLedger

MAX_GAPS = 256
"""Gaps remembered per endpoint; the oldest are dropped first."""


class Gap(NamedTuple):
    """PSNs or bytes [start, end) that were not seen; ``frame`` and ``time`` of the first packet that shows it."""

    start: int
    end: int
    frame: int
    time: int
    later: int = 0
    """The last frame that enlarged it; 0 if none did."""

    @property
    def last_frame(self) -> int:
        """The last frame that shows any of it."""
        return self.later or self.frame

    def shown(self, behind: int, to: int) -> bool:
        """Whether a packet in frames (``behind``, ``to``] shows some of it."""
        return self.frame <= to and self.last_frame > behind


_START, _END = attrgetter("start"), attrgetter("end")


def with_gap(gaps: Sequence[Gap], gap: Gap) -> list[Gap]:
    """``gaps``, disjoint and in order, with ``gap`` appended."""
    return [*gaps[1 - MAX_GAPS :], gap]


def overlapping(gaps: Sequence[Gap], start: int, stop: int) -> Sequence[Gap]:
    """The gaps that overlap [start, stop)."""
    first = bisect_right(gaps, start, key=_END)
    return gaps[first : bisect_left(gaps, stop, first, key=_START)]


def fill_gaps(gaps: Sequence[Gap], start: int, stop: int) -> list[Gap]:
    """The gaps that are left after [start, stop) was seen."""
    first = bisect_right(gaps, start, key=_END)
    behind = bisect_left(gaps, stop, first, key=_START)
    left: list[Gap] = []
    for gap in gaps[first:behind]:
        if gap.start < start:
            left.append(gap._replace(end=start))
        if gap.end > stop:
            left.append(gap._replace(start=stop))
    return [*gaps[:first], *left, *gaps[behind:]][-MAX_GAPS:]


WITHOUT_RDMA = "TCP", "UDP"
OF_TCP = "iWARP", *WITHOUT_RDMA
"""Transports whose connections have TCP segments, or UDP datagrams, instead of InfiniBand packets."""
ENDS = "client", "server"
"""Endpoint 0 and 1 (xcharext-02, 1.3)."""
MAX_CONTRADICTED = 1000
DEFAULT_INLINE = 1024
"""Inline threshold in bytes if the private data sets none (RFC 8166, 3.3.2)."""


Pair = tuple[int, int]
"""A count for each endpoint.  Most are zero, and share one tuple."""
NONE_OF_EITHER = 0, 0
REFUSED = "RST in answer to the SYN"
UNANSWERED = "no answer to "
ASKED_AGAIN = 100_000_000
"""Nanoseconds within which a second REQ or SYN for a connection is a copy: TCP waits 1 s before it sends another SYN
(RFC 6298, 2.1), CM longer, while bonds and mirrors duplicate a frame within microseconds."""
_CLOSED = re.compile("^(DREQ|FIN|RST) from the (client|server)")


def ending_words(ended: str) -> str:
    """'closed by the client (DREQ), after …' for 'DREQ from the client, after …'; other endings unchanged."""
    return _CLOSED.sub(lambda by: f"{'reset' if by[1] == 'RST' else 'closed'} by the {by[2]} ({by[1]})", ended)


def raised(pair: Pair, endpoint: int, by: int) -> Pair:
    """The pair with ``by`` added to one endpoint's count, at least 0."""
    return with_count(pair, endpoint, max(0, pair[endpoint] + by))


def with_count(pair: Pair, endpoint: int, count: int) -> Pair:
    """The pair with one endpoint's count replaced."""
    return (pair[0], count) if endpoint else (count, pair[1])


@dataclass(slots=True)
class Endpoint:
    """One end.  None means not seen."""

    address: str
    qpn: int
    start_psn: int | None = None
    """The PSN it expects first: its peer's first request carries it (IBA 12.7.31)."""
    private_data: bytes = b""
    """Consumer private data of its connection request or reply, as captured."""
    private_data_truncated: bool = False
    """The frame of that message was truncated within the private data."""
    private_data_frame: int = field(default=0, compare=False)
    """The frame of that message; 0 if none was seen."""
    responder_resources: int | None = None
    initiator_depth: int | None = None
    ack_timeout: int | None = None
    """Nanoseconds of the local ACK timeout in its CM REQ (IBA 12.7.34); the other end derives its own from it."""
    port: int | None = None
    """iWARP: the TCP port; ``qpn`` is then 0, as no packet has it."""

    def __str__(self) -> str:
        if self.port is not None:
            return f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"
        return f"{self.address} QP 0x{self.qpn:06x}"


class ReusedPsn(NamedTuple):
    """A new request with a PSN that an earlier request of the same sender had taken: an error of the sender.

    The responder drops it as a duplicate, and the connection may stall (IBA 9.7.2 and 9.7.5.1.5).
    """

    frame: int
    sender: int
    psn: int
    verb: str
    """Of the new request: 'Send', 'RDMA Write', 'RDMA Read', 'Atomic'."""
    earlier_frame: int
    earlier_verb: str


class PathMigration(NamedTuple):
    """A switch of queue pairs to other addresses (InfiniBand volume 1, 17.2.8)."""

    frame: int
    """The first frame on the later path."""
    other: tuple[str, str]
    """Addresses on the other path, of the client and of the server."""


@dataclass(slots=True, eq=False)
class Connection:
    """A queue pair at each end.  Endpoint 0 is the active side or, without a captured CM exchange, the requester."""

    number: int
    """1-based, in order of appearance; ``unanswered`` connections come last."""
    transport: str
    """RoCEv2, RoCEv1, InfiniBand, iWARP; TCP, UDP: messages without RDMA."""
    endpoints: tuple[Endpoint, Endpoint]
    paired_by: str = "CM"
    """'CM', 'inferred' from the traffic, 'one direction only', or 'TCP', whose connections show both directions."""
    confidence: float = 1.0
    """0 to 1; how sure the pairing is."""
    evidence: tuple[str, ...] = ()
    """What the inference rests on, in words."""
    opened: bool = True
    """Its CM exchange or its SYN is in the capture, or its transport has none."""
    service_id: int | None = None
    """IB: the service that the REQ asked for."""
    service_port: int | None = None
    path_mtu: int | None = None
    """Payload bytes of a full packet; from CM, corrected by what is seen."""
    first_frame: int = 0
    last_frame: int = 0
    first_time: int = 0
    last_time: int = 0
    ended_by: str = ""
    """'DREQ', 'REJ (reason)', 'FIN from the client', 'RST …', 'Terminate (…)', 'MPA reject',
    ``REFUSED``, ``UNANSWERED`` and what was sent in vain: '3 REQs', '2 SYNs'; ''."""
    ended_time: int = 0
    """Nanoseconds; time of the DREQ, 0 if none was seen."""
    packets: Pair = NONE_OF_EITHER
    """InfiniBand and RoCE packets sent by each endpoint, retransmissions included; 0 with iWARP."""
    segments: Pair = NONE_OF_EITHER
    """iWARP: TCP segments with payload sent by each endpoint, retransmissions included."""
    fpdus: Pair = NONE_OF_EITHER
    """iWARP: FPDUs sent by each endpoint, each counted once."""
    bytes: Pair = NONE_OF_EITHER
    """RDMA payload bytes sent by each endpoint, retransmissions included; iWARP: the payload of each FPDU once, plus
    the TCP payload, with FPDU headers, of segments seen twice."""
    missing_packets: Pair = NONE_OF_EITHER
    """Packets that were sent but not captured; iWARP: TCP segments, a lower bound."""
    unconfirmed_packets: Pair = NONE_OF_EITHER
    """``missing_packets`` that nothing confirms: their sender may have skipped the PSNs."""
    missing_responses: Pair = NONE_OF_EITHER
    """Responses to RDMA Reads, not among ``missing_packets``, that acknowledgements show but the capture does not have;
    counted when the connection is over."""
    late_packets: int = 0
    """Packets that counted as missing for long, and then came."""
    gaps: tuple[Sequence[Gap], Sequence[Gap]] = ((), ())
    """PSNs of each endpoint's requests that are not in the capture, the latest ones.  iWARP: bytes of its TCP stream,
    as positions that do not wrap."""
    unread_packets: Pair = NONE_OF_EITHER
    """Packets whose headers are truncated in the capture, and FPDUs that failed a check: their effect is unknown."""
    unread_from: tuple[int | None, int | None] = None, None
    """iWARP: position in each endpoint's TCP stream, not wrapping, of the first of these."""
    unread_messages: Pair = NONE_OF_EITHER
    """Sends whose transport header is truncated in the capture; counted by the layer that decodes it."""
    undirected_messages: Pair = NONE_OF_EITHER
    """Sends truncated before they tell call from reply, and for which no other message has told since."""
    disordered: int = 0
    """The first frame that answers a packet captured after it, which shows that frames are not in the order in which
    they were sent; 0 for none."""
    damaged: Sequence[tuple[int, int]] = ()
    """Frame and time (ns) of packets that failed their ICRC, so that the receiver dropped them; the first ones."""
    contradicted: tuple[Sequence[int], Sequence[int]] = ((), ())
    """Frames of each endpoint that retransmit other bytes than before; the first ones."""
    reused_psns: Sequence[ReusedPsn] = ()
    """The first ones."""
    ledgers: tuple[SenderLedger, SenderLedger] = field(default_factory=lambda: (SenderLedger(), SenderLedger()))
    """What each endpoint retransmitted."""
    migrated_from: PathMigration | None = None
    """The queue pairs were used between other addresses before."""
    migrated_to: PathMigration | None = None
    """The queue pairs were used between other addresses afterwards."""
    inferred_losses: Sequence[InferredLoss] = ()
    """Losses that only the length of a pause shows; the first ones."""
    encrypted: int = 0
    """TCP: the frame from which on TLS encrypts (RFC 9289); 0 without TLS."""
    stray_packets: Pair = NONE_OF_EITHER
    """Packets whose PSN fits neither those before nor those after them."""

    def passed(self, sender: int, packets: int, size: int, first: tuple[int, int], last: tuple[int, int]) -> None:
        """Count packets and bytes of ``sender``; ``first`` and ``last``: frame and time of the first and last
        packet."""
        self.packets = raised(self.packets, sender, packets)
        self.bytes = raised(self.bytes, sender, size)
        if not self.first_frame or first[0] < self.first_frame:
            self.first_frame, self.first_time = first
        if last[0] > self.last_frame:
            self.last_frame, self.last_time = last

    def disorder(self, frame: int) -> None:
        """Note that ``frame`` answers a packet captured after it."""
        self.disordered = min(self.disordered or frame, frame)

    def contradict(self, sender: int, frames: Iterable[int]) -> None:
        """Note ``frames`` of ``sender`` that retransmit other bytes than before."""
        known = self.contradicted[sender]
        now = [*known, *islice([frame for frame in frames if frame not in known], MAX_CONTRADICTED - len(known))]
        if len(now) > len(known):
            self.contradicted = (self.contradicted[0], now) if sender else (now, self.contradicted[1])

    @property
    def retransmitted_packets(self) -> tuple[int, int]:
        """Packets retransmitted by each endpoint; iWARP: TCP segments."""
        return self.ledgers[0].retransmitted.packets, self.ledgers[1].retransmitted.packets

    @property
    def refused(self) -> bool:
        """An end refused the connection, and nothing was transferred."""
        return self.ended_by.startswith(("REJ", "MPA reject", REFUSED)) and not any(self.bytes)

    @property
    def unanswered(self) -> bool:
        """An end repeated its request for the connection, and the capture has no answer."""
        return self.ended_by.startswith(UNANSWERED)

    @property
    def of_tcp(self) -> bool:
        """It has TCP segments or UDP datagrams instead of packets: iWARP, or messages without RDMA."""
        return self.transport in OF_TCP

    @property
    def rdma(self) -> bool:
        return self.transport not in WITHOUT_RDMA

    @property
    def one_sided(self) -> bool:
        """Only one direction was captured; of the other at most CM, and PSNs that the captured one acknowledges."""
        unseen = not self.of_tcp and any(
            gaps and not packets for gaps, packets in zip(self.gaps, self.packets, strict=True)
        )
        return unseen or self.paired_by == ONE_DIRECTION

    @property
    def start_known(self) -> bool:
        """The connection's beginning is in the capture."""
        return all(end.private_data_frame for end in self.endpoints)


ONE_DIRECTION = "one direction only"
"""Value of ``paired_by`` of connections without a captured partner flow."""
BY_CM = BY_TCP = 0
BY_PAIRING, BY_ONE_DIRECTION = 1, 2
"""How a connection became known; the order of those that became known at the same frame."""
AT_END = 1 << 62
"""After all frames."""
KnownAt = tuple[int, int, int]
"""When a connection became known: frame, how, its first frame."""


def gaps_forgotten(connection: Connection, sender: int) -> bool:
    """Whether this end may have more missing packets than its gaps tell, as only ``MAX_GAPS`` are remembered."""
    known = len(connection.gaps[sender])
    return known >= MAX_GAPS or bool(connection.missing_packets[sender] and not known)


def last_gap(connection: Connection, sender: int) -> float:
    """The last frame that shows missing packets of this end: 0 for none, infinity if any may be missing."""
    if connection.one_sided or gaps_forgotten(connection, sender):
        return inf
    return max([gap.last_frame for gap in connection.gaps[sender]], default=0)


class Registry:
    """Numbers the connections of all transports."""

    def __init__(self, connections: list[Connection]) -> None:
        """``connections``: the list to append them to."""
        self.connections = connections
        self.last = 0
        """The highest number so far."""
        self._coming: list[tuple[KnownAt, Connection]] = []

    def add(self, known_at: KnownAt, connection: Connection) -> None:
        """Note a connection that became known at ``known_at``; ``settle`` numbers it at the end of the batch."""
        self._coming.append((known_at, connection))

    def settle(self) -> None:
        """Number the connections that became known in the batch."""
        coming, self._coming = self._coming, []
        for known_at, connection in sorted(coming, key=itemgetter(0)):
            self.number(known_at, connection)

    def number(self, known_at: KnownAt, connection: Connection) -> None:
        """Give a connection the next number."""
        self.last += 1
        connection.number = self.last
        self.connections.append(connection)


class Link(Protocol):
    """An observer of one connection, of any transport."""

    @property
    def connection(self) -> Connection | None: ...
