"""Which tables and columns a query names."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

from rdmascope.captures.tables.database import Database, named_columns, statements_of


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with Database(lambda _: iter(())) as database:
        yield database.connection


@pytest.mark.parametrize(
    ("query", "columns"),
    [
        ("SELECT count(*) FROM rpcs", {"rpcs": set()}),
        ("SELECT procedure, COUNT(*) FROM rpcs AS r WHERE r.XID > 3 GROUP BY ALL", {"rpcs": {"procedure", "xid"}}),
        (
            "SELECT name FROM operations JOIN rpcs ON rpc = number WHERE state = 'error'",
            {"operations": {"name", "rpc"}, "rpcs": {"number", "state"}},
        ),
        (
            "SELECT xid FROM rpcs JOIN segments USING (offset_bytes)",
            {"rpcs": {"xid", "offset_bytes"}, "segments": {"offset_bytes"}},
        ),
        ("SELECT chunks FROM rpcs ORDER BY ALL", {"rpcs": {"chunks"}}),
        ("SELECT CAST(xid AS VARCHAR) FROM rpcs USING SAMPLE 6", {"rpcs": {"xid"}}),
        (
            "SELECT (SELECT max(rpc) FROM chunks WHERE rpc = r.number) FROM rpcs r",
            {"rpcs": {"number"}, "chunks": {"rpc"}},
        ),
        ("SELECT list_transform([1], x -> x + xid)[1:2], xid::DECIMAL(9, 2) FROM rpcs", {"rpcs": {"xid"}}),
        (
            "WITH RECURSIVE a AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM a) SELECT n, failed FROM a, rpcs",
            {"rpcs": {"failed"}},
        ),
        ("SELECT row_number() OVER (PARTITION BY state ORDER BY time) FROM rpcs", {"rpcs": {"state", "time"}}),
        ("SELECT 1", {}),
        ("SELECT count(*) FROM (SELECT DISTINCT * FROM rpcs)", {"rpcs": None}),
        ("FROM rpcs", {"rpcs": None}),
        ("SELECT COLUMNS('x') FROM rpcs", {"rpcs": None}),
        ("SELECT hash(rpcs) FROM rpcs", {"rpcs": None}),
        ("SELECT hash(one) FROM rpcs AS one", {"rpcs": None}),
        ("SELECT a FROM rpcs AS one(a, b)", {"rpcs": None}),
        ("SELECT xid FROM rpcs NATURAL JOIN operations", {"rpcs": None, "operations": None}),
        ("SELECT #2 FROM rpcs", {"rpcs": None}),
        ("SELECT count(*) FROM query('FROM rpcs')", {"rpcs": None}),
        ("SELECT count(*) FROM query_table('rpcs')", {"rpcs": None}),
        ("CREATE VIEW mine AS SELECT xid FROM rpcs", {"rpcs": None}),
        ("SUMMARIZE rpcs", {"rpcs": None}),
        ("PIVOT rpcs ON state USING count(*)", {"rpcs": None}),
    ],
)
def test_columns_are_left_out_only_where_the_query_cannot_mean_them(
    connection: duckdb.DuckDBPyConnection, query: str, columns: dict[str, set[str] | None]
) -> None:
    (statement,) = statements_of(query)
    found = named_columns(connection, statement.text, statement.selects)
    assert {name: None if one is None else set(one) for name, one in found.items()} == columns
