"""The program on the sample captures."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from threading import Timer
from typing import Any, AnyStr

import zstandard
from click.testing import CliRunner, Result

from rdmascope.cli.main import main

SAMPLES = Path(__file__).parents[2] / "captures" / "samples"
LONG_CALLS = str(SAMPLES / "longcall-rxe.pcap.zst")
BOTH_WAYS = str(SAMPLES / "bidir-rxe.pcap.zst")
EVERYTHING = str(SAMPLES / "rxe-nfs-all.pcap.zst")
LOSS = str(SAMPLES / "loss-rxe.pcap.zst")

PROGRAM = [sys.executable, "-c", "from rdmascope.cli.main import main; main()"]
"""For what CliRunner cannot show: descriptors, and modules not imported yet."""


def run(*arguments: str, columns: int = 120, stdin: bytes | None = None) -> Result:
    return CliRunner(env={"COLUMNS": str(columns), "RDMASCOPE_TRACEBACK": "1"}).invoke(main, arguments, input=stdin)


def needs_shell(command: str) -> bool:
    """Of a command line: it is more than a run of the program."""
    unquoted = re.sub(r"'[^']*'|\"[^\"$]*\"", "", command)
    return not command.startswith("rdmascope ") or re.search(r"[|<>;&$*?~\\]", unquoted) is not None


def objects(*arguments: str) -> list[dict[str, Any]]:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def unpacked(path: str) -> bytes:
    return zstandard.ZstdDecompressor().stream_reader(Path(path).read_bytes()).read()


def rest_of(process: subprocess.Popen[AnyStr]) -> tuple[AnyStr, AnyStr]:
    """Output and errors of a program that comes to its end, behind what was read of them line by line.

    Not ``communicate``: it would pass over what ``readline`` has read ahead.  After a minute the program is killed.
    """
    assert process.stdout is not None and process.stderr is not None
    deadline = Timer(60, process.kill)
    deadline.start()
    try:
        rest = process.stdout.read(), process.stderr.read()
        process.wait()
    finally:
        deadline.cancel()
    return rest
