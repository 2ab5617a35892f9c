"""RPCs as lines of text: those of plain RPCs are filled in by the column, and are those that each would give itself."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from ..arrays import distinct
from ..layers.rpcrdma_codes import RDMA_MSG
from ..rpcrdma.conversation import Conversation
from ..rpcrdma.messages import HEADER, Message, TransportHeader
from ..rpcrdma.rpc_table import STATES, ProcedureNames, RpcTable
from ..rpcrdma.rpcs import Latency, Rpc
from ..transport.connection import Connection, Endpoint
from ..transport.operations import SEND, Operation, Payload

_COLUMNS = (
    "number", "connection", "xid", "order", "call_frame", "call_last_frame", "reply_first_frame", "reply_frame",
    "call_time", "call_end", "reply_time", "reply_end", "latency", "credits_requested", "credits_granted", "call_send",
    "reply_send", "call_inline", "reply_inline", "invalidated", "retransmission_delay",
)  # fmt: skip
_FIRST_MARK = 7_310_000_000_000_000_000
"""Numbers that stand for columns; nothing else is so large."""
_MARK = re.compile(r"73100000000000000\d\d")
MAX_TEMPLATES = 1 << 12


class RpcLines:
    """Lines that a function makes of RPCs, as long as it uses numbers of an RPC as they are."""

    def __init__(self, line: Callable[[Rpc], str]) -> None:
        self._line = line
        self._templates: dict[tuple[object, ...], tuple[str, list[str]]] = {}

    def of(self, table: RpcTable) -> list[tuple[int, str]]:
        """Number and line of each RPC, in the order in which they ended."""
        lines: list[tuple[int, str]] = [(0, "")] * len(table)
        for place, rpc in zip(table.places.tolist(), table.objects, strict=True):
            lines[place] = rpc.number, self._line(rpc)
        rows, places = table.plain_rows, table.plain
        through = rows["transfer"] >= 0
        for place, rpc in zip(places[through].tolist(), table.plain_rpcs(rows[through]), strict=True):
            lines[place] = rpc.number, self._line(rpc)
        rows, places = rows[~through], places[~through]
        if not len(rows):
            return lines
        if len(self._templates) > MAX_TEMPLATES:
            self._templates.clear()
        invalidates = rows["invalidated"] >= 0
        first, kinds = distinct(rows["procedure"], rows["status"], rows["caller"], invalidates)
        ordered = kinds.argsort(kind="stable")
        for part in np.split(ordered, kinds[ordered].searchsorted(np.arange(1, len(first)))):
            row = rows[part[0]]
            template, names = self._template(
                table.names.procedures[int(row["procedure"])],
                *table.names.statuses[int(row["status"])],
                int(row["state"]),
                int(row["caller"]),
                bool(row["invalidated"] >= 0),
            )
            columns = {name: rows[name][part].tolist() for name in {*names, "number"}}
            filled = [template % values for values in zip(*(columns[name] for name in names), strict=True)]
            for place, number, line in zip(places[part].tolist(), columns["number"], filled, strict=True):
                lines[place] = number, line
        return lines

    def _template(
        self, procedure: ProcedureNames, status: str, failed: bool, state: int, caller: int, invalidates: bool
    ) -> tuple[str, list[str]]:
        """The line of such RPCs with a ``%d`` for each number, and the columns of these."""
        key = procedure, status, failed, state, caller, invalidates
        found = self._templates.get(key)
        if found is None:
            line = self._line(_marked(procedure, status, failed, STATES[state], caller, invalidates))
            names = [_COLUMNS[int(mark) - _FIRST_MARK] for mark in _MARK.findall(line)]
            found = self._templates[key] = _MARK.sub("%d", line.replace("%", "%%")), names
        return found


def _marked(procedure: ProcedureNames, status: str, failed: bool, state: str, caller: int, invalidates: bool) -> Rpc:
    """An Rpc with marks for numbers."""
    marks = {name: _FIRST_MARK + index for index, name in enumerate(_COLUMNS)}
    connection = Connection(marks["connection"], "", (Endpoint("", 0), Endpoint("", 0)))
    messages: list[Message] = []
    for sender, side, first, last, credits in (
        (caller, "call", "call_frame", "call_last_frame", "credits_requested"),
        (1 - caller, "reply", "reply_first_frame", "reply_frame", "credits_granted"),
    ):
        length = marks[f"{side}_send"]
        operation = Operation(
            SEND,
            sender,
            marks[first],
            marks[last],
            marks[f"{side}_time"],
            marks[f"{side}_end"],
            length,
            Payload(length, length),
            invalidate=marks["invalidated"] if invalidates and side == "reply" else None,
        )
        header = TransportHeader(marks["xid"], 1, marks[credits], RDMA_MSG, length=HEADER)
        messages.append(Message(operation, header, memoryview(b""), 0, 0, marks[f"{side}_inline"]))
    return Rpc(
        marks["number"],
        Conversation(connection),
        caller == 1,
        marks["xid"],
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
        latency=Latency(marks["latency"], 0, 0, marks["latency"], 0, 0),
        order=marks["order"],
        retransmission_delay=marks["retransmission_delay"],
    )
