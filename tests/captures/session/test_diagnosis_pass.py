"""What a diagnosis keeps of an audit is what the rules found broken."""

from __future__ import annotations

import pytest

from playbook.commands import EVERYTHING, LOSS
from rdmascope.captures.session.diagnosis_pass import EXAMPLES, facts_of
from rdmascope.captures.session.session import Session
from rdmascope.dissect.audit.auditor import Auditor


@pytest.mark.parametrize("path", [EVERYTHING, LOSS])
def test_broken_rules_are_kept_and_no_others(path: str) -> None:
    whole = Auditor(examples=EXAMPLES)
    Session(path).audit(whole)
    kept = facts_of(Session(path)).auditor
    assert kept is not None
    broken = {place: tally for place, tally in whole.tallies.items() if tally.violated}
    assert len(whole.tallies) > len(broken) > 0
    assert {place: (tally.violated, tally.notes, tally.worst) for place, tally in kept.tallies.items()} == {
        place: (tally.violated, tally.notes, tally.worst) for place, tally in broken.items()
    }
    assert [*kept.connections] == sorted({place.connection for place in broken})
