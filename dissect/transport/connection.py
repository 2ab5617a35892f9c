"""Connection: two endpoints, how they were found to belong together, and how much passed between them."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from operator import attrgetter, itemgetter
from typing import Protocol

from ..named_tuple import NamedTuple
from .retransmissions import InferredLoss, SenderLedger

MAX_GAPS = 256
"""The oldest go where there are more."""


class Gap(NamedTuple):
    """PSNs or bytes [start, end) that were not seen; ``frame`` and ``time`` of the packet that showed it first."""

    start: int
    end: int
    frame: int
    time: int
    later: int = 0
    """The last frame that showed more of it; 0 for none."""

    @property
    def last_frame(self) -> int:
        """Behind it no packet shows any of it."""
        return self.later or self.frame

    def shown(self, behind: int, to: int) -> bool:
        """A packet behind frame ``behind``, and none behind ``to``, shows some of it."""
        return self.frame <= to and self.last_frame > behind


_START, _END = attrgetter("start"), attrgetter("end")


def with_gap(gaps: Sequence[Gap], gap: Gap) -> list[Gap]:
    """The gaps, which are apart and in order, and one behind them."""
    return [*gaps[1 - MAX_GAPS :], gap]


def overlapping(gaps: Sequence[Gap], start: int, stop: int) -> Sequence[Gap]:
    """Those of which [start, stop) has a part."""
    first = bisect_right(gaps, start, key=_END)
    return gaps[first : bisect_left(gaps, stop, first, key=_START)]


def fill_gaps(gaps: Sequence[Gap], start: int, stop: int) -> list[Gap]:
    """What is left of them when [start, stop) was seen."""
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
"""Transports whose connections have TCP segments, or datagrams in their place."""
ENDS = "client", "server"
"""Endpoint 0 and 1 (xcharext-02, 1.3)."""
MAX_CONTRADICTED = 1000
DEFAULT_INLINE = 1024
"""Inline threshold where the private data set none (RFC 8166, 3.3.2)."""


Pair = tuple[int, int]
"""A count for each endpoint.  Most are zero in most connections, which then share one."""
NONE_OF_EITHER = 0, 0
REFUSED = "RST in answer to the SYN"
UNANSWERED = "no answer to "
ASKED_AGAIN = 100_000_000
"""Nanoseconds between two REQs or SYNs for one connection, below which the later is a copy: TCP waits for 1 s before it
sends another one (RFC 6298, 2.1), CM for longer, and bonds and mirrors give one frame twice within microseconds."""
_CLOSED = re.compile("^(DREQ|FIN|RST) from the (client|server)")


def ending_words(ended: str) -> str:
    """'closed by the client (DREQ), after …' of 'DREQ from the client, after …'; other endings as they are."""
    return _CLOSED.sub(lambda by: f"{'reset' if by[1] == 'RST' else 'closed'} by the {by[2]} ({by[1]})", ended)


def raised(pair: Pair, endpoint: int, by: int) -> Pair:
    """With more for one of the two, or less, but none below zero."""
    return with_count(pair, endpoint, max(0, pair[endpoint] + by))


def with_count(pair: Pair, endpoint: int, count: int) -> Pair:
    """With another count for one of the two."""
    return (pair[0], count) if endpoint else (count, pair[1])


@dataclass(slots=True)
class Endpoint:
    """One end.  None is: not seen."""

    address: str
    qpn: int
    start_psn: int | None = None
    """The PSN it expects first: its peer's first request carries it (IBA 12.7.31)."""
    private_data: bytes = b""
    """Consumer private data of its connection request or reply, as far as captured."""
    private_data_truncated: bool = False
    """The frame of that message was truncated inside it."""
    private_data_frame: int = field(default=0, compare=False)
    """The frame of that message; 0 where none was seen."""
    responder_resources: int | None = None
    initiator_depth: int | None = None
    ack_timeout: int | None = None
    """Nanoseconds of the local ACK timeout in its CM REQ (IBA 12.7.34); the other end derives its own from it."""
    port: int | None = None
    """iWARP: the TCP port; ``qpn`` is then 0, for no packet tells it."""

    def __str__(self) -> str:
        if self.port is not None:
            return f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"
        return f"{self.address} QP 0x{self.qpn:06x}"


class ReusedPsn(NamedTuple):
    """A new request with a PSN that an earlier request of the same sender had taken: the sender's error.

    The responder takes it for a duplicate and drops it, so that the connection may stall (IBA 9.7.2 and 9.7.5.1.5).
    """

    frame: int
    sender: int
    psn: int
    verb: str
    """Of the new request: 'Send', 'RDMA Write', 'RDMA Read', 'Atomic'."""
    earlier_frame: int
    earlier_verb: str


class PathMigration(NamedTuple):
    """Queue pairs that go on between other addresses (InfiniBand volume 1, 17.2.8)."""

    frame: int
    """The first on the later path."""
    other: tuple[str, str]
    """Addresses of the other path, of the active and the passive side."""


@dataclass(slots=True, eq=False)
class Connection:
    """A queue pair at each end.  Endpoint 0 is the active side; where no CM exchange was captured, the requester."""

    number: int
    """1-based, in order of appearance, those that are ``unanswered`` last."""
    transport: str
    """RoCEv2, RoCEv1, InfiniBand, iWARP; TCP, UDP: messages without RDMA."""
    endpoints: tuple[Endpoint, Endpoint]
    paired_by: str = "CM"
    """'CM', 'inferred' from the traffic, 'one direction only', or 'TCP': both directions are one TCP connection."""
    confidence: float = 1.0
    """0 to 1; how sure the pairing is."""
    evidence: tuple[str, ...] = ()
    """What the inference rests on, in words."""
    opened: bool = True
    """Its CM exchange or its SYN is in the capture, or there is none."""
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
    """Nanoseconds; of the DREQ, 0 where none was seen."""
    packets: Pair = NONE_OF_EITHER
    """InfiniBand and RoCE packets sent by each endpoint, retransmissions included; none with iWARP."""
    segments: Pair = NONE_OF_EITHER
    """iWARP: TCP segments with payload sent by each endpoint, retransmissions included."""
    fpdus: Pair = NONE_OF_EITHER
    """iWARP: FPDUs sent by each endpoint, each counted once."""
    bytes: Pair = NONE_OF_EITHER
    """RDMA payload bytes sent by each endpoint, retransmissions included; iWARP: the payload of each FPDU once, and the
    TCP payload of segments seen twice, with the headers of FPDUs in it."""
    missing_packets: Pair = NONE_OF_EITHER
    """Packets that were sent but are not in the capture; TCP segments with iWARP, at least so many."""
    unconfirmed_packets: Pair = NONE_OF_EITHER
    """Those of ``missing_packets`` that nothing confirms: their sender may have passed over their PSNs."""
    late_packets: int = 0
    """Packets that were taken as missing for long, and then came."""
    gaps: tuple[Sequence[Gap], Sequence[Gap]] = ((), ())
    """PSNs of requests of either endpoint that are not in the capture; the last of them.  With iWARP bytes of its TCP
    stream, by positions that do not wrap."""
    unread_packets: Pair = NONE_OF_EITHER
    """Packets whose headers the capture truncates, and FPDUs that failed a check: what they did is not known."""
    unread_from: tuple[int | None, int | None] = None, None
    """iWARP: where in its TCP stream, by positions that do not wrap, either endpoint sent the first of those."""
    unread_messages: Pair = NONE_OF_EITHER
    """Sends whose transport header the capture truncates, counted by the layer that decodes it."""
    undirected_messages: Pair = NONE_OF_EITHER
    """Sends that the capture truncates before they say whether they are calls or replies, which nothing told since."""
    disordered: int = 0
    """The first frame that answers what was captured behind it, so that the order of frames is not that in which they
    were sent; 0 for none."""
    damaged: Sequence[tuple[int, int]] = ()
    """Frame and time, ns, of packets that failed their ICRC, so that their receiver dropped them; the first of them."""
    contradicted: tuple[Sequence[int], Sequence[int]] = ((), ())
    """Frames of either endpoint that retransmit with other bytes than before; the first of them."""
    reused_psns: Sequence[ReusedPsn] = ()
    """The first of them."""
    ledgers: tuple[SenderLedger, SenderLedger] = field(default_factory=lambda: (SenderLedger(), SenderLedger()))
    """What either endpoint retransmitted."""
    migrated_from: PathMigration | None = None
    """The queue pairs were in use between other addresses before."""
    migrated_to: PathMigration | None = None
    """They went on between other addresses."""
    inferred_losses: Sequence[InferredLoss] = ()
    """Losses that only the length of a pause shows; the first of them."""
    encrypted: int = 0
    """TCP: the frame from which on TLS encrypts (RFC 9289); 0: it does not."""
    stray_packets: Pair = NONE_OF_EITHER
    """Packets whose PSN fits nothing before or after them."""

    def passed(self, sender: int, packets: int, size: int, first: tuple[int, int], last: tuple[int, int]) -> None:
        """``sender`` sent so many packets and bytes; frame and time of the first and the last of them."""
        self.packets = raised(self.packets, sender, packets)
        self.bytes = raised(self.bytes, sender, size)
        if not self.first_frame or first[0] < self.first_frame:
            self.first_frame, self.first_time = first
        if last[0] > self.last_frame:
            self.last_frame, self.last_time = last

    def disorder(self, frame: int) -> None:
        """This frame answers what was captured behind it."""
        self.disordered = min(self.disordered or frame, frame)

    def contradict(self, sender: int, frames: Iterable[int]) -> None:
        """Frames of ``sender`` retransmit with other bytes than before."""
        known = self.contradicted[sender]
        now = [*known, *islice([frame for frame in frames if frame not in known], MAX_CONTRADICTED - len(known))]
        if len(now) > len(known):
            self.contradicted = (self.contradicted[0], now) if sender else (now, self.contradicted[1])

    @property
    def retransmitted_packets(self) -> tuple[int, int]:
        """By each endpoint; TCP segments with iWARP."""
        return self.ledgers[0].retransmitted.packets, self.ledgers[1].retransmitted.packets

    @property
    def refused(self) -> bool:
        """An end refused it, and nothing was transferred."""
        return self.ended_by.startswith(("REJ", "MPA reject", REFUSED)) and not any(self.bytes)

    @property
    def unanswered(self) -> bool:
        """An end asked for it again and again, and the capture has no answer."""
        return self.ended_by.startswith(UNANSWERED)

    @property
    def of_tcp(self) -> bool:
        """It has TCP segments, or datagrams, not packets: iWARP, or messages without RDMA."""
        return self.transport in OF_TCP

    @property
    def rdma(self) -> bool:
        return self.transport not in WITHOUT_RDMA

    @property
    def one_sided(self) -> bool:
        """Only one direction of it was captured: of the other at most that the first acknowledges it, and CM."""
        unseen = not self.of_tcp and any(
            gaps and not packets for gaps, packets in zip(self.gaps, self.packets, strict=True)
        )
        return unseen or self.paired_by == ONE_DIRECTION

    @property
    def start_known(self) -> bool:
        """Its beginning is in the capture."""
        return all(end.private_data_frame for end in self.endpoints)


ONE_DIRECTION = "one direction only"
"""In place of how two were paired."""
BY_CM = BY_TCP = 0
BY_PAIRING, BY_ONE_DIRECTION = 1, 2
"""How connections become known, in the order of those that do at the same frame."""
AT_END = 1 << 62
"""Behind all frames."""
KnownAt = tuple[int, int, int]
"""Where a connection became known: frame; how; the first frame of it."""


def gaps_forgotten(connection: Connection, sender: int) -> bool:
    """More packets of this end may be missing than its gaps tell: only so many are remembered."""
    known = len(connection.gaps[sender])
    return known >= MAX_GAPS or bool(connection.missing_packets[sender] and not known)


class Registry:
    """Numbers the connections of all transports."""

    def __init__(self, connections: list[Connection]) -> None:
        """``connections``: where they are put."""
        self.connections = connections
        self.last = 0
        """The highest number."""
        self._coming: list[tuple[KnownAt, Connection]] = []

    def add(self, known_at: KnownAt, connection: Connection) -> None:
        """It is known from that place on, and has a number when the batch is over."""
        self._coming.append((known_at, connection))

    def settle(self) -> None:
        """The batch is over: number those that became known."""
        coming, self._coming = self._coming, []
        for known_at, connection in sorted(coming, key=itemgetter(0)):
            self.number(known_at, connection)

    def number(self, known_at: KnownAt, connection: Connection) -> None:
        """The next one, which became known at that place."""
        self.last += 1
        connection.number = self.last
        self.connections.append(connection)


class Link(Protocol):
    """Who observes a connection, whichever transport it has."""

    @property
    def connection(self) -> Connection | None: ...
