"""Names of files as NFS calls and replies tell them, with the times from which and until which each is known.

A file is a file handle on one server.  What a reply says of a name holds for what was before it, too, unless it says
that the name was made then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from ..onc.file_events import NAMED, REMOVED, RENAMED, ROOT, FileEvent

UNKNOWN = "…"
"""Stands for directories that no call has named."""
MAX_NAMES = 16
"""Of one file that are remembered, those that it has no more among them."""
MAX_DEPTH = 256
"""Directories above a file that are looked up."""
MAX_RECURSION = 32
"""Of these, those whose paths are kept for others."""


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
    """Since when, nanoseconds."""


class MountRoot(NamedTuple):
    """The root of an export, as MNT says outside of the RPCs."""

    server: str
    """Address."""
    event: FileEvent
    time: int
    """Of the reply, nanoseconds."""


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
        found = self._files.get((server, handle))
        if found is None:
            found = self._files[server, handle] = self._make(server, handle)
        return found

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
        found = Name(directory, name, printable(name), time, made)
        self._places[directory, name] = file, found
        file.names.append(found)
        if len(file.names) > MAX_NAMES:
            forgotten = next((one for one in file.names if one.until is not None), file.names[0])
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
        file, found = self._places.pop((directory, name), (None, None))
        if found is not None:
            found.until, found.ended = time, how
        return file


def path_at(file: NamedFile, time: int) -> str | None:
    """The path that a file had; by what is known of it later, where nothing was then; None where no call named it."""
    name = None if file.root is not None else _name_at(file, time)
    return file.root if name is None else path_of_name(name, time)


def span_at(file: NamedFile, time: int) -> tuple[int, int]:
    """From when and until when, around ``time``, the file has the path that it has then, as far as is known now."""
    since, until = -(1 << 62), 1 << 62
    above: set[NamedFile] = set()
    while file.root is None and file not in above and len(above) <= MAX_DEPTH:
        above.add(file)
        directory: NamedFile | None = None
        for name in reversed(file.names):
            if name.since > time:
                until = min(until, name.since)
            elif name.until is not None and name.until <= time:
                since = max(since, name.until)
            else:
                since = max(since, name.since)
                until = until if name.until is None else min(until, name.until)
                directory = name.directory
                break
        else:
            # It has no name then, and which stands for it may depend on any.
            moments = [moment for name in file.names for moment in (name.since, name.until) if moment is not None]
            since = max([since, *(moment for moment in moments if moment <= time)])
            until = min([until, *(moment for moment in moments if moment > time)])
            found = _name_at(file, time)
            directory = None if found is None else found.directory
        if directory is None:
            break
        file = directory
    return since, until


class SpannedPaths:
    """Paths of many files at many times, between which nothing is learned."""

    def __init__(self) -> None:
        self._known: dict[NamedFile, tuple[int, int, str | None]] = {}
        """From when and until when a file has a path."""

    def at(self, file: NamedFile, time: int) -> tuple[int, str | None]:
        """``path_at``, and until when it is that."""
        _, until, path = self._spanned(file, time, 0)
        return until, path

    def _spanned(self, file: NamedFile, time: int, depth: int) -> tuple[int, int, str | None]:
        found = self._known.get(file)
        if found is None or not found[0] <= time < found[1]:
            found = self._known[file] = self._found(file, time, depth)
        return found

    def _found(self, file: NamedFile, time: int, depth: int) -> tuple[int, int, str | None]:
        since, until = -(1 << 62), 1 << 62
        if file.root is not None:
            return since, until, file.root
        for name in reversed(file.names) if depth < MAX_RECURSION else ():
            if name.since > time:
                until = min(until, name.since)
            elif name.until is not None and name.until <= time:
                since = max(since, name.until)
            else:
                begun, ended, above = self._spanned(name.directory, time, depth + 1)
                if above is None or not above.startswith("/") or above.count("/") >= MAX_RECURSION:
                    break
                last = ended if name.until is None else min(ended, name.until)
                return max(since, begun, name.since), min(until, last), joined(above, name.text)
        return *span_at(file, time), path_at(file, time)


def path_of_name(name: Name, time: int | None = None) -> str:
    """With the directories above it as they were then; None: as they are at last."""
    parts = [name.text]
    directory = name.directory
    above = {directory}
    while directory.root is None:
        found = _last_name(directory) if time is None else _name_at(directory, time)
        if found is None:
            return "/".join([UNKNOWN, *reversed(parts)])
        directory = found.directory
        if directory in above or len(above) > MAX_DEPTH:
            return "/".join([UNKNOWN, *reversed(parts)])
        above.add(directory)
        parts.append(found.text)
    top = "" if directory.root == "/" else directory.root
    return "/".join([top, *reversed(parts)])


def _last_name(file: NamedFile) -> Name | None:
    return next((one for one in reversed(file.names) if one.until is None), file.names[-1] if file.names else None)


def _name_at(file: NamedFile, time: int) -> Name | None:
    names = file.names
    if len(names) < 2:
        return names[0] if names else None
    for one in reversed(names):
        if one.since <= time and (one.until is None or time < one.until):
            return one
    later = next((one for one in names if one.since > time and not one.made), None)
    if later is not None:
        return later
    return next((one for one in reversed(names) if one.until is not None and one.until <= time), names[0])


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
        letter if letter.isprintable() and letter not in "/\\" else _escape(letter)
        for letter in name.decode("utf-8", "surrogateescape")
    )


def _escape(letter: str) -> str:
    code = ord(letter)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is no UTF-8
        code -= 0xDC00
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
