"""One RPC or one frame of a capture, what belongs to it, and its packets as steps between the two endpoints; and the
frames of chosen RPCs: their Sends, Reads and Writes, what was retransmitted of them, and the acknowledgements.

The latter takes two passes: RPCs are judged when they end, and by then their packets are long past."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rdmascope.dissect.arrays import Int64s, Rows, take
from rdmascope.dissect.diagnosis.rpc_facts import HUNG
from rdmascope.dissect.frames import Frame, FrameBatch
from rdmascope.dissect.layers import iwarp_codes, opcodes
from rdmascope.dissect.layers import iwarp_codes as codes
from rdmascope.dissect.layers.rpcrdma_codes import procedure_name
from rdmascope.dissect.link.addresses import AddressTable
from rdmascope.dissect.link.locate import locate
from rdmascope.dissect.link.packets import PacketBatch, decode
from rdmascope.dissect.link.tcp import ACK, FIN, RST, SYN, locate_tcp
from rdmascope.dissect.measure.filters import FrameRange, unknown_frames, unknown_rpcs, unknown_xids
from rdmascope.dissect.rpcrdma.analyzer import Analyzer
from rdmascope.dissect.rpcrdma.conversation import Conversation
from rdmascope.dissect.rpcrdma.listeners import Listener
from rdmascope.dissect.rpcrdma.messages import Message
from rdmascope.dissect.rpcrdma.rpc_table import RpcTable
from rdmascope.dissect.rpcrdma.rpcs import Rpc
from rdmascope.dissect.serial import PSN, TCP_SEQUENCE, SerialNumbers
from rdmascope.dissect.transport.connection import Connection
from rdmascope.dissect.transport.iwarp.fpdus import Fpdus
from rdmascope.dissect.transport.iwarp.tcp_connection import TcpConnection
from rdmascope.dissect.transport.operations import Kind, Operation
from rdmascope.dissect.units import size

from ..read.remote import size_of
from ..tables.condition import ChosenRpcs, Condition
from ..tables.saved import holds_tables
from .session import MAX_READ_FOR_NAMES, Session

if TYPE_CHECKING:
    from rdmascope.dissect.diagnosis.facts import Facts
    from rdmascope.dissect.measure.pending_names import Pathed
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
    operations = [message.operation for message in (rpc.call, rpc.reply) if message]
    operations += [one for chunk in rpc.chunks for use in chunk.segments for one in use.operations]
    for operation in operations:
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
    operations = [message.operation for message in (rpc.call, rpc.reply) if message]
    operations += [operation for chunk in rpc.chunks for use in chunk.segments for operation in use.operations]
    return any(
        (operation.initiator if opcodes.IS_RESPONSE[opcode] else 1 - operation.initiator) in receivers
        and (psn - operation.psn) % PSN.modulus < max(1, operation.packets)
        for operation in operations
    )


def steps_of(rpc: Rpc, session: Session) -> list[Step]:
    """The packets of an RPC, and those between them, in a pass of their own: that of a session not read yet."""
    if rpc.connection.transport == "iWARP":
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
    found: list[Step] = []
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
        wanted = np.flatnonzero((sender >= 0) & (rows["frame"] >= first))
        for at in wanted.tolist():
            row = rows[at]
            frame, opcode, end = int(row["frame"]), int(row["opcode"]), int(sender[at])
            acknowledges = bool(opcodes.IS_ACKNOWLEDGE[opcode])
            if frame > last:
                lingered += 1
                if lingered > LINGER:
                    return found
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
            found.append(Step(frame, int(row["time"]), end, _family(opcode), label, int(row["length"]), kind))
            if frame > last and replier is not None:
                return found
    return found


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
        found = segments().of(batch, rows, observer)
        return [one for one in found if first <= one.frame <= last]

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
    found: list[Step] = []
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
                connection = segment.connection
                if connection is None or connection.number != rpc.connection.number:
                    continue
                if segment.frame > last:
                    lingered += 1
                    if replier is None or lingered > LINGER:
                        return found
                    if segment.sender == replier:
                        continue
                mine = segment.frame in own or (bool(segment.mark) and carried.by(segment))
                found.append(_step(segment, mine, procedures))
                if segment.frame > last:
                    return found
        waiting = batch
    return found


class Carried:
    """Which FPDUs are of an RPC, also where they come again: then it was not put together of those frames."""

    def __init__(self, rpc: Rpc) -> None:
        self._codes = iwarp_codes
        self._number = rpc.connection.number
        self._sends = {(m.operation.initiator, m.operation.psn) for m in (rpc.call, rpc.reply) if m}
        moved = [operation for chunk in rpc.chunks for use in chunk.segments for operation in use.operations]
        reads = [one for one in moved if one.kind is Kind.READ]
        self._reads = {(read.initiator, read.psn) for read in reads}
        self._responses = {
            (1 - read.initiator, frame)
            for read in reads
            for _, _, rows in read.payload.runs
            for frame in rows["frame"].tolist()
        }
        self._writes = [one for one in moved if one.kind is Kind.WRITE]

    def by(self, segment: IwarpSegment) -> bool:
        """Whether a segment carries some of it."""
        connection, sender = segment.connection, segment.sender
        if connection is None or connection.number != self._number:
            return False
        return any(part.fpdu is not None and self._is_mine(part.fpdu, sender) for part in segment.parts)

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
        return "?", f"{size(part.length)} of an {f'FPDU: {part.fault}' if part.fault else 'unknown FPDU'}"
    name = codes.opcode_name(fpdu.opcode)
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
    name = opcodes.opcode_name(opcode).removeprefix("RC ")
    return re.split(" (?:First|Middle|Last|Only)", name)[0]


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
    """Those it belongs to, the first to end first."""
    stray: StrayMessage | None
    """A message that begins in it, and is part of no RPC."""
    segment: IwarpSegment | None
    """What it is to iWARP."""
    paths: dict[int, str | None]
    """Number of an RPC -> what it names."""

    @property
    def begins_message(self) -> bool:
        """The first frame of a message of RPC-over-RDMA."""
        begins = [one.operation.first_frame for rpc in self.rpcs[:1] for one in (rpc.call, rpc.reply) if one]
        return self.stray is not None or self.frame.number in begins


def find_rpcs(session: Session, numbers: Collection[int] = (), xids: Collection[int] = ()) -> FoundRpcs:
    """The RPCs of these numbers, and the first of each of these XIDs.

    Reads no further than the last number, where there are no XIDs, and than their paths are known.
    """
    found: list[Rpc] = []
    first: dict[int, Rpc] = {}
    others: dict[int, list[int]] = {}
    left = set(numbers)
    total = 0
    files: dict[int, Pathed] = {}
    learner = session.path_learner()
    for rpc, _, file in chain.from_iterable(map(learner.named, session.tables())):
        total += 1
        if file is not None and (rpc.number in left or rpc.xid in xids):
            files[rpc.number] = file
        if rpc.number in left:
            left.discard(rpc.number)
            found.append(rpc)
        elif rpc.xid in xids and rpc.xid not in first:
            found.append(rpc)
        if rpc.xid in xids and first.setdefault(rpc.xid, rpc) is not rpc:
            others.setdefault(rpc.xid, []).append(rpc.number)
        if not left and not xids and all(pathed.sure for pathed in files.values()):
            break
    problem = unknown_rpcs(numbers, {rpc.number for rpc in found}, total) or unknown_xids(xids, first)
    paths = {number: path for number, file in files.items() if (path := file.path()) is not None}
    return FoundRpcs(found, others, problem, paths)


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
    """RPCs of which it carries a packet again, or asks for one by a NAK; the nearest first."""
    addresses = AddressTable()
    rows = decode(batch, locate(batch, addresses)).rows
    row = rows[rows["frame"] == number]
    if len(row) == 1:
        destination = addresses.name(int(row["destination"][0]))
        found = [rpc for rpc in rpcs if carries_again(rpc, row, destination)]
        yield from sorted(found, key=lambda rpc: min(abs(frame - number) for frame in frames_of(rpc)))


def no_frame(session: Session, number: int) -> str:
    """That the capture, read to its end, has no such frame."""
    return unknown_frames([FrameRange(number, number)], session.extent())


class Strays(Listener):
    """A listener that keeps each message without a part of an RPC, by its first frame."""

    takes_rows = True

    def __init__(self, conversation: Conversation, found: dict[int, StrayMessage]) -> None:
        self.conversation, self.found = conversation, found

    def other_sent(self, sender: int, message: Message) -> None:
        if message.header.procedure is not None:
            self.found[message.operation.first_frame] = StrayMessage(self.conversation, message)


Mask = NDArray[np.bool_]

MAX_ANSWER = 1_000_000_000
"""Nanoseconds after the last transmission of a packet in which it is acknowledged, or not at all."""


@dataclass(frozen=True, slots=True)
class ChosenFrames:
    """Frames, by number."""

    numbers: Int64s
    """Ascending, each once."""
    rpcs: int
    """How many RPCs they are of."""

    def among(self, frames: Int64s) -> Mask:
        """Which of some frames are chosen."""
        return _among(self.numbers, frames)

    def __contains__(self, frame: int) -> bool:
        return bool(self.among(np.array([frame]))[0])


def chosen_frames(opened: Callable[[], Session], condition: Condition | ChosenRpcs) -> ChosenFrames:
    """The frames of the RPCs of a capture that pass a condition.

    ``opened`` gives a session of it that was not read yet, again and again, with the contents of messages.  Raises
    CaptureError for what cannot be judged, and for a condition that nothing passes.
    """
    found = RpcFrames()
    session = opened()
    session.analyzer.watch_fpdus(found.watch)
    for table in session.tables():
        found.add(condition.selected(table, session))
    session.refuse(condition.problem(session))
    return with_acknowledgements(opened(), found)


class RpcFrames:
    """The frames that RPCs were put together of.  Give it tables of the chosen RPCs, and let it watch all FPDUs."""

    def __init__(self) -> None:
        self.rpcs = 0
        self.connections: dict[int, Connection] = {}
        """Of the RPCs, by number."""
        self._frames: list[Int64s] = []
        self._retransmitted: list[Int64s] = []
        self._until: list[Int64s] = []
        self._edges: list[Int64s] = []

    def watch(self, _tcp: TcpConnection, _direction: int, fpdus: Fpdus) -> None:
        """Keep in which frame headers and trailers of FPDUs are that no payload is in: Operations do not name those."""
        payload = np.diff(fpdus.edges) > 0
        frames, rows = fpdus.pieces["frame"], fpdus.rows[payload]
        for beside, edge in (
            (frames[fpdus.edges[:-1][payload]], rows["first_frame"]),
            (frames[fpdus.edges[1:][payload] - 1], rows["last_frame"]),
        ):
            apart = beside != edge
            if apart.any():
                self._edges.append(np.column_stack((beside[apart], edge[apart])))

    def add(self, table: RpcTable) -> None:
        """Those of the RPCs of a table."""
        self.rpcs += len(table)
        rows = table.rows
        for number in np.unique(rows["connection"]).tolist():
            if number not in self.connections:
                self.connections[number] = table.conversation(number).connection
        plain = table.plain_rows
        for name in ("call_frame", "reply_frame"):
            self._frames.append(plain[name].astype(np.int64))
        for reply in table.long_replies(plain["transfer"][plain["transfer"] >= 0]):
            self._add(reply.operation)
        for rpc in (*table.objects, *table.plain_rpcs(take(plain, plain["retransmissions"] > 0))):
            for operation in rpc.data_operations:
                self._add(operation)

    def _add(self, operation: Operation) -> None:
        ends = np.array([operation.first_frame, operation.last_frame], np.int64)
        runs = [rows["frame"].astype(np.int64) for _, _, rows in operation.payload.runs]
        self._frames += [ends, *runs]
        if operation.last_sent:
            for frames in (ends, *runs):
                self._retransmitted.append(frames)
                self._until.append(np.full(len(frames), operation.last_sent, np.int64))

    def frames(self) -> Int64s:
        """Ascending, each once."""
        found = np.unique(_joined(self._frames))
        if self._edges:
            edges = np.concatenate(self._edges)
            found = np.union1d(found, edges[_among(found, edges[:, 0]), 1])
        return found[found > 0]

    def until(self) -> tuple[Int64s, Int64s]:
        """Frames that were retransmitted, ascending, and when the last time, in nanoseconds."""
        frames, until = _joined(self._retransmitted), _joined(self._until)
        order = np.lexsort((-until, frames))
        frames, until = frames[order], until[order]
        first = np.diff(frames, prepend=-1) != 0
        return frames[first], until[first]


def with_acknowledgements(session: Session, own: RpcFrames) -> ChosenFrames:
    """Those frames, and all that retransmit or acknowledge something of them; reads a session that was not read yet."""
    frames = own.frames()
    retransmitted, until = own.until()
    finder = _Finder(frames, retransmitted, until, own.connections.values())
    addresses = AddressTable()
    found = [frames]
    for batch in session.batches():
        located = locate(batch, addresses)
        rows = decode(batch, located).rows
        if len(rows):
            found.append(finder.packets(rows, addresses))
        if located.tcp and finder.has_tcp:
            found.append(finder.segments(locate_tcp(batch, located.tcp, addresses), addresses))
    return ChosenFrames(np.unique(_joined(found)), own.rpcs)


@dataclass(slots=True)
class _ChosenNumbers:
    """What was sent in one direction of a connection, by its sequence numbers, as far as it is of chosen RPCs."""

    serial: SerialNumbers
    reference: int = -1
    """A late position; -1 before there is one."""
    starts: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))
    """Positions of the first and behind the last number of each packet."""
    stops: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))
    untils: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))
    """Nanoseconds; of the last transmission."""
    waiting: Int64s = field(default_factory=lambda: np.zeros((0, 2), np.int64))
    """``stop`` and time of packets that are not acknowledged yet."""

    def positions(self, numbers: Rows) -> Int64s:
        if self.reference < 0:
            self.reference = int(numbers[0]) + self.serial.modulus
        return self.serial.unwrap_near(self.reference, numbers)

    def add(self, numbers: Rows, lengths: Int64s, times: Int64s, untils: Int64s, waits: Mask) -> None:
        """Packets of chosen RPCs; ``waits``: which of them an acknowledgement answers."""
        starts = self.positions(numbers)
        stops = starts + lengths
        self.reference = int(starts[-1])
        self.starts = np.concatenate((self.starts, starts))
        order = np.argsort(self.starts, kind="stable")
        self.starts = self.starts[order]
        self.stops = np.concatenate((self.stops, stops))[order]
        self.untils = np.concatenate((self.untils, untils))[order]
        self.waiting = np.concatenate((self.waiting, np.column_stack((stops, times))[waits]))

    def forget(self, time: int) -> None:
        """Let go of what is of no use from a time on."""
        kept = self.untils + MAX_ANSWER >= time
        if not kept.all():
            self.starts, self.stops, self.untils = self.starts[kept], self.stops[kept], self.untils[kept]
        self.waiting = self.waiting[self.waiting[:, 1] + MAX_ANSWER >= time]

    def carried(self, numbers: Rows, lengths: Int64s) -> Mask:
        """Which of other packets carry something of those."""
        if not len(self.starts):
            return np.zeros(len(numbers), np.bool_)
        begin = self.positions(numbers)
        before = self.starts.searchsorted(begin + lengths, "left") - 1
        reached = np.maximum.accumulate(self.stops)
        return (before >= 0) & (reached[before] > begin)

    def acknowledged(self, numbers: Int64s, times: Int64s) -> Mask:
        """Which acknowledgements are for something of those: within them, or the first that covers one.

        ``numbers``: the first that is not acknowledged.
        """
        found = self.carried(numbers - 1, np.ones(len(numbers), np.int64))
        if not len(self.waiting):
            return found
        reached = self.positions(numbers)
        stops, since = self.waiting[:, 0], self.waiting[:, 1]
        first = np.maximum(np.maximum.accumulate(reached).searchsorted(stops), times.searchsorted(since))
        answered = np.zeros(len(stops), np.bool_)
        for place in range(len(stops)):
            at = int(first[place])
            while at < len(reached) and reached[at] < stops[place]:
                at += 1
            if at < len(reached):
                found[at] = answered[place] = True
        self.waiting = self.waiting[~answered]
        return found


class _Finder:
    """Takes the packets of batch after batch, gives the frames that are of chosen RPCs beside their own."""

    def __init__(self, own: Int64s, retransmitted: Int64s, until: Int64s, connections: Iterable[Connection]) -> None:
        self._own, self._retransmitted, self._until = own, retransmitted, until
        self._flows: dict[tuple[str, str, int, int], list[tuple[int, int, int]]] = {}
        """What packets of one end have in common -> first frame, connection number and end, the latest first."""
        self._sent: dict[tuple[int, int], _ChosenNumbers] = {}
        """By connection number and end."""
        self.has_tcp = False
        for connection in connections:
            for end in (0, 1):
                sender, receiver = connection.endpoints[end], connection.endpoints[1 - end]
                tcp = sender.port is not None
                self.has_tcp |= tcp
                ports = (sender.port or 0, receiver.port or 0) if tcp else (-1, receiver.qpn)
                flow = self._flows.setdefault((sender.address, receiver.address, *ports), [])
                flow.append((connection.first_frame, connection.number, end))
                flow.sort(reverse=True)
                self._sent[connection.number, end] = _ChosenNumbers(TCP_SEQUENCE if tcp else PSN)

    def packets(self, rows: Rows, addresses: AddressTable) -> Int64s:
        """Choose among PACKET rows."""
        rows = take(rows, opcodes.IS_RC[rows["opcode"]])
        opcode = rows["opcode"]
        answers = opcodes.IS_RESPONSE[opcode]
        acknowledges = opcodes.IS_ACKNOWLEDGE[opcode]
        waits = (opcodes.IS_LAST | opcodes.IS_ONLY)[opcode] & (opcodes.IS_SEND | opcodes.IS_WRITE)[opcode]
        ports = np.full(len(rows), -1), rows["dest_qp"]
        one = np.ones(len(rows), np.int64)
        return self._found(rows, ports, addresses, rows["psn"], one, answers, acknowledges, rows["psn"] + one, waits)

    def segments(self, rows: Rows, addresses: AddressTable) -> Int64s:
        """Choose among SEGMENT rows."""
        length = rows["length"].astype(np.int64)
        empty = (length == 0) & (rows["flags"] & ACK > 0) & (rows["flags"] & (SYN | FIN | RST) == 0)
        ports = rows["source_port"], rows["destination_port"]
        ack = rows["ack"].astype(np.int64)
        return self._found(rows, ports, addresses, rows["seq"], length, empty, empty, ack, ~empty)

    def _found(
        self,
        rows: Rows,
        ports: tuple[Rows, Rows],
        addresses: AddressTable,
        numbers: Rows,
        lengths: Int64s,
        answers: Mask,
        acknowledges: Mask,
        acknowledged: Int64s,
        waits: Mask,
    ) -> Int64s:
        """``answers``: packets that have the other end's numbers."""
        found = np.zeros(len(rows), np.bool_)
        own = _among(self._own, rows["frame"])
        for sent, which in self._by_sender(rows, ports, addresses, answers):
            sent.forget(int(rows["time"][which[0]]))
            mine = which[own[which] & (lengths[which] > 0) & ~acknowledges[which]]
            if len(mine):
                times = rows["time"][mine]
                untils = np.maximum(times, self._last_time(rows["frame"][mine]))
                sent.add(numbers[mine], lengths[mine], times, untils, waits[mine])
            carrying, acks = which[~acknowledges[which]], which[acknowledges[which]]
            if len(carrying):
                found[carrying] = sent.carried(numbers[carrying], lengths[carrying])
            if len(acks):
                found[acks] = sent.acknowledged(acknowledged[acks], rows["time"][acks])
        return np.asarray(rows["frame"][found], np.int64)

    def _last_time(self, frames: Int64s) -> Int64s:
        """When they were last transmitted, where they were retransmitted; else 0."""
        if not len(self._retransmitted):
            return np.zeros(len(frames), np.int64)
        place = np.minimum(self._retransmitted.searchsorted(frames), len(self._retransmitted) - 1)
        return np.where(self._retransmitted[place] == frames, self._until[place], 0)

    def _by_sender(
        self, rows: Rows, ports: tuple[Rows, Rows], addresses: AddressTable, answers: Mask
    ) -> Iterable[tuple[_ChosenNumbers, Int64s]]:
        """The rows of each direction of each connection of chosen RPCs, by whose sequence numbers they have."""
        hosts, of_hosts = np.unique(_pairs(rows["source"], rows["destination"]), return_inverse=True)
        ends, of_ends = np.unique(_pairs(*ports), return_inverse=True)
        distinct, which = np.unique(of_hosts * len(ends) + of_ends, return_inverse=True)
        sender = np.full((len(rows), 2), -1, np.int64)
        for index, both in enumerate(distinct.tolist()):
            source, destination = map(addresses.name, _unpaired(hosts[both // len(ends)]))
            flows = self._flows.get((source, destination, *_unpaired(ends[both % len(ends)])))
            if flows is None:
                continue
            left = np.flatnonzero(which == index)
            for place, (first, number, end) in enumerate(flows):
                later = left if place == len(flows) - 1 else left[rows["frame"][left] >= first]
                left = np.setdiff1d(left, later)
                sender[later] = number, end
        sender[:, 1] ^= answers & (sender[:, 0] >= 0)
        known = np.flatnonzero(sender[:, 0] >= 0)
        ids = sender[known, 0] * 2 + sender[known, 1]
        order = np.argsort(ids, kind="stable")
        edges = np.flatnonzero(np.diff(ids[order], prepend=-1))
        for some in np.split(known[order], edges[1:]):
            if len(some):
                number, end = sender[some[0]].tolist()
                yield self._sent[number, end], some


def _pairs(first: Rows, second: Rows) -> Int64s:
    """Two numbers, the second of 32 bits without sign, as one."""
    return first.astype(np.int64) << 32 | second


def _unpaired(both: int) -> tuple[int, int]:
    return int(both) >> 32, int(both) & 0xFFFFFFFF


def _joined(arrays: list[Int64s]) -> Int64s:
    return np.concatenate(arrays) if arrays else np.zeros(0, np.int64)


def _among(ascending: Int64s, frames: Int64s) -> Mask:
    if not len(ascending):
        return np.zeros(len(frames), np.bool_)
    place = np.minimum(ascending.searchsorted(frames), len(ascending) - 1)
    return np.asarray(ascending[place] == frames)
