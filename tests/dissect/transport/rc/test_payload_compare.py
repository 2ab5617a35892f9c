"""Packets that are retransmitted with the same bytes, and with others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from playbook import Capture, Wire
from playbook.judge import analyze
from playbook.shapes import DATA, read, write

READ_RESPONSE_MIDDLE, WRITE_MIDDLE = 14, 7


@pytest.mark.parametrize("opcode", [READ_RESPONSE_MIDDLE, WRITE_MIDDLE])
@pytest.mark.parametrize("other", [False, True])
def test_chunk_data_retransmitted_with_other_bytes_are_damage(opcode: int, other: bool) -> None:
    wire = Wire(mtu=1024)
    conn = wire.connect()
    (read if opcode == WRITE_MIDDLE else write)(conn, DATA[:5000])
    index = next(index for index, packet in enumerate(wire.packets) if packet.opcode == opcode)
    first = wire.packets[index]
    again = replace(first, payload=b"X" * len(first.payload)) if other else first
    packets = [*wire.packets[: index + 1], again, *wire.packets[index + 1 :]]
    (rpc,) = analyze(Capture(wire, packets))
    name = "Write chunk 1" if opcode == WRITE_MIDDLE else f"Read chunk at Position {rpc.chunks[0].position}"
    expected = (f"{name}: frame {index + 2} retransmits a packet with other bytes",) if other else ()
    assert rpc.damage == expected
    assert rpc.state == ("undecidable" if other else "complete")
    assert rpc.contents == ("undecidable" if other else "whole")
