"""RPCs as lines of JSON, made of columns: each is what ``rpc_record`` gives of its RPC.

Lines of plain RPCs are alike but for their numbers, so those of a procedure and a status share a template; each of the
others has a text of its own up to the path.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cached_property, lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays import Int64s, distinct, some, unique
from ..layers.rpcrdma_codes import NO_RDMA, RDMA_MSG
from ..measure.call_order import MAX_HELD, CallOrder
from ..measure.file_names import MAX_LATE, KnownPaths, LatePaths, LateRow, PathLearner
from ..rpcrdma.chunk_columns import LongReply, of_long_reply
from ..rpcrdma.conversation import Conversation
from ..rpcrdma.messages import HEADER, LONG_HEADER, Message, TransportHeader
from ..rpcrdma.rpc_table import STATES, ProcedureNames, RpcTable
from ..rpcrdma.rpcs import Latency, Rpc
from ..text_columns import Decimal, Encoded, EncodedLines, Hexadecimal, Page, Piece, Texts, joined, page_of
from ..transport.connection import Connection, Endpoint
from ..transport.operations import SEND, WRITE, Operation, Payload
from .rpc import ValueTexts, message_record

Encode = Callable[[Any], str]
"""Gives the JSON text of a value."""

_COLUMNS = (
    "number", "connection", "xid", "order", "call_frame", "call_last_frame", "reply_first_frame", "reply_frame",
    "call_time", "call_end", "reply_time", "reply_end", "latency", "latency_server", "latency_writes",
    "credits_requested", "credits_granted", "call_send", "reply_send", "call_inline", "reply_inline", "invalidated",
    "retransmissions", "latency_retransmission", "reply_bytes", "chunks", "handle", "returned", "length", "offset",
    "client", "server",
)  # fmt: skip
"""Most are those of ``RpcTable.rows``.  ``returned`` comes before ``length``: a Write is no longer than its segment."""
_FIRST_MARK = 7_310_000_000_000_000_000
"""Numbers that stand for columns; nothing else is so large."""
_MARKS = {name: _FIRST_MARK + index for index, name in enumerate(_COLUMNS)}
_MARK = re.compile(r"73100000000000000\d\d")
_SAME = {
    "call_last_frame": "call_frame", "reply_first_frame": "reply_frame", "call_end": "call_time",
    "reply_end": "reply_time",
}  # fmt: skip
"""Each message of a plain RPC is in one packet."""
_NULLABLE = "invalidated", "credits_requested", "credits_granted"
"""Below zero where there is none."""
_OF_REPLY_CHUNK = ("handle", "length", "offset", "returned")
_REPLY_CHUNK_MARKS = {
    text: (name, kind)
    for name in _OF_REPLY_CHUNK
    for text, kind in ((f"{_MARKS[name]:016x}", partial(Hexadecimal, digits=16)), (str(_MARKS[name]), Decimal))
}
"""Columns of ``ReplyChunks``."""
MAX_TEMPLATES = 1 << 12
TOGETHER = 1 << 10
"""Lines that are made at once."""


class _Template(NamedTuple):
    """Lines that differ in their numbers, up to the path."""

    texts: tuple[str, ...]
    """Before, between and behind the numbers."""
    columns: tuple[str, ...]
    """The numbers."""


class _Alike(NamedTuple):
    """Rows of a batch whose lines are made of the same pieces, up to the path."""

    rows: Int64s
    pieces: list[Piece]


class _LineBatch:
    """The lines of a batch of RPCs, before they are made."""

    def __init__(self, alike: list[_Alike], paths: KnownPaths, values: list[Piece], quoted: Encode, left: int) -> None:
        """``left``: lines that will be asked for."""
        self._alike = [EncodedLines([*pieces, ',"path":']) for _, pieces in alike]
        self._values = EncodedLines([*values, "}"])
        self._paths = [quoted(text) for text in paths.texts]
        self._which_path = paths.which.copy()
        self._path: EncodedLines | None = None
        self._quoted = quoted
        self._group = np.empty(len(paths.which), np.int64)
        self._place = np.empty(len(paths.which), np.int64)
        for index, (rows, _) in enumerate(alike):
            self._group[rows] = index
            self._place[rows] = np.arange(len(rows))
        self.left = left

    def name(self, row: int, path: str | None) -> None:
        """The path of a row is known now."""
        self._which_path[row] = len(self._paths)
        self._paths.append(self._quoted(path))
        self._path = None

    def page(self, rows: Int64s) -> Page:
        """Lines of some rows, in UTF-8."""
        self.left -= len(rows)
        groups = self._group[rows]
        return _merged(groups, lambda group, mine: self._page(group, rows[mine]))

    def _page(self, group: int, rows: Int64s) -> Page:
        if self._path is None:
            self._path = EncodedLines([Texts(self._paths, self._which_path)])
        parts = [(self._alike[group], self._place[rows]), (self._path, rows), (self._values, rows)]
        return page_of(parts, len(rows))


def _merged(groups: Int64s, make: Callable[[int, Int64s], Page]) -> Page:
    """The lines of all groups in the order of ``groups``, which has the group of each line.

    ``make``: gives the lines of a group, which are at these places.
    """
    distinct_groups = unique(groups).tolist()
    if len(distinct_groups) == 1:
        return make(distinct_groups[0], np.arange(len(groups)))
    edges = np.append(0, np.flatnonzero(groups[1:] != groups[:-1]) + 1)
    sizes = np.diff(edges, append=len(groups))
    stretches: list[Page] = [b""] * len(edges)
    for group in distinct_groups:
        lines, at = make(group, np.flatnonzero(groups == group)), 0
        for stretch in np.flatnonzero(groups[edges] == group).tolist():
            behind = _behind(lines, at, int(sizes[stretch]))
            stretches[stretch] = lines[at:behind]
            at = behind
    return b"".join(stretches)


def _behind(lines: Page, at: int, count: int) -> int:
    """Where so many of the lines end."""
    for _ in range(count):
        at = lines.index(b"\n", at) + 1
    return at


class RpcLines:
    """Give it the tables of a capture: lines in the order of calls, each when its path is known or has waited enough.

    Args:
        learner: of paths; it is given every table.
        encode: gives the JSON text of a value.
        at_once: no line waits for an earlier call, or for a path.
    """

    def __init__(self, learner: PathLearner, encode: Encode, at_once: bool = False) -> None:
        self._learner = learner
        self._encode = encode
        self._quoted: Encode = lru_cache(MAX_LATE)(encode)
        self._texts = ValueTexts(encode)
        self._templates: dict[tuple[object, ...], _Template] = {}
        self._order: CallOrder[int | LateRow[int]] = CallOrder(0 if at_once else MAX_HELD)
        self._late: LatePaths[int] = LatePaths(learner, 0 if at_once else MAX_LATE)
        self._batches: dict[int, _LineBatch] = {}
        """By the number of lines before them."""
        self._count = 0

    def add(self, table: RpcTable, passes: NDArray[np.bool_] | None = None) -> Iterator[Page]:
        """Lines that can be given now, in UTF-8 with their line feeds, some at a time; ``passes``: RPCs that have one,
        by default all."""
        if not len(table):
            return
        columns, files = self._learner.learn(table)
        paths = files.paths()
        first = self._count
        self._count += len(table)
        rows: list[int | LateRow[int] | None] = list(range(first, self._count))
        for row in paths.late().tolist():
            file = files[row]
            assert file is not None
            rows[row] = LateRow(file, partial(self._named, first, row))
        left = len(table)
        if passes is not None:
            left = int(np.count_nonzero(passes))
            rows = [row if one else None for row, one in zip(rows, passes.tolist(), strict=True)]
        if left:
            values = list(self._texts.of(columns.columns))
            self._batches[first] = _LineBatch(list(self._alike(table)), paths, values, self._quoted, left)
        yield from self._pages(self._late.add(self._order.add_all(table.rows["number"], rows)))

    def rest(self) -> Iterator[Page]:
        """The others, when no RPC comes any more."""
        yield from self._pages([*self._late.add(self._order.rest()), *self._late.rest()])

    def _named(self, first: int, row: int, path: str | None) -> int:
        self._batches[first].name(row, path)
        return first + row

    def _pages(self, rows: list[int]) -> Iterator[Page]:
        """The lines of rows, which are counted from the first of all."""
        for start in range(0, len(rows), TOGETHER):
            some = np.array(rows[start : start + TOGETHER], np.int64)
            firsts = np.array([*self._batches], np.int64)
            of = firsts[firsts.searchsorted(some, "right") - 1]
            yield _merged(of, lambda first, mine, some=some: self._page(first, some[mine] - first))  # type: ignore[misc]

    def _page(self, first: int, rows: Int64s) -> Page:
        batch = self._batches[first]
        found = batch.page(rows)
        if not batch.left:
            del self._batches[first]
        return found

    def _alike(self, table: RpcTable) -> Iterator[_Alike]:
        """The lines of a table, up to the path."""
        if table.objects:
            yield _Alike(table.places, [Texts([self._encode(message_record(rpc))[:-1] for rpc in table.objects])])
        rows = table.plain_rows
        if not len(rows):
            return
        if len(self._templates) > MAX_TEMPLATES:
            self._templates.clear()
        form = np.where(rows["credits_requested"] < 0, NO_RDMA, rows["transfer"] >= 0)
        first, kinds = distinct(rows["procedure"], rows["status"], rows["caller"], form)
        templates = [
            self._template(
                table.names.procedures[int(row["procedure"])],
                *table.names.statuses[int(row["status"])],
                STATES[int(row["state"])],
                int(row["caller"]),
                form,
            )
            for row, form in zip(rows[first], form[first].tolist(), strict=True)
        ]
        pieces: list[Piece] = []
        numbers: dict[str, Piece] = {}
        for index, column in enumerate(templates[0].columns):
            pieces.append(_text([one.texts[index] for one in templates], kinds))
            if column == "chunks":
                pieces.append(self._reply_chunks(table))
                continue
            if column in ("client", "server"):
                pieces.append(_address(table, ("client", "server").index(column)))
                continue
            name = _SAME.get(column, column)
            if name not in numbers:
                numbers[name] = _number(rows, name)
            pieces.append(numbers[name])
        pieces.append(_text([one.texts[-1] for one in templates], kinds))
        yield _Alike(table.plain, pieces)

    def _template(
        self, procedure: ProcedureNames, status: str, failed: bool, state: str, caller: int, form: int
    ) -> _Template:
        key = procedure, status, failed, state, caller, form
        found = self._templates.get(key)
        if found is None:
            record = message_record(_marked(procedure, status, failed, state, caller, form))
            record |= {name: _MARKS[name] for name in ("reply_bytes", "chunks")}
            line = self._encode(record)[:-1]
            columns = [_COLUMNS[int(mark) - _FIRST_MARK] for mark in _MARK.findall(line)]
            found = self._templates[key] = _Template(tuple(_MARK.split(line)), tuple(columns))
        return found

    def _reply_chunks(self, table: RpcTable) -> Piece:
        """What plain RPCs have as chunks: none, or a Reply chunk."""
        through = table.plain_rows["transfer"] >= 0
        if not through.any():
            return "[]"
        found = table.chunks.reply_chunks(table.plain_rows["transfer"][through])
        pieces: list[Piece] = []
        for part in self._reply_chunk_parts:
            name, kind = _REPLY_CHUNK_MARKS.get(part, ("", None))
            pieces.append(part if kind is None else kind(getattr(found, name)))
        texts = joined(pieces, len(found.handle)).table
        none = np.zeros((1, texts.shape[1]), np.uint8)
        none[0, :2] = ord("["), ord("]")
        return Encoded(np.concatenate((none, texts)), np.where(through, np.cumsum(through), 0))

    @cached_property
    def _reply_chunk_parts(self) -> list[str]:
        """A Reply chunk: text, and marks for its numbers."""
        marked = message_record(_marked(ProcedureNames(0, 0, None, 0, (), ""), "", False, "", 0, 1))
        return re.split(f"({'|'.join(_REPLY_CHUNK_MARKS)})", self._encode(marked["chunks"]))


def _text(texts: list[str], which: Int64s) -> Piece:
    """The text of each row."""
    return texts[0] if len(set(texts)) == 1 else Texts(texts, which)


def _address(table: RpcTable, end: int) -> Piece:
    """Of the client or server of each row."""
    numbers, which = np.unique(table.plain_rows["connection"], return_inverse=True)
    return _text([table.conversation(number).connection.endpoints[end].address for number in numbers.tolist()], which)


def _number(rows: Any, column: str) -> Piece:
    """A column of integers as JSON, row by row; one text where all are alike."""
    if column == "reply_bytes":
        return Decimal(rows["reply_inline"] + rows["reply_chunk_bytes"])
    values = rows[column]
    if not some(values != values[0]):
        return "null" if column in _NULLABLE and values[0] < 0 else str(values[0])
    if column not in _NULLABLE:
        return Decimal(values)
    null = values < 0
    return Decimal(np.where(null, 0, values), null=null)


def _marked(procedure: ProcedureNames, status: str, failed: bool, state: str, caller: int, form: int) -> Rpc:
    """An Rpc with marks for numbers; ``form``: 1 where the reply came through a Reply chunk, NO_RDMA without RDMA."""
    connection = Connection(
        _MARKS["connection"], "", (Endpoint(str(_MARKS["client"]), 0), Endpoint(str(_MARKS["server"]), 0))
    )
    messages: list[Message] = []
    for sender, side, first, last, credits in (
        (caller, "call", "call_frame", "call_last_frame", "credits_requested"),
        (1 - caller, "reply", "reply_first_frame", "reply_frame", "credits_granted"),
    ):
        length = _MARKS[f"{side}_send"]
        operation = Operation(
            SEND,
            sender,
            _MARKS[first],
            _MARKS[last],
            _MARKS[f"{side}_time"],
            _MARKS[f"{side}_end"],
            length,
            Payload(length, length),
            invalidate=_MARKS["invalidated"] if side == "reply" else None,
        )
        length, version = LONG_HEADER if form == 1 else HEADER, NO_RDMA if form == NO_RDMA else 1
        header = TransportHeader(_MARKS["xid"], version, _MARKS[credits], RDMA_MSG, length=length)
        messages.append(Message(operation, header, memoryview(b""), 0, 0, _MARKS[f"{side}_inline"]))
    messages[0].operation.retransmissions = _MARKS["retransmissions"]
    found = Rpc(
        _MARKS["number"],
        Conversation(connection),
        caller == 1,
        _MARKS["xid"],
        messages[0],
        messages[1],
        procedure.program,
        procedure.version,
        procedure.procedure,
        procedure.minor_version,
        None,
        procedure.operations,
        procedure.name,
        status,
        failed,
        state,
        latency=Latency(
            _MARKS["latency"],
            0,
            0,
            _MARKS["latency_server"],
            _MARKS["latency_writes"],
            0,
            _MARKS["latency_retransmission"],
        ),
        order=_MARKS["order"],
        retransmission_delay=_MARKS["latency_retransmission"],
    )
    if form == 1:
        handle, length, offset, returned = (_MARKS[name] for name in _OF_REPLY_CHUNK)
        written = Operation(WRITE, 1 - caller, 0, 0, 0, 0, returned, Payload(), address=offset)
        of_long_reply(LongReply(handle, length, offset, returned, written)).complete(0, found)
    return found
