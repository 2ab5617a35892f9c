"""RPCs as records, whose fields are the columns of the table rpcs, and as lines of JSON made of columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.ma import MaskedArray, getmaskarray
from numpy.typing import NDArray

from ..arrays import Int64s, coded_keys, some, unique
from ..measure.call_order import MAX_HELD, CallOrder
from ..measure.file_names import MAX_LATE, KnownPaths, LatePaths, LateRow, PathLearner
from ..rpcrdma.rpc_table import RpcTable
from ..rpcrdma.rpcs import Rpc
from ..text_columns import Decimal, EncodedLines, Page, Piece, Texts, page_of, words_of
from .rpc import HOST_TIMES, MESSAGES, full_fields
from .rpc_columns import Coded, Find, RpcBatch, TableColumn, expanded
from .schema import Fields, Record, RecordType, record, schema
from .tables import TABLES

Encode = Callable[[Any], str]
"""Gives the JSON text of a value."""

_NOT_IN_JSON = {"time", "file", "ended"}
"""Known in one pass over tables alone, or twice."""
COLUMNS = [column for column in TABLES["rpcs"].columns if not column.place_of and column.name not in _NOT_IN_JSON]
"""Columns of the table rpcs that are fields of the record."""
_HOST_TIMES = {host_time.column for host_time in HOST_TIMES}
"""Absent where no trace of a host's kernel tells of the RPC."""
_PATH = [column.name for column in COLUMNS].index("path")
_ALWAYS = {
    "number", "connection", "direction", "xid", "client", "server", "state", "failed", "contents",
    "call_chunk_bytes", "reply_chunk_bytes", "chunks", "read_chunks", "write_chunks", "reply_chunks",
    "read_segments", "write_segments", "reply_segments", "psn_reused",
}  # fmt: skip
"""Columns that every RPC has."""
_JSON_TYPES = {"text": "string", "int": "integer", "uint": "integer", "bool": "boolean", "texts": "array of string"}


def _field(column: TableColumn) -> tuple[str, str]:
    null = "" if column.type == "texts" or column.name in _ALWAYS else "|null"
    return _JSON_TYPES[column.type] + null + ("|absent" if column.name in _HOST_TIMES else ""), column.meaning


FIELDS: Fields = {column.name: _field(column) for column in COLUMNS}

TYPES = {
    "rpc": RecordType(
        "A call and its reply: the columns of the table rpcs.",
        "`rpcs`, `show --rpc`, `show --xid`, `live`",
        {
            **FIELDS,
            **MESSAGES,
            "credential": (
                "any|absent",
                "only from show: flavor and body of the call's credential; null without a call",
            ),
            "arguments": ("any|absent", "only from show: the arguments, see above; null where there are none"),
            "arguments_problem": (
                "string|null|absent",
                "only from show: why not all of the call is in arguments; null where all is",
            ),
            "results": ("any|absent", "only from show: the results, see above; null where there are none"),
            "results_problem": (
                "string|null|absent",
                "only from show: why not all of the reply is in results; null where all is",
            ),
        },
    ),
}


def rpc_records(table: RpcTable) -> list[Record]:
    """The record of each RPC, its path unknown."""
    batch = RpcBatch(table)
    listed = {
        column.name: expanded(column.values(batch)).tolist()
        for column in COLUMNS
        if column.values and column.needs != "paths"
    }
    listed["path"] = [None] * len(table)
    records = []
    for row, rpc in enumerate(table):
        fields = {
            column.name: listed[column.name][row] for column in COLUMNS if rpc.host or column.name not in _HOST_TIMES
        }
        fields |= {column.name: list(fields[column.name] or ()) for column in COLUMNS if column.type == "texts"}
        records.append(record("rpc", **fields))
    return records


def rpc_record(rpc: Rpc, path: str | None = None) -> Record:
    """The record of one RPC; ``path``: the one that its call names."""
    (fields,) = rpc_records(RpcTable([rpc]))
    return {**fields, "path": path}


class _LineBatch:
    """The lines of a batch of RPCs, before they are made."""

    def __init__(self, before: list[Piece], paths: KnownPaths, behind: list[Piece], quoted: Encode, left: int) -> None:
        """``before``, ``behind``: the path.  ``left``: lines that will be asked for."""
        self._before = EncodedLines([*before, ',"path":'])
        self._behind = EncodedLines([*behind, "}"])
        self._paths = [quoted(text) for text in paths.texts]
        self._which_path = paths.which.copy()
        self._path: EncodedLines | None = None
        self._quoted = quoted
        self.left = left

    def name(self, row: int, path: str | None) -> None:
        """The path of a row is known now."""
        self._which_path[row] = len(self._paths)
        self._paths.append(self._quoted(path))
        self._path = None

    def page(self, rows: Int64s) -> Page:
        """Lines of some rows, in UTF-8."""
        self.left -= len(rows)
        if self._path is None:
            self._path = EncodedLines([Texts(self._paths, self._which_path)])
        return page_of([(self._before, rows), (self._path, rows), (self._behind, rows)], len(rows))


TOGETHER = 1 << 10
"""Lines that are made at once."""


class RpcLines:
    """Give it the tables of a capture: lines in the order of calls, each when its path is known or has waited enough.

    Args:
        learner: of paths; it is given every table.
        encode: gives the JSON text of a value.
        find: gives, for each table, where frames are when several files are read as one.
        full: with ``full_fields``.
        max_held: lines that wait for an earlier call; 0: nor does any wait for a path.
    """

    def __init__(
        self,
        learner: PathLearner,
        encode: Encode,
        find: Callable[[], Find | None] = lambda: None,
        full: bool = False,
        max_held: int = MAX_HELD,
    ) -> None:
        self._learner = learner
        self._encode = encode
        self._find = find
        self._full = full
        self._quoted: Encode = lru_cache(MAX_LATE)(encode)
        self._order: CallOrder[int | LateRow[int]] = CallOrder(max_held)
        self._late: LatePaths[int] = LatePaths(learner, max_held and max(max_held, MAX_LATE))
        self._batches: dict[int, _LineBatch] = {}
        """By the number of lines before them."""
        self._count = 0

    def add(self, table: RpcTable, passes: NDArray[np.bool_] | None = None) -> Iterator[Page]:
        """Lines that can be given now, in UTF-8 with their line feeds, some at a time; ``passes``: RPCs that have one,
        by default all."""
        if not len(table):
            return
        batch = RpcBatch(table, learner=self._learner)
        paths = batch.files.paths()
        first = self._count
        self._count += len(table)
        rows: list[int | LateRow[int] | None] = list(range(first, self._count))
        for row in paths.late().tolist():
            file = batch.files[row]
            assert file is not None
            rows[row] = LateRow(file, partial(self._named, first, row))
        left = len(table)
        if passes is not None:
            left = int(np.count_nonzero(passes))
            rows = [row if passing else None for row, passing in zip(rows, passes.tolist(), strict=True)]
        if left:
            pieces = _Pieces(batch, self._encode, self._find())
            before = [f'{{"schema":"{schema("rpc")}","type":"rpc"', *pieces.of(COLUMNS[:_PATH])]
            behind = [*pieces.of(COLUMNS[_PATH + 1 :])]
            if self._full:
                behind.append(Texts([f",{self._encode(full_fields(rpc))[1:-1]}" for rpc in table]))
            self._batches[first] = _LineBatch(before, paths, behind, self._quoted, left)
        yield from self._pages(self._late.add(self._order.add_all(table.rows["number"], rows)))

    def rest(self) -> Iterator[Page]:
        """The others, when no RPC comes any more."""
        yield from self._pages([*self._late.add(self._order.rest()), *self._late.rest()])

    def _named(self, first: int, row: int, path: str | None) -> int:
        self._batches[first].name(row, path)
        return first + row

    def _pages(self, rows: list[int]) -> Iterator[Page]:
        """The lines of rows, which are counted from the first of all."""
        for start in range(0, len(rows), TOGETHER):
            wanted = np.array(rows[start : start + TOGETHER], np.int64)
            firsts = np.array([*self._batches], np.int64)
            of = firsts[firsts.searchsorted(wanted, "right") - 1]
            yield _merged(of, lambda first, mine, wanted=wanted: self._page(first, wanted[mine] - first))  # type: ignore[misc]

    def _page(self, first: int, rows: Int64s) -> Page:
        batch = self._batches[first]
        page = batch.page(rows)
        if not batch.left:
            del self._batches[first]
        return page


def _merged(groups: Int64s, make: Callable[[int, Int64s], Page]) -> Page:
    """The lines of all groups in the order of ``groups``, which has the group of each line.

    ``make``: gives the lines of a group, which are at these places.
    """
    distinct_groups = unique(groups).tolist()
    if len(distinct_groups) == 1:
        return make(distinct_groups[0], np.arange(len(groups)))
    edges = np.append(0, np.flatnonzero(groups[1:] != groups[:-1]) + 1)
    sizes = np.diff(edges, append=len(groups))
    stretches: list[Page] = [b""] * len(edges)
    for group in distinct_groups:
        lines, at = make(group, np.flatnonzero(groups == group)), 0
        for stretch in np.flatnonzero(groups[edges] == group).tolist():
            behind = _behind(lines, at, int(sizes[stretch]))
            stretches[stretch] = lines[at:behind]
            at = behind
    return b"".join(stretches)


def _behind(lines: Page, at: int, count: int) -> int:
    """Where so many of the lines end."""
    for _ in range(count):
        at = lines.index(b"\n", at) + 1
    return at


class _Pieces:
    """The columns of a batch as the inside of JSON objects, each value after a comma."""

    def __init__(self, batch: RpcBatch, encode: Encode, find: Find | None) -> None:
        self._batch, self._encode, self._find = batch, encode, find
        self._known: dict[bytes, Piece] = {}
        """Columns of numbers that were made, by their bytes: many are equal where messages are one packet."""

    def of(self, columns: list[TableColumn]) -> Iterator[Piece]:
        hosts = any(rpc.host for rpc in self._batch.table.objects)
        for column in columns:
            if column.values is None or (column.name in _HOST_TIMES and not hosts):
                continue
            values = column.values(self._batch)
            name = f',"{column.name}":'
            if column.name in _HOST_TIMES:
                listed = zip(expanded(values).tolist(), self._batch.table, strict=True)
                yield Texts([f"{name}{self._encode(value)}" if rpc.host else "" for value, rpc in listed])
                continue
            yield name
            yield self._piece(column, values)
            if self._find is not None and column.name.endswith("_frame"):
                places = [None if frame is None else self._find(frame) for frame in expanded(values).tolist()]
                name = f',"{column.name.removesuffix("frame")}place":'
                yield Texts([f"{name}{self._encode(place and place._asdict())}" for place in places])

    def _piece(self, column: TableColumn, values: MaskedArray | Coded) -> Piece:
        coded = values if isinstance(values, Coded) else None
        column_values = values.values if isinstance(values, Coded) else values
        data, null = column_values.data, getmaskarray(column_values)
        if coded is None and data.dtype.kind in "iu":
            key = data.tobytes() + null.tobytes()
            if key not in self._known:
                self._known[key] = _numbers(data, null)
            return self._known[key]
        unknown = () if column.type == "texts" else None
        if null.all():
            return self._encode(unknown)
        keys = data.tolist()
        for row in null.nonzero()[0].tolist():
            keys[row] = unknown
        if keys.count(keys[0]) == len(keys):
            return self._encode(keys[0])
        distinct, which = coded_keys(keys, len(keys))
        return Texts([*map(self._encode, distinct)], which if coded is None else which[coded.which])


def _numbers(values: NDArray[Any], null: NDArray[np.bool_]) -> Piece:
    """Integers as JSON, row by row; one text where all are alike."""
    known = values[~null]
    if not len(known):
        return "null"
    if len(known) == len(values):
        if not some(values != values[0]):
            return str(values[0])
        return Decimal(values) if values.min() >= 0 else words_of(values, str)
    if known.min() < 0:
        return Texts(["null" if none else str(value) for none, value in zip(null, values.tolist(), strict=True)])
    return Decimal(np.where(null, 0, values), null=null)
