"""The targets of ``make fuzz`` on what they begin with, and on what once did harm: no target raises."""

from __future__ import annotations

import pytest

from fuzz.target import FOUND
from fuzz.targets import TARGETS

FEW = 12
"""Seeds of each target; fuzzing itself begins with all of them."""


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_takes_its_seeds_and_what_was_found(name: str) -> None:
    seeds = list(TARGETS[name].seeds())
    assert seeds
    found = [path.read_bytes() for path in sorted((FOUND / name).glob("*"))]
    for one in seeds[:: len(seeds) // FEW + 1] + found:
        TARGETS[name].run(one)
