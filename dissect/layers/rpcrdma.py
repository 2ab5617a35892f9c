"""The RPC-over-RDMA version 1 transport header (RFC 8166, section 4) as Scapy packets.

The four fixed words are ``RPCRDMA``; its payload is the body that version and procedure call for::

    RPCRDMA(xid=7) / RDMAMsg(reads=[ReadSegment(position=124, handle=5, length=8192)]) / ONCRPC(xid=7) / …

A body that is no valid XDR (an optional-data word other than 0 or 1, a list or count that runs past the end)
stays Raw.  ``rdmascope.dissect.header`` decodes the same header fast, and says what is wrong with it.
"""

from __future__ import annotations

from typing import Any

from scapy.fields import (
    ConditionalField,
    FieldLenField,
    IntEnumField,
    IntField,
    PacketListField,
    XIntField,
    XLongField,
)
from scapy.packet import Raw, bind_top_down

from ..messages import (
    ERR_CHUNK,
    ERR_VERS,
    ERROR_NAMES,
    PROCEDURE_NAMES,
    RDMA_ERROR,
    RDMA_MSG,
    RDMA_MSGP,
    RDMA_NOMSG,
)
from .bth import Header
from .oncrpc import oncrpc_class
from .xdr import Item, MalformedXDR, OptionalField, OptionalListField, Structure, word_at


class RDMASegment(Item):
    """A plain segment: registered memory (RFC 8166, 3.4.3), 16 bytes."""

    name = "RDMA segment"
    fields_desc = (XIntField("handle", 0), IntField("length", 0), XLongField("offset", 0))


class ReadSegment(Item):
    """A Read segment: a Position in the Payload stream and a plain segment (RFC 8166, 3.4.5), 20 bytes."""

    name = "Read segment"
    fields_desc = (
        IntField("position", 0),
        XIntField("handle", 0),
        IntField("length", 0),
        XLongField("offset", 0),
    )


class SegmentsField(PacketListField):  # type: ignore[misc]
    """As many plain segments as the count before them says, which must fit the bytes there are."""

    def getfield(self, pkt: Any, data: bytes) -> tuple[bytes, list[RDMASegment]]:
        end = pkt.count * 16
        if end > len(data):
            raise MalformedXDR(f"{pkt.count} segments in {len(data)} bytes")
        return data[end:], [RDMASegment(data[at : at + 16]) for at in range(0, end, 16)]


class SegmentArray(Item):
    """A Write chunk or the Reply chunk: a counted array of plain segments (RFC 8166, 3.4.6)."""

    name = "Chunk"
    fields_desc = (
        FieldLenField("count", None, fmt="I", count_of="segments"),
        SegmentsField("segments", [], RDMASegment),
    )

    @classmethod
    def size_at(cls, data: bytes, at: int) -> int:
        return 4 + 16 * word_at(data, at)


_CHUNKS = (
    OptionalListField("reads", [], ReadSegment),
    OptionalListField("writes", [], SegmentArray),
    OptionalField("reply", None, SegmentArray),
)


class RDMAMsg(Structure):
    """Body of an RDMA_MSG: three chunk lists; the Payload stream follows (RFC 8166, 4.1 and 4.4)."""

    name = "RDMA_MSG"
    fields_desc = _CHUNKS

    def guess_payload_class(self, payload: bytes) -> type[Any]:
        return oncrpc_class(payload)


class RDMANomsg(Structure):
    """Body of an RDMA_NOMSG: three chunk lists, one of which carries the whole RPC message."""

    name = "RDMA_NOMSG"
    fields_desc = _CHUNKS


class RDMAMsgp(Structure):
    """Body of an RDMA_MSGP, which is no longer supported (RFC 8166, 4.6)."""

    name = "RDMA_MSGP"
    fields_desc = (IntField("align", 0), IntField("thresh", 0), *_CHUNKS)

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


BODIES: dict[int, dict[int, type[Any]]] = {
    1: {RDMA_MSG: RDMAMsg, RDMA_NOMSG: RDMANomsg, RDMA_MSGP: RDMAMsgp, RDMA_ERROR: RDMAError},
}
"""By version and procedure.  An RDMA_DONE has no body."""


class RPCRDMA(Header):
    """The words that are the same in every version (RFC 8166, 4.2), 16 bytes."""

    name = "RPC-over-RDMA"
    fields_desc = (
        XIntField("xid", 0),
        IntField("version", 1),
        IntField("credits", 1),
        IntEnumField("procedure", RDMA_MSG, PROCEDURE_NAMES),
    )

    def guess_payload_class(self, payload: bytes) -> type[Any]:
        body: type[Any] = BODIES.get(self.version, {}).get(self.procedure, Raw)
        return RDMAError if self.procedure == RDMA_ERROR else body

    def mysummary(self) -> str:
        return str(self.sprintf("RPC-over-RDMA v%RPCRDMA.version% %RPCRDMA.procedure% xid %RPCRDMA.xid%"))


for _procedure, _body in BODIES[1].items():
    bind_top_down(RPCRDMA, _body, version=1, procedure=_procedure)
