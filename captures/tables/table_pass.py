"""One pass over a capture that fills tables, in batches of rows: the place where nouns become columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING

from rdmascope.dissect.records.rpc_columns import Columns, RpcBatches, TableBuilder, Wanted
from rdmascope.dissect.records.tables import RECOGNITION, TABLES, Detail, PacketTableBatch, Verdict
from rdmascope.dissect.rpcrdma.analyzer import Options
from rdmascope.dissect.rpcrdma.conversation import Conversation
from rdmascope.dissect.rpcrdma.rpc_table import RpcTable

from ..session.listeners import DividedAudit, DividedCredits, PassListener
from ..session.session import Session

if TYPE_CHECKING:
    from rdmascope.dissect.audit.auditor import Auditor, RuleTally, TallyKey

    from .condition import ChosenRpcs

ROWS = 8192
"""Rows of a table that are held before they are given."""

AUDITED = {"finding", "verdict"}
WITH_CREDITS = {"credits", "detail"}
WITH_FILES = {"file", "detail"}
WITH_CONTENTS = AUDITED | WITH_FILES
"""Nouns that take an audit, the credits or the files; and those that are made of the bytes of messages."""

OF_CHUNKS = {"chunks", "segments"}
"""Tables that are made of the chunks of each RPC."""


def needs_contents(wanted: Wanted) -> bool:
    """Whether these tables need RPCs that hold their bytes: the option of the analyzer."""
    return any(
        TABLES[name].of in WITH_CONTENTS or TableBuilder(TABLES[name], columns).needs("contents", "files", "paths")
        for name, columns in wanted.items()
    )


def needs_chunks(wanted: Wanted) -> bool:
    """Whether these tables need RPCs with chunks as objects: rows say all that is in columns of numbers."""
    return needs_contents(wanted) or not wanted.keys().isdisjoint(OF_CHUNKS)


def table_batches(
    session: Session, wanted: Wanted, chosen: ChosenRpcs | None = None, rows: int = ROWS
) -> Iterator[tuple[str, Columns]]:
    """The rows of tables, in one pass: name and columns, again and again.

    ``chosen``: the RPCs that are judged, and whose use of files counts; all by default.  ``rows``: behind a batch of
    frames at least so many are given, or none.  What is known only at the end (connections, files) comes last.  Memory
    holds a batch of each table, and what the analyzer holds anyway.
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
        for table in session.tables(table_pass.evict, chunk_rows=chosen is None and not needs_chunks(wanted)):
            table_pass.add(table)
            yield from table_pass.full(rows)
    yield from table_pass.finish(max(rows, ROWS))
    yield from table_pass.full(1)


class _TablePass:
    """The builders of the tables, by noun, and what makes nouns of RPCs."""

    def __init__(self, session: Session, builders: list[TableBuilder], chosen: ChosenRpcs | None) -> None:
        self.session = session
        self.builders = builders
        self.by_noun: dict[str, list[TableBuilder]] = {}
        for builder in builders:
            self.by_noun.setdefault(builder.table.of, []).append(builder)
        self.packets = [] if session.traced else self.by_noun.get("packet", [])
        self.names_files = bool(self.by_noun.keys() & WITH_FILES) or any(
            builder.needs("files") for builder in self.by_noun.get("rpc", ())
        )
        names_paths = any(builder.needs("paths") for builder in self.by_noun.get("rpc", ()))
        self.batches = RpcBatches(self.names_files, names_paths, session, chosen and chosen.mask)
        self.auditor: Auditor | None = None
        pass_listeners: list[PassListener] = []
        if self.by_noun.keys() & AUDITED:
            from rdmascope.dissect.audit.auditor import Auditor  # Only here: most tables do without.

            self.auditor = Auditor(examples=1, meant=chosen and chosen.judged)
            pass_listeners.append(DividedAudit(self.auditor, partial(self._add, "finding")))
        self.credits: DividedCredits | None = None
        if self.by_noun.keys() & WITH_CREDITS:
            self.credits = DividedCredits()
            pass_listeners.append(self.credits)
        if pass_listeners:
            session.watch(*pass_listeners)

    def full(self, rows: int) -> Iterator[tuple[str, Columns]]:
        """The tables with so many rows, behind each batch."""
        if self.auditor is not None:
            self.auditor.forget(self.session.analyzer.last_time or 0)
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
        for conversation in conversations:
            self._add("conversation", conversation)
            self._add("detail", Detail("evicted conversation", conversation.connection.number, conversation))
            self._add_credits(conversation.connection.number)

    def finish(self, rows: int) -> Iterator[tuple[str, Columns]]:
        """What is known only now, at least so many rows of a table at a time."""
        conversations = self.session.analyzer.conversations
        if self.auditor is not None:
            for conversation in conversations:
                yield from self._add_all("verdict", self._verdicts(self.auditor.close(conversation)), rows)
                yield from self._full("finding", rows)
            yield from self._add_all("verdict", self._verdicts(self.auditor.tallies), rows)
        yield from self._add_all("conversation", conversations, rows)
        for number in sorted(self.credits.directions if self.credits is not None else ()):
            self._add_credits(number)
            yield from self._full("credits", rows)
            yield from self._full("detail", rows)
        if "file" in self.by_noun:
            files = self.batches.file_table
            yield from self._add_all("file", ((files, file) for file in files), rows)
        yield from self._add_all("place", self.session.place_runs(), rows)
        if "detail" in self.by_noun:
            yield from self._add_all("detail", self._details(), rows)

    def _verdicts(self, tallies: Mapping[TallyKey, RuleTally]) -> Iterator[Verdict]:
        assert self.auditor is not None
        for key, tally in sorted(tallies.items(), key=itemgetter(0)):
            yield Verdict(key, self.auditor.rules[key.rule], tally)

    def _details(self) -> Iterator[Detail]:
        from rdmascope.dissect.records.details import CaptureSums, FileDetails

        analyzer, file_table = self.session.analyzer, self.batches.file_table
        yield Detail("capture", None, CaptureSums.of(analyzer))
        yield Detail("passed over", None, self.session.passed_over)
        if words := _recognition(analyzer.options):
            yield Detail(RECOGNITION, None, words)
        for point in self.session.other_points:
            yield Detail("other capture point", None, point)
        for conversation in analyzer.conversations:
            number = conversation.connection.number
            yield Detail("conversation", number, conversation)
            yield Detail("health", number, analyzer.health(number))
        for file in file_table:
            yield Detail("file", file.number, FileDetails.of(file_table, file))
        yield Detail("undecoded of files", None, file_table.undecoded)

    def _add_all(self, of: str, nouns: Iterable[object], rows: int) -> Iterator[tuple[str, Columns]]:
        for noun in nouns:
            self._add(of, noun)
            yield from self._full(of, rows)

    def _full(self, of: str, rows: int) -> Iterator[tuple[str, Columns]]:
        for builder in self.by_noun.get(of, ()):
            if len(builder) >= rows:
                yield builder.table.name, builder.take()

    def _add_credits(self, number: int) -> None:
        for direction in self.credits.directions.pop(number, ()) if self.credits is not None else ():
            if direction.calls or direction.replies:
                self._add("credits", direction)
                # The intervals are those of the table of credits.
                self._add("detail", Detail("credits", number, replace(direction, bins={})))

    def _add(self, of: str, noun: object) -> None:
        for builder in self.by_noun.get(of, ()):
            builder.add(noun)


def _recognition(options: Options) -> str:
    """The options by which more is taken for RPC-over-RDMA than by itself, as they are typed."""
    ports = [f"--port {port}" for port in sorted(options.ports - Options().ports)]
    return " ".join([*ports, *(["--as rpcrdma"] if options.force else [])])
