"""Parquet and Arrow files, which say what their columns mean."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Self

from numpy.ma import getmaskarray

from rdmascope.dissect.records.rpc_columns import Columns, TableColumn, make_encodable

if TYPE_CHECKING:
    import pyarrow


ARROW_TYPES = {
    "int": "int64",
    "uint": "uint64",
    "float": "float64",
    "bool": "bool_",
    "time": "timestamp",
    "text": "string",
    "texts": "list_",
}
"""Type of a column -> the function of pyarrow that makes its type."""


def arrow_schema(columns: Sequence[TableColumn]) -> pyarrow.Schema:
    """The Arrow schema of a table; its fields say what the columns mean."""
    import pyarrow

    arguments: dict[str, tuple[object, ...]] = {"time": ("ns",), "texts": (pyarrow.string(),)}
    return pyarrow.schema(
        [
            pyarrow.field(
                column.name,
                getattr(pyarrow, ARROW_TYPES[column.type])(*arguments.get(column.type, ())),
                metadata={"description": column.meaning},
            )
            for column in columns
        ]
    )


def arrow_batch(schema: pyarrow.Schema, columns: Sequence[TableColumn], rows: Columns) -> pyarrow.RecordBatch:
    """Rows of a table."""
    import pyarrow

    arrays = []
    for column, type in zip(columns, schema.types, strict=True):
        values = rows[column.name]
        try:
            arrays.append(pyarrow.array(values.data, type, getmaskarray(values)))
        except UnicodeEncodeError:  # Bytes that are no UTF-8; only few captures have any.
            make_encodable(values.data)
            arrays.append(pyarrow.array(values.data, type, getmaskarray(values)))
    return pyarrow.RecordBatch.from_arrays(arrays, schema=schema)


class ArrowFile:
    """The rows of a Parquet or Arrow file.  A context manager."""

    def __init__(self, file: BinaryIO, format: str, schema: pyarrow.Schema) -> None:
        import pyarrow.parquet

        self.schema = schema
        self.rows = 0
        self.bytes = 0
        """Of the whole file, behind its end."""
        self._file = file
        if format == "parquet":
            about = {field.name: field.metadata[b"description"] for field in schema if field.metadata}
            plain = pyarrow.schema([field.remove_metadata() for field in schema], about)  # Each meaning once.
            self._writer = pyarrow.parquet.ParquetWriter(file, plain, compression="zstd", **_encodings(schema))
        else:
            self._writer = pyarrow.ipc.new_file(file, schema)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._writer.close()
            self.bytes = self._file.tell()
        self._writer.is_open = False  # Where something failed, pyarrow would try again when it is collected.

    def add(self, batch: pyarrow.RecordBatch) -> None:
        self._writer.write_batch(batch)
        self.rows += batch.num_rows


def _encodings(schema: pyarrow.Schema) -> dict[str, Any]:
    """Texts come again and again; numbers mostly are close to the one before, and hardly ever equal to it."""
    from pyarrow import types

    texts = [field.name for field in schema if types.is_string(field.type)]
    texts += [f"{field.name}.list.element" for field in schema if types.is_list(field.type)]
    numbers = [field.name for field in schema if types.is_integer(field.type) or types.is_timestamp(field.type)]
    return {"use_dictionary": texts, "column_encoding": dict.fromkeys(numbers, "DELTA_BINARY_PACKED")}
