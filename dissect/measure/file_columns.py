"""What the calls of a table did with files: of plain ones that are alike by columns, of the others nothing."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat

import numpy as np

from ..arrays import Bytes, Int64s, gathered, words_at
from ..onc.file_layouts import FileLayout, file_layout
from ..onc.programs import NFS
from ..onc.rpc_header import SUCCESS_AND_ZERO
from ..onc.shapes.flat import MAX_NODES
from ..onc.shapes.learned import Layout, Layouts
from ..onc.shapes.registry import procedure_shape
from ..onc.shapes.types import XdrType
from ..rpcrdma.rpc_fields import call_places, reply_places
from ..rpcrdma.rpc_table import RpcTable
from ..rpcrdma.rpcs import Extent, Reassembled
from .partial_messages import NfsMessages

MAX_LAYOUTS = 4096
"""Pairs of layouts, of calls and replies, that are remembered."""
_SUCCESSFUL = SUCCESS_AND_ZERO[:20]
"""Behind the XID of a reply with an empty verifier and results."""
_REPLY_HEADER = 4 + len(_SUCCESSFUL)


class FileColumns:
    """Remembers how messages are laid out."""

    def __init__(self) -> None:
        self._layouts: dict[XdrType, Layouts] = {}
        self._known: dict[tuple[int, int, int, int], tuple[Layout, Layout, FileLayout | None]] = {}
        """By version, procedure and the identities of the two layouts, which are held with it."""

    def messages(self, table: RpcTable) -> dict[int, NfsMessages]:
        """By row of the table, of NFS calls whose call and reply came in one piece each."""
        found: dict[int, NfsMessages] = {}
        data, rows = table.data, table.plain_rows
        if not len(data) or not len(rows):
            return found
        all_calls = call_places(table)
        all_replies, all_ends = reply_places(table)
        whole = (all_replies >= 0) & ((rows["chunks"] < 0) | (rows["transfer"] >= 0))
        whole &= all_ends - all_replies >= _REPLY_HEADER
        for code in np.unique(rows["procedure"]).tolist():
            names = table.names.procedures[code]
            if names.program != NFS or names.version not in (3, 4):
                continue
            shape = procedure_shape(names.program, names.version, names.procedure)
            if shape is None or shape.arguments is None or shape.results is None:
                continue
            mine = (whole & (rows["procedure"] == code)).nonzero()[0]
            calls, replies = all_calls[mine], all_replies[mine]
            heads = gathered(data, _REPLY_HEADER, replies)[:, 4:]
            plain = (heads == np.frombuffer(_SUCCESSFUL, np.uint8)).all(axis=1)
            mine, calls, replies = mine[plain], calls[plain], replies[plain]
            call_ends = rows["call_at"][mine] + rows["call_send"][mine]
            reply_ends = all_ends[mine]
            arguments = _arguments(data, calls)
            places = table.plain[mine]
            for group, asked in self._of(shape.arguments).learning(data, arguments, call_ends):
                results = replies[group] + _REPLY_HEADER
                for part, answered in self._of(shape.results).learning(data, results, reply_ends[group]):
                    some = group[part]
                    layout = self._layout(
                        (names.version, names.procedure or 0), asked, answered, data,
                        (int(calls[some[0]]), int(arguments[some[0]]), int(call_ends[some[0]])),
                        (int(replies[some[0]]), int(results[part[0]]), int(reply_ends[some[0]])),
                    )  # fmt: skip
                    if layout is None:
                        continue
                    ends = (calls[some], call_ends[some]), (replies[some], reply_ends[some])
                    sides = [_pieces(data, *one, layout.moves_data) for one in ends]
                    decoded = layout.decoded(data, arguments[some], results[part])
                    for place, call, reply, (events, operations) in zip(
                        places[some].tolist(), *sides, decoded, strict=True
                    ):
                        found[place] = NfsMessages(call, reply, events, operations, "")
        return found

    def _of(self, type: XdrType) -> Layouts:
        return self._layouts.setdefault(type, Layouts(type, (), MAX_NODES))

    def _layout(
        self,
        procedure: tuple[int, int],
        asked: Layout,
        answered: Layout,
        data: Bytes,
        call: tuple[int, int, int],
        reply: tuple[int, int, int],
    ) -> FileLayout | None:
        """``call``, ``reply``: where one of them begins, its arguments or results, and where it ends."""
        key = *procedure, id(asked), id(answered)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= MAX_LAYOUTS:
                self._known.clear()
            layout = file_layout(
                data[call[0] : call[2]], data[reply[0] : reply[2]], call[1] - call[0], reply[1] - reply[0],
                asked, answered,
            )  # fmt: skip
            found = self._known[key] = asked, answered, layout
        return found[2]


def _pieces(data: Bytes, starts: Int64s, ends: Int64s, wanted: bool) -> Iterable[Reassembled | None]:
    """Whole messages."""
    if not wanted:
        return repeat(None, len(starts))
    whole = [data[start:end].tobytes() for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
    return [Reassembled((Extent(0, len(one), "inline", 0, ""),), ((0, one),)) for one in whole]


def _arguments(data: Bytes, calls: Int64s) -> Int64s:
    """Where the arguments of whole calls begin (RFC 5531, 9): behind credential and verifier."""
    verifier = calls + 32 + (words_at(data, calls + 28) + 3 & -4)
    found: Int64s = verifier + 8 + (words_at(data, verifier + 4) + 3 & -4)
    return found
