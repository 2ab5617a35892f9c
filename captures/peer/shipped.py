"""Synthetic captures: the scripts that ship, and pcapng files of what a script plays."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from ..errors import CaptureError
from ..write.pcapng_writer import PcapngWriter

if TYPE_CHECKING:
    from .wire.network import TapedFrame

ETHERNET = 1
MAX_BYTES = 1 << 20
"""A script is no longer."""


def shipped_scripts() -> dict[str, str]:
    """Name -> text, by name."""
    folder = files(__package__).joinpath("scripts")
    scripts = [entry for entry in folder.iterdir() if entry.name.endswith(".toml")]
    return {
        entry.name.removesuffix(".toml"): entry.read_text() for entry in sorted(scripts, key=lambda script: script.name)
    }


def read_script(name: str) -> str:
    """The text of a shipped script or, where none has that name, of a file; - is standard input."""
    shipped = shipped_scripts()
    if name in shipped:
        return shipped[name]
    try:
        with nullcontext(sys.stdin.buffer) if name == "-" else Path(name).open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise CaptureError(f"{name}: no such file, and no script that ships ({', '.join(shipped)})") from None
    if len(data) > MAX_BYTES:
        raise CaptureError(f"{name}: longer than {MAX_BYTES} bytes, no script")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise CaptureError(f"{name}: no UTF-8 text at byte {error.start}") from None


def write_capture(file: BinaryIO, frames: list[tuple[TapedFrame, int]], snaplen: int = 0) -> None:
    """Frames with their lengths on the wire, as pcapng."""
    writer = PcapngWriter(file, ETHERNET, snaplen)
    for frame, length in frames:
        writer.write(frame.time, frame.data, length)
