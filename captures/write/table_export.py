"""Every table of a capture as a file of its own, for other programs: Parquet, CSV or Arrow, the columns explained.

Rows go through a database on the disk, so memory does not grow with the capture.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, NamedTuple

from rdmascope.dissect.records.schema import Record, record
from rdmascope.dissect.records.table import quoted
from rdmascope.dissect.records.tables import TABLES

from ..errors import need
from ..session.session import Session
from ..tables.condition import Condition
from ..tables.database import FILLING, Database, write_arrow
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
    if format == "arrow":
        need("pyarrow")
    with Database(lambda wanted: table_batches(session, wanted), memory=FILLING, parent=within) as database:
        database.fill({name: None for name in TABLES if condition is None or name not in INTERNAL})
        extent = session.extent()
        if whole := condition is None and format == "parquet":
            note_origin(database, session.paths, extent, str(session.damage or ""))
        return _write(database, format, folder, extent.first_time, condition, whole)


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
    writers: dict[str, Callable[[Database, str, str, BinaryIO], int]] = {
        "parquet": lambda database, name, query, file: write_parquet(database, name, f"({query})", file),
        "csv": _write_csv,
        "arrow": lambda database, name, query, file: write_arrow(database.connection, query, file, _meanings(name)),
    }
    written: list[ExportedTable] = []
    with OutputFolder(Path(folder)) as made:
        for name in names:
            query = f"FROM {name}"
            file_name = f"{name}.{format}"
            with io.BufferedWriter(made.create(file_name)) as file:
                rows = writers[format](database, name, query, file)
                length = file.tell()
            written.append(ExportedTable(name, os.path.join(folder, file_name), rows, length))
        if format == "csv":
            with made.create(DESCRIPTION) as description:
                description.write(json.dumps(_description(names), indent=1, ensure_ascii=False).encode() + b"\n")
    return written


def exported_table_record(format: str, table: ExportedTable) -> Record:
    """What was written of a table, as a record."""
    return record("exported_table", format=format, **table._asdict())


def _meanings(name: str) -> dict[str, str]:
    return {column.name: column.meaning for column in TABLES[name].columns}


def _write_csv(database: Database, name: str, query: str, file: BinaryIO) -> int:
    lists = [column.name for column in TABLES[name].columns if column.type == "texts"]
    texts = ", ".join(f"array_to_string({one}, {quoted(SEPARATOR)}) AS {one}" for one in lists)
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
