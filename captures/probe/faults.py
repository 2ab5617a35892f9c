"""What no requester may send, and what a responder has to answer."""

from __future__ import annotations

from struct import pack

from rdmascope.dissect.layers.rpcrdma_codes import RDMA_DONE, RDMA_ERROR, RDMA_MSG, RDMA_MSGP, RDMA_NOMSG
from rdmascope.dissect.rpcrdma.messages import ReadChunk, Segment, WriteChunk

from ..synth.endpoint.payload import reduce
from .checks import ask_for_long_reply, message, null, short_call, write
from .raw_connection import CREDITS, Answer, Outcome, RawConnection
from .verdicts import CheckVerdict, absent, check, named, passed, refusal, violation

UNDEFINED = 77
"""An rdma_proc that no version defines."""
_NO_HANDLE = 0xDEAD0000


def words(xid: int, procedure: int, *more: int) -> bytes:
    """A header of version 1, word by word."""
    return pack(f">{4 + len(more)}I", xid, 1, CREDITS, procedure, *more)


def refused(on: RawConnection, header: bytes, payload: bytes = b"") -> CheckVerdict:
    """RDMA_ERR_CHUNK has to come back."""
    xid = int.from_bytes(header[:4], "big")
    on.send(header, payload)
    return refusal(on.receive(xid), xid, 1)


@check("msgp", "V1-ERROR-FOR-RESERVED", fault=True)
def msgp(on: RawConnection) -> CheckVerdict:
    """An RDMA_MSGP, which is no longer supported; RDMA_ERR_CHUNK comes back."""
    xid = on.xid()
    return refused(on, words(xid, RDMA_MSGP, 0, 0, 0, 0, 0), null(xid))


@check("done", "V1-ERROR-FOR-RESERVED", fault=True)
def done(on: RawConnection) -> CheckVerdict:
    """An RDMA_DONE, which is no longer supported; RDMA_ERR_CHUNK comes back."""
    return refused(on, words(on.xid(), RDMA_DONE))


@check("undefined-procedure", "V1-ERROR-FOR-HEADER", fault=True)
def undefined_procedure(on: RawConnection) -> CheckVerdict:
    """rdma_proc 77; RDMA_ERR_CHUNK comes back."""
    xid = on.xid()
    return refused(on, words(xid, UNDEFINED, 0, 0, 0), null(xid))


@check("nomsg-without-chunks", "V1-ERROR-FOR-HEADER", fault=True)
def nomsg_without_chunks(on: RawConnection) -> CheckVerdict:
    """An RDMA_NOMSG without a chunk, so without an RPC message; RDMA_ERR_CHUNK comes back."""
    return refused(on, words(on.xid(), RDMA_NOMSG, 0, 0, 0))


@check("truncated-header", "V1-ERROR-FOR-HEADER", fault=True)
def truncated_header(on: RawConnection) -> CheckVerdict:
    """An RDMA_MSG that ends before its chunk lists; RDMA_ERR_CHUNK comes back."""
    return refused(on, words(on.xid(), RDMA_MSG))


@check("truncated-read-list", "V1-ERROR-FOR-HEADER", fault=True)
def truncated_read_list(on: RawConnection) -> CheckVerdict:
    """A Read list that ends in the middle of a segment; RDMA_ERR_CHUNK comes back."""
    return refused(on, words(on.xid(), RDMA_MSG, 1, 0, _NO_HANDLE))


@check("endless-read-list", "V1-ERROR-FOR-HEADER", fault=True)
def endless_read_list(on: RawConnection) -> CheckVerdict:
    """A Read list in which each entry announces another, up to the end of the message; RDMA_ERR_CHUNK comes back."""
    entry = pack(">IIIIQ", 1, 0, _NO_HANDLE, 4, 0)
    return refused(on, words(on.xid(), RDMA_NOMSG) + entry * ((on.to_server - 16) // len(entry)))


@check("segment-count", "V1-ERROR-FOR-HEADER", fault=True)
def segment_count(on: RawConnection) -> CheckVerdict:
    """A Write chunk that counts 4,294,967,295 segments; RDMA_ERR_CHUNK comes back."""
    xid = on.xid()
    return refused(on, words(xid, RDMA_MSG, 0, 1, 0xFFFFFFFF, _NO_HANDLE, 4, 0, 0, 0, 0), null(xid))


@check("position-odd", "V1-ERROR-FOR-HEADER", fault=True)
def position_odd(on: RawConnection) -> CheckVerdict:
    """A Read chunk whose Position is not a multiple of four; RDMA_ERR_CHUNK comes back."""
    xid = on.xid()
    data = bytes(64)
    stream, ((position, _),) = reduce(write(xid, data), (0,))
    _, chunk = on.chunk([len(data)], data)
    header = message(xid)
    header.reads = (ReadChunk(position - 2, chunk.segments),)
    on.send(header, stream)
    return refusal(on.receive(xid), xid, 1)


@check("xid-mismatch", "V1-XID-MATCH", fault=True)
def xid_mismatch(on: RawConnection) -> CheckVerdict:
    """A header with another XID than the RPC message behind it; RDMA_ERR_CHUNK comes back, under the header's XID, or
    the call is accepted: the rule binds the requester alone."""
    xid = on.xid()
    inside = xid ^ 0x5A5A0000
    on.send(words(xid, RDMA_MSG, 0, 0, 0), null(inside))
    answer = on.receive(xid, inside)
    header = answer.header
    if header is None or header.procedure == RDMA_ERROR:
        return refusal(answer, xid, 1)
    under = "the header's XID" if header.xid == xid else "the RPC message's XID"
    return passed(f"{named(answer)} under {under}: accepted, which no rule forbids")


@check("read-handle", "V1-RDMA-OUTSIDE", fault=True)
def read_handle(on: RawConnection) -> CheckVerdict:
    """A Read chunk with a handle that does not exist; the connection ends by the Remote Access Error, or RDMA_ERR_CHUNK
    comes back."""
    xid = on.xid()
    stream, ((position, data),) = reduce(write(xid, bytes(64)), (0,))
    header = message(xid)
    header.reads = (ReadChunk(position, (Segment(_NO_HANDLE, len(data), 0x1000),)),)
    on.send(header, stream)
    return _stopped(on.receive(xid))


@check("write-handle", "V1-RDMA-OUTSIDE", fault=True, receive_size=1024)
def write_handle(on: RawConnection) -> CheckVerdict:
    """A Reply chunk with a handle that does not exist, and a reply that is too long without; the connection ends by the
    Remote Access Error, or RDMA_ERR_CHUNK comes back."""
    answer = ask_for_long_reply(on, WriteChunk((Segment(_NO_HANDLE, 4096, 0x1000),)))
    if answer.header is not None and answer.header.procedure == RDMA_MSG:
        return passed(f"{named(answer)}, inline")
    return _stopped(answer)


@check("afterwards", "V1-XID-MATCH", fault=True)
def afterwards(on: RawConnection) -> CheckVerdict:
    """A NULL call after all faults; the server still answers."""
    return short_call(on)


def _stopped(answer: Answer) -> CheckVerdict:
    """RDMA operational errors are fatal to the connection, or are answered (RFC 8166, 4.5.3)."""
    if answer.outcome is Outcome.LOST:
        return passed(f"connection lost: {answer.reason}")
    if verdict := absent(answer):
        return verdict
    header = answer.header
    if header is not None and header.procedure == RDMA_ERROR:
        return refusal(answer, header.xid, 1)
    return violation(f"{named(answer)}, though the memory does not exist")
