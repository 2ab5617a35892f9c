"""Flat tables: what a column is, and how nouns become columns, in batches."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..arrays import Int64s
from ..frames import Place

if TYPE_CHECKING:
    from numpy.ma import MaskedArray  # Few commands make tables, and it takes long to load.

Columns = dict[str, "MaskedArray"]
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
    value: Callable[[Any], Any] | None
    """Of a row; None is: not known, and becomes masked."""
    values: Callable[[Any], MaskedArray | Coded] | None = None
    """In place of ``value``, for all columns of a table: of all rows of a noun, which is a batch."""
    needs: str = ""
    """'contents': the bytes of messages; 'files': those, and the files that they were about; 'paths': the names of
    these."""
    place_of: str = ""
    """In place of both: it is the file (text) or the number in that file (int) of the frames in this column."""


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
    """What stands above a column on the screen -> its name: also in ``--where``, ``--sort`` and browse."""


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
            for found, column in zip(self._values, self.columns, strict=True):
                assert column.value is not None
                found.append(column.value(row))

    def take(self) -> Columns:
        """The rows since the last call."""
        self._rows = 0
        if self._batches:
            batches, self._batches = self._batches, []
            taken = joined(self.table, batches)
        else:
            values, self._values = self._values, [[] for _ in self.columns]
            listed = zip(self.columns, values, strict=True)
            taken = {column.name: column_of(column.type, found) for column, found in listed}
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
    """The same of many texts, in place."""
    if not "".join(texts).isascii():
        texts[:] = [encodable(text) for text in texts]
