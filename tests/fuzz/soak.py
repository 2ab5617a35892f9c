"""``make soak``: every writing command, ended by a signal at a random moment, and on disks that are too small.

PYTHONPATH=tests python -m fuzz.soak [--runs RUNS] [--seed SEED]

After each run: the older file is as it was or the newer one is whole, nothing else is there, neither beside it nor
among temporary files, and at most one line was complained.
"""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import click

SAMPLE = Path(__file__).parents[2] / "captures" / "samples" / "rxe-nfs-all.pcap.zst"
PROGRAM = (sys.executable, "-m", "rdmascope")
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL)
DISKS = (4 << 10, 64 << 10)
"""Bytes that a file may have."""
OLDER = b"an older file"
COMMANDS: dict[str, tuple[str, ...]] = {
    "extract": ("export", "--to", "capture", "CAPTURE", "--where", "true", "-o", "out.pcapng"),
    "extract --anonymize": (
        "export",
        "--to",
        "capture",
        "CAPTURE",
        "--where",
        "true",
        "--anonymize",
        "-o",
        "out.pcapng",
    ),
    "packets -w": ("packets", "CAPTURE", "-w", "out.pcapng"),
    "export": ("export", "CAPTURE", "-o", "out.pcapng"),
    "export --jobs": ("export", "CAPTURE", "--jobs", "2", "-o", "out.pcapng"),
    "export --to parquet": ("export", "CAPTURE", "--to", "parquet", "-o", "out"),
    "export --to csv": ("export", "CAPTURE", "--to", "csv", "-o", "out"),
    "export --to arrow": ("export", "CAPTURE", "--to", "arrow", "-o", "out"),
    "sql -o": ("sql", "CAPTURE", "FROM packets", "-o", "out.parquet"),
    "sql --save": ("sql", "CAPTURE", "--save", "out.duckdb"),
    "sql --save folder": ("sql", "CAPTURE", "--save", "out"),
    "files --extract": ("files", "CAPTURE", "--extract", "out"),
    "report -o": ("report", "CAPTURE", "-o", "out.html"),
    "audit --junit": ("audit", "CAPTURE", "--junit", "out.xml"),
    "audit --sarif": ("audit", "CAPTURE", "--sarif", "out.sarif"),
    "synth": ("synth", "v2-settles", "-o", "out.pcapng"),
    "batch": ("batch", "CAPTURE", "--out", "out", "-j", "2"),
}


class Ended(NamedTuple):
    """How a run ended, and what it left."""

    status: int
    complaints: str
    files: dict[str, bytes]
    """In the folder that it wrote into."""
    temporary: list[str]


@contextmanager
def places() -> Iterator[tuple[Path, Path]]:
    """Folders for the output and for temporary files."""
    with tempfile.TemporaryDirectory(prefix="soak-") as made:
        folder, temporary = Path(made, "work"), Path(made, "tmp")
        folder.mkdir()
        temporary.mkdir()
        yield folder, temporary


def output_of(command: tuple[str, ...]) -> str:
    return next(one for one in command if one == "out" or one.startswith("out."))


def begun(command: tuple[str, ...], folder: Path, temporary: Path, disk: int | None = None) -> subprocess.Popen[bytes]:
    def limited() -> None:
        os.setsid()  # Workers, too, are waited for.
        for which in SIGNALS[:3]:  # Whoever runs this in the background has some of them ignored.
            signal.signal(which, signal.SIG_DFL)
        if disk is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (disk, disk))

    words = [str(SAMPLE) if one == "CAPTURE" else one for one in command]
    # Python 3.11 would write half the bytecode of a module, which then no program can load.
    environment = os.environ | {"TMPDIR": str(temporary), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.Popen(
        [*PROGRAM, *words], cwd=folder, env=environment, preexec_fn=limited,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip


def ended(process: subprocess.Popen[bytes], folder: Path, temporary: Path) -> Ended:
    _, complaints = process.communicate(timeout=300)
    for _ in range(100):  # Its workers end by themselves.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, 0)
            time.sleep(0.1)
            continue
        break
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    left = [str(path.relative_to(temporary)) for path in temporary.rglob("*")]
    return Ended(process.returncode, complaints.decode(errors="replace"), files, left)


def older(command: tuple[str, ...], folder: Path) -> dict[str, bytes]:
    """What is there before, where a file is written."""
    if output_of(command) == "out":
        return {}
    (folder / output_of(command)).write_bytes(OLDER)
    return {output_of(command): OLDER}


def whole(path: Path, command: tuple[str, ...]) -> bool:
    """Whether the program itself reads to its end what it wrote; pages and reports end as they should."""
    endings = {".html": b"</html>", ".xml": b"</testsuites>"}
    if path.suffix in endings:
        return path.read_bytes().rstrip().endswith(endings[path.suffix])
    if path.suffix == ".sarif":
        return "runs" in json.loads(path.read_bytes())
    question = [*PROGRAM, "sql", str(path), "SELECT count(*) FROM rpcs"]
    if path.suffix == ".parquet":
        question = [sys.executable, "-c", f"import duckdb; duckdb.read_parquet({str(path)!r}).fetchall()"]
    if path.is_dir() and not (path / "rpcs.parquet").exists() and not (path / "manifest").exists():
        return any(path.glob("manifest.json")) or any(path.glob("rpcs.*"))
    if path.suffix == ".pcapng":
        question = [*PROGRAM, "info", str(path)]
    return subprocess.run(question, capture_output=True).returncode == 0


def wrong(name: str, run: Ended, before: dict[str, bytes], folder: Path, killed: bool) -> list[str]:
    """What should not be."""
    command = COMMANDS[name]
    # Where the signal came before Python ran a line of ours, the words are Python's own.
    said = "" if "core initialized" in run.complaints else run.complaints
    found = []
    if len(said.splitlines()) > 1 or "Traceback" in said or "internal error" in said:
        found.append(f"complaints: {said.strip()[-300:]}")
    if run.temporary and not killed:
        found.append(f"left among temporary files: {run.temporary[:3]}")
    # Of a data set, captures that were analysed stay, and the next run goes on behind them.
    names = {one for one in run.files if not (killed and ".rdmascope-" in one)} - before.keys()
    target = folder / output_of(command)
    if name == "batch":
        names = {one for one in names if "/." in one or "tmp" in one}
        names |= {one for one in run.files if "unfinished" in one and not killed}
    elif target.is_dir() and names and not whole(target, command):
        return [*found, f"a part of a folder: {sorted(names)[:3]}"]
    elif target.is_dir():
        names = {one for one in names if ".rdmascope-" in one}
    if names - {output_of(command)}:
        found.append(f"left: {sorted(names)[:3]}")
    if target.is_file() and run.files[target.name] != before.get(target.name) and not whole(target, command):
        found.append(f"{target.name} is not whole: {len(run.files[target.name])} bytes")
    return found


def lasting(name: str) -> float:
    with places() as (folder, temporary):
        older(COMMANDS[name], folder)
        started = time.monotonic()
        run = ended(begun(COMMANDS[name], folder, temporary), folder, temporary)
        if run.status not in (0, 1):
            sys.exit(f"{name} does not run: {run.complaints}")
        return time.monotonic() - started


@click.command()
@click.option("--runs", default=200, show_default=True, help="With signals, over all commands.")
@click.option("--seed", default=0, show_default=True)
def main(runs: int, seed: int) -> None:
    """Run them."""
    chance = random.Random(seed)
    workers = runs // 20
    total = len(COMMANDS) * (1 + len(DISKS)) + runs + workers
    begun_runs, faults = 0, 0

    def progress(name: str, how: str) -> None:
        nonlocal begun_runs
        begun_runs += 1
        click.echo(f"{begun_runs}/{total} {name}, {how}", err=True)

    seconds: dict[str, float] = {}
    for name in COMMANDS:
        progress(name, "to its end")
        seconds[name] = lasting(name)
    statuses: Counter[int] = Counter()

    def judge(name: str, how: str, run: Ended, before: dict[str, bytes], folder: Path, killed: bool) -> None:
        nonlocal faults
        statuses[run.status] += 1
        for words in wrong(name, run, before, folder, killed):
            faults += 1
            click.echo(f"{name}, {how}: {words}")

    for number in range(runs):
        name = [*COMMANDS][number % len(COMMANDS)]
        with places() as (folder, temporary):
            before = older(COMMANDS[name], folder)
            after, which = chance.uniform(0.1, 1) * seconds[name], chance.choice(SIGNALS)
            progress(name, f"{which.name} after {after:.2f} s")
            process = begun(COMMANDS[name], folder, temporary)
            with suppress(subprocess.TimeoutExpired):
                process.wait(after)
            with suppress(ProcessLookupError):  # As a terminal does: its workers get it, too.
                os.killpg(process.pid, which)
            run = ended(process, folder, temporary)
            judge(name, f"{which.name} after {after:.2f} s", run, before, folder, which == signal.SIGKILL)
            if which == signal.SIGKILL:  # What it left is removed by the next.
                shutil.rmtree(folder / "out", ignore_errors=True)
                run = ended(begun(COMMANDS[name], folder, temporary), folder, temporary)
                judge(name, "the run behind a SIGKILL", run, before, folder, False)
    for number in range(workers):
        name = ("batch", "export --jobs")[number % 2]
        progress(name, "its workers killed")
        with places() as (folder, temporary):
            before = older(COMMANDS[name], folder)
            process = begun(COMMANDS[name], folder, temporary)
            time.sleep(chance.uniform(0.2, 0.9) * seconds[name])
            for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
                with suppress(ProcessLookupError, FileNotFoundError):
                    if b"resource_tracker" not in Path(f"/proc/{child}/cmdline").read_bytes():  # Python's own.
                        os.kill(int(child), signal.SIGKILL)
            judge(name, "its workers killed", ended(process, folder, temporary), before, folder, False)
    for name in COMMANDS:
        for disk in DISKS:
            progress(name, f"files of {disk >> 10} KiB at most")
            with places() as (folder, temporary):
                before = older(COMMANDS[name], folder)
                run = ended(begun(COMMANDS[name], folder, temporary, disk), folder, temporary)
                judge(name, f"files of {disk >> 10} KiB at most", run, before, folder, False)
                if run.status:
                    click.echo(f"    {name}: {run.complaints.strip()}", err=True)
    click.echo(f"{sum(statuses.values())} runs, {faults or 'no'} faults; statuses {dict(sorted(statuses.items()))}")
    sys.exit(faults > 0)


if __name__ == "__main__":
    main()
