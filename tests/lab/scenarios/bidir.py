"""Backward calls: delegations that the server recalls (CB_RECALL)."""

from __future__ import annotations

from collections.abc import Iterator

from ..evidence import Check, always, equal, records
from ..guests import Outcome


def judge(outcome: Outcome) -> Iterator[Check]:
    recalls = [
        rpc for rpc in records(outcome, "rpcs") if rpc["direction"] == "backward" and "CB_RECALL" in rpc["operations"]
    ]
    reported = sum(int(count) for count in outcome.those("recalled").values())
    yield equal("delegations recalled", reported, len(recalls))
    yield equal("of them answered NFS4_OK", reported, sum(rpc["status"] == "OK" for rpc in recalls))
    yield from always(outcome)
