"""A capture that is replayed, or a device that is watched, as ONC RPC over TCP for a reader that waits for packets."""

from __future__ import annotations

import select
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from typing import BinaryIO

from rdmascope.dissect.audit.auditor import Auditor
from rdmascope.dissect.layers.oncrpc_codes import LAST_FRAGMENT
from rdmascope.dissect.named_tuple import NamedTuple
from rdmascope.dissect.onc.rpc_header import NFS
from rdmascope.dissect.rpcrdma.analyzer import NFS_RDMA_PORT, Options
from rdmascope.dissect.rpcrdma.rpc_table import RpcTable
from rdmascope.dissect.rpcrdma.rpcs import Reassembled, Rpc
from rdmascope.dissect.transport.connection import Connection

from ..live import CaptureSettings, open_live
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
