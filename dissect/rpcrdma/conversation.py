"""Conversation: what the two ends of a connection say to each other, by RPC-over-RDMA or another protocol."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

from ..layers.characteristics_codes import CHARACTERISTICS, XCHAR_RBSIZ
from ..layers.cm_codes import is_ipoib
from ..layers.rpcrdma_codes import PrivateData, find_private_data
from ..named_tuple import NamedTuple
from ..transport.connection import (
    DEFAULT_INLINE as DEFAULT_INLINE,
    ENDS as ENDS,
    NONE_OF_EITHER,
    Connection,
    Pair,
    gaps_forgotten,
)
from .negotiation import VERSION_2_INLINE, InForce, Negotiation

IPOIB = "IP over InfiniBand"


@lru_cache(maxsize=1024)
def first_private_data(data: bytes) -> PrivateData | None:
    """The first RFC 8797 message in consumer private data, which is the one in force; None for none."""
    private_data = find_private_data(data)
    return private_data[0] if private_data else None


class DataServerRole(NamedTuple):
    """Why the server counts as a pNFS data server (RFC 8881, 12)."""

    by: str
    """'GETDEVICEINFO', which named its address, or 'file handles of layouts', which READ and WRITE used."""
    metadata_server: str
    """Address of the server whose reply shows it."""
    frame: int
    """Frame of that reply."""


@dataclass(slots=True, eq=False)
class Conversation:
    """One conversation on a connection.  Methods with ``frame`` tell what holds at it or, without one, at the end."""

    connection: Connection
    protocol: str = "unknown"
    """'rpcrdma', 'rpc' (without RDMA), 'other' (something else was recognised, or nothing fits) or 'unknown' (too
    little to judge)."""
    recognised_by: tuple[str, ...] = ()
    """How the protocol was recognised: 'service port', 'private data', 'header validation', 'RPC inside', 'XIDs called
    and answered', 'forced'."""
    protocol_name: str = ""
    """A guess at a foreign protocol by its port: 'NVMe/RDMA', 'iSER', 'SMB Direct'; or 'IP over InfiniBand', by its
    service ID or the first bytes of all Sends."""
    credits_requested: tuple[int, int] | None = None
    """Lowest and highest credit value in forward calls."""
    credits_granted: tuple[int, int] | None = None
    """Lowest and highest credit value in forward replies."""
    unmatched_replies: Pair = NONE_OF_EITHER
    """By caller, replies that fit none of its calls, including those whose call may still come."""
    negotiation: Negotiation = field(default_factory=Negotiation)
    """Version and characteristics, as the messages announce them."""
    traced: str = ""
    """The host whose kernel's trace it is from, 'client' or 'server', without bytes of messages; '' for packets."""
    inline: tuple[int, int] | None = None
    """Inline thresholds of client and server as senders, bytes, if a trace tells them."""
    data_server: DataServerRole | None = None
    """None: nothing in the capture shows that the server is a pNFS data server."""

    def __post_init__(self) -> None:
        if is_ipoib(self.connection.service_id or 0):
            self.protocol, self.protocol_name = "other", IPOIB
        if self.protocol == "unknown" and not self.connection.rdma:
            encrypted = self.connection.encrypted and not any(self.connection.fpdus)
            self.protocol, self.recognised_by = "rpc", ("TLS on its port" if encrypted else "RPC inside",)

    @property
    def carries_rpc(self) -> bool:
        return self.protocol in ("rpcrdma", "rpc")

    def shows(self, part: str) -> bool:
        """Whether a part of the latency is visible: with packets every part, in a server's trace only 'server' and
        'reads'."""
        return not self.traced or (self.traced == "server" and part in ("server", "reads"))

    def note_requested(self, credits: int) -> None:
        """Note the credit value of a forward call."""
        known = self.credits_requested
        if known is None or not known[0] <= credits <= known[1]:
            self.credits_requested = widened(known, credits)

    def note_granted(self, credits: int) -> None:
        """Note the credit value of a forward reply."""
        known = self.credits_granted
        if known is None or not known[0] <= credits <= known[1]:
            self.credits_granted = widened(known, credits)

    def private_data(self, endpoint: int) -> PrivateData | None:
        """The RFC 8797 message of ``endpoint`` in force: the first in its private data."""
        return first_private_data(self.connection.endpoints[endpoint].private_data)

    def private_data_known(self, endpoint: int) -> bool:
        """Whether the capture tells if ``endpoint`` sent an RFC 8797 message."""
        end = self.connection.endpoints[endpoint]
        if not end.private_data_frame:
            return False
        return not end.private_data_truncated or self.private_data(endpoint) is not None

    @property
    def private_data_seen(self) -> bool:
        """Whether the private data of both ends is known."""
        return self.private_data_known(0) and self.private_data_known(1)

    def inline_threshold(self, sender: int, frame: int | None = None) -> tuple[int, str]:
        """The largest Send from endpoint ``sender`` in bytes, and the source of that value.

        It applies to a Send in ``frame``, or after everything seen.  Version 1: RFC 8797, 4.2 and 5.1; version 2: the
        receive size of the other end.  If the capture does not tell, it is the default, and the source says so.
        """
        threshold, source = self.known_inline_threshold(sender, frame)
        if threshold is None:
            as_in_1 = self.negotiation.requested is None or self.version(frame) == 1
            threshold = DEFAULT_INLINE if as_in_1 else VERSION_2_INLINE
        return threshold, source

    def known_inline_threshold(self, sender: int, frame: int | None = None) -> tuple[int | None, str]:
        """``inline_threshold`` with None if the capture does not tell, instead of the default."""
        if self.inline is not None:
            return self.inline[sender], "trace"
        if self.negotiation.requested is not None and self.version(frame) != 1:
            size, _, source = self.receive_size(1 - sender, frame)
            return size, source
        if not self.private_data_seen:
            return None, "private data not seen"
        mine, theirs = self.private_data(sender), self.private_data(1 - sender)
        if theirs is None:  # what counts is what an end received
            return DEFAULT_INLINE, "default"
        return min(mine.send_size if mine else theirs.receive_size, theirs.receive_size), "private data"

    def version_at(self, frame: int | None = None) -> InForce:
        """The version settled before ``frame``, or at the end; 0 before any answer."""
        answer = self.negotiation.answer_before(frame)
        if answer is not None:
            return InForce(answer.version, answer.frame, f"answer in frame {answer.frame}")
        asked, went_on, refused = self.negotiation.requested, self.negotiation.continued, self.negotiation.refused
        if asked is not None and asked.version == 1:
            return InForce(1, asked.frame, f"asked in frame {asked.frame}")
        if refused and went_on and refused.allows(went_on.version) and (frame is None or went_on.frame <= frame):
            return InForce(went_on.version, went_on.frame, f"chosen in frame {went_on.frame}")
        if lost := self._lost(frame):
            return InForce(None, 0, f"not seen: {lost}")
        return InForce(0, 0, "before the version is settled")

    def version(self, frame: int | None = None) -> int | None:
        """``version_at`` as a number: 0 before any answer, None if unknown."""
        answer, asked = self.negotiation.answer_before(frame), self.negotiation.requested
        if answer is not None:
            return answer.version
        return 1 if asked is not None and asked.version == 1 else self.version_at(frame).value

    def receive_size(self, endpoint: int, frame: int | None = None) -> InForce:
        """The largest Send in bytes that ``endpoint`` accepts before ``frame``, or at the end.

        Version 2: its Receive Buffer Size (xcharext-02, 3.1), 1024 before the version is settled (version-two-01, 5);
        version 1: its private data (RFC 8797, 5.1).
        """
        if self.inline is not None:
            return InForce(self.inline[1 - endpoint], 0, "trace")
        version = self.version(frame)
        if version != 1:
            announced = self._announced(XCHAR_RBSIZ, endpoint, frame)
            if announced is not None:
                return announced
            if version == 0:
                return InForce(DEFAULT_INLINE, 0, "until the version is settled")
            return self.in_force(XCHAR_RBSIZ, endpoint, frame)
        if not self.private_data_seen:
            return InForce(None, 0, "private data not seen")
        private = self.private_data(endpoint)
        if private is None:
            return InForce(DEFAULT_INLINE, 0, "default")
        return InForce(private.receive_size, self.connection.endpoints[endpoint].private_data_frame, "private data")

    def in_force(self, which: int, endpoint: int, frame: int | None = None) -> InForce:
        """The value of a transport characteristic of ``endpoint`` before ``frame``, or at the end.

        None if the capture does not tell: a default is given only if no announcement can have been missed.
        """
        if self.version(frame) == 1:
            return InForce(None, 0, "version 1 has none")
        announced = self._announced(which, endpoint, frame)
        if announced is not None:
            return announced
        if which not in CHARACTERISTICS:
            return InForce(None, 0, "not announced, and without a known default")
        if lost := self._lost(frame):
            return InForce(None, 0, f"not seen: {lost}")
        return InForce(CHARACTERISTICS[which].default, 0, "default of version 2")

    def thresholds(self, sender: int) -> list[InForce]:
        """All values of ``inline_threshold`` for Sends from ``sender``, each with the frame from which on it holds."""
        receiver = 1 - sender
        negotiation = self.negotiation
        frames = {answer.frame for answer in negotiation.answers if self.version(answer.frame) != answer.version}
        frames |= {negotiation.continued.frame} if negotiation.continued else set()
        frames |= {
            announcement.frame
            for announcement in negotiation.announcements
            if announcement.endpoint == receiver and announcement.characteristic.which == XCHAR_RBSIZ
        }
        in_force: list[InForce] = []
        for frame in (0, *sorted(frames)):
            value, _, source = self.receive_size(receiver, frame + 1)
            if not in_force or (in_force[-1].value, in_force[-1].source) != (value, source):
                in_force.append(InForce(value, frame, source))
        return in_force

    def _announced(self, which: int, endpoint: int, frame: int | None) -> InForce | None:
        negotiation = self.negotiation
        if negotiation.overflow and (frame is None or frame > negotiation.overflow):
            return InForce(None, negotiation.overflow, "not seen: more was announced than is remembered")
        announced = negotiation.announced(which, endpoint, frame)
        if announced is None:
            return None
        doubt = (
            "; packets are missing, and a later one may be among them" if sum(self.connection.missing_packets) else ""
        )
        return InForce(announced.characteristic.value, announced.frame, announced.source + doubt)

    def _lost(self, frame: int | None) -> str:
        """Why an announcement before ``frame`` may have been missed; '' if it cannot."""
        if not self.connection.start_known:
            return "the capture begins after the connection"
        if self.connection.one_sided:
            return "only one direction was captured"
        missing = sum(self.connection.missing_packets)
        before = frame is None or any(
            gaps_forgotten(self.connection, end) or (gaps and gaps[0].frame <= frame)
            for end, gaps in enumerate(self.connection.gaps)
        )
        if missing and before:
            return f"{missing:,} packets of the connection are not in the capture"
        unread = sum(self.connection.unread_packets) + sum(self.connection.unread_messages)
        return f"{unread:,} packets of the connection cannot be read" if unread else ""


def widened(known: tuple[int, int] | None, value: int) -> tuple[int, int]:
    """The lowest and highest value, extended by ``value``."""
    return (value, value) if known is None else (min(known[0], value), max(known[1], value))
