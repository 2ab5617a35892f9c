"""Nouns as rows of flat tables, with the names that their records have and the units in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.ma import MaskedArray

from ..onc.programs import program_name
from ..rpcrdma.rpcs import Rpc


class TableColumn(NamedTuple):
    """A column of a table."""

    name: str
    """With its unit: ``_ns`` nanoseconds, ``_bytes`` bytes; ``time_ns`` counts from the Unix epoch."""
    type: str
    """'int' (64 bits), 'uint' (64 bits), 'bool' or 'text' (Python's str, in an array of objects)."""
    meaning: str
    value: Callable[[Any], Any]
    """Of a row; None is: not known, and becomes masked."""


@dataclass(frozen=True)
class Table:
    """A table and how its rows come from nouns."""

    name: str
    of: str
    """The noun: 'rpc', 'packet', 'finding' or 'conversation'."""
    meaning: str
    columns: tuple[TableColumn, ...]
    rows: Callable[[Any], Iterable[Any]] = lambda noun: (noun,)


DTYPES: dict[str, tuple[Any, Any]] = {"int": (np.int64, 0), "uint": (np.uint64, 0), "bool": (np.bool_, False)}
"""Type -> dtype, and what stands under the mask."""


def columns(table: Table, nouns: Iterable[object]) -> dict[str, MaskedArray]:
    """The table of these nouns: a masked array for each column, all of one length."""
    values: list[list[Any]] = [[] for _ in table.columns]
    for noun in nouns:
        for row in table.rows(noun):
            for found, column in zip(values, table.columns, strict=True):
                found.append(column.value(row))
    return {column.name: _array(column.type, found) for column, found in zip(table.columns, values, strict=True)}


def _array(type: str, values: list[Any]) -> MaskedArray:
    mask = [value is None for value in values]
    dtype, filler = DTYPES.get(type, (np.object_, ""))
    return np.ma.MaskedArray(
        np.array([filler if value is None else value for value in values], dtype), mask=np.array(mask, bool)
    )


def _latency(part: str) -> Callable[[Rpc], int | None]:
    def value(rpc: Rpc) -> int | None:
        return None if rpc.latency is None else getattr(rpc.latency, part)

    return value


def _time(rpc: Rpc) -> int | None:
    message = rpc.call or rpc.reply
    return None if message is None else message.time


def _chunk_rows(rpc: Rpc) -> Iterator[tuple[Rpc, int, Any]]:
    return ((rpc, number, chunk) for number, chunk in enumerate(rpc.chunks, 1))


def _segment_rows(rpc: Rpc) -> Iterator[tuple[Rpc, int, int, Any]]:
    for number, chunk in enumerate(rpc.chunks, 1):
        for index, use in enumerate(chunk.segments, 1):
            yield rpc, number, index, use


def _operation_rows(rpc: Rpc) -> Iterator[tuple[Rpc, int, str]]:
    return ((rpc, index, name) for index, name in enumerate(rpc.operations, 1))


RPC_NUMBER = TableColumn("rpc", "int", "number of the RPC", lambda row: row[0].number)

_RPCS = Table(
    "rpcs",
    "rpc",
    "a call, its reply, or both",
    (
        TableColumn("number", "int", "counted from 1 in the order in which RPCs ended", lambda rpc: rpc.number),
        TableColumn("connection", "int", "number of the connection", lambda rpc: rpc.connection.number),
        TableColumn("direction", "text", "'forward', or 'backward' where the server calls",
               lambda rpc: "backward" if rpc.backward else "forward"),
        TableColumn("xid", "int", "the XID", lambda rpc: rpc.xid),
        TableColumn("time_ns", "int", "first packet of the call, or of the reply where no call was seen", _time),
        TableColumn("client", "text", "address of the active side", lambda rpc: rpc.connection.endpoints[0].address),
        TableColumn("server", "text", "address of the passive side", lambda rpc: rpc.connection.endpoints[1].address),
        TableColumn("program", "text", "name of the RPC program",
               lambda rpc: None if rpc.program is None else program_name(rpc.program)),
        TableColumn("program_number", "int", "its number", lambda rpc: rpc.program),
        TableColumn("version", "int", "version of the program", lambda rpc: rpc.version),
        TableColumn("minor_version", "int", "of an NFSv4 COMPOUND", lambda rpc: rpc.minor_version),
        TableColumn("procedure", "text", "name of the procedure", lambda rpc: rpc.name or None),
        TableColumn("procedure_number", "int", "its number", lambda rpc: rpc.procedure),
        TableColumn("operations", "text", "operations of a COMPOUND, in order, with blanks between",
               lambda rpc: " ".join(rpc.operations) or None),
        TableColumn(
            "state",
            "text",
            "complete, error, damaged, undecidable, no reply, no call or duplicate reply (which is no RPC of its own)",
            lambda rpc: rpc.state,
        ),
        TableColumn("status", "text", "OK, or the name of the failure", lambda rpc: rpc.status or None),
        TableColumn("failed", "bool", "the reply reports an error", lambda rpc: rpc.failed),
        TableColumn("contents", "text", "whole, truncated or missing", lambda rpc: rpc.contents),
        TableColumn("call_frame", "int", "first frame of the call", lambda rpc: rpc.call_frame),
        TableColumn("reply_frame", "int", "last frame of the reply", lambda rpc: rpc.reply_frame),
        TableColumn("call_bytes", "int", "inline and chunk bytes of the call", lambda rpc: rpc.call_bytes),
        TableColumn("reply_bytes", "int", "inline and chunk bytes of the reply", lambda rpc: rpc.reply_bytes),
        TableColumn("latency_ns", "int", "first packet of the call to last packet of the reply", _latency("total")),
        TableColumn("call_ns", "int", "part of the latency: the call's Send", _latency("call")),
        TableColumn("reads_ns", "int", "part of the latency: RDMA Reads", _latency("reads")),
        TableColumn("server_ns", "int", "part of the latency: nothing of it on the wire", _latency("server")),
        TableColumn("writes_ns", "int", "part of the latency: RDMA Writes", _latency("writes")),
        TableColumn("reply_ns", "int", "part of the latency: the reply's Send", _latency("reply")),
        TableColumn("credits_requested", "int", "in the call",
               lambda rpc: rpc.call.header.credits if rpc.call else None),
        TableColumn("credits_granted", "int", "in the reply",
               lambda rpc: rpc.reply.header.credits if rpc.reply else None),
        TableColumn("chunks", "int", "chunks that the call advertises", lambda rpc: len(rpc.chunks)),
        TableColumn("retransmitted_packets", "int", "packets of the RPC that were retransmitted",
               lambda rpc: rpc.retransmissions),
        TableColumn("retransmission_delay_ns", "int", "time it waited for retransmissions",
               lambda rpc: rpc.retransmission_delay),
        TableColumn("damage", "text", "what is missing or contradictory", lambda rpc: "; ".join(rpc.damage) or None),
        TableColumn("notes", "text", "what is inferred or unusual", lambda rpc: "; ".join(rpc.notes) or None),
    ),
)  # fmt: skip

_CHUNKS = Table(
    "chunks",
    "rpc",
    "a chunk that a call advertises",
    (
        RPC_NUMBER,
        TableColumn("chunk", "int", "counted from 1 in the RPC", lambda row: row[1]),
        TableColumn("kind", "text", "read, write or reply", lambda row: row[2].kind),
        TableColumn("position", "int", "Position of a Read chunk", lambda row: row[2].position),
        TableColumn("segments", "int", "its segments", lambda row: len(row[2].segments)),
        TableColumn("advertised_bytes", "int", "advertised by the call", lambda row: row[2].advertised),
        TableColumn("returned_bytes", "int", "written, by the reply", lambda row: row[2].returned),
        TableColumn("transferred_bytes", "int", "moved by RDMA Reads and Writes, each byte once",
               lambda row: row[2].transferred),
    ),
    _chunk_rows,
)  # fmt: skip

_SEGMENTS = Table(
    "segments",
    "rpc",
    "a segment of a chunk",
    (
        RPC_NUMBER,
        TableColumn("chunk", "int", "number of its chunk in the RPC", lambda row: row[1]),
        TableColumn("segment", "int", "counted from 1 in the chunk", lambda row: row[2]),
        TableColumn("handle", "int", "R_key or STag", lambda row: row[3].advertised.handle),
        TableColumn("offset", "uint", "address of its first byte", lambda row: row[3].advertised.offset),
        TableColumn("advertised_bytes", "int", "advertised by the call", lambda row: row[3].advertised.length),
        TableColumn("returned_bytes", "int", "written, by the reply", lambda row: row[3].returned),
        TableColumn("transferred_bytes", "int", "moved by RDMA Reads and Writes, each byte once",
               lambda row: row[3].transferred),
    ),
    _segment_rows,
)  # fmt: skip

_OPERATIONS = Table(
    "operations",
    "rpc",
    "an operation of an NFSv4 COMPOUND",
    (
        RPC_NUMBER,
        TableColumn("operation", "int", "counted from 1 in the COMPOUND", lambda row: row[1]),
        TableColumn("name", "text", "its name", lambda row: row[2]),
    ),
    _operation_rows,
)

_PACKETS = Table(
    "packets",
    "packet",
    "an RDMA packet, or a TCP segment of iWARP",
    (
        TableColumn("frame", "int", "number of its frame", lambda packet: packet.frame),
        TableColumn("time_ns", "int", "when it was captured", lambda packet: packet.time),
        TableColumn("source", "text", "address of the sender", lambda packet: packet.source),
        TableColumn("destination", "text", "address of the receiver", lambda packet: packet.destination),
        TableColumn("length_bytes", "int", "of the whole frame on the wire", lambda packet: packet.wire),
        TableColumn("protocol", "text", "the uppermost protocol", lambda packet: packet.protocol),
        TableColumn("opcode", "int", "BTH opcode; InfiniBand transport only",
               lambda packet: packet.header.opcode if packet.header else None),
        TableColumn("dest_qp", "int", "destination queue pair; InfiniBand transport only",
               lambda packet: packet.header.dest_qp if packet.header else None),
        TableColumn("psn", "int", "packet sequence number; InfiniBand transport only",
               lambda packet: packet.header.psn if packet.header else None),
        TableColumn("rpc", "int", "number of the RPC it belongs to", lambda packet: packet.rpc),
        TableColumn("info", "text", "one line about it", lambda packet: packet.info),
    ),
)  # fmt: skip

_CONNECTIONS = Table(
    "connections",
    "conversation",
    "a connection, at the end of the capture",
    (
        TableColumn("number", "int", "in order of appearance", lambda one: one.connection.number),
        TableColumn("transport", "text", "RoCEv2, RoCEv1, InfiniBand or iWARP", lambda one: one.connection.transport),
        TableColumn("protocol", "text", "rpcrdma, other or unknown", lambda one: one.protocol),
        TableColumn("client", "text", "address of the active side", lambda one: one.connection.endpoints[0].address),
        TableColumn("server", "text", "address of the passive side", lambda one: one.connection.endpoints[1].address),
        TableColumn("service_port", "int", "service port", lambda one: one.connection.service_port),
        TableColumn("paired_by", "text", "how both directions were found to belong together",
               lambda one: one.connection.paired_by),
        TableColumn("path_mtu_bytes", "int", "payload of a full packet", lambda one: one.connection.path_mtu),
        TableColumn("first_time_ns", "int", "its first packet", lambda one: one.connection.first_time),
        TableColumn("last_time_ns", "int", "its last packet", lambda one: one.connection.last_time),
        TableColumn("first_frame", "int", "its first frame", lambda one: one.connection.first_frame),
        TableColumn("last_frame", "int", "its last frame", lambda one: one.connection.last_frame),
        TableColumn("ended_by", "text", "what ended it", lambda one: one.connection.ended_by or None),
    ),
)  # fmt: skip

_FINDINGS = Table(
    "findings",
    "finding",
    "a violation that the audit finds",
    (
        TableColumn("rule", "text", "id of the rule", lambda finding: finding.rule.id),
        TableColumn("level", "text", "MUST, SHOULD or STATED", lambda finding: finding.rule.level.value),
        TableColumn("severity", "text", "error, warning, notice or note", lambda finding: finding.severity),
        TableColumn("connection", "int", "number of the connection", lambda finding: finding.connection.number),
        TableColumn("endpoint", "text", "active or passive", lambda finding: ("active", "passive")[finding.endpoint]),
        TableColumn("role", "text", "requester, responder or either", lambda finding: finding.role),
        TableColumn("frame", "int", "its first frame", lambda finding: finding.frames[0] if finding.frames else None),
        TableColumn("time_ns", "int", "when", lambda finding: finding.time or None),
        TableColumn("rpc", "int", "number of the RPC", lambda finding: finding.rpc),
        TableColumn("xid", "int", "its XID", lambda finding: finding.xid),
        TableColumn("observed", "text", "what was found", lambda finding: finding.observed),
        TableColumn("required", "text", "what the rule requires", lambda finding: finding.required),
    ),
)

TABLES = {table.name: table for table in (_RPCS, _OPERATIONS, _CHUNKS, _SEGMENTS, _PACKETS, _CONNECTIONS, _FINDINGS)}
"""The tables by name."""
