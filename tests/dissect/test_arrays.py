"""Distinct values, and which of them each row has."""

from rdmascope.dissect.arrays import coded_keys


def test_keys_are_numbered_as_they_appear() -> None:
    handles = [b"root", None, b"dir", b"root", None]
    distinct, which = coded_keys(zip(handles, [1, 1, 1, 1, 2], strict=True), 5)
    assert distinct == [(b"root", 1), (None, 1), (b"dir", 1), (None, 2)]
    assert which.tolist() == [0, 1, 2, 0, 3]


def test_there_may_be_no_key() -> None:
    none: list[int] = []
    distinct, which = coded_keys(none, 0)
    assert distinct == []
    assert which.tolist() == []
