"""Anonymized frames: other addresses, names, handles and data in them; checksums are right where they were.

``Pseudonyms`` are as long as what they replace, and consistent. ``HeaderWalk`` walks every header up to the transport,
one frame at a time; frames that are not understood completely are not written. RPC messages keep only what is known to
be harmless: transport headers, numbers other than user and group IDs, and length words. All else is replaced, and bytes
that cannot be decoded become zeros.
"""

from __future__ import annotations

import hashlib
import os
import string
from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path

from rdmascope.dissect.arrays import Rows
from rdmascope.dissect.frames import Frame, FrameBatch
from rdmascope.dissect.intervals import IntervalSet
from rdmascope.dissect.layers import icrc, iwarp_codes, opcodes
from rdmascope.dissect.layers.fpdus import LENGTH_BYTES, MarkerGrid, crc32c
from rdmascope.dissect.layers.icrc import vcrc, verify_vcrc
from rdmascope.dissect.link.addresses import AddressTable
from rdmascope.dissect.link.locate import Located
from rdmascope.dissect.link.numbers import (
    ETHERNET,
    ETHERNET_BRIDGED,
    GENEVE_PORT,
    GRE,
    INFINIBAND,
    IPV4,
    IPV4_INSIDE,
    IPV6,
    IPV6_INSIDE,
    LINUX_SLL,
    LINUX_SLL2,
    MPLS,
    RAW_IP,
    ROCE_ETHERTYPE,
    ROCE_PORT,
    TAGS,
    TCP,
    UDP,
    VXLAN_PORTS,
)
from rdmascope.dissect.link.packets import decode, is_management
from rdmascope.dissect.link.tcp import locate_tcp
from rdmascope.dissect.onc.shapes.types import DATA, TEXT, Node, XdrAttributes, XdrInteger, XdrOpaque, XdrSelected
from rdmascope.dissect.rpcrdma.message_trees import DecodedMessage, decoded_call, decoded_reply
from rdmascope.dissect.rpcrdma.messages import Message
from rdmascope.dissect.rpcrdma.rpcs import ChunkUse, Reassembled, Rpc
from rdmascope.dissect.serial import TCP_SEQUENCE
from rdmascope.dissect.transport.connection import Connection
from rdmascope.dissect.transport.iwarp.fpdus import TAGGED_HEADER, UNTAGGED_HEADER
from rdmascope.dissect.transport.iwarp.records import MARK
from rdmascope.dissect.transport.operations import Operation

from ..errors import Closing
from ..write.output import spool
from .frames import ChosenFpdu, Flow

IPV4_MAPPED = bytes(10) + b"\xff\xff"
LINK_LOCAL = b"\xfe\x80" + bytes(6)
BENCHMARK_NETWORK = 0xC6120000
"""198.18.0.0/15, which no host of a real network has (RFC 2544, C.2.2)."""
DOCUMENTATION = b"\x20\x01\x0d\xb8" + bytes(4)
"""2001:db8::/32 (RFC 3849)."""
FIRST_IDENTITY = 100_000
"""User and group IDs that are given begin behind it."""
TRIES = 64
"""Texts that are drawn until one is free: those of few letters may all be taken."""


class Pseudonyms:
    """Remembers the addresses and texts that it replaced; what else it replaces takes no memory."""

    def __init__(self, key: bytes | None = None) -> None:
        """``key``: 32 random bytes, a new one each time where none is given."""
        self._key = os.urandom(32) if key is None else key
        self._numbers: dict[tuple[str, bytes], int] = {}
        self._counts: dict[str, int] = {}
        self._texts: dict[bytes, bytes] = {}
        self._taken: set[bytes] = set()

    def _number(self, kind: str, value: bytes) -> int:
        """Which of its kind it is, from 1."""
        if (kind, value) not in self._numbers:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._numbers[kind, value] = self._counts[kind]
        return self._numbers[kind, value]

    def identity(self, kind: str, value: int) -> int:
        """A 'uid' or 'gid' of 32 bits; root and those that stand for none stay."""
        if value in (0, 65534, 0xFFFFFFFE, 0xFFFFFFFF):
            return value
        return FIRST_IDENTITY + self._number(kind, value.to_bytes(4, "big"))

    def mac(self, address: bytes) -> bytes:
        """Locally administered; groups stay."""
        if address[0] & 1 or not any(address):
            return address
        return b"\x02\x00" + self._number("mac", address).to_bytes(4, "big")

    def guid(self, value: bytes) -> bytes:
        """Another GUID of a channel adapter or port; zero stays."""
        return value if not any(value) else b"\x02\x00" + self._number("guid", value).to_bytes(6, "big")

    def ipv4(self, address: bytes) -> bytes:
        """An address of 198.18.0.0/15; groups, loopback and the addresses of ones or zeros stay."""
        if address[0] in (0, 127) or address[0] >= 224:
            return address
        return (BENCHMARK_NETWORK + self._number("ipv4", address) % (1 << 17)).to_bytes(4, "big")

    def ipv6(self, address: bytes) -> bytes:
        """An address of 2001:db8::/32 or the link; also a GID.  Groups, and what stands for no host, stay."""
        if address.startswith(IPV4_MAPPED):
            return IPV4_MAPPED + self.ipv4(address[12:])
        if address[0] == 0xFF or not any(address[:15]):
            return address
        if address.startswith(LINK_LOCAL):
            return LINK_LOCAL + self.guid(address[8:])
        return DOCUMENTATION + self._bytes(address, 8)  # Drawn: examples have the low numbers of that network.

    def text(self, value: bytes) -> bytes:
        """A path, name or owner: letters for letters and digits for digits, each of its components by itself."""
        return b"/".join(self._component(part) for part in value.split(b"/"))

    def _component(self, value: bytes) -> bytes:
        if value in (b"", b".", b".."):
            return value
        pseudonym = self._texts.get(value)
        if pseudonym is None:
            for attempt in range(TRIES):
                pseudonym = self._drawn(value, attempt)
                if pseudonym != value and pseudonym not in self._taken:
                    break
            assert pseudonym is not None
            self._texts[value] = pseudonym
            self._taken.add(pseudonym)
        return pseudonym

    def _drawn(self, value: bytes, attempt: int) -> bytes:
        random = self._bytes(attempt.to_bytes(4, "big") + value, len(value))
        return bytes(_like(byte, chance) for byte, chance in zip(value, random, strict=True))

    def opaque(self, value: bytes) -> bytes:
        """A handle, verifier or state ID; those of ones or zeros alone have a meaning, and stay."""
        if not value or (value.count(value[0]) == len(value) and value[0] in (0, 255)):
            return value
        return self._bytes(value, len(value))

    def _bytes(self, value: bytes, length: int) -> bytes:
        """``length`` bytes that only the key tells from random ones."""
        return hashlib.shake_256(self._key + value).digest(length)


def _like(byte: int, chance: int) -> int:
    """A letter for a letter, a digit for a digit; other ASCII characters stay: paths and addresses have them."""
    character = chr(byte)
    if character in string.digits:
        return ord(string.digits[chance % 10])
    if byte >= 0x80 or character in string.ascii_letters:
        return ord(string.ascii_lowercase[chance % 26])
    return byte


_IDENTITIES = {"uid": "uid", "gqa_uid": "uid", "gid": "gid", "gids": "gid"}
"""Names of values that tell a user or groups, and which of the two."""
MAX_NODES = 1 << 20
"""Values of a message that are looked at; what is behind them becomes zeros."""


class AnonymousOperations(Closing):
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

    def close(self) -> None:
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
        for at, length, operation, offset in carried(rpc, message, decoded.bytes):
            if operation in starts:
                self._write(starts[operation] + offset, replaced[at : at + length])

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

    def at(self, tag: int, offset: int, length: int) -> bytes:
        """``length`` bytes of an Operation, from byte ``offset`` on."""
        self._file.flush()
        known = max(0, min(length, self._lengths[tag] - offset))
        known_bytes = os.pread(self._file.fileno(), known, self._starts[tag] + offset) if known else b""
        return known_bytes.ljust(length, b"\0")


def _packet_bytes(operation: Operation) -> int:
    """Payload bytes of each packet but the last."""
    for _, _, rows in operation.payload.runs:
        if len(rows):
            return int(rows["length"].max())
    return operation.length


def _captured(operation: Operation, length: int) -> bytes:
    """The first bytes, as far as they are there."""
    captured = bytearray()
    for piece in operation.payload.pieces():
        if piece.at != len(captured) or len(captured) >= length:
            break
        captured += piece.data[piece.offset : piece.offset + piece.captured].tobytes()
    return bytes(captured[:length])


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
    chunks: dict[str, list[ChunkUse]] = defaultdict(list)
    writes = 0
    for chunk in rpc.chunks:
        if chunk.kind == "read":
            chunks[f"read chunk at {chunk.position}"].append(chunk)
        elif chunk.kind == "write":
            writes += 1
            chunks[f"write chunk {writes}"].append(chunk)
        else:
            chunks["reply chunk"].append(chunk)
    return chunks


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
        for child in node.children or [node]:
            if isinstance(child.type, XdrInteger) and isinstance(child.value, int) and child.length == 4:
                number = pseudonyms.identity(_IDENTITIES[node.name], child.value % (1 << 32))
                out[child.offset : child.offset + 4] = number.to_bytes(4, "big")
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


EXTENSIONS = {0, 43, 60}
"""IPv6 extension headers that are walked; others, such as that of mobility, may hold addresses."""
MAX_DEPTH = 8


class CannotBeAnonymousError(Exception):
    """Headers of a frame are not understood; the message says which."""


@dataclass(slots=True)
class Headers:
    """Where the headers of a frame are that matter here."""

    transport: int = 0
    """Offset of the BTH, of the TCP header, or of another UDP header."""
    tcp: bool = False
    datagram: int | None = None
    """The port that such a UDP header is to."""
    ip: list[tuple[int, int]] = field(default_factory=list)
    """IP headers and GRHs, with their version, the outermost first."""
    udp: list[int] = field(default_factory=list)
    """UDP headers, each behind the IP header of the same index in ``ip`` ..."""
    udp_under: list[int] = field(default_factory=list)
    """... which this list has."""
    local_route: int | None = None
    """Native InfiniBand: of the Local Route Header."""


class HeaderWalk:
    """Walks a frame, and replaces its addresses on the way."""

    def __init__(self, frame: bytearray, pseudonyms: Pseudonyms) -> None:
        self.frame = frame
        self.pseudonyms = pseudonyms
        self.found = Headers()
        self.depth = 0

    def walk(self, link_type: int) -> Headers:
        """Replace the addresses; gives where the headers are.  Raises CannotBeAnonymousError."""
        try:
            if link_type == ETHERNET:
                self._ethernet(0)
            elif link_type in RAW_IP:
                self._ip(0)
            elif link_type == LINUX_SLL:
                self._replace(6, "mac", 6)
                self._next(self._word(14), 16)
            elif link_type == LINUX_SLL2:
                self._replace(6, "mac", 12)
                self._next(self._word(0), 20)
            elif link_type == INFINIBAND:
                self._infiniband()
            else:
                raise CannotBeAnonymousError(f"link type {link_type}")
        except IndexError:
            raise CannotBeAnonymousError("headers that are truncated") from None
        return self.found

    def _byte(self, at: int) -> int:
        return self.frame[at]

    def _word(self, at: int) -> int:
        if at + 2 > len(self.frame):
            raise IndexError
        return int.from_bytes(self.frame[at : at + 2], "big")

    def _replace(self, length: int, kind: str, *places: int) -> None:
        for at in places:
            if at + length > len(self.frame):
                raise IndexError
            self.frame[at : at + length] = getattr(self.pseudonyms, kind)(bytes(self.frame[at : at + length]))

    def _ethernet(self, at: int) -> None:
        self._replace(6, "mac", at, at + 6)
        at += 12
        while self._word(at) in TAGS:
            at += 4
        self._next(self._word(at), at + 2)

    def _next(self, kind: int, at: int) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise CannotBeAnonymousError("packets inside each other")
        if kind in (IPV4, IPV6):
            self._ip(at)
        elif kind == ROCE_ETHERTYPE:
            self._grh(at)
        elif kind in MPLS:
            self._mpls(at)
        elif kind == ETHERNET_BRIDGED:
            self._ethernet(at)
        else:
            raise CannotBeAnonymousError(f"EtherType {kind:#06x}")

    def _ip(self, at: int) -> None:
        version = self._byte(at) >> 4
        self.found.ip.append((at, version))
        if version == 4:
            self._replace(4, "ipv4", at + 12, at + 16)
            self._protocol(self._byte(at + 9), at + (self._byte(at) & 15) * 4)
        elif version == 6:
            self._replace(16, "ipv6", at + 8, at + 24)
            protocol, at = self._byte(at + 6), at + 40
            while protocol in EXTENSIONS:
                protocol, at = self._byte(at), at + (self._byte(at + 1) + 1) * 8
            self._protocol(protocol, at)
        else:
            raise CannotBeAnonymousError(f"IP version {version}")

    def _protocol(self, protocol: int, at: int) -> None:
        if protocol == UDP:
            self._udp(at)
        elif protocol == TCP:
            self.found.transport, self.found.tcp = at, True
        elif protocol in (IPV4_INSIDE, IPV6_INSIDE):
            self._ip(at)
        elif protocol == GRE:
            self._gre(at)
        else:
            raise CannotBeAnonymousError(f"IP protocol {protocol}")

    def _udp(self, at: int) -> None:
        self.found.udp.append(at)
        self.found.udp_under.append(len(self.found.ip) - 1)
        port, inside = self._word(at + 2), at + 8
        if port == ROCE_PORT:
            self.found.transport = inside
        elif port in VXLAN_PORTS:
            self._next(ETHERNET_BRIDGED, inside + 8)
        elif port == GENEVE_PORT:
            self._next(self._word(inside + 2), inside + 8 + 4 * (self._byte(inside) & 0x3F))
        else:
            self.found.transport, self.found.datagram = at, port

    def _gre(self, at: int) -> None:
        flags, kind = self._word(at), self._word(at + 2)
        if flags & 7:
            raise CannotBeAnonymousError("GRE of another version")
        inside = at + 4 + 4 * sum(flags & bit > 0 for bit in (0x8000, 0x2000, 0x1000))
        if kind == 0x88BE:
            self._next(ETHERNET_BRIDGED, inside + (8 if flags & 0x1000 else 0))
        elif kind == 0x22EB:
            what = self._word(inside + 10)
            behind = inside + (20 if what & 1 else 12)
            if what >> 10 & 31:
                self._ip(behind)
            else:
                self._next(ETHERNET_BRIDGED, behind)
        else:
            self._next(kind, inside)

    def _mpls(self, at: int) -> None:
        while not self._byte(at + 2) & 1:
            at += 4
        at += 4
        if self._byte(at) >> 4 in (4, 6):
            self._ip(at)
        else:
            raise CannotBeAnonymousError("MPLS with something else than IP inside")

    def _grh(self, at: int) -> None:
        self.found.ip.append((at, 6))
        self._replace(16, "ipv6", at + 8, at + 24)
        self.found.transport = at + 40

    def _infiniband(self) -> None:
        self.found.local_route = 0
        following = self._byte(1) & 3
        if following == 3:
            self._grh(8)
        elif following == 2:
            self.found.transport = 8
        else:
            raise CannotBeAnonymousError("raw InfiniBand packets")


class FrameChecksums:
    """What a frame's checksums were before it was changed, and their values for what it became."""

    def __init__(self, frame: bytes, headers: Headers, bth: bool) -> None:
        self._before = frame
        self._headers = headers
        self._bth = bth
        self._icrc = self._ends_right(frame)

    def _ends_right(self, frame: bytes) -> bool:
        """The ICRC is there, and right."""
        if not self._bth:
            return False
        headers = self._headers
        if headers.local_route is not None and not headers.ip:
            return icrc.verify_local(frame) is True
        return bool(headers.ip) and icrc.verify(frame[headers.ip[-1][0] :]) is True

    def mend(self, frame: bytearray) -> None:
        """Make right what was right, and leave wrong what was wrong."""
        headers = self._headers
        for at, version in headers.ip:
            if version == 4 and _word(self._before[at + 10 : at + 12]):
                length = (frame[at] & 15) * 4
                old, new = (_sum(bytes(frame_bytes[at : at + length])) for frame_bytes in (self._before, frame))
                _store(frame, at + 10, _updated(self._before[at + 10 : at + 12], old, new))
        if self._icrc:
            self._mend_icrc(frame)
        if headers.tcp:
            self._mend_sum(frame, headers.transport + 16, headers.transport, headers.ip[-1], TCP)
        for at, under in zip(reversed(headers.udp), reversed(headers.udp_under), strict=True):
            if self._before[at + 6 : at + 8] != b"\0\0":
                self._mend_sum(frame, at + 6, at, headers.ip[under], UDP)
        if headers.local_route is not None and verify_vcrc(self._before):
            frame[-2:] = vcrc(bytes(frame[:-2])).to_bytes(2, "big")

    def _mend_icrc(self, frame: bytearray) -> None:
        headers = self._headers
        if headers.local_route is not None and not headers.ip:
            end = (int.from_bytes(frame[4:6], "big") & 0x7FF) * 4 - 4
            made = icrc.icrc_local(bytes(frame[:end]))
        else:
            start = headers.ip[-1][0]
            extent = icrc.find_extent(bytes(frame[start:]))
            assert extent is not None
            end = start + extent.end - 4
            made = icrc.icrc(bytes(frame[start:end]))
        assert made is not None
        frame[end : end + 4] = made.to_bytes(4, "big")

    def _mend_sum(self, frame: bytearray, offset: int, start: int, ip: tuple[int, int], protocol: int) -> None:
        """The checksum of a UDP datagram or TCP segment at ``offset``, by what changed in it (RFC 1624)."""
        at, version = ip
        if version == 4:
            addresses, end = slice(at + 12, at + 20), at + _word(self._before[at + 2 : at + 4])
        else:
            addresses, end = slice(at + 8, at + 40), at + 40 + _word(self._before[at + 4 : at + 6])
        end = min(end, len(frame))
        old, stored = _sum(self._before[addresses]), self._before[offset : offset + 2]
        new = _sum(bytes(frame[addresses]))
        length = end - start
        if _word(stored) % 0xFFFF == (old + protocol + length) % 0xFFFF:
            # It is left to the network card, which adds the rest to that of the addresses.
            _store(frame, offset, (new + protocol + length) % 0xFFFF)
            return
        body = slice(start, end)
        old += _sum(self._before[body]) - _word(stored)
        frame[offset : offset + 2] = b"\0\0"
        new += _sum(bytes(frame[body]))
        made = _updated(stored, old, new)
        _store(frame, offset, made or 0xFFFF if protocol == UDP else made)  # RFC 768: zero stands for none.


def _word(data: bytes) -> int:
    return int.from_bytes(data, "big")


def _sum(data: bytes) -> int:
    """What is modulo 65,535 the sum of the 16-bit words, padded with zero."""
    return int.from_bytes(data, "big") << 8 * (len(data) % 2)


def _updated(stored: bytes, old: int, new: int) -> int:
    """The checksum after the sum of what it covers went from ``old`` to ``new``."""
    return (_word(stored) + old - new) % 0xFFFF


def _store(frame: bytearray, at: int, value: int) -> None:
    frame[at : at + 2] = value.to_bytes(2, "big")


RPCRDMA_MAGIC = bytes.fromhex("f6ab0e18")
"""Begins the private data of RPC-over-RDMA (RFC 8797, 4)."""
RPCRDMA_PRIVATE = 8
MPA_HEADER, MPA_DEPTHS = 20, 4
REMEMBERED = 256
"""FPDUs that came in pieces, at most."""
CRC_BYTES = 4
MAD_HEADER = 24

_REQ, _REJ, _REP, _RTU, _DREQ, _DREP, _MRA = 0x10, 0x12, 0x13, 0x14, 0x15, 0x16, 0x11
KEPT_OF_MAD = {_REQ: 140, _REP: 36, _RTU: 8, _DREQ: 12, _DREP: 8, _MRA: 10, _REJ: 12}
"""Bytes of CM messages in front of private data and additional information; of others nothing is kept (IBA 12.6)."""
_GUIDS = {_REQ: (16,), _REP: (28,)}
_GIDS = {_REQ: (56, 72, 100, 116)}
IP_CM_BYTES, IP_CM_ADDRESSES = 36, (4, 20)
"""The header of the RDMA IP CM Service in front of a REQ's private data, and the addresses in it (IBA A11)."""
RDMA_IP_CM = bytes.fromhex("0000000001")


@dataclass(slots=True)
class _Fpdu:
    """An FPDU that a segment may carry only in part: its bytes, as far as they were seen."""

    chosen: ChosenFpdu
    image: bytearray
    seen: IntervalSet = field(default_factory=IntervalSet)


class AnonymousFrames:
    """Makes chosen frames anonymous, batch by batch.

    Attributes:
        refused: frames whose headers are not understood, and so are not to be written, by why.
    """

    def __init__(self, pseudonyms: Pseudonyms, operations: AnonymousOperations) -> None:
        self._pseudonyms = pseudonyms
        self._operations = operations
        self.refused: dict[str, int] = {}
        self._fpdus: dict[Flow, list[ChosenFpdu]] = defaultdict(list)
        self._images: dict[tuple[Flow, int], _Fpdu] = {}
        self._packets: dict[int, Rows] = {}
        self._segments: dict[int, Rows] = {}
        self._tags: dict[int, int] = {}
        self._offsets: dict[int, int] = {}
        self._streams: dict[tuple[str, int, str, int], list[tuple[Connection, int]]] = {}
        self._records: set[Flow] = set()
        """Flows of records without RDMA."""
        self._addresses = AddressTable()

    def keep(self, flow: Flow, fpdu: ChosenFpdu) -> None:
        """Take note of an FPDU that carries some of a chosen Operation."""
        self._fpdus[flow].append(fpdu)

    def begin(
        self,
        streams: dict[tuple[str, int, str, int], list[tuple[Connection, int]]],
    ) -> None:
        """All FPDUs are known; ``streams``: the connections by sender and receiver, address and port each."""
        self._streams = streams
        every = (end for ends in streams.values() for end in ends)
        self._records = {(connection.number, sender) for connection, sender in every if not connection.rdma}
        for flow in self._fpdus.values():
            flow.sort(key=attrgetter("start"))

    def batch(
        self, batch: FrameBatch, located: Located, addresses: AddressTable, frames: list[int], tags: list[int]
    ) -> None:
        """The batch of the next frames; ``tags``: the Operations of some of them."""
        self._addresses = addresses
        self._tags = dict(zip(frames, tags, strict=True))
        rows = decode(batch, located).rows
        self._packets = dict(zip(rows["frame"].tolist(), rows, strict=True))
        segments = locate_tcp(batch, located.tcp, addresses) if located.tcp else rows[:0]
        self._segments = dict(zip(segments["frame"].tolist(), segments, strict=True))
        self._offsets = dict(zip(batch.rows["number"].tolist(), batch.rows["offset"].tolist(), strict=True))

    def anonymous(self, frame: Frame) -> Frame | None:
        """The frame with other bytes; None where it cannot be made so."""
        data = bytearray(frame.data)
        try:
            headers = HeaderWalk(data, self._pseudonyms).walk(frame.link_type)
            packet, segment = self._packets.get(frame.number), self._segments.get(frame.number)
            start = self._offsets[frame.number]
            of_ip = headers.tcp or headers.datagram is not None
            if packet is not None and headers.transport == int(packet["bth"]) - start and not of_ip:
                sums = FrameChecksums(frame.data, headers, True)
                self._packet(data, packet, start, headers.local_route is None)
            elif segment is not None and of_ip and headers.transport == int(segment["header"]) - start:
                sums = FrameChecksums(frame.data, headers, False)
                self._segment(data, segment, start)
            elif headers.datagram is not None:
                raise CannotBeAnonymousError(f"UDP port {headers.datagram}")
            else:
                raise CannotBeAnonymousError("headers that are truncated, or in an unusual order")
            sums.mend(data)
        except CannotBeAnonymousError as error:
            self.refused[str(error)] = self.refused.get(str(error), 0) + 1
            return None
        return frame._replace(data=bytes(data), comment="")

    def _packet(self, data: bytearray, row: Rows, start: int, padded: bool) -> None:
        at, captured, length = int(row["payload"]) - start, int(row["captured"]), int(row["length"])
        tag = self._tags.get(int(row["frame"]), -1)
        if is_management(row):
            _management(data, at, captured, self._pseudonyms)
        elif tag >= 0 and not opcodes.IS_READ_REQUEST[row["opcode"]]:
            data[at : at + captured] = self._operations.packet(tag, int(row["psn"]), captured)
        else:
            data[at : at + captured] = bytes(captured)
        end = at + length + int(row["pad"]) + opcodes.ICRC_BYTES
        if padded and captured == length and end < len(data):
            data[end:] = bytes(len(data) - end)

    # TCP and UDP

    def _segment(self, data: bytearray, row: Rows, start: int) -> None:
        at, captured = int(row["payload"]) - start, int(row["captured"])
        names = self._addresses.name(int(row["source"])), self._addresses.name(int(row["destination"]))
        stream = names[0], int(row["source_port"]), names[1], int(row["destination_port"])
        old = bytes(data[at : at + captured])
        tag = self._tags.get(int(row["frame"]), -1)
        new: bytes | bytearray | None = _startup(old)
        if row["datagram"]:
            new = self._operations.at(tag, 0, captured) if tag >= 0 else bytes(captured)
        elif new is None:
            new = bytearray(captured)
            for connection, sender in self._streams.get(stream, ()):
                self._fill((connection.number, sender), int(row["seq"]), old, new)
        data[at : at + captured] = new
        data[at + captured :] = bytes(len(data) - at - captured)

    def _fill(self, flow: Flow, seq: int, old: bytes, new: bytearray) -> None:
        """Put what a segment carries of chosen FPDUs into ``new``."""
        fpdus = self._fpdus.get(flow)
        if not fpdus or not old:
            return
        # Sequence numbers wrap after four gigabytes: the FPDU nearest to the segment of all that may be meant.
        base = TCP_SEQUENCE.unwrap(fpdus[0].start, seq)
        for turn in range((fpdus[-1].stop - base) // TCP_SEQUENCE.modulus + 1):
            position = base + turn * TCP_SEQUENCE.modulus
            index = max(0, bisect_right(fpdus, position, key=attrgetter("start")) - 1)
            while index < len(fpdus) and fpdus[index].start < position + len(old):
                if fpdus[index].stop > position:
                    self._part(flow, fpdus[index], position, old, new)
                index += 1

    def _part(self, flow: Flow, chosen: ChosenFpdu, position: int, old: bytes, new: bytearray) -> None:
        key = flow, chosen.start
        fpdu = self._images.get(key)
        if fpdu is None:
            if len(self._images) >= REMEMBERED:
                self._images.pop(next(iter(self._images)))
            fpdu = self._images[key] = _Fpdu(chosen, bytearray(chosen.stop - chosen.start))
        low, high = max(position, chosen.start), min(position + len(old), chosen.stop)
        fpdu.image[low - chosen.start : high - chosen.start] = old[low - position : high - position]
        fpdu.seen.add(low - chosen.start, high - chosen.start)
        made = self._record(fpdu) if flow in self._records else self._made(fpdu)
        new[low - position : high - position] = made[low - chosen.start : high - chosen.start]

    def _record(self, fpdu: _Fpdu) -> bytes:
        """A fragment of a record with its mark, and the new bytes."""
        size = len(fpdu.image) - MARK
        return bytes(fpdu.image[:MARK]) + self._operations.at(fpdu.chosen.tag, fpdu.chosen.place, size).ljust(
            size, b"\0"
        )

    def _made(self, fpdu: _Fpdu) -> bytes:
        """The FPDU with the new bytes, as far as it was seen."""
        chosen, size = fpdu.chosen, len(fpdu.image)
        marked: set[int] = set()
        if chosen.grid is not None:
            for marker in MarkerGrid(chosen.grid).between(chosen.start, chosen.stop):
                marked.update(range(marker - chosen.start, marker - chosen.start + 4))
        places = [offset for offset in range(size) if offset not in marked] if marked else range(size)
        queue = iwarp_codes.OPCODES[chosen.opcode].queue
        header = LENGTH_BYTES + (TAGGED_HEADER if queue is None else UNTAGGED_HEADER)
        made = bytearray(fpdu.image)
        body = places[header : len(places) - CRC_BYTES]
        if chosen.opcode != iwarp_codes.READ_REQUEST:
            if queue is not None:
                at = chosen.place
            elif chosen.sink is not None:
                at = chosen.place - chosen.sink
            else:
                at = chosen.place - self._operations.address(chosen.tag)
            length = int.from_bytes(bytes(made[offset] for offset in places[:LENGTH_BYTES]), "big")
            length = max(0, min(len(body), length + LENGTH_BYTES - header)) if fpdu.seen.covers(0, 2) else len(body)
            data = self._operations.at(chosen.tag, at, length).ljust(len(body), b"\0")
            if marked:
                for offset, byte in zip(body, data, strict=True):
                    made[offset] = byte
            elif len(body):
                made[header : header + len(body)] = data
        known = next((count for count in range(CRC_BYTES, 0, -1) if fpdu.seen.covers(0, size - CRC_BYTES + count)), 0)
        right = crc32c(fpdu.image[:-CRC_BYTES]).to_bytes(CRC_BYTES, "big")
        if known and right[:known] == fpdu.image[size - CRC_BYTES : size - CRC_BYTES + known]:
            made[-CRC_BYTES:] = crc32c(made[:-CRC_BYTES]).to_bytes(CRC_BYTES, "big")
        return bytes(made)


def _startup(old: bytes) -> bytearray | None:
    """An MPA Request or Reply with no private data but RPC-over-RDMA's; None where it is none (RFC 5044, 7.1)."""
    if not old.startswith((iwarp_codes.REQUEST_KEY, iwarp_codes.REPLY_KEY)):
        return None
    new = bytearray(old)
    for start in (MPA_HEADER, MPA_HEADER + MPA_DEPTHS):
        if old[start : start + len(RPCRDMA_MAGIC)] == RPCRDMA_MAGIC:
            new[start + RPCRDMA_PRIVATE :] = bytes(max(0, len(old) - start - RPCRDMA_PRIVATE))
            return new
    kept = MPA_HEADER + (MPA_DEPTHS if len(old) > 17 and old[17] > 1 else 0)
    new[kept:] = bytes(max(0, len(old) - kept))
    return new


def _management(data: bytearray, at: int, captured: int, pseudonyms: Pseudonyms) -> None:
    """A CM message with other GUIDs, GIDs and IP addresses, and no private data but RPC-over-RDMA's."""
    attribute, body = _word(bytes(data[at + 16 : at + 18])), bytes(data[at + MAD_HEADER : at + captured])
    private = kept = KEPT_OF_MAD.get(attribute, 0)
    made = bytearray(body[:kept].ljust(len(body), b"\0"))
    for size, places, replace in ((8, _GUIDS, pseudonyms.guid), (16, _GIDS, pseudonyms.ipv6)):
        for offset in places.get(attribute, ()):
            _put(made, offset, size, replace)
    if attribute == _REQ and body[8:13] == RDMA_IP_CM:
        made[kept : kept + IP_CM_BYTES] = body[kept : kept + IP_CM_BYTES]
        for offset in IP_CM_ADDRESSES:
            _put_ip(made, kept + offset, pseudonyms)
        private += IP_CM_BYTES
    if body[private : private + len(RPCRDMA_MAGIC)] == RPCRDMA_MAGIC:
        made[private : private + RPCRDMA_PRIVATE] = body[private : private + RPCRDMA_PRIVATE]
    data[at + MAD_HEADER : at + captured] = made


def _put(made: bytearray, offset: int, size: int, replace: Callable[[bytes], bytes]) -> None:
    if offset + size <= len(made):
        made[offset : offset + size] = replace(bytes(made[offset : offset + size]))
    else:
        made[offset:] = bytes(max(0, len(made) - offset))


def _put_ip(made: bytearray, offset: int, pseudonyms: Pseudonyms) -> None:
    """An address in 16 bytes, IPv4 in the last four of them."""
    if offset + 16 > len(made):
        made[offset:] = bytes(max(0, len(made) - offset))
    elif any(made[offset : offset + 12]):
        _put(made, offset, 16, pseudonyms.ipv6)
    else:
        _put(made, offset + 12, 4, pseudonyms.ipv4)
