"""Figures for Prometheus, scraped while the capture runs."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import threading
import time
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from playbook import Capture, Wire, call, frame_batches, nfs3, reply
from playbook.commands import LOSS, PROGRAM, objects, run, unpacked
from rdmascope.captures.live import Device
from rdmascope.captures.live.device import STREAM
from rdmascope.captures.live.session import MAX_SERIES, OTHER, CaptureMetrics, Metrics
from rdmascope.dissect.measure.credits import CreditHistory
from rdmascope.dissect.rpcrdma.analyzer import Analyzer
from rdmascope.dissect.rpcrdma.conversation import Conversation
from rdmascope.dissect.rpcrdma.rpc_table import RpcTable

DEADLINE = 120
DOCS = Path(__file__).parents[3] / "docs"

Figures = dict[str, dict[tuple[tuple[str, str], ...], float]]


def scraped(url: str) -> Figures:
    text = urllib.request.urlopen(url, timeout=DEADLINE).read().decode()
    found: Figures = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


def total(figures: Figures, name: str) -> float:
    return sum(figures.get(f"rdmascope_{name}", {}).values())


def test_scraped_under_load() -> None:
    """While the capture is fed a bit at a time: no figure goes back, and in the end all RPCs are there."""
    watcher = subprocess.Popen(
        [*PROGRAM, "live", "-", "--metrics", ":0", "--json"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert watcher.stdin and watcher.stdout and watcher.stderr
    said = watcher.stderr.readline().decode()
    match = re.fullmatch(r"rdmascope: metrics at (http://127\.0\.0\.1:\d+/metrics)\n", said)
    assert match, said
    text, stdin, printed = unpacked(LOSS), watcher.stdin, list[bytes]()
    stdout = watcher.stdout
    threading.Thread(target=lambda: printed.extend(stdout)).start()

    def feed() -> None:
        for at in range(0, len(text), 1 << 15):
            stdin.write(text[at : at + (1 << 15)])
            stdin.flush()
            time.sleep(0.001)

    feeder = threading.Thread(target=feed)
    feeder.start()
    wanted = [one for one in objects("rpcs", LOSS) if one["reply_frame"] is not None]
    end, before = time.monotonic() + DEADLINE, 0.0
    while True:
        figures = scraped(match[1])
        assert before <= total(figures, "rpcs_total")
        before = total(figures, "rpcs_total")
        if before >= len(wanted) and total(figures, "frames_total") and not feeder.is_alive():
            break
        assert time.monotonic() < end and watcher.poll() is None
    feeder.join()
    failed = sum(one["failed"] for one in wanted)
    latencies = [one["latency_ns"] for one in wanted if one["latency_ns"] is not None]
    while not (  # The connections are looked at once a second, and a scrape may come between two figures.
        total(figures, "rpc_errors_total") >= failed
        and total(figures, "rpc_latency_seconds_count") >= len(latencies)
        and total(figures, "rpc_latency_seconds_sum") == pytest.approx(sum(latencies) / 1e9)
        and total(figures, "retransmitted_packets_total")
    ):
        assert time.monotonic() < end and watcher.poll() is None
        figures = scraped(match[1])
    stdin.close()
    assert watcher.wait(DEADLINE) == 0
    assert total(figures, "rpc_errors_total") == failed
    assert total(figures, "rpc_latency_seconds_count") == len(latencies)
    records = [json.loads(line) for line in printed]
    sent = [one for one in records if one["type"] == "transport"]
    assert total(figures, "findings_total") > 0 and total(figures, "retransmitted_packets_total") > 0 and sent
    assert {"device", "program", "procedure", "client", "server"} == {
        name for name, _ in next(iter(figures["rdmascope_rpcs_total"]))
    }


class Nowhere:
    device = Device("test", STREAM)
    link_type = snaplen = received = 0
    dropped: int | None = 0
    words = ""

    def fileno(self) -> int:
        return -1

    def read(self) -> None:
        return None

    def refuse(self) -> None: ...

    def count(self) -> None: ...

    def close(self) -> None: ...


def test_the_label_sets_are_bounded() -> None:
    wire = Wire()
    talk = wire.connect()
    for _ in range(3):
        reply(call(talk, nfs3.null()), nfs3.null_reply())
    analyzer = Analyzer()
    rpcs = [rpc for batch in frame_batches(Capture(wire).frames, []) for rpc in analyzer.feed(batch)]
    metrics = Metrics()
    try:
        mine = CaptureMetrics(metrics, Nowhere())
        for number in range(MAX_SERIES + 50):
            for rpc in rpcs:
                rpc.name = f"proc-{number}"
            mine.add(RpcTable(rpcs))
        figures = scraped(metrics.url)["rdmascope_rpcs_total"]
        assert len(figures) == MAX_SERIES + 1 and sum(figures.values()) == 3 * (MAX_SERIES + 50)
        assert [value for labels, value in figures.items() if ("procedure", OTHER) in labels] == [150]
        mine.update(analyzer, {}, 0)
        mine.update(analyzer, {}, 0)
        figures = scraped(metrics.url)["rdmascope_frames_total"]
        assert sum(figures.values()) == analyzer.frames  # Not twice.
    finally:
        metrics.close()


def test_what_is_not_known_has_no_sample() -> None:
    """A stream does not say what was dropped before it; tcpdump says it at its end."""
    live, metrics = Nowhere(), Metrics()
    try:
        mine = CaptureMetrics(metrics, live)
        seen = []
        for live.dropped in (None, 3):
            mine.update(Analyzer(), {}, 0)
            seen.append(scraped(metrics.url).get("rdmascope_frames_dropped_total"))
        assert seen == [None, {(("device", "test"),): 3.0}]
        wire, credits = Wire(), dict[int, CreditHistory]()
        asked = call(wire.connect(), nfs3.null())
        answer = len(Capture(wire).frames)
        reply(asked, nfs3.null_reply(), credits=17)

        def listener(conversation: Conversation) -> CreditHistory:
            credits[conversation.connection.number] = history = CreditHistory(conversation)
            return history

        analyzer, granted = Analyzer(listener=listener), []
        for batch in frame_batches(Capture(wire).frames, [answer]):
            analyzer.feed(batch)
            mine.update(analyzer, credits, 0)
            figures = scraped(metrics.url)
            granted.append([*figures.get("rdmascope_credits_granted", {}).values()])
            assert [*figures["rdmascope_calls_outstanding"].values()] == [2 - len(granted)]
        assert granted == [[], [17]]
    finally:
        metrics.close()


def test_what_cannot_be_is_one_line() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        for where, complaint in (
            (f":{taken.getsockname()[1]}", "Address already in use"),
            (":http", "give a port"),
            (":99999", "give a port"),
        ):
            result = run("live", "-", "--metrics", where, stdin=b"")
            assert (result.exit_code, result.stdout) == (2, "") and complaint in result.stderr


def test_the_dashboard_asks_for_figures_that_exist() -> None:
    metrics = Metrics()
    try:
        CaptureMetrics(metrics, Nowhere()).update(Analyzer(), {}, 0)
        text = urllib.request.urlopen(metrics.url, timeout=DEADLINE).read().decode()
    finally:
        metrics.close()
    there = set(re.findall(r"^# TYPE (rdmascope_\w+) ", text, re.MULTILINE))
    board = json.loads((DOCS / "grafana-dashboard.json").read_text())
    asked = set(re.findall(r"rdmascope_\w+", json.dumps([panel["targets"] for panel in board["panels"]])))
    assert "rdmascope_oldest_call_seconds" in asked and {name.removesuffix("_bucket") for name in asked} <= there
    page = (DOCS / "live.md").read_text()
    assert [name for name in there if name.removesuffix("_total") not in page] == []
