"""Sums of a data set in SQL: they say what its captures say one by one, and what its rows do."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from playbook.commands import objects, run
from playbook.fleets import Fleet, make_fleet
from rdmascope.captures.session.grouping import RpcGrouping, parse_group_keys
from rdmascope.captures.tables import fleet_sums
from rdmascope.captures.tables.condition import Condition
from rdmascope.captures.tables.fleet_sums import SummedSession
from rdmascope.captures.tables.saved_session import DataSetSession
from rdmascope.captures.tables.saved_tables import DataSet
from rdmascope.dissect.measure.call_groups import parse_service_level
from rdmascope.dissect.records.report import group_record, service_level_record

KEYS = (
    "client",
    "server",
    "connection",
    "export",
    "path",
    "user",
    "procedure",
    "slot",
    "host",
    "day",
    "1s",
    "host,day",
)
CONDITIONS = ("", "failed", "waiting_ns > 1e6 AND procedure = 'READ'", "client = '10.77.0.2'")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    return make_fleet(tmp_path_factory.mktemp("fleet"))


def grouped(session: DataSetSession, keys: str, condition: Condition | None) -> list[Any]:
    parsed = parse_group_keys(keys)
    asked = RpcGrouping(parsed, True, [parse_service_level("READ p99 < 1ms"), parse_service_level("* mean < 20ms")])
    asked.ask(session, condition)
    if condition is not None:
        condition.close()
    if isinstance(session, SummedSession):
        session.close()
    assert asked.groups is not None and asked.timeline is not None
    names = [key.name for key in parsed]
    groups = [group_record(one, names, asked.groups, asked.first_time) for one in asked.groups.groups()]
    levels = [service_level_record(one) for one in asked.levels]
    times = [(one.begin, one.calls, one.errors, one.counts.tolist()) for one in asked.timeline.intervals(20)]
    return [sorted(groups, key=lambda one: json.dumps(one["by"])), levels, times, asked.calls]


@pytest.mark.parametrize("keys", KEYS)
def test_groups_are_those_of_the_rows(keys: str, fleet: Fleet) -> None:
    for text in CONDITIONS if keys in ("host", "procedure") else CONDITIONS[:1]:
        conditions = [Condition([text]) if text else None for _ in range(2)]
        there = grouped(SummedSession(fleet.data_set, conditions[0]), keys, conditions[0])
        assert there == grouped(DataSetSession(fleet.data_set), keys, conditions[1])
        if conditions[0] is not None and conditions[1] is not None:
            assert conditions[0].passed == conditions[1].passed > 0


def test_what_took_nearly_as_long_is_counted_together(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts, bytes, sums and extremes stay; percentiles are within 2 %."""
    exact, *_ = grouped(DataSetSession(fleet.data_set), "procedure", None)
    monkeypatch.setattr(fleet_sums, "EXACT", 0)
    monkeypatch.setattr(fleet_sums, "MOMENTS", 1)
    about, *_, calls = grouped(SummedSession(fleet.data_set), "procedure", None)
    assert calls == sum(one["rpcs"] for one in exact)
    for one, other in zip(about, exact, strict=True):
        for name in ("by", "rpcs", "errors", "incomplete", "call_bytes", "reply_bytes", "parts"):
            assert one[name] == other[name]
        for name, value in (other["latency"] or {}).items():
            assert value is None or one["latency"][name] == pytest.approx(value, rel=0.022 if name[0] in "mp" else 1e-6)
        if other["latency"]:
            for name in ("min_ns", "max_ns"):
                assert one["latency"][name] == other["latency"][name]


SAME = ("procedure", "transfer", "slowest", "histogram", "evicted", "capture")
OTHERWISE = {"diagnosis", "parts"}
"""Of all captures, or counted together."""


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_report_is_that_of_the_rows(condition: str, fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("--where", condition) if condition else ()
    rows = objects("report", fleet.data_set, *words)
    monkeypatch.setattr(fleet_sums, "FEW_CAPTURES", 0)
    sums = objects("report", fleet.data_set, *words)
    for type in SAME:
        both = [
            [{name: value for name, value in one.items() if name not in OTHERWISE} for one in records]
            for records in ([one for one in rows if one["type"] == type], [one for one in sums if one["type"] == type])
        ]
        assert both[0] == both[1]
    shares = [{one["number"]: one["rpcs"] for one in some if one["type"] == "connection"} for some in (rows, sums)]
    assert shares[0] == shares[1] != {}
    page = run("report", fleet.data_set, *words)
    assert page.exit_code == 0 and fleet.data_set in page.stdout


@pytest.mark.parametrize(
    "condition", ["", "failed", "procedure = 'READ' OR state = 'no reply'", "client = '10.77.0.2'"]
)
def test_sums_that_captures_keep_say_what_their_rows_do(
    condition: str, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for percentiles of latencies that were counted together."""
    monkeypatch.setattr(fleet_sums, "FEW_RPCS", 0)
    words = ("--where", condition) if condition else ()
    exact = [objects("report", fleet.data_set, *words), objects("report", fleet.data_set, "--by", "host,day", *words)]
    told = run("diagnose", fleet.data_set, *words).stdout
    monkeypatch.setattr(fleet_sums, "EXACT", 0)
    monkeypatch.setattr(fleet_sums, "MOMENTS", 1)
    monkeypatch.setattr(fleet_sums, "EACH_CALL", "asked")
    monkeypatch.setattr(fleet_sums, "EACH_TRANSFER", "asked")
    summed = [objects("report", fleet.data_set, *words), objects("report", fleet.data_set, "--by", "host,day", *words)]
    assert run("diagnose", fleet.data_set, *words).stdout == told != ""
    about = ("latency", "median", "diagnosis", "parts")

    def counted(records: list[dict[str, Any]]) -> list[str]:
        kept = [one for one in records if one["type"] not in ("histogram", "throughput")]
        told = [{name: value for name, value in one.items() if not name.startswith(about)} for one in kept]
        return sorted(json.dumps(one, sort_keys=True) for one in told)

    for one, other in zip(exact, summed, strict=True):
        assert counted(one) == counted(other) != []
    rates = [[one for one in records if one["type"] == "throughput"] for records in (exact[0], summed[0])]
    ended = [[sum(sum(one[name]) for one in some) for name in ("rpcs", "call_bytes")] for some in rates]
    assert ended[0] == ended[1]


def test_others_than_the_busiest_connections_are_sums(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = objects("report", fleet.data_set)
    monkeypatch.setattr(fleet_sums, "FEW_CAPTURES", 0)
    monkeypatch.setattr(fleet_sums, "BUSIEST", 2)
    sums = objects("report", fleet.data_set)
    known = {one["number"]: one["rpcs"] for one in rows if one["type"] == "connection"}
    listed = {one["number"]: one["rpcs"] for one in sums if one["type"] == "connection"}
    (evicted,) = [one for one in sums if one["type"] == "evicted"]
    assert len(listed) == 2 and sorted(listed.values()) == sorted(known.values())[-2:]
    assert evicted["connections"] == len(known) - 2
    assert evicted["rpcs"] == sum(known.values()) - sum(listed.values())


def test_a_diagnosis_is_of_each_host(fleet: Fleet, tmp_path: Path) -> None:
    said = [json.loads(line) for line in run("diagnose", fleet.data_set, "--json").stdout.splitlines()]
    alone = {
        host: {
            json.loads(line)["kind"]
            for path in [paths]
            for line in run("diagnose", *path, "--json").stdout.splitlines()
        }
        for host, paths, _ in fleet.captures
    }
    rows = objects("sql", fleet.data_set, "SELECT host, kind FROM statements")
    of_host = {host: {one["kind"] for one in rows if one["host"] == host} for host in alone}
    assert {one["kind"] for one in said} == set.union(*of_host.values()) != set()
    for host, kinds in of_host.items():
        assert kinds <= alone[host]
    for one in said:
        hosts = [host for host, kinds in of_host.items() if one["kind"] in kinds]
        assert all(any(host in line for line in one["evidence"]) for host in hosts)


def test_what_passes_nothing_is_said_as_of_a_capture(fleet: Fleet) -> None:
    for arguments in (("report", "--by", "host"), ("diagnose",)):
        refused = run(arguments[0], fleet.data_set, *arguments[1:], "--where", "xid = 1")
        assert refused.exit_code == 2 and "no RPC of " in refused.stderr, refused.stderr


def test_two_spans_are_compared_as_their_captures_are(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {one.host: one for one in DataSet(fleet.data_set).entries()}
    hosts = sorted(("web1", "web2"), key=lambda host: found[host].first_time_ns)
    spans = []
    for host in hosts:
        times = found[host].first_time_ns, found[host].last_time_ns + 10**9
        spans += ["--span", "/".join(f"{np.datetime64(time, 'ns')}Z" for time in times)]
    apart = objects("compare", *(fleet.of(host)[0][0] for host in hosts))

    def procedures(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [one for one in records if one["type"] == "runs_procedure"]

    (runs,) = [one for one in apart if one["type"] == "runs"]
    assert runs["diagnosis"] and runs["settings"]
    for exact in (fleet_sums.EXACT, 0):
        monkeypatch.setattr(fleet_sums, "EXACT", exact)
        together = objects("compare", fleet.data_set, *spans)
        if exact:
            assert procedures(together) == procedures(apart) != []
        (found_runs,) = [one for one in together if one["type"] == "runs"]
        for name in ("costs", "diagnosis", "settings", "rules"):
            assert found_runs[name] == runs[name]
    refused = run("compare", fleet.data_set, *spans[:2])
    assert refused.exit_code == 2 and "another --span" in refused.stderr


@cache
def calls_of(data_set: str) -> int:
    return len(objects("rpcs", data_set))


@pytest.mark.parametrize(
    ("other", "filters"),
    [
        ("packets", ("--connection", "5")),
        ("rpcs", ("--procedure", "READ", "--procedure", "WRITE")),
        ("packets", ("--since", "2026-11-21T12:00Z")),
        ("packets", ("--since", "2s", "--slower-than", "1ms")),
        ("rpcs", ("--where", "path IS NOT NULL AND chunks > 0")),
    ],
)
def test_only_rpcs_that_pass_are_read(
    other: str, filters: tuple[str, ...], fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And they are those that pass when all are, in JSON and in another list."""
    some = objects("rpcs", fleet.data_set, *filters)
    printed = run(other, fleet.data_set, *filters).stdout.split()
    with monkeypatch.context() as patch:
        patch.setattr(Condition, "each_value", lambda self: ["false"])
        assert objects("rpcs", fleet.data_set, *filters) == some != []
        assert run(other, fleet.data_set, *filters).stdout.split() == printed != []
    assert len(some) < calls_of(fleet.data_set)
    monkeypatch.setattr(DataSetSession, "_rpcs", None)
    assert objects("rpcs", fleet.data_set, *filters) == some
