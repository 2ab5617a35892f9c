"""A saturating workload, watched live: what was dropped is reported, and adds up to what was on the wire."""

from __future__ import annotations

from collections.abc import Iterator

from ..evidence import Check, always, checksums, command, lines
from ..guests import Outcome

DEADLINE = 400


def judge(outcome: Outcome) -> Iterator[Check]:
    seen = lines(outcome.text("saturated.jsonl"))
    reported = seen[-1]
    frames, dropped = reported["frames"], reported["kernel_dropped"]
    if outcome.transport == "rxe":
        wire = command("tshark", "-n", "-r", outcome.capture, "-Y", "infiniband", "-T", "fields", "-e", "frame.number")
        expected = f"of {len(wire.split()):,} RDMA frames on the wire each seen live, or reported as dropped"
        yield Check(expected, f"{frames:,} and {dropped:,}", frames + dropped == len(wire.split()))
    else:
        # The guest's kernel joins TCP segments before anybody can see them, so their numbers differ.
        yield Check("frames seen live, and dropped ones reported", f"{frames:,} and {dropped:,}", frames > 0 <= dropped)
    rpcs = sum(one["type"] == "rpc" for one in seen)
    yield Check("RPCs seen live", f"{rpcs:,}", rpcs > 0)
    yield from checksums(outcome)
    yield from always(outcome)
