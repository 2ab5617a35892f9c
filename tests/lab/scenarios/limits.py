"""One slot for a session, then a delegation that comes back late: each is what the diagnosis names."""

from __future__ import annotations

from collections.abc import Iterator

from ..evidence import Check, diagnosed, parts
from ..guests import Outcome

DEADLINE = 500
NAMED = {"slots": "slots-exhausted", "recall": "recall-stalls"}
"""What is to be found behind each mark.  No credits: an emulated client needs more than the 100 µs within which
the next call follows the reply that brings a credit back."""


def judge(outcome: Outcome) -> Iterator[Check]:
    captures = dict(parts(outcome, NAMED))
    yield Check("both parts", ", ".join(captures), captures.keys() == NAMED.keys())
    for name, part in captures.items():
        found = diagnosed(part)
        text = found[NAMED[name]]["text"] if NAMED[name] in found else ", ".join(found) or "nothing"
        yield Check(f"the diagnosis finds {NAMED[name]}", text, NAMED[name] in found)
        others = ", ".join(set(NAMED.values()) & found.keys() - {NAMED[name]})
        yield Check("and not the other", others or "none", not others)
