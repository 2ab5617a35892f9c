"""The rows of a data set for the lists of browse, capture by capture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.ma import MaskedArray

from rdmascope.dissect.records.table import Columns
from rdmascope.dissect.records.tables import TABLES

from .data_set import Numbering, entries
from .database import SQL_TYPES
from .saved_tables import open_saved
from .sql_names import named


def stored_rows(data_set: str, tables: Sequence[str]) -> Iterator[tuple[str, Columns]]:
    """Name and columns of the rows of some tables, with their numbers of the data set; of one capture at a time.

    Raises CaptureError for a data set that cannot be read.
    """
    with open_saved(data_set) as database:
        for one in Numbering(entries(data_set)).entries:
            for name in tables:
                listed = ", ".join(map(named, (column.name for column in TABLES[name].columns)))
                rows = database.connection.execute(f"SELECT {listed} FROM {name} WHERE capture = ?", [one.capture])
                yield name, _columns(name, rows.fetchnumpy())


def _columns(name: str, found: dict[str, object]) -> Columns:
    """As those of a ``TableBuilder``: texts that are not known are '', and masked."""
    columns: Columns = {}
    for column in TABLES[name].columns:
        values: MaskedArray = np.ma.asarray(found[column.name])
        if SQL_TYPES[column.type] == "VARCHAR":
            unknown = np.ma.getmaskarray(values)
            values = np.ma.MaskedArray(np.where(unknown, "", values.data).astype(object), unknown)
        columns[column.name] = values
    return columns
