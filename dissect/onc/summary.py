"""One line per message, in the words that tshark's info column has made familiar; of a whole batch in columns.

In columns are read plain messages: whole in the capture and in one piece. What is unusual about one is left to the
functions for one message; a test holds the two equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from struct import error as StructError
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from ..arrays import Bytes, Int64s, among, big_endian_words, gathered, places, unique, words_at
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
from .shapes.rfc1813 import CREATEMODE3
from .shapes.rfc7530 import ACCESS4
from .shapes.types import HANDLE, Node, SparseBytes, XdrInteger, XdrList, XdrOpaque, XdrType, decode
from .status import nfs4_status, reply_status
from .statuses import OK
from .xdr import Data, Malformed, hyper, opaque, opaque_at, word, words2

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


def _values(layouts: Layouts, view: memoryview) -> dict[str, Any]:
    """The fields of arguments or results, where they are known to stand, else decoded."""
    layout = layouts.of(view, 0)
    if layout is not None:
        return {name: field_of(name, view[slice(*place)]) for name, place in layout.places.items()}
    layouts.learn(view, 0)
    root = decode(layouts.type, "", SparseBytes([(0, view)], len(view)), 0, len(view), MAX_NODES).root
    return {name: node_value(node) for name, node in layouts.nodes(root).items()}


def compound_status(status: int) -> str:
    """'NFS4_OK'."""
    return "NFS4_OK" if status == 0 else nfs4_status(status)


def _operations(numbers: tuple[int, ...], complete: bool, callback: bool) -> str:
    names = " | ".join(operation_names(numbers, callback))
    return (f" {names}" if names else "") + ("" if complete else " …")


def _handle(view: memoryview, at: int) -> str:
    return f"0x{handle_hash(opaque_at(view, at)[0]):08x}"


def _name(view: memoryview, at: int) -> str:
    return printable_name(view[at + 4 : at + 4 + word(view, at)[0]])


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


def _words4(values: Mapping[str, Any]) -> Iterator[str]:
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


def call3_words(number: int, body: int, view: memoryview, path: str | None = None) -> str:
    """Handles, names, offsets and lengths of the arguments (RFC 1813, 3.3)."""
    procedure = nfs3.nfs3_procedure(number)
    if procedure is None or not procedure.arguments:
        return ""
    try:
        handle, of = _handle(view, body), path_words(path, "")
        at = opaque(view, body)
        if number in (nfs3.READ, nfs3.COMMIT):
            return f", FH: {handle}{of} Offset: {hyper(view, at)[0]} Len: {word(view, at + 8)[0]}"
        if number == nfs3.ACCESS:
            return f", FH: {handle}{of}{check_words(word(view, at)[0])}"
        if number == nfs3.WRITE:
            stable = word(view, at + 12)[0]
            return f", FH: {handle}{of} Offset: {hyper(view, at)[0]} Len: {word(view, at + 8)[0]} {stable_word(stable)}"
        if procedure.arguments == nfs3.HANDLE:
            return f", FH: {handle}{of}"
        if procedure.arguments == nfs3.HANDLE_AND_NAME:
            made = ""
            if number == nfs3.CREATE:
                made = create_words(word(view, opaque(view, at))[0])
            elif number == nfs3.MKNOD:
                made = f" {type_word(word(view, opaque(view, at))[0])}"
            return f", DH: {handle}/{_name(view, at)}{of}{made}"
        if procedure.arguments == nfs3.TWO_NAMES:
            target = opaque(view, at)
            name = _name(view, opaque(view, target))
            return f", From DH: {handle}/{_name(view, at)}{of} To DH: {_handle(view, target)}/{name}"
        return f", FH: {handle}{of}, DH: {_handle(view, at)}/{_name(view, opaque(view, at))}"
    except StructError:
        return " …"


def asked_rights(arguments: memoryview) -> int | None:
    """Of a call of ACCESS (RFC 1813, 3.3.4)."""
    try:
        return word(arguments, opaque(arguments, 0))[0]
    except StructError:
        return None


def reply3_words(procedure: int, view: memoryview, at: int, asked: int | None = None) -> str:
    """What a success says behind the status at ``at - 4``: attributes, rights (``asked``: of the call), a target,
    bytes read or written (RFC 1813, 3.3.1 to 3.3.7), and the handle of what was looked up or made."""
    try:
        if procedure == nfs3.GETATTR:
            uid = at + nfs3.UID_IN_FATTR
            return attribute_words(*words2(view, at), *words2(view, uid))
        if procedure == nfs3.ACCESS:
            allowed = word(view, nfs3.POST_OP_ATTR(view, at))[0]
            return allowed_words(allowed if asked is None else asked, allowed)
        if procedure == nfs3.READLINK:
            at = nfs3.POST_OP_ATTR(view, at)
            # Through a Write chunk, it is not in the message.
            return f" Path: {_name(view, at)}" if at + 4 + word(view, at)[0] <= len(view) else ""
        if procedure in nfs3.GIVING_HANDLES:
            if procedure != nfs3.LOOKUP:
                follows, at = word(view, at)[0], at + 4
                if not follows:
                    return ""
            return f", FH: {_handle(view, at)}"
        if procedure == nfs3.READ:
            return f" Len: {word(view, nfs3.POST_OP_ATTR(view, at))[0]}"
        if procedure == nfs3.WRITE:
            at = nfs3.WCC_DATA(view, at)
            stable = word(view, at + 4)[0]
            return f" Len: {word(view, at)[0]} {stable_word(stable)}"
    except (StructError, Malformed):
        return " …"
    return ""


Details = list[tuple[Int64s, tuple[Piece, ...]]]
"""Rows, and what is said of them."""

_HANDLE, _NAME, _OFFSET, _COUNT, _HAS_STABLE, _DIRECTORY, _TEXT, _STATEID, _RIGHTS, _MODE = (
    1 << bit for bit in range(10)
)
"""What is known of a call: its file handle, and so on; that the handle is a directory's; only a text."""
_SINGLY = frozenset(("newname", "to_stateid", "to_offset", "client"))
"""Fields of few COMPOUNDs, which are looked at one by one."""


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
    groups, unknown = _LAYOUTS[callback].groups(data, starts, ends)
    calls.parts[unknown] = _TEXT
    for rows, layout in groups:
        if layout.places.keys().isdisjoint(_SINGLY):
            _found(calls, data, rows, starts[rows], layout)
        else:
            calls.parts[rows] = _TEXT
    view = data.data
    for row in places(calls.parts == _TEXT).tolist():
        calls.names[row] = call4_words(view[starts[row] : ends[row]], callback, paths.row(row))
    return calls.details()


def _found(calls: _Calls, data: Bytes, rows: Int64s, starts: Int64s, layout: Layout) -> None:
    part = 0
    places = layout.places
    if "handle" in places:
        part |= _HANDLE
        first, end = places["handle"]
        calls.hashes[rows] = _hashes(data, starts + first, starts + end)
    if "name" in places:
        part |= _NAME
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
    if "access" in places:
        part |= _RIGHTS
        calls.words[rows] = _numbers(data, starts, *places["access"])
    calls.parts[rows] = part
    if part & _COUNT:
        calls.parts[rows[calls.counts[rows] == TO_END_OF_FILE]] = _TEXT


def nfs3_details(data: Bytes, procedures: Int64s, starts: Int64s, ends: Int64s, paths: KnownTexts) -> Details:
    """Of calls of NFS version 3 whose arguments are at ``data[starts[i]:ends[i]]``; ``paths`` of what each names."""
    calls = _Calls.of(paths)
    known = (procedures < len(_ARGUMENTS)) & (procedures >= 0)
    form = _ARGUMENTS[np.where(known, procedures, 0)]
    calls.parts[form == _OTHER] = _TEXT
    rows = places((form != _BARE) & (form != _OTHER))
    at, size, inside = _opaque(data, starts[rows], ends[rows])
    calls.parts[rows[~inside]] = _TEXT
    rows, at, size = rows[inside], at[inside], size[inside]
    calls.hashes[rows] = _hashes(data, at, at + size)
    calls.parts[rows] = _HANDLE
    at += size + 3 & -4
    forms = form[rows]
    named = (forms == _WITH_NAME) | (forms == _CREATED)
    if named.any():
        mine = rows[named]
        where, length, inside = _opaque(data, at[named], ends[mine])
        calls.parts[mine[~inside]] = _TEXT
        mine, where, length = mine[inside], where[inside], length[inside]
        _set_names(calls, data, mine, where, where + length)
        calls.parts[mine] = _HANDLE | _DIRECTORY | _NAME
        made = form[mine] == _CREATED
        _word_behind(calls, data, mine[made], (where + (length + 3 & -4))[made], ends, _MODE)
    asked = forms == _CHECKED
    _word_behind(calls, data, rows[asked], at[asked], ends, _RIGHTS)
    for kind, words in ((_RANGE, 3), (_STABLE_RANGE, 4)):
        ranged = forms == kind
        if ranged.any():
            mine, where = rows[ranged], at[ranged]
            inside = where + 4 * words <= ends[mine]
            calls.parts[mine[~inside]] = _TEXT
            mine, where = mine[inside], where[inside]
            calls.offsets[mine] = _numbers(data, where, 0, 8)
            calls.counts[mine] = _numbers(data, where, 8, 12)
            calls.parts[mine] = _HANDLE | _OFFSET | _COUNT
            if kind == _STABLE_RANGE:
                calls.words[mine] = _numbers(data, where, 12, 16)
                calls.parts[mine] |= _HAS_STABLE
    view = data.data
    for row in places(calls.parts == _TEXT).tolist():
        calls.names[row] = call3_words(int(procedures[row]), int(starts[row]), view[: int(ends[row])], paths.row(row))
    return calls.details()


def _word_behind(calls: _Calls, data: Bytes, rows: Int64s, at: Int64s, ends: Int64s, part: int) -> None:
    """The word at ``at`` of calls of which so far all is known."""
    inside = at + 4 <= ends[rows]
    calls.parts[rows[~inside]] = _TEXT
    calls.words[rows[inside]] = _numbers(data, at[inside], 0, 4)
    calls.parts[rows[inside]] |= part


def nfs3_reply_details(
    data: Bytes, procedures: Int64s, bodies: Int64s, ends: Int64s, rights: Callable[[Int64s], Int64s]
) -> Details:
    """Of successful calls of version 3 whose results are at ``bodies``, status first.

    ``rights`` gives those that some rows asked for; -1 where they are not known.
    """
    found: Details = []
    writing, checking = procedures == nfs3.WRITE, procedures == nfs3.ACCESS
    giving = np.isin(procedures, nfs3.GIVING_HANDLES)
    attributes, linking = procedures == nfs3.GETATTR, procedures == nfs3.READLINK
    telling = writing | checking | (procedures == nfs3.READ)
    rest = ~(giving | telling | attributes | linking)
    if rest.any():
        found.append((places(rest), ()))
    if giving.any():
        found += _given_handles(data, places(giving), procedures, bodies, ends)
    if attributes.any():
        found += _attributes(data, places(attributes), procedures, bodies, ends)
    if linking.any():
        found.append(_single_replies(data, places(linking), procedures, bodies, ends))
    rows = places(telling)
    at, usual = bodies[rows] + 4, np.ones(len(rows), np.bool_)
    for there, size in ((writing[rows], 24), (np.ones(len(rows), np.bool_), 84)):
        # wcc_data begins with the attributes before (RFC 1813, 2.6), all that is optional with a bool
        usual &= at + 4 <= ends[rows]
        word = np.zeros(len(rows), np.int64)
        asked = there & usual
        word[asked] = words_at(data, at[asked])
        usual &= word <= 1
        at += np.where(there, 4 + size * word, 0)
    usual &= at + np.where(writing[rows], 8, 4) <= ends[rows]
    mine = usual & checking[rows]
    if mine.any():
        called, allowed = rights(rows[mine]), _numbers(data, at[mine], 0, 4)
        found.append((rows[mine], (_allowed(np.where(called < 0, allowed, called), allowed),)))
    for write in (False, True):
        mine = usual & ~checking[rows] & (writing[rows] == write)
        if mine.any():
            pieces: tuple[Piece, ...] = (" Len: ", Decimal(_numbers(data, at[mine], 0, 4)))
            if write:
                pieces += " ", words_of(_numbers(data, at[mine], 4, 8), stable_word)
            found.append((rows[mine], pieces))
    if not usual.all():
        found.append(_single_replies(data, rows[~usual], procedures, bodies, ends))
    return found


def rights_asked(data: Bytes, starts: Int64s, ends: Int64s) -> Int64s:
    """Of calls of ACCESS of version 3 with their arguments at ``starts``; -1 where these end before."""
    first, size, inside = _opaque(data, starts, ends)
    at = first + (size + 3 & -4)
    inside &= at + 4 <= ends
    found = np.full(len(starts), -1, np.int64)
    found[inside] = _numbers(data, at[inside], 0, 4)
    return found


def _allowed(asked: NDArray[Any], allowed: NDArray[np.uint64]) -> Texts:
    """Of rights of 32 bits."""
    both = asked.astype(np.uint64) << np.uint64(32) | allowed
    return words_of(both, lambda rights: allowed_words(rights >> 32, rights & 0xFFFFFFFF))


def _attributes(data: Bytes, rows: Int64s, procedures: Int64s, bodies: Int64s, ends: Int64s) -> Details:
    """Type, mode, uid and gid."""
    at = bodies[rows] + 4
    usual = at + nfs3.UID_IN_FATTR + 8 <= ends[rows]
    words = big_endian_words(gathered(data, nfs3.UID_IN_FATTR + 8, at[usual]))
    distinct, which = np.unique(words[:, [0, 1, -2, -1]], axis=0, return_inverse=True)
    found: Details = [(rows[usual], (Texts([attribute_words(*one) for one in distinct.tolist()], which.ravel()),))]
    if not usual.all():
        found.append(_single_replies(data, rows[~usual], procedures, bodies, ends))
    return found


def _given_handles(data: Bytes, rows: Int64s, procedures: Int64s, bodies: Int64s, ends: Int64s) -> Details:
    """Of results that begin with the handle of a file, where there is one."""
    optional = procedures[rows] != nfs3.LOOKUP
    at = bodies[rows] + np.where(optional, 8, 4)
    first, size, usual = _opaque(data, at, ends[rows])
    asked = optional & usual
    usual[asked] = words_at(data, at[asked] - 4) == 1
    hashes = _hashes(data, first[usual], (first + size)[usual])
    found: Details = [(rows[usual], (", FH: 0x", Hexadecimal(hashes, 8)))]
    if not usual.all():
        found.append(_single_replies(data, rows[~usual], procedures, bodies, ends))
    return found


def _single_replies(
    data: Bytes, rows: Int64s, procedures: Int64s, bodies: Int64s, ends: Int64s
) -> tuple[Int64s, tuple[Piece, ...]]:
    view = data.data
    places = zip(procedures[rows].tolist(), bodies[rows].tolist(), ends[rows].tolist(), strict=True)
    return rows, (Texts([reply3_words(procedure, view[:end], body + 4) for procedure, body, end in places]),)


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
        giving = among(sequences, kinds[[not callback and gives_names(known.sequences[one]) for one in kinds.tolist()]])
        if giving.any():
            for mine, pieces in _given(data, places(giving), bodies[rows], ends[rows]):
                found.append((rows[mine], (*(chosen_words(one, mine) for one in words), *pieces)))
        mine = places(~giving)
        found.append((rows[mine], tuple(chosen_words(one, mine) for one in words)))
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
            pieces += [*([] if pieces else [","]), Texts([client_words(one) for one in clients.tolist()])]
        found.append((rows[mine], tuple(pieces)))
    if left.any():
        view, single = data.data, rows[left]
        texts = [given_words(view[bodies[row] : ends[row]]) for row in single.tolist()]
        found.append((single, (Texts(texts),)))
    return found


_BARE, _ONLY_HANDLE, _WITH_NAME, _CREATED, _CHECKED, _RANGE, _STABLE_RANGE, _OTHER = range(8)
"""Forms of arguments."""


_FORMS = {
    nfs3.READ: _RANGE,
    nfs3.COMMIT: _RANGE,
    nfs3.WRITE: _STABLE_RANGE,
    nfs3.ACCESS: _CHECKED,
    nfs3.CREATE: _CREATED,
    nfs3.MKNOD: _OTHER,
}


def _form(number: int, procedure: nfs3.Nfs3Procedure) -> int:
    if not procedure.arguments:
        return _BARE
    if number in _FORMS:
        return _FORMS[number]
    return {nfs3.HANDLE: _ONLY_HANDLE, nfs3.HANDLE_AND_NAME: _WITH_NAME}.get(procedure.arguments, _OTHER)


_ARGUMENTS = np.array([_form(number, procedure) for number, procedure in enumerate(nfs3.PROCEDURES)])


def _opaque(data: Bytes, at: Int64s, ends: Int64s) -> tuple[Int64s, Int64s, NDArray[np.bool_]]:
    """Of opaques at ``at``: their first bytes, their lengths, and whether all of each is there."""
    inside = at + 4 <= ends
    size = np.zeros(len(at), np.int64)
    size[inside] = words_at(data, at[inside])
    return at + 4, size, inside & (at + 4 + size <= ends)


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
