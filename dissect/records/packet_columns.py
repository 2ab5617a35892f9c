"""The packets of a capture with their info columns, batch by batch in columns, without an object for each.

``packets`` has the same packets as objects; a property test holds the two equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import compress

import numpy as np
from numpy.typing import NDArray

from ..arrays import Int64s, Rows, take
from ..frames import FrameBatch
from ..link.addresses import AddressTable
from ..link.duplicates import DUPLICATE, MIRRORED
from ..link.frame_decoder import DecodedFrames
from ..link.locate import locate
from ..link.packets import decode
from ..measure.file_names import PathLearner
from ..measure.filters import MAX_FRAME, FrameRange, includes
from ..onc.compound_columns import OperationSequences
from ..rpcrdma.analyzer import Analyzer
from ..rpcrdma.rpc_table import RpcTable
from ..rpcrdma.rpcs import Rpc
from ..text_columns import KnownTexts
from .packet_rpcs import PacketRpcs, outstanding_calls
from .packet_wording import Worded, worded
from .packets import Packet, SegmentPackets
from .plain_info import plain_info

FrameMask = Callable[[Int64s], NDArray[np.bool_]]
"""Says which of some frames, by number, are meant."""


@dataclass(frozen=True, slots=True)
class ListedPackets:
    """The packets of a batch that are wanted."""

    batch: FrameBatch
    rows: Rows
    """PACKET rows."""
    addresses: AddressTable
    worded: list[Worded]
    """Each row is in one of these, where what packets are of is asked for."""
    segments: list[Packet]
    """TCP segments of iWARP."""

    def __len__(self) -> int:
        return len(self.rows) + len(self.segments)

    @property
    def frames(self) -> Int64s:
        """Frame numbers of the rows, and behind them of the segments."""
        segments = np.array([one.frame for one in self.segments], np.int64)
        return np.concatenate((self.rows["frame"].astype(np.int64), segments))

    def ordered(self, made: Iterable[list[bytes]], segments: Sequence[bytes]) -> list[bytes]:
        """What was made of each of ``worded``, and of ``segments``, in the order of frames."""
        found = np.empty(len(self), object)
        for rows, texts in zip([one.rows for one in self.worded], made, strict=True):
            found[rows] = texts
        if segments:
            found[len(self.rows) :] = segments
            found = found[self.frames.argsort(kind="stable")]
        listed: list[bytes] = found.tolist()
        return listed


class PacketColumnLister:
    """Feed it decoded batches of frames, take their packets: those of a batch when the next was analysed, too.

    Args:
        analyzer: is fed by ``feed``, or by who calls ``take``.
        wanted: frames to list; all where there are none.
        at_once: list a batch as soon as it was analysed, though its RPCs may end later.
        chosen: of the wanted, only those of which this is true; it is given the numbers of frames.
        learner: of paths.
        names_rpcs: say what packets are of, in words; without, ``worded`` has none.
    """

    def __init__(
        self,
        analyzer: Analyzer,
        wanted: Sequence[FrameRange] = (),
        at_once: bool = False,
        chosen: FrameMask | None = None,
        learner: PathLearner | None = None,
        names_rpcs: bool = True,
    ) -> None:
        self.analyzer = analyzer
        self._names_rpcs = names_rpcs
        self.on_rpcs: Callable[[RpcTable], None] | None = None
        """Is given the RPCs that ended, batch by batch."""
        self._learner = learner or PathLearner()
        self.done = False
        """No further batch has a packet to list."""
        self._wanted = wanted
        self._chosen = chosen
        self._last = max((one.last for one in wanted), default=MAX_FRAME)
        self._at_once = at_once
        self._waiting: tuple[DecodedFrames, RpcTable, KnownTexts | None] | None = None
        self._rpcs = PacketRpcs()
        self._segments = SegmentPackets(analyzer)
        self._sequences = OperationSequences()

    def feed(self, decoded: DecodedFrames) -> Iterator[ListedPackets]:
        """Take a batch that is not empty."""
        return self.take(decoded, self.analyzer.feed_table(decoded))

    def take(self, decoded: DecodedFrames, table: RpcTable) -> Iterator[ListedPackets]:
        """The same of a batch that was analysed, and the RPCs that ended in it."""
        iwarp = self.analyzer.iwarp
        # Segments look for the packets of their RPCs by objects.
        table = table.with_few_chunks(iwarp.connections if iwarp is not None else ())
        first = int(decoded.batch.rows["number"][0])
        paths = self._note(table, first)
        if self._waiting is not None:
            yield self._columns(*self._waiting)
            self.done = first > self._last
        self._waiting = decoded, table, paths
        if self._at_once:
            self._waiting = None
            yield self._columns(decoded, table, paths)

    def finish(self, table: RpcTable | None = None) -> Iterator[ListedPackets]:
        """The input is over; ``table``: the RPCs that ended with it, where they are known."""
        self._note(RpcTable(self.analyzer.finish()) if table is None else table)
        if self._waiting is not None:
            yield self._columns(*self._waiting)
            self._waiting = None

    def _note(self, table: RpcTable, first: int = 0) -> KnownTexts | None:
        """Returns what the plain RPCs name; the batch that they ended in begins with frame ``first``."""
        if self.on_rpcs is not None:
            self.on_rpcs(table)
        if not self._names_rpcs:
            return None
        paths = self._learner.learn_paths(table, min((one.first for one in self._wanted), default=1), self._last)
        objects = zip(table.objects, paths.rows(table.places).listed(), strict=True)
        self._remember([*objects])
        named = paths.rows(table.plain)
        # What waited behind a gap, or for the other direction of its connection, is in the batch before.
        early = (table.plain_rows["call_frame"] < first).nonzero()[0]
        if len(early):
            rpcs = table.plain_rpcs(take(table.plain_rows, early))
            self._remember([*zip(rpcs, named.rows(early).listed(), strict=True)])
        return named

    def _remember(self, rpcs: list[tuple[Rpc, str | None]]) -> None:
        """Which packets RPCs, or calls, are in."""
        for rpc, path in self._segments.note(rpcs):
            self._rpcs.note(rpc, path)

    def _columns(self, decoded: DecodedFrames, table: RpcTable, paths: KnownTexts | None) -> ListedPackets:
        batch = decoded.batch
        if self._names_rpcs:
            numbers = batch.rows["number"]
            self._remember(outstanding_calls(self.analyzer, self._learner, int(numbers[0]), int(numbers[-1])))
        rows = decoded.packets.rows
        if not {DUPLICATE, MIRRORED}.isdisjoint(decoded.packets.skipped):
            rows = decode(batch, locate(batch, self.analyzer.addresses)).rows
        segments = [*self._segments.packets(batch)]
        if self._wanted:
            rows = take(rows, _any_of(self._wanted, rows["frame"]))
            segments = [one for one in segments if includes(self._wanted, one.frame)]
        if self._chosen is not None:
            rows = take(rows, self._chosen(rows["frame"]))
            mine = self._chosen(np.array([one.frame for one in segments], np.int64))
            segments = [*compress(segments, mine.tolist())]
        if not self._names_rpcs:
            return ListedPackets(batch, rows, self.analyzer.addresses, [], segments)
        plain = table.plain_rows
        long = take(plain, plain["transfer"] >= 0)
        for number, reply in zip(long["number"].tolist(), table.long_replies(long["transfer"]), strict=True):
            self._rpcs.use(number, "reply", (reply.operation,))
        if self._sequences.full:
            self._sequences = OperationSequences()
        found = [*worded(batch, rows, self.analyzer, self._rpcs, plain_info(table, self._sequences, paths))]
        self._rpcs.forget(int(batch.rows["number"][-1]))
        return ListedPackets(batch, rows, self.analyzer.addresses, found, segments)


def _any_of(wanted: Sequence[FrameRange], frames: Int64s) -> NDArray[np.bool_]:
    found = np.zeros(len(frames), np.bool_)
    for one in wanted:
        found |= (frames >= one.first) & (frames <= one.last)
    return found
