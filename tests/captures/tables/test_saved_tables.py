"""Tables that are kept give the answers that the capture gives, and say where they are from."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from playbook import Capture, Wire, call, nfs3, reply
from playbook.capture import write_pcap
from playbook.commands import BOTH_WAYS, LONG_CALLS, LOSS, run, unpacked
from playbook.gss import INTEGRITY, PRIVACY, Context
from rdmascope.captures.errors import CaptureError
from rdmascope.captures.session.session import Session
from rdmascope.captures.tables.database import Database
from rdmascope.captures.tables.saved import holds_tables
from rdmascope.captures.tables.saved_session import SavedSession
from rdmascope.captures.tables.saved_tables import open_saved, origin
from rdmascope.captures.tables.table_pass import table_batches
from rdmascope.captures.write.table_export import save
from rdmascope.dissect.measure.filters import CaptureExtent
from rdmascope.dissect.records.rpc_columns import Columns, Wanted
from rdmascope.dissect.records.tables import TABLES, VERSION

EXTENT = CaptureExtent(1, frozenset(), 0, 2, 3)
KINDS = ["tables.duckdb", "tables"]
Rows = list[tuple[object, ...]]


def fill(wanted: Wanted) -> Iterator[tuple[str, Columns]]:
    yield from table_batches(Session(BOTH_WAYS), wanted)


def contents(database: Database) -> dict[str, Rows]:
    return {name: list(next(database.results(f"FROM {name}")).rows) for name in TABLES}


@pytest.fixture(scope="module", params=KINDS)
def saved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    path = str(tmp_path_factory.mktemp("saved") / request.param)
    with Database(fill) as database:
        save(database, path, [BOTH_WAYS], EXTENT, "")
    yield path


def test_saved_tables_are_those_of_the_capture(saved: str) -> None:
    assert holds_tables(saved)
    with Database(fill) as fresh, open_saved(saved) as kept:
        assert contents(kept) == contents(fresh)


def test_they_say_what_they_were_made_from(saved: str) -> None:
    with open_saved(saved) as database:
        found = origin(database)
        assert (found.schema_version, found.damage, found.sources) == (VERSION, "", (BOTH_WAYS,))
        ((size,),) = next(database.results("SELECT size_bytes FROM sources")).rows
    assert size == os.path.getsize(BOTH_WAYS)


def test_columns_keep_their_meanings(saved: str) -> None:
    if os.path.isdir(saved):
        query = "SELECT value FROM parquet_kv_metadata(?) WHERE key = 'xid'"
        # One row less, and the connection would have a result that later tests trip over.
        assert duckdb.execute(query, [f"{saved}/rpcs.parquet"]).fetchall() == [(b"RPC transaction ID",)]
    else:
        with duckdb.connect(saved, read_only=True) as connection:
            found = connection.execute(
                "SELECT comment FROM duckdb_columns() WHERE table_name = 'rpcs' AND column_name = 'xid'"
            ).fetchall()
        assert found == [("RPC transaction ID",)]


def test_sql_takes_them_in_place_of_a_capture(saved: str) -> None:
    query = "SELECT state, count(*) AS n, max(latency_ns) AS longest FROM rpcs GROUP BY ALL ORDER BY 1"
    for option in ((), ("--json",), ("--csv",)):
        assert run("sql", saved, query, *option).stdout == run("sql", BOTH_WAYS, query, *option).stdout != ""
    refused = run("sql", saved, BOTH_WAYS, query)
    assert (refused.exit_code, refused.stdout) == (2, "") and "stand alone" in refused.stderr
    refused = run("sql", saved, "FROM read_text('/etc/passwd')")
    assert refused.exit_code == 2 and "Cannot access file" in refused.stderr
    refused = run("sql", saved, "DELETE FROM rpcs")
    assert refused.exit_code == 2 and len(refused.stderr.splitlines()) == 1


SAMPLES = {
    BOTH_WAYS: KINDS,
    LONG_CALLS: KINDS[:1],
    LOSS: KINDS[:1],
    LOSS.replace("rxe", "siw"): KINDS[1:],
    LOSS.replace("loss-rxe", "v2-settles"): KINDS[:1],
}
"""What each is kept in."""


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: Path(path).name.partition(".")[0])
def test_rpcs_lists_what_it_lists_of_the_capture(sample: str, tmp_path: Path) -> None:
    """All options of one sample in both kinds; of the others every other option."""
    every = ["", "--sort latency", "--procedure WRITE,READ", "--errors", "--since 1 --until 20", "--sort size"]
    options = every if sample == BOTH_WAYS else every[[*SAMPLES].index(sample) % 2 :: 2]
    fresh = [run("rpcs", sample, *one.split()) for one in options]
    unknown, other_port = run("rpcs", sample, "--connection", "99"), run("rpcs", sample, "--port", "20050")
    for kind in SAMPLES[sample]:
        path = str(tmp_path / kind)
        assert run("sql", sample, "--save", path).exit_code == 0
        for one, listed in zip(options, fresh, strict=True):
            kept = run("rpcs", path, *one.split())
            assert (kept.stdout, kept.exit_code) == (listed.stdout, listed.exit_code), one
        refused = run("rpcs", path, "--connection", "99")
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert refused.stderr.partition(": no")[2] == unknown.stderr.partition(": no")[2]
        again = run("rpcs", path, "--port", "20050")
        assert (again.exit_code, again.stdout) == (other_port.exit_code, other_port.stdout)
        assert again.stderr.startswith(
            f"rdmascope: {path}: the tables do not hold what --port, --as and --icrc ask of; read from {sample}\n"
        )
        refused = run("rpcs", path, "--follow", "--idle", "0")
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert refused.stderr == (
            f"rdmascope: {path}: holds tables, in which what --port, --as, --icrc and --follow ask of are not; "
            f"they are in {sample}\n"
        )


@pytest.mark.parametrize(
    ("what", "arguments"),
    [
        ("packets", "packets --frame 41"),
        ("packets", "verify"),
        ("packets", "show --frame 41"),
        ("packets", "export --to capture --rpc 1 -o out.pcap"),
        ("the contents of files", "files --extract out"),
    ],
)
def test_what_takes_packets_reads_the_captures(
    what: str, arguments: str, saved: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name, *options = arguments.split()
    result = run(name, saved, *options)
    assert result.stderr.startswith(f"rdmascope: {saved}: the tables do not hold {what}; read from {BOTH_WAYS}\n")
    for made in tmp_path.iterdir():
        shutil.rmtree(made) if made.is_dir() else made.unlink()
    fresh = run(name, BOTH_WAYS, *options)
    assert (result.exit_code, result.stdout) == (fresh.exit_code, fresh.stdout) and fresh.stdout != ""


def test_tables_of_others_and_of_later_versions(tmp_path: Path) -> None:
    path = tmp_path / "other.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE rpcs (x INTEGER)")
    with pytest.raises(CaptureError, match="did not save"):
        open_saved(str(path))
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            f"CREATE TABLE metadata AS SELECT '9' program_version, {VERSION + 1} schema_version, '' damage,"
            " 0 frames, 0 first_time_ns, 0 last_time_ns"
        )
        connection.execute("CREATE TABLE sources AS SELECT 'x.pcap' AS path")
    with pytest.raises(CaptureError, match=f"version {VERSION + 1}; this program reads version {VERSION}"):
        open_saved(str(path))


@pytest.mark.parametrize("kind", KINDS)
def test_columns_that_an_earlier_program_did_not_know_are_null(kind: str, tmp_path: Path) -> None:
    path = str(tmp_path / kind)
    with Database(fill) as database:
        save(database, path, [BOTH_WAYS], EXTENT, "")
    if os.path.isdir(path):
        rpcs, earlier = f"{path}/rpcs.parquet", str(tmp_path / "rpcs.parquet")
        duckdb.execute(f"COPY (SELECT * EXCLUDE (uid, slot) FROM '{rpcs}') TO '{earlier}' (FORMAT parquet)")
        shutil.move(earlier, rpcs)
    else:
        with duckdb.connect(path) as connection:
            connection.execute("ALTER TABLE rpcs DROP COLUMN uid")
            connection.execute("ALTER TABLE rpcs DROP COLUMN slot")
    with Database(fill) as fresh, open_saved(path) as kept:
        query = "SELECT * EXCLUDE (uid, slot) FROM rpcs"
        assert list(next(kept.results(query)).rows) == list(next(fresh.results(query)).rows)
        assert set(next(kept.results("SELECT uid, slot FROM rpcs")).rows) == {(None, None)}
    assert run("rpcs", path, "--errors").stdout == run("rpcs", BOTH_WAYS, "--errors").stdout
    assert run("report", path).exit_code == 0


def test_a_database_that_is_cut_short_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "tables.duckdb"
    with Database(fill) as database:
        save(database, str(path), [BOTH_WAYS], EXTENT, "")
    path.write_bytes(path.read_bytes()[:5000])
    result = run("sql", str(path), "FROM rpcs")
    assert (result.exit_code, result.stdout, len(result.stderr.splitlines())) == (2, "", 1)


def test_damage_is_kept_and_said_again(tmp_path: Path) -> None:
    capture = tmp_path / "damaged.pcap"
    capture.write_bytes(unpacked(BOTH_WAYS)[:-40])
    for kind in KINDS:
        result = run("sql", str(capture), "--save", str(tmp_path / kind))
        assert (result.exit_code, "truncated in frame" in result.stderr) == (2, True)
        again = run("sql", str(tmp_path / kind), "SELECT count(*) AS n FROM rpcs")
        assert (again.exit_code, again.stderr) == (2, result.stderr)
        assert again.stdout == run("sql", str(capture), "SELECT count(*) AS n FROM rpcs").stdout


def test_nothing_is_overwritten_by_accident(tmp_path: Path) -> None:
    capture = tmp_path / "capture.duckdb"
    shutil.copy(BOTH_WAYS, capture)
    before = capture.read_bytes()
    full = tmp_path / "full"
    full.mkdir()
    (full / "notes.txt").write_text("mine")
    for options in (("--save", str(capture)), ("--save", str(full)), ("SELECT 1", "-o", str(tmp_path / "x.txt"))):
        result = run("sql", str(capture), *options)
        assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1), options
    assert run("sql", str(tmp_path / "capture.duckdb"), "SELECT 1", "-o", str(full / "no" / "x.csv")).exit_code == 2
    assert capture.read_bytes() == before and os.listdir(full) == ["notes.txt"]


@pytest.mark.parametrize("suffix", ["csv", "json", "parquet", "arrow"])
def test_a_result_in_a_file(suffix: str, tmp_path: Path) -> None:
    if suffix == "arrow":
        pytest.importorskip("pyarrow")
    path = tmp_path / f"out.{suffix}"
    query = "SELECT number, time, sum(number) OVER () AS total, 18446744073709551615::UBIGINT AS huge FROM rpcs"
    result = run("sql", BOTH_WAYS, query, "-o", str(path))
    with Database(fill) as database:
        wanted = list(next(database.results(query)).rows)
    assert result.stdout.split() == [f"{path}:", str(len(wanted)), "rows"]
    if suffix == "arrow":
        import pyarrow.ipc

        table = pyarrow.ipc.open_file(path).read_all()
        found = [(row["number"], row["total"], row["huge"]) for row in table.to_pylist()]
        assert str(table.schema.field("time").type) == "timestamp[ns]"
    else:
        found = duckdb.execute(f"SELECT number, total, huge FROM '{path}'").fetchall()
    assert found == [(number, total, huge) for number, _, total, huge in wanted]
    two = run("sql", BOTH_WAYS, "SELECT 1; SELECT 2", "-o", str(path))
    assert two.exit_code == 2 and "a single query" in two.stderr


def test_security_contexts_of_calls_are_kept(tmp_path: Path) -> None:
    wire = Wire()
    connection = wire.connect()
    for service in (INTEGRITY, PRIVACY):
        context = Context(service)
        for asked, answered in (context.create(100003, 3), context.destroy(100003, 3)):
            reply(call(connection, asked), answered)
            reply(call(connection, context.call(nfs3.getattr_())), context.reply(nfs3.getattr_reply()))
    reply(call(connection, nfs3.getattr_()), nfs3.getattr_reply())
    capture, tables = tmp_path / "gss.pcap", str(tmp_path / "tables")
    write_pcap(Capture(wire).frames, capture)
    with Database(lambda wanted: table_batches(Session(capture), wanted)) as database:
        save(database, tables, [str(capture)], EXTENT, "")
    kept, fresh = ([rpc.gss for rpc in session.rpcs()] for session in (SavedSession(tables), Session(capture)))
    assert kept == fresh
    assert [None if one is None else (one.procedure, one.service) for one in kept][-3:] == [(3, 3), (0, 3), None]
    shown = [line for line in run("rpcs", tables).stdout.splitlines() if "RPCSEC_GSS" in line]
    assert shown == [line for line in run("rpcs", str(capture)).stdout.splitlines() if "RPCSEC_GSS" in line] != []
