"""``rdmascope export``: the RPCs, for tools that know ONC RPC over TCP, and the tables, for those that know tables."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import nullcontext
from pathlib import Path

import click
from click.core import ParameterSource

from rdmascope.captures.extract.cut import Choice, extract_record, places_of_findings
from rdmascope.captures.read.remote import is_url
from rdmascope.captures.session.session import Session
from rdmascope.captures.tables.condition import Condition, chosen
from rdmascope.captures.tables.saved import holds_tables
from rdmascope.captures.write.export import EXPORTERS, export_record
from rdmascope.captures.write.output import check_outputs, open_output, seekable, written_to
from rdmascope.captures.write.stale_tempdirs import FolderOfProcess
from rdmascope.dissect.records.schema import schema
from rdmascope.dissect.units import count, plural, size

from ..each_capture import GivenCaptures
from ..options import Size, filter_options, refuse_options
from ..reading import analyzer_options, file_argument, jobs_option, opened, recognition_options, with_packets
from ..terminal import EXIT_BAD_INPUT, binary_output, complain, print_json, say

TABLE_FORMATS = ("parquet", "csv", "arrow")
TCP, CAPTURE, WIRESHARK = "tcp-pcapng", "capture", "wireshark"
OF_TARGETS = {
    "skip_incomplete": (TCP,), "no_comments": (TCP,), "rpcs": (CAPTURE,), "rules": (CAPTURE,), "snaplen": (CAPTURE,),
    "anonymize": (CAPTURE,), "display_filter": (WIRESHARK,), "jobs": (TCP, *TABLE_FORMATS, *EXPORTERS),
}  # fmt: skip
"""Options of some targets."""


@click.command("export")
@file_argument
@click.option(
    "--to",
    "target",
    type=click.Choice([TCP, CAPTURE, WIRESHARK, *TABLE_FORMATS, *EXPORTERS]),
    default=TCP,
    show_default=True,
    help="What to write: ONC RPC over TCP in a pcapng file, or opened in Wireshark; a capture of the RPCs' frames; or"
    " all tables, as files of a folder.",
)
@click.option(
    "-o",
    "--output",
    metavar="OUT",
    help="File to write, - for standard output; of tables, the folder.  Or a URL of a store.",
)
@click.option("--rpc", "rpcs", type=click.IntRange(1), multiple=True, metavar="N", help="capture: this RPC, too.")
@click.option(
    "--rule",
    "rules",
    multiple=True,
    metavar="ID",
    help="capture: RPCs that broke this rule of the audit, or that this detector of diagnose names; frames and"
    " connections where it names no RPC.",
)
@click.option("--snaplen", type=Size("1", "256KiB"), metavar="SIZE", help="capture: truncate longer frames.")
@click.option(
    "--anonymize",
    is_flag=True,
    help="capture: replace addresses, names, handles and other opaque bytes consistently, and data by zeros.",
)
@click.option("-Y", "--display-filter", metavar="FILTER", help="wireshark: its filter, such as nfs.opcode==25.")
@click.option("--skip-incomplete", is_flag=True, help="Leave out messages with missing bytes.")
@click.option("--no-comments", is_flag=True, help="Leave out the packets' comments, and the audit that they need.")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help=f"Say what was written as one {schema('export')} or {schema('extract')} object, or as"
    f" {schema('exported_table')} objects.",
)
@filter_options
@recognition_options
@jobs_option
@click.pass_context
def command(
    ctx: click.Context,
    files: tuple[str, ...],
    target: str,
    output: str | None,
    rpcs: tuple[int, ...],
    rules: tuple[str, ...],
    snaplen: int | None,
    anonymize: bool,
    display_filter: str | None,
    skip_incomplete: bool,
    no_comments: bool,
    as_json: bool,
    ports: tuple[int, ...],
    force: str | None,
    jobs: int | None,
    condition: Condition | None,
) -> None:
    """Write the RPCs as a capture of ONC RPC over TCP, also into Wireshark, as a capture of their frames, or as tables.

    Every call and reply is written whole, with chunk data in its place, under the original addresses, in a TCP
    stream of its own for each RDMA connection.  A call has the time of its Send's first packet, a reply that of
    its Send's last: the time between them is the latency that the client saw.

    The server's port is 2049 wherever NFS was spoken, since that is where NFS over TCP lives and where tools
    look for it (20049 is NFS over RDMA); elsewhere it is the original service port.  The client's port is 32768
    and up, one for each connection: RDMA has no client port.

    A message with missing bytes is written as a snaplen would leave it: packets of the right length, truncated before
    the first missing byte.  Nothing is filled in.  An RDMA_ERROR is no RPC message: its call stays
    without reply.

    Each packet has a comment, which Wireshark shows above it: the number of the RPC for "rdmascope show --rpc", the
    RDMA frames that it came from, its chunks, the parts of its latency, and what the audit found.  --to wireshark
    opens Wireshark on it; the file is temporary.

    Example: how does tshark decode these RPCs?

    \b
      $ rdmascope export rxe-nfs-all.pcap.zst -o nfs-tcp.pcapng
      nfs-tcp.pcapng: 474 messages in 664 packets
      $ tshark -r nfs-tcp.pcapng -q -z rpc,programs
      Program    Version  Calls    Min SRT    Max SRT    Avg SRT
      Portmap(100000)  2      2   0.044959   0.056092   0.050526
      NFS(100003)      3     43   0.006533   0.050235   0.040449
      NFS(100003)      4    181   0.002358   0.207951   0.046630
      MOUNT(100005)    3      4   0.017608   0.045661   0.037206
      NFSACL(100227)   3      5   0.040918   0.045185   0.042295
      ...
      $ tshark -r nfs-tcp.pcapng -Y _ws.malformed | wc -l
      0

    Other programs take the tables: Parquet (Polars, pandas, DuckDB, Spark), CSV, or Arrow, each table of
    docs/tables.md as a file of the folder OUT.  The files explain their columns; beside CSV, csv-metadata.json does (an
    empty field is an unknown value, NULL the name of a procedure).  A
    folder of Parquet of a whole capture stands for it, as one of "rdmascope sql --save" does.

    Example: what is the median latency of all RPCs, asked of pandas?

    \b
      $ rdmascope export rxe-nfs-all.pcap.zst --to parquet -o tables
      tables: 237 rpcs, 580 operations, 83 chunks, 147 segments, ...
      $ python3 -c "import pandas as pd;
        print(pd.read_parquet('tables/rpcs.parquet').latency_ns.median())"
      43299000.0

    --to capture writes the packets of their Sends, RDMA Reads and Writes, retransmissions included, the
    acknowledgements of those, and what sets up and ends their connections. The new capture shows the same of these RPCs
    as the original, except for what other calls tell: file names from an earlier LOOKUP, or packets that were lost and
    retransmitted together with theirs. To keep that, write those calls as well.

    RPCs are chosen by the filters, all of which must be true, by --rpc and by --rule; --connection alone takes
    every packet of the connection.  Each frame keeps its time, interface and link type, and has its number in
    the original as its comment.

    --anonymize makes a capture that can be shared: MAC and IP addresses, GIDs, names, paths, owners, file handles,
    verifiers, state IDs, and IDs of users and groups but root's are replaced, each by another of the same length, the
    same one everywhere; data becomes zeros. XIDs, sizes, offsets, permissions, numbers of files and file systems, and
    times stay; so do VLANs, LIDs, ports and queue pairs, which identify paths. Checksums that were right are right
    again.

    Example: what took so long?

    \b
      $ rdmascope export rxe-nfs-all.pcap.zst --to capture --rpc 181 -o rpc.pcapng
      rpc.pcapng: 1 RPC of 1 connection in 9 frames, 1.99 KiB
      $ rdmascope packets rpc.pcapng
          No.      Time          Source   Destination     Protocol Length Info
            1  0.000000       10.77.0.2 → 10.77.0.1       RRoCE       322 CM: ...
              frame 1918
      ...
    """
    for name, targets in OF_TARGETS.items():
        if target not in targets and ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            option = next(param.opts[-1] for param in ctx.command.params if param.name == name)
            raise click.UsageError(f"{option} goes with --to {' or '.join(targets)}", ctx)
    if target == WIRESHARK:
        refuse_options((output is not None, "-o: --to wireshark writes no file that stays"))
        _open_in_wireshark(
            ctx, GivenCaptures(with_packets(files), analyzer_options(ports, force)), condition, display_filter
        )
        return
    if output is None:
        raise click.UsageError("Missing option '-o' / '--output'.", ctx)
    if target == CAPTURE:
        _extract(ctx, with_packets(files), output, rpcs, rules, snaplen, anonymize, as_json, ports, force, condition)
        return
    if target != TCP:
        session = opened(files, ports, force, jobs=jobs)
        if target in EXPORTERS:
            passed = session.rpcs() if condition is None else chosen(session, condition)
            with nullcontext(binary_output()) if output == "-" else open_output(output, files) as file:
                EXPORTERS[target].run(passed, file)
            session.check()
        else:
            _export_tables(session, target, output, as_json, condition)
        return
    given = GivenCaptures(with_packets(files), analyzer_options(ports, force))
    to_stdout = output == "-"
    with written_to(output, given.inputs) as path:
        stream = binary_output() if to_stdout else path
        exported = given.export_tcp(stream, skip_incomplete, condition, not no_comments, jobs)
    if as_json and not to_stdout:
        print_json(export_record(output, exported))
    else:
        say(f"{output}: {plural(exported.messages, 'message')} in {plural(exported.packets, 'packet')}", to_stdout)
        for number, what in (
            (exported.incomplete, "written with bytes missing"),
            (exported.skipped, "left out, bytes are missing"),
            (exported.not_reconstructed, "left out, no RPC message in it"),
        ):
            if number:
                complain(f"{count(number)} {'message' if number == 1 else 'messages'} {what}")
    given.refuse_nothing(condition)
    given.check()


def _export_tables(session: Session, format: str, folder: str, as_json: bool, condition: Condition | None) -> None:
    from rdmascope.captures.write.table_export import exported_table_record, tables_of, tables_of_saved

    refuse_options((folder == "-", "tables are several files: -o takes a folder"))
    with written_to(folder, session.paths) as made:
        if holds_tables(session.paths[0]):
            written = tables_of_saved(session.paths[0], format, str(made), condition)
        else:
            written = tables_of(session, format, str(made), condition)
    if as_json:
        for table in written:
            print_json(exported_table_record(format, table))
    else:
        say(f"{folder}: {', '.join(f'{count(exported.rows)} {exported.table}' for exported in written)}")
    session.check()


def _extract(
    ctx: click.Context,
    files: tuple[str, ...],
    output: str,
    rpcs: tuple[int, ...],
    rules: tuple[str, ...],
    snaplen: int | None,
    anonymize: bool,
    as_json: bool,
    ports: tuple[int, ...],
    force: str | None,
    condition: Condition | None,
) -> None:
    """The frames of RPCs as a capture of their own."""
    options = analyzer_options(ports, force)
    check_outputs([None if is_url(output) else output], files)
    connections: frozenset[int] = frozenset()
    if condition is not None and condition.only_connections:
        connections, condition = frozenset(condition.filters.connections), None
    which = condition is not None or rpcs or rules or connections
    refuse_options((not which, "which RPCs? give --where or another filter, --rpc or --rule"))
    with seekable(files) as paths:
        given = GivenCaptures(files, options, paths)
        frames: frozenset[int] = frozenset()
        chosen = frozenset(rpcs)
        if rules:
            places = places_of_findings(lambda: given.session() if given.behind else Session(paths, options), rules)
            chosen, frames = chosen | places.rpcs, frozenset(places.frames)
            connections |= places.connections
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


def _open_in_wireshark(
    ctx: click.Context, given: GivenCaptures, condition: Condition | None, display_filter: str | None
) -> None:
    """What is written as ONC RPC over TCP, in a file that goes when Wireshark is closed."""
    program = shutil.which("wireshark")
    if program is None:
        raise click.ClickException(
            "Wireshark is not installed, or not on the PATH; rdmascope export FILE -o OUT.pcapng writes what it reads"
        )
    with FolderOfProcess() as folder:
        path = folder / f"{Path(given.files[0]).name.partition('.')[0] or 'capture'}.pcapng"
        given.export_tcp(path, condition=condition)
        given.refuse_nothing(condition)
        arguments = [program, *(("-Y", display_filter) if display_filter else ()), "-r", str(path)]
        status = subprocess.run(arguments, check=False).returncode
    if status:
        complain(f"Wireshark ended with status {status}")
        ctx.exit(EXIT_BAD_INPUT)
    given.check()
