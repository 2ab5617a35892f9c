"""RPCSEC_GSS: reads and writes with sec=krb5 and krb5i over NFSv3 and 4.2."""

from __future__ import annotations

from collections.abc import Iterator

from ..evidence import Check, always, checksums, equal
from ..guests import Outcome

DEADLINE = 300


def judge(outcome: Outcome) -> Iterator[Check]:
    yield equal(
        "mounts that read r1m whole", 4, list(outcome.those("read").values()).count(outcome.facts["md5", "/r1m"])
    )
    yield from checksums(outcome)
    yield from always(outcome)
