"""Decompression of a stream, piece by piece.

What a damaged stream gave before its damage is given too; then CaptureError is raised, TruncatedStreamError where the
rest is missing.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Generator, Iterator

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
