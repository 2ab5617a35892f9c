"""Reads and writes that are smaller than they need be, writes that wait for disks, one file that takes all the time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...units import duration, percent, plural, size
from ..detector import Limits, detector
from ..facts import Facts
from ..statement import Cause, Severity

if TYPE_CHECKING:
    from ..file_facts import Transfers

SHORT = {
    "least_calls": (100, "calls of the size that is most frequent"),
    "same_share": (0.7, "share of all reads, or writes, that have that size"),
    "sequential_share": (0.7, "share of those that begin where the one before ended"),
    "size": (32768, "bytes; more is not short"),
    "latency_share": (0.1, "share of the latency of all RPCs"),
}


def _short(facts: Facts, limits: Limits, totals: Transfers, what: str, option: str) -> Iterator[Cause]:
    if not totals.sizes:
        return
    common, times = totals.sizes.most_common(1)[0]
    in_order = totals.sequential[common]
    part = facts.share(totals.examples.total) or 0.0
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
        f"{plural(times, what)} of {size(common)} each, {percent(in_order / times)} of them in order",
        times,
        part,
        "the latency of all RPCs",
        None,
        (f"{option} of {size(common)} or a program that asks for so much at a time; 1 MiB is usual",),
        (),
        totals.examples.rpcs,
        totals.examples.frames,
        0.8,
    )


@detector(
    "reads-short",
    "Files are read in small pieces, one behind the other",
    Severity.WARNING,
    "offsets and sizes of READs of each file",
    SHORT,
    (
        "the mount option rsize, and what FSINFO or the server's maximum allows",
        "readahead of the mount (read_ahead_kb of its bdi), O_DIRECT with small buffers",
    ),
    needs="files",
)
def reads_short(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """Nearly all READs have the same small size and follow each other through their files. Each costs a round trip and
    an RPC's work at both ends; larger ones cost hardly more.
    """
    assert facts.files is not None
    yield from _short(facts, limits, facts.files.reads, "READ", "rsize")


@detector(
    "writes-short",
    "Files are written in small pieces, one behind the other",
    Severity.WARNING,
    "offsets and sizes of WRITEs of each file",
    SHORT,
    (
        "the mount option wsize, and what FSINFO or the server's maximum allows",
        "O_SYNC, O_DIRECT or the mount option sync with small buffers",
    ),
    needs="files",
)
def writes_short(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """Nearly all WRITEs have the same small size and follow each other through their files, so that the client's cache
    does not gather them.
    """
    assert facts.files is not None
    yield from _short(facts, limits, facts.files.writes, "WRITE", "wsize")


@detector(
    "writes-synchronous",
    "Small writes wait for stable storage one by one",
    Severity.WARNING,
    "how the server committed each WRITE",
    {
        "least_writes": (100, "WRITEs that were on stable storage when they were answered"),
        "size": (65536, "bytes of a WRITE; more is not small"),
        "latency_share": (0.25, "share of the latency of all RPCs that they are"),
        "mean_ms": (1, "their mean latency, milliseconds"),
    },
    (
        "the program: O_SYNC, O_DSYNC; the mount option sync; the export option sync is not the same",
        "whether the server's storage has a write cache that survives power failures",
    ),
    needs="files",
)
def writes_synchronous(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """Each WRITE is small, and its reply says that the data is on stable storage (FILE_SYNC or DATA_SYNC): it waited
    for the disks. Unstable writes with one COMMIT at the end wait once.
    """
    assert facts.files is not None
    small = [one for length, one in facts.files.synchronous.items() if length <= limits["size"]]
    total, waited = sum(one.count for one in small), sum(one.total for one in small)
    part = facts.share(waited) or 0.0
    if total < limits["least_writes"] or part < limits["latency_share"] or waited < limits["mean_ms"] * 1e6 * total:
        return
    yield Cause(
        f"{plural(total, 'small WRITE')} on stable storage one by one, mean {duration(waited / total)}",
        total,
        part,
        "the latency of all RPCs",
        rpcs=tuple(number for one in small for number in one.rpcs)[:5],
        frames=tuple(frame for one in small for frame in one.frames)[:5],
        confidence=0.8,
        weakened_by=("a server may commit at once what it was not asked to",),
    )


@detector(
    "hot-file",
    "One file takes most of the time",
    Severity.WARNING,
    "latency of the RPCs on each file",
    {
        "least_files": (20, "files with RPCs"),
        "least_calls": (1000, "RPCs on the file"),
        "latency_share": (0.5, "share of the latency of all RPCs on files"),
    },
    (
        "rdmascope files FILE: what was read and written of it, by which calls",
        "whether many clients or threads share it: locks, one directory for everything, a log that all append to",
    ),
    needs="files",
)
def hot_file(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """Of many files, one takes more of the time than all others together. The server handles much of one file one after
    the other: a lock for a directory's entries, one disk, one server of several.
    """
    files = facts.files
    assert files is not None
    if len(files.costs) < limits["least_files"]:
        return
    total = sum(one.total for one in files.costs.values())
    number, cost = max(files.costs.items(), key=lambda one: one[1].total)
    if cost.count < limits["least_calls"] or not total or cost.total < limits["latency_share"] * total:
        return
    clients = len(files.clients[number])
    yield Cause(
        f"{files.path(number)}: {percent(cost.total / total)} of the time of {plural(len(files.costs), 'file')}",
        cost.count,
        facts.share(cost.total),
        "the latency of all RPCs",
        None,
        (f"{plural(cost.count, 'RPC')} of {plural(clients, 'client')}",),
        (),
        cost.rpcs,
        cost.frames,
    )
