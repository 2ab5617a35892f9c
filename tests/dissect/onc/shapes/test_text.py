"""What values of fields look like."""

from __future__ import annotations

from struct import pack

import pytest

from rdmascope.dissect.onc.shapes.attributes4 import FH_EXPIRE_TYPE
from rdmascope.dissect.onc.shapes.decode import Node
from rdmascope.dissect.onc.shapes.rfc7530 import SHARE_ACCESS, SHARE_DENY
from rdmascope.dissect.onc.shapes.text import integer_text, time_of, value_text
from rdmascope.dissect.onc.shapes.types import XdrInteger

from .test_flat import replied


@pytest.mark.parametrize(
    ("type", "value", "text"),
    [
        (SHARE_DENY, 0, "0x00000000 (OPEN4_SHARE_DENY_NONE)"),
        (SHARE_DENY, 3, "0x00000003 (OPEN4_SHARE_DENY_READ, OPEN4_SHARE_DENY_WRITE)"),
        (FH_EXPIRE_TYPE, 0, "0x00000000 (FH4_PERSISTENT)"),
        (FH_EXPIRE_TYPE, 2, "0x00000002 (FH4_VOLATILE_ANY)"),
        (SHARE_ACCESS, 1, "0x00000001 (OPEN4_SHARE_ACCESS_READ)"),
        (SHARE_ACCESS, 0x401, "0x00000401 (OPEN4_SHARE_ACCESS_READ, OPEN4_SHARE_ACCESS_WANT_NO_DELEG)"),
        (SHARE_ACCESS, 0xF00, "0x00000f00"),
    ],
)
def test_bits_have_names_and_so_has_their_absence(type: XdrInteger, value: int, text: str) -> None:
    assert integer_text(type, value) == text


def nodes(node: Node) -> dict[str, Node]:
    return {node.name: node, **{name: found for child in node.children for name, found in nodes(child).items()}}


def test_a_granularity_of_times_is_no_time_of_day() -> None:
    """FSINFO3resok (RFC 1813, 3.3.19)."""
    tree = replied(3, 19, pack(">II", 0, 0) + bytes(36) + pack(">II", 1, 5) + pack(">I", 27))
    assert tree.problem == "" and tree.body is not None
    delta = nodes(tree.body)["time_delta"]
    assert (time_of(delta), value_text(delta)) == (None, "1.000000005 seconds")
