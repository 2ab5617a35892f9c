"""What is read of files by columns is what the decoders say of each RPC alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from playbook.samples import MANIFEST, SAMPLES, truncated_tables
from rdmascope.captures.read.streams import Limits
from rdmascope.captures.session.session import Session
from rdmascope.dissect.measure.file_names import nfs_messages
from rdmascope.dissect.measure.files import FileTable, FileUses
from rdmascope.dissect.measure.nfs_operations import OperationReader
from rdmascope.dissect.onc.file_operations import READ, WRITE, FileEvent
from rdmascope.dissect.rpcrdma.analyzer import Analyzer, Options
from rdmascope.dissect.rpcrdma.reassembly import reassembled_call, reassembled_reply
from rdmascope.dissect.rpcrdma.rpc_table import RpcTable
from rdmascope.dissect.rpcrdma.rpcs import Reassembled

HIDDEN = ("latencies", "names", "seen")


def session(name: str, frames: int = 10_000) -> Session:
    return Session(str(SAMPLES / MANIFEST[name]["file"]), Options(contents=True), limits=Limits(frames=frames))


def _bytes(message: Reassembled | None) -> tuple[bytes, int] | None:
    return None if message is None else (message.prefix, message.length)


def compared(tables: Iterable[RpcTable]) -> Counter[str]:
    """The operations of RPCs; in columns they are what the messages of each say."""
    reader = OperationReader()
    by_columns: Counter[str] = Counter()
    for table in tables:
        found = reader.read(table)
        operations: dict[int, list[Any]] = {}
        for row in found.rows:
            operations.setdefault(int(row["row"]), []).append(found.operation(row.item()))
            assert found.handles[row["file"]][0] == found.servers[row["row"]]
        events: dict[int, list[FileEvent]] = {}
        for place, event in zip(found.event_rows.tolist(), found.events, strict=True):
            events.setdefault(place, []).append(event)
        problems = []
        for place, rpc in enumerate(table):
            alone = nfs_messages(reassembled_call(rpc), reassembled_reply(rpc))
            if alone is None or rpc.state == "duplicate reply" or (rpc.program, rpc.version) == (100003, 2):
                assert place not in operations and place not in events
                continue
            assert (*operations.get(place, ()),) == alone.operations
            problems += [alone.problem] if alone.problem and rpc.program in (100003, 100005) else []
            assert (*events.get(place, ()),) == alone.events
            if any(event.kind in (READ, WRITE) for event in alone.events):
                for message, of_reply in ((alone.call, False), (alone.reply, True)):
                    assert _bytes(found.message(place, of_reply)) == _bytes(message)
            by_columns[rpc.operations[-1] if rpc.operations else rpc.name] += bool(alone.operations)
        assert Counter(problems) <= Counter(found.undecoded)
    return by_columns


@pytest.mark.parametrize("name", list(MANIFEST))
def test_events_and_operations_are_those_of_the_messages(name: str) -> None:
    by_columns = compared(session(name).tables())
    if name == "meta-rxe":
        assert by_columns.keys() >= {"GETATTR", "LOOKUP", "CREATE", "REMOVE", "WRITE", "CLOSE"}


@pytest.mark.parametrize("snaplen", [106, 128, 150, 200, 256])
def test_and_so_they_are_of_truncated_messages(snaplen: int) -> None:
    by_columns = compared(truncated_tables("meta-rxe", snaplen, 1500, Analyzer(Options(contents=True))))
    assert bool(by_columns.total()) == (snaplen > 150)


@pytest.mark.parametrize(("name", "frames", "every"), [("meta-rxe", 10_000, 1), ("rxe-nfs-all", 300, 3)])
def test_files_are_those_that_rpcs_give_one_by_one(name: str, frames: int, every: int) -> None:
    one_by_one, by_table = FileTable(), FileTable()

    def shown(uses: FileUses) -> tuple[list[Any], list[Any]]:
        moved = [(call, [(one.kind, one.file.handle, *one[2:]) for one in some]) for call, some in uses.transfers]
        done = [
            (number, uses.names[row["name"]], *(row[name] for name in ("number", "succeeded", "type", "size", "count")))
            for number, row in zip(uses.numbers.tolist(), uses.operations, strict=True)
        ]
        return moved, done

    for table in session(name, frames).tables():
        counts = np.arange(len(table)) % every == 0
        alone: tuple[list[Any], list[Any]] = ([], [])
        for rpc, counted in zip(table, counts, strict=True):
            for some, more in zip(
                alone, shown(one_by_one.add_table(RpcTable([rpc]), np.array([counted]))), strict=True
            ):
                some += more
        assert shown(by_table.add_table(table, counts)) == alone
    assert by_table.undecoded == one_by_one.undecoded
    for file, other in zip(by_table, one_by_one, strict=True):
        assert by_table.paths(file) == one_by_one.paths(other)
        assert repr(file.latency) == repr(other.latency)
        for field in fields(file):
            if field.name not in HIDDEN:
                assert getattr(file, field.name) == getattr(other, field.name)
