"""What the first bytes of a Send say about which flow answers it, for pairing flows without a CM exchange."""

from __future__ import annotations

from ..arrays import Bytes
from ..layers.oncrpc_codes import CALL, REPLY
from ..layers.rpcrdma_codes import RDMA_ERROR, RDMA_MSG, RDMA_NOMSG
from ..onc.programs import is_callback
from ..transport.rc.pairing import SendEvidence, SendReader
from .messages import TransportHeader
from .transport_header import decode_header

_ROLES = {CALL: "request", REPLY: "answer"}


def read_send(data: Bytes, start: int, end: int, length: int) -> SendEvidence | None:
    """The XID, whether it is a call or a reply, and the handles that a call advertises."""
    if end - start < 8:
        return None
    header = decode_header(data, start, end, length)
    if header.version not in (1, 2):
        return None
    role = _role(header, data, start, end)
    handles: tuple[int, ...] = ()
    if role == "request":
        written = (*header.writes, header.reply) if header.reply else header.writes
        segments = [segment for read in header.reads for segment in read.segments]
        segments += [segment for chunk in written for segment in chunk.segments]
        handles = tuple(segment.handle for segment in segments)
    return SendEvidence(header.xid, role, handles, role == "request" and _calls_back(header, data, start, end))


def _calls_back(header: TransportHeader, data: Bytes, start: int, end: int) -> bool:
    """Whether it is a call of a program that clients serve."""
    at = start + header.length + 12
    return header.procedure == RDMA_MSG and at + 4 <= end and is_callback(int.from_bytes(data[at : at + 4].tobytes()))


def _role(header: TransportHeader, data: Bytes, start: int, end: int) -> str:
    if header.procedure == RDMA_ERROR:
        return "answer"
    if header.procedure == RDMA_MSG and not header.problem and end - start >= header.length + 8:
        at = start + header.length + 4
        return _ROLES.get(int.from_bytes(data[at : at + 4].tobytes()), "")
    if header.procedure == RDMA_NOMSG and not header.problem and header.chunks:
        return "request" if header.reads else "answer" if header.reply else ""
    if header.option is not None:
        return ""  # Either end may request something of the other.
    return "" if header.direction is None else _ROLES.get(header.direction, "")


RPC_SENDS = SendReader(read_send, "XIDs")
