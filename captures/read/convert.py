"""Captures in formats that only Wireshark or a plug-in knows: its ``editcap``, or the plug-in, makes pcapng of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO, NamedTuple

from rdmascope.dissect.link.numbers import ETHERNET
from rdmascope.dissect.plugged import failure, origin

from ..errors import CaptureError
from ..write.writer import PcapngWriter

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
    """What a capture that begins so is, or ''."""
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
