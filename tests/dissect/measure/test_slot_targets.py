"""The slots that a server allows its client."""

from __future__ import annotations

from dataclasses import replace
from struct import pack_into

import numpy as np
import pytest
from hypothesis import given, strategies as st

from playbook.samples import MANIFEST, SAMPLES
from rdmascope.captures.read.streams import Limits
from rdmascope.captures.session.session import Session
from rdmascope.dissect.measure.compound_rows import NOT_KNOWN, RpcMessages, slot_result_of, slots_allowed
from rdmascope.dissect.rpcrdma.rpc_table import RpcTable
from rdmascope.dissect.rpcrdma.rpcs import Rpc
from rdmascope.dissect.transport.runs import SendRun

from ..onc.test_compound import QUICK


def tables(name: str) -> list[RpcTable]:
    return list(Session(str(SAMPLES / MANIFEST[name]["file"]), limits=Limits(frames=2000)).tables())


def slots_allowed_by(rpc: Rpc) -> int:
    result = slot_result_of(rpc, RpcMessages(rpc), rpc.backward)
    return NOT_KNOWN if result is None or result.target is None else result.target + 1


@pytest.mark.parametrize("name", sorted(MANIFEST))
def test_columns_say_what_each_reply_says(name: str) -> None:
    for table in tables(name):
        expected = [slots_allowed_by(rpc) for rpc in table]
        found = slots_allowed(table, np.ones(len(table), np.bool_)).tolist()
        elsewhere = {*table.row_places[table.only_rows["transfer"] >= 0].tolist()}
        assert [one for place, one in enumerate(found) if place not in elsewhere] == [
            one for place, one in enumerate(expected) if place not in elsewhere
        ]


def test_knfsd_allows_what_it_agreed_to() -> None:
    found = {int(one) for table in tables("meta-rxe") for one in slots_allowed(table, np.ones(len(table), np.bool_))}
    assert found == {NOT_KNOWN, 30}


@pytest.fixture(scope="module")
def metadata() -> RpcTable:
    return next(
        table
        for table in tables("meta-rxe")
        if (slots_allowed(table, np.ones(len(table), np.bool_)) > 0).sum() > 40 and len(table.row_places) > 40
    )


@QUICK
@given(st.data())
def test_whatever_the_replies_hold(metadata: RpcTable, data: st.DataObject) -> None:
    """Words of replies are changed: into lengths, counts, other operations, statuses."""
    assert metadata._from is not None
    written = bytearray(metadata.data)
    rows = metadata.only_rows[metadata.only_rows["reply_inline"] > 40]
    for row in data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=8)):
        start = int(rows["reply_at"][row] + rows["reply_send"][row] - rows["reply_inline"][row])
        word = data.draw(st.integers(2, int(rows["reply_inline"][row]) // 4 - 1))
        pack_into(">I", written, start + 4 * word, data.draw(st.integers(0, 80) | st.integers(0, 2**32 - 1)))
    whole = np.frombuffer(written, np.uint8)
    runs = [SendRun(whole, run.rows, run.sender) for run in metadata._from.runs]
    changed = RpcTable([], replace(metadata._from, data=whole, runs=runs), np.empty(0, np.int64))
    for found, rpc in zip(slots_allowed(changed, np.ones(len(changed), np.bool_)).tolist(), changed, strict=True):
        if not rpc.chunks and found != NOT_KNOWN:  # A verifier that is not empty is left unread.
            assert found == slots_allowed_by(rpc)
