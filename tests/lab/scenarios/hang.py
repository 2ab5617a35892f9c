"""A healthy mount, one that is refused, and a server whose kernel dies: the first line names what hangs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..evidence import RDMASCOPE, Check, command, diagnosed, parts
from ..guests import Outcome

PARTS = "healthy", "refused", "killed"


def judge(outcome: Outcome) -> Iterator[Check]:
    captures = dict(parts(outcome, PARTS))
    yield Check("all parts", ", ".join(captures), captures.keys() == set(PARTS))
    found = {name: diagnosed(part) for name, part in captures.items()}
    yield Check("healthy: nothing", ", ".join(found["healthy"]) or "nothing", not found["healthy"])
    refused = outcome.facts["refused",]
    yield Check("the mount on a port that nobody listens on fails", f"status {refused}", refused != "0")
    kinds = ", ".join(found["refused"])
    yield Check("refused: connections-refused, alone", kinds, kinds == "connections-refused")
    kinds = next(iter(found["killed"]), "nothing")
    yield Check("killed: host-silent, before all else", kinds, kinds == "host-silent")
    for name in ("report", "diagnose"):
        words = () if name == "report" else ("--fail-on", "never")
        first = " ".join(command(RDMASCOPE, name, captures["killed"], *words).split()[:60])
        hangs = re.match(r"LOOKUP /export/made/last \(RPC \d+\) (has )?hung ", first) is not None
        yield Check(f"{name}: the first line names the LOOKUP that hangs", first[:130], hangs)
        yield Check(f"{name}: and says when the server last spoke", first[:130], "the server last spoke at" in first)
