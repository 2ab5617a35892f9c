"""FPDUs whose CRC is wrong count as FPDUs, and as nothing else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from playbook import call, nfs3, reply
from playbook.capture import write_pcap
from playbook.commands import objects, run
from playbook.iwarp import IwarpCapture, IwarpWire
from playbook.tcp import TcpSegment


def spoiled(segment: TcpSegment) -> TcpSegment:
    data = segment.payload
    if not data or data.startswith(b"MPA"):
        return segment
    return replace(segment, payload=data[:-1] + bytes([data[-1] ^ 1]))


def test_a_connection_whose_every_crc_is_wrong(tmp_path: Path) -> None:
    wire = IwarpWire(mss=1460, seed=3)
    connection = wire.connect()
    for _ in range(3):
        rpc = call(connection, nfs3.getattr_())
        reply(rpc, nfs3.getattr_reply())
    path = tmp_path / "spoiled.pcap"
    write_pcap(IwarpCapture(wire, [spoiled(one) for one in wire.sent()]).frames, path)

    found = {one["type"]: one for one in objects("report", str(path))}
    assert found["capture"]["rpcs"] == 0
    assert [found["connection"][end]["fpdus"] for end in ("active", "passive")] == [3, 3]
    text = run("report", str(path)).stdout
    assert "connections with too little traffic to identify" in text and "another protocol" not in text
