"""The RPC-over-RDMA transport header (RFC 8166, section 4) as Scapy packets.

The four fixed words are ``RPCRDMA``; its payload is the body that version and procedure call for, here those of
version 1, in ``rpcrdma2`` those of version 2::

    RPCRDMA(xid=7) / RDMAMsg(reads=[ReadSegment(position=124, handle=5, length=8192)]) / ONCRPC(xid=7) / …

A body that is no valid XDR (an optional-data word other than 0 or 1, a list or count that runs past the end) stays Raw.
``rpcrdma.transport_header`` decodes the same header fast, and names what is wrong with it.
"""

from __future__ import annotations

from typing import Any

from scapy.fields import ConditionalField, IntEnumField, IntField, MultiEnumField, XIntField
from scapy.packet import Raw, bind_top_down

from . import rpcrdma2
from .chunks import CHUNKS, _WithChunks
from .layer import Header
from .oncrpc import oncrpc_class
from .rpcrdma_codes import (
    ERR_CHUNK,
    ERR_VERS,
    ERROR_NAMES,
    PROCEDURE_NAMES,
    PROCEDURE_NAMES_2,
    RDMA_ERROR,
    RDMA_MSG,
    RDMA_MSGP,
    RDMA_NOMSG,
)


class RDMAMsg(_WithChunks):
    """Body of an RDMA_MSG: three chunk lists; the Payload stream follows (RFC 8166, 4.1 and 4.4)."""

    name = "RDMA_MSG"
    fields_desc = CHUNKS

    def guess_payload_class(self, payload: bytes) -> type[Any]:
        return oncrpc_class(payload)


class RDMANomsg(_WithChunks):
    """Body of an RDMA_NOMSG: three chunk lists, one of which carries the whole RPC message."""

    name = "RDMA_NOMSG"
    fields_desc = CHUNKS


class RDMAMsgp(_WithChunks):
    """Body of an RDMA_MSGP, which is no longer supported (RFC 8166, 4.6)."""

    name = "RDMA_MSGP"
    fields_desc = (IntField("align", 0), IntField("thresh", 0), *CHUNKS)
    align: int
    thresh: int

    def guess_payload_class(self, payload: bytes) -> type[Any]:
        return oncrpc_class(payload)


class RDMAError(Header):
    """Body of an RDMA_ERROR: why, and for RDMA_ERR_VERS the versions supported (RFC 8166, 4.5)."""

    name = "RDMA_ERROR"
    fields_desc = (
        IntEnumField("err", ERR_CHUNK, ERROR_NAMES),
        ConditionalField(IntField("vers_low", 1), lambda body: body.err == ERR_VERS),
        ConditionalField(IntField("vers_high", 1), lambda body: body.err == ERR_VERS),
    )
    err: int
    vers_low: int | None
    vers_high: int | None


BODIES: dict[int, dict[int, type[Any]]] = {
    1: {RDMA_MSG: RDMAMsg, RDMA_NOMSG: RDMANomsg, RDMA_MSGP: RDMAMsgp, RDMA_ERROR: RDMAError},
    2: rpcrdma2.BODIES,
}
"""By version and procedure.  An RDMA_DONE has no body."""


class RPCRDMA(Header):
    """The words that are the same in every version (RFC 8166, 4.2), 16 bytes."""

    name = "RPC-over-RDMA"
    fields_desc = (
        XIntField("xid", 0),
        IntField("version", 1),
        IntField("credits", 1),
        MultiEnumField(
            "procedure",
            RDMA_MSG,
            {1: PROCEDURE_NAMES, 2: PROCEDURE_NAMES_2},
            depends_on=lambda header: header.version,
            fmt="I",
        ),
    )
    xid: int
    version: int
    credits: int
    procedure: int

    def guess_payload_class(self, payload: bytes) -> type[Any]:
        unknown = RDMAError if self.procedure == RDMA_ERROR else Raw
        body: type[Any] = BODIES.get(self.version, {}).get(self.procedure, unknown)
        return body

    def mysummary(self) -> str:
        return str(self.sprintf("RPC-over-RDMA v%RPCRDMA.version% %RPCRDMA.procedure% xid %RPCRDMA.xid%"))


for _version, _bodies in BODIES.items():
    for _procedure, _body in _bodies.items():
        bind_top_down(RPCRDMA, _body, version=_version, procedure=_procedure)
