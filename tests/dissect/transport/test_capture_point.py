"""Where a capture was taken follows from which end seems to answer at once."""

from __future__ import annotations

import numpy as np
import pytest

from rdmascope.dissect.percentiles import Samples
from rdmascope.dissect.transport.health import FEWEST, MANY, capture_point


def samples(delay: int, count: int = MANY) -> Samples:
    made = Samples()
    made.add(np.full(count, delay, np.int64))
    return made


@pytest.mark.parametrize(
    ("requester", "responder", "place"),
    [
        (500, 20_000, "beside the requester"),
        (20_000, 500, "beside the responder"),
        (10_000, 11_000, "between"),
        (10_000, 20_000, "undecidable"),
        (300, 900, "undecidable"),
        (80_000, 81_000, "undecidable"),
    ],
)
def test_the_place(requester: int, responder: int, place: str) -> None:
    found = capture_point(samples(requester), samples(responder))
    assert found.place == place
    assert (found.confidence > 0) is (place != "undecidable")
    assert found.evidence and found.meaning


def test_the_ends_are_treated_alike() -> None:
    one, other = capture_point(samples(500), samples(20_000)), capture_point(samples(20_000), samples(500))
    assert one.confidence == other.confidence


def test_more_samples_are_trusted_more() -> None:
    few = capture_point(samples(500, FEWEST), samples(20_000, FEWEST))
    many = capture_point(samples(500), samples(20_000))
    assert 0 < few.confidence < many.confidence


def test_too_few_samples_say_nothing() -> None:
    found = capture_point(samples(500, FEWEST - 1), samples(20_000))
    assert (found.place, found.confidence) == ("undecidable", 0.0)
    assert f"{FEWEST - 1} acknowledgements of the client" in found.evidence
