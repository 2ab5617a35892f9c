"""The rules broken in other ways, in both versions and over both transports: exactly those are found."""

from __future__ import annotations

import pytest

from playbook import Wire
from playbook.audits import audit, audit_segments, broken_rules
from playbook.iwarp import IwarpWire
from playbook.violations import clients, hello, more_variations, near_misses
from playbook.violations.variations import VARIATIONS, Variation

assert clients.__doc__ and more_variations.__doc__ and near_misses.__doc__
CASES = [
    pytest.param(one, version, transport, id=f"{one.play.__name__}-{version}-{transport}")
    for one in VARIATIONS
    for version in one.versions
    for transport in ("rocev2", "iwarp")
]


@pytest.mark.parametrize(("variation", "version", "transport"), CASES)
def test_exactly_the_broken_rules_are_found(variation: Variation, version: int, transport: str) -> None:
    wire = Wire(seed=5) if transport == "rocev2" else IwarpWire(seed=5)
    wire.version = version
    variation.play(wire)
    hello(wire.connections[0])
    auditor = audit_segments(wire) if isinstance(wire, IwarpWire) else audit(wire)
    assert broken_rules(auditor) == variation.rules
