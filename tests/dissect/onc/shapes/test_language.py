"""Declarations in the language of the RFCs."""

import pytest

from rdmascope.dissect.onc.shapes.language import declared
from rdmascope.dissect.onc.shapes.types import (
    BOOL,
    HEXADECIMAL,
    UINT32,
    OperationShape,
    ProcedureShape,
    XdrArray,
    XdrAttributes,
    XdrBitmap,
    XdrInteger,
    XdrList,
    XdrOpaque,
    XdrOptional,
    XdrSelected,
    XdrStruct,
    XdrUnion,
)

TEXT = """
/* Words of the RFCs; and a comment
   of two lines. */
typedef hex uint64_t id;
typedef opaque verifier[8];
enum status { OK = 0, MOVED = 0x10 };
flags rights { READ = 1, WRITE = 0x2 };
bits bits { FIRST = 0 };
struct entry { id id; handle file<64>; uint32_t counts<3>; uint32_t pair[2]; };
struct listing { linked entry entries; entry *last; opaque *note<>; };
union result switch (status status) { case OK: listing; case MOVED: case 17: string to<>; default: void; };
attributes facts by bits { uint32_t size = 0; };
opaque body<400> switch (status kind) { case OK: entry; };
program LISTS {
    void NULL(void) = 0;
    result LIST(entry) = 1 in RFC 9999, 3.1;
    void _(void) = 2;
};
"""


def test_types_of_every_kind() -> None:
    types = declared(TEXT)
    assert isinstance(types["id"], XdrInteger) and (types["id"].name, types["id"].form) == ("id", HEXADECIMAL)
    assert isinstance(types["verifier"], XdrOpaque) and types["verifier"].size == 8
    assert types["status"].values == {0: "OK", 16: "MOVED"} and types["rights"].flags == {1: "READ", 2: "WRITE"}
    assert isinstance(types["bits"], XdrBitmap) and types["bits"].bits == {0: "FIRST"}
    entry = dict(types["entry"].fields)
    assert entry["id"] is types["id"] and (entry["file"].form, entry["file"].maximum) == ("handle", 64)
    assert isinstance(entry["counts"], XdrArray) and (entry["counts"].size, entry["counts"].maximum) == (None, 3)
    assert entry["pair"].size == 2 and entry["pair"].element is UINT32
    listing = dict(types["listing"].fields)
    assert isinstance(listing["entries"], XdrList) and listing["entries"].element is types["entry"]
    assert isinstance(listing["last"], XdrOptional) and isinstance(listing["note"].element, XdrOpaque)
    result = types["result"]
    assert isinstance(result, XdrUnion) and result.discriminant == "status" and result.has_default
    assert result.arms[0] is types["listing"] and result.arms[16] == result.arms[17] and result.default is None
    assert isinstance(types["facts"], XdrAttributes) and types["facts"].attributes == {0: ("size", UINT32)}
    assert isinstance(types["body"], XdrSelected) and types["body"].selector == "kind"
    assert types["body"].choices == {0: types["entry"]} and types["body"].otherwise.maximum == 400
    entry_type = types["entry"]
    assert isinstance(entry_type, XdrStruct)
    assert types["LISTS"] == {
        0: ProcedureShape("NULL"),
        1: OperationShape("LIST", entry_type, result, "RFC 9999, 3.1"),
        2: ProcedureShape(""),
    }


def test_what_is_known_before_and_what_is_not() -> None:
    known = declared("struct pair { bool first; flag second; };", flag=BOOL)
    assert isinstance(declared("struct two { pair one; };", known)["two"], XdrStruct)
    with pytest.raises(KeyError, match="pair"):
        declared("struct two { pair one; };")
    with pytest.raises(ValueError, match="no declaration of a field: bool"):
        declared("struct one { bool; };")
    with pytest.raises(ValueError, match="no declaration: const"):
        declared("const LIMIT = 3;")
