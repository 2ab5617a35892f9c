"""The flat fields of RPCs in columns are those that decoding each RPC gives."""

from __future__ import annotations

from dataclasses import replace
from struct import pack_into

import numpy as np
import pytest
from hypothesis import given, strategies as st

from playbook.samples import MANIFEST, SAMPLES, truncated_tables
from rdmascope.captures.read.streams import Limits
from rdmascope.captures.session.session import Session
from rdmascope.dissect.rpcrdma.analyzer import Analyzer, Options
from rdmascope.dissect.rpcrdma.rpc_fields import FieldReader, rpc_fields
from rdmascope.dissect.rpcrdma.rpc_table import FLAG_TRUNCATED, RpcTable
from rdmascope.dissect.transport.runs import SendRun

from ..onc.test_compound import QUICK


def tables(name: str, frames: int = 3000) -> list[RpcTable]:
    return list(Session(str(SAMPLES / MANIFEST[name]["file"]), limits=Limits(frames=frames)).tables())


@pytest.mark.parametrize("name", sorted(MANIFEST))
def test_columns_hold_what_each_rpc_says(name: str) -> None:
    reader = FieldReader()
    count = 0
    for table in tables(name):
        columns = reader.columns(table)
        for index, rpc in enumerate(table):
            assert columns.row(index) == rpc_fields(rpc) == reader.fields(rpc)
            assert list(map(type, columns.row(index))) == list(map(type, rpc_fields(rpc)))
        count += len(table)
    assert count


@pytest.mark.parametrize("snaplen", [100, 104, 112, 128, 140, 160, 200, 256])
@pytest.mark.parametrize("name", ["meta-rxe", "bidir-rxe", "rxe-nfs-all", "siw-nfs-all"])
def test_columns_hold_what_truncated_rpcs_say(name: str, snaplen: int) -> None:
    reader = FieldReader()
    in_rows = 0
    for table in truncated_tables(name, snaplen, 1500, Analyzer(Options(contents=True))):
        columns = reader.columns(table)
        for index, rpc in enumerate(table):
            assert columns.row(index) == rpc_fields(rpc) == reader.fields(rpc)
        in_rows += int(np.count_nonzero(table.only_rows["flags"] & FLAG_TRUNCATED))
    assert in_rows > 50 or name != "meta-rxe" or snaplen < 106


@pytest.fixture(scope="module")
def metadata() -> RpcTable:
    """Row RPCs of many kinds."""
    return next(table for table in tables("meta-rxe", 400) if len(table.row_places) > 40)


@QUICK
@given(st.data())
def test_whatever_the_messages_hold(metadata: RpcTable, data: st.DataObject) -> None:
    """Words of arguments and results are changed: into lengths, counts, operations that lead elsewhere."""
    assert metadata._from is not None
    written = bytearray(metadata.data)
    rows = metadata.only_rows
    for row in data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=8)):
        side, header = data.draw(st.sampled_from([("call", 19), ("reply", 13)]))
        words = int(rows[f"{side}_send"][row]) // 4
        if words > header:
            at = int(rows[f"{side}_at"][row]) + 4 * data.draw(st.integers(header, words - 1))
            pack_into(">I", written, at, data.draw(st.integers(0, 80) | st.integers(0, 2**32 - 1)))
    whole = np.frombuffer(written, np.uint8)
    runs = [SendRun(whole, run.rows, run.sender) for run in metadata._from.runs]
    changed = RpcTable([], replace(metadata._from, data=whole, runs=runs), np.empty(0, np.int64))
    columns = FieldReader().columns(changed)
    for index, rpc in enumerate(changed):
        if not rpc.chunks:
            assert columns.row(index) == rpc_fields(rpc)
