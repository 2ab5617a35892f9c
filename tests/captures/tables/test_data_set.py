"""Snapshots of a data set: several writers, ends at any point, compaction while others read, days that go."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import duckdb
import fsspec
import pytest

from playbook.samples import MANIFEST, SAMPLES
from playbook.stores import s3_bucket
from rdmascope.captures.fleet import batch
from rdmascope.captures.read.remote import Folder, LocalFolder
from rdmascope.captures.tables import fleet_sums, saved_tables
from rdmascope.captures.tables.condition import Condition, Filters
from rdmascope.captures.tables.fleet_sums import SummedSession
from rdmascope.captures.tables.saved_session import open_saved_session
from rdmascope.captures.tables.saved_tables import SUMS, CaptureEntry, DataSet, open_saved
from rdmascope.dissect.diagnosis.facts import Cause, Severity
from rdmascope.dissect.measure.time_options import parse_moment
from rdmascope.dissect.records.tables import TABLES
from rdmascope.dissect.rpcrdma.analyzer import Options

DAY = 86_400 * 10**9
ROWS = "rpcs", "packets", "connections", "captures"


class CaptureTables(NamedTuple):
    """What is added."""

    entry: CaptureEntry
    folder: str


@pytest.fixture(scope="module")
def analysed(tmp_path_factory: pytest.TempPathFactory) -> CaptureTables:
    """A capture, and a folder with its tables."""
    kept: list[CaptureTables] = []

    def add(self: DataSet, entry: CaptureEntry, made: str, _: object) -> CaptureEntry:
        folder = tmp_path_factory.mktemp("tables")
        for name in TABLES:
            Path(made, f"{name}.parquet").rename(folder / f"{name}.parquet")
        kept.append(CaptureTables(entry, str(folder)))
        return entry

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DataSet, "add", add)
        (unit,) = batch.units([str(SAMPLES / MANIFEST["v2-settles"]["file"])])
        batch.analyse(unit, str(tmp_path_factory.mktemp("set")), Options())
    return kept[0]


@pytest.fixture
def place(store: str, tmp_path: Path) -> Iterator[str]:
    """Where a data set can be."""
    if store == "local":
        yield str(tmp_path / "set")
        return
    (tmp_path / "bucket").mkdir()
    with s3_bucket(tmp_path / "bucket") as (url, _):
        yield f"{url}/set"


def like(one: CaptureTables, number: int, host: str = "web", day: int = 0) -> CaptureTables:
    """Another capture with the same rows."""
    entry = replace(
        one.entry, capture=f"{number:024x}", host=host, paths=(f"/captures/{number}.pcap",),
        first_time_ns=one.entry.first_time_ns + day * DAY, last_time_ns=one.entry.last_time_ns + day * DAY,
    )  # fmt: skip
    return CaptureTables(entry, one.folder)


def made(path: Path | str) -> DataSet:
    found = DataSet(str(path))
    found.begin()
    return found


def rows(found: DataSet) -> dict[str, Counter[str]]:
    """Rows by capture, of some tables; numbers are those of no other row."""
    counted = {}
    with open_saved(found.path) as database:
        for name in ROWS:
            query = f"SELECT capture, count(*) FROM {name} GROUP BY ALL"
            counted[name] = Counter(dict(database.connection.execute(query).fetchall()))
        for query in ("SELECT count(*) - count(DISTINCT number) FROM rpcs", "SELECT count(*) FROM problems"):
            assert database.connection.execute(query).fetchall() == [(0,)]
    return counted


@cache
def rows_in(folder: str, name: str) -> int:
    ((count,),) = duckdb.execute(f"SELECT count(*) FROM '{folder}/{name}.parquet'").fetchall()
    return int(count)


def wanted(one: CaptureTables, names: list[str]) -> dict[str, Counter[str]]:
    each = {name: rows_in(one.folder, name) for name in ROWS[:3]} | {"captures": 1}
    return {name: Counter(dict.fromkeys(names, each[name])) for name in ROWS}


def test_a_snapshot_has_what_was_added_and_numbers_stay(analysed: CaptureTables, tmp_path: Path) -> None:
    found = made(tmp_path)
    entries = [found.add(*like(analysed, number)) for number in range(3)]
    assert [one.rpcs_before for one in entries] == [0, entries[0].rpcs, 2 * entries[0].rpcs]
    assert found.entries() == entries and found.add(*like(analysed, 1)) == entries[1]
    assert rows(found) == wanted(analysed, [one.capture for one in entries])
    with open_saved(str(tmp_path)) as database:
        query = "SELECT number, xid FROM rpcs ORDER BY 1"
        before = database.connection.execute(query).fetchall()
    assert [number for number, _ in before] == [*range(1, 3 * entries[0].rpcs + 1)]
    found.drop_before(f"{entries[0].day}~")
    assert found.add(*like(analysed, 7)).rpcs_before == 3 * entries[0].rpcs


class Ended(Exception):
    """As a process ends that is killed, before it puts, creates, removes or reads something."""


@pytest.mark.parametrize(
    ("work", "store", "every"),
    [("add", "local", 1), ("replace", "local", 2), ("compact", "local", 1), ("drop", "local", 1), ("add", "s3", 6)],
)
def test_whatever_ends_a_writer_nothing_is_lost_or_twice(
    work: str, every: int, analysed: CaptureTables, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends before each deed or, where the same deeds are done as in others, before ``every`` second or sixth."""
    monkeypatch.setattr(saved_tables, "GRACE", -1)
    old = [f"{number:024x}" for number in range(2)]
    grown = like(analysed, 9)
    grown = grown._replace(entry=replace(grown.entry, paths=("/captures/0.pcap", "/captures/0.pcap1")))
    deeds: dict[str, tuple[Callable[[DataSet], object], list[str]]] = {
        "add": (lambda found: found.add(*like(analysed, 5)), [*old, f"{5:024x}"]),
        "replace": (lambda found: found.add(*grown), [old[1], f"{9:024x}"]),
        "compact": (lambda found: found.compact(all_of=True), old),
        "drop": (lambda found: found.drop_before(like(analysed, 1, day=1).entry.day), old[1:]),
    }
    deed, after = deeds[work]
    found, calls = made(f"{place}/begun"), 1 - every
    found.add(*like(analysed, 0))
    found.add(*like(analysed, 1, day=int(work == "drop")))
    system, begun = fsspec.url_to_fs(f"{place}/begun")
    while True:
        calls += every
        system.copy(begun, f"{begun[:-5]}{calls}", recursive=True)
        found, left = DataSet(f"{place}/{calls}"), calls
        kind, last = type(found.store), ("", "")

        def ending(name: str, kind: type[Folder] = kind) -> Callable[..., Any]:
            whole = getattr(kind, name)

            def one(*arguments: Any) -> Any:
                nonlocal left, last
                left -= last != (name, name)  # Of what is alike twice: the files of a capture are put one by one.
                last = last[1], name
                if not left:
                    raise Ended
                return whole(*arguments)

            return one

        try:
            with monkeypatch.context() as patch:
                for name in ("put", "create", "remove", "read"):
                    patch.setattr(kind, name, ending(name))
                deed(found)
            break
        except Ended:
            assert rows(found) in (wanted(analysed, old), wanted(analysed, after))
        deed(found)
        assert rows(found) == wanted(analysed, after)
        monkeypatch.setattr(saved_tables, "LEFT", -10)
        found.remove_left()
        there = {name for name in found.store.files() if name.endswith(".parquet")}
        assert there == found.snapshot().files.keys()
    assert calls > 3


@pytest.mark.parametrize("store", ["local", "s3"])
def test_two_writers_at_once(analysed: CaptureTables, store: str, place: str) -> None:
    """Both add one capture, and others each; one is always first."""
    found = made(place)
    failed: list[BaseException] = []

    def write(numbers: list[int]) -> None:
        try:
            for number in numbers:
                DataSet(place).add(*like(analysed, number, f"host{numbers[0]}"))
                DataSet(place).compact(all_of=True)
        except BaseException as error:
            failed.append(error)

    each = ([1, 2, 3], [4, 2, 5]) if store == "local" else ([1, 2], [3, 2])
    writers = [threading.Thread(target=write, args=(numbers,)) for numbers in each]
    for one in writers:
        one.start()
    for one in writers:
        one.join()
    assert not failed
    assert rows(found) == wanted(analysed, [f"{number:024x}" for number in {*each[0], *each[1]}])


def test_another_writer_comes_first_at_each_point(
    analysed: CaptureTables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = LocalFolder.create
    for at in range(1, 4):
        found, count = made(tmp_path / str(at)), 0

        def first_another(store: LocalFolder, name: str, data: bytes, found: DataSet = found, at: int = at) -> bool:
            nonlocal count
            count += 1
            if count == at:
                found.add(*like(analysed, 1))
                found.add(*like(analysed, 2, day=1))
            return create(store, name, data)

        monkeypatch.setattr(LocalFolder, "create", first_another)
        found.add(*like(analysed, 1))
        monkeypatch.setattr(LocalFolder, "create", create)
        assert rows(found) == wanted(analysed, [f"{number:024x}" for number in ((1, 2) if count >= at else (1,))])


def test_small_files_become_few_and_say_the_same(tmp_path: Path, analysed: CaptureTables) -> None:
    place = str(tmp_path)
    found = made(place)
    for number in range(8):
        found.add(*like(analysed, number, f"host{number % 3}", day=number // 6))
    before, open_before = rows(found), open_saved(place)
    table = "SELECT * EXCLUDE (day) FROM {} ORDER BY ALL"
    said = {name: open_before.connection.execute(table.format(name)).fetchall() for name in TABLES}
    there = len(found.snapshot().files)
    assert found.compact() > 0
    assert len(found.snapshot().files) < there / 2 and rows(found) == before
    with open_before as old, open_saved(place) as new:
        for name in TABLES:
            assert old.connection.execute(table.format(name)).fetchall() == said[name]
            assert new.connection.execute(table.format(name)).fetchall() == said[name]
        hosts = new.connection.execute("SELECT DISTINCT host FROM rpcs WHERE day = (SELECT min(day) FROM rpcs)")
        assert len(hosts.fetchall()) == 3
    assert found.compact() == 0 and found.compact(all_of=True) > 0
    places = Counter(one.place for one in found.snapshot().files.values())
    assert {*places.values()} == {1} and rows(found) == before


def test_of_a_store_only_the_days_that_are_meant_are_opened(analysed: CaptureTables, tmp_path: Path) -> None:
    """And of their files only parts, without a copy on this machine."""
    (tmp_path / "bucket").mkdir()
    until = parse_moment(datetime.fromtimestamp(analysed.entry.last_time_ns // 10**9 + 60, UTC).isoformat())
    with s3_bucket(tmp_path / "bucket") as (url, requests):
        found = made(f"{url}/set")
        for day in range(3):
            found.add(*like(analysed, day, day=day))
        requests.clear()
        session = SummedSession(found.path, Condition(filters=Filters(until=until)))
        assert session.facts(3).calls == analysed.entry.rpcs
        session.close()
    asked = {unquote(path) for _, path in requests}
    assert {path.split("day=")[1][:10] for path in asked if "day=" in path} == {analysed.entry.day}
    assert {method for method, _ in requests} == {"GET"}


def test_what_is_new_this_week_is_said_of_the_hosts_that_had_it_not(analysed: CaptureTables, tmp_path: Path) -> None:
    found = made(tmp_path)
    for number, (host, day, kinds) in enumerate(
        [("old", 0, ["packets-lost"]), ("old", 10, ["packets-lost", "server-time"]), ("new", 12, ["packets-lost"])]
    ):
        one = like(analysed, number, host, day)
        since = one.entry.first_time_ns
        said = [
            (
                kind,
                "problem",
                kind,
                "some",
                1,
                since,
                10,
                "a",
                "b",
                json.dumps(asdict(Cause("some", 1, severity=Severity.PROBLEM))),
            )
            for kind in kinds
        ]
        found.add(one.entry, one.folder, partial(lambda said, path: said, said))
    session = SummedSession(str(tmp_path))
    evidence = {one.kind: "\n".join(one.cause.evidence) for one in session.diagnosis().statements}
    session.close()
    assert "new this week: new" in evidence["packets-lost"].splitlines()
    assert evidence["server-time"].startswith("on host old, new this week")
    assert evidence["packets-lost"].startswith("old, a to b: since ") and "in 2 captures" in evidence["packets-lost"]


def test_what_is_gone_can_come_back(analysed: CaptureTables, tmp_path: Path) -> None:
    found, one = made(tmp_path), like(analysed, 1)
    found.add(*one)
    found.add(*like(analysed, 3))
    grown = replace(like(analysed, 2).entry, paths=(*one.entry.paths, "/captures/1.pcap1"))
    found.add(grown, one.folder)
    assert rows(found) == wanted(analysed, [f"{number:024x}" for number in (2, 3)])
    assert [*found.snapshot().gone] == [one.entry.capture]
    found.add(*one)
    assert rows(found) == wanted(analysed, [f"{number:024x}" for number in (1, 2, 3)])


def test_columns_that_an_earlier_version_had_not_are_not_known(
    analysed: CaptureTables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And its sums, which may be others, are not added up with those of this version."""
    place = str(tmp_path)
    found = made(place)
    shorter = replace(TABLES["rpcs"], columns=tuple(one for one in TABLES["rpcs"].columns if one.name != "gid"))
    for name in ("gid", ""):
        with monkeypatch.context() as patch:
            if name:
                patch.setitem(TABLES, "rpcs", shorter)
                patch.setitem(SUMS, "calls", f"SELECT * REPLACE (1000 AS counted) FROM ({SUMS['calls']})")
            saved_tables.columns_of.cache_clear()
            found.add(*like(analysed, len(name)))
        saved_tables.columns_of.cache_clear()
        for _ in range(2):
            with open_saved(place) as database:
                query = "SELECT capture, count(*), count(gid) > 0 FROM rpcs GROUP BY ALL ORDER BY 1"
                answers = database.connection.execute(query).fetchall()
            assert [known for *_, known in answers] == ([False] if name else [True, False])
            count = sum(count for _, count, _ in answers)
            assert sum(len(table) for table in open_saved_session(place).tables()) == count
            with monkeypatch.context() as patch:
                patch.setattr(fleet_sums, "EXACT", 0)
                session = SummedSession(place)
                assert session.facts(3).calls == count
                session.close()
            found.compact(all_of=True)
