"""Files in memory: names, handles, contents, and a capacity."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest
from hypothesis import given, strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from rdmascope.captures.peer.nfs_server.file_system import (
    ENTRY_SIZE,
    FileAttributes,
    FileSystem,
    FileType,
    NfsError,
    NfsStatus,
)
from rdmascope.dissect.onc.status import NFS3_STATUS, NFS4_STATUS

PLAIN = FileAttributes()


def files(capacity: int = 100_000) -> FileSystem:
    clock = count(1_000_000_000)
    return FileSystem(capacity, b"run 1", lambda: next(clock))


def test_statuses_have_the_numbers_of_the_protocol() -> None:
    for status in NfsStatus:
        if status is NfsStatus.NOT_SYNC:
            assert NFS3_STATUS[status] == "NFS3ERR_NOT_SYNC"
        elif status:
            assert NFS4_STATUS[status] == f"NFS4ERR_{status.name}"


def test_a_file_is_written_and_read() -> None:
    system = files()
    file = system.make(system.root, b"a", FileType.REGULAR, PLAIN)
    system.write(file, 5, b"world")
    system.write(file, 0, b"hello")
    assert system.read(file, 0, 100) == (b"helloworld", True)
    assert system.read(file, 0, 4) == (b"hell", False)
    assert system.read(file, 10, 4) == (b"", True)
    system.set(file, FileAttributes(size=3))
    system.set(file, FileAttributes(size=5))
    assert system.read(file, 0, 100) == (b"hel\0\0", True)


def test_the_capacity_is_the_limit() -> None:
    system = files(ENTRY_SIZE + 100)
    file = system.make(system.root, b"a", FileType.REGULAR, PLAIN)
    system.write(file, 0, bytes(100))
    for exceeding in (
        lambda: system.write(file, 100, b"x"),
        lambda: system.write(file, 1 << 62, b"x"),
        lambda: system.set(file, FileAttributes(size=1 << 63)),
        lambda: system.make(system.root, b"b", FileType.REGULAR, PLAIN),
        lambda: system.link(file, system.root, b"b"),
    ):
        with pytest.raises(NfsError, match="NOSPC"):
            exceeding()
    assert system.read(file, 0, 200) == (bytes(100), True)
    assert system.free == 0
    system.remove(system.root, b"a")
    assert system.used == 0


def test_handles_of_what_is_gone_are_stale() -> None:
    system = files()
    file = system.make(system.root, b"a", FileType.REGULAR, PLAIN)
    handle = system.handle(file)
    assert system.find(handle) is file
    system.link(file, system.root, b"b")
    system.remove(system.root, b"a")
    assert system.find(handle) is file
    system.remove(system.root, b"b")
    with pytest.raises(NfsError, match="STALE"):
        system.find(handle)
    with pytest.raises(NfsError, match="STALE"):
        FileSystem(1000, b"run 2", lambda: 0).find(system.handle(system.root))
    with pytest.raises(NfsError, match="BADHANDLE"):
        system.find(handle + b"\0")


def test_a_directory_cannot_be_moved_into_itself() -> None:
    system = files()
    outer = system.make(system.root, b"outer", FileType.DIRECTORY, PLAIN)
    inner = system.make(outer, b"inner", FileType.DIRECTORY, PLAIN)
    with pytest.raises(NfsError, match="INVAL"):
        system.rename(system.root, b"outer", inner, b"x")
    system.rename(outer, b"inner", system.root, b"inner")
    assert (outer.links, inner.parent, system.root.links) == (2, system.root, 4)


@given(st.binary(max_size=300))
def test_names(name: bytes) -> None:
    system = files()
    fine = 0 < len(name) <= 255 and b"/" not in name and b"\0" not in name and name not in (b".", b"..")
    try:
        file = system.make(system.root, name, FileType.REGULAR, PLAIN)
    except NfsError:
        assert not fine
    else:
        assert fine
        assert system.lookup(system.root, name) is file


class Directories(RuleBasedStateMachine):
    """Whatever is made, moved and removed: the capacity used is that of what is there, and all that is there has a way
    to the root."""

    directories = Bundle("directories")
    names = st.sampled_from([b"a", b"b", b"c"])

    def __init__(self) -> None:
        super().__init__()
        self.system = files(20_000)

    @rule(target=directories)
    def root(self) -> bytes:
        return self.system.handle(self.system.root)

    @rule(target=directories, where=directories, name=names, kind=st.sampled_from(FileType))
    def make(self, where: bytes, name: bytes, kind: FileType) -> bytes:
        return self.attempt(
            lambda: self.system.handle(
                self.system.make(self.system.find(where), name, kind, PLAIN, b"to"[: 2 * (kind == 5)])
            )
        )

    @rule(where=directories, size=st.integers(0, 3000))
    def write(self, where: bytes, size: int) -> None:
        self.attempt(lambda: self.system.write(self.system.find(where), size, b"data"))

    @rule(where=directories, name=names, of_directory=st.booleans())
    def remove(self, where: bytes, name: bytes, of_directory: bool) -> None:
        system = self.system
        self.attempt(lambda: (system.remove_directory if of_directory else system.remove)(system.find(where), name))

    @rule(source=directories, old=names, there=directories, new=names)
    def rename(self, source: bytes, old: bytes, there: bytes, new: bytes) -> None:
        self.attempt(lambda: self.system.rename(self.system.find(source), old, self.system.find(there), new))

    @rule(inode=directories, where=directories, name=names)
    def link(self, inode: bytes, where: bytes, name: bytes) -> None:
        self.attempt(lambda: self.system.link(self.system.find(inode), self.system.find(where), name))

    def attempt(self, what: Callable[[], bytes | None]) -> bytes:
        try:
            return what() or b""
        except NfsError:
            return b""

    @invariant()
    def accounts(self) -> None:
        entries, found, waiting = 0, {}, [self.system.root]
        subdirectories = {self.system.root.number: 2}
        while waiting:
            inode = waiting.pop()
            found[inode.number] = inode
            for entry in inode.entries.values():
                entries += 1
                if entry.inode.number not in found:
                    if entry.inode.kind is FileType.DIRECTORY:
                        assert entry.inode.parent is inode
                        subdirectories[entry.inode.number] = 2
                        subdirectories[inode.number] += 1
                    found[entry.inode.number] = entry.inode
                    waiting.append(entry.inode)
        assert len(found) == self.system.files
        assert self.system.used == entries * ENTRY_SIZE + sum(len(one.data) for one in found.values())
        for number, links in subdirectories.items():
            assert found[number].links == links
        assert self.system.used <= self.system.capacity


TestDirectories = Directories.TestCase
