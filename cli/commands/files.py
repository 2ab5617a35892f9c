"""``rdmascope files``: the files that NFS calls were about, and their contents."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from rdmascope.captures.write.file_copies import MANIFEST, Spool, Target, extract_files
from rdmascope.dissect.measure.files import File, FileTable, FileTransfer
from rdmascope.dissect.records.report import file_record
from rdmascope.dissect.records.schema import Record, schema

from ..options import filter_options, refuse_options
from ..reading import captures_of, file_argument, jobs_option, opened, recognition_options
from ..terminal import console, print_json, show

if TYPE_CHECKING:
    from rdmascope.captures.session.session import Session
    from rdmascope.captures.tables.condition import Condition


@click.command("files")
@file_argument
@click.option("--all", "everything", is_flag=True, help="Also list files that were neither read nor written.")
@click.option(
    "--extract",
    "directory",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help=f"Write the contents into DIR, with a {MANIFEST}.",
)
@click.option(
    "--force", "overwrite", is_flag=True, help="Extract into a DIR that is not empty; replaces files of the same name."
)
@click.option("--json", "as_json", is_flag=True, help=f"One {schema('file')} object a line.")
@filter_options
@recognition_options
@jobs_option
def command(
    files: tuple[str, ...],
    everything: bool,
    directory: Path | None,
    overwrite: bool,
    as_json: bool,
    ports: tuple[int, ...],
    force: str | None,
    jobs: int | None,
    condition: Condition | None,
) -> None:
    """The files that NFS calls used, and the contents that were transferred.

    A file is a file handle on one server, shown by its CRC-32 as Wireshark does. A path begins with / at the server's
    root, and with … in a directory that no call has named; former names of files, with their times, follow the table.
    "read" and "written" count every byte each time it was transferred, "holes" the bytes that are not in the capture; ≥
    marks a minimum if no reply gave the size. A wide terminal shows the number of READs and WRITEs, and the median and
    p99 of the latency of their RPCs.

    --extract writes every file that anything was read from or written to, by offset, and only what was captured: the
    rest is left as holes. If contents differ, the last seen count; the manifest lists every range with its RPC and
    frames, the holes and their reasons, what was overwritten, and conflicts: READs that returned other data than
    before, with no captured WRITE in between.

    Example: what was done to which files?

    \b
      $ rdmascope files rxe-nfs-all.pcap.zst
      handle      path                     size      read   written  calls  holes
      0x62d40c52  /export/                    -         -         -     72      -
      ...
      0x696acad5  /export/r1m          0.98 MiB  3.91 MiB         -     36   none
      0x765c6af5  /export/hello.txt         6 B      24 B         -     24   none
      0xf8f59022  /export/d3/w3        1.00 MiB         -  1.00 MiB      7   none
      0x02a6e74c  /export/odd3              3 B         -       3 B      4   none
      ...
    \b
      200 more files were neither read nor written; --all lists them

    r1m was read once in each of four protocol versions.  Did a client on a network that loses packets read the same
    file that the server has?

    \b
      $ rdmascope files loss-rxe.pcap.zst --extract contents
      ...
      /big: 2.00 MiB written without a reply: whether the server has them is
      unknown
      /big: 2.00 MiB read or written, but not in the capture: not transferred in
      this capture
      200 more files were neither read nor written; --all lists them
      contents: 2 files and a manifest; 2 complete
      $ md5sum contents/r1m
      cd0370fb1fcc9bd88804d295c50bbf3e  contents/r1m

    No conflicts, no holes.  The WRITEs without a reply were retransmitted on another connection, so /big is complete,
    too.

    With filters only the RPCs that pass count, and only their files are listed. Names, types and sizes still come from
    all calls.
    """
    refuse_options((overwrite and directory is None, "--force goes with --extract"))
    if condition is not None or directory is not None:
        what = "the contents of files" if directory is not None else "what single RPCs did with files"
        files = captures_of(files, what, condition=condition)
    reading = opened(files, ports, force, jobs=jobs)
    extracts: dict[int, Record] = {}
    passes = None if condition is None else lambda table: condition.mask(table, reading)
    if directory is None:
        table = reading.files(passes=passes)
    else:
        with Target(directory, reading.paths, overwrite) as target, Spool(directory) as spool:

            def keep(transfers: list[FileTransfer]) -> None:
                for transfer in transfers:
                    spool.add(transfer)

            table = reading.files(keep, passes)
            if reading.analyzer.packets:
                extracts = extract_files(target, spool, table, reading.paths)
    if condition is not None:
        reading.refuse(condition.problem(reading))
    listed = [file for file in table if (everything and condition is None) or file.transfers or file.calls]
    if as_json:
        for file in listed:
            print_json({**file_record(table, file), "extracted": extracts.get(file.number)})
    else:
        _print(reading, table, listed, condition, directory, extracts)
    reading.check()


def _print(
    session: Session,
    table: FileTable,
    listed: list[File],
    condition: Condition | None,
    directory: Path | None,
    extracts: dict[int, Record],
) -> None:
    # Only here: JSON lines would wait for them.
    from rich.text import Text

    from ..views import files as views
    from ..views.tables import filter_line, limit_lines

    out = console()
    if condition is not None:
        show(out, filter_line(condition, "what these did with files"), Text())
    if limits := limit_lines(session.analyzer):
        show(out, *limits)
    if listed:
        show(out, views.grid(table, listed, out.width))
    remarks = [note for file in listed for note in views.notes(table, file)]
    remarks += views.earlier(table, listed, session.first_time)
    unlisted = len(table) - len(listed) if condition is None else 0
    remarks += [Text(line, "dim") for line in views.unlisted(unlisted, table)]
    if directory is not None:
        remarks += views.extracted(directory, extracts.values())
    if not listed and not remarks:
        remarks.append(Text("no file: no call that could be read names one"))
    if remarks:
        show(out, *([Text()] if listed else []), *remarks)
