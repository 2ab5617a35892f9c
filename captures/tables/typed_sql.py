"""SQL as people type it: with the names that are on the screen and units."""

from __future__ import annotations

import re

from rdmascope.dissect.measure.time_options import parse_duration
from rdmascope.dissect.named_tuple import NamedTuple
from rdmascope.dissect.onc.compound import OPERATION_NAMES
from rdmascope.dissect.records.rpc_columns import named
from rdmascope.dissect.records.tables import TABLES
from rdmascope.dissect.units import parse_size

from ..errors import CaptureError

QUOTED = r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\""
_UNITS = r"ns|us|µs|ms|s|m|h|[kKMGT](?:i?B)?|B"
_TOKEN = re.compile(
    rf"""(?<![\w.])(?P<listed>"procedure"|procedure|operations)\s*
        (?P<operator><>|!=|==?|(?P<not>NOT\s+)?(?:I?LIKE|GLOB|SIMILAR\s+TO|IN)\b)\s*
        (?P<value>'(?:[^']|'')*'|\(\s*'[^()]*\))
    | (?P<quoted>{QUOTED})
    | (?P<hexadecimal>\b0[xX][0-9a-fA-F]+\b)
    | (?P<quantity>\b\d+(?:\.\d+)?)\s?(?P<unit>{_UNITS})\b
    | (?<![\w.])(?P<word>[A-Za-z_]\w*)\b(?!\s*[(.])""",
    re.IGNORECASE | re.VERBOSE,
)
UNIT_OF = {table_column.name: table_column.name.rpartition("_")[2] for table_column in TABLES["rpcs"].columns}
"""Column of rpcs -> the last part of its name, which of many is a unit."""
SEVERAL = {"how": "read_chunks, write_chunks and reply_chunks", "frames": "call_frame and reply_frame"}
"""What is on the screen, and the columns that it is made of."""
WORDS = {
    typed: column.name
    for typed, column in TABLES["rpcs"].typed.items()
    if typed not in UNIT_OF and typed not in SEVERAL
} | {"user": "user"}
"""Names on the screen -> columns of rpcs; in quotes, as ``user`` is a word of SQL."""
OF_COMPOUND = "the procedure of NFSv4 is COMPOUND: list_contains(operations, {name}) finds its operations, too"
"""A hint for queries, in which columns mean what they hold."""


class Typed(NamedTuple):
    """SQL as people type it, in DuckDB's."""

    sql: str
    remarks: tuple[str, ...]
    """What means less than it seems to, and what to write."""


def typed(text: str, condition: bool = True) -> Typed:
    """Numbers with ``0x``; of a condition over the columns of rpcs also durations, sizes, and names on the screen.

    There ``procedure = 'WRITE'`` means an operation of a COMPOUND, too, as in ``--procedure``.  Raises CaptureError for
    a duration or size that is compared with something else.
    """
    column = ""
    remarks: list[str] = []

    def translated(token: re.Match[str]) -> str:
        nonlocal column
        if token["listed"] is not None:
            if not (condition or "operations" in text) and token["value"].strip("'") in OPERATION_NAMES.values():
                remarks.append(OF_COMPOUND.format(name=token["value"]))
            return _compared(token, condition)
        if token["hexadecimal"] is not None:
            return str(int(token[0], 16))
        if token["quantity"] is not None:
            return _amount(token, column) if condition else token[0]
        word = (token["word"] or "").lower()
        if condition and word in WORDS:
            column = WORDS[word]
            return named(column)
        column = word if word in UNIT_OF else column
        return token[0]

    return Typed(_TOKEN.sub(translated, text), tuple(dict.fromkeys(remarks)))


def _compared(token: re.Match[str], condition: bool) -> str:
    """A comparison of names with a text: those of a COMPOUND are several."""
    operator, value = token["operator"], token["value"]
    if token["listed"].lower() == "operations":
        return f"array_to_string(operations, ' ') {operator} {value}"
    if not condition:
        return token[0]
    unlike = token["not"] or operator in ("<>", "!=")
    alike = "=" if operator in ("<>", "!=") else operator.removeprefix(token["not"] or "")
    among = f"len(list_filter(operations, lambda name: name {alike} {value})) > 0"
    return f"{'NOT ' if unlike else ''}(procedure {alike} {value} OR coalesce({among}, false))"


def _amount(token: re.Match[str], column: str) -> str:
    """A duration in nanoseconds, or a size in bytes."""
    try:
        amount, unit = parse_duration(token[0]), "ns"
    except ValueError:
        try:
            amount, unit = parse_size(token[0].replace(" ", "")), "bytes"
        except ValueError as error:
            raise CaptureError(str(error)) from None
    if column and UNIT_OF.get(column) != unit:
        raise CaptureError(f"{token[0]}: {column} is not in {unit}")
    return str(amount)
