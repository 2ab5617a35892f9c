"""Why a Reliable Connection ended, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..acknowledgements import Acknowledgements
from ..connection import ENDS, Connection
from .retransmissions import RcRetransmissions

SILENCE = 1_000_000_000
"""Nanoseconds without an answer that count as silence."""
OPEN = "open at the end of the capture"


class Initiated(NamedTuple):
    """What one endpoint initiated, and how it was answered."""

    queue: RcRetransmissions
    answers: Acknowledgements
    responder_last_time: int | None
    """Nanoseconds; of the last packet of the other endpoint."""


def ending(connection: Connection, initiated: Sequence[Initiated], now: int | None) -> str:
    """DREQ, REJ with its reason, a fatal NAK, silence; or that it did not end.

    ``initiated``: by either endpoint.  ``now``: nanoseconds, the last moment of the capture.
    """
    ended = connection.ended_by
    if ended.startswith("REJ"):
        return ended
    naks = [(nak, 1 - one.queue.initiator) for one in initiated for nak in one.queue.fatal_naks]
    if naks:
        nak, sender = min(naks)
        fatal = f"fatal {nak.name} from the {ENDS[sender]} in frame {nak.frame}"
        return f"{fatal}, then {ended}" if ended else fatal
    silent = _silence(initiated, connection.ended_time or now)
    if ended:
        return f"{ended}, after {silent}" if silent else ended
    return f"silence: {silent}" if silent else OPEN


def _silence(initiated: Sequence[Initiated], now: int | None) -> str:
    """Requests without an answer although there was time; '' where there are none."""
    if now is None:
        return ""
    for queue, answers, answered in initiated:
        since = answers.waiting_since
        if since is None or answered is None or not answers.unanswered:
            continue
        waited = now - max(since, answered)
        if waited >= SILENCE:
            retries = sum(one.end > answers.first_unanswered for one in queue.requests)
            attempts = "retransmission" if retries == 1 else "retransmissions"
            tried = f"; {retries} {attempts}" if retries else "; none of them was retransmitted"
            plural = "" if answers.unanswered == 1 else "s"
            return (
                f"{answers.unanswered} request{plural} of the {ENDS[queue.initiator]} unanswered"
                f" for {waited / 1e9:.3g} s{tried}"
            )
    return ""
