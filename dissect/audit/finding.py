"""Finding: one rule's verdict about one thing that happened."""

from __future__ import annotations

from dataclasses import dataclass

from ..transport.connection import Connection
from .rule import Rule


@dataclass(frozen=True, slots=True)
class Finding:
    """A judgement with its place: endpoint, frames, time."""

    rule: Rule
    verdict: str
    connection: Connection
    endpoint: int
    """0 the active side, 1 the passive one."""
    role: str
    """What that endpoint was in this matter: 'requester', 'responder' or 'either'."""
    frames: tuple[int, ...]
    time: int
    """Nanoseconds; 0 where no packet carried it."""
    rpc: int | None
    """Number of the Rpc."""
    xid: int | None
    observed: str
    required: str
    reason: str
    severity: str
    """'error' (MUST), 'warning' (SHOULD), 'notice' (stated behaviour) or 'note'."""
