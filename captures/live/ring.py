"""Frames from interfaces and adapters: the kernel's ring and filter, libpcap's RDMA sniffer, and tcpdump over ssh.

Linux, Documentation/networking/filter.rst.  Kept are RoCEv1 by its EtherType, RoCEv2 by its UDP port, over IPv4 and
IPv6, with up to two VLAN tags that the kernel left in the frame (it takes the first one out of what it receives), and
TCP on the ports of iWARP.  A later fragment of an IP packet names no port, so only the first ones are kept; nothing
that carries RDMA sends fragments.

Linux, Documentation/networking/packet_mmap.rst, TPACKET_V3; structures from linux/if_packet.h, in the machine's
byte order.  The kernel fills block after block; a block is given over when it is full, and, if it has a frame, at every
tick of a clock.  While nothing reads, the clock alone uses up the ring, however few frames come: so blocks are small,
and the clock is slow.

libpcap takes them from a queue pair with a sniffer flow rule (pcap-rdmasniff.c; mlx5 alone offers that), under the
name of the RDMA device.  A thread reads what tcpdump writes; its counters come on standard error.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import re
import select
import shlex
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from shutil import which
from typing import Any

import numpy as np

from rdmascope.dissect.arrays import Bytes, Int64s, Rows, gather, scatter
from rdmascope.dissect.frames import FRAME, FrameBatch
from rdmascope.dissect.link.numbers import (
    ETHERNET,
    GENEVE_PORT,
    GRE,
    IPV4,
    IPV4_INSIDE,
    IPV6,
    IPV6_INSIDE,
    LINUX_SLL2,
    MPLS,
    MPLS_INSIDE,
    MPLS_PORT,
    ROCE_ETHERTYPE,
    ROCE_PORT,
    TAGS,
    TCP,
    UDP,
    VXLAN_PORTS,
)

from ..errors import CaptureError
from ..read.open import open_capture
from .device import EVERY, STREAM, Device, Handover, StreamEnded, StreamSource

SO_ATTACH = 26
"""Socket option SO_ATTACH_FILTER (asm-generic/socket.h)."""
MAX_PORTS = 64
"""A conditional jump reaches 255 instructions."""
TUNNEL_PORTS = (*VXLAN_PORTS, GENEVE_PORT, MPLS_PORT)
TUNNELS = (GRE, IPV4_INSIDE, IPV6_INSIDE, MPLS_INSIDE)
SEVERAL_TAGS = 2
EXTENSIONS = (0, 43, 60)
"""IPv6 headers that begin with the next header and their length: hop-by-hop, routing, destination (RFC 8200, 4)."""
FRAGMENT = 44

LDB_ABS, LDH_ABS, LDW_ABS = 0x30, 0x28, 0x20
LDH_IND, LDX_IHL, LDX_IMM = 0x48, 0xB1, 0x01
ADD, SHIFT_LEFT, TAX, RETURN = 0x04, 0x64, 0x07, 0x06
JUMP, EQUAL, ANY_BIT = 0x05, 0x15, 0x45

PROTOCOL, PACKET_TYPE = 0xFFFFF000, 0xFFFFF004
"""Where the kernel answers with what it knows of a packet (linux/filter.h, SKF_AD_OFF)."""
OUTGOING = 4

Step = tuple[int, int, str, str]
"""Code, operand, where to go on if the condition holds and if not; '' is the next instruction."""


@dataclass(frozen=True, slots=True)
class Filter:
    """Which packets the kernel passes on."""

    ports: tuple[int, ...]
    """TCP ports of iWARP."""
    all_tcp: bool = False
    tunnels: bool = False
    """VXLAN, GENEVE, GRE, MPLS and IP in IP, whatever is inside."""

    @property
    def words(self) -> str:
        """As tcpdump takes it, so that a reader of the capture knows what cannot be in it."""
        parts = [f"udp dst port {ROCE_PORT}", f"ether proto {ROCE_ETHERTYPE:#x}"]
        parts += ["tcp"] if self.all_tcp else [f"tcp port {port}" for port in self.ports]
        if self.tunnels:
            parts += [f"udp dst port {port}" for port in TUNNEL_PORTS]
            parts += [f"{ip} proto {kind}" for kind in TUNNELS for ip in ("ip", "ip6")] + ["mpls"]
        return " or ".join(parts)

    def program(self, snaplen: int, cooked: bool, incoming_only: bool = False) -> bytes:
        """The instructions, 8 bytes each in the machine's byte order; they return ``snaplen`` or 0.

        ``cooked``: frames come without link header.  ``incoming_only``: what the loopback interface sends it also
        receives.
        """
        if len(self.ports) > MAX_PORTS:
            raise CaptureError(f"{len(self.ports)} ports are more than the {MAX_PORTS} that a filter has room for")
        return assemble(list(self._steps(snaplen, cooked, incoming_only)))

    def _steps(self, snaplen: int, cooked: bool, incoming_only: bool) -> Iterator[Step | str]:
        if incoming_only:
            yield from ((LDW_ABS, PACKET_TYPE, "", ""), (EQUAL, OUTGOING, "drop", ""))
        if cooked:
            yield (LDW_ABS, PROTOCOL, "", "")
            yield from self._network(0, "drop")
        else:
            for tags in range(SEVERAL_TAGS + 1):
                yield f"tag{tags}"
                yield (LDH_ABS, 12 + 4 * tags, "", "")
                further = f"tag{tags + 1}" if tags < SEVERAL_TAGS else "drop"
                yield from self._network(14 + 4 * tags, further)
                # Each part has its own ends: jumps are short.
                yield from (f"keep@{14 + 4 * tags}", (RETURN, snaplen, "", ""))
                yield from (f"drop@{14 + 4 * tags}", (RETURN, 0, "", ""))
        yield from ("drop", (RETURN, 0, "", ""))
        if cooked:
            yield from ("keep@0", (RETURN, snaplen, "", ""), "drop@0", (RETURN, 0, "", ""))

    def _network(self, ip: int, further: str) -> Iterator[Step | str]:
        """The EtherType is loaded; the IP header would begin at ``ip``."""
        keep, drop, four, six, further_here = (f"{name}@{ip}" for name in ("keep", "drop", "four", "six", "tag"))
        transport = f"transport@{ip}"
        yield (EQUAL, IPV4, four, "")
        yield (EQUAL, IPV6, six, "")
        yield (EQUAL, ROCE_ETHERTYPE, keep, "")
        if self.tunnels:
            yield from ((EQUAL, kind, keep, "") for kind in MPLS)
        if further != "drop":
            yield from ((EQUAL, kind, further_here, "") for kind in TAGS)
        yield (JUMP, 0, drop, "")
        if further != "drop":
            yield from (further_here, (JUMP, 0, further, ""))

        yield four  # RFC 791, 3.1
        yield from ((LDH_ABS, ip + 6, "", ""), (ANY_BIT, 0x1FFF, drop, ""))
        yield from ((LDX_IHL, ip, "", ""), (LDB_ABS, ip + 9, "", ""), (JUMP, 0, transport, ""))

        yield six  # RFC 8200, 3 and 4; one extension header is looked behind
        yield from ((LDX_IMM, 40, "", ""), (LDB_ABS, ip + 6, "", ""))
        yield from ((EQUAL, kind, f"extension@{ip}", "") for kind in EXTENSIONS)
        yield from ((EQUAL, FRAGMENT, "", transport), (LDH_ABS, ip + 42, "", ""), (ANY_BIT, 0xFFF8, drop, ""))
        yield from ((LDX_IMM, 48, "", ""), (LDB_ABS, ip + 40, "", ""), (JUMP, 0, transport, ""))
        yield f"extension@{ip}"
        yield from ((LDB_ABS, ip + 41, "", ""), (SHIFT_LEFT, 3, "", ""), (ADD, 48, "", ""), (TAX, 0, "", ""))
        yield (LDB_ABS, ip + 40, "", "")

        yield transport  # A is the protocol, X the length of the IP header
        yield (EQUAL, UDP, f"udp@{ip}", "")
        if self.tunnels:
            yield from ((EQUAL, kind, keep, "") for kind in TUNNELS)
        yield (EQUAL, TCP, keep if self.all_tcp else "", drop)
        if not self.all_tcp:
            for at in (ip, ip + 2):
                yield (LDH_IND, at, "", "")
                yield from ((EQUAL, port, keep, "") for port in self.ports)
        yield (JUMP, 0, drop, "")
        yield from (f"udp@{ip}", (LDH_IND, ip + 2, "", ""))
        if self.tunnels:
            yield from ((EQUAL, port, keep, "") for port in TUNNEL_PORTS)
        yield (EQUAL, ROCE_PORT, keep, drop)


def assemble(steps: list[Step | str]) -> bytes:
    """The program, with labels (strings among the steps) replaced by distances."""
    places: dict[str, int] = {}
    program: list[Step] = []
    for step in steps:
        if isinstance(step, str):
            places[step] = len(program)
        else:
            program.append(step)
    code = bytearray()
    for at, (operation, operand, yes, no) in enumerate(program):
        near, far = (places[label] - at - 1 if label else 0 for label in (yes, no))
        if operation == JUMP:
            operand, near = near, 0
        code += struct.pack("=HBBI", operation, near, far, operand)
    return bytes(code)


BLOCK = 1 << 18
"""Bytes; a frame never crosses a block: longer ones, super-frames of segmentation offload at most, are truncated."""
LASTING = 20_000
"""Milliseconds in which blocks that are given over early take half of the ring, if it is large enough."""
SOONEST, LATEST = 40, 200
"""Milliseconds after which a block is given over that is not full: later would show on a screen."""
TOGETHER = 16 << 20
"""Bytes of blocks that become one batch."""

NOTHING = struct.pack("=HBBI", RETURN, 0, 0, 0)
"""The filter that no frame passes: classic BPF's "return 0"."""

SOL_PACKET = 263
ADD_MEMBERSHIP, RX_RING, STATISTICS, VERSION = 1, 5, 6, 10
TPACKET_V3 = 2
PROMISCUOUS = 1
ETH_P_ALL = 3
OURS = 1
"""TP_STATUS_USER."""
TAGGED, TAG_NAMED = 1 << 4, 1 << 6
"""TP_STATUS_VLAN_VALID, TP_STATUS_VLAN_TPID_VALID."""

BLOCK_STATUS = 8
BLOCK_HEAD = struct.Struct("=8xIIII")
"""struct tpacket_block_desc: status, packets, offset of the first, bytes used."""

HEAD = np.dtype(
    {
        "names": ["next", "second", "nanosecond", "captured", "original", "status", "mac", "tag", "tag_type"],
        "formats": ["u4", "u4", "u4", "u4", "u4", "u4", "u2", "u4", "u2"],
        "offsets": [0, 4, 8, 12, 16, 20, 24, 32, 36],
        "itemsize": 48,
    }
)
"""struct tpacket3_hdr."""
ADDRESS = np.dtype(
    {
        "names": ["protocol", "index", "hardware", "kind", "length", "address"],
        "formats": [">u2", "i4", "u2", "u1", "u1", "V8"],
        "offsets": [2, 4, 8, 10, 11, 12],
        "itemsize": 20,
    }
)
"""struct sockaddr_ll, behind the head."""
SLL2 = np.dtype(
    [
        ("protocol", ">u2"),
        ("reserved", "u2"),
        ("index", ">i4"),
        ("hardware", ">u2"),
        ("kind", "u1"),
        ("length", "u1"),
        ("address", "V8"),
    ]
)
"""https://www.tcpdump.org/linktypes/LINKTYPE_LINUX_SLL2.html"""
TAG = np.dtype([("type", ">u2"), ("control", ">u2")])
"""IEEE 802.1Q, 9.5."""


class PacketRing:
    """An open capture on one interface, or on all of them.

    Frames of Ethernet come as they are, with the VLAN tag put back that the kernel took out; those of other
    interfaces, and of all together, with a Linux cooked header (v2).
    """

    def __init__(self, device: Device, filter: Filter, snaplen: int, buffer: int, promiscuous: bool) -> None:
        self.device = device
        self.snaplen = snaplen
        self.words = filter.words
        self.received = self.dropped = 0
        self._cooked = not device.ethernet
        self.link_type = LINUX_SLL2 if self._cooked else ETHERNET
        self._blocks = max(2, buffer // BLOCK)
        self._timeout = max(SOONEST, min(LATEST, 2 * LASTING // self._blocks))
        self._at = 0
        self._number = 0
        try:
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM if self._cooked else socket.SOCK_RAW, 0)
        except PermissionError:
            raise CaptureError(no_permission(device)) from None
        except OSError as error:
            raise CaptureError(f"{device}: {error.strerror}") from None
        try:
            self._begin(filter.program(snaplen, self._cooked, device.loopback), promiscuous)
        except OSError as error:
            self._socket.close()
            if error.errno == errno.ENOMEM:
                raise CaptureError(f"{device}: no memory for a ring of {buffer >> 20} MiB; try --buffer 8MB") from None
            raise CaptureError(f"{device}: {error.strerror}") from None
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)

    def _begin(self, program: bytes, promiscuous: bool) -> None:
        packet, device = self._socket, self.device
        # Nothing comes before the socket is bound, and then the filter is there.
        self._attach(program)
        packet.setsockopt(SOL_PACKET, VERSION, TPACKET_V3)
        ring = struct.pack("7I", BLOCK, self._blocks, 2048, self._blocks * (BLOCK // 2048), self._timeout, 0, 0)
        packet.setsockopt(SOL_PACKET, RX_RING, ring)
        self._ring = mmap.mmap(packet.fileno(), BLOCK * self._blocks)
        if promiscuous and device.interface != EVERY:
            packet.setsockopt(SOL_PACKET, ADD_MEMBERSHIP, struct.pack("iHH8s", device.index, PROMISCUOUS, 0, b""))
        address = struct.pack("=HHiHBB8s", socket.AF_PACKET, socket.htons(ETH_P_ALL), device.index, 0, 0, 0, b"")
        # Python's own bind takes no interface for all of them.
        if ctypes.CDLL(None, use_errno=True).bind(packet.fileno(), address, len(address)):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    def _attach(self, program: bytes) -> None:
        code = ctypes.create_string_buffer(program)
        self._socket.setsockopt(
            socket.SOL_SOCKET, SO_ATTACH, struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code))
        )

    def fileno(self) -> int:
        return self._socket.fileno()

    def read(self) -> FrameBatch | None:
        parts: list[Bytes] = []
        starts: list[Int64s] = []
        size = 0
        while size < TOGETHER:
            base = self._at * BLOCK
            status, count, first, used = BLOCK_HEAD.unpack_from(self._ring, base)
            if not status & OURS:
                break
            # Copied, because payloads are looked at when the kernel has long filled the block again.
            part = np.frombuffer(self._ring, np.uint8, min(used, BLOCK), base).copy()
            struct.pack_into("=I", self._ring, base + BLOCK_STATUS, 0)
            self._at = (self._at + 1) % self._blocks
            if count:
                starts.append(_starts(part, first, count) + size)
                parts.append(part)
                size += len(part)
        if not parts:
            self._check()
            return None
        data = parts[0] if len(parts) == 1 else np.concatenate(parts)
        return self._batch(data, np.concatenate(starts))

    def _batch(self, data: Bytes, at: Int64s) -> FrameBatch:
        heads = gather(data, at, HEAD)
        rows = np.zeros(len(at), FRAME)
        rows["number"] = np.arange(self._number + 1, self._number + 1 + len(at))
        self._number += len(at)
        rows["time"] = heads["second"].astype(np.int64) * 1_000_000_000 + heads["nanosecond"]
        rows["offset"] = at + heads["mac"]
        rows["captured"], rows["original"] = heads["captured"], heads["original"]
        rows["link_type"] = self.link_type
        if self._cooked:
            _cook(data, rows, gather(data, at + HEAD.itemsize, ADDRESS))
        else:
            _tag(data, rows, heads)
        data.flags.writeable = False
        return FrameBatch(data, rows)

    def _check(self) -> None:
        """Whether more can come."""
        if not any(event & select.POLLERR for _, event in self._poll.poll(0)):
            return
        number = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if number in (0, errno.ENETDOWN):
            try:
                there = self.device.interface == EVERY or self.device.interface == socket.if_indextoname(
                    self.device.index
                )
            except OSError:
                there = False
            if there:
                return  # down for now; the kernel goes on when it is up again
            raise CaptureError(f"{self.device}: the interface is gone")
        raise CaptureError(f"{self.device}: {os.strerror(number)}")

    def refuse(self) -> None:
        # Without this, a frame between the last read and the counters' would count, and never be seen.
        self._attach(NOTHING)

    def count(self) -> None:
        # The kernel begins anew at 0 with every answer; it counts what it dropped among what came.
        came, dropped = struct.unpack("=II", self._socket.getsockopt(SOL_PACKET, STATISTICS, 12)[:8])
        self.received += came
        self.dropped += dropped

    def close(self) -> None:
        self._ring.close()
        self._socket.close()


def _starts(block: Bytes, first: int, count: int) -> Int64s:
    """Where the packets of a block are."""
    step = struct.Struct("=I").unpack_from
    view = block.data
    starts: list[int] = []
    at, last = first, len(block) - HEAD.itemsize - ADDRESS.itemsize
    for _ in range(count):
        if at > last:
            break
        starts.append(at)
        at += step(view, at)[0]
    return np.array(starts, np.int64)


def _cook(data: Bytes, rows: Rows, addresses: Rows) -> None:
    """Put the cooked header into the room that the kernel left in front of each packet."""
    cooked = np.zeros(len(rows), SLL2)
    for name in ("protocol", "index", "hardware", "kind", "length", "address"):
        cooked[name] = addresses[name]
    rows["offset"] -= SLL2.itemsize
    rows["captured"] += SLL2.itemsize
    rows["original"] += SLL2.itemsize
    scatter(data, rows["offset"], cooked)


def _tag(data: Bytes, rows: Rows, heads: Rows) -> None:
    """Put the VLAN tags back that the kernel took out."""
    tagged = np.flatnonzero((heads["status"] & TAGGED != 0) & (rows["captured"] >= 12))
    if not len(tagged):
        return
    named = heads["status"][tagged] & TAG_NAMED != 0
    tags = np.zeros(len(tagged), TAG)
    tags["type"] = np.where(named, heads["tag_type"][tagged], 0x8100)
    tags["control"] = heads["tag"][tagged]
    offset = rows["offset"][tagged]
    scatter(data, offset - 4, gather(data, offset, "V12"))
    scatter(data, offset + 8, tags)
    rows["offset"][tagged] -= 4
    rows["captured"][tagged] += 4
    rows["original"][tagged] += 4


def no_permission(device: Device) -> str:
    """What to do.  The right to capture is asked for no interpreter that other programs and users run, too."""
    python, environment = Path(sys.executable).resolve(), Path(sys.prefix).resolve()
    if sys.prefix != sys.base_prefix and python.is_relative_to(environment):
        tool, package, advice = "setcap", "libcap2-bin", f"once: sudo setcap cap_net_raw+ep {quote(str(python))}"
    else:
        tool = package = "tcpdump"
        name = quote(device.interface or device.name)
        advice = f"let tcpdump capture: sudo tcpdump -i {name} -s 0 -U -w - | rdmascope live -"
    if which(tool, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin") is None:
        advice += f" (after: apt install {package})"
    return f"{device}: no permission to capture; run it as root, or {advice}"


PATIENCE = 5
"""Seconds for tcpdump or ssh to end."""
COUNTERS = re.compile(r"(\d+) packets? (received by filter|dropped by kernel)")


class Tcpdump:
    """A tcpdump, of this host or behind ssh: what it counted and says on standard error, which a thread reads."""

    def __init__(self, command: Sequence[str], **pipes: Any) -> None:
        """Starts ``command``; raises OSError where there is no such program."""
        self.received: int | None = None
        """Frames, as far as it has said so; likewise ``dropped``."""
        self.dropped: int | None = None
        self._said: list[str] = []
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **pipes)
        assert self.process.stdout is not None
        self.output = f"/dev/fd/{self.process.stdout.fileno()}"
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    @property
    def reason(self) -> str:
        """What was said last; '' where nothing was."""
        return next((line for line in reversed(self._said) if line), "")

    def wait(self) -> int:
        """For its end, but not for ever; gives the status."""
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._listener.join(PATIENCE)
        return self.process.returncode

    def _listen(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            text = line.decode(errors="replace").strip()
            for number, what in COUNTERS.findall(text):
                if what.startswith("received"):
                    self.received = int(number)
                else:
                    self.dropped = int(number)
            if text and "listening on" not in text and "packets " not in text and not COUNTERS.search(text):
                self._said = [*self._said[-3:], text.removeprefix("tcpdump: ")]


class Sniffer:
    """An open capture on an adapter."""

    def __init__(self, device: Device, filter: Filter, snaplen: int, program: str = "tcpdump") -> None:
        self.device = device
        self.snaplen = snaplen
        self.words = filter.words
        self.link_type = ETHERNET
        self._handover = Handover()
        command = [program, "-i", device.name, "-U", "--immediate-mode", "--time-stamp-precision=nano", "-w", "-"]
        try:
            self._tcpdump = Tcpdump([*command, "-s", str(snaplen), self.words])
        except OSError as error:
            self._handover.close()
            why = "is not installed" if isinstance(error, FileNotFoundError) else error.strerror
            raise CaptureError(
                f"{device}: RDMA of an adapter is captured by {program}, which {why}: apt install tcpdump"
            ) from None
        self._taker = threading.Thread(target=self._take, daemon=True)
        self._taker.start()

    @property
    def received(self) -> int:
        return self._tcpdump.received or 0

    @property
    def dropped(self) -> int | None:
        return self._tcpdump.dropped or 0

    def fileno(self) -> int:
        return self._handover.fileno()

    def read(self) -> FrameBatch | None:
        return self._handover.take()

    def refuse(self) -> None:
        """tcpdump goes on until it is closed."""

    def count(self) -> None:
        if self._tcpdump.process.poll() is None:
            self._tcpdump.process.send_signal(signal.SIGUSR1)

    def close(self) -> None:
        self._handover.stop()
        if self._tcpdump.process.poll() is None:
            self._tcpdump.process.send_signal(signal.SIGINT)
        self._tcpdump.wait()
        self._taker.join(PATIENCE)
        self._handover.close()

    def _take(self) -> None:
        """Reads what tcpdump captures, in a thread."""
        # tcpdump ended; it says why itself.
        with suppress(CaptureError), open_capture(self._tcpdump.output) as capture:
            for batch in capture.batches():
                self._handover.put(batch)
        self._tcpdump.process.wait()
        status = self._tcpdump.wait()
        reason = self._tcpdump.reason.removeprefix(f"{self.device.name}: ")
        self._handover.put(CaptureError(f"{self.device}: {reason or f'tcpdump ended with status {status}'}"))


THERE = (
    "{{ {tcpdump} </dev/null 3<&- & p=$!;"
    " {{ while read l <&3; do kill -USR1 $p; done; kill $p; }} >/dev/null 2>&1 & w=$!;"
    " wait $p; s=$?; while kill -0 $p; do wait $p; s=$?; done 2>/dev/null; kill $w 2>/dev/null; exit $s; }} 3<&0"
)
"""What a shell does on the other host: for each line on its standard input tcpdump says what it counted, and with the
end of that tcpdump ends, also where ssh or this process was killed."""


class RemoteSource:
    """tcpdump on HOST, captured on DEVICE there; its clock is that host's."""

    def __init__(self, host: str, name: str, filter: Filter, snaplen: int, buffer: int, program: str = "ssh") -> None:
        """Waits for the first bytes; ``buffer``: bytes that the kernel there may keep before it drops.

        Raises CaptureError with what ssh or tcpdump says.
        """
        if host.startswith("-"):
            raise CaptureError(f"{host}: is no host")
        self.words = filter.words
        self._closed = False
        # Not in immediate mode, in which the kernel wakes tcpdump for every frame, and drops under load.
        tcpdump = ["tcpdump", "-i", name, "-U", "-B", str(max(1, buffer >> 10)), "-s", str(snaplen), "-w", "-"]
        there = THERE.format(tcpdump=shlex.join([*tcpdump, self.words]))
        # What runs there is one line for a shell, whichever it is.
        line = shlex.join(["sh", "-c", there])
        command = [program, "-o", "BatchMode=yes", "-o", "ServerAliveInterval=10", host, line]
        try:
            self._tcpdump = Tcpdump(command, stdin=subprocess.PIPE, start_new_session=True)
        except OSError as error:
            why = "is not installed" if isinstance(error, FileNotFoundError) else error.strerror
            raise CaptureError(f"{host}: {program} {why}") from None
        assert self._tcpdump.process.stdin is not None
        self._orders = self._tcpdump.process.stdin
        try:
            self._stream = StreamSource(self._tcpdump.output)
        except CaptureError as error:
            self._end()
            raise CaptureError(f"{host}: {self._tcpdump.reason or error}") from None
        self.device = Device(f"{host}:{name}", STREAM)
        self.link_type, self.snaplen = self._stream.link_type, self._stream.snaplen

    @property
    def received(self) -> int:
        counted = self._tcpdump.received
        return self._stream.received if counted is None else counted

    @property
    def dropped(self) -> int | None:
        """None until the tcpdump there says so."""
        return self._tcpdump.dropped

    def fileno(self) -> int:
        return self._stream.fileno()

    def read(self) -> FrameBatch | None:
        try:
            return self._stream.read()
        except StreamEnded:
            closed = self._closed
            status = self._end()
            if status and not closed:
                why = self._tcpdump.reason or f"ssh ended with status {status}"
                raise CaptureError(f"{self.device}: {why}") from None
            raise StreamEnded(f"{self.device}: the capture there ended") from None

    def refuse(self) -> None:
        """End the tcpdump there; what it says last is how many frames were dropped."""
        self._closed = True
        with suppress(OSError):
            self._orders.close()

    def count(self) -> None:
        """Have the tcpdump there say what it counted; that comes later."""
        if not self._closed:
            with suppress(OSError):
                self._orders.write(b"\n")
                self._orders.flush()

    def close(self) -> None:
        self._stream.close()
        self._end()

    def _end(self) -> int:
        self.refuse()
        return self._tcpdump.wait()
