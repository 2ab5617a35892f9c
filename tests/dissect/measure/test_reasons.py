"""Reasons that differ in their numbers are counted together, and read as one sentence."""

from __future__ import annotations

from rdmascope.dissect.measure.statistics import MAX_REASONS, ReasonCounts


def test_one_reason_is_shown_as_it_is() -> None:
    counts = ReasonCounts()
    counts.add(["position at offset 28 is 7, neither 0 nor 1"])
    counts.add(["position at offset 28 is 7, neither 0 nor 1"] * 2)
    assert counts.items() == [("position at offset 28 is 7, neither 0 nor 1", 2)]


def test_numbers_that_differ_are_left_out_and_no_others() -> None:
    counts = ReasonCounts()
    for value in (7, 0x2A, 7):
        counts.add([f"position at offset 28 is {value}, neither 0 nor 1", f"handle {value:#x} is unknown"])
    assert counts.items() == [
        ("position at offset 28 is …, neither 0 nor 1", 3),
        ("handle … is unknown", 3),
    ]


def test_there_are_never_too_many() -> None:
    counts = ReasonCounts()
    for letter in range(MAX_REASONS + 5):
        counts.add(["a" * (letter + 1)])
    assert len(counts.items()) == MAX_REASONS + 1
    assert counts.items()[-1] == ("other", 5)
