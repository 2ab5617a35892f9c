"""What a report says of a data set, summed in SQL: no RPC becomes an object, and no connection but the busiest."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import numpy as np

from rdmascope.dissect.diagnosis.diagnose import Diagnosis
from rdmascope.dissect.diagnosis.facts import Facts, Gathered
from rdmascope.dissect.measure.call_groups import CallColumns
from rdmascope.dissect.measure.statistics import PARTS, Share, SlowRpc, Statistics, key_of_names
from rdmascope.dissect.records.table import Columns, named, tuples
from rdmascope.dissect.rpcrdma.eviction import Evicted
from rdmascope.dissect.rpcrdma.rpc_table import ProcedureNames, RpcNames
from rdmascope.dissect.rpcrdma.rpcs import Latency

from .condition import Condition
from .data_set import CAPTURES, DataSet
from .database import Database
from .fleet_statements import diagnosis_of_captures
from .saved_session import DataSetSession
from .saved_tables import open_saved

Noun = TypeVar("Noun")

FEW_CAPTURES = 100
"""Up to so many are reported from their rows, with all connections."""
EXACT = 1 << 15
"""RPCs that keep their own latencies and times; of more, those that took nearly as long are counted together."""
BINS = 32
"""Of latencies for each doubling: the middle of one is within 1.1 % of what is in it."""
MOMENTS = 4096
"""Equal intervals of the whole time that are told apart."""
BUSIEST = 100
"""Connections that are listed."""
_NAMES = ("program_number", "version", "minor_version", "procedure_number", "operations", "procedure")
_PARTS = tuple(f"{'retransmission_delay' if part == 'retransmission' else part}_ns" for part in PARTS)
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
    SELECT number FROM connections LEFT JOIN (SELECT connection, count(*) AS calls FROM rpcs GROUP BY ALL)
    ON connection = number ORDER BY calls DESC NULLS LAST, number LIMIT ?
"""
_SHARES = """
    SELECT list_contains(?, connection), if(list_contains(?, connection), connection, 0), count(*),
        count_if(direction = 'backward'), count_if(failed), sum(call_bytes), sum(reply_bytes)
    FROM rpcs WHERE {} GROUP BY ALL
"""
_SLOWEST = """
    SELECT waiting_ns, latency_ns, {}, number, connection, xid, program_number, version, minor_version,
        procedure_number, operations, procedure, direction, state, status, call_frame, reply_frame, call_bytes,
        reply_bytes, retransmitted_packets
    FROM rpcs WHERE waiting_ns IS NOT NULL AND {} ORDER BY waiting_ns DESC, number LIMIT ?
"""
_INLINE = """
    SELECT 'inline ' || side, count_if(bytes > 0), 0, 0, 0, coalesce(sum(bytes), 0), 0
    FROM (SELECT unnest(['call', 'reply']) AS side, unnest([call_inline_bytes, reply_inline_bytes]) AS bytes
        FROM rpcs WHERE {}) GROUP BY ALL
"""
_CHUNKS = """
    WITH meant AS (SELECT number, call_rdma_procedure = 'RDMA_NOMSG' AS long FROM rpcs WHERE chunks > 0 AND {})
    SELECT if(long AND kind = 'read' AND position = 0, 'position zero', kind || ' chunk') AS way, count(DISTINCT rpc),
        count(*), sum(segments), sum(advertised_bytes), sum(transferred_bytes), count_if(transferred_bytes = 0)
    FROM chunks JOIN meant ON rpc = number GROUP BY way
"""
_REASONS = "SELECT {0}, count(*) FROM rpcs WHERE len({0}) > 0 AND {1} GROUP BY ALL ORDER BY min(number)"


def summed_calls(
    database: Database, condition: str, keys: Sequence[str], widths: Sequence[tuple[int, int]], of_procedures: bool
) -> tuple[CallColumns, Columns]:
    """The RPCs that pass a condition, in columns, and what these columns of theirs have.

    Of more than ``EXACT`` of them those become one whose columns are the same, which began in the same intervals, and
    took nearly as long; the shortest and the longest stay what they are.  ``of_procedures``: what is called, too.
    """
    condition = f"{_NO_REPLY_AGAIN} AND {condition}"
    ((count,),) = database.connection.execute(f"SELECT count(*) FROM rpcs WHERE {condition}").fetchall()
    bins = ", ".join(
        [
            f"CAST(floor({BINS} * log2(greatest(waiting_ns, 1))) AS BIGINT)",
            *(f"(time_ns - {begin}) // {width}" for begin, width in widths),
        ]
    )
    named_by = (*_NAMES, "direction") if of_procedures or count <= EXACT else ()
    same = ", ".join(map(named, dict.fromkeys((*named_by, *keys, "known", "wrong", "incomplete"))))
    sums = ", ".join(f"sum(coalesce({part}, 0)) AS part{at}" for at, part in enumerate(_PARTS))
    query = f"""
        SELECT {same}, count(*) AS counted, min(time_ns) AS time, coalesce(min(waiting_ns), -1) AS low,
            coalesce(max(waiting_ns), -1) AS high, coalesce(sum(waiting_ns), -1) AS total,
            coalesce(arg_max(number, waiting_ns), min(number)) AS number,
            sum(coalesce(call_bytes, 0)) AS called, sum(coalesce(reply_bytes, 0)) AS replied, {sums}
        FROM (
            SELECT *, latency_ns IS NOT NULL AS known, coalesce(failed, false) AS wrong,
                state NOT IN ('complete', 'error') AS incomplete FROM rpcs WHERE {condition}
        ) GROUP BY {same}, {bins if count > EXACT else "number"}
        ORDER BY number
    """
    found = {
        name: tuples(np.ma.asarray(values)) for name, values in database.connection.execute(query).fetchnumpy().items()
    }
    names = RpcNames()
    procedures = np.array(
        [
            names.procedure(_called(one)) << 1 | (backward == "backward")
            for backward, *one in zip(*(found[name].tolist() for name in ("direction", *_NAMES)), strict=True)
        ]
        if named_by
        else [names.procedure(ProcedureNames(None, None, None, None, (), "")) << 1] * len(found["counted"]),
        np.int64,
    )
    number = {name: found[name].data.astype(np.int64) for name in ("counted", "time", "low", "high", "total", "number")}
    counted, low, high = number["counted"], number["low"], number["high"]
    several, many = np.flatnonzero(counted > 1), np.flatnonzero(counted > 2)
    rows = np.concatenate((np.arange(len(counted)), several, many))
    first = np.arange(len(rows)) < len(counted)
    rest = (number["total"][many] - low[many] - high[many]) // (counted[many] - 2)
    waited = np.concatenate((low, high[several], np.where(low[many] < 0, -1, rest)))
    sums_of = {
        name: found[name].data[rows].astype(np.int64) * first
        for name in ("called", "replied", *(f"part{at}" for at in range(len(PARTS))))
    }
    calls = CallColumns(
        rows,
        number["number"][rows],
        number["time"][rows],
        np.where(found["known"].data[rows], waited, -1),
        waited,
        np.column_stack([sums_of[f"part{at}"] for at in range(len(PARTS))]),
        sums_of["called"],
        sums_of["replied"],
        found["wrong"].data[rows].astype(np.bool_),
        found["incomplete"].data[rows].astype(np.bool_),
        procedures[rows],
        names,
        np.concatenate((np.ones(len(counted) + len(several), np.int64), counted[many] - 2)),
    )
    return calls, found


def _called(row: Sequence[Any]) -> ProcedureNames:
    program, version, minor_version, procedure, operations, name = row
    return ProcedureNames(program, version, minor_version, procedure, tuple(operations or ()), name or "")


def summed_session(path: str, condition: Condition | None, always: bool) -> SummedSession | None:
    """Of a data set; None of few captures, unless ``always``."""
    captures = sum(one.rows for one in DataSet(path).snapshot().of(CAPTURES))
    return SummedSession(path, condition) if always or captures > FEW_CAPTURES else None


def _count_procedures(found: Statistics, calls: CallColumns, columns: Columns) -> None:
    kinds: dict[tuple[int, str, str | None, bool], list[int]] = defaultdict(list)
    states, statuses = (columns[name][calls.rows].tolist() for name in ("state", "status"))
    for row, kind in enumerate(zip(calls.procedures.tolist(), states, statuses, calls.failed.tolist(), strict=True)):
        kinds[kind].append(row)
    for (procedure, state, status, failed), listed in kinds.items():
        rows = np.array(listed)
        counts, known, waits = calls.counts[rows], calls.latencies[rows] >= 0, calls.outstanding[rows]
        found.add_sums(
            key_of_names(calls.names.procedures[procedure >> 1], procedure & 1 == 1),
            state,
            status or "",
            failed,
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
        self._condition = condition
        self._database = open_saved(path, span=(None, None) if condition is None else condition.span)
        files = DataSet(path).snapshot().of(CAPTURES)
        self._begin = min((one.first_time_ns for one in files), default=0)
        query = self._database.connection.execute
        self._busiest = [number for (number,) in query(_BUSIEST, [BUSIEST]).fetchall()]
        super().__init__(path)
        sums = [int(one or 0) for one in query(_EVICTED, [self._busiest]).fetchall()[0]]
        self.analyzer.evicted.add_sums(Evicted(**dict(zip(_EVICTED_SUMS, sums, strict=True))))

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
    ) -> tuple[CallColumns, Columns]:
        self._count()
        each = [(self.first_time, max(1, self._span // MOMENTS))] if of_time else []
        return summed_calls(self._database, self._sql, columns, [*each, *widths], of_procedures)

    def _count(self) -> None:
        """Note how many RPCs pass.  Raises CaptureError where none does."""
        condition = self._condition
        if condition is None:
            return
        query = f"SELECT count(*) FILTER ({self._sql}), count(*) FROM rpcs"
        ((condition.passed, condition.tried),) = self._database.connection.execute(query).fetchall()
        if condition.tried and not condition.passed:  # Those who look at each say why.
            session = DataSetSession(self.paths[0])
            for table in session.tables():
                condition.mask(table, session)
            session.refuse(condition.problem(session))

    @property
    def _span(self) -> int:
        return (self.analyzer.last_time or 0) - (self.analyzer.first_time or 0)

    @property
    def _sql(self) -> str:
        return "true" if self._condition is None else self._condition.sql(self._begin)

    def facts(self, top: int) -> Facts:
        """What a report takes, of the RPCs that pass; without what only detectors look at."""
        self._count()
        gathered = Gathered(top)
        gathered.statistics = self._statistics(self._database, self._sql, top)
        return gathered.facts(self.analyzer, "" if self.damage is None else str(self.damage))

    def diagnosis(self, kinds: Collection[str] = ()) -> Diagnosis:
        """What the diagnoses of its captures come to, of those that have RPCs which pass; of these kinds, or all."""
        self._count()
        return diagnosis_of_captures(self._database, self._sql, kinds)

    def _statistics(self, database: Database, condition: str, top: int) -> Statistics:
        found = Statistics(top)
        calls, columns = summed_calls(database, condition, ("state", "status"), (), True)
        _count_procedures(found, calls, columns)
        query = database.connection.execute
        meant = f"{_NO_REPLY_AGAIN} AND {condition}"
        for listed, number, *sums in query(_SHARES.format(meant), [self._busiest] * 2).fetchall():
            share = Share(*(int(one or 0) for one in sums))
            if listed:
                found.connections[number] = share
            else:
                found.evicted = share
        for row in query(_SLOWEST.format(", ".join(_PARTS), meant), [top]).fetchall():
            waiting, latency, parts, rest = row[0], row[1], row[2 : 2 + len(PARTS)], row[2 + len(PARTS) :]
            number, connection, xid, *names, direction, state, status, called, replied, sent, got, again = rest
            key = key_of_names(_called(names), direction == "backward")
            found.add_slow(
                SlowRpc(
                    waiting, None if latency is None else Latency(latency, *(one or 0 for one in parts)), number,
                    connection, xid, key, state, status or "", called or 0, replied or 0, sent or 0, got or 0,
                    again or 0,
                )
            )  # fmt: skip
        for text in (_INLINE, _CHUNKS):
            for way, *sums in query(text.format(meant)).fetchall():
                totals = found.transfers[way]
                for name, one in zip(totals.__slots__, sums, strict=True):
                    setattr(totals, name, int(one or 0))
        for reasons, name in ((found.damage, "damage"), (found.notes, "notes")):
            for texts, count in query(_REASONS.format(name, condition)).fetchall():
                reasons.add(texts, count)
        ((found.truncated, found.duplicate_replies),) = query(
            f"SELECT count_if(contents = 'truncated' AND {_NO_REPLY_AGAIN}), count_if(NOT {_NO_REPLY_AGAIN})"
            f" FROM rpcs WHERE {condition}"
        ).fetchall()
        width = max(1, self._span // 1024)
        ended = f"coalesce(end_time_ns, call_end_time_ns, time_ns) // {width}"
        rows = query(
            f"SELECT {ended} * {width}, count(*), sum(coalesce(call_bytes, 0)), sum(coalesce(reply_bytes, 0))"
            f" FROM rpcs WHERE {meant} GROUP BY 1 ORDER BY 1"
        ).fetchnumpy()
        found.timeline.add_sums(np.column_stack([np.asarray(one).astype(np.int64) for one in rows.values()]))
        return found
