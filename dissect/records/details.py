"""Nouns in full as JSON values, and back: for commands that need what the tables have no columns for.

A field is read back as the type that its class declares, so that a file can only produce such nouns.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar

from ..measure.files import File, FileTable
from ..percentiles import Distribution
from ..rpcrdma.analyzer import Analyzer
from ..rpcrdma.dispatch import Undecoded
from ..rpcrdma.eviction import Evicted
from ..transport.retransmissions import NONE, SenderLedger, Tally

Noun = TypeVar("Noun")


class DetailError(ValueError):
    """Values that are none of the noun that is asked for."""


@dataclasses.dataclass
class CaptureSums:
    """What an analyzer counted of a whole capture."""

    frames: int
    truncated_frames: int
    dropped_frames: int
    packets: int
    first_time: int | None
    earliest_time: int | None
    last_time: int | None
    skipped: Counter[str]
    other_packets: Counter[str]
    undecoded: list[Undecoded]
    unplaced: dict[int, int]
    evicted: Evicted
    addresses: list[bytes]
    """By the numbers that nouns have for them."""
    time_steps: set[int] = dataclasses.field(default_factory=set)

    @classmethod
    def of(cls, analyzer: Analyzer) -> CaptureSums:
        names = {field.name for field in dataclasses.fields(cls)} - {"addresses"}
        return cls(**{name: getattr(analyzer, name) for name in names}, addresses=analyzer.addresses.since(0))


def to_json(noun: object) -> str:
    """The noun as a line of JSON."""
    return json.dumps(_values(noun), separators=(",", ":"))


def from_json(kind: type[Noun], text: str) -> Noun:
    """The noun that ``to_json`` was given.  Raises DetailError."""
    try:
        noun: Noun = _noun(kind, json.loads(text))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise DetailError(f"{getattr(kind, '__name__', kind)}: {error}") from None
    return noun


def _values(noun: Any) -> Any:
    if noun is None or isinstance(noun, bool | int | float | str):
        return noun
    if isinstance(noun, bytes):
        return noun.hex()
    if isinstance(noun, SenderLedger):
        return _values(noun.retransmitted)
    kind: Any = type(noun)
    if names := _names(kind):
        # Nearly all are numbers.
        return {name: value if type(value := getattr(noun, name)) is int else _values(value) for name in names}
    if isinstance(noun, Mapping):
        return [[_values(key), _values(value)] for key, value in noun.items()]
    if isinstance(noun, set | frozenset):
        return sorted(map(_values, noun))
    return [_values(part) for part in noun]


@lru_cache
def _names(kind: Any) -> tuple[str, ...]:
    """The fields of a dataclass or NamedTuple; () for other types."""
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind))
    return getattr(kind, "_fields", ())


def _noun(kind: Any, value: Any) -> Any:
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return None if value is None and type(None) in inner else _one_of(inner, value)
    if kind in (bool, int, float, str):
        if type(value) is not kind and not (kind is float and type(value) is int):
            raise DetailError(f"{value!r} is no {kind.__name__}")
        return kind(value)
    if kind is bytes:
        return bytes.fromhex(value)
    if kind is SenderLedger:
        ledger = SenderLedger()
        ledger.add("unknown", NONE, _noun(Tally, value), ())
        return ledger
    if origin is tuple:
        each = inner[:1] * len(value) if inner[1:] == (...,) else inner
        return tuple(_noun(element, part) for element, part in zip(each, value, strict=True))
    if origin is Sequence:
        return tuple(_noun(inner[0], part) for part in value)
    if origin in (list, set, frozenset):
        return origin(_noun(inner[0], part) for part in value)
    if origin is Counter:
        return Counter({_noun(inner[0], key): _noun(int, many) for key, many in value})
    if origin is not None and issubclass(origin, Mapping):
        return {_noun(inner[0], key): _noun(inner[1], part) for key, part in value}
    return _made(kind, value)


def _one_of(kinds: tuple[Any, ...], value: Any) -> Any:
    for kind in kinds:
        if kind is not type(None):
            try:
                return _noun(kind, value)
            except (DetailError, TypeError):
                continue
    raise DetailError(f"{value!r} is none of {kinds}")


def _made(kind: Any, value: Any) -> Any:
    """A dataclass or NamedTuple of its fields."""
    hints = _hints(kind)
    if dataclasses.is_dataclass(kind):
        starts = {field.name for field in dataclasses.fields(kind) if field.init}
    else:
        starts = set(kind._fields)
    # What an earlier version did not know has its default.
    fields = {name: _noun(hints[name], value[name]) for name in starts if name in value}
    made: Callable[..., Any] = kind
    return made(**fields)


@lru_cache
def _hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind)


_NOT_OF_FILES = {"protocols", "gaps", "paths", "removed_path", "earlier_names"}


@dataclasses.dataclass
class FileDetails:
    """What is known of a file, and what ``FileTable`` says of it."""

    number: int
    server: str
    handle: bytes
    protocols: list[tuple[int, int | None]]
    type: int | None
    calls: Counter[str]
    transfers: int
    reads: int
    writes: int
    latency: Distribution | None
    read: int
    written: int
    unconfirmed: int
    refused: int
    missing: Counter[str]
    uncommitted: int
    restarted: bool
    size: int | None
    reach: int
    gaps: list[tuple[int, int]]
    paths: list[str]
    removed_path: str | None
    earlier_names: list[tuple[str, int, int, str]]

    @classmethod
    def of(cls, table: FileTable, file: File) -> FileDetails:
        names = {field.name for field in dataclasses.fields(cls)} - _NOT_OF_FILES
        return cls(
            **{name: getattr(file, name) for name in names},
            protocols=sorted(file.protocols, key=str),
            gaps=file.gaps(),
            paths=table.paths(file),
            removed_path=table.removed_path(file),
            earlier_names=table.earlier_names(file),
        )

    def file(self) -> File:
        """The file without its names, which would need those of other files."""
        names = {field.name for field in dataclasses.fields(self)} - _NOT_OF_FILES
        made = File(self.server, self.handle)
        for name in names - {"latency"}:
            setattr(made, name, getattr(self, name))
        made.saved_latency = self.latency
        made.protocols = set(self.protocols)
        made.seen.add(0, made.length)
        for start, end in self.gaps:
            made.seen.remove(start, end)
        return made
