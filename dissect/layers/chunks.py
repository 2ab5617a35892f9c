"""The chunk lists of RPC-over-RDMA, which are the same in both versions (RFC 8166, 4.3; version-two-01, 4.2)."""

from __future__ import annotations

from typing import Any

from scapy.fields import FieldLenField, IntField, PacketListField, XIntField, XLongField

from .xdr import Item, MalformedXDR, OptionalField, OptionalListField, Structure, word_at


class RDMASegment(Item):
    """A plain segment: registered memory (RFC 8166, 3.4.3), 16 bytes."""

    name = "RDMA segment"
    fields_desc = (XIntField("handle", 0), IntField("length", 0), XLongField("offset", 0))
    handle: int
    length: int
    offset: int


class ReadSegment(Item):
    """A Read segment: a Position in the Payload stream and a plain segment (RFC 8166, 3.4.5), 20 bytes."""

    name = "Read segment"
    fields_desc = (
        IntField("position", 0),
        XIntField("handle", 0),
        IntField("length", 0),
        XLongField("offset", 0),
    )
    position: int
    handle: int
    length: int
    offset: int


class SegmentsField(PacketListField):  # type: ignore[misc]
    """As many plain segments as the count before them says, which must fit the bytes there are."""

    def getfield(self, pkt: Any, data: bytes) -> tuple[bytes, list[RDMASegment]]:
        end = pkt.count * 16
        if end > len(data):
            raise MalformedXDR(f"{pkt.count} segments in {len(data)} bytes")
        return data[end:], [RDMASegment.strict(data[at : at + 16]) for at in range(0, end, 16)]


class SegmentArray(Item):
    """A Write chunk or the Reply chunk: a counted array of plain segments (RFC 8166, 3.4.6)."""

    name = "Chunk"
    fields_desc = (
        FieldLenField("count", None, fmt="I", count_of="segments"),
        SegmentsField("segments", [], RDMASegment),
    )
    count: int | None
    segments: list[RDMASegment]

    @classmethod
    def size_at(cls, data: bytes, at: int) -> int:
        return 4 + 16 * word_at(data, at)


CHUNKS = (
    OptionalListField("reads", [], ReadSegment),
    OptionalListField("writes", [], SegmentArray),
    OptionalField("reply", None, SegmentArray),
)
"""What a message advertises or gives back, as Scapy fields."""


class _WithChunks(Structure):
    """A body with the fields of ``CHUNKS``."""

    __slots__ = ()
    reads: list[ReadSegment]
    writes: list[SegmentArray]
    reply: SegmentArray | None
