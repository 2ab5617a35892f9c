"""Opens captures: finds out what a file is, and reads its frames in batches."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from itertools import chain
from types import TracebackType
from typing import Self

from rdmascope.dissect.frames import FrameBatch

from . import pcap, pcapng
from .compression import compression_of, decompress
from .errors import CaptureError
from .pcapng import Interface
from .streams import Feed, Limits

CHUNK = 1 << 16
"""Bytes asked of the system at once, where a file is not mapped."""
HEAD = 8
"""Bytes that tell what a file is."""

OTHERS = {  # first bytes: what it is
    b"BZh": "a bzip2 file; unpack it first",
    b"\x04\x22\x4d\x18": "an lz4 file; unpack it first",
    b"PK\x03\x04": "a Zip archive; unpack it first",
    b"\x1f\x9d": "a compress (.Z) file; unpack it first",
    b"snoop\0\0\0": "a snoop capture; convert it with editcap",
    b"\xa1\xb2\xcd\x34": "a modified pcap; convert it with editcap",
    b"\x34\xcd\xb2\xa1": "a modified pcap; convert it with editcap",
    b"\x7fELF": "a program",
    b"%PDF": "a PDF document",
    b"\x89PNG": "a picture",
    b"SQLite f": "an SQLite database",
    b"PAR1": "a Parquet file",
}


class Capture:
    """An open capture; a context manager.

    Attributes:
        path: as it was given, '-' for standard input.
        format: 'pcap' or 'pcapng'.
        compression: 'gzip', 'zstd', 'xz', or '' for none.
        byte_order: 'little' or 'big'; of the section being read, in a pcapng.
        size: bytes of the file as it is stored; None where nobody knows (a pipe).
    """

    def __init__(self, path: str, limits: Limits) -> None:
        self.path = path
        self.format = ""
        self.compression = ""
        self.size: int | None = None
        self._name = "standard input" if path == "-" else path
        self._limits = limits
        self._taken = 0
        self._header: pcap.Header | None = None
        self._sections = pcapng.Sections()
        self._file = _open(path, self._name)
        try:
            self._feed = self._prepare()
            self._read_header()
        except OSError as error:
            self.close()
            raise CaptureError(f"{self._name}: {error.strerror}") from None
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Frame batches that were given stay valid."""
        if self._file > 0:
            os.close(self._file)
        self._file = -1

    @property
    def byte_order(self) -> str:
        order = self._header.byte_order if self._header else self._sections.byte_order
        return "big" if order == ">" else "little"

    @property
    def interfaces(self) -> tuple[Interface, ...]:
        """Those described so far: a pcapng may describe more at any place."""
        return tuple(self._sections.interfaces)

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

    def batches(self) -> Iterator[FrameBatch]:
        """The frames, once; raises CaptureError behind the last whole frame where the file is damaged."""
        if self._header is not None:
            batches = pcap.read_batches(self._feed, self._header, self._limits)
        else:
            batches = pcapng.read_batches(self._feed, self._sections, self._limits)
        for batch in batches:
            yield batch
            self._feed.release()

    def _prepare(self) -> Feed:
        """The bytes, decompressed."""
        about = os.fstat(self._file)
        if stat.S_ISDIR(about.st_mode):
            raise CaptureError(f"{self._name}: is a directory")
        regular = stat.S_ISREG(about.st_mode)
        if regular:
            self.size = about.st_size
        elif os.isatty(self._file):
            raise CaptureError(f"{self._name}: is a terminal; pipe a capture into it")
        chunks = self._chunks()
        head = b""
        while len(head) < HEAD and (chunk := next(chunks, b"")):
            head += chunk
        if not head:
            raise CaptureError(f"{self._name}: is empty")
        self.compression = compression_of(head)
        if (
            regular
            and about.st_size
            and not self.compression
            and os.lseek(self._file, 0, os.SEEK_CUR) == len(head)
        ):
            self._taken = 0
            return Feed.mapped(self._name, self._file)
        pieces = chain((head,), chunks)
        window = self._limits.window
        if self.compression:
            return Feed(self._name, decompress(self._name, self.compression, pieces), window)
        return Feed(self._name, pieces, window, live=None if regular else self._file)

    def _chunks(self) -> Iterator[bytes]:
        while chunk := os.read(self._file, CHUNK):
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
            self._sections.interfaces.append(Interface(header.link_type, header.snaplen, units=units))
        elif head[:4] == pcapng.MAGIC:
            self.format = "pcapng"
            pcapng.read_section_header(feed, self._sections)
        else:
            if len(feed.data) < HEAD:
                feed.finish("the file header")
            raise CaptureError(f"{self._name}: not a capture but {_resemblance(head)}")


def open_capture(path: str | os.PathLike[str], limits: Limits | None = None) -> Capture:
    """Opens a pcap or pcapng file, plain or compressed by gzip, zstd or xz; '-' is standard input.

    Raises CaptureError where it cannot be opened or is no capture.
    """
    return Capture(os.fspath(path), limits or Limits())


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
