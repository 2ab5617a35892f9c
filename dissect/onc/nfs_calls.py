"""Which file each operation of an NFS call was for, and what the reply says that file is: its type and its size.

Versions 3 and 4.  Names and contents are told by ``nfs_events``.
"""

from __future__ import annotations

from contextlib import suppress
from struct import error as StructError
from typing import NamedTuple

from . import compound as nfs4
from .header import CallHeader, GssCredential, call_header, reply_header
from .nfs4_args import OPEN_HEAD, OPEN_HOW
from .programs import NFS, procedure_name
from .xdr import Data, Malformed, array, as_skip, hyper, struct, union, word, words2

REGULAR, DIRECTORY, LINK = 1, 2, 5
TYPE_NAMES = {
    REGULAR: "file",  # ftype3 (RFC 1813, 2.5) and nfs_ftype4 (RFC 8881, 3.2)
    DIRECTORY: "directory",
    3: "block device",
    4: "character device",
    LINK: "symbolic link",
    6: "socket",
    7: "fifo",
    8: "attribute directory",
    9: "named attribute",
}

UNSTABLE = 0
"""stable_how (RFC 1813, 3.3.7; RFC 8881, 18.32)."""


class Done(NamedTuple):
    """One operation on one file."""

    operation: str
    """'READ'; of a COMPOUND each operation by itself, without those that only set the filehandle."""
    handle: bytes
    """The file it was for; of one that finds or makes a file and succeeded, that file."""
    succeeded: bool | None
    """None where there is no reply."""
    type: int | None = None
    size: int | None = None
    """Bytes, when the reply was made."""
    stable: int | None = None
    """WRITE: how it was committed, UNSTABLE or more."""
    verifier: bytes = b""
    """WRITE and COMMIT: changes when the server loses what was not committed."""
    offset: int = 0
    """COMMIT: of what was to be committed."""
    count: int = 0  # type: ignore[assignment]
    """COMMIT: bytes of it, 0 for all that follows."""


def nfs_calls(call: Data | None, reply: Data | None) -> tuple[Done, ...]:
    """The operations of one RPC whose file is known; ``call`` and ``reply`` are whole messages, from the XID on.

    Either may end early: what stands behind its end is not told.
    """
    header = call_header(call, 0, len(call)) if call is not None else None
    if call is None or header is None or header.body < 0 or header.program != NFS:
        return ()
    view = memoryview(call)
    answer = memoryview(reply if reply is not None else b"")
    body = _results(reply, header.gss)
    found: list[Done] = []
    with suppress(StructError, Malformed):
        if header.version == 3:
            _version3(header, view, answer, body, found)
        elif header.version == 4 and header.procedure == 1:
            _version4(header.body, view, answer, body, found)
    return tuple(found)


def _results(reply: Data | None, gss: GssCredential | None) -> int:
    header = reply_header(reply, 0, len(reply), gss) if reply is not None else None
    return header.body if header is not None else -1


def _opaque(view: memoryview, at: int) -> bytes:
    end = at + 4 + word(view, at)[0]
    if end > len(view):
        raise StructError
    return bytes(view[at + 4 : end])


_PRE_OP_ATTR = union({1: 24, 0: 0})  # RFC 1813, 2.6
_POST_OP_ATTR = union({1: 84, 0: 0})
_WCC_DATA = as_skip(struct(_PRE_OP_ATTR, _POST_OP_ATTR))
_POST_OP_FH = union({1: array(1), 0: 0})

_ATTRIBUTES_FIRST = frozenset((4, 5, 6, 16, 17))
"""ACCESS, READLINK, READ, READDIR, READDIRPLUS: the results begin with a post_op_attr."""
_WCC_FIRST = frozenset((2, 7, 21))
"""SETATTR, WRITE, COMMIT: they begin with wcc_data."""
_MAKE = frozenset((8, 9, 10, 11))


def _version3(call: CallHeader, view: memoryview, answer: memoryview, body: int, found: list[Done]) -> None:
    """RFC 1813, 3.3."""
    procedure = call.procedure
    if not 0 < procedure < 22:
        return
    name = procedure_name(NFS, 3, procedure)
    done = Done(name, _opaque(view, call.body), None)
    if body < 0:
        found.append(done)
        return
    try:
        status = word(answer, body)[0]
    except StructError:
        found.append(done)
        return
    done = done._replace(succeeded=status == 0)
    if status == 0:
        with suppress(StructError, Malformed):
            done = _results3(done, procedure, answer, body + 4)
    if procedure == 21:
        done = _commit(done, view, call.body + 4 + (len(done.handle) + 3 & -4))
    found.append(done)


def _commit(done: Done, view: memoryview, at: int) -> Done:
    """COMMIT3args behind the handle, COMMIT4args (RFC 1813, 3.3.21; RFC 8881, 18.3)."""
    return done._replace(offset=hyper(view, at)[0], count=word(view, at + 8)[0])


def _results3(done: Done, procedure: int, answer: memoryview, at: int) -> Done:
    if procedure == 1:
        return _fattr3(done, answer, at)
    if procedure in _ATTRIBUTES_FIRST:
        return _post_op_attr(done, answer, at)
    if procedure in _WCC_FIRST:
        done = _post_op_attr(done, answer, _PRE_OP_ATTR(answer, at))
        after = _WCC_DATA(answer, at)
        if procedure == 7:
            stable = word(answer, after + 4)[0]
            return done._replace(stable=stable, verifier=bytes(answer[after + 8 : after + 16]))
        return done._replace(verifier=bytes(answer[after : after + 8])) if procedure == 21 else done
    if procedure == 3:
        handle = _opaque(answer, at)
        return _post_op_attr(done._replace(handle=handle), answer, at + 4 + (len(handle) + 3 & -4))
    if procedure in _MAKE and word(answer, at)[0]:
        made = done._replace(handle=_opaque(answer, at + 4))
        after = at + 8 + (len(made.handle) + 3 & -4)
        return _post_op_attr(made, answer, after)
    return done


def _post_op_attr(done: Done, answer: memoryview, at: int) -> Done:
    return _fattr3(done, answer, at + 4) if word(answer, at)[0] else done


def _fattr3(done: Done, answer: memoryview, at: int) -> Done:
    """RFC 1813, 2.5: type, mode, nlink, uid, gid, size."""
    return done._replace(type=word(answer, at)[0], size=hyper(answer, at + 20)[0])


class _Object:
    """What the current or saved filehandle stands for; a later GETFH may tell its handle."""

    __slots__ = ("handle",)

    def __init__(self, handle: bytes | None = None) -> None:
        self.handle = handle


_COMMIT, _CREATE, _GETATTR, _GETFH, _LOOKUP, _LOOKUPP, _OPEN, _OPENATTR = 5, 6, 9, 10, 15, 16, 18, 19
_PUTFH, _PUTPUBFH, _PUTROOTFH, _RESTOREFH, _SAVEFH, _WRITE = 22, 23, 24, 31, 32, 38
_FINDS = frozenset((_CREATE, _LOOKUP, _OPEN))
_MOVES = frozenset((_LOOKUPP, _OPENATTR, _PUTPUBFH, _PUTROOTFH))
_BY_NAME = frozenset((0, 2, 3))
"""open_claim_type4: CLAIM_NULL, CLAIM_DELEGATE_CUR, CLAIM_DELEGATE_PREV (RFC 8881, 18.16)."""


def _version4(start: int, view: memoryview, answer: memoryview, body: int, found: list[Done]) -> None:
    """RFC 8881, 16.2.3.1: follow the current and the saved filehandle through the COMPOUND."""
    call = nfs4.compound_call(view, start, len(view))
    reply = nfs4.compound_reply(answer, body, len(answer)) if body >= 0 else None
    names = nfs4.operation_names(call.operations)
    told: list[tuple[Done, _Object]] = []
    current, saved = _Object(), _Object()
    try:
        for index, (op, at) in enumerate(zip(call.operations, call.places, strict=True)):
            succeeded: bool | None = None
            result = -1
            if reply is not None:
                if index < len(reply.results):
                    if reply.results[index][0] != op:
                        break
                    succeeded, result = reply.results[index][1] == 0, reply.places[index]
                elif not reply.truncated:
                    break  # An operation failed: those behind it were not done (RFC 8881, 16.2.3).
            if op == _PUTFH:
                current = _Object(_opaque(view, at))
            elif op == _SAVEFH:
                saved = current
            elif op == _RESTOREFH:
                current = saved
            elif op == _GETFH:
                if succeeded:
                    current.handle = _opaque(answer, result)
            elif op in _MOVES:
                current = _Object()
            else:
                if op in _FINDS and succeeded is not False and (op != _OPEN or _opens_by_name(view, at)):
                    before, current = current, _Object()
                    if succeeded is None:
                        told.append((Done(names[index], b"", None), before))
                        continue
                done = _result4(Done(names[index], b"", succeeded), op, answer, result)
                told.append((_commit(done, view, at) if op == _COMMIT else done, current))
    except (StructError, Malformed):
        pass
    found += [done._replace(handle=where.handle) for done, where in told if where.handle is not None]


def _opens_by_name(view: memoryview, at: int) -> bool:
    return word(view, OPEN_HOW(view, as_skip(OPEN_HEAD)(view, at)))[0] in _BY_NAME


def _result4(done: Done, op: int, answer: memoryview, at: int) -> Done:
    if not done.succeeded:
        return done
    try:
        if op == _GETATTR:
            return _fattr4(done, answer, at)
        if op == _WRITE:
            _, stable = words2(answer, at)
            return done._replace(stable=stable, verifier=bytes(answer[at + 8 : at + 16]))
        if op == _COMMIT:
            return done._replace(verifier=bytes(answer[at : at + 8]))
    except StructError:
        pass
    return done


_BITMAP = array(4)


def _fattr4(done: Done, answer: memoryview, at: int) -> Done:
    """RFC 8881, 5.8: supported_attrs 0, type 1, fh_expire_type 2, change 3, size 4."""
    if not word(answer, at)[0]:
        return done
    mask = word(answer, at + 4)[0]
    at = _BITMAP(answer, at) + 4
    if mask & 1:
        at = _BITMAP(answer, at)
    if mask & 2:
        done = done._replace(type=word(answer, at)[0])
        at += 4
    at += (4 if mask & 4 else 0) + (8 if mask & 8 else 0)
    return done._replace(size=hyper(answer, at)[0]) if mask & 16 else done
