"""Transport headers, built with the Scapy layers: the inverse of ``rdmascope.dissect.header.decode_header``."""

from __future__ import annotations

from typing import Any

from ..layers.rpcrdma import BODIES, RPCRDMA, RDMAError, RDMASegment, ReadSegment, SegmentArray
from ..messages import RDMA_DONE, RDMA_ERROR, TransportHeader, WriteChunk


def encode_header(header: TransportHeader) -> bytes:
    """The header as it goes on the wire; ``length`` and ``problem`` do not count.

    Of a version or a procedure that no document defines it is the four fixed words.
    """
    fixed = RPCRDMA(
        xid=header.xid, version=header.version, credits=header.credits or 0, procedure=header.procedure or 0
    )
    return bytes(fixed) + bytes(_body(header))


def _body(header: TransportHeader) -> Any:
    bodies = BODIES.get(header.version, {})
    if header.procedure == RDMA_ERROR:
        body = bodies.get(RDMA_ERROR, RDMAError)(err=header.error or 0)
        if header.supported is not None:
            body.vers_low, body.vers_high = header.supported
        return body
    layer = bodies.get(header.procedure or 0)
    if layer is None or header.procedure == RDMA_DONE:
        return b""
    return layer(
        reads=[ReadSegment(position=chunk.position, handle=one.handle, length=one.length, offset=one.offset)
               for chunk in header.reads for one in chunk.segments],
        writes=[_array(chunk) for chunk in header.writes],
        reply=None if header.reply is None else _array(header.reply),
    )  # fmt: skip


def _array(chunk: WriteChunk) -> Any:
    segments = [RDMASegment(handle=one.handle, length=one.length, offset=one.offset) for one in chunk.segments]
    return SegmentArray(segments=segments)
