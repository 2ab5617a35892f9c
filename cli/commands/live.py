"""``rdmascope live``: what happens now."""

from __future__ import annotations

import os
import re
import sys
from contextlib import ExitStack, closing
from functools import partial
from importlib.metadata import version
from threading import Lock

import click
from click.core import ParameterSource

from rdmascope.captures import CaptureError
from rdmascope.captures.live import TRACE, CaptureSettings, Keep, Keeper, is_stream, open_live, open_trace
from rdmascope.captures.live.device import STREAM
from rdmascope.captures.live.keep import HANGS, Surroundings, TraceKeeper, Trigger, Wanted, WindowKeeper
from rdmascope.captures.live.session import (
    LOCAL,
    MAX_BUFFER,
    MAX_FILES,
    CaptureMetrics,
    Ending,
    LiveSession,
    MemoryBound,
    Metrics,
    bounded,
    divided,
    run_together,
)
from rdmascope.captures.session.kernel_counters import RunningCounters
from rdmascope.captures.tables.condition import Condition
from rdmascope.dissect.audit.rule import matching_rules
from rdmascope.dissect.measure.file_names import PathLearner
from rdmascope.dissect.records.audit import finding_record
from rdmascope.dissect.records.rpc_lines import RpcLines
from rdmascope.dissect.records.schema import Record
from rdmascope.dissect.rpcrdma.analyzer import NFS_RDMA_PORT
from rdmascope.dissect.rpcrdma.rpc_table import RpcTable
from rdmascope.dissect.units import moment

from ..options import BYTES, DURATION, Grouped, Size, refuse_options
from ..reading import analyzer_options, recognition_options, stoppable
from ..terminal import EXIT_BAD_INPUT, EXIT_FOUND, complain, console, json_value, print_json, print_page, show
from ..views.kernel_counters import counters_view
from ..views.live import CONNECTION_ORDERS, OPERATION_ORDERS, Dashboard, Look, capture_view
from .report import print_page as print_report, print_records

SECOND = 1_000_000_000
MAX_PORT = 65535
_NOT_BROWSED = {
    "as_json", "wanted", "until", "slower", "conditions", "every", "before", "after", "program", "path", "ring_time",
    "mount", "nfsd", "metrics_at", "memory", "sort", "sort_connections", "connection",
}  # fmt: skip
"""Options that are of no use to panes."""
_KEPT = "kept"
"""Without a suffix the files of the ring and the one being written have one name, and read as one ring."""
BEFORE, AFTER = 30 * SECOND, 5 * SECOND
"""What is kept around a moment."""
OUTPUT = Lock()
"""A lock for standard output, which several captures write to."""


@click.command("live", cls=Grouped)
@click.argument("devices", metavar="[DEVICE]...", nargs=-1)
@click.option("--trace", "traces", is_flag=True, help="The tracepoints of this host's kernel, too, or alone.")
@click.option("--remote", metavar="HOST", help="DEVICE is on that host: run its tcpdump over ssh.")
@click.option("--json", "as_json", is_flag=True, help="RPCs and findings as they happen, one JSON object a line.")
@click.option("--duration", type=DURATION, metavar="TIME", help="End after 10s, 500ms, 2m.")
@click.option("--count", "wanted", type=click.IntRange(1), metavar="N", help="End after N RPCs.")
@click.option(
    "--until-rule",
    "until",
    is_flag=False,
    flag_value="*",
    metavar="[ID]",
    help="End with status 1 when a rule, or this one (V1-READ* for all that begin so), is violated, or a call hangs"
    " for 10 s (calls-hung).",
)
@click.option(
    "--until-slower-than",
    "slower",
    type=DURATION,
    metavar="TIME",
    help="End with status 1 after an RPC slower than 50ms, or when a call is outstanding for longer.",
)
@click.option(
    "--until-where",
    "conditions",
    multiple=True,
    metavar="SQL",
    help="End with status 1 after an RPC that matches a condition, as in --where (rdmascope help questions).",
)
@click.option("--every", is_flag=True, help="Go on, and wait for it to happen again.")
@click.option(
    "--before", type=DURATION, metavar="TIME", help="With --write: keep only packets from this long before it.  [30s]"
)
@click.option("--after", type=DURATION, metavar="TIME", help="With --write: and this long after it.  [5s]")
@click.option("--exec", "program", metavar="CMD", help="Run a command each time, when the packets are kept.")
@click.option("--write", "path", metavar="FILE", help="Keep the packets, too, as pcapng, a trace as text.")
@click.option(
    "--ring-size",
    type=Size("1MB", "1000TB"),
    default="100MB",
    show_default=True,
    metavar="SIZE",
    help="Size of a file of --write.",
)
@click.option(
    "--ring-files", type=click.IntRange(1), default=10, show_default=True, metavar="N", help="Files that are kept."
)
@click.option("--ring-time", type=DURATION, metavar="TIME", help="Begin a new file after this time, too.")
@click.option(
    "--mount", metavar="PATH", help="Compare with what this host's NFS client counts, on the mount that holds PATH."
)
@click.option("--nfsd-counters", "nfsd", is_flag=True, help="Compare with what this host's NFS server counts.")
@click.option(
    "--metrics",
    "metrics_at",
    metavar="[ADDRESS]:PORT",
    help="Serve figures for Prometheus (extra 'metrics'), on this host only unless an ADDRESS is given.",
)
@click.option("--all-tcp", is_flag=True, help="Look for iWARP on every TCP port, not only those of --port.")
@click.option("--tunnels", is_flag=True, help="Look into VXLAN, GENEVE, GRE, MPLS and IP in IP.")
@click.option("--snaplen", type=Size("128", "256KiB"), default="256KiB", metavar="SIZE", help="Truncate longer frames.")
@click.option(
    "--buffer",
    type=Size("2MB", "4GiB"),
    metavar="SIZE",
    help="The kernel's buffer, 2MB to 4GB.  [64MiB, less with --memory]",
)
@click.option("--memory", type=BYTES, metavar="SIZE", help="Bound of all memory: 500M, 2G (docs/live.md).")
@click.option("--no-promiscuous", is_flag=True, help="Only frames from and to this host.")
@click.option("--sort", type=click.Choice([*OPERATION_ORDERS]), default="time", help="Order of the procedures.")
@click.option(
    "--sort-connections", type=click.Choice([*CONNECTION_ORDERS]), default="rpcs", help="Order of the connections."
)
@click.option("--connection", type=click.IntRange(1), metavar="N", help="Show procedures and RPCs of this one only.")
@click.option("--pause", is_flag=True, hidden=True, help="Begin paused, until p is pressed.")
@click.option("--browse", "browsed", is_flag=True, help="Show it in the panes of rdmascope browse.")
@recognition_options
@click.pass_context
def command(
    ctx: click.Context,
    devices: tuple[str, ...],
    traces: bool,
    remote: str | None,
    as_json: bool,
    duration: int | None,
    wanted: int | None,
    until: str | None,
    slower: int | None,
    conditions: tuple[str, ...],
    every: bool,
    before: int | None,
    after: int | None,
    program: str | None,
    path: str | None,
    ring_size: int,
    ring_files: int,
    ring_time: int | None,
    mount: str | None,
    nfsd: bool,
    metrics_at: str | None,
    all_tcp: bool,
    tunnels: bool,
    snaplen: int,
    buffer: int | None,
    memory: int | None,
    no_promiscuous: bool,
    sort: str,
    sort_connections: str,
    connection: int | None,
    pause: bool,
    browsed: bool,
    ports: tuple[int, ...],
    force: str | None,
) -> None:
    """RPCs over RDMA as they happen, and the report at the end.

    DEVICE is a network interface (or "any"), an rxe or siw device, which stands for its interface, or an mlx5 adapter,
    whose RDMA bypasses the kernel and is captured by tcpdump. Or it is a stream: - for standard input, or a named pipe
    that another program writes a capture into. HOST:DEVICE is captured by tcpdump on that host, over ssh, which must
    need no password; so is DEVICE with --remote HOST. Several DEVICEs are several capture points: because their clocks
    differ, each is analysed and reported separately.

    --trace reads the tracepoints of this host's kernel, as "rdmascope record" does, alone or beside DEVICEs; its report
    says what tracing costs the host.

    Example: what is this client doing?

    \b
      $ rdmascope live rxe0
      rxe0 (eth0)  0:00:41  2,931 RPCs, 3 errors
      74 RPC/s  ↑ 1.13 MiB/s  ↓ 18.2 KiB/s  ▂▂▃▅▇▇▆▆▅▅ 41 s
      12,402 frames, none dropped by the kernel
      p pause  s sort: time  S sort: rpcs  c connection: all  q quit
      Connections                  RPC/s to server to client credits retrans RNR
      1 10.77.0.2 → 10.77.0.1:20049   74  1.13 MiB  18.2 KiB    3/64       -   -
      ...

    "to server" and "to client" are bytes per second, "credits" the calls without a reply and how many the server
    allows; "retrans" counts retransmitted packets, RNR how often an end was not ready to receive, "missing" packets
    that were sent but not captured.

    If the output is not a terminal, only the report is printed, at the end: after Ctrl-C, --duration or --count. For
    scripts, and a check that ends at the first violation:

    \b
      $ rdmascope live rxe0 --json --duration 60s |
          jq -r 'select(.type == "rpc" and .failed) | .status'
      $ rdmascope live eth0 --until-rule V1-CREDIT* --write trouble.pcapng

    Once in a while something is slow.  Wait for it, with the packets from 30 s before it to 5 s after it:

    \b
      $ rdmascope live eth0 --until-slower-than 50ms --before 30s
          --write slow.pcapng
      $ rdmascope live eth0 --until-where "status = 'NFS4ERR_DELAY'" --every
          --before 10s --write delay.pcapng --exec 'logger $RDMASCOPE_FILE'

    \b
    What passes another host:
      $ ssh host tcpdump -i eth0 -U -w - udp port 4791 | rdmascope live -
      $ rdmascope live --remote host eth0
      $ rdmascope live rxe0 host:eth0 --json

    A filter in the kernel keeps RoCE (UDP port 4791, EtherType 0x8915) and the TCP ports 20049 and --port, where iWARP
    is looked for. The kernel drops frames if this program is too slow; the count is always shown. Memory stays bounded:
    only sums remain of old latencies and of connections that ended long ago. --memory 500M bounds all of it: if it gets
    short, the longest idle connections go first, and the report says so.

    --write FILE keeps at most --ring-files files of --ring-size; with several DEVICEs each has its own, with the DEVICE
    in the name. The newest is FILE itself, full ones get a number and a time in their names, and each records what was
    dropped while it was written. Files of an earlier run under these names count, too: its FILE gets a number, and the
    oldest are removed.

    --browse shows the panes of "rdmascope browse": growing lists, filters that also apply to new RPCs, the packets and
    fields of each RPC. p pauses them. The last --ring-files files of --ring-size are kept in the temporary folder for
    inspection, w saves what you want to keep, and there is no report at the end.

    --mount PATH reads /proc/self/mountstats at start and end, and --nfsd-counters /proc/net/rpc/nfsd: the report
    compares calls, errors, bytes and times as Linux counted them with the capture, of all DEVICEs together, and says
    why they differ (docs/live.md).

    --metrics :9400 serves RPCs, errors, latencies, credits, retransmissions, drops and findings to Prometheus while it
    runs; docs/live.md has the names, a systemd unit and a dashboard.

    \b
    With --json, while it happens:
      rpc      one RPC, as in "rdmascope rpcs"
      finding  one finding, as in "rdmascope audit", at most 3 per rule and end
      trigger  what --until-where or its like waited for, and the packets' file
    and at the end all records of "rdmascope report", and one
      live     device, filter, frames, what was dropped, why it ended
    """
    around, waits = before is not None or after is not None, bool(until or conditions or slower is not None)
    refuse_options(
        (not devices and not traces, "name a DEVICE, or --trace for this kernel's tracepoints"),
        (path == "-", "--write: name a file: standard output has the report"),
        (around and not devices, "--before and --after are for packets; --write keeps all of a trace"),
        (
            path and any(map(is_stream, devices)) and not around,
            "--write keeps what is captured here; of a stream, tee keeps a copy",
        ),
        (around and path is None, "--before and --after say what --write keeps: name a file"),
        (
            not waits and (every or around or program is not None),
            "--every, --before, --after and --exec go with --until-where, --until-slower-than or --until-rule",
        ),
    )
    rules = matching_rules(until) if until and until != HANGS else frozenset()
    rules |= {HANGS} if until in ("*", HANGS) else set()
    options = bounded(analyzer_options(ports, force))
    if remote is not None:
        devices = tuple(f"{remote}:{device}" for device in devices)
    if traces:
        devices = *devices, TRACE
    files = dict(zip(devices, _files(path, devices), strict=True)) if path else {}
    twice = files and len(set(files.values())) < len(devices)
    refuse_options((twice, "--write: two DEVICEs would be written to one file"))
    parts = None
    if memory is not None:
        parts = divided(memory, len(devices))
        options = parts.options(options)
    room = buffer if buffer is not None else MAX_BUFFER if parts is None else parts.buffer
    settings = CaptureSettings(
        tuple(sorted({NFS_RDMA_PORT, *ports})), all_tcp, tunnels, snaplen, room, not no_promiscuous
    )
    shown = sys.stdout.isatty() and not as_json and len(devices) == 1
    if browsed:
        _refuse_with_panes(ctx, devices)
        from ..browse.terminal import walk_live

        keep = Keep(_KEPT, ring_size, max(2, ring_files))
        ctx.exit(walk_live(devices[0], settings, options, keep, duration, pause))
    application = f"rdmascope {version('rdmascope')}"

    def opened(device: str, stack: ExitStack) -> LiveSession:
        condition = stack.enter_context(closing(_condition(conditions))) if conditions else None
        live = stack.enter_context(closing(open_trace(settings) if device == TRACE else open_live(device, settings)))
        named = {"file": str(live.device)} if len(devices) > 1 else {}
        trigger = None
        if waits:
            keeper = None
            if around and device in files and device != TRACE:
                waiting = None if parts is None else parts.before
                window = Surroundings(files[device], before or BEFORE, after or AFTER, ring_size, waiting, ring_files)
                keeper = WindowKeeper(window, live, application, numbered=every)
            trigger = Trigger(
                Wanted(slower, condition, rules),
                every=every,
                command=program,
                keeper=keeper,
                on_trigger=partial(_print_beside, named) if as_json else None if shown else _complain_of,
            )
        learner = PathLearner(max_files=MAX_FILES if parts is None else parts.files)
        session = LiveSession(
            live,
            options,
            wanted=wanted,
            trigger=trigger,
            ending=Ending(),
            on_rpcs=partial(_print_rpcs, named, RpcLines(learner, json_value, max_held=0)) if as_json else None,
            on_finding=(lambda finding: _print_beside(named, finding_record(finding))) if as_json else None,
            on_turn=_flush,
            metrics=CaptureMetrics(metrics, live) if metrics is not None else None,
            bound=MemoryBound(parts) if parts is not None else None,
            on_trouble=None if shown else lambda words: complain(f"{live.device}: {words}"),
        )
        if live.device.note:
            complain(live.device.note)
        if device in files and not around:
            seconds = ring_time / SECOND if ring_time else None
            keep = Keep(files[device], ring_size, ring_files, seconds)
            session.keeper = TraceKeeper(keep) if device == TRACE else Keeper(keep, live, application)
        return session

    ending = Ending()
    metrics: Metrics | None = None
    with stoppable(ending), ExitStack() as stack:
        if metrics_at is not None:
            metrics = stack.enter_context(closing(Metrics(*_address(metrics_at))))
            complain(f"metrics at {metrics.url}")
        sessions = [opened(device, stack) for device in devices]
        ending.also_ends(live_session.ending for live_session in sessions)
        kernel = RunningCounters(mount, nfsd) if mount is not None or nfsd else None
        if kernel is not None:
            _compare(kernel, sessions)
        if not (as_json or path or wanted or duration or waits or sys.stdout.isatty()):
            complain("standard output is no terminal: the report comes with Ctrl-C")
        if len(sessions) > 1:
            run_together(sessions, duration)
        elif not shown:
            sessions[0].run(duration)
        else:
            look = Look(sort, sort_connections, pause)
            with Dashboard(sessions[0], look, connection) as dashboard:
                sessions[0].run(duration, dashboard)
    for session in sessions:
        _report(session, kernel if len(sessions) == 1 else None, as_json)
    if kernel is not None and len(sessions) > 1:
        _report_counters(kernel, ", ".join(session.path for session in sessions), as_json)
    for session in sessions:
        # What came of a device's trouble was said when it began, but for those who looked at the screen.
        if session.damage is not None and (shown or str(session.damage) != f"{session.live.device}: {session.trouble}"):
            complain(str(session.damage))
    if any(session.damage is not None for session in sessions):
        ctx.exit(EXIT_BAD_INPUT)
    if not every and any(
        live_session.trigger is not None and live_session.trigger.happened for live_session in sessions
    ):
        ctx.exit(EXIT_FOUND)


command.groups = {
    "When it ends": ("duration", "wanted", "until", "slower", "conditions", "every"),
    "What is kept": ("path", "before", "after", "program", "ring_size", "ring_files", "ring_time"),
    "What is captured": (
        "traces", "remote", "ports", "all_tcp", "tunnels", "snaplen", "buffer", "memory", "no_promiscuous", "force",
    ),
    "What is shown": ("as_json", "sort", "sort_connections", "connection", "browsed"),
    "What else counts": ("mount", "nfsd", "metrics_at"),
}  # fmt: skip


def _files(path: str, devices: tuple[str, ...]) -> list[str]:
    """Where the packets of each go: into the file, or one beside it that is named after the DEVICE."""
    if len(devices) == 1:
        return [path]
    stem, suffix = os.path.splitext(path)
    return [
        f"{stem}-{re.sub(r'[^0-9A-Za-z.]+', '-', device).strip('-')}{suffix if device != TRACE else '.txt'}"
        for device in devices
    ]


def _refuse_with_panes(ctx: click.Context, devices: tuple[str, ...]) -> None:
    """Raise UsageError for options that the panes cannot use."""
    listed = [param for param in ctx.command.params if param.name in _NOT_BROWSED]
    given = [
        option.opts[0] for option in listed if ctx.get_parameter_source(str(option.name)) is ParameterSource.COMMANDLINE
    ]
    refuse_options(
        (given, f"{', '.join(given)}: not with --browse"),
        (len(devices) > 1 or "-" in devices, "--browse takes one DEVICE, and standard input is the keyboard"),
    )


def _address(text: str) -> tuple[str, int]:
    """Address and port of '127.0.0.1:9400', ':9400' or '9400'.  Raises CaptureError."""
    address, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > MAX_PORT:
        raise CaptureError(f"--metrics {text!r}: give a port, as in :9400, or an address and a port")
    return address.strip("[]") or LOCAL, int(port)


def _condition(conditions: tuple[str, ...]) -> Condition:
    """Raises CaptureError for one that cannot be judged."""
    try:
        return Condition(conditions)
    except CaptureError as error:
        raise CaptureError(str(error).replace("--where", "--until-where", 1)) from None


def _complain_of(trigger: Record) -> None:
    what = f"RPC {trigger['rpc']}" if trigger["rpc"] else trigger["rule"]
    kept = f"; its packets: {trigger['file']}" if trigger["file"] else ""
    complain(f"{moment(trigger['time_ns'])}: {what}: {trigger['words']}{kept}")


def _print_rpcs(beside: Record, lines: RpcLines, table: RpcTable) -> None:
    behind = f",{json_value(beside)[1:]}\n".encode()
    for page in lines.add(table):
        with OUTPUT:
            print_page(page.replace(b"}\n", behind) if beside else page)


def _print_beside(beside: Record, record: Record) -> None:
    with OUTPUT:
        print_json({**record, **beside})


def _flush() -> None:
    with OUTPUT:
        sys.stdout.flush()


def _compare(counters: RunningCounters, sessions: list[LiveSession]) -> None:
    """With what is seen here; elsewhere, where clocks are others, only if nothing is."""
    here = [session for session in sessions if session.live.device.kind != STREAM]
    for session in here or sessions:
        session.kernel = counters.point()


def _report(session: LiveSession, kernel: RunningCounters | None, as_json: bool) -> None:
    """The records or the page of ``rdmascope report``, and how the capture itself went."""
    session.analyzer.dropped_frames = session.live.dropped or 0  # Another host's tcpdump says so when it ends.
    if as_json:
        print_records(session, session.gathered, kernel=kernel)
        print_json(session.record())
        return
    if session.analyzer.frames:
        print_report(session, session.gathered, kernel=kernel)
    show(console(), capture_view(session.record(), session.breaches()))


def _report_counters(kernel: RunningCounters, devices: str, as_json: bool) -> None:
    """Beside what all capture points saw together."""
    if as_json:
        for record in kernel.records():
            print_json({**record, "file": devices})
    else:
        show(console(), counters_view(kernel, console().width))
