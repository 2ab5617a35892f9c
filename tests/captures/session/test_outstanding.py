"""Calls without a reply, in every view: how long they are outstanding is a lower bound of their latency."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import rdmascope
from playbook import faults, hangs, nfs3
from playbook.capture import Capture, frame_batches, write_pcap
from playbook.commands import LOSS, objects, run
from playbook.hangs import SECOND
from playbook.rpcrdma import call, reply
from playbook.wire import Wire
from rdmascope.dissect.rpcrdma.analyzer import Analyzer

MILLISECOND = 1_000_000


def hung(tmp_path: Path, story: Any = hangs.hung_server) -> str:
    wire = Wire()
    story(wire)
    return hangs.saved(wire, tmp_path / "hung.pcap")


def rows(path: str, query: str) -> list[dict[str, Any]]:
    return [{key: value for key, value in one.items() if key != "schema"} for one in objects("sql", path, query)]


@pytest.mark.parametrize("story", [hangs.hung_server, hangs.one_call])
def test_it_is_outstanding_until_its_connection_or_the_capture_ends(tmp_path: Path, story: Any) -> None:
    path = hung(tmp_path, story)
    with rdmascope.read(path) as capture:
        (rpc,) = [one for one in capture.rpcs() if one.state == "no reply"]
        assert rpc.latency is None
        assert rpc.waiting == rpc.outstanding
        assert 46 * SECOND <= (rpc.waiting or 0) < 47 * SECOND
    (record,) = [one for one in objects("rpcs", path) if one["state"] == "no reply"]
    assert record["waiting_ns"] == rpc.waiting
    assert rows(path, "SELECT waiting_ns FROM rpcs WHERE latency_ns IS NULL") == [{"waiting_ns": rpc.waiting}]
    assert rows(path, "SELECT count(*) AS n FROM rpcs WHERE latency_ns <> waiting_ns") == [{"n": 0}]


def test_its_bound_is_the_same_however_the_capture_is_read(tmp_path: Path) -> None:
    query = "SELECT number, waiting_ns FROM rpcs ORDER BY number"
    alone = rows(LOSS, query)
    assert len(alone) == 78
    assert objects("rpcs", LOSS, "--jobs", "2") == objects("rpcs", LOSS, "--jobs", "1")
    saved = str(tmp_path / "tables")
    assert run("export", LOSS, "--to", "parquet", "-o", saved).exit_code == 0
    assert rows(saved, query) == alone
    again = {one["number"]: one["waiting_ns"] for one in objects("rpcs", saved)}
    assert again == {one["number"]: one["waiting_ns"] for one in alone}


@pytest.mark.parametrize("command", ["report", "diagnose"])
def test_what_is_too_large_to_be_read_twice_has_the_name_in_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    path = hung(tmp_path)
    assert run(command, path).stdout.startswith("CREATE …/export/w3 (RPC 22) hung 46.0 s")
    monkeypatch.setattr("rdmascope.captures.session.find.MAX_READ_FOR_NAMES", 0)
    assert run(command, path).stdout.startswith("CREATE …/w3 (RPC 22) hung 46.0 s")


def test_show_has_how_long_it_is_outstanding_and_its_retransmissions(tmp_path: Path) -> None:
    wire = Wire()
    hangs.hung_server(wire)
    at = faults.where(wire.packets, kind="send", sender=0)[-1]
    again = replace(wire.packets[at], copy=1, time=wire.packets[at].time + 2 * SECOND)
    frames = [one for one in wire.packets if one.time < again.time and one.kind != "ack"]
    number, retransmitted = at + 1 - sum(one.kind == "ack" for one in wire.packets[:at]), len(frames) + 1
    path = tmp_path / "again.pcap"
    write_pcap(Capture(wire, [*frames, again, *(one for one in wire.packets if one.time > again.time)]).frames, path)
    lines = [line.split() for line in run("show", str(path), "--rpc", "22").stdout.splitlines()]
    assert next(line for line in lines if line[:2] == ["no", "reply"])[3:5] == ["46.0", "s,"]
    sent = [int(line[0]) for line in lines if "SEND" in line]
    assert sent == [number, retransmitted]


def test_a_client_that_connects_again_ends_the_wait(tmp_path: Path) -> None:
    wire = Wire()
    connection = hangs.healthy(wire)
    call(connection, nfs3.getattr_())
    wire.pause(10 * SECOND)
    hangs.healthy(wire)
    wire.pause(100 * SECOND)
    hangs.getattrs(wire.connections[-1], 1)
    path = hangs.saved(wire, tmp_path / "again.pcap")
    (waiting,) = rows(path, "SELECT waiting_ns FROM rpcs WHERE state = 'no reply'")
    assert 10 * SECOND <= waiting["waiting_ns"] < 11 * SECOND


def test_a_reply_that_may_be_missing_from_the_capture_is_no_bound() -> None:
    wire = Wire()
    connection = hangs.healthy(wire)
    lost = call(connection, nfs3.getattr_())
    before = len(wire.packets)
    reply(lost, nfs3.getattr_reply())
    del wire.packets[before:]
    hangs.getattrs(connection, 5)
    (batch,) = frame_batches(wire.frames(), [])
    analyzer = Analyzer()
    rpcs = [*analyzer.feed(batch), *analyzer.finish()]
    (rpc,) = [one for one in rpcs if one.state == "no reply"]
    assert rpc.waiting is None


# Lists and filters


def test_slower_than_lists_it(tmp_path: Path) -> None:
    path = hung(tmp_path)
    listed = run("rpcs", path, "--slower-than", "5s")
    assert listed.stdout.count("CREATE") == 1
    assert ">46.0 s" in listed.stdout
    assert run("rpcs", path, "--slower-than", "50s").stdout.count("CREATE") == 0


def test_it_is_the_first_when_sorted_by_latency(tmp_path: Path) -> None:
    listed = run("rpcs", hung(tmp_path), "--sort", "latency").stdout.splitlines()
    assert "CREATE" in listed[1] and ">46.0 s" in listed[1]


def test_healthy_traffic_has_no_bound(tmp_path: Path) -> None:
    path = hung(tmp_path, hangs.healthy)
    assert ">" not in run("report", path).stdout
    assert rows(path, "SELECT count(*) AS n FROM rpcs WHERE waiting_ns IS DISTINCT FROM latency_ns") == [{"n": 0}]


# Reports


def test_the_report_gives_it_its_share_of_time(tmp_path: Path) -> None:
    path = hung(tmp_path)
    report = run("report", path).stdout
    (line,) = [one for one in report.splitlines() if one.strip().startswith("CREATE") and "%" in one]
    assert "99.9%" in line and ">46.0 s" in line
    (procedure,) = [one for one in objects("report", path) if one.get("procedure") == "CREATE" and "states" in one]
    assert procedure["unanswered"]["rpcs"] == 1
    assert procedure["unanswered"]["longest_ns"] == procedure["unanswered"]["waiting_ns"] > 46 * SECOND
    assert procedure["latency"]["max_ns"] > 46 * SECOND > procedure["latency"]["exact_to_ns"]


@pytest.mark.parametrize(
    ("level", "verdict", "status"),
    [
        ("CREATE max < 1s", "fail", 1),
        ("CREATE max < 100s", "undecidable", 3),
        ("CREATE mean < 1s", "fail", 1),
        ("CREATE mean < 100s", "undecidable", 3),
        ("CREATE p50 < 46s", "fail", 1),
    ],
)
def test_a_bound_beyond_the_limit_fails_a_service_level(tmp_path: Path, level: str, verdict: str, status: int) -> None:
    done = run("report", hung(tmp_path), "--slo", level, "--json")
    answer = json.loads(done.stdout)
    assert (answer["verdict"], done.exit_code) == (verdict, status)
    assert answer["beyond"] == (verdict == "fail")


def test_groups_and_intervals_count_it(tmp_path: Path) -> None:
    path = hung(tmp_path)
    groups = {one["by"]["procedure"]: one for one in objects("report", path, "--by", "procedure")}
    create = groups["NFSv3 CREATE"]
    assert create["time_share"] > 0.99
    assert create["unanswered"]["longest_ns"] > 46 * SECOND
    assert ">46.0 s" in run("report", path, "--by", "procedure").stdout
    intervals = objects("report", path, "--over-time")
    assert max(one["p99_ns"] or 0 for one in intervals) > 45 * SECOND


# The first line


@pytest.mark.parametrize("command", ["report", "diagnose"])
@pytest.mark.parametrize(
    ("story", "line"),
    [
        (
            hangs.hung_server,
            "CREATE …/export/w3 (RPC 22) hung 46.0 s until the client closed the connection (DREQ);"
            " the server last spoke at 22:13:20 UTC",
        ),
        (hangs.one_call, "CREATE …/export/w3 (RPC 22) has hung for 46.0 s; the server last spoke at 22:14:06 UTC"),
    ],
)
def test_the_first_line_names_what_hangs(tmp_path: Path, command: str, story: Any, line: str) -> None:
    assert run(command, hung(tmp_path, story), columns=160).stdout.splitlines()[0] == line
    assert "hung for" not in run(command, hung(tmp_path, hangs.healthy)).stdout


def test_what_hangs_is_the_worst_of_a_capture_with_other_problems() -> None:
    first, *_ = run("report", LOSS, columns=160).stdout.splitlines()
    assert first.startswith(
        "WRITE GETATTR /big (RPC 23) hung 61.8 s until the client closed the connection (DREQ); the"
    )
    assert first.endswith("last spoke at 01:41:35 UTC; 7 more calls")
    assert objects("report", LOSS)[0]["diagnosis"][0]["text"] == first
