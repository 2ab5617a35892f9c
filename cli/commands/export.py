"""``rdmascope export``: the RPCs, for tools that know ONC RPC over TCP."""

from __future__ import annotations

import ipaddress
import os
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import click

from rdmascope.captures.export import TcpExport, TcpStreamPair
from rdmascope.dissect.onc.programs import NFS
from rdmascope.dissect.records import nouns as records
from rdmascope.dissect.rpcrdma.reassembly import reassembled_call, reassembled_reply
from rdmascope.dissect.rpcrdma.rpcs import Reassembled, Rpc
from rdmascope.dissect.transport.connection import Connection
from rdmascope.dissect.units import count, plural

from ..reading import Reading, analyzer_options, file_argument, recognition_options
from ..terminal import complain, print_json

NFS_TCP_PORT = 2049
FIRST_CLIENT_PORT, CLIENT_PORTS = 32768, 28232
"""The range that Linux takes ephemeral ports from."""


@click.command("export")
@file_argument
@click.option(
    "--to",
    "target",
    type=click.Choice(["tcp-pcapng"]),
    default="tcp-pcapng",
    show_default=True,
    help="What to write: ONC RPC over TCP in a pcapng file.",
)
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="OUT",
    type=click.Path(path_type=Path),
    help="File to write, - for standard output.",
)
@click.option("--skip-incomplete", is_flag=True, help="Leave out messages with missing bytes.")
@click.option("--json", "as_json", is_flag=True, help="Say what was written as one rdmascope.export/1 object.")
@recognition_options
def command(
    files: tuple[str, ...],
    target: str,
    output: Path,
    skip_incomplete: bool,
    as_json: bool,
    ports: tuple[int, ...],
    force: str | None,
) -> None:
    """Write the RPCs as a capture of ONC RPC over TCP.

    Every call and reply is written whole, with chunk data in its place, under the original addresses, in a TCP
    stream of its own for each RDMA connection.  A call has the time of its Send's first packet, a reply that of
    its Send's last: the time between them is the latency that the client saw.

    The server's port is 2049 wherever NFS was spoken, since that is where NFS over TCP lives and where tools
    look for it (20049 is NFS over RDMA); elsewhere it is the original service port.  The client's port is 32768
    and up, one for each connection: RDMA has no client port.

    A message with missing bytes is written as a snaplen would leave it: packets of the right length, truncated before
    the first missing byte.  Nothing is filled in.  An RDMA_ERROR is no RPC message: its call stays
    without reply.

    Example: how does tshark decode these RPCs?

    \b
      $ rdmascope export rxe-nfs-all.pcap.zst -o nfs-tcp.pcapng
      nfs-tcp.pcapng: 458 messages in 606 packets
      $ tshark -r nfs-tcp.pcapng -q -z rpc,programs
      Program    Version  Calls    Min SRT    Max SRT    Avg SRT
      NFS(100003)      3     43   0.006533   0.050235   0.040449
      NFS(100003)      4    181   0.002358   0.207951   0.046630
      NFSACL(100227)   3      5   0.040918   0.045185   0.042295
      $ tshark -r nfs-tcp.pcapng -Y _ws.malformed | wc -l
      0
    """
    reading = Reading(files, analyzer_options(ports, force))
    to_stdout = str(output) == "-"
    if not to_stdout and not output.parent.is_dir():
        raise click.ClickException(f"{output.parent}: no such directory")
    if output.exists() and any(os.path.exists(path) and os.path.samefile(path, output) for path in reading.paths):
        raise click.ClickException(f"{output}: is the capture itself")
    export = TcpExport(None if to_stdout else output.parent)
    skipped = 0
    lost = 0
    nfs: set[int] = set()
    try:
        for rpc in reading.rpcs():
            if rpc.program == NFS:
                nfs.add(rpc.connection.number)
            for sender, time, message in _messages(rpc):
                if message is None:
                    lost += 1
                    continue
                if skip_incomplete and not message.complete:
                    skipped += 1
                    continue
                export.add(rpc.connection.number, sender, time, message.length, message.pieces, message.gaps)
        conversations = [_conversation(one, one.number in nfs) for one in reading.analyzer.connections]
        with nullcontext(sys.stdout.buffer) if to_stdout else output.open("wb") as target_file:
            packets = export.write(target_file, conversations)
    finally:
        export.close()
    if as_json and not to_stdout:
        print_json(
            records.record(
                "export",
                output=str(output),
                messages=len(export),
                incomplete=export.incomplete,
                skipped=skipped,
                not_reconstructed=lost,
                packets=packets,
            )
        )
    else:
        click.echo(f"{output}: {plural(len(export), 'message')} in {plural(packets, 'packet')}", err=to_stdout)
        for number, told in (
            (export.incomplete, "written with bytes missing"),
            (skipped, "left out, bytes are missing"),
            (lost, "left out, no RPC message in it"),
        ):
            if number:
                complain(f"{count(number)} {'message' if number == 1 else 'messages'} {told}")
    reading.check()


def _messages(rpc: Rpc) -> list[tuple[int, int, Reassembled | None]]:
    """Endpoint that sent it, time, and contents of the call and the reply."""
    found: list[tuple[int, int, Reassembled | None]] = []
    halves: tuple[tuple[bool, Callable[[Rpc], Reassembled | None]], ...] = (
        (True, reassembled_call),
        (False, reassembled_reply),
    )
    for is_call, reassemble in halves:
        message = rpc.call if is_call else rpc.reply
        if message is not None:
            operation = message.operation
            time = operation.first_time if is_call else operation.last_time
            found.append((operation.initiator, time, reassemble(rpc)))
    return found


def _conversation(connection: Connection, nfs: bool) -> TcpStreamPair:
    client, server = connection.endpoints
    number = connection.number
    return TcpStreamPair(
        number=number,
        client=_ip(client.address, number, 0),
        server=_ip(server.address, number, 1),
        client_port=FIRST_CLIENT_PORT + (number - 1) % CLIENT_PORTS,
        server_port=NFS_TCP_PORT if nfs else connection.service_port or NFS_TCP_PORT,
        first_time=connection.first_time,
        last_time=connection.last_time,
        comment=f"rdmascope: connection {number}, {connection.transport} {client} to {server}",
    )


def _ip(address: str, connection: int, end: int) -> str:
    """The address, or one made up (fd00::/8) where the transport has no IP addresses."""
    try:
        return str(ipaddress.ip_address(address))
    except ValueError:
        return f"fd00::{connection & 0xFFFF:x}:{end + 1:x}"
