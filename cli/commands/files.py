"""``rdmascope files``: the files that NFS calls were about, and their contents."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
from rich.text import Text

from rdmascope.captures.extract import MANIFEST, SafeNames, Spool, Target, Written
from rdmascope.dissect.measure.file_contents import ContentChange, ContentRegion, Contents, ContentSource
from rdmascope.dissect.measure.files import File, FileTable, MissingRange
from rdmascope.dissect.onc.file_operations import TYPE_NAMES
from rdmascope.dissect.records import nouns as records
from rdmascope.dissect.records.nouns import Record

from ..reading import Reading, analyzer_options, file_argument, recognition_options
from ..terminal import console, print_json, show
from ..views import files as views

NEVER = "never read or written"


@click.command("files")
@file_argument
@click.option("--all", "everything", is_flag=True, help="Also files that were neither read nor written.")
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
@click.option("--json", "as_json", is_flag=True, help="One rdmascope.file/1 object a line.")
@recognition_options
def command(
    files: tuple[str, ...],
    everything: bool,
    directory: Path | None,
    overwrite: bool,
    as_json: bool,
    ports: tuple[int, ...],
    force: str | None,
) -> None:
    """The files that NFS calls used, and the contents that were transferred.

    A file is a file handle on one server, shown by its CRC-32 as Wireshark does.  A path begins with / at the
    server's root, with ./ in the first directory seen where no root is known, and with a handle in brackets in
    a directory that no call has named.  "read" and "written" count every byte as often as it was transferred, "holes"
    the bytes that are not in the capture; ≥ is a minimum, where no reply had the size.

    --extract writes every file that anything was read from or written to, by offset, and only what was captured:
    the rest is left as holes.  Where contents differ, the last seen counts; the manifest lists every range with its
    RPC and frames, the holes and their reasons, what was overwritten, and conflicts: READs that returned data other
    than last seen, with no captured WRITE in between.

    Example: what was done to which files?

    \b
      $ rdmascope files rxe-nfs-all.pcap.zst
      handle      path                 size      read   written  calls  holes
      0x62d40c52  /                       -         -         -     72      -
      ...
      0x696acad5  /r1m             0.98 MiB  3.91 MiB         -     36   none
      0x765c6af5  /hello.txt            6 B      24 B         -     24   none
      0xf8f59022  /d3/w3           1.00 MiB         -  1.00 MiB      7   none
      0x02a6e74c  /odd3                 3 B         -       3 B      4   none
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

    No conflicts, no holes.  The WRITEs without a reply were repeated on another connection, so /big is complete,
    too.
    """
    if overwrite and directory is None:
        raise click.UsageError("--force goes with --extract", click.get_current_context())
    reading = Reading(files, analyzer_options(ports, force))
    table = FileTable()
    extracts: dict[int, Record] = {}
    if directory is None:
        for rpc in reading.rpcs():
            table.add(rpc)
    else:
        with Target(directory, reading.paths, overwrite) as target, Spool(directory) as spool:
            for rpc in reading.rpcs():
                for transfer in table.add(rpc):
                    spool.add(transfer)
            if reading.analyzer.packets:
                extracts = _extract(target, spool, table, reading.paths)
    listed = [one for one in table if everything or one.transfers or one.calls]
    if as_json:
        for one in listed:
            print_json({**file_record(table, one), "extracted": extracts.get(one.number)})
    else:
        _print(table, listed, directory, extracts)
    reading.check()


def _print(table: FileTable, listed: list[File], directory: Path | None, extracts: dict[int, Record]) -> None:
    out = console()
    if listed:
        show(out, views.grid(table, listed))
    remarks = [note for one in listed for note in views.notes(table, one)]
    remarks += [Text(line, "dim") for line in views.unlisted(len(table) - len(listed), table)]
    if directory is not None:
        remarks += views.extracted(directory, extracts.values())
    if remarks:
        show(out, *([Text()] if listed else []), *remarks)


def _extract(target: Target, spool: Spool, table: FileTable, captures: Sequence[str]) -> dict[int, Record]:
    """Write the files and the manifest; what became of each, by its number."""
    contents = spool.contents()
    ahead = next(contents, None)
    names = SafeNames()
    found: dict[int, Record] = {}
    with os.fdopen(target.create(MANIFEST), "w", encoding="utf-8") as manifest:
        begin = json.dumps(records.record("manifest", capture=", ".join(map(os.path.basename, captures)), files=[]))
        manifest.write(begin.removesuffix("]}"))
        for one in table:
            known = Contents(spool.stored)
            while ahead is not None and ahead[0] <= one.number:
                if ahead[0] == one.number:
                    known = ahead[1]
                ahead = next(contents, None)
            if not one.transfers:
                continue
            written = target.write(names.take(_name(one), one.hash), known, _length(one, known))
            lost = spool.lost.get(one.number, [])
            record = {**file_record(table, one), **contents_fields(one, known, written, lost)}
            manifest.write((",\n" if found else "\n") + json.dumps(record, ensure_ascii=False))
            found[one.number] = {key: record[key] for key in SUMMARY} | {
                "conflicts": len(known.conflicts) + known.conflicts_beyond,
            }
        manifest.write("\n]}\n")
    return found


SUMMARY = "name", "length", "complete", "sha256", "md5", "problem"
"""What ``--json`` tells of an extracted file, beside the number of conflicts."""


def _name(file: File) -> bytes | None:
    if file.links:
        return file.links[-1][1]
    return file.removed[1] if file.removed else None


def _length(file: File, contents: Contents) -> int:
    """The size, and whatever lies behind it and may be there."""
    return max(file.length, contents.regions[-1].end if contents.regions else 0)


def file_record(table: FileTable, file: File) -> Record:
    """``holes`` are null where nothing was read from the file or written to it."""
    paths = table.paths(file)
    return records.record(
        "file",
        number=file.number,
        server=file.server,
        handle=file.handle.hex(),
        handle_hash=file.hash,
        path=paths[0] if paths else None,
        other_paths=paths[1:],
        removed_path=table.removed_path(file),
        file_type=None if file.type is None else TYPE_NAMES.get(file.type, str(file.type)),
        protocols=sorted(
            f"NFSv{version}" + ("" if minor is None else f".{minor}") for version, minor in file.protocols
        ),
        size=file.size,
        least_size=file.length,
        read=file.read,
        written=file.written,
        written_unconfirmed=file.unconfirmed,
        write_refused=file.refused,
        uncommitted=file.uncommitted,
        verifier_changed=file.restarted,
        missing=dict(file.missing),
        calls=dict(file.calls),
        holes=_pairs(file.gaps()) if file.transfers else None,
    )


def contents_fields(file: File, contents: Contents, written: Written, lost: list[MissingRange]) -> Record:
    """What the manifest adds to a file."""
    holes = list(_holes(contents.regions, _length(file, contents), lost))
    doubtful = any(region.doubt for region in contents.regions)
    return {
        "name": written.name,
        "length": written.length,
        "complete": file.size is not None and not holes and not doubtful and not written.problem,
        "sha256": written.sha256,
        "md5": written.md5,
        "problem": written.problem or None,
        "ranges": [_range(region) for region in contents.regions],
        "holes": holes,
        "conflicts": [_change(change) for change in contents.conflicts],
        "conflicts_not_listed": contents.conflicts_beyond,
        "versions": [_change(change) for change in contents.versions],
        "versions_not_listed": contents.versions_beyond,
    }


def _holes(regions: list[ContentRegion], length: int, lost: list[MissingRange]) -> Iterator[Record]:
    """Where nothing is known up to ``length``, cut by the reason."""
    reached = 0
    gaps = []
    for region in regions:
        if region.start > reached:
            gaps.append((reached, region.start))
        reached = region.end
    if reached < length:
        gaps.append((reached, length))
    missing = sorted(lost)
    at = 0
    for start, end in gaps:
        while at and missing[at - 1].end > start:
            at -= 1
        while at < len(missing) and missing[at].end <= start:
            at += 1
        while start < end:
            if at == len(missing) or missing[at].start >= end:
                yield {"offset": start, "length": end - start, "why": NEVER}
                break
            one = missing[at]
            if one.start > start:
                yield {"offset": start, "length": one.start - start, "why": NEVER}
            if one.end > start:
                last = min(end, one.end)
                yield {"offset": max(start, one.start), "length": last - max(start, one.start), "why": one.reason}
                start = last
            at += 1


def _pairs(ranges: list[tuple[int, int]]) -> list[Record]:
    return [{"offset": start, "length": end - start} for start, end in ranges]


def _range(region: ContentRegion) -> Record:
    return {
        "offset": region.start,
        "length": region.end - region.start,
        **_source(region.source),
        "doubt": region.doubt or None,
    }


def _source(source: ContentSource) -> Record:
    return {
        "from": source.kind,
        "rpc": source.rpc,
        "first_frame": source.first_frame,
        "last_frame": source.last_frame,
    }


def _change(change: ContentChange) -> Record:
    return {
        "offset": change.start,
        "length": change.end - change.start,
        "differing": change.differing,
        "earlier": _source(change.earlier),
        "later": _source(change.later),
    }
