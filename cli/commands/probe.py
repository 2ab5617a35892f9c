"""``rdmascope probe``: speak RPC-over-RDMA with a server, or be one."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rdmascope.dissect.onc.rpc_header import NFS

from ..options import DURATION, Size, refuse_options
from ..terminal import EXIT_FOUND, complain, console, print_json, show

if TYPE_CHECKING:
    from rich.console import RenderableType

    from rdmascope.captures.peer.probe.checks import Check
    from rdmascope.captures.peer.probe.serve import PingPlan
    from rdmascope.captures.peer.verbs.interface import PeerAddress, Verbs
    from rdmascope.dissect.records.schema import Record

NFS_RDMA_PORT = 20049
_THERE = ("", "PROG_UNAVAIL", "PROG_MISMATCH")
"""What a server may say to the first call that is there, with or without NFS."""


@click.command("probe")
@click.argument("host", metavar="HOST", required=False)
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    default=NFS_RDMA_PORT,
    show_default=True,
    metavar="PORT",
    help="Service port of the server.",
)
@click.option("--source", metavar="ADDRESS", help="Address of this end.")
@click.option("--device", metavar="NAME", help="RDMA device of this end, as 'rdma link' shows it.")
@click.option("-4", "ipv4", is_flag=True, help="The IPv4 address of HOST.")
@click.option("-6", "ipv6", is_flag=True, help="The IPv6 address of HOST.")
@click.option(
    "-c", "count", type=click.IntRange(0), default=5, show_default=True, metavar="N", help="How many NULL calls."
)
@click.option(
    "-i", "interval", type=DURATION, default="1s", show_default=True, metavar="TIME", help="Between two calls."
)
@click.option("--program", "programs", type=int, multiple=True, metavar="N", help="Ask for this RPC program, too.")
@click.option(
    "--timeout", type=DURATION, default="5s", show_default=True, metavar="TIME", help="The longest wait for an answer."
)
@click.option("--suite", type=click.Choice(["conformance"]), help="Check the server against the specification instead.")
@click.option("--faults", is_flag=True, help="Also make the checks that send what the specification forbids.")
@click.option("--check", "names", multiple=True, metavar="NAME", help="Only this check.")
@click.option(
    "--file",
    "path",
    metavar="PATH",
    help="With --suite: a file on the server that may be read; a check writes its first bytes back.",
)
@click.option("--serve", is_flag=True, help="Be a server to test clients with.")
@click.option("--fault", metavar="NAME", help="With --serve: what to do wrong; 'list' lists the faults.")
@click.option(
    "--fault-times",
    type=click.IntRange(1),
    metavar="N",
    help="With --fault: how often in all.  [default: once on every connection]",
)
@click.option(
    "--capacity",
    type=Size("4MiB", "64GiB"),
    default="64MiB",
    show_default=True,
    metavar="SIZE",
    help="With --serve: bound of all files of the NFS export.",
)
@click.option(
    "--mount-port",
    type=click.IntRange(0, 65535),
    default=20048,
    show_default=True,
    metavar="PORT",
    help="With --serve: TCP port for MOUNT, which NFSv3 needs; 0 for none.",
)
@click.option(
    "--highest",
    type=click.IntRange(1, 2),
    metavar="VERSION",
    help="The highest version of RPC-over-RDMA to speak.  [default: 1; with --serve 2]",
)
@click.option(
    "--echo",
    type=Size("1", "1MiB"),
    metavar="SIZE",
    help="Send this many bytes there and back with each call; HOST must run probe --serve.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@click.option("--junit", "junit_file", type=click.Path(dir_okay=False), help="With --suite: write JUnit XML.")
@click.option("--write", "write_file", type=click.Path(dir_okay=False), help="Write the traffic as a capture.")
@click.pass_context
def command(
    ctx: click.Context,
    host: str | None,
    port: int,
    source: str | None,
    device: str | None,
    ipv4: bool,
    ipv6: bool,
    count: int,
    interval: int,
    programs: tuple[int, ...],
    timeout: int,
    suite: str | None,
    faults: bool,
    names: tuple[str, ...],
    path: str | None,
    serve: bool,
    fault: str | None,
    fault_times: int | None,
    capacity: int,
    mount_port: int,
    highest: int | None,
    echo: int | None,
    as_json: bool,
    junit_file: str | None,
    write_file: str | None,
) -> None:
    """Test a server: is it there, what does it agree to, how fast does it answer?

    Example: an NFS server on Linux 6.1, by software RDMA.

    \b
      $ rdmascope probe 10.77.0.1 -c 3
      10.77.0.1:20049 by rxe0, connected in 338 ms
        private data         sends 4.00 KiB, receives 4.00 KiB, no remote …
        inline threshold     4.00 KiB to the server, 4.00 KiB back
        outstanding Reads    served here 16, served there 0
        credits              32 requested, 64 granted
      ...
        3 calls, 3 replies; min 12.1 ms, median 14.9 ms, p99 37.4 ms, max 37.4 ms
      ...
        version 2   refused: RDMA_ERR_VERS, 1 to 1
        version 1   supported, on the same connection
      ...
        NFS (100003)  versions 3, 4 of 3 to 4

    It needs an RDMA device on this host and pyverbs; if one is missing, the error says what to do.

    Does it conform? Each check sends something that the specification defines an answer for, on a connection of
    its own. --faults adds what the specification forbids to send: that may disturb a server.

    \b
      $ rdmascope probe 10.77.0.1 --suite conformance --faults

    A server to test a client with, for versions 1 and 2 of RPC-over-RDMA: an NFS export in memory that Linux can mount
    by NFSv3 and NFSv4.1, and an echo program (548347908, version 1, procedure 1: an opaque there and back). With
    --fault it commits that fault on every connection. Another probe can send bulk data through it (--echo), in version
    2 with --highest 2:

    \b
      $ rdmascope probe --serve --port 20050 --fault grant-nothing

    --write keeps the traffic for the other commands. If this host cannot capture on the device, frames are built from
    what was sent and received, and each has a comment that says so.

    Exit status: 0 all is well, 1 no answer or a check that failed, 2 no connection, no device, or no pyverbs.
    """
    from rdmascope.captures.peer.probe.serve import PingPlan
    from rdmascope.captures.peer.verbs.interface import PeerAddress, require
    from rdmascope.captures.write.output import check_outputs

    if fault == "list":
        _list_faults()
        return
    refuse_options(
        (serve == (host is not None), "HOST, or --serve"),
        (fault and not serve, "--fault is for --serve"),
        (fault_times and not fault, "--fault-times is for --fault"),
        (
            (faults or names or path or junit_file) and not suite,
            "--faults, --check, --file and --junit are for --suite",
        ),
        ("-" in (write_file, junit_file), "name a file: standard output has the results"),
        (not timeout, "--timeout: more than 0"),
        (ipv4 and ipv6, "-4 or -6, not both"),
    )
    target = PeerAddress(host or "", port, source, device, 4 if ipv4 else 6 if ipv6 else 0)
    wanted = _wanted(faults, names) if suite else []
    check_outputs((write_file, junit_file))
    require()
    devices = _devices()
    recorder = None
    if write_file:
        from rdmascope.captures.peer.probe.record import record

        devices = recorder = record(devices, target, Path(write_file))
    try:
        if serve:
            status = _serve(devices, target, fault, highest or 2, fault_times, (capacity, mount_port), as_json)
        elif suite:
            status = _suite(devices, target, timeout, wanted, path or "", as_json, junit_file)
        else:
            every = tuple(dict.fromkeys((NFS, *programs)))
            plan = PingPlan(count, interval, timeout, every, echo=echo or 0, highest=highest or 1)
            status = _ping(devices, target, plan, as_json)
    finally:
        devices.close()
        if recorder is not None:
            click.echo(recorder.finish(), err=True)
    ctx.exit(status)


def _devices() -> Verbs:
    """The devices of this host; tests put others in their place."""
    from rdmascope.captures.peer.verbs.rdmacm import RdmaCm

    return RdmaCm()


def _wanted(faults: bool, names: tuple[str, ...]) -> list[Check]:
    from rdmascope.captures.peer.probe.checks import CHECKS, chosen

    every = chosen(with_faults=True)
    unknown = [name for name in names if name not in CHECKS]
    if unknown:
        raise click.ClickException(f"no check {unknown[0]!r}; there are {', '.join(CHECKS)}")
    spoiling = [check.name for check in every if check.name in names and check.fault and not faults]
    if spoiling:
        raise click.ClickException(f"{spoiling[0]} sends what the specification forbids; --faults allows it")
    return [check for check in every if check.name in names] if names else chosen(faults)


def _ping(devices: Verbs, target: PeerAddress, plan: PingPlan, as_json: bool) -> int:
    from rdmascope.captures.peer.probe import probe_records
    from rdmascope.captures.peer.probe.serve import Echoed, Reached, Round, VersionTwoProbe, ping

    from ..views import probe as views

    rounds: list[Round] = []
    reached = answered = False
    try:
        for finding in ping(devices, target, plan):
            if isinstance(finding, Round):
                rounds.append(finding)
            if isinstance(finding, Reached):
                reached, answered = True, finding.problem in _THERE
            if isinstance(finding, Echoed):
                answered = answered and not finding.problem
            if isinstance(finding, VersionTwoProbe) and rounds and not as_json:
                show(console(), views.rounds_summary(rounds))
            _print(as_json, probe_records.finding(finding, target), views.finding(finding, target, plan))
    except KeyboardInterrupt:
        if not reached:
            raise
        if rounds and not as_json:
            show(console(), views.rounds_summary(rounds))
    if as_json and rounds:
        print_json(probe_records.summary(rounds, target))
    return 0 if answered and all(echo.time is not None for echo in rounds) else EXIT_FOUND


def _suite(
    devices: Verbs,
    target: PeerAddress,
    timeout: int,
    wanted: Sequence[Check],
    path: str,
    as_json: bool,
    junit_file: str | None,
) -> int:
    from rdmascope.captures.peer.probe import probe_records
    from rdmascope.captures.peer.probe.checks import SuiteResult, run

    from ..views import probe as views

    if any(check.fault for check in wanted):
        complain(f"warning: sending faults to {target}, which may disturb it and its clients")
    out = console()
    results: list[SuiteResult] = []
    if not as_json:
        show(out, views.suite_title(target, wanted))
    for result in run(devices, target, timeout, wanted, path):
        results.append(result)
        _print(as_json, probe_records.result(result, target), views.result_line(result, wanted, out.width))
    _print(as_json, probe_records.suite(results, target), views.suite_summary(results, out.width))
    if junit_file:
        from rdmascope.captures.write.output import write_output

        write_output(junit_file, probe_records.junit(results, target), ())
    return EXIT_FOUND if any(result.failed for result in results) else 0


def _serve(
    devices: Verbs,
    target: PeerAddress,
    fault: str | None,
    highest: int,
    times: int | None,
    shared: tuple[int, int],
    as_json: bool,
) -> int:
    """``shared``: the capacity of the export in bytes, and the port for MOUNT."""
    from rdmascope.captures.errors import CaptureError, signals_to
    from rdmascope.captures.peer.endpoint import EndpointSettings
    from rdmascope.captures.peer.faults import FAULTS
    from rdmascope.captures.peer.nfs_server.export import Export
    from rdmascope.captures.peer.probe import probe_records
    from rdmascope.captures.peer.probe.serve import ECHO_PROGRAM, Server

    from ..views import probe as views

    if fault and fault not in FAULTS:
        raise click.ClickException(f"no fault {fault!r}; 'rdmascope probe --fault list' lists them")
    capacity, mount_port = shared
    export = Export(capacity, ECHO_PROGRAM)
    meant = FAULTS[fault] if fault else None
    server = Server(devices, EndpointSettings(version=highest), meant, export.answer, times)
    places = server.listen(target)
    mounts: int | None = None
    if mount_port:
        try:
            listening = (place.partition(" ")[0].rpartition(":")[0].strip("[]") for place in places)
            for address in [target.source] if target.source else dict.fromkeys(listening):
                mounts = export.listen_for_mounts(address, mount_port)
        except CaptureError as error:
            complain(f"{error}: NFSv3 needs it, NFSv4.1 does not; --mount-port names another")
    records = probe_records.listening(places, highest, fault, capacity, mounts)
    _print(as_json, records, views.listening(places, highest, meant, capacity, mounts))
    try:
        # SIGTERM ends it as Ctrl-C does, and so does a SIGINT that a shell ignores for what runs in its background.
        with signals_to(signal.default_int_handler, signal.SIGINT, signal.SIGTERM):
            for server_event in server.run():
                _print(as_json, probe_records.happened(server_event), views.happened(server_event))
    except KeyboardInterrupt:
        server.close()
    finally:
        export.close()
    counts = server.connections, server.calls, server.committed
    _print(as_json, probe_records.served(*counts), views.served(*counts, fault))
    return 0


def _list_faults() -> None:
    from rdmascope.captures.peer.endpoint import Role
    from rdmascope.captures.peer.faults import FAULTS

    from ..views import probe as views

    show(console(), views.faults({name: fault for name, fault in FAULTS.items() if fault.by is Role.SERVER}))


def _print(as_json: bool, record: Record, view: RenderableType) -> None:
    """One of the two, which can be read as soon as it is printed."""
    if as_json:
        print_json(record)
    else:
        show(console(), view)
    sys.stdout.flush()
