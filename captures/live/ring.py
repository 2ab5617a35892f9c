"""Frames from a network interface, through a ring of memory that is shared with the kernel.

Linux, Documentation/networking/packet_mmap.rst, TPACKET_V3; structures from linux/if_packet.h, in the machine's
byte order.  The kernel fills block after block; a block is given over when it is full, and, if it has a frame, at every
tick of a clock.  While nothing reads, the clock alone uses up the ring, however few frames come: so blocks are small,
and the clock is slow.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import select
import socket
import struct
import sys
from pathlib import Path
from shlex import quote
from shutil import which

import numpy as np

from rdmascope.dissect.arrays import Bytes, Int64s, Rows
from rdmascope.dissect.frames import FRAME, FrameBatch
from rdmascope.dissect.link.numbers import ETHERNET, LINUX_SLL2

from ..errors import CaptureError
from ..read.streams import gather
from .device import EVERY, Device
from .filter import RETURN, SO_ATTACH, Filter

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
                raise CaptureError(f"{device}: no memory for a ring of {buffer >> 20} MiB; try --buffer 8") from None
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
    _put(data, rows["offset"], cooked)


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
    _put(data, offset - 4, gather(data, offset, "V12"))
    _put(data, offset + 8, tags)
    rows["offset"][tagged] -= 4
    rows["captured"][tagged] += 4
    rows["original"][tagged] += 4


def _put(data: Bytes, at: Int64s, records: Rows) -> None:
    size = records.dtype.itemsize
    whole = np.dtype((np.void, size))
    overlapping: Rows = np.ndarray((len(data) - size + 1,), whole, data, strides=(1,))
    overlapping[at] = records.view(whole)


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
