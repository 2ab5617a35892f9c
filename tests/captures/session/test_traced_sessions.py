"""One run, recorded by both kernels' traces and on the wire: the same RPCs, one by one."""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
import zstandard
from click.testing import CliRunner, Result

import rdmascope
from playbook.samples import SAMPLES
from rdmascope.captures.errors import CaptureError
from rdmascope.captures.read.traces import Trace
from rdmascope.captures.session.session import Session
from rdmascope.cli.main import main
from rdmascope.dissect.onc.naming import handle_hash
from rdmascope.dissect.rpcrdma.rpc_fields import rpc_fields
from rdmascope.dissect.rpcrdma.rpcs import HostTimes, Rpc
from rdmascope.dissect.trace.events import EVENTS

HERE = Path(__file__).parent.parent / "read"
TRACES = {side: HERE / f"{side}-6.1.trace.dat" for side in ("client", "server")}
WIRE = HERE / "wire-6.1.pcap.zst"
"""Data packets are truncated behind their headers."""
SIDES = pytest.mark.parametrize("side", ["client", "server"])


def run(*arguments: str | Path, columns: int = 100) -> Result:
    return CliRunner(env={"COLUMNS": str(columns)}).invoke(main, [*map(str, arguments)])


@cache
def traced(side: str) -> list[Rpc]:
    return list(rdmascope.read(TRACES[side]))


@cache
def over_rdma(side: str) -> list[Rpc]:
    return [rpc for rpc in traced(side) if rpc.connection.transport == "RDMA"]


@cache
def seen() -> dict[tuple[str, int], Rpc]:
    """By the client's address and port, of which the wire has only the order, and XID."""
    rpcs = [rpc for rpc in rdmascope.read(WIRE) if rpc.connection.rdma]
    numbers = sorted({rpc.connection.number for rpc in rpcs})
    return {(str(1 + numbers.index(rpc.connection.number)), rpc.xid): rpc for rpc in rpcs}


def pairs(side: str) -> list[tuple[Rpc, Rpc]]:
    numbers = sorted({rpc.connection.number for rpc in over_rdma(side)})
    return [(rpc, seen()[str(1 + numbers.index(rpc.connection.number)), rpc.xid]) for rpc in over_rdma(side)]


@SIDES
def test_each_rpc_is_on_the_wire(side: str) -> None:
    found = pairs(side)
    assert len(found) == len(seen()) == 592
    assert [*Counter(rpc.connection.number for rpc, _ in found).values()] == [324, 134, 134]
    assert {
        (one.program, one.version, one.procedure) == (two.program, two.version, two.procedure) for one, two in found
    } == {True}


@SIDES
def test_messages_and_chunks_are_those_of_the_wire(side: str) -> None:
    for one, two in pairs(side):
        for mine, theirs in ((one.call, two.call), (one.reply, two.reply)):
            assert mine is not None and theirs is not None
            assert mine.operation.length == theirs.operation.length
            assert mine.operation.invalidate == theirs.operation.invalidate
            assert mine.inline_length == theirs.inline_length
            header, other = mine.header, theirs.header
            assert (header.length, header.procedure, header.reads, header.writes, header.reply) == (
                other.length, other.procedure, other.reads, other.writes, other.reply
            )  # fmt: skip
        assert [(chunk.kind, chunk.position) for chunk in one.chunks] == [
            (chunk.kind, chunk.position) for chunk in two.chunks
        ]
        for ours, other_chunk in zip(one.chunks, two.chunks, strict=True):
            uses = zip(ours.segments, other_chunk.segments, strict=True)
            assert all(use.advertised == other.advertised and use.returned == other.returned for use, other in uses)
            assert ours.transferred == other_chunk.transferred


def test_what_each_side_knows_of_credits_is_right() -> None:
    for one, two in pairs("client"):
        assert one.call and two.call and one.reply and two.reply
        assert one.call.header.credits is None
        assert one.reply.header.credits == two.reply.header.credits
    for one, two in pairs("server"):
        assert one.call and two.call and one.reply and two.reply
        assert one.call.header.credits == two.call.header.credits
        assert one.reply.header.credits is None


def test_statuses_and_operations_are_those_of_the_wire() -> None:
    assert {(one.status, one.failed) == (two.status, two.failed) for one, two in pairs("client") if two.status} == {
        True
    }
    for one, two in pairs("server"):
        assert one.operations == two.operations
        assert one.status in ("", two.status)
        assert (one.status != "") == (two.name == "COMPOUND")


def test_the_client_names_compounds_as_linux_does() -> None:
    for one, two in pairs("client"):
        assert one.name == (rpc_fields(two).linux if two.name == "COMPOUND" else two.name)


@SIDES
def test_file_handles_and_ranges_are_those_of_the_wire(side: str) -> None:
    told = Counter[str]()
    for one, two in pairs(side):
        mine, theirs = rpc_fields(one), rpc_fields(two)
        if mine.handle is not None:
            assert theirs.handle is not None and handle_hash(mine.handle) == handle_hash(theirs.handle)
            told["handle"] += 1
        if mine.offset is not None:
            assert (mine.offset, mine.count) == (theirs.offset, theirs.count)
            told["range"] += 1
    assert told == {"client": {"handle": 114, "range": 114}, "server": {"handle": 572, "range": 111}}[side]


def test_three_rpcs_went_by_sockets() -> None:
    others = [rpc for rpc in traced("client") if rpc.connection.transport == "socket"]
    assert [rpc.name for rpc in others] == ["GETPORT", "NULL", "MOUNT"]
    assert all(rpc.state == "complete" and rpc.call and rpc.call.header.credits is None for rpc in others)


@SIDES
def test_the_connections_have_their_ends(side: str) -> None:
    session = Session(str(TRACES[side]))
    for table in session.tables():
        del table
    known = [one for one in session.analyzer.connections if one.transport == "RDMA"]
    assert [str(one.endpoints[0]) for one in known] == ["10.77.0.2:39492", "10.77.0.2:32831", "10.77.0.2:33376"]
    assert {str(one.endpoints[1]) for one in known} == {"10.77.0.1:20049"}
    assert all(one.ended_by for one in known)


def test_the_inline_thresholds_are_those_that_the_client_agreed() -> None:
    session = Session(str(TRACES["client"]))
    for table in session.tables():
        del table
    known = [one for one in session.analyzer.conversations if one.connection.transport == "RDMA"]
    assert [one.known_inline_threshold(sender) for one in known for sender in (0, 1)] == [(4096, "trace")] * 6


def test_what_a_trace_does_not_tell_is_null() -> None:
    untold = "call_ns writes_ns reply_ns retransmitted_packets retransmission_delay_ns user uid minor_version"
    for side, more in (("client", "server_ns reads_ns credits_requested"), ("server", "credits_granted")):
        columns = [*untold.split(), *more.split()]
        question = f"SELECT {', '.join(f'count({name})' for name in columns)} FROM rpcs"
        printed = run("sql", TRACES[side], question, "--csv").output.splitlines()[1]
        assert set(printed.split(",")) == {"0"}
        assert run("sql", TRACES[side], "SELECT count(operations) FROM segments", "--csv").output.split()[1] == "0"
        assert run("sql", TRACES[side], "SELECT count(*) FROM verdicts", "--csv").output.split()[1] == "0"
    record = json.loads(run("rpcs", TRACES["client"], "--json").stdout.splitlines()[-1])
    assert record["call_ns"] is record["server_ns"] is record["retransmitted_packets"] is None
    assert record["latency_ns"] > 0


def kernel_times(side: str) -> dict[int, tuple[int, ...]]:
    """What the kernel measured itself, in microseconds, by XID."""
    event, names = {
        "client": ("rpc_stats_latency", ("backlog", "rtt", "execute")), "server": ("svc_stats_latency", ("execute",))
    }[side]  # fmt: skip
    found = {}
    with Trace(TRACES[side]) as trace:
        for one in (one for batch in trace.batches() for one in batch if one.name == event):
            values = dict(zip(EVENTS[event], one.values, strict=True))
            xid, *times = (values[name] for name in ("xid", *names))
            assert isinstance(xid, int)
            found[xid] = tuple(time for time in times if isinstance(time, int))
    return found


def host_times(rpc: Rpc) -> HostTimes:
    assert rpc.host is not None
    return rpc.host


def test_the_phases_of_the_client_add_up_to_what_it_measured() -> None:
    measured = kernel_times("client")
    assert len(measured) == 595
    for rpc in traced("client"):
        times = host_times(rpc)
        phases = [getattr(times, name) or 0 for name in HostTimes._fields[:9]]
        assert sum(phases) == measured[rpc.xid][2] * 1000
        assert all(phase >= 0 for phase in phases)
    for rpc in over_rdma("client"):
        times = host_times(rpc)
        backlog = (times.queued or 0) + (times.encoded or 0) + (times.registered or 0)
        assert abs(backlog - measured[rpc.xid][0] * 1000) < 200_000  # An interrupt may come between.


def test_the_phases_of_the_server_add_up_to_what_it_measured() -> None:
    measured = kernel_times("server")
    assert len(measured) == 592
    for rpc in traced("server"):
        times = host_times(rpc)
        assert (times.executed or 0) + (times.file_system or 0) == measured[rpc.xid][0] * 1000
        assert all(phase is None or phase >= 0 for phase in times[9:16])
        assert (times.reads != 0) == any(chunk.kind == "read" for chunk in rpc.chunks)
        # Data of a Write chunk are written while the rest is encoded.
        assert times.writes or not any(chunk.kind == "reply" for chunk in rpc.chunks if chunk.returned)


def test_what_waited_for_memory_registrations_is_told() -> None:
    failed = [rpc for rpc in traced("client") if host_times(rpc).failed_registrations]
    assert [(rpc.name, host_times(rpc).failed_registrations) for rpc in failed] == [("WRITE", 1)] * 3
    for rpc in failed:
        assert 0 < (host_times(rpc).registration_wait or 0) < (host_times(rpc).queued or 0)


@pytest.mark.parametrize(("version", "first"), [("3", 0), ("4.1", 1), ("4.2", 2)])
def test_mountstats_counts_the_same(version: str, first: int) -> None:
    numbers = sorted({rpc.connection.number for rpc in over_rdma("client")})
    mine = [rpc for rpc in over_rdma("client") if rpc.connection.number == numbers[first]]
    text = (HERE / f"mountstats-{version}.txt").read_text().split("per-op statistics")[1]
    counted = {name: (int(ops), int(sent)) for name, ops, sent in re.findall(r"(\w+): (\d+) \d+ \d+ (\d+)", text)}
    for name, (ops, sent) in counted.items():
        found = [rpc for rpc in mine if rpc.name == name and rpc.program == 100003]
        if name in ("NULL", "EXCHANGE_ID", "CREATE_SESSION", "RECLAIM_COMPLETE", "DESTROY_SESSION", "DESTROY_CLIENTID"):
            continue  # Of the mount's other clients, too, or behind the moment when it was read.
        if name in ("GETATTR", "DELEGRETURN") and version != "3":
            continue  # The umount makes more.
        assert len(found) == ops, name
        if name in ("WRITE", "READ", "OPEN"):
            assert sum(rpc.call_bytes for rpc in found) == sent, name


def test_the_kernels_counters_are_those_of_the_traces() -> None:
    lines = run("report", TRACES["server"], "--nfsd", HERE / "nfsd.txt", "--json").stdout.splitlines()
    (server,) = [one for one in map(json.loads, lines) if one["type"] == "nfsd_counters"]
    rows = [*server["procedures"], *server["operations"]]
    assert len(rows) > 30 and all(one["calls"] == one["seen_calls"] for one in rows)
    lines = run("report", TRACES["client"], "--mountstats", HERE / "mountstats-3.txt", "--json").stdout.splitlines()
    (client,) = [one for one in map(json.loads, lines) if one["type"] == "mount_counters"]
    for one in client["operations"]:
        assert (one["calls"], one["errors"]) == (one["seen_calls"], one["seen_errors"])
        assert one["call_bytes"] == one["seen_call_bytes"]
        # In whole milliseconds, of each RPC.
        assert -1e6 * one["calls"] <= one["seen_latency_ns"] - one["rtt_ns"] <= 1e6 * one["calls"]


def test_the_page_says_what_it_is() -> None:
    page = run("report", TRACES["client"]).output
    assert "43,148 events of the client's kernel" in page
    assert "62.690688 s on a clock without a date" in page
    assert "1970-01" not in page
    assert re.search(r"In the client .*\n +procedure +RPCs +in all +queued", page)
    assert "In the server" not in page
    assert "2 connections by a socket, not over RDMA" in page
    page = run("report", TRACES["client"], WIRE, TRACES["server"], columns=120).output
    assert "In the client" in page and re.search(r"In the server .*\n +procedure +RPCs +in all +received +reads", page)


COMMANDS = """
rpcs|rpcs --json|files|files --json|diagnose|report --by client,procedure|report --over-time|report --json
show --rpc 27|show --rpc 27 --json|report --slo 'READ p99 < 10s'
"""


@pytest.mark.parametrize("command", COMMANDS.strip().replace("\n", "|").split("|"))
@SIDES
def test_commands_take_a_trace(side: str, command: str) -> None:
    name, *options = shlex.split(command)
    result = run(name, TRACES[side], *options)
    assert result.exit_code == 0, result.output
    assert "1970-01" not in result.output


def test_sql_asks_a_trace() -> None:
    question = "SELECT count(*) n, count(credits_requested) asked, count(credits_granted) granted FROM rpcs"
    assert run("sql", TRACES["client"], question, "--csv").output.split() == ["n,asked,granted", "595,0,592"]


@pytest.mark.parametrize(
    "command", [("packets",), ("transport",), ("audit",), ("sessions",), ("export", "-o", "never.pcapng")]
)
def test_what_needs_packets_refuses_a_trace(command: tuple[str, ...]) -> None:
    name, *options = command
    result = run(name, TRACES["client"], *options)
    assert result.exit_code == 2
    assert "a trace of a kernel has no packets" in result.output


def test_the_library_refuses_what_needs_packets() -> None:
    capture = rdmascope.read(TRACES["client"])
    for ask in (lambda: [*capture.packets()], lambda: [*capture.findings()], capture.sessions):
        with pytest.raises(CaptureError, match="no packets"):
            ask()


def test_a_text_tells_the_same_rpcs() -> None:
    found = list(rdmascope.read(HERE / "client-6.1.txt.zst"))
    assert [(rpc.xid, rpc.name, rpc.status) for rpc in found] == [
        (rpc.xid, rpc.name, rpc.status) for rpc in traced("client")
    ]


def test_files_have_the_names_by_which_they_were_opened() -> None:
    """NFSv4's events tell them, with the number of the directory."""
    found = [json.loads(line) for line in run("files", "--json", HERE / "client-6.1.txt.zst").output.splitlines()]
    paths = {record["handle"]: record["path"] for record in found if record["type"] == "file"}
    lines = run("files", HERE / "client-6.1.txt.zst").output.splitlines()
    told = {line.split()[0]: line.split()[1] for line in lines if line.startswith("0x")}
    assert told["0x973a7476"] == "…/r1m" and told["0x2c6dea28"] == "…/hello.txt" and told["0xc5d62647"] == "?"
    assert "…/w4.1" in paths.values() and None in paths.values()


def test_show_has_the_phases() -> None:
    page = run("show", TRACES["client"], "--rpc", "27").output
    assert re.search(r"client queued .*1\.05 ms", page)
    assert re.search(r"of queued: +no memory registration +730 µs", page)
    page = run("show", TRACES["server"], "--rpc", "23").output
    assert re.search(r"file system .*ms +\d+%", page)
    assert re.search(r"Read chunk 1: Position 112, 256 KiB", page)


def test_traces_of_both_hosts_beside_the_wire() -> None:
    session = Session([str(TRACES["client"]), str(WIRE), str(TRACES["server"])])
    rpcs = [rpc for rpc in session.rpcs() if rpc.connection.rdma]
    alone = {side: {rpc.xid: host_times(rpc) for rpc in over_rdma(side)} for side in TRACES}
    assert len(rpcs) == 592
    for rpc in rpcs:
        times, client, server = host_times(rpc), alone["client"][rpc.xid], alone["server"][rpc.xid]
        assert times[:9] == client[:9]
        assert times[9:17] == server[9:17]
        # What the capture point sees is shorter than what the client waits, and longer than what the server takes.
        assert rpc.latency is not None and times.wire is not None and times.answered is not None
        assert (server.answered or 0) < rpc.latency.total < times.wire + (times.posted or 0)
        assert times.network == max(0, times.wire - times.answered)
    client_words, server_words = session.remarks()
    assert "592 of its 592 RPCs over RDMA joined" in client_words
    assert "its clock began at 2026-11-23 20:05:29.162" in client_words and ", to 66.3 µs" in client_words
    assert "its clock began at 2026-11-23 20:05:25.627" in server_words


def test_two_traces_without_a_capture() -> None:
    for first, other, words in (("client", "server", "3.54 s ahead"), ("server", "client", "3.54 s behind")):
        session = Session([str(TRACES[first]), str(TRACES[other])])
        rpcs = [rpc for rpc in session.rpcs() if rpc.connection.transport == "RDMA"]
        assert len(rpcs) == 592
        assert all(host_times(rpc).network is not None for rpc in rpcs)
        (remark,) = session.remarks()
        assert words in remark and "592 of its 592" in remark


@pytest.mark.parametrize("other", [TRACES["server"], WIRE])
def test_the_same_rpcs_are_no_two_runs(other: Path) -> None:
    done = run("compare", TRACES["client"], other)
    assert done.exit_code != 0
    assert f"tell of the same RPCs; what joins them: rdmascope report {TRACES['client']} {other}" in done.stderr
    assert run("compare", TRACES["client"], SAMPLES / "meta-rxe.pcap.zst").exit_code == 0


def test_a_trace_of_other_rpcs_is_said_to_be_so() -> None:
    session = Session([str(SAMPLES / "meta-rxe.pcap.zst"), str(TRACES["client"])])
    assert all(rpc.host is None for rpc in session.rpcs())
    (remark,) = session.remarks()
    assert "0 of its 592 RPCs over RDMA joined: no RPC of it is there" in remark


def test_the_command_line_joins_them() -> None:
    result = run("rpcs", TRACES["client"], WIRE, TRACES["server"], "--where", "server_thread_ns > 10ms", "--json")
    assert result.exit_code == 0
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(lines) == sum((host_times(rpc).thread or 0) > 10_000_000 for rpc in traced("server")) > 0
    assert all(line["client_queued_ns"] > 0 and line["server_thread_ns"] > 10_000_000 for line in lines)
    page = run("show", WIRE, TRACES["server"], TRACES["client"], "--rpc", "24").output
    assert re.search(r"client queued", page) and re.search(r"server received", page) and "SEND Only 188 B" in page


def test_the_report_for_scripts_has_clocks_and_phases() -> None:
    result = run("report", TRACES["client"], WIRE, TRACES["server"], "--json")
    records = [json.loads(line) for line in result.stdout.splitlines()]
    joined = [one for one in records if one["type"] == "joined_trace"]
    assert [(one["side"], one["rpcs"], one["joined"]) for one in joined] == [("client", 592, 592), ("server", 592, 592)]
    assert all(0 < one["clock_offset_error_ns"] < 150_000 for one in joined)
    hosts = [one for one in records if one["type"] == "host_procedure"]
    for side in ("client", "server"):
        mine = [one for one in hosts if one["side"] == side]
        assert sum(one["rpcs"] for one in mine) == 592
        assert all(sum(one["phases"].values()) == one["total_ns"] for one in mine)
    executed = sum(execute for *_, execute in kernel_times("client").values()) * 1000
    others = sum(value or 0 for rpc in traced("client")[:3] for value in host_times(rpc)[:9])
    assert sum(one["total_ns"] for one in hosts if one["side"] == "client") == executed - others


def test_lost_events_are_said(tmp_path: Path) -> None:
    lines = zstandard.ZstdDecompressor().decompressobj().decompress((HERE / "client-6.1.txt.zst").read_bytes())
    trace = tmp_path / "lost.txt"
    first, rest = lines[: len(lines) // 2].rpartition(b"\n")[0], lines[len(lines) // 2 :].partition(b"\n")[2]
    trace.write_bytes(first + b"\nCPU:0 [LOST 57 EVENTS]\n" + rest)
    assert "the trace of the client's kernel lost 57 events" in run("report", trace).output
    (said,) = rdmascope.read(trace).diagnosis().statements
    assert said.kind == "capture-dropped" and said.cause.count == 57 and said.cause.share_of == "all events"


def test_saved_tables_keep_what_a_trace_tells(tmp_path: Path) -> None:
    saved = tmp_path / "trace.duckdb"
    assert run("sql", TRACES["client"], "--save", saved).exit_code == 0
    found = {rpc.number: rpc for rpc in rdmascope.read(saved)}
    for rpc in traced("client"):
        kept = found[rpc.number]
        assert kept.host == host_times(rpc)._replace(waits=())
        assert (kept.call_bytes, kept.reply_bytes, kept.status) == (rpc.call_bytes, rpc.reply_bytes, rpc.status)
        mine, theirs = rpc_fields(kept), rpc_fields(rpc)
        assert (mine.handle, mine.offset, mine.linux) == (theirs.handle, theirs.offset, theirs.linux)


def test_a_trace_becomes_a_page(tmp_path: Path) -> None:
    page = tmp_path / "trace.html"
    assert run("report", TRACES["client"], "-o", page).exit_code == 0
    assert "events of the client" in page.read_text()
