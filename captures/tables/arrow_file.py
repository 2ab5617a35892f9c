"""Parquet and Arrow files, which say what their columns mean."""

from __future__ import annotations

from collections.abc import Collection, Sequence, Sized
from itertools import chain
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Self

from numpy import ascontiguousarray, cumsum, int32, packbits
from numpy.ma import MaskedArray, getmaskarray

from rdmascope.dissect.records.rpc_columns import Columns, TableColumn

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

    arrays = [_array(type, rows[column.name]) for column, type in zip(columns, schema.types, strict=True)]
    return pyarrow.RecordBatch.from_arrays(arrays, schema=schema)


def _array(type: pyarrow.DataType, column: MaskedArray) -> pyarrow.Array:
    """``pyarrow.array`` of a column, which loads all of pandas where that is installed."""
    from pyarrow import Array, py_buffer, types

    values, mask = column.data, getmaskarray(column)
    known = py_buffer(packbits(~mask, bitorder="little")) if mask.any() else None
    if types.is_string(type):
        return Array.from_buffers(type, len(values), [known, *_text_buffers(values.tolist())])
    if types.is_list(type):
        flat = [*chain.from_iterable(values)]
        texts = Array.from_buffers(type.value_type, len(flat), [None, *_text_buffers(flat)])
        return Array.from_buffers(type, len(values), [known, _offsets(values)], children=[texts])
    numbers = packbits(values, bitorder="little") if types.is_boolean(type) else ascontiguousarray(values)
    return Array.from_buffers(type, len(values), [known, py_buffer(numbers)])


def _text_buffers(texts: list[str]) -> tuple[pyarrow.Buffer, pyarrow.Buffer]:
    """Where each begins, and their bytes."""
    from pyarrow import py_buffer

    joined = "".join(texts)
    if joined.isascii():
        return _offsets(texts), py_buffer(joined.encode())
    encoded = [text.encode("utf-8", "backslashreplace") for text in texts]  # File names may be no UTF-8.
    return _offsets(encoded), py_buffer(b"".join(encoded))


def _offsets(values: Collection[Sized]) -> pyarrow.Buffer:
    from pyarrow import py_buffer

    return py_buffer(cumsum([0, *map(len, values)], dtype=int32))


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
