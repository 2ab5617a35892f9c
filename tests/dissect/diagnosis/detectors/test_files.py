"""Reads, writes and files: where detectors speak, and where not."""

from __future__ import annotations

import pytest

from playbook.facts import MILLISECOND, Accesses, facts, found, kinds, silent, speaks
from rdmascope.dissect.diagnosis.facts import Severity


def pieces(kind: str, size: int, count: int = 200, step: int | None = None) -> Accesses:
    """One file from its beginning on."""
    given = Accesses()
    for at in range(count):
        given.access(kind, 1, at * (size if step is None else step), size)
    return given


@pytest.mark.parametrize("kind", ["read", "write"])
@speaks("reads-short", "writes-short")
def test_small_pieces_one_behind_the_other(kind: str) -> None:
    given = pieces(kind, 4096)
    (said,) = found(facts(given.rpcs, files=given), f"{kind}s-short")
    assert said.cause.text == f"200 {kind.upper()}s of 4.00 KiB, 99.5% sequential"
    assert said.severity is Severity.WARNING


@pytest.mark.parametrize("kind", ["read", "write"])
@silent("reads-short", "writes-short")
def test_large_or_scattered_or_few_pieces_are_nothing(kind: str) -> None:
    for given in (pieces(kind, 65536), pieces(kind, 4096, step=12288), pieces(kind, 4096, 50)):
        assert not kinds(facts(given.rpcs, files=given))


@speaks("writes-synchronous")
def test_small_writes_that_wait_for_the_disks() -> None:
    given = Accesses()
    for at in range(150):
        given.access("write", 1, at * 100_000, 4096, 3 * MILLISECOND, stable=2)
    (said,) = found(facts(given.rpcs, files=given))
    assert said.kind == "writes-synchronous" and said.cause.count == 150 and "mean 3.00 ms" in said.cause.text


@silent("writes-synchronous")
def test_unstable_or_large_or_quick_writes_are_nothing() -> None:
    unstable, large, quick = Accesses(), Accesses(), Accesses()
    for at in range(150):
        unstable.access("write", 1, at * 100_000, 4096, 3 * MILLISECOND)
        large.access("write", 1, at << 30, 1 << 20, 3 * MILLISECOND, stable=2)
        quick.access("write", 1, at * 100_000, 4096, MILLISECOND // 2, stable=2)
    for given in (unstable, large, quick):
        assert not kinds(facts(given.rpcs, files=given))


@speaks("hot-file")
def test_a_hot_file() -> None:
    given = Accesses()
    for at in range(1200):
        given.access("read", 1, at << 30, 100)
    for number in range(2, 40):
        given.access("read", number, 0, 100)
    (said,) = found(facts(given.rpcs, files=given))
    assert said.kind == "hot-file" and said.cause.count == 1200
    assert said.cause.text.endswith("97% of the time of 39 files")


@silent("hot-file")
def test_the_only_file_or_one_of_many_is_not_hot() -> None:
    alone = pieces("read", 1 << 20, 2000)
    even = Accesses()
    for at in range(4000):
        even.access("read", at % 40, at << 30, 100)
    for given in (alone, even):
        assert not kinds(facts(given.rpcs, files=given))
