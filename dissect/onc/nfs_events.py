"""What an NFS call and its reply tell about files: handles and their names, and which bytes were read or
written.

Versions 3 and 4.  The messages are whole: chunk data stand at their places, as a TCP transport would have
carried them.  Only what both messages say is told; a call without its reply tells what it asked to write.
"""

from __future__ import annotations

from struct import error as StructError
from typing import NamedTuple

from . import compound as nfs4
from .header import CallHeader, GssCredential, call_header, reply_header
from .nfs4_args import ACE, CREATE_TYPE, OPEN_HEAD, OPEN_HOW
from .programs import NFS
from .xdr import Data, Malformed, array, as_skip, hyper, opaque, struct, union, word

NAMED, REMOVED, RENAMED, ROOT = "named", "removed", "renamed", "root"
READ, WRITE, HOLE, RESIZED, ALTERED = "read", "write", "hole", "resized", "altered"


class Event(NamedTuple):
    """One fact.

    =========  ==========================================================================================
    named      ``directory`` holds ``name``; it is ``handle`` (None: the reply did not say)
    removed    ``directory`` no longer holds ``name``
    renamed    ``name`` in ``directory`` became ``to_name`` in ``to_directory``
    root       ``handle`` is the root of the server's (pseudo) file system
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
    """Of a write: bytes the reply confirms; None without a reply, 0 where it failed."""
    eof: bool = False
    to_directory: bytes | None = None
    to_name: bytes | None = None


class Events(NamedTuple):
    events: tuple[Event, ...] = ()
    problem: str = ""
    """Why there may be more than is told, '' where there is not."""


_POST_OP_ATTR = union({1: 84, 0: 0})  # RFC 1813, 2.5
_WCC_DATA = as_skip(struct(union({1: 24, 0: 0}), _POST_OP_ATTR))
_MODE_TO_GID = as_skip(struct(*[union({1: 4, 0: 0})] * 3))
_BITMAP = array(4)

# RFC 8881, 5.8: attributes 0 to 18, which stand before the file handle (19) in a fattr4
_ATTRIBUTES = [as_skip(shape) for shape in (_BITMAP, 4, 4, 8, 8, 4, 4, 4, 16, 4, 4, 4, array(ACE), 4, 4, 4, 4, 4, 4)]
_SIZE, _FILEHANDLE = 4, 19


def nfs_events(call: Data | None, reply: Data | None) -> Events:
    """The facts of one RPC; ``call`` and ``reply`` are whole RPC messages, from the XID on."""
    if call is None:
        return Events((), "no call")
    header = call_header(call, 0, len(call))
    if header is None or header.body < 0:
        return Events((), header.reason if header else "no RPC call")
    if header.program != NFS or header.version not in (3, 4):
        return Events()
    body = _results(reply, header.gss)
    view = memoryview(call)
    answer = memoryview(reply) if reply is not None else memoryview(b"")
    found: list[Event] = []
    try:
        if header.version == 3:
            _version3(header, view, answer, body, found)
            return Events(tuple(found))
        if header.procedure == 1:
            return _version4(header.body, view, answer, body)
    except StructError:
        return Events(tuple(found), "the bytes end too early")
    except Malformed as error:
        return Events(tuple(found), str(error))
    return Events()


def _results(reply: Data | None, gss: GssCredential | None) -> int:
    header = reply_header(reply, 0, len(reply), gss) if reply is not None else None
    return header.body if header is not None else -1


def _bytes(view: memoryview, at: int) -> tuple[bytes, int]:
    """A variable-length opaque, and where it ends."""
    end = at + 4 + word(view, at)[0]
    if end > len(view):
        raise StructError
    return bytes(view[at + 4 : end]), at + 4 + (end - at - 4 + 3 & -4)


def _version3(call: CallHeader, view: memoryview, answer: memoryview, body: int, found: list[Event]) -> None:
    """RFC 1813, 3.3."""
    procedure = call.procedure
    if not 0 < procedure < 22:
        return
    handle, at = _bytes(view, call.body)
    status = word(answer, body)[0] if body >= 0 else None
    body += 4
    if procedure == 7:
        offset, count = hyper(view, at)[0], word(view, at + 16)[0]
        done = None if status is None else 0
        if status == 0:
            done = word(answer, _WCC_DATA(answer, body))[0]
        found.append(Event(WRITE, handle, offset=offset, count=count, position=at + 20, done=done))
    if status != 0:
        return
    if procedure == 2:
        at = _MODE_TO_GID(view, at)
        if word(view, at)[0]:
            found.append(Event(RESIZED, handle, offset=hyper(view, at + 4)[0]))
    elif procedure == 3:
        found.append(Event(NAMED, _bytes(answer, body)[0], handle, _bytes(view, at)[0]))
    elif procedure == 6:
        offset = hyper(view, at)[0]
        place = _POST_OP_ATTR(answer, body)
        eof, count = bool(word(answer, place + 4)[0]), word(answer, place + 8)[0]
        found.append(Event(READ, handle, offset=offset, count=count, position=place + 12, eof=eof))
    elif procedure in (8, 9, 10, 11):
        made = _bytes(answer, body + 4)[0] if word(answer, body)[0] else None
        found.append(Event(NAMED, made, handle, _bytes(view, at)[0]))
    elif procedure in (12, 13):
        found.append(Event(REMOVED, None, handle, _bytes(view, at)[0]))
    elif procedure == 14:
        name, at = _bytes(view, at)
        target, at = _bytes(view, at)
        found.append(Event(RENAMED, None, handle, name, to_directory=target, to_name=_bytes(view, at)[0]))
    elif procedure == 15:
        directory, at = _bytes(view, at)
        found.append(Event(NAMED, handle, directory, _bytes(view, at)[0]))
    elif procedure in (16, 17):
        _directory3(answer, _POST_OP_ATTR(answer, body) + 8, handle, procedure == 17, found)


def _directory3(view: memoryview, at: int, directory: bytes, plus: bool, found: list[Event]) -> None:
    """dirlist3 or dirlistplus3 (RFC 1813, 3.3.16 and 3.3.17)."""
    while word(view, at)[0]:
        name, at = _bytes(view, at + 12)
        at += 8
        handle = None
        if plus:
            at = _POST_OP_ATTR(view, at)
            if word(view, at)[0]:
                handle, at = _bytes(view, at + 4)
            else:
                at += 4
        found.append(Event(NAMED, handle, directory, name))


class _Object:
    """What the current or saved filehandle stands for; a later GETFH may tell its handle."""

    __slots__ = ("handle",)

    def __init__(self, handle: bytes | None = None) -> None:
        self.handle = handle


class _Walk:
    """One COMPOUND, operation by operation (RFC 8881, 16.2.3.1): tracks the current and the saved
    filehandle."""

    def __init__(self, call: memoryview, answer: memoryview) -> None:
        self.call = call
        self.answer = answer
        self.current = _Object()
        self.saved = _Object()
        self.found: list[tuple[Event, _Object | None, _Object | None, _Object | None]] = []

    def tell(
        self,
        event: Event,
        handle: _Object | None = None,
        directory: _Object | None = None,
        to_directory: _Object | None = None,
    ) -> None:
        self.found.append((event, handle, directory, to_directory))

    def events(self) -> tuple[Event, ...]:
        return tuple(
            event._replace(
                handle=handle.handle if handle else event.handle,
                directory=directory.handle if directory else None,
                to_directory=to_directory.handle if to_directory else None,
            )
            for event, handle, directory, to_directory in self.found
            if event.kind != ROOT or (handle and handle.handle)
        )

    def step(self, op: int, at: int, result: int | None) -> None:
        """One operation: arguments at ``at``; its result's body at ``result``, None where it did not
        succeed."""
        if op == 38:
            self.write(at, result)
        elif result is None:
            return
        elif op in _CURRENT:
            _CURRENT[op](self, at, result)

    def write(self, at: int, result: int | None, answered: bool = True) -> None:
        offset, count = hyper(self.call, at + 16)[0], word(self.call, at + 28)[0]
        done = (0 if answered else None) if result is None else word(self.answer, result)[0]
        self.tell(Event(WRITE, offset=offset, count=count, position=at + 32, done=done), self.current)

    def putfh(self, at: int, _: int) -> None:
        self.current = _Object(_bytes(self.call, at)[0])

    def putrootfh(self, _: int, __: int) -> None:
        self.current = _Object()
        self.tell(Event(ROOT), self.current)

    def elsewhere(self, _: int, __: int) -> None:
        """LOOKUPP, PUTPUBFH, OPENATTR: an object that no name is known for."""
        self.current = _Object()

    def savefh(self, _: int, __: int) -> None:
        self.saved = self.current

    def restorefh(self, _: int, __: int) -> None:
        self.current = self.saved

    def getfh(self, _: int, result: int) -> None:
        self.current.handle = _bytes(self.answer, result)[0]

    def getattr(self, _: int, result: int) -> None:
        handle = _attribute(self.answer, result, _FILEHANDLE)
        if handle is not None:
            self.current.handle = _bytes(self.answer, handle)[0]

    def name(self, name: bytes) -> None:
        made = _Object()
        self.tell(Event(NAMED, name=name), made, self.current)
        self.current = made

    def lookup(self, at: int, _: int) -> None:
        self.name(_bytes(self.call, at)[0])

    def create(self, at: int, _: int) -> None:
        self.name(_bytes(self.call, CREATE_TYPE(self.call, at))[0])

    def open(self, at: int, _: int) -> None:
        at = as_skip(OPEN_HEAD)(self.call, at)
        opentype, mode = word(self.call, at)[0], word(self.call, at + 4)[0]
        size = _attribute(self.call, at + 8, _SIZE) if opentype == 1 and mode in (0, 1) else None
        at = OPEN_HOW(self.call, at)
        claim = word(self.call, at)[0]
        if claim in (0, 3):
            self.name(_bytes(self.call, at + 4)[0])
        elif claim == 2:
            self.name(_bytes(self.call, at + 20)[0])
        if size is not None:
            self.tell(Event(RESIZED, offset=hyper(self.call, size)[0]), self.current)

    def setattr(self, at: int, _: int) -> None:
        size = _attribute(self.call, at + 16, _SIZE)
        if size is not None:
            self.tell(Event(RESIZED, offset=hyper(self.call, size)[0]), self.current)

    def read(self, at: int, result: int) -> None:
        offset = hyper(self.call, at + 16)[0]
        eof, count = bool(word(self.answer, result)[0]), word(self.answer, result + 4)[0]
        self.tell(Event(READ, offset=offset, count=count, position=result + 8, eof=eof), self.current)

    def read_plus(self, _: int, result: int) -> None:
        view, at = self.answer, result + 8
        for _ in range(word(view, result + 4)[0]):
            kind, offset = word(view, at)[0], hyper(view, at + 4)[0]
            if kind == 0:
                count = word(view, at + 12)[0]
                self.tell(Event(READ, offset=offset, count=count, position=at + 16), self.current)
                at = opaque(view, at + 12)
            elif kind == 1:
                self.tell(Event(HOLE, offset=offset, count=hyper(view, at + 12)[0]), self.current)
                at += 20
            else:
                raise Malformed(f"no arm {kind} in the union")

    def readdir(self, _: int, result: int) -> None:
        view, at = self.answer, result + 8
        while word(view, at)[0]:
            name, at = _bytes(view, at + 12)
            place = _attribute(view, at, _FILEHANDLE)
            handle = None if place is None else _bytes(view, place)[0]
            self.tell(Event(NAMED, handle, name=name), None, self.current)
            at = opaque(view, _BITMAP(view, at))

    def remove(self, at: int, _: int) -> None:
        self.tell(Event(REMOVED, name=_bytes(self.call, at)[0]), None, self.current)

    def rename(self, at: int, _: int) -> None:
        old, at = _bytes(self.call, at)
        event = Event(RENAMED, name=old, to_name=_bytes(self.call, at)[0])
        self.tell(event, None, self.saved, self.current)

    def link(self, at: int, _: int) -> None:
        self.tell(Event(NAMED, name=_bytes(self.call, at)[0]), self.saved, self.current)

    def alter(self, place: int) -> None:
        """``place``: of offset and length in the arguments."""
        offset, count = hyper(self.call, place)[0], hyper(self.call, place + 8)[0]
        self.tell(Event(ALTERED, offset=offset, count=count), self.current)

    def deallocate(self, at: int, _: int) -> None:
        self.alter(at + 16)

    def copy(self, at: int, _: int) -> None:
        self.alter(at + 40)  # COPY and CLONE: two stateids, source offset, destination offset, count

    def write_same(self, at: int, _: int) -> None:
        offset = hyper(self.call, at + 20)[0]
        size, count = hyper(self.call, at + 28)[0], hyper(self.call, at + 36)[0]
        self.tell(Event(ALTERED, offset=offset, count=size * count), self.current)


_CURRENT = {
    6: _Walk.create,
    9: _Walk.getattr,
    10: _Walk.getfh,
    11: _Walk.link,
    15: _Walk.lookup,
    16: _Walk.elsewhere,
    18: _Walk.open,
    19: _Walk.elsewhere,
    22: _Walk.putfh,
    23: _Walk.elsewhere,
    24: _Walk.putrootfh,
    25: _Walk.read,
    26: _Walk.readdir,
    28: _Walk.remove,
    29: _Walk.rename,
    31: _Walk.restorefh,
    32: _Walk.savefh,
    34: _Walk.setattr,
    60: _Walk.copy,
    62: _Walk.deallocate,
    68: _Walk.read_plus,
    70: _Walk.write_same,
    71: _Walk.copy,
}
"""Operation number: what it does to the current filehandle, or tells of it."""

_MOVES = frozenset((6, 15, 16, 18, 19, 23, 24, 31))
"""Operations that replace the current filehandle by one that their arguments do not hold."""


def _version4(start: int, view: memoryview, answer: memoryview, body: int) -> Events:
    call = nfs4.compound_call(view, start, len(view))
    answered = body >= 0
    reply = nfs4.compound_reply(answer, body, len(answer)) if answered else None
    walk = _Walk(view, answer)
    problem = call.problem or (reply.problem if reply else "")
    try:
        for index, (op, at) in enumerate(zip(call.operations, call.places, strict=True)):
            if reply is None:
                if op == nfs4.OP_WRITE:
                    walk.write(at, None, answered=False)
                elif op == 22:
                    walk.putfh(at, 0)
                elif op in _MOVES:
                    walk.current = _Object()
                continue
            if index >= len(reply.results):
                break
            number, status = reply.results[index]
            if number != op:
                return Events(walk.events(), problem or f"result {index + 1} is of another operation")
            walk.step(op, at, reply.places[index] if status == 0 else None)
    except StructError:
        problem = problem or "the bytes end too early"
    except Malformed as error:
        problem = problem or str(error)
    return Events(walk.events(), problem)


def _attribute(view: memoryview, at: int, number: int) -> int | None:
    """Where attribute ``number`` (at most 19) stands in the fattr4 at ``at``; None where it is not in it."""
    mask = word(view, at + 4)[0] if word(view, at)[0] else 0
    if not mask >> number & 1:
        return None
    place = _BITMAP(view, at) + 4
    for lower in range(number):
        if mask >> lower & 1:
            place = _ATTRIBUTES[lower](view, place)
    return place
