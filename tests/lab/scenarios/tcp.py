"""One workload over RDMA and over TCP in one capture: the calls of either mount are those that its client counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rdmascope.dissect.measure.kernel_counters import parse_mountstats

from ..evidence import Check, always, checksums, counted, equal, records
from ..guests import Outcome


def judge(outcome: Outcome) -> Iterator[Check]:
    connections = [one for one in records(outcome, "report") if one["type"] == "connection"]
    transports = {one["number"]: one["transport"] for one in connections}
    rpcs = [rpc for rpc in counted(outcome) if rpc["program"] == "NFS"]
    for name in ("rdma", "tcp"):
        mounts = parse_mountstats(outcome.text(f"mountstats.{name}"))
        theirs = {key: one.calls for mount in mounts for key, one in mount.operations.items() if one.calls}
        ours = Counter(rpc["procedure"] for rpc in rpcs if (transports[rpc["connection"]] == "TCP") == (name == "tcp"))
        yield equal(f"calls over {name}", sorted(theirs.items()), sorted(ours.items()))
    yield equal("what both read", [outcome.facts["md5", "/r1m"]] * 2, list(outcome.those("read").values()))
    yield from checksums(outcome)
    yield from always(outcome)
