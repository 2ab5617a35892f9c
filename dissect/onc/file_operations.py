"""Operations of NFS calls by the file they were for, with that file's type and size from the reply.

Versions 3 and 4.  Names and contents are in ``file_events``.
"""

from __future__ import annotations

from contextlib import suppress
from struct import error as StructError
from typing import NamedTuple

from . import nfs3
from .compound import (
    OP_ALLOCATE,
    OP_COMMIT,
    OP_DEALLOCATE,
    OP_GETATTR,
    OP_READ,
    OP_READ_PLUS,
    OP_WRITE,
    operation_names,
)
from .file_messages import FileMessages
from .filehandles import ATTRIBUTE_SIZE, ATTRIBUTE_TYPE, SETS_FILEHANDLE, attribute_at
from .programs import NFS
from .rpc_header import CallHeader
from .xdr import Data, Malformed, hyper, opaque_at, word, words2

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

_RANGES = {
    OP_COMMIT: (0, 8, False),  # RFC 8881, 18.3.1
    OP_READ: (16, 24, False),  # 18.22.1, behind the stateid
    OP_WRITE: (16, 28, False),  # 18.32.1, with stable_how between
    OP_ALLOCATE: (16, 24, True),  # RFC 7862, 15.1.1
    OP_DEALLOCATE: (16, 24, True),  # 15.4.1
    OP_READ_PLUS: (16, 24, False),  # 15.10.1
}
"""Operation -> where in its arguments the offset and the length of a range of the file stand; a length of 64 bits."""

UNSTABLE = 0
"""stable_how (RFC 1813, 3.3.7; RFC 8881, 18.32)."""


class FileOperation(NamedTuple):
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
    offset: int | None = None
    """READ, WRITE and what else names a range of the file: its begin, as the call says; None where none does."""
    count: int | None = None  # type: ignore[assignment]
    """Its bytes; of a COMMIT 0 for all that follows."""
    number: int = 0
    """Which operation of the COMPOUND it is, from 0."""


def file_operations(call: Data | None, reply: Data | None) -> tuple[FileOperation, ...]:
    """The operations of one RPC whose file is known; ``call`` and ``reply`` are whole messages, from the XID on.

    Either may end early; only what stands before its end counts.
    """
    return operations_of(FileMessages(call, reply))


def operations_of(messages: FileMessages) -> tuple[FileOperation, ...]:
    """The same of messages that are decoded."""
    header = messages.header
    if header is None or header.body < 0 or header.program != NFS:
        return ()
    with suppress(StructError, Malformed):
        if header.version == 3:
            return tuple(_version3(header, messages.call, messages.reply, messages.results))
        if header.version == 4 and header.procedure == 1:
            return tuple(_version4(messages))
    return ()


def _version3(call: CallHeader, view: memoryview, answer: memoryview, body: int) -> list[FileOperation]:
    """RFC 1813, 3.3."""
    procedure = nfs3.nfs3_procedure(call.procedure)
    if procedure is None or not procedure.arguments:
        return []
    handle, behind = opaque_at(view, call.body)
    done = FileOperation(procedure.name, handle, None)
    if 0 <= body <= len(answer) - 4:
        succeeded = word(answer, body)[0] == 0
        done = done._replace(succeeded=succeeded)
        if succeeded:
            with suppress(StructError, Malformed):
                done = _result3(done, call.procedure, procedure, answer, body + 4)
    if call.procedure in (nfs3.READ, nfs3.WRITE, nfs3.COMMIT):
        with suppress(StructError):
            done = _range(done, view, behind, behind + 8, wide=False)
    return [done]


def _result3(
    done: FileOperation, number: int, procedure: nfs3.Nfs3Procedure, answer: memoryview, at: int
) -> FileOperation:
    made, attributes = nfs3.result_object(procedure, answer, at)
    if made is not None:
        done = done._replace(handle=made)
    if attributes is not None:
        done = _fattr3(done, answer, attributes)
    if number == nfs3.WRITE:
        at = nfs3.WCC_DATA(answer, at)
        return done._replace(stable=word(answer, at + 4)[0], verifier=bytes(answer[at + 8 : at + 16]))
    if number == nfs3.COMMIT:
        at = nfs3.WCC_DATA(answer, at)
        return done._replace(verifier=bytes(answer[at : at + 8]))
    return done


def _range(done: FileOperation, view: memoryview, offset: int, count: int, wide: bool) -> FileOperation:
    """With the range whose offset and length stand at these places; ``wide``: the length has 64 bits.

    READ3args, WRITE3args and COMMIT3args have them right behind the handle (RFC 1813, 3.3.6, 3.3.7 and 3.3.21).
    """
    return done._replace(offset=hyper(view, offset)[0], count=(hyper if wide else word)(view, count)[0])


def _fattr3(done: FileOperation, answer: memoryview, at: int) -> FileOperation:
    """RFC 1813, 2.5: type, mode, nlink, uid, gid, size."""
    return done._replace(type=word(answer, at)[0], size=hyper(answer, at + nfs3.SIZE_IN_FATTR)[0])


def _version4(messages: FileMessages) -> list[FileOperation]:
    """Each operation of a COMPOUND with the filehandle it was for (RFC 8881, 16.2.3.1)."""
    view, answer = messages.call, messages.reply
    names = operation_names(messages.compound.operations)
    found: list[FileOperation] = []
    for step in messages.walk.steps:
        if step.operation in SETS_FILEHANDLE:
            continue
        # Of what is looked up by name without a result only the directory is known.
        handle = (step.current if step.succeeded else step.before).handle
        if handle is None:
            continue
        done = FileOperation(names[step.number], handle, step.succeeded, number=step.number)
        with suppress(StructError):
            if (place := _RANGES.get(step.operation)) is not None:
                offset, count, wide = place
                done = _range(done, view, step.arguments + offset, step.arguments + count, wide)
            if step.succeeded:
                done = _result4(done, step.operation, answer, step.results)
        found.append(done)
    return found


def _result4(done: FileOperation, operation: int, answer: memoryview, at: int) -> FileOperation:
    if operation == OP_GETATTR:
        kind, size = attribute_at(answer, at, ATTRIBUTE_TYPE), attribute_at(answer, at, ATTRIBUTE_SIZE)
        if kind is not None:
            done = done._replace(type=word(answer, kind)[0])
        return done if size is None else done._replace(size=hyper(answer, size)[0])
    if operation == OP_WRITE:
        _, stable = words2(answer, at)
        return done._replace(stable=stable, verifier=bytes(answer[at + 8 : at + 16]))
    if operation == OP_COMMIT:
        return done._replace(verifier=bytes(answer[at : at + 8]))
    return done
