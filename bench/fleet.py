"""A data set of ten thousand captures: what commands take of it, beside one of a tenth and of a hundredth.

    python -m bench.fleet [CAPTURES] [HOSTS] [DAYS]

It is grown from real captures, analysed once each: their rows with other hosts, clients, times, XIDs and numbers.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from rdmascope.captures.fleet.batch import analyse, prepare, units
from rdmascope.captures.tables import saved_tables
from rdmascope.captures.tables.saved_tables import (
    CALLS,
    CAPTURES,
    COUNTED,
    MINUTE,
    STATEMENTS,
    SUMS,
    CaptureEntry,
    DataFile,
    DataSet,
    view_of,
)
from rdmascope.dissect.records.rpc_columns import named
from rdmascope.dissect.records.tables import TABLES
from rdmascope.dissect.rpcrdma.analyzer import Options

WORK = Path(__file__).parent / "work"
SAMPLES = Path(__file__).parents[1] / "captures" / "samples"
SOURCES = ("nconnect-rxe", "ipv6-rxe", "longcall-rxe", "krb5-rxe", "loss-rxe", "v2-settles")
BEGIN = date(2026, 11, 1)
DAY = 86_400 * 10**9
BARS = {"report": (3.0, 300), "sql count": (0.5, 300), "report --since": (1.0, 300)}
"""Seconds and MB."""


def seed(path: Path) -> DataSet:
    """A data set of the samples."""
    prepare(str(path))
    for name in SOURCES:
        (unit,) = units([str(SAMPLES / f"{name}.pcap.zst")])
        assert not analyse(unit, str(path), Options()).problem
    return DataSet(str(path))


def grow(path: Path, captures: int, hosts: int, days: int) -> DataSet:
    """A data set of so many captures, evenly over hosts and days."""
    source = seed(path.with_name(f"{path.name}-seed"))
    prepare(str(path))
    target, begun = DataSet(str(path)), source.snapshot()
    reached, seeds = dict.fromkeys(COUNTED, 0), source.entries()
    made: list[DataFile] = []
    for day in range(days):
        when = BEGIN + timedelta(days=day)
        entries: list[CaptureEntry] = []
        grown = []
        for number in range(captures * day // days, captures * (day + 1) // days):
            one, host = seeds[number % len(seeds)], f"host{number % hosts:03}"
            at = (when - date(1970, 1, 1)).days * DAY + (number * 7919 % 86_000) * 10**9
            shift = (at - one.first_time_ns) // MINUTE * MINUTE
            at = one.first_time_ns + shift
            before: dict[str, Any] = {f"{name}_before": reached[name] for name in COUNTED}
            entries.append(
                replace(
                    one, capture=f"{number:024x}", host=host, paths=(f"/ring/{host}/{number}.pcap",),
                    first_time_ns=at, last_time_ns=one.last_time_ns + shift,
                    **before,
                )
            )  # fmt: skip
            moved = [reached[name] - getattr(one, f"{name}_before") for name in COUNTED]
            client = f"10.{number % hosts >> 8}.{number % hosts & 255}.5"
            grown.append((one.capture, f"{number:024x}", host, client, number, shift, *moved))
            reached = {name: reached[name] + getattr(one, name) for name in COUNTED}
        made += _day(source, target, begun, when.isoformat(), entries, grown)
    target.commit(lambda now: replace(now.with_files(made), reached=reached))
    return target


def _day(
    source: DataSet, target: DataSet, begun: saved_tables.DataSetSnapshot, day: str,
    entries: list[CaptureEntry], grown: list[tuple[object, ...]],
) -> list[DataFile]:  # fmt: skip
    made: list[DataFile | None] = []
    with saved_tables._Writer(target) as writer:
        moved = ", ".join(f"{name} BIGINT" for name in COUNTED)
        writer.connection.execute(
            "CREATE TABLE grown (of VARCHAR, capture VARCHAR, host VARCHAR, client VARCHAR, k BIGINT, shift BIGINT,"
            f" {moved})"
        )
        writer.connection.executemany(f"INSERT INTO grown VALUES ({', '.join('?' * len(grown[0]))})", grown)
        saved_tables.make_captures(writer.connection, entries)
        times = min(one.first_time_ns for one in entries), max(one.last_time_ns for one in entries)
        hosts = min(one.host for one in entries), max(one.host for one in entries)
        for name in (*TABLES, *SUMS, STATEMENTS):
            if files := begun.of(name):
                rows = view_of(name, files, begun, source.opened_by(writer.connection, begun))
                columns = ", ".join(_columns(name))
                there = f"(SELECT * {rows}) AS t JOIN grown AS g ON t.capture = g.of"
                order = "kind, " * (name == "details") + "g.host, g.k"
                query = f"SELECT {columns}, g.host, g.capture FROM {there} ORDER BY {order}"
                made.append(writer.write(name, day, query, times, hosts))
        made.append(writer.write(CAPTURES, day, f"FROM {CAPTURES} ORDER BY host, rpcs_before", times, hosts))
        writer.put()
    return [one for one in made if one is not None]


def _columns(name: str) -> list[str]:
    """Of the rows of a table, moved."""
    if name in SUMS:
        moved = f"""t.connection + g.connections AS connection, g.client AS client, t.time_ns + g.shift AS time_ns,
            t.minute + g.shift // {MINUTE} AS minute"""
        moved += ", t.number + g.rpcs AS number, t.ended_ns + g.shift AS ended_ns" if name == CALLS else ""
        return [f"t.* EXCLUDE (host, capture, day) REPLACE ({moved})"]
    if name == STATEMENTS:
        listed = [(one.split()[0], "") for one in saved_tables.STATEMENT_COLUMNS.split(", ")][:-2]
    else:
        listed = [(one.name, one.type) for one in TABLES[name].columns]
    found = []
    for column, type in listed:
        counted = saved_tables._counted(name, column)
        text = f"t.{named(column)}"
        if counted is not None and type == "int":
            text += f" + g.{counted}"
        elif column.endswith("time_ns") or column == "since_ns":
            text += " + g.shift"
        elif type == "time":
            text = f"make_timestamp_ns(epoch_ns({text}) + g.shift)"
        elif column == "content" and name == "details":
            text = f"""regexp_replace({text}, '"(10.77.0.2|fd77::2|192.0.2.2)"', '"' || g.client || '"', 'g')"""
            for key in ("first_time", "earliest_time", "last_time"):
                time = f"""regexp_extract({text}, '"{key}":([0-9]+)', 1)"""
                moved = f"""replace({text}, '"{key}":' || {time}, '"{key}":' || ({time}::BIGINT + g.shift))"""
                text = f"if(t.kind = 'capture', {moved}, {text})"
        elif column == "client":
            text = "g.client"
        elif column == "xid":
            text = f"({text} + g.k * 7919) % 4294967296"
        found.append(f"{text} AS {named(column)}")
    return found


def measure(words: str, *command: str) -> tuple[float, int]:
    """Processor seconds, and the most memory, of a command of the program."""
    process = subprocess.Popen(
        [sys.executable, "-m", "rdmascope", *command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    assert process.stderr is not None
    said = process.stderr.read().decode()
    _, status, used = os.wait4(process.pid, 0)
    if status:
        print(words, said.strip()[-300:])
    return used.ru_utime + used.ru_stime, used.ru_maxrss >> 10


def main(captures: int = 10_000, hosts: int = 500, days: int = 14) -> None:
    sizes = [captures // 100, captures // 10, captures]
    last = (BEGIN + timedelta(days=days - 1)).isoformat()
    for count in sizes:
        path, busy = WORK / f"fleet-{count}", (count - 1) % hosts
        begun = time.process_time()
        for one in (path, path.with_name(f"{path.name}-seed")):
            shutil.rmtree(one, ignore_errors=True)
        grown = multiprocessing.get_context("spawn").Process(target=grow, args=(path, count, hosts, days))
        grown.start()  # Or its memory would count as that of the commands.
        grown.join()
        files = len(DataSet(str(path)).snapshot().files)
        print(f"{count} captures: {files} files, made in {time.process_time() - begun:.0f} s", flush=True)
        more = str(SAMPLES / "v2-falls-back.pcap.zst")
        for words, command in (
            ("sql count", ("sql", str(path), "SELECT count(*) FROM rpcs")),
            ("report", ("report", str(path))),
            ("report --since", ("report", str(path), "--since", last)),
            ("report --client", ("report", str(path), "--since", last, "--client", f"10.{busy >> 8}.{busy & 255}.5")),
            ("rpcs --client", ("rpcs", str(path), "--since", last, "--client", f"10.{busy >> 8}.{busy & 255}.5")),
            ("report -o", ("report", str(path), "-o", str(path.with_suffix(".html")))),
            ("compare --span", ("compare", str(path), "--span", f"/{last}", "--span", f"{last}/")),
            ("report --by host,day", ("report", str(path), "--by", "host,day")),
            ("report --over-time", ("report", str(path), "--over-time")),
            ("diagnose", ("diagnose", str(path), "--fail-on", "never")),
            ("batch of one more", ("batch", more, "-o", str(path), "-j", "1")),
        ):
            seconds, megabytes = measure(words, *command)
            bar = BARS.get(words, (0, 0))
            over = " OVER" if bar[0] and (seconds > bar[0] or megabytes > bar[1]) else ""
            print(f"  {words:22} {seconds:6.2f} s {megabytes:5} MB{over}", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
