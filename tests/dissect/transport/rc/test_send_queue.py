"""Where a send queue begins."""

from __future__ import annotations

from dataclasses import replace

import pytest

from playbook import Capture, Wire
from playbook.judge import analyze, judge_whole
from playbook.shapes import read, write


@pytest.mark.parametrize("ahead", [1, 7, 40, 60_000])
def test_a_starting_psn_of_the_cm_that_is_too_high_loses_nothing(ahead: int) -> None:
    wire = Wire(mtu=1024)
    conn = wire.connect(cm=False, client_psn=5000, server_psn=7000)
    for _ in range(3):
        read(conn)
        write(conn)
    management = Wire(mtu=1024)
    other = management.connect(
        client_qpn=conn.ends[0].qpn, server_qpn=conn.ends[1].qpn, client_psn=5000 + ahead, server_psn=7000 + ahead
    )
    assert other is not None
    start = wire.packets[0].time
    exchange = [replace(packet, time=start - 1000 + index) for index, packet in enumerate(management.packets)]
    capture = Capture(wire, [*exchange, *wire.packets])
    judge_whole(capture, analyze(capture))


@pytest.mark.parametrize("together", [False, True])
def test_packets_that_come_behind_the_grace_period_are_not_missing(together: bool) -> None:
    wire = Wire(mtu=1024)
    conn = wire.connect()
    read(conn)
    whole = len(wire.packets)
    for _ in range(60):
        read(conn)
    packets = list(wire.packets)
    late = next(at for at, packet in enumerate(packets) if at > whole and packet.sender == 0 and packet.kind == "send")
    packets = [*packets[:late], *packets[late + 1 : -5], packets[late], *packets[-5:]]
    capture = Capture(wire, packets)
    rpcs = analyze(capture, range(1, len(packets)) if not together else ())
    assert rpcs[0].connection.missing_packets == (0, 0)
    assert sum(rpc.call is not None for rpc in rpcs) == 61
