"""The bytes of Operations with other names, handles and data in them, as their RPC messages are made of.

Nothing is kept that is not known to be harmless: transport headers, numbers other than user and group IDs, and the
words that tell lengths.  All else is replaced, and what cannot be decoded becomes zeros.
"""

from __future__ import annotations

import os
from array import array
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from rdmascope.dissect.onc.shapes.decode import Node
from rdmascope.dissect.onc.shapes.types import DATA, TEXT, XdrAttributes, XdrInteger, XdrOpaque, XdrSelected
from rdmascope.dissect.rpcrdma.message_trees import DecodedMessage, decoded_call, decoded_reply
from rdmascope.dissect.rpcrdma.messages import Message
from rdmascope.dissect.rpcrdma.rpcs import ChunkUse, Reassembled, Rpc
from rdmascope.dissect.transport.operations import Operation

from ..write.output import spool
from .pseudonyms import Pseudonyms

_IDENTITIES = {"uid": "uid", "gqa_uid": "uid", "gid": "gid", "gids": "gid"}
"""Names of values that tell a user or groups, and which of the two."""
MAX_NODES = 1 << 20
"""Values of a message that are looked at; what is behind them becomes zeros."""


class AnonymousOperations:
    """The new bytes of Operations, in a temporary file; zeros take no room there.  A context manager."""

    def __init__(self, pseudonyms: Pseudonyms, directory: Path) -> None:
        self._pseudonyms = pseudonyms
        self._file = spool(directory)
        self._end = 0
        self._starts = array("q")
        self._lengths = array("q")
        self._packet_bytes = array("q")
        self._psns = array("q")
        self._addresses = array("Q")

    def __enter__(self) -> AnonymousOperations:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, rpc: Rpc, tags: list[tuple[Operation, int]]) -> None:
        """Take an RPC and the tags of its Operations, which follow those of the RPC before."""
        starts: dict[Operation, int] = {}
        for operation, _ in tags:
            starts[operation] = self._end
            self._starts.append(self._end)
            self._lengths.append(operation.length)
            self._packet_bytes.append(_packet_bytes(operation))
            self._psns.append(operation.psn)
            self._addresses.append(operation.address)
            self._end += operation.length
        for message, decoded in ((rpc.call, decoded_call(rpc, MAX_NODES)), (rpc.reply, decoded_reply(rpc, MAX_NODES))):
            if message is None:
                continue
            header = message.header.length
            if not message.header.problem and message.operation in starts:
                self._write(starts[message.operation], _captured(message.operation, header))
            if decoded is not None:
                self._take(rpc, message, decoded, starts)

    def _take(self, rpc: Rpc, message: Message, decoded: DecodedMessage, starts: Mapping[Operation, int]) -> None:
        replaced = anonymous(decoded, self._pseudonyms)
        for at, length, operation, place in carried(rpc, message, decoded.bytes):
            if operation in starts:
                self._write(starts[operation] + place, replaced[at : at + length])

    def _write(self, at: int, data: bytes | bytearray) -> None:
        if data.count(0) != len(data):
            self._file.seek(at)
            self._file.write(data)

    def packet(self, tag: int, psn: int, length: int) -> bytes:
        """The payload of the packet with this PSN of an Operation."""
        return self.at(tag, (psn - self._psns[tag]) % (1 << 24) * self._packet_bytes[tag], length)

    def address(self, tag: int) -> int:
        """Where in memory it begins, as its initiator named it."""
        return self._addresses[tag]

    def at(self, tag: int, place: int, length: int) -> bytes:
        """``length`` bytes of an Operation, from byte ``place`` on."""
        self._file.flush()
        known = max(0, min(length, self._lengths[tag] - place))
        found = os.pread(self._file.fileno(), known, self._starts[tag] + place) if known else b""
        return found.ljust(length, b"\0")


def _packet_bytes(operation: Operation) -> int:
    """Payload bytes of each packet but the last."""
    for _, _, rows in operation.payload.runs:
        if len(rows):
            return int(rows["length"].max())
    return operation.length


def _captured(operation: Operation, length: int) -> bytes:
    """The first bytes, as far as they are there."""
    found = bytearray()
    for piece in operation.payload.pieces():
        if piece.at != len(found) or len(found) >= length:
            break
        found += piece.data[piece.offset : piece.offset + piece.captured].tobytes()
    return bytes(found[:length])


def carried(rpc: Rpc, message: Message, whole: Reassembled) -> Iterator[tuple[int, int, Operation, int]]:
    """What carried the bytes of a message: offset and length in it, Operation, and offset there.

    The bytes of a Send, and those of the chunks of one origin, stand in the message in the order of their own.
    """
    taken: dict[str, int] = defaultdict(int)
    chunks = _chunks(rpc)
    for start, length, origin, _, _ in whole.extents:
        at = taken[origin]
        taken[origin] += length
        if origin == "inline":
            yield start, length, message.operation, message.header.length + at
        for first, last, operation, address in _spans(chunks.get(origin, []), at, at + length):
            yield start + first - at, last - first, operation, address


def _chunks(rpc: Rpc) -> dict[str, list[ChunkUse]]:
    """By the origin that reassembly gives their bytes."""
    found: dict[str, list[ChunkUse]] = defaultdict(list)
    writes = 0
    for chunk in rpc.chunks:
        if chunk.kind == "read":
            found[f"read chunk at {chunk.position}"].append(chunk)
        elif chunk.kind == "write":
            writes += 1
            found[f"write chunk {writes}"].append(chunk)
        else:
            found["reply chunk"].append(chunk)
    return found


def _spans(chunks: list[ChunkUse], start: int, end: int) -> Iterator[tuple[int, int, Operation, int]]:
    """Which Operations transferred bytes [start, end) of chunks one behind the other: the range, and where in each."""
    reached = 0
    for chunk in chunks:
        for use in chunk.segments:
            length = use.advertised.length if use.returned is None else min(use.advertised.length, use.returned)
            base = use.advertised.offset - reached
            for operation in use.operations:
                first = max(start, reached, operation.address - base)
                last = min(end, reached + length, operation.address + operation.length - base)
                if first < last:
                    yield first, last, operation, first + base - operation.address
            reached += length


def anonymous(decoded: DecodedMessage, pseudonyms: Pseudonyms) -> bytearray:
    """The message with other values; missing bytes are zeros."""
    out = bytearray(decoded.bytes.length)
    for at, data in decoded.bytes.pieces:
        out[at : at + len(data)] = data
    tree = decoded.tree
    for part in (tree.header, tree.body, tree.rest):
        if part is not None:
            for node in part.walk(_is_understood):
                _replace(node, out, pseudonyms)
    return out


def _is_understood(node: Node) -> bool:
    """It was decoded to its end, so that its parts can be replaced one by one."""
    return not (isinstance(node.type, XdrOpaque | XdrSelected) and node.note)


def _replace(node: Node, out: bytearray, pseudonyms: Pseudonyms) -> None:
    end = node.offset + node.length
    if node.name in _IDENTITIES:
        for one in node.children or [node]:
            if isinstance(one.type, XdrInteger) and isinstance(one.value, int) and one.length == 4:
                number = pseudonyms.identity(_IDENTITIES[node.name], one.value % (1 << 32))
                out[one.offset : one.offset + 4] = number.to_bytes(4, "big")
    if node.type is None:
        _clear(out, node.offset, end)
    elif isinstance(node.type, XdrAttributes):
        last = node.children[-1] if node.children else None
        if node.note:  # What is behind the attributes that were decoded.
            _clear(out, last.offset + last.length if last is not None else node.offset + 4, end)
    elif isinstance(node.type, XdrOpaque | XdrSelected) and not (node.children and _is_understood(node)):
        value = node.value
        if not isinstance(value, memoryview):
            _clear(out, node.offset if isinstance(node.type, XdrOpaque) and node.type.size else node.offset + 4, end)
            return
        # Words stand before it: none, a count, or whether it is there and a count; the pad has less than a word.
        start = end - len(value) - (node.length - len(value)) % 4
        _clear(out, start, end)
        if node.children or (isinstance(node.type, XdrOpaque) and node.type.form == DATA):
            return
        is_text = isinstance(node.type, XdrOpaque) and node.type.form == TEXT
        new = pseudonyms.text(bytes(value)) if is_text else pseudonyms.opaque(bytes(value))
        out[start : start + len(new)] = new


def _clear(out: bytearray, start: int, end: int) -> None:
    out[start:end] = bytes(max(0, min(end, len(out)) - start))
