"""The table of packets: where in a batch of them the values of each column are."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.ma import MaskedArray, getmaskarray

from ..layers.opcodes import opcode_name
from ..layers.transports import TRANSPORTS
from ..text_columns import lines
from .table import Table, TableColumn, column_of, masked, place_columns

if TYPE_CHECKING:
    from .packet_columns import ListedPackets  # Tables of RPCs do without, and it takes long to load.
    from .packets import Packet


class PacketTableBatch:
    """The packets of a batch, in the order of frames: the noun of the table of packets."""

    def __init__(self, packets: ListedPackets) -> None:
        self.rows = packets.rows
        self._packets = packets
        # Rows are in that order; only segments of iWARP may lie between them.
        self._order = packets.frames.argsort(kind="stable") if packets.segments else None

    def column(self, type: str, rows: MaskedArray, segment: Callable[[Packet], Any]) -> MaskedArray:
        """A column of which ``rows`` has the packets of InfiniBand; ``segment``: gives it of a segment of iWARP."""
        if self._order is None:
            return rows
        others = column_of(type, [segment(one) for one in self._packets.segments])
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
        found = column_of("text", [word(code) for code in codes.tolist()])
        return self.column("text", masked(found.data[inverse], getmaskarray(found)[inverse]), segment)

    def address(self, name: str, segment: Callable[[Packet], str]) -> MaskedArray:
        """Of the source or the destination."""
        return self.coded(name, self._packets.addresses.name, segment)

    @cached_property
    def protocols(self) -> MaskedArray:
        found = np.empty(len(self.rows), object)
        for one in self._packets.worded:
            texts = np.array([*one.protocol.texts], object)
            found[one.rows] = texts if one.protocol.which is None else texts[one.protocol.which]
        return self.column("text", masked(found), lambda packet: packet.protocol)

    @cached_property
    def infos(self) -> MaskedArray:
        found = np.empty(len(self.rows), object)
        for one in self._packets.worded:
            found[one.rows] = [
                line.decode(errors="surrogateescape") for line in lines(one.info, len(one.rows), _encoded)
            ]
        return self.column("text", masked(found), lambda packet: packet.info)

    @cached_property
    def rpcs(self) -> MaskedArray:
        found = np.zeros(len(self.rows), np.int64)
        for one in self._packets.worded:
            found[one.rows] = one.rpcs
        return self.column("int", masked(found, found == 0), lambda packet: packet.rpc)


def _encoded(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


def _column(
    name: str, type: str, meaning: str, values: Callable[[PacketTableBatch], MaskedArray], needs: str = ""
) -> TableColumn:
    return TableColumn(name, type, meaning, None, values, needs)


def _header(name: str, meaning: str, column: str) -> TableColumn:
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
        _column("time_ns", "int", "the same, in nanoseconds since the Unix epoch",
                lambda batch: batch.number("time", lambda packet: packet.time)),
        _column("source", "text", "address of the sender",
                lambda batch: batch.address("source", lambda packet: packet.source)),
        _column("destination", "text", "address of the receiver",
                lambda batch: batch.address("destination", lambda packet: packet.destination)),
        _column("length_bytes", "int", "of the whole frame on the wire",
                lambda batch: batch.number("wire", lambda packet: packet.wire)),
        _column("protocol", "text", "uppermost protocol, as Wireshark calls it",
                lambda batch: batch.protocols, "contents"),
        _column("transport", "text", "RoCEv1, RoCEv2, InfiniBand or iWARP",
                lambda batch: batch.coded("transport", lambda code: TRANSPORTS[code], lambda packet: "iWARP")),
        _header("opcode", "BTH opcode; InfiniBand transport only", "opcode"),
        _column("opcode_name", "text", "its name",
                lambda batch: batch.coded("opcode", opcode_name, lambda packet: None)),
        _header("dest_qp", "destination queue pair; InfiniBand transport only", "dest_qp"),
        _header("psn", "packet sequence number; InfiniBand transport only", "psn"),
        _column("payload_bytes", "int", "bytes of payload",
                lambda batch: batch.number("length", lambda one: one.segment.length if one.segment else None)),
        _column("payload_captured_bytes", "int", "bytes of payload in the capture",
                lambda batch: batch.number("captured", lambda one: one.segment.captured if one.segment else None)),
        _column("rpc", "int", "number of the RPC it belongs to", lambda batch: batch.rpcs, "contents"),
        _column("info", "text", "one line about it", lambda batch: batch.infos, "contents"),
        *place_columns("", "frame", "the frame"),
    ),
)  # fmt: skip
