"""Linux mounts the export of "probe --serve" by NFSv4.1 and NFSv3: checksums equal, and the audit is clean."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import md5

from rdmascope.captures.peer.endpoint.service import pattern
from rdmascope.captures.peer.nfs_server.export import PATTERN_SIZE

from ..evidence import OF_CLIENTS, Check, audited, checksums, client_counters, equal, lines, unanswered, wireshark
from ..guests import Outcome

KERNELS: list[dict[str, str]] = [{}, {"client": "6.12"}]
DEADLINE = 600
VERSIONS = ["3", "4.1"]
PADDED = ("V1-WRITE-EXTRA",)
"""Linux's client adds a segment for the pad to a Write chunk of a length that is no multiple of four."""


def judge(outcome: Outcome) -> Iterator[Check]:
    known, odd = (md5(pattern(0, size)).hexdigest() for size in (PATTERN_SIZE, 3 * 100_001))
    expected = {
        "read": [outcome.facts["md5", f"/w{version}"] for version in VERSIONS],
        "known": [known] * 2,
        "listed": ["60"] * 2,
        "odd": [odd] * 2,
        "appended": ["one two "] * 2,
        "stat": ["3 600 2 one"] * 2,
        "full": ["1 1"] * 2,
        "left": ["pattern w3 w4.1 ", "pattern w4.1 "],
    }
    for what, values in expected.items():
        found = outcome.those(what)
        yield equal(f"{what}, by version", dict(zip(VERSIONS, values, strict=True)), dict(sorted(found.items())))
    *_, last = lines(outcome.text("serve.jsonl"))
    yield Check("the server ended when it was asked to", last["type"], last["type"] == "probe_served")
    yield from checksums(outcome, without=["/r1m"])
    yield from client_counters(outcome)
    yield from unanswered(outcome)
    yield from wireshark(outcome)
    yield from audited(outcome, known=OF_CLIENTS + PADDED)
