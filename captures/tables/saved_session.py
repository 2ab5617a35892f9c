"""Saved tables in place of a capture: a Session whose RPCs, connections and sums come from them.

RPCs that columns describe completely are rows, the others objects, in the batches in which they are read."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache, cached_property, partial
from typing import Any, NoReturn, TypeVar

import numpy as np
from numpy.ma import MaskedArray, getmaskarray
from numpy.typing import NDArray

from rdmascope.dissect.arrays import Int64s, Rows, coded_keys
from rdmascope.dissect.audit.auditor import EARLIER, Auditor, RuleTally, TallyKey
from rdmascope.dissect.audit.rule import VIOLATION, Finding
from rdmascope.dissect.layers.oncrpc_codes import GSS_PROCEDURE_NAMES, GSS_SERVICE_NAMES
from rdmascope.dissect.layers.rpcrdma_codes import DIRECTION_NAMES, NO_RDMA, RDMA_MSG
from rdmascope.dissect.measure.credits import CreditDirection, CreditInterval
from rdmascope.dissect.measure.file_names import KnownPaths, PathedRows, PathLearner
from rdmascope.dissect.measure.files import EarlierName, File, FileTable, FileTransfer
from rdmascope.dissect.named_tuple import NamedTuple
from rdmascope.dissect.onc.naming import HashedHandle
from rdmascope.dissect.onc.rpc_header import GssCredential
from rdmascope.dissect.onc.shapes.decode_cache import FlatFields
from rdmascope.dissect.records.details import CaptureSums, DetailError, FileDetails, from_json
from rdmascope.dissect.records.rpc import HOST_TIMES
from rdmascope.dissect.records.rpc_columns import tuples
from rdmascope.dissect.records.tables import FILTER, SIDES, TABLES
from rdmascope.dissect.rpcrdma.analyzer import Analyzer
from rdmascope.dissect.rpcrdma.conversation import Conversation
from rdmascope.dissect.rpcrdma.dispatch import Undecoded
from rdmascope.dissect.rpcrdma.messages import HEADER, Message, Segment, TransportHeader
from rdmascope.dissect.rpcrdma.rpc_fields import FieldColumns, FieldReader, KnownRpc, known_columns
from rdmascope.dissect.rpcrdma.rpc_table import RPC, STATES, TOGETHER, ProcedureNames, RpcNames, RpcRows, RpcTable
from rdmascope.dissect.rpcrdma.rpcs import ChunkUse, HostTimes, Latency, Rpc, SegmentUse
from rdmascope.dissect.trace.rpcs import TracedSegment
from rdmascope.dissect.transport.health import TransportHealth
from rdmascope.dissect.transport.operations import READ, SEND, Operation, Payload

from ..errors import CaptureError
from ..read.merge import OtherPoint, Places, Source, short_names
from ..session.session import Made, Session
from .condition import Condition
from .database import Database, duckdb
from .saved import is_data_set
from .saved_tables import CAPTURES, COUNTED, DataSet, capture_groups, not_in_tables, open_saved, origin

ROWS = 1 << 15
"""RPCs that are read at a time."""

Columns = Mapping[str, MaskedArray]

_SAME = {  # column of RPC rows: column of the table, and what stands for what is not known
    "number": ("number", 0),
    "connection": ("connection", 0),
    "xid": ("xid", 0),
    "call_frame": ("call_frame", 0),
    "call_last_frame": ("call_last_frame", 0),
    "reply_first_frame": ("reply_first_frame", 0),
    "reply_frame": ("reply_frame", 0),
    "call_time": ("time_ns", 0),
    "call_end": ("call_end_time_ns", 0),
    "reply_time": ("reply_time_ns", 0),
    "reply_end": ("end_time_ns", 0),
    "latency": ("latency_ns", -1),
    "latency_server": ("server_ns", 0),
    "credits_requested": ("credits_requested", -1),
    "credits_granted": ("credits_granted", -1),
    "call_send": ("call_send_bytes", 0),
    "reply_send": ("reply_send_bytes", 0),
    "call_inline": ("call_inline_bytes", 0),
    "reply_inline": ("reply_inline_bytes", 0),
    "latency_retransmission": ("retransmission_delay_ns", 0),
    "invalidated": ("invalidated_handle", -1),
}
_NONE = ("chunks", "call_ns", "reads_ns", "writes_ns", "reply_ns", "retransmitted_packets")
"""Columns that are 0 in a row RPC."""
_INTERVALS = """
    SELECT connection, direction = 'backward', time_ns, requested, granted, outstanding, at_limit_ns
    FROM credits WHERE list_contains(?, connection) ORDER BY time_ns
"""
_KNOWN = ("call_frame", "reply_frame", "latency_ns", "credits_requested", "credits_granted")
"""Columns that are not NULL in a row RPC."""
_UNKNOWN = (
    "damage", "notes", "call_header_problem", "reply_header_problem", "call_rdma_direction", "reply_rdma_direction",
    "call_option", "reply_option", "call_invalidated_handle", "gss_version",
)  # fmt: skip
"""Columns that are NULL in a row RPC."""
_PROCEDURE = ("program_number", "version", "minor_version", "procedure_number", "operations", "procedure")
_SIDES = tuple(
    f"{side}_{name}" for side in ("call", "reply") for name in ("rdma_version", "rdma_procedure_number", "header_bytes")
)
_ALWAYS = dict.fromkeys(
    (
        *(column for column, _ in _SAME.values()), *_NONE, *_UNKNOWN, *_PROCEDURE, *_SIDES,
        "waiting_ns", "direction", "state", "status", "failed", "contents", "psn_reused", "gss_procedure",
        "gss_sequence", "gss_service", *(host_time.column for host_time in HOST_TIMES),
    )
)  # fmt: skip
"""Columns that every question needs; texts, which take longest, are not among them but for names."""
_SEGMENTS = """
    SELECT chunks.rpc, chunks.chunk, kind, position, segment, handle, offset_bytes, segments.advertised_bytes,
        segments.returned_bytes, segments.transferred_bytes, operations, late_operations
    FROM (FROM chunks WHERE rpc BETWEEN ? AND ? AND {where}) AS chunks
    LEFT JOIN (FROM segments WHERE rpc BETWEEN ? AND ? AND {where}) AS segments USING (rpc, chunk) ORDER BY ALL
"""


class SavedFieldReader(FieldReader):
    """Gives what calls name from the columns that were saved."""

    def columns(
        self,
        table: RpcTable,
        objects: NDArray[np.bool_] | None = None,
        wanted: frozenset[str] = frozenset(FlatFields._fields),
        needless: NDArray[np.bool_] | None = None,
    ) -> FieldColumns:
        assert isinstance(table, SavedRpcs)
        return known_columns([_flat_fields(row) for row in table.named()])


class SavedPath(NamedTuple):
    """A path as it was saved."""

    text: str

    def path(self) -> str:
        return self.text

    @property
    def sure(self) -> bool:
        return True


class SavedPaths(PathedRows):
    """The paths that some RPCs were saved with."""

    def __init__(self, texts: list[str | None]) -> None:
        self._texts = texts

    def __len__(self) -> int:
        return len(self._texts)

    def made(self, index: int) -> SavedPath | None:
        text = self._texts[index]
        return None if text is None else SavedPath(text)

    def paths(self) -> KnownPaths:
        distinct, which = coded_keys(self._texts, len(self._texts))
        return KnownPaths(distinct, [True] * len(distinct), which)

    def alike(self) -> Int64s:
        return self.paths().which


class SavedPathLearner(PathLearner):
    """Gives the paths that were saved."""

    def learn(
        self, table: RpcTable, wanted: frozenset[str] = frozenset(FlatFields._fields)
    ) -> tuple[FieldColumns, PathedRows]:
        assert isinstance(table, SavedRpcs)
        return SavedFieldReader().columns(table), SavedPaths(table.paths())


_NAMED = tuple(column.name for column in TABLES["rpcs"].columns if column.needs == "contents")


def _flat_fields(row: Mapping[str, Any]) -> FlatFields:
    """The fields that the columns ``_NAMED`` were made of."""
    seqid, other, client, user = row["stateid_seqid"], row["stateid_other"], row["client_id"], row["user"] or ""
    handle, hashed = _bytes(row["file_handle"]), row["file_handle_hash"]
    return FlatFields(
        HashedHandle(int(hashed).to_bytes(4)) if handle is None and hashed is not None else handle,
        _encoded(row["file_name"]),
        row["offset_bytes"],
        row["count_bytes"],
        row["eof"],
        None if seqid is None else int(seqid).to_bytes(4) + bytes.fromhex(other or ""),
        row["slot"],
        row["sequence_id"],
        _bytes(row["session"]),
        None if client is None else int(client, 16),
        row["uid"],
        row["gid"],
        _encoded(row["machine_name"]),
        bytes.fromhex(user.removeprefix("gss:")) if user.startswith("gss:") else None,
        row["linux_operation"],
    )


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def _encoded(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


class SavedRpcs(RpcTable):
    """The RPCs of some rows of the saved table, in the order in which they ended."""

    def __init__(
        self,
        columns: Columns,
        named: Callable[[], Columns],
        chunks: Mapping[int, Sequence[ChunkUse]],
        conversations: dict[int, Conversation],
        names: RpcNames,
    ) -> None:
        """``named``: reads the columns of what calls name, as long as the tables are open; ``chunks``: by number of
        the RPC."""
        self._columns, self._chunks, self._conversations = columns, chunks, conversations
        self._read_named = named
        as_rows = _as_rows(columns)
        places = np.flatnonzero(~as_rows)
        super().__init__(
            self._made(places),
            RpcRows(_only_rows(columns, as_rows, names), np.empty(0, np.uint8), [], conversations, names, dropped=True),
            places,
        )

    def conversation(self, number: int) -> Conversation:
        return self._conversations[number]

    def selected(self, mask: NDArray[np.bool_]) -> RpcTable:
        if mask.all():
            return self

        def kept(columns: Columns) -> Columns:
            return {name: values[mask] for name, values in columns.items()}

        return SavedRpcs(kept(self._columns), lambda: kept(self._named), self._chunks, self._conversations, self.names)

    def made(self, index: int) -> Rpc:
        if not self.is_row[index]:
            return super().made(index)
        return self._made(np.array([index]))[0]

    def rpcs_of(self, rows: Rows) -> list[Rpc]:
        return self._made(rows["call_row"])

    def __iter__(self) -> Iterator[Rpc]:
        objects = iter(self.objects)
        for first in range(0, len(self), TOGETHER):
            part = self.is_row[first : first + TOGETHER]
            made = iter(self._made(first + np.flatnonzero(part)))
            for row in part.tolist():
                yield next(made) if row else next(objects)

    @cached_property
    def _named(self) -> Columns:
        return self._read_named()

    def named(self) -> Iterator[dict[str, Any]]:
        """What the calls name, as columns have it."""
        lists = [self._named[name].tolist() for name in _NAMED]
        return (dict(zip(_NAMED, row, strict=True)) for row in zip(*lists, strict=True))

    def paths(self) -> list[str | None]:
        """What the calls name."""
        return list(self._named["path"].tolist())

    def _made(self, places: Int64s) -> list[Rpc]:
        if not len(places):
            return []
        columns = {**self._columns, **self._named}
        lists = [values[places].tolist() for values in columns.values()]
        return [self._rpc(dict(zip(columns, row, strict=True))) for row in zip(*lists, strict=True)]

    def _rpc(self, row: dict[str, Any]) -> Rpc:
        names = ("latency", "call", "reads", "server", "writes", "reply", "retransmission_delay")
        parts = [row[f"{name}_ns"] or 0 for name in names]
        if row["server_ns"] is None:
            parts[3] = parts[0]
        backward = row["direction"] == "backward"
        rpc = KnownRpc(
            row["number"],
            self._conversations[row["connection"]],
            backward,
            row["xid"],
            program=row["program_number"],
            version=row["version"],
            procedure=row["procedure_number"],
            minor_version=row["minor_version"],
            gss=_credential(row),
            operations=row["operations"] or (),
            name=row["procedure"] or "",
            status=row["status"] or "",
            failed=row["failed"],
            state=row["state"],
            contents=row["contents"],
            damage=row["damage"] or (),
            notes=row["notes"] or (),
            chunks=[*self._chunks.get(row["number"], ())] if row["chunks"] else [],
            latency=None if row["latency_ns"] is None else Latency(*parts),
            outstanding=row["waiting_ns"] if row["latency_ns"] is None else None,
            retransmission_delay=row["retransmission_delay_ns"] or 0,
        )
        times = {host_time.field: row[host_time.column] for host_time in HOST_TIMES}
        if any(time is not None for time in times.values()):
            rpc.host = HostTimes(**times)
        if row["call_frame"] is not None:
            rpc.call = _message(row, "call", int(backward), row["time_ns"], row["call_end_time_ns"])
        if row["reply_frame"] is not None:
            rpc.reply = _message(row, "reply", 1 - backward, row["reply_time_ns"], row["end_time_ns"])
        rpc.fields = _flat_fields(row)
        carrier = rpc.call or rpc.reply
        if carrier is not None:
            carrier.operation.retransmissions = row["retransmitted_packets"] or 0
            carrier.operation.reused = int(row["psn_reused"])
        return rpc


def _credential(row: dict[str, Any]) -> GssCredential | None:
    """The RPCSEC_GSS credential of a call."""
    if row["gss_version"] is None:
        return None
    procedure, service = row["gss_procedure"], row["gss_service"]
    return GssCredential(
        row["gss_version"],
        _GSS_PROCEDURES[procedure] if procedure in _GSS_PROCEDURES else int(procedure),
        row["gss_sequence"],
        _GSS_SERVICES[service] if service in _GSS_SERVICES else int(service),
    )


_GSS_PROCEDURES = {name: number for number, name in GSS_PROCEDURE_NAMES.items()}
_GSS_SERVICES = {name: number for number, name in GSS_SERVICE_NAMES.items()}


def saved_rpcs(
    connection: duckdb.DuckDBPyConnection,
    conversations: dict[int, Conversation],
    rows: int | None = ROWS,
    where: str = "true",
    passing: str = "true",
) -> Iterator[SavedRpcs]:
    """Saved RPCs that pass a condition, in the order in which they ended: ``rows`` at a time, or all at once.

    ``where``: on columns of all tables; ``passing``: on those of rpcs.
    """
    names = RpcNames()
    meant = f"{where} AND ({passing})"
    span = f"SELECT coalesce(min(ended) - 1, 0), coalesce(max(ended), 0) FROM rpcs WHERE {meant}"
    ((first, last),) = connection.execute(span).fetchall()
    while first < last:
        behind = last if rows is None else min(first + rows, last)
        columns = _read(connection, tuple(_ALWAYS), first, behind, meant)
        if len(columns["number"]):
            named = partial(_read, connection, (*_NAMED, "path"), first, behind, meant)
            yield SavedRpcs(columns, named, _chunks(connection, columns, where), conversations, names)
        first = behind


def _read(connection: duckdb.DuckDBPyConnection, names: Sequence[str], first: int, last: int, where: str) -> Columns:
    """Columns of the RPCs that pass a condition and ended behind the ``first`` ones, up to the ``last``."""
    query = f"SELECT {', '.join(names)} FROM rpcs WHERE ended > ? AND ended <= ? AND {where} ORDER BY ended"
    arrays = connection.execute(query, [first, last]).fetchnumpy()
    return {name: tuples(np.ma.asarray(values)) for name, values in arrays.items()}


def _chunks(connection: duckdb.DuckDBPyConnection, columns: Columns, where: str) -> dict[int, list[ChunkUse]]:
    """The chunks of some RPCs, by number."""
    numbers = columns["number"].data[columns["chunks"].data > 0]
    by_rpc: dict[int, list[ChunkUse]] = {}
    if not len(numbers):
        return by_rpc
    wanted = set(numbers.tolist())
    rows = connection.execute(_SEGMENTS.format(where=where), [int(numbers.min()), int(numbers.max())] * 2)
    while some := rows.fetchmany(ROWS):
        for rpc, number, kind, position, segment, *use in some:
            if rpc in wanted:
                chunks = by_rpc.setdefault(rpc, [])
                if len(chunks) < number:
                    chunks.append(ChunkUse(kind, position, []))
                if segment is not None:
                    chunks[-1].segments.append(_use(*use))
    return by_rpc


def _use(
    handle: int,
    offset: int,
    advertised: int,
    returned: int | None,
    transferred: int,
    operations: int | None,
    late: int | None,
) -> SegmentUse:
    """A segment's use with as many Operations as there were; the first one gets all bytes."""
    if operations is None:
        return TracedSegment(Segment(handle, advertised, offset), returned, moved=transferred)
    used = [
        Operation(READ, 0, 0, 0, 0, 0, 0 if at else transferred, Payload(), address=offset + (transferred if at else 0))
        for at in range(operations)
    ]
    return SegmentUse(Segment(handle, advertised, offset), returned, used, (*used[:1],) * (late or 0))


def _message(row: dict[str, Any], side: str, initiator: int, first_time: int, last_time: int) -> Message:
    frames = ("call_frame", "call_last_frame") if side == "call" else ("reply_first_frame", "reply_frame")
    operation = Operation(
        SEND,
        initiator,
        row[frames[0]],
        row[frames[1]],
        first_time,
        last_time,
        row[f"{side}_send_bytes"] or 0,
        Payload(),
        invalidate=row["call_invalidated_handle"] if side == "call" else row["invalidated_handle"],
    )
    header = TransportHeader(
        row["xid"],
        NO_RDMA if row[f"{side}_rdma_version"] is None else row[f"{side}_rdma_version"],
        row["credits_requested" if side == "call" else "credits_granted"],
        RDMA_MSG if row[f"{side}_rdma_version"] is None else row[f"{side}_rdma_procedure_number"],
        length=row[f"{side}_header_bytes"] or 0,
        problem=row[f"{side}_header_problem"] or "",
        direction=_DIRECTIONS.get(row[f"{side}_rdma_direction"]),
        option=row[f"{side}_option"],
    )
    return Message(operation, header, memoryview(b""), 0, 0, row[f"{side}_inline_bytes"] or 0)


_DIRECTIONS = {name: number for number, name in DIRECTION_NAMES.items()}


def _as_rows(columns: Columns) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which rows say all there is to say of an RPC: those whose object would add nothing."""
    as_rows = ~columns["psn_reused"].data
    for name in _KNOWN:
        as_rows &= ~getmaskarray(columns[name])
    for name in _UNKNOWN:
        as_rows &= getmaskarray(columns[name])
    for name in _NONE:
        as_rows &= columns[name].filled(0) == 0
    for side in ("call", "reply"):
        for name, value in (("rdma_version", 1), ("rdma_procedure_number", RDMA_MSG), ("header_bytes", HEADER)):
            as_rows &= columns[f"{side}_{name}"].filled(-1) == value
    as_rows &= columns["call_frame"].filled(0) == columns["call_last_frame"].filled(-1)
    as_rows &= columns["contents"].filled("") == "whole"
    as_rows &= columns["state"].filled("") == np.where(columns["failed"].data, "error", "complete").astype(object)
    return as_rows


def _only_rows(columns: Columns, as_rows: np.ndarray[Any, np.dtype[np.bool_]], names: RpcNames) -> Rows:
    """RPC rows of those; ``call_row`` has their places."""
    places = np.flatnonzero(as_rows)
    rows = np.zeros(len(places), RPC)
    for name, (column, missing) in _SAME.items():
        rows[name] = columns[column].filled(missing)[places]
    for name in ("call_at", "reply_at", "call_run", "reply_run", "reply_row", "chunks", "transfer"):
        rows[name] = -1
    rows["call_row"] = places
    rows["caller"] = columns["direction"].filled("")[places] == "backward"
    rows["state"] = np.where(columns["failed"].data[places], STATES.index("error"), STATES.index("complete"))
    rows["procedure"] = _codes(
        zip(*(columns[name][places].tolist() for name in _PROCEDURE), strict=True),
        lambda key: names.procedure(ProcedureNames(key[0], key[1], key[2], key[3], key[4] or (), key[5] or "")),
        len(places),
    )
    results = zip(columns["status"][places].tolist(), columns["failed"][places].tolist(), strict=True)
    rows["status"] = _codes(results, lambda key: names.status(key[0] or "", key[1]), len(places))
    return rows


def _codes(keys: Iterator[tuple[Any, ...]], code: Callable[[tuple[Any, ...]], int], count: int) -> Int64s:
    code = cache(code)
    return np.fromiter(map(code, keys), np.int64, count)


Noun = TypeVar("Noun")


class SavedAnalyzer(Analyzer):
    """What an Analyzer is at the end of a capture."""

    def __init__(
        self, sums: CaptureSums, conversations: list[Conversation], healths: dict[int, TransportHealth]
    ) -> None:
        super().__init__()
        self._sums = sums
        self.frames, self.truncated_frames, self.packets = sums.frames, sums.truncated_frames, sums.packets
        self.dropped_frames, self.time_steps = sums.dropped_frames, sums.time_steps
        self.skipped, self.evicted = sums.skipped, sums.evicted
        self.first_time, self.earliest_time, self.last_time = sums.first_time, sums.earliest_time, sums.last_time
        self.connections = [conversation.connection for conversation in conversations]
        self._conversations = {conversation.connection.number: conversation for conversation in conversations}
        self._healths = healths
        self.addresses.learn(0, sums.addresses)

    @property
    def other_packets(self) -> Counter[str]:
        return self._sums.other_packets

    @property
    def undecoded(self) -> list[Undecoded]:
        return self._sums.undecoded

    @property
    def unplaced(self) -> dict[int, int]:
        return self._sums.unplaced

    def health(self, number: int) -> TransportHealth:
        return self._healths[number]


class SavedFiles(FileTable):
    """The files of saved tables, with the paths that they had."""

    def __init__(self, facts: list[FileDetails], undecoded: Counter[str]) -> None:
        super().__init__()
        self.undecoded = undecoded
        self._facts = {fact.number: fact for fact in facts}
        self._listed = [fact.file() for fact in facts]

    def __iter__(self) -> Iterator[File]:
        return iter(self._listed)

    def __len__(self) -> int:
        return len(self._listed)

    def paths(self, file: File) -> list[str]:
        return self._facts[file.number].paths

    def removed_path(self, file: File) -> str | None:
        return self._facts[file.number].removed_path

    def earlier_names(self, file: File) -> list[EarlierName]:
        return self._facts[file.number].earlier_names


class SavedSession(Session):
    """A Session that reads saved tables, again and again where that is asked.

    Its RPCs have no bytes.  What takes those, or packets, raises CaptureError, which says which capture has them.
    """

    def __init__(self, path: str) -> None:
        super().__init__(path)
        with self._open() as database:
            self._load(database)

    def _load(self, database: Database) -> None:
        made_from = origin(database)
        self._sources = made_from.sources
        self._files = [*made_from.sources]
        self.damage = CaptureError(made_from.damage) if made_from.damage else None
        (sums,) = self._details(database, "capture", CaptureSums)
        conversations = self._details(database, "conversation", Conversation)
        healths = self._details(database, "health", TransportHealth)
        self._gone = self._details(database, "evicted conversation", Conversation)
        self.other_points = self._details(database, "other capture point", OtherPoint)
        (self.passed_over,) = self._details(database, "passed over", list[str])
        self.filters = self._details(database, FILTER, str)
        self._note_places(database)
        self.analyzer = SavedAnalyzer(sums, conversations, {health.connection: health for health in healths})

    def _open(self) -> AbstractContextManager[Database]:
        return open_saved(self.paths[0])

    def _details(self, database: Database, kind: str, noun: type[Noun]) -> list[Noun]:
        rows = database.connection.execute("SELECT content FROM details WHERE kind = ?", [kind]).fetchall()
        try:
            return [from_json(noun, content) for (content,) in rows]
        except DetailError as error:
            raise CaptureError(f"{self.path}: another version of rdmascope saved these tables: {error}") from None

    def _note_places(self, database: Database) -> None:
        runs = database.connection.execute(
            "SELECT first_frame, last_frame, place_file, place_frame FROM places ORDER BY 1"
        ).fetchall()
        if runs:
            self._places, reached = Places(), 0
            for first, last, file, frame in runs:  # Of a data set not all captures may be there.
                self._places.skip(first - 1 - reached)
                reached = last
                self._places.add([(file, frame)], np.zeros(last - first + 1, np.uint8))
            self.names = short_names(self._places.paths)

    def tables(
        self, on_eviction: Callable[[list[Conversation]], None] | None = None, chunk_rows: bool = False
    ) -> Iterator[RpcTable]:
        conversations = {
            conversation.connection.number: conversation for conversation in (*self._gone, *self.analyzer.conversations)
        }
        with self._open() as database:
            yield from self._rpcs(database, conversations)
        if on_eviction is not None and self._gone:
            on_eviction(self._gone)

    def _rpcs(self, database: Database, conversations: dict[int, Conversation]) -> Iterator[RpcTable]:
        yield from saved_rpcs(database.connection, conversations)

    def remarks(self) -> list[str]:
        return [
            f"{self.path}: was saved with a filter; holds only {words}" for words in self.filters
        ] + super().remarks()

    def field_reader(self) -> FieldReader:
        return SavedFieldReader()

    def path_learner(self) -> PathLearner:
        return SavedPathLearner(self.field_reader())

    def credit_directions(self, on_rpcs: Callable[[RpcTable], None] | None = None) -> Iterator[CreditDirection]:
        for table in self.tables():
            if on_rpcs is not None:
                on_rpcs(table)
        with self._open() as database:
            directions = self._details(database, "credits", CreditDirection)
            known = {(direction.connection.number, direction.backward): direction for direction in directions}
            rows = database.connection.execute(_INTERVALS, [[number for number, _ in known]]).fetchall()
        for connection, backward, time, *interval in rows:
            if (direction := known.get((connection, backward))) is not None:
                direction.bins[time // direction.width] = CreditInterval(*interval)
        yield from directions

    def files(
        self,
        on_transfers: Callable[[list[FileTransfer]], None] | None = None,
        passes: Callable[[RpcTable], NDArray[np.bool_]] | None = None,
    ) -> FileTable:
        if passes is not None or on_transfers is not None:
            self.lacks("what single RPCs did with files" if passes is not None else "the contents of files")
        with self._open() as database:
            facts = self._details(database, "file", FileDetails)
            undecoded = self._details(database, "undecoded of files", Counter[str])
        return SavedFiles(facts, sum(undecoded, Counter()))

    def audit(
        self,
        auditor: Auditor,
        connections: Collection[int] = (),
        select: Callable[[RpcTable, Session], RpcTable] | None = None,
    ) -> int:
        if auditor.meant is not None:
            self.lacks("what single RPCs were judged by")
        kept = {conversation.connection.number: conversation.connection for conversation in self.analyzer.conversations}
        known = kept | {conversation.connection.number: conversation.connection for conversation in self._gone}
        with self._open() as database:
            for row in _rows(database, "SELECT * FROM verdicts"):
                number = EARLIER if row["connection"] is None else row["connection"]
                if row["rule"] in auditor.rules:
                    key = TallyKey(row["rule"], number, SIDES.index(row["endpoint"]))
                    reasons = json.loads(row["reasons"] or "{}")
                    tally = auditor.tallies.setdefault(key, RuleTally())  # Of a data set there are several sums.
                    tally.add(RuleTally(row["passed"], 0, 0, row["undecidable"], reasons), auditor.examples)
                    if number in kept:
                        auditor.connections[number] = kept[number]
            for conversation in self.analyzer.conversations:
                if conversation.carries_rpc and conversation.connection.rdma:
                    auditor.connections[conversation.connection.number] = conversation.connection
            for row in _rows(database, "SELECT * FROM findings"):
                rule = auditor.rules.get(row["rule"])
                if rule is not None:
                    frames = tuple(map(int, (row["frames"] or "").split()))
                    endpoint, number = SIDES.index(row["endpoint"]), row["connection"]
                    finding = Finding(
                        rule, VIOLATION, known[number], endpoint, row["role"], frames, row["time_ns"] or 0,
                        row["rpc"], row["xid"], row["observed"], row["required"], "", row["severity"],
                    )  # fmt: skip
                    key = TallyKey(rule.id, number if number in kept else EARLIER, endpoint)
                    auditor.count(finding, auditor.tallies[key])
            query = "SELECT count(*) FROM rpcs WHERE state <> 'duplicate reply'"
            if connections:
                query += f" AND connection IN ({', '.join(map(str, connections))})"
            if others := [str(number) for number, connection in known.items() if not connection.rdma]:
                query += f" AND connection NOT IN ({', '.join(others)})"
            (rpcs,) = database.connection.execute(query).fetchall()[0]
        return int(rpcs)

    def _read(self, line: Callable[[Source], Iterator[Made]]) -> Iterator[Made]:
        self.lacks("packets")

    def lacks(self, what: str) -> NoReturn:
        """Raise that ``what`` is not in the tables, and where it is."""
        raise CaptureError(not_in_tables(self.path, what, self._sources))


def _rows(database: Database, query: str) -> Iterator[dict[str, Any]]:
    rows = database.connection.execute(query)
    names = [described[0] for described in rows.description]
    while some := rows.fetchmany(1000):
        for values in some:
            yield dict(zip(names, values, strict=True))


UNNUMBERED = '"undecoded":[]', '"unplaced":[]'
"""The sums of a capture that name no frame and no connection, of which there are many."""


class DataSetSession(SavedSession):
    """Reads the tables of all captures of a data set as those of one."""

    def _load(self, database: Database) -> None:
        listed = ", ".join(f"{name}_before" for name in COUNTED)
        query = f"SELECT capture, host, {listed} FROM entries ORDER BY connections_before"
        rows = database.connection.execute(query).fetchall()
        self._offsets = {capture: dict(zip(COUNTED, before, strict=True)) for capture, _, *before in rows}
        self._hosts = [host for _, host, *_ in rows]
        self._connections = [before["connections"] for before in self._offsets.values()]
        super()._load(database)

    def host(self, connection: int) -> str | None:
        at = bisect_left(self._connections, connection)
        return self._hosts[at - 1] if at else None

    def _rpcs(self, database: Database, conversations: dict[int, Conversation]) -> Iterator[RpcTable]:
        for group in [*capture_groups(database.connection, ROWS)]:
            rows = ROWS if group.captures == 1 else None
            yield from saved_rpcs(database.connection, conversations, rows, group.where)

    def _details(self, database: Database, kind: str, noun: type[Noun]) -> list[Noun]:
        return self._of_rows(database, kind, noun)

    def _of_rows(
        self, database: Database, kind: str, noun: type[Noun], where: str = "true", of: Sequence[object] = ()
    ) -> list[Noun]:
        """Nouns of the rows of details that pass a condition."""
        query = f"SELECT capture, content, number FROM details JOIN entries USING (capture) WHERE kind = ? AND {where}"
        rows = database.connection.execute(query, [kind, *of]).fetchall()
        rows.sort(key=lambda row: (self._offsets[row[0]]["frames"], (row[2] and (row[2], row[1])) or ()))
        try:
            values = [
                json.loads(content)
                if content == "[]" or (kind == "capture" and UNNUMBERED[0] in content and UNNUMBERED[1] in content)
                else _moved(kind, json.loads(content), self._offsets[capture])
                for capture, content, _ in rows
            ]
            if kind == "capture":
                values = [_summed(values)]
            elif kind == "passed over":
                values = [[path for value in values for path in value]]
            return [from_json(noun, json.dumps(value)) for value in values]
        except (DetailError, ValueError, KeyError, TypeError) as error:
            raise CaptureError(f"{self.path}: another version of rdmascope wrote this data set: {error}") from None


class FilteredSession(DataSetSession):
    """The RPCs of a data set that pass a condition, and their connections: nothing else is read."""

    def __init__(self, path: str, condition: Condition) -> None:
        self._condition = condition
        begin = min((data_file.first_time_ns for data_file in DataSet(path).snapshot().of(CAPTURES)), default=0)
        self._where = condition.sql(begin)
        super().__init__(path)
        self.analyzer.first_time = begin

    def _load(self, database: Database) -> None:
        each = [f"{self._where} AND ({part})" for part in ("true", *self._condition.each_value())]
        query = f"SELECT {', '.join(f'count(*) FILTER ({part})' for part in each)}, count(*) FROM rpcs"
        ((*passing, self._tried),) = database.connection.execute(query).fetchall()
        self.passing = all(passing)
        """Some RPC does, and for each value of a filter."""
        super()._load(database)

    def _open(self) -> AbstractContextManager[Database]:
        return open_saved(self.paths[0], span=self._condition.span)

    def _details(self, database: Database, kind: str, noun: type[Noun]) -> list[Noun]:
        used = f"number + connections_before IN (SELECT connection FROM rpcs WHERE {self._where})"
        of_connection = kind in ("conversation", "health", "credits")
        return self._of_rows(database, kind, noun, used if of_connection else "true")

    def tables(
        self, on_eviction: Callable[[list[Conversation]], None] | None = None, chunk_rows: bool = False
    ) -> Iterator[RpcTable]:
        yield from super().tables(on_eviction, chunk_rows)
        self._condition.tried = self._tried

    def _rpcs(self, database: Database, conversations: dict[int, Conversation]) -> Iterator[RpcTable]:
        having = f"capture IN (SELECT capture FROM rpcs WHERE {self._where})"
        for group in [*capture_groups(database.connection, ROWS, having)]:
            yield from saved_rpcs(database.connection, conversations, ROWS, group.where, self._where)


def open_saved_session(path: str, condition: Condition | None = None) -> SavedSession:
    """A session of saved tables, or of a data set; ``condition``: of the latter only the RPCs that pass are wanted."""
    if not is_data_set(path):
        return SavedSession(path)
    filtered = None if condition is None else FilteredSession(path, condition)
    return DataSetSession(path) if filtered is None or not filtered.passing else filtered


def _moved(kind: str, value: Any, before: dict[str, int]) -> Any:
    """The JSON of a noun, with the numbers that it has over all captures."""
    moved = _renumbered(value, before)
    if kind in ("conversation", "evicted conversation", "credits"):
        moved["connection"]["number"] += before["connections"]
    elif kind == "file":
        moved["number"] += before["files"]
    elif kind == "capture":
        moved["unplaced"] = [[number + before["connections"], count] for number, count in moved["unplaced"]]
    return moved


_COUNTED = {"frame": "frames", "connection": "connections", "rpc": "rpcs"}
"""What numbers are of, by the name that JSON has for them."""


def _renumbered(value: Any, before: dict[str, int]) -> Any:
    if isinstance(value, list):
        return [_renumbered(inner, before) for inner in value]
    if not isinstance(value, dict):
        return value
    moved = {}
    for name, inner in value.items():
        if type(inner) is int and inner > 0:
            counted = _COUNTED.get(name.rpartition("_")[2] if name.endswith("_frame") else name)
            inner += before[counted] if counted else 0
        elif name.endswith("frames") and isinstance(inner, list) and all(type(frame) is int for frame in inner):
            inner = [frame + before["frames"] for frame in inner]
        else:
            inner = _renumbered(inner, before)
        moved[name] = inner
    return moved


def _summed(captures: list[dict[str, Any]]) -> dict[str, Any]:
    """What the sums of captures come to together, as JSON has them."""
    total: dict[str, Any] = {}
    for name, first in captures[0].items():
        values = [capture[name] for capture in captures]
        if name.endswith("_time"):
            known = [value for value in values if value is not None]
            total[name] = (max if name == "last_time" else min)(known, default=None)
        elif isinstance(first, int):
            total[name] = sum(values)
        elif isinstance(first, dict):
            total[name] = {key: sum(value[key] for value in values) for key in first}
        elif name in ("skipped", "other_packets"):
            counts: Counter[str] = Counter()
            for value in values:
                counts.update(dict(value))
            total[name] = [*counts.items()]
        else:
            total[name] = [] if name == "addresses" else [inner for value in values for inner in value]
    return total
