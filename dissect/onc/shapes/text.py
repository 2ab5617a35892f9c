"""A value of a tree as one line of text."""

from __future__ import annotations

from ...units import moment
from ..naming import handle_hash, stateid_hash
from .types import (
    ADDRESS,
    BOOL,
    DATA,
    HANDLE,
    HEXADECIMAL,
    OCTAL,
    OPAQUE,
    TEXT,
    Node,
    XdrArray,
    XdrBitmap,
    XdrInteger,
    XdrList,
    XdrOpaque,
    XdrOptional,
    XdrSelected,
)


def universal_address(text: str) -> tuple[str, int | None]:
    """Address and port of 'h1.h2.h3.h4.p1.p2' or 'x:x::x.p1.p2' (5.2.3.3 and 5.2.3.4); no port where it is neither."""
    address, *ports = text.rsplit(".", 2)
    if len(ports) == 2 and all(port.isdecimal() and len(port) <= 3 and int(port) < 256 for port in ports):
        return address, int(ports[0]) << 8 | int(ports[1])
    return text, None


MAX_HEX = 32
"""Bytes of an opaque that are printed."""
MAX_WORDS = 255
"""Characters of one that is text."""

TIMES = {"nfstime4": 1, "nfstime3": 1, "timeval": 1000}
"""Structures of seconds and a fraction, which counts so many nanoseconds."""
_DURATIONS = {
    "time_delta", "dir_notif_delay", "dirent_notif_delay", "gdda_child_attr_delay", "gdda_dir_attr_delay",
    "cnr_lease_time", "ffil_total_busy_time", "ffil_aggregate_completion_time", "ffl_duration",
}  # fmt: skip
"""Fields of such structures that are no time of day."""
_SPECIAL_STATEIDS = {
    (0, bytes(12)): "anonymous",
    (0xFFFFFFFF, b"\xff" * 12): "READ bypass",
    (1, bytes(12)): "current",
    (0xFFFFFFFF, bytes(12)): "invalid",
}
"""RFC 8881, 8.2.3: seqid and other."""
_SHORT = {"stateid4", "specdata3", "specdata4", "fsid4", "change_info4", "labelformat_spec4", "io_info4"}
"""Structures that fit on one line."""


def _nanoseconds(node: Node) -> int | None:
    unit = TIMES.get(node.type.name) if node.type is not None else None
    if unit is None or len(node.children) != 2:
        return None
    seconds, fraction = (child.value for child in node.children)
    return seconds * 1_000_000_000 + fraction * unit if isinstance(seconds, int) and isinstance(fraction, int) else None


def is_line(node: Node) -> bool:
    """Whether its text says all of it, so that its children need no lines of their own."""
    return not node.children or (
        node.type is not None and (node.type.name in _SHORT or node.type.name in TIMES) and not node.note
    )


def value_text(node: Node) -> str:
    """A value as text: 'NF4REG (1)', '0x00000003 (…)', '4096', 'name'; '' for a node that has only children."""
    type, value = node.type, node.value
    match type:
        case XdrInteger() if isinstance(value, int):
            return integer_text(type, value)
        case XdrOpaque() | XdrSelected() if isinstance(value, memoryview):
            return "" if node.children else opaque_text(type if isinstance(type, XdrOpaque) else type.otherwise, value)
        case XdrBitmap() if isinstance(value, tuple):
            return ", ".join(type.bits.get(bit) or f"bit {bit}" for bit in value) or "none"
        case XdrArray() | XdrList():
            return f"{value:,}" if isinstance(value, int) else ""
        case XdrOptional():
            return "no value"
        case None if isinstance(value, memoryview):
            return _hex(value)
    if node.children and is_line(node):
        time = _nanoseconds(node)
        if time is not None:
            if node.name in _DURATIONS:
                return f"{time // 1_000_000_000}.{time % 1_000_000_000:09d} seconds"
            return moment(time, 9)
        if type is not None and type.name == "stateid4":
            return _stateid_text(node)
        return ", ".join(f"{child.name} {value_text(child)}" for child in node.children)
    return ""


def _stateid_text(node: Node) -> str:
    """'0x1a20, seqid 2, other 000102030405060708090a0b'."""
    seqid, other = (child.value for child in node.children) if len(node.children) == 2 else (None, None)
    if not (isinstance(seqid, int) and isinstance(other, memoryview)):
        return ", ".join(f"{child.name} {value_text(child)}" for child in node.children)
    raw = bytes(other)
    special = _SPECIAL_STATEIDS.get((seqid, raw))
    text = f"{stateid_hash(seqid.to_bytes(4) + raw):#06x}, seqid {seqid}, other {raw.hex()}"
    return f"{text} ({special})" if special else text


def integer_text(type: XdrInteger, value: int) -> str:
    if type.values:
        name = type.values.get(value)
        return str(value) if name is None else name if type is BOOL else f"{name} ({value})"
    if type.flags:
        names = [name for mask, name in type.flags.items() if (value & mask if mask else not value)]
        if chosen := type.choices.get(value & type.choice_mask):
            names.append(chosen)
        if type.number and (number := value & ~(sum(type.flags) | type.choice_mask)):
            names.append(f"{type.number} {number:,}")
        return f"{value:#010x}" + (f" ({', '.join(names)})" if names else "")
    if type.form == HEXADECIMAL:
        return f"{value:#0{2 + 2 * type.size}x}"
    text = f"0{value:o}" if type.form == OCTAL else f"{value} {type.unit}".rstrip()
    return f"{text} ({type.meanings[value]})" if value in type.meanings else text


def opaque_text(type: XdrOpaque, value: memoryview) -> str:
    if type.form in (TEXT, ADDRESS) and value:
        text = bytes(value).decode("utf-8", "backslashreplace")
        address, port = universal_address(text) if type.form == ADDRESS else (text, None)
        return text if port is None else f"{text} ({address} port {port})"
    if type.form == HANDLE:
        return f"{handle_hash(value):#010x} ({len(value)} bytes) {_hex(value)}"
    if type.form == DATA:
        return f"{len(value):,} bytes"
    # What a protocol does not look into is often text all the same, as owners are.
    words = value[:MAX_WORDS].tobytes().decode("ascii", "replace") if type.form == OPAQUE and type.size is None else ""
    return f'"{words}" {_hex(value)}' if words and words.isascii() and words.isprintable() else _hex(value)


def _hex(value: memoryview) -> str:
    if not value:
        return "empty"
    more = f" and {len(value) - MAX_HEX:,} more bytes" if len(value) > MAX_HEX else ""
    return value[:MAX_HEX].hex() + more
