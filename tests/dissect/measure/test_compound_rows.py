"""COMPOUNDs in columns: which of them have to be decoded further."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from playbook import Wire, nfs4
from playbook.capture import Capture, frame_batch
from playbook.nfs4_client import Client
from playbook.samples import truncated_tables
from playbook.xdr_encode import done, op
from rdmascope.dissect.measure.compound_rows import CompoundRow, Compounds, asks_for_lease
from rdmascope.dissect.measure.nfs_state_history import NfsStateHistory, StateListener
from rdmascope.dissect.records.nfs_state import state_records
from rdmascope.dissect.records.schema import Record
from rdmascope.dissect.rpcrdma.analyzer import Analyzer, Options
from rdmascope.dissect.rpcrdma.rpcs import Rpc


class PassListener(NfsStateHistory):
    """Keeps the COMPOUNDs of a batch."""

    def batch_compounds(self) -> list[CompoundRow]:
        compounds = Compounds(self._layouts, self._ends)
        for rows, rpcs in self._row_batches:
            compounds.add(rows, rpcs)
        return [*compounds.listed(np.arange(len(compounds.rows)))]


def test_what_changes_state_or_may_show_the_lease_is_decoded() -> None:
    wire = Wire()
    one = Client(wire.connect())
    one.begin()
    for _ in range(20):
        one.ask(nfs4.read(0, 12), nfs4.read_done(b"twelve bytes"))
        one.ask(op("GETATTR", attr_request=(1, 4)), done("GETATTR", obj_attributes={"size": 90}))
        one.ask(op("GETATTR", attr_request=(10,)), done("GETATTR", obj_attributes={"lease_time": 90}))
        one.close(3)
    history = PassListener()
    analyzer = Analyzer(listener=history.listener)
    analyzer.feed(frame_batch(Capture(wire).frames))
    found = history.batch_compounds()
    assert {one.kind.operations[-1] for one in found} >= {"READ", "GETATTR", "CLOSE"}
    asked = [one for one in found if one.kind.operations[-1] == "GETATTR"]
    looked_at = [one for one in found if one.kind.operations[-1] in ("READ", "CLOSE")]
    assert [one.changes is not None for one in looked_at][:4] == [False, True, False, True]
    assert not any(isinstance(one.changes, Rpc) for one in looked_at)
    assert [isinstance(one.changes, Rpc) for one in asked][:4] == [False, True, False, True]
    assert all(one.session is not None and one.result is not None for one in found if one.kind.operations[-1] == "READ")


@pytest.mark.parametrize("bit", [4, 10])
@given(before=st.binary(max_size=40), words=st.integers(1, 3), cut=st.integers(0, 3))
def test_a_mask_with_lease_time_is_found_wherever_it_stands(bit: int, before: bytes, words: int, cut: int) -> None:
    message = before + bytes(-len(before) & 3)
    mask = (1 << bit).to_bytes(4) + bytes(4 * (words - 1))
    message += (9).to_bytes(4) + words.to_bytes(4) + mask + bytes(cut)
    found = asks_for_lease(np.frombuffer(message, np.uint8), np.array([0]), np.array([len(message)]))
    if bit == 10:
        assert found[0]
    elif before == bytes(len(before)):
        assert not found[0]


@pytest.mark.parametrize("snaplen", [106, 128, 160, 200, 256, 300])
@pytest.mark.parametrize("name", ["meta-rxe", "bidir-rxe", "rxe-nfs-all"])
def test_truncated_rows_tell_what_objects_do(name: str, snaplen: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def told() -> tuple[list[Record], int, int]:
        history = NfsStateHistory()
        analyzer = Analyzer(Options(contents=True), listener=history.listener)
        in_rows = 0
        for table in truncated_tables(name, snaplen, 3000, analyzer):
            in_rows += len(table.row_places)
            history.advance()
        history.finish()
        return [*state_records(history)], history.undecoded, in_rows

    *columns, in_rows = told()
    monkeypatch.setattr(StateListener, "takes_rows", False)
    *reference, none = told()
    assert columns == reference
    assert none < 20 < in_rows
