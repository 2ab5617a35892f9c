"""One pass over a capture that fills tables, in batches of rows: the place where nouns become columns."""

from __future__ import annotations

from collections.abc import Iterator

from rdmascope.dissect.audit.auditor import Auditor
from rdmascope.dissect.measure.files import FileTable
from rdmascope.dissect.records.rpc_columns import RpcBatch
from rdmascope.dissect.records.table import Columns, TableBuilder, Wanted
from rdmascope.dissect.records.tables import TABLES
from rdmascope.dissect.rpcrdma.conversation import Conversation
from rdmascope.dissect.rpcrdma.rpc_fields import FieldReader
from rdmascope.dissect.rpcrdma.rpc_table import RpcTable
from rdmascope.dissect.rpcrdma.rpcs import Rpc

from .session import Session

ROWS = 8192
"""Rows of a table that are held before they are given."""

WITH_CONTENTS = {"packet", "finding", "file"}
"""Nouns that are made of the bytes of messages."""


def needs_contents(wanted: Wanted) -> bool:
    """Whether these tables need RPCs that hold their bytes: the option of the analyzer."""
    return any(
        TABLES[name].of in WITH_CONTENTS or TableBuilder(TABLES[name], columns).needs("contents", "files")
        for name, columns in wanted.items()
    )


def table_batches(session: Session, wanted: Wanted) -> Iterator[tuple[str, Columns]]:
    """The rows of tables, in one pass: name and columns, again and again.

    What is known only at the end (connections, files) comes last.  Memory holds a batch of each table, and what the
    analyzer holds anyway.
    """
    table_pass = _TablePass(session, [TableBuilder(TABLES[name], columns) for name, columns in wanted.items()])
    if table_pass.packets:
        for packet in session.packets(on_rpcs=table_pass.take):
            for builder in table_pass.packets:
                builder.add(packet)
            yield from table_pass.full()
    else:
        for table in session.tables(table_pass.evict):
            table_pass.add(table)
            yield from table_pass.full()
    table_pass.finish()
    yield from table_pass.full(1)


class _TablePass:
    """The builders of the tables, by noun, and what makes nouns of RPCs."""

    def __init__(self, session: Session, builders: list[TableBuilder]) -> None:
        self.session = session
        self.builders = builders
        self.packets, self.rpcs, self.findings, self.conversations, self.files = (
            [builder for builder in builders if builder.table.of == noun]
            for noun in ("packet", "rpc", "finding", "conversation", "file")
        )
        self.names_files = bool(self.files) or any(builder.needs("files") for builder in self.rpcs)
        self.file_table = FileTable()
        self.fields = FieldReader()
        self.ended = 0
        """RPCs that were added."""
        self.auditor: Auditor | None = None
        if self.findings:
            self.auditor = Auditor(examples=1)
            self.auditor.on_finding = lambda finding, _: self._add_to(self.findings, finding)
            session.analyzer.listener = self.auditor.listener

    def full(self, rows: int = ROWS) -> Iterator[tuple[str, Columns]]:
        for builder in self.builders:
            if len(builder) >= rows:
                yield builder.table.name, builder.take()

    def take(self, rpcs: list[Rpc]) -> None:
        """RPCs that ended, where it is packets that the pass gives."""
        self.add(RpcTable(rpcs))
        if self.session.analyzer.evicted.connections and (gone := self.session.analyzer.evicted_since()):
            self.evict(gone)

    def add(self, table: RpcTable) -> None:
        """The RPCs that ended in a batch."""
        if not len(table):
            return
        used, paths = [], []
        if self.names_files:
            for rpc in table:
                self.file_table.add(rpc)
                used.append(self.file_table.used)
                paths.append(self.file_table.path_of(rpc, self.fields.fields(rpc)))
        self._add_to(self.rpcs, RpcBatch(table, self.ended, used, paths, self.fields))
        self.ended += len(table)

    def evict(self, conversations: list[Conversation]) -> None:
        """Nothing more comes of these."""
        for one in conversations:
            self._add_to(self.conversations, one)
        if self.auditor is not None:
            self.auditor.evict(conversations)

    def finish(self) -> None:
        conversations = self.session.analyzer.conversations
        for one in conversations:
            self._add_to(self.conversations, one)
        if self.auditor is not None:
            self.auditor.finish(conversations)
        for file in self.file_table:
            self._add_to(self.files, (self.file_table, file))

    @staticmethod
    def _add_to(builders: list[TableBuilder], noun: object) -> None:
        for builder in builders:
            builder.add(noun)
