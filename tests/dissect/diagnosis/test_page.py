"""The page of the detectors.  As a program: writes ``docs/diagnosis.md``."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from playbook.facts import SILENT, SPEAKING
from rdmascope.dissect.diagnosis.facts import all_detectors, detector_lines, markdown

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


@pytest.mark.parametrize("kind", DETECTORS)
def test_a_detector_has_a_part_in_the_page_and_tests_in_which_it_speaks_and_in_which_it_does_not(kind: str) -> None:
    for path in (Path(__file__).parent / "detectors").glob("test_*.py"):
        import_module(f".detectors.{path.stem}", __package__)
    assert f"\n## {kind}\n" in PAPER.read_text()
    assert SPEAKING.get(kind) and SILENT.get(kind)
    assert SPEAKING.keys() | SILENT.keys() <= DETECTORS.keys()


if __name__ == "__main__":
    PAPER.write_text(markdown(DETECTORS.values()))
