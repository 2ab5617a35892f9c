"""What a report says of a data set, summed in SQL: no RPC becomes an object, and no connection but the busiest."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from rdmascope.dissect.arrays import Int64s
from rdmascope.dissect.diagnosis.facts import Diagnosis, Facts, Gathered
from rdmascope.dissect.measure.call_groups import CallColumns
from rdmascope.dissect.measure.comparison import ProcedureCalls, Run, labels, settings
from rdmascope.dissect.measure.statistics import PARTS, Share, SlowRpc, Statistics, key_of_names
from rdmascope.dissect.named_tuple import NamedTuple
from rdmascope.dissect.onc.rpc_header import NFS
from rdmascope.dissect.percentiles import Samples
from rdmascope.dissect.records.rpc_columns import Columns, named, quoted, tuples
from rdmascope.dissect.records.tables import SIDES
from rdmascope.dissect.rpcrdma.conversation import ENDS
from rdmascope.dissect.rpcrdma.eviction import Evicted
from rdmascope.dissect.rpcrdma.rpc_table import ProcedureNames, RpcNames
from rdmascope.dissect.rpcrdma.rpcs import Latency

from ..session.comparison import RunFacts
from .condition import Condition, all_of
from .database import Database, named_columns
from .fleet_statements import diagnosis_of_captures
from .saved_session import DataSetSession
from .saved_tables import (
    ALIKE,
    BINS,
    CALLS,
    CAPTURES,
    EACH_CALL,
    EACH_TRANSFER,
    MINUTE,
    PART_SUMS,
    TRANSFERS,
    DataSet,
    added_calls,
    added_transfers,
    open_saved,
)

Noun = TypeVar("Noun")

FEW_CAPTURES, FEW_RPCS = 100, 1 << 18
"""Up to so many captures with up to so many RPCs are reported from their rows, with all connections."""
EXACT = 1 << 15
"""RPCs that keep their own latencies and times; of more, those that took nearly as long are counted together."""
MOMENTS = 1024
"""Equal intervals of the whole time that are told apart."""
TOGETHER = 1 << 17
"""Sums that are taken at a time, but for those that are alike."""
BUSIEST = 100
"""Connections that are listed."""
_NAMES = ("program_number", "version", "minor_version", "procedure_number", "operations", "procedure")
_NO_REPLY_AGAIN = "state <> 'duplicate reply'"
_EVICTED = """
    SELECT count(*), count_if(protocol = 'rpcrdma'), count_if(protocol = 'rpc'),
        sum(client_packets + server_packets), sum(client_bytes + server_bytes),
        sum(client_retransmitted_packets + server_retransmitted_packets),
        sum(client_missing_packets + server_missing_packets)
    FROM connections WHERE NOT list_contains(?, number)
"""
_EVICTED_SUMS = "connections carriers tcp packets bytes retransmitted_packets missing_packets".split()  # noqa: SIM905
_BUSIEST = """
    SELECT number FROM connections LEFT JOIN (SELECT connection, sum(counted) AS calls FROM {} GROUP BY ALL)
    ON connection = number ORDER BY calls DESC NULLS LAST, number LIMIT ?
"""
_UNKNOWN_SUMS = "SELECT count(*) FROM entries WHERE rpcs > 0 AND capture NOT IN (SELECT capture FROM calls)"
_SHARES = """
    SELECT list_contains(?, connection), if(list_contains(?, connection), connection, 0), sum(counted),
        sum(counted) FILTER (direction = 'backward'), sum(counted) FILTER (failed), sum(call_bytes), sum(reply_bytes)
    FROM {} GROUP BY ALL
"""
_SLOWEST = """
    SELECT waiting_ns, latency_ns, {}, number, connection, xid, program_number, version, minor_version,
        procedure_number, operations, procedure, direction, state, status, call_frame, reply_frame, call_bytes,
        reply_bytes, retransmitted_packets
    FROM rpcs WHERE {} ORDER BY waiting_ns DESC, number LIMIT ?
"""
_REASONS = "SELECT {0}, sum(counted) FROM {1} WHERE len({0}) > 0 GROUP BY ALL ORDER BY min(number)"


_HOSTS = """
    WITH cells AS (
        SELECT host, minute // {1} AS part, bin, sum(counted) AS counted, max(high_ns) AS high, sum(total_ns) AS total,
            sum(counted) FILTER (failed) AS failed
        FROM {0} WHERE {2} GROUP BY ALL
    ), ranked AS (
        SELECT *, sum(counted) OVER (PARTITION BY host, part ORDER BY bin) AS below,
            sum(counted) OVER (PARTITION BY host, part) AS whole
        FROM cells WHERE bin IS NOT NULL
    )
    SELECT host, part * {1} * 60000000000, CAST(any_value(whole) AS BIGINT), CAST(coalesce(sum(failed), 0) AS BIGINT),
        CAST(sum(total) AS BIGINT), min(high) FILTER (below * 100 >= whole * 99)
    FROM ranked GROUP BY host, part ORDER BY host, part
"""


class HostInterval(NamedTuple):
    """The RPCs of a host that began in an interval and whose waiting time is known."""

    host: str
    begin: int
    """Nanoseconds since the Unix epoch."""
    calls: int
    errors: int
    """Replies that report an error."""
    waited: int
    """Nanoseconds that all calls waited together."""
    p99: int
    """Nanoseconds within which 99 % of them are, to 2 %."""


class SummedRows(NamedTuple):
    """What the RPCs that pass a condition are added up from, in SQL."""

    calls: str
    """Rows of calls, or single RPCs."""
    transfers: str
    """A query for the transfers that carried their payloads."""
    each: bool
    """Each RPC keeps its own latency and time."""

    @property
    def kept(self) -> bool:
        """They are the sums of captures."""
        return not self.each and f"FROM {CALLS} " in self.calls


def summed_calls(
    database: Database, rows: SummedRows, keys: Sequence[str], widths: Sequence[tuple[int, int]], of_procedures: bool
) -> Iterator[tuple[CallColumns, Columns]]:
    """RPCs in columns, some at a time, whose ``rows`` are those of the columns behind: what they have in common.

    But for ``rows.each`` those become one that have these columns alike, began in the same intervals, and took nearly
    as long; the shortest and the longest stay what they are.  ``of_procedures``: what is called is told apart, too.
    """
    query = database.connection.execute
    named_by = (*_NAMES, "direction") if of_procedures or rows.each else ()
    same = [*map(named, dict.fromkeys((*named_by, *keys, "known", "wrong", "incomplete")))]
    spans = {f"span{at}": f"(time_ns - {begin}) // {width}" for at, (begin, width) in enumerate(widths)}
    beside = "".join(f", {text} AS {name}" for name, text in spans.items())
    meant = f"""(
        SELECT *, coalesce(failed, false) AS wrong, state NOT IN ('complete', 'error') AS incomplete,
            {"number" if rows.each else "bin"} AS apart{beside} FROM {rows.calls} WHERE {_NO_REPLY_AGAIN}
    )"""
    query(f"""
        CREATE OR REPLACE TEMP TABLE kinds AS SELECT row_number() OVER (ORDER BY first) - 1 AS kind, *
        FROM (SELECT {", ".join(same)}, min(number) AS first, count(*) AS length FROM {meant} GROUP BY ALL)
    """)
    kinds = {
        name: tuples(np.ma.asarray(values)) for name, values in query("FROM kinds ORDER BY kind").fetchnumpy().items()
    }
    names = RpcNames()
    procedures = np.array(
        [
            names.procedure(_called(called)) << 1 | (backward == "backward")
            for backward, *called in zip(*(kinds[name].tolist() for name in ("direction", *_NAMES)), strict=True)
        ]
        if named_by
        else [names.procedure(ProcedureNames(None, None, None, None, (), "")) << 1] * len(kinds["kind"]),
        np.int64,
    )
    joined = " AND ".join(f"one.{name} IS NOT DISTINCT FROM kinds.{name}" for name in same)
    behind = kinds["length"].data.cumsum()
    begin = 0
    while begin < len(behind):
        end = max(begin + 1, int(behind.searchsorted(behind[begin] + TOGETHER)))
        there = f"{meant} AS one JOIN (FROM kinds WHERE kind >= {begin} AND kind < {end}) AS kinds ON {joined}"
        sums = query(f"{added_calls(there, ('kind', *spans, 'apart'))} ORDER BY number").fetchnumpy()
        for at in range(0, len(sums["number"]), TOGETHER):
            some = {name: values[at : at + TOGETHER] for name, values in sums.items()}
            yield _call_columns(some, kinds, procedures, names), kinds
        begin = end


def _call_columns(sums: Mapping[str, NDArray[Any]], kinds: Columns, procedures: Int64s, names: RpcNames) -> CallColumns:
    """RPCs of sums: of each the shortest, the longest, and the others as one."""
    counted, parts = sums["counted"], np.column_stack([sums[part] for part in PART_SUMS])
    low, high, total = (np.ma.asarray(sums[f"{name}_ns"]).filled(-1) for name in ("low", "high", "total"))
    several, many = np.flatnonzero(counted > 1), np.flatnonzero(counted > 2)
    at = np.concatenate((np.arange(len(counted)), several, many))
    first = np.arange(len(at)) < len(counted)
    rest = (total[many] - low[many] - high[many]) // (counted[many] - 2)
    waited = np.concatenate((low, high[several], np.where(low[many] < 0, -1, rest)))
    counts = np.concatenate((np.ones(len(counted) + len(several), np.int64), counted[many] - 2))
    means = parts // counted[:, np.newaxis]
    parts -= means * (counted - 1)[:, np.newaxis]
    kind = sums["kind"][at]
    return CallColumns(
        kind,
        sums["number"][at],
        sums["time_ns"][at],
        np.where(kinds["known"].data[kind], waited, -1),
        waited,
        np.concatenate((parts, means[several], means[many] * (counted[many] - 2)[:, np.newaxis])),
        sums["call_bytes"][at] * first,
        sums["reply_bytes"][at] * first,
        kinds["wrong"].data[kind],
        kinds["incomplete"].data[kind],
        procedures[kind],
        names,
        counts,
    )


def _called(row: Sequence[Any]) -> ProcedureNames:
    program, version, minor_version, procedure, operations, name = row
    return ProcedureNames(program, version, minor_version, procedure, tuple(operations or ()), name or "")


def summed_session(path: str, condition: Condition | None, always: bool) -> SummedSession | None:
    """A session that answers from the sums of a data set; None where few RPCs are read faster, unless ``always``."""
    snapshot = DataSet(path).snapshot()
    captures, rpcs = (sum(data_file.rows for data_file in snapshot.of(name)) for name in (CAPTURES, "rpcs"))
    many = captures > FEW_CAPTURES or rpcs > FEW_RPCS
    return SummedSession(path, condition) if always or many else None


def _count_procedures(statistics: Statistics, calls: CallColumns, columns: Columns) -> None:
    order = calls.rows.argsort(kind="stable")
    alike = calls.rows[order]
    begins = np.flatnonzero(np.diff(alike, prepend=-1)).tolist()
    for begin, end in pairwise((*begins, len(order))):
        rows, kind = order[begin:end], alike[begin]
        counts, known = calls.counts[rows], calls.latencies[rows] >= 0
        waits = ~known & (calls.waiting[rows] >= 0)
        procedure = int(calls.procedures[rows[0]])
        statistics.add_sums(
            key_of_names(calls.names.procedures[procedure >> 1], procedure & 1 == 1),
            columns["state"].data[kind],
            columns["status"].filled("")[kind],
            bool(calls.failed[rows[0]]),
            (int(calls.call_bytes[rows].sum()), int(calls.reply_bytes[rows].sum())),
            (calls.latencies[rows[known]], counts[known]),
            (calls.waiting[rows[waits]], counts[waits]),
            int(counts[~(known | waits)].sum()),
            calls.parts[rows[known]],
        )


class SummedSession(DataSetSession):
    """A data set of which the busiest connections alone are looked at one by one; the others are sums.

    With a condition on times it is of those days alone whose captures may have such RPCs.
    """

    def __init__(self, path: str, condition: Condition | None = None) -> None:
        self._condition = condition or Condition()
        self._all = condition is None
        self._database = open_saved(path, span=self._condition.span)
        files = DataSet(path).snapshot().of(CAPTURES)
        self._captures = sum(file.rows for file in files)
        self._begin = min((file.first_time_ns for file in files), default=0)
        query = self._database.connection.execute
        self._summed = not query(_UNKNOWN_SUMS).fetchall()[0][0]
        calls = CALLS if self._summed else EACH_CALL.format("true")
        self._busiest = [number for (number,) in query(_BUSIEST.format(calls), [BUSIEST]).fetchall()]
        super().__init__(path)
        sums = [int(total or 0) for total in query(_EVICTED, [self._busiest]).fetchall()[0]]
        self.analyzer.evicted.add_sums(Evicted(**dict(zip(_EVICTED_SUMS, sums, strict=True))))
        self._answered = self._summed and self._of_sums()
        calls = CALLS if self._answered else EACH_CALL.format("true")
        of = f"SELECT sum(counted) FILTER ({self._sql}), sum(counted) FROM {calls}"
        self._passed, self._tried = (int(total or 0) for total in query(of).fetchall()[0])

    def close(self) -> None:
        """Give up its tables."""
        self._database.close()

    def _open(self) -> AbstractContextManager[Database]:
        return nullcontext(self._database)

    def _details(self, database: Database, kind: str, noun: type[Noun]) -> list[Noun]:
        if kind in ("conversation", "health"):
            return self._of_rows(database, kind, noun, "list_contains(?, number + connections_before)", [self._busiest])
        return super()._details(database, kind, noun)

    def summed_calls(
        self, columns: Sequence[str], widths: Sequence[tuple[int, int]], of_time: bool, of_procedures: bool
    ) -> Iterator[tuple[CallColumns, Columns]]:
        self._count()
        each = [(self.first_time, max(1, self._span // MOMENTS))] if of_time else []
        alike = {*columns} <= {*ALIKE} and all(begin % MINUTE == width % MINUTE == 0 for begin, width in widths)
        return summed_calls(self._database, self._rows(of_time, alike), columns, [*each, *widths], of_procedures)

    def _rows(self, of_time: bool = False, alike: bool = True) -> SummedRows:
        """What answers a question: the sums of captures, but for few RPCs, and for what these do not tell.

        ``of_time``: it is about parts of the whole time; ``alike``: only about columns in which the RPCs of sums are.
        """
        each = self._passed <= EXACT
        if not self._answered or each or not alike or (of_time and self._span < MOMENTS * MINUTE):
            return SummedRows(EACH_CALL.format(self._sql), EACH_TRANSFER.format(self._sql), each)
        return SummedRows(f"(FROM {CALLS} WHERE {self._sql})", f"(FROM {TRANSFERS} WHERE {self._sql})", each)

    def _of_sums(self) -> bool:
        """Whether the sums of captures tell which RPCs pass."""
        condition = self._condition
        if any(moment is not None and moment.absolute(self._begin) % MINUTE for moment in condition.span):
            return False
        others = [*condition.given, *replace(condition.filters, since=None, until=None).conditions(self._begin)]
        text = f"SELECT 1 FROM rpcs WHERE {all_of(others)}"
        asked = named_columns(self._database.connection, text, True).get("rpcs")
        return asked is not None and {*asked} <= {*ALIKE}

    def _count(self) -> None:
        """Note how many RPCs pass.  Raises CaptureError where none does."""
        condition = self._condition
        condition.passed, condition.tried = self._passed, self._tried
        if condition.passed or self._all:
            return
        if self._captures > FEW_CAPTURES:
            self.refuse(condition.nothing_passed())
        session = DataSetSession(self.paths[0])
        for table in session.tables():  # Those who look at each say why.
            condition.mask(table, session)
        session.refuse(condition.problem(session))

    @property
    def _span(self) -> int:
        return (self.analyzer.last_time or 0) - (self.analyzer.first_time or 0)

    @property
    def _sql(self) -> str:
        return self._condition.sql(self._begin)

    def facts(self, top: int) -> Facts:
        """What a report takes, of the RPCs that pass; without what only detectors look at."""
        self._count()
        gathered = Gathered(top)
        gathered.statistics = self._statistics(self._database, top)
        return gathered.facts(self.analyzer, "" if self.damage is None else str(self.damage))

    def diagnosis(self, kinds: Collection[str] = ()) -> Diagnosis:
        """What the diagnoses of its captures come to, of those that have RPCs which pass; of these kinds, or all."""
        self._count()
        return diagnosis_of_captures(self._database, self._rows().calls, kinds, self._all)

    def hosts_over_time(self, count: int) -> tuple[int, list[HostInterval]]:
        """Nanoseconds of equal intervals, whole hours and at most ``count``; and what each host did in each."""
        hours = 1 + self._span // (3600 * 10**9 * (count - 1))
        query = _HOSTS.format(self._rows().calls, hours * 60, _NO_REPLY_AGAIN)
        rows = self._database.connection.execute(query).fetchall()
        return hours * 3600 * 10**9, [HostInterval(*row) for row in rows]

    def compared(self, name: str) -> RunFacts:
        """The RPCs that pass, as one of two runs; of settings those of the connections that are listed."""
        self._count()
        query, rows = self._database.connection.execute, self._rows()
        used = {number for (number,) in query(f"SELECT DISTINCT connection FROM {rows.calls}").fetchall()}
        ((begin, end),) = query(f"SELECT min(time_ns), max(ended_ns) FROM {rows.calls}").fetchall()
        transports = query(
            "SELECT transport FROM connections WHERE number IN"
            f" (SELECT connection FROM {rows.calls} WHERE program_number = {NFS}) GROUP BY 1 ORDER BY min(number)"
        ).fetchall()
        broken = query(
            "SELECT rule, endpoint, CAST(sum(violated - notes) AS BIGINT) AS faults FROM verdicts"
            f" WHERE capture IN (SELECT capture FROM {rows.calls}) GROUP BY ALL HAVING faults > 0"
        ).fetchall()
        return RunFacts(
            name,
            (end - begin) / 1e9,
            self._called(rows),
            self.diagnosis().statements,
            settings(
                conversation for conversation in self.analyzer.conversations if conversation.connection.number in used
            ),
            Counter({(rule, ENDS[SIDES.index(endpoint)]): faults for rule, endpoint, faults in broken}),
            [transport for (transport,) in transports],
        )

    def _called(self, rows: SummedRows) -> dict[str, ProcedureCalls]:
        """The sums of calls by procedure, as the report shows them."""
        inline = added_transfers(f"{rows.transfers} WHERE starts_with(way, 'inline')", (*_NAMES, "direction"))
        there = self._database.connection.execute(inline).fetchnumpy()
        columns = {name: tuples(np.ma.asarray(values)) for name, values in there.items()}
        of = labels(columns)
        in_messages = dict(zip(of.names, np.bincount(of.codes, columns["moved_bytes"].data).tolist(), strict=True))
        parts: dict[str, list[CallColumns]] = defaultdict(list)
        for calls, kinds in summed_calls(self._database, rows, (), (), True):
            of = labels(kinds)
            for code in np.unique(of.codes[calls.rows]).tolist():
                parts[of.names[code]].append(calls.taken(np.flatnonzero(of.codes[calls.rows] == code)))
        procedures = {}
        for name, some in parts.items():
            counts, latencies = (
                np.concatenate([getattr(calls, key) for calls in some]) for key in ("counts", "latencies")
            )
            sent = sum(int(calls.call_bytes.sum()) for calls in some)
            answered = sum(int(calls.reply_bytes.sum()) for calls in some)
            failed = sum(int(calls.counts[calls.failed].sum()) for calls in some)
            known = latencies >= 0
            samples = Samples()
            samples.add(latencies[known], counts[known])
            chunks = sent + answered - int(in_messages.get(name, 0))
            run = Run(int(counts.sum()), failed, samples.distribution(), sent, answered, chunks)
            order = latencies[known]
            if not rows.each:  # Means of what was counted together are not those of another run.
                order = np.floor(BINS * np.log2(np.maximum(order, 1))).astype(np.int64)
            procedures[name] = ProcedureCalls(run, order, counts[known])
        return procedures

    def _statistics(self, database: Database, top: int) -> Statistics:
        statistics, rows = Statistics(top), self._rows()
        for calls, columns in summed_calls(database, rows, ("state", "status"), (), True):
            _count_procedures(statistics, calls, columns)
        query = database.connection.execute
        meant = f"(FROM {rows.calls} WHERE {_NO_REPLY_AGAIN})"
        for listed, number, *sums in query(_SHARES.format(meant), [self._busiest] * 2).fetchall():
            share = Share(*(int(value or 0) for value in sums))
            if listed:
                statistics.connections[number] = share
            else:
                statistics.evicted = share
        self._add_slowest(statistics, rows, top)
        for way, _, *sums in query(added_transfers(f"{rows.transfers} WHERE {_NO_REPLY_AGAIN}", ())).fetchall():
            totals = statistics.transfers[way]
            for name, value in zip(totals.__slots__, sums, strict=True):
                setattr(totals, name, value)
        for reasons, name in ((statistics.damage, "damage"), (statistics.notes, "notes")):
            for texts, count in query(_REASONS.format(name, rows.calls)).fetchall():
                reasons.add(texts, int(count))
        truncated, again = f"contents = 'truncated' AND {_NO_REPLY_AGAIN}", f"NOT {_NO_REPLY_AGAIN}"
        counts = ", ".join(f"sum(counted) FILTER ({value})" for value in (truncated, again))
        ((*others,),) = query(f"SELECT {counts} FROM {rows.calls}").fetchall()
        statistics.truncated, statistics.duplicate_replies = (int(value or 0) for value in others)
        width = max(1, self._span // MOMENTS)
        ended = query(
            f"SELECT ended_ns // {width} * {width}, sum(counted), sum(coalesce(call_bytes, 0)),"
            f" sum(coalesce(reply_bytes, 0)) FROM {self._rows(of_time=True).calls} WHERE {_NO_REPLY_AGAIN}"
            " GROUP BY 1 ORDER BY 1"
        ).fetchnumpy()
        statistics.timeline.add(*(np.asarray(value).astype(np.int64) for value in ended.values()))
        return statistics

    def _add_slowest(self, statistics: Statistics, rows: SummedRows, top: int) -> None:
        """The RPCs that waited the longest; of sums those alone are looked for that are as long as so many of these."""
        query = self._database.connection.execute
        meant = f"waiting_ns IS NOT NULL AND {_NO_REPLY_AGAIN} AND {self._sql}"
        if rows.kept:
            longest = f"SELECT host, capture, high_ns FROM {rows.calls} WHERE {_NO_REPLY_AGAIN} AND high_ns IS NOT NULL"
            some = query(f"{longest} ORDER BY high_ns DESC LIMIT ?", [top]).fetchall()
            least = some[-1][-1] if some else 0
            there = query(f"SELECT DISTINCT host, capture FROM ({longest}) WHERE high_ns >= {least}").fetchall()
            hosts, captures = (
                ", ".join(quoted(name) for name in sorted({*names})) for names in zip(*there, strict=True)
            )
            meant += f" AND waiting_ns >= {least} AND host IN ({hosts}) AND capture IN ({captures})"
        for row in query(_SLOWEST.format(", ".join(PART_SUMS), meant), [top]).fetchall():
            waiting, latency, parts, rest = row[0], row[1], row[2 : 2 + len(PARTS)], row[2 + len(PARTS) :]
            number, connection, xid, *names, direction, state, status, called, replied, sent, got, again = rest
            key = key_of_names(_called(names), direction == "backward")
            statistics.add_slow(
                SlowRpc(
                    waiting, None if latency is None else Latency(latency, *(part or 0 for part in parts)), number,
                    connection, xid, key, state, status or "", called or 0, replied or 0, sent or 0, got or 0,
                    again or 0,
                )
            )  # fmt: skip
