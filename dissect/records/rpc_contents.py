"""The arguments and results of an RPC as JSON."""

from __future__ import annotations

from typing import Any

from ..onc.shapes.decode import Node
from ..onc.shapes.types import (
    ADDRESS,
    BOOL,
    DATA,
    TEXT,
    XdrArray,
    XdrBitmap,
    XdrInteger,
    XdrList,
    XdrOpaque,
    XdrOptional,
    XdrSelected,
)
from ..rpcrdma.message_trees import DecodedMessage, decoded_call, decoded_reply
from ..rpcrdma.rpcs import Rpc
from .schema import Record


def contents_fields(rpc: Rpc) -> Record:
    """What `show` adds to an rpc record."""
    call, reply = decoded_call(rpc), decoded_reply(rpc)
    header = call.tree.header if call is not None else None
    credential = header.child("cred") if header is not None else None
    return {
        "credential": None if credential is None else node_json(credential),
        "arguments": _body(call),
        "arguments_problem": _problem(call),
        "results": _body(reply),
        "results_problem": _problem(reply),
    }


def _body(message: DecodedMessage | None) -> Any:
    return node_json(message.tree.body) if message is not None and message.tree.body is not None else None


def _problem(message: DecodedMessage | None) -> str | None:
    return (message.tree.problem or None) if message is not None else "not captured"


def node_json(node: Node) -> Any:
    """A value and all below it; see docs/records.md for how types become JSON."""
    type, value = node.type, node.value
    match type:
        case XdrInteger():
            return _integer(type, value) if isinstance(value, int) else None
        case XdrOpaque() | XdrSelected():
            return _opaque(node, type if isinstance(type, XdrOpaque) else type.otherwise)
        case XdrBitmap():
            return [type.bits.get(bit, bit) for bit in value] if isinstance(value, tuple) else None
        case XdrArray() | XdrList():
            return [node_json(child) for child in node.children]
        case XdrOptional():
            return None
        case None:
            return _bytes(node)
    return {child.name: node_json(child) for child in node.children}


def _integer(type: XdrInteger, value: int) -> int | bool | str:
    if type is BOOL and value in type.values:
        return bool(value)
    return type.values.get(value, value)


def _opaque(node: Node, type: XdrOpaque) -> Any:
    if node.children:
        inside = [node_json(child) for child in node.children]
        return inside[0] if len(inside) == 1 else {child.name: node_json(child) for child in node.children}
    if not isinstance(node.value, memoryview) or type.form == DATA:
        return _bytes(node)
    return bytes(node.value).decode("utf-8", "backslashreplace") if type.form in (TEXT, ADDRESS) else node.value.hex()


def _bytes(node: Node) -> Record:
    """Where bytes stand that are not repeated here."""
    length = len(node.value) if isinstance(node.value, memoryview) else node.length
    return {"offset": node.offset, "length": length, "note": node.note or None}
