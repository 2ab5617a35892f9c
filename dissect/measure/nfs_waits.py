"""Why NFSv4 clients waited, as far as messages show it: no slot, no credit, a recall, a grace period, lost state."""

from __future__ import annotations

from collections.abc import Iterator

from .credits import CreditDirection
from .nfs_state import NfsClient, NfsSession, Wait
from .nfs_state_history import NO_REPLY, NfsStateHistory

NO_SLOT, NO_CREDIT, RECALL, DELAY, GRACE = "no slot", "no credit", "recall", "delay", "grace"
STATE_LOST = "state lost"
REASONS = {
    NO_SLOT: "all slots of the session in use",
    NO_CREDIT: "all credits of the connection in use",
    RECALL: "a delegation was recalled, and not returned yet",
    DELAY: "calls answered NFS4ERR_DELAY",
    GRACE: "calls answered NFS4ERR_GRACE",
    NO_REPLY: "calls without a reply",
    STATE_LOST: "from the first reply that said so until state was reclaimed",
}


def waits(history: NfsStateHistory) -> list[Wait]:
    """All of them, in the order of time."""
    waits = [wait for session in history.sessions for wait in _slots(session)]
    for credit in history.credits:
        waits += _credits(credit)
    for client in history.clients:
        waits += [*_recalls(client, history.last_time), *_answers(client), *_lost(client, history.last_time)]
    return sorted(waits, key=lambda wait: wait.first_time)


def _slots(session: NfsSession) -> Iterator[Wait]:
    fore = session.fore
    if fore.full is not None and fore.at_limit:
        (first_time, first_frame), (_, last_frame) = fore.full
        yield Wait(
            NO_SLOT, session.client, session, None, first_time, fore.at_limit, True, fore.at_limit_count,
            first_frame, last_frame,
        )  # fmt: skip


def _credits(direction: CreditDirection) -> Iterator[Wait]:
    if direction.blocked:
        number, since = direction.connection.number, direction.blocked_since
        yield Wait(NO_CREDIT, None, None, number, since, direction.blocked, True, direction.blockages, 0, 0)


def _recalls(client: NfsClient, last_time: int) -> Iterator[Wait]:
    for state in client.listed:
        if state.recalled_frame:
            end = state.returned_time or last_time
            unknown = not state.returned_frame and client.last_gap > state.recalled_frame
            yield Wait(
                RECALL, client, None, None, state.recalled_time, None if unknown else end - state.recalled_time,
                bool(state.returned_frame), state.delays, state.recalled_frame, state.returned_frame,
            )  # fmt: skip


def _answers(client: NfsClient) -> Iterator[Wait]:
    grace, delay, none = (client.statuses.get(name) for name in ("NFS4ERR_GRACE", "NFS4ERR_DELAY", NO_REPLY))
    if grace is not None:
        end, last = client.grace_ended or (grace.last_time, grace.last_frame)
        yield Wait(
            GRACE, client, None, None, grace.first_time, end - grace.first_time, client.grace_ended is not None,
            grace.count, grace.first_frame, last,
        )  # fmt: skip
    if delay is not None:
        yield Wait(
            DELAY, client, None, None, delay.first_time, None, True, delay.count, delay.first_frame, delay.last_frame
        )
    if none is not None:
        yield Wait(
            NO_REPLY, client, None, None, none.first_time, None, False, none.count, none.first_frame, none.last_frame
        )


def _lost(client: NfsClient, last_time: int) -> Iterator[Wait]:
    """What a client waits for that took the place of one whose state was lost."""
    before = client.before
    if before is None or not client.lost or before.lost_at is None:
        return
    time, frame = before.lost_at
    end = client.reclaimed_time or last_time
    yield Wait(
        STATE_LOST, client, None, None, time, end - time, bool(client.reclaimed_time), client.reclaims,
        frame, client.reclaim_complete,
    )  # fmt: skip
