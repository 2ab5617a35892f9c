"""A live capture from its beginning to its end: what is counted, judged and given, and what bounds its memory.

The kernel's buffer, packets that wait for a trigger, names of files and answered XIDs each have a fixed part.
Connections have the rest: as the process approaches the bound, the longest idle are evicted.
"""

from __future__ import annotations

import gc
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Protocol
from wsgiref.simple_server import WSGIServer

import numpy as np

from rdmascope.dissect.arrays import distinct
from rdmascope.dissect.audit.auditor import Auditor, RuleTally
from rdmascope.dissect.audit.rule import Finding
from rdmascope.dissect.diagnosis.facts import Gathered
from rdmascope.dissect.frames import FrameBatch
from rdmascope.dissect.measure.credits import CreditHistory
from rdmascope.dissect.measure.data_servers import DataServers
from rdmascope.dissect.measure.file_names import PathLearner
from rdmascope.dissect.measure.live_window import LiveWindow
from rdmascope.dissect.measure.statistics import ProcedureKey, key_of_names
from rdmascope.dissect.named_tuple import NamedTuple
from rdmascope.dissect.onc.rpc_header import procedure_label, program_label
from rdmascope.dissect.records.schema import Record, record
from rdmascope.dissect.rpcrdma.analyzer import NFS_RDMA_PORT, Analyzer, Options, drop_contents
from rdmascope.dissect.rpcrdma.conversation import Conversation
from rdmascope.dissect.rpcrdma.listeners import Listeners
from rdmascope.dissect.rpcrdma.outcome import named
from rdmascope.dissect.rpcrdma.rpc_table import RpcTable
from rdmascope.dissect.rpcrdma.rpcs import Rpc
from rdmascope.dissect.trace.analyzer import TraceAnalyzer
from rdmascope.dissect.trace.events import Event
from rdmascope.dissect.transport.connection import Connection
from rdmascope.dissect.transport.rc.observer import MAX_FLOWS

from ..errors import CaptureError
from ..live import CaptureSettings, open_live
from ..read.merge import OtherPoint
from ..session.kernel_counters import CounterPoint
from ..session.process_memory import trim
from .device import STREAM, TRACED, Live, Source, StreamEnded, TraceSource, trouble_of
from .keep import SECOND, Keeper, TraceKeeper, Trigger

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

    def __init__(self, metrics: Metrics, live: Source) -> None:
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
            if not conversation.carries_rpc:
                continue
            connection = conversation.connection
            client, server = self._pair(connection.endpoints[0].address, connection.endpoints[1].address)
            labels = self._device, client, server
            for name, total, counted in (
                ("retransmitted", sum(connection.retransmitted_packets), metrics.retransmitted.labels(*labels)),
                ("missing", sum(connection.missing_packets), metrics.missing.labels(*labels)),
                ("rnr", analyzer.rnr_naks(connection.number), metrics.rnr.labels(*labels)),
                ("up", connection.bytes[0], metrics.bytes.labels(*labels, "client")),
                ("down", connection.bytes[1], metrics.bytes.labels(*labels, "server")),
            ):
                # What was missing may turn up: a counter does not go back.
                highest = self._before[name, connection.number] = max(total, before.get((name, connection.number), 0))
                counted.inc(highest - before.get((name, connection.number), 0))
            now.setdefault((client, server), 0)
            if connection.ended_by:
                continue
            open_connections += 1
            history = credits.get(connection.number)
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
        series = self._series.get(key)
        if series is None and len(self._series) >= MAX_SERIES:
            key = None
            series = self._series.get(key)
        if series is None:
            labels = (OTHER, OTHER, OTHER, OTHER) if key is None else self._labels(procedure, connection)
            metrics, every = self._metrics, (self._device, *labels)
            series = _Series(
                metrics.rpcs.labels(*every),
                metrics.errors.labels(*every),
                metrics.unanswered.labels(*every),
                metrics.latency.labels(*every),
            )
            self._series[key] = series
        return series

    def _labels(self, key: ProcedureKey, connection: Connection) -> tuple[str, str, str, str]:
        program = program_label(key.program, key.version, key.minor_version)
        client, server = self._pair(*(endpoint.address for endpoint in connection.endpoints))
        return program, procedure_label(key.name, key.operations), client, server


STATM = Path("/proc/self/statm")
"""In pages: size, resident, shared; proc(5)."""
STATUS = Path("/proc/self/status")
"""VmHWM is the peak of what was resident, in KiB; proc(5)."""


def resident() -> int:
    """Bytes that are in memory; 0 where that is not known."""
    try:
        return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def peak() -> int:
    """Most bytes that were in memory since the program began; 0 where that is not known."""
    try:
        lines = STATUS.read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:")), 0)


def release() -> None:
    """Give back what is not in use: cycles, and what the allocator keeps otherwise, which adds up in hours."""
    gc.collect()
    trim()


SMALLEST = 256_000_000
"""Bytes; the program, with a small buffer and a few connections."""
MAX_BUFFER, MIN_BUFFER = 64 << 20, 2 << 20
"""Bytes of the kernel's buffer, where none were asked for."""
PART = 8
"""The part of the bound that the buffers, packets that wait and names of files may take each: an eighth."""
MAX_FILES, FILE = 1 << 17, 500
"""Files whose names are remembered, and bytes of one."""
XID = 1_000_000
"""Bytes of the bound for each answered XID that a connection remembers."""
FEWEST = 16
"""Connections that are kept whatever the memory."""
NEAR, NEAREST = 0.8, 0.95
"""Parts of the bound: where connections begin to be given up, and where they always are."""
STEP = 0.04
"""Part of the bound: what must be gained or come on top before more are given up."""


@dataclass(frozen=True, slots=True)
class MemoryParts:
    """What the parts of a bound are; bytes, unless something else is said."""

    limit: int
    buffer: int
    """The kernel's buffer for each device."""
    before: int
    """Packets that wait for a trigger."""
    files: int
    """Names."""
    answered: int
    """XIDs of a connection and direction."""

    def options(self, options: Options) -> Options:
        """``options`` of the analysis, with at most as many answered XIDs as fit."""
        return options._replace(answered=min(options.answered, self.answered))


def divided(limit: int, devices: int = 1) -> MemoryParts:
    """The parts of a bound for so many devices in one process.  Raises CaptureError where it is too small."""
    smallest = SMALLEST + (devices - 1) * SMALLEST // 4
    if limit < smallest:
        several = f" with {devices} devices" if devices > 1 else ""
        raise CaptureError(f"--memory: the smallest possible bound{several} is {smallest // 1_000_000}M")
    part = limit // PART // devices
    return MemoryParts(
        limit, max(MIN_BUFFER, min(MAX_BUFFER, part)), part, min(MAX_FILES, part // FILE), limit // devices // XID
    )


@dataclass(slots=True)
class MemoryBound:
    """Looks at what the process takes, and has connections given up.  Tell it often."""

    parts: MemoryParts
    measure: Callable[[], int] = resident
    give_back: Callable[[], None] = release
    max_connections: int | None = None
    """Kept at a time since memory was short; None: it was not yet."""
    max_flows: int = MAX_FLOWS
    """Flows that wait for the one in the other direction, at a time."""
    given_up: int = 0
    """Connections that went since memory was short."""
    _level: int = field(init=False)
    """Bytes, from which on something is done."""

    def __post_init__(self) -> None:
        self._level = round(NEAR * self.parts.limit)

    def look(self, analyzer: Analyzer) -> bool:
        """Whether connections are to go, with the next tick of the analyzer; then ``settle`` is due."""
        present, flows = len(analyzer.connections), analyzer.unpaired_flows
        if max(present, flows) <= FEWEST or self.measure() < self._level:
            return False
        self.give_back()
        if self.measure() < self._level - STEP * self.parts.limit:
            return False
        self.max_connections = max(FEWEST, min(analyzer.options.max_connections, present - 1))
        ended = min(analyzer.options.ended, max(1, self.max_connections // 2))
        self.max_flows = max(FEWEST, min(self.max_flows, flows - flows // 4))
        analyzer.keep_fewer(self.max_connections, ended, self.max_flows)
        return True

    def settle(self) -> None:
        """They are gone.  What the allocator does not give back is used again: only more than that counts from now."""
        self.give_back()
        limit = self.parts.limit
        self._level = round(min(NEAREST * limit, max(self._level, self.measure() + STEP * limit)))


WAIT = 50
"""Milliseconds that a frame may wait for others."""
HELD = 0.3
"""Seconds that the kernel may hold the last frames."""
MAX_HELD = 2.0
"""Seconds that the kernel may hold them if its counters say that it does, on a busy machine."""
MARGIN = 400_000_000
"""Nanoseconds that a frame may need from the network to here."""
TIDY = 30
"""Seconds between two searches for memory that can be given back."""
LOOKS = 0.5
"""Seconds between two looks whether the device is still there."""
PUBLISHED = 1.0
"""Seconds between two looks at the connections for the metrics."""
FRAMES_TOGETHER = 2048
"""Frames between two looks at the memory, where it has a bound."""
EXAMPLES = 3
"""Findings of a rule at an end that are given, as the audit does."""
BOUNDS = Options(outstanding=256, answered=512, ended=64, max_connections=4096, max_addresses=1 << 15)
"""What is remembered of a capture without end."""
CREDIT_BINS = 16
"""Intervals of the history of credits, of which only the present is shown."""
EXACT, PROCEDURES = 4096, 512
"""Latencies of a procedure that are kept as they are, and procedures that are counted one by one."""


class Ending:
    """Why the capture is over; it is not while that is ''.

    A signal's name, 'duration', 'count', 'finding', 'trigger', 'quit', 'end' (of a stream) or 'error'.
    """

    def __init__(self) -> None:
        self.why = ""
        self._others: list[Ending] = []
        """Ends of captures that run beside this one, and end with it."""

    def because(self, why: str) -> None:
        """The first reason counts; '' is none.  The end of one stream, and an error, end no other capture."""
        if self.why or not why:
            return
        self.why = why
        self._pass_on()

    def also_ends(self, others: Iterable[Ending]) -> None:
        """End ``others`` with this capture, also if a signal came while they were made."""
        self._others += others
        self._pass_on()

    def _pass_on(self) -> None:
        if self.why not in ("end", "error"):
            for other in self._others:
                other.because(self.why)


class Display(Protocol):
    """Where a session is shown while it runs."""

    keyboard: int | None
    """Descriptor of the terminal's keys, if there are any."""

    def look(self, key_pressed: bool) -> None:
        """Draw what is new, if it is time."""


class LiveSession:
    """One capture from its beginning to its report."""

    def __init__(
        self,
        live: Live | TraceSource,
        options: Options,
        *,
        wanted: int | None = None,
        trigger: Trigger | None = None,
        ending: Ending | None = None,
        on_rpcs: Callable[[RpcTable], None] | None = None,
        on_finding: Callable[[Finding], None] | None = None,
        on_turn: Callable[[], None] | None = None,
        on_trouble: Callable[[str], None] | None = None,
        metrics: CaptureMetrics | None = None,
        bound: MemoryBound | None = None,
    ) -> None:
        """The functions are called while ``run`` runs.

        Args:
            live: where the frames come from.
            options: of the analysis; ``bounded`` keeps its memory within bounds.
            wanted: end after so many RPCs.
            trigger: what is waited for, and what is done then.
            ending: ends it from outside.
            on_rpcs: is given RPCs as they end.
            on_finding: is given the first findings of each rule at each end.
            on_turn: after everything that was there has been given.
            on_trouble: is given why nothing can come of the device now, or that something can again; and that memory
                is short.
            metrics: are kept up to date.
            bound: of the memory of the process.
        """
        self.live = live
        self.path = str(live.device)
        self.damage: CaptureError | None = None
        self.not_kept: CaptureError | None = None
        """Why packets are kept no more."""
        self.other_points: list[OtherPoint] = []
        self.analyzer: Analyzer = TraceAnalyzer(options) if live.device.kind == TRACED else Analyzer(options)
        self.analyzer.listener = self._listeners
        self.data_servers = DataServers()
        self.gathered = Gathered(exact=EXACT, max_procedures=PROCEDURES)
        self._judged: list[Rpc] = []
        """Their contents are needed no more, as soon as they were given."""
        self.auditor = Auditor(examples=EXAMPLES, on_finding=self._found, release=self._judged.append)
        self.credits: dict[int, CreditHistory] = {}
        """By connection number."""
        self.recent = LiveWindow()
        """Filled while there is a display."""
        self._display: Display | None = None
        self.keeper: Keeper | TraceKeeper | None = None
        self.ending = ending or Ending()
        self._waiting: deque[Finding] = deque(maxlen=1 << 14)
        """Findings to be given."""
        self.last_found: dict[str, Finding] = {}
        """By rule, the last one last."""
        self.findings = 0
        self.rpcs = self.failed = 0
        self._on_rpcs, self._on_finding, self._on_turn = on_rpcs, on_finding, on_turn or (lambda: None)
        self._wanted = wanted
        self.trigger = trigger
        if trigger is not None:
            trigger.on_problem = self._note_not_kept
        self.paths = ("",)
        self.began = time.monotonic()
        self.seconds = 0.0
        self._tidied = self._looked = self._came = self.began
        self.trouble = ""
        """Why nothing can come of the device now; '' where something can."""
        self.went_down = 0
        """How often nothing could come of it any more."""
        self._on_trouble = on_trouble or (lambda words: None)
        self.kernel: CounterPoint | None = None
        """Linux's own counters, which are read again at the end."""
        self.metrics = metrics
        self._published = 0.0
        self.bound = bound

    @property
    def first_time(self) -> int:
        """Nanoseconds; of the first frame, 0 before there is one."""
        return self.analyzer.first_time or 0

    def path_learner(self) -> PathLearner:
        """A learner of paths with bounded memory."""
        return PathLearner(max_files=MAX_FILES if self.bound is None else self.bound.parts.files)

    @property
    def now(self) -> int:
        """Nanoseconds since the epoch, by the frames' clock where it is ahead; of a stream by its clock alone.

        Of a trace on its own clock, which began with the host.
        """
        last = self.analyzer.last_time or 0
        if self.live.device.kind == TRACED:
            return max(time.monotonic_ns(), last)
        if self.live.device.kind != STREAM:
            return max(time.time_ns(), last)
        return last + int((time.monotonic() - self._came) * SECOND) if last else 0

    def oldest_call(self) -> Rpc | None:
        """The call that has been outstanding longest, with its name; None if there is none."""
        now = self.now
        unanswered = ((now - rpc.first_time, rpc) for rpc in self.analyzer.unanswered(now))
        waiting, oldest = max(unanswered, key=itemgetter(0), default=(0, None))
        if oldest is not None:
            oldest = named(oldest)
            oldest.outstanding = waiting
        return oldest

    def run(self, duration: int | None, display: Display | None = None) -> None:
        """Capture until something ends it."""
        # The nouns hold hardly any cycles, and looking for some takes longer than all the decoding.
        gc.disable()
        self._display = display
        keeper = self.keeper
        if isinstance(keeper, TraceKeeper) and isinstance(self.live, TraceSource):
            self.live.keep = lambda printed: self._attempt(partial(keeper.write, printed))
        waiter = select.poll()
        waiter.register(self.live.fileno(), select.POLLIN)
        if display is not None and display.keyboard is not None:
            waiter.register(display.keyboard, select.POLLIN)
        try:
            while not self.ending.why:
                ready = waiter.poll(WAIT)
                batch = self.live.read()
                if batch is not None:
                    self._take(batch)
                self._pass_time(busy=batch is not None)
                if display is not None:
                    display.look(any(descriptor == display.keyboard for descriptor, _ in ready))
                if duration is not None and self.seconds * SECOND >= duration:
                    self.ending.because("duration")
            if self.kernel is not None:
                self.kernel.read_again()
            if self.ending.why not in ("count", "finding", "trigger"):
                self._take_rest()
        except StreamEnded:
            self.ending.because("end")
            if self.kernel is not None:
                self.kernel.read_again()
        except CaptureError as error:
            self.damage = error
            self.ending.because("error")
        self._finish()

    def _take_rest(self) -> None:
        """What came before the end, and is given over at the next tick of the kernel's clock."""
        self.live.refuse()
        began = time.monotonic()
        while (batch := self.live.read()) is not None or time.monotonic() < began + self._held(began):
            if batch is None:
                time.sleep(WAIT / 1000)
            else:
                self._take(batch)
                self._evict()

    def _held(self, began: float) -> float:
        """Seconds for which the last frames are awaited: longer where the kernel says that it holds some."""
        if time.monotonic() < began + HELD:
            return HELD
        self.live.count()
        return MAX_HELD if self.live.received - (self.live.dropped or 0) > self.analyzer.frames else HELD

    def _pass_time(self, busy: bool) -> None:
        """Give what waits for time to pass."""
        now = self.analyzer.last_time if busy else max(self.now - MARGIN, self.analyzer.last_time or 0)
        if now:
            self._ended(RpcTable(self.analyzer.tick(now)))
            self.auditor.tick(now)
        self._evict()
        self._give_findings()
        if self.trigger is not None:
            self.trigger.look(self.analyzer, now or 0)
            self.ending.because(self.trigger.over(self.now))
        self._on_turn()
        self.seconds = time.monotonic() - self.began
        if self.metrics is not None and time.monotonic() - self._published >= PUBLISHED:
            self._published = time.monotonic()
            self._publish(self.metrics)
        if time.monotonic() - self._looked >= LOOKS:
            self._look_at_device()
        if time.monotonic() - self._tidied >= TIDY:
            self._tidied = time.monotonic()
            release()

    def _attempt(self, keep: Callable[[], object]) -> None:
        """Keep packets; where the disk does not take them, the capture goes on without, and that is said."""
        try:
            keep()
        except CaptureError as error:
            self._note_not_kept(error)

    def _note_not_kept(self, error: CaptureError) -> None:
        if self.not_kept is None:
            self._on_trouble(f"{error}; no more packets are kept")
            self.not_kept = error

    def _make_room(self, bound: MemoryBound) -> None:
        """Memory is short, and fewer connections may be kept from now."""
        self._ended(RpcTable(self.analyzer.tick(self.analyzer.last_time or 0)))
        self._evict()
        bound.settle()

    def _publish(self, metrics: CaptureMetrics) -> None:
        with suppress(OSError):
            self.live.count()
        metrics.update(self.analyzer, self.credits, self.trigger.happened if self.trigger is not None else 0, self.now)

    def _look_at_device(self) -> None:
        self._looked = time.monotonic()
        before, self.trouble = self.trouble, trouble_of(self.live.device)
        self.went_down += bool(self.trouble) > bool(before)
        if self.trouble != before:
            self._on_trouble(self.trouble or "it is up again")

    def _take(self, batch: FrameBatch | list[Event]) -> None:
        self._came = time.monotonic()
        if isinstance(batch, list):
            assert isinstance(self.analyzer, TraceAnalyzer)
            self.analyzer.frames = self.live.received - (self.live.dropped or 0)
            self._ended(self.analyzer.feed_events(batch))
            return
        if isinstance(self.keeper, Keeper):
            self._attempt(partial(self.keeper.write, batch))
        if self.trigger is not None:
            self.trigger.write(batch)
        step = len(batch) if self.bound is None else FRAMES_TOGETHER
        for at in range(0, len(batch), step or 1):
            piece = FrameBatch(batch.data, batch.rows[at : at + step])
            self._ended(self.analyzer.feed_table(self.analyzer.decoder.take(piece)))
            if self.bound is not None and self.bound.look(self.analyzer):
                self._make_room(self.bound)

    def _ended(self, table: RpcTable) -> None:
        self.data_servers.learn(table, lambda: self.analyzer.conversations)
        self._give(table)
        for rpc in self._judged:
            drop_contents(rpc)
        self._judged.clear()

    def _give(self, table: RpcTable) -> None:
        if self._wanted is not None:
            table = table.selected(np.arange(len(table)) < self._wanted - self.rpcs)
        if not len(table):
            return
        self.rpcs += len(table)
        failed = np.array([failed for _, failed in table.names.statuses] or [False])
        self.failed += int(np.count_nonzero(failed[table.only_rows["status"]]))
        self.failed += sum(rpc.failed for rpc in table.objects)
        self.gathered.add_table(table)
        if self.kernel is not None:
            self.kernel.add(table)
        if self.metrics is not None:
            self.metrics.add(table)
        if self.trigger is not None:
            self.trigger.judge(table, self)
        if self._on_rpcs is not None:
            self._on_rpcs(table)
        if self._display is not None:
            self.recent.add(table)
        if self.rpcs == self._wanted:
            self.ending.because("count")

    def _evict(self) -> None:
        """Let go of what belongs to connections that were evicted."""
        conversations = self.analyzer.evicted_since()
        if not conversations:
            return
        if self.bound is not None and self.bound.max_connections is not None:
            if not self.bound.given_up:
                self._on_trouble("memory is short: connections that were quiet the longest are evicted")
            self.bound.given_up += len(conversations)
        self.gathered.evict(conversations)
        if self.kernel is not None:
            self.kernel.note(conversations)
        self.auditor.evict(conversations)
        self.data_servers.evict(conversations)
        for conversation in conversations:
            self.credits.pop(conversation.connection.number, None)

    def _finish(self) -> None:
        """The capture is over, the report not yet printed."""
        self.seconds = time.monotonic() - self.began
        self._look_at_device()
        self._ended(self.analyzer.finish_table())
        self.auditor.finish(self.analyzer.conversations)
        self._give_findings()
        with suppress(OSError):
            self.live.count()
        if self.kernel is not None:
            self.kernel.note(self.analyzer.conversations, lossy=bool(self.live.dropped))
        if self.trigger is not None:
            self.trigger.close()
        if self.keeper is not None:
            self._attempt(self.keeper.close)
        self.damage = self.damage or self.not_kept
        gc.enable()

    def _listeners(self, conversation: Conversation) -> Listeners | None:
        audit = self.auditor.listener(conversation)
        if audit is None:
            return None
        history = self.credits[conversation.connection.number] = CreditHistory(conversation, CREDIT_BINS)
        return Listeners(audit, history)

    def _found(self, finding: Finding, tally: RuleTally) -> None:
        self.findings += 1
        id = finding.rule.id
        self.last_found.pop(id, None)
        self.last_found[id] = finding
        if self._on_finding is not None and tally.violated <= EXAMPLES:
            self._waiting.append(finding)
        if self.trigger is not None:
            self.trigger.found(finding)
        if self.metrics is not None:
            self.metrics.found(finding)

    def _give_findings(self) -> None:
        while self._waiting and self._on_finding is not None:
            self._on_finding(self._waiting.popleft())

    def breaches(self) -> list[tuple[Finding, int]]:
        """The last finding of each broken rule, the latest first, and how often the rule was broken."""
        times: dict[str, int] = {}
        for key, tally in self.auditor.tallies.items():
            times[key.rule] = times.get(key.rule, 0) + tally.violated
        return [(finding, times[id]) for id, finding in reversed(self.last_found.items())]

    def placed(self, fields: Record) -> Record:
        """The frames of a live capture are in no file."""
        return fields

    def record(self) -> Record:
        """The record ``live``: how the capture itself went."""
        live = self.live
        around = self.trigger.keeper if self.trigger is not None else None
        keepers = [keeper for keeper in (self.keeper, around) if keeper is not None]
        return record(
            "live",
            device=live.device.name,
            kind=live.device.kind,
            interface=live.device.interface or None,
            filter=live.words,
            snaplen=live.snaplen,
            seconds=round(self.seconds, 3),
            frames=self.analyzer.frames,
            kernel_received=live.received,
            kernel_dropped=live.dropped,
            rpcs=self.rpcs,
            findings=self.findings,
            triggers=self.trigger.happened if self.trigger is not None else None,
            rules_broken={finding.rule.id: times for finding, times in self.breaches()},
            evicted_connections=self.analyzer.evicted.connections,
            evicted_calls=self.analyzer.evicted.open_calls,
            memory=self._memory(),
            files_removed=sum(keeper.ring.removed for keeper in keepers) if keepers else None,
            went_down=self.went_down,
            trouble=self.trouble or None,
            not_kept=None if self.not_kept is None else str(self.not_kept),
            ended_by=self.ending.why,
            error=None if self.damage is None else str(self.damage),
            event_cost_ns=live.event_cost_ns if isinstance(live, TraceSource) else None,
        )

    def _memory(self) -> Record:
        bound, options = self.bound, self.analyzer.options
        parts = bound.parts if bound is not None else None
        around = self.trigger.keeper if self.trigger is not None else None
        return {
            "limit": parts.limit if parts is not None else None,
            "peak": peak() or None,
            "before": around.may_wait if around is not None else None,
            "files": parts.files if parts is not None else MAX_FILES,
            "answered": options.answered,
            "connections": options.max_connections,
            "given_up": bound.given_up if bound is not None else 0,
        }


def run_together(sessions: Sequence[LiveSession], duration: int | None) -> None:
    """Several captures at once, each with its own clock, analysis and report, until all of them have ended.

    What one raises is raised when all have ended.
    """
    for live_session in sessions:
        live_session.ending.also_ends(other.ending for other in sessions if other is not live_session)
    raised: list[BaseException] = []

    def run(session: LiveSession) -> None:
        try:
            session.run(duration)
        except BaseException as error:  # It is raised again below.
            raised.append(error)
            session.ending.because("quit")

    threads = [threading.Thread(target=run, args=(live_session,)) for live_session in sessions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if raised:
        raise raised[0]


def bounded(options: Options) -> Options:
    """The options, with as much remembered as a capture without end allows."""
    names = ("outstanding", "answered", "ended", "max_connections", "max_addresses")
    return options._replace(**{name: getattr(BOUNDS, name) for name in names})


def watch(
    device: str,
    *,
    duration: float | None = None,
    count: int | None = None,
    on_rpcs: Callable[[list[Rpc]], None] | None = None,
    on_finding: Callable[[Finding], None] | None = None,
    ports: Iterable[int] = (),
) -> LiveSession:
    """Capture on a network interface or RDMA device, and analyse at once, until it is over.

    Args:
        device: an interface, 'any', an rxe or siw device, or an mlx5 adapter.
        duration: seconds.
        count: RPCs.
        on_rpcs: is given RPCs as they end.
        on_finding: is given violations as they are found, at most 3 of a rule at an end.
        ports: more service ports of RPC-over-RDMA beside 20049.

    The session that comes back has ``gathered``, ``analyzer`` and ``auditor``; ``damage`` says why it ended early.
    Without ``duration`` and ``count`` it runs until one of the functions raises.  Raises CaptureError where the device
    cannot be captured on.
    """
    every = frozenset({NFS_RDMA_PORT, *ports})
    with closing(open_live(device, CaptureSettings(tuple(sorted(every))))) as live:
        options = bounded(Options(ports=every))
        each = None if on_rpcs is None else lambda table: on_rpcs([*table])
        session = LiveSession(live, options, wanted=count, on_rpcs=each, on_finding=on_finding)
        session.run(None if duration is None else round(duration * SECOND))
    return session
