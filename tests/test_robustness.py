"""What goes to an extreme costs in proportion: work and memory at n, 2n and 4n of every capture of playbook.extremes.

``python tests/test_robustness.py [NAME]...`` measures them at their full size and renews docs/robustness.md.
"""

from __future__ import annotations

import os
import sys
import tempfile
import tracemalloc
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path

import pytest

from playbook.commands import run
from playbook.extremes import EXTREMES
from playbook.growth import work

PAPER = Path(__file__).parents[1] / "docs" / "robustness.md"
SMALL = {
    "chunk-list": 2000,
    "connections": 100,
    "calls-in-flight": 300,  # of about 2,000 on they are objects, no rows, and each costs more
    "options": 4000,
    "interfaces": 1000,
    "gzip-bomb": 2000,
    "zstd-bomb": 2000,
}
"""Counts for these tests; of the others 600."""
NOTHING = ("gzip-bomb", "zstd-bomb")
"""There is no RDMA in them."""
LINEAR = 2.6
FEW_LINES = 4000
FEW_BYTES = 1 << 20
"""What batches and tables take whatever their size: growth within it says nothing."""
MARK = "<!-- measured -->"


def captures(name: str, folder: Path, size: int) -> list[Path]:
    paths = [folder / f"{name}-{factor}" for factor in (1, 2, 4)]
    for factor, path in zip((1, 2, 4), paths, strict=True):
        EXTREMES[name].write(size * factor, path)
    return paths


def reported(path: Path) -> None:
    result = run("report", str(path), "--json")
    assert result.exit_code == 2 * path.name.startswith(NOTHING), result.stderr


@pytest.mark.parametrize("name", EXTREMES)
def test_work_and_memory_grow_in_proportion(name: str, tmp_path: Path) -> None:
    paths = captures(name, tmp_path, SMALL.get(name, 600))
    reported(paths[-1])  # modules and tables that are made once
    works = [work(lambda path=path: reported(path)) for path in paths]  # type: ignore[misc]
    for less, more in pairwise(works):
        assert more < LINEAR * less + FEW_LINES, works
    peaks = []
    for path in paths:
        tracemalloc.start()
        reported(path)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    for less, more in pairwise(peaks):
        assert more < LINEAR * less + FEW_BYTES, peaks


def test_the_page_has_a_row_for_every_extreme() -> None:
    rows = [line.split("|") for line in PAPER.read_text().splitlines() if line.startswith("| `")]
    assert [row[1].strip(" `") for row in rows] == [*EXTREMES]
    assert [row[2].strip() for row in rows] == [one.what for one in EXTREMES.values()]
    assert [row[3].strip() for row in rows] == [f"{one.size:,}" for one in EXTREMES.values()]


def measured(path: Path) -> tuple[float, int]:
    """Seconds of processor time and MiB of ``report --json``."""
    program = str(Path(sys.executable).with_name("rdmascope"))
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    nowhere = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_WRONLY, 0) for number in (1, 2)]
    pid = os.posix_spawn(program, [program, "report", "--json", str(path)], environment, file_actions=nowhere)
    _, status, usage = os.wait4(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 2 * path.name.startswith(NOTHING), path
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss >> 10


def row(name: str) -> str:
    one = EXTREMES[name]
    # What a process has in memory counts as that of its children: captures are made by another.
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(1, get_context("spawn")) as maker:
        found = [measured(path) for path in maker.submit(captures, name, Path(folder), one.size // 4).result()]
    seconds = ", ".join(f"{cost:.3g}" for cost, _ in found)
    memory = ", ".join(str(size) for _, size in found)
    return f"| `{name}` | {one.what} | {one.size:,} | {seconds} | {memory} |"


def renew(names: list[str]) -> None:
    lines = PAPER.read_text().splitlines()
    for name in names or EXTREMES:
        mine = next((at for at, line in enumerate(lines) if line.startswith(f"| `{name}` |")), None)
        text = row(name)
        print(text, flush=True)
        if mine is None:
            mine = lines.index(MARK)
            lines.insert(mine, text)
        else:
            lines[mine] = text
    PAPER.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    renew(sys.argv[1:])
