"""One line per message, in the words that tshark's info column has made familiar; of a whole batch in columns.

Usual messages, complete and in one piece, are read in columns; functions for one message handle the others. A test
holds the two equal.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from ..arrays import Bytes, Int64s, among, gathered, places, unique
from ..layers.oncrpc_codes import GSS_PROCEDURE_NAMES, RPCSEC_GSS_DATA
from ..named_tuple import NamedTuple
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
from .file_operations import TYPE_NAMES
from .naming import handle_hash, stateid_hash
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
from .shapes.decode_cache import MAX_NODES, Layouts, field_of, flat_nodes, node_value, result_nodes
from .shapes.language import declared
from .shapes.nfs4 import CB_COMPOUND4ARGS, COMPOUND4ARGS, COMPOUND4RES
from .shapes.nfs4_types import CLIENTID4
from .shapes.registry import procedure_shape
from .shapes.rfc1813 import TYPES as TYPES3
from .shapes.rfc7530 import TYPES as TYPES4
from .shapes.types import (
    HANDLE,
    Node,
    SparseBytes,
    XdrInteger,
    XdrList,
    XdrOpaque,
    XdrOptional,
    XdrStruct,
    XdrType,
    decode,
)
from .status import OK, nfs4_status, reply_status
from .xdr import Data

TO_END_OF_FILE = (1 << 64) - 1
"""A length (RFC 8881, 18.10)."""

MAX_NAME = 255
"""Characters of a file name that are shown."""

_ACCESS4 = TYPES4["access4"]
_TYPES = {number: name for number, name in TYPE_NAMES.items() if number in TYPES3["ftype3"].values}


def printable_name(raw: memoryview | bytes) -> str:
    """The first characters of a file name."""
    text = bytes(raw[: 4 * MAX_NAME]).decode("utf-8", "backslashreplace")[:MAX_NAME]
    return text if text.isprintable() else "".join(character if character.isprintable() else "?" for character in text)


def stable_word(stable: int) -> str:
    """How a WRITE was committed: 'FILE_SYNC'."""
    return TYPES3["stable_how"].values.get(stable) or f"stable {stable}"


def length_words(length: int) -> str:
    """' Len: 4096', ' Len: to end of file'."""
    return f" Len: {'to end of file' if length == TO_END_OF_FILE else length}"


def _rights(mask: int) -> str:
    """'READ LOOKUP' (RFC 1813, 3.3.4; RFC 8881, 18.1; RFC 8276, 8.6)."""
    names = [name.removeprefix("ACCESS4_") for bit, name in _ACCESS4.flags.items() if mask & bit]
    rest = mask & ~sum(_ACCESS4.flags)
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
    return f" Mode: {TYPES3['createmode3'].values.get(mode, mode)}"


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
    nodes: dict[str, Node] = {}
    for node in root.walk():
        if node.value is not None:
            nodes.setdefault(node.name, node)
            if isinstance(node.type, XdrOpaque) and node.type.form == HANDLE:
                nodes.setdefault("handle", node)
    return nodes | flat_nodes(root)


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
    """Whether a procedure is COMPOUND or CB_COMPOUND."""
    return procedure == 1 and ((program == NFS and version == 4) or (program == NFS_CALLBACK and version == 1))


@lru_cache(maxsize=1024)
def title(program: int, version: int, procedure: int, minor: int | None) -> str:
    """Program, version and procedure: 'NFS V4.2 COMPOUND'."""
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
    return _text_of(_behind_comma(_pieces(_MessageFields(_values(GIVEN, results)), _GIVEN)))


def _values(layouts: Layouts, view: memoryview) -> dict[str | None, Any]:
    """The fields of arguments or results, where they are known to stand, else decoded; under None why not all are."""
    layout = layouts.of(view, 0)
    if layout is not None:
        return {name: field_of(name, view[slice(*span)]) for name, span in layout.places.items()}
    layouts.learn(view, 0)
    root, _, problem = decode(layouts.type, "", SparseBytes([(0, view)], len(view)), 0, len(view), MAX_NODES)
    values: dict[str | None, Any] = {name: node_value(node) for name, node in layouts.nodes(root).items()}
    return values | {None: problem} if problem else values


def compound_status(status: int) -> str:
    """The status of a COMPOUND by its name: 'NFS4_OK'."""
    return "NFS4_OK" if status == 0 else nfs4_status(status)


def _operations(numbers: tuple[int, ...], complete: bool, callback: bool) -> str:
    names = " | ".join(operation_names(numbers, callback))
    return (f" {names}" if names else "") + ("" if complete else " …")


_FIELDS = (
    "handle", "name", "newname", "access", "stateid", "offset", "count", "to_stateid", "to_offset", "client",
)  # fmt: skip


def _info_nodes(arguments: Node) -> dict[str, Node]:
    """The first of each of ``_FIELDS`` in a COMPOUND's arguments."""
    nodes = _with_client(flat_nodes(arguments), arguments)
    for node in arguments.walk():
        name = _BY_NAME.get(node.name) or ("access" if node.type is _ACCESS4 else "")
        if name and node_value(node) is not None:
            nodes.setdefault(name, node)
    if "newname" in nodes and nodes.get("name") is nodes["newname"]:
        del nodes["name"]  # LINK: in another directory than what the handle is of.
    return nodes


_BY_NAME = {
    "newname": "newname",  # RENAME, LINK
    "ca_dst_stateid": "to_stateid",  # COPY, CLONE
    "cl_dst_stateid": "to_stateid",
    "ca_dst_offset": "to_offset",
    "cl_dst_offset": "to_offset",
}


def _with_client(nodes: dict[str, Node], compound: Node) -> dict[str, Node]:
    """With the client ID that an operation itself has: those of owners say little."""
    nodes.pop("client", None)
    for operation in compound.children[-1].children if compound.children else ():
        for node in operation.children:
            if node.type is CLIENTID4 and node_value(node) is not None:
                nodes.setdefault("client", node)
    return nodes


def _given_nodes(results: Node) -> dict[str, Node]:
    """What a COMPOUND's results give to the client."""
    nodes = _with_client(result_nodes(results), results)
    for node in results.walk(lambda node: not isinstance(node.type, XdrList)):
        if node.type is _ACCESS4 and node_value(node) is not None:
            nodes.setdefault(node.name, node)
    return nodes


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
    """The path behind a file handle, or in its place."""
    return "" if path is None else f"{before} {path}"


def call4_words(body: memoryview, callback: bool, path: str | None = None) -> str:
    """The first handle, name, offset and length of a COMPOUND's operations, and what else they are about."""
    return _text_of(_call_pieces(_MessageFields(_values(_LAYOUTS[callback], body), path), False))


_FIELDS3 = (
    "handle", "name", "offset", "count", "stable", "access", "mode", "type", "to_handle", "to_name",
    "object", "path", "uid", "gid",
)  # fmt: skip
"""What is said of calls and replies of version 3, of what these begin with."""


_BEGINNINGS = declared(
    """
/* The first arguments of a procedure (RFC 1813, 3.3). */
struct handle { nfs_fh3 handle; };
struct handle_and_name { nfs_fh3 handle; filename3 name; };
struct two_names { nfs_fh3 handle; filename3 name; nfs_fh3 to_handle; filename3 to_name; };
struct handle_to_name { nfs_fh3 handle; nfs_fh3 to_handle; filename3 to_name; };
struct access_call { nfs_fh3 handle; access3 access; };
struct range { nfs_fh3 handle; offset3 offset; count3 count; };
struct write_call { nfs_fh3 handle; offset3 offset; count3 count; stable_how stable; };
struct create_call { nfs_fh3 handle; filename3 name; createmode3 mode; };
struct mknod_call { nfs_fh3 handle; filename3 name; ftype3 type; };
/* The first results of a success that say something: attributes, rights, a target, bytes read or written, the handle of
   what was looked up or made (RFC 1813, 3.3.1 to 3.3.14). */
struct made { post_op_fh3 object; };
struct lookup_reply { nfs_fh3 object; };
struct getattr_reply { ftype3 type; mode3 mode; uint32_t links; uid3 uid; gid3 gid; };
struct access_reply { post_op_attr attributes; access3 access; };
struct readlink_reply { post_op_attr attributes; nfspath3 path; };
struct read_reply { post_op_attr attributes; count3 count; };
struct write_reply { wcc_data attributes; count3 count; stable_how stable; };
    """,
    TYPES3,
)
_ARGUMENTS3 = {
    nfs3.HANDLE: "handle",
    nfs3.HANDLE_AND_NAME: "handle_and_name",
    nfs3.TWO_NAMES: "two_names",
    nfs3.HANDLE_TO_NAME: "handle_to_name",
}
_CALLS3: dict[int, XdrStruct] = {
    number: _BEGINNINGS[_ARGUMENTS3[procedure.arguments]]
    for number, procedure in enumerate(nfs3.PROCEDURES)
    if procedure.arguments
} | {
    nfs3.ACCESS: _BEGINNINGS["access_call"],
    nfs3.READ: _BEGINNINGS["range"],
    nfs3.COMMIT: _BEGINNINGS["range"],
    nfs3.WRITE: _BEGINNINGS["write_call"],
    nfs3.CREATE: _BEGINNINGS["create_call"],
    nfs3.MKNOD: _BEGINNINGS["mknod_call"],
}
_REPLIES3: dict[int, XdrStruct] = dict.fromkeys(nfs3.GIVING_HANDLES, _BEGINNINGS["made"]) | {
    nfs3.LOOKUP: _BEGINNINGS["lookup_reply"],
    nfs3.GETATTR: _BEGINNINGS["getattr_reply"],
    nfs3.ACCESS: _BEGINNINGS["access_reply"],
    nfs3.READLINK: _BEGINNINGS["readlink_reply"],
    nfs3.READ: _BEGINNINGS["read_reply"],
    nfs3.WRITE: _BEGINNINGS["write_reply"],
}


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
    return " …" if None in values else _text_of(_call_pieces(_MessageFields(values, path), True))


def asked_rights(arguments: memoryview) -> int | None:
    """The rights that a call of ACCESS asks for (RFC 1813, 3.3.4)."""
    rights: int | None = _values(_layouts3(_CALLS3[nfs3.ACCESS]), arguments).get("access")
    return rights


def reply3_words(procedure: int, view: memoryview, at: int, asked: int | None = None) -> str:
    """What a success says behind the status at ``at - 4``; ``asked``: rights, of the call."""
    if procedure not in _REPLIES3:
        return ""
    values = _values(_layouts3(_REPLIES3[procedure]), view[at:])
    if None in values:
        # A target that came through a Write chunk is not in the message.
        return "" if "path" in values else " …"
    if "access" in values:
        values["asked"] = values["access"] if asked is None else asked
    return _text_of(_pieces(_MessageFields(values), _ANSWERED))


Details = list[tuple[Int64s, tuple[Piece, ...]]]
"""Rows, and what is said of them."""


class _FieldKind(NamedTuple):
    """How fields of one kind are written."""

    text: Callable[[Any], str]
    column: Callable[[Bytes, Int64s, Int64s], NDArray[Any]]
    """Reads many fields from where they begin and end."""
    piece: Callable[[NDArray[Any]], Piece]


def _hashes(data: Bytes, starts: Int64s, ends: Int64s) -> NDArray[np.uint32]:
    view = data.data
    return np.array([crc32(view[a:b]) for a, b in zip(starts.tolist(), ends.tolist(), strict=True)], np.uint32)


_STATEID_CRCS = np.array([stateid_hash(bytes([byte])) ^ stateid_hash(b"\0") for byte in range(256)], np.uint16)
"""What a byte changes in the hash of one byte."""


def _stateids(data: Bytes, starts: Int64s, _: Int64s) -> NDArray[np.uint16]:
    """Hashes of stateids, as ``stateid_hash`` has them."""
    crcs = np.full(len(starts), 0xFFFF, np.uint16)
    for column in gathered(data, 16, starts).T:
        crcs = crcs >> 8 ^ _STATEID_CRCS[(crcs ^ column) & 0xFF]
    return ~crcs


def _names(data: Bytes, starts: Int64s, ends: Int64s) -> NDArray[np.object_]:
    view = data.data
    names = [printable_name(view[a:b]) for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]
    return np.array(names, object)


def _numbers(data: Bytes, starts: Int64s, ends: Int64s) -> NDArray[np.uint64]:
    """Integers of 4 or 8 bytes."""
    size = int(ends[0] - starts[0]) if len(starts) else 4
    return gathered(data, size, starts).view(f">u{size}")[:, 0].astype(np.uint64)


_NUMBER = _FieldKind(str, _numbers, Decimal)
_HANDLE = _FieldKind(lambda raw: f"{handle_hash(raw):08x}", _hashes, lambda hashes: Hexadecimal(hashes, 8))
_STATEID = _FieldKind(lambda raw: f"{stateid_hash(raw):04x}", _stateids, lambda hashes: Hexadecimal(hashes, 4))
_NAME = _FieldKind(printable_name, _names, lambda names: Texts(names.tolist()))
_CLIENT = _FieldKind("{:016x}".format, _numbers, lambda numbers: Hexadecimal(numbers, 16))
_KINDS = (
    dict.fromkeys(("handle", "to_handle", "object"), _HANDLE)
    | dict.fromkeys(("name", "newname", "to_name", "path"), _NAME)
    | dict.fromkeys(("stateid", "to_stateid"), _STATEID)
    | {"client": _CLIENT}
)
"""Kinds of the fields that are not plain numbers."""


class _MessageFields:
    """The fields of one message, for its words."""

    def __init__(self, values: Mapping[Any, Any], path: str | None = None) -> None:
        self._path = path
        self._values = {name: value for name, value in values.items() if name != "object" or value}
        self.known = self._values.keys()
        """Names of the fields."""
        self.named = path is not None
        """The path is known."""

    def field(self, name: str) -> Piece:
        """A field as it is written."""
        return _KINDS.get(name, _NUMBER).text(self._values[name])

    def words(self, word: Callable[..., str], *names: str) -> Piece:
        """What is said of fields that are numbers."""
        return word(*(self._values[name] for name in names))

    def path(self, before: str) -> Piece:
        return path_words(self._path, before)


class _BatchFields:
    """The fields of many messages that have the same fields, for their words."""

    def __init__(self, columns: Mapping[str, NDArray[Any]], paths: KnownTexts | None = None) -> None:
        self._columns, self._paths = columns, paths
        self.known = columns.keys()
        self.named = paths is not None

    def field(self, name: str) -> Piece:
        return _KINDS.get(name, _NUMBER).piece(self._columns[name])

    def words(self, word: Callable[..., str], *names: str) -> Piece:
        if len(names) == 1:
            return words_of(self._columns[names[0]], word)
        distinct, which = np.unique(
            np.column_stack([self._columns[name] for name in names]), axis=0, return_inverse=True
        )
        return Texts([word(*numbers) for numbers in distinct.tolist()], which.ravel())

    def path(self, before: str) -> Piece:
        assert self._paths is not None
        return Texts([path_words(path, before) for path in self._paths.texts], self._paths.which)


def _text_of(pieces: Iterable[Piece]) -> str:
    """The words of one message."""
    return "".join(map(str, pieces))


def _call_pieces(call: _MessageFields | _BatchFields, directories: bool) -> Iterator[Piece]:
    """What is said of calls; ``directories``: handles beside names are those of directories."""
    known = call.known
    file = "handle" in known or "name" in known or call.named
    if "handle" in known:
        first = ", From " if "name" in known and "to_name" in known else ", "
        yield f"{first}DH: 0x" if directories and "name" in known else f"{first}FH: 0x"
        yield call.field("handle")
    if "name" in known and ("handle" in known or not call.named):
        yield "/"
        yield call.field("name")
    if call.named:
        yield call.path("" if "handle" in known else ",")
    if "to_name" in known:
        yield " To DH: 0x" if "name" in known else ", DH: 0x"
        yield from (call.field("to_handle"), "/", call.field("to_name"))
    yield from _behind_comma(_pieces(call, _BEHIND_FILE), not file)


def _behind_comma(pieces: Iterator[Piece], comma: bool = True) -> Iterator[Piece]:
    """Pieces that begin with a blank, behind a comma where one is due."""
    first = next(pieces, None)
    if first is not None:
        yield from (",", first) if comma else (first,)
        yield from pieces


class _Clause(NamedTuple):
    """What is said of messages that have all of these fields."""

    before: str
    fields: tuple[str, ...]
    word: Callable[..., str] | None = None
    """The word for numbers; without it, the first field is written as it is."""
    beside: str = ""
    """A field that has to be there, too."""


_BEHIND_FILE = (
    _Clause(" To: ", ("newname",)),
    _Clause("", ("access",), check_words),
    _Clause(" StateID: 0x", ("stateid",)),
    _Clause(" Offset: ", ("offset",)),
    _Clause("", ("count",), length_words, "offset"),
    _Clause(" To StateID: 0x", ("to_stateid",), None, "to_offset"),
    _Clause(" Offset: ", ("to_offset",), None, "to_stateid"),
    _Clause(" ", ("stable",), stable_word),
    _Clause("", ("mode",), create_words),
    _Clause(" ", ("type",), type_word),
    _Clause(" Client ID: 0x", ("client",)),
)
"""Clauses of calls, after the file."""
_GIVEN = (
    _Clause(" FH: 0x", ("object",)),
    _Clause(" StateID: 0x", ("stateid",)),
    _Clause("", ("supported", "access"), allowed_words),
    _Clause(" Client ID: 0x", ("client",)),
)
"""Clauses of the results of COMPOUNDs."""
_ANSWERED = (
    _Clause("", ("type", "mode", "uid", "gid"), attribute_words),
    _Clause("", ("asked", "access"), allowed_words),
    _Clause(" Path: ", ("path",)),
    _Clause(", FH: 0x", ("object",)),
    _Clause(" Len: ", ("count",)),
    _Clause(" ", ("stable",), stable_word),
)
"""Clauses of successful replies of version 3."""


def _pieces(said: _MessageFields | _BatchFields, clauses: Iterable[_Clause]) -> Iterator[Piece]:
    for before, names, word, beside in clauses:
        if said.known >= {*names, *([beside] if beside else [])}:
            yield from (before, said.field(names[0]) if word is None else said.words(word, *names))


Columns = dict[str, NDArray[Any]]


def _details(
    data: Bytes,
    starts: Int64s,
    ends: Int64s,
    declared: Iterable[tuple[Int64s, Layouts]],
    pieces: Callable[[Int64s, Columns], Iterable[Piece]],
    words: Callable[[int], str],
    named: NDArray[np.bool_] | None = None,
) -> Details:
    """What is said of values at ``data[starts[i]:ends[i]]``: ``pieces`` of rows that have the same fields, and
    ``words`` of each row whose layout is not known.

    ``declared``: rows and what their values are; ``named``: of which rows the path is known, for the rows of ``pieces``
    are alike in that, too.
    """
    left = np.ones(len(starts), np.bool_)
    alike: dict[tuple[Hashable, ...], list[tuple[Int64s, Columns]]] = {}
    for some, layouts in declared:
        for part, layout in layouts.learning(data, starts[some], ends[some]):
            whole = some[part]
            left[whole] = False
            kinds = [whole] if named is None else [whole[named[whole]], whole[~named[whole]]]
            for kind, rows in enumerate(kinds):
                if len(rows):
                    columns = {
                        name: _KINDS.get(name, _NUMBER).column(data, starts[rows] + first, starts[rows] + end)
                        for name, (first, end) in layout.places.items()
                        if name != "object" or end > first
                    }
                    alike.setdefault((kind, *columns), []).append((rows, columns))
    details: Details = []
    for parts in alike.values():
        rows, columns = parts[0]
        if len(parts) > 1:
            rows = np.concatenate([rows for rows, _ in parts])
            columns = {name: np.concatenate([of_part[name] for _, of_part in parts]) for name in columns}
        details.append((rows, tuple(pieces(rows, columns))))
    rest = places(left)
    if len(rest):
        details.append((rest, (Texts([words(row) for row in rest.tolist()]),)))
    return details


def _call_details(
    data: Bytes,
    starts: Int64s,
    ends: Int64s,
    declared: Iterable[tuple[Int64s, Layouts]],
    words: Callable[[int], str],
    paths: KnownTexts,
    directories: bool,
) -> Details:
    named = np.array([path is not None for path in paths.texts], np.bool_)[paths.which]

    def pieces(rows: Int64s, columns: Columns) -> Iterator[Piece]:
        return _call_pieces(_BatchFields(columns, paths.rows(rows) if named[rows[0]] else None), directories)

    return _details(data, starts, ends, declared, pieces, words, named)


def compound_details(data: Bytes, starts: Int64s, ends: Int64s, callback: bool, paths: KnownTexts) -> Details:
    """What COMPOUNDs with arguments at ``data[starts[i]:ends[i]]`` are about; ``paths`` of what each names."""

    def words(row: int) -> str:
        return call4_words(data.data[starts[row] : ends[row]], callback, paths.row(row))

    declared = [(np.arange(len(starts)), _LAYOUTS[callback])]
    return _call_details(data, starts, ends, declared, words, paths, False)


def nfs3_details(data: Bytes, procedures: Int64s, starts: Int64s, ends: Int64s, paths: KnownTexts) -> Details:
    """What calls of NFSv3 with arguments at ``data[starts[i]:ends[i]]`` are about; ``paths`` of what each names."""

    def words(row: int) -> str:
        return call3_words(int(procedures[row]), int(starts[row]), data.data[: int(ends[row])], paths.row(row))

    return _call_details(data, starts, ends, _declared3(procedures, _CALLS3), words, paths, True)


def _declared3(procedures: Int64s, shapes: Mapping[int, XdrStruct]) -> list[tuple[Int64s, Layouts]]:
    """Rows of each of these procedures, and what theirs begin with."""
    return [
        (places(procedures == number), _layouts3(shapes[number]))
        for number in unique(procedures).tolist()
        if number in shapes
    ]


def nfs3_reply_details(
    data: Bytes, procedures: Int64s, bodies: Int64s, ends: Int64s, rights: Callable[[Int64s], Int64s]
) -> Details:
    """What successful replies of version 3 say whose results are at ``bodies``, status first.

    ``rights`` gives those that some rows asked for; -1 where they are not known.
    """

    def pieces(rows: Int64s, columns: Columns) -> Iterator[Piece]:
        if "access" in columns:
            asked = rights(rows)
            columns["asked"] = np.where(asked < 0, columns["access"], asked.astype(np.uint64))
        return _pieces(_BatchFields(columns), _ANSWERED)

    def words(row: int) -> str:
        return reply3_words(int(procedures[row]), data.data[: int(ends[row])], int(bodies[row]) + 4)

    return _details(data, bodies + 4, ends, _declared3(procedures, _REPLIES3), pieces, words)


def rights_asked(data: Bytes, starts: Int64s, ends: Int64s) -> Int64s:
    """The rights that calls of ACCESS of NFSv3 ask for, arguments at ``starts``; -1 where these end before."""
    rights = np.full(len(starts), -1, np.int64)
    for rows, layout in _layouts3(_CALLS3[nfs3.ACCESS]).learning(data, starts, ends):
        first, end = layout.places["access"]
        rights[rows] = _numbers(data, starts[rows] + first, starts[rows] + end)
    return rights


def compound_reply_details(
    data: Bytes, starts: Int64s, bodies: Int64s, ends: Int64s, known: OperationSequences, callback: bool
) -> Details:
    """What COMPOUND results at ``data[bodies[i]:ends[i]]`` say, in the replies that begin at ``starts``."""
    columns = compound_replies(data, bodies, ends, known, callback)
    details: Details = []
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
            asked = places(giving)
            for some, pieces in _given(data, bodies[rows[asked]], ends[rows[asked]]):
                mine = asked[some]
                details.append((rows[mine], (*(chosen_words(word, mine) for word in words), *pieces)))
        mine = places(~giving)
        details.append((rows[mine], tuple(chosen_words(word, mine) for word in words)))
    rest = places(~columns.walked)
    if len(rest):
        view = data.data
        texts = [
            reply4_words(view, start, body, end, (), callback)
            for start, body, end in zip(starts[rest].tolist(), bodies[rest].tolist(), ends[rest].tolist(), strict=True)
        ]
        details.append((rest, (Texts(texts),)))
    return details


def _given(data: Bytes, starts: Int64s, ends: Int64s) -> Details:
    """Handles and stateids that results at ``data[starts[i]:ends[i]]`` give."""

    def pieces(_: Int64s, columns: Columns) -> Iterator[Piece]:
        return _behind_comma(_pieces(_BatchFields(columns), _GIVEN))

    def words(row: int) -> str:
        return given_words(data.data[starts[row] : ends[row]])

    return _details(data, starts, ends, [(np.arange(len(starts)), GIVEN)], pieces, words)
