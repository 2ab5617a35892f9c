"""RPC programs: from a whole call to its reply (RFC 5531, 9), whatever carried it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from struct import error as StructError

from rdmascope.dissect.layers.oncrpc import ONCRPC, ONCRPCReply
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
    RPC_MISMATCH,
    RPC_VERSION,
)
from rdmascope.dissect.onc.shapes.nfs4_types import AUTHSYS_PARMS
from rdmascope.dissect.onc.shapes.procedures import ProcedureShape
from rdmascope.dissect.onc.shapes.rfc5531 import RPC_CALL

from ..synth.endpoint import Parts, service
from ..synth.xdr_values import NoValue, XdrValue, decoded, encoded_parts

AUTH_TOOWEAK = 5
UNNAMED = 65534
"""User and group of a caller who gives none."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls, as AUTH_SYS has it."""

    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class RpcProcedure:
    """``run`` makes results of arguments; it raises NoValue where the arguments are none."""

    shape: ProcedureShape
    run: Callable[[XdrValue, Caller], XdrValue]


@dataclass(frozen=True, slots=True)
class RpcProgram:
    """One version of a program."""

    procedures: Mapping[int, RpcProcedure]
    whole: Mapping[int, Callable[[bytes, int, Caller], Parts]]
    """Procedures that decode their arguments themselves: the message, the offset of the arguments."""


Programs = Mapping[int, Mapping[int, RpcProgram]]
"""By number, then by version."""


def answer(programs: Programs, message: bytes) -> Parts:
    """The reply to a call; what cannot be read is answered as RFC 5531 says."""
    xid = int.from_bytes(message[:4], "big")
    try:
        call, at = decoded(RPC_CALL, message)
    except NoValue:
        return (service.reply_head(xid, GARBAGE_ARGS),)
    if call["rpcvers"] != RPC_VERSION or call["mtype"] != CALL:
        return _denied(xid, reject_stat=RPC_MISMATCH, low=RPC_VERSION, high=RPC_VERSION)
    versions = programs.get(call["prog"])
    if versions is None:
        return (service.reply_head(xid, PROG_UNAVAIL),)
    program = versions.get(call["vers"])
    if program is None:
        low, high = min(versions), max(versions)
        return (bytes(ONCRPC(xid=xid) / ONCRPCReply(accept_stat=PROG_MISMATCH, low=low, high=high)),)
    if call["proc"] == service.NULL:
        return (service.reply_head(xid),)
    flavor = call["cred"]["flavor"]
    if flavor not in (AUTH_NONE, AUTH_SYS):
        return _denied(xid, reject_stat=AUTH_ERROR, auth_stat=AUTH_TOOWEAK)
    try:
        return _run(program, call["proc"], xid, message, at, _caller(flavor, call["cred"]["body"]))
    except (NoValue, StructError):
        return (service.reply_head(xid, GARBAGE_ARGS),)


def _denied(xid: int, **fields: int) -> Parts:
    return (bytes(ONCRPC(xid=xid) / ONCRPCReply(reply_stat=MSG_DENIED, **fields)),)


def _run(program: RpcProgram, number: int, xid: int, message: bytes, at: int, caller: Caller) -> Parts:
    if number in program.whole:
        return behind(service.reply_head(xid), program.whole[number](message, at, caller))
    procedure = program.procedures.get(number)
    if procedure is None:
        return (service.reply_head(xid, PROC_UNAVAIL),)
    arguments = decoded(procedure.shape.arguments, message, at)[0] if procedure.shape.arguments else None
    results = procedure.run(arguments, caller)
    if procedure.shape.results is None:
        return (service.reply_head(xid),)
    return behind(service.reply_head(xid), encoded_parts(procedure.shape.results, results))


def behind(head: bytes, parts: Parts) -> Parts:
    first, *rest = parts
    assert isinstance(first, bytes), "results begin with a word"
    return head + first, *rest


def _caller(flavor: int, body: bytes) -> Caller:
    if flavor == AUTH_NONE:
        return Caller(UNNAMED, UNNAMED)
    parameters, _ = decoded(AUTHSYS_PARMS, body)
    return Caller(parameters["uid"], parameters["gid"])
