"""One RPC or one frame of a capture, what belongs to it, and its packets as steps between the two endpoints."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from rdmascope.dissect.arrays import Rows, among, places
from rdmascope.dissect.diagnosis.rpc_facts import HUNG
from rdmascope.dissect.frames import Frame, FrameBatch
from rdmascope.dissect.layers import iwarp_codes, iwarp_codes as codes, opcodes
from rdmascope.dissect.layers.rpcrdma_codes import procedure_name
from rdmascope.dissect.link.addresses import AddressTable
from rdmascope.dissect.link.locate import locate
from rdmascope.dissect.link.packets import PacketBatch, decode
from rdmascope.dissect.link.tcp import FIN, RST, SYN, locate_tcp
from rdmascope.dissect.measure.filters import FrameRange, unknown_frames, unknown_rpcs, unknown_xids
from rdmascope.dissect.named_tuple import NamedTuple
from rdmascope.dissect.rpcrdma.analyzer import Analyzer
from rdmascope.dissect.rpcrdma.conversation import Conversation
from rdmascope.dissect.rpcrdma.listeners import Listener
from rdmascope.dissect.rpcrdma.messages import Message
from rdmascope.dissect.rpcrdma.rpc_table import RpcTable
from rdmascope.dissect.rpcrdma.rpcs import Rpc
from rdmascope.dissect.serial import PSN
from rdmascope.dissect.transport.connection import Connection
from rdmascope.dissect.transport.operations import Kind
from rdmascope.dissect.units import size

from ..read.remote import size_of
from ..tables.saved import holds_tables
from .session import MAX_READ_FOR_NAMES, Session

if TYPE_CHECKING:
    from rdmascope.dissect.diagnosis.facts import Facts
    from rdmascope.dissect.measure.file_names import Pathed
    from rdmascope.dissect.transport.iwarp.segments import Fpdu, IwarpSegment, IwarpSegments, Part


OWN, ACKNOWLEDGEMENT, OTHER = "own", "acknowledgement", "other"

TCP_ACK = "TCP ACK"
MSN_KEPT = 0xFFFFFF
"""Bits of a message sequence number that an Operation keeps."""
LINGER = 1000
"""Packets of the connection after the reply among which its acknowledgement is looked for."""


class Step(NamedTuple):
    frame: int
    time: int
    sender: int
    """Endpoint of the connection."""
    family: str
    """'SEND', 'RDMA WRITE', 'RDMA READ Request', 'Acknowledge', …: packets that may stand for each other."""
    label: str
    length: int
    """Payload bytes."""
    kind: str
    """OWN: carries bytes of the RPC or asks for them; OTHER: of another RPC."""


def frames_of(rpc: Rpc) -> set[int]:
    """Frames that carried some of the RPC: its Sends, and the Reads and Writes on its chunks."""
    frames: set[int] = set()
    for operation in rpc.data_operations:
        frames |= {operation.first_frame, operation.last_frame}
        for _, _, rows in operation.payload.runs:
            frames.update(rows["frame"].tolist())
    return frames


def carries_again(rpc: Rpc, row: Rows, destination: str) -> bool:
    """Whether a packet retransmits one of the RPC's, or is a NAK for one; ``row``: of PACKET, alone."""
    (opcode,), (qpn,), (psn,), (syndrome,) = (row[name].tolist() for name in ("opcode", "dest_qp", "psn", "syndrome"))
    if opcodes.IS_ACKNOWLEDGE[opcode] and opcodes.syndrome_kind(syndrome) not in (opcodes.NAK, opcodes.RNR_NAK):
        return False
    ends = rpc.connection.endpoints
    receivers = [end for end in (0, 1) if (ends[end].address, ends[end].qpn) == (destination, qpn)]
    return any(
        (operation.initiator if opcodes.IS_RESPONSE[opcode] else 1 - operation.initiator) in receivers
        and (psn - operation.psn) % PSN.modulus < max(1, operation.packets)
        for operation in rpc.data_operations
    )


def steps_of(rpc: Rpc, session: Session) -> list[Step]:
    """The packets of an RPC, and those between them, in a pass of their own: that of a session not read yet."""
    if rpc.connection.of_tcp:
        return segment_steps(rpc, session)
    return steps(rpc, packet_batches(session, min(frames_of(rpc), default=1)))


def packet_batches(session: Session, first: int = 1) -> Iterator[tuple[PacketBatch, AddressTable]]:
    """Columns, without RPCs, of the batches from the frame of this number on."""
    addresses = AddressTable()
    for batch in session.batches():
        if len(batch) and int(batch.rows["number"][-1]) >= first:
            yield decode(batch, locate(batch, addresses)), addresses


def steps(rpc: Rpc, batches: Iterable[tuple[PacketBatch, AddressTable]]) -> list[Step]:
    """The connection's packets from the first frame of the RPC to the acknowledgement of its reply; of a call without
    a reply to its own acknowledgement, and its retransmissions."""
    own = frames_of(rpc)
    if not own:
        return []
    first, last = min(own), max(own)
    messages = {m.operation.last_frame: m for m in (rpc.call, rpc.reply) if m}
    replier = rpc.reply.operation.initiator if rpc.reply else None
    seen: list[Step] = []
    lingered = 0
    replied: int | None = None
    """PSN of the reply's last packet."""
    acknowledged = False
    """The call, where there is no reply."""
    receivers = [endpoint.address for endpoint in reversed(rpc.connection.endpoints)]
    for packets, addresses in batches:
        rows = packets.rows
        if not len(rows) or int(rows["frame"][-1]) < first:
            continue
        sender = _senders(packets, addresses, rpc.connection)
        for at in np.flatnonzero((sender >= 0) & (rows["frame"] >= first)).tolist():
            row = rows[at]
            frame, opcode, end = int(row["frame"]), int(row["opcode"]), int(sender[at])
            acknowledges = bool(opcodes.IS_ACKNOWLEDGE[opcode])
            if frame > last:
                lingered += 1
                if lingered > LINGER:
                    return seen
                again = replier is None and carries_again(rpc, rows[at : at + 1], receivers[end])
                waits_for_it = not acknowledged and end != rpc.backward if replier is None else end != replier
                if not again and not (acknowledges and waits_for_it):
                    continue
                acknowledged |= acknowledges
                if replied is not None and PSN.distance(replied, int(row["psn"])) >= PSN.modulus // 2:
                    continue  # It acknowledges something earlier.
            elif rpc.reply is not None and frame == rpc.reply.operation.last_frame:
                replied = int(row["psn"])
            kind = ACKNOWLEDGEMENT if acknowledges else OWN if frame in own or frame > last else OTHER
            label = _label(opcode, row, messages.get(frame))
            seen.append(Step(frame, int(row["time"]), end, _family(opcode), label, int(row["length"]), kind))
            if frame > last and replier is not None:
                return seen
    return seen


def watch_segments(analyzer: Analyzer) -> Callable[[FrameBatch, int, int], list[IwarpSegment]]:
    """Have an analyzer's FPDUs remembered; gives a function for the iWARP segments of some frames of a batch.

    It knows what was fed by then.
    """
    addresses = AddressTable()

    @cache
    def segments() -> IwarpSegments:
        # Most captures have no iWARP in them, and then nothing of it need be loaded.
        from rdmascope.dissect.transport.iwarp.segments import IwarpSegments

        return IwarpSegments()

    analyzer.watch_fpdus(lambda *fpdus: segments().listen(*fpdus))

    def of(batch: FrameBatch, first: int, last: int) -> list[IwarpSegment]:
        observer = analyzer.iwarp
        if observer is None:
            return []
        rows = locate_tcp(batch, locate(batch, addresses).tcp, observer.addresses)
        carried = segments().of(batch, rows, observer)
        return [iwarp_segment for iwarp_segment in carried if first <= iwarp_segment.frame <= last]

    return of


def segment_steps(rpc: Rpc, session: Session) -> list[Step]:
    """iWARP: the TCP segments of the connection from the first frame of the RPC to the acknowledgement of its reply."""
    own = frames_of(rpc)
    if not own:
        return []
    first, last = min(own), max(own)
    segments = watch_segments(session.analyzer)
    carried = Carried(rpc)
    procedures = {
        (message.operation.initiator, message.operation.psn): procedure_name(
            message.header.version, message.header.procedure
        )
        for message in (rpc.call, rpc.reply)
        if message
    }
    replier = rpc.reply.operation.initiator if rpc.reply else None
    seen: list[Step] = []
    waiting: FrameBatch | None = None
    lingered = 0
    for batch in chain(session.batches(), [None]):
        # A batch is shown when the next one was looked at, too: an FPDU may end there.
        if batch is None:
            session.analyzer.finish()
        else:
            session.analyzer.feed(batch)
            if int(batch.rows["number"][-1]) < first:
                continue
        if waiting is not None:
            for segment in segments(waiting, first, int(waiting.rows["number"][-1])):
                if segment.connection.number != rpc.connection.number:
                    continue
                if segment.frame > last:
                    lingered += 1
                    if replier is None or lingered > LINGER:
                        return seen
                    if segment.sender == replier:
                        continue
                mine = segment.frame in own or (bool(segment.mark) and carried.by(segment))
                seen.append(_step(segment, mine, procedures))
                if segment.frame > last:
                    return seen
        waiting = batch
    return seen


class Carried:
    """Which FPDUs are of an RPC, also where they come again: then it was not put together of those frames."""

    def __init__(self, rpc: Rpc) -> None:
        self._codes = iwarp_codes
        self._number = rpc.connection.number
        self._sends = {(m.operation.initiator, m.operation.psn) for m in (rpc.call, rpc.reply) if m}
        moved = [operation for chunk in rpc.chunks for use in chunk.segments for operation in use.operations]
        reads = [operation for operation in moved if operation.kind is Kind.READ]
        self._reads = {(read.initiator, read.psn) for read in reads}
        self._responses = {
            (1 - read.initiator, frame)
            for read in reads
            for _, _, rows in read.payload.runs
            for frame in rows["frame"].tolist()
        }
        self._writes = [operation for operation in moved if operation.kind is Kind.WRITE]

    def by(self, segment: IwarpSegment) -> bool:
        """Whether a segment carries some of it."""
        if segment.connection.number != self._number:
            return False
        return any(part.fpdu is not None and self._is_mine(part.fpdu, segment.sender) for part in segment.parts)

    def _is_mine(self, fpdu: Fpdu, sender: int) -> bool:
        if fpdu.opcode in self._codes.SENDS:
            return (sender, fpdu.msn & MSN_KEPT) in self._sends
        if fpdu.opcode == self._codes.READ_REQUEST:
            return (sender, fpdu.msn & MSN_KEPT) in self._reads
        if fpdu.opcode == self._codes.READ_RESPONSE:
            return (sender, fpdu.first_frame) in self._responses
        return fpdu.opcode == self._codes.WRITE and any(
            (write.initiator, write.handle) == (sender, fpdu.stag)
            and write.address <= fpdu.place < write.address + write.length
            for write in self._writes
        )


def _step(segment: IwarpSegment, own: bool, procedures: dict[tuple[int, int], str]) -> Step:
    kind = OWN if own else OTHER if segment.length else ACKNOWLEDGEMENT
    family, label = "ACK", TCP_ACK
    if segment.length:
        labels = [_part_label(part, segment, procedures) for part in segment.parts]
        family = " ".join(dict.fromkeys(name for name, _ in labels))
        label = " | ".join(text for _, text in labels)
    elif segment.flags & (SYN | FIN | RST):
        family = label = next(name for flag, name in ((SYN, "SYN"), (FIN, "FIN"), (RST, "RST")) if segment.flags & flag)
    if segment.mark:
        label = f"{segment.mark}: {label}"
    return Step(segment.frame, segment.time, segment.sender, family, label, segment.length, kind)


def _part_label(part: Part, segment: IwarpSegment, procedures: dict[tuple[int, int], str]) -> tuple[str, str]:
    """What a segment carries of one FPDU: '[Write 124 B]', or '[Write 4.02 KiB …' where others have the rest."""
    begins, ends = "… " if part.before else "[", " …" if part.after else "]"
    fpdu = part.fpdu
    if part.mpa is not None:
        name = f"MPA {'Request' if part.mpa.request else 'Reply'}"
        return name, name
    if fpdu is None:
        return "?", f"{size(part.length)} of an {f'FPDU: {part.fault}' if part.fault else f'unknown {segment.unit}'}"
    name = codes.opcode_name(fpdu.opcode) if segment.connection.rdma else "record"
    label = f"{begins}{name} {size(part.length if not part.whole else fpdu.length)}"
    if request := fpdu.request:
        label = f"{begins}{name} {size(request.length)}, STag {request.source_stag:#010x}"
    elif fpdu.queue is None:
        label += f", STag {fpdu.stag:#010x}"
    procedure = procedures.get((segment.sender, fpdu.msn & MSN_KEPT)) if fpdu.opcode in codes.SENDS else None
    if procedure:
        label += f", {procedure}"
    return name, label + ends


def _senders(packets: PacketBatch, addresses: AddressTable, connection: Connection) -> np.ndarray:
    """Which endpoint sent each packet: 0, 1, or -1 where it is not the connection's."""
    rows = packets.rows
    sender = np.full(len(rows), -1, np.int8)
    names = {addresses.name(number): number for number in range(len(addresses))}
    ends = [(names.get(end.address, -1), end.qpn) for end in connection.endpoints]
    for end in (0, 1):
        address, qpn = ends[1 - end]
        sender[(rows["dest_qp"] == qpn) & (rows["destination"] == address) & (rows["source"] == ends[end][0])] = end
    return sender


def _family(opcode: int) -> str:
    return re.split(" (?:First|Middle|Last|Only)", opcodes.opcode_name(opcode).removeprefix("RC "))[0]


def _label(opcode: int, row: np.void, message: Message | None) -> str:
    name = opcodes.opcode_name(opcode).removeprefix("RC ")
    if opcodes.HAS_RETH[opcode]:
        return f"{name} {size(int(row['dma_length']))}, R_key {int(row['r_key']):#010x}"
    if opcodes.IS_ACKNOWLEDGE[opcode]:
        return opcodes.syndrome_name(int(row["syndrome"]))
    length = int(row["length"])
    if message is not None and message.header.procedure is not None:
        return f"{name} {size(length)}, {procedure_name(message.header.version, message.header.procedure)}"
    return f"{name} {size(length)}"


MAX_ENDED = 4096
"""RPCs that ended last, among which that is looked for of which a packet comes again."""


class FoundRpcs(NamedTuple):
    """RPCs that were looked for."""

    rpcs: list[Rpc]
    """In the order in which they ended."""
    others: dict[int, list[int]]
    """XID -> numbers of further RPCs with it, where an XID was looked for."""
    problem: str
    """What was not found; '' where everything was."""
    paths: dict[int, str]
    """Number of an RPC -> what it names."""


class StrayMessage(NamedTuple):
    """A message of RPC-over-RDMA that is part of no RPC."""

    conversation: Conversation
    message: Message


class FoundFrame(NamedTuple):
    """A frame, and what it carries."""

    frame: Frame
    rpcs: list[Rpc]
    """RPCs that the frame belongs to, the first to end first."""
    stray: StrayMessage | None
    """A message that begins in it, and is part of no RPC."""
    segment: IwarpSegment | None
    """What it is to iWARP."""
    paths: dict[int, str | None]
    """Number of an RPC -> what it names."""

    @property
    def begins_message(self) -> bool:
        """The first frame of a message of RPC-over-RDMA."""
        begins = [
            message.operation.first_frame for rpc in self.rpcs[:1] for message in (rpc.call, rpc.reply) if message
        ]
        return self.stray is not None or self.frame.number in begins


def find_rpcs(session: Session, numbers: Collection[int] = (), xids: Collection[int] = ()) -> FoundRpcs:
    """The RPCs of these numbers, and the first of each of these XIDs.

    Reads no further than the last number, where there are no XIDs, and than their paths are known.
    """
    rpcs: list[Rpc] = []
    first: dict[int, Rpc] = {}
    others: dict[int, list[int]] = {}
    left = set(numbers)
    total = 0
    files: dict[int, Pathed] = {}
    learner = session.path_learner()
    wanted, wanted_xids = np.array([*numbers], np.int64), np.array([*xids], np.int64)
    for table in session.tables():
        total += len(table)
        _, called = learner.learn(table)
        rows = table.rows
        for row in places(among(rows["number"], wanted) | among(rows["xid"], wanted_xids)).tolist():
            rpc, file = table[row], called[row]
            if file is not None:
                files[rpc.number] = file
            if rpc.number in left:
                left.discard(rpc.number)
                rpcs.append(rpc)
            elif rpc.xid in xids and rpc.xid not in first:
                rpcs.append(rpc)
            if rpc.xid in xids and first.setdefault(rpc.xid, rpc) is not rpc:
                others.setdefault(rpc.xid, []).append(rpc.number)
        if not left and not xids and all(pathed.sure for pathed in files.values()):
            break
    problem = unknown_rpcs(numbers, {rpc.number for rpc in rpcs}, total) or unknown_xids(xids, first)
    paths = {number: path for number, file in files.items() if (path := file.path()) is not None}
    return FoundRpcs(rpcs, others, problem, paths)


def with_path(session: Session, facts: Facts) -> Facts:
    """With what the call names that is outstanding the longest: reads the capture again, where it is not too large."""
    if not facts.hung or facts.hung[0].waiting < HUNG:
        return facts
    other: Session | None = session
    if not holds_tables(session.paths[0]):
        large = sum(size_of(path) or 0 for path in session.paths) > MAX_READ_FOR_NAMES
        other = None if large else session.again()
    return facts if other is None else replace(facts, paths=find_rpcs(other, [facts.hung[0].number]).paths)


def find_frame(session: Session, number: int) -> FoundFrame | None:
    """The frame of this number, and the RPCs it belongs to; None where the capture has no such frame."""
    seen: list[FrameBatch] = []
    analyzer = session.analyzer
    strays: dict[int, StrayMessage] = {}
    analyzer.listener = lambda conversation: Strays(conversation, strays)
    segments: list[IwarpSegment] = []
    watched_segments = watch_segments(analyzer)

    def look() -> None:
        """What the frame is to iWARP, as far as is known by now."""
        if seen and analyzer.iwarp is not None and not (segments and all(part.fpdu for part in segments[0].parts)):
            segments[:] = watched_segments(seen[0], number, number)

    def watched() -> Iterator[tuple[Rpc, Pathed | None]]:
        for batch in session.batches():
            if (batch.rows["number"] == number).any():
                seen.append(batch)
            rpcs = analyzer.feed(batch)
            look()
            yield from named(rpcs)
        rpcs = analyzer.finish()
        look()
        yield from named(rpcs)

    def named(rpcs: list[Rpc]) -> Iterator[tuple[Rpc, Pathed | None]]:
        return zip(rpcs, learner.learn(RpcTable(rpcs))[1], strict=True)

    learner = session.path_learner()
    owners: list[Rpc] = []
    ended: deque[Rpc] = deque(maxlen=MAX_ENDED)
    paths: dict[int, str | None] = {}
    for rpc, file in watched():
        again = bool(segments) and bool(segments[0].mark)
        if number not in frames_of(rpc) and not (again and Carried(rpc).by(segments[0])):
            ended.append(rpc)
            continue
        owners.append(rpc)
        paths[rpc.number] = None if file is None else learner.path(file)
        if not segments or len(segments[0].parts) < 2:
            break  # one FPDU is of one RPC
    if not seen:
        return None
    if not owners and analyzer.iwarp is None and number not in strays:
        owners = [*_of_packet(seen[0], number, ended)][:1]
        paths = dict.fromkeys([rpc.number for rpc in owners])
    return FoundFrame(seen[0].frame(number), owners, strays.get(number), segments[0] if segments else None, paths)


def _of_packet(batch: FrameBatch, number: int, rpcs: Iterable[Rpc]) -> Iterator[Rpc]:
    """RPCs of which the frame retransmits a packet, or asks for one by a NAK; the nearest first."""
    addresses = AddressTable()
    rows = decode(batch, locate(batch, addresses)).rows
    row = rows[rows["frame"] == number]
    if len(row) == 1:
        destination = addresses.name(int(row["destination"][0]))
        carrying = [rpc for rpc in rpcs if carries_again(rpc, row, destination)]
        yield from sorted(carrying, key=lambda rpc: min(abs(frame - number) for frame in frames_of(rpc)))


def no_frame(session: Session, number: int) -> str:
    """Say that the capture, read to its end, has no such frame."""
    return unknown_frames([FrameRange(number, number)], session.extent())


class Strays(Listener):
    """A listener that keeps each message without a part of an RPC, by its first frame."""

    takes_rows = True
    reads_bytes = False

    def __init__(self, conversation: Conversation, found: dict[int, StrayMessage]) -> None:
        self.conversation, self.found = conversation, found

    def other_sent(self, sender: int, message: Message) -> None:
        if message.header.procedure is not None:
            self.found[message.operation.first_frame] = StrayMessage(self.conversation, message)
