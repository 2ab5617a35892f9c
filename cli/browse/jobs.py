"""What the processes behind the panes do: fill tables, look at one RPC or frame, diagnose, write."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.text import Text

from rdmascope.captures.browsed_tables import LATER, LEFT_OUT
from rdmascope.captures.ladder import steps_of
from rdmascope.captures.session import Progress, Session
from rdmascope.dissect.diagnosis.statement import Statement
from rdmascope.dissect.records.table import Columns
from rdmascope.dissect.records.tables import TABLES
from rdmascope.dissect.rpcrdma.analyzer import Options
from rdmascope.dissect.rpcrdma.reassembly import header_bytes
from rdmascope.dissect.rpcrdma.rpcs import Extent, Reassembled, Rpc

from ..views.diagnosis import counted, statement_view
from ..views.rpc_page import Section, decoded_messages, message_sections, packets_section, summary_section
from .nodes import Details, TreeNode, nodes_of, rendered, shown_bytes

FIRST_PART, LAST_PART = 0.2, 2.0
"""Seconds for which rows are gathered before they are handed over: more and more."""
STATEMENT_WIDTH = 76
"""Columns of what has no lines of its own."""
RPCS_BY_FRAME = "UPDATE packets SET rpc = (SELECT call_frame FROM rpcs WHERE rpcs.number = packets.rpc)"
"""Until they are taken in: of a live capture, a pass over what is kept gives RPCs other numbers."""
KEPT = 256
"""RPCs that are kept for being looked at."""
KEPT_BYTES = 64 << 20
"""And their bytes."""


class BrowsedCapture(NamedTuple):
    """What the jobs read."""

    paths: tuple[str, ...]
    options: Options
    frames_before: int | None = None
    """Of a live capture: how many frames are kept no more; None where it is not live."""

    def session(self, options: Options | None = None, progress: Progress | None = None) -> Session:
        """A pass over it."""
        return Session(self.paths, options or self.options, progress=progress, frames_before=self.frames_before or 0)

    @property
    def numbered(self) -> bool:
        """A pass gives RPCs and connections the numbers that the lists have."""
        return not self.frames_before


class RpcPlace(NamedTuple):
    """Which RPC is meant."""

    number: int
    frame: int
    """The first of the call, or the last of a reply without one."""
    xid: int

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> RpcPlace:
        return cls(row["number"], row["call_frame"] or row["reply_frame"] or 0, row["xid"])


class ReadProgress(NamedTuple):
    """How far reading is."""

    position: int
    size: int | None
    frames: int
    first_time: int


class TablePart(NamedTuple):
    """Rows that are ready to be taken in."""

    table: str
    path: Path
    rows: int
    replacing: bool = False
    """They are all rows, in place of those before."""
    columns: Collection[str] = ()
    """They are only these columns of rows that are there."""


class ReadToEnd(NamedTuple):
    """The capture was read to its end."""

    frames: int
    damage: str
    remarks: tuple[str, ...]


def live_columns(table: str) -> Collection[str] | None:
    """The columns of a table that are filled while traffic passes."""
    return {one.name for one in TABLES["rpcs"].columns} - LEFT_OUT if table == "rpcs" else None


def first_columns(table: str) -> Collection[str] | None:
    """The columns of a table that come with its rows."""
    return {one.name for one in TABLES["rpcs"].columns}.difference(*LATER.values()) if table == "rpcs" else None


def fill(
    capture: BrowsedCapture, folder: Path, tables: Sequence[str], later: str = ""
) -> Iterator[TablePart | ReadProgress | ReadToEnd | None]:
    """Fill tables in one pass; the rows come in files in ``folder``, those of a live capture at the end.

    ``later``: only these of ``LATER``, of rpcs that are there.
    """
    from rdmascope.captures.database import Database
    from rdmascope.captures.table_pass import ROWS, needs_contents, table_batches
    from rdmascope.dissect.records.table import joined

    live = capture.frames_before is not None
    wanted = {name: first_columns(name) for name in tables}
    if later:
        wanted["rpcs"] = {"number", *LATER[later]}
    if live:
        wanted["rpcs"] = {"number", "call_frame"}
    at: list[ReadProgress] = []

    def progress(position: int, size: int | None, frames: int) -> None:
        at[:] = [ReadProgress(position, size, frames, session.first_time)]

    options = replace(capture.options, contents=needs_contents(wanted))
    session = capture.session(options, progress)
    handed_over = time.monotonic()
    wait, parts = FIRST_PART, 0
    rows = dict.fromkeys(tables, 0)
    held: dict[str, list[Columns]] = {name: [] for name in wanted}
    waiting = dict.fromkeys(wanted, 0)
    with Database() as database:

        def insert(name: str) -> None:
            """Many rows at once: a connection or a finding comes alone."""
            if held[name]:
                database.insert(name, joined(TABLES[name], held[name]))
                held[name].clear()
                waiting[name] = 0

        def hand_over() -> Iterator[TablePart | ReadProgress]:
            nonlocal parts, handed_over, wait
            for name in tables:
                if rows[name]:
                    parts += 1
                    insert(name)
                    path = folder / f"{later or name}-{parts}.parquet"
                    database.hand_out(name, path)
                    yield TablePart(name, path, rows[name], live, LATER[later] if later else ())
                    rows[name] = 0
            yield from at
            handed_over, wait = time.monotonic(), min(LAST_PART, 1.5 * wait)

        for name, columns in table_batches(session, wanted, rows=1):
            held[name].append(columns)
            count = len(next(iter(columns.values())))
            waiting[name] += count
            if name in rows:
                rows[name] += count
            if waiting[name] >= ROWS:
                insert(name)
            del columns
            if not live and time.monotonic() - handed_over > wait:
                yield from hand_over()
            else:
                yield None
        if live and "packets" in tables:
            insert("rpcs")
            insert("packets")
            database.connection.execute(RPCS_BY_FRAME)
        yield from hand_over()
    damage = "" if session.damage is None else str(session.damage)
    if not damage and not session.analyzer.frames:
        session.check()
    yield ReadToEnd(session.analyzer.frames, damage, tuple(session.remarks()))


def diagnosed(capture: BrowsedCapture) -> Iterator[list[TreeNode] | None]:
    """What is wrong with the capture: each statement with its evidence, and where that leads."""
    from rdmascope.captures.diagnosis_pass import diagnosis_of

    diagnosis = diagnosis_of(capture.session())
    head = Text(counted(diagnosis), "bold")
    if capture.frames_before:
        head.append(f"; of frames {capture.frames_before + 1} to the last, with RPCs numbered from there", "dim")
    yield [TreeNode(head), *(statement_node(one, capture.numbered) for one in diagnosis.statements)]


def statement_node(statement: Statement, numbered: bool = True) -> TreeNode:
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
        if number not in self.rpcs:
            yield from self._find(capture, {wanted, *around[:KEPT]}, number)
        rpc = self.rpcs.get(number)
        if rpc is None or self.session is None:
            gone = TreeNode(Text("its packets are kept no more", "yellow"))
            yield Details("rpcs", number, [gone], [gone.label], []) if not capture.numbered else None
            return
        place = "" if capture.frames_before is not None else self.session.place_words(rpc.call_frame, rpc.reply_frame)
        sections = [summary_section(rpc, self.session.first_time, place, path), *message_sections(rpc, width, False)]
        nodes = [node for section in sections for node in section_nodes(section, width)]
        messages = zip(decoded_messages(rpc, False), ("call", "reply"), strict=True)
        data = [shown_bytes(name, one.bytes) for one, name in messages if one is not None]
        for message, name in ((rpc.call, "call"), (rpc.reply, "reply")):
            if message is not None:
                data.append(shown_bytes(f"{name}'s transport header", header_bytes(message)))
        yield Details("rpcs", number, nodes, [], data)
        steps = steps_of(rpc, capture.session())
        lines = rendered(packets_section(rpc, steps, width, False).body[0], width)
        yield Details("rpcs", number, nodes, lines, data)

    def _find(self, capture: BrowsedCapture, places: set[RpcPlace], number: int) -> Iterator[None]:
        """By number; by its place, where a pass numbers RPCs otherwise."""
        self.rpcs.clear()
        self.session = session = capture.session()
        held = 0
        numbered = capture.numbered
        wanted = {one.number if numbered else (one.frame, one.xid): one.number for one in places}
        keys = [one.number if numbered else one.xid for one in places]
        for table in session.tables():
            chosen = np.isin(table.rows["number" if numbered else "xid"], keys) if len(table) else np.zeros(0, bool)
            for rpc in table.selected(chosen) if chosen.any() else ():
                found = wanted.pop(rpc.number if numbered else (rpc.call_frame or rpc.reply_frame, rpc.xid), None)
                if found is None:
                    continue
                rpc.number = found
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
    from rdmascope.captures.lookup import find_frame
    from rdmascope.dissect.rpcrdma.message_trees import CalledProcedure

    from ..views.frame import frame_tree

    session = capture.session()
    found = find_frame(session, number)
    if found is None:
        return
    frame, rpcs = found.frame, found.rpcs
    called = CalledProcedure.of(rpcs[0]) if len(rpcs) == 1 else None
    path = found.paths.get(rpcs[0].number) if rpcs else None
    page = frame_tree(frame, session.first_time, found.begins_message, found.segment, called, path)
    nodes = [*nodes_of((page,), width)]
    if capture.frames_before is None and (place := session.place_words(number)):
        nodes.insert(0, TreeNode(Text(f"frame {number} is {place}")))
    if capture.numbered:
        nodes += [TreeNode(Text(f"It belongs to RPC {one.number}"), goes_to=("rpcs", one.number)) for one in rpcs]
    data = bytes(frame.data)
    whole = Reassembled((Extent(0, len(data), "frame", number, ""),), ((0, data),))
    yield Details("packets", number, nodes, [], [shown_bytes("frame", whole)])


def written(capture: BrowsedCapture, output: str, rpcs: frozenset[int], where: str) -> Iterator[str | None]:
    """Write RPCs as a capture, those with numbers or those that pass a condition; says what was written."""
    from rdmascope.captures.condition import Condition
    from rdmascope.captures.extract.choice import Choice
    from rdmascope.captures.extract.cut import extract
    from rdmascope.dissect.units import plural, size

    condition = None if rpcs else Condition([where or "true"])
    try:
        done = extract(capture.session, Path(output), Choice(condition, rpcs))
    finally:
        if condition is not None:
            condition.close()
    yield f"{output}: {plural(done.rpcs, 'RPC')} in {plural(done.frames, 'frame')}, {size(done.bytes)}"


def exported(capture: BrowsedCapture, output: str, where: str) -> Iterator[str | None]:
    """Write RPCs as NFS over TCP, for Wireshark; gives the path."""
    from rdmascope.captures.condition import Condition
    from rdmascope.captures.tcp_export import export_tcp

    condition = Condition([where]) if where else None
    try:
        export_tcp(capture.session(), Path(output), condition=condition)
    finally:
        if condition is not None:
            condition.close()
    yield output


def filling_jobs() -> dict[str, Callable[..., Iterator[Any]]]:
    """Those of a process that reads the capture from its beginning to its end."""
    return {"fill": fill, "diagnosis": diagnosed}


def looking_jobs() -> dict[str, Callable[..., Iterator[Any]]]:
    """Those of the process that answers what is chosen."""
    return {"rpc": LookedAt().details, "frame": frame_details, "write": written, "export": exported}
