"""Live figures for Prometheus, over HTTP: https://prometheus.io/docs/instrumenting/exposition_formats/.

Labels are bounded: procedures and pairs of addresses beyond ``MAX_SERIES`` are counted together as 'other'.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from threading import Thread
from typing import TYPE_CHECKING, NamedTuple
from wsgiref.simple_server import WSGIServer

import numpy as np

from rdmascope.dissect.arrays import distinct
from rdmascope.dissect.audit.finding import Finding
from rdmascope.dissect.measure.credits import CreditHistory
from rdmascope.dissect.measure.statistics import ProcedureKey, key_of_names
from rdmascope.dissect.onc.names import procedure_label, program_label
from rdmascope.dissect.rpcrdma.analyzer import Analyzer
from rdmascope.dissect.rpcrdma.rpc_table import RpcTable
from rdmascope.dissect.transport.connection import Connection

from ..errors import CaptureError
from .device import Live

if TYPE_CHECKING:
    from prometheus_client import Counter, Gauge, Histogram

BUCKETS = (
    0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0
)  # fmt: skip
"""Seconds."""
MAX_SERIES = 256
"""Label sets kept: of procedures with both addresses, and of pairs of addresses; each is a series for Prometheus."""
OTHER = "other"
LOCAL = "127.0.0.1"


class _Series(NamedTuple):
    """What is counted of the RPCs of one procedure between two hosts."""

    rpcs: Counter
    errors: Counter
    unanswered: Counter
    latency: Histogram


class Metrics:
    """An HTTP server with the figures of one or more live captures, which each have a ``CaptureMetrics``."""

    def __init__(self, address: str = LOCAL, port: int = 0) -> None:
        """Raises CaptureError where prometheus-client is missing, or the port is taken."""
        try:
            import prometheus_client as client
        except ImportError:
            raise CaptureError("--metrics needs prometheus-client: pip install 'rdmascope[metrics]'") from None
        client.disable_created_metrics()  # type: ignore[no-untyped-call]
        registry = client.CollectorRegistry()
        device, pair = ["device"], ["device", "client", "server"]
        rpc = [*device, "program", "procedure", "client", "server"]

        def counter(name: str, words: str, labels: Sequence[str]) -> Counter:
            return client.Counter(f"rdmascope_{name}", words, labels, registry=registry)

        def gauge(name: str, words: str, labels: Sequence[str]) -> Gauge:
            return client.Gauge(f"rdmascope_{name}", words, labels, registry=registry)

        self.rpcs = counter("rpcs", "RPCs that ended", rpc)
        self.errors = counter("rpc_errors", "RPCs whose reply reports an error", rpc)
        self.unanswered = counter("rpcs_unanswered", "Calls without a reply", rpc)
        name, words = "rdmascope_rpc_latency_seconds", "Call to reply at the capture point"
        self.latency = client.Histogram(name, words, rpc, registry=registry, buckets=BUCKETS)
        self.bytes = counter("payload_bytes", "RDMA payload, retransmissions included", [*pair, "sender"])
        self.retransmitted = counter("retransmitted_packets", "Packets that were retransmitted", pair)
        self.missing = counter("missing_packets", "Packets that were sent and not captured", pair)
        self.rnr = counter("rnr_naks", "Receiver-not-ready NAKs", pair)
        self.outstanding = gauge("calls_outstanding", "Calls without a reply, now", pair)
        self.oldest = gauge("oldest_call_seconds", "For how long the oldest call without a reply is outstanding", pair)
        self.credits = gauge("credits_granted", "Calls that the server allows at a time, now", pair)
        self.connections = gauge("connections", "RPC-over-RDMA connections that are open", device)
        self.frames = counter("frames", "Frames captured", device)
        self.dropped = counter("frames_dropped", "Frames that the kernel dropped for lack of room", device)
        self.findings = counter("findings", "Violations that the audit found", [*device, "rule", "level"])
        self.triggers = counter("triggers", "How often what was waited for happened", device)
        client.ProcessCollector(registry=registry)
        try:
            started = client.start_http_server(port, address, registry)
        except (OSError, OverflowError) as error:
            why = error.strerror if isinstance(error, OSError) else "no such port"
            raise CaptureError(f"--metrics {address}:{port}: {why}") from None
        self._server: WSGIServer = started[0]
        self._thread: Thread = started[1]
        host = f"[{address}]" if ":" in address else address
        self.url = f"http://{host}:{self._server.server_port}/metrics"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class CaptureMetrics:
    """The figures of one live capture."""

    def __init__(self, metrics: Metrics, live: Live) -> None:
        self._metrics = metrics
        self._live = live
        self._device = live.device.name
        self._series: dict[tuple[object, ...] | None, _Series] = {}
        """By procedure and addresses; None: all others."""
        self._pairs: set[tuple[str, str]] = set()
        self._before: dict[tuple[str, int], int] = {}
        """Totals of connections that were counted, by figure and number."""
        self._totals = [0, 0, 0]

    def add(self, table: RpcTable) -> None:
        """Count RPCs that ended."""
        rows, names = table.rows, table.names
        failed = np.array([failed for _, failed in names.statuses])[rows["status"]]
        first, which = distinct(rows["connection"], rows["procedure"], rows["caller"])
        for kind, row in enumerate(rows[first]):
            key = key_of_names(names.procedures[row["procedure"]], bool(row["caller"]))
            series = self._of(key, table.conversation(int(row["connection"])).connection)
            mine = which == kind
            series.rpcs.inc(int(np.count_nonzero(mine)))
            series.errors.inc(int(np.count_nonzero(failed[mine])))
            series.unanswered.inc(int(np.count_nonzero(rows["reply_frame"][mine] == 0)))
            latencies = rows["latency"][mine]
            for latency in latencies[latencies >= 0].tolist():
                series.latency.observe(latency / 1e9)

    def found(self, finding: Finding) -> None:
        rule = finding.rule
        self._metrics.findings.labels(self._device, rule.id, rule.level.value).inc()

    def update(
        self, analyzer: Analyzer, credits: dict[int, CreditHistory], triggers: int, time: int | None = None
    ) -> None:
        """What the connections came to by ``time`` (ns), by default that of the last frame."""
        time = analyzer.last_time or 0 if time is None else time
        oldest: dict[tuple[str, str], int] = {}
        for rpc in analyzer.unanswered(time):
            pair = self._pair(*(endpoint.address for endpoint in rpc.connection.endpoints))
            oldest[pair] = max(oldest.get(pair, 0), time - rpc.first_time)
        metrics = self._metrics
        now: dict[tuple[str, str], int] = {}
        credit_values: dict[tuple[str, str], int] = {}
        before, self._before = self._before, {}
        open_connections = 0
        for conversation in analyzer.conversations:
            if conversation.protocol != "rpcrdma":
                continue
            one = conversation.connection
            client, server = self._pair(one.endpoints[0].address, one.endpoints[1].address)
            labels = self._device, client, server
            for name, total, counted in (
                ("retransmitted", sum(one.retransmitted_packets), metrics.retransmitted.labels(*labels)),
                ("missing", sum(one.missing_packets), metrics.missing.labels(*labels)),
                ("rnr", analyzer.rnr_naks(one.number), metrics.rnr.labels(*labels)),
                ("up", one.bytes[0], metrics.bytes.labels(*labels, "client")),
                ("down", one.bytes[1], metrics.bytes.labels(*labels, "server")),
            ):
                # What was missing may turn up: a counter does not go back.
                highest = self._before[name, one.number] = max(total, before.get((name, one.number), 0))
                counted.inc(highest - before.get((name, one.number), 0))
            now.setdefault((client, server), 0)
            if one.ended_by:
                continue
            open_connections += 1
            history = credits.get(one.number)
            if history is not None:
                forward = history.directions[0]
                now[client, server] += forward.outstanding
                if forward.latest_granted is not None:
                    credit_values[client, server] = credit_values.get((client, server), 0) + forward.latest_granted
        for pair in self._pairs:
            metrics.outstanding.labels(self._device, *pair).set(now.get(pair, 0))
            metrics.oldest.labels(self._device, *pair).set(oldest.get(pair, 0) / 1e9)
            if pair in credit_values:
                metrics.credits.labels(self._device, *pair).set(credit_values[pair])
            else:
                with suppress(KeyError):
                    metrics.credits.remove(self._device, *pair)
        metrics.connections.labels(self._device).set(open_connections)
        totals = [analyzer.frames, self._live.dropped, triggers]
        for at, counter in enumerate((metrics.frames, metrics.dropped, metrics.triggers)):
            if (so_far := totals[at]) is not None:  # A sample of 0 would say that none was dropped.
                counter.labels(self._device).inc(max(0, so_far - self._totals[at]))
                self._totals[at] = so_far

    def _pair(self, client: str, server: str) -> tuple[str, str]:
        pair = client, server
        if pair not in self._pairs and len(self._pairs) >= MAX_SERIES:
            pair = OTHER, OTHER
        self._pairs.add(pair)
        return pair

    def _of(self, procedure: ProcedureKey, connection: Connection) -> _Series:
        ends = connection.endpoints
        key: tuple[object, ...] | None = (procedure, ends[0].address, ends[1].address)
        found = self._series.get(key)
        if found is None and len(self._series) >= MAX_SERIES:
            key = None
            found = self._series.get(key)
        if found is None:
            labels = (OTHER, OTHER, OTHER, OTHER) if key is None else self._labels(procedure, connection)
            metrics, every = self._metrics, (self._device, *labels)
            found = _Series(
                metrics.rpcs.labels(*every),
                metrics.errors.labels(*every),
                metrics.unanswered.labels(*every),
                metrics.latency.labels(*every),
            )
            self._series[key] = found
        return found

    def _labels(self, key: ProcedureKey, connection: Connection) -> tuple[str, str, str, str]:
        program = program_label(key.program, key.version, key.minor_version)
        client, server = self._pair(*(endpoint.address for endpoint in connection.endpoints))
        return program, procedure_label(key.name, key.operations), client, server
