"""A whole RPC message as trees: its header, and the arguments or results behind it."""

from __future__ import annotations

from ...layers.oncrpc_codes import GSS_INTEGRITY, GSS_PRIVACY, RPCSEC_GSS, RPCSEC_GSS_DATA, SUCCESS
from ...named_tuple import NamedTuple
from ..rpc_header import GssCredential, procedure_name, program_name
from .registry import procedure_shape
from .rfc5531 import GSS_ARGUMENTS, GSS_RESULTS, RPC_CALL, RPC_GSS_PRIV_DATA, RPC_REPLY, integrity_data
from .types import MAX_NODES, Node, SparseBytes, XdrType, decode

SEALED = "sealed by RPCSEC_GSS"


class MessageTree(NamedTuple):
    header: Node
    body: Node | None
    """Arguments or results; None where there are none, or none that can be decoded."""
    rest: Node | None
    """The bytes that were not decoded, None where all were."""
    problem: str
    """Why bytes were not decoded, '' where all were."""


def call_tree(data: SparseBytes, max_nodes: int = MAX_NODES) -> MessageTree:
    """The tree of a call, from the XID on."""
    header = decode(RPC_CALL, "header", data, 0, data.length, max_nodes)
    if header.problem:
        return _tree(header.root, None, data, header.end, header.problem)
    program, version, procedure = (_integer(header.root.child(name)) for name in ("prog", "vers", "proc"))
    gss = _gss(header.root)
    cred = header.root.child("cred")
    if gss is None and cred is not None and _integer(cred.child("flavor")) == RPCSEC_GSS:
        return _tree(header.root, None, data, header.end, "the RPCSEC_GSS credential cannot be decoded")
    return _body(data, header.root, header.end, "arguments", (program, version, procedure), gss, max_nodes)


def reply_tree(
    data: SparseBytes,
    program: int | None,
    version: int | None,
    procedure: int | None,
    gss: GssCredential | None,
    max_nodes: int = MAX_NODES,
) -> MessageTree:
    """The tree of a reply, from the XID on; all but the bytes are the call's, None where the call is unknown."""
    header = decode(RPC_REPLY, "header", data, 0, data.length, max_nodes)
    if header.problem:
        return _tree(header.root, None, data, header.end, header.problem)
    body = header.root.child("rbody")
    accepted = body.child("reply_data") if body is not None else None
    if accepted is None or _integer(accepted.child("accept_stat")) != SUCCESS:
        return _tree(header.root, None, data, header.end, "")
    if program is None:
        return _tree(header.root, None, data, header.end, "the call is not known")
    return _body(data, header.root, header.end, "results", (program, version, procedure), gss, max_nodes)


def _body(
    data: SparseBytes,
    header: Node,
    at: int,
    name: str,
    numbers: tuple[int | None, int | None, int | None],
    gss: GssCredential | None,
    max_nodes: int,
) -> MessageTree:
    program, version, procedure = numbers
    arguments = name == "arguments"
    shape: XdrType | None
    if gss is not None and gss.procedure != RPCSEC_GSS_DATA:
        shapes = GSS_ARGUMENTS if arguments else GSS_RESULTS
        if gss.procedure not in shapes:
            return _tree(header, None, data, at, f"RPCSEC_GSS procedure {gss.procedure} is unknown")
        shape = shapes[gss.procedure]
    else:
        procedure_types = procedure_shape(program, version, procedure)
        if procedure_types is None:
            return _tree(header, None, data, at, _unknown(program, version, procedure))
        shape = procedure_types.arguments if arguments else procedure_types.results
    if gss is not None and gss.procedure not in (1, 2, 3):
        if gss.service == GSS_PRIVACY:
            body = decode(RPC_GSS_PRIV_DATA, name, data, at, data.length)
            for node in body.root.children:
                node.note = node.note or SEALED
            return _tree(header, body.root, data, body.end, body.problem)
        if gss.service == GSS_INTEGRITY:
            shape = integrity_data(name, shape)
    if shape is None:
        return _tree(header, None, data, at, "")
    body = decode(shape, name, data, at, data.length, max_nodes)
    return _tree(header, body.root, data, body.end, body.problem)


def _unknown(program: int | None, version: int | None, procedure: int | None) -> str:
    if program is None or version is None or procedure is None:
        return "the call is not known"
    return f"{program_name(program)} version {version}, {procedure_name(program, version, procedure)}: not declared"


def _tree(header: Node, body: Node | None, data: SparseBytes, end: int, problem: str) -> MessageTree:
    left = data.length - end
    if left <= 0:
        return MessageTree(header, body, None, problem)
    problem = problem or f"{left:,} bytes behind the end"
    return MessageTree(header, body, Node("rest", None, end, left, data.view(end, data.length), [], problem), problem)


def _integer(node: Node | None) -> int | None:
    return node.value if node is not None and isinstance(node.value, int) else None


def _gss(header: Node) -> GssCredential | None:
    cred = header.child("cred")
    body = cred.child("body") if cred is not None else None
    parsed = body.child("rpc_gss_cred_t") if body is not None else None
    if parsed is None:
        return None
    version, procedure, sequence, service = (
        _integer(parsed.child(name)) for name in ("version", "gss_proc", "seq_num", "service")
    )
    if version is None or procedure is None or sequence is None or service is None:
        return None
    return GssCredential(version, procedure, sequence, service)
