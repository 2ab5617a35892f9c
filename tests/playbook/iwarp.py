"""The iWARP wire: the same verbs as on a Reliable Connection, as FPDUs in two TCP streams.

wire = IwarpWire(mss=1460, seed=7)
conn = wire.connect(revision=2, markers=(True, False), crc=True, cutting="random")
rpc = call(conn, nfs3.read(0, 8192), writes=[conn.register(8192)])
reply(rpc, nfs3.read_reply(data))
capture = IwarpCapture(wire, faults.drop(wire.sent(), [9]))
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from . import cm, mpa, tcp as t
from .capture import Capture, Ranges, merge, subtract
from .tcp import TcpSegment
from .wire import Connection, Endpoint, Operation, Place, Segment, Wire

READ_QUEUE, SEND_QUEUE, TERMINATE_QUEUE = mpa.READ_QUEUE, mpa.SEND_QUEUE, mpa.TERMINATE_QUEUE


class Extent(NamedTuple):
    """An FPDU in what its sender sent."""

    start: int
    end: int
    operation: int
    """0 for none (a ready-to-receive message, a Terminate)."""
    at: int
    """Offset of its payload in the operation's bytes."""
    length: int
    request: bool = False
    """A Read Request, which carries none of them."""


@dataclass(slots=True)
class TcpEndpoint(Endpoint):
    isn: int = 0
    """Initial sequence number."""
    markers: bool = False
    """It inserts them, as its peer asked."""
    sent: bytearray = field(default_factory=bytearray)
    """All it ever sent, from behind its SYN on."""
    emitted: int = 0
    """Bytes of that which went into segments."""
    operating: int = 0
    """Where in that full operation began."""
    extents: list[Extent] = field(default_factory=list)
    finished: bool = False
    """Its FIN was sent."""
    sequence: dict[int, int] = field(default_factory=dict)
    """Queue -> messages sent on it."""


class IwarpWire(Wire):
    """Everything that passes one point of the network; ``segments`` holds what was sent, in order."""

    def __init__(self, mss: int = 1460, seed: int = 0, start: int | None = None) -> None:
        super().__init__(mtu=mss, seed=seed)
        self.now = self.now if start is None else start
        self.segments: list[TcpSegment] = []
        self.sinks: dict[int, Segment] = {}
        """Operation -> the memory that the responses to a Read go to."""

    def connect(  # type: ignore[override]  # TCP has no queue pairs and no PSNs to choose
        self,
        client: str = "10.0.0.2",
        server: str = "10.0.0.1",
        port: int = 20049,
        *,
        cm: bool = True,
        revision: int = 1,
        markers: tuple[bool, bool] = (False, False),
        crc: bool = True,
        filler: bytes = bytes(4),
        ready: str = "",
        mss: int | None = None,
        mulpdu: int | None = None,
        cutting: str = "aligned",
        options: bool = True,
        client_port: int | None = None,
        client_isn: int | None = None,
        server_isn: int | None = None,
        client_private: bytes | None = None,
        server_private: bytes | None = None,
        acks: str = "message",
    ) -> IwarpConnection:
        """A new connection; with ``cm`` its TCP handshake and MPA frames are on the wire, else they were before.

        ``markers``: what client and server insert.  ``crc``: CRCs are in use, else ``filler`` stands in their place.
        ``ready``: 'F', 'W' or 'R', the ready-to-receive message of a peer-to-peer set-up (revision 2).  ``mulpdu``:
        bytes of a ULPDU at most.  ``cutting``: 'aligned' every FPDU begins a segment; 'merged' segments are filled,
        whatever the FPDUs; 'random' segments of any size.  ``acks``: 'packet' one for each segment, 'message' one
        for each burst, 'lazy' and 'none' only what goes with data.
        """
        draw = self.random.randrange
        isns = [draw(1 << 32) if isn is None else isn for isn in (client_isn, server_isn)]
        ports = draw(0xC000, 0x10000) if client_port is None else client_port, port
        ends = (
            TcpEndpoint(client, 0, 0, 0, port=ports[0], isn=isns[0], markers=markers[0]),
            TcpEndpoint(server, 0, 0, 0, port=ports[1], isn=isns[1], markers=markers[1]),
        )
        segment = mss or self.mtu
        connection = IwarpConnection(self, len(self.connections) + 1, ends, port, segment, acks)
        connection.crc, connection.filler, connection.cutting = crc, filler, cutting
        connection.options = options
        connection.mulpdu = mulpdu or segment - 10 - 4 * (segment // 512 + 1)
        connection.recorded = cm
        self.connections.append(connection)
        connection.negotiate(revision, ready, client_private, server_private)
        connection.recorded = True
        return connection

    def record(self, segment: TcpSegment) -> None:
        self.now += self.random.randrange(500, 20_000)
        self.segments.append(replace(segment, uid=len(self.segments) + 1, time=self.now))

    def sent(self) -> list[TcpSegment]:
        """All segments, with what was still waiting to fill one."""
        for connection in self.connections:
            assert isinstance(connection, IwarpConnection)
            connection.push()
        return self.segments


class IwarpConnection(Connection):
    """A TCP connection with MPA between endpoint 0, the client, and endpoint 1, the server: its verbs."""

    ends: tuple[TcpEndpoint, TcpEndpoint]
    wire: IwarpWire
    crc = True
    filler = bytes(4)
    cutting = "aligned"
    options = True
    mulpdu = 1400
    recorded = True
    sink: Segment | None = None
    """The memory that the responses to every Read go to; None: each has its own."""

    # Set-up and its end

    def negotiate(self, revision: int, ready: str, client_private: bytes | None, server_private: bytes | None) -> None:
        """SYN, SYN ACK, ACK; MPA Request, MPA Reply; the ready-to-receive message."""
        self._segment(0, "syn", t.SYN, options=t.mss_option(self.mtu))
        self._segment(1, "syn", t.SYN | t.ACK, options=t.mss_option(self.mtu))
        self._segment(0, "ack", t.ACK)
        default = cm.private_data() if self.port == 20049 else b""
        for sender, given in enumerate((client_private, server_private)):
            private = default if given is None else given
            if revision == 2:
                private = mpa.enhanced(16, 16, peer=bool(ready), ready=ready) + private
            peer = self.ends[1 - sender]
            frame = mpa.startup(
                bool(sender), private, markers=peer.markers, crc=self.crc, revision=revision, s=revision == 2
            )
            self._append(sender, frame)
            self.push()
        for end in self.ends:
            end.operating = len(end.sent)
        if ready == "F":
            self._fpdu(0, b"", Extent(0, 0, 0, 0, 0))
        elif ready == "W":
            self._fpdu(0, mpa.tagged(mpa.WRITE, 0, 0, True), Extent(0, 0, 0, 0, 0))
        elif ready == "R":
            request = mpa.untagged(mpa.READ_REQUEST, READ_QUEUE, self._next(0, READ_QUEUE), 0, True)
            self._fpdu(0, request + mpa.read_request(0, 0, 0, 0, 0), Extent(0, 0, 0, 0, 0))
            self._fpdu(1, mpa.tagged(mpa.READ_RESPONSE, 0, 0, True), Extent(0, 0, 0, 0, 0))

    def disconnect(self, initiator: int = 0) -> None:
        """FIN and ACK, both ways."""
        self.push()
        for sender in (initiator, 1 - initiator):
            self._segment(sender, "fin", t.FIN | t.ACK)
            self.ends[sender].finished = True
        self._segment(initiator, "ack", t.ACK)

    def reset(self, sender: int = 0) -> None:
        self.push()
        self._segment(sender, "rst", t.RST | t.ACK)

    def terminate(self, sender: int, layer: int, error_type: int, code: int, quoted: bytes = b"") -> None:
        """A Terminate message, which is the last of its sender."""
        header = mpa.untagged(mpa.TERMINATE, TERMINATE_QUEUE, self._next(sender, TERMINATE_QUEUE), 0, True)
        body = header + mpa.terminate(layer, error_type, code, quoted, len(quoted))
        self._fpdu(sender, body, Extent(0, 0, 0, 0, 0))
        self.push()

    # Verbs

    def send(
        self,
        sender: int,
        data: bytes,
        *,
        immediate: int | None = None,
        invalidate: int | None = None,
        solicited: bool = False,
        places: tuple[Place, ...] = (),
    ) -> Operation:
        assert immediate is None, "iWARP Sends have no immediate data"
        op = self._operation(sender, "send", data, places=places)
        opcode = mpa.SEND + (invalidate is not None) + 2 * solicited
        op.msn = self._next(sender, SEND_QUEUE)
        for at, piece, last in self._pieces(data, mpa.UNTAGGED_BYTES):
            header = mpa.untagged(opcode, SEND_QUEUE, op.msn, at, last, invalidate or 0)
            self._fpdu(sender, header + piece, Extent(0, 0, op.number, at, len(piece)))
        return op

    def write(
        self,
        sender: int,
        handle: int,
        address: int,
        data: bytes,
        *,
        immediate: int | None = None,
        places: tuple[Place, ...] = (),
    ) -> Operation:
        assert immediate is None, "iWARP Writes have no immediate data"
        op = self._operation(sender, "write", data, handle, address, places)
        for at, piece, last in self._pieces(data, mpa.TAGGED_BYTES):
            header = mpa.tagged(mpa.WRITE, handle, address + at, last)
            self._fpdu(sender, header + piece, Extent(0, 0, op.number, at, len(piece)))
        return op

    def read_request(
        self, sender: int, handle: int, address: int, data: bytes, places: tuple[Place, ...] = ()
    ) -> Operation:
        op = self._operation(sender, "read", data, handle, address, places)
        op.msn = self._next(sender, READ_QUEUE)
        sink = self.sink or self.register(max(1, len(data)))[0]
        self.wire.sinks[op.number] = sink
        header = mpa.untagged(mpa.READ_REQUEST, READ_QUEUE, op.msn, 0, True)
        body = mpa.read_request(sink.handle, sink.offset, len(data), handle, address)
        self._fpdu(sender, header + body, Extent(0, 0, op.number, 0, 0, True))
        return op

    def read_responses(self, op: Operation) -> None:
        sink = self.wire.sinks[op.number]
        for at, piece, last in self._pieces(op.data, mpa.TAGGED_BYTES):
            header = mpa.tagged(mpa.READ_RESPONSE, sink.handle, sink.offset + at, last)
            self._fpdu(1 - op.initiator, header + piece, Extent(0, 0, op.number, at, len(piece)))

    def flush_acks(self) -> None:
        self.push()

    # Below the verbs

    def _next(self, sender: int, queue: int) -> int:
        counts = self.ends[sender].sequence
        counts[queue] = counts.get(queue, 0) + 1
        return counts[queue]

    def _pieces(self, data: bytes, header: int) -> Iterator[tuple[int, bytes, bool]]:
        """``(offset, bytes, last)``; at least one."""
        at = 0
        while True:
            room = self.mulpdu - header
            if self.cutting == "random":
                room = self.wire.random.randrange(max(1, room // 2), room + 1)
            yield at, data[at : at + room], at + room >= len(data)
            at += room
            if at >= len(data):
                return

    def _fpdu(self, sender: int, ulpdu: bytes, extent: Extent) -> None:
        end = self.ends[sender]
        position = len(end.sent) - end.operating if end.markers else None
        framed = mpa.fpdu(ulpdu, position, None if self.crc else self.filler)
        start = len(end.sent)
        end.extents.append(extent._replace(start=start, end=start + len(framed)))
        self._append(sender, framed)
        if self.cutting == "aligned":
            self._push(sender)

    def _append(self, sender: int, data: bytes) -> None:
        """Who answers has seen what came before."""
        self._push(1 - sender)
        self.ends[sender].sent += data

    def push(self) -> None:
        for sender in (0, 1):
            self._push(sender)

    def _push(self, sender: int) -> None:
        """What is waiting goes out in segments."""
        end = self.ends[sender]
        if end.emitted == len(end.sent):
            return
        for at, size in cut(self, end.emitted, len(end.sent)):
            end.emitted = at + size
            self._segment(sender, "data", t.PSH | t.ACK, bytes(end.sent[at : at + size]), at)
            if self.acks == "packet":
                self._segment(1 - sender, "ack", t.ACK)
        if self.acks == "message":
            self._segment(1 - sender, "ack", t.ACK)

    def _segment(
        self, sender: int, kind: str, flags: int, payload: bytes = b"", at: int | None = None, options: bytes = b""
    ) -> None:
        if self.recorded:
            self.wire.record(segment(self, sender, kind, flags, payload, at, options))


def cut(connection: IwarpConnection, start: int, stop: int, again: bool = False) -> Iterator[tuple[int, int]]:
    """``(offset, size)`` of the segments for a stretch; ``again``: of any sizes, as on retransmission."""
    at = start
    while at < stop:
        size = connection.mtu
        if connection.cutting == "random" or again:
            size = connection.wire.random.randrange(1, size + 1)
        yield at, min(size, stop - at)
        at += size


def segment(
    connection: IwarpConnection,
    sender: int,
    kind: str,
    flags: int,
    payload: bytes = b"",
    at: int | None = None,
    options: bytes = b"",
) -> TcpSegment:
    mine, theirs = connection.ends[sender], connection.ends[1 - sender]
    assert mine.port is not None and theirs.port is not None
    place = mine.emitted if at is None else at
    if not options and connection.options:
        now = connection.wire.now // 1_000_000
        options = t.timestamps(now + mine.port, now + theirs.port)
    return TcpSegment(
        uid=0,
        time=0,
        connection=connection.number,
        sender=sender,
        kind=kind,
        source=mine.address,
        destination=theirs.address,
        source_port=mine.port,
        destination_port=theirs.port,
        seq=mine.isn + (0 if kind == "syn" else 1 + place + (mine.finished and kind != "fin")),
        ack=theirs.isn + 1 + theirs.emitted + theirs.finished,
        flags=flags,
        payload=payload,
        at=place,
        options=options,
    )


class IwarpCapture(Capture):
    """The segments that were recorded, beside the truth of the wire.

    An FPDU of which a byte is missing, cut off or changed counts as missing whole.
    """

    def __init__(self, wire: IwarpWire, segments: list[TcpSegment] | None = None) -> None:
        self.wire, self.packets = wire, []
        self.segments = wire.sent() if segments is None else segments
        self.frames = t.encode_segments(self.segments)
        self.covered, self.located = {}, {}
        held: dict[tuple[int, int], Ranges] = {}
        for one, frame in zip(self.segments, self.frames, strict=True):
            there = len(one.payload) - (frame.original - len(frame.data))
            if one.kind == "data" and one.corrupt is None and there > 0:
                held.setdefault((one.connection, one.sender), []).append((one.at, one.at + there))
        for connection in wire.connections:
            for sender, end in enumerate(connection.ends):
                assert isinstance(end, TcpEndpoint)
                ranges = merge(held.get((connection.number, sender), []))
                for extent in end.extents:
                    if extent.operation and not subtract([(extent.start, extent.end)], ranges):
                        self._cover(extent)

    def _cover(self, extent: Extent) -> None:
        kind = self.wire.operations[extent.operation].kind
        if kind == "write" or extent.request:
            self.located[extent.operation] = 0
        if not extent.request:
            self.covered.setdefault(extent.operation, []).append((extent.at, extent.at + extent.length))

    def operations(self, frame: int) -> list[int]:
        one = self.segments[frame - 1]
        end = self.wire.connections[one.connection - 1].ends[one.sender]
        assert isinstance(end, TcpEndpoint)
        first = bisect_right(end.extents, one.at, key=lambda extent: extent.end)
        found: list[int] = []
        for extent in end.extents[first:]:
            if extent.start >= one.end:
                break
            found.append(extent.operation)
        return found
