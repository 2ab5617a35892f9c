"""Many COMPOUNDs walked at once: what ``compound.compound_call`` says of each, or nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from rdmascope.dissect.arrays import FEW
from rdmascope.dissect.onc import compound as nfs4
from rdmascope.dissect.onc.compound import OperationSequences, compound_calls, compound_replies

from .test_compound import ARGUMENTS, CALLBACKS, QUICK, RESULTS, compound, results, rows, words


@pytest.fixture(autouse=True, params=[0, FEW])
def few(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many rows are stepped over one by one."""
    monkeypatch.setattr(nfs4, "FEW", request.param)


def check(messages: list[bytes], callback: bool = False) -> list[bool]:
    """Which were walked; those as ``compound_call`` does, and of the others it says what is wrong or they are long."""
    lengths = np.array([len(one) for one in messages], np.int64)
    ends = lengths.cumsum()
    data = np.frombuffer(b"".join(messages), np.uint8)
    known = OperationSequences()
    found = compound_calls(data, ends - lengths, ends, known, callback)
    for one, walked, minor, sequence, truncated in zip(messages, *(column.tolist() for column in found), strict=True):
        right = nfs4.compound_call(one, 0, len(one), callback=callback)
        assert walked == (right.complete and not right.problem and len(right.operations) <= 64)
        ends_inside = nfs4.ends_inside(nfs4.operation_names(right.operations, callback))
        assert right.problem == ends_inside or not truncated
        if walked or truncated:
            assert known.sequences[sequence] == right.operations
            assert minor == (-1 if right.minor_version is None else right.minor_version)
    return [bool(walked) for walked in found.walked]


@QUICK
@given(st.lists(st.tuples(rows(ARGUMENTS), st.binary(max_size=7), st.integers(0, 2), st.integers(0, 60)), max_size=8))
def test_any_calls(calls: list[tuple[list[tuple[int, bytes]], bytes, int, int]]) -> None:
    """Some truncated at their end."""
    whole = [compound(found, tag, minor) for found, tag, minor, _ in calls]
    assert all(check(whole)) or not calls
    cut = [one[: len(one) - less // 4] for one, (*_, less) in zip(whole, calls, strict=True)]
    check(cut)
    ends = np.array([len(one) for one in cut], np.int64).cumsum()
    columns = compound_calls(
        np.frombuffer(b"".join(cut), np.uint8), np.append(0, ends)[:-1], ends, OperationSequences()
    )
    assert (columns.walked | columns.truncated).all()


@QUICK
@given(st.lists(rows({number: arguments for number, (arguments, _) in CALLBACKS.items()}), max_size=4))
def test_any_callbacks(calls: list[list[tuple[int, bytes]]]) -> None:
    heads = [words(0, 1, 7, len(found)) for found in calls]
    bodies = [b"".join(words(number) + body for number, body in found) for found in calls]
    assert all(check([head + body for head, body in zip(heads, bodies, strict=True)], callback=True)) or not calls


@QUICK
@given(st.lists(st.lists(st.sampled_from([0, 1, 2, 9, 10, 18, 22, 53, 99, 2**31, 2**32 - 1]), max_size=20), max_size=9))
def test_any_words(messages: list[list[int]]) -> None:
    check([words(*message) for message in messages])


def test_more_operations_than_are_walked() -> None:
    assert check([words(0, 1, count) + words(10) * count for count in (64, 65)]) == [True, False]


def check_replies(messages: list[bytes], callback: bool = False) -> list[bool]:
    """Which were walked; those as ``compound_reply`` does."""
    lengths = np.array([len(one) for one in messages], np.int64)
    ends = lengths.cumsum()
    data = np.frombuffer(b"".join(messages), np.uint8)
    known = OperationSequences()
    found = compound_replies(data, ends - lengths, ends, known, callback)
    for one, walked, status, sequence in zip(messages, *(column.tolist() for column in found), strict=True):
        right = nfs4.compound_reply(one, 0, len(one), callback=callback)
        assert walked == (right.complete and not right.problem and len(right.results) <= 64)
        if walked:
            assert (status, known.sequences[sequence]) == (right.status, tuple(number for number, _ in right.results))
    return [bool(walked) for walked in found.walked]


@QUICK
@given(st.lists(st.tuples(rows(RESULTS), st.binary(max_size=7), st.integers(0, 60)), max_size=8))
def test_any_replies(replies: list[tuple[list[tuple[int, bytes]], bytes, int]]) -> None:
    """Some truncated at their end."""
    whole = [results([(number, 0, body) for number, body in found], tag) for found, tag, _ in replies]
    assert all(check_replies(whole)) or not replies
    check_replies([one[: len(one) - less // 4] for one, (*_, less) in zip(whole, replies, strict=True)])


@QUICK
@given(
    st.lists(st.lists(st.sampled_from([0, 1, 2, 9, 10, 34, 22, 53, 10010, 12, 2**31, 2**32 - 1]), max_size=20)),
    st.booleans(),
)
def test_any_words_of_replies(messages: list[list[int]], callback: bool) -> None:
    check_replies([words(*message) for message in messages], callback)


def test_results_that_failed() -> None:
    denied = words(10010, 0, 1, 1, 8, 0, 0, 0, 0) + words(0)  # LOCK4denied
    wrong = [
        words(2, 0, 1, 15, 2),
        words(22, 0, 2, 34, 22, 1, 7, 22, 0),  # SETATTR has its bitmap whatever the status
        words(10010, 0, 1, 12) + denied,
        words(99, 0, 1, 99, 0),
    ]
    assert check_replies(wrong) == [True, True, True, False]
