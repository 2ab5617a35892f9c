"""Every table of a capture as a file of its own, for other programs: Parquet, CSV or Arrow, the columns explained.

Rows are written as they come, or go through a database on the disk; so memory does not grow with the capture.
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

from rdmascope.dissect.measure.filters import CaptureExtent
from rdmascope.dissect.named_tuple import NamedTuple
from rdmascope.dissect.records.rpc_columns import quoted
from rdmascope.dissect.records.schema import Record, record
from rdmascope.dissect.records.tables import TABLES

from ..errors import need
from ..session.session import Session
from ..tables.condition import Condition
from ..tables.database import FILLING, ROW_GROUP, ArrowFile, Database, arrow_batch, arrow_schema, write_query
from ..tables.filtered_tables import ChosenRows, belonging
from ..tables.saved import is_data_set
from ..tables.saved_tables import DATABASE, check_folder, check_target, note_origin, open_saved, origin
from ..tables.table_pass import table_batches
from .output import OutputFolder, open_output

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


class ExportedTable(NamedTuple):
    """What was written of a table."""

    table: str
    output: str
    """Path."""
    rows: int
    bytes: int
    """Bytes of the file."""


def tables_of(
    session: Session, format: str, folder: str, condition: Condition | None = None, within: str | None = None
) -> list[ExportedTable]:
    """Write the tables of a session that was not read yet into a folder, which is empty or not there.

    Parquet of a whole capture then stands for it.  Raises CaptureError.

    ``within``: where temporary files are.
    """
    check_folder(folder, session.paths)
    streams = condition is None and format != "csv"
    if format != "csv":
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
    files: dict[str, ArrowFile] = {}
    with ExitStack() as stack:
        for name in names:
            if not TABLES[name].order:
                file = stack.enter_context(io.BufferedWriter(made.create(f"{name}.{format}")))
                files[name] = stack.enter_context(ArrowFile(file, format, arrow_schema(TABLES[name].columns)))
        for name, columns in table_batches(session, dict.fromkeys(names), rows=ROW_GROUP):
            if name in files:
                files[name].add(arrow_batch(files[name].schema, TABLES[name].columns, columns))
            else:
                database.insert(name, columns)
    for name in names:
        if name not in files:
            database.sort(name)
    return {
        name: ExportedTable(name, str(made.path / f"{name}.{format}"), file.rows, file.bytes)
        for name, file in files.items()
    }


def tables_of_saved(path: str, format: str, folder: str, condition: Condition | None = None) -> list[ExportedTable]:
    """Write saved tables, or those of a data set, into a folder, as those of the capture are written.

    Parquet of a data set does not stand for its captures.
    """
    check_folder(folder, [path])
    if format != "csv":
        need("pyarrow")
    with open_saved(path) as database:
        whole = condition is None and format == "parquet" and not is_data_set(path)
        return _write(database, format, folder, origin(database).first_time, condition, whole)


def save(database: Database, path: str, captures: Sequence[str], extent: CaptureExtent, damage: str) -> None:
    """Keep all tables of ``captures`` in ``path``: in a database, or in a folder of Parquet files."""
    check_target(path, captures)
    database.fill(dict.fromkeys(TABLES))
    note_origin(database, captures, extent, damage)
    if path.endswith(DATABASE):
        with open_output(path, captures) as file:
            database.copy_all(file)
    else:
        _write(database, "parquet", path, extent.first_time, None, whole=True)


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
    query = f"FROM {name}"
    with io.BufferedWriter(made.create(f"{name}.{format}")) as file:
        if format == "csv":
            rows = _write_csv(database, name, query, file)
        else:
            rows = write_query(database.connection, query, file, format, name)
        return ExportedTable(name, str(made.path / f"{name}.{format}"), rows, file.tell())


def exported_table_record(format: str, table: ExportedTable) -> Record:
    """What was written of a table, as a record."""
    return record("exported_table", format=format, **table._asdict())


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
