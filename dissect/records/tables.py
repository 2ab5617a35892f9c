"""Nouns as rows of flat tables, with the names that their records have and the units in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ..onc.file_operations import TYPE_NAMES
from ..onc.programs import program_name
from ..rpcrdma.rpcs import Rpc
from .table import Table, TableColumn


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
        TableColumn("time", "time", "first packet of the call, or of the reply where no call was seen; UTC", _time),
        TableColumn("time_ns", "int", "the same, in nanoseconds since the Unix epoch", _time),
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
        TableColumn("latency_us", "float", "first packet of the call to last packet of the reply",
               lambda rpc: None if rpc.latency is None else rpc.latency.total / 1000),
        TableColumn("latency_ns", "int", "the same, in nanoseconds", _latency("total")),
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
        TableColumn("offset_bytes", "uint", "address of its first byte", lambda row: row[3].advertised.offset),
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
        TableColumn("time", "time", "when it was captured; UTC", lambda packet: packet.time),
        TableColumn("time_ns", "int", "the same, in nanoseconds since the Unix epoch", lambda packet: packet.time),
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
        TableColumn("time", "time", "when; UTC", lambda finding: finding.time or None),
        TableColumn("time_ns", "int", "the same, in nanoseconds since the Unix epoch",
               lambda finding: finding.time or None),
        TableColumn("rpc", "int", "number of the RPC", lambda finding: finding.rpc),
        TableColumn("xid", "int", "its XID", lambda finding: finding.xid),
        TableColumn("observed", "text", "what was found", lambda finding: finding.observed),
        TableColumn("required", "text", "what the rule requires", lambda finding: finding.required),
    ),
)  # fmt: skip

_FILES = Table(
    "files",
    "file",
    "a file that NFS calls used, at the end of the capture",
    (
        TableColumn("number", "int", "in order of appearance", lambda row: row[1].number),
        TableColumn("server", "text", "address of the server", lambda row: row[1].server),
        TableColumn("handle", "text", "file handle, hexadecimal", lambda row: row[1].handle.hex()),
        TableColumn("handle_hash", "int", "its CRC-32, as Wireshark shows it", lambda row: row[1].hash),
        TableColumn("path", "text", "latest path", lambda row: next(iter(row[0].paths(row[1])), None)),
        TableColumn("other_paths", "text", "further paths, a line each",
               lambda row: "\n".join(row[0].paths(row[1])[1:]) or None),
        TableColumn("removed_path", "text", "path that was removed from it", lambda row: row[0].removed_path(row[1])),
        TableColumn("file_type", "text", "file, directory, symbolic link, …",
               lambda row: None if row[1].type is None else TYPE_NAMES.get(row[1].type, str(row[1].type))),
        TableColumn("size_bytes", "int", "latest size", lambda row: _within_64_bits(row[1].size)),
        TableColumn("least_size_bytes", "int", "the size; where it is not known, the least it can be",
               lambda row: _within_64_bits(row[1].length)),
        TableColumn("read_bytes", "int", "bytes that READ replies carried", lambda row: row[1].read),
        TableColumn("written_bytes", "int", "bytes that the server says it wrote", lambda row: row[1].written),
        TableColumn("written_unconfirmed_bytes", "int", "bytes of WRITE calls without a reply",
               lambda row: row[1].unconfirmed),
        TableColumn("write_refused_bytes", "int", "bytes of WRITE calls that the server did not write",
               lambda row: row[1].refused),
        TableColumn("uncommitted_bytes", "int", "bytes written UNSTABLE that no COMMIT followed",
               lambda row: row[1].uncommitted),
        TableColumn("verifier_changed", "bool", "the write verifier changed before a COMMIT",
               lambda row: row[1].restarted),
        TableColumn("missing_bytes", "int", "bytes read or written that are not in the capture",
               lambda row: row[1].missing.total()),
        TableColumn("transfers", "int", "reads and writes of it", lambda row: row[1].transfers),
        TableColumn("calls", "int", "procedures and operations on it", lambda row: row[1].calls.total()),
    ),
)  # fmt: skip


def _within_64_bits(value: int | None) -> int | None:
    """What a signed integer can hold: a hostile size has 64 bits without sign."""
    return None if value is None or value >= 1 << 63 else value


TABLES = {
    table.name: table for table in (_RPCS, _OPERATIONS, _CHUNKS, _SEGMENTS, _PACKETS, _CONNECTIONS, _FINDINGS, _FILES)
}
"""The tables by name."""
