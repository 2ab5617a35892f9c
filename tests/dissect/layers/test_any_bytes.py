"""Any bytes make a tree of layers that can be printed and built, and never an exception."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from rich.console import Console, Group
from scapy.packet import Packet, Raw

from playbook.samples import sample_frames
from rdmascope.cli.views.rpc import layer_trees
from rdmascope.dissect import layers
from rdmascope.dissect.frames import Frame
from rdmascope.dissect.layers import rpcrdma
from rdmascope.dissect.link.numbers import COOKED, ERF, ETHERNET, INFINIBAND, RAW_IP
from rdmascope.dissect.records.frame_layers import frame_fields

LAYERS: dict[str, Any] = {name: getattr(layers, name) for name in layers.__all__}
LINK_TYPES = st.sampled_from((ETHERNET, ERF, INFINIBAND, *COOKED, *RAW_IP, 9999))


def default(layer: Any) -> bytes:
    return bytes(layer())


@st.composite
def harmed(draw: st.DrawFn, whole: bytes) -> bytes:
    """Bytes with some changed, then cut or made longer."""
    data = bytearray(whole)
    for _ in range(draw(st.integers(0, 4))):
        if data:
            data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    size = draw(st.integers(0, len(data)))
    return bytes(data[: size if draw(st.booleans()) else None]) + draw(st.binary(max_size=40))


def printed(packet: Any) -> None:
    assert packet.show(dump=True)
    assert packet.summary() and repr(packet)
    bytes(packet)


@pytest.mark.parametrize("name", LAYERS)
@given(data=st.data())
@settings(max_examples=25)
def test_any_bytes_are_a_layer_or_raw(name: str, data: st.DataObject) -> None:
    wire = data.draw(st.binary(max_size=200) | harmed(default(LAYERS[name])))
    packet = LAYERS[name](wire)
    assert isinstance(packet, Packet)
    printed(packet)


@pytest.mark.parametrize("name", LAYERS)
def test_too_few_bytes_are_raw(name: str) -> None:
    whole = default(LAYERS[name])
    for size in range(1, len(whole)):
        packet = LAYERS[name](whole[:size])
        printed(packet)
        assert bytes(packet) == whole[:size] or not isinstance(packet, Raw)


@pytest.mark.parametrize("size", range(4))
def test_a_send_too_short_for_an_rdma_xid_is_raw(size: int) -> None:
    packet = rpcrdma.RPCRDMA(bytes(size)) if size else rpcrdma.RPCRDMA()
    assert isinstance(packet, Raw) == (size > 0)


FRAMES = sample_frames()


@given(st.data(), st.booleans())
def test_any_frame_can_be_shown(data: st.DataObject, recognised: bool) -> None:
    frame, link_type = data.draw(st.sampled_from(FRAMES))
    if data.draw(st.booleans()):
        link_type = data.draw(LINK_TYPES)
    frame = data.draw(harmed(frame))
    console = Console(file=io.StringIO(), width=100)
    console.print(Group(*layer_trees(Frame(1, 0, len(frame), link_type, 0, frame), recognised)))
    assert json.dumps(frame_fields(frame, link_type, recognised))
