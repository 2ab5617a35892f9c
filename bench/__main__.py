"""Runs ``rdmascope report --json`` and ``tshark -2 -q -z rpc,programs`` in turn on the same files.

Prints ratios, start-up included: the median of several runs, and, of the warm-up before them, the largest resident
memory of all processes together.  Exits with 1 where a requirement is missed.  RUNS in the environment says how many
runs; 5 without.

This process stays small on purpose: the kernel counts what a child inherits into the child's largest memory.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import NamedTuple

WORK = Path(__file__).parent / "work"
RDMASCOPE = Path(sys.executable).with_name("rdmascope")
SOURCES = [str(Path(__file__).parents[1] / name) for name in ("captures", "cli", "dissect", "rdmascope")]

SPEED = {"bulk-4096": 3.0, "bulk-1024": 3.0, "metadata": 1.0}
"""Input -> how many times as fast as tshark it has to be."""
MEMORY = 1 / 3
"""The part of tshark's memory that must not be reached."""


class Run(NamedTuple):
    seconds: float
    memory: int
    """KiB; 0 where it was not watched."""
    output: str


def run(*command: str, watch: bool = False) -> Run:
    """``watch``: look at the memory again and again, which costs some of the time."""
    with tempfile.TemporaryFile("w+") as output:
        to_output = (os.POSIX_SPAWN_DUP2, output.fileno(), 1)
        to_nowhere = (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)
        begun = time.perf_counter()
        pid = os.posix_spawn(command[0], command, os.environ, file_actions=[to_output, to_nowhere])
        memory = most_memory(pid) if watch else 0
        _, status = os.waitpid(pid, 0)
        seconds = time.perf_counter() - begun
        if os.waitstatus_to_exitcode(status):
            sys.exit(f"failed: {' '.join(command)}")
        output.seek(0)
        return Run(seconds, memory, output.read())


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


def calls_of_rdmascope(output: str) -> tuple[int, int, int]:
    """Frames, RPC calls, and packets or segments that were retransmitted."""
    records = [json.loads(line) for line in output.splitlines()]
    capture = next(record for record in records if record["type"] == "capture")
    retransmitted = sum(
        record[end]["retransmitted_packets"] or record[end]["retransmitted_segments"] or 0
        for record in records
        if record["type"] == "connection"
        for end in ("active", "passive")
    )
    return capture["frames"], capture["rpcs"] - capture["states"].get("no call", 0), retransmitted


def calls_of_tshark(output: str) -> int:
    return sum(int(row[1]) for row in re.finditer(r"^\S+\(\d+\)\s+\d+\s+(\d+)", output, re.MULTILINE))


def compare(name: str, tshark: str, runs: int) -> bool:
    """Print one input's ratios; False where a requirement is missed."""
    path = WORK / f"{name}.pcap"
    ours: list[Run] = []
    theirs: list[Run] = []
    for number in range(runs + 1):
        ours.append(run(str(RDMASCOPE), "report", "--json", str(path), watch=not number))
        theirs.append(run(tshark, "-2", "-q", "-z", "rpc,programs", "-r", str(path), watch=not number))
    frames, calls, retransmitted = calls_of_rdmascope(ours[0].output)
    counted = calls_of_tshark(theirs[0].output)
    speed = median(one.seconds for one in theirs[1:]) / median(one.seconds for one in ours[1:])
    memory = ours[0].memory / theirs[0].memory
    # tshark counts a call once more when its packet was retransmitted.
    agree = calls <= counted <= calls + retransmitted
    compared = (
        "as many as" if counted == calls else f"{counted - calls} fewer, retransmitted, than" if agree else "NOT as"
    )
    print(
        f"{name}: {path.stat().st_size / 1e6:,.0f} MB, {frames:,} frames, {calls:,} RPC calls, {compared} tshark counts"
    )
    wanted = SPEED[name]
    fast, small = speed >= wanted, memory < MEMORY
    print(f"  {'ok    ' if fast else 'MISSED'} {speed:5.2f} times as fast as tshark (at least {wanted:g})")
    print(f"  {'ok    ' if small else 'MISSED'} {memory:5.3f} of its memory (below {MEMORY:.3f})", flush=True)
    return fast and small and agree


def main() -> None:
    tshark = shutil.which("tshark")
    if tshark is None:
        sys.exit("tshark is needed to compare with: apt install tshark")
    runs = int(os.environ.get("RUNS", "5"))
    subprocess.run([sys.executable, "-m", "bench.build"], check=True)
    # As it is where pip installed it; in an editable installation the first run would do it, where it may write.
    subprocess.run([sys.executable, "-m", "compileall", "-q", *SOURCES], check=True)
    print(f"median of {runs} runs after a warm-up")
    passed = [compare(name, tshark, runs) for name in SPEED]
    sys.exit(not all(passed))


if __name__ == "__main__":
    main()
