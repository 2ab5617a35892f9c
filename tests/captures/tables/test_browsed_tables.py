"""Tables of which a window is looked at, in any order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import duckdb
import pytest

from playbook.commands import EVERYTHING, run
from rdmascope.captures.errors import CaptureError
from rdmascope.captures.session.session import Session
from rdmascope.captures.tables.browsed_tables import LATER, BrowsedTables, Narrowing, checked, completions, follows
from rdmascope.captures.tables.database import Database
from rdmascope.captures.tables.table_pass import table_batches
from rdmascope.dissect.arrays import Int64s
from rdmascope.dissect.records.tables import TABLES


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrowsedTables]:
    folder = tmp_path_factory.mktemp("tables")
    names = ("rpcs", "connections", "files", "findings")
    with closing(BrowsedTables(str(folder))) as found:
        for name, columns in table_batches(Session(EVERYTHING), dict.fromkeys(names), rows=1):
            found.asked().take_in(name, columns)
        yield found
    assert not list(folder.iterdir())


def numbers(tables: BrowsedTables, ids: Int64s) -> list[int]:
    return [row["number"] for row in tables.rows("rpcs", ids)]


def test_rows_in_their_order(tables: BrowsedTables) -> None:
    ids = tables.order("rpcs", Narrowing())
    assert numbers(tables, ids) == [*range(1, tables.count("rpcs") + 1)]
    assert numbers(tables, ids[::-1][:3]) == [237, 236, 235]
    slow = numbers(tables, tables.order("rpcs", Narrowing(), "latency_ns", True))
    printed = run("rpcs", EVERYTHING, "--sort", "latency").stdout.splitlines()[1:]
    assert slow[:5] == [int(line.split()[0]) for line in printed][:5]


def test_what_belongs_to_the_rpcs_that_are_meant(tables: BrowsedTables) -> None:
    narrowing = Narrowing(checked("operations like '%OPEN%'", 0))
    rpcs = numbers(tables, tables.order("rpcs", narrowing))
    assert 0 < len(rpcs) < 237 and set(rpcs) == tables.numbers(narrowing)
    findings = tables.rows("findings", tables.order("findings", narrowing))
    assert findings and {row["rpc"] for row in findings} - {None} <= set(rpcs)
    assert 0 < len(tables.order("connections", narrowing)) <= tables.count("connections")
    assert 0 < len(tables.order("files", narrowing)) < tables.count("files")


def test_the_timeline_counts_every_rpc_once(tables: BrowsedTables) -> None:
    timeline = tables.timeline(Narrowing(), 50)
    assert timeline is not None and len(timeline.intervals) <= 50
    assert sum(one.calls for one in timeline.intervals) == 237
    assert all((one.p99 is None) or one.p99 >= (one.median or 0) for one in timeline.intervals)
    begin, width = timeline.first, timeline.width
    brushed = Narrowing("", begin, begin + 2 * width)
    assert len(tables.order("rpcs", brushed)) == sum(one.calls for one in timeline.intervals[:2])
    assert tables.timeline(brushed, 50) == timeline


def test_what_contains_a_text(tables: BrowsedTables) -> None:
    for text in ("ReadLink", "/sym", "0x34a82abb"):
        assert 16 in numbers(tables, tables.containing("rpcs", text))
    assert not len(tables.containing("rpcs", "%"))


@pytest.mark.parametrize("text", ["1; drop table rpcs", "number in (select rpc from findings)", "nothing = 3", "("])
def test_conditions_that_are_none(text: str) -> None:
    with pytest.raises(CaptureError):
        checked(text, 0)


def test_what_is_not_known_of_running_traffic() -> None:
    with pytest.raises(CaptureError, match="not known of running traffic"):
        checked("file = 1", 0, live=True)
    assert "file" in checked("file = 1", 0)


def test_closing_waits_for_what_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    busy = [duckdb.OperationalError("connection is busy with another call")] * 2
    close = Database.close

    def refusing(self: Database) -> None:
        if busy:
            raise busy.pop()
        close(self)

    monkeypatch.setattr(Database, "close", refusing)
    found = BrowsedTables(str(tmp_path))
    assert found.connection.execute("SELECT count(*) FROM rpcs").fetchall() == [(0,)]
    found.close()
    assert not busy and not list(tmp_path.iterdir())


def test_values_are_completed_once_rows_are_there(tmp_path: Path) -> None:
    with closing(BrowsedTables(str(tmp_path))) as found:
        assert not list(tmp_path.iterdir()) and not found.ready
        assert completions(found, "path = ") == [] and completions(found, "10.77") == [] != completions(found, "cli")
        for _, columns in table_batches(Session(EVERYTHING), {"rpcs": {"number", "path"}}):
            columns["path"][:1] = "not UTF-8: \udcff"
            found.take_in("rpcs", columns)
        assert found.ready and list(tmp_path.iterdir()) and completions(found, "path = ")
        rows = found.rows("rpcs", found.order("rpcs", Narrowing())[::-2])
        assert rows[-1]["path"] == "not UTF-8: \\udcff" and rows[0]["state"] is None
        assert found.count("rpcs") == 237


def test_columns_that_come_later(tmp_path: Path) -> None:
    names = {one.name for one in TABLES["rpcs"].columns}
    with closing(BrowsedTables(str(tmp_path))) as found:
        for _, columns in table_batches(Session(EVERYTHING), {"rpcs": names.difference(*LATER.values())}, rows=1):
            found.take_in("rpcs", columns)
        assert not {row["path"] for row in found.rows("rpcs", found.order("rpcs", Narrowing()))} - {None}
        for later in LATER.values():
            for _, columns in table_batches(Session(EVERYTHING), {"rpcs": {"number", *later}}, rows=1):
                found.complete(columns)
        with Database() as whole:
            for name, columns in table_batches(Session(EVERYTHING), {"rpcs": None}):
                whole.insert(name, columns)
            wanted_rows = whole.connection.execute("SELECT * FROM rpcs ORDER BY number").fetchall()
        assert found.connection.execute("SELECT * FROM rpcs ORDER BY number").fetchall() == wanted_rows


def test_completions_can_be_checked(tables: BrowsedTables) -> None:
    for text in (
        "cli",
        "client = ",
        "READ",
        "10.77",
        "/",
        "state <> 'comp",
        "latency > 1ms and proc",
        "operations = 'GET",
    ):
        found = completions(tables, text)
        assert found
        for one in found:
            if "'" in one:
                checked(one, 0)
    assert completions(tables, "path = 'x' and ") == [] and completions(tables, "path = 'no such") == []


def test_what_is_followed_passes(tables: BrowsedTables) -> None:
    (row,) = tables.rows("rpcs", tables.order("rpcs", Narrowing("number = 16")))
    for _, condition in follows(row):
        assert 16 in tables.numbers(Narrowing(checked(condition, 0)))


def test_replacing(tmp_path: Path) -> None:
    with closing(BrowsedTables(str(tmp_path))) as found:
        for _ in range(2):
            for name, columns in table_batches(Session(EVERYTHING), {"connections": None}, rows=1):
                found.prepare(name, columns)
            assert found.count("connections") in (0, 11)
            found.replace("connections")
        assert found.count("connections") == 11
        found.replace("connections")
        assert found.count("connections") == 0
