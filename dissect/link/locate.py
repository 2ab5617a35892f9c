"""Finds InfiniBand transport packets in frames, above all RoCEv2: link, IP and UDP headers, in columns.

Most batches have frames of one shape (say Ethernet, one VLAN tag, IPv4 without options, UDP to port 4791): one gather
and a few comparisons extract those.  Other frames are walked header by header.

All multi-byte header fields are big-endian.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Int64s, Rows, anywhere, places, some, take
from ..frames import FrameBatch
from ..layers.transports import ROCEV2, TRANSPORTS
from ..named_tuple import NamedTuple
from .addresses import AddressTable as AddressTable
from .numbers import COOKED, ETHERNET, IPV4, IPV4_ONLY, IPV6, IPV6_ONLY, RAW_IP, ROCE_PORT, TAGS, TCP, UDP
from .walk import FOUND, SHORTEST, WALK, count, count_carried, walk_headers


@dataclass(slots=True, eq=False)
class Located:
    """Where the InfiniBand transport packets of a batch are: columns, one row each, in capture order."""

    rows: Int64s
    """Indices into FrameBatch.rows."""
    bth: Int64s
    """Offset of the Base Transport Header in FrameBatch.data."""
    available: Int64s
    """Captured bytes from the BTH on, within the packet; may be 0."""
    length: Int64s
    """Bytes on the wire from the BTH up to and including the ICRC, at least 16."""
    source: NDArray[np.uint32]
    """Address ids."""
    destination: NDArray[np.uint32]
    source_port: NDArray[np.uint16]
    """UDP; 0 without it."""
    ecn: NDArray[np.uint8]
    """The IP header's ECN field (RFC 3168, 5): 3 is congestion experienced."""
    transport: NDArray[np.uint8]
    """Index into ``transports.TRANSPORTS``."""
    skipped: dict[str, int]
    """Frames that are something else, by what: 'ARP', 'TCP', 'UDP port 53', 'truncated before UDP', …"""
    odd: dict[str, int] = field(default_factory=dict)
    """Packets among the rows whose lengths contradict each other, by kind."""
    tcp: list[Rows] = field(default_factory=list)
    """WALK rows of frames with TCP, or with UDP that is no tunnel, for ``TcpFragments.segments``."""

    def __len__(self) -> int:
        return len(self.rows)


def locate(batch: FrameBatch, addresses: AddressTable) -> Located:
    """Find the packets of RoCEv2, RoCEv1 and InfiniBand in a batch.  Other frames, whatever they are, are counted."""
    skipped: Counter[str] = Counter()
    odd: Counter[str] = Counter()
    tcp: list[Rows] = []
    shape = _common_shape(batch)
    if shape is None:
        located = _columns(walk_headers(batch, np.arange(len(batch), dtype=np.int64), addresses, skipped, tcp))
    else:
        located, segments, rest = _fitting(batch, shape, addresses)
        if len(rest):
            walked = walk_headers(batch, rest, addresses, skipped, tcp)
            if len(walked):
                order = np.argsort(np.append(located["row"], walked["row"]), kind="stable")
                located = {name: np.append(column, walked[name])[order] for name, column in located.items()}
        if len(segments):
            count_carried(skipped, segments)
            tcp.append(segments)
    return _measured(located, skipped, odd, tcp)


Columns = dict[str, NDArray[Any]]
"""The columns of FOUND rows, separately: writing and reading rows takes three times as long."""


def _columns(located: Rows) -> Columns:
    return {name: np.ascontiguousarray(located[name]) for name in FOUND.names or ()}


def _measured(located: Columns, skipped: Counter[str], odd: Counter[str], tcp: list[Rows]) -> Located:
    """Decide how long each packet is.

    The UDP length counts, within the IP length, within the frame.  Only if UDP and IP agree may the packet be longer
    than the frame: then it was truncated before it reached the capture (by a slicing mirror, say).  Without UDP there
    is only one length."""
    bth = located["bth"]
    length = located["udp_length"] - 8
    by_ip = located["ip_end"] - bth
    by_frame = located["wire_end"] - bth
    sane = np.minimum(length, by_ip) >= SHORTEST
    if (beyond := length > by_ip).any():
        length = np.where(beyond, np.minimum(by_ip, by_frame), length)
        sane &= length >= SHORTEST
        count(odd, "UDP length beyond the IP packet", int(np.count_nonzero(beyond & sane)))
    if (outside := length > by_frame).any():
        agreed = length == by_ip
        length = np.where(agreed, length, np.minimum(length, by_frame))
        sane &= length >= SHORTEST
        count(odd, "IP packet longer than its frame", int(np.count_nonzero(outside & agreed & sane)))
        count(odd, "UDP length beyond the frame", int(np.count_nonzero(outside & ~agreed & sane)))
    if not sane.all():
        short = np.bincount(located["transport"][~sane], minlength=len(TRANSPORTS)).tolist()
        for number, name in enumerate(TRANSPORTS):
            count(skipped, "UDP port 4791, too short" if number == ROCEV2 else f"{name}, too short", short[number])
        located, length = {name: column[sane] for name, column in located.items()}, length[sane]
        bth = located["bth"]
    return Located(
        rows=located["row"],
        bth=bth,
        available=np.clip(located["end"] - bth, 0, length),
        length=length,
        source=located["source"],
        destination=located["destination"],
        source_port=located["source_port"],
        ecn=located["ecn"],
        transport=located["transport"],
        skipped=dict(skipped),
        odd=dict(odd),
        tcp=tcp,
    )


class Shape(NamedTuple):
    """Offsets of a frame's headers, if IPv4 has no options and IPv6 no extension headers."""

    link_type: int
    tags: int
    version: int

    @property
    def ethertype(self) -> int | None:
        """Offset of the EtherType of IP; None without one."""
        if self.link_type == ETHERNET:
            return 12 + 4 * self.tags
        if self.link_type in COOKED:
            return COOKED[self.link_type][0]
        return None

    @property
    def ip(self) -> int:
        """Offset of the IP header."""
        if self.link_type == ETHERNET:
            return 14 + 4 * self.tags
        return COOKED[self.link_type][1] if self.link_type in COOKED else 0


def _common_shape(batch: FrameBatch) -> Shape | None:
    """The most frequent shape in a sample of frames."""
    rows = batch.rows
    sample = rows[:: max(1, len(rows) // 12)][:16]
    shapes: Counter[Shape] = Counter()
    for offset, captured, link_type in zip(
        sample["offset"].tolist(), sample["captured"].tolist(), sample["link_type"].tolist(), strict=True
    ):
        head = batch.data[offset : offset + min(captured, 64)].tobytes()
        for tags in range(3 if link_type == ETHERNET else 1):
            shape = Shape(link_type, tags, head[14 + 4 * tags] >> 4 if len(head) > 14 + 4 * tags else 0)
            if link_type != ETHERNET:
                shape = shape._replace(version=head[shape.ip] >> 4 if len(head) > shape.ip else 0)
            at = shape.ethertype
            kind = {4: IPV4, 6: IPV6}.get(shape.version)
            if kind and (at is None or int.from_bytes(head[at : at + 2], "big") == kind):
                if at is not None or link_type in RAW_IP:
                    shapes[shape] += 1
                break
    return max(shapes, key=shapes.__getitem__) if shapes else None


@lru_cache(maxsize=32)
def _layout(shape: Shape) -> np.dtype[Any]:
    """One record from the start of a frame to the end of its UDP header."""
    ip = shape.ip
    fields: dict[str, tuple[str, int]] = {f"tag{i}": (">u2", 12 + 4 * i) for i in range(shape.tags)}
    if shape.ethertype is not None:
        fields["ethertype"] = (">u2", shape.ethertype)
    if shape.version == 4:  # RFC 791, 3.1
        udp = ip + 20
        fields |= {
            "version_ihl": ("u1", ip),
            "tos": ("u1", ip + 1),
            "total": (">u2", ip + 2),
            "fragment": (">u2", ip + 6),
            "protocol": ("u1", ip + 9),
            "source": (">u4", ip + 12),
            "destination": (">u4", ip + 16),
        }
    else:  # RFC 8200, 3
        udp = ip + 40
        fields |= {
            "version_class": (">u2", ip),
            "payload": (">u2", ip + 4),
            "protocol": ("u1", ip + 6),
            "source_high": (">u8", ip + 8),
            "source_low": (">u8", ip + 16),
            "destination_high": (">u8", ip + 24),
            "destination_low": (">u8", ip + 32),
        }
    fields |= {  # RFC 768
        "source_port": (">u2", udp),
        "destination_port": (">u2", udp + 2),
        "udp_length": (">u2", udp + 4),
    }
    return np.dtype(
        {
            "names": list(fields),
            "formats": [format for format, _ in fields.values()],
            "offsets": [offset for _, offset in fields.values()],
            "itemsize": udp + 8,
        }
    )


def _fitting(batch: FrameBatch, shape: Shape, addresses: AddressTable) -> tuple[Columns, Rows, Int64s]:
    """The columns of frames with this shape; WALK rows of those that have TCP instead of UDP; and the indices of all
    other frames."""
    layout = _layout(shape)
    size = layout.itemsize
    rows, data = batch.rows, batch.data
    candidates = (rows["captured"] >= size) & (rows["link_type"] == shape.link_type)
    everything = bool(candidates.all())
    index = np.arange(len(rows)) if everything else places(candidates)
    offset = rows["offset"][index]
    if not len(index):
        return _columns(np.zeros(0, FOUND)), np.zeros(0, WALK), np.arange(len(rows), dtype=np.int64)

    raw = anywhere(data, size)[offset]
    heads = raw.view(layout)
    carried, fits = heads["protocol"] == TCP, (heads["protocol"] == UDP) & (heads["destination_port"] == ROCE_PORT)
    fits |= carried
    for i in range(shape.tags):
        fits &= np.isin(heads[f"tag{i}"], TAGS)
    if shape.version == 4:
        fits &= (heads["version_ihl"] == 0x45) & (heads["fragment"] & 0x3FFF == 0)
    else:
        fits &= heads["version_class"] >> 12 == 6
    if shape.ethertype is not None:
        fits &= heads["ethertype"] == (IPV4 if shape.version == 4 else IPV6)
    elif shape.link_type in (IPV4_ONLY, IPV6_ONLY):
        fits &= shape.version == (4 if shape.link_type == IPV4_ONLY else 6)
    rest, segments = np.zeros(0, np.int64), np.zeros(0, WALK)
    if not everything or some(carried) or not fits.all():
        others = np.ones(len(rows), bool)
        others[index[fits]] = False
        rest = places(others)
        carried &= fits
        if some(carried):
            where = index[carried]
            segments = _segments(take(rows, where), where, raw[carried].view(layout), shape)
        fits &= ~carried
        heads, index = raw[fits].view(layout), index[fits]
        rows, offset = take(rows, index), offset[fits]

    ip = offset + shape.ip
    located: Columns = {
        "row": index,
        "bth": offset + size,
        "end": offset + rows["captured"],
        "wire_end": offset + np.maximum(rows["original"], rows["captured"]),
        "udp_length": heads["udp_length"].astype(np.int64),
        "source_port": heads["source_port"].astype(np.uint16),
        "transport": np.full(len(index), ROCEV2, np.uint8),
    }
    if shape.version == 4:
        located["ip_end"] = ip + heads["total"]
        located["ecn"] = heads["tos"] & 3
        located["source"] = addresses.ipv4_ids(heads["source"])
        located["destination"] = addresses.ipv4_ids(heads["destination"])
    else:
        located["ip_end"] = ip + 40 + heads["payload"]
        located["ecn"] = (heads["version_class"] >> 4 & 3).astype(np.uint8)
        for end in "source", "destination":
            high, low = (heads[f"{end}_{half}"].astype(np.uint64) for half in ("high", "low"))
            located[end] = addresses.ids(high, low)
    return located, segments, rest


def _segments(frames: Rows, index: Int64s, heads: Rows, shape: Shape) -> Rows:
    """WALK rows positioned at TCP headers."""
    walk = np.zeros(len(index), WALK)
    ip = frames["offset"] + shape.ip
    walk["row"], walk["ip"], walk["version"] = index, ip, shape.version
    walk["at"] = ip + (20 if shape.version == 4 else 40)
    walk["ip_end"] = ip + (heads["total"] if shape.version == 4 else 40 + heads["payload"].astype(np.int64))
    walk["end"] = frames["offset"] + frames["captured"]
    walk["wire_end"] = frames["offset"] + np.maximum(frames["original"], frames["captured"])
    walk["next"] = TCP
    return walk
