"""Nouns as rows of flat tables, with the names that their records have and the units in them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.ma import MaskedArray, getmaskarray

from ..layers.oncrpc_codes import GSS_PROCEDURE_NAMES, GSS_SERVICE_NAMES
from ..layers.opcodes import opcode_name
from ..layers.rpcrdma_codes import DIRECTION_NAMES, procedure_name
from ..layers.transports import TRANSPORTS
from ..named_tuple import NamedTuple
from ..onc.file_operations import TYPE_NAMES
from ..onc.naming import HashedHandle, handle_hash
from ..onc.rpc_header import GssCredential, program_name
from ..rpcrdma.conversation import Conversation
from ..rpcrdma.messages import Message
from ..rpcrdma.rpc_table import STATES, ProcedureNames
from ..rpcrdma.rpcs import ChunkUse, Rpc, SegmentUse
from .rpc import HOST_TIMES, HostTime
from .rpc_columns import Coded, RpcBatch, Table, TableColumn, column_of, masked, place_columns
from .schema import decoded

if TYPE_CHECKING:
    from ..audit.auditor import RuleTally, TallyKey  # Tables of RPCs do without, and it takes long to load.
    from ..audit.rule import Rule
    from ..measure.credits import CreditDirection, CreditInterval
    from ..measure.files import FileUses
    from .packet_columns import (
        ListedPackets,  # Tables of RPCs do without, and it takes long to load.
        Packet,
    )


class _ChunkRow(NamedTuple):
    rpc: Rpc
    number: int
    chunk: ChunkUse


class _SegmentRow(NamedTuple):
    rpc: Rpc
    chunk: int
    number: int
    use: SegmentUse


def _chunk_rows(batch: RpcBatch) -> Iterator[_ChunkRow]:
    for rpc in batch.with_chunks:
        yield from (_ChunkRow(rpc, number, chunk) for number, chunk in enumerate(rpc.chunks, 1))


def _segment_rows(batch: RpcBatch) -> Iterator[_SegmentRow]:
    for row in _chunk_rows(batch):
        yield from (_SegmentRow(row.rpc, row.number, index, use) for index, use in enumerate(row.chunk.segments, 1))


RPC_NUMBER = TableColumn("rpc", "int", "number of the RPC", "rpc.number")

CHUNKS = Table(
    "chunks",
    "rpc",
    "a chunk that a call advertises",
    (
        RPC_NUMBER,
        TableColumn("chunk", "int", "counted from 1 in the RPC", "number"),
        TableColumn("kind", "text", "read, write or reply", "chunk.kind"),
        TableColumn("position", "int", "Position of a Read chunk", "chunk.position"),
        TableColumn("segments", "int", "its segments", lambda row: len(row.chunk.segments)),
        TableColumn("advertised_bytes", "int", "advertised by the call", "chunk.advertised"),
        TableColumn("returned_bytes", "int", "written, by the reply", "chunk.returned"),
        TableColumn("transferred_bytes", "int", "moved by RDMA Reads and Writes, each byte once",
               "chunk.transferred"),
    ),
    _chunk_rows,
)  # fmt: skip

SEGMENTS = Table(
    "segments",
    "rpc",
    "a segment of a chunk",
    (
        RPC_NUMBER,
        TableColumn("chunk", "int", "number of its chunk in the RPC", "chunk"),
        TableColumn("segment", "int", "counted from 1 in the chunk", "number"),
        TableColumn("handle", "int", "R_key or STag", "use.advertised.handle"),
        TableColumn("offset_bytes", "uint", "address of its first byte", "use.advertised.offset"),
        TableColumn("advertised_bytes", "int", "advertised by the call", "use.advertised.length"),
        TableColumn("returned_bytes", "int", "written, by the reply", "use.returned"),
        TableColumn("transferred_bytes", "int", "moved by RDMA Reads and Writes, each byte once",
             "use.transferred"),
        TableColumn("operations", "int", "RDMA Reads or Writes that used it", "use.used_by"),
        TableColumn("late_operations", "int", "RDMA Writes on it that followed the reply",
             lambda row: None if row.use.used_by is None else len(row.use.late)),
    ),
    _segment_rows,
)  # fmt: skip


class PacketTableBatch:
    """The packets of a batch, in the order of frames: the noun of the table of packets."""

    def __init__(self, packets: ListedPackets) -> None:
        self.rows = packets.rows
        self._packets = packets
        # Rows are in that order; only segments of iWARP may lie between them.
        self._order = packets.frames.argsort(kind="stable") if packets.segments else None

    def column(self, type: str, rows: MaskedArray, segment: Callable[[Packet], Any]) -> MaskedArray:
        """A column: ``rows`` has the values for packets of InfiniBand, ``segment`` gives that of a segment of iWARP."""
        if self._order is None:
            return rows
        others = column_of(type, [segment(packet) for packet in self._packets.segments])
        values = np.concatenate((rows.data, others.data))
        missing = np.concatenate((getmaskarray(rows), getmaskarray(others)))
        return masked(values[self._order], missing[self._order])

    def number(self, name: str, segment: Callable[[Packet], int | None]) -> MaskedArray:
        """A column of PACKET rows, as integers of 64 bits."""
        return self.column("int", masked(self.rows[name].astype(np.int64)), segment)

    def coded(
        self, name: str, word: Callable[[int], str | None], segment: Callable[[Packet], str | None]
    ) -> MaskedArray:
        """What the values of a column of PACKET rows stand for."""
        codes, inverse = np.unique(self.rows[name], return_inverse=True)
        words = column_of("text", [word(code) for code in codes.tolist()])
        return self.column("text", masked(words.data[inverse], getmaskarray(words)[inverse]), segment)

    def address(self, name: str, segment: Callable[[Packet], str]) -> MaskedArray:
        """The address of the source or of the destination."""
        return self.coded(name, self._packets.addresses.name, segment)

    @property
    def protocols(self) -> MaskedArray:
        return self.column("text", masked(self._packets.protocols()), lambda packet: packet.protocol)

    @property
    def infos(self) -> MaskedArray:
        return self.column("text", masked(self._packets.infos()), lambda packet: packet.info)

    @property
    def rpcs(self) -> MaskedArray:
        numbers = self._packets.rpcs()
        return self.column("int", masked(numbers, numbers == 0), lambda packet: packet.rpc)


def _column(
    name: str, type: str, meaning: str, values: Callable[[Any], MaskedArray | Coded], needs: str = ""
) -> TableColumn:
    return TableColumn(name, type, meaning, None, values, needs)


def _bth(name: str, meaning: str, column: str) -> TableColumn:
    """A field of InfiniBand."""
    return _column(name, "int", meaning, lambda batch: batch.number(column, lambda packet: None))


PACKETS = Table(
    "packets",
    "packet",
    "an RDMA packet, or a TCP segment of iWARP",
    (
        _column("frame", "int", "number of its frame",
                lambda batch: batch.number("frame", lambda packet: packet.frame)),
        _column("time", "time", "when it was captured; UTC",
                lambda batch: batch.number("time", lambda packet: packet.time).view("M8[ns]")),
        _column("time_ns", "int", "when it was captured, in nanoseconds since the Unix epoch",
                lambda batch: batch.number("time", lambda packet: packet.time)),
        _column("source", "text", "address of the sender",
                lambda batch: batch.address("source", lambda packet: packet.source)),
        _column("destination", "text", "address of the receiver",
                lambda batch: batch.address("destination", lambda packet: packet.destination)),
        _column("length_bytes", "int", "bytes of the whole frame on the wire",
                lambda batch: batch.number("wire", lambda packet: packet.wire)),
        _column("protocol", "text", "uppermost protocol, as Wireshark calls it",
                lambda batch: batch.protocols, "contents"),
        _column("transport", "text", "RoCEv1, RoCEv2, InfiniBand, iWARP, TCP or UDP",
                lambda batch: batch.coded("transport", lambda code: TRANSPORTS[code],
                                          lambda packet: packet.segment and packet.segment.connection.transport)),
        _bth("opcode", "BTH opcode; InfiniBand transport only", "opcode"),
        _column("opcode_name", "text", "its name",
                lambda batch: batch.coded("opcode", opcode_name, lambda packet: None)),
        _bth("dest_qp", "destination queue pair; InfiniBand transport only", "dest_qp"),
        _bth("psn", "packet sequence number; InfiniBand transport only", "psn"),
        _column("payload_bytes", "int", "bytes of payload",
                lambda batch: batch.number("length", lambda packet: packet.segment.length if packet.segment else None)),
        _column("payload_captured_bytes", "int", "bytes of payload in the capture",
                lambda batch: batch.number(
                    "captured", lambda packet: packet.segment.captured if packet.segment else None)),
        _column("rpc", "int", "number of the RPC it belongs to", lambda batch: batch.rpcs, "contents"),
        _column("info", "text", "one line about it", lambda batch: batch.infos, "contents"),
        *place_columns("", "frame", "the frame"),
    ),
    headings={
        "No.": "frame", "Time": "time_ns", "Source": "source", "Destination": "destination", "Protocol": "protocol",
        "Length": "length_bytes", "Info": "info", "RPC": "rpc",
    },
)  # fmt: skip


SIDES = ("active", "passive")
FILTER = "filter"
"""Kind of the row of details that says which RPCs the tables were saved of, where it was not all."""
RECOGNITION = "recognition"
"""Kind of the one that has the options by which RPCs were recognised, where there were any."""

FINDINGS = Table(
    "findings",
    "finding",
    "a violation that the audit finds, or a note",
    (
        TableColumn("rule", "text", "id of the rule", "rule.id"),
        TableColumn("level", "text", "MUST, SHOULD or STATED", "rule.level.value"),
        TableColumn("severity", "text", "error, warning, notice or note", "severity"),
        TableColumn("connection", "int", "number of the connection", "connection.number"),
        TableColumn("endpoint", "text", "active or passive", lambda finding: SIDES[finding.endpoint]),
        TableColumn("role", "text", "requester, responder or either", "role"),
        TableColumn("frame", "int", "its first frame", lambda finding: finding.frames[0] if finding.frames else None),
        TableColumn("time", "time", "when; UTC", lambda finding: finding.time or None),
        TableColumn("time_ns", "int", "when, in nanoseconds since the Unix epoch",
               lambda finding: finding.time or None),
        TableColumn("rpc", "int", "number of the RPC", "rpc"),
        TableColumn("xid", "int", "its XID", "xid"),
        TableColumn("observed", "text", "what was found", "observed"),
        TableColumn("required", "text", "what the rule requires", "required"),
        TableColumn("frames", "text", "all its frames, with blanks between",
               lambda finding: " ".join(map(str, finding.frames)) or None),
        *place_columns("", "frame", "its first frame"),
    ),
    order=("frame", "connection", "rule", "endpoint", "rpc"),
    headings={
        "time": "time_ns", "level": "level", "rule": "rule", "conn": "connection", "RPC": "rpc", "frame": "frame",
        "observed": "observed",
    },
)  # fmt: skip


class Verdict(NamedTuple):
    """What a rule found at one end of a connection: the noun of ``verdicts``."""

    place: TallyKey
    rule: Rule
    tally: RuleTally


def _tally(value: Callable[[RuleTally], Any]) -> Callable[[Verdict], Any]:
    return lambda verdict: value(verdict.tally)


VERDICTS = Table(
    "verdicts",
    "verdict",
    "what a rule of the audit found at one end of a connection, where there was something to judge",
    (
        TableColumn("rule", "text", "id of the rule", "rule.id"),
        TableColumn("level", "text", "MUST, SHOULD or STATED", "rule.level.value"),
        TableColumn("connection", "int", "number of the connection; NULL for the sum of evicted ones",
               lambda verdict: verdict.place.connection or None),
        TableColumn("endpoint", "text", "active or passive", lambda verdict: SIDES[verdict.place.endpoint]),
        TableColumn("verdict", "text", "pass, violation or undecidable", _tally(lambda tally: tally.verdict)),
        TableColumn("passed", "int", "how often it passed", _tally(lambda tally: tally.passed)),
        TableColumn("violated", "int", "how often it was violated, notes included",
               _tally(lambda tally: tally.violated)),
        TableColumn("notes", "int", "of these, notes rather than faults", _tally(lambda tally: tally.notes)),
        TableColumn("undecidable", "int", "how often that could not be decided",
               _tally(lambda tally: tally.undecidable)),
        TableColumn("reasons", "text", "why, and how often, as a JSON object",
               _tally(lambda tally: json.dumps(dict(tally.reasons)) if tally.reasons else None)),
    ),
)  # fmt: skip


EARLIEST = 1 - (1 << 63)
"""Nanoseconds: the first time that a column can hold."""


def _of_direction(name: str, type: str, meaning: str, value: Callable[[CreditDirection], Any]) -> TableColumn:
    def values(direction: CreditDirection) -> Coded:
        return Coded(column_of(type, [value(direction)]), np.zeros(len(direction.bins), np.int64))

    return _column(name, type, meaning, values)


def _of_interval(
    name: str, type: str, meaning: str, value: Callable[[CreditDirection, int, CreditInterval], Any]
) -> TableColumn:
    def values(direction: CreditDirection) -> MaskedArray:
        return column_of(type, [value(direction, *interval) for interval in sorted(direction.bins.items())])

    return _column(name, type, meaning, values)


def _begin(direction: CreditDirection, at: int, _: CreditInterval) -> int:
    return max(at * direction.width, EARLIEST)


CREDITS = Table(
    "credits",
    "credits",
    "an interval of time in which a connection had calls or replies, or was at the limit of its credits",
    (
        _of_direction("connection", "int", "number of the connection", lambda direction: direction.connection.number),
        _of_direction("direction", "text", "forward (called by the client) or backward",
               lambda direction: "backward" if direction.backward else "forward"),
        _of_interval("time", "time", "its begin; UTC", _begin),
        _of_interval("time_ns", "int", "its begin, in nanoseconds since the Unix epoch", _begin),
        _of_direction("interval_ns", "int", "its length", lambda direction: direction.width),
        _of_interval("requested", "int", "highest credit value of calls", lambda *interval: interval[2].requested),
        _of_interval("granted", "int", "lowest credit value of replies", lambda *interval: interval[2].granted),
        _of_interval("outstanding", "int", "most calls without a reply at one time",
               lambda *interval: interval[2].outstanding),
        _of_interval("at_limit_ns", "int", "time with as many calls outstanding as the credits allow",
               lambda *interval: interval[2].blocked),
    ),
)  # fmt: skip


PLACES = Table(
    "places",
    "place",
    "consecutive frames of one of several files that were read as one capture",
    (
        TableColumn("first_frame", "int", "number of the first, counted over all files", "first"),
        TableColumn("last_frame", "int", "number of the last", "last"),
        TableColumn("place_file", "text", "path of their file", "file"),
        TableColumn("place_frame", "int", "number of the first in that file", "frame"),
    ),
)


class Detail(NamedTuple):
    """The noun of ``details``."""

    kind: str
    number: int | None
    noun: object


def _json(noun: object) -> str:
    from .details import to_json  # Only here: few tables take it.

    return to_json(noun)


DETAILS = Table(
    "details",
    "detail",
    "a connection, the health of its transport or another noun in full, for commands that read saved tables",
    (
        TableColumn("kind", "text", "what it is", "kind"),
        TableColumn("number", "int", "its number", "number"),
        TableColumn("content", "text", "JSON; its names change from version to version of the program",
               lambda detail: _json(detail.noun)),
    ),
)  # fmt: skip


def _sum(name: str, meaning: str, *columns: str) -> TableColumn:
    """A column that is the sum of columns of ``RpcTable.rows``."""
    return _column(name, "int", meaning, lambda batch: batch.number(*columns))


def _known(name: str, meaning: str, column: str, missing: int, known_by: str = "") -> TableColumn:
    """A column of ``RpcTable.rows``; where ``missing`` stands in it, or in ``known_by``, it is not known."""
    return _column(
        name, "int", meaning, lambda batch: batch.number(column, missing=batch.rows[known_by or column] == missing)
    )


def _size(name: str, meaning: str, side: str, *columns: str) -> TableColumn:
    """A sum like ``_sum``, of a message whose length a trace need not tell: then it is not known."""

    def values(batch: RpcBatch) -> MaskedArray:
        there = batch.called if side == "call" else batch.replied
        return batch.number(*columns, missing=there & (batch.rows[f"{side}_send"] == 0))

    return _column(name, "int", meaning, values)


def _call(name: str, meaning: str, column: str) -> TableColumn:
    """A column of ``RpcTable.rows`` about the call."""
    return _column(name, "int", meaning, lambda batch: batch.number(column, missing=~batch.called))


def _reply(name: str, meaning: str, column: str) -> TableColumn:
    return _column(name, "int", meaning, lambda batch: batch.number(column, missing=~batch.replied))


def _part(name: str, meaning: str) -> TableColumn:
    """A column with one part of the latency."""
    return _column(
        f"{name}_ns",
        "int",
        f"part of the latency: {meaning}",
        lambda batch: batch.number(f"latency_{name}", missing=(batch.rows["latency"] < 0) | batch.unseen(name)),
    )


def _retransmission(name: str, meaning: str, column: str) -> TableColumn:
    """Which a trace of a kernel does not show."""
    return _column(name, "int", meaning, lambda batch: batch.number(column, missing=batch.unseen("retransmission")))


def _procedure(name: str, type: str, meaning: str, value: Callable[[ProcedureNames], Any]) -> TableColumn:
    return _column(name, type, meaning, lambda batch: batch.procedure(type, value))


def _header(
    name: str, type: str, meaning: str, side: str, value: Callable[[Message], Any], others: Any = None
) -> TableColumn:
    """A column about one message; ``others``: the value for those of row RPCs."""
    return _column(name, type, meaning, lambda batch: batch.message(type, side, value, others, others))


def _named(name: str, type: str, meaning: str, of: str, value: Callable[..., Any]) -> TableColumn:
    """What the call names; ``of``: the fields of ``FlatFields`` that it is made of."""
    return _column(name, type, meaning, lambda batch: batch.named(type, value, *of.split()), "contents")


def _number_named(name: str, type: str, meaning: str, of: str) -> TableColumn:
    return _column(name, type, meaning, lambda batch: batch.number_named(type, of), "contents")


def _hexadecimal(value: bytes | None) -> str | None:
    return None if value is None or isinstance(value, HashedHandle) else value.hex()


def _host_time(phase: HostTime) -> TableColumn:
    """A column made of the hosts' traces."""
    meaning = f"from a trace of the {phase.side}'s kernel: {phase.field.replace('_', ' ')}, {phase.words}"
    return _column(phase.column, "int", meaning, lambda batch: batch.objects("int", phase.value))


def _gss(name: str, type: str, meaning: str, value: Callable[[GssCredential], Any]) -> TableColumn:
    """A column made of the RPCSEC_GSS credential of a call."""
    return _column(name, type, meaning, lambda batch: batch.gss(type, value))


def _direction(message: Message) -> str | None:
    direction = message.header.direction
    return None if direction is None else DIRECTION_NAMES[direction]


_RPCS = Table(
    "rpcs",
    "rpc",
    "a call, its reply, or both",
    (
        _sum("number", "counted from 1 in the order of calls, and of replies without a call", "number"),
        _sum("connection", "number of the connection", "connection"),
        _column("direction", "text", "forward (called by the client) or backward",
                lambda batch: batch.coded("text", "caller", lambda caller: "backward" if caller else "forward")),
        _sum("xid", "RPC transaction ID", "xid"),
        _column("time", "time", "first packet of the call, or of the reply if no call was seen; UTC",
                lambda batch: batch.times.view("M8[ns]")),
        _column("time_ns", "int", "time, in nanoseconds since the Unix epoch", lambda batch: batch.times),
        _reply("end_time_ns", "last packet of the reply, in nanoseconds since the Unix epoch", "reply_end"),
        _column("client", "text", "address of the client", RpcBatch.clients),
        _column("server", "text", "address of the server", RpcBatch.servers),
        _procedure("program", "text", "name of the RPC program",
                   lambda names: None if names.program is None else program_name(names.program)),
        _procedure("program_number", "int", "its number", lambda names: names.program),
        _procedure("version", "int", "version of the program", lambda names: names.version),
        _procedure("minor_version", "int", "minor version of an NFSv4 COMPOUND", lambda names: names.minor_version),
        _procedure("procedure", "text", "name of the procedure", lambda names: names.name or None),
        _procedure("procedure_number", "int", "its number", lambda names: names.procedure),
        _procedure("operations", "texts", "operations of a COMPOUND, in order", lambda names: names.operations or None),
        _column(
            "state",
            "text",
            "complete, error, damaged, undecidable, no reply, no call or duplicate reply (which is no RPC of its own)",
            lambda batch: batch.coded("text", "state", lambda state: STATES[state]),
        ),
        _column("status", "text", "OK, or the name of the failure",
                lambda batch: batch.coded("text", "status", lambda code: batch.table.names.statuses[code][0] or None)),
        _column("failed", "bool", "the reply reports an error",
                lambda batch: batch.coded("bool", "status", lambda code: batch.table.names.statuses[code][1])),
        _column("contents", "text", "whole, truncated, missing or undecidable",
                lambda batch: batch.contents()),
        _call("call_frame", "first frame of the call", "call_frame"),
        _reply("reply_frame", "last frame of the reply", "reply_frame"),
        _known("latency_ns", "first packet of the call to last packet of the reply", "latency", -1),
        _column("waiting_ns", "int", "latency; without a reply, a lower bound: the time to the end of the connection or"
                " of the capture; NULL if the capture may have missed the reply",
                lambda batch: masked(batch.table.waiting, batch.table.waiting < 0)),
        _part("call", "the call's Send"),
        _part("reads", "RDMA Reads"),
        _part("server", "none of the RPC is on the wire"),
        _part("writes", "RDMA Writes"),
        _part("reply", "the reply's Send"),
        _size("call_bytes", "bytes of the RPC call, inline and by Read chunk", "call", "call_inline", "read_bytes"),
        _known("call_inline_bytes", "bytes of the RPC call inside the Send", "call_inline", 0, "call_send"),
        _sum("call_chunk_bytes", "bytes of the RPC call transferred by Read chunks", "read_bytes"),
        _size("reply_bytes", "bytes of the RPC reply, inline and by Write and Reply chunk",
              "reply", "reply_inline", "write_bytes", "reply_chunk_bytes"),
        _known("reply_inline_bytes", "bytes of the RPC reply inside the Send", "reply_inline", 0, "reply_send"),
        _sum("reply_chunk_bytes", "bytes of the RPC reply transferred by Write and Reply chunks",
             "write_bytes", "reply_chunk_bytes"),
        _sum("chunks", "chunks that the call advertises", "read_chunks", "write_chunks", "reply_chunks"),
        _sum("read_chunks", "Read chunks among them", "read_chunks"),
        _sum("write_chunks", "Write chunks among them", "write_chunks"),
        _sum("reply_chunks", "Reply chunks among them: 0 or 1", "reply_chunks"),
        _sum("read_segments", "segments of Read chunks", "read_segments"),
        _sum("write_segments", "segments of Write chunks", "write_segments"),
        _sum("reply_segments", "segments of the Reply chunk", "reply_segments"),
        _column("rdma_version", "int", "version of RPC-over-RDMA, of the call or else the reply",
                lambda batch: batch.with_rdma(batch.objects("int", lambda rpc: next(
                    (message.header.version for message in (rpc.call, rpc.reply) if message is not None), None), 1))),
        _column("call_rdma_procedure", "text", "RDMA_MSG, RDMA_NOMSG, …, of the call",
                lambda batch: batch.rdma_procedure("text", "call", lambda *header: procedure_name(*header) or None)),
        _column("reply_rdma_procedure", "text", "RDMA_MSG, RDMA_NOMSG, RDMA_ERROR, …, of the reply",
                lambda batch: batch.rdma_procedure("text", "reply", lambda *header: procedure_name(*header) or None)),
        _known("credits_requested", "by the call", "credits_requested", -1),
        _known("credits_granted", "by the reply", "credits_granted", -1),
        _known("invalidated_handle", "handle that the reply's Send With Invalidate revokes", "invalidated", -1),
        _retransmission("retransmitted_packets", "packets (iWARP: segments) retransmitted for it", "retransmissions"),
        _retransmission("retransmission_delay_ns", "part of the latency: waiting for retransmissions",
                        "latency_retransmission"),
        *(_host_time(host_time) for host_time in HOST_TIMES),
        _column("file", "int",
             "number, in the table files, of the file that it read, wrote or committed, else of the last one it used",
             lambda batch: batch.file_numbers(), "files"),
        _column("path", "text", "path of the file that the call names, as it was called then",
                lambda batch: column_of("text", batch.paths), "paths"),
        _named("file_handle", "text", "first file handle of the call, hexadecimal", "handle", _hexadecimal),
        _named("file_handle_hash", "int", "its CRC-32, as Wireshark shows it", "handle",
               lambda handle: None if handle is None else handle_hash(handle)),
        _named("file_name", "text", "first name of a file in the call", "name", decoded),
        _number_named("offset_bytes", "uint", "first offset in a file: where a READ, WRITE or its like begins",
                      "offset"),
        _number_named("count_bytes", "uint",
                      "first count or length of bytes that the call asks for or brings; 2^64 - 1 is to the end of the"
                      " file", "count"),
        _number_named("eof", "bool", "the reply says that the file or directory ends here", "eof"),
        _named("stateid_seqid", "int", "seqid of the first stateid, of the call or else of the reply", "stateid",
               lambda stateid: stateid and int.from_bytes(stateid[:4])),
        _named("stateid_other", "text", "the rest of that stateid, hexadecimal", "stateid",
               lambda stateid: stateid and stateid[4:].hex()),
        _number_named("slot", "int", "slot of SEQUENCE or CB_SEQUENCE", "slot"),
        _number_named("sequence_id", "int", "sequence ID of SEQUENCE, CB_SEQUENCE or CREATE_SESSION", "sequence"),
        _named("session", "text", "session, hexadecimal", "session", _hexadecimal),
        _named("client_id", "text", "client ID, of the call or else of the reply, hexadecimal", "client",
               lambda client: None if client is None else f"{client:016x}"),
        _column("user", "text", "who calls: the user ID of AUTH_SYS, or gss: and the context handle of RPCSEC_GSS",
                lambda batch: batch.users, "contents"),
        _number_named("uid", "int", "user ID of an AUTH_SYS credential", "uid"),
        _number_named("gid", "int", "group ID of an AUTH_SYS credential", "gid"),
        _named("machine_name", "text", "machine name of an AUTH_SYS credential", "machine_name", decoded),
        _named("linux_operation", "text",
               "Linux's client's name of a COMPOUND with these operations and attributes (OPEN_NOATTR, FSINFO);"
               " none if they do not tell it", "linux", lambda linux: linux),
        _gss("gss_version", "int", "version of the call's RPCSEC_GSS credential", lambda gss: gss.version),
        _gss("gss_procedure", "text", "RPCSEC_GSS_DATA, RPCSEC_GSS_INIT, …, or a number",
             lambda gss: GSS_PROCEDURE_NAMES.get(gss.procedure, str(gss.procedure))),
        _gss("gss_sequence", "int", "its sequence number", lambda gss: gss.sequence),
        _gss("gss_service", "text", "its service: none, integrity, privacy, or a number",
             lambda gss: GSS_SERVICE_NAMES.get(gss.service, str(gss.service))),
        _column("damage", "texts", "what is missing or contradictory",
                lambda batch: batch.objects("texts", lambda rpc: rpc.damage or None)),
        _column("notes", "texts", "what is inferred or unusual", lambda batch: batch.notes()),
        _column("ended", "int", "counted from 1 in the order in which RPCs ended",
                lambda batch: masked(np.arange(len(batch)) + batch.before + 1)),
        *place_columns("call_", "call_frame", "the first frame of the call"),
        *place_columns("reply_", "reply_frame", "the last frame of the reply"),
        _call("call_last_frame", "last frame of the call", "call_last_frame"),
        _call("call_end_time_ns", "last packet of the call, in nanoseconds since the Unix epoch", "call_end"),
        _reply("reply_first_frame", "first frame of the reply", "reply_first_frame"),
        _reply("reply_time_ns", "first packet of the reply, in nanoseconds since the Unix epoch", "reply_time"),
        _known("call_send_bytes", "bytes of the call's Send", "call_send", 0),
        _known("reply_send_bytes", "bytes of the reply's Send", "reply_send", 0),
        _column("call_header_bytes", "int", "bytes of the call's transport header",
                lambda batch: batch.header_length("call")),
        _column("reply_header_bytes", "int", "bytes of the reply's transport header",
                lambda batch: batch.header_length("reply")),
        _header("call_rdma_version", "int", "version of RPC-over-RDMA, of the call", "call",
                lambda message: message.header.version, 1),
        _header("reply_rdma_version", "int", "version of RPC-over-RDMA, of the reply", "reply",
                lambda message: message.header.version, 1),
        _column("call_rdma_procedure_number", "int", "rdma_proc of the call",
                lambda batch: batch.rdma_procedure("int", "call", lambda version, number: number)),
        _column("reply_rdma_procedure_number", "int", "rdma_proc of the reply",
                lambda batch: batch.rdma_procedure("int", "reply", lambda version, number: number)),
        _header("call_rdma_direction", "text", "CALL or REPLY, as the call's header says; version 2", "call",
                _direction),
        _header("reply_rdma_direction", "text", "CALL or REPLY, as the reply's header says; version 2", "reply",
                _direction),
        _header("call_option", "int", "rdma_opttype of the call; version 2", "call",
                lambda message: message.header.option),
        _header("reply_option", "int", "rdma_opttype of the reply; version 2", "reply",
                lambda message: message.header.option),
        _header("call_header_problem", "text", "why the call's header could not be read to its end", "call",
                lambda message: message.header.problem or None),
        _header("reply_header_problem", "text", "why the reply's header could not be read to its end", "reply",
                lambda message: message.header.problem or None),
        _header("call_invalidated_handle", "int", "handle that the call's Send With Invalidate revokes", "call",
                lambda message: message.operation.invalidate),
        _column("psn_reused", "bool", "a sender reused a PSN for one of its packets",
                lambda batch: batch.objects("bool", lambda rpc: bool(rpc.psn_errors), False)),
    ),
    headings={
        "latency": "waiting_ns", "time": "time_ns", "RPC": "number", "to server": "call_bytes",
        "to client": "reply_bytes", "procedure": "procedure", "path": "path", "status": "status", "conn": "connection",
        "xid": "xid", "frames": "call_frame", "user": "user", "offset": "offset_bytes", "count": "count_bytes",
        "server time": "server_ns", "retransmitted": "retransmitted_packets",
    },
)  # fmt: skip


def _step(name: str, type: str, meaning: str, value: Callable[[FileUses], Any], known: str = "") -> TableColumn:
    return _column(name, type, meaning, lambda batch: batch.step_use(type, value, known), "files")


def _steps(batch: RpcBatch) -> MaskedArray:
    steps = np.empty(int(batch.step_counts.sum()), object)
    steps[:] = [*chain.from_iterable(batch.steps)]
    return masked(steps)


def _step_numbers(batch: RpcBatch) -> MaskedArray:
    ends = batch.step_counts.cumsum()
    return masked(
        np.arange(1, len(ends) and int(ends[-1]) + 1) - np.repeat(ends - batch.step_counts, batch.step_counts)
    )


_OPERATIONS = Table(
    "operations",
    "rpc",
    "an operation of an NFSv4 COMPOUND",
    (
        _column("rpc", "int", "number of the RPC",
                lambda batch: masked(np.repeat(batch.rows["number"], batch.step_counts))),
        _column("operation", "int", "counted from 1 in the COMPOUND", _step_numbers),
        _column("name", "text", "its name", _steps),
        _step("file", "int", "number of its file in the table files, if known",
              lambda used: used.numbers),
        _step("succeeded", "bool", "the reply says that it did",
              lambda used: used.operations["succeeded"], "answered"),
        _step("offset_bytes", "uint", "where in the file a READ, WRITE or its like begins, as the call says",
              lambda used: used.operations["offset"], "ranged"),
        _step("count_bytes", "uint", "how much it asks for or brings, as the call says",
              lambda used: used.operations["count"], "ranged"),
    ),
)  # fmt: skip


def _qp(end: int) -> Callable[[Conversation], int | None]:
    def value(conversation: Conversation) -> int | None:
        endpoint = conversation.connection.endpoints[end]
        return None if endpoint.port is not None else endpoint.qpn

    return value


def _of_endpoint(end: int) -> tuple[TableColumn, ...]:
    """What one side sent."""
    side = ("client", "server")[end]
    return (
        TableColumn(f"{side}_packets", "int", f"packets that the {side} sent; TCP segments with payload for iWARP",
               lambda conversation: (conversation.connection.packets[end] or conversation.connection.segments[end])),
        TableColumn(f"{side}_bytes", "int", f"payload bytes that the {side} sent, retransmissions included",
               lambda conversation: conversation.connection.bytes[end]),
        TableColumn(f"{side}_retransmitted_packets", "int", f"packets or segments that the {side} retransmitted",
               lambda conversation: conversation.connection.retransmitted_packets[end]),
        TableColumn(f"{side}_missing_packets", "int",
               f"packets or segments that the {side} sent and that are not in the capture",
               lambda conversation: conversation.connection.missing_packets[end]),
        TableColumn(f"{side}_inline_bytes", "int", f"inline threshold of the {side}: its largest Send",
               lambda conversation: conversation.known_inline_threshold(end)[0]),
    )  # fmt: skip


_CONNECTIONS = Table(
    "connections",
    "conversation",
    "a connection, at the end of the capture",
    (
        TableColumn("number", "int", "in order of appearance", "connection.number"),
        TableColumn("transport", "text", "RoCEv2, RoCEv1, InfiniBand or iWARP",
               "connection.transport"),
        TableColumn("protocol", "text", "rpcrdma, other or unknown", "protocol"),
        TableColumn("client", "text", "address of the client",
               lambda conversation: conversation.connection.endpoints[0].address),
        TableColumn("server", "text", "address of the server",
               lambda conversation: conversation.connection.endpoints[1].address),
        TableColumn("client_qp", "int", "queue pair of the client; InfiniBand transport only", _qp(0)),
        TableColumn("server_qp", "int", "queue pair of the server; InfiniBand transport only", _qp(1)),
        TableColumn("service_port", "int", "service port", "connection.service_port"),
        TableColumn("paired_by", "text", "CM, TCP, inferred or one direction only: how its two directions were found",
               "connection.paired_by"),
        TableColumn("confidence", "float", "how sure that is, 0 to 1",
               "connection.confidence"),
        TableColumn("path_mtu_bytes", "int", "payload of a full packet",
               "connection.path_mtu"),
        TableColumn("first_time_ns", "int", "its first packet",
               "connection.first_time"),
        TableColumn("last_time_ns", "int", "its last packet", "connection.last_time"),
        TableColumn("first_frame", "int", "its first frame", "connection.first_frame"),
        TableColumn("last_frame", "int", "its last frame", "connection.last_frame"),
        *(column for end in (0, 1) for column in _of_endpoint(end)),
        TableColumn("lowest_credits_requested", "int", "least credit value of forward calls",
               lambda conversation: conversation.credits_requested and conversation.credits_requested[0]),
        TableColumn("highest_credits_requested", "int", "greatest credit value of forward calls",
               lambda conversation: conversation.credits_requested and conversation.credits_requested[1]),
        TableColumn("lowest_credits_granted", "int", "least credit value of forward replies",
               lambda conversation: conversation.credits_granted and conversation.credits_granted[0]),
        TableColumn("highest_credits_granted", "int", "greatest credit value of forward replies",
               lambda conversation: conversation.credits_granted and conversation.credits_granted[1]),
        TableColumn("ended_by", "text", "what ended it", lambda conversation: conversation.connection.ended_by or None),
        TableColumn("metadata_server", "text",
               "address of the metadata server that named the server as a pNFS data server",
               lambda conversation: conversation.data_server and conversation.data_server.metadata_server,
               needs="contents"),
        *place_columns("first_", "first_frame", "its first frame"),
        *place_columns("last_", "last_frame", "its last frame"),
    ),
    headings={
        "conn": "number", "transport": "transport", "protocol": "protocol", "client": "client", "server": "server",
        "to server": "client_bytes", "to client": "server_bytes", "retrans": "client_retransmitted_packets",
        "missing": "client_missing_packets", "ended by": "ended_by",
    },
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
        TableColumn("least_size_bytes", "int", "the size; if unknown, its lower bound",
               lambda row: _within_64_bits(row[1].length)),
        TableColumn("reads", "int", "READs that were answered", lambda row: row[1].reads),
        TableColumn("writes", "int", "WRITEs, answered or not", lambda row: row[1].writes),
        TableColumn("median_latency_ns", "int", "latencies of the RPCs that read or wrote it",
               lambda row: None if row[1].latency is None else row[1].latency.median),
        TableColumn("p99_latency_ns", "int", "99th percentile of the latencies",
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
        TableColumn("transfers", "int", "READs and WRITEs of it", lambda row: row[1].transfers),
        TableColumn("calls", "int", "procedures and operations on it", lambda row: row[1].calls.total()),
    ),
    headings={
        "handle": "handle_hash", "size": "size_bytes", "reads": "reads", "read": "read_bytes", "writes": "writes",
        "written": "written_bytes", "median": "median_latency_ns", "p99": "p99_latency_ns", "path": "path",
    },
)  # fmt: skip


def _within_64_bits(value: int | None) -> int | None:
    """What a signed integer can hold: a hostile size has 64 bits without sign."""
    return None if value is None or value >= 1 << 63 else value


TABLES = {table.name: table for table in (
    _RPCS, _OPERATIONS, CHUNKS, SEGMENTS, PACKETS, _CONNECTIONS, _FILES, FINDINGS, VERDICTS, CREDITS, PLACES, DETAILS
)}  # fmt: skip
"""The tables by name."""


def sort_columns(typed: str) -> tuple[TableColumn, ...]:
    """Columns of the table rpcs whose sum is sorted by; 'size' is all bytes.  Raises ValueError: ``Table.column``."""
    return tuple(map(_RPCS.column, ("call_bytes", "reply_bytes") if typed == "size" else (typed,)))


VERSION = 2
"""Rises when a column goes away or changes its meaning, not when one is added."""
