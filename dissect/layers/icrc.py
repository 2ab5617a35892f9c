"""The Invariant CRC of RoCE packets, and the Variant CRC of native InfiniBand packets: computed and verified on bytes,
one packet or a column of them.

The ICRC is the CRC-32 of Ethernet over everything that routers must not change.  Eight bytes of ones stand
for the Local Route Header, or for the lack of one; in a native InfiniBand packet without a Global Route Header,
which no router forwards, it counts itself, with ones for its virtual lane.  Other fields that may change on the
way count as ones: IPv4 type of service, time to live and header checksum; IPv6 (and GRH) traffic class, flow
label and hop limit; the UDP checksum; FECN, BECN and the six reserved bits behind them in the BTH.  IBA volume 1,
7.8.1; annex A16 (RoCE); annex A17 (RoCEv2).

The VCRC is a CRC-16 (polynomial 0x100B, seed of ones, complemented, least significant bit first) over all bytes
from the Local Route Header to the ICRC.  Every switch computes it anew.  IBA volume 1, 7.8.2.

Here a CRC is the integer that its bytes on the wire make when read big-endian, as Wireshark shows it; the CRC itself
goes out least significant byte first.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import pairwise, repeat

import numpy as np
from numpy.typing import NDArray

from ..arrays import Bytes, Int64s, Rows, anywhere, every, gather, gathered, piece_type, places, some, take
from ..frames import FrameBatch
from ..named_tuple import NamedTuple
from .opcodes import BTH_BYTES, EXTENDED_BYTES, ICRC_BYTES
from .transports import NATIVE

try:
    from isal.isal_zlib import crc32
except ImportError:  # On a processor that it has no code for.
    from zlib import crc32

RESIDUE = 0x2144DF1C
"""What ``crc32`` gives for any message followed by its CRC."""
MAX_BRIDGE = 128
"""Bytes between two packets of a run: the headers of the file and of the network in front of what is covered."""
MIN_BRIDGE = 4
RUN_BYTES = 1 << 20
"""A run is copied: it should stay within the processor's caches."""
MIN_PACKETS = 4
"""Fewer are verified as fast singly."""

_MASK = 0xFFFFFFFF


@cache
def bridge(size: int, start: int) -> bytes:
    """``size`` bytes, at least four, that lead the CRC from RESIDUE to ``start``."""
    table = [~crc32(bytes((byte,)), _MASK) & _MASK for byte in range(256)]
    by_top = {entry >> 24: byte for byte, entry in enumerate(table)}
    zeros = bytes(size - 4)
    register = ~start & _MASK
    for _ in range(4):  # Back over four bytes of zero.
        byte = by_top[register >> 24]
        register = ((register ^ table[byte]) << 8 | byte) & _MASK
    return zeros + (register ^ ~crc32(zeros, RESIDUE) & _MASK).to_bytes(4, "little")


def find_right(data: Bytes, begin: Int64s, end: Int64s, headers: NDArray[np.uint8], start: int) -> NDArray[np.bool_]:
    """Which packets are known to be right by runs; the others may be right or wrong.

    Args:
        data: the file.
        begin: where the packets start.
        end: behind their CRCs.
        headers: (packets, n): what counts in place of their first n bytes.
        start: the CRC of what counts in front of each packet.
    """
    right = np.zeros(len(begin), np.bool_)
    size = headers.shape[1]
    between = begin[1:] - end[:-1]
    joined = (between >= MIN_BRIDGE) & (between <= MAX_BRIDGE)
    joined &= (begin[1:] - begin[0]) // RUN_BYTES == (begin[:-1] - begin[0]) // RUN_BYTES
    edges = [0, *(places(~joined) + 1).tolist(), len(begin)]
    masked = np.ascontiguousarray(headers).view(piece_type(size))[:, 0]
    runs = [(first, last) for first, last in pairwise(edges) if last - first >= MIN_PACKETS]
    # All in the same memory: to get some for each takes as long as its CRC.
    buffer = np.empty(max([int(end[last - 1] - begin[first]) for first, last in runs], default=0), np.uint8)
    for first, last in runs:
        origin = int(begin[first])
        run = buffer[: int(end[last - 1]) - origin]
        run[:] = data[origin : origin + len(run)]
        anywhere(run, size)[begin[first:last] - origin] = masked[first:last]
        gaps, after = between[first : last - 1], end[first : last - 1] - origin
        for gap in places(np.bincount(gaps)).tolist():
            filling = np.frombuffer(bridge(gap, start), piece_type(gap))
            anywhere(run, gap)[after[gaps == gap]] = filling
        if crc32(run.data, start) != RESIDUE:
            break  # Where one is damaged, or a host's are all wrong, more are to be expected.
        right[first:last] = True
    return right


UDP_BYTES = 8
IPV4_UDP = 20 + UDP_BYTES
"""Bytes of an IPv4 header without options, and of the UDP header."""
ROCE_PORT = 4791
IPV6_BYTES = 40
LRH_BYTES = 8

_UDP, _BTH_IN_GRH = 17, 0x1B
_EXTENSIONS = (0, 43, 60, 135, 139, 140)
"""IPv6 extension headers with a length in units of eight bytes (RFC 8200, 4); fragments are not here."""


class PacketExtent(NamedTuple):
    """Where the parts of a packet are, counted from its IPv4 header, IPv6 header or GRH."""

    ipv4: bool
    udp: bool
    bth: int
    end: int
    """Behind the ICRC, as the network header says."""


def icrc(packet: bytes | bytearray | memoryview) -> int | None:
    """The ICRC that belongs behind ``packet``.

    ``packet`` runs from the IPv4 header, IPv6 header or GRH to the last byte before the ICRC, pad included;
    its length fields already count the ICRC.  None where the headers are none of a RoCE packet.
    """
    packet = bytes(packet)
    extent = find_extent(packet)
    if extent is None or len(packet) < extent.bth + BTH_BYTES:
        return None
    masked = extent.bth + BTH_BYTES
    variant = _variant(extent.ipv4, extent.udp, extent.bth)
    return _finish(crc32(packet[masked:], crc32(_ones(packet[:masked], variant))))


def verify(packet: bytes | bytearray | memoryview) -> bool | None:
    """Whether the ICRC of ``packet`` is right.

    ``packet`` starts with its IPv4 header, IPv6 header or GRH; bytes behind the length that this header gives
    (Ethernet padding) are ignored.  None where the packet is truncated or is no RoCE packet.
    """
    packet = bytes(packet)
    extent = find_extent(packet)
    if extent is None or len(packet) < extent.end or extent.end < extent.bth + BTH_BYTES + ICRC_BYTES:
        return None
    end = extent.end - ICRC_BYTES
    return icrc(packet[:end]) == int.from_bytes(packet[end : extent.end], "big")


def icrc_local(packet: bytes | bytearray | memoryview) -> int | None:
    """The ICRC that belongs behind ``packet``, which runs from a Local Route Header with a BTH behind it."""
    packet = bytes(packet)
    masked = LRH_BYTES + BTH_BYTES
    if len(packet) < masked:
        return None
    head = (int.from_bytes(packet[:masked], "big") | int.from_bytes(_LOCAL_VARIANT, "big")).to_bytes(masked, "big")
    return _finish(crc32(packet[masked:], crc32(head)))


def verify_local(packet: bytes | bytearray | memoryview) -> bool | None:
    """Whether the ICRC of ``packet`` is right; it starts with a Local Route Header with a BTH behind it.

    Bytes behind the length that the header gives (a VCRC) are ignored.  None where the packet is truncated or
    is none such.
    """
    packet = bytes(packet)
    if len(packet) < LRH_BYTES or packet[1] & 3 != 2:
        return None
    end = (int.from_bytes(packet[4:6], "big") & 0x7FF) * 4
    if end < LRH_BYTES + BTH_BYTES + ICRC_BYTES or len(packet) < end:
        return None
    return icrc_local(packet[: end - ICRC_BYTES]) == int.from_bytes(packet[end - ICRC_BYTES : end], "big")


def find_extent(packet: bytes) -> PacketExtent | None:
    """Where the BTH starts and the packet ends; None where ``packet`` does not start with headers of RoCE."""
    if len(packet) < 20:
        return None
    if packet[0] >> 4 == 4:
        at = (packet[0] & 15) * 4
        fragment = (packet[6] & 0x3F) | packet[7]
        if at < 20 or packet[9] != _UDP or fragment or not _is_roce(packet, at):
            return None
        return PacketExtent(True, True, at + UDP_BYTES, int.from_bytes(packet[2:4], "big"))
    if packet[0] >> 4 != 6 or len(packet) < IPV6_BYTES:
        return None
    end = IPV6_BYTES + int.from_bytes(packet[4:6], "big")
    protocol, at = packet[6], IPV6_BYTES
    if protocol == _BTH_IN_GRH:
        return PacketExtent(False, False, at, end)
    while protocol in _EXTENSIONS and at + 2 <= len(packet):
        protocol, at = packet[at], at + (packet[at + 1] + 1) * 8
    if protocol != _UDP or not _is_roce(packet, at):
        return None
    return PacketExtent(False, True, at + UDP_BYTES, end)


def _is_roce(packet: bytes, udp: int) -> bool:
    return int.from_bytes(packet[udp + 2 : udp + 4], "big") == ROCE_PORT


@cache
def _variant(ipv4: bool, udp: bool, bth: int) -> bytes:
    """Ones where the bytes from the network header to the end of the BTH do not count."""
    mask = bytearray(bth + BTH_BYTES)
    if ipv4:
        mask[1] = mask[8] = mask[10] = mask[11] = 0xFF
    else:
        mask[0] = 0x0F
        mask[1] = mask[2] = mask[3] = mask[7] = 0xFF
    if udp:
        mask[bth - 2] = mask[bth - 1] = 0xFF
    mask[bth + 4] = 0xFF
    return bytes(mask)


_LOCAL_VARIANT = b"\xf0" + bytes(LRH_BYTES - 1 + 4) + b"\xff" + bytes(BTH_BYTES - 5)
"""Ones for the virtual lane of a Local Route Header, and for what does not count in the BTH behind it."""


def _ones(header: bytes, variant: bytes) -> bytes:
    """The header with ones in its variant fields, behind the eight bytes of ones."""
    size = len(header)
    masked = int.from_bytes(header, "big") | int.from_bytes(variant, "big")
    return b"\xff" * 8 + masked.to_bytes(size, "big")


def _finish(crc: int) -> int:
    return int.from_bytes(crc.to_bytes(4, "little"), "big")


def packet_ends(rows: Rows) -> Int64s:
    """Where the ICRCs of PACKET rows end."""
    ends: Int64s = rows["bth"] + BTH_BYTES + EXTENDED_BYTES[rows["opcode"]] + rows["length"] + rows["pad"] + ICRC_BYTES
    return ends


def lrh_starts(data: Bytes, rows: Rows, start: Int64s, end: Int64s) -> Int64s:
    """Where the Local Route Headers of PACKET rows are, -1 where there is none; frames start at ``start``.

    Rows do not say whether a Global Route Header follows, so the header is that which fits the packet.
    """
    starts = np.full(len(rows), -1, np.int64)
    bth = rows["bth"]
    for following, before in ((3, LRH_BYTES + IPV6_BYTES), (2, LRH_BYTES)):
        at = bth - before
        where = places((rows["transport"] == NATIVE) & (at >= start))
        at = at[where]
        words = (data[at + 4].astype(np.int64) << 8 | data[at + 5]) & 0x7FF
        fits = (data[at + 1] & 3 == following) & (at + words * 4 == end[where])
        if following == 3:
            fits &= (data[at + LRH_BYTES] >> 4 == 6) & (data[at + LRH_BYTES + 6] == _BTH_IN_GRH)
        starts[where[fits]] = at[fits]
    return starts


RIGHT, WRONG, UNVERIFIED = 1, 0, -1
_VERDICTS = {RIGHT: True, WRONG: False, UNVERIFIED: None}
_SHAPES = [(True, True, IPV4_UDP), (False, True, IPV6_BYTES + UDP_BYTES), (False, False, IPV6_BYTES)]
_SHAPES += [(True, True, 4 * words + UDP_BYTES) for words in range(6, 16)]
"""IPv4 or IPv6, with UDP or not, and the bytes before the BTH; usual ones first."""


def icrc_ok(batch: FrameBatch, rows: Rows) -> list[bool | None]:
    """Whether the ICRCs of some packets of a batch are right; None where one is not wholly captured."""
    return [_VERDICTS[verdict] for verdict in icrc_verdicts(batch, rows).tolist()]


def icrc_verdicts(batch: FrameBatch, rows: Rows) -> NDArray[np.int8]:
    """RIGHT, WRONG or UNVERIFIED for some packets of a batch; the last where one is not wholly captured.

    ``rows`` are PACKET rows that were decoded from ``batch``.  They do not say where the network header
    starts, so it is looked for in front of the BTH: the IPv4 header, IPv6 header, GRH or LRH whose length and
    protocol fields fit the packet.  Where none fits it is unverified, too.
    """
    bth = rows["bth"].astype(np.int64)
    end = packet_ends(rows)
    frames = take(batch.rows, batch.indices(rows["frame"]))
    start, stop = frames["offset"], frames["offset"] + frames["captured"]
    verdicts = np.full(len(rows), UNVERIFIED, np.int8)
    open_ = end <= stop
    for ipv4, udp, before in _SHAPES:
        if not some(open_):
            break
        where = places(open_ & (bth - before >= start))
        begin, behind = bth[where] - before, end[where]
        headers = gathered(batch.data, before + BTH_BYTES, begin)
        fits = _fits(headers, behind - begin, ipv4, udp, before)
        if not every(fits):
            where, begin, behind, headers = where[fits], begin[fits], behind[fits], headers[fits]
        if not len(where):
            continue
        open_[where] = False
        verdicts[where] = _verify_shape(batch.data, begin, behind, headers, _variant(ipv4, udp, before))
    local = places(open_ & (rows["transport"] == NATIVE))
    if len(local):
        local = local[lrh_starts(batch.data, rows[local], start[local], end[local]) == bth[local] - LRH_BYTES]
        open_[local] = False
        begin = bth[local] - LRH_BYTES
        headers = gathered(batch.data, LRH_BYTES + BTH_BYTES, begin)
        verdicts[local] = _verify_shape(batch.data, begin, end[local], headers, _LOCAL_VARIANT, 0)
    for index in places(open_).tolist():
        verdict = _behind_extensions(batch.data, int(start[index]), int(bth[index]), int(end[index]))
        verdicts[index] = UNVERIFIED if verdict is None else verdict
    return verdicts


def _behind_extensions(data: Bytes, start: int, bth: int, end: int) -> bool | None:
    """The verdict for IPv6 with extension headers, in a frame that starts at ``start``."""
    for at in range(bth - UDP_BYTES - IPV6_BYTES - 8, start - 1, -8):
        if data[at] >> 4 == 6:
            packet = data[at:end].tobytes()
            if find_extent(packet) == PacketExtent(False, True, bth - at, end - at):
                return verify(packet)
    return None


def _fits(headers: NDArray[np.uint8], length: Int64s, ipv4: bool, udp: bool, before: int) -> NDArray[np.bool_]:
    """Whether these are network headers of a version, so many bytes before a BTH, of packets so long."""

    def word(at: int) -> Int64s:
        return headers[:, at].astype(np.int64) << 8 | headers[:, at + 1]

    if ipv4:
        protocol, place, total = _UDP, 9, word(2)
        version = headers[:, 0] == 0x40 | (before - UDP_BYTES) // 4
    else:
        protocol, place, total = (_UDP if udp else _BTH_IN_GRH), 6, word(4) + IPV6_BYTES
        version = headers[:, 0] >> 4 == 6
    fits: NDArray[np.bool_] = version & (headers[:, place] == protocol) & (total == length)
    if udp:
        fits &= word(before - 6) == ROCE_PORT
    return fits


def _verify_shape(
    data: Bytes, begin: Int64s, end: Int64s, headers: NDArray[np.uint8], variant: bytes, ones: int = 8
) -> NDArray[np.bool_]:
    """The verdicts for packets that share one shape of headers, behind a number of bytes of ones."""
    headers |= np.frombuffer(variant, np.uint8)
    start = crc32(b"\xff" * ones)
    right = find_right(data, begin, end, headers, start)
    single = places(~right)
    if len(single):
        right[single] = _verify_each(data, begin[single] + headers.shape[1], end[single], headers[single], start)
    return right


def _verify_each(
    data: Bytes, payload: Int64s, end: Int64s, headers: NDArray[np.uint8], start: int
) -> NDArray[np.bool_]:
    """The verdicts for packets by themselves; what counts of their headers is in ``headers``."""
    step = headers.shape[1]
    view: memoryview = data.data
    last = end - ICRC_BYTES
    # In a capture whose ICRCs are all wrong every packet comes here, so that no loop runs in Python.
    of_headers = map(
        crc32,
        map(memoryview(headers.tobytes()).__getitem__, _slices(range(0, len(end) * step, step), step)),
        repeat(start),
    )
    payloads = map(view.__getitem__, map(slice, payload.tolist(), last.tolist()))
    computed = np.fromiter(map(crc32, payloads, of_headers), np.uint32, len(end))
    right: NDArray[np.bool_] = gather(data, last, "<u4") == computed
    return right


def _slices(starts: range, size: int) -> Iterator[slice]:
    return map(slice, starts, range(size, starts.stop + size, size))


VCRC_BYTES = 2
POLYNOMIAL = 0xD008
"""0x100B, reflected."""
SLAB = 1 << 22
"""Bytes that are looked at together."""


@cache
def _steps() -> NDArray[np.uint16]:
    """What a byte makes of a CRC of zero."""
    crc = np.arange(256, dtype=np.uint16)
    for _ in range(8):
        crc = (crc >> np.uint16(1)) ^ (crc & np.uint16(1)) * np.uint16(POLYNOMIAL)
    return crc


@cache
def _tables(size: int) -> NDArray[np.uint16]:
    """What a byte at the i-th place of ``size`` bytes adds to their CRC, shape (size, 256)."""
    steps = _steps()
    tables = np.empty((size, 256), np.uint16)
    tables[-1] = steps
    for index in range(size - 2, -1, -1):
        after = tables[index + 1]
        tables[index] = (after >> np.uint16(8)) ^ steps[after & np.uint16(0xFF)]
    return tables


def vcrc(packet: bytes | bytearray | memoryview) -> int:
    """The VCRC that belongs behind ``packet``, which runs from the Local Route Header to the ICRC."""
    steps = _steps().tolist()
    crc = 0xFFFF
    for byte in bytes(packet):
        crc = crc >> 8 ^ steps[(crc ^ byte) & 0xFF]
    return int.from_bytes((crc ^ 0xFFFF).to_bytes(2, "little"), "big")


def verify_vcrc(packet: bytes | bytearray | memoryview) -> bool | None:
    """Whether the VCRC behind ``packet``, which starts with its Local Route Header, is right; None where truncated."""
    packet = bytes(packet)
    if len(packet) < 8:
        return None
    end = (int.from_bytes(packet[4:6], "big") & 0x7FF) * 4
    if end < 8 or len(packet) < end + VCRC_BYTES:
        return None
    return vcrc(packet[:end]) == int.from_bytes(packet[end : end + VCRC_BYTES], "big")


def vcrc_ok(batch: FrameBatch, rows: Rows) -> list[bool | None]:
    """Whether the VCRCs of some packets of a batch are right; None where there is none, or it was not captured.

    ``rows`` are PACKET rows that were decoded from ``batch``.
    """
    data = batch.data
    verdicts: list[bool | None] = [None] * len(rows)
    frames = take(batch.rows, batch.indices(rows["frame"]))
    stop = frames["offset"] + frames["captured"]
    end = packet_ends(rows)
    start = lrh_starts(data, rows, frames["offset"], end)
    whole = np.flatnonzero((start >= 0) & (end + VCRC_BYTES <= stop))
    sizes = (end - start)[whole]
    order = np.argsort(sizes, kind="stable")
    whole, sizes = whole[order], sizes[order]
    for same in np.split(whole, np.flatnonzero(np.diff(sizes)) + 1) if len(whole) else []:
        size = int(end[same[0]] - start[same[0]])
        for at in range(0, len(same), max(1, SLAB // size)):
            part = same[at : at + max(1, SLAB // size)]
            good = _column(data, start[part], size) == _stored(data, end[part])
            for index, verdict in zip(part.tolist(), good.tolist(), strict=True):
                verdicts[index] = verdict
    return verdicts


def _column(data: Bytes, start: Int64s, size: int) -> NDArray[np.uint16]:
    """The CRCs of packets of one size, at least 24 bytes."""
    packets = data[start[:, None] + np.arange(size)]
    packets[:, :2] ^= 0xFF  # the seed
    parts = _tables_of(size)[np.arange(size), packets]
    crc: NDArray[np.uint16] = ~np.bitwise_xor.reduce(parts, axis=1)
    return crc


def _tables_of(size: int) -> NDArray[np.uint16]:
    """The tables for the last ``size`` places; made for a power of two, so that few sizes make them anew."""
    room = 512
    while room < size:
        room *= 2
    return _tables(room)[-size:]


def _stored(data: Bytes, at: Int64s) -> NDArray[np.uint16]:
    return data[at].astype(np.uint16) | data[at + 1].astype(np.uint16) << np.uint16(8)
