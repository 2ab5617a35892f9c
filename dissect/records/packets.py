"""One record per packet, with the RPC it belongs to: what ``rdmascope packets`` lists."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays import Rows
from ..frames import FrameBatch
from ..layers import opcodes
from ..link.packets import PACKET
from ..measure.file_names import PathLearner
from ..rpcrdma.analyzer import Analyzer
from ..rpcrdma.conversation import Conversation
from ..rpcrdma.outcome import named
from ..rpcrdma.rpcs import Rpc
from ..transport.operations import Operation
from ..transport.retransmissions import DUPLICATE
from .packet_info import (
    call_shown,
    reply_shown,
)
from .schema import Record, record

if TYPE_CHECKING:
    from ..transport.iwarp.segments import IwarpSegment
    from .segment_lines import SegmentLines

MARK = "[retransmission] "
"""What their info columns begin with."""
_PSNS = (1 << 24) - 1


def retransmitted(rows: Rows, analyzer: Analyzer) -> NDArray[np.bool_]:
    """Of PACKET rows in the order of frames: those that the connection's health counts."""
    found = np.zeros(len(rows), np.bool_)
    if not len(rows):
        return found
    frames = rows["frame"].astype(np.int64)
    for conversation in analyzer.conversations:
        ends = conversation.connection.endpoints
        for initiator, ledger in enumerate(conversation.connection.ledgers):
            for one in ledger:
                if not one.frame or one.cause == DUPLICATE:
                    continue
                asked = (one.frame, one.last_frame, one.start, one.end)
                runs = [(1 - initiator, opcodes.IS_REQUEST, asked)]
                runs += [(initiator, opcodes.IS_READ_RESPONSE, answer) for answer in one.answers]
                for end, kind, (first_frame, last_frame, psn, behind) in runs:
                    low, high = frames.searchsorted((first_frame, last_frame + 1)).tolist()
                    if low < high:
                        part = rows[low:high]
                        numbers = _numbers(part, analyzer, ends[end].address)
                        there = np.isin(part["destination"], numbers) & (part["dest_qp"] == ends[end].qpn)
                        within = (part["psn"].astype(np.int64) - psn) & _PSNS < behind - psn
                        found[low:high] |= there & within & kind[part["opcode"]]
    return found


def _numbers(rows: Rows, analyzer: Analyzer, address: str) -> list[int]:
    return [one for one in set(rows["destination"].tolist()) if analyzer.addresses.name(one) == address]


class PacketRpcs:
    """Is given the RPCs as they end."""

    def __init__(self) -> None:
        self.sends: dict[int, tuple[str, str, int]] = {}
        """Frame that begins a Send -> protocol, info column, and number of the RPC."""
        self.uses: dict[int, tuple[str, int]] = {}
        """Frame that begins an RDMA Read or Write -> what it transfers, and number of the RPC."""

    def note(self, rpc: Rpc, path: str | None = None) -> None:
        """Remember which packets the RPC is in; ``path``: of what it names."""
        if rpc.call is not None:
            self.sends[rpc.call.frame] = (*call_shown(rpc, path), rpc.number)
        if rpc.reply is not None:
            self.sends[rpc.reply.frame] = (*reply_shown(rpc, path), rpc.number)
        for chunk in rpc.chunks:
            self.use(rpc.number, chunk.kind, (one for segment in chunk.segments for one in segment.operations))

    def use(self, number: int, kind: str, operations: Iterable[Operation]) -> None:
        """Remember that the operations transferred a chunk of RPC ``number``."""
        for operation in operations:
            self.uses[operation.first_frame] = f"RPC {number} {kind} chunk", number

    def forget(self, frame: int) -> None:
        """Frames up to this one are listed."""
        for known in (self.sends, self.uses):
            for one in [one for one in known if one <= frame]:
                del known[one]


def outstanding_calls(analyzer: Analyzer, learner: PathLearner, first: int, last: int) -> list[tuple[Rpc, str | None]]:
    """The calls in frames ``first`` to ``last`` that have no reply so far, with the paths of what they name."""
    calls = [named(rpc) for rpc in analyzer.outstanding() if rpc.call is not None and first <= rpc.call.frame <= last]
    return [(rpc, learner.path_of_call(rpc)) for rpc in calls]


def ends(analyzer: Analyzer) -> dict[tuple[str, int], Conversation]:
    """(address, queue pair) -> the conversation on the latest connection that ends there."""
    return {(end.address, end.qpn): one for one in analyzer.conversations for end in one.connection.endpoints}


def headers(rows: Rows) -> Iterator[SimpleNamespace]:
    """The fields of PACKET rows, one by one."""
    names = PACKET.names or ()
    for values in rows.tolist():
        header = SimpleNamespace()
        header.__dict__.update(zip(names, values, strict=True))
        yield header


class Packet(NamedTuple):
    """An RDMA packet, or a TCP segment of iWARP, and what is known of it."""

    frame: int
    """Number of its frame."""
    time: int
    """Nanoseconds since the Unix epoch."""
    wire: int
    """Bytes of the whole frame."""
    header: SimpleNamespace | None
    """The fields of an InfiniBand packet's headers; None for iWARP."""
    segment: IwarpSegment | None
    """A TCP segment of iWARP; None for InfiniBand."""
    source: str
    destination: str
    protocol: str
    """The uppermost protocol, as tshark calls it."""
    info: str
    """One line about it."""
    rpc: int | None
    """Number of the RPC that it belongs to."""
    rpcrdma: bool
    """It begins a Send of RPC-over-RDMA."""
    batch: FrameBatch
    """Where its frame is."""
    rpcs: tuple[int, ...] = ()
    """All RPCs that it belongs to, where there are several."""

    @property
    def comment(self) -> str:
        """The comment on its frame; '' for none."""
        return self.batch.comments.get(self.frame, "")


class SegmentPackets:
    """The TCP segments of iWARP as packets.  ``analyzer`` is fed by others."""

    def __init__(self, analyzer: Analyzer) -> None:
        self._analyzer = analyzer
        self._lines: SegmentLines | None = None
        analyzer.watch_fpdus(lambda *fpdus: self._known().listen(*fpdus))

    def _known(self) -> SegmentLines:
        # Most captures have no iWARP in them, and then nothing of it need be loaded.
        if self._lines is None:
            from .segment_lines import SegmentLines

            self._lines = SegmentLines(self._analyzer)
        return self._lines

    def note(self, rpcs: list[tuple[Rpc, str | None]]) -> list[tuple[Rpc, str | None]]:
        """Remember which segments RPCs, or calls, are in; gives those that iWARP did not carry."""
        carried = [one for one in rpcs if one[0].connection.of_tcp]
        if not carried:
            return rpcs
        self._known().note(carried)
        return [one for one in rpcs if not one[0].connection.of_tcp]

    def packets(self, batch: FrameBatch, first: int = 1, last: int = 1 << 62) -> Iterator[Packet]:
        """Those of frames ``first`` to ``last`` of a batch."""
        if self._analyzer.iwarp is None:
            return
        for segment, protocol, info, rpcs in self._known().lines(batch, first, last):
            rpc = rpcs[0] if rpcs else None
            names = segment.source, segment.destination
            place = segment.frame, segment.time, segment.wire
            yield Packet(*place, None, segment, *names, protocol, info, rpc, False, batch, rpcs)


def segment_record(line: Packet) -> Record:
    """That of a TCP segment of iWARP."""
    from .segment_lines import segment_fields

    assert line.segment is not None
    return record(
        "packet",
        frame=line.frame,
        time_ns=line.time,
        source=line.source,
        destination=line.destination,
        length=line.wire,
        protocol=line.protocol,
        info=line.info,
        rpc=line.rpc,
        transport=line.segment.connection.transport,
        **dict.fromkeys(("opcode", "opcode_name", "dest_qp", "psn")),
        payload_length=line.segment.length,
        payload_captured=line.segment.captured,
        segment=segment_fields(line.segment, line.rpcs),
        **({"comment": line.comment} if line.comment else {}),
    )
