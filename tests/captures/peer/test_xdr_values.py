"""Values and their bytes: both ways, for every type that is declared."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from playbook.xdr_values import values
from rdmascope.captures.peer.endpoint import DdpItem
from rdmascope.captures.peer.rpc import NoValue, decoded, encoded, encoded_parts
from rdmascope.dissect.onc.shapes.attributes4 import FATTR4
from rdmascope.dissect.onc.shapes.nfs4 import OPERATIONS
from rdmascope.dissect.onc.shapes.rfc1813 import MOUNT3, NFS3, TYPES as TYPES3
from rdmascope.dissect.onc.shapes.rfc5531 import RPC_CALL
from rdmascope.dissect.onc.shapes.types import XdrType

TYPES: list[XdrType] = [
    *(one for shape in [*NFS3.values(), *MOUNT3.values()] for one in (shape.arguments, shape.results) if one),
    *(one for shape in OPERATIONS.values() for one in (shape.arguments, shape.results) if one),
    RPC_CALL,
]


@given(st.data())
def test_what_is_decoded_is_encoded_as_it_was(data: st.DataObject) -> None:
    type = data.draw(st.sampled_from(TYPES))
    _, text = data.draw(values(type))
    value, end = decoded(type, b"ahead " + text, 6)
    assert end == 6 + len(text)
    assert encoded(type, value) == text


@given(st.data())
def test_bytes_that_are_no_value_are_refused(data: st.DataObject) -> None:
    type = data.draw(st.sampled_from([one for one in TYPES if one is not None]))
    _, text = data.draw(values(type))
    if text:
        with pytest.raises(NoValue):
            decoded(type, text[:-4])


def test_an_eligible_item_is_a_part_of_its_own() -> None:
    parts = encoded_parts(TYPES3["READ3resok"], {"count": 5, "eof": 1, "data": DdpItem(b"12345")})
    assert parts == (bytes(4) + (5).to_bytes(4, "big") + bytes([0, 0, 0, 1, 0, 0, 0, 5]), DdpItem(b"12345"))
    assert encoded(TYPES3["READ3resok"], {"count": 5, "eof": 1, "data": b"12345"}).endswith(b"12345\0\0\0")


def test_attributes_have_their_numbers_order() -> None:
    text = encoded(FATTR4, {"mode": 0o644, "size": 3})
    assert text == bytes.fromhex("00000002 00000010 00000002 0000000c 0000000000000003 000001a4")
    assert decoded(FATTR4, text)[0] == {"size": 3, "mode": 0o644}
    with pytest.raises(NoValue):  # an attribute that is not known
        decoded(FATTR4, bytes.fromhex("00000004 00000000 00000000 00000000 00000001 00000000"))
