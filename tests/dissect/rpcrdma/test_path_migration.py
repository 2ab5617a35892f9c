"""A queue pair that goes on between other addresses (InfiniBand volume 1, 17.2.8: automatic path migration)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from playbook import Capture, Wire
from playbook.judge import analyze
from playbook.packets import Packet
from playbook.shapes import DATA, read

OTHER = {"10.0.0.1": "10.0.1.1", "10.0.0.2": "10.0.1.2"}


def elsewhere(packet: Packet) -> Packet:
    return replace(packet, source=OTHER[packet.source], destination=OTHER[packet.destination])


def migrated(cm: bool) -> tuple[Wire, list[Packet], int]:
    """In the middle of the RDMA Write of the sixth of twelve READs."""
    wire = Wire(mtu=1024)
    connection = wire.connect(cm=cm)
    for _ in range(12):
        read(connection, DATA[:5000])
    operation = wire.truth[5].operations[0]
    at = [index for index, packet in enumerate(wire.packets) if packet.operation == operation][2]
    return wire, [*wire.packets[:at], *map(elsewhere, wire.packets[at:])], at + 1


@pytest.mark.parametrize("step", [9, 1000])
@pytest.mark.parametrize("cm", [True, False])
def test_a_call_on_one_path_and_its_reply_on_the_other(cm: bool, step: int) -> None:
    wire, packets, frame = migrated(cm)
    rpcs = analyze(Capture(wire, packets), range(step, len(packets), step))
    (called,) = [rpc for rpc in rpcs if rpc.state == "no reply"]
    (replied,) = [rpc for rpc in rpcs if rpc.state == "no call"]
    assert called.xid == replied.xid == wire.truth[5].xid
    path = f"path migration in frame {frame}: the queue pairs"
    assert called.notes == (f"{path} went on between 10.0.1.2 and 10.0.1.1, maybe with its reply",)
    assert replied.notes == (f"{path} were between 10.0.0.2 and 10.0.0.1, maybe with its call",)
    assert [rpc.notes for rpc in rpcs if rpc.state == "complete"] == [()] * 11


def test_queue_pairs_of_the_same_numbers_elsewhere_are_others() -> None:
    wire = Wire(mtu=1024)
    for client, server in (("10.0.0.2", "10.0.0.1"), ("10.0.1.2", "10.0.1.1")):
        connection = wire.connect(client, server, cm=False, client_qpn=0x11, server_qpn=0x12)
        for _ in range(6):
            read(connection, DATA[:5000])
    operation = wire.truth[8].reply_operation
    packets = [packet for packet in wire.packets if packet.operation != operation]
    (called,) = [rpc for rpc in analyze(Capture(wire, packets)) if rpc.state == "no reply"]
    assert called.notes == ()
