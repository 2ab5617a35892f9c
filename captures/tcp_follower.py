"""RPCs as ONC RPC over TCP while they happen: what ``tcp_export`` writes of a whole capture, message by message.

A call and its reply are written when both were seen, so that what RDMA carried of them is complete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import BinaryIO, NamedTuple

from rdmascope.dissect.onc.programs import NFS
from rdmascope.dissect.rpcrdma.analyzer import NFS_RDMA_PORT
from rdmascope.dissect.rpcrdma.rpcs import Reassembled, Rpc
from rdmascope.dissect.transport.connection import Connection

from .export import LAST_FRAGMENT, LINKTYPE_RAW, TcpPackets, Written, ranges
from .formats.writer import PcapngWriter
from .packet_comments import FindingNotes, message_comments
from .tcp_export import messages_of, stream_pair

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
        waiting, self._waiting = sorted(self._waiting, key=lambda one: one.time), []
        for one in waiting:
            comments = one.comments
            comments[0] += self._notes.of_rpc(one.rpc)
            stream = self._stream(one)
            gaps = [(4 + low, 4 + high) for low, high in one.message.gaps]
            packets = stream.message(one.sender, _reader(one.message), 4 + one.message.length, gaps, comments)
            self._take(one.time, packets)
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
