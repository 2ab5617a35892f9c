"""What most questions are about, whatever the procedure: file, name, range, state and caller of an RPC."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from struct import error as StructError
from typing import Any, NamedTuple

from ..linux_operations import linux_operation
from ..xdr import Malformed, as_skip
from .attributes4 import ATTRIBUTE_BITS
from .decode import Node, SparseBytes, Walk
from .nfs4 import COMPOUND4ARGS, OPERATIONS
from .nfs4_types import (
    CLIENTID4,
    COMPONENT4,
    COUNT4,
    COUNT4_OR_REST,
    DATA4,
    LENGTH4,
    LENGTH4_OR_REST,
    NFS_FH4,
    OFFSET4,
    SEQUENCEID4,
    SESSIONID4,
    SLOTID4,
    STATEID4,
)
from .nlm import LENGTH, LENGTH32, NLM_FH, OFFSET, OFFSET32
from .rfc1094 import FHANDLE, FILENAME
from .rfc1813 import COUNT3, COUNT3_OR_REST, FILENAME3, NFS_FH3, OFFSET3
from .skips import skip_of
from .types import (
    BOOL,
    XdrArm,
    XdrArray,
    XdrAttributes,
    XdrList,
    XdrOpaque,
    XdrOptional,
    XdrSelected,
    XdrStruct,
    XdrType,
    XdrUnion,
)

MAX_NODES = 200
"""Values of a message that are looked at."""

_NAMES: Mapping[XdrType, str] = {
    NFS_FH3: "handle",
    NFS_FH4: "handle",
    FHANDLE: "handle",
    FILENAME3: "name",
    COMPONENT4: "name",
    FILENAME: "name",
    OFFSET3: "offset",
    OFFSET4: "offset",
    COUNT3: "count",
    COUNT3_OR_REST: "count",
    COUNT4: "count",
    COUNT4_OR_REST: "count",
    LENGTH4: "count",
    LENGTH4_OR_REST: "count",
    NLM_FH: "handle",
    OFFSET: "offset",
    OFFSET32: "offset",
    LENGTH: "count",
    LENGTH32: "count",
    DATA4: "count",
    STATEID4: "stateid",
    SLOTID4: "slot",
    SEQUENCEID4: "sequence",
    SESSIONID4: "session",
    CLIENTID4: "client",
}
"""What the first value of a type is; of contents how many bytes they are; of slots, and where 32 bits have no type of
their own, by their names, too."""
_COUNTS = ("count", "length", "l_len")
_RESULTS: Mapping[str, str] = {"stateid": "stateid", "session": "session", "client": "client", "handle": "object"}
"""What of the results counts, where the arguments have none of it, and what it is called."""
_CREDENTIAL = {"uid": "uid", "gid": "gid", "machinename": "machine_name", "handle": "context"}


class FlatFields(NamedTuple):
    """The first of each in the arguments; what only the server knows, from the results; the caller, from the header."""

    handle: bytes | None = None
    """File handle."""
    name: bytes | None = None
    """Of a file in a directory."""
    offset: int | None = None
    count: int | None = None  # type: ignore[assignment]
    eof: bool | None = None
    stateid: bytes | None = None
    """16 bytes: seqid, then other."""
    slot: int | None = None
    sequence: int | None = None
    """Sequence ID of the slot."""
    session: bytes | None = None
    """16 bytes."""
    client: int | None = None
    uid: int | None = None
    """This and the next two: of an AUTH_SYS credential."""
    gid: int | None = None
    machine_name: bytes | None = None
    context: bytes | None = None
    """Context handle of an RPCSEC_GSS credential."""
    linux: str | None = None
    """What Linux's client calls the COMPOUND (``onc.linux_operations``)."""

    @property
    def user(self) -> str | None:
        return caller(self.uid, self.context)


def caller(uid: int | None, context: bytes | None) -> str | None:
    """Who calls: the user ID of AUTH_SYS, or ``gss:`` and the context handle of RPCSEC_GSS."""
    if uid is not None:
        return str(uid)
    return f"gss:{context.hex()}" if context else None


NO_FIELDS = FlatFields()
ARGUMENTS = ("handle", "name", "offset", "count", "stateid", "slot", "sequence", "session", "client")
"""Fields of ``flat_nodes``."""
OF_CALLS = frozenset((*ARGUMENTS, "linux"))
RESULTS = ("eof", "stateid", "session", "client", "object")
"""Fields of ``result_nodes``."""
ALL = frozenset(RESULTS) - {"object"}


def flat_fields(
    arguments: Node | None, results: Node | None = None, header: Node | None = None, of_results: frozenset[str] = ALL
) -> FlatFields:
    """Of a call and its reply, as far as they are there; ``of_results``: what the results may have."""
    found: dict[str, Any] = {}
    if results is not None:
        found = {name: node_value(node) for name, node in result_nodes(results).items() if name in of_results}
    if arguments is not None:
        found |= _called_values(arguments)
    return FlatFields(**found, **(credential_fields(header) if header is not None else {}))


def credential_fields(header: Node) -> dict[str, Any]:
    """``uid``, ``gid``, ``machine_name`` or ``context`` of a call header, as far as it has them."""
    found: dict[str, Any] = {}
    credential = header.child("cred")
    if credential is not None:
        for node in credential.walk():
            flat = _CREDENTIAL.get(node.name)
            if flat is not None and flat not in found and (value := node_value(node)) is not None:
                found[flat] = value
    return found


def _called_values(arguments: Node) -> dict[str, Any]:
    return {"linux": linux_name(arguments)} | {name: node_value(node) for name, node in flat_nodes(arguments).items()}


def linux_name(arguments: Node) -> str | None:
    """What Linux's client calls a COMPOUND; None where not all its operations are there, and of other procedures."""
    array = arguments.child("argarray") if arguments.type is COMPOUND4ARGS else None
    if array is None or array.value != len(array.children):
        return None
    operations: list[str] = []
    attributes: tuple[int, ...] | None = None
    kind: int | None = None
    for node in array.children:
        number = node.child("argop")
        shape = OPERATIONS.get(number.value) if number is not None and isinstance(number.value, int) else None
        if shape is None:
            return None
        operations.append(shape.name)
        for one in node.children:
            if one.type is ATTRIBUTE_BITS and isinstance(one.value, tuple):
                attributes = one.value
            elif shape.name == "CREATE" and one.name == "objtype":
                kind = next((child.value for child in one.children if isinstance(child.value, int)), None)
    return linux_operation(operations, attributes, kind)


def flat_nodes(arguments: Node) -> dict[str, Node]:
    """The first node of each whose bytes are there."""
    found: dict[str, Node] = {}
    for node in arguments.walk():
        name = _name(node)
        if name is not None and name not in found and node_value(node) is not None:
            found[name] = node
    return found


def result_nodes(results: Node) -> dict[str, Node]:
    """The same of results, apart from the entries of directories; ``object`` is the first file handle."""
    found: dict[str, Node] = {}
    for node in results.walk(lambda node: not isinstance(node.type, XdrList)):
        name = "eof" if node.type is BOOL and node.name.endswith("eof") else _RESULTS.get(_name(node) or "")
        if name is not None and name not in found and node_value(node) is not None:
            found[name] = node
    return found


def _name(node: Node) -> str | None:
    name = _NAMES.get(node.type) if node.type is not None else None
    if name == "count" and node.type is not DATA4 and not (node.name.endswith(_COUNTS) and node.name != "dircount"):
        return None
    return None if name == "slot" and "highest" in node.name else name


def node_value(node: Node) -> Any:
    """A number, bytes, or a truth; of contents of a file how many bytes; None where its bytes are missing."""
    if node.type is DATA4:
        return node.size
    if node.type is STATEID4:
        seqid, other = (child.value for child in node.children) if len(node.children) == 2 else (None, None)
        return seqid.to_bytes(4) + other if isinstance(seqid, int) and isinstance(other, memoryview) else None
    if isinstance(node.value, memoryview):
        return bytes(node.value)
    return bool(node.value) if node.type is BOOL and node.value is not None else node.value


class FlatWalk(Walk):
    def _list(self, node: Node, type: XdrList) -> None:
        view = self.data.view(self.at, self.limit)
        if view is None:
            super()._list(node, type)
            return
        try:
            behind = as_skip(skip_of(type))(view, 0)
        except (StructError, Malformed):
            behind = len(view) + 1
        if behind > len(view):
            raise self._stop(node, "not decoded to the end")
        self.at += behind


def decoded_values(type: XdrType, results: bool, data: SparseBytes, start: int) -> dict[str, Any]:
    """The fields of arguments or results, decoded."""
    root = FlatWalk(data, start, data.length, MAX_NODES).decoded(type, "").root
    if not results:
        return _called_values(root)
    return {name: node_value(node) for name, node in result_nodes(root).items()}


@cache
def result_fields(type: XdrType | None) -> frozenset[str]:
    """Which fields results of this type may have, without ``object``."""
    found = {_result_name(name, one) for name, one in _inside("", type)} if type is not None else set()
    return ALL & found


def _result_name(name: str, type: XdrType) -> str:
    return "eof" if type is BOOL and name.endswith("eof") else _RESULTS.get(_NAMES.get(type, ""), "")


def _inside(name: str, type: XdrType) -> Iterator[tuple[str, XdrType]]:
    """A type and all it is made of, with their names."""
    yield name, type
    arms: list[XdrArm] = []
    match type:
        case XdrStruct():
            arms = [type]
        case XdrUnion():
            arms = [*type.arms.values(), type.default, ("", type.type)]
        case XdrArray() | XdrList() | XdrOptional():
            arms = [(name, type.element)]
        case XdrAttributes():
            arms = [*type.attributes.values()]
        case XdrSelected():
            arms = [("", one) for one in type.choices.values()]
        case XdrOpaque():
            arms = [("", type.inner)] if type.inner is not None else []
    for arm in arms:
        if isinstance(arm, XdrStruct):
            for field, one in arm.fields:
                yield from _inside(field, one)
        elif isinstance(arm, XdrUnion):
            yield from _inside("", arm)
        elif arm is not None:
            yield from _inside(*arm)


_BYTES = frozenset(("handle", "name", "newname", "stateid", "to_stateid", "session", "object"))


def field_of(name: str, raw: bytes | memoryview) -> Any:
    """The value of a field from its bytes, without length word and pad."""
    if name in _BYTES:
        return bytes(raw)
    return bool(int.from_bytes(raw)) if name == "eof" else int.from_bytes(raw)
