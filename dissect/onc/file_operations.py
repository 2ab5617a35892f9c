"""Operations of NFS calls by the file they were for, with its type and size from the reply; names and contents in them;
and the offsets of all that in messages with the same layout. Versions 3 and 4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cached_property, partial
from itertools import repeat
from struct import error as StructError
from typing import Any, TypeVar

import numpy as np

from ..arrays import Bytes, Int64s, bytes_at, gathered, words_at
from ..named_tuple import NamedTuple
from ..onc import nfs3
from .compound import (
    ATTRIBUTE_FILEHANDLE,
    ATTRIBUTE_SIZE,
    ATTRIBUTE_TYPE,
    BITMAP,
    OP_ALLOCATE,
    OP_CLONE,
    OP_COMMIT,
    OP_COPY,
    OP_CREATE,
    OP_DEALLOCATE,
    OP_GETATTR,
    OP_LINK,
    OP_LOOKUP,
    OP_LOOKUPP,
    OP_OPEN,
    OP_PUTROOTFH,
    OP_READ,
    OP_READ_PLUS,
    OP_READDIR,
    OP_REMOVE,
    OP_RENAME,
    OP_SETATTR,
    OP_WRITE,
    OP_WRITE_SAME,
    SETS_FILEHANDLE,
    TO_OPEN_HOW,
    Compound,
    CompoundReply,
    CompoundStep,
    CompoundWalk,
    FileObject,
    attribute_at,
    compound_call,
    compound_reply,
    operation_names,
    walk_filehandles,
)
from .rpc_header import MOUNT, NFS, CallHeader, call_header, results_at
from .shapes.decode_cache import Layout
from .xdr import Data, Malformed, hyper, opaque, opaque_at, word, words2


class FileMessages:
    """``call`` and ``reply`` are RPC messages from the XID on, either of which may end early."""

    def __init__(self, call: Data | None, reply: Data | None) -> None:
        self.header: CallHeader | None = None if call is None else call_header(call, 0, len(call))
        """None where there is no call, or what is there is none."""
        self.call = memoryview(b"" if call is None else call)
        self.reply = memoryview(b"" if reply is None else reply)
        self._replied = reply is not None

    @cached_property
    def results(self) -> int:
        """Offset of the results in ``reply``; -1 where there are none."""
        assert self.header is not None
        return results_at(self.reply, self.header.gss) if self._replied else -1

    @cached_property
    def compound(self) -> Compound:
        """The arguments of COMPOUND."""
        assert self.header is not None
        return compound_call(self.call, self.header.body, len(self.call))

    @cached_property
    def compound_results(self) -> CompoundReply | None:
        """Its results; None without any."""
        return compound_reply(self.reply, self.results, len(self.reply)) if self.results >= 0 else None

    @cached_property
    def walk(self) -> CompoundWalk:
        """Its operations with the files that they were for."""
        return walk_filehandles(self.compound, self.call, self.compound_results, self.reply)


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


def operations_of(messages: FileMessages) -> tuple[FileOperation, ...]:
    """The operations of one RPC whose file is known; messages may end early, and what stands before counts."""
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
    """What a call of NFSv3 did with a file (RFC 1813, 3.3)."""
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
        # RFC 1813, 2.5: type, mode, nlink, uid, gid, size.
        size = hyper(answer, attributes + nfs3.SIZE_IN_FATTR)[0]
        done = done._replace(type=word(answer, attributes)[0], size=size)
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


def _version4(messages: FileMessages) -> list[FileOperation]:
    """Each operation of a COMPOUND with the filehandle it was for (RFC 8881, 16.2.3.1)."""
    view, answer = messages.call, messages.reply
    names = operation_names(messages.compound.operations)
    operations: list[FileOperation] = []
    for step in messages.walk.steps:
        if step.operation in SETS_FILEHANDLE:
            continue
        # Of what is looked up by name without a result only the directory is known.
        handle = (step.current if step.succeeded else step.before).handle
        if handle is None:
            continue
        done = FileOperation(names[step.number], handle, step.succeeded, number=step.number)
        with suppress(StructError):
            if (span := _RANGES.get(step.operation)) is not None:
                offset, count, wide = span
                done = _range(done, view, step.arguments + offset, step.arguments + count, wide)
            if step.succeeded:
                done = _result4(done, step.operation, answer, step.results)
        operations.append(done)
    return operations


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


NAMED, REMOVED, RENAMED, ROOT = "named", "removed", "renamed", "root"
READ, WRITE, HOLE, RESIZED, ALTERED = "read", "write", "hole", "resized", "altered"


MNT = 1
"""Number of MOUNT's procedure that gives a file handle (RFC 1813, 5.2.1)."""


class FileEvent(NamedTuple):
    """What one operation did to a name or to contents.

    =========  ==========================================================================================
    named      ``directory`` holds ``name``; it is ``handle`` (None: not in the reply)
    removed    ``directory`` no longer holds ``name``
    renamed    ``name`` in ``directory`` became ``to_name`` in ``to_directory``
               The name '..' is the directory above.
    root       ``handle`` is the root of the server's (pseudo) file system, or what it exports as ``name``
    read       ``count`` bytes at ``offset`` of ``handle`` are in the reply, at ``position`` of the message
    write      ``count`` bytes at ``offset`` are in the call, at ``position``; ``done`` of them were written
    hole       READ_PLUS: ``count`` zero bytes at ``offset`` that did not cross the wire
    resized    the file ends at ``offset``
    altered    ``count`` bytes at ``offset`` changed without crossing the wire (0: to the end)
    =========  ==========================================================================================
    """

    kind: str
    handle: bytes | None = None
    directory: bytes | None = None
    name: bytes | None = None
    offset: int = 0
    count: int = 0  # type: ignore[assignment]
    position: int = -1
    done: int | None = None
    """For a write, bytes that the reply confirms; None without a reply, 0 if it failed."""
    eof: bool = False
    to_directory: bytes | None = None
    to_name: bytes | None = None
    made: bool = False
    """The name was made by this call."""


class FileEvents(NamedTuple):
    events: tuple[FileEvent, ...] = ()
    problem: str = ""
    """Why there may be more events than these, '' where there are not."""


def file_events(call: Data | None, reply: Data | None) -> FileEvents:
    """The events of one RPC; ``call`` and ``reply`` are whole RPC messages, from the XID on."""
    return FileEvents((), "no call") if call is None else events_of(FileMessages(call, reply))


def events_of(messages: FileMessages) -> FileEvents:
    """The events of one RPC, whose call is there."""
    header = messages.header
    if header is None or header.body < 0:
        return FileEvents((), header.reason if header else "no RPC call")
    mounts = header.program == MOUNT and header.procedure == MNT
    if not mounts and (header.program != NFS or header.version not in (3, 4)):
        return FileEvents()
    view, answer, body = messages.call, messages.reply, messages.results
    events: list[FileEvent] = []
    try:
        if mounts:
            _mount(header, view, answer, body, events)
            return FileEvents(tuple(events))
        if header.version == 3:
            _events3(header, view, answer, body, events)
            return FileEvents(tuple(events))
        if header.procedure == 1:
            return _events4(messages)
    except StructError:
        return FileEvents(tuple(events), "the bytes end too early")
    except Malformed as error:
        return FileEvents(tuple(events), str(error))
    return FileEvents()


def _mount(call: CallHeader, view: memoryview, answer: memoryview, body: int, events: list[FileEvent]) -> None:
    """MNT (RFC 1813, appendix I, 5.2.1; RFC 1094, A.5.1): handles of versions 1 and 2 have 32 bytes."""
    path = opaque_at(view, call.body)[0]
    if body >= 0 and word(answer, body)[0] == 0:
        short = bytes(answer[body + 4 : body + 36])
        if call.version < 3 and len(short) < 32:
            raise StructError
        handle = opaque_at(answer, body + 4)[0] if call.version >= 3 else short
        events.append(FileEvent(ROOT, handle, name=path))


def _events3(call: CallHeader, view: memoryview, answer: memoryview, body: int, events: list[FileEvent]) -> None:
    """What a call of NFSv3 tells of files (RFC 1813, 3.3)."""
    number = call.procedure
    procedure = nfs3.nfs3_procedure(number)
    if procedure is None or not procedure.arguments:
        return
    handle, at = opaque_at(view, call.body)
    status = word(answer, body)[0] if body >= 0 else None
    body += 4
    if number == nfs3.WRITE:
        offset, count = hyper(view, at)[0], word(view, at + 16)[0]
        done = None if status is None else 0
        if status == 0:
            done = word(answer, nfs3.WCC_DATA(answer, body))[0]
        events.append(FileEvent(WRITE, handle, offset=offset, count=count, position=at + 20, done=done))
    if status != 0:
        return
    if number == nfs3.SETATTR:
        at = nfs3.MODE_TO_GID(view, at)
        if word(view, at)[0]:
            events.append(FileEvent(RESIZED, handle, offset=hyper(view, at + 4)[0]))
    elif number == nfs3.READ:
        offset = hyper(view, at)[0]
        place = nfs3.POST_OP_ATTR(answer, body)
        eof, count = bool(word(answer, place + 4)[0]), word(answer, place + 8)[0]
        events.append(FileEvent(READ, handle, offset=offset, count=count, position=place + 12, eof=eof))
    elif procedure.results in (nfs3.FOUND, nfs3.MADE):
        name = opaque_at(view, at)[0]
        made = procedure.results == nfs3.MADE and number != nfs3.CREATE  # CREATE also opens what is there
        events.append(FileEvent(NAMED, nfs3.result_object(procedure, answer, body)[0], handle, name, made=made))
    elif number in (nfs3.REMOVE, nfs3.RMDIR):
        events.append(FileEvent(REMOVED, None, handle, opaque_at(view, at)[0]))
    elif number == nfs3.RENAME:
        name, at = opaque_at(view, at)
        target, at = opaque_at(view, at)
        events.append(FileEvent(RENAMED, None, handle, name, to_directory=target, to_name=opaque_at(view, at)[0]))
    elif number == nfs3.LINK:
        directory, at = opaque_at(view, at)
        events.append(FileEvent(NAMED, handle, directory, opaque_at(view, at)[0], made=True))
    elif number in (nfs3.READDIR, nfs3.READDIRPLUS):
        plus = number == nfs3.READDIRPLUS
        _directory3(answer, nfs3.POST_OP_ATTR(answer, body) + 8, handle, plus, events)


def _directory3(view: memoryview, at: int, directory: bytes, plus: bool, events: list[FileEvent]) -> None:
    """dirlist3 or dirlistplus3 (RFC 1813, 3.3.16 and 3.3.17)."""
    while word(view, at)[0]:
        name, at = opaque_at(view, at + 12)
        at += 8
        handle = None
        if plus:
            at = nfs3.POST_OP_ATTR(view, at)
            handle = opaque_at(view, at + 4)[0] if word(view, at)[0] else None
            at = nfs3.POST_OP_FH(view, at)
        events.append(FileEvent(NAMED, handle, directory, name))


class _PendingEvent(NamedTuple):
    """An event whose objects may get their handles from a later GETFH of the same COMPOUND."""

    event: FileEvent
    handle: FileObject | None = None
    directory: FileObject | None = None
    to_directory: FileObject | None = None

    def resolve(self) -> FileEvent:
        return self.event._replace(
            handle=self.handle.handle if self.handle else self.event.handle,
            directory=self.directory.handle if self.directory else None,
            to_directory=self.to_directory.handle if self.to_directory else None,
        )


_Pending = list[_PendingEvent]


def _events4(messages: FileMessages) -> FileEvents:
    """RFC 8881, 16.2.3.1: each operation with the current and the saved filehandle it was for."""
    view, answer, reply, walk = messages.call, messages.reply, messages.compound_results, messages.walk
    pending: _Pending = []
    problem = walk.problem
    try:
        for step in walk.steps:
            if reply is not None and step.results < 0:
                break
            if step.operation == OP_WRITE:
                _write(step, view, answer, pending)
            elif step.succeeded and step.operation in _EVENTS:
                _EVENTS[step.operation](step, view, answer, pending)
    except StructError:
        problem = problem or "the bytes end too early"
    except Malformed as error:
        problem = problem or str(error)
    events = [event.resolve() for event in pending]
    return FileEvents(tuple(event for event in events if event.kind != ROOT or event.handle), problem)


def _write(step: CompoundStep, call: memoryview, answer: memoryview, pending: _Pending) -> None:
    at = step.arguments
    offset, count = hyper(call, at + 16)[0], word(call, at + 28)[0]
    done = None if step.succeeded is None else word(answer, step.results)[0] if step.succeeded else 0
    event = FileEvent(WRITE, offset=offset, count=count, position=at + 32, done=done)
    pending.append(_PendingEvent(event, step.current))


def _root(step: CompoundStep, _: memoryview, __: memoryview, pending: _Pending) -> None:
    pending.append(_PendingEvent(FileEvent(ROOT), step.current))


def _named(step: CompoundStep, _: memoryview, __: memoryview, pending: _Pending) -> None:
    """LOOKUP, LOOKUPP, CREATE and OPEN."""
    if step.name is not None:
        event = FileEvent(NAMED, name=step.name, made=step.operation == OP_CREATE)
        pending.append(_PendingEvent(event, step.current, step.before))


def _above(step: CompoundStep, _: memoryview, __: memoryview, pending: _Pending) -> None:
    pending.append(_PendingEvent(FileEvent(NAMED, name=b".."), step.current, step.before))


def _open(step: CompoundStep, call: memoryview, answer: memoryview, pending: _Pending) -> None:
    at = TO_OPEN_HOW(call, step.arguments)
    opentype, mode = word(call, at)[0], word(call, at + 4)[0]
    size = attribute_at(call, at + 8, ATTRIBUTE_SIZE) if opentype == 1 and mode in (0, 1) else None
    _named(step, call, answer, pending)
    if size is not None:
        pending.append(_PendingEvent(FileEvent(RESIZED, offset=hyper(call, size)[0]), step.current))


def _setattr(step: CompoundStep, call: memoryview, _: memoryview, pending: _Pending) -> None:
    size = attribute_at(call, step.arguments + 16, ATTRIBUTE_SIZE)
    if size is not None:
        pending.append(_PendingEvent(FileEvent(RESIZED, offset=hyper(call, size)[0]), step.current))


def _read(step: CompoundStep, call: memoryview, answer: memoryview, pending: _Pending) -> None:
    offset = hyper(call, step.arguments + 16)[0]
    eof, count = bool(word(answer, step.results)[0]), word(answer, step.results + 4)[0]
    event = FileEvent(READ, offset=offset, count=count, position=step.results + 8, eof=eof)
    pending.append(_PendingEvent(event, step.current))


def _read_plus(step: CompoundStep, call: memoryview, answer: memoryview, pending: _Pending) -> None:
    at = step.results + 8
    for _ in range(word(answer, step.results + 4)[0]):
        content, offset = word(answer, at)[0], hyper(answer, at + 4)[0]
        if content == 0:
            event = FileEvent(READ, offset=offset, count=word(answer, at + 12)[0], position=at + 16)
            at = opaque(answer, at + 12)
        elif content == 1:
            event = FileEvent(HOLE, offset=offset, count=hyper(answer, at + 12)[0])
            at += 20
        else:
            raise Malformed(f"no arm {content} in the union")
        pending.append(_PendingEvent(event, step.current))


def _readdir(step: CompoundStep, _: memoryview, answer: memoryview, pending: _Pending) -> None:
    at = step.results + 8
    while word(answer, at)[0]:
        name, at = opaque_at(answer, at + 12)
        handle_at = attribute_at(answer, at, ATTRIBUTE_FILEHANDLE)
        handle = None if handle_at is None else opaque_at(answer, handle_at)[0]
        pending.append(_PendingEvent(FileEvent(NAMED, handle, name=name), None, step.current))
        at = opaque(answer, BITMAP(answer, at))


def _remove(step: CompoundStep, call: memoryview, _: memoryview, pending: _Pending) -> None:
    name = opaque_at(call, step.arguments)[0]
    pending.append(_PendingEvent(FileEvent(REMOVED, name=name), None, step.current))


def _rename(step: CompoundStep, call: memoryview, _: memoryview, pending: _Pending) -> None:
    old, at = opaque_at(call, step.arguments)
    event = FileEvent(RENAMED, name=old, to_name=opaque_at(call, at)[0])
    pending.append(_PendingEvent(event, None, step.saved, step.current))


def _link(step: CompoundStep, call: memoryview, _: memoryview, pending: _Pending) -> None:
    name = opaque_at(call, step.arguments)[0]
    pending.append(_PendingEvent(FileEvent(NAMED, name=name, made=True), step.saved, step.current))


def _altered(behind: int, step: CompoundStep, call: memoryview, _: memoryview, pending: _Pending) -> None:
    """``behind``: bytes of the arguments before offset and length."""
    at = step.arguments + behind
    event = FileEvent(ALTERED, offset=hyper(call, at)[0], count=hyper(call, at + 8)[0])
    pending.append(_PendingEvent(event, step.current))


def _write_same(step: CompoundStep, call: memoryview, _: memoryview, pending: _Pending) -> None:
    """RFC 7862, 15.12: stateid, stable, offset, block size, block count."""
    at = step.arguments
    offset, size, count = hyper(call, at + 20)[0], hyper(call, at + 28)[0], hyper(call, at + 36)[0]
    pending.append(_PendingEvent(FileEvent(ALTERED, offset=offset, count=size * count), step.current))


_EVENTS: dict[int, Callable[[CompoundStep, memoryview, memoryview, _Pending], None]] = {
    OP_CREATE: _named,
    OP_LINK: _link,
    OP_LOOKUP: _named,
    OP_LOOKUPP: _above,
    OP_OPEN: _open,
    OP_PUTROOTFH: _root,
    OP_READ: _read,
    OP_READDIR: _readdir,
    OP_REMOVE: _remove,
    OP_RENAME: _rename,
    OP_SETATTR: _setattr,
    OP_COPY: partial(_altered, 40),  # Behind two stateids and the offset in the source, as of CLONE.
    OP_DEALLOCATE: partial(_altered, 16),
    OP_READ_PLUS: _read_plus,
    OP_WRITE_SAME: _write_same,
    OP_CLONE: partial(_altered, 40),
}
"""Operations that succeeded and name or change something; WRITE counts without success, too."""


MAX_LENGTH = 1 << 16
"""Bytes of a message in which two bytes can hold an offset."""


class Constant(NamedTuple):
    """A value that all have."""

    value: Any


class Varying(NamedTuple):
    """A value that stands at an offset from the first byte of the arguments, or of the results."""

    of_reply: bool
    at: int
    size: int
    number: bool
    """An unsigned integer; else bytes."""

    def column(self, data: Bytes, arguments: Int64s, results: Int64s) -> Any:
        """The values of many: an array of numbers, or a list of bytes."""
        places = (results if self.of_reply else arguments) + self.at
        if not self.number:
            return bytes_at(data, self.size, places)
        return words_at(data, places) if self.size == 4 else gathered(data, 8, places).view(">u8")[:, 0]


Source = Constant | Varying


class FileLayout(NamedTuple):
    """Where the fields of each event and operation come from."""

    events: tuple[tuple[Source, ...], ...]
    operations: tuple[tuple[Source, ...], ...]
    moves_data: bool
    """Contents of files are in the messages."""
    problem: str
    """For truncated messages, why there may be more events."""

    def events_in(self, data: Bytes, arguments: Int64s, results: Int64s) -> list[list[FileEvent]]:
        """All events of messages whose arguments and results begin at these offsets in ``data``, in a list for each
        event of the layout."""
        return _columns(_EVENT, self.events, data, arguments, results)

    def operations_in(self, data: Bytes, arguments: Int64s, results: Int64s) -> list[list[FileOperation]]:
        """All operations of messages whose arguments and results begin at these offsets in ``data``, in a list for each
        operation."""
        return _columns(_OPERATION, self.operations, data, arguments, results)


_EVENT, _OPERATION = partial(tuple.__new__, FileEvent), partial(tuple.__new__, FileOperation)
Row = TypeVar("Row")


def _columns(
    make: Callable[[tuple[Any, ...]], Row],
    rows: Iterable[tuple[Source, ...]],
    data: Bytes,
    arguments: Int64s,
    results: Int64s,
) -> list[list[Row]]:
    known: dict[Source, Iterable[Any]] = {}

    def values(source: Source) -> Iterable[Any]:
        if isinstance(source, Constant):
            return repeat(source.value, len(arguments))
        if source not in known:
            column = source.column(data, arguments, results)
            known[source] = column.tolist() if source.number else column
        return known[source]

    return [[*map(make, zip(*map(values, sources), strict=True))] for sources in rows]


def file_layout(
    call: Bytes, reply: Bytes, arguments: int, results: int, asked: Layout, answered: Layout, truncated: bool = False
) -> FileLayout | None:
    """The layout that messages like these two share, from the XID on.

    ``arguments`` and ``results``: where these begin; ``asked`` and ``answered``: their layouts.  ``truncated``: one of
    the messages is, and all are at the same place.

    None where something depends on more.
    """
    if max(len(call), len(reply)) > MAX_LENGTH:
        return None
    decoded = _decoded(call, reply)
    problem = decoded[0].problem
    moves_data = any(event.kind in (READ, WRITE) for event in decoded[0].events)
    if truncated:
        # Of contents there is more to say: which of their bytes are missing, and whether a WRITE has a result.
        if moves_data or any(event.kind == WRITE for event in file_events(call.data, None).events):
            return None
    elif problem:
        return None
    marked = [
        _decoded(_marked(call, arguments, asked, step, 0), _marked(reply, results, answered, step, 1))
        for step in range(3)
    ]
    if any(events.problem != problem for events, _ in marked):
        return None
    starts = arguments, results
    events = _all_sources([events.events for events, _ in (decoded, *marked)], starts)
    operations = _all_sources([operations for _, operations in (decoded, *marked)], starts)
    if events is None or operations is None:
        return None
    made = FileLayout(events, operations, moves_data, problem)
    both = np.concatenate((call, reply))
    places = np.array([arguments]), np.array([len(call) + results])
    again = (
        [column for (column,) in made.events_in(both, *places)],
        [column for (column,) in made.operations_in(both, *places)],
    )
    return made if again == ([*decoded[0].events], [*decoded[1]]) else None


def _decoded(call: Bytes, reply: Bytes) -> tuple[FileEvents, tuple[FileOperation, ...]]:
    messages = FileMessages(call.data, reply.data)
    return events_of(messages), operations_of(messages)


def _marked(message: Bytes, start: int, layout: Layout, mark: int, side: int) -> Bytes:
    """The message, in which what decides nothing is the low byte of its offset, the high byte, or the side."""
    places = np.arange(len(message))
    marked = np.array([places & 0xFF, places >> 8, np.full(len(message), side)][mark], np.uint8)
    marked[:start] = message[:start]
    for at in layout.deciding:
        marked[start + at : start + at + 4] = message[start + at : start + at + 4]
    return marked


def _all_sources(
    decoded: Sequence[Sequence[tuple[Any, ...]]], starts: tuple[int, int]
) -> tuple[tuple[Source, ...], ...] | None:
    """``decoded``: of the message itself, and of the three that are marked."""
    if len({len(events) for events in decoded}) > 1:
        return None
    sources_of_all = []
    for alike in zip(*decoded, strict=True):
        sources = [_source(values, starts) for values in zip(*alike, strict=True)]
        if None in sources:
            return None
        sources_of_all.append(tuple(source for source in sources if source is not None))
    return tuple(sources_of_all)


def _source(values: tuple[Any, ...], starts: tuple[int, int]) -> Source | None:
    value, low, high, side = values
    if value == low == high == side:
        return Constant(value)
    marks = (low, high, side)
    if all(isinstance(mark, bytes) for mark in marks) and len({len(value), *map(len, marks)}) == 1:
        return _varying(marks, starts, number=False)
    if all(type(mark) is int for mark in marks):
        for size in (4, 8):
            if max(marks) >> 8 * size == 0:
                varying = _varying([mark.to_bytes(size) for mark in marks], starts, number=True)
                if varying is not None:
                    return varying
    return None


def _varying(marks: Sequence[bytes], starts: tuple[int, int], number: bool) -> Varying | None:
    low, high, side = marks
    offsets = [first | second << 8 for first, second in zip(low, high, strict=True)]
    first = offsets[0]
    if offsets != [*range(first, first + len(offsets))] or len(set(side)) > 1 or side[0] > 1:
        return None
    at = first - starts[side[0]]
    return Varying(side[0] == 1, at, len(low), number) if at >= 0 else None
