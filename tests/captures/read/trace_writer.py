"""Writes trace.dat, versions 6 and 7, after their manual pages: an encoder that shares nothing with the reader."""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from ipaddress import ip_address

import zstandard

PAGE = 4096
HEADER_PAGE = (
    "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n"
)
HEADER_EVENT = "# compressed entry header\n"


def split_formats(text: str) -> dict[str, tuple[str, str]]:
    """Event: its system and format file, from a text with '== system' before each."""
    parts = re.split(r"(?m)^== (\S+)\n", text)
    named = {}
    for system, body in zip(parts[1::2], parts[2::2], strict=True):
        named[body.split()[1]] = system, body
    return named


def socket_bytes(text: str) -> bytes:
    """A struct sockaddr_in6 or _in of '10.0.0.1:20049', little-endian; 28 bytes."""
    if not text:
        return bytes(28)
    host, _, port = text.rpartition(":")
    address = ip_address(host.strip("[]"))
    if address.version == 4:
        return (struct.pack("<H", 2) + struct.pack(">H", int(port)) + address.packed).ljust(28, b"\0")
    return struct.pack("<H", 10) + struct.pack(">H", int(port)) + bytes(4) + address.packed + bytes(4)


def encode(body: str, pid: int, values: Mapping[str, object], order: str) -> bytes:
    """The record of an event whose format file is ``body``."""
    number = int(body.split("ID:")[1].split()[0])
    fields = re.findall(r"field:(.*?);\s*offset:(\d+);\s*size:(\d+);\s*signed:(\d);", body)
    size = max(int(offset) + int(length) for _, offset, length, _ in fields)
    record = bytearray(size)
    struct.pack_into(order + "HBBi", record, 0, number, 0, 0, pid)
    for kind, offset, length, signed in fields:
        name = kind.split()[-1].partition("[")[0]
        if name.startswith("common_") or values.get(name) is None:
            continue
        value, at = values[name], int(offset)
        if "__data_loc" in kind:
            data = str(value).encode() + b"\0" if "char" in kind and "u8" not in kind else socket_bytes(str(value))
            struct.pack_into(order + "I", record, at, len(data) << 16 | len(record))
            record += data
        elif "[" in kind:
            record[at : at + int(length)] = socket_bytes(str(value))[: int(length)]
        else:
            assert isinstance(value, int)
            whole = value.to_bytes(int(length), "little" if order == "<" else "big", signed=value < 0 or signed == "1")
            record[at : at + int(length)] = whole
    return bytes(record)


def pages(records: Sequence[tuple[int, bytes]], order: str, missed: Mapping[int, int] | None = None) -> bytes:
    """Pages of one processor; ``missed``: record: events lost before it, with which a page begins."""
    made, page, start, before = b"", b"", 0, 0

    def finish(flags: int, tail: bytes = b"") -> bytes:
        head = struct.pack(order + "QQ", start, len(page) | flags)
        return (head + page + tail).ljust(PAGE, b"\0")

    flags, tail = 0, b""
    for i, (time, record) in enumerate(records):
        padded = record.ljust(-(-len(record) // 4) * 4, b"\0")
        lost = (missed or {}).get(i, 0)
        if page and (len(page) + len(padded) + 24 > PAGE - 24 or lost):
            made += finish(flags, tail)
            page, flags, tail = b"", 0, b""
        if lost:
            flags, tail = 1 << 31 | 1 << 30, struct.pack(order + "Q", lost)
        if not page:
            start = before = time
        delta = time - before
        if delta >= 1 << 27:
            page += _head(30, delta & (1 << 27) - 1, order) + struct.pack(order + "I", delta >> 27)
            delta = 0
        words = len(padded) // 4
        if words <= 28:
            page += _head(words, delta, order) + padded
        else:
            page += _head(0, delta, order) + struct.pack(order + "I", len(padded) + 4) + padded
        before = time
    return made + finish(flags, tail)


def _head(kind: int, delta: int, order: str) -> bytes:
    return struct.pack(order + "I", delta << 5 | kind if order == "<" else kind << 27 | delta)


def _sized(text: str, order: str) -> bytes:
    return struct.pack(order + "Q", len(text)) + text.encode()


def _formats(formats: Mapping[str, tuple[str, str]], order: str) -> bytes:
    systems: dict[str, list[str]] = {}
    for system, body in formats.values():
        systems.setdefault(system, []).append(body)
    made = struct.pack(order + "I", len(systems))
    for system, bodies in systems.items():
        made += system.encode() + b"\0" + struct.pack(order + "I", len(bodies))
        made += b"".join(_sized(body, order) for body in bodies)
    return made


def _start(version: str, order: str) -> bytes:
    return b"\x17\x08\x44tracing" + version.encode() + bytes([0, order == ">", 8]) + struct.pack(order + "I", PAGE)


def _headers(order: str) -> bytes:
    return b"header_page\0" + _sized(HEADER_PAGE, order) + b"header_event\0" + _sized(HEADER_EVENT, order)


def write_6(
    formats: Mapping[str, tuple[str, str]], processors: Sequence[bytes], order: str = "<", options: bytes = b""
) -> bytes:
    """``options``: in the form of ``option``."""
    made = _start("6", order) + _headers(order) + struct.pack(order + "I", 0) + _formats(formats, order)
    made += struct.pack(order + "IIQI", 0, 0, 0, len(processors))
    made += b"options  \0" + options + struct.pack(order + "H", 0) + b"flyrecord\0"
    at = -(-(len(made) + 16 * len(processors)) // PAGE) * PAGE
    begin = at
    for data in processors:
        made += struct.pack(order + "QQ", at, len(data))
        at += len(data)
    return made.ljust(begin, b"\0") + b"".join(processors)


def option(number: int, body: bytes, order: str = "<") -> bytes:
    """One option of the header, or of an options section."""
    return struct.pack(order + "HI", number, len(body)) + body


def write_7(
    formats: Mapping[str, tuple[str, str]],
    processors: Sequence[bytes],
    compression: str = "none",
    order: str = "<",
    clock: str = "local",
    options: bytes = b"",
) -> bytes:
    """``compression``: 'none', 'zlib' or 'zstd'."""
    squeeze: dict[str, Callable[[bytes], bytes]] = {
        "none": bytes,
        "zlib": zlib.compress,
        "zstd": zstandard.ZstdCompressor().compress,
    }
    pack = squeeze[compression]
    made = _start("7", order) + compression.encode() + b"\0" + b"1\0"
    hole = len(made)
    made += bytes(8)

    def section(number: int, body: bytes) -> int:
        nonlocal made
        at = len(made)
        packed = compression != "none"
        if packed:
            squeezed = pack(body)
            body = struct.pack(order + "II", len(squeezed), len(body)) + squeezed
        made += struct.pack(order + "HHIQ", number, packed, 0, len(body)) + body
        return at

    header, events = section(16, _headers(order)), section(18, _formats(formats, order))
    places = []
    for data in processors:
        if compression == "none":
            made = made.ljust(-(-len(made) // PAGE) * PAGE, b"\0")
            places.append((len(made), len(data)))
            made += data
        else:
            chunks = [data[i : i + 2 * PAGE] for i in range(0, len(data), 2 * PAGE)]
            body = struct.pack(order + "I", len(chunks))
            for chunk in chunks:
                squeezed = pack(chunk)
                body += struct.pack(order + "II", len(squeezed), len(chunk)) + squeezed
            places.append((len(made), len(body)))
            made += body
    buffer = struct.pack(order + "Q", 0) + b"\0" + clock.encode() + b"\0" + struct.pack(order + "II", PAGE, len(places))
    buffer += b"".join(struct.pack(order + "IQQ", i, *place) for i, place in enumerate(places))
    body = option(16, struct.pack(order + "Q", header), order) + option(18, struct.pack(order + "Q", events), order)
    body += options + option(3, buffer, order) + option(0, struct.pack(order + "Q", 0), order)
    first = section(0, body)
    return made[:hole] + struct.pack(order + "Q", first) + made[hole + 8 :]
