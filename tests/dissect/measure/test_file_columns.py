"""What is read of files by columns is what the decoders say of each RPC alone."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields

import pytest

from playbook.samples import MANIFEST, SAMPLES
from rdmascope.captures.read.streams import Limits
from rdmascope.captures.session.session import Session
from rdmascope.dissect.measure.files import FileColumns, FileTable
from rdmascope.dissect.measure.truncated_messages import nfs_messages
from rdmascope.dissect.rpcrdma.analyzer import Options
from rdmascope.dissect.rpcrdma.reassembly import reassembled_call, reassembled_reply

HIDDEN = ("latencies", "names", "seen")


def session(name: str, frames: int = 10_000) -> Session:
    return Session(str(SAMPLES / MANIFEST[name]["file"]), Options(contents=True), limits=Limits(frames=frames))


@pytest.mark.parametrize("name", list(MANIFEST))
def test_events_and_operations_are_those_of_the_messages(name: str) -> None:
    columns = FileColumns()
    by_columns: Counter[str] = Counter()
    for table in session(name).tables():
        found = columns.messages(table)
        assert all(table.is_plain[row] for row in found)
        for row, messages in found.items():
            rpc = table.rpc(row)
            alone = nfs_messages(reassembled_call(rpc), reassembled_reply(rpc))
            assert alone is not None
            assert (messages.events, messages.operations, messages.problem) == (
                alone.events,
                alone.operations,
                alone.problem,
            )
            if messages.call is not None and messages.reply is not None:
                assert (messages.call.prefix, messages.call.length) == (alone.call.prefix, alone.call.length)  # type: ignore[union-attr]
                assert messages.reply.prefix == alone.reply.prefix  # type: ignore[union-attr]
            by_columns[rpc.operations[-1] if rpc.operations else rpc.name] += 1
    if name == "meta-rxe":
        assert by_columns.keys() >= {"GETATTR", "LOOKUP", "CREATE", "REMOVE", "WRITE", "CLOSE"}


@pytest.mark.parametrize(("name", "frames", "every"), [("meta-rxe", 10_000, 1), ("rxe-nfs-all", 300, 3)])
def test_files_are_those_that_rpcs_give_one_by_one(name: str, frames: int, every: int) -> None:
    one_by_one, by_table = FileTable(), FileTable()
    for table in session(name, frames).tables():
        counts = [row % every == 0 for row in range(len(table))]
        alone = []
        for rpc, counted in zip(table, counts, strict=True):
            transfers = one_by_one.add(rpc, counted)
            used = [(file.handle, done) for file, done in one_by_one.used]
            alone.append(([(one.kind, one.file.handle, *one[2:]) for one in transfers], used))
        together = []
        for transfers in by_table.add_table(table, counts):
            used = [(file.handle, done) for file, done in by_table.used]
            together.append(([(one.kind, one.file.handle, *one[2:]) for one in transfers], used))
        assert together == alone
    assert by_table.undecoded == one_by_one.undecoded
    for file, other in zip(by_table, one_by_one, strict=True):
        assert by_table.paths(file) == one_by_one.paths(other)
        assert repr(file.latency) == repr(other.latency)
        for field in fields(file):
            if field.name not in HIDDEN:
                assert getattr(file, field.name) == getattr(other, field.name)
