"""NumPy columns: their types, and the operations that are fast on short ones."""

from __future__ import annotations

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from functools import lru_cache
from itertools import count
from typing import Any, TypeVar, overload

import numpy as np
from numpy.typing import DTypeLike, NDArray

Bytes = NDArray[np.uint8]

Int64s = NDArray[np.int64]

Rows = NDArray[Any]
"""Rows of a structured dtype; the dtype itself documents the fields.  It is aligned, unless it is a layout on the wire:
columns that are not aligned NumPy reads through a buffer, and copies them anew for each operation."""


def take(rows: Rows, index: NDArray[Any]) -> Rows:
    """``rows[index]`` or ``rows[mask]``, with each row copied as one piece: field by field is many times slower."""
    taken: Rows = rows.compress(index) if index.dtype == np.bool_ else rows.take(index)
    return taken


def kept(rows: Rows, mask: NDArray[Any]) -> Rows:
    """The same of a mask, but the rows themselves where it has all of them."""
    return rows if every(mask) else take(rows, mask)


def put(rows: Rows, index: NDArray[Any] | slice, values: Rows) -> None:
    """``rows[index] = values`` of rows of the same dtype, in the same way."""
    piece = piece_type(rows.itemsize)
    rows.view(piece)[index] = values.view(piece)


SMALL = 1 << 15
"""Bytes that are copied twice in less time than it takes to say that they are one piece."""


def copied(rows: Rows) -> Rows:
    """Rows that hold no others, copied as one piece of bytes: ``copy`` goes field by field, too."""
    if rows.nbytes > SMALL:
        return rows.view(piece_type(rows.itemsize)).copy().view(rows.dtype)
    own: Rows = np.frombuffer(bytearray(rows.tobytes()), rows.dtype)
    return own


def owned(rows: Rows) -> Rows:
    """The same, without the rows that they are a part of."""
    return copied(rows) if isinstance(rows.base, np.ndarray) else rows


def joined(parts: Sequence[Rows]) -> Rows:
    """Rows one behind the other, as pieces of bytes: NumPy takes long to find out that all have the same fields."""
    if len(parts) == 1:
        return parts[0]
    piece = piece_type(parts[0].itemsize)
    rows: Rows = np.concatenate([part.view(piece) for part in parts]).view(parts[0].dtype)
    return rows


def places(mask: NDArray[Any]) -> Int64s:
    """Where it is true; ``np.flatnonzero``, which takes several times as long where arrays are short."""
    indices: Int64s = mask.nonzero()[0]
    return indices


def some(mask: NDArray[Any]) -> bool:
    """Whether any is true; the same of ``mask.any()``."""
    return bool(np.count_nonzero(mask))


def every(mask: NDArray[Any]) -> bool:
    """Whether all are true; the same of ``mask.all()``."""
    return bool(np.count_nonzero(mask) == mask.size)


def steps(values: NDArray[Any], before: int) -> Int64s:
    """From each value to the next, the first from ``before``: ``np.diff`` with ``prepend``, in a third of the time."""
    differences: Int64s = values.astype(np.int64)
    differences[1:] -= values[:-1]
    differences[:1] -= before
    return differences


def extremes(values: NDArray[Any]) -> tuple[int, int]:
    """The smallest and the largest; the same of ``min`` and ``max``."""
    return int(values[values.argmin()]), int(values[values.argmax()])


def stretches(values: NDArray[Any]) -> Int64s:
    """Where values begin that differ from the one before, the first included."""
    begins = np.empty(len(values), np.bool_)
    begins[:1] = True
    np.not_equal(values[1:], values[:-1], out=begins[1:])
    return places(begins)


def unique(values: NDArray[Any]) -> NDArray[Any]:
    """The distinct values, ascending: ``np.unique``, which loads all of ``numpy.ma`` where it is asked for no more."""
    ordered = np.sort(values)
    return ordered[stretches(ordered)]


def among(values: NDArray[Any], others: NDArray[Any]) -> NDArray[np.bool_]:
    """Which of the values are one of the others: ``np.isin``, which loads ``numpy.ma`` where they are far apart."""
    if not len(others):
        return np.zeros(len(values), np.bool_)
    ordered = np.sort(others)
    at = ordered.searchsorted(values)
    at[at == len(ordered)] = 0
    members: NDArray[np.bool_] = ordered[at] == values
    return members


def gathered(data: Bytes, width: int, at: Int64s) -> NDArray[np.uint8]:
    """``data[at[i]:at[i] + width]`` as row ``i``."""
    pieces: NDArray[np.uint8] = anywhere(data, width)[at].view(np.uint8).reshape(len(at), width)
    return pieces


def gather(data: Bytes, at: Int64s, layout: DTypeLike) -> Rows:
    """Records of a packed layout at the given offsets, all of them inside the data."""
    layout = np.dtype(layout)
    rows: Rows = anywhere(data, layout.itemsize)[at].view(layout)
    return rows


def scatter(data: Bytes, at: Int64s, records: Rows) -> None:
    """Writes records at the given offsets."""
    anywhere(data, records.dtype.itemsize)[at] = records.view(piece_type(records.dtype.itemsize))


def words_at(data: Bytes, at: Int64s) -> Int64s:
    """The unsigned word of four bytes, in network byte order, at each place."""
    return gather(data, at, ">u4").astype(np.int64)


def bytes_at(data: Bytes, width: int, at: Int64s) -> list[bytes]:
    """So many bytes, at least one, from each place on."""
    pieces: list[bytes] = anywhere(data, width)[at].tolist()
    return pieces


def anywhere(data: Bytes, width: int) -> NDArray[np.void]:
    """So many bytes from each place on: as one piece they are copied in less than half the time."""
    return np.ndarray((max(0, len(data) - width + 1),), piece_type(width), data, 0, data.strides)


@lru_cache(256)
def piece_type(width: int) -> np.dtype[np.void]:
    """So many bytes as one value.  To make it takes longer than to gather some."""
    return np.dtype((np.void, width))


def big_endian_words(rows: NDArray[np.uint8]) -> Int64s:
    """Rows of bytes, four to a word, as rows of unsigned words."""
    return np.ascontiguousarray(rows).view(">u4").astype(np.int64)


FEW = 64
"""Rows that take less time one by one."""
DENSE = 1 << 16
"""Different values that are looked up in a table; sorting more of them is quicker."""


def coded(values: Int64s) -> tuple[Int64s, Int64s]:
    """The distinct values, ascending, and for each one which of them it is: ``np.unique``, quicker of close values."""
    if not len(values):
        return values, values
    low, high = extremes(values)
    span = high - low + 1
    if span > DENSE:
        return np.unique(values, return_inverse=True)
    offsets = values - low
    present = places(np.bincount(offsets, minlength=span))
    codes = np.zeros(span, np.int64)
    codes[present] = np.arange(len(present))
    return present + low, codes[offsets]


Key = TypeVar("Key", bound=Hashable)


def coded_keys(keys: Iterable[Key], length: int) -> tuple[list[Key], Int64s]:
    """The distinct ones of ``length`` keys, as they first appear, and for each key which of these it is."""
    codes: defaultdict[Key, int] = defaultdict(count().__next__)
    which = np.fromiter(map(codes.__getitem__, keys), np.int64, length)
    return list(codes), which


def distinct(*columns: NDArray[Any]) -> tuple[Int64s, Int64s]:
    """For the distinct combinations of values the index of their first row; and for each row which of these it has.

    Values are integers of 64 bits at most.
    """
    if len(columns[0]) <= FEW:
        keys = [*zip(*[column.tolist() for column in columns], strict=True)]
        known = {key: row for row, key in [*enumerate(keys)][::-1]}
        codes_of = {key: code for code, key in enumerate(sorted(known))}
        return np.array([known[key] for key in codes_of], np.int64), np.array([codes_of[key] for key in keys], np.int64)
    inverse: Int64s = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        _, codes = coded(column.astype(np.int64))
        _, inverse = coded(inverse * (int(codes.max(initial=0)) + 1) + codes)
    first: Int64s = np.zeros(int(inverse.max(initial=-1)) + 1, np.int64)
    first[inverse[::-1]] = np.arange(len(inverse) - 1, -1, -1)
    return first, inverse


Item = TypeVar("Item", covariant=True)


class MadeSequence(Sequence[Item]):
    """A sequence of objects, each of which is made when it is asked for."""

    @overload
    def __getitem__(self, index: int) -> Item: ...

    @overload
    def __getitem__(self, index: slice) -> list[Item]: ...

    def __getitem__(self, index: int | slice) -> Item | list[Item]:
        if isinstance(index, slice):
            return [self.made(row) for row in range(len(self))[index]]
        return self.made(range(len(self))[index])

    @abstractmethod
    def made(self, index: int) -> Item:
        """The object at an index, which is neither negative nor too large."""
