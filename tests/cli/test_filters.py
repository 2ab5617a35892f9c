"""The filters: the same RPCs in every command, those of a WHERE in SQL; and a condition that sees only the tables."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

from playbook.commands import LONG_CALLS, unpacked
from playbook.samples import SAMPLES
from rdmascope.captures.tables.saved_session import saved_rpcs
from rdmascope.cli.main import main

EVERYTHING = str(SAMPLES / "rxe-nfs-all.pcap.zst")
LOSS = str(SAMPLES / "loss-rxe.pcap.zst")

FILTERS: list[tuple[tuple[str, ...], str]] = [
    (("--procedure", "READ"), "procedure = 'READ' OR list_contains(operations, 'READ')"),
    (("--procedure", "NFS.WRITE", "--procedure", "GETA*"),
     "program = 'NFS' AND (' ' || procedure || ' ' || coalesce(array_to_string(operations, ' '), '') || ' ')"
     " SIMILAR TO '.* (WRITE|GETA[A-Z]*) .*' OR procedure LIKE 'GETA%'"
     " OR array_to_string(operations, ' ') SIMILAR TO '(.* )?GETA[A-Z]*( .*)?'"),
    (("--connection", "2"), "connection = 2"),
    (("--slower-than", "40ms"), "waiting_ns > 40000000"),
    (("--errors",), "state <> 'complete'"),
    (("--where", "number % 3 = 1"), "number % 3 = 1"),
    (("--where", "LATENCY_NS < 45.5ms or status <> 'OK'"), "latency_ns < 45500000 OR status <> 'OK'"),
    (("--client", "10.77.0.2"), "client = '10.77.0.2'"),
    (("--server", "10.77.0.1"), "server = '10.77.0.1'"),
    (("--path", "/"), "path LIKE '/%'"),
    (("--user", "0"), '"user" = \'0\''),
    (("--since", "9"), "time_ns >= FIRST + 9000000000"),
    (("--until", "71.25"), "time_ns < FIRST + 71250000000"),
]  # fmt: skip


def run(*arguments: str) -> Result:
    return CliRunner(env={"COLUMNS": "160"}).invoke(main, list(arguments))


@cache
def unfiltered(*arguments: str) -> list[dict[str, Any]]:
    return objects(*arguments)


def objects(*arguments: str) -> list[dict[str, Any]]:
    done = run(*arguments, "--json")
    assert done.exit_code in (0, 1), done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


@settings(
    max_examples=3,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
# One option given twice means either of its values, which a conjunction of two conditions would not.
@given(
    st.sampled_from([EVERYTHING, LOSS]),
    st.lists(st.sampled_from(FILTERS), min_size=1, max_size=2, unique_by=lambda one: one[0][0]),
)
def test_every_command_means_the_same_rpcs(capture: str, filters: list[tuple[tuple[str, ...], str]]) -> None:
    arguments = [one for options, _ in filters for one in options]
    where = " AND ".join(f"({condition})" for _, condition in filters)
    first = unfiltered("report", capture)[0]["first_time_ns"]
    query = (
        f"SELECT number, connection, rdma_version FROM rpcs WHERE {where.replace('FIRST', str(first))} ORDER BY number"
    )
    wanted = objects("sql", capture, query)
    numbers = [one["number"] for one in wanted]
    connections = sorted({one["connection"] for one in wanted})
    over_rdma = [one for one in wanted if one["rdma_version"] is not None]  # Others have no credits, and no rules.

    listed = objects("rpcs", capture, *arguments)
    assert sorted(one["number"] for one in listed) == numbers
    if not numbers:
        for command in ("report", "packets", "transport", "files", "transport --credits", "audit", "diagnose"):
            done = run(*command.split(), capture, *arguments)
            assert done.exit_code == 2 and "passes the filter" in done.stderr, command
        return
    assert objects("sql", capture, "SELECT number, connection, rdma_version FROM rpcs ORDER BY 1", *arguments) == wanted
    assert objects("report", capture, *arguments)[0]["rpcs"] == len(numbers)
    packets = objects("packets", capture, *arguments)
    # A packet names an RPC that ends soon enough.
    named = {one["rpc"] for one in unfiltered("packets", capture)}
    assert {one["rpc"] for one in packets} - {None} == named & {*numbers}
    in_sql = objects("sql", capture, "SELECT frame FROM packets ORDER BY 1", *arguments)
    assert [one["frame"] for one in packets] == [one["frame"] for one in in_sql]
    assert [one["number"] for one in objects("transport", capture, *arguments)] == connections
    if not over_rdma:
        done = run("transport", "--credits", capture, *arguments)
        assert done.exit_code == 2 and "no call on connection" in done.stderr
        return
    assert sorted({one["connection"] for one in objects("transport", "--credits", capture, *arguments)}) == sorted(
        {one["connection"] for one in over_rdma}
    )
    audit = objects("audit", capture, *arguments)
    assert audit[-1]["rpcs"] == len(over_rdma)
    assert {one["rpc"] for one in audit if one["type"] == "finding"} <= {*numbers, None}
    in_sql = objects("sql", capture, "SELECT count(*) AS n FROM operations WHERE file IS NOT NULL", *arguments)
    of_files = objects("files", capture, *arguments)
    compounds = {one["number"] for one in listed if one["procedure"] == "COMPOUND"}
    if compounds == {*numbers}:
        assert sum(sum(one["calls"].values()) for one in of_files) == in_sql[0]["n"]
    assert all(sum(one["calls"].values()) for one in of_files)


def test_the_audit_counts_the_rpcs_of_the_chosen_connections(tmp_path: Path) -> None:
    kept = str(tmp_path / "kept.duckdb")
    assert run("sql", LOSS, "--save", kept).exit_code == 0
    found = [objects("audit", path, "--connection", "2")[-1] for path in (LOSS, kept)]
    assert [(one["connections"], one["rpcs"]) for one in found] == [(1, 48), (1, 48)]


COMMANDS = ("report", "rpcs", "packets", "transport", "files", "audit", "sql", "diagnose", "export")


def given_to(command: str, *arguments: str) -> Result:
    more = {"sql": ["SELECT count(*) FROM rpcs"], "export": ["-o", "out.pcapng"]}.get(command, [])
    return run(command, LONG_CALLS, *more, *arguments)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    "condition",
    [
        "number IN (SELECT 1 FROM read_csv('secret.csv'))",
        "number IN (FROM 'secret.csv')",
        "COPY rpcs TO 'out.csv'",
        "true); COPY rpcs TO 'out.csv'; --",
        "ATTACH 'other.db'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "length(read_text('secret.csv')) > 0",
        "getenv('HOME') <> ''",
    ],
)
def test_a_condition_sees_only_the_tables(
    command: str, condition: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("secret.csv").write_text("a\n1\n")
    done = given_to(command, "--where", condition)
    assert done.exit_code == 2
    assert done.stderr.startswith("rdmascope: ") and done.stderr.count("\n") == 1, done.stderr
    assert "secret" not in done.stdout
    assert [one.name for one in tmp_path.iterdir()] == ["secret.csv"]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ("--where", "latencyms > 1"),
            "no column 'latencyms' in the table rpcs; did you mean latency or latency_ns",
        ),
        (("--where", "number >"), "syntax error"),
        (("--procedure", "REED"), "no procedure or operation 'REED'; did you mean READ"),
        (("--client", "10.9.9.9"), "no client '10.9.9.9'; there is 10.77.0.2"),
        (("--since", "5000"), "is after the last frame"),
        (("--since", "25:00"), "is no time"),
        (("--slower-than", "3 bytes"), "is no duration"),
    ],
)
def test_a_wrong_filter_is_one_clear_line(
    command: str, arguments: tuple[str, ...], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = given_to(command, *arguments)
    assert done.exit_code == 2
    if command == "sql" and arguments[0] in ("--procedure", "--client", "--since"):
        assert "passes the filter" in done.stderr or words in done.stderr
    else:
        assert words in done.stderr, done.stderr


def test_the_same_help_in_every_command() -> None:
    options = ("--where", "--client", "--server", "--path", "--user", "--procedure", "--connection", "--slower-than",
               "--errors", "--since", "--until")  # fmt: skip
    described = {}
    for command in COMMANDS:
        parameters = {name: one for one in main.get_command(None, command).params for name in one.opts}  # type: ignore
        described[command] = [parameters[option].help for option in options]
    assert all(one == described["report"] for one in described.values())


def test_packets_of_a_file_that_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All but acknowledgements and what is sent twice, RPC by RPC; those of a long one are forgotten, and counted."""
    path = tmp_path / "growing.pcap"
    path.write_bytes(unpacked(LOSS))
    chosen = "packets", str(path), "--procedure", "WRITE", "--json"
    follow = "--follow", "--idle", "0"
    whole = {one["frame"]: one for one in map(json.loads, run(*chosen).stdout.splitlines())}
    done = run(*chosen, *follow)
    listed = {one["frame"] for one in map(json.loads, done.stdout.splitlines())}
    assert listed < whole.keys() and done.stderr == ""
    left_out = [one for frame, one in whole.items() if frame not in listed]
    again = {one["psn"] for one in left_out if "RC Acknowledge" not in one["info"]}
    assert again and again <= {whole[frame]["psn"] for frame in listed}
    assert len(run(*chosen, *follow, "-c", "3").stdout.splitlines()) == 3
    refused = run("packets", str(path), *follow, "--errors", "-V")
    assert refused.exit_code == 2 and "takes no filters" in refused.stderr
    monkeypatch.setattr("rdmascope.cli.commands.packets.MAX_HELD", 10)
    monkeypatch.setattr("rdmascope.captures.session.session.LISTED_FRAMES", 20)
    assert "left out, of RPCs that ended more than 10 packets later" in run(*chosen, *follow).stderr
    nothing = run("packets", str(path), *follow, "--procedure", "NOPE")
    assert nothing.exit_code == 2 and "no procedure or operation" in nothing.stderr


def test_saved_tables_of_the_rpcs_that_pass(tmp_path: Path) -> None:
    """They answer as the capture does with the same filter, in commands that count for connections and files, too."""
    filters = ("--procedure", "READ", "--connection", "7", "--connection", "10")
    both = [str(tmp_path / name) for name in ("kept.duckdb", "folder")]
    for kept in both:
        assert run("sql", EVERYTHING, "--save", kept, *filters).exit_code == 0
    tables = ("rpcs", "operations", "chunks", "segments", "packets", "findings")
    counts = (f"SELECT '{table}' AS name, count(*) AS rows FROM {table}" for table in tables)
    query = ";".join((*counts, *(f"SELECT * FROM {table} ORDER BY ALL" for table in tables)))
    rows = objects("sql", EVERYTHING, query, *filters)
    assert all(one["rows"] or one["name"] == "findings" for one in rows[: len(tables)])
    assert [objects("sql", kept, query) for kept in both] == [rows, rows]
    for command in ("rpcs", "files"):
        records = objects(command, EVERYTHING, *filters)
        assert [objects(command, kept) for kept in both] == [records, records]
    judged = [{**one, "file": "", "filter": ""} for one in objects("audit", EVERYTHING, *filters)]
    for kept in both:
        assert [{**one, "file": "", "filter": ""} for one in objects("audit", kept)] == judged
        assert [one["number"] for one in objects("transport", kept)] == [7, 10]
        assert "holds only 10 RPCs: procedure READ" in run("report", kept).stderr


def test_saved_rpcs_that_ended_far_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are read in pieces, of which some are empty."""
    monkeypatch.setattr(saved_rpcs, "__defaults__", (3, "true", "true"))
    kept = str(tmp_path / "kept.duckdb")
    run("sql", EVERYTHING, "--save", kept, "--where", "number IN (1, 200)")
    assert [one["number"] for one in objects("rpcs", kept)] == [1, 200]


def test_what_saved_tables_lack_is_read_from_their_capture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("of").mkdir()
    shutil.copy(LOSS, "of/loss.pcap.zst")
    monkeypatch.chdir("of")
    run("sql", "loss.pcap.zst", "--save", "all.duckdb")
    monkeypatch.chdir("..")
    for command in ("files", "audit"):
        done = run(command, "of/all.duckdb", "--errors")
        shown = run(command, LOSS, "--errors").stdout.replace(LOSS, "of/all.duckdb")
        assert done.stdout == shown and "read from" in done.stderr
    with open("of/loss.pcap.zst", "ab") as capture:
        capture.write(b"more")
    assert "which has changed since" in run("files", "of/all.duckdb", "--errors").stderr
    Path("of/loss.pcap.zst").unlink()
    assert "which is not there" in run("audit", "of/all.duckdb", "--errors").stderr


def test_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    data = Path(LOSS).read_bytes()
    for command, more in (("packets", ()), ("audit", ()), ("sql", ("SELECT count(*) FROM packets",))):
        filters = ("--where", "number = 60")
        piped = CliRunner().invoke(main, [command, "-", *more, *filters], input=data)
        assert piped.exit_code == 0, piped.output
        from_file = run(command, LOSS, *more, *filters).stdout.replace(f"{LOSS}: ", "-: ")
        assert piped.stdout.split() == from_file.split()


@pytest.mark.parametrize("command", ["report", "rpcs", "packets", "transport", "sql"])
def test_a_filter_leaves_nothing_on_standard_error(command: str) -> None:
    """DuckDB complains when it is not cleaned up."""
    more = ["FROM rpcs"] if command == "sql" else []
    program = [sys.executable, "-m", "rdmascope", command, LOSS, *more, "--errors"]
    assert subprocess.run(program, capture_output=True, check=True).stderr == b""
