"""A server that is wrong on purpose is found by the probe and by the audit, over a real wire."""

from __future__ import annotations

from collections.abc import Iterator

from ..evidence import RDMASCOPE, Check, command, equal, lines
from ..guests import Outcome

DEADLINE = 900
CHECKED = 30
"""The suite has more checks."""

RULES = {
    "half-written": "V1-WRITE-LENGTH-TRUE",
    "segment-missing": "V1-WRITE-SEGMENT-COUNT",
    "returned-too-long": "V1-WRITE-SEGMENT-LENGTH",
    "pad-written": "V1-WRITE-NO-PAD",
}
"""Fault -> the rule of the audit that it breaks."""


def judge(outcome: Outcome) -> Iterator[Check]:
    for fault in ("none", *RULES):
        results = [one for one in lines(outcome.text(f"suite.{fault}.jsonl")) if one["type"] == "probe_check"]
        violated = [one["check"] for one in results if one["verdict"] == "violation"]
        status = outcome.facts["suite", fault, "status"]
        if fault == "none":
            words = ", ".join(violated) or f"it does, {len(results)} checks"
            yield Check("a right server passes the whole suite", words, len(results) > CHECKED and not violated)
            yield equal("its status", "0", status)
        else:
            yield Check(f"the probe finds {fault}", ", ".join(violated) or "nothing", bool(violated))
            yield equal("its status", "1", status)
    audited = lines(command(RDMASCOPE, "audit", "--json", "--fail-on", "NEVER", "--port", "20050", outcome.capture))
    found = {one["rule"] for one in audited if one["type"] == "finding" and one["endpoint"] == "passive"}
    missed = set(RULES.values()) - found
    yield Check("the audit of the wire finds each", f"{missed or 'it does'}", not missed)
