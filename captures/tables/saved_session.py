"""Saved tables in place of a capture: a Session whose RPCs, connections and sums come from them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import fields
from typing import Any, NoReturn, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from rdmascope.dissect.audit.auditor import EARLIER, Auditor, RuleTally, TallyKey
from rdmascope.dissect.audit.finding import Finding
from rdmascope.dissect.audit.judgement import VIOLATION
from rdmascope.dissect.measure.credits import CreditDirection
from rdmascope.dissect.measure.file_names import PathLearner
from rdmascope.dissect.measure.files import EarlierName, File, FileTable, FileTransfer
from rdmascope.dissect.records.details import CaptureSums, DetailError, FileDetails, from_json
from rdmascope.dissect.records.tables import FILTER, SIDES
from rdmascope.dissect.rpcrdma.analyzer import Analyzer
from rdmascope.dissect.rpcrdma.conversation import Conversation
from rdmascope.dissect.rpcrdma.dispatch import Undecoded
from rdmascope.dissect.rpcrdma.eviction import Evicted
from rdmascope.dissect.rpcrdma.rpc_fields import FieldReader
from rdmascope.dissect.rpcrdma.rpc_table import RpcTable
from rdmascope.dissect.transport.health import TransportHealth

from ..errors import CaptureError
from ..read.decoded import Source
from ..read.frame_origin import Places, short_names
from ..read.merge import OtherPoint
from ..session.session import Made, Session
from .database import Database
from .saved import copies, is_data_set
from .saved_rpcs import SavedFieldReader, SavedPathLearner, saved_rpcs
from .saved_tables import Numbering, entries, make_views_of, not_in_tables, open_saved, origin

Noun = TypeVar("Noun")


class SavedAnalyzer(Analyzer):
    """What an Analyzer is at the end of a capture."""

    def __init__(
        self, sums: CaptureSums, conversations: list[Conversation], healths: dict[int, TransportHealth]
    ) -> None:
        super().__init__()
        self._sums = sums
        self.frames, self.truncated_frames, self.packets = sums.frames, sums.truncated_frames, sums.packets
        self.dropped_frames = sums.dropped_frames
        self.skipped, self.evicted = sums.skipped, sums.evicted
        self.first_time, self.earliest_time, self.last_time = sums.first_time, sums.earliest_time, sums.last_time
        self.connections = [one.connection for one in conversations]
        self._conversations = {one.connection.number: one for one in conversations}
        self._healths = healths
        self.addresses.learn(0, sums.addresses)

    @property
    def other_packets(self) -> Counter[str]:
        return self._sums.other_packets

    @property
    def undecoded(self) -> list[Undecoded]:
        return self._sums.undecoded

    @property
    def unplaced(self) -> dict[int, int]:
        return self._sums.unplaced

    def health(self, number: int) -> TransportHealth:
        return self._healths[number]


class SavedFiles(FileTable):
    """The files of saved tables, with the paths that they had."""

    def __init__(self, facts: list[FileDetails], undecoded: Counter[str]) -> None:
        super().__init__()
        self.undecoded = undecoded
        self._facts = {one.number: one for one in facts}
        self._listed = [one.file() for one in facts]

    def __iter__(self) -> Iterator[File]:
        return iter(self._listed)

    def __len__(self) -> int:
        return len(self._listed)

    def paths(self, file: File) -> list[str]:
        return self._facts[file.number].paths

    def removed_path(self, file: File) -> str | None:
        return self._facts[file.number].removed_path

    def earlier_names(self, file: File) -> list[EarlierName]:
        return self._facts[file.number].earlier_names


class SavedSession(Session):
    """A Session that reads saved tables, again and again where that is asked.

    Its RPCs have no bytes.  What takes those, or packets, raises CaptureError, which says which capture has them.
    """

    def __init__(self, path: str) -> None:
        super().__init__(path)
        with open_saved(path) as database:
            found = origin(database)
            self._sources = found.sources
            self._files = [*found.sources]
            self.damage = CaptureError(found.damage) if found.damage else None
            (sums,) = self._details(database, "capture", CaptureSums)
            conversations = self._details(database, "conversation", Conversation)
            healths = self._details(database, "health", TransportHealth)
            self._gone = self._details(database, "evicted conversation", Conversation)
            self.other_points = self._details(database, "other capture point", OtherPoint)
            (self.passed_over,) = self._details(database, "passed over", list[str])
            self.filters = self._details(database, FILTER, str)
            self._note_places(database)
        self.analyzer = SavedAnalyzer(sums, conversations, {one.connection: one for one in healths})

    def _details(self, database: Database, kind: str, noun: type[Noun]) -> list[Noun]:
        rows = database.connection.execute("SELECT content FROM details WHERE kind = ?", [kind]).fetchall()
        try:
            return [from_json(noun, content) for (content,) in rows]
        except DetailError as error:
            raise CaptureError(f"{self.path}: another version of rdmascope saved these tables: {error}") from None

    def _note_places(self, database: Database) -> None:
        runs = database.connection.execute(
            "SELECT first_frame, last_frame, place_file, place_frame FROM places ORDER BY 1"
        ).fetchall()
        if runs:
            self._places = Places()
            for first, last, file, frame in runs:
                self._places.add([(file, frame)], np.zeros(last - first + 1, np.uint8))
            self.names = short_names(self._places.paths)

    def tables(
        self, on_eviction: Callable[[list[Conversation]], None] | None = None, chunk_rows: bool = False
    ) -> Iterator[RpcTable]:
        conversations = {one.connection.number: one for one in (*self._gone, *self.analyzer.conversations)}
        with open_saved(self.paths[0]) as database:
            yield from self._rpcs(database, conversations)
        if on_eviction is not None and self._gone:
            on_eviction(self._gone)

    def _rpcs(self, database: Database, conversations: dict[int, Conversation]) -> Iterator[RpcTable]:
        yield from saved_rpcs(database.connection, conversations)

    def remarks(self) -> list[str]:
        return [
            f"{self.path}: was saved with a filter; holds only {words}" for words in self.filters
        ] + super().remarks()

    def field_reader(self) -> FieldReader:
        return SavedFieldReader()

    def path_learner(self) -> PathLearner:
        return SavedPathLearner(self.field_reader())

    def credit_directions(self, on_rpcs: Callable[[RpcTable], None] | None = None) -> list[CreditDirection]:
        if on_rpcs is not None:
            for table in self.tables():
                on_rpcs(table)
        with open_saved(self.paths[0]) as database:
            return self._details(database, "credits", CreditDirection)

    def files(
        self,
        on_transfers: Callable[[list[FileTransfer]], None] | None = None,
        passes: Callable[[RpcTable], NDArray[np.bool_]] | None = None,
    ) -> FileTable:
        if passes is not None:
            self.lacks("what single RPCs did with files")
        if on_transfers is not None:
            self.lacks("the contents of files")
        with open_saved(self.paths[0]) as database:
            facts = self._details(database, "file", FileDetails)
            undecoded = self._details(database, "undecoded of files", Counter[str])
        return SavedFiles(facts, sum(undecoded, Counter()))

    def audit(self, auditor: Auditor, connections: Collection[int] = ()) -> int:
        if auditor.meant is not None:
            self.lacks("what single RPCs were judged by")
        kept = {one.connection.number: one.connection for one in self.analyzer.conversations}
        known = kept | {one.connection.number: one.connection for one in self._gone}
        with open_saved(self.paths[0]) as database:
            for row in _rows(database, "SELECT * FROM verdicts"):
                number = EARLIER if row["connection"] is None else row["connection"]
                if row["rule"] in auditor.rules:
                    place = TallyKey(row["rule"], number, SIDES.index(row["endpoint"]))
                    reasons = json.loads(row["reasons"] or "{}")
                    tally = auditor.tallies.setdefault(place, RuleTally())  # Of a data set there are several sums.
                    tally.add(RuleTally(row["passed"], 0, 0, row["undecidable"], reasons), auditor.examples)
                    if number in kept:
                        auditor.connections[number] = kept[number]
            for one in self.analyzer.conversations:
                if one.protocol == "rpcrdma":
                    auditor.connections[one.connection.number] = one.connection
            for row in _rows(database, "SELECT * FROM findings"):
                rule = auditor.rules.get(row["rule"])
                if rule is not None:
                    frames = tuple(map(int, (row["frames"] or "").split()))
                    endpoint, number = SIDES.index(row["endpoint"]), row["connection"]
                    finding = Finding(
                        rule, VIOLATION, known[number], endpoint, row["role"], frames, row["time_ns"] or 0,
                        row["rpc"], row["xid"], row["observed"], row["required"], "", row["severity"],
                    )  # fmt: skip
                    place = TallyKey(rule.id, number if number in kept else EARLIER, endpoint)
                    auditor.count(finding, auditor.tallies[place])
            query = "SELECT count(*) FROM rpcs WHERE state <> 'duplicate reply'"
            if connections:
                query += f" AND connection IN ({', '.join(map(str, connections))})"
            (rpcs,) = database.connection.execute(query).fetchall()[0]
        return int(rpcs)

    def _read(self, line: Callable[[Source], Iterator[Made]]) -> Iterator[Made]:
        self.lacks("packets")

    def lacks(self, what: str) -> NoReturn:
        """Raise that ``what`` is not in the tables, and where it is."""
        raise CaptureError(not_in_tables(self.path, what, self._sources))


def _rows(database: Database, query: str) -> Iterator[dict[str, Any]]:
    rows = database.connection.execute(query)
    names = [one[0] for one in rows.description]
    while some := rows.fetchmany(1000):
        for values in some:
            yield dict(zip(names, values, strict=True))


class DataSetSession(SavedSession):
    """Reads the tables of all captures of a data set as those of one."""

    def __init__(self, path: str) -> None:
        self._numbering = Numbering(entries(path))
        super().__init__(path)
        self.path = copies.get(path, path)

    def host(self, connection: int) -> str | None:
        return self._numbering.host(connection)

    def _rpcs(self, database: Database, conversations: dict[int, Conversation]) -> Iterator[RpcTable]:
        for one in self._numbering.entries:
            if one.rpcs:
                behind = make_views_of(database.connection, self.paths[0], self._numbering, one)
                yield from saved_rpcs(database.connection, conversations, behind=behind)

    def _details(self, database: Database, kind: str, noun: type[Noun]) -> list[Noun]:
        rows = database.connection.execute(
            "SELECT details.capture, content FROM details JOIN numbering USING (capture) WHERE kind = ?"
            " ORDER BY frames_before",
            [kind],
        ).fetchall()
        try:
            found = [
                from_json(noun, json.dumps(_moved(kind, json.loads(content), self._numbering.offsets[capture])))
                for capture, content in rows
            ]
        except (DetailError, ValueError) as error:
            raise CaptureError(f"{self.path}: another version of rdmascope wrote this data set: {error}") from None
        if kind == "capture":
            return [cast(Noun, _summed(cast(list[CaptureSums], found)))]
        if kind == "passed over":
            return [cast(Noun, [path for one in found for path in cast(list[str], one)])]
        return found


def open_saved_session(path: str) -> SavedSession:
    """Of saved tables, or of a data set."""
    return DataSetSession(path) if is_data_set(path) else SavedSession(path)


def _moved(kind: str, value: Any, before: dict[str, int]) -> Any:
    """The JSON of a noun, with the numbers that it has over all captures."""
    moved = _renumbered(value, before)
    if kind in ("conversation", "evicted conversation", "credits"):
        moved["connection"]["number"] += before["connections"]
    elif kind == "file":
        moved["number"] += before["files"]
    elif kind == "capture":
        moved["unplaced"] = [[number + before["connections"], count] for number, count in moved["unplaced"]]
    return moved


def _renumbered(value: Any, before: dict[str, int]) -> Any:
    if isinstance(value, list):
        return [_renumbered(one, before) for one in value]
    if not isinstance(value, dict):
        return value
    found = {}
    for name, inner in value.items():
        if type(inner) is int and inner > 0:
            if name == "frame" or name.endswith("_frame"):
                inner += before["frames"]
            elif name == "connection":
                inner += before["connections"]
            elif name == "rpc":
                inner += before["rpcs"]
        elif name.endswith("frames") and isinstance(inner, list) and all(type(one) is int for one in inner):
            inner = [one + before["frames"] for one in inner]
        else:
            inner = _renumbered(inner, before)
        found[name] = inner
    return found


def _summed(captures: list[CaptureSums]) -> CaptureSums:
    """What the captures come to together."""
    evicted = Evicted()
    for field in fields(Evicted):
        setattr(evicted, field.name, sum(getattr(one.evicted, field.name) for one in captures))
    first = [one.first_time for one in captures if one.first_time is not None]
    earliest = [one.earliest_time for one in captures if one.earliest_time is not None]
    last = [one.last_time for one in captures if one.last_time is not None]
    return CaptureSums(
        sum(one.frames for one in captures),
        sum(one.truncated_frames for one in captures),
        sum(one.dropped_frames for one in captures),
        sum(one.packets for one in captures),
        min(first, default=None),
        min(earliest, default=None),
        max(last, default=None),
        sum((one.skipped for one in captures), Counter()),
        sum((one.other_packets for one in captures), Counter()),
        [undecoded for one in captures for undecoded in one.undecoded],
        {number: count for one in captures for number, count in one.unplaced.items()},
        evicted,
        [],
    )
