"""``rdmascope extract``: the frames of some RPCs as a capture of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from rdmascope.captures.extract.cut import Choice, extract_record, places_of_findings
from rdmascope.captures.read.urls import is_url
from rdmascope.captures.session.session import Session
from rdmascope.captures.write.output import check_outputs, rereadable, written_to
from rdmascope.dissect.records.schema import schema
from rdmascope.dissect.units import plural, size

from ..each_capture import GivenCaptures
from ..options import filter_options
from ..reading import analyzer_options, packets_argument, recognition_options
from ..terminal import complain, print_json, say

if TYPE_CHECKING:
    from rdmascope.captures.tables.condition import Condition


@click.command("extract")
@packets_argument
@click.option("-o", "--output", required=True, metavar="OUT", help="The pcapng file to write, or a URL of a store.")
@click.option("--rpc", "rpcs", type=click.IntRange(1), multiple=True, metavar="N", help="This RPC; may be repeated.")
@click.option(
    "--finding",
    "findings",
    multiple=True,
    metavar="ID",
    help="RPCs that broke this rule of the audit, or that this detector of diagnose names; frames and connections"
    " where it names no RPC.",
)
@click.option(
    "--snaplen",
    type=click.IntRange(1, 1 << 18),
    metavar="BYTES",
    help="Keep so many bytes of each frame.",
)
@click.option(
    "--anonymize",
    is_flag=True,
    help="Replace addresses, names, handles and other opaque bytes, the same by the same; zeros for data.",
)
@click.option("--json", "as_json", is_flag=True, help=f"Say what was written as one {schema('extract')} object.")
@filter_options
@recognition_options
@click.pass_context
def command(
    ctx: click.Context,
    files: tuple[str, ...],
    output: str,
    rpcs: tuple[int, ...],
    findings: tuple[str, ...],
    snaplen: int | None,
    anonymize: bool,
    as_json: bool,
    ports: tuple[int, ...],
    force: str | None,
    condition: Condition | None,
) -> None:
    """Write the frames of some RPCs as a capture of their own.

    These are the packets of their Sends, RDMA Reads and Writes, retransmissions included, the acknowledgements of
    those, and what sets up and ends their connections.  The new capture shows the same of these RPCs as the
    original, except for what other calls tell: the name of a file that an earlier LOOKUP found, or packets that were
    lost and retransmitted together with these.  Extract those calls as well to keep that.

    RPCs are chosen by the filters, all of which must be true, by --rpc and by --finding; --connection alone takes
    every packet of the connection.  Each frame keeps its time, interface and link type, and has its number in
    the original as its comment.

    With --anonymize the new capture can be given away: MAC and IP addresses, GIDs, names, paths, owners, file handles,
    verifiers, state IDs, and IDs of users and groups but root's are replaced, each by another of the same length, the
    same one everywhere; data becomes zeros.  What tells how something went stays: XIDs, sizes, offsets, permissions,
    numbers of files and file systems, and times; so do VLANs, LIDs, ports and queue pairs, which say which way
    packets took.  Checksums are right where they were.

    \b
    Example: what took so long?
      $ rdmascope extract rxe-nfs-all.pcap.zst --slower-than 150ms -o slow.pcapng
      slow.pcapng: 4 RPCs of 3 connections in 31 frames, 6.54 KiB
      $ rdmascope packets slow.pcapng
          No.      Time          Source   Destination     Protocol Length Info
            1  0.000000       10.77.0.2 → 10.77.0.1       RRoCE       322 CM: ...
              frame 927
      ...
    """
    options = analyzer_options(ports, force)
    check_outputs([None if is_url(output) else output], files)
    connections: frozenset[int] = frozenset()
    if condition is not None and condition.only_connections:
        connections, condition = frozenset(condition.filters.connections), None
    if condition is None and not (rpcs or findings or connections):
        raise click.UsageError("what is to be extracted? give --where or another filter, --rpc or --finding", ctx)
    with rereadable(files) as paths:
        given = GivenCaptures(files, options, paths)
        frames: frozenset[int] = frozenset()
        chosen = frozenset(rpcs)
        if findings:
            found = places_of_findings(lambda: given.session() if given.behind else Session(paths, options), findings)
            chosen, frames = chosen | found.rpcs, frozenset(found.frames)
            connections |= found.connections
        choice = Choice(condition, chosen, connections, frames)
        with written_to(output, given.inputs) as path:
            extracted = given.extract(path, choice, snaplen or 0, anonymize)
    if as_json:
        print_json(extract_record(output, extracted))
    else:
        rpcs_of = f"{plural(extracted.rpcs, 'RPC')} of {plural(extracted.connections, 'connection')}"
        if extracted.left_out:
            complain(f"{plural(extracted.left_out, 'frame')} left out: their headers are not understood")
        say(f"{output}: {rpcs_of} in {plural(extracted.frames, 'frame')}, {size(extracted.bytes)}")
    given.check()
