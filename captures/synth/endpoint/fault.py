"""A fault that an endpoint can be set to commit."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from .nouns import Role
from .plan import PlannedSend
from .view import EndpointView


class Fault(NamedTuple):
    """A row of the table of faults."""

    rule: str
    """The rule of the audit that it breaks."""
    by: Role
    """The end that can commit it."""
    says: str
    """What the endpoint does."""
    spoil: Callable[[EndpointView, PlannedSend], bool] | None = None
    """Changes a message in place; False where it gives no occasion, and was left alone."""
    private: Callable[[bytes], bytes] | None = None
    """Changes the private data."""
    bends: str = ""
    """Suspends a duty of the endpoint, by the name it is asked for in ``EndpointView.bends``."""
    fits: Callable[[EndpointView, int], bool] | None = None
    """Of a bent duty about sizes: whether a Send of so many bytes is the occasion."""
    cause: str = ""
    """A fault of the peer that gives the occasion."""
    version: int = 0
    """The protocol version in which there is an occasion; 0 for any."""
