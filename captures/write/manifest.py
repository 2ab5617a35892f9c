"""The contents of files written into a directory, and the manifest of where each byte came from."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator, Sequence

from rdmascope.dissect.measure.file_contents import ContentChange, ContentRegion, Contents, ContentSource
from rdmascope.dissect.measure.files import File, FileTable, MissingRange
from rdmascope.dissect.records.files import file_record
from rdmascope.dissect.records.schema import Record, record

from .file_copies import MANIFEST, SafeNames, Spool, Target, Written

NEVER = "never read or written"


def extract_files(target: Target, spool: Spool, table: FileTable, captures: Sequence[str]) -> dict[int, Record]:
    """Write the files and the manifest; what became of each, by its number."""
    contents = spool.contents()
    ahead = next(contents, None)
    names = SafeNames()
    found: dict[int, Record] = {}
    with io.TextIOWrapper(io.BufferedWriter(target.create(MANIFEST)), "utf-8") as manifest:
        begin = json.dumps(record("manifest", capture=", ".join(map(os.path.basename, captures)), files=[]))
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
            entry = {**file_record(table, one), **contents_fields(one, known, written, lost)}
            manifest.write((",\n" if found else "\n") + json.dumps(entry, ensure_ascii=False))
            found[one.number] = {key: entry[key] for key in SUMMARY} | {
                "conflicts": len(known.conflicts) + known.conflicts_beyond,
            }
        manifest.write("\n]}\n")
    return found


SUMMARY = "name", "length", "complete", "sha256", "md5", "problem"
"""What ``--json`` tells of an extracted file, beside the number of conflicts."""


def _name(file: File) -> bytes | None:
    last = next((name for name in reversed(file.names) if name.until is None), file.names[-1] if file.names else None)
    return last.raw if last is not None and last.raw else None


def _length(file: File, contents: Contents) -> int:
    """The size, and whatever lies behind it and may be there."""
    return max(file.length, contents.regions[-1].end if contents.regions else 0)


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
