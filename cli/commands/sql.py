"""``rdmascope sql``: queries over the tables of a capture."""

from __future__ import annotations

import csv
import os
import sys
from collections.abc import Collection, Iterator
from itertools import islice

import click

from rdmascope.captures.database import Database, QueryResult
from rdmascope.captures.table_pass import needs_contents, table_batches
from rdmascope.dissect.records.table import Columns

from ..plain import harmless
from ..reading import Reading, analyzer_options, recognition_options
from ..terminal import console, print_json, say
from ..views import rows as views

SHOWN = 40
"""Rows of a result that a terminal gets."""


@click.command("sql")
@click.argument("files", metavar="FILE... [QUERY]", nargs=-1, required=True)
@click.option("-q", "--query", help="The query, where the last argument is a FILE.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a row, its keys the names of the columns.")
@click.option("--csv", "as_csv", is_flag=True, help="Comma-separated values, the names of the columns first.")
@click.option("--allow-files", is_flag=True, help="Let the query read and write files, and load extensions.")
@recognition_options
def command(
    files: tuple[str, ...],
    query: str | None,
    as_json: bool,
    as_csv: bool,
    allow_files: bool,
    ports: tuple[int, ...],
    force: str | None,
) -> None:
    """Ask a capture in SQL: RPCs, operations, chunks, segments, packets, connections, findings and files as tables.

    The last argument is the query where it is no existing file. Only the tables that it names are made, in one pass
    over the capture; DuckDB answers. What is not known is NULL. Times are nanoseconds (_ns), microseconds (_us) or
    timestamps in UTC (time), sizes bytes (_bytes). DESCRIBE rpcs lists the columns of a table.

    Example: how long did calls take that transferred data, by what they called?

    \b
      $ rdmascope sql rxe-nfs-all.pcap.zst "
          SELECT procedure, count(*) AS calls,
                 quantile_cont(latency_us, 0.99) AS p99_us
          FROM rpcs WHERE chunks > 0 GROUP BY ALL ORDER BY p99_us"
      procedure    calls    p99_us
      READ             5  42525.24
      GETACL           4  42793.88
      ...

    A terminal gets the first rows of a long result, and rows that are too wide for it as lists; --json, --csv and
    pipes get all of it. A query reads no other files and writes none, unless --allow-files is given.
    """
    if as_json and as_csv:
        raise click.UsageError("--json and --csv: choose one", click.get_current_context())
    captures, text = _query_among(files, query)
    reading: Reading | None = None

    def fill(names: Collection[str]) -> Iterator[tuple[str, Columns]]:
        nonlocal reading
        reading = Reading(captures, analyzer_options(ports, force, contents=needs_contents(names)))
        yield from table_batches(reading, names)
        if not reading.analyzer.packets:
            reading.check()

    with Database(fill, files=allow_files) as database:
        for number, result in enumerate(database.results(text)):
            if number and not as_json:
                say("")
            _print(result, as_json, as_csv)
    if reading is not None:
        reading.check()


def _query_among(arguments: tuple[str, ...], query: str | None) -> tuple[tuple[str, ...], str]:
    """The files and the query."""
    context = click.get_current_context()
    if query is not None:
        return arguments, query
    *files, last = arguments
    if last == "-" or os.path.exists(last):
        if sys.stdin.isatty() or "-" in arguments:
            raise click.UsageError("no query: give one as the last argument", context)
        return arguments, sys.stdin.read()
    if not any(letter.isspace() for letter in last):
        raise click.UsageError(f"{last!r} is neither a file that exists nor a query", context)
    if not files:
        raise click.UsageError("the query names no FILE to read: put it before the query", context)
    return tuple(files), last


def _print(result: QueryResult, as_json: bool, as_csv: bool) -> None:
    if as_json:
        for row in result.rows:
            print_json(dict(zip(result.names, map(views.json_value, row), strict=True)))
    elif as_csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(map(harmless, result.names))
        for row in result.rows:
            writer.writerow("" if value is None else harmless(views.csv_value(value)) for value in row)
    else:
        _show(result)


def _show(result: QueryResult) -> None:
    out = console()
    if not out.is_terminal:
        for line in views.lines(result.names, result.types, result.rows, None):
            sys.stdout.write(harmless(line.plain) + "\n")
        return
    shown = islice(result.rows, SHOWN)
    for line in views.lines(result.names, result.types, shown, out.width):
        out.print(line, soft_wrap=True)
    if result.length > SHOWN:
        out.print(f"and {result.length - SHOWN:,} more rows; --json or --csv gives all", style="dim")
