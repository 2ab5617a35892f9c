"""Every table of a capture as a file of its own, for other programs: Parquet, CSV or Arrow, the columns explained.

Rows are written as they come, or go through a database on the disk; so memory does not grow with the capture.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, NamedTuple, Self

from rdmascope.dissect.records.rpc_columns import Columns, quoted
from rdmascope.dissect.records.schema import Record, record
from rdmascope.dissect.records.tables import TABLES

from ..errors import need
from ..session.session import Session
from ..tables.column_table import arrow_batch, arrow_schema
from ..tables.condition import Condition
from ..tables.database import FILLING, ROW_GROUP, Database, write_arrow
from ..tables.filtered_tables import ChosenRows, belonging
from ..tables.saved import is_data_set
from ..tables.saved_tables import check_folder, note_origin, open_saved, origin, write_parquet
from ..tables.table_pass import table_batches
from .output import OutputFolder

DESCRIPTION = "csv-metadata.json"
"""Beside CSV files, where the columns are explained as "CSV on the Web" has it (W3C, Metadata Vocabulary for Tabular
Data, 5)."""
INTERNAL = ("details",)
"""Tables of nouns in full, which only this program reads."""
ORIGIN = ("sources", "metadata")
"""Tables that make a folder of Parquet files stand for the capture."""
DATA_TYPES = {
    "int": "long",
    "uint": "unsignedLong",
    "float": "double",
    "bool": "boolean",
    "time": "dateTime",
    "text": "string",
    "texts": "string",
}
"""Type of a column -> that of CSV on the Web."""
SEPARATOR = ";"
"""Between the texts of a list in CSV."""


_ENCODED = (("text", ("text",)), ("texts", ("texts",)), ("number", ("int", "uint", "time")))
"""What columns are encoded alike in Parquet, and their types."""


class ExportedTable(NamedTuple):
    """What was written of a table."""

    table: str
    output: str
    """Path."""
    rows: int
    bytes: int
    """Of the file."""


def tables_of(
    session: Session, format: str, folder: str, condition: Condition | None = None, within: str | None = None
) -> list[ExportedTable]:
    """Write the tables of a session that was not read yet into a folder, which is empty or not there.

    Parquet of a whole capture then stands for it.  Raises CaptureError.

    ``within``: where temporary files are.
    """
    check_folder(folder, session.paths)
    streams = condition is None and format != "csv"
    if streams or format == "arrow":
        need("pyarrow")
    whole = condition is None and format == "parquet"
    with Database(lambda wanted: table_batches(session, wanted), memory=FILLING, parent=within) as database:
        if not streams:
            database.fill({name: None for name in TABLES if condition is None or name not in INTERNAL})
            return _write(database, format, folder, session.extent().first_time, condition, whole)
        with OutputFolder(Path(folder)) as made:
            names = [name for name in TABLES if whole or name not in INTERNAL]
            written = _stream(session, database, format, made, names)
            extent = session.extent()
            if whole:
                note_origin(database, session.paths, extent, str(session.damage or ""))
                names += ORIGIN
            written |= {name: _copy(database, format, made, name) for name in names if name not in written}
        return [written[name] for name in names]


def _stream(
    session: Session, database: Database, format: str, made: OutputFolder, names: Sequence[str]
) -> dict[str, ExportedTable]:
    """Write tables as their rows come; those that have an order are in the database then."""
    with ExitStack() as stack:
        files = {name: stack.enter_context(ArrowFile(name, format, made)) for name in names if not TABLES[name].order}
        for name, columns in table_batches(session, dict.fromkeys(names), rows=ROW_GROUP):
            if name in files:
                files[name].add(columns)
            else:
                database.insert(name, columns)
    for name in names:
        if name not in files:
            database.sort(name)
    return {name: file.written for name, file in files.items()}


class ArrowFile:
    """A Parquet or Arrow file of a table, with what its columns mean.  A context manager."""

    def __init__(self, name: str, format: str, made: OutputFolder) -> None:
        import pyarrow.parquet

        self._columns = TABLES[name].columns
        self._file = io.BufferedWriter(made.create(f"{name}.{format}"))
        self.written = ExportedTable(name, str(made.path / f"{name}.{format}"), 0, 0)
        self._schema = arrow_schema(self._columns)
        if format == "parquet":
            schema = self._schema.with_metadata(_meanings(name))
            self._writer = pyarrow.parquet.ParquetWriter(self._file, schema, compression="zstd", **self._encodings())
        else:
            self._writer = pyarrow.ipc.new_file(self._file, self._schema)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._file:
            if kind is None:
                self._writer.close()
                self.written = self.written._replace(bytes=self._file.tell())
            self._writer.is_open = False  # Where something failed, pyarrow would try again when it is collected.

    def _encodings(self) -> dict[str, Any]:
        """Texts come again and again; numbers mostly are close to the one before, and hardly ever equal to it."""
        named = {name: [column.name for column in self._columns if column.type in types] for name, types in _ENCODED}
        texts = named["text"] + [f"{name}.list.element" for name in named["texts"]]
        return {"use_dictionary": texts, "column_encoding": dict.fromkeys(named["number"], "DELTA_BINARY_PACKED")}

    def add(self, columns: Columns) -> None:
        """Rows of the table."""
        batch = arrow_batch(self._schema, self._columns, columns)
        self._writer.write_batch(batch)
        self.written = self.written._replace(rows=self.written.rows + batch.num_rows)


def tables_of_saved(path: str, format: str, folder: str, condition: Condition | None = None) -> list[ExportedTable]:
    """Write saved tables, or those of a data set, into a folder, as those of the capture are written.

    Parquet of a data set does not stand for its captures.
    """
    check_folder(folder, [path])
    if format == "arrow":
        need("pyarrow")
    with open_saved(path) as database:
        whole = condition is None and format == "parquet" and not is_data_set(path)
        return _write(database, format, folder, origin(database).first_time, condition, whole)


def _write(
    database: Database,
    format: str,
    folder: str,
    first_time: int,
    condition: Condition | None,
    whole: bool,
) -> list[ExportedTable]:
    """Write the tables of a database that is filled into a folder, which is empty or not there.

    ``whole``: what is written shall stand for the capture, as ``rdmascope sql --save`` has it.  With a condition: its
    RPCs, and of the other tables the rows that belong to them.  Raises CaptureError.
    """
    names = [*TABLES, *ORIGIN] if whole else [name for name in TABLES if name not in INTERNAL]
    if condition is not None:
        names = [name for name in names if belonging(TABLES[name])]
        ChosenRows(database, condition, first_time, by_frames=False).count()
    with OutputFolder(Path(folder)) as made:
        written = [_copy(database, format, made, name) for name in names]
        if format == "csv":
            with made.create(DESCRIPTION) as description:
                description.write(json.dumps(_description(names), indent=1, ensure_ascii=False).encode() + b"\n")
    return written


def _copy(database: Database, format: str, made: OutputFolder, name: str) -> ExportedTable:
    """Write a table of the database."""
    writers: dict[str, Callable[[Database, str, str, BinaryIO], int]] = {
        "parquet": lambda database, name, query, file: write_parquet(database, name, f"({query})", file),
        "csv": _write_csv,
        "arrow": lambda database, name, query, file: write_arrow(database.connection, query, file, _meanings(name)),
    }
    with io.BufferedWriter(made.create(f"{name}.{format}")) as file:
        rows = writers[format](database, name, f"FROM {name}", file)
        return ExportedTable(name, str(made.path / f"{name}.{format}"), rows, file.tell())


def exported_table_record(format: str, table: ExportedTable) -> Record:
    """What was written of a table, as a record."""
    return record("exported_table", format=format, **table._asdict())


def _meanings(name: str) -> dict[str, str]:
    return {column.name: column.meaning for column in TABLES[name].columns}


def _write_csv(database: Database, name: str, query: str, file: BinaryIO) -> int:
    lists = [column.name for column in TABLES[name].columns if column.type == "texts"]
    texts = ", ".join(f"array_to_string({name}, {quoted(SEPARATOR)}) AS {name}" for name in lists)
    return database.copy(f"(SELECT * REPLACE ({texts}) {query})" if lists else f"({query})", file, "FORMAT csv, HEADER")


def _description(names: list[str]) -> object:
    tables = [
        {
            "url": f"{name}.csv",
            "dc:description": f"A row is {TABLES[name].meaning}.",
            "tableSchema": {
                "columns": [
                    {"name": column.name, "datatype": DATA_TYPES[column.type], "dc:description": column.meaning}
                    | ({"separator": SEPARATOR} if column.type == "texts" else {})
                    for column in TABLES[name].columns
                ]
            },
        }
        for name in names
    ]
    return {"@context": "http://www.w3.org/ns/csvw", "tables": tables}
