"""Reads and writes over IPv6."""

from __future__ import annotations

from collections.abc import Iterator

from ..evidence import Check, always, checksums, equal, records
from ..guests import Outcome


def judge(outcome: Outcome) -> Iterator[Check]:
    ends = {
        end["address"]
        for record in records(outcome, "report")
        if record["type"] == "connection"
        for end in (record["active"], record["passive"])
    }
    yield equal(
        "addresses of the connections", ["fd77::1", "fd77::2"], sorted(end.split("]")[0].lstrip("[") for end in ends)
    )
    yield from checksums(outcome)
    yield from always(outcome)
