"""A table in memory, as NumPy columns that become Arrow's or pandas' where those are installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.ma import MaskedArray, getmaskarray

if TYPE_CHECKING:
    import pandas
    import pyarrow


class ColumnTable(dict[str, MaskedArray]):
    """Columns by name, all of one length: masked NumPy arrays, in which what is not known is masked."""

    @property
    def length(self) -> int:
        """Rows."""
        return len(next(iter(self.values()), ()))

    def arrow(self) -> pyarrow.Table:
        """As an Arrow table.  Raises ImportError where pyarrow is not installed."""
        try:
            import pyarrow
        except ImportError:
            raise ImportError("pyarrow is not installed: pip install 'rdmascope[arrow]'") from None
        return pyarrow.table(
            {name: pyarrow.array(values.data, mask=getmaskarray(values)) for name, values in self.items()}
        )

    def df(self) -> pandas.DataFrame:
        """As a pandas DataFrame, its integers exact: with pandas' own NA where they are not known.

        Raises ImportError where pandas is not installed.
        """
        try:
            import pandas
        except ImportError:
            raise ImportError("pandas is not installed: pip install pandas") from None
        return pandas.DataFrame({name: _series(pandas, values) for name, values in self.items()})


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
