"""One pass over a capture: opened, read ahead, analysed; damage survived, growth followed, old connections evicted.

What every command and the library's ``read`` stand on.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from rdmascope.dissect.arrays import unique
from rdmascope.dissect.frames import FrameBatch, FrameRun, Place
from rdmascope.dissect.link.frame_decoder import DecodedFrames
from rdmascope.dissect.measure.data_servers import DataServers
from rdmascope.dissect.measure.filters import MAX_FRAME, CaptureExtent, FrameRange
from rdmascope.dissect.records.schema import Record, placed
from rdmascope.dissect.rpcrdma.analyzer import Analyzer, Options
from rdmascope.dissect.rpcrdma.conversation import Conversation
from rdmascope.dissect.rpcrdma.rpc_table import RpcTable
from rdmascope.dissect.rpcrdma.rpcs import DUPLICATE_REPLY, Rpc
from rdmascope.dissect.units import plural

from ..errors import CaptureError
from ..read.merge import (
    MergedCaptures,
    NumberOffset,
    OtherPoint,
    Places,
    Source,
    decoded,
    first_of,
    open_captures,
    ring_of,
    short_names,
)
from ..read.open import Follow, is_plain_capture
from ..read.remote import local, size_of, stays
from ..read.streams import Limits
from ..tables.saved import holds_tables
from .process_memory import MallocTrimmer, gc_paused, keep_freed

if TYPE_CHECKING:
    from rdmascope.dissect.audit.auditor import Auditor
    from rdmascope.dissect.measure.credits import CreditDirection
    from rdmascope.dissect.measure.file_names import NamedFile, PathLearner, Paths as FileNames
    from rdmascope.dissect.measure.files import FileTable, FileTransfer
    from rdmascope.dissect.records.packet_columns import FrameMask, ListedPackets, Packet
    from rdmascope.dissect.rpcrdma.rpc_fields import FieldReader
    from rdmascope.dissect.trace.analyzer import TraceAnalyzer
    from rdmascope.dissect.trace.events import Event

    from ..parallel.combine import DividedBatch
    from ..parallel.processes import Division
    from .joined_traces import JoinedTraces
    from .listeners import PassListener

Made = TypeVar("Made", FrameBatch, DecodedFrames, "DecodedFrames | DividedBatch")

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
"""One path, or several to be read as one capture; a directory stands for the captures in it, - for standard input."""

Progress = Callable[[int, int | None, int], None]
"""Is given bytes read, bytes in all (None: not known), and frames read, after every batch."""

LISTED_FRAMES = 1 << 13
"""Frames of a batch of which every packet becomes text: less memory, for hardly more time."""
MAX_READ_FOR_NAMES = 64 << 20
"""Bytes of captures that a list of packets reads once more for names which come later."""
INCOMPLETE_PATHS = (
    f"some paths are as far as known when their packet was listed: captures above {MAX_READ_FOR_NAMES >> 20} MiB"
    " are not read again for names that come later; rpcs and show have them"
)


class Session:
    """One pass over a capture, which can be made once.

    Damage in the file raises nothing while there is something to give: ``damage`` has it, and ``check()`` raises it at
    the end.

    Attributes:
        analyzer: the state so far: frames, packets, times, connections, what was skipped.
        damage: why reading ended early; None where it did not.
        passed_over: files of a directory that are no captures, and why.
        other_points: files whose traffic another one of them shows, too, captured at another point.
        data_servers: the pNFS data servers that were named so far.
        frames_before: frames of captures before this one, behind which its own numbers begin.
    """

    def __init__(
        self,
        paths: Paths,
        options: Options | None = None,
        *,
        follow: Follow | None = None,
        limits: Limits | None = None,
        progress: Progress | None = None,
        before: NumberOffset | None = None,
        jobs: int | None = None,
    ) -> None:
        """``before``: the capture is one of a data set, or the rest of one of which the first files are gone.

        ``jobs``: processes that analyse RPCs, where the capture can be divided among them; None: as is usual.
        """
        given = (paths,) if isinstance(paths, str | os.PathLike) else paths
        self.given = tuple(local(os.fspath(path)) for path in given)
        """All of ``paths`` as they were given."""
        traces = tuple(path for path in self.given if _is_trace(path))
        self.traced = len(traces) == len(self.given)
        """It is a trace of a kernel, which has no packets."""
        self.paths = traces[:1] if self.traced else tuple(path for path in self.given if path not in traces)
        self._beside = traces[1:] if self.traced else traces
        """Traces of the same RPCs."""
        self._joined: JoinedTraces | None = None
        self.path = self.given[0] + (f" and {len(self.given) - 1} more" if len(self.given) > 1 else "")
        self.follow = follow
        self.passed_over: list[str] = []
        self.other_points: list[OtherPoint] = []
        self.jobs = jobs
        self.analyzer = _trace_analyzer(options) if self.traced else _analyzer(options, jobs)
        self.data_servers = DataServers()
        self._division: Division | None = None
        self._pass_listeners: Sequence[PassListener] = ()
        self.damage: CaptureError | None = None
        self._places: Places | None = None
        self._files: list[str] = []
        self.names: Mapping[str, str] = {}
        """Shown names of the files that were read, by path."""
        self._limits = limits
        self._progress = progress
        self._before = before or NumberOffset()
        self.frames_before = self._before.frames
        self.analyzer.number_behind(self._before.connections, self._before.rpcs)
        self._file_names: FileNames[NamedFile] | None = None
        self._learner: PathLearner | None = None
        """For a list of packets of a large capture."""

    def watch(self, *pass_listeners: PassListener) -> None:
        """Let listeners follow all conversations of the pass, in whichever process these are analysed."""
        from .listeners import listener_of  # Only here, as below: a report has none.

        self._pass_listeners = pass_listeners
        self.analyzer.listener = listener_of(pass_listeners)

    @property
    def first_time(self) -> int:
        """Nanoseconds; of the first frame, 0 before there is one."""
        return self._before.first_time or self.analyzer.first_time or 0

    def batches(self) -> Iterator[FrameBatch]:
        """The batches of frames, up to the damage if there is any."""
        return self._read(lambda capture: capture.batches())

    def decoded(self) -> Iterator[DecodedFrames]:
        """The batches of frames, decoded."""
        return self._read(self._decoded)

    def _decoded(self, capture: Source) -> Iterator[DecodedFrames]:
        return decoded(capture, self.analyzer.decoder)

    def _shared(self, capture: Source, lists: bool = False) -> Iterator[DecodedFrames | DividedBatch]:
        """Decoded batches, or what workers made of them; the workers then have the listeners to conversations, too.
        ``lists``: packets are listed, so that a batch of workers keeps what was decoded.
        """
        jobs = self.jobs or 1
        if jobs < 2 or isinstance(capture, MergedCaptures) or capture.mapped is None:
            return self._decoded(capture)
        if self.analyzer.listener is not None and not (
            self._pass_listeners and all(listener.divisible for listener in self._pass_listeners)
        ):
            return self._decoded(capture)
        from ..parallel.combine import MergedAnalyzer
        from ..parallel.processes import Division, carries_iwarp

        if lists and carries_iwarp(self.paths[0], self.analyzer.options.ports):
            return self._decoded(capture)  # Its segments are found by who analyses them.
        assert isinstance(self.analyzer, MergedAnalyzer)
        self.analyzer.pass_listeners = self._pass_listeners
        self._division = Division(capture, capture.mapped, self.analyzer, jobs, lists)
        return self._division.batches()

    def rpcs(self, on_eviction: Callable[[list[Conversation]], None] | None = None) -> Iterator[Rpc]:
        """RPCs as they end, and at the end those that never did.

        ``on_eviction`` is given conversations of which no more RPC comes, where they are too many to be kept.
        """
        for table in self.tables(on_eviction, chunk_rows=True):
            yield from table
            del table  # Or its RPCs would live until the next batch is analysed.

    def named_rpcs(self) -> Iterator[Rpc]:
        """RPCs as they end, with the path and the user that their calls name."""
        from rdmascope.dissect.measure.file_names import TableNames

        learner = self.path_learner()
        for table in self.tables():
            names = TableNames(*learner.learn(table), table.rows["number"])
            for rpc in table:
                rpc.named = names
                yield rpc
            del table

    def tables(
        self, on_eviction: Callable[[list[Conversation]], None] | None = None, chunk_rows: bool = False
    ) -> Iterator[RpcTable]:
        """RPCs as they end, a table for each batch. ``chunk_rows``: RPCs with many chunks need not be objects."""
        try:
            yield from self._tables(on_eviction, chunk_rows)
        finally:
            self._close()

    def _close(self) -> None:
        if self._division is not None:
            self._division.close()

    def _tables(self, on_eviction: Callable[[list[Conversation]], None] | None, chunk_rows: bool) -> Iterator[RpcTable]:
        heap = MallocTrimmer()
        for batch in self._read_trace() if self.traced else self._read(self._shared):
            with gc_paused():
                table = self._with_traces(self._analysed(batch))
                self.data_servers.learn(table, lambda: self.analyzer.conversations)
            del batch
            yield table if chunk_rows else table.with_readable_rows()
            del table
            heap.grown(self.analyzer.connections_so_far)
            gone = self.analyzer.evicted_since()
            if gone and on_eviction is not None:
                on_eviction(gone)
            del gone
        table = self._with_traces(self._finished())
        self.data_servers.learn(table, lambda: self.analyzer.conversations)
        self.data_servers.mark(self.analyzer.conversations)
        yield table if chunk_rows else table.with_readable_rows()

    def _with_traces(self, table: RpcTable) -> RpcTable:
        """With what other traces tell of these RPCs."""
        if not self._beside:
            return table
        if self._joined is None:
            from .joined_traces import JoinedTrace, JoinedTraces

            traces = []
            for path in self._beside:
                other = Session(path)
                rpcs = list(other.rpcs())
                traces.append(JoinedTrace(path, other.analyzer.traced, rpcs))
                self.analyzer.troubles += other.analyzer.troubles
            self._joined = JoinedTraces(self.analyzer.traced, traces)
        return self._joined.add_to(table)

    def _analysed(self, batch: DecodedFrames | DividedBatch | list[Event]) -> RpcTable:
        if isinstance(batch, list):
            return self._trace_analyzer.feed_events(batch)
        if isinstance(batch, DecodedFrames):
            return self.analyzer.feed_table(batch)
        assert self._division is not None
        return self._division.put_together(batch)

    def _finished(self) -> RpcTable:
        return self.analyzer.finish_table() if self._division is None else self._division.finish()

    def packets(self, first: int = 1, last: int = MAX_FRAME) -> Iterator[Packet]:
        """The packets of frames ``first`` to ``last``, with the RPCs they belong to."""
        for listed in self.packet_columns([FrameRange(first, last)]):
            yield from listed.objects()

    def packet_columns(
        self,
        wanted: Sequence[FrameRange] = (),
        chosen: FrameMask | None = None,
        on_rpcs: Callable[[RpcTable], None] | None = None,
        names_rpcs: bool = True,
    ) -> Iterator[ListedPackets]:
        """Packets in columns, batch by batch. ``wanted``: frames; all if empty. ``chosen``: a mask over these.
        ``on_rpcs`` gets the RPCs as they end. ``names_rpcs``: name the RPCs that packets belong to; else only what
        their own headers say.
        """
        from rdmascope.dissect.records.packet_columns import PacketColumnLister

        follows = self.follow is not None
        lister = PacketColumnLister(self.analyzer, wanted, follows, chosen, self._listed_paths(), names_rpcs)
        lister.on_rpcs = on_rpcs
        if self._limits is None and on_rpcs is None:  # Else the RPCs are held, too, and more of them at once cost less.
            self._limits = Limits(frames=LISTED_FRAMES)
        try:
            for batch in self._read(partial(self._shared, lists=True)):
                decoded = batch if isinstance(batch, DecodedFrames) else batch.decoded
                assert decoded is not None
                yield from lister.take(decoded, self._analysed(batch))
                if lister.done:
                    return
            yield from lister.finish(self._finished())
        finally:
            self._close()

    def field_reader(self) -> FieldReader:
        """A reader of what the RPCs name: files, ranges, state and callers."""
        from rdmascope.dissect.rpcrdma.rpc_fields import FieldReader

        return FieldReader()

    def path_learner(self) -> PathLearner:
        """A learner of the paths that RPCs name, shared by everything in one pass."""
        learner = self._learner_without_names()
        learner.read_names = self._read_file_names
        return learner

    def _learner_without_names(self) -> PathLearner:
        from rdmascope.dissect.measure.file_names import PathLearner

        if self._learner is None:
            self._learner = PathLearner(self.field_reader())
        return self._learner

    def _listed_paths(self) -> PathLearner:
        """Learns paths for a list of packets, which does not wait for later names where captures are large."""
        large = sum(size_of(path) or 0 for path in self.paths) > MAX_READ_FOR_NAMES
        return self._learner_without_names() if large else self.path_learner()

    def _read_file_names(self) -> FileNames[NamedFile] | None:
        """All names of files that the capture has, in a pass of its own; None where it can be read only once."""
        other = self.again() if self._file_names is None else None
        if other is not None:
            learner = other.path_learner()
            for table in other.tables():
                learner.learn_names(table)
                del table
            self._file_names = learner.paths
        return self._file_names

    def again(self) -> Session | None:
        """Another session of the capture, not read yet; None if it can be read only once."""
        if self.follow is not None or not all(map(stays, self.paths)):
            return None
        options = self.analyzer.options._replace(contents=True)
        return Session(self.given, options, limits=self._limits, before=self._before)

    def credit_directions(self, on_rpcs: Callable[[RpcTable], None] | None = None) -> Iterator[CreditDirection]:
        """The credits of each connection and direction with calls or replies, by connection; takes a whole pass.

        ``on_rpcs`` is given the RPCs before, a table for each batch.
        """
        from ..parallel.processes import unchanging  # Only here, all of them: few ask for it.
        from ..write.output import spool
        from .listeners import DividedCredits

        credits = DividedCredits()
        self.watch(credits)
        places: dict[int, int] = {}
        """Where in the file what is over is, by connection."""
        with spool() as file:

            def evict(gone: list[Conversation]) -> None:
                for conversation in gone:
                    number = conversation.connection.number
                    directions = credits.directions.pop(number, ())
                    if any(direction.calls or direction.replies for direction in directions):
                        places[number] = file.tell()
                        pickler = pickle.Pickler(file, pickle.HIGHEST_PROTOCOL)
                        pickler.dispatch_table = {MappingProxyType: lambda mapping: (unchanging, (dict(mapping),))}
                        pickler.dump(directions)

            for table in self.tables(evict):
                if on_rpcs is not None:
                    on_rpcs(table)
                del table
            for number in sorted(places.keys() | credits.directions.keys()):
                if number in places:
                    file.seek(places[number])
                    directions = pickle.load(file)
                else:
                    directions = credits.directions[number]
                yield from (direction for direction in directions if direction.calls or direction.replies)

    def files(
        self,
        on_transfers: Callable[[list[FileTransfer]], None] | None = None,
        passes: Callable[[RpcTable], NDArray[np.bool_]] | None = None,
    ) -> FileTable:
        """The files of NFS calls; takes a whole pass. ``on_transfers`` gets what was transferred.

        ``passes``: which RPCs of a table count; the others still tell names, types and sizes.
        """
        from rdmascope.dissect.measure.files import FileTable

        files = FileTable()
        for table in self.tables():
            uses = files.add_table(table, None if passes is None else passes(table))
            if on_transfers is not None:
                for _, transfers in uses.transfers:
                    on_transfers(transfers)
            del table, uses
        return files

    def audit(
        self,
        auditor: Auditor,
        connections: Collection[int] = (),
        select: Callable[[RpcTable, Session], RpcTable] | None = None,
    ) -> int:
        """Judge all connections in a whole pass. Returns the number of RPCs on ``connections``, or on all, that
        ``select`` leaves in their tables.

        What goes over TCP without RDMA is judged by no rule, and does not count.
        """
        from .listeners import DividedAudit

        self.needs_packets()
        self.watch(DividedAudit(auditor))
        rpcs = 0
        for whole in self.tables(auditor.evict):
            table = whole if select is None else select(whole, self)
            on = table.only_rows["connection"]
            rdma = [number for number in unique(on).tolist() if table.conversation(number).connection.rdma]
            rows = np.isin(on, rdma)
            if connections:
                rows &= np.isin(on, [*connections])
            rpcs += int(np.count_nonzero(rows))
            rpcs += sum(
                rpc.state != DUPLICATE_REPLY
                and rpc.connection.rdma
                and (not connections or rpc.connection.number in connections)
                for rpc in table.objects
            )
            auditor.forget(self.analyzer.last_time or 0)
        auditor.finish(self.analyzer.conversations)
        return rpcs

    def _read(self, line: Callable[[Source], Iterator[Made]]) -> Iterator[Made]:
        """What ``line`` gives of the frames, until they end or are damaged."""
        self.needs_packets()
        frames, before = 0, self._before.frames
        keep_freed()
        try:
            with open_captures(self.paths, self._limits, self.follow) as capture:
                capture.number_behind(before)
                alone: Places | None = Places(before) if self._before.names else None
                if isinstance(capture, MergedCaptures):
                    self.passed_over = capture.passed_over
                    self.other_points = capture.other_points
                    self.analyzer.decoder.hosts_elsewhere = capture.hosts_elsewhere
                    if alone is not None or (len(capture.files) > 1 and not before):
                        self._places, alone = capture.places, None
                    self._files = capture.files
                elif alone is not None:
                    self._places = alone
                self.names = self._before.names or short_names(self._files)
                made = line(capture)
                while True:
                    with gc_paused():
                        batch = next(made, None)
                    self.analyzer.dropped_frames = capture.dropped_frames
                    self.analyzer.time_steps = capture.time_steps
                    if batch is None:
                        break
                    frames += len(batch)
                    if alone is not None:
                        alone.add([(self.paths[0], 1)], np.zeros(len(batch), np.uint8))
                    yield batch
                    del batch
                    if self._progress is not None:
                        self._progress(capture.position, capture.size, frames)
        except CaptureError as error:
            if not frames:
                for path in filter(holds_tables, self.paths):
                    from ..tables.saved_tables import packets_elsewhere

                    raise CaptureError(packets_elsewhere(path)) from None
                raise
            self.damage = error

    def _read_trace(self) -> Iterator[list[Event]]:
        """The events of a trace, likewise."""
        from ..read.traces import Trace  # Only here, as below: most captures are no trace.

        analyzer = self._trace_analyzer
        try:
            with Trace(self.paths[0]) as trace:
                for events in trace.batches():
                    analyzer.frames, analyzer.dropped_frames = trace.events, trace.lost
                    yield events
                    if self._progress is not None:
                        self._progress(trace.position, trace.size, trace.events)
                analyzer.frames, analyzer.dropped_frames = trace.events, trace.lost
        except CaptureError as error:
            if not analyzer.frames:
                raise
            self.damage = error

    @property
    def _trace_analyzer(self) -> TraceAnalyzer:
        return cast("TraceAnalyzer", self.analyzer)

    def needs_packets(self) -> None:
        """Raise CaptureError if there are no packets."""
        if self.traced:
            raise CaptureError(f"{self.path}: a trace of a kernel has no packets, and no bytes of messages")

    def check(self) -> None:
        """Raise CaptureError for damage in the capture, after what it gave was used."""
        if self.damage is not None:
            raise self.damage
        if self.traced:
            if not self.analyzer.connections:
                words = "with the events rpcrdma, sunrpc and nfsd there would be"
                raise CaptureError(f"{self.path}: no RPC among {plural(self.analyzer.frames, 'event')}; {words}")
            return
        frames = self.analyzer.frames
        if not frames:
            raise CaptureError(f"{self.path}: no frames in it")
        if not self.analyzer.packets and not self.analyzer.connections:  # a refused one may be all
            kinds = ", ".join(kind for kind, _ in self.analyzer.skipped.most_common(3))
            words = f"no RDMA packet among {plural(frames, 'frame')} ({kinds})"
            raise CaptureError(f"{self.path}: {words}")

    def place(self, frame: int) -> Place | None:
        """The file that the frame of this number is in, and its number there; None for a frame that was not read."""
        if self._places is not None:
            return self._places.find(frame)
        path = self._files[0] if self._files else self.paths[0]
        return Place(path, frame) if 0 < frame <= self.analyzer.frames else None

    def place_runs(self) -> Iterator[FrameRun]:
        """Which frames are in which of several files; nothing if one file was read."""
        return iter(()) if self._places is None else self._places.runs()

    def placed(self, fields: Record) -> Record:
        """The record, with the file of each frame and its number there if several files are read as one."""
        return fields if self._places is None else placed(fields, self.place)

    def place_words(self, *frames: int | None) -> str:
        """Frames in their files, as in 'b.pcap:12-80'; '' if one file is read, or none of the frames is known."""
        if self._places is None:
            return ""
        text, before = "", ""
        for place in (self._places.find(frame or 0) for frame in frames):
            if place is None:
                continue
            name = self.names[place.file]
            text += ("-" if text else "") + (str(place.frame) if name == before else f"{name}:{place.frame}")
            before = name
        return text

    def place_width(self, digits: int) -> int:
        """Columns of ``place_words`` with numbers of so many digits in one file."""
        return max(map(len, self.names.values()), default=0) + 1 + digits

    @property
    def several(self) -> bool:
        """Several files are read as one capture."""
        return self._places is not None

    def extent(self) -> CaptureExtent:
        """The extent of what was read, for filters."""
        analyzer = self.analyzer
        return CaptureExtent(
            analyzer.frames,
            frozenset(connection.number for connection in analyzer.connections),
            analyzer.evicted.connections,
            self.first_time,
            analyzer.last_time or 0,
        )

    def refuse(self, problem: str) -> None:
        """Raise CaptureError for a filter that can match nothing, and say what else is wrong; '' is no problem."""
        if not problem:
            return
        try:
            self.check()
        except CaptureError as error:
            raise CaptureError(f"{problem}; {error}") from None
        raise CaptureError(f"{self.path}: {problem}")

    def host(self, connection: int) -> str | None:
        """The host on which the capture of a connection was made; only data sets know it."""
        return None

    def ring(self, path: str) -> tuple[str, ...]:
        """The files that were read from the ring of ``path``, in order."""
        return tuple(file for file in self._files if ring_of(file) == ring_of(path))

    def joined_records(self) -> list[Record]:
        """The records of traces joined with the capture, as far as they are known by now."""
        return [] if self._joined is None else self._joined.records()

    def remarks(self) -> list[str]:
        """Which files of a directory were passed over, and which were captured elsewhere: a line each."""
        passed_over = [f"passed over: {first_of(self.passed_over)}"] if self.passed_over else []
        incomplete = [INCOMPLETE_PATHS] if self._learner is not None and self._learner.incomplete else []
        joined = [] if self._joined is None else [*self._joined.remarks()]
        return passed_over + [str(point) for point in self.other_points] + incomplete + joined


def _is_trace(path: str) -> bool:
    if is_plain_capture(path):
        return False
    from ..read.traces import is_trace

    return is_trace(path)


def _trace_analyzer(options: Options | None) -> TraceAnalyzer:
    from rdmascope.dissect.trace.analyzer import TraceAnalyzer

    return TraceAnalyzer(options)


def _analyzer(options: Options | None, jobs: int | None) -> Analyzer:
    if jobs is None or jobs < 2:
        return Analyzer(options)
    from ..parallel.combine import MergedAnalyzer  # Only here: every report would wait for it.

    return MergedAnalyzer(options)
