"""One line per message, in the words that tshark's info column has made familiar."""

from __future__ import annotations

from binascii import crc_hqx
from collections.abc import Sequence
from functools import lru_cache
from struct import error as StructError
from zlib import crc32

from ..layers.oncrpc_codes import GSS_PROCEDURE_NAMES, RPCSEC_GSS_DATA
from . import nfs3
from .compound import OPERATION_NAMES, compound_call, compound_reply, operation_names
from .programs import NFS, NFS_CALLBACK, procedure_name, program_name
from .rpc_header import GssCredential, call_head, call_header, message_type, reply_header
from .shapes.decode import SparseBytes, decode
from .shapes.flat import MAX_NODES, decoded_values, flat_fields, result_nodes
from .shapes.learned import Layouts
from .shapes.nfs4 import CB_COMPOUND4ARGS, COMPOUND4ARGS, COMPOUND4RES
from .status import nfs4_status, reply_status
from .statuses import OK
from .xdr import Data, Malformed, hyper, opaque, opaque_at, word

MAX_NAME = 255
"""Characters of a file name that are shown."""

_STABLE = {0: "UNSTABLE", 1: "DATA_SYNC", 2: "FILE_SYNC"}


def handle_hash(handle: bytes | memoryview) -> int:
    """The number that tshark prints for a file handle: its CRC-32."""
    return crc32(handle)


_REVERSED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))
"""Bytes with their bits in the other order."""


def stateid_hash(stateid: bytes) -> int:
    """The number that tshark prints for a stateid of 16 bytes: its CRC-16 as in X.25, the lowest bits first."""
    return int(f"{crc_hqx(stateid.translate(_REVERSED), 0xFFFF):016b}"[::-1], 2) ^ 0xFFFF


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
        detail = path_words(path)
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
) -> str:
    """'NFS V4.2 COMPOUND Reply SEQUENCE | PUTFH | READ NFS4_OK'; '' where the bytes hold no reply.

    Program, version, procedure, ``minor_version`` and ``gss`` are the call's; ``chunk_lengths`` what the
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
        return known + reply3_words(procedure, memoryview(data)[:end], header.body + 4)
    return known


def message_summary(data: Data, start: int, end: int) -> str:
    """The line for a message whose counterpart is not at hand: a call in full, a reply by its XID."""
    if message_type(data, start, end) == 0:
        return call_summary(data, start, end)
    header = reply_header(data, start, end)
    if header is None:
        return ""
    return f"RPC Reply XID 0x{header.xid:08x}" + (f" Error: {header.error}" if header.error else "")


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
    layout = GIVEN.of(results, 0)
    if layout is None:
        GIVEN.learn(results, 0)
        data = SparseBytes([(0, results)], len(results))
        values = decoded_values(COMPOUND4RES, True, data, 0)
    else:
        values = {name: bytes(results[slice(*place)]) for name, place in layout.places.items()}
    words = ""
    if values.get("object"):
        words += f" FH: {handle_hash(values['object']):#010x}"
    if values.get("stateid"):
        words += f" StateID: {stateid_hash(values['stateid']):#06x}"
    return words and f",{words}"


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


def printable_name(raw: memoryview | bytes) -> str:
    """The first characters of a file name."""
    text = bytes(raw[: 4 * MAX_NAME]).decode("utf-8", "backslashreplace")[:MAX_NAME]
    return text if text.isprintable() else "".join(one if one.isprintable() else "?" for one in text)


def stable_word(stable: int) -> str:
    """'FILE_SYNC'."""
    return _STABLE.get(stable) or f"stable {stable}"


_FIELDS = ("handle", "name", "stateid", "offset", "count")
GIVEN = Layouts(COMPOUND4RES, ("object", "stateid"), MAX_NODES, result_nodes)
"""Where the handles and stateids stand that a COMPOUND's results give."""
_GIVING = frozenset(
    number
    for number, name in OPERATION_NAMES.items()
    if name in ("GETFH", "OPEN", "OPEN_CONFIRM", "OPEN_DOWNGRADE", "LOCK", "LOCKU", "LAYOUTGET", "COPY_NOTIFY")
)
_LAYOUTS = {
    False: Layouts(COMPOUND4ARGS, _FIELDS, MAX_NODES),
    True: Layouts(CB_COMPOUND4ARGS, _FIELDS, MAX_NODES),
}
"""By whether it is a callback."""


def call_layouts(callback: bool) -> Layouts:
    """Where handles, names, offsets and lengths stand in the arguments of a COMPOUND or CB_COMPOUND."""
    return _LAYOUTS[callback]


def path_words(path: str | None, before: str = ",") -> str:
    """Of a call without a file handle, or behind that."""
    return "" if path is None else f"{before} {path}"


def call4_words(body: memoryview, callback: bool, path: str | None = None) -> str:
    """The first handle, name, offset and length of a COMPOUND's operations."""
    layouts = call_layouts(callback)
    layout = layouts.of(body, 0)
    if layout is None:
        layouts.learn(body, 0)
        return _call4_decoded(body, callback, path)
    places = layout.places
    handle = body[slice(*places["handle"])] if "handle" in places else None
    detail = _named(handle, body[slice(*places["name"])] if "name" in places else None, path)
    if "stateid" in places:
        detail += _stateid_words(bytes(body[slice(*places["stateid"])]), detail)
    if "offset" in places:
        detail += f" Offset: {_number(body, places['offset'])}"
        detail += f" Len: {_number(body, places['count'])}" if "count" in places else ""
    return detail


def _stateid_words(stateid: bytes, before: str) -> str:
    return f"{'' if before else ','} StateID: {stateid_hash(stateid):#06x}"


def _number(view: memoryview, place: tuple[int, int]) -> int:
    return int.from_bytes(view[slice(*place)])


def _named(handle: memoryview | bytes | None, name: memoryview | bytes | None, path: str | None) -> str:
    if handle is None and path is not None:
        return path_words(path)
    detail = "" if handle is None else f", FH: {handle_hash(handle):#010x}"
    if name is not None:
        detail += f"/{printable_name(name)}"
    return detail + path_words(path, "")


def _call4_decoded(body: memoryview, callback: bool, path: str | None) -> str:
    shape = CB_COMPOUND4ARGS if callback else COMPOUND4ARGS
    found = flat_fields(decode(shape, "", SparseBytes([(0, body)], len(body)), 0, len(body), MAX_NODES).root)
    detail = _named(found.handle, found.name, path)
    if found.stateid is not None:
        detail += _stateid_words(found.stateid, detail)
    if found.offset is not None:
        detail += f" Offset: {found.offset}"
        detail += "" if found.count is None else f" Len: {found.count}"
    return detail


def call3_words(number: int, body: int, view: memoryview, path: str | None = None) -> str:
    """Handles, names, offsets and lengths of the arguments (RFC 1813, 3.3)."""
    procedure = nfs3.nfs3_procedure(number)
    if procedure is None or not procedure.arguments:
        return ""
    try:
        handle, of = _handle(view, body), path_words(path, "")
        at = opaque(view, body)
        if number == nfs3.READ:
            return f", FH: {handle}{of} Offset: {hyper(view, at)[0]} Len: {word(view, at + 8)[0]}"
        if number == nfs3.WRITE:
            stable = word(view, at + 12)[0]
            return f", FH: {handle}{of} Offset: {hyper(view, at)[0]} Len: {word(view, at + 8)[0]} {stable_word(stable)}"
        if procedure.arguments == nfs3.HANDLE:
            return f", FH: {handle}{of}"
        if procedure.arguments == nfs3.HANDLE_AND_NAME:
            return f", DH: {handle}/{_name(view, at)}{of}"
        if procedure.arguments == nfs3.TWO_NAMES:
            target = opaque(view, at)
            name = _name(view, opaque(view, target))
            return f", From DH: {handle}/{_name(view, at)}{of} To DH: {_handle(view, target)}/{name}"
        return f", FH: {handle}{of}, DH: {_handle(view, at)}/{_name(view, opaque(view, at))}"
    except StructError:
        return " …"


def reply3_words(procedure: int, view: memoryview, at: int) -> str:
    """Bytes read or written (RFC 1813, 3.3.6 and 3.3.7), and the handle of what was looked up or made."""
    try:
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
