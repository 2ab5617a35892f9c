"""What judges the capture behind the panes: the findings of the audit, and the diagnosis with its evidence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rich.text import Text

from rdmascope.captures.session.diagnosis_pass import FactsPass, diagnosis_of
from rdmascope.captures.tables.browsed_tables import LATER
from rdmascope.dissect.audit.finding import Finding
from rdmascope.dissect.diagnosis.diagnose import Diagnosis, diagnose
from rdmascope.dissect.diagnosis.statement import Severity, Statement
from rdmascope.dissect.records.rpc_columns import RpcBatch
from rdmascope.dissect.records.table import TableBuilder
from rdmascope.dissect.records.tables import TABLES

from ..views.diagnosis import counted, statement_view
from .filling import ADDED, COMPLETING, BrowsedCapture, RowsToSend, TablePart, fill
from .nodes import Diagnosed, TreeNode, nodes_of

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
    nodes = [TreeNode(head), *(_statement_node(one, capture.numbered) for one in diagnosis.statements)]
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
