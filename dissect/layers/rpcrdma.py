"""The RPC-over-RDMA transport header (RFC 8166, section 4) as Scapy packets.

The four fixed words are ``RPCRDMA``; its payload is the body that version and procedure call for, of version 2
(version-two-01, 4.2) with the options of its extension (xcharext-02, 5.2)::

    RPCRDMA(xid=7) / RDMAMsg(reads=[ReadSegment(position=124, handle=5, length=8192)]) / ONCRPC(xid=7) / …
    RPCRDMA(xid=7) / RDMA2Msg(rdma_direction=0, reads=[ReadSegment(position=124, length=8192)]) / ONCRPC(xid=7)
    RPCRDMA(xid=8) / RDMA2Optional(optinfo=ROPT_INITXCH(start=[Xcharval(which=1, value=8192)], nochg=[1]))

A body that is no valid XDR (an optional-data word other than 0 or 1, a list or count that runs past the end) stays Raw,
and so does an rdma_optinfo that is none of the option its rdma_opttype names.  ``rpcrdma.transport_header`` decodes the
same header fast, and names what is wrong with it.

The direction keeps its whole name, for ``direction`` is something else to Scapy.  The options and characteristics are
the rows of the tables in ``characteristics_codes``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from scapy.fields import (
    ConditionalField,
    FieldLenField,
    FieldListField,
    IntEnumField,
    IntField,
    MultiEnumField,
    PacketField,
    PacketListField,
    StrField,
    XIntField,
    XLongField,
)
from scapy.packet import Raw, bind_top_down

from .characteristics_codes import CHARACTERISTICS, OPTIONS, OptionKind, interpret
from .layer import (
    ArrayField,
    EnumField,
    Header,
    Item,
    ItemField,
    MalformedXDR,
    OptionalField,
    OptionalListField,
    Structure,
    padded,
    word_at,
)
from .oncrpc import oncrpc_class
from .rpcrdma_codes import (
    DIRECTION_NAMES,
    ERR_CHUNK,
    ERR_VERS,
    ERROR_NAMES,
    ERROR_NAMES_2,
    PROCEDURE_NAMES,
    PROCEDURE_NAMES_2,
    RDMA_ERROR,
    RDMA_MSG,
    RDMA_MSGP,
    RDMA_NOMSG,
    RDMA_OPTIONAL,
)


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
    """Plain segments, as many as the preceding count says; they must fit the remaining bytes."""

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

    @classmethod
    def size_at(cls, data: bytes, at: int) -> int:
        return 4 + 16 * word_at(data, at)


CHUNKS = (
    OptionalListField("reads", [], ReadSegment),
    OptionalListField("writes", [], SegmentArray),
    OptionalField("reply", None, SegmentArray),
)
"""What a message advertises or gives back, as Scapy fields."""


class _WithPayload(Header):
    """A body behind which a Payload stream may stand."""

    __slots__ = ()

    def guess_payload_class(self, payload: bytes) -> type[Any]:
        return oncrpc_class(payload)


class RDMA2Msg(_WithPayload, Structure):
    """Body of an RDMA2_MSG: direction and three chunk lists; the Payload stream follows."""

    name = "RDMA2_MSG"
    fields_desc = (EnumField("rdma_direction", 0, DIRECTION_NAMES), *CHUNKS)


class RDMA2Nomsg(Structure):
    """Body of an RDMA2_NOMSG: direction and three chunk lists, one of which carries the whole RPC message."""

    name = "RDMA2_NOMSG"
    fields_desc = (EnumField("rdma_direction", 0, DIRECTION_NAMES), *CHUNKS)


def _error_fields(names: dict[int, str]) -> tuple[Any, ...]:
    """Why; and for RDMA_ERR_VERS the versions supported."""
    return (
        IntEnumField("err", ERR_CHUNK, names),
        ConditionalField(IntField("vers_low", 1), lambda body: body.err == ERR_VERS),
        ConditionalField(IntField("vers_high", 1), lambda body: body.err == ERR_VERS),
    )


class RDMA2Error(Header):
    """Body of an RDMA2_ERROR: why, and for RDMA2_ERR_VERS the versions supported.

    The text of version-two-01, 3.2, gives it a direction word, its XDR in 4.2 does not.  This is the XDR.
    """

    name = "RDMA2_ERROR"
    fields_desc = _error_fields(ERROR_NAMES_2)


def _opaque(name: str, data: bytes) -> tuple[bytes, bytes]:
    """Opaque data behind their length (RFC 4506, 4.10), and what follows; MalformedXDR where they are not whole."""
    length = word_at(data, 0)
    end = 4 + padded(length)
    if end > len(data) or any(data[4 + length : end]):
        raise MalformedXDR(f"{name}: {length} bytes out of {len(data) - 4}")
    return data[4 : 4 + length], data[end:]


def _encoded(raw: bytes) -> bytes:
    return len(raw).to_bytes(4) + raw.ljust(padded(len(raw)), b"\0")


class ValueField(StrField):  # type: ignore[misc]
    """xchv_data with its length: a number where it is one of the characteristic's type, else the bytes."""

    def __init__(self, name: str) -> None:
        super().__init__(name, b"")

    def getfield(self, pkt: Any, data: bytes) -> tuple[bytes, int | bool | bytes]:
        raw, rest = _opaque(self.name, data)
        known = interpret(pkt.which, raw)
        exact = known.value is not None and not known.problem
        return rest, known.value if exact else known.data  # type: ignore[return-value]

    def addfield(self, pkt: Any, data: bytes, value: int | bool | bytes) -> bytes:
        return data + _encoded(value if isinstance(value, bytes) else int(value).to_bytes(4))

    def i2repr(self, pkt: Any, value: int | bool | bytes) -> str:
        known = interpret(pkt.which, value if isinstance(value, bytes) else int(value).to_bytes(4))
        return f"{known.words} ({known.problem})" if known.problem else known.words


class Xcharval(Item):
    """A characteristic and its value (xcharext-02, 2.1)."""

    name = "xcharval"
    fields_desc = (
        IntEnumField("which", 1, {code: kind.name for code, kind in CHARACTERISTICS.items()}),
        ValueField("value"),
    )

    @classmethod
    def size_at(cls, data: bytes, at: int) -> int:
        return 8 + padded(word_at(data, at + 4))


class SubsetField(FieldListField):  # type: ignore[misc]
    """An xcharsubset: an array of words whose bits select positions, least significant first (xcharext-02, 2.1)."""

    def __init__(self, name: str) -> None:
        super().__init__(name, [], IntField("", 0))

    def getfield(self, pkt: Any, data: bytes) -> tuple[bytes, list[int]]:
        end = 4 + 4 * word_at(data, 0)
        if end > len(data):
            raise MalformedXDR(f"{self.name}: {word_at(data, 0)} words in {len(data) - 4} bytes")
        return data[end:], [word_at(data, at) for at in range(4, end, 4)]

    def addfield(self, pkt: Any, data: bytes, value: list[int]) -> bytes:
        return data + len(value).to_bytes(4) + b"".join(word.to_bytes(4) for word in value)

    def i2repr(self, pkt: Any, value: list[int]) -> str:
        positions = [32 * at + bit for at, word in enumerate(value) for bit in range(32) if word >> bit & 1]
        return f"positions {', '.join(map(str, positions))}" if positions else "none"


_FIELDS: dict[str, Callable[[str], Any]] = {
    "xcharval": lambda name: ItemField(name, Xcharval(), Xcharval),
    "xcharspec": lambda name: ArrayField(name, [], Xcharval),
    "xcharsubset": SubsetField,
    "bool": lambda name: EnumField(name, 0, {0: "false", 1: "true"}),
}
"""The Scapy field for an XDR type."""


def option_layer(kind: OptionKind) -> type[Any]:
    """The layer of an option; its fields have the names of the XDR without what they begin with."""
    return type(
        kind.name,
        (Structure,),
        {
            "__module__": __name__,
            "__doc__": f"rdma_optinfo of {kind.name}: {kind.title} (xcharext-02, {kind.section}).",
            "name": kind.name,
            "fields_desc": tuple(_FIELDS[type_](name.partition("_")[2]) for name, type_ in kind.fields),
        },
    )


OPTION_LAYERS = {code: option_layer(kind) for code, kind in OPTIONS.items()}
"""A layer for each row of OPTIONS."""
globals().update({layer.__name__: layer for layer in OPTION_LAYERS.values()})

if TYPE_CHECKING:
    ROPT_INITXCH = ROPT_REQXCH = ROPT_RESPXCH = ROPT_UPDXCH = Structure


class OpttypeField(IntEnumField):  # type: ignore[misc]
    """rdma_opttype; where it is not given, that of the structure in rdma_optinfo."""

    def i2m(self, pkt: Any, value: int | None) -> int:
        if value is None:
            return next((code for code, layer in OPTION_LAYERS.items() if isinstance(pkt.optinfo, layer)), 0)
        return int(value)


class OptinfoField(PacketField):  # type: ignore[misc]
    """rdma_optinfo: opaque data with the structure that rdma_opttype names inside."""

    def getfield(self, pkt: Any, data: bytes) -> tuple[bytes, Any]:
        raw, rest = _opaque(self.name, data)
        return rest, _structure(pkt.opttype, raw)

    def addfield(self, pkt: Any, data: bytes, value: Any) -> bytes:
        return data + _encoded(b"" if value is None else bytes(value))


def _structure(option: int, data: bytes) -> Any:
    layer = OPTION_LAYERS.get(option)
    try:
        structure = layer(data) if layer else Raw(data)
    except MalformedXDR:
        return Raw(data)
    return structure if bytes(structure) == data else Raw(data)


class RDMA2Optional(_WithPayload, Structure):
    """Body of an RDMA2_OPTIONAL: direction, option and its structure; a Payload stream may follow."""

    name = "RDMA2_OPTIONAL"
    fields_desc = (
        EnumField("rdma_direction", 0, DIRECTION_NAMES),
        OpttypeField("opttype", None, {code: kind.name for code, kind in OPTIONS.items()}),
        OptinfoField("optinfo", None, Raw),
    )


class RDMAMsg(_WithPayload, Structure):
    """Body of an RDMA_MSG: three chunk lists; the Payload stream follows (RFC 8166, 4.1 and 4.4)."""

    name = "RDMA_MSG"
    fields_desc = CHUNKS


class RDMANomsg(Structure):
    """Body of an RDMA_NOMSG: three chunk lists, one of which carries the whole RPC message."""

    name = "RDMA_NOMSG"
    fields_desc = CHUNKS


class RDMAMsgp(_WithPayload, Structure):
    """Body of an RDMA_MSGP, which is no longer supported (RFC 8166, 4.6)."""

    name = "RDMA_MSGP"
    fields_desc = (IntField("align", 0), IntField("thresh", 0), *CHUNKS)


class RDMAError(Header):
    """Body of an RDMA_ERROR: why, and for RDMA_ERR_VERS the versions supported (RFC 8166, 4.5)."""

    name = "RDMA_ERROR"
    fields_desc = _error_fields(ERROR_NAMES)


BODIES: dict[int, dict[int, type[Any]]] = {
    1: {RDMA_MSG: RDMAMsg, RDMA_NOMSG: RDMANomsg, RDMA_MSGP: RDMAMsgp, RDMA_ERROR: RDMAError},
    2: {RDMA_MSG: RDMA2Msg, RDMA_NOMSG: RDMA2Nomsg, RDMA_ERROR: RDMA2Error, RDMA_OPTIONAL: RDMA2Optional},
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

    def guess_payload_class(self, payload: bytes) -> type[Any]:
        unknown = RDMAError if self.procedure == RDMA_ERROR else Raw
        body: type[Any] = BODIES.get(self.version, {}).get(self.procedure, unknown)
        return body

    def mysummary(self) -> str:
        return str(self.sprintf("RPC-over-RDMA v%RPCRDMA.version% %RPCRDMA.procedure% xid %RPCRDMA.xid%"))


for _version, _bodies in BODIES.items():
    for _procedure, _body in _bodies.items():
        bind_top_down(RPCRDMA, _body, version=_version, procedure=_procedure)
