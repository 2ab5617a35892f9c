"""One line per message, in the words that tshark's info column has made familiar; of a whole batch in columns.

In columns are read plain messages: whole in the capture and in one piece. What is unusual about one is left to the
functions for one message; a test holds the two equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from ..arrays import Bytes, Int64s, among, gathered, places, unique
from ..layers.oncrpc_codes import GSS_PROCEDURE_NAMES, RPCSEC_GSS_DATA
from ..text_columns import Decimal, Hexadecimal, KnownTexts, Piece, Texts, chosen_words, words_of
from . import nfs3
from .compound import (
    OPERATION_NAMES,
    OperationSequences,
    compound_call,
    compound_replies,
    compound_reply,
    operation_names,
)
from .hashes import handle_hash, stateid_hash
from .rpc_header import (
    NFS,
    NFS_CALLBACK,
    GssCredential,
    call_head,
    call_header,
    procedure_name,
    program_name,
    reply_header,
)
from .shapes.decode_cache import MAX_NODES, Layout, Layouts, field_of, flat_nodes, node_value, result_nodes
from .shapes.nfs4 import CB_COMPOUND4ARGS, COMPOUND4ARGS, COMPOUND4RES
from .shapes.nfs4_types import CLIENTID4
from .shapes.registry import procedure_shape
from .shapes.rfc1813 import (
    ACCESS3,
    COUNT3,
    CREATEMODE3,
    FILENAME3,
    FTYPE3,
    GID3,
    MODE3,
    NFS_FH3,
    NFSPATH3,
    OFFSET3,
    POST_OP_ATTR,
    POST_OP_FH3,
    STABLE_HOW,
    UID3,
    WCC_DATA,
)
from .shapes.rfc7530 import ACCESS4
from .shapes.types import (
    HANDLE,
    UINT32,
    Node,
    SparseBytes,
    XdrInteger,
    XdrList,
    XdrOpaque,
    XdrOptional,
    XdrStruct,
    XdrType,
    decode,
    extended,
    struct,
)
from .status import nfs4_status, reply_status
from .statuses import OK
from .xdr import Data

TO_END_OF_FILE = (1 << 64) - 1
"""A length (RFC 8881, 18.10)."""

MAX_NAME = 255
"""Characters of a file name that are shown."""

_STABLE = {0: "UNSTABLE", 1: "DATA_SYNC", 2: "FILE_SYNC"}
_TYPES = {
    1: "file",  # ftype3 (RFC 1813, 2.5)
    2: "directory",
    3: "block device",
    4: "character device",
    5: "symbolic link",
    6: "socket",
    7: "fifo",
}


def printable_name(raw: memoryview | bytes) -> str:
    """The first characters of a file name."""
    text = bytes(raw[: 4 * MAX_NAME]).decode("utf-8", "backslashreplace")[:MAX_NAME]
    return text if text.isprintable() else "".join(one if one.isprintable() else "?" for one in text)


def stable_word(stable: int) -> str:
    """'FILE_SYNC'."""
    return _STABLE.get(stable) or f"stable {stable}"


def length_words(length: int) -> str:
    """' Len: 4096', ' Len: to end of file'."""
    return f" Len: {'to end of file' if length == TO_END_OF_FILE else length}"


def _rights(mask: int) -> str:
    """'READ LOOKUP' (RFC 1813, 3.3.4; RFC 8881, 18.1; RFC 8276, 8.6)."""
    names = [name.removeprefix("ACCESS4_") for bit, name in ACCESS4.flags.items() if mask & bit]
    rest = mask & ~sum(ACCESS4.flags)
    return " ".join([*names, f"{rest:#x}"] if rest else names)


def check_words(mask: int) -> str:
    """What ACCESS asks for: ' Check: READ LOOKUP'."""
    return f" Check: {_rights(mask) or 'nothing'}"


def allowed_words(asked: int, allowed: int) -> str:
    """What it answers: ' Allowed: READ Denied: MODIFY'; ``asked`` of the call, or what the server supports of that."""
    denied = _rights(asked & ~allowed)
    return f" Allowed: {_rights(allowed) or 'nothing'}" + (f" Denied: {denied}" if denied else "")


def create_words(mode: int) -> str:
    """' Mode: EXCLUSIVE' (RFC 1813, 3.3.8)."""
    return f" Mode: {CREATEMODE3.values.get(mode, mode)}"


def type_word(type: int) -> str:
    return _TYPES.get(type) or f"type {type}"


def attribute_words(type: int, mode: int, uid: int, gid: int) -> str:
    """', file mode: 0644 uid: 0 gid: 0'."""
    return f", {type_word(type)} mode: 0{mode:o} uid: {uid} gid: {gid}"


_NAMES = ("dirpath", "mon_name", "caller_name", "name", "gqa_pathp", "gqa_id")
"""What such a call is about, where it has no file handle."""


def other_call_words(program: int, version: int, procedure: int, arguments: memoryview, path: str | None = None) -> str:
    """', FH: 0x6df97fdc /r1m svid: 7 Offset: 0 Len: to end of file', ', NFS V3 TCP'; ``path`` is that of the handle."""
    shape = procedure_shape(program, version, procedure)
    nodes = {} if shape is None or shape.arguments is None else _nodes(shape.arguments, arguments)
    words = " ".join([*([path] if path is not None and "handle" not in nodes else []), *_called(nodes, path)])
    return words and f", {words}"


def _called(nodes: Mapping[str, Node], path: str | None) -> Iterator[str]:
    for prefix in "", "r_":
        if (number := nodes.get(f"{prefix}prog")) is not None and isinstance(number.value, int):
            yield f"{program_name(number.value)} V{_text(nodes.get(f'{prefix}vers'))}"
    for name in "prot", "r_netid":
        if name in nodes:
            yield _text(nodes[name]).removeprefix("IPPROTO_")
    handle = nodes.get("handle")
    if handle is not None and isinstance(handle.value, memoryview):
        yield f"FH: {handle_hash(handle.value):#010x}" + (f" {path}" if path is not None else "")
    else:
        yield from [_text(nodes[name]) for name in _NAMES if name in nodes][:1]
    if "svid" in nodes:
        yield f"svid: {_text(nodes['svid'])}"
    if "offset" in nodes and "count" in nodes:
        length = nodes["count"].value
        # NLM has 0 for all behind the offset.
        words = " Len: to end of file" if length == 0 else length_words(length) if isinstance(length, int) else ""
        yield f"Offset: {_text(nodes['offset'])}{words}"
    if "stat" in nodes:
        yield _text(nodes["stat"])


def other_reply_words(program: int, version: int, procedure: int, results: memoryview) -> str:
    """', Port: 2049', ', FH: 0x6df97fdc'."""
    shape = procedure_shape(program, version, procedure)
    nodes = {} if shape is None or shape.results is None else _nodes(shape.results, results)
    words = []
    if "port" in nodes and "map" not in nodes:
        words.append(f"Port: {_text(nodes['port'])}")
    if "uaddr" in nodes:
        words.append(f"Address: {_text(nodes['uaddr'])}")
    handle = nodes.get("handle")
    if handle is not None and isinstance(handle.value, memoryview):
        words.append(f"FH: {handle_hash(handle.value):#010x}")
    return "".join(f", {word}" for word in words)


def _nodes(type: XdrType, view: memoryview) -> dict[str, Node]:
    """The first of each name, and of the flat fields."""
    root = decode(type, "", SparseBytes([(0, view)], len(view)), 0, len(view), MAX_NODES).root
    found: dict[str, Node] = {}
    for node in root.walk():
        if node.value is not None:
            found.setdefault(node.name, node)
            if isinstance(node.type, XdrOpaque) and node.type.form == HANDLE:
                found.setdefault("handle", node)
    return found | flat_nodes(root)


def _text(node: Node | None) -> str:
    if node is not None and isinstance(node.value, memoryview):
        return printable_name(node.value)
    if node is not None and isinstance(node.type, XdrInteger) and isinstance(node.value, int):
        return node.type.values.get(node.value, str(node.value))
    return "?"


def call_summary(
    data: Data, start: int, end: int, reduced: Sequence[tuple[int, int]] = (), path: str | None = None
) -> str:
    """'NFS V3 READ Call, FH: 0x62d40c52 /r1m Offset: 0 Len: 65536'; '' where the bytes hold no call.

    ``reduced`` are the Read chunks as (Position, length), as in ``compound_call``; ``path`` is that of what it names.
    """
    head = call_head(data, start, end)
    if head is None:
        return ""
    program, version, procedure, gss, offset = head
    body = start + offset
    detail = ""
    minor: int | None = None
    if gss is not None and gss.procedure != RPCSEC_GSS_DATA:
        detail = f", {GSS_PROCEDURE_NAMES.get(gss.procedure, 'RPCSEC_GSS')}"
    elif not offset:
        header = call_header(data, start, end)
        detail = f" [{header.reason}]" if header is not None and header.reason else ""
    elif is_compound(program, version, procedure):
        callback = program == NFS_CALLBACK
        call = compound_call(data, body, end, reduced, origin=start, callback=callback)
        minor = call.minor_version
        detail = _operations(call.operations, call.complete, callback) + call4_words(
            memoryview(data)[body:end], callback, path
        )
    elif program == NFS and version == 3:
        detail = call3_words(procedure, body, memoryview(data)[:end], path)
    else:
        detail = other_call_words(program, version, procedure, memoryview(data)[body:end], path)
    return f"{title(program, version, procedure, minor)} Call{detail}"


def reply_summary(
    program: int,
    version: int,
    procedure: int,
    data: Data,
    start: int,
    end: int,
    chunk_lengths: Sequence[int] = (),
    minor_version: int | None = None,
    gss: GssCredential | None = None,
    arguments: memoryview | None = None,
) -> str:
    """'NFS V4.2 COMPOUND Reply SEQUENCE | PUTFH | READ NFS4_OK'; '' where the bytes hold no reply.

    Program, version, procedure, ``minor_version``, ``gss`` and ``arguments`` are the call's; ``chunk_lengths`` what the
    Write chunks returned, as in ``compound_reply``.
    """
    header = reply_header(data, start, end, gss)
    if header is None:
        return ""
    known = f"{title(program, version, procedure, minor_version)} Reply"
    if header.error:
        return f"{known} Error: {header.error}"
    if header.body < 0:
        return f"{known} [{header.reason}]" if header.reason else known
    if is_compound(program, version, procedure):
        return known + reply4_words(data, start, header.body, end, chunk_lengths, program == NFS_CALLBACK)
    status = reply_status(program, version, procedure, data, header.body, end)
    if status is not None and status[0] != OK:
        return f"{known} {'Error: ' if status[1] else ''}{status[0]}"
    if program == NFS and version == 3:
        asked = asked_rights(arguments) if procedure == nfs3.ACCESS and arguments is not None else None
        return known + reply3_words(procedure, memoryview(data)[:end], header.body + 4, asked)
    return known + other_reply_words(program, version, procedure, memoryview(data)[header.body : end])


def is_compound(program: int, version: int, procedure: int) -> bool:
    """COMPOUND or CB_COMPOUND."""
    return procedure == 1 and ((program == NFS and version == 4) or (program == NFS_CALLBACK and version == 1))


@lru_cache(maxsize=1024)
def title(program: int, version: int, procedure: int, minor: int | None) -> str:
    """'NFS V4.2 COMPOUND'."""
    number = str(version) if minor is None or program != NFS else f"{version}.{minor}"
    return f"{program_name(program)} V{number} {procedure_name(program, version, procedure)}"


def reply4_words(
    data: Data, start: int, body: int, end: int, chunk_lengths: Sequence[int] = (), callback: bool = False
) -> str:
    """Operations and status of a COMPOUND's results at ``body``, in the reply that begins at ``start``."""
    reply = compound_reply(data, body, end, chunk_lengths, origin=start, callback=callback)
    numbers = tuple([op for op, _ in reply.results])
    words = _operations(numbers, reply.complete, callback)
    if reply.status is not None:
        words += f" {compound_status(reply.status)}"
    if not callback and gives_names(numbers):
        words += given_words(memoryview(data)[body:end])
    return words


def gives_names(numbers: tuple[int, ...]) -> bool:
    """Whether the results of these operations have handles or stateids that are new to the client."""
    return not _GIVING.isdisjoint(numbers)


def given_words(results: memoryview) -> str:
    """', FH: 0x765c6af5 StateID: 0xa76e': the first of each in a COMPOUND's results."""
    values = _values(GIVEN, results)
    words = ""
    if values.get("object"):
        words += f" FH: {handle_hash(values['object']):#010x}"
    if values.get("stateid"):
        words += f" StateID: {stateid_hash(values['stateid']):#06x}"
    if "supported" in values and "access" in values:
        words += allowed_words(values["supported"], values["access"])
    if "client" in values:
        words += client_words(values["client"])
    return words and f",{words}"


def _values(layouts: Layouts, view: memoryview) -> dict[str | None, Any]:
    """The fields of arguments or results, where they are known to stand, else decoded; under None why not all are."""
    layout = layouts.of(view, 0)
    if layout is not None:
        return {name: field_of(name, view[slice(*place)]) for name, place in layout.places.items()}
    layouts.learn(view, 0)
    root, _, problem = decode(layouts.type, "", SparseBytes([(0, view)], len(view)), 0, len(view), MAX_NODES)
    values: dict[str | None, Any] = {name: node_value(node) for name, node in layouts.nodes(root).items()}
    return values | {None: problem} if problem else values


def compound_status(status: int) -> str:
    """'NFS4_OK'."""
    return "NFS4_OK" if status == 0 else nfs4_status(status)


def _operations(numbers: tuple[int, ...], complete: bool, callback: bool) -> str:
    names = " | ".join(operation_names(numbers, callback))
    return (f" {names}" if names else "") + ("" if complete else " …")


_FIELDS = (
    "handle", "name", "newname", "access", "stateid", "offset", "count", "to_stateid", "to_offset", "client",
)  # fmt: skip


def _info_nodes(arguments: Node) -> dict[str, Node]:
    """Of a COMPOUND's arguments, by ``_FIELDS``."""
    found = _with_client(flat_nodes(arguments), arguments)
    for node in arguments.walk():
        name = _BY_NAME.get(node.name) or ("access" if node.type is ACCESS4 else "")
        if name and node_value(node) is not None:
            found.setdefault(name, node)
    if "newname" in found and found.get("name") is found["newname"]:
        del found["name"]  # LINK: in another directory than what the handle is of.
    return found


_BY_NAME = {
    "newname": "newname",  # RENAME, LINK
    "ca_dst_stateid": "to_stateid",  # COPY, CLONE
    "cl_dst_stateid": "to_stateid",
    "ca_dst_offset": "to_offset",
    "cl_dst_offset": "to_offset",
}


def _with_client(found: dict[str, Node], compound: Node) -> dict[str, Node]:
    """With the client ID that an operation itself has: those of owners say little."""
    found.pop("client", None)
    for operation in compound.children[-1].children if compound.children else ():
        for node in operation.children:
            if node.type is CLIENTID4 and node_value(node) is not None:
                found.setdefault("client", node)
    return found


def _given_nodes(results: Node) -> dict[str, Node]:
    """Of a COMPOUND's results: what they give to the client."""
    found = _with_client(result_nodes(results), results)
    for node in results.walk(lambda node: not isinstance(node.type, XdrList)):
        if node.type is ACCESS4 and node_value(node) is not None:
            found.setdefault(node.name, node)
    return found


GIVEN = Layouts(COMPOUND4RES, ("object", "stateid", "supported", "access", "client"), MAX_NODES, _given_nodes)
"""Where the handles, stateids, rights and client IDs stand that a COMPOUND's results give."""
_GIVING = frozenset(
    number
    for number, name in OPERATION_NAMES.items()
    if name in ("GETFH", "OPEN", "OPEN_CONFIRM", "OPEN_DOWNGRADE", "LOCK", "LOCKU", "LAYOUTGET", "COPY_NOTIFY")
    or name in ("ACCESS", "EXCHANGE_ID", "SETCLIENTID")
)
_LAYOUTS = {
    False: Layouts(COMPOUND4ARGS, _FIELDS, MAX_NODES, _info_nodes),
    True: Layouts(CB_COMPOUND4ARGS, _FIELDS, MAX_NODES, _info_nodes),
}
"""By whether it is a callback."""


def path_words(path: str | None, before: str = ",") -> str:
    """Of a call without a file handle, or behind that."""
    return "" if path is None else f"{before} {path}"


def call4_words(body: memoryview, callback: bool, path: str | None = None) -> str:
    """The first handle, name, offset and length of a COMPOUND's operations, and what else they are about."""
    values = _values(_LAYOUTS[callback], body)
    words = "".join(_words4(values))
    detail = _named(values.get("handle"), values.get("name"), path)
    return detail + (words if detail else words and f",{words}")


def _words4(values: Mapping[Any, Any]) -> Iterator[str]:
    """Behind the file, each after a blank."""
    if "newname" in values:
        yield f" To: {printable_name(values['newname'])}"
    if "access" in values:
        yield check_words(values["access"])
    if "stateid" in values:
        yield f" StateID: {stateid_hash(values['stateid']):#06x}"
    if "offset" in values:
        yield f" Offset: {values['offset']}"
        if "count" in values:
            yield length_words(values["count"])
    if "to_stateid" in values and "to_offset" in values:
        yield f" To StateID: {stateid_hash(values['to_stateid']):#06x} Offset: {values['to_offset']}"
    if "client" in values:
        yield client_words(values["client"])


def client_words(client: int) -> str:
    return f" Client ID: {client:#018x}"


def _named(handle: memoryview | bytes | None, name: memoryview | bytes | None, path: str | None) -> str:
    if handle is None and path is not None:
        return path_words(path)
    detail = "" if handle is None else f", FH: {handle_hash(handle):#010x}"
    if name is not None:
        detail += f"/{printable_name(name)}"
    return detail + path_words(path, "")


_FIELDS3 = (
    "handle", "name", "offset", "count", "stable", "access", "mode", "type", "to_handle", "to_name",
    "object", "path", "uid", "gid",
)  # fmt: skip
"""What is said of calls and replies of version 3, of what these begin with."""


def _beginning(begins: XdrStruct | None = None, /, **fields: XdrType) -> XdrStruct:
    return struct("", **fields) if begins is None else extended("", begins, **fields)


_ONE_HANDLE = _beginning(handle=NFS_FH3)
_WITH_NAME = _beginning(_ONE_HANDLE, name=FILENAME3)
_RANGE = _beginning(_ONE_HANDLE, offset=OFFSET3, count=COUNT3)
_ARGUMENTS3 = {
    nfs3.HANDLE: _ONE_HANDLE,
    nfs3.HANDLE_AND_NAME: _WITH_NAME,
    nfs3.TWO_NAMES: _beginning(_WITH_NAME, to_handle=NFS_FH3, to_name=FILENAME3),
    nfs3.HANDLE_TO_NAME: _beginning(_ONE_HANDLE, to_handle=NFS_FH3, to_name=FILENAME3),
}
_CALLS3 = {number: _ARGUMENTS3[one.arguments] for number, one in enumerate(nfs3.PROCEDURES) if one.arguments} | {
    nfs3.ACCESS: _beginning(_ONE_HANDLE, access=ACCESS3),
    nfs3.READ: _RANGE,
    nfs3.COMMIT: _RANGE,
    nfs3.WRITE: _beginning(_RANGE, stable=STABLE_HOW),
    nfs3.CREATE: _beginning(_WITH_NAME, mode=CREATEMODE3),
    nfs3.MKNOD: _beginning(_WITH_NAME, type=FTYPE3),
}
"""The first arguments of a procedure (RFC 1813, 3.3)."""
_COUNTED = _beginning(attributes=POST_OP_ATTR, count=COUNT3)
_REPLIES3 = dict.fromkeys(nfs3.GIVING_HANDLES, _beginning(object=POST_OP_FH3)) | {
    nfs3.LOOKUP: _beginning(object=NFS_FH3),
    nfs3.GETATTR: _beginning(type=FTYPE3, mode=MODE3, links=UINT32, uid=UID3, gid=GID3),
    nfs3.ACCESS: _beginning(attributes=POST_OP_ATTR, access=ACCESS3),
    nfs3.READLINK: _beginning(attributes=POST_OP_ATTR, path=NFSPATH3),
    nfs3.READ: _COUNTED,
    nfs3.WRITE: _beginning(attributes=WCC_DATA, count=COUNT3, stable=STABLE_HOW),
}
"""The first results of a success that say something: attributes, rights, a target, bytes read or written, the handle of
what was looked up or made (RFC 1813, 3.3.1 to 3.3.14)."""


@cache
def _layouts3(shape: XdrStruct) -> Layouts:
    def nodes(root: Node) -> dict[str, Node]:
        """What is optional, and not there, has no place."""
        return {child.name: child for child in root.children if not isinstance(child.type, XdrOptional)}

    return Layouts(shape, _FIELDS3, MAX_NODES, nodes)


def call3_words(number: int, body: int, view: memoryview, path: str | None = None) -> str:
    """Handles, names, offsets and lengths of the arguments (RFC 1813, 3.3)."""
    if number not in _CALLS3:
        return ""
    values = _values(_layouts3(_CALLS3[number]), view[body:])
    if None in values:
        return " …"
    words = f", {'DH' if 'name' in values else 'FH'}: {handle_hash(values['handle']):#010x}"
    if "name" in values:
        words += f"/{printable_name(values['name'])}"
    words += path_words(path, "")
    if "to_name" in values:
        if "name" in values:
            words = f", From{words[1:]} To"
        words += f"{' ' if 'name' in values else ', '}DH: {handle_hash(values['to_handle']):#010x}"
        words += f"/{printable_name(values['to_name'])}"
    return words + "".join(_words3(values))


def _words3(values: Mapping[Any, Any]) -> Iterator[str]:
    """Behind the file."""
    if "offset" in values:
        yield f" Offset: {values['offset']} Len: {values['count']}"
    if "access" in values:
        yield check_words(values["access"])
    if "stable" in values:
        yield f" {stable_word(values['stable'])}"
    if "mode" in values:
        yield create_words(values["mode"])
    if "type" in values:
        yield f" {type_word(values['type'])}"


def asked_rights(arguments: memoryview) -> int | None:
    """Of a call of ACCESS (RFC 1813, 3.3.4)."""
    found: int | None = _values(_layouts3(_CALLS3[nfs3.ACCESS]), arguments).get("access")
    return found


def reply3_words(procedure: int, view: memoryview, at: int, asked: int | None = None) -> str:
    """What a success says behind the status at ``at - 4``; ``asked``: rights, of the call."""
    if procedure not in _REPLIES3:
        return ""
    values = _values(_layouts3(_REPLIES3[procedure]), view[at:])
    if None in values:
        # A target that came through a Write chunk is not in the message.
        return "" if "path" in values else " …"
    if "uid" in values:
        return attribute_words(*(values[name] for name in ("type", "mode", "uid", "gid")))
    if "access" in values:
        return allowed_words(values["access"] if asked is None else asked, values["access"])
    if "path" in values:
        return f" Path: {printable_name(values['path'])}"
    if "object" in values:
        return f", FH: {handle_hash(values['object']):#010x}"
    words = f" Len: {values['count']}" if "count" in values else ""
    return words + (f" {stable_word(values['stable'])}" if "stable" in values else "")


Details = list[tuple[Int64s, tuple[Piece, ...]]]
"""Rows, and what is said of them."""

_HANDLE, _NAME, _OFFSET, _COUNT, _HAS_STABLE, _DIRECTORY, _TEXT, _STATEID, _RIGHTS, _MODE = (
    1 << bit for bit in range(10)
)
"""What is known of a call: its file handle, and so on; that the handle is a directory's; only a text."""
_SINGLY = frozenset(("newname", "to_stateid", "to_offset", "client", "to_name", "type"))
"""Fields of few calls, which are looked at one by one."""


@dataclass(slots=True)
class _Calls:
    """What is known of each call."""

    parts: NDArray[np.uint16]
    hashes: NDArray[np.uint32]
    """Of handles."""
    stateids: NDArray[np.uint16]
    """Hashes of them."""
    names: list[str]
    """Names, or texts."""
    offsets: NDArray[np.uint64]
    counts: NDArray[np.uint64]
    words: Int64s
    """stable_how of a WRITE, rights of an ACCESS, mode of a CREATE."""
    paths: KnownTexts
    """Of what each names."""

    @classmethod
    def of(cls, paths: KnownTexts) -> _Calls:
        count = len(paths.which)
        return cls(
            np.zeros(count, np.uint16),
            np.zeros(count, np.uint32),
            np.zeros(count, np.uint16),
            [""] * count,
            np.zeros(count, np.uint64),
            np.zeros(count, np.uint64),
            np.zeros(count, np.int64),
            paths,
        )

    def details(self) -> Details:
        return [
            (rows, self._pieces(part, rows))
            for part in unique(self.parts).tolist()
            for rows in [places(self.parts == part)]
        ]

    def _pieces(self, part: int, rows: Int64s) -> tuple[Piece, ...]:
        names = [self.names[row] for row in rows.tolist()] if part & (_NAME | _TEXT) else []
        if part & _TEXT:
            return (Texts(names),)
        found: list[Piece] = []
        paths = self.paths.rows(rows)
        named = any(path is not None for path in paths.texts)
        if part & _HANDLE:
            found += [", DH: 0x" if part & _DIRECTORY else ", FH: 0x", Hexadecimal(self.hashes[rows], 8)]
        elif named:
            named_in = [f"/{name}" if part & _NAME else "" for name in names or rows.tolist()]
            found.append(Texts([path_words(path) or name for path, name in zip(paths.listed(), named_in, strict=True)]))
            part &= ~_NAME
        if part & _NAME:
            found += ["/", Texts(names)]
        if named and part & _HANDLE:
            found.append(Texts([path_words(path, "") for path in paths.texts], paths.which))
        if part & _MODE:
            found.append(words_of(self.words[rows], create_words))
        if part & _RIGHTS:
            found += [*([] if found else [","]), words_of(self.words[rows], check_words)]
        if part & _STATEID:
            found += [" StateID: 0x" if found else ", StateID: 0x", Hexadecimal(self.stateids[rows], 4)]
        if part & _OFFSET:
            found += [" Offset: ", Decimal(self.offsets[rows])]
            if part & _COUNT:
                found += [" Len: ", Decimal(self.counts[rows])]
        if part & _HAS_STABLE:
            found += [" ", words_of(self.words[rows], stable_word)]
        return tuple(found)


def compound_details(data: Bytes, starts: Int64s, ends: Int64s, callback: bool, paths: KnownTexts) -> Details:
    """Of COMPOUNDs whose arguments are at ``data[starts[i]:ends[i]]``; ``paths`` of what each names."""
    calls = _Calls.of(paths)
    _read(calls, data, np.arange(len(starts)), starts, ends, _LAYOUTS[callback], _NAME)
    view = data.data
    for row in places(calls.parts == _TEXT).tolist():
        calls.names[row] = call4_words(view[starts[row] : ends[row]], callback, paths.row(row))
    return calls.details()


def _read(calls: _Calls, data: Bytes, rows: Int64s, starts: Int64s, ends: Int64s, layouts: Layouts, named: int) -> None:
    """Rows whose arguments are laid out as others'; the rest are looked at one by one."""
    calls.parts[rows] = _TEXT
    for some, layout in layouts.learning(data, starts[rows], ends[rows]):
        if layout.places.keys().isdisjoint(_SINGLY):
            _found(calls, data, rows[some], starts[rows[some]], layout, named)


def _found(calls: _Calls, data: Bytes, rows: Int64s, starts: Int64s, layout: Layout, named: int) -> None:
    """``named``: what is known of a call that has a name."""
    part = 0
    places = layout.places
    if "handle" in places:
        part |= _HANDLE
        first, end = places["handle"]
        calls.hashes[rows] = _hashes(data, starts + first, starts + end)
    if "name" in places:
        part |= named
        first, end = places["name"]
        _set_names(calls, data, rows, starts + first, starts + end)
    if "stateid" in places:
        part |= _STATEID
        calls.stateids[rows] = _stateids(data, starts + places["stateid"][0])
    if "offset" in places:
        part |= _OFFSET
        calls.offsets[rows] = _numbers(data, starts, *places["offset"])
        if "count" in places:
            part |= _COUNT
            calls.counts[rows] = _numbers(data, starts, *places["count"])
    for name, word in (("access", _RIGHTS), ("stable", _HAS_STABLE), ("mode", _MODE)):
        if name in places:
            part |= word
            calls.words[rows] = _numbers(data, starts, *places[name])
    calls.parts[rows] = part
    if part & _COUNT:
        calls.parts[rows[calls.counts[rows] == TO_END_OF_FILE]] = _TEXT


def nfs3_details(data: Bytes, procedures: Int64s, starts: Int64s, ends: Int64s, paths: KnownTexts) -> Details:
    """Of calls of NFS version 3 whose arguments are at ``data[starts[i]:ends[i]]``; ``paths`` of what each names."""
    calls = _Calls.of(paths)
    for number in unique(procedures).tolist():
        if number in _CALLS3:
            rows = places(procedures == number)
            _read(calls, data, rows, starts, ends, _layouts3(_CALLS3[number]), _DIRECTORY | _NAME)
    view = data.data
    for row in places(calls.parts == _TEXT).tolist():
        calls.names[row] = call3_words(int(procedures[row]), int(starts[row]), view[: int(ends[row])], paths.row(row))
    return calls.details()


def nfs3_reply_details(
    data: Bytes, procedures: Int64s, bodies: Int64s, ends: Int64s, rights: Callable[[Int64s], Int64s]
) -> Details:
    """Of successful calls of version 3 whose results are at ``bodies``, status first.

    ``rights`` gives those that some rows asked for; -1 where they are not known.
    """
    found: Details = []
    view = data.data
    for number in unique(procedures).tolist():
        rows = places(procedures == number)
        if number not in _REPLIES3:
            found.append((rows, ()))
            continue
        starts, left = bodies[rows] + 4, np.ones(len(rows), np.bool_)
        for some, layout in _layouts3(_REPLIES3[number]).learning(data, starts, ends[rows]):
            if "path" not in layout.places:
                left[some] = False
                found.append((rows[some], _pieces3(data, rows[some], starts[some], layout, rights)))
        rest = zip(starts[left].tolist(), ends[rows[left]].tolist(), strict=True)
        found.append((rows[left], (Texts([reply3_words(number, view[:end], at) for at, end in rest]),)))
    return found


def _pieces3(
    data: Bytes, rows: Int64s, starts: Int64s, layout: Layout, rights: Callable[[Int64s], Int64s]
) -> tuple[Piece, ...]:
    """``reply3_words`` of results that are laid out alike."""
    numbers = {name: _numbers(data, starts, *place) for name, place in layout.places.items() if name != "object"}
    if "uid" in numbers:
        words = np.column_stack([numbers[name] for name in ("type", "mode", "uid", "gid")])
        distinct, which = np.unique(words, axis=0, return_inverse=True)
        return (Texts([attribute_words(*one) for one in distinct.tolist()], which.ravel()),)
    if "access" in numbers:
        asked, allowed = rights(rows), numbers["access"]
        return (_allowed(np.where(asked < 0, allowed, asked), allowed),)
    if "object" in layout.places:
        first, behind = layout.places["object"]
        return ", FH: 0x", Hexadecimal(_hashes(data, starts + first, starts + behind), 8)
    pieces: tuple[Piece, ...] = (" Len: ", Decimal(numbers["count"])) if "count" in numbers else ()
    return pieces + ((" ", words_of(numbers["stable"], stable_word)) if "stable" in numbers else ())


def rights_asked(data: Bytes, starts: Int64s, ends: Int64s) -> Int64s:
    """Of calls of ACCESS of version 3 with their arguments at ``starts``; -1 where these end before."""
    found = np.full(len(starts), -1, np.int64)
    for rows, layout in _layouts3(_CALLS3[nfs3.ACCESS]).learning(data, starts, ends):
        found[rows] = _numbers(data, starts[rows], *layout.places["access"])
    return found


def _allowed(asked: NDArray[Any], allowed: NDArray[np.uint64]) -> Texts:
    """Of rights of 32 bits."""
    both = asked.astype(np.uint64) << np.uint64(32) | allowed
    return words_of(both, lambda rights: allowed_words(rights >> 32, rights & 0xFFFFFFFF))


def compound_reply_details(
    data: Bytes, starts: Int64s, bodies: Int64s, ends: Int64s, known: OperationSequences, callback: bool
) -> Details:
    """Of COMPOUND results at ``data[bodies[i]:ends[i]]``, in the replies that begin at ``starts``."""
    columns = compound_replies(data, bodies, ends, known, callback)
    found: Details = []
    rows = places(columns.walked)
    if len(rows):
        sequences = columns.sequences[rows]

        def operations(sequence: int) -> str:
            names = operation_names(known.sequences[sequence], callback)
            return f" {' | '.join(names)} " if names else " "

        words = words_of(sequences, operations), words_of(columns.statuses[rows], compound_status)
        kinds = unique(sequences)
        giving = among(
            sequences, kinds[[not callback and gives_names(known.sequences[kind]) for kind in kinds.tolist()]]
        )
        if giving.any():
            for mine, pieces in _given(data, places(giving), bodies[rows], ends[rows]):
                found.append((rows[mine], (*(chosen_words(word, mine) for word in words), *pieces)))
        mine = places(~giving)
        found.append((rows[mine], tuple(chosen_words(word, mine) for word in words)))
    rest = places(~columns.walked)
    if len(rest):
        view = data.data
        texts = [
            reply4_words(view, start, body, end, (), callback)
            for start, body, end in zip(starts[rest].tolist(), bodies[rest].tolist(), ends[rest].tolist(), strict=True)
        ]
        found.append((rest, (Texts(texts),)))
    return found


def _given(data: Bytes, rows: Int64s, bodies: Int64s, ends: Int64s) -> Details:
    """Handles and stateids that results at ``data[bodies[row]:ends[row]]`` give."""
    found: Details = []
    left = np.ones(len(rows), np.bool_)
    for mine, layout in GIVEN.learning(data, bodies[rows], ends[rows]):
        left[mine] = False
        starts, places = bodies[rows[mine]], layout.places
        pieces: list[Piece] = []
        if "object" in places and places["object"][1] > places["object"][0]:
            first, behind = places["object"]
            pieces += [", FH: 0x", Hexadecimal(_hashes(data, starts + first, starts + behind), 8)]
        if "stateid" in places:
            hashes = _stateids(data, starts + places["stateid"][0])
            pieces += [" StateID: 0x" if pieces else ", StateID: 0x", Hexadecimal(hashes, 4)]
        if "supported" in places and "access" in places:
            supported, allowed = (_numbers(data, starts, *places[name]) for name in ("supported", "access"))
            pieces += [*([] if pieces else [","]), _allowed(supported, allowed)]
        if "client" in places:
            clients = _numbers(data, starts, *places["client"])
            pieces += [*([] if pieces else [","]), Texts([client_words(client) for client in clients.tolist()])]
        found.append((rows[mine], tuple(pieces)))
    if left.any():
        view, single = data.data, rows[left]
        texts = [given_words(view[bodies[row] : ends[row]]) for row in single.tolist()]
        found.append((single, (Texts(texts),)))
    return found


def _hashes(data: Bytes, starts: Int64s, ends: Int64s) -> NDArray[np.uint32]:
    view = data.data
    return np.array([crc32(view[a:b]) for a, b in zip(starts.tolist(), ends.tolist(), strict=True)], np.uint32)


_STATEID_CRCS = np.array([stateid_hash(bytes([byte])) ^ stateid_hash(b"\0") for byte in range(256)], np.uint16)
"""What a byte changes in the hash of one byte."""


def _stateids(data: Bytes, starts: Int64s) -> NDArray[np.uint16]:
    """Hashes of stateids, as ``stateid_hash`` has them."""
    found = np.full(len(starts), 0xFFFF, np.uint16)
    for column in gathered(data, 16, starts).T:
        found = found >> 8 ^ _STATEID_CRCS[(found ^ column) & 0xFF]
    return ~found


def _set_names(calls: _Calls, data: Bytes, rows: Int64s, starts: Int64s, ends: Int64s) -> None:
    view, names = data.data, calls.names
    for row, start, end in zip(rows.tolist(), starts.tolist(), ends.tolist(), strict=True):
        names[row] = printable_name(view[start:end])


def _numbers(data: Bytes, starts: Int64s, first: int, end: int) -> NDArray[np.uint64]:
    """Integers of 4 or 8 bytes."""
    found = gathered(data, end - first, starts + first)
    return found.view(f">u{end - first}")[:, 0].astype(np.uint64)
