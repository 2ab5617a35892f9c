"""NFS version 4: COMPOUND, operation by operation (RFC 8881, 16.2), in the slots of sessions."""

from __future__ import annotations

from typing import Any

from rdmascope.dissect.onc.shapes.decode import Node, SparseBytes, decode
from rdmascope.dissect.onc.shapes.nfs4 import COMPOUND4ARGS, NFS_RESOP4, OPERATIONS
from rdmascope.dissect.onc.shapes.types import XdrAttributes

from ..synth.endpoint import DdpItem, Parts, service, whole
from ..synth.xdr_values import NoValue, encoded, encoded_parts, plain
from .attributes4 import SUPPORTED
from .clients4 import MAX_OPERATIONS, ClientRegistry, begin, sequence_result
from .file_system import FileSystem
from .opens4 import OpenTable
from .operations4 import ALONE, STATEFUL, STATELESS, CompoundState, Nfs4State, Operate
from .rpc_programs import Caller, RpcProgram
from .status import NfsError, NfsStatus

SEQUENCE, ILLEGAL = 53, 10044
HIGHEST = {0: 39, 1: 58}
"""Number of the last operation, by minor version."""
FIRST = 3
REPLY_HEAD = 24
"""Bytes of the RPC header of a reply."""


class Nfs4:
    """Minor version 1, and of minor version 0 what needs no state."""

    def __init__(self, files: FileSystem) -> None:
        opens = OpenTable(files.instance)
        self.state = Nfs4State(files, opens, ClientRegistry(files.instance, opens.drop_client, opens.of_client))
        self.program = RpcProgram({}, {service.COMPOUND: self.compound})

    def compound(self, message: bytes, at: int, caller: Caller) -> Parts:
        found = decode(COMPOUND4ARGS, "arguments", SparseBytes([(0, message)], len(message)), at, len(message))
        tag, minor, operations = (found.root.child(name) for name in ("tag", "minorversion", "argarray"))
        if tag is None or minor is None or operations is None or not isinstance(operations.value, int):
            raise NoValue(found.problem)
        tag_text, minor_version = plain(tag), plain(minor)
        if minor_version not in HIGHEST:
            return _reply(NfsStatus.MINOR_VERS_MISMATCH, tag_text, 0, [])
        run = _Compound(self.state, caller, minor_version, tag_text, message[at:])
        return run.reply(operations.children, operations.value)


class _Compound:
    """One COMPOUND being carried out."""

    def __init__(self, state: Nfs4State, caller: Caller, minor: int, tag: bytes, request: bytes) -> None:
        self.on = CompoundState(state, caller)
        self.minor = minor
        self.tag = tag
        self.request = request
        self.sequence: dict[str, Any] | None = None
        """Arguments of SEQUENCE."""
        self.size = REPLY_HEAD + 8 + len(encoded(COMPOUND4ARGS.fields[0][1], tag)) + 4

    def reply(self, operations: list[Node], count: int) -> Parts:
        results: list[Parts] = []
        status = NfsStatus.OK
        for number, node in enumerate(operations):
            result = self._result(number, node, count)
            if isinstance(result, tuple):
                return result
            status = result["status"]
            parts = self._bounded(result)
            if parts is None:
                status = self._too_big()
                parts = encoded_parts(NFS_RESOP4, {"resop": result["resop"], "status": status})
            results.append(parts)
            if status:
                break
        reply = _reply(status, self.tag, len(results), results)
        session = self.on.session
        if session is not None and self.sequence is not None and REPLY_HEAD + len(whole(reply)) <= session.max_cached:
            session.slots[self.sequence["sa_slotid"]].reply = reply
        return reply

    def _bounded(self, result: dict[str, Any]) -> Parts | None:
        """The bytes of a result; None where the session has no room for it."""
        parts = encoded_parts(NFS_RESOP4, result)
        self.size += sum(len(one.data) + 3 & ~3 if isinstance(one, DdpItem) else len(one) for one in parts)
        session, sequence = self.on.session, self.sequence
        if session is None or sequence is None or result["resop"] == SEQUENCE:
            return parts
        limit = min(session.max_response, session.max_cached) if sequence["sa_cachethis"] else session.max_response
        return parts if self.size <= limit else None

    def _too_big(self) -> NfsStatus:
        assert self.on.session is not None
        return NfsStatus.REP_TOO_BIG if self.size > self.on.session.max_response else NfsStatus.REP_TOO_BIG_TO_CACHE

    def _result(self, number: int, node: Node, count: int) -> dict[str, Any] | Parts:
        """The result of an operation; the whole reply where it was given before."""
        operation = node.child("argop")
        if operation is None or not isinstance(operation.value, int):
            raise NoValue("an operation without its number")
        chosen = operation.value
        if not FIRST <= chosen <= HIGHEST[self.minor] or chosen not in OPERATIONS:
            return {"resop": ILLEGAL, "status": NfsStatus.OP_ILLEGAL}
        try:
            if chosen == SEQUENCE:
                return self._sequence(number, node, count)
            run = self._allowed(number, OPERATIONS[chosen].name, count)
            return {"resop": chosen, "status": 0, **(run(self.on, _arguments(node)) or {})}
        except NfsError as error:
            return {"resop": chosen, "status": error.status}

    def _sequence(self, number: int, node: Node, count: int) -> dict[str, Any] | Parts:
        if number:
            raise NfsError(NfsStatus.SEQUENCE_POS)
        arguments = _arguments(node)
        session = self.on.server.clients.session(arguments["sa_sessionid"])
        before = begin(session, arguments, self.request)
        if before is not None:
            return before
        self.on.session, self.sequence = session, arguments
        if count > session.max_operations:
            raise NfsError(NfsStatus.TOO_MANY_OPS)
        return {"resop": SEQUENCE, "status": 0, **sequence_result(session, arguments)}

    def _allowed(self, number: int, name: str, count: int) -> Operate:
        """What carries an operation out, where it may stand."""
        if count > MAX_OPERATIONS:
            raise NfsError(NfsStatus.TOO_MANY_OPS)
        if self.minor and self.on.session is None:
            if name not in ALONE:
                raise NfsError(NfsStatus.OP_NOT_IN_SESSION)
            if count > 1:
                raise NfsError(NfsStatus.NOT_ONLY_OP)
        run = STATELESS.get(name)
        if run is None and self.minor:
            run = STATEFUL.get(name) or ALONE.get(name)
        if run is None:
            raise NfsError(NfsStatus.NOTSUPP)
        return run


def _arguments(node: Node) -> dict[str, Any]:
    for one in node.walk():
        mask = one.child("attrmask") if isinstance(one.type, XdrAttributes) else None
        if mask is not None and isinstance(mask.value, tuple) and set(mask.value) - set(SUPPORTED):
            raise NfsError(NfsStatus.ATTRNOTSUPP)
    try:
        found = plain(node)
    except NoValue:
        raise NfsError(NfsStatus.BADXDR) from None
    shape = OPERATIONS[found["argop"]].arguments
    if shape is not None and not {name for name, _ in shape.fields} <= set(found):
        raise NfsError(NfsStatus.BADXDR)
    return dict(found)


def _reply(status: int, tag: bytes, count: int, results: list[Parts]) -> Parts:
    """COMPOUND4res, with neighbouring bytes in one part."""
    tag_type, status_type = COMPOUND4ARGS.fields[0][1], COMPOUND4ARGS.fields[1][1]
    text = bytearray(encoded(status_type, status) + encoded(tag_type, tag) + encoded(status_type, count))
    parts: list[bytes | DdpItem] = []
    for one in (part for result in results for part in result):
        if isinstance(one, DdpItem):
            parts += [bytes(text), one]
            text.clear()
        else:
            text += one
    return (*parts, bytes(text)) if text else tuple(parts)
