"""Two captures beside each other: delays come out where they were put in, and differences where there are some."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from playbook import Capture, Wire, nfs3, shapes, write_pcap
from playbook.commands import SAMPLES, objects, run
from playbook.packets import Frame
from playbook.rpcrdma import call, reply
from rdmascope.captures.session.comparison import compare
from rdmascope.captures.session.session import Session
from rdmascope.dissect.measure.comparison import rank_test
from rdmascope.dissect.records.comparison import PointsCompared, RunsCompared

CLIENT = bytes([10, 0, 0, 2])
MILLISECOND = 1_000_000
LINK, SERVER, OFFSET = 2 * MILLISECOND, 5 * MILLISECOND, -250 * MILLISECOND
RPCS = 12


def at_server(link: int = LINK, think: int = SERVER, xid: int = 1, rest: int = 0) -> list[Frame]:
    """NULL calls as the server's end sees them, that takes ``think`` for each; the client rests after each."""
    wire = Wire()
    connection = wire.connect()
    for number in range(RPCS):
        rpc = call(connection, nfs3.null(), xid=xid + number)
        wire.pause(think)
        reply(rpc, nfs3.null_reply())
        wire.pause(4 * link + rest)
    return Capture(wire).frames


def at_client(frames: list[Frame], link: int = LINK) -> list[Frame]:
    """The same frames at the client's end, by the same clock: sent sooner, and received later."""
    moved = [replace(frame, time=frame.time + (-link if frame.data[26:30] == CLIENT else link)) for frame in frames]
    return sorted(moved, key=lambda frame: frame.time)


def saved(frames: list[Frame], path: Path, offset: int = 0) -> Path:
    write_pcap([replace(frame, time=frame.time + offset) for frame in frames], path)
    return path


def points(first: Path, second: Path) -> PointsCompared:
    found = compare(Session(first), Session(second))
    assert isinstance(found, PointsCompared)
    return found


@pytest.mark.parametrize("link", [LINK, 7 * MILLISECOND])
@pytest.mark.parametrize("think", [MILLISECOND, SERVER])
@pytest.mark.parametrize("turned", [False, True], ids=["client first", "server first"])
def test_delays_come_out_where_they_are(tmp_path: Path, link: int, think: int, turned: bool) -> None:
    frames = at_server(link, think)
    client, server = saved(at_client(frames, link), tmp_path / "a.pcap"), saved(frames, tmp_path / "b.pcap", OFFSET)
    found = points(*((server, client) if turned else (client, server)))
    assert (found.client, found.server) == (str(client), str(server))
    total = found.rpcs.total
    assert total is not None and total.rpcs == RPCS
    assert found.common.error is not None and abs(found.common.offset - OFFSET) <= found.common.error <= 2 * link
    noise = 100_000
    assert abs(total.server - think) < noise
    assert abs(total.there - link) < noise and abs(total.back - link) < noise
    assert (total.read_network, total.client) == (0, 0)
    assert total.waited.mean == pytest.approx(total.server + total.network + total.client)


@pytest.mark.parametrize(("ppm", "said"), [(60, "gains 60.0 ppm"), (-60, "loses 60.0 ppm"), (0, "drifts by less than")])
def test_a_clock_that_drifts(tmp_path: Path, ppm: int, said: str) -> None:
    link = MILLISECOND // 10
    frames = at_server(link, rest=1000 * MILLISECOND)
    client = saved(at_client(frames, link), tmp_path / "a.pcap")
    drifting = [replace(one, time=one.time + (one.time - frames[0].time) * ppm // 1_000_000) for one in frames]
    server = saved(drifting, tmp_path / "b.pcap", OFFSET)
    found = points(client, server)
    clocks, total = found.common.clocks, found.rpcs.total
    assert clocks.drift == pytest.approx(ppm / 1e6, abs=1e-7) and total is not None
    assert clocks.drift_error is not None and clocks.drift_error < 50e-6
    assert abs(clocks.offset - OFFSET) < 20_000 and abs(total.there - link) < 20_000 and abs(total.back - link) < 20_000
    assert said in " ".join(run("compare", str(client), str(server)).stdout.split())


def test_a_moment_shows_no_drift(tmp_path: Path) -> None:
    frames = at_server()
    found = points(saved(at_client(frames), tmp_path / "a.pcap"), saved(frames, tmp_path / "b.pcap", OFFSET))
    assert (found.common.clocks.drift, found.common.clocks.drift_error) == (0, None)


def test_packets_that_were_lost_between_the_points_have_their_place(tmp_path: Path) -> None:
    frames = at_server()
    here, there = at_client(frames), list(frames)
    calls = [at for at, frame in enumerate(here) if frame.data[26:30] == CLIENT and 10 < at < len(here) - 10]
    replies = [at for at, frame in enumerate(frames) if frame.data[26:30] != CLIENT and 10 < at < len(frames) - 10]
    lost, never = here[calls[3]].data, frames[replies[5]].data
    there = [frame for frame in there if frame.data != lost]
    kept = [frame for frame in here if frame.data != never]
    found = points(saved(kept, tmp_path / "a.pcap"), saved(there, tmp_path / "b.pcap", OFFSET))
    assert [kept[number - 1].data for number in found.at_client.lost.tolist()] == [lost]
    assert [there[number - 1].data for number in found.at_server.lost.tolist()] == [never]
    assert not len(found.at_client.missed) and not len(found.at_server.missed)


def test_an_xid_that_is_used_again_is_matched_in_the_order_of_time(tmp_path: Path) -> None:
    wire = Wire()
    connection = wire.connect()
    for _ in range(RPCS):
        rpc = call(connection, nfs3.null(), xid=77)
        wire.pause(SERVER)
        reply(rpc, nfs3.null_reply())
        wire.pause(4 * LINK)
    frames = Capture(wire).frames
    found = points(saved(at_client(frames), tmp_path / "a.pcap"), saved(frames, tmp_path / "b.pcap"))
    assert found.rpcs.total is not None
    assert (found.rpcs.total.rpcs, found.rpcs.only_client, found.rpcs.only_server) == (RPCS, 0, 0)


def runs(first: Path, second: Path) -> RunsCompared:
    found = compare(Session(first), Session(second))
    assert isinstance(found, RunsCompared)
    return found


def test_a_slower_server_is_found_and_an_equal_one_is_not(tmp_path: Path) -> None:
    before = saved(at_server(), tmp_path / "a.pcap")
    slower = saved(at_server(think=2 * SERVER, xid=5_000), tmp_path / "b.pcap")
    again = saved(at_server(xid=9_000), tmp_path / "c.pcap")
    (change,) = runs(before, slower).procedures
    assert (change.name, change.before.rpcs, change.after.rpcs) == ("NFSv3 NULL", RPCS, RPCS)
    assert change.significant and change.slower == 1
    (change,) = runs(before, again).procedures
    assert not change.significant


def test_settings_payloads_and_rules_that_differ(tmp_path: Path) -> None:
    small, large = Wire(mtu=1024), Wire(mtu=4096, seed=2)
    first, second = small.connect(), large.connect()
    for _ in range(3):
        shapes.read(first)
        rpc = call(second, nfs3.read(0, 512))
        reply(rpc, nfs3.read_reply(bytes(512)))
    reply(call(second, nfs3.null()), nfs3.null_reply(), credits=0)
    before = saved(Capture(small).frames, tmp_path / "a.pcap")
    after = saved(Capture(large).frames, tmp_path / "b.pcap")
    found = runs(before, after)
    assert ("path MTU", ("1024",), ("4096",)) in found.settings
    assert found.rules == [("V1-CREDIT-ZERO", "server", 0, 1)]
    reading = next(one for one in found.procedures if one.name == "NFSv3 READ")
    assert reading.before.chunk_bytes > 0 == reading.after.chunk_bytes


@pytest.mark.parametrize("columns", [80, 160])
def test_pages(tmp_path: Path, columns: int) -> None:
    frames = at_server()
    client, server = saved(at_client(frames), tmp_path / "a.pcap"), saved(frames, tmp_path / "b.pcap", OFFSET)
    page = run("compare", str(client), str(server), columns=columns)
    assert page.exit_code == 0, page.output
    assert re.match(r"\d+% of the time was on the server, \d+% on the network, 0% at the client$", page.stdout, re.M)
    page = run("compare", str(SAMPLES / "loss-rxe.pcap.zst"), str(SAMPLES / "rxe-nfs-all.pcap.zst"), columns=columns)
    assert page.exit_code == 0 and "Two runs" in page.stdout
    assert all(len(line) <= columns for line in page.stdout.splitlines())
    told = [one["type"] for one in objects("compare", str(client), str(server))]
    assert told == ["capture_limits", "capture_limits", "points", "points_procedure"]


def test_each_rpc_at_both_points(tmp_path: Path) -> None:
    frames = at_server()
    client, server = saved(at_client(frames), tmp_path / "a.pcap"), saved(frames, tmp_path / "b.pcap", OFFSET)
    every = objects("compare", str(client), str(server), "--rpcs")
    each = [one for one in every if one["type"] == "points_rpc"]
    (points,) = (one for one in every if one["type"] == "points")
    assert len(each) == points["phases"]["rpcs"] > 0
    parts = ("server_ns", "there_ns", "back_ns", "reads_network_ns", "writes_network_ns", "client_ns")
    for one, rpc in zip(each, objects("rpcs", str(client)), strict=True):
        assert one["client_latency_ns"] == rpc["latency_ns"] == sum(one[part] for part in parts)
        assert (one["client_rpc"], one["xid"]) == (rpc["number"], rpc["xid"])
        assert one["client_time_ns"] == rpc["time_ns"]
        error = one["way_error_ns"]
        assert abs(one["there_ns"] - LINK) <= error and abs(one["back_ns"] - LINK) <= error


def test_a_damaged_capture_is_compared_as_far_as_it_goes(tmp_path: Path) -> None:
    frames = at_server()
    client, server = saved(at_client(frames), tmp_path / "a.pcap"), saved(frames, tmp_path / "b.pcap", OFFSET)
    server.write_bytes(server.read_bytes()[:-40])
    page = run("compare", str(client), str(server))
    assert page.exit_code == 2
    assert "The same traffic" in page.stdout and page.stderr.count("\n") == 1
    page = run("compare", str(client), str(tmp_path / "none.pcap"))
    assert page.exit_code == 2 and "none.pcap" in page.stderr


def test_a_report_of_both_has_each_rpc_at_both(tmp_path: Path) -> None:
    frames = at_server()
    client, server = saved(at_client(frames), tmp_path / "a.pcap"), saved(frames, tmp_path / "b.pcap", OFFSET)
    records = objects("report", str(server), str(client))
    (both,) = (one for one in records if one["type"] == "points")
    assert (both["client_capture"], both["server_capture"]) == (str(client), str(server))
    (capture,) = (one for one in records if one["type"] == "capture")
    each = [one for one in records if one["type"] == "points_rpc"]
    assert [one["client_rpc"] for one in each] == [*range(1, RPCS + 1)] and capture["rpcs"] == RPCS
    noise = 100_000
    for one in each:
        assert abs(one["server_time_ns"] - one["client_time_ns"] - OFFSET - LINK) < noise
        assert max(abs(one[way] - LINK) for way in ("there_ns", "back_ns")) < one["way_error_ns"] + noise
        assert abs(one["client_latency_ns"] - one["server_latency_ns"] - 2 * LINK) < noise
    page = run("report", str(client), str(server)).stdout
    assert page.count("NFSv3 NULL") >= RPCS and "At both capture points" in page
    head = page[: page.index("Slowest")]
    assert "Where the time went" in head and "% of the time was on the server, " in head
    for alone in (("report", str(client)), ("report", str(client), str(server), "--connection", "1")):
        assert "At both capture points" not in run(*alone).stdout


def test_points_whose_files_are_rings(tmp_path: Path) -> None:
    """Each point's files are read one after the other, and what was lost has its number among all of them."""
    frames = at_server()
    here = at_client(frames)
    lost = 30
    there = [frame for frame in frames if frame.data != here[lost].data]
    paths = []
    for name, seen, offset in (("client", here, 0), ("server", there, OFFSET)):
        for number in range(2):
            part = seen[number * 20 : 20 if number == 0 else None]
            paths.append(str(saved(part, tmp_path / f"{name}_0000{number}_20260101000000.pcap", offset)))
    (both,) = (one for one in objects("report", *paths) if one["type"] == "points")
    assert both["lost_to_server_frames"] == [lost + 1] or both["missed_by_server_frames"] == [lost + 1]
    assert both["packets_at_both"] == len(frames) - 1


def test_what_the_diagnosis_of_one_run_alone_finds() -> None:
    paths = SAMPLES / "meta-rxe.pcap.zst", SAMPLES / "rxe-nfs-all.pcap.zst"
    for given, run_of_it in ((paths, "after"), (paths[::-1], "before")):
        (runs,) = (one for one in objects("compare", *map(str, given)) if one["type"] == "runs")
        (said,) = runs["diagnosis"]
        assert (said["run"], said["kind"], said["severity"]) == (run_of_it, "grace-period", "problem")
        change = {"after": "appeared", "before": "vanished"}[run_of_it]
        assert f"{change}: problem, 12 RPCs refused for the grace period" in run("compare", *map(str, given)).stdout
    (runs, *_) = objects("compare", str(paths[1]), str(paths[1]))
    assert runs["type"] != "runs" or not runs["diagnosis"]


@pytest.mark.parametrize(
    ("first", "second", "chance"),
    [
        ([1, 2, 3], [4, 5, 6], 2 / 20),
        ([1, 2, 3, 4], [5, 6, 7, 8], 2 / 70),
        ([1, 1, 1], [1, 1, 1], 1.0),
        ([1], [2], 1.0),
        ([3, 4, 5], [*range(100, 200)], 2 / 176_851),
    ],
)
def test_small_samples_are_tested_exactly(first: list[int], second: list[int], chance: float) -> None:
    found, slower = rank_test(np.array(first), np.array(second))
    assert found == pytest.approx(chance) and slower is not None
    assert rank_test(np.array(second), np.array(first))[0] == pytest.approx(chance)


def test_the_exact_test_counts_all_choices() -> None:
    numbers = [5, 1, 4, 4, 2, 9, 4]
    ranks = [sum(one < other for one in numbers) + (sum(one == other for one in numbers) + 1) / 2 for other in numbers]
    for size in (1, 2, 3):
        mean = size * sum(ranks) / len(ranks)
        distance = abs(sum(ranks[:size]) - mean)
        choices = [sum(one) for one in combinations(ranks, size)]
        share = sum(abs(one - mean) >= distance - 1e-9 for one in choices) / len(choices)
        assert rank_test(np.array(numbers[:size]), np.array(numbers[size:]))[0] == pytest.approx(share)
