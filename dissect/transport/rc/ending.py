"""Why a Reliable Connection ended, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .health import Health

SILENCE = 1_000_000_000
"""Nanoseconds without an answer that count as silence."""
SIDES = "active", "passive"
OPEN = "open at the end of the capture"


def ending(health: Health, now: int | None) -> str:
    """DREQ, REJ with its reason, a fatal NAK, silence; or that it did not end.

    ``now``: nanoseconds, the last moment of the capture.
    """
    connection = health.connection
    ended = connection.ended_by
    if ended.startswith("REJ"):
        return ended
    refusals = [(nak, 1 - queue.initiator) for queue in health.repeats for nak in queue.fatal_naks]
    if refusals:
        nak, sender = min(refusals)
        fatal = f"fatal {nak.name} from the {SIDES[sender]} side in frame {nak.frame}"
        return f"{fatal}, then {ended}" if ended else fatal
    silent = _silence(health, connection.ended_time or now)
    if ended:
        return f"{ended}, after {silent}" if silent else ended
    return f"silence: {silent}" if silent else OPEN


def _silence(health: Health, now: int | None) -> str:
    """Requests that nobody answered although there was time; '' where there are none."""
    if now is None:
        return ""
    for initiator in (0, 1):
        answers, repeats = health.answers[initiator], health.repeats[initiator]
        since, answered = answers.waiting_since, health.sent[1 - initiator].last_time
        if since is None or answered is None or not answers.unanswered:
            continue
        waited = now - max(since, answered)
        if waited >= SILENCE:
            again = sum(one.end > answers.first_unanswered and one.time is not None for one in repeats.snapshot()[3])
            attempts = "attempt" if again == 1 else "attempts"
            tried = f"; {again} {attempts} to send again" if again else "; none of them was sent again"
            plural = "" if answers.unanswered == 1 else "s"
            return (
                f"{answers.unanswered} request{plural} of the {SIDES[initiator]} side unanswered"
                f" for {waited / 1e9:.3g} s{tried}"
            )
    return ""
