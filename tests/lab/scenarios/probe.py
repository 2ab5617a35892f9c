"""The active probe judges knfsd, alike behind all faults, and knfsd survives it."""

from __future__ import annotations

from collections.abc import Iterator

from ..evidence import Check, equal, lines
from ..guests import Outcome

SMOKE = ("rxe",)
KERNELS: list[dict[str, str]] = [{}, {"server": "6.12"}]
DEADLINE = 600

UNUSUAL = {
    "done": "no answer",  # RDMA_DONE is dropped in silence
    "nomsg-without-chunks": "no answer",
    "unknown-option": "not applicable",  # version 1 alone is spoken
    "unknown-characteristic": "not applicable",
    "inline-write-odd": "not applicable",  # the file may not be written
}
"""In Linux 6.1."""
OF_DEVICES = {
    "rxe": {"invalidation": "violation"},  # Send With Invalidate, and R not set by the server
    "siw": {"invalidation": "not applicable"},  # has no memory windows
}


def judge(outcome: Outcome) -> Iterator[Check]:
    ping = lines((outcome.folder / "ping.jsonl").read_text())
    (reached,) = (one for one in ping if one["type"] == "probe")
    announced = {"send_size": 4096, "receive_size": 4096, "remote_invalidation": False}
    yield equal("private data of knfsd", announced, reached["announced"])
    yield equal("credits granted", 64, reached["credits_granted"])
    (summary,) = (one for one in ping if one["type"] == "probe_summary")
    yield equal("NULL calls answered", 3, summary["replies"])
    (version,) = (one for one in ping if one["type"] == "probe_version")
    yield equal("version 2 refused with the range", ([1, 1], 1), (version["supported"], version["settled"]))
    (nfs,) = (one for one in ping if one["type"] == "probe_program")
    yield equal("versions of NFS", [3, 4], nfs["versions"])

    first, second = (verdicts(outcome, turn) for turn in (1, 2))
    found = {check: verdict for check, verdict in first.items() if verdict != "pass"}
    yield equal("verdicts of knfsd beside pass", UNUSUAL | OF_DEVICES[outcome.transport], found)
    differing = {check: (first.get(check), verdict) for check, verdict in second.items() if first.get(check) != verdict}
    # knfsd has survived what the specification forbids to send.
    yield Check(
        f"the same {len(second)} verdicts behind the faults",
        str(differing or "the same"),
        not differing and bool(second),
    )
    yield equal("status of a suite with violations", "1", outcome.facts["suite", "1", "status"])
    yield equal("status where nothing listens", "2", outcome.facts["refused",])
    yield equal("a file read afterwards", outcome.facts["md5", "/r1m"], outcome.facts["read", "after"])
    six = lines((outcome.folder / "ping6.jsonl").read_text())
    yield equal("answers over IPv6", 1, six[-1]["replies"])
    size = (outcome.folder / "probe.pcapng").stat().st_size
    yield Check("the exchange was kept", f"{size:,} bytes", size > 1000)


def verdicts(outcome: Outcome, turn: int) -> dict[str, str]:
    results = lines((outcome.folder / f"suite.{turn}.jsonl").read_text())
    return {one["check"]: one["verdict"] for one in results if one["type"] == "probe_check"}
