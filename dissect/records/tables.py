"""Nouns as rows of flat tables, with the names that their records have and the units in them."""

from __future__ import annotations

from collections.abc import Callable

from ..onc.file_operations import TYPE_NAMES
from ..rpcrdma.conversation import Conversation
from .table import Table, TableColumn, place_columns
from .table_packets import PACKETS
from .table_results import RESULT_TABLES
from .table_rpcs import RPC_TABLES


def _qp(end: int) -> Callable[[Conversation], int | None]:
    def value(one: Conversation) -> int | None:
        found = one.connection.endpoints[end]
        return None if found.port is not None else found.qpn

    return value


def _of_endpoint(end: int) -> tuple[TableColumn, ...]:
    """What one side sent."""
    name, side = (("client", "client"), ("server", "server"))[end]
    return (
        TableColumn(f"{name}_packets", "int", f"packets that the {side} sent; TCP segments with payload for iWARP",
               lambda one: (one.connection.packets[end] or one.connection.segments[end])),
        TableColumn(f"{name}_bytes", "int", f"payload bytes that the {side} sent, retransmissions included",
               lambda one: one.connection.bytes[end]),
        TableColumn(f"{name}_retransmitted_packets", "int", f"packets or segments that the {side} retransmitted",
               lambda one: one.connection.retransmitted_packets[end]),
        TableColumn(f"{name}_missing_packets", "int",
               f"packets or segments that the {side} sent and that are not in the capture",
               lambda one: one.connection.missing_packets[end]),
        TableColumn(f"{name}_inline_bytes", "int", f"inline threshold of the {side}: its largest Send",
               lambda one: one.known_inline_threshold(end)[0]),
    )  # fmt: skip


_CONNECTIONS = Table(
    "connections",
    "conversation",
    "a connection, at the end of the capture",
    (
        TableColumn("number", "int", "in order of appearance", lambda one: one.connection.number),
        TableColumn("transport", "text", "RoCEv2, RoCEv1, InfiniBand or iWARP", lambda one: one.connection.transport),
        TableColumn("protocol", "text", "rpcrdma, other or unknown", lambda one: one.protocol),
        TableColumn("client", "text", "address of the client", lambda one: one.connection.endpoints[0].address),
        TableColumn("server", "text", "address of the server", lambda one: one.connection.endpoints[1].address),
        TableColumn("client_qp", "int", "queue pair of the client; InfiniBand transport only", _qp(0)),
        TableColumn("server_qp", "int", "queue pair of the server; InfiniBand transport only", _qp(1)),
        TableColumn("service_port", "int", "service port", lambda one: one.connection.service_port),
        TableColumn("paired_by", "text", "CM, TCP, inferred or one direction only: how its two directions were found",
               lambda one: one.connection.paired_by),
        TableColumn("confidence", "float", "how sure that is, 0 to 1", lambda one: one.connection.confidence),
        TableColumn("path_mtu_bytes", "int", "payload of a full packet", lambda one: one.connection.path_mtu),
        TableColumn("first_time_ns", "int", "its first packet", lambda one: one.connection.first_time),
        TableColumn("last_time_ns", "int", "its last packet", lambda one: one.connection.last_time),
        TableColumn("first_frame", "int", "its first frame", lambda one: one.connection.first_frame),
        TableColumn("last_frame", "int", "its last frame", lambda one: one.connection.last_frame),
        *(column for end in (0, 1) for column in _of_endpoint(end)),
        TableColumn("lowest_credits_requested", "int", "least credit value of forward calls",
               lambda one: one.credits_requested and one.credits_requested[0]),
        TableColumn("highest_credits_requested", "int", "greatest credit value of forward calls",
               lambda one: one.credits_requested and one.credits_requested[1]),
        TableColumn("lowest_credits_granted", "int", "least credit value of forward replies",
               lambda one: one.credits_granted and one.credits_granted[0]),
        TableColumn("highest_credits_granted", "int", "greatest credit value of forward replies",
               lambda one: one.credits_granted and one.credits_granted[1]),
        TableColumn("ended_by", "text", "what ended it", lambda one: one.connection.ended_by or None),
        TableColumn("metadata_server", "text",
               "of a connection with a pNFS data server: address of the metadata server that named it",
               lambda one: one.data_server and one.data_server.metadata_server, needs="contents"),
        *place_columns("first_", "first_frame", "its first frame"),
        *place_columns("last_", "last_frame", "its last frame"),
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
        TableColumn("reads", "int", "READs that were answered", lambda row: row[1].reads),
        TableColumn("writes", "int", "WRITEs, answered or not", lambda row: row[1].writes),
        TableColumn("median_latency_ns", "int", "of the RPCs that read or wrote it",
               lambda row: None if row[1].latency is None else row[1].latency.median),
        TableColumn("p99_latency_ns", "int", "99th percentile of the same",
               lambda row: None if row[1].latency is None else row[1].latency.p99),
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


TABLES = {table.name: table for table in (*RPC_TABLES, PACKETS, _CONNECTIONS, _FILES, *RESULT_TABLES)}
"""The tables by name."""

VERSION = 1
"""Rises when a column goes away or changes its meaning, not when one is added."""
