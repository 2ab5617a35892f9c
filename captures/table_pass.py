"""One pass over a capture that fills tables, in batches of rows: the place where nouns become columns."""

from __future__ import annotations

from collections.abc import Iterator

from rdmascope.dissect.audit.auditor import Auditor
from rdmascope.dissect.measure.credits import CreditHistory
from rdmascope.dissect.records.details import CaptureSums, FileDetails
from rdmascope.dissect.records.table import Columns, TableBuilder, Wanted
from rdmascope.dissect.records.table_packets import PacketTableBatch
from rdmascope.dissect.records.table_results import Detail, Verdict
from rdmascope.dissect.records.tables import TABLES
from rdmascope.dissect.rpcrdma.conversation import Conversation
from rdmascope.dissect.rpcrdma.listeners import ColumnListener, ColumnListeners, Listener
from rdmascope.dissect.rpcrdma.rpc_table import RpcTable

from .condition import ChosenRpcs
from .rpc_batches import RpcBatches
from .session import Session

ROWS = 8192
"""Rows of a table that are held before they are given."""

AUDITED = {"finding", "verdict"}
WITH_CREDITS = {"credits", "detail"}
WITH_FILES = {"file", "detail"}
WITH_CONTENTS = AUDITED | WITH_FILES
"""Nouns that take an audit, the credits or the files; and those that are made of the bytes of messages."""


def needs_contents(wanted: Wanted) -> bool:
    """Whether these tables need RPCs that hold their bytes: the option of the analyzer."""
    return any(
        TABLES[name].of in WITH_CONTENTS or TableBuilder(TABLES[name], columns).needs("contents", "files", "paths")
        for name, columns in wanted.items()
    )


def table_batches(
    session: Session, wanted: Wanted, chosen: ChosenRpcs | None = None, rows: int = ROWS
) -> Iterator[tuple[str, Columns]]:
    """The rows of tables, in one pass: name and columns, again and again, at least ``rows`` of them but at the end.

    ``chosen``: the RPCs that are judged, and whose use of files counts; all by default.  What is known only at the end
    (connections, files) comes last.  Memory holds a batch of each table, and what the analyzer holds anyway.
    """
    table_pass = _TablePass(
        session, [TableBuilder(TABLES[name], columns, session.place) for name, columns in wanted.items()], chosen
    )
    if table_pass.packets:
        names_rpcs = any(builder.needs("contents") for builder in table_pass.packets)
        for packets in session.packet_columns(on_rpcs=table_pass.take, names_rpcs=names_rpcs):
            for builder in table_pass.packets:
                builder.add(PacketTableBatch(packets))
            yield from table_pass.full(rows)
    else:
        for table in session.tables(table_pass.evict):
            table_pass.add(table)
            yield from table_pass.full(rows)
    table_pass.finish()
    yield from table_pass.full(1)


class _TablePass:
    """The builders of the tables, by noun, and what makes nouns of RPCs."""

    def __init__(self, session: Session, builders: list[TableBuilder], chosen: ChosenRpcs | None) -> None:
        self.session = session
        self.builders = builders
        self.by_noun: dict[str, list[TableBuilder]] = {}
        for builder in builders:
            self.by_noun.setdefault(builder.table.of, []).append(builder)
        self.packets = self.by_noun.get("packet", [])
        self.names_files = bool(self.by_noun.keys() & WITH_FILES) or any(
            builder.needs("files") for builder in self.by_noun.get("rpc", ())
        )
        names_paths = any(builder.needs("paths") for builder in self.by_noun.get("rpc", ()))
        self.batches = RpcBatches(self.names_files, names_paths, session, chosen and chosen.mask)
        self.auditor: Auditor | None = None
        if self.by_noun.keys() & AUDITED:
            self.auditor = Auditor(examples=1, meant=chosen and chosen.judged)
            self.auditor.on_finding = lambda finding, _: self._add("finding", finding)
        self.credits: dict[int, CreditHistory] | None = {} if self.by_noun.keys() & WITH_CREDITS else None
        """By connection number."""
        if self.auditor is not None or self.credits is not None:
            session.analyzer.listener = self._listener

    def _listener(self, conversation: Conversation) -> Listener:
        listeners: list[ColumnListener] = []
        if self.auditor is not None:
            listeners.append(self.auditor.listener(conversation))
        if self.credits is not None:
            history = self.credits[conversation.connection.number] = CreditHistory(conversation)
            listeners.append(history)
        return ColumnListeners(*listeners)

    def full(self, rows: int) -> Iterator[tuple[str, Columns]]:
        for builder in self.builders:
            if len(builder) >= rows:
                yield builder.table.name, builder.take()

    def take(self, table: RpcTable) -> None:
        """RPCs that ended, where it is packets that the pass gives."""
        self.add(table)
        if self.session.analyzer.evicted.connections and (gone := self.session.analyzer.evicted_since()):
            self.evict(gone)

    def add(self, table: RpcTable) -> None:
        """The RPCs that ended in a batch."""
        if not len(table):
            return
        self._add("rpc", self.batches.batch(table))

    def evict(self, conversations: list[Conversation]) -> None:
        """Nothing more comes of these."""
        if self.auditor is not None:
            self.auditor.evict(conversations)
        for one in conversations:
            self._add("conversation", one)
            self._add("detail", Detail("evicted conversation", one.connection.number, one))
            self._add_credits(one.connection.number)

    def finish(self) -> None:
        analyzer = self.session.analyzer
        conversations = analyzer.conversations
        if self.auditor is not None:
            self.auditor.finish(conversations)
            for place, tally in self.auditor.tallies.items():
                self._add("verdict", Verdict(place, self.auditor.rules[place.rule], tally))
        for one in conversations:
            self._add("conversation", one)
        for number in sorted(self.credits or ()):
            self._add_credits(number)
        for file in self.batches.file_table:
            self._add("file", (self.batches.file_table, file))
        for run in self.session.place_runs():
            self._add("place", run)
        if "detail" in self.by_noun:
            self._add("detail", Detail("capture", None, CaptureSums.of(analyzer)))
            self._add("detail", Detail("passed over", None, self.session.passed_over))
            for point in self.session.other_points:
                self._add("detail", Detail("other capture point", None, point))
            for one in conversations:
                number = one.connection.number
                self._add("detail", Detail("conversation", number, one))
                self._add("detail", Detail("health", number, analyzer.health(number)))
            for file in self.batches.file_table:
                self._add("detail", Detail("file", file.number, FileDetails.of(self.batches.file_table, file)))
            self._add("detail", Detail("undecoded of files", None, self.batches.file_table.undecoded))

    def _add_credits(self, number: int) -> None:
        history = None if self.credits is None else self.credits.pop(number, None)
        if history is not None:
            for direction in history.directions:
                if direction.calls or direction.replies:
                    self._add("credits", direction)
                    self._add("detail", Detail("credits", number, direction))

    def _add(self, of: str, noun: object) -> None:
        for builder in self.by_noun.get(of, ()):
            builder.add(noun)
