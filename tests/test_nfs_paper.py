"""The list of what is decoded: it is generated.

``python tests/test_nfs_paper.py`` writes ``docs/nfs.md``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from rdmascope.dissect.onc.rpc_header import program_name
from rdmascope.dissect.onc.shapes.attributes4 import NUMBERED
from rdmascope.dissect.onc.shapes.nfs4 import CALLBACK_OPERATIONS, OPERATIONS
from rdmascope.dissect.onc.shapes.nfs4_types import TYPES
from rdmascope.dissect.onc.shapes.registry import PROGRAMS
from rdmascope.dissect.onc.shapes.rfc5531 import GSS_ARGUMENTS, GSS_RESULTS, RPC_CALL, RPC_REPLY
from rdmascope.dissect.onc.shapes.types import (
    OperationShape,
    XdrArm,
    XdrArray,
    XdrAttributes,
    XdrInteger,
    XdrList,
    XdrOpaque,
    XdrOptional,
    XdrSelected,
    XdrStruct,
    XdrType,
    XdrUnion,
)

PAPER = Path(__file__).parents[1] / "docs" / "nfs.md"

HEAD = """# What is decoded

Made from `dissect/onc/shapes/` by `python tests/test_nfs_paper.py`; a test keeps it so.

`rdmascope show` prints the fields of a call and its reply; `show --json` has them under the same names. The names of
fields and types are those of the RFCs: NFS version 2 (RFC 1094), 3 (RFC 1813), 4.0 (RFC 7530), 4.1 (RFC 8881), 4.2 (RFC
7862), extended attributes (RFC 8276), layouts of files, flexible files (RFC 8435), block volumes (RFC 5663) and SCSI
(RFC 8154), RPC (RFC 5531) with RPCSEC_GSS (RFC 2203, 5403, 7861), port mapper and rpcbind (RFC 1833), rquota.

`x<>` is an array of any length, `x<n>` an array of at most n elements, `x[n]` one of exactly n, `x list` a linked list,
and `x?` is optional. A union lists its arms behind the values of the discriminant that choose them.
[verify.md](verify.md) has Wireshark's names of these fields.
"""


def generated() -> str:
    return HEAD + "".join(
        f"\n{part}\n" for part in (*programs(), *operations(), attributes(), "## Types\n\n" + "\n".join(types()))
    )


def programs() -> Iterator[str]:
    for (program, version), procedures in PROGRAMS.items():
        rows = "".join(
            f"| {number} | {one.name} | {named(one.arguments)} | {named(one.results)} |\n"
            for number, one in procedures.items()
            if one.name
        )
        head = "| number | procedure | arguments | results |\n| --- | --- | --- | --- |\n"
        yield f"## {program_name(program)} version {version}\n\n{head}{rows}".rstrip()


def operations() -> Iterator[str]:
    tables: tuple[tuple[str, Mapping[int, OperationShape]], ...] = (
        ("COMPOUND", OPERATIONS),
        ("CB_COMPOUND", CALLBACK_OPERATIONS),
    )
    for name, table in tables:
        rows = "".join(
            f"| {number} | {one.name} | {section(number, one, table)} | {named(one.arguments)} | {answer(one)} |\n"
            for number, one in table.items()
        )
        head = "| number | operation | section | arguments | results |\n| --- | --- | --- | --- | --- |\n"
        yield f"## Operations of {name}\n\n{head}{rows}".rstrip()


def answer(one: OperationShape) -> str:
    """What follows the status, by status."""
    rows = [
        f"{TYPES['nfsstat4'].values[value]}: {arm(row)}" for value, row in one.results.arms.items() if row is not None
    ]
    return "; ".join([*rows, *([f"others: {arm(one.results.default)}"] if one.results.default is not None else [])])


def section(number: int, one: OperationShape, table: Mapping[int, OperationShape]) -> str:
    """With the document's name: RFC 8881 unless the operation came later."""
    if one.section.startswith("RFC"):
        return one.section
    later = table is OPERATIONS and 59 <= number <= 71
    return f"RFC {7862 if later else 8881}, {one.section}"


def attributes() -> str:
    rows = "".join(f"| {number} | {name} | {named(type)} |\n" for number, (name, type) in sorted(NUMBERED.items()))
    return f"## Attributes of NFS version 4\n\n| number | attribute | type |\n| --- | --- | --- |\n{rows}".rstrip()


def named(type: XdrType | None) -> str:
    match type:
        case None:
            return ""
        case XdrArray():
            inner = named(type.element)
            return f"{inner}[{type.size}]" if type.size else f"{inner}<{type.maximum or ''}>"
        case XdrOptional():
            return f"{named(type.element)}?"
        case XdrList():
            return f"{named(type.element)} list"
        case XdrOpaque() if type.inner is not None:
            return f"opaque of {named(type.inner)}"
        case XdrSelected():
            return f"{type.name} by {type.selector}"
        case _:
            return f"{type.name}"


def types() -> Iterator[str]:
    found: dict[str, str] = {}
    for type in reachable():
        text = described(type)
        if text:
            found.setdefault(named(type), text)
    for name, text in sorted(found.items(), key=lambda item: item[0].lower()):
        yield f"- **{name}**: {text}"


def described(type: XdrType) -> str:
    match type:
        case XdrStruct():
            return fields(type)
        case XdrUnion():
            names = type.type.values
            arms = [f"{names.get(value, str(value))}: {arm(one) or 'nothing'}" for value, one in type.arms.items()]
            if type.has_default:
                arms.append(f"others: {arm(type.default) or 'nothing'}")
            return f"by {type.discriminant} {named(type.type)}; " + "; ".join(arms)
        case XdrInteger() if type.values or type.flags:
            listed = [f"{value} {name}" for value, name in type.values.items()]
            listed += [f"{mask:#x} {name}" for mask, name in (*type.flags.items(), *type.choices.items())]
            return ", ".join(listed) if len(listed) <= 40 else f"{len(listed)} names"
        case XdrSelected():
            return "; ".join(f"{value}: {named(one)}" for value, one in type.choices.items())
        case XdrAttributes():
            return f"attrmask {type.mask.name}, attr_vals: the values of its attributes"
        case _:
            return ""


def fields(type: XdrStruct) -> str:
    return ", ".join(f"{name} {named(field)}" for name, field in type.fields)


def arm(one: XdrArm) -> str:
    if one is None:
        return ""
    if isinstance(one, XdrStruct):
        return fields(one)
    return named(one) if isinstance(one, XdrUnion) else f"{one[0]} {named(one[1])}"


def reachable() -> Iterator[XdrType]:
    waiting: list[XdrType] = [RPC_CALL, RPC_REPLY]
    for procedures in PROGRAMS.values():
        waiting += [type for one in procedures.values() for type in (one.arguments, one.results) if type is not None]
    waiting += [type for table in (GSS_ARGUMENTS, GSS_RESULTS) for type in table.values() if type is not None]
    seen: set[int] = set()
    while waiting:
        type = waiting.pop()
        if id(type) in seen:
            continue
        seen.add(id(type))
        yield type
        waiting += below(type)


def below(type: XdrType) -> list[XdrType]:
    match type:
        case XdrStruct():
            return [field for _, field in type.fields]
        case XdrUnion():
            arms = [one for one in (*type.arms.values(), type.default) if one is not None]
            inner = [one[1] if isinstance(one, tuple) else one for one in arms]
            return [type.type, *inner]
        case XdrArray() | XdrOptional() | XdrList():
            return [type.element]
        case XdrOpaque():
            return [] if type.inner is None else [type.inner]
        case XdrSelected():
            return list(type.choices.values())
        case XdrAttributes():
            return [one for _, one in type.attributes.values()]
        case _:
            return []


def test_the_paper_is_that_of_the_declarations() -> None:
    assert PAPER.read_text() == generated()


if __name__ == "__main__":
    PAPER.write_text(generated())
