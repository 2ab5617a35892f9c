"""The table of packets, made by the column: what each packet says of itself."""

from __future__ import annotations

from typing import Any

import pytest

from playbook.samples import MANIFEST, SAMPLES
from rdmascope.captures.read.streams import Limits
from rdmascope.captures.session.session import Session
from rdmascope.dissect.layers.opcodes import opcode_name
from rdmascope.dissect.layers.transports import TRANSPORTS
from rdmascope.dissect.records.packet_columns import Packet
from rdmascope.dissect.records.rpc_columns import TableBuilder
from rdmascope.dissect.records.tables import PACKETS, PacketTableBatch
from rdmascope.dissect.rpcrdma.rpc_table import RpcTable


def session(name: str) -> Session:
    return Session(str(SAMPLES / MANIFEST[name]["file"]), limits=Limits(frames=3000))


def row(packet: Packet) -> dict[str, Any]:
    header, payload = packet.header, packet.header or packet.segment
    assert payload is not None
    return {
        "frame": packet.frame,
        "time": packet.time,
        "time_ns": packet.time,
        "source": packet.source,
        "destination": packet.destination,
        "length_bytes": packet.wire,
        "protocol": packet.protocol,
        "transport": TRANSPORTS[header.transport] if header else packet.segment and packet.segment.connection.transport,
        "opcode": header.opcode if header else None,
        "opcode_name": opcode_name(header.opcode) if header else None,
        "dest_qp": header.dest_qp if header else None,
        "psn": header.psn if header else None,
        "payload_bytes": payload.length,
        "payload_captured_bytes": payload.captured,
        "rpc": packet.rpc,
        "info": packet.info,
        "place_file": None,
        "place_frame": None,
    }


@pytest.mark.parametrize("name", ["rxe-nfs-all", "siw-nfs-all", "loss-rxe"])
def test_rows_are_those_of_packets(name: str) -> None:
    builder = TableBuilder(PACKETS)
    for batch in session(name).packet_columns():
        builder.add(PacketTableBatch(batch))
    columns = builder.take()
    rows = list(zip(*(column.tolist() for column in columns.values()), strict=True))
    assert [dict(zip(columns, one, strict=True)) for one in rows] == [row(one) for one in session(name).packets()]


def test_headers_alone_need_no_rpcs_and_rpcs_come_as_they_end() -> None:
    tables: list[RpcTable] = []
    builder = TableBuilder(PACKETS, {"frame", "psn", "destination"})
    assert not builder.needs("contents") and TableBuilder(PACKETS, {"info"}).needs("contents")
    for batch in session("loss-rxe").packet_columns(on_rpcs=tables.append, names_rpcs=False):
        assert not batch.worded
        builder.add(PacketTableBatch(batch))
    found = builder.take()
    expected = [row(one) for one in session("loss-rxe").packets()]
    for name, column in found.items():
        assert column.tolist() == [one[name] for one in expected]
    assert [rpc.number for table in tables for rpc in table] == [rpc.number for rpc in session("loss-rxe").rpcs()]
