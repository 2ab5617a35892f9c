"""What the info column says of calls and replies of the programs beside NFS: MOUNT, NLM, NSM, NFSACL, rpcbind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from .hashes import handle_hash
from .programs import program_name
from .shapes.decode import Node, SparseBytes, decode
from .shapes.registry import procedure_shape
from .shapes.rpc_summary_fields import MAX_NODES, flat_nodes
from .shapes.types import HANDLE, XdrInteger, XdrOpaque, XdrType
from .summary_words import length_words, printable_name

_NAMES = ("dirpath", "mon_name", "caller_name", "name", "gqa_pathp", "gqa_id")
"""What such a call is about, where it has no file handle."""


def other_call_words(program: int, version: int, procedure: int, arguments: memoryview, path: str | None = None) -> str:
    """', FH: 0x6df97fdc /r1m svid: 7 Offset: 0 Len: to end of file', ', NFS V3 TCP'; ``path`` is that of the handle."""
    shape = procedure_shape(program, version, procedure)
    nodes = {} if shape is None or shape.arguments is None else _nodes(shape.arguments, arguments)
    words = " ".join([*([path] if path is not None and "handle" not in nodes else []), *_called(nodes, path)])
    return words and f", {words}"


def _called(nodes: Mapping[str, Node], path: str | None) -> Iterator[str]:
    for prefix in "", "r_":
        if (number := nodes.get(f"{prefix}prog")) is not None and isinstance(number.value, int):
            yield f"{program_name(number.value)} V{_text(nodes.get(f'{prefix}vers'))}"
    for name in "prot", "r_netid":
        if name in nodes:
            yield _text(nodes[name]).removeprefix("IPPROTO_")
    handle = nodes.get("handle")
    if handle is not None and isinstance(handle.value, memoryview):
        yield f"FH: {handle_hash(handle.value):#010x}" + (f" {path}" if path is not None else "")
    else:
        yield from [_text(nodes[name]) for name in _NAMES if name in nodes][:1]
    if "svid" in nodes:
        yield f"svid: {_text(nodes['svid'])}"
    if "offset" in nodes and "count" in nodes:
        length = nodes["count"].value
        # NLM has 0 for all behind the offset.
        words = " Len: to end of file" if length == 0 else length_words(length) if isinstance(length, int) else ""
        yield f"Offset: {_text(nodes['offset'])}{words}"
    if "stat" in nodes:
        yield _text(nodes["stat"])


def other_reply_words(program: int, version: int, procedure: int, results: memoryview) -> str:
    """', Port: 2049', ', FH: 0x6df97fdc'."""
    shape = procedure_shape(program, version, procedure)
    nodes = {} if shape is None or shape.results is None else _nodes(shape.results, results)
    words = []
    if "port" in nodes and "map" not in nodes:
        words.append(f"Port: {_text(nodes['port'])}")
    if "uaddr" in nodes:
        words.append(f"Address: {_text(nodes['uaddr'])}")
    handle = nodes.get("handle")
    if handle is not None and isinstance(handle.value, memoryview):
        words.append(f"FH: {handle_hash(handle.value):#010x}")
    return "".join(f", {word}" for word in words)


def _nodes(type: XdrType, view: memoryview) -> dict[str, Node]:
    """The first of each name, and of the flat fields."""
    root = decode(type, "", SparseBytes([(0, view)], len(view)), 0, len(view), MAX_NODES).root
    found: dict[str, Node] = {}
    for node in root.walk():
        if node.value is not None:
            found.setdefault(node.name, node)
            if isinstance(node.type, XdrOpaque) and node.type.form == HANDLE:
                found.setdefault("handle", node)
    return found | flat_nodes(root)


def _text(node: Node | None) -> str:
    if node is not None and isinstance(node.value, memoryview):
        return printable_name(node.value)
    if node is not None and isinstance(node.type, XdrInteger) and isinstance(node.value, int):
        return node.type.values.get(node.value, str(node.value))
    return "?"
