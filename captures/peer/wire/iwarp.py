"""An iWARP connection: TCP handshake, MPA start-up, and DDP segments in FPDUs (RFC 5040, 5041, 5044 and 6581)."""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any

from scapy.layers.inet import TCP
from scapy.packet import Raw
from scapy.utils import checksum

from rdmascope.dissect.layers.ddp import DDPTagged, DDPUntagged, RDMAPReadRequest, RDMAPTerminate
from rdmascope.dissect.layers.fpdus import CRC_BYTES, MARKER_BYTES, MARKER_INTERVAL, crc32c, insert_markers, pad_bytes
from rdmascope.dissect.layers.iwarp_codes import (
    DDP_LAYER,
    MPA_ENHANCED_VERSION,
    READ_QUEUE,
    READ_REQUEST,
    READ_RESPONSE,
    SEND,
    SEND_INVALIDATE,
    SEND_QUEUE,
    TERMINATE,
    TERMINATE_QUEUE,
    WRITE,
)
from rdmascope.dissect.layers.mpa import FPDU, MPAEnhanced, MPAReply, MPARequest
from rdmascope.dissect.rpcrdma.messages import Segment

from .network import Path, Tape, below

TAGGED_BYTES, UNTAGGED_BYTES = 14, 18
FRAMING_BYTES = 10
"""Of an FPDU at most: length, pad and CRC (RFC 5044, 4.1)."""
IRD = ORD = 16
TAGGED_BUFFER_ERROR, BOUNDS = 1, 1
"""Terminate: error type and code (RFC 5041, 7.2)."""
TCP_PROTOCOL = 6
CHECKSUM = 16
"""Where in a TCP header the checksum stands (RFC 9293, 3.1)."""


@dataclass(slots=True)
class TcpDirection:
    """What one host sends."""

    port: int
    isn: int
    sent: int = 0
    """Bytes behind the SYN."""
    operating: int = 0
    """Where among them full operation begins."""
    fin: bool = False
    messages: dict[int, int] = field(default_factory=dict)
    """DDP queue -> messages sent on it."""


class IwarpLink:
    """One connection; see ``network.Link``.  Every FPDU has a TCP segment of its own, and is acknowledged."""

    def __init__(self, tape: Tape, path: Path, *, revision: int = 1, markers: bool = False) -> None:
        """``revision`` of MPA, 1 or 2; ``markers`` stand in both streams."""
        self.tape, self.path = tape, path
        self.revision, self.markers = revision, markers
        draw = tape.random.randrange
        self._streams = (
            TcpDirection(draw(0xC000, 0x10000), draw(1 << 32)),
            TcpDirection(path.port, draw(1 << 32)),
        )
        self._sinks = draw(1, 1 << 24)
        self._identification = draw(1 << 16)
        self._room = path.mtu - FRAMING_BYTES
        if markers:
            self._room -= MARKER_BYTES * (path.mtu // MARKER_INTERVAL + 1)

    # Set-up and its end

    def connect(self, client_private: bytes, server_private: bytes) -> None:
        self._segment(0, "S", options=True)
        self._segment(1, "SA", options=True)
        self._segment(0, "A")
        for sender, (layer, private) in enumerate(((MPARequest, client_private), (MPAReply, server_private))):
            frame: Any = layer(rev=self.revision, marker_flag=int(self.markers), crc_flag=1)
            if self.revision == MPA_ENHANCED_VERSION:
                frame.enhanced_flag = 1
                frame = frame / MPAEnhanced(ird=IRD, ord=ORD)
            self._data(sender, bytes(frame / Raw(private)))
        for stream in self._streams:
            stream.operating = stream.sent

    def disconnect(self, sender: int) -> None:
        for one in (sender, 1 - sender):
            self._segment(one, "FA")
            self._streams[one].fin = True
        self._segment(sender, "A")

    # Verbs

    def send(self, sender: int, data: bytes, invalidate: int | None = None) -> None:
        opcode = SEND if invalidate is None else SEND_INVALIDATE
        msn = self._next(sender, SEND_QUEUE)
        for at, piece, last in self._pieces(data, UNTAGGED_BYTES):
            header = DDPUntagged(
                last_flag=last, opcode=opcode, inval_stag=invalidate or 0, qn=SEND_QUEUE, msn=msn, mo=at
            )
            self._fpdu(sender, bytes(header) + piece)

    def write(self, sender: int, segment: Segment, data: bytes) -> None:
        self._tagged(sender, WRITE, segment, data)

    def read(self, sender: int, segment: Segment, data: bytes) -> None:
        sink = self._read_request(sender, segment, len(data))
        self._tagged(1 - sender, READ_RESPONSE, sink, data)

    def write_refused(self, sender: int, segment: Segment, data: bytes) -> None:
        self._tagged(sender, WRITE, segment, data[: self._room - TAGGED_BYTES])
        self._terminate(1 - sender)

    def read_refused(self, sender: int, segment: Segment) -> None:
        self._read_request(sender, segment, segment.length)
        self._terminate(1 - sender)

    def _read_request(self, sender: int, segment: Segment, length: int) -> Segment:
        self._sinks += 1
        sink = Segment(self._sinks, length, self._sinks << 20)
        header = DDPUntagged(opcode=READ_REQUEST, qn=READ_QUEUE, msn=self._next(sender, READ_QUEUE))
        request = RDMAPReadRequest(
            sinkstag=sink.handle, sinkto=sink.offset, rdmardsz=length, srcstag=segment.handle, srcto=segment.offset
        )
        self._fpdu(sender, bytes(header / request))
        return sink

    def _tagged(self, sender: int, opcode: int, segment: Segment, data: bytes) -> None:
        for at, piece, last in self._pieces(data, TAGGED_BYTES):
            header = DDPTagged(last_flag=last, opcode=opcode, stag=segment.handle, tagged_offset=segment.offset + at)
            self._fpdu(sender, bytes(header) + piece)

    def _terminate(self, sender: int) -> None:
        header = DDPUntagged(opcode=TERMINATE, qn=TERMINATE_QUEUE, msn=self._next(sender, TERMINATE_QUEUE))
        reason = RDMAPTerminate(term_layer=DDP_LAYER, term_etype=TAGGED_BUFFER_ERROR, term_errcode=BOUNDS)
        self._fpdu(sender, bytes(header / reason))

    # Segments

    def _next(self, sender: int, queue: int) -> int:
        messages = self._streams[sender].messages
        messages[queue] = messages.get(queue, 0) + 1
        return messages[queue]

    def _pieces(self, data: bytes, header: int) -> list[tuple[int, bytes, int]]:
        """``(offset, bytes, last)``; at least one."""
        room = self._room - header
        places = range(0, max(1, len(data)), room)
        return [(at, data[at : at + room], int(at == places[-1])) for at in places]

    def _fpdu(self, sender: int, ulpdu: bytes) -> None:
        length = bytes(FPDU(ulpdulength=len(ulpdu), pad=b"", crc=b""))  # pad and CRC come behind the ULPDU
        covered = length + ulpdu + bytes(pad_bytes(len(ulpdu)))
        framed = covered + crc32c(covered).to_bytes(CRC_BYTES, "big")
        if self.markers:
            stream = self._streams[sender]
            framed = insert_markers([framed], stream.sent - stream.operating)
        self._data(sender, framed)

    def _data(self, sender: int, payload: bytes) -> None:
        self._segment(sender, "PA", payload)
        self._segment(1 - sender, "A")

    def _segment(self, sender: int, flags: str, payload: bytes = b"", options: bool = False) -> None:
        self._identification += 1
        mine, theirs = self._streams[sender], self._streams[1 - sender]
        first = "S" in flags
        seq = mine.isn if first else mine.isn + 1 + mine.sent + mine.fin
        received = 0 if flags == "S" else theirs.isn + 1 + theirs.sent + theirs.fin
        tcp = TCP(
            sport=mine.port, dport=theirs.port, seq=seq & 0xFFFFFFFF, ack=received & 0xFFFFFFFF, flags=flags,
            window=0xFFFF, chksum=0,
            options=[("MSS", self.path.mtu), ("WScale", 7), ("SAckOK", b"")] if options else [],
        )  # fmt: skip
        mine.sent += len(payload)
        segment = bytearray(bytes(tcp) + payload)
        addresses = b"".join(ip_address(host).packed for host in self.path.hosts)
        pseudo = addresses + TCP_PROTOCOL.to_bytes(4) + len(segment).to_bytes(4)  # the same sum in IPv4 and IPv6
        segment[CHECKSUM : CHECKSUM + 2] = checksum(pseudo + bytes(segment)).to_bytes(2)
        headers = below(self.path, sender, self._identification, TCP_PROTOCOL, len(segment))
        self.tape.record(headers + bytes(segment))
