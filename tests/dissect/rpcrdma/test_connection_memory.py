"""What a connection with a call and its reply costs: in proportion to their number, and little for each."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from itertools import pairwise

import pytest

from playbook import Capture, Wire, call, nfs3, reply
from playbook.capture import frame_batch
from rdmascope.dissect.audit.auditor import Auditor
from rdmascope.dissect.frames import FrameBatch
from rdmascope.dissect.rpcrdma.analyzer import Analyzer, drop_contents

FEW = 25


def analysed(batch: FrameBatch) -> object:
    analyzer = Analyzer()
    return analyzer, len(analyzer.feed(batch)), len(analyzer.finish())


def audited(batch: FrameBatch) -> object:
    analyzer, auditor = Analyzer(), Auditor(release=drop_contents)
    analyzer.listener = auditor.listener
    ended = len(analyzer.feed(batch)), len(analyzer.finish())
    auditor.finish(analyzer.conversations)
    return analyzer, auditor, ended


def kept(state: Callable[[FrameBatch], object], batch: FrameBatch) -> int:
    """Bytes that the state of a pass holds at its end."""
    gc.collect()
    tracemalloc.start()
    held = state(batch)
    gc.collect()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del held
    return size


@pytest.mark.parametrize("managed", [True, False], ids=["CM", "no CM"])
@pytest.mark.parametrize(("state", "most"), [(analysed, 11_500), (audited, 34_000)])
def test_a_connection_costs_little(state: Callable[[FrameBatch], object], most: int, managed: bool) -> None:
    batches = []
    for count in (FEW, 2 * FEW, 4 * FEW):
        wire = Wire()
        for _ in range(count):
            reply(call(wire.connect(cm=managed), nfs3.null()), nfs3.null_reply())
        batches.append(frame_batch(Capture(wire).frames))
    state(batches[0])  # What is made once and kept does not count.
    sizes = [kept(state, batch) for batch in batches]
    for (fewer, more), count in zip(pairwise(sizes), (FEW, 2 * FEW), strict=True):
        assert more - fewer < most * count
