"""Our requester and our responder speak version 2 over real devices: audited clean, and every check passes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ..evidence import RDMASCOPE, Check, command, equal, lines, records
from ..guests import Outcome

DEADLINE = 600


def judge(outcome: Outcome) -> Iterator[Check]:
    echo = lines((outcome.folder / "echo.jsonl").read_text())
    bulk = [one["problem"] for one in echo if one["type"] == "probe_echo"]
    yield equal("bulk data there and back", [None] * 3, bulk)
    for number in (1, 2, 3):
        last = lines((outcome.folder / f"several.{number}.jsonl").read_text())[-1]
        yield equal(f"replies to client {number} of several", 5, last["replies"])
    suite = lines((outcome.folder / "suite.jsonl").read_text())
    verdicts = Counter(one["verdict"] for one in suite if one["type"] == "probe_check")
    verdicts.pop("not applicable", None)
    yield equal("verdicts of the suite", ["pass"], list(verdicts))
    served = lines((outcome.folder / "serve.jsonl").read_text())[-1]
    yield Check("the server ended when it was asked to", served["type"], served["type"] == "probe_served")

    connections = [one for one in records(outcome, "report") if one["type"] == "connection"]
    second = [one for one in connections if (one["negotiation"] or {}).get("version") == 2]
    yield Check("connections of version 2", str(len(second)), len(second) >= 8)
    found: Counter[str] = Counter()
    used = [one for one in connections if one["rpcs"]]
    for connection in used[:8]:  # two of the first client, and two of each of the three: the suite comes later
        only = "--connection", str(connection["number"])
        judged = command(RDMASCOPE, "audit", "--json", "--fail-on", "NEVER", *only, outcome.capture)
        found += Counter(one["rule"] for one in lines(judged) if one["type"] == "finding")
    for rule in ("V1-NO-BINDING", "V1-REPLY-NO-BINDING"):
        found.pop(rule, None)  # the echo program has none, nor has the version that asks for the range
    yield Check("no rule broken", ", ".join(found) or "none", not found)
