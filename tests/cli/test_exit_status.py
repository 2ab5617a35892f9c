"""What commands end with, and where it is written.  As a program: writes ``docs/exit-status.md``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from rdmascope.cli.exit_status import EXIT_STATUS
from rdmascope.cli.main import main

ROOT = Path(__file__).parents[2]
PAPER = ROOT / "docs" / "exit-status.md"
SAMPLES = ROOT / "captures" / "samples"
CAPTURE = SAMPLES / "longcall-rxe.pcap.zst"


def generated() -> str:
    rows = "".join(f"| {status} | {meaning} |\n" for status, meaning in EXIT_STATUS.items())
    return (
        "# Exit status\n\nOf every command; drawn from `cli/exit_status.py` by `python tests/cli/test_exit_status.py`."
        f"\n\n| status | meaning |\n| --- | --- |\n{rows}"
    )


def test_the_paper_and_the_manual_are_those_of_the_table() -> None:
    assert PAPER.read_text(encoding="utf-8") == generated()
    manual = CliRunner().invoke(main, ["--man"]).stdout
    assert all(f"\\fB{status}\\fR" in manual.split(".SH EXIT STATUS")[1] for status in EXIT_STATUS)


def test_an_internal_error_is_no_finding(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("RDMASCOPE_TRACEBACK", raising=False)

    def fail(*_: object) -> None:
        raise ZeroDivisionError("a fault of the program")

    monkeypatch.setattr("rdmascope.cli.commands.report.Gathered", fail)
    with pytest.raises(SystemExit) as ended:
        main(["report", str(CAPTURE)])
    assert ended.value.code == 70
    assert "internal error, please report it" in capfd.readouterr().err


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


if __name__ == "__main__":
    PAPER.write_text(generated(), encoding="utf-8")
