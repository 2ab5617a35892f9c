"""Names and contents of files in NFS calls and replies: which names stand for which handles, and which bytes were read
or written.

Versions 3 and 4.  The messages are whole: chunk data stand at their places, as a TCP transport would have
carried them.  An event is what both messages agree on; a call without its reply gives the bytes it wanted written.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import error as StructError
from typing import NamedTuple

from . import nfs3
from .compound import (
    OP_CLONE,
    OP_COPY,
    OP_CREATE,
    OP_DEALLOCATE,
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
)
from .file_messages import FileMessages
from .filehandles import ATTRIBUTE_FILEHANDLE, ATTRIBUTE_SIZE, CompoundStep, FileObject, attribute_at
from .nfs4_skips import BITMAP, TO_OPEN_HOW
from .programs import MOUNT, NFS
from .rpc_header import CallHeader
from .xdr import Data, Malformed, hyper, opaque, opaque_at, word

NAMED, REMOVED, RENAMED, ROOT = "named", "removed", "renamed", "root"
READ, WRITE, HOLE, RESIZED, ALTERED = "read", "write", "hole", "resized", "altered"


MNT = 1
"""Procedure of MOUNT."""


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
    """Of a write: bytes that the reply confirms; None without a reply, 0 where it failed."""
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
    found: list[FileEvent] = []
    try:
        if mounts:
            _mount(header, view, answer, body, found)
            return FileEvents(tuple(found))
        if header.version == 3:
            _version3(header, view, answer, body, found)
            return FileEvents(tuple(found))
        if header.procedure == 1:
            return _version4(messages)
    except StructError:
        return FileEvents(tuple(found), "the bytes end too early")
    except Malformed as error:
        return FileEvents(tuple(found), str(error))
    return FileEvents()


def _mount(call: CallHeader, view: memoryview, answer: memoryview, body: int, found: list[FileEvent]) -> None:
    """MNT (RFC 1813, appendix I, 5.2.1; RFC 1094, A.5.1): handles of versions 1 and 2 have 32 bytes."""
    path = opaque_at(view, call.body)[0]
    if body >= 0 and word(answer, body)[0] == 0:
        short = bytes(answer[body + 4 : body + 36])
        if call.version < 3 and len(short) < 32:
            raise StructError
        handle = opaque_at(answer, body + 4)[0] if call.version >= 3 else short
        found.append(FileEvent(ROOT, handle, name=path))


def _version3(call: CallHeader, view: memoryview, answer: memoryview, body: int, found: list[FileEvent]) -> None:
    """RFC 1813, 3.3."""
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
        found.append(FileEvent(WRITE, handle, offset=offset, count=count, position=at + 20, done=done))
    if status != 0:
        return
    if number == nfs3.SETATTR:
        at = nfs3.MODE_TO_GID(view, at)
        if word(view, at)[0]:
            found.append(FileEvent(RESIZED, handle, offset=hyper(view, at + 4)[0]))
    elif number == nfs3.READ:
        offset = hyper(view, at)[0]
        place = nfs3.POST_OP_ATTR(answer, body)
        eof, count = bool(word(answer, place + 4)[0]), word(answer, place + 8)[0]
        found.append(FileEvent(READ, handle, offset=offset, count=count, position=place + 12, eof=eof))
    elif procedure.results in (nfs3.FOUND, nfs3.MADE):
        name = opaque_at(view, at)[0]
        made = procedure.results == nfs3.MADE and number != nfs3.CREATE  # CREATE also opens what is there
        found.append(FileEvent(NAMED, nfs3.result_object(procedure, answer, body)[0], handle, name, made=made))
    elif number in (nfs3.REMOVE, nfs3.RMDIR):
        found.append(FileEvent(REMOVED, None, handle, opaque_at(view, at)[0]))
    elif number == nfs3.RENAME:
        name, at = opaque_at(view, at)
        target, at = opaque_at(view, at)
        found.append(FileEvent(RENAMED, None, handle, name, to_directory=target, to_name=opaque_at(view, at)[0]))
    elif number == nfs3.LINK:
        directory, at = opaque_at(view, at)
        found.append(FileEvent(NAMED, handle, directory, opaque_at(view, at)[0], made=True))
    elif number in (nfs3.READDIR, nfs3.READDIRPLUS):
        plus = number == nfs3.READDIRPLUS
        _directory3(answer, nfs3.POST_OP_ATTR(answer, body) + 8, handle, plus, found)


def _directory3(view: memoryview, at: int, directory: bytes, plus: bool, found: list[FileEvent]) -> None:
    """dirlist3 or dirlistplus3 (RFC 1813, 3.3.16 and 3.3.17)."""
    while word(view, at)[0]:
        name, at = opaque_at(view, at + 12)
        at += 8
        handle = None
        if plus:
            at = nfs3.POST_OP_ATTR(view, at)
            handle = opaque_at(view, at + 4)[0] if word(view, at)[0] else None
            at = nfs3.POST_OP_FH(view, at)
        found.append(FileEvent(NAMED, handle, directory, name))


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


def _version4(messages: FileMessages) -> FileEvents:
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
    events = [one.resolve() for one in pending]
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
        place = attribute_at(answer, at, ATTRIBUTE_FILEHANDLE)
        handle = None if place is None else opaque_at(answer, place)[0]
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


def _altered(step: CompoundStep, call: memoryview, place: int, pending: _Pending) -> None:
    """``place``: of offset and length in the call."""
    offset, count = hyper(call, place)[0], hyper(call, place + 8)[0]
    pending.append(_PendingEvent(FileEvent(ALTERED, offset=offset, count=count), step.current))


def _deallocate(step: CompoundStep, call: memoryview, _: memoryview, pending: _Pending) -> None:
    _altered(step, call, step.arguments + 16, pending)


def _copy(step: CompoundStep, call: memoryview, _: memoryview, pending: _Pending) -> None:
    """COPY and CLONE: two stateids and the source's offset stand before the destination's offset and the count."""
    _altered(step, call, step.arguments + 40, pending)


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
    OP_COPY: _copy,
    OP_DEALLOCATE: _deallocate,
    OP_READ_PLUS: _read_plus,
    OP_WRITE_SAME: _write_same,
    OP_CLONE: _copy,
}
"""Operations that succeeded and name or change something; WRITE counts without success, too."""
