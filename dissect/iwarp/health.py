"""How the transport of an iWARP connection fared, as far as TCP and MPA tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..rc.vantage import MEANINGS
from ..transport import Costs, Direction, Tally, TransportHealth, Vantage
from .assembly import Terminate
from .framing import Fpdus

if TYPE_CHECKING:
    from .link import Link

PAUSE = 100_000_000
"""Nanoseconds; an endpoint that sends no payload for longer is not active."""


class Health:
    """One connection's."""

    costs: Costs | None = None

    def __init__(self, link: Link) -> None:
        self.link = link
        self.active = [0, 0]
        self.last: list[int | None] = [None, None]
        self.terminates: tuple[list[Terminate], list[Terminate]] = [], []

    def sent(self, sender: int, fpdus: Fpdus) -> None:
        """Endpoint ``sender`` sent FPDUs."""
        times = fpdus.rows["last_time"][fpdus.rows["length"] > 0]
        if not len(times):
            return
        before = self.last[sender]
        gaps = np.diff(times) if before is None else np.diff(times, prepend=before)
        self.active[sender] += int(gaps[(gaps >= 0) & (gaps <= PAUSE)].sum())
        self.last[sender] = int(times[-1])

    def result(self, now: int | None = None, icrc_checked: int | None = None) -> TransportHealth:
        """The state of things.  CRC failures of MPA stand where those of the invariant CRC do."""
        connection = self.link.connection
        assert connection is not None
        checked = sum(framing.crc_checked for framing in self.link.framings)
        return TransportHealth(
            connection.number,
            connection.transport,
            (self._direction(0), self._direction(1)),
            (),
            0,
            None,
            connection.ended_by or "open at the end of the capture",
            Vantage("undecidable", 0.0, "not inferred for iWARP", MEANINGS["undecidable"]),
            checked or None,
        )

    def _direction(self, sender: int) -> Direction:
        link = self.link
        connection = link.connection
        assert connection is not None
        active = link.active or 0
        direction = active if sender == 0 else 1 - active
        stream, framing = link.streams[direction], link.framings[direction]
        mine, theirs = connection.endpoints[sender], connection.endpoints[1 - sender]
        depth = None
        if mine.initiator_depth is not None and theirs.responder_resources is not None:
            depth = min(mine.initiator_depth, theirs.responder_resources)
        return Direction(
            packets=connection.packets[sender],
            bytes=connection.bytes[sender],
            repeated=Tally(stream.repeated, 0),
            recovered=Tally(stream.recovered, 0),
            reordered=stream.reordered,
            causes={},
            missing=connection.missing_packets[sender],
            active_time=self.active[sender],
            acknowledgements=0,
            requests_acknowledged=0,
            requests_per_ack=None,
            most_per_ack=0,
            ack_delay=None,
            read_delay=None,
            sequence_naks=0,
            rnr_naks=(),
            rnr_count=0,
            fatal_naks=(),
            ecn_marked=0,
            cnps=0,
            cnp_gap=None,
            cnp_delay=None,
            icrc_failures=tuple(framing.crc_failures),
            icrc_failure_count=framing.crc_failure_count,
            reads_outstanding=link.reads[direction].most,
            read_depth=depth,
            unanswered=len(link.reads[direction].open),
        )
