"""What the processes behind the panes do: look closer at one RPC, frame, connection or file, audit, diagnose, write."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import RenderableType
from rich.text import Text

from rdmascope.captures.session.diagnosis_pass import FactsPass, diagnosis_of
from rdmascope.captures.session.find import find_frame, steps_of
from rdmascope.captures.session.session import Session
from rdmascope.captures.tables.browsed_tables import LATER
from rdmascope.captures.tables.condition import Condition
from rdmascope.dissect.audit.rule import Finding
from rdmascope.dissect.diagnosis.detector import Severity, Statement
from rdmascope.dissect.diagnosis.diagnose import Diagnosis, diagnose
from rdmascope.dissect.diagnosis.facts import Gathered
from rdmascope.dissect.measure.files import FileTable
from rdmascope.dissect.records.rpc_columns import RpcBatch
from rdmascope.dissect.records.table import TableBuilder
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
from .filling import ADDED, COMPLETING, BrowsedCapture, RowsToSend, TablePart, fill
from .listings import Details, Diagnosed, RpcPlace, TreeNode, nodes_of, rendered, shown_bytes

KEPT = 256
"""RPCs that are kept for being looked at."""
KEPT_BYTES = 64 << 20
"""And their bytes."""


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
        messages = zip(decoded_messages(rpc, False), ("call", "reply"), strict=True)
        data = [shown_bytes(name, one.bytes) for one, name in messages if one is not None]
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
        wanted = {place.number if numbered else (place.frame, place.xid): place.number for place in places}
        keys = [place.number if numbered else place.xid for place in places]
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
    capture = capture.holding("packets", number)
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

    condition = None if rpcs else Condition([where or "true"])
    choice = Choice(condition, rpcs)
    read: list[Session | GivenCaptures] = []
    try:
        if capture.data_set:
            given = GivenCaptures((capture.data_set,), Options())
            done = given.extract(Path(output), choice)
            read.append(given)
        else:
            done = extract_of_each([ExtractSource(capture.session, choice)], Path(output), 0, False, read.append)
    finally:
        if condition is not None:
            condition.close()
    yield f"{output}: {plural(done.rpcs, 'RPC')} in {plural(done.frames, 'frame')}, {size(done.bytes)}"
    for one in read:
        one.check()


def exported(capture: BrowsedCapture, output: str, where: str) -> Iterator[str | None]:
    """Write RPCs as NFS over TCP, for Wireshark; gives the path.  Raises CaptureError behind that for captures of a
    data set that could not be read."""
    from rdmascope.captures.write.export import export_tcp

    from ..each_capture import GivenCaptures

    condition = Condition([where]) if where else None
    given = GivenCaptures((capture.data_set,), Options()) if capture.data_set else None
    try:
        if given is not None:
            given.export_tcp(Path(output), condition=condition)
        else:
            export_tcp(capture.session(), Path(output), condition=condition)
    finally:
        if condition is not None:
            condition.close()
    yield output
    if given is not None:
        given.check()


def looking_jobs() -> dict[str, Callable[..., Iterator[Any]]]:
    """Those of the process that answers what is chosen."""
    return {"rpc": LookedAt().details, "frame": frame_details, "write": written, "export": exported}


def connection_details(capture: BrowsedCapture, number: int, width: int) -> Iterator[Details | None]:
    """What its ends agreed on, what they sent, and how the transport did; nothing where it was evicted."""
    capture = capture.holding("connections", number)
    session = capture.session()
    gathered = Gathered()
    for table in session.tables():
        gathered.add_table(table)
        del table
        yield None
    found = [
        conversation for conversation in session.analyzer.conversations if conversation.connection.number == number
    ]
    if found and capture.numbered:
        health = session.analyzer.health(number)
        parts = (
            connections_view(found, gathered.statistics, Evicted()),
            connection_view(found[0].connection, health, (), width),
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


NOUN_JOBS: dict[str, Callable[..., Iterator[Any]]] = {"connection": connection_details, "file": file_details}
"""By the name under which they are asked for."""


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
    session = capture.session(replace(capture.options, contents=True))
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
    found = facts.facts()
    gathered.take_from(findings)
    yield from gathered.take(ended=True)
    yield _shown(diagnose(found), capture)


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
