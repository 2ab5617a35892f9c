"""``rdmascope synth``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from rdmascope.captures.peer.faults import FAULTS
from rdmascope.captures.peer.shipped import shipped_scripts
from rdmascope.cli.main import main


def run(*arguments: str | Path, code: int = 0) -> Result:
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result


def objects(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize("name", shipped_scripts())
def test_a_capture_is_written_and_can_be_read(name: str, tmp_path: Path) -> None:
    out = tmp_path / "out.pcapng"
    reported = objects(run("synth", name, "-o", out, "--json").stdout)[0]
    assert (reported["schema"], reported["script"], reported["frames"]) == (
        "rdmascope.synth/1.0",
        name,
        reported["sent"],
    )
    capture = next(one for one in objects(run("report", "--json", out).stdout) if one["type"] == "capture")
    assert (capture["frames"], capture["connections"]) == (reported["frames"], len(reported["connections"]))


def test_the_same_script_gives_the_same_file(tmp_path: Path) -> None:
    files = [tmp_path / "one.pcapng", tmp_path / "other.pcapng"]
    for file in files:
        run("synth", "v1-chunks", "-o", file)
    assert files[0].read_bytes() == files[1].read_bytes()


def test_a_fault_is_committed_reported_and_found(tmp_path: Path) -> None:
    out = tmp_path / "wrong.pcapng"
    reported = run("synth", "v1-chunks", "--fault", "V1-CREDIT-ZERO", "-o", out).stdout
    assert "connection 1: the server grants no credit (V1-CREDIT-ZERO)" in reported
    found = objects(run("audit", "--json", out, code=1).stdout)
    assert {one["rule"] for one in found if one["type"] == "finding"} == {"V1-CREDIT-ZERO"}


def test_a_fault_without_an_occasion_is_reported(tmp_path: Path) -> None:
    result = run("synth", "v1-chunks", "--fault", "xc-no-response", "-o", tmp_path / "out.pcapng", code=1)
    assert "nothing in the script lets the server commit its fault" in result.stderr


def test_a_script_of_ones_own_begins_with_one_that_ships(tmp_path: Path) -> None:
    script = tmp_path / "mine.toml"
    script.write_text(run("synth", "v1-chunks", "--print").stdout)
    reported = run("synth", script, "-o", tmp_path / "out.pcapng").stdout
    assert "8 of 8 calls answered" in reported


def test_a_script_is_not_written_over(tmp_path: Path) -> None:
    script = tmp_path / "mine.toml"
    script.write_text("[[connection]]")
    assert "would overwrite what is read" in run("synth", script, "-o", script, code=2).stderr
    assert script.read_text() == "[[connection]]"


def test_a_script_from_standard_input(tmp_path: Path) -> None:
    out = tmp_path / "out.pcapng"
    result = CliRunner().invoke(main, ["synth", "-", "-o", str(out)], input="[[connection]]")
    assert (result.exit_code, "3 frames, 1 connection" in result.output) == (0, True)


def test_what_ships_and_what_can_be_said_is_listed() -> None:
    assert [one["name"] for one in objects(run("synth", "--list", "--json").stdout)] == sorted(shipped_scripts())
    assert [one["name"] for one in objects(run("synth", "--faults", "--json").stdout)] == list(FAULTS)
    keys = {(one["table"], one["key"]) for one in objects(run("synth", "--keys", "--json").stdout)}
    assert {("[[connection.step]]", "call"), ("at the top", "seed")} < keys
    for option in ("--list", "--faults", "--keys"):
        assert max(map(len, run("synth", option).stdout.splitlines())) <= 120


BAD: list[tuple[tuple[str, ...], str]] = [
    (("nowhere", "-o", "x"), "nowhere: no such file, and no script that ships"),
    (("v1-chunks",), "where to? give -o FILE.pcapng"),
    ((), "which script?"),
    (("v1-chunks", "-o", "/no/such/x.pcapng"), "/no/such: no such directory"),
    (("v1-chunks", "--fault", "none", "-o", "x"), "there is no fault 'none'"),
    (("v1-chunks", "--list"), "stand alone"),
]


@pytest.mark.parametrize("arguments, message", BAD)
def test_bad_input_is_one_line(arguments: tuple[str, ...], message: str) -> None:
    result = run("synth", *arguments, code=2)
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_file_that_is_no_script_is_one_line(tmp_path: Path) -> None:
    for data, message in ((b"\xff", "no UTF-8 text at byte 0"), (b"[", "no TOML"), (bytes(2 << 20), "longer than")):
        script = tmp_path / "script"
        script.write_bytes(data)
        result = run("synth", script, "-o", tmp_path / "out", code=2)
        assert message in result.stderr and len(result.stderr.splitlines()) == 1
        assert not (tmp_path / "out").exists()
