"""Wireshark's opinion of a capture: finds tshark, gives it a file that it can read, and takes what it says.

pyshark finds tshark, tells its version and dissects single frames in full.  What is asked of every frame comes
as lines of fields from tshark itself: as packet trees (PDML), which is how pyshark reads it, a capture takes tens
of times longer.
"""

from __future__ import annotations

import os
import struct
import subprocess
import tempfile
from collections.abc import Generator, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import BinaryIO, Self

from rdmascope.dissect.frames import FrameBatch
from rdmascope.dissect.link.numbers import ERF, INFINIBAND

from ..errors import CaptureError
from ..extras import need
from ..read.open import open_capture
from ..write.output import named_spool
from ..write.writer import PcapngWriter

OLDEST = "4.0.0"
"""What is known of Wireshark's weak spots was found with this version and later ones."""

PREFERENCES = {"iwarp_ddp_rdmap.reassemble_iwarp_rdma_send": "FALSE"}
"""With it, Sends of several segments are put together wrongly."""

TWO_PASSES = "-2"
"""In one pass, tshark shows some messages twice."""

ERF_INFINIBAND, ERF_VARYING = 21, 4
"""ERF record type, and the flag of records that differ in length."""

UNKNOWN_FIELDS = b"fields aren't valid"

NATIVE = ("pcap", "pcapng", "erf")
"""Formats that tshark reads as we do, frame for frame."""


@dataclass(frozen=True, slots=True)
class Tshark:
    """The program, as it was found."""

    path: str
    version: str

    def __str__(self) -> str:
        return f"tshark {self.version}"


def find_tshark() -> Tshark:
    """Raises CaptureError where it is missing, does not run, or is too old."""
    need("pyshark")
    from packaging.version import Version
    from pyshark.tshark.tshark import (
        TSharkNotFoundException,
        TSharkVersionException,
        get_process_path,
        get_tshark_version,
    )

    try:
        path = get_process_path()
        version = get_tshark_version(path)
    except TSharkNotFoundException:
        raise CaptureError("tshark is not installed: a second opinion needs Wireshark's command line") from None
    except (TSharkVersionException, IndexError, UnicodeDecodeError):
        raise CaptureError(f"{path}: does not tell its version as tshark would") from None
    except subprocess.CalledProcessError as error:
        raise CaptureError(f"{path}: does not run (exit status {error.returncode})") from None
    except OSError as error:
        raise CaptureError(f"{error.filename or 'tshark'}: {error.strerror}") from None
    if version < Version(OLDEST):
        raise CaptureError(f"{path} is tshark {version}; {OLDEST} or later is needed")
    return Tshark(path, str(version))


class TsharkInput:
    """A file of the frames that we read, for tshark; a context manager.

    That is the capture itself where tshark reads it as we do, else a temporary pcapng that ``add`` fills.

    Attributes:
        path: what tshark is to read.
        copied: frames in the temporary file.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        """``paths`` of one capture, as for ``open_captures``.  Raises CaptureError where it cannot be opened."""
        self.path = paths[0]
        self.copied = 0
        self._copy: BinaryIO | None = None
        self._ending = ExitStack()
        self._writer: PcapngWriter | None = None
        self._link_type = -1
        if len(paths) > 1 or not _plain(paths[0]):
            self.path, self._copy = self._ending.enter_context(named_spool("frames.pcapng"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.close()

    def add(self, batch: FrameBatch) -> None:
        """The next frames; a link type other than the last one begins a new section.

        LINKTYPE_INFINIBAND, which tshark does not read, becomes LINKTYPE_ERF.
        """
        if self._copy is None:
            return
        data, names = batch.data, ("time", "offset", "captured", "original", "link_type")
        for time, offset, captured, original, link_type in zip(
            *(batch.rows[name].tolist() for name in names), strict=True
        ):
            frame = data[offset : offset + captured].tobytes()
            if link_type == INFINIBAND:
                head = _erf_header(time, captured, original)
                link_type, frame, original = ERF, head + frame, len(head) + original
            if self._writer is None or link_type != self._link_type:
                self._writer, self._link_type = PcapngWriter(self._copy, link_type), link_type
            self._writer.write(max(0, time), frame, original)
        self.copied += len(batch)

    def finish(self) -> None:
        """All frames were added."""
        if self._copy is not None:
            self._copy.flush()


def _plain(path: str) -> bool:
    """Whether tshark reads the file as it is."""
    if not os.path.isfile(path):
        return False
    with open_capture(path) as capture:
        readable = not capture.compression and capture.format in NATIVE
        return readable and INFINIBAND not in capture.link_types


def _erf_header(time: int, captured: int, original: int) -> bytes:
    """What makes a native InfiniBand packet an ERF record, which tshark does read (ERF types, 16 bytes)."""
    stamp = (max(0, time) << 32) // 1_000_000_000
    return struct.pack("<Q", stamp) + struct.pack(
        ">BBHHH", ERF_INFINIBAND, ERF_VARYING, 16 + captured, 0, min(original, 0xFFFF)
    )


class UnknownFields(CaptureError):
    """This version of tshark does not know some of the fields."""

    def __init__(self, message: str, names: frozenset[str]) -> None:
        super().__init__(message)
        self.names = names


def field_lines(
    tshark: Tshark, path: str, fields: Sequence[str], display_filter: str, damaged: bool = False
) -> Generator[list[str], None, None]:
    """For every frame that fits the filter the values of ``fields``, those of one field joined by commas.

    Raises CaptureError where tshark fails; not where it does at a place that is known to be damaged.  UnknownFields,
    before any line, where it does not know some fields.
    """
    command = [tshark.path, "-n", TWO_PASSES, "-r", path, "-Y", display_filter, "-T", "fields"]
    for name, value in PREFERENCES.items():
        command += ["-o", f"{name}:{value}"]
    for field in fields:
        command += ["-e", field]
    with tempfile.TemporaryFile() as complaints:
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=complaints, errors="replace"
            )
        except OSError as error:
            raise CaptureError(f"{tshark.path}: {error.strerror}") from None
        with process:
            assert process.stdout is not None
            try:
                for line in process.stdout:
                    yield line.rstrip("\n").split("\t")
            except GeneratorExit:
                process.kill()
                raise
        if process.returncode and not damaged:
            complaints.seek(0)
            text = complaints.read()
            message = f"{tshark} failed: {_complaint(text, process.returncode)}"
            if UNKNOWN_FIELDS in text:
                named = text[text.index(UNKNOWN_FIELDS) :].decode(errors="replace").split()
                raise UnknownFields(message, frozenset(named) & frozenset(fields))
            raise CaptureError(message)


def _complaint(text: bytes, status: int) -> str:
    """The line of standard error that says most."""
    lines = [line.strip() for line in text.decode(errors="replace").splitlines() if line.strip()]
    lines = [line.removeprefix("tshark: ") for line in lines if not line.startswith("Running as user")]
    return lines[0] if lines else f"exit status {status}"


def in_words(tshark: Tshark, path: str, frames: Iterable[int], fields: Sequence[str]) -> dict[int, list[str]]:
    """What Wireshark shows for ``fields`` of the given frames, and where it calls one malformed; by frame."""
    import asyncio
    import logging

    import pyshark

    asked = set(frames)
    listed = ", ".join(map(str, sorted(asked)))
    found: dict[int, list[str]] = {}
    if not listed:
        return found
    wanted = set(fields)
    loop = asyncio.new_event_loop()  # The thread may have none any more.
    log = logging.getLogger("asyncio")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with pyshark.FileCapture(
            path,
            keep_packets=False,
            display_filter=f"frame.number in {{{listed}}}",
            tshark_path=tshark.path,
            custom_parameters=[TWO_PASSES],
            override_prefs=PREFERENCES,
            eventloop=loop,
        ) as capture:
            for packet in capture:
                shown = found.setdefault(int(packet.number), [])
                for layer in packet.layers:
                    if layer.layer_name.startswith("_ws.malformed"):
                        shown.append("Malformed Packet")
                    for field in (one for name in layer.field_names for one in layer.get_field(name).all_fields):
                        if field.name in wanted and field.showname:
                            shown.append(field.showname)
    except Exception as error:  # pyshark has no common base class of its own
        # It kills tshark in the end, which may have ended just then: asyncio loses the exit status, with a warning,
        # and pyshark takes that for a crash.
        if found.keys() != asked:
            raise CaptureError(f"{tshark} through pyshark: {error}") from None
    finally:
        log.setLevel(level)
        loop.close()
    return found
