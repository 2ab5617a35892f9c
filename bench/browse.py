"""How fast ``rdmascope browse`` is: ``python -m bench.browse``.

Opens a bulk capture, and a table of a million RPCs, without a terminal; each key is timed until the screen is drawn.
Prints a line for each figure with its bar, and exits with 1 where one is missed.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from statistics import median
from tempfile import NamedTemporaryFile

from textual.pilot import Pilot

from bench import build
from rdmascope.captures.tables.browsed_tables import LATER, BrowsedTables
from rdmascope.cli.browse.app import BrowseApp
from rdmascope.cli.browse.filling import BrowsedCapture, BrowseFeed
from rdmascope.cli.reading import analyzer_options

WORK = Path(__file__).parent / "work"
SAMPLE = Path(__file__).parents[1] / "captures" / "samples" / "rxe-nfs-all.pcap.zst"
MILLION = 1_000_000
KEY, FILTER, FIRST_ROWS = 0.1, 0.5, 1.0
"""Bars: seconds from a key to its picture, seconds of a filter, seconds to the first rows."""
RUNS = 5
"""Of which the fastest counts: what else runs on the machine only ever makes one slower."""
TABLES_AS_BROWSED = "SELECT * FROM rpcs; SELECT * FROM connections; SELECT * FROM findings"
"""What is asked of ``sql``, whose memory is the bar."""
SIZE = (160, 50)


def grow(tables: BrowsedTables) -> None:
    """Make a million RPCs of those that are there."""
    (count,) = tables.connection.execute("SELECT count(*) FROM rpcs").fetchall()[0]
    tables.connection.execute(
        f"""INSERT INTO rpcs SELECT rpcs.* REPLACE (
            number + {count} * copy AS number, time_ns + copy * 100000000 AS time_ns,
            (latency_ns * (0.5 + random()))::BIGINT AS latency_ns, path || '/' || copy % 1000 AS path)
        FROM rpcs, range(1, {MILLION // count + 1}) copies(copy)"""
    )


async def until(pilot: Pilot[None], happened: Callable[[], object]) -> float:
    """Seconds until something is so."""
    begun = time.perf_counter()
    while not happened():
        await asyncio.sleep(0.001)
    return time.perf_counter() - begun


async def key(app: BrowseApp, name: str) -> float:
    """Seconds from a key to the picture after it."""
    before, begun = app.listed.cursor, time.perf_counter()
    app.simulate_key(name)
    while app.listed.cursor == before:
        await asyncio.sleep(0)
    app.screen._compositor.render_strips()
    return time.perf_counter() - begun


def resident(pid: int) -> int:
    """Bytes of a process and all below it; what they share counts for a part of each."""
    total = 0
    with suppress(OSError):  # It may end meanwhile.
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += 1024 * int(line.split()[1])
        for thread in Path(f"/proc/{pid}/task").iterdir():
            total += sum(resident(int(child)) for child in (thread / "children").read_text().split())
    return total


async def a_million() -> dict[str, tuple[float, float]]:
    """Seconds and bars of keys and filters."""
    with closing(BrowseFeed(BrowsedCapture((str(SAMPLE),), analyzer_options((), None)))) as feed:
        app = BrowseApp(feed)
        async with app.run_test(size=SIZE) as pilot:
            await until(pilot, lambda: {"rpcs", "findings", *LATER} <= app.finished)
            grow(feed.tables)
            app.reorder()
            await until(pilot, lambda: app.listed.count > MILLION)
            scrolled = [
                await key(app, name) for name in (*["pagedown"] * 40, "G", *["pageup"] * 40, "g", *["down"] * 40)
            ]
            app._sort_by("latency")
            sorted_ = await until(pilot, lambda: app.listed.chosen and app.listed.cursor == 0 and _slowest(app))
            scattered = [await key(app, name) for name in (*["pagedown"] * 40, "G", "g")]
            app.filter_by("latency_ns > 40ms AND path LIKE '%/77%'")
            filtered = await until(pilot, lambda: app.listed.count < MILLION)
            return {
                "key to picture, median": (median(scrolled), KEY),
                "key to picture, worst": (max(scrolled), KEY),
                "the same in a sorted list, worst": (max(scattered), KEY),
                "sort of a million RPCs": (sorted_, FILTER),
                "filter over a million RPCs": (filtered, FILTER),
            }


def _slowest(app: BrowseApp) -> bool:
    first, second = app.listed.row(0), app.listed.row(1)
    return first is not None and second is not None and first["latency_ns"] >= second["latency_ns"] > 0


def bulk(path: Path) -> dict[str, tuple[float, float]]:
    """Seconds until the first rows and until the list is complete, beside ``report``; most bytes, beside ``sql``.

    The commands are programs of their own, timed in turn: from their start, ``report`` to its end.
    """
    program = str(Path(sys.executable).with_name("rdmascope"))
    reports, firsts, opened = [], [], []
    with NamedTemporaryFile() as output:
        for _ in range(RUNS):
            begun = time.perf_counter()
            subprocess.run([program, "report", path], check=True, stdout=output)
            reports.append(time.perf_counter() - begun)
            first, last = on_a_terminal([program, "browse", str(path)])
            firsts.append(first)
            opened.append(last)
        sql = subprocess.Popen([program, "sql", path, TABLES_AS_BROWSED], stdout=output)
        of_sql = 0
        while sql.poll() is None:
            of_sql = max(of_sql, resident(sql.pid))
            time.sleep(0.02)
    return {
        "first rows of a bulk capture": (min(firsts), FIRST_ROWS),
        "all rows of a bulk capture": (min(opened), min(reports)),
        "memory, GiB": (asyncio.run(most_memory(path)) / (1 << 30), of_sql / (1 << 30)),
    }


def on_a_terminal(command: Sequence[str]) -> tuple[float, float]:
    """Seconds until the first rows, and until the list is complete."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", *reversed(SIZE), 0, 0))
    begun = time.perf_counter()
    environment = {**os.environ, "TERM": "xterm-256color"}
    browse = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=environment)
    os.close(slave)
    shown = ""
    seconds = []
    for words in ("RPCs 1 of", "reading paths"):
        while words not in shown:
            shown += re.sub(r"\x1b\[[\d;?]*\w", "", os.read(master, 1 << 16).decode(errors="replace"))
        seconds.append(time.perf_counter() - begun)
    browse.terminate()
    with suppress(OSError):  # What it still draws would else keep it.
        while os.read(master, 1 << 16):
            pass
    browse.wait()
    os.close(master)
    return seconds[0], seconds[1]


async def most_memory(path: Path) -> int:
    """Bytes of all processes, until everything was read."""
    found = 0
    with closing(BrowseFeed(BrowsedCapture((str(path),), analyzer_options((), None)))) as feed:
        app = BrowseApp(feed)
        async with app.run_test(size=SIZE):
            while not {"rpcs", "findings", *LATER} <= app.finished:
                found = max(found, resident(os.getpid()))
                await asyncio.sleep(0.02)
    return found


def main() -> int:
    build.main(["bulk-4096"])
    missed = False
    for figures in (bulk(WORK / "bulk-4096.pcap"), asyncio.run(a_million())):
        for name, (value, bar) in figures.items():
            missed |= value > bar
            print(f"{name:<36} {value:8.3f}  bar {bar:6.3f}{'  missed' if value > bar else ''}", flush=True)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
