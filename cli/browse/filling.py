"""The tables behind the panes, whose rows are sent part by part, and the processes that fill them, or look closer at
one RPC, frame, connection or file, audit, diagnose, write.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import RenderableType
from rich.text import Text

from rdmascope.captures import CaptureError
from rdmascope.captures.parallel.processes import Jobs, MakeJobs, Reply, Worker
from rdmascope.captures.read.merge import NumberOffset
from rdmascope.captures.read.streams import Limits
from rdmascope.captures.session.diagnosis_pass import FactsPass, diagnosis_of
from rdmascope.captures.session.find import find_frame, steps_of
from rdmascope.captures.session.session import Progress, Session
from rdmascope.captures.tables.browsed_tables import LATER, BrowsedTables, first_columns, stored_rows
from rdmascope.captures.tables.condition import Condition
from rdmascope.captures.tables.table_pass import needs_contents, table_batches
from rdmascope.captures.write.stale_tempdirs import folder_of_process
from rdmascope.dissect.audit.rule import Finding
from rdmascope.dissect.diagnosis.facts import Diagnosis, Gathered, Severity, Statement, diagnose
from rdmascope.dissect.measure.files import FileTable
from rdmascope.dissect.named_tuple import NamedTuple
from rdmascope.dissect.records.rpc_columns import Columns, RpcBatch, TableBuilder, Wanted, joined
from rdmascope.dissect.records.tables import TABLES
from rdmascope.dissect.rpcrdma.analyzer import Options
from rdmascope.dissect.rpcrdma.eviction import Evicted
from rdmascope.dissect.rpcrdma.message_trees import CalledProcedure
from rdmascope.dissect.rpcrdma.reassembly import header_bytes
from rdmascope.dissect.rpcrdma.rpcs import Extent, Reassembled, Rpc
from rdmascope.dissect.units import plural, size

from ..views import files as file_views
from ..views.diagnosis import counted, statement_view
from ..views.report import connections_view
from ..views.rpc import (
    Section,
    decoded_messages,
    frame_tree,
    hosts_section,
    message_sections,
    packets_section,
    summary_section,
)
from ..views.transport import connection_view
from .listings import Details, Diagnosed, RpcPlace, TreeNode, nodes_of, rendered, shown_bytes

if TYPE_CHECKING:
    from rdmascope.captures.fleet.batch import CaptureBehind


FIRST = ("rpcs", "connections")
"""Tables of the first pass."""
PUT_BACK = (
    "\x1b[?2004l\x1b[?7h\x1b[?2048l\x1b[?1000l\x1b[?1003l\x1b[?1015l\x1b[?1006l\x1b[<u\x1b[?1049l\x1b[?25h\x1b[?1004l"
)
"""What Textual writes at its end: no bracketed paste, reports of the mouse and of focus, the screen from before."""
BACKGROUND = 19
"""The niceness of what can wait: of the screen's import, and of reading once every RPC is in the list."""
LEAVE = 5.0
"""Seconds for a part to be taken in at the end."""

Listener = Callable[[str, Reply], None]
"""Is given the name of the job and what it sent, in a thread."""


def looking() -> Jobs:
    """Jobs of the process that looks closer at what is chosen."""
    return {
        "rpc": LookedAt().details,
        "frame": frame_details,
        "connection": connection_details,
        "file": file_details,
        "write": written,
        "export": exported,
    }


def _completed(capture: BrowsedCapture, later: str) -> Iterator[Any]:
    os.nice(BACKGROUND)
    return fill(capture, (), later)


class BrowseFeed:
    """Make it before anything has threads: processes are forked.  The capture is read from then on; ``open`` it before
    anything has threads, too.  ``close`` ends the processes and removes what they left."""

    keyed = False
    """Rows go by numbers of their own, and old ones are removed."""

    def __init__(self, capture: BrowsedCapture) -> None:
        self.capture = capture
        self.folder, self._lock = folder_of_process()
        self._terminal = os.ttyname(1) if os.isatty(1) else ""
        self._workers: dict[str, Worker] = {}
        self._names: dict[tuple[str, int], str] = {}
        self._listener: Listener = lambda name, reply: None
        self._threads: list[Thread] = []
        self.tables: BrowsedTables
        self._begin()

    def _put_back(self) -> None:
        """In a worker, where this process was killed; the first to notice does it."""
        if os.path.isdir(self.folder):
            shutil.rmtree(self.folder, ignore_errors=True)
            if self._terminal:
                with open(os.open(self._terminal, os.O_WRONLY | os.O_NOCTTY), "w") as terminal:
                    terminal.write(PUT_BACK)

    def _start(self, kind: str, jobs: MakeJobs) -> None:
        self._workers[kind] = Worker(jobs, self.folder, self._put_back)

    def _begin(self) -> None:
        """Read, before what draws is loaded."""
        self._start("reading", lambda: {"fill": fill, "complete": _completed, "judge": judged})
        self._request("reading", f"fill {' '.join(FIRST)}", "fill", self.capture, FIRST)

    def open(self) -> BrowsedTables:
        """Make the tables, and the processes that look at something."""
        self._start("asked", lambda: {"fill": fill, "diagnosis": diagnosed})
        self._start("looking", looking)
        self.tables = BrowsedTables(self.folder, self.keyed)
        return self.tables

    def listen(self, listener: Listener) -> None:
        """From now on; rows were taken in before their parts are given."""
        self._listener = listener
        for kind, worker in self._workers.items():
            thread = Thread(target=self._receive, args=(worker, kind), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _request(self, kind: str, name: str, job: str, *arguments: Any, latest: bool = False) -> None:
        request = self._workers[kind].request(job, *arguments, latest=latest)
        self._names[kind, request] = name

    def fill(self, *tables: str) -> None:
        """Fill tables that were asked for."""
        self._request("asked", f"fill {' '.join(tables)}", "fill", self.capture, tables)

    def complete(self) -> None:
        """Fill what takes longer: the paths of files, and then what takes a judgement of everything."""
        self._request("reading", "fill paths", "complete", self.capture, "paths")
        self._request("reading", "fill places findings", "judge", self.capture)

    def look(self, job: str, *arguments: Any, latest: bool = True) -> None:
        """Have one of the jobs done that look at something; ``latest``: in place of what was looked at before."""
        self._request("looking", job, job, self.capture, *arguments, latest=latest)

    def _receive(self, worker: Worker, kind: str) -> None:
        tables = self.tables.asked()
        try:
            for reply in worker.replies():
                self._take(reply, tables)
                self._listener(self._names.get((kind, reply.request), ""), reply)
        except Exception as error:  # It was killed; or the tables are closed, or there is no room for them.
            self._listener("died", Reply(0, None, True, " ".join(str(error).split())))

    def _take(self, reply: Reply, tables: BrowsedTables) -> None:
        """Rows, before it is said that they are there."""
        if isinstance(reply.value, TablePart):
            take_part(reply.value, tables)
        elif reply.ended:
            tables.forget_prepared()

    def close(self) -> None:
        """End the processes, and remove what they left."""
        self._listener = lambda name, reply: None
        for worker in self._workers.values():
            worker.close()
        # A thread in the midst of the database when Python ends would end it with an abort.
        for thread in self._threads:
            thread.join(LEAVE)
        if hasattr(self, "tables"):
            self.tables.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)

    def abandon(self) -> None:
        """End the processes and remove what they left, at any point, when this process ends at once."""
        for worker in self._workers.values():
            worker.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def take_part(part: TablePart, tables: BrowsedTables) -> None:
    """Have its rows in the tables."""
    if part.purpose == ADDED:
        tables.take_in(part.table, part.columns)
    elif part.purpose == COMPLETING:
        tables.complete(part.columns)
    else:
        tables.prepare(part.table, part.columns)
        if part.purpose != PREPARED:
            tables.replace(part.table)


FIRST_PART, ADDED_PART, LAST_PART = 0.3, 0.2, 2.0
"""Seconds for which rows are gathered before they are sent.  Before the first nothing takes them in; then new rows
follow soon, so that few are left at the end, and columns of rows that are there take longer and longer."""
PART_ROWS = 1 << 13
"""About so many rows are sent at once, so that the process that takes them in can draw between them."""
FIRST_BATCH, BATCH = 32 << 20, 16 << 20
"""Bytes of a capture that are in memory at a time: in the first pass, and in those beside which others hold some."""
ADDED, COMPLETING, PREPARED, REPLACING = "added", "completing", "prepared", "replacing"
"""What becomes of rows: they are new; columns of rows that are there; nothing yet; and with this part they and those
prepared take the place of all before."""


class BrowsedCapture(NamedTuple):
    """What the panes show: files or a data set, and how they are read."""

    paths: tuple[str, ...]
    options: Options
    frames_before: int | None = None
    """How many frames of a live capture are no longer kept; None if it is not live."""
    data_set: str = ""
    """The path: its tables are read, and the captures behind it where something is looked at."""
    behind: CaptureBehind | None = None
    """The capture of a data set in which something is looked at."""

    def holding(self, noun: str, number: int) -> BrowsedCapture:
        """The capture of a data set that has a noun with this number; else itself.  CaptureError: it cannot be read."""
        if not self.data_set:
            return self
        from rdmascope.captures.fleet.batch import CapturesBehind

        capture = CapturesBehind(self.data_set).holding(noun, number)
        if problem := capture.problem():
            raise CaptureError(problem)
        return BrowsedCapture(capture.paths, capture.options, behind=capture)

    def session(self, options: Options | None = None, progress: Progress | None = None, alone: bool = False) -> Session:
        """A pass over it; ``alone``: in larger batches, which is faster, as no other pass holds some beside it."""
        if self.data_set:
            from rdmascope.captures.tables.saved_session import open_saved_session

            return open_saved_session(self.data_set)
        return Session(
            self.paths,
            options or self.options,
            progress=progress,
            before=NumberOffset(frames=self.frames_before or 0) if self.behind is None else self.behind.before,
            jobs=None if alone else 1,
            limits=Limits(bytes=FIRST_BATCH if alone else BATCH),
        )

    @property
    def numbered(self) -> bool:
        """A pass gives RPCs and connections the numbers that the lists have."""
        return not self.frames_before


class ReadProgress(NamedTuple):
    """How far reading is."""

    position: int
    size: int | None
    frames: int
    first_time: int


class TablePart(NamedTuple):
    """Rows that are ready to be taken in."""

    table: str
    columns: Columns
    rows: int
    purpose: str = ADDED


class ReadToEnd(NamedTuple):
    """The capture was read to its end."""

    frames: int
    damage: str
    remarks: tuple[str, ...]


class RowsToSend:
    """Rows, until it is time to send them."""

    def __init__(self, purposes: dict[str, str]) -> None:
        """By table; in this order they are sent."""
        self._purposes = purposes
        self._held: dict[str, list[Columns]] = {name: [] for name in purposes}
        self._rows = dict.fromkeys(purposes, 0)
        self._sent, self._wait = time.monotonic(), FIRST_PART
        self._only_new = {*purposes.values()} == {ADDED}

    def add(self, name: str, columns: Columns) -> None:
        self._held[name].append(columns)
        self._rows[name] += len(next(iter(columns.values())))

    def take_from(self, builder: TableBuilder) -> None:
        """Take the rows of a builder."""
        if len(builder):
            self.add(builder.table.name, builder.take())

    @property
    def due(self) -> bool:
        """Whether it is time to send what is held."""
        return time.monotonic() - self._sent > self._wait or max(self._rows.values()) >= PART_ROWS

    def take(self, ended: bool = False) -> Iterator[TablePart]:
        """What is there; nothing more comes where it has ended."""
        for name, purpose in self._purposes.items():
            taken = joined(TABLES[name], self._held[name]) if self._rows[name] or ended else {}
            rows, self._rows[name] = self._rows[name], 0
            self._held[name].clear()
            size = -(-rows // max(1, round(rows / PART_ROWS)))
            for first in range(0, rows, size or 1):
                last = first + size >= rows and ended
                sent = PREPARED if purpose == REPLACING and not last else purpose
                part = {name: values[first : first + size] for name, values in taken.items()}
                yield TablePart(name, part, min(size, rows - first), sent)
            if not rows and ended and purpose == REPLACING:
                yield TablePart(name, taken, 0, purpose)
        self._sent = time.monotonic()
        self._wait = ADDED_PART if self._only_new else min(LAST_PART, 1.5 * self._wait)


def fill(
    capture: BrowsedCapture, tables: Sequence[str], later: str = ""
) -> Iterator[TablePart | ReadProgress | ReadToEnd | None]:
    """Fill tables in one pass; of a live capture in place of what they hold.

    ``later``: only these of ``LATER``, of rpcs that are there, and all of the connections.
    """
    if capture.data_set:
        yield from _filled(capture, tables)
        return
    wanted: Wanted = {name: first_columns(name) for name in tables}
    purposes = dict.fromkeys(tables, ADDED)
    if later:
        wanted = {"rpcs": {"number", *LATER[later]}, "connections": None}
        purposes = {"rpcs": COMPLETING, "connections": REPLACING}
    elif capture.frames_before is not None:
        wanted = {"rpcs": {"number", "call_frame"}, **wanted}
        purposes = {"rpcs": PREPARED, **dict.fromkeys(tables, REPLACING)}
    at: list[ReadProgress] = []

    def progress(position: int, size: int | None, frames: int) -> None:
        at[:] = [ReadProgress(position, size, frames, session.first_time)]

    session = capture.session(capture.options._replace(contents=needs_contents(wanted)), progress, alone=not later)
    gathered = RowsToSend(purposes)
    for name, columns in table_batches(session, wanted, rows=1):
        gathered.add(name, columns)
        if gathered.due:
            yield from gathered.take()
            yield from at
        else:
            yield None
    yield from gathered.take(ended=True)
    yield from at
    damage = "" if session.damage is None else str(session.damage)
    if not damage and not session.analyzer.frames:
        session.check()
    yield ReadToEnd(session.analyzer.frames, damage, tuple(session.remarks()))


def _filled(capture: BrowsedCapture, tables: Sequence[str]) -> Iterator[TablePart | ReadProgress | ReadToEnd | None]:
    """Fill tables from a data set, whose rows have all columns at once."""
    session = capture.session()
    frames = session.analyzer.frames
    gathered = RowsToSend(dict.fromkeys(tables, ADDED))
    for name, columns in stored_rows(capture.data_set, tables):
        gathered.add(name, columns)
        yield from gathered.take() if gathered.due else (None,)
    yield from gathered.take(ended=True)
    yield ReadProgress(frames, frames, frames, session.first_time)
    yield ReadToEnd(frames, "" if session.damage is None else str(session.damage), tuple(session.remarks()))


KEPT = 256
"""RPCs that are kept for being looked at."""
KEPT_BYTES = 64 << 20
"""The most bytes of those RPCs."""


class LookedAt:
    """RPCs that were looked for, with those around them: a list is walked through."""

    def __init__(self) -> None:
        self.rpcs: dict[int, Rpc] = {}
        self.session: Session | None = None

    def details(
        self, capture: BrowsedCapture, wanted: RpcPlace, around: Sequence[RpcPlace], width: int, path: str | None
    ) -> Iterator[Details | None]:
        """The tree and the bytes of an RPC, and then its ladder, too."""
        number = wanted.number
        capture = capture.holding("rpcs", number)
        if number not in self.rpcs:
            near = [
                rpc_place
                for rpc_place in around[:KEPT]
                if capture.behind is None or capture.behind.has_rpc(rpc_place.number)
            ]
            yield from self._find(capture, {wanted, *near}, number)
        rpc = self.rpcs.get(number)
        if rpc is None or self.session is None:
            gone = TreeNode(Text("its packets are kept no more", "yellow"))
            yield Details("rpcs", number, [gone], [gone.label], []) if not capture.numbered else None
            return
        place = "" if capture.frames_before is not None else self.session.place_words(rpc.call_frame, rpc.reply_frame)
        sections = [summary_section(rpc, self.session.first_time, place, path), *message_sections(rpc, width, False)]
        nodes = [node for section in sections for node in section_nodes(section, width)]
        data = [
            shown_bytes(name, decoded_message.bytes)
            for decoded_message, name in zip(decoded_messages(rpc, False), ("call", "reply"), strict=True)
            if decoded_message is not None
        ]
        for message, name in ((rpc.call, "call"), (rpc.reply, "reply")):
            if message is not None:
                data.append(shown_bytes(f"{name}'s transport header", header_bytes(message)))
        yield Details("rpcs", number, nodes, [], data)
        lines = rendered(hosts_section(rpc).body[0], width) if rpc.host is not None else []
        if not self.session.traced:
            steps = steps_of(rpc, capture.session())
            lines += rendered(packets_section(rpc, steps, width, False).body[0], width)
        yield Details("rpcs", number, nodes, lines, data)

    def _find(self, capture: BrowsedCapture, places: set[RpcPlace], number: int) -> Iterator[None]:
        """By number; by its place, where a pass numbers RPCs otherwise."""
        self.rpcs.clear()
        self.session = session = capture.session()
        held = 0
        numbered = capture.numbered
        wanted = {listed.number if numbered else (listed.frame, listed.xid): listed.number for listed in places}
        keys = [listed.number if numbered else listed.xid for listed in places]
        for table in session.tables():
            chosen = np.isin(table.rows["number" if numbered else "xid"], keys) if len(table) else np.zeros(0, bool)
            for rpc in table.selected(chosen) if chosen.any() else ():
                own = wanted.pop(rpc.number if numbered else (rpc.call_frame or rpc.reply_frame, rpc.xid), None)
                if own is None:
                    continue
                rpc.number = own
                size = rpc.call_bytes + rpc.reply_bytes
                if rpc.number == number or held + size <= KEPT_BYTES:
                    self.rpcs[rpc.number] = rpc
                    held += size
            del table
            if not wanted:
                return
            yield None


def section_nodes(section: Section, width: int) -> Iterator[TreeNode]:
    below = [*nodes_of(section.body, width, section.message)]
    if not section.title:
        yield from below
    elif len(below) == 1 and below[0].children and section.message not in ("call", "reply"):
        yield replace(below[0], label=Text.assemble(section.heading, "  ", below[0].label))
    else:
        yield TreeNode(section.heading, below)


def frame_details(capture: BrowsedCapture, number: int, width: int) -> Iterator[Details | None]:
    """One frame, layer by layer, and its bytes."""
    capture = capture.holding("packets", number)
    session = capture.session()
    framed = find_frame(session, number)
    if framed is None:
        return
    frame, rpcs = framed.frame, framed.rpcs
    called = CalledProcedure.of(rpcs[0]) if len(rpcs) == 1 else None
    path = framed.paths.get(rpcs[0].number) if rpcs else None
    page = frame_tree(frame, session.first_time, framed.begins_message, framed.segment, called, path)
    nodes = [*nodes_of((page,), width)]
    if capture.frames_before is None and (place := session.place_words(number)):
        nodes.insert(0, TreeNode(Text(f"frame {number} is {place}")))
    if capture.numbered:
        nodes += [TreeNode(Text(f"It belongs to RPC {rpc.number}"), goes_to=("rpcs", rpc.number)) for rpc in rpcs]
    data = bytes(frame.data)
    whole = Reassembled((Extent(0, len(data), "frame", number, ""),), ((0, data),))
    yield Details("packets", number, nodes, [], [shown_bytes("frame", whole)])


def written(capture: BrowsedCapture, output: str, rpcs: frozenset[int], where: str) -> Iterator[str | None]:
    """Write RPCs as a capture, those with numbers or those that pass a condition; says what was written.

    Raises CaptureError behind that for what could not be read.
    """
    from rdmascope.captures.extract.cut import Choice, ExtractSource, extract_of_each

    from ..each_capture import GivenCaptures

    read: list[Session | GivenCaptures] = []
    with nullcontext() if rpcs else closing(Condition([where or "true"])) as condition:
        choice = Choice(condition, rpcs)
        if capture.data_set:
            given = GivenCaptures((capture.data_set,), Options())
            done = given.extract(Path(output), choice)
            read.append(given)
        else:
            done = extract_of_each([ExtractSource(capture.session, choice)], Path(output), 0, False, read.append)
    yield f"{output}: {plural(done.rpcs, 'RPC')} in {plural(done.frames, 'frame')}, {size(done.bytes)}"
    for reading in read:
        reading.check()


def exported(capture: BrowsedCapture, output: str, where: str) -> Iterator[str | None]:
    """Write RPCs as NFS over TCP, for Wireshark; gives the path.  Raises CaptureError behind that for captures of a
    data set that could not be read."""
    from rdmascope.captures.write.export import export_tcp

    from ..each_capture import GivenCaptures

    given = GivenCaptures((capture.data_set,), Options()) if capture.data_set else None
    with closing(Condition([where])) if where else nullcontext() as condition:
        if given is not None:
            given.export_tcp(Path(output), condition=condition)
        else:
            export_tcp(capture.session(), Path(output), condition=condition)
    yield output
    if given is not None:
        given.check()


def connection_details(capture: BrowsedCapture, number: int, width: int) -> Iterator[Details | None]:
    """What its ends agreed on, what they sent, and how the transport did; nothing where it was evicted."""
    capture = capture.holding("connections", number)
    session = capture.session()
    gathered = Gathered()
    for table in session.tables():
        gathered.add_table(table)
        del table
        yield None
    conversations = [
        conversation for conversation in session.analyzer.conversations if conversation.connection.number == number
    ]
    if conversations and capture.numbered:
        parts = (
            connections_view(conversations, gathered.statistics, Evicted()),
            connection_view(conversations[0].connection, session.analyzer.health(number), (), width),
        )
        yield Details("connections", number, [*nodes_of(parts, width)], [], [])


def file_details(capture: BrowsedCapture, number: int, width: int) -> Iterator[Details | None]:
    """Its line of ``files``, what there is to remark, and its earlier names."""
    capture = capture.holding("files", number)
    before = 0 if capture.behind is None else capture.behind.before.files
    session = capture.session()
    files = FileTable()
    for table in session.tables():
        files.add_table(table)
        del table
        yield None
    for file in files:
        if before + file.number == number:
            parts: tuple[RenderableType, ...] = (
                file_views.grid(files, [file], width),
                *file_views.notes(files, file),
                *file_views.earlier(files, [file], session.first_time),
            )
            yield Details("files", number, [*nodes_of(parts, width)], [], [])


STATEMENT_WIDTH = 76
"""Columns of what has no lines of its own."""


def diagnosed(capture: BrowsedCapture) -> Iterator[Diagnosed]:
    """Nothing but the diagnosis."""
    yield _shown(diagnosis_of(capture.session()), capture)


def judged(capture: BrowsedCapture) -> Iterator[TablePart | Diagnosed | None]:
    """In one pass the findings, the columns of RPCs that take a table of the files, and the diagnosis."""
    if capture.data_set:
        yield from (part for part in fill(capture, ("findings",)) if isinstance(part, TablePart))
        yield from diagnosed(capture)
        return
    session = capture.session(capture.options._replace(contents=True))
    facts = FactsPass(session)
    assert facts.auditor is not None and facts.files is not None
    rpcs = TableBuilder(TABLES["rpcs"], {"number", *LATER["places"]}, session.place)
    findings = TableBuilder(TABLES["findings"], None, session.place)
    gathered = RowsToSend({"findings": ADDED, "rpcs": COMPLETING})

    def find(finding: Finding, _: object) -> None:
        findings.add(finding)

    facts.auditor.on_finding = find
    ended = 0
    for table in session.tables(facts.evict):
        facts.gathered.add_table(table)
        facts.judge(table)
        if len(table):
            rpcs.add(RpcBatch(table, ended, facts.files.used))
            ended += len(table)
            gathered.take_from(rpcs)
        gathered.take_from(findings)
        del table
        if gathered.due:
            yield from gathered.take()
        else:
            yield None
    judged = facts.facts()
    gathered.take_from(findings)
    yield from gathered.take(ended=True)
    yield _shown(diagnose(judged), capture)


def _shown(diagnosis: Diagnosis, capture: BrowsedCapture) -> Diagnosed:
    head = Text(counted(diagnosis), "bold")
    if capture.frames_before:
        head.append(f"; of frames {capture.frames_before + 1} to the last, with RPCs numbered from there", "dim")
    nodes = [TreeNode(head), *(_statement_node(statement, capture.numbered) for statement in diagnosis.statements)]
    return Diagnosed(nodes, diagnosis.worst is Severity.PROBLEM)


def _statement_node(statement: Statement, numbered: bool = True) -> TreeNode:
    """``numbered``: the list has RPCs and connections under the same numbers."""
    head, *rest = nodes_of((statement_view(statement, False),), STATEMENT_WIDTH)
    cause = statement.cause
    head.children = [*rest]
    if numbered:
        head.children += [TreeNode(Text(f"RPC {number}"), goes_to=("rpcs", number)) for number in cause.rpcs]
    head.children += [
        TreeNode(Text(f"packet in frame {number}"), goes_to=("packets", number)) for number in cause.frames
    ]
    if numbered:
        head.children += [
            TreeNode(Text(f"connection {number}"), goes_to=("connections", number)) for number in cause.connections
        ]
    explained = [*nodes_of((statement_view(statement, True),), STATEMENT_WIDTH)][len(rest) + 1 :]
    head.children.append(TreeNode(Text("what it means, and what to look at"), explained, opened=False))
    return head
