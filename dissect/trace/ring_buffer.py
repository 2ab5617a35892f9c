"""The kernel's ring buffer as trace-cmd saves it: pages of events whose fields the format files describe.

Documents: trace-cmd.dat.v6(5), trace-cmd.dat.v7(5), and the kernel's Documentation/trace/ring-buffer-map.rst.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping
from ipaddress import IPv4Address, IPv6Address
from operator import itemgetter

from ..named_tuple import NamedTuple
from .events import EVENTS, LONG, LOST, RENAMED, Value

PADDING, TIME_EXTEND, TIME_STAMP = 29, 30, 31
"""``type_len`` of entries that are no events; smaller values are an event's length in words, 0: the length follows."""
MISSED_EVENTS, MISSED_STORED = 1 << 31, 1 << 30
"""Flags of a page's ``commit``: events were lost before the page; their number follows its data."""
AF_INET, AF_INET6 = 2, 10
SOCKADDR = 28
"""Bytes of a struct sockaddr_in6, which tracepoints keep for either family."""

_FIELD = re.compile(r"field:([^;]*?)\s*\b(\w+)(?:\[(\w*)\])?;\s*offset:(\d+);\s*size:(\d+);\s*signed:(\d);")
_NAME = re.compile(r"^name: (\w+)\nID: (\d+)", re.MULTILINE)

ALIASES: Mapping[str, tuple[str, ...]] = {
    "client": ("addr",),
    "wakeup": ("qtime",),
    "completion_id": ("cid", "mr_id", "sc", "rep"),
    "received": ("byte_len",),
    "progname": ("program",),
    "procname": ("procedure",),
    "procedure": ("proc",),
}
"""Our name of a field: its names in other kernels."""

Reader = Callable[[bytes, int], Value]


class EventFormat(NamedTuple):
    """How to read an event's record."""

    name: str
    integers: Callable[[bytes, int], tuple[int, ...]]
    """Unpacks the integer fields."""
    chosen: Callable[[tuple[Value, ...]], tuple[Value, ...]] | None
    """Picks the fields of ``EVENTS[name]`` from the integers and a None after them; None if they are just these."""
    readers: tuple[tuple[int, Reader], ...]
    """For fields that are no integers: their index among the values, and how to read them."""

    def values(self, page: bytes, at: int) -> tuple[Value, ...]:
        """The fields of the record at ``at``; raises struct.error if it is truncated."""
        integers: tuple[Value, ...] = self.integers(page, at)
        if self.chosen is not None:
            integers = self.chosen((*integers, None))
        if not self.readers:
            return integers
        values = [*integers]
        for index, read in self.readers:
            values[index] = read(page, at)
        return tuple(values)


def socket_address(data: bytes) -> str:
    """'10.0.0.1:20049' or '[::1]:20049' for a struct sockaddr in host byte order; '' for another family."""
    family = data[0] | data[1] if len(data) >= 8 else 0  # Families are below 256: the byte order does not matter.
    port = int.from_bytes(data[2:4], "big")
    if family == AF_INET:
        return f"{IPv4Address(data[4:8])}:{port}"
    if family == AF_INET6 and len(data) >= 24:
        return f"[{IPv6Address(data[8:24])}]:{port}"
    return ""


def _string(data: bytes) -> str:
    return data.partition(b"\0")[0].decode(errors="replace")


def _reader(element: str, offset: int, size: int, dynamic: str, order: str) -> Reader:
    """A function that reads a string or socket address, at a fixed offset or where a length-and-offset word points."""
    text = element.endswith("char") and "unsigned" not in element
    decode = _string if text or not (dynamic or size == SOCKADDR) else socket_address
    if not dynamic:
        return lambda page, at: decode(page[at + offset : at + offset + size])
    word = struct.Struct(order + "I")
    behind = offset + 4 if dynamic == "__rel_loc" else 0

    def read(page: bytes, at: int) -> Value:
        (place,) = word.unpack_from(page, at + offset)
        start = at + (place & 0xFFFF) + behind
        return decode(page[start : start + (place >> 16)])

    return read


_INTEGERS = {1: "B", 2: "H", 4: "I", 8: "Q"}


def event_format(text: str, order: str) -> tuple[int, EventFormat | None] | None:
    """The ID of the event in a format file, and how to read it; None instead of the latter if it is not in EVENTS.

    ``order``: '<' or '>'.  Returns None for a text that is no format file.
    """
    head = _NAME.search(text)
    if head is None:
        return None
    name, number = RENAMED.get(head[1], head[1]), int(head[2])
    if name not in EVENTS:
        return number, None
    fields: dict[str, tuple[str, bool, int, int, bool]] = {}
    for kind, field, count, offset, size, signed in _FIELD.findall(text):
        array = count != "" or "[" in kind
        fields[field] = kind, array, int(offset), int(size), signed == "1"
    layout, at = order, 0
    places: dict[int, int] = {}
    readers: list[tuple[int, Reader]] = []
    chosen = {}
    for index, wanted in enumerate(EVENTS[name]):
        field = next((name for name in (wanted, *ALIASES.get(wanted, ())) if name in fields), None)
        if field is not None:
            chosen[index] = fields[field]
    for index, (kind, array, offset, size, signed) in sorted(chosen.items(), key=lambda item: item[1][2]):
        if array:
            dynamic = next((word for word in ("__data_loc", "__rel_loc") if word in kind), "")
            element = kind.replace(dynamic, "").replace("[]", "").strip()
            readers.append((index, _reader(element, offset, size, dynamic, order)))
            continue
        if size == 8 and EVENTS[name][index] not in LONG:
            size, offset = 4, offset if order == "<" else offset + 4
        if size in _INTEGERS and offset >= at:
            code = _INTEGERS[size]
            layout += "x" * (offset - at) + (code.lower() if signed else code)
            places[index], at = len(places), offset + size
    picked = [places.get(index, -1) for index in range(len(EVENTS[name]))]
    plain = picked == [*range(len(places))]
    chosen_of = None if plain else itemgetter(*picked) if len(picked) > 1 else _alone(picked[0])
    return number, EventFormat(name, struct.Struct(layout).unpack_from, chosen_of, tuple(readers))


def _alone(index: int) -> Callable[[tuple[Value, ...]], tuple[Value, ...]]:
    return lambda values: (values[index],)


Record = tuple[int, str, int, tuple[Value, ...]]
"""Time, name, thread and values of an event; the name is '' if it is not in EVENTS."""
_OTHER: tuple[Value, ...] = ()


class PageReader:
    """Reads pages of one trace."""

    def __init__(self, formats: Mapping[int, EventFormat], order: str, long: int) -> None:
        """``long``: size of a page's ``commit`` in bytes."""
        self._formats = formats
        self._word = struct.Struct(order + "I")
        self._start = struct.Struct(order + "IHxxi")
        self._head = struct.Struct(order + ("QQ" if long == 8 else "QI"))
        self._little = order == "<"
        self.missed = 0
        """Events that pages say were lost; 1 for a page that does not say how many."""

    def read(self, page: bytes, records: list[Record]) -> None:
        """Append the records of a page; raises struct.error if it is damaged."""
        time, commit = self._head.unpack_from(page)
        at = self._head.size
        end = min(at + (commit & 0xFFFFF), len(page))
        if commit & MISSED_EVENTS:
            stored = commit & MISSED_STORED and end + 8 <= len(page)
            self.missed += int.from_bytes(page[end : end + 8], "little" if self._little else "big") if stored else 1
            records.append((time, LOST, 0, _OTHER))
        word, start, formats, little = self._word.unpack_from, self._start.unpack_from, self._formats, self._little
        page += bytes(12)  # so that the last word can be read as if an event began there
        while at + 4 <= end:
            head, ident, pid = start(page, at)
            kind, delta = (head & 31, head >> 5) if little else (head >> 27, head & 0x7FFFFFF)
            at += 4
            if 0 < kind < PADDING:
                time += delta
                form = formats.get(ident)
                if form is None:
                    records.append((time, "", pid, _OTHER))
                else:
                    records.append((time, form.name, pid, form.values(page, at)))
                at += 4 * kind
                continue
            if kind == PADDING:
                if not delta:
                    return
                (size,) = word(page, at)
                time += delta
                at += size
                continue
            if kind == TIME_EXTEND:
                time += delta + (word(page, at)[0] << 27)
                at += 4
                continue
            if kind == TIME_STAMP:
                # It has 59 bits; the uppermost five are those of the previous time.
                time = (time >> 59 << 59) | delta | word(page, at)[0] << 27
                at += 4
                continue
            size, ident, pid = start(page, at)
            at += 4
            time += delta
            form = formats.get(ident)
            values = _OTHER if form is None else form.values(page, at)
            records.append((time, "" if form is None else form.name, pid, values))
            at += size - 4
