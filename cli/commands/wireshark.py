"""``rdmascope wireshark``: the RPCs in Wireshark."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rdmascope.captures.write.stale_tempdirs import FolderOfProcess

from ..each_capture import GivenCaptures
from ..exit_status import EXIT_BAD_INPUT
from ..options import filter_options
from ..reading import analyzer_options, packets_argument, recognition_options
from ..terminal import complain

if TYPE_CHECKING:
    from rdmascope.captures.tables.condition import Condition


@click.command("wireshark")
@packets_argument
@click.option("-Y", "--display-filter", metavar="FILTER", help="Wireshark's display filter, such as nfs.opcode==25.")
@filter_options
@recognition_options
@click.pass_context
def command(
    ctx: click.Context,
    files: tuple[str, ...],
    display_filter: str | None,
    ports: tuple[int, ...],
    force: str | None,
    condition: Condition | None,
) -> None:
    """Open the RPCs in Wireshark, as NFS over TCP.

    What Wireshark shows is what "rdmascope export" writes: every RPC reconstructed from what RDMA carried of it, each
    packet with a comment that names the RPC and the RDMA frames that it came from. The file is temporary, and goes when
    Wireshark is closed.

    Example: the calls that took longer than 100 ms

    \b
      $ rdmascope wireshark nfs.pcap --slower-than 100ms
    """
    program = shutil.which("wireshark")
    if program is None:
        raise click.ClickException(
            "Wireshark is not installed, or not on the PATH; rdmascope export FILE -o OUT.pcapng writes what it reads"
        )
    given = GivenCaptures(files, analyzer_options(ports, force))
    with FolderOfProcess() as folder:
        path = folder / f"{Path(files[0]).name.partition('.')[0] or 'capture'}.pcapng"
        given.export_tcp(path, condition=condition)
        given.refuse_nothing(condition)
        arguments = [program, *(("-Y", display_filter) if display_filter else ()), "-r", str(path)]
        status = subprocess.run(arguments, check=False).returncode
    if status:
        complain(f"Wireshark ended with status {status}")
        ctx.exit(EXIT_BAD_INPUT)
    given.check()
