"""``rdmascope sql``: queries over the tables of a capture."""

from __future__ import annotations

import csv
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from itertools import islice

import click

from rdmascope.captures.errors import need
from rdmascope.captures.extract.frames import chosen_frames
from rdmascope.captures.read.remote import scheme
from rdmascope.captures.session.session import Session
from rdmascope.captures.tables.condition import ChosenRpcs, Condition
from rdmascope.captures.tables.database import FILLING, FORMATS, MEMORY, Database, QueryResult, statements_of
from rdmascope.captures.tables.filtered_tables import ChosenRows
from rdmascope.captures.tables.saved import holds_tables
from rdmascope.captures.tables.saved_tables import check_target, open_saved, origin
from rdmascope.captures.tables.table_pass import needs_contents, table_batches
from rdmascope.captures.write.output import open_output, refuse_inputs, seekable
from rdmascope.captures.write.table_export import save as save_tables
from rdmascope.dissect.named_tuple import NamedTuple
from rdmascope.dissect.records.rpc_columns import Columns, Wanted
from rdmascope.dissect.records.tables import TABLES
from rdmascope.dissect.rpcrdma.analyzer import Options
from rdmascope.dissect.units import plural

from ..options import filter_options, refuse_options
from ..reading import CAPTURE, Reading, analyzer_options, jobs_option, read_anew, recognition_options
from ..sanitize import harmless
from ..terminal import complain, console, print_json, say
from ..views import tables as views

SHOWN = 40
"""Rows of a result that a terminal gets."""


@click.command("sql")
@click.argument("files", metavar="FILE... [QUERY]", nargs=-1, required=True, type=CAPTURE)
@click.option("-q", "--query", help="The query, if the last argument is a FILE.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a row, its keys the names of the columns.")
@click.option("--csv", "as_csv", is_flag=True, help="Comma-separated values, the names of the columns first.")
@click.option("-o", "--output", metavar="FILE", help=f"Write the result into a file; it ends in {', '.join(FORMATS)}.")
@click.option(
    "--save",
    metavar="PATH",
    help="Keep all tables in PATH, which then stands for FILE: a database (.duckdb), or a folder of Parquet files.",
)
@click.option("--allow-files", is_flag=True, help="Let the query read and write files, and load extensions.")
@filter_options
@recognition_options
@jobs_option
def command(
    files: tuple[str, ...],
    query: str | None,
    as_json: bool,
    as_csv: bool,
    output: str | None,
    save: str | None,
    allow_files: bool,
    ports: tuple[int, ...],
    force: str | None,
    jobs: int | None,
    condition: Condition | None,
) -> None:
    """Query a capture in SQL: RPCs, operations, chunks, segments, packets, connections, findings and files as tables.

    The last argument is the query unless it is an existing file. One pass over the capture fills the tables that it
    names; DuckDB answers. Unknown values are NULL. Times are nanoseconds (_ns) or timestamps in UTC (time), sizes bytes
    (_bytes). DESCRIBE rpcs lists the columns of a table.

    Example: how long did calls that transferred data take, by procedure?

    \b
      $ rdmascope sql rxe-nfs-all.pcap.zst "
          SELECT procedure, count(*) AS calls,
                 quantile_cont(latency_ns, 0.99) / 1e3 AS p99_us
          FROM rpcs WHERE chunks > 0 GROUP BY ALL ORDER BY p99_us"
      procedure    calls    p99_us
      READ             5  42525.24
      GETACL           4  42793.88
      ...

    A terminal gets the first rows of a long result, and rows that are too wide for it as lists; --json, --csv and
    pipes get all of it. Without a query, a terminal gets a prompt that completes tables and columns, and standard input
    is read elsewhere. A query reads no other files and writes none, unless --allow-files is given.

    With filters the tables hold only the RPCs that pass and what belongs to them: their operations, chunks, segments
    and findings, their packets with acknowledgements and retransmissions (saved tables: packets that name them), and
    their connections and files, counted over all RPCs. --save keeps just these rows; its files, findings and verdicts
    count only these RPCs.
    """
    refuse_options((as_json + as_csv + (output is not None) > 1, "--json, --csv and -o: choose one"))
    captures, text = _query_among(files, query, save is not None)
    if output is not None:
        refuse_inputs(output, captures)
        if os.path.isdir(output):
            raise click.ClickException(f"{output}: is a directory")
    printer = _Printer(as_json, as_csv, output, "" if output is None else _format(output, text), captures)
    captures = tuple(read_anew(captures, ports, force))
    if any(map(holds_tables, captures)):
        if len(captures) > 1 or save is not None:
            raise click.ClickException("saved tables stand alone: without other files, and without --save")
        with open_saved(captures[0], files=allow_files) as database:
            damage = origin(database).damage
            first_time = origin(database).first_time
            rows = None if condition is None else ChosenRows(database, condition, first_time, by_frames=False)
            printer.answer(database, text)
            if condition is not None and rows is not None:
                rows.count()
        if damage:
            raise click.ClickException(damage)
        return
    if save is not None:
        check_target(save, captures)
    with seekable(captures) if condition is not None else nullcontext(captures) as paths:
        _ask(captures, paths, text, save, allow_files, analyzer_options(ports, force), jobs, condition, printer)


def _ask(
    captures: tuple[str, ...],
    paths: Sequence[str],
    text: str,
    save: str | None,
    allow_files: bool,
    options: Options,
    jobs: int | None,
    condition: Condition | None,
    printer: _Printer,
) -> None:
    """Answer of captures, which are read from ``paths``."""
    reading: Reading | None = None
    rows: ChosenRows | None = None
    chosen: ChosenRpcs | None = None

    def opened(contents: bool = True, jobs: int | None = None) -> Reading:
        session = Reading(paths, options._replace(contents=contents), jobs=jobs)
        session.path = Reading(captures).path
        return session

    def fill(wanted: Wanted) -> Iterator[tuple[str, Columns]]:
        nonlocal reading
        if condition is not None and rows is not None and "packets" in wanted:
            rows.keep_frames(chosen_frames(opened, condition))
        reading = opened(needs_contents(wanted), jobs)
        yield from table_batches(reading, wanted, chosen)
        if not reading.analyzer.packets:
            reading.check()

    with Database(fill, files=allow_files, memory=MEMORY if text or save is None else FILLING) as database:
        if condition is not None:
            rows = ChosenRows(database, condition, _first_time(opened(False), condition), by_frames=True)
        if save is not None:
            chosen = None if condition is None else condition.chosen_rpcs(opened(jobs=jobs))
            database.fill(dict.fromkeys(TABLES))
        if text or save is None:
            printer.answer(database, text)
        if condition is not None and rows is not None and reading is not None:
            rows.count()
        if save is not None:
            assert reading is not None
            if condition is not None and rows is not None and chosen is not None:
                rows.keep_only(chosen, f"{plural(len(chosen.numbers), 'RPC')}: {condition}")
            save_tables(database, save, captures, reading.extent(), str(reading.damage or ""))
    if reading is not None:
        reading.check()


def _first_time(session: Session, condition: Condition) -> int:
    """The time of the first frame, where the condition has to know it; else 0."""
    if condition.filters.since is None and condition.filters.until is None:
        return 0
    for batch in session.batches():
        return int(batch.rows["time"][0])
    return 0


class _Printer(NamedTuple):
    """What becomes of the results."""

    as_json: bool
    as_csv: bool
    output: str | None
    format: str
    """The format of ``output``."""
    captures: tuple[str, ...]

    def answer(self, database: Database, text: str) -> None:
        """Print or write what a query gives; ask for queries where there is none."""
        if not text:
            need("prompt_toolkit")
            from ..sql_prompt import ask

            ask(lambda typed: self.answer(database, typed), views.described)
            return
        for number, result in enumerate(database.results(text)):
            if self.output is not None:
                with open_output(self.output, self.captures) as file:
                    database.write_result(file, self.format)
                say(f"{self.output}: {plural(result.length, 'row')}")
                continue
            if number and not self.as_json:
                say("")
            _print(result, self.as_json, self.as_csv)
        for remark in database.remarks:
            complain(remark)


def _format(output: str, text: str) -> str:
    """The format of the file that the result is written to."""
    format = FORMATS.get(os.path.splitext(output)[1].lower())
    if format is None:
        known = ", ".join(FORMATS)
        raise click.UsageError(f"-o {output}: no such format; there are {known}", click.get_current_context())
    statements = statements_of(text)
    if len(statements) != 1 or not statements[0].selects:
        raise click.ClickException("-o takes a single query, a SELECT")
    return format


def _is_there(path: str) -> bool:
    return path == "-" or bool(scheme(path)) or os.path.exists(path)


def _query_among(arguments: tuple[str, ...], query: str | None, optional: bool) -> tuple[tuple[str, ...], str]:
    """The files and the query; '' where there is none: it is optional, or to be asked for."""
    for path in arguments if query is not None else arguments[:-1]:
        if not _is_there(path):
            raise click.ClickException(f"{path}: no such file")
    if query is not None:
        return arguments, query
    *files, last = arguments
    if _is_there(last):
        if optional:
            return arguments, ""
        if sys.stdin.isatty() and sys.stdout.isatty() and "-" not in arguments:
            return arguments, ""
        refuse_options((sys.stdin.isatty() or "-" in arguments, "no query: give one as the last argument"))
        text = sys.stdin.read()
        refuse_options((not text.strip(), "no query: give one as the last argument"))
        return arguments, text
    refuse_options(
        (not any(map(str.isspace, last)), f"{last!r} is neither a file that exists nor a query"),
        (not files, "the query names no FILE to read: put it before the query"),
    )
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
    for line in views.lines(result.names, result.types, islice(result.rows, SHOWN), out.width):
        out.print(line, soft_wrap=True)
    if result.length > SHOWN:
        out.print(f"and {result.length - SHOWN:,} more rows; --json or --csv gives all", style="dim")
