"""Transport headers, built with the Scapy layers: the inverse of ``rpcrdma.transport_header.decode_header``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rdmascope.dissect.layers.chunks import RDMASegment, ReadSegment, SegmentArray
from rdmascope.dissect.layers.rpcrdma import BODIES, RPCRDMA, RDMAError
from rdmascope.dissect.layers.rpcrdma2 import OPTION_LAYERS, Xcharval
from rdmascope.dissect.layers.rpcrdma_codes import RDMA_ERROR, RDMA_OPTIONAL
from rdmascope.dissect.rpcrdma.messages import TransportHeader, WriteChunk

Value = int | bool | bytes
"""Of a characteristic; bytes for the XDR of one that no document defines."""


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
    if layer is None:
        return b""
    if header.procedure == RDMA_OPTIONAL:
        return layer(rdma_direction=header.direction or 0, opttype=header.option or 0, optinfo=header.optinfo)
    body = layer(
        reads=[
            ReadSegment(position=chunk.position, handle=one.handle, length=one.length, offset=one.offset)
            for chunk in header.reads
            for one in chunk.segments
        ],
        writes=[_array(chunk) for chunk in header.writes],
        reply=None if header.reply is None else _array(header.reply),
    )
    if header.version > 1:
        body.rdma_direction = header.direction or 0
    return body


def _array(chunk: WriteChunk) -> Any:
    segments = [RDMASegment(handle=one.handle, length=one.length, offset=one.offset) for one in chunk.segments]
    return SegmentArray(segments=segments)


def encode_option(option: int, *fields: Any) -> bytes:
    """The rdma_optinfo of an option, its fields in their order (xcharext-02, 5.2)."""
    layer = OPTION_LAYERS[option]
    names = [field.name for field in layer.fields_desc]
    return bytes(layer(**dict(zip(names, fields, strict=True))))


def xcharval(which: int, value: Value) -> Any:
    return Xcharval(which=which, value=value)


def xcharsubset(positions: Iterable[int]) -> list[int]:
    """The words that select the positions (xcharext-02, 2.1)."""
    chosen = set(positions)
    return [
        sum(1 << bit for bit in range(32) if 32 * word + bit in chosen)
        for word in range(max(chosen, default=-1) // 32 + 1)
    ]
