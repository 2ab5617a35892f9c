"""``rdmascope demo``: a capture to try the commands on."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import click

from rdmascope.captures.errors import CaptureError
from rdmascope.captures.write.output import open_output

from ..terminal import say

SAMPLE = "loss-rxe.pcap.zst"


@click.command("demo")
def command() -> None:
    """Put a recorded capture into the working directory, to try the commands on.

    It shows an NFS mount over software RoCE, on a network that loses packets.

    \b
    Example:
      $ rdmascope demo
      loss-rxe.pcap.zst: an NFS mount whose network lost packets. Try
        rdmascope report loss-rxe.pcap.zst
        rdmascope diagnose loss-rxe.pcap.zst
        rdmascope rpcs loss-rxe.pcap.zst --sort latency
      $ rdmascope loss-rxe.pcap.zst | head -2
      WRITE GETATTR /big (RPC 23) hung 61.8 s until the client closed the
      connection (DREQ); the server last spoke at 01:41:35 UTC; 7 more calls
    """
    sample = files("rdmascope.captures").joinpath("samples", SAMPLE).read_bytes()
    target = Path(SAMPLE)
    if not target.exists():
        with open_output(target, ()) as file:
            file.write(sample)
    elif not target.is_file() or target.read_bytes() != sample:
        raise CaptureError(f"{SAMPLE}: is there already, and is another file")
    say(f"{SAMPLE}: an NFS mount whose network lost packets. Try")
    for words in ("report", "diagnose", "rpcs"):
        say(f"  rdmascope {words} {SAMPLE}{' --sort latency' if words == 'rpcs' else ''}")
