"""A fixed-size header's ``fields_desc``, compiled into a reader of NumPy columns."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Bytes, Int64s, gathered
from .layouts import LAYOUTS

_WORDS = {1: ">u1", 2: ">u2", 4: ">u4", 8: ">u8"}


class Column:
    """How one field is taken out of its header.

    Attributes:
        name: the field's name.
        first: byte of the header in which it starts.
        shift: bits behind it in the last byte it touches (of the word read).
        bits: width; a field wider than 64 bits is given as rows of bytes.
    """

    __slots__ = ("bits", "first", "mask", "name", "result", "shift", "width")

    def __init__(self, name: str, start: int, bits: int, size: int) -> None:
        self.name, self.bits = name, bits
        end = start + bits
        self.first, last = start // 8, (end + 7) // 8
        self.width = last - self.first
        if bits > 64:
            if start % 8 or bits % 8:
                raise TypeError(f"{name}: {bits} bits that do not start and end on a byte")
            self.shift, self.mask, self.result = 0, None, np.dtype("u1")
            return
        if self.width > 8:
            raise TypeError(f"{name}: {bits} bits spread over nine bytes")
        word = next(width for width in _WORDS if width >= self.width)
        if word <= size:
            self.first = min(self.first, size - word)
            self.width = word
        self.shift = (self.first + self.width) * 8 - end
        self.mask = (1 << bits) - 1
        self.result = np.dtype(f"u{next(width for width in _WORDS if width * 8 >= bits)}")

    def read(self, header: Bytes) -> NDArray[Any]:
        """The field of every row of ``header`` (uint8, shape (n, header size))."""
        field = header[:, self.first : self.first + self.width]
        if self.mask is None:
            return field
        if self.width in _WORDS:
            word: NDArray[Any] = field.view(_WORDS[self.width])[:, 0]
        else:
            word = np.zeros(len(header), np.uint64)
            for column in field.T:
                word = word << np.uint64(8) | column
        if self.shift:
            word = word >> word.dtype.type(self.shift)
        if self.bits + self.shift < word.dtype.itemsize * 8:
            word = word & word.dtype.type(self.mask)
        return word.astype(self.result, copy=False)


class Extractor:
    """Reads the fields of one kind of header at many places at once.

    Attributes:
        size: bytes of the header.
        columns: the fields by name, in header order.
    """

    __slots__ = ("columns", "size")

    def __init__(self, columns: dict[str, Column], size: int) -> None:
        self.columns, self.size = columns, size

    def __call__(self, data: Bytes, offsets: Int64s, fields: Iterable[str] | None = None) -> dict[str, NDArray[Any]]:
        """The fields, or those named, of the headers that start at ``offsets`` of ``data``.

        ``data`` is contiguous uint8[N], ``offsets`` int64[n]; every header must end inside ``data``, which is
        the caller's to see to (IndexError where one does not).  Values are unsigned native integers of the
        smallest width that holds the field, shape (n,); those wider than 64 bits are bytes, shape (n, width).
        """
        names = self.columns if fields is None else fields
        header = self.gather(data, offsets)
        return {name: self.columns[name].read(header) for name in names}

    def gather(self, data: Bytes, offsets: Int64s) -> Bytes:
        """The headers themselves, uint8, shape (n, size)."""
        if len(offsets) and (int(offsets.min()) < 0 or int(offsets.max()) + self.size > len(data)):
            raise IndexError(f"a header of {self.size} bytes ends outside the {len(data)} bytes given")
        return gathered(data, self.size, offsets)


def _bits(field: Any) -> int:
    """Width of a field in bits; TypeError where it is not an unsigned big-endian field of fixed size."""
    from scapy.fields import Field, StrFixedLenField, ThreeBytesField, _BitField

    reader = getattr(type(field), "getfield", None)
    if isinstance(field, _BitField) and field.size > 0 and not field.rev:
        return int(field.size)
    if isinstance(field, ThreeBytesField):
        return 24
    if isinstance(field, StrFixedLenField):
        fixed = field.sz if field.length_from(None) == field.sz else 0
        if fixed:
            return int(fixed) * 8
    elif reader is Field.getfield and _is_plain(field.fmt):
        return int(field.sz) * 8
    elif isinstance(field, Field) and field.sz == 0:  # stands behind the payload, not in the header
        return 0
    raise TypeError(f"{field.name}: a {type(field).__name__} has no fixed place and big-endian byte order")


def _is_plain(format: str) -> bool:
    """Whether a struct format is one unsigned big-endian number, or bytes."""
    return format[0] in "!>" and (format[1:] in ("B", "H", "I", "L", "Q") or format.endswith("s"))


def layout(header: type[Any]) -> tuple[tuple[str, int], ...]:
    """Names and widths in bits of the fields of a Scapy ``Packet`` class, all of fixed size, in header order.

    Raises TypeError for fields that have no fixed place (conditional, length-dependent).
    """
    return tuple((field.name, bits) for field in header.fields_desc if (bits := _bits(field)))


@cache
def compile_header(header: type[Any]) -> Extractor:
    """The NumPy reader of a Scapy ``Packet`` class whose fields are all of fixed size.

    Bits count from the most significant bit of the first byte, multi-byte fields are big-endian, as on the
    wire.  Raises TypeError for fields that have no fixed place (conditional, length-dependent).
    """
    return _compile(header.__name__, layout(header))


@cache
def compiled(name: str) -> Extractor:
    """The NumPy reader of a header whose layout was compiled ahead, so that Scapy need not be started
    (layers/layouts.py)."""
    return _compile(name, LAYOUTS[name])


def _compile(name: str, widths: tuple[tuple[str, int], ...]) -> Extractor:
    total = sum(bits for _, bits in widths)
    if total % 8:
        raise TypeError(f"{name}: {total} bits are no whole number of bytes")
    columns: dict[str, Column] = {}
    start = 0
    for field, bits in widths:
        columns[field] = Column(field, start, bits, total // 8)
        start += bits
    return Extractor(columns, total // 8)
