"""The wire: connections, the verbs on them, and the packets that follow from a script."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from . import cm, packets as p
from .packets import Frame, Packet, encode_frames

EPOCH = 1_700_000_000_000_000_000


class Segment(NamedTuple):
    """Registered memory (RFC 8166, 3.4.3)."""

    handle: int
    length: int
    offset: int


class Place(NamedTuple):
    """Bytes of an operation that are bytes of an RPC message."""

    start: int
    length: int
    rpc: int
    """Index in Wire.truth."""
    part: str
    """'call' or 'reply'."""
    at: int
    """Offset in the whole message."""


@dataclass(slots=True)
class Operation:
    """One verb as its initiator posted it."""

    number: int
    connection: int
    initiator: int
    kind: str
    psn: int
    packets: int
    data: bytes
    handle: int = 0
    address: int = 0
    places: tuple[Place, ...] = ()
    msn: int = 0


@dataclass(slots=True)
class TrueRpc:
    """What a call and its reply were: the messages as a TCP transport would have carried them."""

    index: int
    connection: int
    backward: bool
    xid: int
    call: bytes
    reply: bytes | None = None
    error: int | None = None
    """rdma_err of an RDMA_ERROR reply."""
    call_operation: int = 0
    reply_operation: int = 0
    call_header: int = 0
    """Bytes of the RPC-over-RDMA header in the call's Send."""
    reply_header: int = 0
    operations: list[int] = field(default_factory=list)
    """The RDMA Reads and Writes that moved its chunks."""


@dataclass(slots=True)
class Endpoint:
    address: str
    qpn: int
    psn: int
    """Of the next request."""
    udp_port: int
    msn: int = 0
    """Requests of the other end completed."""
    unacknowledged: int = 0
    """Messages of the other end not yet acknowledged."""
    port: int | None = None
    """The TCP port."""


class Wire:
    """Everything that passes one point of the network.

    ``packets`` holds what was sent, in order; ``truth`` the RPCs; ``operations`` the verbs by number.
    """

    def __init__(self, mtu: int = 1024, seed: int = 0, start: int = EPOCH) -> None:
        self.mtu = mtu
        self.random = random.Random(seed)
        self.now = start
        self.packets: list[Packet] = []
        self.truth: list[TrueRpc] = []
        self.operations: dict[int, Operation] = {}
        self.connections: list[Connection] = []
        self.version = 1
        """Of RPC-over-RDMA, that new connections speak."""

    def connect(
        self,
        client: str = "10.0.0.2",
        server: str = "10.0.0.1",
        port: int = 20049,
        *,
        cm: bool = True,
        mtu: int | None = None,
        client_qpn: int | None = None,
        server_qpn: int | None = None,
        client_psn: int | None = None,
        server_psn: int | None = None,
        client_private: bytes | None = None,
        server_private: bytes | None = None,
        acks: str = "message",
    ) -> Connection:
        """A new connection; with ``cm`` its REQ, REP and RTU are on the wire.

        ``acks``: 'message' one for each message, 'packet' one for each packet, 'lazy' one for several
        messages, 'none' only what flush_acks() sends.
        """
        draw = self.random.randrange
        ends = (
            Endpoint(
                client,
                client_qpn if client_qpn is not None else draw(0x11, 1 << 24),
                client_psn if client_psn is not None else draw(1 << 24),
                draw(0xC000, 0x10000),
            ),
            Endpoint(
                server,
                server_qpn if server_qpn is not None else draw(0x11, 1 << 24),
                server_psn if server_psn is not None else draw(1 << 24),
                draw(0xC000, 0x10000),
            ),
        )
        connection = Connection(self, len(self.connections) + 1, ends, port, mtu or self.mtu, acks)
        self.connections.append(connection)
        if cm:
            connection.establish(client_private, server_private)
        return connection

    def emit(self, packet: Packet) -> None:
        self.now += self.random.randrange(500, 20_000)
        self.packets.append(replace(packet, uid=len(self.packets) + 1, time=self.now))

    def pause(self, nanoseconds: int) -> None:
        self.now += nanoseconds

    def frames(self) -> list[Frame]:
        return encode_frames(self.packets)


class Connection:
    """A Reliable Connection between endpoint 0, the client, and endpoint 1, the server: its verbs."""

    def __init__(
        self, wire: Wire, number: int, ends: tuple[Endpoint, Endpoint], port: int, mtu: int, acks: str
    ) -> None:
        self.wire, self.number, self.ends, self.port, self.mtu, self.acks = (
            wire,
            number,
            ends,
            port,
            mtu,
            acks,
        )
        self.version = wire.version
        """Of RPC-over-RDMA, that is spoken from here on."""
        self.sides: tuple[cm.Side, cm.Side] | None = None
        self.transaction = wire.random.getrandbits(48)
        self.next_handle = wire.random.randrange(0x100, 0x7FFFFF00)
        self.next_address = wire.random.randrange(1 << 20, 1 << 47) & ~0xFFF

    # Connection management

    def establish(self, client_private: bytes | None = None, server_private: bytes | None = None) -> None:
        """REQ, REP, RTU."""
        wanted = [client_private, server_private]
        default = cm.private_data() if self.port == 20049 else b""
        ids = [self.wire.random.getrandbits(32), self.wire.random.getrandbits(32)]
        client, server = (
            cm.Side(end.address, end.qpn, self.ends[1 - index].psn, ids[index], default if private is None else private)
            for index, (end, private) in enumerate(zip(self.ends, wanted, strict=True))
        )
        self.sides = client, server
        self._mad(0, cm.REQ, cm.request(client, server, self.port, self.mtu))
        self._mad(1, cm.REP, cm.reply(client, server))
        self._mad(0, cm.RTU, cm.ids(client, server))

    def disconnect(self, initiator: int = 0) -> None:
        """DREQ, DREP."""
        self.flush_acks()
        assert self.sides, "a connection without CM exchange cannot be torn down by one"
        local, remote = self.sides[initiator], self.sides[1 - initiator]
        self._mad(initiator, cm.DREQ, cm.disconnect(local, remote))
        self._mad(1 - initiator, cm.DREP, cm.ids(remote, local))

    def _mad(self, sender: int, attribute: int, body: bytes) -> None:
        payload = cm.mad(attribute, self.transaction, body)
        self._packet(sender, "cm", p.UD_SEND_ONLY, 0, cm.DETH, payload, port=0xC0DE, dest_qp=1, operation=0)

    # Verbs

    def send(
        self,
        sender: int,
        data: bytes,
        *,
        immediate: int | None = None,
        invalidate: int | None = None,
        places: tuple[Place, ...] = (),
    ) -> Operation:
        op = self._operation(sender, "send", data, places=places)
        tail, last, only = b"", p.SEND_LAST, p.SEND_ONLY
        if immediate is not None:
            tail, last, only = struct.pack(">I", immediate), p.SEND_LAST_IMM, p.SEND_ONLY_IMM
        elif invalidate is not None:
            tail, last, only = struct.pack(">I", invalidate), p.SEND_LAST_INV, p.SEND_ONLY_INV
        self._message(op, (p.SEND_FIRST, p.SEND_MIDDLE, last, only), b"", tail)
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
        op = self._operation(sender, "write", data, handle, address, places)
        tail, last, only = b"", p.WRITE_LAST, p.WRITE_ONLY
        if immediate is not None:
            tail, last, only = struct.pack(">I", immediate), p.WRITE_LAST_IMM, p.WRITE_ONLY_IMM
        head = p.reth(address, handle, len(data))
        self._message(op, (p.WRITE_FIRST, p.WRITE_MIDDLE, last, only), head, tail)
        return op

    def read(self, sender: int, handle: int, address: int, data: bytes, places: tuple[Place, ...] = ()) -> Operation:
        """RDMA Read: request and responses."""
        op = self.read_request(sender, handle, address, data, places)
        self.read_responses(op)
        return op

    def read_request(
        self, sender: int, handle: int, address: int, data: bytes, places: tuple[Place, ...] = ()
    ) -> Operation:
        """Only the request; read_responses() answers it, in the order of the requests."""
        op = self._operation(sender, "read", data, handle, address, places)
        self._packet(
            sender,
            "read",
            p.READ_REQUEST,
            op.psn,
            p.reth(address, handle, len(data)),
            operation=op.number,
            ack_request=True,
        )
        return op

    def read_responses(self, op: Operation) -> None:
        responder = 1 - op.initiator
        end = self.ends[responder]
        end.msn += 1
        end.unacknowledged = 0
        op.msn = end.msn
        for packet in responses(self, op):
            self.wire.emit(packet)

    def flush_acks(self) -> None:
        for end in self.ends:
            if end.unacknowledged:
                self.acknowledge(self.ends.index(end))

    def acknowledge(
        self, sender: int, psn: int | None = None, syndrome: int = p.ACK_NO_CREDITS, kind: str = "ack"
    ) -> None:
        """An ACK (or NAK) from ``sender``; without ``psn`` for everything that was sent to it."""
        end = self.ends[sender]
        end.unacknowledged = 0
        last = (self.ends[1 - sender].psn - 1) & p.PSN_MASK if psn is None else psn
        self._packet(sender, kind, p.ACKNOWLEDGE, last, p.aeth(syndrome, end.msn))

    # Below the verbs

    def _operation(
        self,
        sender: int,
        kind: str,
        data: bytes,
        handle: int = 0,
        address: int = 0,
        places: tuple[Place, ...] = (),
    ) -> Operation:
        end = self.ends[sender]
        count = max(1, -(-len(data) // self.mtu))
        number = len(self.wire.operations) + 1
        op = Operation(number, self.number, sender, kind, end.psn, count, data, handle, address & (1 << 64) - 1, places)
        end.psn = (end.psn + count) & p.PSN_MASK
        self.wire.operations[number] = op
        return op

    def _message(self, op: Operation, opcodes: tuple[int, int, int, int], head: bytes, tail: bytes) -> None:
        """A Send or Write of one or several packets, and its acknowledgement."""
        first, middle, last, only = opcodes
        receiver = self.ends[1 - op.initiator]
        for index in range(op.packets):
            ends = index == op.packets - 1
            opcode = only if op.packets == 1 else first if index == 0 else last if ends else middle
            extended = (head if index == 0 else b"") + (tail if ends else b"")
            at = index * self.mtu
            receiver.msn += ends
            self._packet(
                op.initiator,
                op.kind,
                opcode,
                (op.psn + index) & p.PSN_MASK,
                extended,
                op.data[at : at + self.mtu],
                operation=op.number,
                at=at,
                ack_request=ends or self.acks == "packet",
                solicited=ends and op.kind == "send",
            )
            if self.acks == "packet":
                self.acknowledge(1 - op.initiator, (op.psn + index) & p.PSN_MASK)
        receiver.unacknowledged += self.acks != "packet"
        due = {"message": 1, "lazy": 3}.get(self.acks, 0)
        if due and receiver.unacknowledged >= due:
            self.acknowledge(1 - op.initiator)

    def _packet(
        self,
        sender: int,
        kind: str,
        opcode: int,
        psn: int,
        extended: bytes = b"",
        payload: bytes = b"",
        *,
        operation: int = 0,
        at: int = 0,
        ack_request: bool = False,
        solicited: bool = False,
        port: int | None = None,
        dest_qp: int | None = None,
    ) -> None:
        self.wire.emit(
            build(
                self,
                sender,
                kind,
                opcode,
                psn,
                extended,
                payload,
                operation=operation,
                at=at,
                ack_request=ack_request,
                solicited=solicited,
                port=port,
                dest_qp=dest_qp,
            )
        )

    # Memory

    def register(self, *lengths: int, adjacent: bool = False, handle: int | None = None) -> list[Segment]:
        """Fresh memory segments of the given lengths.

        Each has a handle of its own, or all the one given; ``adjacent``: one registration in one stretch.
        """
        segments: list[Segment] = []
        for length in lengths:
            if handle is None and (not adjacent or not segments):
                self.next_handle += 0x101
            use = handle if handle is not None else self.next_handle
            segments.append(Segment(use, length, self.next_address))
            self.next_address += length if adjacent else (length + 0x1FFF) & ~0xFFF
        self.next_address = (self.next_address + 0x1FFF) & ~0xFFF
        return segments


def build(
    connection: Connection,
    sender: int,
    kind: str,
    opcode: int,
    psn: int,
    extended: bytes = b"",
    payload: bytes = b"",
    *,
    operation: int = 0,
    at: int = 0,
    ack_request: bool = False,
    solicited: bool = False,
    port: int | None = None,
    dest_qp: int | None = None,
) -> Packet:
    mine, theirs = connection.ends[sender], connection.ends[1 - sender]
    return Packet(
        uid=0,
        time=0,
        connection=connection.number,
        sender=sender,
        kind=kind,
        source=mine.address,
        destination=theirs.address,
        source_port=mine.udp_port if port is None else port,
        opcode=opcode,
        dest_qp=theirs.qpn if dest_qp is None else dest_qp,
        psn=psn,
        extended=extended,
        payload=payload,
        operation=operation,
        at=at,
        ack_request=ack_request,
        solicited=solicited,
    )


def responses(connection: Connection, op: Operation, start: int = 0) -> Sequence[Packet]:
    """The responses to a READ request for ``op``'s bytes from ``start``, a multiple of the MTU, on."""
    mtu = connection.mtu
    first = start // mtu
    count = op.packets - first
    found: list[Packet] = []
    for index in range(first, op.packets):
        ends = index == op.packets - 1
        opcode = p.RESPONSE_MIDDLE
        if count == 1:
            opcode = p.RESPONSE_ONLY
        elif index == first:
            opcode = p.RESPONSE_FIRST
        elif ends:
            opcode = p.RESPONSE_LAST
        extended = b"" if opcode == p.RESPONSE_MIDDLE else p.aeth(p.ACK_NO_CREDITS, op.msn)
        at = index * mtu
        psn = (op.psn + index) & p.PSN_MASK
        payload = op.data[at : at + mtu]
        found.append(
            build(
                connection,
                1 - op.initiator,
                "response",
                opcode,
                psn,
                extended,
                payload,
                operation=op.number,
                at=at,
            )
        )
    return found
