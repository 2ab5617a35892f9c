"""``rdmascope sql`` on saved tables: a query changes nothing on the disk, and reads nothing but its tables."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from playbook.commands import BOTH_WAYS, LONG_CALLS, run

KINDS = ("tables.duckdb", "tables", "fleet")


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kept")
    for kind in KINDS[:2]:
        assert run("sql", LONG_CALLS, "--save", str(folder / kind)).exit_code == 0
    assert run("batch", LONG_CALLS, BOTH_WAYS, "--out", str(folder / "fleet"), "-j", "1").exit_code == 0
    return folder


@pytest.fixture(params=KINDS)
def saved(request: pytest.FixtureRequest, kept: Path, tmp_path: Path) -> Iterator[Path]:
    whole = kept / request.param
    copied = tmp_path / request.param
    if whole.is_dir():
        shutil.copytree(whole, copied)
        (copied / "other.txt").write_text("of no concern to a query")
    else:
        shutil.copy(whole, copied)
    yield copied


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): hashlib.sha256(path.read_bytes()).digest() for path in folder.rglob("*") if path.is_file()}


WRITES = [
    "COPY (SELECT 1 AS number) TO '{table}'",
    "COPY (SELECT 1 AS number) TO '{folder}/new.parquet'",
    "/* SELECT */ COPY (SELECT 1 AS number) TO '{table}'",
    "SELECT 1; COPY (SELECT 1 AS number) TO '{table}'",
    "EXPLAIN ANALYZE COPY (SELECT 1 AS number) TO '{table}'",
    "EXPLAIN /* no */ ANALYZE COPY (SELECT 1 AS number) TO '{table}'",
    "EXPLAIN (ANALYZE, FORMAT json) COPY (SELECT 1 AS number) TO '{table}'",
    "COPY (PIVOT rpcs ON state USING count(*)) TO '{table}'",
    "EXPLAIN ANALYZE COPY (PIVOT rpcs ON state USING count(*)) TO '{table}'",
    "PREPARE writing AS COPY (SELECT 1 AS number) TO '{table}'; EXECUTE writing",
    "EXPORT DATABASE '{folder}/exported'",
    "ATTACH '{folder}/attached.duckdb' AS other",
    "CREATE PERSISTENT SECRET kept (TYPE http, bearer_token 'x')",
]
READS = [
    "FROM read_text('{folder}/other.txt')",
    "FROM read_text('{folder}/*.txt')",
    "FROM '{folder}/other.txt'",
    "FROM glob('{folder}/*.txt')",
    "FROM query('FROM read_text(''{folder}/other.txt'')')",
    "FROM read_text('/etc/passwd')",
    "CREATE MACRO others() AS TABLE FROM read_text('{folder}/other.txt'); FROM others()",
]


@pytest.mark.parametrize("query", [*WRITES, *READS])
def test_a_query_touches_only_its_tables(query: str, saved: Path, tmp_path: Path) -> None:
    folder = saved if saved.is_dir() else tmp_path
    table = next(iter(sorted(saved.rglob("rpcs.parquet"))), saved)
    before = contents(tmp_path)
    result = run("sql", str(saved), query.format(folder=folder, table=table))
    assert result.exit_code == 2 and len(result.stderr.splitlines()) == 1, result.output
    assert "of no concern" not in result.output
    assert contents(tmp_path) == before


def test_a_file_on_the_way_that_no_snapshot_lists_is_not_read(kept: Path, tmp_path: Path) -> None:
    shutil.copytree(kept / "fleet", tmp_path / "fleet")
    count = run("sql", str(tmp_path / "fleet"), "SELECT count(*) FROM rpcs").stdout
    listed = next((tmp_path / "fleet").rglob("rpcs/**/*.parquet"))
    shutil.copy(listed, listed.with_name(f"0{listed.name}"))
    assert run("sql", str(tmp_path / "fleet"), "SELECT count(*) FROM rpcs").stdout == count != ""


@pytest.mark.parametrize("kind", KINDS)
def test_tables_of_a_query_s_own_are_possible(kind: str, kept: Path) -> None:
    query = "CREATE TEMP TABLE mine AS SELECT state FROM rpcs; EXPLAIN FROM mine; SELECT count(*) > 0 AS some FROM mine"
    result = run("sql", str(kept / kind), query)
    assert (result.exit_code, result.stdout.split()[-2:]) == (0, ["some", "true"]), result.output


def test_where_is_no_way_around(kept: Path, tmp_path: Path) -> None:
    shutil.copytree(kept / "tables", tmp_path / "tables")
    before = contents(tmp_path)
    table = tmp_path / "tables" / "rpcs.parquet"
    condition = f"true); COPY (SELECT 1 AS number) TO '{table}'; --"
    for command in ("rpcs", "sql", "report", "diagnose"):
        query = ("SELECT count(*) FROM rpcs",) if command == "sql" else ()
        result = run(command, str(tmp_path / "tables"), *query, "--where", condition)
        assert result.exit_code == 2 and len(result.stderr.splitlines()) == 1, result.output
    assert contents(tmp_path) == before


def test_with_files_allowed_a_query_writes(kept: Path, tmp_path: Path) -> None:
    query = f"COPY (SELECT number FROM rpcs) TO '{tmp_path}/numbers.csv'"
    assert run("sql", str(kept / "tables"), query, "--allow-files").exit_code == 0
    assert (tmp_path / "numbers.csv").read_text().startswith("number\n1\n")


def hostile_view(path: Path, kind: str) -> None:
    with duckdb.connect(str(path)) as connection:
        connection.execute("ALTER TABLE rpcs RENAME TO real_rpcs")
        views = {
            "reads a file": "SELECT * FROM read_text('/etc/passwd')",
            "names no column": "SELECT 1 AS one",
            "reads itself": "SELECT a.* FROM real_rpcs AS a WHERE CAST(state AS INTEGER) > 0",
        }
        connection.execute(f"CREATE VIEW rpcs AS {views[kind]}")


@pytest.mark.parametrize("command", ["report", "rpcs", "diagnose", "compare", "sql", "files", "export", "browse"])
@pytest.mark.parametrize("kind", ["reads a file", "names no column", "reads itself"])
def test_a_view_in_place_of_a_table_is_one_line(kind: str, command: str, kept: Path, tmp_path: Path) -> None:
    path = tmp_path / "tables.duckdb"
    shutil.copy(kept / "tables.duckdb", path)
    hostile_view(path, kind)
    more = {
        "compare": [LONG_CALLS],
        "sql": ["FROM rpcs"],
        "export": ["--to", "csv", "-o", str(tmp_path / "out")],
    }
    result = run(command, str(path), *more.get(command, []))
    assert result.exit_code == 2, result.output
    (line,) = result.stderr.splitlines()
    assert str(path) in line and "rpcs" in line and "root:" not in result.output
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("command", ["report", "rpcs", "diagnose", "sql", "files", "transport"])
@pytest.mark.parametrize("lacking", ["number", "latency_ns", "state"])
def test_a_table_that_lacks_a_column_is_one_line(lacking: str, command: str, kept: Path, tmp_path: Path) -> None:
    shutil.copytree(kept / "tables", tmp_path / "tables")
    table = tmp_path / "tables" / "rpcs.parquet"
    duckdb.execute(f"COPY (SELECT * EXCLUDE ({lacking}) FROM '{table}') TO '{table}.new' (FORMAT parquet)")
    table.with_name("rpcs.parquet.new").replace(table)
    more = {"sql": ["FROM rpcs"], "transport": ["--credits"]}
    result = run(command, str(tmp_path / "tables"), *more.get(command, []))
    assert len(result.stderr.splitlines()) <= 1 and "internal" not in result.stderr
    if lacking == "number":
        assert result.exit_code == 2 and "rpcs" in result.stderr and lacking in result.stderr
