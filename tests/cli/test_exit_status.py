"""What commands end with, and where it is written.  As a program: writes it into ``docs/stable.md``."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from rdmascope.cli.main import main
from rdmascope.cli.terminal import EXIT_STATUS

ROOT = Path(__file__).parents[2]
PAPER = ROOT / "docs" / "stable.md"
SAMPLES = ROOT / "captures" / "samples"
CAPTURE = SAMPLES / "longcall-rxe.pcap.zst"


def generated() -> str:
    rows = "".join(f"| {status} | {meaning} |\n" for status, meaning in EXIT_STATUS.items())
    before, heading, _ = PAPER.read_text(encoding="utf-8").partition("## Exit status\n\n")
    return f"{before}{heading}| status | meaning |\n| --- | --- |\n{rows}"


def test_the_paper_and_the_manual_are_those_of_the_table() -> None:
    assert PAPER.read_text(encoding="utf-8") == generated()
    manual = CliRunner().invoke(main, ["--man"]).stdout
    assert all(f"\\fB{status}\\fR" in manual.split(".SH EXIT STATUS")[1] for status in EXIT_STATUS)


@pytest.mark.parametrize("error", [ZeroDivisionError, EOFError])
def test_an_internal_error_is_no_finding(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("RDMASCOPE_TRACEBACK", raising=False)

    def fail(*_: object) -> None:
        raise error("a fault of the program")

    monkeypatch.setattr("rdmascope.cli.commands.report.Gathered", fail)
    with pytest.raises(SystemExit) as ended:
        main(["report", str(CAPTURE)])
    assert ended.value.code == 70
    assert "internal error, please report it" in capfd.readouterr().err


def test_what_a_command_has_to_remove_is_removed_before_the_process_ends() -> None:
    program = """
import atexit, sys, types, click
from rdmascope.__main__ import program

@click.command()
def command():
    atexit.register(print, "removed")
    sys.exit(3)

sys.modules["rdmascope.cli.commands.rules"] = types.SimpleNamespace(command=command)
program()
"""
    ended = subprocess.run([sys.executable, "-c", program, "rules"], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (3, "removed\n", "")


def test_a_reader_that_goes_away_is_no_finding() -> None:
    command = [sys.executable, "-m", "rdmascope", "packets", str(SAMPLES / "meta-rxe.pcap.zst")]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": ""}
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 141


@pytest.mark.parametrize("closed", ["0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"])
def test_closed_streams_are_no_finding(closed: str, tmp_path: Path) -> None:
    saved = tmp_path / "rpcs.duckdb"
    command = (
        f"{sys.executable} -m rdmascope sql {CAPTURE} --save {saved} 'SELECT count(*) AS calls FROM rpcs' {closed}"
    )
    ended = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert (ended.returncode, "error" in ended.stderr) == (0, False)
    assert ("calls" in ended.stdout) == ("1>&-" not in closed)
    assert saved.exists()


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)])
def test_a_signal_leaves_no_temporary_folder(number: int, status: int, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "rdmascope", "sql", "-", "FROM rpcs"]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": "", "TMPDIR": str(tmp_path)},
        preexec_fn=lambda: [signal.signal(one, signal.SIG_DFL) for one in (signal.SIGHUP, signal.SIGINT)],
    )
    assert process.stdin is not None and process.stdout is not None
    # Python itself tries the folder with a file first.
    while not list(tmp_path.glob("rdmascope-*")) and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(number)
    process.stdout.read()
    assert (process.wait(), list(tmp_path.iterdir())) == (status, [])
    process.stdin.close()
    process.stdout.close()


@pytest.mark.parametrize("command", [["report", "--json"], ["audit"], ["sql", "-q", "SELECT count(*) FROM rpcs"]])
def test_an_interrupt_ends_the_reading_and_what_was_found_is_shown(
    command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from playbook.commands import run  # The paper is drawn without it.

    def interrupted(*_: object) -> None:
        monkeypatch.undo()
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("rdmascope.cli.terminal.Meter.at", interrupted)
    name, *options = command
    result = run(name, str(CAPTURE), *options)
    assert result.exit_code == 2 and ": stopped by Ctrl-C after " in result.stderr
    assert result.stdout


if __name__ == "__main__":
    PAPER.write_text(generated(), encoding="utf-8")
