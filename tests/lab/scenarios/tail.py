"""The server's replies are lost in front of the capture point, one call at a time: none of that is server time."""

from __future__ import annotations

from collections.abc import Iterator

from ..evidence import Check, client_counters, records, unanswered
from ..guests import Outcome

DEADLINE = 400
TIMER = {"rxe": 2.147, "siw": 0.2}
"""Seconds until a sender sends again: 4.096 µs x 2^19, of the CM exchange; TCP's least (RFC 6298, 2.4)."""
SERVES = {"rxe": 0.5, "siw": 0.3}
"""Seconds that knfsd, on a file system in memory, never takes; an emulated guest on a busy host is slow."""


def judge(outcome: Outcome) -> Iterator[Check]:
    dropped = int(outcome.facts["counter", "server", "dropped"])
    yield Check("netem drops frames of the server", f"{dropped}", dropped > 0)
    parts = [rpc for rpc in records(outcome, "rpcs") if rpc["latency_ns"] is not None]
    timer, serves = TIMER[outcome.transport], SERVES[outcome.transport]
    # With RDMA Writes TCP is slow for its congestion window, too.
    late = [one for one in parts if one["latency_ns"] >= timer * 1e9 and not one["writes_ns"]]
    yield Check(f"RPCs that took longer than the sender's timer, {timer:.3g} s", f"{len(late)}", bool(late))
    longest = max(one["server_ns"] for one in parts) / 1e9
    yield Check(f"server time of none beyond {serves} s, as knfsd takes", f"{longest:.3f} s", longest < serves)
    waited = (
        sum(one["retransmission_delay_ns"] for one in late) / sum(one["latency_ns"] for one in late) if late else 0.0
    )
    yield Check("of their latency, at least three quarters are retransmission", f"{waited:.0%}", waited >= 0.75)
    kinds = [one["kind"] for one in records(outcome, "diagnose", "--fail-on", "never")]
    yield Check("the diagnosis names timeouts first", ", ".join(kinds), kinds[:1] == ["retransmission-timeouts"])
    yield Check("and no slow server", ", ".join(kinds), not {"server-time", "slower-since"} & set(kinds))
    yield from client_counters(outcome)
    yield from unanswered(outcome)
