"""RPCs in groups, over time and against service levels: the numbers of SQL, and those of a plain recomputation."""

from __future__ import annotations

import json
from collections import defaultdict
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from hypothesis import given, strategies as st

from playbook.samples import SAMPLES
from rdmascope.captures.session.grouping import export_of, parse_group_keys
from rdmascope.cli.main import main
from rdmascope.dissect.measure import call_groups
from rdmascope.dissect.measure.call_groups import (
    FAIL,
    PASS,
    UNDECIDABLE,
    CallColumns,
    ServiceLevelCounts,
    parse_service_level,
)
from rdmascope.dissect.onc.rpc_header import procedure_label, program_label
from rdmascope.dissect.rpcrdma.rpc_table import ProcedureNames, RpcNames

EVERYTHING = str(SAMPLES / "rxe-nfs-all.pcap.zst")
LOSS = str(SAMPLES / "loss-rxe.pcap.zst")
SECOND = 1_000_000_000


def run(*arguments: str, columns: int = 80) -> Result:
    return CliRunner(env={"COLUMNS": str(columns)}).invoke(main, list(arguments))


def objects(*arguments: str) -> list[dict[str, Any]]:
    done = run(*arguments, "--json")
    assert done.exit_code in (0, 1, 3), done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def nearest_rank(latencies: list[int], percent: int) -> int:
    return sorted(latencies)[-(-len(latencies) * percent // 100) - 1]


BY = {
    "client": "client",
    "server": "server",
    "connection": "connection",
    "path": "path",
    "user": '"user"',
    "linux_operation": "linux_operation",
    "slot": "slot || ' of ' || session",
    "5s": "(time_ns - FIRST) // 5000000000 * 5000000000 + FIRST",
}


@cache
def grouped(capture: str) -> dict[str, dict[Any, dict[str, Any]]]:
    """What SQL sums up for each of BY, by its key."""
    sums = "count(*) AS rpcs, count(*) FILTER (failed) AS errors, sum(call_bytes) AS call_bytes, "
    sums += "sum(reply_bytes) AS reply_bytes, sum(waiting_ns) AS total, max(waiting_ns) AS longest, "
    sums += "sum(server_ns) AS server, count(*) FILTER (state NOT IN ('complete', 'error')) AS incomplete"
    first = objects("report", capture)[0]["first_time_ns"]
    queries = (
        f"SELECT '{by}' AS \"by\", {key.replace('FIRST', str(first))} AS key, {sums} FROM rpcs"
        " WHERE state <> 'duplicate reply' GROUP BY key"
        for by, key in BY.items()
    )
    groups: dict[str, dict[Any, dict[str, Any]]] = defaultdict(dict)
    for row in objects("sql", capture, "; ".join(queries)):
        groups[row["by"]][row["key"]] = row
    return groups


@pytest.mark.parametrize("capture", [EVERYTHING, LOSS])
@pytest.mark.parametrize("by", BY)
def test_groups_are_those_of_sql(capture: str, by: str) -> None:
    wanted = grouped(capture)[by]
    found = objects("report", capture, "--by", by)
    assert len(found) == len(wanted)
    for group in found:
        (value,) = group["by"].values()
        row = wanted[value]
        for name in ("rpcs", "errors", "incomplete", "call_bytes", "reply_bytes"):
            assert group[name] == row[name], name
        latency = group["latency"]
        assert (latency and latency["total_ns"]) == row["total"]
        assert (latency and latency["max_ns"]) == row["longest"]
        assert group["parts"]["server_ns"] == (row["server"] or 0)
    assert sum(group["time_share"] for group in found) == pytest.approx(1)


@pytest.mark.parametrize("capture", [EVERYTHING, LOSS])
def test_percentiles_are_those_of_a_plain_recomputation(capture: str) -> None:
    by_connection: dict[int, list[int]] = defaultdict(list)
    for rpc in objects("rpcs", capture, "--where", "number > 5"):
        if rpc["waiting_ns"] is not None:
            by_connection[rpc["connection"]].append(rpc["waiting_ns"])
    for group in objects("report", capture, "--by", "connection", "--where", "number > 5"):
        some, latency = by_connection[group["by"]["connection"]], group["latency"]
        assert group["filter"] == "number > 5" and group["percentiles"] == "exact"
        assert latency["count"] == len(some)
        for name, percent in (("median_ns", 50), ("p95_ns", 95), ("p99_ns", 99), ("max_ns", 100)):
            assert latency[name] == nearest_rank(some, percent), name


def test_procedures_are_those_of_the_report() -> None:
    in_report: dict[str, list[int]] = defaultdict(lambda: [0] * 5)
    for one in objects("report", EVERYTHING):
        if one["type"] == "procedure":
            label = program_label(one["program_number"], one["version"], one["minor_version"])
            sums = in_report[f"{label} {procedure_label(one['procedure'] or '', one['operations'])}"]
            values = one["rpcs"], one["failed"], one["call_bytes"], one["reply_bytes"], one["latency"]["total_ns"]
            sums[:] = [before + value for before, value in zip(sums, values, strict=True)]
    names = ("rpcs", "errors", "call_bytes", "reply_bytes")
    found = objects("report", EVERYTHING, "--by", "procedure")
    assert in_report == {
        one["by"]["procedure"]: [*(one[name] for name in names), one["latency"]["total_ns"]] for one in found
    }


def test_several_keys_with_commas_and_repeated() -> None:
    together = objects("report", EVERYTHING, "--by", "connection,procedure", "--by", "10s")
    assert all([*one["by"]] == ["connection", "procedure", "begin_ns"] for one in together)
    assert sum(one["rpcs"] for one in together) == 237
    begins = [one["by"]["begin_ns"] for one in together]
    assert begins == sorted(begins)  # Intervals come in the order of time.


@pytest.mark.parametrize(
    ("column", "value"),
    [("calls", lambda one: one["rpcs"]), ("err", lambda one: one["errors"]),
     ("to server", lambda one: one["call_bytes"]),
     ("p99", lambda one: one["latency"]["p99_ns"]), ("99%", lambda one: one["latency"]["p99_ns"]),
     ("server", lambda one: one["parts"]["server_ns"]), ("time", lambda one: one["time_share"]),
     ("server_ns", lambda one: one["parts"]["server_ns"]), ("total_ns", lambda one: one["latency"]["total_ns"]),
     ("mean", lambda one: one["latency"]["total_ns"] / one["latency"]["count"]),
     ("bytes", lambda one: one["call_bytes"] + one["reply_bytes"])],
)  # fmt: skip
def test_sorted_by_any_column(column: str, value: Any) -> None:
    found = [value(one) for one in objects("report", EVERYTHING, "--by", "procedure", "--sort", column)]
    assert found == sorted(found, reverse=True) and len(set(found)) > 1


def test_sorted_by_what_is_grouped() -> None:
    found = objects("report", EVERYTHING, "--by", "connection", "--sort", "connection")
    assert [one["by"]["connection"] for one in found] == [*range(1, 12)]


def test_too_many_groups_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_groups, "MAX_GROUPS", 5)
    found = objects("report", EVERYTHING, "--by", "path")
    assert len(found) == 6 and [one["others"] for one in found] == [False] * 5 + [True]
    assert sum(one["rpcs"] for one in found) == 237
    assert found[-1]["by"] == {"path": None}
    page = run("report", EVERYTHING, "--by", "path").stdout
    assert f"others: {found[-1]['rpcs']} RPCs of groups beyond the first 5" in page


def test_too_many_latencies_are_said_to_be_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = objects("report", EVERYTHING, "--by", "connection")
    monkeypatch.setattr(call_groups, "MAX_EXACT", 20)
    about = objects("report", EVERYTHING, "--by", "connection")
    for one, other in zip(exact, about, strict=True):
        assert other["percentiles"] == "to 2 %" and other["rpcs"] == one["rpcs"]
        assert other["latency"]["total_ns"] == one["latency"]["total_ns"]
        assert other["latency"]["p99_ns"] == pytest.approx(one["latency"]["p99_ns"], rel=0.02)


def test_what_is_not_grouped_by() -> None:
    for text, words in (("exprt", "did you mean export"), ("0s", "nothing is grouped by"), (",", "nothing to group")):
        with pytest.raises(ValueError, match=words):
            parse_group_keys(text)
    done = run("report", EVERYTHING, "--by", "client", "--sort", "nothing")
    assert done.exit_code == 2 and "no column 'nothing'; there are client, calls" in done.stderr
    assert run("report", EVERYTHING, "--sort", "calls").exit_code == 2


def test_exports() -> None:
    assert export_of("10.0.0.1", "/home/a/b") == export_of("10.0.0.1", "/home/c") == "10.0.0.1:/home"
    assert export_of("10.0.0.1", "/a") == "10.0.0.1:/"
    assert export_of("10.0.0.1", "…/a") == "10.0.0.1:…"
    assert export_of("10.0.0.1", None) is None


@pytest.mark.parametrize("capture", [EVERYTHING, LOSS])
def test_over_time_is_that_of_a_plain_recomputation(capture: str) -> None:
    rpcs = objects("sql", capture, "SELECT time_ns, waiting_ns, failed, call_bytes FROM rpcs")
    intervals = objects("report", capture, "--over-time")
    assert len(intervals) <= 100
    assert [one["end_ns"] for one in intervals[:-1]] == [one["begin_ns"] for one in intervals[1:]]
    for one in intervals:
        mine = [rpc for rpc in rpcs if one["begin_ns"] <= rpc["time_ns"] < one["end_ns"]]
        assert (one["rpcs"], one["errors"]) == (len(mine), sum(rpc["failed"] or False for rpc in mine))
        assert one["call_bytes"] == sum(rpc["call_bytes"] for rpc in mine)
        latencies = [rpc["waiting_ns"] for rpc in mine if rpc["waiting_ns"] is not None]
        for bin in one["histogram"]:
            assert bin["rpcs"] == sum(bin["low_ns"] <= latency < bin["high_ns"] for latency in latencies)
        assert sum(bin["rpcs"] for bin in one["histogram"]) == len(latencies)
        for name, percent in (("median_ns", 50), ("p99_ns", 99)):
            if not latencies:
                assert one[name] is None
            else:
                assert one[name] == pytest.approx(nearest_rank(latencies, percent), rel=0.02)


@given(st.lists(st.tuples(st.integers(0, 10**13), st.integers(0, 10**10)), min_size=1, max_size=60), st.integers(1, 40))
def test_time_is_bounded_and_nothing_is_lost(calls: list[tuple[int, int]], count: int) -> None:
    timeline = call_groups.LatencyTimeline()
    timeline.add(columns(calls[::2]))
    timeline.add(columns(calls[1::2]))
    intervals = timeline.intervals(count)
    assert len(intervals) <= count
    assert sum(one.calls for one in intervals) == len(calls)
    for one in intervals:
        mine = [latency for time, latency in calls if one.begin <= time < one.end]
        assert one.calls == len(mine) == one.counts.sum()


@pytest.mark.parametrize("columns", [80, 160])
def test_the_heat_map_fits_and_needs_no_colour(columns: int) -> None:
    lines = run("report", EVERYTHING, "--over-time", "--by", "client,procedure", columns=columns).stdout.splitlines()
    assert max(map(len, lines)) <= columns
    assert any("┤" in line and "░" in line for line in lines)
    assert not [line for line in lines if line != line.rstrip()]


def columns(calls: list[tuple[int, int]], name: str = "READ") -> CallColumns:
    """RPCs with these times and latencies; -1: none."""
    names = RpcNames()
    names.procedure(ProcedureNames(100003, 3, None, 6, (), name))
    count = len(calls)
    times, latencies = np.array(calls, np.int64).reshape(-1, 2).T
    zeros = np.zeros(count, np.int64)
    return CallColumns(
        np.arange(count), np.arange(1, count + 1), times, latencies, latencies, np.zeros((count, 5), np.int64), zeros,
        zeros,
        np.zeros(count, bool), latencies < 0, zeros, names, np.ones(count, np.int64),
    )  # fmt: skip


LATENCIES = st.lists(st.tuples(st.integers(0, 10 * SECOND), st.integers(-1, 100)), min_size=1, max_size=50)


@given(LATENCIES, st.sampled_from(["median", "p95", "p99", "max", "p99.9", "p1"]), st.sampled_from(["<", "<="]),
       st.integers(1, 100))  # fmt: skip
def test_a_verdict_holds_whatever_the_unknown_took(
    calls: list[tuple[int, int]], measure: str, bound: str, limit: int
) -> None:
    counts = ServiceLevelCounts(parse_service_level(f"NFSv3.read {measure} {bound} {limit}ns"))
    for some in (calls[::3], calls[1::3], calls[2::3]):
        counts.add(columns(some))
    share = {"median": 50, "max": 100}.get(measure) or float(measure[1:])
    known = [latency for _, latency in calls if latency >= 0]

    def kept(unknown: int) -> bool:
        latencies = sorted([*known, *[unknown] * (len(calls) - len(known))])
        value = latencies[max(1, -(-len(latencies) * round(share * 10) // 1000)) - 1]
        return value <= limit if bound == "<=" else value < limit

    fastest, slowest = kept(-1), kept(1000)
    assert counts.verdict == (PASS if slowest else UNDECIDABLE if fastest else FAIL)
    assert (counts.calls, counts.unknown) == (len(known), len(calls) - len(known))
    beyond = [latency for latency in known if not (latency <= limit if bound == "<=" else latency < limit)]
    assert counts.beyond == len(beyond)
    spans = counts.spans()
    assert all(before.end < after.begin for before, after in pairwise(spans))
    for span in spans:
        mine = [latency for time, latency in calls if span.begin <= time < span.end and latency >= 0]
        assert (span.calls, span.worst) == (len(mine), max(mine))
    if measure == "max":
        assert sum(span.beyond for span in spans) == len(beyond)


def test_no_such_calls_are_no_pass() -> None:
    done = run("report", EVERYTHING, "--slo", "FROBNICATE p99 < 1s", "--slo", "READ max < 1s")
    assert done.exit_code == 3
    assert "no such calls: neither kept nor broken" in done.stdout and "  pass         READ max < 1s" in done.stdout


@pytest.mark.parametrize(
    ("levels", "status"),
    [(("READ p99 < 10s",), 0), (("READ p99 < 1us",), 1), (("FOO max < 1s", "READ max < 1us"), 1),
     (("FOO max < 1s",), 3), (("WRITE max < 1d",), 2)],
)  # fmt: skip
def test_the_exit_status(levels: tuple[str, ...], status: int) -> None:
    options = [option for level in levels for option in ("--slo", level)]
    assert run("report", EVERYTHING, *options).exit_code == status


def test_calls_without_a_reply_may_decide() -> None:
    (one,) = objects("report", LOSS, "--slo", "WRITE max < 10s")
    assert (one["verdict"], one["unknown"], one["unanswered"]) == ("fail", 0, 8)
    (one,) = objects("report", LOSS, "--slo", "WRITE max < 100s")
    assert (one["verdict"], one["unknown"], one["unanswered"]) == ("undecidable", 8, 0)
    (one,) = objects("report", LOSS, "--slo", "WRITE p99 < 300ms")
    assert one["verdict"] == "fail" and one["violated"]
    beyond = objects("rpcs", LOSS, "--procedure", "WRITE", "--slower-than", "300ms")
    assert one["beyond"] == len(beyond)
    assert one["violated"][0]["worst_rpc"] in {rpc["number"] for rpc in beyond}


@pytest.mark.parametrize(
    ("text", "words"),
    [("READ p99 4ms", "is no service level"), ("READ p0 < 1s", "no measure"), ("READ avg < 1s", "no measure"),
     ("READ p99 < 4 bananas", "is no duration"), ("", "is no service level")],
)  # fmt: skip
def test_what_is_no_service_level(text: str, words: str) -> None:
    done = run("report", EVERYTHING, "--slo", text)
    assert done.exit_code == 2 and words in done.stderr and done.stderr.count("\n") == 1


def test_saved_tables_give_the_same_answers(tmp_path: Path) -> None:
    saved = str(tmp_path / "saved.duckdb")
    assert run("sql", EVERYTHING, "--save", saved).exit_code == 0
    options = ("--by", "client,path,procedure", "--over-time", "--slo", "READ p99 < 1ms", "--slower-than", "1ms")

    def answers(path: str) -> list[dict[str, Any]]:
        return [{**one, "file": ""} for one in objects("report", path, *options)]

    assert answers(saved) == answers(EVERYTHING)
    assert call_groups.SPANS == 60
