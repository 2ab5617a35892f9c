"""How fast ``rdmascope browse`` is: ``python -m bench.browse``.

Opens a bulk capture, and a table of a million RPCs, without a terminal; each key is timed until the screen is drawn.
Prints a line for each figure with its bar, and exits with 1 where one is missed.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from statistics import median
from tempfile import NamedTemporaryFile

from textual.pilot import Pilot

from bench import build
from rdmascope.captures.browsed_columns import LATER
from rdmascope.captures.browsed_tables import BrowsedTables
from rdmascope.cli.browse.app import BrowseApp
from rdmascope.cli.browse.feed import BrowseFeed
from rdmascope.cli.browse.filling import BrowsedCapture
from rdmascope.cli.reading import analyzer_options

WORK = Path(__file__).parent / "work"
SAMPLE = Path(__file__).parents[1] / "captures" / "samples" / "rxe-nfs-all.pcap.zst"
MILLION = 1_000_000
KEY, FILTER, FIRST_ROWS, MEMORY = 0.1, 0.5, 1.0, 1 << 30
"""Bars: seconds from a key to its picture, seconds of a filter, seconds to the first rows, bytes of all processes."""
OPENED = 1.5
"""How many times as long as ``report`` takes the list may take to be complete."""
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
    """Bytes of a process and its children; what they share counts for a part of each."""
    total = 0
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    for one in (pid, *map(int, children)):
        for line in Path(f"/proc/{one}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += 1024 * int(line.split()[1])
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
            app.filter_by("latency_ms > 40 AND path LIKE '%/77%'")
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


async def bulk(path: Path) -> dict[str, tuple[float, float]]:
    """Seconds until the first rows, and until the list is complete, beside ``report``."""
    program = Path(sys.executable).with_name("rdmascope")
    begun = time.perf_counter()
    with NamedTemporaryFile() as output:
        subprocess.run([program, "report", path], check=True, stdout=output)
    report = time.perf_counter() - begun
    begun = time.perf_counter()
    with closing(BrowseFeed(BrowsedCapture((str(path),), analyzer_options((), None)))) as feed:
        app = BrowseApp(feed)
        async with app.run_test(size=SIZE) as pilot:
            await until(pilot, lambda: app.listed.count)
            first = time.perf_counter() - begun
            await until(pilot, lambda: "rpcs" in app.finished)
            opened = time.perf_counter() - begun
            memory = resident(os.getpid())
    return {
        "first rows of a bulk capture": (first, FIRST_ROWS),
        "all rows of a bulk capture": (opened, OPENED * report),
        "memory, GiB": (memory / (1 << 30), MEMORY / (1 << 30)),
    }


def main() -> int:
    build.main(["bulk-4096"])
    missed = False
    for figures in (asyncio.run(bulk(WORK / "bulk-4096.pcap")), asyncio.run(a_million())):
        for name, (value, bar) in figures.items():
            missed |= value > bar
            print(f"{name:<36} {value:8.3f}  bar {bar:6.3f}{'  missed' if value > bar else ''}", flush=True)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
