"""Names of files from batches of RPCs: which file each call names, with the path known then or learned later.

Most calls that name a file are alike: a directory's handle and a name in the call, the file's handle in the reply.
These are read in columns; ``onc.file_operations`` walks the others step by step. A path may become known later than the
file: rows can wait for it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Generic, Protocol, TypeVar
from weakref import ref

import numpy as np
from numpy.typing import NDArray

from ..arrays import Int64s, MadeSequence, among, coded_keys, take, unique
from ..named_tuple import NamedTuple
from ..onc.file_operations import (
    NAMED,
    READ,
    REMOVED,
    RENAMED,
    ROOT,
    WRITE,
    FileEvent,
    FileMessages,
    FileOperation,
    events_of,
    file_events,
    operations_of,
)
from ..onc.naming import FOUND, NOTHING, REMOVED as REMOVES, Naming, naming
from ..onc.rpc_header import NFS_CALLBACK
from ..onc.shapes.decode_cache import FlatFields
from ..onc.xdr import round_up
from ..rpcrdma.reassembly import reassembled_call, reassembled_reply
from ..rpcrdma.rpc_fields import FieldColumns, FieldReader, KnownRpc, unread_calls
from ..rpcrdma.rpc_table import STATES, RpcTable
from ..rpcrdma.rpcs import DUPLICATE_REPLY, Reassembled, Rpc
from ..text_columns import KnownTexts
from ..units import escaped

UNKNOWN = "…"
"""Stands for directories that no call has named."""
MAX_NAMES = 16
"""Names of one file that are remembered, former ones included."""
MAX_DEPTH = 256
"""Directories above a file that are looked up."""


@dataclass(slots=True, eq=False)
class Name:
    """A name that a file has, or had."""

    directory: NamedFile
    raw: bytes
    """b"" where only the directory is known."""
    text: str
    since: int
    """Nanoseconds: when a reply had it first."""
    made: bool
    """It was made then; else the file had it already, for a time that is not known."""
    until: int | None = None
    ended: str = ""
    """What ended it: removed, renamed, or replaced by another file."""


@dataclass(slots=True, eq=False)
class NamedFile:
    server: str
    """Address."""
    handle: bytes
    names: list[Name] = field(default_factory=list)
    """The latest last."""
    root: str | None = None
    """Its path, where it is the root of what the server exports; of several, as NFSv4 and MNT may say it, the first."""
    rooted: int = 0
    """When a reply first said so, in nanoseconds since the Unix epoch."""


SomeFile = TypeVar("SomeFile", bound=NamedFile)


class Paths(Generic[SomeFile]):
    """Files by server and handle; ``make``: of these."""

    def __init__(self, make: Callable[[str, bytes], SomeFile]) -> None:
        self._make = make
        self._files: dict[tuple[str, bytes], SomeFile] = {}
        self._places: dict[tuple[NamedFile, bytes], tuple[SomeFile, Name]] = {}
        """What has which name in which directory now."""

    def __iter__(self) -> Iterator[SomeFile]:
        return iter(self._files.values())

    def __len__(self) -> int:
        return len(self._files)

    def file(self, server: str, handle: bytes) -> SomeFile:
        """The file, which is a new one where none has this handle."""
        file = self._files.get((server, handle))
        if file is None:
            file = self._files[server, handle] = self._make(server, handle)
        return file

    def known(self, server: str, handle: bytes) -> SomeFile | None:
        return self._files.get((server, handle))

    def same(self, file: NamedFile) -> NamedFile:
        """The file with the server and handle of another one."""
        return self._files.get((file.server, file.handle), file)

    def learn(self, server: str, event: FileEvent, time: int) -> None:
        """What a call and its reply say of a name."""
        if event.kind == ROOT:
            if event.handle is not None:
                top = self.file(server, event.handle)
                if top.root is None or time < top.rooted:
                    path = "/".join(map(printable, (event.name or b"/").split(b"/")))
                    top.root, top.rooted = path.rstrip("/") or "/", time
            return
        if event.directory is None or event.name is None:
            return
        directory = self.file(server, event.directory)
        if event.kind == REMOVED:
            self.end(directory, event.name, time, "removed")
        elif event.kind == NAMED:
            if event.handle is not None:
                self.name(directory, event.name, self.file(server, event.handle), time, event.made)
        elif event.kind == RENAMED and event.to_directory is not None and event.to_name is not None:
            target = self.file(server, event.to_directory)
            if (target, event.to_name) != (directory, event.name):
                file = self.end(directory, event.name, time, "renamed")
                if file is None:
                    self.end(target, event.to_name, time, "replaced")
                else:
                    self.name(target, event.to_name, file, time, made=True)

    def name(self, directory: NamedFile, name: bytes, file: SomeFile, time: int, made: bool = False) -> None:
        """``file`` has this name; no file is in itself."""
        if name in (b"", b".") or file is directory:
            return
        if name == b"..":
            if not directory.names and directory.root is None:
                directory.names.append(Name(file, b"", UNKNOWN, time, False))
            return
        before = self._places.get((directory, name))
        if before is not None and before[0] is file:
            return
        self.end(directory, name, time, "replaced")
        if file.names and not file.names[-1].raw:
            file.names.pop()
        given = Name(directory, name, printable(name), time, made)
        self._places[directory, name] = file, given
        file.names.append(given)
        if len(file.names) > MAX_NAMES:
            forgotten = next((known for known in file.names if known.until is not None), file.names[0])
            file.names.remove(forgotten)
            if forgotten.until is None:
                del self._places[forgotten.directory, forgotten.raw]

    def forget(self, left: int) -> None:
        """Files until so many are ``left``: those that appeared first, and are no directories of others; all, where
        directories are too many."""
        directories = {name.directory for file in self._files.values() for name in file.names}
        others = [key for key, file in self._files.items() if file.root is None and file not in directories]
        for key in others[: max(0, len(self._files) - left)]:
            for name in self._files.pop(key).names:
                if name.until is None:
                    del self._places[name.directory, name.raw]
        if len(self._files) > left:
            self._files.clear()
            self._places.clear()

    def end(self, directory: NamedFile, name: bytes, time: int, how: str) -> SomeFile | None:
        """The name is gone; returns what it named."""
        file, name_of_file = self._places.pop((directory, name), (None, None))
        if name_of_file is not None:
            name_of_file.until, name_of_file.ended = time, how
        return file


FOREVER = 1 << 62
"""Nanoseconds: later than any packet."""


Spanned = tuple[int, int, str | None, int]
"""A path that a file has from a time to before another, as far as is known now; and how many names it is made of.

By what is known later, where nothing is then; None where no call named the file.
"""
ROOT_PATH: Spanned = (-FOREVER, FOREVER, "/", 0)


class SpannedPaths:
    """Paths of files at any time; of many, if nothing is learned in between."""

    def __init__(self) -> None:
        self._known: dict[NamedFile, Spanned] = {}

    def at(self, file: NamedFile, time: int) -> Spanned:
        """The path at ``time`` (nanoseconds), with the directories above the file as they were then."""
        climbed: list[tuple[NamedFile, Name, int, int]] = []
        spanned: Spanned | None = None
        while file.root is None and len(climbed) <= MAX_DEPTH:
            spanned = self._known.get(file)
            if spanned is not None and spanned[0] <= time < spanned[1]:
                break
            name, since, until = _name_at(file, time)
            if name is None:
                spanned = self._known[file] = since, until, None, 0
                break
            climbed.append((file, name, since, until))
            file = name.directory
        else:
            spanned = -FOREVER, FOREVER, file.root, 0
        since, until, path, depth = spanned
        if depth + len(climbed) > MAX_DEPTH:
            # Directories may be in each other: what is above the name is not told.
            del climbed[1:]
            since, until, path, depth = time, time + 1, None, 0
        for below, name, begun, ended in reversed(climbed):
            since, until = since if since > begun else begun, until if until < ended else ended
            path, depth = joined(path, name.text), depth + 1
            self._known[below] = since, until, path, depth
        return since, until, path, depth


def path_of_name(name: Name) -> str:
    """With the directories above it as they were when the name ended, or are at last."""
    time = FOREVER if name.until is None else name.until
    return joined(SpannedPaths().at(name.directory, time)[2], name.text)


def _name_at(file: NamedFile, time: int) -> tuple[Name | None, int, int]:
    """The name of a file at a time, or what stands for it; and the span in which it does."""
    since, until = -FOREVER, FOREVER
    for name in reversed(file.names):
        if name.since > time:
            until = min(until, name.since)
        elif name.until is not None and name.until <= time:
            since = max(since, name.until)
        else:
            ended = until if name.until is None else min(until, name.until)
            return name, name.since if name.since > since else since, ended
    # It has no name then, and which stands for it may depend on any.
    moments = [moment for name in file.names for moment in (name.since, name.until) if moment is not None]
    since = max([since, *(moment for moment in moments if moment <= time)])
    until = min([until, *(moment for moment in moments if moment > time)])
    later = next((name for name in file.names if name.since > time and not name.made), None)
    former = (name for name in reversed(file.names) if name.until is not None and name.until <= time)
    return later or next(former, file.names[0] if file.names else None), since, until


def always_named(file: NamedFile) -> bool:
    """Whether its path is the same at all times, as far as is known."""
    for _ in range(MAX_DEPTH):
        if file.root is not None:
            return True
        if len(file.names) != 1:
            return not file.names
        file = file.names[0].directory
    return False


def joined(directory: str | None, name: str) -> str:
    """The path of a name in a directory, whose path may not be known."""
    if directory is None:
        return f"{UNKNOWN}/{name}"
    return f"/{name}" if directory == "/" else f"{directory}/{name}"


def printable(name: bytes) -> str:
    """A component of a path: what is no UTF-8, no printable character, a slash or a backslash is escaped."""
    # Nearly all.
    if name.isalnum():
        return name.decode("ascii")
    return "".join(
        letter if letter.isprintable() and letter not in "/\\" else escaped(letter)
        for letter in name.decode("utf-8", "surrogateescape")
    )


Row = TypeVar("Row")

MAX_LATE = 20_000
"""Rows that wait, or wait behind one that does."""


class Pathed(Protocol):
    """What a call names."""

    def path(self) -> str | None:
        """As far as it is known now."""

    @property
    def sure(self) -> bool:
        """Nothing that is learned later can complete the path."""


class LookUp(Protocol):
    """Knows more of paths than was read by now."""

    @property
    def knows_all(self) -> bool:
        """At no further cost."""

    def path(self, called: Pathed) -> str | None:
        """The path of what a call names."""


class KnownPaths(NamedTuple):
    """The paths of many rows, as far as they are known now."""

    texts: list[str | None]
    sure: list[bool]
    """For each text: nothing that is learned later can complete it."""
    which: Int64s
    """The index of each row's text."""

    def late(self) -> Int64s:
        """Rows whose path may become known, ascending."""
        return np.flatnonzero(~np.array(self.sure, np.bool_)[self.which])


class PathedRows(MadeSequence[Pathed | None]):
    """What the calls of a batch name, row by row; None where that is nothing."""

    @abstractmethod
    def paths(self) -> KnownPaths:
        """What all rows name, as far as it is known now."""

    @abstractmethod
    def alike(self) -> Int64s:
        """A number for each row; rows with the same number name the same file."""


class LateRow(NamedTuple, Generic[Row]):
    """A row that is made as soon as its path is known, or when it has waited for long enough."""

    file: Pathed
    make: Callable[[str | None], Row]


class LatePaths(Generic[Row]):
    """Rows go in and come out in the same order, no more than ``max_held`` of them in between."""

    def __init__(self, look_up: LookUp, max_held: int = MAX_LATE) -> None:
        self._look_up, self._max_held = look_up, max_held
        self._held: deque[Row | LateRow[Row]] = deque()

    def add(self, rows: Iterable[Row | LateRow[Row]]) -> list[Row]:
        """Rows that can be given now."""
        self._held += rows
        given: list[Row] = []
        while self._held:
            first = self._held[0]
            if isinstance(first, LateRow):
                known = first.file.sure or self._look_up.knows_all
                if not known and len(self._held) <= self._max_held:
                    break
                first = first.make(self._look_up.path(first.file))
            given.append(first)
            self._held.popleft()
        return given

    def rest(self) -> list[Row]:
        """The others, when nothing more is learned."""
        given = [row.make(row.file.path()) if isinstance(row, LateRow) else row for row in self._held]
        self._held.clear()
        return given


class NfsMessages(NamedTuple):
    """The messages of an Rpc, and what they say without a look at missing bytes."""

    call: Reassembled | None
    """None where nothing of its contents is asked for."""
    reply: Reassembled | None
    events: tuple[FileEvent, ...]
    operations: tuple[FileOperation, ...]
    """None of messages that are alike and hold no contents: these are columns."""
    problem: str


MISSING_BYTES = "bytes of the message are missing"
"""Why an RPC could not be decoded to its end."""


def nfs_messages(call: Reassembled | None, reply: Reassembled | None) -> NfsMessages | None:
    """None without a call.

    Bytes may be missing inside the data of a READ or WRITE; the first byte that is missing elsewhere ends the message.
    """
    if call is None:
        return None
    written: dict[int, int] = {}
    returned: dict[int, int] = {}
    while True:
        call_part = _without_contents(call, written)
        reply_part = None if reply is None else _without_contents(reply, returned)
        decoded = FileMessages(call_part.data, None if reply_part is None else reply_part.data)
        said = events_of(decoded)
        events = tuple(_in_place(event, call_part, reply_part) for event in said.events)
        # Data are only stepped over where a length before them says how far they go.
        known = len(written), len(returned)
        written |= _contents(events, WRITE, call)
        if reply is not None:
            returned |= _contents(events, READ, reply)
        if known == (len(written), len(returned)):
            break
    problem = said.problem
    if problem and reply is not None:
        # Of a reply that cannot be read to its end, some writes have no result: whether they happened is not known.
        answered = {event.position for event in events if event.kind == WRITE}
        alone = [_in_place(event, call_part, None) for event in file_events(call_part.data, None).events]
        events += tuple(event for event in alone if event.kind == WRITE and event.position not in answered)
    if problem and not (call_part.whole and (reply_part is None or reply_part.whole)):
        problem = MISSING_BYTES
    return NfsMessages(call, reply, events, operations_of(decoded), problem)


def _contents(events: Iterable[FileEvent], kind: str, message: Reassembled) -> dict[int, int]:
    """Positions and lengths of data read or written that have missing bytes."""
    gaps = message.gaps
    counts = {}
    for event in events:
        if event.kind == kind and event.position >= 0:
            end = event.position + round_up(event.count)
            if any(start < end and event.position < last for start, last in gaps):
                counts[event.position] = event.count
    return counts


class _PartialMessage(NamedTuple):
    """A message up to a missing byte, data with missing bytes taken out and their lengths made 0."""

    data: bytes
    contents: tuple[tuple[int, int, int], ...]
    """Where data were taken out: their place in ``data``, their position in the message, their length."""
    whole: bool
    """Nothing but those data is missing."""


def _without_contents(message: Reassembled, contents: dict[int, int]) -> _PartialMessage:
    if not contents:
        return _PartialMessage(message.prefix, (), message.complete)
    data = bytearray()
    taken: list[tuple[int, int, int]] = []
    reached = 0
    gaps = message.gaps
    for position, count in [*sorted(contents.items()), (message.length, 0)]:
        gap = next((start for start, end in gaps if end > reached and start < position), None)
        until = position if gap is None else max(gap, reached)
        data += message.captured(reached, until) if until > reached else b""
        if gap is not None or position >= message.length:
            return _PartialMessage(bytes(data), tuple(taken), gap is None)
        data[-4:] = bytes(4)
        taken.append((len(data), position, count))
        reached = min(position + round_up(count), message.length)
    return _PartialMessage(bytes(data), tuple(taken), True)


def _in_place(event: FileEvent, call: _PartialMessage, reply: _PartialMessage | None) -> FileEvent:
    """The event with the position and length that it has in the whole message."""
    part = call if event.kind == WRITE else reply
    if part is None or event.position < 0 or event.kind not in (READ, WRITE):
        return event
    shift = 0
    for content_position, position, count in part.contents:
        if content_position == event.position:
            return event._replace(position=position, count=count)
        if content_position > event.position:
            break
        shift = position + round_up(count) - content_position
    return event._replace(position=event.position + shift)


def split_at_gaps(message: Reassembled, start: int, end: int) -> Iterator[tuple[int, int, str]]:
    """[start, end) of a message, split where bytes begin or cease to be missing: start, end, why ('': not missing)."""
    reached = start
    pending: tuple[int, int, str] | None = None
    for extent in message.extents:
        low, high = max(extent.start, start), min(extent.start + extent.length, end)
        if low >= high:
            continue
        if pending is not None and pending[1] == low and pending[2] == extent.missing:
            pending = pending[0], high, extent.missing
        else:
            if pending is not None:
                yield pending
            pending = low, high, extent.missing
        reached = high
    if pending is not None:
        yield pending
    if reached < end:
        yield reached, end, "behind the end of the message"


_NAMES = frozenset(("handle", "name"))


class CalledFile(NamedTuple):
    """What a call names."""

    file: NamedFile | None
    """None: the root of the server, or what stands in a directory that the call does not name."""
    name: bytes | None
    """A name in it."""
    time: int
    """The time of the call."""

    def path(self) -> str | None:
        """As far as it is known now; None where nothing is."""
        path = "/" if self.file is None else SpannedPaths().at(self.file, self.time)[2]
        return path if self.name is None else joined(path, printable(self.name))

    @property
    def sure(self) -> bool:
        """Nothing that is learned later can complete the path."""
        return is_whole(self.path())


class CalledFiles(PathedRows):
    """What the calls of a batch name; many name the same."""

    def __init__(self, named: list[tuple[NamedFile | None, bytes | None] | None], which: Int64s, times: Int64s) -> None:
        """``named``: files and names as in ``CalledFile``; ``which``: index of each row's; ``times`` of the calls."""
        self._named, self._which, self._times = named, which, times

    def __len__(self) -> int:
        return len(self._which)

    def made(self, index: int) -> CalledFile | None:
        named = self._named[int(self._which[index])]
        return None if named is None else CalledFile(*named, int(self._times[index]))

    def alike(self) -> Int64s:
        return self._which

    def paths(self) -> KnownPaths:
        first, last = self._span()
        spans = SpannedPaths()
        texts: list[str | None] = []
        changing: list[int] = []
        for index, (named, begun, ended) in enumerate(zip(self._named, first.tolist(), last.tolist(), strict=True)):
            if named is None:
                texts.append(None)
                continue
            file, name = named
            _, until, text, _ = ROOT_PATH if file is None else spans.at(file, begun)
            texts.append(text if name is None else joined(text, printable(name)))
            if until <= ended:
                changing.append(index)
        sure = [named is None or is_whole(text) for named, text in zip(self._named, texts, strict=True)]
        if not changing:
            return KnownPaths(texts, sure, self._which)
        which = self._which.copy()
        rows = np.flatnonzero(among(which, np.array(changing)))
        places: dict[tuple[int, str | None], int] = {}
        text_indices: list[int] = []
        for index, time in zip(which[rows].tolist(), self._times[rows].tolist(), strict=True):
            file, name = self._named[index] or (None, None)
            assert file is not None
            text = spans.at(file, time)[2]
            text_index = places.setdefault((index, text), len(texts))
            if text_index == len(texts):
                texts.append(text if name is None else joined(text, printable(name)))
            text_indices.append(text_index)
        which[rows] = text_indices
        return KnownPaths(texts, sure + [is_whole(text) for text in texts[len(sure) :]], which)

    def _span(self) -> tuple[Int64s, Int64s]:
        """The first and the last time at which each file is named."""
        first = np.full(len(self._named), (1 << 63) - 1)
        last = np.full(len(self._named), -(1 << 63))
        np.minimum.at(first, self._which, self._times)
        np.maximum.at(last, self._which, self._times)
        return first, last


class NamedRpc(NamedTuple):
    """An RPC and what it names."""

    rpc: Rpc
    fields: FlatFields
    file: Pathed | None

    def path(self) -> str | None:
        """As far as it is known now."""
        return None if self.file is None else self.file.path()


class TableNames:
    """What the calls of a table name, each when it is asked for, by number of the RPC."""

    def __init__(self, columns: FieldColumns, files: PathedRows, numbers: Int64s) -> None:
        self._columns, self._files, self._numbers = columns, files, numbers

    @cached_property
    def _rows(self) -> dict[int, int]:
        numbers = self._numbers.tolist()
        return dict(zip(reversed(numbers), range(len(numbers) - 1, -1, -1), strict=True))

    def path(self, number: int) -> str | None:
        """As far as it is known now."""
        file = self._files[self._rows[number]]
        return None if file is None else file.path()

    def user(self, number: int) -> str | None:
        """Who makes a call."""
        return self._columns.row(self._rows[number]).user


class PathLearner:
    """Fed the RPCs of a capture as they end."""

    def __init__(
        self,
        reader: FieldReader | None = None,
        read_names: Callable[[], Paths[NamedFile] | None] | None = None,
        max_files: int = 0,
    ) -> None:
        """``read_names``: reads the whole capture for names; None where that cannot be done.  ``max_files``: that are
        remembered; 0 is no limit."""
        self.reader = reader or FieldReader()
        self.paths: Paths[NamedFile] = Paths(NamedFile)
        self._servers: dict[tuple[int, bool], str] = {}
        self.read_names = read_names
        self._all: Paths[NamedFile] | None = None
        self._max_files = max_files
        self._latest: tuple[ref[RpcTable], frozenset[str], tuple[FieldColumns, dict[int, Naming]]] | None = None
        """The table that was learned last, which fields were read of it, and what was found."""
        self.incomplete = False
        """Some path was given as far as it was known then, and could not be looked up."""

    @property
    def knows_all(self) -> bool:
        """The whole capture was read for names."""
        return self._all is not None

    def path(self, called: Pathed) -> str | None:
        """The path of what a call names.  What is not known yet is looked up in the whole capture, so that the
        path is the same whenever it is asked for."""
        path = called.path()
        if not isinstance(called, CalledFile) or called.file is None or (path is not None and path.startswith("/")):
            return path
        if self._all is None and self.read_names is not None:
            self._all, self.read_names = self.read_names(), None
        self.incomplete |= self._all is None
        file = None if self._all is None else self._all.known(called.file.server, called.file.handle)
        return path if file is None else called._replace(file=file).path()

    def learn(
        self, table: RpcTable, wanted: frozenset[str] = frozenset(FlatFields._fields)
    ) -> tuple[FieldColumns, PathedRows]:
        """Note what the RPCs of a table say of names; returns what each of them names, and the fields ``wanted``."""
        columns, kinds = self._learned(table, wanted | _NAMES)
        return columns, self._called(table, columns, kinds)

    def learn_paths(self, table: RpcTable, first: int, last: int) -> KnownTexts:
        """Learn names from a table; returns the paths of calls in frames ``first`` to ``last``."""
        columns, kinds = self._learned(table, _NAMES)
        frames = table.rows["call_frame"]
        inside = (frames >= first) & (frames <= last)
        if not inside.any():
            return KnownTexts([None], np.zeros(len(table), np.int64))
        return self.listed(self._called(table, columns, kinds), inside)

    def listed(self, files: PathedRows, wanted: NDArray[np.bool_] | None = None) -> KnownTexts:
        """The paths of what calls name, by default of all; many, between which nothing is learned."""
        paths = files.paths()
        texts, which, late = paths.texts, paths.which, paths.late()
        if len(late) or wanted is not None:
            texts, which = [*texts, None], which.copy()
        if wanted is not None:
            which[~wanted] = len(texts) - 1
        known: dict[tuple[NamedFile | None, bytes | None], int] = {}
        for row in late.tolist() if wanted is None else late[wanted[late]].tolist():
            called = files[row]
            assert isinstance(called, CalledFile) and called.file is not None
            key = called.file, called.name
            if key in known:
                which[row] = known[key]
                continue
            which[row] = len(texts)
            texts.append(self.path(called))
            if always_named(called.file) and (self._all is None or always_named(self._all.same(called.file))):
                known[key] = len(texts) - 1
        return KnownTexts(texts, which)

    def learn_names(self, table: RpcTable) -> None:
        """Only note what they say of names."""
        self._learned(table, _NAMES, True)

    def _learned(
        self, table: RpcTable, wanted: frozenset[str], names_only: bool = False
    ) -> tuple[FieldColumns, dict[int, Naming]]:
        """``names_only``: not the fields of RPCs that say nothing of names, most of whose bytes are data."""
        same = self._latest is not None and self._latest[0]() is table
        if self._latest is not None and same and wanted <= self._latest[1]:
            return self._latest[2]
        codes = table.rows["procedure"]
        kinds = {code: naming(*_procedure(table, code)) for code in unique(codes).tolist()}
        named_rows = among(codes, np.array([code for code, kind in kinds.items() if kind.kind == FOUND]))
        silent = among(codes, np.array([code for code, kind in kinds.items() if kind.kind == NOTHING]))
        columns = self.reader.columns(table, named_rows & _usual(table), wanted, silent if names_only else None)
        if not same:
            self._learn_names(table, columns, kinds)
        if self._max_files and len(self.paths) > self._max_files:
            self.paths.forget(self._max_files // 2)
        self._latest = ref(table), frozenset() if names_only else wanted, (columns, kinds)
        return columns, kinds

    def named(self, table: RpcTable) -> Iterator[NamedRpc]:
        """Learn names from a table; gives its RPCs as objects with what they name."""
        columns, files = self.learn(table)
        for index, (rpc, file) in enumerate(zip(table, files, strict=True)):
            yield NamedRpc(rpc, columns.row(index), file)

    def one(self, rpc: Rpc, fields: FlatFields) -> CalledFile | None:
        """What an RPC names."""
        if rpc.call is None:
            return None
        rule = naming(rpc.program, rpc.version, rpc.operations, rpc.name)
        name = fields.name if rule.named else None
        if fields.handle is not None:
            return CalledFile(self.paths.file(server_of(rpc), fields.handle), name, rpc.call.time)
        return CalledFile(None, name, rpc.call.time) if rule.from_root else None

    def path_of_call(self, rpc: Rpc) -> str | None:
        """The path of the file that a call names; the call may have no reply."""
        called = self.one(rpc, self.reader.fields(rpc))
        return None if called is None else self.path(called)

    def _learn_names(self, table: RpcTable, columns: FieldColumns, kinds: dict[int, Naming]) -> None:
        for rpc in table.objects:
            if isinstance(rpc, KnownRpc) and rpc.opened is not None and rpc.call is not None:
                self.paths.learn(server_of(rpc), opened_name(rpc), rpc.call.time)
        codes = table.rows["procedure"]
        naming_codes = [code for code, kind in kinds.items() if kind.kind != NOTHING]
        failed = np.array([status[1] for status in table.names.statuses] or [False])
        places = among(codes, np.array(naming_codes)).nonzero()[0]
        unread = table.row_places[unread_calls(table)]
        places = places[~among(places, unread)]
        rows = take(table.rows, places)
        for row, code, usual, failure, connection, caller, time, handle, name, object_handle in zip(
            places.tolist(),
            rows["procedure"].tolist(),
            _usual(table)[places].tolist(),
            failed[rows["status"]].tolist(),
            *(rows[name].tolist() for name in ("connection", "caller", "reply_end")),
            *(columns.columns[name][places].tolist() for name in ("handle", "name", "object")),
            strict=True,
        ):
            rule = kinds[code]
            if usual and rule.kind == FOUND and object_handle is not None:
                if object_handle and object_handle != handle and handle is not None and name is not None:
                    server = self._server_of(table, connection, caller)
                    self.paths.name(
                        self.paths.file(server, handle), name, self.paths.file(server, object_handle), time, rule.made
                    )
            elif usual and rule.kind == REMOVES and not failure and handle is not None and name is not None:
                server = self._server_of(table, connection, caller)
                self.paths.end(self.paths.file(server, handle), name, time, "removed")
            else:
                self._learn_singly(table[row])

    def _learn_singly(self, rpc: Rpc) -> None:
        if rpc.call is None or rpc.reply is None or rpc.state == DUPLICATE_REPLY or rpc.conversation.traced:
            return
        messages = nfs_messages(reassembled_call(rpc), reassembled_reply(rpc))
        if messages is not None:
            server = server_of(rpc)
            for event in messages.events:
                self.paths.learn(server, event, rpc.reply.operation.last_time)

    def _called(self, table: RpcTable, columns: FieldColumns, kinds: dict[int, Naming]) -> CalledFiles:
        rows = table.rows
        rules = np.zeros((max(kinds, default=0) + 1, 3), np.int64)
        for code, rule in kinds.items():
            rules[code] = rule.named, rule.from_root, rule.callback
        by_name, from_root, callback = rules[rows["procedure"]].T
        names = columns.columns["name"].copy()
        names[by_name == 0] = None
        # Connection, the end that has the files, and whether a path may begin at the root.
        sides = (rows["connection"].astype(np.int64) << 1 | rows["caller"] ^ callback) << 1 | from_root
        keys = zip(columns.columns["handle"].tolist(), names.tolist(), sides.tolist(), strict=True)
        distinct, which = coded_keys(keys, len(table))
        named: list[tuple[NamedFile | None, bytes | None] | None] = []
        for handle, name, side in distinct:
            if handle is not None:
                server = self._server_of(table, side >> 2, side >> 1 & 1)
                named.append((self.paths.file(server, handle), name))
            else:
                named.append((None, name) if side & 1 else None)
        return CalledFiles(named, which, rows["call_time"])

    def _server_of(self, table: RpcTable, connection: int, caller: int) -> str:
        """The address of the server: of calls from this end, or of callbacks from the other."""
        key = connection, bool(caller)
        address = self._servers.get(key)
        if address is None:
            endpoints = table.conversation(connection).connection.endpoints
            address = self._servers[key] = endpoints[1 - key[1]].address
        return address


def opened_name(rpc: KnownRpc) -> FileEvent:
    """The event by which an opened file has a name in its directory."""
    directory, name = rpc.opened or (None, None)
    return FileEvent(NAMED, rpc.fields.handle, directory, name)


WHOLE = [STATES.index(state) for state in ("complete", "error")]


def _usual(table: RpcTable) -> NDArray[np.bool_]:
    """RPCs with both messages whole, about which there is nothing to note: all row RPCs, and some objects."""
    usual: NDArray[np.bool_] = np.isin(table.rows["state"], WHOLE) & (table.rows["flags"] == 0)
    return usual


def is_whole(path: str | None) -> bool:
    """It begins at the root."""
    return path is not None and path.startswith("/")


def _procedure(table: RpcTable, code: int) -> tuple[int | None, int | None, tuple[str, ...], str]:
    names = table.names.procedures[code]
    return names.program, names.version, names.operations, names.name


def server_of(rpc: Rpc) -> str:
    """Address of the host that has the files."""
    return rpc.connection.endpoints[rpc.backward ^ (rpc.program != NFS_CALLBACK)].address
