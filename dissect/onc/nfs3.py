"""NFS version 3 (RFC 1813): its procedures in one table, and the shapes that they share.

A row says how the arguments begin, where successful results carry attributes, and where the items are that RFC 8267
allows in chunks.
"""

from __future__ import annotations

from struct import error as StructError

from ..named_tuple import NamedTuple
from .shapes.rfc1813 import TYPES
from .shapes.skips import place_of, skip_of, steps_to
from .xdr import Malformed, Skip, as_skip, opaque, opaque_at, word

# 2.6
SIZE_IN_FATTR = place_of(TYPES["fattr3"], "size")
PRE_OP_ATTR = steps_to(TYPES["wcc_data"], "after")
POST_OP_ATTR = as_skip(skip_of(TYPES["post_op_attr"]))
WCC_DATA = as_skip(skip_of(TYPES["wcc_data"]))
POST_OP_FH = as_skip(skip_of(TYPES["post_op_fh3"]))
MODE_TO_GID = steps_to(TYPES["sattr3"], "size")
"""What stands before the size in sattr3."""

GETATTR, SETATTR, LOOKUP, ACCESS, READLINK, READ, WRITE = 1, 2, 3, 4, 5, 6, 7
CREATE, MKDIR, SYMLINK, MKNOD, REMOVE, RMDIR, RENAME, LINK = 8, 9, 10, 11, 12, 13, 14, 15
READDIR, READDIRPLUS, COMMIT = 16, 17, 21

HANDLE, HANDLE_AND_NAME, TWO_NAMES, HANDLE_TO_NAME = "handle", "handle, name", "two names", "handle to name"
"""How arguments begin: nfs_fh3; diropargs3; diropargs3 twice (RENAME); nfs_fh3 and diropargs3 (LINK)."""

BARE, FIRST, AFTER, FOUND, MADE = "fattr3", "post_op_attr", "wcc_data", "nfs_fh3", "post_op_fh3"
"""What the results of a success begin with; behind nfs_fh3 and post_op_fh3 stands the object's post_op_attr."""


class Nfs3Procedure(NamedTuple):
    name: str
    arguments: str = ""
    results: str = ""
    argument_data: Skip | None = None
    """Steps from the arguments to the count word of the item that may travel in a Read chunk."""
    result_data: Skip | None = None
    """Steps from behind the status to the count word of the item that may travel in a Write chunk."""
    result_bound: Skip | None = None
    """Steps from the arguments to the count that limits ``result_data``."""
    entries_bound: Skip | None = None
    """Steps from the arguments to the count that limits the entries of a directory."""


PROCEDURES: tuple[Nfs3Procedure, ...] = (
    Nfs3Procedure("NULL"),  # 3.3.0
    Nfs3Procedure("GETATTR", HANDLE, BARE),  # 3.3.1
    Nfs3Procedure("SETATTR", HANDLE, AFTER),  # 3.3.2
    Nfs3Procedure("LOOKUP", HANDLE_AND_NAME, FOUND),  # 3.3.3
    Nfs3Procedure("ACCESS", HANDLE, FIRST),  # 3.3.4
    Nfs3Procedure("READLINK", HANDLE, FIRST, result_data=steps_to(TYPES["READLINK3resok"], "data")),  # 3.3.5
    Nfs3Procedure(
        "READ",  # 3.3.6
        HANDLE,
        FIRST,
        result_data=steps_to(TYPES["READ3resok"], "data"),
        result_bound=steps_to(TYPES["READ3args"], "count"),
    ),
    Nfs3Procedure("WRITE", HANDLE, AFTER, argument_data=steps_to(TYPES["WRITE3args"], "data")),  # 3.3.7
    Nfs3Procedure("CREATE", HANDLE_AND_NAME, MADE),  # 3.3.8
    Nfs3Procedure("MKDIR", HANDLE_AND_NAME, MADE),  # 3.3.9
    Nfs3Procedure(
        "SYMLINK", HANDLE_AND_NAME, MADE, argument_data=steps_to(TYPES["SYMLINK3args"], "symlink", "symlink_data")
    ),  # 3.3.10
    Nfs3Procedure("MKNOD", HANDLE_AND_NAME, MADE),  # 3.3.11
    Nfs3Procedure("REMOVE", HANDLE_AND_NAME),  # 3.3.12: wcc_data of the directory
    Nfs3Procedure("RMDIR", HANDLE_AND_NAME),  # 3.3.13
    Nfs3Procedure("RENAME", TWO_NAMES),  # 3.3.14
    Nfs3Procedure("LINK", HANDLE_TO_NAME),  # 3.3.15
    Nfs3Procedure("READDIR", HANDLE, FIRST, entries_bound=steps_to(TYPES["READDIR3args"], "count")),  # 3.3.16
    Nfs3Procedure(
        "READDIRPLUS", HANDLE, FIRST, entries_bound=steps_to(TYPES["READDIRPLUS3args"], "maxcount")
    ),  # 3.3.17
    Nfs3Procedure("FSSTAT", HANDLE),  # 3.3.18
    Nfs3Procedure("FSINFO", HANDLE),  # 3.3.19
    Nfs3Procedure("PATHCONF", HANDLE),  # 3.3.20
    Nfs3Procedure("COMMIT", HANDLE, AFTER),  # 3.3.21
)
GIVING_HANDLES = tuple(number for number, procedure in enumerate(PROCEDURES) if procedure.results in (FOUND, MADE))
"""Their results begin with the handle of what was looked up or made."""
"""The index is the procedure number."""


def nfs3_procedure(number: int) -> Nfs3Procedure | None:
    return PROCEDURES[number] if 0 <= number < len(PROCEDURES) else None


def result_object(procedure: Nfs3Procedure, view: memoryview, at: int) -> tuple[bytes | None, int | None]:
    """The handle of the object that was found or made, and where the object's fattr3 stands.

    ``at`` is the offset behind the status of a success.  Either is None where these results do not have it; of a
    procedure that finds and makes nothing, the object is that of its first argument.
    """
    results = procedure.results
    handle: bytes | None = None
    if results == BARE:
        return None, at
    if results == AFTER:
        at = PRE_OP_ATTR(view, at)
    elif results == FOUND:
        handle, at = opaque_at(view, at)
    elif results == MADE:
        if not word(view, at)[0]:
            return None, None
        handle, at = opaque_at(view, at + 4)
    elif results != FIRST:
        return None, None
    return handle, at + 4 if at + 4 <= len(view) and word(view, at)[0] else None


def holds_arguments(view: memoryview, row: Nfs3Procedure) -> bool:
    """Whether the arguments that are known of a procedure lie inside ``view``, data that are not reduced included."""
    bound = row.result_bound or row.entries_bound
    try:
        if row.argument_data is not None:
            at = row.argument_data(view, 0)
            return at + 4 + word(view, at)[0] <= len(view)
        if bound is not None:
            return bound(view, 0) + 4 <= len(view)
        at = opaque(view, 0) if row.arguments else 0
        if row.arguments in (HANDLE_AND_NAME, TWO_NAMES):
            at = opaque(view, at)
        if row.arguments in (TWO_NAMES, HANDLE_TO_NAME):
            at = opaque(view, opaque(view, at))
        return at <= len(view)
    except (StructError, Malformed):
        return False
