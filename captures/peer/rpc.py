"""RPC messages that the probe and the synthesizer make: calls, replies, and programs that answer calls.

A message is a sequence of parts, so that the transport can move some of them in chunks (RFC 8166, 3.4 and 4.3).  Its
contents are encoded from values of declared XDR types (RFC 4506).  A value is an int, bytes, None for an absent
optional, a list for an array or a linked list, a tuple of bit numbers for a bitmap, or a dictionary for the rest: the
fields of a structure, those of a union with its discriminant, attributes by name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from struct import error as StructError, pack
from typing import Any

from rdmascope.dissect.layers.oncrpc_codes import (
    AUTH_ERROR,
    AUTH_NONE,
    AUTH_SYS,
    CALL,
    GARBAGE_ARGS,
    MSG_DENIED,
    PROC_UNAVAIL,
    PROG_MISMATCH,
    PROG_UNAVAIL,
    REPLY,
    RPC_MISMATCH,
    RPC_VERSION,
    SUCCESS,
)
from rdmascope.dissect.onc.shapes.nfs4_types import AUTHSYS_PARMS
from rdmascope.dissect.onc.shapes.registry import procedure_shape
from rdmascope.dissect.onc.shapes.rfc5531 import RPC_CALL, RPC_REPLY
from rdmascope.dissect.onc.shapes.types import (
    MAX_NODES,
    Node,
    ProcedureShape,
    SparseBytes,
    XdrArm,
    XdrArray,
    XdrAttributes,
    XdrBitmap,
    XdrInteger,
    XdrList,
    XdrOpaque,
    XdrOptional,
    XdrSelected,
    XdrStruct,
    XdrType,
    XdrUnion,
    decode,
)


@dataclass(frozen=True, slots=True)
class DdpItem:
    """The contents of an opaque that may travel in a chunk (RFC 8267), without its length word, which ends the part
    before, and without its pad, which no part holds."""

    data: bytes


Parts = tuple[bytes | DdpItem, ...]
"""An RPC message from its XID on: plain bytes and DDP-eligible items, in the order of the message."""


def pad(length: int) -> bytes:
    """The zero bytes that fill ``length`` bytes up to a multiple of four (RFC 4506, 4.10)."""
    return bytes(-length % 4)


def _wire(part: bytes | DdpItem) -> bytes:
    return part.data + pad(len(part.data)) if isinstance(part, DdpItem) else part


def whole(parts: Parts) -> bytes:
    """The bytes of the message as TCP would carry it, without the record mark."""
    return b"".join(map(_wire, parts))


def items(parts: Parts) -> list[DdpItem]:
    return [part for part in parts if isinstance(part, DdpItem)]


def reduce(parts: Parts, taken: Collection[int]) -> tuple[bytes, list[tuple[int, bytes]]]:
    """The Payload stream that remains when the items with the indices ``taken`` move to chunks, and those items as
    (Position, contents).

    A Position counts bytes from the start of the whole message.  The pads of taken items travel nowhere (RFC 8166,
    3.4.5).
    """
    stream = bytearray()
    chunks: list[tuple[int, bytes]] = []
    at = number = 0
    for part in parts:
        text = _wire(part)
        if isinstance(part, DdpItem):
            number += 1
            if number - 1 in taken:
                chunks.append((at, part.data))
                at += len(text)
                continue
        stream += text
        at += len(text)
    return bytes(stream), chunks


def restore(stream: bytes, chunks: Iterable[tuple[int, bytes]]) -> bytes | None:
    """The whole message, each chunk put back at its Position and padded to a multiple of four.

    None where a Position is no multiple of four, or lies outside the message.
    """
    message = bytearray()
    taken = 0
    for position, data in sorted(chunks, key=lambda chunk: chunk[0]):
        wanted = position - len(message)
        if position % 4 or wanted < 0 or taken + wanted > len(stream):
            return None
        message += stream[taken : taken + wanted] + data + pad(len(data))
        taken += wanted
    return bytes(message) + stream[taken:]


def cut(length: int, count: int) -> list[int]:
    """Lengths of the segments that share ``length`` bytes: ``count`` of them, or fewer if there are fewer bytes.  The
    last may be shorter; zero bytes are one segment of length 0."""
    size = max(1, -(-length // max(1, count)))
    return [min(size, length - at) for at in range(0, length, size)] or [0]


XdrValue = Any


class NoValue(Exception):
    """The bytes are not the encoding of a value of the type."""


def encoded(type: XdrType, value: XdrValue = None) -> bytes:
    """The XDR of a value.  Fields that the dictionary of a structure omits are zero, empty or absent."""
    return whole(encoded_parts(type, value))


def encoded_parts(type: XdrType, value: XdrValue = None) -> Parts:
    """The XDR of a value as parts: an opaque given as ``DdpItem`` becomes a part of its own."""
    encoder = _ValueEncoder()
    encoder.add(type, value)
    return encoder.parts()


class _ValueEncoder:
    def __init__(self) -> None:
        self.done: list[bytes | DdpItem] = []
        self.text = bytearray()

    def parts(self) -> Parts:
        return (*self.done, bytes(self.text)) if self.text or not self.done else tuple(self.done)

    def add(self, type: XdrType, value: XdrValue) -> None:
        match type:
            case XdrInteger():
                self.text += (int(value or 0) % (1 << 8 * type.size)).to_bytes(type.size, "big")
            case XdrOpaque():
                self._opaque(value or bytes(type.size or 0), type.size)
            case XdrSelected():
                self._opaque(value or b"")
            case XdrStruct():
                for name, field in type.fields:
                    self.add(field, (value or {}).get(name))
            case XdrUnion():
                number = (value or {}).get(type.discriminant, 0 if type.has_default else min(type.arms))
                self.add(type.type, number)
                self._arm(type.arms.get(number, type.default), value)
            case XdrArray():
                if type.size is None:
                    self.text += pack(">I", len(value or ()))
                for item in value or ():
                    self.add(type.element, item)
            case XdrOptional():
                self.text += pack(">I", value is not None)
                if value is not None:
                    self.add(type.element, value)
            case XdrList():
                for item in value or ():
                    self.text += pack(">I", 1)
                    self.add(type.element, item)
                self.text += bytes(4)
            case XdrBitmap():
                self._bitmap(value or ())
            case XdrAttributes():
                self._attributes(type, value or {})

    def _opaque(self, data: bytes | DdpItem, size: int | None = None) -> None:
        content = data.data if isinstance(data, DdpItem) else data
        assert size in (None, len(content)), f"{len(content)} bytes of {size}"
        if size is None:
            self.text += pack(">I", len(content))
        if isinstance(data, DdpItem):
            self.done += [bytes(self.text), data]
            self.text.clear()
        else:
            self.text += content + pad(len(content))

    def _arm(self, arm: XdrArm, value: XdrValue) -> None:
        if isinstance(arm, XdrStruct | XdrUnion):
            self.add(arm, value)
        elif arm is not None:
            self.add(arm[1], (value or {}).get(arm[0]))

    def _bitmap(self, bits: Any) -> None:
        count = max(bits, default=-1) // 32 + 1
        words = (sum(1 << bit % 32 for bit in bits if bit // 32 == index) for index in range(count))
        self.text += pack(f">{count + 1}I", count, *words)

    def _attributes(self, type: XdrAttributes, value: dict[str, XdrValue]) -> None:
        numbers = {name: number for number, (name, _) in type.attributes.items()}
        bits = sorted(numbers[name] for name in value)
        self._bitmap(bits)
        self._opaque(b"".join(encoded(type.attributes[bit][1], value[type.attributes[bit][0]]) for bit in bits))


def decoded(type: XdrType, data: bytes, start: int = 0, max_nodes: int = MAX_NODES) -> tuple[XdrValue, int]:
    """The value that begins at offset ``start``, and the offset behind it.  Raises NoValue."""
    value = decode(type, type.name, SparseBytes([(0, data)], len(data)), start, len(data), max_nodes)
    if value.problem:
        raise NoValue(value.problem)
    return plain(value.root), value.end


def plain(node: Node) -> XdrValue:
    """The value of a decoded tree.  Raises NoValue where a part of the tree could not be decoded."""
    if node.note or node.type is None:
        raise NoValue(f"{node.name}: {node.note}")
    match node.type:
        case XdrInteger() | XdrBitmap():
            return node.value
        case XdrOpaque() | XdrSelected():
            return bytes(node.value) if isinstance(node.value, memoryview) else b""
        case XdrStruct() | XdrUnion():
            return {child.name: plain(child) for child in node.children}
        case XdrArray() | XdrList():
            return [plain(child) for child in node.children]
        case XdrOptional():
            return None
        case XdrAttributes():
            held = node.child("attr_vals") or node
            if held.note:
                raise NoValue(f"{held.name}: {held.note}")
            return {child.name: plain(child) for child in held.children}


AUTH_TOOWEAK = 5
UNNAMED = 65534
"""The user and group ID of a caller whose credential names none (AUTH_NONE)."""


def opaque(data: bytes) -> bytes:
    return pack(">I", len(data)) + data + pad(len(data))


_AUTH_SYS = {"machinename": b"client.example", "uid": 1000, "gid": 100, "gids": [100, 27]}
_CREDENTIAL = {"flavor": AUTH_SYS, "body": encoded(AUTHSYS_PARMS, _AUTH_SYS)}


def call_head(xid: int, program: int, version: int, procedure: int, **auth: XdrValue) -> bytes:
    """The RPC header of a call (RFC 5531, 9).  NULL is called with AUTH_NONE, every other procedure with AUTH_SYS,
    unless ``auth`` gives another ``cred`` and ``verf``."""
    head = {"xid": xid, "mtype": CALL, "rpcvers": RPC_VERSION, "prog": program, "vers": version, "proc": procedure}
    return encoded(RPC_CALL, head | (auth or {"cred": _CREDENTIAL if procedure else None}))


def call(xid: int, program: int, version: int, procedure: int, arguments: XdrValue) -> Parts:
    """A whole call, its arguments encoded as the procedure's declaration says."""
    shape = procedure_shape(program, version, procedure)
    assert shape is not None and shape.arguments is not None
    return behind(call_head(xid, program, version, procedure), encoded_parts(shape.arguments, arguments))


def reply_head(xid: int, status: int = SUCCESS, **mismatch: int) -> bytes:
    """The header of a reply that accepts the call (RFC 5531, 9); ``mismatch``: ``low`` and ``high`` of
    PROG_MISMATCH."""
    return _reply(xid, reply_data={"accept_stat": status, **mismatch})


def _reply(xid: int, **body: XdrValue) -> bytes:
    return encoded(RPC_REPLY, {"xid": xid, "mtype": REPLY, "rbody": body})


@dataclass(frozen=True, slots=True)
class Caller:
    """The user and group ID in the AUTH_SYS credential of a call."""

    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class RpcProcedure:
    """A procedure that is declared, and the function ``run`` that computes its results from the arguments.

    ``run`` raises NoValue for arguments that it cannot serve: the caller is told GARBAGE_ARGS.
    """

    shape: ProcedureShape
    run: Callable[[XdrValue, Caller], XdrValue]


@dataclass(frozen=True, slots=True)
class RpcProgram:
    """The procedures of one version of a program, by number."""

    procedures: Mapping[int, RpcProcedure]
    whole: Mapping[int, Callable[[bytes, int, Caller], Parts]]
    """Procedures that decode their arguments themselves, from the message and the offset of the arguments."""


Programs = Mapping[int, Mapping[int, RpcProgram]]
"""By number, then by version."""


def answer(programs: Programs, message: bytes) -> Parts:
    """The reply to a whole call.  A call that cannot be served is refused as RFC 5531, 9 says: RPC_MISMATCH,
    AUTH_ERROR, PROG_UNAVAIL, PROG_MISMATCH, PROC_UNAVAIL or GARBAGE_ARGS."""
    xid = int.from_bytes(message[:4], "big")
    try:
        call, at = decoded(RPC_CALL, message)
    except NoValue:
        return (reply_head(xid, GARBAGE_ARGS),)
    if call["rpcvers"] != RPC_VERSION or call["mtype"] != CALL:
        denied = {"reject_stat": RPC_MISMATCH, "low": RPC_VERSION, "high": RPC_VERSION}
        return (_reply(xid, reply_stat=MSG_DENIED, **denied),)
    versions = programs.get(call["prog"])
    if versions is None:
        return (reply_head(xid, PROG_UNAVAIL),)
    program = versions.get(call["vers"])
    if program is None:
        return (reply_head(xid, PROG_MISMATCH, low=min(versions), high=max(versions)),)
    if not call["proc"]:
        return (reply_head(xid),)
    flavor = call["cred"]["flavor"]
    if flavor not in (AUTH_NONE, AUTH_SYS):
        return (_reply(xid, reply_stat=MSG_DENIED, reject_stat=AUTH_ERROR, auth_stat=AUTH_TOOWEAK),)
    try:
        return _run(program, call["proc"], xid, message, at, _caller(flavor, call["cred"]["body"]))
    except (NoValue, StructError):
        return (reply_head(xid, GARBAGE_ARGS),)


def _run(program: RpcProgram, number: int, xid: int, message: bytes, at: int, caller: Caller) -> Parts:
    if number in program.whole:
        return behind(reply_head(xid), program.whole[number](message, at, caller))
    procedure = program.procedures.get(number)
    if procedure is None:
        return (reply_head(xid, PROC_UNAVAIL),)
    arguments = decoded(procedure.shape.arguments, message, at)[0] if procedure.shape.arguments else None
    results = procedure.run(arguments, caller)
    if procedure.shape.results is None:
        return (reply_head(xid),)
    return behind(reply_head(xid), encoded_parts(procedure.shape.results, results))


def behind(head: bytes, parts: Parts) -> Parts:
    first, *rest = parts
    assert isinstance(first, bytes), "results begin with a word"
    return head + first, *rest


def _caller(flavor: int, body: bytes) -> Caller:
    if flavor == AUTH_NONE:
        return Caller(UNNAMED, UNNAMED)
    parameters, _ = decoded(AUTHSYS_PARMS, body)
    return Caller(parameters["uid"], parameters["gid"])
