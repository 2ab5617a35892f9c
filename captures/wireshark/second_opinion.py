"""A capture beside Wireshark's reading of it: finds tshark, asks it for what it knows, and compares field by field.

pyshark finds tshark, tells its version and dissects single frames in full. Fields of every frame come as lines from
tshark itself: as packet trees (PDML), which pyshark reads, a capture would take tens of times longer.
"""

from __future__ import annotations

import os
import re
import struct
import subprocess
import tempfile
from collections import defaultdict, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from html import unescape
from typing import BinaryIO

from rdmascope.dissect.frames import FrameBatch
from rdmascope.dissect.link.locate import locate
from rdmascope.dissect.link.numbers import ERF, INFINIBAND
from rdmascope.dissect.link.packets import decode
from rdmascope.dissect.named_tuple import NamedTuple
from rdmascope.dissect.onc.rpc_header import NFS, GssCredential
from rdmascope.dissect.onc.shapes.messages import MessageTree, call_tree, reply_tree
from rdmascope.dissect.onc.shapes.types import SparseBytes
from rdmascope.dissect.rpcrdma.rpcs import DUPLICATE_REPLY, Rpc
from rdmascope.dissect.transport.connection import Connection
from rdmascope.dissect.verify.frame_fields import ASKED, DISPLAY_FILTER, FRAME, FrameFields, Values, tshark_fields
from rdmascope.dissect.verify.second_opinion import (
    FIELD,
    PROTOCOLS,
    Comparison,
    ComparisonTally,
    Difference,
    FieldDifference,
    OtherMessages,
    Ours,
    ShownField,
    ShownMessage,
    compared_fields,
)

from ..errors import CaptureError, Closing, need, system_errors
from ..read.open import open_capture
from ..session.session import Session
from ..write.export import TcpExport, messages_of, stream_pair
from ..write.output import named_spool
from ..write.pcapng_writer import PcapngWriter

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


class TsharkInput(Closing):
    """A file of the frames that we read, for tshark; a context manager.

    That is the capture itself where tshark reads it as we do, else a temporary pcapng that ``add`` fills.

    Attributes:
        path: what tshark is to read.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        """``paths`` of one capture, as for ``open_captures``.  Raises CaptureError where it cannot be opened."""
        self.path = paths[0]
        self._copy: BinaryIO | None = None
        self._ending = ExitStack()
        self._writer: PcapngWriter | None = None
        self._link_type = -1
        if len(paths) > 1 or not _plain(paths[0]):
            self.path, self._copy = self._ending.enter_context(named_spool("frames.pcapng"))

    def close(self) -> None:
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
    return struct.pack("<Q", (max(0, time) << 32) // 1_000_000_000) + struct.pack(
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
        with system_errors(tshark.path):
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=complaints, errors="replace"
            )
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
    words: dict[int, list[str]] = {}
    if not listed:
        return words
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
                shown = words.setdefault(int(packet.number), [])
                for layer in packet.layers:
                    if layer.layer_name.startswith("_ws.malformed"):
                        shown.append("Malformed Packet")
                    for field in (field for name in layer.field_names for field in layer.get_field(name).all_fields):
                        if field.name in wanted and field.showname:
                            shown.append(field.showname)
    except Exception as error:  # pyshark has no common base class of its own
        # It kills tshark in the end, which may have ended just then: asyncio loses the exit status, with a warning,
        # and pyshark takes that for a crash.
        if words.keys() != asked:
            raise CaptureError(f"{tshark} through pyshark: {error}") from None
    finally:
        log.setLevel(level)
        loop.close()
    return words


_FIELD = re.compile(rb'\s*<field name="([^"]*)"')
_ATTRIBUTE = re.compile(rb' (hide|size|pos|value|unmaskedvalue|show)="([^"]*)"')
_MALFORMED = b"_ws.malformed"


def shown_messages(tshark: Tshark, path: str) -> Generator[ShownMessage, None, None]:
    """The RPC messages in a capture of ONC RPC over TCP, a message a packet at most, in its order.

    Raises CaptureError where tshark fails.
    """
    command = [tshark.path, "-n", TWO_PASSES, "-r", path, "-Y", "rpc", "-T", "pdml", "-J", " ".join(PROTOCOLS)]
    with system_errors(tshark.path):
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    with process:
        assert process.stdout is not None
        try:
            yield from _messages(process.stdout)
        except GeneratorExit:
            process.kill()
            raise
    if process.returncode:
        raise CaptureError(f"{tshark} failed with exit status {process.returncode}")


def _messages(lines: Iterable[bytes]) -> Generator[ShownMessage, None, None]:
    """Each field is one line of PDML."""
    fields: list[dict[bytes, bytes]] = []
    malformed = False
    for line in lines:
        field = _FIELD.match(line)
        if field is not None:
            given = dict(_ATTRIBUTE.findall(line))
            if given.get(b"hide") != b"yes":
                given[b"name"] = field[1]
                fields.append(given)
        elif line.startswith(b"</packet>"):
            message = _message(fields, malformed)
            if message is not None:
                yield message
            fields, malformed = [], False
        if _MALFORMED in line:
            malformed = True


def _message(given: list[dict[bytes, bytes]], malformed: bool) -> ShownMessage | None:
    xid = next((field for field in given if field[b"name"] == b"rpc.xid"), None)
    kind = next((field for field in given if field[b"name"] == b"rpc.msgtyp"), None)
    if xid is None or kind is None:
        return None
    first = int(xid.get(b"pos", b"0"))
    fields = tuple(
        ShownField(
            field[b"name"].decode(),
            int(field.get(b"pos", b"0")) - first,
            bytes.fromhex((field.get(b"unmaskedvalue") or field.get(b"value") or b"").decode()),
            unescape(field.get(b"show", b"").decode()) if field[b"name"].endswith(b"hash") else "",
        )
        for field in given
        if b"value" in field and field[b"name"] not in (b"num", b"len", b"caplen", b"timestamp", b"filtered")
    )
    return ShownMessage(int(xid[b"value"], 16), kind.get(b"show") == b"1", fields, malformed)


MAX_NODES = 1 << 20
"""Values of a message; Wireshark lists all of them."""
WIDE = 8
"""Bytes that are one number; longer values are given as words."""


class _Exported(NamedTuple):
    """One message, and what its results are decoded by."""

    frame: int
    xid: int
    reply: bool
    program: int | None
    version: int | None
    procedure: int | None
    gss: GssCredential | None


class MessageFields(Closing):
    """Fed the RPCs of a capture, then compares; a context manager. Messages with missing bytes are left out.

    Attributes:
        tally: how many fields were compared.
        names: Wireshark's names of those that were.
    """

    def __init__(self) -> None:
        self.tally = ComparisonTally()
        self.names: set[str] = set()
        self._export = TcpExport()
        self._messages: list[_Exported] = []
        self._nfs: set[int] = set()
        self._connections: dict[int, Connection] = {}

    def close(self) -> None:
        self._export.close()

    def add(self, rpc: Rpc) -> None:
        """An RPC that ended, and still holds its bytes."""
        if rpc.call is None or rpc.state == DUPLICATE_REPLY:
            return
        if rpc.program == NFS:
            self._nfs.add(rpc.connection.number)
        for is_call, sender, time, message in messages_of(rpc):
            if message is None or not message.complete:
                return  # Without the call, Wireshark does not know what a reply answers.
            self._connections[rpc.connection.number] = rpc.connection
            self._export.add(rpc.connection.number, sender, time, message.length, message.pieces)
            frame = rpc.call_frame if is_call else rpc.reply_frame
            self._messages.append(
                _Exported(frame, rpc.xid, not is_call, rpc.program, rpc.version, rpc.procedure, rpc.gss)
            )

    def compare(self, tshark: Tshark) -> Iterator[Difference]:
        """Every difference, in the order of time."""
        if not self._messages:
            return
        with named_spool("messages.pcapng") as (path, file):
            pairs = [
                stream_pair(connection, number in self._nfs) for number, connection in sorted(self._connections.items())
            ]
            self._export.write(file, pairs)
            file.flush()
            waiting: dict[tuple[int, bool], deque[int]] = defaultdict(deque)
            for index in self._export.order():
                exported = self._messages[index]
                waiting[exported.xid, exported.reply].append(index)
            with closing(shown_messages(tshark, path)) as shown:
                for message in shown:
                    same = waiting.get((message.xid, message.reply))
                    if same:
                        yield from self._compared(same.popleft(), message)
        for index in sorted(index for same in waiting.values() for index in same):
            exported = self._messages[index]
            self.tally.compared += 1
            self.tally.unexplained += 1
            yield Difference(FIELD, exported.frame, "rpc", (exported.xid,), None)

    def _compared(self, index: int, shown: ShownMessage) -> Iterator[Difference]:
        message = self._messages[index]
        compared = compared_fields(_tree(message, self._export.message(index)), shown)
        self.names |= compared.names
        self.tally.compared += compared.compared
        self.tally.equal += compared.compared - len(compared.differences)
        for difference in compared.differences:
            explained = bool(difference.reason)
            self.tally.explained += explained
            self.tally.unexplained += not explained
            yield _difference(message.frame, difference)


def _tree(exported: _Exported, data: bytes) -> MessageTree:
    stream = SparseBytes([(0, data)], len(data))
    if not exported.reply:
        return call_tree(stream, MAX_NODES)
    return reply_tree(stream, exported.program, exported.version, exported.procedure, exported.gss, MAX_NODES)


def _difference(frame: int, difference: FieldDifference) -> Difference:
    right = "rdmascope" if difference.reason else "undecided"
    ours, theirs = _values(difference.ours), _values(difference.theirs)
    return Difference(FIELD, frame, difference.name, ours, theirs, right, difference.reason, difference.reference)


def _values(data: bytes | None) -> Values | None:
    if data is None:
        return None
    if len(data) <= WIDE:
        return (int.from_bytes(data),)
    return tuple(int.from_bytes(data[at : at + 4]) for at in range(0, len(data), 4))


OF_FRAMES = (FRAME, "rpc.reqframe", "rpc.repframe")
"""Fields that are numbers of frames."""


def compare(
    session: Session,
    readable: TsharkInput,
    tshark: Tshark,
    on_difference: Callable[[Difference], None],
    fields: bool = True,
) -> Comparison:
    """Read the capture, and hold it against what tshark says; ``on_difference`` is given each difference.

    ``fields``: also every field of the calls and replies, which takes their contents (``Options.contents``).
    ``readable`` is made of the session's paths, and becomes what tshark reads.  Fields that this tshark does not know
    are left out, and are ``unknown`` of the result.  Raises CaptureError where nothing can be compared.
    """
    with MessageFields() as messages:
        ours = _ours(session, readable, messages if fields else None)
        comparison = _frame_by_frame(ours, session, readable, tshark, on_difference)
        if fields:
            for difference in messages.compare(tshark):
                on_difference(difference)
            comparison.tallies[FIELD] = messages.tally
            comparison.names = frozenset(messages.names)
        return comparison


def _frame_by_frame(
    ours: Ours,
    session: Session,
    readable: TsharkInput,
    tshark: Tshark,
    on_difference: Callable[[Difference], None],
) -> Comparison:
    def compared(unknown: frozenset[str]) -> Comparison:
        comparison = Comparison(ours, unknown)
        known = [name for name in ASKED if name not in unknown]
        damaged = session.damage is not None
        with closing(field_lines(tshark, readable.path, known, DISPLAY_FILTER, damaged)) as lines:
            before = session.frames_before
            for difference in comparison.run(_sighting(known, line, before) for line in lines):
                on_difference(difference)
        return comparison

    try:
        return compared(frozenset())
    except UnknownFields as lacking:
        if FRAME in lacking.names:
            raise
        return compared(lacking.names)


def _ours(session: Session, readable: TsharkInput, messages: MessageFields | None) -> Ours:
    """Our reading of the capture; on the way, tshark's copy of it is written where one is needed."""

    def add(rpc: Rpc) -> None:
        ours.add_rpc(rpc)
        if messages is not None:
            messages.add(rpc)

    ours = Ours()
    analyzer = session.analyzer
    analyzer.listener = lambda conversation: OtherMessages(ours)
    analyzer.watch_fpdus(ours.add_fpdus)
    for batch in session.batches():
        readable.add(batch)
        for rpc in analyzer.feed(batch):
            add(rpc)
        ours.add_packets(batch, decode(batch, locate(batch, analyzer.addresses)))
    for rpc in analyzer.finish():
        add(rpc)
    if analyzer.iwarp is not None:
        ours.streams.known |= dict.fromkeys(analyzer.iwarp.connections.values())
    readable.finish()
    return ours


def _sighting(names: Sequence[str], line: Sequence[str], before: int) -> FrameFields:
    """What a line says, with frames numbered behind so many."""
    try:
        sighting = tshark_fields(line, names)
        if not before:
            return sighting
        moved = {name: tuple(value + before for value in values) if name in OF_FRAMES else values
                 for name, values in sighting.fields.items()}  # fmt: skip
        return sighting._replace(frame=sighting.frame + before, fields=moved)
    except ValueError as error:
        raise CaptureError(f"what tshark printed is not what was asked for: {error}") from None
