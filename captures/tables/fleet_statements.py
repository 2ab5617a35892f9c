"""What the diagnosis of each capture of a data set says, kept as rows, and what these come to over all of them."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

from rdmascope.dissect.diagnosis.facts import Cause, Diagnosis, Severity, all_detectors, ranked
from rdmascope.dissect.named_tuple import NamedTuple
from rdmascope.dissect.units import duration, moment, plural

from ..session.diagnosis_pass import diagnosis_of
from .database import Database
from .saved_session import open_saved_session

WEEK = 7 * 86_400 * 10**9
"""Nanoseconds before the end of a data set in which something is new."""
EXAMPLES = 5
"""Hosts that are listed with a statement."""


def statement_rows(path: str) -> Iterator[tuple[object, ...]]:
    """The diagnosis of the capture whose tables are at a path, as rows of ``STATEMENT_COLUMNS`` but for the last
    two."""
    session = open_saved_session(path)
    for statement in diagnosis_of(session).statements:
        cause, ends = statement.cause, ("", "")
        for connection in session.analyzer.connections:
            if connection.number in cause.connections[:1]:
                ends = connection.endpoints[0].address, connection.endpoints[1].address
        yield (
            statement.kind,
            statement.severity.value,
            statement.title,
            cause.text,
            cause.count,
            cause.since,
            cause.lost,
            *ends,
            json.dumps(asdict(cause), separators=(",", ":")),
        )


class _SaidOfHost(NamedTuple):
    """Statements of one kind on the captures of a host."""

    kind: str
    host: str
    captures: int
    times: int
    lost: int | None
    since: int
    client: str
    """This and the next two: of the worst."""
    server: str
    content: str

    def cause(self) -> Cause:
        values = json.loads(self.content)
        listed: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
        }
        return Cause(**{**listed, "severity": Severity(values["severity"])})

    def words(self) -> str:
        """'web2, 10.0.0.5 to 10.0.0.1: since …, in 3 captures, 61.8 s: 8 calls without a reply'."""
        ends = f", {self.client} to {self.server}" if self.client else ""
        waited = f", {duration(self.lost)}" if self.lost else ""
        since = f"since {moment(self.since)}, in {plural(self.captures, 'capture')}"
        return f"{self.host}{ends}: {since}{waited}: {self.cause().text}"


_BY_HOST = """
    SELECT kind, statements.host, count(*), CAST(sum(count) AS BIGINT), CAST(sum(lost_ns) AS BIGINT) AS lost,
        min(coalesce(since_ns, first_time_ns)) AS since, arg_max(client, weight), arg_max(server, weight),
        arg_max(content, weight)
    FROM (SELECT *, (coalesce(lost_ns, 0), count, capture) AS weight FROM statements) AS statements
    JOIN (SELECT capture, first_time_ns FROM entries) USING (capture) WHERE {}
    GROUP BY ALL ORDER BY coalesce(lost, 0) DESC, since, statements.host
"""


def diagnosis_of_captures(
    database: Database, calls: str, kinds: Collection[str] = (), of_all: bool = True
) -> Diagnosis:
    """The diagnoses of all captures that some calls are of, those of one kind as one statement: on which hosts, since
    when, and where it is new this week.

    ``calls``: rows of the table calls; ``of_all``: of captures without calls, too.
    """
    query = database.connection.execute
    of_captures = "true" if of_all else f"capture IN (SELECT DISTINCT capture FROM {calls})"
    said: dict[str, list[_SaidOfHost]] = defaultdict(list)
    for row in query(_BY_HOST.format(of_captures)).fetchall():
        said[row[0]].append(_SaidOfHost(*row))
    ((waiting, connections),) = query(
        f"SELECT (SELECT coalesce(sum(total_ns), 0) FROM {calls}), (SELECT count(*) FROM connections)"
    ).fetchall()
    ((first, last),) = query("SELECT min(first_time_ns), max(last_time_ns) FROM entries").fetchall()
    recent = last - WEEK if last - first > WEEK else None
    known = all_detectors()
    statements = [(known[kind], _joined(some, recent)) for kind, some in said.items() if kind in (kinds or known)]
    return ranked(statements, int(waiting), connections)


def _joined(said: Sequence[_SaidOfHost], recent: int | None) -> Cause:
    """What is said of captures, the worst host first, as one cause; ``recent``: nanoseconds from which on it is new."""
    worst, captures = said[0].cause(), sum(statement.captures for statement in said)
    fresh = [statement.host for statement in said if recent is not None and statement.since >= recent]
    if captures == 1:
        return replace(worst, evidence=(f"on host {said[0].host}{', new this week' if fresh else ''}", *worst.evidence))
    evidence = [statement.words() for statement in said[:EXAMPLES]]
    evidence += [f"and {plural(len(said) - EXAMPLES, 'more host')}"] if len(said) > EXAMPLES else []
    evidence += [f"new this week: {_listed(fresh)}"] if fresh else []
    lost = [statement.lost for statement in said if statement.lost is not None]
    where = f"on {plural(len(said), 'host')}, in {plural(captures, 'capture')}"
    return replace(
        worst,
        text=f"{where}; the worst on {said[0].host}: {worst.text}",
        count=sum(statement.times for statement in said),
        share=None,
        share_of="",
        since=min(statement.since for statement in said),
        evidence=tuple(evidence),
        lost=sum(lost) if lost else None,
        headline=worst.headline and f"{said[0].host}: {worst.headline}",
    )


def _listed(hosts: Iterable[str]) -> str:
    names = sorted(hosts)
    more = f" and {len(names) - EXAMPLES:,} more" if len(names) > EXAMPLES else ""
    return ", ".join(names[:EXAMPLES]) + more
