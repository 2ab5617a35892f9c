"""``rdmascope record``: the command that records the kernel's tracepoints on this host."""

from __future__ import annotations

import os
import shlex
import sys

import click

from rdmascope.captures.errors import CaptureError
from rdmascope.captures.live.device import run_recording, tracepoints

from ..options import DURATION
from ..terminal import complain, say

DEFAULT = "nfs.trace.dat"
SECOND = 1_000_000_000


@click.command("record")
@click.option("-o", "--output", metavar="FILE", default=DEFAULT, show_default=True, help="What is written.")
@click.option("--duration", type=DURATION, metavar="TIME", help="End after 10s, 2m; else Ctrl-C ends it.")
@click.option("--run", "runs", is_flag=True, help="Run it here, which needs root and trace-cmd.")
def command(output: str, duration: int | None, runs: bool) -> None:
    """The one command that records what this host's kernel knows of its NFS over RDMA.

    Use it where no capture is possible: most RDMA adapters bypass every capture point, and payloads may be private. It
    enables only the tracepoints of this kernel that rdmascope reads. Run it on the client, on the server or, best, on
    both at once; it records file names, but no payload.

    \b
    Example:
      $ rdmascope record
      trace-cmd record -o nfs.trace.dat -C mono -b 20000 -e ...
      $ sudo rdmascope record --run --duration 30s -o client.trace.dat
      $ rdmascope report client.trace.dat
      $ rdmascope report client.trace.dat wire.pcap server.trace.dat
    """
    points = tracepoints()
    line = points.command(output, None if duration is None else duration / SECOND)
    if not runs:
        say(line)
        sys.stdout.flush()
        if points.problem:
            complain(f"for any kernel, not for this one ({points.problem})")
        elif os.geteuid():
            complain("it takes root")
        return
    if points.problem:
        raise CaptureError(points.problem)
    status = run_recording(shlex.split(line))
    if status:
        raise CaptureError(f"trace-cmd ended with status {status}")
    say(f"{output}: try  rdmascope report {output}")
