"""The rules broken in other ways, in both versions and over both transports: exactly those are found."""

from __future__ import annotations

import pytest

from playbook import Wire, frame_batch
from playbook.audits import audit, broken_rules
from playbook.iwarp import IwarpCapture, IwarpWire
from playbook.violations import hello, more_variations
from playbook.violations.variations import VARIATIONS, Variation
from rdmascope.dissect.audit.auditor import Auditor
from rdmascope.dissect.rpcrdma.analyzer import Analyzer

assert more_variations.__doc__
CASES = [
    pytest.param(one, version, transport, id=f"{one.play.__name__}-{version}-{transport}")
    for one in VARIATIONS
    for version in one.versions
    for transport in ("rocev2", "iwarp")
]


def audit_iwarp(wire: IwarpWire) -> Auditor:
    auditor = Auditor()
    analyzer = Analyzer(listener=auditor.listener)
    analyzer.feed(frame_batch(IwarpCapture(wire, wire.sent()).frames))
    analyzer.finish()
    auditor.finish(analyzer.conversations)
    return auditor


@pytest.mark.parametrize(("variation", "version", "transport"), CASES)
def test_exactly_the_broken_rules_are_found(variation: Variation, version: int, transport: str) -> None:
    wire = Wire(seed=5) if transport == "rocev2" else IwarpWire(seed=5)
    wire.version = version
    variation.play(wire)
    hello(wire.connections[0])
    auditor = audit_iwarp(wire) if isinstance(wire, IwarpWire) else audit(wire)
    assert broken_rules(auditor) == variation.rules
