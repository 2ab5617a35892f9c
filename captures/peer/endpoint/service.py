"""An application that answers: as much of NFS as conversations need, and the calls that go with it.

What a READ returns follows from its offset, so that both ends know it: ``pattern``.  NFSv3 is RFC 1813, NFSv4.1 and its
callbacks RFC 8881; eligible items are those of RFC 8267.
"""

from __future__ import annotations

from struct import error as StructError, pack, unpack_from

from scapy.packet import Raw

from rdmascope.dissect.layers.oncrpc import (
    ONCRPC,
    Credential,
    GSSCredential,
    ONCRPCCall,
    OpaqueAuth,
)
from rdmascope.dissect.onc.programs import NFS, NFS_CALLBACK

from ..rpc import Caller, DdpItem, Parts, Programs, RpcProgram, answer, call_head, opaque, pad, reply_head

HANDLE = bytes(range(32))
SESSION = bytes(range(16))
STATEID = pack(">I12x", 1)
NULL, GETATTR, READ, WRITE, READDIRPLUS = 0, 1, 6, 7, 17
COMPOUND = 1
OP_CREATE_SESSION, CB_RECALL, CB_SEQUENCE = 43, 4, 11
CONN_BACK_CHAN = 2
"""CREATE_SESSION4_FLAG_CONN_BACK_CHAN (RFC 8881, 18.36.1)."""
LARGEST = 1 << 20
"""Bytes that a READ or READDIRPLUS returns at most."""
_SQUARES = bytes(number * number * 7 + number * 13 & 0xFF for number in range(509))


def pattern(offset: int, count: int) -> bytes:
    """What the file holds there: nothing that repeats at a power of two."""
    start = offset % len(_SQUARES)
    return (_SQUARES * (count // len(_SQUARES) + 2))[start : start + count]


# Calls


def null(xid: int, program: int = NFS, version: int = 3) -> Parts:
    return (call_head(xid, program, version, NULL),)


def getattr_(xid: int) -> Parts:
    return (call_head(xid, NFS, 3, GETATTR) + opaque(HANDLE),)


def read(xid: int, offset: int, count: int) -> Parts:
    return (call_head(xid, NFS, 3, READ) + opaque(HANDLE) + pack(">QI", offset, count),)


def write(xid: int, offset: int, data: bytes) -> Parts:
    head = call_head(xid, NFS, 3, WRITE) + opaque(HANDLE) + pack(">QII", offset, len(data), 2)
    return head + pack(">I", len(data)), DdpItem(data)


def readdirplus(xid: int, count: int) -> Parts:
    """A directory listing of up to ``count`` bytes."""
    return (call_head(xid, NFS, 3, READDIRPLUS) + opaque(HANDLE) + bytes(16) + pack(">II", count, count),)


def create_session(xid: int) -> Parts:
    """Offers the connection for callbacks."""
    attributes = pack(">7I", 0, 4096, 4096, 4096, 8, 16, 0)
    arguments = pack(">QII", 1, 1, CONN_BACK_CHAN) + attributes + attributes + pack(">III", NFS_CALLBACK, 1, 0)
    return (call_head(xid, NFS, 4, COMPOUND) + opaque(b"") + pack(">III", 1, 1, OP_CREATE_SESSION) + arguments,)


def callback(xid: int, tag: bytes = b"") -> Parts:
    """CB_SEQUENCE and CB_RECALL; ``tag`` makes it as long as wanted."""
    sequence = SESSION + pack(">5I", 1, 0, 0, 0, 0)
    recall = STATEID + pack(">I", 0) + opaque(HANDLE)
    body = opaque(tag) + pack(">IIII", 1, 0, 2, CB_SEQUENCE) + sequence + pack(">I", CB_RECALL) + recall
    return (call_head(xid, NFS_CALLBACK, 1, COMPOUND) + body,)


def sealed_call(xid: int, gss_procedure: int) -> bytes:
    """A WRITE under an RPCSEC_GSS credential for integrity (RFC 2203, 5.3); 1 is RPCSEC_GSS_INIT, a control message."""
    credential = Credential(
        flavor=6, body=GSSCredential(gss_proc=gss_procedure, seq_num=1, service=2, handle=b"context!")
    )
    verifier = OpaqueAuth(flavor=6, body=Raw(bytes(28)))
    head = ONCRPC(xid=xid) / ONCRPCCall(prog=NFS, vers=3, proc=WRITE, cred=credential, verf=verifier)
    return bytes(head) + (pack(">I", 4096) if gss_procedure else pack(">II", 200, 1) + opaque(HANDLE) + bytes(64))


# Replies


def read_failed(reply: bytes) -> bytes:
    """The reply to a READ, which is the last of its COMPOUND, with NFS3ERR_IO or NFS4ERR_IO for its result, of which
    the data are in a chunk (RFC 1813, 3.3.6; RFC 7530, 16.25).
    """
    head, result = reply[:24], reply[-12:]
    if result[:4] == result[8:]:  # The count, and the length of the data; in NFSv4 a status of 0.
        return head + pack(">II", 5, 0)
    return head + pack(">I", 5) + reply[28:-12] + pack(">I", 5)


def write_done(xid: int, count: int = 0) -> bytes:
    return reply_head(xid) + _written(count)


def _written(count: int) -> bytes:
    return pack(">IIIII", 0, 0, 0, count, 2) + b"verifier"


def _attributes() -> bytes:
    """fattr3 (RFC 1813, 2.6) of a regular file."""
    return pack(">5I2Q2I2Q6I", 1, 0o644, 1, 1000, 100, 1 << 30, 1 << 30, 0, 0, 7, 99, *range(6))


def _behind_handle(message: bytes, at: int) -> int:
    (size,) = unpack_from(">I", message, at)
    return at + 4 + int(size) + len(pad(size))


def _getattr(message: bytes, at: int, caller: Caller) -> Parts:
    unpack_from(">x", message, _behind_handle(message, at) - 1)
    return (pack(">I", 0) + _attributes(),)


def _read(message: bytes, at: int, caller: Caller) -> Parts:
    offset, count = unpack_from(">QI", message, _behind_handle(message, at))
    data = pattern(offset, min(count, LARGEST))
    return pack(">II", 0, 1) + _attributes() + pack(">III", len(data), 0, len(data)), DdpItem(data)


def _write(message: bytes, at: int, caller: Caller) -> Parts:
    at = _behind_handle(message, at)
    _, count, _, size = unpack_from(">QIII", message, at)
    unpack_from(f">{size}x", message, at + 20)
    return (_written(count),)


def _readdirplus(message: bytes, at: int, caller: Caller) -> Parts:
    (wanted,) = unpack_from(">I", message, _behind_handle(message, at) + 20)
    room = min(wanted, LARGEST) - 200
    text = bytearray()
    number = 0
    while len(text) < room:
        number += 1
        name = b"file-%06d" % number
        text += pack(">IQ", 1, number) + opaque(name) + pack(">Q", number) + pack(">I", 1) + _attributes()
        text += pack(">I", 1) + opaque(HANDLE)
    return (pack(">II", 0, 1) + _attributes() + bytes(8) + bytes(text) + pack(">II", 0, 1),)


def _compound_reply(message: bytes, at: int, caller: Caller) -> Parts:
    at = _behind_handle(message, at)
    _, count, operation = unpack_from(">III", message, at)
    if (count, operation) != (1, OP_CREATE_SESSION):
        raise StructError
    attributes = pack(">7I", 0, 4096, 4096, 4096, 8, 16, 0)
    result = SESSION + pack(">II", 1, CONN_BACK_CHAN) + attributes + attributes
    return (pack(">I", 0) + opaque(b"") + pack(">III", 1, OP_CREATE_SESSION, 0) + result,)


def _callback_reply(message: bytes, at: int, caller: Caller) -> Parts:
    end = _behind_handle(message, at)
    unpack_from(">IIII", message, end)
    tag = message[at:end]
    sequence = pack(">II", CB_SEQUENCE, 0) + SESSION + pack(">4I", 1, 0, 0, 0)
    return (pack(">I", 0) + tag + pack(">I", 2) + sequence + pack(">II", CB_RECALL, 0),)


PROGRAMS: Programs = {
    NFS: {
        3: RpcProgram({}, {GETATTR: _getattr, READ: _read, WRITE: _write, READDIRPLUS: _readdirplus}),
        4: RpcProgram({}, {COMPOUND: _compound_reply}),
    },
    NFS_CALLBACK: {1: RpcProgram({}, {COMPOUND: _callback_reply})},
}


def serve(message: bytes) -> Parts:
    """The reply to a whole RPC call; one that cannot be read is answered GARBAGE_ARGS."""
    return answer(PROGRAMS, message)
