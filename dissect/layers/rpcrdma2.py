"""The bodies of RPC-over-RDMA version 2 (version-two-01, 4.2) and the options of its extension (xcharext-02, 5.2).

The four words before them are ``RPCRDMA``, in ``rpcrdma``::

    RPCRDMA(xid=7) / RDMA2Msg(rdma_direction=0, reads=[ReadSegment(position=124, length=8192)]) / ONCRPC(xid=7)
    RPCRDMA(xid=8) / RDMA2Optional(optinfo=ROPT_INITXCH(start=[Xcharval(which=1, value=8192)], nochg=[1]))

A body that is no valid XDR stays Raw, and so does an rdma_optinfo that is none of the option its rdma_opttype names.
The direction keeps its whole name, for ``direction`` is something else to Scapy.
The options and characteristics are the rows of the tables in ``characteristics_codes``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from scapy.fields import ConditionalField, FieldListField, IntEnumField, IntField, PacketField, StrField
from scapy.packet import Raw

from .characteristics_codes import CHARACTERISTICS, OPTIONS, OptionKind, interpret
from .chunks import CHUNKS, _WithChunks
from .layer import Header
from .oncrpc import oncrpc_class
from .rpcrdma_codes import (
    DIRECTION_NAMES,
    ERR_CHUNK,
    ERR_VERS,
    ERROR_NAMES_2,
    RDMA_ERROR,
    RDMA_MSG,
    RDMA_NOMSG,
    RDMA_OPTIONAL,
)
from .xdr import ArrayField, EnumField, Item, ItemField, MalformedXDR, Structure, padded, word_at


class RDMA2Msg(_WithChunks):
    """Body of an RDMA2_MSG: direction and three chunk lists; the Payload stream follows."""

    name = "RDMA2_MSG"
    fields_desc = (EnumField("rdma_direction", 0, DIRECTION_NAMES), *CHUNKS)
    rdma_direction: int

    def guess_payload_class(self, payload: bytes) -> type[Any]:
        return oncrpc_class(payload)


class RDMA2Nomsg(_WithChunks):
    """Body of an RDMA2_NOMSG: direction and three chunk lists, one of which carries the whole RPC message."""

    name = "RDMA2_NOMSG"
    fields_desc = (EnumField("rdma_direction", 0, DIRECTION_NAMES), *CHUNKS)
    rdma_direction: int


class RDMA2Error(Header):
    """Body of an RDMA2_ERROR: why, and for RDMA2_ERR_VERS the versions supported.

    The text of version-two-01, 3.2, gives it a direction word, its XDR in 4.2 does not.  This is the XDR.
    """

    name = "RDMA2_ERROR"
    fields_desc = (
        IntEnumField("err", ERR_CHUNK, ERROR_NAMES_2),
        ConditionalField(IntField("vers_low", 1), lambda body: body.err == ERR_VERS),
        ConditionalField(IntField("vers_high", 1), lambda body: body.err == ERR_VERS),
    )
    err: int
    vers_low: int | None
    vers_high: int | None


class ValueField(StrField):  # type: ignore[misc]
    """xchv_data with its length: a number where it is one of the characteristic's type, else the bytes."""

    def __init__(self, name: str) -> None:
        super().__init__(name, b"")

    def getfield(self, pkt: Any, data: bytes) -> tuple[bytes, int | bool | bytes]:
        length = word_at(data, 0)
        end = 4 + padded(length)
        if end > len(data) or any(data[4 + length : end]):
            raise MalformedXDR(f"{self.name}: {length} bytes out of {len(data) - 4}")
        known = interpret(pkt.which, data[4 : 4 + length])
        exact = known.value is not None and not known.problem
        return data[end:], known.value if exact else known.data  # type: ignore[return-value]

    def addfield(self, pkt: Any, data: bytes, value: int | bool | bytes) -> bytes:
        raw = value if isinstance(value, bytes) else int(value).to_bytes(4)
        return data + len(raw).to_bytes(4) + raw.ljust(padded(len(raw)), b"\0")

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
    which: int
    value: int | bool | bytes

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

    class ROPT_INITXCH(Structure):
        start: list[Xcharval]
        nochg: list[int]

    class ROPT_REQXCH(Structure):
        want: list[Xcharval]

    class ROPT_RESPXCH(Structure):
        done: list[int]
        rej: list[int]
        pend: list[int]

    class ROPT_UPDXCH(Structure):
        now: Xcharval
        pendclr: int


class OpttypeField(IntEnumField):  # type: ignore[misc]
    """rdma_opttype; where it is not given, that of the structure in rdma_optinfo."""

    def i2m(self, pkt: Any, value: int | None) -> int:
        if value is None:
            return next((code for code, layer in OPTION_LAYERS.items() if isinstance(pkt.optinfo, layer)), 0)
        return int(value)


class OptinfoField(PacketField):  # type: ignore[misc]
    """rdma_optinfo: opaque data with the structure that rdma_opttype names inside."""

    def getfield(self, pkt: Any, data: bytes) -> tuple[bytes, Any]:
        length = word_at(data, 0)
        end = 4 + padded(length)
        if end > len(data) or any(data[4 + length : end]):
            raise MalformedXDR(f"{self.name}: {length} bytes out of {len(data) - 4}")
        return data[end:], _structure(pkt.opttype, data[4 : 4 + length])

    def addfield(self, pkt: Any, data: bytes, value: Any) -> bytes:
        raw = b"" if value is None else bytes(value)
        return data + len(raw).to_bytes(4) + raw.ljust(padded(len(raw)), b"\0")


def _structure(option: int, data: bytes) -> Any:
    layer = OPTION_LAYERS.get(option)
    try:
        found = layer(data) if layer else Raw(data)
    except MalformedXDR:
        return Raw(data)
    return found if bytes(found) == data else Raw(data)


class RDMA2Optional(Structure):
    """Body of an RDMA2_OPTIONAL: direction, option and its structure; a Payload stream may follow."""

    name = "RDMA2_OPTIONAL"
    fields_desc = (
        EnumField("rdma_direction", 0, DIRECTION_NAMES),
        OpttypeField("opttype", None, {code: kind.name for code, kind in OPTIONS.items()}),
        OptinfoField("optinfo", None, Raw),
    )
    rdma_direction: int
    opttype: int | None
    optinfo: Any

    def guess_payload_class(self, payload: bytes) -> type[Any]:
        return oncrpc_class(payload)


BODIES: dict[int, type[Any]] = {
    RDMA_MSG: RDMA2Msg,
    RDMA_NOMSG: RDMA2Nomsg,
    RDMA_ERROR: RDMA2Error,
    RDMA_OPTIONAL: RDMA2Optional,
}
"""By procedure."""
