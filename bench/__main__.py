"""Runs commands of rdmascope and of tshark in turn on the same files: ``python -m bench [-h] [ROW]...``.

Prints how the rows of :mod:`bench.rows` stand, start-up included: the median of several runs, and, of the warm-up
before them, the largest resident memory of all processes together.  Exits with 1 where a bar is missed.

This process stays small on purpose: the kernel counts what a child inherits into the child's largest memory.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bench.rows import MEMORY, PROGRAMS, REPORT, ROWS, Command, Row

WORK = Path(__file__).parent / "work"
RDMASCOPE = Path(sys.executable).with_name("rdmascope")
SOURCES = [str(Path(__file__).parents[1] / name) for name in ("captures", "cli", "dissect", "rdmascope")]
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
"""An installed program has its modules compiled; the warm-up compiles those of a working tree."""
FINDINGS_STATUS = 1
"""What a command of ``JUDGING`` exits with where it has found something."""
JUDGING = {"audit", "diagnose"}


class Run(NamedTuple):
    seconds: float
    processor: float
    """Seconds of processor time, of all its processes."""
    memory: int
    """KiB; 0 where it was not watched."""
    output: str
    """Of the warm-up; empty for the runs that are timed."""


def run(command: Command, path: Path, watch: bool = False) -> Run:
    """``watch``: look at the memory again and again, which costs some of the time, and keep the output."""
    program = str(RDMASCOPE) if command[0] == "rdmascope" else shutil.which(command[0]) or command[0]
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryDirectory(dir=WORK) as folder:
        to_output = (os.POSIX_SPAWN_DUP2, output.fileno(), 1)
        to_nowhere = (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)
        words = (program, *(word.replace("{folder}", folder) for word in command[1:]), str(path))
        begun = time.perf_counter()
        pid = os.posix_spawn(program, words, ENVIRONMENT, file_actions=[to_output, to_nowhere])
        memory = most_memory(pid) if watch else 0
        _, status, usage = os.wait4(pid, 0)
        seconds = time.perf_counter() - begun
        if os.waitstatus_to_exitcode(status) not in {0, FINDINGS_STATUS if command[1] in JUDGING else 0}:
            sys.exit(f"failed: {' '.join(words)}")
        output.seek(0)
        kept = output.read() if watch and command in {REPORT, PROGRAMS} else ""
        return Run(seconds, usage.ru_utime + usage.ru_stime, memory, kept)


def most_memory(pid: int) -> int:
    """Sum of the most that a process and its children had resident until its end, in KiB; shared pages count twice."""
    most: dict[int, int] = {}
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        try:
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            for one in (pid, *map(int, children)):
                found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{one}/status").read_text())
                most[one] = max(most.get(one, 0), int(found[1]) if found else 0)
        except OSError:
            pass  # one of them has just ended
        time.sleep(0.005)
    return sum(most.values())


def measure(path: Path, commands: list[Command], runs: int) -> dict[Command, Run]:
    """The medians of every command on one file, run in turn, so that what else the machine does meets them alike."""
    results: dict[Command, list[Run]] = {command: [] for command in commands}
    for number in range(runs + 1):
        for command in commands:
            results[command].append(run(command, path, watch=not number))
    return {
        command: warm._replace(
            seconds=median(one.seconds for one in timed), processor=median(one.processor for one in timed)
        )
        for command, (warm, *timed) in results.items()
    }


def calls_of_rdmascope(output: str) -> tuple[int, int, int, int]:
    """Frames, RPC calls, those without a reply, and packets or segments that were retransmitted."""
    records = [json.loads(line) for line in output.splitlines()]
    capture = next(record for record in records if record["type"] == "capture")
    retransmitted = sum(
        record[end]["retransmitted_packets"] or record[end]["retransmitted_segments"] or 0
        for record in records
        if record["type"] == "connection"
        for end in ("active", "passive")
    )
    states = capture["states"]
    return capture["frames"], capture["rpcs"] - states.get("no call", 0), states.get("no reply", 0), retransmitted


def calls_of_tshark(output: str) -> int:
    return sum(int(row[1]) for row in re.finditer(r"^\S+\(\d+\)\s+\d+\s+(\d+)", output, re.MULTILINE))


def agreement(measured: dict[Command, Run]) -> dict[str, int | bool]:
    """Whether both count the same RPCs; tshark counts a call once it has a reply, and retransmitted ones again."""
    if not measured.keys() >= {REPORT, PROGRAMS}:
        return {}
    frames, calls, unanswered, retransmitted = calls_of_rdmascope(measured[REPORT].output)
    counted = calls_of_tshark(measured[PROGRAMS].output)
    agree = calls - unanswered <= counted <= calls + retransmitted
    return {"frames": frames, "calls": calls, "calls_tshark": counted, "calls_agree": agree}


def verdict(row: Row, measured: dict[Command, Run]) -> dict[str, object]:
    """One row as a record: figures, bars, and whether they are kept."""
    ours, against, larger = measured[row.ours], measured[row.against], measured[row.memory or row.against]
    speed = against.seconds / ours.seconds if row.elapsed else against.processor / ours.processor
    memory = ours.memory / larger.memory
    return {
        "row": row.name,
        "input": row.input,
        "bytes": (WORK / f"{row.input}.pcap").stat().st_size,
        "command": " ".join(row.ours),
        "against": " ".join(row.against),
        "seconds": round(ours.seconds, 3),
        "against_seconds": round(against.seconds, 3),
        "processor_seconds": round(ours.processor, 3),
        "against_processor_seconds": round(against.processor, 3),
        "speed": round(speed, 3),
        "speed_bar": row.speed,
        "speed_kept": speed >= row.speed,
        "memory_kib": ours.memory,
        "against_memory_kib": larger.memory,
        "memory": round(memory, 4),
        "memory_bar": round(MEMORY, 4),
        "memory_limit_kib": row.limit and row.limit << 10,
        "memory_kept": (row.memory is None or memory < MEMORY) and (row.limit is None or ours.memory < row.limit << 10),
    }


HEADINGS = ("row", "seconds", "against", "speed", "bar", "CPU s", "against", "MiB", "against", "part", "bar", "")
WIDTHS = (20, 8, 8, 6, 5, 7, 8, 6, 8, 6, 6, 6)


def print_row(record: dict[str, object]) -> None:
    def number(name: str) -> float:
        return float(str(record[name]))

    cells = (
        str(record["row"]),
        f"{number('seconds'):.2f}",
        f"{number('against_seconds'):.2f}",
        f"{number('speed'):.2f}",
        f"{number('speed_bar'):g}",
        f"{number('processor_seconds'):.2f}",
        f"{number('against_processor_seconds'):.2f}",
        f"{number('memory_kib') / 1024:.0f}",
        f"{number('against_memory_kib') / 1024:.0f}",
        f"{number('memory'):.3f}",
        f"{number('memory_bar'):.3f}",
        "ok" if kept(record) else "MISSED",
    )
    print_cells(cells)


def print_cells(cells: tuple[str, ...]) -> None:
    name, *rest = (f"{cell:>{width}}" for cell, width in zip(cells, WIDTHS, strict=True))
    print(f"{name.strip():<{WIDTHS[0]}}", *rest, flush=True)


def kept(record: dict[str, object]) -> bool:
    return bool(record["speed_kept"] and record["memory_kept"] and record.get("calls_agree", True))


def processor_model() -> str:
    try:
        found = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    except OSError:
        found = None
    return found[1] if found else platform.machine()


def main() -> None:
    names = [row.name for row in ROWS]
    parser = argparse.ArgumentParser(prog="python -m bench", description="Speed and memory beside tshark.")
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"only these, or those of an input: {', '.join(names)}")
    parser.add_argument("--runs", type=int, default=int(os.environ.get("RUNS", "5")), help="timed runs (5)")
    parser.add_argument("--json", type=Path, default=WORK / "results.json", help="file for the figures (%(default)s)")
    options = parser.parse_args()
    unknown = {name for name in options.rows if not any(name in (row.name, row.input) for row in ROWS)}
    if unknown:
        parser.error(f"no row or input is called {', '.join(sorted(unknown))}")
    if shutil.which("tshark") is None:
        sys.exit("tshark is needed to compare with: apt install tshark")
    rows = [row for row in ROWS if (row.name in options.rows or row.input in options.rows or not options.rows)]
    rows = [row for row in rows if options.rows or row.usual]
    subprocess.run([sys.executable, "-m", "bench.build", *dict.fromkeys(row.input for row in rows)], check=True)
    # As it is where pip installed it; in an editable installation the first run would do it, where it may write.
    subprocess.run([sys.executable, "-m", "compileall", "-q", *SOURCES], check=True)

    print(f"median of {options.runs} runs after a warm-up; speed: ratio of CPU seconds; part: of the other's memory")
    print_cells(HEADINGS)
    records: list[dict[str, object]] = []
    for name, group in groupby(rows, key=lambda row: row.input):
        of_input = list(group)
        commands = dict.fromkeys(
            command for row in of_input for command in (row.ours, row.against, row.memory or row.against)
        )
        measured = measure(WORK / f"{name}.pcap", list(commands), options.runs)
        counted = agreement(measured)
        for row in of_input:
            records.append(verdict(row, measured) | counted)
            print_row(records[-1])
        if not counted.get("calls_agree", True):
            print(f"{name}: {counted['calls']:,} RPC calls, and tshark counts {counted['calls_tshark']:,}")
    machine = {"processor": processor_model(), "processors": os.cpu_count(), "python": platform.python_version()}
    options.json.write_text(json.dumps({"runs": options.runs, **machine, "rows": records}, indent=2) + "\n")
    sys.exit(not all(map(kept, records)))


if __name__ == "__main__":
    main()
