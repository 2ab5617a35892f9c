"""What both networks have in common: frames with their times, two hosts, Ethernet and IP."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cache
from ipaddress import ip_address
from typing import NamedTuple, Protocol

from scapy.layers.inet import IP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether

from rdmascope.dissect.rpcrdma.messages import Segment

EPOCH = 1_700_000_000_000_000_000
"""Nanoseconds since the Unix epoch: 2023-11-14 22:13:20 UTC."""
NFS_RDMA_PORT = 20049
_ECT0 = 2
_IPV4_BYTES = 20
ETHERNET_BYTES = 14


class TapedFrame(NamedTuple):
    time: int
    """Nanoseconds since the Unix epoch."""
    data: bytes
    """The Ethernet frame, without frame check sequence."""


class Tape:
    """The frames that passed one point of the network, in order."""

    def __init__(self, seed: int = 0, start: int = EPOCH) -> None:
        self.random = random.Random(seed)
        self.now = start
        self.frames: list[TapedFrame] = []

    def record(self, data: bytes) -> None:
        self.now += self.random.randrange(500, 5_000)
        self.frames.append(TapedFrame(self.now, data))

    def pause(self, nanoseconds: int) -> None:
        self.now += nanoseconds


@dataclass(frozen=True, slots=True)
class Path:
    """Two hosts and what lies between them."""

    client: str = "192.0.2.2"
    server: str = "192.0.2.1"
    """IPv4 both, or IPv6 both."""
    port: int = NFS_RDMA_PORT
    mtu: int = 1024
    """RoCEv2: payload bytes of a packet, 256, 512, 1024, 2048 or 4096.  iWARP: TCP payload bytes of a segment."""

    @property
    def hosts(self) -> tuple[str, str]:
        return self.client, self.server


class WireLink(Protocol):
    """A connection between host 0, the client, and host 1, the server, and the verbs on it."""

    tape: Tape

    def connect(self, client_private: bytes, server_private: bytes) -> None:
        """Establish the connection, the consumer private data of both ends in the exchange."""

    def send(self, sender: int, data: bytes, invalidate: int | None = None) -> None: ...

    def write(self, sender: int, segment: Segment, data: bytes) -> None: ...

    def read(self, sender: int, segment: Segment, data: bytes) -> None:
        """``data`` is what the other host's memory holds there."""

    def write_refused(self, sender: int, segment: Segment, data: bytes) -> None:
        """A Write that the other host's device does not allow; the connection is broken."""

    def read_refused(self, sender: int, segment: Segment) -> None: ...

    def disconnect(self, sender: int) -> None: ...


def below(path: Path, sender: int, identification: int, protocol: int, length: int) -> bytes:
    """Ethernet and IP headers from one of the hosts, for ``length`` bytes behind them.

    IPv4 never fragments, and both mark the packet as capable of ECN.  Each header is built alone: Scapy copies what it
    is to put together.
    """
    source, destination = path.hosts[sender], path.hosts[1 - sender]
    if ip_address(source).version == 6:
        ip = IPv6(src=source, dst=destination, tc=_ECT0, hlim=64, nh=protocol, plen=length)
    else:
        ip = IP(
            src=source, dst=destination, id=identification & 0xFFFF, flags="DF", tos=_ECT0, ttl=64, proto=protocol,
            len=_IPV4_BYTES + length,
        )  # fmt: skip
    return _ethernet(source, destination) + bytes(ip)


@cache
def _ethernet(source: str, destination: str) -> bytes:
    return bytes(Ether(src=mac(source), dst=mac(destination), type=0x86DD if ":" in source else 0x0800))


def mac(address: str) -> str:
    """A locally administered MAC address for an IP address."""
    return ":".join(["02", "00", *(f"{byte:02x}" for byte in ip_address(address).packed[-4:])])
