"""Is it RPC-over-RDMA?  More than one word must say so, and which did is reported."""

from __future__ import annotations

from functools import cache

from ..layers.characteristics_codes import OPTIONS
from ..layers.rpcrdma_codes import RDMA_MSG, RDMA_NOMSG, RDMA_OPTIONAL
from ..onc import rpc_header as rpc
from .characteristics import decode_option
from .conversation import IPOIB, Conversation
from .messages import TransportHeader

IPOIB_VERSIONS = {0x0800: 4, 0x86DD: 6, 0x0806: 0}
"""EtherTypes that begin a packet of IP over InfiniBand, reserved bytes behind them, and the IP version that then
follows (RFC 4391, 6; RFC 4755, 4); ARP has none."""

FOREIGN_PORTS = {4420: "NVMe/RDMA", 3260: "iSER", 5445: "SMB Direct"}
"""Service ports of other storage protocols (IANA)."""

BOTH = 3

TRIALS = 16
"""So many Sends that do not fit make it something else."""


class Recogniser:
    """Looks at the Sends of a connection until it knows."""

    __slots__ = ("conversation", "internet", "misfits", "ports", "truncated", "valid")

    def __init__(self, conversation: Conversation, ports: frozenset[int], force: bool) -> None:
        self.conversation = conversation
        self.ports = ports
        self.misfits = 0
        self.internet = 0
        """Misfits that begin as IP over InfiniBand does."""
        self.valid = 0
        self.truncated: dict[int, int] | None = None
        """XIDs of Sends whose header is truncated, and by whom: 1 the client, 2 the server, 3 both."""
        if force:
            self._accept("forced")
        elif conversation.connection.service_port in ports:
            words = ["service port"]
            if self._private_data():
                words.append("private data")
            self._accept(*words)

    @property
    def decided(self) -> bool:
        return self.conversation.protocol != "unknown"

    def look(self, sender: int, header: TransportHeader, data: memoryview, start: int, end: int) -> None:
        """Judge a Send: its decoded header, and where its captured Payload stream is."""
        known_format = header.version in (1, 2) and header.length >= 8
        if header.truncated and known_format and header.procedure in (None, RDMA_MSG, RDMA_NOMSG):
            if self.truncated is None:
                self.truncated = {}
            self.truncated[header.xid] = self.truncated.get(header.xid, 0) | 1 << sender
            if self._answered() >= 2:
                self._accept("XIDs called and answered")
        elif header.problem or not known_format:
            self.misfits += 1
            self.internet += _is_ipoib(header)
        elif header.procedure == RDMA_MSG:
            if rpc.inside(header.xid, data, start, end):
                self._accept("header validation", "RPC inside")
            else:
                self.misfits += 1
        elif header.procedure == RDMA_NOMSG and header.chunks:
            self.valid += 1
            if self._private_data():
                self._accept("private data", "header validation")
        elif header.procedure == RDMA_OPTIONAL:
            self.valid += 1
            if header.option in OPTIONS and not decode_option(header.option, header.optinfo).problem:
                self._accept("header validation", OPTIONS[header.option].name)
        if self.misfits >= TRIALS or (self.misfits and self.conversation.connection.service_port in FOREIGN_PORTS):
            self._reject()

    def conclude(self) -> None:
        """No more Sends will come."""
        if self.decided:
            return
        if self.valid and not self.misfits:
            self._accept("header validation")
        elif self._answered() and not self.misfits:
            self._accept("XIDs called and answered")
        elif self.misfits:
            self._reject()

    def _answered(self) -> int:
        """XIDs that both ends sent."""
        return sum(senders == BOTH for senders in (self.truncated or {}).values())

    def _private_data(self) -> bool:
        return any(self.conversation.private_data(end) for end in (0, 1))

    def _accept(self, *words: str) -> None:
        self.conversation.protocol = "rpcrdma"
        if self._private_data() and "private data" not in words and "forced" not in words:
            words = ("private data", *words)
        self.conversation.recognised_by = _shared(words)

    def _reject(self) -> None:
        self.conversation.protocol = "other"
        self.conversation.protocol_name = FOREIGN_PORTS.get(self.conversation.connection.service_port or 0, "")
        if self.internet and self.internet == self.misfits and not self.valid:
            self.conversation.protocol_name = IPOIB


@cache
def _shared(words: tuple[str, ...]) -> tuple[str, ...]:
    """The same words: most connections are recognised by them."""
    return words


def _is_ipoib(header: TransportHeader) -> bool:
    """Whether what was decoded as a transport header is one of IP over InfiniBand, and IP or ARP behind it."""
    version = IPOIB_VERSIONS.get(header.xid >> 16)
    if version is None or header.xid & 0xFFFF:
        return False
    return header.version >> 28 == version
