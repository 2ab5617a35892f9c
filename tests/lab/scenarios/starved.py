"""One thing after the other is scarce in the hosts: each is named, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator

from ..evidence import RDMASCOPE, Check, command, lines
from ..guests import Outcome

TRANSPORTS = ("rxe",)
DEADLINE = 600

EMULATED = "slow-network"
"""Where the host is busy, so it is: each frame is carried by two emulators."""
PARTS = {
    "healthy": None,
    "slots": "no-slots",
    "credits": "credit-wait",
    "threads": "no-threads",
    "disk": "slow-file-system",
    "registrations": "no-registrations",
}


def judge(outcome: Outcome) -> Iterator[Check]:
    for part, kind in PARTS.items():
        sides = [outcome.folder / f"{part}.{side}.txt" for side in ("client", "server")]
        found = lines(command(RDMASCOPE, "diagnose", "--json", "--fail-on", "never", *sides))
        kinds = [one["kind"] for one in found if one["kind"] != EMULATED]
        wanted = [kind] if kind else []
        yield Check(f"{part}: {kind or 'nothing'}, alone", ", ".join(kinds) or "nothing", kinds == wanted)
