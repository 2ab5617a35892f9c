"""Opens captures: finds out what a file is, and reads its frames in batches; editcap or a plug-in makes pcapng of
what others wrote.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from typing import BinaryIO

from rdmascope.dissect.arrays import Bytes
from rdmascope.dissect.frames import FrameBatch
from rdmascope.dissect.link.numbers import ERF, ETHERNET
from rdmascope.dissect.named_tuple import NamedTuple
from rdmascope.dissect.plugged import failure, origin

from ..errors import CaptureError, Closing
from ..write.pcapng_writer import PcapngWriter
from . import pcap, pcapng
from .pcapng import Interface, SectionInfo
from .remote import RemoteFile, is_url, local
from .streams import Feed, Limits, compression_of, decompress

FORMATS = {  # first bytes: what it is
    b"snoop\0\0\0": "snoop",
    b"\xa1\xb2\xcd\x34": "modified pcap",
    b"\x34\xcd\xb2\xa1": "modified pcap",
    b"GMBU": "Network Monitor",
    b"RTSS": "Network Monitor",
    b"XCP\0": "NetXRay",
    b"TRSNIFF ": "Sniffer",
    b"iptrace ": "iptrace",
}


Read = Callable[[BinaryIO], Iterator[tuple[int, bytes]]]


class Reader(NamedTuple):
    """What reads a format of a plug-in."""

    read: Read
    link_type: int
    plugin: str


READERS: dict[str, Reader] = {}
"""By the names of formats."""


def file_format(name: str, magic: bytes, link_type: int = ETHERNET) -> Callable[[Read], Read]:
    """Register the function below as the reader of captures that begin with ``magic``.

    It is given the file, and yields the frames: nanoseconds since the Unix epoch, and bytes.
    """

    def register(read: Read) -> Read:
        if magic in FORMATS or not magic:
            raise ValueError(f"there is a format that begins with {magic!r} already")
        FORMATS[magic] = name
        READERS[name] = Reader(read, link_type, origin())
        return read

    return register


def format_of(head: bytes) -> str:
    """The format of a capture that begins with ``head``, or ''."""
    return next((name for magic, name in FORMATS.items() if head.startswith(magic)), "")


MAX_UNPACKED = 512 << 20
"""Bytes that are written to a temporary file for ``editcap`` where the capture is no plain file: a few kilobytes of
compressed data may stand for any number, and a pipe may have no end."""


def convert(name: str, kind: str, pieces: Iterable[bytes], limit: int | None = MAX_UNPACKED) -> int:
    """The capture as pcapng: the descriptor of a file that is gone when it is closed."""
    import shutil  # here, because few captures need it and every start would pay
    import subprocess

    from ..write.stale_tempdirs import FolderOfProcess

    reader = READERS.get(kind)
    editcap = shutil.which("editcap")
    if editcap is None and reader is None:
        raise CaptureError(f"{name}: a {kind} capture; it takes editcap to read it, which comes with Wireshark")
    with FolderOfProcess() as directory:
        source, target = os.path.join(directory, "source"), os.path.join(directory, "target")
        _write(source, pieces, f"{name}: this {kind} capture", limit)
        if reader is not None:
            _convert_by(reader, name, source, target)
            return os.open(target, os.O_RDONLY | os.O_CLOEXEC)
        done = subprocess.run([str(editcap), "-F", "pcapng", source, target], capture_output=True, check=False)
        if done.returncode or not os.path.exists(target):
            said = [line for line in done.stderr.decode(errors="replace").splitlines() if "root" not in line]
            why = " ".join(said).replace(source, name).removeprefix("editcap: ") or f"status {done.returncode}"
            raise CaptureError(f"{name}: editcap cannot read this {kind} capture ({why})")
        return os.open(target, os.O_RDONLY | os.O_CLOEXEC)


def _convert_by(reader: Reader, name: str, source: str, target: str) -> None:
    with open(source, "rb") as given, open(target, "wb") as made:
        writer = PcapngWriter(made, reader.link_type)
        try:
            for time, frame in reader.read(given):
                writer.write(time, frame, len(frame))
        except Exception as error:
            words = failure(reader.plugin, reader.read.__name__, error).partition("; left out")[0]
            raise CaptureError(f"{name}: {words}") from error


def _write(path: str, pieces: Iterable[bytes], what: str, limit: int | None) -> None:
    written = 0
    try:
        with open(path, "wb") as file:
            for piece in pieces:
                written += len(piece)
                if limit is not None and written > limit:
                    raise CaptureError(
                        f"{what} holds more than {limit >> 20} MiB; save it unpacked, and read that file"
                    )
                file.write(piece)
    except OSError as error:
        raise CaptureError(f"{what} cannot be unpacked ({error.strerror})") from None


CHUNK = 1 << 16
"""Bytes asked of the system at once, where a file is not mapped."""
HEAD = 8
"""Bytes that tell what a file is."""
ERF_PROBE = 1 << 16
"""Bytes that tell whether it is ERF, which has no magic number."""

DUCKDB = b"DUCK"
"""At byte 8 of a DuckDB database."""
OTHERS = {  # first bytes: what it is
    b"BZh": "a bzip2 file; unpack it first",
    b"PK\x03\x04": "a Zip archive; unpack it first",
    b"\x1f\x9d": "a compress (.Z) file; unpack it first",
    b"\x7fELF": "a program",
    b"%PDF": "a PDF document",
    b"\x89PNG": "a picture",
    b"SQLite f": "an SQLite database",
    b"PAR1": "a Parquet file",
}


PAUSE = 0.1
"""Seconds between two looks at a file that grows."""


class Follow(NamedTuple):
    """Read on where the file ends now, until it has not grown for ``idle`` seconds, or ``stop`` at its end says so."""

    idle: float | None = None
    stop: Callable[[], bool] = bool


class CaptureFile(Closing):
    """An open capture; a context manager.

    Attributes:
        path: as it was given: a path, a URL, or '-' for standard input.
        format: 'pcap', 'pcapng', 'ERF', or the name of a format that was converted.
        compression: 'gzip', 'zstd', 'xz', 'lz4', or '' for none.
        byte_order: 'little' or 'big'; of the section being read, in a pcapng.
        size: bytes of the file as it is stored; None where it is unknown (a pipe).
    """

    def __init__(self, path: str, limits: Limits, follow: Follow | None = None) -> None:
        self.path = path
        self.format = ""
        self.compression = ""
        self.size: int | None = None
        self._name = "standard input" if path == "-" else path
        self._limits = limits
        self._follow = follow
        self._taken = 0
        self._number = 0
        self._header: pcap.PcapHeader | None = None
        self._sections = pcapng.Sections()
        self._remote = RemoteFile(path) if is_url(path) else None
        self._file = _open(local(path), self._name) if self._remote is None else -1
        self._converted = -1
        try:
            self._feed = self._prepare()
            self._read_header()
        except OSError as error:
            self.close()
            raise CaptureError(f"{self._name}: {error.strerror}") from None
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Frame batches that were given stay valid."""
        for file in (self._file, self._converted):
            if file > 0:
                os.close(file)
        self._file = self._converted = -1
        if self._remote is not None:
            self._remote.close()

    @property
    def byte_order(self) -> str:
        order = self._header.byte_order if self._header else self._sections.byte_order
        return "big" if order == ">" else "little"

    @property
    def section(self) -> SectionInfo:
        """What a pcapng holds beside its frames, as far as it was read."""
        return self._sections.section

    @property
    def dropped_frames(self) -> int:
        """Frames that the capture itself says it lost, so far."""
        return self.section.dropped

    @property
    def time_steps(self) -> set[int]:
        """Nanoseconds in which the time stamps count so far."""
        return self._sections.time_steps

    @property
    def interfaces(self) -> tuple[Interface, ...]:
        """Interfaces described so far: a pcapng may describe more anywhere."""
        return tuple(self._sections.interfaces)

    def interface(self, number: int) -> Interface | None:
        """The interface with this number; None if it is not described."""
        return self._sections.interfaces[number] if number < len(self._sections.interfaces) else None

    @property
    def link_types(self) -> tuple[int, ...]:
        """LINKTYPE_ numbers of the interfaces described so far, each once."""
        return tuple(dict.fromkeys(interface.link_type for interface in self._sections.interfaces))

    @property
    def snaplen(self) -> int:
        """The largest of the interfaces described so far; 0 is unlimited."""
        lengths = [interface.snaplen for interface in self._sections.interfaces]
        return 0 if not lengths or 0 in lengths else max(lengths)

    @property
    def position(self) -> int:
        """Bytes read of ``size``."""
        return self._taken if self._taken else self._feed.offset

    @property
    def read(self) -> int:
        """Bytes of the capture that were read, after decompression or conversion."""
        return self._feed.offset

    @property
    def mapped(self) -> Bytes | None:
        """All bytes of the capture, which every batch refers to, where its file is mapped into memory."""
        return self._feed.data if self._feed.is_mapped else None

    def number_behind(self, frames: int) -> None:
        """Before the first batch: so many frames came before those that are in the file."""
        self._number = frames

    def passed(self, position: int) -> None:
        """Another process has read the mapped file up to ``position``: drop the memory before it."""
        self._feed.at = position
        self._feed.release()

    def release(self) -> None:
        """What was read of a mapped file needs no memory; it is read again where it is looked at."""
        self._feed.release()

    def batches(self) -> Iterator[FrameBatch]:
        """The frames, once; raises CaptureError behind the last whole frame where the file is damaged."""
        if self._header is not None:
            batches = pcap.read_batches(self._feed, self._header, self._limits)
        elif self.format == "ERF":
            batches = pcap.read_erf_batches(self._feed, self._limits)
        else:
            batches = pcapng.read_batches(self._feed, self._sections, self._limits)
        for batch in batches:
            try:
                yield batch.behind(self._number) if self._number else batch
            finally:  # Also where no more is wanted.
                self.release()

    def _prepare(self) -> Feed:
        """A feed of the bytes, decompressed."""
        remote = self._remote
        about = os.fstat(self._file) if remote is None else None
        if about is not None and stat.S_ISDIR(about.st_mode):
            raise CaptureError(f"{self._name}: is a directory")
        regular = about is not None and stat.S_ISREG(about.st_mode)
        if remote is not None:
            if self._follow is not None:
                raise CaptureError(f"{self._name}: only a file of this machine can be followed")
            self.size = remote.size
        elif about is not None and regular and self._follow is None:
            self.size = about.st_size
        elif os.isatty(self._file):
            raise CaptureError(f"{self._name}: is a terminal; pipe a capture into it")
        growing = self._follow if regular else None
        chunks = self._chunks() if growing is None else self._growing(growing)
        head = b""
        for chunk in chunks:
            head += chunk or b""
            if len(head) >= HEAD:
                break
        if not head:
            raise CaptureError(f"{self._name}: is empty")
        self.compression = compression_of(head)
        if growing is not None:
            every: Iterator[bytes | None] = chain((head,), chunks)
            if self.compression:
                every = decompress(self._name, self.compression, every, growing=True)
            return Feed(self._name, every, self._limits.window, growing=True)
        if regular and self.size and not self.compression and os.lseek(self._file, 0, os.SEEK_CUR) == len(head):
            self._taken = 0
            return Feed.mapped(self._name, self._file)
        pieces = chain((head,), filter(None, chunks))
        window = self._limits.window
        if self.compression:
            return Feed(self._name, decompress(self._name, self.compression, pieces), window)
        return Feed(self._name, pieces, window, live=None if regular or remote is not None else self._file)

    def _growing(self, follow: Follow) -> Iterator[bytes | None]:
        """What is written to the file; None where there is nothing new for now."""
        since = time.monotonic()
        while True:
            if chunk := os.read(self._file, CHUNK):
                self._taken += len(chunk)
                since = time.monotonic()
                yield chunk
                continue
            if follow.stop() or (follow.idle is not None and time.monotonic() - since >= follow.idle):
                return
            yield None
            time.sleep(PAUSE)

    def _chunks(self) -> Iterator[bytes | None]:
        read = self._remote.read if self._remote is not None else partial(os.read, self._file)
        while chunk := read(CHUNK):
            self._taken += len(chunk)
            yield chunk

    def _read_header(self) -> None:
        feed = self._feed
        while len(feed.data) < HEAD and feed.more():
            pass
        head = feed.data[:64].tobytes()
        if head[:4] in pcap.MAGICS:
            self.format = "pcap"
            self._header = header = pcap.read_header(feed)
            units = 1_000_000_000 // header.scale
            self._sections.time_steps.add(header.scale)
            self._sections.interfaces.append(Interface(header.link_type, header.snaplen, units=units))
        elif head[:4] == pcapng.MAGIC:
            self.format = "pcapng"
            pcapng.read_section_header(feed, self._sections)
        elif kind := format_of(head):
            self.format = kind
            self._converted = convert(self._name, kind, feed.rest(), None if feed.is_mapped else MAX_UNPACKED)
            self._feed = Feed.mapped(self._name, self._converted)
            pcapng.read_section_header(self._feed, self._sections)
            self._sections.section = SectionInfo()  # the converter names itself
        elif self._is_erf():
            self.format = "ERF"
            self._sections.interfaces.append(Interface(ERF, 0, units=1 << 32))
        else:
            if len(feed.data) < HEAD and _resemblance(head) != "a text file":
                feed.finish("the file header")
            raise CaptureError(f"{self._name}: not a capture but {_resemblance(head)}")

    def _is_erf(self) -> bool:
        feed = self._feed
        more = True
        while more and len(feed.data) < ERF_PROBE:
            more = feed.more()
        return pcap.looks_like_erf(feed.data[:ERF_PROBE].data, whole=len(feed.data) <= ERF_PROBE and not more)


def open_capture(
    path: str | os.PathLike[str], limits: Limits | None = None, follow: Follow | None = None
) -> CaptureFile:
    """Opens a pcap, pcapng or ERF file, plain or compressed by gzip, zstd, xz or lz4; '-' is standard input.

    A URL is read from its begin to its end, wherever fsspec has a file system for it.

    What else editcap knows is converted by it.  ``follow``: the file is still being written.  Raises
    CaptureError where it cannot be opened or is no capture.
    """
    return CaptureFile(os.fspath(path), limits or Limits(), follow)


def is_plain_capture(path: str) -> bool:
    """Whether the file at ``path`` begins as pcap or pcapng do; False also where it cannot be read."""
    if not os.path.isfile(path):
        return False
    try:
        with open(path, "rb") as file:
            head = file.read(4)
    except OSError:
        return False
    return head in pcap.MAGICS or head == pcapng.MAGIC


def _open(path: str, name: str) -> int:
    if path == "-":
        return 0
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        what = {FileNotFoundError: "no such file", PermissionError: "no permission to read it"}
        raise CaptureError(f"{name}: {what.get(type(error), error.strerror)}") from None
    except ValueError as error:
        raise CaptureError(f"{name!r}: {error}") from None


def _resemblance(head: bytes) -> str:
    """What a file that begins like this probably is."""
    if compression := compression_of(head):
        return f"something compressed twice (by {compression} inside); unpack it first"
    if head[8:12] == DUCKDB:
        return "a DuckDB database"
    for magic, what in OTHERS.items():
        if head.startswith(magic):
            return what
    try:
        text = head.decode()
    except UnicodeDecodeError as error:
        # A character may be cut at the end of what is looked at.
        text = head.decode(errors="ignore") if error.start > len(head) - 4 and len(head) == 64 else "\0"
    if text and all(character.isprintable() or character in "\t\r\n\f" for character in text):
        return "a text file"
    return f"something that begins with the bytes {head[:4].hex(' ')}"
