"""``rdmascope live``: what happens now."""

from __future__ import annotations

import gc
import select
import signal
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from importlib.metadata import version

import click

from rdmascope.captures import CaptureError
from rdmascope.captures.live import Keep, Keeper, Live, Settings, open_live
from rdmascope.dissect.audit.auditor import Auditor, RuleTally
from rdmascope.dissect.audit.finding import Finding
from rdmascope.dissect.audit.selection import matching_rules
from rdmascope.dissect.frames import FrameBatch
from rdmascope.dissect.measure.credits import CreditHistory
from rdmascope.dissect.measure.live_window import LiveWindow
from rdmascope.dissect.measure.statistics import Statistics
from rdmascope.dissect.records.audit import finding_record
from rdmascope.dissect.records.rpc import rpc_record
from rdmascope.dissect.records.schema import Record, record
from rdmascope.dissect.rpcrdma.analyzer import NFS_RDMA_PORT, Analyzer, Options, drop_contents
from rdmascope.dissect.rpcrdma.conversation import Conversation
from rdmascope.dissect.rpcrdma.listeners import Listeners
from rdmascope.dissect.rpcrdma.rpcs import Rpc

from ..dashboard import Dashboard
from ..options import Duration
from ..reading import analyzer_options, recognition_options
from ..terminal import EXIT_BAD_INPUT, complain, console, print_json, show
from ..views.live import CONNECTION_ORDERS, OPERATION_ORDERS, Look
from .report import print_page, print_records

EXIT_FOUND = 1
WAIT = 50
"""Milliseconds that a frame may wait for others."""
MARGIN = 200_000_000
"""Nanoseconds that a frame may need from the network to here."""
SECOND = 1_000_000_000
TIDY = 60
"""Seconds between two searches for memory that can be given back."""
BOUNDS = Options(outstanding=256, ended=64, max_connections=4096)
"""What is remembered of a capture without end."""
EXAMPLES = 3
"""Findings of a rule at an end that --json gives, as audit does."""


@click.command("live")
@click.argument("device", metavar="DEVICE")
@click.option("--json", "as_json", is_flag=True, help="RPCs and findings as they happen, one JSON object a line.")
@click.option("--duration", type=Duration(), metavar="TIME", help="End after 10s, 500ms, 90.")
@click.option("--count", "wanted", type=click.IntRange(1), metavar="N", help="End after N RPCs.")
@click.option(
    "--until-finding",
    "until",
    is_flag=False,
    flag_value="*",
    metavar="[RULE]",
    help="End with status 1 when a rule, or this one (V1-READ* for all that begin so), is violated.",
)
@click.option("--write", "path", metavar="FILE", help="Keep the packets, too, as pcapng.")
@click.option(
    "--ring-size",
    type=click.IntRange(1),
    default=100,
    show_default=True,
    metavar="MB",
    help="Size of a file of --write.",
)
@click.option(
    "--ring-files", type=click.IntRange(1), default=10, show_default=True, metavar="N", help="Files that are kept."
)
@click.option("--ring-time", type=Duration(), metavar="TIME", help="Begin a new file after this time, too.")
@click.option("--all-tcp", is_flag=True, help="Look for iWARP on every TCP port, not only those of --port.")
@click.option("--tunnels", is_flag=True, help="Look into VXLAN, GENEVE, GRE, MPLS and IP in IP.")
@click.option(
    "--snaplen", type=click.IntRange(128, 262144), default=262144, metavar="BYTES", help="Truncate longer frames."
)
@click.option(
    "--buffer", type=click.IntRange(2, 4096), default=64, show_default=True, metavar="MB", help="The kernel's buffer."
)
@click.option("--no-promiscuous", is_flag=True, help="Only frames from and to this host.")
@click.option("--sort", type=click.Choice([*OPERATION_ORDERS]), default="time", help="Order of the procedures.")
@click.option(
    "--sort-connections", type=click.Choice([*CONNECTION_ORDERS]), default="rpcs", help="Order of the connections."
)
@click.option("--connection", type=click.IntRange(1), metavar="N", help="Show procedures and RPCs of this one only.")
@click.option("--pause", is_flag=True, help="Begin paused, until p is pressed.")
@recognition_options
@click.pass_context
def command(
    ctx: click.Context,
    device: str,
    as_json: bool,
    duration: int | None,
    wanted: int | None,
    until: str | None,
    path: str | None,
    ring_size: int,
    ring_files: int,
    ring_time: int | None,
    all_tcp: bool,
    tunnels: bool,
    snaplen: int,
    buffer: int,
    no_promiscuous: bool,
    sort: str,
    sort_connections: str,
    connection: int | None,
    pause: bool,
    ports: tuple[int, ...],
    force: str | None,
) -> None:
    """RPCs over RDMA as they happen, and the report at the end.

    DEVICE is a network interface (or "any"), an rxe or siw device, which stands for its interface, or an mlx5 adapter,
    whose RDMA bypasses the kernel and is captured by tcpdump.

    Example: what is this client doing?

    \b
      $ rdmascope live rxe0
      rxe0 (eth0)  0:00:41  2,931 RPCs, 3 errors
      74 RPC/s  ↑ 1.13 MiB/s  ↓ 18.2 KiB/s  ▂▂▃▅▇▇▆▆▅▅ 41 s
      12,402 frames, none dropped by the kernel
      p pause  s sort: time  S sort: rpcs  c connection: all  q quit
      Connections                     RPC/s     up/s   down/s credits retrans RNR
      1 10.77.0.2 → 10.77.0.1:20049      74 1.13 MiB 18.2 KiB    3/64     -   -
      ...

    Credits are calls without a reply, of those that the server allows; "retrans" counts retransmitted packets, RNR how
    often an end was not ready to receive, "missing" packets that were sent but not captured.

    Where the output is not a terminal there is only the report at the end: after Ctrl-C, --duration or --count.
    For scripts, and a check that ends at the first violation:

    \b
      $ rdmascope live rxe0 --json --duration 60s |
          jq -r 'select(.type == "rpc" and .failed) | .status'
      $ rdmascope live eth0 --until-finding V1-CREDIT* --write trouble.pcapng

    A filter in the kernel keeps RoCE (UDP port 4791, EtherType 0x8915) and, of TCP, port 20049 and those of --port,
    where iWARP is looked for.  The kernel drops what this program is too slow for; the count is always shown.  Memory
    stays bounded: of connections that ended long ago, and of old latencies, only sums are kept.

    --write FILE keeps at most --ring-files files of --ring-size.  The newest is FILE itself, full ones get a number and
    a time in their names, and each records what was dropped while it was written.

    \b
    With --json, while it happens:
      rpc      one RPC, as in "rdmascope rpcs"
      finding  one finding, as in "rdmascope audit", 3 of each rule and end
    and at the end all records of "rdmascope report", and one
      live     device, filter, frames, what was dropped, why it ended
    """
    if not as_json and not path and wanted is None and duration is None and not sys.stdout.isatty() and until is None:
        complain("standard output is no terminal: the report comes with Ctrl-C")
    rules = matching_rules(until) if until else frozenset()
    options = replace(
        analyzer_options(ports, force),
        outstanding=BOUNDS.outstanding,
        ended=BOUNDS.ended,
        max_connections=BOUNDS.max_connections,
    )
    settings = Settings(
        tuple(sorted({NFS_RDMA_PORT, *ports})), all_tcp, tunnels, snaplen, buffer << 20, not no_promiscuous
    )
    keep = Keep(path, ring_size * 1_000_000, ring_files, ring_time / SECOND if ring_time else None) if path else None
    ending = Ending()
    try:
        with _stoppable(ending), closing(open_live(device, settings)) as live:
            watching = Watching(live, options, as_json, wanted, rules, ending)
            if live.device.note:
                complain(live.device.note)
            if keep is not None:
                watching.keeper = Keeper(keep, live, f"rdmascope {version('rdmascope')}")
            if as_json or not sys.stdout.isatty():
                watching.run(duration)
            else:
                look = Look(sort, sort_connections, pause)
                with Dashboard(watching, look, connection) as dashboard:
                    watching.run(duration, dashboard)
    except CaptureError as error:
        raise click.ClickException(str(error)) from None
    watching.report()
    if watching.damage is not None:
        complain(str(watching.damage))
        ctx.exit(EXIT_BAD_INPUT)
    if ending.why == "finding":
        ctx.exit(EXIT_FOUND)


class Ending:
    """Why the capture is over; it is not while that is ''.

    A signal's name, 'duration', 'count', 'finding', 'quit' or 'error'.
    """

    why = ""

    def because(self, why: str) -> None:
        """The first reason counts."""
        self.why = self.why or why


@contextmanager
def _stoppable(ending: Ending) -> Iterator[None]:
    """Ctrl-C and SIGTERM end the capture, not the program."""

    def stop(number: int, _: object) -> None:
        if ending.why:
            raise KeyboardInterrupt
        ending.because(signal.Signals(number).name)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Watching:
    """One capture from its beginning to its report."""

    def __init__(
        self, live: Live, options: Options, as_json: bool, wanted: int | None, until: frozenset[str], ending: Ending
    ) -> None:
        """``wanted``: end after so many RPCs; ``until``: rules that end it when they are found broken."""
        self.live = live
        self.path = str(live.device)
        self.damage: CaptureError | None = None
        self.analyzer = Analyzer(options, self._listeners)
        self.statistics = Statistics()
        self.auditor = Auditor(examples=EXAMPLES, on_finding=self._tell, release=drop_contents)
        self.credits: dict[int, CreditHistory] = {}
        """By connection number."""
        self.recent = LiveWindow()
        self.picked: int | None = None
        self.keeper: Keeper | None = None
        self.ending = ending
        self.found: deque[Finding] = deque(maxlen=1 << 14)
        """What is to be printed."""
        self.last_found: dict[str, Finding] = {}
        """By rule, the last one last."""
        self.findings = 0
        self.rpcs = self.failed = 0
        self._as_json = as_json
        self._wanted = wanted
        self._until = until
        self.began = time.monotonic()
        self.seconds = 0.0
        self._tidied = self.began

    @property
    def now(self) -> int:
        """Nanoseconds since the epoch, as the frames tell it."""
        return max(time.time_ns(), self.analyzer.last_time or 0)

    def run(self, duration: int | None, dashboard: Dashboard | None = None) -> None:
        """Until something ends it."""
        # The nouns hold hardly any cycles, and looking for some takes longer than all the decoding.
        gc.disable()
        waiter = select.poll()
        waiter.register(self.live.fileno(), select.POLLIN)
        if dashboard is not None and dashboard.keyboard is not None:
            waiter.register(dashboard.keyboard, select.POLLIN)
        try:
            while not self.ending.why:
                ready = waiter.poll(WAIT)
                batch = self.live.read()
                if batch is not None:
                    self._take(batch)
                self._pass_time(busy=batch is not None)
                if dashboard is not None:
                    dashboard.look(any(descriptor == dashboard.keyboard for descriptor, _ in ready))
                if duration is not None and self.seconds * SECOND >= duration:
                    self.ending.because("duration")
            while self.ending.why not in ("count", "finding") and (rest := self.live.read()) is not None:
                self._take(rest)
        except CaptureError as error:
            self.damage = error
            self.ending.because("error")
        self._finish()

    def _pass_time(self, busy: bool) -> None:
        """Give what waits for time to pass."""
        now = self.analyzer.last_time if busy else max(time.time_ns() - MARGIN, self.analyzer.last_time or 0)
        if now:
            self._ended(self.analyzer.tick(now))
            self.auditor.tick(now)
        gone = self.analyzer.evicted_since()
        if gone:
            self._evict(gone)
        self._print_findings()
        sys.stdout.flush()
        self.seconds = time.monotonic() - self.began
        if time.monotonic() - self._tidied >= TIDY:
            self._tidied = time.monotonic()
            gc.collect()

    def _take(self, batch: FrameBatch) -> None:
        if self.keeper is not None:
            self.keeper.write(batch)
        self._ended(self.analyzer.feed(batch))

    def _ended(self, rpcs: list[Rpc]) -> None:
        """RPCs that ended."""
        if self._wanted is not None:
            rpcs = rpcs[: self._wanted - self.rpcs]
        if not rpcs:
            return
        self.rpcs += len(rpcs)
        add = self.statistics.add
        for rpc in rpcs:
            add(rpc)
            self.failed += rpc.failed
        if self._as_json:
            for rpc in rpcs:
                print_json(rpc_record(rpc))
        else:
            self.recent.add(rpcs, self.picked)
        if self.rpcs == self._wanted:
            self.ending.because("count")

    def _evict(self, conversations: list[Conversation]) -> None:
        self.statistics.evict(conversations)
        self.auditor.evict(conversations)
        for conversation in conversations:
            self.credits.pop(conversation.connection.number, None)

    def _finish(self) -> None:
        """The capture is over, the report not yet printed."""
        self.seconds = time.monotonic() - self.began
        self._ended(self.analyzer.finish())
        self.auditor.finish(self.analyzer.conversations)
        self._print_findings()
        with suppress(OSError):
            self.live.count()
        if self.keeper is not None:
            self.keeper.close()
        gc.enable()

    def _listeners(self, conversation: Conversation) -> Listeners:
        history = self.credits[conversation.connection.number] = CreditHistory(conversation)
        return Listeners(self.auditor.listener(conversation), history)

    def _tell(self, finding: Finding, tally: RuleTally) -> None:
        self.findings += 1
        id = finding.rule.id
        self.last_found.pop(id, None)
        self.last_found[id] = finding
        if self._as_json and tally.violated <= EXAMPLES:
            self.found.append(finding)
        if id in self._until:
            self.ending.because("finding")

    def _print_findings(self) -> None:
        while self.found:
            print_json(finding_record(self.found.popleft()))

    def report(self) -> None:
        """What ``rdmascope report`` would say, and how the capture itself went."""
        if self._as_json:
            print_records(self, self.statistics)
            print_json(self._record())
            return
        from ..views.live import capture_view

        if self.analyzer.frames:
            print_page(self, self.statistics)
        show(console(), capture_view(self._record(), self.breaches()))

    def breaches(self) -> list[tuple[Finding, int]]:
        """The last finding of each rule that was broken, the last one first, and how often it was."""
        times: dict[str, int] = {}
        for place, tally in self.auditor.tallies.items():
            times[place.rule] = times.get(place.rule, 0) + tally.violated
        return [(finding, times[id]) for id, finding in reversed(self.last_found.items())]

    def _record(self) -> Record:
        live = self.live
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
            rules_broken={finding.rule.id: times for finding, times in self.breaches()},
            evicted_connections=self.analyzer.evicted.connections,
            files_removed=self.keeper.removed if self.keeper is not None else None,
            ended_by=self.ending.why,
            error=None if self.damage is None else str(self.damage),
        )
