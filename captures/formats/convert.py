"""Captures in formats that only Wireshark knows: its ``editcap`` makes pcapng of them."""

from __future__ import annotations

import os
from collections.abc import Iterable

from ..errors import CaptureError

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
    import tempfile

    editcap = shutil.which("editcap")
    if editcap is None:
        raise CaptureError(f"{name}: a {kind} capture; it takes editcap to read it, which comes with Wireshark")
    with tempfile.TemporaryDirectory(prefix="rdmascope-") as directory:
        source, target = os.path.join(directory, "source"), os.path.join(directory, "target")
        _write(source, pieces, f"{name}: this {kind} capture", limit)
        done = subprocess.run([editcap, "-F", "pcapng", source, target], capture_output=True, check=False)
        if done.returncode or not os.path.exists(target):
            said = [line for line in done.stderr.decode(errors="replace").splitlines() if "root" not in line]
            why = " ".join(said).replace(source, name).removeprefix("editcap: ") or f"status {done.returncode}"
            raise CaptureError(f"{name}: editcap cannot read this {kind} capture ({why})")
        return os.open(target, os.O_RDONLY | os.O_CLOEXEC)


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
        raise CaptureError(f"{what} cannot be unpacked for editcap ({error.strerror})") from None
