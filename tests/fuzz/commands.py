"""The whole line: bytes of a file, or a conversation as a file, through a command to its output."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator

from click.testing import CliRunner

from playbook.wrap import ETHERNET, Raw
from rdmascope.captures import CaptureError, open_capture
from rdmascope.captures.read.streams import Limits
from rdmascope.cli.main import main

from . import conversations
from .target import Target, first_frames

COMMANDS = (
    ("info",),
    ("report",),
    ("report", "--json"),
    ("report", "--by", "procedure,client"),
    ("diagnose", "--explain"),
    ("rpcs",),
    ("rpcs", "--json"),
    ("show", "--rpc", "1", "--full"),
    ("show", "--rpc", "2", "--json"),
    ("show", "--frame", "9"),
    ("packets",),
    ("packets", "-V"),
    ("packets", "--json"),
    ("transport", "--json"),
    ("files",),
    ("audit",),
    ("audit", "--json"),
    ("transport", "--credits"),
    ("sessions",),
    ("sql", "SELECT * FROM rpcs"),
    ("sql", "SELECT count(*) FROM packets"),
)
INTERNAL_ERROR = "internal error"
PCAP = struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262144, ETHERNET)
LIMIT = 1 << 26
"""Bytes that a compressed input may give: a bomb is for another test."""


def memory_file(data: bytes) -> int:
    """A descriptor of a file in memory that holds ``data``."""
    file = os.memfd_create("input")
    os.write(file, data)
    return file


def command(which: int, data: bytes) -> None:
    """Run one; it ends with an exit status and without a traceback."""
    file = memory_file(data)
    try:
        words = COMMANDS[which % len(COMMANDS)]
        environment = {"COLUMNS": "100", "RDMASCOPE_TRACEBACK": "1"}
        path = f"/proc/self/fd/{file}"
        result = CliRunner(env=environment).invoke(main, [words[0], path, *words[1:]])
    finally:
        os.close(file)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code in (0, 1, 2, 3), result.output
    assert "Traceback" not in result.output and INTERNAL_ERROR not in result.output


def pcap(frames: list[Raw]) -> bytes:
    records = [PCAP]
    for one in frames:
        size, original = len(one.data), one.original or len(one.data)
        seconds, nanoseconds = divmod(one.time, 10**9)
        records.append(struct.pack("<IIII", seconds & 0xFFFFFFFF, nanoseconds, size, original) + one.data)
    return b"".join(records)


def any_file(data: bytes) -> None:
    """Open a file and read it to its end, or to its damage."""
    file = memory_file(data)
    try:
        with open_capture(f"/proc/self/fd/{file}", Limits(frames=64, bytes=1 << 16, window=1 << 16)) as capture:
            read = 0
            for batch in capture.batches():
                read += len(batch.data)
                if read > LIMIT:
                    break
    except CaptureError as error:
        assert str(error).strip() and "\n" not in str(error)
    finally:
        os.close(file)


def any_file_seeds() -> Iterator[bytes]:
    frames = [one._replace(data=one.data[:90]) for one in first_frames("bidir-rxe", 6)]
    yield pcap(frames)
    yield pcap(frames).replace(PCAP, struct.pack(">IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262144, ETHERNET))
    blocks = [b"\x0a\x0d\x0d\x0a" + struct.pack("<IIHHqI", 28, 0x1A2B3C4D, 1, 0, -1, 28)]
    blocks.append(struct.pack("<IIHHIHHBxxxHHI", 1, 32, ETHERNET, 0, 65535, 9, 1, 9, 0, 0, 32))
    for one in frames:
        data = one.data + bytes(-len(one.data) % 4)
        size = 32 + len(data)
        when = (one.time >> 32, one.time & 0xFFFFFFFF)
        blocks.append(struct.pack("<IIIIIII", 6, size, 0, *when, len(one.data), len(one.data)) + data)
        blocks[-1] += struct.pack("<I", size)
    yield b"".join(blocks)
    yield b"".join(blocks[:2])


def commanded_file(data: bytes) -> None:
    """The first byte chooses the command."""
    command(data[0] if data else 0, data[1:])


def commanded_file_seeds() -> Iterator[bytes]:
    for number, seed in enumerate(any_file_seeds()):
        yield bytes([number]) + seed
    for which in range(len(COMMANDS)):
        yield bytes([which]) + pcap(list(first_frames("ipv6-rxe", 30)))


def commanded_conversation(data: bytes) -> None:
    """The first byte chooses the command, the rest is a program of :mod:`fuzz.conversations`."""
    frames, _ = conversations.conversation(data[1:])
    command(data[0] if data else 0, pcap(frames))


def commanded_conversation_seeds() -> Iterator[bytes]:
    for number, seed in enumerate(conversations.seeds()):
        yield bytes([number % len(COMMANDS)]) + seed


COMMAND_TARGETS = {
    "any-file": Target(any_file, any_file_seeds),
    "commanded-file": Target(commanded_file, commanded_file_seeds, 1 << 14),
    "commanded-conversation": Target(commanded_conversation, commanded_conversation_seeds, 512),
}
