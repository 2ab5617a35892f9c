"""A header compiled into columns reads what Scapy reads, wherever it lies."""

from __future__ import annotations

import ipaddress
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scapy.fields import (
    BitField,
    ByteField,
    ConditionalField,
    FlagsField,
    LEIntField,
    SignedIntField,
    StrField,
    ThreeBytesField,
)
from scapy.layers.inet import TCP, UDP
from scapy.packet import Packet

from layouts import HEADERS
from rdmascope.dissect import layers
from rdmascope.dissect.layers.bth import BTH, RETH
from rdmascope.dissect.layers.columns import Extractor, compile_header, layout
from rdmascope.dissect.layers.layouts import LAYOUTS


def compiled(header: Any) -> Extractor | None:
    try:
        return compile_header(header)
    except TypeError:
        return None


def fixed_size_layers() -> list[type[Any]]:
    """Every layer of this project that compiles."""
    found = (getattr(layers, name) for name in layers.__all__)
    return [layer for layer in found if (extractor := compiled(layer)) and extractor.size]


class Crooked(Packet):  # type: ignore[misc]
    """Fields across byte borders, and of every width."""

    fields_desc = (
        BitField("one", 0, 1),
        BitField("eleven", 0, 11),
        FlagsField("flags", 0, 4, "abcd"),
        ThreeBytesField("three", 0),
        BitField("forty", 0, 40),
        BitField("five", 0, 5),
        BitField("sixty", 0, 56),
        BitField("last", 0, 3),
    )


LAYERS = [*fixed_size_layers(), UDP, Crooked]


def plain(value: Any) -> Any:
    """A Scapy value as the columns give it."""
    if isinstance(value, str):
        address = ipaddress.ip_address(value)
        return list(address.packed) if address.version == 6 else int(address)
    return list(value) if isinstance(value, bytes) else int(value)


def test_the_headers_of_every_transport_are_compiled() -> None:
    names = {layer.__name__ for layer in LAYERS}
    assert names >= {"BTH", "RETH", "AETH", "DETH", "AtomicETH", "ImmDt", "IETH", "GRH", "MAD", "CMRequest"}


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer.__name__)
@given(data=st.data())
@settings(max_examples=15)
def test_columns_equal_scapy(layer: Any, data: st.DataObject) -> None:
    extractor = compile_header(layer)
    size = extractor.size
    content = data.draw(st.binary(min_size=size, max_size=3 * size + 7))
    offsets = data.draw(st.lists(st.integers(0, len(content) - size), max_size=5))
    columns = extractor(np.frombuffer(content, np.uint8), np.array(offsets, np.int64))
    assert all(len(column) == len(offsets) for column in columns.values())
    for row, offset in enumerate(offsets):
        packet = layer(content[offset : offset + size])
        scapy = {name: plain(packet.getfieldval(name)) for name in columns}
        assert {name: column[row].tolist() for name, column in columns.items()} == scapy


def test_only_the_fields_asked_for() -> None:
    data = np.frombuffer(bytes(4) + bytes(RETH(va=1 << 63, r_key=0xDEADBEEF, dma_len=7)), np.uint8)
    columns = compile_header(RETH)(data, np.array([4]), ["dma_len", "va"])
    assert {name: column.tolist() for name, column in columns.items()} == {"dma_len": [7], "va": [1 << 63]}
    assert columns["va"].dtype == np.uint64


def test_fields_behind_the_payload_are_no_part_of_the_header() -> None:
    extractor = compile_header(BTH)
    assert extractor.size == 12
    assert "icrc" not in extractor.columns


def test_a_header_may_end_where_the_data_do_but_not_behind() -> None:
    extractor = compile_header(RETH)
    data = np.zeros(20, np.uint8)
    assert len(extractor(data, np.array([4]))["va"]) == 1
    for outside in ([5], [-1], [0, 99]):
        with pytest.raises(IndexError):
            extractor(data, np.array(outside))
    assert len(extractor(np.zeros(0, np.uint8), np.zeros(0, np.int64))["va"]) == 0


def test_read_only_data_stay_as_they_are() -> None:
    data = np.frombuffer(bytes(range(24)), np.uint8)
    columns = compile_header(RETH)(data, np.array([0, 8]))
    columns["va"] += 1
    assert data.tobytes() == bytes(range(24))


@pytest.mark.parametrize(
    "field",
    [
        StrField("text", b""),
        LEIntField("little", 0),
        SignedIntField("signed", 0),
        BitField("reversed", 0, -16),
        ConditionalField(ByteField("perhaps", 0), lambda packet: True),
        BitField("seven", 0, 7),
    ],
    ids=lambda field: field.name,
)
def test_what_has_no_fixed_place_is_refused(field: Any) -> None:
    header = type("Refused", (Packet,), {"fields_desc": [field]})
    with pytest.raises(TypeError):
        compile_header(header)


def test_tcp_has_options() -> None:
    with pytest.raises(TypeError, match="options"):
        compile_header(TCP)


def test_the_layouts_compiled_ahead_are_those_of_the_layers() -> None:
    """After a change to a layer: make layouts."""
    assert {header.__name__: layout(header) for header in HEADERS} == LAYOUTS
