"""Wireshark's display filters, for fields that RPCs have: as conditions in SQL, and ranges of frames.

https://www.wireshark.org/docs/man-pages/wireshark-filter.html has the language, docs/tables.md the columns.
"""

from __future__ import annotations

import re
from typing import NoReturn

from rdmascope.dissect.measure.filters import MAX_FRAME, FrameRange
from rdmascope.dissect.named_tuple import NamedTuple
from rdmascope.dissect.onc.compound import OPERATION_NAMES
from rdmascope.dissect.records.rpc_columns import quoted
from rdmascope.dissect.records.tables import TABLES

from ..errors import CaptureError

PROTOCOLS = {"rpcordma": "true", "rpc": "true", "nfs": "program = 'NFS'"}
"""Bare names, and the RPCs that they mean."""
FIELDS = {
    "rpc.xid": "xid",
    "rpcordma.xid": "xid",
    "rpcordma.version": "rdma_version",
    "rpc.program": "program_number",
    "rpc.programversion": "version",
    "rpc.procedure": "procedure_number",
    "rpc.time": "(latency_ns / 1e9)",
    "rpc.auth.uid": '"user"',
}
"""Name of a field -> what is compared."""
NFS_PROCEDURES = {"nfs.procedure_v2": 2, "nfs.procedure_v3": 3, "nfs.procedure_v4": 4}
"""Name of a field -> version of NFS."""
ADDRESSES = ("ip.addr", "ipv6.addr", "ip.host", "ipv6.host")
OPCODES = ("nfs.opcode", "nfs.main_opcode")
FRAME = "frame.number"
KNOWN = (*PROTOCOLS, *FIELDS, *NFS_PROCEDURES, *ADDRESSES, *OPCODES, FRAME)
"""Every name that is translated, beside the columns of the table rpcs."""

OPERATORS = {"==": "=", "eq": "=", "!=": "<>", "ne": "<>", "<": "<", "lt": "<", ">": ">", "gt": ">"}
OPERATORS |= {"<=": "<=", "le": "<=", ">=": ">=", "ge": ">="}
AND, OR, NOT = ("&&", "and"), ("||", "or"), ("!", "not")

_TOKEN = re.compile(r"\s*(?:(&&|\|\||==|!=|<=|>=|[()<>!])|(\"[^\"]*\"|'[^']*')|([\w.:+-]+)|(\S))")
_ADDRESS = re.compile(r"[0-9a-fA-F.:]+")
_NUMBER = re.compile(r"0[xX][0-9a-fA-F]{1,16}|\d{1,20}(?:\.\d{1,9})?")
_COLUMNS = {column.name for column in TABLES["rpcs"].columns} | {*TABLES["rpcs"].headings}


class DisplayFilter(NamedTuple):
    """What a filter comes to; both must be true."""

    condition: str
    """In SQL over the columns of rpcs; '' where there is none."""
    frames: FrameRange | None
    """Frames of packets."""


def display_filter(given: str) -> DisplayFilter:
    """Translate a display filter, or a condition in SQL. Raises CaptureError if it is neither."""
    try:
        return _FilterReader(given).filter()
    except _NotTranslatedError as error:
        if error.field:
            raise CaptureError(f"-Y {given!r}: {error}") from None
        return DisplayFilter(given, None)


class _NotTranslatedError(Exception):
    def __init__(self, message: str, field: bool = False) -> None:
        super().__init__(message)
        self.field = field
        """It is no condition in SQL, either."""


class _FilterReader:
    """Reads a filter by recursive descent: or, and, not, comparison."""

    def __init__(self, given: str) -> None:
        self._tokens = [next(filter(None, groups)) for groups in _TOKEN.findall(given)]
        self._at = 0
        self._frames: FrameRange | None = None

    def filter(self) -> DisplayFilter:
        if not self._tokens:
            raise _NotTranslatedError("the filter is empty", True)
        condition = self._any()
        if self._next() is not None:
            raise _NotTranslatedError(f"{self._next()!r} is not expected there")
        return DisplayFilter("" if condition == "true" and self._frames is not None else condition, self._frames)

    def _next(self) -> str | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _take(self) -> str:
        token = self._next()
        if token is None:
            raise _NotTranslatedError("the filter ends too early")
        self._at += 1
        return token

    def _word_of(self, words: tuple[str, ...]) -> bool:
        token = self._next()
        if token is None or token.lower() not in words:
            return False
        self._at += 1
        return True

    def _any(self) -> str:
        parts = [self._all()]
        before = self._frames
        while self._word_of(OR):
            parts.append(self._all())
        if len(parts) > 1 and (self._frames is not before or before is not None):
            self._refuse_frames()
        return parts[0] if len(parts) == 1 else " OR ".join(f"({part})" for part in parts)

    def _all(self) -> str:
        parts = [self._one()]
        while self._word_of(AND):
            parts.append(self._one())
        parts = [part for part in parts if part != "true"] or ["true"]
        return parts[0] if len(parts) == 1 else " AND ".join(f"({part})" for part in parts)

    def _one(self) -> str:
        if self._word_of(NOT):
            before = self._frames
            inner = self._one()
            if self._frames is not before:
                self._refuse_frames()
            return f"NOT coalesce(({inner}), false)"
        if self._word_of(("(",)):
            inner = self._any()
            if not self._word_of((")",)):
                raise _NotTranslatedError("a bracket is not closed")
            return inner
        return self._comparison(self._take())

    def _comparison(self, name: str) -> str:
        operator = OPERATORS.get((self._next() or "").lower())
        if operator is None:
            if name.lower() in PROTOCOLS:
                return PROTOCOLS[name.lower()]
            if name.lower() in _COLUMNS:
                return f'("{name.lower()}")'
            self._unknown(name, alone=len(self._tokens) == 1)
        known = name.lower()
        if known not in KNOWN and known not in _COLUMNS:
            self._unknown(name)
        self._at += 1
        value = self._take()
        if known == FRAME:
            return self._frame(operator, value)
        if known in ADDRESSES:
            self._expect(_ADDRESS, value, "an address")
            if operator not in ("=", "<>"):
                raise _NotTranslatedError(f"{name} takes == and !=", True)
            condition = f"client = {quoted(value)} OR server = {quoted(value)}"
            return condition if operator == "=" else f"NOT ({condition})"
        if known in OPCODES:
            return _operation(operator, self._number(value))
        if known in NFS_PROCEDURES:
            compared = f"procedure_number {operator} {self._number(value)}"
            return f"program = 'NFS' AND version = {NFS_PROCEDURES[known]} AND {compared}"
        if known in FIELDS:
            return f"{FIELDS[known]} {operator} {self._number(value)}"
        is_text = value[:1] in ("'", '"')
        return f"{known} {operator} {quoted(value[1:-1]) if is_text else self._number(value)}"

    def _frame(self, operator: str, value: str) -> str:
        number = self._number(value)
        if "." in number or operator == "<>":
            raise _NotTranslatedError(f"{FRAME} takes a number, and ==, <, <=, > or >=", True)
        at = int(number)
        low, high = {"=": (at, at), "<": (1, at - 1), "<=": (1, at), ">": (at + 1, MAX_FRAME), ">=": (at, MAX_FRAME)}[
            operator
        ]
        before = self._frames or FrameRange(1, MAX_FRAME)
        self._frames = FrameRange(max(low, before.first), min(high, before.last))
        if self._frames.first > self._frames.last:
            raise _NotTranslatedError(f"no {FRAME} can be both", True)
        return "true"

    def _refuse_frames(self) -> NoReturn:
        raise _NotTranslatedError(f"{FRAME} is understood with && only, not with || or !", True)

    def _number(self, value: str) -> str:
        """A number of a display filter, in SQL."""
        self._expect(_NUMBER, value, "a number")
        return str(int(value, 16)) if value[:2].lower() == "0x" else value

    def _expect(self, pattern: re.Pattern[str], value: str, what: str) -> None:
        if not pattern.fullmatch(value):
            raise _NotTranslatedError(f"{value!r} is not {what}")

    def _unknown(self, name: str, alone: bool = False) -> NoReturn:
        known = ", ".join(KNOWN)
        message = f"{name!r} is not known here; there are {known}, and SQL over the columns of the table rpcs"
        raise _NotTranslatedError(message, alone or bool(re.fullmatch(r"[A-Za-z_]\w*(?:\.\w+)+", name)))


def _operation(operator: str, number: str) -> str:
    name = OPERATION_NAMES.get(int(number)) if number.isdigit() else None
    if operator not in ("=", "<>") or name is None:
        raise _NotTranslatedError(f"nfs.opcode takes the number of an operation, and == or !=, not {number}", True)
    condition = f"coalesce(list_contains(operations, {quoted(name)}), false)"
    return condition if operator == "=" else f"NOT ({condition})"
