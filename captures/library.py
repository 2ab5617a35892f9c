"""``rdmascope.read`` and what it gives: captures to iterate over, from a program."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, TypeVar

from rdmascope.dissect.audit.auditor import Auditor
from rdmascope.dissect.audit.rule import Finding, UnknownRule, select_rules
from rdmascope.dissect.frames import Place
from rdmascope.dissect.measure.nfs_state_history import NfsStateHistory
from rdmascope.dissect.records.packet_columns import Packet
from rdmascope.dissect.records.rpc_columns import DTYPES, Columns, Wanted, in_order, joined
from rdmascope.dissect.records.tables import TABLES
from rdmascope.dissect.rpcrdma.analyzer import NFS_RDMA_PORT, Options
from rdmascope.dissect.rpcrdma.conversation import Conversation
from rdmascope.dissect.rpcrdma.listeners import Listener
from rdmascope.dissect.rpcrdma.rpcs import Rpc
from rdmascope.dissect.transport.connection import Connection

from .errors import CaptureError, Closing, UnknownNameError
from .read.merge import open_captures
from .read.open import Follow
from .read.remote import is_url, local, stays
from .read.streams import Limits
from .read.traces import is_trace
from .session.session import Paths, Progress, Session
from .tables.column_table import ColumnTable, masked_as
from .tables.saved import holds_tables, is_data_set
from .tables.table_pass import needs_contents, table_batches

if TYPE_CHECKING:
    from rdmascope.dissect.diagnosis.facts import Diagnosis
    from rdmascope.dissect.measure.call_groups import CallGroups, LatencyInterval, ServiceLevelCounts

    from .session.grouping import RpcGrouping
    from .tables.database import Database

Given = TypeVar("Given")


def read(
    paths: Paths,
    *,
    ports: Iterable[int] = (),
    force: bool = False,
    icrc: bool = False,
    follow: Follow | None = None,
    limits: Limits | None = None,
    progress: Progress | None = None,
) -> Capture:
    """A capture to iterate over.

    It is opened at once: if there is no such file, or it is no capture, this raises CaptureError. Every method that
    returns something then reads it from the start. Standard input, pipes, URLs and files that are still being written
    are only opened by the first such method.

    Args:
        paths: one path, or several to be read as one capture in the order of time; a directory stands for the captures
            in it, - for standard input, which can be read once.  Or tables that ``rdmascope sql --save`` kept: they
            give all but packets and the bytes of messages.
        ports: more service ports of RPC-over-RDMA beside 20049.
        force: take every connection for RPC-over-RDMA.
        icrc: count wrong invariant CRCs also of hosts that never send a right one.
        follow: the file is still being written: read on as it grows.
        limits: frames and bytes of a batch.
        progress: is given bytes read, bytes in all (None: not known) and frames read, after every batch.
    """
    options = Options(ports=frozenset({NFS_RDMA_PORT, *ports}), force=force, icrc=icrc)
    capture = Capture(paths, options, follow=follow, limits=limits, progress=progress)
    given = [local(os.fspath(path)) for path in ([paths] if isinstance(paths, str | os.PathLike) else paths)]
    captures = [path for path in given if not is_trace(path)]
    if follow is None and captures and not any(holds_tables(path) or not _opens(path) for path in captures):
        with open_captures(captures):
            pass
    return capture


class Capture(Closing):
    """Captures, read from the start by every method that gives something: memory does not grow with their size.

    Damage inside a capture raises nothing: all that is before it is given, ``damage`` says what is wrong, and
    ``check()`` raises it.
    """

    def __init__(
        self,
        paths: Paths,
        options: Options | None = None,
        *,
        follow: Follow | None = None,
        limits: Limits | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.paths = paths
        self.options = options or Options()
        self._follow, self._limits, self._progress = follow, limits, progress
        self._last: Session | None = None
        self._read_whole = False
        self._running: list[Iterator[object]] = []
        self._database: Database | None = None
        """Has the tables that queries have named; made by the first."""

    def __iter__(self) -> Iterator[Rpc]:
        return self.rpcs()

    def close(self) -> None:
        """End the passes that were not read to their end, close their files, and drop the tables of queries."""
        for running in self._running:
            if hasattr(running, "close"):
                running.close()
        self._running.clear()
        if self._database is not None:
            self._database.close()
            self._database = None

    @property
    def saved(self) -> str | None:
        """The path of the saved tables, if it reads any: a database, or a folder of Parquet files."""
        path = self._tables
        anew = self.options != Options() and self._follow is None and path is not None and not is_data_set(path)
        return None if anew else path

    @property
    def _tables(self) -> str | None:
        """The path, where it is that of saved tables."""
        if isinstance(self.paths, str | os.PathLike):
            path = os.fspath(self.paths)
            return path if holds_tables(path) else None
        return None

    def _captures(self) -> Paths:
        """What is read: where tables do not tell what the options ask, the captures that they were made of."""
        if self._tables is None:
            return self.paths
        from .tables.saved_tables import captures_behind

        return captures_behind(self._tables, "what ports, force and icrc ask of")

    def session(self, contents: bool = True) -> Session:
        """A new pass over the files, for programs that look at its state between batches.

        ``contents``: RPCs that ended still hold their bytes.
        """
        self._read_whole = False
        if self.saved is not None:
            from .tables.saved_session import open_saved_session

            self._last = saved = open_saved_session(self.saved)
            if self._follow is not None or self.options != Options():
                saved.lacks("what ports, force, icrc and follow ask of")
            return saved
        options = self.options if contents else self.options._replace(contents=False)
        limits, progress = self._limits, self._progress
        self._last = Session(self._captures(), options, follow=self._follow, limits=limits, progress=progress)
        return self._last

    def rpcs(self, listener: Callable[[Conversation], Listener] | None = None) -> Iterator[Rpc]:
        """RPCs in the order in which they end; those without a reply come last.

        ``listener`` makes, for each conversation, an object that is called as its messages are seen.
        """
        session = self.session()
        if listener is not None and self.saved is not None:
            raise CaptureError(f"{self.saved}: holds tables, in which the events of messages are not")
        session.analyzer.listener = listener
        return self._kept(self._whole(session, session.named_rpcs()))

    def rpc(self, number: int) -> Rpc:
        """The RPC with this number. Raises CaptureError, with how many there are, if there is none."""
        from .session.find import find_rpcs

        looked_up = find_rpcs(self.session(), [number])
        if not looked_up.rpcs:
            raise CaptureError(f"{self._last.path if self._last else self.paths}: {looked_up.problem}")
        return looked_up.rpcs[0]

    def where(self, *conditions: str) -> Iterator[Rpc]:
        """The RPCs that meet all conditions, in SQL over the columns of the table ``rpcs``.

        As with ``--where``: 'latency > 10ms'.  Where one is no condition, the first RPC raises CaptureError.
        """
        from .tables.condition import Condition, chosen

        session = self.session()

        def passing() -> Iterator[Rpc]:
            with closing(Condition(conditions)) as condition:
                yield from self._whole(session, chosen(session, condition))

        return self._kept(passing())

    def packets(self, first: int = 1, last: int = 1 << 62) -> Iterator[Packet]:
        """The RDMA packets of frames ``first`` to ``last`` (of iWARP: TCP segments), with the RPCs they belong to."""
        return self._kept(self.session().packets(first, last))

    def findings(self, *rules: str, examples: int = 1 << 20) -> Iterator[Finding]:
        """The violations that the audit finds, in the order of discovery.

        Args:
            rules: ids such as 'V1-INLINE-EXCEEDED'; one may end with a star.  All where none is given.
            examples: at most so many of one rule at one endpoint.

        Raises CaptureError for a name that no rule has.
        """
        try:
            wanted = select_rules(rules)
        except UnknownRule as error:
            raise UnknownNameError(str(error)) from None
        return self._kept(self._findings(Auditor(wanted, examples)))

    def sessions(self) -> NfsStateHistory:
        """NFSv4 clients and sessions, what they held and how they used their slots, at the end of the capture."""
        history = NfsStateHistory()
        session = self.session()
        session.needs_packets()
        session.analyzer.listener = history.listener
        session.data_servers = history.pnfs
        for table in session.tables(history.evict):
            del table
            history.advance()
        history.finish()
        self._read_whole = True
        return history

    def _findings(self, auditor: Auditor) -> Iterator[Finding]:
        findings: list[Finding] = []
        auditor.on_finding = lambda finding, tally: (
            findings.append(finding) if tally.violated <= auditor.examples else None
        )
        session = self.session()
        session.needs_packets()
        if self.saved is not None:
            session.audit(auditor)
            self._read_whole = True
            yield from findings
            return
        session.analyzer.listener = auditor.listener
        for _ in session.tables(auditor.evict):
            yield from findings
            findings.clear()
        auditor.finish(session.analyzer.conversations)
        self._read_whole = True
        yield from findings

    def diagnosis(self, *kinds: str) -> Diagnosis:
        """What is wrong, the worst first; ``kinds``: only these detectors, by default all.

        Raises CaptureError for a kind that no detector has.
        """
        from rdmascope.dissect.diagnosis.facts import all_detectors

        from .session.diagnosis_pass import diagnosis_of

        for kind in kinds:
            _known(kind, all_detectors(), "detector")
        diagnosis = diagnosis_of(self.session(), kinds)
        self._read_whole = True
        return diagnosis

    def groups(self, *by: str, where: Sequence[str] = ()) -> CallGroups:
        """RPCs in groups: by columns of the table rpcs, such as client or procedure, by export, or by 10s.

        ``where``: only RPCs of which these conditions are true.  The key of a group has a value for each of ``by``;
        that of an interval such as 10s is its begin, in nanoseconds since the capture began.  Raises CaptureError
        for what RPCs cannot be grouped by.
        """
        from .session.grouping import RpcGrouping, parse_group_keys

        try:
            keys = parse_group_keys(",".join(by))
        except ValueError as error:
            raise UnknownNameError(str(error)) from None
        groups = self._asked(RpcGrouping(keys), where).groups
        assert groups is not None
        return groups

    def over_time(self, intervals: int = 100, where: Sequence[str] = ()) -> list[LatencyInterval]:
        """RPCs and their latencies by when they began: the whole time in at most so many equal intervals."""
        from .session.grouping import RpcGrouping

        timeline = self._asked(RpcGrouping(over_time=True), where).timeline
        assert timeline is not None
        return timeline.intervals(intervals)

    def service_levels(self, *levels: str, where: Sequence[str] = ()) -> list[ServiceLevelCounts]:
        """Whether service levels were kept, such as 'READ p99 < 4ms', and when they were not.

        Raises CaptureError for what is no service level.
        """
        from rdmascope.dissect.measure.call_groups import parse_service_level

        from .session.grouping import RpcGrouping

        try:
            wanted = [parse_service_level(level) for level in levels]
        except ValueError as error:
            raise UnknownNameError(str(error)) from None
        return self._asked(RpcGrouping(levels=wanted), where).levels

    def _asked(self, questions: RpcGrouping, where: Sequence[str]) -> RpcGrouping:
        from .tables.condition import Condition

        with ExitStack() as stack:
            condition = stack.enter_context(closing(Condition(where))) if where else None
            questions.ask(self.session(), condition)
        self._read_whole = True
        return questions

    @property
    def conversations(self) -> list[Conversation]:
        """What the two ends of each connection agreed, in order of appearance, at the end of the capture."""
        return self._finished().analyzer.conversations

    @property
    def connections(self) -> list[Connection]:
        """The connections in order of appearance, as they are at the end of the capture."""
        return self._finished().analyzer.connections

    @property
    def frames(self) -> int:
        """Frames in the capture."""
        return self._finished().analyzer.frames

    @property
    def damage(self) -> CaptureError | None:
        """Why reading ended early; None if it did not."""
        return self._finished().damage

    def place(self, frame: int) -> Place | None:
        """The file that a frame is in, and its number there, if several are read as one capture.

        Knows the frames that the pass under way has read; begins one where there was none.  None for no such frame.
        """
        return (self._last or self._finished()).place(frame)

    def check(self) -> None:
        """Raise CaptureError if the capture is damaged, or holds no RDMA."""
        self._finished().check()

    def table(self, name: str) -> ColumnTable:
        """A table as columns, by their names: NumPy arrays, with unknown values masked.

        ``rdmascope.TABLES`` has the tables and their columns.  A table is held in memory whole.  Raises CaptureError
        for a name that no table has.
        """
        table = TABLES[_known(name, TABLES, "table")]
        if self.saved is not None:
            listed = ", ".join(f'"{column.name}"' for column in table.columns)
            kept = self.sql(f"SELECT {listed} FROM {name}")
            types = {column.name: DTYPES[column.type][0] for column in table.columns}
            return ColumnTable({name: masked_as(values, types[name]) for name, values in kept.items()})
        wanted = {name: None}
        batches = [batch for _, batch in table_batches(self.session(needs_contents(wanted)), wanted)]
        self._read_whole = True
        return ColumnTable(in_order(table, joined(table, batches)))

    def sql(self, query: str) -> ColumnTable:
        """The result of a query over ``rdmascope.TABLES``; of several statements, the result of the last.

        The first query that names a table makes it, in one pass for all that it names.  A query can neither read nor
        write files.  Raises QueryError (a CaptureError) for one that cannot be answered.
        """
        if self._database is None and self.saved is not None:
            from .tables.saved_tables import open_saved

            self._database = open_saved(self.saved)
            weakref.finalize(self, self._database.close)
        if self._database is None:
            from .tables.database import Database

            fill = weakref.WeakMethod(self._table_batches)  # Or the two would keep each other.

            def batches(wanted: Wanted) -> Iterator[tuple[str, Columns]]:
                made = fill()
                return iter(()) if made is None else made(wanted)

            self._database = Database(batches)
            weakref.finalize(self, self._database.close)
        answer: Columns = {}
        for result in self._database.results(query):
            answer = result.columns()
        return ColumnTable(answer)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save all tables: as a DuckDB database if the name ends in .duckdb or .db, else as a folder of Parquet files.

        ``rdmascope.read`` and the commands take them in place of the capture.  Raises CaptureError where nothing
        should be written, or could be read.
        """
        from .tables.database import Database
        from .tables.saved_tables import check_target
        from .write.table_export import save

        paths = self.paths if self.saved is not None else self._captures()
        given = (paths,) if isinstance(paths, str | os.PathLike) else paths
        captures = [os.fspath(path) for path in given]
        check_target(os.fspath(path), captures)
        with Database(self._table_batches) as database:
            database.fill(dict.fromkeys(TABLES))
            session = self._last
            assert session is not None
            save(database, os.fspath(path), captures, session.extent(), str(session.damage or ""))
        session.check()

    def _table_batches(self, wanted: Wanted) -> Iterator[tuple[str, Columns]]:
        return table_batches(self.session(needs_contents(wanted)), wanted)

    def _kept(self, given: Iterator[Given]) -> Iterator[Given]:
        self._running.append(given)
        return given

    def _whole(self, session: Session, rpcs: Iterator[Rpc]) -> Iterator[Rpc]:
        yield from rpcs
        if session is self._last:
            self._read_whole = True

    def _finished(self) -> Session:
        """The last pass, where it came to its end; else one that does."""
        if self._last is None or not self._read_whole:
            for _ in self.rpcs():
                pass
        assert self._last is not None
        return self._last


def _known(name: str, names: Iterable[str], what: str) -> str:
    """The name.  Raises CaptureError with the names that there are."""
    if name not in (known := [*names]):
        raise UnknownNameError(f"no {what} {name!r}; there are {', '.join(known)}")
    return name


def _opens(path: str) -> bool:
    """It can be opened twice, or not at all."""
    return path != "-" and not is_url(path) and (stays(path) or not os.path.exists(path))
