"""Flat tables: what a column is, and how RPCs become columns, in batches, mostly of ``RpcTable.rows``, without an
object for each.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.ma import MaskedArray
from numpy.typing import NDArray

from ..arrays import Int64s, coded_keys, take
from ..frames import Place
from ..layers.rpcrdma_codes import RDMA_MSG, RDMA_NOMSG
from ..named_tuple import NamedTuple
from ..onc.rpc_header import GssCredential, credential_of
from ..onc.shapes.decode_cache import caller
from ..rpcrdma.messages import Message
from ..rpcrdma.rpc_table import FLAG_TRUNCATED, ProcedureNames, RpcTable
from ..rpcrdma.rpcs import Rpc
from ..transport.connection import Connection

if TYPE_CHECKING:
    from ..measure.file_names import PathedRows, PathLearner
    from ..measure.files import FileTable, FileUses  # Only contents take it, and what follows.
    from ..rpcrdma.rpc_fields import FieldColumns, FieldReader


Columns = dict[str, MaskedArray]
"""By name, all of one length; what is not known is masked."""

Wanted = Mapping[str, Collection[str] | None]
"""Names of tables, and of the columns that are wanted of each; None: all."""


class Coded(NamedTuple):
    """A column by its distinct values."""

    values: MaskedArray
    which: Int64s
    """The index of each row's value."""


def expanded(column: MaskedArray | Coded) -> MaskedArray:
    """The value of each row."""
    if not isinstance(column, Coded):
        return column
    return masked(column.values.data[column.which], np.ma.getmaskarray(column.values)[column.which])


class TableColumn(NamedTuple):
    """A column of a table."""

    name: str
    """With its unit: ``_ns`` nanoseconds, ``_us`` microseconds, ``_bytes`` bytes; ``time_ns`` counts from the Unix
    epoch."""
    type: str
    """'int' (64 bits), 'uint' (64 bits), 'float' (64 bits), 'bool', 'time' (nanoseconds, UTC), 'text' (Python's str, in
    an array of objects) or 'texts' (tuples of these)."""
    meaning: str
    value: Callable[[Any], Any] | str | None
    """The value for a row, or the attribute that has it, as 'rule.id'; None means not known, and becomes masked."""
    values: Callable[[Any], MaskedArray | Coded] | None = None
    """In place of ``value``, for all columns of a table: the values of all rows of a batch."""
    needs: str = ""
    """'contents': the bytes of messages; 'files': also the files that they used; 'paths': also the names of these."""
    place_of: str = ""
    """In place of both: the column has the file (text), or the number in that file (int), of the frames in this other
    column."""

    @property
    def amount(self) -> bool:
        """It is an amount, so that sorting puts the greatest first."""
        counts = self.type in ("int", "uint", "float") and self.name.endswith("s")
        return counts and not self.name.endswith(("time_ns", "offset_bytes"))


@dataclass(frozen=True)
class Table:
    """A table and how its rows come from nouns."""

    name: str
    of: str
    """The noun: 'rpc' (an ``RpcBatch``), 'packet' (a ``PacketTableBatch``), 'finding', 'conversation' or 'file'."""
    meaning: str
    columns: tuple[TableColumn, ...]
    rows: Callable[[Any], Iterable[Any]] = lambda noun: (noun,)
    order: tuple[str, ...] = ()
    """Columns that tell the order of all rows, unknown values last, where batches have them in another."""
    headings: Mapping[str, str] = field(default_factory=dict)
    """What stands above a column on the screen -> its name."""

    @cached_property
    def typed(self) -> dict[str, TableColumn]:
        """What people type for a column, in ``--where``, ``--sort``, ``--by`` and browse: its name or heading."""
        named = {column.name: column for column in self.columns}
        return named | {
            shown: named[name]
            for heading, name in self.headings.items()
            if (shown := heading.lower().replace(" ", "_")) not in named
        }

    def column(self, typed: str) -> TableColumn:
        """The column that is meant; raises ValueError, with what may be meant."""
        column = self.typed.get(typed.lower().replace(" ", "_"))
        if column is None:
            raise ValueError(self.no_column(typed))
        return column

    def no_column(self, typed: str, headings: bool = True) -> str:
        """Say that the table has no such column, and which names and headings may be meant."""
        from ..measure.filters import near

        names = self.typed if headings else [column.name for column in self.columns]
        meant = near(typed.lower().replace(" ", "_"), names) or "; 'rdmascope help tables' lists them"
        return f"no column {typed!r} in the table {self.name}{meant}"


DTYPES: dict[str, tuple[Any, Any]] = {
    "int": (np.int64, 0),
    "uint": (np.uint64, 0),
    "float": (np.float64, 0.0),
    "bool": (np.bool_, False),
    "time": (np.dtype("datetime64[ns]"), 0),
    "text": (np.object_, ""),
    "texts": (np.object_, ()),
}
"""Type -> dtype, and what stands under the mask."""


def tuples(column: MaskedArray) -> MaskedArray:
    """A column of DuckDB's; of lists, which are arrays there, one of tuples."""
    if column.dtype != object or not any(isinstance(value, np.ndarray) for value in column.compressed()[:1]):
        return column
    return column_of("texts", [None if value is None else tuple(value) for value in column.tolist()])


SQL_TYPES = {
    "int": "BIGINT",
    "uint": "UBIGINT",
    "float": "DOUBLE",
    "bool": "BOOLEAN",
    "time": "TIMESTAMP_NS",
    "text": "VARCHAR",
    "texts": "VARCHAR[]",
}
"""Type of a column -> that of DuckDB."""


Find = Callable[[int], Place | None]
"""Gives the place of the frame of a number."""


def place_columns(prefix: str, frame: str, meaning: str) -> tuple[TableColumn, TableColumn]:
    """The file of each frame in the column ``frame``, and its number there."""
    return (
        TableColumn(f"{prefix}place_file", "text", f"path of the file with {meaning}", None, place_of=frame),
        TableColumn(f"{prefix}place_frame", "int", f"number of {meaning} in that file", None, place_of=frame),
    )


class TableBuilder:
    """Takes nouns, gives columns.  Holds values only, never the nouns."""

    def __init__(self, table: Table, names: Collection[str] | None = None, find: Find | None = None) -> None:
        """``names``: of the columns that are wanted; all by default, the first column always.

        ``find``: where frames are, for the columns that say so.
        """
        self.table = table
        self.find = find
        chosen = [
            column for column in table.columns if names is None or column is table.columns[0] or column.name in names
        ]
        self._places = [column for column in chosen if column.place_of]
        frames = {column.place_of for column in self._places}
        self.columns = [
            column for column in table.columns if not column.place_of and (column in chosen or column.name in frames)
        ]
        values = (column.value for column in self.columns)
        self._readers = [attrgetter(value) if isinstance(value, str) else value for value in values]
        self._values: list[list[Any]] = [[] for _ in self.columns]
        self._batches: list[Columns] = []
        self._rows = 0

    def __len__(self) -> int:
        """Rows since the last ``take``."""
        return self._rows

    def needs(self, *what: str) -> bool:
        """Whether one of its columns does."""
        return any(column.needs in what for column in self.columns)

    def add(self, noun: object) -> None:
        """Take the rows of a noun."""
        if self.columns[0].values is not None:
            self._batches.append(
                {column.name: expanded(column.values(noun)) for column in self.columns if column.values}
            )
            self._rows += len(self._batches[-1][self.columns[0].name])
            return
        for row in self.table.rows(noun):
            self._rows += 1
            for values, read in zip(self._values, self._readers, strict=True):
                assert read is not None
                values.append(read(row))

    def take(self) -> Columns:
        """The rows since the last call."""
        self._rows = 0
        if self._batches:
            batches, self._batches = self._batches, []
            taken = joined(self.table, batches)
        else:
            values, self._values = self._values, [[] for _ in self.columns]
            listed = zip(self.columns, values, strict=True)
            taken = {column.name: column_of(column.type, listed_values) for column, listed_values in listed}
        for frames_of in dict.fromkeys(column.place_of for column in self._places):
            files, numbers = self._placed(taken[frames_of])
            for column in self._places:
                if column.place_of == frames_of:
                    taken[column.name] = files if column.type == "text" else numbers
        return {column.name: taken[column.name] for column in self.table.columns if column.name in taken}

    def _placed(self, frames: MaskedArray) -> tuple[MaskedArray, MaskedArray]:
        """The file of each frame, and its number there."""
        find = self.find or (lambda _: None)
        known = frames.compressed()
        if len(known):
            lowest = int(known.min())
            first, last = find(lowest), find(int(known.max()))
            # Were frames of other files between them, their numbers in the file would be less far apart.
            if first and last and first.file == last.file and last.frame - first.frame == np.ptp(known):
                files = np.full(len(frames), first.file, object)
                return masked(files, frames.mask), frames + (first.frame - lowest)
        places = [None if frame is None else find(frame) for frame in frames.tolist()]
        return (
            column_of("text", [place and place.file for place in places]),
            column_of("int", [place and place.frame for place in places]),
        )


def joined(table: Table, batches: Sequence[Columns]) -> Columns:
    """Batches of rows as one."""
    if len(batches) == 1:
        return batches[0]
    if not batches:
        return TableBuilder(table).take()
    return {
        column.name: np.ma.concatenate([batch[column.name] for batch in batches])  # type: ignore[no-untyped-call]
        for column in table.columns
        if column.name in batches[0]
    }


def in_order(table: Table, columns: Columns) -> Columns:
    """All rows of a table in its order."""
    if not table.order:
        return columns
    keys: list[Any] = []
    for name in reversed(table.order):
        column = columns[name]
        keys += [np.unique(column.data, return_inverse=True)[1], np.ma.getmaskarray(column)]
    order = np.lexsort(keys)
    return {name: column[order] for name, column in columns.items()}


def masked(values: Any, missing: Any = False) -> MaskedArray:
    """A column; ``missing``: where nothing is known."""
    mask = np.empty(np.shape(values), bool)
    mask[...] = missing
    return np.ma.MaskedArray(values, mask=mask)


def column_of(type: str, values: list[Any]) -> MaskedArray:
    """A column of Python values; None is: not known."""
    mask = [value is None for value in values]
    dtype, filler = DTYPES[type]
    given = (filler if value is None else value for value in values)
    return np.ma.MaskedArray(np.fromiter(given, dtype, len(values)), mask=np.array(mask, bool))


def quoted(text: str) -> str:
    """A text as SQL writes it."""
    return "'" + text.replace("'", "''") + "'"


def named(name: str) -> str:
    """The name of a table or column as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'


def encodable(text: str) -> str:
    """With what no UTF-8 can say written out: bytes of a file name, for instance."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def make_encodable(texts: np.ndarray[Any, np.dtype[np.object_]]) -> None:
    """Make many texts ``encodable``, in place."""
    if not "".join(texts).isascii():
        texts[:] = [encodable(text) for text in texts]


_NONE = np.array(None, object)


class RpcBatch:
    """The RPCs that ended in a batch, and what they did with which files: the noun of the tables of RPCs."""

    def __init__(
        self,
        table: RpcTable,
        before: int = 0,
        used: FileUses | None = None,
        reader: Callable[[], FieldReader] | None = None,
        learner: PathLearner | None = None,
    ) -> None:
        """``before``: RPCs that ended before these.  ``used``: what they did with files, where that is asked for.
        ``reader``: gives that of what they name; ``learner``: of paths, where these are asked for."""
        self._learner = learner
        self._learned = learner.learn(table) if learner is not None else None
        self._reader = reader
        self.table = table
        self.rows = table.rows
        self.before = before
        self.used = used
        self._coded: dict[str, tuple[list[int], Int64s]] = {}
        self._named: dict[tuple[str, ...], tuple[list[tuple[Any, ...]], Int64s]] = {}
        """The distinct values of those fields, and which of them each call has."""

    def __len__(self) -> int:
        return len(self.table)

    @cached_property
    def fields(self) -> FieldColumns:
        """What the calls name."""
        if self._learned is not None:
            return self._learned[0]
        from ..rpcrdma.rpc_fields import FieldReader

        return (self._reader or FieldReader)().columns(self.table)

    @property
    def files(self) -> PathedRows:
        """The files that the calls name."""
        assert self._learned is not None
        return self._learned[1]

    @property
    def paths(self) -> list[str | None]:
        """The paths of these RPCs."""
        assert self._learner is not None
        return self._learner.listed(self.files).listed()

    def clients(self) -> Coded:
        """Address of the client of each."""
        return self.connection("text", lambda connection: connection.endpoints[0].address)

    def servers(self) -> Coded:
        """Address of the server of each."""
        return self.connection("text", lambda connection: connection.endpoints[1].address)

    def named(self, type: str, value: Callable[..., Any], *names: str) -> Coded:
        """What is made of fields that the calls name."""
        if names not in self._named:
            columns = [self.fields.columns[name].tolist() for name in names]
            self._named[names] = coded_keys(zip(*columns, strict=True), len(self))
        keys, which = self._named[names]
        return Coded(column_of(type, [value(*key) for key in keys]), which)

    def number_named(self, type: str, name: str) -> MaskedArray:
        """A number that the calls name."""
        values = self.fields.columns[name]
        missing = (values == _NONE).astype(np.bool_)
        return masked(np.where(missing, 0, values).astype(DTYPES[type][0]), missing)

    @property
    def users(self) -> Coded:
        """Who calls, of each."""
        return self.named("text", caller, "uid", "context")

    @cached_property
    def called(self) -> Any:
        """Whether the call is in the capture."""
        return self.rows["call_frame"] != 0

    @cached_property
    def replied(self) -> Any:
        """Whether the reply is."""
        return self.rows["reply_frame"] != 0

    @cached_property
    def times(self) -> MaskedArray:
        """Nanoseconds: first packet of the call, or of the reply where no call was seen."""
        values = np.where(self.called, self.rows["call_time"], self.rows["reply_time"])
        return masked(values, ~(self.called | self.replied))

    def number(self, *names: str, missing: Any = False) -> MaskedArray:
        """The sum of columns of ``rows``, as integers of 64 bits."""
        values = self.rows[names[0]].astype(np.int64)
        for name in names[1:]:
            values += self.rows[name]
        return masked(values, missing)

    def coded(self, type: str, name: str, value: Callable[[int], Any]) -> Coded:
        """What the values of a column of ``rows`` stand for."""
        codes, inverse = self._codes(name)
        return Coded(column_of(type, [value(code) for code in codes]), inverse)

    def _codes(self, name: str) -> tuple[list[int], Int64s]:
        """The values of a column of ``rows``, and which of them each row has; several columns are made of one."""
        known = self._coded.get(name)
        if known is None:
            codes, inverse = np.unique(self.rows[name], return_inverse=True)
            known = self._coded[name] = codes.tolist(), inverse
        return known

    def procedure(self, type: str, value: Callable[[ProcedureNames], Any]) -> Coded:
        """A column made of what each RPC was called for."""
        names = self.table.names.procedures
        return self.coded(type, "procedure", lambda code: value(names[code]))

    def unseen(self, part: str) -> NDArray[np.bool_]:
        """Whose traces, in place of packets, do not show a part of the latency."""
        codes, inverse = self._codes("connection")
        unseen = np.array([not self.table.conversation(code).shows(part) for code in codes], np.bool_)
        return unseen[inverse] if len(codes) else np.zeros(len(self), np.bool_)

    def connection(self, type: str, value: Callable[[Connection], Any]) -> Coded:
        """A column made of the connection of each."""
        return self.coded(type, "connection", lambda number: value(self.table.conversation(number).connection))

    def objects(self, type: str, value: Callable[[Rpc], Any], others: Any = None) -> MaskedArray:
        """A column made of the RPCs that are objects; ``others`` is the value of all others."""
        objects, places = self.table.objects, self.table.places
        dtype, filler = DTYPES[type]
        values = np.empty(len(self), dtype)
        values.fill(filler if others is None else others)
        mask = np.full(len(self), others is None)
        if objects:
            column = column_of(type, [value(rpc) for rpc in objects])
            values[places], mask[places] = column.data, column.mask
        return masked(values, mask)

    def notes(self) -> MaskedArray:
        """The notes of each RPC that has any."""
        notes = self.objects("texts", lambda rpc: rpc.notes or None)
        for row, of_row in self.table.row_notes():
            notes[row] = of_row
        return notes

    def contents(self) -> MaskedArray:
        """How much of each RPC's contents is in the capture: ``Rpc.contents``."""
        contents = self.objects("text", lambda rpc: rpc.contents, "whole")
        contents[take(self.table.row_places, self.table.only_rows["flags"] & FLAG_TRUNCATED > 0)] = "truncated"
        return contents

    def gss(self, type: str, value: Callable[[GssCredential], Any]) -> MaskedArray:
        """A column made of the RPCSEC_GSS credentials of calls."""
        column = self.objects(type, lambda rpc: None if rpc.gss is None else value(rpc.gss))
        rows = self.table.only_rows
        mine = rows["gss_service"] > 0
        if mine.any():
            secured = map(credential_of, rows["gss_service"][mine].tolist(), rows["gss_sequence"][mine].tolist())
            column[self.table.row_places[mine]] = column_of(type, [value(gss) for gss in secured if gss is not None])
        return column

    def message(self, type: str, side: str, value: Callable[[Message], Any], others: Any, long: Any) -> MaskedArray:
        """A value of each call or reply; ``others``: of row RPCs, ``long``: where the reply came by a Reply chunk."""

        def of(rpc: Rpc) -> Any:
            message = rpc.call if side == "call" else rpc.reply
            return None if message is None or not rpc.connection.rdma else value(message)

        column = self.objects(type, of, others)
        if long != others:
            column[self.table.long_rows] = long
        return self.with_rdma(column)

    def with_rdma(self, column: MaskedArray) -> MaskedArray:
        """A column, masked for RPCs without RDMA."""
        return masked(column.data, np.ma.getmaskarray(column) | ~self.rdma)

    @cached_property
    def rdma(self) -> NDArray[np.bool_]:
        codes, which = self._codes("connection")
        return np.array([self.table.conversation(number).connection.rdma for number in codes], np.bool_)[which]

    def header_length(self, side: str) -> MaskedArray:
        """Bytes of the transport header."""
        lengths = self.message("int", side, lambda message: message.header.length or None, None, None)
        is_row = self.table.is_row & self.rdma
        lengths[is_row] = self.rows[f"{side}_send"][is_row] - self.rows[f"{side}_inline"][is_row]
        return lengths

    def rdma_procedure(self, type: str, side: str, value: Callable[[int, int | None], Any]) -> MaskedArray:
        """A column made of version and number of the transport header's procedure."""
        long = RDMA_MSG if side == "call" else RDMA_NOMSG
        return self.message(
            type,
            side,
            lambda message: value(message.header.version, message.header.procedure),
            value(1, RDMA_MSG),
            value(1, long),
        )

    def file_numbers(self) -> MaskedArray:
        """The number of the file that each RPC is for: of its first operation on a range, else of its last on any."""
        assert self.used is not None
        done, files = self.used.operations, np.zeros(len(self), np.int64)
        numbers = self.used.numbers
        files[done["row"]] = numbers
        ranged = done["ranged"].nonzero()[0][::-1]
        files[done["row"][ranged]] = numbers[ranged]
        return masked(files, files == 0)

    @cached_property
    def with_chunks(self) -> list[Rpc]:
        """The RPCs with chunks, in their order."""
        has = self.rows["read_chunks"] + self.rows["write_chunks"] + self.rows["reply_chunks"] > 0
        table = self.table
        rpcs = iter(table.rpcs_of(take(table.only_rows, has[table.row_places])))
        return [
            next(rpcs) if is_row else table[row]
            for row, is_row in zip(has.nonzero()[0].tolist(), table.is_row[has].tolist(), strict=True)
        ]

    @cached_property
    def steps(self) -> list[tuple[str, ...]]:
        """The operations of each COMPOUND."""
        names = self.table.names.procedures
        return [names[code].operations for code in self.rows["procedure"].tolist()]

    @cached_property
    def step_counts(self) -> Int64s:
        """How many operations each RPC has."""
        return np.array([len(step) for step in self.steps], np.int64)

    def step_use(self, type: str, value: Callable[[FileUses], Any], known: str = "") -> MaskedArray:
        """What each operation of each COMPOUND did with a file; ``known``: column that says where that is known."""
        assert self.used is not None
        done = self.used.operations
        mine = done["number"] < self.step_counts[done["row"]]
        ends = self.step_counts.cumsum()
        places = (ends - self.step_counts)[done["row"][mine]] + done["number"][mine]
        dtype, filler = DTYPES[type]
        column = np.full(int(self.step_counts.sum()), filler, dtype)
        column[places] = value(self.used)[mine]
        missing = np.ones(len(column), np.bool_)
        missing[places] = ~done[known][mine] if known else False
        return masked(column, missing)


class RpcSource(Protocol):
    """Where RPCs come from."""

    @property
    def first_time(self) -> int:
        """Nanoseconds; of the first frame, 0 before there is one."""

    @property
    def path(self) -> str:
        """What it is called."""

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of the files; '' for none."""

    def path_learner(self) -> PathLearner:
        """Learns the paths of files from RPCs."""


class RpcBatches:
    """Give it every table of a capture, in order."""

    def __init__(
        self,
        names_files: bool,
        names_paths: bool,
        session: RpcSource,
        counts: Callable[[RpcTable], NDArray[np.bool_]] | None = None,
    ) -> None:
        """``names_files``, ``names_paths``: such columns are wanted, which takes the contents of messages.

        ``counts``: which RPCs of a table are counted in ``file_table``; all by default.
        """
        self.names_files, self.names_paths = names_files, names_paths
        self._session = session
        self._ended = 0
        self._counts = counts

    @cached_property
    def _learner(self) -> PathLearner:
        return self._session.path_learner()

    @cached_property
    def file_table(self) -> FileTable:
        """The files that RPCs used, where such columns are wanted."""
        from ..measure.files import FileTable

        return FileTable()

    def batch(self, table: RpcTable) -> RpcBatch:
        """The RPCs that ended in a batch."""
        used = None
        if self.names_files:
            used = self.file_table.add_table(table, None if self._counts is None else self._counts(table))
        before, self._ended = self._ended, self._ended + len(table)
        learner = self._learner if self.names_paths else None
        return RpcBatch(table, before, used, lambda: self._learner.reader, learner)
