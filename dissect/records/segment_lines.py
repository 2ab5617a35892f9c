"""Lines for the TCP segments of iWARP connections: which FPDUs they carry, and which RPCs those are of."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from ..frames import FrameBatch
from ..layers import iwarp_codes as codes
from ..link.locate import AddressTable, locate
from ..link.tcp import locate_tcp
from ..rpcrdma.analyzer import Analyzer
from ..rpcrdma.messages import Message
from ..rpcrdma.rpcs import Rpc
from ..transport.iwarp.fpdus import DOUBTED, WRONG_CRC, WRONG_HEADERS, WRONG_MARKERS, ReadRequest
from ..transport.iwarp.segments import Fpdu, IwarpSegment, IwarpSegments, Part
from ..transport.operations import Kind
from .packet_info import FLAGS, Shown, alone_shown, call_shown, reply_shown, segment_shown
from .schema import Record, wide

MAX_KEPT = 1 << 16
"""Messages and transfers of which it is remembered what RPC they are of."""


class _Use(NamedTuple):
    """Memory that an RPC moves data through."""

    start: int
    end: int
    text: str
    rpc: int


class SegmentLines:
    """Feed the analyzer, give it the RPCs that gave, then ask for the lines of a batch."""

    def __init__(self, analyzer: Analyzer) -> None:
        self._analyzer = analyzer
        self._addresses = AddressTable()
        self._segments = IwarpSegments()
        self.listen = self._segments.listen
        """Listens to the FPDUs of all connections."""
        self._sends: OrderedDict[tuple[int, int, int], tuple[Shown, int]] = OrderedDict()
        """By connection, endpoint and message sequence number."""
        self._reads: OrderedDict[tuple[int, int, int], tuple[str, int]] = OrderedDict()
        """RDMA Read Requests, in the same way."""
        self._writes: OrderedDict[tuple[int, int, int], list[_Use]] = OrderedDict()
        """By connection, endpoint and STag."""
        self._sinks: OrderedDict[tuple[int, int, int], _Use] = OrderedDict()
        """Where RDMA Read Responses go to: by connection, endpoint that sends them, and STag."""

    def note(self, rpcs: Iterable[tuple[Rpc, str | None]]) -> None:
        """Remember which FPDUs RPCs, or calls, are in; with the paths of what they name."""
        for rpc, path in rpcs:
            number = rpc.connection.number
            if rpc.call is not None:
                self._sends[_sent(number, rpc.call)] = call_shown(rpc, path), rpc.number
            if rpc.reply is not None:
                self._sends[_sent(number, rpc.reply)] = reply_shown(rpc, path), rpc.number
            for chunk in rpc.chunks:
                text = f"RPC {rpc.number} {chunk.kind} chunk"
                for operation in (one for use in chunk.segments for one in use.operations):
                    if operation.kind is Kind.READ:
                        self._reads[number, operation.initiator, operation.psn] = text, rpc.number
                        continue
                    end = operation.address + operation.length
                    uses = self._writes.setdefault((number, operation.initiator, operation.handle), [])
                    uses.append(_Use(operation.address, end, text, rpc.number))
        kept: OrderedDict[Any, Any]
        for kept in (self._sends, self._reads, self._writes, self._sinks):
            while len(kept) > MAX_KEPT:
                kept.popitem(last=False)

    def lines(
        self, batch: FrameBatch, first: int, last: int
    ) -> Iterator[tuple[IwarpSegment, str, str, tuple[int, ...]]]:
        """Segments of frames ``first`` to ``last``: protocol, info column, and the RPCs in them."""
        observer = self._analyzer.iwarp
        if observer is None:
            return
        rows = locate_tcp(batch, locate(batch, self._addresses).tcp, observer.addresses)
        for segment in self._segments.of(batch, rows, observer):
            if not first <= segment.frame <= last:
                continue
            rpcs: dict[int, None] = {}

            def owner(
                fpdu: Fpdu, segment: IwarpSegment = segment, rpcs: dict[int, None] = rpcs
            ) -> tuple[Shown | None, str]:
                return self._owner_of(fpdu, segment, rpcs)

            protocol, info = segment_shown(segment, owner)
            yield segment, protocol, info, tuple(rpcs)

    def _owner_of(self, fpdu: Fpdu, segment: IwarpSegment, rpcs: dict[int, None]) -> tuple[Shown | None, str]:
        connection = segment.connection
        if connection is None:
            return None, ""
        number, sender = connection.number, segment.sender
        if fpdu.opcode in codes.SENDS:
            known = self._sends.get((number, sender, fpdu.msn & 0xFFFFFF))
            if known is not None:
                shown, rpc = known
                rpcs[rpc] = None
                return (shown, "") if fpdu.last else (None, f"RPC {rpc}")
            conversation = self._analyzer.conversation(connection)
            if conversation.carries_rpc and fpdu.last and not fpdu.place:
                data = fpdu.payload()
                shown = alone_shown(memoryview(data), 0, len(data), fpdu.length, fpdu.last_frame, conversation)
                return shown, ""
        elif fpdu.opcode == codes.READ_REQUEST:
            read = self._reads.get((number, sender, fpdu.msn & 0xFFFFFF))
            if read is not None:
                text, rpc = read
                rpcs[rpc] = None
                if request := fpdu.request:
                    use = _Use(request.sink_to, request.sink_to + request.length, text, rpc)
                    self._sinks[number, 1 - sender, request.sink_stag] = use
                return None, text
        elif fpdu.queue is None:
            uses = self._writes.get((number, sender, fpdu.stag), [])
            if fpdu.opcode == codes.READ_RESPONSE:
                sink = self._sinks.get((number, sender, fpdu.stag))
                uses = [sink] if sink is not None else []
            for one in uses:
                if one.start <= fpdu.place and fpdu.place + fpdu.length <= one.end:
                    rpcs[one.rpc] = None
                    return None, one.text
        return None, ""


def _sent(number: int, message: Message) -> tuple[int, int, int]:
    return number, message.operation.initiator, message.operation.psn


def segment_fields(segment: IwarpSegment, rpcs: tuple[int, ...]) -> Record:
    """A segment as JSON, beside what every packet has."""
    connection = segment.connection
    return {
        "connection": None if connection is None else connection.number,
        "source_port": segment.source_port,
        "destination_port": segment.destination_port,
        "seq": segment.seq,
        "ack": segment.ack,
        "flags": [name for flag, name in FLAGS.items() if segment.flags & flag],
        "window": segment.window,
        "window_scaled": segment.scaled,
        "mark": segment.mark or None,
        "rpcs": list(rpcs),
        "parts": [_part(part) for part in segment.parts],
    }


FAULTS = {
    WRONG_CRC: "wrong_crc",
    WRONG_MARKERS: "wrong_markers",
    WRONG_HEADERS: "wrong_headers",
    DOUBTED: "rejected",
}


def _what(part: Part) -> str:
    if part.mpa is not None:
        return "mpa"
    if part.fpdu is not None:
        return "fpdu"
    if part.fault:
        return FAULTS[part.fault]
    return "ready" if part.ready else "unknown"


def _part(part: Part) -> Record:
    fields: Record = {
        "offset": part.at,
        "length": part.length,
        "before": part.before,
        "after": part.after,
        "what": _what(part),
    }
    if frame := part.mpa:
        fields |= {
            "request": frame.request,
            "revision": frame.revision,
            "markers": frame.markers,
            "crc": frame.crc,
            "reject": frame.reject,
            "ird": frame.ird,
            "ord": frame.ord,
            "private_data": frame.private_data.hex(),
        }
    if fpdu := part.fpdu:
        tagged = fpdu.queue is None
        invalidating = fpdu.opcode in codes.INVALIDATING
        fields |= {
            "opcode": fpdu.opcode,
            "opcode_name": codes.opcode_name(fpdu.opcode),
            "last": fpdu.last,
            "ulpdu_length": fpdu.ulpdu_length,
            "payload_length": fpdu.length,
            "stag": fpdu.stag if tagged else None,
            **wide("tagged_offset", fpdu.place if tagged else None),
            "queue": fpdu.queue,
            "msn": None if tagged else fpdu.msn,
            "message_offset": None if tagged else fpdu.place,
            "invalidate": fpdu.stag if invalidating else None,
            "read": _read_fields(fpdu.request) if fpdu.request else None,
            "first_frame": fpdu.first_frame,
            "last_frame": fpdu.last_frame,
        }
    return fields


def _read_fields(request: ReadRequest) -> Record:
    fields: Record = {}
    for name, value in request._asdict().items():
        fields |= wide(name, value) if name in ("sink_to", "source_to") else {name: value}
    return fields
