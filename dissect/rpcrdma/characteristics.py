"""The options of an RDMA2_OPTIONAL that carry transport characteristics, read into nouns (xcharext-02, 4).

The tables are ``layers/characteristics_codes.py``; a new option is a row there and a noun here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from ..layers.characteristics_codes import (
    OPTIONS,
    ROPT_INITXCH,
    ROPT_REQXCH,
    ROPT_RESPXCH,
    ROPT_UPDXCH,
    Characteristic,
    interpret,
)
from ..named_tuple import NamedTuple

MAX_WORDS = 64
"""Words of an xcharsubset that are read; the XDR has no limit, but no message has room for so many characteristics."""


class InitXch(NamedTuple):
    """ROPT_INITXCH: the sender's characteristics (xcharext-02, 4.1)."""

    start: tuple[Characteristic, ...] = ()
    nochange: frozenset[int] = frozenset()
    """Positions in ``start`` of characteristics that are not expected to change."""
    problem: str = ""
    """Why decoding stopped, or what follows the end; the fields have everything before that."""
    truncated: bool = False
    """The problem is that the capture truncated the message."""


class ReqXch(NamedTuple):
    """ROPT_REQXCH: the values that the sender would like its peer to have (xcharext-02, 4.2)."""

    want: tuple[Characteristic, ...] = ()
    problem: str = ""
    truncated: bool = False


class RespXch(NamedTuple):
    """ROPT_RESPXCH: the answers to the wishes of a ROPT_REQXCH, by their positions there (xcharext-02, 4.3)."""

    done: frozenset[int] = frozenset()
    rejected: frozenset[int] = frozenset()
    pending: frozenset[int] = frozenset()
    problem: str = ""
    truncated: bool = False


class UpdXch(NamedTuple):
    """ROPT_UPDXCH: a characteristic of the sender has changed (xcharext-02, 4.4).  None: missing."""

    now: Characteristic | None = None
    pending_clear: bool | None = None
    """The change requested by the peer is no longer pending."""
    problem: str = ""
    truncated: bool = False


class UnknownOption(NamedTuple):
    """An rdma_opttype that no known document defines, with its rdma_optinfo as captured."""

    option: int
    data: bytes
    problem: str = ""
    truncated: bool = False


OptionNoun = InitXch | ReqXch | RespXch | UpdXch | UnknownOption

NOUNS: dict[int, type[Any]] = {
    ROPT_INITXCH: InitXch,
    ROPT_REQXCH: ReqXch,
    ROPT_RESPXCH: RespXch,
    ROPT_UPDXCH: UpdXch,
}
"""By option: made of the fields of its row in OPTIONS, in order, then ``problem`` and ``truncated``."""


def selected(subset: Iterable[int], start: Sequence[Characteristic]) -> tuple[str, ...]:
    """The names that an xcharsubset selects in its xcharspec (xcharext-02, 2.1)."""
    return tuple(
        start[position].name if position < len(start) else f"position {position}, where nothing is"
        for position in sorted(subset)
    )


def decode_option(option: int, optinfo: bytes, truncated: bool = False) -> OptionNoun:
    """Decode an rdma_optinfo; ``truncated``: the capture has only its beginning.

    Never raises: everything before the first illegal or missing field is decoded, and ``problem`` names that field and
    its offset in rdma_optinfo.
    """
    kind = OPTIONS.get(option)
    if kind is None:
        return UnknownOption(option, optinfo, truncated=truncated)
    reader = _Reader(optinfo, truncated)
    values: list[Any] = []
    problem = ""
    for field, type_ in kind.fields:
        items, gather = TYPES[type_]
        decoded: list[Any] = []
        if not problem:
            try:
                for item in items(reader, field):
                    decoded.append(item)  # Keep what was decoded before an error.
            except _End as end:
                problem = str(end)
        values.append(gather(decoded))
    ended = reader.ran_out and truncated
    if not problem and truncated:
        problem, ended = "its end is not in the capture", True
    noun: OptionNoun = NOUNS[option](*values, problem, ended)
    return noun


class _End(Exception):
    """Decoding cannot continue."""


class _Reader:
    """A position in an rdma_optinfo."""

    __slots__ = ("at", "data", "ran_out", "truncated")

    def __init__(self, data: bytes, truncated: bool) -> None:
        self.data, self.truncated = data, truncated
        self.at = 0
        self.ran_out = False

    def take(self, size: int, field: str) -> bytes:
        at, self.at = self.at, self.at + size
        if self.at > len(self.data):
            self.ran_out = True
            lacks = "is not in the capture" if self.truncated else "runs past the end of rdma_optinfo"
            raise _End(f"{field} at offset {at} {lacks}")
        return self.data[at : self.at]

    def word(self, field: str) -> int:
        return int.from_bytes(self.take(4, field))

    def count(self, size: int, field: str) -> int:
        """The length of an array whose items take at least ``size`` bytes."""
        count = self.word(field)
        if count * size > len(self.data) - self.at and not self.truncated:
            raise _End(f"{field} at offset {self.at - 4} counts {count}, which run past the end of rdma_optinfo")
        return count

    def zeros(self, size: int, field: str) -> None:
        at = self.at
        if any(self.take(size, field)):
            raise _End(f"{field} at offset {at} is not zero")


def _xcharval(reader: _Reader, field: str) -> Iterator[Characteristic]:
    which = reader.word(f"{field}'s xchv_which")
    size = reader.word(f"{field}'s xchv_data length")
    data = reader.take(size, f"{field}'s xchv_data of {size} bytes")
    reader.zeros(-size % 4, f"the pad of {field}'s xchv_data")
    yield interpret(which, data)


def _xcharspec(reader: _Reader, field: str) -> Iterator[Characteristic]:
    for _ in range(reader.count(8, field)):
        yield from _xcharval(reader, field)


def _xcharsubset(reader: _Reader, field: str) -> Iterator[int]:
    """Bit N mod 32 of word N div 32, from the least significant bit, stands for position N (xcharext-02, 2.1)."""
    count = reader.count(4, field)
    for word in range(min(count, MAX_WORDS)):
        bits = reader.word(field)
        yield from (32 * word + bit for bit in range(32) if bits >> bit & 1)
    reader.zeros(4 * max(0, count - MAX_WORDS), f"{field} behind position {32 * MAX_WORDS - 1}")


def _bool(reader: _Reader, field: str) -> Iterator[bool]:
    value = reader.word(field)
    if value > 1:
        raise _End(f"{field} at offset {reader.at - 4} is {value}, neither 0 nor 1")
    yield bool(value)


def _first(items: list[Any]) -> Any:
    return items[0] if items else None


TYPES: dict[str, tuple[Callable[[_Reader, str], Iterator[Any]], Callable[[list[Any]], Any]]] = {
    "xcharval": (_xcharval, _first),
    "xcharspec": (_xcharspec, tuple),
    "xcharsubset": (_xcharsubset, frozenset),
    "bool": (_bool, _first),
}
"""By type: how to read a field, and what to make of its items (xcharext-02, 5.2)."""
