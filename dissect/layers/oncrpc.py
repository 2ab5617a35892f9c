"""ONC RPC version 2 calls and replies (RFC 5531, section 9) as Scapy packets.

``ONCRPC`` is the XID and the direction, its payload ``ONCRPCCall`` or ``ONCRPCReply``; behind those stand the
arguments or results, Raw.  No record mark: that belongs to TCP.
"""

from __future__ import annotations

from typing import Any, ClassVar

from scapy.fields import (
    BitField,
    ConditionalField,
    FieldLenField,
    FieldListField,
    IntEnumField,
    IntField,
    PacketField,
    XIntField,
)
from scapy.packet import Raw, bind_layers

from .layer import Header, Item, ItemField, MalformedXDR, OpaqueField, Structure, padded, word_at
from .oncrpc_codes import (
    ACCEPT_STATUS_NAMES as ACCEPT_STATUSES,
    ALL_GSS_PROCEDURES as GSS_PROCEDURES,
    AUTH_ERROR,
    AUTH_NONE,
    AUTH_STATUS_NAMES as AUTH_STATUSES,
    AUTH_SYS,
    CALL,
    FLAVOR_NAMES as FLAVORS,
    MESSAGE_TYPES,
    MSG_ACCEPTED,
    MSG_DENIED,
    PROG_MISMATCH,
    REJECT_STATUS_NAMES as REJECT_STATUSES,
    REPLY,
    REPLY_STATUSES,
    RPC_MISMATCH,
    RPCSEC_GSS,
    SUCCESS,
)

GSS_SERVICES = {  # RFC 2203, 5.2.2; RFC 5403, 5.2
    1: "rpc_gss_svc_none",
    2: "rpc_gss_svc_integrity",
    3: "rpc_gss_svc_privacy",
    4: "rpc_gss_svc_channel_prot",
}

MAX_AUTH_BYTES = 400
"""Longest body of a credential or verifier (RFC 5531, section 8.2)."""
MAX_MACHINE_NAME = 255
MAX_GIDS = 16
"""RFC 5531, appendix A."""


class AuthSys(Structure):
    """Body of an AUTH_SYS credential (RFC 5531, appendix A)."""

    name = "AUTH_SYS"
    fields_desc = (
        XIntField("stamp", 0),
        FieldLenField("machinename_length", None, fmt="I", length_of="machinename"),
        OpaqueField("machinename", "machinename_length", MAX_MACHINE_NAME),
        IntField("uid", 0),
        IntField("gid", 0),
        FieldLenField("gids_count", None, fmt="I", count_of="gids"),
        FieldListField("gids", [], IntField("gid", 0), count_from=lambda auth: _gids(auth.gids_count)),
    )


def _gids(count: int) -> int:
    if count > MAX_GIDS:
        raise MalformedXDR(f"gids: {count}, at most {MAX_GIDS}")
    return count


class GSSCredential(Structure):
    """Body of an RPCSEC_GSS credential (RFC 2203, 5.3.1)."""

    name = "RPCSEC_GSS credential"
    fields_desc = (
        IntField("version", 1),
        IntEnumField("gss_proc", 0, GSS_PROCEDURES),
        IntField("seq_num", 0),
        IntEnumField("service", 1, GSS_SERVICES),
        FieldLenField("handle_length", None, fmt="I", length_of="handle"),
        OpaqueField("handle", "handle_length", MAX_AUTH_BYTES),
    )


class AuthBodyField(PacketField):  # type: ignore[misc]
    """The body of a credential or verifier, as its flavor lays it out; Raw where it is no such thing.

    None is: empty.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name, None, Raw)

    def getfield(self, pkt: Any, data: bytes) -> tuple[bytes, Any]:
        body = data[: pkt.length]
        kind = pkt.bodies.get(pkt.flavor)
        end = padded(pkt.length)
        if any(data[pkt.length : end]):
            raise MalformedXDR(f"{self.name}: pad bytes other than zero (RFC 4506, 4.10)")
        rest = data[end:]
        if kind is not None:
            try:
                parsed = kind(body)
            except Exception:  # whatever Scapy raises on bytes that do not fit its fields
                return rest, Raw(body)
            if not parsed.payload:
                return rest, parsed
        return rest, Raw(body) if body else None

    def addfield(self, pkt: Any, data: bytes, value: Any) -> bytes:
        body = b"" if value is None else bytes(value)
        return data + body.ljust(padded(len(body)), b"\0")

    def i2len(self, pkt: Any, value: Any) -> int:
        return 0 if value is None else len(bytes(value))


class OpaqueAuth(Item):
    """A verifier: a flavor and up to 400 bytes (RFC 5531, 8.2)."""

    name = "Verifier"
    bodies: ClassVar[dict[int, type[Any]]] = {}
    fields_desc = (
        IntEnumField("flavor", AUTH_NONE, FLAVORS),
        FieldLenField("length", None, fmt="I", length_of="body"),
        AuthBodyField("body"),
    )

    @classmethod
    def size_at(cls, data: bytes, at: int) -> int:
        length = word_at(data, at + 4)
        if length > MAX_AUTH_BYTES:
            raise MalformedXDR(f"{cls.name}: {length} bytes, at most {MAX_AUTH_BYTES}")
        return 8 + padded(length)


class Credential(OpaqueAuth):
    """A credential; the body of AUTH_SYS and RPCSEC_GSS is laid out."""

    name = "Credential"
    bodies: ClassVar[dict[int, type[Any]]] = {AUTH_SYS: AuthSys, RPCSEC_GSS: GSSCredential}


class ONCRPCCall(Structure):
    """The body of a call; the arguments follow."""

    name = "ONC RPC call"
    fields_desc = (
        IntField("rpcvers", 2),
        IntField("prog", 0),
        IntField("vers", 0),
        IntField("proc", 0),
        ItemField("cred", Credential(), Credential),
        ItemField("verf", OpaqueAuth(), OpaqueAuth),
    )

    def mysummary(self) -> str:
        return f"ONC RPC call program {self.prog} version {self.vers} procedure {self.proc}"


def _accepted(reply: Any) -> bool:
    return bool(reply.reply_stat == MSG_ACCEPTED)


def _denied(reply: Any) -> bool:
    return bool(reply.reply_stat == MSG_DENIED)


def _mismatch(reply: Any) -> bool:
    """The reply gives the lowest and highest version supported."""
    if _accepted(reply):
        return bool(reply.accept_stat == PROG_MISMATCH)
    return bool(_denied(reply) and reply.reject_stat == RPC_MISMATCH)


class ONCRPCReply(Structure):
    """The body of a reply, accepted or denied; the results of an accepted call follow."""

    name = "ONC RPC reply"
    fields_desc = (
        IntEnumField("reply_stat", MSG_ACCEPTED, REPLY_STATUSES),
        ConditionalField(ItemField("verf", OpaqueAuth(), OpaqueAuth), _accepted),
        ConditionalField(IntEnumField("accept_stat", SUCCESS, ACCEPT_STATUSES), _accepted),
        ConditionalField(IntEnumField("reject_stat", AUTH_ERROR, REJECT_STATUSES), _denied),
        ConditionalField(IntField("low", 0), _mismatch),
        ConditionalField(IntField("high", 0), _mismatch),
        ConditionalField(
            IntEnumField("auth_stat", 1, AUTH_STATUSES),
            lambda reply: _denied(reply) and reply.reject_stat == AUTH_ERROR,
        ),
    )

    def mysummary(self) -> str:
        if _accepted(self):
            return str(self.sprintf("ONC RPC reply %ONCRPCReply.accept_stat%"))
        return str(self.sprintf("ONC RPC reply %ONCRPCReply.reply_stat% %ONCRPCReply.reject_stat%"))


class RecordMark(Header):
    """What stands before each fragment of a record over TCP (RFC 5531, 11)."""

    name = "Record mark"
    fields_desc = (BitField("last_fragment", 1, 1), BitField("length", 0, 31))


class ONCRPC(Header):
    """The first two words of every RPC message."""

    name = "ONC RPC"
    fields_desc = (XIntField("xid", 0), IntEnumField("msg_type", CALL, MESSAGE_TYPES))


bind_layers(ONCRPC, ONCRPCCall, msg_type=CALL)
bind_layers(ONCRPC, ONCRPCReply, msg_type=REPLY)


def oncrpc_class(data: bytes) -> type[Any]:
    """ONCRPC where ``data`` can begin an RPC message, else Raw."""
    return ONCRPC if len(data) >= 8 and data[4:7] == b"\0\0\0" and data[7] in MESSAGE_TYPES else Raw
