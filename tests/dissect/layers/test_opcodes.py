from __future__ import annotations

import numpy as np
import pytest

from rdmascope.dissect.layers import opcodes
from rdmascope.dissect.layers.bth import BTH


@pytest.mark.parametrize(
    ("opcode", "name", "service"),
    [
        (0x04, "RC SEND Only", "RC"),
        (0x15, "opcode 0x15 (reserved)", "RC"),
        (0x44, "DC or RD opcode 0x44 (not decoded)", "DC or RD"),
        (0x57, "DC or RD opcode 0x57 (not decoded)", "DC or RD"),
        (0x5F, "DC or RD opcode 0x5f (not decoded)", "DC or RD"),
        (0x64, "UD SEND Only", "UD"),
        (0x81, "CNP", "CNP"),
        (0x82, "opcode 0x82 (reserved)", "reserved"),
        (0xA4, "XRC SEND Only", "XRC"),
        (0xC3, "manufacturer's opcode 0xc3 (not decoded)", "manufacturer's"),
        (0xFF, "manufacturer's opcode 0xff (not decoded)", "manufacturer's"),
    ],
)
def test_names(opcode: int, name: str, service: str) -> None:
    assert opcodes.opcode_name(opcode) == name
    assert opcodes.transport_service(opcode) == service


def test_which_services_are_decoded() -> None:
    values = np.arange(256, dtype=np.uint8)
    foreign = opcodes.is_foreign(values)
    assert values[foreign].tolist() == [*range(0x40, 0x60), 0x80, *range(0x82, 0xA0), *range(0xC0, 0x100)]
    assert not (foreign & opcodes.KNOWN).any()


@pytest.mark.parametrize("opcode", range(0x40, 0x60))
def test_behind_the_bth_of_a_foreign_opcode_nothing_is_decoded(opcode: int) -> None:
    packet = BTH(bytes(BTH(opcode=opcode)) + bytes(64))
    assert packet.payload.name == "Raw"
    assert opcodes.EXTENDED_BYTES[opcode] == 0
