"""RPC messages with their DDP-eligible items marked, so that the whole and the reduced form have one source.

A message is a tuple of parts: bytes, or an Item, the contents of an opaque behind its length word.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

CALL, REPLY = 0, 1


@dataclass(frozen=True, slots=True)
class Item:
    """A DDP-eligible data item (RFC 8166, 3.4.1); its XDR round-up is not part of ``data``."""

    data: bytes

    @property
    def padded(self) -> bytes:
        return self.data + bytes(-len(self.data) % 4)


Parts = tuple[bytes | Item, ...]


@dataclass(frozen=True, slots=True)
class Call:
    program: int
    version: int
    procedure: int
    parts: Parts = ()
    credential: bytes | None = None
    """With the verifier; None: AUTH_SYS, or AUTH_NONE of NULL."""


@dataclass(frozen=True, slots=True)
class Reply:
    parts: Parts = ()
    accept: int = 0
    """accept_stat (RFC 5531, 9)."""
    denied: bool = False
    verifier: bytes = bytes(8)
    auth_error: int = 1
    """auth_stat of one that is denied."""


def u32(*values: int) -> bytes:
    return struct.pack(f">{len(values)}I", *values)


def u64(*values: int) -> bytes:
    return struct.pack(f">{len(values)}Q", *values)


def opaque(data: bytes) -> bytes:
    """Variable-length opaque or string (RFC 4506, 4.10)."""
    return u32(len(data)) + data + bytes(-len(data) % 4)


def item(data: bytes) -> Parts:
    return (u32(len(data)), Item(data))


def auth_sys(uid: int = 1000, gid: int = 100, groups: tuple[int, ...] = (100, 27)) -> bytes:
    """Credential and verifier (RFC 5531, appendix A)."""
    body = u32(0x1234) + opaque(b"client.example") + u32(uid, gid, len(groups), *groups)
    return u32(1) + opaque(body) + u32(0, 0)


def call_parts(call: Call, xid: int) -> Parts:
    """The whole call message (RFC 5531, 9)."""
    credential = call.credential or (auth_sys() if call.procedure else u32(0, 0, 0, 0))
    head = u32(xid, CALL, 2, call.program, call.version, call.procedure) + credential
    return (head, *call.parts)


def reply_parts(reply: Reply, xid: int) -> Parts:
    """The whole reply message (RFC 5531, 9)."""
    if reply.denied:
        return (u32(xid, REPLY, 1, 1, reply.auth_error),)
    return (u32(xid, REPLY, 0) + reply.verifier + u32(reply.accept), *reply.parts)


def whole(parts: Parts) -> bytes:
    """The message as a stream transport carries it, without record mark."""
    return b"".join(part.padded if isinstance(part, Item) else part for part in parts)


def items(parts: Parts) -> list[tuple[int, Item]]:
    """``(offset in the whole message, item)``, ascending."""
    found: list[tuple[int, Item]] = []
    at = 0
    for part in parts:
        if isinstance(part, Item):
            found.append((at, part))
            at += len(part.padded)
        else:
            at += len(part)
    return found


def reduced(parts: Parts, left_out: set[int]) -> tuple[bytes, list[tuple[int, int, int]]]:
    """The Payload stream without the items whose indices are given, round-up included.

    Also where its stretches stand in the whole message: ``(stream offset, length, message offset)``.
    """
    stream = bytearray()
    places: list[tuple[int, int, int]] = []
    at = index = 0
    for part in parts:
        data = part.padded if isinstance(part, Item) else part
        index += isinstance(part, Item)
        if not (isinstance(part, Item) and index - 1 in left_out) and data:
            places.append((len(stream), len(data), at))
            stream += data
        at += len(data)
    return bytes(stream), places
