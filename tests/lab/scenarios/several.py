"""Several connections at once, of different versions and addresses, and a refused one."""

from __future__ import annotations

from collections.abc import Iterator

from ..evidence import Check, always, checksums, equal, records
from ..guests import Outcome

DEADLINE = 400  # over siw each mount may lose a minute to a first call that is never answered


def judge(outcome: Outcome) -> Iterator[Check]:
    connections = [record for record in records(outcome, "report") if record["type"] == "connection"]
    used = [connection for connection in connections if connection["rpcs"]]
    together = max(
        sum(one["first_time_ns"] <= moment <= one["last_time_ns"] for one in used)
        for moment in (one["last_time_ns"] for one in used)
    )
    yield Check("at least 5 connections at the same time", str(together), together >= 5)
    refused = {str(connection["ended_by"]) for connection in connections if not connection["rpcs"]}
    if outcome.transport == "rxe":  # under siw TCP refuses, before there is anything of RDMA to see
        yield Check("the port without a service refused", "; ".join(sorted(refused)), bool(refused))
    yield Check("the mount there failed", f"status {outcome.facts['refused',]}", outcome.facts["refused",] != "0")
    yield equal(
        "mounts that read r1m whole", 5, list(outcome.those("read").values()).count(outcome.facts["md5", "/r1m"])
    )
    yield from checksums(outcome)
    yield from always(outcome)
