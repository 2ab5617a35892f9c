"""Saved tables in place of a capture, for commands whose answer they hold: RPCs made of rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

from rdmascope.dissect.layers.rpcrdma_codes import RDMA_MSG, RDMA_NOMSG
from rdmascope.dissect.measure.selection import CaptureExtent
from rdmascope.dissect.rpcrdma.conversation import Conversation
from rdmascope.dissect.rpcrdma.messages import Message, Segment, TransportHeader
from rdmascope.dissect.rpcrdma.rpcs import ChunkUse, Latency, Rpc, SegmentUse
from rdmascope.dissect.transport.connection import Connection, Endpoint
from rdmascope.dissect.transport.operations import READ, SEND, Operation, Payload

from .database import FETCHED
from .errors import CaptureError
from .saved_tables import open_saved, origin

_QUERY = """
    SELECT rpcs.* EXCLUDE (time), found
    FROM rpcs LEFT JOIN (
        SELECT rpc, list([kind, position::VARCHAR, transferred_bytes::VARCHAR] ORDER BY chunk) AS found
        FROM chunks GROUP BY rpc
    ) ON rpc = number
    ORDER BY number, time_ns
"""


class SavedSession:
    """What ``Session`` says of RPCs, from tables.  Its Rpcs have no bytes, and of their headers only the procedure."""

    follow = None
    several = False

    def __init__(self, path: str) -> None:
        self.path = path
        with open_saved(path) as database:
            found = origin(database)
            rows = database.connection.execute("SELECT number FROM connections").fetchall()
        self.damage = CaptureError(found.damage) if found.damage else None
        self.first_time = found.first_time
        self._extent = CaptureExtent(
            found.frames, frozenset(number for (number,) in rows), 0, found.first_time, found.last_time
        )

    def rpcs(self) -> Iterator[Rpc]:
        """In the order of their calls."""
        conversations: dict[int, Conversation] = {}
        with open_saved(self.path) as database:
            rows = database.connection.execute(_QUERY)
            names = [one[0] for one in rows.description]
            while some := rows.fetchmany(FETCHED):
                for values in some:
                    row = dict(zip(names, values, strict=True))
                    number = row["connection"]
                    if number not in conversations:
                        ends = Endpoint(row["client"], 0), Endpoint(row["server"], 0)
                        conversations[number] = Conversation(Connection(number, "", ends))
                    yield _rpc(row, conversations[number])

    def extent(self) -> CaptureExtent:
        return self._extent

    def refuse(self, problem: str) -> None:
        """Raise CaptureError for a filter that can match nothing."""
        if problem:
            raise CaptureError(f"{self.path}: {problem}")

    def check(self) -> None:
        """Raise CaptureError where the capture was damaged."""
        if self.damage is not None:
            raise self.damage

    def lacks(self, what: str) -> NoReturn:
        """Raise that ``what`` is not in the tables, and where it is."""
        with open_saved(self.path) as database:
            sources = " and ".join(origin(database).sources)
        raise CaptureError(f"{self.path}: holds tables, in which {what} are not; they are in {sources}")


def _rpc(row: dict[str, Any], conversation: Conversation) -> Rpc:
    backward = row["direction"] == "backward"
    parts = (row[f"{name}_ns"] for name in ("latency", "call", "reads", "server", "writes", "reply"))
    rpc = Rpc(
        row["number"],
        conversation,
        backward,
        row["xid"],
        program=row["program_number"],
        version=row["version"],
        procedure=row["procedure_number"],
        minor_version=row["minor_version"],
        operations=tuple((row["operations"] or "").split()),
        name=row["procedure"] or "",
        status=row["status"] or "",
        failed=row["failed"],
        state=row["state"],
        contents=row["contents"],
        latency=None if row["latency_ns"] is None else Latency(*parts),
        chunks=[_chunk(*chunk) for chunk in row["found"] or ()],
        retransmission_delay=row["retransmission_delay_ns"],
    )
    if row["call_frame"] is not None:
        rpc.call = _message(row, "call", row["time_ns"])
        rpc.call.operation.retransmissions = row["retransmitted_packets"]
    if row["reply_frame"] is not None:
        rpc.reply = _message(row, "reply", row["time_ns"] if rpc.call is None else row["end_time_ns"])
    return rpc


def _message(row: dict[str, Any], side: str, time: int) -> Message:
    frame, length = row[f"{side}_frame"], row[f"{side}_inline_bytes"]
    operation = Operation(SEND, 0, frame, frame, time, time, length, Payload())
    procedure = RDMA_NOMSG if (row[f"{side}_rdma_procedure"] or "").endswith("_NOMSG") else RDMA_MSG
    header = TransportHeader(row["xid"], row["rdma_version"], None, procedure)
    return Message(operation, header, memoryview(b""), 0, 0, length)


def _chunk(kind: str, position: str | None, transferred: str) -> ChunkUse:
    length = int(transferred)
    operations = [Operation(READ, 0, 0, 0, 0, 0, length, Payload())] if length else []
    use = SegmentUse(Segment(0, length, 0), operations=operations)
    return ChunkUse(kind, None if position is None else int(position), [use])
