"""Memory and time on a capture larger than memory: ``python -m bench.large [-h] [GIGABYTES]``, ``make bench-large``.

The capture is written once, into ``bench/work``, and read from there as a user would: report, audit, export, sql.
Prints a line for each, start-up included, with the largest resident memory of all its processes together, and exits
with 1 where that is above the bar.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from bench.__main__ import WORK, run
from bench.build import PCAP_HEADER, Packet, only, packets, sample, written
from bench.rows import Command
from bench.variants import masked

BAR = 1_000_000_000
"""Bytes of memory, of all processes."""
GIGABYTES = 20.0
SHORT = 3000
"""Connections of some RPCs each, beside those that come with the rest."""
METADATA = 0.05
"""Part of the rest that is metadata; the others are bulk."""
ROOM = 0.5
"""Free space for tables, in bytes for each of the capture."""
QUERY = "SELECT procedure, count(*) AS calls, quantile_cont(latency_ns, 0.99) AS p99 FROM rpcs GROUP BY ALL ORDER BY 2"


def commands(tables: str) -> dict[str, Command]:
    """By name; the path follows."""
    return {
        "report": ("rdmascope", "report", "--json"),
        "audit": ("rdmascope", "audit"),
        "export": ("rdmascope", "export", "--to", "parquet", "-o", tables),
        "sql": ("rdmascope", "sql", "-q", QUERY),
    }


class Repeated:
    """A sample that is repeated as further connections, each time later."""

    def __init__(self, source: list[Packet]) -> None:
        lower = {packet.lower: masked(packet.lower) for packet in source}
        self.prepared = [(packet, lower[packet.lower]) for packet in source]
        self.first = source[0].time
        self.span = source[-1].time - self.first + 1000

    def write(self, file: BinaryIO, number: int, time: int) -> int:
        """The repetition of this number, from ``time`` (microseconds) on; gives its bytes."""
        frames = b"".join(
            written(packet, covered, number, packet.time - self.first + time) for packet, covered in self.prepared
        )
        file.write(frames)
        return len(frames)


def make(path: Path, size: int) -> None:
    """Write the capture, under its name only when it is whole."""
    metadata = list(packets(sample("meta-rxe")))
    short, quiet, bulk = (
        Repeated(one) for one in (only(metadata, 0x12, 60), metadata, list(packets(sample("rxe-nfs-all"))))
    )
    one_short = sum(len(written(packet, b"", 0, 0)) for packet, _ in short.prepared)
    number = shorts = moved = listed = 0
    time = bulk.first
    unfinished = path.with_suffix(".part")
    with unfinished.open("wb") as file:
        file.write(PCAP_HEADER)
        while True:
            done = len(PCAP_HEADER) + shorts * one_short + moved + listed
            if done >= size:
                break
            if shorts < SHORT * done / size:
                chosen, shorts = short, shorts + 1
            else:
                chosen = quiet if listed < METADATA * (moved + listed) else bulk
            count = chosen.write(file, number, time)
            moved, listed = moved + count * (chosen is bulk), listed + count * (chosen is quiet)
            number, time = number + 1, time + chosen.span
    unfinished.rename(path)


def rows(path: Path) -> Iterator[dict[str, object]]:
    """What each command takes."""
    with tempfile.TemporaryDirectory(prefix="large-", dir=WORK) as folder:
        for name, command in commands(f"{folder}/tables").items():
            found = run(command, path, watch=True)
            yield {
                "command": name,
                "bytes": path.stat().st_size,
                "seconds": round(found.seconds, 1),
                "processor_seconds": round(found.processor, 1),
                "memory_bytes": found.memory << 10,
                "memory_bar": BAR,
                "kept": found.memory << 10 <= BAR,
            }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.large", description=(__doc__ or "").split("\n\n")[1])
    parser.add_argument("gigabytes", nargs="?", type=float, default=GIGABYTES, help="of the capture (%(default)g)")
    parser.add_argument("--delete", action="store_true", help="delete the capture afterwards; it is kept otherwise")
    options = parser.parse_args()
    size = int(options.gigabytes * 1e9)
    path = WORK / f"large-{options.gigabytes:g}.pcap"
    WORK.mkdir(exist_ok=True)
    needed = size * ROOM + (0 if path.exists() else size)
    free = shutil.disk_usage(WORK).free
    if needed > free:
        sys.exit(f"{WORK}: {needed / 1e9:.1f} GB are needed there, and {free / 1e9:.1f} GB are free")
    if not path.exists():
        print(f"making {path.name}", file=sys.stderr)
        make(path, size)
    print(f"{path.name}: {path.stat().st_size / 1e9:.2f} GB; bar: {BAR / 1e9:g} GB of memory over all processes")
    print(f"{'command':<8} {'seconds':>8} {'CPU s':>8} {'MB':>6} {'of bar':>7}")
    measured = []
    for row in rows(path):
        measured.append(row)
        memory = int(str(row["memory_bytes"]))
        print(
            f"{row['command']:<8} {row['seconds']:>8} {row['processor_seconds']:>8} {memory / 1e6:>6.0f}"
            f" {memory / BAR:>7.0%} {'ok' if row['kept'] else 'MISSED'}",
            flush=True,
        )
    (WORK / f"large-{options.gigabytes:g}.json").write_text(json.dumps(measured, indent=2) + "\n")
    if options.delete:
        path.unlink()
    sys.exit(not all(row["kept"] for row in measured))


if __name__ == "__main__":
    main()
