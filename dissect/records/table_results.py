"""The tables of what a whole capture comes to: findings and verdicts, credits, places of frames, and nouns in full."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from .table import Table, TableColumn, place_columns

if TYPE_CHECKING:
    from ..audit.auditor import RuleTally, TallyKey  # Tables of RPCs do without, and it takes long to load.
    from ..audit.rule import Rule
    from ..measure.credits import CreditDirection, CreditInterval

SIDES = ("active", "passive")
FILTER = "filter"
"""Kind of the row of details that says which RPCs the tables were saved of, where it was not all."""
RECOGNITION = "recognition"
"""Kind of the one that has the options by which RPCs were recognised, where there were any."""

FINDINGS = Table(
    "findings",
    "finding",
    "a violation that the audit finds, or a note",
    (
        TableColumn("rule", "text", "id of the rule", lambda finding: finding.rule.id),
        TableColumn("level", "text", "MUST, SHOULD or STATED", lambda finding: finding.rule.level.value),
        TableColumn("severity", "text", "error, warning, notice or note", lambda finding: finding.severity),
        TableColumn("connection", "int", "number of the connection", lambda finding: finding.connection.number),
        TableColumn("endpoint", "text", "active or passive", lambda finding: SIDES[finding.endpoint]),
        TableColumn("role", "text", "requester, responder or either", lambda finding: finding.role),
        TableColumn("frame", "int", "its first frame", lambda finding: finding.frames[0] if finding.frames else None),
        TableColumn("time", "time", "when; UTC", lambda finding: finding.time or None),
        TableColumn("time_ns", "int", "the same, in nanoseconds since the Unix epoch",
               lambda finding: finding.time or None),
        TableColumn("rpc", "int", "number of the RPC", lambda finding: finding.rpc),
        TableColumn("xid", "int", "its XID", lambda finding: finding.xid),
        TableColumn("observed", "text", "what was found", lambda finding: finding.observed),
        TableColumn("required", "text", "what the rule requires", lambda finding: finding.required),
        TableColumn("frames", "text", "all its frames, with blanks between",
               lambda finding: " ".join(map(str, finding.frames)) or None),
        *place_columns("", "frame", "its first frame"),
    ),
    order=("frame", "connection", "rule", "endpoint", "rpc"),
)  # fmt: skip


class Verdict(NamedTuple):
    """What a rule found at one end of a connection: the noun of ``verdicts``."""

    place: TallyKey
    rule: Rule
    tally: RuleTally


def _tally(value: Callable[[RuleTally], Any]) -> Callable[[Verdict], Any]:
    return lambda verdict: value(verdict.tally)


VERDICTS = Table(
    "verdicts",
    "verdict",
    "what a rule of the audit found at one end of a connection, where there was something to judge",
    (
        TableColumn("rule", "text", "id of the rule", lambda verdict: verdict.rule.id),
        TableColumn("level", "text", "MUST, SHOULD or STATED", lambda verdict: verdict.rule.level.value),
        TableColumn("connection", "int", "number of the connection; NULL for the sum of evicted ones",
               lambda verdict: verdict.place.connection or None),
        TableColumn("endpoint", "text", "active or passive", lambda verdict: SIDES[verdict.place.endpoint]),
        TableColumn("verdict", "text", "pass, violation or undecidable", _tally(lambda tally: tally.verdict)),
        TableColumn("passed", "int", "how often it passed", _tally(lambda tally: tally.passed)),
        TableColumn("violated", "int", "how often it was violated, notes included",
               _tally(lambda tally: tally.violated)),
        TableColumn("notes", "int", "how many of these are notes, not faults", _tally(lambda tally: tally.notes)),
        TableColumn("undecidable", "int", "how often that could not be decided",
               _tally(lambda tally: tally.undecidable)),
        TableColumn("reasons", "text", "why, and how often, as a JSON object",
               _tally(lambda tally: json.dumps(dict(tally.reasons)) if tally.reasons else None)),
    ),
)  # fmt: skip


EARLIEST = 1 - (1 << 63)
"""Nanoseconds: the first time that a column can hold."""


class _CreditRow(NamedTuple):
    direction: CreditDirection
    time: int
    interval: CreditInterval


def _credit_rows(one: CreditDirection) -> Iterator[_CreditRow]:
    for at, interval in sorted(one.bins.items()):
        yield _CreditRow(one, max(at * one.width, EARLIEST), interval)


CREDITS = Table(
    "credits",
    "credits",
    "an interval of time in which a connection had calls or replies, or was at the limit of its credits",
    (
        TableColumn("connection", "int", "number of the connection", lambda row: row.direction.connection.number),
        TableColumn("direction", "text", "forward (called by the client) or backward",
               lambda row: "backward" if row.direction.backward else "forward"),
        TableColumn("time", "time", "its begin; UTC", lambda row: row.time),
        TableColumn("time_ns", "int", "the same, in nanoseconds since the Unix epoch", lambda row: row.time),
        TableColumn("interval_ns", "int", "its length", lambda row: row.direction.width),
        TableColumn("requested", "int", "highest credit value of calls", lambda row: row.interval.requested),
        TableColumn("granted", "int", "lowest credit value of replies", lambda row: row.interval.granted),
        TableColumn("outstanding", "int", "most calls without a reply at one time",
               lambda row: row.interval.outstanding),
        TableColumn("at_limit_ns", "int", "time with as many calls outstanding as the credits allow",
               lambda row: row.interval.blocked),
    ),
    _credit_rows,
)  # fmt: skip


PLACES = Table(
    "places",
    "place",
    "consecutive frames of one of several files that were read as one capture",
    (
        TableColumn("first_frame", "int", "number of the first, counted over all files", lambda run: run.first),
        TableColumn("last_frame", "int", "number of the last", lambda run: run.last),
        TableColumn("place_file", "text", "path of their file", lambda run: run.file),
        TableColumn("place_frame", "int", "number of the first in that file", lambda run: run.frame),
    ),
)


class Detail(NamedTuple):
    """The noun of ``details``."""

    kind: str
    number: int | None
    noun: object


def _json(noun: object) -> str:
    from .details import to_json  # Only here: few tables take it.

    return to_json(noun)


DETAILS = Table(
    "details",
    "detail",
    "a connection, the health of its transport or another noun in full, for commands that read saved tables",
    (
        TableColumn("kind", "text", "what it is", lambda detail: detail.kind),
        TableColumn("number", "int", "its number", lambda detail: detail.number),
        TableColumn("content", "text", "JSON; its names change from version to version of the program",
               lambda detail: _json(detail.noun)),
    ),
)  # fmt: skip

RESULT_TABLES = (FINDINGS, VERDICTS, CREDITS, PLACES, DETAILS)
