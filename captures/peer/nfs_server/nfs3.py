"""NFS version 3 (RFC 1813) as the probe's server answers it, on the files in memory."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from rdmascope.dissect.onc.shapes.rfc1813 import NFS3, TYPES
from rdmascope.dissect.onc.status import NFS3_STATUS

from ..endpoint import DdpItem, Parts
from ..rpc import Caller, RpcProgram, decoded, encoded, encoded_parts
from .file_system import (
    MAX_FILE,
    MAX_LINKS,
    MAX_NAME,
    SECOND,
    FileAttributes,
    FileSystem,
    FileType,
    Inode,
    NfsError,
    NfsStatus,
    file_time,
    meaningful_access,
    refuse,
)

Values = dict[str, Any]
LARGEST = 1 << 20
"""The most bytes of a READ, a WRITE or a directory listing."""
PREFERRED_LISTING = 32768
FILE_SYNC = 2
UNCHECKED, GUARDED, EXCLUSIVE = range(3)
SERVER_TIME, CLIENT_TIME = 1, 2
LINKS, SYMBOLIC_LINKS, HOMOGENEOUS, SETS_TIME = 1, 2, 8, 16
REPLIES_KEPT = 256
"""Replies that the server keeps of calls that change something: a client repeats such a call on another connection."""
OF_VERSION_3 = {
    NfsStatus.BADNAME: NfsStatus.EXIST,
    NfsStatus.BADCHAR: NfsStatus.ACCESS,
    NfsStatus.ATTRNOTSUPP: NfsStatus.NOTSUPP,
}
"""Statuses that version 3 does not have, and what it says instead."""


class Nfs3:
    """The procedures of NFSv3; each is a function in ``RUN`` from the arguments to the fields of the results."""

    def __init__(self, files: FileSystem) -> None:
        self.files = files
        self.program = RpcProgram({}, {number: self._procedure(number) for number in NFS3 if NFS3[number].results})
        self._replies: OrderedDict[bytes, Parts] = OrderedDict()

    def _procedure(self, number: int) -> Callable[[bytes, int, Caller], Parts]:
        shape = NFS3[number]
        run = RUN.get(shape.name)
        assert shape.arguments is not None and shape.results is not None
        arguments_type, results_type = shape.arguments, shape.results

        def answered(message: bytes, at: int, caller: Caller) -> Parts:
            arguments, _ = decoded(arguments_type, message, at)
            if shape.name not in CHANGES:
                return encoded_parts(results_type, self._results(run, arguments, caller))
            # RFC 1813, 4.4: a call that was carried out is not carried out a second time.
            key = hashlib.blake2b(message, digest_size=16).digest()
            if key not in self._replies:
                self._replies[key] = encoded_parts(results_type, self._results(run, arguments, caller))
                if len(self._replies) > REPLIES_KEPT:
                    self._replies.popitem(last=False)
            return self._replies[key]

        return answered

    def _results(self, run: Run | None, arguments: Values, caller: Caller) -> Values:
        if run is None:
            return {"status": NfsStatus.NOTSUPP}
        try:
            return {"status": 0, **run(self, arguments, caller)}
        except NfsError as error:
            status = OF_VERSION_3.get(error.status, error.status)
            return {"status": status if status in NFS3_STATUS else NfsStatus.INVAL}

    # What results are made of

    def attributes(self, inode: Inode) -> Values:
        """The attributes of a file as fattr3 (RFC 1813, 2.6)."""
        return {
            "type": inode.kind,
            "mode": inode.mode,
            "nlink": inode.links,
            "uid": inode.uid,
            "gid": inode.gid,
            "size": inode.size,
            "used": inode.size,
            "fsid": int.from_bytes(self.files.instance, "big"),
            "fileid": inode.number,
            "atime": file_time(inode.atime),
            "mtime": file_time(inode.mtime),
            "ctime": file_time(inode.ctime),
        }

    def changed(self, inode: Inode, before: Values) -> Values:
        """Attributes before and after a change, as wcc_data (RFC 1813, 2.6)."""
        return {"before": before, "after": self.attributes(inode)}

    def made(self, inode: Inode, directory: Inode, before: Values) -> Values:
        return {
            "obj": self.files.handle(inode),
            "obj_attributes": self.attributes(inode),
            "dir_wcc": self.changed(directory, before),
        }

    def place(self, where: Values) -> tuple[Inode, bytes, Values]:
        """The directory and the name that a diropargs3 names, and the directory's attributes before the call."""
        directory = self.files.find(where["dir"])
        return directory, where["name"], _before(directory)


def _before(inode: Inode) -> Values:
    return {"size": inode.size, "mtime": file_time(inode.mtime), "ctime": file_time(inode.ctime)}


def wanted(given: Values, now: int, caller: Caller | None = None) -> FileAttributes:
    """The attributes that a sattr3 sets.  ``caller``: of a new file, which belongs to the caller unless the sattr3
    names an owner.  ``now``: the server's time, in nanoseconds since 1970."""

    def time(which: str) -> int | None:
        how = given[which]["set_it"]
        if how == CLIENT_TIME:
            at = given[which][which]
            return int(at["seconds"]) * SECOND + int(at["nseconds"])
        return now if how == SERVER_TIME else None

    mode, uid, gid, size = (given[name].get(name) for name in ("mode", "uid", "gid", "size"))
    if caller is not None:
        uid, gid = caller.uid if uid is None else uid, caller.gid if gid is None else gid
    return FileAttributes(mode, uid, gid, size, time("atime"), time("mtime"))


Run = Callable[[Nfs3, Values, Caller], Values]


def _setattr(server: Nfs3, args: Values, caller: Caller) -> Values:
    inode = server.files.find(args["object"])
    before = _before(inode)
    refuse(args["guard"]["check"] and args["guard"]["obj_ctime"] != before["ctime"], NfsStatus.NOT_SYNC)
    server.files.set(inode, wanted(args["new_attributes"], server.files.now()))
    return {"obj_wcc": server.changed(inode, before)}


def _lookup(server: Nfs3, args: Values, caller: Caller) -> Values:
    directory, name, _ = server.place(args["what"])
    inode = server.files.lookup(directory, name)
    return {
        "object": server.files.handle(inode),
        "obj_attributes": server.attributes(inode),
        "dir_attributes": server.attributes(directory),
    }


def _access(server: Nfs3, args: Values, caller: Caller) -> Values:
    inode = server.files.find(args["object"])
    return {"obj_attributes": server.attributes(inode), "access": args["access"] & meaningful_access(inode)}


def _readlink(server: Nfs3, args: Values, caller: Caller) -> Values:
    inode = server.files.find(args["symlink"])
    return {"symlink_attributes": server.attributes(inode), "data": DdpItem(server.files.read_link(inode))}


def _read(server: Nfs3, args: Values, caller: Caller) -> Values:
    inode = server.files.find(args["file"])
    data, ended = server.files.read(inode, args["offset"], min(args["count"], LARGEST))
    return {"file_attributes": server.attributes(inode), "count": len(data), "eof": ended, "data": DdpItem(data)}


def _write(server: Nfs3, args: Values, caller: Caller) -> Values:
    inode = server.files.find(args["file"])
    data = args["data"][: args["count"]]
    refuse(len(data) != args["count"], NfsStatus.INVAL)
    before = _before(inode)
    server.files.write(inode, args["offset"], data)
    after = server.changed(inode, before)
    return {"file_wcc": after, "count": len(data), "committed": FILE_SYNC, "verf": server.files.instance}


def _create(server: Nfs3, args: Values, caller: Caller) -> Values:
    directory, name, before = server.place(args["where"])
    how, files = args["how"], server.files
    there = directory.entries.get(name)
    verifier = how.get("verf", b"")
    if there is not None:
        same = how["mode"] == EXCLUSIVE and there.inode.verifier == verifier
        refuse(how["mode"] != UNCHECKED and not same, NfsStatus.EXIST)
        inode = there.inode
        refuse(inode.kind is not FileType.REGULAR, NfsStatus.EXIST)
        size = how["obj_attributes"]["size"].get("size") if how["mode"] == UNCHECKED else None
        if size is not None:
            files.set(inode, FileAttributes(size=size))
        return server.made(inode, directory, before)
    attributes = FileAttributes(uid=caller.uid, gid=caller.gid)
    if how["mode"] != EXCLUSIVE:
        attributes = wanted(how["obj_attributes"], files.now(), caller)
    inode = files.make(directory, name, FileType.REGULAR, attributes)
    inode.verifier = verifier
    if attributes.size:
        files.set(inode, FileAttributes(size=attributes.size))
    return server.made(inode, directory, before)


def _mkdir(server: Nfs3, args: Values, caller: Caller) -> Values:
    directory, name, before = server.place(args["where"])
    attributes = wanted(args["attributes"], server.files.now(), caller)
    return server.made(server.files.make(directory, name, FileType.DIRECTORY, attributes), directory, before)


def _symlink(server: Nfs3, args: Values, caller: Caller) -> Values:
    directory, name, before = server.place(args["where"])
    attributes = wanted(args["symlink"]["symlink_attributes"], server.files.now(), caller)
    target = args["symlink"]["symlink_data"]
    return server.made(server.files.make(directory, name, FileType.LINK, attributes, target), directory, before)


def _remove(server: Nfs3, args: Values, remove: Callable[[Inode, bytes], None]) -> Values:
    directory, name, before = server.place(args["object"])
    remove(directory, name)
    return {"dir_wcc": server.changed(directory, before)}


def _rename(server: Nfs3, args: Values, caller: Caller) -> Values:
    source, old, source_before = server.place(args["from"])
    target, new, target_before = server.place(args["to"])
    server.files.rename(source, old, target, new)
    return {"fromdir_wcc": server.changed(source, source_before), "todir_wcc": server.changed(target, target_before)}


def _link(server: Nfs3, args: Values, caller: Caller) -> Values:
    inode = server.files.find(args["file"])
    directory, name, before = server.place(args["link"])
    server.files.link(inode, directory, name)
    return {"file_attributes": server.attributes(inode), "linkdir_wcc": server.changed(directory, before)}


def _listing(server: Nfs3, args: Values, room: int, plus: bool) -> Values:
    """Entries until the room is used up (3.3.16 and 3.3.17); "." and ".." come first."""
    directory, files = server.files.find(args["dir"]), server.files
    refuse(args["cookie"] and args["cookieverf"] != files.instance, NfsStatus.BAD_COOKIE)
    listed = [(name, entry.cookie, entry.inode) for name, entry in files.listing(directory, args["cookie"])]
    own = [(b".", 1, directory), (b"..", 2, directory.parent or directory)]
    entries: list[Values] = []
    left = min(room, LARGEST) - 4 - 88 - 8 - 8
    for name, cookie, inode in [entry for entry in own if entry[1] > args["cookie"]] + listed:
        entry: Values = {"fileid": inode.number, "name": name, "cookie": cookie}
        if plus:
            entry |= {"name_attributes": server.attributes(inode), "name_handle": files.handle(inode)}
        left -= 4 + len(encoded(TYPES["entryplus3" if plus else "entry3"], entry))
        if left < 0:
            break
        entries.append(entry)
    refuse(not entries and left < 0, NfsStatus.TOOSMALL)
    return {
        "dir_attributes": server.attributes(directory),
        "cookieverf": files.instance,
        "entries": entries,
        "eof": left >= 0,
    }


def _fsstat(server: Nfs3, args: Values, caller: Caller) -> Values:
    files = server.files
    inode = files.find(args["fsroot"])
    return {
        "obj_attributes": server.attributes(inode),
        "tbytes": files.capacity,
        "fbytes": files.free,
        "abytes": files.free,
        "tfiles": files.files + files.free_files,
        "ffiles": files.free_files,
        "afiles": files.free_files,
    }


def _fsinfo(server: Nfs3, args: Values, caller: Caller) -> Values:
    sizes = {f"{way}{what}": LARGEST for way in ("rt", "wt") for what in ("max", "pref")}
    return {
        "obj_attributes": server.attributes(server.files.find(args["fsroot"])),
        **sizes,
        "rtmult": 4096,
        "wtmult": 4096,
        "dtpref": PREFERRED_LISTING,
        "maxfilesize": MAX_FILE,
        "time_delta": {"nseconds": 1},
        "properties": LINKS | SYMBOLIC_LINKS | HOMOGENEOUS | SETS_TIME,
    }


def _pathconf(server: Nfs3, args: Values, caller: Caller) -> Values:
    return {
        "obj_attributes": server.attributes(server.files.find(args["object"])),
        "linkmax": MAX_LINKS,
        "name_max": MAX_NAME,
        "no_trunc": 1,
        "chown_restricted": 0,
        "case_preserving": 1,
    }


def _commit(server: Nfs3, args: Values, caller: Caller) -> Values:
    inode = server.files.find(args["file"])
    return {"file_wcc": server.changed(inode, _before(inode)), "verf": server.files.instance}


RUN: dict[str, Run] = {
    "GETATTR": lambda server, args, caller: {"obj_attributes": server.attributes(server.files.find(args["object"]))},
    "SETATTR": _setattr,
    "LOOKUP": _lookup,
    "ACCESS": _access,
    "READLINK": _readlink,
    "READ": _read,
    "WRITE": _write,
    "CREATE": _create,
    "MKDIR": _mkdir,
    "SYMLINK": _symlink,
    "REMOVE": lambda server, args, caller: _remove(server, args, server.files.remove),
    "RMDIR": lambda server, args, caller: _remove(server, args, server.files.remove_directory),
    "RENAME": _rename,
    "LINK": _link,
    "READDIR": lambda server, args, caller: _listing(server, args, args["count"], False),
    "READDIRPLUS": lambda server, args, caller: _listing(server, args, args["maxcount"], True),
    "FSSTAT": _fsstat,
    "FSINFO": _fsinfo,
    "PATHCONF": _pathconf,
    "COMMIT": _commit,
}
"""By name of the procedure; the one that is missing, MKNOD, is answered NFS3ERR_NOTSUPP."""
CHANGES = {"SETATTR", "CREATE", "MKDIR", "SYMLINK", "REMOVE", "RMDIR", "RENAME", "LINK"}
"""Procedures that change something, and must not be carried out twice for one call."""
