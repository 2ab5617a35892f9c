"""Where a capture was taken, from the times between packets and their acknowledgements.

An RDMA adapter acknowledges in hardware, at once.  Seen from the capture point, a request of one end is acknowledged
after twice the way from there to the other end, and what that end needs to answer.  Where one end seems to answer in
no time and the other does not, the capture point is beside the first.
"""

from __future__ import annotations

from ..percentiles import Samples
from .health import CapturePoint

FEWEST = 8
"""Acknowledgements of either end, to say anything."""
MANY = 64
APART = 3.0
"""Times the one delay is longer than the other, to tell the ends apart."""
FAR_APART = 10.0
ALIKE = 1.5
LEAST = 1000
"""Nanoseconds that the delays must differ; captures often have a clock of microseconds."""
SLOW = 50_000
"""Nanoseconds; an end that always takes longer hides the network's time behind its own."""
FAST = 5
"""The share of acknowledgements by whose delay an end is judged: its fastest, but no freak."""

MEANINGS = {
    "beside the requester": "latencies are what the client sees; server time includes the network round trip",
    "beside the responder": "server time is the server's own; the client waits longer than these latencies,"
    " by the network round trip",
    "between": "server time includes the network between capture point and server; the client waits longer than"
    " these latencies, by the network on its side",
    "undecidable": '"server" may include network delay',
}


def capture_point(requester: Samples, responder: Samples) -> CapturePoint:
    """The place, from how long either end takes to acknowledge the other's requests; 'requester': the active side."""
    if requester.count < FEWEST or responder.count < FEWEST:
        few = "client" if requester.count < responder.count else "server"
        seen = min(requester.count, responder.count)
        return _placed("undecidable", 0.0, f"only {seen} acknowledgements of the {few} to measure")
    mine, theirs = requester.at(FAST), responder.at(FAST)
    near, far = max(1, min(mine, theirs)), max(mine, theirs, 1)
    evidence = f"fastest acknowledgements: client {mine / 1000:.3g} µs, server {theirs / 1000:.3g} µs"
    many = min(requester.count, responder.count) >= MANY
    if far - near >= LEAST and far / near >= APART:
        place = "beside the requester" if mine < theirs else "beside the responder"
        return _placed(place, (0.9 if many else 0.7) if far / near >= FAR_APART else 0.6, evidence)
    if far < LEAST:
        return _placed("undecidable", 0.0, f"{evidence}; too short for the capture's clock")
    if far - near < LEAST or far / near <= ALIKE:
        if near > SLOW:
            reason = "about the same, but both ends take longer than a network does"
            return _placed("undecidable", 0.0, f"{evidence}; {reason}")
        return _placed("between", 0.6 if many else 0.5, f"{evidence}; about the same")
    return _placed("undecidable", 0.0, f"{evidence}; too close together to decide")


def _placed(place: str, confidence: float, evidence: str) -> CapturePoint:
    return CapturePoint(place, confidence, evidence, MEANINGS[place])
