"""Connection: two endpoints, how they were found to belong together, and what they agreed."""

from __future__ import annotations

from dataclasses import dataclass, field

DEFAULT_INLINE = 1024
"""Inline threshold where the private data set none (RFC 8166, 3.3.2)."""


@dataclass(frozen=True, slots=True)
class PrivateData:
    """The RFC 8797 message in a connection request or reply (section 4)."""

    version: int
    remote_invalidation: bool
    """The R flag."""
    send_size: int
    """Bytes; (field + 1) * 1024."""
    receive_size: int
    offset: int
    """Where it was found in the consumer private data."""


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
    """A guess at a foreign protocol by its port: 'NVMe/RDMA', 'iSER', 'SMB Direct'."""
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

    def inline_threshold(self, sender: int) -> tuple[int, str]:
        """Largest Send from endpoint ``sender`` in bytes, and where that comes from (RFC 8797, 4.2 and 5.1)."""
        ends = self.endpoints[sender], self.endpoints[1 - sender]
        if not all(end.private_data_seen for end in ends):
            return DEFAULT_INLINE, "private data not seen"
        mine, theirs = ends[0].private_data, ends[1].private_data
        if mine is None or theirs is None:
            return DEFAULT_INLINE, "default"
        return min(mine.send_size, theirs.receive_size), "private data"
