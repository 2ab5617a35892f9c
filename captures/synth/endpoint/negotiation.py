"""Protocol versions: which one a message may have, as a table (version-two-01, 5; RFC 8166, 4.2 and 4.5.1)."""

from __future__ import annotations

from enum import Enum

HIGHEST = 2
"""The highest version of this endpoint."""


class State(Enum):
    """What is known about the version of a connection."""

    FRESH = "nothing was sent or received"
    ASKED = "one message of the highest version was sent, and stands alone until it is answered"
    SETTLED = "both ends use one version"
    HOPELESS = "the two ends have no version in common"


class Input(Enum):
    SENT = "the first message of a requester"
    RECEIVED = "a valid message of a version that this end supports"
    IN_RANGE = "RDMA_ERR_VERS, with a range that holds a version this end supports"
    OUT_OF_RANGE = "RDMA_ERR_VERS, with a range that holds none"


TRANSITIONS: dict[tuple[State, Input], State] = {
    (State.FRESH, Input.SENT): State.ASKED,  # version-two-01, 5
    (State.FRESH, Input.RECEIVED): State.SETTLED,  # 5.3: a responder uses the requester's version
    (State.ASKED, Input.RECEIVED): State.SETTLED,  # 5.1
    (State.ASKED, Input.IN_RANGE): State.SETTLED,  # 5.2
    (State.ASKED, Input.OUT_OF_RANGE): State.HOPELESS,  # 5.2
    # Whatever comes later, or uncalled for, changes nothing: a refusal is about the message that drew it.
    (State.FRESH, Input.IN_RANGE): State.FRESH,
    (State.FRESH, Input.OUT_OF_RANGE): State.FRESH,
    (State.ASKED, Input.SENT): State.ASKED,
    (State.SETTLED, Input.SENT): State.SETTLED,
    (State.SETTLED, Input.RECEIVED): State.SETTLED,
    (State.SETTLED, Input.IN_RANGE): State.SETTLED,
    (State.SETTLED, Input.OUT_OF_RANGE): State.SETTLED,
    (State.HOPELESS, Input.SENT): State.HOPELESS,
    (State.HOPELESS, Input.RECEIVED): State.HOPELESS,
    (State.HOPELESS, Input.IN_RANGE): State.HOPELESS,
    (State.HOPELESS, Input.OUT_OF_RANGE): State.HOPELESS,
}


def choose(lowest: int, highest: int, supported: tuple[int, int]) -> int | None:
    """The highest version in both ranges; None where there is none.  What was refused is above ``highest``."""
    version = min(highest, supported[1])
    return version if version >= max(lowest, supported[0]) else None
