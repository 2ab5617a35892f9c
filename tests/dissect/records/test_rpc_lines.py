"""Lines of RPCs, made by the column: each is the record of its RPC, and they come in the order of the calls."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from playbook.rows import decided
from playbook.samples import MANIFEST, SAMPLES
from rdmascope.captures.read.streams import Limits
from rdmascope.captures.session.session import Session
from rdmascope.dissect.measure.call_order import MAX_HELD
from rdmascope.dissect.records.rpc import full_fields
from rdmascope.dissect.records.rpc_lines import RpcLines, rpc_records
from rdmascope.dissect.rpcrdma.rpc_table import RpcTable


def encode(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def session(name: str, frames: int) -> Session:
    return Session(str(SAMPLES / MANIFEST[name]["file"]), limits=Limits(frames=frames))


def listed(name: str, frames: int, rows: bool, max_held: int = MAX_HELD, full: bool = False) -> str:
    reading = session(name, frames)
    lines = RpcLines(reading.path_learner(), encode, full=full, max_held=max_held)
    with decided(rows):
        pages = [page for table in reading.tables() for page in lines.add(table)]
    return b"".join([*pages, *lines.rest()]).decode()


def records(name: str, frames: int, full: bool) -> Iterator[dict[str, Any]]:
    reading = session(name, frames)
    learner = reading.path_learner()
    with decided(False):
        named = [one for table in reading.tables() for one in learner.named(table)]
    named.sort(key=lambda one: one.rpc.number)
    for one, record in zip(named, rpc_records(RpcTable([one.rpc for one in named])), strict=True):
        yield {**record, "path": one.path(), **(full_fields(one.rpc) if full else {})}


@pytest.mark.parametrize("name", ["meta-rxe", "loss-rxe", "rxe-nfs-all", "siw-nfs-all"])
def test_lines_of_columns_are_those_of_objects(name: str) -> None:
    assert any(len(table.row_places) for table in session(name, 700).tables()) or name == "siw-nfs-all"
    lines = listed(name, 700, rows=True)
    assert lines == listed(name, 700, rows=False) == listed(name, 1 << 15, rows=True)
    assert lines.splitlines() == [encode(one) for one in records(name, 700, full=False)]


def test_full_lines_have_messages_and_chunks() -> None:
    lines = listed("meta-rxe", 700, rows=True, full=True).splitlines()
    assert lines == [encode(one) for one in records("meta-rxe", 700, full=True)]
    assert any(json.loads(line)["chunk_list"] for line in lines)


def test_followed_lines_come_as_rpcs_end() -> None:
    numbers = [json.loads(line)["number"] for line in listed("loss-rxe", 700, True, max_held=0).splitlines()]
    assert numbers == [rpc.number for rpc in session("loss-rxe", 700).rpcs()]
    assert numbers != sorted(numbers)
