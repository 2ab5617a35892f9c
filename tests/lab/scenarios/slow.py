"""A small path MTU, a slow disk, one slow connection among four: each named with its numbers, and none without."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ..evidence import RDMASCOPE, Check, Record, client_counters, command, diagnosed, lines, parts, unanswered
from ..guests import Outcome

DEADLINE = 900
PATH_MTU, DISK, LATE, CONNECTIONS = 512, 25, 80, 4
"""Bytes; milliseconds that ``slow.server.sh`` has the disk take, and ``slow.client.sh`` what the server sends on one
connection."""
NOISE = 40
"""Milliseconds by which emulated guests on a busy host may be later than they should."""
EXPECTED = {
    "healthy": frozenset[str](),
    "mtu": frozenset({"write-phase"}),
    "disk": frozenset({"server-time", "writes-short", "writes-synchronous"}),
    "connection": frozenset({"slow-connection"}),
}
"""What is to be found behind each mark; TCP's segments have no path MTU of RDMA's."""


def judge(outcome: Outcome) -> Iterator[Check]:
    wanted = {name: kinds for name, kinds in EXPECTED.items() if outcome.transport == "rxe" or name != "mtu"}
    captures = dict(parts(outcome, wanted))
    yield Check("all parts", ", ".join(captures), captures.keys() == wanted.keys())
    for name, part in captures.items():
        found = diagnosed(part)
        expected, kinds = (", ".join(sorted(some)) or "nothing" for some in (wanted[name], found))
        yield Check(f"{name}: {expected}", kinds, found.keys() == wanted[name])
        if name == "mtu":
            yield from small_mtu(found)
        elif name == "disk":
            yield from slow_disk(part)
        elif name == "connection":
            yield from slow_connection(outcome, part, found)
    yield from client_counters(outcome)
    yield from unanswered(outcome)


def small_mtu(found: dict[str, Record]) -> Iterator[Check]:
    evidence = " ".join(found["write-phase"]["evidence"]) if "write-phase" in found else "none"
    yield Check("the evidence has the path MTU", evidence, f"path MTU {PATH_MTU}" in evidence)


def slow_disk(part: Path) -> Iterator[Check]:
    """Each WRITE takes the disk at least once."""
    report = lines(command(RDMASCOPE, "report", "--json", part))
    (write,) = (one for one in report if one["type"] == "procedure" and one["procedure"] == "WRITE")
    median = write["parts"]["server"]["median_ns"] / 1e6
    yield Check(f"a WRITE's server time is at least the disk's {DISK} ms", f"{median:.1f} ms", median >= DISK)


def slow_connection(outcome: Outcome, part: Path, found: dict[str, Record]) -> Iterator[Check]:
    connections = lines(command(RDMASCOPE, "transport", "--json", part))
    yield Check(f"{CONNECTIONS} connections", str(len(connections)), len(connections) == CONNECTIONS)
    if "slow-connection" not in found:
        return
    named = found["slow-connection"]["connections"]
    rows = command(
        RDMASCOPE, "sql", "--csv", part,
        "SELECT connection, avg(latency_ns) / 1e6 FROM rpcs WHERE procedure = 'READ' GROUP BY ALL ORDER BY 2",
    ).splitlines()[1:]  # fmt: skip
    *others, (slowest, mean) = ((int(number), float(time)) for number, time in (row.split(",") for row in rows))
    yield Check("the slowest is named, and only it", f"{named}", named == [slowest])
    if outcome.transport == "rxe":
        number = next(one["active"]["qpn"] for one in connections if one["number"] == slowest)
        slowed = outcome.facts["slowed",]
        yield Check(f"that of the queue pair which the server slowed, {slowed}", str(number), str(number) == slowed)
    more = mean - sum(time for _, time in others) / len(others)
    words = f"whose READs take {LATE} ms more, and at most {NOISE} ms beside that"
    yield Check(words, f"{more:.1f} ms", abs(more - LATE) <= NOISE)
