"""A table in memory, as NumPy columns that become Arrow's, pandas', polars' or DuckDB's where those are installed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.ma import MaskedArray, getmaskarray

from rdmascope.dissect.units import count, plural

from ..errors import need

if TYPE_CHECKING:
    import pandas
    import pyarrow

SHOWN = 10
"""Rows of a table that is printed."""
WIDEST = 32
"""Characters of a value that is printed."""


class ColumnTable(Mapping[str, MaskedArray]):
    """Columns by name, all of one length: NumPy arrays, with unknown values masked.

    It has Arrow's PyCapsule interface: ``polars.DataFrame(table)``, ``pandas.DataFrame.from_arrow(table)`` and DuckDB's
    ``FROM rpcs`` (its variable) take it as it is, by way of pyarrow.
    """

    def __init__(self, columns: Mapping[str, MaskedArray]) -> None:
        self._columns = dict(columns)

    def __getitem__(self, name: str) -> MaskedArray:
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    @property
    def length(self) -> int:
        """How many rows it has."""
        return len(next(iter(self.values()), ()))

    @property
    def _shape(self) -> str:
        return f"{plural(self.length, 'row')}, {plural(len(self), 'column')}"

    def _cells(self) -> dict[str, list[str]]:
        """The first values of each column, as text in one line in which nothing acts."""
        return {name: [_text(value) for value in values[:SHOWN]] for name, values in self.items()}

    def __repr__(self) -> str:
        """The first rows of the columns that fit the terminal, and how many there are."""
        left = get_terminal_size().columns
        shown: list[list[str]] = []
        for name, cells in self._cells().items():
            width = max(map(len, (name, *cells)))
            left -= width + 2
            if left < 0 and shown:
                break
            align = str.ljust if self[name].dtype.kind == "O" else str.rjust
            shown.append([align(cell, width) for cell in (name, *cells)])
        lines = ["  ".join(cells).rstrip() for cells in zip(*shown, strict=True)]
        rest = f"; {count(len(self) - len(shown))} columns not shown" if len(shown) < len(self) else ""
        return "\n".join([*lines, f"[{self._shape}{rest}]"])

    def _repr_html_(self) -> str:
        """For notebooks: the first rows of all columns."""
        cells = self._cells()
        head = "".join(f"<th>{escape(name)}</th>" for name in cells)
        rows = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in zip(*cells.values(), strict=True))
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table><p>{self._shape}</p>"

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Arrow's PyCapsule interface.  Raises CaptureError where pyarrow is not installed."""
        return self.arrow().__arrow_c_stream__(requested_schema)

    def arrow(self) -> pyarrow.Table:
        """The columns as an Arrow table. Raises CaptureError if pyarrow is not installed."""
        need("pyarrow")
        import pyarrow

        return pyarrow.table(
            {name: pyarrow.array(values.data, mask=getmaskarray(values)) for name, values in self.items()}
        )

    def df(self) -> pandas.DataFrame:
        """The columns as a pandas DataFrame. Integers stay exact: unknown ones are pandas' NA. Raises CaptureError if
        pandas is not installed.
        """
        need("pandas")
        import pandas

        return pandas.DataFrame({name: _series(pandas, values) for name, values in self.items()})


def _text(value: Any) -> str:
    if value is np.ma.masked:
        return "-"
    text = str(value)
    if not text.isprintable():
        text = ascii(text)[1:-1]
    return text if len(text) <= WIDEST else f"{text[: WIDEST - 1]}…"


def _series(pandas: Any, values: MaskedArray) -> Any:
    data, mask = values.data, getmaskarray(values)
    if data.dtype.kind in "iu":
        return pandas.arrays.IntegerArray(data, mask)
    if data.dtype.kind == "b":
        return pandas.arrays.BooleanArray(data, mask)
    if data.dtype.kind == "f":
        return values.filled(np.nan)
    if data.dtype.kind == "M":
        return values.filled(np.datetime64("NaT"))
    texts = data.astype(object)
    texts[mask] = None
    return texts


def masked_as(values: MaskedArray, dtype: Any) -> MaskedArray:
    """The same values as another type."""
    return np.ma.MaskedArray(values.data.astype(dtype), mask=getmaskarray(values))
