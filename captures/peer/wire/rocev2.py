"""A Reliable Connection over RoCEv2: CM exchange, requests, responses and acknowledgements (IBA volume 1, 9 and 12)."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

from scapy.layers.inet import UDP
from scapy.packet import Raw

from rdmascope.dissect.layers.cm import (
    CMDisconnectReply,
    CMDisconnectRequest,
    CMReadyToUse,
    CMReply,
    CMRequest,
    IPCMRequest,
)
from rdmascope.dissect.layers.cm_codes import CLASS_CM, METHOD_SEND
from rdmascope.dissect.layers.icrc import ROCE_PORT, UDP_BYTES, icrc
from rdmascope.dissect.layers.mad import MAD
from rdmascope.dissect.layers.opcodes import ICRC_BYTES, OPCODE_NAMES, PATH_MTU
from rdmascope.dissect.layers.roce import AETH, BTH, DETH, IETH, RETH
from rdmascope.dissect.rpcrdma.messages import Segment

from .network import ETHERNET_BYTES, Path, Tape, below

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
_RETRIES = 7
_FINITE = 20
"""Exponent of the time-outs that a REQ gives: about 4 s (IBA 12.7)."""


@dataclass(slots=True)
class SimulatedQueuePair:
    number: int
    psn: int
    """Of its next request."""
    udp_port: int
    comm_id: int
    msn: int = 0
    """Requests of the peer completed."""


class Rocev2Link:
    """One connection; see ``network.Link``."""

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
            localresptout=_FINITE, retrcount=_RETRIES, pppmtu=_mtu_code(path.mtu), rnrretrcount=_RETRIES, maxcmretr=15,
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
            place = _place(index, len(pieces))
            aeth = b"" if place == "Middle" else bytes(AETH(msn=server.msn & PSN_MASK))
            self._packet(1 - sender, f"RDMA READ Response {place}", psn + index, aeth, piece)

    def write_refused(self, sender: int, segment: Segment, data: bytes) -> None:
        self._message(sender, "RDMA WRITE", data[: self.path.mtu], _reth(segment, len(data)), b"", NAK_ACCESS)

    def read_refused(self, sender: int, segment: Segment) -> None:
        psn = self._read_request(sender, segment, segment.length)
        self._acknowledge(1 - sender, psn, NAK_ACCESS)

    def _read_request(self, sender: int, segment: Segment, length: int) -> int:
        """The request, which takes the sequence numbers of its responses (IBA 9.7.2.2)."""
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
            place, last = _place(index, len(pieces)), index == len(pieces) - 1
            opcode = f"{verb} {place}" + (" with Invalidate" if last and tail else "")
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
        )  # the pad and the ICRC come behind the payload
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


def _mtu_code(mtu: int) -> int:
    return next(code for code, size in PATH_MTU.items() if size == mtu)
