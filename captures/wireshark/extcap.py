"""NFS over RDMA as an interface of Wireshark's, which runs this program to capture: the extcap protocol.

https://www.wireshark.org/docs/man-pages/extcap.html.  Wireshark asks for the interfaces, their link type and their
options, and then for packets, in a named pipe.

What TCP carries is fed as ONC RPC over TCP, from a replayed capture or a watched device, to a reader that
waits for packets.
"""

from __future__ import annotations

import os
import select
import shlex
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import BinaryIO

from rdmascope.dissect.audit.auditor import Auditor
from rdmascope.dissect.layers.oncrpc_codes import LAST_FRAGMENT
from rdmascope.dissect.named_tuple import NamedTuple
from rdmascope.dissect.onc.rpc_header import NFS
from rdmascope.dissect.rpcrdma.analyzer import NFS_RDMA_PORT, Options
from rdmascope.dissect.rpcrdma.rpc_table import RpcTable
from rdmascope.dissect.rpcrdma.rpcs import Reassembled, Rpc
from rdmascope.dissect.transport.connection import Connection

from ..errors import CaptureError, system_errors
from ..live import CaptureSettings, open_live
from ..live.device import EVERY, RDMA_DEVICES
from ..live.session import Ending, LiveSession, bounded
from ..session.session import Session
from ..tables.condition import Condition
from ..write.export import (
    LINKTYPE_RAW,
    FindingNotes,
    TcpPackets,
    Written,
    message_comments,
    messages_of,
    ranges,
    stream_pair,
)
from ..write.pcapng_writer import PcapngWriter

MAX_CONNECTIONS = 1 << 14
"""Whose TCP sequence numbers are remembered; the one that was silent longest is finished."""


class _DueMessage(NamedTuple):
    """A message that is to be written."""

    time: int
    sender: int
    connection: Connection
    nfs: bool
    message: Reassembled
    comments: list[str]
    rpc: int


class TcpFollower:
    """Give it RPCs as they end, then ``write``; ``close`` ends the TCP connections, not the file."""

    def __init__(self, file: BinaryIO, notes: FindingNotes, name: str = "") -> None:
        """``name``: of the interface."""
        self._file = file
        self._writer = PcapngWriter(file, LINKTYPE_RAW, name=name, application="rdmascope")
        self._notes = notes
        self._waiting: list[_DueMessage] = []
        self._streams: dict[int, TcpPackets] = {}
        self._last_time = 0
        self.packets = 0
        file.flush()

    def add(self, rpcs: Iterable[Rpc]) -> None:
        """Take the messages of RPCs that still hold their bytes."""
        for rpc in rpcs:
            nfs = rpc.program == NFS or rpc.connection.service_port == NFS_RDMA_PORT
            for is_call, sender, time, message in messages_of(rpc):
                if message is None:
                    continue
                comments = message_comments(rpc, is_call, message, ranges(message.length))
                self._waiting.append(_DueMessage(time, sender, rpc.connection, nfs, message, comments, rpc.number))

    def write(self) -> None:
        """Write what waits, in the order of time.  Raises OSError where the reader went away."""
        if not self._waiting:
            return
        waiting, self._waiting = sorted(self._waiting, key=lambda due: due.time), []
        for due in waiting:
            comments = due.comments
            comments[0] += self._notes.of_rpc(due.rpc)
            stream = self._stream(due)
            gaps = [(4 + low, 4 + high) for low, high in due.message.gaps]
            packets = stream.message(due.sender, _reader(due.message), 4 + due.message.length, gaps, comments)
            self._take(due.time, packets)
        self._file.flush()

    def close(self) -> None:
        """Write what waits, and the end of each connection."""
        self.write()
        for stream in self._streams.values():
            self._take(self._last_time, stream.finish())
        self._streams.clear()
        self._file.flush()

    def _stream(self, message: _DueMessage) -> TcpPackets:
        number = message.connection.number
        stream = self._streams.pop(number, None)
        if stream is None:
            if len(self._streams) >= MAX_CONNECTIONS:
                self._take(message.time, self._streams.pop(next(iter(self._streams))).finish())
            stream = TcpPackets(stream_pair(message.connection, message.nfs, self._notes.of_connection(number)))
            self._take(min(message.connection.first_time, message.time), stream.handshake())
        self._streams[number] = stream
        return stream

    def _take(self, time: int, packets: Written) -> None:
        self._last_time = max(self._last_time, time)
        for packet, length, comment in packets:
            self._writer.write(time, packet, length, comment)
            self.packets += 1


def _reader(message: Reassembled) -> Callable[[int, int], bytes]:
    """Reads bytes [start, end) of a message behind its record mark; zeros in place of unknown ones."""

    def read(start: int, end: int) -> bytes:
        data = bytearray(end - start)
        mark = LAST_FRAGMENT | message.length
        for at, piece in ((0, mark.to_bytes(4, "big")), *((4 + at, piece) for at, piece in message.pieces)):
            low, high = max(start, at), min(end, at + len(piece))
            if low < high:
                data[low - start : high - start] = piece[low - at : high - at]
        return bytes(data)

    return read


CLOSED = "closed"
"""Why a capture ended whose reader went away."""


def replay(
    paths: Sequence[str],
    options: Options,
    file: BinaryIO,
    condition: Condition | None = None,
    stopped: Callable[[], object] = bool,
) -> None:
    """Write the RPCs of captures, batch by batch, until ``stopped``.

    Raises CaptureError; a reader that goes away just ends it.
    """
    notes = FindingNotes()
    auditor = Auditor(examples=0, on_finding=lambda finding, _: notes.add(finding))
    session = Session(paths, options)
    session.analyzer.listener = auditor.listener
    with suppress(BrokenPipeError):
        follower = TcpFollower(file, notes, session.path)
        for table in session.tables(auditor.evict):
            follower.add(table if condition is None else condition.selected(table, session))
            follower.write()
            del table
            if stopped():
                return
            auditor.forget(session.analyzer.last_time or 0)
        follower.close()
    session.check()


def feed(
    device: str,
    settings: CaptureSettings,
    options: Options,
    file: BinaryIO,
    condition: Condition | None = None,
    ending: Ending | None = None,
    say: Callable[[str], None] | None = None,
) -> LiveSession:
    """Write RPCs of a device as they end, until ``ending`` or the reader ends it.

    ``say`` is given what a user may not expect.  Raises CaptureError where the device cannot be captured on; what ends
    the capture later is ``damage`` of the session.
    """
    ending = ending or Ending()
    notes = FindingNotes()
    with closing(open_live(device, settings)) as live:
        if live.device.note and say is not None:
            say(live.device.note)
        gone = select.poll()
        gone.register(file.fileno(), 0)  # The reader of a pipe: its end is an error.
        context = Session(device)  # What a condition asks of a session.

        def add(table: RpcTable) -> None:
            follower.add(table if condition is None else condition.selected(table, context))

        def write() -> None:
            with suppress(BrokenPipeError):
                follower.write()
                if not gone.poll(0):
                    return
            ending.because(CLOSED)

        session = LiveSession(live, bounded(options), ending=ending, on_rpcs=add, on_finding=notes.add, on_turn=write)
        context.analyzer = session.analyzer
        follower = TcpFollower(file, notes, str(live.device))
        session.run(None)
        with suppress(BrokenPipeError):
            follower.close()
    return session


PREFIX = "nfs-rdma-"
"""Prefix of the names of interfaces."""
FILE = "nfs-rdma-file"
"""Replays a capture."""
LAUNCHER = "rdmascope"
"""Name of the program in Wireshark's folder."""
LINKTYPE = 101
"""Packets begin with an IP header."""
HELP = "https://www.wireshark.org/docs/man-pages/extcap.html"


class ExtcapInterface(NamedTuple):
    """An interface that Wireshark lists."""

    value: str
    device: str
    """What is captured on; '' for a file, or where an option says it."""
    display: str


def interfaces(devices: Path = RDMA_DEVICES) -> list[ExtcapInterface]:
    """One for each RDMA device, one for network interfaces, and one for files."""
    names = [path.name for path in sorted(devices.glob("*"))]
    return [
        *(ExtcapInterface(PREFIX + name, name, f"NFS over RDMA: {name}") for name in names),
        ExtcapInterface(PREFIX + "interface", "", "NFS over RDMA: a network interface"),
        ExtcapInterface(FILE, "", "NFS over RDMA: a capture file"),
    ]


def interface_lines(version: str) -> Iterator[str]:
    """What ``--extcap-interfaces`` asks for."""
    yield f"extcap {{version={version}}}{{display=rdmascope}}{{help={HELP}}}"
    for choice in interfaces():
        yield f"interface {{value={choice.value}}}{{display={escaped(choice.display)}}}"


def link_type_lines() -> Iterator[str]:
    """What ``--extcap-dlts`` asks for."""
    yield f"dlt {{number={LINKTYPE}}}{{name=RAW}}{{display=Raw IP}}"


def option_lines(name: str) -> Iterator[str]:
    """What ``--extcap-config`` asks for: the options of an interface, as Wireshark's dialogue shows them."""
    number = 0

    def option(call: str, display: str, type: str, tooltip: str, *more: str) -> str:
        nonlocal number
        words = f"arg {{number={number}}}{{call={call}}}{{display={display}}}{{type={type}}}{{tooltip={tooltip}}}"
        number += 1
        return words + "".join(f"{{{word}}}" for word in more)

    if name == FILE:
        tooltip = "A capture of RDMA traffic"
        yield option("--file", "Capture file", "fileselect", tooltip, "mustexist=true", "required=true")
    elif name == PREFIX + "interface":
        yield option("--device", "Network interface", "selector", "Where RDMA traffic passes", "required=true")
        for interface in (EVERY, *(known for _, known in socket.if_nameindex())):
            default = "true" if interface == EVERY else "false"
            yield f"value {{arg=0}}{{value={interface}}}{{display={escaped(interface)}}}{{default={default}}}"
    tooltip = "Service port of NFS over RDMA, beside 20049"
    yield option("--port", "Service port", "integer", tooltip, "range=1,65535", "default=20049")
    tooltip = "Only RPCs that match: SQL over the columns of the table rpcs, such as latency > 10ms"
    yield option("--where", "Filter", "string", tooltip, "placeholder=latency > 10ms")


def escaped(text: str) -> str:
    """Without what would end a value."""
    return text.replace("{", "(").replace("}", ")")


def device_of(interface: str, chosen: str | None) -> str:
    """The device that an interface of Wireshark's captures on.  Raises CaptureError for one that is not listed."""
    if interface == PREFIX + "interface":
        return chosen or EVERY
    for choice in interfaces():
        if choice.value == interface and choice.device:
            return choice.device
    known = ", ".join(choice.value for choice in interfaces())
    raise CaptureError(f"{interface}: no such interface; there are {known}")


def open_pipe(path: str) -> BinaryIO:
    """The pipe that Wireshark reads; no file that is there is overwritten.  Raises CaptureError."""
    with system_errors(path):
        if not stat.S_ISFIFO(os.stat(path).st_mode):
            raise CaptureError(f"{path}: --fifo takes a named pipe that Wireshark made, not a file")
        return open(path, "wb")


def personal_folder() -> Path:
    """Where Wireshark looks for a user's own extcap programs: as tshark says, or where the present version looks."""
    tshark = shutil.which("tshark")
    folders: dict[str, str] = {}
    if tshark is not None:
        done = subprocess.run([tshark, "-G", "folders"], capture_output=True, text=True, errors="replace", check=False)
        for line in done.stdout.splitlines():
            name, _, path = line.partition(":")
            folders[name.strip().lower()] = path.strip()
    if own := folders.get("personal extcap path"):  # Since 4.2.
        return Path(own)
    if own := folders.get("personal configuration"):
        return Path(own, "extcap")
    return Path.home() / ".local" / "lib" / "wireshark" / "extcap"


def install(folder: Path) -> Path:
    """Write the launcher that Wireshark runs; gives its path.  Raises CaptureError and OSError."""
    path = folder / LAUNCHER
    text = f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m rdmascope extcap "$@"\n'
    folder.mkdir(parents=True, exist_ok=True)
    if path.is_symlink() or (path.exists() and "rdmascope extcap" not in path.read_text(errors="replace")):
        raise CaptureError(f"{path}: is there, and is another program")
    path.write_text(text)
    path.chmod(0o755)
    return path
