"""Reads traces of the kernel's tracepoints: trace.dat, and what trace-cmd report, trace_pipe and perf script print.

Documents: trace-cmd.dat.v6(5), trace-cmd.dat.v7(5).
"""

from __future__ import annotations

import mmap
import os
import re
import struct
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import suppress
from operator import itemgetter

from rdmascope.dissect.named_tuple import NamedTuple
from rdmascope.dissect.trace.events import EVENTS, LOST, RENAMED, Event, text_values
from rdmascope.dissect.trace.ring_buffer import EventFormat, PageReader, Record, event_format

from ..errors import CaptureError, Closing, system_errors
from .open import MAX_UNPACKED
from .remote import local
from .streams import compression_of, decompress

MAGIC = b"\x17\x08\x44tracing"
BATCH = 1 << 14
"""Events."""
PROBE = 1 << 16
"""Bytes that tell whether it is a trace as text."""
MAX_PIECE = 64 << 20
"""Bytes of anything that is compressed; a piece that claims more is damage."""
MIN_PAGE = 1 << 10
"""Bytes; the smallest page of any kernel is larger."""
NO_TIME = ("counter", "uptime", "x86-tsc", "ppc-tb")
"""Clocks that do not count nanoseconds."""

_OPTION_CPUSTAT, _OPTION_BUFFER, _OPTION_CLOCK, _OPTION_UNAME = 2, 3, 4, 5
_OPTION_OFFSET, _OPTION_HEADER, _OPTION_FORMATS = 7, 16, 18
_COMPRESSED = 1

_LINE = re.compile(
    r"\s*.*?[-\s](?P<pid>\d+)(?:/\d+)?\s+(?:\([-\s\d]+\)\s+)?\[\d+\]\s+(?:\S{4,6}\s+)?"
    r"(?P<seconds>[1-8]?\d{1,9})\.(?P<part>\d{1,9}):\s+(?:\d+\s+)?(?:\w+:)?(?P<name>\w+):\s*(?P<text>.*)"
)
"""'nfsd-170 [000] 66.7: nfsd_read_start: xid=…', with flags between (trace_pipe), and with systems (perf script)."""
_LOST = re.compile(r"\s*CPU:\d+ \[(?:LOST (\d+) EVENTS|EVENTS DROPPED)\]|.*PERF_RECORD_LOST.*?lost\s+(\d+)")
_HEADINGS = re.compile(rb"\s*(#|cpus=\d|version = \d|CPU \d+ is empty|CPU:\d+ \[)")


class _Buffer(NamedTuple):
    """The pages of one processor."""

    at: int
    size: int
    """Bytes in the file."""
    page: int
    """Bytes of a page."""


class TextEvents:
    """The events of a trace that is printed, piece by piece.

    Attributes:
        events: lines that are events, so far.
        lost: events that the text says were lost, so far.
    """

    def __init__(self) -> None:
        self.events = self.lost = 0
        self._rest = b""
        self._time = 0
        """The time of the last event."""

    def take(self, piece: bytes, ended: bool = False) -> list[Event]:
        """The EVENTS and LOST events of the lines that are complete now; with ``ended`` also of the last line."""
        whole, newline, rest = (self._rest + piece).rpartition(b"\n")
        self._rest = rest
        lines = whole.decode(errors="replace").split("\n") if newline else []
        if ended and rest:
            lines.append(rest.decode(errors="replace"))
        made = []
        for line in lines:
            match = _LINE.match(line)
            if match is None:
                lost = _LOST.match(line)
                if lost is not None:
                    self.lost += int(lost[1] or lost[2] or 1)
                    if self.events:
                        made.append(Event(self.events, self._time, LOST, 0, ()))
                continue
            self.events += 1
            name = RENAMED.get(match["name"], match["name"])
            self._time = int(match["seconds"]) * 1_000_000_000 + int(match["part"].ljust(9, "0"))
            if name in EVENTS and (values := text_values(name, match["text"])) is not None:
                made.append(Event(self.events, self._time, name, int(match["pid"]), values))
        return made


class Trace(Closing):
    """A trace; a context manager.

    Attributes:
        path: as it was given; '-' is standard input.
        format: 'trace.dat' or 'trace text'.
        clock: that of its times: 'local', 'mono', 'boot', 'tai' …; '' where it is not told.
        kernel: what uname said of the host; '' where it is not told.
        size: bytes of the file; None where it is unknown (a pipe).
        position: bytes of it that were read.
        events: events so far, those included that are of no interest here.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self.name = "standard input" if self.path == "-" else self.path
        self.clock = self.kernel = ""
        self.position = self.events = 0
        self._overrun = 0
        self._reader: PageReader | None = None
        self._text: TextEvents | None = None
        self.size: int | None = None
        with system_errors(self.name):
            self._file = 0 if self.path == "-" else os.open(local(self.path), os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._begin()
        except OSError as error:
            self.close()
            raise CaptureError(f"{self.name}: {error.strerror}") from None
        except BaseException:
            self.close()
            raise

    def _begin(self) -> None:
        """Look at what it begins with."""
        self.size = os.fstat(self._file).st_size or None
        self._pieces = self._unpacked(os.read(self._file, PROBE))
        first = next(self._pieces, b"")
        while len(first) < PROBE and (more := next(self._pieces, b"")):
            first += more
        self._head = first
        self.format = "trace.dat" if first.startswith(MAGIC) else "trace text"
        if not is_trace_head(first):
            raise CaptureError(f"{self.name}: no trace")

    def close(self) -> None:
        """Batches that were given stay valid."""
        if self._file > 0:
            os.close(self._file)
            self._file = -1

    @property
    def lost(self) -> int:
        """Events that the trace itself says were lost, so far; where a place does not say how many, one."""
        missed = self._reader.missed if self._reader is not None else 0
        return max(missed, self._overrun) + (self._text.lost if self._text is not None else 0)

    def batches(self) -> Iterator[list[Event]]:
        """Events that EVENTS names, in order of time; raises CaptureError behind the last that could be read."""
        yield from self._dat_batches() if self.format == "trace.dat" else self._text_batches()

    def _chunks(self, head: bytes) -> Iterator[bytes]:
        while head:
            self.position += len(head)
            yield head
            head = os.read(self._file, PROBE)

    def _unpacked(self, head: bytes) -> Iterator[bytes]:
        chunks = self._chunks(head)
        compression = compression_of(head)
        if not compression:
            return chunks
        return (piece for piece in decompress(self.name, compression, chunks) if piece)

    def _text_batches(self) -> Iterator[list[Event]]:
        text = self._text = TextEvents()
        piece, problem = self._head, None
        while piece:
            if made := text.take(piece):
                yield made
            try:
                piece = next(self._pieces, b"")
            except CaptureError as error:
                piece, problem = b"", error
            except OSError as error:
                piece, problem = b"", CaptureError(f"{self.name}: {error.strerror}")
            self.events = text.events
        if made := text.take(b"", ended=True):
            yield made
        self.events = text.events
        if problem is not None:
            raise problem

    def _whole(self) -> bytes | mmap.mmap:
        """All bytes of a trace.dat, which has its parts where its options say."""
        if self.size and not compression_of(os.pread(self._file, 8, 0)) and self._file:
            return mmap.mmap(self._file, 0, access=mmap.ACCESS_READ)
        parts, size = [self._head], len(self._head)
        for piece in self._pieces:
            size += len(piece)
            if size > MAX_UNPACKED:
                limit = MAX_UNPACKED >> 20
                raise CaptureError(f"{self.name}: more than {limit} MiB when unpacked; unpack it first")
            parts.append(piece)
        return b"".join(parts)

    def _dat_batches(self) -> Iterator[list[Event]]:
        data = self._whole()
        try:
            header = TraceDat(data, self.name)
        except (struct.error, IndexError, zlib.error, ValueError) as error:
            raise CaptureError(f"{self.name}: truncated or damaged in the header ({error})") from None
        self.clock, self.kernel, self._overrun = header.clock, header.kernel, header.overrun
        if self.clock in NO_TIME:
            raise CaptureError(f"{self.name}: its clock '{self.clock}' does not count nanoseconds")
        self._reader = PageReader(header.formats, header.order, header.long)
        damage: list[str] = []
        made: list[Event] = []
        make, offset = Event, header.offset
        for ready in _by_time([self._records(header, buffer, damage) for buffer in header.buffers]):
            number = self.events
            for time, name, pid, values in ready:
                number += name != LOST
                if name:
                    made.append(make(number, time + offset, name, pid, values))
            self.events = number
            if len(made) >= BATCH:
                yield made
                made = []
        if made:
            yield made
        if damage:
            raise CaptureError(f"{self.name}: {damage[0]}")

    def _records(self, header: TraceDat, buffer: _Buffer, damage: list[str]) -> Iterator[list[Record]]:
        """The records of one processor, page by page."""
        assert self._reader is not None
        for page, at in header.pages(buffer):
            records: list[Record] = []
            if len(page) < buffer.page:
                damage.append(f"truncated in the page at byte {at}")
            try:
                self._reader.read(page, records)
            except struct.error:
                damage.append(f"damaged in the page at byte {at}")
            self.position = max(self.position, at)
            if records:
                yield records


def _by_time(processors: list[Iterator[list[Record]]]) -> Iterator[list[Record]]:
    """All records, piece by piece in order of time; each processor's are."""
    time_of = itemgetter(0)
    waiting: list[tuple[list[Record], Iterator[list[Record]]]] = []
    for pages in processors:
        page = next(pages, None)
        if page is not None:
            waiting.append((page, pages))
    while waiting:
        # What is not later than the last of any page at hand can have nothing before it that was not read.
        until = min(page[-1][0] for page, _ in waiting)
        ready: list[Record] = []
        rest = []
        for page, pages in waiting:
            # A damaged page's times may go back: one page is taken whole each time, whatever they are.
            cut = len(page) if page[-1][0] == until else bisect_right(page, until, key=time_of)
            ready += page[:cut]
            left: list[Record] | None = page[cut:] or next(pages, None)
            if left is not None:
                rest.append((left, pages))
        waiting = rest
        ready.sort(key=time_of)
        yield ready


class TraceDat:
    """What a trace.dat says of itself, version 6 or 7.

    Attributes:
        buffers: the pages of each processor.
        formats: how events are read, by the numbers that this kernel gave them.
        offset: nanoseconds to be added to each time.
        overrun: events that were lost, by the kernel's own count.
    """

    def __init__(self, data: bytes | mmap.mmap, name: str) -> None:
        self._data, self._name = data, name
        at = len(MAGIC)
        version, at = self._text(at)
        if version not in ("6", "7"):
            raise CaptureError(f"{name}: trace.dat of version {version}; 6 and 7 can be read")
        self.order = "<>"[data[at] == 1]
        self.long = 8
        (self.page_size,) = self._unpack("I", at + 2)
        at += 6
        self.clock = self.kernel = ""
        self.offset = self.overrun = 0
        self.formats: dict[int, EventFormat] = {}
        self.buffers: list[_Buffer] = []
        self._inflate: Callable[[bytes, int], bytes] | None = None
        if version == "6":
            self._read_6(at)
        else:
            self._read_7(at)

    def pages(self, buffer: _Buffer) -> Iterator[tuple[bytes, int]]:
        """Each page and where it begins; the last may not be whole."""
        if self._inflate is None:
            for at in range(buffer.at, buffer.at + buffer.size, buffer.page):
                page = self._data[at : at + buffer.page]
                yield page, at
                if len(page) < buffer.page:
                    return
            return
        (chunks,) = self._unpack("I", buffer.at)
        at = buffer.at + 4
        for _ in range(chunks):
            head = self._data[at : at + 8]
            packed, size = struct.unpack(self.order + "II", head) if len(head) == 8 else (1, 1)
            packed_bytes = self._data[at + 8 : at + 8 + packed]
            unpacked = b""
            if len(head) == 8 and len(packed_bytes) == packed:
                with suppress(ValueError, zlib.error):
                    unpacked = self._inflate(packed_bytes, size)
            if not unpacked:
                yield b"", at
                return
            for start in range(0, len(unpacked), buffer.page):
                yield unpacked[start : start + buffer.page], at
            at += 8 + packed

    def _unpack(self, layout: str, at: int, data: bytes | mmap.mmap | None = None) -> tuple[int, ...]:
        source = self._data if data is None else data
        if at > len(source):
            raise struct.error(f"something at byte {at} is missing")
        return struct.unpack_from(self.order + layout, source, at)

    def _text(self, at: int, data: bytes | mmap.mmap | None = None) -> tuple[str, int]:
        """The string at ``at``, and what is behind it."""
        source = self._data if data is None else data
        end = source.find(b"\0", at)
        if end < 0:
            raise ValueError("a string does not end")
        return source[at:end].decode(errors="replace"), end + 1

    def _read_6(self, at: int) -> None:
        at = self._read_header_pages(self._data, at)
        (count,) = self._unpack("I", at)  # Formats of the tracers' own events.
        at += 4
        for _ in range(count):
            at += 8 + self._unpack("Q", at)[0]
        at = self._read_formats(self._data, at)
        for layout, size in (("I", 4), ("I", 4), ("Q", 8)):  # kallsyms, printk formats, names of processes
            at += size + self._unpack(layout, at)[0]
        (processors,) = self._unpack("I", at)
        at += 4
        while (word := self._data[at : at + 10]) != b"flyrecord\0":
            if word != b"options  \0":
                raise ValueError("it holds no events in binary")
            at += 10
            while (option := self._unpack("H", at)[0]) != 0:
                (size,) = self._unpack("I", at + 2)
                self._take_option(option, self._data[at + 6 : at + 6 + size])
                at += 6 + size
            at += 2
        for i in range(processors):
            start, size = self._unpack("QQ", at + 10 + 16 * i)
            self._add_buffer(start, size, self.page_size)

    def _read_7(self, at: int) -> None:
        compression, at = self._text(at)
        _, at = self._text(at)
        if compression == "zstd":
            self._inflate = _unzstd
        elif compression == "zlib":
            self._inflate = lambda packed, size: zlib.decompressobj().decompress(packed, _believable(size))
        elif compression != "none":
            raise CaptureError(f"{self._name}: compressed by {compression}; zlib and zstd can be read")
        (at,) = self._unpack("Q", at)
        seen = {0}
        while at not in seen:
            seen.add(at)
            options, at = self._section(at), 0
            at = 0
            while at + 6 <= len(options):
                option, size = self._unpack("HI", at, options)
                body = options[at + 6 : at + 6 + size]
                at += 6 + size
                if not option:
                    (at,) = struct.unpack(self.order + "Q", body)
                    break
                self._take_option(option, body)

    def _section(self, at: int) -> bytes:
        _, flags, _, size = self._unpack("HHIQ", at)
        at += 16
        if not flags & _COMPRESSED or self._inflate is None:
            return self._data[at : at + size]
        packed, unpacked = self._unpack("II", at)
        return self._inflate(self._data[at + 8 : at + 8 + packed], unpacked)

    def _take_option(self, option: int, body: bytes) -> None:
        if option == _OPTION_CPUSTAT:
            self.overrun += sum(map(int, re.findall(rb"(?:overrun|dropped events): (\d+)", body)))
        elif option == _OPTION_UNAME:
            self.kernel = body.rstrip(b"\0").decode(errors="replace")
        elif option == _OPTION_CLOCK:
            chosen = re.search(rb"\[([\w-]+)\]", body)
            self.clock = chosen[1].decode() if chosen is not None else ""
        elif option == _OPTION_OFFSET:
            self.offset = int(body.rstrip(b"\0") or b"0", 0)
        elif option in (_OPTION_HEADER, _OPTION_FORMATS):
            section = self._section(struct.unpack(self.order + "Q", body)[0])
            read = self._read_header_pages if option == _OPTION_HEADER else self._read_formats
            read(section, 0)
        elif option == _OPTION_BUFFER and len(body) > 8:
            self._take_buffer(body)

    def _take_buffer(self, body: bytes) -> None:
        _, at = self._text(8, body)
        self.clock, at = self._text(at, body)
        page, processors = self._unpack("II", at, body)
        for i in range(processors):
            _, start, size = self._unpack("IQQ", at + 8 + 20 * i, body)
            self._add_buffer(start, size, page)

    def _add_buffer(self, start: int, size: int, page: int) -> None:
        if page < MIN_PAGE:
            raise ValueError(f"pages of {page} bytes")
        if size:
            self.buffers.append(_Buffer(start, size, page))

    def _read_header_pages(self, data: bytes | mmap.mmap, at: int) -> int:
        for name in (b"header_page\0", b"header_event\0"):
            if data[at : at + len(name)] != name:
                raise ValueError(f"{name[:-1].decode()} is missing")
            at += len(name)
            (size,) = self._unpack("Q", at, data)
            commit = re.search(rb"commit;\s*offset:\d+;\s*size:(\d+)", data[at + 8 : at + 8 + size])
            if commit is not None:
                self.long = int(commit[1])
            at += 8 + size
        return at

    def _read_formats(self, data: bytes | mmap.mmap, at: int) -> int:
        (systems,) = self._unpack("I", at, data)
        at += 4
        for _ in range(systems):
            _, at = self._text(at, data)
            (events,) = self._unpack("I", at, data)
            at += 4
            for _ in range(events):
                (size,) = self._unpack("Q", at, data)
                format = event_format(data[at + 8 : at + 8 + size].decode(errors="replace"), self.order)
                if format is not None and format[1] is not None:
                    self.formats[format[0]] = format[1]
                at += 8 + size
        return at


def _unzstd(packed: bytes, size: int) -> bytes:
    import zstandard

    _believable(size)
    try:
        return zstandard.ZstdDecompressor().decompress(packed, max_output_size=size)
    except zstandard.ZstdError as error:
        raise ValueError(error) from None


def _believable(size: int) -> int:
    if not 0 < size <= MAX_PIECE:
        raise ValueError(f"a piece of {size} bytes")
    return size


def is_trace_head(head: bytes) -> bool:
    """Whether a file that begins with ``head`` is a trace."""
    if head.startswith(MAGIC):
        return True
    lines = [line for line in head.split(b"\n")[:50] if line.strip() and not _HEADINGS.match(line)]
    return bool(lines) and _LINE.match(lines[0].decode(errors="replace")) is not None


def is_trace(path: str | os.PathLike[str]) -> bool:
    """Whether the file at ``path`` is a trace, plain or compressed; False also where it cannot be read."""
    name = local(os.fspath(path))
    if name == "-" or not os.path.isfile(name):
        return name.endswith(("/trace_pipe", "/trace"))
    try:
        with Trace(name):
            return True
    except CaptureError:
        return False
