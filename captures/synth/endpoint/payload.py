"""Payload streams: an RPC message in parts, reduced and put together again (RFC 8166, 3.4 and 4.3)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DdpItem:
    """The contents of a DDP-eligible opaque; its length word belongs to the part before it, its pad to neither."""

    data: bytes


Parts = tuple[bytes | DdpItem, ...]
"""An RPC message from its XID on, in order."""


def pad(length: int) -> bytes:
    """What rounds ``length`` bytes up to a multiple of four (RFC 4506, 4.10)."""
    return bytes(-length % 4)


def _wire(part: bytes | DdpItem) -> bytes:
    return part.data + pad(len(part.data)) if isinstance(part, DdpItem) else part


def whole(parts: Parts) -> bytes:
    """The message as TCP would carry it, without record mark."""
    return b"".join(map(_wire, parts))


def items(parts: Parts) -> list[DdpItem]:
    return [part for part in parts if isinstance(part, DdpItem)]


def reduce(parts: Parts, taken: Collection[int]) -> tuple[bytes, list[tuple[int, bytes]]]:
    """The stream without the items (by index) in ``taken``, and these, each with its Position.

    A Position counts from the start of the whole message; pads of taken items are left out (RFC 8166, 3.4.5).
    """
    stream = bytearray()
    chunks: list[tuple[int, bytes]] = []
    at = number = 0
    for part in parts:
        text = _wire(part)
        if isinstance(part, DdpItem):
            number += 1
            if number - 1 in taken:
                chunks.append((at, part.data))
                at += len(text)
                continue
        stream += text
        at += len(text)
    return bytes(stream), chunks


def restore(stream: bytes, chunks: Iterable[tuple[int, bytes]]) -> bytes | None:
    """The whole message: each chunk at its Position, rounded up; None where a Position is not in the message."""
    message = bytearray()
    taken = 0
    for position, data in sorted(chunks, key=lambda chunk: chunk[0]):
        wanted = position - len(message)
        if position % 4 or wanted < 0 or taken + wanted > len(stream):
            return None
        message += stream[taken : taken + wanted] + data + pad(len(data))
        taken += wanted
    return bytes(message) + stream[taken:]


def cut(length: int, count: int) -> list[int]:
    """``length`` bytes in ``count`` segments, or fewer where there are not as many bytes; the last may be shorter."""
    size = max(1, -(-length // max(1, count)))
    return [min(size, length - at) for at in range(0, length, size)] or [0]
