"""The simulated networks: frames with times, two hosts, Ethernet and IP for both; then RoCEv2 and iWARP."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import cache
from ipaddress import ip_address
from typing import Any

from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Raw
from scapy.utils import checksum

from rdmascope.dissect.layers.cm import (
    MAD,
    CMDisconnectReply,
    CMDisconnectRequest,
    CMReadyToUse,
    CMReply,
    CMRequest,
    IPCMRequest,
)
from rdmascope.dissect.layers.cm_codes import CLASS_CM, METHOD_SEND
from rdmascope.dissect.layers.fpdus import CRC_BYTES, MARKER_BYTES, MARKER_INTERVAL, crc32c, insert_markers, pad_bytes
from rdmascope.dissect.layers.icrc import ROCE_PORT, UDP_BYTES, icrc
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
from rdmascope.dissect.layers.mpa import (
    FPDU,
    DDPTagged,
    DDPUntagged,
    MPAEnhanced,
    MPAReply,
    MPARequest,
    RDMAPReadRequest,
    RDMAPTerminate,
)
from rdmascope.dissect.layers.opcodes import ICRC_BYTES, OPCODE_NAMES, PATH_MTU
from rdmascope.dissect.layers.roce import AETH, BTH, DETH, IETH, RETH
from rdmascope.dissect.named_tuple import NamedTuple
from rdmascope.dissect.rpcrdma.analyzer import NFS_RDMA_PORT
from rdmascope.dissect.rpcrdma.messages import Segment

EPOCH = 1_700_000_000_000_000_000
"""Nanoseconds since the Unix epoch: 2023-11-14 22:13:20 UTC."""
_ECT0 = 2
_IPV4_BYTES = 20
ETHERNET_BYTES = 14


class TapedFrame(NamedTuple):
    time: int
    """Nanoseconds since the Unix epoch."""
    data: bytes
    """The Ethernet frame, without frame check sequence."""


class Tape:
    """Records the frames that pass one point of the network, in order."""

    def __init__(self, seed: int = 0, start: int = EPOCH) -> None:
        self.random = random.Random(seed)
        self.now = start
        self.frames: list[TapedFrame] = []

    def record(self, data: bytes) -> None:
        self.now += self.random.randrange(500, 5_000)
        self.frames.append(TapedFrame(self.now, data))

    def pause(self, nanoseconds: int) -> None:
        self.now += nanoseconds


@dataclass(frozen=True, slots=True)
class Path:
    """Two hosts and the network between them."""

    client: str = "192.0.2.2"
    server: str = "192.0.2.1"
    """IPv4 both, or IPv6 both."""
    port: int = NFS_RDMA_PORT
    mtu: int = 1024
    """RoCEv2: payload bytes of a packet, 256, 512, 1024, 2048 or 4096.  iWARP: TCP payload bytes of a segment."""

    @property
    def hosts(self) -> tuple[str, str]:
        return self.client, self.server


def below(path: Path, sender: int, identification: int, protocol: int, length: int) -> bytes:
    """Ethernet and IP headers from one of the hosts, for ``length`` bytes after them.

    IPv4 never fragments, and both versions mark packets as capable of ECN.  Each header is built on its own, as Scapy
    copies what it combines.
    """
    source, destination = path.hosts[sender], path.hosts[1 - sender]
    if ip_address(source).version == 6:
        ip = IPv6(src=source, dst=destination, tc=_ECT0, hlim=64, nh=protocol, plen=length)
    else:
        ip = IP(
            src=source, dst=destination, id=identification & 0xFFFF, flags="DF", tos=_ECT0, ttl=64, proto=protocol,
            len=_IPV4_BYTES + length,
        )  # fmt: skip
    return _ethernet(source, destination) + bytes(ip)


@cache
def _ethernet(source: str, destination: str) -> bytes:
    return bytes(Ether(src=mac(source), dst=mac(destination), type=0x86DD if ":" in source else 0x0800))


def mac(address: str) -> str:
    """A locally administered MAC address for an IP address."""
    return ":".join(["02", "00", *(f"{byte:02x}" for byte in ip_address(address).packed[-4:])])


PSN_MASK = 0xFFFFFF
REQ, REP, RTU, DREQ, DREP = 0x10, 0x13, 0x14, 0x15, 0x16
GSI_QKEY = 0x80010000
IP_SERVICE = 0x0000000001060000
"""The RDMA IP CM Service's identifiers for TCP ports (IBA annex A11)."""
NAK_ACCESS = 0x62
"""AETH syndrome: Remote Access Error (IBA 9.7.5.2)."""
CM_UDP_PORT = 0xC0DE
UDP_PROTOCOL = 17

_OPCODES = {name: value for value, name in OPCODE_NAMES.items()}
_MTU_CODES = {size: code for code, size in PATH_MTU.items()}
_RETRIES = 7
_FINITE = 20
"""Exponent of the time-outs in a REQ: about 4 s (IBA 12.7)."""


@dataclass(slots=True)
class SimulatedQueuePair:
    number: int
    psn: int
    """PSN of its next request."""
    udp_port: int
    comm_id: int
    msn: int = 0
    """Number of completed requests of the peer."""


class Rocev2Link:
    """One connection; see ``WireLink``."""

    def __init__(self, tape: Tape, path: Path) -> None:
        self.tape, self.path = tape, path
        draw = tape.random.randrange
        self._pairs = tuple(
            SimulatedQueuePair(draw(0x11, 1 << 24), draw(1 << 24), draw(0xC000, 0x10000), draw(1, 1 << 32))
            for _ in range(2)
        )
        self._transaction = draw(1 << 48)
        self._identification = draw(1 << 16)

    # Connection management

    def connect(self, client_private: bytes, server_private: bytes) -> None:
        client, server = self._pairs
        path = self.path
        addresses = [_gid(host) for host in path.hosts]
        version = ip_address(path.client).version
        request = CMRequest(
            localcommid=client.comm_id, serviceid=IP_SERVICE | path.port, localcaguid=_guid(path.client),
            localqpn=client.number, responderres=16, initdepth=16, remoteresptout=_FINITE, startpsn=server.psn,
            localresptout=_FINITE, retrcount=_RETRIES, pppmtu=_MTU_CODES[path.mtu], rnrretrcount=_RETRIES, maxcmretr=15,
            prim_locallid=0xFFFF, prim_remotelid=0xFFFF, prim_localgid=addresses[0], prim_remotegid=addresses[1],
            prim_hoplim=64, prim_pktrate=3, prim_localacktout=19,
        )  # fmt: skip
        ip_cm = IPCMRequest(ipv=version, sport=client.udp_port, sip=path.client, dip=path.server)
        self._mad(0, REQ, request / ip_cm / Raw(client_private))
        reply = CMReply(
            localcommid=server.comm_id, remotecommid=client.comm_id, localqpn=server.number, startpsn=client.psn,
            respres=16, initdepth=16, tgtackdelay=15, rnrretrcount=_RETRIES, localcaguid=_guid(path.server),
        )  # fmt: skip
        self._mad(1, REP, reply / Raw(server_private))
        self._mad(0, RTU, CMReadyToUse(localcommid=client.comm_id, remotecommid=server.comm_id))

    def disconnect(self, sender: int) -> None:
        mine, theirs = self._pairs[sender], self._pairs[1 - sender]
        request = CMDisconnectRequest(
            localcommid=mine.comm_id, remotecommid=theirs.comm_id, remoteqpneecn=theirs.number
        )
        self._mad(sender, DREQ, request)
        self._mad(1 - sender, DREP, CMDisconnectReply(localcommid=theirs.comm_id, remotecommid=mine.comm_id))

    def _mad(self, sender: int, attribute: int, message: Any) -> None:
        mad = MAD(
            mgmtclass=CLASS_CM, classversion=2, method=METHOD_SEND, transactionid=self._transaction,
            attributeid=attribute,
        )  # fmt: skip
        self._emit(
            sender, "UD SEND Only", 1, 0, bytes(DETH(q_key=GSI_QKEY, src_qp=1)), bytes(mad / message), CM_UDP_PORT
        )

    # Verbs

    def send(self, sender: int, data: bytes, invalidate: int | None = None) -> None:
        tail = b"" if invalidate is None else bytes(IETH(r_key=invalidate))
        self._message(sender, "SEND", data, b"", tail)

    def write(self, sender: int, segment: Segment, data: bytes) -> None:
        self._message(sender, "RDMA WRITE", data, _reth(segment, len(data)), b"")

    def read(self, sender: int, segment: Segment, data: bytes) -> None:
        psn = self._read_request(sender, segment, len(data))
        server = self._pairs[1 - sender]
        server.msn += 1
        pieces = self._pieces(data)
        for index, piece in enumerate(pieces):
            position = _place(index, len(pieces))
            aeth = b"" if position == "Middle" else bytes(AETH(msn=server.msn & PSN_MASK))
            self._packet(1 - sender, f"RDMA READ Response {position}", psn + index, aeth, piece)

    def write_refused(self, sender: int, segment: Segment, data: bytes) -> None:
        self._message(sender, "RDMA WRITE", data[: self.path.mtu], _reth(segment, len(data)), b"", NAK_ACCESS)

    def read_refused(self, sender: int, segment: Segment) -> None:
        self._acknowledge(1 - sender, self._read_request(sender, segment, segment.length), NAK_ACCESS)

    def _read_request(self, sender: int, segment: Segment, length: int) -> int:
        """Send the request, which uses up the PSNs of its responses (IBA 9.7.2.2)."""
        pair = self._pairs[sender]
        psn = pair.psn
        pair.psn = (psn + max(1, -(-length // self.path.mtu))) & PSN_MASK
        self._packet(sender, "RDMA READ Request", psn, _reth(segment, length), a=1)
        return psn

    def _message(
        self, sender: int, verb: str, data: bytes, head: bytes, tail: bytes, syndrome: int | None = None
    ) -> None:
        pair, peer = self._pairs[sender], self._pairs[1 - sender]
        pieces = self._pieces(data)
        for index, piece in enumerate(pieces):
            position, last = _place(index, len(pieces)), index == len(pieces) - 1
            opcode = f"{verb} {position}" + (" with Invalidate" if last and tail else "")
            extended = (head if index == 0 else b"") + (tail if last else b"")
            self._packet(sender, opcode, pair.psn, extended, piece, a=int(last), se=int(last and verb == "SEND"))
            pair.psn = (pair.psn + 1) & PSN_MASK
        peer.msn += syndrome is None
        self._acknowledge(1 - sender, pair.psn - 1, syndrome)

    def _acknowledge(self, sender: int, psn: int, syndrome: int | None) -> None:
        aeth = AETH(msn=self._pairs[sender].msn & PSN_MASK)
        if syndrome is not None:
            aeth.syndrome = syndrome
        self._packet(sender, "Acknowledge", psn, bytes(aeth))

    # Packets

    def _pieces(self, data: bytes) -> list[bytes]:
        return [data[at : at + self.path.mtu] for at in range(0, len(data), self.path.mtu)] or [b""]

    def _packet(
        self, sender: int, opcode: str, psn: int, extended: bytes, payload: bytes = b"", a: int = 0, se: int = 0
    ) -> None:
        peer = self._pairs[1 - sender].number
        self._emit(sender, f"RC {opcode}", peer, psn & PSN_MASK, extended, payload, a=a, se=se)

    def _emit(
        self, sender: int, opcode: str, dest_qp: int, psn: int, extended: bytes, payload: bytes,
        port: int | None = None, a: int = 0, se: int = 0,
    ) -> None:  # fmt: skip
        """A whole frame: Ethernet, IP, UDP, BTH, extended headers, payload, pad and ICRC."""
        self._identification += 1
        pad = -len(payload) % 4
        bth = BTH(
            opcode=_OPCODES[opcode], dest_qp=dest_qp, psn=psn, m=1, a=a, se=se, padcnt=pad, pad=b"", icrc=b""
        )  # pad and ICRC follow the payload
        packet = bytes(bth) + extended + payload + bytes(pad)
        length = UDP_BYTES + len(packet) + ICRC_BYTES
        udp_port = self._pairs[sender].udp_port if port is None else port
        udp = UDP(sport=udp_port, dport=ROCE_PORT, len=length, chksum=0)
        frame = below(self.path, sender, self._identification, UDP_PROTOCOL, length) + bytes(udp) + packet
        crc = icrc(frame[ETHERNET_BYTES:])
        assert crc is not None
        self.tape.record(frame + crc.to_bytes(ICRC_BYTES, "big"))


def _place(index: int, count: int) -> str:
    if count == 1:
        return "Only"
    return "First" if index == 0 else "Last" if index == count - 1 else "Middle"


def _reth(segment: Segment, length: int) -> bytes:
    return bytes(RETH(va=segment.offset, r_key=segment.handle, dma_len=length))


def _gid(address: str) -> bytes:
    ip = ip_address(address)
    return ip.packed if ip.version == 6 else bytes(10) + b"\xff\xff" + ip.packed


def _guid(address: str) -> int:
    return int.from_bytes(b"\x02\x00\x00\xff\xfe\x00" + ip_address(address).packed[-2:], "big")


TAGGED_BYTES, UNTAGGED_BYTES = 14, 18
FRAMING_BYTES = 10
"""Largest overhead of an FPDU: length, pad and CRC (RFC 5044, 4.1)."""
IRD = ORD = 16
TAGGED_BUFFER_ERROR, BOUNDS = 1, 1
"""Terminate: error type and code (RFC 5041, 7.2)."""
TCP_PROTOCOL = 6
CHECKSUM = 16
"""Offset of the checksum in a TCP header (RFC 9293, 3.1)."""


@dataclass(slots=True)
class TcpDirection:
    """What one host sends on a connection."""

    port: int
    isn: int
    sent: int = 0
    """Bytes after the SYN."""
    operating: int = 0
    """Offset in them at which full operation begins."""
    fin: bool = False
    messages: dict[int, int] = field(default_factory=dict)
    """By DDP queue: number of messages sent on it."""


class IwarpLink:
    """One connection; see ``WireLink``.  Every FPDU has its own TCP segment, and is acknowledged."""

    def __init__(self, tape: Tape, path: Path, *, revision: int = 1, markers: bool = False) -> None:
        """``revision``: of MPA, 1 or 2; ``markers``: in both directions."""
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
        for side in (sender, 1 - sender):
            self._segment(side, "FA")
            self._streams[side].fin = True
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
        self._tagged(1 - sender, READ_RESPONSE, self._read_request(sender, segment, len(data)), data)

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


WireLink = Rocev2Link | IwarpLink
"""A connection between host 0, the client, and host 1, the server, with its verbs.

A ``read`` gets the contents of the other host's memory.  The other host's device refuses a ``read`` or ``write`` that
is not allowed, which breaks the connection. """
