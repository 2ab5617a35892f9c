"""Verdicts as lines are the verdicts as records."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from playbook.samples import MANIFEST, SAMPLES
from rdmascope.captures.session.session import Session
from rdmascope.dissect.audit.auditor import Auditor, Result, side
from rdmascope.dissect.records.audit import _rule_fields, verdict_fields, verdict_lines
from rdmascope.dissect.records.schema import Record, record


def verdict_records(result: Result) -> Iterator[Record]:
    """Every rule at every end."""
    for row in result.rows():
        yield record(
            "verdict",
            **_rule_fields(row.rule),
            connection=row.connection.number,
            endpoint=side(row.endpoint),
            address=str(row.connection.endpoints[row.endpoint]),
            **verdict_fields(row.rule, row.tally, True),
        )


@pytest.mark.parametrize("name", ["rxe-nfs-all", "siw-nfs-all", "v2-settles"])
def test_lines_are_the_records_of_every_rule_at_every_end(name: str) -> None:
    session = Session(str(SAMPLES / MANIFEST[name]["file"]))
    auditor = Auditor(examples=3)
    result = Result("a file", auditor, session.audit(auditor))
    records = [{**one, "file": "“a” file"} for one in verdict_records(result)]
    assert [json.loads(line) for line in verdict_lines(result, file="“a” file")] == records
    assert len(records) == 2 * len(result.connections) * len(auditor.rules)
    assert {one["verdict"] for one in records} >= {"pass", "not applicable", "not judged"}
