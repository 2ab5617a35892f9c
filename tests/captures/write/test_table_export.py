"""Exported tables hold what the commands say, for Polars, pandas and DuckDB, and explain their columns."""

from __future__ import annotations

import csv
import json
import os
import shutil
import struct
from pathlib import Path
from typing import Any

import duckdb
import pytest

from playbook import Capture, Wire, call, nfs3, reply
from playbook.capture import write_pcap
from playbook.commands import BOTH_WAYS, EVERYTHING, LOSS, objects, run, unpacked
from playbook.extremes import EXTREMES
from rdmascope.captures.read.streams import Limits
from rdmascope.captures.session.session import Session
from rdmascope.captures.tables import database, table_pass
from rdmascope.captures.tables.database import write_query
from rdmascope.captures.tables.saved import holds_tables
from rdmascope.captures.write import table_export
from rdmascope.dissect.link.numbers import ETHERNET
from rdmascope.dissect.records.tables import TABLES

NAMES = ("rpcs", "operations", "chunks", "segments", "packets", "connections", "findings", "files")
FORMATS = ("parquet", "csv", "arrow")


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported")
    for format in FORMATS:
        if format == "arrow":
            pytest.importorskip("pyarrow")
        result = run("export", EVERYTHING, "--to", format, "-o", str(folder / format))
        assert (result.exit_code, result.stderr) == (0, "")
        assert result.stdout.startswith(f"{folder / format}: 237 rpcs, ")
    return folder


def path(exported: Path, format: str, name: str) -> str:
    return str(exported / format / f"{name}.{format}")


def by_polars(exported: Path, format: str, name: str) -> list[dict[str, Any]]:
    polars = pytest.importorskip("polars")
    if format == "csv":
        return list(polars.read_csv(path(exported, format, name), infer_schema_length=None).to_dicts())
    reader = {"parquet": polars.read_parquet, "arrow": polars.read_ipc}[format]
    return list(reader(path(exported, format, name)).to_dicts())


def by_pandas(exported: Path, format: str, name: str) -> list[dict[str, Any]]:
    pandas = pytest.importorskip("pandas")
    if format == "csv":  # Or a procedure NULL would be none.
        frame = pandas.read_csv(path(exported, format, name), keep_default_na=False, na_values="")
    else:
        reader = {"parquet": pandas.read_parquet, "arrow": pandas.read_feather}[format]
        frame = reader(path(exported, format, name))
    return list(frame.astype(object).where(frame.notna(), None).to_dict("records"))


def by_duckdb(exported: Path, format: str, name: str) -> list[dict[str, Any]]:
    if format == "arrow":
        pyarrow = pytest.importorskip("pyarrow")
        table = pyarrow.ipc.open_file(path(exported, format, name)).read_all()
        found: Any = duckdb.from_arrow(table)
    else:
        found = duckdb.query(f"FROM '{path(exported, format, name)}'")
    return [dict(zip(found.columns, row, strict=True)) for row in found.fetchall()]


READERS = {"polars": by_polars, "pandas": by_pandas, "duckdb": by_duckdb}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("format", FORMATS)
def test_every_table_has_its_rows_and_columns(reader: str, format: str, exported: Path) -> None:
    said = {one["table"]: one["rows"] for one in objects_of(exported, format)}
    for name in NAMES:
        rows = READERS[reader](exported, format, name)
        assert len(rows) == said[name] > 0, name
        assert list(rows[0]) == [column.name for column in TABLES[name].columns]


def objects_of(exported: Path, format: str) -> list[dict[str, Any]]:
    """What a second export says as JSON."""
    again = exported / f"{format}-again"
    if not again.exists():
        found = objects("export", EVERYTHING, "--to", format, "-o", str(again))
        (exported / f"{format}.json").write_text(json.dumps(found))
    return list(json.loads((exported / f"{format}.json").read_text()))


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("format", FORMATS)
def test_rpcs_are_those_that_the_command_lists(reader: str, format: str, exported: Path) -> None:
    listed = objects("rpcs", EVERYTHING)
    rows = READERS[reader](exported, format, "rpcs")
    assert len(rows) == len(listed)
    by_number = {row["number"]: row for row in rows}
    for one in listed:
        row = by_number[one["number"]]
        assert (row["xid"], row["procedure"], row["state"]) == (one["xid"], one["procedure"], one["state"])
        assert row["latency_ns"] == one["latency_ns"]


def test_numbers_of_other_commands(exported: Path) -> None:
    rows = {name: len(by_duckdb(exported, "parquet", name)) for name in NAMES}
    assert rows["packets"] == len(objects("packets", EVERYTHING))
    assert rows["chunks"] == sum(one["chunks"] for one in objects("rpcs", EVERYTHING))


def test_parquet_and_arrow_explain_their_columns(exported: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    pyarrow = pytest.importorskip("pyarrow")
    for name in NAMES:
        about = parquet.read_schema(path(exported, "parquet", name)).metadata
        fields = pyarrow.ipc.open_file(path(exported, "arrow", name)).schema
        for column in TABLES[name].columns:
            assert about[column.name.encode()].decode() == column.meaning
            assert fields.field(column.name).metadata == {b"description": column.meaning.encode()}


def test_numbers_of_parquet_are_steps_and_texts_are_words(exported: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    group = parquet.read_metadata(path(exported, "parquet", "packets")).row_group(0)
    encodings = {group.column(at).path_in_schema: group.column(at).encodings for at in range(group.num_columns)}
    assert "DELTA_BINARY_PACKED" in encodings["frame"]
    assert "RLE_DICTIONARY" in encodings["source"]
    assert "RLE_DICTIONARY" not in encodings["time_ns"]


def test_csv_is_explained_beside_it(exported: Path) -> None:
    about = json.loads((exported / "csv" / "csv-metadata.json").read_text())
    assert about["@context"] == "http://www.w3.org/ns/csvw"
    for table in about["tables"]:
        with (exported / "csv" / table["url"]).open(newline="") as file:
            names = next(csv.reader(file))
        assert [column["name"] for column in table["tableSchema"]["columns"]] == names
    assert {table["url"] for table in about["tables"]} >= {f"{name}.csv" for name in NAMES}


def test_parquet_stands_for_the_capture(exported: Path) -> None:
    folder = str(exported / "parquet")
    assert holds_tables(folder) and not holds_tables(str(exported / "csv"))
    assert run("rpcs", folder, "--sort", "latency").stdout == run("rpcs", EVERYTHING, "--sort", "latency").stdout
    query = "SELECT procedure, count(*) AS n FROM rpcs GROUP BY ALL ORDER BY ALL"
    assert run("sql", folder, query).stdout == run("sql", EVERYTHING, query).stdout


@pytest.mark.parametrize(("format", "options"), [("parquet", []), ("csv", ["--errors"])])
def test_so_do_saved_tables_without_their_capture(
    format: str, options: list[str], exported: Path, tmp_path: Path
) -> None:
    tables = shutil.copytree(exported / "parquet", tmp_path / "tables")
    fresh, kept = tmp_path / "fresh", tmp_path / "kept"
    for source, made in ((EVERYTHING, fresh), (str(tables), kept)):
        assert run("export", source, "--to", format, "-o", str(made), *options).exit_code == 0
    assert sorted(os.listdir(kept)) == sorted(os.listdir(fresh)) != []
    for file in fresh.iterdir():
        other = kept / file.name
        if format == "csv":
            assert other.read_bytes() == file.read_bytes()
            continue
        for one, two in ((file, other), (other, file)):
            assert duckdb.execute(f"SELECT count(*) FROM (FROM '{one}' EXCEPT ALL FROM '{two}')").fetchall() == [(0,)]
    assert holds_tables(str(kept)) == (format == "parquet")


def block(kind: int, body: bytes) -> bytes:
    """Of a pcapng file."""
    body += bytes(-len(body) % 4)
    size = struct.pack("<I", 12 + len(body))
    return struct.pack("<I", kind) + size + body + size


def test_times_at_both_ends_of_what_64_bits_hold(tmp_path: Path) -> None:
    wire = Wire()
    talk = wire.connect()
    reply(call(talk, nfs3.null()), nfs3.null_reply())
    nanoseconds_since = struct.pack("<HHIHHq", 9, 1, 9, 14, 8, -(1 << 63) // 1_000_000_000)
    text = block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1))
    text += block(1, struct.pack("<HHI", ETHERNET, 0, 0) + nanoseconds_since)
    *frames, last = Capture(wire).frames
    for frame in (*frames, last):
        high, low = divmod((1 << 64) - 1 if frame is last else 0, 1 << 32)
        text += block(6, struct.pack("<5I", 0, high, low, len(frame.data), frame.original) + frame.data)
    source = tmp_path / "times.pcapng"
    source.write_bytes(text)
    result = run("export", str(source), "--to", "parquet", "-o", str(tmp_path / "tables"))
    assert (result.exit_code, result.stderr) == (0, "")
    assert ": 1 rpcs, " in result.stdout


@pytest.mark.parametrize("format", FORMATS)
def test_a_filter_takes_what_belongs_to_its_rpcs(format: str, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    chosen = {
        one["number"] for one in objects("rpcs", LOSS, "--where", "procedure = 'COMPOUND' AND latency_ns > 100e6")
    }
    result = run("export", LOSS, "--to", format, "-o", str(folder), "--where", "latency_ns > 100e6")
    assert (result.exit_code, result.stderr) == (0, "")
    assert {row["number"] for row in by_duckdb_in(folder, format, "rpcs")} == chosen != set()
    for name in ("operations", "chunks", "segments", "packets"):
        assert {row["rpc"] for row in by_duckdb_in(folder, format, name)} <= chosen, name
    assert by_duckdb_in(folder, format, "packets")
    used = {row["file"] for row in by_duckdb_in(folder, format, "operations")} - {None}
    assert {row["number"] for row in by_duckdb_in(folder, format, "files")} == used
    assert not holds_tables(str(folder))  # They would be taken for the whole capture.


def by_duckdb_in(folder: Path, format: str, name: str) -> list[dict[str, Any]]:
    link = folder.parent / format
    if not link.exists():
        link.symlink_to(folder)
    return by_duckdb(folder.parent, format, name)


def test_what_cannot_be_written_is_said_at_once(tmp_path: Path) -> None:
    full = tmp_path / "full"
    full.mkdir()
    (full / "mine.txt").write_text("mine")
    capture = tmp_path / "a.pcap"
    capture.write_bytes(unpacked(BOTH_WAYS))
    for arguments, words in (
        (("--to", "parquet", "-o", str(full)), "is there, and is no empty folder"),
        (("--to", "csv", "-o", str(capture)), "would overwrite what is read"),
        (("--to", "csv", "-o", str(tmp_path / "no" / "folder")), "no such directory"),
        (("--to", "csv", "-o", "-"), "takes a folder"),
        (("--to", "csv", "-o", str(tmp_path / "x"), "--skip-incomplete"), "goes with --to tcp-pcapng"),
        (("--to", "csv", "-o", str(tmp_path / "x"), "--where", "number > 1000000"), "passes the filter"),
    ):
        result = run("export", str(capture), *arguments)
        assert (result.exit_code, result.stdout) == (2, ""), arguments
        assert words in result.stderr and len(result.stderr.splitlines()) == 1
    assert sorted(os.listdir(tmp_path)) == ["a.pcap", "full"] and os.listdir(full) == ["mine.txt"]


def test_damage_is_said_and_what_was_read_is_there(tmp_path: Path) -> None:
    capture = tmp_path / "damaged.pcap"
    capture.write_bytes(unpacked(BOTH_WAYS)[:-40])
    result = run("export", str(capture), "--to", "parquet", "-o", str(tmp_path / "tables"))
    assert (result.exit_code, "truncated in frame" in result.stderr) == (2, True)
    again = run("sql", str(tmp_path / "tables"), "SELECT count(*) AS n FROM rpcs")
    assert (again.exit_code, again.stderr) == (2, result.stderr)


def calls(count: int, path: Path) -> str:
    """So many RPCs, one after the other, on one connection."""
    wire = Wire(mtu=4096)
    connection = wire.connect()
    for _ in range(count):
        reply(call(connection, nfs3.getattr_()), nfs3.getattr_reply())
    write_pcap(wire.frames(), path)
    return str(path)


@pytest.mark.parametrize("count", [100, 200, 400])
def test_as_many_rows_are_held_of_any_number_of_rpcs(count: int, tmp_path: Path) -> None:
    session = Session(calls(count, tmp_path / "calls.pcap"), limits=Limits(frames=64))
    rows = dict.fromkeys(TABLES, 0)
    for name, columns in table_pass.table_batches(session, dict.fromkeys(TABLES), rows=32):
        held = len(next(iter(columns.values())))
        assert held <= 32 + 64, name
        rows[name] += held
    assert rows["rpcs"] == count


def test_as_many_rows_are_held_of_any_number_of_connections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_pass, "ROWS", 32)
    EXTREMES["connections"].write(60, tmp_path / "connections.pcap")
    session = Session(str(tmp_path / "connections.pcap"))
    batches = [
        (name, len(next(iter(columns.values()))))
        for name, columns in table_pass.table_batches(session, {"verdicts": None, "details": None}, rows=32)
    ]
    assert sum(held for name, held in batches if name == "verdicts") > 300
    assert max(held for _, held in batches) == 32


def test_duckdb_has_a_limit_where_tables_are_filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []

    def noted(connection: duckdb.DuckDBPyConnection, *arguments: Any) -> int:
        settings = "SELECT current_setting('memory_limit'), current_setting('threads')"
        found.extend(connection.execute(settings).fetchall())
        return write_query(connection, *arguments)

    monkeypatch.setattr(table_export, "write_query", noted)
    table_export.tables_of(Session(LOSS), "parquet", str(tmp_path / "tables"))
    assert {*found} == {("128.0 MiB", 1)}


def test_rows_with_very_long_texts_are_written_all_the_same(tmp_path: Path) -> None:
    with database.Database(memory=32 << 20) as tables, (tmp_path / "long.parquet").open("wb") as file:
        long = "(SELECT repeat('x', 20_000) || number AS path FROM range(4_000) numbers(number))"
        assert write_query(tables.connection, long, file, "parquet", "rpcs") == 4000
