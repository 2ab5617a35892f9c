"""Linux mounts a server that commits each fault once: it makes of it what the page about the probe says."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from ..build import ROOT
from ..evidence import Check, Record
from ..guests import Outcome

KERNELS: list[dict[str, str]] = [{}, {"client": "6.12"}]
DEADLINE = 3000
PAGE = ROOT / "docs" / "probe.md"
VERSIONS = ("3", "4.1")
KILLED = "137"
"""The status of what did not end."""

Steps = Mapping[str, tuple[str, str]]
"""What was done: how it ended, and the checksum of what it printed."""


def judge(outcome: Outcome) -> Iterator[Check]:
    kernel = outcome.facts["kernel",]
    for version in VERSIONS:
        right = steps(outcome, version, "none")
        failed = [name for name, (status, _) in right.items() if status != "0"]
        yield Check(f"NFSv{version}: all is well on a right server", ", ".join(failed) or "it is", not failed)
        _, odd = right["odd"]
        yield Check("what was written is read", odd, odd == outcome.facts["md5", "odd"])
        expected = documented(f"NFSv{version} {outcome.transport} {kernel}")
        found = {fault: reaction(outcome, version, fault) for fault in outcome.those("served", version)}
        del found["none"]
        other = ", ".join(found.keys() ^ expected.keys())
        yield Check("the page has the same faults", other or "it has", not other)
        for fault, words in found.items():
            known = expected.get(fault, ())
            yield Check(f"NFSv{version}, {fault}: {' or '.join(sorted(known))}", words, words in known)


def documented(column: str) -> dict[str, set[str]]:
    """What the page's table says of each fault, in this column, or where it has none, in any.

    "or" is between what may happen on one day and on another.
    """
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in PAGE.read_text().splitlines()
        if line.startswith("|")
    ]
    titles = next(row for row in rows if row[0] == "fault")
    columns = [at for at, title in enumerate(titles) if title == column] or [*range(1, len(titles))]
    faults = rows[rows.index(titles) + 2 :]
    return {row[0]: {words for at in columns for words in row[at].split(" or ")} for row in faults}


def steps(outcome: Outcome, version: str, fault: str) -> Steps:
    done = outcome.those("step", version, fault)
    return {name: (status, digest) for name, (status, digest) in ((name, one.split()) for name, one in done.items())}


def served(outcome: Outcome, version: str, fault: str) -> Record:
    counted: Record = json.loads(outcome.facts["served", version, fault])
    return counted


def reaction(outcome: Outcome, version: str, fault: str) -> str:
    """What the client made of a fault, against what it does on a right server."""
    right, done = (steps(outcome, version, one) for one in ("none", fault))
    usual, counted = (served(outcome, version, one) for one in ("none", fault))
    ended = {status for status, _ in done.values()}
    found = []
    if not counted["committed"]:
        return "no occasion"
    if KILLED in ended:
        found.append("hangs")
    elif done["mount"] != right["mount"]:
        found.append("the mount fails")
    elif any(done[name] != right[name] and done[name][0] == "0" for name in right):
        found.append("**wrong data**")
    elif ended != {"0"}:
        found.append("an error")
    if counted["connections"] > usual["connections"]:
        found.append("connects again")
    return ", ".join(found) or "goes on"
