"""Paths learned of RPCs that are objects: in columns as one by one."""

from __future__ import annotations

import numpy as np
import pytest

from playbook.samples import MANIFEST, SAMPLES
from rdmascope.captures.read.streams import Limits
from rdmascope.captures.session.session import Session
from rdmascope.dissect.measure import file_names as path_learner
from rdmascope.dissect.measure.file_names import PathLearner
from rdmascope.dissect.rpcrdma.analyzer import Options
from rdmascope.dissect.rpcrdma.rpc_table import RpcTable


def paths(name: str) -> list[tuple[int, str | None]]:
    """Of each RPC, as each batch has them when it ends and as they are known at the end."""
    learner = PathLearner()
    session = Session(str(SAMPLES / MANIFEST[name]["file"]), limits=Limits(frames=500))
    found = []
    for table in session.tables():
        objects = RpcTable(list(table))
        _, called = learner.learn(objects)
        found += list(zip(objects.rows["number"].tolist(), learner.listed(called).listed(), strict=True))
    return found


@pytest.mark.parametrize("name", ["meta-rxe", "rxe-nfs-all", "siw-nfs-all", "loss-rxe", "longcall-rxe"])
def test_objects_teach_in_columns_what_they_teach_one_by_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    together = paths(name)
    monkeypatch.setattr(path_learner, "_usual", lambda table: np.zeros(len(table), np.bool_))
    assert together == paths(name)
    assert sum(path is not None for _, path in together) > 10


def test_a_table_is_learned_once_whoever_asks() -> None:
    once, often = PathLearner(), PathLearner()
    session = Session(str(SAMPLES / MANIFEST["meta-rxe"]["file"]), Options(contents=True), limits=Limits(frames=500))
    for table in session.tables():
        fields, called = once.learn(table)
        early = often.learn_paths(table, 1, 1 << 40).listed()
        assert often.learn(table)[0].columns.keys() == fields.columns.keys()
        often.learn_names(table)
        assert early == often.learn_paths(table, 1, 1 << 40).listed() == once.listed(called).listed()
    names = [
        [(file.handle, [(name.text, name.since, name.until) for name in file.names]) for file in learner.paths]
        for learner in (once, often)
    ]
    assert names[0] == names[1] and sum(len(some) for _, some in names[0]) > 100
