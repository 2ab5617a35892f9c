"""Small sequential reads and writes, synchronous writes, and hot files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...units import duration, percent, plural, size
from ..facts import Cause, Facts, Limits, Severity, detector

if TYPE_CHECKING:
    from ..file_facts import Transfers

SHORT = {
    "least_calls": (100, "calls of the most frequent size"),
    "same_share": (0.7, "share of reads (or writes) of that size"),
    "sequential_share": (0.7, "share of those that start where the previous one ended"),
    "size": (32768, "bytes of the largest call that counts as small"),
    "latency_share": (0.1, "share of the latency of all RPCs"),
}


def _short(facts: Facts, limits: Limits, totals: Transfers, what: str, option: str) -> Iterator[Cause]:
    if not totals.sizes:
        return
    common, times = totals.sizes.most_common(1)[0]
    in_order = totals.sequential[common]
    part = facts.share(totals.examples.total)
    if (
        not common
        or common > limits["size"]
        or times < limits["least_calls"]
        or times < limits["same_share"] * totals.sizes.total()
        or in_order < limits["sequential_share"] * times
        or part < limits["latency_share"]
    ):
        return
    yield Cause(
        f"{plural(times, what)} of {size(common)}, {percent(in_order / times)} sequential",
        times,
        None,
        "",
        None,
        (f"{option} is {size(common)}, or the program uses that block size; 1 MiB is usual",),
        (),
        totals.examples.rpcs,
        totals.examples.frames,
        0.8,
        lost=totals.examples.total,
    )


@detector(
    "reads-short",
    "Small sequential READs",
    Severity.WARNING,
    "offsets and sizes of READs per file",
    SHORT,
    (
        "the mount option rsize, and the server's maximum (FSINFO, maxread)",
        "readahead of the mount (read_ahead_kb of its bdi), O_DIRECT with small buffers",
    ),
    needs="files",
)
def reads_short(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """Nearly all READs have the same small size and are sequential. Each costs a round trip and the work of an RPC at
    both ends; larger ones would cost hardly more.
    """
    assert facts.files is not None
    yield from _short(facts, limits, facts.files.reads, "READ", "rsize")


@detector(
    "writes-short",
    "Small sequential WRITEs",
    Severity.WARNING,
    "offsets and sizes of WRITEs per file",
    SHORT,
    (
        "the mount option wsize, and the server's maximum (FSINFO, maxwrite)",
        "O_SYNC, O_DIRECT or the mount option sync with small buffers",
    ),
    needs="files",
)
def writes_short(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """Nearly all WRITEs have the same small size and are sequential: the client's page cache does not merge them."""
    assert facts.files is not None
    yield from _short(facts, limits, facts.files.writes, "WRITE", "wsize")


@detector(
    "writes-synchronous",
    "Small synchronous WRITEs",
    Severity.WARNING,
    "the stability that each WRITE reply returns",
    {
        "least_writes": (100, "WRITEs on stable storage when answered"),
        "size": (65536, "bytes of a WRITE; larger ones do not count as small"),
        "latency_share": (0.25, "their share of the latency of all RPCs"),
        "mean_ms": (1, "their mean latency, milliseconds"),
    },
    (
        "the program: O_SYNC, O_DSYNC; the mount option sync (not the export option of that name)",
        "whether the server's storage has a non-volatile write cache",
    ),
    needs="files",
)
def writes_synchronous(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """Each WRITE is small, and its reply says that the data is on stable storage (FILE_SYNC or DATA_SYNC): every one
    waited for the disks. Unstable writes with one COMMIT at the end wait once.
    """
    assert facts.files is not None
    small = [writes for length, writes in facts.files.synchronous.items() if length <= limits["size"]]
    total, waited = sum(writes.count for writes in small), sum(writes.total for writes in small)
    part = facts.share(waited)
    if total < limits["least_writes"] or part < limits["latency_share"] or waited < limits["mean_ms"] * 1e6 * total:
        return
    yield Cause(
        f"{plural(total, 'small synchronous WRITE')}, mean {duration(waited / total)}",
        total,
        lost=waited,
        rpcs=tuple(number for writes in small for number in writes.rpcs)[:5],
        frames=tuple(frame for writes in small for frame in writes.frames)[:5],
        confidence=0.8,
        weakened_by=("a server may commit on its own, without being asked",),
    )


@detector(
    "hot-file",
    "Hot file",
    Severity.WARNING,
    "latency of the RPCs on each file",
    {
        "least_files": (20, "files with RPCs"),
        "least_calls": (1000, "RPCs on the file"),
        "latency_share": (0.5, "share of the latency of all RPCs on files"),
    },
    (
        "rdmascope files FILE: its reads and writes, by which calls",
        "whether many clients or threads share it: locks, one big directory, a log that all append to",
    ),
    needs="files",
)
def hot_file(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """Of many files, one takes more time than all others together. A server handles much of the work on one file
    serially: a directory lock, one disk, one server of several.
    """
    files = facts.files
    assert files is not None
    if len(files.costs) < limits["least_files"]:
        return
    total = sum(cost.total for cost in files.costs.values())
    number, cost = max(files.costs.items(), key=lambda item: item[1].total)
    if cost.count < limits["least_calls"] or not total or cost.total < limits["latency_share"] * total:
        return
    clients = len(files.clients[number])
    yield Cause(
        f"{files.path(number)}: {percent(cost.total / total)} of the time of {plural(len(files.costs), 'file')}",
        cost.count,
        None,
        "",
        None,
        (f"{plural(cost.count, 'RPC')} from {plural(clients, 'client')}",),
        (),
        cost.rpcs,
        cost.frames,
        lost=cost.total,
    )
