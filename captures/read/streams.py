"""Bytes of a capture: a mapped file, or windows of a stream that may be compressed.

A damaged stream gives everything before the damage, then raises CaptureError, or TruncatedStreamError if the rest is
missing.
"""

from __future__ import annotations

import mmap
import select
import time
import zlib
from collections.abc import Callable, Generator, Iterator
from typing import NoReturn

import numpy as np

from rdmascope.dissect.arrays import Bytes
from rdmascope.dissect.named_tuple import NamedTuple

from ..errors import CaptureError

MAGICS = {  # RFC 1952, 2.3.1; RFC 8878, 3.1.1; the .xz file format, 2.1.1.1; the LZ4 frame format
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\xfd7zXZ\x00": "xz",
    b"\x04\x22\x4d\x18": "lz4",
}

PIECE = 1 << 18
"""Most decompressed bytes in one piece, where the library has a limit."""
SIP = 1 << 10
"""Compressed bytes given to zstd at once: it has no limit, and may make 32 KiB of each of them."""
XZ_MEMORY = 512 << 20


class TruncatedStreamError(CaptureError):
    """A stream ends before its end; who reads the capture knows how far it came."""


def compression_of(head: bytes) -> str:
    """'gzip', 'zstd', 'xz', or '' where the first bytes are none of them."""
    return next((name for magic, name in MAGICS.items() if head.startswith(magic)), "")


class _CorruptError(Exception):
    """What a library says of a stream; each is loaded only where a file is compressed with it."""


Chunks = Iterator[bytes] | Iterator[bytes | None]
Pieces = Generator[bytes | None, None, bytes]
"""What is decompressed, to the end of a member; gives what comes behind it."""


def decompress(name: str, compression: str, chunks: Chunks, growing: bool = False) -> Iterator[bytes | None]:
    """The decompressed bytes of all members (gzip), frames (zstd, lz4) or streams (xz) of a file.

    A chunk that is None says that nothing comes for now, and is passed on.  ``growing``: a stream that is not whole
    at the end is not written yet.
    """
    member = {"gzip": _gunzip, "zstd": _unzstd, "xz": _unxz, "lz4": _unlz4}[compression]
    rest = b""
    try:
        while True:
            rest = yield from member(rest, chunks)
            # Zeros behind a member are padding: tapes, and xz streams by rule.
            while not (rest := rest.lstrip(b"\0")):
                if not (rest := (yield from _next(chunks))):
                    return
    except (zlib.error, _CorruptError) as error:
        raise CaptureError(f"{name}: the {compression} stream is corrupt ({error})") from None
    except EOFError:
        if growing:
            return
        raise TruncatedStreamError(f"{name}: the {compression} stream is truncated") from None
    except RuntimeError as error:  # lz4 has no exception of its own
        raise CaptureError(f"{name}: the {compression} stream is corrupt ({error})") from None


def _next(chunks: Chunks) -> Pieces:
    """The next chunk, b'' behind the last one."""
    for chunk in chunks:
        if chunk:
            return chunk
        yield None
    return b""


def _needed(chunks: Chunks) -> Pieces:
    chunk = yield from _next(chunks)
    if not chunk:
        raise EOFError
    return chunk


def _gunzip(chunk: bytes, chunks: Chunks) -> Pieces:
    inflate = zlib.decompressobj(wbits=31)
    while not inflate.eof:
        before = inflate.copy()
        try:
            piece = inflate.decompress(chunk, PIECE)
        except zlib.error:
            yield from _until_error(before.decompress, chunk)
            raise
        yield piece
        chunk = inflate.unconsumed_tail
        if not inflate.eof and not chunk and len(piece) < PIECE:
            chunk = yield from _needed(chunks)
    return inflate.unused_data


def _until_error(decompress: Callable[[bytes], bytes], chunk: bytes) -> Iterator[bytes]:
    try:
        for i in range(len(chunk)):
            yield decompress(chunk[i : i + 1])
    except zlib.error:
        return


def _unxz(chunk: bytes, chunks: Chunks) -> Pieces:
    import lzma

    decoder = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=XZ_MEMORY)
    try:
        while not decoder.eof:
            if decoder.needs_input and not chunk:
                chunk = yield from _needed(chunks)
            yield decoder.decompress(chunk, PIECE)
            chunk = b""
    except lzma.LZMAError as error:
        raise _CorruptError(error) from None
    return decoder.unused_data


def _unzstd(chunk: bytes, chunks: Chunks) -> Pieces:
    import zstandard

    decoder = zstandard.ZstdDecompressor().decompressobj()
    try:
        while True:
            for i in range(0, len(chunk), SIP):
                yield decoder.decompress(chunk[i : i + SIP])
                if decoder.eof:
                    return decoder.unused_data + chunk[i + SIP :]
            chunk = yield from _needed(chunks)
    except zstandard.ZstdError as error:
        raise _CorruptError(error) from None


def _unlz4(chunk: bytes, chunks: Chunks) -> Pieces:
    from lz4.frame import LZ4FrameDecompressor

    decoder = LZ4FrameDecompressor()
    while not decoder.eof:
        if decoder.needs_input and not chunk:
            chunk = yield from _needed(chunks)
        yield decoder.decompress(chunk, PIECE)
        chunk = b""
    return decoder.unused_data or b""


MAX_IN_RECORD = 256 << 20
"""Bytes; a record that claims more is damage."""

PATIENCE = 0.2
"""Seconds that a batch of a live stream waits for more to come."""

RELEASED = 1 << 30
"""Bytes behind the reader in which pages may have come back when an old payload was read."""


class Limits(NamedTuple):
    """A batch ends at whichever is reached first."""

    frames: int = 3 << 13
    bytes: int = 32 << 20
    window: int = 8 << 20
    """Bytes read at once from what cannot be mapped."""
    max_frames: int = 0
    """Frames of later batches: each may have twice as many as the one before, up to so many."""

    def next(self) -> Limits:
        """The limits of the next batch."""
        return self._replace(frames=min(self.max_frames, 2 * self.frames)) if self.frames < self.max_frames else self


class Feed:
    """The bytes a reader works on: ``data`` from ``at``; ``more`` brings further ones."""

    def __init__(
        self,
        name: str,
        pieces: Iterator[bytes] | Iterator[bytes | None] | None,
        window: int,
        live: int | None = None,
        growing: bool = False,
    ) -> None:
        """``live`` is the descriptor behind ``pieces``, where what came should not wait for a full window.

        ``growing``: a piece that is None says that nothing comes for now, and a record that is not whole at the
        end is not written yet.
        """
        self.name = name
        self.data: Bytes = np.zeros(0, np.uint8)
        self.at = 0
        self._base = 0
        self._pieces = pieces
        self._piece = memoryview(b"")
        self._window = window
        self._poll: select.poll | None = None
        if live is not None:
            self._poll = select.poll()
            self._poll.register(live, select.POLLIN)
        self._failure: CaptureError | None = None
        self._growing = growing
        self._map: mmap.mmap | None = None

    @classmethod
    def mapped(cls, name: str, file: int) -> Feed:
        """All of a regular file that is not empty."""
        feed = cls(name, None, 0)
        feed._map = mmap.mmap(file, 0, access=mmap.ACCESS_READ)
        feed.data = np.frombuffer(feed._map, np.uint8)
        return feed

    @property
    def is_mapped(self) -> bool:
        return self._map is not None

    @property
    def offset(self) -> int:
        """Position of the next unread byte in the (decompressed) capture."""
        return self._base + self.at

    def more(self) -> bool:
        """Brings further bytes behind the unread ones, into new data; False where there are none."""
        if self._pieces is None:
            return False
        rest = len(self.data) - self.at
        fresh = np.empty(max(self._window, 2 * rest), np.uint8)
        fresh[:rest] = self.data[self.at :]
        filled = rest
        deadline = 0.0
        view = fresh.data
        while filled < len(fresh):
            if not self._piece:
                if self._poll is not None and filled > rest:
                    deadline = deadline or time.monotonic() + PATIENCE
                    if not self._poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
                        break
                try:
                    piece = next(self._pieces)
                    if piece is None:
                        if filled > rest:
                            break
                        continue
                    self._piece = memoryview(piece)
                except StopIteration:
                    self._pieces = None
                    break
                except CaptureError as error:
                    self._pieces, self._failure = None, error
                    break
                except OSError as error:
                    self._pieces, self._failure = None, CaptureError(f"{self.name}: {error.strerror}")
                    break
            size = min(len(self._piece), len(fresh) - filled)
            view[filled : filled + size] = self._piece[:size]
            self._piece = self._piece[size:]
            filled += size
        fresh.flags.writeable = False
        self._base += self.at
        self.data, self.at = fresh[:filled], 0
        return filled > rest

    def need(self, size: int, what: str) -> None:
        """Makes ``size`` unread bytes available, or raises."""
        while len(self.data) - self.at < size:
            if not self.more():
                self.cut_short(what, size)

    def release(self) -> None:
        """Gives back the memory of mapped pages behind the reader; they are read again when looked at."""
        if self._map is not None and hasattr(self._map, "madvise"):
            start = max(0, self.at - RELEASED) & -mmap.PAGESIZE
            length = (self.at & -mmap.PAGESIZE) - start
            if length > 0:
                self._map.madvise(mmap.MADV_DONTNEED, start, length)

    def finish(self, what: str, size: int = 0) -> None:
        """To be called where no more comes: raises unless the capture ends here, between two records."""
        if self._failure is not None:
            raise self._ended_by(self._failure, what)
        if self.at < len(self.data) and not self._growing:
            self.cut_short(what, size)

    def rest(self) -> Iterator[bytes]:
        """All bytes that were not read, to the end or a failure of what brings them."""
        while True:
            yield self.data[self.at :].tobytes()
            self.at = len(self.data)
            if not self.more():
                break
        if self._failure is not None:
            raise self._failure

    def cut_short(self, what: str, size: int = 0) -> NoReturn:
        if self._failure is not None:
            raise self._ended_by(self._failure, what)
        left = len(self.data) - self.at
        there = f"only {left} of its {size} bytes are" if size else f"only {left} bytes of it are"
        raise CaptureError(f"{self.name}: truncated in {what}, at byte {self.offset}: {there} there")

    def _ended_by(self, failure: CaptureError, what: str) -> CaptureError:
        """With the place, where that is known: wrong bytes of a corrupt stream are found late."""
        if not isinstance(failure, TruncatedStreamError):
            return failure
        within = f" in {what}," if self.at < len(self.data) else ""
        return CaptureError(f"{failure}{within} at byte {self.offset} of the unpacked capture")

    def damaged(self, what: str) -> NoReturn:
        offset = self.offset
        # A corrupt gzip stream gives wrong bytes until its checksum comes; then that is what is wrong.
        while self._poll is None and self._pieces is not None:
            self.at = len(self.data)
            self.more()
        if self._failure is not None:
            raise self._failure
        raise CaptureError(f"{self.name}: damaged at byte {offset}: {what}")
