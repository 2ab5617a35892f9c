"""Transport characteristics, and the options that carry them in an RDMA2_OPTIONAL (xcharext-02).

``OPTIONS`` and ``CHARACTERISTICS`` are all there is to know about them: a new one is a row there (and, for an option,
a noun to read it into).  ``layers/rpcrdma2.py`` makes Scapy packets of the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

XCHAR_RBSIZ, XCHAR_REQREMINV, XCHAR_BRS = 1, 2, 3
BKREQSUP_NONE, BKREQSUP_INLINE, BKREQSUP_GENL = 0, 1, 2
ROPT_INITXCH, ROPT_REQXCH, ROPT_RESPXCH, ROPT_UPDXCH = 1, 2, 3, 4

EXPERIMENTAL = range(4294967040, 4294967296)
"""Identifiers for experiments (xcharext-02, 6.2)."""
MAX_WORDS = 64
"""Words of an xcharsubset that are read; the XDR sets no limit, and no message has room for so many characteristics."""

MAX_SHOWN = 16
"""Bytes of an unknown value that are shown."""


class CharacteristicKind(NamedTuple):
    """A row of Table 1 (xcharext-02, 3)."""

    name: str
    constant: str
    """Its name in the XDR."""
    type: str
    """'uint32', 'bool' or 'enum'."""
    default: int | bool
    """What holds for who does not hear of another value."""
    section: str
    values: Mapping[int, str] = MappingProxyType({})
    """The values of an enum."""


CHARACTERISTICS = {
    XCHAR_RBSIZ: CharacteristicKind("Receive Buffer Size", "XCHAR_RBSIZ", "uint32", 4096, "3.1"),
    XCHAR_REQREMINV: CharacteristicKind("Requester Remote Invalidation", "XCHAR_REQREMINV", "bool", False, "3.2"),
    XCHAR_BRS: CharacteristicKind(
        "Backward Request Support",
        "XCHAR_BRS",
        "enum",
        BKREQSUP_INLINE,
        "3.3",
        {BKREQSUP_NONE: "BKREQSUP_NONE", BKREQSUP_INLINE: "BKREQSUP_INLINE", BKREQSUP_GENL: "BKREQSUP_GENL"},
    ),
}


@dataclass(frozen=True, slots=True)
class Characteristic:
    """An xcharval: which characteristic, and its value (xcharext-02, 2.1)."""

    which: int
    """xchv_which."""
    data: bytes
    """xchv_data, without its pad."""
    value: int | bool | None = None
    """``data`` as the type in CHARACTERISTICS; None where that is not known, or the bytes are no such value."""
    problem: str = ""
    """In which way the bytes are no value of the type, or more than that; '' for a sound or unknown one."""

    @property
    def kind(self) -> CharacteristicKind | None:
        return CHARACTERISTICS.get(self.which)

    @property
    def name(self) -> str:
        return characteristic_name(self.which)

    @property
    def experimental(self) -> bool:
        return self.which in EXPERIMENTAL

    @property
    def words(self) -> str:
        """The value as a person would write it: '8192', 'true', 'BKREQSUP_GENL', '0x0102' of an unknown one."""
        if self.value is not None:
            return value_words(self.which, self.value)
        more = f"… ({len(self.data):,} bytes)" if len(self.data) > MAX_SHOWN else ""
        return f"0x{self.data[:MAX_SHOWN].hex()}{more}"


def characteristic_name(which: int) -> str:
    kind = CHARACTERISTICS.get(which)
    if kind is not None:
        return kind.name
    return f"{'experimental' if which in EXPERIMENTAL else 'unknown'} characteristic {which}"


def value_words(which: int, value: int | bool) -> str:
    """A value of a known characteristic: '8192', 'true', 'BKREQSUP_GENL'."""
    kind = CHARACTERISTICS[which]
    if kind.type == "bool":
        return "true" if value else "false"
    return kind.values.get(value, str(value))


def interpret(which: int, data: bytes) -> Characteristic:
    """The value that ``data`` stands for: every type is one 32-bit word (RFC 4506, 4.2 to 4.4)."""
    kind = CHARACTERISTICS.get(which)
    if kind is None:
        return Characteristic(which, data)
    if len(data) < 4:
        return Characteristic(which, data, None, f"{len(data)} bytes are too few for a {kind.type}")
    value: int | bool = int.from_bytes(data[:4])
    if kind.type == "bool":
        if value > 1:
            return Characteristic(which, data, None, f"{value} is no bool")
        value = bool(value)
    elif kind.values and value not in kind.values:
        return Characteristic(which, data, None, f"{value} is none of {', '.join(kind.values.values())}")
    problem = "" if len(data) == 4 else f"{len(data)} bytes, of which a {kind.type} takes 4"
    return Characteristic(which, data, value, problem)


@dataclass(frozen=True, slots=True)
class InitXch:
    """ROPT_INITXCH: the characteristics that its sender has (xcharext-02, 4.1)."""

    start: tuple[Characteristic, ...] = ()
    nochange: frozenset[int] = frozenset()
    """Positions in ``start`` of those that are not expected to change."""
    problem: str = ""
    """Why it could not be decoded to its end, or what is behind that; what comes before it stands above."""
    truncated: bool = False
    """The problem is that the capture ends before the message does."""


@dataclass(frozen=True, slots=True)
class ReqXch:
    """ROPT_REQXCH: the values its sender would like its peer to have (xcharext-02, 4.2)."""

    want: tuple[Characteristic, ...] = ()
    problem: str = ""
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class RespXch:
    """ROPT_RESPXCH: what becomes of the wishes of a ROPT_REQXCH, by their positions there (xcharext-02, 4.3)."""

    done: frozenset[int] = frozenset()
    rejected: frozenset[int] = frozenset()
    pending: frozenset[int] = frozenset()
    problem: str = ""
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class UpdXch:
    """ROPT_UPDXCH: a characteristic of its sender has changed (xcharext-02, 4.4).  None: not there."""

    now: Characteristic | None = None
    pending_clear: bool | None = None
    """The change that the peer asked for is no longer pending."""
    problem: str = ""
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class UnknownOption:
    """An rdma_opttype that no document here defines, with its rdma_optinfo as far as captured."""

    option: int
    data: bytes
    problem: str = ""
    truncated: bool = False


OptionNoun = InitXch | ReqXch | RespXch | UpdXch | UnknownOption


class OptionKind(NamedTuple):
    """A row of Table 2 (xcharext-02, 4)."""

    name: str
    title: str
    section: str
    noun: type[Any]
    """Takes the fields in their order, then ``problem`` and ``truncated``."""
    fields: tuple[tuple[str, str], ...]
    """Name and XDR type of the fields of rdma_optinfo, in their order; the types are those of ``TYPES``."""


OPTIONS = {
    ROPT_INITXCH: OptionKind(
        "ROPT_INITXCH",
        "Specify Initial Characteristics",
        "4.1",
        InitXch,
        (("optixch_start", "xcharspec"), ("optixch_nochg", "xcharsubset")),
    ),
    ROPT_REQXCH: OptionKind(
        "ROPT_REQXCH", "Request Characteristic Modification", "4.2", ReqXch, (("optreqxch_want", "xcharspec"),)
    ),
    ROPT_RESPXCH: OptionKind(
        "ROPT_RESPXCH",
        "Respond to Modification Request",
        "4.3",
        RespXch,
        (
            ("optrespxch_done", "xcharsubset"),
            ("optrespxch_rej", "xcharsubset"),
            ("optrespxch_pend", "xcharsubset"),
        ),
    ),
    ROPT_UPDXCH: OptionKind(
        "ROPT_UPDXCH",
        "Report Updated Characteristics",
        "4.4",
        UpdXch,
        (("optupdxch_now", "xcharval"), ("optupdxch_pendclr", "bool")),
    ),
}


def option_name(option: int | None) -> str:
    """rdma_opttype in words: 'ROPT_INITXCH', 'option 77'; '' where it is not there."""
    if option is None:
        return ""
    return OPTIONS[option].name if option in OPTIONS else f"option {option}"


def selected(subset: Iterable[int], start: Sequence[Characteristic]) -> tuple[str, ...]:
    """The names that an xcharsubset selects in the xcharspec it is about (xcharext-02, 2.1)."""
    return tuple(
        start[position].name if position < len(start) else f"position {position}, where nothing is"
        for position in sorted(subset)
    )


def decode_option(option: int, optinfo: bytes, truncated: bool = False) -> OptionNoun:
    """Read an rdma_optinfo; ``truncated`` says that the capture holds only its beginning.

    Never raises: what stands before the first illegal or missing field is decoded, and ``problem`` names that field
    and its offset in rdma_optinfo.
    """
    kind = OPTIONS.get(option)
    if kind is None:
        return UnknownOption(option, optinfo, truncated=truncated)
    reader = _Reader(optinfo, truncated)
    values: list[Any] = []
    problem = ""
    for field, type_ in kind.fields:
        items, gather = TYPES[type_]
        found: list[Any] = []
        if not problem:
            try:
                for item in items(reader, field):
                    found.append(item)  # What was found before an error is kept.
            except _End as end:
                problem = str(end)
        values.append(gather(found))
    cut = reader.ran_out and truncated
    if not problem and truncated:
        problem, cut = "its end is not in the capture", True
    elif not problem and reader.at < len(optinfo):
        problem = f"{len(optinfo) - reader.at} bytes stand behind its last field"
    noun: OptionNoun = kind.noun(*values, problem, cut)
    return noun


class _End(Exception):
    """Decoding cannot go on."""


class _Reader:
    """A place in an rdma_optinfo."""

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
    """Bit N mod 32 of word N div 32, counted from the least significant, stands for position N (xcharext-02, 2.1)."""
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
"""How a field is read, and what becomes of the items found (xcharext-02, 5.2)."""
