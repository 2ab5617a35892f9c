"""``rdmascope export``: the RPCs, for tools that know ONC RPC over TCP, and the tables, for those that know tables."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

import click

from rdmascope.captures.session.session import Session
from rdmascope.captures.tables.condition import chosen
from rdmascope.captures.tables.saved import holds_tables
from rdmascope.captures.write.export import EXPORTERS, export_record
from rdmascope.captures.write.output import open_output, written_to
from rdmascope.dissect.records.schema import schema
from rdmascope.dissect.units import count, plural

from ..each_capture import GivenCaptures
from ..options import filter_options
from ..reading import analyzer_options, file_argument, jobs_option, opened, recognition_options, with_packets
from ..terminal import binary_output, complain, print_json, say

if TYPE_CHECKING:
    from rdmascope.captures.tables.condition import Condition

TABLE_FORMATS = ("parquet", "csv", "arrow")
TCP = "tcp-pcapng"


@click.command("export")
@file_argument
@click.option(
    "--to",
    "target",
    type=click.Choice([TCP, *TABLE_FORMATS, *EXPORTERS]),
    default=TCP,
    show_default=True,
    help="What to write: ONC RPC over TCP in a pcapng file; or all tables, as files of a folder.",
)
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="OUT",
    help="File to write, - for standard output; of tables, the folder.  Or a URL of a store.",
)
@click.option("--skip-incomplete", is_flag=True, help="Leave out messages with missing bytes.")
@click.option("--no-comments", is_flag=True, help="Leave out the packets' comments, and the audit that they take.")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help=f"Say what was written as one {schema('export')} object, or {schema('exported_table')} objects.",
)
@filter_options
@recognition_options
@jobs_option
def command(
    files: tuple[str, ...],
    target: str,
    output: str,
    skip_incomplete: bool,
    no_comments: bool,
    as_json: bool,
    ports: tuple[int, ...],
    force: str | None,
    jobs: int | None,
    condition: Condition | None,
) -> None:
    """Write the RPCs as a capture of ONC RPC over TCP, or all tables for other programs.

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
    RDMA frames that it came from, its chunks, the parts of its latency, and what the audit found.  rdmascope
    wireshark FILE opens Wireshark on it.

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

    Other programs take the tables: Parquet (Polars, pandas, DuckDB, Spark), CSV, or Arrow, each table of
    docs/tables.md as a file of the folder OUT.  The files explain their columns; beside CSV, csv-metadata.json does (an
    empty field is an unknown value, NULL the name of a procedure).  A
    folder of Parquet of a whole capture stands for it, as one of "rdmascope sql --save" does.

    Example: what is the median latency of all RPCs, asked of pandas?

    \b
      $ rdmascope export rxe-nfs-all.pcap.zst --to parquet -o tables
      tables: 229 rpcs, 580 operations, 83 chunks, 147 segments, ...
      $ python3 -c "import pandas as pd;
        print(pd.read_parquet('tables/rpcs.parquet').latency_ns.median())"
      43299000.0
    """
    if target != TCP:
        if skip_incomplete or no_comments:
            name = "--skip-incomplete" if skip_incomplete else "--no-comments"
            raise click.UsageError(f"{name} is about packets, not about tables", click.get_current_context())
        session = opened(files, ports, force, jobs=jobs)
        if target in EXPORTERS:
            rpcs = session.rpcs() if condition is None else chosen(session, condition)
            with nullcontext(binary_output()) if output == "-" else open_output(output, files) as file:
                EXPORTERS[target].run(rpcs, file)
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

    if folder == "-":
        raise click.UsageError("tables are several files: -o takes a folder", click.get_current_context())
    with written_to(folder, session.paths) as made:
        if holds_tables(session.paths[0]):
            written = tables_of_saved(session.paths[0], format, str(made), condition)
        else:
            written = tables_of(session, format, str(made), condition)
    if as_json:
        for table in written:
            print_json(exported_table_record(format, table))
    else:
        say(f"{folder}: {', '.join(f'{count(one.rows)} {one.table}' for one in written)}")
    session.check()
