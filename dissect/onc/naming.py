"""Which calls name files: what a procedure, or the operations of a COMPOUND, can say of names and file handles;
and the numbers by which tshark, and people who use it, tell handles and stateids apart.
"""

from __future__ import annotations

from binascii import crc_hqx
from functools import lru_cache
from zlib import crc32

from ..named_tuple import NamedTuple
from .rpc_header import MOUNT, NFS, NFS_CALLBACK

NOTHING, FOUND, REMOVED, OTHER = "nothing", "found", "removed", "other"
"""What a call and its reply say of names: nothing; that a name in the directory that the first handle is of stands for
the first handle of the reply; that such a name was removed; or something that takes a look at every step."""

_FOUND3 = frozenset(("LOOKUP", "CREATE", "MKDIR", "SYMLINK", "MKNOD"))
_MADE = frozenset(("MKDIR", "SYMLINK", "MKNOD"))
"""CREATE opens what is there, too."""
_REMOVED3 = frozenset(("REMOVE", "RMDIR"))
_OTHER3 = frozenset(("RENAME", "LINK", "READDIR", "READDIRPLUS"))
_FOUND4 = frozenset(("LOOKUP", "OPEN", "CREATE"))
_NAMES4 = frozenset((*_FOUND4, "REMOVE", "RENAME", "LINK", "SECINFO"))
_MOVES4 = frozenset(
    ("PUTROOTFH", "PUTPUBFH", "LOOKUPP", "OPENATTR", "SAVEFH", "RESTOREFH", "READDIR", "RENAME", "LINK")
)


class Naming(NamedTuple):
    """What the calls of a procedure name."""

    kind: str
    """NOTHING, FOUND, REMOVED or OTHER."""
    from_root: bool
    """Where there is no handle: the path begins at the root of the server."""
    named: bool
    """The first name is one in the directory that the first handle is of."""
    made: bool = False
    """Where a name is found, the call made it."""
    callback: bool = False
    """The caller has the files."""


@lru_cache(maxsize=4096)
def naming(program: int | None, version: int | None, operations: tuple[str, ...], name: str) -> Naming:
    """What calls of a procedure name; ``operations``: names of those of a COMPOUND."""
    if program != NFS:
        kind = OTHER if program == MOUNT and name == "MNT" else NOTHING
        return Naming(kind, False, False, callback=program == NFS_CALLBACK)
    if version != 4 or not operations:
        kind = FOUND if name in _FOUND3 else REMOVED if name in _REMOVED3 else OTHER if name in _OTHER3 else NOTHING
        named = name in _FOUND3 | _REMOVED3 | {"RENAME"}
        return Naming(kind if version == 3 else NOTHING, False, named, name in _MADE)
    return Naming(_kind4(operations), *_first_name(operations), "CREATE" in operations)


def _kind4(operations: tuple[str, ...]) -> str:
    moves = [
        operation
        for operation in operations
        if operation in _MOVES4 or operation in _FOUND4 or operation in ("PUTFH", "REMOVE")
    ]
    if not any(move != "PUTFH" for move in moves):
        return NOTHING
    if len(moves) == 2 and moves[0] == "PUTFH":
        if moves[1] in _FOUND4:
            return FOUND
        if moves[1] == "REMOVE":
            return REMOVED
    return OTHER


def _first_name(operations: tuple[str, ...]) -> tuple[bool, bool]:
    """Whether the path begins at the root, and whether a name is in the first directory."""
    first = current = saved = ""
    for index, operation in enumerate(operations):
        if operation == "PUTFH":
            current = str(index)
        elif operation in ("PUTROOTFH", "PUTPUBFH"):
            current = "root"
        elif operation == "SAVEFH":
            saved = current
        elif operation == "RESTOREFH":
            current = saved
        elif operation in _NAMES4:
            inside = saved if operation == "RENAME" else current
            return first == "root", bool(first) and inside == first
        elif operation in ("LOOKUPP", "OPENATTR"):
            current = ""
        first = first or current
    return first == "root", False


class HashedHandle(bytes):
    """A file handle known only by the hash with which tshark and Linux's traces name it: its four bytes."""


def hashed_handle(number: int) -> HashedHandle:
    """The handle of that number."""
    return HashedHandle((number & 0xFFFFFFFF).to_bytes(4))


def handle_hash(handle: bytes | memoryview) -> int:
    """The number that tshark prints for a file handle: its CRC-32."""
    return int.from_bytes(handle) if isinstance(handle, HashedHandle) else crc32(handle)


_REVERSED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))
"""Bytes with their bits in the other order."""


def stateid_hash(stateid: bytes) -> int:
    """The number that tshark prints for a stateid of 16 bytes: its CRC-16 as in X.25, the lowest bits first."""
    return int(f"{crc_hqx(stateid.translate(_REVERSED), 0xFFFF):016b}"[::-1], 2) ^ 0xFFFF
