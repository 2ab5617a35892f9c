"""A file that NFS calls were about, as a record."""

from __future__ import annotations

from ..measure.files import File, FileTable
from ..onc.file_operations import TYPE_NAMES
from .report import distribution_fields
from .schema import Record, record


def file_record(table: FileTable, file: File) -> Record:
    """``holes`` are null where nothing was read from the file or written to it."""
    paths = table.paths(file)
    return record(
        "file",
        number=file.number,
        server=file.server,
        handle=file.handle.hex(),
        handle_hash=file.hash,
        path=paths[0] if paths else None,
        other_paths=paths[1:],
        removed_path=table.removed_path(file),
        earlier_names=[
            {"path": path, "since_ns": since, "until_ns": until, "ended": ended}
            for path, since, until, ended in table.earlier_names(file)
        ],
        file_type=None if file.type is None else TYPE_NAMES.get(file.type, str(file.type)),
        protocols=sorted(
            f"NFSv{version}" + ("" if minor is None else f".{minor}") for version, minor in file.protocols
        ),
        reads=file.reads,
        writes=file.writes,
        latency=distribution_fields(file.latency),
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
        holes=ranges_of(file.gaps()) if file.transfers else None,
    )


def ranges_of(ranges: list[tuple[int, int]]) -> list[Record]:
    return [{"offset": start, "length": end - start} for start, end in ranges]
