"""The attributes of NFSv4: what the files in memory say, and what a client may set (RFC 8881, 5)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from rdmascope.dissect.onc.shapes.attributes4 import NUMBERED

from .file_system import MAX_FILE, MAX_LINKS, MAX_NAME, FileAttributes, FileSystem, Inode
from .status import NfsError, NfsStatus

SECOND = 1_000_000_000
LARGEST = 1 << 20
"""Bytes of a READ or a WRITE at most."""
LEASE_TIME = 90
"""Seconds, as announced; a client that is silent for longer loses nothing here."""
CLIENT_TIME = 1
_READ_ONLY: dict[str, Callable[[FileSystem, Inode], Any]] = {
    "supported_attrs": lambda files, inode: SUPPORTED,
    "type": lambda files, inode: inode.kind,
    "fh_expire_type": lambda files, inode: 0,
    "change": lambda files, inode: inode.change,
    "link_support": lambda files, inode: 1,
    "symlink_support": lambda files, inode: 1,
    "named_attr": lambda files, inode: 0,
    "fsid": lambda files, inode: {"major": int.from_bytes(files.instance, "big"), "minor": 0},
    "unique_handles": lambda files, inode: 1,
    "lease_time": lambda files, inode: LEASE_TIME,
    "rdattr_error": lambda files, inode: 0,
    "cansettime": lambda files, inode: 1,
    "case_insensitive": lambda files, inode: 0,
    "case_preserving": lambda files, inode: 1,
    "chown_restricted": lambda files, inode: 0,
    "filehandle": lambda files, inode: files.handle(inode),
    "fileid": lambda files, inode: inode.number,
    "files_avail": lambda files, inode: files.free_files,
    "files_free": lambda files, inode: files.free_files,
    "files_total": lambda files, inode: files.files + files.free_files,
    "homogeneous": lambda files, inode: 1,
    "maxfilesize": lambda files, inode: MAX_FILE,
    "maxlink": lambda files, inode: MAX_LINKS,
    "maxname": lambda files, inode: MAX_NAME,
    "maxread": lambda files, inode: LARGEST,
    "maxwrite": lambda files, inode: LARGEST,
    "no_trunc": lambda files, inode: 1,
    "numlinks": lambda files, inode: inode.links,
    "rawdev": lambda files, inode: {},
    "space_avail": lambda files, inode: files.free,
    "space_free": lambda files, inode: files.free,
    "space_total": lambda files, inode: files.capacity,
    "space_used": lambda files, inode: inode.size,
    "time_access": lambda files, inode: time4(inode.atime),
    "time_delta": lambda files, inode: {"seconds": 0, "nseconds": 1},
    "time_metadata": lambda files, inode: time4(inode.ctime),
    "time_modify": lambda files, inode: time4(inode.mtime),
    "mounted_on_fileid": lambda files, inode: inode.number,
    "suppattr_exclcreat": lambda files, inode: AT_CREATION,
}
_SETTABLE: dict[str, Callable[[FileSystem, Inode], Any]] = {
    "size": lambda files, inode: inode.size,
    "mode": lambda files, inode: inode.mode,
    "owner": lambda files, inode: b"%d" % inode.uid,
    "owner_group": lambda files, inode: b"%d" % inode.gid,
}
_WRITE_ONLY = {"time_access_set", "time_modify_set"}
_VALUES = {**_READ_ONLY, **_SETTABLE}
_NUMBERS = {name: number for number, (name, _) in NUMBERED.items()}
SUPPORTED: tuple[int, ...] = tuple(sorted(_NUMBERS[name] for name in (*_VALUES, *_WRITE_ONLY)))
AT_CREATION: tuple[int, ...] = tuple(sorted(_NUMBERS[name] for name in (*_SETTABLE, *_WRITE_ONLY)))
"""What an exclusive creation may set along (RFC 8881, 5.8.1.14)."""


def time4(nanoseconds: int) -> dict[str, int]:
    return {"seconds": nanoseconds // SECOND, "nseconds": nanoseconds % SECOND}


def requested(files: FileSystem, inode: Inode, bits: Iterable[int]) -> dict[str, Any]:
    """The values of those attributes that are supported; the others are left out."""
    if any(NUMBERED[bit][0] in _WRITE_ONLY for bit in bits if bit in NUMBERED):
        raise NfsError(NfsStatus.INVAL)
    names = (NUMBERED[bit][0] for bit in bits if bit in NUMBERED)
    return {name: _VALUES[name](files, inode) for name in names if name in _VALUES}


def wanted(given: dict[str, Any], now: int) -> FileAttributes:
    """What a client wants to set."""
    for name in given:
        if name in _READ_ONLY:
            raise NfsError(NfsStatus.INVAL)
        if name not in _SETTABLE and name not in _WRITE_ONLY:
            raise NfsError(NfsStatus.ATTRNOTSUPP)
    return FileAttributes(
        given.get("mode"),
        _number(given.get("owner")),
        _number(given.get("owner_group")),
        given.get("size"),
        _time(given.get("time_access_set"), now),
        _time(given.get("time_modify_set"), now),
    )


def numbers(given: Iterable[str]) -> tuple[int, ...]:
    """The bitmap of attributes by name."""
    return tuple(sorted(_NUMBERS[name] for name in given))


def _number(owner: bytes | None) -> int | None:
    """A user or group by number (RFC 8881, 5.9); names are not known here."""
    if owner is None:
        return None
    if not owner.isdigit() or int(owner) >= 1 << 32:
        raise NfsError(NfsStatus.BADOWNER)
    return int(owner)


def _time(given: dict[str, Any] | None, now: int) -> int | None:
    if given is None:
        return None
    if given["set_it"] != CLIENT_TIME:
        return now
    if given["time"]["nseconds"] >= SECOND:
        raise NfsError(NfsStatus.INVAL)
    return int(given["time"]["seconds"]) * SECOND + int(given["time"]["nseconds"])
