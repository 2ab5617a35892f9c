"""``rdmascope sql``: the query among the arguments, its rows on the screen, as JSON and as CSV, and its errors."""

from __future__ import annotations

import csv
import io
import json
import subprocess
from pathlib import Path

import pytest

from playbook.commands import BOTH_WAYS, EVERYTHING, PROGRAM, objects, run, unpacked

QUESTION = "SELECT procedure, count(*), quantile_cont(latency_ns, 0.99) FROM rpcs GROUP BY ALL ORDER BY 1"


def test_procedures_by_name() -> None:
    printed = run("sql", EVERYTHING, QUESTION).stdout.splitlines()
    assert printed[0].split() == ["procedure", "count_star()", "quantile_cont(latency_ns,", "0.99)"]
    assert {line.split()[0]: int(line.split()[1]) for line in printed[1:]}["COMPOUND"] == 178


def test_the_query_is_the_last_argument_an_option_or_standard_input() -> None:
    wanted = run("sql", EVERYTHING, QUESTION).stdout
    assert wanted
    assert run("sql", "-q", QUESTION, EVERYTHING).stdout == wanted
    assert run("sql", EVERYTHING, stdin=QUESTION.encode()).stdout == wanted
    with open(EVERYTHING, "rb") as capture:
        piped = subprocess.run([*PROGRAM, "sql", "-", QUESTION], stdin=capture, capture_output=True, text=True)
    assert (piped.stdout, piped.stderr) == (wanted, "")
    both = run("sql", EVERYTHING, BOTH_WAYS, "SELECT count(*) AS n FROM rpcs").stdout
    assert both.split() == ["n", str(237 + len(objects("rpcs", BOTH_WAYS)))]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((EVERYTHING, "none.pcap"), "'none.pcap' is neither a file that exists nor a query"),
        (("SELECT 1 FROM rpcs",), "the query names no FILE to read"),
        ((EVERYTHING, "-"), "no query"),
        ((EVERYTHING, QUESTION, "--json", "--csv"), "choose one"),
        ((EVERYTHING, "my capture.pcap"), 'syntax error at or near "my"'),
        ((EVERYTHING, "SELECT nothing FROM rpcs"), "no column 'nothing' in the table rpcs"),
        (("none.pcap", "SELECT 1 FROM rpcs"), "none.pcap: no such file"),
        (("none.pcap", "SELECT 1"), "none.pcap: no such file"),
        (("none.pcap", EVERYTHING), "none.pcap: no such file"),
        ((EVERYTHING,), "no query"),
        ((EVERYTHING, QUESTION, "-o", "PLACE"), "is a directory"),
        ((EVERYTHING, "FROM read_text('/etc/passwd')"), "Cannot access file"),
    ],
)
def test_one_line_and_a_status(arguments: tuple[str, ...], words: str, tmp_path: Path) -> None:
    place = tmp_path / "folder.csv"
    place.mkdir()
    result = run("sql", *[str(place) if one == "PLACE" else one for one in arguments])
    assert (result.exit_code, result.stdout) == (2, "")
    assert words in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_json_has_the_values_of_the_records() -> None:
    query = "SELECT number, xid, state, latency_ns, procedure, program_number FROM rpcs ORDER BY number"
    printed = [json.loads(line) for line in run("sql", BOTH_WAYS, query, "--json").stdout.splitlines()]
    rpcs = sorted(objects("rpcs", BOTH_WAYS), key=lambda rpc: rpc["number"])
    assert printed == [
        {name: rpc[name] for name in ("number", "xid", "state", "latency_ns", "procedure", "program_number")}
        for rpc in rpcs
    ]


def test_values_of_every_kind() -> None:
    query = (
        "SELECT 18446744073709551615::UBIGINT AS u, 1.25 AS d, 'nan'::DOUBLE AS n, true AS b, [1, NULL] AS l,"
        " {'a': 1} AS s, 'x\x1b[2J\n'::VARCHAR AS t, NULL AS z, 'ab'::BLOB AS o, make_timestamp_ns(1) AS w"
    )
    text = run("sql", EVERYTHING, query).stdout
    assert "\x1b" not in text and len(text.splitlines()) == 2
    assert text.splitlines()[1].split() == [
        *("18446744073709551615", "1.25", "nan", "true", "[1,", "-]", "{a:", "1}"),
        *("x\\x1b[2J\\n", "-", "6162", "1970-01-01", "00:00:00.000000001"),
    ]
    (line,) = run("sql", EVERYTHING, query, "--json").stdout.splitlines()
    assert list(json.loads(line).values()) == [
        *(18446744073709551615, 1.25, None, True, [1, None], {"a": 1}),
        *("x\x1b[2J\n", None, "6162", "1970-01-01 00:00:00.000000001"),
    ]
    assert "\x1b" not in line
    names, row = csv.reader(io.StringIO(run("sql", EVERYTHING, query, "--csv").stdout))
    assert names == list("udnblstzow")
    assert row[:6] == ["18446744073709551615", "1.25", "nan", "true", "[1, null]", '{"a": 1}']
    assert row[6:] == ["x\\x1b[2J\n", "", "6162", "1970-01-01 00:00:00.000000001"]


def test_what_was_decoded_before_the_damage_is_asked(tmp_path: Path) -> None:
    path = tmp_path / "damaged.pcap"
    path.write_bytes(unpacked(EVERYTHING)[:2_000_000])
    result = run("sql", str(path), "SELECT count(*) > 20 AS some FROM rpcs")
    assert (result.exit_code, result.stdout.split()) == (2, ["some", "true"])
    assert "truncated in frame" in result.stderr and len(result.stderr.splitlines()) == 1
    path.write_bytes(b"")
    result = run("sql", str(path), "SELECT count(*) FROM rpcs")
    assert (result.exit_code, result.stdout) == (2, "")


def test_duckdb_is_loaded_only_here() -> None:
    program = "\n".join(
        [
            "import sys",
            "from rdmascope.cli.main import main",
            "for arguments in (['--help'], ['report'], ['rpcs'], ['files']):",
            f"    main([*arguments, *([] if arguments == ['--help'] else [{EVERYTHING!r}])], standalone_mode=False)",
            "print('duckdb' in sys.modules, file=sys.stderr)",
        ]
    )
    done = subprocess.run([PROGRAM[0], "-c", program], capture_output=True, text=True)
    assert done.stderr == "False\n"


def test_nothing_is_complained_about_at_the_end() -> None:
    done = subprocess.run(
        [*PROGRAM, "sql", EVERYTHING, "SELECT count(*) AS n FROM rpcs"], capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("  n\n237\n", "")
