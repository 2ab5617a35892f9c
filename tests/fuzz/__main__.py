"""``make fuzz``: every target for its share of the time; what was found is named, and kept in tests/fuzz/work.

PYTHONPATH=tests python -m fuzz [--seconds SECONDS] [TARGET]...
PYTHONPATH=tests python -m fuzz --replay FILE TARGET
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import click

from .targets import TARGETS

WORK = Path(__file__).with_name("work")
EXECUTED = re.compile(r"^stat::number_of_executed_units:\s*(\d+)$", re.MULTILINE)
SESSION = 120
"""Seconds after which a new process goes on, since the fuzzer's memory grows."""
FOUND = ("crash-*", "oom-*", "timeout-*")


def fuzzed(name: str, seconds: int) -> tuple[int, list[Path]]:
    """How many inputs one target was given, and those that did harm."""
    folder = WORK / name
    folder.mkdir(parents=True, exist_ok=True)
    before = {path for pattern in FOUND for path in folder.glob(pattern)}
    executed = 0
    for begun in range(0, seconds, SESSION):
        log = folder / "log"
        with log.open("wb") as file:
            words = [sys.executable, "-m", "fuzz.one", name, str(folder), str(min(SESSION, seconds - begun))]
            subprocess.run(words, stdout=file, stderr=subprocess.STDOUT, env=os.environ | {"PYTHONUTF8": "1"})
        found = sorted({path for pattern in FOUND for path in folder.glob(pattern)} - before)
        units = EXECUTED.search(log.read_text(errors="replace"))
        executed += int(units[1]) if units else 0
        if found:
            break
        if units is None:
            sys.exit(f"{name} did not run; see {log}")
    return executed, found


@click.command()
@click.option("--seconds", default=60, show_default=True, help="For each target.")
@click.option("--replay", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Give a target this file.")
@click.argument("names", metavar="[TARGET]...", nargs=-1, type=click.Choice(sorted(TARGETS)))
def main(seconds: int, replay: Path | None, names: tuple[str, ...]) -> None:
    """Run every TARGET, or those that are named."""
    if replay is not None:
        for name in names:
            TARGETS[name].run(replay.read_bytes())
        return
    harm = total = 0
    for name in names or TARGETS:
        executed, found = fuzzed(name, seconds)
        total += executed
        harm += len(found)
        click.echo(f"{name:24} {executed:>12,} executions  {len(found) or 'nothing'} found")
        for path in found:
            click.echo(f"    {path}")
    click.echo(f"{'all':24} {total:>12,} executions  {harm or 'nothing'} found")
    sys.exit(harm > 0)


main()
