"""Requests put together to Operations, however their packets were captured."""

from __future__ import annotations

from collections.abc import Callable

from playbook import Capture, Wire
from playbook.growth import growth
from playbook.judge import analyze, judge_whole
from playbook.shapes import read


def test_a_write_whose_packets_stand_in_reverse_takes_linear_work() -> None:
    def made(count: int) -> Callable[[], object]:
        wire = Wire(mtu=256)
        read(wire.connect(), bytes(256 * count))
        written = [index for index, packet in enumerate(wire.packets) if 6 <= packet.opcode <= 8]
        assert len(written) == count
        packets = list(wire.packets)
        for index, other in zip(written, reversed(written), strict=True):
            packets[index] = wire.packets[other]
        capture = Capture(wire, packets)
        judge_whole(capture, analyze(capture))
        return lambda: analyze(capture)

    assert max(growth(made, 200)) < 2.6
