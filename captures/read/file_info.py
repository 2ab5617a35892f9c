"""What a capture file is, before anything is made of its RPCs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from rdmascope.dissect.frames import FrameBatch
from rdmascope.dissect.layers import opcodes
from rdmascope.dissect.layers.icrc import icrc_ok, vcrc_ok
from rdmascope.dissect.layers.transports import TRANSPORTS
from rdmascope.dissect.link.addresses import AddressTable
from rdmascope.dissect.link.duplicates import DUPLICATE, MIRRORED, Duplicates
from rdmascope.dissect.link.fragments import TcpFragments
from rdmascope.dissect.link.locate import locate
from rdmascope.dissect.link.numbers import LINK_TYPES
from rdmascope.dissect.link.packets import decode
from rdmascope.dissect.records.schema import Record, record
from rdmascope.dissect.rpcrdma.analyzer import NFS_RDMA_PORT
from rdmascope.dissect.rpcrdma.records import PORTS, RPC_RECORDS
from rdmascope.dissect.trace.events import LOST
from rdmascope.dissect.transport.connection import Registry
from rdmascope.dissect.transport.iwarp.observer import IwarpObserver

from ..errors import CaptureError
from .open import CaptureFile
from .traces import Trace


@dataclass
class FileInfo:
    """What the frames of one capture add up to."""

    path: str
    checksums: bool = False
    frames: int = 0
    captured: int = 0
    """Bytes of frames in the file."""
    original: int = 0
    """Bytes of frames on the wire."""
    first_time: int | None = None
    """Nanoseconds since the epoch, of the earliest frame."""
    last_time: int | None = None
    backwards: int = 0
    """Frames that are earlier than the one before."""
    truncated: int = 0
    """Frames of which the file does not hold all bytes."""
    longest: int = 0
    """Captured bytes of the largest frame."""
    decoders: Counter[str] = field(default_factory=Counter)
    """Frames by the transport that was found in them."""
    skipped: Counter[str] = field(default_factory=Counter)
    """The other frames, by what they are."""
    odd: Counter[str] = field(default_factory=Counter)
    interfaces: Counter[int] = field(default_factory=Counter)
    """Frames by interface."""
    link_types: Counter[int] = field(default_factory=Counter)
    icrc: Counter[bool | None] = field(default_factory=Counter)
    vcrc: Counter[bool | None] = field(default_factory=Counter)
    damage: str | None = None
    _last: int | None = None
    _addresses: AddressTable = field(default_factory=AddressTable)
    _duplicates: Duplicates = field(default_factory=Duplicates)
    _fragments: TcpFragments = field(default_factory=TcpFragments)
    _iwarp: IwarpObserver = field(
        default_factory=lambda: IwarpObserver(
            Registry([]), frozenset({NFS_RDMA_PORT}), records=RPC_RECORDS, record_ports=PORTS
        )
    )

    @property
    def duration(self) -> int:
        """Nanoseconds from the earliest frame to the latest."""
        return 0 if self.first_time is None or self.last_time is None else self.last_time - self.first_time

    def add(self, batch: FrameBatch) -> None:
        rows = batch.rows
        times = rows["time"]
        self.frames += len(rows)
        self.captured += int(rows["captured"].sum(dtype=np.int64))
        self.original += int(rows["original"].sum(dtype=np.int64))
        self.truncated += int(np.count_nonzero(rows["captured"] < rows["original"]))
        self.longest = max(self.longest, int(rows["captured"].max()))
        low, high = int(times.min()), int(times.max())
        self.first_time = low if self.first_time is None else min(self.first_time, low)
        self.last_time = high if self.last_time is None else max(self.last_time, high)
        self.backwards += int(np.count_nonzero(times[1:] < times[:-1]))
        self.backwards += self._last is not None and int(times[0]) < self._last
        self._last = int(times[-1])
        for column, counter in (("interface", self.interfaces), ("link_type", self.link_types)):
            for value, many in zip(*np.unique(rows[column], return_counts=True), strict=True):
                counter[int(value)] += int(many)

        located = self._duplicates.drop(batch, locate(batch, self._addresses))
        whole, segments, skipped = self._fragments.segments(batch, located, self._iwarp.addresses)
        packets = decode(batch, replace(located, skipped=skipped))
        for code, many in enumerate(np.bincount(packets.rows["transport"], minlength=len(TRANSPORTS)).tolist()):
            if many:
                self.decoders[TRANSPORTS[code]] += many
        self.skipped.update(packets.skipped)
        foreign = packets.rows[opcodes.is_foreign(packets.rows["opcode"])]
        kinds = Counter(zip(foreign["transport"].tolist(), foreign["opcode"].tolist(), strict=True))
        for (code, opcode), many in kinds.items():
            name = TRANSPORTS[code]
            self.decoders[name] -= many
            self.skipped[f"{name}, {opcodes.transport_service(opcode)} opcode, not decoded"] += many
        self.decoders = +self.decoders
        self._iwarp.feed(whole.data, segments)
        self._count_iwarp()
        self.odd.update(located.odd)
        if self.checksums and len(packets):
            self.icrc.update(icrc_ok(batch, packets.rows))
            self.vcrc.update(vcrc_ok(batch, packets.rows))

    def finish(self) -> None:
        """The file is over: decide what is still undecided."""
        self._iwarp.finish()
        self._count_iwarp()

    def _count_iwarp(self) -> None:
        _, segments = self._iwarp.uncounted()
        for (transport, unknown), count in segments.items():
            self.decoders[transport if transport == "iWARP" else f"RPC over {transport}"] += count
            self.skipped[unknown] -= count
        self.skipped = +self.skipped


def trace_info_record(trace: Trace) -> Record:
    """Read all of a trace, for what it is."""
    known: Counter[str] = Counter()
    first: int | None = None
    last: int | None = None
    damage: str | None = None
    try:
        for events in trace.batches():
            known.update(event.name for event in events if event.name != LOST)
            first, last = events[0].time if first is None else first, events[-1].time
    except CaptureError as error:
        damage = str(error)
    return record(
        "trace_info",
        file=trace.path,
        format=trace.format,
        size=trace.size,
        kernel=trace.kernel or None,
        clock=trace.clock or None,
        events=trace.events,
        known=dict(known.most_common()),
        lost_events=trace.lost,
        first_time_ns=first,
        last_time_ns=last,
        error=damage,
    )


def file_info_record(info: FileInfo, capture: CaptureFile) -> Record:
    section = capture.section
    seconds = info.duration / 1e9
    return record(
        "info",
        file=info.path,
        format=capture.format,
        compression=capture.compression or None,
        byte_order=capture.byte_order,
        size=capture.size,
        unpacked_size=capture.read,
        link_types=[_link_type(number, many) for number, many in sorted(info.link_types.items())],
        interfaces=_interfaces(info, capture),
        application=section.application or None,
        operating_system=section.system or None,
        hardware=section.hardware or None,
        comments=section.comments,
        frame_comments=section.frame_comments,
        other_blocks=dict(section.passed_over),
        frames=info.frames,
        captured_bytes=info.captured,
        original_bytes=info.original,
        truncated_frames=info.truncated,
        longest_captured=info.longest,
        snaplen=capture.snaplen or None,
        first_time_ns=info.first_time,
        last_time_ns=info.last_time,
        duration_ns=info.duration,
        out_of_order_frames=info.backwards,
        frames_per_second=info.frames / seconds if seconds else None,
        bits_per_second=info.original * 8 / seconds if seconds else None,
        decoded=dict(info.decoders),
        not_decoded=dict(info.skipped),
        duplicates=info.skipped[DUPLICATE] + info.skipped[MIRRORED],
        contradictions=dict(info.odd),
        icrc=_verdicts(info.icrc) if info.checksums else None,
        vcrc=_verdicts(info.vcrc) if info.checksums else None,
        error=info.damage,
    )


def _link_type(number: int, frames: int) -> dict[str, object]:
    return {"number": number, "name": LINK_TYPES.get(number), "frames": frames}


def _interfaces(info: FileInfo, capture: CaptureFile) -> Sequence[dict[str, object]]:
    interfaces: list[dict[str, object]] = []
    for number, interface in enumerate(capture.interfaces):
        statistics = capture.section.statistics.get(number)
        interfaces.append(
            {
                "name": interface.name or None,
                "description": interface.description or None,
                "link_type": interface.link_type,
                "snaplen": interface.snaplen or None,
                "filter": interface.filter or None,
                "operating_system": interface.system or None,
                "speed": interface.speed or None,
                "time_resolution_ns": interface.time_step,
                "frames": info.interfaces[number],
                "received": statistics and statistics.received,
                "accepted": statistics and statistics.accepted,
                "dropped": statistics and statistics.dropped,
                "dropped_by_os": statistics and statistics.os_dropped,
                "delivered": statistics and statistics.delivered,
                "lost_between_frames": capture.section.lost[number],
            }
        )
    return interfaces


def _verdicts(counter: Counter[bool | None]) -> dict[str, int]:
    return {"good": counter[True], "wrong": counter[False], "not_checked": counter[None]}
