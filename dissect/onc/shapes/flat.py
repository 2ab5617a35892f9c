"""What most questions are about, whatever the procedure: file, name, range, state and caller of an RPC."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .decode import Node
from .nfs4_types import (
    CLIENTID4,
    COMPONENT4,
    COUNT4,
    LENGTH4,
    NFS_FH4,
    OFFSET4,
    SESSIONID4,
    SLOTID4,
    STATEID4,
)
from .rfc1094 import FHANDLE, FILENAME
from .rfc1813 import COUNT3, FILENAME3, NFS_FH3, OFFSET3
from .types import BOOL, XdrType

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
    COUNT4: "count",
    LENGTH4: "count",
    STATEID4: "stateid",
    SLOTID4: "slot",
    SESSIONID4: "session",
    CLIENTID4: "client",
}
"""What the first value of a type is; of slots, and where 32 bits have no type of their own, by their names, too."""
_COUNTS = ("count", "length")
_OF_REPLIES = frozenset(("stateid", "session", "client"))
_CREDENTIAL = {"uid": "uid", "gid": "gid", "machinename": "machine_name"}

FLAT_NAMES = (
    "handle", "name", "offset", "count", "eof", "stateid", "slot", "session", "client", "uid", "gid", "machine_name",
)  # fmt: skip


def flat_fields(arguments: Node | None, results: Node | None = None, header: Node | None = None) -> dict[str, Any]:
    """The first of each in the arguments; what only the server knows, from the results; the caller, from the header.

    Handles, stateids, sessions and clients are hexadecimal; what is not there is left out.
    """
    found: dict[str, Any] = {}
    if arguments is not None:
        found = {name: _value(node) for name, node in flat_nodes(arguments).items()}
    if results is not None:
        for node in results.walk():
            name = _name(node)
            if name in _OF_REPLIES and name not in found:
                found[name] = _value(node)
            elif node.type is BOOL and node.name.endswith("eof") and node.value is not None:
                found.setdefault("eof", bool(node.value))
    credential = header.child("cred") if header is not None else None
    if credential is not None:
        for node in credential.walk():
            flat = _CREDENTIAL.get(node.name)
            if flat is not None and flat not in found and (value := _value(node)) is not None:
                found[flat] = value
    return {name: found[name] for name in FLAT_NAMES if name in found}


def flat_nodes(arguments: Node) -> dict[str, Node]:
    """The first node of each whose bytes are there."""
    found: dict[str, Node] = {}
    for node in arguments.walk():
        name = _name(node)
        if name is not None and name not in found and _value(node) is not None:
            found[name] = node
    return found


def _name(node: Node) -> str | None:
    name = _NAMES.get(node.type) if node.type is not None else None
    if name == "count" and not (node.name.endswith(_COUNTS) and node.name != "dircount"):
        return None
    return None if name == "slot" and "highest" in node.name else name


def _value(node: Node) -> Any:
    """A number, text or hexadecimal; None where its bytes are missing."""
    if node.type is STATEID4:
        seqid, other = (child.value for child in node.children) if len(node.children) == 2 else (None, None)
        return f"{seqid:08x}{other.hex()}" if isinstance(seqid, int) and isinstance(other, memoryview) else None
    if node.type is CLIENTID4:
        return f"{node.value:016x}" if isinstance(node.value, int) else None
    if isinstance(node.value, memoryview):
        text = node.type in (FILENAME3, COMPONENT4, FILENAME) or node.name == "machinename"
        return bytes(node.value).decode("utf-8", "backslashreplace") if text else node.value.hex()
    return node.value
