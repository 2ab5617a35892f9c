"""The page of the detectors.  As a program: writes ``docs/diagnosis.md``."""

from __future__ import annotations

from pathlib import Path

import pytest

from rdmascope.dissect.diagnosis.detector import all_detectors
from rdmascope.dissect.diagnosis.page import detector_lines, markdown

PAPER = Path(__file__).parents[3] / "docs" / "diagnosis.md"
DETECTORS = all_detectors()


def test_the_page_of_the_detectors_is_fresh() -> None:
    assert PAPER.read_text() == markdown(DETECTORS.values())


@pytest.mark.parametrize("kind", DETECTORS)
def test_a_detector_explains_itself(kind: str) -> None:
    one = DETECTORS[kind]
    assert one.explanation.endswith(".") and one.next_steps
    assert all(threshold.meaning and threshold.value > 0 for threshold in one.thresholds.values())
    assert {"Severity", "Looks at", "Means", "Look at next"} <= {name for name, _ in detector_lines(one)}


if __name__ == "__main__":
    PAPER.write_text(markdown(DETECTORS.values()))
