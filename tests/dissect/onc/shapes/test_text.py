"""What values of fields look like."""

from __future__ import annotations

from struct import pack

import pytest

from rdmascope.captures.peer.rpc import encoded
from rdmascope.dissect.onc.shapes.attributes4 import NUMBERED
from rdmascope.dissect.onc.shapes.layouts import TYPES as LAYOUT_TYPES
from rdmascope.dissect.onc.shapes.rfc7530 import TYPES
from rdmascope.dissect.onc.shapes.text import integer_text, opaque_text, value_text
from rdmascope.dissect.onc.shapes.types import ADDRESS, Node, SparseBytes, XdrInteger, XdrOpaque, decode

from .test_rpc_summary_fields import replied


@pytest.mark.parametrize(
    ("type", "value", "text"),
    [
        (TYPES["share_deny"], 0, "0x00000000 (OPEN4_SHARE_DENY_NONE)"),
        (TYPES["share_deny"], 3, "0x00000003 (OPEN4_SHARE_DENY_READ, OPEN4_SHARE_DENY_WRITE)"),
        (TYPES["fattr4_fh_expire_type"], 0, "0x00000000 (FH4_PERSISTENT)"),
        (TYPES["fattr4_fh_expire_type"], 2, "0x00000002 (FH4_VOLATILE_ANY)"),
        (TYPES["share_access"], 1, "0x00000001 (OPEN4_SHARE_ACCESS_READ)"),
        (TYPES["share_access"], 0x401, "0x00000401 (OPEN4_SHARE_ACCESS_READ, OPEN4_SHARE_ACCESS_WANT_NO_DELEG)"),
        (TYPES["share_access"], 0xF00, "0x00000f00"),
        (LAYOUT_TYPES["nfl_util4"], 0x100001, "0x00100001 (NFL4_UFLG_DENSE, stripe unit 1,048,576)"),
        (LAYOUT_TYPES["nfl_util4"], 0x3E, "0x0000003e (NFL4_UFLG_COMMIT_THRU_MDS)"),
    ],
)
def test_bits_have_names_and_so_has_their_absence(type: XdrInteger, value: int, text: str) -> None:
    assert integer_text(type, value) == text


@pytest.mark.parametrize(
    ("type", "value", "text"),
    [
        (TYPES["length4"], (1 << 64) - 1, "18446744073709551615 (to end of file)"),
        (TYPES["length4"], 0, "0"),
        (TYPES["count4_or_rest"], 0, "0 (to end of file)"),
        (NUMBERED[10][1], 90, "90 seconds"),
    ],
)
def test_numbers_that_stand_for_something_say_so(type: XdrInteger, value: int, text: str) -> None:
    assert integer_text(type, value) == text


@pytest.mark.parametrize(
    ("seqid", "other", "text"),
    [
        (0, bytes(12), f"0xafa9, seqid 0, other {bytes(12).hex()} (anonymous)"),
        (0xFFFFFFFF, b"\xff" * 12, f"0x2da9, seqid 4294967295, other {'ff' * 12} (READ bypass)"),
        (0xFFFFFFFF, bytes(12), f"0xa96a, seqid 4294967295, other {bytes(12).hex()} (invalid)"),
        (1, bytes(11) + b"\5", "0xfda9, seqid 1, other 000000000000000000000005"),
    ],
)
def test_a_stateid_has_the_hash_of_the_info_column(seqid: int, other: bytes, text: str) -> None:
    data = encoded(TYPES["stateid4"], {"seqid": seqid, "other": other})
    assert value_text(decode(TYPES["stateid4"], "stateid", SparseBytes([(0, data)], 16), 0, 16).root) == text


@pytest.mark.parametrize(
    ("type", "value", "text"),
    [
        (TYPES["owner"], b"client", '"client" 636c69656e74'),
        (TYPES["owner"], b"a\x1b[31m", "611b5b33316d"),
        (TYPES["owner"], b"\xc3\xa9", "c3a9"),
        (TYPES["owner"], b"", "empty"),
        (TYPES["verifier4"], b"verifier", "7665726966696572"),
        (XdrOpaque("uaddr", ADDRESS), b"10.0.0.7.78.81", "10.0.0.7.78.81 (10.0.0.7 port 20049)"),
        (XdrOpaque("uaddr", ADDRESS), b"name", "name"),
    ],
)
def test_bytes_that_are_text_are_shown_as_text(type: XdrOpaque, value: bytes, text: str) -> None:
    assert opaque_text(type, memoryview(value)) == text


def nodes(node: Node) -> dict[str, Node]:
    return {node.name: node, **{name: found for child in node.children for name, found in nodes(child).items()}}


def test_a_granularity_of_times_is_no_time_of_day() -> None:
    """FSINFO3resok (RFC 1813, 3.3.19)."""
    tree = replied(3, 19, pack(">II", 0, 0) + bytes(36) + pack(">II", 1, 5) + pack(">I", 27))
    assert tree.problem == "" and tree.body is not None
    delta = nodes(tree.body)["time_delta"]
    assert value_text(delta) == "1.000000005 seconds"
