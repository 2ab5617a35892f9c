"""Files and directories in memory, within a capacity that no client can exceed.

What cannot be done raises ``NfsError`` with a status.  A file handle names an inode of this run: handles of removed
inodes and of other runs are stale.  The file system records permissions, but does not enforce them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TypeVar

# fmt: off
NfsStatus = IntEnum("NfsStatus", {
    "OK": 0, "NOENT": 2, "ACCESS": 13, "EXIST": 17, "NOTDIR": 20, "ISDIR": 21, "INVAL": 22, "NOSPC": 28,
    "MLINK": 31, "NAMETOOLONG": 63, "NOTEMPTY": 66, "STALE": 70, "BADHANDLE": 10001, "NOT_SYNC": 10002,
    "BAD_COOKIE": 10003, "NOTSUPP": 10004, "TOOSMALL": 10005, "BADTYPE": 10007, "DELAY": 10008, "SAME": 10009,
    "SHARE_DENIED": 10015, "NOFILEHANDLE": 10020, "MINOR_VERS_MISMATCH": 10021, "STALE_CLIENTID": 10022,
    "OLD_STATEID": 10024, "BAD_STATEID": 10025, "NOT_SAME": 10027, "SYMLINK": 10029, "RESTOREFH": 10030,
    "ATTRNOTSUPP": 10032, "NO_GRACE": 10033, "BADXDR": 10036, "LOCKS_HELD": 10037, "OPENMODE": 10038,
    "BADOWNER": 10039, "BADCHAR": 10040, "BADNAME": 10041, "OP_ILLEGAL": 10044, "BADSESSION": 10052, "BADSLOT":
    10053, "COMPLETE_ALREADY": 10054, "SEQ_MISORDERED": 10063, "SEQUENCE_POS": 10064, "REQ_TOO_BIG": 10065,
    "REP_TOO_BIG": 10066, "REP_TOO_BIG_TO_CACHE": 10067, "RETRY_UNCACHED_REP": 10068, "TOO_MANY_OPS": 10070,
    "OP_NOT_IN_SESSION": 10071, "CLIENTID_BUSY": 10074, "SEQ_FALSE_RETRY": 10076, "BAD_HIGH_SLOT": 10077,
    "NOT_ONLY_OP": 10081, "WRONG_TYPE": 10083,
})
# fmt: on
"""Statuses of NFSv4.  Those below 10009 mean the same in NFSv3; NOT_SYNC exists in NFSv3 only."""


class NfsError(Exception):
    """An operation failed with this status."""

    def __init__(self, status: NfsStatus) -> None:
        super().__init__(status.name)
        self.status = status


Found = TypeVar("Found")


def refuse(when: object, status: NfsStatus) -> None:
    """Raise NfsError with ``status`` if ``when`` is true."""
    if when:
        raise NfsError(status)


def present(found: Found | None, status: NfsStatus) -> Found:
    """The value itself; raises NfsError with ``status`` where it is None."""
    if found is None:
        raise NfsError(status)
    return found


MAX_NAME = 255
MAX_LINK = 4096
"""The most bytes of a symbolic link's target."""
MAX_LINKS = 1000
"""The most names that a file can have."""
MAX_FILE = (1 << 63) - 1
"""The largest file size that clients are told, in bytes.  It is far above any capacity: a client that knew of less
would never send the write that is refused for lack of space."""
ENTRY_SIZE = 1024
"""Bytes of the capacity that each name takes, in addition to the contents of its file."""
HANDLE_SIZE = 16
FIRST_COOKIE = 3
"""The cookie of a directory's first entry; 1 and 2 are "." and ".." where a protocol lists them (RFC 8881, 18.23.3)."""


READ, LOOKUP, MODIFY, EXTEND, DELETE, EXECUTE = (1 << bit for bit in range(6))
"""Bits of the rights that ACCESS asks for (RFC 1813, 3.3.4; RFC 8881, 18.1)."""


SECOND = 1_000_000_000
"""Nanoseconds."""


def file_time(nanoseconds: int) -> dict[str, int]:
    """A time since 1970 as the fields of nfstime3 and nfstime4."""
    return {"seconds": nanoseconds // SECOND, "nseconds": nanoseconds % SECOND}


class FileType(IntEnum):
    """Types of files, with the numbers of ftype3 and nfs_ftype4."""

    REGULAR = 1
    DIRECTORY = 2
    LINK = 5


@dataclass(slots=True)
class FileAttributes:
    """Attributes that a client sets; those that are None stay as they are.  Times are nanoseconds since 1970."""

    mode: int | None = None
    uid: int | None = None
    gid: int | None = None
    size: int | None = None
    atime: int | None = None
    mtime: int | None = None


@dataclass(slots=True, eq=False)
class Inode:
    """A file, a directory or a symbolic link."""

    number: int
    kind: FileType
    mode: int
    uid: int
    gid: int
    atime: int
    mtime: int
    ctime: int
    links: int = 1
    change: int = 1
    """The change attribute (RFC 8881, 5.8.1.4): one more with every change."""
    data: bytearray = field(default_factory=bytearray)
    """The contents of a file, or the target of a symbolic link."""
    entries: dict[bytes, DirectoryEntry] = field(default_factory=dict)
    """A directory's entries by name, in the order of their cookies."""
    parent: Inode | None = None
    """A directory's parent; the root is its own."""
    next_cookie: int = FIRST_COOKIE
    verifier: bytes = b""
    """The verifier of the exclusive creation that made it."""

    @property
    def size(self) -> int:
        return 4096 if self.kind is FileType.DIRECTORY else len(self.data)


@dataclass(frozen=True, slots=True)
class DirectoryEntry:
    cookie: int
    inode: Inode


class FileSystem:
    """One export.  ``instance`` tells the handles of one run from those of another; ``now`` gives nanoseconds."""

    def __init__(self, capacity: int, instance: bytes, now: Callable[[], int]) -> None:
        self.capacity = capacity
        self.instance = instance[:8].ljust(8, b"\0")
        self.now = now
        self.used = 0
        """Bytes of the capacity that names and contents take."""
        self._inodes: dict[int, Inode] = {}
        self._aliases: dict[bytes, Inode] = {}
        self._numbers = 1
        time = now()
        self.root = Inode(1, FileType.DIRECTORY, 0o777, 0, 0, time, time, time, links=2)
        self.root.parent = self.root
        self._inodes[1] = self.root

    # Handles

    def handle(self, inode: Inode) -> bytes:
        return self.instance + inode.number.to_bytes(8, "big")

    def alias(self, handle: bytes, inode: Inode) -> None:
        """Let a second handle, which clients may know beforehand, name the inode."""
        self._aliases[handle] = inode

    def find(self, handle: bytes) -> Inode:
        alias = self._aliases.get(handle)
        if alias is not None:
            handle = self.handle(alias)
        refuse(len(handle) != HANDLE_SIZE, NfsStatus.BADHANDLE)
        refuse(handle[:8] != self.instance, NfsStatus.STALE)
        return present(self._inodes.get(int.from_bytes(handle[8:], "big")), NfsStatus.STALE)

    @property
    def files(self) -> int:
        return len(self._inodes)

    @property
    def free(self) -> int:
        return self.capacity - self.used

    @property
    def free_files(self) -> int:
        return self.free // ENTRY_SIZE

    # Names

    def lookup(self, directory: Inode, name: bytes) -> Inode:
        need_directory(directory)
        if name == b".":
            return directory
        if name == b"..":
            return directory.parent or directory
        refuse(len(name) > MAX_NAME, NfsStatus.NAMETOOLONG)
        return present(directory.entries.get(name), NfsStatus.NOENT).inode

    def make(
        self, directory: Inode, name: bytes, kind: FileType, attributes: FileAttributes, target: bytes = b""
    ) -> Inode:
        """Make a file, a directory, or a symbolic link to ``target``.  Raises NfsError."""
        self._new_name(directory, name)
        refuse(len(target) > MAX_LINK, NfsStatus.NAMETOOLONG)
        self._charge(ENTRY_SIZE + len(target))
        self._numbers += 1
        time = self.now()
        mode = attributes.mode if attributes.mode is not None else 0o755 if kind is FileType.DIRECTORY else 0o644
        inode = Inode(self._numbers, kind, mode & 0o7777, attributes.uid or 0, attributes.gid or 0, time, time, time)
        inode.data += target
        inode.atime = time if attributes.atime is None else attributes.atime
        inode.mtime = time if attributes.mtime is None else attributes.mtime
        if kind is FileType.DIRECTORY:
            inode.links, inode.parent = 2, directory
            directory.links += 1
        self._inodes[inode.number] = inode
        self._enter(directory, name, inode)
        return inode

    def link(self, inode: Inode, directory: Inode, name: bytes) -> None:
        """Give a file another name.  Raises NfsError."""
        refuse(inode.kind is FileType.DIRECTORY, NfsStatus.ISDIR)
        self._new_name(directory, name)
        refuse(inode.links >= MAX_LINKS, NfsStatus.MLINK)
        self._charge(ENTRY_SIZE)
        inode.links += 1
        self._enter(directory, name, inode)
        self._changed(inode)

    def remove(self, directory: Inode, name: bytes) -> None:
        """Remove the name of a file, and the file itself with its last name.  Raises NfsError."""
        inode = self._named(directory, name)
        refuse(inode.kind is FileType.DIRECTORY, NfsStatus.ISDIR)
        self._drop(directory, name)

    def remove_directory(self, directory: Inode, name: bytes) -> None:
        """Remove an empty directory.  Raises NfsError."""
        inode = self._named(directory, name)
        refuse(inode.kind is not FileType.DIRECTORY, NfsStatus.NOTDIR)
        refuse(inode.entries, NfsStatus.NOTEMPTY)
        self._drop(directory, name)

    def rename(self, source: Inode, old: bytes, target: Inode, new: bytes) -> None:
        """Rename an inode.  What has the new name is replaced: a file by a file, an empty directory by a directory (RFC
        8881, 18.26.3).  Raises NfsError."""
        inode = self._named(source, old)
        check_name(new)
        need_directory(target)
        there = target.entries.get(new)
        if there is not None and there.inode is inode:
            return
        refuse(inode.kind is FileType.DIRECTORY and inode in ancestors(target), NfsStatus.INVAL)
        if there is not None:
            refuse((there.inode.kind is FileType.DIRECTORY) != (inode.kind is FileType.DIRECTORY), NfsStatus.EXIST)
            refuse(there.inode.entries, NfsStatus.NOTEMPTY)
            self._drop(target, new)
        del source.entries[old]
        self._touch(source)
        if inode.kind is FileType.DIRECTORY and source is not target:
            inode.parent = target
            source.links -= 1
            target.links += 1
        self._enter(target, new, inode)
        self._changed(inode)

    def listing(self, directory: Inode, cookie: int) -> Iterator[tuple[bytes, DirectoryEntry]]:
        """Names and entries of a directory whose cookies are greater than ``cookie``."""
        need_directory(directory)
        return ((name, entry) for name, entry in list(directory.entries.items()) if entry.cookie > cookie)

    # Contents

    def read(self, inode: Inode, offset: int, count: int) -> tuple[bytes, bool]:
        """Up to ``count`` bytes at ``offset``, and whether the file ends with them.  Raises NfsError."""
        need_file(inode)
        data = bytes(memoryview(inode.data)[offset : offset + count])
        return data, offset + len(data) >= len(inode.data)

    def write(self, inode: Inode, offset: int, data: bytes) -> None:
        need_file(inode)
        self._resize(inode, max(len(inode.data), offset + len(data) if data else 0))
        inode.data[offset : offset + len(data)] = data
        self._touch(inode)

    def read_link(self, inode: Inode) -> bytes:
        refuse(inode.kind is not FileType.LINK, NfsStatus.INVAL)
        return bytes(inode.data)

    def set(self, inode: Inode, wanted: FileAttributes) -> None:
        if wanted.size is not None:
            need_file(inode)
            self._resize(inode, wanted.size)
            self._touch(inode)
        if wanted.mode is not None:
            inode.mode = wanted.mode & 0o7777
        inode.uid = inode.uid if wanted.uid is None else wanted.uid
        inode.gid = inode.gid if wanted.gid is None else wanted.gid
        inode.atime = inode.atime if wanted.atime is None else wanted.atime
        inode.mtime = inode.mtime if wanted.mtime is None else wanted.mtime
        self._changed(inode)

    # Inside

    def _charge(self, size: int) -> None:
        refuse(self.used + size > self.capacity, NfsStatus.NOSPC)
        self.used += size

    def _resize(self, inode: Inode, size: int) -> None:
        more = size - len(inode.data)
        self._charge(more)
        if more < 0:
            del inode.data[size:]
        else:
            inode.data += bytes(more)

    def _new_name(self, directory: Inode, name: bytes) -> None:
        check_name(name)
        need_directory(directory)
        refuse(directory.number not in self._inodes, NfsStatus.STALE)
        refuse(name in directory.entries, NfsStatus.EXIST)

    def _named(self, directory: Inode, name: bytes) -> Inode:
        check_name(name)
        return self.lookup(directory, name)

    def _enter(self, directory: Inode, name: bytes, inode: Inode) -> None:
        directory.entries[name] = DirectoryEntry(directory.next_cookie, inode)
        directory.next_cookie += 1
        self._touch(directory)

    def _drop(self, directory: Inode, name: bytes) -> None:
        inode = directory.entries.pop(name).inode
        self._touch(directory)
        inode.links -= 1
        self.used -= ENTRY_SIZE
        if inode.kind is FileType.DIRECTORY:
            directory.links -= 1
        elif inode.links:
            self._changed(inode)
            return
        self.used -= len(inode.data)
        del self._inodes[inode.number]

    def _touch(self, inode: Inode) -> None:
        inode.mtime = self.now()
        self._changed(inode)

    def _changed(self, inode: Inode) -> None:
        inode.ctime = self.now()
        inode.change += 1


def ancestors(directory: Inode) -> Iterator[Inode]:
    """The directory itself, its parent, and so on up to the root."""
    while True:
        yield directory
        if directory.parent is None or directory.parent is directory:
            return
        directory = directory.parent


def meaningful_access(inode: Inode) -> int:
    """The rights that make sense for the type of the inode; every caller has them, since permissions are not
    enforced."""
    if inode.kind is FileType.DIRECTORY:
        return READ | LOOKUP | MODIFY | EXTEND | DELETE
    return READ | MODIFY | EXTEND | EXECUTE


def need_directory(inode: Inode) -> None:
    refuse(inode.kind is not FileType.DIRECTORY, NfsStatus.NOTDIR)


def need_file(inode: Inode) -> None:
    if inode.kind is not FileType.REGULAR:
        raise NfsError(NfsStatus.ISDIR if inode.kind is FileType.DIRECTORY else NfsStatus.INVAL)


def check_name(name: bytes) -> None:
    """Raise NfsError for a name that must not be made, removed or renamed."""
    refuse(not name, NfsStatus.INVAL)
    refuse(len(name) > MAX_NAME, NfsStatus.NAMETOOLONG)
    refuse(b"/" in name or b"\0" in name, NfsStatus.BADCHAR)
    refuse(name in (b".", b".."), NfsStatus.BADNAME)
