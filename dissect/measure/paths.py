"""The paths that RPCs name."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from ..onc.programs import NFS, NFS_CALLBACK
from ..rpcrdma.rpcs import Rpc

UNKNOWN = "…"
"""Stands for directories that no call has named."""

_NAMES_IN_HANDLE = frozenset(
    ("LOOKUP", "CREATE", "MKDIR", "SYMLINK", "MKNOD", "REMOVE", "RMDIR", "RENAME")
)  # RFC 1813, 3.3: diropargs3, or two of them
_NAMES_IN_CURRENT = frozenset(("LOOKUP", "OPEN", "CREATE", "REMOVE", "SECINFO", "LINK"))


class PathRule(NamedTuple):
    """What a call's first file handle and first name are to each other."""

    from_root: bool
    """There is no handle: the path begins at the root of the server."""
    named: bool
    """The name is one in the directory that the handle is of."""


@lru_cache(maxsize=4096)
def path_rule(program: int | None, version: int | None, operations: tuple[str, ...], name: str) -> PathRule:
    """Of calls of a procedure; ``operations`` and ``name`` are as in ``Rpc``."""
    if program != NFS or version != 4 or not operations:
        return PathRule(False, program == NFS and name in _NAMES_IN_HANDLE)
    first = current = saved = ""
    for place, operation in enumerate(operations):
        if operation == "PUTFH":
            current = str(place)
        elif operation in ("PUTROOTFH", "PUTPUBFH"):
            current = "root"
        elif operation == "SAVEFH":
            saved = current
        elif operation == "RESTOREFH":
            current = saved
        elif operation in _NAMES_IN_CURRENT or operation == "RENAME":
            inside = saved if operation == "RENAME" else current
            return PathRule(first == "root", bool(first) and inside == first)
        elif operation in ("LOOKUPP", "OPENATTR"):
            current = ""
        first = first or current
    return PathRule(first == "root", False)


def server_of(rpc: Rpc) -> str:
    """Address of the host that has the files; '' where it is not known."""
    message, sends = (rpc.call, 1) if rpc.call is not None else (rpc.reply, 0)
    if message is None:
        return ""
    side = message.operation.initiator ^ sends ^ (rpc.program == NFS_CALLBACK)
    return rpc.connection.endpoints[side].address


def joined(directory: str | None, name: str) -> str:
    """The path of a name in a directory, whose path may not be known."""
    if directory is None:
        return f"{UNKNOWN}/{name}"
    return f"/{name}" if directory == "/" else f"{directory}/{name}"
