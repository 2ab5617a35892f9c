"""Connection: two endpoints, how they were found to belong together, and what they agreed."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..layers.characteristics_codes import CHARACTERISTICS, XCHAR_RBSIZ
from ..layers.private_data_codes import PrivateData
from ..rpcrdma.negotiation import VERSION_2_INLINE, InForce, Negotiation

DEFAULT_INLINE = 1024
"""Inline threshold where the private data set none (RFC 8166, 3.3.2)."""


@dataclass(slots=True)
class Endpoint:
    """One end.  None is: not seen."""

    address: str
    qpn: int
    start_psn: int | None = None
    """The PSN it expects first: its peer's first request carries it (IBA 12.7.31)."""
    private_data: PrivateData | None = None
    private_data_seen: bool = False
    """The CM message that would carry private data was captured."""
    consumer_data: bytes = b""
    """Consumer private data of that message, as far as captured."""
    consumer_data_cut: bool = False
    """The capture ends before that message does."""
    private_data_frame: int = field(default=0, compare=False)
    """The frame of that message; 0 where none was seen."""
    responder_resources: int | None = None
    initiator_depth: int | None = None
    port: int | None = None
    """iWARP: the TCP port; ``qpn`` is then 0, for no packet tells it."""

    def __str__(self) -> str:
        if self.port is not None:
            return f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"
        return f"{self.address} QP 0x{self.qpn:06x}"


@dataclass(slots=True, eq=False)
class Connection:
    """A queue pair at each end.  Endpoint 0 is the active side; where no CM exchange was captured, the requester."""

    number: int
    """1-based, in order of appearance."""
    transport: str
    """RoCEv2, RoCEv1, InfiniBand, iWARP."""
    endpoints: tuple[Endpoint, Endpoint]
    paired_by: str = "CM"
    """'CM', 'inferred' from the traffic, 'one direction only', or 'TCP': both directions are one TCP connection."""
    confidence: float = 1.0
    """0 to 1; how sure the pairing is."""
    evidence: tuple[str, ...] = ()
    """What the inference rests on, in words."""
    service_port: int | None = None
    path_mtu: int | None = None
    """Payload bytes of a full packet; from CM, corrected by what is seen."""
    protocol: str = "unknown"
    """'rpcrdma', 'other' (something else was recognised, or nothing fits) or 'unknown' (nothing to judge by)."""
    recognised_by: tuple[str, ...] = ()
    """Why it is taken for it: 'service port', 'private data', 'header validation', 'RPC inside', 'forced'."""
    protocol_name: str = ""
    """A guess at a foreign protocol by its port: 'NVMe/RDMA', 'iSER', 'SMB Direct'; or 'IP over InfiniBand', by its
    service ID or by what all Sends begin with."""
    first_frame: int = 0
    last_frame: int = 0
    first_time: int = 0
    last_time: int = 0
    ended_by: str = ""
    """'DREQ', 'REJ (reason)', 'FIN from the active side', 'RST …', 'Terminate (…)', 'MPA reject', ''."""
    ended_time: int = 0
    """Nanoseconds; of the DREQ, 0 where none was seen."""
    packets: list[int] = field(default_factory=lambda: [0, 0])
    """Packets sent by each endpoint."""
    bytes: list[int] = field(default_factory=lambda: [0, 0])
    """RDMA payload bytes sent by each endpoint, repetitions included."""
    retransmitted_packets: list[int] = field(default_factory=lambda: [0, 0])
    missing_packets: list[int] = field(default_factory=lambda: [0, 0])
    """Packets that were sent but are not in the capture."""
    stray_packets: list[int] = field(default_factory=lambda: [0, 0])
    """Packets whose PSN fits nothing before or after them."""
    credits_asked: tuple[int, int] | None = None
    """Lowest and highest credit value in forward calls."""
    credits_granted: tuple[int, int] | None = None
    """Lowest and highest credit value in forward replies."""

    negotiation: Negotiation = field(default_factory=Negotiation)
    """Version and characteristics, as the messages tell."""

    @property
    def start_known(self) -> bool:
        """Its beginning is in the capture."""
        return all(end.private_data_frame or end.private_data_seen for end in self.endpoints)

    def inline_threshold(self, sender: int, frame: int | None = None) -> tuple[int, str]:
        """Largest Send from endpoint ``sender`` in bytes, and where that comes from.

        That of a Send in ``frame``, or after all that was seen.  Version 1: RFC 8797, 4.2 and 5.1; version 2: the
        receive size of the other end.  Where the capture does not tell, the default, and the words say so.
        """
        negotiation = self.negotiation
        if negotiation.asked is not None and self.version_at(frame).value != 1:
            size, _, source = self.receive_size(1 - sender, frame)
            return VERSION_2_INLINE if size is None else size, source
        ends = self.endpoints[sender], self.endpoints[1 - sender]
        if not all(end.private_data_seen for end in ends):
            return DEFAULT_INLINE, "private data not seen"
        mine, theirs = ends[0].private_data, ends[1].private_data
        if mine is None or theirs is None:
            return DEFAULT_INLINE, "default"
        return min(mine.send_size, theirs.receive_size), "private data"

    def version_at(self, frame: int | None = None) -> InForce:
        """The version settled before ``frame``, or at the end; 0 before there was an answer."""
        answer = self.negotiation.answer_before(frame)
        if answer is not None:
            return InForce(answer.version, answer.frame, f"answer in frame {answer.frame}")
        asked, went_on, refused = self.negotiation.asked, self.negotiation.went_on, self.negotiation.refused
        if asked is not None and asked.version == 1:
            return InForce(1, asked.frame, f"asked in frame {asked.frame}")
        if refused and went_on and refused.allows(went_on.version) and (frame is None or went_on.frame <= frame):
            return InForce(went_on.version, went_on.frame, f"chosen in frame {went_on.frame}")
        if self._lost:
            return InForce(None, 0, f"not seen: {self._lost}")
        return InForce(0, 0, "before the version is settled")

    def receive_size(self, endpoint: int, frame: int | None = None) -> InForce:
        """Bytes of a Send that ``endpoint`` takes before ``frame``, or at the end.

        Version 2: its Receive Buffer Size (xcharext-02, 3.1), before the version is settled 1024 (version-two-01, 5);
        version 1: its private data (RFC 8797, 5.1).
        """
        version = self.version_at(frame)
        announced = self._announced(XCHAR_RBSIZ, endpoint, frame)
        if version.value != 1 and announced is not None:
            return announced
        if version.value == 0:
            return InForce(DEFAULT_INLINE, 0, "until the version is settled")
        if version.value != 1:
            return self.in_force(XCHAR_RBSIZ, endpoint, frame)
        if not all(end.private_data_seen for end in self.endpoints):
            return InForce(None, 0, "private data not seen")
        private = self.endpoints[endpoint].private_data
        if private is None or self.endpoints[1 - endpoint].private_data is None:
            return InForce(DEFAULT_INLINE, 0, "default")
        return InForce(private.receive_size, self.endpoints[endpoint].private_data_frame, "private data")

    def in_force(self, which: int, endpoint: int, frame: int | None = None) -> InForce:
        """The value of a transport characteristic that ``endpoint`` has before ``frame``, or at the end.

        None where the capture does not tell: a default is given only where an announcement cannot have been missed.
        """
        if self.version_at(frame).value == 1:
            return InForce(None, 0, "version 1 has none")
        announced = self._announced(which, endpoint, frame)
        if announced is not None:
            return announced
        if which not in CHARACTERISTICS:
            return InForce(None, 0, "not announced, and without a known default")
        if self._lost:
            return InForce(None, 0, f"not seen: {self._lost}")
        return InForce(CHARACTERISTICS[which].default, 0, "default of version 2")

    def thresholds(self, sender: int) -> list[InForce]:
        """What ``inline_threshold`` says of Sends from ``sender``, each value with the frame that brought it."""
        receiver = 1 - sender
        negotiation = self.negotiation
        frames = {answer.frame for answer in negotiation.answered}
        frames |= {negotiation.went_on.frame} if negotiation.went_on else set()
        frames |= {
            one.frame
            for one in negotiation.announcements
            if one.endpoint == receiver and one.characteristic.which == XCHAR_RBSIZ
        }
        found: list[InForce] = []
        for frame in (0, *sorted(frames)):
            known = self.receive_size(receiver, frame + 1)
            if not found or found[-1][::2] != known[::2]:
                found.append(known._replace(frame=frame))
        return found

    def _announced(self, which: int, endpoint: int, frame: int | None) -> InForce | None:
        negotiation = self.negotiation
        if negotiation.overflow and (frame is None or frame > negotiation.overflow):
            return InForce(None, negotiation.overflow, "not seen: more was announced than is remembered")
        found = negotiation.announced(which, endpoint, frame)
        if found is None:
            return None
        doubt = "; packets are missing, and a later one may be among them" if sum(self.missing_packets) else ""
        return InForce(found.characteristic.value, found.frame, found.source + doubt)

    @property
    def _lost(self) -> str:
        """Why an announcement may have been missed; '' where it cannot."""
        if not self.start_known:
            return "the capture begins after the connection"
        if self.paired_by == "one direction only":
            return "only one direction was captured"
        missing = sum(self.missing_packets)
        return f"{missing:,} packets of the connection are not in the capture" if missing else ""


class Registry:
    """Numbers the connections of all transports."""

    def __init__(self, connections: list[Connection]) -> None:
        """``connections``: where they are put."""
        self.connections = connections
        self._last = 0

    def add(self, connection: Connection) -> None:
        self._last += 1
        connection.number = self._last
        self.connections.append(connection)
