"""The pages of the rules."""

from __future__ import annotations

from pathlib import Path

import pytest

from rdmascope.dissect.audit.rule import all_rules, markdown

ROOT = Path(__file__).parents[3]
RULES = all_rules()


def test_the_page_of_the_rules_is_fresh() -> None:
    assert (ROOT / "docs" / "rules.md").read_text() == markdown(RULES.values())


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_explains_itself(rule: str) -> None:
    assert set(RULES[rule].paragraphs) == {"What", "Why", "Right", "Wrong"}


if __name__ == "__main__":
    (ROOT / "docs" / "rules.md").write_text(markdown(RULES.values()))
