"""The application behind an endpoint: a little of NFS, as much as conversations between two endpoints need, and the
calls that use it.

A READ returns ``pattern``, which depends on the offset alone, so that both ends know the contents of the file.  NFSv3
is that of RFC 1813, NFSv4.1 with its callbacks that of RFC 8881; RFC 8267 says which items may travel in chunks.
"""

from __future__ import annotations

from struct import pack

from rdmascope.dissect.layers.oncrpc_codes import GSS_INTEGRITY, RPCSEC_GSS
from rdmascope.dissect.onc.rpc_header import NFS, NFS_CALLBACK
from rdmascope.dissect.onc.shapes.nfs4 import NFS4, NFS_CB
from rdmascope.dissect.onc.shapes.rfc1813 import NFS3
from rdmascope.dissect.onc.shapes.rfc5531 import TYPES

from ..rpc import (
    Caller,
    DdpItem,
    NoValue,
    Parts,
    Programs,
    RpcProcedure,
    RpcProgram,
    XdrValue,
    answer,
    call,
    call_head,
    encoded,
    opaque,
    whole,
)

HANDLE = bytes(range(32))
SESSION = bytes(range(16))
NULL, GETATTR, READ, WRITE, READDIRPLUS = 0, 1, 6, 7, 17
COMPOUND = 1
OP_CREATE_SESSION, CB_RECALL, CB_SEQUENCE = 43, 4, 11
CONN_BACK_CHAN = 2
"""CREATE_SESSION4_FLAG_CONN_BACK_CHAN (RFC 8881, 18.36.1)."""
_SIZES = dict.fromkeys(("ca_maxrequestsize", "ca_maxresponsesize", "ca_maxresponsesize_cached"), 4096)
CHANNEL = _SIZES | {"ca_maxoperations": 8, "ca_maxrequests": 16}
FILE_SYNC = 2
LARGEST = 1 << 20
"""The most bytes that a READ or READDIRPLUS returns."""
_SQUARES = bytes(number * number * 7 + number * 13 & 0xFF for number in range(509))


def pattern(offset: int, count: int) -> bytes:
    """``count`` bytes of the file at ``offset``.  Their period is 509, so that data at the offset of another block,
    which is off by a power of two, differ."""
    start = offset % len(_SQUARES)
    return (_SQUARES * (count // len(_SQUARES) + 2))[start : start + count]


# Calls


def null(xid: int, program: int = NFS, version: int = 3) -> Parts:
    return (call_head(xid, program, version, NULL),)


def _nfs3(xid: int, procedure: int, **arguments: XdrValue) -> Parts:
    return call(xid, NFS, 3, procedure, arguments)


def getattr_(xid: int) -> Parts:
    return _nfs3(xid, GETATTR, object=HANDLE)


def read(xid: int, offset: int, count: int, file: bytes = HANDLE) -> Parts:
    return _nfs3(xid, READ, file=file, offset=offset, count=count)


def write(xid: int, offset: int, data: bytes, file: bytes = HANDLE) -> Parts:
    return _nfs3(xid, WRITE, file=file, offset=offset, count=len(data), stable=FILE_SYNC, data=DdpItem(data))


def readdirplus(xid: int, count: int) -> Parts:
    """READDIRPLUS of up to ``count`` bytes of entries (RFC 1813, 3.3.17)."""
    return _nfs3(xid, READDIRPLUS, dir=HANDLE, dircount=count, maxcount=count)


def compound(xid: int, *operations: XdrValue, minor: int = 0) -> Parts:
    """A COMPOUND of NFSv4.``minor``; each operation is a dictionary with its number as ``argop`` (RFC 8881, 16.2)."""
    return call(xid, NFS, 4, COMPOUND, {"minorversion": minor, "argarray": operations})


def create_session(xid: int) -> Parts:
    """CREATE_SESSION, in which the client offers the connection for callbacks (RFC 8881, 18.36)."""
    operation: dict[str, XdrValue] = {"argop": OP_CREATE_SESSION, "csa_clientid": 1, "csa_sequence": 1}
    operation |= {"csa_fore_chan_attrs": CHANNEL, "csa_back_chan_attrs": CHANNEL, "csa_sec_parms": [{}]}
    operation |= {"csa_flags": CONN_BACK_CHAN, "csa_cb_program": NFS_CALLBACK}
    return compound(xid, operation, minor=1)


def callback(xid: int, tag: bytes = b"") -> Parts:
    """A CB_COMPOUND of CB_SEQUENCE and CB_RECALL (RFC 8881, 20.9 and 20.2); a longer ``tag`` makes a longer call."""
    sequence = {"argop": CB_SEQUENCE, "csa_sessionid": SESSION, "csa_sequenceid": 1}
    recall = {"argop": CB_RECALL, "stateid": {"seqid": 1}, "fh": HANDLE}
    arguments = {"tag": tag, "minorversion": 1, "argarray": [sequence, recall]}
    return call(xid, NFS_CALLBACK, 1, COMPOUND, arguments)


def sealed_call(xid: int, gss_procedure: int) -> bytes:
    """A WRITE under an RPCSEC_GSS credential for integrity (RFC 2203, 5.3); 1 is RPCSEC_GSS_INIT, a control message."""
    gss = {"version": 1, "gss_proc": gss_procedure, "seq_num": 1, "service": GSS_INTEGRITY, "handle": b"context!"}
    credential, verifier = encoded(TYPES["rpc_gss_cred_t"], gss), bytes(28)
    auth = {"cred": {"flavor": RPCSEC_GSS, "body": credential}, "verf": {"flavor": RPCSEC_GSS, "body": verifier}}
    head = call_head(xid, NFS, 3, WRITE, **auth)
    return head + (pack(">I", 4096) if gss_procedure else pack(">II", 200, 1) + opaque(HANDLE) + bytes(64))


# Replies


def read_failed(reply: bytes) -> bytes:
    """The reply to a READ, the last operation of its COMPOUND, with NFS3ERR_IO or NFS4ERR_IO in place of a result whose
    data are in a chunk (RFC 1813, 3.3.6; RFC 7530, 16.25).
    """
    head, result = reply[:24], reply[-12:]
    if result[:4] == result[8:]:  # The count, and the length of the data; in NFSv4 a status of 0.
        return head + pack(">II", 5, 0)
    return head + pack(">I", 5) + reply[28:-12] + pack(">I", 5)


ATTRIBUTES: XdrValue = {
    "type": 1,
    "mode": 0o644,
    "nlink": 1,
    "uid": 1000,
    "gid": 100,
    "size": 1 << 30,
    "used": 1 << 30,
    "fsid": 7,
    "fileid": 99,
    "atime": {"nseconds": 1},
    "mtime": {"seconds": 2, "nseconds": 3},
    "ctime": {"seconds": 4, "nseconds": 5},
}
"""fattr3 (RFC 1813, 2.6) of a regular file."""


WRITTEN = {"committed": FILE_SYNC, "verf": b"verifier"}
ENTRY_BYTES = 164
"""Bytes that an entry takes in the results of READDIRPLUS."""


def _read(arguments: XdrValue, caller: Caller) -> XdrValue:
    data = pattern(arguments["offset"], min(arguments["count"], LARGEST))
    return {"file_attributes": ATTRIBUTES, "count": len(data), "data": DdpItem(data)}


def _readdirplus(arguments: XdrValue, caller: Caller) -> XdrValue:
    count = max(0, -(-(min(arguments["maxcount"], LARGEST) - 200) // ENTRY_BYTES))
    entry = {"name_attributes": ATTRIBUTES, "name_handle": HANDLE}
    entries = [
        entry | {"fileid": number, "cookie": number, "name": b"file-%06d" % number} for number in range(1, count + 1)
    ]
    return {"dir_attributes": ATTRIBUTES, "entries": entries, "eof": True}


def _compound_reply(arguments: XdrValue, caller: Caller) -> XdrValue:
    if [operation["argop"] for operation in arguments["argarray"]] != [OP_CREATE_SESSION]:
        raise NoValue("another COMPOUND")
    result = {"resop": OP_CREATE_SESSION, "csr_sessionid": SESSION, "csr_sequence": 1, "csr_flags": CONN_BACK_CHAN}
    return {"resarray": [result | {"csr_fore_chan_attrs": CHANNEL, "csr_back_chan_attrs": CHANNEL}]}


def _callback_reply(arguments: XdrValue, caller: Caller) -> XdrValue:
    sequence = {"resop": CB_SEQUENCE, "csr_sessionid": SESSION, "csr_sequenceid": 1}
    return {"tag": arguments["tag"], "resarray": [sequence, {"resop": CB_RECALL}]}


_NFS3 = {
    GETATTR: lambda arguments, caller: {"obj_attributes": ATTRIBUTES},
    READ: _read,
    WRITE: lambda arguments, caller: {"count": arguments["count"], **WRITTEN},
    READDIRPLUS: _readdirplus,
}
PROGRAMS: Programs = {
    NFS: {
        3: RpcProgram({number: RpcProcedure(NFS3[number], run) for number, run in _NFS3.items()}, {}),
        4: RpcProgram({COMPOUND: RpcProcedure(NFS4[COMPOUND], _compound_reply)}, {}),
    },
    NFS_CALLBACK: {1: RpcProgram({COMPOUND: RpcProcedure(NFS_CB[COMPOUND], _callback_reply)}, {})},
}


def write_done(xid: int) -> bytes:
    """The reply to a WRITE of no bytes."""
    return whole(serve(whole(write(xid, 0, b""))))


def serve(message: bytes) -> Parts:
    """The reply to a whole RPC call; a call that cannot be decoded is answered GARBAGE_ARGS."""
    return answer(PROGRAMS, message)
