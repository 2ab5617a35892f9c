"""The tables in DuckDB: what is filled when, what a query may do, and what its errors say."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from playbook.commands import EVERYTHING
from rdmascope.captures.session.session import Session
from rdmascope.captures.tables.database import Database, QueryError, QueryResult
from rdmascope.captures.tables.table_pass import table_batches
from rdmascope.dissect.records.rpc_columns import Columns, Wanted
from rdmascope.dissect.records.tables import TABLES


class Source:
    """A capture, and which tables were asked of it."""

    def __init__(self) -> None:
        self.passes: list[list[str]] = []

    def fill(self, wanted: Wanted) -> Iterator[tuple[str, Columns]]:
        self.passes.append(list(wanted))
        yield from table_batches(Session(EVERYTHING), wanted)


def answers(database: Database, query: str) -> list[list[tuple[object, ...]]]:
    return [list(result.rows) for result in database.results(query)]


def one(database: Database, query: str) -> object:
    (((value,),),) = answers(database, query)
    return value


def test_only_the_tables_that_are_named_are_made_in_one_pass() -> None:
    source = Source()
    with Database(source.fill) as database:
        assert one(database, "SELECT 1") == 1
        assert source.passes == []
        found = answers(database, "SELECT count(*) FROM RPCS; SELECT count(*) FROM main.files WHERE path IS NOT NULL")
        assert source.passes == [["rpcs", "files"]]
        assert found[0] == [(237,)]
        query = "WITH x AS (SELECT rpc FROM chunks) SELECT count(*) FROM x WHERE rpc IN (SELECT number FROM rpcs)"
        answers(database, query)
        assert source.passes[1:] == [["chunks"]]
        assert [row[0] for row in answers(database, "SHOW TABLES")[0]] == sorted(TABLES)
        (states,) = answers(database, "PIVOT rpcs ON state USING count(*) GROUP BY program")
        assert sorted(states) == [
            ("MOUNT", 4, 0), ("NFS", 206, 18), ("NFSACL", 5, 0), ("NFS_CB", 2, 0), ("portmap", 2, 0),
        ]  # fmt: skip


def test_further_columns_are_made_when_they_are_asked_for() -> None:
    source = Source()
    with Database(source.fill) as database:
        assert one(database, "SELECT max(xid) > 0 FROM rpcs") is True
        assert one(database, "SELECT count(file) FROM rpcs") == 200
        assert one(database, "SELECT count(*) FROM rpcs WHERE xid IS NULL") == 0
        assert source.passes == [["rpcs"], ["rpcs"]]
        assert answers(database, "SELECT max(offset_bytes) FROM rpcs") == [[(786432,)]]
        made = "CREATE TEMP VIEW mine AS SELECT name FROM operations; SELECT count(*) FROM mine"
        assert answers(database, made) == [[(580,)]]


def test_tables_are_those_of_the_library() -> None:
    from rdmascope.captures.library import read

    capture = read(EVERYTHING)
    with Database(Source().fill) as database:
        for name, table in TABLES.items():
            # Without quotes: no name is a word that SQL keeps for itself.
            listed = ", ".join(f"epoch_ns({one.name})" if one.type == "time" else one.name for one in table.columns)
            (rows,) = answers(database, f"SELECT {listed} FROM {name}")
            columns = [
                values.astype(np.int64).tolist()
                if values.dtype.kind == "M"
                else [[*one] if isinstance(one, tuple) else one for one in values.tolist()]
                for values in capture.table(name).values()
            ]
            assert rows == list(zip(*columns, strict=True)), name


def test_columns_have_their_meanings() -> None:
    with Database(Source().fill) as database:
        query = "SELECT table_name || '.' || column_name, comment FROM duckdb_columns()"
        query += " WHERE database_name = 'tables' AND NOT internal"
        (rows,) = answers(database, query)
    assert set(rows) == {
        (f"{table.name}.{column.name}", column.meaning) for table in TABLES.values() for column in table.columns
    }


def test_values_are_exact() -> None:
    query = "SELECT make_timestamp_ns(1795219967442760001) AS t, 18446744073709551615::UBIGINT, 2 AS a, 3 AS a"
    with Database(Source().fill) as database:
        result = next(database.results(query))
        assert result.names[0] == "t" and len(set(result.names)) == 4
        assert (result.length, next(result.rows)) == (1, ("2026-11-21 00:12:47.442760001", 18446744073709551615, 2, 3))


def test_names_that_no_utf_8_can_say_are_written_out() -> None:
    columns = {
        column.name: np.ma.MaskedArray(np.array(["a\udcff\0é" if column.name == "name" else 7], object), mask=[False])
        for column in TABLES["operations"].columns
    }

    def fill(wanted: Wanted) -> Iterator[tuple[str, Columns]]:
        yield "operations", columns

    with Database(fill) as database:
        assert one(database, "SELECT name FROM operations") == "a\\udcff\0é"


def test_a_result_can_be_left_early() -> None:
    with Database(Source().fill) as database:
        results: Iterator[QueryResult] = database.results("FROM rpcs; SELECT 7")
        first = next(results)
        assert next(first.rows)[0] == 1 and first.length == 237
        assert list(next(results).rows) == [(7,)]


@pytest.mark.parametrize(
    "query",
    [
        "FROM '/etc/passwd'",
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM glob('/*')",
        "COPY rpcs TO '/tmp/out.csv'",
        "ATTACH '/tmp/other.duckdb'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "SET allowed_directories = ['/']",
        "SELECT * FROM sources",
    ],
)
def test_a_query_touches_no_files(query: str) -> None:
    sources = np.arange(3)  # A variable of this program is no table either.
    with Database(Source().fill) as database, pytest.raises(QueryError):
        assert answers(database, query) == list(sources)


def test_a_query_touches_files_where_it_may(tmp_path: Path) -> None:
    with Database(Source().fill, files=True) as database:
        answers(database, f"COPY (SELECT 7 AS x) TO '{tmp_path}/out.csv'")
        assert one(database, f"SELECT x FROM '{tmp_path}/out.csv'") == 7


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("selec 1", 'the query: syntax error at or near "selec" (column 1)'),
        ("SELECT 1;\nSELECT 2 +", "(line 2, column"),
        ("", "the query is empty"),
        ("-- nothing", "the query is empty"),
        ("FROM rpc", "Table with name rpc does not exist; did you mean rpcs? (column 6)"),
        (
            "SELECT latencyns FROM rpcs",
            "the query: no column 'latencyns' in the table rpcs; did you mean latency_ns? (column 8)",
        ),
        (
            "SELECT r.latencyns FROM rpcs r",
            "no column 'latencyns' in the table rpcs; did you mean latency_ns? (column 8)",
        ),
        ("SELECT oh FROM rpcs", "no column 'oh' in the table rpcs; 'rdmascope help tables' lists them (column 8)"),
        ("SELECT latencyns FROM packets, rpcs", "no column 'latencyns' in the table rpcs; did you mean latency_ns?"),
        ("SELECT x FROM (SELECT 1 AS y)", "did you mean y? (column 8)"),
        ("SELECT\n quantil(latency_ns) FROM rpcs", "did you mean quantile? (line 2, column 2)"),
        ("SELECT CAST(state AS INT)\nFROM rpcs", "Could not convert string 'complete' to INT32"),
        (f"SELECT {', '.join(f'{n} AS c{n}' for n in range(60))}, latencies FROM rpcs", "(column 648)"),
    ],
)
def test_errors_say_where_in_one_line(query: str, words: str) -> None:
    with Database(Source().fill) as database, pytest.raises(QueryError) as error:
        answers(database, query)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_an_error_comes_before_the_capture_is_read() -> None:
    source = Source()
    with Database(source.fill) as database, pytest.raises(QueryError):
        answers(database, "SELECT nothing FROM rpcs")
    assert source.passes == []


def test_nothing_stays_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with Database(Source().fill) as database:
        answers(database, "FROM rpcs")
        assert os.listdir(tmp_path)
    assert os.listdir(tmp_path) == []


def test_little_memory_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    query = "SELECT count(*) FROM (SELECT DISTINCT x, md5(x::VARCHAR) FROM range(600_000) t(x))"
    with Database(Source().fill, memory=64 << 20) as database:
        assert one(database, query) == 600_000
