"""Lines of text from columns: every number and word of many lines at once, without a string for each.

A line is a sequence of pieces: text that all lines have, and columns of numbers and of words.  Each piece becomes a
matrix of bytes, a row for each line, with NUL where a row has less than the widest; text has no NUL of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .arrays import Bytes, Int64s, coded
from .named_tuple import NamedTuple

Integers = NDArray[Any]
"""Integers of any size that are not negative."""
Encoder = Callable[[str], bytes]
"""What a text becomes in the output, without NUL bytes; of a text it is what its characters become.

Printable ASCII stays what it is."""


class Decimal(NamedTuple):
    """A column of numbers, right-aligned in ``width`` columns where they are shorter."""

    values: Integers
    width: int = 0
    fill: str = " "
    """Before shorter ones: blanks or zeros."""
    null: NDArray[np.bool_] | None = None
    """Rows that have no number, but the word null."""


class Hexadecimal(NamedTuple):
    """The same with digits 0 to f, with zeros before."""

    values: Integers
    digits: int = 1
    """At least."""


class Texts(NamedTuple):
    """A column of texts."""

    texts: Sequence[str]
    which: Int64s | None = None
    """The index of each row's text; None where every row has its own."""


class KnownTexts(NamedTuple):
    """A column of texts, of which some are not known."""

    texts: Sequence[str | None]
    which: Int64s
    """The index of each row's text."""

    @classmethod
    def of(cls, texts: Sequence[str | None]) -> KnownTexts:
        """A text of its own for each row."""
        return cls(texts, np.arange(len(texts)))

    def row(self, index: int) -> str | None:
        return self.texts[int(self.which[index])]

    def rows(self, chosen: NDArray[Any]) -> KnownTexts:
        """Some rows, by indices or a mask, with the texts of these alone."""
        distinct, which = coded(self.which[chosen])
        return KnownTexts([self.texts[index] for index in distinct.tolist()], which)

    def listed(self) -> list[str | None]:
        """The text of each row."""
        return [self.texts[index] for index in self.which.tolist()]


class Encoded(NamedTuple):
    """The same, encoded once for the lines of many calls."""

    table: Bytes
    """A row for each text, with NUL behind the shorter ones."""
    which: Int64s


Page = bytes | bytearray
"""Lines with their line feeds."""
Piece = str | Decimal | Hexadecimal | Texts | Encoded


class _ColumnTable(NamedTuple):
    """Columns of which the rows of lines are found alike, side by side."""

    table: Bytes
    which: Int64s | None
    """Of each line its row of the table; None where every line has its own."""
    places: list[tuple[int, int, int]]
    """Where in a line a column goes, where in the table it is, and its width."""


class EncodedLines:
    """The pieces of many lines, encoded once, for pages of some of the lines at a time."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        """A piece that is given twice is encoded once."""
        by_code: dict[int | None, tuple[Int64s | None, list[Bytes]]] = {}
        known: dict[int, tuple[int | None, int]] = {}
        places: dict[int | None, list[tuple[int, int, int]]] = {}
        alike: list[Bytes] = []
        self.width = 0
        for piece in pieces:
            if isinstance(piece, str):
                if not piece:
                    continue
                alike.append(_column(piece, str.encode))
                self.width += alike[-1].shape[1]
                continue
            if id(piece) not in known:
                table, which = _table_and_rows(piece)
                key = None if which is None else id(which)
                _, tables = by_code.setdefault(key, (which, []))
                known[id(piece)] = key, len(tables)
                tables.append(table)
            key, index = known[id(piece)]
            tables = by_code[key][1]
            width = tables[index].shape[1]
            places.setdefault(key, []).append((self.width, sum([table.shape[1] for table in tables[:index]]), width))
            alike.append(np.zeros((1, width), np.uint8))
            self.width += width
        self._alike = np.concatenate(alike, axis=1)
        self._shared = [
            _ColumnTable(tables[0] if len(tables) == 1 else np.concatenate(tables, axis=1), which, places[key])
            for key, (which, tables) in by_code.items()
        ]

    def fill(self, text: Bytes, rows: Int64s) -> None:
        """Write some lines into the rows of a matrix of this width, NUL where they have less."""
        text[:] = self._alike
        for table, which, places in self._shared:
            taken = table.take(rows if which is None else which[rows], axis=0)
            for to, at, width in places:
                text[:, to : to + width] = taken[:, at : at + width]


def page_of(parts: Sequence[tuple[EncodedLines, Int64s]], count: int) -> Page:
    """``count`` lines with a line feed behind each, of parts that stand side by side: rows of lines that were encoded
    once."""
    width = sum([lines.width for lines, _ in parts]) + 1
    text = bytearray(count * width)
    matrix = np.frombuffer(text, np.uint8).reshape(count, width)
    at = 0
    for lines, rows in parts:
        lines.fill(matrix[:, at : at + lines.width], rows)
        at += lines.width
    matrix[:, at] = ord("\n")
    del matrix
    return text.translate(None, b"\0")


def _table_and_rows(piece: Texts | Encoded | Decimal | Hexadecimal) -> tuple[Bytes, Int64s | None]:
    """The distinct texts of a piece, and which of these each line has; None: one of its own."""
    if isinstance(piece, Encoded):
        return piece
    if isinstance(piece, Texts):
        return _table_of(piece.texts, str.encode), piece.which
    return _column(piece, str.encode), None


def joined(pieces: Sequence[Piece], count: int, encoded: Encoder = str.encode) -> Encoded:
    """Several pieces of ``count`` lines as one, encoded."""
    return Encoded(_matrix(pieces, count, encoded), np.arange(count))


def words_of(values: NDArray[Any], word: Callable[[int], str]) -> Texts:
    """What ``word`` says of each value; asked once for each distinct one."""
    distinct, which = np.unique(values, return_inverse=True)
    return Texts([word(value) for value in distinct.tolist()], which)


def chosen(piece: Piece, rows: NDArray[Any]) -> Piece:
    """The piece of some rows: indices or a mask."""
    if isinstance(piece, str):
        return piece
    if isinstance(piece, Texts):
        return chosen_words(piece, rows)
    if isinstance(piece, Encoded):
        return piece._replace(which=piece.which[rows])
    if isinstance(piece, Decimal) and piece.null is not None:
        piece = piece._replace(null=piece.null[rows])
    return piece._replace(values=piece.values[rows])


def chosen_words(words: Texts, rows: NDArray[Any]) -> Texts:
    """The same of words."""
    return Texts(words.texts, (np.arange(len(words.texts)) if words.which is None else words.which)[rows])


def lines(pieces: Sequence[Piece], count: int, encoded: Encoder = str.encode) -> list[bytes]:
    """``count`` lines, which have no line feed in them."""
    split = bytes(page(pieces, count, encoded)).split(b"\n")
    split.pop()
    return split


def page(pieces: Sequence[Piece], count: int, encoded: Encoder = str.encode) -> Page:
    """The same lines, each with a line feed behind it."""
    if not count:
        return b""
    columns = [*(_column(piece, encoded) for piece in pieces if piece), _LINE_FEED]
    text = bytearray(count * sum([column.shape[1] for column in columns]))
    _fill(np.frombuffer(text, np.uint8).reshape(count, -1), columns)
    return text.translate(None, b"\0")


_LINE_FEED = np.frombuffer(b"\n", np.uint8).reshape(1, -1)


def _matrix(pieces: Sequence[Piece], count: int, encoded: Encoder) -> Bytes:
    """A row for each line."""
    columns = [_column(piece, encoded) for piece in pieces if piece]
    text = np.empty((count, sum([column.shape[1] for column in columns])), np.uint8)
    _fill(text, columns)
    return text


def _fill(text: Bytes, columns: Sequence[Bytes]) -> None:
    """The columns side by side."""
    if not text.size:
        return
    text[:] = np.concatenate([column[:1] for column in columns], axis=1)  # What is alike in all rows is done.
    at = 0
    for column in columns:
        if len(column) > 1:
            text[:, at : at + column.shape[1]] = column
        at += column.shape[1]


_BLANK = ord(" ")


def _column(piece: Piece, encoded: Encoder) -> Bytes:
    """A row for each line, or a single one where all are alike."""
    if isinstance(piece, str):
        return np.frombuffer(encoded(piece), np.uint8).reshape(1, -1)
    if isinstance(piece, Texts):
        table = _table_of(piece.texts, encoded)
        return table if piece.which is None else table.take(piece.which, axis=0)
    if isinstance(piece, Encoded):
        return piece.table.take(piece.which, axis=0)
    values = piece.values
    if values.dtype.kind != "u":
        values = values.astype(np.uint64)
    if isinstance(piece, Hexadecimal):
        return _digits(values, _HEXADECIMAL, len(f"{int(values.max()):x}"), piece.digits)
    digits = _digits(values, _DECIMAL, len(str(int(values.max()))), piece.width if piece.fill == "0" else 1)
    if piece.null is not None:
        digits = _nulled(digits, piece.null)
    if piece.fill == "0" or not piece.width:
        return digits
    if digits.shape[1] < piece.width:
        wide = np.full((len(digits), piece.width), _BLANK, np.uint8)
        np.maximum(digits, _BLANK, out=wide[:, -digits.shape[1] :])
        return wide
    # Beyond the width only longer numbers have anything.
    np.maximum(digits[:, -piece.width :], _BLANK, out=digits[:, -piece.width :])
    return digits


def _table_of(texts: Sequence[str], encoded: Encoder) -> Bytes:
    together = "".join(texts)
    plain = together.isascii() and together.isprintable()  # To look at all takes less time than to encode each.
    cells = texts if plain else [encoded(text) for text in texts]
    size = max(max(map(len, cells), default=0), 1)
    return np.array(cells, f"S{size}").view(np.uint8).reshape(-1, size)


def _nulled(digits: Bytes, null: NDArray[np.bool_]) -> Bytes:
    wide = np.zeros((len(digits), max(digits.shape[1], len(_NULL))), np.uint8)
    wide[:, -digits.shape[1] :] = digits
    wide[null] = 0
    wide[null, -len(_NULL) :] = _NULL
    return wide


_NULL = np.frombuffer(b"null", np.uint8)


class _Digits(NamedTuple):
    """Several digits at a time."""

    size: int
    base: int
    """Of so many digits."""
    table: NDArray[Any]
    """Digits as one integer of ``size`` bytes: by value; from ``base`` on without zeros before the first digit."""


def _table(size: int, radix: int) -> _Digits:
    base = radix**size
    values = np.arange(base)
    digits = np.zeros((2 * base, size), np.uint8)
    for place in range(size):
        of = radix ** (size - 1 - place)
        digits[:, place] = np.tile(_DIGITS[values // of % radix], 2)
        digits[base : base + of, place] = 0  # zeros before the first digit
    return _Digits(size, base, digits.view(f"u{size}")[:, 0])


_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)
_DECIMAL = _table(4, 10)
_HEXADECIMAL = _table(2, 16)


def _digits(values: Integers, known: _Digits, widest: int, least: int) -> Bytes:
    """At least ``least`` digits of each, NUL before them; ``widest``: digits of the largest."""
    least = max(least, 1)
    groups = -(-max(widest, least) // known.size)
    groups_of_digits = np.empty((len(values), groups), known.table.dtype)
    small = values.astype(np.uint32) if widest <= (9 if known.base == 10000 else 8) else values
    base = small.dtype.type(known.base)
    for group in range(groups - 1, -1, -1):
        above = small // base
        place = (small - above * base).astype(np.intp)
        place[above == 0] += known.base
        groups_of_digits[:, group] = known.table.take(place)
        small = above
    digits: Bytes = groups_of_digits.view(np.uint8).reshape(len(values), -1)
    zeros = digits[:, -least:]
    np.maximum(zeros, ord("0"), out=zeros)
    return digits[:, -max(widest, least) :]
