"""One RPC or one frame of a capture, and what belongs to it."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from rdmascope.dissect.diagnosis.rpc_facts import HUNG
from rdmascope.dissect.frames import Frame, FrameBatch
from rdmascope.dissect.link.locate import AddressTable, locate
from rdmascope.dissect.link.packets import decode
from rdmascope.dissect.measure.filters import FrameRange, unknown_frames, unknown_rpcs, unknown_xids
from rdmascope.dissect.rpcrdma.conversation import Conversation
from rdmascope.dissect.rpcrdma.listeners import Listener
from rdmascope.dissect.rpcrdma.messages import Message
from rdmascope.dissect.rpcrdma.rpc_table import RpcTable
from rdmascope.dissect.rpcrdma.rpcs import Rpc

from ..read.remote import size_of
from ..tables.saved import holds_tables
from .sequence_diagram import Carried, carries_again, frames_of, watch_segments
from .session import MAX_READ_FOR_NAMES, Session

if TYPE_CHECKING:
    from rdmascope.dissect.diagnosis.facts import Facts
    from rdmascope.dissect.measure.pending_names import Pathed
    from rdmascope.dissect.transport.iwarp.segments import IwarpSegment

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
        if not left and not xids and all(one.sure for one in files.values()):
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
        if seen and analyzer.iwarp is not None and not (segments and all(one.fpdu for one in segments[0].parts)):
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
